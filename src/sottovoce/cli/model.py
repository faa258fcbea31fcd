# SPDX-License-Identifier: Apache-2.0
"""A released model as `predict` needs it: linear functions of declared features, and what is told from them.

release     functions                                              columns
ridge       one, in the label's units                              prediction
logistic    log-odds of the second class, or of each of several    prediction, and a probability for each class
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sottovoce.estimators.ridge import Floats
    from sottovoce.recoding import Recoding, UnitBall
    from sottovoce.release import Release

PREDICTION, CHANCE = "prediction", "probability of "


@dataclass(frozen=True, eq=False)
class Linear:
    """A linear function of declared features, in the user's units."""

    recoding: Recoding
    intercept: float
    coefficients: Floats
    ball: UnitBall | None = None  # a classifier's: rows that are longer than it are cut

    @classmethod
    def of(cls, recoding: Recoding, model: dict[str, Any], ball: UnitBall | None = None) -> Linear:
        """Reads one function of a release; a ValueError if it does not fit the features."""
        import numpy as np

        slopes = np.array(list(model["coefficients"].values()), dtype=np.float64)
        linear = cls(recoding, float(model["intercept"]), slopes, ball)
        if list(model["coefficients"]) != recoding.names or not np.isfinite([linear.intercept, *slopes]).all():
            raise ValueError
        return linear

    def __call__(self, raw: Floats) -> Floats:
        """Returns the function's value for each row, numbers clipped to their bounds."""
        from sottovoce.estimators.ridge import predicted

        if self.ball is None:
            return predicted(self.recoding, raw, self.intercept, self.coefficients)
        return self.ball.margins(self.recoding.encode(raw), *self.recoding.to_encoded_units(self.intercept, self.coefficients))


@dataclass(frozen=True, eq=False)
class Model:
    """What a release tells of new rows; without classes the label is a number."""

    recoding: Recoding
    functions: tuple[Linear, ...]
    classes: tuple[Any, ...] = ()

    @classmethod
    def of(cls, release: Release) -> Model:
        """Reads the model from a release; refuses other releases, and one that does not fit itself."""
        from sottovoce.errors import InvalidRelease

        readers = {
            "ridge": _regression,
            "posterior sample": _regression,
            "adaptive posterior sample": _regression,
            "logistic regression": _classifier,
        }
        if release.question not in readers:
            raise InvalidRelease(
                "This release is not a regression and not a classifier.",
                "",
                "Take one of `sottovoce release ridge`, `logistic` or `posterior`.",
            )
        try:
            return readers[release.question](release)
        except (KeyError, TypeError, ValueError, AttributeError):
            pass  # raised below: the reason would quote the file
        raise InvalidRelease(
            "The model in this release cannot be used.",
            "It must have one coefficient for each declared number and each level, and a function for each class.",
            "Take the file as `sottovoce release` wrote it.",
        )

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that a table must have."""
        return tuple(feature.name for feature in self.recoding.features)

    @property
    def numbers(self) -> tuple[str, ...]:
        """Those of them that hold numbers."""
        return tuple(feature.name for feature in self.recoding.features if not feature.levels)

    @property
    def heads(self) -> tuple[str, ...]:
        """The columns that are told."""
        return (PREDICTION, *(f"{CHANCE}{name}" for name in self.classes))

    def predict_batch(self, batch: Any) -> dict[str, Any]:
        """Returns what is told of each row, as the estimator's predict and predict_proba would."""
        raw = self._read_features(batch)
        values = [function(raw) for function in self.functions]
        told = _told(values, self.classes) if self.classes else values
        return dict(zip(self.heads, told, strict=True))

    def _read_features(self, batch: Any) -> Floats:
        import numpy as np

        from sottovoce.features import level_numbers
        from sottovoce.statistics import as_floats

        raw = np.empty((len(batch), len(self.recoding.features)))
        for j, feature in enumerate(self.recoding.features):
            column = batch.column(feature.name)
            raw[:, j] = level_numbers(column, feature.levels) if feature.levels else as_floats(column)
            if feature.missing is not None:
                raw[np.isnan(raw[:, j]), j] = feature.missing
        if not np.isfinite(raw).all():
            raise _not_numbers()
        return raw


def _regression(release: Any) -> Model:
    recoding = _features(release)
    return Model(recoding, (Linear.of(recoding, release.value),))


def _classifier(release: Any) -> Model:
    from sottovoce.classes import Classes
    from sottovoce.recoding import UnitBall

    recoding, models = _features(release), release.value["models"]
    classes = Classes(tuple(release.parameters["classes"])).values
    # With two classes one function is enough: the second one's.
    told = classes[1:] if len(classes) == 2 else classes
    if list(models) != list(map(str, told)) or not all(isinstance(name, str | int | float) for name in classes):
        raise ValueError
    ball = UnitBall.from_dict(release.parameters["ball"])
    return Model(recoding, tuple(Linear.of(recoding, model, ball) for model in models.values()), classes)


def _features(release: Any) -> Recoding:
    from sottovoce.recoding import Recoding

    return Recoding.from_dict(release.parameters["features"])


def _told(values: list[Floats], classes: tuple[Any, ...]) -> list[Any]:
    """Returns the class with the highest odds, and a probability for each class, from log-odds."""
    import numpy as np
    from scipy.special import expit, log_expit, softmax

    if len(values) == 1:
        (odds,) = values
        return [np.array(classes)[(odds > 0).astype(np.int64)], expit(-odds), expit(odds)]
    several = np.column_stack(values)
    return [np.array(classes)[several.argmax(axis=1)], *softmax(log_expit(several), axis=1).T]


def _not_numbers() -> Exception:
    from sottovoce.errors import MissingValues

    return MissingValues(
        "A feature has missing or infinite values.",
        "Every number that the model uses must be there.",
        "Fill them in, with the constant that the schema declared for missing values if it has one.",
    )
