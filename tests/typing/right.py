"""What a user writes: no type checker has anything to say about it. It is read, never run."""

from pathlib import Path
from typing import Any, assert_type

import numpy as np
from numpy.typing import NDArray

import sottovoce as sv


def ask() -> None:
    mean = sv.Mean(bounds=(0, 1)).fit([1.0], epsilon=1.0)
    assert_type(mean, sv.Mean)
    assert_type(mean.value_, float)
    assert_type(mean.release_, sv.Release)
    assert_type(mean.guarantee_, sv.Guarantee)
    assert_type(mean.plan(epsilon={"ada": 1.0}, groups=["ada"]), sv.Plan)
    sv.Mean(bounds=sv.Bounds(label=(0, 1))).fit(Path("table.parquet"), "epsilon", "id", "cost")
    count = sv.Count(by={"region": ["north", "south"]}).fit(Path("table.parquet"), epsilon="eps")
    assert_type(count, sv.Count)
    assert_type(count.table_.rows(), list[dict[str, Any]])
    assert_type(sv.Variance((0, 1)).fit([0.5], epsilon=1.0), sv.Variance)
    sv.Mean(np.array([0.0, 1.0])).fit(np.ones(3), epsilon=np.full(3, 0.5))
    sv.Quantile([0.25, 0.75], bounds=(0, 1)).fit([0.5], epsilon=0.1)
    sv.Quantile(0.5, bounds=(0, 1)).plan(epsilon=[0.1, 0.2])


def model(X: NDArray[np.float64], y: NDArray[np.float64], schema: sv.Schema) -> None:
    ridge = sv.Ridge(bounds=schema, method="statistics").fit(X, y, epsilon=1.0)
    assert_type(ridge, sv.Ridge)
    assert_type(ridge.coef_, NDArray[np.float64])
    assert_type(ridge.intercept_, float)
    assert_type(ridge.predict(X), NDArray[np.float64])
    assert_type(ridge.score(X, y), float)
    assert_type(sv.Ridge.from_release(ridge.release_), sv.Ridge)
    assert_type(sv.LogisticRegression(bounds=schema).fit(X, y, 1.0), sv.LogisticRegression)
    assert_type(sv.PosteriorSample(bounds=schema).fit(X, y), sv.PosteriorSample)
    assert_type(sv.AdaptivePosteriorSample(bounds=schema).fit(X), sv.AdaptivePosteriorSample)
    assert_type(sv.ERM(bounds=schema, delta=1e-6).fit(X, y, 1.0), sv.ERM)
    labels = sv.LabelPrivateRegression(label_bounds=(0, 1)).fit(X, y, 1.0)
    assert_type(labels, sv.LabelPrivateRegression)
    assert_type(sv.Uniform(sv.Mean(bounds=(0, 1))).fit(y, epsilon=1.0), sv.Uniform)
    assert_type(sv.Limited(ridge, rows=2).fit(X, y, 1.0), sv.Limited)
    assert_type(sv.Sampled(ridge).fit(X, y, 1.0), sv.Sampled)


def keep_books(schema: sv.Schema) -> None:
    session = sv.Session(ledger="sqlite:///books.db")
    session.grant({"ada": 1.0})
    session.grant(sv.Budgets.of({"ada": 1.0}, groups=["ada"]))
    session.charge({"ada": 0.1}, key="survey")
    assert_type(session.balance("ada"), float)
    release = session.release(
        sv.Mean(bounds=schema), [0.5], groups=["ada"], epsilon={"ada": 0.1}, key="first"
    )
    assert_type(release, sv.Release)
    assert_type(release.to_json(), str)
    session.verify(release)


def look_back(release: sv.Release, X: NDArray[np.float64], y: NDArray[np.float64]) -> None:
    losses = sv.audit.per_instance(release, X, y, epsilon=0.5)
    assert_type(losses, sv.audit.PerInstance | sv.audit.RealisedLosses)
    assert_type(sv.audit.mine(release, ([1.0], 2.0)), sv.audit.Mine)
    assert_type(sv.audit.gaussian_epsilon(1.0, 1e-6), NDArray[np.float64])


def buy() -> None:
    market = sv.market.Market({"ada": 0.5}, trade_off=1.0, mu=1.0, sigma=1.0)
    assert_type(market.allocate(), sv.market.Allocation)
    assert_type(market.within(10.0).by_person(), dict[Any, float])
    assert_type(sv.market.prior.uniform(0.0, 1.0), sv.market.Prior)


def fail() -> sv.errors.SottovoceError:
    try:
        return sv.errors.InvalidBudget("found", "required", "what to do")
    except sv.errors.BudgetExceeded as error:
        return error
