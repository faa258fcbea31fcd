# SPDX-License-Identifier: Apache-2.0
"""Schemas at the page: from a form or pasted text, back into the form, and as the TOML file they
can be kept in.

A form has one set of fields for each column, numbered as in the table. Kinds are guessed from the
header; ranges and levels are typed in and never read off the data.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sottovoce.errors import SottovoceError
from sottovoce.schema import Column, Schema, quote_toml
from sottovoce.web.question_form import LEAST_EPSILON, MOST_EPSILON, Fields

COLUMN_KINDS = (("text", "leave out"), ("number", "a number"), ("factor", "one of several words"))
ROLES = ("person", "budget")
#: Letters of a pasted schema: a thousand columns described at length.
MAX_SCHEMA_LENGTH = 200_000
TIERS_SENTENCE = "Write each tier with its ε, with commas between them: careful = 0.1, open = 2."
UNDESCRIBED_SENTENCE = (
    "No column is described. A question needs at least one with its range or its levels."
)
RANGE_SENTENCE = "Fill in both, the lowest first, or choose to leave the column out."


def read_schema(fields: Fields, columns: Mapping[str, str]) -> Schema | None:
    """Returns the schema; None where something has to be corrected."""
    pasted = fields.form.get("toml", "")
    if isinstance(pasted, str) and pasted.strip():
        return _read_pasted(fields, pasted, columns)
    person, budget = (fields.choice(role, columns, needed=False) for role in ROLES)
    if person is not None and person == budget:
        fields.complain("budget", "People and budgets are in columns of their own. Choose another.")
    if budget is not None:
        tiers = _read_tiers(fields)
    else:
        tiers = {}
    described = {
        name: _read_column(fields, place)
        for place, name in enumerate(columns)
        if name not in (person, budget)
    }
    kept = {
        name: column
        for name, column in described.items()
        if column is not None and column.kind != "text"
    }
    if not kept and not fields.complaints:
        fields.complain("", UNDESCRIBED_SENTENCE)
    name = fields.text("name", needed=False)
    if fields.complaints:
        return None
    return Schema(columns=kept, person=person, budget=budget, tiers=tiers, name=name)


def fill_schema_form(schema: Schema | None, columns: Mapping[str, str]) -> dict[str, str]:
    """Returns what stands in the form: the schema as it was declared, or blank ranges beside the
    kinds of a draft.
    """
    if schema is None:
        return {
            f"kind-{place}": kind for place, kind in enumerate(columns.values()) if kind == "number"
        }
    filled = {role: getattr(schema, role) or "" for role in (*ROLES, "name")}
    filled["tiers"] = ", ".join(f"{name} = {epsilon:g}" for name, epsilon in schema.tiers.items())
    for place, name in enumerate(columns):
        column = schema.columns.get(name, Column("text"))
        numbers = {"low": column.low, "high": column.high, "missing": column.missing}
        filled |= {
            f"{word}-{place}": "" if value is None else f"{value:.15g}"
            for word, value in numbers.items()
        }
        filled |= {f"kind-{place}": column.kind, f"levels-{place}": ", ".join(column.levels)}
        filled |= {f"unit-{place}": column.unit or ""}
    return filled


def write_toml(schema: Schema) -> str:
    """Returns the schema as TOML text."""
    roles = {role: getattr(schema, role) for role in ("name", *ROLES, "label")}
    lines = [f"{role} = {quote_toml(name)}" for role, name in roles.items() if name is not None]
    if schema.tiers:
        lines += [
            "",
            "[tiers]",
            *(f"{quote_toml(name)} = {epsilon!r}" for name, epsilon in schema.tiers.items()),
        ]
    for name, column in schema.columns.items():
        lines += ["", f"[columns.{quote_toml(name)}]", *_write_entries(column)]
    return "\n".join(lines) + "\n"


def _read_pasted(fields: Fields, text: str, columns: Mapping[str, str]) -> Schema | None:
    if len(text) > MAX_SCHEMA_LENGTH:
        fields.complain("toml", "This is too long for a schema.")
        return None
    try:
        schema = Schema.loads(text)
    except SottovoceError as error:
        fields.complain("toml", str(error))
        return None
    named = {*schema.columns, *(getattr(schema, role) for role in ROLES)} - {None}
    if not named <= set(columns):
        fields.complain(
            "toml", "The schema names a column that the table does not have. Correct its name."
        )
        return None
    if all(column.kind == "text" for column in schema.columns.values()):
        fields.complain("toml", UNDESCRIBED_SENTENCE)
        return None
    return schema


def _read_tiers(fields: Fields) -> dict[str, float]:
    text = fields.text("tiers", needed=False, longest=MAX_SCHEMA_LENGTH) or ""
    tiers = {}
    for part in filter(None, map(str.strip, text.split(","))):
        name, _, amount = part.partition("=")
        price = Fields({"ε": amount})
        epsilon = price.number("ε", least=LEAST_EPSILON, most=MOST_EPSILON)
        if epsilon is None or not name.strip() or name.strip() in tiers:
            fields.complain("tiers", TIERS_SENTENCE)
            return {}
        tiers[name.strip()] = epsilon
    return tiers


def _read_column(fields: Fields, place: int) -> Column | None:
    """Returns what is declared of a column, or None where it is wrong or left out."""
    kind = fields.choice(f"kind-{place}", [key for key, _ in COLUMN_KINDS], needed=False) or "text"
    if kind == "factor":
        return Column("factor", levels=fields.words(f"levels-{place}") or ())
    if kind == "text":
        return None
    low = fields.number(f"low-{place}")
    high = fields.number(f"high-{place}")
    if low is not None and high is not None and not low < high:
        fields.complain(f"high-{place}", RANGE_SENTENCE)
    missing = fields.number(f"missing-{place}", needed=False)
    unit = fields.text(f"unit-{place}", needed=False)
    return Column("number", low=low, high=high, missing=missing, unit=unit)


def _write_entries(column: Column) -> list[str]:
    given: dict[str, Any] = {"low": column.low, "high": column.high, "missing": column.missing}
    entries = [
        f'kind = "{column.kind}"',
        *(f"{word} = {value!r}" for word, value in given.items() if value is not None),
        *([] if column.unit is None else [f"unit = {quote_toml(column.unit)}"]),
    ]
    if column.levels:
        return [*entries, f"levels = [{', '.join(map(quote_toml, column.levels))}]"]
    return entries
