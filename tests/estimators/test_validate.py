"""What is wrong with an estimator whoever the people are is refused by validate, in the words of
its plan, and without anybody's budget.
"""

from __future__ import annotations

import numpy as np
import pytest

import sottovoce as sv
from sottovoce.errors import InvalidBounds, SottovoceError
from sottovoce.schema import Column

BOX = sv.Bounds(features=(0, 1), label=(0, 1))
BALL = sv.Bounds(norm=1.0, label=(-1, 1))
NO_LABEL = sv.Bounds(features=(0, 1))
COST = Column("number", 0, 100)
SCHEMA = sv.Schema(columns={"age": Column("number", 18, 99), "cost": COST}, label="cost")
MANY = {f"c{i}": Column("number", 0, 1) for i in range(1100)}
WIDE = sv.Schema(columns={**MANY, "cost": COST}, label="cost")
X = np.column_stack([np.linspace(0, 1, 20), np.linspace(0, 1, 20) ** 2])
COLUMN = {"epsilon": 1.0, "rows": 20}
MODEL = {"epsilon": 1.0, "rows": 20, "n_features": 2}
DESIGN = {"X": X, "epsilon": 1.0}
WRONG = {
    "mean without bounds": (sv.Mean(), COLUMN),
    "mean with bounds too close": (sv.Mean(bounds=(0, 5e-324)), COLUMN),
    "mean with a wide spread": (sv.Mean(bounds=(0, 1), spread=2.0), COLUMN),
    "mean with a constant outside": (sv.Mean(bounds=(0, 1), missing=2.0), COLUMN),
    "sum between bounds too close to be squared": (sv.Sum(bounds=(0, 1e-200)), COLUMN),
    "variance between bounds too close to be squared": (sv.Variance(bounds=(0, 1e-100)), COLUMN),
    "quantile without bounds": (sv.Quantile(q=0.5), COLUMN),
    "quantile beyond 1": (sv.Quantile(q=1.5, bounds=(0, 1)), COLUMN),
    "quantile by no method": (sv.Quantile(q=0.5, bounds=(0, 1), method="x"), COLUMN),
    "quantile with one cell": (sv.Quantile(q=0.5, bounds=(0, 1), cells=1), COLUMN),
    "quantile with no spread": (sv.Quantile(q=0.5, bounds=(0, 1), spread=0.0), COLUMN),
    "ridge without bounds": (sv.Ridge(), MODEL),
    "ridge without a label": (sv.Ridge(NO_LABEL), MODEL),
    "ridge by no method": (sv.Ridge(BOX, method="x"), MODEL),
    "ridge with no loss": (sv.Ridge(BOX, loss="x"), MODEL),
    "ridge with a negative alpha": (sv.Ridge(BOX, alpha=-1.0), MODEL),
    "ridge with a wide label scale": (sv.Ridge(BOX, label_scale=9.0), MODEL),
    "ridge by the output with a tiny alpha": (
        sv.Ridge(SCHEMA, method="output", alpha=1e-12),
        {"epsilon": 1.0, "rows": 20},
    ),
    "ridge by the output with a negative bound": (
        sv.Ridge(BOX, method="output", coefficient_bound=-1.0),
        MODEL,
    ),
    "ridge by the output with many columns": (
        sv.Ridge(WIDE, method="output-tight"),
        {"epsilon": 1.0, "rows": 20},
    ),
    "logistic without bounds": (sv.LogisticRegression(), MODEL),
    "logistic with no neighbours": (sv.LogisticRegression(BOX, neighbours="x"), MODEL),
    "logistic with a negative alpha": (sv.LogisticRegression(BOX, alpha=-1.0), MODEL),
    "logistic with a flag that is none": (sv.LogisticRegression(BOX, fit_intercept="yes"), MODEL),
    "posterior without bounds": (sv.PosteriorSample(), MODEL),
    "posterior with a large delta": (sv.PosteriorSample(bounds=BALL, delta=2.0), MODEL),
    "posterior with a negative gamma": (sv.PosteriorSample(-1.0, bounds=BALL), MODEL),
    "posterior with many columns": (
        sv.PosteriorSample(bounds=WIDE),
        {"epsilon": 1.0, "rows": 20},
    ),
    "adaptive posterior by no calibration": (
        sv.AdaptivePosteriorSample(bounds=BALL, calibration="x"),
        MODEL,
    ),
    "adaptive posterior with a large share": (
        sv.AdaptivePosteriorSample(bounds=BALL, share=2.0),
        MODEL,
    ),
    "risk without bounds": (sv.ERM("squared", delta=1e-6), MODEL),
    "risk without delta": (sv.ERM("squared", bounds=BOX), MODEL),
    "risk of no loss": (sv.ERM("x", bounds=BOX, delta=1e-6), MODEL),
    "risk with half a step": (sv.ERM("squared", bounds=BOX, delta=1e-6, steps=0.5), MODEL),
    "risk at no rate": (sv.ERM("squared", bounds=BOX, delta=1e-6, sampling=2.0), MODEL),
    "labels without bounds": (sv.LabelPrivateRegression(), DESIGN),
    "labels with a large variance": (
        sv.LabelPrivateRegression((0, 1), noise_variance=9.0),
        DESIGN,
    ),
    "labels with no sensitivity": (sv.LabelPrivateRegression((0, 1), sensitivity="x"), DESIGN),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_what_no_people_could_make_right_is_refused_without_them(wrong):
    estimator, people = WRONG[wrong]
    with pytest.raises(SottovoceError) as early:
        estimator.validate()
    with pytest.raises(SottovoceError) as planned:
        estimator.plan(**people)
    assert (type(early.value), str(early.value)) == (type(planned.value), str(planned.value))


def test_bounds_of_a_label_whose_half_range_doubles_do_not_hold_are_refused():
    with pytest.raises(InvalidBounds):
        sv.Bounds(features=(0, 1), label=(0, 5e-324))


@pytest.mark.parametrize(
    "right",
    [
        sv.Mean(bounds=SCHEMA),
        sv.Mean(bounds=(0, 1), spread=0.1, missing=0.5),
        sv.Quantile(q=[0.25, 0.75], bounds=(0, 1)),
        sv.Ridge(SCHEMA),
        sv.Ridge(BOX, method="output"),
        sv.LogisticRegression(NO_LABEL),
        sv.PosteriorSample(bounds=BALL),
        sv.AdaptivePosteriorSample(bounds=SCHEMA),
        sv.ERM("logistic", bounds=NO_LABEL, delta=1e-6),
        sv.LabelPrivateRegression(SCHEMA),
    ],
    ids=lambda right: type(right).__name__,
)
def test_what_some_people_could_make_right_is_not(right):
    assert right.validate() is None
