"""What intervals of models rest on: laws of sums, and purchases that cost nobody more than their
share.

The audits are exact: what a person can move, before noise, is compared with the noise that is
drawn. What is drawn with real noise says how rarely it fails by chance, or cannot.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.signal import fftconvolve
from scipy.special import ndtr, ndtri
from scipy.stats import laplace

import sottovoce as sv
from sottovoce import units
from sottovoce.data.encoding import Recoding, make_label, round_to_grid
from sottovoce.data.loss_kernels import SQUARE_BITS, HuberTerms, SoftHuber
from sottovoce.estimator import load_regression
from sottovoce.estimators import curvature, erm_mechanism, label_private, mean
from sottovoce.estimators.curvature import (
    CurvaturePurchase,
    DescribeMeans,
    DescribeShape,
    DescribeSpreads,
    PurchaseWeights,
    find_longest,
)
from sottovoce.estimators.model_intervals import (
    NoisyMoments,
    ShrunkFit,
    compute_sum_half_width,
    find_log_concave_quantile,
    find_moment_ends,
    widen_variance,
)
from sottovoce.schema import Bounds

LEVELS = (0.5, 0.8, 0.95, 0.99, 0.999)


@pytest.mark.parametrize("level", LEVELS)
def test_a_sum_of_one_law_has_its_quantiles(level):
    assert compute_sum_half_width(level, [2.0], 0.0) == pytest.approx(
        -2 * math.log(1 - level), rel=2e-3
    )
    assert compute_sum_half_width(level, [0.0], 3.0) == pytest.approx(
        3 * ndtri(0.5 + level / 2), rel=1e-6
    )


def test_a_sum_of_several_laws_has_the_quantiles_of_a_convolution():
    x = np.linspace(-60, 60, 120_001)
    step = x[1] - x[0]
    density = np.exp(-np.abs(x)) / 2
    both = fftconvolve(density, np.exp(-np.abs(x) / 2) / 4, mode="same") * step
    all_three = fftconvolve(both, np.exp(-(x**2) / 2) / math.sqrt(2 * math.pi), "same") * step
    inside = np.cumsum(all_three) * step
    found = compute_sum_half_width(0.95, [1.0, 2.0], 1.0)
    assert found == pytest.approx(float(np.interp(0.975, inside, x)), rel=1e-3)


@pytest.mark.parametrize("level", LEVELS)
def test_no_log_concave_law_reaches_further(level):
    most = find_log_concave_quantile(level)
    steep = np.linspace(0, 12, 200_001)
    for power in (1.0, 1.5, 2.0, 4.0, 20.0):
        density = np.exp(-(steep**power))
        density /= density.sum()
        deviation = math.sqrt(float(density @ steep**2))
        reach = float(np.interp(level, np.cumsum(density), steep))
        assert reach / deviation <= most * (1 + 1e-3)
    assert most >= laplace.ppf(0.5 + level / 2) / math.sqrt(2) * (1 - 1e-9)
    assert most >= ndtri(0.5 + level / 2)


@pytest.mark.parametrize("level", LEVELS)
def test_a_widened_variance_covers_whatever_the_variance_is(level):
    share = (np.arange(200_000) + 0.5) / 200_000
    noise = np.where(share < 0.5, np.log(2 * share), -np.log(2 - 2 * share))
    z = float(ndtri(0.5 + level / 2))
    for variance in np.geomspace(0.02, 200, 40):
        used = np.array([widen_variance(v, 1.0, level) for v in (variance + noise)[::50]])
        missed = 2 * ndtr(-z * np.sqrt(used / variance))
        assert missed.mean() <= 1 - level


def test_exact_moments_give_the_classical_interval():
    rng = np.random.default_rng(0)
    z = rng.uniform(-1, 1, 4000)
    y = 0.2 + 0.4 * z + rng.normal(0, 0.1, len(z))
    rows = np.column_stack([np.ones(len(z)), z])
    moments = NoisyMoments(
        gram=rows.T @ rows / len(z),
        cross=rows.T @ y / len(z),
        square=float(y @ y) / len(z),
        scale=1e-12,
        square_factor=2.0,
        normal=False,
        concentration=1 / len(z),
    )
    ends = find_moment_ends(moments, np.eye(2), 0.95)
    left = y - rows @ moments.solution
    spread = np.linalg.inv(rows.T @ rows) * float(left @ left) / len(z)
    classical = 1.959964 * np.sqrt(np.diag(spread))
    assert (ends.high - ends.low) / 2 == pytest.approx(math.sqrt(1.8) * classical, rel=1e-3)


# Audits of what is bought ------------------------------------------------------------------------

EPSILON = np.array([0.05] * 20 + [0.4] * 20 + [3.0] * 20)
SHARE = 0.2
SLOPES = 3
TAU = 0.5


def make_purchase(X: np.ndarray, y: np.ndarray, groups: np.ndarray) -> CurvaturePurchase:
    """The purchase of a regression at a fixed θ, for rows of people with these budgets."""
    ridge = sv.Ridge(bounds=Bounds(features=(0, 1), label=(-1, 1)))
    recoding = Recoding.of_bounds(ridge.bounds, None, SLOPES)
    budgets = {int(who): float(e) for who, e in enumerate(EPSILON)}
    rows = load_regression(X, recoding, y, make_label(ridge), budgets, groups)
    kinds = rows.budgets.kinds
    epsilon = units.to_epsilon(kinds.epsilon)
    terms = HuberTerms(
        reader=rows.features,
        label=rows.label,
        owner=rows.owner,
        row_weights=epsilon / kinds.rows,
        loss=SoftHuber(TAU, 0.1),
        theta=np.array([0.1, 0.3, -0.2, 0.1]),
    )
    weights = PurchaseWeights.of(kinds, epsilon / kinds.rows, epsilon)
    return CurvaturePurchase(rows, terms, recoding, weights, SHARE, TAU)


def list_neighbours(person: int) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Tables that differ in the rows of one person, who has two, at the ends of what they may
    be.
    """
    rng = np.random.default_rng(5)
    groups = np.r_[np.arange(len(EPSILON)), np.arange(len(EPSILON))]
    X = rng.uniform(0, 1, (len(groups), SLOPES))
    y = rng.uniform(-1, 1, len(groups))
    mine = groups == person
    tables = []
    for corner in (0.0, 0.5, 1.0, (0.0, 1.0, 0.0)):
        for label in (-1.0, 0.12, 1.0):
            other = X.copy()
            other[mine] = corner
            labels = y.copy()
            labels[mine] = label
            tables.append((other, labels, groups))
    return tables


def measure_steps(purchase: CurvaturePurchase) -> dict[str, np.ndarray]:
    """What each step would release without noise, in units of the noise that it draws; the norm of
    a difference is the loss.
    """
    first, second, third, fourth = purchase.shares
    ratio = purchase.weights.ratio
    means = round_to_grid(np.array([0.1, -0.2, 0.0]))
    metric = np.array([0.08, 0.05, 0.1])
    total = purchase._fold(DescribeShape(means, metric, TAU, 1.0)).astype(np.float64)
    R = total[2:].reshape(SLOPES, SLOPES)
    return {
        "means": purchase._fold(DescribeMeans(1.0)).astype(float) * first / ratio,
        "spreads": purchase._fold(DescribeSpreads(means, 1.0)).astype(float) * second / ratio,
        "pulls": total[:2] * third / ratio,
        "eigenvalue": np.linalg.eigvalsh(R)[:1] * fourth / ratio,
        "matrix": R.ravel() * fourth / (math.sqrt(2) * ratio),
    }


def find_largest_losses(person: int) -> dict[str, float]:
    """The most that one person can move each step, as a share of what they pay for it."""
    found = [measure_steps(make_purchase(*table)) for table in list_neighbours(person)]
    shares = dict(zip(("means", "spreads", "pulls", "eigenvalue"), find_shares(), strict=True))
    shares["matrix"] = shares["eigenvalue"]
    worst = {}
    for step in found[0]:
        norm = np.inf
        if step == "matrix":
            norm = 2
        apart = [np.linalg.norm(a[step] - b[step], norm) for a in found for b in found]
        worst[step] = max(apart) / (shares[step] * EPSILON[person])
    return worst


def find_shares() -> np.ndarray:
    table = list_neighbours(0)[0]
    return make_purchase(*table).shares


@pytest.mark.parametrize("person", [0, 30, 59])
def test_nobody_moves_a_step_further_than_they_pay_for(person):
    worst = find_largest_losses(person)
    assert max(worst.values()) <= 1 + 1e-9
    assert min(worst["means"], worst["spreads"], worst["pulls"]) > 0.6  # and it is not idle


def test_the_audit_sees_rows_that_are_not_shortened(monkeypatch):
    def forget(self, square, bend):
        return np.sqrt(bend / find_longest(SLOPES)) * 2.0**SQUARE_BITS

    monkeypatch.setattr(DescribeShape, "_scale_rows", forget)
    worst = find_largest_losses(59)
    assert max(worst["matrix"], worst["eigenvalue"]) > 1


def test_the_audit_sees_weights_that_do_not_follow_budgets(monkeypatch):
    real = PurchaseWeights.of.__func__

    def forget(cls, kinds, row, granted):
        even = real(cls, kinds, np.ones_like(row) / kinds.rows, granted)
        return PurchaseWeights(even.weights, real(cls, kinds, row, granted).ratio, even.strictest)

    monkeypatch.setattr(PurchaseWeights, "of", classmethod(forget))
    assert max(find_largest_losses(0).values()) > 1


def test_the_audit_sees_a_step_that_is_scaled_by_the_mean_budget(monkeypatch):
    real = PurchaseWeights.of.__func__

    def forget(cls, kinds, row, granted):
        found = real(cls, kinds, row, granted)
        return PurchaseWeights(found.weights, found.ratio / 2, found.strictest)

    monkeypatch.setattr(PurchaseWeights, "of", classmethod(forget))
    assert max(find_largest_losses(30).values()) > 1


@pytest.mark.parametrize("person", [0, 59])
def test_nobody_moves_the_variance_of_labels_further_than_they_pay_for(person):
    rng = np.random.default_rng(3)
    X = rng.uniform(-1, 1, (len(EPSILON), 2))
    regression = sv.LabelPrivateRegression(label_bounds=(0, 1), interval_share=SHARE)
    plan = regression.plan(X, EPSILON)
    bought = plan.bought
    fitted = np.full(len(X), 0.2)
    sums = []
    for label in (0.0, 0.2, 1.0):
        y = np.full(len(X), 0.6)
        y[person] = label
        rows = regression.read_arrays(X, y, epsilon=EPSILON, groups=None)
        kernel = label_private.ResidualSquares(
            rows.value, label_private.ROW, rows.owner, bought, rows.label, fitted
        )
        sums.append(rows.engine.fold(kernel))
    apart = (max(sums) - min(sums)) / 2**bought.grid.shift / bought.noise["integer_scale"]
    assert 0.5 * SHARE * EPSILON[person] < apart <= units.to_epsilon(bought.charges[person])
    assert np.all(plan.guarantee.units <= units.round_down(EPSILON))
    assert isinstance(bought.grid, mean.MeanGrid)


def test_what_is_bought_is_planned_and_charged_for():
    rows = 4000
    ridge = sv.Ridge(bounds=Bounds(features=(0, 1), label=(0, 1)))
    ample = ridge.plan(epsilon=10.0, rows=rows, n_features=2)
    assert "for intervals" in " ".join(ample.describe_weights())
    for told in ample.parameters["stages"]:
        assert sum(part["share"] for part in told["parts"]) == pytest.approx(1.0)
        assert told["parts"][-1]["purpose"] == "intervals"
        assert told["parts"][-1]["share"] <= curvature.MOST_SHARE
    small = ridge.plan(epsilon=0.1, rows=rows, n_features=2)
    assert small.bought is None
    refused = sv.Ridge(bounds=ridge.bounds, interval_share=0.0)
    assert refused.plan(epsilon=10.0, rows=rows, n_features=2).bought is None


def test_classes_pay_for_what_is_bought_within_their_grants():
    epsilon = np.geomspace(6, 12, 3000)
    bounds = Bounds(features=(0, 1))
    ample = sv.LogisticRegression(bounds=bounds).plan(epsilon=epsilon, n_features=2)
    without = sv.LogisticRegression(bounds=bounds, interval_share=0.0)
    plain = without.plan(epsilon=epsilon, n_features=2)
    assert ample.bought.share == curvature.MOST_SHARE
    assert plain.bought is None
    assert ample.noise["rate"] < plain.noise["rate"]  # what is bought is not in the fit
    assert np.all(ample.guarantee.units <= units.round_down(epsilon))
    assert np.all(ample.guarantee.units >= plain.guarantee.units * 0.99)


def test_what_is_published_of_a_fit_is_on_its_grid():
    rng = np.random.default_rng(4)
    X = rng.uniform(0, 1, (3000, 2))
    y = 0.2 + X @ [0.3, 0.2] + rng.normal(0, 0.05, 3000)
    ridge = sv.Ridge(bounds=Bounds(features=(0, 1), label=(0, 1))).fit(X, y, epsilon=10.0)
    step = ridge.release_.grid["answer_step"]
    found = ridge.release_.bought
    for number in (*found["theta"], *found["centre"], found["moved"]):
        assert number / step == round(number / step)


@pytest.mark.parametrize("method", ["statistics", "output-tight", "objective"])
def test_no_rows_have_no_intervals(method):
    X = np.linspace(0, 1, 500)[:, None]
    bounds = Bounds(features=(0, 1), label=(0, 1))
    model = sv.Ridge(bounds=bounds, method=method).fit(X, X[:, 0], epsilon=5.0)
    assert model.interval(0.9, X[:0]).shape == (0, 2)
    assert model.interval(0.9, X[:3]).shape == (3, 2)


def test_where_there_is_no_interval_a_reason_is_given():
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 1, (200, 2))
    bounds = Bounds(features=(0, 1), label=(0, 1))
    groups = np.arange(200) // 2
    squared = sv.ERM("squared", bounds=bounds, delta=1e-6)
    sampled = sv.ERM("squared", bounds=bounds, delta=1e-6, sampling=0.5, steps=5)
    cornered = sv.ERM("hinge", bounds=Bounds(features=(0, 1)), delta=1e-6)
    for model, labels, owners in (
        (sampled, X[:, 0], None),
        (cornered, X[:, 0] > 0.5, None),
        (sv.ERM("squared", bounds=bounds, delta=1e-6, clip=0.1), X[:, 0], groups),
    ):
        fitted = model.fit(X, labels, epsilon=1.0, groups=owners)
        with pytest.raises(sv.errors.InvalidParameter) as refused:
            fitted.interval()
        why = fitted.release_.intervals["why"]
        assert why in str(refused.value)
        assert f"Interval: none. {why}" in fitted.release_.explain()
        with pytest.raises(sv.errors.InvalidParameter):
            fitted.interval(0.9, X[:3])
    assert squared.fit(X, X[:, 0], epsilon=1.0).release_.intervals.get("why") is None
    assert "noise may grow" in erm_mechanism.explain_unsteady_steps(
        "squared", 9.0, 5.0, erm_mechanism.RowSizes(2), 1
    )


@pytest.mark.parametrize("d", [1, 2, 5, 20])
def test_radial_noise_along_a_line_is_a_sum_of_laplace_variables(d):
    """The variance of cᵀZ is (d + 1)/η², and in one dimension it is Laplace."""
    level = 0.95
    reach = compute_sum_half_width(level, [0.5], 0.0, (d + 1) / 2)
    rng = np.random.default_rng(0)
    direction = rng.normal(size=(200_000, d))
    along = direction[:, 0] / np.linalg.norm(direction, axis=1) * rng.gamma(d, 0.5, 200_000)
    # A share of 200,000 deviates by .0005: ten of them.
    assert np.mean(np.abs(along) <= reach) == pytest.approx(level, abs=0.005)
    if d == 1:
        assert reach == pytest.approx(-0.5 * math.log(1 - level), rel=1e-3)


def test_no_curvature_makes_noise_larger_than_the_bound():
    """cᵀ(M + Λ)⁻¹b over random M, against what a fit of which M is unknown allows for."""
    rng = np.random.default_rng(1)
    ridge = np.array([0.5, 2.0, 2.0, 1.0])
    noise = np.array([3.0, 0.5, 1.0, 0.1])
    shrunk = ShrunkFit(np.zeros(4), ridge, noise, 0.25, "", "")
    c = rng.normal(size=(1, 4))
    ends = shrunk.find_ends(c, 0.95)
    most_noise = float((ends.noise / find_log_concave_quantile(0.95))[0])
    most_sampling = float((ends.sampling / ndtri(0.975))[0])
    for size in np.geomspace(1e-3, 1e3, 400):
        root = rng.normal(size=(4, rng.integers(1, 5)))
        M = size * root @ root.T
        a = np.linalg.solve(M + np.diag(ridge), c[0])
        assert math.sqrt(a**2 @ noise) <= most_noise * (1 + 1e-9)
        # Pulls whose covariance is M.
        assert math.sqrt(max(a @ M @ a, 0.0)) <= most_sampling * (1 + 1e-9)


def test_a_descent_never_moves_further_than_its_noise_allows():
    """Two runs that differ in all their noise, against the Lipschitz constant of the interval."""
    rng = np.random.default_rng(2)
    rows = np.column_stack([np.full(300, 0.5), rng.uniform(-0.5, 0.5, (300, 2))])
    labels = rng.uniform(-1, 1, 300)
    steps, stride = 30, 2.0
    for average in (True, False):
        descent = erm_mechanism.SteadyDescent(np.zeros(3), steps, stride, average, 1.0, 0.0, 1.8)
        most = stride * math.sqrt(descent._count_steps())
        for _ in range(50):
            noises = rng.normal(size=(2, steps, 3)) * rng.uniform(0, 0.3)
            ends = []
            for noise in noises:
                theta = np.zeros(3)
                kept = []
                for drawn in noise:
                    pull = np.clip(rows @ theta - labels, -0.4, 0.4)
                    theta = theta - stride * (rows.T @ pull / 300 + drawn)
                    theta *= min(1.0, 3 / np.linalg.norm(theta))
                    kept.append(theta)
                ends.append(np.mean(kept[steps // 2 :], axis=0) if average else theta)
            apart = np.linalg.norm(ends[0] - ends[1])
            assert apart <= most * np.linalg.norm(noises[0] - noises[1]) * (1 + 1e-9)


def test_every_budget_has_an_interval_and_says_what_it_is_of():
    """Where noise leaves too little of a bought eigenvalue, the interval is that of a shrunk fit:
    in 7 % of fits at ε = .8, 3 % at 1, none of 200 beyond. Tails of noise are exponential in ε, so
    that at 5 it is with a chance below 1e-8.
    """
    rng = np.random.default_rng(5)
    X = rng.uniform(0, 1, (3000, 2))
    y = 0.3 + X @ [0.2, 0.3] + rng.normal(0, 0.05, 3000)
    bounds = Bounds(features=(0, 1), label=(0, 1))
    told = {}
    for epsilon in (0.01, 0.1, 5.0, 10.0):
        fitted = sv.Ridge(bounds=bounds).fit(X, y, epsilon=epsilon)
        told[epsilon] = fitted.release_.intervals["of"]
        low, high = fitted.interval()["intercept"]
        assert math.isfinite(low)
        assert low < high
        assert np.all(np.isfinite(fitted.interval(0.9, X[:3])))
    assert told[0.01].startswith("the constant that the same fit")
    assert told[0.1].startswith("the coefficients that the same fit")
    assert "no residual counts for more than its threshold" in told[5.0]
    assert told[10.0].split("(")[0] == told[5.0].split("(")[0]
    dropped = sv.Ridge(bounds=bounds).fit(X, y, epsilon=0.01).interval()["x0"]
    assert dropped == (-math.inf, math.inf)


def test_several_classes_have_intervals_by_class():
    rng = np.random.default_rng(6)
    X = rng.uniform(0, 1, (3000, 2))
    y = (X[:, 0] > 0.5).astype(int) + (X[:, 1] > 0.6)
    for neighbours in ("replace", "labels"):
        model = sv.LogisticRegression(
            bounds=Bounds(features=(0, 1)), classes=[0, 1, 2], neighbours=neighbours
        ).fit(X, y, epsilon=5.0)
        found = model.interval(0.9)
        assert list(found) == ["0", "1", "2"]
        for place, one in enumerate(found.values()):
            low, high = one["x1"]
            assert low < model.coef_[place, 1] < high
        limits = model.interval(0.9, X[:7])
        assert limits.shape == (7, 3, 2)
        sure = model.predict_proba(X[:7])
        assert np.all((limits[..., 0] < sure) & (sure < limits[..., 1]))
        again = sv.load(sv.Release.from_json(model.release_.to_json()))
        assert again.interval(0.9) == found


def test_intervals_follow_from_a_release_that_was_stored():
    rng = np.random.default_rng(1)
    X = rng.uniform(0, 1, (3000, 2))
    y = 0.2 + X @ [0.3, 0.2] + rng.normal(0, 0.05, 3000)
    bounds = Bounds(features=(0, 1), label=(0, 1))
    for model in (
        sv.Ridge(bounds=bounds),
        sv.Ridge(bounds=bounds, loss="huber"),
        sv.Ridge(bounds=bounds, method="output"),
        sv.Ridge(bounds=bounds, method="output-tight"),
        sv.PosteriorSample(bounds=bounds, alpha=20.0, fit_intercept=True),
        sv.ERM("squared", bounds=bounds, delta=1e-6, steps=20),
        sv.Ridge(bounds=bounds, method="statistics"),
        sv.LabelPrivateRegression(label_bounds=(0, 1)),
        sv.AdaptivePosteriorSample(bounds=bounds, fit_intercept=True),
    ):
        fitted = model.fit(X, y, epsilon=10.0)
        again = sv.load(sv.Release.from_json(fitted.release_.to_json()))
        assert again.interval(0.9) == fitted.interval(0.9)
        assert np.array_equal(again.interval(0.9, X[:5]), fitted.interval(0.9, X[:5]))
        low, high = fitted.interval(0.9, X[:5]).T
        assert np.all(low < high)
        assert fitted.interval(0.5)["x0"][0] > fitted.interval(0.99)["x0"][0]
