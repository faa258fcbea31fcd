"""A release says what it is: question, column, table, date, and the unit of every number, through
every door.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pytest

import sottovoce as sv
from sottovoce.booking import compute_earlier_fingerprint, encode_question
from sottovoce.data.engine import get_table_label
from sottovoce.report.release import describe_origin, draw_answer, make_release_headline
from sottovoce.wording import describe_prediction_error

MEAN = sv.Mean(bounds=(0, 10))
N = 400
VALUES = np.linspace(2, 4, N)
PEOPLE = [f"p{i}" for i in range(N)]
#: Releases as the version before this one wrote them, without column, table, units and date.
EARLIER = sorted((Path(__file__).parent / "releases").glob("*.json"))
SCHEMA = """
name = "Pay 2026"
label = "pay"
[columns.age]
kind = "number"
low = 18
high = 90
unit = "years"
[columns.pay]
kind = "number"
low = 0
high = 10
unit = "kEUR"
"""


@pytest.fixture
def table(tmp_path) -> Path:
    path = tmp_path / "ada-private" / "salaries.csv"
    path.parent.mkdir()
    frame = pd.DataFrame({"id": PEOPLE, "pay": VALUES, "age": np.linspace(20, 80, N)})
    frame.to_csv(path, index=False)
    return path


def in_memory():
    session = sv.Session()
    session.grant(dict.fromkeys(PEOPLE, 1.0))
    return session


DOORS = {
    "pandas": (lambda _: MEAN.fit(pd.Series(VALUES, name="pay"), epsilon=1.0).release_, None),
    "a frame of one column": (
        lambda _: MEAN.fit(pd.DataFrame({"pay": VALUES}), epsilon=1.0).release_,
        None,
    ),
    "polars": (lambda _: MEAN.fit(pl.Series("pay", VALUES), epsilon=1.0).release_, None),
    "a file": (lambda path: MEAN.fit(path, column="pay", epsilon=1.0).release_, "salaries"),
    "a session": (
        lambda _: in_memory().release(
            MEAN, pd.Series(VALUES, name="pay"), groups=PEOPLE, key="k", epsilon=0.5, name="May"
        ),
        "May",
    ),
    "a session on a file": (
        lambda path: in_memory().release(MEAN, path, "pay", groups="id", key="k", epsilon=0.5),
        "salaries",
    ),
    "a baseline": (
        lambda _: (
            sv.Sampled(MEAN)
            .fit(pd.Series(VALUES, name="pay"), epsilon=[0.5, 1.0] * (N // 2))
            .release_
        ),
        None,
    ),
    "a model": (
        lambda _: (
            sv.Ridge(bounds=sv.Bounds(features=(0, 1), label=(0, 10)))
            .fit(pd.DataFrame({"age": VALUES / 10}), pd.Series(VALUES, name="pay"), epsilon=1.0)
            .release_
        ),
        None,
    ),
    "a model with a schema": (
        lambda path: sv.Ridge(bounds=sv.Schema.loads(SCHEMA)).fit(path, epsilon=1.0).release_,
        "Pay 2026",
    ),
}


@pytest.mark.parametrize("door", DOORS)
def test_column_table_and_date_are_told_through_every_door(door, table):
    made, label = DOORS[door]
    before = datetime.now(UTC).replace(microsecond=0)
    release = made(table)
    assert (release.column, release.table) == ("pay", label)
    assert before <= datetime.fromisoformat(release.date) <= datetime.now(UTC)
    text = release.explain() + make_release_headline(release) + describe_origin(release)
    assert "'pay'" in text
    assert release.date[:10] in text
    assert str(label or "") in text
    assert "ada-private" not in text + release.to_json(), "folders may tell whose machine it is"
    assert sv.Release.from_json(release.to_json()) == release


def test_arrays_without_names_say_so():
    release = MEAN.fit(VALUES, epsilon=1.0).release_
    assert (release.column, release.table, release.units) == (None, None, None)
    assert (
        "Asked about: a column without a name, of a table without a name, on 20"
        in release.explain()
    )
    assert "in units of the column" in release.explain()


@pytest.mark.parametrize(
    ("place", "label"),
    [
        ("/home/ada/claims.csv", "claims"),
        (Path("claims.2026.parquet"), "claims.2026"),
        ("claims.csv.gz", "claims"),
        ("claims/", "claims"),
        ("/home/ada/*.csv", None),
        ("/home/ada/base.duckdb#claims", "claims"),
        (".", None),
        ("..", None),
        (np.zeros(3), None),
    ],
)
def test_a_label_is_a_file_and_no_folder_that_was_not_named(place, label):
    assert get_table_label(place) == label


def test_a_name_that_cannot_be_printed_is_refused_before_anybody_is_charged():
    session = in_memory()
    for name in ("", "a\nb", 5):
        with pytest.raises(sv.errors.InvalidParameter):
            session.release(MEAN, VALUES, groups=PEOPLE, key="k", epsilon=0.5, name=name)
    assert session.balance("p0") == 1.0


def test_names_and_dates_change_no_plan_and_the_same_key_gives_the_same_bytes():
    named = MEAN.fit(pd.Series(VALUES, name="pay"), epsilon=1.0).release_
    assert named.certificate.plan_digest == MEAN.plan(epsilon=1.0, rows=N).digest
    session = in_memory()
    first, again = (
        session.release(MEAN, VALUES, groups=PEOPLE, key="k", epsilon=0.5, name=name).to_json()
        for name in ("a", "b")
    )
    assert first == again
    assert "date" in json.loads(first)


def test_units_are_told_with_every_number():
    schema = sv.Schema.loads(SCHEMA)
    ages = pd.DataFrame({"age": np.linspace(20, 80, N)})
    release = sv.Ridge(bounds=schema).fit(ages, pd.Series(VALUES, name="pay"), epsilon=1.0).release_
    assert release.units == {"age": "years", "pay": "kEUR"}
    text = release.explain()
    assert "All are in kEUR" in text
    assert re.search(r"\d per year\b", text)
    assert "between 0 and 10 kEUR" in text
    assert "kEUR (root mean square" in text
    assert "kEUR" in draw_answer(release)


def test_the_error_of_a_mean_is_beside_it_and_that_of_a_quantile_is_a_rank():
    mean = MEAN.fit(pd.Series(VALUES, name="pay"), epsilon=1.0).release_
    assert "±" in draw_answer(mean)
    assert "± is the expected error, in units of &#x27;pay&#x27;" in draw_answer(mean)
    value, error = (
        float(part)
        for part in draw_answer(mean)
        .split('"big">')[1]
        .split("</span>")[0]
        .split('<span class="soft">±')
    )
    assert len(f"{error:g}".replace(".", "").strip("0")) <= 2
    assert abs(value - mean.value) <= mean.expected_error / 20
    for q in (0.5, [0.25, 0.5]):
        median = sv.Quantile(q=q, bounds=(0, 10)).fit(VALUES, epsilon=1.0).release_
        answer = (draw_answer(median) + median.explain()).replace("Noise alone: ±", "")
        assert "±" not in answer.replace("sampling alone: ±", "")
        assert "of the rows" in draw_answer(median)
        assert "of the rows lie between the answer and the true" in median.explain()
    plan = sv.Quantile(bounds=(0, 10)).plan(epsilon=1.0, rows=N)
    assert "% of the rows lie between the answer and the true median" in plan.describe()


@pytest.mark.parametrize(
    "question",
    [MEAN, sv.Quantile(bounds=(0, 10)), sv.Quantile(q=[0.1, 0.5], bounds=(0, 10), spread=0.3)],
    ids=["mean", "median", "quantiles"],
)
def test_an_answer_that_says_nothing_says_so(question):
    blind = question.fit([5.0] * 5, epsilon=0.001).release_
    assert "This answer says nothing about the column" in blind.explain()
    assert "This answer says nothing about the column" in draw_answer(blind)
    assert "This answer will say nothing" in question.plan(epsilon=0.001, rows=5).describe()
    good = question.fit(VALUES, epsilon=1.0).release_
    assert "nothing about" not in good.explain() + question.plan(epsilon=1.0, rows=N).describe()


@pytest.mark.parametrize("path", EARLIER, ids=lambda path: path.stem)
def test_releases_of_earlier_versions_load_and_keep_their_bytes(path):
    release = sv.Release.load(path)
    assert "Asked about: column, table and date are not recorded." in release.explain()
    assert describe_origin(release) == "Table and date are not recorded."
    assert release.to_json() == path.read_text(encoding="utf-8")
    draw_answer(release)


@pytest.mark.parametrize(
    "change",
    [
        {"column": 5},
        {"table": ["a"]},
        {"units": {"a": 1}},
        {"units": "x"},
        {"date": "soon"},
        {"date": 3},
    ],
)
def test_what_is_not_text_is_no_release(change):
    content = json.loads(EARLIER[1].read_text(encoding="utf-8"))
    with pytest.raises(sv.errors.InvalidRelease):
        sv.Release.from_json(json.dumps({**content, **change}))


def test_units_and_names_are_no_part_of_a_request_and_requests_of_earlier_books_are_recognised():
    plain = (
        'person="id"\nlabel="cost"\n[columns.age]\nkind="number"\nlow=18\nhigh=90\n'
        '[columns.cost]\nkind="number"\nlow=0\nhigh=20000\nmissing=5\n'
    )
    people = np.array(["a", "b"], dtype=object)
    # computed by the version before
    known = "34ddca36163113b78b0fbee883b5cb539ca860f4b9f184bcd78314c29b7aa4d8"
    for text in (plain, 'name = "claims"\n' + plain + 'unit = "EUR"\n'):
        question = sv.Ridge(bounds=sv.Schema.loads(text))
        assert compute_earlier_fingerprint(encode_question(question, "x"), people) == known


def test_odds_are_never_told_smaller_than_they_are():
    """e^.0001 was told as "at most 1", e^.2234 as "at most 1.25"."""
    for epsilon in (1e-9, 1e-4, 0.1, 0.2234, 1.0, 3.3333, 12.0):
        text = MEAN.fit(VALUES, epsilon=epsilon).release_.explain()
        told = float(text.split("by a factor of at most ")[1].split(" (ε")[0].replace(",", ""))
        assert math.exp(epsilon) <= told <= math.exp(epsilon) + 0.001


CLASSES = np.where(np.arange(N) % 3, "yes", "no")
AGES = pd.DataFrame({"age": np.linspace(20, 80, N)})
AGE_AND_ANSWER = sv.Schema.loads(
    'label = "answer"\n[columns.age]\nkind = "number"\nlow = 18\nhigh = 90\n'
    '[columns.answer]\nkind = "factor"\nlevels = ["no", "yes"]\n'
)


def fitted(question, labels=CLASSES, epsilon=1.0):
    return question.fit(AGES, pd.Series(labels, name="answer"), epsilon=epsilon).release_


@pytest.mark.parametrize(
    ("question", "unit"),
    [
        (sv.LogisticRegression(bounds=AGE_AND_ANSWER), "log-odds"),
        (sv.ERM(bounds=AGE_AND_ANSWER, delta=1e-6, steps=3), "log-odds"),
        (sv.ERM("hinge", bounds=AGE_AND_ANSWER, delta=1e-6, steps=3), "margin"),
    ],
    ids=["logistic", "ERM", "hinge"],
)
def test_the_functions_of_a_classifier_are_rounded_and_have_one_unit(question, unit):
    """All six digits were told, and the page called margins log-odds."""
    release = fitted(question)
    text = release.explain()
    page = draw_answer(release)
    assert f"{unit} of yes: intercept" in text
    assert f"Numbers are in {unit}" in page
    ((_, intercept), (_, slope)) = release.coefficients(release.value["models"]["yes"])
    error = describe_prediction_error(release)
    for told, own in ((intercept, error), (slope, error / (90 - 18))):
        assert len(told.partition(".")[2]) <= max(2 - math.floor(math.log10(own)), 0)
    # The last digits of an intercept are all zeros now and then; those of a third never are.
    model = {**release.value["models"]["yes"], "intercept": 1 / 3}
    third = replace(release, value={**release.value, "models": {"yes": model}})
    assert "intercept 0.3" in third.explain()
    assert "0.3333" not in third.explain() + draw_answer(third)


def test_coefficients_of_public_features_are_rounded_to_their_own_noise():
    """A slope of .05 a year was told as 0: its range is not declared, and it was rounded as if that
    were one year.
    """
    release = (
        sv.LabelPrivateRegression(label_bounds=(0, 10))
        .fit(AGES, AGES["age"] / 20, epsilon=50.0)
        .release_
    )
    slope = dict(release.coefficients(release.value))["age"]
    assert abs(float(slope) - release.value["coefficients"]["age"]) <= release.noise["scale"] / 5


@pytest.mark.parametrize(
    ("question", "labels"),
    [
        (sv.LogisticRegression(bounds=AGE_AND_ANSWER), CLASSES),
        (sv.Ridge(bounds=sv.Bounds(features=(18, 90), label=(0, 10))), VALUES),
        (sv.LabelPrivateRegression(label_bounds=(0, 10)), VALUES),
    ],
    ids=["logistic", "ridge", "labels"],
)
def test_a_model_that_says_nothing_says_so(question, labels):
    blind = fitted(question, labels, 1e-6)
    assert "This answer says nothing about the label" in blind.explain()
    assert "This answer says nothing about the label" in draw_answer(blind)
    assert "nothing about" not in fitted(question, labels, 50.0).explain()


def test_quantiles_on_a_fine_grid_are_not_told_finer_than_they_are_known():
    """On 2^22 cells seven digits were told of a number whose error is in the third."""
    release = sv.Quantile(bounds=(0, 10), cells=2**22).fit(VALUES, epsilon=0.5).release_
    ((_, told),) = release.numbers()
    assert len(told.partition(".")[2]) <= 3
    assert abs(float(told) - release.value[0]) <= release.error_parts["in_column"] / 16


def test_numbers_that_are_assumed_are_written_out():
    assert (
        "spread by 20,000 (a tenth"
        in sv.Mean(bounds=(0, 200_000)).plan(epsilon=[0.1] * 9 + [1.0]).describe()
    )


def test_a_model_without_an_intercept_is_compared_with_least_squares_without_one():
    """Against least squares with one, the error was up to 3.8 times the planned one."""
    bounds = sv.Bounds(features=(18, 90), label=(0, 10))
    for question in (
        sv.PosteriorSample(gamma=1.0, alpha=50.0, bounds=bounds),
        sv.LabelPrivateRegression(label_bounds=(0, 10), fit_intercept=False),
    ):
        assert "of least squares without an intercept" in fitted(question, VALUES).explain()
        question.set_params(fit_intercept=True)
        assert "without an intercept" not in fitted(question, VALUES).explain()
