# SPDX-License-Identifier: Apache-2.0
"""Schemas at the page: from a form or pasted text, back into the form, and as the TOML file they
can be kept in.

A form has one set of fields for each column, numbered as in the table. Kinds are guessed from the
header; ranges and levels are typed in and never read off the data.

What a person typed, read field by field: each is a value, or a sentence that stands next to the
field.

    fields = Fields(form)
    share = fields.number("share", least=0, most=1, above=True)
    if fields.complaints: show the page again with them

A sentence says what is needed, and never repeats what was typed: it may be a name, or pasted data.

The way from a form to a question of the registry: its fields are made from the parameters there.

A question is about one column: a number about it, or a model of it by all other columns that are
described. What is wrong is a sentence beside its field, also where the library itself refuses.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from sottovoce.data.source import DataSource
from sottovoce.errors import InvalidBounds, InvalidInput, InvalidSchema, SottovoceError
from sottovoce.estimator import Estimator, make_estimator
from sottovoce.estimators import Parameter, Question, list_questions
from sottovoce.estimators.baseline_options import (
    BOOKED_PARAMETERS,
    list_page_parameters,
    take_baseline,
    wrap,
)
from sottovoce.schema import PERIODS, Column, Schema, quote_toml

COLUMN_KINDS = (
    ("text", "leave out"),
    ("number", "a number"),
    ("factor", "one of several words"),
    ("date", "a date"),
)
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
        filled |= {
            f"{word}-{place}": _write_typed(value) for word, value in _list_typed(column).items()
        }
    return filled


def _list_typed(column: Column) -> dict[str, Any]:
    """Returns the fields of a column, and what stands in them."""
    typed: dict[str, Any] = {
        "kind": column.kind,
        "levels": ", ".join(column.levels),
        "unit": column.unit,
        "edges": " ".join(f"{edge:.15g}" for edge in column.edges),
        "step": column.step,
        "other": column.other,
        "period": column.period,
    }
    if column.kind == "date":
        return {**typed, "first": column.low, "last": column.high}
    if column.kind == "factor":
        return {**typed, "absent": column.missing}
    return {**typed, "low": column.low, "high": column.high, "missing": column.missing}


def _write_typed(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    return f"{value:.15g}"


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
        return _read_factor(fields, place)
    if kind == "date":
        return _read_date(fields, place)
    if kind == "text":
        return None
    low = fields.number(f"low-{place}")
    high = fields.number(f"high-{place}")
    if low is not None and high is not None and not low < high:
        fields.complain(f"high-{place}", RANGE_SENTENCE)
    missing = fields.number(f"missing-{place}", needed=False)
    unit = fields.text(f"unit-{place}", needed=False)
    edges = fields.numbers(f"edges-{place}", needed=False) or ()
    step = fields.number(f"step-{place}", needed=False, least=0.0, above=True)
    return _make_column(
        fields,
        f"edges-{place}",
        {
            "kind": "number",
            "low": low,
            "high": high,
            "missing": missing,
            "unit": unit,
            "edges": tuple(edges),
            "step": step,
        },
    )


def _read_factor(fields: Fields, place: int) -> Column | None:
    levels = fields.words(f"levels-{place}") or ()
    other = fields.choice(f"other-{place}", levels, needed=False)
    missing = fields.choice(f"absent-{place}", levels, needed=False)
    return Column("factor", levels=levels, other=other, missing=missing)


def _read_date(fields: Fields, place: int) -> Column | None:
    period = fields.choice(f"period-{place}", PERIODS, needed=False)
    first = fields.text(f"first-{place}")
    last = fields.text(f"last-{place}")
    return _make_column(
        fields, f"last-{place}", {"kind": "date", "low": first, "high": last, "period": period}
    )


def _make_column(fields: Fields, name: str, entries: dict[str, Any]) -> Column | None:
    """Returns the column, or marks the field that cannot be used."""
    try:
        return Column(**entries)
    except (InvalidSchema, InvalidBounds) as error:
        if not fields.complaints:
            fields.complain(name, str(error))
    return None


def _write_entries(column: Column) -> list[str]:
    given: dict[str, Any] = {
        word: getattr(column, word) for word in ("low", "high", "missing", "step")
    }
    entries = [
        f'kind = "{column.kind}"',
        *(f"{word} = {_write_limit(value)}" for word, value in given.items() if value is not None),
    ]
    for word in ("unit", "period", "other"):
        if getattr(column, word) is not None:
            entries.append(f"{word} = {quote_toml(getattr(column, word))}")
    if column.edges:
        entries.append(f"edges = [{', '.join(map(repr, column.edges))}]")
    if column.levels:
        return [*entries, f"levels = [{', '.join(map(quote_toml, column.levels))}]"]
    return entries


def _write_limit(value: Any) -> str:
    if isinstance(value, str):
        return quote_toml(value)
    return repr(value)


#: No field holds more characters than this, except those that say otherwise.
MAX_LENGTH = 200
REQUIRED_SENTENCE = "Please fill this in."


@dataclass
class Fields:
    """A form, and what is wrong with it so far: one sentence for each field that cannot be used."""

    form: Mapping[str, Any]
    complaints: dict[str, str] = field(default_factory=dict)

    def get_typed(self, name: str) -> str:
        """Returns what stands in the field without spaces around it; nothing for a file or a
        missing field.
        """
        value = self.form.get(name, "")
        if isinstance(value, str):
            return value.strip()
        return ""

    def text(self, name: str, *, needed: bool = True, longest: int = MAX_LENGTH) -> str | None:
        """Returns the text, or None where there is none."""
        value = self._get_required(name, needed)
        if not value:
            return None
        if len(value) > longest or not value.isprintable():
            self.complain(name, f"At most {longest} letters, digits and signs, on one line.")
            return None
        return value

    def number(
        self,
        name: str,
        *,
        needed: bool = True,
        least: float = -math.inf,
        most: float = math.inf,
        above: bool = False,
    ) -> float | None:
        """Returns the number, within its limits; with ``above`` it is more than the least."""
        value = self._get_required(name, needed)
        if not value:
            return None
        number = _parse_number(value)
        if number is None:
            self.complain(name, "This is not a number. Write it like 12.5, without units.")
            return None
        if number < least or number > most or (above and number == least):
            self.complain(name, read_limits(least, most, above))
            return None
        return number

    def numbers(
        self, name: str, *, needed: bool = True, least: float = -math.inf, most: float = math.inf
    ) -> Any:
        """Returns several numbers, written with spaces or semicolons between them, as a list."""
        value = self._get_required(name, needed)
        if not value:
            return None
        read = [_parse_number(part) for part in value.replace(";", " ").split()]
        if not all(number is not None and least <= number <= most for number in read):
            each = read_limits(least, most, False).removeprefix("Write a number that is ")
            self.complain(name, f"Write numbers with spaces between them, each {each}")
            return None
        return read

    def words(self, name: str, *, needed: bool = True) -> tuple[str, ...] | None:
        """Returns several words, written with commas between them, all different."""
        value = self.text(name, needed=needed, longest=10 * MAX_LENGTH)
        if value is None:
            return None
        parts = tuple(part.strip() for part in value.split(",") if part.strip())
        if len(parts) < 2 or len(set(parts)) < len(parts):
            self.complain(
                name, "Write two or more, all different, with commas between them: yes, no."
            )
            return None
        return parts

    def choice(self, name: str, choices: Collection[str], *, needed: bool = True) -> str | None:
        """Returns one of the choices."""
        value = self._get_required(name, needed)
        if not value:
            return None
        if value in choices:
            return value
        self.complain(name, "Choose one of the list.")
        return None

    def _get_required(self, name: str, needed: bool) -> str:
        value = self.get_typed(name)
        if needed and not value:
            self.complain(name, REQUIRED_SENTENCE)
        return value

    def is_checked(self, name: str) -> bool:
        """Returns whether a box is ticked."""
        return bool(self.get_typed(name))

    def complain(self, name: str, sentence: str) -> None:
        """Records what is wrong with a field; the first sentence stays."""
        self.complaints.setdefault(name, sentence)

    def complain_about(self, error: SottovoceError, fields: Mapping[str, str]) -> None:
        """Records an error of the library beside the field of its parameter.

        ``fields`` are the fields of this form by parameter; an error about none of them is about
        the form as a whole.
        """
        self.complain(fields.get(error.parameter or "", ""), str(error))


def _parse_number(text: str) -> float | None:
    try:
        number = float(text.replace("\u2212", "-"))
    except ValueError:
        return None
    if math.isfinite(number):
        return number
    return None


def read_limits(least: float, most: float, above: bool) -> str:
    """Returns what a number must be, in words."""
    if above:
        low = f"more than {least:g}"
    else:
        low = f"at least {least:g}"
    if not math.isfinite(most):
        return f"Write a number that is {low}."
    if not math.isfinite(least):
        return f"Write a number that is at most {most:g}."
    return f"Write a number that is {low} and at most {most:g}."


#: The least and the largest ε that is said for everybody; beyond the largest no odds are protected.
LEAST_EPSILON = 1e-6
MOST_EPSILON = 100.0
#: Stands for any ε where people are only counted.
ONE_EACH = 1.0
#: The fields that every question has.
COMMON_FIELDS = ("question", "column", "share", "epsilon", "spend_left", "key")


def read_parameter(fields: Fields, parameter: Parameter) -> Any:
    """Return the value of a question's parameter, or None where nothing stands in its field.

    Parameters
    ----------
    fields :
        the form; it is told what is wrong.
    parameter :
        its entry in the registry.

    Returns
    -------
    Any
        a number, a list of numbers, text, a list of texts, or one of the choices.
    """
    if parameter.kind == "choice":
        return fields.choice(parameter.name, parameter.values, needed=False)
    if parameter.kind in ("text", "texts"):
        text = fields.text(parameter.name, needed=False, longest=10 * MAX_LENGTH)
        if text is None or parameter.kind == "text":
            return text
        return [part.strip() for part in text.split(";") if part.strip()] or None
    limits = {"least": parameter.least, "most": parameter.most}
    if fields.get_typed(parameter.name) in parameter.words:
        return fields.get_typed(parameter.name)
    if parameter.kind == "numbers":
        return fields.numbers(parameter.name, needed=False, **limits)
    whole = parameter.kind == "whole"
    number = fields.number(parameter.name, needed=False, above=not parameter.may_be_least, **limits)
    if number is None or not whole:
        return number
    if not number.is_integer():
        fields.complain(parameter.name, "Write a whole number.")
        return None
    return int(number)


@dataclass(frozen=True)
class QuestionForm:
    """A question as it was typed: what is said of it, completed from the schema, and its
    options.
    """

    kind: Question
    said: DataSource
    parameters: Mapping[str, Any]

    @property
    def question(self) -> Estimator:
        """The question of the library, with its baseline, which refuses options that do not
        fit.
        """
        own, around = take_baseline(self.parameters)
        asked = make_estimator(self.kind.load_class(), self.said, **own)
        wrapped: Estimator = wrap(self.kind, asked, around)
        return wrapped


def read_question(
    fields: Fields, path: str, schema: Schema, name: str | None = None
) -> QuestionForm | None:
    """Returns the question; None where the form has complaints, which stand beside their fields."""
    questions = list_questions()
    question = fields.choice("question", questions)
    column = fields.choice("column", schema.columns)
    if question is None or column is None:
        return None
    kind = questions[question]
    options = read_options(fields, kind, schema.columns[column])
    options |= {one.name: read_parameter(fields, one) for one in BOOKED_PARAMETERS}
    parameters = kind.complete_parameters(options)
    share, epsilon, spend_left = read_spending(fields, schema)
    if fields.complaints:
        return None
    label = schema.name or name
    said = DataSource(
        path,
        column=column,
        schema=replace(schema, label=column),
        epsilon=epsilon,
        share=share,
        spend_left=spend_left,
        name=label,
    )
    return _complete_question(fields, kind, said, parameters, schema)


def read_options(fields: Fields, kind: Question, column: Column) -> dict[str, Any]:
    """Returns what stands in the fields of a question's parameters, None where nothing does; a
    column that is not what the question needs is marked.
    """
    needed = LABEL_KINDS[kind.reads]
    if needed is not None and column.kind != needed:
        fields.complain("column", _UNFIT[needed])
    return {one.name: read_parameter(fields, one) for one in kind.form_parameters}


def _complete_question(
    fields: Fields,
    kind: Question,
    said: DataSource,
    parameters: Mapping[str, Any],
    schema: Schema,
) -> QuestionForm | None:
    try:
        asked = QuestionForm(kind, kind.complete_options(said), parameters)
        # an option that does not fit is refused here, beside its field
        asked.question  # noqa: B018
    except InvalidInput as error:
        fields.complain_about(error, map_fields(kind, schema))
        return None
    return asked


def make_first_form(schema: Schema) -> dict[str, str]:
    """Returns what stands in the form at first: the first question, of the first column of
    numbers, at the full share.
    """
    numbers = [name for name, column in schema.columns.items() if column.kind == "number"]
    column = next(iter([*numbers, *schema.columns]), "")
    question = next(iter(list_questions()))
    return {"question": question, "column": column, "share": "100", "epsilon": "1"}


def find_question(fields: Fields) -> Question:
    """Returns the question that the form names, or the first where it names none."""
    questions = list_questions()
    return questions.get(fields.get_typed("question"), next(iter(questions.values())))


def copy_typed_fields(fields: Fields) -> dict[str, str]:
    """Returns what stands in the fields of the question, and nothing else that came with them."""
    parameters = list_page_parameters(find_question(fields))
    names = [*COMMON_FIELDS, *(one.name for one in parameters)]
    return {name: fields.get_typed(name) for name in names if name in fields.form}


def read_spending(fields: Fields, schema: Schema) -> tuple[float, float | None, str | None]:
    """Returns what may be spent: a share of everybody's own budget, one ε for all where there is no
    column of budgets, or all that each has left in the ledger.
    """
    if fields.is_checked("spend_left"):
        return 1.0, None, "leave-out"
    if schema.budget is None:
        return 1.0, fields.number("epsilon", least=LEAST_EPSILON, most=MOST_EPSILON), None
    percent = fields.number("share", least=0, most=100, above=True)
    return (1.0 if percent is None else percent / 100), None, None


def name_spending_field(schema: Schema) -> str:
    """Returns the field that says how much may be spent."""
    if schema.budget is None:
        return "epsilon"
    return "share"


#: Parameters of the library that the choice of a column decides about here.
COLUMN_PARAMETERS = (
    "column",
    "bounds",
    "missing",
    "schema",
    "schema.label",
    "schema.columns",
    "X",
    "y",
)


def map_fields(kind: Question, schema: Schema) -> dict[str, str]:
    """Return the fields of a question by the parameters of the library that they set."""
    spending = name_spending_field(schema)
    return {
        **dict.fromkeys(COLUMN_PARAMETERS, "column"),
        **dict.fromkeys(("epsilon", "share", "budget"), spending),
        "question": "question",
        "key": "key",
        **{option.name: option.name for option in list_page_parameters(kind)},
    }


#: What the column must be, by what a question reads.
LABEL_KINDS = {"column": "number", "table": None, "regression": "number", "classes": "factor"}
_UNFIT = {
    "number": (
        "This question needs a column of numbers with a range. Choose one, or describe it so."
    ),
    "factor": "This question needs a column of words with levels. Choose one, or describe it so.",
}
