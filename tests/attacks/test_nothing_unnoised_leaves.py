"""Nothing un-noised is in a fitted object, its pickle, its repr or its release."""

from __future__ import annotations

import pickle
import re

import numpy as np
import pytest

import sottovoce as sv
from cases import CASES, captured

VALUES = np.linspace(2.0, 9.0, 400) ** 1.1
EPSILON = np.repeat([0.05, 0.2], 200)


def everything_reachable(thing, seen=None) -> list:
    """Returns every number reachable from an object through attributes, containers and arrays."""
    if seen is None:
        seen = set()
    if id(thing) in seen:
        return []
    seen.add(id(thing))
    if isinstance(thing, bool | str | bytes | type(None)):
        return []
    if isinstance(thing, int | float | np.number):
        return [thing]
    if isinstance(thing, np.ndarray):
        if thing.dtype.kind in "iuf":
            return thing.ravel().tolist()
        return []
    if isinstance(thing, dict):
        inside = list(thing.values())
    elif isinstance(thing, list | tuple | set):
        inside = list(thing)
    else:
        inside = []
    inside += list(getattr(thing, "__dict__", {}).values())
    return [number for part in inside for number in everything_reachable(part, seen)]


def unnoised(case) -> set[float]:
    """Every statistic of the data that must not be found: sums, means, quantiles, the values
    themselves.
    """
    capture = captured(case, VALUES, EPSILON)
    total = capture.plan.weights.total
    numbers = [VALUES.mean(), VALUES.sum(), np.median(VALUES), VALUES.min(), VALUES.max(), *VALUES]
    if case.name.startswith("mean"):
        numbers += [
            capture.statistic,
            capture.statistic >> capture.plan.grid.shift,
            capture.statistic / total,
        ]
        step = float(capture.plan.grid.values.step)
        numbers.append(step * capture.statistic / total)
    else:
        numbers += [*np.cumsum(capture.statistic)[:-1], *capture.statistic[capture.statistic > 0]]
    return {float(f"{float(n):.9g}") for n in numbers if abs(float(n)) > 1e-9}


@pytest.mark.parametrize("case", CASES, ids=repr)
def test_no_unnoised_statistic_is_reachable(case):
    forbidden = unnoised(case)
    # Far from any coincidence: the grid of the answers is coarse, so an answer may equal a value;
    # refit until not.
    estimator = case.make().fit(VALUES, epsilon=EPSILON)
    public = set(everything_reachable(case.make().plan(epsilon=EPSILON)))
    found = [n for n in everything_reachable(estimator) if n not in public]
    answers = set(np.atleast_1d(estimator.value_).tolist())
    leaked = {float(f"{float(n):.9g}") for n in found if n not in answers} & forbidden
    assert not leaked


@pytest.mark.parametrize("case", CASES, ids=repr)
def test_a_pickle_holds_no_more_than_the_object(case):
    estimator = case.make().fit(VALUES, epsilon=EPSILON)
    again = pickle.loads(pickle.dumps(estimator))
    assert again.release_ == estimator.release_
    assert (
        set(vars(again))
        == set(vars(estimator))
        == set(estimator.get_params()) | {"value_", "release_", "guarantee_"}
    )


@pytest.mark.parametrize("case", CASES, ids=repr)
def test_the_scan_would_find_a_leak(case):
    estimator = case.make().fit(VALUES, epsilon=EPSILON)
    estimator._kept = {"statistic": [captured(case, VALUES, EPSILON).statistic]}
    found = {float(f"{float(n):.9g}") for n in everything_reachable(estimator)}
    assert found & unnoised(case)


def test_repr_and_release_show_parameters_and_answers_only():
    mean = sv.Mean(bounds=(0, 10)).fit(VALUES, epsilon=EPSILON)
    assert repr(mean) == "Mean(bounds=(0, 10))"
    numbers = {float(n) for n in re.findall(r"-?\d+\.\d+(?:e-?\d+)?", mean.release_.to_json())}
    assert not {round(n, 9) for n in numbers - {mean.value_}} & {
        round(v, 9) for v in [VALUES.mean(), *VALUES]
    }


def test_the_release_does_not_say_who_has_which_budget():
    names = ["ada-lovelace", "ben-trovato"] * 200
    budgets = {"ada-lovelace": 0.3, "ben-trovato": 0.7}
    mean = sv.Mean(bounds=(0, 10)).fit(VALUES, epsilon=budgets, groups=names)
    assert "lovelace" not in mean.release_.to_json()
    assert "trovato" not in mean.release_.to_json() + mean.release_.explain()
