# SPDX-License-Identifier: Apache-2.0
"""What plans and releases say to people: what was asked, in which unit a number is, and what its
error means.

Everything here is a function of public facts: of a question, its parameters, its expected error,
and of the names that columns and table have. Names and units may be missing; then the words are
"the column" and "units of the column".
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, islice, product
from typing import Any, Protocol

from sottovoce.schema import Subject
from sottovoce.units import (
    format_count,
    format_level,
    format_number,
    format_percent,
    format_three_digits,
    round_to_error,
)

#: An answer whose error is this close to that of a point drawn at random tells nothing.
UNINFORMATIVE_SHARE = 0.95
#: How far the middle of the label's range is expected to be from the predictions of least squares,
#: in half ranges: as far as regressions are planned with (estimators/ridge_errors.py, √(ψs² + m₂)).
MIDDLE = 0.43
#: Units that `error_unit` may return besides those of a column.
RANK = "share of the rows (rank)"
ROWS = "share of the rows"
ODDS = "log-odds"
COUNTED = "rows"
CORRELATION = "correlation"
PROBABILITY = "probability"
MARGIN = "margins"
#: Units that are told as in them.
NAMED_UNITS = ("units of", "squared units of", ODDS, PROBABILITY, MARGIN, CORRELATION)
#: So many cells of a table are told in words; pages, files and rows() have them all.
MOST_CELLS_TOLD = 12
#: What is said in place of a number where a group is too small.
TOO_FEW = "too few to say"
#: So many quantiles are told in words; of more, some.
MOST_QUANTILES_TOLD = 12
SOME_QUANTILES = 9
#: What the answer of a table of counts is called, and the half width at which it is whole.
COUNT = "count"
WHOLE_ROWS = 10.0
#: What the cell of rows outside a filter is called.
OUTSIDE_CELL = "outside"
#: Ends of the sentences of estimators that say what `error_unit` says.
UNIT_PHRASES = (
    ", in rows",
    ", in squared units of the column",
    ", as a correlation",
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

    @property
    def parts(self) -> Mapping[str, Any]:
        """Of a report: the plans or releases of its questions, by name."""


def get_unit(told: PlanOrRelease) -> str:
    """Returns the unit of the column, or of the label; "" where none was declared."""
    unit = told.subject.units.get(told.subject.column or "", "")
    if unit and told.parameters.get("squared"):
        return f"squared {unit}"
    return unit


def describe_unit(told: PlanOrRelease) -> str:
    """Returns the unit of the column, or of the label, also where none was declared."""
    if is_model(told):
        what = "label"
    else:
        what = "column"
    name = told.subject.column
    squared = "squared " * bool(told.parameters.get("squared"))
    return get_unit(told) or (
        f"{squared}units of the {what}" if name is None else f"{squared}units of {name!r}"
    )


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
            "in rows": COUNTED,
            "as a correlation": CORRELATION,
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


def is_table(told: PlanOrRelease) -> bool:
    """Whether the answer is one for each cell of a table, or could have been."""
    return "by" in told.parameters


def list_axes(told: PlanOrRelease) -> list[str]:
    """Returns the columns that the cells of a table are made of."""
    return [str(axis["column"]) for axis in told.parameters["by"]["axes"]]


def name_cells(told: PlanOrRelease) -> Iterator[str]:
    """Yields what each cell of a table is called, in the order of the answer."""
    by = told.parameters["by"]
    filtered = by["where"] is not None
    if filtered and not by["axes"]:
        yield _describe_filter(told)
    else:
        for labels in product(*(axis["labels"] for axis in by["axes"])):
            yield ", ".join(labels)
    if filtered:
        taken = [label for axis in by["axes"] for label in axis["labels"]]
        yield find_free_label(OUTSIDE_CELL, taken)


def find_free_label(word: str, taken: Sequence[str]) -> str:
    """Returns a label that no level has."""
    used = set(taken)
    while word in used:
        word = f"({word})"
    return word


def _describe_filter(told: PlanOrRelease) -> str:
    where = told.parameters["by"]["where"]
    if where is None:
        return ""
    return str(where["text"])


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


def list_told(several: Sequence[Any]) -> tuple[list[Any], str]:
    """Returns the quantiles that are told in words, and how many are left out, in words: of many,
    some that lie evenly among them.
    """
    count = len(several)
    if count <= MOST_QUANTILES_TOLD:
        return list(several), ""
    last = SOME_QUANTILES - 1
    places = [(place * (count - 1) + last // 2) // last for place in range(SOME_QUANTILES)]
    return [several[place] for place in places], f"; and {count - SOME_QUANTILES} more"


def list_errors(told: PlanOrRelease) -> list[float]:
    """Returns the expected errors as a list."""
    several = told.expected_error
    if isinstance(several, Sequence):
        return list(several)
    return [several]


def describe_question(told: PlanOrRelease) -> str:
    """Returns what was asked, such as: the mean of 'salary'."""
    if told.parts:
        return f"a report of {format_count(len(told.parts), 'question')}"
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
    if is_table(told):
        return _describe_table_question(told, about)
    if not is_model(told):
        return f"the {told.question}{about}"
    name = name_model(told)
    if name[0] in "aeiou":
        return f"an {name}{about}"
    return f"a {name}{about}"


def _describe_table_question(told: PlanOrRelease, about: str) -> str:
    """The mean of 'cost' by 'region' where age > 40."""
    if "bounds" in told.parameters:
        what = f"the {told.question.removesuffix(' by group')}{about}"
    elif "columns" in told.parameters:
        what = f"the {told.question} of {' and '.join(map(repr, told.parameters['columns']))}"
    else:
        what = "the number of rows"
    by = " and ".join(repr(name) for name in list_axes(told))
    if by:
        what += f" by {by}"
    where = _describe_filter(told)
    if where:
        what += f" where {where}"
    return what


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
    if told.parts:
        return "; ".join(dict.fromkeys(map(describe_columns, told.parts.values())))
    column = told.subject.column
    if is_table(told):
        return _describe_table_columns(told)
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


def _describe_table_columns(told: PlanOrRelease) -> str:
    names = list(dict.fromkeys([*told.parameters.get("columns", ()), *list_axes(told)]))
    column = told.subject.column
    if "bounds" in told.parameters and column is not None and column not in names:
        names.insert(0, column)
    where = told.parameters["by"]["where"]
    if where is not None:
        names += [name for name in where["columns"] if name not in names]
    if not names:
        return "all rows"
    if len(names) == 1:
        return f"the column {names[0]!r}"
    return f"the columns {', '.join(map(repr, names))}"


def describe_error(told: PlanOrRelease, *, beside_parts: bool = False) -> str:
    """Returns the expected error with its unit, in a few words; ``beside_parts`` with as many
    digits as these, so that none looks larger than the whole.
    """
    if told.parts:
        return "by question"
    found = describe_error_unit(told)
    errors = list_errors(told)
    if len(errors) > MOST_QUANTILES_TOLD:
        return f"at most {format_percent(max(errors))} of the rows"
    if found in (RANK, ROWS):
        return ", ".join(map(format_percent, errors)) + " of the rows"
    if beside_parts:
        amounts = ", ".join(map(format_three_digits, errors))
    else:
        amounts = ", ".join(round_to_error(error, error) for error in errors)
    if not found:
        return amounts
    return f"{amounts} {'in ' if found.startswith(NAMED_UNITS) else ''}{found}"


def describe_error_meaning(told: PlanOrRelease) -> str:
    """Returns what the expected error measures, without the unit, which stands beside it."""
    meaning = told.error_is
    for end in UNIT_PHRASES:
        meaning = meaning.replace(end, "")
    return meaning


def write_error_sentence(told: PlanOrRelease, *, beside_parts: bool = False) -> str:
    """Returns the expected error as a sentence, its digits as ``describe_error`` has them; that of
    a quantile is a rank, and is told as one.
    """
    if told.parts:
        return f"Expected errors: {told.error_is}."
    if describe_error_unit(told) != RANK:
        amount = describe_error(told, beside_parts=beside_parts)
        return f"Expected error: {amount} ({describe_error_meaning(told)})."
    meaning = describe_error_meaning(told)
    if len(list_errors(told)) > MOST_QUANTILES_TOLD:
        most = describe_error(told)
        return f"Expected error: {most} between an answer and the truth ({meaning})."
    (first, _), *others = name_quantiles(told)
    amounts = [format_percent(error) for error in list_errors(told)]
    more = [
        f", {amount} at the {name}" for amount, (name, _) in zip(amounts[1:], others, strict=True)
    ]
    between = (
        f"about {amounts[0]} of the rows lie between the answer and the true {first}{''.join(more)}"
    )
    return f"Expected error: {between} ({meaning})."


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
    if told.parts:
        warned = ((name, warn_if_uninformative(part, verb)) for name, part in told.parts.items())
        return " ".join(f"{name}: {warning}" for name, warning in warned if warning)
    if describe_error_unit(told) == RANK:
        return _warn_uninformative_quantiles(told, verb)
    if describe_error_unit(told) == PROBABILITY:
        return _blind_classifier(told, verb)
    if describe_error_unit(told) == CORRELATION and list_errors(told)[0] >= 1:
        return (
            f"This answer {verb} nothing about correlations: its expected error is 1, and whoever "
            "guesses 0 is never further from the truth than that."
        )
    range_of = get_limits(told)
    found = list_errors(told)
    if is_table(told) and not told.question.startswith("mean"):
        return ""  # a sum or a variance is not within the range of the column
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
    quantiles = name_quantiles(told)
    random = {q: _compute_random_point_error(q, spread) for _, q in quantiles}
    if told.parameters.get("method") == "joint":
        random = {q: compute_ordered_points_error(q, spread, len(random)) for q in random}
    names = [
        name
        for (name, q), error in zip(quantiles, list_errors(told), strict=True)
        if error >= UNINFORMATIVE_SHARE * random[q]
    ]
    if not names:
        return ""
    if len(names) == len(quantiles):
        which = "This answer"
    else:
        which = f"The {', '.join(names)}"
    return (
        f"{which} {verb} nothing about the column: a point drawn at random from the range would be "
        "about as close to the truth."
    )


def compute_ordered_points_error(q: float, spread: float, points: int) -> float:
    """Root mean square of rank − q of the point that stands for q among so many that are drawn at
    random and put in order, about: points outside the values, which fill this part of the bounds,
    have rank 0 or 1.
    """
    return math.sqrt(q * (1 - q) / (points + 2) + (1 - spread) * (q**2 + (1 - q) ** 2) / 2)


def _compute_random_point_error(q: float, spread: float) -> float:
    """Root mean square of rank − q, if values fill this part of the bounds evenly and a point is
    drawn from all.
    """
    inside = 1 / 12 + (q - 0.5) ** 2
    outside = (q**2 + (1 - q) ** 2) / 2
    return math.sqrt(spread * inside + (1 - spread) * outside)


#: What a release tells of an interval: its ends, and how wide each part alone would make it.
INTERVAL_PARTS = ("low", "high", "noise", "sampling")


@dataclass(frozen=True)
class NamedInterval:
    """One interval of a release; what is not known is None."""

    name: str
    low: float | None
    high: float | None
    noise: float | None
    sampling: float | None

    @property
    def is_whole_range(self) -> bool:
        """Whether it is the bounds themselves, because nothing was bought: it has no parts."""
        if self.low is None or self.high is None or self.noise is None:
            return False
        return self.sampling == 0 and self.noise >= self.high - self.low > 0

    def describe(self) -> str:
        """The two ends, rounded to the width."""
        if self.low is None or self.high is None:
            return "not known"
        width = (self.high - self.low) / 2
        return f"{round_to_error(self.low, width)} to {round_to_error(self.high, width)}"


def list_intervals(release: Any) -> list[NamedInterval]:
    """Returns the intervals of a release by what they are called; none where it has none."""
    if release.intervals is None:
        return []
    parts = [release.intervals[name] for name in INTERVAL_PARTS]
    if is_table(release) and isinstance(parts[0], Mapping):
        return []  # a table has them beside its answers
    if isinstance(parts[0], Mapping):
        return _list_named_intervals("", parts)
    if isinstance(parts[0], list):
        names = [name for name, _ in name_quantiles(release)]
        return [NamedInterval(*told) for told in zip(names, *parts, strict=True)]
    return [NamedInterval(release.question, *parts)]


def _list_named_intervals(function: str, parts: list[Any]) -> list[NamedInterval]:
    found = []
    for name in parts[0]:
        own = [part[name] for part in parts]
        if isinstance(own[0], Mapping):
            found += _list_named_intervals(f"{name}: ", own)
        else:
            found.append(NamedInterval(f"{function}{name}", *own))
    return found


def write_interval_sentences(release: Any) -> list[str]:
    """Returns the intervals of a release as sentences, and where they come from; or why there are
    none.
    """
    told = release.intervals
    if told is None:
        return []
    if told.get("why"):
        return [f"Interval: none. {told['why']}"]
    level = format_level(told["level"])
    if is_table(release) and isinstance(told["low"], Mapping):
        return [
            f"Intervals of {told['of']}: beside each answer, with {level} probability each. "
            f"Sampling is known from {told['sampling_from']}."
        ]
    found = list_intervals(release)
    if len(found) == 1 and found[0].noise == found[0].sampling == 0:
        return [f"Interval: none is needed. {told['of'].capitalize()} is public, and exact."]
    if len(found) == 1:
        between = f"{add_unit(found[0].describe(), release)}, with {level} probability"
    else:
        some, more = list_told(found) if has_quantiles(release) else (found, "")
        each = "; ".join(f"{one.name} {one.describe()}" for one in some)
        between = f"with {level} probability each, {each}{more}"
    parts = ""
    noise = found[0].noise
    sampling = found[0].sampling
    told_apart = len(found) == 1 and not found[0].is_whole_range
    if told_apart and noise is not None and sampling is not None:
        parts = (
            f" Noise alone: ± {round_to_error(noise, noise)}; sampling alone: ± "
            f"{round_to_error(sampling, sampling)}."
        )
    of, _, note = told["of"].partition("; ")
    if has_quantiles(release):
        note = ""  # it is about a number that only the file has
        if len(found) == 1:
            of = f"the {found[0].name} of the population"
    if note:
        note = f" {note[0].upper()}{note[1:]}."
    return [
        f"Interval of {of}: {between}.{parts}{note} Sampling is known from {told['sampling_from']}."
    ]


def list_cell_answers(
    release: Any,
    most: int | None = None,
    *,
    known: bool = False,
    cells: Container[int] | None = None,
) -> list[tuple[str, str]]:
    """Returns what each cell of a released table is called, and its answer with its interval; of
    the first so many alone, of those that have an answer if ``known``, and of some ``cells``.
    """
    if "columns" in release.parameters:
        entries = [(told.name, told.describe()) for told in list_matrix_answers(release)]
        return [one for one in entries if not known or one[1] != TOO_FEW][:most]
    name, values = next(iter(release.value.items()))
    ends = release.intervals or {}
    unknown = [None] * len(values)
    low, high = (ends.get(part, {}).get(name, unknown) for part in ("low", "high"))
    wanted = (
        (cell, label, value)
        for cell, (label, value) in enumerate(zip(name_cells(release), values, strict=True))
        if not (known and value is None) and (cells is None or cell in cells)
    )
    found = []
    for cell, label, value in islice(wanted, most):
        if value is None:
            found.append((label, TOO_FEW))
            continue
        if low[cell] is None or high[cell] is None:
            error = list_errors(release)[0]
            found.append((label, add_unit(round_to_error(value, error), release)))
            continue
        width = get_shown_width(name, low[cell], high[cell])
        between = f"{round_to_error(low[cell], width)} to {round_to_error(high[cell], width)}"
        found.append((label, f"{add_unit(round_to_error(value, width), release)} ({between})"))
    return found


def list_cell_intervals(release: Any, cells: Sequence[int]) -> list[NamedInterval]:
    """Returns the intervals of some cells of a released table by what these are called; none where
    it does not tell them.
    """
    quantity = next(iter(release.value))
    told = release.intervals or {}
    if any(quantity not in (told.get(part) or {}) for part in INTERVAL_PARTS):
        return []
    parts = [told[part][quantity] for part in INTERVAL_PARTS]
    names = list(name_cells(release))
    return [NamedInterval(names[cell], *(part[cell] for part in parts)) for cell in cells]


def get_shown_width(name: str, low: float, high: float) -> float:
    """Returns the half width that an answer and its interval are rounded to: a count is told in
    whole rows, however near its ends are.
    """
    width = (high - low) / 2
    if name == COUNT:
        return max(width, WHOLE_ROWS)
    return width


@dataclass(frozen=True)
class MatrixAnswer:
    """One number of a covariance, its error and interval; None where there are too few rows."""

    name: str
    value: float | None
    error: float
    unit: str = ""
    low: float | None = None
    high: float | None = None
    noise: float | None = None
    sampling: float | None = None

    @property
    def interval(self) -> NamedInterval:
        """Its interval, by its name."""
        return NamedInterval(self.name, self.low, self.high, self.noise, self.sampling)

    def describe(self) -> str:
        """The number, rounded, with its unit and its interval."""
        if self.value is None:
            return TOO_FEW
        told = f"{round_to_error(self.value, self.error)} {self.unit}".rstrip()
        if self.low is None or self.high is None:
            return told
        return f"{told} ({self.interval.describe()})"


def list_matrix_answers(release: Any) -> list[MatrixAnswer]:
    """Returns correlations, covariances, variances and means of a covariance, each once.

    The error of a correlation is expected; the others are rounded to what it is worth in their own
    units, and no error of theirs is told.
    """
    told = release.intervals or {}  # of earlier versions without ends
    ends = [told[part] for part in INTERVAL_PARTS if told.get(part)]
    names = release.parameters["columns"]
    units = release.subject.units
    error = list_errors(release)[0]
    covariance = release.value["covariance"]
    spreads = {name: math.sqrt(max(covariance[name][name] or 0.0, 0.0)) for name in names}
    found = []
    for matrix in ("correlation", "covariance"):
        for one, two in combinations(names, 2):
            if matrix == "correlation":
                written = (error, "")
            else:
                written = (error * spreads[one] * spreads[two], _join_units(units, one, two))
            value = release.value[matrix][one][two]
            between = [end[matrix][one][two] for end in ends]
            name = f"{matrix} of {one!r} and {two!r}"
            found.append(MatrixAnswer(name, value, *written, *between))
    for name in names:
        value = covariance[name][name]
        unit = f"squared {units[name]}" if units.get(name) else ""
        between = [end["covariance"][name][name] for end in ends]
        written = (error * spreads[name] ** 2, unit)
        found.append(MatrixAnswer(f"variance of {name!r}", value, *written, *between))
    for name in names:
        value = release.value["mean"][name]
        between = [end["mean"][name] for end in ends]
        written = (error * spreads[name], units.get(name, ""))
        found.append(MatrixAnswer(f"mean of {name!r}", value, *written, *between))
    return found


def _join_units(units: Mapping[str, str], one: str, two: str) -> str:
    if units.get(one) and units.get(two):
        return f"{units[one]} × {units[two]}"
    return ""
