# SPDX-License-Identifier: Apache-2.0
"""Linear regression with a budget a person, in seven methods under one name.

method                what it is                                       proof, in docs/theory
"objective"           objective perturbation in stages (the default)   objective.md
"objective-gaussian"  the same with Gaussian noise, for (ε, δ)         gaussian-objective.md
"statistics"          noisy sums of products, exact integers           moments.md
"adassp"              noisy sums in stages, Gaussian, for (ε, δ) and ρ adassp.md
"descent"             noisy gradient descent, for (ε, δ), scarce       erm.md
"output-tight"        noise on the ridge solution, the best constant   output.md
"output"              the same as published                            output.md

"auto" is "objective" for a pure promise, "adassp" for budgets in ρ, and for ε at a δ whichever of
the first two and "adassp" the plan expects to miss least, or "descent" where it expects all of them
to miss much.

Questions at the terminal are planned and answered here, without scikit-learn, which takes longer to
load than all else together. Books and releases know it by the name of the public class in
ridge.py.
"""

from __future__ import annotations

import copy
from dataclasses import replace
from importlib import import_module
from typing import Any, Protocol, cast

from sottovoce.arrays import ColumnLike, Floats, TableLike, to_matrix
from sottovoce.budgets import BudgetLike, Budgets
from sottovoce.data.encoding import (
    Label,
    Recoding,
    count_declared_columns,
    describe_model,
    make_label,
)
from sottovoce.data.engine import Dataset
from sottovoce.errors import InvalidParameter
from sottovoce.estimator import RegressionSteps, load_regression
from sottovoce.estimators import ridge_objective
from sottovoce.estimators.model_intervals import Ends, IntervalsByFunction
from sottovoce.plan import Plan, least_squares
from sottovoce.release import Release
from sottovoce.schema import (
    MEASURE,
    Bounds,
    BoundsLike,
    Interval,
    check_flag,
    check_interval_share,
    is_measurable,
    is_one_of,
    to_interval,
)


class Method(Protocol):
    """What each of the methods offers."""

    def validate(self, ridge: RidgeCore, label: Interval, width: int) -> None:
        """Refuses parameters that are wrong for any people; ``width`` is the number of recoded
        columns, 0 where only a table tells it.
        """

    def plan_for(
        self, ridge: RidgeCore, budgets: Budgets, recoding: Recoding, label: Interval
    ) -> Plan:
        """Returns the plan, from public facts alone."""

    def fit_noisy_model(self, ridge: RidgeCore, plan: Plan, rows: Dataset) -> dict[str, Any]:
        """Reads the rows and returns what may be published: at least theta, for recoded features
        and label.
        """

    def find_ends(self, release: Release, functions: Floats, level: float) -> Ends | str:
        """Returns the ends of the intervals of linear functions of theta, a row each, from the
        release alone; or why there are none.
        """


#: The module of each method, loaded when it is asked for.
METHODS = {
    "objective": "ridge_objective",
    ridge_objective.GAUSSIAN: "ridge_objective",
    "statistics": "ridge_statistics",
    "output-tight": "ridge_output",
    "output": "ridge_output",
    "adassp": "ridge_adassp",
    "descent": "ridge_descent",
}
#: The method that stands for others: the plan chooses.
AUTO = "auto"


def find_method(name: str, fit_intercept: bool) -> Method:
    """Return the method of this name; without an intercept the default one has other stages."""
    if name == "objective" and not fit_intercept:
        module = "ridge_origin"
    else:
        module = METHODS[name]
    method: Any = import_module(f"sottovoce.estimators.{module}")
    return cast(Method, method)


#: What the objective method may estimate; "soft" is how older versions called "squared".
LOSSES = ("squared", "robust", "huber", "soft")
ROBUST_LOSSES = ("robust", "huber")


class RidgeCore(IntervalsByFunction, RegressionSteps):
    """Linear regression without what scikit-learn adds; sv.Ridge is made of it."""

    stands_for = "Ridge"
    later = (
        "missing",
        "association",
        "interval_share",
        "fit_intercept",
        "delta",
    )  # what older books do not know about a question

    def __init__(
        self,
        bounds: BoundsLike | None = None,
        *,
        method: str = AUTO,
        alpha: float | None = None,
        loss: str = "squared",
        label_scale: float | None = None,
        coefficient_bound: float | None = None,
        rho: bool = False,
        missing: float | None = None,
        association: float | None = None,
        interval_share: float | None = None,
        fit_intercept: bool = True,
        delta: float | None = None,
    ) -> None:
        self.bounds = bounds
        self.method = method
        self.alpha = alpha
        self.loss = loss
        self.label_scale = label_scale
        self.coefficient_bound = coefficient_bound
        self.rho = rho
        self.missing = missing
        self.association = association
        self.interval_share = interval_share
        self.fit_intercept = fit_intercept
        self.delta = delta

    def asked_parameters(self) -> dict[str, Any]:
        """Return the parameters that a request is remembered by.

        Returns
        -------
        dict[str, Any]
            Parameters by name; the default method is "objective" where there is no choice, it has
            no λ, and 1.0 still stands for it; "soft" stands for the default loss; an intercept,
            which every model once had, is not told.
        """
        given: dict[str, Any] = self.get_params()
        candidates = self._list_candidates()
        if len(candidates) == 1:
            given["method"] = candidates[0]
        if self.fit_intercept:
            given["fit_intercept"] = None
        if self.loss == "squared":
            given["loss"] = "soft"
        if given["method"] == "objective" and self.alpha is None:
            given["alpha"] = 1.0
        return given

    def validate(self) -> None:
        """Refuses bounds and parameters that are wrong for any people."""
        self._check_parameters()
        label = self._make_label()
        width = count_declared_columns(self.bounds, self.missing)
        if width and not self.fit_intercept:
            width = self._make_recoding(None).width
        for name in self._list_candidates():
            find_method(name, self.fit_intercept).validate(self, (label.low, label.high), width)

    def read_arrays(self, *data: Any, epsilon: BudgetLike, groups: ColumnLike | None) -> Dataset:
        """Returns the budgets and rows of features and label in memory."""
        self._check_parameters()
        X, y = data
        label, recoding = self._make_label_and_recoding(X)
        raw = to_matrix(X, recoding)
        candidates = self._list_candidates()
        methods = [find_method(name, self.fit_intercept) for name in candidates]
        rounded = all(getattr(method, "READS_ROUNDED", False) for method in methods)
        once = all(getattr(method, "READS_ONCE", False) for method in methods)
        others = None
        if "descent" in candidates:
            from sottovoce.estimators import ridge_descent

            others = ridge_descent.list_people
        return load_regression(
            raw,
            recoding,
            y,
            label,
            epsilon,
            groups,
            rounded=rounded,
            once=once,
            others=others,
        )

    def release_under(self, plan: Plan, rows: Dataset) -> Release:
        """Reads the rows, draws the noise, and returns the release."""
        content = find_method(plan.parameters["method"], self.fit_intercept).fit_noisy_model(
            self, plan, rows
        )
        theta = content.pop("theta")
        bought = content.pop("bought", None)
        label = to_interval(plan.parameters["label"])
        recoding = Recoding.from_dict(plan.parameters["features"])
        half = (label[1] - label[0]) / 2
        middle = (label[1] + label[0]) / 2
        model = describe_model(recoding, middle + half * theta[0] / 2, half * theta[1:])
        return Release.of(plan, {**model, **content}, bought)

    def _find_ends(self, release: Release, functions: Floats, level: float) -> Ends | str:
        given = release.parameters
        method = find_method(given["method"], given.get("fit_intercept", True))
        return method.find_ends(release, functions, level)

    def _make_plan(self, budgets: Budgets, recoding: Recoding) -> Plan:
        self._check_parameters()
        label = self._make_label()
        if not self.fit_intercept and not recoding.width:
            raise InvalidParameter(
                "Without an intercept nothing is left to fit: every feature can have one value "
                "only, 0.",
                "A model through the origin needs a feature that can be something else.",
                "Declare wider bounds, or leave the intercept in.",
                parameter="fit_intercept",
            )
        plans = []
        for name in self._list_candidates():
            one = copy.copy(self)
            one.method = name
            plans.append(
                find_method(name, self.fit_intercept).plan_for(
                    one, budgets, recoding, (label.low, label.high)
                )
            )
        plan = plans[0]
        if len(plans) > 1:
            from sottovoce.estimators import ridge_descent

            plan = ridge_descent.choose_plan(plans)
        if self.fit_intercept:
            return plan
        expected: Any = plan.error
        return replace(
            plan,
            parameters={**plan.parameters, "fit_intercept": False},
            error=replace(expected, classical=least_squares(fit_intercept=False)),
        )

    def _list_candidates(self) -> list[str]:
        """The methods that a plan chooses among, from parameters alone."""
        if self.method != AUTO:
            return [self.method]
        if self.rho is True and self.delta is None:
            return ["adassp"]
        if self.delta is None or not self.fit_intercept or self.loss in ROBUST_LOSSES:
            return ["objective"]
        return ["objective", ridge_objective.GAUSSIAN, "adassp", "descent"]

    def _make_label_and_recoding(self, X: TableLike | int | None) -> tuple[Label, Recoding]:
        label, recoding = super()._make_label_and_recoding(X)
        if isinstance(self.bounds, Bounds) and self.bounds.norm is not None:
            recoding = recoding.declare_norm(self.bounds.norm)
        if self.fit_intercept:
            return label, recoding
        return label.widen_around_zero(), recoding.widen_around_zero()

    def _make_label(self) -> Label:
        label = make_label(self)
        if self.fit_intercept:
            return label
        return label.widen_around_zero()

    def _check_parameters(self) -> None:
        """Refuses parameters that are wrong whatever the method."""
        if not is_one_of(self.method, (AUTO, *METHODS)):
            raise InvalidParameter(
                "There is no such method.",
                f"Methods: {', '.join((AUTO, *METHODS))}.",
                "Choose one.",
                parameter="method",
            )
        if self.alpha is not None and not is_measurable(self.alpha):
            raise InvalidParameter(
                "alpha is not a positive number that doubles can calculate with.",
                f"It lies between {1 / MEASURE:g} and {MEASURE:g}.",
                "Take a public regularisation above 0, or none to have it chosen.",
                parameter="alpha",
            )
        if not is_one_of(self.loss, LOSSES):
            raise InvalidParameter(
                "There is no such loss.",
                f"Losses: {', '.join(LOSSES)}.",
                "Choose one.",
                parameter="loss",
            )
        check_flag(self.rho, "rho")
        check_flag(self.fit_intercept, "fit_intercept")
        check_interval_share(self.interval_share)
        if self.delta is not None:
            from sottovoce.estimators import ridge_adassp

            ridge_adassp.check_delta(self.delta)
        if self.method == AUTO and self.rho and self.delta is not None:
            raise InvalidParameter(
                "Budgets are said to be both ρ of zCDP and ε at a δ.",
                "They are one of the two.",
                "Pass rho=True or delta=, not both.",
                parameter="delta",
            )
