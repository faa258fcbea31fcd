# SPDX-License-Identifier: Apache-2.0
"""What programs say to the page and are told by it: every field of the JSON under /api, with its
limits.

What is sent has these fields and no others. What is told names nobody, except people whom the
request itself named.

The verbs for programs: JSON under /api, described in OpenAPI at /api/openapi.json.

What is wrong is answered with the names of fields and what they need; what stood in them is never
repeated. Every answer is what a page would show: releases, plans, books without names. The audit is
the exception, and says so.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Any, Literal

import numpy as np
from fastapi import APIRouter, Depends, HTTPException, Query, Request
from fastapi.exceptions import RequestValidationError
from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from pydantic_core import PydanticCustomError
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import UploadFile
from starlette.responses import Response

from sottovoce import market as markets
from sottovoce.errors import InvalidData, InvalidParameter
from sottovoce.estimators import Parameter, Question, list_questions, list_shared_questions
from sottovoce.estimators.baseline_options import BOOKED_PARAMETERS, list_page_parameters
from sottovoce.estimators.report_questions import MOST_QUESTIONS
from sottovoce.ledgers.sql_ledger import SqlLedger
from sottovoce.market import prior as laws
from sottovoce.market.terms import FROM_FILE, MarketTerms, Sellers, parse_loss
from sottovoce.release import Release
from sottovoce.report.comparison import compare_groups
from sottovoce.report.ledger import compute_balances as by_tier
from sottovoce.report.plan import is_compared, make_verdict
from sottovoce.schema import Column, Schema
from sottovoce.units import format_count
from sottovoce.web import actions
from sottovoce.web.guard import API
from sottovoce.web.market_pages import LARGEST, LARGEST_NORM
from sottovoce.web.workspace import Job, State, UploadedTable, Workspace
from sottovoce.wording import describe_error_unit

#: Letters of a name or a key; people or sellers of one request; levels of a factor; parameters of a
#: question.
MAX_TEXT_LENGTH = 200
MOST_PEOPLE = 10_000
MOST_LEVELS = 1000
MOST_PARAMETERS = 10
Number = Annotated[float, Field(allow_inf_nan=False)]
#: A number if it can be one, else text: limits of numbers, and of dates.
Limit = Annotated[
    Annotated[float, Field(allow_inf_nan=False)]
    | Annotated[str, Field(min_length=1, max_length=MAX_TEXT_LENGTH)],
    Field(union_mode="left_to_right"),
]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Money = Annotated[float, Field(gt=0, le=LARGEST)]
Name = Annotated[str, Field(min_length=1, max_length=MAX_TEXT_LENGTH)]


class RequestBody(BaseModel):
    """What is sent: fields that are described here and no others."""

    model_config = ConfigDict(extra="forbid")


class ErrorAnswer(BaseModel):
    """Why nothing was done."""

    error: str
    fields: list[dict[str, str]] | None = None


class TableAnswer(BaseModel):
    """A table in the workspace: columns with their kinds."""

    id: str
    name: str
    columns: dict[str, str]


class ColumnBody(RequestBody):
    """One column, from public knowledge and never from the data."""

    kind: Literal["number", "factor", "date", "text"]
    low: Limit | None = None  # of a date: the first day, as 2024-01-31
    high: Limit | None = None
    levels: list[Name] = Field(default=[], max_length=MOST_LEVELS)
    missing: Limit | None = None
    unit: Name | None = None
    edges: list[Number] = Field(default=[], max_length=MOST_LEVELS)
    period: Literal["day", "week", "month", "quarter", "year"] | None = None
    other: Name | None = None
    step: Positive | None = None


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


def _check_question(name: str) -> str:
    if name not in list_questions():
        raise PydanticCustomError("question", "One of: " + ", ".join(list_questions()))
    return name


def _describe_question(question: Question) -> dict[str, Any]:
    """The schema of a question's name and parameters."""
    parameters = {one.name: _describe_parameter(one) for one in list_page_parameters(question)}
    return {
        "title": question.title,
        "description": question.summary,
        "properties": {
            "question": {"const": question.name},
            "parameters": {
                "type": "object",
                "properties": parameters,
                "additionalProperties": False,
            },
        },
    }


def _describe_parameter(parameter: Parameter) -> dict[str, Any]:
    """The schema of a parameter's value; null is the same as to leave it out."""
    number: dict[str, Any] = {"type": "number", "exclusiveMinimum": parameter.least}
    if parameter.may_be_least:
        number = {"type": "number", "minimum": parameter.least}
    if math.isfinite(parameter.most):
        number["maximum"] = parameter.most
    kinds = [number]
    if parameter.kind == "choice":
        kinds = [{"type": "string", "enum": parameter.values}]
    elif parameter.kind == "text":
        kinds = [{"type": "string"}]
    elif parameter.kind == "texts":
        kinds = [
            {"type": "string"},
            {"type": "array", "items": {"type": "string"}, "minItems": 1},
        ]
    elif parameter.kind == "whole":
        kinds = [{**number, "type": "integer"}]
    elif parameter.kind == "numbers":
        kinds = [number, {"type": "array", "items": number, "minItems": 1}]
        if parameter.words:
            kinds.append({"type": "string", "enum": list(parameter.words)})
    return {
        "title": parameter.label,
        "description": parameter.help,
        "anyOf": [*kinds, {"type": "null"}],
    }


class QuestionBody(RequestBody):
    """A question about a table in the workspace; what is not said, its schema says."""

    table: Name
    question: Annotated[str, AfterValidator(_check_question)]
    column: Name | None = None
    epsilon: Positive | None = None
    share: Annotated[float, Field(gt=0, le=1)] = 1.0
    spend_left: bool = False
    parameters: dict[str, Any] = Field(default={}, max_length=MOST_PARAMETERS)

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: Any, handler: Any) -> Any:
        """Describe each question of the registry with its own parameters."""
        reference = handler(core_schema)
        schema = handler.resolve_ref_schema(reference)
        schema["properties"]["question"] = {"type": "string", "enum": list(list_questions())}
        schema["oneOf"] = [_describe_question(question) for question in list_questions().values()]
        return reference


class ReleaseBody(QuestionBody):
    """A question, and the key of its release: one key, one release, for ever."""

    key: Annotated[str, Field(min_length=1, max_length=actions.LONGEST_KEY)]
    plan_digest: Annotated[str, Field(min_length=64, max_length=64)] | None = None


def _describe_entry(question: Question) -> dict[str, Any]:
    """The schema of an entry of a report that asks this question."""
    parameters = {one.name: _describe_parameter(one) for one in question.form_parameters}
    positive = {"anyOf": [{"type": "number", "exclusiveMinimum": 0}, {"type": "null"}]}
    number = {"type": "number"}
    return {
        "type": "object",
        "title": question.title,
        "description": question.summary,
        "required": ["ask"],
        "properties": {
            "ask": {"const": question.name},
            "column": {"anyOf": [{"type": "string"}, {"type": "null"}]},
            "wanted": {"description": "The error that is wanted, in its own unit.", **positive},
            "share": {"description": "What its share is proportional to.", **positive},
            "bounds": {"type": "array", "items": number, "minItems": 2, "maxItems": 2},
            "missing": number,
            **parameters,
        },
        "additionalProperties": False,
    }


class ReportBody(RequestBody):
    """Several questions about a table in the workspace, by name: each with `ask`, `column`, its own
    parameters, and either `wanted` or `share`, as in a file of questions.
    """

    table: Name
    questions: dict[Name, dict[str, Any]] = Field(min_length=1, max_length=MOST_QUESTIONS)
    epsilon: Positive | None = None
    share: Annotated[float, Field(gt=0, le=1)] = 1.0
    spend_left: bool = False

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: Any, handler: Any) -> Any:
        """Describe the entry of each question with its own parameters."""
        reference = handler(core_schema)
        schema = handler.resolve_ref_schema(reference)
        entries = [_describe_entry(question) for question in list_shared_questions().values()]
        schema["properties"]["questions"]["additionalProperties"] = {"oneOf": entries}
        return reference


class ReportReleaseBody(ReportBody):
    """A report, and the key of its release: one key, one release, for ever."""

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


class PlannedQuestion(BaseModel):
    """One question of a report: its share of everybody's ε, and the error to expect of it."""

    name: str
    question: str
    column: str | None
    share: float
    answered_with: str | None  # the question that pays for it, where it is another
    expected_error: float
    error_is: str
    error_unit: str
    error_parts: dict[str, Any] | list[dict[str, Any]]
    plan_digest: str


class ReportPlanAnswer(BaseModel):
    """What a report will cost whom, and what each answer will be worth; no private value was
    read.
    """

    questions: list[PlannedQuestion]
    table: str | None
    who_pays: list[Payers]
    guarantee: dict[str, Any]
    theorem: str
    plan_digest: str
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


class ComparisonAnswer(BaseModel):
    """The difference of two groups; null where there are too few rows to say, or no end."""

    difference: float | None
    low: float | None
    high: float | None
    level: float
    unit: str
    words: str


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


class LossBody(RequestBody):
    """What selling ε costs for each unit of the reported cost, as `sottovoce market --loss` has it.

    Of the kind "power" the number is the exponent, of "exponential" the rate; of "piecewise" the
    numbers are an ε, its loss, the next ε, its loss and so on.
    """

    kind: Literal["linear", "power", "exponential", "piecewise"]
    numbers: list[Positive] = Field(default=[], max_length=MOST_LEVELS)


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
    mu: Money | None = None
    sigma: Money | None = None
    loss: LossBody | None = None


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


#: Entries of the books in one answer.
MOST_ENTRIES = 1000
#: How a table is brought: as a form with one file, which is streamed and never held in memory.
FILE_SCHEMA = {
    "type": "object",
    "required": ["table"],
    "properties": {"table": {"type": "string", "contentMediaType": "application/octet-stream"}},
}
UPLOAD_BODY = {
    "requestBody": {"required": True, "content": {"multipart/form-data": {"schema": FILE_SCHEMA}}}
}
STATUSES = (400, 401, 403, 404, 408, 409, 413, 421, 422)
REFUSALS: dict[int | str, dict[str, Any]] = {status: {"model": ErrorAnswer} for status in STATUSES}

router = APIRouter(prefix=API.rstrip("/"), responses=REFUSALS)


def _get_workspace(request: Request) -> Workspace:
    workspace: Workspace = request.app.state.workspace
    return workspace


def _get_table(
    table: str, workspace: Annotated[Workspace, Depends(_get_workspace)]
) -> UploadedTable:
    if table not in workspace.tables:
        raise HTTPException(404)
    return workspace.tables[table]


def _get_job(job: str, workspace: Annotated[Workspace, Depends(_get_workspace)]) -> Job:
    found = workspace.jobs.find(job)
    if found is None:
        raise HTTPException(404)
    return found


CurrentWorkspace = Annotated[Workspace, Depends(_get_workspace)]
ExistingTable = Annotated[UploadedTable, Depends(_get_table)]
ExistingJob = Annotated[Job, Depends(_get_job)]
Key = Annotated[str, Query(min_length=1, max_length=MAX_TEXT_LENGTH)]
Group = Annotated[str, Query(min_length=1, max_length=10 * MAX_TEXT_LENGTH)]
Epsilon = Annotated[float | None, Query(gt=0, allow_inf_nan=False)]


@router.get("/tables")
def tables(workspace: CurrentWorkspace) -> list[TableAnswer]:
    """The tables in the workspace."""
    return [_describe_table(name, table) for name, table in workspace.tables.items()]


@router.post("/tables", status_code=201, openapi_extra=UPLOAD_BODY)
async def upload_table(request: Request, workspace: CurrentWorkspace) -> TableAnswer:
    """Adds a CSV or Parquet file to the workspace; it is deleted when the server ends."""
    async with request.form(max_files=1, max_fields=1) as form:
        table = form.get("table")
        if not isinstance(table, UploadFile):
            raise InvalidData(
                "There is no table.",
                "A form with one file is needed.",
                "Send it as `table`.",
                parameter="table",
            )
        name = await run_in_threadpool(actions.upload, workspace, table.filename or "", table.file)
    return _describe_table(name, workspace.tables[name])


@router.delete("/tables/{table}", status_code=204)
def delete_table(table: str, there: ExistingTable, workspace: CurrentWorkspace) -> None:
    """Deletes a table from the workspace."""
    workspace.remove_table(table)


@router.get("/tables/{table}/draft")
def draft(table: str, there: ExistingTable) -> TextAnswer:
    """A schema in TOML with names and kinds of columns, and every range left blank."""
    return TextAnswer(words=Schema.draft(there.columns.items()))


@router.put("/tables/{table}/schema", status_code=204)
def declare(
    table: str, there: ExistingTable, declared: SchemaBody, workspace: CurrentWorkspace
) -> None:
    """Keeps the public description of a table: ranges come from outside the data."""
    columns = {
        name: Column(**{**one.model_dump(), "levels": tuple(one.levels), "edges": tuple(one.edges)})
        for name, one in declared.columns.items()
    }
    actions.declare(workspace, table, Schema(**{**declared.model_dump(), "columns": columns}))


@router.get("/tables/{table}/grants")
def grants(
    table: str, there: ExistingTable, workspace: CurrentWorkspace, epsilon: Epsilon = None
) -> list[GrantCount]:
    """Who grants how much by this table, without names; or as if everybody granted one ε."""
    return [
        GrantCount.model_validate(line)
        for line in actions.count_grants(actions.read_grants(workspace, table, epsilon))
    ]


@router.post("/tables/{table}/grants")
def record_grants(
    table: str, there: ExistingTable, workspace: CurrentWorkspace, epsilon: Epsilon = None
) -> TextAnswer:
    """Writes what the people of this table grant into the books, as their total."""
    people = actions.record_grants(workspace, table, epsilon)
    return TextAnswer(words=f"Granted by {format_count(people, 'person')}.")


@router.post("/plan")
def plan(asked: QuestionBody, workspace: CurrentWorkspace) -> PlanAnswer:
    """What a release would cost whom and what it would be worth; no private value is read."""
    made = actions.make_plan(workspace, *actions.prepare_question(workspace, _make_request(asked)))
    told = made.plan
    error = made.plan.expected_error
    return PlanAnswer(
        question=told.question,
        column=told.subject.column,
        table=told.subject.table,
        who_pays=[Payers.model_validate(line) for line in told.who_pays()],
        expected_error=list(error) if isinstance(error, tuple) else error,
        error_is=told.error_is,
        error_unit=describe_error_unit(told),
        error_parts=told.error_parts,
        guarantee=told.promise,
        noise=told.noise,
        theorem=told.theorem.statement,
        plan_digest=told.digest,
        verdict=make_verdict(told) if is_compared(told) else None,
        note=made.note,
    )


@router.post("/release", status_code=202)
def release(asked: ReleaseBody, workspace: CurrentWorkspace) -> JobAnswer:
    """Begins a release; people are charged before one private value is read.

    With the `plan_digest` that /api/plan told, it is refused where the plan is another by now, and
    nobody is charged.
    """
    name = actions.start_release(
        workspace,
        *actions.prepare_question(workspace, _make_request(asked)),
        asked.key,
        asked.plan_digest,
    )
    return _describe_job(name, workspace.get_job(name))


@router.post("/report/plan")
def plan_report(asked: ReportBody, workspace: CurrentWorkspace) -> ReportPlanAnswer:
    """What a report would cost whom, and what each answer would be worth; no private value is
    read.
    """
    made = actions.make_plan(workspace, *actions.prepare_report(workspace, _list_asked(asked)))
    told: Any = made.plan
    errors = told.errors_by_question
    questions = [
        PlannedQuestion(
            name=entry["name"],
            question=entry["question"],
            column=entry.get("column"),
            share=told.shares[entry["name"]],
            answered_with=entry.get("with"),
            expected_error=errors[entry["name"]],
            error_is=told.parts[entry["name"]].error_is,
            error_unit=describe_error_unit(told.parts[entry["name"]]),
            error_parts=told.parts[entry["name"]].error_parts,
            plan_digest=entry["plan_digest"],
        )
        for entry in told.parameters["questions"]
    ]
    return ReportPlanAnswer(
        questions=questions,
        table=told.subject.table,
        who_pays=[Payers.model_validate(line) for line in told.who_pays()],
        guarantee=told.promise,
        theorem=told.theorem.statement,
        plan_digest=told.digest,
        note=made.note,
    )


@router.post("/report/release", status_code=202)
def release_report(asked: ReportReleaseBody, workspace: CurrentWorkspace) -> JobAnswer:
    """Begins the release of a report: one charge for all its questions, before one private value is
    read.

    With the `plan_digest` that /api/report/plan told, it is refused where the plan is another by
    now, and nobody is charged. The release is fetched as any other, from /api/release.
    """
    name = actions.start_release(
        workspace,
        *actions.prepare_report(workspace, _list_asked(asked)),
        asked.key,
        asked.plan_digest,
    )
    return _describe_job(name, workspace.get_job(name))


@router.get("/release")
def get_release(key: Key, workspace: CurrentWorkspace) -> dict[str, Any]:
    """The release under a key, as the very bytes that are in the books."""
    stored: dict[str, Any] = Response(  # type: ignore[assignment]
        actions.read_release(workspace, key), media_type="application/json"
    )
    return stored


@router.get("/release/explained")
def explain_release(key: Key, workspace: CurrentWorkspace) -> TextAnswer:
    """The release and its certificate in plain words."""
    return TextAnswer(
        words=Release.from_json(actions.read_release(workspace, key).decode()).explain()
    )


@router.get("/release/compare")
def compare(
    key: Key, one: Group, two: Group, workspace: CurrentWorkspace, of: Key | None = None
) -> ComparisonAnswer:
    """Two groups of a released table side by side: their difference with its interval.

    Groups are called as the table calls them, such as north, or by labels of some columns, such as
    region=north; `of` names the question of a report, if several have groups. It follows from what
    was released, and costs nobody anything more.
    """
    made = Release.from_json(actions.read_release(workspace, key).decode())
    told = compare_groups(made, one, two, of)
    return ComparisonAnswer(
        difference=told.difference,
        low=told.low,
        high=told.high,
        level=told.level,
        unit=told.unit,
        words=" ".join(told.describe()),
    )


@router.get("/jobs/{job}")
def get_job(job: str, begun: ExistingJob) -> JobAnswer:
    """How far work has come."""
    return _describe_job(job, begun)


@router.post("/jobs/{job}/cancel")
def cancel(job: str, begun: ExistingJob) -> JobAnswer:
    """Gives work up before anybody is charged; after that it is refused."""
    begun.cancel()
    return _describe_job(job, begun)


@router.get("/ledger/entries")
def entries(
    workspace: CurrentWorkspace, after: Annotated[int, Query(ge=-1, le=2**53)] = -1
) -> list[EntryAnswer]:
    """Entries of the books, a thousand at most, which name nobody."""
    there = [entry for entry in actions.read_entries(workspace) if entry.number > after][
        :MOST_ENTRIES
    ]
    return [EntryAnswer(**{**entry.__dict__, "digest": entry.digest.hex()}) for entry in there]


@router.get("/ledger/balances")
def balances(workspace: CurrentWorkspace) -> list[TierAnswer]:
    """How many people allow how much, and the share of it that is spent, without names."""
    books = workspace.session.ledger
    if not isinstance(books, SqlLedger):
        raise InvalidParameter(
            "This ledger is not kept in a database.",
            "",
            "Open the page with a ledger in a file or on a server.",
        )
    return [
        TierAnswer(
            account=account, allowed=tier.name, people=len(tier.spent), share_spent=tier.share
        )
        for account, tiers in by_tier(books).items()
        for tier in tiers
    ]


@router.post("/ledger/grants")
def grant(given: GrantsBody, workspace: CurrentWorkspace) -> TextAnswer:
    """Sets what people allow in all in the account of pure ε, neighbours by replacement."""
    workspace.session.grant(given.grants)
    return TextAnswer(words=f"Granted by {format_count(len(given.grants), 'person')}.")


@router.post("/ledger/verify")
def verify(workspace: CurrentWorkspace) -> TextAnswer:
    """Computes every balance and digest again."""
    last = actions.verify_ledger(workspace)
    entries = format_count(last.number + 1, "entry")
    return TextAnswer(words=f"The ledger adds up: {entries}, head {last.digest.hex()}.")


@router.post("/market")
def market(offered: MarketBody) -> MarketAnswer:
    """What to buy from whom at which payment; reads reports and public numbers alone."""
    deal = _allocate(offered)
    payments = dict(zip(offered.costs, deal.payments.tolist(), strict=True))
    return MarketAnswer(
        epsilon=deal.by_person(), payments=payments, total=deal.total, words=deal.describe()
    )


@router.post("/audit")
def audit(asked: AuditBody, workspace: CurrentWorkspace) -> TextAnswer:
    """What people really lost to a release, summed up: confidential, for the curator alone, not to
    be passed on.
    """
    if asked.table not in workspace.tables:
        raise HTTPException(404)
    looked = actions.audit_release(workspace, asked.table, asked.key, asked.delta)
    return TextAnswer(words=str(looked.summary()), confidential=True)


def list_wrong_fields(errors: Sequence[Any]) -> list[dict[str, str]]:
    """Returns which declared fields are wrong and what they need; what was sent, even as a name, is
    left out.
    """
    return [{"field": _find_field(error["loc"]), "message": str(error["msg"])} for error in errors]


def _find_field(place: Sequence[Any]) -> str:
    """Returns the name of a field, and of those that it is in: parameters.neighbours. People's
    names are left out.
    """
    declared = list_declared_fields()
    named = [str(part) for part in place if part in declared]
    return ".".join(named[:1] if set(named) & BY_PERSON else named)


def name_field(path: str, parameter: str) -> str:
    """Returns the field of a request to this path that sets a parameter of the library."""
    if path.endswith("/schema"):
        return parameter.removeprefix("schema.")
    if path in QUESTION_PATHS and parameter in list_option_names():
        return f"parameters.{parameter}"
    if path in REPORT_PATHS and parameter not in ReportReleaseBody.model_fields:
        return REPORT_FIELDS.get(parameter, "questions")
    return FIELDS_OF_PARAMETERS.get(parameter, parameter)


def _make_request(asked: QuestionBody) -> actions.QuestionRequest:
    parameters = {name: value for name, value in asked.parameters.items() if value is not None}
    wrong = [
        {"loc": ("parameters", one.name), "msg": one.describe_limits()}
        for one in list_page_parameters(list_questions()[asked.question])
        if one.name in parameters and not one.accepts(parameters[one.name])
    ]
    if wrong:
        raise RequestValidationError(wrong)
    return actions.QuestionRequest(
        asked.table,
        asked.question,
        asked.column,
        asked.epsilon,
        asked.share,
        asked.spend_left,
        parameters,
    )


def _list_asked(asked: ReportBody) -> actions.ReportRequest:
    """What is asked, without the fields that say nothing."""
    questions = {
        name: {key: value for key, value in entry.items() if value is not None}
        for name, entry in asked.questions.items()
    }
    wrong = [one for entry in questions.values() for one in _list_wrong_parts(entry)]
    if wrong:
        raise RequestValidationError(wrong)
    return actions.ReportRequest(
        asked.table, questions, asked.epsilon, asked.share, asked.spend_left
    )


def _list_wrong_parts(entry: dict[str, Any]) -> list[dict[str, Any]]:
    """What is of a wrong kind in the entry of a report, each with its field."""
    offered = list_shared_questions()
    ask = entry.get("ask")
    if not isinstance(ask, str) or ask not in offered:
        return [{"loc": ("questions", "ask"), "msg": f"One of: {', '.join(offered)}"}]
    known = {one.name: one for one in (*offered[ask].form_parameters, *ENTRY_PARAMETERS)}
    return [
        {"loc": ("questions", name), "msg": known[name].describe_limits()}
        for name, value in entry.items()
        if name in known and not known[name].accepts(value)
    ]


def _allocate(offered: MarketBody) -> markets.Allocation:
    own = offered.model_dump(exclude={"costs", "prior", "loss"})
    if offered.loss is not None:
        said = [offered.loss.kind, *map(repr, offered.loss.numbers)]
        own["loss"] = parse_loss(":".join(said))
    law = offered.prior.law
    numbers = offered.prior.numbers
    try:
        if law == FROM_FILE:
            prior = laws.empirical(numbers)
        else:
            prior = getattr(laws, law)(*numbers)
    except TypeError:
        prior = None
    if prior is None:
        raise InvalidParameter(
            "The prior has too many or too few numbers.",
            "A law has its own numbers, and then the lowest and the highest cost.",
            "Correct the list of numbers.",
            parameter="prior",
        )
    return MarketTerms(prior, **own).allocate(
        Sellers(tuple(offered.costs), np.array(list(offered.costs.values())))
    )


def _describe_table(name: str, table: UploadedTable) -> TableAnswer:
    return TableAnswer(id=name, name=table.name, columns=table.columns)


def _describe_job(name: str, job: Job) -> JobAnswer:
    job = job.take_snapshot()
    return JobAnswer(
        job=name,
        state=job.state,
        rows=job.rows,
        sentence=job.sentence,
        key=job.result if job.state == "done" and isinstance(job.result, str) else None,
        can_be_cancelled=job.state == "working" and not job.committed,
    )


#: What an entry of a report may say besides the parameters of its question.
ENTRY_PARAMETERS = (
    Parameter("column", "text", "", ""),
    Parameter("wanted", "number", "", ""),
    Parameter("share", "number", "", ""),
)
#: Where questions are asked.
QUESTION_PATHS = (f"{API}plan", f"{API}release")
REPORT_PATHS = (f"{API}report/plan", f"{API}report/release")
#: Fields of a report that set other parameters of the library than what is asked.
REPORT_FIELDS = {"budget": "epsilon", "person": "table", "schema.person": "table"}
#: Fields by the parameters of the library that they set, where they are called otherwise.
FIELDS_OF_PARAMETERS = {
    "amount": "grants",
    "bounds": "column",
    "budgets": "grants",
    "cost_range": "prior.numbers",
    "deviation": "prior.numbers",
    "dimension": "features",
    "mean": "prior.numbers",
    "median": "prior.numbers",
    "prior.parameters": "prior.numbers",
    "scale": "prior.numbers",
    "seen": "prior.numbers",
    "schema.label": "column",
}


def list_option_names() -> set[str]:
    """Return the names of all parameters of questions, and of baselines around them."""
    own = {one.name for question in list_questions().values() for one in question.parameters}
    return own | {one.name for one in BOOKED_PARAMETERS}


def list_declared_fields() -> set[str]:
    """Return the names of all fields that a request may have."""
    bodies: list[type[RequestBody]] = [
        *RequestBody.__subclasses__(),
        ReleaseBody,
        ReportReleaseBody,
    ]
    names = {name for body in bodies for name in body.model_fields}
    return (
        names
        | list_option_names()
        | {"key", "epsilon", "after", "ask", "wanted", "one", "two", "of"}
    )


#: The fields in which people have entries under their names.
BY_PERSON = {"grants", "costs"}
