"""What is missing in one form is missing in all, nobody is called nothing, and constants lie
between the bounds.
"""

from __future__ import annotations

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sottovoce as sv
from seams import seeded
from sottovoce import errors
from sottovoce.booking import encode_question

N = 60
X = np.linspace(0, 1, N)[:, None]
Y = np.linspace(0, 1, N)
GAPS = np.arange(N) % 2 == 0
BOUNDS = sv.Bounds(features=(0, 1), label=(0, 1))

REGRESSIONS = {
    "Ridge": lambda **more: sv.Ridge(bounds=BOUNDS, **more),
    "Ridge, statistics": lambda **more: sv.Ridge(bounds=BOUNDS, method="statistics", **more),
    "ERM": lambda **more: sv.ERM("squared", bounds=BOUNDS, delta=1e-6, steps=3, **more),
    "PosteriorSample": lambda **more: sv.PosteriorSample(bounds=BOUNDS, **more),
    "AdaptivePosteriorSample": lambda **more: sv.AdaptivePosteriorSample(bounds=BOUNDS, **more),
}
CLASSIFIER = {"LogisticRegression": lambda **more: sv.LogisticRegression(bounds=BOUNDS, **more)}
LABELS = {
    "LabelPrivateRegression": lambda **more: sv.LabelPrivateRegression(label_bounds=(0, 1), **more)
}
COLUMNS = {
    "Mean": lambda **m: sv.Mean(bounds=(0, 1), **m),
    "Quantile": lambda **m: sv.Quantile(bounds=(0, 1), **m),
}


def masked(values=Y, gaps=GAPS):
    """Values that would show, were the mask not honoured."""
    return np.ma.array(np.where(gaps, 1.0, values), mask=gaps)


GAPPED = {
    "NaN": lambda: np.where(GAPS, np.nan, Y),
    "masked": masked,
    "None": lambda: [None if gap else y for gap, y in zip(GAPS, Y, strict=True)],
    "Float64": lambda: pd.Series(np.where(GAPS, np.nan, Y)).astype("Float64"),
    "polars": lambda: pl.Series(
        [None if gap else float(y) for gap, y in zip(GAPS, Y, strict=True)]
    ),
    "Arrow": lambda: pa.array([None if gap else float(y) for gap, y in zip(GAPS, Y, strict=True)]),
    "objects": lambda: np.array(
        [pd.NA if gap else y for gap, y in zip(GAPS, Y, strict=True)], dtype=object
    ),
}


@pytest.mark.parametrize("form", GAPPED)
@pytest.mark.parametrize("name", COLUMNS)
def test_missing_values_are_missing_in_every_form(name, form):
    with pytest.raises(errors.MissingValues):
        COLUMNS[name]().fit(GAPPED[form](), epsilon=1.0)
    with seeded(3):
        expected = (
            COLUMNS[name](missing=0.25).fit(np.where(GAPS, 0.25, Y), epsilon=1.0).release_.value
        )
    with seeded(3):
        assert (
            COLUMNS[name](missing=0.25).fit(GAPPED[form](), epsilon=1.0).release_.value == expected
        )


def test_masked_values_are_not_used():
    """Half of the values are masked, and all of these are 1: the mean of the others is 0."""
    values = np.ma.array(np.arange(2000) % 2.0, mask=np.arange(2000) % 2 == 1)
    assert sv.Mean(bounds=(0, 1), missing=0.0).fit(values, epsilon=1e3).value_ < 0.01


@pytest.mark.parametrize("dtype", ["boolean", "Int64", "Float64", "UInt8"])
def test_pandas_columns_that_know_gaps(dtype):
    column = pd.Series([1, 0] * 30).astype(dtype)
    assert 0 <= sv.Mean(bounds=(0, 1)).fit(column, epsilon=1.0).value_ <= 1
    column[3] = pd.NA
    with pytest.raises(errors.MissingValues):
        sv.Mean(bounds=(0, 1)).fit(column, epsilon=1.0)
    assert 0 <= sv.Mean(bounds=(0, 1), missing=0.0).fit(column, epsilon=1.0).value_ <= 1
    frame = pd.DataFrame({"x": column})
    with pytest.raises(errors.MissingValues):
        sv.Ridge(bounds=BOUNDS).fit(frame, Y, epsilon=1.0)
    sv.Ridge(bounds=BOUNDS, missing=0.0).fit(frame, Y, epsilon=1.0)
    if dtype == "boolean":
        with pytest.raises(errors.InvalidData):
            sv.LogisticRegression(bounds=BOUNDS).fit(X, column, epsilon=1.0)


@pytest.mark.parametrize("name", REGRESSIONS | CLASSIFIER)
def test_a_masked_feature_is_missing_and_a_constant_may_stand_for_it(name):
    make = (REGRESSIONS | CLASSIFIER)[name]
    if name in CLASSIFIER:
        y = np.arange(N) % 2
    else:
        y = Y
    held = masked(X, GAPS[:, None])
    for gapped in (
        held,
        np.where(GAPS[:, None], np.nan, X),
        pd.DataFrame({"a": np.where(GAPS, np.nan, X[:, 0])}),
    ):
        before = np.array(gapped, copy=True)
        with pytest.raises(errors.MissingValues):
            make().fit(gapped, y, epsilon=1.0)
        with seeded(3):
            expected = make().fit(np.where(GAPS[:, None], 0.25, X), y, epsilon=1.0)
        with seeded(3):
            found = make(missing=0.25).fit(gapped, y, epsilon=1.0)
        assert np.array_equal(found.coef_, expected.coef_)
        assert np.array_equal(
            found.predict(gapped), found.predict(np.where(GAPS[:, None], 0.25, X))
        )
        assert np.array_equal(
            np.asarray(gapped), before, equal_nan=True
        )  # nothing is written into the caller's own


@pytest.mark.parametrize("name", REGRESSIONS | LABELS)
def test_a_constant_may_stand_for_missing_labels(name):
    make = (REGRESSIONS | LABELS)[name]
    for gapped in (masked(), np.where(GAPS, np.nan, Y)):
        with pytest.raises(errors.MissingValues):
            make().fit(X, gapped, epsilon=1.0)
        with seeded(3):
            expected = make().fit(X, np.where(GAPS, 0.25, Y), epsilon=1.0).release_.value
        with seeded(3):
            assert make(missing=0.25).fit(X, gapped, epsilon=1.0).release_.value == expected


def test_a_missing_class_is_refused_although_a_level_is_called_like_it():
    for nothing in (None, np.nan, pd.NA):
        labels = np.array(["None", nothing] * 30, dtype=object)
        with pytest.raises(errors.InvalidData):
            sv.LogisticRegression(bounds=BOUNDS, classes=("None", "nan", "<NA>")).fit(
                X, labels, epsilon=1.0
            )


@pytest.mark.parametrize("name", COLUMNS | REGRESSIONS | CLASSIFIER | LABELS)
@pytest.mark.parametrize("missing", [-0.1, 1.5, np.nan, np.inf, "much", 10**400, [0.5, 0.5]])
def test_a_constant_outside_the_bounds_is_refused(name, missing):
    make = (COLUMNS | REGRESSIONS | CLASSIFIER | LABELS)[name]
    if name in CLASSIFIER:
        y = np.arange(N) % 2
    else:
        y = Y
    with pytest.raises(errors.InvalidParameter):
        make(missing=missing).fit(*((y,) if name in COLUMNS else (X, y)), epsilon=1.0)
    if name not in LABELS:
        with pytest.raises(errors.InvalidParameter):
            make(missing=missing).plan(
                epsilon=1.0, rows=9, **({} if name in COLUMNS else {"n_features": 1})
            )


def test_a_constant_of_a_schema_lies_between_its_bounds():
    text = '[columns.a]\nkind = "number"\nlow = 0\nhigh = 1\nmissing = 2'
    with pytest.raises(errors.InvalidSchema, match="missing"):
        sv.Schema.loads(text)
    with pytest.raises(errors.InvalidSchema, match="missing"):
        sv.Schema(
            {
                "a": sv.Schema.loads(text.replace("2", "1"))
                .columns["a"]
                .__class__("number", 0, 1, missing=-1)
            }
        )


def test_constants_of_a_schema_go_before_the_one_for_all():
    text = 'label = "y"\n[columns.a]\nkind = "number"\nlow = 0\nhigh = 1\nmissing = 0.5\n'
    schema = sv.Schema.loads(text + '[columns.y]\nkind = "number"\nlow = 0\nhigh = 10')
    made = sv.Ridge(bounds=schema, missing=7.0).fit(
        pd.DataFrame({"a": masked()}), np.where(GAPS, np.nan, Y), epsilon=1
    )
    assert made.release_.parameters["features"][0]["missing"] == 0.5


def test_older_books_still_know_requests_without_the_new_parameter():
    for make in (*REGRESSIONS.values(), *CLASSIFIER.values(), *LABELS.values()):
        assert "missing" not in encode_question(make())[1]
        assert encode_question(make(missing=0.5))[1]["missing"] == 0.5
    assert encode_question(sv.Mean(bounds=(0, 1)))[1]["missing"] is None  # which it always had


NOBODY = {
    "None": None,
    "NaN": np.nan,
    "NA": pd.NA,
    "empty": "",
    "half a pair": "a\ud800",
}
nobodies = pytest.mark.parametrize("nobody", NOBODY.values(), ids=NOBODY)


def owners(nobody):
    return np.array([*"ab" * (N // 2 - 1), "c", nobody], dtype=object)


@nobodies
def test_no_row_is_nobodys_in_memory(nobody):
    mean = sv.Mean(bounds=(0, 1))
    for groups in (
        owners(nobody),
        owners(nobody).tolist(),
        pd.Series(owners(nobody), dtype=object),
    ):
        with pytest.raises(errors.UnknownPeople) as refused:
            mean.fit(Y, epsilon=1.0, groups=groups)
        assert refused.value.__context__ is None
        with pytest.raises(errors.UnknownPeople):
            mean.plan(epsilon=1.0, groups=groups)
    with pytest.raises(errors.UnknownPeople):
        mean.fit(Y, epsilon={"a": 1.0, "b": 1.0, nobody: 1.0}, groups=["a", "b"] * (N // 2))
    with pytest.raises(errors.UnknownPeople):
        sv.Budgets.listed(["a", "b", nobody], [1.0, 1.0, 1.0], groups=["a", "b"])
    with pytest.raises(errors.UnknownPeople):
        mean.fit(
            Y, epsilon=1.0, groups=np.ma.array(["a", "b"] * (N // 2), mask=[False, True] * (N // 2))
        )


@pytest.mark.parametrize("nobody", [None, ""])
@pytest.mark.parametrize(
    "engine", ["arrow", "duckdb", "frame", "polars", "Arrow table", "dictionary"]
)
def test_no_row_is_nobodys_in_a_table(nobody, engine, tmp_path):
    rows = pa.table({"who": owners(nobody), "y": Y})
    pq.write_table(rows, tmp_path / "rows.parquet")
    table = {
        "frame": lambda: rows.to_pandas(),
        "polars": lambda: pl.from_arrow(rows),
        "Arrow table": lambda: rows,
        "dictionary": lambda: rows.set_column(0, "who", rows["who"].dictionary_encode()),
    }.get(engine, lambda: str(tmp_path / "rows.parquet"))()
    session = sv.Session(engine=engine if engine in ("arrow", "duckdb") else None)
    session.grant(dict.fromkeys("abc", 1.0))
    with pytest.raises(errors.UnknownPeople):
        session.release(sv.Mean(bounds=(0, 1)), table, "y", groups="who", epsilon=0.5, key="k")
    for epsilon in (
        1.0,
        {"a": 1.0, "b": 1.0, "c": 1.0},
        pa.table({"who": ["a", "b", "c"], "epsilon": [1.0] * 3}),
    ):
        with pytest.raises(errors.UnknownPeople):
            sv.Mean(bounds=(0, 1)).fit(table, column="y", groups="who", epsilon=epsilon)
    full = pa.table({"who": ["a", "b"] * 30, "y": Y})
    budgets = pa.table({"who": pa.array(["a", "b", nobody]), "epsilon": [1.0] * 3})
    with pytest.raises(errors.UnknownPeople):
        sv.Mean(bounds=(0, 1)).fit(full, column="y", groups="who", epsilon=budgets)
    with pytest.raises(errors.UnknownPeople):
        sv.Mean(bounds=(0, 1)).fit(
            full, column="y", groups="who", epsilon={"a": 1.0, "b": 1.0, nobody: 1.0}
        )


@pytest.mark.parametrize("engine", ["arrow", "duckdb"])
def test_names_in_a_file_that_are_not_unicode_are_refused(engine, tmp_path):
    who = pa.Array.from_buffers(pa.string(), 3, pa.array([b"a", b"b", b"\xed\xa0\x80"]).buffers())
    pq.write_table(pa.table({"who": who, "y": [0.0, 0.5, 1.0]}), tmp_path / "rows.parquet")
    session = sv.Session(engine=engine)
    session.grant({"a": 1.0, "b": 1.0})
    with pytest.raises(errors.InvalidData):
        session.release(
            sv.Mean(bounds=(0, 1)),
            str(tmp_path / "rows.parquet"),
            "y",
            groups="who",
            epsilon=0.5,
            key="k",
        )
    assert session.balance("a") == 1.0


def test_budgets_may_be_a_series_by_person():
    grants = pd.Series({"ben": 0.2, "ada": 1.0})
    groups = ["ada", "ben", "ben"] * 20
    y = Y
    expected = sv.Mean(bounds=(0, 1)).plan(epsilon=grants.to_dict(), groups=groups).charges.tolist()
    assert sv.Mean(bounds=(0, 1)).plan(epsilon=grants, groups=groups).charges.tolist() == expected
    made = sv.Mean(bounds=(0, 1)).fit(y, epsilon=grants, groups=groups)
    assert np.all(made.guarantee_.epsilon <= [1.0, 0.2])
    frame = pd.DataFrame({"who": groups, "y": y})
    for table in (frame, pa.table(frame), duckdb.from_df(frame)):
        made = sv.Mean(bounds=(0, 1)).fit(table, column="y", groups="who", epsilon=grants)
        assert np.all(made.guarantee_.epsilon <= [1.0, 0.2])
    session = sv.Session()
    session.grant(grants)
    session.release(sv.Mean(bounds=(0, 1)), y, groups=groups, epsilon=grants / 2, key="half")
    assert (session.balance("ada"), session.balance("ben")) == (0.5, 0.1)


def test_a_series_with_the_index_of_the_owners_is_a_column():
    """A frame that was sorted or filtered keeps its ε with its rows, also where people are numbers
    like rows.
    """
    frame = pd.DataFrame({"who": [2, 0, 1], "eps": [0.3, 0.1, 0.2]}, index=[1, 2, 0])
    for part in (frame, frame.iloc[::-1], frame.iloc[1:]):
        budgets = sv.Budgets.of(part["eps"], groups=part["who"])
        assert dict(zip(budgets.people.tolist(), budgets.epsilon.tolist(), strict=True)) == dict(
            zip(part["who"].tolist(), part["eps"].tolist(), strict=True)
        )


def test_names_and_values_may_be_mixed_where_the_table_is_in_memory():
    frame = pd.DataFrame({"who": ["a", "b"] * 30, "eps": [0.5, 1.0] * 30, "x": X[:, 0], "y": Y})
    bare = frame[["x", "who"]]
    priced = frame[["x", "eps", "y"]]
    for form in (lambda table: table, pl.from_pandas, pa.table):
        for made in (
            sv.Ridge(bounds=BOUNDS).fit(form(bare), frame.y, groups="who", epsilon=0.5),
            sv.Ridge(bounds=BOUNDS).fit(
                form(bare), frame.y.to_numpy(), groups="who", epsilon=frame.eps
            ),
            sv.Ridge(bounds=BOUNDS).fit(form(priced), "y", groups=frame.who, epsilon="eps"),
        ):
            assert made.guarantee_.unit == "person"
            assert made.feature_names_in_.tolist() == ["x"]
    with pytest.raises(errors.InvalidParameter, match="left among the features"):
        sv.Ridge(bounds=BOUNDS).fit(frame[["x", "y", "who"]], frame.y, groups="who", epsilon=0.5)
    for names in ({"groups": "who"}, {"y": "y"}):
        with pytest.raises(errors.InvalidParameter, match="has no names"):
            sv.Ridge(bounds=BOUNDS).fit(X, **{"y": Y, "epsilon": 0.5, **names})


def test_labels_that_are_not_there_are_a_named_error():
    for make in (REGRESSIONS | CLASSIFIER | LABELS).values():
        with pytest.raises(errors.InvalidParameter, match="labels"):
            make().fit(X, None, epsilon=1.0)
        with pytest.raises(errors.InvalidParameter, match="label"):
            make().fit(pd.DataFrame({"x": X[:, 0]}), epsilon=1.0)


def test_a_series_of_budgets_in_another_order_is_not_taken_by_position():
    """Everybody would have been promised somebody else's ε."""
    frame = pd.DataFrame(
        {"y": [0.1, 0.2, 0.3, 0.4], "who": list("abcd"), "eps": [0.1, 1.0, 0.1, 1.0]}
    )
    mean = sv.Mean(bounds=(0, 1))
    by_name = frame.set_index("who")["eps"]
    shuffled = frame["eps"].sort_values()
    for groups in (None, frame["who"]):
        with pytest.raises(sv.errors.InvalidParameter, match="another index"):
            mean.fit(frame["y"], epsilon=shuffled, groups=groups)
    with pytest.raises(sv.errors.InvalidParameter, match="another index"):
        mean.fit(frame["y"], epsilon=by_name)
    assert mean.fit(frame["y"], epsilon=by_name, groups=frame["who"]).guarantee_.unit == "person"
    assert mean.fit(frame["y"], epsilon=frame["eps"]).guarantee_.epsilon.tolist() == [
        0.1,
        1.0,
        0.1,
        1.0,
    ]
    assert mean.fit(frame["y"].to_numpy(), epsilon=by_name).guarantee_.epsilon.tolist() == [
        0.1,
        1.0,
        0.1,
        1.0,
    ]
    assert (
        mean.fit(frame["y"], epsilon=frame["eps"].set_axis(range(7, 11))).guarantee_.unit == "row"
    )


@pytest.mark.parametrize("wrap", [pl.Series, pa.array], ids=["polars", "arrow"])
def test_lists_of_one_number_are_no_numbers(wrap):
    lists = wrap([[1.0]] * 8)
    with pytest.raises(sv.errors.WrongType):
        sv.Mean(bounds=(0, 1)).fit(lists, epsilon=1.0)
    with pytest.raises(sv.errors.WrongType):
        sv.market.Market(lists, cost_range=(0, 2), trade_off=0.1, dimension=2)


@pytest.mark.parametrize("words", [["no", "yes"], ["false", "true"], ["0", "1"], ["F", "T"]])
@pytest.mark.parametrize("form", ["pandas", "Arrow", "Parquet", "DuckDB"])
def test_regressions_find_truths_however_levels_spell_them(words, form, tmp_path):
    many = 2000
    ill = np.arange(many) % 2 == 0
    schema = sv.Schema.of({"ill": words, "cost": (0, 10)}, label="cost")
    table = pa.table({"ill": ill, "cost": np.where(ill, 8.0, 2.0)})
    ridge = sv.Ridge(bounds=schema, method="statistics", alpha=1e-6)
    if form == "pandas":
        frame = table.to_pandas()
        ridge.fit(frame[["ill"]], frame["cost"], epsilon=1000.0)
    elif form == "Arrow":
        ridge.fit(table.select(["ill"]), table["cost"], epsilon=1000.0)
    else:
        path = tmp_path / "rows.parquet"
        pq.write_table(table, path)
        rows = path
        if form == "DuckDB":
            rows = duckdb.connect().read_parquet(str(path))
        ridge.fit(rows, epsilon=1000.0)
    no, yes = (ridge.predict(pd.DataFrame({"ill": [truth]}))[0] for truth in (False, True))
    assert abs(no - 2) < 0.1
    assert abs(yes - 8) < 0.1
