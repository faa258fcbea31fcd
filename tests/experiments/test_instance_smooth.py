"""Lemma 13 for smooth losses, with the sign that is right, and what its experiment says."""

from __future__ import annotations

import numpy as np
import pytest

from sottovoce.papers import instance_smooth
from sottovoce.papers.report import Task


@pytest.mark.parametrize("loss", instance_smooth.LOSSES, ids=lambda loss: loss.name)
def test_lemma_13_holds_with_the_sign_that_is_right(loss):
    X, y = instance_smooth.draw_table(loss, 40)
    for i in (0, 7, 39):
        refitted, identity = instance_smooth.move_by_lemma_13(loss, X, y, i)
        assert np.linalg.norm(refitted) > 0
        assert identity == pytest.approx(refitted, rel=1e-6, abs=1e-12)
        assert np.linalg.norm(-identity - refitted) > np.linalg.norm(refitted)  # as printed


def test_slopes_and_bends_are_derivatives():
    f = np.linspace(-2, 2, 41)
    y = np.where(f > 0.3, 1.0, -1.0)
    for loss in instance_smooth.LOSSES:
        h = 1e-5
        bend = (loss.slope(f + h, y) - loss.slope(f - h, y)) / (2 * h)
        assert loss.bend(f, y) == pytest.approx(bend, abs=1e-6)


def test_equation_3_is_below_the_truth_for_large_gamma_and_weights_correct_soft_joining():
    outcome = instance_smooth.smooth(Task("instance/smooth-losses", "small"))
    assert outcome.find_unexplained() == []
    for table in outcome.tables[:3]:
        largest = table.columns[0]
        assert largest.published[-1] < largest.ours[-1]
        assert largest.published[0] > largest.ours[0]
        assert table.columns[2].ours[-1] == pytest.approx(1, abs=0.1)
    truth, seen, soft, hard = (np.array(c.ours) for c in outcome.tables[3].columns)
    assert np.abs(soft - truth)[0] < np.abs(seen - truth)[0]
    assert hard[0] < seen[0] < truth[0]
