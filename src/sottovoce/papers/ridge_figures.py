# SPDX-License-Identifier: Apache-2.0
"""Figures 1 to 19 of the ridge paper, personal budgets against Jorgensen's sampling, and Theorem
2.5 against error.

Lines are medians over draws of what the authors did not fix (budgets; for synthetic data the data
too), bands hold 90 % of the draws, and marks are the numbers that the authors published beside
their code. Noise is integrated out.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from sottovoce.arrays import Floats
from sottovoce.papers import ridge_setup
from sottovoce.papers.plots import (
    Figure,
    Outcome,
    Panel,
    Reason,
    ResultColumn,
    ResultTable,
    Series,
    format_percentile,
)
from sottovoce.papers.report import Task, make_named_generator
from sottovoce.papers.ridge_setup import RUNS, LossMoments, RidgeData
from sottovoce.papers.ridge_tables import (
    HALVED,
    LOSSES,
    METHODS,
    OTHER,
    PLAIN,
    SAMPLING_WORDS,
    Sweep,
    compute_by_lambda,
    draw_line,
    draw_samples,
    solve_methods,
)

#: Draws of what the authors did not fix, and samples of Jorgensen's in each, for the full and the
#: small size.
DRAWS = (100, 10)
SAMPLES = (100, 20)
#: The part of the draws that a band leaves out at each side.
TAIL = 0.05
#: Failure probability at which Theorem 2.5 is looked at.
FAILURE = 0.05
#: Standard deviations beyond which a sum of budgets explains nothing; a normal law goes so far once
#: in 16,000 times.
PLAUSIBLE = 4.0
AXES = {"eps_c": "ε_c", "eps_m": "ε_m", "f_c": "f_c", "rows": "training rows", "lambda": "λ"}
MEAN = "mean"
STD = "standard deviation"


@dataclass(frozen=True)
class FigureSetting:
    """A figure: whose data, what varies, at which λ, and whether it shows means, standard
    deviations or both.
    """

    medical: bool
    key: str
    lam: float
    shows: tuple[str, ...]

    @property
    def sweep(self) -> Sweep:
        """The setting of its lines."""
        base = {"eps_c": HALVED, "eps_m": OTHER, "f_c": OTHER}.get(self.key, PLAIN)
        return Sweep(self.key, AXES[self.key], base, self.lam, self.medical)

    @property
    def kinds(self) -> dict[str, str]:
        """What each panel shows, and its title."""
        every = {(MEAN, loss): (loss, f"{word}, mean") for loss, word in LOSSES.items()}
        every |= {
            (STD, loss): (f"{loss}_std", f"{word}, standard deviation")
            for loss, word in LOSSES.items()
        }
        return dict(value for (what, _), value in every.items() if what in self.shows)


#: λ is printed for Figure 1 only; the others are in the names of the authors' files.
SHOWN = (
    (False, "eps_c", 50.0),
    (True, "eps_c", 1.0),
    (False, "eps_m", 50.0),
    (True, "eps_m", 1.0),
    (False, "f_c", 100.0),
    (True, "f_c", 0.9),
    (False, "rows", 100.0),
    (True, "rows", 1.0),
)
FIGURES = {
    1: FigureSetting(True, "f_c", 0.7, (MEAN, STD)),
    **{number: FigureSetting(*shown, (MEAN,)) for number, shown in enumerate(SHOWN, start=2)},
    10: FigureSetting(False, "lambda", math.nan, (STD,)),
    11: FigureSetting(True, "lambda", math.nan, (STD,)),
    **{number: FigureSetting(*shown, (STD,)) for number, shown in enumerate(SHOWN, start=12)},
}


def figure(task: Task) -> Outcome:
    """One of the Figures 1 to 19, with the authors' numbers as what was published."""
    number = int(task.name.rpartition("-")[2])
    drawing = FIGURES[number]
    published = read_author_numbers(drawing)
    if drawing.key == "lambda":
        draws = _compute_by_lambda(drawing, task)
    else:
        draws = compute_sweep(drawing, task, published["x"])
    columns = {
        (kind, method): _make_column(
            f"{title}, {SAMPLING_WORDS[method]}",
            draws[kind, method],
            published[_name_column(kind, method)],
        )
        for kind, title in drawing.kinds.items()
        for method in METHODS
    }
    lines = tuple(f"{x:g}" for x in published["x"])
    table = ResultTable(
        f"Numbers of Figure {number}", AXES[drawing.key], lines, tuple(columns.values())
    )
    table = ResultTable(
        table.title, table.key, lines, table.columns, _find_reasons(drawing, table, task)
    )
    panels = tuple(_make_panel(drawing, kind, draws, published) for kind in drawing.kinds)
    name = (
        f"Figure {number}: {'medical' if drawing.medical else 'synthetic'} data, by "
        f"{AXES[drawing.key]}"
    )
    told = (_describe_advantage(drawing, draws), *_note_lambda(number, drawing))
    return Outcome(task.name, task.size, (table,), (Figure(name, panels),), told)


def read_author_numbers(drawing: FigureSetting) -> Mapping[str, tuple[float, ...]]:
    """Return the authors' numbers for one figure, by column; ``x`` is what varies."""
    rows = [
        row
        for row in _read_authors()
        if (row["data"], row["sweep"])
        == ("medical" if drawing.medical else "synthetic", drawing.key)
        and (drawing.key != "lambda" or float(row["x"]) in _list_lambdas(drawing))
        and (drawing.key == "lambda" or float(row["lambda"]) == drawing.lam)
    ]
    return {
        head: tuple(float(row[head]) for row in rows)
        for head in rows[0]
        if head not in ("data", "sweep")
    }


@cache
def _read_authors() -> tuple[dict[str, str], ...]:
    path = Path(__file__).with_name("published") / "ridge_authors.csv"
    with path.open(encoding="utf-8", newline="") as file:
        return tuple(csv.DictReader(file))


def _list_lambdas(drawing: FigureSetting) -> tuple[float, ...]:
    if drawing.medical:
        name = "ridge_table_14_medical_lambda_std"
    else:
        name = "ridge_table_13_synthetic_lambda_std"
    return ridge_setup.read_printed(name)["lambda"]


def _name_column(kind: str, method: str) -> str:
    loss, _, std = kind.partition("_")
    return f"{loss}_{method}" + ("_std" if std else "")


def _compute_by_lambda(drawing: FigureSetting, task: Task) -> dict[tuple[str, str], Floats]:
    """The one draw of Tables 13 and 14, as a single line for each λ."""
    _, found, _ = compute_by_lambda(drawing.medical, task)
    return {
        (kind, method): np.array(
            [[float(getattr(found[lam][method], kind))] for lam in _list_lambdas(drawing)]
        )
        for kind in drawing.kinds
        for method in METHODS
    }


def compute_sweep(
    drawing: FigureSetting, task: Task, values: tuple[float, ...]
) -> dict[tuple[str, str], Floats]:
    """Returns, by kind of loss and method, a line for each value with one number for each draw."""
    found = []
    for place, value in enumerate(values):
        found.append(
            _compute_one_value(
                drawing.sweep, value, task.choose(*DRAWS), task.choose(*SAMPLES), task.data
            )
        )
        task.progress((place + 1) / len(values))
    kinds = [
        (kind, method) for kind in ("unreg", "reg", "unreg_std", "reg_std") for method in METHODS
    ]
    return {
        (kind, method): np.array(
            [[getattr(losses[method], kind) for losses in line] for line in found]
        )
        for kind, method in kinds
    }


@cache
def _compute_one_value(
    sweep: Sweep, value: float, count: int, runs: int, folder: Path | None
) -> list[dict[str, LossMoments]]:
    """The losses of all methods in each draw.

    Kept, because figures of means and deviations share them.
    """
    seed = f"ridge figures {sweep.name} {sweep.key} {value:g}"
    lines = []
    for number, (data, epsilon) in enumerate(draw_line(sweep, value, count, folder)):
        fits = solve_methods(
            data, epsilon, draw_samples(data, epsilon, runs, f"{seed} {number}"), sweep.lam
        )
        lines.append(
            {
                method: ridge_setup.compute_losses(data, *fit, sweep.lam)
                for method, fit in fits.items()
            }
        )
    return lines


def _make_column(name: str, draws: Floats, published: tuple[float, ...]) -> ResultColumn:
    if draws.shape[1] > 1:
        below = tuple((draws < np.array(published)[:, None]).mean(axis=1).tolist())
    else:
        below = ()
    return ResultColumn(name, tuple(np.median(draws, axis=1).tolist()), published, below)


def _find_reasons(drawing: FigureSetting, table: ResultTable, task: Task) -> tuple[Reason, ...]:
    reasons = []
    for column in table.columns:
        falls = dict(zip(table.lines, column.falls_at, strict=False))
        off = [line for name, line, _ in table.find_deviations() if name == column.name]
        among = tuple(line for line in off if 0 < (falls.get(line) or 0) < 1)
        if among:
            shares = [falls[line] or 0.0 for line in among]
            if drawing.medical:
                what = "budgets"
            else:
                what = "data and budgets"
            told = (
                f"The authors' {what} have no seed: their numbers lie above "
                f"{format_percentile(min(shares))} to "
            )
            reasons.append(
                Reason(column.name, f"{told}{format_percentile(max(shares))} of our draws.", among)
            )
        for line in (line for line in off if line not in among and drawing.key != "lambda"):
            far, told = _infer_budgets(drawing, table.lines.index(line), task)
            reasons += [Reason(column.name, told, (line,))] if far < PLAUSIBLE else []
    return tuple(reasons)


def _infer_budgets(drawing: FigureSetting, place: int, task: Task) -> tuple[float, str]:
    """Returns how many standard deviations from its mean Σε must have been for the authors' number,
    and says so.
    """
    published = read_author_numbers(drawing)
    sweep = drawing.sweep
    data, epsilon = draw_line(sweep, published["x"][place], 1, task.data)[0]
    theta, eta = ridge_setup.solve_personalised(data, epsilon, sweep.lam)
    quiet, loud = (
        ridge_setup.compute_losses(data, theta, rate, sweep.lam).reg
        for rate in (eta * math.inf, eta)
    )
    total = float(epsilon.sum()) * math.sqrt(
        (loud - quiet) / (published["reg_pdp_op"][place] - quiet)
    )
    profile = sweep.setting(published["x"][place])[0]
    (careful, middle) = profile.counts(len(epsilon))
    (low, between, high) = profile.levels
    n = len(epsilon)
    mean = (
        careful * (low + between) / 2
        + middle * (between + high) / 2
        + (n - careful - middle) * high
    )
    spread = math.sqrt((careful * (between - low) ** 2 + middle * (high - between) ** 2) / 12)
    far = abs(total - mean) / spread
    return far, (
        "The authors' budgets have no seed: their number for the personalised method implies Σε "
        f"= {total:.1f} on this "
        f"line, {far:.1f} standard deviations from the mean {mean:.1f}; every method follows it."
    )


def _make_panel(
    drawing: FigureSetting,
    kind: str,
    draws: Mapping[tuple[str, str], Floats],
    published: Mapping[str, tuple[float, ...]],
) -> Panel:
    x = published["x"]
    series = []
    for method in METHODS:
        low, ours, high = (
            tuple(q.tolist())
            for q in np.quantile(draws[kind, method], [TAIL, 0.5, 1 - TAIL], axis=1)
        )
        series.append(Series(SAMPLING_WORDS[method], method, x, ours))
        series.append(
            Series(
                f"{SAMPLING_WORDS[method]}, authors",
                method,
                x,
                published[_name_column(kind, method)],
                "marks",
            )
        )
        if method == "pdp_op" and low != high:
            series.append(Series("90 % of draws", method, x, low, "band", high))
    return Panel(
        drawing.kinds[kind],
        AXES[drawing.key],
        "test loss",
        tuple(series),
        log_x=drawing.key == "lambda",
    )


def _describe_advantage(drawing: FigureSetting, draws: Mapping[tuple[str, str], Floats]) -> str:
    """What the figure is for: how personal budgets compare with the better of the two samplings."""
    kind = next(iter(drawing.kinds))
    best = (
        np.minimum(draws[kind, "jorgensen_max"], draws[kind, "jorgensen_mean"])
        / draws[kind, "pdp_op"]
    )
    low = np.median(best, axis=1).min()
    high = np.median(best, axis=1).max()
    lost = int((best < 1).sum())
    return (
        f"Loss {drawing.kinds[kind]}: the better sampling has {low:.2f} to {high:.2f} times that "
        f"of personal budgets, by {AXES[drawing.key]}. It is lower in {lost} of {best.size} cases."
    )


def _note_lambda(number: int, drawing: FigureSetting) -> tuple[str, ...]:
    if number == 1 or drawing.key == "lambda":
        return ()
    return (
        f"λ = {drawing.lam:g}: the paper does not print it, the names of the authors' files do.",
    )


def accuracy(task: Task) -> Outcome:
    """Theorem 2.5's bound on ‖θ̂ − θ*‖ beside what happens, on the data of Table 1 (no noise in the
    labels).
    """
    data, epsilon = ridge_setup.match_published_draw()
    lams = ridge_setup.read_printed("ridge_table_01_synthetic_lambda_vs_uniform")["lambda"]
    rows = [_compute_bound_and_error(data, epsilon, lam, task.choose(*RUNS)) for lam in lams]
    names = (
        "bound",
        "measured, 95 % quantile",
        "measured, mean",
        "shrinkage alone",
        "bound / quantile",
    )
    columns = tuple(
        ResultColumn(name, column)
        for name, column in zip(names, zip(*rows, strict=True), strict=True)
    )
    length = float(np.linalg.norm(np.asarray(data.truth)))
    loosest = max(r[4] for r in rows)
    tightest = min(r[4] for r in rows)
    return Outcome(
        task.name,
        task.size,
        (
            ResultTable(
                f"Theorem 2.5 at δ = {FAILURE}", "λ", tuple(f"{lam:g}" for lam in lams), columns
            ),
        ),
        sentences=(
            f"The bound holds on every line. It is {tightest:.2f} to {loosest:.2f} times the 95 % "
            f"quantile of {task.choose(*RUNS):,} runs: Chebyshev's inequality pays for what the "
            "gamma distribution would give.",
            f"The mean error exceeds ‖θ*‖ = {length:.3f} on {sum(r[2] > length for r in rows)} of "
            f"{len(rows)} lines: noise and shrinkage leave nothing of the coefficients.",
        ),
    )


def _compute_bound_and_error(
    data: RidgeData, epsilon: Floats, lam: float, runs: int
) -> tuple[float, ...]:
    theta, eta = ridge_setup.solve_personalised(data, epsilon, lam)
    truth = np.asarray(data.truth)
    d = theta.shape[1]
    rng = make_named_generator(f"ridge theorem 2.5, {lam}")
    weights = epsilon / epsilon.sum()
    floor = float(np.linalg.eigvalsh((data.X * weights[:, None]).T @ data.X)[0])
    bound = float(np.linalg.norm(truth)) / (1 + floor / lam) + (
        d + math.sqrt(2 * d / FAILURE)
    ) / float(eta[0])
    noise = rng.normal(size=(runs, d))
    noise *= (rng.gamma(d, 1 / float(eta[0]), runs) / np.linalg.norm(noise, axis=1))[:, None]
    error = np.linalg.norm(theta + noise - truth, axis=1)
    high = float(np.quantile(error, 1 - FAILURE))
    return bound, high, float(error.mean()), float(np.linalg.norm(theta[0] - truth)), bound / high
