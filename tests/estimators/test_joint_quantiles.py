"""Several quantiles chosen together: the law, the loss of the strictest and the loosest person, and
accuracy.

Laws are enumerated by their definition, on grids so small that every outcome can be listed. A false
alarm of a statistical test has a probability of at most 1e-6. Where the law of a statistic is not
known, Chernoff's bound with the moments of 700 tables or more says so.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import chi2

import sottovoce as sv
from sottovoce.estimators import joint_quantiles
from sottovoce.noise import joint

FALSE_ALARM = 1e-7
#: So few sub-points that all outcomes can be listed.
FEW_SUBPOINTS = 4
EPSILON = np.array([0.1] * 4 + [0.5] * 4 + [2.0] * 3)
CELLS = 4
NINE = [j / 10 for j in range(1, 10)]
NINETEEN = [j / 20 for j in range(1, 20)]


@pytest.fixture
def few_subpoints(monkeypatch):
    monkeypatch.setattr(joint, "SUBPOINTS", FEW_SUBPOINTS)


def list_law(histogram, targets, scale) -> dict[tuple[int, ...], float]:
    """The logarithm of the law of sub-points by its definition, in whole numbers until the end."""
    weights = [int(w) for w in histogram for _ in range(FEW_SUBPOINTS)]
    ranks = [2 * sum(weights[:p]) + weights[p] for p in range(len(weights))]
    unit = 2 * FEW_SUBPOINTS
    total = unit * int(sum(histogram))
    aims = [0, *(unit * t for t in targets), total]
    law = {}
    places = itertools.combinations_with_replacement(range(len(weights)), len(targets))
    for points in places:
        reached = [0, *(ranks[p] for p in points), total]
        score = sum(
            abs(reached[j] - reached[j - 1] - aims[j] + aims[j - 1]) for j in range(1, len(aims))
        )
        law[points] = -float(Fraction(score, unit * int(scale)))
    most = max(law.values())
    norm = most + math.log(sum(math.exp(value - most) for value in law.values()))
    return {points: value - norm for points, value in law.items()}


def to_cells(law) -> dict[tuple[int, ...], float]:
    """The law of grid points."""
    cells: Counter = Counter()
    for points, value in law.items():
        cells[tuple(p // FEW_SUBPOINTS for p in points)] += math.exp(value)
    return cells


def worst_histograms(plan, owner) -> list[tuple[np.ndarray, np.ndarray]]:
    """Histograms that differ in one person's row: ties, plateaus and ends."""
    weights = plan.budgets.by_person(plan.weights.row)
    people = len(weights)
    backgrounds = [
        np.zeros(people, dtype=int),
        np.full(people, CELLS),
        np.arange(people) % 2 * CELLS,
        np.arange(people) % (CELLS + 1),
        np.full(people, CELLS // 2),
    ]
    pairs = []
    for cells in backgrounds:
        for one, two in ((0, CELLS), (0, CELLS // 2), (1, CELLS)):
            tables = []
            for mine in (one, two):
                moved = cells.copy()
                moved[owner] = mine
                histogram = np.zeros(CELLS + 1, dtype=np.int64)
                np.add.at(histogram, moved, weights)
                tables.append(histogram)
            pairs.append(tuple(tables))
    return pairs


def find_loss(q, owner, epsilon=EPSILON, scale_factor=4, prepare=lambda histogram: histogram):
    """The largest log ratio over hard neighbours, of sub-points, and what the person is charged.

    The law of grid points is a function of it, and loses no more.
    """
    plan = sv.Quantile(q=q, bounds=(0, CELLS), step=1).plan(epsilon=epsilon)
    aims = [joint_quantiles.find_target(share, plan.weights.total) for share in q]
    scale = scale_factor * plan.weights.loudest
    worst = 0.0
    for one, two in worst_histograms(plan, owner):
        first, second = (list_law(prepare(table), aims, scale) for table in (one, two))
        worst = max(worst, max(abs(first[points] - second[points]) for points in first))
    return worst, float(plan.charges[owner])


both = pytest.mark.parametrize("owner", [0, len(EPSILON) - 1], ids=["strictest", "loosest"])


@both
@pytest.mark.parametrize("q", [[0.25, 0.75], [0.5, 0.5000001], [0.0, 1.0]], ids=str)
def test_no_exact_loss_exceeds_the_charge(owner, q):
    loss, charge = find_loss(q, owner)
    assert loss <= charge * (1 + 1e-9)
    assert charge <= EPSILON[owner]


@both
def test_the_worst_pair_comes_close_so_the_audit_can_fail(owner):
    loss, charge = find_loss([0.25, 0.75], owner)
    assert loss >= 0.6 * charge


@both
def test_a_scale_of_two_for_four_is_caught(owner):
    loss, charge = find_loss([0.25, 0.75], owner, scale_factor=2)
    assert loss > charge


@both
def test_weights_that_are_renormalised_by_what_is_present_are_caught(owner):
    """Every cell over the heaviest one: a person moves everybody else's weight."""

    def renormalise(histogram):
        return histogram * 8 // max(int(histogram.max()) * 8 // int(histogram.sum()), 1)

    loss, charge = find_loss([0.25, 0.75], owner, prepare=renormalise)
    assert loss > charge


@pytest.mark.parametrize(
    "histogram",
    [[3, 0, 0, 5, 1], [0, 9, 0, 0, 0], [0, 0, 0, 0, 9], [1, 1, 1, 1, 1], [400, 0, 1, 0, 399]],
    ids=str,
)
@pytest.mark.parametrize("scale", [1, 40])
def test_every_outcome_can_be_proposed_and_kept_with_the_right_probability(
    histogram, scale, few_subpoints
):
    """Probability of the proposal times that of the coin, over the law, is one number for all
    outcomes; and no coin has a bias above 1.
    """
    total = sum(histogram)
    targets = [total // 3, 2 * total // 3]
    choice = joint.JointChoice(np.array(histogram, dtype=np.int64), targets, scale)
    law = list_law(histogram, targets, scale)
    kept = []
    for points, value in law.items():
        odds = find_odds(choice, points)
        exponent = Fraction(choice.measure(points), 2 * FEW_SUBPOINTS * scale)
        bias = math.log(odds) - float(exponent) - choice.bound
        assert bias <= 0
        kept.append(bias - math.log(odds) - value)
    assert np.ptp(kept) < 1e-9


def find_odds(choice, points) -> Fraction:
    """1/probability with which sub-points are proposed, from the blocks that they lie in."""
    odds = Fraction(1)
    centre = 0.0
    end = int(choice.blocks[-1].end[-1])
    levels = list(zip(points, choice.blocks, choice.sums, strict=True))
    for point, blocks, sums in reversed(levels):
        which = int(np.searchsorted(blocks.start, point, side="right")) - 1
        count = int(np.searchsorted(blocks.start, end, side="left"))
        assert which < count  # what is in order is never out of reach
        weights = sums[:count] - np.abs(blocks.centre[:count] - centre)
        shares = np.ceil(np.exp(weights - weights.max()) * 2.0**joint.PROPOSAL_BITS)
        numbers = [max(int(share), 1) for share in shares]
        size = int(blocks.end[which] - blocks.start[which])
        odds *= Fraction(sum(numbers) * size, numbers[which])
        centre = float(blocks.centre[which])
        end = int(blocks.end[which])
    return odds


def reject(draws: Counter, law: dict[tuple[int, ...], float], runs: int) -> bool:
    """Whether a chi-square test at 1e-7 rejects; rare outcomes are taken together."""
    rare = [cells for cells, p in law.items() if runs * p < 10]
    common = [cells for cells, p in law.items() if runs * p >= 10]
    seen = [draws[cells] for cells in common]
    expected = [runs * law[cells] for cells in common]
    together = runs * sum(law[cells] for cells in rare)
    if together >= 10:
        seen.append(sum(draws[cells] for cells in rare))
        expected.append(together)
    statistic = sum((s - e) ** 2 / e for s, e in zip(seen, expected, strict=True))
    return statistic > chi2.isf(FALSE_ALARM, len(seen) - 1)


def measure_surprise(draws: Counter, law: dict[tuple[int, ...], float], runs: int) -> float:
    """How many standard deviations the mean of log P lies from what it should be."""
    mean = sum(p * math.log(p) for p in law.values())
    variance = sum(p * (math.log(p) - mean) ** 2 for p in law.values())
    seen = sum(count * math.log(law[cells]) for cells, count in draws.items()) / runs
    return (seen - mean) / math.sqrt(variance / runs)


def test_draws_follow_the_law_and_a_scale_off_by_a_tenth_is_rejected(few_subpoints):
    """Beyond 5.1 deviations with probability 4e-7; a scale off by a tenth is 10.1 away, and as near
    as 5.1 with probability 5e-8.
    """
    histogram = np.array([6, 0, 1, 4, 9], dtype=np.int64)
    targets = [5, 10]
    runs = 13_000
    law = to_cells(list_law(histogram, targets, 2))
    choice = joint.JointChoice(histogram, targets, 2)
    draws = Counter(tuple(choice.draw()) for _ in range(runs))
    assert not reject(draws, law, runs)
    assert abs(measure_surprise(draws, law, runs)) < 5.1
    wrong = joint.JointChoice(histogram * 10, [50, 100], 18)
    draws = Counter(tuple(wrong.draw()) for _ in range(runs))
    assert measure_surprise(draws, law, runs) > 5.1


def test_wrong_targets_are_rejected(few_subpoints):
    histogram = np.array([6, 0, 1, 4, 9], dtype=np.int64)
    wrong = joint.JointChoice(histogram, [5, 12], 4)
    draws = Counter(tuple(wrong.draw()) for _ in range(2000))
    assert reject(draws, to_cells(list_law(histogram, [5, 10], 4)), 2000)


@pytest.mark.parametrize("epsilon", [0.001, 0.1, 1.0, 1000.0])
@pytest.mark.parametrize(
    "values",
    [np.linspace(0, 1, 100), np.full(100, 0.3), np.repeat([0.0, 1.0], 50)],
    ids=["even", "equal", "at both ends"],
)
def test_many_quantiles_are_drawn_soon_whatever_the_budgets_and_values_are(
    values, epsilon, monkeypatch
):
    """A proposal is kept with a probability above .1 in each of these, so that 200 that are not
    have one below 1e-9. Whether an answer comes must not depend on the rows.
    """
    proposed = 0
    original = joint.JointChoice._propose

    def count(self):
        nonlocal proposed
        proposed += 1
        assert proposed <= 200
        return original(self)

    monkeypatch.setattr(joint.JointChoice, "_propose", count)
    plan = sv.Quantile(q=[j / 50 for j in range(1, 50)], bounds=(0, 1)).plan(epsilon, rows=100)
    histogram = np.zeros(plan.grid.points.cells + 1, dtype=np.int64)
    np.add.at(histogram, plan.grid.points.integers(values).astype(np.int64), plan.weights.row[0])
    drawn = joint_quantiles.draw_joint_values(plan, histogram)
    assert drawn == sorted(drawn)


@pytest.mark.parametrize("epsilon", [1e-6, 1.0, 1e6])
@pytest.mark.parametrize(
    "values",
    [np.full(300, 0.5), np.linspace(0, 1, 300), np.repeat([0.0, 1.0], 150)],
    ids=["one value", "even", "ends"],
)
def test_any_budget_and_column_is_answered_in_order(values, epsilon):
    found = sv.Quantile(q=[0.9, 0.1, 0.5, 0.1], bounds=(0, 1)).fit(values, epsilon=epsilon)
    high, low, middle, again = found.value_
    assert low == again <= middle <= high


def measure_rank_error(q, draw, rng, n=1000, **options) -> float:
    values = draw(rng, n)
    found = sv.Quantile(q=q, **options).fit(values, epsilon=1.0)
    ordered = np.sort(np.clip(values, *options["bounds"]))
    below = np.searchsorted(ordered, np.asarray(found.value_) - 1e-9, side="left")
    reached = np.searchsorted(ordered, np.asarray(found.value_) + 1e-9, side="right")
    aims = np.array(q) * n
    return float(np.maximum(np.maximum(below - aims, aims - reached), 0).mean())


@pytest.mark.parametrize(("q", "most"), [(NINE, 9.0), (NINETEEN, 12.5)], ids=["nine", "nineteen"])
def test_few_people_lie_between_answers_and_quantiles(q, most):
    """5.8 and 8.2 on average, and 18 and 34 if they were chosen one after another. One table's mean
    has a deviation of 3 and 4 and a long tail: that of 48 is larger with probability 3e-8 at most.
    """
    rng = np.random.default_rng(0)
    errors = [
        measure_rank_error(q, lambda r, n: r.normal(0.5, 0.1, n), rng, bounds=(0, 1))
        for _ in range(48)
    ]
    assert np.mean(errors) <= most


def test_a_declared_step_finds_tied_values():
    """Chosen together .18 people lie between, one after another 2.5, of tables of whole numbers:
    means of 72 are in the other order with probability 2e-8 at most.
    """
    rng = np.random.default_rng(0)

    def draw(r, n):
        return r.poisson(4, n).astype(float)

    together, apart = (
        np.mean(
            [
                measure_rank_error(NINE, draw, rng, bounds=(0, 20), step=1, method=method)
                for _ in range(72)
            ]
        )
        for method in ("joint", "permute-and-flip")
    )
    assert together < apart


def test_the_budget_is_not_split():
    plan = sv.Quantile(q=NINE, bounds=(0, 1)).plan(epsilon=EPSILON)
    assert plan.parameters["method"] == "joint"
    assert np.all(plan.charges <= EPSILON)
    assert plan.charges[0] == pytest.approx(EPSILON[0])
    apart = sv.Quantile(q=NINE, bounds=(0, 1), method="permute-and-flip").plan(epsilon=EPSILON)
    assert max(plan.expected_error) < min(apart.expected_error)


def test_expected_errors_are_those_that_are_measured():
    """Within a quarter. The mean square of a table is 1.13 of what is expected, with a deviation of
    1.3 and a long tail: that of 400 is outside with probability 1e-9 at most.
    """
    rng = np.random.default_rng(3)
    question = sv.Quantile(q=NINE, bounds=(0, 1))
    budgets = sv.Budgets.of(np.full(1000, 1.0))
    plan = question.plan_for(budgets)
    squares = []
    for _ in range(400):
        values = rng.random(1000)
        rows = question.read_arrays(values, epsilon=budgets, groups=None)
        answers = np.asarray(question.release_under(plan, rows).value)
        ranks = np.searchsorted(np.sort(values), answers) / 1000
        squares.append((ranks - np.array(NINE)) ** 2)
    measured = math.sqrt(np.mean(squares))
    expected = math.sqrt(np.mean(np.square(plan.expected_error)))
    assert measured == pytest.approx(expected, rel=0.25)


COLUMNS = {
    "even": lambda rng, n: rng.random(n),
    "skewed": lambda rng, n: np.clip(rng.lognormal(-3, 0.8, n), 0, 1),
    "mostly zero": lambda rng, n: (rng.random(n) < 0.3) * rng.random(n),
}


@pytest.mark.parametrize(
    "name", [pytest.param("even", marks=pytest.mark.long), "skewed", "mostly zero"]
)
def test_intervals_and_the_band_cover_the_population(name):
    """At .95 each; 60 tables of nine. Quantiles of one table go together: at least .85 of all. Of
    each by itself at least .75, which an interval of .95 misses with a probability below 1e-7; the
    last zero among "mostly zero" is at the .7 quantile.
    """
    rng = np.random.default_rng(0)
    everybody = COLUMNS[name](np.random.default_rng(99), 10**6)
    truth = np.quantile(everybody, NINE, method="inverted_cdf")
    places = np.quantile(everybody, [0.15, 0.45, 0.85])
    shares = np.array([np.mean(everybody <= place) for place in places])
    covered = []
    banded = []
    for _ in range(60):
        fitted = sv.Quantile(q=NINE, bounds=(0, 1)).fit(COLUMNS[name](rng, 1000), epsilon=1.0)
        low, high = np.array(fitted.interval(0.95)).T
        covered.append((low <= truth) & (truth <= high))
        _, below, above = fitted.cdf(places, 0.95)
        banded.append((below <= shares) & (shares <= above))
    assert np.mean(covered) >= 0.9
    assert np.mean(covered, axis=0).min() >= 0.75
    assert np.mean(banded) >= 0.85


def test_the_distribution_function_rises_from_0_to_1_and_follows_from_the_release():
    rng = np.random.default_rng(0)
    fitted = sv.Quantile(q="all", bounds=(0, 1)).fit(rng.random(2000), epsilon=1.0)
    places = np.linspace(-0.5, 1.5, 50)
    shares, low, high = fitted.cdf(places, 0.9)
    assert shares[0] == 0
    assert shares[-1] == 1
    assert np.all(np.diff(shares) >= 0)
    assert np.all((low <= shares) & (shares <= high))
    assert np.max(np.abs(fitted.cdf([0.25, 0.5, 0.75]) - [0.25, 0.5, 0.75])) < 0.1
    loaded = sv.load(sv.Release.from_json(fitted.release_.to_json()))
    assert np.array_equal(loaded.cdf(places), shares)
    assert isinstance(loaded.cdf(0.5), float)


def test_what_has_no_distribution_function_says_so():
    median = sv.Quantile(0.5, bounds=(0, 1)).fit([0.5] * 100, epsilon=1.0)
    with pytest.raises(sv.errors.InvalidParameter):
        median.cdf(0.5)
    some = sv.Quantile([0.2, 0.5], bounds=(0, 1)).fit([0.5] * 100, epsilon=1.0)
    with pytest.raises(sv.errors.InvalidParameter):
        some.cdf(np.nan)
    with pytest.raises(sv.errors.InvalidInput):
        some.cdf("half")


@pytest.mark.parametrize(
    "wrong",
    [
        {"step": 0},
        {"step": -1},
        {"step": 1e-9},
        {"step": 2},
        {"step": np.nan},
        {"step": 0.1, "cells": 10},
        {"q": "most"},
        {"q": [j / 500 for j in range(500)], "method": "joint"},
        {"method": "together"},
    ],
    ids=str,
)
def test_what_cannot_be_asked_is_refused_before_anybody_is_charged(wrong):
    with pytest.raises(sv.errors.InvalidParameter):
        sv.Quantile(**{"q": [0.2, 0.5], "bounds": (0, 1), **wrong}).plan(epsilon=1.0, rows=10)


def test_requests_in_older_books_are_recognised():
    from sottovoce.booking import encode_question

    now = encode_question(sv.Quantile(q=[0.2, 0.5], bounds=(0, 1)))
    assert now[1]["method"] == "permute-and-flip"
    assert "step" not in now[1]
