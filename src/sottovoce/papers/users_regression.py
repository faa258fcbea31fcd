# SPDX-License-Identifier: Apache-2.0
"""The regressions of "Smoothly Bounding User Contributions in Differential Privacy": Figures 1 to
3.

Errors are means over the noise in closed form: with a map C and noise of scale b, E‖y − X(Cy +
Z)‖²/n is ‖y − XCy‖²/n + 2b²·tr(XᵀX)/n. Conventions are **as published, and not private**: B is the
range of the labels seen, σ² is that of least squares, and the best threshold h is picked with the
answers in hand.

    symbol   name
    C, b     the public linear map of labels, and the scale of Laplace noise on each coefficient
    h        threshold: at most so many rows of each person are kept
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from sklearn.datasets import make_regression

import sottovoce as sv
from sottovoce.arrays import Floats, Integers
from sottovoce.papers.plots import Figure, Outcome, Panel, ResultColumn, ResultTable, Series
from sottovoce.papers.report import Task, make_named_generator

#: The paper's synthetic data: half of the columns matter, and labels have this standard deviation
#: around the plane.
COLUMNS = 10
INFORMATIVE = 5
NOISE = 20.0
ROWS = (600, 1200, 1800, 2400, 3000)
ALPHAS = (1.0, 1.25, 1.5, 1.75, 2.0)
EPSILONS = (1.0, 2.0, 3.0)
ALPHA = 1.5
MOST_ROWS = 3000
#: Draws of synthetic data, and runs of noise that check the closed form, for the full and the small
#: size.
DRAWS = (10, 1)
CHECKS = (20_000, 2_000)
#: Thresholds that are tried, at most: evenly spaced on a logarithmic scale.
THRESHOLDS = 40
BEST = "best map"
LIMITED = "limit, best h"
EVERYTHING = "limit, all rows"
METHODS = (BEST, LIMITED, EVERYTHING)


@dataclass(frozen=True, eq=False)
class LabelProblem:
    """Public features, private labels, and the number of the person to whom each row belongs."""

    X: Floats
    y: Floats
    owner: Integers

    @cached_property
    def range(self) -> tuple[float, float]:
        """The lowest and the highest label, read off the labels as in the paper."""
        return float(self.y.min()), float(self.y.max())

    @cached_property
    def variance(self) -> float:
        """σ² by least squares, as in the paper."""
        rest = self.y - self.X @ np.linalg.lstsq(self.X, self.y, rcond=None)[0]
        return float(rest @ rest / (len(self.y) - self.X.shape[1]))

    @cached_property
    def stretch(self) -> Floats:
        """The diagonal of XᵀX/n: what noise on each coefficient does to predictions."""
        return np.asarray((self.X**2).mean(axis=0))

    def error(self, beta: Floats, scale: float | Floats) -> Floats:
        """Return the mean squared error of predictions with these coefficients and Laplace noise
        on them.
        """
        misfit = np.mean((self.y - self.X @ beta) ** 2)
        return np.asarray(misfit + 2 * np.square(scale) * self.stretch.sum())


def measure_best_map(
    problem: LabelProblem, epsilon: float, sensitivity: str = "entrywise"
) -> tuple[float, float]:
    """Return the error of the best map, and the relative gap of its certificate."""
    regression = sv.LabelPrivateRegression(
        problem.range, noise_variance=problem.variance, fit_intercept=False, sensitivity=sensitivity
    )
    plan = regression.plan(problem.X, epsilon, groups=problem.owner)
    C = np.ldexp(plan.grid.map.astype(np.float64), plan.grid.map_exponent)
    return float(problem.error(C @ problem.y, plan.noise["scale"])), plan.noise["certificate"][
        "gap"
    ]


def limit_rows(owner: Integers, h: int, order: Integers) -> Integers:
    """Return the places of at most h rows of each person, those that come first in this order."""
    grouped = order[np.argsort(owner[order], kind="stable")]
    place = np.arange(len(owner)) - np.searchsorted(owner[grouped], owner[grouped])
    return np.sort(grouped[place < h])


def solve_least_squares(X: Floats, owner: Integers, rows: Integers) -> tuple[Floats, float]:
    """Return the map of least squares on these rows, and how far one person's labels, a unit each,
    can move it.
    """
    chosen = X[rows]
    C = np.linalg.solve(chosen.T @ chosen, chosen.T)
    return np.asarray(C), float(np.bincount(owner[rows], weights=np.abs(C).sum(axis=0)).max())


def measure_limits(
    problem: LabelProblem, epsilons: Sequence[float], seed: str
) -> tuple[Integers, Floats]:
    """Return the thresholds that are tried, and the error of sample limiting for each ε at each of
    them.
    """
    largest = int(np.bincount(problem.owner).max())
    thresholds = np.unique(np.geomspace(1, largest, THRESHOLDS).round().astype(np.int64))
    low, high = problem.range
    errors = []
    rng = make_named_generator(seed)
    for h in thresholds:
        rows = limit_rows(problem.owner, int(h), rng.permutation(len(problem.y)))
        C, reach = solve_least_squares(problem.X, problem.owner, rows)
        errors.append(problem.error(C @ problem.y[rows], (high - low) * reach / np.array(epsilons)))
    return thresholds, np.array(errors).T


def make_zipf_sizes(n: int, alpha: float) -> Integers:
    """Return everybody's rows, n in all: as many people with i rows as i^−α has it, the rest with
    one row each.

    >>> make_zipf_sizes(20, 1.0).tolist()
    [1, 1, 1, 1, 1, 1, 2, 3, 4, 5]
    """
    sizes = np.arange(1, n + 1)
    # of the number of people with one row
    low = 0.0
    high = float(n)
    while high - low > 1e-9 * n:
        middle = (low + high) / 2
        if sizes @ _count_people(middle, sizes, alpha) <= n:
            low, high = (middle, high)
        else:
            low, high = (low, middle)
    found = np.repeat(sizes, _count_people(low, sizes, alpha))
    return np.sort(np.concatenate([found, np.ones(n - found.sum(), dtype=np.int64)]))


def _count_people(first: float, sizes: Integers, alpha: float) -> Integers:
    return np.asarray(np.floor(first * sizes**-alpha + 0.5), dtype=np.int64)


def draw_synthetic(n: int, alpha: float, draw: int) -> LabelProblem:
    """Return one draw of the paper's synthetic data, rows dealt out at random."""
    rng = make_named_generator(f"users {n} {alpha} {draw}")
    sizes = make_zipf_sizes(n, alpha)
    X, y = make_regression(
        n,
        COLUMNS,
        n_informative=INFORMATIVE,
        bias=0.0,
        noise=NOISE,
        random_state=int(rng.integers(2**31)),
    )
    return LabelProblem(X, y, rng.permutation(np.repeat(np.arange(len(sizes)), sizes)))


def figure(task: Task) -> Outcome:
    """Figures 1 and 3 (errors by rows, at one ε and at the others) and 2 (by α)."""
    number = int(task.name.rpartition("-")[2])
    axis: tuple[float, ...] = ALPHAS if number == 2 else ROWS
    if task.size == "full":
        lines = axis
    else:
        lines = (axis[0], axis[-1])
    if number == 3:
        epsilons: tuple[float, ...] = EPSILONS[1:]
    else:
        epsilons = EPSILONS[:1]
    settings = [(MOST_ROWS, x) if number == 2 else (int(x), ALPHA) for x in lines]
    found = np.array(
        [
            _measure_draws(task, setting, epsilons, i / len(lines))
            for i, setting in enumerate(settings)
        ]
    )
    if number == 2:
        what = "α"
    else:
        what = "rows"
    tables = [
        _make_table(what, lines, epsilon, found[:, :, i]) for i, epsilon in enumerate(epsilons)
    ]
    panels = [
        _make_panel(what, lines, epsilon, found[:, :, i]) for i, epsilon in enumerate(epsilons)
    ]
    words = (
        _describe_axis(number, found),
        _check_by_simulation(task, draw_synthetic(*settings[0], 0), epsilons[0]),
    )
    return Outcome(
        task.name, task.size, tuple(tables), (Figure(f"Figure {number}", tuple(panels)),), words
    )


def _measure_draws(
    task: Task, setting: tuple[int, float], epsilons: Sequence[float], share: float
) -> list[list[list[float]]]:
    """Returns, for each draw of data and each ε, the errors of the three methods and the best
    threshold.
    """
    found = []
    for draw in range(task.choose(*DRAWS)):
        problem = draw_synthetic(*setting, draw)
        thresholds, errors = measure_limits(problem, epsilons, f"users limit {setting} {draw}")
        best = errors.argmin(axis=1)
        lines = zip(epsilons, errors, best, strict=True)
        found.append(
            [
                [measure_best_map(problem, e)[0], line[i], line[-1], float(thresholds[i])]
                for e, line, i in lines
            ]
        )
    task.progress(share)
    return found


def _make_table(what: str, lines: Sequence[float], epsilon: float, found: Floats) -> ResultTable:
    """Medians over draws; the gain is that of each draw, then its median."""
    middle = np.median(found, axis=1)
    gain = np.median(found[:, :, 1] / found[:, :, 0], axis=1)
    names = (BEST, LIMITED, EVERYTHING, "best h")
    columns = [ResultColumn(name, tuple(middle[:, i].tolist())) for i, name in enumerate(names)]
    labels = tuple(f"{line:g}" for line in lines)
    gained = ResultColumn("best h over best map", tuple(gain.tolist()))
    return ResultTable(f"Mean squared error, ε = {epsilon:g}", what, labels, (*columns, gained))


def _make_panel(what: str, lines: Sequence[float], epsilon: float, found: Floats) -> Panel:
    x = tuple(float(line) for line in lines)
    series = []
    for place, name in enumerate(METHODS):
        ends = (found[:, :, place].min(axis=1), found[:, :, place].max(axis=1))
        low, high = (tuple(end.tolist()) for end in ends)
        series.append(Series(f"{name}, all draws", name, x, low, "band", high))
        series.append(Series(name, name, x, tuple(np.median(found[:, :, place], axis=1).tolist())))
    return Panel(f"ε = {epsilon:g}", what, "mean squared error", tuple(series))


def _describe_axis(number: int, found: Floats) -> str:
    worse = (found[..., 1] > found[..., 0]).mean()
    errors = f"between {found[..., :3].min():,.0f} and {found[..., :3].max():,.0f}"
    told = {
        1: "Print has bars without numbers, on an axis with marks from 10³ to 10⁶.",
        2: "Print has bars without numbers, on an axis with marks from 10³ to 10⁵; its caption "
        "gives α = 1.5, but α is what varies.",
        3: "Print has bars without numbers.",
    }
    return (
        f"{told[number]} All our errors lie {errors}; the best map is ahead of the best h in "
        f"{worse:.0%} of draws."
    )


def _check_by_simulation(task: Task, problem: LabelProblem, epsilon: float) -> str:
    """Draws noise for least squares on all rows and compares the mean error with the closed
    form.
    """
    runs = task.choose(*CHECKS)
    everybody = np.arange(len(problem.y))
    C, reach = solve_least_squares(problem.X, problem.owner, everybody)
    scale = (problem.range[1] - problem.range[0]) * reach / epsilon
    exact = float(problem.error(C @ problem.y, scale))
    beta = C @ problem.y
    shifts = make_named_generator(f"users check {task.name}").laplace(0.0, scale, (runs, COLUMNS))
    gram = problem.X.T @ problem.X / len(problem.y)
    cross = problem.X.T @ (problem.y - problem.X @ beta)
    seen = np.mean((problem.y - problem.X @ beta) ** 2) + (
        shifts * (shifts @ gram - 2 * cross / len(problem.y))
    ).sum(1)
    errors = abs(seen.mean() - exact) / (seen.std() / math.sqrt(runs))
    return (
        f"Means over noise are closed forms; {runs:,} draws of noise differ by {errors:.1f} "
        "standard errors."
    )


def exact(task: Task) -> Outcome:
    """What the exact sensitivity gains over the published one, each with its own best map."""
    if task.size == "full":
        rows: tuple[int, ...] = (150, 300, 600)
    else:
        rows = (60,)
    found = []
    for place, n in enumerate(rows):
        problem = draw_synthetic(n, ALPHA, 0)
        found.append([*measure_best_map(problem, 1.0), *measure_best_map(problem, 1.0, "exact")])
        task.progress((place + 1) / len(rows))
    published, gap, ours, own_gap = (tuple(line) for line in zip(*found, strict=True))
    gain = tuple(one / other for one, other in zip(published, ours, strict=True))
    columns = (
        ResultColumn("entrywise, as published", published),
        ResultColumn("exact", ours),
        ResultColumn("gain", gain),
    )
    told = f"The maps are within {max(*gap, *own_gap):.2g} of their optimum, by their certificates."
    table = ResultTable(
        "Mean squared error, ε = 1, α = 1.5", "rows", tuple(map(str, rows)), columns
    )
    return Outcome(task.name, task.size, (table,), (), (told,))
