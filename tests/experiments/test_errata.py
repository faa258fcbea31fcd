"""Errata: printed formulas are the paper's, printed and exact numbers have the known digits, the
page is up to date.
"""

from __future__ import annotations

import inspect
import math
import subprocess
import sys
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from scipy.special import ndtr
from scipy.stats import gamma

from sottovoce.papers import errata_tables as others
from sottovoce.papers import instance_claims
from sottovoce.papers import instance_exact as paper
from sottovoce.papers import market_claims as studies
from sottovoce.papers.errata import (
    PAPER_OF,
    compute_errata,
    format_digits,
    make_errata_page,
    outcome,
)
from sottovoce.papers.instance_claims import describe_cause
from sottovoce.papers.instance_exact import (
    GaussianLoss,
    PosteriorLoss,
    bound_generalisation,
    compute_group_privacy,
    compute_normal_mean,
)
from sottovoce.papers.plots import Outcome
from sottovoce.papers.report import EXPERIMENTS, Task

PAGE = Path(__file__).resolve().parents[2] / "docs" / "theory" / "errata.md"
#: Made when it is first asked for, once a process.
found_errata = cache(compute_errata)
#: Beyond so many standard errors a simulation is taken to disagree: less than once in 10⁸ runs.
ERRORS = 6.0
pytestmark = pytest.mark.xdist_group("errata")

#: Printed, exact, true δ: the digits that were found before this code was written, in 60-digit
#: arithmetic, closed forms or other code. A dash: not noted. The last five of ada_ops_releases were
#: found with a plain trapezoidal rule. Of the other papers, printed numbers are as they stand in
#: print.
KNOWN = {
    "gaussian_noise": [
        "0.2342 1.0607 2.6e-2",
        "0.3747 0.3969 -",
        "3.747 4.887 1.2e-4",
        "3.75 0.397 -",
        "0.0375 0.3969 -",
    ],
    "theorem_14": [
        "3.1305 3.7242 1.3e-5",
        "2.7447 3.7242 6.5e-5",
        "2.6606 2.9997 9.5e-6",
        "2.6224 2.9997 -",
        "9.6080 11.0142 2.3e-5",
        "9.4755 11.0142 -",
        "11.160 15.232 -",
        "5.195 15.232 4.5e-3",
        "1822.4 2436.9 -",
        "8.165 2436.9 0.959",
        "783.9 2436.9 -",
    ],
    "proposition_16": ["3.2445 3.7242 -", "0.0038 10.932 0.165", "0.1733 0.91606 -"],
    "steps_of_proofs": [
        "5.6355 10.93 2.62e-4",
        "1e-3 5.8e-3 -",
        "1e-6 1.395e-4 -",
        "1e-9 3.696e-6 -",
        "-0.3333 0.3333 -",
    ],
    "ada_ops_steps": [
        "1 1.28e7 -",
        "5e-7 1.83e-6 -",
        "5e-7 1.5e-5 -",
        "5e-7 1.44e-4 -",
        "5e-7 4.8e-5 -",
        "1.414 2 -",
        "0.5 0.5075 -",
    ],
    "ada_ops_releases": [
        "1e-6 2.06e-6 -",
        "1e-6 1.75e-5 -",
        "1e-6 1.5005e-6 -",
        "1e-6 1.5849e-6 -",
        "1e-6 1.1301e-6 -",
        "1e-6 0.029629 -",
        "1e-6 0.02585 -",
    ],
    "utility": ["0.00061449 0.0093867 -", "0.6 0.3 -"],
    "groups_and_generalisation": ["0.01 0.02 -", "0.05 0.45 -"],
    "ridge_misprints": [
        "8.54e4 - -",
        "3.32e8 - -",
        "1.2 3 -",
        "0.34 0.54 -",
        "1.58e3 - -",
        "3.12e3 - -",
    ],
    "ridge_claims": ["0 0.0455 -", "0.01 0.0174 -", "0.01 0.103 -"],
    "market_claims": ["0 - -", "0 30 -", "0 1.37 -", "none - -", "none - -"],
    "market_constants": [
        "53.1 - -",
        "53.1 23.3 -",
        "10842 - -",
        "10842 570 -",
        "0.01 0.0684 -",
        "0.01 0.0659 -",
        "0.4583 0.0684 -",
        "0.238 0.326 -",
        "0.19 - -",
        "1 0.6 -",
    ],
    "users_gaps": ["none 1.56 -", "2 1 -", "2 1 -", "30 67 -", "40 378 -", "50 1190 -"],
}


def agrees(value: float | None, known: str) -> bool:
    """Whether a number has the digits that were noted, or is none where none is printed."""
    if value is None or known == "none":
        return value is None and known == "none"
    mantissa = known.lstrip("-").partition("e")[0].replace(".", "").lstrip("0")
    return float(f"{value:.{len(mantissa)}g}") == float(known)


@pytest.mark.parametrize(
    ("table", "line"),
    [(table, line) for table, lines in KNOWN.items() for line in range(len(lines))],
)
def test_printed_and_exact_numbers_have_the_known_digits(table, line):
    found = found_errata()[table][line]
    for value, known in zip(
        (found.printed, found.exact, found.true_delta), KNOWN[table][line].split(), strict=True
    ):
        assert known == "-" or agrees(value, known), (found, known)


def test_every_line_is_known_and_names_a_formula():
    assert {table: len(lines) for table, lines in found_errata().items()} == {
        table: len(k) for table, k in KNOWN.items()
    }
    for table, lines in found_errata().items():
        for found in lines if PAPER_OF[table] == "instance" else ():
            assert found.formula.endswith(("_as_printed", "_as_printed_with_max"))
            assert "Wrong, see errata" in inspect.getdoc(getattr(paper, found.formula))
            assert len(describe_cause(found.formula)) > 5


def test_every_line_has_a_command_of_its_paper_that_exists():
    """A paper whose experiments are not in the list yet is not asked about."""
    names = {experiment.name for experiment in EXPERIMENTS}
    papers = {e.paper.key for e in EXPERIMENTS}
    for table, lines in found_errata().items():
        for found in lines:
            key = found.command.partition("/")[0]
            assert key == PAPER_OF[table]
            assert found.command in names or found.command.endswith("/errata") or key not in papers


@pytest.mark.parametrize("key", ["instance", "ridge", "market", "users"])
def test_the_errata_of_a_paper_are_an_experiment_too(key, monkeypatch):
    monkeypatch.setattr("sottovoce.papers.errata.compute_table", found_errata().__getitem__)
    done = outcome(Task(f"{key}/errata", "small"))
    shown = [value for table in done.tables for value in table.columns[0].ours]
    assert shown == [
        line.exact
        for table, lines in found_errata().items()
        if PAPER_OF[table] == key
        for line in lines
    ]
    assert done.find_unexplained() == []
    assert all(len(set(table.lines)) == len(table.lines) for table in done.tables)
    assert Outcome.from_json(done.to_json()) == done
    assert len(done.sentences) == len(shown)


def test_the_page_is_what_the_code_makes():
    assert PAGE.read_text(encoding="utf-8") == make_errata_page()


def test_the_command_writes_the_page():
    command = [sys.executable, "-m", "sottovoce.papers.errata"]
    done = subprocess.run(command, capture_output=True, check=True, timeout=180)
    assert done.stdout.decode("utf-8") == make_errata_page()


def test_digits_do_not_depend_on_the_last_bits():
    """Every number of the page could move by 10⁻⁹ of itself and be written the same."""
    for found in (line for lines in found_errata().values() for line in lines):
        numbers = ((found.printed or 0.0, 5), (found.exact, 5), (found.true_delta or 0.0, 3))
        for value, shown in numbers:
            assert (
                format_digits(value * (1 + 1e-9), shown)
                == format_digits(value, shown)
                == format_digits(value * (1 - 1e-9), shown)
            )


#: The δ with log(2/δ) = 4, at which the paper's lines can be read off.
FOUR = 2 * math.exp(-4)


@pytest.mark.parametrize(
    ("found", "read"),
    [
        (paper.lemma_4_as_printed(3, 2, 1.25 * math.exp(-4)), 2 * 3 * 2),
        (paper.equation_3_as_printed(3, 1.25 * math.exp(-4)), 3 * 2),
        (paper.theorem_14_tail_as_printed(FOUR), 2),
        (paper.theorem_14_7_as_printed(1, -3, 4, FOUR), abs(-math.log(2) + 18) / 2 + 2 + 4 * 3),
        (paper.theorem_14_7_as_printed(1, 0, 4, FOUR), math.log(2) / 2 + 2),
        (paper.theorem_14_8_as_printed(0.5, -3, 8, FOUR), abs(math.log(2) - 72) / 2 + 1 + 4 * 3),
        (
            paper.theorem_14_8_as_printed(0.5, math.sqrt(math.log(2)), 1, FOUR) - 1,
            math.sqrt(2 * math.log(2)),
        ),
        (paper.remark_15_as_printed(9, -2, 4, FOUR), 4.5 * 5 + 0.5 * 4 * 1 * 4 + 12 * 2),
        (paper.proposition_16_9_as_printed(-3, 4, 1, 3, FOUR), 2 * 3 + 4 * 9 / 8 + 4 * 5 / 8),
        (paper.proposition_16_9_as_printed(3, 4, 0.25, 0, FOUR), 8 * 3 + 4 * 9 / 2 + 4 * 5 / 0.5),
        (paper.proposition_16_10_as_printed(14, 4, 0.25, FOUR), 1.5 + 36 / 4 / 16 + 0.25 * 5 / 8),
        (paper.proposition_16_10_as_printed(2, 0.5, 1, FOUR), math.sqrt(80) + 5 / 0.5 + 5 / 1),
        (
            paper.efficiency_as_printed(np.diag([1.0, 3.0]), 1, 4, 8, np.array([2.0, 4.0])),
            8 * 0.75 * 1.25 + 2,
        ),
        (paper.optimisation_error_as_printed(3, 5), 0.6),
        (paper.group_privacy_as_printed([math.log(2), math.log(3)], [0.1, 0.01])[1], 0.1 + 0.02),
        (
            paper.proposition_11_as_printed(np.ones(1), (np.ones(1), np.full(1, 0.1)), (2, 0.3)),
            math.expm1(3) + 0.4,
        ),
    ],
)
def test_formulas_are_as_printed(found, read):
    assert found == pytest.approx(read, rel=1e-14)


def test_ada_ops_is_as_printed():
    algorithm = paper.ada_ops_as_printed_with_max(600, 2, 3, 2, 4 * math.exp(-4))
    assert (algorithm.log, algorithm.noise_scale, algorithm.floor) == pytest.approx((4, 2, 100))
    assert algorithm.temperature == pytest.approx(
        min(600 * 4 / (16 * 9 * 4 * 4), 600 * 2 / (8 * 9 * 4))
    )
    assert algorithm.residual == pytest.approx(math.sqrt(12))
    assert algorithm.ridge(np.array([90.0, 104.0, 120.0])) == pytest.approx([14, 0, 0])
    least = paper.ada_ops_as_printed(600, 2, 3, 2, 4 * math.exp(-4))
    assert least.ridge(np.array([90.0, 104.0, 120.0])) == pytest.approx([0, 0, -16])
    assert algorithm.is_allowed
    assert not paper.ada_ops_as_printed(
        600, 2, 31, 2, 4 * math.exp(-4)
    ).is_allowed  # 600·2/(4·2·5) = 30


def test_lemma_24_has_the_tail_under_p_and_nowhere_else():
    """|log p/p'| > t is |θ| > √(2t + log 2); both laws are integrated here."""
    edge = math.sqrt(2 * paper.lemma_24_as_printed(1e-6) + math.log(2))
    assert 2 * ndtr(-edge * math.sqrt(2)) == pytest.approx(1e-6, rel=1e-9)
    assert 2 * ndtr(-edge) > 200 * 1e-6


def test_lemma_13_by_minimising():
    without = 1 / 3
    present = (1 + 0 - 1) / (3 + 1)
    assert found_errata()["steps_of_proofs"][-1].exact == without - present
    gradient = -(-1 - present)
    assert gradient / 3 == pytest.approx(without - present)


def test_group_privacy_really_has_that_delta():
    """P(S) = 0, .01, .02 is (0, .01)- and (log 2, 0)-close step by step, and .02 > e^(log 2)·0 +
    .01.
    """
    losses = [0.0, math.log(2)], [0.01, 0.0]
    # per cent
    none = 0
    one = 1
    two = 2
    assert all(abs(a - b) <= 1 for a, b in ((none, one), (100 - none, 100 - one)))
    assert all(
        a <= 2 * b
        for a, b in ((one, two), (two, one), (100 - one, 100 - two), (100 - two, 100 - one))
    )
    assert two > math.exp(math.log(2)) * none + 100 * paper.group_privacy_as_printed(*losses)[1]
    assert two <= math.exp(math.log(2)) * none + 100 * compute_group_privacy(*losses)[1] + 1e-12


def test_proposition_11_corrected_covers_its_counterexample():
    deltas = np.array([0.0] * 9 + [0.5])
    assert bound_generalisation(np.zeros(10), deltas, (0.0, 0.5)) == pytest.approx(0.55)
    assert instance_claims.compute_cross_domain_error(0.1, 0.5) == pytest.approx(0.45)


def test_ada_ops_counterexamples_are_allowed():
    for pair in instance_claims.make_neighbour_pairs().values():
        assert all(side.algorithm.is_allowed for side in pair)
    assert paper.ada_ops_as_printed(1000, 2, 2.0, 1.0, 1e-6).is_allowed


def test_losses_and_deltas_are_inverse():
    for truth in (GaussianLoss(1.0, 1 / 16), PosteriorLoss(0.1, 1.9)):
        assert truth.delta(truth.epsilon(1e-6)) == pytest.approx(1e-6, rel=1e-8)


def test_normal_mean_is_exact_for_quadratics():
    A = np.arange(9.0).reshape(3, 3)
    b = np.array([1.0, -2.0, 0.5])
    assert compute_normal_mean(lambda z: float(z @ A @ z + b @ z + 7), 3) == pytest.approx(
        np.trace(A) + 7, rel=1e-14
    )


def right_efficiency(X, theta, sigma, gamma, ridge):
    inverse = np.linalg.inv(X.T @ X + ridge * np.eye(len(theta)))
    variance = sigma**2 * np.trace(inverse @ X.T @ X @ inverse) + np.trace(inverse) / gamma
    return variance + ridge**2 * np.sum((inverse @ theta) ** 2)


def random_design():
    """Two hundred random directions; their numbers, .009441 and .000616, were found before this
    code was written.
    """
    X = np.random.default_rng(1).standard_normal((200, 3))
    return X / np.linalg.norm(X, axis=1, keepdims=True), np.array([0.5, -0.3, 0.2])


def test_efficiency_of_a_random_design():
    X, theta = random_design()
    exact = instance_claims.compute_mean_squared_error(X, theta, 0.1, 5.0, 1.0)
    assert exact == pytest.approx(right_efficiency(X, theta, 0.1, 5.0, 1.0), rel=1e-10)
    printed = paper.efficiency_as_printed(X.T @ X, 1.0, 5.0, 0.01, theta)
    assert exact == pytest.approx(0.009441, abs=6e-7)
    assert printed == pytest.approx(0.000616, abs=6e-7)
    assert exact / printed > 15


def test_efficiency_and_excess_risk_by_simulation():
    X, theta = random_design()
    rng = np.random.default_rng(8)
    draws = 40_000
    sigma = 0.1
    gamma = 5.0
    ridge = 1.0
    hessian = X.T @ X + ridge * np.eye(3)
    estimates = np.linalg.solve(
        hessian, X.T @ (X @ theta + sigma * rng.standard_normal((draws, 200))).T
    ).T
    noise = np.linalg.solve(
        np.linalg.cholesky(hessian).T, rng.standard_normal((3, draws))
    ).T / math.sqrt(gamma)
    squared = np.sum((estimates + noise - theta) ** 2, axis=1)
    excess = np.einsum("ij,jk,ik->i", noise, hessian, noise) / 2  # F is quadratic about its minimum
    assert _within(
        squared, instance_claims.compute_mean_squared_error(X, theta, sigma, gamma, ridge)
    )
    assert _within(excess, instance_claims.compute_mean_excess_risk(X, X @ theta, gamma, ridge))
    assert not _within(squared, paper.efficiency_as_printed(X.T @ X, ridge, gamma, sigma**2, theta))
    assert not _within(excess, paper.optimisation_error_as_printed(3, gamma))


def _within(sample, mean):
    return abs(sample.mean() - mean) < ERRORS * sample.std() / math.sqrt(len(sample))


def exact_of(table):
    return [line.exact for line in found_errata()[table]]


def test_misprints_of_the_ridge_paper_are_exponents_of_ten():
    """With the right exponents print is within 6 % of ours in Table 11, and within 10 % in Table
    14.
    """
    unreg, reg, three, _, largest, mean = exact_of("ridge_misprints")
    assert unreg == pytest.approx(8.54e2, rel=0.06)
    assert reg == pytest.approx(3.32e3, rel=0.06)
    assert 2.5 < three < 4
    assert largest == pytest.approx(1.58e5, rel=0.1)
    assert mean == pytest.approx(3.12e5, rel=0.1)


def test_sampling_costs_what_an_integral_over_outputs_says():
    """The mean of two at x = ½, and nowhere more: mixtures of Laplace densities on a grid."""
    t = 0.2
    epsilon = 0.01
    kept = math.expm1(epsilon) / math.expm1(t)
    x = np.linspace(-3, 4, 7001)

    def law(value):
        def density(k, centre):
            return k * t / 2 * np.exp(-k * t * np.abs(x - centre))

        return (1 - kept) * density(1, 0.0) + kept * density(2, value / 2)

    worst = float(np.abs(np.log(law(1.0) / law(0.0))).max())
    assert others.compute_sampled_mean_loss(t, epsilon) == pytest.approx(worst, rel=1e-6)


def test_the_published_market_releases_what_its_neighbour_never_does():
    """Half a million draws: the share within six standard errors of the computed one, and none on
    the neighbour.
    """
    chance = others.compute_unreachable_probability()
    rng = np.random.default_rng(11)
    ends = []
    for labels in (studies.LABELS, studies.NEIGHBOUR):
        line = studies.two_sellers_as_published(labels)
        b = rng.laplace(size=500_000)
        ends.append(np.floor(line.coefficient[line.choose_corners(b)] / studies.BIN))
    share = float(np.mean(~np.isin(ends[0], ends[1])))
    assert (
        abs(share - chance) < ERRORS * math.sqrt(chance / 500_000) + 1e-3
    )  # bins that are rare on the neighbour
    assert studies.audit_as_published(200_000).hits / 100_000 == pytest.approx(
        chance, abs=ERRORS * 1e-3
    )


def test_the_published_objective_is_that_far_down():
    """(10) written out at the place that is named, with equal weights."""
    w = 2 / (3 * 1e-3)
    eta = 1e-3
    value = (
        math.log1p(math.exp(-w))
        + 1.5 * w**2
        - 2 * w / eta
        + 0.1 * math.sqrt(0.5)
        + 1 / eta
        + 0.1 * eta * 0.7
    )
    assert exact_of("market_claims")[-1] == pytest.approx(value, rel=1e-12)


def test_limiting_rows_costs_more_than_three_halves():
    """Both variances of the counterexample, over thresholds and over weights, by brute force."""
    rows = np.array([1] * others.FEW + [others.ROWS] * others.MANY)
    ratio = others.STATISTICAL

    def value(h, weighted):
        participating = np.minimum(h, rows)
        total = participating.sum()
        if weighted:
            first = (participating**2 / rows).sum() / total**2
        else:
            first = 1 / total
        return ratio * first + (h / total) ** 2

    limited = min(value(h, False) for h in range(1, others.ROWS + 1))
    best = min(value(h, True) for h in np.geomspace(1, others.ROWS, 20_000))
    assert exact_of("users_gaps")[0] == pytest.approx(limited / best, rel=1e-4)
    assert limited / best > 1.55


def test_the_papers_own_example_tends_to_three_halves():
    """Example 2 at g = 2000: g people with one row, g with g, and 2(B/ε)² = g."""
    g = 2000
    found = others.compare_limiting_with_weights(np.array([1] * g + [g] * g), 1 / g)
    assert 1.49 < found < 1.51


def test_labels_move_the_answer_no_further_than_the_worst_signs():
    C = np.linalg.inv(np.array([[1.0, 1.0], [1.0, -1.0]]))
    corners = [np.abs(C @ np.array([a, b])).sum() for a in (-1, 0, 1) for b in (-1, 0, 1)]
    assert max(corners) == others.compute_exact_sensitivity(C) == 1.0


def test_constants_of_the_market_by_the_steps_of_its_proof():
    """2R̂ + 3 roots, with R̂ = β/ln 2·‖a‖ + βv/η and the root of (25), written out."""
    beta, failure, d = 5.0, 0.05, 30
    v = 2 * gamma.ppf(1 - failure, d)
    root = math.sqrt(math.log(1 / failure) / 2)
    mu = 2 * beta / math.log(2) + 3 * root * math.log2(1 + math.exp(beta))
    sigma = 2 * beta * v + 3 * root * 2 * beta * v
    found = exact_of("market_constants")
    assert (found[0], found[2]) == pytest.approx((mu, sigma))
    assert found[1] < mu
    assert found[3] < sigma


def test_the_dropped_term_is_lost_and_no_more_than_the_charge():
    """Densities of the two data sets at the model, and attacks by random search."""
    most, least = exact_of("market_constants")[4:6]
    assert 0.9 * most < least < most
    assert least > 6 * others.PROMISED
    rng = np.random.default_rng(3)
    weight, lam = 1 / others.PATIENTS, others.RIDGE
    rate = others.PROMISED / weight

    def log_density(w, rows):
        s = 1 / (1 + np.exp(rows @ w))
        b = weight * s @ rows - lam * w
        bend = lam * np.eye(2) + weight * (rows.T * (s * (1 - s))) @ rows
        return np.linalg.slogdet(bend)[1] - rate / 2 * np.linalg.norm(b)

    def draw(size):
        rows = rng.normal(size=(size, 2))
        return rows / np.linalg.norm(rows, axis=1, keepdims=True)

    for _ in range(300):
        rest, one, other = draw(5), draw(1), draw(1)
        w = rng.normal(size=2) * rng.choice([0.5, 3.0, 20.0])
        pair = [log_density(w, np.vstack([rest, z])) for z in (one, other)]
        assert abs(pair[0] - pair[1]) <= most
    axes = np.array(others.REACHED_RECORDS)
    model = np.array([others.REACHED_LENGTH, 0.0])
    reached = log_density(model, axes[:1]) - log_density(model, axes[1:])
    assert abs(reached) == pytest.approx(least, rel=1e-9)


def test_half_of_the_right_ridge_is_not_convex_and_the_right_one_is():
    """Hessians of e^z·log₂(1 + e^(−w)) + ½λw² in (z, w), by margins."""
    printed, right = (
        getattr(found_errata()["market_constants"][8], name) for name in ("printed", "exact")
    )
    assert right == pytest.approx(2 * printed)

    def least(lam):
        margins = np.linspace(-10, 5, 3001)
        s = 1 / (1 + np.exp(margins))
        loss = np.logaddexp(0, -margins)
        hessians = np.array([[loss, -s], [-s, s * (1 - s)]]) / math.log(2)
        hessians[1, 1] += lam
        return min(np.linalg.eigvalsh(hessian)[0] for hessian in hessians.transpose(2, 0, 1))

    assert least(1.05 * printed) < -1e-3
    assert least(0.99 * right) < 0
    assert least(1.001 * right) > 0


def test_claim_7_is_repaired_by_a_projection():
    rng = np.random.default_rng(4)
    X = rng.normal(size=(9, 3))
    inverse = np.linalg.inv(X.T @ X) @ X.T
    complement = np.eye(9) - X @ inverse
    C = inverse + rng.normal(size=(3, 9)) @ complement
    assert pytest.approx(np.eye(3), abs=1e-12) == C @ X
    assert np.linalg.matrix_rank(C.T @ C) == 3
    precision = C.T @ C + complement
    assert np.linalg.matrix_rank(precision) == 9
    generalised = np.linalg.solve(X.T @ precision @ X, X.T @ precision)
    assert generalised == pytest.approx(C, abs=1e-10)


def test_what_no_paper_prints_is_not_called_printed():
    page = PAGE.read_text(encoding="utf-8")
    for place in ("| (34) |", "| (10) |", "| Theorems 2 and 3 |"):
        (line,) = [line for line in page.splitlines() if line.startswith(place)]
        assert "| no number |" in line
