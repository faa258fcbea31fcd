# SPDX-License-Identifier: Apache-2.0
"""Release, the public answer as a JSON file anybody can read, and Certificate, its paper.

A release holds what may be known by everybody: what was asked of which column and table and when,
the value with its unit, the promise (how the people's ε are distributed, never who has which), the
noise, the grid, the theorem. Nothing un-noised is in it.

An interval is computed from a release alone, so it costs nobody anything: from the law of the
noise, which is public, and from what is known of the sampling, which is bought, released or bounded
by public numbers. It covers what the answer would be for the whole population of which the rows are
a sample, with at least the stated probability over the rows that were drawn and over the noise.

What budgets may have to do with values is not in it: how far that may move the answer stands apart
(``bias``).

    name           what it is
    level          the probability with which low ≤ value ≤ high, at least
    low, high      the ends: a number, a list (several quantiles), or a dict by coefficient
    noise          half the width that noise alone would have at this level
    sampling       half the width that sampling alone would have at this level
    bias           how far budgets that go along with values may move the answer besides
    sampling_from  where the sampling part comes from, in words
    of             what is covered, in words
    why            where there is no interval: why not, in words

An end that is None is not known: nothing that the release says leaves any number out.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache
from html import escape
from importlib.metadata import version
from pathlib import Path
from typing import Any

from sottovoce.errors import InvalidParameter, InvalidRelease
from sottovoce.plan import Plan, describe_baseline, describe_currency
from sottovoce.schema import Subject
from sottovoce.units import (
    format_count,
    format_number,
    format_odds,
    name_one_unit,
    round_to_error,
)
from sottovoce.wording import (
    MOST_CELLS_TOLD,
    TOO_FEW,
    add_unit,
    describe_columns,
    describe_prediction_error,
    describe_question,
    describe_score,
    describe_table,
    describe_unit,
    has_quantiles,
    is_table,
    list_cell_answers,
    list_errors,
    list_told,
    name_quantiles,
    warn_if_uninformative,
    write_error_sentence,
    write_interval_sentences,
)

FORMAT = "sottovoce.release/1"
#: Fields that a release of this format may lack: those of earlier versions do, and data in memory
#: may have no names.
OPTIONAL_FIELDS = ("column", "table", "units", "date", "estimator", "intervals", "bought")


#: The level of the interval that every release carries.
LEVEL = 0.95
#: A number, one for each quantile, or one by the name of a coefficient (of a classifier with
#: several functions, by the name of the function first).
Numbers = float | list[float] | dict[str, Any]


@dataclass(frozen=True)
class Intervals:
    """The intervals of a release at one level; each part has the shape of the answer."""

    level: float
    low: Numbers
    high: Numbers
    noise: Numbers
    sampling: Numbers
    sampling_from: str
    of: str
    bias: Numbers | None = None
    why: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the intervals as public JSON.

        Returns
        -------
        dict[str, Any]
            Names and numbers; what is not known is left out.
        """
        return {name: value for name, value in self.__dict__.items() if value is not None}

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> Intervals:
        """Read intervals back.

        Parameters
        ----------
        content : dict[str, Any]
            As ``to_dict`` wrote it.

        Returns
        -------
        Intervals
            The intervals.
        """
        return cls(**content)

    def pairs(self) -> Any:
        """Return (low, high) in the shape of the answer.

        Returns
        -------
        Any
            A pair, a list of pairs, or a dict of pairs by name; infinite where an end is not known.
        """
        return _join_ends(self.low, self.high)


def check_level(level: Any) -> float:
    """Returns the level; refuses what is no probability between 0 and 1."""
    if isinstance(level, bool) or not isinstance(level, int | float) or not 0 < level < 1:
        raise InvalidParameter(
            "The level is not a probability.",
            "It lies above 0 and below 1.",
            "Pass a number such as 0.95.",
            parameter="level",
        )
    return float(level)


def no_interval_error(why: str | None = None) -> InvalidParameter:
    """The refusal of an interval where none is known that keeps its level."""
    return InvalidParameter(
        why or "This estimator has no interval.",
        "An interval follows from the release alone, and keeps its level whatever the rows are.",
        "Use the expected error of the release, which says how far the answer is typically off.",
    )


def _join_ends(low: Any, high: Any) -> Any:
    if isinstance(low, dict):
        return {name: _join_ends(low[name], high[name]) for name in low}
    if isinstance(low, list):
        return [_join_ends(a, b) for a, b in zip(low, high, strict=True)]
    return (-math.inf if low is None else low, math.inf if high is None else high)


@dataclass(frozen=True)
class Certificate:
    """What a release rests on: theorem, parameters, and the digest of the plan it was paid for
    under.
    """

    theorem: str
    page: str
    plan_digest: str
    library: dict[str, str]
    #: Number of the books, number and digest of the entry that paid for it, the public key of the
    #: books, and their signature of the whole release but for itself (ledgers/signing.py).
    ledger: dict[str, Any] | None = None

    @classmethod
    def of(cls, plan: Plan) -> Certificate:
        """Return the certificate of a release made under a plan.

        Parameters
        ----------
        plan : Plan
            The plan.

        Returns
        -------
        Certificate
            The certificate.
        """
        return cls(plan.theorem.statement, plan.theorem.page, plan.digest, _get_library_versions())


@dataclass(frozen=True)
class Release:
    """A published answer. Everything in it is public, and equal bytes mean an equal release."""

    question: str
    parameters: dict[str, Any]
    value: float | list[float] | dict[str, Any]
    expected_error: float | list[float]
    error_is: str
    guarantee: dict[str, Any]
    noise: dict[str, Any]
    grid: dict[str, Any]
    certificate: Certificate
    error_unit: str = (
        ""  # of the expected error and its parts, in words; releases of earlier versions do not say
    )
    error_parts: dict[str, Any] | list[dict[str, Any]] | None = (
        None  # noise, sampling, shrinkage, possible bias
    )
    column: str | None = None  # what was asked about; of a model, its label
    table: str | None = None  # what the table is called
    units: dict[str, str] | None = None  # declared units, by column
    date: str | None = None  # when it was made, in UTC
    estimator: dict[str, Any] | None = None  # the class that made it, and the bounds it was given
    intervals: dict[str, Any] | None = None  # at one level, as Intervals.to_dict has them
    bought: dict[str, Any] | None = None  # what was released besides, for the interval

    def __repr__(self) -> str:
        """What was asked, of which table, and when; ``explain()`` tells the rest."""
        made = ""
        if self.date is not None:
            made = f", made on {format_date(self.date)}"
        return f"<Release of {describe_question(self)}{describe_table(self)}{made}>"

    def _repr_html_(self) -> str:
        """The view of a notebook: the release in words."""
        return f'<pre style="white-space: pre-wrap">{escape(self.explain())}</pre>'

    @classmethod
    def of(
        cls,
        plan: Plan,
        value: float | list[float] | dict[str, Any],
        bought: dict[str, Any] | None = None,
    ) -> Release:
        """Return the release of a noisy value under its plan.

        Parameters
        ----------
        plan : Plan
            The plan.
        value : float | list[float] | dict[str, Any]
            What is published: noisy, and on the plan's grid.
        bought : dict[str, Any], optional
            What a share of everybody's budget bought besides, for the interval; noisy too.

        Returns
        -------
        Release
            The release.
        """
        error = plan.expected_error
        return cls(
            question=plan.question,
            parameters=plan.parameters,
            value=value,
            expected_error=list(error) if isinstance(error, tuple) else error,
            error_is=plan.error_is,
            guarantee=plan.promise,
            noise=plan.noise,
            grid=plan.grid.to_dict(),
            certificate=Certificate.of(plan),
            error_unit=plan.error_unit,
            error_parts=plan.error_parts,
            bought=bought,
        )

    def with_subject(self, subject: Subject, date: str) -> Release:
        """Return the same release with what it is about, in public words, and its date.

        Parameters
        ----------
        subject : Subject
            Column, table and units.
        date : str
            UTC, as 2026-01-31T00:00:00Z.

        Returns
        -------
        Release
            The release.
        """
        columns = [subject.column, *(f["name"] for f in self._features())]
        columns += self.parameters.get("columns", ())
        units = {name: unit for name, unit in subject.units.items() if name in columns}
        return replace(
            self, column=subject.column, table=subject.table, units=units or None, date=date
        )

    @property
    def subject(self) -> Subject:
        """What it is about."""
        return Subject(self.column, self.table, self.units or {})

    @property
    def parts(self) -> dict[str, Release]:
        """Of a report: the answers by name, each as a release of its own; else nothing."""
        if not isinstance(self.value, dict) or "answers" not in self.value:
            return {}
        return {name: self._read_part(told) for name, told in self.value["answers"].items()}

    def to_part(self) -> dict[str, Any]:
        """Return the release as public JSON inside a report, which has table and date.

        Returns
        -------
        dict[str, Any]
            Names and values; of the certificate, theorem, page and digest of the plan.
        """
        shared = ("certificate", "table", "date")
        told = {
            name: value
            for name, value in self.__dict__.items()
            if name not in shared and (name not in OPTIONAL_FIELDS or value is not None)
        }
        paper = self.certificate
        return told | {
            "theorem": paper.theorem,
            "page": paper.page,
            "plan_digest": paper.plan_digest,
        }

    def _read_part(self, told: dict[str, Any]) -> Release:
        """Returns one answer of a report as ``to_part`` wrote it."""
        content = dict(told)
        certificate = Certificate(
            content.pop("theorem"),
            content.pop("page"),
            content.pop("plan_digest"),
            self.certificate.library,
        )
        return Release(**content, certificate=certificate, table=self.table, date=self.date)

    def to_json(self) -> str:
        """Return the release as JSON, in one fixed order and spelling.

        Returns
        -------
        str
            Text; what is not known is left out.
        """
        paper = {
            name: value for name, value in self.certificate.__dict__.items() if value is not None
        }
        known = {
            name: value
            for name, value in self.__dict__.items()
            if name not in OPTIONAL_FIELDS or value is not None
        }
        content = {"format": FORMAT, **known, "certificate": paper}
        if not self.error_parts:  # made by an earlier version, and the same bytes for ever
            content.pop("error_unit", None)
            content.pop("error_parts", None)
        return json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Release:
        """Read a release from JSON.

        Parameters
        ----------
        text : str
            As ``to_json`` wrote it.

        Returns
        -------
        Release
            The release.

        Raises
        ------
        InvalidRelease
            The text is not one.
        """
        try:
            content = json.loads(
                text,
                object_pairs_hook=_refuse_repeated_keys,
                parse_constant=_parse_finite,
                parse_float=_parse_finite,
                parse_int=_parse_whole,
            )
            if content.pop("format") != FORMAT:
                raise ValueError
            release = cls(**{**content, "certificate": Certificate(**content["certificate"])})
            if any(
                not isinstance(getattr(release, name), kind) for name, kind in FIELD_TYPES.items()
            ):
                raise ValueError
            _refuse_wrong_kinds(release)
            release.explain()  # what cannot be explained is not a release
            return release
        except (
            ValueError,
            TypeError,
            LookupError,
            AttributeError,
            ArithmeticError,
            RecursionError,
        ):
            pass  # raised below: the reason would quote the file
        raise InvalidRelease(
            "This is not a release of a format that this version knows.",
            f"A release is JSON with format {FORMAT!r}.",
            "Check the file, or update sottovoce.",
            parameter="text",
        )

    @classmethod
    def load(cls, path: str | Path) -> Release:
        """Read a release from a file.

        Parameters
        ----------
        path : str | Path
            The file.

        Returns
        -------
        Release
            The release.

        Raises
        ------
        InvalidRelease
            The file cannot be read, or is not one.
        """
        try:
            text = Path(path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError, TypeError, ValueError):  # also of what is no path
            text = ""
        return cls.from_json(text)

    def explain(self) -> str:
        """Return the release in plain words.

        Returns
        -------
        str
            One paragraph.
        """
        nothing = filter(None, [warn_if_uninformative(self)])
        if self.parts:
            return "\n".join(self._explain_parts())
        return "\n".join(
            [
                self._describe_answer(),
                self._describe_subject(),
                write_error_sentence(self),
                *write_interval_sentences(self),
                *nothing,
                *self.promise_in_words(),
                self.reasons(),
            ]
        )

    def _explain_parts(self) -> list[str]:
        """The answers of a report in words, and what all of them together promise."""
        told = [f"Answer: {describe_question(self)}.", self._describe_subject()]
        for name, part in self.parts.items():
            told += ["", f"{name}", *part.describe_alone()]
        return [*told, "", *self.promise_in_words(), self.reasons()]

    def describe_alone(self) -> list[str]:
        """Return the answer, its error and its intervals in words, without the promise.

        Returns
        -------
        list[str]
            Sentences.
        """
        nothing = filter(None, [warn_if_uninformative(self)])
        return [
            self._describe_answer(),
            write_error_sentence(self),
            *write_interval_sentences(self),
            *nothing,
        ]

    def numbers(self) -> list[tuple[str, str]]:
        """Return the answers of a question about one column, rounded and with their unit.

        Returns
        -------
        list[tuple[str, str]]
            Pairs of a name and an answer.
        """
        if isinstance(self.value, list):
            values: list[Any] = self.value
        else:
            values = [self.value]
        if has_quantiles(self):  # whose error is a rank, and whose answers are points of a grid
            names = [name for name, _ in name_quantiles(self)]
            told = [
                round_to_error(value, step, 1)
                for value, step in zip(values, self._steps(), strict=True)
            ]
        else:
            names = [self.question]
            told = [round_to_error(value, list_errors(self)[0]) for value in values]
        return [(name, add_unit(number, self)) for name, number in zip(names, told, strict=True)]

    def _steps(self) -> list[float]:
        """How finely each quantile is told: by the grid, or where that is finer, by a sixteenth of
        the error.
        """
        if isinstance(self.error_parts, list):
            parts = self.error_parts
        else:
            parts = [self.error_parts or {}]
        step = float(self.grid.get("step", 0.0))
        return [max(step, float(part.get("in_column", 0.0)) / 16) for part in parts] * (
            len(list_errors(self)) // len(parts)
        )

    def coefficients(self, function: dict[str, Any]) -> list[tuple[str, str]]:
        """Return intercept and coefficients, rounded to what moves a prediction by its error.

        Public features have no declared range; their coefficients are rounded to their own noise.

        Parameters
        ----------
        function : dict[str, Any]
            One function of the model.

        Returns
        -------
        list[tuple[str, str]]
            Pairs of a name and a number.
        """
        error = describe_prediction_error(self)
        own = {
            f["name"]: math.sqrt(2) * self.noise.get("scale", 0.0)
            for f in self._features()
            if len(f) == 1
        }
        own |= {
            f["name"]: error / ((f["high"] - f["low"]) or 1.0)
            for f in self._features()
            if "high" in f
        }
        told = [("intercept", round_to_error(function["intercept"], error))]
        for name, number in function["coefficients"].items():
            per = self.subject.units.get(name, "")
            told.append(
                (
                    name,
                    round_to_error(number, own.get(name, error))
                    + (f" per {name_one_unit(per)}" if per else ""),
                )
            )
        return told

    def _features(self) -> list[dict[str, Any]]:
        """The declared features; public ones have names only."""
        return [
            f if isinstance(f, dict) else {"name": f} for f in self.parameters.get("features", ())
        ]

    def _describe_answer(self) -> str:
        if is_table(self):
            return self._describe_table()
        if isinstance(self.value, dict):
            return self._describe_model(self.value)
        told = self.numbers()
        low, high = self.parameters["bounds"]
        between = f"{format_number(low)} and {add_unit(format_number(high), self)}"
        found = f"{describe_question(self)} is {told[0][1]}"
        if len(told) > 1:
            some, more = list_told(told)
            each = ", ".join(f"{number} (the {name})" for name, number in some)
            found = f"{describe_question(self)} are {each}{more}"
        return (
            f"Answer: {found}. Values were taken as lying between {between}; anything beyond was "
            "clipped."
        )

    def _describe_table(self) -> str:
        """What is asked, and the cells with their intervals, as far as they are few."""
        clipped = ""
        if "bounds" in self.parameters:
            low, high = self.parameters["bounds"]
            clipped = (
                f" Values were taken as lying between {format_number(low)} and "
                f"{self._add_column_unit(format_number(high))}; anything beyond was clipped."
            )
        if not isinstance(self.value, dict):
            return f"Answer: {describe_question(self)} is {self.numbers()[0][1]}.{clipped}"
        few = self._count_cells_that_are_too_few()
        cells = list_cell_answers(self, MOST_CELLS_TOLD, known=True)
        told = [f"{name}: {words}" for name, words in cells]
        more = self._count_cells() - few - len(told)
        if more:
            told.append(f"and {more:,} more")
        if few:
            told.append(f"{TOO_FEW}: {format_count(few, 'cell')}")
        return f"Answer: {describe_question(self)}. {'; '.join(told)}.{clipped}"

    def _count_cells_that_are_too_few(self) -> int:
        if "columns" in self.parameters:
            return sum(words == TOO_FEW for _, words in list_cell_answers(self))
        several: Any = next(iter(self.value.values()))  # type: ignore[union-attr]
        return sum(value is None for value in several)

    def _count_cells(self) -> int:
        """How many answers a table has: one a cell, or one an entry of a matrix."""
        if "columns" in self.parameters:
            return len(list_cell_answers(self))
        several: Any = next(iter(self.value.values()))  # type: ignore[union-attr]
        return len(several)

    def _add_column_unit(self, number: str) -> str:
        """A number of the column in the column's own unit, also where the answer is squared."""
        return f"{number} {self.subject.units.get(self.column or '', '')}".rstrip()

    def _describe_subject(self) -> str:
        if self.table is None:
            table = "a table without a name"
        else:
            table = f"the table {self.table!r}"
        if self.date is None:
            date = "on a date that is not recorded"
        else:
            date = f"on {format_date(self.date)}"
        if self.date is None and self.column is None and self.table is None:
            return "Asked about: column, table and date are not recorded."
        return f"Asked about: {describe_columns(self)}, of {table}, {date}."

    def _describe_model(self, value: dict[str, Any]) -> str:
        if "models" in value:
            return self._describe_classifier(value["models"])
        (_, intercept), *slopes = self.coefficients(value)
        terms = ", ".join(f"{name} {number}" for name, number in slopes)
        low, high = self.parameters["label"]
        between = f"{format_number(low)} and {add_unit(format_number(high), self)}"
        if self.column is None:
            of = ""
        else:
            of = f" of {self.column!r}"
        return (
            f"Answer: a linear model{of}. Intercept {intercept}; coefficients: {terms}. All are in "
            f"{describe_unit(self)}, those of numbers for one unit of their column. The label was "
            f"taken as lying between {between}; anything beyond was clipped."
        )

    def _describe_classifier(self, models: dict[str, Any]) -> str:
        told = []
        for name, model in models.items():
            (_, intercept), *slopes = self.coefficients(model)
            terms = ", ".join(f"{column} {number}" for column, number in slopes)
            told.append(f"{describe_score(self)} of {name}: intercept {intercept}; {terms}")
        classes = ", ".join(map(str, self.parameters["classes"]))
        if self.column is None:
            of = ""
        else:
            of = f" of {self.column!r}"
        rows = self.parameters.get("rows")
        pulled = ""
        if isinstance(rows, dict) and rows.get("pulled"):
            pulled = (
                " Rows far from the middle of the bounds were pulled towards it in the fit, and "
                "the functions hold for all rows within the bounds."
            )
            if rows.get("whole"):
                pulled = (
                    " Rows far from the middle of the bounds counted less in the fit, and the "
                    "functions hold for all rows within the bounds."
                )
        return (
            f"Answer: a classifier{of} ({classes}). {'. '.join(told)}. Features beyond their "
            f"bounds were clipped.{pulled}"
        )

    def promise_in_words(self) -> list[str]:
        """Return what was promised to whom, and what that means.

        Returns
        -------
        list[str]
            A sentence a line; then how many are at which ε.
        """
        return [*describe_baseline(self.parameters), *self._write_promise()]

    def _write_promise(self) -> list[str]:
        promise = self.guarantee
        if "epsilon" not in promise:
            return self._promise_in_rho()
        epsilon = promise["epsilon"]
        unit = promise["unit"]
        whose = {"row": "of each row", "person": "of each person, with all their rows"}[unit]
        labels = promise["neighbours"] == "replace labels"
        if labels:
            whose = {"row": "of each row's label", "person": "of all labels of each person"}[
                unit
            ] + ", and of nothing else"
        factors = " and ".join(
            f"{_format_odds(e)} (ε = {e:g})"
            for e in dict.fromkeys((epsilon["least"], epsilon["most"]))
        )
        guess = f"any guess about one {unit}'s {'labels' if labels else 'data'}"
        if promise["neighbours"] == "zero out":
            guess = f"a guess whether one {unit} took part or was left out"
        return [
            f"Promise: differential privacy ({describe_currency(promise)}, neighbours by "
            f"{promise['neighbours']}) "
            f"{whose}, {promise['people']:,} in all, {_describe_range(epsilon)}.",
            "What it means: whatever somebody already knows, seeing this answer changes the odds "
            f"of {guess} by a factor of at most {factors}{_describe_delta(promise)}.",
            *(_describe_line(entry, unit) for entry in epsilon["distribution"]),
        ]

    def _promise_in_rho(self) -> list[str]:
        promise = self.guarantee
        rho = self.guarantee["rho"]
        return [
            "Promise: zero-concentrated differential privacy (ρ of zCDP, neighbours by "
            f"{promise['neighbours']}) of each {promise['unit']}, {promise['people']:,} in all, "
            f"{_describe_range(rho, 'ρ')}.",
            "What it means: whatever somebody already knows, and for every δ, the loss is at most "
            "ρ + 2·√(ρ·ln(1/δ)) but for a probability of δ.",
        ]

    def reasons(self) -> str:
        """Return why the promise holds, and what the release was made with.

        Returns
        -------
        str
            One paragraph.
        """
        certificate = self.certificate
        libraries = ", ".join(f"{name} {number}" for name, number in certificate.library.items())
        return (
            f"Why: {certificate.theorem} (proof: {certificate.page}). Noise: "
            f"{self.noise['distribution']}, {self.guarantee['arithmetic']} arithmetic. Made by "
            f"{libraries}; plan {certificate.plan_digest[:16]}." + self._describe_entry()
        )

    def _describe_entry(self) -> str:
        booked = self.certificate.ledger
        if booked is None:
            return ""
        return (
            f" Paid for by entry {booked['entry']} of ledger {booked['id'][:8]}, head "
            f"{booked['head'][:16]}."
        )


#: What the parts of a release are.
FIELD_TYPES: dict[str, Any] = {
    "question": str,
    "parameters": dict,
    "value": int | float | list | dict,
    "expected_error": int | float | list,
    "error_is": str,
    "guarantee": dict,
    "noise": dict,
    "grid": dict,
}


def _refuse_repeated_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(dict(pairs)) < len(pairs):
        raise ValueError  # which of two answers would be read depends on the reader
    return dict(pairs)


def _parse_finite(number: str) -> float:
    if not math.isfinite(float(number)):
        raise ValueError
    return float(number)


def _parse_whole(number: str) -> int:
    _parse_finite(number)
    return int(number)


def format_date(date: str) -> str:
    """Returns a date of a release for people: 2026-11-16 at 17:04 UTC.

    >>> format_date("2026-11-16T17:04:05Z")
    '2026-11-16 at 17:04 UTC'
    """
    return datetime.fromisoformat(date).astimezone(UTC).strftime("%Y-%m-%d at %H:%M UTC")


def _refuse_wrong_kinds(release: Release) -> None:
    """Raises unless names, units and date are text, and estimator and intervals are described, or
    are not there.
    """
    words = [
        release.column,
        release.table,
        release.date,
        *release.subject.units,
        *release.subject.units.values(),
    ]
    if not all(word is None or isinstance(word, str) for word in words):
        raise ValueError
    if not all(isinstance(part, dict | None) for part in (release.estimator, release.bought)):
        raise ValueError
    if release.intervals is not None:
        Intervals.from_dict(release.intervals).pairs()


@cache
def _get_library_versions() -> dict[str, str]:
    return {name: version(name) for name in ("sottovoce", "opendp")}


def _format_odds(epsilon: float) -> str:
    if epsilon < 20:
        return format_odds(epsilon)
    return f"e^{epsilon:g}, which is no protection"


def _describe_delta(promise: dict[str, Any]) -> str:
    if "delta" in promise:
        return f", except with a probability of about δ = {promise['delta']:g}"
    return ""


def _describe_range(amounts: dict[str, Any], sign: str = "ε") -> str:
    if amounts["least"] == amounts["most"]:
        return f"each with {sign} = {amounts['least']:g}"
    own = {"ε": "an ε", "ρ": "a ρ"}[sign]
    return f"each with {own} of their own, from {amounts['least']:g} to {amounts['most']:g}"


def _describe_line(entry: dict[str, float], unit: str) -> str:
    if "people" in entry:
        return f"  {format_count(int(entry['people']), unit)} at ε = {entry['epsilon']:g}"
    return f"  {entry['share_at_or_below']:.0%} at ε = {entry['epsilon']:g} or less"
