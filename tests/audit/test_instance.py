"""Exact losses agree with refitting without each row, with quadrature, and with draws of the real
mechanisms.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import multivariate_normal, norm

import sottovoce as sv
from sottovoce.accounting import renyi
from sottovoce.audit import instance_losses, leverages, mechanisms
from sottovoce.estimators import posterior_mechanism

BALL = sv.Bounds(norm=1.0, label=(-1, 1))
BOX = sv.Bounds(features=(-1, 1), label=(-1, 1))
DELTA = 1e-6


def data(n=60, d=3, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    X /= np.maximum(1, np.linalg.norm(X, axis=1))[:, None]
    return X, np.clip(X @ np.linspace(0.6, -0.4, d) + 0.2 * rng.normal(size=n), -1, 1)


def solved(X, y, lam, w):
    H = (X * w[:, None]).T @ X + lam * np.eye(X.shape[1])
    return H, np.linalg.solve(H, X.T @ (w * y))


def without(i, X, y, w):
    return np.delete(X, i, axis=0), np.delete(y, i), np.delete(w, i)


def sampled_delta(P, Q, gamma, x, y, epsilon):
    """δ of N(θ, H⁻¹/γ) in the direction P to Q, by quadrature over √γ(y − xᵀθ), which is
    sufficient.
    """
    laws = []
    for H, theta in (P, Q):
        laws.append((math.sqrt(gamma) * (y - x @ theta), math.sqrt(x @ np.linalg.solve(H, x))))
    (m, s), (k, t) = laws

    w = np.linspace(m - 12 * s, m + 12 * s, 400_001)
    return np.trapezoid(
        np.maximum(norm.pdf(w, m, s) - math.exp(epsilon) * norm.pdf(w, k, t), 0.0), w
    )


def check_sample(audit, X, y, w, lam, gamma, rows, delta=DELTA):
    """Each row's ε gives exactly δ for adding it, and no more for removing it."""
    for i in rows:
        Q = solved(X, y, lam, w)
        P = solved(*without(i, X, y, w)[:2], lam, without(i, X, y, w)[2])
        x = math.sqrt(w[i]) * X[i]
        label = math.sqrt(w[i]) * y[i]
        epsilon = float(audit.epsilon[i])
        assert sampled_delta(P, Q, gamma, x, label, epsilon) == pytest.approx(delta, rel=1e-4)
        assert sampled_delta(Q, P, gamma, x, label, epsilon) <= delta * (1 + 1e-6)


def test_a_posterior_sample_agrees_with_refitting_and_quadrature():
    X, y = data()
    model = sv.PosteriorSample(gamma=8.0, alpha=2.0, bounds=BALL).fit(X, y)
    audit = sv.audit.per_instance(model, X, y, DELTA)
    check_sample(audit, X, y, np.ones(60), 2.0, 8.0, range(0, 60, 20))
    H, theta = solved(*without(7, X, y, np.ones(60))[:2], 2.0, np.ones(59))
    assert audit.leverage[7] == pytest.approx(X[7] @ np.linalg.solve(H, X[7]))
    assert audit.residual[7] == pytest.approx(y[7] - X[7] @ theta)


def test_weights_of_people_with_many_rows_come_from_the_plan():
    X, y = data(90)
    owner = np.arange(90) % 30
    owner[60:] = np.arange(30) + 100
    grants = {p: (0.3 if p % 2 else 2.0) for p in set(owner.tolist())}
    model = sv.PosteriorSample(gamma=8.0, alpha=2.0, bounds=BALL).fit(
        X, y, epsilon=grants, groups=owner
    )
    audit = sv.audit.per_instance(model, X, y, DELTA, epsilon=grants, groups=owner)
    rows = model.read_arrays(X, y, epsilon=grants, groups=owner)
    plan = model.plan_for(rows.budgets, rows)
    codes = plan.budgets.row_codes()
    w = plan.weights.row[codes] * plan.parameters["weight_unit"]
    assert len(np.unique(w)) == 4
    check_sample(audit, X, y, w, 2.0, 8.0, (0, 1, 30, 60, 61))
    assert (audit.epsilon <= audit.promised).all()
    assert (audit.by_person() <= model.guarantee_.epsilon).all()


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("method", ["output", "output-tight"])
def test_radial_noise_agrees_with_refitting_in_its_own_coordinates(method, fit_intercept):
    X, y = data(80)
    owner = np.arange(80) // 2
    grants = np.repeat(np.where(np.arange(40) % 3, 0.2, 1.5), 2)
    model = sv.Ridge(bounds=BOX, method=method, alpha=0.05, fit_intercept=fit_intercept)
    model.fit(X, y, epsilon=grants, groups=owner)
    audit = sv.audit.per_instance(model, X, y, epsilon=grants, groups=owner)
    rows = model.read_arrays(X, y, epsilon=grants, groups=owner)
    plan = model.plan_for(rows.budgets, rows)
    w = plan.weights.row[plan.budgets.row_codes()] / plan.weights.total
    on_grid = np.rint(X * 2**13) / 2**13
    labels = np.rint(y * 2**13) / 2**13
    own = np.column_stack(
        [np.ones(80), on_grid / 2 + 0.5] if method == "output" else [np.full(80, 0.5), on_grid / 2]
    )
    if not fit_intercept:
        own = on_grid if method == "output" else on_grid / 2
    theta = solved(own, labels, 0.05, w)[1]
    for i in range(80):
        less = without(i, own, labels, w)
        moved = np.linalg.norm(theta - solved(*less[:2], 0.05, less[2])[1])
        assert audit.epsilon[i] == pytest.approx(plan.noise["rate"] * moved, rel=1e-9)
    for person in range(0, 40, 7):
        less = without([2 * person, 2 * person + 1], own, labels, w)
        moved = np.linalg.norm(theta - solved(*less[:2], 0.05, less[2])[1])
        assert audit.by_person()[person] == pytest.approx(plan.noise["rate"] * moved, rel=1e-9)
    other = own.copy(), labels.copy()
    other[0][5] = own[9]
    other[1][5] = -0.5
    moved = np.linalg.norm(theta - solved(*other, 0.05, w)[1])
    assert audit.replaced(5, (on_grid[9], -0.5)) == pytest.approx(
        plan.noise["rate"] * moved, rel=1e-9
    )


def test_the_pure_loss_of_radial_noise_is_attained_beyond_the_solution():
    X, y = data(80)
    model = sv.Ridge(bounds=BOX, method="output-tight", alpha=0.05).fit(X, y, epsilon=1.0)
    audit = sv.audit.per_instance(model, X, y, epsilon=1.0)
    setting = audit._setting
    rate = model.release_.noise["rate"]
    theta, other = (
        setting.fit(*rows).theta
        for rows in ((setting.rows, setting.labels), (setting.rows[1:], setting.labels[1:]))
    )
    far = theta + 1e4 * (theta - other)
    ratio = rate * (np.linalg.norm(far - other) - np.linalg.norm(far - theta))
    assert ratio == pytest.approx(float(audit.epsilon[0]), rel=1e-6)


@pytest.mark.parametrize("metric", ["identity", "hessian"])
def test_gaussian_output_agrees_with_refitting(metric):
    X, y = data()
    audit = sv.audit.per_instance(sv.audit.GaussianOutput(0.05, 1.5, metric), X, y, 1e-5)
    H, theta = solved(X, y, 1.5, np.ones(60))
    if metric == "identity":
        A = np.eye(3)
    else:
        A = H
    for i in range(60):
        gap = theta - solved(*without(i, X, y, np.ones(60))[:2], 1.5, np.ones(59))[1]
        D = math.sqrt(gap @ A @ gap) / 0.05
        epsilon = float(audit.epsilon[i])
        delta = norm.cdf(D / 2 - epsilon / D) - math.exp(epsilon) * norm.cdf(-D / 2 - epsilon / D)
        assert delta == pytest.approx(1e-5, rel=1e-4) or (epsilon == 0 and delta <= 1e-5)
    z = X[3], 0.9
    gap = (
        theta
        - solved(
            *(
                np.concatenate([np.delete(part, 8, axis=0), [value]])
                for part, value in zip((X, y), z, strict=True)
            ),
            1.5,
            np.ones(60),
        )[1]
    )
    D = math.sqrt(gap @ A @ gap) / 0.05
    epsilon = audit.replaced(8, z)
    assert norm.cdf(D / 2 - epsilon / D) - math.exp(epsilon) * norm.cdf(
        -D / 2 - epsilon / D
    ) == pytest.approx(1e-5)


def drawn_delta(rng, P, Q, epsilon, size=200_000):
    """Mean of (1 − e^(ε−L))₊ over draws of P, with its standard error."""
    L = P.logpdf(draws := P.rvs(size, random_state=rng)) - Q.logpdf(draws)
    gain = np.maximum(-np.expm1(epsilon - L), 0.0)
    return gain.mean(), gain.std() / math.sqrt(size)


def test_noise_in_the_objective_agrees_with_draws_of_it():
    # Its solution is H⁻¹(Xᵀy − b): normal, with covariance σ²H⁻². False alarms below 1e-6 a run
    # (5.5 deviations).
    X, y = data(12)
    y[0] = -y[0] * 2
    audit = sv.audit.per_instance(sv.audit.GaussianObjective(0.5, 0.5), X, y, 0.02)
    rng = np.random.default_rng()
    for i in (0, 5):
        laws = []
        for rows, labels in ((np.delete(X, i, axis=0), np.delete(y, i)), (X, y)):
            H, theta = solved(rows, labels, 0.5, np.ones(len(labels)))
            laws.append(multivariate_normal(theta, 0.25 * np.linalg.inv(H @ H)))
        both = [drawn_delta(rng, *pair, float(audit.epsilon[i])) for pair in (laws, laws[::-1])]
        (delta, error) = max(both)
        assert abs(delta - 0.02) < 5.5 * error + 1e-4


def test_losses_are_those_of_the_draws_that_the_library_makes():
    """The estimator's own sampler, with and without a row: P(S) − e^ε·Q(S) is δ for the worst set
    S, within 50 %.
    """
    X, y = data(20)
    y[4] = -1.0
    gamma = 8.0
    lam = 0.5
    delta = 0.1
    model = sv.PosteriorSample(gamma=gamma, alpha=lam, bounds=BALL).fit(X, y)
    audit = sv.audit.per_instance(model, X, y, delta)
    epsilon = float(audit.epsilon[4])
    mu = float(audit.leverage[4])
    a = math.sqrt(gamma) * abs(float(audit.residual[4]))
    edge = math.sqrt(math.log1p(mu) + a * a / (1 + mu) + 2 * epsilon)
    size = 8_000
    outside = []
    for rows, labels in ((np.delete(X, 4, axis=0), np.delete(y, 4)), (X, y)):
        total = rows.T @ rows
        cross = rows.T @ labels
        draws = np.array(
            [
                posterior_mechanism.draw_sample(total, cross, lam, gamma).astype(float)
                for _ in range(size)
            ]
        )
        outside.append(float((np.abs(math.sqrt(gamma) * (y[4] - draws @ X[4])) > edge).mean()))
    p, q = outside
    deviation = math.sqrt((p * (1 - p) + math.exp(2 * epsilon) * q * (1 - q)) / size)
    assert abs(p - math.exp(epsilon) * q - delta) < 5.5 * deviation
    assert deviation * 5.5 < 0.5 * delta


def test_the_adaptive_sample_is_audited_given_what_it_released_first():
    X, y = data(400, 4)
    model = sv.AdaptivePosteriorSample(epsilon=4.0, bounds=BALL).fit(X, y)
    audit = sv.audit.per_instance(model, X, y, DELTA)
    rows = model.read_arrays(X, y, epsilon=4.0, groups=None)
    plan = model.plan_for(rows.budgets, rows)
    w = plan.weights.row[plan.budgets.row_codes()] * plan.parameters["weight_unit"]
    check_sample(audit, X, y, w, model.regularisation_, plan.noise["gamma"], (0, 200))
    spread = plan.noise["eigenvalue_standard_deviation"]
    rooted = np.sqrt(w)[:, None] * X
    smallest = np.linalg.eigvalsh(rooted.T @ rooted)[0]
    for i in (0, 17, 390):
        moved = smallest - np.linalg.eigvalsh(rooted.T @ rooted - np.outer(rooted[i], rooted[i]))[0]
        D = moved / spread
        epsilon = float(audit.eigenvalue[i])
        found = norm.cdf(D / 2 - epsilon / D) - math.exp(epsilon) * norm.cdf(-D / 2 - epsilon / D)
        assert found == pytest.approx(DELTA, rel=1e-3) or (epsilon == 0 and found <= DELTA)
    both = sv.audit.compose([audit], DELTA).epsilon
    assert (both >= audit.epsilon).all()
    assert (both <= model.guarantee_.epsilon).all()


def test_who_was_left_out_lost_nothing_and_is_not_read():
    X, y = data(60)
    grants = sv.Budgets.of(np.where(np.arange(60) % 5, 1.0, 0.0), zero="leave out")
    X[0] = np.nan
    for model in (
        sv.PosteriorSample(gamma=8.0, alpha=2.0, bounds=BALL).fit(X, y, epsilon=grants),
        sv.Ridge(bounds=BOX, method="output-tight").fit(X, y, epsilon=grants),
    ):
        audit = sv.audit.per_instance(model, X, y, epsilon=grants)
        assert ((audit.epsilon == 0) == (np.arange(60) % 5 == 0)).all()
        assert np.isfinite(float(audit.for_all()))


def test_a_release_is_audited_like_the_model_that_made_it():
    X, y = data(100)
    grants = np.where(np.arange(100) % 2, 0.5, 3.0)
    fitted = [
        sv.PosteriorSample(gamma=2.0, alpha=3.0, bounds=BALL).fit(X, y, epsilon=grants),
        sv.PosteriorSample(gamma=2.0, alpha=3.0, bounds=BOX, fit_intercept=True).fit(
            X, y, epsilon=grants
        ),
        sv.AdaptivePosteriorSample(bounds=BALL, floor=60.0).fit(X, y, epsilon=grants),
        sv.Ridge(bounds=BOX, method="output", alpha=0.1, coefficient_bound=2.0).fit(
            X, y, epsilon=grants
        ),
    ]
    for model in fitted:
        release = sv.Release.from_json(model.release_.to_json())
        own = sv.audit.per_instance(model, X, y, epsilon=grants)
        assert np.array_equal(
            sv.audit.per_instance(release, X, y, epsilon=grants).epsilon, own.epsilon
        )
        read = type(model).from_release(release)
        assert np.array_equal(
            sv.audit.per_instance(read, X, y, epsilon=grants).epsilon, own.epsilon
        )


@pytest.mark.parametrize("seed", range(2))
def test_nobody_loses_more_than_the_worst_record_and_it_is_attained(seed):
    X, y = data(50, 3, seed)
    rng = np.random.default_rng(seed)
    for mechanism in (
        sv.PosteriorSample(gamma=4.0, alpha=1.0, bounds=BALL).fit(X, y),
        sv.audit.GaussianOutput(0.3, 1.0, bounds=BALL),
        sv.audit.GaussianOutput(0.3, 1.0, "hessian", bounds=BALL),
    ):
        audit = sv.audit.per_instance(mechanism, X, y, DELTA)
        worst = audit.for_all()
        assert worst.attained
        assert (audit.epsilon <= worst.epsilon).all()
        assert worst.epsilon <= worst.bound <= worst.epsilon * (1 + 1e-6)
        assert sv.audit.pdp_to_dp(audit) == worst.bound
        if worst.added:
            assert audit.for_one((worst.x, worst.y), [(X, y)])[0] == pytest.approx(
                worst.epsilon, rel=1e-6
            )
        others = rng.normal(size=(20, 3))
        others /= np.linalg.norm(others, axis=1)[:, None]
        for x in others:
            assert audit.for_one((x, rng.choice([-1, 1])), [(X, y)])[0] <= worst.bound


def test_a_row_in_a_direction_of_its_own_may_lose_more_than_any_that_is_added():
    X = np.zeros((30, 2))
    y = np.zeros(30)
    X[:29, 0] = 1.0
    X[29, 1] = 1.0
    y[29] = 1.0
    audit = sv.audit.per_instance(
        sv.PosteriorSample(gamma=4.0, alpha=0.5, bounds=BALL).fit(X, y), X, y
    )
    worst = audit.for_all()
    assert (worst.added, worst.row) == (False, 29)
    assert float(worst) == audit.epsilon.max()


def test_for_a_box_the_worst_record_is_a_bound():
    X, y = data(60)
    for audit in (
        sv.audit.per_instance(
            sv.Ridge(bounds=BOX, method="output-tight").fit(X, y, epsilon=1.0), X, y, epsilon=1.0
        ),
        sv.audit.per_instance(sv.PosteriorSample(bounds=BOX, fit_intercept=True).fit(X, y), X, y),
    ):
        worst = audit.for_all()
        assert not worst.attained
        corners = np.array(np.meshgrid(*[[-1, 1]] * 3)).reshape(3, -1).T
        for corner in corners:
            for label in (-1.0, 1.0):
                assert audit.for_one((corner, label), [(X, y)])[0] <= worst.bound


def test_one_record_in_many_data_sets():
    sets = [data(40, 3, seed) for seed in range(5)]
    audit = sv.audit.per_instance(sv.audit.GaussianOutput(0.3, 1.0), *sets[0], DELTA)
    z = np.array([0.0, 0.0, 1.0]), 0.5
    found = audit.for_one(z, sets)
    for (X, y), epsilon in zip(sets, found, strict=True):
        whole = sv.audit.per_instance(
            sv.audit.GaussianOutput(0.3, 1.0), np.vstack([X, z[0]]), np.append(y, z[1]), DELTA
        )
        assert whole.epsilon[-1] == pytest.approx(epsilon, rel=1e-9)


def test_several_rows_of_a_posterior_sample_add_up_exactly_in_renyi():
    X, y = data(24)
    owner = np.arange(24) // 3
    model = sv.PosteriorSample(gamma=5.0, alpha=1.0, bounds=BALL).fit(X, y, groups=owner)
    audit = sv.audit.per_instance(model, X, y, DELTA, groups=owner)
    H, theta = solved(X, y, 1.0, np.ones(24))
    H0, theta0 = solved(X[3:], y[3:], 1.0, np.ones(21))
    alpha = renyi.ORDERS[100]
    k = 100
    # D_α between two normal laws, in closed form: α times the one precision less α − 1 times the
    # other.
    S = alpha * H0 - (alpha - 1) * H
    mixed = np.linalg.solve(S, alpha * H0 @ theta0 - (alpha - 1) * H @ theta)
    form = alpha * theta0 @ H0 @ theta0 - (alpha - 1) * theta @ H @ theta - mixed @ S @ mixed
    logs = [np.linalg.slogdet(M)[1] for M in (H0, H, S)]
    exact = (alpha * logs[0] - (alpha - 1) * logs[1] - logs[2]) / 2 / (
        alpha - 1
    ) - 5.0 * form / 2 / (alpha - 1)
    counts = np.bincount(owner)
    order = np.arange(24)
    (block,) = instance_losses._iterate_blocks(
        audit._setting, audit._fit, counts, order, np.arange(0, 24, 3)
    )
    assert instance_losses._sum_posterior_curves(block, 5.0)[0, k] == pytest.approx(exact, rel=1e-9)
    assert (audit.by_person() >= [audit.epsilon[owner == p].max() for p in range(8)]).all()


def test_a_group_costs_no_less_than_its_rows_together():
    X, y = data(30)
    audit = sv.audit.per_instance(
        sv.audit.GaussianOutput(0.2, 1.0), X, y, DELTA, groups=np.arange(30) // 2
    )
    epsilon, delta = audit.group([4, 5])
    assert epsilon > audit.by_person()[2]
    assert delta > 2 * DELTA
    alone = audit.group([4])
    assert alone == (pytest.approx(float(audit.epsilon[4])), DELTA)


def test_composition_lies_between_the_exact_joint_loss_and_the_sum():
    X, y = data(50)
    first, second = (
        sv.audit.per_instance(sv.audit.GaussianOutput(s, 1.0), X, y, DELTA) for s in (0.05, 0.08)
    )
    both = sv.audit.compose([first, second], DELTA).epsilon
    # Two Gaussian releases of one solution are one with the precision of both.
    joint = sv.audit.per_instance(
        sv.audit.GaussianOutput((0.05**-2 + 0.08**-2) ** -0.5, 1.0), X, y, DELTA
    ).epsilon
    assert (joint <= both).all()
    assert (both <= first.at(DELTA / 2).epsilon + second.at(DELTA / 2).epsilon).all()
    assert np.median(both / joint) < 1.25
    assert np.array_equal(sv.audit.compose([first], DELTA).epsilon, first.epsilon)


def test_every_mechanism_composes_with_every_other():
    X, y = data(40)
    audits = [
        sv.audit.per_instance(
            sv.PosteriorSample(gamma=2.0, alpha=3.0, bounds=BALL).fit(X, y), X, y
        ),
        sv.audit.per_instance(
            sv.Ridge(bounds=BOX, method="output").fit(X, y, epsilon=1.0), X, y, epsilon=1.0
        ),
        sv.audit.per_instance(sv.audit.GaussianObjective(2.0, 3.0), X, y),
    ]
    total = sv.audit.compose(audits).epsilon
    assert (total <= sum(audit.at(1e-6 / 3).epsilon for audit in audits)).all()
    for audit in audits:
        assert (total >= audit.epsilon).all()
        if not isinstance(
            audit._setting.mechanism, mechanisms.RadialOutput
        ):  # a pure ε is a little less at a δ
            assert (
                renyi.convert_to_epsilon(audit.curves(slice(0, 40)), 1e-6)
                >= audit.epsilon * (1 - 1e-9)
            ).all()


def test_the_generalisation_bound_of_no_loss_is_delta_and_grows():
    X, y = data(50)
    quiet, loud = (
        sv.audit.per_instance(sv.audit.GaussianOutput(s, 1.0), X, y, DELTA) for s in (1e6, 0.1)
    )
    assert quiet.generalisation_bound() == pytest.approx(2e-6, rel=0.01)
    assert (
        quiet.generalisation_bound()
        < loud.generalisation_bound()
        <= loud.generalisation_bound(simple=True)
        <= 1
    )


# Planted bugs: each must be noticed by the comparison with refitting.


def in_sample(fit, rows, labels, metric, *, present):
    seen = fit.left_out(rows, labels)
    zero = np.zeros(len(labels))
    return mechanisms.LeaveOneOutChange(seen.share, seen.error, zero, zero, zero)


def no_weights(X, y, ridge, weights=None):
    return leverages.RidgeFit(
        np.eye(X.shape[1]) * 50, ridge, np.zeros(X.shape[1]), np.eye(X.shape[1]) / math.sqrt(50)
    )


@pytest.mark.parametrize(
    ("where", "name", "bug"),
    [
        ("sottovoce.audit.inputs.compute_changes", "the row is still there", in_sample),
        ("sottovoce.audit.leverages.fit_ridge", "another fit", no_weights),
        ("sottovoce.audit.mechanisms.math.sqrt", "γ for √γ", lambda v: v),
    ],
)
def test_planted_bugs_are_noticed(where, name, bug, monkeypatch):
    X, y = data()
    model = sv.PosteriorSample(gamma=8.0, alpha=2.0, bounds=BALL).fit(X, y)
    check_sample(sv.audit.per_instance(model, X, y, DELTA), X, y, np.ones(60), 2.0, 8.0, (0, 12))
    with monkeypatch.context() as patched:
        patched.setattr(where, bug)
        audit = sv.audit.per_instance(model, X, y, DELTA)
        audit.epsilon  # noqa: B018
    with pytest.raises(AssertionError):
        check_sample(audit, X, y, np.ones(60), 2.0, 8.0, (0, 12))
