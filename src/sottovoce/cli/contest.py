# SPDX-License-Identifier: Apache-2.0
"""The same regression made in several ways, and the error that each makes on people it has not seen.

A third of the people is held out in turn, by row number; every way is tried REPEATS times with fresh noise,
and errors are averaged as squares. Only the demonstration does this, with data that are public or invented.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LinearRegression

import sottovoce as sv
from sottovoce.cli.study import Study
from sottovoce.estimators.baselines import Uniform
from sottovoce.estimators.sampled import Sampled
from sottovoce.recoding import Recoding
from sottovoce.table import matrix

Floats = NDArray[np.float64]

REPEATS = 5
#: Regularisations and thresholds among which the other methods may choose in hindsight, which is more than fair.
ALPHAS = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
THRESHOLDS = ("max", "mean")
#: Errors closer than this share are called the same: chance moves them by as much.
SAME = 0.03


@dataclass(frozen=True)
class Way:
    """One way to answer, and the errors of its predictions in the label's units, a root mean square for each fit."""

    name: str
    errors: tuple[float, ...]
    note: str
    private: bool = True

    @property
    def error(self) -> float:
        """The typical error: the root of the mean square over all fits."""
        return _rms(np.array(self.errors))


@dataclass(frozen=True, eq=False)
class Contest:
    """All ways on one study: ours first, least squares without privacy last."""

    study: Study
    ways: tuple[Way, ...]

    def lessons(self) -> list[str]:
        """What the numbers say, in sentences, whichever way they fell."""
        own, strictest, sampled, published, mean, _, plain = self.ways
        study = self.study
        return [
            f"What {study.people:,} people can buy here: predictions wrong by about {number(own.error)} {study.unit} "
            f"(single fits by {number(min(own.errors))} to {number(max(own.errors))}), {_better(own, mean)} a constant "
            f"for everybody ({number(mean.error)}), and {_cost(own, plain)}.",
            f"The same regression with the strictest ε for everybody: {number(strictest.error)}, "
            f"{_against(strictest, own)}. By sampling people: {number(sampled.error)}, {_against(sampled, own)}. "
            f"With the published method at its best λ in hindsight: {number(published.error)}, "
            f"{_against(published, own)}.",
        ]


def contest(study: Study) -> Contest:
    """Measures every way."""
    schema, low, high = study.schema, *study.bounds
    ours = sv.Ridge(bounds=schema)
    strictest = study.tiers[0].epsilon
    return Contest(
        study,
        (
            Way("each with their own ε", _errors(study, ours), "sottovoce's default"),
            Way("one ε for all, the strictest", _errors(study, Uniform(ours)), f"everybody at {strictest:g}"),
            _best(study, "sampling people", "threshold", THRESHOLDS, lambda t: Sampled(ours, threshold=t)),
            _best(study, "published method", "λ =", ALPHAS, lambda a: sv.Ridge(schema, method="output", alpha=a)),
            Way("a private mean for everybody", _mean_errors(study), "no regression"),
            Way("nothing", (_rms(study.values - (low + high) / 2),), "the middle of the range"),
            Way("least squares, not private", _plain_errors(study), "nobody protected", private=False),
        ),
    )


def least_squares(study: Study, rows: Any = slice(None)) -> tuple[Recoding, Any]:
    """Returns the public recoding, and scikit-learn's least squares on it: exact, so not private."""
    recoding = Recoding.of_schema(study.schema)
    features = recoding.encode(matrix(study.features(rows), recoding))
    return recoding, LinearRegression().fit(features, study.values[rows])


def exact_coefficients(study: Study) -> dict[str, float]:
    """Returns least squares' coefficients under the names that a release gives them."""
    recoding, fitted = least_squares(study)
    _, coefficients = recoding.to_original_units(fitted.intercept_, fitted.coef_)
    return dict(zip(recoding.names, coefficients.tolist(), strict=True))


def _splits(study: Study) -> Iterator[tuple[NDArray[np.bool_], NDArray[np.bool_]]]:
    for turn in range(REPEATS):
        unseen = (np.arange(study.people) + turn) % 3 == 0
        yield ~unseen, unseen


def _errors(study: Study, estimator: Any) -> tuple[float, ...]:
    errors = []
    for seen, unseen in _splits(study):
        # Everybody has one row here.
        fitted = estimator.fit(study.features(seen), study.values[seen], epsilon=study.epsilon[seen], groups="rows")
        errors.append(_rms(fitted.predict(study.features(unseen)) - study.values[unseen]))
    return tuple(errors)


def _best(study: Study, name: str, word: str, among: tuple[Any, ...], made: Callable[[Any], Any]) -> Way:
    tried = [Way(name, _errors(study, made(choice)), f"best of {len(among)}: {word} {choice}") for choice in among]
    return min(tried, key=lambda way: way.error)


def _mean_errors(study: Study) -> tuple[float, ...]:
    errors = []
    for seen, unseen in _splits(study):
        mean = sv.Mean(bounds=study.bounds).fit(study.values[seen], epsilon=study.epsilon[seen])
        errors.append(_rms(study.values[unseen] - mean.value_))
    return tuple(errors)


def _plain_errors(study: Study) -> tuple[float, ...]:
    errors = []
    for seen, unseen in _splits(study):
        recoding, fitted = least_squares(study, seen)
        features = recoding.encode(matrix(study.features(unseen), recoding))
        errors.append(_rms(fitted.predict(features) - study.values[unseen]))
    return tuple(errors)


def _rms(errors: Floats) -> float:
    return math.sqrt(float(np.mean(errors**2)))


def number(error: float) -> str:
    """Returns an error as people read it."""
    return f"{error:,.0f}" if error >= 1000 else f"{error:.1f}"


def _better(own: Way, other: Way) -> str:
    if own.error < other.error * (1 - SAME):
        return "better than"
    return "worse than" if own.error > other.error * (1 + SAME) else "no better than"


def _cost(own: Way, plain: Way) -> str:
    more = own.error / plain.error - 1
    if more < SAME:
        return f"as good as least squares without any privacy ({number(plain.error)})"
    return f"{more:.0%} worse than least squares without any privacy ({number(plain.error)})"


def _against(other: Way, own: Way) -> str:
    more = other.error / own.error - 1
    if abs(more) < SAME:
        return "about the same"
    return f"{more:.0%} more than ours" if more > 0 else f"{-more:.0%} less than ours"
