# SPDX-License-Identifier: Apache-2.0
"""From a release alone back to the estimator that made it, as far as planning and reading rows need
it.

A release says how features and label were declared, not in which form; what is rebuilt here is
checked against the plan's fingerprint by who uses it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sklearn.base import clone

from sottovoce.data.encoding import Recoding
from sottovoce.errors import InvalidParameter, InvalidRelease
from sottovoce.estimators import posterior_mechanism
from sottovoce.estimators.posterior import AdaptivePosteriorSample, Posterior, PosteriorSample
from sottovoce.estimators.ridge import Ridge
from sottovoce.release import Release
from sottovoce.schema import Bounds, Column, Schema

#: Questions whose losses are known, and who asks them.
AUDITABLE: dict[str, Any] = {
    "ridge": Ridge,
    PosteriorSample.question: PosteriorSample,
    AdaptivePosteriorSample.question: AdaptivePosteriorSample,
}
AUDITABLE_METHODS = ("output", "output-tight")
POSTERIOR_QUESTIONS = (PosteriorSample.question, AdaptivePosteriorSample.question)


def find_release(est: object) -> tuple[Release, Any]:
    """Return the release and the estimator of a fitted estimator or of a release.

    Refuses what cannot be audited.
    """
    if isinstance(est, Release):
        return est, rebuild_estimator(est)
    if not isinstance(est, Ridge | Posterior):
        raise unauditable_error()
    release: Any = getattr(est, "release_", None)
    if release is None:
        raise InvalidParameter(
            "The model has not been fitted.", "An audit is of a release.", "Call fit first."
        )
    _refuse_unauditable(release)
    # A model that was read back from its release has no bounds of its own.
    return release, rebuild_estimator(release) if est.bounds is None else est


def _refuse_unauditable(release: object) -> None:
    if not isinstance(release, Release) or release.question not in AUDITABLE:
        raise unauditable_error()
    if release.question == "ridge" and release.parameters.get("method") not in AUDITABLE_METHODS:
        raise unauditable_error()


def rebuild_estimator(release: Release) -> Any:
    """Return an unfitted estimator that reads rows as the one that made this release did."""
    _refuse_unauditable(release)
    try:
        kind = AUDITABLE[release.question]
        given = release.parameters
        named = {
            name: given[name] for name in kind().get_params() if name in given and name != "bounds"
        }
        return kind(**named, bounds=_rebuild_bounds(release))
    except (KeyError, TypeError, ValueError, AttributeError):
        pass  # raised below: the reason would quote the file
    raise InvalidRelease(
        "This release cannot be audited.",
        "Parts of it are missing.",
        "Take the file as it was made.",
    )


def iterate_candidates(release: Release, model: Any) -> Iterator[Any]:
    """Yield the estimator, and, as a release does not say whether its floor was given, the same
    with that floor.
    """
    yield model
    if isinstance(model, AdaptivePosteriorSample) and model.floor is None:
        yield clone(model).set_params(floor=float(release.noise["floor"]))


def find_norm(release: Release) -> float | None:
    """Return the declared bound on ‖x‖ of a posterior sample, or None where a box was declared."""
    given = release.parameters
    recoding = Recoding.from_dict(given["features"])
    radius = float(given["ball"]["radius"])
    alike = (
        posterior_mechanism.make_unit_ball(recoding, radius, given["fit_intercept"]).to_dict()
        == given["ball"]
    )
    if alike:
        return radius
    return None


def _rebuild_bounds(release: Release) -> Bounds | Schema:
    low, high = release.parameters["label"]
    features = release.parameters["features"]
    if release.question == "ridge":
        norm = None
    else:
        norm = find_norm(release)
    if norm is None:
        return _rebuild_schema(features, float(low), float(high))
    if all((f.get("low"), f.get("high")) == (-norm, norm) for f in features):
        return Bounds(norm=norm, label=(low, high))
    return Bounds(
        features=([f["low"] for f in features], [f["high"] for f in features]),
        norm=norm,
        label=(low, high),
    )


def _rebuild_schema(features: list[dict[str, Any]], low: float, high: float) -> Schema:
    columns = {
        f["name"]: Column("factor", levels=tuple(f["levels"]))
        if f.get("levels")
        else Column("number", f["low"], f["high"], missing=f["missing"])
        for f in features
    }
    label = "label"
    while label in columns:
        label += "_"
    return Schema(columns={**columns, label: Column("number", low, high)}, label=label)


def unauditable_error() -> InvalidParameter:
    """The refusal of models whose per-instance loss is not known."""
    return InvalidParameter(
        "The per-instance loss of this model is not known, or this library did not release it.",
        "It is known for posterior samples, adaptive or not, for ridge regressions by the methods "
        "output and output-tight, and for the Gaussian mechanisms that the library describes.",
        "Audit one of these; what any other release promises is written in it.",
    )
