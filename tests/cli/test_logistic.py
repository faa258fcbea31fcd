"""`plan logistic`, `release logistic` and what `predict` and `explain` make of it: from a table to
classes.
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
from typer.testing import CliRunner

import sottovoce as sv
from sottovoce.cli.main import app
from sottovoce.cli.predict import ReleasedModel
from sottovoce.data import engine
from sottovoce.data.engines.arrow import ArrowEngine
from sottovoce.data.source import DataSource
from sottovoce.release import Release

TIERS = {"careful": 0.1, "middle": 0.5, "open": 2.0}
#: A class that nobody declared; no message may repeat it.
SECRET = "Eleonora-731"

SCHEMA = """\
person = "id"
budget = "tier"
label = "LABEL"
[tiers]
careful = 0.1
middle = 0.5
open = 2
[columns.id]
kind = "text"
[columns.age]
kind = "number"
low = 18
high = 90
[columns.smoker]
kind = "factor"
levels = ["no", "yes"]
[columns.LABEL]
kind = "factor"
levels = LEVELS
"""
#: Labels of the same people, each with its classes: text, numbers, several, and text that a file
#: must quote.
LABELS = {
    "ill": ["healthy", "ill"],
    "flag": ["0", "1"],
    "stage": ["none", "early", "late"],
    "odd": ['well, "really"', "=1+1"],
}


def written(folder: Path, label: str) -> Path:
    """Writes the schema for this label, and returns its path."""
    schema = folder / f"{label}.toml"
    schema.write_text(SCHEMA.replace("LABEL", label).replace("LEVELS", json.dumps(LABELS[label])))
    return schema


@pytest.fixture(scope="module")
def patients() -> pa.Table:
    """Two rows a person; the older and the smokers are ill more often."""
    rng = np.random.default_rng(11)
    age = np.round(rng.uniform(18, 90, 2400), 1)
    smoker = rng.random(2400) < 0.4
    risk = 0.08 * (age - 54) + 2 * smoker - 0.8 + rng.logistic(0, 0.5, 2400)
    tiers = [list(TIERS)[row // 2 % 3] for row in range(2400)]
    stage = np.digitize(risk, [-1, 1])
    return pa.table(
        {
            "id": [f"u{row // 2}" for row in range(2400)],
            "tier": tiers,
            "epsilon": [TIERS[tier] for tier in tiers],
            "age": age,
            "smoker": np.where(smoker, "yes", "no"),
            "flag": (risk > 0).astype(float),
            **{name: np.array(LABELS[name])[(risk > 0).astype(int)] for name in ("ill", "odd")},
            "stage": np.array(LABELS["stage"])[stage],
        }
    )


@pytest.fixture
def ward(tmp_path: Path, patients: pa.Table) -> Path:
    """patients.csv, patients.parquet, and a schema for each label."""
    csv.write_csv(patients, tmp_path / "patients.csv")
    pq.write_table(patients, tmp_path / "patients.parquet")
    for label in LABELS:
        written(tmp_path, label)
    return tmp_path


@pytest.fixture(scope="module")
def releases(tmp_path_factory: pytest.TempPathFactory, patients: pa.Table) -> dict[str, str]:
    """A model of each label as JSON; released once for all tests."""
    folder = tmp_path_factory.mktemp("released")
    csv.write_csv(patients, folder / "patients.csv")
    made = {}
    for label in LABELS:
        line = (
            "release",
            "logistic",
            str(folder / "patients.csv"),
            "--schema",
            str(written(folder, label)),
        )
        result = CliRunner().invoke(app, line)
        assert result.exit_code == 0, result.output
        made[label] = result.stdout
    return made


@pytest.fixture
def model(ward, releases):
    """Writes the model of a label, and returns its path."""

    def path(label: str) -> Path:
        (ward / "model.json").write_text(releases[label])
        return ward / "model.json"

    return path


def logistic(ward, verb="release", label="ill", table="patients.csv"):
    return (verb, "logistic", ward / table, "--schema", ward / f"{label}.toml")


def told(text: str | Path) -> pa.Table:
    return csv.read_csv(text if isinstance(text, Path) else io.BytesIO(text.encode()))


@pytest.mark.parametrize("table", ["patients.csv", "patients.parquet"])
@pytest.mark.parametrize("label", LABELS)
def test_from_a_table_to_classes_and_their_probabilities(run, ward, patients, label, table):
    assert run(*logistic(ward, "plan", label, table), "--out", ward / "p.json").exit_code == 0
    made = run(*logistic(ward, "release", label, table), "--out", ward / "m.json")
    assert made.exit_code == 0
    plan = json.loads((ward / "p.json").read_text())
    release = Release.load(ward / "m.json")
    assert plan["plan_digest"] == release.certificate.plan_digest
    assert plan["guarantee"] == release.guarantee
    assert release.parameters["classes"] == LABELS[label]
    assert [entry["people"] for entry in release.guarantee["epsilon"]["distribution"]] == [
        400,
        400,
        400,
    ]
    assert release.guarantee["epsilon"]["least"] <= 0.1
    assert f"Answer: a classifier of {label!r} (" in made.stderr
    assert run("explain", ward / "m.json").stdout.startswith(f"Answer: a classifier of {label!r} (")
    assert run("predict", ward / "m.json", ward / table, "--out", ward / "c.csv").exit_code == 0
    right = told(ward / "c.csv")["prediction"].cast(pa.string()).to_numpy() == _spelt(
        patients[label]
    )
    # The largest of three stages has 35 % of the rows; noise takes 60 % to one in 5,000 releases,
    # and every three hundredths less are ten times as rare.
    assert right.mean() > (0.45 if label == "stage" else 0.75)


def _spelt(column: pa.ChunkedArray) -> np.ndarray:
    """Labels as `predict` writes them: 1 for 1.0, and harmless in a spreadsheet."""
    return np.array(
        [{1.0: "1", 0.0: "0", "=1+1": "'=1+1"}.get(label, label) for label in column.to_pylist()]
    )


def test_numbers_written_with_a_point_are_the_classes_without(run, ward, patients):
    patients.to_pandas().to_csv(ward / "pandas.csv", index=False)
    assert "1.0" in (ward / "pandas.csv").read_text()
    assert run(*logistic(ward, label="flag", table="pandas.csv")).exit_code == 0
    schema = ward / "flag.toml"
    schema.write_text(schema.read_text().replace('["0", "1"]', "[0, 1]"))
    for table in ("patients.csv", "patients.parquet", "pandas.csv"):
        made = run(*logistic(ward, label="flag", table=table))
        assert Release.from_json(made.stdout).parameters["classes"] == ["0", "1"]


@pytest.mark.parametrize("label", LABELS)
def test_a_table_gives_the_plan_that_the_same_data_in_memory_gives(run, ward, patients, label):
    assert run(*logistic(ward, "plan", label), "--out", ward / "p.json").exit_code == 0
    est = sv.LogisticRegression(
        bounds=DataSource("t", schema=ward / f"{label}.toml").for_classification().features
    )
    plan = est.plan(
        epsilon=patients["epsilon"].to_numpy(), groups=patients["id"].to_numpy(zero_copy_only=False)
    )
    assert json.loads((ward / "p.json").read_text())["plan_digest"] == plan.digest


@pytest.fixture
def new(ward) -> pa.Table:
    """New people: beyond the bounds, at a level that nobody declared, at none."""
    table = pa.table(
        {
            "smoker": ["no", "yes", "sometimes", None, "yes", "no"],
            "age": [18.0, 90.0, 1.0, 40.0, 250.0, 60.0],
            "name": ["ada", "=1+1", "ben", "cy", "dee", "eve"],
        }
    )
    csv.write_csv(table, ward / "new.csv")
    pq.write_table(table, ward / "new.parquet")
    return table


@pytest.mark.parametrize("table", ["new.csv", "new.parquet"])
@pytest.mark.parametrize("label", LABELS)
def test_predictions_are_those_of_the_estimator_to_the_last_digit(
    run, ward, model, new, label, table
):
    path = model(label)
    made = run("predict", path, ward / table, "--id-column", "name")
    assert "6 rows predicted" in made.stderr
    answer = told(made.stdout)
    reader = sv.LogisticRegression.from_release(sv.Release.load(path))
    chances = [f"probability of {name}" for name in LABELS[label]]
    assert answer.column_names == ["name", "prediction", *chances]
    assert answer["name"].to_pylist()[:2] == ["ada", "'=1+1"]
    predicted = answer["prediction"].cast(pa.string()).to_pylist()
    assert predicted == [{"=1+1": "'=1+1"}.get(name, name) for name in reader.predict(new).tolist()]
    table = np.column_stack([answer[name].to_numpy() for name in chances])
    assert np.array_equal(table, reader.predict_proba(new))
    assert np.allclose(table.sum(axis=1), 1)


def test_many_batches_keep_the_order_of_rows(run, ward, model, patients, monkeypatch):
    monkeypatch.setattr(engine, "MAX_BATCH_ROWS", 7)
    path = model("stage")
    run("predict", path, ward / "patients.csv", "--id-column", "id", "--out", ward / "c.csv")
    answer = told(ward / "c.csv")
    reader = sv.LogisticRegression.from_release(sv.Release.load(path))
    assert answer["id"].to_pylist() == patients["id"].to_pylist()
    assert answer["prediction"].to_pylist() == reader.predict(patients).tolist()
    assert np.array_equal(
        answer["probability of late"].to_numpy(), reader.predict_proba(patients)[:, 2]
    )


def test_probabilities_add_up_where_every_class_is_next_to_impossible(ward, releases):
    content = json.loads(releases["stage"])
    for place, function in enumerate(content["value"]["models"].values()):
        function["intercept"] = -5000.0 + place
        function["coefficients"] = dict.fromkeys(function["coefficients"], 0.0)
    answer = ReleasedModel.of(Release.from_json(json.dumps(content))).predict_batch(
        pa.record_batch({"age": [20.0], "smoker": ["no"]})
    )
    chances = np.array([answer[f"probability of {name}"][0] for name in LABELS["stage"]])
    assert chances == pytest.approx(np.exp([0, 1, 2]) / np.exp([0, 1, 2]).sum())
    assert answer["prediction"].tolist() == ["late"]


def test_no_rows_give_a_header(run, ward, model, new):
    csv.write_csv(new.slice(0, 0), ward / "none.csv")
    made = run("predict", model("ill"), ward / "none.csv")
    assert (made.exit_code, made.stdout) == (
        0,
        '"prediction","probability of healthy","probability of ill"\n',
    )


@pytest.mark.parametrize("name", ["prediction", "probability of ill"])
def test_a_column_to_copy_needs_a_name_of_its_own(run, ward, model, new, name):
    csv.write_csv(new.rename_columns(["smoker", "age", name]), ward / "named.csv")
    refused = run("predict", model("ill"), ward / "named.csv", "--id-column", name)
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert refused.stderr.startswith(f"InvalidParameter: The column to copy is called '{name}'.")


def _without_a_coefficient(content):
    del content["value"]["models"]["late"]["coefficients"]["age"]


def _without_a_class(content):
    del content["value"]["models"]["early"]


def _out_of_order(content):
    models = content["value"]["models"]
    content["value"]["models"] = dict(reversed(models.items()))


def _one_class(content):
    content["parameters"]["classes"] = ["none"]


def _no_classes(content):
    content["parameters"]["classes"] = [{"a": 1}, ["b"], None]


@pytest.mark.parametrize(
    "spoil", [_without_a_coefficient, _without_a_class, _out_of_order, _one_class, _no_classes]
)
def test_a_model_that_does_not_fit_itself_is_not_used(run, ward, releases, spoil):
    content = json.loads(releases["stage"])
    spoil(content)
    (ward / "spoilt.json").write_text(json.dumps(content))
    refused = run("predict", ward / "spoilt.json", ward / "patients.csv")
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert refused.stderr.startswith("InvalidRelease: The model in this release cannot be used.")


def test_a_model_that_is_not_finite_is_no_release(run, ward, releases):
    content = json.loads(releases["stage"])
    content["value"]["models"]["late"]["intercept"] = 1e999
    (ward / "spoilt.json").write_text(json.dumps(content))
    refused = run("predict", ward / "spoilt.json", ward / "patients.csv")
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert refused.stderr.startswith("InvalidRelease: This is not a release")


@pytest.mark.parametrize("table", ["patients.csv", "patients.parquet"])
@pytest.mark.parametrize("more", [(), ("--public", "public.csv")])
def test_a_plan_reads_people_and_budgets_and_neither_feature_nor_label(
    run, ward, patients, table, more, monkeypatch
):
    csv.write_csv(patients.slice(0, 200), ward / "public.csv")
    monkeypatch.chdir(ward)
    read: list[set[str]] = []
    fold = ArrowEngine.fold

    def spy(engine, kernel):
        read.append(set(kernel.columns))
        return fold(engine, kernel)

    monkeypatch.setattr(ArrowEngine, "fold", spy)
    assert run(*logistic(ward, "plan", table=table), *more).exit_code == 0
    if more:
        public = [{"age", "smoker", "ill"}]
    else:
        public = []
    assert read[: len(public)] == public
    assert set().union(*read[len(public) :]) == {"id", "tier"}


def test_a_plan_is_the_same_whatever_features_and_labels_are(run, ward, patients):
    others = patients.select(["id", "tier"])
    for name in ("age", "smoker", *LABELS):
        others = others.append_column(name, pa.array([SECRET] * len(patients)))
    csv.write_csv(others, ward / "others.csv")
    for label in LABELS:
        named = ("--table-label", "patients")
        plans = [
            run(*logistic(ward, "plan", label, table), *named)
            for table in ("patients.csv", "others.csv")
        ]
        assert plans[0].exit_code == 0
        assert plans[0].output == plans[1].output


def test_a_plan_shows_classes_regularisation_and_how_to_read_the_error(run, ward):
    shown = run(*logistic(ward, "plan")).stdout
    for words in (
        "Plan for a logistic regression of 'ill' in 'patients': 1,200 people, 2,400 rows",
        "granted ε",
        "Promise: pure ε for each person, neighbours by replace",
        " in probability (",
        "Of it noise ",
        "Classes: healthy, ill. λ = ",
        "No feature and no label was read, and nobody has been charged.",
    ):
        assert words in shown
    several = run(*logistic(ward, "plan", "stage")).stdout
    assert "All 3 classes are told apart by one objective." in several
    labels = run(*logistic(ward, "plan", "stage"), "--neighbours", "labels").stdout
    assert "Each of the 3 classes is told from all others" in labels


@pytest.mark.parametrize("label", ["ill", "flag", "stage"])
@pytest.mark.parametrize("table", ["csv", "parquet"])
def test_a_class_that_nobody_declared_is_refused_before_anything_is_charged(
    run, ward, patients, label, table, monkeypatch
):
    labels = patients[label].to_pylist()
    if label == "flag":
        labels[1234] = 731.0
    else:
        labels[1234] = SECRET
    spoilt = patients.set_column(patients.column_names.index(label), label, pa.array(labels))
    csv.write_csv(spoilt, ward / "spoilt.csv")
    pq.write_table(spoilt, ward / "spoilt.parquet")
    assert run(*logistic(ward, "plan", label, f"spoilt.{table}")).exit_code == 0
    monkeypatch.setattr(sv.LogisticRegression, "release_under", None)  # what would be charged for
    refused = run(*logistic(ward, "release", label, f"spoilt.{table}"), "--out", ward / "out.json")
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert refused.stderr.startswith("InvalidData: A label is none of the declared classes.")
    assert ", ".join(LABELS[label]) in refused.stderr
    assert "731" not in refused.stderr
    assert not (ward / "out.json").exists()


@pytest.mark.parametrize("table", ["csv", "parquet"])
@pytest.mark.parametrize(
    ("column", "label", "error"),
    [
        ("ill", "ill", "InvalidData"),
        ("flag", "flag", "InvalidData"),
        ("age", "ill", "MissingValues"),
    ],
)
def test_missing_values_are_refused_before_anything_is_charged(
    run, ward, patients, column, label, error, table, monkeypatch
):
    values = patients[column].to_pylist()
    values[7] = None
    gaps = patients.set_column(patients.column_names.index(column), column, pa.array(values))
    csv.write_csv(gaps, ward / "gaps.csv")
    pq.write_table(gaps, ward / "gaps.parquet")
    with monkeypatch.context() as nothing_charged:
        nothing_charged.setattr(sv.LogisticRegression, "release_under", None)
        refused = run(*logistic(ward, "release", label, f"gaps.{table}"))
        assert (refused.exit_code, refused.stdout) == (2, "")
        assert refused.stderr.startswith(error)
    if column == "age":
        schema = ward / "ill.toml"
        schema.write_text(schema.read_text().replace("high = 90\n", "high = 90\nmissing = 50\n"))
        assert run(*logistic(ward, table=f"gaps.{table}")).exit_code == 0


@pytest.mark.parametrize("verb", ["plan", "release"])
@pytest.mark.parametrize(
    ("old", "new", "error", "said"),
    [
        ('["healthy", "ill"]', '["ill"]', "InvalidSchema", "two or more levels"),
        ('["healthy", "ill"]', '["ill", "ill"]', "InvalidSchema", "all different"),
        ('levels = ["healthy", "ill"]', "", "InvalidSchema", "[columns.ill]"),
        (
            '"factor"\nlevels = ["healthy", "ill"]',
            '"number"\nlow = 0\nhigh = 1',
            "InvalidSchema",
            "factor",
        ),
        ("[columns.ill]", "[columns.sick]", "InvalidSchema", "'ill'"),
        ('label = "ill"\n', "", "InvalidSchema", 'label = "..."'),
        ("high = 90", "", "InvalidSchema", "'age'"),
        ("[columns.age]", "[columns.years]", "MissingColumn", "'years'"),
        ("careful = 0.1\n", "", "UnknownPeople", ""),
    ],
)
def test_schemas_that_do_not_fit(run, ward, verb, old, new, error, said):
    schema = ward / "ill.toml"
    assert old in schema.read_text()
    schema.write_text(schema.read_text().replace(old, new))
    refused = run(*logistic(ward, verb))
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert refused.stderr.startswith(error)
    assert said in refused.stderr


@pytest.mark.parametrize("verb", ["plan", "release"])
@pytest.mark.parametrize(
    ("change", "error", "said"),
    [
        (("--alpha", 0), "InvalidParameter", "alpha"),
        (("--alpha", "nan"), "InvalidParameter", "alpha"),
        (("--alpha", 1e-9), "WeakRegularisation", "Take an alpha of"),
        (("--neighbours", "everybody"), "InvalidParameter", "replace, labels"),
        (("--epsilon", -1), "InvalidBudget", ""),
        (("--budget-column", "ill"), "InvalidParameter", "two purposes"),
        (("--person-column", "nowhere"), "MissingColumn", "nowhere"),
    ],
)
def test_words_outside_their_range(run, ward, verb, change, error, said):
    refused = run(*logistic(ward, verb), *change, "--out", ward / "out.json")
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert refused.stderr.startswith(error)
    assert said in refused.stderr
    assert not (ward / "out.json").exists()


def test_a_regularisation_that_is_too_weak_for_two_people_may_be_right_for_many(run, ward):
    weak = ("--alpha", 0.01, "--epsilon", 1)
    with pytest.raises(sv.errors.WeakRegularisation):
        sv.LogisticRegression(bounds=sv.Bounds(features=(0, 1)), alpha=0.01).plan(
            epsilon=1.0, rows=2, n_features=1
        )
    assert run(*logistic(ward, "plan"), *weak, "--out", ward / "p.json").exit_code == 0
    assert json.loads((ward / "p.json").read_text())["parameters"]["alpha"] == 0.01
    assert Release.from_json(run(*logistic(ward), *weak).stdout).parameters["alpha"] == 0.01


def test_labels_alone_are_protected_with_half_the_noise_and_said_so(run, ward):
    plans = {}
    for neighbours in ("replace", "labels"):
        shown = run(
            *logistic(ward, "plan"), "--neighbours", neighbours, "--out", ward / "p.json", "--force"
        ).stdout
        plans[neighbours] = json.loads((ward / "p.json").read_text())
        assert ("nothing is promised about features" in shown) == (neighbours == "labels")
    # Less than twice the rate, because people count more evenly where there is less noise.
    assert plans["labels"]["noise"]["rate"] > 1.2 * plans["replace"]["noise"]["rate"]
    made = run(*logistic(ward), "--neighbours", "labels")
    assert made.exit_code == 0
    assert Release.from_json(made.stdout).guarantee["neighbours"] == "replace labels"
    assert "of all labels of each person, and of nothing else" in made.stderr


@pytest.fixture
def public(ward, patients) -> Path:
    """Other people like these, whose rows need no protection: public.csv, public.parquet and
    parts/.
    """
    other = patients.take(np.arange(1, 1201, 2)).set_column(
        3, "age", pa.array(patients["age"].to_numpy()[:600])
    )
    csv.write_csv(other, ward / "public.csv")
    pq.write_table(other, ward / "public.parquet")
    (ward / "parts").mkdir()
    pq.write_table(other.slice(0, 300), ward / "parts" / "0.parquet")
    pq.write_table(other.slice(300), ward / "parts" / "1.parquet")
    return ward


@pytest.mark.parametrize("label", ["ill", "flag", "stage"])
def test_public_rows_scale_and_choose_and_tell_the_error_to_expect(run, public, label):
    plans = []
    for name in ("public.csv", "public.parquet", "parts"):
        shown = run(
            *logistic(public, "plan", label),
            "--public",
            public / name,
            "--out",
            public / "p.json",
            "--force",
        )
        assert "Scaling and λ follow from 600 public rows" in shown.stdout
        assert "simulation on the public rows" in " ".join(shown.stdout.split())
        plans.append(json.loads((public / "p.json").read_text()))
    assert plans[0] == plans[1] == plans[2]
    assert 0 < plans[0]["expected_error"] < 0.6
    made = run(*logistic(public, "release", label), "--public", public / "public.csv")
    release = Release.from_json(made.stdout)
    assert release.certificate.plan_digest == plans[0]["plan_digest"]
    assert release.parameters["public_rows"] == 600


def _filled(table: pa.Table, name: str, value: object) -> pa.Table:
    """The same table with one value in a whole column."""
    column = pa.array([value] * len(table), table.schema.field(name).type)
    return table.set_column(table.column_names.index(name), name, column)


@pytest.mark.parametrize(
    ("spoil", "error", "said"),
    [
        (lambda table: table.drop_columns("smoker"), "MissingColumn", "'smoker'"),
        (lambda table: table.drop_columns("ill"), "MissingColumn", "'ill'"),
        (
            lambda table: _filled(table, "ill", SECRET),
            "InvalidData",
            "none of the declared classes",
        ),
        (lambda table: _filled(table, "age", None), "MissingValues", "missing"),
        (lambda table: _filled(table, "age", float("inf")), "MissingValues", "infinite"),
        (lambda table: table.slice(0, 1), "TooFewRows", "one row"),
        (lambda table: table.slice(0, 0), "TooFewRows", "empty"),
    ],
)
def test_public_rows_that_do_not_fit_are_refused_before_the_private_table_is_opened(
    run, public, spoil, error, said
):
    pq.write_table(spoil(pq.read_table(public / "public.parquet")), public / "bad.parquet")
    (public / "patients.csv").unlink()
    refused = run(*logistic(public), "--public", public / "bad.parquet")
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert refused.stderr.startswith(f"{error}: In the public rows: ")
    assert said in refused.stderr
    assert "731" not in refused.stderr


def test_the_private_table_is_not_taken_for_public_and_no_input_is_overwritten(run, public):
    refused = run(*logistic(public), "--public", public / "patients.csv")
    assert refused.stderr.startswith(
        "InvalidParameter: The public rows are the private table itself."
    )
    line = (*logistic(public), "--public", public / "public.csv")
    for name in ("public.csv", "patients.csv", "ill.toml"):
        refused = run(*line, "--out", public / name)
        assert refused.stderr.startswith("InvalidParameter: --out is a file that is to be read.")


def test_a_label_of_classes_has_no_mean_and_no_regression(run, ward):
    for question in ("mean", "ridge"):
        refused = run("release", question, ward / "patients.csv", "--schema", ward / "ill.toml")
        assert (refused.exit_code, refused.stdout) == (2, "")
        assert refused.stderr.startswith(
            "InvalidSchema: The schema does not give the range of 'ill'."
        )


def test_a_classifier_without_schema_is_told_where_to_get_one(run, ward):
    refused = run("plan", "logistic", ward / "patients.csv", "--epsilon", 1)
    assert refused.stderr.startswith("InvalidSchema")
    assert "sottovoce schema draft" in refused.stderr
