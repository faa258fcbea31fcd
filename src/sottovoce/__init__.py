# SPDX-License-Identifier: Apache-2.0
"""sottovoce: personalised differential privacy.

Everybody chooses how softly they are heard; every one of those promises is kept at once.

>>> import sottovoce as sv
>>> plan = sv.Mean(bounds=(0, 100), spread=10).plan(epsilon=[0.1] * 200 + [1.0] * 100)
>>> float(plan.charges[0]), float(plan.charges[-1])
(0.1, 1.0)
"""

from __future__ import annotations

from importlib import import_module

TYPE_CHECKING = (
    False  # typing itself takes longer to load than all of this, and Ctrl-C waits for it
)
if TYPE_CHECKING:
    from typing import Any

__version__ = "0.1.0"

#: Public name → the module it lives in. Loaded on first use, so that importing the house costs
#: nothing.
_HOMES = {
    "AdaptivePosteriorSample": "estimators.posterior",
    "Bounds": "schema",
    "Budgets": "budgets",
    "Certificate": "release",
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
    "Ridge": "estimators.ridge",
    "Sampled": "estimators.baselines",
    "Schema": "schema",
    "Session": "session",
    "Uniform": "estimators.baselines",
    "Weights": "weights",
    "load": "estimators",
    "optimal_weights": "weights",
}

__all__ = ["__version__", "audit", "errors", "market", *sorted(_HOMES)]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"sottovoce.{_HOMES[name]}"), name)
    if name in ("audit", "errors", "market"):  # rooms that are used by their own name
        return import_module(f"sottovoce.{name}")
    raise AttributeError(f"module 'sottovoce' has no attribute {name!r}")


def __dir__() -> list[str]:
    return list(__all__)
