# SPDX-License-Identifier: Apache-2.0
"""What both kinds of posterior sample share: the way from a question to a plan, a draw and a release.

posterior.py has the two public estimators, gram.py the way into the unit ball and the draw.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils.validation import check_is_fitted

from sottovoce import units
from sottovoce.bounds import Bounds, between, flag, interval
from sottovoce.budgets import Budgets, Kinds
from sottovoce.columns import Table, schema_of
from sottovoce.engine import Rows
from sottovoce.errors import InvalidData, InvalidParameter, InvalidRelease
from sottovoce.estimators.kept import keep, restored
from sottovoce.estimators.regression.expected import Facts, expected, with_ridge
from sottovoce.estimators.ridge import predicted
from sottovoce.estimators.samples import gram
from sottovoce.estimators.samples.grants import Voices
from sottovoce.features import InBall, Label
from sottovoce.guarantee import Guarantee
from sottovoce.noise.grid import AnswerGrid
from sottovoce.plan import ExpectedError, Plan, Theorem, least_squares
from sottovoce.question import (
    budgets_of,
    declared_label,
    declared_recoding,
    gathered,
    refuse_unfit,
    run,
    table_in_memory,
)
from sottovoce.recoding import Recoding, UnitBall
from sottovoce.release import Release
from sottovoce.table import matrix, numbers, same_length

Floats = NDArray[np.float64]

#: The smallest δ that is promised: one unit of the books.
LEAST_DELTA = 1 / units.DELTA
#: Up to here the error of a sample is proved to be far below a step of its grid (docs/theory/posterior.md).
MOST_COLUMNS, MOST_CONDITION = 1024, 1e30


class Posterior(RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """What both kinds of posterior sample share."""

    question: ClassVar[str]
    theorem: ClassVar[Theorem]
    bounds: Any
    delta: float
    fit_intercept: bool
    missing: float | None
    later = ("missing",)  # what older books do not know about a question

    def fit(self, X: Any, y: Any = None, epsilon: Any = None, groups: Any = None) -> Any:
        """Fits the label y on the features X; ε is a number, an array by row, a mapping from person, or Budgets.

        X may also be a table that lives elsewhere, with y, ``groups`` and ε the names of its columns (or ε another
        table, by person): a path, a DuckDB relation, a dataset of Arrow, a data frame of Spark or Dask.
        """
        own = schema_of(self).budget is not None and epsilon is None  # then everybody's is in the table
        granted = None if own else self._get_grants(epsilon)
        # Without grants any number stands for them; what is promised takes its place.
        stated = 1.0 if granted is None and not own else granted
        budgets, rows = gathered(self, X, y, epsilon=stated, groups=groups)
        plan = self._make_plan(budgets, rows.features.recoding, own or granted is not None)
        refuse_unfit(self, plan, rows)
        self._set_fitted(run(self, plan, rows), plan.guarantee, X)
        return self

    def plan(
        self, epsilon: Any = None, groups: Any = None, rows: int | None = None, n_features: int | None = None
    ) -> Plan:
        """What it will cost whom, and how accurate it will be; no value is needed."""
        recoding = self._make_label_and_recoding(n_features)[1]
        granted = self._get_grants(epsilon)
        if epsilon is None and schema_of(self).budget is not None:
            raise InvalidParameter(
                "The schema says that everybody's own ε is in a column, and none is given.",
                "A plan has no table in which it could be looked up.",
                "Pass epsilon=.",
            )
        budgets = budgets_of(1.0 if granted is None else granted, groups, rows, schema_of(self))
        return self._make_plan(budgets, recoding, granted is not None)

    def gather(self, *data: Any, epsilon: Any, groups: Any) -> tuple[Budgets, Rows]:
        """Returns the budgets and rows of features and label in memory, the rows in the unit ball."""
        X, y = data
        label, recoding = self._make_label_and_recoding(X)
        raw, column = matrix(X, recoding), numbers(y, "labels")
        same_length(len(raw), y=column, groups=groups)
        granted = self._get_grants(epsilon)
        budgets, ball = budgets_of(1.0 if granted is None else granted, groups, len(column)), self._make_ball(recoding)
        if isinstance(self.bounds, Bounds) and self.bounds.features is None and self.bounds.norm is not None:
            raw = gram.shortened(raw, self.bounds.norm)
        return budgets, table_in_memory(ball.encode(raw, recoding), InBall(ball, recoding), column, label, budgets)

    def rows_of(self, table: Table) -> Rows:
        """Returns the features and the label that are read of a table."""
        label, recoding = self._make_label_and_recoding(table.features(self.bounds))
        return table.regression(recoding, replace(label, column=table.label()))

    def plan_for(self, budgets: Budgets, rows: Rows | None = None) -> Plan:
        """The plan for these budgets; without rows the bounds must tell how many features there are."""
        return self._make_plan(budgets, self._make_label_and_recoding(None)[1] if rows is None else rows.features.recoding, True)

    def answer(self, plan: Plan, rows: Rows) -> Release:
        """Reads the rows, draws the sample, and returns the release."""
        given = plan.parameters
        ball, recoding = UnitBall.from_dict(given["ball"]), Recoding.from_dict(given["features"])
        middle, half = gram.label_scale(interval(given["label"]), given["fit_intercept"])
        total, cross = gram.sums(rows, ball, plan.weights.row * given["weight_unit"], (middle, half))
        theta, told = self._drawn(plan, total, cross)
        constant, slopes = ball.to_original_units(half * theta)
        intercept, coefficients = recoding.to_original_units(middle + constant, slopes)
        value = {
            "intercept": intercept if given["fit_intercept"] else 0.0,
            "coefficients": dict(zip(recoding.names, coefficients.tolist(), strict=True)),
            "theta": theta.tolist(),
        }
        return Release.of(plan, {**value, **told})

    def predict(self, X: Any) -> Floats:
        """Returns predictions in the label's units; features beyond their bounds are clipped."""
        check_is_fitted(self, "coef_")
        raw = matrix(X, self._recoding, expected=self.n_features_in_)
        return predicted(self._recoding, raw, self.intercept_, self.coef_)

    @classmethod
    def from_release(cls, release: Release) -> Any:
        """Returns a model that predicts, from a published release alone."""
        if getattr(release, "question", None) != cls.question:
            raise InvalidRelease(f"This release is not of sv.{cls.__name__}.", "", f"Load one of sv.{cls.__name__}.")
        return restored(release, cls._build_from_release)

    @classmethod
    def _build_from_release(cls, release: Release) -> Any:
        model = cls(**{name: release.parameters[name] for name in cls().get_params() if name in release.parameters})
        model._set_fitted(release)
        return model

    def _make_plan(self, budgets: Budgets, recoding: Recoding, granted: bool) -> Plan:
        self._refuse_unknown()
        label, ball = interval(self.bounds), self._make_ball(recoding)
        if ball.width > MOST_COLUMNS:
            raise InvalidParameter("There are too many columns.", f"At most {MOST_COLUMNS:,} can be.", "Use fewer.")
        voices = self._voices(budgets.kinds, ball.width, granted)
        if not self._bound_eigenvalue(voices) < MOST_CONDITION * voices.account.floor:
            raise InvalidParameter(
                "There is next to no regularisation: the sample could not be computed well enough to be published.",
                f"The largest eigenvalue that can be must stay below {MOST_CONDITION:g} times λ, or the floor.",
                "Choose a larger alpha, or floor.",
            )
        if not granted:  # what it costs is what is promised
            kinds = Kinds(voices.charges, budgets.kinds.rows, budgets.kinds.people)
            budgets = replace(budgets, kinds=kinds)
        half = gram.label_scale(label, flag(self.fit_intercept, "fit_intercept"))[1]
        guarantee = Guarantee.of(budgets, voices.charges, arithmetic="floating")
        return Plan(
            question=self.question,
            parameters={
                **self._public(voices),
                "delta": float(self.delta),
                "fit_intercept": flag(self.fit_intercept, "fit_intercept"),
                "label": list(label),
                "features": recoding.to_dict(),
                "ball": ball.to_dict(),
                "weight_unit": voices.unit,
            },
            budgets=budgets,
            weights=voices.weights,
            guarantee=replace(guarantee, neighbours="zero out", currency="epsilon, delta", delta=float(self.delta)),
            noise={"distribution": "one sample of the posterior", **self._noise(voices)},
            grid=self._make_grid(voices),
            theorem=self.theorem,
            error=self._estimate_error(voices, recoding, ball, budgets, half),
        )

    def _estimate_error(
        self, voices: Voices, recoding: Recoding, ball: UnitBall, budgets: Budgets, half: float
    ) -> ExpectedError:
        """What is expected of ridge regression on rows of the ball, with the noise of one draw."""
        facts = Facts.of(recoding, budgets, voices.weights)
        shorter = (1 - ball.intercept**2) / (ball.radius * ball.spread) ** 2  # squares of columns, in the ball
        inside = replace(facts, even=facts.even * float(np.mean(shorter))) if facts.slopes else facts
        ridge, gamma = self._strength(voices, min(C for C, _, _ in inside.columns) * voices.total)
        noise = 1 / (gamma * voices.total)
        parts = with_ridge(inside, ridge / voices.total, ball.intercept, 0.0, 0.0, noise)
        error = expected(parts, facts, budgets, voices.weights, half)
        return replace(error, classical=least_squares(self.fit_intercept))

    def _get_grants(self, epsilon: Any) -> Any:
        """What people grant: what fit was told, or what the estimator was made with, or nothing."""
        return getattr(self, "epsilon", None) if epsilon is None else epsilon

    def _set_fitted(self, release: Release, guarantee: Guarantee | None = None, X: Any = None) -> None:
        keep(self, release, guarantee, X)

    def _make_ball(self, recoding: Recoding) -> UnitBall:
        ball = gram.ball_of(recoding, getattr(self.bounds, "norm", None), flag(self.fit_intercept, "fit_intercept"))
        if not ball.width:
            raise InvalidData("No feature can vary.", "There is nothing to fit without an intercept.", "Fit one.")
        return ball

    def _make_label_and_recoding(self, X: Any) -> tuple[Label, Recoding]:
        """The label and the recoding, from what was declared (X only tells how many columns there are)."""
        label = declared_label(self)
        return label, declared_recoding(self.bounds, X, self.missing)

    def _bound_eigenvalue(self, voices: Voices) -> float:
        """The largest eigenvalue that H can have, unless an eigenvalue's noise is far out."""
        raise NotImplementedError

    def _make_grid(self, voices: Voices) -> AnswerGrid:
        """The grid of θ̃: no coordinate has a smaller deviation than the direction of H's largest eigenvalue."""
        return AnswerGrid.below(1 / math.sqrt(voices.account.gamma * self._bound_eigenvalue(voices)))

    @property
    def _sure_delta(self) -> float:
        """The δ at which charges are read: what rounding can add to it is less than what is left."""
        return float(self.delta) * (1 - 2.0**-30)

    def _refuse_unknown(self) -> None:
        if between(self.delta, 0, LEAST_DELTA):
            raise InvalidParameter(
                f"δ is smaller than {LEAST_DELTA:g}.",
                "Books count δ in such units, and the finite precision of a sample is covered from there on.",
                f"Take a δ of {LEAST_DELTA:g} or more, far below one over the number of people.",
            )
        if not between(self.delta, 0, 1):
            raise InvalidParameter(
                "δ is missing, or not between 0 and 1.",
                "A posterior sample has no pure ε: every promise is an ε at a δ, the same for all.",
                "Give a δ far below one over the number of people.",
            )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.non_deterministic, tags.regressor_tags.poor_score = True, True
        return tags
