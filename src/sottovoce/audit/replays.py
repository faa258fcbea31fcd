# SPDX-License-Identifier: Apache-2.0
"""From a release and its rows to the losses of each of its stages: columns, tables of sums, labels
and gradient descent. Models with noise in their objective are in model_replays.py, tables by groups
in table_replays.py, and quantiles in rank_replays.py and joint_replays.py.

A replay finds again what the mechanism saw, and asks for each stage how likely what was released
is with everybody and without a unit, everything public unchanged. Taken out means:

    question          a row that is taken out
    mean              counts as the middle of the bounds
    quantile          has no rank: its weight is in no cell
    table by groups   has its weight spread evenly over all slots
    sums of products  has the middle of all bounds, so that it adds nothing
    adaptive sums     has the middle of all bounds
    labels            its label counts as the middle of the bounds
    gradient descent  has no gradient

The registry names the replay of a question (Question.replay). One for a table of sums with
independent noise on whole numbers needs ``replay_table`` alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sottovoce.accounting.profiles import gaussian_epsilon
from sottovoce.arrays import Array, Floats, Integers
from sottovoce.audit import laws
from sottovoce.audit.laws import AuditUnits, NoisySums
from sottovoce.data.encoding import round_to_grid
from sottovoce.data.engine import Dataset, as_array, as_floats
from sottovoce.data.kernels import WeightedSquares, WeightedSum, fill_missing
from sottovoce.data.regression_kernels import UNIT, RowMap, sum_products, to_whole_numbers
from sottovoce.estimators import label_private, ridge_adassp
from sottovoce.estimators.erm import ERMSettings
from sottovoce.estimators.erm_mechanism import CONSTANT, SubsampledAccountant
from sottovoce.estimators.mean import ANSWER_BITS, move_plan
from sottovoce.estimators.mean_window import WindowPurchase
from sottovoce.noise.source import exponent_below, power_of_two
from sottovoce.plan import Plan
from sottovoce.release import Release
from sottovoce.solvers import losses


class StageLoss(NamedTuple):
    """One stage: what it released in words, and what each unit lost to it.

    ``exact``: the log-ratio itself, with its sign. Otherwise the number is a bound on its size.
    """

    name: str
    exact: bool
    compute: Callable[[AuditUnits], Floats]


@dataclass(frozen=True, eq=False)
class Replayed:
    """A release, the plan that it was made under, and its rows as the mechanism read them."""

    release: Release
    model: Any
    plan: Plan
    rows: Dataset
    kinds: Integers  # of each row's person
    delta: float

    def fold(self, collect: Callable[[Any], tuple[Array, ...]], columns: tuple[str, ...]) -> Any:
        """Return arrays of all rows, from what is collected of each batch."""
        parts = self.rows.engine.fold(BatchCollector(collect, columns))
        return tuple(np.concatenate(part) for part in zip(*parts, strict=True))


@dataclass(frozen=True)
class ReplayMethod:
    """How the stages of a question are found again; the registry names it.

    ``prepare`` makes the estimator that rows are read and planned with from a release and what
    ``sv.load`` makes of it; ``sorted``: its rows in memory lie together by person.
    """

    stages: Callable[[Replayed], list[StageLoss]]
    prepare: Callable[[Release, Any], Any] | None = None
    sorted: bool = False


@dataclass(frozen=True, eq=False)
class BatchCollector:
    """The kernel that hands over what is collected of each batch, in the order of rows."""

    collect: Callable[[Any], tuple[Array, ...]]
    columns: tuple[str, ...]

    def zero(self) -> list[Any]:
        """No rows."""
        return []

    def __call__(self, batch: Any) -> list[Any]:
        """Returns the arrays of this batch."""
        return [self.collect(batch)]


def replay_mean(made: Replayed) -> list[StageLoss]:
    """Return the stages of a mean: its window, the mean itself, and what was bought for its
    interval.
    """
    plan = made.plan
    if isinstance(plan.bought, WindowPurchase):
        published: dict[str, Any] = made.release.bought  # type: ignore[assignment]
        window = plan.bought.place(int(published["choice"]))
        inside = replace(made, plan=move_plan(plan, window))
        return [_replay_window(made, plan.bought, window.which), *replay_mean(inside)]
    stages = [_replay_sum(made, plan, float(made.release.value), "mean")]  # type: ignore[arg-type]
    if plan.bought is not None:
        stages.append(_replay_second_moment(made))
    return stages


def _replay_window(made: Replayed, bought: WindowPurchase, which: int) -> StageLoss:
    cells, weight = read_cells(made, bought.grid, bought.weights.row)
    first, last = bought.cores
    full = bought.score(bought.count(made.rows, made.plan.parameters["missing"]))

    def compute(units: AuditUnits) -> Floats:
        some, inverse, few = units.distinguish(cells, made.kinds)
        own = cells[some][:, None]
        outside = weight[some][:, None] * ((own < first) | (own > last))
        found = laws.compute_choice_loss(full, full - few.add(outside), which, bought.scale)
        return np.asarray(found[inverse])

    return StageLoss("window", True, compute)


def _read_column(made: Replayed) -> Floats:
    rows = made.rows
    (values,) = made.fold(lambda batch: (as_floats(batch.column(rows.value)),), (rows.value,))
    return np.asarray(values, dtype=np.float64)


def read_cells(made: Replayed, grid: Any, weights: NDArray[np.int64]) -> tuple[Integers, Integers]:
    """Returns the whole number of each row, and its weight; rows that take no part are not read."""
    values = _read_column(made)
    weight = weights[made.kinds]
    values = np.where(weight > 0, values, grid.low)
    cells = grid.integers(fill_missing(values, made.plan.parameters["missing"]))
    return cells.astype(np.int64), weight


def _replay_sum(made: Replayed, plan: Plan, value: float, name: str) -> StageLoss:
    grid = plan.grid
    rows = made.rows
    cells, weight = read_cells(made, grid.values, plan.weights.row)
    kernel = WeightedSum(
        rows.value, grid.values, rows.owner, plan.weights.row, plan.parameters["missing"]
    )
    total = rows.engine.fold(kernel)
    moved = weight * (cells - grid.values.cells // 2) * 2.0**-grid.shift
    law = _find_mean_interval(plan, value, total)

    def compute(units: AuditUnits) -> Floats:
        return laws.compute_interval_loss(
            *law, 0.0, units.add(moved.astype(np.float64)), plan.noise["integer_scale"]
        )

    return StageLoss(name, True, compute)


def _find_mean_interval(plan: Any, value: float, total: int) -> tuple[float, float]:
    """Returns which noisy sums are published as this mean, counted from the exact one."""
    grid = plan.grid
    unit = Fraction(grid.values.step, plan.weights.total)
    middle = Fraction(2**grid.shift - 1, 2)
    low = Fraction(grid.values.low)
    step = power_of_two(grid.answer_exponent)
    base = total >> grid.shift
    place = round(Fraction(value) / step)
    first, last = laws.find_interval(
        Fraction(value), step, lambda n: low + ((n << grid.shift) + middle) * unit, base
    )
    return (
        _open_end(place <= math.ceil(low / step), first - base, -math.inf),
        _open_end(place >= math.floor(Fraction(grid.values.high) / step), last - base, math.inf),
    )


def _open_end(clipped: bool, end: int, infinite: float) -> float:
    """What is published at an end of the bounds stands for everything beyond it."""
    if clipped:
        return infinite
    return float(end)


def _replay_second_moment(made: Replayed) -> StageLoss:
    bought = made.plan.bought
    rows = made.rows
    cells, weight = read_cells(made, bought.grid, bought.weights.row)
    kernel = WeightedSquares(
        rows.value, bought.grid, rows.owner, bought.weights.row, made.plan.parameters["missing"]
    )
    total = rows.engine.fold(kernel)
    base = total >> bought.shift
    N = bought.grid.cells
    square = (2.0 * cells - N) ** 2 - (2 * (N // 2) - N) ** 2
    moved = weight * square * 2.0**-bought.shift
    published: dict[str, Any] = made.release.bought  # type: ignore[assignment]
    value = Fraction(published["second_moment"])
    step = power_of_two(min(exponent_below(bought.scale * 2.0**-ANSWER_BITS), 0))
    middle = Fraction(2**bought.shift - 1, 2)
    first, last = laws.find_interval(
        value, step, lambda n: ((n << bought.shift) + middle) * bought.unit, base
    )
    law = (
        _open_end(value <= 0, first - base, -math.inf),
        _open_end(value >= 1, last - base, math.inf),
    )

    def compute(units: AuditUnits) -> Floats:
        return laws.compute_interval_loss(*law, 0.0, units.add(moved), bought.integer_scale)

    return StageLoss("spread, for the interval", True, compute)


def make_bound(by_row: Floats) -> Callable[[AuditUnits], Floats]:
    """What units are charged at most, from what each of their rows is."""

    def compute(units: AuditUnits) -> Floats:
        if units.single:
            return by_row
        largest = np.zeros(units.count)
        np.maximum.at(largest, units.codes, by_row)
        return largest

    return compute


def replay_table(
    table: NoisySums, moved: Floats, delta: float, name: str = "table of sums"
) -> list[StageLoss]:
    """Return the one stage of a table of sums with independent noise on each entry.

    Parameters
    ----------
    table :
        what was published, what it was without noise, and the noise.
    moved :
        what each row adds to the entries beyond a row that is taken out, (rows, entries), in the
        noise's whole numbers.
    delta :
        at which Gaussian noise is told.
    name :
        of the stage.
    """

    def compute(units: AuditUnits) -> Floats:
        if table.law == "gaussian":
            return gaussian_epsilon(table.measure_distances(units.add(moved)), delta)
        return table.compute_losses(units.add(moved))

    return [StageLoss(name, table.law != "gaussian", compute)]


def replay_statistics(made: Replayed) -> list[StageLoss]:
    """Return the stage of noisy sums of products."""
    plan = made.plan
    rows = made.rows
    value: dict[str, Any] = made.release.value  # type: ignore[assignment]
    noisy = np.array(value["statistics"], dtype=np.float64)
    d = len(noisy)
    shift = plan.noise["shift"]
    unit = 2.0**shift / plan.weights.total / UNIT**2
    upper = np.triu_indices(d)
    kept = (upper[0] > 0) | (upper[1] > 0)
    j, k = upper[0][kept], upper[1][kept]
    sums = sum_products(rows, plan.weights)
    exact = np.array([int(one) >> shift for one in sums[j, k]], dtype=np.float64)
    offset = 0.5 if shift else 0.0
    published = np.rint(noisy[j, k] / unit - offset)
    columns = tuple(dict.fromkeys((rows.label.column, *rows.features.columns)))
    Z, y = made.fold(lambda batch: (rows.features.matrix(batch), rows.label.values(batch)), columns)
    weight = plan.weights.row[made.kinds]
    z = to_whole_numbers(Z, y)
    z[weight == 0] = 0.0
    scale = plan.noise["integer_scale"]
    if plan.parameters["rho"]:
        own = math.ceil(scale * math.sqrt(2 / (d + 2)))
        table = NoisySums(published, exact, np.where(j == k, float(own), scale), "gaussian")
    else:
        table = NoisySums(published, exact, np.where(j == k, 2 * scale, scale))
    moved = z[:, j] * z[:, k] * (weight * 2.0**-shift)[:, None]
    middle = np.zeros(d)
    middle[0] = UNIT
    moved -= (middle[j] * middle[k]) * (weight * 2.0**-shift)[:, None]
    return replay_table(table, moved, made.delta, "sums of products")


def replay_adaptive_sums(made: Replayed) -> list[StageLoss]:
    """Return the one loss of all stages of a regression from adaptive sums, at the audit's δ.

    The maps of rows follow from what was released. Noise is Gaussian in every stage: distances, in
    deviations, add up by their squares (docs/theory/adassp.md).
    """
    plan = made.plan
    rows = made.rows
    columns = tuple(dict.fromkeys((rows.label.column, *rows.features.columns)))
    Z, y = made.fold(lambda batch: (rows.features.matrix(batch), rows.label.values(batch)), columns)
    weight = plan.weights.row[made.kinds].astype(np.float64)
    Z = np.where(weight[:, None] > 0, Z, 0.0)
    y = np.where(weight > 0, y, 0.0)
    maps, _ = ridge_adassp.replay_stages(made.release)
    stages = plan.noise["stages"]

    def compute(units: AuditUnits) -> Floats:
        squares = np.zeros(units.count)
        for place, (row_map, stage) in enumerate(zip(maps, stages, strict=True)):
            moved = measure_moves(place, row_map, stage["integer_scale"], Z, y)
            together = units.add(moved * (weight * 2.0 ** -stage["shift"])[:, None])
            squares += np.sum(together**2, axis=1)
        return gaussian_epsilon(np.sqrt(squares), made.delta)

    return [StageLoss("margins, moments and rounds of residuals", False, compute)]


def measure_moves(place: int, row_map: RowMap, scale: float, Z: Floats, y: Floats) -> Floats:
    """Returns what each row adds beyond one in the middle, in deviations of each entry's noise."""
    whole = row_map.to_whole_numbers(Z, y)
    middle = row_map.to_whole_numbers(np.zeros((1, Z.shape[1])), np.zeros(1))
    if place == 1:
        j, k = np.triu_indices(whole.shape[1])
        moved = whole[:, j] * whole[:, k] - middle[:, j] * middle[:, k]
        scales = np.where(j == k, ridge_adassp.scale_moment_squares(scale), scale)
        return np.asarray(moved / scales)
    scales = np.full(whole.shape[1], scale)
    if place == 0:
        scales[len(scales) // 2 :] = ridge_adassp.scale_margin_squares(scale)
    return np.asarray((whole - middle) / scales)


def replay_labels(made: Replayed) -> list[StageLoss]:
    """Return the stages of a regression whose labels alone are private."""
    plan = made.plan
    rows = made.rows
    grid = plan.grid
    labels, place = made.fold(
        lambda batch: (
            as_floats(batch.column(rows.value)),
            as_array(batch.column(label_private.ROW)),
        ),
        (rows.value, label_private.ROW),
    )
    K = grid.map[:, place]
    z = grid.values.integers(np.where(K.any(axis=0), labels, grid.values.low))
    moved = (K * (z - grid.values.cells // 2)).T * 2.0**-grid.shift
    statistic = rows.engine.fold(label_private.MapSums(rows.value, label_private.ROW, grid))
    unit = power_of_two(grid.map_exponent)
    step = power_of_two(grid.answer_exponent)
    middle = Fraction(2**grid.shift - 1, 2)
    lows = label_private.multiply_exactly(grid.map, np.ones(grid.map.shape[1]))
    value: dict[str, Any] = made.release.value  # type: ignore[assignment]
    intervals = []
    answers = label_private._list_all(plan.parameters, value)
    for low, S, answer in zip(lows, statistic, answers, strict=True):
        base = int(S) >> grid.shift
        start = low * Fraction(grid.values.low)

        def to_number(n: int, start: Fraction = start) -> Fraction:
            return Fraction(unit * (start + ((n << grid.shift) + middle) * grid.values.step))

        first, last = laws.find_interval(Fraction(answer), step, to_number, base)
        intervals.append((float(first - base), float(last - base)))
    scale = plan.noise["integer_scale"]

    def compute(units: AuditUnits) -> Floats:
        together = units.add(moved)
        parts = [
            laws.compute_interval_loss(first, last, 0.0, together[:, at], scale)
            for at, (first, last) in enumerate(intervals)
        ]
        return np.asarray(np.sum(parts, axis=0))

    stages = [StageLoss("coefficients", True, compute)]
    if plan.bought is not None:
        stages.append(_replay_variance(made, labels, place, answers))
    return stages


def _replay_variance(
    made: Replayed, labels: Floats, place: Integers, answers: list[float]
) -> StageLoss:
    plan = made.plan
    bought: Any = plan.bought
    rows = made.rows
    fitted = rows.features.rows @ np.array(answers)
    low, high = rows.label.low, rows.label.high
    weight = bought.weights.row[made.kinds]
    apart = np.clip(np.where(weight > 0, labels, low), low, high) - np.clip(
        fitted[place], low, high
    )
    middle = (low + high) / 2 - np.clip(fitted[place], low, high)
    z, at_middle = (bought.grid.values.integers(one**2) for one in (apart, middle))
    kernel = label_private.ResidualSquares(
        rows.value, label_private.ROW, rows.owner, bought, rows.label, fitted
    )
    total = rows.engine.fold(kernel)
    published: dict[str, Any] = made.release.bought  # type: ignore[assignment]
    law = _find_mean_interval(bought, float(published["variance"]), total)
    moved = weight * (z - at_middle) * 2.0**-bought.grid.shift

    def compute(units: AuditUnits) -> Floats:
        return laws.compute_interval_loss(
            *law, 0.0, units.add(moved), bought.noise["integer_scale"]
        )

    return StageLoss("variance of labels, for intervals", True, compute)


def replay_descent(made: Replayed) -> list[StageLoss]:
    """Return the stage of noisy gradient descent: a bound at δ for whatever way it went, from how
    far a person's own rows can pull.
    """
    plan = made.plan
    rows = made.rows
    given = plan.parameters
    columns = tuple(dict.fromkeys((rows.label.column, *rows.features.columns)))
    (Z,) = made.fold(lambda batch: (rows.features.matrix(batch),), columns)
    weight = plan.weights.row[made.kinds]
    Z = np.where(weight[:, None] > 0, round_to_grid(Z), 0.0)
    constant = given.get("constant", CONSTANT)
    norm = np.sqrt(np.square(Z).sum(axis=1) + constant**2)
    reach = norm
    if given["constraint"] == "box":
        reach = np.abs(Z).sum(axis=1) + constant
    slope = bound_slope(losses.get_loss(made.model.loss), given["radius"] * reach)
    pull = np.ones(len(norm))
    if slope is not None:
        pull = np.minimum(slope * norm / given["clip"], 1.0)
    account = ERMSettings.of(made.model, rows.features.width).account
    share = plan.weights.person[made.kinds] / plan.noise["integer_scale"]

    def compute(units: AuditUnits) -> Floats:
        # A person's gradient is the mean over their rows; a row of several has its part of it.
        own = units.add(share * pull / plan.budgets.kinds.rows[made.kinds])
        if isinstance(account, SubsampledAccountant):
            return account.account.epsilon_of(own)
        return gaussian_epsilon(own * math.sqrt(given["steps"]), made.delta)

    return [StageLoss("all steps", False, compute)]


def bound_slope(loss: Any, reach: Floats) -> Any:
    """Returns the most that |ℓ'| can be for predictions within ±reach; None where it is not
    known.
    """
    if isinstance(loss, losses.LogisticLoss | losses.HingeLoss):
        return 1.0
    if isinstance(loss, losses.HuberLoss):
        return np.minimum(loss.threshold, reach + 1)
    if isinstance(loss, losses.SquaredLoss):
        return reach + 1
    return None


MEAN = ReplayMethod(replay_mean)
LABELS = ReplayMethod(replay_labels)
DESCENT = ReplayMethod(replay_descent, sorted=True)
