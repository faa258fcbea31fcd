# SPDX-License-Identifier: Apache-2.0
"""From noisy sums to a linear model: functions of what was released, and of public numbers
(docs/theory/adassp.md#the-fit).

Nothing here reads a row. Margins tell where rows are and how far they spread; moments around that
centre give a first model; every round of residuals moves it. The law of the noise is public, so how
much of each number to believe is known:

    symbol   name
    s, S     deviation of a product's noise; its part on the label's row is s·τ/t
    G, c     second moments of u, and of u with the label, around their means
    w, V     eigenvalues and eigenvectors of G, after G was shrunk towards a diagonal matrix
    b, e²    slopes along V, and the variance of what is not known of each
    a, e²₀   the constant at the centre of u, and its variance
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from sottovoce.arrays import Floats
from sottovoce.data.regression_kernels import ResidualRows, RowFrame, StandardRows
from sottovoce.estimators.ridge_errors import OFFSET

#: Rows are cut at this many times their root mean square length, and labels and residuals at so
#: many deviations. Chosen on made tables (benchmarks/delta_regression.py).
RADIUS = 1.0
LABEL_CLIP = 1.5
RESIDUAL_CLIP = 2.0
#: g/radius and t/radius: how long the constant and the label are beside the features.
INTERCEPT_PART = 0.5
LABEL_PART = 0.8
RESIDUAL_INTERCEPT_PART = 0.4
#: Where the noise of G has this spectral norm nothing more is cut than above; as it falls, less is,
#: and in the end nothing.
CUT_NOISE = 0.05
#: Noise of moments counts so many times, since G's own is multiplied by slopes that are not known.
CAUTION = 2.0
#: No deviation is taken for less than this part of a half range, nor a residual's for less than
#: this part of the label's.
LEAST_SCALE = 1e-3
LEAST_RESIDUAL = 0.15
#: The mean square of a column in units of its scale is taken to lie above this, on average.
LEAST_SQUARE = 0.2
#: What the label's variance is usually, in half ranges, give or take; and the least it is taken for
#: where noise hides it.
USUAL_VARIANCE = (0.05, 0.05)
LEAST_VARIANCE = 0.01
#: The weight that rows usually keep after cutting, give or take.
USUALLY_KEPT = (0.8, 0.15)
#: The weight that rows keep after cutting, on average, is at least so much.
LEAST_KEPT = 0.3


@dataclass(frozen=True)
class StageNoise:
    """The deviation of noise on a sum of rows of length 1 whose weights sum to 1, by stage."""

    margins: float
    moments: float
    rounds: tuple[float, ...]


def make_standard_rows(means: Floats, squares: Floats, noise: StageNoise) -> StandardRows:
    """Returns how rows are centred, scaled and cut, from noisy means and mean squares of x and y.

    Parameters
    ----------
    means, squares :
        Of the features and, last, the label.
    noise :
        The public deviations.

    Returns
    -------
    StandardRows
        The map of rows whose products are released next.
    """
    means = np.clip(means, -1.0, 1.0)
    scale = estimate_scales(means, np.clip(squares, 0.0, 1.0), noise.margins)
    slopes = len(means) - 1
    usual = RADIUS * estimate_length(means, squares, scale, noise.margins)
    wider = find_widening(slopes, noise)
    # The longest that u can be in the box, and the farthest that a label can lie from its mean.
    corner = float(np.linalg.norm((1 + np.abs(means[:-1])) / scale[:-1]))
    radius = max(min(corner, usual * wider), LEAST_SCALE)
    frame = RowFrame(means[:-1], scale[:-1], float(means[-1]), radius)
    return StandardRows(
        frame,
        intercept=INTERCEPT_PART * radius,
        label=LABEL_PART * radius,
        clip=min(1 + abs(float(means[-1])), LABEL_CLIP * float(scale[-1]) * wider),
    )


def estimate_scales(means: Floats, squares: Floats, deviation: float) -> Floats:
    """Returns deviations of columns and label: a column's is not below what noise alone would make
    it seem, and the label's is drawn to what is usual as far as noise hides it.
    """
    # The noise of a square has half the variance; that of a squared mean at a usual mean is 4·.1.
    noise = deviation * math.sqrt(0.5 + 0.4)
    variance = np.maximum(squares - means**2, noise)
    label = float(squares[-1] - means[-1] ** 2) + deviation**2
    usual, apart = USUAL_VARIANCE
    least = LEAST_VARIANCE * min(1.0, noise / usual)
    variance[-1] = max(weigh_estimate(label, noise**2, usual, apart**2), least)
    return np.clip(np.sqrt(variance), LEAST_SCALE, 1.0)


def weigh_estimate(value: float, variance: float, usual: float, apart: float) -> float:
    """Returns the mean of a noisy number and of what is usual, each by one over its variance."""
    return (value * apart + usual * variance) / (variance + apart)


def estimate_length(means: Floats, squares: Floats, scale: Floats, deviation: float) -> float:
    """Returns the root mean square length of u: where scales are held above noise, rows are shorter
    than √p, and the sum over columns tells it better than any of them.
    """
    slopes = len(means) - 1
    if not slopes:
        return 1.0
    variance = squares[:-1] - means[:-1] ** 2 + deviation**2
    total = float(np.sum(variance / scale[:-1] ** 2))
    return math.sqrt(min(max(total, LEAST_SQUARE * slopes), slopes))


def find_widening(slopes: int, noise: StageNoise) -> float:
    """Returns by how much less is cut than usual: 1 where noise is large, without limit as it
    vanishes.
    """
    length = (1 + INTERCEPT_PART**2 + LABEL_PART**2) * RADIUS**2 * max(slopes, 1)
    spectral = 2 * math.sqrt(max(slopes, 1)) * length * noise.moments
    return float(max(1.0, (CUT_NOISE / spectral) ** 0.25))


@dataclass(frozen=True, eq=False)
class PartialModel:
    """What is known of the model after some of the stages."""

    rows: StandardRows
    noise: StageNoise
    kept: float  # mean of c²
    centre: Floats  # mean of u, weighted by c²
    gram: Floats  # as released, around the centre
    cross: Floats
    label_variance: float  # of labels around their mean, as released
    matrix_noise: float  # variance of what is not known of an entry of G after shrinking it
    values: Floats  # w
    vectors: Floats  # V
    constant: float  # a
    constant_variance: float
    slopes: Floats  # b, along V
    variances: Floats  # e², along V

    @property
    def coefficients(self) -> Floats:
        """The slopes of u."""
        return np.asarray(self.vectors @ self.slopes)

    @property
    def product_noise(self) -> float:
        """s, the deviation of the noise on a product of two features."""
        return self.rows.length**2 * self.noise.moments

    @property
    def cross_noise(self) -> float:
        """The same on a product of a feature and the label."""
        return self.product_noise * self.rows.clip / self.rows.label

    def estimate_residual_variance(self) -> float:
        """Returns the variance of what the model leaves of the label; never 0."""
        turned = self.vectors.T @ self.cross
        explained = 2 * float(self.slopes @ turned) - float(self.values @ self.slopes**2)
        spread = self.rows.clip / LABEL_CLIP
        least = (LEAST_RESIDUAL * spread) ** 2
        return min(max(self.label_variance - explained / self.kept, least), 1.2 * spread**2)

    def make_residual_rows(self) -> ResidualRows:
        """Returns the map of rows of the next round."""
        frame = self.rows.frame
        slopes = self.coefficients
        wider = find_widening(len(slopes), self.noise)
        # The farthest that a label can lie from a prediction in the box.
        reach = (1 + np.abs(frame.centre)) / frame.scale
        farthest = 1 + abs(frame.middle + self.constant) + float(reach @ np.abs(slopes))
        clip = RESIDUAL_CLIP * math.sqrt(self.estimate_residual_variance()) * wider
        return ResidualRows(
            frame,
            intercept=RESIDUAL_INTERCEPT_PART * frame.radius,
            constant=self.constant,
            slopes=slopes,
            clip=min(clip, farthest),
        )

    def update(self, rows: ResidualRows, pulls: Floats, deviation: float) -> PartialModel:
        """Returns the model moved by noisy pulls Σ c²(1, u)·r of residuals, which are those of G
        times what is missing from the slopes.

        Parameters
        ----------
        rows :
            The map of this round.
        pulls :
            Of the intercept, with g, and of the features.
        deviation :
            Of the noise on rows of length 1.

        Returns
        -------
        PartialModel
            The model with less unknown.
        """
        noise = deviation * rows.length * rows.clip
        level = float(pulls[0]) / rows.intercept / self.kept
        along = self.vectors.T @ (pulls[1:] - self.kept * self.centre * level)
        unknown = noise**2 + self.matrix_noise * float(self.variances.sum())
        step, variances = weigh_observation(self.values, self.variances, unknown)
        moved = step * along
        drawn = (noise / rows.intercept / self.kept) ** 2
        trust = self.constant_variance / (self.constant_variance + drawn)
        return replace(
            self,
            slopes=self.slopes + moved,
            variances=variances,
            constant=self.constant + trust * level - float(self.centre @ (self.vectors @ moved)),
            constant_variance=trust * drawn,
        )

    def to_theta(self) -> Floats:
        """Returns θ for recoded features (½, z) and labels in [−1, 1]."""
        return self._change_to_theta(self.rows.frame.middle + self.constant)

    def to_shrunken_theta(self) -> Floats:
        """Returns θ with what it predicts at the centre drawn to the middle of the label's range,
        as far as noise in it weighs against where labels usually lie.
        """
        level = self.rows.frame.middle + self.constant
        return self._change_to_theta(level * OFFSET / (OFFSET + self.constant_variance))

    def _change_to_theta(self, level: float) -> Floats:
        frame = self.rows.frame
        slopes = self.coefficients / frame.scale
        constant = level - float(slopes @ frame.centre)
        return np.concatenate([[2 * constant], 2 * slopes])


def weigh_observation(values: Floats, variances: Floats, noise: float) -> tuple[Floats, Floats]:
    """Returns by how much an observation of w·(what is missing), with noise of this variance, moves
    each slope, and the variance of what is missing after it.
    """
    total = values**2 * variances + noise
    return values * variances / total, variances * noise / total


def fit_moments(rows: StandardRows, moments: Floats, noise: StageNoise) -> PartialModel:
    """Returns the first model, from noisy second moments of the rows (g, u, t·v)·c.

    Parameters
    ----------
    rows :
        The map of rows.
    moments :
        Their noisy means of products, in the rows' own units.
    noise :
        The public deviations.

    Returns
    -------
    PartialModel
        The model before any round.
    """
    p = len(rows.frame.centre)
    back = np.concatenate([[1 / rows.intercept], np.ones(p), [rows.clip / rows.label]])
    moments = moments * np.outer(back, back)
    entry = rows.length**2 * noise.moments
    usual, apart = USUALLY_KEPT
    square_noise = 2 * (entry / rows.intercept**2) ** 2
    seen = weigh_estimate(float(moments[0, 0]), square_noise, usual, apart**2)
    kept = min(max(seen, LEAST_KEPT), 1.0)
    # Means of u and v are 0 but for the noise of the centre, which is known.
    drawn = (entry / rows.intercept) ** 2
    before = (noise.margins / rows.frame.scale) ** 2
    centre = moments[0, 1 : p + 1] / kept * before / (before + drawn)
    label_drawn = (entry / rows.intercept * back[-1]) ** 2
    label_before = noise.margins**2
    trust = label_before / (label_before + label_drawn)
    level = float(moments[0, -1]) / kept * trust
    gram = moments[1 : p + 1, 1 : p + 1] - kept * np.outer(centre, centre)
    cross = moments[1 : p + 1, -1] - kept * centre * level
    shrunk, matrix_noise = shrink_gram(gram, entry)
    values, vectors = np.linalg.eigh(shrunk)
    values = np.maximum(values, 0.0)
    cross_noise = entry * back[-1]
    spread = rows.clip / LABEL_CLIP
    variances = estimate_slope_variance(cross, cross_noise, values, spread)
    unknown = CAUTION * (cross_noise**2 + matrix_noise * float(variances.sum()))
    step, left = weigh_observation(values, variances, unknown)
    slopes = step * (vectors.T @ cross)
    return PartialModel(
        rows=rows,
        noise=noise,
        kept=kept,
        centre=centre,
        gram=gram,
        cross=cross,
        label_variance=float(moments[-1, -1]) / kept - level**2,
        matrix_noise=matrix_noise,
        values=values,
        vectors=vectors,
        constant=level - float(centre @ (vectors @ slopes)),
        constant_variance=trust * label_drawn,
        slopes=slopes,
        variances=left,
    )


def estimate_slope_variance(cross: Floats, noise: float, values: Floats, spread: float) -> Floats:
    """Returns the variance that slopes seem to have, the same along every direction: what products
    with the label show beyond noise, over what slopes of variance 1 would; slopes together explain
    no more than there is.
    """
    p = len(cross)
    shown = max(float(cross @ cross) - p * noise**2, p * noise**2 / 20)
    usual = shown / max(float(values @ values), 1e-9)
    return np.full(p, min(usual, spread**2 / max(p, 1)))


def shrink_gram(gram: Floats, entry: float) -> tuple[Floats, float]:
    """Returns the second moments, those off the diagonal shrunk towards 0 and those on it towards
    their mean as far as noise explains them (James and Stein 1961), and the variance left in one.
    """
    p = len(gram)
    diagonal = np.diag(gram)
    off = gram - np.diag(diagonal)
    squares = float(np.sum(np.triu(off, 1) ** 2))
    keep = _keep_share(squares, p * (p - 1) / 2 * entry**2)
    usual = float(np.clip(diagonal.mean(), 0.2, 1.0)) if p else 1.0
    apart = diagonal - usual
    keep_apart = _keep_share(float(apart @ apart), (p - 1) * 2 * entry**2)
    least = min(0.1, 2 * entry)
    shrunk = keep * off + np.diag(np.maximum(usual + keep_apart * apart, least))
    return shrunk, keep * entry**2


def _keep_share(squares: float, noise: float) -> float:
    if squares <= max(noise, 0.0):
        return 0.0
    return 1 - noise / squares
