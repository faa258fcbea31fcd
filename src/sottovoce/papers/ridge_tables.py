# SPDX-License-Identifier: Apache-2.0
"""Tables 1 to 10 of the ridge paper: personal budgets against one ε for all.

The authors fixed the split of the medical data and nothing else, so "ours" is the median over draws
of what was not fixed: budgets, and for synthetic data the data too. Every column says where print
falls among these draws. Table 1 is given on a draw that matches the facts that can be read off
print. Two columns show what our own methods make of it.

Tables 11 to 14 of the ridge paper: personal budgets against Jorgensen's sampling, as published and
not private.

Given who was sampled, mean and variance of the loss are closed forms, so samples alone are drawn
and noise is integrated out; full runs are simulated as a check. Synthetic tables are on the matched
draw, medical ones on a draw of budgets whose sum is the median. Beside them: how much faster this
is than a loop over runs.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import sottovoce as sv
from sottovoce.arrays import Floats
from sottovoce.papers import ridge_setup
from sottovoce.papers.plots import (
    Outcome,
    Reason,
    ResultColumn,
    ResultTable,
    format_number,
    format_percentile,
)
from sottovoce.papers.report import Task, make_named_generator
from sottovoce.papers.ridge_setup import (
    RUNS,
    TRAIN,
    BudgetProfile,
    LossMoments,
    RidgeData,
    SampledRows,
)

#: Draws of what the authors did not fix, and fits of our own methods a line, for the full and the
#: small size.
DRAWS = (300, 40)
FITS = (10, 1)
PLAIN = BudgetProfile()
OTHER = BudgetProfile(0.54, 0.37)
PAIR = ("pdp_op", "uniform")
#: Data, budgets and λ.
Case = tuple[RidgeData, Floats, float]
WORDS = {
    "pdp_op": "personalised",
    "uniform": "one ε for all",
    "unreg": "unregularised",
    "reg": "regularised",
}


@dataclass(frozen=True)
class Sweep:
    """A table whose lines have budgets of their own: what varies, the rest of the setting, and its
    λ.
    """

    key: str
    what: str
    base: BudgetProfile
    lam: float
    medical: bool

    def setting(self, value: float) -> tuple[BudgetProfile, float]:
        """Return budgets and the share of training rows of one line."""
        _, between, high = self.base.levels
        match self.key:
            case "eps_c":
                return replace(self.base, levels=(value, between, high)), 1.0
            case "eps_m":
                return replace(self.base, levels=(self.base.levels[0], value, high)), 1.0
            case "f_c":
                return replace(self.base, conservative=value), 1.0
        return self.base, value

    @property
    def name(self) -> str:
        """Where the data are from."""
        if self.medical:
            return "medical"
        return "synthetic"


@dataclass(frozen=True, eq=False)
class TableLine:
    """One line of a table: its label, all draws of data and budgets, a typical one with its λ, and
    the profile.
    """

    value: float
    pairs: list[tuple[RidgeData, Floats]]
    case: Case
    profile: BudgetProfile


HALVED = BudgetProfile(0.54, 0.37, (0.01, 0.5, 1.0))
SWEEPS = {
    number: Sweep(key, what, base, 1.0 if medical else 100.0, medical)
    for number, key, what, base, medical in (
        (3, "eps_c", "ε_c", HALVED, False),
        (4, "eps_c", "ε_c", HALVED, True),
        (5, "eps_m", "ε_m", OTHER, False),
        (6, "eps_m", "ε_m", OTHER, True),
        (7, "f_c", "f_c", OTHER, False),
        (8, "f_c", "f_c", OTHER, True),
        (9, "fraction", "share of rows", OTHER, False),
        (10, "fraction", "share of rows", PLAIN, True),
    )
}
#: Printed numbers that cannot be right, by table, column and line.
ERRATA = {
    (
        3,
        "reg_uniform",
        "0.3",
    ): "Print repeats the number of the line ε_c = 0.5. The unregularised loss beside it "
    "leads to about 3.",
}


def table_1(task: Task) -> Outcome:
    """Table 1: synthetic data, by λ, on the matched draw."""
    published = ridge_setup.read_printed("ridge_table_01_synthetic_lambda_vs_uniform")
    count = task.choose(*DRAWS)
    matched = ridge_setup.match_published_draw()
    sets = ridge_setup.draw_synthetic(count, "ridge synthetic data")
    pairs = list(zip(sets, PLAIN.draw(TRAIN, count, "ridge synthetic budgets"), strict=True))
    lines = [TableLine(lam, pairs, (*matched, lam), PLAIN) for lam in published["lambda"]]
    here = [compute_line_losses(*line.case) for line in lines]
    columns = _compare_lines(task, lines, published)
    columns = [
        replace(column, ours=values)
        for column, values in zip(columns, zip(*here, strict=True), strict=True)
    ]
    return _make_outcome(
        task, 1, "λ", lines, columns, (_check_by_simulation(task, lines), describe_match())
    )


def table_2(task: Task) -> Outcome:
    """Table 2: medical data, by λ, one draw of budgets for all lines."""
    published = ridge_setup.read_printed("ridge_table_02_medical_lambda_vs_uniform")
    data = ridge_setup.load_medical(task.data)
    budgets = PLAIN.draw(len(data.y), task.choose(*DRAWS), "ridge medical budgets")
    pairs = [(data, epsilon) for epsilon in budgets]
    middle = ridge_setup.choose_typical(budgets)
    lines = [TableLine(lam, pairs, (data, middle, lam), PLAIN) for lam in published["lambda"]]
    single, told = _make_uniform_columns(data, published)
    columns = [*_compare_lines(task, lines, published), *single]
    return _make_outcome(task, 2, "λ", lines, columns, (_check_by_simulation(task, lines), told))


def by_line(task: Task) -> Outcome:
    """Tables 3 to 10: a new draw of budgets on every line."""
    number = int(task.name.rpartition("-")[2])
    sweep = SWEEPS[number]
    published = ridge_setup.read_printed(f"ridge_table_{number:02}_{sweep.name}_{sweep.key}")
    lines = [_make_line(sweep, value, task) for value in published[sweep.key]]
    notes = [
        "Means are closed forms; print averages 10,000 runs, which leaves it a noise of about 1 %."
    ]
    notes += ["The caption prints f = .34/.43/.23; the numbers are those of .54/.37/.09."] * (
        number == 9
    )
    return _make_outcome(
        task, number, sweep.what, lines, _compare_lines(task, lines, published), tuple(notes)
    )


def _make_line(sweep: Sweep, value: float, task: Task) -> TableLine:
    pairs = draw_line(sweep, value, task.choose(*DRAWS), task.data)
    middle = int(np.argsort([epsilon.sum() for _, epsilon in pairs])[len(pairs) // 2])
    return TableLine(value, pairs, (*pairs[middle], sweep.lam), sweep.setting(value)[0])


def _compare_lines(
    task: Task, lines: list[TableLine], published: Mapping[str, tuple[float, ...]]
) -> list[ResultColumn]:
    """Return the four columns: the median over draws, print, and where print falls."""
    found = []
    for place, line in enumerate(lines):
        found.append(
            [compute_line_losses(data, epsilon, line.case[2]) for data, epsilon in line.pairs]
        )
        task.progress((place + 1) / (len(lines) + 1))
    draws = np.array(found)
    return [
        _make_column(name, published[name], draws[:, :, place]) for place, name in enumerate(_NAMES)
    ]


def _make_outcome(
    task: Task,
    number: int,
    key: str,
    lines: list[TableLine],
    columns: list[ResultColumn],
    sentences: tuple[str, ...],
) -> Outcome:
    """Return the table with our own methods beside it and a reason for whatever is off."""
    every = (*columns, *make_own_columns(task, [line.case for line in lines]))
    table = ResultTable(f"Table {number}", key, tuple(f"{line.value:g}" for line in lines), every)
    return Outcome(
        task.name,
        task.size,
        (replace(table, reasons=_find_reasons(number, table, lines)),),
        (),
        sentences,
    )


def draw_line(
    sweep: Sweep, value: float, count: int, folder: Path | None
) -> list[tuple[RidgeData, Floats]]:
    """Return data and budgets of one line, ``count`` times.

    A share of rows, or their number, may be what varies.
    """
    profile, share = sweep.setting(value)
    if sweep.medical:
        sets = [ridge_setup.load_medical(folder)] * count
    else:
        sets = ridge_setup.draw_synthetic(count, "ridge synthetic data")
    if share <= 1:
        rows = round(share * len(sets[0].y))
    else:
        rows = int(share)
    if sweep.medical:
        subsets = [sets[0].take_first(rows)] * count
    else:
        subsets = [data.take_first(rows) for data in sets]
    lines = profile.draw(rows, count, f"ridge {sweep.key} {value:g}")
    return list(zip(subsets, lines, strict=True))


_NAMES = tuple(f"{loss}_{method}" for loss in ("unreg", "reg") for method in PAIR)


def compute_line_losses(data: RidgeData, epsilon: Floats, lam: float) -> tuple[float, ...]:
    """Return the four expected losses of one draw, in the order of the tables' columns."""
    own = ridge_setup.compute_losses(data, *ridge_setup.solve_personalised(data, epsilon, lam), lam)
    alike = ridge_setup.compute_losses(
        data, *ridge_setup.solve_uniform(data, float(epsilon.min()), lam), lam
    )
    return own.unreg, alike.unreg, own.reg, alike.reg


def make_own_columns(task: Task, cases: list[Case]) -> list[ResultColumn]:
    """Return what our methods make of each line: the unregularised loss, averaged over a few fits
    with fresh noise.
    """
    fits = task.choose(*FITS)
    words = f"unregularised, {{}}, {fits} fit{'s' * (fits > 1)}"
    tight = tuple(
        _measure_own(data, epsilon, fits, method="output-tight", alpha=lam)
        for data, epsilon, lam in cases
    )
    # The default has no λ, so lines that differ in λ alone share its number.
    distinct = {id(epsilon): (data, epsilon) for data, epsilon, _ in cases}
    found = {key: _measure_own(*case, fits, method="objective") for key, case in distinct.items()}
    objective = tuple(found[id(epsilon)] for _, epsilon, _ in cases)
    return [
        ResultColumn(words.format("output-tight"), tight),
        ResultColumn(words.format("objective"), objective),
    ]


def _measure_own(data: RidgeData, epsilon: Floats, fits: int, **options: Any) -> float:
    # The library has an intercept of its own: the column of ones stays at home.
    ones = bool((data.X[:, -1] == 1).all())
    X, test_X = (rows[:, : rows.shape[1] - ones] for rows in (data.X, data.test_X))
    bounds = sv.Bounds(features=(np.zeros(X.shape[1]), np.ones(X.shape[1])), label=(-1, 1))
    models = [
        sv.Ridge(bounds=bounds, **options).fit(X, data.y, epsilon=epsilon) for _ in range(fits)
    ]
    return float(np.mean([(data.test_y - model.predict(test_X)) ** 2 for model in models]))


def _make_column(name: str, published: tuple[float, ...], draws: Floats) -> ResultColumn:
    loss, _, method = name.partition("_")
    below = (draws < np.array(published)[:, None]).mean(axis=1)
    median = tuple(np.median(draws, axis=1).tolist())
    return ResultColumn(f"{WORDS[loss]}, {WORDS[method]}", median, published, tuple(below.tolist()))


def _find_reasons(number: int, table: ResultTable, lines: list[TableLine]) -> tuple[Reason, ...]:
    """One reason a column for what lies among our draws, and one for each printed number that
    cannot be right.
    """
    reasons = []
    for name, column in zip(_NAMES, table.columns, strict=False):
        off = [line for head, line, _ in table.find_deviations() if head == column.name]
        wrong = [line for line in off if (number, name, line) in ERRATA]
        reasons += [Reason(column.name, ERRATA[number, name, line], (line,)) for line in wrong]
        falls = dict(zip(table.lines, column.falls_at, strict=True))
        among = tuple(line for line in off if line not in wrong and 0 < (falls[line] or 0) < 1)
        if among:
            reasons.append(
                Reason(column.name, _explain_draws(name, [falls[line] for line in among]), among)
            )
        for line in off if name.endswith("uniform") else ():
            place = table.lines.index(line)
            if line not in (*wrong, *among):
                told = _explain_rare(name, lines[place], column.published[place] or 0.0)
                reasons.append(Reason(column.name, told, (line,)))
    return tuple(reasons)


def _explain_rare(name: str, line: TableLine, value: float) -> str:
    """Says how likely the smallest ε is that print implies, where none of our draws went so far."""
    data, _, lam = line.case
    implied = _infer_epsilon(data, lam, value, name.partition("_")[0])
    above = line.profile.smallest_at_least(implied, len(data.y))
    if above < 0.5:
        word, chance = ("large", above)
    else:
        word, chance = ("small", 1 - above)
    return (
        f"One person, whoever drew the smallest ε, sets this number. Print implies {implied:.4f}; "
        f"a smallest ε as {word} as this has a chance of {chance:.1%}."
    )


def _explain_draws(name: str, falls: list[float | None]) -> str:
    shares = [share for share in falls if share is not None]
    low = format_percentile(min(shares))
    high = format_percentile(max(shares))
    if low == high:
        where = f"print lies above {low} of them"
    else:
        where = f"print lies above {low} to {high} of them"
    if name.endswith("uniform"):
        return (
            "One person, whoever drew the smallest ε, sets this number. Ours is the median of "
            f"many draws; {where}."
        )
    return f"The authors' draw was not seeded. Ours is the median of many draws; {where}."


def _check_by_simulation(task: Task, lines: list[TableLine]) -> str:
    """Simulates both methods on every line and compares with the closed forms."""
    runs = task.choose(*RUNS)
    gaps = [gap for line in lines for gap in _measure_gaps(task.name, *line.case, runs)]
    worst, errors = (max(column) for column in zip(*gaps, strict=True))
    return (
        f"Means are closed forms. {runs:,} simulated runs for each of the {len(gaps)} cells differ "
        f"from them by at most {worst:.1%}, or {errors:.1f} standard errors."
    )


def _measure_gaps(
    name: str, data: RidgeData, epsilon: Floats, lam: float, runs: int
) -> list[tuple[float, float]]:
    """Return how far simulated means are from closed forms, relatively and in standard errors."""
    found = []
    fits = {
        "own": ridge_setup.solve_personalised(data, epsilon, lam),
        "alike": ridge_setup.solve_uniform(data, float(epsilon.min()), lam),
    }
    for method, fit in fits.items():
        exact = ridge_setup.compute_losses(data, *fit, lam)
        seen = ridge_setup.simulate_losses(
            data, *fit, lam, runs, f"ridge check {name} {method} {lam}"
        )
        for kind in ("unreg", "reg"):
            mean = float(getattr(exact, kind))
            std = float(getattr(exact, f"{kind}_std"))
            gap = abs(float(getattr(seen, kind)) - mean)
            found.append((gap / mean, gap * math.sqrt(runs) / std))
    return found


def _make_uniform_columns(
    data: RidgeData, published: Mapping[str, tuple[float, ...]]
) -> tuple[tuple[ResultColumn, ...], str]:
    """Return the uniform columns at the one ε that print implies, and the sentence about it."""
    lams = published["lambda"]
    printed = [
        (kind, *cell)
        for kind in ("unreg", "reg")
        for cell in zip(lams, published[f"{kind}_uniform"], strict=True)
    ]
    implied = np.array([_infer_epsilon(data, lam, value, kind) for kind, lam, value in printed])
    single = float(np.median(implied))
    found = [
        ridge_setup.compute_losses(data, *ridge_setup.solve_uniform(data, single, lam), lam)
        for lam in lams
    ]
    columns = tuple(
        ResultColumn(
            f"{WORDS[kind]}, all at ε = {single:.5f}",
            tuple(getattr(losses, kind) for losses in found),
            published[f"{kind}_uniform"],
        )
        for kind in ("unreg", "reg")
    )
    chance = PLAIN.smallest_at_least(single, len(data.y))
    return columns, (
        "The column with one ε for all hangs on a single number, the smallest ε drawn. The "
        f"{len(implied)} printed cells imply {implied.min():.5f} to {implied.max():.5f}; at their "
        f"median, {single:.5f}, all of them follow. A smallest ε as large as that has a chance of "
        f"{chance:.1%}."
    )


def _infer_epsilon(data: RidgeData, lam: float, printed: float, kind: str) -> float:
    """Return the ε at which everybody must have been for this printed loss."""
    quiet = ridge_setup.compute_losses(data, *ridge_setup.solve_uniform(data, math.inf, lam), lam)
    loud = ridge_setup.compute_losses(data, *ridge_setup.solve_uniform(data, 1.0, lam), lam)
    return math.sqrt(
        (getattr(loud, kind) - getattr(quiet, kind)) / (printed - getattr(quiet, kind))
    )


METHODS = ("pdp_op", "jorgensen_max", "jorgensen_mean")
SAMPLING_WORDS = {
    "pdp_op": "personalised",
    "jorgensen_max": "sampled, t = max",
    "jorgensen_mean": "sampled, t = mean",
}
LOSSES = {"unreg": "unregularised", "reg": "regularised"}
PRINTED = {
    11: "ridge_table_11_synthetic_lambda_vs_jorgensen",
    12: "ridge_table_12_medical_lambda_vs_jorgensen",
    13: "ridge_table_13_synthetic_lambda_std",
    14: "ridge_table_14_medical_lambda_std",
}
MEDICAL_TABLES = (12, 14)
#: Printed exponents that cannot be right: by table and line, what they must be for each column.
EXPONENTS = {
    (11, "1"): {
        "unreg_pdp_op": 8.54e2,
        "unreg_jorgensen_max": 1.09e3,
        "unreg_jorgensen_mean": 1.89e3,
        "reg_pdp_op": 3.32e3,
        "reg_jorgensen_max": 4.16e3,
        "reg_jorgensen_mean": 7.55e3,
    },
    (14, "0.01"): {"unreg_jorgensen_max": 1.58e5, "unreg_jorgensen_mean": 3.12e5},
}
#: Draws of budgets among which the medical tables take the one whose sum is the median.
MEDIAN_OF = 300
#: Below this a test loss is zero but for the rounding of 64-bit arithmetic.
ROUNDING = 1e-20
#: Lines of Table 12 on which a loop over runs is timed, and how many runs it makes there.
LOOPED_LINES = 3
LOOPED_RUNS = (100, 20)


def by_lambda(task: Task) -> Outcome:
    """Tables 11 to 14: losses, and their standard deviations, by λ."""
    number = int(task.name.rpartition("-")[2])
    published = ridge_setup.read_printed(PRINTED[number])
    lams = published["lambda"]
    data, found, told = compute_by_lambda(number in MEDICAL_TABLES, task)
    columns = []
    for name in (head for head in published if head != "lambda"):
        loss, _, method = name.partition("_")
        if method == "nonprivate":
            ours = tuple(
                ridge_setup.compute_plain_loss(data, 0.0 if loss == "unreg" else lam)
                for lam in lams
            )
        else:
            if number in (11, 12):
                kind = loss
            else:
                kind = f"{loss}_std"
            ours = tuple(float(getattr(found[lam][method], kind)) for lam in lams)
        columns.append(
            ResultColumn(
                f"{LOSSES[loss]}, {SAMPLING_WORDS.get(method, 'not private')}",
                ours,
                published[name],
            )
        )
    lines = tuple(f"{lam:g}" for lam in lams)
    reasons = (*_explain_exponents(number, published, columns, lines), *_explain_zeros(columns))
    table = ResultTable(f"Table {number}", "λ", lines, tuple(columns), reasons)
    if number in MEDICAL_TABLES:
        sentences: tuple[str, ...] = (told,)
    else:
        sentences = (told, describe_match())
    return Outcome(task.name, task.size, (table,), (), sentences)


def describe_match() -> str:
    """Says how like the authors' draw the matched one is."""
    data, epsilon = ridge_setup.match_published_draw()
    facts = {
        "Σε": (float(epsilon.sum()), ridge_setup.MATCHED_TOTAL),
        "smallest ε": (float(epsilon.min()), ridge_setup.MATCHED_SMALLEST),
        "mean y² of the test rows": (float((data.test_y**2).mean()), ridge_setup.MATCHED_LABELS),
        "mean ‖x‖²": (float((data.test_X**2).sum(axis=1).mean()), ridge_setup.MATCHED_NORMS),
        "‖Xᵀy‖/N": (
            float(np.linalg.norm(data.test_X.T @ data.test_y)) / len(data.test_y),
            ridge_setup.MATCHED_SLOPE,
        ),
    }
    told = ", ".join(
        f"{name} {format_number(have, 4)} (print: {format_number(want, 4)})"
        for name, (have, want) in facts.items()
    )
    return (
        f"Ours is one draw of {ridge_setup.CANDIDATES:,}, chosen for its likeness to the "
        f"authors', which has no seed: {told}."
    )


def _explain_exponents(
    number: int, published: Iterable[str], columns: list[ResultColumn], lines: tuple[str, ...]
) -> list[Reason]:
    names = [head for head in published if head != "lambda"]
    reasons = []
    for (table, line), right in EXPONENTS.items():
        for name, value in right.items() if table == number else ():
            column = columns[names.index(name)]
            ratio = (column.ours[lines.index(line)] or 0) / value
            told = (
                f"A wrong exponent: with {format_number(value)} in its place ours is {ratio:.3f} "
                "of print."
            )
            reasons.append(Reason(column.name, told, (line,)))
    return reasons


def _explain_zeros(columns: list[ResultColumn]) -> list[Reason]:
    told = "Labels are a linear function without noise: both numbers are zero but for rounding."
    return [
        Reason(column.name, told)
        for column in columns
        if all(
            max(a or 0, b or 0) < ROUNDING
            for a, b in zip(column.ours, column.published, strict=True)
        )
    ]


def compute_by_lambda(
    medical: bool, task: Task
) -> tuple[RidgeData, dict[float, dict[str, LossMoments]], str]:
    """Return the data, all losses by λ and method, and what the simulation says of them."""
    return _compute_lambdas(medical, task.choose(*RUNS), task.data)


@cache
def _compute_lambdas(
    medical: bool, runs: int, folder: Path | None
) -> tuple[RidgeData, dict[float, dict[str, LossMoments]], str]:
    if medical:
        data = ridge_setup.load_medical(folder)
        epsilon = ridge_setup.choose_typical(
            BudgetProfile().draw(len(data.y), MEDIAN_OF, "ridge medical budgets")
        )
    else:
        data, epsilon = ridge_setup.match_published_draw()
    lams = ridge_setup.read_printed(PRINTED[12 if medical else 11])["lambda"]
    exact, seen = compare_methods(
        data, epsilon, lams, runs, "ridge sampling" + " medical" * medical
    )
    return data, exact, _describe_agreement(exact, seen, runs)


def compare_methods(
    data: RidgeData, epsilon: Floats, lams: tuple[float, ...], runs: int, seed: str
) -> tuple[dict[float, dict[str, LossMoments]], dict[float, dict[str, LossMoments]]]:
    """Return losses with the noise integrated out, and losses of simulated runs, by λ and
    method.
    """
    drawn = draw_samples(data, epsilon, runs, seed)
    exact: dict[float, dict[str, LossMoments]] = {}
    seen: dict[float, dict[str, LossMoments]] = {}
    for lam in lams:
        fits = solve_methods(data, epsilon, drawn, lam)
        exact[lam] = {
            method: ridge_setup.compute_losses(data, *part, lam) for method, part in fits.items()
        }
        seen[lam] = {
            method: ridge_setup.simulate_losses(data, *part, lam, runs, f"{seed} {method} {lam}")
            for method, part in fits.items()
        }
    return exact, seen


def draw_samples(data: RidgeData, epsilon: Floats, runs: int, seed: str) -> dict[str, SampledRows]:
    """Return samples of the rows for both thresholds."""
    thresholds = {"jorgensen_max": float(epsilon.max()), "jorgensen_mean": float(epsilon.mean())}
    return {
        name: SampledRows.draw(data, epsilon, t, runs, f"{seed} {name}")
        for name, t in thresholds.items()
    }


def solve_methods(
    data: RidgeData, epsilon: Floats, kept: Mapping[str, SampledRows], lam: float
) -> dict[str, tuple[Floats, Floats]]:
    """Returns solutions and rates of the three methods."""
    d = data.X.shape[1]
    drawn = {
        name: (
            ridge_setup.solve_ridge(sample.gram, sample.cross, lam),
            ridge_setup.compute_rate(lam, d, sample.total),
        )
        for name, sample in kept.items()
    }
    return {"pdp_op": ridge_setup.solve_personalised(data, epsilon, lam), **drawn}


def _describe_agreement(
    exact: dict[float, dict[str, LossMoments]], seen: dict[float, dict[str, LossMoments]], runs: int
) -> str:
    means, stds = (
        max(_find_largest_gap(exact, seen, kind) for kind in kinds)
        for kinds in (LOSSES, [f"{k}_std" for k in LOSSES])
    )
    return (
        f"Noise is integrated out; {runs:,} simulated runs a cell differ by at most {means:.1%} in "
        f"the mean and {stds:.1%} in the standard deviation."
    )


def _find_largest_gap(
    exact: dict[float, dict[str, LossMoments]], seen: dict[float, dict[str, LossMoments]], kind: str
) -> float:
    pairs = (
        (getattr(seen[lam][m], kind), getattr(exact[lam][m], kind))
        for lam in exact
        for m in METHODS
    )
    return max(abs(float(found / known) - 1) for found, known in pairs)


def speed(task: Task) -> Outcome:
    """Table 12's runs, all at once, against a loop over runs on some of its lines."""
    data = ridge_setup.load_medical(task.data)
    runs = task.choose(*RUNS)
    looped = task.choose(*LOOPED_RUNS)
    epsilon = ridge_setup.choose_typical(
        BudgetProfile().draw(len(data.y), MEDIAN_OF, "ridge medical budgets")
    )
    lams = ridge_setup.read_printed(PRINTED[12])["lambda"]
    began = time.process_time()
    compare_methods(data, epsilon, lams, runs, "ridge speed")
    together = time.process_time() - began
    began = time.process_time()
    for lam in lams[:LOOPED_LINES]:
        _run_loop(data, epsilon, lam, looped)
    alone = (time.process_time() - began) / (looped * LOOPED_LINES) * runs * len(lams)
    columns = (
        ResultColumn("processor seconds, all at once", (together,)),
        ResultColumn("processor seconds, a loop", (alone,)),
        ResultColumn("ratio", (alone / together,)),
    )
    told = (
        f"{len(lams)} lines × {runs:,} runs × {len(METHODS)} methods × {len(LOSSES)} losses take "
        f"{together:.1f} s of one processor. By what {looped} runs on {LOOPED_LINES} lines took, a "
        f"loop over runs takes {alone:.0f} s: {alone / together:.0f} times as long."
    )
    return Outcome(
        task.name,
        task.size,
        (ResultTable("Time for Table 12", "", ("here",), columns),),
        (),
        (told,),
    )


def _run_loop(data: RidgeData, epsilon: Floats, lam: float, runs: int) -> None:
    """One run after the other, as one would write it first."""
    rng = make_named_generator("ridge loop")
    (n, d) = data.X.shape
    for _ in range(runs):
        for t in (None, float(epsilon.max()), float(epsilon.mean())):
            if t is None:
                kept = np.ones(n, bool)
            else:
                kept = rng.random(n) < np.expm1(epsilon) / math.expm1(t)
            if t is None:
                weights = epsilon
            else:
                weights = kept * t
            share = weights / weights.sum()
            theta = np.linalg.solve(
                (data.X.T * share) @ data.X + lam * np.eye(d), (share * data.y) @ data.X
            )
            radius = rng.gamma(d, 1 / float(ridge_setup.compute_rate(lam, d, weights.sum())))
            direction = rng.normal(size=d)
            released = theta + radius * direction / np.linalg.norm(direction)
            float(np.mean((data.test_y - data.test_X @ released) ** 2) + lam * released @ released)
