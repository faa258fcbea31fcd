# SPDX-License-Identifier: Apache-2.0
"""A release as part of a page: what was asked, the answer large, its error beside it, what was
promised to how many.

Numbers are rounded to their error; the file has all digits. Everything here is public: it is a
function of the released bytes alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

from sottovoce.plan import describe_currency
from sottovoce.release import Release, format_date
from sottovoce.report.html import make_table
from sottovoce.wording import (
    MARGIN,
    RANK,
    add_unit,
    describe_error_meaning,
    describe_error_unit,
    describe_score,
    describe_unit,
    format_percent,
    get_unit,
    has_quantiles,
    list_errors,
    name_quantiles,
    round_to_error,
    warn_if_uninformative,
    write_error_sentence,
)


def make_release_headline(release: Release) -> str:
    """Returns what was released, in a few words."""
    if release.column is None:
        of = ""
    else:
        of = f" of {release.column}"
    if isinstance(release.value, dict):
        return f"{'A classifier' if 'models' in release.value else 'A linear model'}{of}"
    if not has_quantiles(release):
        return f"The {release.question}{of}"
    names = [name for name, _ in name_quantiles(release)]
    if len(names) == 1:
        return f"The {names[0]}{of}"
    return f"Quantiles{of}"


def describe_origin(release: Release) -> str:
    """Returns from which table and when, as far as it is recorded."""
    if release.table is None:
        table = ""
    else:
        table = f"From the table “{release.table}”"
    if release.date is None:
        date = ""
    else:
        date = f"{', made' if table else 'Made'} on {format_date(release.date)}"
    if table or date:
        return f"{table}{date}."
    return "Table and date are not recorded."


def draw_answer(release: Release) -> str:
    """Returns the answer with its expected error."""
    if not isinstance(release.value, dict):
        shown = _draw_values(release)
    else:
        shown = _draw_model(release, release.value)
    nothing = warn_if_uninformative(release)
    return shown + (f'\n<p class="caution">{escape(nothing)}</p>' if nothing else "")


def tabulate_promise(release: Release) -> str:
    """Returns what was promised to how many, as a table."""
    promise = release.guarantee
    if "epsilon" in promise:
        what = "epsilon"
    else:
        what = "rho"
    sign = {"epsilon": "ε", "rho": "ρ"}[what]
    if promise["unit"] == "person":
        unit = "people"
    else:
        unit = "rows"
    lines = [
        [
            f"{line[what]:g}",
            f"{line['people']:,}"
            if "people" in line
            else f"{line['share_at_or_below']:.0%} or less",
        ]
        for line in promise[what]["distribution"]
    ]
    return make_table([f"{sign} spent ({describe_currency(promise)})", unit], lines)


def explain_promise(release: Release) -> tuple[list[str], str]:
    """Returns the promise in plain words, and why it holds."""
    sentences = [
        sentence for sentence in release.promise_in_words() if not sentence.startswith(" ")
    ]
    return sentences, release.reasons()


def _draw_values(release: Release) -> str:
    numbers = release.numbers()
    if len(numbers) > 1:
        lines = [
            [name, number, f"{format_percent(error)} of the rows"]
            for (name, number), error in zip(numbers, list_errors(release), strict=True)
        ]
        meaning = (
            "The expected error is how many rows lie between the answer and the truth: "
            f"{describe_error_meaning(release)}."
        )
        return (
            f"{make_table(['', 'answer', 'expected error'], lines)}\n<p "
            f'class="soft">{escape(meaning)}</p>'
        )
    number = numbers[0][1]
    if describe_error_unit(release) == RANK:
        return (
            f'<p class="big">{escape(number)}</p>\n<p '
            f'class="soft">{escape(write_error_sentence(release))}</p>'
        )
    error = list_errors(release)[0]
    exact = escape(number.removesuffix(f" {get_unit(release)}") if get_unit(release) else number)
    either = escape(add_unit(round_to_error(error, error), release))
    meaning = (
        f"± is the expected error, in {describe_unit(release)}: {describe_error_meaning(release)}."
    )
    return (
        f'<p class="big">{exact} <span class="soft">± {either}</span></p>\n<p '
        f'class="soft">{escape(meaning)}</p>'
    )


def _draw_model(release: Release, value: Mapping[str, Any]) -> str:
    """One column for each function of the model: a regression has one, a classifier one for each
    class told apart.
    """
    functions = value.get("models", {"coefficient": value})
    columns = [release.coefficients(function) for function in functions.values()]
    lines = [
        [name, *(column[place][1] for column in columns)]
        for place, (name, _) in enumerate(columns[0])
    ]
    if "models" in value:
        of = {"log-odds": "log-odds", "margin": MARGIN}[describe_score(release)]
    else:
        of = describe_unit(release)
    told = [
        f"Numbers are in {of}; a coefficient of a number is for one unit of its column.",
        write_error_sentence(release),
    ]
    sentences = "\n".join(f'<p class="soft">{escape(sentence)}</p>' for sentence in told)
    return f"{make_table(['', *functions], lines)}\n{sentences}"
