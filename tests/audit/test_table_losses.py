"""Realised losses of tables and of quantiles that were chosen together, against their laws written
out again; and what is published beside the stages of a model.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from fractions import Fraction
from functools import cache

import numpy as np
import pyarrow as pa
import pytest

import sottovoce as sv
from sottovoce.audit import joint_replays, rank_replays
from sottovoce.audit.joint_replays import JointChoices, JointLaw, PlaceLine
from sottovoce.audit.laws import AuditUnits
from sottovoce.audit.table_replays import SlotNoise, find_noise
from sottovoce.estimators import is_audited, rank_reach

ROWS = 24
RNG = np.random.default_rng(11)
VALUES = RNG.random(ROWS)
OWNER = np.arange(ROWS) // 3
GRANTS = np.repeat([0.3, 1.0], ROWS // 2)
TABLE = pa.table({"kind": ["a", "b", "c"] * (ROWS // 3), "x": VALUES, "z": VALUES[::-1]})
BY = {"kind": ["a", "b", "c"]}


def spread_evenly(whole: int, slots: int) -> list[int]:
    each, rest = divmod(whole, slots)
    return [each + (k < rest) for k in range(slots)]


@pytest.mark.parametrize("groups", [None, OWNER], ids=["rows", "people"])
def test_counts_follow_the_law_written_out(groups):
    """Noise that sums to zero: p(z) ∝ exp(−‖z‖₁/(2·scale)), with whole numbers all the way."""
    model = sv.Count(by=BY).fit(TABLE, epsilon=GRANTS, groups=groups)
    audit = sv.audit.per_instance(model, TABLE, epsilon=GRANTS, groups=groups)
    plan = audit._made.plan
    slots = 5  # three levels, other and missing
    noise = model.release_.noise
    assert noise["slots"] == slots
    exact = [0] * slots
    rows = [(i % 3, int(plan.weights.row[audit._made.kinds[i]])) for i in range(ROWS)]
    for cell, weight in rows:
        exact[cell] += weight
    noisy = [round(Fraction(s) * plan.weights.total) for s in model.release_.value["noisy"]]
    drawn = [a - b for a, b in zip(noisy, exact, strict=True)]
    assert sum(drawn) == 0
    found = np.asarray(audit.losses_by_person())
    units = [[i] for i in range(ROWS)] if groups is None else np.split(np.arange(ROWS), ROWS // 3)
    for unit, mine in enumerate(units):
        without = list(drawn)
        for i in mine:
            without[rows[i][0]] += rows[i][1]
        even = spread_evenly(sum(rows[i][1] for i in mine), slots)
        without = [z - e for z, e in zip(without, even, strict=True)]
        assert sum(without) == 0  # it could have been drawn
        moved = sum(map(abs, without)) - sum(map(abs, drawn))
        assert found[unit] == pytest.approx(moved / (2 * noise["integer_scale"]), abs=1e-12)


def test_slots_of_units_add_up_as_dense_tables_do():
    rng = np.random.default_rng(2)
    slots = 300
    noise = rng.integers(-90, 90, slots).astype(float)
    places = rng.integers(0, slots, (40, 3))
    places[:, 1] = (places[:, 0] + 1) % slots
    places[:, 2] = (places[:, 0] + 2) % slots
    amounts = rng.integers(0, 500, (40, 3)).astype(float)
    law = SlotNoise(noise, 70.0, places, amounts)
    for units in (AuditUnits.rows(40), AuditUnits(np.arange(40) // 4, 10)):
        found = law.compute_losses(units)
        for unit in range(units.count):
            own = np.zeros(slots)
            mine = units.codes == unit
            np.add.at(own, places[mine].ravel(), amounts[mine].ravel())
            even = np.array(spread_evenly(int(own.sum()), slots))
            expected = (np.abs(noise + own - even) - np.abs(noise)).sum() / 70
            assert found[unit] == pytest.approx(expected)


def test_covariances_follow_the_law_written_out():
    bounds = {"x": (0, 1), "z": (0, 1)}
    model = sv.Covariance(bounds).fit(TABLE, epsilon=GRANTS)
    audit = sv.audit.per_instance(model, TABLE, epsilon=GRANTS)
    plan = audit._made.plan
    grids = plan.grid.grids
    columns = [VALUES, VALUES[::-1]]
    whole = [2 * g.integers(v) - g.cells for g, v in zip(grids, columns, strict=True)]
    Z = np.column_stack([np.ones(ROWS), *whole])
    weight = plan.weights.row[audit._made.kinds]

    def log_density(rows, middle):
        total = 0.0
        for place, (j, k) in enumerate(plan.grid.entries):
            unit = plan.weights.total * plan.grid.get_unit(j, k)
            published = model.release_.value["noisy"][place] * unit
            exact = float((weight[rows] * Z[rows, j] * Z[rows, k]).sum())
            if (j, k) == (0, 0):
                exact += float(weight[middle].sum())
            total -= abs(published - exact) / plan.noise["scales"][place]
        return total

    everybody = np.arange(ROWS)
    for i in range(ROWS):
        rest = np.delete(everybody, i)
        expected = log_density(everybody, []) - log_density(rest, [i])
        assert audit.losses[i] == pytest.approx(expected, abs=1e-7)


def test_shares_give_the_whole_numbers_back():
    total = 12345678901
    drawn = [-5, 0, 17, total - 3]
    noise = find_noise([z / total for z in drawn], total, [2] * 4)
    assert noise.tolist() == [z - 2 for z in drawn]


def test_a_public_count_costs_nobody_anything():
    model = sv.Count().fit(TABLE, epsilon=GRANTS)
    audit = sv.audit.per_instance(model.release_, TABLE, epsilon=GRANTS)
    assert np.asarray(audit.epsilon).tolist() == [0.0] * ROWS
    assert "public" in audit.exactness


def test_the_release_says_which_column_of_a_table_it_is_about():
    model = sv.Mean(bounds=(0, 1), by=BY).fit(TABLE, column="x", epsilon=GRANTS)
    release = sv.Release.from_json(model.release_.to_json())
    said = sv.audit.per_instance(release, TABLE, "x", epsilon=GRANTS)
    left = sv.audit.per_instance(release, TABLE, epsilon=GRANTS)
    assert is_audited(release)
    assert np.asarray(left.losses).tolist() == np.asarray(said.losses).tolist()


@cache
def list_joint_law(counts, targets, total, scale, parts):
    """log P of each tuple of cells: all ordered places, so many in each cell."""
    histogram = np.array(counts)
    below = np.cumsum(histogram) - histogram
    points = [
        (c, below[c] + histogram[c] * (k + 0.5) / parts)
        for c in range(len(histogram))
        for k in range(parts)
    ]
    mass = Counter()
    for chosen in itertools.combinations_with_replacement(range(len(points)), len(targets)):
        ranks = [0, *(points[p][1] for p in chosen), sum(counts)]
        away = [rank - aim for rank, aim in zip(ranks, (0, *targets, total), strict=True)]
        u = sum(abs(b - a) for a, b in itertools.pairwise(away))
        # So many orders of places in one part count as one.
        ways = math.prod(math.factorial(many) for many in Counter(chosen).values())
        mass[tuple(points[p][0] for p in chosen)] += math.exp(-u / scale) / ways
    whole = sum(mass.values())
    return {cells: math.log(one / whole) for cells, one in mass.items()}


@pytest.mark.parametrize("scale", [2.0, 12.0])
def test_quantiles_together_follow_the_law_written_out(scale):
    """By parts of 1/24 of a cell, so that both sums are good to about a thousandth."""
    histogram = np.array([0, 0, 3, 0, 4, 1, 0])
    targets = (2, 5)
    full = list_joint_law(tuple(histogram), targets, 8, scale, 24)
    cells = np.array([2, 2, 2, 4, 4, 4, 4, 5])
    for chosen in [(0, 0), (2, 4), (4, 4), (3, 3), (1, 6), (5, 5)]:
        points = list(zip(targets, chosen, strict=True))
        choice = JointChoices.of(
            histogram, cells, np.ones(8, dtype=np.int64), np.zeros(8, dtype=int), points, scale
        )
        assert choice.law.compute_log_probability(histogram) == pytest.approx(
            full[chosen], abs=5e-3
        )
        for units in (AuditUnits.rows(8), AuditUnits(np.arange(8) // 4, 2)):
            found = choice.compute_losses(units)
            assert (np.abs(found) <= choice.bound_losses(units)).all()
            for unit in (0, units.count - 1):
                less = histogram.copy()
                np.subtract.at(less, cells[units.codes == unit], 1)
                law = list_joint_law(tuple(less), targets, 8, scale, 24)
                assert found[unit] == pytest.approx(full[chosen] - law[chosen], abs=5e-3)


def test_many_quantiles_in_one_empty_run_are_in_order_once_in_factorial():
    histogram = np.array([2, 0, 0, 0, 0, 0])
    targets = [0, 1, 2]
    law = list_joint_law(tuple(histogram), tuple(targets), 2, 9.0, 5)
    line = PlaceLine.of(histogram, targets, 9.0, [3, 3, 3])
    found = JointLaw(targets, 2, 9.0, [3, 3, 3], line).compute_log_probability(histogram)
    assert found == pytest.approx(law[(3, 3, 3)], abs=2e-3)


def test_cells_far_from_all_targets_count_as_one(monkeypatch):
    """The same losses as cell by cell, to the last digits, from a third of the nodes."""
    values = np.sin(np.arange(160.0) * 7)
    epsilon = np.resize([8.0, 20.0], 160)
    model = sv.Quantile(q=[0.3, 0.7], bounds=(-1, 1), cells=128).fit(values, epsilon=epsilon)
    found = []
    for near in (joint_replays.NEAR, math.inf):
        monkeypatch.setattr(joint_replays, "NEAR", near)
        audit = sv.audit.per_instance(model, values, epsilon=epsilon)
        choice = audit._stages[0].compute.__self__
        found.append((np.asarray(audit.losses), len(choice.law.line.cell)))
    (ours, few), (plainly, many) = found
    assert few < many / 2
    assert ours == pytest.approx(plainly, abs=1e-9)


def test_large_tables_are_told_exactly():
    values = np.sin(np.arange(50_000.0))
    model = sv.Quantile(q=[0.25, 0.75], bounds=(-1, 1)).fit(values, epsilon=8.0)
    audit = sv.audit.per_instance(model.release_, values, epsilon=8.0)
    assert audit.exactness.startswith("the realised loss of quantiles")
    assert 0 < np.asarray(audit.epsilon).max() <= 4.0 + 1e-9  # half of the charge


def test_too_many_units_are_bounded_by_half_of_the_charge(monkeypatch):
    monkeypatch.setattr(joint_replays, "MOST_WORK", 10)
    model = sv.Quantile(q=[0.2, 0.5, 0.8], bounds=(0, 1)).fit(VALUES, epsilon=GRANTS)
    audit = sv.audit.per_instance(model, VALUES, epsilon=GRANTS)
    assert np.asarray(audit.epsilon) == pytest.approx(np.asarray(audit.promised) / 2, rel=1e-3)
    assert audit.exactness.startswith("an upper bound")


def test_the_reach_of_an_interval_is_scored_as_the_mechanism_scores_it(monkeypatch):
    """What permute and flip was given is what the audit asks about."""
    seen = []
    original = rank_reach.source.permute_and_flip

    def record(scores, scale):
        seen.append((scores.copy(), scale))
        return original(scores, scale)

    monkeypatch.setattr(rank_reach.source, "permute_and_flip", record)
    model = sv.Quantile(q=0.5, bounds=(0, 1), cells=64, interval_share=0.5).fit(
        VALUES, epsilon=GRANTS
    )
    asked = []
    original_loss = rank_replays.laws.compute_choice_loss

    def ask(scores, without, chosen, scale):
        asked.append((scores, scale))
        return original_loss(scores, without, chosen, scale)

    monkeypatch.setattr(rank_replays.laws, "compute_choice_loss", ask)
    audit = sv.audit.per_instance(model, VALUES, epsilon=GRANTS)
    assert np.asarray(audit.epsilon).max() > 0
    (scores, scale) = seen[-1]
    assert scores.tolist() == asked[-1][0].tolist()
    assert scale == asked[-1][1]


def test_what_models_publish_for_intervals_follows_from_their_stages():
    """θ of the equation is one of the stages, so that it needs no stage of its own."""
    X = np.column_stack([VALUES, VALUES[::-1]])
    box = sv.Bounds(features=(0, 1), label=(0, 1))
    for grants in (GRANTS, GRANTS * 10):
        release = sv.Ridge(box).fit(X, VALUES, epsilon=grants).release_
        fitted = [one["theta"] for one in release.value["stages"] if "theta" in one]
        assert release.bought["theta"] in fitted
        classes = (VALUES > 0.5).astype(int) + (VALUES > 0.8)
        several = sv.LogisticRegression(sv.Bounds(features=(0, 1)), classes=[0, 1, 2])
        release = several.fit(X, classes, epsilon=grants).release_
        models = release.value["models"].values()
        assert release.bought["theta"] == [part for model in models for part in model["fitted"]]
