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

from importlib import import_module
from typing import TYPE_CHECKING

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


if not TYPE_CHECKING:  # to a type checker a module with __getattr__ has every name

    def __getattr__(name):
        for home, names in _HOMES.items():
            if name in names:
                renamed = {"leave_one_out": "fit_ridge"}
                return getattr(import_module(f"sottovoce.{home}"), renamed.get(name, name))
        raise AttributeError(f"module 'sottovoce.audit' has no attribute {name!r}")


def __dir__() -> list[str]:
    return list(__all__)
