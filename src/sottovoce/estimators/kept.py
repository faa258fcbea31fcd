# SPDX-License-Identifier: Apache-2.0
"""What a fitted model keeps: its release, and what follows from the release alone. Nothing un-noised."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from sottovoce.engine import is_elsewhere
from sottovoce.errors import InvalidRelease, SottovoceError
from sottovoce.guarantee import Guarantee
from sottovoce.recoding import Recoding
from sottovoce.release import Release
from sottovoce.table import feature_names

Model = TypeVar("Model")


def restored(release: Release, make: Callable[[Release], Model]) -> Model:
    """Returns the model that a published release describes; refuses a release that does not describe one."""
    try:
        model: Any = make(release)
        features = model._recoding.features
        coefficients = np.asarray(model.coef_, dtype=np.float64)
        if coefficients.shape[-1] == len(model._recoding.names):
            model.predict(pa.table({f.name: [f.levels[0] if f.levels else f.low] for f in features}))
            made: Model = model
            return made
    except SottovoceError:
        raise
    except Exception:
        pass  # raised below
    raise InvalidRelease(
        "This release does not describe a model.",
        "A model has a coefficient for each declared feature.",
        "Take the file as it was made.",
    )


def keep(model: Any, release: Release, guarantee: Guarantee | None = None, X: Any = None) -> None:
    """Keeps a release and, as scikit-learn has them, coefficients, classes, and names of the features of X."""
    model.release_ = release
    if guarantee is not None:
        model.guarantee_ = guarantee
    model._recoding = Recoding.from_dict(release.parameters["features"])
    model.n_features_in_ = len(model._recoding.features)
    value: dict[str, Any] = release.value  # type: ignore[assignment]
    fits = list(value["models"].values()) if "models" in value else [value]
    intercept = np.array([fit["intercept"] for fit in fits])
    slopes = np.array([list(fit["coefficients"].values()) for fit in fits])
    if "models" in value:  # classifiers: a row a model
        model.classes_ = np.array(release.parameters["classes"])
        model.intercept_, model.coef_ = intercept, slopes
    else:
        model.intercept_, model.coef_ = fits[0]["intercept"], slopes[0]
    if X is not None and (is_elsewhere(X) or feature_names(X) is not None):
        model.feature_names_in_ = np.array([feature.name for feature in model._recoding.features], dtype=object)
