"""One digest a step: Newton's sums, residuals, sums of squares and clipped gradients are the same
whole numbers in any order, batches, threads and partitions of the rows; and they are the right
numbers, to the unit promised.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import pairwise

import mpmath
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sottovoce as sv
from seams import seeded
from sottovoce.data import engine, loss_kernels, regression_kernels, row_sample
from sottovoce.data.encoding import (
    MATRIX_COLUMN,
    ClassLabel,
    EncodedReader,
    Label,
    RawReader,
    Recoding,
    UnitBall,
    UnitBallReader,
    encode_numbers,
    round_to_grid,
)
from sottovoce.data.engine import GroupLookup
from sottovoce.data.engines import arrow
from sottovoce.data.feature_ball import BallTerms, FeatureBall
from sottovoce.data.loss_kernels import (
    ClassicHuber,
    HuberTerms,
    InterceptTerms,
    LogisticTerms,
    ResidualHistogram,
    SoftHuber,
    cut_long,
)
from sottovoce.errors import InvalidParameter, ReleaseFailed
from sottovoce.estimators import erm as erm_module
from sottovoce.estimators.erm_mechanism import PERSON, Descent, People
from sottovoce.estimators.posterior_mechanism import Gram
from sottovoce.noise.source import Grid
from sottovoce.schema import Classes
from sottovoce.solvers import losses, newton

N = 2000
P = 5
KINDS = 40
RECODING = Recoding.of_bounds(sv.Bounds(features=(-0.5, 0.5)), None, P)
BALL = UnitBall(np.zeros(P), np.full(P, 0.5), 1.2, 0.4, bits=23)
LOUDNESS = np.random.default_rng(1).exponential(size=KINDS) ** 3  # very unequal
LOUDNESS[7] = 0.0  # somebody is left out
TAU = 0.3
LABEL = Label("value", -1, 1)
CLASS = ClassLabel("class", Classes.from_declaration((0, 1), None), coded=True)
OWNER = GroupLookup("kind")
theta = np.random.default_rng(2).normal(size=P + 1)
EXACT = np.array([Fraction(t) + Fraction(1, 2**90) for t in theta], dtype=object)


def regression(point=theta, **options):
    soft = SoftHuber(TAU, 0.2)
    common = {
        "reader": EncodedReader(RECODING),
        "label": LABEL,
        "owner": OWNER,
        "row_weights": LOUDNESS,
    }
    return HuberTerms(**common, loss=soft, theta=point, **options)


def classifier(point=theta, **options):
    common = {
        "reader": UnitBallReader(BALL, RECODING),
        "label": CLASS,
        "owner": OWNER,
        "row_weights": LOUDNESS,
    }
    return LogisticTerms(**common, positive=1, theta=point, **options)


def table(features: str) -> pa.Table:
    """Rows of people with one to a hundred each; features as a regression or as a classifier reads
    them.
    """
    rng = np.random.default_rng(3)
    Z = rng.uniform(-0.5, 0.5, (N, P))
    if features == "ball":
        rows = BALL.rows(Z)
    else:
        rows = Z
    person = np.unique(np.minimum(rng.geometric(0.01, N), 300), return_inverse=True)[1]
    return pa.table(
        {
            "value": rng.normal(0, 0.5, N),
            "class": rng.integers(0, 2, N).astype(float),
            PERSON: person,
            "kind": rng.integers(0, KINDS, N).astype(np.uint8),
            MATRIX_COLUMN: pa.FixedSizeListArray.from_arrays(pa.array(rows.ravel()), rows.shape[1]),
        }
    )


BOX = table("box")
UNIT = table("ball")
COUNTS = np.bincount(BOX[PERSON].to_numpy())
WEIGHT = np.floor(2.0**40 * np.random.default_rng(4).uniform(0.1, 1, len(COUNTS)))
RISK = Descent(
    losses.LOSSES["logistic"], 0.3, 1, 1.0, 1.0, False, True, erm_module.FULL_RATE, 1.0, 1
)


def clipped_sum(over, people: bool, chosen=None) -> list[int]:
    rows = engine.Dataset(over, "value", OWNER, EncodedReader(RECODING), LABEL)
    if people:
        return RISK.exact_sum(People(rows, WEIGHT, WEIGHT, COUNTS), theta, chosen).tolist()
    kinds = np.floor(2.0**36 * LOUDNESS / LOUDNESS.max())
    return RISK.exact_sum(
        People(rows, kinds, kinds, np.ones(KINDS, dtype=np.int64)), theta
    ).tolist()


def residuals():
    weights = np.random.default_rng(5).integers(0, 2**42, KINDS)
    return ResidualHistogram(
        EncodedReader(RECODING), LABEL, OWNER, weights, Grid.cover(-2, 2, 12), theta
    )


def intercept(point=theta, **options):
    return InterceptTerms(**regression(point, **options).__dict__)


def in_ball(point=None, **options):
    plain = regression() if point is None else regression(point, **options)
    return BallTerms(**plain.__dict__, ball=FEATURE_BALL)


FEATURE_BALL = FeatureBall(np.arange(P), np.linspace(-0.2, 0.3, P), 0.4)
SOME = np.random.default_rng(6).random(len(COUNTS)) < 0.3
STEPS = {
    "regression, Newton": (BOX, lambda over: over.fold(regression()).tolist()),
    "regression, certificate": (
        BOX,
        lambda over: over.fold(regression(EXACT, extended=True)).tolist(),
    ),
    "regression, first steps": (
        BOX,
        lambda over: over.fold(replace(regression(), coarse=True)).tolist(),
    ),
    "regression in a ball": (BOX, lambda over: over.fold(in_ball()).tolist()),
    "regression in a ball, kept": (
        BOX,
        lambda over: in_ball().keep(over).fold(in_ball().adapt()).tolist(),
    ),
    "regression in a ball, kept, certificate": (
        BOX,
        lambda over: in_ball().keep(over).fold(in_ball(EXACT, extended=True).adapt()).tolist(),
    ),
    "intercept, kept": (
        BOX,
        lambda over: intercept().keep(over).fold(intercept().adapt()).tolist(),
    ),
    "intercept, kept, certificate": (
        BOX,
        lambda over: intercept().keep(over).fold(intercept(EXACT, extended=True).adapt()).tolist(),
    ),
    "classifier, Newton": (UNIT, lambda over: over.fold(classifier()).tolist()),
    "classifier, certificate": (
        UNIT,
        lambda over: over.fold(classifier(EXACT, extended=True)).tolist(),
    ),
    "residuals": (BOX, lambda over: over.fold(residuals()).tolist()),
    "posterior": (UNIT, lambda over: over.fold(posterior()).tolist()),
    "descent over rows": (BOX, lambda over: clipped_sum(over, people=False)),
    "descent over people": (BOX, lambda over: clipped_sum(over, people=True)),
    "descent over some people": (BOX, lambda over: clipped_sum(over, people=True, chosen=SOME)),
}


def posterior():
    return Gram(UnitBallReader(BALL, RECODING), LABEL, OWNER, LOUDNESS, (0.0, 1.0))


def digest(numbers) -> str:
    assert all(number == int(number) for number in np.ravel(numbers))
    return hashlib.sha256(repr(numbers).encode()).hexdigest()


def partitioned(rows: pa.Table, rng: np.random.Generator) -> pa.Table:
    shuffled = rows.take(pa.array(rng.permutation(len(rows)))).combine_chunks()
    edges = [0, *np.sort(rng.integers(0, len(rows) + 1, rng.integers(0, 30))).tolist(), len(rows)]
    return pa.concat_tables([shuffled.slice(a, b - a) for a, b in pairwise(edges)])


def partitions(rows: pa.Table, monkeypatch, count: int = 50):
    """Yields engines over the same rows in random orders and partitions, with batches and threads
    of any number.
    """
    rng = np.random.default_rng(7)
    for _ in range(count):
        monkeypatch.setattr(
            engine, "MAX_BATCH_ROWS", int(rng.integers(1, 200)) if rng.random() < 0.2 else 2**16
        )
        threads = min(int(rng.integers(1, 9)), 4)
        monkeypatch.setattr(engine, "count_threads", lambda threads=threads: threads)
        yield arrow.ArrowEngine(partitioned(rows, rng))


@pytest.mark.parametrize("step", STEPS)
def test_fifty_partitions_have_one_digest(step, monkeypatch):
    rows, summed = STEPS[step]
    whole = digest(summed(arrow.ArrowEngine(rows)))
    assert {digest(summed(over)) for over in partitions(rows, monkeypatch)} == {whole}


@pytest.mark.parametrize(
    "step", ["regression, Newton", "classifier, certificate", "residuals", "posterior"]
)
def test_rows_one_by_one_add_up_to_the_same_integers(step):
    """Python's own integers, a row at a time: nothing is lost where a batch is summed in
    doubles.
    """
    rows, summed = STEPS[step]
    one_by_one = [
        np.array(summed(arrow.ArrowEngine(rows.slice(i, 1))), dtype=object) for i in range(0, N, 10)
    ]
    together = summed(arrow.ArrowEngine(rows.take(pa.array(np.arange(0, N, 10)))))
    assert sum(one_by_one, start=0 * one_by_one[0]).tolist() == together


def test_people_are_summed_as_fractions_would_be():
    kernel = regression_kernels.Gradients(
        reader=EncodedReader(RECODING), label=LABEL, loss=RISK.loss, theta=theta, clip=RISK.clip
    )
    batch = BOX.combine_chunks().to_batches()[0]
    by_row = kernel.of_rows(EncodedReader(RECODING).matrix(batch), LABEL.values(batch))
    person = BOX[PERSON].to_numpy()
    expected = np.zeros(P + 1)
    for who in np.unique(person):
        columns = by_row[person == who].T.tolist()
        mean = np.array([[float(sum(map(Fraction, column)) / len(column)) for column in columns]])
        expected += regression_kernels.clip_gradients(mean, WEIGHT[[who]], RISK.clip)[0]
    found = np.array(clipped_sum(arrow.ArrowEngine(BOX), people=True))
    # A unit of a gradient is at most 2⁻⁴⁷ here, and a person's whole numbers are below 2⁴⁰: one
    # less or more for a few.
    assert np.abs(found - expected).max() <= 4
    assert np.abs(found).max() > 2**30


@dataclass(frozen=True, eq=False)
class Careless:
    """A planted bug: the sums of a step, each batch rounded to doubles."""

    kernel: object

    @property
    def columns(self):
        return self.kernel.columns

    def zero(self):
        return self.kernel.zero().astype(float)

    def __call__(self, batch):
        v, rows, _ = self.kernel.read(batch)
        return np.concatenate(
            [[0.0, 0.0], v @ rows, np.zeros(len(self.zero()) - 2 - rows.shape[1])]
        )


def test_a_kernel_that_adds_in_doubles_is_caught(monkeypatch):
    digests = {
        repr(over.fold(Careless(classifier())).tolist()) for over in partitions(UNIT, monkeypatch)
    }
    assert len(digests) > 10


# --- The right numbers ----------------------------------------------------------------------------


def digits(fraction):
    """A fraction as mpmath has it."""
    return mpmath.mpf(fraction.numerator) / fraction.denominator


def summed(kernel, v, rows, labels):
    return kernel.floats(kernel.sum_piece(v, rows, labels).astype(object))


@pytest.mark.parametrize(
    ("d", "size", "unequal"),
    [(1, 0.1, 0), (2, 3, 3), (31, 30, 0), (31, 1e-6, 6), (70, 300, 3), (5, 1e12, 0), (300, 9, 1)],
)
def test_a_classifiers_sums_are_right(d, size, unequal):
    """Against 60 digits, for wide and narrow tables, very unequal weights, and θ of any size."""
    rng = np.random.default_rng(d)
    ball = UnitBall(np.zeros(d), np.ones(d), 0.3, 0.0, bits=23)
    phi = ball.rows(rng.uniform(-0.5, 0.5, (200, d)))
    y = rng.choice([-1.0, 1.0], 200)
    v = np.exp(unequal * rng.normal(size=200))
    point = np.array(
        [Fraction(t) + Fraction(1, 2**90) for t in size * rng.normal(size=d)], dtype=object
    )
    kernel = LogisticTerms(
        reader=None,
        label=None,
        owner=None,
        row_weights=v,
        positive=1,
        theta=point.astype(float),
    )
    value, gradient, curvature = summed(kernel, v, phi, y)
    extended = summed(replace(kernel, theta=point, extended=True), v, phi, y)[1]
    with mpmath.workdps(60):
        exact = [mpmath.mpf(0)] * d
        where = [digits(t) for t in point]
        loss = mpmath.mpf(0)
        bend = []
        for row, sign, weight in zip(phi.tolist(), y.tolist(), v.tolist(), strict=True):
            margin = sign * mpmath.fsum(a * b for a, b in zip(row, where, strict=True))
            doubt = 1 / (1 + mpmath.exp(margin))
            loss += weight * mpmath.log1p(mpmath.exp(-margin))
            bend.append(float(weight * doubt * (1 - doubt)))
            exact = [e + weight * sign * doubt * x for e, x in zip(exact, row, strict=True)]
        wrong = max(abs(digits(f) - e) for f, e in zip(extended, exact, strict=True))
    reach = 4 + float(np.abs(point).sum())
    total = float(v.sum())
    assert (
        wrong <= newton.bound_rounding(200, d, 1.0) * total / 10
    )  # a tenth of what the certificate takes, and no θ in it
    assert np.abs(gradient - np.array(exact, dtype=float)).max() <= 2.0**-49 * total * reach
    assert abs(value - float(loss)) <= 2.0**-49 * total * reach
    # An entry of a row times the root of its bend, at most √v/2, is wrong by 2⁻²² of the heaviest
    # one's, √v at most.
    slack = 2.0**-21 * np.sqrt(v.max()) * np.sqrt(v).sum() + 200 * 2.0**-43 * v.max()
    assert np.abs(curvature - (phi * np.array(bend)[:, None]).T @ phi).max() <= slack


@pytest.mark.parametrize("size", [0.0, 1e3, 1e6])
@pytest.mark.parametrize("soft", [True, False])
def test_a_regressions_sums_are_right(soft, size):
    """Against 60 digits, for features rounded to whole multiples of 2⁻²⁴; large θ cancel where
    features are alike.
    """
    assert error_of_a_certificate(soft, size) <= 0.1


@pytest.mark.parametrize("soft", [True, False])
def test_a_regressions_sums_are_right_where_the_longest_float_is_a_double(soft, monkeypatch):
    monkeypatch.setattr(np, "longdouble", np.float64)
    monkeypatch.setattr(newton, "LONG_EPS", 2.0**-52)
    assert error_of_a_certificate(soft, size=1e3) <= 0.1


def error_of_a_certificate(soft, size):
    """The error of a certificate's gradient in parts of what it may be; checks the plain sums, too,
    if θ is small.
    """
    rng = np.random.default_rng(9)
    Z = rng.uniform(-0.5, 0.5, (200, P))
    y = rng.uniform(-1, 1, 200)
    v = rng.exponential(size=200) ** 4
    Z[:, 1] = np.clip(Z[:, 0] + rng.normal(0, 0.3 / max(size, 1), 200), -0.5, 0.5)
    point = EXACT + np.array([0, Fraction(size), -Fraction(size), *[0] * (P - 2)], dtype=object)
    if soft:
        loss = SoftHuber(TAU, 0.2)
    else:
        loss = ClassicHuber(TAU)
    kernel = replace(regression(), row_weights=v, loss=loss)
    value, gradient, curvature = summed(kernel, v, Z, y)
    extended = summed(replace(kernel, theta=point, extended=True), v, Z, y)[1]
    rows = np.column_stack([np.full(200, 0.5), np.rint(Z * 2.0**24) * 2.0**-24])
    with mpmath.workdps(60):
        where = [digits(t) for t in point]
        exact = [mpmath.mpf(0)] * (P + 1)
        values = mpmath.mpf(0)
        bends = []
        for row, label, weight in zip(rows.tolist(), y.tolist(), v.tolist(), strict=True):
            residual = label - mpmath.fsum(a * b for a, b in zip(row, where, strict=True))
            rho, psi, bend = huber_by_hand(residual, soft)
            values = values + weight * rho
            bends = [*bends, float(weight * bend)]
            exact = [e + weight * psi * x for e, x in zip(exact, row, strict=True)]
        wrong = max(abs(digits(f) - e) for f, e in zip(extended, exact, strict=True))
    assert (
        sum(b > 0 for b in bends) > 20
    )  # rows that bend are where an error in a residual would be felt
    if size == 0:
        reach = 1 + TAU + float(np.abs(theta).sum()) / 2
        total = float(v.sum())
        assert np.abs(gradient - np.array(exact, dtype=float)).max() <= 2.0**-49 * total * reach
        assert abs(value - float(values)) <= 2.0**-49 * total * reach
        slack = 2.0**-21 * np.sqrt(v.max()) * np.sqrt(v).sum() + 200 * 2.0**-43 * v.max()
        assert np.abs(curvature - (rows * np.array(bends)[:, None]).T @ rows).max() <= slack
    return float(wrong) / (newton.bound_rounding(200, P + 1, TAU) * float(v.sum()))


def test_a_residual_that_is_right_only_to_the_last_place_of_its_coefficients_is_caught(monkeypatch):
    """A planted bug: what is lost grows with θ, and not with the residual."""

    def careless(start, rows, point):
        long = np.sum(point.limbs, axis=1, dtype=np.longdouble)
        return cut_long(start - long[0] / 2 - round_to_grid(rows).astype(np.longdouble) @ long[1:])

    monkeypatch.setattr(loss_kernels, "compute_residual_pairs", careless)
    assert error_of_a_certificate(soft=True, size=1e6) > 1


def test_limbs_of_exact_numbers_add_up_to_them():
    rng = np.random.default_rng(4)
    for size in (0.0, 1e-30, 1.0, 1e3, 1e20):
        numbers = np.array(
            [Fraction(round(size * x * 2**100), 2**100) for x in rng.normal(size=7)], dtype=object
        )
        for bits in (11, 22):
            parts = list(loss_kernels.split_exactly(numbers, bits))
            found = sum((newton.to_fractions(part) for _, part in parts), start=0 * numbers)
            assert found.tolist() == numbers.tolist()
            whole = [part * 2.0 ** (bits * place) for place, part in parts]
            assert all(
                (part == np.rint(part)).all() and np.abs(part).max() <= 2**bits for part in whole
            )


def huber_by_hand(residual, soft: bool):
    a = abs(residual)
    tau = mpmath.mpf(TAU)
    sign = mpmath.sign(residual)
    if not soft:
        if a < tau:
            return (a * a / 2, residual, 1)
        return (tau * (a - tau / 2), sign * tau, 0)
    start = mpmath.mpf(TAU * (1 - 2 * 0.2))
    g = mpmath.mpf(2 * 0.2 * TAU)
    tau = start + g
    if a <= start:
        return a * a / 2, residual, 1
    E = mpmath.exp(-(a - start) / g)
    return start**2 / 2 + tau * (a - start) - g**2 * (1 - E), sign * (tau - g * E), E


def test_the_posteriors_sums_are_right_and_no_row_is_longer():
    found = posterior().decimals(arrow.ArrowEngine(UNIT).fold(posterior())).astype(float)
    batch = UNIT.combine_chunks().to_batches()[0]
    rows = np.column_stack([UnitBallReader(BALL, RECODING).matrix(batch), LABEL.values(batch)])
    exact = (rows * LOUDNESS[UNIT["kind"].to_numpy()][:, None]).T @ rows
    assert found == pytest.approx(exact, abs=N * 2.0**-38 * LOUDNESS.max())
    assert np.all(np.diag(found) <= np.diag(exact) * (1 + 1e-12))


def test_a_row_that_is_no_number_ends_the_release():
    broken = np.full((3, P), np.nan)
    for kernel in (regression(), classifier(theta[:P])):
        with pytest.raises(ReleaseFailed):
            kernel.sum_piece(np.ones(3), broken, np.ones(3))


# --- Whole fits: the same noise, the same bits ----------------------------------------------------

X = np.random.default_rng(10).random((N, 3))
SCORE = X @ [2.0, -1.0, 0.5] - 0.75
Y = SCORE + np.random.default_rng(11).normal(0, 0.2, N)
EPSILON = np.repeat([0.5, 1.0, 2.0, 4.0], N // 4)
OWNERS = np.arange(N) // 4
BOUNDS = sv.Bounds(features=(0, 1), label=(-3, 3))
FITS = {
    "ridge": (sv.Ridge(BOUNDS), Y),
    "logistic": (sv.LogisticRegression(BOUNDS, classes=(0, 1)), (SCORE > 0).astype(int)),
    "ample": (sv.LogisticRegression(BOUNDS, classes=(0, 1)), (SCORE > 0).astype(int)),
    "classes": (sv.LogisticRegression(BOUNDS, classes=(0, 1, 2)), np.digitize(SCORE, [-0.3, 0.3])),
    "posterior": (sv.PosteriorSample(bounds=BOUNDS, delta=1e-6), Y),
    "risk": (sv.ERM("squared", bounds=BOUNDS, delta=1e-6, steps=10), Y),
}


@pytest.mark.parametrize("fit", FITS)
@pytest.mark.parametrize("people", [False, True])
def test_the_order_of_rows_does_not_change_a_bit_of_an_answer(fit, people):
    estimator, y = FITS[fit]
    rng = np.random.default_rng(12)
    times = 50.0 if fit == "ample" else 1.0  # rows lie in a box, and not in the ball
    answers = []
    for order in (np.arange(N), *(rng.permutation(N) for _ in range(4))):
        if people:
            groups = OWNERS[order]
        else:
            groups = None
        with seeded(1):
            found = estimator.fit(X[order], y[order], epsilon=times * EPSILON[order], groups=groups)
        answers.append(np.append(found.coef_, found.intercept_).tolist())
    assert answers[1:] == answers[:1] * 4


def test_a_first_guess_from_some_rows_does_not_depend_on_their_order(monkeypatch):
    monkeypatch.setattr(row_sample, "MANY_ROWS", 256)
    for fit in ("ridge", "logistic", "ample", "classes"):
        test_the_order_of_rows_does_not_change_a_bit_of_an_answer(fit, people=False)
    sampled = arrow.ArrowEngine(UNIT).fold(row_sample.RowSample(classifier(), 1 / 16))
    assert 50 < sum(len(v) for v, _, _ in sampled) < 200  # 125 are expected


@pytest.mark.parametrize("kernel", [regression(), classifier()])
def test_rows_that_are_all_chosen_add_up_to_the_same_integers(kernel, monkeypatch):
    """Nothing is lost on the way of rows, labels and weights into a first guess."""
    monkeypatch.setattr(row_sample, "MANY_ROWS", N)
    monkeypatch.setattr(row_sample, "SAMPLE_RATE", 1.0)
    rows = arrow.ArrowEngine(UNIT if isinstance(kernel, LogisticTerms) else BOX)
    chosen = row_sample.choose_rows(rows, kernel, N)
    assert chosen.rate == 1.0
    again = chosen.engine.fold(chosen.adapt(kernel))
    assert again.tolist() == rows.fold(kernel).tolist()
    for options in ({"extended": True, "theta": EXACT}, {"curved": False}):
        other = replace(kernel, **options)
        assert chosen.engine.fold(chosen.adapt(other)).tolist() == rows.fold(other).tolist()


def test_slopes_alone_are_those_that_come_with_the_curvature():
    for kernel, rows in ((regression(), BOX), (classifier(), UNIT)):
        over = arrow.ArrowEngine(rows)
        alone = replace(kernel, curved=False)
        slopes = alone.floats(over.fold(alone))[1]
        assert slopes.tolist() == kernel.floats(over.fold(kernel))[1].tolist()
    over = arrow.ArrowEngine(BOX)
    value, slope, bend = intercept().floats(over.fold(intercept()))
    whole = regression().floats(over.fold(regression()))
    # Of θ, 50 bits are kept for sums that have all slopes; where slopes stay they are exact.
    unit = 2.0**-49 * float(LOUDNESS[BOX["kind"].to_numpy()].sum()) * np.abs(theta).sum()
    assert value == pytest.approx(whole[0], abs=unit)
    assert slope[0] == pytest.approx(whole[1][0], abs=unit)
    assert bend[0, 0] == pytest.approx(whole[2][0, 0], rel=1e-12)
    assert (len(slope), bend.shape) == (1, (1, 1))


def test_first_steps_round_pulls_alone_and_nothing_else():
    over = arrow.ArrowEngine(BOX)
    whole = regression().floats(over.fold(regression()))
    coarse = replace(regression(), coarse=True)
    found = coarse.floats(over.fold(coarse))
    assert found[2].tolist() == whole[2].tolist()
    assert found[1].tolist() == whole[1].tolist()
    slopes = replace(coarse, curved=False)
    unit = TAU * LOUDNESS.max() * 2.0**-16  # a row's pull is rounded to half of it at most
    apart = slopes.floats(over.fold(slopes))[1] - whole[1]
    assert 0 < np.abs(apart).max() < N * unit


def test_rows_that_are_kept_in_a_ball_add_up_to_the_same_integers():
    """Rows in memory are brought into the ball once, those of files at every look."""
    rows = arrow.ArrowEngine(BOX)
    for options in ({}, {"extended": True}, {"coarse": True}):
        terms = in_ball(EXACT if "extended" in options else theta, **options)
        kept = terms.keep(rows)
        assert kept.fold(terms.adapt()).tolist() == rows.fold(terms).tolist()
    quiet = replace(in_ball(), row_weights=np.where(np.arange(KINDS) == 1, 0.0, LOUDNESS))
    assert quiet.keep(rows).fold(quiet.adapt()).tolist() == rows.fold(quiet).tolist()
    batch = BOX.combine_chunks().to_batches()[0]
    participating = LOUDNESS[BOX["kind"].to_numpy()] > 0
    (again,) = in_ball().keep(rows)._rows.combine_chunks().to_batches()
    everybody = np.ones(participating.sum(), dtype=bool)
    streamed = in_ball().measure(batch, participating)
    for one, other in zip(in_ball().adapt().measure(again, everybody), streamed, strict=True):
        assert one.tolist() == other.tolist()


def test_what_slopes_leave_of_labels_adds_up_to_the_same_integers():
    """Labels in memory lose what slopes tell once, those of files at every look."""
    rows = arrow.ArrowEngine(BOX)
    for options in ({}, {"extended": True}, {"coarse": True}, {"curved": False}):
        terms = intercept(EXACT if "extended" in options else theta, **options)
        kept = terms.keep(rows)
        assert kept.fold(terms.adapt()).tolist() == rows.fold(terms).tolist()
    certificate = intercept(EXACT, extended=True)
    whole = regression(EXACT, extended=True)
    apart = certificate.floats(rows.fold(certificate))[1][0] - whole.floats(rows.fold(whole))[1][0]
    total = float(LOUDNESS[BOX["kind"].to_numpy()].sum())
    assert abs(apart) <= newton.bound_rounding(N, P + 1, TAU) * total


def test_pieces_of_a_batch_are_its_rows():
    gaps = pa.array([1.0, None, 3.0, 4.0, 5.0])
    words = pa.array(list("abcde"))
    matrix = pa.FixedSizeListArray.from_arrays(pa.array(np.arange(20.0)), 4)
    whole = pa.record_batch({"gaps": gaps, "words": words, MATRIX_COLUMN: matrix}).slice(1, 4)
    pieces = list(engine.cut_batch(whole, 3))
    assert [len(piece) for piece in pieces] == [3, 1]
    floats = np.concatenate([engine.as_floats(piece.column("gaps")) for piece in pieces])
    assert np.array_equal(floats, [np.nan, 3.0, 4.0, 5.0], equal_nan=True)
    assert [word for piece in pieces for word in piece.column("words").to_pylist()] == list("bcde")
    rows = np.concatenate([piece.column(MATRIX_COLUMN) for piece in pieces])
    assert rows.tolist() == np.arange(4.0, 20.0).reshape(4, 4).tolist()


def test_features_that_are_recoded_as_they_are_read_are_those_that_were_recoded_before():
    raw = np.random.default_rng(15).uniform(-0.7, 0.7, (500, P))
    raw[4, 1] = 1e308
    (batch,) = arrow.of_columns({MATRIX_COLUMN: raw})._rows.to_batches()
    found = RawReader(RECODING).matrix(batch)
    assert found.tolist() == encode_numbers(raw, RECODING, rounded=False).tolist()


def test_rows_in_four_bytes_are_the_rounded_ones():
    raw = np.random.default_rng(14).uniform(-0.7, 0.7, (500, P))
    raw[3, 2] = np.nan
    raw[4, 1] = np.inf
    kept = encode_numbers(raw, RECODING, rounded=True)
    assert kept.dtype == np.float32
    assert np.array_equal(kept, round_to_grid(RECODING.encode(raw)), equal_nan=True)
    assert BALL.encode(raw, RECODING).dtype == np.float32
    assert np.array_equal(
        BALL.encode(raw, RECODING), BALL.rows(RECODING.encode(raw)), equal_nan=True
    )


# --- Descent over tables that are not in memory ---------------------------------------------------


@pytest.fixture
def files(tmp_path):
    columns = {f"x{j}": X[:, j] for j in range(3)}
    rng = np.random.default_rng(13)
    rows = pa.table(
        {**columns, "y": Y, "who": OWNERS, "name": [f"p{o:04}" for o in OWNERS], "grant": EPSILON}
    )
    for i, part in enumerate(np.array_split(rng.permutation(N), 4)):
        pq.write_table(rows.take(pa.array(part)), tmp_path / f"{i}.parquet", row_group_size=150)
    return str(tmp_path)


@pytest.mark.parametrize("options", [{}, {"sampling": 0.5}], ids=["everybody", "drawn"])
@pytest.mark.parametrize("owner", ["who", "name"])
def test_people_whose_rows_lie_in_several_files(files, owner, options):
    erm = sv.ERM("squared", bounds=sv.Schema.loads(SCHEMA), delta=1e-6, steps=10, **options)
    with seeded(2):
        found = erm.fit(files, "y", epsilon="grant", groups=owner)
    table = {f"x{j}": X[:, j] for j in range(3)}
    with seeded(2):
        plain = erm.fit(pa.table(table), Y, epsilon=EPSILON, groups=OWNERS)
    assert np.array_equal(found.coef_, plain.coef_)
    assert found.guarantee_.unit == "person"


SCHEMA = """
label = "y"
[columns.y]
kind = "number"
low = -3
high = 3
""" + "".join(f'[columns.x{j}]\nkind = "number"\nlow = 0\nhigh = 1\n' for j in range(3))


def test_rows_of_nobody_in_particular_are_read_from_files_but_not_drawn(files):
    erm = sv.ERM("squared", bounds=sv.Schema.loads(SCHEMA), delta=1e-6, steps=10)
    answers = []
    for data in (
        (files, "y", "grant"),
        (pa.table({f"x{j}": X[:, j] for j in range(3)}), Y, EPSILON),
    ):
        with seeded(3):
            fitted = erm.fit(data[0], data[1], epsilon=data[2])
        answers.append(np.append(fitted.coef_, fitted.intercept_).tolist())
    assert answers[0] == answers[1]
    with pytest.raises(InvalidParameter, match="whose they are"):
        erm.set_params(sampling=0.5).fit(files, "y", epsilon="grant")
