"""Losses are what they are called: derivatives match values, values match scikit-learn, and
strangers are refused.
"""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import hinge_loss, log_loss

from sottovoce import errors
from sottovoce.solvers import losses

every_loss = pytest.mark.parametrize("loss", losses.LOSSES.values(), ids=losses.LOSSES.keys())
PREDICTION = np.linspace(-3, 3, 61) + 0.013


def labels(loss):
    if loss.shape.classifies:
        return np.where(np.arange(61) % 2, 1.0, -1.0)
    return np.linspace(-1, 1, 61)


@every_loss
def test_the_derivative_is_that_of_the_value(loss):
    y = labels(loss)
    step = 1e-6
    slope = (loss.value(PREDICTION + step, y) - loss.value(PREDICTION - step, y)) / (2 * step)
    assert loss.derivative(PREDICTION, y) == pytest.approx(slope, abs=1e-5)


@every_loss
def test_losses_are_convex_and_finite_far_out(loss):
    y = labels(loss)
    slopes = np.array([loss.derivative(np.full(61, f), y) for f in np.linspace(-5, 5, 201)])
    assert np.all(np.diff(slopes, axis=0) >= 0)
    for far in (-1e8, 1e8):
        assert np.isfinite(loss.value(np.full(61, far), y)).all()
        assert np.isfinite(loss.derivative(np.full(61, far), y)).all()


def test_values_are_scikit_learns():
    y = labels(losses.LogisticLoss())
    odds = 1 / (1 + np.exp(-PREDICTION))
    assert losses.LogisticLoss().value(PREDICTION, y).mean() == pytest.approx(log_loss(y, odds))
    assert losses.HingeLoss().value(PREDICTION, y).mean() == pytest.approx(
        hinge_loss(y, PREDICTION)
    )


def test_huber_is_squared_near_by_and_linear_far_out():
    huber = losses.HuberLoss(0.5)
    squared = losses.SquaredLoss()
    assert huber.value(np.array([0.4]), np.array([0.0])) == squared.value(
        np.array([0.4]), np.array([0.0])
    )
    assert huber.value(np.array([2.0]), np.array([0.0])) == pytest.approx(0.5 * 2 - 0.125)
    assert huber.derivative(np.array([2.0, -2.0]), np.zeros(2)).tolist() == [0.5, -0.5]


class Own:
    def value(self, prediction, label):
        return np.abs(prediction - label)

    def derivative(self, prediction, label):
        return np.sign(prediction - label)


def test_a_loss_of_ones_own_needs_two_methods():
    own = losses.get_loss(Own())
    assert losses.get_name(own) == "Own"
    assert losses.get_shape(own) == losses.LossShape()
    for stranger in ("best", None, 3, Own, object()):
        with pytest.raises(errors.InvalidParameter) as caught:
            losses.get_loss(stranger)
        assert caught.value.remedy
