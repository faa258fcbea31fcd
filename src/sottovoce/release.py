# SPDX-License-Identifier: Apache-2.0
"""Release, the public answer as a JSON file anybody can read, and Certificate, its paper.

A release holds what may be known by everybody: the value, the promise (how the people's ε are
distributed, never who has which), the noise, the grid, the theorem. Nothing un-noised is in it.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from sottovoce.errors import InvalidRelease
from sottovoce.plan import Plan, currency_words, error_text

FORMAT = "sottovoce.release/1"


@dataclass(frozen=True)
class Certificate:
    """What a release rests on: theorem, parameters, and the digest of the plan it was paid for under."""

    theorem: str
    page: str
    plan_digest: str
    library: dict[str, str]
    #: Number of the books, number and digest of the entry that paid for it, the public key of the books, and their
    #: signature of the whole release but for itself (ledgers/signing.py).
    ledger: dict[str, Any] | None = None

    @classmethod
    def of(cls, plan: Plan) -> Certificate:
        """The certificate of a release made under this plan."""
        return cls(plan.theorem.statement, plan.theorem.page, plan.digest, _libraries())


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
    error_unit: str = ""  # of the expected error and its parts, in words; releases of earlier versions do not say
    error_parts: dict[str, Any] | list[dict[str, Any]] | None = None  # noise, sampling, shrinkage, possible bias

    @classmethod
    def of(cls, plan: Plan, value: float | list[float] | dict[str, Any]) -> Release:
        """The release of a noisy value under its plan."""
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
        )

    def to_json(self) -> str:
        """The release as JSON text, in one fixed order and spelling."""
        paper = {name: value for name, value in self.certificate.__dict__.items() if value is not None}
        content = {"format": FORMAT, **self.__dict__, "certificate": paper}
        if not self.error_parts:  # made by an earlier version, and the same bytes for ever
            del content["error_unit"], content["error_parts"]
        return json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Release:
        """Reads a release back; refuses what is not one."""
        try:
            content = json.loads(
                text,
                object_pairs_hook=_without_repetition,
                parse_constant=_finite,
                parse_float=_finite,
                parse_int=_whole,
            )
            if content.pop("format") != FORMAT:
                raise ValueError
            release = cls(**{**content, "certificate": Certificate(**content["certificate"])})
            if any(not isinstance(getattr(release, name), kind) for name, kind in KINDS.items()):
                raise ValueError
            release.explain()  # what cannot be explained is not a release
            return release
        except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError):
            pass  # raised below: the reason would quote the file
        raise InvalidRelease(
            "This is not a release of a format that this version knows.",
            f"A release is JSON with format {FORMAT!r}.",
            "Check the file, or update sottovoce.",
        )

    @classmethod
    def load(cls, path: str | Path) -> Release:
        """Reads a release from a file."""
        try:
            text = Path(path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            text = ""
        return cls.from_json(text)

    def explain(self) -> str:
        """The release in plain words."""
        return "\n".join([self._answer(), self._error(), *self._promise(), self._paper()])

    def _answer(self) -> str:
        if isinstance(self.value, dict):
            return self._model(self.value)
        values = self.value if isinstance(self.value, list) else [self.value]
        names = [f"{self.question} {q:g}" for q in self.parameters["q"]] if "q" in self.parameters else [self.question]
        low, high = self.parameters["bounds"]
        told = ", ".join(f"{name} {value:.10g}" for name, value in zip(names, values, strict=True))
        return f"Answer: {told}. Values were taken as lying between {low:g} and {high:g}; anything beyond was clipped."

    def _model(self, value: dict[str, Any]) -> str:
        if "models" in value:
            return self._classifier(value["models"])
        terms = ", ".join(f"{name} {number:.4g}" for name, number in value["coefficients"].items())
        low, high = self.parameters["label"]
        return (
            f"Answer: a linear model. Intercept {value['intercept']:.6g}; coefficients: {terms}. "
            f"The label was taken as lying between {low:g} and {high:g}; anything beyond was clipped."
        )

    def _classifier(self, models: dict[str, Any]) -> str:
        score = "margin" if self.parameters.get("loss") == "hinge" else "log-odds"
        told = [
            f"{score} of {name}: intercept {model['intercept']:.6g}; "
            + ", ".join(f"{column} {number:.4g}" for column, number in model["coefficients"].items())
            for name, model in models.items()
        ]
        classes = ", ".join(map(str, self.parameters["classes"]))
        return f"Answer: a classifier ({classes}). {'. '.join(told)}. Features beyond their bounds were clipped."

    def _error(self) -> str:
        error = self.expected_error
        return f"Expected error: {error_text(error)} ({self.error_is})."

    def _promise(self) -> list[str]:
        promise = self.guarantee
        if "epsilon" not in promise:
            return self._promise_in_rho()
        epsilon, unit = promise["epsilon"], promise["unit"]
        whose = {"row": "of each row", "person": "of each person, with all their rows"}[unit]
        labels = promise["neighbours"] == "replace labels"
        if labels:
            whose = {"row": "of each row's label", "person": "of all labels of each person"}[
                unit
            ] + ", and of nothing else"
        odds = " and ".join(f"{_odds(e)} (ε = {e:g})" for e in dict.fromkeys((epsilon["least"], epsilon["most"])))
        guess = f"any guess about one {unit}'s {'labels' if labels else 'data'}"
        if promise["neighbours"] == "zero out":
            guess = f"a guess whether one {unit} was heard or left out"
        return [
            f"Promise: differential privacy ({currency_words(promise)}, neighbours by {promise['neighbours']}) "
            f"{whose}, {promise['people']:,} in all, {_range(epsilon)}.",
            f"What it means: whatever somebody already knows, seeing this answer changes the odds of {guess} "
            f"by a factor of at most {odds}{_except(promise)}.",
            *(_line(entry, unit) for entry in epsilon["distribution"]),
        ]

    def _promise_in_rho(self) -> list[str]:
        promise, rho = self.guarantee, self.guarantee["rho"]
        return [
            f"Promise: zero-concentrated differential privacy (ρ of zCDP, neighbours by {promise['neighbours']}) of "
            f"each {promise['unit']}, {promise['people']:,} in all, with ρ from {rho['least']:g} to {rho['most']:g}."
        ]

    def _paper(self) -> str:
        certificate = self.certificate
        libraries = ", ".join(f"{name} {number}" for name, number in certificate.library.items())
        return (
            f"Why: {certificate.theorem} (proof: {certificate.page}). Noise: {self.noise['distribution']}, "
            f"{self.guarantee['arithmetic']} arithmetic. Made by {libraries}; plan {certificate.plan_digest[:16]}."
            + self._booked()
        )

    def _booked(self) -> str:
        booked = self.certificate.ledger
        if booked is None:
            return ""
        return f" Paid for by entry {booked['entry']} of ledger {booked['id'][:8]}, head {booked['head'][:16]}."


#: What the parts of a release are.
KINDS: dict[str, Any] = {
    "question": str,
    "parameters": dict,
    "value": int | float | list | dict,
    "expected_error": int | float | list,
    "error_is": str,
    "guarantee": dict,
    "noise": dict,
    "grid": dict,
}


def _without_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(dict(pairs)) < len(pairs):
        raise ValueError  # which of two answers would be read depends on the reader
    return dict(pairs)


def _finite(number: str) -> float:
    if not math.isfinite(float(number)):
        raise ValueError
    return float(number)


def _whole(number: str) -> int:
    _finite(number)
    return int(number)


@cache
def _libraries() -> dict[str, str]:
    return {name: version(name) for name in ("sottovoce", "opendp")}


def _odds(epsilon: float) -> str:
    return f"{math.exp(epsilon):.3g}" if epsilon < 20 else f"e^{epsilon:g}, which is no protection"


def _except(promise: dict[str, Any]) -> str:
    return f", except with a probability of about δ = {promise['delta']:g}" if "delta" in promise else ""


def _range(epsilon: dict[str, Any]) -> str:
    if epsilon["least"] == epsilon["most"]:
        return f"each with ε = {epsilon['least']:g}"
    return f"each with an ε of their own, from {epsilon['least']:g} to {epsilon['most']:g}"


def _line(entry: dict[str, float], unit: str) -> str:
    if "people" in entry:
        names = {"row": ("row", "rows"), "person": ("person", "people")}[unit]
        return f"  {entry['people']:,} {names[entry['people'] != 1]} at ε = {entry['epsilon']:g}"
    return f"  {entry['share_at_or_below']:.0%} at ε = {entry['epsilon']:g} or less"
