"""JSON of wrong kinds for every field that programs may send: nested, huge, not a number, text that
is none, deep.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from sottovoce.estimators import list_questions

#: What no field of any verb takes.
NEVER: tuple[Any, ...] = (
    [[1]],
    [{"a": [1]}],
    {"a": {"b": [1]}},
    [None],
    10**400,
    -(10**400),
    [10**400],
    float("nan"),
    float("inf"),
)
#: What some fields take and others do not.
SELDOM: tuple[Any, ...] = (
    *(
        True,
        0,
        -1,
        1.5,
        10**20,
        1e308,
        5e-324,
        "",
        "x",
        "\ud800",
        "\udfff\ud800",
        "\0",
        "a\nb",
        "x" * 201,
        "1e999",
    ),
    *(
        "nan",
        [],
        [1],
        ["x"],
        [True],
        [1e308] * 3,
        {},
        {"a": 1},
        {"": {}},
        {"\ud800": 1},
        [0.5] * 2000,
    ),
    *({str(number): number for number in range(50)}, "\U0001f70f"),
)
DEEP = 300


def deep() -> Any:
    """Lists in lists."""
    made: Any = 1
    for _ in range(DEEP):
        made = [made]
    return made


def fields(body: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every field of a body, and every one inside it, by the names that lead to it."""
    if isinstance(body, dict):
        inside = body.items()
    elif isinstance(body, list):
        inside = enumerate(body)
    else:
        inside = ()
    for name, value in inside:
        yield (*above, name)
        yield from fields(value, (*above, name))


def put(body: Any, field: tuple[Any, ...], value: Any) -> Any:
    """The body with another value in one field."""
    made = json.loads(json.dumps(body))
    place = made
    for name in field[:-1]:
        place = place[name]
    place[field[-1]] = value
    return made


def good(table: str) -> list[tuple[str, str, dict[str, Any]]]:
    """For every verb with a body: method, path, and a body with all fields that it may have."""
    market = {
        "costs": {"s1": 1.0, "s2": 2.0},
        "prior": {"law": "uniform", "numbers": [1, 5]},
        "budget": 10.0,
    }
    terms = {
        "trade_off": None,
        "rule": None,
        "reserve": 2.0,
        "cap": 1.0,
        "features": 10,
        "norm": 1.0,
        "coin": 0.01,
        "mu": None,
        "sigma": None,
        "loss": {"kind": "power", "numbers": [2.0]},
    }
    salary = {
        "kind": "number",
        "low": 0,
        "high": 200_000,
        "missing": 5.0,
        "unit": "EUR",
        "levels": [],
    }
    schema = {
        "columns": {"salary": salary},
        "person": "id",
        "budget": "epsilon",
        "label": "salary",
        "name": "n",
    }
    asked = {"table": table, "column": "salary", "share": 0.5, "epsilon": None}
    questions = [
        {
            **asked,
            "question": name,
            "parameters": {option.name: None for option in kind.form_parameters},
        }
        for name, kind in list_questions().items()
    ]
    entry = {"ask": "mean", "column": "salary", "wanted": 9000.0, "share": None, "spread": 1e4}
    report = {"table": table, "share": 0.5, "epsilon": None, "questions": {"pay": entry}}
    return [
        *(("POST", "/api/plan", question) for question in questions),
        (
            "POST",
            "/api/release",
            {**asked, "question": "mean", "key": "k", "plan_digest": "0" * 64},
        ),
        ("POST", "/api/report/plan", report),
        ("POST", "/api/report/release", {**report, "key": "r", "plan_digest": "0" * 64}),
        ("PUT", f"/api/tables/{table}/schema", {**schema, "tiers": {"careful": 1.0}}),
        ("POST", "/api/ledger/grants", {"grants": {"ada": 1.0}}),
        ("POST", "/api/market", {**market, **terms}),
        ("POST", "/api/audit", {"table": table, "key": "k", "delta": 1e-6}),
    ]
