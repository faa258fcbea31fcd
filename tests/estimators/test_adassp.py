"""Regression from adaptive noisy sums: exact losses stage by stage, planted bugs, and what the fit
tends to.

A real fit is captured: the whole-number sums of every stage and the map of its rows. The
neighbour's sums are computed under the same maps, as adaptive composition asks; the maps are those
that the fit finds, and those in which a person can move sums most, which some noise leads to.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

import sottovoce as sv
from seams import Seeded, Silent
from sottovoce import units
from sottovoce.accounting import profiles
from sottovoce.accounting.renyi import gaussian_epsilon
from sottovoce.data import regression_kernels
from sottovoce.data.encoding import ColumnReader, Feature, Label, Recoding
from sottovoce.data.engine import GroupLookup
from sottovoce.data.regression_kernels import (
    LENGTH,
    UNIT,
    MarginRows,
    ResidualRows,
    RowFrame,
    StandardRows,
)
from sottovoce.estimators import ridge_adassp
from sottovoce.noise import source

P = 4
BOUNDS = sv.Bounds(features=(-np.ones(P), np.ones(P)), label=(-1, 1))
ONE_ROW = (np.repeat([0.1, 0.5, 2.0], [10, 12, 8]), None)
MANY = (
    np.repeat([0.1, 2.0, 0.5, 0.1, 2.0, 0.5], [1, 1, 4, 6, 9, 3]),
    np.repeat(list("abcdef"), [1, 1, 4, 6, 9, 3]),
)
PEOPLE = {"one row": ONE_ROW, "many rows": MANY}
every_people = pytest.mark.parametrize("people", PEOPLE.values(), ids=PEOPLE.keys())
which_person = pytest.mark.parametrize(
    "which", [np.argmin, np.argmax], ids=["strictest", "loosest"]
)
#: What one owner's rows are before and after: each is the worst case of a stage.
PAIRS = (
    ((1, 1, 1, 1, 1.0), (-1, -1, -1, -1, -1.0)),
    ((1, 1, 1, 1, 1.0), (1, 1, 1, -1, -1.0)),
    ((1, 1, -1, -1, 1.0), (1, 1, -1, -1, -1.0)),
    ((9e9, 9e9, -9e9, 9e9, 9e9), (9e9, 9e9, -9e9, 9e9, -9e9)),
)
#: Maps in which the rows of the pairs are as long as any can be.
FRAME = RowFrame(centre=np.zeros(P), scale=np.ones(P), middle=0.0, radius=2.0)
WORST_MAPS = (
    MarginRows(),
    StandardRows(FRAME, intercept=1.0, label=1.6, clip=0.5),
    ResidualRows(FRAME, intercept=0.8, constant=0.0, slopes=np.zeros(P), clip=0.2),
    ResidualRows(FRAME, intercept=0.8, constant=0.1, slopes=np.zeros(P), clip=0.3),
)


def make_table(people, owner, row):
    """Rows around 0 with labels at 0, but for the owner's."""
    n = len(people[0])
    X = np.zeros((n, P))
    X[::2] = 0.3
    X[1::2] = -0.3
    y = np.zeros(n)
    owners = np.arange(n) if people[1] is None else people[1]
    X[owners == owner] = row[:-1]
    y[owners == owner] = row[-1]
    return X, y


def capture(people, table, maps=None, **options):
    """Fits without noise and returns sums, maps, scales that were asked for, and the model; under
    ``maps`` where they are given.
    """
    sums = []
    used = []

    def spy(original):
        def call(rows, weights, row_map):
            if maps is not None:
                row_map = maps[len(used)]
            used.append(row_map)
            sums.append(original(rows, weights, row_map))
            return sums[-1]

        return call

    seam = Silent()
    model = sv.Ridge(bounds=BOUNDS, method="adassp", **options)
    with pytest.MonkeyPatch.context() as patch, source._seam(seam):
        for name in ("sum_rows", "sum_row_products"):
            patch.setattr(regression_kernels, name, spy(getattr(regression_kernels, name)))
        model.fit(*table, epsilon=people[0], groups=people[1])
    return sums, used, seam.scales, model


def measure_losses(model, one, two, scales):
    """Returns what each stage loses between two lists of sums, in ρ."""
    stages = model.release_.noise["stages"]
    gaps = []
    for stage, a, b in zip(stages, one, two, strict=True):
        shift = stage["shift"]
        moved = [(int(s) >> shift) - (int(t) >> shift) for s, t in zip(a.flat, b.flat, strict=True)]
        gaps.append(np.array(moved, dtype=np.float64).reshape(a.shape))
    margins, products, *rounds = gaps
    m = P + 1
    above = np.triu_indices(P + 2, 1)
    # In the order in which noise is drawn: margins, their squares, products, squares, rounds.
    parts = [margins[:m], margins[m:], products[above], np.diag(products), *rounds]
    losses = [
        float(np.sum((part / scale) ** 2)) / 2 for part, scale in zip(parts, scales, strict=True)
    ]
    return [losses[0] + losses[1], losses[2] + losses[3], *losses[4:]]


def measure_stages(people, owner, maps=None, **options):
    """Returns the most that each stage loses over the pairs, in ρ, and the model."""
    worst = np.zeros(4)
    for old, new in PAIRS:
        table = make_table(people, owner, old)
        one, used, scales, model = capture(people, table, maps, **options)
        two, _, _, _ = capture(people, make_table(people, owner, new), used, **options)
        worst = np.maximum(worst, measure_losses(model, one, two, scales))
    return worst, model


def get_charge(model, people, owner):
    owners = np.arange(len(people[0])) if people[1] is None else people[1]
    place = int(np.flatnonzero(np.unique(owners) == owner)[0])
    return float(units.to_epsilon(model.guarantee_.units[place]))


def find_owner(people, which):
    owners = np.arange(len(people[0])) if people[1] is None else people[1]
    return owners[which(people[0])]


@every_people
@which_person
@pytest.mark.parametrize("options", [{"rho": True}, {"delta": 1e-6}], ids=["rho", "delta"])
def test_no_stage_loses_more_than_its_part_of_the_charge(people, which, options):
    """The stages' worst cases together stay below the charge, and reach nearly all of it."""
    owner = find_owner(people, which)
    worst, model = measure_stages(people, owner, **options)
    charge = get_charge(model, people, owner)
    assert worst.sum() <= charge * (1 + 1e-12)
    worst, _ = measure_stages(people, owner, WORST_MAPS, **options)
    assert 0.98 * charge <= worst.sum() <= charge * (1 + 1e-12)
    grants = people[0][np.unique(np.arange(30) if people[1] is None else people[1], True)[1]]
    if "delta" in options:
        assert np.all(model.guarantee_.epsilon <= grants)
    else:
        assert np.all(model.guarantee_.rho <= grants)


@pytest.mark.parametrize("bug", ["moments for W", "margins left out", "a round left out"])
def test_planted_bugs_in_the_account_are_caught(bug):
    owner = find_owner(ONE_ROW, np.argmax)
    stages = ridge_adassp.list_stages
    losses = ridge_adassp.add_losses

    def scale_for_one_row(slopes):
        made = stages(slopes)
        made[1] = replace(made[1], reach=math.sqrt(0.5))
        return made

    def leave_out(place):
        def add(all_stages, scales, person):
            kept = [i for i in range(len(scales)) if i != place]
            return losses([all_stages[i] for i in kept], [scales[i] for i in kept], person)

        return add

    with pytest.MonkeyPatch.context() as patch:
        if bug == "moments for W":
            patch.setattr(ridge_adassp, "list_stages", scale_for_one_row)
        else:
            place = {"margins left out": 0, "a round left out": 3}[bug]
            patch.setattr(ridge_adassp, "add_losses", leave_out(place))
        worst, model = measure_stages(ONE_ROW, owner, WORST_MAPS, rho=True)
    assert worst.sum() > get_charge(model, ONE_ROW, owner)


def test_noise_has_the_scales_of_the_plan():
    table = make_table(ONE_ROW, 0, PAIRS[0][0])
    _, _, scales, model = capture(ONE_ROW, table, delta=1e-6)
    margins, moments, first, second = (
        stage["integer_scale"] for stage in model.release_.noise["stages"]
    )
    assert [scales[0], scales[2], *scales[4:]] == [margins, moments, first, second]
    assert 0 <= scales[1] - margins / math.sqrt(2) <= 2
    assert 0 <= scales[3] - moments * math.sqrt(2) <= 2


def make_frame(rng, width):
    return RowFrame(
        centre=rng.uniform(-1, 1, width),
        scale=10 ** rng.uniform(-3, 0, width),
        middle=float(rng.uniform(-1, 1)),
        radius=float(10 ** rng.uniform(-3, 3)),
    )


def test_whole_numbers_are_never_too_long():
    """Lengths, in exact integers, over frames and rows at the ends of what they can be."""
    rng = np.random.default_rng(0)
    reached = [0.0, 0.0]
    for width in (0, 1, 5, 40):
        for _ in range(20):
            frame = make_frame(rng, width)
            Z = rng.choice([-0.5, 0.5, 0.0, 0.1234567], (50, width))
            y = rng.choice([-1.0, 1.0, 0.0], 50)
            g, t = frame.radius * rng.uniform(0.1, 2, 2)
            clip = float(10 ** rng.uniform(-3, 0))
            standard = StandardRows(frame, g, t, clip)
            slopes = rng.normal(size=width) * 10 ** rng.uniform(-3, 3)
            residual = ResidualRows(frame, g, 0.1, slopes, clip)
            for place, (row_map, most) in enumerate(((standard, UNIT), (residual, LENGTH))):
                whole = row_map.to_whole_numbers(Z, y)
                assert np.array_equal(whole, np.rint(whole))
                squares = [sum(int(v) ** 2 for v in row) for row in whole]
                assert max(squares) <= most**2
                reached[place] = max(reached[place], max(squares) / most**2)
    assert min(reached) > 0.99


def test_sums_do_not_depend_on_batches():
    rng = np.random.default_rng(6)
    Z = rng.uniform(-0.5, 0.5, (9000, 2))
    columns = {"a": Z[:, 0], "b": Z[:, 1], "y": rng.uniform(-1, 1, 9000)}
    batch = pa.record_batch({**columns, "kind": rng.integers(0, 3, 9000)})
    reader = ColumnReader(Recoding((Feature("a", -0.5, 0.5), Feature("b", -0.5, 0.5))))
    weights = np.array([0, 5000, 2**25])
    frame = make_frame(rng, 2)
    maps = (
        (regression_kernels.MappedSums, MarginRows()),
        (regression_kernels.MappedProducts, StandardRows(frame, 0.5, 0.8, 0.7)),
        (regression_kernels.MappedSums, ResidualRows(frame, 0.5, 0.1, rng.normal(size=2), 0.2)),
    )
    for kernel, row_map in maps:
        fold = kernel(reader, Label("y", -1.0, 1.0), GroupLookup("kind"), weights, row_map)
        pieces = [fold(batch.slice(at, 700)) for at in range(0, 9000, 700)]
        assert (sum(pieces[1:], start=pieces[0]) == fold(batch)).all()
        whole = row_map.to_whole_numbers(Z, columns["y"]).astype(np.int64).astype(object)
        heavy = weights[batch.column("kind").to_numpy()].astype(object)
        if kernel is regression_kernels.MappedProducts:
            expected = whole.T @ (whole * heavy[:, None])
        else:
            expected = heavy @ whole
        assert (fold(batch) == expected).all()


def test_margins_move_by_two_for_every_coordinate():
    """d²(1 + 2s²) ≤ 4 for |α|, |β| ≤ 1, in whole numbers; with less noise on squares it is not."""
    grid = np.arange(-UNIT, UNIT + 1, 64, dtype=np.int64)
    a, b = np.meshgrid(grid, grid)
    values = (UNIT * (a - b)) ** 2
    squares = (a * a - b * b) ** 2
    assert int((values + 2 * squares).max()) == 4 * LENGTH**2
    assert int((values + 3 * squares).max()) > 4 * LENGTH**2
    whole = MarginRows().to_whole_numbers(np.array([[0.5, -0.5]]), np.array([1.0]))
    assert whole.tolist() == [[LENGTH, -LENGTH, LENGTH, LENGTH, LENGTH, LENGTH]]


def make_model(rng, n, noise=0.1):
    X = rng.uniform(-1, 1, (n, P)) ** 3
    y = 0.3 + X @ np.array([0.3, -0.2, 0.1, 0.05]) + noise * rng.uniform(-1, 1, n)
    return X, np.clip(y, -1, 1)


def test_budgets_without_limit_give_least_squares():
    rng = np.random.default_rng(1)
    X, y = make_model(rng, 500)
    y = np.clip(y + 0.4 * X[:, 0] ** 2, -1, 1)  # no linear model is right
    expected = np.linalg.lstsq(np.column_stack([np.ones(500), X]), y, rcond=None)[0]
    with source._seam(Seeded(2)):
        model = sv.Ridge(bounds=BOUNDS, method="adassp", rho=True).fit(X, y, epsilon=1e6)
    assert np.allclose([model.intercept_, *model.coef_], expected, atol=1e-3)


def test_the_plan_chooses_the_method_from_public_numbers():
    few = sv.Ridge(bounds=BOUNDS, delta=1e-6).plan(epsilon=0.01, rows=300)
    many = sv.Ridge(bounds=BOUNDS, delta=1e-6).plan(epsilon=1.0, rows=20_000)
    assert few.parameters["method"] == "objective"
    assert few.guarantee.currency == "pure epsilon"
    assert many.parameters["method"] == "adassp"
    assert many.guarantee.delta == 1e-6
    robust = sv.Ridge(bounds=BOUNDS, delta=1e-6, loss="robust").plan(epsilon=1.0, rows=20_000)
    assert robust.parameters["method"] == "objective"
    in_rho = sv.Ridge(bounds=BOUNDS, rho=True).plan(epsilon=0.1, rows=300)
    assert in_rho.parameters["method"] == "adassp"
    assert in_rho.guarantee.reported_currency == "rho"


def test_without_delta_nothing_changes():
    told = [
        sv.Ridge(bounds=BOUNDS, **options).plan(epsilon=1.0, rows=2000)
        for options in ({}, {"method": "objective"})
    ]
    assert told[0].digest == told[1].digest
    assert "delta" not in told[0].parameters


def test_a_release_can_be_loaded_with_its_intervals():
    rng = np.random.default_rng(3)
    X, y = make_model(rng, 4000)
    model = sv.Ridge(bounds=BOUNDS, delta=1e-6).fit(X, y, epsilon=1.0)
    assert model.release_.parameters["method"] == "adassp"
    again = sv.load(sv.Release.from_json(model.release_.to_json()))
    assert np.array_equal(again.predict(X[:9]), model.predict(X[:9]))
    assert again.interval(0.9) == model.interval(0.9)
    assert again.delta == 1e-6
    assert np.all(model.guarantee_.epsilon <= 1.0)
    rho = units.to_epsilon(model.guarantee_.units)
    assert np.allclose(gaussian_epsilon(rho, 1e-6), model.guarantee_.epsilon)


@pytest.mark.parametrize(
    ("options", "parameter"),
    [
        ({"method": "adassp"}, "delta"),
        ({"method": "adassp", "delta": 1e-6, "rho": True}, "delta"),
        ({"delta": 0.0}, "delta"),
        ({"delta": 2}, "delta"),
        ({"delta": "small"}, "delta"),
        ({"method": "adassp", "delta": 1e-6, "fit_intercept": False}, "fit_intercept"),
        ({"method": "adassp", "delta": 1e-6, "loss": "robust"}, "loss"),
    ],
)
def test_what_cannot_be_promised_is_refused(options, parameter):
    with pytest.raises(sv.errors.InvalidParameter) as refused:
        sv.Ridge(bounds=BOUNDS, **options).plan(epsilon=1.0, rows=100)
    assert refused.value.parameter == parameter


def test_one_total_of_a_person_is_charged_in_rho():
    rng = np.random.default_rng(4)
    X, y = make_model(rng, 300)
    people = [f"p{i}" for i in range(300)]
    account = "zCDP rho, replace"
    question = sv.Ridge(bounds=BOUNDS, method="adassp", rho=True)
    session = sv.Session()
    session.grant(dict.fromkeys(people, 0.02), currency="zCDP rho")
    release = session.release(question, X, y, epsilon=0.015, groups=people, key="first")
    assert release.guarantee["currency"] == "zCDP rho"
    assert 0.005 <= session.balance("p0", account) < 0.0051
    with pytest.raises(sv.errors.BudgetExceeded):
        session.release(question, X, y, epsilon=0.015, groups=people, key="second")
    at_delta = sv.Ridge(bounds=BOUNDS, method="adassp", delta=1e-6)
    again = session.release(at_delta, X, y, epsilon=0.3, groups=people, key="third")
    assert again.guarantee["epsilon"]["most"] <= 0.3
    assert session.balance("p0", account) < 0.005


def test_what_each_person_lost_stays_within_their_promise():
    rng = np.random.default_rng(5)
    X, y = make_model(rng, 400)
    grants = np.repeat([0.2, 1.0], 200)
    X[-1] = 0.0
    y[-1] = 0.0
    people = (grants, None)
    one, maps, scales, model = capture(people, (X, y), delta=1e-6)
    audit = sv.audit.per_instance(model, X, y, 1e-6, epsilon=grants)
    assert np.all(np.asarray(audit.epsilon) <= model.guarantee_.epsilon)
    assert audit.epsilon[-1] < 1e-9  # in the middle of all bounds: nothing is lost
    taken_out = X.copy()
    taken_out[-2] = 0.0
    labels = y.copy()
    labels[-2] = 0.0
    two, _, _, _ = capture(people, (taken_out, labels), maps, delta=1e-6)
    losses = measure_losses(model, one, two, scales)
    expected = profiles.gaussian_epsilon(np.sqrt(2 * sum(losses)), 1e-6)
    assert float(audit.epsilon[-2]) == pytest.approx(float(expected), rel=1e-6)


@pytest.mark.parametrize("rows", [2, 300])
@pytest.mark.parametrize("grant", [1e-3, 1.0, 1e5])
def test_tables_with_nothing_to_learn_get_an_answer(rows, grant):
    """No feature that varies, few rows, tiny and huge budgets: nobody pays for a failure."""
    still = sv.Bounds(features=([1.0], [1.0]), label=(0, 1))
    for bounds, options in (
        (still, {"delta": 1e-6}),
        (still, {"rho": True}),
        (None, {"rho": True}),
    ):
        width = 1 if bounds is still else P
        model = sv.Ridge(bounds=bounds or BOUNDS, method="adassp", **options)
        model.fit(np.ones((rows, width)), np.full(rows, 0.4), epsilon=grant)
        assert np.all(np.isfinite([model.intercept_, *model.coef_]))
        assert len(model.interval()) == width + 1


def test_intervals_cover_and_the_plan_tells_the_error():
    """Sixty fits. With intervals that cover .95, more than 20 misses have a probability below
    1e-10; with ones that are eight times too narrow, at most 20 have one below 1e-9. The planned
    error is right within the factor of three that is promised.
    """
    rng = np.random.default_rng()
    misses = 0
    narrow = 0
    squares = []
    for _ in range(60):
        X = rng.uniform(-1, 1, (1500, P))
        signal = 0.1 + X @ np.array([0.2, -0.1, 0.05, 0.0])
        y = np.clip(signal + 0.3 * rng.uniform(-1, 1, 1500), -1, 1)
        with source._seam(Seeded(int(rng.integers(2**32)))):
            model = sv.Ridge(bounds=BOUNDS, method="adassp", delta=1e-6).fit(X, y, epsilon=1.0)
        low, high = model.interval(0.95)["x0"]
        misses += not low <= 0.2 <= high
        narrow += abs(0.2 - (low + high) / 2) > (high - low) / 16
        squares.append(np.mean((model.predict(X) - signal) ** 2))
    assert misses <= 20 < narrow
    planned = sv.Ridge(bounds=BOUNDS, method="adassp", delta=1e-6).plan(epsilon=1.0, rows=1500)
    assert 1 / 3 < math.sqrt(np.mean(squares)) / planned.expected_error < 3
