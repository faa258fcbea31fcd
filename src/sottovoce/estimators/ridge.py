# SPDX-License-Identifier: Apache-2.0
"""Linear regression with a budget a person, as an estimator of scikit-learn: what it asks, plans
and answers is in ridge_core.py.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sklearn.utils.validation import check_is_fitted

from sottovoce.data.encoding import Recoding
from sottovoce.errors import InvalidParameter
from sottovoce.estimators import ridge_statistics
from sottovoce.estimators.base import LinearRegressor
from sottovoce.estimators.column import LoadableEstimator
from sottovoce.estimators.ridge_core import RidgeCore
from sottovoce.release import Release
from sottovoce.schema import Bounds


class Ridge(RidgeCore, LoadableEstimator, LinearRegressor):
    """Linear regression, each person with the weight that their own ε allows.

    **Question.** Which linear function of the features predicts the label? Features and label lie
    in ``bounds``; values beyond are clipped, and rows longer than a ``norm`` are shortened to it.

    **Promise.** Pure ε_l for each person l (each row, without ``groups``), neighbours by
    replacement of all their rows, features and label; floating arithmetic, except
    ``method="statistics"``, which is exact. With ``delta``, (ε_l, δ) where the plan chooses
    "objective-gaussian", or "adassp" or "descent", whose arithmetic is exact; the plan and the
    release say which promise was made.

    **Formula.** By default objective perturbation with the soft Huber loss, in stages that first
    buy the labels' scale, fit slopes only where these can pay for their noise, and end with what
    was clipped, so that the answer tends to that of least squares as budgets grow
    (docs/theory/objective.md).

    >>> import numpy as np, sottovoce as sv
    >>> x = np.linspace(0, 1, 3000)[:, None]
    >>> ridge = sv.Ridge(bounds=sv.Bounds(features=(0, 1), label=(0, 1))).fit(
    ...     x, x[:, 0], epsilon=1.0
    ... )
    >>> bool(np.all(ridge.guarantee_.epsilon <= 1.0)), ridge.predict(x).shape
    (True, (3000,))

    **Limits.** A plan's expected error is a planning number for typical tables, right within a
    factor of about three. With few people or small budgets the answer is a constant, and the plan
    says so beforehand.

    Parameters
    ----------
    bounds :
        Bounds with features and label, or a Schema (which also knows factors). A norm in Bounds is
        a public bound on the Euclidean length of a row of features, in their own unit, from the
        origin: longer rows are shortened to it, in fit and in predict, and noise is less.
    method :
        "auto", "objective", "objective-gaussian", "statistics", "adassp", "descent", "output-tight"
        or "output". "auto" is "objective" without ``delta``; with it the plan chooses among
        "objective", "objective-gaussian", "adassp" and "descent", from public numbers. The others
        are pure, with or without ``delta``, unless ``rho``.
    alpha :
        Regularisation λ of the output methods and of "statistics", a public number; None: chosen by
        the plan from public numbers, and written into plan and release.
    loss :
        What the objective method estimates. "squared": the mean of the labels, as least squares
        does. "robust": a centre between mean and median, on which labels far away have little pull;
        "huber" is the same by Huber's loss, which costs a logarithm more. "soft" is an older name
        of "squared".
    label_scale :
        Public guess of the labels' standard deviation (without an intercept, of their root mean
        square); saves the budget that would buy it.
    coefficient_bound :
        A promise that the solution's norm stays below it (method "output" only).
    rho :
        For "statistics" and "adassp": True to count budgets in ρ of zCDP and add Gaussian noise.
    missing :
        Public constant between all bounds that stands for missing values; a schema declares one for
        each column.
    association :
        Public bound on how far the labels of people with one budget lie from what everybody's
        model says, on average, in the label's unit, for the objective method. The larger it is,
        the less of a large ε is spent. None: 0, budgets go along with nothing that the features do
        not explain.
    interval_share :
        Share of everybody's ε that buys what intervals need, for the objective method; if not
        given, chosen from public numbers. 0 buys nothing, and intervals are of a fit that is shrunk
        as strongly, as they always are without an intercept.
    fit_intercept :
        False for a model through the origin of the features' and the label's own units, with
        "objective", "statistics" and the output methods. Bounds are then widened to lie around
        zero, [−m, m] for the larger size m of the two, and so is the range of predictions. A
        factor's levels have coefficients whose sum is 0.
    delta :
        The δ of every promise, far below one over the number of people, if ε at a δ will do. None:
        pure ε.
    """

    def refit(self, alpha: float | None = None, columns: list[str] | None = None) -> Ridge:
        """Return the fit at another λ or on some of the columns; nobody pays for it.

        Parameters
        ----------
        alpha : float, optional
            λ; as it was if not given.
        columns : list[str], optional
            Features to keep; all if not given.

        Returns
        -------
        Ridge
            A copy, from the released statistics.

        Raises
        ------
        InvalidParameter
            The method is not "statistics", or λ or a column cannot be used.
        """
        check_is_fitted(self, "release_")
        if self.release_.parameters["method"] != "statistics":
            raise InvalidParameter(
                "Only noisy statistics can be fitted again for free.",
                "This release holds one model.",
                "Fit with method='statistics', then refit as often as you like.",
                parameter="method",
            )
        return ridge_statistics.refit_statistics(self, alpha, columns)

    @classmethod
    def _adapt_arguments(cls, arguments: dict[str, Any], release: Release) -> dict[str, Any]:
        """Before a norm shortened rows, it was read as a box: such a release is read as one."""
        bounds = arguments["bounds"]
        if not isinstance(bounds, Bounds) or bounds.norm is None:
            return arguments
        recoding = Recoding.from_dict(release.parameters["features"])
        if recoding.norm is not None or recoding.declare_norm(bounds.norm) is recoding:
            return arguments
        box = ([f.low for f in recoding.features], [f.high for f in recoding.features])
        return {**arguments, "bounds": replace(bounds, features=box, norm=None)}
