# SPDX-License-Identifier: Apache-2.0
"""What programs say to the page and are told by it: every field of the JSON under /api, with its
limits.

What is sent has these fields and no others. What is told names nobody, except people whom the
request itself named.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema

from sottovoce.web import actions
from sottovoce.web.market_form import LARGEST, LARGEST_NORM
from sottovoce.web.workspace import State

#: Letters of a name or a key; people or sellers of one request; levels of a factor; parameters of a
#: question.
MAX_TEXT_LENGTH = 200
MOST_PEOPLE = 10_000
MOST_LEVELS = 1000
MOST_PARAMETERS = 10
Number = Annotated[float, Field(allow_inf_nan=False)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Money = Annotated[float, Field(gt=0, le=LARGEST)]
Name = Annotated[str, Field(min_length=1, max_length=MAX_TEXT_LENGTH)]
#: What a question's parameter may be, as it is described; each is looked at by the option that it
#: is for.
Parameter = Annotated[
    Any,
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "number"},
                {"type": "string", "minLength": 1, "maxLength": MAX_TEXT_LENGTH},
                {"type": "array", "items": {"type": "number"}},
                {"type": "null"},
            ]
        }
    ),
]


class RequestBody(BaseModel):
    """What is sent: fields that are described here and no others."""

    model_config = ConfigDict(extra="forbid")


class ErrorAnswer(BaseModel):
    """Why nothing was done."""

    error: str
    fields: list[dict[str, str]] | None = None


class TableAnswer(BaseModel):
    """A table on the desk: columns with their kinds."""

    id: str
    name: str
    columns: dict[str, str]


class ColumnBody(RequestBody):
    """One column, from public knowledge and never from the data."""

    kind: Literal["number", "factor", "text"]
    low: Number | None = None
    high: Number | None = None
    levels: list[Name] = Field(default=[], max_length=MOST_LEVELS)
    missing: Number | None = None
    unit: Name | None = None


class SchemaBody(RequestBody):
    """The public description of a table."""

    columns: dict[Name, ColumnBody] = {}
    person: Name | None = None
    budget: Name | None = None
    label: Name | None = None
    tiers: dict[Name, Positive] = {}
    name: Name | None = None


class GrantCount(BaseModel):
    """How many people grant this ε in all, and how many rows they have."""

    epsilon: float
    people: int
    rows: int


class GrantsBody(RequestBody):
    """What each person allows in all in the account of pure ε, neighbours by replacement: the
    total, no addition.
    """

    grants: dict[Name, Annotated[float, Field(ge=0, le=1e6)]] = Field(
        min_length=1, max_length=MOST_PEOPLE
    )


class QuestionBody(RequestBody):
    """A question about a table on the desk; what is not said, its schema says."""

    table: Name
    question: Literal["mean", "quantile", "ridge", "logistic", "posterior"]
    column: Name | None = None
    epsilon: Positive | None = None
    share: Annotated[float, Field(gt=0, le=1)] = 1.0
    parameters: dict[str, Parameter] = Field(default={}, max_length=MOST_PARAMETERS)


class ReleaseBody(QuestionBody):
    """A question, and the key of its release: one key, one release, for ever."""

    key: Annotated[str, Field(min_length=1, max_length=actions.LONGEST_KEY)]
    plan_digest: Annotated[str, Field(min_length=64, max_length=64)] | None = None


class Payers(BaseModel):
    """People who grant and pay about the same, and the part of the answer that is theirs."""

    people: int
    rows: int
    granted: float
    spent: float
    voice: float


class PlanAnswer(BaseModel):
    """What a release will cost whom and what it will be worth; no private value was read."""

    question: str
    column: str | None
    table: str | None
    who_pays: list[Payers]
    expected_error: float | list[float]
    error_is: str
    error_unit: str
    error_parts: dict[str, Any] | list[dict[str, Any]]
    guarantee: dict[str, Any]
    noise: dict[str, Any]
    theorem: str
    plan_digest: str
    verdict: str | None
    note: str


class JobAnswer(BaseModel):
    """Work under way or done; its result is the key of a release."""

    job: str
    state: State
    rows: int
    sentence: str
    key: str | None
    can_be_cancelled: bool


class TextAnswer(BaseModel):
    """Something in words."""

    words: str
    confidential: bool = False


class EntryAnswer(BaseModel):
    """One entry of the books, which names nobody."""

    number: int
    what: str
    key: str
    at: str
    lines: int
    digest: str


class TierAnswer(BaseModel):
    """People who allow about the same in one account, and the share of it that is spent."""

    account: str
    allowed: str
    people: int
    share_spent: float


class LawBody(RequestBody):
    """What is known about costs before anybody reports, in the order of `sottovoce market --prior`.

    Of the law "empirical" the numbers are costs seen in an earlier market.
    """

    law: Literal["uniform", "normal", "exponential", "lognormal", "empirical"]
    numbers: list[Number] = Field(min_length=2, max_length=MOST_PEOPLE)


class MarketBody(RequestBody):
    """Reported costs and the buyer's terms: a trade-off between error and money, a budget, or
    both.
    """

    costs: dict[Name, Annotated[float, Field(ge=0, allow_inf_nan=False)]] = Field(
        min_length=1, max_length=MOST_PEOPLE
    )
    prior: LawBody
    trade_off: Positive | None = None
    budget: Positive | None = None
    rule: Literal["ceiling", "scaling"] | None = None
    reserve: Money | None = None
    cap: Annotated[float, Field(gt=0, le=100)] = 1.0
    features: Annotated[int, Field(ge=1, le=1000)] = 10
    norm: Annotated[float, Field(gt=0, le=LARGEST_NORM)] = 1.0
    coin: Money | None = None


class MarketAnswer(BaseModel):
    """What is bought from whom: for the buyer alone, because payments tell reports."""

    epsilon: dict[str, float]
    payments: dict[str, float]
    total: float
    words: str


class AuditBody(RequestBody):
    """A release under its key, and the table that it was made from."""

    table: Name
    key: Name
    delta: Annotated[float, Field(gt=0, lt=1)] = 1e-6
