"""The census of a table, batch by batch, agrees with Budgets.of on the same rows in memory."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sottovoce.budgets import Budgets
from sottovoce.data import census, engine
from sottovoce.data.census import take_census
from sottovoce.data.engine import get_engine
from sottovoce.data.engines import arrow
from sottovoce.errors import (
    InconsistentBudget,
    InvalidBudget,
    InvalidParameter,
    TooFewRows,
    UnknownPeople,
    WrongType,
)

TIERS = {"careful": 0.1, "normal": 0.5, "open": 1.0}


@pytest.fixture(
    params=[(3, 4, 5), (50, 64, 37), (2**18, 2**20, 2**20)], ids=["tiny", "small", "as it is"]
)
def sizes(request, monkeypatch):
    """How many rows a batch, how many numbers wait, how many are worked on at a time."""
    for (module, name), size in zip(
        ((engine, "MAX_BATCH_ROWS"), (census, "MIN_BUFFER"), (census, "BLOCK")),
        request.param,
        strict=True,
    ):
        monkeypatch.setattr(module, name, size)


def engine_of(**columns):
    return arrow.ArrowEngine(pa.table(columns))


def kinds_of_rows(owner, table: pa.Table):
    return np.concatenate([owner.kinds(batch) for batch in table.to_batches(max_chunksize=7)])


def assert_same(found: Budgets, expected: Budgets) -> None:
    for field in ("epsilon", "rows", "people"):
        assert np.array_equal(getattr(found.kinds, field), getattr(expected.kinds, field)), field
    assert found.unit == expected.unit
    if expected.people is not None:
        assert found.people.tolist() == expected.people.tolist()
        assert np.array_equal(found.codes, expected.codes)
        assert found.codes.dtype == expected.codes.dtype


def random_people(rng, people: int, rows: int, different: bool):
    """Owners in a random order, everybody at least once, and each owner's ε."""
    owner = rng.permutation(np.r_[np.arange(people), rng.integers(0, people, rows - people)])
    if different:
        epsilon = rng.uniform(0.01, 2, people)
    else:
        epsilon = rng.choice(list(TIERS.values()), people)
    return owner, epsilon[owner]


NAMES = {
    "int64": lambda owner: pa.array(owner * 2654435761 - 2**40),
    "int16": lambda owner: pa.array((owner - 100).astype(np.int16)),
    "uint64": lambda owner: pa.array(owner.astype(np.uint64) + 2**62),
    "int dictionary": lambda owner: pa.array(owner * 7).dictionary_encode(),
    "text": lambda owner: pa.array([f"p{i * 37 % 1009}·é" for i in owner]),
    "large text": lambda owner: pa.array([f"p{i * 37 % 1009}" for i in owner], pa.large_string()),
    "text dictionary": lambda owner: pa.array(
        [f"p{i * 37 % 1009}" for i in owner]
    ).dictionary_encode(),
}


@pytest.mark.usefixtures("sizes")
@pytest.mark.parametrize("different", [False, True], ids=["tiers", "different"])
@pytest.mark.parametrize("name", NAMES.values(), ids=NAMES.keys())
def test_people_are_counted_as_in_memory(name, different):
    rng = np.random.default_rng(len(str(name)) + different)
    for people, rows in ((1, 2), (2, 2), (5, 60), (90, 100), (40, 900), (400, 400)):
        owner, epsilon = random_people(rng, people, rows, different)
        table = pa.table({"who": name(owner), "eps": epsilon})
        found, place = take_census(arrow.ArrowEngine(table), budget="eps", person="who")
        expected = Budgets.of(epsilon, groups=table["who"].to_pylist())
        assert_same(found, expected)
        assert np.array_equal(kinds_of_rows(place, table), expected.row_codes())


@pytest.mark.usefixtures("sizes")
@pytest.mark.parametrize("rows", [2, 3, 100, 1000])
@pytest.mark.parametrize("different", [1, 3, 90, 10**6])
def test_rows_are_counted_as_in_memory(rows, different):
    rng = np.random.default_rng(rows + different)
    epsilon = rng.choice(np.round(rng.uniform(0.01, 2, different), 9), rows)
    table = pa.table({"eps": epsilon})
    found, place = take_census(arrow.ArrowEngine(table), budget="eps")
    expected = Budgets.of(epsilon)
    assert_same(found, expected)
    assert np.array_equal(kinds_of_rows(place, table), expected.row_codes())


@pytest.mark.usefixtures("sizes")
@pytest.mark.parametrize("person", [None, "who"])
@pytest.mark.parametrize("encoded", [False, True], ids=["plain", "dictionary"])
def test_tiers_are_read_as_text(person, encoded):
    rng = np.random.default_rng(5)
    owner = rng.integers(0, 60, 300)
    tier = rng.choice(list(TIERS), 60)[owner]
    if encoded:
        column = pa.array(tier).dictionary_encode()
    else:
        column = pa.array(tier)
    table = pa.table({"who": owner, "tier": column})
    found, place = take_census(arrow.ArrowEngine(table), budget="tier", person=person, tiers=TIERS)
    expected = Budgets.tiers(TIERS, tier, groups=None if person is None else owner)
    assert_same(found, expected)
    assert np.array_equal(kinds_of_rows(place, table), expected.row_codes())


@pytest.mark.usefixtures("sizes")
@pytest.mark.parametrize("person", [None, "who"])
def test_one_budget_for_all(person):
    owner = np.random.default_rng(6).integers(0, 60, 300)
    found, place = take_census(engine_of(who=owner), epsilon=0.3, person=person)
    expected = Budgets.of(0.3, groups=None if person is None else owner, rows=300)
    assert_same(found, expected)
    assert np.array_equal(kinds_of_rows(place, pa.table({"who": owner})), expected.row_codes())


@pytest.mark.usefixtures("sizes")
def test_files_are_counted_as_in_memory(tmp_path):
    rng = np.random.default_rng(8)
    owner, epsilon = random_people(rng, 70, 900, different=True)
    table = pa.table({"who": owner, "eps": epsilon})
    pq.write_table(table, tmp_path / "rows.parquet", row_group_size=200)
    found, _ = take_census(
        get_engine("arrow").open_table(str(tmp_path / "rows.parquet")), budget="eps", person="who"
    )
    assert_same(found, Budgets.of(epsilon, groups=owner))


def test_the_table_is_left_as_it_was():
    owner, epsilon = random_people(np.random.default_rng(9), 50, 200, different=True)
    before = owner.copy(), epsilon.copy()
    take_census(
        get_engine("arrow").of_columns({"who": owner, "eps": epsilon}), budget="eps", person="who"
    )
    assert np.array_equal(owner, before[0])
    assert np.array_equal(epsilon, before[1])


@pytest.mark.usefixtures("sizes")
@pytest.mark.parametrize("distance", [1, 2, 40, 299])
@pytest.mark.parametrize(
    "name", [lambda owner: owner, lambda owner: [f"p{i}" for i in owner]], ids=["int", "text"]
)
def test_two_budgets_of_one_person_are_refused_wherever_they_stand(name, distance):
    owner = np.arange(300)
    epsilon = np.full(300, 0.5)
    owner[distance] = 0
    epsilon[distance] = 0.6
    with pytest.raises(InconsistentBudget):
        take_census(engine_of(who=name(owner), eps=epsilon), budget="eps", person="who")
    epsilon[[0, distance]] = 0.6
    take_census(engine_of(who=name(owner), eps=epsilon), budget="eps", person="who")


@pytest.mark.usefixtures("sizes")
@pytest.mark.parametrize(
    "who", [[1, None, 2], ["a", "b", None], pa.array(["a", None, "b"]).dictionary_encode()]
)
def test_a_row_without_owner_is_refused(who):
    with pytest.raises(UnknownPeople):
        take_census(engine_of(who=who, eps=[0.5] * 3), budget="eps", person="who")


@pytest.mark.parametrize("rows", [0, 1])
@pytest.mark.parametrize("kind", [pa.int64(), pa.string()])
@pytest.mark.parametrize("person", [None, "who"])
@pytest.mark.parametrize("price", [{"epsilon": 0.5}, {"budget": "eps"}], ids=["scalar", "column"])
def test_tables_of_no_row_or_one_are_refused(rows, kind, person, price):
    who = pa.array([7] * rows).cast(pa.int64()).cast(kind)
    table = engine_of(who=who, eps=pa.array([0.5] * rows, pa.float64()))
    with pytest.raises(TooFewRows):
        take_census(table, person=person, **price)


@pytest.mark.parametrize("tier", [["open", "unheard of"], ["open", None]])
@pytest.mark.parametrize("person", [None, "who"])
def test_an_unknown_tier_is_refused(tier, person):
    with pytest.raises(UnknownPeople) as refused:
        take_census(engine_of(who=[1, 2], tier=tier), budget="tier", person=person, tiers=TIERS)
    assert "unheard of" not in str(refused.value)


@pytest.mark.parametrize("epsilon", [[0.5, None], [0.5, 0.0], [0.5, -1.0], [0.5, float("inf")]])
@pytest.mark.parametrize("person", [None, "who"])
def test_what_is_no_budget_is_refused(epsilon, person):
    with pytest.raises(InvalidBudget):
        take_census(engine_of(who=[1, 2], eps=epsilon), budget="eps", person=person)


@pytest.mark.parametrize(
    "who",
    [
        pa.array([1.0, 2.0]),
        pa.array([True, False]),
        pa.array([0, 1], pa.timestamp("s")),
        pa.array([1, 2**63], pa.uint64()),
    ],
)
def test_owners_are_whole_numbers_or_text(who):
    with pytest.raises(WrongType):
        take_census(engine_of(who=who, eps=[0.5, 0.5]), budget="eps", person="who")


def test_budgets_are_given_once():
    with pytest.raises(InvalidParameter):
        take_census(engine_of(eps=[0.5, 0.5]), budget="eps", epsilon=0.5)
    with pytest.raises(InvalidParameter):
        take_census(engine_of(eps=[0.5, 0.5]))


@pytest.mark.parametrize("most", [2, 300, 70_000])
def test_run_lengths_of_any_size(monkeypatch, most):
    monkeypatch.setattr(census, "BLOCK", 1000)
    rng = np.random.default_rng(most)
    lengths = rng.integers(1, most, 400 if most < 1000 else 6)
    values = np.sort(rng.choice(10**9, len(lengths), replace=False))
    found, counts = census.count_runs(np.repeat(values, lengths))
    assert np.array_equal(found, values)
    assert np.array_equal(counts, lengths)
