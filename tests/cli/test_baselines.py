"""`--baseline`: what it does to a plan and a release, and what is refused."""

from __future__ import annotations

import json

import pytest

from sottovoce.release import Release

AROUND = {
    "uniform": (),
    "threshold": ("--threshold", 0.5),
    "sampled": ("--threshold", 0.5),
    "limited": ("--rows", 2),
}


def ask(clinic, verb, question, *more):
    described = ("--schema", clinic / "clinic.toml")
    if question in ("mean", "quantile", "sum", "variance"):
        described = (*described, "--column", "cost")
    return (verb, question, clinic / "visits.csv", *described, *more)


@pytest.mark.parametrize("question", ["mean", "quantile", "sum", "ridge"])
@pytest.mark.parametrize("baseline", AROUND)
def test_every_baseline_plans_and_releases_the_same_promise(run, clinic, question, baseline):
    words = ("--baseline", baseline, *AROUND[baseline], "--force", "--out", clinic / "out.json")
    planned = run(*ask(clinic, "plan", question, *words))
    assert planned.exit_code == 0, planned.output
    plan = json.loads((clinic / "out.json").read_text())
    made = run(*ask(clinic, "release", question, *words))
    assert made.exit_code == 0, made.output
    release = Release.load(clinic / "out.json")
    assert release.guarantee == plan["guarantee"]
    assert release.column == "cost"
    assert "No ledger remembers this release" in made.stderr


def test_uniform_charges_everybody_the_smallest(run, clinic):
    run(*ask(clinic, "release", "mean", "--baseline", "uniform", "--out", clinic / "u.json"))
    spent = Release.load(clinic / "u.json").guarantee["epsilon"]
    assert spent["least"] == spent["most"]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--baseline", "best"), "--baseline is none of its choices"),
        (("--threshold", 0.5), "has no threshold"),
        (("--baseline", "uniform", "--rows", 2), "has no rows"),
        (("--baseline", "limited", "--threshold", 1), "has no threshold"),
        (("--baseline", "limited", "--where", "age > 40"), "groups or a filter"),
        (("--baseline", "sampled", "--by", "smoker"), "groups or a filter"),
        (("--baseline", "limited", "--ledger", "books.db", "--key", "k"), "together with"),
        (("--baseline", "sampled", "--ledger", "books.db", "--key", "k"), "together with"),
    ],
)
def test_what_does_not_fit_together_is_refused(run, clinic, words, told):
    refused = run(*ask(clinic, "release", "mean", *words))
    assert refused.exit_code != 0
    assert told in " ".join(refused.stderr.split())


def test_classes_have_no_null_record(run, clinic):
    schema = (clinic / "clinic.toml").read_text()
    (clinic / "smokers.toml").write_text(schema.replace('label = "cost"', 'label = "smoker"'))
    line = ("logistic", clinic / "visits.csv", "--schema", clinic / "smokers.toml")
    for verb in ("plan", "release"):
        refused = run(verb, *line, "--baseline", "sampled")
        assert refused.exit_code == 2
        assert "classes have no middle" in refused.stderr
    assert run("release", *line, "--baseline", "threshold").exit_code == 0


def test_a_text_file_is_read_as_options_say(run, clinic):
    text = (clinic / "visits.csv").read_text().replace('"', "")
    (clinic / "semicolons.csv").write_text(text.replace(",", ";"))
    made = run(
        *("release", "ridge", clinic / "semicolons.csv", "--schema", clinic / "clinic.toml"),
        *("--delimiter", ";", "--baseline", "uniform", "--out", clinic / "model.json"),
    )
    assert made.exit_code == 0, made.output


def test_no_rows_are_picked_for_tables(run, clinic):
    assert "--rows" not in run("release", "count", "--help").stdout
    assert "--rows" in run("release", "mean", "--help").stdout
    line = (clinic / "visits.csv", "--schema", clinic / "clinic.toml", "--by", "smoker")
    assert run("release", "count", *line, "--baseline", "uniform").exit_code == 0
    refused = run("release", "count", *line, "--baseline", "limited")
    assert refused.exit_code == 2
    assert "none of its choices" in refused.stderr


@pytest.mark.parametrize("baseline", ["uniform", "threshold"])
def test_grants_are_changed_within_a_ledger(run, clinic, baseline):
    books = ("--ledger", clinic / "books.db")
    assert run("ledger", "init", clinic / "books.db").exit_code == 0
    described = ("--schema", clinic / "clinic.toml")
    people = "".join(f"u{i},5\n" for i in range(2000))
    (clinic / "grants.csv").write_text(f"person,epsilon\n{people}")
    assert run("ledger", "grant", clinic / "grants.csv", *books).exit_code == 0
    words = ("--baseline", baseline, *AROUND[baseline], *books)
    planned = run(*ask(clinic, "plan", "ridge", *words))
    assert "A baseline:" in planned.stdout, planned.output
    made = run(*ask(clinic, "release", "ridge", *words, "--key", "k", "--out", clinic / "m.json"))
    assert made.exit_code == 0, made.output
    assert "Booked under the key" in made.stderr
    audited = run(
        *("audit", clinic / "m.json", clinic / "visits.csv", *described),
        *("--out", clinic / "audit.html"),
    )
    assert audited.exit_code == 0, audited.output
