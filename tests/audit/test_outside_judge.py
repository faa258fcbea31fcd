"""An auditor that nobody here wrote judges the same answers: CanaryScoreAuditor of jax-privacy.

`make test-judge` fetches it into a folder of its own and says where it is. It is one file that
needs no JAX, and is loaded as such.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import sottovoce as sv
from sottovoce.audit.measured_losses import bound_loss, read_numbers
from sottovoce.noise import continuous

FOLDER = os.environ.get("SOTTOVOCE_JUDGE")
FILE = Path(FOLDER or "nowhere") / "jax_privacy" / "auditing.py"
pytestmark = pytest.mark.skipif(not FILE.exists(), reason="run by `make test-judge`")

RUNS = 3000
SIGNIFICANCE = 1e-7
BOX = sv.Bounds(features=(0, 1), label=(0, 1))
X = np.random.default_rng(0).random((20, 2))


class HalfNoise(sv.Mean):
    """A planted bug: half the noise that was planned."""

    def release_under(self, plan, rows):
        halved = {**plan.noise, "integer_scale": plan.noise["integer_scale"] / 2}
        return super().release_under(replace(plan, noise=halved), rows)


@pytest.fixture(scope="module")
def judge():
    spec = importlib.util.spec_from_file_location("jax_privacy_auditing", FILE)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module.CanaryScoreAuditor


def draw(make, high, runs):
    """One number of each of so many answers, for a person at one end of the bounds."""
    y = np.full(20, 0.5)
    y[3] = float(high)
    model = make()
    numbers = []
    for _ in range(runs):
        data = (y,) if isinstance(model, sv.Mean | sv.Quantile) else (X, y)
        numbers.append(read_numbers(model.fit(*data, epsilon=1.0).release_)[0])
    return np.array(numbers)


@pytest.mark.parametrize(
    "make",
    [
        lambda: sv.Mean(bounds=(0, 1), interval_share=0),
        lambda: sv.Quantile(q=0.5, bounds=(0, 1), cells=16, interval_share=0),
        lambda: sv.Ridge(BOX),
    ],
)
def test_the_judge_finds_no_more_than_was_charged(judge, make):
    """False-alarm rate 1e-7, the significance that the judge is given."""
    inside, outside = (draw(make, high, RUNS // 3) for high in (True, False))
    assert judge(inside, outside).epsilon_clopper_pearson(SIGNIFICANCE, one_sided=False) <= 1.0


def halve_noise(monkeypatch):
    """A planted bug in regressions: half the noise in their objective."""
    draw_noise = continuous.draw_mixed_norm
    monkeypatch.setattr(continuous, "draw_mixed_norm", lambda *given: draw_noise(*given) / 2)


@pytest.mark.parametrize("question", ["mean", "ridge"])
def test_the_judge_catches_half_the_noise_and_agrees_with_us(judge, question, monkeypatch):
    """Half the noise is ε = 2. One side of the middle then has .816 of the outcomes of one table
    and .184 of the other's, log-ratio 1.49, which RUNS know to .041; so much is asked of it that
    a bound is below 1 with a chance under 1e-9.
    """
    make = partial(HalfNoise, bounds=(0, 1), interval_share=0)
    if question == "ridge":
        halve_noise(monkeypatch)
        make = partial(sv.Ridge, BOX)
    inside, outside = (draw(make, high, RUNS) for high in (True, False))
    theirs = judge(inside, outside).epsilon_clopper_pearson(1e-3, one_sided=False)
    assert theirs > 1.0
    threshold = np.quantile(np.r_[inside, outside], 0.5)
    hits, others = (int((part >= threshold).sum()) for part in (inside, outside))
    ours = bound_loss(hits, RUNS, others, RUNS, 1e-3, 0.0)
    assert ours > 1.0
    assert abs(ours - theirs) < 0.7  # they try every threshold, and pay for that
