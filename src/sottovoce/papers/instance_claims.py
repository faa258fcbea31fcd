# SPDX-License-Identifier: Apache-2.0
"""Where "Per-instance Differential Privacy" is wrong as printed, one counterexample a line
(docs/theory/errata.md).

Each function holds formulas of instance_printed.py against instance_exact.py, at δ = 10⁻⁶ unless a
line says otherwise. All settings are written out: nothing here is drawn at random.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr

from sottovoce.arrays import Floats
from sottovoce.papers import instance_exact as paper
from sottovoce.papers.instance_exact import (
    GaussianLoss,
    NeighbourSide,
    PosteriorLoss,
    RidgeInstance,
    compute_group_privacy,
    compute_joint_delta,
    compute_marginal_delta,
    compute_normal_mean,
    make_neighbours,
)

DELTA = 1e-6
#: After these words the description of a printed formula says what is wrong with it.
MARK = "Wrong, see errata: "


@dataclass(frozen=True)
class Erratum:
    """A number as printed and as it is; for a loss, also the true δ at the printed ε.

    ``printed`` is None where the paper has no number, and ``promised`` says that it has a promise
    instead of a number, such as that no lie gains anything. ``formula`` prints it. ``command`` is
    the experiment that shows it.
    """

    place: str
    setting: str
    quantity: str
    printed: float | None
    exact: float
    true_delta: float | None
    formula: str
    command: str = "instance/errata"
    promised: bool = False


def describe_cause(formula: str) -> str:
    """Return what is wrong with a printed formula, as its description ends.

    >>> describe_cause("lemma_13_second_as_printed")
    'the sign is +.'
    """
    told = " ".join((inspect.getdoc(getattr(paper, formula)) or "").split())
    return told.partition(MARK)[2].split("``")[0].strip()


def make_one_column(
    rows: int, value: float, ridge: float, temperature: float, label: float
) -> RidgeInstance:
    """Return ``rows`` rows (value, value), and the record (1, label)."""
    data = np.full((rows, 1), value)
    return RidgeInstance(data, data[:, 0], np.ones(1), label, ridge, temperature)


def make_orthogonal_instance() -> RidgeInstance:
    """Return a thousand rows (e₁, 1), and the record (e₂, 1): nobody else speaks about its
    direction.
    """
    return RidgeInstance(
        np.tile([1.0, 0.0], (1000, 1)), np.ones(1000), np.array([0.0, 1.0]), 1.0, 10.0, 1e-4
    )


#: Data sets with a record to be added, by the words in which the table shows them.
INSTANCES = {
    "X = nine ones, y = ones, λ = γ = 1, z = (1, −1)": make_one_column(9, 1.0, 1.0, 1.0, -1.0),
    "X = 99 ones, y = ones, λ = 1, γ = 10, z = (1, −1)": make_one_column(99, 1.0, 1.0, 10.0, -1.0),
    "X = 99 ones, y = ones, λ = 1, γ = 100, z = (1, −1)": make_one_column(
        99, 1.0, 1.0, 100.0, -1.0
    ),
    "X = 0, λ = γ = 1, z = (1, 1)": make_one_column(1, 0.0, 1.0, 1.0, 1.0),
    "X = 0, λ = 0.01, γ = 500, z = (1, 1)": make_one_column(1, 0.0, 0.01, 500.0, 1.0),
    "X = 0, λ = 1, γ = 10⁻⁶, z = (1, 1)": make_one_column(1, 0.0, 1.0, 1e-6, 1.0),
    "1000 rows (e₁, 1), λ = 10, γ = 10⁻⁴, z = (e₂, 1)": make_orthogonal_instance(),
}
NINE, *_, FAR, COLD, ACROSS = INSTANCES


def gaussian_noise() -> list[Erratum]:
    """Lemma 4 and (3): noise of covariance A⁻¹/γ."""
    found = []
    for gamma, sensitivity in (("1/16", 1.0), ("1", 0.1), ("1", 1.0), ("100", 0.01)):
        noise = GaussianLoss(sensitivity, 1 / 16 if gamma == "1/16" else float(gamma))
        setting = f"γ = {gamma}, Δ = {sensitivity:g}"
        found.append(
            _compare_loss(
                "Lemma 4", setting, noise, paper.lemma_4_as_printed, sensitivity, noise.temperature
            )
        )
    found.append(_compare_loss("(3)", setting, noise, paper.equation_3_as_printed, sensitivity))
    return found


def theorem_14() -> list[Erratum]:
    """(7), (8) and Remark 15: one sample of a posterior."""
    found = []
    for setting, case in list(INSTANCES.items())[:5]:
        outside = (case.leverage, case.residual)
        inside = (case.share, case.error)
        gamma = case.temperature
        seven = paper.theorem_14_7_as_printed
        eight = paper.theorem_14_8_as_printed
        found.append(_compare_loss("Theorem 14, (7)", setting, case.loss, seven, *outside, gamma))
        found.append(_compare_loss("Theorem 14, (8)", setting, case.loss, eight, *inside, gamma))
    mixed = case.leverage, case.error, case.temperature
    found.append(_compare_loss("Remark 15", FAR, case.loss, paper.remark_15_as_printed, *mixed))
    return found


def proposition_16() -> list[Erratum]:
    """(9) and (10): everybody, and all data sets."""
    found = []
    for setting in (NINE, COLD):
        case = INSTANCES[setting]
        known = case.residual, case.temperature, case.ridge, case.smallest
        found.append(
            _compare_loss(
                "Proposition 16, (9)", setting, case.loss, paper.proposition_16_9_as_printed, *known
            )
        )
    case = INSTANCES[ACROSS]
    formula = paper.proposition_16_10_as_printed
    known_to_all = (len(case.y), case.ridge, case.temperature)
    found.append(_compare_loss("Proposition 16, (10)", ACROSS, case.loss, formula, *known_to_all))
    return found


def _compare_loss(
    place: str,
    setting: str,
    truth: GaussianLoss | PosteriorLoss,
    formula: Callable[..., float],
    *known: float,
) -> Erratum:
    printed = formula(*known, DELTA)
    return Erratum(
        place, setting, "ε", printed, truth.epsilon(DELTA), truth.delta(printed), formula.__name__
    )


def steps_of_proofs() -> list[Erratum]:
    """Lemma 24, the tail in the proof of Theorem 14, and Lemma 13."""
    setting = "p = N(0, ½), p' = N(0, 1): a posterior sample with μ = 1, r = 0"
    truth = PosteriorLoss(1.0, 0.0)
    return [
        _compare_loss("Lemma 24", setting, truth, paper.lemma_24_as_printed),
        *_compare_tails(),
        _compare_lemma_13(),
    ]


def _compare_tails() -> list[Erratum]:
    found = []
    for power, delta in (("⁻³", 1e-3), ("⁻⁶", 1e-6), ("⁻⁹", 1e-9)):
        true = 2 * float(ndtr(-paper.theorem_14_tail_as_printed(delta)))
        quantity = "P(|Z| > √log(2/δ))"
        formula = "theorem_14_tail_as_printed"
        found.append(
            Erratum("Theorem 14, proof", f"δ = 10{power}", quantity, delta, true, None, formula)
        )
    return found


def _compare_lemma_13() -> Erratum:
    """H = 3, the minimisers are 1/3 and 0, and at 0 the record's loss ½(y − xθ)² has gradient 1."""
    printed = float(paper.lemma_13_second_as_printed(np.array([[3.0]]), np.ones(1))[0])
    setting = "X = (1, 1), y = (1, 0), λ = 1, z = (1, −1)"
    return Erratum(
        "Lemma 13", setting, "θ̂ − θ̂'", printed, 1 / 3 - 0, None, "lemma_13_second_as_printed"
    )


def ada_ops_steps() -> list[Erratum]:
    """The steps of AdaOPS, one by one."""
    found = [_compare_regularisation()]
    for epsilon in (1.0, 4.0, 10.0):
        algorithm = paper.ada_ops_as_printed_with_max(1000, 1, 1.0, epsilon, DELTA)
        true = GaussianLoss(1.0, algorithm.noise_scale**-2).delta(epsilon / 2)
        where = f"λ̃ at ε = {epsilon:g}"
        found.append(_make_step_erratum(where, "δ of λ̃ at ε/2", DELTA / 2, true))
    true = float(ndtr(-math.sqrt(algorithm.log)))
    what = "P(λ̃ − λ_min > log(4/δ)/(ε/2))"
    found.append(_make_step_erratum("λ̃ at any ε", what, DELTA / 2, true))
    algorithm = paper.ada_ops_as_printed_with_max(1, 1, 1.0, 1.0, DELTA)
    case = make_one_column(1, 1.0, 0.0, 1.0, -1.0)
    found.append(
        _make_step_erratum(
            "(15): X = y = 1, λ = 0, z = (1, −1), d = κ = 1",
            "|y − xᵀθ̂|",
            algorithm.residual,
            case.residual,
        )
    )
    found.append(_compare_sample())
    return found


def _compare_regularisation() -> Erratum:
    algorithm = paper.ada_ops_as_printed(1000, 2, 2.0, 1.0, DELTA)
    square = 9.37e-10
    X = np.column_stack(
        [np.full(1000, math.sqrt(1 - square)), math.sqrt(square) * (-1.0) ** np.arange(1000)]
    )
    ridge = float(algorithm.ridge(np.linalg.eigvalsh(X.T @ X)[0]))
    truth = RidgeInstance(
        X, np.ones(1000), np.array([0.0, 1.0]), 1.0, ridge, algorithm.temperature
    ).loss
    setting = (
        "Algorithm 1: rows (√(1 − s²), ±s), s² = 9.37·10⁻¹⁰, n = 1000, κ = 2, ε = 1, z = (e₂, 1)"
    )
    exact = truth.epsilon(DELTA)
    delta = truth.delta(1.0)
    return Erratum("AdaOPS, min", setting, "ε", 1.0, exact, delta, "ada_ops_as_printed")


def _compare_sample() -> Erratum:
    """The smallest n that κd = 6 admits, and a record with as much weight as the algorithm lets it
    be.
    """
    rows = math.ceil(4 * 6 * (1 + math.log(4 / DELTA)))
    algorithm = paper.ada_ops_as_printed_with_max(rows, 1, 6.0, 1.0, DELTA)
    truth = PosteriorLoss(
        1 / algorithm.floor, math.sqrt(algorithm.temperature) * (1 + math.sqrt(6))
    )
    setting = f"θ̃ given λ̃: ε = 1, d = 1, κ = 6, n = {rows}, μ = κd/n, |r| = 1 + √(κd), at δ/2"
    return Erratum(
        "AdaOPS",
        setting,
        "ε",
        0.5,
        truth.epsilon(DELTA / 2),
        truth.delta(0.5),
        "ada_ops_as_printed_with_max",
    )


def _make_step_erratum(setting: str, quantity: str, printed: float, exact: float) -> Erratum:
    return Erratum("AdaOPS", setting, quantity, printed, exact, None, "ada_ops_as_printed_with_max")


def ada_ops_releases() -> list[Erratum]:
    """What AdaOPS with max releases, for rows (c, 1) and the record (1, −1): exact δ at the ε that
    is promised.
    """
    pairs = make_neighbour_pairs()
    found = [
        _make_release_erratum(setting, "δ of (λ̃, θ̃)", max(compute_joint_delta(*pair)))
        for setting, pair in pairs.items()
    ]
    setting, pair = list(pairs.items())[-1]
    alone = max(compute_marginal_delta(*pair))
    found.append(_make_release_erratum(setting, "δ of θ̃ alone", alone))
    return found


def make_neighbour_pairs() -> dict[str, tuple[NeighbourSide, NeighbourSide]]:
    """Neighbours for which AdaOPS with max breaks its promise, by the words in which the table
    shows them.
    """

    def algorithm(rows: int, condition: float, epsilon: float) -> paper.AdaOps:
        return paper.ada_ops_as_printed_with_max(rows, 1, condition, epsilon, DELTA)

    return {
        "ε = 15, κ = 1: 25 rows, c² = 0.9; n = 25 for both": make_neighbours(
            algorithm(25, 1.0, 15.0), 0.9, 25
        ),
        "ε = 20, κ = 1: 20 rows, c² = 0.9; n = 20 for both": make_neighbours(
            algorithm(20, 1.0, 20.0), 0.9, 20
        ),
        "ε = 12, κ = 1: 9999 rows, c = 1; n = 10000 for both": make_neighbours(
            algorithm(10000, 1.0, 12.0), 1.0, 9999
        ),
        "ε = 2, κ = 1: 1000 rows, c = 1; n = 1000 and 1001": make_neighbours(
            algorithm(1000, 1.0, 2.0), 1.0, 1000, algorithm(1001, 1.0, 2.0)
        ),
        "ε = 1.5, κ = 1: 10000 rows, c = 1; n = 10000 and 10001": make_neighbours(
            algorithm(10000, 1.0, 1.5), 1.0, 10000, algorithm(10001, 1.0, 1.5)
        ),
        "ε = 1, κ = 0.01: 999 rows, c = 1; n = 1000 for both": make_neighbours(
            algorithm(1000, 0.01, 1.0), 1.0, 999
        ),
    }


def _make_release_erratum(setting: str, quantity: str, exact: float) -> Erratum:
    return Erratum(
        "Proposition 17", setting, quantity, DELTA, exact, None, "ada_ops_as_printed_with_max"
    )


def utility() -> list[Erratum]:
    """Proposition 16.3 and 16.4: 200 rows e₁, e₂, e₃ in turn.

    406 or 6 runs at points that give means exactly.
    """
    X = np.eye(3)[np.arange(200) % 3]
    theta = np.array([0.5, -0.3, 0.2])
    sigma = 0.1
    gamma = 5.0
    ridge = 1.0
    setting = "rows e₁, e₂, e₃ in turn, n = 200, θ₀ = (0.5, −0.3, 0.2), σ = 0.1, γ = 5, λ = 1"
    error = paper.efficiency_as_printed(X.T @ X, ridge, gamma, sigma**2, theta)
    excess = paper.optimisation_error_as_printed(3, gamma)
    squared = compute_mean_squared_error(X, theta, sigma, gamma, ridge)
    risk = compute_mean_excess_risk(X, X @ theta, gamma, ridge)
    return [
        Erratum(
            "Proposition 16.3",
            setting,
            "E‖θ̃ − θ₀‖²",
            error,
            squared,
            None,
            "efficiency_as_printed",
        ),
        Erratum(
            "Proposition 16.4",
            setting,
            "E F(θ̃) − F(θ̂)",
            excess,
            risk,
            None,
            "optimisation_error_as_printed",
        ),
    ]


def draw_posterior_sample(
    X: Floats, y: Floats, gamma: float, ridge: float, normals: Floats
) -> Floats:
    """Return θ̃ ~ N(θ̂, H⁻¹/γ) as d independent normals make it."""
    hessian = X.T @ X + ridge * np.eye(X.shape[1])
    noise = np.linalg.solve(np.linalg.cholesky(hessian).T, normals)
    return np.asarray(np.linalg.solve(hessian, X.T @ y) + noise / math.sqrt(gamma))


def compute_mean_squared_error(
    X: Floats, theta: Floats, sigma: float, gamma: float, ridge: float
) -> float:
    """Return E‖θ̃ − θ₀‖² over labels N(Xθ₀, σ²) and the sample, from runs of the estimator."""
    n, d = X.shape

    def run(normals: Floats) -> float:
        sample = draw_posterior_sample(
            X, X @ theta + sigma * normals[:n], gamma, ridge, normals[n:]
        )
        return float(np.sum((sample - theta) ** 2))

    return compute_normal_mean(run, n + d)


def compute_mean_excess_risk(X: Floats, y: Floats, gamma: float, ridge: float) -> float:
    """Return E F(θ̃) − F(θ̂), F = ½‖y − Xθ‖² + ½λ‖θ‖², from runs of the estimator."""

    def risk(normals: Floats) -> float:
        theta = draw_posterior_sample(X, y, gamma, ridge, normals)
        return float(np.sum((y - X @ theta) ** 2) + ridge * theta @ theta) / 2

    return compute_normal_mean(risk, X.shape[1]) - risk(np.zeros(X.shape[1]))


def groups_and_generalisation() -> list[Erratum]:
    """Fact 6.4 and Proposition 11, on mechanisms with two outcomes."""
    epsilons = [0.0, math.log(2)]
    deltas = [0.01, 0.0]
    _, printed = paper.group_privacy_as_printed(epsilons, deltas)
    setting = "P(S) = 0, 0.01, 0.02 with none, one, two of a group: ε = 0, log 2; δ = 0.01, 0"
    group = Erratum(
        "Fact 6.4",
        setting,
        "δ̃",
        printed,
        compute_group_privacy(epsilons, deltas)[1],
        None,
        "group_privacy_as_printed",
    )
    chances = np.array([0.9, 0.1])
    losses = (np.zeros(2), np.array([0.0, 0.5]))
    target = (0.0, 0.5)
    bound = paper.proposition_11_as_printed(chances, losses, target)
    setting = (
        "n = 1, z' is z₀ with 0.9 or z₁ with 0.1, target z₁; θ = 1 with ½ from z₁, never from z₀; "
        "loss 1[θ = 1, z = z₁]"
    )
    return [
        group,
        Erratum(
            "Proposition 11",
            setting,
            "Gen",
            bound,
            compute_cross_domain_error(0.1, 0.5),
            None,
            "proposition_11_as_printed",
        ),
    ]


def compute_cross_domain_error(chance: float, success: float) -> float:
    """Return |E ρ(z')ℓ(θ, z') − E ℓ(θ, z₁)|: z' = z₁ with ``chance``, then ρ = 1/chance, θ = 1
    with ``success``.
    """
    return abs(chance * success / chance - chance * success)
