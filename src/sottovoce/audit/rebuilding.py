# SPDX-License-Identifier: Apache-2.0
"""From a release, or a fitted estimator, to the estimator that an audit plans with again.

What is rebuilt from a release is checked against the plan's fingerprint by who uses it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sklearn.base import clone

from sottovoce.errors import InvalidParameter
from sottovoce.estimators import find_question, is_audited, load
from sottovoce.release import Release


def find_release(est: object) -> tuple[Release, Any]:
    """Return the release and the estimator of a fitted estimator or of a release.

    Refuses what cannot be audited.
    """
    if isinstance(est, Release):
        return est, rebuild_estimator(est)
    question = find_question(type(est))
    if question is None or question.audited is None:
        raise unauditable_error()
    release: Any = getattr(est, "release_", None)
    if release is None:
        raise InvalidParameter(
            "The model has not been fitted.",
            "An audit is of a release.",
            "Call fit first.",
            parameter="est",
        )
    # A model that was read back from a release of an earlier version has no bounds of its own.
    if getattr(est, "bounds", None) is None:
        return release, rebuild_estimator(release)
    _refuse_unauditable(release)
    return release, est


def _refuse_unauditable(release: object) -> None:
    if not isinstance(release, Release) or not is_audited(release):
        raise unauditable_error()


def rebuild_estimator(release: Release) -> Any:
    """Return the estimator that made this release."""
    _refuse_unauditable(release)
    return load(release)


def has_posterior_noise(release: Release) -> bool:
    """Whether the release is a sample from a posterior, of a concentration γ."""
    return "gamma" in release.noise


def iterate_candidates(release: Release, model: Any) -> Iterator[Any]:
    """Yield the estimator, and, as a release does not say whether its floor was given, the same
    with that floor.
    """
    yield model
    if getattr(model, "floor", 0.0) is None:
        yield clone(model).set_params(floor=float(release.noise["floor"]))


def unauditable_error() -> InvalidParameter:
    """The refusal of models whose per-instance loss is not known."""
    return InvalidParameter(
        "The per-instance loss of this model is not known, or this library did not release it.",
        "It is known for posterior samples, adaptive or not, for ridge regressions by the methods "
        "output and output-tight, and for the Gaussian mechanisms that the library describes.",
        "Audit one of these; what any other release promises is written in it.",
        parameter="release",
    )
