"""One line from the market to a statement, at the terminal, with no spreadsheet in between."""

from __future__ import annotations

import csv
import json

import pytest

import sottovoce as sv
from sale_tables import ODD_NAME, PATIENTS, name_person, write_files

MARKET = ("--prior", "uniform:1:5", "--budget", 100, "--coin", 0.01, "--features", 1)


@pytest.fixture
def sold(run, tmp_path):
    """A folder with an allocation and new books, and the lines of the allocation."""
    files = write_files(tmp_path)
    allocation = tmp_path / "allocation.csv"
    assert run("market", files["sellers.csv"], *MARKET, "--out", allocation).exit_code == 0
    books = tmp_path / "books.db"
    assert run("ledger", "init", books).exit_code == 0
    with allocation.open(encoding="utf-8") as lines:
        return tmp_path, list(csv.DictReader(lines))


def get_line(lines, person):
    return next(line for line in lines if line["seller"].lstrip("'") == person)


def test_from_the_market_to_the_statement(run, sold):
    folder, lines = sold
    books = folder / "books.db"
    allocation = folder / "allocation.csv"
    first = ("--sale", "--key", "May", "--money", "EUR", "--ledger", books)
    granted = run("ledger", "grant", allocation, *first)
    assert granted.exit_code == 0, granted.output
    total = sum(float(line["payment"]) for line in lines)
    assert f"for {total:.2f} EUR" in granted.output.replace("\n", " ")

    asked = ("--budgets", allocation, "--ledger", books)
    out = folder / "risk.json"
    made = run(
        "release", "logistic", folder / "patients.csv", "--schema", folder / "schema.toml",
        *asked, "--key", "risk of May", "--out", out,
    )  # fmt: skip
    assert made.exit_code == 0, made.output
    idle = sum(float(line["epsilon"]) == 0 for line in lines) + PATIENTS - len(lines)
    assert f"{idle} of {PATIENTS} people have no budget" in made.stderr.replace("\n", " ")
    assert json.loads(out.read_text())["guarantee"]["currency"] == "pure epsilon"

    model = folder / "cost.json"
    second = ("--sale", "--key", "June", "--money", "EUR", "--ledger", books)
    assert run("ledger", "grant", allocation, *second).exit_code == 0
    made = run(
        "release", "ridge", folder / "patients.csv", "--schema", folder / "cost.toml",
        "--method", "output-tight", "--spend-left", "--ledger", books,
        "--key", "cost of June", "--out", model,
    )  # fmt: skip
    assert made.exit_code == 0, made.output
    audited = run(
        "audit", model, folder / "patients.csv", "--schema", folder / "cost.toml",
        "--budgets", allocation, "--out", folder / "audit.html",
    )  # fmt: skip
    assert audited.exit_code == 0, audited.output

    line = get_line(lines, ODD_NAME)
    page = folder / "statement.html"
    told = run("ledger", "statement", "--person", ODD_NAME, "--out", page, "--ledger", books)
    assert told.exit_code == 0, told.output
    text = page.read_text(encoding="utf-8")
    paid = 2 * round(100 * float(line["payment"]))
    assert f"for {paid / 100:g} EUR." in text
    assert "Sold in 2 sales" in text
    assert "“risk of May”" in text
    assert "“cost of June”" in text
    key = run("ledger", "key", "--ledger", books).stdout.strip()
    assert run("ledger", "check", page, "--key", key).exit_code == 0
    forged = folder / "forged.html"
    forged.write_text(text.replace(f"for {paid / 100:g} EUR.", "for 9999 EUR."), encoding="utf-8")
    assert run("ledger", "check", forged, "--key", key).exit_code != 0
    assert run("ledger", "verify", out, model, "--ledger", books).exit_code == 0


def test_the_same_sale_is_added_once_and_a_second_one_adds(run, sold):
    folder, lines = sold
    books = folder / "books.db"
    grant = ("ledger", "grant", folder / "allocation.csv", "--sale", "--ledger", books)
    person = next(line["seller"] for line in lines if float(line["epsilon"]) > 0)
    once = float(get_line(lines, person)["epsilon"])
    session = sv.Session(ledger=f"sqlite:///{books}")
    for key, times in ((None, 1), (None, 1), ("again", 2), ("again", 2)):
        assert run(*grant, *(() if key is None else ("--key", key))).exit_code == 0
        assert session.balance(person) == pytest.approx(times * once, abs=1e-9)
    session.verify()


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (("--currency", "rho"), "another account"),
        (("--neighbours", "labels"), "another account"),
    ],
)
def test_a_sale_in_another_account_is_refused(run, sold, words, found):
    folder, _ = sold
    made = run(
        "ledger", "grant", folder / "allocation.csv", "--sale", *words,
        "--ledger", folder / "books.db",
    )  # fmt: skip
    assert made.exit_code != 0
    assert found in made.stderr


def test_a_price_without_a_sale_is_refused(run, sold):
    folder, _ = sold
    made = run(
        "ledger", "grant", folder / "allocation.csv", "--money", "EUR",
        "--ledger", folder / "books.db",
    )  # fmt: skip
    assert made.exit_code != 0
    assert "it is no sale" in made.stderr


@pytest.mark.parametrize(
    ("payment", "found"),
    [("-1", "negative"), ("nan", "cannot be read"), ("0.1234567890123456789", "")],
)
def test_payments_that_are_none_are_refused_before_anything_is_written(
    run, sold, tmp_path, payment, found
):
    folder, _ = sold
    odd = tmp_path / "odd.csv"
    odd.write_text(f"seller,epsilon,payment\nada,0.5,{payment}\nben,0.5,1\n", encoding="utf-8")
    books = folder / "books.db"
    made = run("ledger", "grant", odd, "--sale", "--ledger", books)
    if found:
        assert made.exit_code != 0
        assert found in made.stderr
        assert len(list(sv.Session(ledger=f"sqlite:///{books}").ledger.entries())) == 1
    sv.Session(ledger=f"sqlite:///{books}").verify()


def test_who_sold_nothing_is_refused_if_asked_for_and_what_was_sold_buys_nothing_else(run, sold):
    folder, _ = sold
    table = (folder / "patients.csv", "--schema", folder / "schema.toml")
    budgets = ("--budgets", folder / "allocation.csv")
    made = run("plan", "logistic", *table, *budgets, "--unknown", "refuse")
    assert made.exit_code != 0
    assert "somebody without a budget" in made.stderr
    made = run("plan", "logistic", *table, *budgets, "--neighbours", "labels")
    assert made.exit_code != 0
    assert "Sellers have sold pure epsilon by replace" in made.stderr.replace("\n", " ")


def test_spending_what_is_left_needs_a_ledger_and_no_budgets(run, sold):
    folder, _ = sold
    table = (folder / "patients.csv", "--schema", folder / "schema.toml")
    assert "no ledger" in run("plan", "logistic", *table, "--spend-left").stderr
    both = ("--spend-left", "--ledger", folder / "books.db", "--epsilon", 1)
    assert "Leave one of them out" in run("plan", "logistic", *table, *both).stderr
    stray = ("--unknown", "leave-out", "--epsilon", 1)
    assert "none can be missing" in run("plan", "logistic", *table, *stray).stderr


@pytest.mark.parametrize(
    ("question", "schema"), [("erm", "schema.toml"), ("adaptive-posterior", "cost.toml")]
)
def test_models_in_epsilon_at_delta_are_planned_and_released_at_the_terminal(
    run, tmp_path, question, schema
):
    files = write_files(tmp_path)
    asked = (question, files["patients.csv"], "--schema", files[schema], "--epsilon", 2)
    planned = run("plan", *asked)
    assert planned.exit_code == 0, planned.output
    made = run("release", *asked, "--out", tmp_path / "model.json")
    assert made.exit_code == 0, made.output
    assert sv.load(sv.Release.load(tmp_path / "model.json")).coef_.size


@pytest.mark.parametrize("question", ["mean", "labels"])
def test_whoever_is_left_out_of_a_release_is_left_out_of_its_audit(run, tmp_path, question):
    files = write_files(tmp_path)
    some = tmp_path / "some.csv"
    lines = [f"p{i:03d},2" for i in range(10, 60)]
    some.write_text("\n".join(["person,epsilon", "p009,0", *lines, ""]))
    table = (files["patients.csv"], "--schema", files["cost.toml"])
    budgets = ("--budgets", some, "--unknown", "leave-out")
    out = tmp_path / "answer.json"
    made = run("release", question, *table, *budgets, "--out", out)
    assert made.exit_code == 0, made.output
    page = ("--out", tmp_path / "audit.html", "--force")
    assert run("audit", out, *table, *budgets, *page).exit_code == 0
    refused = run("audit", out, *table, *budgets[:2], *page)
    assert "Nobody was charged" not in refused.stderr
    assert refused.exit_code == 2
    stray = run("audit", out, *table, "--epsilon", 2, "--unknown", "leave-out", *page)
    assert "none can be missing" in stray.stderr


def test_a_table_of_budgets_counts_and_not_a_column_that_the_schema_names(run, tmp_path):
    files = write_files(tmp_path)
    (header, *lines) = files["patients.csv"].read_text().splitlines()
    both = tmp_path / "both.csv"
    both.write_text("\n".join([f"{header},epsilon", *(f"{line},9" for line in lines), ""]))
    schema = tmp_path / "both.toml"
    schema.write_text('budget = "epsilon"\n' + files["cost.toml"].read_text())
    people = {line.split(",")[0] for line in lines}
    apart = tmp_path / "apart.csv"
    apart.write_text("\n".join(["person,epsilon", *(f"{name},2" for name in people), ""]))
    out = tmp_path / "labels.json"
    table = (both, "--schema", schema, "--budgets", apart)
    made = run("release", "labels", *table, "--out", out)
    assert made.exit_code == 0, made.output
    assert json.loads(out.read_text())["guarantee"]["epsilon"]["most"] <= 2
    assert run("audit", out, *table, "--out", tmp_path / "audit.html").exit_code == 0


def test_an_audit_with_other_budgets_than_the_release_had_is_refused_in_words(run, sold):
    folder, _ = sold
    table = (folder / "patients.csv", "--schema", folder / "schema.toml")
    out = folder / "risk.json"
    asked = ("--budgets", folder / "allocation.csv", "--out", out)
    assert run("release", "logistic", *table, *asked).exit_code == 0
    looked = run("audit", out, *table, "--epsilon", 0.5, "--out", folder / "audit.html")
    assert looked.exit_code == 2, looked.output
    assert "are not those that the release was planned with" in looked.stderr.replace("\n", " ")


def write_grants(folder, first=0):
    """What each of the patients allows from this one on: two in three less than 2."""
    grants = folder / "grants.csv"
    lines = [f"{name_person(i)},{0.5 + i / 100 if i % 3 else 5}" for i in range(first, PATIENTS)]
    grants.write_text("\n".join(["person,epsilon", *lines, ""]))
    return grants


@pytest.mark.parametrize(
    ("question", "words", "kind"),
    [
        ("mean", (), ()),
        ("ridge", (), ()),
        ("mean", ("--baseline", "threshold", "--threshold", 1), ()),
        ("labels", (), ("--neighbours", "labels")),
        (
            "adaptive-posterior",
            (),
            ("--neighbours", "zero-out", "--currency", "epsilon-delta", "--delta", 0.01),
        ),
    ],
)
@pytest.mark.parametrize("spent", [("--epsilon", 2), ("--spend-left",)])
def test_the_books_tell_an_audit_whom_a_release_left_out_and_what_it_spent(
    run, tmp_path, question, words, kind, spent
):
    """People are granted more afterwards, and charged."""
    if "--delta" in kind and "--spend-left" in spent:
        return  # what is left in ε at δ is not spent at once
    files = write_files(tmp_path)
    books = tmp_path / "books.db"
    run("ledger", "init", books)
    some = write_grants(tmp_path, 5 if "--spend-left" in spent else 0)
    assert run("ledger", "grant", some, *kind, "--ledger", books).exit_code == 0
    table = (files["patients.csv"], "--schema", files["cost.toml"])
    asked = ("release", question, *table, *words, "--ledger", books, *spent)
    out = tmp_path / "answer.json"
    made = run(*asked, "--key", "first", "--out", out)
    assert made.exit_code == 0, made.output
    assert "were left out" in made.stderr.replace("\n", " ")
    assert run("ledger", "grant", some, *kind, "--ledger", books).exit_code == 0
    run(*asked, "--key", "second", "--out", tmp_path / "second.json")
    page = ("--out", tmp_path / "audit.html", "--force")
    told = run("audit", out, *table, *spent, "--ledger", books, *page)
    assert told.exit_code == 0, told.output
    if "--epsilon" in spent:
        assert run("audit", out, *table, *spent, *page).exit_code == 2
    else:
        stray = run("audit", out, *table, *spent, *page)
        assert "no ledger says how much" in stray.stderr.replace("\n", " ")


def test_an_audit_from_other_books_or_with_other_budgets_is_refused(run, tmp_path):
    files = write_files(tmp_path)
    for name in ("books.db", "others.db"):
        run("ledger", "init", tmp_path / name)
        grants = (write_grants(tmp_path), "--ledger", tmp_path / name)
        assert run("ledger", "grant", *grants).exit_code == 0
    table = (files["patients.csv"], "--schema", files["cost.toml"])
    books = ("--ledger", tmp_path / "books.db")
    out = tmp_path / "mean.json"
    asked = ("--epsilon", 2, *books, "--key", "first", "--out", out)
    assert run("release", "mean", *table, *asked).exit_code == 0
    page = ("--out", tmp_path / "audit.html")
    for words, told in (
        (("--epsilon", 2, "--ledger", tmp_path / "others.db"), "was not booked in this ledger"),
        (("--epsilon", 1, *books), "are not those that the release was planned with"),
        (("--spend-left", *books), "are not those that the release was planned with"),
    ):
        refused = run("audit", out, *table, *words, *page)
        assert refused.exit_code == 2
        assert told in refused.stderr.replace("\n", " ")
    over = ("--epsilon", 2, *books, "--out", tmp_path / "books.db", "--force")
    assert run("audit", out, *table, *over).exit_code == 2
    assert run("audit", out, *table, "--epsilon", 2, *books, *page).exit_code == 0
