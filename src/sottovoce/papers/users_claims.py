# SPDX-License-Identifier: Apache-2.0
"""Claims of "Smoothly Bounding User Contributions in Differential Privacy" that need no data, each
put to the test.

Weights against sample limiting for the mean (Theorem 2 and beyond) and for quantiles (Algorithm 4,
Theorem 9), the two examples for regressions (with the solver), and what its printed tables tell
about themselves. All in closed form or by exact sums; the paper's figures are in
users_regression.py, its tables in users_tables.py.

    symbol   name
    A        A·Σc² + (max W)² is the error, c the weights of rows, W those of people, in units where
             ε = 1
    h        threshold: at most so many rows of each person are kept
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from itertools import product

import numpy as np
from scipy.stats import binom, norm

import sottovoce as sv
from sottovoce.arrays import Floats, Integers
from sottovoce.papers.plots import Figure, Outcome, Panel, Reason, ResultColumn, ResultTable, Series
from sottovoce.papers.report import Task, make_named_generator
from sottovoce.papers.users_data import FACTS
from sottovoce.papers.users_logistic import DELTA, LARGE_EPSILONS, compute_step_noise
from sottovoce.papers.users_regression import limit_rows, make_zipf_sizes, solve_least_squares
from sottovoce.papers.users_tables import read_printed

#: Sizes g of the paper's families, for the full and the small size.
THEOREM_2 = (2, 4, 8, 16, 64, 256)
EXAMPLE_1 = (2, 3, 4, 6, 8, 12, 16)
EXAMPLE_3 = (8, 16, 32)
#: Rows of people, how many people with each, and A, for which sample limiting costs more than 3/2.
COUNTEREXAMPLES = (
    ((1, 262), (4, 4), 0.395),
    ((1, 18, 275, 316), (32, 1, 4, 47), 0.0188),
    ((1, 2498), (180, 203), 0.0064),
)
#: The quantile experiment: values of people are normal, inside bounds 0 and 1, on a grid of so many
#: points.
QUANTILE = 0.5
MIDDLE = 0.4
SPREAD = 0.1
POINTS = 4096
ROWS = 3000
#: Failure probability at which Theorem 9 is looked at, draws of values, and fits of the library a
#: draw.
FAILURE = 0.05
DRAWS = (20, 3)
FITS = 5
#: The constant of Berry and Esseen's theorem, and the ε that is given away so that 1 − e^−ε is next
#: to one.
BERRY_ESSEEN = 0.4748
SLACK = 5.0


def minimise_over_weights(sizes: Integers, A: float) -> float:
    """Return the least A·Σc² + (max W)² over weights, by the library's weights."""
    W = sv.optimal_weights(np.ones(len(sizes)), sizes, A)
    return float(A * (W**2 / sizes).sum() + W.max() ** 2)


def minimise_over_limits(sizes: Integers, A: float) -> tuple[float, int]:
    """Return the same for the best whole threshold, and that threshold."""
    h = np.arange(1, sizes.max() + 1)
    rows = np.minimum(h[:, None], sizes).sum(axis=1)
    values = A / rows + (h / rows) ** 2
    return float(values.min()), int(h[values.argmin()])


def theorem_2(task: Task) -> Outcome:
    """Theorem 2's family: g people with one row and g with g; σ = 1 and B/ε = √(g/2)."""
    found = []
    for g in THEOREM_2 if task.size == "full" else THEOREM_2[:4]:
        sizes = np.repeat([1, g], g)
        plan = sv.Mean(bounds=(0, 10), spread=1, association=0, interval_share=0).plan(
            10 / math.sqrt(g / 2), groups=np.repeat(np.arange(2 * g), sizes)
        )
        best = g * minimise_over_weights(sizes, 1 / g)
        at_most = g * minimise_over_limits(sizes, 1 / g)[0]
        planned = (
            plan.weights.concentration + 2 * plan.noise["scale"] ** 2
        )  # σ = 1: sampling from a population, noise
        found.append((g, best, planned, at_most, at_most / best))
    every, ours, planned, limit, ratio = np.array(found).T
    own = (2 * every + 1) / (4 * every**2)
    other = 3 / (4 * every)
    columns = (
        _make_column("weights", ours, own),
        _make_column("weights, as sv.Mean plans", planned, own),
        _make_column("limit, best h", limit, other),
        _make_column("ratio", ratio, other / own),
    )
    words = (
        "Print says that the best weights have a variance less than (2g + 1)/(4g²). It is this "
        "number: at the optimum everybody counts alike.",
        f"The ratio tends to 3/2; at g = {every[-1]:g} it is {ratio[-1]:.4f}.",
    )
    return Outcome(
        task.name,
        task.size,
        (ResultTable("Variance", "g", _format_labels(every), columns),),
        (),
        words,
    )


def counterexample(task: Task) -> Outcome:
    """Instances in which sample limiting costs more than 3/2 of the best weights, and the ratio by
    A.
    """
    lines = []
    found = []
    series = []
    for kinds, people, A in COUNTEREXAMPLES:
        sizes = np.repeat(kinds, people)
        name = " + ".join(f"{p}×{k}" for p, k in zip(people, kinds, strict=True))
        (limit, h) = minimise_over_limits(sizes, A)
        own = minimise_over_weights(sizes, A)
        lines.append(name)
        found.append((A, own, limit, float(h), limit / own))
        around = A * np.geomspace(0.05, 20, task.choose(81, 9))
        ratios = [
            minimise_over_limits(sizes, a)[0] / minimise_over_weights(sizes, a) for a in around
        ]
        series.append(Series(name, name, tuple((around / A).tolist()), tuple(ratios)))
    names = ("A", "weights", "limit, best h", "best h", "ratio")
    columns = tuple(
        _make_column(name, line) for name, line in zip(names, zip(*found, strict=True), strict=True)
    )
    axes = Panel(
        "limit over weights",
        "A, over that of the table",
        "ratio",
        tuple(series),
        log_x=True,
        log_y=False,
    )
    most = max(line[-1] for line in found)
    told = (
        f"The ratio of the paper's family stays below 3/2. Here it reaches {most:.3f}; it is "
        "proved to be at most 4."
    )
    table = ResultTable("A·Σc² + (max W)², people × rows", "people", tuple(lines), columns)
    return Outcome(task.name, task.size, (table,), (Figure("More than 3/2", (axes,)),), (told,))


def example_1(task: Task) -> Outcome:
    """Example 1: two directions, one of which should be limited and the other not.

    σ = 0 and 2d(B/ε)² = 1.
    """
    found = []
    for g in EXAMPLE_1 if task.size == "full" else EXAMPLE_1[:4]:
        sizes = np.concatenate([[1], np.full(g**2, g), [g], np.ones(g**2, dtype=np.int64)])
        first = np.repeat(np.arange(len(sizes)) <= g**2, sizes)
        X = np.column_stack([first, ~first]).astype(float)
        owner = np.repeat(np.arange(len(sizes)), sizes)
        X[0, 0] = g
        solved = _solve_map(X, owner, 2.0, 0.0)
        reach = [
            solve_least_squares(X, owner, limit_rows(owner, h, np.arange(len(owner))))[1]
            for h in range(1, g + 1)
        ]
        found.append((g, *solved, min(reach) ** 2, min(reach) ** 2 / solved[0]))
        task.progress(g / EXAMPLE_1[-1])
    every, value, bound, limit, ratio = np.array(found).T
    columns = (
        _make_column("best map", value, every**-4.0),
        _make_column("no map is below", bound),
        _make_column("limit, best h", limit, 1 / (4 * every**3)),
        _make_column("ratio", ratio, every / 4),
    )
    return _make_outcome(
        task,
        "Total variance",
        _format_labels(every),
        columns,
        f"The ratio is {np.min(ratio / every):.2f}·g or more.",
    )


def example_3(task: Task) -> Outcome:
    """Example 3: all features of length one; σ = 1 and 2d(B/ε)² = g.

    The rows that are kept are drawn.
    """
    found = []
    for g in EXAMPLE_3 if task.size == "full" else EXAMPLE_3[:2]:
        owner = np.repeat(np.arange(g + 1), g)
        first = (np.arange(len(owner)) % g == 0) | (owner == 0)
        solved = _solve_map(
            np.column_stack([first, ~first]).astype(float), owner, 2 / math.sqrt(g), 1.0
        )
        median = min(_find_example_3_median(g, h) for h in range(1, g + 1))
        found.append((g, *solved, median, median / solved[0]))
    every, value, bound, limit, ratio = np.array(found).T
    columns = (
        _make_column("best map", value, 6 / every),
        _make_column("no map is below", bound),
        _make_column("limit, best h, median", limit, every / 9),
        _make_column("ratio", ratio, every**2 / 54),
    )
    return _make_outcome(
        task,
        "Total variance",
        _format_labels(every),
        columns,
        "Medians are over which rows are kept, exactly.",
    )


def _solve_map(X: Floats, owner: Integers, epsilon: float, variance: float) -> tuple[float, float]:
    """Return the total variance of the best map for labels in [0, 1], and the bound of its
    certificate.
    """
    regression = sv.LabelPrivateRegression(
        (0, 1), variance, fit_intercept=False, sensitivity="entrywise"
    )
    certificate = regression.plan(X, epsilon, groups=owner).noise["certificate"]
    return certificate["value"], certificate["bound"]


def compute_example_3_law(g: int, h: int) -> tuple[Floats, Floats]:
    """Return the variances that sample limiting can have, ascending, and the chance of each.

    Each of g people keeps their one row of the first kind with probability h/g, and ``seen`` of
    them do. Where nobody keeps a row of the second kind there is no estimate; this case is left
    out.
    """
    if h < g:
        seen = np.arange(g + 1)
    else:
        seen = np.array([g])
    seen = seen[h * g - seen > 0]
    own = 1 / (h + seen)
    other = 1 / (h * g - seen)
    reach = np.maximum(
        h * own, np.where(seen < g, h * other, 0.0)
    )  # of the first person, and of who keeps no such row
    reach = np.maximum(reach, np.where(seen > 0, own + (h - 1) * other, 0.0))  # of who keeps one
    variance = own + other + g * reach**2
    chance = binom.pmf(seen, g, h / g)
    order = np.argsort(variance)
    return np.asarray(variance[order]), np.asarray(chance[order] / chance.sum())


def _find_example_3_median(g: int, h: int) -> float:
    variance, chance = compute_example_3_law(g, h)
    return float(variance[np.searchsorted(np.cumsum(chance), 0.5)])


def _make_outcome(
    task: Task, title: str, lines: tuple[str, ...], columns: tuple[ResultColumn, ...], told: str
) -> Outcome:
    reasons = tuple(
        Reason(
            column.name,
            "Print is a bound, at most for the map and at least for the limit. Ours is the value.",
        )
        for column in columns
        if column.published
    )
    return Outcome(
        task.name, task.size, (ResultTable(title, "g", lines, columns, reasons),), (), (told,)
    )


def quantile(task: Task) -> Outcome:
    """The median by Algorithm 4 with weights, with sample limiting, and with all rows alike.

    And Theorem 9's bound.
    """
    settings = list(product((1.0, 1.5, 2.0), (0.1, 1.0)))[: task.choose(6, 2)]
    found = [_compute_rank_errors(task, alpha, epsilon) for alpha, epsilon in settings]
    names = (
        "weights",
        "limit, best h",
        "limit, all rows",
        "library",
        "9 of 10 are within",
        "Theorem 9 says",
    )
    columns = tuple(
        _make_column(name, line) for name, line in zip(names, zip(*found, strict=True), strict=True)
    )
    lines = tuple(f"{alpha:g}, {epsilon:g}" for alpha, epsilon in settings)
    words = (
        "Errors are roots of the mean square of F(answer) − q, over the values drawn and the "
        "answer, by exact sums; "
        f"those of the library, by permute-and-flip, over {FITS} fits a draw.",
        f"Theorem 9, with the constants of its proof and at γ = {FAILURE}, holds for 9 answers of "
        f"10 and is {min(line[5] / line[4] for line in found):.1f} to "
        f"{max(line[5] / line[4] for line in found):.1f} times what is seen.",
    )
    return Outcome(
        task.name,
        task.size,
        (ResultTable("Root mean square error of rank", "α, ε", lines, columns),),
        (),
        words,
    )


def _compute_rank_errors(task: Task, alpha: float, epsilon: float) -> tuple[float, ...]:
    sizes = make_zipf_sizes(ROWS, alpha)
    owner = np.repeat(np.arange(len(sizes)), sizes)
    rng = make_named_generator(f"users quantile {alpha} {epsilon}")
    place = np.arange(ROWS) - np.searchsorted(owner, owner)
    W = sv.optimal_weights(np.full(len(sizes), epsilon), sizes, QUANTILE * (1 - QUANTILE) / 8)
    thresholds = np.unique(np.geomspace(1, sizes.max(), 12).round())
    weights = [(W / sizes)[owner], *((place < h) / np.minimum(sizes, h).sum() for h in thresholds)]
    squares = []
    tails = []
    fits = []
    for _ in range(task.choose(*DRAWS)):
        y = np.clip(rng.normal(MIDDLE, SPREAD, ROWS), 0, 1)
        laws = [compute_chances(y, c, float(np.bincount(owner, c).max()), epsilon) for c in weights]
        squares.append([law @ compute_grid_errors() ** 2 for law in laws])
        tails.append(_find_tail(laws[0]))
        asked = sv.Quantile(QUANTILE, bounds=(0, 1), cells=POINTS)
        fits += [asked.fit(y, epsilon, groups=owner).value_ for _ in range(FITS)]
    own, *limits = np.sqrt(np.mean(squares, axis=0)).tolist()
    library = math.sqrt(np.mean((norm.cdf(fits, MIDDLE, SPREAD) - QUANTILE) ** 2))
    return (
        own,
        min(limits),
        limits[-1],
        library,
        float(np.mean(tails)),
        compute_theorem_9(weights[0], float(W.max()), epsilon),
    )


@cache
def compute_grid_errors() -> Floats:
    """Return how far each point of the grid is from the quantile, as a share of the population."""
    return np.asarray(np.abs(norm.cdf(np.linspace(0, 1, POINTS), MIDDLE, SPREAD) - QUANTILE))


def compute_chances(y: Floats, c: Floats, W: float, epsilon: float) -> Floats:
    """Return the probability of each point of the grid by Algorithm 4, ∝ exp(−ε|rank − q|/(2W))."""
    order = np.argsort(y)
    ranks = np.concatenate([[0.0], np.cumsum(c[order])])[
        np.searchsorted(y[order], np.linspace(0, 1, POINTS), "right")
    ]
    law = np.exp(-epsilon * np.abs(ranks - QUANTILE) / (2 * W))
    return np.asarray(law / law.sum())


def _find_tail(law: Floats) -> float:
    """Return how far the answer is off with probability 1 − 2γ at most."""
    order = np.argsort(compute_grid_errors())
    return float(
        compute_grid_errors()[order][np.searchsorted(np.cumsum(law[order]), 1 - 2 * FAILURE)]
    )


def compute_theorem_9(c: Floats, W: float, epsilon: float) -> float:
    """Return α + 2η + (2W/ε)·ln(1/(γβ)) at the best α, by Claims 5 and 6 with a uniform base
    measure.
    """
    eta = math.sqrt(math.log(2 * len(c) / FAILURE) * float(c @ c) / 2) + float(c.max())
    alpha = np.linspace(0.001, 0.499, 499)
    ends = norm.ppf(np.stack([QUANTILE + alpha, QUANTILE - alpha]), MIDDLE, SPREAD)
    beta = np.clip(ends[0], 0, 1) - np.clip(ends[1], 0, 1)
    return float(np.min(alpha + 2 * eta + 2 * W / epsilon * np.log(1 / (FAILURE * beta))))


def table_1_law(task: Task) -> Outcome:
    """What Table 1 tells about itself: errors are a + c/ε² for a fixed map, so two ε foretell the
    third.
    """
    lines = []
    ours = []
    at_two = []
    for data, method in product(
        ("drugs", "news"), ("weighted", "sample_limit_best", "sample_limit_max")
    ):
        one, two, three = read_printed(1, data, method)
        lines.append(f"{data}, {method.replace('_', ' ')}")
        ours.append(three + (one - three) * (1 / 4 - 1 / 9) / (1 - 1 / 9))
        at_two.append(two)
    words = (
        "With all rows the map does not depend on ε, and the number at ε = 2 follows from those at "
        "1 and 3. For the best h it is at least that, because a minimum of functions a + c/ε² is "
        "concave in 1/ε². For the best map, which is chosen by another error, this holds roughly.",
        "With all rows print agrees within 2 %, where a mean of ten runs has a standard deviation "
        "of 22 % or more: what is printed has far less noise than ten draws leave, as the closed "
        "form of the mean has, with which users/table-1 compares.",
    )
    column = ResultColumn("at ε = 2, by 1 and 3", tuple(ours), tuple(at_two))
    return Outcome(
        task.name,
        task.size,
        (ResultTable("Table 1 by itself", "data, method", tuple(lines), (column,)),),
        (),
        words,
    )


def table_2_noise(task: Task) -> Outcome:
    """Which ε the noise behind Table 2 keeps, if it is that of the algorithm that the paper
    names.
    """
    found = [_compute_kept_epsilon(epsilon, FACTS["drugs"][2]) for epsilon in LARGE_EPSILONS]
    names = (
        "noise, over the largest gradient",
        "ε at δ = 0.1",
        "ε is at least",
        "δ at the promised ε is at least",
    )
    columns = tuple(
        _make_column(name, line) for name, line in zip(names, zip(*found, strict=True), strict=True)
    )
    words = (
        "Algorithm 1 of Bassily, Smith and Thakurta (2014) draws one of m people in each of m² "
        "steps. The proof of its noise is for small ε. If a person's gradient turns from −1 to 1 "
        "while all others have −1, the steps give away what is shown here, under replacement.",
        "The sum of the losses of all steps is normal up to the theorem of Berry and Esseen, "
        "which lower limits count.",
    )
    table = ResultTable("Promised and kept", "promised ε", _format_labels(LARGE_EPSILONS), columns)
    return Outcome(task.name, task.size, (table,), (), words)


def _compute_kept_epsilon(epsilon: float, people: int) -> tuple[float, ...]:
    """Return the noise, and what the steps lose, from the moments of one step by quadrature."""
    noise = compute_step_noise(epsilon, people)
    # the two gradients are 2 apart
    scale = noise / 2
    rate = 1 / people
    steps = people**2
    x = np.linspace(-12 * scale, 1 + 12 * scale, 200_001)
    density = ((1 - rate) * norm.pdf(x, 0, scale) + rate * norm.pdf(x, 1, scale)) * (x[1] - x[0])
    loss = np.log1p(rate * np.expm1((2 * x - 1) / (2 * scale**2)))
    mean = float(density @ loss)
    spread = math.sqrt(density @ (loss - mean) ** 2)
    third = float(density @ np.abs(loss - mean) ** 3)
    error = BERRY_ESSEEN * third / spread**3 / math.sqrt(steps)
    centre = steps * mean
    width = spread * math.sqrt(steps)
    enough = DELTA / -math.expm1(-SLACK) + error
    surely = -math.expm1(-SLACK) * max(norm.sf(epsilon + SLACK, centre, width) - error, 0.0)
    return noise, norm.isf(DELTA, centre, width), norm.isf(enough, centre, width) - SLACK, surely


def _make_column(
    name: str, ours: Sequence[float] | Floats, published: Sequence[float] | Floats = ()
) -> ResultColumn:
    return ResultColumn(name, tuple(map(float, ours)), tuple(map(float, published)))


def _format_labels(values: Sequence[float] | Floats) -> tuple[str, ...]:
    return tuple(f"{value:g}" for value in values)
