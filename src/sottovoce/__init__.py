# SPDX-License-Identifier: Apache-2.0
"""sottovoce: personalised differential privacy.

Everybody chooses how softly they take part; every one of those promises is kept at once.

>>> import sottovoce as sv
>>> plan = sv.Mean(bounds=(0, 100), spread=10).plan(epsilon=[0.1] * 200 + [1.0] * 100)
>>> float(plan.charges[0]), float(plan.charges[-1])
(0.1, 1.0)
"""

from __future__ import annotations

from importlib import import_module

from sottovoce import moved

TYPE_CHECKING = (
    False  # typing itself takes longer to load than all of this, and Ctrl-C waits for it
)
if TYPE_CHECKING:  # the same names as below, each with its type
    from sottovoce import audit as audit
    from sottovoce import errors as errors
    from sottovoce import market as market
    from sottovoce.budgets import Budgets as Budgets
    from sottovoce.estimators import load as load
    from sottovoce.estimators.baselines import Limited as Limited
    from sottovoce.estimators.baselines import Sampled as Sampled
    from sottovoce.estimators.baselines import Threshold as Threshold
    from sottovoce.estimators.baselines import Uniform as Uniform
    from sottovoce.estimators.count import Count as Count
    from sottovoce.estimators.covariance import Covariance as Covariance
    from sottovoce.estimators.erm import ERM as ERM
    from sottovoce.estimators.label_private import LabelPrivateRegression as LabelPrivateRegression
    from sottovoce.estimators.logistic import LogisticRegression as LogisticRegression
    from sottovoce.estimators.mean import Mean as Mean
    from sottovoce.estimators.posterior import AdaptivePosteriorSample as AdaptivePosteriorSample
    from sottovoce.estimators.posterior import PosteriorSample as PosteriorSample
    from sottovoce.estimators.quantile import Quantile as Quantile
    from sottovoce.estimators.report import Report as Report
    from sottovoce.estimators.ridge import Ridge as Ridge
    from sottovoce.estimators.table_sums import Sum as Sum
    from sottovoce.estimators.variance import Variance as Variance
    from sottovoce.guarantee import Guarantee as Guarantee
    from sottovoce.plan import Plan as Plan
    from sottovoce.release import Certificate as Certificate
    from sottovoce.release import Release as Release
    from sottovoce.schema import Bounds as Bounds
    from sottovoce.schema import Schema as Schema
    from sottovoce.session import Session as Session
    from sottovoce.weights import Weights as Weights
    from sottovoce.weights import optimal_weights as optimal_weights

__version__ = "0.1.0"

#: Public name → the module it lives in. Loaded on first use, so that importing the house costs
#: nothing.
_HOMES = {
    "AdaptivePosteriorSample": "estimators.posterior",
    "Bounds": "schema",
    "Budgets": "budgets",
    "Certificate": "release",
    "Count": "estimators.count",
    "Covariance": "estimators.covariance",
    "ERM": "estimators.erm",
    "Guarantee": "guarantee",
    "LabelPrivateRegression": "estimators.label_private",
    "Limited": "estimators.baselines",
    "LogisticRegression": "estimators.logistic",
    "Mean": "estimators.mean",
    "Plan": "plan",
    "PosteriorSample": "estimators.posterior",
    "Quantile": "estimators.quantile",
    "Release": "release",
    "Report": "estimators.report",
    "Ridge": "estimators.ridge",
    "Sampled": "estimators.baselines",
    "Schema": "schema",
    "Session": "session",
    "Sum": "estimators.table_sums",
    "Threshold": "estimators.baselines",
    "Uniform": "estimators.baselines",
    "Variance": "estimators.variance",
    "Weights": "weights",
    "load": "estimators",
    "optimal_weights": "weights",
}

__path__.append(moved.OLD_PATHS)

__all__ = ["__version__", "audit", "errors", "market", *sorted(_HOMES)]


if not TYPE_CHECKING:  # to a type checker a module with __getattr__ has every name

    def __getattr__(name):
        if name in _HOMES:
            return getattr(import_module(f"sottovoce.{_HOMES[name]}"), name)
        if name in ("audit", "errors", "market"):  # modules that are used by their own name
            return import_module(f"sottovoce.{name}")
        raise AttributeError(f"module 'sottovoce' has no attribute {name!r}")


def __dir__() -> list[str]:
    return list(__all__)
