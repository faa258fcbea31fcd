"""A table by the names of its columns, wherever it lives: the same release as from arrays in
memory, to the bit.
"""

from __future__ import annotations

import math
from datetime import date
from fractions import Fraction

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

import sottovoce as sv
from seams import seeded, silent, without_names
from sottovoce import errors
from sottovoce.data.census import scale_budgets
from sottovoce.data.engine import GroupLookup
from sottovoce.schema import Column

N = 1200
PEOPLE = 300
BOUNDS = sv.Bounds(features=(0, 1), label=(0, 100))
GRANTS = np.round(np.linspace(0.3, 2.0, PEOPLE), 3)


@pytest.fixture(scope="module")
def rows() -> pa.Table:
    rng = np.random.default_rng(3)
    who = rng.permutation(np.arange(N) % PEOPLE)
    x = rng.random((N, 2))
    return pa.table(
        {
            "who": who,
            "a": x[:, 0],
            "b": x[:, 1],
            "cost": 100 * x[:, 0],
            "grown": np.where(x[:, 0] > 0.5, "yes", "no"),
            "eps": GRANTS[who],
        }
    )


@pytest.fixture(scope="module")
def places(rows, tmp_path_factory):
    """The same table in every form that one process can have."""
    folder = tmp_path_factory.mktemp("rows")
    for part in range(3):
        pq.write_table(rows.slice(part * 400, 400), folder / f"{part}.parquet", row_group_size=150)
    pa.csv.write_csv(rows, folder / "rows.csv")
    return {
        "folder of Parquet": str(folder / "*.parquet"),
        "path": folder / "0.parquet",
        "CSV": str(folder / "rows.csv"),
        "dataset": ds.dataset([folder / f"{part}.parquet" for part in range(3)]),
        "Arrow table": rows,
        "pandas": rows.to_pandas(),
        "polars": pl.from_arrow(rows),
    }


FORMS = ["folder of Parquet", "CSV", "dataset", "Arrow table", "pandas", "polars"]
QUESTIONS = {
    "mean": (sv.Mean(bounds=(0, 100)), "cost"),
    "median": (sv.Quantile(0.5, bounds=(0, 100)), "cost"),
    "statistics": (sv.Ridge(bounds=BOUNDS, method="statistics"), "cost"),
    "objective": (sv.Ridge(bounds=BOUNDS), "cost"),
    "classes": (sv.LogisticRegression(bounds=BOUNDS, classes=("no", "yes")), "grown"),
    "sample": (sv.PosteriorSample(bounds=BOUNDS), "cost"),
    "descent": (sv.ERM("squared", bounds=BOUNDS, delta=1e-6, steps=5), "cost"),
    "labels": (sv.LabelPrivateRegression(label_bounds=(0, 100)), "cost"),
}


def without(table, *names):
    """Leaves columns out that are neither features nor named, in the table's own way."""
    if isinstance(table, pa.Table):
        return table.drop_columns(list(names))
    if isinstance(table, pd.DataFrame):
        return table.drop(columns=list(names))
    return table.drop(*names)


def released(question, label, table, epsilon, groups="who"):
    with seeded(11):
        if isinstance(question, sv.Mean | sv.Quantile):
            return question.fit(table, column=label, epsilon=epsilon, groups=groups)
        return question.fit(table, label, epsilon=epsilon, groups=groups)


def from_memory(question, label, rows):
    own = {"epsilon": rows["eps"].to_numpy(), "groups": rows["who"].to_numpy()}
    with seeded(11):
        if isinstance(question, sv.Mean | sv.Quantile):
            return question.fit(rows[label].to_numpy(), **own)
        return question.fit(rows.select(["a", "b"]), rows[label].to_numpy(), **own)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", ["mean", "median"])
def test_one_column_of_any_table(name, form, places, rows):
    question, label = QUESTIONS[name]
    expected = without_names(from_memory(question, label, rows).release_)
    assert without_names(released(question, label, places[form], "eps").release_) == expected


@pytest.mark.parametrize("form", ["Arrow table", "pandas", "polars"])
@pytest.mark.parametrize(
    "name", ["statistics", "objective", "classes", "sample", "descent", "labels"]
)
def test_models_of_any_table(name, form, places, rows):
    question, label = QUESTIONS[name]
    table = without(places[form], "grown" if label == "cost" else "cost")
    expected = from_memory(question, label, rows)
    known = without_names(expected.release_)
    made = released(question, label, table, "eps")
    assert without_names(made.release_) == known
    assert np.array_equal(made.guarantee_.epsilon, expected.guarantee_.epsilon)
    assert list(made.feature_names_in_) == ["a", "b"]
    assert made.predict(rows.select(["a", "b"])).shape == (N,)


def test_a_schema_names_label_people_budgets_and_features(places, rows):
    schema = sv.Schema.loads(
        'person = "who"\nbudget = "eps"\nlabel = "cost"\n'
        + "".join(f'[columns.{name}]\nkind = "number"\nlow = 0\nhigh = 1\n' for name in "ab")
        + '[columns.cost]\nkind = "number"\nlow = 0\nhigh = 100\n[columns.grown]\nkind = "text"\n'
    )
    for form in ("folder of Parquet", "CSV", "dataset"):
        with seeded(11):
            made = sv.Ridge(bounds=schema, method="statistics").fit(places[form])
        expected = from_memory(sv.Ridge(bounds=BOUNDS, method="statistics"), "cost", rows)
        assert made.release_.value == expected.release_.value


def consents(**columns):
    return pa.table({"who": np.arange(PEOPLE)[::-1], "epsilon": GRANTS[::-1], **columns})


@pytest.mark.parametrize(
    "form", ["mapping", "Arrow", "pandas", "Parquet", "CSV", "several columns"]
)
def test_budgets_may_live_in_a_table_of_their_own(form, places, rows, tmp_path):
    pq.write_table(consents(), tmp_path / "consents.parquet")
    pa.csv.write_csv(consents(), tmp_path / "consents.csv")
    epsilon = {
        "mapping": {who: float(GRANTS[who]) for who in range(PEOPLE)},
        "Arrow": consents(),
        "pandas": consents().to_pandas(),
        "Parquet": tmp_path / "consents.parquet",
        "CSV": tmp_path / "consents.csv",
        "several columns": consents(since=["May"] * PEOPLE),
    }[form]
    expected = without_names(from_memory(*QUESTIONS["mean"], rows).release_)
    for place in ("dataset", "CSV"):
        assert (
            without_names(released(*QUESTIONS["mean"], places[place], epsilon).release_) == expected
        )


def test_a_question_that_loads_its_table_takes_budgets_from_another(places, rows, tmp_path):
    pq.write_table(consents(), tmp_path / "consents.parquet")
    question, label = QUESTIONS["labels"]
    expected = without_names(from_memory(question, label, rows).release_)
    for epsilon in (
        consents(),
        tmp_path / "consents.parquet",
        {who: float(GRANTS[who]) for who in range(PEOPLE)},
    ):
        table = without(places["Arrow table"], "grown", "eps")
        assert without_names(released(question, label, table, epsilon).release_) == expected


def test_lines_of_people_without_rows_are_no_harm(places, rows):
    more = dict.fromkeys(range(5000), 1.0) | {who: float(GRANTS[who]) for who in range(PEOPLE)}
    expected = without_names(from_memory(*QUESTIONS["mean"], rows).release_)
    assert without_names(released(*QUESTIONS["mean"], places["dataset"], more).release_) == expected


@pytest.mark.parametrize(
    ("epsilon", "error"),
    [
        (consents().slice(1), errors.UnknownPeople),
        ({0: 1.0}, errors.UnknownPeople),
        (pa.concat_tables([consents(), consents().slice(0, 1)]), errors.DuplicatePeople),
        (consents().select(["epsilon"]), errors.MissingColumn),
        (pa.table({"who": [0], "x": [1.0], "y": [1.0]}), errors.InvalidParameter),
        (pa.table({"who": pa.array([0, None]), "epsilon": [1.0, 1.0]}), errors.UnknownPeople),
        (pa.table({"who": [0], "epsilon": [-1.0]}), errors.InvalidBudget),
        (consents().slice(0, 0), errors.TooFewRows),
        (np.full(N, 0.5), errors.InvalidParameter),
        (sv.Budgets.of(1.0, rows=N), errors.InvalidParameter),
        (None, errors.InvalidParameter),
        ("nothing", errors.MissingColumn),
    ],
    ids=str,
)
def test_budgets_that_do_not_fit_the_people(epsilon, error, places):
    with pytest.raises(error) as caught:
        released(*QUESTIONS["mean"], places["dataset"], epsilon)
    assert str(PEOPLE - 1) not in str(caught.value)
    assert caught.value.__cause__ is None


def test_budgets_elsewhere_need_people(places):
    with pytest.raises(errors.InvalidParameter, match="whose they are"):
        released(*QUESTIONS["mean"], places["dataset"], consents(), groups=None)


@pytest.mark.parametrize(
    ("question", "label", "error", "said"),
    [
        (sv.Mean(bounds=(0, 100)), None, errors.InvalidParameter, "which column"),
        (sv.Mean(bounds=(0, 100)), "rent", errors.MissingColumn, "no column"),
        (sv.Mean(bounds=(0, 100)), "grown", errors.WrongType, "number"),
        (sv.Ridge(bounds=BOUNDS), None, errors.InvalidParameter, "label"),
        (
            sv.Ridge(bounds=sv.Bounds(norm=1.0, label=(0, 100))),
            "cost",
            errors.InvalidParameter,
            "norm",
        ),
        (sv.Ridge(bounds=BOUNDS), "cost", errors.WrongType, "number"),  # grown is left, and is text
        (sv.Uniform(sv.Ridge(bounds=BOUNDS)), "cost", errors.InvalidParameter, "memory"),
    ],
)
def test_columns_that_cannot_be_meant(question, label, error, said, places):
    with pytest.raises(error, match=said):
        released(question, label, places["dataset"], "eps")


def test_a_session_takes_tables_and_charges_once(places, rows, tmp_path):
    session = sv.Session(f"sqlite:///{tmp_path}/books.db", engine="arrow")
    session.grant(dict.fromkeys(range(PEOPLE), 3.0))
    ask = {"groups": "who", "key": "first", "epsilon": 0.5}
    first = session.release(sv.Mean(bounds=(0, 100)), places["folder of Parquet"], "cost", **ask)
    assert session.release(sv.Mean(bounds=(0, 100)), places["dataset"], "cost", **ask) == first
    assert session.balance(0) == pytest.approx(2.5)
    with pytest.raises(errors.KeyReused):  # another column is another question
        session.release(sv.Mean(bounds=(0, 100)), places["dataset"], "a", **ask)


def test_a_session_leaves_out_who_is_not_named_and_spends_what_is_left(places):
    session = sv.Session()
    session.grant(dict.fromkeys(range(PEOPLE), 1.0))
    half = dict.fromkeys(range(PEOPLE // 2), 0.4)
    session.release(
        sv.Mean(bounds=(0, 100)), places["dataset"], "cost", groups="who", key="a", epsilon=half
    )
    assert session.balance(0) < 0.61
    assert session.balance(PEOPLE - 1) == 1.0
    rest = {"groups": "who", "key": "rest"}
    made = session.release(sv.Mean(bounds=(0, 100)), places["dataset"], "cost", **rest)
    assert (
        max(session.balance(who) for who in range(PEOPLE)) < 0.25
    )  # the heaviest take part no heavier than helps
    assert session.release(sv.Mean(bounds=(0, 100)), places["dataset"], "cost", **rest) == made


def test_rows_of_people_who_are_left_out_are_not_heard(places):
    """Those who cannot pay all have 100, the others 0; without noise the answer is 0, and not a
    mixture.
    """
    who = np.arange(N) % PEOPLE
    poor = who % 3 == 0
    table = pa.table({"who": who, "cost": np.where(poor, 100.0, 0.0), "eps": GRANTS[who]})
    session = sv.Session()
    session.grant({person: 0.1 if person % 3 == 0 else 3.0 for person in range(PEOPLE)})
    with silent():
        made = session.release(
            sv.Mean(bounds=(0, 100)), table, "cost", groups="who", epsilon="eps", key="rich"
        )
    assert abs(made.value) < 0.1
    assert session.balance(0) == 0.1


@pytest.mark.parametrize("share", [0.3, 0.999999, 1e-6])
def test_a_share_of_a_budget_is_rounded_down(share):
    budgets = sv.Budgets.of(dict(enumerate(GRANTS.tolist())), groups=np.arange(PEOPLE))
    lowered, _ = scale_budgets(budgets, GroupLookup("who", np.arange(PEOPLE), budgets.codes), share)
    asked = lowered.by_person(lowered.kinds.epsilon)
    exact = [
        Fraction(str(share)) * int(granted) for granted in budgets.by_person(budgets.kinds.epsilon)
    ]
    assert all(spent <= most for spent, most in zip(asked.tolist(), exact, strict=True))


def test_a_schema_of_short_descriptions_is_that_of_its_text():
    short = sv.Schema.of(
        {
            "age": (18, 99),
            "smoker": ["no", "yes"],
            "seen": (date(2024, 1, 1), date(2024, 12, 31)),
            "cost": Column("number", 0, 500, unit="EUR"),
        },
        label="cost",
        person="id",
        budget="tier",
        tiers={"open": 1.0},
        name="patients",
    )
    assert short == sv.Schema.loads("""
        name = "patients"
        label = "cost"
        person = "id"
        budget = "tier"
        [tiers]
        open = 1.0
        [columns]
        age = {kind = "number", low = 18, high = 99}
        smoker = {kind = "factor", levels = ["no", "yes"]}
        seen = {kind = "date", low = 2024-01-01, high = 2024-12-31}
        cost = {kind = "number", low = 0, high = 500, unit = "EUR"}
    """)


@pytest.mark.parametrize(
    "columns",
    [
        {"a": (1,)},
        {"a": ("x", "x")},
        {"a": 5},
        {"a": (2, 1)},
        {"a": (0, math.nan)},
        {"a": (date(2024, 1, 1), 3)},
        {"a": (date(2024, 2, 1), date(2024, 1, 1))},
        {1: (0, 1)},
        [1],
    ],
)
def test_other_short_descriptions_are_refused(columns):
    with pytest.raises(sv.errors.SottovoceError):
        sv.Schema.of(columns)
