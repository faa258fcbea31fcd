# SPDX-License-Identifier: Apache-2.0
"""Errata of the papers: ``python -m sottovoce.papers.errata > docs/theory/errata.md``.

Every number in its tables is computed, and a test holds docs/theory/errata.md against what this
file makes. For `sottovoce reproduce` the same tables are an experiment of each paper, such as
instance/errata.

Here are the papers on ridge regression, markets and user contributions; the paper on per-instance
privacy has instance_claims.py. Numbers are closed forms, or medians over the seeded draws of the
experiments, small enough for a page that is made in seconds; ``command`` names the experiment that
has them in full.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from itertools import product
from pathlib import Path
from string import ascii_lowercase

import numpy as np
from scipy.special import ndtr

import sottovoce as sv
from sottovoce.arrays import Floats
from sottovoce.papers import instance_claims, ridge_setup, users_claims
from sottovoce.papers import market_claims as studies
from sottovoce.papers import market_published as market_paper
from sottovoce.papers.instance_claims import Erratum, describe_cause
from sottovoce.papers.market_claims import compute_unbounded_probability
from sottovoce.papers.plots import Outcome, Reason, ResultColumn, ResultTable
from sottovoce.papers.report import Task
from sottovoce.papers.ridge_setup import BudgetProfile
from sottovoce.papers.ridge_tables import OTHER, PLAIN, SWEEPS, compute_line_losses, draw_line

#: Significant digits of a number, and of a δ that only shows how far off an ε is.
DIGITS = 5
ROUGHLY = 3
#: A smaller δ is not worth its digits.
TINY = 1e-99

#: A line «name» stands for the table that the function of this name in instance_claims.py or
#: errata.py makes.
PAGE = Path(__file__).with_name("errata_template.md").read_text("utf-8")
TABLE = re.compile(r"^«(\w+)»$", re.MULTILINE)
#: A table with the heading that it is under.
HEADED = re.compile(r"^#+ ([^\n]+)\n(?:(?!#)[^\n]*\n)*?«(\w+)»$", re.MULTILINE)
#: The paper that a table is about, by the name under which its experiments are called.
PAPER_OF = {
    name: next(
        (paper for paper in ("ridge", "market", "users") if name.startswith(paper)), "instance"
    )
    for name in TABLE.findall(PAGE)
}


def compute_errata() -> dict[str, list[Erratum]]:
    """Return every erratum, in the order of the page, by the function that computes it."""
    return {name: compute_table(name) for name in TABLE.findall(PAGE)}


@cache
def compute_table(name: str) -> list[Erratum]:
    """Return the lines of one table."""
    make = getattr(instance_claims, name, None) or globals()[name]
    found: list[Erratum] = make()
    return found


def make_errata_page() -> str:
    """Return the page as Markdown."""
    found = compute_errata()
    return TABLE.sub(lambda match: _write_table(found[match[1]]), PAGE)


def _write_table(lines: list[Erratum]) -> str:
    with_delta = any(line.true_delta is not None for line in lines)
    with_formula = any(line.formula for line in lines)
    optional = {"true δ": with_delta, "printed by": with_formula}
    names = [
        "where",
        "setting",
        "quantity",
        "printed",
        "exact",
        "true δ",
        "printed by",
        "`sottovoce reproduce`",
    ]
    kept = [place for place, name in enumerate(names) if optional.get(name, True)]
    rows = [[word.replace("|", r"\|") for word in _write_cells(line)] for line in lines]
    picked = ([words[place] for place in kept] for words in (names, ["---"] * len(names), *rows))
    return "\n".join(f"| {' | '.join(words)} |" for words in picked)


def _write_cells(line: Erratum) -> list[str]:
    if line.true_delta is None:
        delta = ""
    else:
        delta = format_digits(line.true_delta, ROUGHLY)
    numbers = [format_digits(line.printed), format_digits(line.exact), delta]
    return [
        line.place,
        line.setting,
        line.quantity,
        *numbers,
        f"`{line.formula}`",
        f"`{line.command}`",
    ]


def outcome(task: Task) -> Outcome:
    """The errata of one paper as an experiment; which paper, the name says."""
    titles = {match[2]: match[1] for match in HEADED.finditer(PAGE)}
    names = [name for name in titles if PAPER_OF[name] == task.name.partition("/")[0]]
    found = {name: compute_table(name) for name in names}
    tables = tuple(_compare_errata(titles[name], lines) for name, lines in found.items())
    settings = [
        f"{label}: {one.quantity} for {one.setting}."
        for lines in found.values()
        for label, one in _label_errata(lines)
    ]
    return Outcome(task.name, task.size, tables, (), tuple(settings))


def _label_errata(found: list[Erratum]) -> list[tuple[str, Erratum]]:
    """Return each erratum with a label of its own: its place in the paper, and a letter where it
    has several.
    """
    places = [one.place for one in found]
    letters = [f" {ascii_lowercase[places[:at].count(place)]}" for at, place in enumerate(places)]
    return [
        (one.place + letter * (places.count(one.place) > 1), one)
        for one, letter in zip(found, letters, strict=True)
    ]


def _compare_errata(title: str, found: list[Erratum]) -> ResultTable:
    lines = _label_errata(found)
    column = ResultColumn(
        "exact", tuple(one.exact for one in found), tuple(one.printed for one in found)
    )
    deltas = ResultColumn("true δ at the printed ε", tuple(one.true_delta for one in found))
    reasons = tuple(Reason("exact", _explain_erratum(one), (label,)) for label, one in lines)
    if any(deltas.ours):
        columns: tuple[ResultColumn, ...] = (column, deltas)
    else:
        columns = (column,)
    return ResultTable(title, "where", tuple(label for label, _ in lines), columns, reasons)


def _explain_erratum(one: Erratum) -> str:
    if one.formula:
        return f"Print is wrong: {describe_cause(one.formula)}"
    return f"Print is wrong or loose; see {one.command}."


def format_digits(value: float, significant: int = DIGITS) -> str:
    """Return a number with so many significant digits.

    >>> [format_digits(value) for value in (2436.87079, 1.27684e7, -1 / 3, 2.6e-309)]
    ['2436.9', '1.2768e7', '−0.33333', 'below 1e-99']
    """
    if 0 < value < TINY:
        return f"below {TINY:g}"
    mantissa, _, exponent = f"{abs(value):.{significant}g}".partition("e")
    return ("−" if value < 0 else "") + (f"{mantissa}e{int(exponent)}" if exponent else mantissa)


#: Draws behind a median: data and budgets of the ridge paper's synthetic tables have no seed.
DRAWS = 40
#: The table of standard deviations on medical data, its wrong line, and a line that can be trusted.
STANDARD_DEVIATIONS = "ridge_table_14_medical_lambda_std"
WRONG_LINE = 0.01
TRUSTED_LINE = 0.05
#: People with one row and with many, how many those have, and A of the objective: limiting is worse
#: than 3/2 there.
FEW = 5
MANY = 6
ROWS = 3000
STATISTICAL = 0.2
LIMITING = "limiting over weights"


def _make_erratum(
    command: str, place: str, setting: str, quantity: str, printed: float, exact: float
) -> Erratum:
    return Erratum(place, setting, quantity, printed, exact, None, "", command)


def ridge_misprints() -> list[Erratum]:
    """Tables 3, 9, 11 and 14 of the ridge paper."""
    data, epsilon = ridge_setup.match_published_draw()
    own = ridge_setup.compute_losses(data, *ridge_setup.solve_personalised(data, epsilon, 1.0), 1.0)
    eleven = ridge_setup.read_printed("ridge_table_11_synthetic_lambda_vs_jorgensen")
    first = eleven["lambda"].index(1.0)
    here = "λ = 1, personalised, on a draw like the authors'"
    return [
        _make_erratum(
            "ridge/table-11",
            "Table 11",
            here,
            "unregularised loss",
            eleven["unreg_pdp_op"][first],
            own.unreg,
        ),
        _make_erratum(
            "ridge/table-11",
            "Table 11",
            here,
            "regularised loss",
            eleven["reg_pdp_op"][first],
            own.reg,
        ),
        _compare_table_3(),
        _compare_table_9(),
        *_compare_table_14(),
    ]


def _compare_table_3() -> Erratum:
    printed = ridge_setup.read_printed("ridge_table_03_synthetic_eps_c")
    place = printed["eps_c"].index(0.3)
    found = [
        compute_line_losses(data, epsilon, SWEEPS[3].lam)[3]
        for data, epsilon in draw_line(SWEEPS[3], 0.3, DRAWS, None)
    ]
    setting = "ε_c = 0.3, one ε for all, median of draws"
    quantity = "regularised loss"
    return _make_erratum(
        "ridge/table-3",
        "Table 3",
        setting,
        quantity,
        printed["reg_uniform"][place],
        float(np.median(found)),
    )


def _compare_table_9() -> Erratum:
    """Which of the paper's two profiles has medians nearest to print, line by line."""
    printed = ridge_setup.read_printed("ridge_table_09_synthetic_fraction")["unreg_pdp_op"]
    nearest = min((PLAIN, OTHER), key=lambda profile: _measure_distance(profile, printed))
    setting = "share of conservatives, of two profiles the one with medians nearest to print"
    return _make_erratum(
        "ridge/table-9",
        "Table 9, caption",
        setting,
        "f_c",
        PLAIN.conservative,
        nearest.conservative,
    )


def _measure_distance(profile: BudgetProfile, printed: Sequence[float]) -> float:
    sweep = replace(SWEEPS[9], base=profile)
    lines = ridge_setup.read_printed("ridge_table_09_synthetic_fraction")["fraction"]
    medians = [
        np.median(
            [
                compute_line_losses(*pair, sweep.lam)[0]
                for pair in draw_line(sweep, value, DRAWS, None)
            ]
        )
        for value in lines
    ]
    return float(np.sum(np.log(np.array(medians) / np.array(printed)) ** 2))


def _compare_table_14() -> list[Erratum]:
    """What the next line and the column of the personalised imply: all three grow alike where noise
    is everything.
    """
    table = ridge_setup.read_printed(STANDARD_DEVIATIONS)
    wrong, trusted = (table["lambda"].index(lam) for lam in (WRONG_LINE, TRUSTED_LINE))
    grown = table["unreg_pdp_op"][wrong] / table["unreg_pdp_op"][trusted]
    return [
        _make_erratum(
            "ridge/table-14",
            "Table 14",
            f"λ = {WRONG_LINE:g}, sampled at t = {word}, by the line λ = {TRUSTED_LINE:g}",
            "standard deviation",
            table[f"unreg_jorgensen_{word}"][wrong],
            table[f"unreg_jorgensen_{word}"][trusted] * grown,
        )
        for word in ("max", "mean")
    ]


def ridge_claims() -> list[Erratum]:
    """An assumption that contradicts another, and what sampling people costs as it is published."""
    beyond = 2 * float(ndtr(-2.0))
    promised = 0.01
    return [
        _make_erratum(
            "ridge/errata",
            "Assumption 2.4",
            "σ = ½, xᵀθ* = 0; |y| ≤ 1 is assumed",
            "P(|y| > 1)",
            0.0,
            beyond,
        ),
        _make_erratum(
            "ridge/errata",
            "Sampling",
            "mean of two, t = 0.2, noise by the number sampled",
            "ε",
            promised,
            compute_sampled_mean_loss(0.2, promised),
        ),
        _make_erratum(
            "ridge/errata",
            "Sampling",
            "ridge, d = 30, λ = 1000, t = ½, ten others",
            "ε",
            promised,
            compute_sampled_ridge_loss(10, 30, 1000.0, 0.5, promised),
        ),
    ]


def compute_sampled_mean_loss(t: float, epsilon: float) -> float:
    """Return what sampling costs somebody who goes from 1 to 0 beside one who is always kept
    (baselines.md, (8)).
    """
    return _compute_mixture_ratio(t, epsilon, (t / 2 * math.exp(-t / 2), t, t * math.exp(-t)))


def compute_sampled_ridge_loss(others: int, d: int, lam: float, t: float, epsilon: float) -> float:
    """Return what it costs somebody who goes from (x, y) to (x, −y), x all ones, beside others at
    0.
    """
    rate = float(ridge_setup.compute_rate(lam, d, t))
    theta = math.sqrt(d) / (others + 1) / (d / (others + 1) + lam)
    both = float((others + 1) ** d)
    far = math.exp(-(others + 1) * rate * 2 * theta)
    return _compute_mixture_ratio(
        t, epsilon, (float(others**d) * math.exp(-others * rate * theta), both, both * far)
    )


def _compute_mixture_ratio(
    t: float, epsilon: float, densities: tuple[float, float, float]
) -> float:
    """The log ratio of two mixtures: dropped, kept with the one record, kept with the other."""
    kept = math.expm1(epsilon) / math.expm1(t)
    (dropped, one, other) = densities
    return math.log(((1 - kept) * dropped + kept * one) / ((1 - kept) * dropped + kept * other))


def market_claims() -> list[Erratum]:
    """Privacy, truth and a minimum, none of which the published market has."""
    liars = studies.count_liars_as_published()
    setting = "Appendix C's two sellers, one label changed, λ = 3, μ = γ = 0.1, σ = 1"
    lies = "30 sellers, costs in [1, 5], γ = 0.01, μ = 20, σ = 500"
    return [
        _make_erratum(
            "market/audit",
            "Theorem 2.1, with (10)",
            setting,
            "δ at every ε",
            0.0,
            compute_unreachable_probability(),
        ),
        _make_erratum(
            "market/lies",
            "Theorem 3.2",
            lies,
            "sellers who gain by a lie",
            0.0,
            float(liars.gaining),
        ),
        _make_erratum("market/lies", "Theorem 3.2", lies, "largest gain", 0.0, liars.largest_gain),
        _make_erratum(
            "market/appendix-c",
            "(34)",
            "no λ; η = 1",
            "P(no minimum)",
            0.0,
            compute_unbounded_probability(1.0),
        ),
        _make_erratum(
            "market/appendix-c",
            "(10)",
            "the same two, b = −1, η = 10⁻³",
            "least value, at most",
            0.0,
            _compute_low_value(),
        ),
    ]


def compute_unreachable_probability() -> float:
    """Return how probable w is on the data in bins that are never reached on the neighbour.

    |b| is exponential.
    """
    one, other = (
        studies.two_sellers_as_published(labels) for labels in (studies.LABELS, studies.NEIGHBOUR)
    )
    edges = np.concatenate([[-math.inf], one.turns, [math.inf]])
    chances = np.diff(
        np.where(edges < 0, np.exp(np.minimum(edges, 0)) / 2, 1 - np.exp(-np.maximum(edges, 0)) / 2)
    )
    bins, reached = (np.floor(line.coefficient / studies.BIN) for line in (one, other))
    return float(chances[~np.isin(bins, reached)].sum())


def _compute_low_value() -> float:
    """(10) at w = −2b/(λη), where 2bw/η + ½λw² is −2b²/(λη²)."""
    eta = 1e-3
    noise = -1.0
    virtual = (2 * studies.TWO_COSTS - studies.RANGE[0])[None]
    numbers = studies.TRADE_OFF, studies.MU, studies.SIGMA, studies.RIDGE
    problem = market_paper.PublishedProblems(
        studies.LABELS[:, None] * studies.X, virtual, np.array([[noise]]), *numbers
    )
    w = np.array([[-2 * noise / (studies.RIDGE * eta)]])
    return float(problem.at(np.arange(1)).value(np.full((1, 2), 0.5), np.array([[eta]]), w)[0])


def market_constants() -> list[Erratum]:
    """Constants of the bound, a factor of two, a charge that is dropped, and a set that is not
    convex.
    """
    printed = market_paper.constants_as_published(30, 5.0)
    right = sv.market.constants(30, norm=5.0)
    limit = studies.compute_theorem_3_4()[-1]
    rows = 398
    lam = 0.01
    promised = 0.01
    setting = "β = 5, δ = δ' = 0.05, d = 30"
    halfway = 2 * math.sqrt(
        0.9 * 0.1
    )  # Σe^z halfway between the logarithms of (.9, .1) and (.1, .9)
    return [
        _make_erratum("market/errata", "Theorem A.1", setting, "μ", printed[0], right[0]),
        _make_erratum("market/errata", "Theorem A.1", setting, "σ", printed[1], right[1]),
        _make_erratum(
            "market/theorem-3.4",
            "(29)",
            "pγ = 10⁻⁵, d = ‖b‖ = 5, δ = ½",
            "limit",
            limit.bound_29,
            limit.least,
        ),
        _make_erratum(
            "market/errata",
            "Theorem 2.1",
            f"a = 1/m, m = {rows}, λ = {lam:g}, with the term that is dropped",
            "ε",
            promised,
            promised + 2 * math.log1p(1 / (rows * lam)),
        ),
        _make_erratum(
            "market/errata",
            "Theorem 4.1",
            "halfway between a = (.9, .1) and (.1, .9)",
            "Σe^z",
            1.0,
            halfway,
        ),
    ]


def users_gaps() -> list[Erratum]:
    """Sample limiting against weights, and the noise of label-private regression."""
    s = np.array([1] * FEW + [ROWS] * MANY)
    setting = f"{FEW} people with 1 row, {MANY} with {ROWS}, σ²ε²/(2B²) = {STATISTICAL:g}"
    C = np.linalg.inv(np.array([[1.0, 1.0], [1.0, -1.0]]))
    rows = "one person with rows (1, 1) and (1, −1), C = X⁻¹"
    return [
        _make_erratum(
            "users/counterexample",
            "Theorem 2",
            setting,
            LIMITING,
            1.5,
            compare_limiting_with_weights(s, STATISTICAL),
        ),
        _make_erratum(
            "users/exact",
            "Theorem 6",
            rows,
            "b·ε/B that is enough",
            float(np.abs(C).sum()),
            compute_exact_sensitivity(C),
        ),
        *_compare_table_2(),
    ]


def _compare_table_2() -> list[Erratum]:
    """What the noise of the algorithm behind Table 2 keeps, if each of its steps is seen."""
    found = users_claims.table_2_noise(Task("users/table-2-noise", "small")).tables[0]
    surely = next(column.ours for column in found.columns if column.name == "ε is at least")
    setting = "502 people, 502² steps that are seen, δ = 0.1"
    return [
        _make_erratum(
            "users/table-2-noise", "Table 2", setting, "ε, at least", float(promised), kept or 0.0
        )
        for promised, kept in zip(found.lines, surely, strict=True)
    ]


def compare_limiting_with_weights(
    rows: np.ndarray[tuple[int], np.dtype[np.int64]], ratio: float
) -> float:
    """Return the least variance of sample limiting over that of the best weights, all ε equal."""
    weights = sv.optimal_weights(np.ones(len(rows)), rows, ratio)
    best = ratio * float(np.sum(weights**2 / rows)) + float(weights.max()) ** 2
    limits = np.arange(1, rows.max() + 1)
    kept = sum(
        count * np.minimum(limits, s)
        for s, count in zip(*np.unique(rows, return_counts=True), strict=True)
    )
    return float(np.min(ratio / kept + (limits / kept) ** 2)) / best


def compute_exact_sensitivity(C: Floats) -> float:
    """Return how far Cy moves in the 1-norm when all labels in C change by at most one: the worst
    of all signs.
    """
    return max(
        float(np.abs(np.array(signs) @ C).sum()) for signs in product((-1, 1), repeat=len(C))
    )


if __name__ == "__main__":
    sys.stdout.buffer.write(make_errata_page().encode("utf-8"))
