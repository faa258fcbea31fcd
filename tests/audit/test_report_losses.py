"""Realised losses of reports: those of their questions, added up."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest
from typer.testing import CliRunner

import sottovoce as sv
from sottovoce.audit import audit_from_table, report_replays
from sottovoce.audit.realised import prepare_model, read_dataset
from sottovoce.cli.main import app
from sottovoce.data.source import DataSource
from sottovoce.errors import InvalidParameter
from sottovoce.estimators import is_audited, report
from sottovoce.report.release import make_audit_page

ROWS = 60
RNG = np.random.default_rng(3)
SCHEMA = sv.Schema.loads(
    """
    [columns.age]
    kind = "number"
    low = 0
    high = 100
    unit = "years"
    [columns.cost]
    kind = "number"
    low = 0
    high = 1000
    [columns.kind]
    kind = "factor"
    levels = ["a", "b", "c"]
    """
)
TABLE = pa.table(
    {
        "age": RNG.uniform(0, 100, ROWS),
        "cost": RNG.uniform(0, 1000, ROWS),
        "kind": [("a", "b", "c")[i % 3] for i in range(ROWS)],
        "sex": [("m", "f")[i % 2] for i in range(ROWS)],
        "who": [f"p{i // 2}" for i in range(ROWS)],
        "epsilon": np.repeat(RNG.choice([0.5, 2.0, 4.0], ROWS // 2), 2),
    }
)
EPSILON = TABLE["epsilon"].to_numpy()
KINDS = {"kind": ["a", "b", "c"]}
SEXES = {"sex": ["m", "f"]}
QUESTIONS = {
    "mean age": (sv.Mean(bounds=(0, 100)), "age"),
    "quartiles": (sv.Quantile(q=[0.25, 0.5, 0.75], bounds=(0, 1000)), "cost"),
    "cost by kind": (sv.Mean(bounds=(0, 1000), by=KINDS), "cost"),
    "kinds": sv.Count(by=KINDS),  # which the table of costs holds
    "kinds and sexes": sv.Count(by={**KINDS, **SEXES}),
    "sexes": sv.Count(by=SEXES),  # which is made to agree
    "rows": sv.Count(),  # which is public
    "model": (sv.Ridge(), "cost"),
    "classes": (sv.LogisticRegression(), "kind"),
    "mean age again": (sv.Mean(bounds=(0, 100)), "age"),
    "by output": (sv.Ridge(method="output-tight"), "cost"),
}
#: Questions whose plans are made at once.
LIGHT = {
    name: QUESTIONS[name]
    for name in ("mean age", "cost by kind", "kinds", "kinds and sexes", "sexes", "rows")
}
SHARES = {"mean age": 1, "cost by kind": 2, "kinds and sexes": 3, "sexes": 1.5, "rows": 1}
REPORTS = {
    "chosen": (QUESTIONS, {}),
    "given": (LIGHT, {"shares": SHARES}),
    "wanted": (LIGHT, {"wanted": {"mean age": 20.0}}),
}


def audit_file(fitted, groups=None):
    release = sv.Release.from_json(fitted.release_.to_json())
    assert is_audited(release)
    return sv.audit.per_instance(release, TABLE, epsilon=EPSILON, groups=groups)


@pytest.fixture(scope="module")
def answered():
    return sv.Report(QUESTIONS, SCHEMA).fit(TABLE, epsilon=EPSILON)


@pytest.mark.parametrize("name", REPORTS)
def test_a_report_loses_what_its_questions_lose_together(name, answered):
    """Each question by itself, with the budgets that were its share, from its own release."""
    questions, options = REPORTS[name]
    fitted = answered
    if options:
        fitted = sv.Report(questions, SCHEMA, **options).fit(TABLE, epsilon=EPSILON)
    audit = audit_file(fitted)
    total = np.zeros(ROWS)
    rest = np.zeros(ROWS)
    for name, one in split_report(fitted).items():
        total += np.asarray(one.losses)
        rest += np.asarray(one.bound)
        own = [stage for stage in audit.stages if stage.partition(" ")[2].startswith(f"{name}: ")]
        assert len(own) == len(one.stages)
    assert np.asarray(audit.losses) == pytest.approx(total, abs=1e-12)
    assert np.asarray(audit.bound) == pytest.approx(rest, abs=1e-12)
    assert (np.asarray(audit.epsilon) <= fitted.guarantee_.epsilon * (1 + 1e-9)).all()
    assert not any("again" in stage or " kinds: " in stage for stage in audit.stages)
    if "by output" in questions:
        assert "by output: the whole release, at its charge" in audit.exactness
    assert "which is public" in audit.exactness


def split_report(fitted):
    """The audits of the parts, each as a question that was asked alone with its part of ε."""
    whole = fitted._list_questions()
    plan = fitted.plan(epsilon=EPSILON)
    found = {}
    for one in whole:
        if one.answered_by != one.name:
            continue
        made = plan.parts[one.name]
        data = fitted.read_arrays(TABLE, epsilon=EPSILON, groups=None)
        rows = report.replace(data.select_part(one.name), budgets=made.budgets)
        part = sv.Release.from_json(fitted.release_.to_json()).parts[one.name]
        release, model = prepare_model(part)
        found[one.name] = read_dataset(release, model, rows, 1e-6)
    return found


def test_people_with_several_rows_lose_no_more_than_they_were_charged():
    groups = TABLE["who"]
    fitted = sv.Report(LIGHT, SCHEMA).fit(TABLE, epsilon=EPSILON, groups=groups)
    audit = audit_file(fitted, groups)
    assert audit.unit == "people"
    assert len(audit.by_person()) == ROWS // 2
    assert (np.asarray(audit.by_person()) <= fitted.guarantee_.epsilon * (1 + 1e-9)).all()
    inside = sv.audit.per_instance(fitted, TABLE, epsilon=EPSILON, groups=groups)
    assert np.array_equal(np.asarray(inside.by_person()), np.asarray(audit.by_person()))
    worst = audit.least_protected(2)
    assert worst[0].epsilon >= worst[1].epsilon
    assert audit.at_delta(0.2, draws=2).epsilon.max() <= fitted.guarantee_.epsilon.max()


def test_shares_that_add_up_to_more_than_one_show(monkeypatch):
    """A planted bug: every question is answered as if it had the whole budget to itself, while
    charges are those of its share. Whoever is at an end of the bounds shows it, whatever the noise.
    """
    table = pa.table({"x": np.tile([0.0, 1.0], 15), "y": np.tile([0.0, 0.0, 1.0, 1.0], 8)[:30]})
    asked = {name: (sv.Mean(bounds=(0, 1), interval_share=0), name) for name in ("x", "y")}

    def measure():
        fitted = sv.Report(asked).fit(table, epsilon=1.0)
        audit = sv.audit.per_instance(fitted, table, epsilon=1.0)
        return float(np.asarray(audit.epsilon).max())

    assert measure() <= 1.0
    original = report._plan_question

    def plan_with_all(one, budgets, rows):
        right = original(one, budgets, rows)
        scale = right.noise["integer_scale"] // 6
        return report.replace(right, noise={**right.noise, "integer_scale": scale})

    monkeypatch.setattr(report, "_plan_question", plan_with_all)
    assert measure() > 1.2


def test_another_table_or_budget_is_refused():
    fitted = sv.Report(LIGHT, SCHEMA).fit(TABLE, epsilon=EPSILON)
    with pytest.raises(InvalidParameter, match="planned with"):
        sv.audit.per_instance(fitted.release_, TABLE, epsilon=2 * EPSILON)
    with pytest.raises(InvalidParameter, match="planned with"):
        sv.audit.per_instance(fitted.release_, TABLE.slice(1), epsilon=EPSILON[1:])


def test_a_column_may_have_the_name_that_rows_in_memory_use():
    asked = {"kinds": sv.Count(by=KINDS)}
    fitted = sv.Report(asked).fit(TABLE, epsilon=EPSILON)
    assert float(np.sum(fitted.value_["kinds"])) == pytest.approx(ROWS)


def test_files_are_audited_at_the_terminal(tmp_path):
    path = tmp_path / "table.csv"
    pyarrow.csv.write_csv(TABLE, path)
    questions = {name: QUESTIONS[name] for name in ("mean age", "cost by kind", "kinds")}
    budgets = {"epsilon": "epsilon", "groups": "who"}
    fitted = sv.Report(questions, SCHEMA).fit(str(path), **budgets)
    release = tmp_path / "report.json"
    release.write_text(fitted.release_.to_json(), encoding="utf-8")
    source = DataSource(str(path), budget="epsilon", person="who")
    audit = audit_from_table(sv.Release.from_json(release.read_text("utf-8")), source, 1e-6)
    assert (np.asarray(audit.by_person()) <= fitted.guarantee_.epsilon.max() * (1 + 1e-9)).all()
    assert "CONFIDENTIAL" in make_audit_page(audit, fitted.release_)
    out = tmp_path / "audit.html"
    asked = ["audit", str(release), str(path), "--budget-column", "epsilon"]
    asked += ["--person-column", "who"]
    out.write_text("readable by everybody", encoding="utf-8")
    out.chmod(0o644)
    run = CliRunner().invoke(app, [*asked, "--out", str(out), "--force"])
    assert run.exit_code == 0, run.output
    assert out.stat().st_mode & 0o777 == 0o600
    attacked = CliRunner().invoke(app, [*asked, "--attack", "--person", "nobody"])
    assert attacked.exit_code == 2
    assert "not in the table" in " ".join(attacked.output.split())
    assert "p0" not in json.dumps(json.loads(release.read_text("utf-8")))


def test_questions_that_follow_from_others_are_told_by_the_release(answered):
    again = report_replays.ReleasedReport.of(answered.release_, sv.load(answered.release_))
    told = {one.name: one.answered_by for one in again._list_questions()}
    assert told["kinds"] == "cost by kind"
    assert told["mean age again"] == "mean age"
