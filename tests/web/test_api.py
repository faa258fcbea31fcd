"""The verbs for programs: the whole way from a table to a release, what is refused and how; and
requests that schemathesis makes up, 2,000 here and 20,000 in the long run: no answer above 499,
none that the description does not know, and books that no refused request has changed.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from contextlib import suppress

import hypothesis
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi import checks

import sottovoce as sv
from seams import witness
from sottovoce.estimators import list_questions
from sottovoce.release import Release
from sottovoce.web import actions
from sottovoce.web.api import list_declared_fields
from web import hostile_json

HOME = "http://127.0.0.1:8765"
OWN = {"sec-fetch-site": "same-origin"}
JSON = {"content-type": "application/json"}
SECRET = "zanzibar-41234"
PATIENCE = 300.0
#: What the table that is there can be asked.
ABOUT = {
    "/api/plan": {"column": "salary", "parameters": {}},
    "/api/release": {"question": "mean", "column": "salary"},
}
#: Some of what some fields take.
SOME = (1e308, 5e-324, "\ud800", [1], {"a": 1})
CHECKED = [
    not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_headers_conformance,
    checks.response_schema_conformance,
]


def done(workspace, name):
    late = time.monotonic() + PATIENCE
    while workspace.jobs.find(name).state == "working":
        assert time.monotonic() < late
        time.sleep(0.002)
    return workspace.jobs.find(name)


def agreed(planned):
    return {"plan_digest": planned["plan_digest"]}


def test_the_whole_way_from_a_table_to_a_release(client, workspace, rows):
    brought = client.post("/api/tables", files={"table": ("../../etc/salaries.csv", rows)})
    assert brought.status_code == 201
    table = brought.json()
    assert (table["name"], set(table["columns"])) == (
        "salaries.csv",
        {"id", "epsilon", "salary", "age"},
    )
    assert str(workspace.folder) not in brought.text
    assert "low =" in client.get(f"/api/tables/{table['id']}/draft").json()["words"]
    schema = {
        "person": "id",
        "budget": "epsilon",
        "columns": {
            "salary": {"kind": "number", "low": 0, "high": 200_000},
            "age": {"kind": "number", "low": 18, "high": 90},
        },
    }
    assert client.put(f"/api/tables/{table['id']}/schema", json=schema).status_code == 204
    lines = client.get(f"/api/tables/{table['id']}/grants").json()
    assert lines == [{"epsilon": e, "people": 100, "rows": 200} for e in (0.1, 0.5, 2.0)]
    asked = {
        "table": table["id"],
        "question": "ridge",
        "column": "salary",
        "parameters": {"method": "statistics"},
    }
    planned = client.post("/api/plan", json=asked).json()
    assert planned["note"] == actions.NOT_GRANTED
    assert planned["verdict"]
    assert client.post(f"/api/tables/{table['id']}/grants").json() == {
        "words": "Granted by 300 people.",
        "confidential": False,
    }
    planned = client.post("/api/plan", json=asked).json()
    assert planned["note"] == ""
    other = client.post(
        "/api/release", json={**asked, "key": "slopes", "share": 0.5, **agreed(planned)}
    )
    assert (other.status_code, "nobody was charged" in other.text) == (409, True)
    begun = client.post("/api/release", json={**asked, "key": "slopes", **agreed(planned)})
    assert done(workspace, begun.json()["job"]).state == "done"
    bytes_released = client.get("/api/release", params={"key": "slopes"}).content
    assert Release.from_json(bytes_released.decode()).question == "ridge"
    assert (
        "Answer: a linear model"
        in client.get("/api/release/explained", params={"key": "slopes"}).json()["words"]
    )
    tiers = client.get("/api/ledger/balances").json()
    assert [tier["people"] for tier in tiers] == [100, 100, 100]
    assert client.post("/api/ledger/verify").status_code == 200
    kinds = [entry["what"] for entry in client.get("/api/ledger/entries").json()]
    assert kinds == ["open", "grant", "reserve", "publish"]
    assert client.delete(f"/api/tables/{table['id']}").status_code == 204
    assert not list(workspace.folder.iterdir())


def test_a_baseline_is_planned_booked_and_audited(client, workspace, table):
    around = {"baseline": "threshold", "threshold": 0.5}
    asked = {"table": table, "question": "mean", "column": "salary", "parameters": around}
    planned = client.post("/api/plan", json=asked).json()
    assert [line["spent"] for line in planned["who_pays"]] == [0.0, 0.5, 0.5]
    begun = client.post("/api/release", json={**asked, "key": "t", **agreed(planned)})
    job = done(workspace, begun.json()["job"])
    assert job.state == "done", job.sentence
    made = Release.from_json(client.get("/api/release", params={"key": "t"}).content.decode())
    assert made.guarantee["epsilon"]["distribution"] == [
        {"epsilon": 0.0, "people": 100},
        {"epsilon": 0.5, "people": 200},
    ]
    assert workspace.session.balance("u0") == 0.1  # below the threshold, and not charged
    assert workspace.session.balance("u2") == 1.5
    told = client.post("/api/audit", json={"table": table, "key": "t"}).json()
    assert "ε" in told["words"] or "lost" in told["words"]
    for name in ("sampled", "limited"):
        refused = client.post("/api/plan", json={**asked, "parameters": {"baseline": name}})
        assert refused.status_code == 422


def test_a_form_offers_baselines_and_its_script_has_them(client, table):
    asked = {"question": "mean", "column": "salary", "share": "50", "baseline": "threshold"}
    asked["threshold"] = "0.2"
    page = client.get(f"/question/{table}", params=asked)
    assert page.status_code == 200
    assert "takes part at it, and nobody else does" in page.text
    script = client.get("/release/ask.py", params={**asked, "table": table})
    assert "QUESTION = sv.Threshold(sv.Mean(" in script.text
    assert "), threshold=0.2)\n" in script.text


def test_steps_of_the_schema_and_the_whole_distribution(client, rows):
    table = client.post("/api/tables", files={"table": ("salaries.csv", rows)}).json()["id"]
    age = {"kind": "number", "low": 18, "high": 90, "step": 1}
    schema = {"person": "id", "budget": "epsilon", "columns": {"age": age}}
    assert client.put(f"/api/tables/{table}/schema", json=schema).status_code == 204
    asked = {"table": table, "question": "quantile", "column": "age"}
    planned = client.post("/api/plan", json={**asked, "parameters": {"q": "all"}})
    assert planned.status_code == 200
    for q in ("most", ["all"], ""):
        refused = client.post("/api/plan", json={**asked, "parameters": {"q": q}})
        assert refused.status_code == 422
    wide = {**schema, "columns": {"age": {**age, "step": 100}}}
    assert client.put(f"/api/tables/{table}/schema", json=wide).status_code == 422


def test_an_audit_is_confidential_and_sums_up(client, workspace, table):
    grants = {f"u{i}": 2.0 for i in range(300)}
    workspace.session.grant(grants, currency="epsilon, delta", neighbours="zero out", delta=1e-3)
    asked = {
        "table": table,
        "question": "posterior",
        "column": "salary",
        "key": "p",
        "parameters": {"alpha": 300},
    }
    job = done(workspace, client.post("/api/release", json=asked).json()["job"])
    assert job.state == "done", job.sentence
    told = client.post("/api/audit", json={"table": table, "key": "p"}).json()
    assert told["confidential"] is True
    assert "ε" in told["words"]


def test_a_market_is_settled_from_reports_alone(client):
    offered = {
        "costs": {f"s{i}": 1 + i / 10 for i in range(20)},
        "prior": {"law": "uniform", "numbers": [1, 5]},
    }
    bought = client.post("/api/market", json={**offered, "budget": 10.0}).json()
    assert 0 < bought["total"] <= 10
    assert set(bought["epsilon"]) == set(offered["costs"])
    cheap = client.post("/api/market", json={**offered, "budget": 10.0, "reserve": 2.0}).json()[
        "epsilon"
    ]
    assert {name for name, epsilon in cheap.items() if epsilon} <= {f"s{i}" for i in range(11)}
    seen = {
        **offered,
        "budget": 10.0,
        "prior": {"law": "empirical", "numbers": [1 + i / 10 for i in range(40)]},
    }
    assert 0 < client.post("/api/market", json=seen).json()["total"] <= 10
    convex = {**offered, "budget": 10.0, "loss": {"kind": "power", "numbers": [2]}}
    told = client.post("/api/market", json=convex).json()
    known = sv.market.Market(
        offered["costs"],
        prior=sv.market.prior.uniform(1, 5),
        trade_off=0.1,
        dimension=11,
        cap=1.0,
        loss=sv.market.loss.power(2),
    ).within(10.0)
    assert told["epsilon"] == known.by_person()
    assert told["epsilon"] != bought["epsilon"], "another loss is another allocation"
    for wrong in (
        {},
        {"budget": 1.0, "loss": {"kind": "power", "numbers": [0.5]}},
        {"budget": 1.0, "loss": {"kind": "power", "numbers": [2, 2]}},
        {"budget": 1.0, "loss": {"kind": "piecewise", "numbers": [0.5, 0.2, 1]}},
        {"budget": 1.0, "loss": {"kind": "table", "numbers": []}},
        {"budget": 1.0, "prior": {"law": "uniform", "numbers": [1, 2, 3]}},
        {"budget": 1.0, "prior": {"law": "empirical", "numbers": [-1, 2, 3]}},
        {"trade_off": 1.0, "reserve": 2.0},
    ):
        answer = client.post("/api/market", json={**offered, **wrong})
        assert answer.status_code == 422
        assert "--" not in answer.text, "options of the command line are fields here"


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("/api/plan", {"table": SECRET, "question": SECRET}, "question"),
        ("/api/plan", {"table": SECRET, "question": "mean", "share": 41234}, "share"),
        ("/api/plan", {"table": SECRET, "question": "mean", SECRET: 1}, ""),
        ("/api/plan", {"table": {SECRET: SECRET}, "question": "mean"}, "table"),
        ("/api/ledger/grants", {"grants": {SECRET: -41234}}, "grants"),
        ("/api/ledger/grants", {"grants": {SECRET: "x" + SECRET}}, "grants"),
        (
            "/api/market",
            {"costs": {SECRET: -1}, "prior": {"law": SECRET, "numbers": [1, 2]}},
            "costs",
        ),
    ],
)
def test_what_was_sent_is_not_repeated(client, path, body, field):
    answer = client.post(path, json=body)
    assert answer.status_code == 422
    assert answer.json()["fields"][0]["field"] == field
    assert "41234" not in answer.text
    assert "zanzibar" not in answer.text


def test_what_the_library_refuses_is_told_in_words_of_a_page(client, table):
    asked = {"table": table, "question": "mean", "column": "salary", "parameters": {}}
    for wrong, words in (
        ({"table": "nothing"}, "no such table"),
        ({"column": "nothing"}, "does not give the range"),
        ({"parameters": {"alpha": 1}}, "takes: by, where, shares, spread"),
        ({"question": "logistic"}, "two or more levels"),
        ({"parameters": {"spread": "x"}}, "Missing or wrong: parameters.spread."),
    ):
        answer = client.post("/api/plan", json={**asked, **wrong})
        assert answer.status_code == 422, wrong
        assert words in answer.json()["error"]
        assert "--" not in answer.json()["error"]


def test_nothing_that_is_not_json_breaks_it(client):
    for body in (
        b"",
        b"{",
        b"\xff\xfe",
        b"[" * 5000,
        json.dumps("x").encode(),
        b"NaN",
        b'{"table": NaN}',
    ):
        assert client.post("/api/plan", content=body).status_code in (400, 422)
        headers = {"content-type": "multipart/form-data; boundary=x"}
        assert client.post("/api/tables", content=body, headers=headers).status_code in (400, 422)


@pytest.mark.parametrize(
    "value",
    [[1.0], [], {"a": 1}, 3, "x", True, "\ud800", 10**400],
    ids=lambda value: ascii(value)[:9],
)
def test_a_parameter_of_a_wrong_kind_is_refused_by_its_name(client, table, value):
    """`neighbours` as a list was a 500 once: each is looked at by the option that it is for, before
    the library.
    """
    for question, kind in list_questions().items():
        for option in kind.form_parameters:
            if option.kind == "numbers" and value == [1.0]:
                continue
            asked = {
                "table": table,
                "question": question,
                "column": "salary",
                "parameters": {option.name: value},
            }
            answer = client.post("/api/plan", content=json.dumps(asked), headers=JSON)
            words = option.kind in ("text", "texts")
            if value == 3 and not (option.choices or option.most < 3 or words):
                assert "Missing or wrong" not in answer.text
                continue
            assert answer.status_code == 422, (question, option.name)
            assert [field["field"] for field in answer.json()["fields"]] == [
                f"parameters.{option.name}"
            ]


def test_whatever_stands_in_any_field_is_refused_by_its_name_and_breaks_nothing(
    client, workspace, table
):
    """What no field takes, in every field of every verb, however deep the field lies."""
    schema = workspace.schemas[table]
    books = actions.read_entries(workspace)[-1]
    declared = list_declared_fields()
    for method, path, body in hostile_json.good(table):
        for field in hostile_json.fields(body):
            for value in (*hostile_json.NEVER, hostile_json.deep()):
                wrong = hostile_json.put(body, field, value)
                answer = client.request(method, path, content=json.dumps(wrong), headers=JSON)
                assert answer.status_code == 422, (path, field)
                if field == ("parameters",) and isinstance(value, dict):
                    assert "takes: " in answer.json()["error"]
                    continue
                name = next(str(part) for part in reversed(field) if part in declared)
                assert name in [
                    part for one in answer.json()["fields"] for part in one["field"].split(".")
                ], field
    assert workspace.schemas[table] is schema
    assert actions.read_entries(workspace)[-1] == books


def made_up(app, ask, mode, examples) -> None:
    """Has schemathesis make up so many requests of every verb: such as are described, or such as
    are not.
    """
    schema = schemathesis.openapi.from_dict(app.openapi())
    schema.app = app
    settings = hypothesis.settings(
        max_examples=examples,
        database=None,
        derandomize=True,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    for operation in (result.ok() for result in schema.get_all_operations()):
        asked = settings(hypothesis.given(case=operation.as_strategy(generation_mode=mode))(ask))
        with suppress(Unsatisfiable):  # a verb without words cannot be asked wrongly
            asked()


def real(case, table) -> bool:
    """Puts a table that is there in the place of a made-up one; says whether there was a place."""
    if case.method == "DELETE":
        return False
    if case.path_parameters and "table" in case.path_parameters:
        case.path_parameters["table"] = table
        return True
    if not isinstance(case.body, dict) or "table" not in case.body:
        return False
    if case.path == "/api/tables":
        case.body = {"table": b"a,b\n1,2\n"}
    else:
        case.body = {**case.body, "table": table, **ABOUT.get(case.path, {})}
    return True


class Asking:
    """Sends what was made up, and then the same about a table that is there; counts, and looks at
    the books.
    """

    def __init__(self, client, workspace, table):
        self.client = client
        self.workspace = workspace
        self.table = table
        self.statuses = Counter()
        self.schema = workspace.schemas[table]

    def __call__(self, case):
        self.send(case)
        if real(case, self.table):
            self.send(case)

    def send(self, case):
        before = actions.read_entries(self.workspace)[-1]
        answer = case.call(base_url=HOME, headers=OWN, cookies=dict(self.client.cookies))
        case.validate_response(answer, checks=CHECKED)
        self.statuses[answer.status_code] += 1
        self.workspace.schemas[self.table] = self.schema
        refused = answer.status_code >= 400
        if answer.status_code == 202:
            refused = not done(self.workspace, answer.json()["job"]).committed
        if refused:
            assert actions.read_entries(self.workspace)[-1] == before, (
                "a refused request changed the books"
            )


def own_examples(app, ask, table, values) -> None:
    """Has schemathesis send what our own list makes of every field, and check the answers as it
    checks its own.
    """
    schema = schemathesis.openapi.from_dict(app.openapi())
    schema.app = app
    for method, path, body in hostile_json.good(table):
        where = path.replace(table, "{table}")
        if where != path:
            place = {"table": table}
        else:
            place = {}
        for field in hostile_json.fields(body):
            for value in values:
                wrong = hostile_json.put(body, field, value)
                ask.send(
                    schema[where][method].Case(
                        path_parameters=place, body=wrong, media_type="application/json"
                    )
                )


@pytest.mark.parametrize(
    "values", [SOME, pytest.param(hostile_json.SELDOM, marks=pytest.mark.long)]
)
def test_schemathesis_finds_nothing_in_our_own_examples(app, client, workspace, table, values):
    ask = Asking(client, workspace, table)
    own_examples(app, ask, table, values)
    assert sum(ask.statuses.values()) > 80 * len(values), ask.statuses
    assert max(ask.statuses) < 500
    workspace.session.verify()


@pytest.mark.parametrize(
    ("described", "otherwise", "least"),
    [(20, 6, 450), pytest.param(800, 250, 20_000, marks=pytest.mark.long)],
)
def test_made_up_requests_break_nothing(app, client, workspace, table, described, otherwise, least):
    ask = Asking(client, workspace, table)
    made_up(app, lambda case: ask(case), GenerationMode.POSITIVE, described)
    made_up(app, lambda case: ask(case), GenerationMode.NEGATIVE, otherwise)
    assert sum(ask.statuses.values()) >= least, ask.statuses
    assert max(ask.statuses) < 500
    assert {200, 201, 202, 204, 404, 409, 422} <= set(ask.statuses), "every kind of answer was seen"
    workspace.session.verify()


def test_noise_is_drawn_under_make_release(client, workspace, table, monkeypatch):
    seen = witness(monkeypatch)
    asked = {"table": table, "question": "mean", "column": "salary", "key": "m"}
    assert done(workspace, client.post("/api/release", json=asked).json()["job"]).state == "done"
    assert seen.inside
    assert seen.outside == []
