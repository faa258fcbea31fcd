# SPDX-License-Identifier: Apache-2.0
"""Logistic regression with a budget a person (docs/theory/logistic.md).

Minimise Σ a_i·log(1 + e^(−y_iφ_iᵀw)) + ½wᵀΛw + bᵀw, density of b ∝ exp(−½η_n·N(b)), over rows φ of
the unit ball or of a box; several classes by one softmax objective. logistic_tuning.py chooses ball
or box, Λ and the rest; logistic_mechanism.py has the weights, the rate and the charges, and the
fit.

Questions at the terminal are planned and answered here, without scikit-learn, which takes longer to
load than all else together. Books and releases know it by the name of the public class in
logistic.py.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import scipy  # whose parts are loaded where they are used

from sottovoce.arrays import ColumnLike, Floats, check_same_length, to_matrix
from sottovoce.budgets import BudgetLike, Budgets
from sottovoce.data.encoding import (
    VALUE,
    CentredBox,
    ClassLabel,
    EncodedReader,
    Reader,
    Recoding,
    UnitBall,
    UnitBallReader,
    count_declared_columns,
    describe_model,
)
from sottovoce.data.engine import Dataset
from sottovoce.data.source import DataSource, describe_rows
from sottovoce.errors import InvalidParameter
from sottovoce.estimator import (
    ModelSteps,
    get_association,
    get_owners,
    load_matrix,
    make_budgets,
)
from sottovoce.estimators import logistic_descent, logistic_mechanism, logistic_tuning
from sottovoce.estimators.curvature import (
    CLASS_PULL_UNITS,
    BoughtShare,
    Equation,
    choose_interval_share,
)
from sottovoce.estimators.erm_mechanism import PERSON
from sottovoce.estimators.logistic_descent import TWO_CLASSES, DescentSteps
from sottovoce.estimators.logistic_mechanism import LABELS, NoisyObjective, PersonWeights
from sottovoce.estimators.model_intervals import (
    EARLIER,
    Ends,
    IntervalsByFunction,
    bound_probabilities,
    explain_no_interval,
    list_coefficient_functions,
    list_prediction_functions,
    name_ends,
)
from sottovoce.guarantee import Guarantee, Neighbours
from sottovoce.plan import Plan
from sottovoce.release import Intervals, Release
from sottovoce.schema import (
    Bounds,
    BoundsLike,
    Classes,
    check_flag,
    check_interval_share,
    is_measurable,
    is_one_of,
)

NEIGHBOURS: dict[str, Neighbours] = {"replace": "replace", "labels": "replace labels"}
ACCOUNTANTS = ("kappa", "exact")
#: How classes are told apart, as a release says it.
SOFTMAX = "softmax"
ONE_AGAINST_OTHERS = "one against the others"


class LogisticCore(DescentSteps, IntervalsByFunction, ModelSteps):
    """Logistic regression without what scikit-learn adds; sv.LogisticRegression is made of it."""

    stands_for = "LogisticRegression"
    later = (
        "missing",
        "association",
        "interval_share",
        "delta",
    )  # what older books do not know about a question

    delta: float | None = None  # of estimators that an earlier version pickled

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
        association: float | None = None,
        interval_share: float | None = None,
        delta: float | None = None,
    ) -> None:
        self.bounds = bounds
        self.classes = classes
        self.public = public
        self.alpha = alpha
        self.fit_intercept = fit_intercept
        self.neighbours = neighbours
        self.accountant = accountant
        self.missing = missing
        self.association = association
        self.interval_share = interval_share
        self.delta = delta

    def validate(self) -> None:
        """Refuses bounds, classes and parameters that are wrong for any people."""
        count_declared_columns(self.bounds, self.missing)
        self._get_classes()
        self._refuse_unknown()
        check_flag(self.fit_intercept, "fit_intercept")

    def read_arrays(self, *data: Any, epsilon: BudgetLike, groups: ColumnLike | None) -> Dataset:
        """Returns the budgets and rows of features and classes in memory, the rows in the ball or
        box, or recoded.
        """
        X, y = data
        recoding = self._make_recoding(X)
        classes = self._get_classes()
        raw = to_matrix(X, recoding)
        codes = classes.find_codes(y)
        check_same_length(len(raw), y=codes, groups=groups)
        budgets = make_budgets(epsilon, groups, len(codes))
        label = ClassLabel(VALUE, classes, coded=True)
        reader: Reader = EncodedReader(recoding)
        if self._descends(budgets, recoding):
            people = {PERSON: get_owners(budgets)}
            return load_matrix(recoding.encode(raw), reader, codes, label, budgets, people)
        setting = self._choose_tuning(self._make_weights(budgets, recoding), recoding)
        if setting.threshold > 0:  # which is bought for rows as they are, and not as they were cut
            return load_matrix(recoding.encode(raw), reader, codes, label, budgets)
        body = setting.mechanism.body
        reader = UnitBallReader(body, recoding)
        return load_matrix(body.encode(raw, recoding), reader, codes, label, budgets)

    def read_table(self, table: DataSource) -> Dataset:
        """Returns the features and the classes that are read of a table."""
        recoding = self._make_recoding(table.list_features(self.bounds))
        return describe_rows(ClassLabel(table.find_label(), self._get_classes()), recoding)

    def release_under(self, plan: Plan, rows: Dataset) -> Release:
        """Reads the rows, draws the noise, and returns the release."""
        given = plan.parameters
        recoding = Recoding.from_dict(given["features"])
        if "steps" in given:
            return self._release_descent(plan, rows, recoding)
        mechanism = self._read_mechanism(given, recoding)
        problems = logistic_mechanism.Problems(
            rows, mechanism, self._make_weights(plan.budgets, recoding), plan.noise["rate"]
        )
        if mechanism.several:
            fitted = dict(enumerate(problems.fit(0)))
        else:
            positives = _list_positive_classes(given["classes"])
            fitted = {positive: problems.fit(positive)[0] for positive in positives}
        largest = float(problems.person_weights.row.max())
        models = {}
        moved = 0.0
        for positive, theta in fitted.items():
            intercept, slopes = mechanism.body.to_original_units(theta * given["stretch"])
            # What the fit released: the intercept is bought anew around it.
            model: dict[str, Any] = {"fitted": theta.tolist(), "largest_weight": largest}
            if given["threshold"] > 0:
                chosen = problems.choose_threshold(intercept, slopes, given["threshold"])
                moved = (chosen - intercept) / self._find_intercept_unit(given, mechanism)
                intercept = chosen
            name = str(given["classes"][positive])
            models[name] = {**describe_model(recoding, intercept, slopes), **model}
        if plan.bought is None:
            equation = problems.make_equation(np.concatenate(list(fitted.values())), moved)
        else:
            ((positive, theta),) = fitted.items()
            equation = problems.buy_equation(positive, theta, plan.bought.share)
        return Release.of(plan, {"models": models}, equation.to_dict())

    def _find_intercept_unit(self, given: dict[str, Any], mechanism: NoisyObjective) -> float:
        """By how much the intercept moves with the first coordinate of a fit."""
        first = np.zeros(mechanism.body.width)
        first[0] = given["stretch"]
        return float(mechanism.body.to_original_units(first)[0])

    def _compute_intervals(self, release: Release, level: float) -> Intervals | None:
        classes = release.parameters["classes"]
        if release.bought is None and "steps" not in release.parameters:
            return explain_no_interval(level, EARLIER)
        if len(classes) == 2:
            return super()._compute_intervals(release, level)
        recoding = Recoding.from_dict(release.parameters["features"])
        functions = self._list_functions(release, recoding)
        by_class = {
            str(name): name_ends(
                recoding.names, self._find_ends_of_class(release, functions, place, level), level
            )
            for place, name in enumerate(classes)
        }
        first = next(iter(by_class.values()))
        return replace(
            first,
            low={name: one.low for name, one in by_class.items()},
            high={name: one.high for name, one in by_class.items()},
            noise={name: one.noise for name, one in by_class.items()},
            sampling={name: one.sampling for name, one in by_class.items()},
        )

    def _compute_row_intervals(self, release: Release, level: float, raw: Floats) -> Floats | None:
        classes = release.parameters["classes"]
        if len(classes) == 2:
            odds = super()._compute_row_intervals(release, level, raw)
            if odds is None:
                return None
            return np.asarray(scipy.special.expit(odds), dtype=np.float64)
        coefficients = self._list_functions(release, self._recoding)
        functions = list_prediction_functions(self._recoding, raw, coefficients)
        # All functions are within their ends at once, so that probabilities are.
        each = 1 - (1 - level) / len(classes)
        ends = [
            self._find_ends_of_class(release, functions, place, each)
            for place in range(len(classes))
        ]
        low = np.column_stack([one.low for one in ends])
        high = np.column_stack([one.high for one in ends])
        if release.parameters.get("objective") != SOFTMAX:
            low, high = scipy.special.log_expit(low), scipy.special.log_expit(high)
        return bound_probabilities(low, high)

    def _list_functions(self, release: Release, recoding: Recoding) -> Floats:
        given = release.parameters
        if "steps" in given:
            return list_coefficient_functions(recoding, 1.0)
        mechanism = self._read_mechanism(given, recoding)
        columns = []
        for unit in np.eye(mechanism.body.width) * given["stretch"]:
            intercept, slopes = recoding.to_original_units(*mechanism.body.to_original_units(unit))
            columns.append(np.concatenate([[intercept], slopes]))
        return np.column_stack(columns)

    def _get_middle(self, release: Release) -> float:
        return 0.0

    def _find_ends(self, release: Release, functions: Floats, level: float) -> Ends | str:
        if "steps" in release.parameters:
            from sottovoce.estimators.erm import find_descent_ends  # loads scikit-learn

            return find_descent_ends(release, functions, level, 1.0)
        assert release.bought is not None
        return Equation.from_dict(release.bought).find_ends(functions, level)

    def _find_ends_of_class(
        self, release: Release, functions: Floats, place: int, level: float
    ) -> Ends:
        """The ends of functions of one class among several."""
        assert release.bought is not None
        width = functions.shape[1]
        own = np.zeros((len(functions), len(release.bought["theta"])))
        own[:, place * width : (place + 1) * width] = functions
        return Equation.from_dict(release.bought).find_ends(own, level)

    def _choose_interval_share(
        self, setting: logistic_tuning.TuningChoice, person_weights: PersonWeights, slopes: int
    ) -> float:
        """The share of everybody's ε that buys intervals: of two classes, where rows are as they
        are.
        """
        mechanism = setting.mechanism
        if (
            not isinstance(mechanism.body, CentredBox)
            or not (mechanism.body.intercept and slopes)
            or mechanism.accountant == LABELS
            or mechanism.several
        ):
            return 0.0
        return choose_interval_share(
            person_weights.total, slopes, self.interval_share, CLASS_PULL_UNITS
        )

    def _make_plan(self, budgets: Budgets, recoding: Recoding) -> Plan:
        if self._descends(budgets, recoding):
            return self._plan_descent(budgets, recoding)
        plan = self._plan_objective(budgets, recoding)
        if self.delta is None:
            return plan
        return replace(plan, parameters={**plan.parameters, "delta": float(self.delta)})

    def _plan_objective(self, budgets: Budgets, recoding: Recoding) -> Plan:
        classes = self._get_classes()
        person_weights = self._make_weights(budgets, recoding)
        setting = self._choose_tuning(person_weights, recoding)
        mechanism = setting.mechanism
        share = self._choose_interval_share(setting, person_weights, recoding.width)
        bought = None
        if share > 0:
            bought = BoughtShare(share, "how columns spread and classes vary")
        rate = person_weights.find_rate(mechanism, setting.threshold + share)
        charges = person_weights.charges(mechanism, rate, setting.threshold, share)
        noise: dict[str, Any] = {
            "distribution": "radial noise in the objective",
            "rate": rate,
            "root_mean_square": math.sqrt(
                mechanism.freedoms * float((mechanism.deviations(rate) ** 2).sum())
            ),
            "output_noise": logistic_mechanism.compute_output_noise(
                person_weights, mechanism, rate
            ),
        }
        if isinstance(mechanism.body, CentredBox):
            noise["distribution"] = "box noise in the objective"
        if setting.threshold > 0:
            noise["threshold_scale"] = person_weights.find_threshold_scale(setting.threshold)
        return Plan(
            question="logistic regression",
            parameters={
                "classes": list(classes.values),
                "features": recoding.to_dict(),
                "neighbours": self.neighbours,
                "accountant": self.accountant,
                "association": get_association(self.association),
                "interval_share": self.interval_share,
                "alpha": setting.alpha,
                **_describe_body(mechanism),
                "stretch": setting.stretch,
                "threshold": setting.threshold,
                "objective": self._name_objective(),
                "problems": self._count_problems(),
                "public_rows": 0 if self.public is None else len(self.public[1]),
            },
            budgets=budgets,
            weights=person_weights.weights,
            guarantee=replace(
                Guarantee.of(budgets, charges, arithmetic="floating"),
                neighbours=NEIGHBOURS[self.neighbours],
            ),
            noise=noise,
            bought=bought,
            grid=logistic_mechanism.make_answer_grid(mechanism, rate),
            theorem=logistic_tuning.state_theorem(setting, NEIGHBOURS[self.neighbours]),
            error=logistic_tuning.estimate_error(
                setting,
                rate,
                recoding,
                budgets,
                person_weights.weights,
                get_association(self.association),
            ),
            risk=partial(
                logistic_mechanism.compute_error_bound,
                person_weights=person_weights,
                mechanism=mechanism,
                rate=rate,
            ),
        )

    def _name_objective(self) -> str:
        if len(self._get_classes().values) == 2:
            return TWO_CLASSES
        if self._labels_only:
            return ONE_AGAINST_OTHERS
        return SOFTMAX

    def _count_problems(self) -> int:
        if self._name_objective() == ONE_AGAINST_OTHERS:
            return len(self._get_classes().values)
        return 1

    def _get_accountant(self) -> str:
        if self._labels_only:
            return LABELS
        return self.accountant

    def _count_together(self) -> int:
        """How many classes one objective tells apart."""
        if self._name_objective() == SOFTMAX:
            return len(self._get_classes().values)
        return 2

    def _read_mechanism(self, given: dict[str, Any], recoding: Recoding) -> NoisyObjective:
        """The mechanism that a plan describes."""
        content = given["rows"]
        body: UnitBall | CentredBox
        if content["kind"] == "ball":
            body = UnitBall.from_dict(content)
        else:
            body = CentredBox.from_dict(content)
        ridge = np.full(body.width, given["alpha"])
        share = 0.0
        if isinstance(body, CentredBox) and body.intercept:
            ridge[0] = given["intercept_alpha"]
            share = given["intercept_share"]
        return NoisyObjective(body, ridge, self._get_accountant(), self._count_together(), share)

    @property
    def _labels_only(self) -> bool:
        return self.neighbours == "labels"

    def _make_weights(self, budgets: Budgets, recoding: Recoding) -> PersonWeights:
        self._refuse_unknown()
        coordinates = recoding.width + check_flag(self.fit_intercept, "fit_intercept")
        return PersonWeights.of(
            budgets.kinds,
            coordinates,
            len(self._get_classes().values),
            self._labels_only,
            get_association(self.association),
        )

    def _choose_tuning(
        self, person_weights: PersonWeights, recoding: Recoding
    ) -> logistic_tuning.TuningChoice:
        scale = logistic_tuning.BudgetScale(
            person_weights.total,
            recoding.width,
            check_flag(self.fit_intercept, "fit_intercept"),
            self._get_accountant(),
            self._count_together(),
        )
        if self.public is not None:
            public = logistic_tuning.PublicRows.of(self.public, recoding, self._get_classes())
            return logistic_tuning.choose_with_public_rows(scale, public, self.alpha)
        if isinstance(self.bounds, Bounds):
            norm = self.bounds.norm
        else:
            norm = None
        return logistic_tuning.choose_without_public_rows(scale, recoding, norm, self.alpha)

    def _get_classes(self) -> Classes:
        pair = isinstance(self.public, tuple | list) and len(self.public) == 2
        if pair:
            labels = self.public[1]
        else:
            labels = None
        return Classes.from_declaration(self.classes, self.bounds, labels)

    def _refuse_unknown(self) -> None:
        check_interval_share(self.interval_share)
        logistic_descent.check_delta(self.delta)
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
        get_association(self.association)


def _list_positive_classes(classes: Any) -> tuple[int, ...]:
    """Returns which classes are told from the others: the second of two, each of several."""
    if len(classes) == 2:
        return (1,)
    return tuple(range(len(classes)))


def _describe_body(mechanism: NoisyObjective) -> dict[str, Any]:
    """Where the rows lie, as public JSON."""
    body = mechanism.body
    if isinstance(body, UnitBall):
        return {"rows": {"kind": "ball", "pulled": body.shortens, **body.to_dict()}}
    told: dict[str, Any] = {"rows": {"kind": "box", **body.to_dict()}}
    if body.intercept:
        told["intercept_alpha"] = float(mechanism.ridge[0])
        told["intercept_share"] = mechanism.share
    return told
