# SPDX-License-Identifier: Apache-2.0
"""Baselines outside Python: which there are, what can be set, and how one goes around a question.

The command line makes its options from this table, and the page its fields. Baselines that change
grants alone are questions like any other, with a ledger or without (baseline_questions.py). Those
that pick rows read the table into memory, and their releases are booked nowhere; the page, whose
releases are all booked, does not offer them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any

from sottovoce.errors import InvalidParameter
from sottovoce.estimators import Parameter, Question

if TYPE_CHECKING:
    from sottovoce.data.source import DataSource
    from sottovoce.estimators.baselines import Baseline
    from sottovoce.plan import Plan
    from sottovoce.release import Release


@dataclass(frozen=True)
class OfferedBaseline:
    """A baseline by the name that options use: its class, and what can be set."""

    kind: str  # the class in sottovoce.estimators.baselines
    parameters: tuple[str, ...] = ()
    picks_rows: bool = True  # if not, it is a question that a ledger can book
    needs_middle: bool = False  # of the label, for a null record; classes have none


BASELINES = {
    "uniform": OfferedBaseline("Uniform", picks_rows=False),
    "threshold": OfferedBaseline("Threshold", ("threshold",), picks_rows=False),
    "sampled": OfferedBaseline("Sampled", ("threshold",), needs_middle=True),
    "limited": OfferedBaseline("Limited", ("rows",)),
}
NONE = "none"
#: What can be set where every release is booked, and about tables of several columns, whose rows
#: are not picked.
BOOKED_PARAMETERS = (
    Parameter(
        "baseline",
        "choice",
        "Baseline",
        "A baseline around the question, to compare with: everybody at the smallest ε, or those "
        "who grant a threshold at it.",
        choices=(
            (NONE, "none: everybody's own ε"),
            ("uniform", "everybody at the smallest ε"),
            ("threshold", "those above a threshold, at it"),
        ),
    ),
    Parameter(
        "threshold",
        "number",
        "Threshold ε",
        "The public ε of the baseline threshold; if not given, chosen from the budgets.",
    ),
)
PARAMETERS = (
    Parameter(
        "baseline",
        "choice",
        "Baseline",
        "A baseline around the question, to compare with: everybody at the smallest ε, those who "
        "grant a threshold at it, people sampled by their ε, or some rows of each person.",
        choices=(
            *BOOKED_PARAMETERS[0].choices,
            ("sampled", "people sampled by their ε"),
            ("limited", "some rows of each person"),
        ),
    ),
    Parameter(
        "threshold",
        "number",
        "Threshold ε",
        "The public ε of the baselines threshold and sampled; if not given, chosen from the "
        "budgets.",
    ),
    Parameter(
        "rows",
        "whole",
        "Rows of a person",
        "How many rows of each person the baseline limited keeps; 1 if not given.",
        least=1,
    ),
)


def list_page_parameters(question: Question) -> tuple[Parameter, ...]:
    """Return the parameters that a form and JSON offer for a question asked by itself.

    Parameters
    ----------
    question :
        the entry of the registry.

    Returns
    -------
    tuple
        its own, and those of the baselines that a ledger can book.
    """
    return (*question.form_parameters, *BOOKED_PARAMETERS)


def take_baseline(given: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Split what was given into the parameters of a question and those of its baseline.

    Parameters
    ----------
    given :
        values by name.

    Returns
    -------
    tuple
        the question's own, and the baseline's.
    """
    words = {one.name for one in PARAMETERS}
    own = {word: value for word, value in given.items() if word not in words}
    return own, {word: value for word, value in given.items() if word in words}


def wrap(question: Question, estimator: Any, given: Mapping[str, Any]) -> Any:
    """Return the baseline around the estimator, or the estimator itself where none is asked for.

    One that changes grants alone is returned as a question, which a ledger can book.

    Parameters
    ----------
    question :
        the entry of the registry.
    estimator :
        what is asked.
    given :
        "baseline" and its parameters, None where one is not given.

    Raises
    ------
    InvalidParameter
        if something is set that this baseline does not have, or it cannot go around the question.
    """
    name = given.get("baseline") or NONE
    asked = {word: value for word, value in given.items() if word != "baseline"}
    stated = {word: value for word, value in asked.items() if value is not None}
    if name == NONE:
        allowed: tuple[str, ...] = ()
    else:
        allowed = BASELINES[name].parameters
    for word in stated:
        if word not in allowed:
            owners = [other for other, one in BASELINES.items() if word in one.parameters]
            raise InvalidParameter(
                f"The baseline {name} has no {word}.",
                f"It belongs to: {', '.join(owners)}.",
                "Choose one of these, or leave it out.",
                parameter=word,
            )
    if name == NONE:
        return estimator
    _refuse_unsuited(question, estimator, name)
    module = import_module("sottovoce.estimators.baselines")
    whole = question.load_class()(**estimator.get_params(deep=False))  # which scikit-learn knows
    made = getattr(module, BASELINES[name].kind)(whole, **stated)
    if BASELINES[name].picks_rows:
        return made
    return made.to_question()


def write_baseline(given: Mapping[str, Any], inside: str) -> str:
    """Return Python source of the baseline around a question, or the question's where there is
    none.

    Parameters
    ----------
    given :
        "baseline" and its parameters.
    inside :
        source of the question.
    """
    name = given.get("baseline") or NONE
    if name == NONE:
        return inside
    stated = [f", {word}={given[word]!r}" for word in BASELINES[name].parameters if word in given]
    return f"sv.{BASELINES[name].kind}({inside}{''.join(stated)})"


def _refuse_unsuited(question: Question, estimator: Any, name: str) -> None:
    if BASELINES[name].needs_middle and question.reads == "classes":
        raise InvalidParameter(
            f"The baseline {name} needs a null record, and classes have no middle.",
            "Elsewhere the middle of the declared bounds stands for whoever is dropped.",
            "Choose another baseline, or name a null record in Python: sv.Sampled(…, null=(x, y)).",
            parameter="baseline",
        )
    filtered = any(getattr(estimator, word, None) is not None for word in ("by", "where"))
    if filtered and BASELINES[name].picks_rows:
        raise InvalidParameter(
            f"The baseline {name} goes around a question with groups or a filter.",
            "It picks rows of one column, or of features and a label.",
            "Choose uniform or threshold, or leave out the groups and the filter.",
            parameter="baseline",
        )


def plan_baseline(source: DataSource, baseline: Baseline) -> Plan:
    """Return the plan of a baseline, from the columns of people and budgets alone."""
    people = replace(source, column=None, features=None, others=()).load()
    rows = None
    if people.owners is None and not hasattr(people.epsilon, "__len__"):
        rows = source.read_budgets()[0].n_rows
    plan: Plan = baseline.plan(people.epsilon, people.owners, rows)
    return replace(plan, subject=source.subject)


def release_baseline(source: DataSource, baseline: Baseline) -> Release:
    """Return the release of a baseline around a question, of a table that is read into memory."""
    names = [name for name in source.private_columns if name != source.column]
    whole = replace(source, others=tuple(names)).load()
    if names:
        data = (whole.table, whole.labels)
    else:
        data = (whole.labels, None)
    release = baseline.fit(*data, epsilon=whole.epsilon, groups=whole.owners).release_
    return release.with_subject(source.subject, str(release.date))
