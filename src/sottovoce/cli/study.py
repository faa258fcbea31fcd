# SPDX-License-Identifier: Apache-2.0
"""The demonstration's people: 442 real patients, and a simulated clinic of 20,000.

The patients are those of the diabetes study that comes with scikit-learn (Efron, Hastie, Johnstone and
Tibshirani 2004), in clinical units. They are public and the clinic is invented, so errors may be measured
here and shown; no other command ever does that. Ranges are those that adults commonly lie in. Budgets are invented by
a rule that anybody can repeat, and the clinic is made of SHAKE-128's output, so it is the same everywhere.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import csv
from scipy.special import ndtri
from sklearn.datasets import load_diabetes

import sottovoce as sv

Floats = NDArray[np.float64]
#: A feature is a number with a range, or a factor with levels.
Described = dict[str, tuple[float, float] | tuple[str, str]]

CLINIC, NEWCOMERS = 20_000, 300


@dataclass(frozen=True)
class Tier:
    """People who allow the same ε, and how many of a hundred they are."""

    name: str
    percent: int
    epsilon: float


def tiers(*epsilon: float) -> tuple[Tier, Tier, Tier]:
    """Returns careful, middle and open people with these ε."""
    careful, middle, free = epsilon
    return Tier("careful", 34, careful), Tier("middle", 43, middle), Tier("open", 23, free)


def place_of(row: Any) -> Any:
    """Returns a tier's place by row number alone: no chance, and nothing to do with anybody's values."""
    place = row * 37 % 100  # 37 and 100 share no factor, so tiers alternate and keep their percentages
    return np.digitize(place, (34, 34 + 43))


@dataclass(frozen=True, eq=False)
class Study:
    """A table with people, budgets, features and a label, and what is public about it."""

    key: str  # of its files
    about: str
    tiers: tuple[Tier, Tier, Tier]
    label: str
    unit: str
    bounds: tuple[float, float]
    described: Described
    columns: dict[str, NDArray[Any]]
    values: Floats
    whence: str  # the ranges, in a comment of the schema

    @property
    def people(self) -> int:
        """How many there are."""
        return len(self.values)

    @cached_property
    def schema(self) -> sv.Schema:
        """The public description, as the regression takes it."""
        return sv.Schema.loads(self.toml())

    @cached_property
    def places(self) -> NDArray[np.int64]:
        """Everybody's tier, by its place."""
        return np.asarray(place_of(np.arange(self.people)))

    @property
    def epsilon(self) -> Floats:
        """What everybody allows."""
        return np.array([tier.epsilon for tier in self.tiers])[self.places]

    def features(self, rows: Any = slice(None)) -> pa.Table:
        """The features of some rows."""
        return pa.table({name: column[rows] for name, column in self.columns.items()})

    def csv(self) -> str:
        """The table as a curator would keep it: whose row, their tier, features and label."""
        tier = np.array([tier.name for tier in self.tiers])[self.places]
        names = [f"{self.key[0]}{row:05d}" for row in range(1, self.people + 1)]
        return _csv({"id": names, "tier": tier, **self.columns, self.label: self.values})

    def toml(self) -> str:
        """What is public about the table."""
        prices = "".join(f"{tier.name} = {tier.epsilon:g}\n" for tier in self.tiers)
        columns = {**self.described, self.label: self.bounds}
        head = f'person = "id"\nbudget = "tier"\nlabel = "{self.label}"\n'
        return f"{_HEAD}{self.whence}{head}\n[tiers]\n{prices}" + "".join(_column(*entry) for entry in columns.items())

    def describe_budgets(self) -> str:
        """How many allow what, in words."""
        counts = np.bincount(self.places, minlength=3).tolist()
        each = (f"{n:,} {tier.name} with ε = {tier.epsilon:g}" for n, tier in zip(counts, self.tiers, strict=True))
        return ", ".join(each)

    def describe(self) -> str:
        """Who there is, and what they allow, in words."""
        return f"{self.about}: {self.describe_budgets()}"


_HEAD = "# The public description of a table. Ranges come from knowledge outside it, not from these people.\n"


def _column(name: str, limits: tuple[float, float] | tuple[str, str]) -> str:
    first, last = limits
    if isinstance(first, str):
        return f'\n[columns.{name}]\nkind = "factor"\nlevels = ["{first}", "{last}"]\n'
    return f'\n[columns.{name}]\nkind = "number"\nlow = {first:g}\nhigh = {last:g}\n'


def _csv(columns: dict[str, Any]) -> str:
    written = pa.BufferOutputStream()
    csv.write_csv(pa.table(columns), written, csv.WriteOptions(quoting_style="none"))
    return str(written.getvalue().to_pybytes().decode())


PATIENTS: Described = {
    "age": (18, 80),
    "sex": ("1", "2"),
    "bmi": (15, 50),
    "bp": (50, 140),
    "s1": (80, 320),
    "s2": (30, 250),
    "s3": (15, 110),
    "s4": (1, 10),
    "s5": (3, 7),
    "s6": (50, 140),
}

_ADULTS = """\
# Limits that adults commonly lie within, in years, kg/m² and mmHg; s1, s2, s3 are total, LDL and HDL cholesterol
# and s6 is glucose, in mg/dl; s4 is total over HDL cholesterol, s5 the logarithm of triglycerides.
"""


def patients() -> Study:
    """The real ones."""
    data = load_diabetes(scaled=False)
    columns = dict(zip(data.feature_names, data.data.T, strict=True))
    columns["sex"] = np.array([f"{value:g}" for value in columns["sex"]], dtype=object)
    return Study(
        key="patients",
        about=f"{len(data.target)} real patients of a diabetes study",
        tiers=tiers(0.1, 0.5, 2.0),
        label="progression",
        unit="points of disease progression",
        bounds=(0.0, 350.0),
        described=PATIENTS,
        columns=columns,
        values=data.target,
        whence=_ADULTS,
    )


CLINIC_FEATURES: Described = {"age": (18, 90), "bmi": (15, 50), "smoker": ("no", "yes"), "visits": (0, 30)}


def clinic() -> Study:
    """The simulated ones."""
    columns, cost = _simulated("clinic", CLINIC)
    return Study(
        key="clinic",
        about=f"{CLINIC:,} simulated patients of a clinic",
        tiers=tiers(0.01, 0.1, 1.0),
        label="cost",
        unit="euros a year",
        bounds=(0.0, 30_000.0),
        described=CLINIC_FEATURES,
        columns=columns,
        values=cost,
        whence="# Adults: years, kg/m², visits and euros a year; nobody is billed more than 30,000.\n",
    )


def newcomers() -> tuple[str, Floats]:
    """A table of new patients of the clinic, without their cost; and their cost, which nobody would know yet."""
    columns, cost = _simulated("newcomers", NEWCOMERS)
    return _csv({"id": [f"n{row:03d}" for row in range(1, NEWCOMERS + 1)], **columns}), cost


def _simulated(name: str, count: int) -> tuple[dict[str, NDArray[Any]], Floats]:
    """Returns features and costs that look like a clinic's: skewed, and not quite linear."""
    age = np.floor(18 + 73 * even(f"{name} age", count))
    bmi = np.clip(np.round(27 + 5 * ndtri(even(f"{name} bmi", count)), 1), 15, 50)
    smoker = even(f"{name} smoker", count) < 0.2
    visits = np.minimum(np.floor(-3 * np.log(even(f"{name} visits", count))), 30)
    heavy, chance = np.maximum(bmi - 25, 0), np.exp(0.8 * ndtri(even(f"{name} chance", count)))
    cost = 1000 + 80 * (age - 18) + 90 * heavy + smoker * (4000 + 250 * heavy) + 420 * visits + 1500 * chance
    columns = {"age": age, "bmi": bmi, "smoker": np.where(smoker, "yes", "no").astype(object), "visits": visits}
    return columns, np.round(np.clip(cost, 0, 30_000), 2)


def even(name: str, count: int) -> Floats:
    """Returns numbers strictly between 0 and 1, spread evenly and the same on every machine: SHAKE-128 of a name."""
    words = np.frombuffer(hashlib.shake_128(name.encode()).digest(4 * count), dtype="<u4")
    return (words + 0.5) / 2.0**32
