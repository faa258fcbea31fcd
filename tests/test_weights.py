"""The weights are optimal, and their integers keep every promise."""

from __future__ import annotations

import math
from itertools import pairwise

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sottovoce as sv
from sottovoce import errors
from sottovoce.budgets import BudgetGroups
from sottovoce.weights import TOTAL_BITS, Weights, _solve_saturation

instances = st.lists(st.tuples(st.floats(1e-3, 20), st.integers(1, 50)), min_size=1, max_size=30)


def objective(W, epsilon, rows, A, B=0.0):
    granting = epsilon > 0
    loudest = np.max(W[granting] / epsilon[granting])
    return A * np.sum(W**2 / rows) + loudest**2 + B * np.abs(W - rows / rows.sum()).sum() ** 2


def by_cvxpy(epsilon, rows, A, B=0.0):
    W = cp.Variable(len(epsilon), nonneg=True)
    loudest = cp.Variable(nonneg=True)
    # Scaled by the mean weight: interior-point tolerances are absolute.
    m = len(epsilon)
    even = rows / np.sum(rows) * m
    goal = A * cp.sum(cp.multiply(1 / rows, cp.square(W))) + cp.square(loudest)
    if B > 0:
        goal += B * cp.square(cp.norm1(W - even))
    problem = cp.Problem(cp.Minimize(goal), [cp.sum(W) == m, cp.multiply(epsilon, loudest) >= W])
    problem.solve(
        solver=cp.CLARABEL, tol_gap_abs=1e-14, tol_gap_rel=1e-14, tol_feas=1e-14, max_iter=200
    )
    return W.value / m


@pytest.mark.parametrize("seed", range(25))
def test_weights_agree_with_cvxpy_to_1e_8(seed):
    rng = np.random.default_rng(seed)
    m = int(rng.integers(2, 60))
    epsilon = rng.lognormal(-1, 1, m)
    rows = rng.integers(1, 20, m)
    A = float(rng.choice([0.01, 0.125, 1, 10])) * float(rng.choice([1, m]))
    ours = sv.optimal_weights(epsilon, rows, A)
    theirs = by_cvxpy(epsilon, rows, A)
    assert np.max(np.abs(ours - theirs)) <= 1e-8
    assert objective(ours, epsilon, rows, A) <= objective(
        theirs / theirs.sum(), epsilon, rows, A
    ) * (1 + 1e-12)


@pytest.mark.parametrize("seed", range(25))
def test_weights_with_association_agree_with_cvxpy_to_1e_8(seed):
    """Some grant nothing in every third, and are in everybody else's picture of what is equal."""
    rng = np.random.default_rng(seed)
    m = int(rng.integers(2, 60))
    epsilon = rng.lognormal(-1, 1, m)
    if seed % 5 == 0:
        epsilon = rng.choice([0.01, 0.2, 1.0], m)
    if seed % 3 == 0:
        epsilon[: m // 4] = 0
    rows = rng.integers(1, 20, m)
    A = float(rng.choice([0.01, 0.125, 1, 10])) * float(rng.choice([1, m]))
    B = A * float(rng.choice([0.01, 0.04, 1, 10])) * float(rng.choice([1, m]))
    ours = sv.optimal_weights(epsilon, rows, A, B)
    theirs = np.where(epsilon > 0, np.maximum(by_cvxpy(epsilon, rows, A, B), 0), 0)
    theirs /= theirs.sum()
    assert np.max(np.abs(ours - theirs)) <= 1e-8
    assert objective(ours, epsilon, rows, A, B) <= objective(theirs, epsilon, rows, A, B) * (
        1 + 1e-12
    )


def test_without_association_the_weights_are_the_same_to_the_last_bit():
    epsilon = np.geomspace(1e-3, 10, 200)
    rows = np.arange(200) % 7 + 1
    assert np.array_equal(
        sv.optimal_weights(epsilon, rows, 0.3), sv.optimal_weights(epsilon, rows, 0.3, 0.0)
    )


@settings(max_examples=200, deadline=None)
@given(people=instances, A=st.floats(0, 1e4), B=st.floats(1e-4, 1e4))
def test_more_association_brings_weights_nearer_to_equal_ones(people, A, B):
    epsilon, rows = (np.array(column, dtype=float) for column in zip(*people, strict=True))
    even = rows / rows.sum()
    apart = [
        np.abs(sv.optimal_weights(epsilon, rows, A, b) - even).sum()
        for b in (0.0, B, 2 * B, np.inf)
    ]
    assert all(later <= earlier + 1e-9 for earlier, later in pairwise(apart))
    assert apart[-1] <= 1e-12


@settings(max_examples=200, deadline=None)
@given(
    people=instances,
    A=st.floats(1e-4, 1e4),
    B=st.one_of(st.just(0.0), st.floats(1e-4, 1e4)),
    data=st.data(),
)
def test_no_nudge_improves_the_objective(people, A, B, data):
    epsilon, rows = (np.array(column, dtype=float) for column in zip(*people, strict=True))
    W = sv.optimal_weights(epsilon, rows, A, B)
    best = objective(W, epsilon, rows, A, B)
    nudge = np.array(data.draw(st.lists(st.floats(-0.5, 0.5), min_size=len(W), max_size=len(W))))
    other = np.maximum(W * (1 + nudge), 0)
    other /= other.sum()
    assert W.sum() == pytest.approx(1)
    assert best <= objective(other, epsilon, rows, A, B) * (1 + 1e-9)


@settings(max_examples=200, deadline=None)
@given(people=instances, A=st.floats(1e-4, 1e4))
def test_h_is_the_root_of_phi(people, A):
    epsilon, rows = (np.array(column, dtype=float) for column in zip(*people, strict=True))
    h = _solve_saturation(epsilon, rows, np.ones(len(rows)), A)
    phi = h - A * np.sum(epsilon * np.maximum(1 - h * epsilon / rows, 0))
    assert abs(phi) <= 1e-9 * h
    assert sv.optimal_weights(epsilon, rows, A) == pytest.approx(
        proportions(np.minimum(rows, h * epsilon)), rel=1e-12
    )


def proportions(x):
    return x / x.sum()


def test_known_limits():
    assert sv.optimal_weights([0.2, 0.2, 0.2], [5, 5, 5], 3.0) == pytest.approx([1 / 3] * 3)
    assert sv.optimal_weights([0.1, 0.4], 1, 0.0) == pytest.approx([0.2, 0.8])
    assert sv.optimal_weights([0.1, 0.4], [2, 6], math.inf) == pytest.approx([0.25, 0.75])
    assert sv.optimal_weights([0.0, 0.4], 1, 1.0).tolist() == [0.0, 1.0]


def test_proportional_weights_are_optimal_exactly_when_the_criterion_says_so():
    epsilon = np.array([0.1, 0.2, 0.5, 1.0])
    threshold = 1 / np.sum(epsilon * (epsilon.max() - epsilon))
    proportional = epsilon / epsilon.sum()
    assert sv.optimal_weights(epsilon, 1, threshold * 0.999) == pytest.approx(
        proportional, rel=1e-9
    )
    assert np.max(np.abs(sv.optimal_weights(epsilon, 1, threshold * 1.05) - proportional)) > 1e-3


@pytest.mark.parametrize(
    ("epsilon", "rows", "A", "error"),
    [
        ([-1, 1], 1, 1, errors.InvalidBudget),
        ([math.inf, 1], 1, 1, errors.InvalidBudget),
        ([math.nan, 1], 1, 1, errors.InvalidBudget),
        ([0, 0], 1, 1, errors.InvalidBudget),
        ([1, 1], [0, 1], 1, errors.InvalidParameter),
        ([1, 1], [1, 1, 1], 1, errors.UnequalLengths),
        ([1, 1], 1, -1, errors.InvalidParameter),
        ([1, 1], 1, math.nan, errors.InvalidParameter),
    ],
)
def test_bad_input_is_a_named_error(epsilon, rows, A, error):
    with pytest.raises(error):
        sv.optimal_weights(epsilon, rows, A)
    if A == 1:
        return
    with pytest.raises(error):
        sv.optimal_weights(epsilon, rows, 1.0, A)


kinds = st.lists(
    st.tuples(st.integers(1, 10**12), st.integers(1, 10**4), st.integers(1, 10**4)),
    min_size=1,
    max_size=20,
)


@settings(max_examples=300, deadline=None)
@given(kinds=kinds, A=st.floats(0, 1e3), B=st.one_of(st.just(0.0), st.floats(0, 1e3)))
def test_integer_weights_never_overspend_nor_overflow(kinds, A, B):
    """Everything in exact integers: W_l·10⁹ ≤ ε_l·heaviest, charge ≥ loss, charge ≤ grant, total <
    2^62.
    """
    epsilon, rows, people = (
        np.array(column, dtype=np.int64) for column in zip(*kinds, strict=True)
    )
    weights = Weights.solve(BudgetGroups(epsilon, rows, people), A, B)
    total = 0
    for e, s, m, a, W, charge in zip(
        *(
            x.tolist()
            for x in (epsilon, rows, people, weights.row, weights.person, weights.charges)
        ),
        strict=True,
    ):
        assert a * s == W
        assert e * weights.loudest >= W * 10**9
        assert charge * weights.loudest >= W * 10**9
        assert charge <= e
        total += W * m
    assert total == weights.total <= 2**TOTAL_BITS
    assert weights.row.max() <= 2**42
