# SPDX-License-Identifier: Apache-2.0
"""The demonstration's people: 442 real patients, and a simulated clinic of 20,000.

The patients are those of the diabetes study that comes with scikit-learn (Efron, Hastie, Johnstone
and Tibshirani 2004), in clinical units. They are public and the clinic is invented, so errors may
be measured here and shown; no other command ever does that. Ranges are those that adults commonly
lie in. Budgets are invented by a rule that anybody can repeat, and the clinic is made of
SHAKE-128's output, so it is the same everywhere.

The same regression made in several ways, and the error that each makes on people it has not seen.

A third of the people is held out in turn, by row number; every way is tried REPEATS times with
fresh noise, and errors are averaged as squares. Only the demonstration does this, with data that
are public or invented.

The demonstration's comparison as one HTML file that needs nothing but itself.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from html import escape
from string import Template
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import csv
from scipy.special import ndtri
from sklearn.datasets import load_diabetes
from sklearn.linear_model import LinearRegression

import sottovoce as sv
from sottovoce.arrays import Floats, to_matrix
from sottovoce.data.encoding import Recoding
from sottovoce.estimators.baselines import Sampled, Threshold, Uniform
from sottovoce.report.html import make_figure, make_page, make_table
from sottovoce.svg import Bar, draw_bars

#: A feature is a number with a range, or a factor with levels.
ColumnRanges = dict[str, tuple[float, float] | tuple[str, str]]

CLINIC_SIZE = 20_000
NEWCOMER_COUNT = 300


@dataclass(frozen=True)
class DemoTier:
    """People who allow the same ε, and how many of a hundred they are."""

    name: str
    percent: int
    epsilon: float


def make_tiers(*epsilon: float) -> tuple[DemoTier, DemoTier, DemoTier]:
    """Returns careful, middle and open people with these ε."""
    careful, middle, free = epsilon
    return (
        DemoTier("careful", 34, careful),
        DemoTier("middle", 43, middle),
        DemoTier("open", 23, free),
    )


def assign_tiers(row: Any) -> Any:
    """Returns a tier's place by row number alone: no chance, and nothing to do with anybody's
    values.
    """
    place = (
        row * 37 % 100
    )  # 37 and 100 share no factor, so tiers alternate and keep their percentages
    return np.digitize(place, (34, 34 + 43))


@dataclass(frozen=True, eq=False)
class DemoDataset:
    """A table with people, budgets, features and a label, and what is public about it."""

    key: str  # of its files
    about: str
    tiers: tuple[DemoTier, DemoTier, DemoTier]
    label: str
    unit: str
    bounds: tuple[float, float]
    described: ColumnRanges
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
        return np.asarray(assign_tiers(np.arange(self.people)))

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
        return _write_csv({"id": names, "tier": tier, **self.columns, self.label: self.values})

    def toml(self) -> str:
        """What is public about the table."""
        prices = "".join(f"{tier.name} = {tier.epsilon:g}\n" for tier in self.tiers)
        columns = {**self.described, self.label: self.bounds}
        head = f'person = "id"\nbudget = "tier"\nlabel = "{self.label}"\n'
        return f"{_HEAD}{self.whence}{head}\n[tiers]\n{prices}" + "".join(
            _write_column(*entry) for entry in columns.items()
        )

    def describe_budgets(self) -> str:
        """How many allow what, in words."""
        counts = np.bincount(self.places, minlength=3).tolist()
        each = (
            f"{n:,} {tier.name} with ε = {tier.epsilon:g}"
            for n, tier in zip(counts, self.tiers, strict=True)
        )
        return ", ".join(each)

    def describe(self) -> str:
        """Who there is, and what they allow, in words."""
        return f"{self.about}: {self.describe_budgets()}"


_HEAD = (
    "# The public description of a table. Ranges come from knowledge outside it, not from these "
    "people.\n"
)


def _write_column(name: str, limits: tuple[float, float] | tuple[str, str]) -> str:
    first, last = limits
    if isinstance(first, str):
        return f'\n[columns.{name}]\nkind = "factor"\nlevels = ["{first}", "{last}"]\n'
    return f'\n[columns.{name}]\nkind = "number"\nlow = {first:g}\nhigh = {last:g}\n'


def _write_csv(columns: dict[str, Any]) -> str:
    written = pa.BufferOutputStream()
    csv.write_csv(pa.table(columns), written, csv.WriteOptions(quoting_style="none"))
    return str(written.getvalue().to_pybytes().decode())


PATIENT_FEATURES: ColumnRanges = {
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
# Limits that adults commonly lie within, in years, kg/m² and mmHg; s1, s2, s3 are total, LDL and \
HDL cholesterol
# and s6 is glucose, in mg/dl; s4 is total over HDL cholesterol, s5 the logarithm of triglycerides.
"""


def load_patients() -> DemoDataset:
    """The real ones."""
    data = load_diabetes(scaled=False)
    columns = dict(zip(data.feature_names, data.data.T, strict=True))
    columns["sex"] = np.array([f"{value:g}" for value in columns["sex"]], dtype=object)
    return DemoDataset(
        key="patients",
        about=f"{len(data.target)} real patients of a diabetes study",
        tiers=make_tiers(0.1, 0.5, 2.0),
        label="progression",
        unit="points of disease progression",
        bounds=(0.0, 350.0),
        described=PATIENT_FEATURES,
        columns=columns,
        values=data.target,
        whence=_ADULTS,
    )


CLINIC_FEATURES: ColumnRanges = {
    "age": (18, 90),
    "bmi": (15, 50),
    "smoker": ("no", "yes"),
    "visits": (0, 30),
}


def simulate_clinic() -> DemoDataset:
    """The simulated ones."""
    columns, cost = _simulate_costs("clinic", CLINIC_SIZE)
    return DemoDataset(
        key="clinic",
        about=f"{CLINIC_SIZE:,} simulated patients of a clinic",
        tiers=make_tiers(0.01, 0.1, 1.0),
        label="cost",
        unit="euros a year",
        bounds=(0.0, 30_000.0),
        described=CLINIC_FEATURES,
        columns=columns,
        values=cost,
        whence="# Adults: years, kg/m², visits and euros a year; nobody is billed more than "
        "30,000.\n",
    )


def simulate_newcomers() -> tuple[str, Floats]:
    """A table of new patients of the clinic, without their cost; and their cost, which nobody would
    know yet.
    """
    columns, cost = _simulate_costs("newcomers", NEWCOMER_COUNT)
    return _write_csv(
        {"id": [f"n{row:03d}" for row in range(1, NEWCOMER_COUNT + 1)], **columns}
    ), cost


def _simulate_costs(name: str, count: int) -> tuple[dict[str, NDArray[Any]], Floats]:
    """Returns features and costs that look like a clinic's: skewed, and not quite linear."""
    age = np.floor(18 + 73 * draw_even(f"{name} age", count))
    bmi = np.clip(np.round(27 + 5 * ndtri(draw_even(f"{name} bmi", count)), 1), 15, 50)
    smoker = draw_even(f"{name} smoker", count) < 0.2
    visits = np.minimum(np.floor(-3 * np.log(draw_even(f"{name} visits", count))), 30)
    heavy = np.maximum(bmi - 25, 0)
    chance = np.exp(0.8 * ndtri(draw_even(f"{name} chance", count)))
    cost = (
        1000
        + 80 * (age - 18)
        + 90 * heavy
        + smoker * (4000 + 250 * heavy)
        + 420 * visits
        + 1500 * chance
    )
    columns = {
        "age": age,
        "bmi": bmi,
        "smoker": np.where(smoker, "yes", "no").astype(object),
        "visits": visits,
    }
    return columns, np.round(np.clip(cost, 0, 30_000), 2)


def draw_even(name: str, count: int) -> Floats:
    """Returns numbers strictly between 0 and 1, spread evenly and the same on every machine:
    SHAKE-128 of a name.
    """
    words = np.frombuffer(hashlib.shake_128(name.encode()).digest(4 * count), dtype="<u4")
    return (words + 0.5) / 2.0**32


REPEATS = 5
#: Regularisations and thresholds among which the other methods may choose in hindsight, which is
#: more than fair.
ALPHAS = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
THRESHOLDS = ("max", "mean")
#: Errors closer than this share are called the same: chance moves them by as much.
TOLERANCE = 0.03


@dataclass(frozen=True)
class ComparedMethod:
    """One way to answer, and the errors of its predictions in the label's units, a root mean square
    for each fit.
    """

    name: str
    errors: tuple[float, ...]
    note: str
    private: bool = True

    @property
    def error(self) -> float:
        """The typical error: the root of the mean square over all fits."""
        return _compute_rms(np.array(self.errors))


@dataclass(frozen=True, eq=False)
class Comparison:
    """All ways on one study: ours first, least squares without privacy last."""

    study: DemoDataset
    ways: tuple[ComparedMethod, ...]

    def lessons(self) -> list[str]:
        """What the numbers say, in sentences, whichever way they fell."""
        own, strictest, above, sampled, published, mean, _, plain = self.ways
        study = self.study
        return [
            f"What {study.people:,} people can buy here: predictions wrong by about "
            f"{format_error(own.error)} {study.unit} "
            f"(single fits by {format_error(min(own.errors))} to "
            f"{format_error(max(own.errors))}), {_compare_words(own, mean)} a constant "
            f"for everybody ({format_error(mean.error)}), and {_describe_cost(own, plain)}.",
            "The same regression with the strictest ε for everybody: "
            f"{format_error(strictest.error)}, {_describe_difference(strictest, own)}. With a "
            "threshold, the best in hindsight, below which people are left out: "
            f"{format_error(above.error)}, {_describe_difference(above, own)}. By sampling "
            f"people: {format_error(sampled.error)}, {_describe_difference(sampled, own)}. With "
            f"the published method at its best λ in hindsight: {format_error(published.error)}, "
            f"{_describe_difference(published, own)}.",
        ]


def compare_methods(study: DemoDataset) -> Comparison:
    """Measures every way."""
    schema, low, high = study.schema, *study.bounds
    ours = sv.Ridge(bounds=schema)
    strictest = study.tiers[0].epsilon
    return Comparison(
        study,
        (
            ComparedMethod(
                "each with their own ε", _measure_errors(study, ours), "sottovoce's default"
            ),
            ComparedMethod(
                "one ε for all, the strictest",
                _measure_errors(study, Uniform(ours)),
                f"everybody at {strictest:g}",
            ),
            _choose_best(
                study,
                "a threshold, others left out",
                "ε =",
                tuple(tier.epsilon for tier in study.tiers),
                lambda t: Threshold(ours, threshold=t),
            ),
            _choose_best(
                study,
                "sampling people",
                "threshold",
                THRESHOLDS,
                lambda t: Sampled(ours, threshold=t),
            ),
            _choose_best(
                study,
                "published method",
                "λ =",
                ALPHAS,
                lambda a: sv.Ridge(schema, method="output", alpha=a),
            ),
            ComparedMethod(
                "a private mean for everybody", _measure_mean_errors(study), "no regression"
            ),
            ComparedMethod(
                "nothing",
                (_compute_rms(study.values - (low + high) / 2),),
                "the middle of the range",
            ),
            ComparedMethod(
                "least squares, not private",
                _measure_exact_errors(study),
                "nobody protected",
                private=False,
            ),
        ),
    )


def fit_least_squares(study: DemoDataset, rows: Any = slice(None)) -> tuple[Recoding, Any]:
    """Returns the public recoding, and scikit-learn's least squares on it: exact, so not
    private.
    """
    recoding = Recoding.of_schema(study.schema)
    features = recoding.encode(to_matrix(study.features(rows), recoding))
    return recoding, LinearRegression().fit(features, study.values[rows])


def compute_exact_coefficients(study: DemoDataset) -> dict[str, float]:
    """Returns least squares' coefficients under the names that a release gives them."""
    recoding, fitted = fit_least_squares(study)
    _, coefficients = recoding.to_original_units(fitted.intercept_, fitted.coef_)
    return dict(zip(recoding.names, coefficients.tolist(), strict=True))


def _split_people(study: DemoDataset) -> Iterator[tuple[NDArray[np.bool_], NDArray[np.bool_]]]:
    for turn in range(REPEATS):
        unseen = (np.arange(study.people) + turn) % 3 == 0
        yield ~unseen, unseen


def _measure_errors(study: DemoDataset, estimator: Any) -> tuple[float, ...]:
    errors = []
    for seen, unseen in _split_people(study):
        # Everybody has one row here.
        fitted = estimator.fit(
            study.features(seen), study.values[seen], epsilon=study.epsilon[seen], groups="rows"
        )
        errors.append(_compute_rms(fitted.predict(study.features(unseen)) - study.values[unseen]))
    return tuple(errors)


def _choose_best(
    study: DemoDataset, name: str, word: str, among: tuple[Any, ...], made: Callable[[Any], Any]
) -> ComparedMethod:
    tried = [
        ComparedMethod(
            name, _measure_errors(study, made(choice)), f"best of {len(among)}: {word} {choice}"
        )
        for choice in among
    ]
    return min(tried, key=lambda way: way.error)


def _measure_mean_errors(study: DemoDataset) -> tuple[float, ...]:
    errors = []
    for seen, unseen in _split_people(study):
        mean = sv.Mean(bounds=study.bounds).fit(study.values[seen], epsilon=study.epsilon[seen])
        errors.append(_compute_rms(study.values[unseen] - mean.value_))
    return tuple(errors)


def _measure_exact_errors(study: DemoDataset) -> tuple[float, ...]:
    errors = []
    for seen, unseen in _split_people(study):
        recoding, fitted = fit_least_squares(study, seen)
        features = recoding.encode(to_matrix(study.features(unseen), recoding))
        errors.append(_compute_rms(fitted.predict(features) - study.values[unseen]))
    return tuple(errors)


def _compute_rms(errors: Floats) -> float:
    return math.sqrt(float(np.mean(errors**2)))


def format_error(error: float) -> str:
    """Returns an error as people read it."""
    if error >= 1000:
        return f"{error:,.0f}"
    return f"{error:.1f}"


def _compare_words(own: ComparedMethod, other: ComparedMethod) -> str:
    if own.error < other.error * (1 - TOLERANCE):
        return "better than"
    if own.error > other.error * (1 + TOLERANCE):
        return "worse than"
    return "no better than"


def _describe_cost(own: ComparedMethod, plain: ComparedMethod) -> str:
    more = own.error / plain.error - 1
    if more < TOLERANCE:
        return f"as good as least squares without any privacy ({format_error(plain.error)})"
    return f"{more:.0%} worse than least squares without any privacy ({format_error(plain.error)})"


def _describe_difference(other: ComparedMethod, own: ComparedMethod) -> str:
    more = other.error / own.error - 1
    if abs(more) < TOLERANCE:
        return "about the same"
    if more > 0:
        return f"{more:.0%} more than ours"
    return f"{-more:.0%} less than ours"


def make_report(contests: Sequence[Comparison], caution: str) -> str:
    """Returns the page: for each study who took part, a picture, a table, and what they say."""
    body = _BODY.substitute(
        repeats=REPEATS,
        studies="\n".join(_draw_dataset(held) for held in contests),
        caution=escape(caution),
    )
    return make_page("sottovoce: what personal budgets are worth", body)


def _draw_dataset(held: Comparison) -> str:
    study = held.study
    ridge = f"{study.label} from {', '.join(study.described)}"
    return _STUDY.substitute(
        about=escape(study.about),
        allowed=escape(study.describe_budgets().replace(" = ", "\u00a0=\u00a0")),
        ridge=escape(ridge),
        picture=_draw_errors(
            f"Typical error on people not seen, in {study.unit}; shorter is better", held.ways
        ),
        ways=make_table(
            ["way", "", f"typical error, {study.unit}"],
            [[w.name, w.note, format_error(w.error)] for w in held.ways],
            "words",
        ),
        lessons="\n".join(f"<p>{escape(sentence)}</p>" for sentence in held.lessons()),
    )


def _draw_errors(title: str, ways: Sequence[ComparedMethod]) -> str:
    kinds = [
        "own" if place == 0 else "other" if way.private else "plain"
        for place, way in enumerate(ways)
    ]
    lines = [
        Bar(way.name, way.error, format_error(way.error), kind)
        for way, kind in zip(ways, kinds, strict=True)
    ]
    return make_figure(title, draw_bars(title, lines, floor=ways[-1].error))


_STUDY = Template("""\
<h2>$about</h2>
<p class="soft">$allowed. A linear model of $ridge.</p>
$picture
$ways
$lessons
""")

_BODY = Template("""\
<h1>What personal budgets are worth</h1>
<p class="soft">A demonstration of sottovoce. Everybody allows an ε of their own, the most that \
may be learnt about
them in all, and nobody spends more than that. (Budgets are invented, by row number.) The same \
regression was
made in several ways, and tried on a third of the people that had been held out: $repeats fits \
each with fresh noise,
errors averaged. Such errors can be shown only because these data are public or invented.</p>
<p>With one ε for everybody it must be the strictest, so careful people make the answer vague for \
all. With an ε each,
everybody counts for what they allow. The thin line marks least squares without any privacy: no \
linear
model does much better.</p>
$studies
<h2>What this does not say</h2>
<p>$caution</p>""")
