# SPDX-License-Identifier: Apache-2.0
"""What a person typed, read field by field: each is a value, or a sentence that stands next to the
field.

    fields = Fields(form)
    share = fields.number("share", least=0, most=1, above=True)
    if fields.complaints: show the page again with them

A sentence says what is needed, and never repeats what was typed: it may be a name, or pasted data.

The questions that can be asked at the page, with their options, in one table; and the way from a
form to one.

A question is about one column: its mean, its quantiles, or a model of it by all other columns that
are described. What is wrong is a sentence beside its field, also where the library itself refuses.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from sottovoce.asked import TableOptions
from sottovoce.asked import make_estimator as made
from sottovoce.errors import InvalidInput, SottovoceError
from sottovoce.estimator import Estimator
from sottovoce.schema import Schema

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
#: No number that a program sends is larger: whole numbers in JSON may be.
LARGEST_DOUBLE = sys.float_info.max
#: Stands for any ε where people are only counted.
ONE_EACH = 1.0
#: The fields that every question has.
COMMON_FIELDS = ("question", "column", "share", "epsilon", "key")


@dataclass(frozen=True)
class QuestionOption:
    """One option of a question: its field, and the values it may have."""

    name: str
    label: str
    hint: str
    choices: tuple[tuple[str, str], ...] = ()  # the first is taken where nothing is said
    least: float = 0.0
    most: float = float("inf")
    several: bool = False
    whole: bool = False
    usual: str = ""

    def read_field(self, fields: Fields) -> Any:
        """Returns the value, or None where nothing is said."""
        if self.choices:
            return fields.choice(self.name, [key for key, _ in self.choices], needed=False)
        if self.several:
            return fields.numbers(self.name, needed=False, least=self.least, most=self.most)
        number = fields.number(
            self.name, needed=False, least=self.least, most=self.most, above=not self.whole
        )
        if number is not None and self.whole and not number.is_integer():
            fields.complain(self.name, "Write a whole number.")
            return None
        if number is not None and self.whole:
            return int(number)
        return number

    def needed(self, value: Any) -> str | None:
        """Returns what is needed in the place of a value that a program sent; None where it will
        do.
        """
        if self.choices:
            known = [key for key, _ in self.choices]
            if isinstance(value, str) and value in known:
                return None
            return f"Choose one of: {', '.join(known)}."
        if self.several and isinstance(value, list) and value:
            values = value
        else:
            values = [value]
        if all(self._will_do(number) for number in values):
            return None
        sentence = read_limits(self.least, self.most, not (self.whole or self.several))
        if self.several:
            return f"{sentence} Several are a list."
        if self.whole:
            return sentence.replace("a number", "a whole number")
        return sentence

    def _will_do(self, value: Any) -> bool:
        if isinstance(value, bool) or not isinstance(value, int | float):
            return False
        if not self.least <= value <= min(self.most, LARGEST_DOUBLE):  # nan is in no order
            return False
        if self.whole:
            return float(value).is_integer()
        return self.several or value > self.least


@dataclass(frozen=True)
class QuestionKind:
    """One question: its name in the library, in words, what it tells, what its column must be, and
    its options.
    """

    estimator: str
    words: str
    hint: str
    about: Literal["number", "factor"]
    options: tuple[QuestionOption, ...]
    model: bool = True
    always: Mapping[str, Any] = field(default_factory=dict)

    @property
    def usual(self) -> dict[str, Any]:
        """What is meant where nothing is said: always, and unless an option says otherwise."""
        return {
            **self.always,
            **{option.name: [float(option.usual)] for option in self.options if option.usual},
        }

    def needed(self, parameters: Mapping[str, Any]) -> dict[str, str]:
        """Returns by name what is needed in the place of parameters that a program sent and that
        will not do.
        """
        said = {
            option.name: option.needed(parameters[option.name])
            for option in self.options
            if option.name in parameters
        }
        return {name: words for name, words in said.items() if words is not None}

    def complete(self, said: TableOptions) -> TableOptions:
        """Returns the question with what the schema adds to it."""
        if not self.model:
            return said.complete()
        if self.about == "factor":
            return said.for_classification()
        return said.for_regression()


_ALPHA = QuestionOption(
    "alpha", "Regularisation λ", "A public number; chosen from the budgets if you leave it blank."
)
QUESTIONS = {
    "mean": QuestionKind(
        "Mean",
        "Mean of a column",
        "What everybody has on average.",
        "number",
        (
            QuestionOption(
                "spread",
                "Spread (a guess)",
                "Standard deviation, from public knowledge; half the range if blank.",
            ),
        ),
        model=False,
    ),
    "quantile": QuestionKind(
        "Quantile",
        "Quantiles of a column",
        "The median, quartiles, or any share of the rows.",
        "number",
        (
            QuestionOption(
                "q",
                "Shares",
                "From 0 to 1, spaces between; several split everybody's ε.",
                most=1.0,
                several=True,
                usual="0.5",
            ),
            QuestionOption(
                "method",
                "Method",
                "The first is never worse.",
                (
                    ("permute-and-flip", "permute and flip"),
                    ("exponential", "exponential mechanism"),
                ),
            ),
            QuestionOption(
                "cells",
                "Steps of the grid",
                "How fine possible answers are; the usual if blank.",
                least=2,
                whole=True,
            ),
        ),
        model=False,
    ),
    "ridge": QuestionKind(
        "Ridge",
        "Linear model of a column",
        "From all other columns that are described.",
        "number",
        (
            QuestionOption(
                "method",
                "Method",
                "The first is the best known; see what each costs in accuracy.",
                (
                    ("objective", "objective (the default)"),
                    ("statistics", "noisy statistics"),
                    ("output-tight", "noise on the answer, tight"),
                    ("output", "noise on the answer, as published"),
                ),
            ),
            _ALPHA,
            QuestionOption(
                "label_scale",
                "Spread of the label (a guess)",
                "From public knowledge; it saves the ε that would buy it.",
            ),
        ),
    ),
    "logistic": QuestionKind(
        "LogisticRegression",
        "Classifier: the odds of its levels",
        "From all other columns that are described.",
        "factor",
        (
            _ALPHA,
            QuestionOption(
                "neighbours",
                "What is protected",
                "Labels alone need half the noise.",
                (("replace", "everything about a person"), ("labels", "labels alone")),
            ),
        ),
    ),
    "posterior": QuestionKind(
        "PosteriorSample",
        "Linear model that can be audited",
        "One sample from a posterior, whose losses can be told exactly.",
        "number",
        (
            QuestionOption("gamma", "Concentration γ", "A public number; 1 if blank."),
            replace(_ALPHA, hint="A public number; 1 if blank."),
            QuestionOption("delta", "δ of every promise", "One in a million if blank.", most=0.1),
        ),
        always={"fit_intercept": True},
    ),
}


@dataclass(frozen=True)
class QuestionForm:
    """A question as it was typed: what is said of it, completed from the schema, and its
    options.
    """

    kind: QuestionKind
    said: TableOptions
    parameters: Mapping[str, Any]

    @property
    def question(self) -> Estimator:
        """The question of the library, which refuses options that do not fit."""
        return made(self.kind.estimator, self.said, **self.parameters)


def read_question(
    fields: Fields, path: str, schema: Schema, name: str | None = None
) -> QuestionForm | None:
    """Returns the question; None where the form has complaints, which stand beside their fields."""
    question = fields.choice("question", QUESTIONS)
    column = fields.choice("column", schema.columns)
    if question is None or column is None:
        return None
    kind = QUESTIONS[question]
    if schema.columns[column].kind != kind.about:
        fields.complain("column", _UNFIT[kind.about])
    typed_in = {option.name: option.read_field(fields) for option in kind.options}
    parameters = kind.usual | {word: value for word, value in typed_in.items() if value is not None}
    share, epsilon = _read_spending(fields, schema)
    if fields.complaints:
        return None
    label = schema.name or name
    said = TableOptions(
        path,
        column=column,
        schema=replace(schema, label=column),
        epsilon=epsilon,
        share=share,
        name=label,
    )
    return _complete_question(fields, kind, said, parameters, schema)


def _complete_question(
    fields: Fields,
    kind: QuestionKind,
    said: TableOptions,
    parameters: Mapping[str, Any],
    schema: Schema,
) -> QuestionForm | None:
    try:
        asked = QuestionForm(kind, kind.complete(said), parameters)
        asked.question  # noqa: B018  # an option that does not fit is refused here, beside its field
    except InvalidInput as error:
        fields.complain_about(error, map_fields(kind, schema))
        return None
    return asked


def make_first_form(schema: Schema) -> dict[str, str]:
    """Returns what stands in the form at first: the mean of the first column of numbers, at the
    full share.
    """
    numbers = [name for name, column in schema.columns.items() if column.kind == "number"]
    column = next(iter([*numbers, *schema.columns]), "")
    return {"question": "mean", "column": column, "share": "100", "epsilon": "1"}


def copy_typed_fields(fields: Fields, kind: QuestionKind) -> dict[str, str]:
    """Returns what stands in the fields of this question, and nothing else that came with them."""
    names = [*COMMON_FIELDS, *(option.name for option in kind.options)]
    return {name: fields.get_typed(name) for name in names if name in fields.form}


def _read_spending(fields: Fields, schema: Schema) -> tuple[float, float | None]:
    """What may be spent: a share of everybody's own budget, or one ε for all where there is no
    column of budgets.
    """
    if schema.budget is None:
        return 1.0, fields.number("epsilon", least=LEAST_EPSILON, most=MOST_EPSILON)
    percent = fields.number("share", least=0, most=100, above=True)
    return (1.0 if percent is None else percent / 100), None


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


def map_fields(kind: QuestionKind, schema: Schema) -> dict[str, str]:
    """Returns the fields of a question by the parameters of the library that they set."""
    spending = name_spending_field(schema)
    return {
        **dict.fromkeys(COLUMN_PARAMETERS, "column"),
        **dict.fromkeys(("epsilon", "share", "budget"), spending),
        "question": "question",
        "key": "key",
        **{option.name: option.name for option in kind.options},
    }


_UNFIT = {
    "number": (
        "This question needs a column of numbers with a range. Choose one, or describe it so."
    ),
    "factor": "This question needs a column of words with levels. Choose one, or describe it so.",
}
