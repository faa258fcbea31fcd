"""Tables that this project does not ship and was not tuned on, with bounds that somebody could have
declared.

Two are real and come with scikit-learn; three are drawn anew for a seed, each with what real tables
have and uniform designs have not: heavy tails, many zeros, features that go along with each other.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from sklearn.datasets import load_iris, load_wine

import sottovoce as sv


@dataclass(frozen=True, eq=False)
class Sheet:
    """Features and a label with declared bounds, and everybody's own ε."""

    name: str
    X: np.ndarray
    y: np.ndarray
    features: tuple[np.ndarray, np.ndarray]
    label: tuple[float, float]
    epsilon: np.ndarray

    def __repr__(self) -> str:
        return self.name

    @property
    def bounds(self) -> sv.Bounds:
        return sv.Bounds(features=self.features, label=self.label)

    @property
    def clipped(self) -> np.ndarray:
        return np.clip(self.y, *self.label)


def grants(n: int, seed: int) -> np.ndarray:
    """A third of the people are careful, most are not, some do not mind."""
    return np.random.default_rng(seed).choice([0.1, 0.5, 1.0], n, p=[0.3, 0.4, 0.3])


def wine() -> Sheet:
    """178 wines: alcohol from the twelve other measurements, whose bounds are round numbers of the
    trade.
    """
    data = load_wine().data
    low = np.array([0.5, 1, 10, 60, 0.5, 0, 0, 0, 0, 0.3, 1, 200.0])
    high = np.array([6, 4, 40, 180, 4.5, 6, 0.8, 4, 14, 2, 4.5, 1800.0])
    return Sheet("wine", data[:, 1:], data[:, 0], (low, high), (10, 16), 4 * grants(len(data), 1))


def iris() -> Sheet:
    """150 flowers: the width of a petal from three other lengths, in cm."""
    data = load_iris().data
    limits = np.array([3.0, 1, 0]), np.array([10.0, 6, 9])
    return Sheet("iris", data[:, :3], data[:, 3], limits, (0, 4), 4 * grants(len(data), 2))


def costs(seed: int = 3, n: int = 4000) -> Sheet:
    """Costs with a heavy tail by age, body mass and an illness; bounds up to what an insurer pays
    at most.
    """
    rng = np.random.default_rng(seed)
    age = rng.uniform(18, 70, n)
    mass = rng.gamma(25, 1.1, n)
    ill = rng.random(n) < 0.2
    y = (60 * age + 90 * mass + 9000 * ill) * rng.lognormal(0, 0.6, n)
    limits = np.array([18.0, 10, 0]), np.array([90.0, 60, 1])
    return Sheet("costs", np.column_stack([age, mass, ill]), y, limits, (0, 60_000), grants(n, 4))


def visits(seed: int = 5, n: int = 6000) -> Sheet:
    """Counts of visits, two thirds of them zero, by age, distance and two yes-or-no questions."""
    rng = np.random.default_rng(seed)
    age = rng.uniform(0, 90, n)
    far = rng.exponential(8, n)
    yes = rng.random((n, 2)) < [0.4, 0.15]
    rate = np.exp(-1.6 + age / 60 - far / 25 + 0.5 * yes[:, 0] + 0.8 * yes[:, 1])
    X = np.column_stack([age, far, yes])
    return Sheet(
        "visits",
        X,
        rng.poisson(rate).astype(float),
        (np.zeros(4), np.array([100.0, 60, 1, 1])),
        (0, 12),
        grants(n, 6),
    )


def exams(seed: int = 7, n: int = 12_000) -> Sheet:
    """A final mark from six marks that go along with each other (their correlation is .6)."""
    rng = np.random.default_rng(seed)
    skill = rng.normal(0, 1, n)
    marks = np.clip(
        60 + 15 * (np.sqrt(0.6) * skill[:, None] + np.sqrt(0.4) * rng.normal(0, 1, (n, 6))), 0, 100
    )
    y = marks @ np.array([0.3, 0.2, 0.2, 0.1, 0.1, 0.0]) + 6 + rng.normal(0, 8, n)
    return Sheet("exams", marks, y, (np.zeros(6), np.full(6, 100.0)), (0, 100), grants(n, 8))


SHEETS = [wine, iris, costs, visits, exams]
