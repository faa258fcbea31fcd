"""Whatever is passed, it is answered or refused by an error of our own tree, which repeats nothing
of what was passed.

Calls are generated: a good call in which one or two arguments are exchanged for something that does
not belong there. Each run has a seed of its own, which a failure prints; nothing here depends on
luck, since no call may fail.
"""

from __future__ import annotations

import copy
import datetime
import json
import math
import random
import secrets
import traceback
import warnings
from collections import Counter
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import sottovoce as sv
from sottovoce import errors

SECRET = "hush-4711"
CALLS = 1500
SEED = 20_261_118
MANY = 30_000
N = 8
X = np.linspace(0, 1, 2 * N).reshape(N, 2)
Y = np.linspace(0, 1, N)
WHO = [f"p{k % 4}" for k in range(N)]
BOUNDS = sv.Bounds(features=(0, 1), label=(0, 1))
FRAME = pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "y": Y, "who": WHO, "eps": [1.0] * N})
TOML = """
person = "who"
budget = "eps"
label = "y"
[tiers]
low = 0.5
[columns.a]
kind = "number"
low = 0
high = 1
missing = 0.5
[columns.f]
kind = "factor"
levels = ["u", "v"]
[columns.y]
kind = "number"
low = 0
high = 1
"""


class Bomb:
    """An object in whose every corner somebody else's code fails, quoting a value."""

    def _fail(self, *_: Any, **__: Any) -> Any:
        raise RuntimeError(SECRET)

    __len__ = __iter__ = __array__ = __float__ = __int__ = __index__ = __getitem__ = __bool__ = (
        _fail
    )


class Unhashable(dict):  # type: ignore[type-arg]
    """A mapping that is not what it seems."""

    def __iter__(self) -> Any:
        return iter([[SECRET]])


def deep(depth: int) -> Any:
    nested: Any = []
    for _ in range(depth):
        nested = [nested]
    return nested


HOSTILE: list[Any] = [
    None,
    math.nan,
    math.inf,
    -math.inf,
    0,
    -1,
    1,
    2,
    0.5,
    True,
    10**400,
    -(10**400),
    2**63,
    2**64,
    1e308,
    5e-324,
    -0.0,
    1j,
    "",
    "nothing",
    "\ud800",
    "a\0b",
    "rows",
    "y",
    "who",
    "nowhere.csv",
    "x" * 5000,
    b"",
    b"\xff",
    bytearray(b"x"),
    [],
    [[]],
    [None],
    [math.nan] * N,
    [SECRET] * N,
    [[1, 2], [3]],
    [1, [2, 3]],
    [[0.5] * N],
    [10**400] * N,
    [0.5] * (N - 1),
    [None] * N,
    ["a", 1] * 4,
    [{}] * N,
    deep(50),
    (),
    (0, 1),
    (1, 0),
    (0, math.nan),
    (SECRET, SECRET),
    (0, 10**400),
    {},
    {None: 1.0},
    {"p0": None},
    {"p0": SECRET},
    dict.fromkeys(WHO, 1.0),
    {who: [1.0] for who in WHO},
    {math.nan: 1.0},
    {"": 1.0},
    {"\ud800": 1.0},
    {(1, 2): 1.0, (1,): 2.0},
    {10**400: 1.0},
    Unhashable(p0=1.0),
    set(),
    {1, 2},
    frozenset(),
    object(),
    Bomb(),
    Bomb,
    [Bomb()] * N,
    len,
    lambda *_: 1 / 0,
    range(N),
    range(3),
    iter([1.0] * N),
    (k for k in range(N)),
    np.array(3.0),
    np.array([]),
    np.zeros((N, 0)),
    np.zeros((0, 2)),
    np.zeros((2, 2, 2)),
    np.zeros(N, dtype=complex),
    np.full(N, np.nan),
    np.array([SECRET] * N),
    np.array([SECRET, 1, None, [2]] * 2, dtype=object),
    np.zeros(N, dtype="datetime64[s]"),
    np.array(["NaT"] * N, dtype="datetime64[s]"),
    np.zeros(N, dtype=[("a", float)]),
    np.float32(0.5),
    np.int64(1),
    np.bool_(True),
    np.str_("nothing"),
    np.ma.masked,
    np.ma.masked_all(N),
    np.ma.array(Y, mask=[True, False] * 4),
    np.ma.array(X, mask=True),
    np.full(N, 1e308),
    np.array([10**400] * N, dtype=object),
    np.array(WHO),
    Y,
    X,
    pd.NA,
    pd.NaT,
    pd.Series(dtype=float),
    pd.Series([SECRET] * N),
    pd.Series([1.0] * N, index=range(5, 5 + N)),
    pd.Series([True, None] * 4, dtype="boolean"),
    pd.Series([1, None] * 4, dtype="Int64"),
    pd.Series({"p0": 1.0, "p1": 0.5}),
    pd.Series(dict.fromkeys(WHO, 1.0)),
    pd.Series(WHO, dtype="category"),
    pd.DataFrame(),
    FRAME,
    FRAME[["a", "b"]],
    pd.DataFrame({0: Y, 1: Y}),
    pd.DataFrame([[1, 2], [3, 4]], columns=["a", "a"]),
    pd.DataFrame({"a": [SECRET] * N}),
    pd.Timestamp("2026-01-01"),
    pd.Interval(0, 1),
    pd.Index(WHO),
    pl.Series([1.0] * N),
    pl.Series([SECRET] * N),
    pl.Series([[1.0]] * N),
    pl.DataFrame(),
    pl.from_pandas(FRAME),
    pa.array([None] * N),
    pa.array([SECRET] * N),
    pa.array([[1.0]] * N),
    pa.chunked_array([[1.0] * N]),
    pa.nulls(N),
    pa.table({}),
    pa.table(FRAME),
    pa.scalar(1.0),
    Decimal("NaN"),
    Decimal("0.5"),
    Fraction(1, 3),
    datetime.date(2026, 1, 1),
    datetime.timedelta(1),
    Path("nowhere.csv"),
    Path("nowhere.parquet"),
    Path("."),
    Ellipsis,
    NotImplemented,
    sv.Mean,
    sv.Mean(bounds=(0, 1)),
    sv.Budgets.of(1.0, rows=N),
    sv.Budgets.of(1.0, groups=WHO),
    sv.Budgets.of(1.0, rows=N + 3),
    sv.Schema.loads(TOML),
    sv.Schema(),
    sv.Bounds(),
    sv.Bounds(norm=1.0),
    sv.Bounds(label=(0, 1)),
    errors.InvalidData("x"),
    ValueError(SECRET),
    pl.from_pandas(FRAME).lazy(),
    pa.RecordBatch.from_pandas(FRAME),
    pd.DataFrame({"a": [2**70] * N, "y": Y, "who": WHO, "eps": 1.0}),
]

#: What stands in a schema where it does not belong.
JUNK = [
    "",
    "=",
    "[[]]",
    "nan",
    "low = nan",
    "low = inf",
    'low = "x"',
    f"missing = {10**400}",
    "levels = 3",
    "person = 5",
    "tiers = 3",
    "[columns]",
    "a.b.c = 1",
    '[columns."\\u0000"]',
    "x = " + "[" * 3000,
    "\ud800",
    "low = 2026-01-01",
    "levels = [[1], {a = 2}]",
    "kind = []",
    "high = -1",
    "columns = 1",
    "[tiers]\nlow = nan",
]

MAKERS: dict[str, tuple[Any, dict[str, Any]]] = {
    "Mean": (sv.Mean, {"bounds": (0, 1), "spread": 0.2, "missing": 0.5}),
    "Quantile": (
        sv.Quantile,
        {"q": 0.5, "bounds": (0, 1), "spread": 1.0, "cells": 64, "method": "permute-and-flip"},
    ),
    "Ridge": (
        sv.Ridge,
        {"bounds": BOUNDS, "method": "statistics", "alpha": 1.0, "rho": False, "missing": 0.5},
    ),
    "Ridge, output": (
        sv.Ridge,
        {
            "bounds": BOUNDS,
            "method": "output",
            "alpha": 50.0,
            "coefficient_bound": 1.0,
            "missing": None,
        },
    ),
    "Ridge, objective": (
        sv.Ridge,
        {"bounds": BOUNDS, "method": "objective", "loss": "soft", "label_scale": 0.3},
    ),
    "LogisticRegression": (
        sv.LogisticRegression,
        {
            "bounds": BOUNDS,
            "classes": (0, 1),
            "public": None,
            "alpha": 0.1,
            "fit_intercept": True,
            "neighbours": "replace",
            "accountant": "exact",
        },
    ),
    "ERM": (
        sv.ERM,
        {
            "loss": "squared",
            "bounds": BOUNDS,
            "delta": 1e-6,
            "constraint": "ball",
            "radius": 1.0,
            "clip": 1.0,
            "steps": 2,
            "sampling": None,
            "iterate": "last",
        },
    ),
    "PosteriorSample": (
        sv.PosteriorSample,
        {
            "gamma": 1.0,
            "alpha": 20.0,
            "bounds": BOUNDS,
            "delta": 1e-6,
            "fit_intercept": True,
            "missing": None,
        },
    ),
    "LabelPrivateRegression": (
        sv.LabelPrivateRegression,
        {
            "label_bounds": (0, 1),
            "noise_variance": 0.1,
            "fit_intercept": True,
            "sensitivity": "exact",
            "missing": 0.5,
        },
    ),
    "Uniform": (sv.Uniform, {"estimator": sv.Mean(bounds=(0, 1))}),
    "Threshold": (sv.Threshold, {"estimator": sv.Mean(bounds=(0, 1)), "threshold": 0.5}),
    "Sampled": (sv.Sampled, {"estimator": sv.Mean(bounds=(0, 1)), "threshold": "max", "null": 0.5}),
    "Limited": (sv.Limited, {"estimator": sv.Mean(bounds=(0, 1)), "rows": 1, "salt": "s"}),
}
ONE_COLUMN = ("Mean", "Quantile", "Uniform", "Threshold", "Sampled", "Limited")


class Calls:
    """Generates good calls with something hostile in them."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.call = ""
        release = sv.Ridge(bounds=BOUNDS, method="statistics").fit(X, Y, epsilon=1.0).release_
        classes = sv.LogisticRegression(bounds=BOUNDS, classes=(0, 1)).fit(
            X, np.arange(N) % 2, epsilon=1.0
        )
        self.models = [
            sv.Ridge.from_release(release),
            sv.LogisticRegression.from_release(classes.release_),
            classes,
        ]
        self.releases = [
            release.to_json(),
            sv.Mean(bounds=(0, 1)).fit(Y, epsilon=1.0).release_.to_json(),
        ]

    def spoilt(self, good: dict[str, Any]) -> dict[str, Any]:
        """Exchanges one or two arguments."""
        spoilt = dict(good)
        for name in self.chance.sample(
            list(good), self.chance.choice([1, 1, 2]) if len(good) > 1 else 1
        ):
            which = self.chance.randrange(len(HOSTILE))
            self.call += f" {name}=HOSTILE[{which}]"
            spoilt[name] = HOSTILE[which]
        return spoilt

    def one(self) -> None:
        """Makes one call."""
        kind = self.chance.choice(self.KINDS)
        self.call = kind.__name__
        kind(self)

    def fit(self) -> None:
        name = self.chance.choice(list(MAKERS))
        self.call += f" {name}"
        make, parameters = MAKERS[name]
        if self.chance.random() < 0.4:
            parameters = self.spoilt(parameters)
        if name in ONE_COLUMN:
            data = {"y": Y}
        else:
            data = {"X": X, "y": Y if name != "LogisticRegression" else np.arange(N) % 2}
        given = {**data, "epsilon": 1.0, "groups": WHO}
        if self.chance.random() < 0.3:
            given = {
                "y" if name in ("Mean", "Quantile") else "X": FRAME,
                "epsilon": "eps",
                "groups": "who",
            }
            given |= {"column": "y"} if name in ("Mean", "Quantile") else {"y": "y"}
        make(**parameters).fit(**(given if self.chance.random() < 0.2 else self.spoilt(given)))

    def plan(self) -> None:
        name = self.chance.choice([name for name in MAKERS if name != "LabelPrivateRegression"])
        self.call += f" {name}"
        make, parameters = MAKERS[name]
        if (
            self.chance.random() < 0.5 and "estimator" not in parameters
        ):  # around nothing there is no plan to call
            parameters = self.spoilt(parameters)
        given: dict[str, Any] = {"epsilon": 1.0, "groups": None, "rows": N}
        if name not in ONE_COLUMN:
            given["n_features"] = 2
        make(**parameters).plan(**self.spoilt(given))

    def session(self) -> None:
        session = sv.Session()
        session.grant(dict.fromkeys(WHO, 5.0))
        good: dict[str, Any] = {"groups": WHO, "key": "k", "epsilon": 0.5}
        session.release(sv.Mean(bounds=(0, 1)), **self.spoilt({"X": Y, **good}))

    def session_of_frame(self) -> None:
        session = sv.Session()
        session.grant(dict.fromkeys(WHO, 5.0))
        good: dict[str, Any] = {"X": FRAME, "y": "y", "groups": "who", "key": "k", "epsilon": 0.5}
        session.release(sv.Mean(bounds=(0, 1)), **self.spoilt(good))

    def grant(self) -> None:
        self._unchanged(
            lambda session: session.grant(
                **self.spoilt({"budgets": {"p0": 1.0}, "people": None, "delta": None})
            ),
        )

    def charge(self) -> None:
        self._unchanged(
            lambda session: session.charge(**self.spoilt({"amounts": {"p0": 1.0}, "key": "k"}))
        )

    def ask(self) -> None:
        verb = self.chance.choice(["balance", "history"])
        self._unchanged(lambda session: getattr(session, verb)(**self.spoilt({"person": "p0"})))

    def _unchanged(self, call: Any) -> None:
        """Whatever was refused has changed nothing."""
        session = sv.Session()
        session.grant({"p0": 5.0})
        try:
            call(session)
        except errors.SottovoceError:
            assert session.balance("p0") == 5.0
            raise

    def budgets(self) -> None:
        good = {"epsilon": 1.0, "groups": WHO, "rows": None, "zero": "refuse"}
        sv.Budgets.of(**self.spoilt(good))

    def listed(self) -> None:
        sv.Budgets.listed(
            **self.spoilt({"people": ["p0", "p1"], "epsilon": [1.0, 0.5], "groups": ["p0", "p1"]})
        )

    def tiers(self) -> None:
        sv.Budgets.tiers(**self.spoilt({"levels": {"u": 0.5}, "tier": ["u", "u"], "groups": None}))

    def bounds(self) -> None:
        sv.Bounds(**self.spoilt({"features": (0, 1), "label": (0, 1), "norm": 1.0}))

    def schema(self) -> None:
        good = {"columns": {}, "person": "who", "budget": "eps", "label": "y", "tiers": {}}
        sv.Ridge(bounds=sv.Schema(**self.spoilt(good))).fit(FRAME)

    def schema_text(self) -> None:
        lines = TOML.splitlines()
        for _ in range(self.chance.choice([1, 1, 2])):
            place = self.chance.randrange(len(lines))
            junk = self.chance.choice(JUNK)
            if self.chance.random() < 0.7:
                lines[place] = junk
            else:
                lines[place] = lines[place] + "\n" + junk
        sv.Ridge(bounds=sv.Schema.loads("\n".join(lines))).plan(epsilon=1.0, groups=WHO)

    def schema_loads(self) -> None:
        self.chance.choice([sv.Schema.load, sv.Schema.loads])(self.chance.choice(HOSTILE))

    def release(self) -> None:
        sv.Release.from_json(self.spoilt({"text": "{}"})["text"])

    def release_file(self) -> None:
        text = self._spoilt_json(json.loads(self.chance.choice(self.releases)))
        release = sv.Release.from_json(text)
        release.explain()
        for model in (sv.Ridge, sv.LogisticRegression, sv.ERM, sv.PosteriorSample):
            try:
                model.from_release(release).predict(X)
            except errors.SottovoceError:
                continue

    def _spoilt_json(self, content: dict[str, Any]) -> str:
        text = json.dumps(content)
        how = self.chance.randrange(6)
        if how == 0:  # a piece is lost, or something stands in its place
            start = self.chance.randrange(len(text))
            return (
                text[:start]
                + self.chance.choice(["", "NaN", "}", "[" * 100_000, "1" * 5000, '"'])
                + text[start + 3 :]
            )
        if how == 1:  # a key comes twice
            return text[:-1] + ', "value": 7, "question": "mean"}'
        for _ in range(self.chance.choice([1, 1, 2, 3])):
            self._exchange(content)
        return json.dumps(content)

    def _exchange(self, content: Any) -> None:
        place: Any = content
        while True:
            if isinstance(place, dict):
                keys = list(place)
            else:
                keys = list(range(len(place)))
            if not keys:
                return
            key = self.chance.choice(keys)
            if isinstance(place[key], dict | list) and self.chance.random() < 0.7:
                place = place[key]
                continue
            self.call += f" {key}"
            if self.chance.random() < 0.2:
                del place[key]
            else:
                junk = [
                    None,
                    math.nan,
                    math.inf,
                    10**400,
                    -1,
                    0,
                    1e308,
                    "",
                    "x",
                    [],
                    {},
                    [[]],
                    deep(30),
                    True,
                    {"a": {}},
                ]
                place[key] = copy.deepcopy(self.chance.choice(junk))
            return

    def predict(self) -> None:
        model = self.chance.choice(self.models)
        verb = self.chance.choice(
            [v for v in ("predict", "predict_proba", "decision_function") if hasattr(model, v)]
        )
        getattr(model, verb)(self.spoilt({"X": X})["X"])

    def asked_of_session(self) -> None:
        session = sv.Session()
        session.grant(dict.fromkeys(WHO, 5.0))
        session.release(
            self.spoilt({"question": sv.Mean(bounds=(0, 1))})["question"], Y, groups=WHO, key="k"
        )

    def market(self) -> None:
        laws = sv.market.prior
        law = {
            laws.uniform: {"low": 0.1, "high": 0.5},
            laws.normal: {"mean": 0.3, "deviation": 0.1, "low": 0.1, "high": 0.5},
            laws.exponential: {"scale": 0.1, "low": 0.1, "high": 0.5},
            laws.lognormal: {"median": 0.2, "deviation": 0.3, "low": 0.1, "high": 0.5},
            laws.empirical: {"seen": [0.1, 0.2, 0.3], "high": 0.5},
        }
        make, good = self.chance.choice(list(law.items()))
        prior = make(**(self.spoilt(good) if self.chance.random() < 0.5 else good))
        given = {
            "costs": [0.1, 0.2, 0.3],
            "prior": prior,
            "trade_off": 1e-3,
            "dimension": 2,
            "cost_range": (0.1, 0.5),
        }
        market = sv.market.Market(**self.spoilt(given))
        deal = market.within(**self.spoilt({"budget": 0.1, "rule": "ceiling", "reserve": 0.4}))
        deal.explain(self.spoilt({"seller": 0})["seller"])
        deal.by_person(self.spoilt({"people": ["a", "b", "c"]})["people"])
        market.frontier(self.spoilt({"trade_offs": [1e-3]})["trade_offs"])

    def told(self) -> None:
        given = self.spoilt({"x": 0.5, "y": 1e-6, "z": 0.5})
        x, y, z = given.values()
        plan = sv.Mean(bounds=(0, 1)).plan(1.0, rows=N)
        classified = sv.LogisticRegression(bounds=BOUNDS, classes=(0, 1)).plan(
            1.0, rows=50, n_features=2
        )
        self.chance.choice(
            [
                lambda: sv.optimal_weights(x, A=z),
                lambda: plan.guarantee.approximate(y),
                lambda: classified.error_bound(z),
                lambda: sv.Release.load(x),
                lambda: sv.audit.gaussian_epsilon(x, y),
                lambda: sv.audit.posterior_epsilon(x, z, y),
                lambda: sv.audit.generalisation(x, y),
                lambda: sv.audit.group(x, y),
                lambda: sv.audit.compose(x, y),
                lambda: sv.audit.pdp_to_dp(x),
                lambda: sv.audit.GaussianOutput(x, z),
                lambda: sv.audit.histogram([x], [0, z], z),
                lambda: sv.audit.mine(x, (y, z)),
            ]
        )()

    KINDS = (
        fit,
        fit,
        fit,
        fit,
        plan,
        plan,
        session,
        session_of_frame,
        grant,
        charge,
        ask,
        budgets,
        listed,
        tiers,
        bounds,
        schema,
        schema_text,
        schema_loads,
        release,
        release_file,
        release_file,
        predict,
        asked_of_session,
        market,
        told,
    )


def leaks(error: BaseException) -> bool:
    """Whether the error, or one that it carries along, repeats what was passed."""
    link: BaseException | None = error
    while link is not None:
        told = "".join(traceback.format_exception_only(link)) + repr(getattr(link, "__dict__", ""))
        if SECRET in told:
            return True
        link = link.__cause__ or link.__context__
    return False


def outside(count: int, seed: int) -> Counter[str]:
    """Returns what was raised that is not of our tree, or leaks; with how to make the call."""
    found: Counter[str] = Counter()
    calls = Calls(seed)
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore"
        )  # NumPy and pandas complain about what is passed, in their own words
        for number in range(count):
            try:
                calls.one()
            except errors.SottovoceError as error:
                if leaks(error):
                    found[f"leak in call {number}: {calls.call}: {type(error).__name__}"] += 1
            except Exception as error:
                found[f"call {number}: {calls.call}: {type(error).__name__}: {error}"] += 1
    return found


def test_no_call_ends_outside_our_errors():
    """The same calls every time; the long test below makes others each time it is run."""
    found = outside(CALLS, SEED)
    assert not found, f"{sum(found.values())} of {CALLS}: {list(found)[:20]}"


@pytest.mark.parametrize("baseline", [sv.Uniform, sv.Threshold, sv.Sampled, sv.Limited])
def test_a_schema_in_the_place_of_a_table_is_refused(baseline):
    """It has names of columns, among which people were looked for."""
    schema = sv.Schema.of({"y": (0, 1)})
    with pytest.raises(errors.SottovoceError):
        baseline(sv.Mean(bounds=(0, 1))).fit(schema, epsilon=1.0, groups="y")


def test_text_that_ends_in_the_middle_of_a_sign_is_refused(tmp_path):
    """UTF-16 of an odd number of bytes ended in an error of the codec, which quotes a byte."""
    table = tmp_path / "cut.csv"
    table.write_bytes("y,e\n0.5,1\n0.5,1\n".encode("utf-16")[:-1])
    with pytest.raises(errors.SottovoceError):
        sv.Mean(bounds=(0, 1)).fit(table, column="y", epsilon=1.0)


def test_batches_of_arrow_are_tables():
    batch = pa.RecordBatch.from_pandas(FRAME)
    release = sv.Mean(bounds=(0, 1)).fit(batch, column="y", epsilon="eps", groups="who").release_
    assert (release.column, release.guarantee["people"]) == ("y", 4)


@pytest.mark.long
def test_no_call_of_many_ends_outside_our_errors():
    seed = secrets.randbits(32)
    found = outside(MANY, seed)
    assert not found, f"seed {seed}: {sum(found.values())} of {MANY}: {list(found)[:20]}"


#: Parameters that are numbers, but too large or too small to calculate with; each ended in an error
#: of Python's.
EXTREME = {
    "Ridge": {"alpha": 1e308},
    "Ridge, output": {"coefficient_bound": 1e308},
    "Ridge, output, a fraction": {"alpha": Fraction(100)},
    "LogisticRegression": {"alpha": 1e-320},
    "ERM": {"delta": 5e-324},
    "PosteriorSample": {"gamma": 1e308},
    "PosteriorSample, alpha": {"alpha": 5e-324},
    "LabelPrivateRegression": {"noise_variance": 10**400},
    "Sampled": {"threshold": 10**400},
    "Threshold": {"threshold": 10**400},
    "Limited": {"salt": "\ud800"},
}


@pytest.mark.parametrize("name", EXTREME)
def test_parameters_beyond_all_measure_are_refused(name):
    known = max((maker for maker in MAKERS if name.startswith(maker)), key=len)
    make, parameters = MAKERS[known]
    if known == "LogisticRegression":
        y = np.arange(N) % 2
    else:
        y = Y
    asked = make(**{**parameters, **EXTREME[name]})
    if "fraction" in name:
        asked.fit(X, y, epsilon=1.0, groups=WHO)
        return
    with pytest.raises(errors.SottovoceError):
        asked.fit(*([y] if known in ONE_COLUMN else [X, y]), epsilon=1.0, groups=WHO)


@pytest.mark.parametrize("floor", [1e15, 2**63, Fraction(3)])
def test_floors_beyond_all_measure_are_refused(floor):
    with pytest.raises(errors.SottovoceError):
        sv.AdaptivePosteriorSample(bounds=BOUNDS, floor=floor).fit(X, Y, epsilon=1.0, groups=WHO)
