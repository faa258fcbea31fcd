"""`sottovoce audit`: a page that shows the right numbers to the curator alone, and the public
calculator.
"""

from __future__ import annotations

import json
import re
import stat
from html.parser import HTMLParser
from xml.etree import ElementTree

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv

import sottovoce as sv
from sottovoce.audit.inputs import read_audit_input


@pytest.fixture
def release(clinic, run):
    """Releases something audible, and returns its path."""

    def make(*words: object):
        path = clinic / f"{words[0]}.json"
        result = run(
            "release",
            *words,
            clinic / "visits.csv",
            "--schema",
            clinic / "clinic.toml",
            "--out",
            path,
        )
        assert result.exit_code == 0, result.output
        return path

    return make


@pytest.fixture
def audit(clinic, run):
    def look(model, *words: object):
        return run(
            "audit", model, clinic / "visits.csv", "--schema", clinic / "clinic.toml", *words
        )

    return look


class Text(HTMLParser):
    """The words of a page, and whatever it would load."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.words = []
        self.loads = []
        self.feed(page)
        self.text = " ".join(" ".join(self.words).split())

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.loads += [
            value for name, value in attrs if name in ("src", "href", "action", "srcset")
        ]


def in_memory(visits: pa.Table):
    schema = sv.Schema.loads(SCHEMA)
    X = visits.select(["age", "smoker", "visits"])
    y = visits["cost"].to_numpy()
    return (
        schema,
        X,
        y,
        {"epsilon": visits["epsilon"].to_numpy(), "groups": visits["id"].to_numpy()},
    )


SCHEMA = """\
label = "cost"
[columns.age]
kind = "number"
low = 18
high = 90
[columns.smoker]
kind = "factor"
levels = ["no", "yes"]
[columns.visits]
kind = "number"
low = 0
high = 30
[columns.cost]
kind = "number"
low = 0
high = 20_000
"""


@pytest.mark.parametrize(
    "words",
    [
        ("posterior", "--gamma", 2, "--alpha", 30),
        ("ridge", "--method", "output-tight"),
        ("ridge", "--method", "output"),
    ],
)
def test_the_page_shows_what_the_library_computes(words, release, audit, clinic, visits):
    model = release(*words)
    page = clinic / "audit.html"
    result = audit(model, "--out", page)
    assert result.exit_code == 0, result.output
    _, X, y, given = in_memory(visits)
    own = sv.audit.per_instance(sv.Release.load(model), X, y, **given)
    losses = np.sort(np.asarray(own.by_person()))
    text = Text(page.read_text("utf-8"))
    for value in (
        losses[-1],
        losses[0],
        np.quantile(losses, 0.5, method="inverted_cdf"),
        own.for_all().bound,
    ):
        assert f"{value:.3g}" in text.text
    assert f"{own.summary().largest:.3g}" in result.stdout
    assert "1,500 people" in text.text


@pytest.mark.parametrize(
    "words",
    [
        ("ridge",),
        ("ridge", "--method", "statistics"),
        ("mean", "--column", "cost"),
        ("quantile", "--column", "visits", "--q", 0.25, "--q", 0.75),
        ("count", "--by", "smoker"),
        ("mean", "--column", "cost", "--by", "smoker", "--where", "age > 40"),
        ("variance", "--column", "visits"),
        ("covariance",),
    ],
)
def test_everything_that_is_released_is_audited_from_its_file(words, release, clinic, run):
    """No schema is needed again for bounds, and no column: the release says them."""
    model = release(*words)
    page = clinic / "audit.html"
    result = run(
        "audit",
        model,
        clinic / "visits.csv",
        "--budget-column",
        "epsilon",
        "--person-column",
        "id",
        "--out",
        page,
    )
    assert result.exit_code == 0, result.output
    assert "CONFIDENTIAL" in result.stdout
    assert "log-ratio of this very release" in Text(page.read_text("utf-8")).text


def test_an_attack_measures_a_person_and_keeps_no_answer(clinic, run, visits):
    table = clinic / "few.csv"
    csv.write_csv(visits.slice(0, 40), table)
    said = (table, "--schema", clinic / "clinic.toml")
    model = clinic / "mean.json"
    assert run("release", "mean", *said, "--column", "cost", "--out", model).exit_code == 0
    result = run("audit", model, *said, "--attack", "--person", "u3", "--runs", 500)
    assert result.exit_code == 0, result.output
    assert "This person's ε is at least" in result.stdout
    assert "They are charged" in result.stdout
    assert run("audit", model, *said, "--attack", "--person", "nobody").exit_code == 2
    assert not list(clinic.glob("*.html"))


@pytest.mark.long
def test_an_attack_on_groups_tries_other_groups(run, clinic):
    said = (clinic / "visits.csv", "--schema", clinic / "clinic.toml")
    for question, more in (("count", ()), ("mean", ("--column", "cost"))):
        made = clinic / f"{question}.json"
        line = ("release", question, *said, *more, "--by", "smoker", "--out", made)
        assert run(*line).exit_code == 0
        result = run("audit", made, *said, "--attack", "--person", "u3", "--runs", 500)
        assert result.exit_code == 0, result.output
        assert "This person's ε is at least" in result.stdout


def test_the_page_is_stamped_self_contained_and_for_its_owner(release, audit, clinic):
    page = clinic / "audit.html"
    result = audit(release("posterior", "--alpha", 30), "--out", page)
    content = page.read_text("utf-8")
    assert content.count("CONFIDENTIAL") >= 3
    assert "CONFIDENTIAL" in result.stdout
    assert Text(content).loads == []
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)|@import|url\(", content)
    assert stat.S_IMODE(page.stat().st_mode) == 0o600


def test_the_picture_has_a_bar_for_everybody_and_marks_in_their_order(
    release, audit, clinic, visits
):
    page = clinic / "audit.html"
    model = release("posterior", "--alpha", 30)
    audit(model, "--out", page)
    picture = ElementTree.fromstring(
        re.search(r"<svg.*?</svg>", page.read_text("utf-8"), re.DOTALL).group()
    )
    shapes = {
        kind: picture.findall(f"{{http://www.w3.org/2000/svg}}{kind}")
        for kind in ("rect", "line", "text")
    }
    heights = np.array([float(bar.get("height")) for bar in shapes["rect"]])
    words = [text.text for text in shapes["text"]]
    tallest = int(words[words.index("0") - 1].replace(",", ""))
    assert (
        abs((heights / heights.max() * tallest).sum() - 1500)
        < 1.5 * len(heights) * tallest / 200 + 15
    )
    marks = [float(line.get("x1")) for line in shapes["line"] if line.get("class") == "mark"]
    assert len(marks) == 3
    told = [float(re.search(r"ε = (.*)", text).group(1)) for text in words if "ε = " in text]
    assert len(told) == 3
    assert np.argsort(told).tolist() == np.argsort(marks).tolist()  # a larger ε is further right
    # On the axis, a step to the right is a factor of ten.
    ticks = {
        text.text: float(text.get("x"))
        for text in shapes["text"]
        if text.get("text-anchor") == "middle" and re.fullmatch(r"[\d.,]+", text.text or "")
    }
    places = [(float(name.replace(",", "")), x) for name, x in ticks.items()]
    slope = (places[-1][1] - places[0][1]) / np.log10(places[-1][0] / places[0][0])
    for value, x in zip(told, marks, strict=True):
        assert x == pytest.approx(places[0][1] + slope * np.log10(value / places[0][0]), abs=2)


def test_nobody_is_named_unless_it_is_asked_for(release, audit, clinic):
    page = clinic / "audit.html"
    model = release("posterior", "--alpha", 30)
    audit(model, "--out", page)
    assert not re.search(r"\bu\d+\b", Text(page.read_text("utf-8")).text)
    result = audit(model, "--out", page, "--reveal", "--force")
    assert len(set(re.findall(r"\bu\d+\b", Text(page.read_text("utf-8")).text))) == 10
    assert not re.search(r"\bu\d+\b", result.output)


def test_who_stands_out_is_told_why(clinic, run, visits):
    cost = visits["cost"].to_pylist()
    cost[10] = 20_000.0
    odd = visits.set_column(visits.column_names.index("cost"), "cost", pa.array(cost))
    csv.write_csv(odd, clinic / "visits.csv")
    words = ("--schema", clinic / "clinic.toml", "--epsilon", 1)
    path = clinic / "m.json"
    plain = (clinic / "clinic.toml").read_text().replace('person = "id"\n', "")
    (clinic / "clinic.toml").write_text(plain)
    line = (
        "release",
        "posterior",
        clinic / "visits.csv",
        *words,
        "--alpha",
        30,
        "--gamma",
        20,
        "--out",
        path,
    )
    assert run(*line).exit_code == 0
    result = run(
        "audit", path, clinic / "visits.csv", *words, "--out", clinic / "audit.html", "--reveal"
    )
    assert result.exit_code == 0, result.output
    text = Text((clinic / "audit.html").read_text("utf-8")).text
    first = re.search(r"what sets them apart ε row 1 (.*?) 2 ", text).group(1)
    assert first.startswith("a label that the others do not foretell (residual")
    assert first.endswith(" 10")


def test_other_budgets_tables_and_models_are_refused(release, audit, clinic, run, model):
    path = release("ridge", "--method", "output-tight")
    for words, error in (
        (("--epsilon", 3), "InvalidParameter"),
        (("--delta", 0), "InvalidParameter"),
        (("--delta", 1), "InvalidParameter"),
        (("--out", clinic / "visits.csv"), "InvalidParameter"),
        (("--out", clinic / "nowhere" / "audit.html"), "InvalidParameter"),
    ):
        result = audit(path, "--out", clinic / "audit.html", *words)
        assert (result.exit_code, result.stderr.split(":")[0]) == (2, error)
        assert not (clinic / "audit.html").exists()
    assert audit(model, "--out", clinic / "model.html").exit_code == 0
    assert audit(clinic / "clinic.toml").stderr.startswith("InvalidRelease")
    assert run("audit").exit_code == 2
    assert run("audit", path).stderr.startswith(
        "InvalidParameter: A model or its table is not named."
    )


def test_a_sample_without_budgets_is_audited_without_any(clinic, audit, visits):
    schema, X, y, _ = in_memory(visits)
    fitted = sv.PosteriorSample(gamma=2.0, alpha=30.0, bounds=schema, fit_intercept=True).fit(X, y)
    (clinic / "sample.json").write_text(fitted.release_.to_json())
    (clinic / "clinic.toml").write_text(SCHEMA)
    result = audit(clinic / "sample.json", "--out", clinic / "audit.html")
    assert result.exit_code == 0, result.output
    assert f"{sv.audit.per_instance(fitted, X, y).epsilon.max():.3g}" in result.stdout


def test_the_calculator_speaks_plainly(clinic, run, visits):
    schema, X, y, _ = in_memory(visits)
    fitted = sv.PosteriorSample(gamma=2.0, alpha=30.0, bounds=schema, fit_intercept=True).fit(X, y)
    path = clinic / "sample.json"
    row = clinic / "row.json"
    path.write_text(fitted.release_.to_json())
    record = {"age": 40, "smoker": "yes", "visits": 3, "cost": 8000}
    row.write_text(json.dumps(record))
    own = sv.audit.mine(
        fitted.release_, ({name: record[name] for name in ("age", "smoker", "visits")}, 8000)
    )
    result = run("audit", "--mine", path, "--record", row)
    assert (result.exit_code, result.stdout.strip()) == (0, own.explain())
    wider = run("audit", "--mine", path, "--record", row, "--beta", 1e-6)
    assert wider.exit_code == 0
    assert wider.stdout != result.stdout


def test_the_calculator_refuses_what_is_no_record(clinic, run, visits, release):
    path = release("posterior", "--alpha", 30)
    row = clinic / "row.json"
    record = {"age": 40, "smoker": "yes", "visits": 3, "cost": 8000}
    for content in (
        None,
        "",
        "[]",
        "{",
        json.dumps({"age": 40}),
        json.dumps({**record, "more": 1}),
        json.dumps({"secret": 77}),
    ):
        row.unlink(missing_ok=True)
        if content is not None:
            row.write_text(content)
        result = run("audit", "--mine", path, "--record", row)
        assert (result.exit_code, result.stderr.split(":")[0]) == (2, "InvalidData")
        assert "77" not in result.output
    row.write_text(json.dumps(record))
    refused = run("audit", "--mine", path, "--record", row.with_name("none.json"))
    assert "There is no record" in refused.stderr
    row.write_text(json.dumps({"age": 40}))
    refused = run("audit", "--mine", path, "--record", row).stderr.replace("\n", " ")
    assert "age, smoker, visits and the label 'cost', and nothing else" in refused
    row.write_text(json.dumps(record))
    assert "different weights" in run("audit", "--mine", path, "--record", row).stderr
    assert run("audit", "--mine", path, "--record", row, "--weight", 0.1).exit_code == 0
    assert run("audit", "--mine", path).exit_code == 2


def test_a_plan_of_a_posterior_sample_says_what_it_promises(clinic, run):
    result = run(
        "plan",
        "posterior",
        clinic / "visits.csv",
        "--schema",
        clinic / "clinic.toml",
        "--alpha",
        30,
    )
    assert result.exit_code == 0, result.output
    assert "ε at δ = 1e-06 for each person, neighbours by zero out" in result.stdout


def test_a_posterior_sample_predicts_as_its_estimator_does(release, run, clinic, visits):
    path = release("posterior", "--gamma", 2, "--alpha", 30)
    told = run("predict", path, clinic / "visits.csv")
    assert told.exit_code == 0
    _, X, _, _ = in_memory(visits)
    expected = sv.PosteriorSample.from_release(sv.Release.load(path)).predict(X)
    rows = told.stdout.splitlines()[1:]
    assert [float(row) for row in rows] == pytest.approx(expected.tolist())


def test_the_calculator_says_of_what_release_it_tells_nothing(clinic, run, release):
    """Before a row is asked for: a mean has no features, and those of labels are names alone."""
    rng = np.random.default_rng()
    labels = sv.LabelPrivateRegression(label_bounds=(0, 1)).fit(
        rng.uniform(size=(50, 2)), rng.uniform(size=50), epsilon=1.0
    )
    (clinic / "labels.json").write_text(labels.release_.to_json())
    row = clinic / "row.json"
    row.write_text(json.dumps({"x0": 0.5, "x1": 0.5, "y": 0.5}))
    for path in (release("mean", "--column", "cost"), clinic / "labels.json"):
        result = run("audit", "--mine", path, "--record", row)
        assert (result.exit_code, result.stderr.split(":")[0]) == (2, "InvalidParameter")
        assert "nobody can bound their own loss better" in result.stderr.replace("\n", " ")


@pytest.mark.parametrize("question", ["posterior", "adaptive-posterior", "logistic"])
def test_a_plan_tells_people_the_weight_that_the_calculator_takes(
    clinic, run, visits, release, question
):
    """A person who grants little bounds their loss at less than with the largest weight."""
    words = (question,)
    if question == "posterior":
        words = (question, "--alpha", 30)
    schema = clinic / "clinic.toml"
    if question == "logistic":
        told = schema.read_text().replace('label = "cost"', 'label = "smoker"')
        schema.write_text(told)
    path = release(*words)
    plan = clinic / "plan.json"
    made = run("plan", *words, clinic / "visits.csv", "--schema", schema, "--out", plan)
    assert made.exit_code == 0, made.output
    payers = json.loads(plan.read_text())["who_pays"]
    weights = [line["row_weight"] for line in payers if line["spent"] > 0]
    row = clinic / "row.json"
    row.write_text(json.dumps({"age": 40, "smoker": "yes", "visits": 3, "cost": 8000}))
    lost = []
    for weight in (min(weights), max(weights)):
        told = run("audit", "--mine", path, "--record", row, "--weight", weight)
        assert told.exit_code == 0, told.output
        lost.append(float(re.search(r"ε = ([\d.]+)", told.stdout)[1]))
    assert lost[0] < lost[1]
    if question == "logistic":
        models = json.loads(path.read_text())["value"]["models"]
        assert max(weights) == next(iter(models.values()))["largest_weight"]
    else:
        _, X, y, who = in_memory(visits)
        setting = read_audit_input(sv.Release.load(path), X, y, who["epsilon"], who["groups"])
        ends = [setting.root.min() ** 2, setting.root.max() ** 2]
        assert [min(weights), max(weights)] == pytest.approx(ends, rel=1e-12)
