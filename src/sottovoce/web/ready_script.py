# SPDX-License-Identifier: Apache-2.0
"""What can be carried away from the page: a script that asks the same question, and the certificate
in plain words.

The script uses public names of the library alone and says everything that was said at the page:
schema, options, share. Without books it makes a release that nobody remembers; with books it needs
a key of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from string import Template
from typing import Any

from sottovoce.asked import TableOptions
from sottovoce.data.files import is_text, list_files, read_header
from sottovoce.release import Release
from sottovoce.schema import Schema
from sottovoce.web.question_form import QuestionForm
from sottovoce.web.schema_form import write_toml


def write_script(asked: QuestionForm) -> str:
    """Returns a Python program that asks this question of a table whose path it is given."""
    said = asked.said
    kind = asked.kind
    if said.features is not None:
        described = Schema(said.features.columns, label=said.column)
    else:
        described = None
    bounds: Any = "SCHEMA" if described is not None else said.bounds
    given = {"bounds": bounds, **asked.parameters}
    if described is None and said.missing is not None:
        given["missing"] = said.missing
    return _SCRIPT.substitute(
        words=kind.words,
        schema=""
        if described is None
        else f"SCHEMA = sv.Schema.loads({write_toml(described)!r})\n",
        question=f"sv.{kind.estimator}({_format_arguments(given)})",
        column=repr(said.column),
        features="None"
        if described is None
        else repr([n for n in described.columns if n != said.column]),
        person=repr(said.person),
        budgets=_format_budgets(said),
        share=repr(said.share),
        written=_describe_text_format(said.table),
    )


def _describe_text_format(table: str) -> str:
    """How a text file is written, as an argument; blank lines of one with a single column are
    rows.
    """
    if not is_text(table):
        return ""
    names, text = read_header(list_files(table)[0])
    return (
        f"delimiter={text.delimiter!r}, ignore_empty_lines={len(names) > 1}, "
        "newlines_in_values=True"
    )


def write_certificate(release: Release, key: str) -> str:
    """Returns the certificate in plain words, as text."""
    paper = release.certificate
    heads = [
        f"Certificate of the release “{key}”",
        "",
        release.explain(),
        "",
        f"Plan: {paper.plan_digest}",
    ]
    if paper.ledger is not None:
        heads.append(
            f"Ledger: {paper.ledger['id']}, entry {paper.ledger['entry']}, head "
            f"{paper.ledger['head']}"
        )
    return "\n".join(heads) + "\n"


def _format_arguments(given: Mapping[str, Any]) -> str:
    return ", ".join(
        f"{word}={value if value == 'SCHEMA' else repr(value)}" for word, value in given.items()
    )


def _format_budgets(said: TableOptions) -> str:
    if said.budget is None:
        return f"[{said.epsilon!r}] * len(table)"
    listed = f"table[{said.budget!r}].to_pylist()"
    if said.tiers:
        return f"[{dict(said.tiers)!r}[tier] for tier in {listed}]"
    return listed


_SCRIPT = Template('''\
"""$words, as it was asked at the page of sottovoce.

    python ask.py TABLE OUT                   without books: asking again spends everybody's ε again
    python ask.py TABLE OUT BOOKS KEY         from books such as sqlite:///books.db, under a new key
"""

import sys

import pyarrow.csv
import pyarrow.parquet
import sottovoce as sv

${schema}QUESTION = $question
COLUMN, FEATURES, PERSON = $column, $features, $person
#: How much of what everybody grants may be spent.
SHARE = $share
#: How a text file is written.
WRITTEN = pyarrow.csv.ParseOptions($written)


def ask(path, out, books=None, key=None):
    text = path.lower().endswith(".csv")
    if text:
        table = pyarrow.csv.read_csv(path, parse_options=WRITTEN)
    else:
        table = pyarrow.parquet.read_table(path)
    data = (table[COLUMN],) if FEATURES is None else (table.select(FEATURES), table[COLUMN])
    granted = $budgets
    spent = [epsilon * SHARE for epsilon in granted]
    people = None if PERSON is None else table[PERSON].to_pylist()
    if books is None:
        release = QUESTION.fit(*data, epsilon=spent, groups=people).release_
    else:
        prices = dict(zip(people, spent))
        session = sv.Session(ledger=books)
        release = session.release(QUESTION, *data, groups=people, epsilon=prices, key=key)
    with open(out, "x", encoding="utf-8") as file:
        file.write(release.to_json())
    print(release.explain())


if __name__ == "__main__":
    if len(sys.argv) not in (3, 5):
        sys.exit(__doc__)
    ask(*sys.argv[1:])
''')
