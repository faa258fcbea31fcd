# SPDX-License-Identifier: Apache-2.0
"""Table 2 of "Smoothly Bounding User Contributions in Differential Privacy": logistic regression by
noisy steps, on your own copy of its reviews or on invented ones (users_data.py).

It is **as published, and not private**: the noise does not keep its promise (users/table-2-noise).

Print names Algorithm 1 of Bassily, Smith and Thakurta (2014), and neither its steps nor their
length. What is printed tells the length: where everybody weighs 1/m (h = 1), the noise adds
d·s·σ²/(4√T) to the least loss, s/√T being the last step and σ its noise, whatever the data are. By
this law the printed differences between ε = 30, 40 and 50 are those of s = ‖C‖ with a constant in
the model, and 3.5 times those of that algorithm, whose s is ‖C‖/√(m²W² + dσ²) (table_2_law). The
other settings that were tried stand in a table of their own.

    symbol   name
    c, W     weight of a row, and the largest total weight of a person
    h        threshold: at most so many rows of each person are kept, or counted
    T        steps, people² as in Algorithm 1 of Bassily, Smith and Thakurta (2014)
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.special import expit

from sottovoce.arrays import Floats, Integers
from sottovoce.papers.plots import Outcome, Reason, ResultColumn, ResultTable
from sottovoce.papers.report import Task, make_named_generator
from sottovoce.papers.users_data import FACTS, find_reviews
from sottovoce.papers.users_regression import LabelProblem, limit_rows
from sottovoce.papers.users_tables import INVENTED, read_printed

#: ε, δ, thresholds, half the side of the box, and the constant of the noise.
LARGE_EPSILONS = (30.0, 40.0, 50.0)
DELTA = 0.1
THRESHOLDS = (1, 2, 3, 4)
BOX = 10.0
NOISE_CONSTANT = 32.0
#: Runs of ours for the full and the small size, and those of settings that were tried.
RUNS = (10, 2)
TRIED_RUNS = (4, 1)
#: Steps of the small size; the full size takes people².
FEW_STEPS = 300
#: Lengths of steps: of the algorithm that is named, and of what is printed.
OWN = "‖C‖/√(t·(m²W² + dσ²))"
CHOSEN = "‖C‖/√t"
#: Places of weights h = 1, weights h = 4 and all rows among the nine settings of rows.
SHOWN = {"weights, h = 1": 0, "weights, h = 4": 3, "all rows": 8}


@dataclass(frozen=True, eq=False)
class CellDescent:
    """Rows that are alike as one cell, and the weights of each person's cells in each of several
    settings.
    """

    X: Floats  # one line a cell
    y: Floats
    share: Floats  # of all rows, by cell
    weights: Floats  # settings × people × cells

    @classmethod
    def of(cls, X: Floats, y: Floats, owner: Integers, weights: list[Floats]) -> CellDescent:
        """Gathers rows with the same features and label."""
        cells, cell = np.unique(np.column_stack([X, y]), axis=0, return_inverse=True)
        shape = (int(owner.max()) + 1, len(cells))
        place = owner * shape[1] + cell.ravel()
        counted = [np.bincount(place, c, shape[0] * shape[1]).reshape(shape) for c in weights]
        return cls(
            cells[:, :-1], cells[:, -1], np.bincount(cell.ravel()) / len(y), np.array(counted)
        )

    @property
    def max_person_weights(self) -> Floats:
        """W of each setting."""
        return np.asarray(self.weights.sum(axis=2).max(axis=1))

    def losses(self, theta: Floats) -> Floats:
        """Return the mean cross-entropy over all rows for each line of coefficients."""
        margins = np.where(self.y > 0, -1, 1) * (theta @ self.X.T)
        return np.asarray(np.logaddexp(0, margins) @ self.share)

    def gradient(self, theta: Floats, weights: Floats) -> Floats:
        """Return the weighted sum of the gradients of all cells, each cut to length one first,
        line by line.
        """
        slope = np.clip(expit(theta @ self.X.T) - self.y, -self._steepest, self._steepest)
        return np.asarray((weights * slope) @ self.X)

    @cached_property
    def least_loss(self) -> float:
        """The least mean cross-entropy of all, by Newton's method with a little ridge."""
        theta = np.zeros(self.X.shape[1])
        for _ in range(50):
            chance = expit(self.X @ theta)
            bend = (self.X.T * (self.share * chance * (1 - chance))) @ self.X
            slope = self.X.T @ (self.share * (chance - self.y))
            theta = theta - np.linalg.solve(bend + 1e-9 * np.eye(len(theta)), slope)
        return float(self.losses(theta[None])[0])

    @cached_property
    def _steepest(self) -> Floats:
        # Slopes are below one, so rows shorter than one need no limit.
        return np.asarray(1 / np.linalg.norm(self.X, axis=1).clip(1.0))

    def run_noisy_steps(
        self, setting: Integers, noise: Floats, stride: Floats, steps: int, task: Task
    ) -> tuple[Floats, Floats]:
        """Return where noisy steps lead, one person drawn in each, and their averages on the way.

        One line for each setting, its noise and the length of its first step.
        """
        rng = make_named_generator("users table 2")
        people = self.weights.shape[1]
        picked = self.weights.reshape(-1, len(self.y)) * people
        theta = np.zeros((len(setting), self.X.shape[1]))
        average = np.zeros_like(theta)
        for step in range(1, steps):
            drawn = picked[setting * people + rng.integers(people, size=len(setting))]
            gradient = self.gradient(theta, drawn) + noise[:, None] * rng.standard_normal(
                theta.shape
            )
            theta = np.clip(theta - (stride / math.sqrt(step))[:, None] * gradient, -BOX, BOX)
            average += (theta - average) / step
            if not step % FEW_STEPS:
                task.progress(step / steps)
        return theta, average

    @property
    def diameter(self) -> float:
        """‖C‖ of the box."""
        return 2 * BOX * math.sqrt(self.X.shape[1])


def table_2(task: Task) -> Outcome:
    """Table 2: logistic regression on drug reviews, ratings above their median against the
    others.
    """
    problem, real = find_reviews(task.data)
    descent = make_descent(problem)
    people = descent.weights.shape[1]
    runs = task.choose(*RUNS)
    steps = task.choose(people**2, FEW_STEPS)
    shape = (len(LARGE_EPSILONS), len(descent.weights), runs)
    epsilon, setting, _ = (part.ravel() for part in np.indices(shape))
    noise = _scale_noise(descent, setting, np.array(LARGE_EPSILONS)[epsilon])
    tried = _list_tried(descent, task.choose(*TRIED_RUNS))
    theta, average = descent.run_noisy_steps(
        np.concatenate([setting, tried.setting]),
        np.concatenate([noise, tried.noise]),
        np.concatenate([np.full(len(setting), descent.diameter), tried.stride]),
        steps,
        task,
    )
    found = descent.losses(theta[: len(setting)]).reshape(shape).mean(axis=2)
    others = [theta[len(setting) :], average[len(setting) :]]
    tables = (
        _make_losses_table(found, real),
        _make_tried_table(problem, descent, tried, others, (found, real), task),
    )
    words = [
        f"Ours are means of {runs} runs of {steps:,} steps each; print has 50 runs. Without noise "
        f"the loss is {descent.least_loss:.3f}.",
        "Why steps of this length: users/table-2-law.",
        _describe_chances(),
    ]
    if not real:
        words.insert(0, INVENTED)
    return Outcome(task.name, task.size, tables, (), tuple(words))


def make_descent(problem: LabelProblem, constant: bool = True) -> CellDescent:
    """Return the reviews as cells, ratings above the median as 1, with the nine weights of rows."""
    y = (problem.y > np.median(problem.y)).astype(np.float64)
    X = problem.X if constant else problem.X[:, 1:]
    return CellDescent.of(X, y, problem.owner, make_row_weights(problem.owner))


def _scale_noise(descent: CellDescent, setting: Integers, epsilon: Floats) -> Floats:
    people = descent.weights.shape[1]
    each = np.array([compute_step_noise(promised, people) for promised in epsilon])
    return np.asarray(people * descent.max_person_weights[setting] * each)


@dataclass(frozen=True, eq=False)
class TriedSettings:
    """Lengths of steps that were tried at the smallest ε, several lines each."""

    names: tuple[str, ...]
    shape: tuple[int, int, int]
    setting: Integers
    noise: Floats
    stride: Floats


def _list_tried(descent: CellDescent, runs: int) -> TriedSettings:
    """Return the algorithm's own steps, and steps of half and of a third of the length."""
    names = (OWN, "half of ‖C‖, /√t", "a side of the box, /√t")
    shape = (len(names), len(SHOWN), runs)
    name, place, _ = (part.ravel() for part in np.indices(shape))
    setting = np.array(list(SHOWN.values()))[place]
    noise = _scale_noise(descent, setting, np.full(len(setting), LARGE_EPSILONS[0]))
    own = _compute_own_stride(descent, setting, noise)
    stride = np.choose(
        name, [own, np.full_like(own, descent.diameter / 2), np.full_like(own, 2 * BOX)]
    )
    return TriedSettings(names, shape, setting, noise, stride)


def _compute_own_stride(descent: CellDescent, setting: Integers, noise: Floats) -> Floats:
    """Return ‖C‖/√(m²W² + dσ²), the first step of Algorithm 1 of Bassily, Smith and Thakurta."""
    people = descent.weights.shape[1]
    d = descent.X.shape[1]
    loud = people * descent.max_person_weights[setting]
    return np.asarray(descent.diameter / np.sqrt(loud**2 + d * noise**2))


def _make_tried_table(
    problem: LabelProblem,
    descent: CellDescent,
    tried: TriedSettings,
    ends: list[Floats],
    chosen: tuple[Floats, bool],
    task: Task,
) -> ResultTable:
    """Return losses at the smallest ε by setting: the one of the first table, then the others."""
    found, real = chosen
    lines = [f"{CHOSEN}, the table above"]
    losses = [found[0, list(SHOWN.values())]]
    for what, theta in zip(("last", "average"), ends, strict=True):
        means = descent.losses(theta).reshape(tried.shape).mean(axis=2)
        lines += [f"{name}, {what} step" for name in tried.names]
        losses += list(means)
    lines.append(f"{OWN}, no constant")
    losses.append(_measure_without_constant(problem, task))
    printed = {
        name: read_printed(2, "drugs", method)[place]
        for (name, (method, place)) in zip(
            SHOWN, (("weighted", 0), ("weighted", 3), ("no_bound", 0)), strict=True
        )
    }
    columns = tuple(
        ResultColumn(name, tuple(float(line[place]) for line in losses))
        for place, name in enumerate(SHOWN)
    )
    told = ", ".join(f"{value:g}" for value in printed.values())
    reviews = "" if real else ", invented reviews"
    return ResultTable(
        f"Settings that were tried, ε = {LARGE_EPSILONS[0]:g}{reviews} (print has {told})",
        "steps",
        tuple(lines),
        columns,
    )


def _measure_without_constant(problem: LabelProblem, task: Task) -> Floats:
    descent = make_descent(problem, constant=False)
    people = descent.weights.shape[1]
    runs = task.choose(*TRIED_RUNS)
    setting = np.repeat(list(SHOWN.values()), runs)
    noise = _scale_noise(descent, setting, np.full(len(setting), LARGE_EPSILONS[0]))
    stride = _compute_own_stride(descent, setting, noise)
    steps = task.choose(people**2, FEW_STEPS)
    theta, _ = descent.run_noisy_steps(setting, noise, stride, steps, task)
    return np.asarray(descent.losses(theta).reshape(len(SHOWN), runs).mean(axis=1))


def compute_step_noise(epsilon: float, people: int) -> float:
    """Return the noise of a step over its largest gradient, by Algorithm 1 of Bassily, Smith and
    Thakurta (2014).
    """
    return math.sqrt(NOISE_CONSTANT * math.log(people / DELTA) * math.log(1 / DELTA)) / epsilon


def make_row_weights(owner: Integers) -> list[Floats]:
    """Return the weights of rows by threshold: counted, then kept, and last all alike."""
    sizes = np.bincount(owner)
    order = make_named_generator("users table 2 rows").permutation(len(owner))
    totals = [np.minimum(h, sizes).sum() for h in THRESHOLDS]
    counted = [
        (np.minimum(h, sizes) / sizes / n)[owner] for h, n in zip(THRESHOLDS, totals, strict=True)
    ]
    limits = [np.isin(np.arange(len(owner)), limit_rows(owner, h, order)) for h in THRESHOLDS]
    return [
        *counted,
        *(rows / n for rows, n in zip(limits, totals, strict=True)),
        np.full(len(owner), 1 / len(owner)),
    ]


def _make_losses_table(found: Floats, real: bool) -> ResultTable:
    per = len(THRESHOLDS)
    names = [f"{what}, h = {h}" for what in ("weights", "limit") for h in THRESHOLDS] + ["all rows"]
    places = (
        [("weighted", i) for i in range(per)]
        + [("sample_limit", i) for i in range(per)]
        + [("no_bound", 0)]
    )
    columns = tuple(
        ResultColumn(
            name,
            tuple(found[:, i].tolist()),
            _read_column(method, first) if real else (),
        )
        for i, (name, (method, first)) in enumerate(zip(names, places, strict=True))
    )
    why = (
        "Print does not tell the number of steps, their length or the noise, and averages 50 runs; "
        "ours are the setting that comes nearest (see the table below)."
    )
    labels = tuple(f"{epsilon:g}" for epsilon in LARGE_EPSILONS)
    if real:
        title = "Table 2: mean cross-entropy"
        reasons = tuple(Reason(name, why) for name in names)
    else:
        title = "Table 2 on invented reviews: mean cross-entropy"
        reasons = ()
    return ResultTable(title, "ε", labels, columns, reasons)


def _read_column(method: str, first: int) -> tuple[float, ...]:
    if method == "no_bound":
        return read_printed(2, "drugs", method)
    return read_printed(2, "drugs", method)[first :: len(THRESHOLDS)]


def _describe_chances() -> str:
    pairs = list(
        zip(
            read_printed(2, "drugs", "weighted"),
            read_printed(2, "drugs", "sample_limit"),
            strict=True,
        )
    )
    ahead = sum(weighted < limit for weighted, limit in pairs)
    return (
        f"In print, weights are ahead of the limit at the same h in {ahead} of {len(pairs)} cells."
    )


def table_2_law(task: Task) -> Outcome:
    """What Table 2 tells about its steps: by how much losses fall from ε = 30 to 40 and to 50 where
    everybody weighs the same, which hangs on no data.
    """
    features, people = FACTS["drugs"][1:3]
    lines = {
        f"{CHOSEN}, with a constant": compute_excess(features + 1, people),
        f"{CHOSEN}, no constant": compute_excess(features, people),
        f"half of {CHOSEN}, with a constant": compute_excess(features + 1, people) / 2,
        f"{OWN}, with a constant": compute_excess(features + 1, people, own=True),
        f"{OWN}, no constant": compute_excess(features, people, own=True),
    }
    columns = []
    for method, name in (("weighted", "weights"), ("sample_limit", "limit")):
        losses = _read_column(method, 0)
        for place in (1, 2):
            ours = tuple(float(line[0] - line[place]) for line in lines.values())
            printed = (losses[0] - losses[place], *([None] * (len(lines) - 1)))
            title = f"{name}, ε = 30 to {LARGE_EPSILONS[place]:g}"
            columns.append(ResultColumn(title, ours, printed))
    words = (
        "At h = 1 every person weighs 1/m, so that the noise of a step follows from m, d, ε and δ. "
        "Near the least loss, steps of length s/√t add d·s·σ²/(4√T) to it, T = m². The box, and "
        "the drawing of people, are left out.",
        "So print took steps of length ‖C‖/√t with a constant in the model, for gradients that are "
        "clipped at 1, and did not shorten them for the noise as the algorithm that it names does. "
        "The lines below the first are settings that were tried and are not those of print.",
    )
    table = ResultTable("By how much the loss falls, h = 1", "steps", tuple(lines), tuple(columns))
    return Outcome(task.name, task.size, (table,), (), words)


def compute_excess(d: int, people: int, own: bool = False) -> Floats:
    """Return what the noise adds to the least loss for each ε, everybody weighing the same."""
    noise = np.array([compute_step_noise(epsilon, people) for epsilon in LARGE_EPSILONS])
    first = np.full(len(noise), 2 * BOX * math.sqrt(d))
    if own:
        first /= np.sqrt(1 + d * noise**2)
    return np.asarray(d * first * noise**2 / (4 * people))
