"""What sampled people lose: dp-accounting's own numbers, the pair that dominates all others, safe
tables.
"""

from __future__ import annotations

import sys

import numpy as np
import pytest
from dp_accounting import NeighboringRelation, dp_event
from dp_accounting.pld import PLDAccountant
from scipy.stats import norm

from sottovoce import errors
from sottovoce.accounting import subsampled
from sottovoce.accounting.renyi import gaussian_epsilon
from sottovoce.accounting.subsampled import SampledSteps

SETTINGS = [(0.1, 100, 1e-6), (0.02, 200, 1e-5)]
every_setting = pytest.mark.parametrize(("rate", "steps", "delta"), SETTINGS)
GRANTS = np.array([0.01, 0.2, 1.0])


def by_dp_accounting(rate, steps, delta, row_weights, neighbours=NeighboringRelation.REPLACE_ONE):
    account = PLDAccountant(neighbours, value_discretization_interval=1e-4)
    event = dp_event.PoissonSampledDpEvent(rate, dp_event.GaussianDpEvent(1 / row_weights))
    return account.compose(event, steps).get_epsilon(delta)


@every_setting
def test_losses_are_those_of_dp_accounting_under_replacement(rate, steps, delta):
    account = SampledSteps(rate, steps, delta)
    row_weights = account.sensitivity_of(np.array([0.3, 2.0]))
    for ours, loud in zip(account.epsilon_of(row_weights), row_weights, strict=True):
        theirs = by_dp_accounting(rate, steps, delta, float(loud))
        assert ours == pytest.approx(theirs, rel=3e-3)
        assert ours > 1.2 * by_dp_accounting(
            rate, steps, delta, float(loud), NeighboringRelation.ADD_OR_REMOVE_ONE
        )


@every_setting
def test_a_loudness_keeps_its_grant_and_uses_it(rate, steps, delta):
    account = SampledSteps(rate, steps, delta)
    spent = account.epsilon_of(account.sensitivity_of(GRANTS))
    assert np.all(spent <= GRANTS)
    assert np.all(spent >= 0.997 * GRANTS)


def test_many_different_grants_are_rounded_to_the_safe_side_of_a_table(monkeypatch):
    monkeypatch.setattr(subsampled, "TABLE_SIZE", 16)
    account = SampledSteps(0.2, 50, 1e-5)
    grants = np.geomspace(0.05, 2, 300)
    row_weights = account.sensitivity_of(grants)
    assert np.all(account.epsilon_of(row_weights) <= grants)
    assert np.all(np.diff(row_weights) >= 0)
    assert len(account._known) < 3 * subsampled.TABLE_SIZE
    exactly = account.sensitivity_of(grants[[0, 150, -1]])
    assert np.all(row_weights[[0, 150, -1]] >= exactly / (40 ** (1 / subsampled.TABLE_SIZE) * 1.01))
    between = (
        row_weights * 0.999
    )  # what is between two points of a table is charged as the heavier one
    assert np.all(
        account.epsilon_of(between)[[0, 150, -1]]
        >= account.epsilon_of(between[[0, 150, -1]]) * (1 - 1e-9)
    )


def test_everybody_in_every_step_is_the_gaussian_mechanism():
    account = SampledSteps(1.0, 10, 1e-5)
    assert account.epsilon_of(np.array([0.1]))[0] == pytest.approx(
        float(gaussian_epsilon(2 * 10 * 0.1**2, 1e-5)), rel=3e-3
    )


def test_who_is_not_heard_loses_nothing():
    account = SampledSteps(0.1, 10, 1e-5)
    assert account.epsilon_of(np.array([0.0, 0.0])).tolist() == [0.0, 0.0]
    assert account.sensitivity_of(np.array([0.0, 1e-9])).tolist() == [0.0, 0.0]


def test_where_delta_covers_being_drawn_at_all_loudness_has_a_limit():
    assert (
        SampledSteps(0.001, 2, 0.02).sensitivity_of(np.array([1.0]))[0]
        == subsampled.MAX_SENSITIVITY
    )


def hockey_stick(first, second, factor, cell):
    return float(np.maximum(first - factor * second, 0).sum() * cell)


@pytest.mark.parametrize("factor", [0.5, 1.0, 1.2, 3.0])
@pytest.mark.parametrize("rate", [0.1, 0.5, 1.0])
def test_no_pair_in_the_plane_loses_more_than_the_opposite_pair_on_the_line(rate, factor):
    """Theorem 2's lemma by quadrature: gradients of length at most 1 in any two directions, of any
    length.
    """
    line = np.linspace(-8, 8, 129)
    cell = (line[1] - line[0]) ** 2
    x, y = np.meshgrid(line, line)

    def mixture(point):
        here = norm.pdf(x - point[0]) * norm.pdf(y - point[1])
        return (1 - rate) * norm.pdf(x) * norm.pdf(y) + rate * here

    worst = hockey_stick(mixture((1, 0)), mixture((-1, 0)), factor, cell)
    rng = np.random.default_rng(0)
    for _ in range(12):
        angle = rng.uniform(0, 2 * np.pi, 2)
        length = np.sqrt(rng.uniform(0, 1, 2))
        one, two = (
            size * np.array([np.cos(a), np.sin(a)]) for a, size in zip(angle, length, strict=True)
        )
        assert hockey_stick(mixture(one), mixture(two), factor, cell) <= worst + 1e-6


def test_without_the_package_sampling_is_refused_with_a_way_out(monkeypatch):
    subsampled._dp_accounting.cache_clear()
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    with pytest.raises(errors.InvalidParameter, match=r"sottovoce\[accounting\]"):
        SampledSteps(0.1, 10, 1e-5).sensitivity_of(np.array([1.0]))
    subsampled._dp_accounting.cache_clear()
