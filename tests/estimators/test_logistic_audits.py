"""Exact losses of logistic regression, for the strictest and the loosest, one row and many, and
planted bugs.

Objective perturbation has a density: the problem that a fit is about to solve is captured, and the
log-ratio of densities between neighbouring tables follows from it by a formula written here. Worst
pairs are found by a search that knows only weights, λ and the rate of the noise.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import cache

import numpy as np
import pytest
import scipy
from scipy.optimize import minimize
from scipy.special import expit

import sottovoce as sv
from sottovoce import units
from sottovoce.accounting import kappa
from sottovoce.data import loss_kernels
from sottovoce.data.encoding import CentredBox, UnitBall
from sottovoce.estimators import logistic_mechanism

#: Rows are used as they are: no intercept, no scaling.
PLAIN = {"bounds": sv.Bounds(norm=1.0), "fit_intercept": False}
which_person = pytest.mark.parametrize(
    "which", [np.argmin, np.argmax], ids=["strictest", "loosest"]
)


def captured(X, y, people, **options):
    """The problems that a fit is about to solve, and its charges by row or person."""
    model = sv.LogisticRegression(**{**PLAIN, **options})
    problems = []

    def caught(problem, tolerance, start=None):
        problems.append(problem)
        return problem.centre

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(logistic_mechanism.newton, "minimise", caught)
        model.fit(X, y, epsilon=people[0], groups=people[1])
    return problems, model


def log_density(problem, rate, w, norm=np.linalg.norm):
    """log of the density of the minimiser at w, up to a constant that neighbours share."""
    _, pull, bend = problem.terms(np.asarray(w, dtype=float), False)
    b = pull - problem.ridge * w
    return -rate * norm(b) / 2 + np.linalg.slogdet(bend + np.diag(problem.ridge))[1]


def log_density_of_classes(problem, rate, w, classes):
    """The same for several classes in one objective: functions that add up to nothing have a
    density.
    """
    _, pull, bend = problem.terms(np.asarray(w, dtype=float), False)
    b = pull - problem.ridge * w
    basis = np.kron(scipy.linalg.helmert(classes).T, np.eye(len(w) // classes))
    curvature = basis.T @ (bend + np.diag(problem.ridge)) @ basis
    return -rate * np.linalg.norm(b) / math.sqrt(8) + np.linalg.slogdet(curvature)[1]


def loss(first, second, people, points, **options):
    """The largest log-ratio at the points, both directions, summed over the problems of several
    classes.
    """
    (one, model) = captured(*first, people, **options)
    (two, _) = captured(*second, people, **options)
    rate = model.release_.noise["rate"]
    total = 0.0
    for a, b in zip(one, two, strict=True):
        if model.release_.parameters["objective"] == "softmax":
            losses = [
                log_density_of_classes(a, rate, w, 4) - log_density_of_classes(b, rate, w, 4)
                for w in points
            ]
        else:
            losses = [log_density(a, rate, w) - log_density(b, rate, w) for w in points]
        total += max(map(abs, losses))
    return total, model


@cache
def worst_pair(weight, ridge, rate, labels=False):
    """Returns (z, z', the others' two rows, share of the first, w) in the plane that come close to
    the supremum.
    """

    def unpack(v):
        rows = [np.array([math.cos(a), math.sin(a)]) for a in v[:4]]
        return rows, 1 / (1 + math.exp(-v[4])), np.array([-math.exp(v[5]), 0.0])

    def ratio(v):
        (z, z2, o1, o2), share, w = unpack(v)
        if labels:
            z2 = -z

        def log_f(own):
            rows = np.array([own, o1, o2])
            a = np.array([weight, (1 - weight) * share, (1 - weight) * (1 - share)])
            s = expit(-rows @ w)
            b = (a * s) @ rows - ridge * w
            return (
                -rate * np.linalg.norm(b) / 2
                + np.linalg.slogdet(
                    ridge * np.eye(2) + (rows * (a * s * (1 - s))[:, None]).T @ rows
                )[1]
            )

        return log_f(z2) - log_f(z)

    best = None
    for start in STARTS:
        found = minimize(
            ratio,
            start,
            method="Nelder-Mead",
            options={"maxiter": 1500, "xatol": 1e-8, "fatol": 1e-10},
        )
        if best is None or found.fun < best.fun:
            best = found
    (z, z2, o1, o2), share, w = unpack(best.x)
    return z, -z if labels else z2, o1, o2, share, w


#: z and z' nearly across w on opposite sides and both doubted, everybody else on one side.
STARTS = [
    np.array([1.4, -1.4, a, b, 2.0, size])
    for a, b in ((1.4, -1.4), (1.0, 2.0))
    for size in (0.5, 3.0)
]


def table_of(pair, mine, share):
    """Two tables of n rows that differ in the rows ``mine``; the others are of two kinds, in that
    proportion.
    """
    z, z2, o1, o2, _, _ = pair
    n = len(mine)
    others = np.where((np.arange(n) < share * n)[:, None], o1, o2)
    first = others.copy()
    second = others.copy()
    first[mine] = z
    second[mine] = z2
    return (first, np.ones(n)), (second, np.ones(n))


def audited(people, owner, **options):
    """Returns (largest loss found, charge of the owner, model) on the worst pairs for this
    person.
    """
    epsilon, groups = people
    mine = (np.arange(len(epsilon)) if groups is None else groups) == owner
    rng = np.random.default_rng(5)
    _, model = captured(np.zeros((len(mine), 2)), np.ones(len(mine)), people, **options)
    plan = model.plan(epsilon=epsilon, groups=groups, n_features=2)
    weight = (
        float(plan.weights.person[plan.budgets.codes] @ _own(plan, owner, groups))
        / plan.weights.total
    )
    pair = worst_pair(weight, model.release_.parameters["alpha"], plan.noise["rate"])
    points = [pair[5], *(rng.normal(0, s, 2) for s in (0.1, 1, 5) for _ in range(4))]
    share = pair[4]
    measured = loss(*table_of(pair, mine, share), people, points, **options)[0]
    for _ in range(6):  # random pairs too
        first, second = rng.normal(size=(2, len(mine), 2))
        second[~mine] = first[~mine]
        labels = rng.integers(0, 2, (2, len(mine)))
        labels[1, ~mine] = labels[0, ~mine]
        measured = max(
            measured, loss((first, labels[0]), (second, labels[1]), people, points, **options)[0]
        )
    return measured, float(plan.charges @ _own(plan, owner, groups)), plan


def _own(plan, owner, groups):
    if groups is None:
        names = np.arange(len(plan.charges))
    else:
        names = np.unique(groups)
    return (names == owner).astype(float)


#: Loud others, so that ηλ is large at a small λ: there the bound is nearly attained.
LOUD = (np.array([200.0] + [210.0] * 120), None)
LOUD_GROUPS = (
    np.repeat([150.0, 900.0], [3, 40]),
    np.array(["a"] * 3 + [f"p{k}" for k in range(38)] + ["p0", "p1"]),
)
MIXED = (np.repeat([0.1, 0.5, 2.0], [10, 12, 8]), None)
GROUPS = (
    np.repeat([0.1, 2.0, 0.5, 0.1, 2.0, 0.5], [1, 1, 4, 6, 9, 3]),
    np.repeat(list("abcdef"), [1, 1, 4, 6, 9, 3]),
)


@pytest.mark.parametrize("accountant", ["kappa", "exact"])
@pytest.mark.parametrize("people", [LOUD, LOUD_GROUPS], ids=["one row", "many rows"])
@which_person
def test_the_worst_pair_comes_within_a_hundredth_of_the_charge_and_not_above(
    people, which, accountant
):
    """At λ = 10⁻³ and ηλ > 2 κ is above 0.99, and the search finds it."""
    if people[1] is None:
        names = np.arange(len(people[0]))
    else:
        names = people[1]
    measured, charge, plan = audited(
        people, names[which(people[0])], alpha=1e-3, accountant=accountant
    )
    assert plan.noise["rate"] * 1e-3 > 2
    assert 0.98 * charge <= measured <= charge
    if accountant == "kappa":
        assert measured >= 0.99 * charge * (1 - logistic_mechanism.SLACK)


@pytest.mark.parametrize(
    "alpha", [None, 0.05, *(pytest.param(a, marks=pytest.mark.long) for a in (1.0, 10.0))]
)
@pytest.mark.parametrize("accountant", ["kappa", "exact"])
@pytest.mark.parametrize("people", [MIXED, GROUPS], ids=["one row", "many rows"])
@which_person
def test_nobody_loses_more_than_the_charge(people, which, accountant, alpha):
    if people[1] is None:
        names = np.arange(len(people[0]))
    else:
        names = people[1]
    owner = names[which(people[0])]
    measured, charge, _ = audited(people, owner, alpha=alpha, accountant=accountant)
    assert measured <= charge <= people[0][names == owner][0]
    assert measured >= 0.4 * charge


@pytest.mark.parametrize("alpha", [None, 0.01, 1.0])
@which_person
def test_labels_alone_lose_half_as_much_and_exactly_so(which, alpha):
    for people in (MIXED, GROUPS):
        if people[1] is None:
            names = np.arange(len(people[0]))
        else:
            names = people[1]
        owner = names[which(people[0])]
        mine = names == owner
        X = np.tile([1.0, 0.0], (len(mine), 1))
        y = np.ones(len(mine))
        points = [np.array([t, 0.0]) for t in (-30.0, -3.0, -0.1, 0.1, 3.0, 30.0)]
        options = {"alpha": alpha, "neighbours": "labels"}
        measured, model = loss((X, y), (X, np.where(mine, 0, y)), people, points, **options)
        charge = float(
            model.guarantee_.epsilon @ _own(model.plan(*people, n_features=2), owner, people[1])
        )
        assert (
            0.99 * charge * (1 - logistic_mechanism.SLACK)
            <= measured
            <= charge
            <= people[0][mine][0]
        )
        assert model.guarantee_.neighbours == "replace labels"


@pytest.mark.parametrize("neighbours", ["replace", "labels"])
@which_person
def test_several_classes_share_one_budget(which, neighbours):
    """Everything about a person by one objective; labels alone by one against the others, where a
    label can change two problems, and two count.
    """
    rng = np.random.default_rng(3)
    options = {"classes": ("a", "b", "c", "d"), "neighbours": neighbours}
    for people in (MIXED, GROUPS):
        if people[1] is None:
            names = np.arange(len(people[0]))
        else:
            names = people[1]
        owner = names[which(people[0])]
        mine = names == owner
        n = len(names)
        worst = 0.0
        charge = 0.0
        for size in (0.1, 1.0, 3.0, 10.0):
            if neighbours == "replace":
                lines = [size * rng.normal(size=(4, 2)) for _ in range(6)]
                points = [(line - line.mean(axis=0)).ravel() for line in lines]
            else:
                points = [size * rng.normal(size=2) for _ in range(6)]
            X = rng.normal(size=(n, 2))
            y = rng.choice(list("abcd"), n)
            X2 = X.copy()
            y2 = y.copy()
            if neighbours == "replace":
                X2[mine] = -X[mine]
            y2[mine] = np.where(y[mine] == "a", "b", "a")
            found, model = loss((X, y), (X2, y2), people, points, **options)
            charge = float(
                model.guarantee_.epsilon @ _own(model.plan(*people, n_features=2), owner, people[1])
            )
            worst = max(worst, found)
        assert 0.1 * charge < worst <= charge


def with_intercept_loss(people, owner):
    """A pair of rows that are far outside of their bounds, with an intercept, for a default fit."""
    options = {"bounds": sv.Bounds(features=(-1, 1)), "fit_intercept": True, "alpha": 1e-3}
    mine = np.arange(len(people[0])) == owner
    X = np.tile([1.0, 1.0], (len(mine), 1))
    first = X.copy()
    second = X.copy()
    first[mine] = [-1, 9]
    second[mine] = [9, -1]
    rng = np.random.default_rng(0)
    points = [s * rng.normal(size=3) for s in (0.1, 1, 10, 100) for _ in range(10)]
    points += [t * np.array([0, -1.0, 1.0]) for t in (-100, -10, 10, 100)]
    y = np.ones(len(mine))
    y2 = np.ones(len(mine))
    y2[mine] = 0
    measured, model = loss((first, y), (second, y2), people, points, **options)
    return measured, float(model.guarantee_.epsilon[owner])


BUGS = {
    "noise ÷ 1.5": lambda patch: patch.setattr(
        logistic_mechanism.continuous,
        "draw_l2",
        lambda rate, d, draw=logistic_mechanism.continuous.draw_l2: draw(1.5 * rate, d),
    ),
    "rows are not cut": lambda patch: patch.setattr(
        UnitBall, "rows", lambda self, Z: (Z - self.middle) / self.spread / self.radius * 1.5
    ),
    "everybody has the same weight": lambda patch: patch.setattr(
        logistic_mechanism.PersonWeights,
        "row",
        property(
            lambda self: np.full(len(self.left), 1 / int(self.kinds.rows @ self.kinds.people))
        ),
    ),
    "weights × 1.5": lambda patch: patch.setattr(
        logistic_mechanism.PersonWeights,
        "row",
        property(lambda self: 1.5 * self.weights.row / self.weights.total),
    ),
    "κ of ten times the λ": lambda patch: patch.setattr(
        logistic_mechanism.kappa,
        "kappa",
        lambda ridge, rho, own=logistic_mechanism.kappa.kappa: own(10 * ridge, rho),
    ),
    "add/remove for replace": lambda patch: patch.setattr(
        logistic_mechanism.NoisyObjective, "find_linear_rate", lambda self, total: 2 * total
    ),
}


def rate_drawn(people, **options):
    """The rate of the noise that a fit really asks for."""
    rates = []
    with pytest.MonkeyPatch.context() as patch:
        original = logistic_mechanism.continuous.draw_l2
        patch.setattr(
            logistic_mechanism.continuous,
            "draw_l2",
            lambda rate, d: (rates.append(rate), original(rate, d))[1],
        )
        captured(np.zeros((len(people[0]), 2)), np.ones(len(people[0])), people, **options)
    return 2 * rates[0]


def strict_loss(people=LOUD, **options):
    """As audited(), but with the rate that is drawn, not the one that the plan tells, and charges
    by the plan.
    """
    options = {"alpha": 1e-3, **options}
    _, model = captured(np.zeros((len(people[0]), 2)), np.ones(len(people[0])), people, **options)
    plan = model.plan(epsilon=people[0], n_features=2)
    owner = int(np.argmin(people[0]))
    mine = np.arange(len(people[0])) == owner
    weight = plan.weights.person[plan.budgets.codes][owner] / plan.weights.total
    pair = worst_pair(float(weight), options["alpha"], plan.noise["rate"])
    (one, _), (two, _) = (
        captured(*table, people, **options) for table in table_of(pair, mine, pair[4])
    )
    rate = _drawn_rate(plan.noise["rate"])
    measured = max(
        abs(log_density(a, rate, t * pair[5]) - log_density(b, rate, t * pair[5]))
        for a, b in zip(one, two, strict=True)
        for t in (0.5, 1.0, 2.0)
    )
    return measured, float(people[0][owner])


def _drawn_rate(rate):
    """The rate of the law of b that a fit draws when it asks for this one: the mean of ‖b‖ is
    2d/η.
    """
    return rate * _drawn_at_one(logistic_mechanism.continuous.draw_l2)


#: 20,000 draws tell the rate with a deviation of .5 %: this is seven of them, and more.
RATE_MARGIN = 1.04


@cache
def _drawn_at_one(draw):
    return (
        2 * 2 / float(np.mean([np.linalg.norm(draw(0.5, 2).astype(float)) for _ in range(20_000)]))
    )


def test_the_rate_of_the_noise_is_the_plans():
    plan = sv.LogisticRegression(**PLAIN, alpha=1e-3).plan(epsilon=LOUD[0], n_features=2)
    assert rate_drawn(LOUD, alpha=1e-3) == pytest.approx(plan.noise["rate"])


@pytest.mark.parametrize("bug", BUGS, ids=str)
def test_planted_bugs_are_caught(bug):
    """Each loses the strictest person more than they granted, where the real thing does not: 1.39
    times as much, and 1.5 times where the drawn rate has a part in it.
    """
    with pytest.MonkeyPatch.context() as patch:
        BUGS[bug](patch)
        patch.setattr(
            units, "check_within_grant", np.minimum
        )  # which would refuse one of them before a row is read
        if bug == "κ of ten times the λ":
            measured, granted = _wrong_kappa()
        elif bug == "everybody has the same weight":
            measured, granted = strict_loss((np.array([0.5] + [2.0] * 20), None), alpha=0.5)
        else:
            measured, granted = strict_loss()
    assert measured > RATE_MARGIN * granted


def test_a_plan_that_overspends_is_refused_before_a_row_is_read(monkeypatch):
    BUGS["add/remove for replace"](monkeypatch)
    with pytest.raises(sv.errors.BudgetExceeded):
        sv.LogisticRegression(**PLAIN, alpha=1e-3).plan(epsilon=LOUD[0], n_features=2)


def test_the_solvers_last_digits_are_covered_by_noise_and_paid_for(monkeypatch):
    """ν is drawn at ε_out/(2t) in the norm of Λ and added to the minimiser; everybody who takes
    part pays κ̄·W·η and ε_out.
    """
    rates = []
    model = sv.LogisticRegression(**PLAIN, alpha=1e-3)
    monkeypatch.setattr(
        logistic_mechanism.continuous,
        "draw_l2",
        lambda rate, d: (rates.append(rate), np.full(d, len(rates)))[1],
    )
    monkeypatch.setattr(
        logistic_mechanism.newton, "minimise", lambda problem, tolerance, start: 10 * problem.tilt
    )
    plan = model.plan(epsilon=LOUD[0], n_features=2)
    model.fit(np.zeros((len(LOUD[0]), 2)), np.ones(len(LOUD[0])), epsilon=LOUD[0])
    participating = logistic_mechanism.PersonWeights.of(plan.budgets.kinds, 2, 2, labels_only=False)
    rate = plan.noise["rate"]
    mechanism = model._read_mechanism(plan.parameters, None)
    assert rates == pytest.approx(
        [rate / 2, 1 / logistic_mechanism.compute_output_scale(participating, mechanism, rate)],
        rel=1e-9,
    )
    assert model.coef_.ravel() == pytest.approx(10 + 2 / math.sqrt(1e-3))
    alone = mechanism.charge(participating.person, participating.ranks, rate)
    assert participating.slack == pytest.approx(logistic_mechanism.SLACK * LOUD[0].min())
    assert plan.guarantee.spent == pytest.approx(
        units.UNITS_PER_EPSILON * (alone + participating.slack), abs=2
    )


# ---------------------------------------------------------------- in the box

AMPLE = {"bounds": sv.Bounds(features=(-1, 1)), "fit_intercept": True}
AMPLE_PEOPLE = (np.array([30.0] + [31.0] * 80), None)
#: A w at which rows of both classes are doubted wholly: where a search over w begins.
BOX_POINT = np.array([-693.941, 54.2687, 674.695])


def box_loss(which, people=AMPLE_PEOPLE, share_for_intervals=0.0):
    """The largest loss to the fit at the worst pair, and the charge: a row in one corner of the box
    becomes one in another, both wholly doubted, while the others hold b where its norm grows. Where
    no share buys intervals, the fit has all that is charged.
    """
    options = {**AMPLE, "interval_share": share_for_intervals}
    n = len(people[0])
    mine = which(people[0])
    features = np.where((np.arange(n) < 0.62 * n)[:, None], [1, 0.88], [1, 0.77])
    labels = (np.arange(n) >= 0.62 * n).astype(int)
    first = features.copy()
    second = features.copy()
    first[mine] = [1, 1]
    second[mine] = [1, -1]
    before = labels.copy()
    after = labels.copy()
    before[mine] = 0
    after[mine] = 1
    (one,), model = captured(first, before, people, **options)
    (two,), _ = captured(second, after, people, **options)
    given = model.release_.parameters
    assert given["rows"]["kind"] == "box"
    share = given["intercept_share"]

    def norm(b):
        return 2 * (share * abs(b[0]) + (1 - share) * np.abs(b[1:]).max())

    rate = model.release_.noise["rate"] * drawn_share(share)
    found = [
        minimize(
            lambda w: -abs(log_density(one, rate, w, norm) - log_density(two, rate, w, norm)),
            t * BOX_POINT,
            method="Nelder-Mead",
            options={"maxiter": 150},
        ).fun
        for t in (0.05, 0.2, 1.0)
    ]
    return -min(found), float(model.guarantee_.epsilon[mine])


def drawn_share(share):
    """How much faster the law of b falls off than exp(−α|b₀| − (1−α)·max|b_j|): from the mean of
    |b₀| and of the largest slope.
    """
    mechanism = logistic_mechanism.NoisyObjective(
        CentredBox(2, True), np.ones(3), "exact", 2, share
    )
    drawn = np.array([mechanism.draw_tilt(1.0) for _ in range(6000)])
    first = 1 / share / np.abs(drawn[:, 0]).mean()
    others = 2 / (1 - share) / np.abs(drawn[:, 1:]).max(axis=1).mean()
    return (first + others) / 2


@which_person
def test_the_worst_pair_of_a_box_reaches_its_charge_and_not_more(which):
    """6,000 draws tell the rate with a deviation of .8 %, and 5 % are six of them."""
    measured, charge = box_loss(which)
    assert 0.95 * charge <= measured <= 1.05 * charge


@which_person
def test_a_share_that_buys_intervals_is_not_spent_on_the_fit_too(which):
    """The fit costs what the share leaves of the charge, within 5 % as above."""
    share = 0.2
    measured, charge = box_loss(which, share_for_intervals=share)
    left = (1 - share) * charge
    assert 0.95 * left <= measured <= 1.05 * left


BOX_BUGS = {
    "noise ÷ 1.5": lambda patch: patch.setattr(
        logistic_mechanism.continuous,
        "draw_columns",
        lambda p, m, share, draw=logistic_mechanism.continuous.draw_columns: (
            draw(p, m, share) / Fraction(3, 2)
        ),
    ),
    "slopes as if the intercept had no part": lambda patch: patch.setattr(
        logistic_mechanism.continuous,
        "draw_columns",
        lambda p, m, share, draw=logistic_mechanism.continuous.draw_columns: (
            draw(p, m, share) * (1 - Fraction(share))
        ),
    ),
    "half the box": lambda patch: patch.setattr(logistic_mechanism, "HALF", 0.25),
    "weights × 1.5": BUGS["weights × 1.5"],
}


@pytest.mark.parametrize("bug", BOX_BUGS, ids=str)
def test_planted_bugs_of_the_box_are_caught(bug):
    with pytest.MonkeyPatch.context() as patch:
        BOX_BUGS[bug](patch)
        patch.setattr(units, "check_within_grant", np.minimum)
        measured, charge = box_loss(np.argmin)
    assert measured > 1.05 * charge


def test_curvature_costs_as_much_in_the_box_as_is_charged():
    """Where η·Λ is small, what a row adds to the curvature is charged with H̄, and never less than
    a search finds.
    """
    rng = np.random.default_rng(8)
    body = CentredBox(2, True)
    ridge = np.array([0.02, 0.05, 0.05])
    mechanism = logistic_mechanism.NoisyObjective(body, ridge, "exact", 2, 0.2)
    rate = 0.8 / mechanism.stiffness
    weight = 0.3

    def log_f(own, w):
        rows = np.vstack([own, others])
        a = np.array([weight, 0.7])
        s = expit(-rows @ w)
        b = (a * s) @ rows - ridge * w
        norm = 2 * (0.2 * abs(b[0]) + 0.8 * np.abs(b[1:]).max())
        bend = (rows * (a * s * (1 - s))[:, None]).T @ rows
        return -rate * norm / 2 + np.linalg.slogdet(np.diag(ridge) + bend)[1]

    charge = float(mechanism.charge(np.array([weight]), np.array([1]), rate)[0])
    worst = 0.0
    for _ in range(4000):
        corners = rng.choice([-0.5, 0.5], (3, 3))
        others = corners[2:]
        w = rng.normal(size=3) * np.exp(rng.uniform(-3, 4))
        worst = max(worst, abs(log_f(corners[0], w) - log_f(corners[1], w)))
    assert 0.6 * charge <= worst <= charge


# ---------------------------------------------------------------- several classes

#: A pair of rows with their classes, the others, and functions, found by a search over all of it.
SOFTMAX_PAIR = (([0.99844795, -0.0556929], 2), ([0.98029901, -0.19751922], 1))
SOFTMAX_OTHERS = ([0.99211619, -0.12532148], 1)
SOFTMAX_POINT = np.array(
    [[-5.13093351, 0.37884849], [9.49066592, 63.06394537], [-4.35973242, -63.44279386]]
)


def softmax_loss(which, people=LOUD, **options):
    """The largest loss at the worst pair that a search found, and the charge."""
    options = {"classes": (0, 1, 2), "alpha": 1e-3, **options}
    n = len(people[0])
    mine = which(people[0])
    tables = []
    for row, label in SOFTMAX_PAIR:
        X = np.tile(SOFTMAX_OTHERS[0], (n, 1))
        y = np.full(n, SOFTMAX_OTHERS[1])
        X[mine] = row
        y[mine] = label
        tables.append((X / np.linalg.norm(X, axis=1, keepdims=True), y))
    (one,), model = captured(*tables[0], people, **options)
    (two,), _ = captured(*tables[1], people, **options)
    assert model.release_.parameters["objective"] == "softmax"
    rate = model.release_.noise["rate"] * _drawn_by_classes(model._read_mechanism)
    point = SOFTMAX_POINT - SOFTMAX_POINT.mean(axis=0)
    found = [
        log_density_of_classes(one, rate, t * point.ravel(), 3)
        - log_density_of_classes(two, rate, t * point.ravel(), 3)
        for t in (0.8, 1.0, 1.2)
    ]
    return max(map(abs, found)), float(model.guarantee_.epsilon[mine])


def _drawn_by_classes(read):
    """How much faster the law of b falls off than exp(−‖b‖/√8): by its mean length, which is that
    of four free numbers.
    """
    body = UnitBall(np.zeros(2), np.ones(2), 1.0, 0.0, 23)
    mechanism = logistic_mechanism.NoisyObjective(body, np.ones(2), "exact", 3)
    lengths = [np.linalg.norm(mechanism.draw_tilt(1.0)) for _ in range(4000)]
    return 4 * math.sqrt(8) / float(np.mean(lengths))


@which_person
def test_the_worst_pair_of_several_classes_reaches_their_charge_and_not_more(which):
    """4,000 lengths tell the rate within 0.8 %, and 5 % are six times that."""
    measured, charge = softmax_loss(which)
    assert 0.94 * charge <= measured <= 1.05 * charge


SOFTMAX_BUGS = {
    "noise of two classes": lambda patch: patch.setattr(
        logistic_mechanism.NoisyObjective, "doubt", property(lambda self: 1.0)
    ),
    "noise ÷ 1.5": BUGS["noise ÷ 1.5"],
    "weights × 1.5": BUGS["weights × 1.5"],
}


@pytest.mark.parametrize("bug", SOFTMAX_BUGS, ids=str)
def test_planted_bugs_of_several_classes_are_caught(bug):
    with pytest.MonkeyPatch.context() as patch:
        SOFTMAX_BUGS[bug](patch)
        patch.setattr(units, "check_within_grant", np.minimum)
        measured, charge = softmax_loss(np.argmin)
    assert measured > 1.05 * charge


@pytest.mark.parametrize("classes", [3, 4, 10])
def test_several_classes_pay_for_every_doubt_and_curvature(classes):
    """½(1 + v) + T/ρ over all probabilities, by a search, is what is charged for each W·η."""
    rng = np.random.default_rng(classes)
    chances = rng.dirichlet(np.full(classes, 0.4), 40_000)
    chances[: classes + 1] = np.vstack([np.eye(classes), np.full(classes, 1 / classes)])
    others = chances[:, 1:]
    chances[20_000:, 1:] = others[20_000:].mean(axis=1, keepdims=True)
    doubt = np.linalg.norm(chances - np.eye(classes)[0], axis=1) / math.sqrt(2)
    bend = 1 - np.square(chances).sum(axis=1)
    for rho in (0.5, 1.0, 2.0, 4.0, 6.0, 7.9, 8.0, 50.0):
        found = float(((1 + doubt) / 2 + bend / rho).max())
        assert 0.98 * kappa.bound_softmax(rho, classes) <= found
        assert found <= kappa.bound_softmax(rho, classes) * (1 + 1e-12)


def test_the_functions_of_several_classes_add_up_to_nothing():
    """Noise and gradients are orthogonal to (1, …, 1), so that (K − 1)·d numbers are drawn."""
    body = UnitBall(np.zeros(2), np.ones(2), 1.0, 0.0, 23)
    for shape in (body, CentredBox(2, True)):
        ridge = np.ones(shape.width)
        mechanism = logistic_mechanism.NoisyObjective(shape, ridge, "exact", 4, 0.2)
        drawn = mechanism.draw_tilt(1.0).reshape(4, -1)
        assert np.abs(drawn.sum(axis=0)).max() < 1e-12 * np.abs(drawn).max()


# ---------------------------------------------------------------- the intercept that is bought


def chosen_scores(X, y, people, **options):
    """The scores among which a fit chooses its intercept, and the scale, where slopes are given."""
    caught = []

    def choose(scores, scale):
        caught.append((scores, scale))
        return 0

    model = sv.LogisticRegression(**{"bounds": sv.Bounds(features=(-1, 1)), **options})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(logistic_mechanism.source, "permute_and_flip", choose)
        patch.setattr(
            logistic_mechanism.Problems,
            "fit",
            lambda self, positive: np.array([[0.1, 1.0, 0.5]]),
        )
        model.fit(X, y, epsilon=people[0], groups=people[1])
    return *caught[0], model


def flip_chances(scores, scale):
    """The law of permute-and-flip: p_i·∫ Π_{j≠i} (1 − p_j·u) du, u the place in a random order."""
    p = np.exp(-(scores - scores.min()) / scale)
    nodes, mass = np.polynomial.legendre.leggauss(80)
    u = (nodes + 1) / 2
    left = 1 - p[:, None] * u
    return np.array(
        [p[i] * np.prod(np.delete(left, i, axis=0), axis=0) @ mass / 2 for i in range(len(p))]
    )


def threshold_loss(which, people):
    """The largest log-ratio of chances of an intercept between tables that differ in one person,
    and what is charged for it.
    """
    granted, groups = people
    names = np.arange(len(granted)) if groups is None else groups
    mine = names == names[which(granted)]
    rng = np.random.default_rng(4)
    X = rng.uniform(-1, 1, (len(mine), 2))
    y = (X[:, 0] > 0).astype(int)
    measured = 0.0
    for _ in range(6):
        X2 = X.copy()
        y2 = y.copy()
        side = rng.choice([-1, 1])
        X[mine] = [side, side]
        y[mine] = int(side < 0)
        X2[mine] = [-side, -side]
        y2[mine] = int(side > 0)
        scores, scale, model = chosen_scores(X, y, people)
        others, _, _ = chosen_scores(X2, y2, people)
        ratio = np.log(flip_chances(scores, scale) / flip_chances(others, scale))
        measured = max(measured, float(np.abs(ratio).max()))
    plan = model.plan(epsilon=granted, groups=groups, n_features=2)
    own = _own(plan, names[which(granted)], groups)
    charge = 2 * float(plan.weights.person[plan.budgets.codes] @ own)
    return measured, charge / plan.noise["threshold_scale"], plan


MANY = (np.repeat([0.4, 0.8, 1.6], [60, 60, 60]), None)
MANY_GROUPS = (np.repeat([0.9, 1.8], [100, 160]), np.repeat(np.arange(130), 2))


@pytest.mark.parametrize("people", [MANY, MANY_GROUPS], ids=["one row", "many rows"])
@which_person
def test_an_intercept_costs_what_is_charged_for_it_at_most(people, which):
    measured, charge, plan = threshold_loss(which, people)
    assert 0.3 * charge <= measured <= charge
    granted = people[0][which(people[0])]
    assert plan.parameters["threshold"] > 0
    assert charge <= plan.parameters["threshold"] * granted


@pytest.mark.parametrize("bug", ["scale ÷ 2", "weights × 3"])
def test_planted_bugs_of_the_intercept_are_caught(bug):
    with pytest.MonkeyPatch.context() as patch:
        if bug == "scale ÷ 2":
            original = logistic_mechanism.PersonWeights.find_threshold_scale
            patch.setattr(
                logistic_mechanism.PersonWeights,
                "find_threshold_scale",
                lambda self, share: original(self, share) // 4,
            )
            patch.setattr(units, "check_within_grant", np.minimum)
        else:
            own = loss_kernels.ThresholdErrors.__call__
            patch.setattr(
                loss_kernels.ThresholdErrors, "__call__", lambda self, batch: 4 * own(self, batch)
            )
        measured, _, plan = threshold_loss(np.argmax, MANY)
    assert measured > plan.parameters["threshold"] * MANY[0].max()


def _wrong_kappa():
    """At λ = 0.03 κ is far from 1, and still far from that of λ = 0.3."""
    return strict_loss((np.array([2.0] + [30.0] * 40), None), alpha=0.03)


def test_the_same_measurement_passes_without_a_bug():
    measured, granted = strict_loss()
    assert measured <= RATE_MARGIN * granted
    measured, granted = with_intercept_loss(LOUD, 0)
    assert measured <= granted
