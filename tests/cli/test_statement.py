"""A person's statement: what it shows is what the books prove, and whoever changes a byte of it is
found out.
"""

from __future__ import annotations

import hashlib
import math
import re
import sqlite3
from dataclasses import replace

import pytest
from typer.testing import CliRunner

import sottovoce as sv
from sottovoce import ledger
from sottovoce.accounting.renyi import zcdp_epsilon
from sottovoce.cli.ledger import ledger_app
from sottovoce.errors import InvalidParameter, LedgerBroken
from sottovoce.ledger import ACCOUNTS, Line
from sottovoce.ledgers import hash_chain
from sottovoce.ledgers.statement import AccountBalance, ProvedLine, Statement, sum_accounts
from sottovoce.report.ledger import (
    CONVERSION_NOTES,
    READ_AT,
    explain_odds,
    explain_protection,
    make_line_cells,
    make_statement_page,
    read_statement,
)
from sottovoce.units import UNITS_PER_EPSILON

#: What a hostile curator might call a release, or a person themselves.
HOSTILE = '</script><script>alert("x")</script><b>&amp;'
#: Every so many characters of the page one is changed; a prime, so that all columns of hexadecimal
#: lines are met.
STRIDE = 211


@pytest.fixture(scope="module")
def session(tmp_path_factory):
    """Books of 5000 people, three levels deep: a grant, two releases, one never published, one
    charge from outside.
    """
    books = sv.Session(ledger=f"sqlite:///{tmp_path_factory.mktemp('books') / 'books.db'}")
    people = [f"p{i:04d}" for i in range(5000)]
    books.grant(dict.fromkeys(people, 1.0))
    books.grant(dict.fromkeys(people[:3], 0.25), currency="zCDP rho")
    values = [i % 10 for i in range(5000)]
    for key, epsilon in (("mean of May", 0.1), (HOSTILE, 0.2)):
        books.release(sv.Mean(bounds=(0, 10)), values, groups=people, epsilon=epsilon, key=key)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sottovoce.estimators.mean.draw_noisy_values", None)
        with pytest.raises(sv.errors.ReleaseFailed):
            books.release(
                sv.Mean(bounds=(0, 10)), values, groups=people, epsilon=0.05, key="crashed"
            )
    books.charge({"p0017": 0.025}, key="survey of 2019")
    return books


@pytest.fixture(scope="module")
def statement(session):
    return Statement.of(session.ledger, "p0017")


@pytest.fixture(scope="module")
def shown(statement):
    return make_statement_page(statement)


def command(*words):
    result = CliRunner().invoke(ledger_app, [str(word) for word in words])
    assert result.exception is None or isinstance(result.exception, SystemExit)
    return result


def text(shown):
    """What a reader sees: the page without its style, its proof and its tags."""
    visible = re.sub(r"<(style|script).*?</\1>", "", shown, flags=re.DOTALL)
    return " ".join(re.sub(r"<[^>]*>", " ", visible).split())


def test_the_page_shows_what_the_books_know(session, statement, shown):
    assert sum_accounts(statement.lines()) == sum_accounts(session.history("p0017"))
    assert [account.remaining for account in sum_accounts(statement.lines())] == [625_000_000]
    assert session.balance("p0017") == 0.625
    seen = text(shown)
    assert "pure ε, neighbours by replace ε = 1 ε = 0.375 ε = 0.625" in seen
    assert "the release “mean of May”, published" in seen
    assert "the release “crashed”, begun and never published; it stays spent" in seen
    assert "spent elsewhere, “survey of 2019”" in seen
    assert (
        "so far changes the odds of any guess about your data by a factor of at most 1.455 (ε = "
        "0.375)." in seen
    )
    assert "will have changed by a factor of at most 2.719 (ε = 1)." in seen
    assert statement.head in seen


def test_nobody_else_is_named_and_nothing_is_loaded_or_run(session, shown):
    assert set(re.findall(r"p[0-9]{4}", shown)) == {"p0017"}
    others = session.ledger.lines(1)["person"]
    assert sum(digest.tobytes().hex() in shown for digest in others) == 1
    assert re.findall(r"<script[^>]*>", shown) == ['<script type="application/json" id="proof">']
    assert not re.search(r"""(src|href)=|url\(|@import|\bon[a-z]+=""", shown.split("<script")[0])


def test_a_stranger_checks_it_with_a_head_alone(session, shown, statement, tmp_path):
    path = tmp_path / "p.html"
    path.write_text(shown)
    held = command("check", path, "--head", f" {statement.head.upper()}\n")
    assert held.exit_code == 0
    assert "This statement holds" in held.stdout
    assert re.findall("ε = ([0-9.]+)", held.stdout) == ["1", "0.375", "0.625"]
    assert "Not confirmed" not in held.stdout


def test_a_head_confirms_what_came_before_it_and_nothing_after(session, shown, tmp_path):
    (tmp_path / "p.html").write_text(shown)
    paper = sv.Release.from_json(session.ledger.find("mean of May").release).certificate.ledger
    held = command("check", tmp_path / "p.html", "--head", paper["head"])
    assert held.exit_code == 0
    assert f"came later: entries {paper['entry'] + 1} to " in held.stdout
    assert re.findall("ε = ([0-9.]+)", held.stdout) == ["1", "0.1", "0.9"]


@pytest.mark.parametrize("head", ["0" * 64, "", "head", "é"])
def test_another_head_is_not_confirmed(shown, tmp_path, head):
    (tmp_path / "p.html").write_text(shown)
    refused = command("check", tmp_path / "p.html", "--head", head)
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert refused.stderr.startswith("LedgerBroken: This statement does not lead to this head.")


def test_a_change_of_one_character_anywhere_is_found(shown, statement):
    amounts = [m.start() + 4 for m in re.finditer("ε = [0-9]", shown)]
    packed = [
        place
        for m in re.finditer(r'"packed": "([0-9a-f]+)"', shown)
        for place in range(m.start(1), m.end(1))
    ]
    assert len(amounts) >= 7
    assert len(packed) == 52 * len(statement.proved)
    assert _found(shown, statement, 0), "the check can pass"
    places = sorted({*amounts, *packed, *range(1, len(shown), STRIDE)})
    assert [place for place in places if _found(shown, statement, place)] == []


def _found(shown, statement, place):
    """Whether the page still passes with the lowest bit of one character turned; at 0 nothing is
    turned.
    """
    if place == 0:
        changed = shown
    else:
        changed = shown[:place] + chr(ord(shown[place]) ^ 1) + shown[place + 1 :]
    try:
        read_statement(changed).confirm_head(statement.head)
    except (LedgerBroken, InvalidParameter):
        return False
    return True


FORGERIES = {
    "another amount": lambda first, *rest: (
        replace(first, packed=_with_amount(first, 2 * 10**9)),
        *rest,
    ),
    "another entry": lambda first, *rest: (replace(first, number=first.number + 1), *rest),
    "another account": lambda first, *rest: (replace(first, packed=_with_account(first, 1)), *rest),
    "a step too few": lambda first, *rest: (replace(first, steps=first.steps[:-1]), *rest),
    "a line twice": lambda first, *rest: (first, first, *rest),
    "nothing": lambda *_: (),
}


@pytest.mark.parametrize("name", FORGERIES)
def test_a_page_made_anew_around_a_changed_proof_is_found(statement, name):
    forged = make_statement_page(replace(statement, proved=FORGERIES[name](*statement.proved)))
    with pytest.raises(LedgerBroken):
        read_statement(forged)


def _with_amount(line, units):
    return line.packed[:-8] + units.to_bytes(8, "big")


def _with_account(line, code):
    return line.packed[:17] + bytes([code]) + line.packed[18:]


def test_a_node_of_the_tree_does_not_pass_for_a_line(statement):
    first = statement.proved[0]
    children = b"\1" + b"".join([*first.steps[0].before, _leaf(first), *first.steps[0].after])
    with pytest.raises(LedgerBroken):
        replace(
            statement, proved=(ProvedLine(first.number, children, first.steps[1:]),)
        ).refuse_unproved()


def _leaf(line):
    return hashlib.sha256(line.packed).digest()


def test_a_whole_chain_made_anew_does_not_lead_to_the_published_head(statement):
    first = statement.proved[0]
    more = ProvedLine(first.number, _with_amount(first, 2 * 10**9), ())
    entries = []
    before = hash_chain.NO_DIGEST
    for entry in statement.entries[:2]:
        if entry.number == first.number:
            bare = replace(entry, root=_leaf(more))
        else:
            bare = entry
        before = hash_chain.digest_entry(bare, before)
        entries.append(replace(bare, digest=before))
    forged = replace(statement, entries=tuple(entries), proved=(more,))
    with pytest.raises(LedgerBroken):
        read_statement(make_statement_page(forged))  # nobody has signed it


def test_a_chain_signed_by_somebody_else_leads_neither_to_the_published_head_nor_key(statement):
    stranger = sv.Session()
    stranger.grant({"p0017": 5.0})
    forged = read_statement(make_statement_page(Statement.of(stranger.ledger, "p0017")))
    with pytest.raises(LedgerBroken):
        forged.confirm_head(statement.head)
    with pytest.raises(LedgerBroken):
        forged.refuse_other_key(statement.key)
    with pytest.raises(LedgerBroken):
        replace(forged, key=statement.key).refuse_unproved()
    with pytest.raises(LedgerBroken):
        replace(forged, key="", signature="").refuse_unproved()


def test_lines_of_two_people_are_no_statement(session, statement):
    other = Statement.of(session.ledger, "p0018")
    with pytest.raises(LedgerBroken):
        replace(statement, proved=(statement.proved[0], other.proved[1])).refuse_unproved()


def test_a_page_of_another_version_is_refused_and_says_so(statement, shown, tmp_path):
    older = make_statement_page(replace(statement, made_by="sottovoce 0.0.9")).replace(
        "<h1>", "<h1 class='old'>"
    )
    (tmp_path / "p.html").write_text(older)
    refused = command("check", tmp_path / "p.html", "--head", statement.head)
    assert refused.exit_code == 2
    assert "it says: sottovoce 0.0.9" in refused.stderr


@pytest.mark.parametrize(
    "content", ["", "<html></html>", '<script type="application/json" id="proof">\n{}</script>']
)
def test_what_is_no_statement(tmp_path, content):
    (tmp_path / "p.html").write_text(content)
    assert command("check", tmp_path / "p.html", "--head", "0" * 64).stderr.startswith(
        "InvalidParameter"
    )
    assert command("check", tmp_path / "nowhere.html", "--head", "0" * 64).stderr.startswith(
        "InvalidParameter"
    )


def test_hostile_names_are_text(shown):
    assert "&lt;/script&gt;&lt;script&gt;alert(&quot;x&quot;)" in shown
    assert shown.count("</script>") == 1
    books = sv.Session()
    books.grant({HOSTILE: 1.0})
    own = make_statement_page(Statement.of(books.ledger, HOSTILE))
    assert read_statement(own).person == HOSTILE
    assert own.count("</script>") == 1


@pytest.fixture
def file(tmp_path):
    books = tmp_path / "books.db"
    sv.Session(ledger=str(books)).grant({"ada": 1.0, "ben": 0.5})
    return books


def test_a_statement_is_for_its_owner_and_checks_without_the_books(file, tmp_path):
    out = tmp_path / "ada.html"
    made = command("statement", "--person", "ada", "--ledger", file, "--out", out)
    assert made.exit_code == 0
    assert out.stat().st_mode & 0o777 == 0o600
    for path in tmp_path.glob("books.db*"):
        path.unlink()
    assert command("check", out, "--head", made.stdout.split()[1]).exit_code == 0


def test_somebody_unknown_has_no_statement(file, tmp_path):
    refused = command(
        "statement", "--person", "cid", "--ledger", file, "--out", tmp_path / "cid.html"
    )
    assert refused.stderr.startswith("UnknownPeople")
    assert "cid" not in refused.stderr
    assert not (tmp_path / "cid.html").exists()


def test_books_that_were_changed_give_no_statement(file, tmp_path):
    with sqlite3.connect(file) as database:
        database.execute("UPDATE lines SET amount = amount + 1 WHERE amount = 500000000")
    database.close()
    for person in ("ada", "ben"):
        refused = command(
            "statement", "--person", person, "--ledger", file, "--out", tmp_path / "p.html"
        )
        assert refused.stderr.startswith("LedgerBroken")
    assert not (tmp_path / "p.html").exists()


def test_a_grant_lowered_below_what_is_spent_leaves_nothing():
    lines = [
        Line(n, "", what, "", ACCOUNTS[0], amount, "")
        for n, what, amount in (
            (1, "grant", 1.0),
            (2, "reserve", 0.3),
            (3, "charge", 0.2),
            (4, "grant", 0.4),
        )
    ]
    (account,) = sum_accounts(lines)
    assert (account.granted, account.spent, account.remaining) == (400_000_000, 500_000_000, 0)


@pytest.mark.parametrize("name", ACCOUNTS)
def test_every_account_is_told_exactly_and_in_words(name):
    account = AccountBalance(name, granted=500_000_001, spent=100_000_000)
    assert (
        float(account.format_amount(account.granted).split(" = ")[1]) * account.units_per_one
        == account.granted
    )
    assert account.description.endswith(f"neighbours by {account.neighbours}")
    sums = (
        ledger.compose_accounts({name: account.spent}, READ_AT),
        ledger.compose_accounts({name: account.granted}, READ_AT),
    )
    sentence, *how = explain_odds([account])
    told = [
        float(factor.replace(",", ""))
        for factor in re.findall(r"at most ([0-9,]+[.][0-9]{3})", sentence)
    ]
    for factor, found in zip(told, sums, strict=True):
        assert (
            math.exp(found.epsilon / UNITS_PER_EPSILON)
            <= factor
            <= math.exp(found.epsilon / UNITS_PER_EPSILON) + 1.001e-3
        )
    deltas = re.findall("except with a probability of about δ = ([0-9.]+)[.( ]", sentence)
    assert len(deltas) == sum(found.delta > 0 for found in sums)
    assert len(how) == sum(kind in name for kind in CONVERSION_NOTES)
    assert ("read as an ε at δ = 0.000001" in " ".join(how)) == (account.symbol == "ρ")


#: pure ε = 1 about rows and ε = 0.88 about labels; and, of it, what the books still allow.
ROWS_AND_LABELS = [
    AccountBalance("pure epsilon, replace", 2 * UNITS_PER_EPSILON, UNITS_PER_EPSILON),
    AccountBalance("pure epsilon, replace labels", UNITS_PER_EPSILON, 880_000_000),
]


def test_all_answers_together_are_the_sum_over_all_accounts_and_nothing_else_is_called_so():
    """e^0.88 = 2.41 was said of all answers together where e^1.88 = 6.55 is true: rows have labels,
    too.
    """
    books = sv.Session()
    books.grant({"ada": 1.0})
    books.grant({"ada": 1.0}, neighbours="replace labels")
    books.grant({"ada": 0.25}, currency="zCDP rho")
    books.charge({"ada": 1.0}, key="rows")
    books.charge({"ada": 0.88}, key="labels", account="pure epsilon, replace labels")
    shown = make_statement_page(Statement.of(books.ledger, "ada"))
    meant = shown.split("What this means")[1].split("<h2>")[0]
    now, later = (
        float(factor.replace(",", ""))
        for factor in re.findall(r"at most ([0-9,]+[.][0-9]+)", meant)
    )
    assert math.exp(1.88) <= now <= math.exp(1.88) + 1e-3
    assert later == pytest.approx(math.exp(2 + float(zcdp_epsilon(0.25, READ_AT))), abs=1.1e-3)
    assert "labels alone are counted in the sum" in meant
    assert meant.count("read as an ε at δ = 0.000001") == 1


def test_pure_rows_and_labels_are_told_as_one_sum():
    sentence, labels = explain_protection(ROWS_AND_LABELS)
    assert "with more than 6.554 times better odds than without them." in sentence
    assert "the sum over all accounts: ε = 1.88." in sentence
    assert "take all other columns of their tables as public" in labels
    assert "2.411" not in " ".join([sentence, labels, *explain_odds(ROWS_AND_LABELS)])


def test_an_epsilon_at_delta_names_its_delta_and_an_epsilon_without_protection_says_so():
    pair = [
        AccountBalance("epsilon at delta, replace", 10**9, 10**8),
        AccountBalance("delta, replace", 10**10, 10**9),
    ]
    now, later = re.findall(
        "except with a probability of about δ = ([0-9.]+) ", explain_odds(pair)[0]
    )
    assert (now, later) == ("0.000001", "0.00001")
    (unused,) = explain_odds([AccountBalance(ACCOUNTS[0], 30 * 10**9)])
    assert "nothing is spent yet" in unused
    assert "e^30, which is no protection" in unused


def test_whether_somebody_was_heard_is_worth_less_about_what_they_say():
    """ε at δ under zeroing out is 2ε at (1 + e^ε)·δ under replacement."""
    pair = [
        AccountBalance("epsilon at delta, zero out", 10**9, 10**8),
        AccountBalance("delta, zero out", 10**10, 10**9),
    ]
    (sentence,) = explain_protection(pair)
    assert "more than 1.222 times better odds" in sentence
    assert math.exp(0.2) <= 1.222 < math.exp(0.2) + 1e-3
    delta = float(re.search("about δ = ([0-9.]+)[.]", sentence)[1])
    assert (1 + math.exp(0.1)) * 1e-6 <= delta <= (1 + math.exp(0.1)) * 1e-6 * 1.001


def test_a_line_says_odds_only_of_what_is_pure():
    lines = {
        name: make_line_cells(Line(3, "", "charge", "x", name, 0.25, "outside"))[1]
        for name in ACCOUNTS
    }
    assert [name for name, words in lines.items() if "odds" in words] == [
        n for n in ACCOUNTS if n.startswith("pure")
    ]
