"""One function runs a mechanism: whatever draws noise for a release does it under make_release, and
after everybody has paid.
"""

from __future__ import annotations

import ast
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import sottovoce as sv
from seams import witness
from sottovoce import estimator
from sottovoce.data import kernels
from sottovoce.estimators import mean as means

SOURCE = Path(sv.__file__).parent
BOX = sv.Bounds(features=(0, 1), label=(0, 1))
BALL = sv.Bounds(norm=1.0, label=(-1, 1))
X = np.column_stack([np.linspace(0, 1, 30), np.linspace(0, 1, 30) ** 2])
Y = X[:, 0]
GROUPS = pa.table({"g": ["a", "b"] * 15, "x": X[:, 1], "y": Y})
FITS = {
    "mean": lambda: sv.Mean(bounds=(0, 1)).fit(Y, epsilon=1.0),
    "mean by group": lambda: sv.Mean((0, 1), by={"g": ["a", "b"]}).fit(
        GROUPS, column="y", epsilon=1.0
    ),
    "count": lambda: sv.Count(by={"g": ["a", "b"]}).fit(GROUPS, epsilon=1.0),
    "count of many cells": lambda: sv.Count(by={"g": [f"l{k}" for k in range(99)]}).fit(
        GROUPS, epsilon=1.0
    ),
    "sum": lambda: sv.Sum((0, 1)).fit(Y, epsilon=1.0),
    "variance": lambda: sv.Variance((0, 1)).fit(Y, epsilon=1.0),
    "covariance": lambda: sv.Covariance({"x": (0, 1), "y": (0, 1)}).fit(GROUPS, epsilon=1.0),
    "quantile": lambda: sv.Quantile(q=0.5, bounds=(0, 1)).fit(Y, epsilon=1.0),
    "ridge by the objective": lambda: sv.Ridge(BOX).fit(X, Y, epsilon=1.0),
    "ridge by statistics": lambda: sv.Ridge(BOX, method="statistics").fit(X, Y, epsilon=1.0),
    "ridge by the output": lambda: sv.Ridge(BOX, method="output").fit(X, Y, epsilon=1.0),
    "ridge by the tight output": lambda: sv.Ridge(BOX, method="output-tight").fit(
        X, Y, epsilon=1.0
    ),
    "logistic": lambda: sv.LogisticRegression(BOX, alpha=5.0).fit(X, Y > 0.5, epsilon=1.0),
    "label-private": lambda: sv.LabelPrivateRegression((0, 1)).fit(X, Y, epsilon=1.0),
    "risk minimisation": lambda: sv.ERM("squared", bounds=BOX, delta=1e-6, steps=3).fit(
        X, Y, epsilon=1.0, progress=lambda step: None
    ),
    "risk minimisation over sampled people": lambda: sv.ERM(
        "squared", bounds=BOX, delta=1e-6, steps=3, sampling=0.5
    ).fit(X, Y, epsilon=1.0),
    "posterior": lambda: sv.PosteriorSample(4.0, 6.0, BALL).fit(X, Y, epsilon=1.0),
    "posterior without budgets": lambda: sv.PosteriorSample(4.0, 6.0, BALL).fit(X, Y),
    "adaptive posterior": lambda: sv.AdaptivePosteriorSample(bounds=BALL).fit(X, Y, epsilon=1.0),
    "report": lambda: sv.Report({"mean": (sv.Mean(bounds=(0, 1)), "y")}).fit(
        pa.table({"y": Y}), epsilon=1.0
    ),
    "uniform": lambda: sv.Uniform(sv.Mean(bounds=(0, 1))).fit(Y, epsilon=1.0),
    "threshold": lambda: sv.Threshold(sv.Mean(bounds=(0, 1))).fit(Y, epsilon=1.0),
    "limited": lambda: sv.Limited(sv.Mean(bounds=(0, 1))).fit(Y, epsilon=1.0),
}


def session():
    own = sv.Session()
    own.grant(dict.fromkeys(range(len(Y)), 1.0))
    return own


def release(own):
    return own.release(sv.Mean(bounds=(0, 1)), Y, groups=np.arange(len(Y)), epsilon=0.2, key="mean")


def find_callers(name: str) -> set[tuple[str, str]]:
    """The functions in the source that call something of this name, each with its file."""
    callers = set()
    for path in SOURCE.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        if name not in text:
            continue
        for function in ast.walk(ast.parse(text)):
            if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            for node in ast.walk(function):
                if isinstance(node, ast.Call) and name in (
                    getattr(node.func, "attr", None),
                    getattr(node.func, "id", None),
                ):
                    callers.add((path.relative_to(SOURCE).as_posix(), function.name))
    return callers


def test_one_function_runs_a_mechanism():
    assert find_callers("release_under") == {
        ("estimator.py", "_run_mechanism"),
        ("estimators/report.py", "_answer_question"),  # under the plan of the report
        ("estimators/baseline_questions.py", "release_under"),  # under its own plan
    }
    assert find_callers("_run_mechanism") == {("estimator.py", "make_release")}


def test_every_estimator_is_tried():
    there = {name for name in dir(sv) if hasattr(getattr(sv, name), "fit")}
    tried = {type(fit()).__name__ for fit in FITS.values()} | {"Sampled"}
    assert there == tried


@pytest.mark.parametrize("fit", FITS)
def test_noise_is_drawn_under_make_release(monkeypatch, fit):
    seen = witness(monkeypatch)
    FITS[fit]()
    assert seen.inside
    assert seen.outside == []


def test_only_the_coins_of_sampled_are_thrown_before(monkeypatch):
    seen = witness(monkeypatch)
    grants = [0.1] * 15 + [1.0] * 15
    sv.Sampled(sv.Mean(bounds=(0, 1))).fit(Y, epsilon=grants)
    assert seen.inside
    assert set(seen.outside) == {"sample_by_budget"}


def test_a_session_draws_noise_under_make_release(monkeypatch):
    own = session()
    seen = witness(monkeypatch)
    release(own)
    assert seen.inside
    assert seen.outside == []


def test_an_estimator_that_draws_on_its_own_is_noticed(monkeypatch):
    class Loner(sv.Mean):
        def fit(self, y, epsilon=None, groups=None, column=None):
            plan = self.plan(epsilon, rows=len(y))
            self.value_ = means.draw_noisy_values(plan, 0)[0]
            return self

    seen = witness(monkeypatch)
    Loner(bounds=(0, 1)).fit(Y, epsilon=1.0)
    assert seen.inside == 0
    assert seen.outside == ["draw_laplace"]


def balances_while_reading(monkeypatch) -> list[float]:
    """What somebody has left whenever values are read for a release."""
    own = session()
    seen = []
    original = kernels.WeightedSum.__call__

    def look(self, batch):
        seen.append(own.balance(0))
        return original(self, batch)

    monkeypatch.setattr(kernels.WeightedSum, "__call__", look)
    release(own)
    return seen


def test_everybody_has_paid_before_a_value_is_read(monkeypatch):
    seen = balances_while_reading(monkeypatch)
    assert seen
    assert max(seen) < 1.0


def test_a_release_that_is_run_before_it_is_paid_for_is_noticed(monkeypatch):
    def run_before_paying(question, dataset, *, payer, progress=None):
        plan, affordable = payer.plan(question, dataset)
        early = estimator._run_mechanism(question, plan, affordable, progress)
        return plan, payer.publish(early, payer.reserve(plan))

    monkeypatch.setattr("sottovoce.booking.make_release", run_before_paying)
    assert max(balances_while_reading(monkeypatch)) == 1.0
