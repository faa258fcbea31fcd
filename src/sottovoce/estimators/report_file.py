# SPDX-License-Identifier: Apache-2.0
"""The questions of a report from a TOML file (docs/guide/reports.md).

    [questions."mean age"]
    ask = "mean"                what is asked, as `sottovoce release` calls it
    column = "age"
    wanted = 0.5                or share = 2; both may be left out
    bounds = [0, 100]           or from the schema
    spread = 10                 and whatever else the question takes

Everything in the file is public. What is wrong is refused with the name of its entry.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sottovoce.errors import InvalidParameter
from sottovoce.estimators import Parameter, Question, list_shared_questions
from sottovoce.schema import quote_toml

#: Larger files are no list of questions.
MOST_BYTES = 2**20
#: What an entry may say besides the parameters of its question.
COMMON_KEYS = ("ask", "column", "bounds", "missing", "wanted", "share")


@dataclass(frozen=True)
class QuestionList:
    """What a file asks: estimators by name, and what is wanted of them, or their shares."""

    questions: dict[str, Any]
    wanted: dict[str, float] | None
    shares: dict[str, float] | None


def read_questions(path: str | Path) -> QuestionList:
    """Returns the questions of a file.

    Raises InvalidParameter if it cannot be read, or says what no question takes.
    """
    return parse_questions(_read_text(path))


def parse_questions(text: str) -> QuestionList:
    """Returns the questions of a TOML text."""
    try:
        content = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError):
        content = None
    if content is None:
        raise _file_error("It is not TOML.")
    entries = content.get("questions")
    if set(content) != {"questions"} or not isinstance(entries, dict) or not entries:
        raise _file_error("Its only table is `questions`, with an entry for each.")
    return list_asked(entries)


def list_asked(entries: Mapping[str, Any]) -> QuestionList:
    """Returns the questions of entries as a file has them, by name."""
    questions = {name: _read_entry(name, entry) for name, entry in entries.items()}
    wanted = {name: entry["wanted"] for name, entry in entries.items() if "wanted" in entry}
    shares = {name: entry["share"] for name, entry in entries.items() if "share" in entry}
    return QuestionList(questions, wanted or None, shares or None)


def write_entries(entries: Mapping[str, Mapping[str, Any]]) -> str:
    """Returns entries as the text of a file that says the same."""
    lines = ["# Questions about one table on one budget: sottovoce report FILE TABLE --schema FILE"]
    for name, entry in entries.items():
        lines += ["", f"[questions.{quote_toml(name)}]"]
        lines += [f"{key} = {_write_value(value)}" for key, value in entry.items()]
    return "\n".join(lines) + "\n"


def _write_value(value: Any) -> str:
    if isinstance(value, str):
        return quote_toml(value)
    if isinstance(value, list):
        return f"[{', '.join(map(_write_value, value))}]"
    return repr(value)


def _read_text(path: str | Path) -> str:
    try:
        with Path(path).open("rb") as file:
            raw = file.read(MOST_BYTES + 1)
        if len(raw) <= MOST_BYTES:
            return raw.decode("utf-8")
    except (OSError, UnicodeDecodeError, ValueError):
        pass  # raised below
    raise _file_error("It is a text file in UTF-8, of at most 1 MB, that is there.")


def _file_error(required: str) -> InvalidParameter:
    return InvalidParameter(
        "The file of questions cannot be read.",
        required,
        'Write entries such as [questions."mean age"] with ask = "mean" and column = "age".',
        parameter="questions",
    )


def _read_entry(name: str, entry: Any) -> Any:
    """Returns the estimator of an entry, with its column where it has one."""
    if not isinstance(entry, dict):
        raise _entry_error(name, "It is no table.", "Write what is asked as ask = ...")
    offered = list_shared_questions()
    asked = entry.get("ask")
    question = offered.get(asked) if isinstance(asked, str) else None
    if question is None:
        raise _entry_error(
            name,
            "It does not say what is asked, or what cannot be part of a report.",
            f"Write ask = one of: {', '.join(offered)}.",
        )
    known = {one.name: one for one in question.parameters if one.kind != "table"}
    unknown = [key for key in entry if key not in known and key not in COMMON_KEYS]
    if unknown:
        raise _entry_error(
            name,
            f"{unknown[0]!r} is nothing that {question.name!r} takes.",
            f"It takes: {', '.join((*COMMON_KEYS, *known))}.",
        )
    given = {key: _check_value(name, known[key], entry[key]) for key in entry if key in known}
    given = question.complete_parameters(given) | _read_common(name, question, entry)
    column = entry.get("column")
    if column is not None and not isinstance(column, str):
        raise _entry_error(name, "Its column is no name.", 'Write column = "age".')
    try:
        estimator = question.load_class()(**given)
    except TypeError:
        estimator = None
    if estimator is None:
        raise _entry_error(
            name, "It has what this question does not take.", "Leave bounds or missing out."
        )
    return estimator if column is None else (estimator, column)


def _read_common(name: str, question: Question, entry: Mapping[str, Any]) -> dict[str, Any]:
    """Returns bounds and the constant for missing values, where an entry has them."""
    given: dict[str, Any] = {}
    if "bounds" in entry:
        bounds = entry["bounds"]
        usable = isinstance(bounds, list) and len(bounds) == 2 and all(map(_is_number, bounds))
        if not usable or question.predicts:
            raise _entry_error(
                name,
                "Its bounds are not two numbers, or it is a model, which needs a schema.",
                "Write bounds = [0, 100], or describe the columns in a schema.",
            )
        given["bounds"] = (float(bounds[0]), float(bounds[1]))
    if "missing" in entry:
        if not _is_number(entry["missing"]):
            raise _entry_error(name, "missing is no number.", "Write missing = 0, or leave it out.")
        given["missing"] = float(entry["missing"])
    return given


def _check_value(name: str, parameter: Parameter, value: Any) -> Any:
    """Returns the value of a parameter, if it is of its kind; estimators check the rest."""
    if not parameter.accepts(value):
        raise _entry_error(
            name,
            f"The value of {parameter.name!r} cannot be used.",
            f"{parameter.help} {parameter.describe_limits()}",
        )
    return value


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _entry_error(name: str, required: str, remedy: str) -> InvalidParameter:
    return InvalidParameter(
        f"The entry {name!r} of the questions cannot be used.",
        required,
        remedy,
        parameter="questions",
        question=name,
    )
