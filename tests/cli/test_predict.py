"""`sottovoce predict`: what the released model says of new rows, and nothing a spreadsheet could
run.
"""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import csv

import sottovoce as sv
from sottovoce.cli.predict import copy_as_text
from sottovoce.data import engine


@pytest.fixture
def new(clinic) -> pa.Table:
    """New people: beyond the bounds, at a level that nobody declared, at none."""
    table = pa.table(
        {
            "cost": ["?"] * 6,  # not needed
            "visits": [0.0, 30.0, 99.0, 3.0, 4.0, 5.0],
            "name": ["ada", "=1+1", "-5", "@x", 'b"en, jr', None],
            "age": [18.0, 90.0, 1.0, 40.0, 50.0, 60.0],
            "smoker": ["no", "yes", "sometimes", None, "yes", "no"],
        }
    )
    csv.write_csv(table, clinic / "new.csv")
    pq.write_table(table, clinic / "new.parquet")
    return table


def expected(model: Path, new: pa.Table) -> np.ndarray:
    return sv.Ridge.from_release(sv.Release.load(model)).predict(new)


@pytest.mark.parametrize("table", ["new.csv", "new.parquet"])
def test_predictions_are_those_of_the_estimator_to_the_last_digit(run, clinic, model, new, table):
    out = clinic / "predictions.csv"
    made = run("predict", model, clinic / table, "--out", out)
    assert (made.exit_code, made.stdout) == (0, "")
    assert "6 rows predicted" in made.stderr
    told = csv.read_csv(out)
    assert told.column_names == ["prediction"]
    assert np.array_equal(told["prediction"].to_numpy(), expected(model, new))


def test_a_model_fitted_in_memory_predicts_the_same_from_its_file(run, clinic, visits):
    bounds = sv.Bounds(features=([18, 0], [90, 30]), label=(0, 20_000))
    X = visits.select(["age", "visits"]).to_pandas()
    est = sv.Ridge(bounds=bounds).fit(X, visits["cost"].to_numpy(), epsilon=1.0)
    (clinic / "m.json").write_text(est.release_.to_json())
    made = run("predict", clinic / "m.json", clinic / "visits.parquet")
    assert np.array_equal(
        csv.read_csv(io.BytesIO(made.stdout.encode()))["prediction"].to_numpy(), est.predict(X)
    )


@pytest.mark.parametrize("table", ["new.csv", "new.parquet"])
def test_names_are_copied_in_order_and_formulas_made_harmless(run, clinic, model, new, table):
    made = run("predict", model, clinic / table, "--id-column", "name")
    told = csv.read_csv(
        io.BytesIO(made.stdout.encode()),
        convert_options=csv.ConvertOptions(strings_can_be_null=False),
    )
    assert told.column_names == ["name", "prediction"]
    assert told["name"].to_pylist() == ["ada", "'=1+1", "-5", "'@x", 'b"en, jr', ""]
    assert np.array_equal(told["prediction"].to_numpy(), expected(model, new))


@pytest.mark.parametrize(
    ("cell", "copied"),
    [
        ("=cmd|' /C calc'!A0", "'=cmd|' /C calc'!A0"),
        ("+1-2", "'+1-2"),
        ("-2+3", "'-2+3"),
        ("\t=1", "'\t=1"),
        ("\r=1", "'\r=1"),
        ("@SUM(A1)", "'@SUM(A1)"),
        ("'=1", "''=1"),
        ("'a", "'a"),
        ("-12.5", "-12.5"),
        ("+49123", "+49123"),
        ("a=b", "a=b"),
        ("", ""),
    ],
)
def test_what_a_spreadsheet_would_run_gets_an_apostrophe(cell, copied):
    assert copy_as_text(pa.array([cell])).to_pylist() == [copied]


def test_numbers_dates_and_dictionaries_are_copied_as_they_are(run, clinic, model, new):
    ids = {
        "n": pa.array([-1, 2, 3, 4, 5, 6]),
        "d": pa.array([1] * 6, pa.date32()),
        "k": new["smoker"].dictionary_encode(),
        "age": new["age"],
    }
    table = new.drop_columns("age")
    for name, column in ids.items():
        table = table.append_column(name, column)
    pq.write_table(table, clinic / "ids.parquet")
    for name in ids:
        told = run("predict", model, clinic / "ids.parquet", "--id-column", name)
        assert told.exit_code == 0
        assert told.stdout.splitlines()[0] == f'"{name}","prediction"'
    assert (
        run("predict", model, clinic / "new.csv", "--id-column", "age")
        .stdout.splitlines()[1]
        .startswith('"18",')
    )


@pytest.mark.parametrize("table", ["new.csv", "new.parquet"])
def test_ends_are_those_of_the_interval_in_python(run, clinic, model, new, table):
    made = run("predict", model, clinic / table, "--level", 0.9, "--id-column", "name")
    assert made.exit_code == 0
    assert "with 90 % probability for each row" in made.stderr
    assert "a new label itself may lie far outside" in made.stderr
    told = csv.read_csv(io.BytesIO(made.stdout.encode()))
    assert told.column_names == ["name", "prediction", "low", "high"]
    limits = sv.Ridge.from_release(sv.Release.load(model)).interval(0.9, new)
    assert np.array_equal(np.column_stack([told["low"], told["high"]]), limits)


#: Classes of visits, and what is told of each.
CLASSES = {
    "two": (["few", "many"], [3]),
    "three": (["few", "some", "many"], [3, 8]),
}


@pytest.mark.parametrize("several", CLASSES)
def test_each_class_has_the_interval_of_its_probability(run, clinic, visits, several):
    names, cuts = CLASSES[several]
    X = visits.select(["age"]).to_pandas()
    y = np.array(names)[np.digitize(visits["visits"].to_numpy(), cuts)]
    bounds = sv.Bounds(features={"age": (18, 90)})
    est = sv.LogisticRegression(bounds=bounds, classes=names).fit(X, y, epsilon=5.0)
    (clinic / "m.json").write_text(est.release_.to_json())
    made = run("predict", clinic / "m.json", clinic / "visits.parquet", "--level", 0.8)
    assert "of each probability" in made.stderr
    told = csv.read_csv(io.BytesIO(made.stdout.encode()))
    heads = [f"{end} probability of {name}" for name in names for end in ("low", "high")]
    assert told.column_names[1 + len(names) :] == heads
    each = np.column_stack([told[head] for head in heads]).reshape(-1, len(names), 2)
    limits = est.interval(0.8, X)
    if several == "two":
        assert np.array_equal(each[:, 1], limits)
        assert each[:, 0] == pytest.approx(1 - limits[:, ::-1])
    else:
        assert np.array_equal(each, limits)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("earlier.json", "--level", 0.9), "made by an earlier version"),
        (("sampled.json", "--level", 0.9), "no interval"),
        (("model.json", "--level", 95), "--level"),
        (("model.json", "--level", 0.9, "--id-column", "low"), "'low'"),
    ],
)
def test_no_interval_is_refused_before_anything_is_written(run, clinic, visits, model, words, told):
    earlier = Path(__file__).parents[1] / "earlier" / "releases" / "ridge.json"
    (clinic / "earlier.json").write_bytes(earlier.read_bytes())
    bounds = sv.Bounds(features={"age": (18, 90), "visits": (0, 30)}, label=(0, 20_000))
    X = visits.select(["age", "visits"]).to_pandas()
    sampled = sv.Sampled(sv.Ridge(bounds)).fit(X, visits["cost"].to_numpy(), epsilon=1.0)
    (clinic / "sampled.json").write_text(sampled.release_.to_json())
    before = sorted(clinic.iterdir())
    for out in ((), ("--out", clinic / "out.csv")):
        refused = run("predict", clinic / words[0], clinic / "visits.csv", *words[1:], *out)
        assert (refused.exit_code, refused.stdout) == (2, "")
        assert refused.stderr.startswith("InvalidParameter")
        assert told in refused.stderr
        assert sorted(clinic.iterdir()) == before


def test_many_batches_keep_the_order_of_rows(run, clinic, model, visits, monkeypatch):
    monkeypatch.setattr(engine, "MAX_BATCH_ROWS", 7)
    made = run(
        *("predict", model, clinic / "visits.csv", "--id-column", "id", "--level", 0.95),
        *("--out", clinic / "p.csv"),
    )
    assert "3,000 rows predicted" in made.stderr
    told = csv.read_csv(clinic / "p.csv")
    assert told["id"].to_pylist() == visits["id"].to_pylist()
    assert np.array_equal(told["prediction"].to_numpy(), expected(model, visits))
    limits = sv.load(sv.Release.load(model)).interval(0.95, visits)
    assert np.column_stack([told["low"], told["high"]]) == pytest.approx(limits, rel=1e-9)


def test_no_rows_give_a_header(run, clinic, model, new):
    csv.write_csv(new.slice(0, 0), clinic / "none.csv")
    made = run("predict", model, clinic / "none.csv", "--id-column", "name")
    assert (made.exit_code, made.stdout) == (0, '"name","prediction"\n')
    made = run("predict", model, clinic / "none.csv", "--level", 0.9)
    assert (made.exit_code, made.stdout) == (0, '"prediction","low","high"\n')


@pytest.mark.parametrize(
    ("words", "error", "told"),
    [
        (("model.json", "visits.csv", "--id-column", "nobody"), "MissingColumn", "'nobody'"),
        (("model.json", "short.csv"), "MissingColumn", "'smoker'"),
        (("model.json", "gaps.csv"), "MissingValues", "missing or infinite"),
        (("model.json", "words.csv"), "WrongType", "cannot be read as declared"),
        (
            ("model.json", "named.csv", "--id-column", "prediction"),
            "InvalidParameter",
            "'prediction'",
        ),
        (("model.json", "nowhere.csv"), "InvalidData", "no table"),
        (("nowhere.json", "visits.csv"), "InvalidRelease", "no release"),
        (("clinic.toml", "visits.csv"), "InvalidRelease", ""),
        (("mean.json", "visits.csv"), "InvalidRelease", "not a regression"),
        (("broken.json", "visits.csv"), "InvalidRelease", "cannot be used"),
        (("unfit.json", "visits.csv"), "InvalidRelease", "cannot be used"),
    ],
)
def test_bad_input_is_a_named_sentence_and_leaves_nothing_behind(
    run, clinic, model, new, words, error, told
):
    text = (clinic / "new.csv").read_text()
    (clinic / "short.csv").write_text("age,visits\n18,1\n")
    (clinic / "gaps.csv").write_text(text.replace("60", ""))
    (clinic / "words.csv").write_text(text.replace("60", "old-731"))
    (clinic / "named.csv").write_text(text.replace('"name"', '"prediction"'))
    mean = ("--column", "cost", "--bounds", 0, 20_000, "--epsilon", 1)
    assert (
        run(
            "release", "mean", clinic / "visits.csv", *mean, "--out", clinic / "mean.json"
        ).exit_code
        == 0
    )
    content = json.loads(model.read_text())
    del content["parameters"]["features"]
    (clinic / "broken.json").write_text(json.dumps(content))
    content = json.loads(model.read_text())
    del content["value"]["coefficients"]["visits"]
    (clinic / "unfit.json").write_text(json.dumps(content))
    before = sorted(clinic.iterdir())
    for out in ((), ("--out", clinic / "out.csv")):
        refused = run("predict", clinic / words[0], clinic / words[1], *words[2:], *out)
        assert (refused.exit_code, refused.stdout) == (2, "")
        assert refused.stderr.startswith(error)
        assert told in refused.stderr
        assert "731" not in refused.stderr
        assert sorted(clinic.iterdir()) == before


@pytest.mark.parametrize("out", ["model.json", "new.csv", "nowhere/p.csv", "."])
def test_what_is_read_is_not_overwritten(run, clinic, model, new, out):
    before = model.read_text(), (clinic / "new.csv").read_text()
    refused = run("predict", model, clinic / "new.csv", "--out", clinic / out)
    assert refused.stderr.startswith("InvalidParameter")
    assert (model.read_text(), (clinic / "new.csv").read_text()) == before


def test_interrupted_predictions_leave_the_old_file(run, clinic, model, new, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    (clinic / "p.csv").write_text("old")
    before = sorted(clinic.iterdir())
    monkeypatch.setattr(Path, "replace", interrupted)
    assert (
        run("predict", model, clinic / "new.csv", "--out", clinic / "p.csv", "--force").exit_code
        == 130
    )
    assert (clinic / "p.csv").read_text() == "old"
    assert sorted(clinic.iterdir()) == before
