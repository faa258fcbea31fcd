# SPDX-License-Identifier: Apache-2.0
"""The setting of "Personalized Differential Privacy for Ridge Regression": data, budgets, and
losses of its methods.

Means and variances of the test loss are closed forms given the solution, because noise of density ∝
exp(−η‖z‖₂) has E‖Z‖² = d(d+1)/η² and E‖Z‖⁴ = d(d+1)(d+2)(d+3)/η⁴ in a uniform direction; runs are
simulated, all at once, to check them. Jorgensen's sampling is **as published, and not private**
under replacement (docs/theory/baselines.md).

    symbol    name
    λ, η      lam, rate of the noise
    θ̄         theta, the minimiser of Σ w_i(y_i − θᵀx_i)² + λ‖θ‖²
    S         second, XᵀX/N of the test rows
"""

from __future__ import annotations

import csv
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

import numpy as np
from sklearn.model_selection import train_test_split

from sottovoce.arrays import Floats
from sottovoce.errors import InvalidData
from sottovoce.papers.report import make_named_generator

#: The paper's synthetic data: 100 rows of 30 columns, a fifth of them for testing.
COLUMNS = 30
TRAIN = 80
TEST = 20
#: The seed of the authors' split of the medical data, and of their subsets of its training rows.
SPLIT_SEED = 21
TEST_SHARE = 0.2
MEDICAL = "insurance.csv"
NUMBERS = ("age", "bmi", "children")
FACTORS = ("sex", "smoker", "region")
LABEL = "charges"
#: What print says of the draw behind Tables 1, 11 and 13: Σε and the smallest ε; of its test rows
#: mean y², mean ‖x‖² and, from the standard deviations at large λ, ‖Xᵀy‖/N; and its regularised
#: loss without privacy at λ = 1.
MATCHED_TOTAL = 43.37
MATCHED_SMALLEST = 0.02345
MATCHED_LABELS = 2.43e-3
MATCHED_NORMS = 10.3
MATCHED_SLOPE = 0.0672
MATCHED_PLAIN = 2.01e-3
#: Draws of budgets and of test rows among which the likest is taken, and of training rows, of which
#: less is known.
CANDIDATES = 20_000
TRAINING_CANDIDATES = 400
#: Runs of noise that check the closed forms, for the full and the small size.
RUNS = (10_000, 500)
#: Where data are looked for when no folder is named.
DATA_VARIABLE = "SOTTOVOCE_DATA"
DATA_FOLDER = Path("../shared/data")


@dataclass(frozen=True, eq=False)
class RidgeData:
    """Rows to learn from and rows to test on, scaled as in the paper."""

    X: Floats
    y: Floats
    test_X: Floats
    test_y: Floats
    truth: Floats | None = None

    @cached_property
    def second(self) -> Floats:
        """XᵀX/N of the test rows."""
        return np.asarray(self.test_X.T @ self.test_X / len(self.test_y))

    @cached_property
    def cross(self) -> Floats:
        """Xᵀy/N of the test rows."""
        return np.asarray(self.test_X.T @ self.test_y / len(self.test_y))

    def loss(self, theta: Floats) -> Floats:
        """Return ‖y − Xθ‖²/N of the test rows for each line, as the quadratic form that it is."""
        constant = float(np.mean(self.test_y**2))
        return np.asarray(constant + (theta * (theta @ self.second - 2 * self.cross)).sum(axis=-1))

    @cached_property
    def products(self) -> Floats:
        """The entries of xxᵀ, a line for each training row."""
        return np.asarray((self.X[:, :, None] * self.X[:, None, :]).reshape(len(self.y), -1))

    def take_first(self, rows: int) -> RidgeData:
        """The authors' subset of so many training rows, a seeded split of them."""
        if rows == len(self.y):
            return self
        X, _, y, _ = train_test_split(self.X, self.y, train_size=rows, random_state=SPLIT_SEED)
        return RidgeData(X, y, self.test_X, self.test_y, self.truth)


@dataclass(frozen=True)
class BudgetProfile:
    """Shares of conservatives and mediums, and the three levels: ε is uniform between the levels,
    or the last.
    """

    conservative: float = 0.34
    medium: float = 0.43
    levels: tuple[float, float, float] = (0.01, 0.2, 1.0)

    def counts(self, rows: int) -> tuple[int, int]:
        """Return how many are conservative and how many medium."""
        # A share such as 0.1 + 0.2 must not lose a person to its last binary digit.
        return math.floor(self.conservative * rows + 1e-9), math.floor(self.medium * rows + 1e-9)

    def smallest_at_least(self, epsilon: float, rows: int) -> float:
        """Return the probability that nobody drew less than this, between the first two levels."""
        low, between, _ = self.levels
        return ((between - epsilon) / (between - low)) ** self.counts(rows)[0]

    def draw(self, rows: int, draws: int, seed: str) -> Floats:
        """Returns ``draws`` lines of budgets, conservatives first, then mediums, then liberals."""
        low, between, high = self.levels
        (careful, middle) = self.counts(rows)
        rng = make_named_generator(seed)
        epsilon = np.full((draws, rows), high)
        epsilon[:, :careful] = rng.uniform(low, between, (draws, careful))
        epsilon[:, careful : careful + middle] = rng.uniform(between, high, (draws, middle))
        return epsilon


def draw_synthetic(draws: int, seed: str) -> list[RidgeData]:
    """Return data sets with θ* uniform on the sphere, x uniform in the cube, y = xᵀθ*/√d without
    noise.
    """
    rng = make_named_generator(seed)
    return [
        _label_rows(rng.normal(size=COLUMNS), rng.random((TRAIN + TEST, COLUMNS)))
        for _ in range(draws)
    ]


def _label_rows(direction: Floats, rows: Floats) -> RidgeData:
    truth = direction / np.linalg.norm(direction) / math.sqrt(COLUMNS)
    labels = rows @ truth
    return RidgeData(rows[:TRAIN], labels[:TRAIN], rows[TRAIN:], labels[TRAIN:], truth)


def load_medical(folder: Path | None) -> RidgeData:
    """Return the medical cost data, min-max scaled, fully one-hot, with an intercept, split as by
    the authors.
    """
    named = os.environ.get(DATA_VARIABLE)
    path = (folder or (Path(named) if named else DATA_FOLDER)) / MEDICAL
    if not path.is_file():
        raise InvalidData(
            f"The medical cost data, {MEDICAL}, are not in the data folder.",
            "They are needed for this experiment and are not part of this package.",
            "Get the Medical Cost Personal Dataset (Lantz, Machine Learning with R; on Kaggle: "
            f"mirichoi0218/insurance) and name its folder, here or as {DATA_VARIABLE}.",
            parameter="data",
        )
    return _read_medical(path.resolve())


@cache
def _read_medical(path: Path) -> RidgeData:
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    columns = [_scale_column(rows, name) for name in NUMBERS] + [
        column for name in FACTORS for column in _encode_levels(rows, name)
    ]
    X = np.column_stack([*columns, np.ones(len(rows))])
    train_X, test_X, train_y, test_y = train_test_split(
        X, _scale_column(rows, LABEL), test_size=TEST_SHARE, random_state=SPLIT_SEED
    )
    return RidgeData(train_X, train_y, test_X, test_y)


def _scale_column(rows: list[dict[str, str]], name: str) -> Floats:
    # By the data's own extremes, as in the paper: its privacy proof does not cover this step.
    values = np.array([float(row[name]) for row in rows])
    return np.asarray((values - values.min()) / (values.max() - values.min()))


def _encode_levels(rows: list[dict[str, str]], name: str) -> list[Floats]:
    return [
        np.array([float(row[name] == level) for row in rows])
        for level in sorted({row[name] for row in rows})
    ]


def compute_rate(lam: float, d: int, total: float | Floats) -> Floats:
    """Return η = λ·Σε/(2√d(1 + √d·B)), B = min(1/√λ, √d/λ) (Theorem 2.1).

    ``total`` is Σε, or n·ε for all alike.
    """
    bound = min(1 / math.sqrt(lam), math.sqrt(d) / lam)
    return np.asarray(lam * np.asarray(total) / (2 * math.sqrt(d) * (1 + math.sqrt(d) * bound)))


def solve_weighted_ridge(data: RidgeData, weights: Floats, lam: float) -> Floats:
    """Return θ̄ for weights that sum to one; one line for each line of weights."""
    participating = np.atleast_2d(weights)
    gram = np.stack([(data.X.T * line) @ data.X for line in participating])
    return solve_ridge(gram, (participating * data.y) @ data.X, lam)


def solve_ridge(gram: Floats, cross: Floats, lam: float) -> Floats:
    """Return (G + λI)⁻¹c for each pair of the two stacks."""
    return np.asarray(
        np.linalg.solve(gram + lam * np.eye(gram.shape[-1]), cross[..., None])[..., 0]
    )


@dataclass(frozen=True, eq=False)
class LossMoments:
    """Mean and standard deviation of the unregularised and of the regularised test loss."""

    unreg: float
    reg: float
    unreg_std: float
    reg_std: float


def compute_losses(data: RidgeData, theta: Floats, eta: Floats, lam: float) -> LossMoments:
    """Return the moments of the loss over the noise, and over the lines of ``theta`` with their
    rates.
    """
    unreg, spread = compute_moments(data, theta, eta, 0.0)
    reg, wider = compute_moments(data, theta, eta, lam)
    # Total variance: within a line by the noise, between lines by who was sampled.
    stds = (math.sqrt(spread.mean() + unreg.var()), math.sqrt(wider.mean() + reg.var()))
    return LossMoments(float(unreg.mean()), float(reg.mean()), *stds)


def compute_moments(
    data: RidgeData, theta: Floats, eta: Floats, lam: float
) -> tuple[Floats, Floats]:
    """Return mean and variance over Z of ‖y − X(θ̄+Z)‖²/N + λ‖θ̄+Z‖², for each line of theta with
    its rate.
    """
    d = theta.shape[-1]
    form = data.second + lam * np.eye(theta.shape[-1])
    slope = data.cross - theta @ form
    squared = d * (d + 1) / eta**2
    fourth = d * (d + 1) * (d + 2) * (d + 3) / eta**4
    trace = float(np.trace(form))
    square = float(np.sum(form * form))
    mean = data.loss(theta) + lam * (theta**2).sum(axis=-1) + squared * trace / d
    by_slope = 4 * (slope**2).sum(axis=-1) * squared / d
    by_form = fourth * (2 * square + trace**2) / (d * (d + 2)) - (squared * trace / d) ** 2
    return mean, by_slope + by_form


def simulate_losses(
    data: RidgeData, theta: Floats, eta: Floats, lam: float, runs: int, seed: str
) -> LossMoments:
    """Return the moments of the loss as found in so many runs, with one line of theta for all or
    one for each.
    """
    rng = make_named_generator(seed)
    d = theta.shape[-1]
    directions = rng.normal(size=(runs, d))
    directions *= (rng.gamma(d, 1.0, runs) / eta / np.linalg.norm(directions, axis=1))[:, None]
    released = theta + directions
    unreg = data.loss(released)
    reg = unreg + lam * (released**2).sum(axis=1)
    return LossMoments(float(unreg.mean()), float(reg.mean()), float(unreg.std()), float(reg.std()))


@dataclass(frozen=True, eq=False)
class SampledRows:
    """Jorgensen's samples of the training rows: means of xxᵀ and xy in each, and t·n_sampled."""

    gram: Floats
    cross: Floats
    total: Floats

    @classmethod
    def draw(
        cls, data: RidgeData, epsilon: Floats, threshold: float, runs: int, seed: str
    ) -> SampledRows:
        """Keep row i with probability (e^ε_i − 1)/(e^t − 1), at most 1, in each run."""
        chance = np.minimum(np.expm1(epsilon) / math.expm1(threshold), 1.0).astype(np.float32)
        kept = (
            make_named_generator(seed).random((runs, len(epsilon)), dtype=np.float32) < chance
        ).astype(np.float64)
        counts = kept.sum(axis=1)
        d = data.X.shape[1]
        gram = (kept @ data.products / counts[:, None]).reshape(runs, d, d)
        return cls(gram, (kept * data.y) @ data.X / counts[:, None], threshold * counts)


def solve_personalised(data: RidgeData, epsilon: Floats, lam: float) -> tuple[Floats, Floats]:
    """Return solution and rate of PDP-OP, w ∝ ε, for each line of budgets."""
    lines = np.atleast_2d(epsilon)
    total = lines.sum(axis=1)
    return solve_weighted_ridge(data, lines / total[:, None], lam), compute_rate(
        lam, data.X.shape[1], total
    )


def solve_uniform(data: RidgeData, smallest: float | Floats, lam: float) -> tuple[Floats, Floats]:
    """Return solution and rate with everybody at the smallest ε."""
    n, d = data.X.shape
    return solve_weighted_ridge(data, np.full(n, 1 / n), lam), compute_rate(
        lam, d, n * np.atleast_1d(smallest)
    )


def compute_plain_loss(data: RidgeData, lam: float) -> float:
    """Return the test loss without privacy: least squares for λ = 0, else ridge with its
    penalty.
    """
    n = len(data.y)
    if not lam:
        theta = np.linalg.lstsq(data.X, data.y, rcond=None)[0]
        return float(np.mean((data.test_y - data.test_X @ theta) ** 2))
    theta = solve_weighted_ridge(data, np.full(n, 1 / n), lam)[0]
    return float(np.mean((data.test_y - data.test_X @ theta) ** 2) + lam * theta @ theta)


@cache
def match_published_draw() -> tuple[RidgeData, Floats]:
    """Return data and budgets that agree with what print tells about the draw behind Tables 1, 11
    and 13.
    """
    lines = BudgetProfile().draw(TRAIN, CANDIDATES, "ridge matched budgets")
    epsilon = lines[
        _find_likest((lines.sum(axis=1), MATCHED_TOTAL), (lines.min(axis=1), MATCHED_SMALLEST))
    ]
    rng = make_named_generator("ridge matched data")
    truths = rng.normal(size=(CANDIDATES, COLUMNS))
    rows = rng.random((CANDIDATES, TEST, COLUMNS))
    truths /= np.linalg.norm(truths, axis=1, keepdims=True) * math.sqrt(COLUMNS)
    labels = np.einsum("knd,kd->kn", rows, truths)
    slopes = np.linalg.norm(np.einsum("knd,kn->kd", rows, labels) / TEST, axis=1)
    norms = (rows**2).sum(axis=2).mean(axis=1)
    facts = (
        ((labels**2).mean(axis=1), MATCHED_LABELS),
        (norms, MATCHED_NORMS),
        (slopes, MATCHED_SLOPE),
    )
    best = _find_likest(*facts)
    training = make_named_generator("ridge matched training rows").random(
        (TRAINING_CANDIDATES, TRAIN, COLUMNS)
    )
    sets = [
        RidgeData(X, X @ truths[best], rows[best], labels[best], truths[best]) for X in training
    ]
    return sets[
        _find_likest((np.array([compute_plain_loss(data, 1.0) for data in sets]), MATCHED_PLAIN))
    ], epsilon


def _find_likest(*facts: tuple[Floats, float]) -> int:
    return int(np.argmin(sum((have / want - 1) ** 2 for have, want in facts)))


def choose_typical(lines: Floats) -> Floats:
    """Return the line of budgets whose sum is the median."""
    return np.asarray(lines[int(np.argsort(lines.sum(axis=1))[len(lines) // 2])])


@cache
def read_printed(name: str) -> Mapping[str, tuple[float, ...]]:
    """Return a published table by its columns, as printed."""
    path = Path(__file__).with_name("published") / f"{name}.csv"
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    return {head: tuple(float(row[head]) for row in rows) for head in rows[0]}
