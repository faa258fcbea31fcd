"""Books at the terminal: begun on purpose, granted from tables, charged once for each key, verified
by anybody.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import sqlite3
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from typer.testing import CliRunner

from servers import postgres
from sottovoce.cli.ledger import ledger_app
from sottovoce.data.engines.arrow import ArrowEngine
from sottovoce.release import Release
from sottovoce.session import Session

SECRET = "Eleonora-731"
MEAN = ("--column", "salary", "--bounds", 0, 200_000, "--person-column", "id")
#: The steps of a release at which it can be cut short, and whether its people are charged by then.
STEPS = {
    "reserve: charged": False,
    "written": False,
    "reserve: committed": True,
    "reserve: witnessed": True,
    "publish: committed": True,
}


@pytest.fixture
def ledger():
    """Gives a command of `sottovoce ledger`; whatever it does, it never ends in a traceback."""

    def command(*words: object):
        result = CliRunner().invoke(ledger_app, [str(word) for word in words])
        assert result.exception is None or isinstance(result.exception, SystemExit)
        assert "Traceback" not in result.output
        return result

    return command


@pytest.fixture
def books(ledger, folder):
    """books.db, in which everybody in salaries.csv allows what the table says: 0.1, 0.5 or 2."""
    path = folder / "books.db"
    assert ledger("init", path).exit_code == 0
    granted = ledger("grant", folder / "salaries.csv", "--person-column", "id", "--ledger", path)
    assert "Granted by 600 people: entry 1" in granted.stdout
    return path


@pytest.fixture
def release(run, folder, books):
    """Releases a mean from the books."""

    def command(key, epsilon=0.1, *others, verb="mean"):
        line = (
            "release",
            verb,
            folder / "salaries.csv",
            *MEAN,
            "--ledger",
            books,
            "--key",
            key,
            *others,
        )
        return run(*line, *(() if epsilon is None else ("--epsilon", epsilon)))

    return command


def left(books, *people):
    session = Session(ledger=str(books))
    session.verify()
    return [session.balance(person) for person in people]


def test_a_release_is_charged_to_everybody_and_says_where_it_is_booked(release, ledger, books):
    made = release("may")
    assert made.exit_code == 0
    paper = Release.from_json(made.stdout).certificate.ledger
    assert f"Booked under the key 'may': entry 2, head {paper['head']}." in made.stderr
    assert "left out" not in made.stderr
    assert "No ledger remembers" not in made.stderr
    assert left(books, "u0", "u1", "u2") == [0, 0.4, 1.9]
    shown = ledger("balance", "--person", "u1", "--ledger", books)
    assert "pure ε, neighbours by replace" in shown.stdout
    assert re.findall("ε = ([0-9.]+)", shown.stdout) == ["0.5", "0.1", "0.4"]


def test_the_same_key_gives_the_same_bytes_and_costs_nothing(release, books, folder):
    first = release("may")
    before = left(books, "u0", "u1", "u2")
    again = release("may")
    assert again.exit_code == 0
    assert again.stdout == first.stdout
    assert "nobody was charged" in again.stderr
    release("may", 0.1, "--out", folder / "may.json")
    assert (folder / "may.json").read_text() == first.stdout
    assert left(books, "u0", "u1", "u2") == before


@pytest.mark.parametrize(
    "other", [{"epsilon": 0.2}, {"verb": "quantile"}, {"others": ("--spread", 500)}]
)
def test_the_same_key_for_another_plan_is_an_error(release, books, other):
    release("may")
    before = left(books, "u0", "u1", "u2")
    refused = release(
        "may", other.get("epsilon", 0.1), *other.get("others", ()), verb=other.get("verb", "mean")
    )
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert refused.stderr.startswith("KeyReused")
    assert left(books, "u0", "u1", "u2") == before


def test_people_short_of_budget_are_left_out_and_counted(release, books):
    made = release("june", 0.3)
    assert made.exit_code == 0
    assert "200 of 600 people had not enough left, and were left out." in made.stderr
    assert left(books, "u0", "u1", "u2") == [0.1, 0.2, 1.7]


def test_or_the_release_is_refused(release, books):
    refused = release("june", 0.3, "--short", "refuse")
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert refused.stderr.startswith("BudgetExceeded")
    assert release("june", 0.3, "--short", "sometimes").stderr.startswith("InvalidParameter")
    assert left(books, "u0", "u1", "u2") == [0.1, 0.5, 2]


def test_asking_more_than_anybody_has_left_says_so(run, release, books, folder):
    line = ("plan", "mean", folder / "salaries.csv", *MEAN, "--ledger", books, "--epsilon", 3)
    for refused in (release("june", 3), run(*line)):
        assert (refused.exit_code, refused.stdout) == (2, "")
        assert refused.stderr.startswith("BudgetExceeded: Nobody has as much left in the ledger")
        assert "has left: 2 (pure epsilon, replace)" in refused.stderr.replace("\n", " ")
    assert left(books, "u0", "u1", "u2") == [0.1, 0.5, 2]


def test_a_release_from_books_needs_a_key_and_people(run, folder, books, monkeypatch):
    monkeypatch.setattr(ArrowEngine, "fold", None)  # nothing is read
    table = folder / "salaries.csv"
    where = ("--ledger", books)
    for line, missing in (
        ((table, *MEAN, "--epsilon", 0.1), "--key"),
        ((table, *MEAN[:-2], "--epsilon", 0.1, "--key", "may"), "--person-column"),
    ):
        refused = run("release", "mean", *line, *where)
        assert refused.stderr.startswith("InvalidParameter")
        assert missing in refused.stderr


@pytest.mark.parametrize("step", STEPS)
def test_interrupted_anywhere_a_release_is_charged_once_or_not_at_all(
    release, books, monkeypatch, step
):
    def interrupt(reached):
        if reached == step:
            raise KeyboardInterrupt

    with monkeypatch.context() as seam:
        seam.setattr("sottovoce.ledger.fault_point", interrupt)
        cut = release("may")
    assert (cut.exit_code, cut.stdout) == (130, "")
    charged = STEPS[step]
    assert left(books, "u1") == [0.4 if charged else 0.5]
    again = release("may")
    assert left(books, "u1") == [0.4]
    if not charged:
        assert "Nobody was charged by this attempt." in cut.stderr
        assert again.exit_code == 0
    elif step == "publish: committed":
        assert "The release is in the ledger" in cut.stderr
        assert Release.from_json(again.stdout).question == "mean"
    else:
        assert "The key 'may' is reserved, and what was reserved stays spent" in cut.stderr
        assert again.exit_code == 2
        assert again.stderr.startswith("ReleaseFailed")


def test_a_disc_that_refuses_after_the_charge_says_how_to_get_the_release(
    release, folder, books, monkeypatch
):
    def refuse(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as full:
        full.setattr(os, "link", refuse)
        failed = release("may", 0.1, "--out", folder / "may.json")
    assert failed.exit_code == 2
    assert Release.from_json(failed.stdout).question == "mean", "what was paid for is not lost"
    assert "is on standard output" in failed.stderr
    assert "asking again under the key 'may' gives it, and costs nothing" in failed.stderr
    assert release("may", 0.1, "--out", folder / "may.json").exit_code == 0
    assert left(books, "u1") == [0.4]


@pytest.mark.parametrize("name", ["books.db", "books.db.key", "books.db.heads"])
def test_nothing_is_written_over_the_books(release, ledger, books, name):
    before = (books.parent / name).read_bytes()
    over = ("--out", books.parent / name, "--force")
    refusals = [
        release("may", 0.1, *over),
        ledger("export", "--ledger", books, *over),
        ledger("statement", "--person", "u1", "--ledger", books, *over),
    ]
    assert [refused.exit_code for refused in refusals] == [2, 2, 2]
    assert all("a file that is to be read" in refused.stderr for refused in refusals)
    assert (books.parent / name).read_bytes() == before


def test_books_are_never_begun_by_mistake(run, ledger, folder):
    for words in (
        ("balance", "--person", "u1"),
        ("history",),
        ("verify",),
        ("grant", folder / "salaries.csv"),
    ):
        assert (
            "LedgerUnavailable: There is no ledger at this place."
            in ledger(*words, "--ledger", folder / "b").stderr
        )
        assert ledger(*words).stderr.startswith("InvalidParameter: No ledger is named.")
    line = ("--epsilon", 0.1, "--key", "may", "--ledger", f"sqlite:///{folder / 'b'}")
    assert run("release", "mean", folder / "salaries.csv", *MEAN, *line).stderr.startswith(
        "LedgerUnavailable"
    )
    assert not list(folder.glob("b*"))
    assert ledger("init", folder / "nowhere" / "b").stderr.startswith("LedgerUnavailable")
    assert ledger("init", "oracle://b").stderr.startswith("UnsupportedLedger")


def test_books_that_have_begun_are_not_begun_again(ledger, books):
    refused = ledger("init", books)
    assert refused.exit_code == 2
    assert "There is a ledger at this place already." in refused.stderr
    assert left(books, "u1") == [0.5]


def test_the_environment_names_the_books(run, ledger, folder, books, monkeypatch):
    monkeypatch.setenv("SOTTOVOCE_LEDGER", str(books))
    made = run("release", "mean", folder / "salaries.csv", *MEAN, "--epsilon", 0.1, "--key", "may")
    assert "Booked under the key" in made.stderr
    assert "ε = 0.4" in ledger("balance", "--person", "u1").stdout


@pytest.mark.parametrize("verb", ["mean", "quantile", "ridge", "logistic", "posterior"])
def test_every_question_takes_the_words_of_the_books(run, verb):
    helped = run("release", verb, "--help").stdout
    assert all(
        option in helped
        for option in ("--ledger", "--keys", "--short", "--key", "SOTTOVOCE_LEDGER")
    )


@pytest.mark.parametrize("epsilon", [0.1, 0.3])
def test_a_plan_from_books_is_that_of_the_release_and_charges_nobody(
    run, release, books, folder, epsilon
):
    out = folder / "plan.json"
    line = ("--epsilon", epsilon, "--ledger", books, "--out", out)
    assert run("plan", "mean", folder / "salaries.csv", *MEAN, *line).exit_code == 0
    assert left(books, "u0", "u1", "u2") == [0.1, 0.5, 2]
    paper = Release.from_json(release("may", epsilon).stdout).certificate
    assert json.loads(out.read_text())["plan_digest"] == paper.plan_digest
    line = (*line, "--force")
    short = run("plan", "mean", folder / "salaries.csv", *MEAN, *line, "--short", "refuse")
    assert short.stderr.startswith("BudgetExceeded")
    nobody = run("plan", "mean", folder / "salaries.csv", *MEAN[:-2], *line)
    assert nobody.stderr.startswith("InvalidParameter: Rows do not say whose they are.")


BAD = {
    "a negative amount": (f"person,epsilon\na,1\n{SECRET},-731\n", "InvalidBudget"),
    "text for an amount": (f"person,epsilon\na,1\nb,{SECRET}\n", "WrongType"),
    "no amount": (f"person,epsilon\na,1\n{SECRET},\n", "InvalidBudget"),
    "NaN": (f"person,epsilon\na,1\n{SECRET},nan\n", "InvalidBudget"),
    "infinite": (f"person,epsilon\na,1\n{SECRET},inf\n", "InvalidBudget"),
    "beyond meaning": (f"person,epsilon\na,1\n{SECRET},1e7\n", "InvalidBudget"),
    "nobody": ("person,epsilon\na,1\n,0.731\n", "UnknownPeople"),
    "twice, and different": (f"person,epsilon\n{SECRET},1\n{SECRET},0.731\n", "InconsistentBudget"),
    "a line too long": (f"person,epsilon\na,1,{SECRET}\n", "WrongType"),
    "no column of people": ("name,epsilon\na,1\n", "MissingColumn"),
    "two columns of people": ("person,seller,epsilon\na,b,1\n", "MissingColumn"),
    "no column of amounts": ("person,eps\na,1\n", "MissingColumn"),
    "no lines": ("person,epsilon\n", "TooFewRows"),
    "nothing": ("", "InvalidData"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_grants_are_named_sentences_and_nothing_is_written(ledger, books, tmp_path, name):
    content, error = BAD[name]
    (tmp_path / "bad.csv").write_text(content)
    refused = ledger("grant", tmp_path / "bad.csv", "--ledger", books)
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert refused.stderr.startswith(error)
    assert "731" not in refused.stderr
    assert ledger("history", "--ledger", books).stdout.count("grant") == 1


@pytest.mark.parametrize(
    "words",
    [
        ("--currency", "money"),
        ("--neighbours", "friends"),
        ("--delta", 0.1),
        ("--currency", "epsilon-delta"),
    ],
)
def test_words_of_a_grant_outside_their_range(ledger, books, folder, words):
    line = ("grant", folder / "salaries.csv", "--person-column", "id", "--ledger", books)
    assert ledger(*line, *words).stderr.startswith("InvalidParameter")


def test_an_allocation_of_the_market_is_a_table_of_grants(run, ledger, books, tmp_path):
    reports = [
        ("seller", "cost"),
        ("=1+1", 1.2),
        ("'=x", 1.3),
        ("'plain", 1.4),
        ("ada", 2.0),
        ("dear", 4.9),
    ]
    (tmp_path / "sellers.csv").write_text(
        "\n".join(f"{name},{cost}" for name, cost in reports) + "\n"
    )
    line = ("--prior", "uniform:1:5", "--budget", 2, "--out", tmp_path / "allocation.csv", "--json")
    sold = json.loads(run("market", tmp_path / "sellers.csv", *line).stdout)["allocation"]
    assert any(seller["epsilon"] > 0 for seller in sold)
    assert ledger("grant", tmp_path / "allocation.csv", "--ledger", books).exit_code == 0
    for seller in sold:
        assert left(books, seller["seller"]) == [pytest.approx(seller["epsilon"], abs=1e-9)]


def test_people_by_number_are_those_of_other_tables(ledger, books, tmp_path):
    pq.write_table(pa.table({"who": [17, 18], "rho": [0.25, 0.5]}), tmp_path / "g.parquet")
    line = (
        "--person-column",
        "who",
        "--budget-column",
        "rho",
        "--currency",
        "rho",
        "--neighbours",
        "labels",
    )
    assert ledger("grant", tmp_path / "g.parquet", *line, "--ledger", books).exit_code == 0
    shown = ledger("balance", "--person", "17", "--ledger", books).stdout
    assert "ρ of zCDP, neighbours by replace labels" in shown
    assert "ρ = 0.25" in shown
    pq.write_table(pa.table({"person": [1.5], "epsilon": [1.0]}), tmp_path / "floats.parquet")
    assert ledger("grant", tmp_path / "floats.parquet", "--ledger", books).stderr.startswith(
        "WrongType"
    )


def test_an_epsilon_at_delta_is_charged_to_two_accounts(run, ledger, clinic):
    books = clinic / "books.db"
    line = ("--schema", clinic / "clinic.toml", "--gamma", 0.01, "--alpha", 100)
    ledger("init", books)
    grant = (
        "grant",
        clinic / "visits.csv",
        "--person-column",
        "id",
        "--neighbours",
        "zero-out",
        "--ledger",
        books,
    )
    assert ledger(*grant, "--currency", "epsilon-delta", "--delta", 1.5e-6).exit_code == 0
    words = (
        "release",
        "posterior",
        clinic / "visits.csv",
        *line,
        "--epsilon",
        0.1,
        "--ledger",
        books,
    )
    made = run(*words, "--key", "one")
    assert made.exit_code == 0, made.stderr
    assert "were left out" not in made.stderr
    shown = ledger("balance", "--person", "u1", "--ledger", books).stdout
    assert "ε at δ, neighbours by zero out" in shown
    assert "δ = 5e-7" in shown
    assert run(*words, "--key", "two").exit_code == 2, "nobody has a second δ of a millionth"


def test_history_names_nobody_unless_asked(release, ledger, books):
    release("may\x1b]0;owned\x07")
    shown = ledger("history", "--ledger", books).stdout
    assert [line.split()[3] for line in shown.splitlines()[1:]] == [
        "open",
        "grant",
        "reserve",
        "publish",
    ]
    assert "\x1b" not in shown
    assert not re.search(r"\bu[0-9]+\b", shown)
    own = " ".join(ledger("history", "--person", "u1", "--ledger", books).stdout.split())
    assert "allowed in all (pure ε, neighbours by replace) ε = 0.5" in own
    line = "(pure ε, neighbours by replace; ε = 0.1 changes odds by a factor of at most 1.106)"
    assert f"published {line}" in own
    assert ledger("history", "--person", SECRET, "--ledger", books).stderr.startswith(
        "UnknownPeople"
    )


def test_verify_finds_a_changed_balance(release, ledger, books):
    release("may")
    with sqlite3.connect(books) as database:
        database.execute("UPDATE accounts SET spent = 0")
    database.close()
    assert ledger("verify", "--ledger", books).stderr.startswith("LedgerBroken")


def test_verify_finds_a_changed_release_and_one_of_other_books(release, run, ledger, books, folder):
    out = folder / "may.json"
    release("may", 0.1, "--out", out)
    release("june", 0.1, "--out", folder / "june.json")
    good = ledger("verify", out, folder / "june.json", "--ledger", books)
    assert good.exit_code == 0
    assert "The ledger adds up, and all 2 releases are in it: 6 entries, head " in good.stdout
    made = Release.load(out)
    changed = {**made.__dict__, "value": made.value + 1}
    out.write_text(Release(**changed).to_json())
    assert ledger("verify", out, "--ledger", books).stderr.startswith("InvalidRelease")
    alone = run("release", "mean", folder / "salaries.csv", *MEAN, "--epsilon", 1).stdout
    out.write_text(alone)
    assert ledger("verify", out, "--ledger", books).stderr.startswith("InvalidParameter")


def test_older_books_are_sealed_until_somebody_says_why_they_are_good(
    release, ledger, books, folder
):
    older = books.read_bytes()
    release("may", 0.1, "--out", folder / "may.json")
    books.write_bytes(older)
    for ending in ("-wal", "-shm"):
        (books.parent / f"books.db{ending}").unlink(missing_ok=True)
    refused = release("june")
    assert refused.exit_code == 2
    assert "LedgerSealed" in refused.stderr
    assert "This ledger is sealed" in ledger("balance", "--person", "u1", "--ledger", books).stderr
    assert ledger("verify", folder / "may.json", "--ledger", books).exit_code == 2
    assert ledger("unseal", "--reason", "  ", "--ledger", books).exit_code == 2
    assert ledger("unseal", "--reason", "the disc of May is lost", "--ledger", books).exit_code == 0
    assert release("june").exit_code == 0
    assert "unseal" in ledger("history", "--ledger", books).stdout
    assert ledger("unseal", "--reason", "again", "--ledger", books).stderr.startswith(
        "InvalidParameter"
    )


def test_a_stranger_checks_an_export_without_key_and_names(release, ledger, books, folder):
    release("may")
    release("june", 0.3)
    out = folder / "books.jsonl"
    assert ledger("export", "--ledger", books, "--out", out).exit_code == 0
    head, spent = _checked(out.read_text())
    assert head in ledger("verify", "--ledger", books).stdout
    assert sorted(set(spent.values())) == [100_000_000, 400_000_000]
    assert not any(f'"u{person}"' in out.read_text() for person in range(600))
    forged = out.read_text().replace(f"{100_000_000:016x}", f"{100_000_001:016x}", 1)
    with pytest.raises(AssertionError):
        _checked(forged)


def _checked(text):
    """Recomputes an export with nothing of this library: the head, and what each digest has
    spent.
    """
    about, *rows = map(json.loads, text.splitlines())
    public = Ed25519PublicKey.from_public_bytes(bytes.fromhex(about["key"]))
    before = bytes(32)
    spent = {}
    granted = {}
    lines = []
    entry = None
    for row in [*rows, {"entry": None}]:
        if "line" in row:
            lines.append(bytes.fromhex(row["line"]))
            continue
        if entry is not None:
            if lines:
                root = _root([hashlib.sha256(line).digest() for line in lines])
            else:
                root = bytes(32)
            assert entry["what"] in ("publish", "open") or root.hex() == entry["root"]
            told = [entry[n] for n in ("number", "what", "key", "request", "at", "lines", "root")]
            text = json.dumps([*told, before.hex()], ensure_ascii=False, separators=(",", ":"))
            before = hashlib.sha256(text.encode()).digest()
            assert before.hex() == entry["digest"]
            signed = (
                f"sottovoce entry\n{about['ledger']}\n{entry['number']}\n{before.hex()}\n".encode()
            )
            public.verify(bytes.fromhex(entry["signature"]), signed)
            for line in lines:
                if entry["what"] == "grant":
                    sums = granted
                else:
                    sums = spent
                sums[line[1:18]] = int.from_bytes(line[18:]) + (
                    0 if sums is granted else sums.get(line[1:18], 0)
                )
        entry = row["entry"]
        lines = []
    assert all(amount <= granted[account] for account, amount in spent.items())
    return before.hex(), spent


def _root(level):
    while len(level) > 1:
        level = [
            hashlib.sha256(b"\1" + b"".join(level[i : i + 64])).digest()
            for i in range(0, len(level), 64)
        ]
    return level[0]


def test_a_password_is_never_repeated(run, ledger, folder):
    address = "postgresql://curator:hunter2@127.0.0.1:1/books?connect_timeout=1"
    where = ("--ledger", address, "--keys", folder)
    line = ("release", "mean", folder / "salaries.csv", *MEAN, "--epsilon", 1, "--key", "k", *where)
    for result in (ledger("init", address, "--keys", folder), ledger("verify", *where), run(*line)):
        assert result.exit_code == 2
        assert result.stderr.startswith("LedgerUnavailable")
        assert "hunter2" not in result.output
    assert "hunter2" not in ledger("init", "--help").output
    assert os.environ.get("SOTTOVOCE_LEDGER") is None


def test_the_same_words_on_postgresql(run, ledger, folder):
    with postgres() as address:
        where = ("--ledger", address, "--keys", folder / "keys")
        assert ledger("init", address, "--keys", folder / "keys").exit_code == 0
        assert (
            ledger("grant", folder / "salaries.csv", "--person-column", "id", *where).exit_code == 0
        )
        line = (
            "release",
            "mean",
            folder / "salaries.csv",
            *MEAN,
            "--epsilon",
            0.3,
            "--key",
            "may",
            *where,
        )
        made = run(*line)
        again = run(*line)
        assert "200 of 600 people had not enough left" in made.stderr
        assert again.stdout == made.stdout
        assert "ε = 0.2" in ledger("balance", "--person", "u1", *where).stdout
        (folder / "may.json").write_text(made.stdout)
        assert ledger("verify", folder / "may.json", *where).exit_code == 0
        key = next((folder / "keys").glob("*.key"))
        assert run(*line, "--out", key).exit_code == 2
        page = folder / "u1.html"
        head = ledger("statement", "--person", "u1", "--out", page, *where).stdout.split()[1]
    assert ledger("check", page, "--head", head).exit_code == 0


def test_anybody_checks_a_release_with_the_public_key(release, ledger, books, folder):
    out = folder / "may.json"
    release("may", 0.1, "--out", out)
    printed = ledger("key", "--ledger", books)
    key = printed.stdout.strip()
    fingerprint = printed.stderr.split("Fingerprint ")[1].strip()
    assert key == Release.load(out).certificate.ledger["key"]
    alone = ledger("check-release", out)
    assert fingerprint in alone.stdout
    assert "Compare it" in alone.stderr
    assert ledger("check-release", out, "--key", key).exit_code == 0
    assert ledger("check-release", out, "--key", "00" * 32).stderr.startswith("InvalidRelease")
    assert ledger("check-release", out, "--key", "nonsense").stderr.startswith("InvalidParameter")
    made = Release.load(out)
    out.write_text(Release(**{**made.__dict__, "value": made.value + 1}).to_json())
    assert ledger("check-release", out, "--key", key).stderr.startswith("InvalidRelease")


def test_a_statement_is_checked_with_the_public_key_alone(release, ledger, books, folder):
    release("may", 0.1)
    page = folder / "u1.html"
    assert ledger("statement", "--person", "u1", "--out", page, "--ledger", books).exit_code == 0
    key = ledger("key", "--ledger", books).stdout.strip()
    assert "has signed entry 3" in ledger("check", page, "--key", key).stdout
    assert ledger("check", page).stderr.startswith("InvalidParameter")
    assert ledger("check", page, "--key", "00" * 32).stderr.startswith("LedgerBroken")
    text = page.read_text()
    signature = re.search('"signature": "([0-9a-f]{128})"', text)[1]
    for other in ("00" * 64, "", "zz"):
        page.write_text(text.replace(signature, other))
        assert ledger("check", page, "--key", key).exit_code == 2


def test_an_upgrade_says_what_can_no_longer_be_proved(ledger, tmp_path):
    text = (Path(__file__).parent.parent / "ledgers" / "earlier_books.sql").read_text(
        encoding="utf-8"
    )
    books = tmp_path / "books.db"
    database = sqlite3.connect(books)
    database.executescript(text)
    number, digest = database.execute(
        "SELECT number, digest FROM entries ORDER BY number DESC LIMIT 1"
    ).fetchone()
    database.close()
    (tmp_path / "books.db.key").write_bytes(bytes.fromhex(text.split()[2]))
    (tmp_path / "books.db.heads").write_text(f"\nseen {number} {digest.hex()}\n")
    assert (
        "sottovoce ledger upgrade" in ledger("balance", "--person", "p1", "--ledger", books).stderr
    )
    done = ledger("upgrade", "--ledger", books)
    assert f"signed from entry {number + 1}" in done.stdout
    assert f"Entries 0 to {number} add up" in done.stderr
    assert "could have written them anew" in " ".join(done.stderr.split())
    assert ledger("upgrade", "--ledger", books).stderr.startswith("InvalidParameter")
    assert ledger("verify", "--ledger", books).exit_code == 0


def test_witnesses_at_the_terminal(release, ledger, books, folder):
    log = f"log:{folder}/log"
    share = f"file:{folder}/share"
    assert ledger("witness", "add", log, "--ledger", books).exit_code == 0
    assert ledger("witness", "add", share, "--ledger", books).exit_code == 0
    assert ledger("witness", "list", "--ledger", books).stdout.split("\n")[:2] == [
        f"1 {log}",
        f"2 {share}",
    ]
    assert release("may", 0.1).exit_code == 0
    checked = ledger("witness", "check", "--ledger", books)
    assert checked.exit_code == 0
    assert "3 heads, the newest of entry 3; 3 tree heads are signed and consistent" in " ".join(
        checked.stdout.split()
    )
    assert "2 of 2 witnesses were asked" in ledger("verify", "--ledger", books).stdout
    (folder / "share").unlink()
    assert "Not asked" in ledger("balance", "--person", "u1", "--ledger", books).stderr
    assert "LedgerUnavailable" in ledger("witness", "check", "--ledger", books).stderr
    assert "1 of 2 witnesses were asked" in ledger("verify", "--ledger", books).stdout
    assert ledger("witness", "remove", 3, "--ledger", books).exit_code == 2
    assert ledger("witness", "remove", 2, "--ledger", books).exit_code == 0
    assert ledger("witness", "check", "--ledger", books).exit_code == 0


def test_the_password_of_a_witness_is_not_printed(ledger, books, folder):
    refused = ledger(
        "witness", "add", f"postgresql://me:{SECRET}@/x?host={folder}", "--ledger", books
    )
    assert refused.exit_code == 2
    assert SECRET not in refused.output
    (folder / "books.db.witnesses").write_text(f"postgresql://me:{SECRET}@/x?host={folder}\n")
    for words in (("list",), ("check",)):
        assert SECRET not in ledger("witness", *words, "--ledger", books).output


def test_the_sql_for_roles_is_printed_line_by_line(ledger):
    printed = ledger("roles", "--reader", "r", "--granter", "g", "--writer", "w").stdout
    assert 'GRANT UPDATE (spent) ON sottovoce.accounts TO "w";\n' in printed
