# SPDX-License-Identifier: Apache-2.0
"""A bound on what one's own row lost to a published regression or classifier, from published
numbers alone (docs/theory/per-instance.md, theorem 14).

A fit releases the minimiser θ of Σ a·ℓ + ½‖θ − θ₀‖²_Λ + bᵀθ, b of density ∝ exp(−N(b)). Its
realised loss is N(b − a·∇ℓ) − N(b) − log(1 − a·ℓ''·φᵀH⁻¹φ): the first difference is at most
N(a·∇ℓ), as N is a norm, and H ≥ Λ + a·ℓ''·φφᵀ, so the logarithm is at most log(1 + a·ℓ''·φᵀΛ⁻¹φ).
Both are functions of one's own row and of what is published, whatever anybody else's rows are.
Stages that choose, means of features, and what was bought for intervals, count at their charge.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from sottovoce.arrays import Floats, TableLike, to_doubles, to_matrix
from sottovoce.audit.model_replays import MixedNorm, make_tilt_norm
from sottovoce.data.encoding import Recoding, round_to_grid
from sottovoce.data.feature_ball import FeatureBall
from sottovoce.data.kernels import invalid_values_error
from sottovoce.data.loss_kernels import ClassicHuber, SoftHuber
from sottovoce.errors import InvalidParameter
from sottovoce.estimators import load, ridge_objective
from sottovoce.estimators.curvature import LARGEST_SHARE
from sottovoce.estimators.logistic_mechanism import SLACK, NoisyObjective
from sottovoce.release import Release
from sottovoce.schema import is_between


class OwnBound(NamedTuple):
    """The bound for all stages, that of the fits alone, and what it comes from."""

    epsilon: float
    fit: float
    share: float  # a·ℓ''·φᵀΛ⁻¹φ, the largest of all fits
    pull: float  # a·|ℓ'|, the largest of all fits


def bound_realised_loss(release: Release, x: TableLike, y: Any, weight: Any) -> OwnBound:
    """Return a bound on |L| of one row, certain whatever the others' rows are.

    Parameters
    ----------
    release :
        of a regression by the objective, or of a classifier.
    x, y :
        one's own row: a table of one row, and its label.
    weight :
        one's own promised ε of a regression, or the row's weight in a classifier; None: the
        largest that anybody has.
    """
    if _is_bounded_regression(release):
        return _bound_regression(release, x, y, _read_amount(release, weight))
    if _is_bounded_classifier(release):
        return _bound_classifier(release, x, y, weight)
    raise unbounded_error()


def is_bounded(release: Release) -> bool:
    """Whether the release is one from which ``bound_realised_loss`` tells a bound."""
    return _is_bounded_regression(release) or _is_bounded_classifier(release)


def _is_bounded_regression(release: Release) -> bool:
    # Gaussian noise has no bound that holds whatever was drawn.
    pure = release.parameters.get("method") == "objective"
    return pure and isinstance(release.value, dict) and "stages" in release.value


def _is_bounded_classifier(release: Release) -> bool:
    models = release.value.get("models", {}) if isinstance(release.value, dict) else {}
    return bool(models) and all("largest_weight" in model for model in models.values())


def unbounded_error() -> InvalidParameter:
    """What is said of releases whose own loss nobody can bound."""
    return InvalidParameter(
        "From this release nobody can bound their own loss better than by what was promised.",
        "It is known for posterior samples, and for regressions and classifiers with noise of pure "
        "ε in the objective, of this version.",
        "Take what the release promises.",
        parameter="release",
    )


def _read_amount(release: Release, weight: Any) -> float:
    promised = float(release.guarantee["epsilon"]["most"])
    if weight is None:
        return promised
    if not is_between(weight, 0, promised * (1 + 1e-9)):
        raise InvalidParameter(
            "The weight is not an ε that somebody was promised.",
            "For a regression it is one's own promised ε.",
            "Pass it, or nothing for the largest.",
            parameter="weight",
        )
    return float(weight)


def _bound_regression(release: Release, x: TableLike, y: Any, epsilon: float) -> OwnBound:
    given = release.parameters
    model = load(release)
    recoding = Recoding.from_dict(given["features"])
    z = round_to_grid(recoding.encode(to_matrix(x, recoding)))
    label = model._make_label().scale_values(np.atleast_1d(to_doubles(y, "The label", "record")))
    _refuse_missing(z, label)
    value: dict[str, Any] = release.value  # type: ignore[assignment]
    phi = z[0]
    if given.get("fit_intercept", True):
        phi = np.concatenate([[0.5], phi])
    spent = 0.0
    fits = 0.0
    share = 0.0
    pull = 0.0
    for stage in value["stages"]:
        spent += stage["share"]
        if "theta" not in stage:
            fits += stage["share"] * epsilon
            continue
        ball = ridge_objective.read_ball(stage, recoding)
        lost = _bound_fit(
            stage, given["loss"], phi, float(label[0]), stage["share"] * epsilon, ball
        )
        fits += lost.epsilon + SLACK * stage["share"] * epsilon
        share = max(share, lost.share)
        pull = max(pull, lost.pull)
    rest = max(1 - spent, 0.0) * epsilon  # what was bought for intervals
    return OwnBound(fits + rest, fits, share, pull)


def _bound_fit(
    stage: dict[str, Any],
    loss: str,
    row: Floats,
    label: float,
    weight: float,
    ball: FeatureBall | None,
) -> OwnBound:
    theta = np.array([*stage["theta"], *stage["held"]])
    tau = stage["threshold"]
    bounded: SoftHuber | ClassicHuber = SoftHuber(tau, stage["regularity"])
    if loss == "huber":
        bounded = ClassicHuber(tau)
    whole = row[: len(theta)]
    in_ball = None
    if ball is not None:
        counted, rows = ball.scale_rows(row[None, 1:])
        whole = np.concatenate([counted / 2, rows[0]])
        label *= float(counted[0])
        in_ball = ball.columns
    residual = np.array([label - float(whole @ theta)])
    _, psi, bend = bounded(residual)
    phi = whole[: len(stage["theta"])]
    curved = weight * float(bend[0]) * float(np.sum(phi**2 / np.array(stage["penalty"])))
    first, second = stage["norm"]
    norm = MixedNorm(tau, first, second, in_ball)
    pulled = float(norm((weight * float(psi[0]) * phi)[None, :])[0])
    return OwnBound(pulled + math.log1p(curved), 0.0, curved, weight * abs(float(psi[0])))


def _bound_classifier(release: Release, x: TableLike, y: Any, weight: Any) -> OwnBound:
    given = release.parameters
    value: dict[str, Any] = release.value  # type: ignore[assignment]
    models = value["models"]
    model = load(release)
    recoding = Recoding.from_dict(given["features"])
    mechanism: NoisyObjective = model._read_mechanism(given, recoding)
    a = float(next(iter(models.values()))["largest_weight"])
    if weight is not None:
        if not is_between(weight, 0, a * (1 + 1e-9)):
            raise InvalidParameter(
                "The weight is not one that a row has.",
                "It is above 0, and at most the largest weight, which the release says.",
                "Pass it, or nothing for the largest.",
                parameter="weight",
            )
        a = float(weight)
    phi = mechanism.body.rows(recoding.encode(to_matrix(x, recoding)))
    code = float(model._get_classes().find_codes(np.atleast_1d(np.asarray(y)))[0])
    _refuse_missing(phi, np.array([code if code >= 0 else math.nan]))
    names = [str(name) for name in given["classes"]]
    norm = make_tilt_norm(mechanism, release.noise["rate"]).measure
    reach = float(np.sum(phi[0] ** 2 / mechanism.ridge))
    own = np.zeros(len(names))
    own[int(code)] = 1.0
    fits = 0.0
    share = 0.0
    pull = 0.0
    if mechanism.several:
        theta = np.array([models[name]["fitted"] for name in names])
        margins = theta @ phi[0]
        chances = np.exp(margins - margins.max())
        chances /= chances.sum()
        moved = a * (own - chances)
        root = np.diag(chances) - np.outer(chances, chances)
        small = np.eye(len(names)) + a * reach * root
        fits += float(norm((moved[:, None] * phi[0]).ravel()[None, :])[0])
        fits += float(np.linalg.slogdet(small)[1])
        share = a * reach * float(np.linalg.eigvalsh(root)[-1])
        pull = float(np.linalg.norm(moved))
    for name, model_ in models.items() if not mechanism.several else ():
        sign = 1.0 if names.index(name) == int(code) else -1.0
        margin = float(np.array(model_["fitted"]) @ phi[0])
        doubt = 1 / (1 + math.exp(min(sign * margin, 700.0)))
        moved_by = a * sign * doubt
        curved = a * doubt * (1 - doubt) * reach
        if given["neighbours"] == "labels":
            moved_by = a * ((sign > 0) - 1 / len(names))
            curved = 0.0
        fits += float(norm(moved_by * phi)[0]) + math.log1p(curved)
        share = max(share, curved)
        pull = max(pull, abs(moved_by))
    return OwnBound(fits + _charge_the_rest(release), fits, share, pull)


def _charge_the_rest(release: Release) -> float:
    """What choosing an intercept, buying intervals and the solver's last digits cost at most."""
    given = release.parameters
    promised = float(release.guarantee["epsilon"]["most"])
    value: Any = release.value  # of a model, a mapping
    rest = given["threshold"] + SLACK * len(value["models"])
    known: dict[str, Any] = release.bought or {}
    if known.get("bought"):
        rest += LARGEST_SHARE if given["interval_share"] is None else given["interval_share"]
    return float(rest) * promised


def _refuse_missing(*parts: Floats) -> None:
    if not all(np.isfinite(part).all() for part in parts):
        raise invalid_values_error()
