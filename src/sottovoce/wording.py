# SPDX-License-Identifier: Apache-2.0
"""What plans and releases say to people: what was asked, in which unit a number is, and what its
error means.

Everything here is a function of public facts: of a question, its parameters, its expected error,
and of the names that columns and table have. Names and units may be missing; then the words are
"the column" and "units of the column".
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from sottovoce.schema import Subject
from sottovoce.units import format_number, format_percent, round_to_error

#: An answer whose error is this close to that of a point drawn at random tells nothing.
UNINFORMATIVE_SHARE = 0.95
#: How far the middle of the label's range is expected to be from the predictions of least squares,
#: in half ranges: as far as regressions are planned with (estimators/ridge_errors.py, √(ψs² + m₂)).
MIDDLE = 0.43
#: Units that `error_unit` may return besides those of a column.
RANK = "share of the rows (rank)"
ROWS = "share of the rows"
ODDS = "log-odds"
PROBABILITY = "probability"
MARGIN = "margins"
#: Ends of the sentences of estimators that say what `error_unit` says.
UNIT_PHRASES = (
    ", in units of the column",
    ", in units of the label",
    ", as a share of the rows (rank)",
    ", as a share of the people (rank)",
    ", as a share of the people",
    ", as a probability",
    ", in decision values (log-odds, for the logistic loss)",
)


class PlanOrRelease(Protocol):
    """What a plan and a release have in common."""

    @property
    def question(self) -> str:
        """The question's name."""

    @property
    def parameters(self) -> dict[str, Any]:
        """Its public parameters."""

    @property
    def expected_error(self) -> Any:
        """The error to expect, or one for each quantile."""

    @property
    def error_is(self) -> str:
        """What that error measures."""

    @property
    def error_unit(self) -> str:
        """Its unit as the estimator says it; "" in releases of earlier versions."""

    @property
    def subject(self) -> Subject:
        """What it is about."""


def get_unit(told: PlanOrRelease) -> str:
    """Returns the unit of the column, or of the label; "" where none was declared."""
    return told.subject.units.get(told.subject.column or "", "")


def name_one_unit(unit: str) -> str:
    """Return a unit as one of it is called, where that can be told from its spelling.

    >>> [name_one_unit(unit) for unit in ("years", "countries", "kg", "ms", "celsius", "EUR")]
    ['year', 'country', 'kg', 'ms', 'celsius', 'EUR']
    """
    if not (unit.isalpha() and unit.islower() and len(unit) > 3):
        return unit
    if unit.endswith("ies"):
        return f"{unit.removesuffix('ies')}y"
    if unit.endswith(("ss", "us", "is", "siemens")):
        return unit
    return unit.removesuffix("s")


def describe_unit(told: PlanOrRelease) -> str:
    """Returns the unit of the column, or of the label, also where none was declared."""
    if is_model(told):
        what = "label"
    else:
        what = "column"
    name = told.subject.column
    return get_unit(told) or (f"units of the {what}" if name is None else f"units of {name!r}")


def describe_error_unit(told: PlanOrRelease) -> str:
    """Returns the unit of the expected error: what the plan says, or what an earlier version meant
    by the question.
    """
    stated = told.error_unit
    if stated:
        if describe_score(told) == "margin":
            decided = MARGIN
        else:
            decided = ODDS
        starts = {
            "as a share": RANK,
            "as a probability": PROBABILITY,
            "in decision values": decided,
        }
        return next(
            (found for start, found in starts.items() if stated.startswith(start)),
            describe_unit(told),
        )
    if has_quantiles(told):
        return RANK
    if "classes" in told.parameters:
        if told.parameters.get("public_rows"):
            return ROWS
        return ODDS
    if has_public_features(told):
        return ""  # of several coefficients, each in a unit of its own
    return describe_unit(told)


def describe_score(told: PlanOrRelease) -> str:
    """Returns what the functions of a classifier give: log-odds, or what a loss of another kind
    compares with 0.
    """
    if told.parameters.get("loss", "logistic") == "logistic":
        return "log-odds"
    return "margin"


def is_model(told: PlanOrRelease) -> bool:
    """Whether the answer is a function of features."""
    return "features" in told.parameters


def has_public_features(told: PlanOrRelease) -> bool:
    """Whether the features are public, and have names alone."""
    return is_model(told) and all(isinstance(name, str) for name in told.parameters["features"])


def has_quantiles(told: PlanOrRelease) -> bool:
    """Whether the answer is one quantile or several."""
    return "q" in told.parameters


def get_limits(told: PlanOrRelease) -> tuple[float, float] | None:
    """Returns the declared range of the column, or of a label that is a number."""
    found = told.parameters.get("label" if is_model(told) else "bounds")
    if found is None:
        return None
    return (float(found[0]), float(found[1]))


def add_unit(number: str, told: PlanOrRelease) -> str:
    """Returns a number of the column with the unit that was declared, if there is one."""
    if get_unit(told):
        return f"{number} {get_unit(told)}"
    return number


def name_quantiles(told: PlanOrRelease) -> list[tuple[str, float]]:
    """Returns the quantiles that were asked for, by name."""
    return [("median" if q == 0.5 else f"{q:g} quantile", q) for q in told.parameters["q"]]


def list_errors(told: PlanOrRelease) -> list[float]:
    """Returns the expected errors as a list."""
    several = told.expected_error
    if isinstance(several, Sequence):
        return list(several)
    return [several]


def describe_question(told: PlanOrRelease) -> str:
    """Returns what was asked, such as: the mean of 'salary'."""
    column = told.subject.column
    if column is None:
        about = ""
    else:
        about = f" of {column!r}"
    if has_quantiles(told):
        names = [name for name, _ in name_quantiles(told)]
        if len(names) == 1:
            return f"the {names[0]}{about}"
        return f"the quantiles{about}"
    if not is_model(told):
        return f"the {told.question}{about}"
    name = name_model(told)
    if name[0] in "aeiou":
        return f"an {name}{about}"
    return f"a {name}{about}"


def name_model(told: PlanOrRelease) -> str:
    """Returns what a model is called; one word alone is a kind of regression."""
    if " " in told.question:
        return told.question
    return f"{told.question} regression"


def describe_table(told: PlanOrRelease) -> str:
    """Returns which table it was asked of, if that has a name."""
    if told.subject.table is None:
        return ""
    return f" in {told.subject.table!r}"


def describe_columns(told: PlanOrRelease) -> str:
    """Returns the columns in question: a column, or a label and its features."""
    column = told.subject.column
    if not is_model(told):
        if column is None:
            return "a column without a name"
        return f"the column {column!r}"
    if column is None:
        label = "a label without a name"
    else:
        label = f"the label {column!r}"
    features = [
        str(f["name"] if isinstance(f, Mapping) else f) for f in told.parameters["features"]
    ]
    return f"{label} by {', '.join(features)}"


def describe_error(told: PlanOrRelease) -> str:
    """Returns the expected error with its unit, in a few words."""
    found = describe_error_unit(told)
    if found in (RANK, ROWS):
        return ", ".join(map(format_percent, list_errors(told))) + " of the rows"
    amounts = ", ".join(round_to_error(error, error) for error in list_errors(told))
    if not found:
        return amounts
    return (
        f"{amounts} "
        f"{'in ' if found.startswith(('units of', ODDS, PROBABILITY, MARGIN)) else ''}{found}"
    )


def describe_error_meaning(told: PlanOrRelease) -> str:
    """Returns what the expected error measures, without the unit, which stands beside it."""
    meaning = told.error_is
    for end in UNIT_PHRASES:
        meaning = meaning.replace(end, "")
    return meaning


def write_error_sentence(told: PlanOrRelease) -> str:
    """Returns the expected error as a sentence; that of a quantile is a rank, and is told as
    one.
    """
    if describe_error_unit(told) != RANK:
        return f"Expected error: {describe_error(told)} ({describe_error_meaning(told)})."
    (first, _), *others = name_quantiles(told)
    amounts = [format_percent(error) for error in list_errors(told)]
    more = [
        f", {amount} at the {name}" for amount, (name, _) in zip(amounts[1:], others, strict=True)
    ]
    between = (
        f"about {amounts[0]} of the rows lie between the answer and the true {first}{''.join(more)}"
    )
    return f"Expected error: {between} ({describe_error_meaning(told)})."


def describe_prediction_error(told: PlanOrRelease) -> float:
    """Returns the expected error in the unit of a model's intercept, as far as one is known; else
    0.

    A probability moves by at most a quarter of what its log-odds move by.
    """
    found = describe_error_unit(told)
    if found == PROBABILITY:
        return 4 * list_errors(told)[0]
    if found in (ODDS, MARGIN, describe_unit(told)):
        return list_errors(told)[0]
    return 0.0


def warn_if_uninformative(told: PlanOrRelease, verb: str = "says") -> str:
    """Returns a sentence if an answer with this error tells no more than a guess would; else
    nothing.
    """
    if describe_error_unit(told) == RANK:
        return _warn_uninformative_quantiles(told, verb)
    if describe_error_unit(told) == PROBABILITY:
        return _blind_classifier(told, verb)
    range_of = get_limits(told)
    found = list_errors(told)
    if range_of is None or describe_error_unit(told) != describe_unit(told):
        return ""
    half = (range_of[1] - range_of[0]) / 2
    middle = add_unit(format_number((range_of[0] + range_of[1]) / 2), told)
    if is_model(told) and found[0] >= MIDDLE * half:
        return (
            f"This answer {verb} nothing about the label: whoever predicts the middle of the "
            f"range, {middle}, for everybody is expected to be about as close."
        )
    if found[0] >= half:
        return (
            f"This answer {verb} nothing about the column: its expected error is half the range or "
            f"more, and whoever guesses the middle of the range, {middle}, is never further from "
            "the truth than half the range."
        )
    return ""


def _blind_classifier(told: PlanOrRelease, verb: str) -> str:
    """No probability is further than ½ from ½."""
    if list_errors(told)[0] < 0.5:
        return ""
    return (
        f"This answer {verb} nothing about the label: its expected error is 0.5 or more, and "
        "whoever says 0.5 for every probability is never further from the truth than that."
    )


def _warn_uninformative_quantiles(told: PlanOrRelease, verb: str) -> str:
    """A point drawn at random from the bounds has a rank error too; whoever comes no closer tells
    nothing.
    """
    spread = float(told.parameters.get("spread") or 1.0)
    names = [
        name
        for (name, q), error in zip(name_quantiles(told), list_errors(told), strict=True)
        if error >= UNINFORMATIVE_SHARE * _compute_random_point_error(q, spread)
    ]
    if not names:
        return ""
    if len(names) == len(name_quantiles(told)):
        which = "This answer"
    else:
        which = f"The {', '.join(names)}"
    return (
        f"{which} {verb} nothing about the column: a point drawn at random from the range would be "
        "about as close to the truth."
    )


def _compute_random_point_error(q: float, spread: float) -> float:
    """Root mean square of rank − q, if values fill this part of the bounds evenly and a point is
    drawn from all.
    """
    inside = 1 / 12 + (q - 0.5) ** 2
    outside = (q**2 + (1 - q) ** 2) / 2
    return math.sqrt(spread * inside + (1 - spread) * outside)
