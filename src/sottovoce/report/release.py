# SPDX-License-Identifier: Apache-2.0
"""A release as part of a page: what was asked, the answer large, its error beside it, what was
promised to how many.

Numbers are rounded to their error; the file has all digits. Everything here is public: it is a
function of the released bytes alone.

An audit as one HTML file that needs nothing but itself, or as part of another page; stamped as
what it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from string import Template
from typing import TYPE_CHECKING, Any

import numpy as np

from sottovoce.arrays import Floats
from sottovoce.audit.confidential import draw_losses, find_median
from sottovoce.estimators.joint_quantiles import JOINT, ReleasedDistribution
from sottovoce.estimators.table_result import MOST_LINES, Table
from sottovoce.plan import describe_currency
from sottovoce.release import LEVEL, Release, format_date
from sottovoce.report.html import NAMES_STYLE, make_page, make_stamp, make_table
from sottovoce.svg import draw_distribution, draw_interval_parts, draw_whisker_bars
from sottovoce.units import format_count, format_percent, round_to_error
from sottovoce.wording import (
    MARGIN,
    RANK,
    NamedInterval,
    add_unit,
    describe_error_meaning,
    describe_error_unit,
    describe_question,
    describe_score,
    describe_unit,
    get_unit,
    has_quantiles,
    is_table,
    list_cell_answers,
    list_cell_intervals,
    list_errors,
    list_intervals,
    list_matrix_answers,
    name_model,
    name_quantiles,
    warn_if_uninformative,
    write_error_sentence,
    write_interval_sentences,
)

if TYPE_CHECKING:
    from sottovoce.audit import PerInstance, RealisedLosses
    from sottovoce.audit.instance_losses import ExposedPerson, Summary
    from sottovoce.release import Release


def make_release_headline(release: Release) -> str:
    """Returns what was released, in a few words."""
    if release.parts:
        return f"Report of {format_count(len(release.parts), 'question')}"
    if release.column is None:
        of = ""
    else:
        of = f" of {release.column}"
    if is_table(release):
        what = describe_question(release)
        return f"{what[0].upper()}{what[1:]}"
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
    """Returns the answer with its expected error; of a report, a section for each question."""
    if release.parts:
        return "\n".join(
            f"<h2>{escape(name)}</h2>\n"
            f'<p class="soft">{escape(make_release_headline(part))}</p>\n{draw_answer(part)}'
            for name, part in release.parts.items()
        )
    if not isinstance(release.value, dict):
        shown = _draw_values(release)
    elif is_table(release):
        shown = _draw_table(release)
    else:
        shown = _draw_model(release, release.value)
    nothing = warn_if_uninformative(release)
    shown += draw_intervals(release)
    return shown + (f'\n<p class="caution">{escape(nothing)}</p>' if nothing else "")


def draw_intervals(release: Release) -> str:
    """Returns the intervals in words and as a picture, in which noise and sampling stand apart;
    nothing where the release has none.
    """
    told = "".join(
        f'\n<p class="soft">{escape(sentence)}</p>'
        for sentence in write_interval_sentences(release)
    )
    found = list_intervals(release)
    if not found and is_table(release):
        found = _list_table_intervals(release)
    lines = [
        (one.name, one.describe(), one.noise, one.sampling)
        for one in found
        if one.noise is not None and one.sampling is not None and not one.is_whole_range
    ]
    if not lines:
        return told
    picture = draw_interval_parts(
        "Half the width of each interval by noise and by sampling alone",
        lines,
        ("noise alone", "sampling alone"),
    )
    return f"{told}\n<figure>\n{picture}\n</figure>"


def _list_table_intervals(release: Release) -> list[NamedInterval]:
    """Those of the cells that are listed, or of a matrix."""
    if "columns" in release.parameters:
        return [one.interval for one in list_matrix_answers(release)]
    return list_cell_intervals(release, Table(release).list_notable_cells()[:MOST_LINES])


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
            f'class="soft">{escape(meaning)}</p>{_draw_distribution(release)}'
        )
    number = numbers[0][1]
    if describe_error_unit(release) == RANK:
        return (
            f'<p class="big">{escape(number)}</p>\n<p '
            f'class="soft">{escape(write_error_sentence(release))}</p>'
        )
    error = list_errors(release)[0]
    if error == 0:
        return f'<p class="big">{escape(number)}</p>'
    exact = escape(number.removesuffix(f" {get_unit(release)}") if get_unit(release) else number)
    either = escape(add_unit(round_to_error(error, error), release))
    meaning = (
        f"± is the expected error, in {describe_error_unit(release)}: "
        f"{describe_error_meaning(release)}."
    )
    return (
        f'<p class="big">{exact} <span class="soft">± {either}</span></p>\n<p '
        f'class="soft">{escape(meaning)}</p>'
    )


def _draw_table(release: Release) -> str:
    """The cells as bars with their intervals, as numbers, and what the error means; a matrix as
    numbers alone.
    """
    sentences = f'<p class="soft">{escape(write_error_sentence(release))}</p>'
    if "columns" in release.parameters:
        return f"{_tabulate_matrices(release)}\n{sentences}"
    table = Table(release)
    picture = draw_whisker_bars(table.title, table.make_bars())
    notable = table.list_notable_cells()
    answers = list_cell_answers(release, MOST_LINES, cells=set(notable))
    lines = [[name, words] for name, words in answers]
    more = ""
    if len(table) > len(notable):
        empty = format_count(len(table) - len(notable), "cell")
        more += (
            f'\n<p class="soft">Not listed: {empty} of values that are missing or not declared, '
            "which may hold no row at all. The file has them.</p>"
        )
    if len(notable) > MOST_LINES:
        left = format_count(len(notable) - MOST_LINES, "more cell")
        more += f'\n<p class="soft">In the file alone: {left}.</p>'
    heading = ["", f"{table.name}, with its interval"]
    return (
        f"<figure>\n{picture}\n</figure>\n{make_table(heading, lines, 'words')}{more}\n{sentences}"
    )


def _tabulate_matrices(release: Release) -> str:
    """Every correlation, covariance, variance and mean once, rounded to its error."""
    lines = [[one.name, one.describe()] for one in list_matrix_answers(release)]
    return make_table(["", "answer"], lines)


def _draw_distribution(release: Release) -> str:
    """Returns the distribution function where several quantiles were chosen together."""
    if release.parameters.get("method") != JOINT:
        return ""
    known = ReleasedDistribution(release)
    picture = draw_distribution(
        known.values.tolist(),
        known.ranks.tolist(),
        [known.find_reach(LEVEL, rank) for rank in known.ranks],
        f"The share of rows at or below each value, and at {LEVEL:.0%} how far it may be off",
        across=describe_axis(release),
    )
    return f"\n<figure>\n{picture}\n</figure>"


def describe_axis(release: Release) -> str:
    """Returns what is along an axis of values: the column, and its unit where there is one."""
    name = release.column or "value"
    if get_unit(release):
        return f"{name}, in {get_unit(release)}"
    return name


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


REPLACE_NOTE = (
    " The promise is about replacing somebody's rows by others. What is shown is about leaving "
    "them out, which is only half of that: the new rows would cost something too."
)
FOR_WHOM = (
    "For the curator alone. Every number on this page depends on everybody's data, also those "
    "about one person when only that person sees them. Do not publish, send or charge by them."
)
#: So many of the least protected are listed.
LISTED_PEOPLE = 10


#: How names are asked for at the command line.
REVEAL_OPTION = "--reveal"


def make_audit_page(
    audit: PerInstance | RealisedLosses, release: Release, *, reveal: bool = False
) -> str:
    """Returns the whole page."""
    body = make_audit_body(audit, release, reveal=reveal)
    return make_page("CONFIDENTIAL: what each person lost", body, style=NAMES_STYLE, private=True)


def make_audit_body(
    audit: PerInstance | RealisedLosses,
    release: Release,
    *,
    reveal: bool = False,
    ask: str = REVEAL_OPTION,
) -> str:
    """Returns what is on it: a picture, the numbers, and who is least protected, by rank or by
    name.
    """
    summary = audit.summary()
    losses = np.asarray(audit.by_person())
    unit, people = audit.unit, audit.unit == "people"
    return _BODY.substitute(
        stamp=make_stamp("CONFIDENTIAL", FOR_WHOM),
        question=escape(_name_release(release)),
        count=f"{len(losses):,} {unit}",
        whose="all rows of this person" if people else "this row",
        told_as=escape(audit.told_as),
        picture=draw_losses(losses, summary, unit=unit),
        numbers=make_table(
            ["", "", "ε"],
            _tabulate_summary(summary, losses, unit),
            "words",
        ),
        sentence=escape(_summarise(summary, losses, unit)),
        names=escape(_explain_names(reveal, people, ask)),
        least=make_table(
            [
                "rank",
                "what sets them apart",
                "ε",
                *(["person" if people else "row"] if reveal else []),
            ],
            [_make_row(place, reveal) for place in audit.least_protected(LISTED_PEOPLE)],
            "words",
        ),
        exactness=escape(
            f"ε is {audit.exactness}.{REPLACE_NOTE if audit.neighbours == 'replace' else ''}"
        ),
    )


def _name_release(release: Release) -> str:
    """What was released, in words that begin a sentence."""
    if "features" in release.parameters:
        return f"A {name_model(release)}"
    return f"The {release.question}"


def _tabulate_summary(summary: Summary, losses: Floats, unit: str) -> list[list[str]]:
    lines = []
    if summary.promised is not None:
        low, high = summary.promised
        if low == high:
            told = _format_number(high)
        else:
            told = f"{_format_number(low)} to {_format_number(high)}"
        lines.append(["promised", f"for every table, neighbours by {summary.neighbours}", told])
    if summary.for_all is not None:
        lines.append(
            [
                "any record",
                "the worst row that bounds allow, with this table, at most",
                _format_number(summary.for_all),
            ]
        )
    if summary.eigenvalue is not None:
        lines.append(
            [
                "eigenvalue",
                "released before the sample, by itself, at most",
                _format_number(summary.eigenvalue),
            ]
        )
    for name, share in (
        ("most", 1.0),
        ("99 %", 0.99),
        ("90 %", 0.9),
        ("median", 0.5),
        ("least", 0.0),
    ):
        value = float(np.quantile(losses, share, method="inverted_cdf"))
        lines.append([name, f"of the {unit} in the table", _format_number(value)])
    return lines


def _summarise(summary: Summary, losses: Floats, unit: str) -> str:
    half = find_median(losses)
    most = float(losses.max())
    if summary.promised is None or not 0 < half < np.inf:
        return (
            f"Half of the {unit} lost ε = {_format_number(half)} or less, and nobody more than "
            f"{_format_number(most)}."
        )
    times = summary.promised[1] / half
    return (
        f"Half of the {unit} lost ε = {_format_number(half)} or less, and nobody more than "
        f"{_format_number(most)}. The largest promise, {_format_number(summary.promised[1])}, is "
        f"{_format_number(times)} times what the middle one lost: a promise covers every table "
        "that there could be, and these numbers only the one that there is."
    )


def _explain_names(reveal: bool, people: bool, ask: str) -> str:
    if reveal:
        return "Names are shown because they were asked for." + (
            "" if people else " Rows are counted from 0."
        )
    return f"By rank. Names are left out unless they are asked for ({ask})."


def _make_row(place: ExposedPerson, reveal: bool) -> list[str]:
    if reveal:
        who = [str(place.who)]
    else:
        who = []
    return [str(place.rank), place.why(), _format_number(place.epsilon), *who]


def _format_number(value: float) -> str:
    if value == 0:
        return "0"
    if 1000 <= value < 1e9:
        return f"{value:,.0f}"
    return f"{value:.3g}"


_BODY = Template("""\
$stamp
<h1>What each person really lost</h1>
<p class="soft">$question, $count. Each loss is told $told_as: with $whose or without,
everything else as it is.</p>
<figure>
$picture
</figure>
<p>$sentence</p>
$numbers
<h2>Who is least protected</h2>
<p class="soft">$names</p>
$least
<h2>What this does not say</h2>
<p>$exactness It is about this one release. It is no reason to charge anybody less, or to release
more: what a person lost would have been another number had anybody else's data been different, and
so it tells about them.</p>
<p>What may be told to people is a bound that they compute themselves, from a published model
and their own row:
<code>sottovoce audit --mine RELEASE --record ROW</code>.</p>""")
