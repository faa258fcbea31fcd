# SPDX-License-Identifier: Apache-2.0
"""The demonstration's data, people and questions, and what other ways of treating them would give.

The data are the 442 patients of the diabetes study that comes with scikit-learn (Efron, Hastie,
Johnstone and Tibshirani 2004). They are public, so exact answers may be shown beside private ones; no
other command ever does that. Budgets are invented, by a rule that anybody can repeat.
"""

from __future__ import annotations

import io
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_diabetes

import sottovoce as sv

if TYPE_CHECKING:
    from sottovoce.release import Release

#: Body-mass index of adults: beyond these limits of clinical tables hardly anybody lives.
LOW, HIGH = 10.0, 60.0
#: Guesses from national surveys: their standard deviation, and the part of the limits that adults fill.
SPREAD, FILLED = 5.0, 0.5
QUARTILES = (0.25, 0.5, 0.75)
#: Two questions are asked, so each may cost everybody half of what they allow in all.
QUESTIONS = 2


@dataclass(frozen=True)
class Tier:
    """People who allow the same ε, and how many of a hundred they are."""

    name: str
    percent: int
    epsilon: float


TIERS = (Tier("careful", 34, 0.1), Tier("middle", 43, 0.5), Tier("open", 23, 2.0))


@dataclass(frozen=True)
class Asked:
    """A question of the study: its name, the command that asks it, and the exact answers."""

    key: str
    question: Any
    words: str
    options: str
    names: tuple[str, ...]
    exact: tuple[float, ...]


@dataclass(frozen=True)
class Answer:
    """One released number, the error that was to be expected, and the exact number."""

    name: str
    released: float
    error: str
    exact: float


@dataclass(frozen=True)
class Way:
    """One way to treat the same people: how many are heard, and the errors to expect."""

    name: str
    people: int
    mean_error: float
    quartile_error: float


def tier_of(row: int) -> Tier:
    """Returns the tier of a patient by row number alone: no chance, and nothing to do with their values."""
    place = row * 37 % 100  # 37 and 100 share no factor, so tiers alternate and keep their percentages
    careful, middle, free = TIERS
    return careful if place < careful.percent else middle if place < careful.percent + middle.percent else free


class Study:
    """The patients, and the two questions about their body-mass index."""

    def __init__(self) -> None:
        data = load_diabetes(scaled=False)
        self.bmi: NDArray[np.float64] = data.data[:, data.feature_names.index("bmi")]
        self.tiers = [tier_of(row) for row in range(len(self.bmi))]
        self.mean = Asked(
            "mean",
            sv.Mean(bounds=(LOW, HIGH), spread=SPREAD),
            "mean",
            f"--spread {SPREAD:g}",
            ("mean",),
            (float(self.bmi.mean()),),
        )
        self.quartiles = Asked(
            "quartiles",
            sv.Quantile(q=list(QUARTILES), bounds=(LOW, HIGH), spread=FILLED),
            "quantile",
            " ".join(f"--q {q:g}" for q in QUARTILES) + f" --spread {FILLED:g}",
            ("lower quartile", "median", "upper quartile"),
            tuple(np.quantile(self.bmi, QUARTILES).tolist()),
        )

    @property
    def questions(self) -> tuple[Asked, Asked]:
        """Both questions, in the order in which they are asked."""
        return self.mean, self.quartiles

    @property
    def people(self) -> int:
        """How many patients there are."""
        return len(self.bmi)

    def members(self, tier: Tier) -> list[str]:
        """The patients of a tier, by number."""
        return [name(row) for row, mine in enumerate(self.tiers) if mine is tier]

    def csv(self) -> str:
        """The table as a curator would keep it: whose row, the value, what they allow in all and a question."""
        lines = io.StringIO()
        lines.write("id,bmi,epsilon,epsilon_each\n")
        for row, (value, tier) in enumerate(zip(self.bmi.tolist(), self.tiers, strict=True)):
            lines.write(f"{name(row)},{value:g},{tier.epsilon:g},{tier.epsilon / QUESTIONS:g}\n")
        return lines.getvalue()

    def answers(self, asked: Asked, release: Release) -> list[Answer]:
        """The released numbers beside the exact ones."""
        values, errors = np.atleast_1d(release.value).tolist(), np.atleast_1d(release.expected_error).tolist()
        told = [f"{e:.1%} of the people" if asked is self.quartiles else f"{e:.2f} points" for e in errors]
        return [Answer(*line) for line in zip(asked.names, values, told, asked.exact, strict=True)]

    @cached_property
    def ways(self) -> list[Way]:
        """The same questions with personal budgets, and as one would have to ask them with one ε for all."""
        careful, middle, free = TIERS
        own = np.array([tier.epsilon for tier in self.tiers])
        return [
            self._way("each with their own ε", own),
            self._way(f"everybody at the strictest ε, {careful.epsilon:g}", np.full(self.people, careful.epsilon)),
            self._way(
                f"careful left out, others at {middle.epsilon:g}",
                np.full(int((own > careful.epsilon).sum()), middle.epsilon),
            ),
            self._way(f"only the open ones, at {free.epsilon:g}", own[own == free.epsilon]),
        ]

    def lessons(self) -> list[str]:
        """What the comparison says and does not say, in sentences."""
        own, strictest = self.ways[0], self.ways[1]
        return [
            f"What {self.people} people can buy: their mean body-mass index to about {own.mean_error:.1f} points, and "
            f"quartiles to about {own.quartile_error:.0%} of the people either way. Finer questions need more people "
            "or a larger ε.",
            f"At the strictest ε for everybody the error of the mean would be {strictest.mean_error:.1f} points, "
            f"{strictest.mean_error / own.mean_error:.1f} times as large.",
            f"Careful people are heard softly: without them, and with everybody else's own ε, the error would be "
            f"{self.without_careful.mean_error:.2f} instead of {own.mean_error:.2f}. They are in the picture for "
            "what they allow, and no more.",
            "An answer in which some are heard louder stands for everybody only if budgets do not go along with "
            "values. Here they cannot: they were given out by row number.",
        ]

    @cached_property
    def without_careful(self) -> Way:
        """Personal budgets for all but the careful people: what hearing them is worth."""
        own = np.array([tier.epsilon for tier in self.tiers])
        return self._way("careful people left out, the others with their own ε", own[own > TIERS[0].epsilon])

    def _way(self, told: str, epsilon: NDArray[np.float64]) -> Way:
        each = epsilon / QUESTIONS
        mean, quartiles = (asked.question.plan(epsilon=each).expected_error for asked in self.questions)
        return Way(told, len(each), mean, max(quartiles))


def name(row: int) -> str:
    """Returns the number that a patient goes by."""
    return f"p{row + 1:03d}"


SCHEMA = f"""\
# The public description of patients.csv. The range of the body-mass index comes from clinical tables,
# not from these patients.
person = "id"
budget = "epsilon_each"   # half of what each allows in all: two questions are asked
label = "bmi"

[columns.id]
kind = "text"

[columns.bmi]
kind = "number"
low = {LOW:g}
high = {HIGH:g}

[columns.epsilon]
kind = "number"

[columns.epsilon_each]
kind = "number"
"""
