"""κ and the charge of a person: the proof by cells against the formula, the table against attacks,
planted bugs.

Three roads to κ that share no code: the certificate (from above), the formula of the theorem
searched on grids, and attacks, which know nothing of the theorem: they maximise the exact ratio of
densities over data sets and outputs.
"""

from __future__ import annotations

import math
from functools import lru_cache

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kappa_certificate
from sottovoce.accounting import kappa
from sottovoce.errors import InvalidParameter

INF = math.inf
#: A bound lies above the formula by the tolerance and by what is allowed between nodes, together
#: less than this part.
SHARP = 2 * kappa_certificate.TOLERANCE
#: Upper bounds with tolerance 5e-4 from an independent branch and bound over boxes of (W, φ),
#: rounded to 4 digits.
SECOND_OPINION = {
    0.001: {2: 0.9940, 5: 0.9908, 10: 0.9905, 20: 0.9904, 100: 0.9902, INF: 0.9902},
    0.003: {2: 0.9838, 5: 0.9757, 10: 0.9747, 20: 0.9743, 100: 0.9740, INF: 0.9740},
    0.01: {2: 0.9562, 5: 0.9356, 10: 0.9322, 20: 0.9308, 100: 0.9298, INF: 0.9295},
    0.03: {2: 0.9041, 5: 0.8620, 10: 0.8523, 20: 0.8482, 100: 0.8452, INF: 0.8444},
    0.1: {
        0.5: 1.1789,
        1: 0.9334,
        2: 0.8138,
        5: 0.7465,
        10: 0.7257,
        20: 0.7158,
        100: 0.7081,
        INF: 0.7062,
    },
    0.3: {2: 0.7264, 5: 0.6514, 10: 0.6264, 20: 0.6139, 100: 0.6039, INF: 0.6014},
    1.0: {
        0.5: 1.0375,
        1: 0.7889,
        2: 0.6658,
        5: 0.5939,
        10: 0.5708,
        20: 0.5595,
        100: 0.5506,
        INF: 0.5484,
    },
    3.0: {2: 0.6443, 5: 0.5749, 10: 0.5532, 20: 0.5430, 100: 0.5351, INF: 0.5332},
    10.0: {
        0.5: 1.0060,
        1: 0.7580,
        2: 0.6368,
        5: 0.5681,
        10: 0.5472,
        20: 0.5375,
        100: 0.5301,
        INF: 0.5283,
    },
}
RIDGES = (0.001, 0.01, 0.03, 0.1, 0.3, 1.0, 10.0)


def sigmoid(x):
    return 1 / (1 + np.exp(-np.clip(x, -700, 700)))


# ---------------------------------------------------------------- the formula, as the theorem
# states it

P = np.cos(np.linspace(0, math.pi, 601))
P = np.union1d(
    P, np.outer([-1, 1], np.geomspace(1e-4, 1, 400))
)  # dense at 0, where s turns if W is large
Q = np.sqrt(1 - P**2)


def formula(length, tilt, rho, s=sigmoid):
    """½·max_p s(p cos φ + q sin φ) + max_p [½s(q sin φ − p cos φ) + s(1 − s)/ρ], for an array of
    tilts.
    """
    at = s(P * length)
    cos = np.cos(tilt)[..., None]
    sin = np.sin(tilt)[..., None]
    first = (at * (P * cos + Q * sin)).max(axis=-1) / 2
    return first + (at * (Q * sin - P * cos) / 2 + at * (1 - at) / rho).max(axis=-1)


def largest_tilt(length, ridge, s=sigmoid):
    """The end of Φ(W)."""
    at = s(P * length)
    along = ridge * length + at * P
    if along.min() > 0:
        return math.atan((at * Q / along).max())
    return math.pi


def searched(ridge, rho, s=sigmoid):
    """The supremum over W and φ on a grid that closes in on the best W: a lower bound of κ."""
    low = 1e-2
    high = 1e3
    best = -INF
    for _ in range(4):
        lengths = np.geomspace(low, high, 40)
        found = [
            formula(W, largest_tilt(W, ridge, s) * np.linspace(0, 1, 81), rho, s).max()
            for W in lengths
        ]
        k = int(np.argmax(found))
        best = max(best, *found)
        low = lengths[max(k - 2, 0)]
        high = lengths[min(k + 2, 39)]
    return best


def test_the_constants_of_the_certificate_are_suprema_rounded_up():
    u = np.linspace(0, 60, 600_001)
    s = sigmoid(-u)
    slope = s * (1 - s)
    bend = s * (1 - s) * (1 - 2 * s)
    bend_c = slope * (1 - 6 * slope)
    for constant, values in [
        (kappa_certificate.SLOPE, slope),
        (kappa_certificate.BEND, bend),
        (kappa_certificate.BEND_C, bend_c),
        (kappa_certificate.U_SLOPE, u * slope),
        (kappa_certificate.U_SLOPE_C, u * bend),
        (kappa_certificate.UU_BEND, u**2 * bend),
        (kappa_certificate.UU_BEND_C, u**2 * bend_c),
    ]:
        assert 0.999 * constant <= np.abs(values).max() <= constant
    assert (np.abs([slope, bend, bend_c]) <= np.exp(-u) * (1 + 1e-12)).all()


lengths = st.floats(-4, 4).map(lambda x: 10.0**x)
positive = st.floats(-3, 3).map(lambda x: 10.0**x)
unit = st.floats(0, 1)


@settings(max_examples=150, deadline=None)
@given(lengths, positive, unit, unit, positive)
def test_the_bound_of_a_cell_is_nowhere_below_the_formula(low, width, where, share, ridge):
    rhos = (0.3, 2.0, 30.0, INF)
    high = low * (1 + width)
    inside = low + where * (high - low)
    end = largest_tilt(inside, ridge)
    bound, value = kappa_certificate.bound_cell(low, high, ridge, rhos)
    rest, _ = kappa_certificate.bound_cell(low, INF, ridge, rhos)
    at = np.array([formula(inside, np.array([share * end, end]), rho).max() for rho in rhos])
    assert (at <= bound).all()
    assert (at <= rest).all()
    there = [formula(low, np.linspace(0, largest_tilt(low, ridge), 9), rho).max() for rho in rhos]
    assert (there <= value + 1e-12).all()


@settings(max_examples=100, deadline=None)
@given(lengths, unit, unit, unit)
def test_single_rows_never_exceed_the_supports(length, where, share, tilt):
    p = 2 * where - 1
    other = 2 * share - 1
    phi = math.pi * tilt
    s = sigmoid(p * length)
    t = sigmoid(other * length)
    first = s * (p * math.cos(phi) + math.sqrt(1 - p * p) * math.sin(phi)) / 2
    second = (
        t * (math.sqrt(1 - other**2) * math.sin(phi) - other * math.cos(phi)) / 2
        + t * (1 - t) / 3.0
    )
    assert first <= kappa_certificate.bound_support(length, phi) / 2
    assert first + second <= kappa_certificate.bound_peak(length, phi, (3.0,))[0]


@settings(max_examples=100, deadline=None)
@given(positive, positive, positive)
def test_the_limit_of_the_tilt_covers_the_cone_and_shrinks_with_length(length, ridge, more):
    limit = kappa_certificate.bound_tilt(length, ridge)
    assert largest_tilt(length, ridge) <= limit
    assert largest_tilt(length * (1 + more), ridge) <= limit
    if limit < math.pi:
        assert limit <= largest_tilt(length, ridge) + 0.03


def test_the_curvature_of_a_gap_covers_it():
    for length in (0.0, 0.01, 1.0, 7.0, 40.0, 3e3):
        at = kappa_certificate.compute_rows(length)
        fine = np.linspace(0, math.pi, 200_001)
        s = sigmoid(length * np.cos(fine))
        for tilt in (0.0, 0.4, 1.5, 2.0, 3.0):
            gap = (s * np.cos(fine - tilt)).max() - (at.s * np.cos(at.angle - tilt)).max()
            assert gap <= at.between_s < 1e-4
        assert (s * (1 - s)).max() - at.c.max() <= at.between_c < 1e-4


# ---------------------------------------------------------------- the table


@pytest.mark.parametrize("ridge", [0.002, 0.05, 0.5, 3.0, 30.0])
def test_rows_of_the_table_are_what_the_certificate_proves(ridge):
    table = kappa.load_table()
    (row,) = kappa_certificate.compute_table(np.array([ridge]), table.rhos)
    assert np.abs(row - table.entries[table.ridges == ridge]).max() <= 1.5 * kappa_certificate.UNIT


@pytest.mark.long
def test_the_whole_table_is_what_the_certificate_proves(capsys):
    assert kappa_certificate.main([]) == 0
    assert "1335 entries proved" in capsys.readouterr().out


def test_the_table_is_written_as_it_is_read():
    table = kappa.load_table()
    again = kappa.KappaTable.of_csv(table.to_csv())
    assert all(np.array_equal(*pair) for pair in zip(table, again, strict=True))
    assert (np.diff(table.ridges) > 0).all()
    assert (np.diff(table.rhos) > 0).all()
    assert table.rhos[-1] == INF


def test_a_table_that_lies_below_the_proof_is_noticed(monkeypatch, capsys):
    table = kappa.load_table()
    few = table._replace(ridges=table.ridges[-2:], entries=table.entries[-2:] - 1e-3)
    monkeypatch.setattr(kappa_certificate, "load_table", lambda: few)
    assert kappa_certificate.main([]) == 1
    assert "0.00100" in capsys.readouterr().out


def test_the_table_falls_in_both_directions_and_is_convex_in_the_inverse_of_rho():
    table = kappa.load_table()
    assert (np.diff(table.entries, axis=0) <= 0).all()
    assert (np.diff(table.entries, axis=1) <= 0).all()
    x = 1 / table.rhos[::-1]
    slopes = np.diff(table.entries[:, ::-1], axis=1) / np.diff(x)
    assert (np.diff(slopes, axis=1) > -0.02).all()  # within the tolerance
    assert (
        table.entries[:, ::-1][:, :-1] > slopes * x[:-1]
    ).all()  # so κρ increases between entries


@pytest.mark.parametrize("ridge", SECOND_OPINION)
def test_the_table_agrees_with_a_second_opinion(ridge):
    for rho, theirs in SECOND_OPINION[ridge].items():
        assert theirs - 1e-3 <= kappa.kappa(ridge, rho) <= theirs + 1e-4


@pytest.mark.parametrize("rho", [0.1, 0.5, 2.0, 10.0, INF])
@pytest.mark.parametrize("ridge", [0.001, 0.05, 1.0])
def test_entries_lie_above_the_formula_and_hardly_so(ridge, rho):
    value = searched(ridge, rho)
    assert (
        value <= kappa.kappa(ridge, rho) <= value + SHARP * max(value, 1) + kappa_certificate.UNIT
    )


# ---------------------------------------------------------------- between the entries


@settings(max_examples=12, deadline=None)
@given(st.floats(-5, 4).map(lambda x: 10.0**x), st.floats(-2, 4).map(lambda x: 10.0**x))
def test_kappa_is_nowhere_below_the_formula(ridge, rho):
    assert searched(ridge, rho) <= kappa.kappa(ridge, rho) <= kappa.bound_linear(rho)


@pytest.mark.parametrize(
    ("ridge", "rho"), [(0.00013, 0.3), (0.0047, 3.7), (0.0333, 1.42), (0.123, 60.0), (7.7, 0.9)]
)
def test_rounding_down_and_interpolation_cost_little(ridge, rho):
    proved = kappa_certificate.upper_bound(ridge, rho)
    assert proved - 2 * SHARP <= kappa.kappa(ridge, rho) <= 1.008 * proved


@settings(max_examples=300, deadline=None)
@given(positive, positive, st.floats(1e-6, 1), positive)
def test_kappa_falls_in_both_and_its_product_with_rho_increases(ridge, rho, more, other):
    less = kappa.kappa(ridge, rho * (1 + more))
    assert less <= kappa.kappa(ridge, rho)
    assert less * (1 + more) >= kappa.kappa(ridge, rho) * (1 - 1e-14)
    assert kappa.kappa(max(ridge, other), rho) <= kappa.kappa(min(ridge, other), rho)


def test_kappa_at_the_edges():
    assert kappa.kappa(1e-9, 5.0) == kappa.bound_linear(5.0) == 1.0
    assert kappa.kappa(1e9, INF) == kappa.kappa(100.0, INF)
    assert kappa.kappa(1e-9, 0.5) == kappa.bound_linear(0.5)
    assert kappa.bound_linear(0.5) == pytest.approx(1.28125, rel=1e-14)
    assert kappa.bound_linear(2 - 1e-9) == pytest.approx(1, abs=1e-12)
    for ridge, rho in [(0, 1), (-1, 1), (math.nan, 1), (1, 0), (1, math.nan)]:
        with pytest.raises(InvalidParameter):
            kappa.kappa(ridge, rho)


# ---------------------------------------------------------------- the charge of a person


def exact_charge(weight, rank, eta, ridge):
    """The maximum over s with fifty digits, by bisection of the derivative of a concave
    function.
    """
    with mpmath.workdps(50):
        W, r, rate, lam = map(mpmath.mpf, (weight, rank, eta, ridge))

        def slope(s):
            return W * rate / 2 + r * (1 - 2 * s) / (r * lam / W + s * (1 - s))

        low = mpmath.mpf(0)
        high = mpmath.mpf(1)
        for _ in range(170 if slope(high) < 0 else 0):
            middle = (low + high) / 2
            if slope(middle) > 0:
                low, high = (middle, high)
            else:
                low, high = (low, middle)
        return W * rate * (1 + high) / 2 + r * mpmath.log1p(W * high * (1 - high) / (r * lam))


wide = st.floats(-12, 3).map(lambda x: 10.0**x)


@settings(max_examples=200, deadline=None)
@given(
    wide,
    st.integers(1, 40),
    st.floats(-4, 6).map(lambda x: 10.0**x),
    st.floats(-6, 3).map(lambda x: 10.0**x),
)
def test_the_charge_is_the_maximum_rounded_up(weight, rank, eta, ridge):
    charge = float(kappa.compute_exact_charges(weight, rank, eta, ridge))
    exact = exact_charge(weight, rank, eta, ridge)
    assert exact <= charge <= exact * (1 + mpmath.mpf("1e-14"))


def test_the_charge_is_that_of_brute_force_for_arrays():
    rng = np.random.default_rng(0)
    s = np.linspace(0, 1, 20_001)[:, None]
    for eta, ridge in [(3.0, 0.1), (1e3, 1e-3), (0.2, 5.0), (50.0, 0.5)]:
        W = 10 ** rng.uniform(-6, 1, 50)
        r = rng.integers(1, 9, 50)
        brute = (W * eta * (1 + s) / 2 + r * np.log1p(W * s * (1 - s) / (r * ridge))).max(axis=0)
        assert kappa.compute_exact_charges(W, r, eta, ridge) == pytest.approx(brute, rel=1e-6)


@settings(max_examples=200, deadline=None)
@given(wide, st.integers(1, 5), positive, positive, st.floats(1e-6, 3))
def test_charges_never_fall_in_weight_rank_or_rate(weight, rank, eta, ridge, more):
    for function in (kappa.compute_exact_charges, kappa.bound_charges):
        charge = function(weight, rank, eta, ridge)
        assert function(weight * (1 + more), rank, eta, ridge) > charge * (1 - 1e-13)
        assert function(weight, rank + 1, eta, ridge) >= charge * (1 - 1e-13)
        assert function(weight, rank, eta * (1 + more), ridge) >= charge * (1 - 1e-13)
    assert kappa.bound_charges(weight, rank, eta, ridge) <= kappa.bound_linear(
        eta * ridge
    ) * weight * eta * (1 + 1e-13)


def test_the_charge_is_weight_times_rate_if_and_only_if_rho_is_at_least_two():
    W = np.array([0.0, 1e-9, 0.3, 2.0])
    r = np.array([1, 1, 2, 3])
    for rho in (2.0, 2.5, 1e3):
        assert kappa.compute_exact_charges(W, r, rho / 0.1, 0.1) == pytest.approx(
            W * rho / 0.1, rel=1e-14
        )
    charge = kappa.compute_exact_charges(W, r, 1.999 / 0.1, 0.1)
    assert charge[0] == 0
    assert (charge[1:] > W[1:] * (1.999 / 0.1) * (1 + 1e-9)).all()


# ---------------------------------------------------------------- attacks: nothing below knows of
# the theorem


def log_density(w, rows, weights, eta, ridge):
    """log of the density of the minimiser at w, up to a constant that neighbours share; leading
    axes are a batch.
    """
    s = sigmoid(-np.einsum("...nd,...d->...n", rows, w))
    b = -ridge * w + np.einsum("...n,...nd->...d", weights * s, rows)
    bend = np.einsum("...n,...nd,...ne->...de", weights * s * (1 - s), rows, rows)
    det = np.linalg.slogdet(bend + ridge * np.eye(w.shape[-1]))[1]
    return det - eta / 2 * np.linalg.norm(b, axis=-1)


CIRCLE = np.stack(
    [f(np.linspace(0, 2 * math.pi, 360, endpoint=False)) for f in (np.cos, np.sin)], axis=-1
)


def quiet_person(state, ridge, rho):
    """The loss over a·η as a → 0 of taking a row z of the plane out, or in (minus that), for all z
    on the circle.

    state = log W, where w = (−W, 0); the angles of two kinds of others, the share of the first
    kind, and the share of both (the rest is silent: z = 0). All others together weigh 1.
    """
    length = np.exp(state[:, 0])
    share = np.clip(state[:, 3], 0, 1)
    total = np.clip(state[:, 4], 0, 1)
    kinds = np.stack([np.cos(state[:, 1:3]), np.sin(state[:, 1:3])], axis=-1)  # (batch, kind, 2)
    weights = np.stack([share, 1 - share], axis=1) * total[:, None]
    s = sigmoid(length[:, None] * kinds[..., 0])
    b = np.einsum("bk,bkd->bd", weights * s, kinds) + ridge * length[:, None] * [1, 0]
    g = b / np.maximum(np.linalg.norm(b, axis=1, keepdims=True), 1e-300)
    bend = np.einsum("bk,bkd,bke->bde", weights * s * (1 - s), kinds, kinds) + ridge * np.eye(2)
    t = sigmoid(length[:, None] * CIRCLE[:, 0])
    curve = (
        t
        * (1 - t)
        * np.einsum("zd,bde,ze->bz", CIRCLE, np.linalg.inv(bend), CIRCLE)
        * (ridge / rho)
    )
    return curve - t * (g @ CIRCLE.T) / 2


def worst_of(losses):
    """z' may be 0 as well, which costs nothing."""
    return losses.max(axis=1) + np.maximum(-losses.min(axis=1), 0)


@lru_cache
def attack(ridge, rho, seed=0):
    """The largest loss over a·η that a search finds, and where: a population that closes in on its
    best.
    """
    rng = np.random.default_rng(seed)
    low = np.array([-2, 0, 0, 0, 0])
    high = np.array([5, 2 * math.pi, 2 * math.pi, 1, 1.5])
    state = rng.uniform(low, high, (4000, 5))
    spread = (high - low) / 4
    for _ in range(30):
        best = state[np.argsort(worst_of(quiet_person(state, ridge, rho)))[-40:]]
        state = np.concatenate(
            [best, (best + spread * rng.normal(size=(20, 40, 5))).reshape(-1, 5)]
        )
        spread = spread * 0.75
    found = worst_of(quiet_person(state, ridge, rho))
    return float(found.max()), state[int(found.argmax())]


@pytest.mark.parametrize("ridge", RIDGES)
def test_the_attack_reaches_kappa_where_rho_is_infinite(ridge):
    found, _ = attack(ridge, INF)
    assert kappa.kappa(ridge, INF) - 1e-3 <= found <= kappa.kappa(ridge, INF)


@pytest.mark.parametrize(
    "rho", [0.3, 2.0, *(pytest.param(rho, marks=pytest.mark.long) for rho in (1.0, 5.0, 20.0))]
)
@pytest.mark.parametrize("ridge", RIDGES)
def test_no_attack_exceeds_kappa(ridge, rho):
    assert 0.9 * kappa.kappa(ridge, rho) <= attack(ridge, rho)[0] <= kappa.kappa(ridge, rho)


class Neighbours:
    """A person's rows before and after, everybody else's, and an output: many at once, all in the
    unit ball.
    """

    def __init__(self, w, own, new, others):
        self.parts = [
            w,
            *(
                z / np.maximum(np.linalg.norm(z, axis=-1, keepdims=True), 1)
                for z in (own, new, others)
            ),
        ]

    def moved(self, rng):
        step = 10 ** rng.uniform(-4, 0, len(self.parts[0]))
        keep = [rng.random(len(step)) < 0.6 for _ in self.parts]
        return Neighbours(
            *(
                part
                + rng.normal(size=part.shape) * (step * move).reshape(-1, *[1] * (part.ndim - 1))
                for part, move in zip(self.parts, keep, strict=True)
            )
        )

    def better(self, other, where):
        return Neighbours(
            *(
                np.where(where.reshape(-1, *[1] * (a.ndim - 1)), b, a)
                for a, b in zip(self.parts, other.parts, strict=True)
            )
        )

    def losses(self, weights, eta, ridge):
        w, own, new, others = self.parts
        rows = [np.concatenate([mine, others], axis=1) for mine in (own, new)]
        return log_density(w, rows[0], weights, eta, ridge) - log_density(
            w, rows[1], weights, eta, ridge
        )


def planar(ridge, rho, d, mine, others, size, rng):
    """The worst pair of a quiet person, in d dimensions and for several equal rows, and random
    ones.
    """
    _, state = attack(ridge, rho)
    losses = quiet_person(state[None], ridge, rho)[0]
    kinds = np.stack([np.cos(state[1:3]), np.sin(state[1:3])], axis=-1) * min(state[4], 1)
    w, own, new, rest = (
        rng.normal(size=(size, *shape)) for shape in ((d,), (mine, d), (mine, d), (others, d))
    )
    half = size // 2
    for part, value in [
        (own, CIRCLE[losses.argmax()]),
        (new, CIRCLE[losses.argmin()]),
        (rest, kinds[:others]),
    ]:
        part[:half] = 0
        part[:half, : len(np.atleast_2d(value)) if part is rest else None, :2] = value
    w[:half] = 0
    w[:half, 0] = -math.exp(state[0])
    return Neighbours(
        w * np.where(np.arange(size) < half, 1, np.exp(rng.normal(1, 1, size)))[:, None],
        own,
        new,
        rest,
    )


def climb(pairs, weights, eta, ridge, rng, rounds=120):
    """The largest exact loss that many small random steps lead to."""
    losses = pairs.losses(weights, eta, ridge)
    for _ in range(rounds):
        trial = pairs.moved(rng)
        new = trial.losses(weights, eta, ridge)
        pairs = pairs.better(trial, new > losses)
        losses = np.maximum(losses, new)
    return float(losses.max())


def ratios(count, seed=0):
    """Losses over charges in random settings: d 2 or 3, one to three rows a person, weights from
    1e-4 to nearly 1.
    """
    rng = np.random.default_rng(seed)
    for _ in range(count):
        d = int(rng.integers(2, 4))
        mine = int(rng.integers(1, 4))
        ridge = float(rng.choice(RIDGES))
        rho = float(rng.choice([0.3, 1, 3, 30, 300]))
        total = 10 ** rng.uniform(-4, 0)
        _, state = attack(ridge, rho)
        share = float(np.clip(state[3], 0, 1))
        weights = np.concatenate(
            [np.full(mine, total / mine), (1 - total) * np.array([share, 1 - share])]
        )
        pairs = planar(ridge, rho, d, mine, 2, 40, rng)
        loss = climb(pairs, weights, rho / ridge, ridge, rng)
        yield loss / float(kappa.bound_charges(total, min(mine, d), rho / ridge, ridge))


@pytest.mark.parametrize("many", [8, pytest.param(80, marks=pytest.mark.long)])
def test_no_exact_loss_of_finite_weight_exceeds_the_charge(many):
    found = np.array(list(ratios(many)))
    assert (found <= 1).all()
    assert found.max() >= 0.99


def test_flipping_labels_costs_half_and_reaches_it():
    rng = np.random.default_rng(1)
    for ridge, rho, total in [(0.01, 0.05, 0.5), (0.1, 0.5, 0.01), (1.0, 5.0, 0.9)]:
        eta = rho / ridge
        weights = np.array([total / 2, total / 2, 1 - total])
        w = rng.normal(size=(4000, 3)) * 5
        rows = rng.normal(size=(4000, 3, 3))
        rows[:2000, :2] = w[:2000, None]  # rows along w: b moves along itself
        rows /= np.linalg.norm(rows, axis=-1, keepdims=True)
        pairs = Neighbours(w, rows[:, :2], -rows[:, :2], rows[:, 2:])
        found = climb(pairs, weights, eta, ridge, np.random.default_rng(2), rounds=0)
        assert 0.999 * total * eta / 2 <= found <= total * eta / 2 * (1 + 1e-9)


def test_one_coefficient_costs_little_more_than_half_for_any_ridge():
    rng = np.random.default_rng(3)
    for ridge, rho in [(1e-3, 300.0), (0.1, 20.0), (10.0, 2.0)]:
        eta = rho / ridge
        weights = np.array([1e-3, 0.5, 0.499])
        start = Neighbours(
            *(rng.uniform(-1, 1, (200, *shape)) for shape in ((1,), (1, 1), (1, 1), (2, 1)))
        )
        start.parts[0] *= 4
        assert climb(start, weights, eta, ridge, rng, rounds=200) <= 1e-3 * eta * (
            0.5259 + 0.25 / rho
        )


# ---------------------------------------------------------------- planted bugs


def caught(ridges=RIDGES, rhos=(2.0, INF)):
    """Whether some attack exceeds κ, or stays further below it at ρ = ∞ than rounding λ down
    explains.
    """
    pairs = (
        (attack(ridge, rho)[0], kappa.kappa(ridge, rho), rho) for ridge in ridges for rho in rhos
    )
    return any(
        found > bound or (rho == INF and found < 0.99 * bound) for found, bound, rho in pairs
    )


ABOVE = tuple(1.001 * ridge for ridge in RIDGES[1:-1])


def test_nothing_is_caught_where_nothing_is_planted():
    assert not caught()


@pytest.mark.long
def test_nothing_is_caught_above_a_line_of_the_table():
    assert not caught(ABOVE)


def test_a_ridge_rounded_up_is_caught(monkeypatch):
    original = kappa.KappaTable.at

    def rounded_up(self, ridge, rho):
        above = min(int(np.searchsorted(self.ridges, ridge)), len(self.ridges) - 1)
        return original(self, self.ridges[above], rho)

    monkeypatch.setattr(kappa.KappaTable, "at", rounded_up)
    assert caught(ABOVE)


def test_rho_of_twice_the_rate_is_caught(monkeypatch):
    original = kappa.KappaTable.at
    monkeypatch.setattr(
        kappa.KappaTable, "at", lambda self, ridge, rho: original(self, ridge, 2 * rho)
    )
    assert caught()


def test_interpolation_in_rho_where_it_must_be_in_its_inverse_is_caught_by_the_formula(monkeypatch):
    def extrapolated(self, ridge, rho):
        row = self.entries[np.searchsorted(self.ridges, ridge, side="right") - 1]
        return float(np.interp(rho, self.rhos[:-1], row[:-1]))  # below the table: its first entry

    monkeypatch.setattr(kappa.KappaTable, "at", extrapolated)
    assert kappa.kappa(1.0, 0.05) < searched(1.0, 0.05)


@pytest.mark.parametrize("ridge", [0.01, 0.1, 1.0])
def test_a_mirrored_sigmoid_is_caught(ridge, monkeypatch):
    wrong = searched(ridge, INF, s=lambda x: sigmoid(-x))
    monkeypatch.setattr(kappa.KappaTable, "at", lambda self, ridge, rho: wrong)
    assert caught((ridge,), (INF,))


def test_a_sigmoid_mirrored_for_the_new_row_only_is_caught(monkeypatch):
    """p > 0 means misclassified: rows that are right pull with s < ½."""
    length = 5.0
    tilt = 0.0
    at = sigmoid(P * 5.0)
    wrong = (sigmoid(-P * length) * P).max() / 2 + (at * -P / 2).max()
    assert wrong < formula(length, np.array([tilt]), INF)[0]
    monkeypatch.setattr(kappa.KappaTable, "at", lambda self, ridge, rho: wrong)
    assert caught((10.0,), (INF,))


def test_the_largest_weight_instead_of_the_sum_is_caught(monkeypatch):
    original = kappa.bound_charges
    monkeypatch.setattr(
        kappa,
        "bound_charges",
        lambda weight, rank, eta, ridge: original(weight / rank, rank, eta, ridge),
    )
    assert any(ratio > 1 for ratio in ratios(12))


def test_a_determinant_of_rank_one_for_three_rows_is_caught():
    ridge = 0.01
    eta = 1.0
    rows = np.eye(3)[None]
    pairs = Neighbours(np.zeros((1, 3)) + 1e-9, rows, 0 * rows, np.zeros((1, 1, 3)))
    found = climb(
        pairs, np.array([1 / 3, 1 / 3, 1 / 3, 0]), eta, ridge, np.random.default_rng(0), rounds=200
    )
    assert (
        kappa.bound_charges(1.0, 1, eta, ridge) < found <= kappa.bound_charges(1.0, 3, eta, ridge)
    )


def test_the_limit_of_the_cone_forgotten_is_caught(monkeypatch):
    """With every tilt allowed the certificate proves κ = 1, and the attack stays far below."""
    monkeypatch.setattr(kappa_certificate, "bound_tilt", lambda length, ridge: math.pi)
    assert (
        kappa_certificate.bound_cell(20.0, 21.0, 1.0, (INF,))[1][0] > 0.85 > kappa.kappa(1.0, INF)
    )


def test_a_determinant_left_out_is_caught(monkeypatch):
    monkeypatch.setattr(
        kappa.KappaTable, "at", lambda self, ridge, rho: self.entries[self.ridges == ridge][0, -1]
    )
    assert caught()
