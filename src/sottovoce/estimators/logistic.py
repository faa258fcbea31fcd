# SPDX-License-Identifier: Apache-2.0
"""Logistic regression with a budget a person, as an estimator of scikit-learn: what it asks, plans
and answers is in logistic_core.py.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, log_expit, softmax
from sklearn.utils.validation import check_is_fitted

from sottovoce.arrays import Array, Floats, TableLike, to_matrix
from sottovoce.data.encoding import UnitBall
from sottovoce.estimators.base import ClassifierMixin, ModelEstimator
from sottovoce.estimators.column import LoadableEstimator
from sottovoce.estimators.logistic_core import SOFTMAX, LogisticCore
from sottovoce.estimators.model_intervals import predict_linear


class LogisticRegression(LogisticCore, LoadableEstimator, ClassifierMixin, ModelEstimator):
    """Logistic regression, each person with the weight that their own ε allows.

    **Question.** Which linear function of the features tells the classes apart? Features lie in
    ``bounds``; values beyond are clipped. Classes are declared, never read off the labels.

    **Promise.** Pure ε_l for each person l (each row, without ``groups``), neighbours by
    replacement of all their rows, features and label, or of their labels alone
    (``neighbours="labels"``); floating arithmetic.

    **Formula.** Objective perturbation with public weights, in the unit ball, charged by the κ
    accountant (docs/theory/kappa.md), or, where budgets are ample, in the box of the bounds;
    several classes by one softmax objective. In the ball rows far from the middle of the bounds are
    shortened in the fit, and a share of budgets buys the intercept anew; log-odds are ``intercept_
    + X @ coef_.T`` always.

    >>> import numpy as np, sottovoce as sv
    >>> x = np.linspace(-1, 1, 4000)[:, None]
    >>> model = sv.LogisticRegression(bounds=sv.Bounds(features=(-1, 1))).fit(
    ...     x, x[:, 0] > 0, epsilon=1.0
    ... )
    >>> bool(np.all(model.guarantee_.epsilon <= 1.0)), bool(model.score(x, x[:, 0] > 0) > 0.9)
    (True, True)

    **Limits.** Shrunk towards even odds while budgets are small; a chosen λ is undone in part,
    which leaves decisions as they are. Which classes there are, the number of rows a person and the
    budgets are public.

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
        Regularisation λ of the mean loss of rows in the unit ball; a public number. None: chosen,
        as is whether rows lie in the ball or in a box.
    fit_intercept :
        Whether there is a constant term; it is regularised like the slopes.
    neighbours :
        "replace", or "labels" to protect labels alone, at half the noise.
    accountant :
        "kappa", or "exact" for the charge without the κ table.
    missing :
        Public constant between the bounds of all features that stands for missing ones; a schema
        declares one for each column. A missing class is refused.
    association :
        How far the log-odds of people with one budget may lie from everybody's, as a share of
        their spread: a public guess. The larger it is, the more evenly people count and the less
        the open ones spend. None: 0, as for a model that is right for everybody.
    interval_share :
        Share of everybody's ε that buys what intervals of two classes need, where nothing is cut;
        if not given, chosen from public numbers. 0 buys nothing, and intervals are of a fit that is
        shrunk as strongly.
    delta :
        The δ of every promise. With it the plan chooses, for two classes, between pure ε and noisy
        gradient descent in ρ of zCDP, which tells classes apart better where features are many and
        people neither few nor very many (docs/theory/logistic-delta.md). None: pure ε always.
    """

    intercept_: Floats
    classes_: Array

    def decision_function(self, X: TableLike) -> Floats:
        """Return log-odds of the second class, or the function of each of several classes.

        It is intercept + X·coef for every row within the bounds. Releases of version 0.1 cut rows
        that are longer than a radius, as their fits did.

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
        raw = to_matrix(X, recoding, expected=self.n_features_in_)
        models = zip(self.intercept_, self.coef_, strict=True)
        if "ball" in self.release_.parameters:
            ball = UnitBall.from_dict(self.release_.parameters["ball"])
            Z = recoding.encode(raw)
            columns = [
                ball.margins(Z, *recoding.to_encoded_units(float(intercept), slopes))
                for intercept, slopes in models
            ]
        else:
            columns = [
                predict_linear(recoding, raw, float(intercept), slopes)
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
        if self.release_.parameters.get("objective") != SOFTMAX:
            odds = log_expit(odds)
        return np.asarray(softmax(odds, axis=1), dtype=np.float64)
