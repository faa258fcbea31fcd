"""Gaussian noise in the objective: distances and curvature of real fits, the exact δ of two tables
by quadrature, planted bugs, and when a plan takes it (docs/theory/gaussian-objective.md).
"""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
from scipy import stats

import ball_tables as tables
import sottovoce as sv
from sottovoce.accounting.renyi import gaussian_delta
from sottovoce.data import feature_ball
from sottovoce.data.loss_kernels import SoftHuber
from sottovoce.estimators import ridge_errors, ridge_gaussian, ridge_objective

TAU = 0.3
CHOICE = ridge_errors.StageParameters(
    expected=0.1,
    threshold=1.0,
    ridge=2.0,
    intercept_ridge=1.0,
    norm=(0.3, 0.3),
    rounded=2,
    gaussian=True,
)
every_people = tables.every_people
which_person = tables.which_person


# ---------------------------------------------------------------- distances and curvature


def capture_problem(table, people):
    """The problem that a fit in the ball is about to solve, and everybody's weight in it."""
    rows = tables.make_rows(*table, people)
    seen = []

    def caught(problem, tolerance, guess):
        seen.append(problem)
        return problem.centre

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ridge_objective.newton, "minimise", caught)
        fit = ridge_objective.StagedFit(rows, rows.budgets, "soft", delta=1e-3)
        fit.slopes(1.0, TAU, CHOICE, np.zeros(4), tables.BALL)
    H = CHOICE.compute_regularity(3)
    by_row, _ = fit._compute_row_weights(1.0, H * (1 + 1e-12), 3)
    return seen[0], by_row * rows.budgets.kinds.rows


def measure_distance(people, owner):
    """The most that b moves, in its deviations, and that the density bends, over many points."""
    rng = np.random.default_rng(1)
    points = [np.zeros(4), *(rng.normal(0, s, 4) for s in (0.01, 0.1, 0.5, 2) for _ in range(4))]
    deviations = TAU * ridge_gaussian.compute_deviations(3, CHOICE)
    distance = 0.0
    bend = 0.0
    for one, two in tables.list_pairs(people, owner):
        first, second = (capture_problem(table, people)[0] for table in (one, two))
        for theta in points:
            (_, a, A), (_, b, B) = (p.terms(theta, False) for p in (first, second))
            distance = max(distance, float(np.linalg.norm((a - b) / deviations)))
            sizes = [np.linalg.slogdet(C + np.diag(first.ridge))[1] for C in (A, B)]
            bend = max(bend, abs(sizes[0] - sizes[1]))
    return distance, bend


def find_person_weight(people, owner):
    table = next(iter(tables.list_pairs(people, owner)))[0]
    rows = tables.make_rows(*table, people)
    _, weights = capture_problem(table, people)
    place = int(np.flatnonzero(tables.owners(people) == owner)[0])
    codes = rows.budgets.codes
    person = place
    if people[1] is not None:
        person = int(np.flatnonzero(np.asarray(rows.budgets.people) == owner)[0])
    return float(weights[codes[person]])


@every_people
@which_person
def test_a_fit_moves_its_noise_and_its_density_by_no_more_than_the_weight(people, which):
    owner = tables.owners(people)[which(people[0])]
    count = int((tables.owners(people) == owner).sum())
    mu = find_person_weight(people, owner)
    distance, bend = measure_distance(people, owner)
    assert 0.99 * mu <= distance <= mu
    rank = min(count, 4)
    assert 0 < bend <= rank * math.log1p(mu * CHOICE.compute_regularity(3) / rank)


def test_rows_that_are_not_brought_into_the_ball_are_caught(monkeypatch):
    monkeypatch.setattr(feature_ball, "measure_lengths", lambda rows: np.zeros(len(rows)))
    mu = find_person_weight(tables.ONE_ROW, 29)
    assert measure_distance(tables.ONE_ROW, 29)[0] > mu


def test_noise_that_forgets_the_constant_is_caught(monkeypatch):
    """Deviations as if rows had no constant column: all of the noise for slopes."""
    monkeypatch.setattr(
        ridge_errors, "compute_gaussian_moments", lambda slopes, rounded, part: (1 / part, 2.0)
    )
    mu = find_person_weight(tables.ONE_ROW, 29)
    assert measure_distance(tables.ONE_ROW, 29)[0] > mu


# ---------------------------------------------------------------- the exact δ of two tables


class OneColumn:
    """Two tables of one column that differ in the rows of the first person; δ of releasing the
    minimiser, exactly but for quadrature.

    Other people pull, but their rows lie beyond the threshold and do not bend, so that those of the
    first bend as much as they may.
    """

    def __init__(self, choice, epsilon, count, delta, weight=None):
        self.choice = choice
        self.H = choice.compute_regularity(1)
        self.deviations = TAU * ridge_gaussian.compute_deviations(1, choice)
        self.ridge = np.array([choice.intercept_ridge, choice.ridge])
        self.epsilon = epsilon
        self.count = count
        if weight is None:
            weight = ridge_gaussian.find_distances(
                np.array([epsilon]), np.array([float(count)]), 1, delta, self.H
            )[0]
        self.mu = float(weight)

    def measure(self, own, other, others=((0.5, 9.0), (-0.5, -9.0))):
        """∫ (f_D − e^ε·f_D')₊ for these rows (z, y) of the person, by a sum over a grid of θ."""
        reach = 6.5 * self.deviations + TAU * (self.mu + len(others))
        axes = [np.linspace(-r, r, 301) for r in reach / self.ridge]
        theta = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 2)
        cell = np.prod([axis[1] - axis[0] for axis in axes])
        densities = []
        for rows in (own, other):
            weights = np.array([self.mu / len(rows)] * len(rows) + [0.3] * len(others))
            phi = np.array([[0.5, z] for z, _ in (*rows, *others)])
            labels = np.array([y for _, y in (*rows, *others)])
            loss = SoftHuber(TAU, self.choice.compute_softness(1))
            _, pull, bend = loss(labels - theta @ phi.T)
            b = (pull * weights) @ phi - theta * self.ridge
            M = np.einsum("ti,ij,ik->tjk", bend * weights, phi, phi) + np.diag(self.ridge)
            density = stats.norm.pdf(b / self.deviations).prod(axis=1) / self.deviations.prod()
            densities.append(density * np.linalg.det(M) * cell)
        assert abs(densities[0].sum() - 1) < 1e-3  # the grid holds all of it
        return float(np.maximum(densities[0] - math.exp(self.epsilon) * densities[1], 0).sum())

    def find_worst(self):
        """The largest over pairs that pull apart, with and without curvature."""
        corner = [(0.5, 9.0)] * self.count
        spread = [(0.5 * (-1) ** i, 9.0 * (-1) ** i) for i in range(self.count)]
        against = [(z, -y) for z, y in corner]
        crossed = [(-z, y) for z, y in corner]
        near = [(0.5, 0.0)] * self.count
        inside = [(0.5 * (-1) ** i, 0.0) for i in range(self.count)]
        none = [(0.0, 9.0)] * self.count
        pairs = [
            (corner, against),
            (corner, crossed),
            (near, corner),
            (inside, none),
            (spread, near),
        ]
        return max(self.measure(*pair) for pair in (*pairs, *(pair[::-1] for pair in pairs)))


WIDE = ridge_errors.StageParameters(0.1, 1.0, 8.0, 8.0, (0.4, 0.4), gaussian=True)
CURVED = ridge_errors.StageParameters(0.1, 1.0, 0.1, 0.1, (0.4, 0.4), gaussian=True)


@pytest.mark.parametrize("count", [1, 2, 5])
@pytest.mark.parametrize("epsilon", [0.1, 3.0], ids=["strictest", "loosest"])
def test_two_tables_are_told_apart_no_better_than_promised(epsilon, count):
    delta = 1e-3
    worst = OneColumn(WIDE, epsilon, count, delta).find_worst()
    assert worst <= delta
    if count == 1:
        assert worst >= 0.3 * delta  # a row beyond the threshold makes it δ_G(μ; ε)


def test_curvature_is_paid_for():
    """H = 5: without its logarithm the weights would lose far more."""
    delta = 0.02  # far above the error of quadrature, which is larger where densities bend
    paid = OneColumn(CURVED, 0.5, 1, delta)
    assert paid.H > 4.9
    assert paid.find_worst() <= delta
    assert OneColumn(CURVED, 0.5, 2, delta).find_worst() <= delta
    one = np.ones(1)
    unpaid = ridge_gaussian.find_distances(0.5 * one, one, 1, delta, 0.0)[0]
    assert OneColumn(CURVED, 0.5, 1, delta, weight=unpaid).find_worst() > 2 * delta


def test_half_the_noise_is_caught():
    delta = 1e-3
    right = OneColumn(WIDE, 1.0, 1, delta)
    assert OneColumn(WIDE, 1.0, 1, delta, weight=2 * right.mu).find_worst() > 2 * delta


def test_rows_counted_instead_of_people_are_caught():
    """Five rows, each with the weight of a person."""
    delta = 1e-3
    one = OneColumn(WIDE, 1.0, 1, delta)
    assert OneColumn(WIDE, 1.0, 5, delta, weight=5 * one.mu).find_worst() > 2 * delta


# ---------------------------------------------------------------- the lemmas


def test_delta_grows_faster_than_the_squared_distance_as_far_as_it_is_used():
    """h(t) = δ_G(√t; e) is convex up to t = 2(√(1 + e²) − 1), and not everywhere beyond."""
    for e in (0.01, 0.1, 1.0, 5.0, 30.0):
        most = 2 * (math.hypot(1, e) - 1)
        t = np.linspace(most * 1e-6, most, 4001)
        h = gaussian_delta(np.sqrt(t), np.full(len(t), e))
        second = np.diff(h, 2)
        assert np.all(second >= -1e-12 * h[2:])
        beyond = np.linspace(most, 3 * most, 4001)
        assert np.diff(gaussian_delta(np.sqrt(beyond), np.full(4001, e)), 2).min() < 0


def test_a_weight_is_the_largest_that_the_theorem_allows():
    epsilon = np.array([0.05, 1.0, 1.0, 1.0, 20.0])
    rows = np.array([1.0, 1.0, 2.0, 40.0, 1.0])
    mu = ridge_gaussian.find_distances(epsilon, rows, 9, 1e-6, 0.5)
    assert ridge_gaussian.is_private(mu, epsilon, rows, 9, 1e-6, 0.5).all()
    assert not ridge_gaussian.is_private(mu * 1.0001, epsilon, rows, 9, 1e-6, 0.5).any()
    assert mu[1] > mu[2] > mu[3]  # more rows, more directions
    assert np.all(ridge_gaussian.find_distances(np.zeros(1), np.ones(1), 9, 1e-6, 0.5) == 0)


def test_whoever_grants_next_to_nothing_does_not_loosen_the_promise_to_others():
    """ε_out is a part of the least budget of those who take part, and multiplies δ."""
    some = sv.Budgets.of([50.0] * 20)
    one_more = sv.Budgets.of([50.0] * 20 + [1e-6])
    found = []
    for budgets in (some, one_more):
        weights = ridge_gaussian.GaussianWeights(budgets.kinds, 3, 1e-6, 1e-3)
        left = sv.units.to_epsilon(budgets.kinds.epsilon)
        found.append(weights.solve(left, 0.5)[left == 50.0][0])
    assert found[0] == found[1]


def test_tiny_budgets_weigh_nothing_where_doubles_cannot_tell_their_delta():
    assert ridge_gaussian.find_distances(np.array([9e-7]), np.ones(1), 3, 1e-6, 0.5)[0] == 0.0
    least = np.array([1.1e-6, 1e-5, 1e-3])
    mu = ridge_gaussian.find_distances(least, np.ones(3), 3, 1e-12, 0.5)
    for epsilon, distance in zip(least, mu, strict=True):
        with mpmath.workdps(60):
            m = mpmath.mpf(float(distance))
            e = mpmath.mpf(float(epsilon)) - mpmath.log(1 + m / 2)
            exact = mpmath.ncdf(m / 2 - e / m) - mpmath.exp(e) * mpmath.ncdf(-m / 2 - e / m)
        assert 2 * exact <= 1e-12


def test_plans_show_the_weights_that_fits_have():
    epsilon = np.repeat([0.1, 10.0], 500)
    plan = sv.Ridge(bounds=BOUNDS, method="objective-gaussian", delta=1e-6).plan(
        epsilon=epsilon, n_features=3
    )
    small, large = np.sort(plan.weights.row)[[0, -1]]
    assert large / small < 90  # ε are 100 apart, and what they are worth at δ is not


def test_many_budgets_are_rounded_down():
    rng = np.random.default_rng(4)
    epsilon = np.concatenate([rng.uniform(0.001, 100, 5000), [0.0, 1.0, 0.75]])
    few = ridge_gaussian.round_down(epsilon, 12)
    assert np.all(few <= epsilon)
    assert np.all(few >= epsilon * (1 - 2.0**-11))
    assert len(np.unique(few)) < 5000
    budgets = sv.Budgets.of(epsilon[:5000])
    weights = ridge_gaussian.GaussianWeights(budgets.kinds, 3, 1e-6, 1e-3)
    exact = ridge_gaussian.GaussianWeights(budgets.kinds, 3, 1e-6, 1e-3)
    left = sv.units.to_epsilon(budgets.kinds.epsilon)
    found = weights.solve(left, 0.5)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ridge_gaussian, "BUDGET_BITS", 40)
        best = exact.solve(left, 0.5)
    assert np.all(found <= best)
    assert np.all(found >= best * (1 - 2.0**-10))
    planned = weights.add_up(0.9, 0.5)
    person = weights.solve(0.9 * (1 - 1e-3) * left, 0.5)
    kinds = budgets.kinds
    told = (person @ kinds.people, (person**2 / kinds.rows) @ kinds.people)
    assert np.allclose(planned, told, rtol=0.05)


def test_noise_has_its_law():
    """Sums of squares are chi-squared, outside of their ends with probability 2e-8 each; noise that
    is wrong by a twentieth is outside but for 1e-8.
    """
    draws = 8000
    b = np.array([ridge_gaussian.draw_noise(3, CHOICE).astype(float) for _ in range(draws)])
    squares = np.square(b / ridge_gaussian.compute_deviations(3, CHOICE)).sum(axis=0)
    ends = stats.chi2(draws).ppf([1e-8, 1 - 1e-8])
    assert np.all((ends[0] < squares) & (squares < ends[1]))
    together = stats.chi2(4 * draws).ppf([1e-8, 1 - 1e-8])
    assert not together[0] < 1.05**2 * squares.sum() < together[1]
    share = 1 / 4 / ridge_gaussian.compute_deviations(3, CHOICE) ** 2
    # A row (½, z) with one column in a box and two in a ball is no longer than ½.
    assert share[0] + share[1] + share[2] <= 1 / 4


# ---------------------------------------------------------------- the method


BOUNDS = sv.Bounds(features=(-1, 1), label=(-1, 1))


def make_table(n, p, seed=0):
    rng = np.random.default_rng(seed)
    X = np.clip(rng.normal(size=(n, p)) / 3, -1, 1)
    y = np.clip(X @ rng.normal(size=p) / math.sqrt(p) + 0.1 + 0.05 * rng.normal(size=n), -1, 1)
    return X, y


def test_a_plan_takes_it_for_many_columns_and_not_for_few():
    wide = sv.Ridge(bounds=BOUNDS, delta=1e-6).plan(epsilon=1.0, rows=100_000, n_features=240)
    assert wide.parameters["method"] == "objective-gaussian"
    told = wide.guarantee.summary()
    assert (told["currency"], told["delta"]) == ("epsilon, delta", 1e-6)
    narrow = sv.Ridge(bounds=BOUNDS, delta=1e-6).plan(epsilon=1.0, rows=10_000, n_features=5)
    assert narrow.parameters["method"] != "objective-gaussian"


def test_the_fits_of_a_release_keep_within_shares_and_delta(monkeypatch):
    """Two fits of slopes: what each is solved for is its share less ε_out, its own H and half of δ,
    less what the output noise multiplies it by.
    """
    solved = []
    original = ridge_gaussian.GaussianWeights.solve
    weigh = ridge_objective.StagedFit._compute_row_weights

    def record(self, epsilon, H):
        solved.append((float(epsilon.max()), self._share_delta(), H))
        return original(self, epsilon, H)

    def weigh_and_record(self, *given):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(ridge_gaussian.GaussianWeights, "solve", record)
            return weigh(self, *given)

    monkeypatch.setattr(ridge_objective.StagedFit, "_compute_row_weights", weigh_and_record)
    X, y = make_table(4000, 3)
    model = sv.Ridge(bounds=BOUNDS, method="objective-gaussian", delta=1e-6)
    model.fit(X, y, epsilon=3.0)
    fits = [s for s in model.release_.value["stages"] if len(s.get("theta", ())) == 4]
    assert len(fits) == ridge_gaussian.MOST_FITS == 2
    assert sum(stage["share"] for stage in model.release_.value["stages"]) <= 1
    total = 0.0
    for stage in fits:
        first, *others = stage["penalty"]
        sides = 1 if "ball" in stage else 3
        H = 1 / (4 * first) + sides / (4 * others[0])
        slack = ridge_objective.SLACK * stage["share"] * 3.0
        granted = stage["share"] * 3.0 - slack
        used = [one for one in solved if granted * 0.99 <= one[0] <= granted]
        assert used
        assert all(given >= H for _, _, given in used)
        total += max(delta for _, delta, _ in used) * math.exp(slack / 2)
    assert 0.9e-6 <= total <= 1e-6


def test_large_budgets_give_least_squares():
    X, y = make_table(2000, 3)
    model = sv.Ridge(bounds=BOUNDS, method="objective-gaussian", delta=1e-6)
    model.fit(X, y, epsilon=1e5)
    exact = np.linalg.lstsq(np.column_stack([np.ones(len(y)), X]), y, rcond=None)[0]
    assert np.allclose([model.intercept_, *model.coef_], exact, rtol=0.01, atol=1e-3)


def test_a_release_can_be_loaded_has_intervals_and_is_audited():
    X, y = make_table(3000, 3)
    epsilon = np.where(np.arange(3000) % 2 == 0, 1.0, 3.0)
    model = sv.Ridge(bounds=BOUNDS, method="objective-gaussian", delta=1e-6)
    model.fit(X, y, epsilon=epsilon)
    again = sv.load(model.release_)
    assert np.array_equal(again.predict(X[:5]), model.predict(X[:5]))
    assert set(again.interval(0.9)) == {"intercept", "x0", "x1", "x2"}
    lost = sv.audit.per_instance(model.release_, X, y, epsilon=epsilon)
    assert 0 < np.abs(np.asarray(lost.losses)).max() < 3.0
    assert "1 to 3 at δ = 1e-06" in str(lost.summary())


@pytest.mark.parametrize("method", ["objective-gaussian", "adassp", "descent"])
def test_nobody_is_told_a_bound_on_their_own_loss_that_gaussian_noise_does_not_keep(method):
    X, y = make_table(2000, 3)
    model = sv.Ridge(bounds=BOUNDS, method=method, delta=1e-6).fit(X, y, epsilon=2.0)
    with pytest.raises(sv.errors.InvalidParameter, match="by what was promised"):
        sv.audit.mine(model.release_, (X[0], y[0]))


def test_a_ledger_takes_its_charge():
    X, y = make_table(2000, 3)
    names = np.arange(2000).astype(str)
    session = sv.Session()
    session.grant(dict.fromkeys(names, 1.5), currency="epsilon, delta", delta=1e-5)
    model = sv.Ridge(bounds=BOUNDS, method="objective-gaussian", delta=1e-6)
    released = session.release(model, X, y, epsilon=1.0, groups=names, key="first")
    assert released.guarantee["epsilon"]["most"] <= 1.0
    with pytest.raises(sv.errors.BudgetExceeded):
        session.release(model, X, y, epsilon=1.0, groups=names, key="second")


@pytest.mark.parametrize(
    ("given", "parameter"),
    [
        ({}, "delta"),
        ({"delta": 1e-6, "rho": True}, "delta"),
        ({"delta": 1e-6, "loss": "huber"}, "method"),
        ({"delta": 1e-6, "fit_intercept": False}, "method"),
    ],
)
def test_what_it_cannot_do_is_refused(given, parameter):
    with pytest.raises(sv.errors.InvalidParameter) as caught:
        sv.Ridge(bounds=BOUNDS, method="objective-gaussian", **given).plan(
            epsilon=1.0, rows=1000, n_features=3
        )
    assert caught.value.parameter == parameter
