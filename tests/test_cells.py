"""Cells of tables: fixed by public words, the same for every row, whatever the data hold."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sottovoce.booking import _encode_parameter
from sottovoce.data import table_kernels
from sottovoce.data.cell_columns import NO_DAY, read_days
from sottovoce.data.cells import MAX_CELLS, Axis, Cells, make_cells
from sottovoce.data.encoding import Label, Recoding
from sottovoce.data.engine import GroupLookup, get_engine, open_engine
from sottovoce.data.source import DataSource, describe_cells
from sottovoce.data.table_kernels import (
    CellProducts,
    CellSums,
    CellWeights,
    check_total,
    make_zero_totals,
    to_digits,
)
from sottovoce.errors import (
    InvalidBounds,
    InvalidInput,
    InvalidParameter,
    InvalidSchema,
    MissingColumn,
    WrongType,
)
from sottovoce.noise.source import Grid
from sottovoce.schema import PERIODS, Column, Schema, decode_bounds, encode_bounds
from sottovoce.web import question_form

SCHEMA = Schema.loads(
    """
    [columns.region]
    kind = "factor"
    levels = ["north", "it's", "other", "missing"]
    [columns.sex]
    kind = "factor"
    levels = ["f", "m", "x"]
    other = "x"
    missing = "x"
    [columns.age]
    kind = "number"
    low = 0
    high = 120
    edges = [0, 18, 65.5, 100]
    [columns.income]
    kind = "number"
    missing = 7
    [columns.visited]
    kind = "date"
    low = 2024-01-15
    high = "2024-12-31"
    [columns.note]
    kind = "text"
    """
)


def codes(cells: Cells, **columns) -> list[int]:
    return cells.codes(pa.record_batch(columns)).tolist()


def test_levels_end_with_other_and_missing():
    cells = make_cells("region", None, SCHEMA)
    assert cells.axes[0].labels == ("north", "it's", "other", "missing", "(other)", "(missing)")
    assert (cells.axes[0].other_cell, cells.axes[0].missing_cell) == (4, 5)
    column = ["north", "it's", "other", "missing", "North", " north", None, ""]
    assert codes(cells, region=column) == [0, 1, 2, 3, 4, 4, 5, 5]


def test_declared_constants_stand_for_unknown_and_missing_levels():
    cells = make_cells("sex", None, SCHEMA)
    assert cells.axes[0].labels == ("f", "m", "x")
    assert codes(cells, sex=["f", "q", None, "", "x"]) == [0, 2, 2, 2, 2]
    narrower = make_cells({"sex": ["f", "m"]}, None, SCHEMA)  # which has no level for them
    assert narrower.axes[0].labels == ("f", "m", "other", "missing")


def test_bins_are_closed_below_and_the_last_one_at_both_ends():
    cells = make_cells("age", None, SCHEMA)
    assert cells.axes[0].labels == ("[0, 18)", "[18, 65.5)", "[65.5, 100]", "missing")
    column = [0.0, 17.9, 18.0, 65.5, 100.0, -5.0, 1e300, np.inf, -np.inf, np.nan, None]
    assert codes(cells, age=column) == [0, 0, 1, 2, 2, 0, 2, 2, 0, 3, 3]
    constant = make_cells("income:0,5,10", None, SCHEMA)
    assert constant.axes[0].labels == ("[0, 5)", "[5, 10]")
    assert codes(constant, income=[1.0, None, np.nan]) == [0, 1, 1]


@pytest.mark.parametrize(
    "column",
    [
        pa.array(["1", "1.0", "1.00", "2", "01", None]),
        pa.array([1.0, 1.0, 1.0, 2.0, 3.5, None]),
        pa.array([1, 1, 1, 2, 7, None], pa.int8()),
        pa.array(["1", "1.0", "1", "2", "x", ""]).dictionary_encode(),
        pa.array(["1", "1.0", "1", "2", "x", ""], pa.large_string()),
    ],
)
def test_levels_that_are_whole_numbers_are_found_however_they_are_stored(column):
    cells = make_cells({"a": ["1", "2"]})
    assert codes(cells, a=column) == [0, 0, 0, 1, 2, 3]


def test_several_columns_and_a_filter_are_numbered_row_by_row():
    cells = make_cells(["sex", "age"], "region != 'north'", SCHEMA)
    assert (cells.shape, cells.size, cells.outside_cell) == ((3, 4), 13, 12)
    assert cells.columns == ("sex", "age", "region")
    assert cells.number_columns == ("age",)
    assert cells.text_columns == ("sex", "region")
    found = codes(
        cells, sex=["f", "m", "x", "f"], age=[1.0, 20.0, None, 1.0], region=["a", "b", "c", "north"]
    )
    assert found == [0, 5, 11, 12]
    assert [cells.labels(cell) for cell in found] == [
        ("f", "[0, 18)"),
        ("m", "[18, 65.5)"),
        ("x", "missing"),
        ("outside",),
    ]
    with pytest.raises(IndexError):
        cells.labels(13)


def test_without_columns_there_is_one_cell_and_one_outside_a_filter():
    assert make_cells(None).size == 1
    assert make_cells([]).labels(0) == ()
    cells = make_cells(None, "age > 3", SCHEMA)
    assert codes(cells, age=[1.0, 4.0, None]) == [1, 0, 1]


@pytest.mark.parametrize(
    "by",
    [
        "region",
        ["region", "age"],
        "age:0,18,65,100",
        "region:north,south",
        "sex:1,2",
        "month",
        "visited:week",
        "visited:day:2024-02-27..2024-03-02",
        {"visited": {"period": "quarter", "from": date(2023, 1, 1), "to": "2024-01-01"}},
        {"age": np.array([0, 50, 100]), "sex": None},
        {'a "quoted"\nname': ['le"vel', "ünï", "missing"]},
    ],
)
@pytest.mark.parametrize("where", [None, "age > 3 or visited >= 2024-02-29"])
def test_cells_are_the_same_after_json(by, where):
    cells = make_cells(by, where, SCHEMA)
    again = Cells.from_dict(json.loads(json.dumps(cells.to_dict())))
    assert again == cells
    assert again.size == len({cells.labels(cell) for cell in range(cells.size)})


@pytest.mark.parametrize(
    ("entry", "value"),
    [
        ("labels", ["a"]),
        ("kind", "stars"),
        ("levels", ["a", "a"]),
        ("levels", []),
        ("other", "nobody"),
    ],
)
def test_what_is_no_axis_is_not_read_from_a_release(entry, value):
    content = make_cells({"a": ["x", "y"]}).axes[0].to_dict()
    with pytest.raises((ValueError, KeyError, TypeError)):
        Axis.from_dict({**content, entry: value})


@pytest.mark.parametrize(
    ("by", "line"),
    [
        ("income", "[columns.income]\nedges = ["),
        ("note", '[columns.note]\nkind = "factor"\nlevels = ['),
        ("my town", '[columns."my town"]\nkind = "factor"\nlevels = ['),
        ("visited", '[columns.visited]\nperiod = "month"'),
        ("seen:month", '[columns.seen]\nkind = "date"\nlow = "2024-01-01"\nhigh = "2024-12-31"'),
    ],
)
def test_a_column_without_public_cells_is_refused_with_the_lines_to_add(by, line):
    with pytest.raises(InvalidParameter) as refusal:
        make_cells(by, None, SCHEMA)
    assert refusal.value.parameter == "by"
    assert line in refusal.value.remedy


def test_of_a_declared_range_only_the_end_that_lacks_is_to_be_added():
    schema = Schema.loads('[columns.seen]\nkind = "date"\nhigh = "2030-12-31"')
    with pytest.raises(InvalidParameter) as refusal:
        make_cells("seen", None, schema)
    assert 'low = "2024-01-01"\nperiod = "month"' in refusal.value.remedy
    assert "high" not in refusal.value.remedy


def test_the_lines_to_add_are_a_schema():
    for by in ("town", "seen:month"):
        with pytest.raises(InvalidParameter) as refusal:
            make_cells(by)
        lines = refusal.value.remedy.partition("\n")[2]
        assert make_cells(by, None, Schema.loads(lines)).size > 1


@pytest.mark.parametrize(
    "by",
    [
        {"age": [18, 0, 65]},
        {"age": [0, 0, 65]},
        {"age": [0]},
        {"age": [0, float("nan"), 3]},
        {"age": [0, float("inf")]},
        {"age": []},
        {"age": "fortnight"},
        {"age": "month"},
        {"region": "month"},
        {"visited": [1, 2]},
        {"visited": {"period": "month", "from": "2025-01-01", "to": "2024-01-01"}},
        {"visited": {"period": "month", "from": "yesterday", "to": "2024-01-01"}},
        {"visited": {"period": "decade"}},
        {"visited": {"month": 3}},
        {"a": ["x", 3]},
        {"a": ["x", "x"]},
        {"a": ["x", ""]},
        {"a": [True, False]},
        {"a": 3},
        {3: ["a"]},
        ["region", "region"],
        ["region", 3],
        "quarter:",
        ":month",
        3,
        object(),
    ],
)
def test_what_is_no_direction_is_refused(by):
    with pytest.raises(InvalidInput) as refusal:
        make_cells(by, None, SCHEMA)
    assert refusal.value.parameter == "by"


def test_a_period_alone_needs_exactly_one_column_of_dates():
    assert make_cells("month", None, SCHEMA).axes[0].column == "visited"
    month = Schema(columns={"month": Column("factor", levels=("may", "june"))})
    assert make_cells("month", None, month).axes[0].kind == "levels"
    two = Schema(columns={n: Column("date", low="2024-01-01", high="2024-02-01") for n in "ab"})
    for schema in (Schema(), two):
        with pytest.raises(InvalidParameter, match="which column"):
            make_cells("month", None, schema)


def test_a_thousand_million_cells_are_refused_before_anything_is_read():
    many = [str(i) for i in range(1000)]
    with pytest.raises(InvalidParameter, match="1,006,012,008 cells"):
        make_cells({"a": many, "b": many, "c": many})
    with pytest.raises(InvalidParameter):
        make_cells({"a": np.linspace(0, 1, MAX_CELLS + 2)})


def by_hand(period: str, day: date) -> str:
    if period == "week":
        return "{}-W{:02d}".format(*day.isocalendar()[:2])
    if period == "quarter":
        return f"{day.year}-Q{(day.month - 1) // 3 + 1}"
    return day.isoformat()[: {"day": 10, "month": 7, "year": 4}[period]]


@pytest.mark.parametrize("period", PERIODS)
def test_periods_of_leap_days_and_ends_of_years(period):
    first = date(2019, 12, 20)
    last = date(2025, 1, 12)
    axis = make_cells({"a": {"period": period, "from": first, "to": last}}).axes[0]
    days = [first + timedelta(days=i) for i in range((last - first).days + 1)]
    found = axis.codes(pa.record_batch({"a": pa.array(days, pa.date32())})).tolist()
    assert [axis.labels[code] for code in found] == [by_hand(period, day) for day in days]
    assert axis.labels == (*dict.fromkeys(by_hand(period, day) for day in days), "missing")
    beyond = pa.array(
        [date(1, 1, 1), first - timedelta(1), last + timedelta(1), date(9999, 12, 31)]
    )
    ends = axis.codes(pa.record_batch({"a": beyond})).tolist()
    assert ends == [0, 0, axis.size - 2, axis.size - 2]


def test_weeks_at_the_end_of_a_year_belong_to_the_iso_year():
    axis = make_cells({"a": {"period": "week", "from": "2020-12-31", "to": "2021-01-04"}}).axes[0]
    assert axis.labels == ("2020-W53", "2021-W01", "missing")


@settings(max_examples=200, deadline=None)
@given(
    st.datetimes(datetime(1, 1, 3), datetime(9999, 12, 29)),
    st.one_of(st.none(), st.integers(-23 * 60 - 59, 23 * 60 + 59)),
    st.sampled_from(["T", " "]),
    st.booleans(),
)
def test_dates_in_text_are_those_of_pythons_calendar(moment, offset, between, short):
    zone = None if offset is None else timezone(timedelta(minutes=offset))
    told = moment.replace(tzinfo=zone)
    text = told.isoformat(between)
    if short and offset is None:
        text = told.date().isoformat()
    if offset is None:
        day = told.date()
    else:
        day = told.astimezone(UTC).date()
    assert read_days(pa.array([text])).tolist() == [(day - date(1970, 1, 1)).days]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "soon",
        "31.01.2024",
        "01/31/2024",
        "2024-1-31",
        "2024-13-01",
        "2023-02-29",
        "2024-02-30",
        "2024-00-10",
        "2024-01-00",
        "0000-01-01",
        "2024-01/31",
        "2024-01-31T25:00",
        "2024-01-31T10:61",
        "2024-01-31T10:00+25:00",
        "2024-01-31x",
        "x2024-01-31",
        "2024-01-31\n",
        "٢٠٢٤-٠١-٣١",
        "99999-01-01",
    ],
)
def test_dates_that_cannot_be_read_are_missing(text):
    assert read_days(pa.array([text, "2024-01-31"])).tolist() == [NO_DAY, 19753]


def test_times_with_a_zone_are_counted_in_utc_also_when_clocks_change():
    zone = ZoneInfo("Europe/Berlin")
    moments = [
        datetime(2024, 3, 31, 0, 30, tzinfo=zone),  # 23:30 of the day before in UTC
        datetime(2024, 3, 31, 3, 30, tzinfo=zone),
        datetime(2024, 10, 27, 2, 30, tzinfo=zone, fold=0),
        datetime(2024, 10, 27, 2, 30, tzinfo=zone, fold=1),
        datetime(2024, 10, 28, 0, 30, tzinfo=zone),
    ]
    wanted = [(m.astimezone(UTC).date() - date(1970, 1, 1)).days for m in moments]
    for unit in ("s", "ms", "us", "ns"):
        column = pa.array(moments, pa.timestamp(unit, "Europe/Berlin"))
        assert read_days(column).tolist() == wanted
    assert read_days(pa.array([m.isoformat() for m in moments])).tolist() == wanted
    bare = pa.array([m.replace(tzinfo=None) for m in moments], pa.timestamp("us"))
    assert read_days(bare).tolist() == [(m.date() - date(1970, 1, 1)).days for m in moments]


def test_days_of_every_type_of_date():
    days = [date(1969, 12, 31), None, date(2024, 2, 29)]
    wanted = [-1, NO_DAY, 19782]
    assert read_days(pa.array(days, pa.date32())).tolist() == wanted
    assert read_days(pa.array(days, pa.date64())).tolist() == wanted
    text = pa.array([None if day is None else day.isoformat() for day in days])
    assert read_days(text.dictionary_encode()).tolist() == wanted
    assert read_days(pa.nulls(2)).tolist() == [NO_DAY] * 2
    with pytest.raises(WrongType):
        read_days(pa.array([20240131]))


# Sums by cell.


def sum_by_hand(cells, table, weights, value, grid):
    rows = table.combine_chunks().to_batches()[0]
    found = {name: [0] * cells.size for name in ("weights", "missing", "sums", "squares")}
    owners = rows.column("kind").to_pylist()
    for cell, kind, number in zip(
        cells.codes(rows).tolist(), owners, rows.column(value).to_pylist(), strict=True
    ):
        weight = int(weights[kind])
        if number is None or np.isnan(number):
            found["missing"][cell] += weight
            continue
        integer = int(grid.integers(np.array([number]))[0])
        found["weights"][cell] += weight
        found["sums"][cell] += weight * integer
        found["squares"][cell] += weight * integer**2
    return found


def make_rows(n=3000, kinds=7):
    rng = np.random.default_rng(5)
    value = np.where(rng.random(n) < 0.05, rng.choice([np.inf, -np.inf, np.nan], n), 0)
    return pa.table(
        {
            "region": pa.array(rng.choice(["north", "it's", "", "q"], n)),
            "age": pa.array(rng.normal(40, 30, n), mask=rng.random(n) < 0.1),
            "value": pa.array(rng.normal(3, 4, n) + value, mask=rng.random(n) < 0.1),
            "kind": rng.integers(0, kinds, n).astype(np.uint8),
        }
    )


@pytest.mark.parametrize("few", [True, False])
@pytest.mark.parametrize("dense", [True, False])
@pytest.mark.parametrize("bits", [16, 32])
def test_sums_are_those_of_pythons_integers_at_the_largest_weights(few, dense, bits, monkeypatch):
    if not few:
        monkeypatch.setattr(table_kernels, "FEW_PAIRS", 0)
    if not dense:
        monkeypatch.setattr(table_kernels, "DENSE_CELLS", 2)
    table = make_rows()
    weights = np.random.default_rng(6).integers(2**42 - 9, 2**42, 7, endpoint=True)
    weights[:3] = (2**42, 0, 1)
    cells = make_cells(["region", "age"], None, SCHEMA)
    grid = Grid.cover(-5.0, 12.7, bits)
    owner = GroupLookup("kind")
    wanted = sum_by_hand(cells, table, weights, "value", grid)
    squares = bits == 16
    found = open_engine(table).fold(CellSums(cells, owner, weights, "value", grid, squares))
    assert found.weights.tolist() == wanted["weights"]
    assert found.missing.tolist() == wanted["missing"]
    assert found.sums.tolist() == wanted["sums"]
    if squares:
        assert found.squares.tolist() == wanted["squares"]
    assert max(wanted["sums"]) > 2**60
    counted = open_engine(table).fold(CellWeights(cells, owner, weights))
    assert counted.tolist() == (found.weights + found.missing).tolist()


def test_a_constant_stands_for_missing_values():
    table = make_rows()
    cells = make_cells("region", None, SCHEMA)
    grid = Grid.cover(-5.0, 12.7, 16)
    weights = np.arange(1, 8)
    kernel = CellSums(cells, GroupLookup("kind"), weights, "value", grid, missing=1.0)
    found = open_engine(table).fold(kernel)
    filled = table.set_column(2, "value", pa.array(table["value"].to_pandas().fillna(1.0)))
    assert found.sums.tolist() == sum_by_hand(cells, filled, weights, "value", grid)["sums"]
    assert not found.missing.any()


def test_sums_do_not_wrap_where_64_bits_end():
    one = make_zero_totals(2, 1)
    one.low[:] = 2**60 - 1
    one.high[:] = 2**40
    total = make_zero_totals(2, 1)
    for _ in range(9):
        total = total + one
    assert total.sums.tolist() == [9 * (2**100 + 2**60 - 1)] * 2
    most = np.array([2**62 - 1, 0])
    some = np.array([2**50, 0])
    high, low = to_digits([(most, 37), (most, 21), (most, 16), (most, 0), (some, 69)])
    wanted = (2**62 - 1) * (2**37 + 2**21 + 2**16 + 1) + 2**119
    assert (int(high[0]) << 60) + int(low[0]) == wanted


@pytest.mark.parametrize("weight", [-1, 2**42 + 1])
def test_weights_beyond_what_is_exact_are_refused(weight):
    with pytest.raises(InvalidParameter, match="weight"):
        CellWeights(make_cells(None), GroupLookup(), np.array([weight]))
    with pytest.raises(InvalidParameter, match="weight"):
        check_total(np.array([2**42]), np.array([2**20 + 1]))
    check_total(np.array([2**42]), np.array([2**20]))


def test_squares_and_products_need_a_coarse_grid():
    grid = Grid.cover(0.0, 1.0, 17)
    with pytest.raises(InvalidParameter, match="grid"):
        CellSums(make_cells(None), GroupLookup(), np.array([1]), "a", grid, True)
    with pytest.raises(InvalidParameter, match="grid"):
        CellProducts(make_cells(None), GroupLookup(), np.array([1]), ("a",), (grid,))


def test_products_are_of_rows_that_have_every_number():
    table = make_rows()
    cells = make_cells("region", None, SCHEMA)
    grids = (Grid.cover(-5.0, 12.7, 16), Grid.cover(0.0, 100.0, 16))
    weights = np.arange(2**41, 2**41 + 7)
    kernel = CellProducts(cells, GroupLookup("kind"), weights, ("value", "age"), grids)
    totals = open_engine(table).fold(kernel)
    sums, products = kernel.to_matrix(totals)
    pairs = table.to_pandas()
    whole = ~(pairs["value"].isna() | pairs["age"].isna())
    cell = cells.codes(table.combine_chunks().to_batches()[0])
    for place in range(cells.size):
        chosen = pairs[whole & (cell == place)]
        z = [
            grid.integers(chosen[name].to_numpy().copy()).astype(np.int64).astype(object)
            for grid, name in zip(grids, ("value", "age"), strict=True)
        ]
        w = weights[chosen["kind"].to_numpy()].astype(object)
        assert sums[place].tolist() == [int((w * column).sum()) for column in z]
        wanted = [[int((w * a * b).sum()) for b in z] for a in z]
        assert products[place].tolist() == wanted


def test_the_same_person_counts_in_every_group_they_have_rows_in():
    table = pa.table({"person": [7, 7, 7, 8], "region": ["north", "it's", "north", "north"]})
    owner = GroupLookup("person", np.array([7, 8]))
    cells = make_cells("region", None, SCHEMA)
    found = open_engine(table).fold(CellWeights(cells, owner, np.array([2, 5])))
    assert found.tolist() == [9, 2, 0, 0, 0, 0]


# Text files, tables and schemas.


def test_text_files_are_told_which_columns_are_numbers(tmp_path):
    (tmp_path / "a.csv").write_text(
        "age,region,visited,value,kind\n"
        '17,north,2024-02-29,1,a\n,"it\'s",soon,,a\n70,,2024-12-31T23:30-02:00,3,a\n'
        "18,NA,2031-01-01,nan,a\n"
    )
    cells = make_cells(["age", "visited:quarter"], "region is not missing", SCHEMA)
    rows = describe_cells(cells, Label("value", 0.0, 4.0))
    assert rows.list_number_columns() == ("value", "age")
    assert describe_cells(cells).list_number_columns() == ("age",)
    for name in ("arrow", "duckdb"):
        source = DataSource(str(tmp_path / "a.csv"), epsilon=1.0, engine=name)
        read = source.read(rows)
        kernel = CellSums(cells, read.owner, np.array([1]), "value", Grid.cover(0.0, 4.0, 2))
        totals = read.engine.fold(kernel)
        counted = read.engine.fold(CellWeights(cells, read.owner, np.array([1])))
        there = {cells.labels(int(cell)): int(counted[cell]) for cell in np.flatnonzero(counted)}
        assert there == {
            ("[0, 18)", "2024-Q1"): 1,
            ("missing", "missing"): 1,
            ("outside",): 2,  # the third has an empty region, and NA is a gap in text files
        }
        assert totals.sums.tolist()[-1] == 3
        assert totals.missing.sum() == 2


def test_columns_that_are_missing_or_of_another_kind_are_refused_before_rows_are_read(tmp_path):
    table = pa.table({"age": ["1"], "visited": [3], "region": ["north"]})
    for by, where, error in (
        ("age", None, WrongType),
        ("visited:month", None, WrongType),
        ("sex", None, MissingColumn),
        (None, "age > 3", WrongType),
        (None, "sex == 'f'", MissingColumn),
    ):
        rows = describe_cells(make_cells(by, where, SCHEMA))
        with pytest.raises(error) as refusal:
            DataSource(get_engine("arrow").of_table(table), epsilon=1.0).read(rows)
        assert refusal.value.parameter == ("by" if where is None else "where")


def test_schemas_of_before_keep_their_fingerprints():
    """The entries that came later are no part of what a request is remembered by, unless given."""
    before = {"kind": "number", "low": 0, "high": 9, "levels": (), "missing": None}
    assert _encode_parameter(Column("number", 0, 9)) == before
    assert _encode_parameter(Column("number", 0, 9, edges=(0, 9)))["edges"] == (0.0, 9.0)
    assert "period" in _encode_parameter(Column("date", period="day"))


def test_descriptions_are_the_same_after_a_release():
    again = decode_bounds(json.loads(json.dumps(encode_bounds(SCHEMA, SCHEMA.columns))))
    assert again.columns == SCHEMA.columns


def test_a_drafted_schema_leaves_dates_blank():
    text = Schema.draft([("visited", "date"), ("age", "number")])
    assert all(
        line.startswith("#") for line in text.splitlines() if " =" in line and "kind" not in line
    )
    assert Schema.loads(text).columns["visited"] == Column("date")


@pytest.mark.parametrize(
    "entry",
    [
        'kind = "date"\nlow = "2024-13-01"',
        'kind = "date"\nlow = "2024-02-01"\nhigh = "2024-01-01"',
        'kind = "date"\nlow = 3',
        'kind = "date"\nperiod = "decade"',
        'kind = "date"\nmissing = "2024-01-01"',
        'kind = "date"\nedges = [1, 2]',
        'kind = "number"\nedges = [2, 1]',
        'kind = "number"\nedges = ["a", "b"]',
        'kind = "number"\nedges = 3',
        'kind = "number"\nlow = "1"',
        'kind = "number"\nother = "x"',
        'kind = "number"\nperiod = "day"',
        'kind = "factor"\nlevels = ["a"]\nother = "b"',
        'kind = "factor"\nlevels = ["a"]\nmissing = "b"',
        'kind = "factor"\nlevels = ["a"]\nperiod = "day"',
    ],
)
def test_descriptions_that_cannot_be_are_refused(entry):
    with pytest.raises((InvalidSchema, InvalidBounds)) as refusal:
        Schema.loads(f"[columns.a]\n{entry}\n")
    assert refusal.value.parameter == "schema.columns"


@pytest.mark.parametrize(
    ("entry", "kind"),
    [
        ('levels = ["a", "b"]', "factor"),
        ("low = 0\nhigh = 9\nedges = [0, 3, 9]", "number"),
        ('low = "2024-01-01"\nhigh = "2024-12-31"', "date"),
        ('low = "2024-01-01"\nhigh = "2024-12-31"\nperiod = "month"', "date"),
    ],
)
def test_a_kind_that_follows_may_be_left_out(entry, kind):
    read = Schema.loads(f"[columns.a]\n{entry}\n")
    assert read == Schema.loads(f'[columns.a]\nkind = "{kind}"\n{entry}\n')


@pytest.mark.parametrize("entry", ["low = 0", 'unit = "EUR"', ""])
def test_a_kind_that_does_not_follow_is_asked_for(entry):
    with pytest.raises(InvalidSchema, match="has a kind"):
        Schema.loads(f"[columns.a]\n{entry}\n")


def test_models_leave_dates_out():
    assert [
        feature.name
        for feature in Recoding.of_schema(
            Schema(columns={"a": Column("number", 0, 1), "b": SCHEMA.columns["visited"]})
        ).features
    ] == ["a"]


def test_the_form_of_the_page_describes_dates_edges_and_constants():
    typed = {
        "kind-0": "date",
        "first-0": "2024-01-01",
        "last-0": "2024-12-31",
        "period-0": "month",
        "kind-1": "factor",
        "levels-1": "a, b",
        "other-1": "b",
        "absent-1": "a",
        "kind-2": "number",
        "low-2": "0",
        "high-2": "9",
        "edges-2": "0 3 9",
    }
    columns = {"when": "text", "what": "text", "how much": "number"}
    described = question_form.read_schema(question_form.Fields(typed), columns)
    assert Schema.loads(question_form.write_toml(described)).columns == described.columns
    assert typed.items() <= question_form.fill_schema_form(described, columns).items()
    wrong = question_form.Fields({**typed, "first-0": "2025-01-01", "other-1": "c"})
    assert question_form.read_schema(wrong, columns) is None
    assert "other-1" in wrong.complaints
