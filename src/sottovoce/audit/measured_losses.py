# SPDX-License-Identifier: Apache-2.0
"""What a person loses, measured: a lower bound on their ε from running the whole mechanism on two
tables (docs/theory/per-instance.md, section on measured losses).

Whatever event E is named before the answers are seen, log(P[E]/P'[E]) is at most the person's ε,
and Clopper and Pearson's limits of both probabilities bound it from below. The event is chosen on
earlier answers and tried on fresh ones; every look has its own share of what the confidence leaves,
so the largest bound of all looks holds too. A bound above the charge is a violation.

    look   trained on    tried on     share of 1 − confidence
    1      a pilot       as many      ½
    2      all so far    as many      1/6
    j      all so far    as many      1/(j(j+1))
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv

from sottovoce.arrays import (
    ColumnLike,
    Floats,
    count_rows,
    get_named_column,
    list_feature_names,
    to_doubles,
    to_matrix,
)
from sottovoce.audit.confidential import STAMP, ConfidentialObject
from sottovoce.budgets import BudgetLike
from sottovoce.data.encoding import make_recoding
from sottovoce.data.engine import Dataset
from sottovoce.data.source import DataSource
from sottovoce.errors import InvalidParameter
from sottovoce.estimator import (
    Estimator,
    NoCharge,
    get_budgets,
    make_release,
    plan_dataset,
    read_source,
)
from sottovoce.plan import Plan
from sottovoce.release import Release
from sottovoce.schema import Bounds, Classes, Schema, is_between, to_interval

#: Answers of each table, if nothing else is wanted: enough to catch half the noise at ε = 1.
RUNS = 4000
#: Answers of each table in the first look.
PILOT = 250
CONFIDENCE = 0.999
#: Thresholds that are tried for each score, and coordinates that are scored one by one.
THRESHOLDS = 33
MOST_COORDINATES = 24


class MeasuredLoss(ConfidentialObject):
    """A lower bound on one person's ε, from answers of the mechanism. Confidential."""

    def __init__(
        self,
        epsilon: float,
        claimed: float,
        runs: int,
        confidence: float,
        delta: float,
        event: str,
    ) -> None:
        super().__init__()
        self.epsilon = epsilon
        self.claimed = claimed
        self.runs = runs
        self.confidence = confidence
        self.delta = delta
        self.event = event

    def __repr__(self) -> str:
        return f"<MeasuredLoss from {self.runs} runs: {STAMP}>"

    __str__ = __repr__

    @property
    def is_violation(self) -> bool:
        """Whether the person certainly loses more than they are charged."""
        return self.epsilon > self.claimed

    def explain(self) -> str:
        """Return what was measured in plain words.

        Returns
        -------
        str
            A few sentences, confidential.
        """
        lines = [
            STAMP,
            f"This person's ε is at least {self.epsilon:.3g}: measured from {self.runs:,} answers "
            f"for each of two tables that differ in their rows alone, wrong with probability "
            f"{1 - self.confidence:.2g} at most.",
            f"They are charged ε = {self.claimed:.3g}.",
        ]
        if self.is_violation:
            lines.append(
                "The mechanism does not keep its promise: more is lost than is charged. Do not "
                "release with it, and report it."
            )
        else:
            lines.append(
                "No violation was found. That is no proof: another table, another event, or more "
                "runs might show more."
            )
        lines.append(f"What told the tables apart best: {self.event}.")
        return "\n".join(lines)


class NeighbourPair(NamedTuple):
    """Two tables that differ in the rows of one person."""

    first: tuple[Any, ...]
    second: tuple[Any, ...]
    words: str


def empirical(
    est: Any,
    data: Any,
    neighbour: Any = None,
    *,
    epsilon: BudgetLike | None = None,
    groups: ColumnLike | None = None,
    person: Any = None,
    runs: int = RUNS,
    confidence: float = CONFIDENCE,
    delta: float = 0.0,
    watch: Callable[[int, int], Any] | None = None,
    stop: bool = True,
) -> MeasuredLoss:
    """Return a lower bound on one person's ε from running an estimator on two tables.

    The answers are used here and nowhere else: nobody is charged, and none of them leaves.

    Parameters
    ----------
    est :
        An estimator, fitted or not.
    data :
        The table: a column, the pair (X, y), or, for groups, covariances and reports, a table with
        names, alone or in a pair with the name of its column.
    neighbour :
        The same with the rows of one person replaced; without it, rows at the ends of the bounds,
        or in other groups, are tried, and the pair that a few runs tell apart best is measured.
    epsilon :
        Budgets, as for fit.
    groups :
        Owners of rows, as for fit.
    person :
        Who it is: a row number, or a name with ``groups``. Not needed with ``neighbour``.
    runs : int
        Answers of each table, at most.
    confidence : float
        With which the bound holds.
    delta : float
        δ of the promise, where it has one.
    watch :
        Is told how many answers of how many there are.
    stop : bool
        Whether to stop as soon as the bound is above the charge.

    Returns
    -------
    MeasuredLoss
        The bound, beside the charge; confidential.

    Raises
    ------
    InvalidParameter
        The tables, the person or a number cannot be used.
    """
    _refuse_numbers(runs, confidence, delta)
    table = _to_tuple(data)
    runner = _Runner(est, epsilon, groups)
    if neighbour is not None:
        other = _to_tuple(neighbour)
        who = _find_difference(table, other, groups)
        pairs = [NeighbourPair(table, other, "the two tables that were given")]
    else:
        who = _find_rows(table, groups, 0 if person is None and groups is None else person)
        if is_named_table(est, table):
            pairs = list(list_table_canaries(runner.read(table), table, who))
        else:
            pairs = list(list_canaries(est, table, who, runner.has_public_features(table)))
    claimed = runner.charge(pairs[0].first, int(who[0]))
    chosen = _choose_pair(runner, pairs)
    return _measure(runner, chosen, claimed, _Settings(runs, confidence, delta, stop), watch)


class _Settings(NamedTuple):
    runs: int
    confidence: float
    delta: float
    stop: bool


def is_named_table(est: Any, table: tuple[Any, ...]) -> bool:
    """Whether a question finds its columns in a table by their names."""
    whole = getattr(est, "reads_cells", False) or getattr(est, "one_table", False)
    return bool(whole) and list_feature_names(table[0]) is not None


def _refuse_numbers(runs: Any, confidence: Any, delta: Any) -> None:
    if not (isinstance(runs, int | np.integer) and runs >= 2 * PILOT):
        raise InvalidParameter(
            f"runs is not a whole number from {2 * PILOT} on.",
            "Events are chosen on one part of the answers and tried on another.",
            f"Pass runs={RUNS}.",
            parameter="runs",
        )
    if not is_between(confidence, 0, 1):
        raise InvalidParameter(
            "The confidence is not between 0 and 1.",
            "",
            "Pass confidence=0.999.",
            parameter="confidence",
        )
    if not (isinstance(delta, int | float) and 0 <= delta < 1):
        raise InvalidParameter(
            "δ is not from 0 to below 1.", "", "Pass that of the promise.", parameter="delta"
        )


def _to_tuple(data: Any) -> tuple[Any, ...]:
    if isinstance(data, tuple):
        return data
    return (data,)


@dataclass(frozen=True, eq=False)
class _Runner:
    """The mechanism with its budgets: it reads a table once and answers many times."""

    est: Any
    epsilon: Any
    groups: Any

    def read(self, table: tuple[Any, ...]) -> Dataset:
        granted = self.epsilon
        if granted is None:
            granted = getattr(self.est, "epsilon", None)
        (X, y) = table if len(table) > 1 else (table[0], None)
        return read_source(self.est, DataSource.of(self.est, X, y, granted, self.groups))

    def has_public_features(self, table: tuple[Any, ...]) -> bool:
        """Whether the promise is about labels alone."""
        return plan_dataset(self.est, self.read(table)).guarantee.neighbours == "replace labels"

    def charge(self, table: tuple[Any, ...], row: int) -> float:
        """What the owner of this row is charged."""
        rows = self.read(table)
        plan = plan_dataset(self.est, rows)
        budgets = get_budgets(rows)
        promised = plan.guarantee.epsilon
        if budgets.codes is None:  # equal budgets are kept once
            return float(promised.max())
        person = row if budgets.owner is None else int(budgets.owner[row])
        return float(promised[person])

    def draw(self, rows: Dataset, size: int) -> Floats:
        """Returns the numbers of so many releases, a line each."""
        payer = PlannedOnce(plan_dataset(self.est, rows))
        lines = [read_numbers(make_release(self.est, rows, payer=payer)[1]) for _ in range(size)]
        width = min(len(line) for line in lines)
        return np.array([line[:width] for line in lines])


class PlannedOnce(NoCharge):
    """The payer of many releases under one plan: a plan follows from public facts alone, so that
    it would be the same each time.
    """

    def __init__(self, plan: Plan) -> None:
        self._plan = plan

    def plan(self, estimator: Estimator, dataset: Dataset) -> tuple[Plan, Dataset]:
        """Returns the plan."""
        return self._plan, dataset


def read_numbers(release: Release) -> list[float]:
    """Return all numbers that a release publishes as its answer."""
    found: list[float] = []
    _collect_numbers(release.value, found)
    _collect_numbers(release.bought, found)
    return found


def _collect_numbers(part: Any, found: list[float]) -> None:
    if isinstance(part, dict):
        for one in part.values():
            _collect_numbers(one, found)
    elif isinstance(part, list | tuple):
        for one in part:
            _collect_numbers(one, found)
    elif part is None:  # too few to say: the numbers behind it keep their places
        found.append(0.0)
    elif isinstance(part, int | float) and not isinstance(part, bool):
        found.append(float(part))


def _choose_pair(runner: _Runner, pairs: Sequence[NeighbourPair]) -> NeighbourPair:
    """Returns the pair that a few runs tell apart best."""
    if len(pairs) == 1:
        return pairs[0]
    tried = []
    for pair in pairs:
        first, second = (runner.draw(runner.read(table), PILOT) for table in pair[:2])
        event = choose_event(*_align(first, second), 0.05, 0.0)
        tried.append(event.bound)
    return pairs[int(np.argmax(tried))]


def _align(first: Floats, second: Floats) -> tuple[Floats, Floats]:
    """Releases may hold more or fewer numbers: only those that all have are compared."""
    width = min(first.shape[1], second.shape[1])
    return first[:, :width], second[:, :width]


class Event(NamedTuple):
    """Answers whose score is at least a threshold (side 1), or at most (side −1)."""

    score: Callable[[Floats], Floats]
    threshold: float
    side: int
    swapped: bool
    bound: float
    words: str

    def count(self, answers: Floats) -> int:
        """How many answers are in it."""
        return int((self.side * self.score(answers) >= self.side * self.threshold).sum())


def _measure(
    runner: _Runner,
    pair: NeighbourPair,
    claimed: float,
    given: _Settings,
    watch: Callable[[int, int], Any] | None,
) -> MeasuredLoss:
    tables = [runner.read(table) for table in pair[:2]]
    answers = [runner.draw(rows, PILOT) for rows in tables]
    done = PILOT
    best = 0.0
    words = "nothing"
    look = 0
    while 2 * done <= given.runs or look == 0:
        look += 1
        failure = (1 - given.confidence) / (look * (look + 1))
        trained = _align(*answers)
        event = choose_event(*trained, failure, given.delta)
        fresh = [runner.draw(rows, done) for rows in tables]
        first, second = (_widen(answer, trained[0].shape[1]) for answer in fresh)
        if event.swapped:
            first, second = second, first
        found = bound_loss(
            event.count(first), len(first), event.count(second), len(second), failure, given.delta
        )
        if found > best:
            best = found
            words = f"{event.words}, of {pair.words}"
        answers = [_stack(old, new) for old, new in zip(answers, fresh, strict=True)]
        done *= 2
        if watch is not None:
            watch(min(done, given.runs), given.runs)
        if given.stop and best > claimed:
            break
    return MeasuredLoss(best, claimed, done, given.confidence, given.delta, words)


def _widen(answers: Floats, width: int) -> Floats:
    """Answers with at least so many numbers, so that an event can be looked for; 0 where there is
    none.
    """
    return np.pad(answers, ((0, 0), (0, max(width - answers.shape[1], 0))))


def _stack(old: Floats, new: Floats) -> Floats:
    width = min(old.shape[1], new.shape[1])
    return np.concatenate([old[:, :width], new[:, :width]])


def bound_loss(hits: int, n: int, others: int, m: int, failure: float, delta: float) -> float:
    """Return a number that log((P[E] − δ)/P'[E]) exceeds but with this probability.

    Parameters
    ----------
    hits, n :
        answers in the event, and answers, of the one table.
    others, m :
        the same of the other.
    failure :
        the probability with which either limit may be wrong, half each.
    delta :
        δ of the promise.
    """
    low = float(betaincinv(hits, n - hits + 1, failure / 2)) if hits else 0.0
    high = float(betaincinv(others + 1, m - others, 1 - failure / 2)) if others < m else 1.0
    if low <= delta:
        return 0.0
    return max(math.log((low - delta) / high), 0.0)


def choose_event(first: Floats, second: Floats, failure: float, delta: float) -> Event:
    """Return the event that tells two sets of answers apart best, by the bound it would give."""
    best = Event(lambda answers: np.zeros(len(answers)), 0.0, 1, False, -1.0, "nothing")
    for score, words in _list_scores(first, second):
        one, two = score(first), score(second)
        levels = np.unique(np.quantile(np.r_[one, two], np.linspace(0.01, 0.99, THRESHOLDS)))
        for threshold in levels:
            for side in (1, -1):
                hits, others = (int((side * x >= side * threshold).sum()) for x in (one, two))
                for swapped, counts in ((False, (hits, others)), (True, (others, hits))):
                    bound = bound_loss(counts[0], len(one), counts[1], len(two), failure, delta)
                    if bound > best.bound:
                        best = Event(score, float(threshold), side, swapped, bound, words)
    return best


def _list_scores(first: Floats, second: Floats) -> Iterator[tuple[Callable[[Floats], Floats], str]]:
    """Yields functions of an answer: the coordinates that differ most, how far they lie from the
    middle, and the linear function that tells both sets apart best.
    """
    middle = (first.mean(axis=0) + second.mean(axis=0)) / 2
    spread = np.concatenate([first, second]).std(axis=0)
    usable = np.flatnonzero(spread > 0)
    if not len(usable):
        return
    apart = np.abs(first.mean(axis=0) - second.mean(axis=0))[usable] / spread[usable]
    for j in usable[np.argsort(-apart)][:MOST_COORDINATES].tolist():
        yield partial(_take_number, j, None), f"number {j + 1} of the answer"
        yield (
            partial(_take_number, j, float(middle[j])),
            f"how far number {j + 1} of the answer lies from its middle",
        )
    units = spread[usable]
    pooled = [(part[:, usable] - part[:, usable].mean(axis=0)) / units for part in (first, second)]
    covariance = sum(part.T @ part for part in pooled) / (len(first) + len(second))
    shift = (first.mean(axis=0) - second.mean(axis=0))[usable] / units
    weights = np.linalg.solve(covariance + 1e-3 * np.eye(len(usable)), shift) / units
    yield (lambda answers: answers[:, usable] @ weights), "a linear function of the answer"


def _take_number(j: int, middle: float | None, answers: Floats) -> Floats:
    """One number of each answer, or how far it lies from a middle."""
    if middle is None:
        return answers[:, j]
    return np.abs(answers[:, j] - middle)


def _find_rows(table: tuple[Any, ...], groups: Any, person: Any) -> NDArray[np.int64]:
    """Returns which rows are the person's."""
    count = count_rows(table[0], "data")
    if groups is not None:
        owners = np.asarray(groups).astype(str)
        rows = np.flatnonzero(owners == str(person))
    elif isinstance(person, int | np.integer) and -count <= person < count:
        rows = np.array([int(person) % count])
    else:
        rows = np.empty(0, dtype=np.int64)
    if not len(rows):
        raise InvalidParameter(
            "This person is not in the table.",
            "A person is a row number, or a name among the owners of rows.",
            "Pass person= as one of them.",
            parameter="person",
        )
    return rows


def _find_difference(
    first: tuple[Any, ...], second: tuple[Any, ...], groups: Any
) -> NDArray[np.int64]:
    """Returns the rows in which two tables differ; they must be one person's."""
    changed: Any = False
    for one, two in zip(first, second, strict=False):
        if isinstance(one, str) or isinstance(two, str):  # the name of a column
            continue
        a, b = _to_text(one), _to_text(two)
        if a.shape != b.shape:
            raise InvalidParameter(
                "The two tables have not the same rows and columns.",
                "Neighbours by replacement differ in the rows of one person.",
                "Replace values, and leave rows where they are.",
                parameter="neighbour",
            )
        changed = changed | (a != b).any(axis=1)
    rows = np.flatnonzero(changed)
    owners = rows if groups is None else np.unique(np.asarray(groups)[rows])
    if len(owners) != 1:
        raise InvalidParameter(
            "The two tables do not differ in the rows of exactly one person.",
            "What is measured is what one person loses.",
            "Change the rows of one person.",
            parameter="neighbour",
        )
    return rows


def _to_text(part: Any) -> NDArray[Any]:
    """A table as text, a line a row, so that any two can be compared."""
    if hasattr(part, "column_names"):
        columns = [np.asarray(part[name].to_pylist(), dtype=str) for name in part.column_names]
        return np.column_stack(columns)
    array = np.asarray(part).astype(str)
    return array.reshape(len(array), -1)


def list_canaries(
    est: Any, table: tuple[Any, ...], rows: NDArray[np.int64], public_features: bool = False
) -> Iterator[NeighbourPair]:
    """Yield pairs of tables in which a person's rows lie at opposite ends of the bounds; where
    features are public, which a promise about labels does not exchange, their labels alone do.
    """
    bounds = getattr(est, "bounds", None)
    if bounds is None:
        bounds = getattr(est, "label_bounds", None)
    if len(table) == 1:
        low, high = to_interval(bounds)
        yield NeighbourPair(
            (_put(table[0], rows, low),), (_put(table[0], rows, high),), "the ends of the bounds"
        )
        return
    X, y = table
    labels = _list_labels(est, bounds)
    if public_features:
        first, last = (_put(y, rows, label) for label in (labels[0], labels[-1]))
        yield NeighbourPair((X, first), (X, last), "opposite labels")
        return
    corners = [_set_features(X, rows, bounds, low) for low in (True, False)]
    first, last = (_put(y, rows, label) for label in (labels[0], labels[-1]))
    yield NeighbourPair((corners[1], first), (corners[1], last), "opposite labels at one corner")
    yield NeighbourPair((corners[1], last), (corners[0], last), "opposite corners with one label")
    yield NeighbourPair((corners[1], first), (corners[0], last), "opposite corners and labels")
    yield NeighbourPair((X, y), (corners[1], last), "their own rows and a corner")


def list_table_canaries(
    rows: Dataset, table: tuple[Any, ...], who: NDArray[np.int64]
) -> Iterator[NeighbourPair]:
    """Yield pairs of tables with names in which a person's rows lie at opposite ends of the values,
    and in other groups.

    Ends are those of the bounds of the column that is asked about, and elsewhere the smallest and
    the largest that anybody has.
    """
    # rows in memory call the column that is asked about otherwise than the table does
    asked = rows.subject.column or rows.value
    names = [asked if name == rows.value else name for name in rows.list_columns()]
    numbers = {asked if name == rows.value else name for name in rows.list_number_columns()}
    column = {name: _read_cells(table[0], name) for name in names}
    ends = {name: _find_ends(column[name]) for name in names}
    if rows.value and hasattr(rows.label, "low"):
        ends[asked] = (rows.label.low, rows.label.high)

    def place(group: int, value: int) -> tuple[Any, ...]:
        import pyarrow as pa

        changed = {}
        for name in names:
            cells = list(column[name])
            for row in who:
                cells[row] = ends[name][value if name in numbers else group]
            changed[name] = pa.array(cells)
        return (pa.table(changed), *table[1:])

    yield NeighbourPair(place(0, 0), place(0, 1), "opposite ends in one group")
    if len(numbers) < len(names):
        yield NeighbourPair(place(0, 1), place(1, 1), "two groups with one value")
        yield NeighbourPair(place(0, 0), place(1, 1), "two groups and opposite ends")


def _read_cells(table: Any, name: str) -> list[Any]:
    """One column of a table in memory, as a list."""
    cells: list[Any] = np.asarray(get_named_column(table, name)).tolist()
    return cells


def _find_ends(cells: list[Any]) -> tuple[Any, Any]:
    there = [cell for cell in cells if cell is not None and cell == cell]  # nan is not itself
    return min(there), max(there)


def _list_labels(est: Any, bounds: Any) -> list[Any]:
    if hasattr(est, "classes") and not _has_number_label(est):
        return list(Classes.from_declaration(est.classes, bounds).values)
    return list(to_interval(bounds))


def _has_number_label(est: Any) -> bool:
    loss = getattr(est, "loss", None)
    return loss in ("squared", "huber")


def _put(column: Any, rows: NDArray[np.int64], value: Any) -> Any:
    changed = np.array(column, copy=True)
    if changed.dtype.kind in "US":
        changed = changed.astype(object)
    if changed.dtype.kind == "b":
        value = bool(value)
    changed[rows] = value
    return changed


def _set_features(X: Any, rows: NDArray[np.int64], bounds: Any, low: bool) -> Any:
    """The table with these rows in the corner of all lows, or of all highs."""
    if isinstance(bounds, Bounds) and bounds.names is not None:
        X = to_matrix(X, make_recoding(bounds, X))
    if hasattr(X, "column_names"):
        import pyarrow as pa

        columns = {}
        for name in X.column_names:
            column = bounds.columns[name]
            ends = column.levels or (column.low, column.high)
            cells = X[name].to_pylist()
            for row in rows:
                cells[row] = ends[0] if low else ends[-1]
            columns[name] = pa.array(cells)
        return pa.table(columns)
    changed = np.array(X, dtype=np.float64, copy=True)
    if isinstance(bounds, Bounds) and bounds.box is not None:
        changed[rows] = np.broadcast_to(bounds.box[0 if low else 1], changed.shape[1:])
    elif isinstance(bounds, Bounds) and bounds.norm is not None:
        side = float(bounds.norm) / math.sqrt(changed.shape[1])
        changed[rows] = -side if low else side
    elif isinstance(bounds, Schema):
        ends = [bounds.interval(name) for name in bounds.columns if name != bounds.label]
        changed[rows] = [to_doubles(end, "bounds", "bounds")[0 if low else 1] for end in ends]
    else:
        changed[rows] = changed.min(axis=0) if low else changed.max(axis=0)
    return changed
