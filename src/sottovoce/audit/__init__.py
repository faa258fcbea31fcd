# SPDX-License-Identifier: Apache-2.0
"""What each person really lost to a release: exactly for the curator, as a bound from public
numbers for themselves.

for the curator, confidential    per_instance, compose, pdp_to_dp; GaussianOutput and
                                 GaussianObjective to describe
                                 mechanisms that this library does not run
for everybody                    mine, bounds, histogram
the mathematics itself           gaussian_epsilon, posterior_epsilon and their log_delta,
                                 leave_one_out, group,
                                 generalisation: pure functions of numbers
                                 (docs/theory/per-instance.md)
"""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING

from sottovoce.moved import OLD_PATHS as _OLD_PATHS

if TYPE_CHECKING:
    from sottovoce.accounting.profiles import (
        gaussian_epsilon,
        gaussian_log_delta,
        posterior_epsilon,
        posterior_log_delta,
    )
    from sottovoce.accounting.renyi import generalisation, group
    from sottovoce.audit.instance_losses import (
        Composed,
        PerInstance,
        compose,
        pdp_to_dp,
        per_instance,
    )
    from sottovoce.audit.leverages import fit_ridge as leave_one_out
    from sottovoce.audit.mechanisms import GaussianObjective, GaussianOutput
    from sottovoce.audit.public_bounds import Mine, bounds, histogram, mine
    from sottovoce.data.engine import Watch as _Watch
    from sottovoce.data.source import DataSource as _DataSource
    from sottovoce.release import Release as _Release

__path__.append(_OLD_PATHS)

#: Where each name is at home; it is loaded on first use, because whoever draws an audit needs no
#: estimator.
_HOMES = {
    "audit.instance_losses": ("Composed", "PerInstance", "compose", "pdp_to_dp", "per_instance"),
    "audit.mechanisms": ("GaussianObjective", "GaussianOutput"),
    "audit.public_bounds": ("Mine", "bounds", "histogram", "mine"),
    "audit.leverages": ("leave_one_out",),
    "accounting.profiles": (
        "gaussian_epsilon",
        "gaussian_log_delta",
        "posterior_epsilon",
        "posterior_log_delta",
    ),
    "accounting.renyi": ("generalisation", "group"),
}

__all__ = [
    "Composed",
    "GaussianObjective",
    "GaussianOutput",
    "Mine",
    "PerInstance",
    "bounds",
    "compose",
    "gaussian_epsilon",
    "gaussian_log_delta",
    "generalisation",
    "group",
    "histogram",
    "leave_one_out",
    "mine",
    "pdp_to_dp",
    "per_instance",
    "posterior_epsilon",
    "posterior_log_delta",
]


def audit_from_table(
    release: _Release, source: _DataSource, delta: float, watch: _Watch | None = None
) -> PerInstance:
    """Return the audit of a release from the table it was made from, confidential.

    Parameters
    ----------
    release :
        of a regression that can be audited.
    source :
        the table, with the budgets that the release was made with; any stand for them where it was
        made without.
    delta :
        the δ at which losses are read.
    watch :
        is told how many rows were read.
    """
    from sottovoce.accounting.profiles import check_delta
    from sottovoce.audit import inputs
    from sottovoce.audit.instance_losses import PerInstance
    from sottovoce.data.encoding import Label, Recoding
    from sottovoce.data.source import describe_rows

    level = float(check_delta(delta))
    (_, model) = inputs.find_release(release)
    if inputs.has_equal_weights(release):
        source = replace(source, epsilon=1.0, budget=None)
    source = source.for_regression()
    schema = source.require_features()
    column = source.find_label()
    low, high = schema.interval(column)
    rows = describe_rows(Label(column, low, high, source.missing), Recoding.of_schema(schema))
    dataset = source.read(rows, watch)
    return PerInstance(inputs.read_rows_input(release, model, dataset), level)


if not TYPE_CHECKING:  # to a type checker a module with __getattr__ has every name

    def __getattr__(name):
        for home, names in _HOMES.items():
            if name in names:
                renamed = {"leave_one_out": "fit_ridge"}
                return getattr(import_module(f"sottovoce.{home}"), renamed.get(name, name))
        raise AttributeError(f"module 'sottovoce.audit' has no attribute {name!r}")


def __dir__() -> list[str]:
    return list(__all__)
