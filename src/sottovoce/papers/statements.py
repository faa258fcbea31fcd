# SPDX-License-Identifier: Apache-2.0
"""Theorems, lemmas and claims of the papers that have no table or figure, each held against drawn
cases.

A bound is shown as the largest ratio of what is bounded to its bound: it holds if that is at most
one. An identity is shown as the largest relative difference of its two sides. Draws cannot prove
anything; proofs are on the pages under docs/theory, and what draws refute is on the page of errata.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import product
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit, ndtr
from scipy.stats import gamma

import sottovoce as sv
from sottovoce.arrays import Floats, Integers
from sottovoce.papers import errata_tables, ridge_setup, users_claims
from sottovoce.papers.plots import Outcome, ResultColumn, ResultTable
from sottovoce.papers.report import Task, make_named_generator

if TYPE_CHECKING:
    # experiments draw with fixed seeds and release nothing
    from numpy.random import Generator  # noqa: TID251

#: Cases that are drawn for each statement, for the full and the small size.
DRAWS = (200, 20)
BOUND = "largest value over its bound"
IDENTITY = "largest difference of two sides"
#: Nodes of the quadrature along the line between two solutions.
NODES, NODE_WEIGHTS = np.polynomial.legendre.leggauss(40)

Check = Callable[["Generator"], float]


def outcome(task: Task) -> Outcome:
    """Hold every statement of one paper against drawn cases; which paper, the name says."""
    paper = task.name.partition("/")[0]
    draws = task.choose(*DRAWS)
    found = {label: _measure(check, label, draws) for label, (_, check) in CHECKS[paper].items()}
    kinds = {label: kind for label, (kind, _) in CHECKS[paper].items()}
    columns = tuple(
        ResultColumn(
            name, tuple(value if kinds[label] == name else None for label, value in found.items())
        )
        for name in (BOUND, IDENTITY)
    )
    words = (
        f"Each is the largest of {draws} drawn cases. A bound holds if it is at most 1, an "
        "identity if it is 0 up to rounding.",
    )
    table = ResultTable("Statements held against drawn cases", "statement", tuple(found), columns)
    return Outcome(task.name, task.size, (table,), (), words)


def _measure(check: Check, label: str, draws: int) -> float:
    rng = make_named_generator(f"statements {label}")
    return max(float(check(rng)) for _ in range(draws))


def _differ(one: ArrayLike, other: ArrayLike) -> float:
    """Return the largest difference of two sides, over the larger of the two."""
    first, second = (np.asarray(side, dtype=np.float64) for side in (one, other))
    scale = max(float(np.abs(first).max()), float(np.abs(second).max()))
    return float(np.abs(first - second).max()) / scale


# Personalized Differential Privacy for Ridge Regression


def _draw_ridge(rng: Generator) -> tuple[Floats, Floats, Floats, float]:
    """Return rows in [0, 1]^d, labels in [−1, 1], budgets and a ridge; corners as often as not."""
    n = int(rng.integers(2, 12))
    d = int(rng.integers(1, 6))
    X = rng.random((n, d))
    y = rng.uniform(-1, 1, n)
    if rng.random() < 0.5:
        X = X.round()
        y = np.where(y > 0, 1.0, -1.0)
    return X, y, rng.uniform(0.01, 1, n), float(10 ** rng.uniform(-2, 2))


def _solve(X: Floats, y: Floats, w: Floats, lam: float) -> Floats:
    return np.asarray(np.linalg.solve((X.T * w) @ X + lam * np.eye(X.shape[1]), (w * y) @ X))


def _bound_solution(lam: float, d: int) -> float:
    return min(1 / math.sqrt(lam), math.sqrt(d) / lam)


def _change_one(rng: Generator) -> tuple[float, float, float, int, float, float]:
    """Return how far a changed record moves the solution; its weight, λ, d, ε and Σε."""
    X, y, epsilon, lam = _draw_ridge(rng)
    w = epsilon / epsilon.sum()
    other = X.copy()
    labels = y.copy()
    other[0] = np.round(rng.random(X.shape[1]))
    labels[0] = -np.sign(y[0]) or 1.0
    moved = np.linalg.norm(_solve(X, y, w, lam) - _solve(other, labels, w, lam))
    return float(moved), float(w[0]), lam, X.shape[1], float(epsilon[0]), float(epsilon.sum())


def _check_theorem_2_1(rng: Generator) -> float:
    moved, _, lam, d, epsilon, total = _change_one(rng)
    return float(ridge_setup.compute_rate(lam, d, total)) * moved / epsilon


def _check_theorem_2_3(rng: Generator) -> float:
    """The same with a promise B about the solution without a ridge on both data sets."""
    X, y, epsilon, lam = _draw_ridge(rng)
    d = X.shape[1]
    w = epsilon / epsilon.sum()
    other = X.copy()
    other[0] = rng.random(d)
    promise = max(
        float(
            np.linalg.norm(np.linalg.lstsq(np.sqrt(w)[:, None] * Z, np.sqrt(w) * y, rcond=None)[0])
        )
        for Z in (X, other)
    )
    rate = lam * epsilon.sum() / (2 * math.sqrt(d) * (promise * math.sqrt(d) + 1))
    moved = np.linalg.norm(_solve(X, y, w, lam) - _solve(other, y, w, lam))
    return float(rate * moved / epsilon[0])


def _check_lemma_c_1(rng: Generator) -> float:
    X, y, epsilon, lam = _draw_ridge(rng)
    return float(np.linalg.norm(_solve(X, y, epsilon / epsilon.sum(), lam))) * math.sqrt(lam)


def _check_lemma_c_2(rng: Generator) -> float:
    X, y, epsilon, lam = _draw_ridge(rng)
    length = float(np.linalg.norm(_solve(X, y, epsilon / epsilon.sum(), lam)))
    return length * lam / math.sqrt(X.shape[1])


def _check_lemma_c_3(rng: Generator) -> float:
    """G and g quadratic, both G and G + g strongly convex."""
    d = int(rng.integers(1, 5))
    factors = rng.normal(size=(2, d, d))
    first, second = (factor @ factor.T + np.eye(d) for factor in factors)
    slopes = rng.normal(size=(2, d))
    least = min(np.linalg.eigvalsh(first)[0], np.linalg.eigvalsh(second)[0])
    one = np.linalg.solve(second, slopes[1])
    two = np.linalg.solve(first, slopes[0])
    gradient = (second - first) @ one - (slopes[1] - slopes[0])
    return float(least * np.linalg.norm(one - two) / np.linalg.norm(gradient))


def _check_theorem_c_4(rng: Generator) -> float:
    moved, weight, lam, d, _, _ = _change_one(rng)
    root = math.sqrt(d)
    return moved * lam / (2 * root * weight * (root * _bound_solution(lam, d) + 1))


def _check_lemma_c_5(rng: Generator) -> float:
    """The log ratio of two densities at any output, over η times the distance of their middles."""
    one, two, out = rng.normal(size=(3, 4))
    loss = np.linalg.norm(out - two) - np.linalg.norm(out - one)
    return float(abs(loss) / np.linalg.norm(one - two))


def _check_remark_1(rng: Generator) -> float:
    d = int(rng.integers(1, 40))
    rate = float(rng.uniform(0.1, 10))
    square = gamma.moment(2, d, scale=1 / rate)
    return _differ(square, d * (d + 1) / rate**2)


# Striking a Balance


def _check_proposition_1(rng: Generator) -> float:
    """The log ratio of two densities for weights and rate that are fixed, over aη + 2·log(1 +
    a/λ).
    """
    n, d = (int(rng.integers(1, 6)), int(rng.integers(1, 4)))
    rows = rng.normal(size=(n + 1, d))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    weights = rng.dirichlet(np.ones(n))
    lam = float(10 ** rng.uniform(-2, 1))
    rate = float(10 ** rng.uniform(-1, 2))
    w = rng.normal(size=d) * 10 ** rng.uniform(-1, 1)
    logs = []
    for last in (rows[-2], rows[-1]):
        used = np.vstack([rows[: n - 1], last])
        s = expit(-used @ w)
        bend = lam * np.eye(d) + (used.T * (weights * s * (1 - s))) @ used
        noise = (weights * s) @ used - lam * w
        logs.append(np.linalg.slogdet(bend)[1] - rate / 2 * np.linalg.norm(noise))
    allowed = weights[-1] * rate + 2 * math.log1p(weights[-1] / lam)
    return float(abs(logs[0] - logs[1]) / allowed)


def _check_theorem_a_1(rng: Generator) -> float:
    """P(sign(wᵀx) ≠ y) over the bound with fixed weights; logarithms to base 2."""
    m, d = (200, 3)
    truth = rng.normal(size=d)
    X = rng.normal(size=(10 * m, d))
    X /= np.linalg.norm(X, axis=1, keepdims=True).clip(1)
    y = np.where(X @ truth + 0.3 * rng.normal(size=len(X)) > 0, 1.0, -1.0)
    rate = 50.0
    w = rng.normal(size=d)
    w *= rng.uniform(0, 5) / np.linalg.norm(w)
    b = rng.normal(size=d)
    b *= rng.gamma(d) / np.linalg.norm(b)
    mu, sigma = sv.market.constants(d, norm=5.0)
    loss = np.logaddexp(0, -(y[:m] * (X[:m] @ w))).mean() / math.log(2)
    bound = loss + 2 * b @ w / rate / math.log(2) + mu / math.sqrt(m) + sigma / rate
    return float(np.mean(np.sign(X @ w) != y) / bound)


def _check_theorem_3_2(rng: Generator) -> float:
    """E[c·ε(c) + ∫_c ε] = E[Ψ(c)·ε(c)] for a rule that falls with the cost, c uniform in [p, q]."""
    p = float(rng.uniform(0, 2))
    q = p + float(rng.uniform(0.5, 3))
    slope, power = rng.uniform(0.1, 2), rng.uniform(1, 3)
    nodes = (p + q) / 2 + (q - p) / 2 * NODES

    def sold(cost: Floats) -> Floats:
        return np.asarray(1 / (1 + slope * cost**power))

    after = np.array(
        [((q - c) / 2 * NODE_WEIGHTS) @ sold((c + q) / 2 + (q - c) / 2 * NODES) for c in nodes]
    )
    payments = NODE_WEIGHTS @ (nodes * sold(nodes) + after) / 2
    virtual = NODE_WEIGHTS @ ((2 * nodes - p) * sold(nodes)) / 2
    return _differ(float(payments), float(virtual))


def _check_theorem_3_3(rng: Generator) -> float:
    """The weights of the formula have the least value of aᵀg + μ‖a‖ of all that were tried."""
    m = int(rng.integers(2, 8))
    costs = rng.uniform(0, 3, m)
    mu = float(rng.uniform(0.1, 3))
    low, high = (float(costs.min()), float(costs.max()) + mu)
    while high - low > 1e-14 * high:
        middle = (low + high) / 2
        if np.linalg.norm(np.maximum(middle - costs, 0)) < mu:
            low = middle
        else:
            high = middle
    raw = np.maximum(high - costs, 0)
    best = raw / raw.sum()
    others = rng.dirichlet(np.ones(m), 200)
    near = np.abs(best + rng.normal(size=(200, m)) * 1e-3)
    tried = np.vstack([others, near / near.sum(axis=1, keepdims=True)])
    values = tried @ costs + mu * np.linalg.norm(tried, axis=1)
    return float((best @ costs + mu * np.linalg.norm(best)) / values.min())


def _check_theorem_4_1(rng: Generator) -> float:
    """(ℓ'²/ℓ − ℓ'')·‖x‖² at any margin over the λ that is right, twice that of (30)."""
    margin = float(rng.uniform(-15, 5))
    s = float(expit(-margin))
    loss = float(np.logaddexp(0, -margin))
    bend = (s**2 / loss - s * (1 - s)) / math.log(2)
    return bend / errata_tables.compute_convexity_condition()


# Smoothly Bounding User Contributions


def _draw_people(rng: Generator) -> tuple[Integers, Integers, Floats]:
    """Return everybody's rows, the owner of each, and weights of rows that add up to one."""
    sizes = rng.integers(1, 12, int(rng.integers(2, 10)))
    owner = np.repeat(np.arange(len(sizes), dtype=np.int64), sizes)
    weights = rng.dirichlet(np.ones(len(owner)))
    return sizes, owner, weights


def _check_lemma_1(rng: Generator) -> float:
    _, owner, c = _draw_people(rng)
    y, other = rng.random((2, len(owner)))
    person = int(rng.integers(owner.max() + 1))
    other = np.where(owner == person, np.round(other), y)
    return float(abs(c @ (y - other)) / np.bincount(owner, c).max())


def _check_lemma_2(rng: Generator) -> float:
    """The variance over all labels that are σ or −σ, and over Laplace noise by quadrature."""
    c = rng.dirichlet(np.ones(int(rng.integers(2, 9))))
    sigma, scale = rng.uniform(0.1, 2, 2)
    sums = sigma * np.array(list(product((-1.0, 1.0), repeat=len(c)))) @ c
    noise = gamma.moment(2, 1, scale=scale)
    return _differ(float(np.var(sums) + noise), sigma**2 * float(c @ c) + 2 * scale**2)


def _check_lemma_3(rng: Generator) -> float:
    """The best weights, by the library, over the best of many h of Lemma 3; and no h is better."""
    sizes, _, _ = _draw_people(rng)
    A = float(10 ** rng.uniform(-2, 1))
    h = np.geomspace(sizes.min(), sizes.max(), 4000)[:, None]
    kept = np.minimum(h, sizes)
    total = kept.sum(axis=1)
    values = (A * (kept**2 / sizes).sum(axis=1) + h[:, 0] ** 2) / total**2
    return users_claims.minimise_over_weights(sizes, A) / float(values.min())


def _check_claim_2(rng: Generator) -> float:
    sizes, owner, _ = _draw_people(rng)
    h = int(rng.integers(1, sizes.max() + 1))
    place = np.arange(len(owner)) - np.searchsorted(owner, owner)
    c = (place < h) / np.minimum(sizes, h).sum()
    A = float(rng.uniform(0.1, 2))
    loud = float(np.bincount(owner, c).max())
    rows = np.minimum(sizes, h).sum()
    return _differ(A * float(c @ c) + loud**2, A / rows + (min(h, sizes.max()) / rows) ** 2)


def _check_theorem_3(rng: Generator) -> float:
    sizes = np.round(10 ** rng.uniform(0, 2.5, int(rng.integers(2, 20)))).astype(np.int64)
    A = float(10 ** rng.uniform(-3, 2))
    limited = users_claims.minimise_over_limits(sizes, A)[0]
    return limited / users_claims.minimise_over_weights(sizes, A) / 4


def _draw_map(rng: Generator) -> tuple[Floats, Floats]:
    """Return features, and a map C with CX = I."""
    n, d = (int(rng.integers(4, 12)), int(rng.integers(1, 4)))
    X = rng.normal(size=(n, d))
    inverse = np.linalg.pinv(X)
    return X, inverse + rng.normal(size=(d, n)) @ (np.eye(n) - X @ inverse)


def _check_theorem_6(rng: Generator) -> float:
    """How far Cy can move over what the paper adds up, for one person with all rows."""
    _, C = _draw_map(rng)
    return errata_tables.compute_exact_sensitivity(C) / float(np.abs(C).sum())


def _check_claim_4(rng: Generator) -> float:
    _, owner, c = _draw_people(rng)
    y = rng.random(len(owner))
    person = int(rng.integers(owner.max() + 1))
    other = np.where(owner == person, rng.random(len(owner)).round(), y)
    loud = float(np.bincount(owner, c).max())
    epsilon = float(rng.uniform(0.1, 3))
    laws = [users_claims.compute_chances(values, c, loud, epsilon) for values in (y, other)]
    return float(np.abs(np.log(laws[0] / laws[1])).max()) / epsilon


def _check_claim_5(rng: Generator) -> float:
    """The largest distance of rank and law over η, at γ = 0.001, for uniform values."""
    _, _, c = _draw_people(rng)
    y = np.sort(rng.random(len(c)))
    below = np.concatenate([[0.0], np.cumsum(c)])
    distance = max(float(np.abs(below[1:] - y).max()), float(np.abs(y - below[:-1]).max()))
    eta = math.sqrt(math.log(2 * len(c) / 1e-3) * float(c @ c) / 2) + float(c.max())
    return distance / eta


def _check_fact_1(rng: Generator) -> float:
    X, C = _draw_map(rng)
    beta = rng.normal(size=X.shape[1])
    return _differ(C @ X @ beta, beta)


def _check_claim_7(rng: Generator) -> float:
    """Generalised least squares with the repaired covariance against C itself."""
    X, C = _draw_map(rng)
    precision = C.T @ C + np.eye(len(X)) - X @ np.linalg.pinv(X)
    return _differ(np.linalg.solve(X.T @ precision @ X, X.T @ precision), C)


def _check_theorem_11(rng: Generator) -> float:
    X, C = _draw_map(rng)
    direction = rng.normal(size=X.shape[1])
    return float(np.sum((direction @ np.linalg.pinv(X)) ** 2) / np.sum((direction @ C) ** 2))


# Per-instance Differential Privacy


def _check_fact_5(rng: Generator) -> float:
    """|log P(S)/P'(S)| over 2ε, for events at least as likely as δ/ε under both."""
    epsilon, delta = (float(rng.uniform(0.05, 2)), float(10 ** rng.uniform(-4, -1)))
    second = float(rng.uniform(min(delta / epsilon, 1), 1))
    first = min(math.exp(epsilon) * second + delta, 1.0)
    return abs(math.log(first / second)) / (2 * epsilon)


def _check_fact_6_1(rng: Generator) -> float:
    """Simple composition of two releases on three outcomes each: P(S) over e^ε·P'(S) + δ."""
    pairs = [rng.dirichlet(np.ones(3), 2) for _ in range(2)]
    epsilons = rng.uniform(0, 2, 2)
    deltas = [
        np.maximum(p - math.exp(e) * q, 0).sum() for (p, q), e in zip(pairs, epsilons, strict=True)
    ]
    joint, other = (np.outer(pairs[0][i], pairs[1][i]).ravel() for i in (0, 1))
    excess = np.maximum(joint - math.exp(epsilons.sum()) * other, 0).sum()
    allowed = sum(deltas)
    if allowed > 0:
        return float(excess / allowed)
    return 0.0


def _check_lemma_13(rng: Generator) -> float:
    """Both lines, with + in the second, for logistic regression with a ridge; the Hessian's mean by
    quadrature.
    """
    n, d = (int(rng.integers(3, 10)), int(rng.integers(1, 4)))
    rows = rng.normal(size=(n + 1, d))
    without, present = (_solve_logistic(part) for part in (rows[:-1], rows))
    bends = []
    for used in (rows, rows[:-1]):
        total = np.zeros((d, d))
        for node, weight in zip(NODES, NODE_WEIGHTS, strict=True):
            middle = (1 + node) / 2 * without + (1 - node) / 2 * present
            s = expit(-used @ middle)
            total += weight / 2 * ((used.T * (s * (1 - s))) @ used + np.eye(d))
        bends.append(total)
    z = rows[-1]
    gradients = [-expit(-z @ theta) * z for theta in (without, present)]
    moved = without - present
    return max(
        _differ(np.linalg.solve(bend, gradient), moved)
        for bend, gradient in zip(bends, gradients, strict=True)
    )


def _solve_logistic(rows: Floats) -> Floats:
    """Return the minimiser of Σ log(1 + e^(−zᵀθ)) + ½‖θ‖², by Newton's method."""
    theta = np.zeros(rows.shape[1])
    for _ in range(60):
        s = expit(-rows @ theta)
        bend = (rows.T * (s * (1 - s))) @ rows + np.eye(len(theta))
        theta = theta - np.linalg.solve(bend, theta - s @ rows)
    return theta


def _check_lemma_18(rng: Generator) -> float:
    X = rng.normal(size=(int(rng.integers(2, 9)), int(rng.integers(1, 5))))
    lam = float(10 ** rng.uniform(-2, 2))
    bend = X.T @ X + lam * np.eye(X.shape[1])
    least = float(np.linalg.eigvalsh(bend)[0])
    return float(np.linalg.norm(np.linalg.solve(bend, X.T), 2) / math.sqrt(2 / least))


def _check_lemma_19(rng: Generator) -> float:
    X = rng.normal(size=(8, 3))
    y = rng.normal(size=8)
    E1 = rng.normal(size=(3, 3))
    E1 = E1 @ E1.T
    E2 = rng.normal(size=3)
    theta = np.linalg.solve(X.T @ X, X.T @ y)
    moved = np.linalg.solve(X.T @ X + E1, X.T @ y + E2) - theta
    return _differ(moved, np.linalg.solve(X.T @ X + E1, E2 - E1 @ theta))


def _check_lemma_20(rng: Generator) -> float:
    """Woodbury's formula with the V that print lacks."""
    A = 5 * np.eye(4) + rng.normal(size=(4, 4)) / 4
    U, V = (rng.normal(size=(4, 2)), rng.normal(size=(2, 4)))
    C = 3 * np.eye(2) + rng.normal(size=(2, 2)) / 4
    inverse = np.linalg.inv(A)
    middle = np.linalg.inv(np.linalg.inv(C) + V @ inverse @ U)
    return _differ(np.linalg.inv(A + U @ C @ V), inverse - inverse @ U @ middle @ V @ inverse)


def _check_lemma_21(rng: Generator) -> float:
    A = rng.normal(size=(4, 4)) + 3 * np.eye(4)
    c, d = rng.normal(size=(2, 4))
    sides = np.linalg.det(A + np.outer(c, d)), np.linalg.det(A) * (1 + d @ np.linalg.solve(A, c))
    return float(abs(sides[0] - sides[1]) / max(abs(np.linalg.det(A)), abs(sides[0])))


def _check_lemma_22(rng: Generator) -> float:
    X, E = rng.normal(size=(2, 6, 4))
    moved = np.linalg.svd(X, compute_uv=False) - np.linalg.svd(X + E, compute_uv=False)
    return float(np.abs(moved).max() / np.linalg.norm(E, 2))


def _check_lemma_23(rng: Generator) -> float:
    edge = float(10 ** rng.uniform(-2, 1))
    return float(2 * ndtr(-edge) * edge * math.exp(edge**2 / 2) / 2)


def _check_lemma_25(rng: Generator) -> float:
    """Signs times fixed matrices, all of them counted."""
    matrices = rng.normal(size=(6, 3, 3))
    matrices = matrices + matrices.transpose(0, 2, 1)
    signs = np.array(list(product((-1.0, 1.0), repeat=6)))
    most = np.linalg.eigvalsh(np.einsum("si,ijk->sjk", signs, matrices))[:, -1]
    variance = float(np.linalg.norm(sum(matrix @ matrix for matrix in matrices), 2))
    edges = np.sort(most)[most.size // 2 :]
    share = np.array([(most >= edge).mean() for edge in edges])
    return float((share / (3 * np.exp(-(edges**2) / (2 * variance)))).max())


#: What is checked, by paper and by label; whether it is a bound or an identity.
CHECKS: dict[str, dict[str, tuple[str, Check]]] = {
    "ridge": {
        "Remark .1": (IDENTITY, _check_remark_1),
        "Theorem 2.1": (BOUND, _check_theorem_2_1),
        "Theorem 2.3": (BOUND, _check_theorem_2_3),
        "Lemma C.1": (BOUND, _check_lemma_c_1),
        "Lemma C.2": (BOUND, _check_lemma_c_2),
        "Lemma C.3": (BOUND, _check_lemma_c_3),
        "Theorem C.4": (BOUND, _check_theorem_c_4),
        "Lemma C.5": (BOUND, _check_lemma_c_5),
    },
    "market": {
        "Proposition 1": (BOUND, _check_proposition_1),
        "Theorem 2.1": (BOUND, _check_theorem_a_1),
        "Theorem 3.2": (IDENTITY, _check_theorem_3_2),
        "Theorem 3.3": (BOUND, _check_theorem_3_3),
        "Theorem 4.1": (BOUND, _check_theorem_4_1),
    },
    "users": {
        "Lemma 1": (BOUND, _check_lemma_1),
        "Lemma 2": (IDENTITY, _check_lemma_2),
        "Lemma 3": (BOUND, _check_lemma_3),
        "Claim 2": (IDENTITY, _check_claim_2),
        "Theorem 3": (BOUND, _check_theorem_3),
        "Theorem 6": (BOUND, _check_theorem_6),
        "Claim 4": (BOUND, _check_claim_4),
        "Claim 5": (BOUND, _check_claim_5),
        "Fact 1": (IDENTITY, _check_fact_1),
        "Claim 7": (IDENTITY, _check_claim_7),
        "Theorem 11": (BOUND, _check_theorem_11),
    },
    "instance": {
        "Fact 5": (BOUND, _check_fact_5),
        "Fact 6.1": (BOUND, _check_fact_6_1),
        "Lemma 13": (IDENTITY, _check_lemma_13),
        "Lemma 18": (BOUND, _check_lemma_18),
        "Lemma 19": (IDENTITY, _check_lemma_19),
        "Lemma 20": (IDENTITY, _check_lemma_20),
        "Lemma 21": (IDENTITY, _check_lemma_21),
        "Lemma 22": (BOUND, _check_lemma_22),
        "Lemma 23": (BOUND, _check_lemma_23),
        "Lemma 25": (BOUND, _check_lemma_25),
    },
}
