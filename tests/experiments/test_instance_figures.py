"""Paper I: exact losses have the digits that were found beforehand, formulas agree with fits, and
all is explained.

Data and simulations are seeded; the fits of our own estimators are not, and what is said of them
has a stated margin.
"""

from __future__ import annotations

import math
from functools import cache

import numpy as np
import pytest

import sottovoce as sv
from sottovoce.papers import instance_claims, instance_exact
from sottovoce.papers import instance_figures as efficiency
from sottovoce.papers import instance_figures as figures
from sottovoce.papers.instance_figures import (
    RIDGE,
    SIGMA,
    SphereData,
    compute_noisy_losses,
    find_worst_move,
)
from sottovoce.papers.plots import Outcome
from sottovoce.papers.report import Task

pytestmark = pytest.mark.xdist_group("figures of paper I")
MADE = {
    "figure-1": figures.figure_1,
    "figure-2": figures.figure_2,
    "efficiency": efficiency.efficiency,
}


@cache
def small(name):
    return MADE[name](Task(f"instance/{name}", "small"))


def column(name, table, start):
    return next(c for c in small(name).tables[table].columns if c.name.startswith(start))


@pytest.mark.parametrize("name", MADE)
def test_every_outcome_is_whole_and_explained(name):
    outcome = small(name)
    assert outcome.find_unexplained() == []
    assert Outcome.from_json(outcome.to_json()) == outcome
    assert outcome.tables
    assert outcome.figures
    assert all(min(series.y) > 0 for f in outcome.figures for p in f.panels for series in p.series)


@pytest.mark.parametrize(
    ("rows", "known"), [(20, "1.36"), (50, "1.94"), (100, "2.63"), (1000, "8.39"), (10**4, "33.9")]
)
def test_the_worst_data_set_has_the_known_loss(rows, known):
    """Digits found before this code was written (a family in two dimensions)."""
    exact = float(sv.audit.gaussian_epsilon(find_worst_move(rows) / SIGMA, instance_claims.DELTA))
    assert f"{exact:.{len(known) - 1}g}" == known


def test_the_worst_data_set_is_one():
    """The construction, refitted: n rows along e₁ that all say 1, and a record at an angle."""
    rows = 50
    best = 0.0
    for along in np.geomspace(0.1, 2.0, 60):
        X = np.column_stack([np.full(rows, math.sqrt(along / rows)), np.zeros(rows)])
        for angle in np.linspace(0, 1.5, 60):
            x = np.array([math.cos(angle), math.sin(angle)])
            before = np.linalg.solve(X.T @ X + RIDGE * np.eye(2), X.T @ np.ones(rows))
            after = np.linalg.solve(
                X.T @ X + np.outer(x, x) + RIDGE * np.eye(2), X.T @ np.ones(rows) - x
            )
            best = max(best, float(np.linalg.norm(after - before)))
    assert best <= find_worst_move(rows) * (1 + 1e-9)
    assert best > find_worst_move(rows) * 0.999
    assert find_worst_move(rows) < (1 + math.sqrt(rows) / 2) / 2


def test_exact_losses_are_those_of_refits():
    """Leave one row out, solve again, and ask the Gaussian profile."""
    data = SphereData.draw(20, 3)
    found = compute_noisy_losses(20, 3)

    def solution(X, y):
        return np.linalg.solve(X.T @ X + RIDGE * np.eye(3), X.T @ y)

    for i in (0, 7, 19):
        rest = np.arange(20) != i
        move = np.linalg.norm(solution(data.X, data.y) - solution(data.X[rest], data.y[rest]))
        exact = float(sv.audit.gaussian_epsilon(move / SIGMA, instance_claims.DELTA))
        assert found.own[i] == pytest.approx(exact, rel=1e-9)
        assert found.own_printed[i] == pytest.approx(
            instance_exact.lemma_4_as_printed(move, 1 / 16, 1e-6), rel=1e-9
        )


def test_losses_are_ordered_and_print_is_too_small():
    for size in figures.SIZES[:3]:
        one = compute_noisy_losses(*size)
        assert one.own.max() <= one.anybody <= one.worst <= one.ceiling
        assert one.worst_printed < one.worst
        assert np.mean(one.own_printed < one.own) > 0.9


def test_figure_1_has_the_sizes_that_the_text_names():
    gaps = column("figure-1", 0, figures.GAP)
    assert gaps.published.count(figures.SIX) == 1
    assert gaps.ours[0] == pytest.approx(figures.SIX, rel=0.1)
    assert gaps.ours[0] < gaps.ours[1] < gaps.ours[2]
    assert min(column("figure-1", 0, "all data over largest").ours) > 10


def test_the_posterior_sample_has_the_known_ceilings_and_print_is_below_exact_for_most():
    """161, 969 and 7875 were found beforehand, for n = 1000; (8) below exact for 84 % at γ = 100,
    on other data.
    """
    ceilings = dict(
        zip(figures.GAMMAS, column("figure-2", 1, "all data, ceiling").ours, strict=True)
    )
    assert [round(ceilings[gamma]) for gamma in (1.0, 10.0, 100.0)] == [161, 969, 7875]
    below = dict(zip(figures.GAMMAS, column("figure-2", 1, "share of people").ours, strict=True))
    assert below[0.1] < 0.01 < 0.7 < below[100.0] < 0.95
    medians = column("figure-2", 1, "in the data, median")
    pure = column("figure-2", 1, "all data, pure")
    assert all(
        m * 100 < c < p for m, c, p in zip(medians.ours, ceilings.values(), pure.ours, strict=True)
    )


def test_efficiency_is_the_corrected_formula_and_not_the_printed_one():
    """500 seeded runs of five columns: a standard error of 3 %."""
    error, seen = small("efficiency").tables[0].columns
    for right, printed, found in zip(error.ours, error.published, seen.ours, strict=True):
        assert found == pytest.approx(right, rel=0.15)
        assert right > 1.2 * printed
    adaptive = column("efficiency", 1, efficiency.EFFICIENCY)
    formula = column("efficiency", 1, "1 + 1/(γσ²), AdaOPS")
    for found, right, printed in zip(adaptive.ours, formula.ours, adaptive.published, strict=True):
        assert found == pytest.approx(right, rel=0.15)
        assert found > 20 * printed


def test_our_adaptive_sample_is_better_than_adaops():
    """By formula; and five fits, over their formula, are near χ² of 25 degrees over 25: 3·10⁻⁹ is
    outside (.1, 4).
    """
    theirs = column("efficiency", 1, "1 + 1/(γσ²), AdaOPS")
    ours = column("efficiency", 1, "1 + 1/(γσ²), ours")
    fitted = column("efficiency", 1, "ours over least squares")
    for worse, better, found in zip(theirs.ours, ours.ours, fitted.ours, strict=True):
        assert better < worse / 4
        assert 0.1 < found / better < 4


def test_simulated_samples_have_the_law_of_a_posterior():
    """Mean and covariance of 40,000 seeded samples at one ridge."""
    data = SphereData.draw(200, efficiency.COLUMNS, 0.5)
    found = efficiency.draw_samples(data, np.full(40_000, 3.0), 2.0, "instance test")
    hessian = np.linalg.inv(data.gram + 3.0 * np.eye(efficiency.COLUMNS))
    assert found.mean(axis=0) == pytest.approx(hessian @ data.gram @ data.theta, abs=0.005)
    covariance = efficiency.NOISE**2 * hessian @ data.gram @ hessian + hessian / 2.0
    assert np.cov(found.T) == pytest.approx(covariance, abs=0.03 * covariance.max())
