# SPDX-License-Identifier: Apache-2.0
"""The verbs for programs: JSON under /api, described in OpenAPI at /api/openapi.json.

What is wrong is answered with the names of fields and what they need; what stood in them is never
repeated. Every answer is what a page would show: releases, plans, books without names. The audit is
the exception, and says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import numpy as np
from fastapi import APIRouter, Depends, HTTPException, Query, Request
from fastapi.exceptions import RequestValidationError
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import UploadFile
from starlette.responses import Response

from sottovoce import market as markets
from sottovoce.errors import InvalidData, InvalidParameter
from sottovoce.ledgers.sql_ledger import SqlLedger
from sottovoce.market import prior as laws
from sottovoce.market.terms import FROM_FILE, MarketTerms, Sellers
from sottovoce.release import Release
from sottovoce.report.ledger import compute_balances as by_tier
from sottovoce.report.plan import make_verdict
from sottovoce.schema import Column, Schema
from sottovoce.web import actions, api_models
from sottovoce.web.api_models import (
    MAX_TEXT_LENGTH,
    AuditBody,
    EntryAnswer,
    ErrorAnswer,
    GrantsBody,
    MarketAnswer,
    MarketBody,
    QuestionBody,
    ReleaseBody,
    SchemaBody,
)
from sottovoce.web.guard import API
from sottovoce.web.question_form import QUESTIONS
from sottovoce.web.workspace import Job, UploadedTable, Workspace
from sottovoce.wording import describe_error_unit

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
    desk: Workspace = request.app.state.desk
    return desk


def _get_table(table: str, desk: Annotated[Workspace, Depends(_get_workspace)]) -> UploadedTable:
    if table not in desk.tables:
        raise HTTPException(404)
    return desk.tables[table]


def _get_job(job: str, desk: Annotated[Workspace, Depends(_get_workspace)]) -> Job:
    found = desk.jobs.find(job)
    if found is None:
        raise HTTPException(404)
    return found


CurrentWorkspace = Annotated[Workspace, Depends(_get_workspace)]
ExistingTable = Annotated[UploadedTable, Depends(_get_table)]
ExistingJob = Annotated[Job, Depends(_get_job)]
Key = Annotated[str, Query(min_length=1, max_length=MAX_TEXT_LENGTH)]
Epsilon = Annotated[float | None, Query(gt=0, allow_inf_nan=False)]


@router.get("/tables")
def tables(desk: CurrentWorkspace) -> list[api_models.TableAnswer]:
    """The tables on the desk."""
    return [_describe_table(name, table) for name, table in desk.tables.items()]


@router.post("/tables", status_code=201, openapi_extra=UPLOAD_BODY)
async def upload_table(request: Request, desk: CurrentWorkspace) -> api_models.TableAnswer:
    """Lays a CSV or Parquet file on the desk; it is deleted when the server ends."""
    async with request.form(max_files=1, max_fields=1) as form:
        table = form.get("table")
        if not isinstance(table, UploadFile):
            raise InvalidData(
                "There is no table.", "A form with one file is needed.", "Send it as `table`."
            )
        name = await run_in_threadpool(actions.upload, desk, table.filename or "", table.file)
    return _describe_table(name, desk.tables[name])


@router.delete("/tables/{table}", status_code=204)
def delete_table(table: str, there: ExistingTable, desk: CurrentWorkspace) -> None:
    """Deletes a table from the desk."""
    desk.remove_table(table)


@router.get("/tables/{table}/draft")
def draft(table: str, there: ExistingTable) -> api_models.TextAnswer:
    """A schema in TOML with names and kinds of columns, and every range left blank."""
    return api_models.TextAnswer(words=Schema.draft(there.columns.items()))


@router.put("/tables/{table}/schema", status_code=204)
def declare(table: str, there: ExistingTable, declared: SchemaBody, desk: CurrentWorkspace) -> None:
    """Keeps the public description of a table: ranges come from outside the data."""
    columns = {
        name: Column(**{**one.model_dump(), "levels": tuple(one.levels)})
        for name, one in declared.columns.items()
    }
    actions.declare(desk, table, Schema(**{**declared.model_dump(), "columns": columns}))


@router.get("/tables/{table}/grants")
def grants(
    table: str, there: ExistingTable, desk: CurrentWorkspace, epsilon: Epsilon = None
) -> list[api_models.GrantCount]:
    """Who grants how much by this table, without names; or as if everybody granted one ε."""
    return [
        api_models.GrantCount.model_validate(line)
        for line in actions.count_grants(actions.read_grants(desk, table, epsilon))
    ]


@router.post("/tables/{table}/grants")
def record_grants(
    table: str, there: ExistingTable, desk: CurrentWorkspace, epsilon: Epsilon = None
) -> api_models.TextAnswer:
    """Writes what the people of this table grant into the books, as their total."""
    return api_models.TextAnswer(
        words=f"Granted by {actions.record_grants(desk, table, epsilon):,} people."
    )


@router.post("/plan")
def plan(asked: QuestionBody, desk: CurrentWorkspace) -> api_models.PlanAnswer:
    """What a release would cost whom and what it would be worth; no private value is read."""
    made = actions.make_plan(desk, *actions.prepare_question(desk, _make_request(asked)))
    told = made.plan
    error = made.plan.expected_error
    return api_models.PlanAnswer(
        question=told.question,
        column=told.subject.column,
        table=told.subject.table,
        who_pays=[api_models.Payers.model_validate(line) for line in told.who_pays()],
        expected_error=list(error) if isinstance(error, tuple) else error,
        error_is=told.error_is,
        error_unit=describe_error_unit(told),
        error_parts=told.error_parts,
        guarantee=told.promise,
        noise=told.noise,
        theorem=told.theorem.statement,
        plan_digest=told.digest,
        verdict=make_verdict(told) if told.question == "ridge" else None,
        note=made.note,
    )


@router.post("/release", status_code=202)
def release(asked: ReleaseBody, desk: CurrentWorkspace) -> api_models.JobAnswer:
    """Begins a release; people are charged before one private value is read.

    With the `plan_digest` that /api/plan told, it is refused where the plan is another by now, and
    nobody is charged.
    """
    name = actions.start_release(
        desk, *actions.prepare_question(desk, _make_request(asked)), asked.key, asked.plan_digest
    )
    return _describe_job(name, desk.get_job(name))


@router.get("/release")
def get_release(key: Key, desk: CurrentWorkspace) -> dict[str, Any]:
    """The release under a key, as the very bytes that are in the books."""
    return Response(actions.read_release(desk, key), media_type="application/json")  # type: ignore[return-value]


@router.get("/release/explained")
def explain_release(key: Key, desk: CurrentWorkspace) -> api_models.TextAnswer:
    """The release and its certificate in plain words."""
    return api_models.TextAnswer(
        words=Release.from_json(actions.read_release(desk, key).decode()).explain()
    )


@router.get("/jobs/{job}")
def get_job(job: str, begun: ExistingJob) -> api_models.JobAnswer:
    """How far work has come."""
    return _describe_job(job, begun)


@router.post("/jobs/{job}/cancel")
def cancel(job: str, begun: ExistingJob) -> api_models.JobAnswer:
    """Gives work up before anybody is charged; after that it is refused."""
    begun.cancel()
    return _describe_job(job, begun)


@router.get("/ledger/entries")
def entries(
    desk: CurrentWorkspace, after: Annotated[int, Query(ge=-1, le=2**53)] = -1
) -> list[EntryAnswer]:
    """Entries of the books, a thousand at most, which name nobody."""
    there = [entry for entry in actions.read_entries(desk) if entry.number > after][:MOST_ENTRIES]
    return [EntryAnswer(**{**entry.__dict__, "digest": entry.digest.hex()}) for entry in there]


@router.get("/ledger/balances")
def balances(desk: CurrentWorkspace) -> list[api_models.TierAnswer]:
    """How many people allow how much, and the share of it that is spent, without names."""
    books = desk.session.ledger
    if not isinstance(books, SqlLedger):
        raise InvalidParameter(
            "These books are not kept in a database.", "", "Open the page with --ledger."
        )
    return [
        api_models.TierAnswer(
            account=account, allowed=tier.name, people=len(tier.spent), share_spent=tier.share
        )
        for account, tiers in by_tier(books).items()
        for tier in tiers
    ]


@router.post("/ledger/grants")
def grant(given: GrantsBody, desk: CurrentWorkspace) -> api_models.TextAnswer:
    """Sets what people allow in all in the account of pure ε, neighbours by replacement."""
    desk.session.grant(given.grants)
    return api_models.TextAnswer(words=f"Granted by {len(given.grants):,} people.")


@router.post("/ledger/verify")
def verify(desk: CurrentWorkspace) -> api_models.TextAnswer:
    """Computes every balance and digest again."""
    last = actions.verify_ledger(desk)
    return api_models.TextAnswer(
        words=f"The books add up: {last.number + 1:,} entries, head {last.digest.hex()}."
    )


@router.post("/market")
def market(offered: MarketBody) -> MarketAnswer:
    """What to buy from whom at which payment; reads reports and public numbers alone."""
    deal = _allocate(offered)
    payments = dict(zip(offered.costs, deal.payments.tolist(), strict=True))
    return MarketAnswer(
        epsilon=deal.by_person(), payments=payments, total=deal.total, words=deal.describe()
    )


@router.post("/audit")
def audit(asked: AuditBody, desk: CurrentWorkspace) -> api_models.TextAnswer:
    """What people really lost to a release, summed up: confidential, for the curator alone, not to
    be passed on.
    """
    if asked.table not in desk.tables:
        raise HTTPException(404)
    looked = actions.audit_release(desk, asked.table, asked.key, asked.delta)
    return api_models.TextAnswer(words=str(looked.summary()), confidential=True)


def list_wrong_fields(errors: Sequence[Any]) -> list[dict[str, str]]:
    """Returns which declared fields are wrong and what they need; what was sent, even as a name, is
    left out.
    """
    return [{"field": _find_field(error["loc"]), "needed": str(error["msg"])} for error in errors]


def _find_field(place: Sequence[Any]) -> str:
    """Returns the name of a field, and of those that it is in: parameters.neighbours. People's
    names are left out.
    """
    named = [str(part) for part in place if part in DECLARED_FIELDS]
    return ".".join(named[:1] if set(named) & BY_PERSON else named)


def _make_request(asked: QuestionBody) -> actions.QuestionRequest:
    parameters = {name: value for name, value in asked.parameters.items() if value is not None}
    needed = QUESTIONS[asked.question].needed(parameters)
    if needed:
        raise RequestValidationError(
            [{"loc": ("parameters", name), "msg": words} for name, words in needed.items()]
        )
    return actions.QuestionRequest(
        asked.table, asked.question, asked.column, asked.epsilon, asked.share, parameters
    )


def _allocate(offered: MarketBody) -> markets.Allocation:
    own = offered.model_dump(exclude={"costs", "prior"})
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
            "The prior has too many or too few numbers.", "", "See `sottovoce market --help`."
        )
    return MarketTerms(prior, **own).allocate(
        Sellers(tuple(offered.costs), np.array(list(offered.costs.values())))
    )


def _describe_table(name: str, table: UploadedTable) -> api_models.TableAnswer:
    return api_models.TableAnswer(id=name, name=table.name, columns=table.columns)


def _describe_job(name: str, job: Job) -> api_models.JobAnswer:
    return api_models.JobAnswer(
        job=name,
        state=job.state,
        rows=job.rows,
        sentence=job.sentence,
        key=job.result if job.state == "done" and isinstance(job.result, str) else None,
        can_be_cancelled=job.state == "working" and not job.committed,
    )


#: The names of all fields that a request may have.
DECLARED_FIELDS = (
    {name for body in api_models.RequestBody.__subclasses__() for name in body.model_fields}
    | set(ReleaseBody.model_fields)
    | {option.name for kind in QUESTIONS.values() for option in kind.options}
    | {"key", "epsilon", "after"}
)
#: The fields in which people have entries under their names.
BY_PERSON = {"grants", "costs"}
