# SPDX-License-Identifier: Apache-2.0
"""A release as part of a page: the answer large, its error beside it, and what was promised to how many.

Everything here is public: it is a function of the released bytes alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

from sottovoce.pages.page import table
from sottovoce.plan import currency_words, error_text
from sottovoce.release import Release

#: Digits of an answer that are shown at a glance; the file has all of them.
DIGITS = 6


def headline(release: Release) -> str:
    """Returns what was released, in a few words."""
    if not isinstance(release.value, dict):
        return (
            "The mean"
            if release.question == "mean"
            else "Quantiles"
            if len(_listed(release.value)) > 1
            else "A quantile"
        )
    return "A classifier" if "models" in release.value else "A linear model"


def answer(release: Release) -> str:
    """Returns the answer with its expected error."""
    if not isinstance(release.value, dict):
        return _values(release)
    error = f"{error_text(release.expected_error)} ({release.error_is})"
    return f'{_model(release.value)}\n<p class="soft">Expected error: {escape(error)}.</p>'


def promised(release: Release) -> str:
    """Returns what was promised to how many, as a table."""
    promise = release.guarantee
    what = "epsilon" if "epsilon" in promise else "rho"
    sign, unit = {"epsilon": "ε", "rho": "ρ"}[what], "people" if promise["unit"] == "person" else "rows"
    lines = [
        [f"{line[what]:g}", f"{line['people']:,}" if "people" in line else f"{line['share_at_or_below']:.0%} or less"]
        for line in promise[what]["distribution"]
    ]
    return table([f"{sign} spent ({currency_words(promise)})", unit], lines)


def words(release: Release) -> tuple[list[str], str]:
    """Returns the promise in plain words, and why it holds."""
    _, _, *sentences, why = release.explain().split("\n")
    return [sentence for sentence in sentences if not sentence.startswith(" ")], why


def _listed(several: Any) -> list[float]:
    return several if isinstance(several, list) else [several]


def _values(release: Release) -> str:
    values, errors = _listed(release.value), _listed(release.expected_error)
    if len(values) > 1:
        told = zip(release.parameters["q"], values, errors, strict=True)
        lines = [[f"{share:g}", _number(value), error_text(error)] for share, value, error in told]
        return table(["share of the people", "at most", "expected error"], lines)
    shown = f'{escape(_number(values[0]))} <span class="soft">± {escape(error_text(release.expected_error))}</span>'
    return f'<p class="big">{shown}</p>\n<p class="soft">± is the expected error: {escape(release.error_is)}.</p>'


def _model(value: Mapping[str, Any]) -> str:
    """One column for each function of the model: a regression has one, a classifier one for each class told apart."""
    functions = value.get("models", {"coefficient": value})
    names = list(next(iter(functions.values()))["coefficients"])
    lines = [["intercept", *(_number(function["intercept"]) for function in functions.values())]]
    lines += [[name, *(_number(function["coefficients"][name]) for function in functions.values())] for name in names]
    return table(["", *functions], lines)


def _number(value: float) -> str:
    return f"{value:,.{DIGITS}g}" if abs(value) < 1e9 else f"{value:.{DIGITS}g}"
