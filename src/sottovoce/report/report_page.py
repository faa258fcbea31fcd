# SPDX-License-Identifier: Apache-2.0
"""A release as one page that needs nothing but itself: of a report, a section for each question.

Everything here is public: it is a function of the released bytes alone.
"""

from __future__ import annotations

from html import escape

from sottovoce.release import Release
from sottovoce.report.html import make_page, make_table
from sottovoce.report.release import (
    describe_origin,
    draw_answer,
    explain_promise,
    make_release_headline,
    tabulate_promise,
)
from sottovoce.units import format_percent

#: One number alone is large, and what an answer does not say is marked.
ANSWER_STYLE = """\
.big { font-size: 2.4rem; line-height: 1.15; margin: .2rem 0; }
.caution { border-left: 4px solid var(--warn); padding: .3rem .9rem; }
"""


def make_release_page(release: Release) -> str:
    """Returns the whole page."""
    title = make_release_headline(release)
    return make_page(title, make_release_body(release), style=ANSWER_STYLE)


def make_release_body(release: Release) -> str:
    """Returns what is on it: the answers, what was promised to how many, and why it holds."""
    sentences, why = explain_promise(release)
    return "\n".join(
        [
            f"<h1>{escape(make_release_headline(release))}</h1>",
            f'<p class="soft">{escape(describe_origin(release))}</p>',
            draw_answer(release),
            draw_shares(release),
            "<h2>What was promised</h2>",
            *(f"<p>{escape(sentence)}</p>" for sentence in sentences),
            tabulate_promise(release),
            f'<p class="soft">{escape(why)}</p>',
        ]
    )


def draw_shares(release: Release) -> str:
    """Returns how the questions of a report share the budget; nothing elsewhere."""
    if not release.parts:
        return ""
    return f"<h2>How the questions share the budget</h2>\n{_tabulate_shares(release)}"


def _tabulate_shares(release: Release) -> str:
    lines = []
    for entry in release.parameters["questions"]:
        share = format_percent(entry["share"] / 10**6)
        if "with" in entry:
            share = f"with “{entry['with']}”"
        lines.append([entry["name"], entry["question"], share])
    return make_table(["question", "asks for", "share of everybody's ε"], lines, "words")
