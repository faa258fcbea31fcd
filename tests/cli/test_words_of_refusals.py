"""A refusal at the terminal speaks of options and files, never of calls in Python.

Every line below is wrong in its own way. They are collected, so that a message that is written for
Python and reaches the terminal is found here.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import csv

#: What only somebody who writes Python can do.
PYTHON = re.compile(
    r"\bsv\.|\b[a-z_]+=|\bfit\b|\bNone\b|\(…|Budgets\.of|\bSchema as\b|\bdata frame|\barray"
    r"|\bmapping\b|\bCall \b"
)
MEAN = "mean salaries.csv --column salary --budget-column epsilon --person-column id"
RIDGE = "ridge visits.csv --schema clinic.toml"
POSTERIOR = "posterior visits.csv --schema clinic.toml"
#: Words that are wrong for `release` and for `plan` alike.
QUESTIONS = [
    f"{MEAN} --bounds 10 0",
    f"{MEAN} --bounds 1 1",
    f"{MEAN} --bounds nan 1",
    f"{MEAN} --bounds 0 inf",
    f"{MEAN} --bounds -1e308 1e308",
    MEAN,
    "mean salaries.csv --bounds 0 1 --epsilon 1",
    f"{MEAN} --bounds 0 1 --spread 0",
    f"{MEAN} --bounds 0 1 --spread 7",
    f"{MEAN} --bounds 0 1 --missing nan",
    f"{MEAN} --bounds 0 1 --epsilon 1",
    f"{MEAN} --bounds 0 1 --engine horse",
    f"{MEAN} --bounds 0 1 --budgets nowhere.csv",
    f"{MEAN} --bounds 0 1 --budgets salaries.csv",
    "mean salaries.csv --column salary --bounds 0 1",
    "mean salaries.csv --column salary --bounds 0 1 --epsilon 0",
    "mean salaries.csv --column salary --bounds 0 1 --epsilon -1",
    "mean salaries.csv --column salary --bounds 0 1 --epsilon nan",
    "mean salaries.csv --column salary --bounds 0 1 --epsilon 1e9",
    "mean salaries.csv --column salary --bounds 0 1 --epsilon 1 --person-column salary",
    "mean salaries.csv --column pay --bounds 0 1 --epsilon 1",
    "mean salaries.csv --column salary --bounds 0 1 --budget-column tier",
    "mean nowhere.csv --column salary --bounds 0 1 --epsilon 1",
    "mean empty.csv --column salary --bounds 0 1 --epsilon 1",
    "mean one.csv --column salary --bounds 0 1 --epsilon 1",
    "mean zero.csv --column salary --bounds 0 1 --budget-column epsilon",
    "mean zero.csv --column salary --bounds 0 1 --budget-column epsilon --person-column id",
    "mean negative.csv --column salary --bounds 0 1 --budget-column epsilon",
    "mean two.csv --column salary --bounds 0 1 --budget-column epsilon --person-column id",
    "mean nobody.csv --column salary --bounds 0 1 --epsilon 1 --person-column id",
    "mean salaries.csv --schema nowhere.toml",
    "mean salaries.csv --schema salaries.csv",
    "mean salaries.csv --schema draft.toml",
    "mean salaries.csv --schema tiers.toml",
    "quantile salaries.csv --column salary --bounds 0 1 --epsilon 1 --q 2",
    "quantile salaries.csv --column salary --bounds 0 1 --epsilon 1 --method guess",
    "quantile salaries.csv --column salary --bounds 0 1 --epsilon 1 --cells 1",
    "quantile salaries.csv --column salary --bounds 0 1 --epsilon 1 --spread 2",
    "ridge visits.csv",
    "ridge visits.csv --schema draft.toml",
    "ridge visits.csv --schema alone.toml --epsilon 1",
    f"{RIDGE} --method guess",
    f"{RIDGE} --method output --alpha 0",
    f"{RIDGE} --alpha nan",
    f"{RIDGE} --loss guess",
    f"{RIDGE} --label-scale 0",
    f"{RIDGE} --label-scale 1e9",
    "logistic visits.csv --schema clinic.toml",
    "logistic visits.csv --schema classes.toml --alpha 0",
    "logistic visits.csv --schema classes.toml --alpha 1e-12",
    "logistic visits.csv --schema classes.toml --neighbours nobody",
    "logistic visits.csv --schema classes.toml --public nowhere.csv",
    "logistic visits.csv --schema classes.toml --public one.csv",
    f"{POSTERIOR} --gamma 0",
    f"{POSTERIOR} --alpha -1",
    f"{POSTERIOR} --delta 2",
    f"{MEAN} --bounds 0 1 --ledger books.db --key k --short guess",
    f"{MEAN} --bounds 0 1 --ledger books.db --key k --short refuse",
    f"{MEAN} --bounds 0 1 --ledger books.db --key k",
    f"{MEAN} --bounds 0 1 --ledger nowhere.db --key k",
    f"{MEAN} --bounds 0 1 --ledger salaries.csv --key k",
    f"{MEAN} --bounds 0 1 --ledger books.db --key k --keys nowhere",
    "mean salaries.csv --column salary --bounds 0 1 --epsilon 1 --ledger books.db --key k",
    "mean salaries.csv --column salary --bounds 0 1 --epsilon 1 --person-column id --ledger "
    "bare.db --key k",
    f"{POSTERIOR} --ledger books.db --key k",
]
#: Words that are wrong for `release` alone, which reads values.
RELEASES = [
    "mean gaps.csv --column salary --bounds 0 1 --epsilon 1",
    "mean text.csv --column salary --bounds 0 1 --epsilon 1",
    "mean salaries.csv --column tier --bounds 0 1 --epsilon 1",
    "ridge gaps.csv --schema alone2.toml --epsilon 1",
    f"{MEAN} --bounds 0 1 --ledger books.db",
    f"{MEAN} --bounds 0 1 --out salaries.csv",
    f"{MEAN} --bounds 0 1 --out nowhere/x.json",
]
OTHERS = [
    "explain nowhere.json",
    "explain salaries.csv",
    "predict nowhere.json visits.csv",
    "predict mean.json visits.csv",
    "predict model.json salaries.csv",
    "predict model.json visits.csv --id-column prediction",
    "audit mean.json visits.csv --schema clinic.toml",
    "audit model.json other.csv --schema clinic.toml",
    "audit sample.json visits.csv",
    "audit sample.json visits.csv --schema clinic.toml --delta 2",
    "audit sample.json other.csv --schema clinic.toml",
    "audit",
    "audit --mine mean.json",
    "audit --mine sample.json --record clinic.toml",
    "schema draft nowhere.csv",
    "ledger grant salaries.csv --ledger books.db --budget-column tier",
    "ledger grant negative.csv --ledger books.db --person-column id",
    "ledger grant zero.csv --ledger books.db --person-column id --delta 0.1",
    "ledger grant zero.csv --ledger books.db --person-column id --currency epsilon-delta",
    "ledger grant zero.csv --ledger books.db --person-column id --currency gold",
    "ledger balance --person nobody --ledger books.db",
    "ledger statement --person nobody --out s.html --ledger books.db",
    "ledger verify mean.json --ledger books.db",
    "ledger unseal --reason x --ledger books.db",
    "ledger init books.db",
    "market sellers.csv --budget 1",
    "market sellers.csv --prior uniform:5:1 --budget 1",
    "market sellers.csv --prior guess:1:2 --budget 1",
    "market sellers.csv --prior uniform:1:5",
    "market sellers.csv --prior uniform:1:5 --budget -1",
    "market sellers.csv --prior uniform:1:5 --budget 1 --cap 0",
    "market sellers.csv --prior uniform:1:5 --budget 1 --rule guess",
    "market salaries.csv --prior uniform:1:5 --budget 1",
    "market sellers.csv --prior uniform:1:5 --budget 1 --explain nobody",
    "reproduce nothing",
    "serve --ledger nowhere.db --no-open",
    "serve --no-open",
]
#: One long column, as CSV.
TABLES = {
    "empty.csv": "id,salary,epsilon\n",
    "one.csv": "id,salary,epsilon\na,1,1\n",
    "zero.csv": "id,salary,epsilon\na,1,0\nb,2,0\n",
    "negative.csv": "id,salary,epsilon\na,1,-1\nb,2,1\n",
    "two.csv": "id,salary,epsilon\na,1,1\na,2,2\n",
    "nobody.csv": "id,salary,epsilon\na,1,1\n,2,1\n",
    "gaps.csv": "id,salary,epsilon\na,1,1\nb,,1\nc,2,1\n",
    "text.csv": "id,salary,epsilon\na,x,1\nb,y,1\n",
    "sellers.csv": "seller,cost\na,1\nb,2\nc,3\n",
    "grants.csv": "person,epsilon\nu1,0.01\nu2,0.01\n",
}
SCHEMAS = {
    "draft.toml": '[columns.salary]\nkind = "number"\n',
    "tiers.toml": (
        'label = "salary"\nbudget = "tier"\n[tiers]\nfree = 1\n[columns.salary]\nkind = '
        '"number"\nlow = 0\nhigh = 9\n'
    ),
    "alone.toml": 'label = "cost"\n[columns.cost]\nkind = "number"\nlow = 0\nhigh = 9\n',
    "alone2.toml": (
        'label = "salary"\n[columns.salary]\nkind = "number"\nlow = 0\nhigh = 9\n'
        '[columns.epsilon]\nkind = "number"\nlow = 0\nhigh = 9\n'
    ),
}


@pytest.fixture
def workspace(run, folder: Path, clinic: Path, model: Path, visits: pa.Table, monkeypatch) -> Path:
    """Everything that the lines speak of, in the working folder."""
    monkeypatch.chdir(folder)
    for name, text in {**TABLES, **SCHEMAS}.items():
        Path(name).write_text(text, encoding="utf-8")
    levels = 'label = "smoker"\n' + Path("clinic.toml").read_text().replace('label = "cost"\n', "")
    Path("classes.toml").write_text(levels)
    csv.write_csv(visits.slice(0, 50), "other.csv")
    for line in (
        "release mean salaries.csv --column salary --bounds 0 200000 --epsilon 1 --out mean.json",
        "release posterior visits.csv --schema clinic.toml --alpha 30 --out sample.json",
        "ledger init books.db",
        "ledger init bare.db",
        "ledger grant grants.csv --ledger books.db",
    ):
        assert run(*shlex.split(line)).exit_code == 0, line
    return folder


@pytest.mark.parametrize(
    "lines",
    [
        [f"plan {line}" for line in QUESTIONS],
        [f"release {line}" for line in (*QUESTIONS, *RELEASES)],
        OTHERS,
    ],
    ids=["plan", "release", "others"],
)
def test_no_refusal_speaks_python(run, workspace, lines):
    told = {line: run(*shlex.split(line)) for line in lines}
    assert {line: found.exit_code for line, found in told.items() if found.exit_code != 2} == {}
    python = [
        f"{line}\n{found.stderr}" for line, found in told.items() if PYTHON.search(found.stderr)
    ]
    assert python == [], "\n".join(python)


def test_the_check_can_fail():
    for sentence in (
        "Pass bounds=(low, high).",
        "Put sv.Uniform around it.",
        "Pass a Schema as bounds.",
        "Call grant.",
    ):
        assert PYTHON.search(sentence)
    for sentence in (
        "Pass --bounds LOW HIGH.",
        'Write kind = "factor" under [columns.x].',
        "λ = 1.",
        "Use --alpha.",
    ):
        assert not PYTHON.search(sentence)
