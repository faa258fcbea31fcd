# SPDX-License-Identifier: Apache-2.0
"""The reference page of the questions, made from the registry.

python tools/make_questions_page.py > docs/questions.md
"""

from __future__ import annotations

import json
import math
import sys

from sottovoce.estimators import Parameter, Question, list_questions
from sottovoce.estimators.baseline_options import PARAMETERS

HEADING = """\
# Questions

What can be asked at the command line, at the page and through JSON. This page is made from the
registry of questions: `python tools/make_questions_page.py > docs/questions.md`. In Python each
question is a class; see [reference](reference.md).
"""
#: What a question needs of its table.
READS = {
    "table": "The columns that its parameters name, as the schema describes them.",
    "column": "One column of numbers, with bounds.",
    "regression": "A label that is a number, and features: all other columns that the schema "
    "describes.",
    "classes": "A label that is a factor, whose levels are the classes, and features: all other "
    "columns that the schema describes.",
}


def make_reference_page() -> str:
    """Return the page in Markdown: every question that is offered, with its parameters."""
    questions = map(describe_question, list_questions().values())
    return "\n".join([HEADING, *questions, describe_baselines()])


def describe_baselines() -> str:
    """Return the section of the baselines that go around a question."""
    return "\n".join(
        [
            "## Baselines",
            "",
            "What goes around a question, to compare with ([guide](guide/baselines.md)). `uniform` "
            "and `threshold` go around all of them, with a ledger, at the page and in JSON too; "
            "`sampled` and `limited` at the command line, without a ledger.",
            "",
            "| parameter | option | value | |",
            "|---|---|---|---|",
            *map(_describe_parameter, PARAMETERS),
            "",
        ]
    )


def describe_question(question: Question) -> str:
    """Return the section of one question.

    Parameters
    ----------
    question :
        its entry in the registry.

    Returns
    -------
    str
        title, summary, parameters, command and JSON.
    """
    if question.predicts or question.reads == "table":
        command = f"sottovoce release {question.name} TABLE --schema schema.toml"
    else:
        command = f"sottovoce release {question.name} TABLE --column NAME --bounds LOW HIGH"
    body = {"table": "…", "question": question.name}
    if question.reads != "table":
        body["column"] = "…"
    class_name = question.estimator.partition(":")[2]
    lines = [
        f"## {question.title}",
        "",
        question.summary,
        "",
        f"Reads: {READS[question.reads]} In Python: `{class_name}`. {_describe_audit(question)}",
        "",
        "```",
        f"{command} --budget-column NAME --out release.json",
        f"POST /api/plan  {json.dumps(body, ensure_ascii=False)}",
        "```",
        "",
    ]
    if question.parameters:
        lines += ["| parameter | option | value | |", "|---|---|---|---|"]
        lines += [_describe_parameter(parameter) for parameter in question.parameters]
        lines.append("")
    return "\n".join(lines)


def _describe_parameter(parameter: Parameter) -> str:
    cells = (
        f"`{parameter.name}`",
        f"`{parameter.option}`",
        _describe_values(parameter),
        parameter.help,
    )
    return f"| {' | '.join(cells)} |"


def _describe_values(parameter: Parameter) -> str:
    if parameter.kind == "choice":
        first, *others = (f"`{value}`" for value in parameter.values)
        return ", ".join([f"{first} (if not given)", *others])
    if parameter.kind == "table":
        return "a table; at the command line alone"
    if parameter.kind in ("text", "texts"):
        return {"text": "text", "texts": "text, once or several times"}[parameter.kind]
    kinds = {"number": "a number", "whole": "a whole number", "numbers": "one or several numbers"}
    at_least = parameter.may_be_least
    limits = f"{'≥' if at_least else '>'} {parameter.least:g}"
    if math.isfinite(parameter.most):
        limits += f", ≤ {parameter.most:g}"
    words = "".join(f", or `{word}`" for word in parameter.words)
    return f"{kinds[parameter.kind]}, {limits}{words}"


def _describe_audit(question: Question) -> str:
    realised = "What each person lost to a release can be computed (`sottovoce audit`)"
    if question.audited is None and question.replay is None:
        return "What each person lost cannot be computed; their charge is a bound."
    if question.audited is None:
        return f"{realised}."
    if not question.audited:
        return "What each person lost can be computed exactly at δ (`sottovoce audit`)."
    conditions = " and ".join(
        f"`{name}` is {' or '.join(_describe_value(value) for value in values)}"
        for name, values in question.audited.items()
    )
    return f"{realised}; its law is known exactly where {conditions}."


def _describe_value(value: str | None) -> str:
    if value is None:
        return "as by default"
    return f"`{value}`"


if __name__ == "__main__":
    sys.stdout.reconfigure(encoding="utf-8")  # type: ignore[union-attr]
    sys.stdout.write(make_reference_page())
