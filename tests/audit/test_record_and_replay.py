"""Record and replay, in the spirit of Re:cord-play: a mechanism runs on a table with its noise
recorded, and on a neighbour with the same noise, so that only its exact statistics differ; their
distance over the sensitivity that is declared must be at most 1.

All randomness passes one private seam, so nothing has to be rewritten for that.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import sottovoce as sv
from seams import Seeded
from sottovoce.noise import source

BOX = sv.Bounds(features=(0, 1), label=(-1, 1))
PLAIN = sv.Bounds(features=(0, 1))
ROWS = 30
RNG = np.random.default_rng(2)
X = RNG.random((ROWS, 2))
Y = np.clip(2 * X[:, 0] - 1 + 0.2 * RNG.normal(size=ROWS), -1, 1)
GRANTS = np.repeat([0.1, 0.5, 2.0], ROWS // 3)
PEOPLE = (0, ROWS - 1)  # the strictest and the loosest


class Recorder(Seeded):
    """Hands out randomness, and keeps it; ``quiet``: no noise, so that nothing is clipped."""

    def __init__(self, quiet: bool = False) -> None:
        super().__init__(5)
        self.drawn: list = []
        self.scales: list[float] = []
        self.quiet = quiet

    def bytes(self, count: int) -> bytes:
        self.drawn.append(super().bytes(count))
        return self.drawn[-1]

    def integers(self, law: str, scale: float, size: int) -> list[int]:
        self.scales.append(scale)
        if self.quiet:
            self.drawn.append([0] * size)
        else:
            self.drawn.append(super().integers(law, scale, size))
        return self.drawn[-1]


class Replay:
    """Hands out what was recorded, in the same order."""

    def __init__(self, drawn: list) -> None:
        self._drawn = list(drawn)

    def bytes(self, count: int) -> bytes:
        head = self._drawn.pop(0)
        assert len(head) == count, "the table decides how much randomness is used"
        return head

    def integers(self, law: str, scale: float, size: int) -> list[int]:
        head = self._drawn.pop(0)
        assert len(head) == size
        return head


def record_and_replay(make, data, other):
    """Fits both tables with the same noise."""
    recorder = Recorder()
    with source._seam(recorder):
        first = make().fit(*data, epsilon=GRANTS)
    with source._seam(Replay(recorder.drawn)):
        second = make().fit(*other, epsilon=GRANTS)
    return first, second


def neighbours(data, person):
    """Every pair of extreme rows of one person."""
    for low, high in ((0.0, 1.0), (1.0, 0.0)):
        for label in (-1.0, 1.0):
            tables = []
            for corner, y in ((low, label), (high, -label)):
                changed = [np.array(part, copy=True) for part in data]
                changed[-1][person] = y
                if len(changed) > 1:
                    changed[0][person] = corner
                tables.append(tuple(changed))
            yield tables


class HalfNoise(sv.Mean):
    """A planted bug: half the noise that was planned."""

    def release_under(self, plan, rows):
        halved = {**plan.noise, "integer_scale": plan.noise["integer_scale"] / 2}
        return super().release_under(replace(plan, noise=halved), rows)


def measure_mean(make, person):
    """The distance of two sums over the noise that was really asked for, over the charge."""
    worst = 0.0
    for data, other in neighbours((Y,), person):
        recorder = Recorder(quiet=True)
        with source._seam(recorder):
            first = make().fit(*data, epsilon=GRANTS)
        with source._seam(Replay(recorder.drawn)):
            second = make().fit(*other, epsilon=GRANTS)
        noise = make().plan(GRANTS).noise
        scale = noise["scale"] * recorder.scales[0] / noise["integer_scale"]
        rounding = first.release_.grid["answer_step"]
        apart = abs(first.value_ - second.value_) - rounding
        worst = max(worst, apart / scale / float(first.guarantee_.epsilon[person]))
    return worst


@pytest.mark.parametrize("person", PEOPLE)
def test_the_sum_of_a_mean_moves_by_no_more_than_was_declared(person):
    found = measure_mean(lambda: sv.Mean(bounds=(-1, 1), interval_share=0), person)
    assert 0.99 < found <= 1


def test_with_half_the_noise_it_moves_too_far():
    for person in PEOPLE:
        assert measure_mean(lambda: HalfNoise(bounds=(-1, 1), interval_share=0), person) > 1.9


def measure_statistics(make, person):
    """Σ |difference| over the scale of each entry, in whole numbers."""
    worst = 0.0
    for data, other in neighbours((X, Y), person):
        first, second = record_and_replay(make, data, other)
        noise = first.release_.noise
        plan = make().plan(GRANTS, n_features=2)
        unit = 2.0 ** noise["shift"] / plan.weights.total / 2.0**26
        moved = np.array(first.release_.value["statistics"]) - np.array(
            second.release_.value["statistics"]
        )
        moved = np.rint(np.abs(moved) / unit)
        scale = np.full(moved.shape, noise["integer_scale"])
        scale[np.diag_indices(len(scale))] *= 2
        lost = np.triu(moved / scale).sum()
        worst = max(worst, lost / float(first.guarantee_.epsilon[person]))
    return worst


@pytest.mark.parametrize("person", PEOPLE)
def test_sums_of_products_move_by_no_more_than_was_declared(person):
    assert 0.3 < measure_statistics(lambda: sv.Ridge(BOX, method="statistics"), person) <= 1


@pytest.mark.parametrize("person", PEOPLE)
def test_a_map_of_labels_moves_by_no_more_than_was_declared(person):
    def make():
        return sv.LabelPrivateRegression((-1, 1), noise_variance=0.1)

    for data, other in neighbours((X, Y), person):
        same = (data[0], other[1])  # features are public, and stay
        first, second = record_and_replay(make, data, same)
        scale = first.release_.noise["scale"]
        step = first.release_.grid["answer_step"]
        apart = np.abs(
            np.r_[first.intercept_ - second.intercept_, first.coef_ - second.coef_]
        ).sum()
        assert (apart - 3 * step) / scale <= float(first.guarantee_.epsilon[person]) * (1 + 1e-9)


def test_scores_of_choices_move_by_no_more_than_was_declared(monkeypatch):
    seen: list = []
    real = source.permute_and_flip

    def record(scores, scale):
        seen.append((scores.copy(), scale))
        return real(scores, scale)

    monkeypatch.setattr(source, "permute_and_flip", record)
    from sottovoce.estimators import quantile

    monkeypatch.setitem(quantile.CHOICES, "permute-and-flip", record)

    def make():
        return sv.Quantile(q=[0.3, 0.9], bounds=(-1, 1), cells=256, interval_share=0)

    for person in PEOPLE:
        for data, other in neighbours((Y,), person):
            seen.clear()
            model, _ = (make().fit(*table, epsilon=GRANTS) for table in (data, other))
            half = len(seen) // 2
            spent = sum(
                2 * float(np.abs(one[0] - two[0]).max()) / one[1]
                for one, two in zip(seen[:half], seen[half:], strict=True)
            )
            assert spent <= float(model.guarantee_.epsilon[person]) * (1 + 1e-9)


@pytest.mark.parametrize(
    ("make", "labels"),
    [
        (lambda: sv.Ridge(BOX, label_scale=0.3, interval_share=0), Y),
        (lambda: sv.LogisticRegression(PLAIN, alpha=1.0), (Y > 0).astype(int)),
        (lambda: sv.LogisticRegression(PLAIN, classes=[0, 1]), (Y > 0).astype(int)),
    ],
)
def test_pulls_move_by_no_more_than_was_declared(make, labels):
    """At the released θ the noise that must have been drawn differs, between neighbours, by at
    most what is charged, in the norm of the noise: curvature is charged on top of it.
    """
    model = make().fit(X, labels, epsilon=GRANTS)
    for person in PEOPLE:
        for corner in (0.0, 1.0):
            for label in (labels.min(), labels.max()):
                tables = []
                for place, y in (
                    (corner, label),
                    (1 - corner, labels.max() + labels.min() - label),
                ):
                    rows, own = X.copy(), labels.copy()
                    rows[person] = place
                    own[person] = y
                    tables.append((rows, own))
                tilts = []
                for table in tables:
                    audit = sv.audit.per_instance(model.release_, *table, epsilon=GRANTS)
                    stage = next(one for one in audit._stages if one.name == "fit").compute.__self__
                    tilts.append(stage.tilt)
                apart = float(stage.noise.measure((tilts[0] - tilts[1])[None, :])[0])
                assert 0 < apart <= float(model.guarantee_.epsilon[person]) * (1 + 1e-9)
