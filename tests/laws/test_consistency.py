"""Answers stay right: the classical one without need for noise, and never worse for more budget.

Every question of the registry is held to this by being listed there. Tables are drawn anew in each
run; what is compared is drawn often enough that one run raises a false alarm with probability below
1e-6.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from scipy.stats import mannwhitneyu, norm
from sklearn.linear_model import LinearRegression, LogisticRegression

import registry_laws
import sottovoce as sv
from registry_laws import HIGH, LOW, QUESTIONS, UNLIMITED
from sottovoce.estimators import Question

#: The classical answers about one column.
CLASSICAL = {"mean": np.mean, "sum": np.sum, "variance": np.var}
#: Fewer than fifty comparisons a run, each of which errs with probability 2e-8 at most.
LARGEST_DEVIATION = float(norm.isf(2e-8))
#: How often the smallest and the largest budget are drawn where errors are often none at all: with
#: 150 the ranks of a median's errors lie 15.9 deviations apart, ± 0.4, where 5.6 are asked for.
DRAWS_AT_ENDS = {"column": 150}
every_question = pytest.mark.parametrize("question", QUESTIONS, ids=lambda one: one.name)


@dataclass(frozen=True)
class Table:
    """Rows of a question, and the classical answer about them."""

    data: tuple[Any, ...]
    classical: np.ndarray


def make_table(question: Question, rows: int, rng: np.random.Generator) -> Table:
    """Returns rows whose labels are skewed, and what the classical method says about them."""
    if question.reads == "column":
        values = np.minimum(LOW + rng.exponential(1.5, rows), HIGH)
        share = question.complete_parameters({}).get("q")
        if share is None:
            return Table((values,), np.array([CLASSICAL[question.name](values)]))
        return Table((values,), np.quantile(values, share))
    if question.reads == "table":
        return make_grouped_table(question, rows, rng)
    X = rng.random((rows, 2))
    features = pa.table({"u": X[:, 0], "v": X[:, 1]})
    if question.reads == "classes":
        odds = 3 * (X[:, 0] - 0.5) - 2 * (X[:, 1] - 0.4)
        labels = np.where(rng.random(rows) < 1 / (1 + np.exp(-odds)), "yes", "no")
        model = LogisticRegression(C=1e9, tol=1e-10, max_iter=10_000).fit(X, labels)
        return Table((features, labels), np.r_[model.intercept_, model.coef_[0]])
    label = LOW + rng.poisson(1 + 2 * X[:, 0]) * (rng.random(rows) < 0.6)
    label = np.minimum(label.astype(float), HIGH)
    constant = getattr(registry_laws.make(question), "fit_intercept", True)
    model = LinearRegression(fit_intercept=constant).fit(X, label)
    return Table((features, label), np.r_[model.intercept_, model.coef_])


def make_grouped_table(question: Question, rows: int, rng: np.random.Generator) -> Table:
    """Returns rows of two groups and some of neither, and counts, means or covariances of them."""
    y = np.minimum(LOW + rng.exponential(1.5, rows), HIGH)
    u = np.clip(0.3 + 0.05 * y + 0.1 * rng.random(rows), 0, 1)
    g = rng.choice(["few", "many", "unknown"], rows, p=[0.3, 0.5, 0.2])
    table = pa.table({"u": u, "y": y, "g": g})
    if question.name == "count":
        return Table((table,), np.array([(g == name).sum() for name in ("few", "many", "unknown")]))
    if question.name == "covariance":
        return Table((table,), np.cov(u, y, bias=True).ravel())
    return Table((table,), np.array([y[g == name].mean() for name in ("few", "many", "unknown")]))


def read_answer(release: sv.Release) -> np.ndarray:
    """Returns the numbers of a release: values, or intercept and coefficients."""
    value: Any = release.value
    if not isinstance(value, dict):
        return np.ravel(value).astype(float)
    if "by" in release.parameters:
        numbers = registry_laws.read_table_numbers(release)
        return np.array(numbers if "columns" in release.parameters else numbers[:3])
    if "models" in value:
        (value,) = value["models"].values()
    return np.array([value["intercept"], *value["coefficients"].values()])


def draw_answers(question: Question, table: Table, epsilon: float, draws: int) -> np.ndarray:
    """Returns the answers of so many releases about one table, by the real mechanism."""
    estimator = registry_laws.make(question)
    rows = estimator.read_arrays(*table.data, epsilon=epsilon, groups=None)
    plan = estimator.plan_for(rows.budgets, rows)
    return np.array([read_answer(estimator.release_under(plan, rows)) for _ in range(draws)])


def is_noise_set_by_parameters(question: Question) -> bool:
    """Whether budgets do not move the noise: a posterior sample of a given concentration."""
    estimator = registry_laws.make(question)
    one, two = (estimator.plan(epsilon=e, rows=400).noise for e in (0.1, UNLIMITED))
    return bool(one == two)


@every_question
def test_without_need_for_noise_the_answer_is_the_classical_one(question):
    table = make_table(question, 500, np.random.default_rng())
    if is_noise_set_by_parameters(question):
        pytest.skip("its noise is a parameter")
    # The mean of forty: one sample of a posterior still varies by a hundredth at this budget.
    answer = draw_answers(question, table, UNLIMITED, 40).mean(axis=0)
    unit = HIGH - LOW
    if question.reads == "classes":
        unit = np.abs(table.classical).max()
    assert np.abs(answer - table.classical).max() <= unit / 100


def measure_squared_errors(
    question: Question, table: Table, epsilon: float, draws: int
) -> np.ndarray:
    """Returns how far answers are from the classical one: of models, in what they predict."""
    apart = draw_answers(question, table, epsilon, draws) - table.classical
    if question.reads in ("column", "table"):
        return (apart**2).sum(axis=1)
    X = np.column_stack([np.ones(len(table.data[1])), *table.data[0].to_pydict().values()])
    return np.mean((apart @ X.T) ** 2, axis=1)


def is_worse(before: np.ndarray, after: np.ndarray) -> bool:
    """Whether the errors after are larger on average, by more than chance explains."""
    spread = np.sqrt(before.var() / len(before) + after.var() / len(after))
    return bool(after.mean() - before.mean() > LARGEST_DEVIATION * spread)


@every_question
def test_more_budget_is_never_worse(question):
    if is_noise_set_by_parameters(question):
        pytest.skip("its noise is a parameter")
    # An odd number of rows has one median. Of an even number every point between the middle two is
    # one, and where these lie far apart a large budget has errors like a small one's: ± 1.6.
    table = make_table(question, 401, np.random.default_rng())
    ends = DRAWS_AT_ENDS.get(question.reads, 60)
    draws = {0.5: ends, 1.0: 60, 2.0: 60, 8.0: 60, 64.0: ends}
    errors = [measure_squared_errors(question, table, e, count) for e, count in draws.items()]
    for before, after in pairwise(errors):
        assert not is_worse(before, after)
    # The measurement can tell: by ranks, because squares of noise have heavy tails.
    assert mannwhitneyu(errors[0], errors[-1], alternative="greater").pvalue < 1e-8
