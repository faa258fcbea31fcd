# SPDX-License-Identifier: Apache-2.0
"""What may be known: a bound on one's own loss from published numbers, and a private histogram of
such bounds.

With a posterior sample θ̃ published, anybody can bound their own residual, as xᵀ(θ̃ − θ̂) ~ N(0,
h/γ) and h ≤ h_u, and so their loss: by a function of their own record and of what everybody knows
(docs/theory/per-instance.md, (27)).

    symbol   name
    h_u      the largest possible share w‖x‖²/h_low of the record
    h_low    a floor of H's eigenvalues: λ, or λ̃ − σ₁z + λ_n
    e_u      |√w(y − xᵀθ̃)| + z·√(h_u/γ)
    z        so many deviations that a normal variable is larger with probability β (β/2 each where
             λ̃ was released, too)
    μ, a     h_u/(1 − h_u), √γ·e_u/(1 − h_u)

With noise in the objective, of the default regression and of logistic regression, what was lost to
this very release is bounded with certainty: |L| ≤ N(a·∇ℓ) + log(1 + a·ℓ''·φᵀΛ⁻¹φ) for each fit, at
the published θ (theorem 14), and by its charge for each choice.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtri

from sottovoce import units
from sottovoce.accounting import profiles, renyi
from sottovoce.arrays import ColumnLike, Floats, TableLike, to_doubles
from sottovoce.audit import inputs, leverages
from sottovoce.audit.confidential import ConfidentialArray, ConfidentialObject, confidential_error
from sottovoce.audit.inputs import make_row, split_record
from sottovoce.errors import InvalidParameter
from sottovoce.noise import source
from sottovoce.release import Release
from sottovoce.schema import is_between
from sottovoce.units import round_upward
from sottovoce.weights import TOTAL_BITS, WEIGHT_BITS

Neighbours = Literal["add or remove", "replace"]

#: Up to this leverage, the golden ratio, the exact profile grows with it at every δ; beyond, at
#: small ones.
GOLDEN = (1 + math.sqrt(5)) / 2
CHUNK = 2048
#: No ε is smaller.
SMALLEST = 1e-9
#: Parts of δ that the noisy eigenvalue may take where two exact ε are added.
SPLITS = (0.01, 0.1, 0.5, 0.9)


@dataclass(frozen=True)
class Mine:
    """A bound on what one's own row lost, wrong with probability ``beta`` at most.

    From public numbers.

    ``epsilon`` is for all that was released; ``sample`` for the posterior sample and ``eigenvalue``
    for the noisy eigenvalue alone, each at δ, the sample's given the eigenvalue that was published;
    ``promised`` is the largest promise of the release. ``share`` and ``error``: h_u, e_u.
    """

    epsilon: float
    delta: float
    beta: float
    sample: float
    eigenvalue: float
    promised: float
    share: float
    error: float

    def explain(self) -> str:
        """Return the bound in plain words.

        Returns
        -------
        str
            One paragraph.
        """
        if self.epsilon < 20:
            factor = units.format_odds(self.epsilon)
        else:
            factor = f"e^{round_upward(self.epsilon)}"
        if self.beta == 0:
            at = "as it was published"
            certain = "It is certain."
        else:
            at = f"at δ = {self.delta:g}"
            certain = (
                f"It is wrong with probability {self.beta:g} at most, over the noise of the "
                "release."
            )
        lines = [
            f"Your row lost at most ε = {round_upward(self.epsilon)} to this release ({at}); "
            f"everybody was promised {round_upward(self.promised)} or less.",
            "What it means: whether your row was in the table or not changes the odds of any guess "
            f"by a factor of at most {factor}.",
            "This was computed from your own row and from what is published; nobody else was "
            f"asked. {certain}",
            "Keep it to yourself if your row is private: it depends on your row.",
        ]
        return "\n".join(lines)


@dataclass(frozen=True)
class _PublishedPosterior:
    """What a release tells about the posterior that it is a sample of."""

    gamma: float
    theta: Floats
    floor: float  # of H's eigenvalues, but for the noise on λ̃
    sure: float  # of H's eigenvalues, whatever the noise
    spread: float | None  # σ₁, where λ̃ was released

    @classmethod
    def of(cls, release: Release) -> _PublishedPosterior:
        value: dict[str, Any] = release.value  # type: ignore[assignment]
        gamma = float(release.noise["gamma"])
        theta = np.array(value["theta"], dtype=np.float64)
        if "alpha" in release.parameters:
            alpha = float(release.parameters["alpha"])
            return cls(gamma, theta, alpha, alpha, None)
        ridge = float(value["regularisation"])
        spread = float(release.noise["eigenvalue_standard_deviation"])
        return cls(gamma, theta, float(value["noisy_eigenvalue"]) + ridge, ridge, spread)

    def bound_share(self, square: Floats, z: float) -> Floats:
        """h_u."""
        lowest = max(self.floor - (self.spread or 0.0) * z, self.sure)
        return np.asarray(square / lowest if lowest > 0 else np.full(len(square), math.inf))


class _LossBounds(NamedTuple):
    """Bounds, one a row: ε of all that was released, of the sample and of the eigenvalue.

    h_u and e_u.
    """

    epsilon: Floats
    sample: Floats
    eigenvalue: Floats
    share: Floats
    error: Floats


def mine(
    release: Release, record: tuple[Any, Any], beta: float = 0.01, *, weight: float | None = None
) -> Mine:
    """Return a bound on one's own row's loss from a published model alone.

    It is for one row, and says nothing about several of one person together. For a posterior sample
    it is an ε at δ; for the default regression and for logistic regression it is for what was lost
    to this very release, and certain.

    Parameters
    ----------
    release : Release
        What was published.
    record :
        (x, y) in the units of the release, x by column name or in the order of columns.
    beta : float
        Probability with which the bound may fail.
    weight : float, optional
        The row's weight in a posterior sample or a classifier, or one's own promised ε in a
        regression, where people have different ones; for the last two, if not given, the largest
        that anybody has.

    Returns
    -------
    Mine
        The bound, true with probability 1 − β.

    Raises
    ------
    InvalidInput
        The release is of another kind, or the record cannot be used.
    """
    x, y = split_record(record)
    if isinstance(release, Release) and not inputs.has_posterior_noise(release):
        return _bound_own_model_loss(release, make_row(x), y, weight)
    found = _compute_bounds(
        release, make_row(x), np.atleast_1d(to_doubles(y, "The label", "record")), beta, weight
    )
    promise = release.guarantee
    told = (float(part[0]) for part in found)
    epsilon, sample, before, share, error = told
    return Mine(
        epsilon,
        promise["delta"],
        beta,
        sample,
        before,
        float(promise["epsilon"]["most"]),
        share,
        error,
    )


def refuse_unbounded(release: Release) -> None:
    """Refuses a release of which ``mine`` tells nothing, before anybody's row is looked at."""
    from sottovoce.audit import own_bounds

    if not inputs.has_posterior_noise(release) and not own_bounds.is_bounded(release):
        raise own_bounds.unbounded_error()


def bounds(
    release: Release,
    X: TableLike,
    y: ColumnLike,
    beta: float = 0.01,
    *,
    weight: ArrayLike | None = None,
) -> Floats:
    """Return what ``mine`` says of every row, fit for ``histogram``.

    They are not public themselves: each tells something about its row.

    Parameters
    ----------
    release : Release
        What was published.
    X :
        Features.
    y :
        Labels.
    beta : float
        Probability with which a bound may fail.
    weight :
        Weights of rows, where people have different ones.

    Returns
    -------
    Floats
        The bounds, each a function of its row and of public numbers.
    """
    return _compute_bounds(release, X, y, beta, weight).epsilon


def _bound_own_model_loss(release: Release, x: TableLike, y: Any, weight: Any) -> Mine:
    """The bound for noise in the objective, from what each stage published."""
    from sottovoce.audit import own_bounds

    promised = float(release.guarantee["epsilon"]["most"])
    found = own_bounds.bound_realised_loss(release, x, y, weight)
    return Mine(
        min(found.epsilon, promised), 0.0, 0.0, found.fit, 0.0, promised, found.share, found.pull
    )


def _compute_bounds(
    release: Release, X: TableLike, y: ColumnLike, beta: float, weight: ArrayLike | None
) -> _LossBounds:
    _refuse_other_releases(release, beta)
    rows, labels = inputs.prepare_rows(release, inputs.rebuild_estimator(release), X, y)
    if weight is None:
        w: Floats | float = _read_common_weight(release)
    else:
        w = to_doubles(weight, "weight", "weight")
    public = _PublishedPosterior.of(release)
    square = w * np.square(rows).sum(axis=1)
    z = -float(ndtri(beta if public.spread is None else beta / 2))
    share = public.bound_share(square, z)
    error = np.sqrt(w) * np.abs(labels - rows @ public.theta) + z * np.sqrt(share / public.gamma)
    most = float(release.guarantee["epsilon"]["most"])
    delta = float(release.guarantee["delta"])
    sample, before, both = _bound_losses(public, share, error, square, delta)
    return _LossBounds(np.minimum(both, most), np.minimum(sample, most), before, share, error)


def _bound_losses(
    public: _PublishedPosterior, share: Floats, error: Floats, square: Floats, delta: float
) -> tuple[Floats, ...]:
    """ε of the sample, of the eigenvalue, and of both together; ∞ where h_u is 1 or more."""
    distance = square * (0.0 if public.spread is None else 1 / public.spread)
    before = profiles.gaussian_epsilon(distance, delta)
    lost = share >= 1
    share = np.where(lost, 0.0, share)
    mu = share / (1 - share)
    a = math.sqrt(public.gamma) * error / (1 - share)
    sample = np.where(lost, math.inf, _bound_sample_loss(mu, a, delta))
    if public.spread is None:
        return sample, before, sample
    return sample, before, np.where(lost, math.inf, _compose_losses(mu, a, distance, delta))


def _compose_losses(mu: Floats, a: Floats, distance: Floats, delta: float) -> Floats:
    """Rényi curves added up, or the exact ε of each at a part of δ: whichever is less."""

    def add_curves(mu: Floats, a: Floats, distance: Floats) -> Floats:
        return renyi.convert_to_epsilon(
            renyi.compute_gaussian_curve(distance) + renyi.compute_posterior_curve(mu, a), delta
        )

    split = [
        profiles.gaussian_epsilon(distance, part * delta)
        + _bound_sample_loss(mu, a, (1 - part) * delta)
        for part in SPLITS
    ]
    return np.asarray(
        np.minimum(_compute_in_chunks(add_curves, mu, a, distance), np.min(split, axis=0))
    )


def _bound_sample_loss(mu: Floats, a: Floats, delta: float) -> Floats:
    """The exact ε where it grows with the leverage (theorem 5), else what Rényi's curve says."""
    loud = (mu > GOLDEN) & (delta >= leverages.LARGEST_DELTA)
    found = profiles.posterior_epsilon(np.where(loud, 0.0, mu), a, delta)
    found[loud] = _compute_in_chunks(
        lambda mu, a: renyi.convert_to_epsilon(renyi.compute_posterior_curve(mu, a), delta),
        mu[loud],
        a[loud],
    )
    return found


def _compute_in_chunks(compute: Callable[..., Floats], *given: Floats) -> Floats:
    """Curves are long: so many rows at a time."""
    starts = range(0, len(given[0]), CHUNK)
    parts = [compute(*(field[at : at + CHUNK] for field in given)) for at in starts]
    return np.concatenate([np.empty(0), *parts])


def _read_common_weight(release: Release) -> float:
    """Return everybody's weight, where all are equal; a release does not say who has which."""
    unit = float(release.parameters["weight_unit"])
    promise = release.guarantee
    if unit == 1.0:
        return 1.0
    if promise["unit"] != "row" or promise["epsilon"]["least"] != promise["epsilon"]["most"]:
        raise InvalidParameter(
            "People may have different weights in this release.",
            "It does not say who has which.",
            "Pass weight=, that of one of your rows, which follows from your own budget; the "
            "curator can tell it.",
            parameter="weight",
        )
    return unit * 2.0 ** min(WEIGHT_BITS, TOTAL_BITS - math.ceil(math.log2(promise["people"])))


def _refuse_other_releases(release: object, beta: object) -> None:
    if not isinstance(release, Release) or not inputs.has_posterior_noise(release):
        raise InvalidParameter(
            "Only from a published posterior sample can losses of many rows be bounded at δ.",
            "Its noise has a shape that tells how far predictions are off.",
            "Pass the Release of sv.PosteriorSample or sv.AdaptivePosteriorSample; sv.audit.mine "
            "takes one row and a regression or a classifier, too.",
            parameter="release",
        )
    if not (isinstance(beta, float) and 0 < beta < 0.5):
        raise InvalidParameter(
            "β is not between 0 and ½.",
            "",
            "Pass a small probability, such as beta=0.01.",
            parameter="beta",
        )


@dataclass(frozen=True)
class PublicHistogram:
    """How many bounds lie where, with noise: counts may be negative. It may be published."""

    edges: tuple[float, ...]
    counts: tuple[int, ...]
    epsilon: float
    neighbours: str
    scale: float

    @property
    def guarantee(self) -> str:
        """What it promises, in words."""
        return (
            f"{self.epsilon:g}-differential privacy (pure ε, neighbours: {self.neighbours} one "
            f"row; exact discrete Laplace noise of scale {self.scale:.6g} on each count), on top "
            "of what the release itself costs."
        )


def histogram(
    bounds: Sequence[Mine] | Floats,
    edges: ColumnLike,
    epsilon: float,
    *,
    neighbours: Neighbours = "add or remove",
) -> PublicHistogram:
    """Return a private histogram of what ``mine`` gave.

    One row is in one bin, so it changes one count by 1 (replaced: two). That holds because each
    bound is a function of one row and of public numbers. Exact losses are refused: one row changes
    every one of them.

    Parameters
    ----------
    bounds : Sequence[Mine] | Floats
        What ``mine`` or ``bounds`` gave.
    edges :
        Edges of the bins, public and rising.
    epsilon : float
        ε that the histogram costs each row.
    neighbours : Neighbours
        Whether a row may be replaced, or added or removed.

    Returns
    -------
    PublicHistogram
        Noisy counts; numbers beyond the edges are in the outer bins.

    Raises
    ------
    InvalidParameter
        Edges, ε or neighbours cannot be used.
    Confidential
        The numbers are exact losses.
    """
    values = _read_values(bounds)
    cuts = to_doubles(edges, "edges", "edges")
    if not (
        cuts.ndim == 1 and len(cuts) >= 2 and np.all(np.diff(cuts) > 0) and np.isfinite(cuts).all()
    ):
        raise InvalidParameter(
            "The edges do not rise.",
            "They are public numbers in order.",
            "Pass two or more.",
            parameter="edges",
        )
    if neighbours not in ("add or remove", "replace"):
        raise InvalidParameter(
            "These neighbours are not known.",
            "",
            "Choose 'add or remove' or 'replace'.",
            parameter="neighbours",
        )
    if not is_between(epsilon, SMALLEST, math.inf):
        raise InvalidParameter(
            "ε is not above 1e-9 and finite.",
            "",
            "Pass a small ε, such as 0.1.",
            parameter="epsilon",
        )
    scale = math.nextafter((1 if neighbours == "add or remove" else 2) / float(epsilon), math.inf)
    counts = np.histogram(np.clip(values, cuts[0], cuts[-1]), cuts)[0]
    noisy = (
        int(count) + noise
        for count, noise in zip(counts, source.draw_laplace(scale, len(counts)), strict=True)
    )
    return PublicHistogram(tuple(cuts.tolist()), tuple(noisy), float(epsilon), neighbours, scale)


def _read_values(bounds: Any) -> Floats:
    if isinstance(bounds, ConfidentialArray | ConfidentialObject):
        listed = []
    else:
        listed = _to_list(bounds)
    if isinstance(bounds, ConfidentialArray | ConfidentialObject) or any(
        isinstance(b, ConfidentialObject) for b in listed
    ):
        raise confidential_error()
    values = to_doubles(
        [b.epsilon if isinstance(b, Mine) else b for b in listed], "A bound", "bounds"
    )
    if np.isnan(values).any():
        raise InvalidParameter(
            "A bound is not a number.", "", "Pass what sv.audit.mine returned.", parameter="bounds"
        )
    return values


def _to_list(bounds: Any) -> list[Any]:
    try:
        return list(bounds)
    except TypeError:
        pass  # raised below
    raise InvalidParameter(
        "There are no bounds.",
        "",
        "Pass what sv.audit.mine returned, in a list.",
        parameter="bounds",
    )
