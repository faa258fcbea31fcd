# SPDX-License-Identifier: Apache-2.0
"""Upper bounds of κ(λ, ρ) that are proved, one for each entry of the table in kappa_table.csv
(docs/theory/kappa.md).

    κ(λ, ρ)  = sup { ½·S(W, φ) + T(W, φ) : W > 0, 0 ≤ φ ≤ limit(W) }       (equations 7 to 9)
    S(W, φ)  = max_ψ s·cos(ψ − φ)
    T(W, φ)  = max_ψ ½·s·cos(ψ + φ − π) + c/ρ
    limit(W) = the smallest φ ≤ π/2 with S(W, φ + π/2) ≤ λ·W·sin φ; π if there is none

where 0 ≤ ψ ≤ π, u = W·cos ψ, s = 1/(1 + e^(−u)) and c = s(1 − s).

A maximum over an interval is taken from values at nodes and a bound of what may lie between them:
width²/8 times the largest curvature in ψ and in W, a factor 1/cos(½ width) in φ, where S and T are
maxima of sinusoids. The half line of W is cut into cells. A cell is halved until it cannot exceed
the best value met by more than the tolerance, and the bound is the largest over all cells, so that
it holds whatever the nodes and the order are.

    symbol   name      meaning
    λ, ρ     ridge, rho    ρ = λ × the rate η of the noise
    W        length    ‖w‖ of the coefficients released
    φ        tilt      angle between −w and the sum that the noise must balance
    ψ        angle     angle between −w and one row

`python -m sottovoce.accounting.kappa_certificate` proves the whole table again; with `--write` it
writes it.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np

from sottovoce.accounting import kappa
from sottovoce.accounting.kappa import TABLE_FILE, KappaTable, load_table
from sottovoce.arrays import Floats

#: Largest values, rounded up, of |s'|, |s''|, |c''| and of |u·s'|, |u·c'|, u²|s''|, u²|c''|.
SLOPE = 0.25
BEND = 0.0962251
BEND_C = 0.125
U_SLOPE = 0.2239
U_SLOPE_C = 0.16
UU_BEND = 0.376
UU_BEND_C = 0.2986
#: A unit in the last digit of the table.
UNIT = 1e-5
#: Added to every bound; a few thousand operations in doubles on numbers below 10 stay under 1e-12.
ROUNDING = 1e-9
#: How far a bound may lie above the best value met.
TOLERANCE = 1e-4
#: Nodes of ψ: evenly spaced angles, and evenly spaced u where s bends.
ANGLES = np.linspace(0.0, math.pi, 400)
STEP = 0.03
REACH = 14.0
TILTS = np.linspace(0.0, math.pi, 200)
WIDTH = float(TILTS[1])
BETWEEN_TILTS = 1 / math.cos(WIDTH / 2)
#: The first cells of W: [0, ⅛], then a quarter of an octave each, then the rest of the half line.
EDGES = (0.0, *(2.0 ** (k / 4) for k in range(-12, 25)), math.inf)


class Rows(NamedTuple):
    """What one row can do at one W: s and c at nodes of ψ, and how much more lies between nodes at
    most.
    """

    angle: Floats
    s: Floats
    c: Floats
    between_s: float  # for s·cos(ψ − anything)
    between_c: float  # for c


@lru_cache(maxsize=256)
def compute_rows(length: float) -> Rows:
    """Returns nodes of ψ on [0, π], close enough that h²/8 times the curvature is small in every
    gap h.
    """
    angle = choose_nodes(length)
    u = length * np.cos(angle)
    s = 1 / (1 + np.exp(-np.clip(u, -700, 700)))
    same_side = u[:-1] * u[1:] > 0
    nearest = np.where(same_side, np.minimum(np.abs(u[:-1]), np.abs(u[1:])), 0.0)
    fall = np.exp(-nearest)  # |s'|, |s''| and |c''| are at most e^(−|u|)
    bend_s = length**2 * np.minimum(BEND, fall) + 2 * length * np.minimum(SLOPE, fall) + U_SLOPE + 1
    bend_c = length**2 * np.minimum(BEND_C, fall) + U_SLOPE_C
    gap = np.diff(angle) ** 2 / 8
    return Rows(angle, s, s * (1 - s), float((gap * bend_s).max()), float((gap * bend_c).max()))


def choose_nodes(length: float) -> Floats:
    """Returns the angles ψ, 0 and π among them, at which rows are looked at."""
    reach = REACH + 2 * math.log(max(length, 1.0))  # beyond it W²·e^(−|u|) is negligible
    u = np.arange(-reach, reach, STEP)
    if length > 0:
        bent = np.arccos(u[np.abs(u) < length] / length)
    else:
        bent = ANGLES
    return np.union1d(ANGLES, bent)


def bound_support(length: float, tilt: float) -> float:
    """Returns an upper bound of S(W, φ)."""
    at = compute_rows(length)
    return float((at.s * np.cos(at.angle - tilt)).max()) + at.between_s


@lru_cache(maxsize=1024)
def bound_values(length: float, rhos: tuple[float, ...]) -> Floats:
    """Returns upper bounds of ½·S + T at all nodes of φ, one column for each ρ."""
    at = compute_rows(length)
    half = at.s / 2
    first = (half * np.cos(at.angle - TILTS[:, None])).max(axis=1)
    second = half * np.cos(at.angle + TILTS[:, None] - math.pi)
    both = [first + (second + at.c / rho).max(axis=1) + at.between_c / rho for rho in rhos]
    return np.stack(both, axis=1) + at.between_s


def bound_tilt(length: float, ridge: float) -> float:
    """Returns an upper bound of the largest φ that b' can have, for this W and every larger one."""
    if not _is_in_cone(length, ridge, math.pi / 2):
        return math.pi
    low = 0.0
    high = math.pi / 2
    for _ in range(40):
        middle = (low + high) / 2
        if _is_in_cone(length, ridge, middle):
            low, high = (low, middle)
        else:
            low, high = (middle, high)
    return high


def _is_in_cone(length: float, ridge: float, tilt: float) -> bool:
    """Whether λWe + s·z is certainly in the cone of half-angle φ ≤ π/2 around e for every row z."""
    return bound_support(length, tilt + math.pi / 2) + ROUNDING <= ridge * length * math.sin(tilt)


def bound_peak(length: float, tilt: float, rhos: tuple[float, ...]) -> Floats:
    """Returns an upper bound of ½·S + T over 0 ≤ φ ≤ tilt at one W, for each ρ.

    Between two nodes a maximum of sinusoids lies below the sinusoid through its values there.
    """
    at = bound_values(length, rhos)
    k = min(int(tilt / WIDTH), len(TILTS) - 2)
    before = math.sin(TILTS[k + 1] - tilt)
    after = math.sin(tilt - TILTS[k])
    end = (max(before, 0.0) * at[k] + max(after, 0.0) * at[k + 1]) / math.sin(WIDTH)
    return np.asarray(np.maximum(at[: k + 1].max(axis=0), end) * BETWEEN_TILTS)


def bound_cell(
    low: float, high: float, ridge: float, rhos: tuple[float, ...]
) -> tuple[Floats, Floats]:
    """Returns an upper bound of ½·S + T over low ≤ W ≤ high and φ ≤ limit(W), and the value at W =
    low.
    """
    if low > 0:
        tilt = bound_tilt(low, ridge)
    else:
        tilt = math.pi
    value = bound_peak(low, tilt, rhos)
    if math.isinf(high):
        return bound_tail(low, tilt, rhos), value
    curvature = bound_curvature(low, rhos) * (high - low) ** 2 / 8
    return np.maximum(value, bound_peak(high, tilt, rhos)) + curvature, value


def bound_curvature(low: float, rhos: tuple[float, ...]) -> Floats:
    """Returns a bound of the second derivative of ½·s·cos + ½·s'·cos + c/ρ in W ≥ low, for each
    ρ.
    """
    if low > 0:
        far = 1 / low**2
    else:
        far = math.inf
    return np.asarray(min(BEND, UU_BEND * far) + min(BEND_C, UU_BEND_C * far) / np.array(rhos))


def bound_tail(low: float, tilt: float, rhos: tuple[float, ...]) -> Floats:
    """Returns an upper bound of ½·S + T over W ≥ low and φ ≤ tilt: S ≤ 1, and in T rows on either
    side of ψ = π/2.

    Where ψ ≥ π/2, s and c fall as W grows. Where ψ ≤ π/2, −cos(ψ + φ) ≤ sin(tilt) and c ≤ ¼.
    """
    at = compute_rows(low)
    rho = np.array(rhos)
    behind = at.angle > math.pi / 2 - WIDTH
    pull = at.s / 2 * np.cos(np.maximum(math.pi - at.angle - tilt, 0.0))
    back = (
        (pull[behind, None] + at.c[behind, None] / rho).max(axis=0)
        + at.between_s / 2
        + at.between_c / rho
    )
    front = math.sin(min(tilt, math.pi / 2)) / 2 + 0.25 / rho
    return np.asarray(0.5 + np.maximum(back, front))


def bound_kappa(ridge: float, rhos: tuple[float, ...], tolerance: float = TOLERANCE) -> Floats:
    """Returns upper bounds of κ(λ, ρ) for each ρ."""
    best = np.zeros(len(rhos))
    proved = np.zeros(len(rhos))
    cells = list(pairwise(EDGES))
    while cells:
        found = [bound_cell(low, high, ridge, rhos) for low, high in cells]
        best = np.maximum(best, np.max([value for _, value in found], axis=0))
        small = [bool((bound <= best + tolerance).all()) for bound, _ in found]
        proved = np.max(
            [proved, *(bound for (bound, _), done in zip(found, small, strict=True) if done)],
            axis=0,
        )
        cells = [
            half
            for whole, done in zip(cells, small, strict=True)
            if not done
            for half in split_cell(*whole)
        ]
    return np.asarray(proved + ROUNDING)


def split_cell(low: float, high: float) -> tuple[tuple[float, float], tuple[float, float]]:
    """Returns a cell cut in two."""
    if math.isinf(high):
        middle = 2 * low
    else:
        middle = (low + high) / 2
    return (low, middle), (middle, high)


def upper_bound(ridge: float, rho: float, tolerance: float = TOLERANCE) -> float:
    """Returns a number that is at least κ(λ, ρ), and above it by little more than the tolerance."""
    return float(bound_kappa(ridge, (rho,), tolerance)[0])


def compute_table(ridges: Floats, rhos: Floats) -> Iterator[Floats]:
    """Yields the rows of the table, one for each λ, rounded up to its last digit."""
    for ridge in ridges:
        yield np.ceil(bound_kappa(float(ridge), tuple(map(float, rhos))) / UNIT) * UNIT


def main(words: list[str]) -> int:
    """Proves the shipped table again; returns 0 if it is the same, or if it is written."""
    from rich.progress import track

    old = load_table()
    new = KappaTable(
        old.ridges,
        old.rhos,
        np.array(list(track(compute_table(old.ridges, old.rhos), "κ", total=len(old.ridges)))),
    )
    if "--write" in words:
        Path(kappa.__file__).with_name(TABLE_FILE).write_text(new.to_csv(), encoding="utf-8")
        return 0
    difference = float(np.abs(new.entries - old.entries).max())
    print(
        f"{new.entries.size} entries proved; largest difference to the shipped table "
        f"{difference:.5f}"
    )
    return int(difference > 1.5 * UNIT)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
