"""Bugs planted on purpose: the audits of tests/laws must catch every one of them.

A control that passes shows that the audit can fail. Each plants one classic mistake through
monkeypatching and asserts that the very functions which the laws rely on report it.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cases import CASES, PEOPLE, audit, strictest_and_loosest
from measurement import measured_loss
from sottovoce import errors
from sottovoce.budgets import Budgets
from sottovoce.data import kernels
from sottovoce.estimators import mean, quantile
from sottovoce.noise import source
from sottovoce.noise.source import Grid
from sottovoce.weights import Weights

MEAN, MEDIAN, _, WIDE_MEAN, WIDE_MEDIAN = CASES


def caught(case, people, owners=None) -> bool:
    """Whether the exact audit reports a loss above the charge for somebody, or the release breaks
    down.
    """
    for owner in owners if owners is not None else strictest_and_loosest(people):
        try:
            loss, charge = audit(case, people, owner)
        except (errors.ReleaseFailed, AssertionError, OverflowError):
            return True
        if loss > charge * (1 + 1e-9):
            return True
    return False


both = pytest.mark.parametrize("case", [MEAN, MEDIAN], ids=repr)


@both
def test_nothing_is_caught_where_nothing_is_planted(case):
    assert not any(caught(case, people) for people in PEOPLE)


@both
def test_a_clip_left_out_is_caught(case, monkeypatch):
    def unclipped(self, values):
        return np.rint((values - self.low) * 2.0**-self.exponent)

    monkeypatch.setattr(Grid, "integers", unclipped)
    assert caught(case, PEOPLE[0])


def test_rounding_before_clipping_is_caught(monkeypatch):
    def rounded_first(self, values):
        steps = np.rint((np.clip(values, -1e6, 1e6) - self.low) * 2.0**-self.exponent)
        return np.clip(
            steps, 0, (self.high - self.low) * 2.0**-self.exponent
        )  # off the grid at the upper end

    monkeypatch.setattr(Grid, "integers", rounded_first)
    assert caught(MEAN, PEOPLE[0])


@both
@pytest.mark.parametrize("whose", ["strictest", "loosest"])
def test_a_weight_times_one_and_a_half_is_caught(case, whose, monkeypatch):
    def make_heavier(name):
        original = getattr(kernels.WeightedKernel, name)

        def heavier(self, batch, *measure):
            factor = np.ones(len(self.weights))
            factor[0 if whose == "strictest" else -1] = 1.5
            participating = type(self)(
                self.value,
                self.grid,
                self.owner,
                (self.weights * factor).astype(np.int64),
                self.missing,
            )
            return original(participating, batch, *measure)

        monkeypatch.setattr(kernels.WeightedKernel, name, heavier)

    make_heavier("pieces")  # by which histograms read
    make_heavier("add_up")  # by which sums do
    assert caught(case, PEOPLE[0])


def test_noise_divided_by_one_and_a_half_in_the_plan_is_caught(monkeypatch):
    original = mean.calibrate_noise

    def quieter(*arguments):
        grid, scale, charges = original(*arguments)
        return grid, scale / 1.5, charges

    monkeypatch.setattr(mean, "calibrate_noise", quieter)
    assert caught(MEAN, PEOPLE[0])


def test_a_choice_scale_divided_by_one_and_a_half_is_caught(monkeypatch):
    original = Weights.from_integers.__func__

    def quieter(cls, kinds, row):
        right = original(cls, kinds, row)
        return Weights(
            right.row,
            right.person,
            right.total,
            int(right.loudest / 1.5),
            right.charges,
            right.concentration,
        )

    monkeypatch.setattr(Weights, "from_integers", classmethod(quieter))
    assert caught(MEDIAN, PEOPLE[0])


@pytest.mark.parametrize(
    ("which", "draws"),
    [pytest.param(0, 200_000, marks=pytest.mark.long), (1, 20_000)],
    ids=["strictest", "loosest"],
)
def test_noise_divided_by_one_and_a_half_in_the_sampler_is_caught_by_the_measurement(
    which, draws, monkeypatch
):
    original = source.sample_opendp_laplace
    monkeypatch.setattr(
        source, "sample_opendp_laplace", lambda scale, size: original(scale / 1.5, size)
    )
    people = PEOPLE[0]
    loss, charge = measured_loss(MEAN, people, strictest_and_loosest(people)[which], draws)
    assert loss > charge


@both
def test_people_mixed_up_are_caught(case, monkeypatch):
    original = Budgets.row_codes
    monkeypatch.setattr(Budgets, "row_codes", lambda self: original(self)[::-1])
    assert caught(case, PEOPLE[0])


@both
def test_giving_everybody_the_average_is_caught(case, monkeypatch):
    original = Weights.solve.__func__

    def averaged(cls, kinds, A, B=0.0):
        total = int(kinds.people.sum())
        mean_epsilon = np.full_like(
            kinds.epsilon, int((kinds.epsilon * kinds.people).sum() // total)
        )
        even = original(cls, type(kinds)(mean_epsilon, kinds.rows, kinds.people), A, B)
        charges = np.minimum(even.charges, kinds.epsilon)  # claims what it should have kept
        return Weights(even.row, even.person, even.total, even.loudest, charges, even.concentration)

    monkeypatch.setattr(Weights, "solve", classmethod(averaged))
    if case is MEAN:  # the mean calibrates to each person's grant by itself; plant it there as well
        monkeypatch.setattr(
            mean.units, "round_up", lambda loss: np.zeros(len(loss), dtype=np.int64)
        )
    assert caught(case, PEOPLE[0])


@both
def test_counting_rows_instead_of_people_is_caught(case, monkeypatch):
    original = Weights.from_integers.__func__

    def per_row(cls, kinds, row):
        right = original(cls, kinds, row)
        wrong = original(
            cls, type(kinds)(kinds.epsilon, np.ones_like(kinds.rows), kinds.people), row
        )
        return Weights(
            row, wrong.person, right.total, wrong.loudest, wrong.charges, right.concentration
        )

    monkeypatch.setattr(Weights, "from_integers", classmethod(per_row))
    people = PEOPLE[1]
    assert caught(case, people, owners=np.unique(people.owners))


with_intervals = pytest.mark.parametrize("case", [WIDE_MEAN, WIDE_MEDIAN], ids=repr)


@with_intervals
def test_an_interval_that_is_bought_and_charged_is_not_caught(case):
    assert not any(caught(case, people) for people in PEOPLE[:2])


def test_a_bought_spread_that_nobody_is_charged_for_is_caught(monkeypatch):
    original = mean.SecondMoment.of.__func__

    def free(cls, *arguments):
        made = original(cls, *arguments)
        return replace(made, charges=np.zeros_like(made.charges))

    monkeypatch.setattr(mean.SecondMoment, "of", classmethod(free))
    assert caught(WIDE_MEAN, PEOPLE[0])


def test_a_bought_half_width_that_nobody_is_charged_for_is_caught(monkeypatch):
    original = quantile.RankReach.of.__func__

    def free(cls, purchase, *arguments):
        unpaid = replace(purchase.weights, charges=np.zeros_like(purchase.weights.charges))
        return original(cls, replace(purchase, weights=unpaid), *arguments)

    monkeypatch.setattr(quantile.RankReach, "of", classmethod(free))
    assert caught(WIDE_MEDIAN, PEOPLE[0])


def test_squares_around_another_point_than_the_middle_are_caught(monkeypatch):
    """Around an end they are four times as large, and the noise is made for the middle."""
    original = kernels.exact_dot
    monkeypatch.setattr(
        kernels.WeightedSquares,
        "__call__",
        lambda self, batch: sum(
            original(weights, (2 * integers) ** 2) for integers, weights in self.pieces(batch)
        ),
    )
    assert caught(WIDE_MEAN, PEOPLE[0])


@both
def test_weights_made_equal_after_the_noise_was_chosen_are_caught(case, monkeypatch):
    """What association asks for, with the noise of weights that follow the budgets."""
    original = Weights.solve.__func__

    def late(cls, kinds, A, B=0.0):
        right = original(cls, kinds, A)
        even = original(cls, kinds, np.inf)
        return replace(right, row=even.row, person=even.person, total=even.total)

    monkeypatch.setattr(Weights, "solve", classmethod(late))
    monkeypatch.setattr(mean.units, "check_within_grant", lambda charges, grants: grants)
    assert caught(case, PEOPLE[0])
