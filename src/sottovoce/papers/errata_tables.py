# SPDX-License-Identifier: Apache-2.0
"""Where the papers on ridge regression, markets and user contributions are wrong as printed, one
line a counterexample (docs/theory/errata.md); the paper on per-instance privacy has
instance_claims.py.

Numbers are closed forms, or medians over the seeded draws of the experiments, small enough for a
page that is made in seconds; ``command`` names the experiment that has them in full.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import product

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import expit, ndtr

import sottovoce as sv
from sottovoce.arrays import Floats
from sottovoce.papers import market_claims as studies
from sottovoce.papers import market_published as market_paper
from sottovoce.papers import ridge_setup, users_claims
from sottovoce.papers.instance_claims import Erratum
from sottovoce.papers.market_claims import compute_unbounded_probability
from sottovoce.papers.report import Task
from sottovoce.papers.ridge_setup import BudgetProfile
from sottovoce.papers.ridge_tables import OTHER, PLAIN, SWEEPS, compute_line_losses, draw_line

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
LIMITING = "limiting over weights; print has a family that tends to 3/2, and at most 4"


def _make_erratum(
    command: str,
    place: str,
    setting: str,
    quantity: str,
    printed: float | None,
    exact: float,
    promised: bool = False,
) -> Erratum:
    return Erratum(place, setting, quantity, printed, exact, None, "", command, promised)


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
            promised=True,
        ),
        _make_erratum(
            "ridge/errata",
            "Sampling",
            "mean of two, t = 0.2, noise by the number sampled",
            "ε",
            promised,
            compute_sampled_mean_loss(0.2, promised),
            promised=True,
        ),
        _make_erratum(
            "ridge/errata",
            "Sampling",
            "ridge, d = 30, λ = 1000, t = ½, ten others",
            "ε",
            promised,
            compute_sampled_ridge_loss(10, 30, 1000.0, 0.5, promised),
            promised=True,
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
    payments = "Theorem A.3, last line"
    return [
        _make_erratum(
            "market/audit",
            "(10), by Proposition 1",
            setting,
            "δ at every ε",
            0.0,
            compute_unreachable_probability(),
            promised=True,
        ),
        _make_erratum(
            "market/lies",
            payments,
            lies,
            "sellers who gain by a lie",
            0.0,
            float(liars.gaining),
            promised=True,
        ),
        _make_erratum(
            "market/lies", payments, lies, "largest gain", 0.0, liars.largest_gain, promised=True
        ),
        _make_erratum(
            "market/appendix-c",
            "(34)",
            "no λ; η = 1",
            "P(no minimum)",
            None,
            compute_unbounded_probability(1.0),
        ),
        _make_erratum(
            "market/appendix-c",
            "(10)",
            "the same two, b = −1, η = 10⁻³",
            "a value that it takes",
            None,
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


#: The paper's own setting of breast cancer data: rows, ridge, and an ε that is promised.
PATIENTS = 398
RIDGE = 0.01
PROMISED = 0.01
#: The length of a model along the first axis at which two records, one across it and one against
#: it, reach nearly the whole charge; all others are 0.
REACHED_LENGTH = 10.0
REACHED_RECORDS = ((0.0, 1.0), (-1.0, 0.0))


def market_constants() -> list[Erratum]:
    """Constants of a bound, a charge that is dropped, two factors of 2, a set that is not
    convex.
    """
    printed = market_paper.constants_as_published(30, 5.0)
    by_proof = market_paper.constants_by_its_proof(30, 5.0)
    enough = sv.market.constants(30, norm=5.0)
    limit = studies.compute_theorem_3_4()[-1]
    bound = "β = 5, δ = δ' = 0.05, d = 30"
    charge = f"a = 1/m, m = {PATIENTS}, λ = {RIDGE:g}, aη = {PROMISED:g}"
    remark = "Remark after Algorithm 0"
    loose = PROMISED + 2 * math.log1p(1 / (PATIENTS * RIDGE))
    halfway = 2 * math.sqrt(
        0.9 * 0.1
    )  # Σe^z halfway between the logarithms of (.9, .1) and (.1, .9)
    here = "market/errata"
    steps = "by the steps of its proof"
    ours = "that is enough"
    convex = compute_convexity_condition()
    return [
        *(
            _make_erratum(here, "Theorem A.1", bound, f"{name}, {word}", one, other)
            for name, one, proved, best in zip("μσ", printed, by_proof, enough, strict=True)
            for word, other in ((steps, proved), (ours, best))
        ),
        _make_erratum(here, remark, charge, "ε, at most", PROMISED, compute_logistic_charge()),
        _make_erratum(
            here,
            remark,
            f"{charge}; records across and against w, |w| = {REACHED_LENGTH:g}, all others 0",
            "ε, at least",
            PROMISED,
            compute_reached_loss(),
        ),
        _make_erratum(here, "Proposition 1", charge, f"ε {ours}", loose, compute_logistic_charge()),
        _make_erratum(
            "market/theorem-3.4",
            "(29)",
            "pγ = 10⁻⁵, d = ‖b‖ = 5, δ = ½",
            "limit",
            limit.bound_29,
            limit.least,
        ),
        _make_erratum(here, "(30)", "‖x‖ = 1, any w", "λ_conv", convex / 2, convex),
        _make_erratum(
            here,
            "4.2, the set S",
            "halfway between a = (.9, .1) and (.1, .9)",
            "Σe^z",
            1.0,
            halfway,
        ),
    ]


def compute_logistic_charge() -> float:
    """Return the most that a record of weight 1/m loses: max_s aη(1+s)/2 + log(1 + a·s(1−s)/λ)."""
    weight = 1 / PATIENTS

    def gain(s: float) -> float:
        return -(PROMISED * (1 + s) / 2 + math.log1p(weight * s * (1 - s) / RIDGE))

    return -float(
        minimize_scalar(gain, bounds=(0, 1), method="bounded", options={"xatol": 1e-12}).fun
    )


def compute_reached_loss() -> float:
    """Return the log ratio of two densities at one model, all other records 0."""
    w = np.array([REACHED_LENGTH, 0.0])
    weight = 1 / PATIENTS
    logs = []
    for z in np.array(REACHED_RECORDS):
        s = float(expit(-z @ w))
        noise = weight * s * z - RIDGE * w
        logs.append(
            math.log1p(weight * s * (1 - s) / RIDGE)
            - PROMISED / weight / 2 * float(np.linalg.norm(noise))
        )
    return abs(logs[0] - logs[1])


def compute_convexity_condition() -> float:
    """Return the largest ‖x‖²·(ℓ'²/ℓ − ℓ'') over margins, ‖x‖ = 1, for the loss to base 2.

    λ must be above it, since ½λ‖w‖² bends by λ; (30) has 2λ.
    """

    def bend(margin: float) -> float:
        s = float(expit(-margin))
        return -(s**2 / float(np.logaddexp(0, -margin)) - s * (1 - s)) / math.log(2)

    return -float(
        minimize_scalar(bend, bounds=(-20, 5), method="bounded", options={"xatol": 1e-12}).fun
    )


def users_gaps() -> list[Erratum]:
    """Sample limiting against weights, and the noise of label-private regression."""
    s = np.array([1] * FEW + [ROWS] * MANY)
    setting = f"{FEW} people with 1 row, {MANY} with {ROWS}, σ²ε²/(2B²) = {STATISTICAL:g}"
    C = np.linalg.inv(np.array([[1.0, 1.0], [1.0, -1.0]]))
    rows = "one person with rows (1, 1) and (1, −1), C = X⁻¹"
    return [
        _make_erratum(
            "users/counterexample",
            "Theorems 2 and 3",
            setting,
            LIMITING,
            None,
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
        _make_erratum(
            "users/errata",
            "Claim 7",
            "X = (1, 1)ᵀ, C = (½, ½), n = 2",
            "rank of CᵀC",
            2.0,
            float(np.linalg.matrix_rank(np.full((2, 2), 0.25))),
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
            "users/table-2-noise",
            "Table 2",
            setting,
            "ε, at least",
            float(promised),
            kept or 0.0,
            promised=True,
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
