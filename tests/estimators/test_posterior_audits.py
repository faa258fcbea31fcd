"""Exact losses of posterior samples, for the strictest and the loosest, one row and many, and
planted bugs.

What a fit is about to sample from, H and θ̂, is captured for neighbouring tables; δ at the promised
ε between the two Gaussian laws is then computed by formulas written here, without the code under
test: in the basis in which both covariances are diagonal, coordinates are independent, one of them
is integrated in closed form and another by quadrature. The joint law of the noisy eigenvalue and
the sample is one integral more.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from scipy.linalg import eigh
from scipy.optimize import brentq
from scipy.special import log_ndtr, ndtr, ndtri

import sottovoce as sv
from sottovoce import errors
from sottovoce.estimators import posterior, posterior_mechanism

DELTA = 1e-6
BALL = sv.Bounds(norm=1.0, label=(-1, 1))
NODES, MASS = np.polynomial.legendre.leggauss(400)
which_person = pytest.mark.parametrize(
    "which", [np.argmin, np.argmax], ids=["strictest", "loosest"]
)


# ---------------------------------------------------------------- exact δ between Gaussian laws


def one_coordinate(precision, centre, epsilon):
    """∫(p − e^ε·q)₊ for p = N(0, 1) and q = N(centre, 1/precision), entry by entry; ε may be
    negative.
    """
    t, k, epsilon = np.broadcast_arrays(
        *(np.asarray(v, dtype=float) for v in (precision, centre, epsilon))
    )
    # log p/q = ½(t−1)v² − tkv + ½(tk² − log t); where it exceeds ε is outside (t > 1) or inside (t
    # < 1) two roots
    a = (t - 1) / 2
    b = -t * k
    c = (t * k**2 - np.log(t)) / 2 - epsilon
    root = np.sqrt(np.maximum(b * b - 4 * a * c, 0.0))
    far = -(b + np.where(b >= 0, root, -root)) / 2
    with np.errstate(divide="ignore", invalid="ignore"):
        ends = np.sort([far / a, np.where(far != 0, c / far, 0.0)], axis=0)
    crossed = b * b - 4 * a * c > 0
    under_p = _mass(ends[0], ends[1], t > 1, 0.0)
    under_q = _mass(np.sqrt(t) * (ends[0] - k), np.sqrt(t) * (ends[1] - k), t > 1, epsilon)
    everywhere = np.where(t > 1, -np.expm1(np.minimum(epsilon, 0.0)), 0.0)
    return np.where(crossed, under_p - under_q, everywhere)


def _mass(low, high, outside, log_factor):
    """e^factor times the mass of N(0, 1) outside, or inside, two ends, without cancellation in the
    tails.
    """
    flip = low > 0
    near = np.where(flip, -low, high)
    far = np.where(flip, -high, low)
    with np.errstate(over="ignore"):
        inside = np.exp(log_factor + log_ndtr(near)) - np.exp(log_factor + log_ndtr(far))
        return np.where(
            outside,
            np.exp(log_factor + log_ndtr(low)) + np.exp(log_factor + log_ndtr(-high)),
            inside,
        )


@dataclass(frozen=True)
class Law:
    """N(mean, H⁻¹/γ)."""

    H: np.ndarray
    mean: np.ndarray
    gamma: float


def coordinates(p, q):
    """Precisions and centres of q in coordinates in which p is N(0, I); those in which they agree
    are left out.
    """
    tau, V = eigh(q.gamma * q.H, p.gamma * p.H)
    centre = V.T @ (p.gamma * p.H) @ (q.mean - p.mean)
    apart = (np.abs(tau - 1) > 1e-9) | (np.abs(centre) > 1e-7)
    return tau[apart], centre[apart]


def exact_delta(p, q, epsilon):
    """δ(ε) from p to q, exactly, where they differ in at most two coordinates."""
    tau, centre = coordinates(p, q)
    if len(tau) == 0:
        return 0.0
    if len(tau) == 1:
        return float(one_coordinate(tau[0], centre[0], epsilon))
    assert len(tau) == 2
    v = 12 * NODES
    mass = 12 * MASS * np.exp(-72 * NODES**2) / np.sqrt(2 * np.pi)
    loss = ((tau[1] - 1) * v**2 / 2 - tau[1] * centre[1] * v) + (
        tau[1] * centre[1] ** 2 - np.log(tau[1])
    ) / 2
    return float(mass @ one_coordinate(tau[0], centre[0], epsilon - loss))


def worst_delta(one, two, epsilon):
    return max(exact_delta(one, two, epsilon), exact_delta(two, one, epsilon))


def exact_epsilon(one, two, delta=DELTA):
    """The ε at which the worse direction has this δ."""
    if worst_delta(one, two, 0.0) <= delta:
        return 0.0
    high = 1.0
    while worst_delta(one, two, high) > delta:
        high *= 2
    return brentq(
        lambda e: np.log(max(worst_delta(one, two, e), 1e-300) / delta), 0.0, high, xtol=1e-10
    )


def renyi_of(p, q, alpha):
    """D_α between two multivariate Gaussian laws, by the formula with determinants."""
    P = p.gamma * p.H
    Q = q.gamma * q.H
    mixed = alpha * P + (1 - alpha) * Q  # of the product p^α·q^(1−α)
    assert np.linalg.eigvalsh(mixed).min() > 0
    d = q.mean - p.mean
    gap = Q @ np.linalg.solve(mixed, P) @ d  # d'PM⁻¹Qd·α(1−α)
    dets = (
        alpha * np.linalg.slogdet(P)[1]
        + (1 - alpha) * np.linalg.slogdet(Q)[1]
        - np.linalg.slogdet(mixed)[1]
    )
    return (dets / 2) / (alpha - 1) + alpha / 2 * d @ gap


GRID = np.linspace(-9, 9, 901)
POINTS = np.stack(np.meshgrid(GRID, GRID), axis=-1).reshape(-1, 2)


def test_the_formulas_of_this_file_agree_with_quadrature():
    v = 14 * NODES
    for t, k, epsilon in (
        (1.4, 0.3, 0.1),
        (0.7, -0.8, 0.5),
        (2.0, 0.0, 0.01),
        (0.5, 1.0, -0.7),
        (1.3, 2.0, -3.0),
    ):
        p = np.exp(-(v**2) / 2) / np.sqrt(2 * np.pi)
        q = np.sqrt(t) * np.exp(-t * (v - k) ** 2 / 2) / np.sqrt(2 * np.pi)
        fine = 14 * MASS @ np.maximum(p - np.exp(epsilon) * q, 0)
        assert one_coordinate(t, k, epsilon) == pytest.approx(fine, abs=2e-4)
    one = Law(np.diag([2.0, 3.0]), np.zeros(2), 1.5)
    for two in (
        Law(np.array([[2.5, 0.3], [0.3, 3.4]]), np.array([0.2, -0.1]), 1.5),
        Law(np.eye(2), np.ones(2), 2.0),
    ):

        def density(law):
            d = POINTS - law.mean
            power = law.gamma * np.einsum("ij,jk,ik->i", d, law.H, d)
            return law.gamma * np.sqrt(np.linalg.det(law.H)) / (2 * np.pi) * np.exp(-power / 2)

        cell = (GRID[1] - GRID[0]) ** 2
        assert cell * np.maximum(
            density(one) - np.exp(0.3) * density(two), 0
        ).sum() == pytest.approx(exact_delta(one, two, 0.3), abs=5e-6)
        with np.errstate(divide="ignore"):
            log_ratio = cell * np.sum(
                density(one) ** 1.5 * np.maximum(density(two), 1e-300) ** -0.5
            )
        assert 2 * np.log(log_ratio) == pytest.approx(renyi_of(one, two, 1.5), abs=1e-6)


# ---------------------------------------------------------------- fixed λ: captured neighbours


def captured(X, y, people, mine, plan=None, **options):
    """The two laws that a fit with, and without, one person's rows is about to sample from."""
    laws = []

    def caught(G, c, ridge, gamma):
        H = G.astype(float) + ridge * np.eye(len(c))
        laws.append(Law(H, np.linalg.solve(H, c.astype(float)), gamma))
        return np.zeros(len(c))

    epsilon, groups = people
    model = sv.PosteriorSample(
        **{"gamma": 1.0, "alpha": 5.0, "bounds": BALL, "delta": DELTA, **options}
    )
    if plan is None:
        plan = model.plan(epsilon=epsilon, groups=groups, rows=len(y), n_features=X.shape[1])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(posterior_mechanism, "draw_sample", caught)
        patch.setattr(
            sv.PosteriorSample, "_make_plan", lambda *_: plan
        )  # the same for all tables, and made once
        for features, labels in ((X, y), (np.where(mine[:, None], 0.0, X), np.where(mine, 0.0, y))):
            model.fit(features, labels, epsilon=epsilon, groups=groups)
    return laws, model, plan


def charge_of(model, groups, owner):
    if groups is None:
        names = np.arange(len(model.guarantee_.epsilon))
    else:
        names = np.unique(groups)
    return float(model.guarantee_.epsilon[names == owner][0])


def tables(mine, ridge, rng):
    """Tables that are hard for a person: others along one line at several lengths, their own rows
    at several angles.
    """
    n = len(mine)
    for length in (1.0, min(1.0, np.sqrt(ridge / n)), 0.3):
        for angle in (0.0, 0.5, 1.2, np.pi / 2):
            own = np.array([np.cos(angle), np.sin(angle)])
            yield np.where(mine[:, None], own, [length, 0.0]), np.where(mine, -1.0, 1.0)
    for _ in range(4):
        X = rng.normal(size=(n, 2))  # somebody's rows in two directions, where they have two
        yield X / np.maximum(np.linalg.norm(X, axis=1, keepdims=True), 1), rng.uniform(-1, 1, n)


def audited(people, owner, **options):
    """Returns (largest δ at the promised ε over δ, largest exact ε over the promise) over hard
    tables.
    """
    if people[1] is None:
        owners = np.arange(len(people[0]))
    else:
        owners = people[1]
    mine = owners == owner
    rng = np.random.default_rng(3)
    excess = 0.0
    share = 0.0
    plan = None
    for X, y in tables(mine, options.get("alpha", 5.0), rng):
        (one, two), model, plan = captured(X, y, people, mine, plan, **options)
        promised = charge_of(model, people[1], owner)
        excess = max(excess, worst_delta(one, two, promised) / DELTA)
        share = max(share, exact_epsilon(one, two) / promised)
    return excess, share


MIXED = (np.repeat([0.2, 1.0, 4.0], [6, 8, 6]), None)
GROUPS = (
    np.repeat([0.3, 2.0, 1.0, 0.2, 4.0, 1.0], [1, 1, 2, 3, 2, 1]),
    np.repeat(list("abcdef"), [1, 1, 2, 3, 2, 1]),
)
ruled = {
    "alpha": 600.0
}  # λ far above all weights: bounds on leverage and residual are nearly attained


@pytest.mark.parametrize(
    "options",
    [{}, ruled, {"gamma": 20.0}, {"alpha": 0.01}],
    ids=["usual", "ruled", "γ 20", "λ small"],
)
@pytest.mark.parametrize("people", [MIXED, GROUPS], ids=["one row", "many rows"])
@which_person
def test_no_exact_delta_exceeds_the_promise(people, which, options):
    if people[1] is None:
        owners = np.arange(len(people[0]))
    else:
        owners = people[1]
    excess, share = audited(people, owners[which(people[0])], **options)
    assert excess <= 1
    assert share <= 1


@which_person
def test_the_worst_pair_comes_close_so_the_audit_can_fail(which):
    excess, share = audited(MIXED, which(MIXED[0]), **ruled)
    assert share > 0.85
    assert excess > 0.02


@pytest.mark.parametrize("options", [{"alpha": 30.0}, {"alpha": 300.0, "gamma": 9.0}])
def test_without_grants_the_promise_is_exact_enough(options):
    """All rows weigh one; where λ rules, the worst pair has nearly the promised ε."""
    people = (None, None)
    mine = np.arange(12) == 0
    shares = []
    for X, y in tables(mine, options["alpha"], np.random.default_rng(0)):
        (one, two), model, _ = captured(X, y, people, mine, **options)
        promised = model.guarantee_.epsilon[0]
        assert worst_delta(one, two, promised) <= DELTA
        shares.append(exact_epsilon(one, two) / promised)
    assert max(shares) > 0.7 if options["alpha"] < 100 else max(shares) > 0.95


# ---------------------------------------------------------------- several rows: Rényi is exactly a
# sum


def renyi_of_a_row(mu, a, alpha):
    """D_α of one row of leverage μ and scaled residual a, from without to with it."""
    b = alpha - 1
    return (
        -np.log1p(mu) / 2
        - np.log1p(-b * mu) / (2 * b)
        + a**2 * alpha * mu / (2 * (1 + mu) * (1 - b * mu))
    )


def test_rows_of_a_person_add_up_over_eigenvalues_and_stay_below_the_bound():
    """D_α is the sum over eigenvalues of X_lH⁻¹X_lᵀ, exactly, both for the formula with
    determinants and the bound.
    """
    rng = np.random.default_rng(8)
    largest = 0.0
    for _ in range(300):
        d = rng.integers(1, 5)
        own = rng.integers(1, 6)
        others = rng.integers(1, 30)
        X = rng.normal(size=(others + own, d))
        X /= np.maximum(np.linalg.norm(X, axis=1, keepdims=True), 1)
        if rng.random() < 0.5:
            X[:own], X[own:] = X[0] / np.linalg.norm(X[0]), X[own:] * rng.choice([0.01, 1.0])
        y = rng.uniform(-1, 1, own + others)
        w = rng.uniform(0.1, 2.0) * np.ones(own + others)
        if rng.random() < 0.5:
            y[:own] = rng.choice([-1.0, 1.0])
        else:
            y[:own] = y[:own]
        ridge = 10 ** rng.uniform(-1, 2)
        gamma = 10 ** rng.uniform(-2, 1)
        mine = np.arange(own + others) < own
        one, two = (
            law_of(X * keep[:, None], y * keep, w, ridge, gamma)
            for keep in (np.where(mine, 0.0, 1.0), np.ones(len(y)))
        )
        root = np.sqrt(w[:own])[:, None]
        leverage, V = np.linalg.eigh(root * X[:own] @ np.linalg.solve(one.H, (root * X[:own]).T))
        residual = V.T @ (np.sqrt(w[:own]) * (y[:own] - X[:own] @ one.mean))
        weight = w[:own].sum()
        total = w.sum()
        alpha = 1 + rng.uniform(0.05, 0.95) * ridge / weight
        found = renyi_of_a_row(
            np.maximum(leverage, 0), np.sqrt(gamma) * np.abs(residual), alpha
        ).sum()
        assert found == pytest.approx(renyi_of(one, two, alpha), rel=1e-8, abs=1e-12)
        assert renyi_of(two, one, alpha) <= found * (1 + 1e-9)
        left = total - weight
        if left >= ridge:
            longest = np.sqrt(left / ridge) / 2
        else:
            longest = left / (left + ridge)
        bound = renyi_of_a_row(weight / ridge, np.sqrt(gamma * weight) * (1 + longest), alpha)
        largest = max(largest, found / bound)
    assert 0.9 < largest <= 1 + 1e-9


def law_of(X, y, w, ridge, gamma):
    H = (X * w[:, None]).T @ X + ridge * np.eye(X.shape[1])
    return Law(H, np.linalg.solve(H, (w * y) @ X), gamma)


def test_the_conversion_is_that_of_the_literature():
    """ε of the account against a plain search over orders, δ₃ apart."""
    for mu, a, rho, delta in (
        (0.1, 1.9, 0.0, 1e-6),
        (0.01, 3.0, 1e-3, 9e-7),
        (3.0, 0.4, 0.0, 1e-8),
        (1e-4, 40, 1e-5, 0.1),
    ):
        b = np.geomspace(1e-6, 1 - 1e-9, 400_001) / mu
        orders = 1 + b
        curve = orders * rho + renyi_of_a_row(mu, a, orders)
        plain = np.min(curve - (np.log(delta) + np.log(orders)) / b + np.log(b / orders))
        found = posterior_mechanism._compute_renyi_epsilon(
            np.array([mu]), np.array([a]), np.array([rho]), delta
        )[0]
        assert found == pytest.approx(max(plain, 0), rel=2e-6)
    plan = sv.AdaptivePosteriorSample(epsilon=1.0, delta=DELTA, bounds=BALL).plan(
        rows=500, n_features=2
    )
    noise, b = plan.noise, np.geomspace(1e-3, 0.9999 * plan.noise["floor"], 400_001)
    orders = 1 + b
    a = np.sqrt(noise["gamma"]) * (1 + np.sqrt(499 / noise["floor"]))
    curve = orders / (2 * noise["eigenvalue_standard_deviation"] ** 2)
    curve = curve + renyi_of_a_row(1 / noise["floor"], a, orders)
    missed = ndtr((1 - noise["margin"]) / noise["eigenvalue_standard_deviation"])
    assert missed == pytest.approx(DELTA / 10, rel=1e-6)
    promised = np.min(curve - (np.log(DELTA - missed) + np.log(orders)) / b + np.log(b / orders))
    assert plan.charges[0] == pytest.approx(promised, rel=1e-4)


# ---------------------------------------------------------------- λ from the data: the joint law on
# a line


def joint_delta(noise, small, large, epsilon):
    """δ of (λ̃, θ̃) at ε, both directions; small and large are (Σwx², Σwxy) without and with a
    person, d = 1.
    """
    spread = noise["eigenvalue_standard_deviation"]
    worst = 0.0
    for (A, c), (B, e) in ((small, large), (large, small)):
        v = A + 12 * spread * NODES
        mass = 12 * MASS * np.exp(-72 * NODES**2) / np.sqrt(2 * np.pi)
        first = ((v - B) ** 2 - (v - A) ** 2) / (2 * spread**2)
        ridge = posterior_mechanism.compute_missing_ridge(v, noise["floor"], noise["margin"])
        P = noise["gamma"] * (A + ridge)
        Q = noise["gamma"] * (B + ridge)
        with np.errstate(over="ignore"):
            apart = np.sqrt(P) * (e / (B + ridge) - c / (A + ridge))
            worst = max(
                worst, float(mass @ np.minimum(one_coordinate(Q / P, apart, epsilon - first), 1.0))
            )
    return worst


def line(n, size, weight=1.0):
    """n − 1 rows x = size with y = 1 that weigh one, and a person's row (1, −1): sums without and
    with it.
    """
    small = ((n - 1) * size**2, (n - 1) * size)
    return small, (small[0] + weight, small[1] - weight)


@pytest.mark.parametrize("calibration", ["renyi", "simple"])
@pytest.mark.parametrize("epsilon", [1.0, 5.0, 10.0, 15.0, 20.0])
def test_no_joint_delta_exceeds_the_target(epsilon, calibration):
    """Also where the published algorithm, with max for min, breaks its claim (below)."""
    largest = 0.0
    for n in (20, 400):
        for options in ({"condition": 3.0}, {"condition": 1.0, "share": 0.5}):
            ask = sv.AdaptivePosteriorSample(
                epsilon, DELTA, BALL, calibration=calibration, **options
            )
            noise = ask.plan(rows=n, n_features=1).noise
            for size in np.sqrt([1e-6, 0.05, 0.3, 0.6, 0.8, 0.9, 1.0]):
                largest = max(largest, joint_delta(noise, *line(n, size), epsilon))
    assert largest <= DELTA
    if calibration == "renyi":
        assert largest > 0.002 * DELTA  # so that the audit can fail


@pytest.mark.parametrize(
    ("epsilon", "n", "square", "times"),
    [(15.0, 25, 0.9, 2.058), (20.0, 20, 0.9, 17.50), (12.0, 1000, 1.0, 1.457)],
)
def test_the_published_algorithm_breaks_its_claim_on_the_same_line(epsilon, n, square, times):
    """So the integral can tell: the published σ, tail and γ, with max for min, at δ = 10⁻⁶ and
    condition 1.
    """
    log = np.log(4 / DELTA)
    noise = {
        "eigenvalue_standard_deviation": np.sqrt(log) / (epsilon / 2),
        "floor": float(n),
        "margin": log / (epsilon / 2),
        "gamma": 1 / max(16 * log / (n * epsilon**2), 8 / (n * epsilon)),
    }
    assert joint_delta(noise, *line(n + 1, np.sqrt(square)), epsilon) / DELTA == pytest.approx(
        times, rel=1e-3
    )


def test_the_line_is_what_a_fit_sees():
    seen = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            posterior_mechanism,
            "draw_sample",
            lambda G, c, ridge, gamma: seen.append((float(G[0, 0]), float(c[0]))) or np.zeros(1),
        )
        for own in ((1.0, -1.0), (0.0, 0.0)):
            X = np.full((20, 1), 0.6)
            y = np.ones(20)
            X[0], y[0] = own
            sv.AdaptivePosteriorSample(5.0, DELTA, BALL).fit(X, y)
    small, large = line(20, 0.6)
    assert seen[0] == pytest.approx(
        large, rel=1e-4
    )  # weights are one but for the last grains of a grant
    assert seen[1] == pytest.approx(small, rel=1e-4)


PERSONAL = np.repeat([0.5, 2.0, 8.0], [20, 15, 5])


@pytest.mark.parametrize("calibration", ["renyi", "simple"])
@which_person
def test_no_joint_delta_exceeds_a_personal_promise(which, calibration):
    ask = sv.AdaptivePosteriorSample(delta=DELTA, bounds=BALL, calibration=calibration)
    plan = ask.plan(epsilon=PERSONAL, n_features=1)
    owner = which(PERSONAL)
    weights = (plan.weights.row * plan.parameters["weight_unit"])[plan.budgets.codes]
    weight = weights[owner]
    others = weights.sum() - weights[owner]
    for size in np.sqrt([1e-6, 0.05, 0.3, 0.6, 0.9, 1.0]):
        small = (others * size**2, others * size)
        large = (small[0] + weight, small[1] - weight)
        assert joint_delta(plan.noise, small, large, plan.charges[owner]) <= DELTA


def missed(noise, loudest, weight):
    """The largest probability, over both tables, that without the person an eigenvalue lies below
    the floor.
    """
    spread = noise["eigenvalue_standard_deviation"]
    # λ_min(without) + λ_n < h, where λ̃ is λ_min(without) + up to W of noise's centre
    below = 1e4 * spread  # so far below the floor that λ_n is positive
    edge = brentq(
        lambda t: (
            -below
            + posterior_mechanism.compute_missing_ridge(-below + t, 0.0, noise["margin"])
            + 0.0
        ),
        -below,
        below + 10 * noise["margin"],
    )
    return ndtr((weight - edge) / spread)


def test_the_floor_is_missed_as_rarely_as_was_paid_for():
    for calibration, part in (("renyi", 10), ("simple", 3)):
        ask = sv.AdaptivePosteriorSample(delta=DELTA, bounds=BALL, calibration=calibration)
        plan = ask.plan(epsilon=PERSONAL, n_features=1)
        person = plan.weights.person * plan.parameters["weight_unit"]
        for weight in person:
            assert missed(plan.noise, person.max(), weight) <= DELTA / part * (1 + 1e-6)
        assert missed(plan.noise, person.max(), person.max()) == pytest.approx(
            DELTA / part, rel=1e-6
        )


def test_leverage_and_residual_stay_below_what_was_paid_for():
    """Outside that event: at every λ̃ with eigenvalues above the floor, on the line where residuals
    are largest.
    """
    plan = sv.AdaptivePosteriorSample(4.0, DELTA, BALL, condition=1.0).plan(rows=30, n_features=1)
    assert worst_residual(plan.noise, 30) <= allowed_residual(plan.noise, 30)
    assert worst_residual(plan.noise, 30) > 0.95 * allowed_residual(plan.noise, 30)


def worst_residual(noise, n):
    """sup |r|: without λ_n, all others at the floor exactly."""
    size = np.sqrt(noise["floor"] / (n - 1))
    if size <= 1:
        return 1 + (n - 1) * size / noise["floor"]
    return 1 + (n - 1) / noise["floor"]


def allowed_residual(noise, n):
    account = posterior_mechanism.AdaptiveRidgeAccountant(
        noise["gamma"], noise["floor"], DELTA, noise["eigenvalue_standard_deviation"]
    )
    _, a = account._get_leverage_and_residual(np.array([1.0]), float(n))
    return a[0] / np.sqrt(noise["gamma"])


# ---------------------------------------------------------------- planted bugs


def test_a_strict_person_with_the_average_weight_is_caught(monkeypatch):
    """In the plan, where weights are found; and in the sums, after the plan."""
    right = posterior_mechanism.DistinctGrants.fill_weights

    def average(self, account, total):
        found = right(self, account, total)
        return np.full_like(found, (found @ self.people) / self.people.sum())

    with monkeypatch.context() as patch:
        patch.setattr(posterior_mechanism.DistinctGrants, "fill_weights", average)
        with pytest.raises(errors.BudgetExceeded):
            sv.PosteriorSample(1.0, 600.0, BALL).plan(epsilon=MIXED[0], n_features=2)
    sums = posterior_mechanism.compute_gram
    monkeypatch.setattr(
        posterior_mechanism,
        "compute_gram",
        lambda rows, ball, w, scale: sums(rows, ball, np.full_like(w, w.mean()), scale),
    )
    excess, share = audited(MIXED, np.argmin(MIXED[0]), **ruled)
    assert excess > 100
    assert share > 1.5


def test_twice_the_concentration_is_caught(monkeypatch):
    monkeypatch.setattr(
        sv.PosteriorSample,
        "_describe_noise",
        lambda self, person_weights: {"gamma": 2 * float(self.gamma)},
    )
    assert audited(MIXED, np.argmax(MIXED[0]), **ruled)[0] > 1


def test_a_residual_without_its_one_is_caught(monkeypatch):
    def short(self, weight, total, single):
        others = np.maximum(total - weight, 0.0)
        longest = np.where(
            others >= self.floor, np.sqrt(others / self.floor) / 2, others / (others + self.floor)
        )
        return posterior_mechanism._bound_sample_epsilon(
            weight / self.floor,
            np.sqrt(self.gamma * weight) * longest,
            self.delta,
            single & (weight > 0),
        )

    with monkeypatch.context() as patch:
        patch.setattr(posterior_mechanism.FixedRidgeAccountant, "epsilon", short)
        assert audited(MIXED, np.argmin(MIXED[0]), **ruled)[0] > 100
    right = posterior_mechanism.AdaptiveRidgeAccountant._get_leverage_and_residual

    def moved(self, weight, total):
        mu, a = right(self, weight, total)
        return mu, a - np.sqrt(self.gamma * weight)

    monkeypatch.setattr(
        posterior_mechanism.AdaptiveRidgeAccountant, "_get_leverage_and_residual", moved
    )
    plan = sv.AdaptivePosteriorSample(4.0, DELTA, BALL, condition=1.0).plan(rows=30, n_features=1)
    assert worst_residual(plan.noise, 30) > 1.5 * allowed_residual(plan.noise, 30)


def test_min_for_max_is_caught(monkeypatch):
    monkeypatch.setattr(
        posterior_mechanism,
        "compute_missing_ridge",
        lambda noisy, floor, margin: np.minimum(0.0, floor + margin - noisy),
    )
    plan = sv.AdaptivePosteriorSample(1.0, DELTA, BALL).plan(rows=400, n_features=1)
    # barely any data: nothing is added, and one row changes everything
    assert joint_delta(plan.noise, (0.01, 0.1), (1.01, -0.9), 1.0) > 1000 * DELTA


@pytest.mark.parametrize(
    "margin",
    [
        lambda self, loudest, total: (
            -self.spread * float(ndtri(self.failure_delta))
        ),  # W_max dropped
        lambda self, loudest, total: loudest,  # δ₃ dropped
        lambda self, loudest, total: (
            loudest / 2 - self.spread * float(ndtri(self.failure_delta))
        ),  # an average for the largest
    ],
    ids=["no loudest", "no δ₃", "half the loudest"],
)
def test_a_margin_that_is_too_small_is_caught(monkeypatch, margin):
    monkeypatch.setattr(posterior_mechanism.AdaptiveRidgeAccountant, "margin", margin)
    plan = sv.AdaptivePosteriorSample(delta=DELTA, bounds=BALL).plan(epsilon=PERSONAL, n_features=1)
    loudest = (plan.weights.person * plan.parameters["weight_unit"]).max()
    assert missed(plan.noise, loudest, loudest) > 1.05 * DELTA / 10


def test_an_account_that_forgets_what_the_floor_costs_is_caught(monkeypatch):
    """Converted at δ instead of δ − δ₃ the promise comes out smaller than the formula says."""
    monkeypatch.setattr(
        posterior_mechanism.AdaptiveRidgeAccountant,
        "epsilon",
        lambda self, weight, total, single: posterior_mechanism._compute_renyi_epsilon(
            *self._get_leverage_and_residual(weight, total),
            weight**2 / (2 * self.spread**2),
            self.delta,
        ),
    )
    with pytest.raises(AssertionError):
        test_the_conversion_is_that_of_the_literature()


def test_the_accounts_are_those_that_the_estimators_use():
    assert [posterior.ACCOUNTANTS[name] for name in ("renyi", "simple")] == [
        posterior_mechanism.AdaptiveRidgeAccountant,
        posterior_mechanism.SimpleAdaptiveAccountant,
    ]
