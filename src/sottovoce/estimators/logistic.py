# SPDX-License-Identifier: Apache-2.0
"""Logistic regression with a budget a person (docs/theory/logistic.md).

Minimise Σ a_i·log(1 + e^(−y_iφ_iᵀw)) + ½λ‖w‖² + bᵀw, density of b ∝ exp(−η_n‖b‖/2), over rows φ of
the unit ball. logistic_mechanism.py has the weights, the rate and the charges, λ and the way into
the ball, and the fit.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, log_expit, softmax
from sklearn.utils.validation import check_is_fitted

from sottovoce.arrays import Array, ColumnLike, Floats, TableLike, check_same_length, to_matrix
from sottovoce.budgets import BudgetLike, Budgets
from sottovoce.data.encoding import (
    VALUE,
    ClassLabel,
    Recoding,
    UnitBall,
    UnitBallReader,
    count_declared_columns,
    describe_model,
)
from sottovoce.data.engine import Dataset
from sottovoce.data.source import DataSource, describe_rows
from sottovoce.errors import InvalidParameter
from sottovoce.estimator import load_matrix, make_budgets
from sottovoce.estimators import logistic_mechanism
from sottovoce.estimators.base import ClassifierMixin, LoadableEstimator, ModelEstimator
from sottovoce.estimators.logistic_mechanism import LABELS, PersonWeights
from sottovoce.guarantee import Guarantee, Neighbours
from sottovoce.plan import Plan, Theorem
from sottovoce.release import Release
from sottovoce.schema import Bounds, BoundsLike, Classes, check_flag, is_measurable, is_one_of

NEIGHBOURS: dict[str, Neighbours] = {"replace": "replace", "labels": "replace labels"}
ACCOUNTANTS = {
    "kappa": (
        "at most the smaller of κ(λ, ηλ)·W_l·η and the exact charge, for each problem, and ε_out"
    ),
    "exact": (
        "at most max_s ½W_lη(1+s) + r_l·log(1 + W_l·s(1−s)/(r_lλ)), for each problem, and ε_out"
    ),
}


class LogisticRegression(LoadableEstimator, ClassifierMixin, ModelEstimator):
    """Logistic regression, each person with the weight that their own ε allows.

    **Question.** Which linear function of the features tells the classes apart? Features lie in
    ``bounds``; values beyond are clipped. Classes are declared, never read off the labels.

    **Promise.** Pure ε_l for each person l (each row, without ``groups``), neighbours by
    replacement of all their rows, features and label, or of their labels alone
    (``neighbours="labels"``); floating arithmetic.

    **Formula.** Objective perturbation with public weights, charged by the κ accountant
    (docs/theory/kappa.md); several classes one against the others, each person's ε split evenly
    among the problems that they can change.

    >>> import numpy as np, sottovoce as sv
    >>> x = np.linspace(-1, 1, 4000)[:, None]
    >>> model = sv.LogisticRegression(bounds=sv.Bounds(features=(-1, 1))).fit(
    ...     x, x[:, 0] > 0, epsilon=1.0
    ... )
    >>> bool(np.all(model.guarantee_.epsilon <= 1.0)), bool(model.score(x, x[:, 0] > 0) > 0.9)
    (True, True)

    **Limits.** Shrunk towards even odds; a chosen λ is undone in part, which leaves decisions as
    they are. Which classes there are, the number of rows a person and the budgets are public.

    Parameters
    ----------
    bounds :
        Bounds with features (a box, or norm= for rows that are used as they are), or a Schema.
    classes :
        The possible labels; if not given, those of the schema, of the public rows, the label's
        bounds, or (0, 1).
    public :
        (X, y), rows that need no protection, for scaling and for choosing λ only.
    alpha :
        Regularisation λ of the mean loss of rows in the unit ball; a public number. None: chosen.
    fit_intercept :
        Whether there is a constant term; it is regularised like the slopes.
    neighbours :
        "replace", or "labels" to protect labels alone, at half the noise.
    accountant :
        "kappa", or "exact" for the charge without the κ table.
    missing :
        Public constant between the bounds of all features that stands for missing ones; a schema
        declares one for each column. A missing class is refused.
    """

    intercept_: Floats
    classes_: Array

    def __init__(
        self,
        bounds: BoundsLike | None = None,
        *,
        classes: ColumnLike | None = None,
        public: Any = None,
        alpha: float | None = None,
        fit_intercept: bool = True,
        neighbours: str = "replace",
        accountant: str = "kappa",
        missing: float | None = None,
    ) -> None:
        self.bounds = bounds
        self.classes = classes
        self.public = public
        self.alpha = alpha
        self.fit_intercept = fit_intercept
        self.neighbours = neighbours
        self.accountant = accountant
        self.missing = missing

    def validate(self) -> None:
        """Refuses bounds, classes and parameters that are wrong for any people."""
        count_declared_columns(self.bounds, self.missing)
        self._get_classes()
        self._refuse_unknown()
        check_flag(self.fit_intercept, "fit_intercept")

    def read_arrays(self, *data: Any, epsilon: BudgetLike, groups: ColumnLike | None) -> Dataset:
        """Returns the budgets and rows of features and classes in memory, the rows in the unit
        ball.
        """
        X, y = data
        recoding = self._make_recoding(X)
        classes = self._get_classes()
        raw = to_matrix(X, recoding)
        codes = classes.find_codes(y)
        check_same_length(len(raw), y=codes, groups=groups)
        budgets = make_budgets(epsilon, groups, len(codes))
        ball = self._choose_tuning(self._make_weights(budgets, recoding), recoding).ball
        reader = UnitBallReader(ball, recoding)
        label = ClassLabel(VALUE, classes, coded=True)
        return load_matrix(ball.encode(raw, recoding), reader, codes, label, budgets)

    def read_table(self, table: DataSource) -> Dataset:
        """Returns the features and the classes that are read of a table."""
        recoding = self._make_recoding(table.list_features(self.bounds))
        return describe_rows(ClassLabel(table.find_label(), self._get_classes()), recoding)

    def release_under(self, plan: Plan, rows: Dataset) -> Release:
        """Reads the rows, draws the noise, and returns the release."""
        given = plan.parameters
        recoding = Recoding.from_dict(given["features"])
        ball = UnitBall.from_dict(given["ball"])
        person_weights = self._make_weights(plan.budgets, recoding)
        problems = logistic_mechanism.Problems(
            rows, ball, person_weights, given["alpha"], plan.noise["rate"]
        )
        models = {}
        for positive in _list_positive_classes(given["classes"]):
            theta = problems.fit_class(positive) * given["stretch"]
            model = describe_model(recoding, *ball.to_original_units(theta))
            models[str(given["classes"][positive])] = model
        return Release.of(plan, {"models": models})

    def decision_function(self, X: TableLike) -> Floats:
        """Return log-odds of the second class, or of each class against the others.

        A row that is longer than rows were taken to be is cut as in fit; for others this is
        intercept + X·coef.

        Parameters
        ----------
        X : TableLike
            Features of new rows, with the columns that were declared.

        Returns
        -------
        Floats
            A number a row, or a column a class where there are several.

        Raises
        ------
        NotFittedError
            There is no answer yet.
        """
        check_is_fitted(self, "coef_")
        recoding = self._recoding
        ball = UnitBall.from_dict(self.release_.parameters["ball"])
        Z = recoding.encode(to_matrix(X, recoding, expected=self.n_features_in_))
        models = zip(self.intercept_, self.coef_, strict=True)
        columns = [
            ball.margins(Z, *recoding.to_encoded_units(float(intercept), slopes))
            for intercept, slopes in models
        ]
        if len(columns) == 1:
            return columns[0]
        return np.column_stack(columns)

    def predict(self, X: TableLike) -> NDArray[Any]:
        """Return the class with the highest odds for each row.

        Parameters
        ----------
        X : TableLike
            Features of new rows, with the columns that were declared.

        Returns
        -------
        NDArray[Any]
            One prediction a row.

        Raises
        ------
        NotFittedError
            There is no answer yet.
        """
        odds = self.decision_function(X)
        if odds.ndim == 2:
            which = odds.argmax(axis=1)
        else:
            which = (odds > 0).astype(np.int64)
        return np.asarray(self.classes_[which])

    def predict_proba(self, X: TableLike) -> Floats:
        """Return a probability for each class; they add up to one.

        Parameters
        ----------
        X : TableLike
            Features of new rows, with the columns that were declared.

        Returns
        -------
        Floats
            A column a class.

        Raises
        ------
        NotFittedError
            There is no answer yet.
        """
        odds = self.decision_function(X)
        if odds.ndim == 1:
            return np.column_stack([expit(-odds), expit(odds)])
        return np.asarray(softmax(log_expit(odds), axis=1), dtype=np.float64)

    def _make_plan(self, budgets: Budgets, recoding: Recoding) -> Plan:
        classes = self._get_classes()
        person_weights = self._make_weights(budgets, recoding)
        setting = self._choose_tuning(person_weights, recoding)
        rate = person_weights.rate(setting.ridge, self.accountant)
        charges = person_weights.charges(setting.ridge, rate, self.accountant)
        return Plan(
            question="logistic regression",
            parameters={
                "classes": list(classes.values),
                "features": recoding.to_dict(),
                "neighbours": self.neighbours,
                "accountant": self.accountant,
                "alpha": setting.ridge,
                "ball": setting.ball.to_dict(),
                "stretch": setting.stretch,
                "problems": len(_list_positive_classes(classes.values)),
                "public_rows": 0 if self.public is None else len(self.public[1]),
            },
            budgets=budgets,
            weights=person_weights.weights,
            guarantee=replace(
                Guarantee.of(budgets, charges, arithmetic="floating"),
                neighbours=NEIGHBOURS[self.neighbours],
            ),
            noise={
                "distribution": "radial noise in the objective",
                "rate": rate,
                "root_mean_square": 2
                * math.sqrt(person_weights.coordinates * (person_weights.coordinates + 1))
                / rate,
                "output_noise": logistic_mechanism.compute_output_noise(
                    person_weights, setting.ridge, rate
                ),
            },
            grid=logistic_mechanism.make_answer_grid(
                person_weights.coordinates, setting.ridge, rate
            ),
            theorem=Theorem(
                f"Objective perturbation: each person l loses {self._describe_charge()} "
                f"(pure ε, neighbours by {NEIGHBOURS[self.neighbours]})",
                "docs/theory/logistic.md",
            ),
            error=logistic_mechanism.estimate_error(setting, rate, budgets, person_weights.weights),
            risk=partial(
                logistic_mechanism.compute_error_bound,
                person_weights=person_weights,
                ridge=setting.ridge,
                rate=rate,
            ),
        )

    def _describe_charge(self) -> str:
        if self._labels_only:
            return "at most W_l·η/2, for each problem, and ε_out"
        return ACCOUNTANTS[self.accountant]

    @property
    def _labels_only(self) -> bool:
        return self.neighbours == "labels"

    def _make_weights(self, budgets: Budgets, recoding: Recoding) -> PersonWeights:
        self._refuse_unknown()
        coordinates = recoding.width + check_flag(self.fit_intercept, "fit_intercept")
        return PersonWeights.of(
            budgets.kinds, coordinates, len(self._get_classes().values), self._labels_only
        )

    def _choose_tuning(
        self, person_weights: PersonWeights, recoding: Recoding
    ) -> logistic_mechanism.TuningChoice:
        scale = logistic_mechanism.BudgetScale(
            person_weights.total, recoding.width, check_flag(self.fit_intercept, "fit_intercept")
        )
        if self.public is not None:
            if self._labels_only:
                accountant = LABELS
            else:
                accountant = self.accountant
            public = logistic_mechanism.PublicRows.of(self.public, recoding, self._get_classes())
            return logistic_mechanism.choose_with_public_rows(scale, public, self.alpha, accountant)
        if isinstance(self.bounds, Bounds):
            norm = self.bounds.norm
        else:
            norm = None
        return logistic_mechanism.choose_without_public_rows(scale, recoding, norm, self.alpha)

    def _get_classes(self) -> Classes:
        pair = isinstance(self.public, tuple | list) and len(self.public) == 2
        if pair:
            labels = self.public[1]
        else:
            labels = None
        return Classes.from_declaration(self.classes, self.bounds, labels)

    def _refuse_unknown(self) -> None:
        for name, value, known in (
            ("neighbours", self.neighbours, NEIGHBOURS),
            ("accountant", self.accountant, ACCOUNTANTS),
        ):
            if not is_one_of(value, known):
                raise InvalidParameter(
                    f"This value of {name} is not known.",
                    f"Known: {', '.join(known)}.",
                    "Choose one.",
                    parameter=name,
                )
        if self.alpha is not None and not is_measurable(self.alpha):
            raise InvalidParameter(
                "alpha is not a positive number that doubles can calculate with.",
                "Without regularisation there is no promise.",
                "Give a positive number, or none to have it chosen.",
                parameter="alpha",
            )


def _list_positive_classes(classes: Any) -> tuple[int, ...]:
    """Returns which classes are told from the others: the second of two, each of several."""
    if len(classes) == 2:
        return (1,)
    return tuple(range(len(classes)))
