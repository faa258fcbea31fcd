# SPDX-License-Identifier: Apache-2.0
"""The verbs for programs: JSON under /api, described in OpenAPI at /api/openapi.json.

What is wrong is answered with the names of fields and what they need; what stood in them is never repeated. Every
answer is what a page would show: releases, plans, books without names. The audit is the exception, and says so.
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
from sottovoce.bounds import Column, Schema
from sottovoce.errors import InvalidData, InvalidParameter
from sottovoce.ledgers.books import Books
from sottovoce.market import prior as laws
from sottovoce.pages.balances import balances as by_tier
from sottovoce.pages.market_terms import FROM_FILE, Sellers, Terms
from sottovoce.pages.outlook import verdict
from sottovoce.release import Release
from sottovoce.web import bodies, verbs
from sottovoce.web.bodies import LONGEST, Asked, Audited, Bought, Declared, Entry, Error, Grants, Keyed, Offered
from sottovoce.web.desk import Desk, Uploaded
from sottovoce.web.guard import API
from sottovoce.web.jobs import Job
from sottovoce.web.questions import QUESTIONS
from sottovoce.wording import error_unit

#: Entries of the books in one answer.
MOST_ENTRIES = 1000
#: How a table is brought: as a form with one file, which is streamed and never held in memory.
FILE = {
    "type": "object",
    "required": ["table"],
    "properties": {"table": {"type": "string", "contentMediaType": "application/octet-stream"}},
}
BROUGHT = {"requestBody": {"required": True, "content": {"multipart/form-data": {"schema": FILE}}}}
STATUSES = (400, 401, 403, 404, 408, 409, 413, 421, 422)
REFUSALS: dict[int | str, dict[str, Any]] = {status: {"model": Error} for status in STATUSES}

router = APIRouter(prefix=API.rstrip("/"), responses=REFUSALS)


def _desk(request: Request) -> Desk:
    desk: Desk = request.app.state.desk
    return desk


def _table(table: str, desk: Annotated[Desk, Depends(_desk)]) -> Uploaded:
    if table not in desk.tables:
        raise HTTPException(404)
    return desk.tables[table]


def _job(job: str, desk: Annotated[Desk, Depends(_desk)]) -> Job:
    found = desk.jobs.find(job)
    if found is None:
        raise HTTPException(404)
    return found


OnDesk = Annotated[Desk, Depends(_desk)]
There = Annotated[Uploaded, Depends(_table)]
Begun = Annotated[Job, Depends(_job)]
Key = Annotated[str, Query(min_length=1, max_length=LONGEST)]
Epsilon = Annotated[float | None, Query(gt=0, allow_inf_nan=False)]


@router.get("/tables")
def tables(desk: OnDesk) -> list[bodies.Table]:
    """The tables on the desk."""
    return [_shown(name, table) for name, table in desk.tables.items()]


@router.post("/tables", status_code=201, openapi_extra=BROUGHT)
async def bring(request: Request, desk: OnDesk) -> bodies.Table:
    """Lays a CSV or Parquet file on the desk; it is deleted when the server ends."""
    async with request.form(max_files=1, max_fields=1) as form:
        table = form.get("table")
        if not isinstance(table, UploadFile):
            raise InvalidData("There is no table.", "A form with one file is needed.", "Send it as `table`.")
        name = await run_in_threadpool(verbs.bring, desk, table.filename or "", table.file)
    return _shown(name, desk.tables[name])


@router.delete("/tables/{table}", status_code=204)
def take_away(table: str, there: There, desk: OnDesk) -> None:
    """Deletes a table from the desk."""
    desk.remove_table(table)


@router.get("/tables/{table}/draft")
def draft(table: str, there: There) -> bodies.Told:
    """A schema in TOML with names and kinds of columns, and every range left blank."""
    return bodies.Told(words=Schema.draft(there.columns.items()))


@router.put("/tables/{table}/schema", status_code=204)
def declare(table: str, there: There, declared: Declared, desk: OnDesk) -> None:
    """Keeps the public description of a table: ranges come from outside the data."""
    columns = {
        name: Column(**{**one.model_dump(), "levels": tuple(one.levels)}) for name, one in declared.columns.items()
    }
    verbs.declare(desk, table, Schema(**{**declared.model_dump(), "columns": columns}))


@router.get("/tables/{table}/grants")
def grants(table: str, there: There, desk: OnDesk, epsilon: Epsilon = None) -> list[bodies.Granted]:
    """Who grants how much by this table, without names; or as if everybody granted one ε."""
    return [bodies.Granted.model_validate(line) for line in verbs.distribution(verbs.grants(desk, table, epsilon))]


@router.post("/tables/{table}/grants")
def enter(table: str, there: There, desk: OnDesk, epsilon: Epsilon = None) -> bodies.Told:
    """Writes what the people of this table grant into the books, as their total."""
    return bodies.Told(words=f"Granted by {verbs.enter(desk, table, epsilon):,} people.")


@router.post("/plan")
def plan(asked: Asked, desk: OnDesk) -> bodies.Planned:
    """What a release would cost whom and what it would be worth; no private value is read."""
    made = verbs.plan(desk, *verbs.prepared(desk, _wanted(asked)))
    told, error = made.plan, made.plan.expected_error
    return bodies.Planned(
        question=told.question,
        column=told.subject.column,
        table=told.subject.table,
        who_pays=[bodies.Payers.model_validate(line) for line in told.who_pays()],
        expected_error=list(error) if isinstance(error, tuple) else error,
        error_is=told.error_is,
        error_unit=error_unit(told),
        error_parts=told.error_parts,
        guarantee=told.promise,
        noise=told.noise,
        theorem=told.theorem.statement,
        plan_digest=told.digest,
        verdict=verdict(told) if told.question == "ridge" else None,
        note=made.note,
    )


@router.post("/release", status_code=202)
def release(asked: Keyed, desk: OnDesk) -> bodies.Work:
    """Begins a release; people are charged before one private value is read.

    With the `plan_digest` that /api/plan told, it is refused where the plan is another by now, and nobody is charged.
    """
    name = verbs.release(desk, *verbs.prepared(desk, _wanted(asked)), asked.key, asked.plan_digest)
    return _work(name, desk.get_job(name))


@router.get("/release")
def released(key: Key, desk: OnDesk) -> dict[str, Any]:
    """The release under a key, as the very bytes that are in the books."""
    return Response(verbs.released(desk, key), media_type="application/json")  # type: ignore[return-value]


@router.get("/release/explained")
def explained(key: Key, desk: OnDesk) -> bodies.Told:
    """The release and its certificate in plain words."""
    return bodies.Told(words=Release.from_json(verbs.released(desk, key).decode()).explain())


@router.get("/jobs/{job}")
def look(job: str, begun: Begun) -> bodies.Work:
    """How far work has come."""
    return _work(job, begun)


@router.post("/jobs/{job}/cancel")
def cancel(job: str, begun: Begun) -> bodies.Work:
    """Gives work up before anybody is charged; after that it is refused."""
    begun.cancel()
    return _work(job, begun)


@router.get("/ledger/entries")
def entries(desk: OnDesk, after: Annotated[int, Query(ge=-1, le=2**53)] = -1) -> list[Entry]:
    """Entries of the books, a thousand at most, which name nobody."""
    there = [entry for entry in verbs.entries(desk) if entry.number > after][:MOST_ENTRIES]
    return [Entry(**{**entry.__dict__, "digest": entry.digest.hex()}) for entry in there]


@router.get("/ledger/balances")
def balances(desk: OnDesk) -> list[bodies.Tier]:
    """How many people allow how much, and the share of it that is spent, without names."""
    books = desk.session.ledger
    if not isinstance(books, Books):
        raise InvalidParameter("These books are not kept in a database.", "", "Open the page with --ledger.")
    return [
        bodies.Tier(account=account, allowed=tier.name, people=len(tier.spent), share_spent=tier.share)
        for account, tiers in by_tier(books).items()
        for tier in tiers
    ]


@router.post("/ledger/grants")
def grant(given: Grants, desk: OnDesk) -> bodies.Told:
    """Sets what people allow in all in the account of pure ε, neighbours by replacement."""
    desk.session.grant(given.grants)
    return bodies.Told(words=f"Granted by {len(given.grants):,} people.")


@router.post("/ledger/verify")
def verify(desk: OnDesk) -> bodies.Told:
    """Computes every balance and digest again."""
    last = verbs.verify(desk)
    return bodies.Told(words=f"The books add up: {last.number + 1:,} entries, head {last.digest.hex()}.")


@router.post("/market")
def market(offered: Offered) -> Bought:
    """What to buy from whom at which payment; reads reports and public numbers alone."""
    deal = _settled(offered)
    payments = dict(zip(offered.costs, deal.payments.tolist(), strict=True))
    return Bought(epsilon=deal.by_person(), payments=payments, total=deal.total, words=deal.describe())


@router.post("/audit")
def audit(asked: Audited, desk: OnDesk) -> bodies.Told:
    """What people really lost to a release, summed up: confidential, for the curator alone, not to be passed on."""
    if asked.table not in desk.tables:
        raise HTTPException(404)
    looked = verbs.audit(desk, asked.table, asked.key, asked.delta)
    return bodies.Told(words=str(looked.summary()), confidential=True)


def complaints(errors: Sequence[Any]) -> list[dict[str, str]]:
    """Returns which declared fields are wrong and what they need; what was sent, even as a name, is left out."""
    return [{"field": _field(error["loc"]), "needed": str(error["msg"])} for error in errors]


def _field(place: Sequence[Any]) -> str:
    """Returns the name of a field, and of those that it is in: parameters.neighbours. People's names are left out."""
    named = [str(part) for part in place if part in DECLARED]
    return ".".join(named[:1] if set(named) & BY_PERSON else named)


def _wanted(asked: Asked) -> verbs.Wanted:
    parameters = {name: value for name, value in asked.parameters.items() if value is not None}
    needed = QUESTIONS[asked.question].needed(parameters)
    if needed:
        raise RequestValidationError([{"loc": ("parameters", name), "msg": words} for name, words in needed.items()])
    return verbs.Wanted(asked.table, asked.question, asked.column, asked.epsilon, asked.share, parameters)


def _settled(offered: Offered) -> markets.Allocation:
    own, law, numbers = offered.model_dump(exclude={"costs", "prior"}), offered.prior.law, offered.prior.numbers
    try:
        prior = laws.empirical(numbers) if law == FROM_FILE else getattr(laws, law)(*numbers)
    except TypeError:
        prior = None
    if prior is None:
        raise InvalidParameter("The prior has too many or too few numbers.", "", "See `sottovoce market --help`.")
    return Terms(prior, **own).allocate(Sellers(tuple(offered.costs), np.array(list(offered.costs.values()))))


def _shown(name: str, table: Uploaded) -> bodies.Table:
    return bodies.Table(id=name, name=table.name, columns=table.columns)


def _work(name: str, job: Job) -> bodies.Work:
    return bodies.Work(
        job=name,
        state=job.state,
        rows=job.rows,
        sentence=job.sentence,
        key=job.result if job.state == "done" and isinstance(job.result, str) else None,
        can_be_cancelled=job.state == "working" and not job.committed,
    )


#: The names of all fields that a request may have.
DECLARED = (
    {name for body in bodies.Body.__subclasses__() for name in body.model_fields}
    | set(Keyed.model_fields)
    | {option.name for kind in QUESTIONS.values() for option in kind.options}
    | {"key", "epsilon", "after"}
)
#: The fields in which people have entries under their names.
BY_PERSON = {"grants", "costs"}
