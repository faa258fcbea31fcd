"""Everything a person can get wrong is a named error with a way out, before anything is charged or
drawn.
"""

from __future__ import annotations

import pickle
import traceback

import numpy as np
import pandas as pd
import pytest

import sottovoce as sv
from sottovoce import errors
from sottovoce.noise import source

SECRET = 987654.3210123
SECRET_TEXT = "hush-4711"
GOOD = np.linspace(0, 10, 20)
GOOD[3] = SECRET


class NoNoise:
    """A seam that fails the test if anything is drawn."""

    def bytes(self, count):
        raise AssertionError("randomness was drawn for a refused request")

    def integers(self, law, scale, size):
        raise AssertionError("noise was drawn for a refused request")


def with_value(value):
    if isinstance(value, str):
        values = GOOD.astype(object)
    else:
        values = GOOD.copy()
    values[7] = value
    return values


BAD = {
    "NaN": (errors.MissingValues, {"y": with_value(np.nan)}),
    "infinity": (errors.MissingValues, {"y": with_value(np.inf)}),
    "minus infinity": (errors.MissingValues, {"y": with_value(-np.inf)}),
    "null": (errors.MissingValues, {"y": pd.Series([1.0, None] * 10)}),
    "text": (errors.WrongType, {"y": with_value(SECRET_TEXT)}),
    "all text": (errors.WrongType, {"y": np.array([SECRET_TEXT] * 20)}),
    "dates": (errors.WrongType, {"y": np.array(["2026-01-01"] * 20, dtype="datetime64[D]")}),
    "complex numbers": (errors.WrongType, {"y": GOOD + 1j}),
    "a table": (errors.WrongType, {"y": np.ones((20, 2))}),
    "objects": (errors.WrongType, {"y": np.array([{SECRET_TEXT: 1}] * 20, dtype=object)}),
    "nothing": (errors.TooFewRows, {"y": [], "epsilon": []}),
    "no rows": (errors.TooFewRows, {"y": []}),
    "one row": (errors.TooFewRows, {"y": [SECRET]}),
    "zero ε": (errors.InvalidBudget, {"epsilon": 0}),
    "negative ε": (errors.InvalidBudget, {"epsilon": -0.5}),
    "NaN ε": (errors.InvalidBudget, {"epsilon": np.nan}),
    "infinite ε": (errors.InvalidBudget, {"epsilon": np.inf}),
    "huge ε": (errors.InvalidBudget, {"epsilon": 1e300}),
    "tiny ε": (errors.InvalidBudget, {"epsilon": 1e-12}),
    "one zero among ε": (errors.InvalidBudget, {"epsilon": [0.1] * 19 + [0.0]}),
    "text as ε": (errors.InvalidBudget, {"epsilon": SECRET_TEXT}),
    "no ε": (errors.InvalidBudget, {"epsilon": None}),
    "ε of another length": (errors.UnequalLengths, {"epsilon": [0.1] * 19}),
    "groups of another length": (errors.UnequalLengths, {"groups": ["a"] * 19}),
    "an owner missing": (errors.UnknownPeople, {"groups": ["a", None] * 10}),
    "an unknown person": (
        errors.UnknownPeople,
        {"epsilon": {"a": 0.1}, "groups": ["a", SECRET_TEXT] * 10},
    ),
    "two budgets for one": (
        errors.InconsistentBudget,
        {"epsilon": [0.1, 0.2] * 10, "groups": ["a"] * 20},
    ),
    "budgets of people by row": (
        errors.UnequalLengths,
        {"epsilon": pd.Series([0.1, 0.2], index=[SECRET_TEXT] * 2), "groups": [SECRET_TEXT] * 20},
    ),
    "bounds missing": (errors.InvalidBounds, {"bounds": None}),
    "bounds reversed": (errors.InvalidBounds, {"bounds": (10, 0)}),
    "bounds equal": (errors.InvalidBounds, {"bounds": (3, 3)}),
    "bounds infinite": (errors.InvalidBounds, {"bounds": (0, np.inf)}),
    "bounds NaN": (errors.InvalidBounds, {"bounds": (0, np.nan)}),
    "bounds too far apart": (errors.InvalidBounds, {"bounds": (-1.7e308, 1.7e308)}),
    "bounds too close": (errors.InvalidBounds, {"bounds": (0, 1e-320)}),
    "bounds of text": (errors.InvalidBounds, {"bounds": ("a", "b")}),
    "three bounds": (errors.InvalidBounds, {"bounds": (0, 1, 2)}),
}

questions = pytest.mark.parametrize("question", [sv.Mean, sv.Quantile])


def refused(question, arguments):
    given = {"y": GOOD, "epsilon": 0.5, "groups": None, "bounds": (0, 10), **arguments}
    with source._seam(NoNoise()):
        question(bounds=given["bounds"]).fit(
            given["y"], epsilon=given["epsilon"], groups=given["groups"]
        )


@questions
@pytest.mark.parametrize(("error", "arguments"), BAD.values(), ids=BAD.keys())
def test_bad_input_is_a_named_error_with_a_way_out(question, error, arguments):
    with pytest.raises(error) as caught:
        refused(question, arguments)
    assert isinstance(caught.value, errors.InvalidInput)
    assert caught.value.found
    assert caught.value.remedy
    no_secret_in(caught.value)


def no_secret_in(error):
    """Neither the message, nor the printed traceback, nor anything chained to the error repeats the
    data.
    """
    told = (
        "".join(traceback.format_exception_only(error))
        + repr(error.__dict__)
        + repr(pickle.dumps(error))
    )
    chained = []
    link = error.__context__ or error.__cause__
    while link is not None:
        chained.append(repr(link))
        link = link.__context__ or link.__cause__
    for secret in (SECRET_TEXT, str(SECRET), "987654"):
        assert secret not in told
        assert not any(secret in text for text in chained)


@pytest.mark.parametrize(
    "parameters",
    [
        {"q": -0.1},
        {"q": 1.5},
        {"q": []},
        {"q": "half"},
        {"q": np.nan},
        {"spread": 0},
        {"spread": "wide"},
        {"cells": 1},
        {"cells": 2**23},
        {"method": "best"},
    ],
)
def test_bad_parameters_of_a_quantile(parameters):
    with pytest.raises(errors.InvalidParameter):
        sv.Quantile(**{"q": 0.5, "bounds": (0, 10), **parameters}).fit(GOOD, epsilon=1.0)


def test_more_quantiles_than_units():
    with pytest.raises(errors.InvalidBudget):
        sv.Quantile(q=[0.1, 0.5, 0.9], bounds=(0, 1), method="permute-and-flip").fit(
            GOOD, epsilon=2e-9
        )


@questions
@pytest.mark.parametrize("missing", [np.nan, np.inf, SECRET_TEXT])
def test_bad_constants_for_missing_values(question, missing):
    with pytest.raises(errors.InvalidParameter):
        question(bounds=(0, 10), missing=missing).fit(GOOD, epsilon=1.0)


@pytest.mark.parametrize("spread", ["wide", 0, -1, 11, np.nan])
def test_bad_spread_of_a_mean(spread):
    with pytest.raises(errors.InvalidParameter):
        sv.Mean(bounds=(0, 10), spread=spread).plan(epsilon=1.0, rows=10)


@questions
def test_failures_after_the_data_was_touched_all_look_the_same(question, monkeypatch):
    from sottovoce.data import kernels

    told = set()
    for failure in (
        ValueError(SECRET_TEXT),
        MemoryError(SECRET_TEXT),
        errors.MissingValues(SECRET_TEXT),
    ):

        def broken(*_, failure=failure):
            raise failure

        monkeypatch.setattr(kernels.WeightedKernel, "pieces", broken)  # of a histogram
        monkeypatch.setattr(kernels.WeightedKernel, "add_up", broken)  # of a sum
        with pytest.raises(errors.ReleaseFailed) as caught:
            question(bounds=(0, 10)).fit(GOOD, epsilon=1.0)
        no_secret_in(caught.value)
        told.add(str(caught.value))
    assert len(told) == 1


@questions
@pytest.mark.parametrize("epsilon", [1e-9, 1e6])
def test_the_smallest_and_the_largest_budget_get_an_answer(question, epsilon):
    estimator = question(bounds=(0, 10)).fit(GOOD, epsilon=epsilon)
    assert 0 <= estimator.value_ <= 10
    assert np.all(estimator.guarantee_.epsilon <= epsilon)


@questions
def test_one_person_with_all_the_rows_gets_an_answer(question):
    estimator = question(bounds=(0, 10)).fit(GOOD, epsilon=1.0, groups=["only"] * len(GOOD))
    assert estimator.guarantee_.epsilon.tolist() == pytest.approx([1.0], rel=1e-6)


@questions
def test_a_huge_range_does_not_overflow(question):
    values = np.array([-1e300, 1e300] * 50)
    estimator = question(bounds=(-1e300, 1e300)).fit(values, epsilon=5.0)
    assert -1e300 <= estimator.value_ <= 1e300


@questions
def test_a_constant_column_gets_an_answer(question):
    assert 0 <= question(bounds=(0, 10)).fit(np.full(500, 3.25), epsilon=1.0).value_ <= 10


@questions
def test_missing_values_with_a_public_constant_get_an_answer(question):
    assert (
        0 <= question(bounds=(0, 10), missing=5.0).fit(with_value(np.nan), epsilon=1.0).value_ <= 10
    )
    with pytest.raises(errors.MissingValues):
        question(bounds=(0, 10), missing=5.0).fit(with_value(np.inf), epsilon=1.0)
