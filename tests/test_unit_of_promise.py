"""Where a schema names a column of people, everybody's promise covers all their rows, whichever
door rows come through.

Rows that count as people of their own would lose up to as many times what a person granted as they
have rows, so that has to be asked for, with the word 'rows'.
"""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from typer.testing import CliRunner

import sottovoce as sv
from seams import seeded
from sottovoce import _HOMES, errors
from sottovoce.cli.main import app
from sottovoce.data.source import ROWS_MARKER

PEOPLE = 30
EACH = 4
GRANTS = np.round(np.linspace(0.5, 2.0, PEOPLE), 3)

TOML = """
person = "id"
budget = "eps"
label = "{label}"
[columns.x]
kind = "number"
low = 0
high = 1
[columns.y]
kind = "number"
low = 0
high = 1
[columns.grown]
kind = "{grown}"
levels = ["no", "yes"]
"""
NUMBER = sv.Schema.loads(TOML.format(label="y", grown="text"))
CLASS = sv.Schema.loads(TOML.format(label="grown", grown="factor"))


def table() -> pd.DataFrame:
    rng = np.random.default_rng(8)
    who = rng.permutation(np.arange(PEOPLE * EACH) % PEOPLE)
    x = rng.random(PEOPLE * EACH)
    grown = np.where(x > 0.5, "yes", "no")
    return pd.DataFrame(
        {"id": who, "eps": GRANTS[who], "x": x, "y": rng.random(PEOPLE * EACH), "grown": grown}
    )


TABLE = table()
#: Every estimator, made with a schema, and the label it is about.
ASKED = {
    "Mean": (lambda: sv.Mean(bounds=NUMBER), "y"),
    "Mean, by groups": (lambda: sv.Mean(bounds=NUMBER, by={"x": [0, 0.5, 1]}), "y"),
    "Count": (lambda: sv.Count(by={"x": [0, 0.5, 1]}, schema=NUMBER), "y"),
    "Sum": (lambda: sv.Sum(bounds=NUMBER), "y"),
    "Variance": (lambda: sv.Variance(bounds=NUMBER), "y"),
    "Covariance": (lambda: sv.Covariance(bounds=NUMBER, columns=["x", "y"]), "y"),
    "Quantile": (lambda: sv.Quantile(bounds=NUMBER), "y"),
    "Ridge": (lambda: sv.Ridge(bounds=NUMBER), "y"),
    "Ridge, statistics": (lambda: sv.Ridge(bounds=NUMBER, method="statistics"), "y"),
    "Ridge, output": (
        lambda: sv.Ridge(bounds=NUMBER, method="output", coefficient_bound=1.0, alpha=50.0),
        "y",
    ),
    "LogisticRegression": (lambda: sv.LogisticRegression(bounds=CLASS), "grown"),
    "ERM": (lambda: sv.ERM("squared", bounds=NUMBER, delta=1e-6, steps=3), "y"),
    "PosteriorSample": (lambda: sv.PosteriorSample(bounds=NUMBER, alpha=20.0), "y"),
    "AdaptivePosteriorSample": (lambda: sv.AdaptivePosteriorSample(bounds=NUMBER), "y"),
    "LabelPrivateRegression": (lambda: sv.LabelPrivateRegression(label_bounds=NUMBER), "y"),
    "Uniform": (lambda: sv.Uniform(sv.Ridge(bounds=NUMBER, method="statistics")), "y"),
    "Sampled": (lambda: sv.Sampled(sv.Ridge(bounds=NUMBER, method="statistics")), "y"),
    "Threshold": (lambda: sv.Threshold(sv.Ridge(bounds=NUMBER, method="statistics")), "y"),
    "Limited": (lambda: sv.Limited(sv.Ridge(bounds=NUMBER, method="statistics"), rows=2), "y"),
    "Uniform, one column": (lambda: sv.Uniform(sv.Mean(bounds=NUMBER)), "y"),
}
TABLES = ("Mean, by groups", "Count", "Sum", "Variance", "Covariance")
#: Questions whose columns have names, also where budgets and people are values.
BY_NAMES = ("Mean, by groups", "Count", "Covariance")
ONE_COLUMN = ("Mean", "Quantile", *TABLES, "Uniform, one column")
every = pytest.mark.parametrize("name", ASKED)
forms = pytest.mark.parametrize("form", ["pandas", "polars", "Arrow"])


def in_form(form: str, frame: pd.DataFrame = TABLE):
    return {
        "pandas": lambda: frame,
        "polars": lambda: pl.from_pandas(frame),
        "Arrow": lambda: pa.table(frame),
    }[form]()


def fitted(name, X, y=None, **given):
    """Fits, with the column or the label as the estimator takes it."""
    make, _ = ASKED[name]
    if name in ("Mean", "Quantile", *TABLES):
        return make().fit(X, column=y, **given)
    return make().fit(X, y, **given)


def without(frame, *names):
    return frame.drop(columns=list(names))


def usable(name, frame=TABLE):
    """A public design takes every column that has no other purpose for a number."""
    if name == "LabelPrivateRegression":
        return without(frame, "grown")
    return frame


def test_every_estimator_is_asked_here():
    estimators = {name for name, home in _HOMES.items() if home.startswith("estimators.")}
    # Report asks these questions for its parts, and is asked in tests/estimators/test_report.py.
    assert {name.partition(",")[0] for name in ASKED} == estimators - {"Report"}


def promised_to_people(made):
    assert made.guarantee_.unit == "person"
    assert len(made.guarantee_.epsilon) == PEOPLE
    assert np.all(made.guarantee_.epsilon <= GRANTS + 1e-12)
    assert made.release_.guarantee["unit"] == "person"


@every
@forms
def test_the_schema_says_whose_rows_they_are_where_the_label_is_values(name, form):
    """fit(df, y): the call that made a promise to each row without a word."""
    if name in ONE_COLUMN:
        pytest.skip("a question about one column has no label beside it")
    label = TABLE[ASKED[name][1]].to_numpy()
    if name == "LabelPrivateRegression":
        frame = without(usable(name), ASKED[name][1])
    else:
        frame = TABLE
    promised_to_people(fitted(name, in_form(form, frame), label))


@every
@forms
def test_the_schema_says_everything_where_only_the_table_is_given(name, form):
    promised_to_people(fitted(name, in_form(form, usable(name))))


@every
def test_the_schema_says_whose_rows_they_are_in_a_call_by_names(name):
    promised_to_people(fitted(name, usable(name), ASKED[name][1], epsilon="eps"))


@every
def test_one_budget_for_all_is_one_for_each_person(name):
    made = fitted(name, usable(name), epsilon=0.5)
    assert made.guarantee_.unit == "person"
    assert np.all(made.guarantee_.epsilon <= 0.5)


@every
def test_the_same_answer_as_with_people_and_budgets_given_as_values(name):
    if name in ONE_COLUMN:
        label = None
    else:
        label = TABLE[ASKED[name][1]]
    with seeded(5):
        one = fitted(name, usable(name)).release_
    with seeded(5):
        frame = usable(name)
        if name == "LabelPrivateRegression":
            frame = frame[["x"]]
        given = {"epsilon": TABLE["eps"].to_numpy(), "groups": TABLE["id"].to_numpy()}
        alone = label is None and name not in BY_NAMES
        two = fitted(name, TABLE["y"] if alone else frame, label, **given).release_
    assert one.value == two.value
    assert one.guarantee == two.guarantee


@every
def test_rows_are_people_only_where_that_is_asked_for(name):
    made = fitted(name, usable(name), epsilon=0.5, groups=ROWS_MARKER)
    assert made.guarantee_.unit == "row"
    if name not in ONE_COLUMN:
        label = TABLE[ASKED[name][1]].to_numpy()
        if name == "LabelPrivateRegression":
            frame = without(usable(name), ASKED[name][1])
        else:
            frame = TABLE
        assert fitted(name, frame, label, epsilon=0.5, groups=ROWS_MARKER).guarantee_.unit == "row"


@every
def test_a_table_without_the_people_that_the_schema_names_is_refused(name):
    bare = without(usable(name), "id")
    with pytest.raises(errors.MissingColumn, match="people"):
        fitted(name, bare, epsilon=0.5)
    with pytest.raises(errors.MissingColumn, match="people"):
        fitted(name, bare, ASKED[name][1], epsilon=0.5)
    owners = TABLE["id"].to_numpy()
    assert (
        fitted(name, bare, ASKED[name][1], epsilon=0.5, groups=owners).guarantee_.unit == "person"
    )
    assert (
        fitted(name, bare, ASKED[name][1], epsilon=0.5, groups=ROWS_MARKER).guarantee_.unit == "row"
    )


@every
def test_arrays_without_names_are_refused_unless_it_is_said_whose_they_are(name):
    if name == "LogisticRegression":
        X = TABLE[["x", "y"]].to_numpy()
        y = TABLE["grown"].to_numpy()
    else:
        X = TABLE[["x"]].to_numpy()
        y = TABLE["y"].to_numpy()
    if name in BY_NAMES:
        pytest.skip("the columns of cells are looked up by their names")
    if name in ONE_COLUMN:
        data = (y,)
    else:
        data = (X, y)
    make, _ = ASKED[name]
    if name == "Sampled":  # columns without names have no bounds to be in the middle of
        make = lambda: sv.Sampled(sv.Ridge(bounds=NUMBER, method="statistics"), null=([0.5], 0.5))  # noqa: E731
    with pytest.raises(errors.MissingColumn, match="people"):
        make().fit(*data, epsilon=0.5)
    assert make().fit(*data, epsilon=0.5, groups=TABLE["id"]).guarantee_.unit == "person"
    assert make().fit(*data, epsilon=0.5, groups=ROWS_MARKER).guarantee_.unit == "row"


@every
def test_budgets_by_row_do_not_make_rows_people_in_silence(name):
    by_row = sv.Budgets.of(np.full(len(TABLE), 0.5))
    by_person = sv.Budgets.of(np.full(len(TABLE), 0.5), groups=TABLE["id"])
    y = TABLE[ASKED[name][1]]
    if name in BY_NAMES:
        data = (usable(name),)
    elif name in ONE_COLUMN:
        data = (y.to_numpy(),)
    else:
        data = (usable(name)[["id", "x", "eps", "y"]], y.to_numpy())
    if name == "LabelPrivateRegression":
        data = (usable(name)[["x"]], y.to_numpy())
    make, _ = ASKED[name]
    with pytest.raises(errors.InvalidParameter, match="whose the rows are"):
        make().fit(*data, epsilon=by_row)
    assert make().fit(*data, epsilon=by_person).guarantee_.unit == "person"
    assert make().fit(*data, epsilon=by_row, groups=ROWS_MARKER).guarantee_.unit == "row"


@every
def test_a_plan_is_told_whose_rows_are_whose(name):
    make, _ = ASKED[name]
    if name == "LabelPrivateRegression":  # whose plan sees the public table
        assert make().plan(usable(name), epsilon=0.5).guarantee.unit == "person"
        assert make().plan(usable(name), epsilon=0.5, groups=ROWS_MARKER).guarantee.unit == "row"
        with pytest.raises(errors.MissingColumn):
            make().plan(usable(name)[["x"]], epsilon=0.5)
        return
    with pytest.raises(errors.InvalidParameter, match="whose the rows are"):
        make().plan(epsilon=0.5, rows=100)
    with pytest.raises(errors.InvalidParameter, match="whose the rows are"):
        make().plan(epsilon=sv.Budgets.of(np.full(100, 0.5)))
    assert make().plan(epsilon=0.5, groups=TABLE["id"]).guarantee.unit == "person"
    assert make().plan(epsilon=np.full(100, 0.5), groups=ROWS_MARKER).guarantee.unit == "row"


def test_a_column_called_rows_is_not_taken_for_the_word():
    frame = TABLE.assign(rows=TABLE["id"])
    for given in ({}, {"y": "y"}):
        with pytest.raises(errors.InvalidParameter, match="called 'rows'"):
            sv.Ridge(bounds=NUMBER).fit(frame, **given, epsilon=0.5, groups=ROWS_MARKER)
    named = sv.Schema(NUMBER.columns, person="rows", label="y")
    assert sv.Ridge(bounds=named).fit(frame, epsilon=0.5).guarantee_.unit == "person"
    assert sv.Ridge(bounds=named).fit(frame, TABLE["y"], epsilon=0.5).guarantee_.unit == "person"


def test_tiers_of_a_schema_price_the_column_of_budgets():
    schema = sv.Schema(
        NUMBER.columns, person="id", budget="tier", label="y", tiers={"low": 0.5, "high": 1.0}
    )
    frame = TABLE.assign(tier=np.where(TABLE["id"] % 2, "low", "high"))
    for made in (
        sv.Ridge(bounds=schema).fit(frame, TABLE["y"]),
        sv.Ridge(bounds=schema).fit(frame),
    ):
        assert np.all(made.guarantee_.epsilon <= np.where(np.arange(PEOPLE) % 2, 0.5, 1.0))
        assert made.guarantee_.unit == "person"
    for label in (TABLE["y"], "y"):  # another column of budgets has no tiers
        made = sv.Ridge(bounds=schema).fit(frame, label, epsilon="eps")
        assert np.all(made.guarantee_.epsilon <= GRANTS)


def test_a_table_without_the_budgets_that_the_schema_names_is_refused():
    with pytest.raises(errors.MissingColumn, match="budgets"):
        sv.Ridge(bounds=NUMBER).fit(without(TABLE, "eps"), TABLE["y"])
    with pytest.raises(errors.MissingColumn, match="eps"):
        sv.Ridge(bounds=NUMBER).fit(without(TABLE, "eps"))
    with pytest.raises(errors.InvalidParameter, match="ε"):
        sv.PosteriorSample(bounds=NUMBER).plan(groups=TABLE["id"])


def test_a_sample_without_a_schema_of_budgets_promises_what_follows():
    schema = sv.Schema(NUMBER.columns, person="id", label="y")
    made = sv.PosteriorSample(bounds=schema, alpha=50.0).fit(TABLE, TABLE["y"])
    assert made.guarantee_.unit == "person"
    assert sv.PosteriorSample(bounds=schema, alpha=50.0).fit(TABLE).guarantee_.unit == "person"


def test_a_session_charges_people_once_for_all_their_rows():
    session = sv.Session()
    session.grant(dict.fromkeys(range(PEOPLE), 2.0))
    session.release(sv.Ridge(bounds=NUMBER), TABLE, TABLE["y"], epsilon=0.5, key="values")
    session.release(sv.Mean(bounds=NUMBER), TABLE, epsilon=0.5, key="names")
    assert [session.balance(who) for who in (0, PEOPLE - 1)] == pytest.approx([1.0, 1.0])
    for groups in (ROWS_MARKER, None):
        with pytest.raises(errors.InvalidParameter, match="whose they are"):
            session.release(
                sv.Mean(bounds=(0, 1)), TABLE["y"], epsilon=0.5, key="nobody", groups=groups
            )
        with pytest.raises(errors.InvalidParameter, match="whose they are"):
            session.release(
                sv.Mean(bounds=(0, 1)), TABLE, "y", epsilon=0.5, key="nobody", groups=groups
            )
    assert session.balance(0) == pytest.approx(1.0)


def test_an_audit_looks_at_people_where_the_schema_names_them():
    made = sv.PosteriorSample(bounds=NUMBER, alpha=20.0).fit(TABLE)
    for losses in (
        sv.audit.per_instance(made, TABLE, TABLE["y"]),
        sv.audit.per_instance(made, TABLE, "y"),
    ):
        assert losses.unit == "people"
        assert np.all(np.asarray(losses.by_person()) <= made.guarantee_.epsilon)


def test_a_market_trains_with_the_sellers_that_the_schema_names():
    costs = dict(enumerate(np.linspace(1, 2, PEOPLE)))
    allocation = sv.market.Market(
        costs, cost_range=(0, 3), trade_off=1e-4, dimension=2, cap=3.0
    ).allocate()
    schema = sv.Schema(CLASS.columns, person="id", label="grown")
    bought = allocation.train(schema, TABLE, TABLE["grown"])
    assert bought.guarantee_.unit == "person"
    assert len(bought.guarantee_.epsilon) == PEOPLE
    assert np.all(bought.guarantee_.epsilon <= list(allocation.by_person().values()))


@pytest.fixture
def workspace(tmp_path):
    TABLE.to_csv(tmp_path / "rows.csv", index=False)
    (tmp_path / "schema.toml").write_text(TOML.format(label="y", grown="text"))
    return tmp_path


def at_terminal(workspace, question, *words):
    line = [
        question,
        str(workspace / "rows.csv"),
        "--schema",
        str(workspace / "schema.toml"),
        *words,
    ]
    return CliRunner().invoke(
        app, ["release", *line, "--out", str(workspace / "made.json"), "--force"]
    )


@pytest.mark.parametrize("question", ["mean", "ridge"])
def test_at_a_terminal_rows_are_people_only_where_that_is_asked_for(workspace, question):
    assert at_terminal(workspace, question).exit_code == 0
    assert json.loads((workspace / "made.json").read_text())["guarantee"]["unit"] == "person"
    assert at_terminal(workspace, question, "--person-column", ROWS_MARKER).exit_code == 0
    assert json.loads((workspace / "made.json").read_text())["guarantee"]["unit"] == "row"
    TABLE.assign(rows=1).to_csv(workspace / "rows.csv", index=False)
    refused = at_terminal(workspace, question, "--person-column", ROWS_MARKER)
    assert refused.exit_code == 2
    assert "called 'rows'" in refused.stderr


def test_at_a_terminal_books_charge_no_rows(workspace):
    assert CliRunner().invoke(app, ["ledger", "init", str(workspace / "books.db")]).exit_code == 0
    refused = at_terminal(
        workspace,
        "mean",
        "--person-column",
        ROWS_MARKER,
        "--ledger",
        str(workspace / "books.db"),
        "--key",
        "a",
    )
    assert refused.exit_code == 2
    assert "Rows do not say whose they are" in refused.stderr
