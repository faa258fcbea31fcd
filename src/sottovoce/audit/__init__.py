# SPDX-License-Identifier: Apache-2.0
"""What each person really lost to a release: exactly for the curator, as a bound from public
numbers for themselves.

for the curator, confidential    per_instance, empirical, compose, pdp_to_dp; GaussianOutput and
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
from typing import TYPE_CHECKING, Any

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
    from sottovoce.audit.measured_losses import MeasuredLoss, empirical
    from sottovoce.audit.mechanisms import GaussianObjective, GaussianOutput
    from sottovoce.audit.public_bounds import Mine, bounds, histogram, mine
    from sottovoce.audit.realised import RealisedLosses, RefitBound
    from sottovoce.data.engine import Watch as _Watch
    from sottovoce.data.source import DataSource as _DataSource
    from sottovoce.release import Release as _Release
    from sottovoce.session import Session as _Session

__path__.append(_OLD_PATHS)

#: Where each name is at home; it is loaded on first use, because whoever draws an audit needs no
#: estimator.
_HOMES = {
    "audit.instance_losses": ("Composed", "PerInstance", "compose", "pdp_to_dp", "per_instance"),
    "audit.mechanisms": ("GaussianObjective", "GaussianOutput"),
    "audit.public_bounds": ("Mine", "bounds", "histogram", "mine"),
    "audit.realised": ("RealisedLosses", "RefitBound"),
    "audit.measured_losses": ("MeasuredLoss", "empirical"),
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
    "MeasuredLoss",
    "Mine",
    "PerInstance",
    "RealisedLosses",
    "RefitBound",
    "bounds",
    "compose",
    "empirical",
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
) -> Any:
    """Return the audit of a release from the table it was made from, confidential.

    Parameters
    ----------
    release :
        that can be audited. What it says about itself, such as the column that it is about, need
        not be said again.
    source :
        the table, with the budgets that the release was made with; any stand for them where it was
        made without.
    delta :
        the δ at which losses are read, where they are an ε at δ.
    watch :
        is told how many rows were read.
    """
    from sottovoce.accounting.profiles import check_delta
    from sottovoce.audit import inputs
    from sottovoce.audit.instance_losses import PerInstance

    level = float(check_delta(delta))
    (_, model) = inputs.find_release(release)
    source = _complete_source(release, source)
    if inputs.has_known_law(release):
        dataset = _read_regression(release, source, watch)
        return PerInstance(inputs.read_rows_input(release, model, dataset), level)
    from sottovoce.audit.realised import prepare_model, read_dataset
    from sottovoce.estimator import read_source

    release, model = prepare_model(release)
    named = getattr(model, "reads_cells", False) or getattr(model, "one_table", False)
    if not (named or hasattr(model, "bounds")):  # public features are read as a whole
        source = source.load()
    dataset = read_source(model, source, watch)
    return read_dataset(release, model, dataset, level)


def name_past_grants(release: _Release, source: _DataSource, session: _Session) -> _DataSource:
    """Return the table with what each granted in the plan of a release, for its audit, as the books
    tell it that the release was booked in: all that each had left, or nothing for who was short.

    Parameters
    ----------
    release :
        that was booked in the ledger of the session, or is refused.
    source :
        the table and the budgets as they were said to the release.
    session :
        on books in a database, which are verified.
    """
    from sottovoce.booking import find_past_grants, name_grants
    from sottovoce.data.budget_table import no_owners_error

    session.verify(release)
    budgets, _ = _complete_source(release, source).read_budgets()
    if budgets.people is None:
        raise no_owners_error()
    if source.spend_left is None:
        asked = budgets.by_person(budgets.kinds.epsilon)
    else:
        asked = None
    booked: Any = release.certificate.ledger  # or it would not have been verified
    books: Any = session.ledger
    granted = find_past_grants(books, int(booked["entry"]), budgets.names(), asked)
    return name_grants(source, budgets, granted)


def attack_from_table(
    release: _Release,
    source: _DataSource,
    person: str | None,
    runs: int,
    confidence: float,
    watch: Any = None,
) -> MeasuredLoss:
    """Return a measured lower bound on the ε of one person of the table that a release was made
    from, confidential.

    Parameters
    ----------
    release :
        whose question is asked again.
    source :
        the table, with the budgets that the release was made with.
    person :
        a name, or the number of a row; None: the first.
    runs, confidence, watch :
        as ``empirical`` takes them.
    """
    import numpy as np

    from sottovoce.audit.measured_losses import empirical
    from sottovoce.audit.realised import prepare_model
    from sottovoce.estimators import find_recorded

    question = find_recorded(release.question)
    assert question is not None
    source = _complete_source(release, source)
    if question.replay is None:
        from sottovoce.audit import inputs

        model = inputs.find_release(release)[1]
    else:
        model = prepare_model(release)[1]
    whole = bool(question.reads == "table" or release.parts or _has_cells(release))
    if whole:
        loaded = _load_named_columns(model, source)
    else:
        described = release.parameters.get("features", ())
        named = tuple(name if isinstance(name, str) else name["name"] for name in described)
        loaded = replace(source, others=named).load()
    owners = None if loaded.owners is None else np.asarray(loaded.owners.to_pylist()).astype(str)
    who: Any = person
    if owners is None and person is not None and person.isdigit():
        who = int(person)
    elif owners is not None and person is None:
        who = owners[0]
    granted = loaded.epsilon
    if hasattr(granted, "to_pylist"):
        granted = np.asarray(granted.to_pylist(), dtype=float)
    data: tuple[Any, ...]
    if whole and release.column is not None and not release.parts:
        data = (loaded.table, release.column)
    elif whole:
        data = (loaded.table,)
    else:
        labels = np.asarray(loaded.labels.to_pylist())
        data = (loaded.table, labels) if question.predicts else (labels,)
    return empirical(
        model,
        data,
        epsilon=granted,
        groups=owners,
        person=who,
        runs=runs,
        confidence=confidence,
        delta=float(release.guarantee.get("delta") or 0.0),
        watch=watch,
    )


def _load_named_columns(model: Any, source: _DataSource) -> _DataSource:
    """Returns the columns that a question about a table reads, by their names, in memory."""
    from sottovoce.data.engine import DEFAULT_TEXT_FORMAT, open_engine, read_columns

    rows = model.read_table(source)
    names = rows.list_columns()
    people = replace(source, column=None, features=None, others=()).load()
    text = source.text or DEFAULT_TEXT_FORMAT
    engine = open_engine(source.table, numbers=rows.list_number_columns(), text=text)
    return replace(people, table=read_columns(engine, names))


def _has_cells(release: _Release) -> bool:
    """Whether it is a table by groups, or of rows that satisfy a filter."""
    from sottovoce.data.cells import Cells

    by = release.parameters.get("by")
    return by is not None and bool(Cells.from_dict(by).columns)


def _complete_source(release: _Release, source: _DataSource) -> _DataSource:
    """Adds what the release says: the column that it is about, and its bounds."""
    from sottovoce.audit import inputs
    from sottovoce.estimators import find_recorded
    from sottovoce.schema import Schema, decode_bounds

    question = find_recorded(release.question)
    assert question is not None
    if inputs.has_equal_weights(release):
        source = replace(source, epsilon=1.0, budget=None)
    declared = source.find_declared()
    if declared is None and release.estimator is not None:
        own = decode_bounds(release.estimator.get("bounds"))
        declared = own if isinstance(own, Schema) else None
    if release.column is not None:
        source = replace(source, column=release.column)
        if declared is not None and release.column in declared.columns:
            declared = replace(declared, label=release.column)
    if "bounds" in release.parameters and source.bounds is None:
        low, high = release.parameters["bounds"]
        source = replace(source, bounds=(low, high))
    source = replace(source, schema=declared)
    return question.complete_options(source)  # type: ignore[no-any-return]


def _read_regression(release: _Release, source: _DataSource, watch: _Watch | None) -> Any:
    from sottovoce.data.encoding import Label, Recoding
    from sottovoce.data.source import describe_rows

    schema = source.require_features()
    column = source.find_label()
    low, high = schema.interval(column)
    rows = describe_rows(Label(column, low, high, source.missing), Recoding.of_schema(schema))
    return source.read(rows, watch)


if not TYPE_CHECKING:  # to a type checker a module with __getattr__ has every name

    def __getattr__(name):
        for home, names in _HOMES.items():
            if name in names:
                renamed = {"leave_one_out": "fit_ridge"}
                return getattr(import_module(f"sottovoce.{home}"), renamed.get(name, name))
        raise AttributeError(f"module 'sottovoce.audit' has no attribute {name!r}")


def __dir__() -> list[str]:
    return list(__all__)
