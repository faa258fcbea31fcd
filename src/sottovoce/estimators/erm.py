# SPDX-License-Identifier: Apache-2.0
"""Empirical risk minimisation by noisy gradient descent, with a budget a person (docs/theory/erm.md).

Minimise Σ c_i·ℓ(φ_iᵀθ, y_i) over a ball or a box. In risk/, planned.py plans and answers, descent.py has the steps,
loudness.py the weights and what they cost, pace.py how far and how fast to go; solvers/losses.py has the losses.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit
from sklearn.base import BaseEstimator
from sklearn.metrics import accuracy_score, r2_score
from sklearn.utils import ClassifierTags, RegressorTags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from sottovoce.budgets import Budgets
from sottovoce.classes import Classes
from sottovoce.columns import Table, schema_of
from sottovoce.engine import Rows, in_memory
from sottovoce.errors import InvalidParameter, InvalidRelease
from sottovoce.estimators.kept import keep, restored
from sottovoce.estimators.ridge import predicted
from sottovoce.estimators.risk import planned
from sottovoce.estimators.risk.descent import PERSON, Progress, place_of, watching
from sottovoce.features import MATRIX, ClassLabel, Label, Recoded
from sottovoce.plan import Plan
from sottovoce.question import KIND, VALUE, budgets_of, declared_label, declared_recoding, gathered, refuse_unfit, run
from sottovoce.recoding import Recoding
from sottovoce.release import Release
from sottovoce.solvers import losses
from sottovoce.statistics import Owner
from sottovoce.table import Array, matrix, numbers, same_length

Floats = NDArray[np.float64]


def _classifies(erm: ERM) -> bool:
    return losses.shape_of(losses.loss_of(erm.loss)).classifies


def _has_odds(erm: ERM) -> bool:
    return isinstance(losses.loss_of(erm.loss), losses.Logistic)


class ERM(BaseEstimator):  # type: ignore[misc]
    """Empirical risk minimisation, each person heard as loudly as their own (ε, δ) allows.

    **Question.** Which linear function of the features has the smallest mean loss? Features (and the label of a
    regression) lie in ``bounds``; values beyond are clipped. Classes are declared, never read off the labels.

    **Promise.** (ε_l, δ) for each person l (each row, without ``groups``), neighbours by replacement of all their
    rows, features and label; exact arithmetic. In ρ of zCDP where everybody takes part in every step.

    **Formula.** T projected steps along Σ_l clip(g_l) + noise, g_l the gradient of all rows of person l, clipped at
    W_l·L and cut to whole numbers, discrete Gaussian noise; ρ_l = T(2W_lL)²/(2σ²)  (docs/theory/erm.md, equation 3).

    >>> import numpy as np, sottovoce as sv
    >>> x = np.linspace(-1, 1, 4000)[:, None]
    >>> erm = sv.ERM("logistic", bounds=sv.Bounds(features=(-1, 1)), delta=1e-6).fit(x, x[:, 0] > 0, epsilon=1.0)
    >>> bool(np.all(erm.guarantee_.epsilon <= 1.0)), bool(erm.score(x, x[:, 0] > 0) > 0.9)
    (True, True)

    **Limits.** Rows are read once a step, wherever they live. Steps, stride and clip are chosen by public rules of
    thumb; with little budget the model stays close to a constant. The number of rows of each person is not hidden.

    Parameters
    ----------
    loss : "logistic", "hinge", "squared", "huber", or an object with ``value`` and ``derivative`` (solvers/losses.py).
    bounds : Bounds with features (and, for a regression, the label), or a Schema.
    delta : the δ of every promise, far below one over the number of people.
    constraint : "ball" or "box", in which the coefficients of the recoded features stay.
    radius : of the ball, or half the side of the box; a public number. None: chosen.
    clip : the length L at which a person's mean gradient is clipped; a public number. None: chosen.
    steps : number of steps T. None: chosen.
    sampling : the rate at which people are drawn in each step; None: everybody takes part in every step.
    iterate : "average" of the later half of the iterates, or the "last" one.
    classes : the two possible labels; if not given, those of the schema, the label's bounds, or (0, 1).
    missing : public constant between all bounds that stands for missing values; a schema declares one for each column.
    """

    def __init__(
        self,
        loss: Any = "logistic",
        *,
        bounds: Any = None,
        delta: float | None = None,
        constraint: str = "ball",
        radius: float | None = None,
        clip: float | None = None,
        steps: int | None = None,
        sampling: float | None = None,
        iterate: str = "average",
        classes: Any = None,
        missing: float | None = None,
    ) -> None:
        self.loss = loss
        self.bounds = bounds
        self.delta = delta
        self.constraint = constraint
        self.radius = radius
        self.clip = clip
        self.steps = steps
        self.sampling = sampling
        self.iterate = iterate
        self.classes = classes
        self.missing = missing

    later = ("missing",)  # what older books do not know about a question

    def fit(self, X: Any, y: Any = None, epsilon: Any = None, groups: Any = None, progress: Progress = False) -> ERM:
        """Fits y on the features X; ε is a number, an array by row, a mapping from person, or Budgets.

        X may also be a table that lives elsewhere, with y, ``groups`` and ε the names of its columns (or ε another
        table, by person): a path, a DuckDB relation, a dataset of Arrow, a data frame of Spark or Dask.
        ``progress`` shows the steps done, and nothing else: True for a bar, or a function of the number of steps.
        """
        budgets, rows = gathered(self, X, y, epsilon=epsilon, groups=groups)
        plan = self.plan_for(budgets, rows)
        refuse_unfit(self, plan, rows)
        with watching(progress, plan.parameters["steps"]) as watch:
            release = run(_Watched(self, watch), plan, rows)  # type: ignore[arg-type]
        keep(self, release, plan.guarantee, X)
        return self

    def plan(self, epsilon: Any, groups: Any = None, rows: int | None = None, n_features: int | None = None) -> Plan:
        """What it will cost whom, and how accurate it will be; no value is needed."""
        budgets = budgets_of(epsilon, groups, rows, schema_of(self))
        return planned.plan_for(self, budgets, self._make_recoding(n_features), self._describe_label())

    def gather(self, *data: Any, epsilon: Any, groups: Any) -> tuple[Budgets, Rows]:
        """Returns the budgets and rows of features and label in memory, with the owner of each row."""
        X, y = data
        recoding, label = self._make_recoding(X), self._make_label()
        recoded = recoding.encode(matrix(X, recoding))
        column = label.classes.find_codes(y) if isinstance(label, ClassLabel) else numbers(y, "labels")
        same_length(len(recoded), y=column, groups=groups)
        budgets = budgets_of(epsilon, groups, len(column))
        columns: dict[str, Array] = {VALUE: column, KIND: budgets.row_codes(), PERSON: _owner(budgets)}
        same_length(len(column), epsilon=columns[KIND])
        if recoded.shape[1]:
            columns[MATRIX] = recoded
        if np.any(np.diff(columns[PERSON]) < 0):  # a person's rows together, so that no step has to sort them
            order = np.argsort(columns[PERSON], kind="stable")
            columns = {name: array[order] for name, array in columns.items()}
        return budgets, Rows(in_memory().of_columns(columns), VALUE, Owner(KIND), Recoded(recoding), label)

    def rows_of(self, table: Table) -> Rows:
        """Returns the features and the label that are read of a table."""
        recoding = self._make_recoding(table.features(self.bounds))
        label = replace(self._make_label(), column=table.label())
        return table.regression(recoding, replace(label, coded=False) if isinstance(label, ClassLabel) else label)

    def plan_for(self, budgets: Budgets, rows: Rows | None = None) -> Plan:
        """The plan for these budgets; without rows the bounds must tell how many features there are."""
        recoding = self._make_recoding(None) if rows is None else rows.features.recoding
        plan = planned.plan_for(self, budgets, recoding, self._describe_label())
        if rows is not None and plan.parameters["sampling"] is not None and place_of(rows.owner) is None:
            raise InvalidParameter(
                "People are to be drawn, but rows do not say whose they are.",
                "A row that is not in memory and has no owner cannot be told from others when it is read again.",
                "Name the column of people, or leave sampling out.",
            )
        return plan

    def answer(self, plan: Plan, rows: Rows, watch: Callable[[int], None] = lambda step: None) -> Release:
        """Reads the rows, draws the noise, and returns the release."""
        theta = planned.answer(self, plan, rows, watch)
        recoding = Recoding.from_dict(plan.parameters["features"])
        if "classes" in plan.parameters:
            model = _model(recoding, *recoding.to_original_units(theta[0] / 2, theta[1:]))
            return Release.of(plan, {"models": {str(plan.parameters["classes"][1]): model}})
        low, high = plan.parameters["label"]
        half, middle = (high - low) / 2, (high + low) / 2
        return Release.of(plan, _model(recoding, *recoding.to_original_units(middle + half * theta[0] / 2, half * theta[1:])))

    @available_if(_classifies)  # type: ignore[untyped-decorator]
    def decision_function(self, X: Any) -> Floats:
        """Returns the linear function of the features: above 0, the second class; for "logistic", its log-odds."""
        return self._compute_decisions(X)

    @available_if(_has_odds)  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> Floats:
        """Returns the probability of each class, by the log-odds."""
        odds = self._compute_decisions(X)
        return np.column_stack([expit(-odds), expit(odds)])

    def predict(self, X: Any) -> Array:
        """Returns classes, or predictions in the label's units; features beyond their bounds are clipped as in fit."""
        values = self._compute_decisions(X)
        return values if not hasattr(self, "classes_") else np.asarray(self.classes_[(values > 0).astype(np.int64)])

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Returns the share of right classes, or R² of a regression."""
        measure = accuracy_score if _classifies(self) else r2_score
        return float(measure(y, self.predict(X), sample_weight=sample_weight))

    @classmethod
    def from_release(cls, release: Release) -> ERM:
        """Returns a model that predicts, from a published release alone."""
        if getattr(release, "question", None) != "risk minimisation":
            raise InvalidRelease("This release is not of sv.ERM.", "", "Load a release of sv.ERM.")
        return restored(release, cls._build_from_release)

    @classmethod
    def _build_from_release(cls, release: Release) -> ERM:
        name = release.parameters["loss"]
        model = cls(name if name in losses.NAMED else ("logistic" if "classes" in release.parameters else "squared"))
        keep(model, release)
        return model

    def _compute_decisions(self, X: Any) -> Floats:
        check_is_fitted(self, "coef_")
        raw = matrix(X, self._recoding, expected=self.n_features_in_)
        return predicted(self._recoding, raw, float(np.ravel(self.intercept_)[0]), np.ravel(self.coef_))

    def _describe_label(self) -> dict[str, Any]:
        label = self._make_label()
        return (
            {"classes": list(label.classes.values)}
            if isinstance(label, ClassLabel)
            else {"label": [label.low, label.high]}
        )

    def _make_label(self) -> Label | ClassLabel:
        """What the labels are, from what was declared."""
        if _classifies(self):
            classes = Classes.from_declaration(self.classes, self.bounds)
            if len(classes.values) > 2:
                raise InvalidParameter(
                    "There are more than two classes.", "This estimator tells two apart.", "Use sv.LogisticRegression."
                )
            return ClassLabel(VALUE, classes, coded=True)
        return declared_label(self)

    def _make_recoding(self, X: Any) -> Recoding:
        return declared_recoding(self.bounds, X, self.missing)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required, tags.non_deterministic = True, True
        shape = getattr(
            losses.NAMED.get(self.loss, self.loss) if isinstance(self.loss, str) else self.loss, "shape", None
        )
        if getattr(shape, "classifies", False):
            tags.estimator_type = "classifier"
            tags.classifier_tags = ClassifierTags(poor_score=True, multi_class=False)
        else:
            tags.estimator_type, tags.regressor_tags = "regressor", RegressorTags(poor_score=True)
        return tags


@dataclass(frozen=True)
class _Watched:
    """The question together with whoever watches its steps."""

    question: ERM
    watch: Callable[[int], None]

    def answer(self, plan: Plan, rows: Rows) -> Release:
        """The question's answer, watched."""
        return self.question.answer(plan, rows, self.watch)


def _model(recoding: Recoding, intercept: float, coefficients: Floats) -> dict[str, Any]:
    named_ones = dict(zip(recoding.names, coefficients.tolist(), strict=True))
    return {"intercept": float(intercept), "coefficients": named_ones}


def _owner(budgets: Budgets) -> Array:
    """Returns the person of every row; refuses budgets that do not know."""
    if budgets.codes is None or (budgets.unit == "person" and budgets.owner is None):
        raise InvalidParameter("These budgets do not say which row is whose.", "", "Build them with Budgets.of.")
    return np.arange(budgets.n_people) if budgets.owner is None else budgets.owner
