"""The solver of label-private regression against CVXPY with Clarabel, brute force, and the paper's
example.
"""

from __future__ import annotations

from itertools import product

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sottovoce import optimal_weights
from sottovoce.errors import InvalidData
from sottovoce.solvers import label_map, sensitivity

#: What Clarabel leaves at its default tolerances.
CVXPY_ERROR = 2e-6


def design(n, d, people, seed=0, grants=(0.1, 0.5, 1.0, 3.0)):
    """Normal features, rows dealt out to people at random, grants drawn from a list."""
    rng = np.random.default_rng(seed)
    _, owner = np.unique(rng.integers(0, people, n), return_inverse=True)
    return rng.normal(size=(n, d)), owner, rng.choice(grants, owner.max() + 1)


def by_cvxpy(X, owner, epsilon, ratio, exact=False):
    """The optimum of F by an oracle that nobody here wrote; "exact" with every sign vector as a
    constraint.
    """
    n, d = X.shape
    C = cp.Variable((d, n))
    level = cp.Variable()
    limits = [np.eye(d) == C @ X]
    for person, grant in enumerate(epsilon):
        own = C[:, np.flatnonzero(owner == person)]
        if exact:
            limits += [
                cp.norm1(sensitivity.list_sign_vectors(d)[k] @ own) <= grant * level
                for k in range(2 ** (d - 1))
            ]
        else:
            limits.append(cp.sum(cp.abs(own)) <= grant * level)
    problem = cp.Problem(cp.Minimize(cp.square(level) + ratio * cp.sum_squares(C)), limits)
    problem.solve(solver=cp.CLARABEL)
    return problem.value


def objective(C, owner, epsilon, ratio, norm):
    """F(C), written without the solver: norm is taken person by person."""
    level = max(norm(C[:, owner == person]) / grant for person, grant in enumerate(epsilon))
    return level**2 + ratio * float((C**2).sum())


def entrywise_norm(own):
    return float(np.abs(own).sum())


def brute_force(own):
    """max over labels moved to the end of their range of ‖C_l δ‖₁, one δ after the other."""
    return max(
        float(np.abs(own @ np.array(delta)).sum())
        for delta in product((-1, 1), repeat=own.shape[1])
    )


def hardly_above(found, optimum):
    return optimum * (1 - CVXPY_ERROR) <= found <= optimum * (1 + label_map.MAX_GAP + CVXPY_ERROR)


@pytest.mark.parametrize("ratio", [0.0, 1e-4, 0.0125, 0.25])
@pytest.mark.parametrize(
    ("n", "d", "people"), [(30, 1, 12), (40, 3, 40), (60, 4, 15), (120, 7, 30), (9, 5, 4)]
)
def test_the_entrywise_map_is_cvxpys(n, d, people, ratio):
    case = (*design(n, d, people), ratio)
    found = label_map.solve_entrywise(*case)
    optimum = by_cvxpy(*case)
    assert hardly_above(found.value, optimum)
    assert found.bound <= optimum * (1 + CVXPY_ERROR)
    assert found.bound <= found.value <= found.bound * (1 + label_map.MAX_GAP)
    assert found.value == pytest.approx(objective(found.map, *case[1:], entrywise_norm), rel=1e-9)
    assert np.abs(found.map @ case[0] - np.eye(d)).max() < 1e-9


@pytest.mark.parametrize("ratio", [0.0, 1e-3, 0.0417, 0.5])
@pytest.mark.parametrize(
    ("n", "d", "people"), [(24, 2, 6), (40, 3, 9), (36, 4, 8), (200, 3, 2), (20, 5, 9)]
)
def test_the_exact_map_is_cvxpys_with_every_sign_vector(n, d, people, ratio):
    case = (*design(n, d, people), ratio)
    found = label_map.solve_exact(*case)
    optimum = by_cvxpy(*case, exact=True)
    assert hardly_above(found.value, optimum)
    assert found.bound <= optimum * (1 + CVXPY_ERROR)
    assert found.gap <= label_map.MAX_GAP
    assert found.held == 0
    assert np.abs(found.map @ case[0] - np.eye(d)).max() < 1e-9
    if n < 100:  # 2^100 vectors of signs are too many for brute force
        assert found.value == pytest.approx(objective(found.map, *case[1:], brute_force), rel=1e-9)


@pytest.mark.parametrize("grants", [np.geomspace(1e-6, 1, 25), (1e-9, 1.0), (0.3,), (1e-3, 1e3)])
def test_grants_of_every_size_are_solved_to_the_same_gap(grants):
    for solve in (label_map.solve_entrywise, label_map.solve_exact):
        found = solve(*design(150, 5, 40, grants=grants), 0.02)
        assert found.gap <= label_map.MAX_GAP


@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(0, 10**6), ratio=st.sampled_from([0.0, 1e-3, 0.1]), spread=st.floats(0.01, 10)
)
def test_no_map_whatever_is_below_the_bound(seed, ratio, spread):
    X, owner, epsilon = design(30, 3, 10, seed)
    rng = np.random.default_rng(seed)
    inverse = np.linalg.pinv(X)
    other = inverse + spread * np.abs(inverse).mean() * rng.normal(size=inverse.shape) @ (
        np.eye(30) - X @ inverse
    )
    assert label_map.solve_entrywise(X, owner, epsilon, ratio).bound <= objective(
        other, owner, epsilon, ratio, entrywise_norm
    )
    assert label_map.solve_exact(X, owner, epsilon, ratio).bound <= objective(
        other, owner, epsilon, ratio, brute_force
    )


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    d=st.integers(1, 6),
    sizes=st.lists(st.integers(1, 8), min_size=1, max_size=5),
)
def test_exact_norms_of_whole_numbers_are_those_of_brute_force_in_python_integers(seed, d, sizes):
    rng = np.random.default_rng(seed)
    rows = rng.integers(-(2**45), 2**45, (sum(sizes), d))
    starts = np.cumsum([0, *sizes[:-1]])
    found, exact = sensitivity.compute_norms(rows.astype(float), starts)
    assert exact.all()
    for first, size, norm in zip(starts, sizes, found, strict=True):
        own = rows[first : first + size].tolist()
        deltas = product((-1, 1), repeat=size)
        assert int(norm) == max(
            sum(abs(sum(s * row[j] for s, row in zip(delta, own, strict=True))) for j in range(d))
            for delta in deltas
        )


def test_many_rows_and_columns_have_a_bound_that_is_one():
    rng = np.random.default_rng(1)
    own = rng.normal(size=(14, 13))
    (bound,), (exact,) = sensitivity.compute_norms(own, np.array([0]))
    truth = sensitivity.maximise_over_signs(own[None])[0]
    assert not exact
    assert truth <= bound <= np.abs(own).sum()
    assert bound < 0.9 * np.abs(own).sum()


def test_pieces_of_people_and_of_sign_vectors_change_nothing(monkeypatch):
    blocks = (
        np.random.default_rng(2).integers(-(2**40), 2**40, (50, 9, 7)).astype(float)
    )  # so sums are exact
    whole = sensitivity.maximise_over_signs(blocks)
    monkeypatch.setattr(sensitivity, "PIECE_ENTRIES", 100)
    assert np.array_equal(sensitivity.maximise_over_signs(blocks), whole)


@pytest.mark.parametrize(("n", "d"), [(150, 3), (200, 4), (150, 5), (200, 6)])
def test_the_exact_sensitivity_lowers_the_objective_by_a_third(n, d):
    """Five rows a person, three tiers, and the default noise variance, half the range squared."""
    X, _, _ = design(n, d, 1, seed=d)
    owner = np.repeat(np.arange(n // 5), 5)
    epsilon = np.array([0.1, 0.5, 1.0])[np.arange(n // 5) % 3]
    ratio = 0.5**2 / (2 * d)
    assert (
        label_map.solve_entrywise(X, owner, epsilon, ratio).value
        >= 1.3 * label_map.solve_exact(X, owner, epsilon, ratio).value
    )


def example(g):
    """Example 1 of the published method: one strong row, and two orthogonal directions with rows
    spread differently.
    """
    rows = [([g, 0], 1)] + [([1, 0], g)] * g**2 + [([0, 1], g)] + [([0, 1], 1)] * g**2
    X = np.array([row for row, count in rows for _ in range(count)], dtype=float)
    return X, np.repeat(np.arange(len(rows)), [count for _, count in rows])


def sample_limiting(X, owner, h):
    """The paper's baseline: least squares on at most h rows a person; its value of F with σ = 0."""
    kept = np.concatenate(
        [np.flatnonzero(owner == person)[:h] for person in range(owner.max() + 1)]
    )
    C = np.linalg.pinv(X[kept])
    return float(np.bincount(owner[kept], np.abs(C).sum(axis=0)).max()) ** 2


def test_the_gap_of_paper_us_example_grows():
    gaps = []
    for g in (2, 3, 4, 6, 8):
        X, owner = example(g)
        best = min(sample_limiting(X, owner, h) for h in range(1, g + 1))
        found = label_map.solve_entrywise(X, owner, np.ones(owner.max() + 1), 0.0)
        assert found.value <= 1 / g**4  # Claim 3
        assert best >= 1 / (4 * g**3)
        gaps.append(best / found.value)
    assert gaps == sorted(gaps)
    assert gaps[-1] > 3 * gaps[0]


@pytest.mark.parametrize("ratio", [1e-3, 0.1, 10.0])
def test_one_column_of_ones_gives_the_weights_of_a_mean(ratio):
    _, owner, epsilon = design(60, 1, 20)
    found = label_map.solve_exact(np.ones((60, 1)), owner, epsilon, ratio)
    person_weights = np.bincount(owner, found.map[0])
    assert person_weights == pytest.approx(
        optimal_weights(epsilon, np.bincount(owner), A=ratio), abs=1e-3
    )


def by_cvxpy_in_groups(X, owner, epsilon, ratio, size):
    """The optimum with Σ_g N(C_g) ≤ ε·τ over groups of ``size`` rows of a person, in their
    order.
    """
    n, d = X.shape
    C = cp.Variable((d, n))
    level = cp.Variable()
    limits = [np.eye(d) == C @ X]
    for person, grant in enumerate(epsilon):
        rows = np.flatnonzero(owner == person)
        size_of_group = -(-len(rows) // -(-len(rows) // size))
        groups = [rows[k : k + size_of_group] for k in range(0, len(rows), size_of_group)]
        levels = cp.Variable(len(groups))
        for k, group in enumerate(groups):
            limits += [
                cp.norm1(u @ C[:, group]) <= levels[k] for u in sensitivity.list_sign_vectors(d)
            ]
        limits.append(cp.sum(levels) <= grant * level)
    problem = cp.Problem(cp.Minimize(cp.square(level) + ratio * cp.sum_squares(C)), limits)
    problem.solve(solver=cp.CLARABEL)
    return problem.value


@pytest.mark.parametrize("ratio", [0.0, 1e-3, 0.1])
@pytest.mark.parametrize(("d", "size"), [(2, 3), (3, 2), (4, 3)])
def test_people_in_groups_have_cvxpys_optimum_between_exact_and_entrywise(
    d, size, ratio, monkeypatch
):
    case = (*design(60, d, 9), ratio)
    exact = label_map.solve_exact(*case)
    entrywise = label_map.solve_entrywise(*case)
    monkeypatch.setattr(label_map, "MAX_GROUP_ROWS", size)
    monkeypatch.setattr(label_map, "SHORT", 1)  # so that nobody has the exact norm
    found = label_map.solve_exact(*case)
    optimum = by_cvxpy_in_groups(*case, size)
    assert hardly_above(found.value, optimum)
    assert found.bound <= optimum * (1 + CVXPY_ERROR)
    assert found.held == int((np.bincount(case[1]) > 1).sum())
    assert (
        exact.value * (1 - label_map.MAX_GAP)
        <= found.value
        <= entrywise.value * (1 + label_map.MAX_GAP)
    )


def test_people_beyond_the_work_are_held_by_something_larger(monkeypatch):
    case = (*design(80, 4, 12), 0.001)
    entrywise = label_map.solve_entrywise(*case)
    exact = label_map.solve_exact(*case)
    several = int((np.bincount(case[1]) > 1).sum())
    values = []
    for work in (0.0, 1e5, 1e6, 1e12):
        monkeypatch.setattr(label_map, "MAX_SIGN_WORK", work)
        found = label_map.solve_exact(*case)
        values.append(found.value)
        assert found.gap <= label_map.MAX_GAP
        assert 0 <= found.held <= several
        assert (found.held == several) == (work == 0.0) or 0 < work < 1e12
    assert values[0] == pytest.approx(entrywise.value, rel=2e-4)
    assert values[-1] == pytest.approx(exact.value, rel=2e-4)
    assert values == sorted(values, reverse=True)
    assert values[1] < 0.9 * values[0]


def test_somebody_far_from_their_limit_may_be_held_and_nothing_is_lost(monkeypatch):
    """Two people with large grants never feel a limit: the bound for everybody's exact norm shows
    it.
    """
    X, owner, epsilon = design(60, 3, 10)
    epsilon[:2] = 1e4
    whole = label_map.solve_exact(X, owner, epsilon, 0.01)
    monkeypatch.setattr(
        label_map, "_split_affordable", lambda people, *_: (people[people > 1], people[people <= 1])
    )
    found = label_map.solve_exact(X, owner, epsilon, 0.01)
    assert found.held == 0
    assert found.gap <= label_map.MAX_GAP
    assert found.value == pytest.approx(whole.value, rel=2e-4)


def test_a_problem_that_is_too_large_has_a_map_all_the_same(monkeypatch):
    X, owner, epsilon = design(80, 4, 20, grants=(1e-6, 1.0))
    monkeypatch.setattr(label_map, "MAX_WORK", 0.0)
    found = label_map.solve_exact(X, owner, epsilon, 0.1)
    least_squares = objective(np.linalg.pinv(X), owner, epsilon, 0.1, entrywise_norm)
    assert np.abs(found.map @ X - np.eye(4)).max() < 1e-9
    assert found.bound <= found.value < least_squares / 100
    assert found.steps == 0


def test_several_blocks_and_pieces_of_rows_change_nothing(monkeypatch):
    case = (*design(300, 3, 60), 0.01)
    whole = label_map.solve_entrywise(*case).map
    monkeypatch.setattr("sottovoce.solvers.interior_point.ENTRY_PIECE", 16)
    assert label_map.solve_entrywise(*case).map == pytest.approx(whole, abs=1e-9)


@pytest.mark.parametrize(
    "X",
    [
        np.ones((5, 2)),
        np.zeros((5, 1)),
        np.eye(3)[:2],
        np.column_stack([np.ones(6), np.arange(6), 2 * np.arange(6) - 1]),
        np.column_stack([np.ones(6), 1e12 + np.arange(6)]),
    ],
)
def test_dependent_columns_are_refused(X):
    with pytest.raises(InvalidData, match="full rank"):
        label_map.solve_entrywise(X.astype(float), np.arange(len(X)), np.ones(len(X)), 0.1)


def test_units_of_features_of_every_size_are_solved():
    X, owner, epsilon = design(100, 4, 30)
    scaled = X * 10.0 ** np.array([-5, -2, 0, 4])
    found = label_map.solve_exact(scaled, owner, epsilon, 0.01)
    assert found.gap <= label_map.MAX_GAP
    assert np.abs(found.map @ scaled - np.eye(4)).max() < 1e-9 * 10**5 / 10
