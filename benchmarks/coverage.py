# SPDX-License-Identifier: Apache-2.0
"""How often 95 % intervals cover what they are of, and how wide they are.

Populations are laws that tables are drawn from, or a real table from which rows are drawn with
replacement; the value that must be covered is the population's. The width is told over that of an
oracle which knows how far the answer varies: the 95 % quantile of its distance from the truth in
these very runs. Coefficients are counted together. Every interval is counted by what it says it is
of: the population's value; the coefficients of the loss that was fitted; or what the same fit,
shrunk as strongly, or the same descent gives on the whole population, which is computed here from
the public numbers of the release. How often a regression covers the slopes of least squares is told
besides.

    python benchmarks/coverage.py                         some minutes
    python benchmarks/coverage.py --full                  ten times as many tables
    python benchmarks/coverage.py --table medical.csv --label charges
    python benchmarks/coverage.py --only quantile         lines whose question has this word
"""

from __future__ import annotations

import argparse
import csv
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from rich.console import Console
from rich.progress import track
from rich.table import Table
from scipy.optimize import minimize
from scipy.special import log_softmax
from sklearn.datasets import (
    load_breast_cancer,
    load_diabetes,
    load_digits,
    load_iris,
    load_linnerud,
    load_wine,
)

import sottovoce as sv
from sottovoce.data.loss_kernels import SoftHuber
from sottovoce.estimators import ridge_output
from sottovoce.solvers.losses import get_loss
from sottovoce.units import format_count

RUNS = 40
FULL_RUNS = 400
LEVEL = 0.95
#: Questions about the label alone, and the quantiles that they ask for.
QUANTILES: dict[str, Any] = {
    "median": 0.5,
    "quantile .9": 0.9,
    "nine quantiles": [j / 10 for j in range(1, 10)],
}
#: Questions about the label by groups of the first feature, and the share of the rows in each.
BY_GROUPS = ("count by group", "sum by group", "mean by group")
GROUPS = {"low": 0.3, "middle": 0.5, "high": 0.2}
#: Questions about the label and the first feature.
MATRICES = ("covariance", "correlation")
OF_LABELS = ("mean", "sum", "variance", *QUANTILES)
#: Nobody is told apart by less: an end that is not known counts as covering, and has no width.
console = Console()


@dataclass(frozen=True)
class Population:
    """What tables are drawn from: features, labels, and their bounds."""

    name: str
    draw: Callable[[np.random.Generator, int], tuple[np.ndarray, np.ndarray]]
    bounds: tuple[Any, Any]
    label: tuple[float, float]


@dataclass(frozen=True)
class Setting:
    """One line of the table: what is asked, of which population, of how many people at which ε."""

    question: str
    population: Population
    people: int
    epsilon: float


def simulate(kind: str, slopes: int) -> Population:
    """A linear model of even, bunched or correlated columns, with equal or unequal spread."""
    slope = np.array([0.4, -0.3, 0.2, 0.1, 0.05])[:slopes]

    def draw(rng: np.random.Generator, rows: int) -> tuple[np.ndarray, np.ndarray]:
        X = rng.uniform(0, 1, (rows, slopes))
        noise = rng.normal(0, 0.1, rows)
        if kind == "bunched":
            X[:, 0] = rng.beta(2, 8, rows)
        if kind == "correlated":
            X = 0.5 * X + 0.5 * rng.uniform(0, 1, (rows, 1))
        if kind == "unequal spread":
            noise *= 2 * X[:, 0]
        if kind == "skewed":
            noise = 0.1 * (rng.exponential(1.0, rows) - 1)
        if kind == "heavy-tailed":
            noise = np.clip(0.06 * rng.standard_t(2.5, rows), -0.9, 0.9)
        if kind == "curved":
            noise = noise + 0.6 * (X[:, 0] - 0.5) ** 2
        if kind == "lognormal":
            noise = 0.05 * (rng.lognormal(0, 1, rows) - math.exp(0.5))
            noise = np.minimum(noise, 1.0)
        return X, 0.3 + X @ slope + noise

    name = f"{kind}, {format_count(slopes, 'feature')}"
    return Population(name, draw, (0.0, 1.0), (-1.0, 2.0))


def resample(name: str, X: np.ndarray, y: np.ndarray) -> Population:
    """A real table as the population, in bounds rounded outwards."""
    low, high = X.min(axis=0), X.max(axis=0)
    wide = (high - low) * 0.05
    span = float(y.max() - y.min()) * 0.05

    def draw(rng: np.random.Generator, rows: int) -> tuple[np.ndarray, np.ndarray]:
        chosen = rng.integers(0, len(X), rows)
        return X[chosen], y[chosen]

    label = (float(y.min()) - span, float(y.max()) + span)
    return Population(name, draw, (low - wide, high + wide), label)


def find_population(draw: Any, rows: int = 400_000) -> tuple[np.ndarray, np.ndarray]:
    return draw(np.random.default_rng(99), rows)  # type: ignore[no-any-return]


def make_estimator(question: str, population: Population) -> Any:
    bounds = sv.Bounds(features=population.bounds, label=population.label)
    if question in ("mean", "sum", "variance"):
        return {"mean": sv.Mean, "sum": sv.Sum, "variance": sv.Variance}[question](population.label)
    if question == "count by group":
        return sv.Count(by={"group": list(GROUPS)})
    if question in BY_GROUPS:
        kind = sv.Mean if question.startswith("mean") else sv.Sum
        return kind(population.label, by={"group": list(GROUPS)})
    if question in MATRICES:
        low, high = (float(np.ravel(ends)[0]) for ends in population.bounds)
        schema = sv.Schema.of({"x": (low, high), "y": population.label})
        return sv.Covariance(schema, columns=["x", "y"])
    if question in QUANTILES:
        return sv.Quantile(q=QUANTILES[question], bounds=population.label)
    if question == "regression":
        return sv.Ridge(bounds=bounds)
    if question == "regression, statistics":
        return sv.Ridge(bounds=bounds, method="statistics")
    if question == "private labels":
        return sv.LabelPrivateRegression(label_bounds=population.label)
    if question == "adaptive posterior sample":
        return sv.AdaptivePosteriorSample(bounds=bounds, fit_intercept=True)
    if question == "posterior sample":
        return sv.PosteriorSample(gamma=5.0, alpha=20.0, bounds=bounds, fit_intercept=True)
    if question in ("output", "output-tight"):
        return sv.Ridge(bounds=bounds, method=question)
    if question in ("descent, squared", "descent, huber"):
        return sv.ERM(question.split()[-1], bounds=bounds, delta=1e-6)
    if question == "descent, logistic":
        return sv.ERM("logistic", bounds=sv.Bounds(features=population.bounds), delta=1e-6)
    if question == "several classes":
        return sv.LogisticRegression(
            bounds=sv.Bounds(features=population.bounds), classes=[0, 1, 2]
        )
    return sv.LogisticRegression(bounds=sv.Bounds(features=population.bounds))


def make_data(setting: Setting, X: np.ndarray, y: np.ndarray) -> tuple[Any, ...]:
    """What the question of a line is fitted to."""
    if setting.question in OF_LABELS:
        return (y,)
    if setting.question in BY_GROUPS:
        return (pa.table({"group": find_groups(setting.population, X), "y": y}),)
    if setting.question in MATRICES:
        return (pa.table({"x": X[:, 0], "y": y}),)
    return (X, y)


def find_groups(population: Population, X: np.ndarray) -> np.ndarray:
    """The group of each row, by quantiles of the population's first feature."""
    many, _ = find_population(population.draw, 50_000)
    edges = np.quantile(many[:, 0], np.cumsum(list(GROUPS.values()))[:-1])
    return np.array(list(GROUPS))[np.digitize(X[:, 0], edges)]


def find_table_truth(setting: Setting, X: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The same of questions about tables: of sums and counts, for as many rows as there are."""
    if setting.question == "sum":
        return np.array([setting.people * y.mean()])
    if setting.question == "variance":
        return np.array([y.var()])
    if setting.question == "covariance":
        return np.array([np.mean((X[:, 0] - X[:, 0].mean()) * (y - y.mean()))])
    if setting.question == "correlation":
        return np.array([np.corrcoef(X[:, 0], y)[0, 1]])
    own = find_groups(setting.population, X)
    if setting.question == "count by group":
        return np.array([setting.people * np.mean(own == name) for name in GROUPS])
    if setting.question == "sum by group":
        return np.array([setting.people * np.mean(y * (own == name)) for name in GROUPS])
    return np.array([y[own == name].mean() for name in GROUPS])


def find_truth(setting: Setting) -> np.ndarray:
    """The population's value: of a law by many rows, of a real table by all of its rows."""
    question = setting.question
    X, y = find_population(setting.population.draw)
    if question in (*BY_GROUPS, *MATRICES, "sum", "variance"):
        return find_table_truth(setting, X, y)
    if question == "mean":
        return np.array([y.mean()])
    if question in QUANTILES:
        return np.quantile(y, np.atleast_1d(QUANTILES[question]))
    if question in ("classes", "descent, logistic", "several classes"):
        from sklearn.linear_model import LogisticRegression

        return LogisticRegression(C=1e9, max_iter=5000).fit(X, y).coef_.ravel()
    design = np.column_stack([np.ones(len(X)), X])
    return np.linalg.lstsq(design, y, rcond=None)[0][1:]


@dataclass(frozen=True)
class Target:
    """The whole population in the coordinates of a fit, and what an interval says it is of."""

    fitted: Any
    rows: np.ndarray  # φ
    labels: np.ndarray  # in [−1, 1], or classes

    @classmethod
    def of(cls, fitted: Any, population: Population, rows: int = 50_000) -> Target:
        X, y = find_population(population.draw, rows)
        recoded = fitted._recoding.encode(np.asarray(X, dtype=float))
        given = fitted.release_.parameters
        if "ball" in given:  # a posterior sample
            phi = fitted._make_ball(fitted._recoding).rows(recoded)
        elif "rows" in given:  # a classifier
            phi = fitted._read_mechanism(given, fitted._recoding).body.rows(recoded)
        else:
            phi = np.column_stack([np.full(len(X), 0.5), recoded])
        if "label" in given:
            low, high = given["label"]
            y = (np.clip(y, low, high) - (low + high) / 2) / ((high - low) / 2)
        return cls(fitted, phi, y)

    def find_slopes(self, theta: np.ndarray) -> np.ndarray:
        """The slopes in their own units, one class after the other."""
        functions = self.fitted._list_functions(self.fitted.release_, self.fitted._recoding)
        return (theta.reshape(-1, functions.shape[1]) @ functions[1:].T).ravel()

    def fit_loss(self, shrunk: bool) -> np.ndarray:
        """Of the default regression: what its loss gives, with or without its shrinkage."""
        found = self.fitted.release_.bought
        ridge = np.array(found["ridge"])
        if len(ridge) == 1:
            return np.zeros(self.rows.shape[1] - 1)
        loss = SoftHuber(found["most_pull"], float(np.sum(0.25 / ridge)))
        theta = np.array(found["theta"])
        centre = np.array(found["centre"])
        held = ridge / found["total"] * shrunk
        for _ in range(60):
            _, psi, bend = loss(self.labels - self.rows @ theta)
            curvature = (self.rows * bend[:, None]).T @ self.rows / len(self.rows)
            pull = self.rows.T @ psi / len(self.rows) - held * (theta - centre)
            theta = theta + np.linalg.solve(curvature + np.diag(held), pull)
        return self.find_slopes(theta)

    def fit_ridge(self, people: int, epsilon: float) -> np.ndarray:
        """Of noise on a solution and of a posterior sample: ridge regression at their λ."""
        release = self.fitted.release_
        lam = release.parameters["alpha"]
        rows = self.rows
        change = np.eye(rows.shape[1])
        if release.question == "ridge":
            method = release.parameters["method"]
            own = ridge_output.make_coordinates(method, rows.shape[1])
            rows = (rows * 2) @ own.T
            change = ridge_output.make_centring(method, rows.shape[1])
        else:
            plan = self.fitted.plan(epsilon=epsilon, rows=people, n_features=rows.shape[1] - 1)
            lam /= plan.weights.total * plan.parameters["weight_unit"]
        curvature = rows.T @ rows / len(rows) + lam * np.eye(rows.shape[1])
        theta = np.linalg.solve(curvature, rows.T @ self.labels / len(rows))
        return self.find_slopes(change @ theta)

    def descend(self) -> np.ndarray:
        """The same descent without noise."""
        given = self.fitted.release_.parameters
        loss = get_loss(given["loss"])
        labels = self.labels if "label" in given else 2.0 * self.labels - 1
        length = np.linalg.norm(self.rows, axis=1)
        theta = np.zeros(self.rows.shape[1])
        kept = []
        for _ in range(given["steps"]):
            pull = loss.derivative(self.rows @ theta, labels)
            most = given["clip"] / length
            step = self.rows.T @ np.clip(pull, -most, most) / len(self.rows)
            theta = theta - given["stride"] * step
            theta *= min(1.0, given["radius"] / np.linalg.norm(theta))
            kept.append(theta)
        return self.find_slopes(np.mean(kept[given["steps"] // 2 :], axis=0))

    def classify(self) -> np.ndarray:
        """Logistic regression with its shrinkage, of two classes or of several."""
        ridge = np.array(self.fitted.release_.bought["ridge"])
        width = self.rows.shape[1]
        several = len(ridge) > width
        own = self.labels.astype(int)

        def risk(theta: np.ndarray) -> tuple[float, np.ndarray]:
            functions = self.rows @ theta.reshape(-1, width).T
            if not several:
                functions = np.column_stack([np.zeros(len(own)), functions[:, 0]])
            logs = log_softmax(functions, axis=1)
            doubt = np.exp(logs)
            doubt[np.arange(len(own)), own] -= 1
            gradient = (doubt.T @ self.rows) / len(own)
            if not several:
                gradient = gradient[1:]
            value = -logs[np.arange(len(own)), own].mean() + ridge @ theta**2 / 2
            return value, gradient.ravel() + ridge * theta

        start = np.array(self.fitted.release_.bought["theta"])
        found = minimize(risk, start, jac=True, method="BFGS", options={"gtol": 1e-7})
        return self.find_slopes(found.x)


def find_target(setting: Setting, fitted: Any, truth: np.ndarray) -> np.ndarray:
    """What the interval of a fit says that it is of."""
    of = fitted.release_.intervals["of"]
    if not ("same fit" in of or "same descent" in of or "loss which was fitted" in of):
        return truth
    target = Target.of(fitted, setting.population)
    if setting.question == "regression":
        return target.fit_loss("same fit" in of)
    if "descent" in of:
        return target.descend()
    if "classes" in setting.question:
        return target.classify()
    return target.fit_ridge(setting.people, setting.epsilon)


def to_three_classes(population: Population) -> Population:
    """Three classes by two functions of the features."""

    def draw(rng: np.random.Generator, rows: int) -> tuple[np.ndarray, np.ndarray]:
        X, _ = population.draw(rng, rows)
        functions = np.column_stack([np.zeros(rows), 3 * X[:, 0] - 1, 3 * X[:, 1] - 1.5])
        noise = rng.gumbel(size=functions.shape)
        return X, (functions + noise).argmax(axis=1)

    return Population(population.name, draw, population.bounds, (0.0, 2.0))


def to_classes(population: Population) -> Population:
    """Classes with log-odds ten times the label's distance from .5."""

    def draw(rng: np.random.Generator, rows: int) -> tuple[np.ndarray, np.ndarray]:
        X, _ = population.draw(rng, rows)
        odds = 6 * (X @ np.array([0.4, -0.3, 0.2, 0.1, 0.05])[: X.shape[1]] - 0.1)
        return X, (rng.uniform(size=rows) < 1 / (1 + np.exp(-odds))).astype(np.int64)

    return Population(population.name, draw, population.bounds, (0.0, 1.0))


def measure(setting: Setting, runs: int) -> list[str]:
    """One line: coverage, how wide, and how often there was an interval."""
    population = setting.population
    truth = find_truth(setting)
    rng = np.random.default_rng(7)
    ends: list[np.ndarray] = []
    answers: list[np.ndarray] = []
    targets: list[np.ndarray] = []
    known_targets: dict[Any, np.ndarray] = {}
    why = ""
    told = f"{setting.question}, {population.name}"
    for _ in track(range(runs), description=told[:60], console=console, transient=True):
        X, y = population.draw(rng, setting.people)
        estimator = make_estimator(setting.question, population)
        data = make_data(setting, X, y)
        column = {"column": "y"} if setting.question in BY_GROUPS[1:] else {}
        fitted = estimator.fit(*data, **column, epsilon=setting.epsilon)
        try:
            found = fitted.interval(LEVEL)
        except sv.errors.InvalidParameter:
            why = fitted.release_.intervals["why"]
            continue
        if setting.question in BY_GROUPS:
            pairs = np.array(next(iter(found.values()))[: len(GROUPS)], dtype=float)
            answers.append(np.asarray(fitted.value_, dtype=float)[: len(GROUPS)])
        elif setting.question in MATRICES:
            pairs = np.array([found[setting.question]["x"]["y"]], dtype=float)
            answers.append(np.array([getattr(fitted, f"{setting.question}_")[0, 1]]))
        elif isinstance(found, dict):
            models = found.values() if isinstance(next(iter(found.values())), dict) else [found]
            pairs = np.array([p for one in models for p in list(one.values())[1:]], dtype=float)
            answers.append(pairs.mean(axis=1))  # published coefficients may be shrunk
        else:
            pairs = np.array(found, dtype=float).reshape(-1, 2)
            answers.append(np.atleast_1d(fitted.value_))  # intervals of columns end at the bounds
        ends.append(pairs)
        key = None
        if setting.question == "regression":  # whose threshold and centre are released
            numbers = fitted.release_.bought
            shrunk = "same fit" in fitted.release_.intervals["of"]
            key = (numbers["most_pull"], shrunk and tuple(numbers["centre"]))
        if key not in known_targets:
            known_targets[key] = find_target(setting, fitted, truth)
        targets.append(known_targets[key])
    line = [setting.question, population.name, f"{setting.people:,}", f"{setting.epsilon:g}"]
    if not ends:
        return [*line, "none", "", "", "", why.split(":")[0]]
    low, high = np.moveaxis(np.array(ends), 2, 0)
    own = np.array(targets)
    covered = float(np.mean((low <= own) & (own <= high)))
    classical = float(np.mean((low <= truth) & (truth <= high)))
    finite = np.isfinite(high - low)
    middle = np.where(finite, np.array(answers), np.nan)
    with np.errstate(all="ignore"):
        oracle = np.nanquantile(np.abs(middle - own), LEVEL, axis=0)
        half = np.nanmedian(np.where(finite, (high - low) / 2, np.nan), axis=0)
    ratio = float(np.nanmedian(half / oracle))
    known = float(finite.mean()) * len(ends) / runs
    wide = "" if math.isnan(ratio) else f"{ratio:.2f}"
    regressions = ("regression", "regression, statistics")
    besides = f"{classical:.3f}" if setting.question in regressions else ""
    return [*line, f"{covered:.3f}", besides, wide, f"{known:.2f}", ""]


def list_real_tables() -> list[Population]:
    """Real tables; the first three were looked at when constants of intervals were chosen, the
    others not.
    """
    wine = load_wine().data
    cancer = load_breast_cancer().data
    diabetes = load_diabetes(scaled=False)
    linnerud = load_linnerud()
    iris = load_iris().data
    digits = load_digits().data
    return [
        resample("wine (alcohol by 3)", wine[:, [1, 4, 9]], wine[:, 0]),
        resample("diabetes (3 features)", diabetes.data[:, [2, 3, 8]], diabetes.target),
        resample("breast cancer (area by 2)", cancer[:, [0, 4]], cancer[:, 3]),
        resample("linnerud (waist by 2)", linnerud.data[:, [0, 1]], linnerud.target[:, 1]),
        resample("iris (petal width by 2)", iris[:, [0, 2]], iris[:, 3]),
        resample("digits (a pixel by 3)", digits[:, [10, 20, 43]], digits[:, 28]),
        resample("wine (proline by 2)", wine[:, [0, 3]], wine[:, 12]),
        resample("breast cancer (concavity by 2)", cancer[:, [5, 8]], cancer[:, 6]),
    ]


def make_housing(rows: int = 20_000) -> Population:
    """Made to look like prices by district: skewed columns, labels cut at the top."""
    rng = np.random.default_rng(5)
    income = rng.gamma(3.5, 1.1, rows)
    rooms = np.clip(rng.lognormal(1.65, 0.3, rows), 1, 40)
    age = rng.uniform(1, 52, rows)
    price = 0.45 * income + 0.01 * age + 0.1 * rng.lognormal(0, 1, rows) * income
    X = np.column_stack([np.minimum(income, 15), rooms, age])
    return resample("housing, made (price by 3)", X, np.minimum(price, 5.0))


def list_settings(extra: Population | None) -> Iterator[Setting]:
    """Every line of the table."""
    real = list_real_tables()
    if extra is not None:
        real.append(extra)
    even = simulate("even", 2)
    for question in ("mean", "median"):
        for population in (even, simulate("skewed", 1), *real[:2]):
            yield Setting(question, population, 2_000, 0.5)
        yield Setting(question, even, 2_000, 5.0)
    for question in QUANTILES:
        for people in (1_000, 3_000, 10_000):
            for population in (even, simulate("skewed", 1), *real):
                yield Setting(question, population, people, 1.0)
    for question in ("sum", *BY_GROUPS, "variance", *MATRICES):
        for population in (even, simulate("skewed", 1), *real[:5]):
            yield Setting(question, population, 3_000, 1.0)
        yield Setting(question, even, 1_000, 0.5)
        yield Setting(question, even, 20_000, 1.0)
    kinds = ("even", "bunched", "correlated", "unequal spread", "skewed")
    more = ("heavy-tailed", "lognormal", "curved")
    for question in ("regression", "regression, statistics", "private labels"):
        for kind in (*kinds, *more):
            yield Setting(question, simulate(kind, 2), 3_000, 10.0)
        for population in (*real, make_housing()):
            yield Setting(question, population, 3_000, 10.0)
    for kind in ("even", "bunched", "correlated", "skewed", "heavy-tailed"):
        yield Setting("regression", simulate(kind, 2), 2_500, 1.0)
    for population in real[3:]:
        yield Setting("regression", population, 2_500, 1.2)
    yield Setting("regression", even, 20_000, 1.0)
    yield Setting("regression", simulate("even", 1), 1_900, 1.0)
    yield Setting("regression", simulate("even", 5), 4_000, 1.0)
    yield Setting("regression", simulate("even", 5), 20_000, 1.2)
    yield Setting("regression", simulate("even", 5), 20_000, 10.0)
    yield Setting("regression", simulate("correlated", 5), 20_000, 10.0)
    for epsilon in (0.1, 0.5):
        yield Setting("regression", even, 2_000, epsilon)
    yield Setting("regression, statistics", even, 2_000, 0.5)
    for question in ("output", "output-tight", "posterior sample", "descent, squared"):
        yield Setting(question, even, 3_000, 1.0)
        yield Setting(question, simulate("skewed", 2), 3_000, 10.0)
        for population in (real[1], real[3], make_housing()):
            yield Setting(question, population, 3_000, 1.0)
    yield Setting("descent, huber", even, 3_000, 1.0)
    yield Setting("adaptive posterior sample", even, 3_000, 1.0)
    for kind in ("even", "bunched", "correlated"):
        yield Setting("classes", to_classes(simulate(kind, 2)), 3_000, 10.0)
    yield Setting("classes", to_classes(simulate("even", 5)), 20_000, 10.0)
    for epsilon in (0.1, 0.5, 1.0):
        yield Setting("classes", to_classes(even), 3_000, epsilon)
    yield Setting("descent, logistic", to_classes(even), 3_000, 1.0)
    for epsilon in (1.0, 10.0):
        yield Setting("several classes", to_three_classes(even), 3_000, epsilon)


def read_table(path: str, label: str) -> Population:
    """The numbers of a CSV file."""
    with open(path, encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    numeric = [name for name in rows[0] if name != label and _is_number(rows[0][name])]
    X = np.array([[float(row[name]) for name in numeric] for row in rows])
    return resample(f"{path.rsplit('/', 1)[-1]}", X, np.array([float(r[label]) for r in rows]))


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


def main() -> None:
    """Prints the table, and the same in Markdown."""
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--full", action="store_true", help="ten times as many tables")
    options.add_argument("--table", help="a CSV file of numbers, as one more population")
    options.add_argument("--label", help="its label")
    options.add_argument("--runs", type=int, help="tables for each line")
    options.add_argument("--only", nargs="+", help="some of the questions")
    given = options.parse_args()
    extra = None
    if given.table:
        extra = read_table(given.table, given.label)
    runs = given.runs or (FULL_RUNS if given.full else RUNS)
    names = ["question", "population", "people", "ε", "covered", "least squares"]
    names += ["width", "known", "why not"]
    shown = Table(*names, title=f"95 % intervals, {runs} tables each")
    lines = []
    for setting in list_settings(extra):
        if given.only and setting.question not in given.only:
            continue
        lines.append(measure(setting, runs))
        shown.add_row(*lines[-1])
        console.print("| " + " | ".join(lines[-1]) + " |", highlight=False, soft_wrap=True)
    console.print(shown)


if __name__ == "__main__":
    main()
