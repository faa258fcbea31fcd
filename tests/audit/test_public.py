"""Bounds that anybody computes from a release cover their own loss, and their histogram is
private.
"""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest

import sottovoce as sv
from sottovoce.accounting import profiles
from sottovoce.audit import leverages, public_bounds
from sottovoce.errors import Confidential, InvalidParameter

BALL = sv.Bounds(norm=1.0, label=(-1, 1))


def drawn(rng, n=1500, d=4):
    X = rng.normal(size=(n, d))
    X /= np.maximum(1, np.linalg.norm(X, axis=1))[:, None]
    return X, np.clip(X @ rng.uniform(-0.5, 0.5, d) + 0.2 * rng.normal(size=n), -1, 1)


@pytest.fixture(scope="module")
def runs():
    """200 data sets, each with a release of its own under one plan; true losses by the solvers, in
    50 rows of each.
    """
    model = sv.AdaptivePosteriorSample(epsilon=8.0, bounds=BALL)
    rng = np.random.default_rng()
    rows = model.read_arrays(*drawn(rng), epsilon=8.0, groups=None)
    budgets = rows.budgets
    plan = model.plan_for(budgets, rows)
    w = float(plan.weights.row[0] * plan.parameters["weight_unit"])
    found = []
    for _ in range(200):
        X, y = drawn(rng)
        release = model.release_under(plan, model.read_arrays(X, y, epsilon=8.0, groups=None))
        seen = leverages.compute_leverages(
            X, y, release.value["regularisation"], np.full(len(y), w)
        )
        a = math.sqrt(release.noise["gamma"]) * seen.residual[:50]
        truth = profiles.posterior_epsilon(seen.leverage[:50], a, 1e-6)
        found.append((public_bounds._compute_bounds(release, X[:50], y[:50], 0.01, None), truth))
    return found


@pytest.mark.xdist_group("calculator")  # the runs are slow to make, and made once
def test_the_calculator_covers_the_truth_and_is_near_it(runs):
    covered = np.array([bound.sample >= truth for bound, truth in runs])
    # Each row is covered with probability 0.99 at least; rows of one data set hang together, 200
    # data sets do not.
    assert covered.mean() >= 0.99
    assert np.median([np.median(bound.sample / truth) for bound, truth in runs]) <= 1.5
    assert all((bound.epsilon >= bound.sample).all() for bound, _ in runs)


@pytest.mark.xdist_group("calculator")
def test_a_calculator_without_its_margin_would_be_noticed(runs):
    """Planted bug: the noise in the published coefficients left out."""
    short = [
        bound.sample * (bound.error - 2.6 * np.sqrt(bound.share / 20)) / bound.error >= truth
        for bound, truth in runs
    ]
    assert np.mean(short) < 0.99


def test_both_releases_together_are_covered_too():
    rng = np.random.default_rng()
    X, y = drawn(rng)
    model = sv.AdaptivePosteriorSample(epsilon=4.0, bounds=BALL).fit(X, y)
    total = sv.audit.compose([sv.audit.per_instance(model, X, y)]).epsilon
    bound = sv.audit.bounds(model.release_, X, y)
    assert (bound >= total).mean() >= 0.95
    assert (bound <= model.guarantee_.epsilon).all()


def test_one_record_by_name_or_in_order():
    rng = np.random.default_rng(0)
    X, y = drawn(rng)
    release = sv.PosteriorSample(gamma=5.0, alpha=40.0, bounds=BALL).fit(X, y).release_
    own = sv.audit.mine(release, (X[3], float(y[3])))
    named = sv.audit.mine(release, ({f"x{j}": value for j, value in enumerate(X[3])}, float(y[3])))
    assert own == named
    assert own.epsilon == own.sample
    # Among others a row may be added up in another order.
    assert sv.audit.bounds(release, X[:10], y[:10])[3] == pytest.approx(own.epsilon, rel=1e-12)
    assert own.eigenvalue == 0
    assert own.share == pytest.approx(X[3] @ X[3] / 40)
    told = float(own.explain().split("lost at most ε = ")[1].split()[0])
    assert own.epsilon <= told <= 1.01 * own.epsilon  # a bound is rounded up
    assert sv.audit.mine(release, (X[3], float(y[3])), beta=1e-6).epsilon > own.epsilon


def test_where_the_leverage_may_be_large_the_promise_still_holds():
    X, y = drawn(np.random.default_rng(0), 50)
    for alpha in (
        1.2,
        0.5,
    ):  # h_u up to 0.83, where Rényi's curve is read, and above 1, where there is the promise only
        release = sv.PosteriorSample(gamma=0.1, alpha=alpha, bounds=BALL).fit(X, y).release_
        own = sv.audit.mine(release, ([1.0, 0, 0, 0], 1.0))
        assert own.share == pytest.approx(1 / alpha)
        assert own.epsilon <= own.promised
        truth = sv.audit.per_instance(release, X, y).for_one(([1.0, 0, 0, 0], 1.0), [(X, y)])
        assert truth[0] <= own.epsilon


def test_weights_must_be_told_where_they_differ():
    X, y = drawn(np.random.default_rng(0), 200)
    model = sv.PosteriorSample(gamma=5.0, alpha=20.0, bounds=BALL)
    equal = model.fit(X, y, epsilon=0.7)
    rows = model.read_arrays(X, y, epsilon=0.7, groups=None)
    plan = model.plan_for(rows.budgets, rows)
    w = float(plan.weights.row[0] * plan.parameters["weight_unit"])
    record = X[0], float(y[0])
    assert sv.audit.mine(equal.release_, record) == sv.audit.mine(equal.release_, record, weight=w)
    mixed = model.fit(X, y, epsilon=np.where(np.arange(200) % 2, 0.2, 2.0)).release_
    with pytest.raises(InvalidParameter, match="different weights"):
        sv.audit.mine(mixed, record)
    assert (
        sv.audit.mine(mixed, record, weight=0.01).epsilon
        < sv.audit.mine(mixed, record, weight=0.1).epsilon
    )


def test_what_is_no_posterior_sample_is_refused():
    X, y = drawn(np.random.default_rng(0), 100)
    box = sv.Bounds(features=(-1, 1), label=(-1, 1))
    ridge = sv.Ridge(bounds=box, method="output").fit(X, y, epsilon=1.0)
    sample = sv.PosteriorSample(bounds=BALL).fit(X, y)
    for release in (ridge.release_, sample, None):
        with pytest.raises(InvalidParameter, match="posterior sample"):
            sv.audit.mine(release, (X[0], 0.0))
    for beta in (0.0, 0.5, 1, float("nan")):
        with pytest.raises(InvalidParameter, match="β"):
            sv.audit.mine(sample.release_, (X[0], 0.0), beta=beta)
    with pytest.raises(InvalidParameter, match="pair"):
        sv.audit.mine(sample.release_, 3.0)


def test_the_histogram_has_the_noise_that_it_says():
    bounds = [0.05] * 30 + [0.3] * 20 + [9.0] * 10
    size = 1500
    seen = Counter()
    for _ in range(size):
        made = sv.audit.histogram(bounds, [0.0, 0.1, 1.0, 2.0], 0.5)
        seen[made.counts[0] - 30] += 1
        assert len(made.counts) == 3
    rate = math.exp(-0.5)
    zero = (1 - rate) / (1 + rate)  # P(Z = 0) of the discrete Laplace law at scale 2
    assert abs(seen[0] / size - zero) < 5.5 * math.sqrt(zero * (1 - zero) / size)
    assert abs(sum(k * v for k, v in seen.items()) / size) < 5.5 * math.sqrt(8.0 / size)
    # At 1.5 times the noise, or less by as much, zero would be seen 0.16 or 0.36 of the time.
    assert 5.5 * math.sqrt(zero * (1 - zero) / size) < 0.065


def test_the_histogram_says_what_it_promises():
    added = sv.audit.histogram([0.1, 0.2], [0, 1], 0.5)
    replaced = sv.audit.histogram([0.1, 0.2], [0, 1], 0.5, neighbours="replace")
    assert (added.scale, replaced.scale) == (math.nextafter(2, 3), math.nextafter(4, 5))
    assert "0.5-differential privacy" in added.guarantee
    assert "replace one row" in replaced.guarantee


def test_the_histogram_refuses_exact_losses_and_nonsense():
    X, y = drawn(np.random.default_rng(0), 60)
    model = sv.PosteriorSample(bounds=BALL).fit(X, y)
    audit = sv.audit.per_instance(model, X, y)
    for exact in (audit, audit.epsilon, [audit.for_all()]):
        with pytest.raises(Confidential, match="everybody's data"):
            sv.audit.histogram(exact, [0, 1], 1.0)
    own = sv.audit.mine(model.release_, (X[0], float(y[0])))
    for edges, epsilon, neighbours in (
        ([1, 0], 1.0, "replace"),
        ([0], 1.0, "replace"),
        ([0, 1], 0.0, "replace"),
        ([0, 1], 1.0, "swap"),
        ([0, np.inf], 1.0, "replace"),
        ([0, 1], math.inf, "replace"),
    ):
        with pytest.raises(InvalidParameter):
            sv.audit.histogram([own], edges, epsilon, neighbours=neighbours)
    with pytest.raises(InvalidParameter, match="not a number"):
        sv.audit.histogram([math.nan], [0, 1], 1.0)
