"""Heads that are lost, and copies that are spent again: sealed, by the file beside the books or by
a witness elsewhere.

A copy of everything, heads included, cannot be told from the books by anything that was copied with
it. What tells is a witness that both have in common.
"""

from __future__ import annotations

import contextlib
import hashlib
import shutil
import sqlite3
from pathlib import Path

import pytest

from ledgers.places import PEOPLE, Place, release, spend
from sottovoce import errors, private_files
from sottovoce.ledgers import hash_chain
from sottovoce.ledgers.keyfile import Signer
from sottovoce.ledgers.witness import FileWitness, Head, LogWitness, Tree, WitnessUnreachable


def heads_of(place: Place) -> Path:
    (path,) = place.keys.glob("*.heads")
    return path


def assert_sealed(place: Place, why: str) -> None:
    """Readable, and nothing can be written, until somebody gives a reason."""
    session = place.session()
    assert why in session.ledger.why_sealed
    assert session.balance("cleo") > 0
    for write in (
        lambda: release(session, "new"),
        lambda: session.grant({"cleo": 1.0}),
        session.verify,
    ):
        with pytest.raises(errors.LedgerSealed, match=why):
            write()
    session.ledger.unseal("looked into it")
    for again in (session, place.session()):
        release(again, "after")
        again.verify()


DAMAGE = {
    "emptied": lambda content: b"",
    "zeros": lambda content: bytes(len(content)),
    "a byte of a digest": lambda content: content[:-60] + bytes([content[-60] ^ 1]) + content[-59:],
    "a code": lambda content: content[:-3] + b"00\n",
    "a line without its code": lambda content: content.rsplit(b" ", 1)[0] + b"\nx",
    "garbage": lambda content: content + b"\nwhat is this?\n",
    "bytes": lambda content: content + b"\xff\xfe",
    "a number": lambda content: content.replace(b"seen 1 ", b"seen 2 "),
    "all lines of earlier versions": lambda content: b"\n".join(
        line.rsplit(b" ", 1)[0] for line in content.split(b"\n") if line
    ),
}


@pytest.mark.parametrize("how", DAMAGE.values(), ids=DAMAGE)
def test_heads_that_are_emptied_or_garbled_seal_the_books(in_file, how):
    release(in_file.granted(), "k")
    heads = heads_of(in_file)
    content = heads.read_bytes()
    assert how(content) != content
    heads.write_bytes(how(content))
    assert_sealed(in_file, "missing or damaged")


def test_heads_that_are_lost_seal_the_books(place):
    release(place.granted(), "k")
    heads_of(place).unlink()
    assert_sealed(place, "missing or damaged")


def test_the_heads_of_other_books_are_none(in_file, tmp_path):
    release(in_file.granted(), "k")
    (tmp_path / "other").mkdir()
    other = Place(f"sqlite:///{tmp_path}/other/books.db", tmp_path / "other")
    other.granted()
    shutil.copy(heads_of(other), heads_of(in_file))
    assert_sealed(in_file, "missing or damaged")


def test_new_books_need_no_heads(place):
    place.open()
    heads_of(place).unlink()
    books = place.open()
    assert not books.sealed
    books.grant([])
    assert not place.open().sealed


def second_machine(place: Place, folder: Path) -> Place:
    """Everything there is in the folder of the books, as it is now, on another machine."""
    place.open()._store._close()
    shutil.copytree(place.keys, folder)
    return Place(f"sqlite:///{folder}/books.db", folder)


KINDS = ["file", "log", "sqlite", "postgresql"]


@pytest.fixture(params=KINDS)
def address(request, tmp_path) -> str:
    """Where heads are kept: one of each kind."""
    if request.param == "postgresql":
        import psycopg

        url = request.getfixturevalue("server")
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("SET client_min_messages = warning")
            connection.execute("DROP TABLE IF EXISTS sottovoce_heads")
        return url
    if request.param == "sqlite":
        slashes = "///"
    else:
        slashes = ""
    return f"{request.param}:{slashes}{tmp_path}/witness"


server_or_not = pytest.mark.xdist_group("server")


@server_or_not
@pytest.mark.parametrize("first", ["the books", "the copy"])
def test_a_copy_on_a_second_machine_does_not_spend_again(in_file, tmp_path, address, first):
    """Without the witness 1.9 of 1.0 were spent: 0.9 + 1.0. With it whoever comes second is sealed
    before it reads.
    """
    session = in_file.granted(1.0)
    session.ledger.add_witness(address)
    session.ledger._store._close()
    copy = second_machine(in_file, tmp_path / "copy")
    if first == "the books":
        one, other = (in_file, copy)
    else:
        one, other = (copy, in_file)
    release(one.session(), "here")
    with pytest.raises(errors.LedgerSealed, match="Another copy"):
        release(other.session(), "there")
    assert other.open().find("there") is None
    release(one.session(), "and on")
    one.session().verify()


@server_or_not
def test_two_copies_that_are_open_at_once_do_not_both_release(in_file, tmp_path, address):
    in_file.granted(1.0).ledger.add_witness(address)
    copy = second_machine(in_file, tmp_path / "copy").session()
    books = in_file.session()
    release(books, "here")
    with pytest.raises(errors.LedgerSealed):
        release(copy, "there")
    release(books, "on")


def test_a_witness_that_reads_but_cannot_write_does_not_count(in_file, tmp_path, monkeypatch):
    session = in_file.granted(1.0)
    session.ledger.add_witness(f"file:{tmp_path}/witness")

    def full(*arguments):
        raise WitnessUnreachable("no room")

    monkeypatch.setattr(FileWitness, "store_head", full)
    with pytest.raises(errors.LedgerUnavailable, match="stays spent"):
        release(session, "k")
    assert session.ledger.find("k").release is None


def test_copies_that_reach_different_witnesses_do_not_both_release(in_file, tmp_path):
    """Two of three must be reached: two copies have one of them in common, whichever two they
    reach.
    """
    session = in_file.granted(1.0)
    for number in range(3):
        session.ledger.add_witness(f"file:{tmp_path}/witness {number}")
    copy = second_machine(in_file, tmp_path / "copy")
    hidden = tmp_path / "hidden"
    (tmp_path / "witness 0").rename(hidden)
    release(in_file.session(), "here")
    hidden.rename(tmp_path / "witness 0")
    (tmp_path / "witness 2").unlink()
    with pytest.raises(errors.LedgerSealed, match="Another copy"):
        release(copy.session(), "there")
    (tmp_path / "witness 1").unlink()
    with pytest.raises(errors.LedgerUnavailable, match="Too few"):
        release(in_file.session(), "alone")


def test_two_copies_that_commit_at_the_same_time_do_not_both_release(
    in_file, tmp_path, monkeypatch
):
    """Both look before either has written, and both commit: whoever gives a head second finds the
    first.
    """
    address = f"file:{tmp_path}/witness"
    in_file.granted(1.0).ledger.add_witness(address)
    copy = second_machine(in_file, tmp_path / "copy").session()
    books = in_file.session()
    give = FileWitness.store_head
    made = []

    def meanwhile(self, ledger, head):
        monkeypatch.setattr(FileWitness, "store_head", give)
        made.append(release(copy, "there"))
        give(self, ledger, head)

    monkeypatch.setattr(FileWitness, "store_head", meanwhile)
    with pytest.raises(errors.LedgerSealed, match="Another copy"):
        release(books, "here")
    assert len(made) == 1
    assert books.ledger.find("here").release is None


@server_or_not
def test_unsealed_books_go_on_beside_the_heads_of_the_lost_copy(in_file, tmp_path, address):
    in_file.granted(1.0).ledger.add_witness(address)
    copy = second_machine(in_file, tmp_path / "copy")
    lost = in_file.session()
    for number in range(3):
        release(lost, f"lost {number}")
    assert copy.open().sealed
    copy.open().unseal("the disk of the other machine is gone")
    session = copy.session()
    for number in range(5):
        release(session, f"on {number}")
    session.verify()
    with pytest.raises(errors.LedgerSealed):  # if it was not gone after all
        release(lost, "and on")


@server_or_not
def test_what_strangers_write_into_a_witness_seals_nothing(in_file, tmp_path):
    session = in_file.granted(1.0)
    path = tmp_path / "witness"
    session.ledger.add_witness(f"file:{path}")
    for other in ("another", "third"):
        session.ledger.add_witness(f"file:{tmp_path}/{other}")
    with path.open("a") as file:
        file.write(f"{session.ledger.identity} 9 {'0' * 64} {'0' * 128}\n")
    again = in_file.session()
    assert not again.ledger.sealed
    assert list(again.ledger.unreached.values()) == ["it holds a head that nobody has signed"]
    release(again, "k")  # with the others
    (tmp_path / "another").unlink()
    with pytest.raises(errors.LedgerUnavailable, match="Too few witnesses"):
        release(again, "l")
    assert again.ledger.find("l") is None


@server_or_not
def test_no_witness_that_can_be_reached_stops_writing_and_not_reading(in_file, tmp_path, address):
    if address.startswith("postgresql"):
        pytest.skip("a server is not taken away from other tests")
    session = in_file.granted(1.0)
    session.ledger.add_witness(address)
    place = tmp_path / "witness"
    place.rename(tmp_path / "gone")
    for again in (session, in_file.session()):
        assert again.balance("cleo") > 0
        with pytest.raises(errors.LedgerUnavailable, match="Too few witnesses"):
            release(again, "k")
        assert again.ledger.find("k") is None
        assert list(again.ledger.unreached) == [address]
    (tmp_path / "gone").rename(place)
    release(session, "k")
    session.ledger.remove_witness("1")
    assert in_file.open().witnesses == []
    release(in_file.session(), "without")


@pytest.mark.parametrize("how", ["taken away", "emptied", "another"])
def test_the_list_of_witnesses_cannot_be_taken_away(in_file, tmp_path, how):
    in_file.granted(1.0).ledger.add_witness(f"file:{tmp_path}/witness")
    listed = in_file.file.with_name("books.db.witnesses")
    assert listed.stat().st_mode & 0o077 == 0
    if how == "taken away":
        listed.unlink()
    else:
        listed.write_text("" if how == "emptied" else f"file:{tmp_path}/elsewhere\n")
    books = in_file.open()
    assert "list of witnesses" in books.why_sealed
    with pytest.raises(errors.LedgerSealed):
        spend(books, "k")


@pytest.mark.parametrize("how", ["cut", "rewritten", "emptied", "what was seen of it"])
def test_a_log_that_was_cut_or_rewritten_is_not_believed(in_file, tmp_path, how):
    session = in_file.granted(1.0)
    session.ledger.add_witness(f"log:{tmp_path}/log")
    for number in range(5):
        release(session, f"k{number}")
    records = tmp_path / "log" / "records"
    lines = [line for line in records.read_text().split("\n") if line]
    assert "11 tree heads are signed and consistent" in " ".join(
        session.ledger.check_witnesses().values()
    )
    if how == "what was seen of it":
        (seen,) = in_file.keys.glob("*.tree-*")
        seen.unlink()
    else:
        kept = {"cut": lines[:-2], "rewritten": [lines[0], lines[0], *lines[2:]], "emptied": []}[
            how
        ]
        records.write_text("".join(f"{line}\n" for line in kept))
    for again in (session, in_file.session()):
        with pytest.raises(errors.LedgerUnavailable, match="Too few witnesses"):
            release(again, "after")
    (why,) = in_file.open().unreached.values()
    assert ("missing" if how == "what was seen of it" else "cut or rewritten") in why


def test_where_the_tree_of_a_log_cannot_be_kept_a_charge_is_not_denied(
    in_file, tmp_path, monkeypatch
):
    session = in_file.granted(1.0)
    session.ledger.add_witness(f"log:{tmp_path}/log")
    original = private_files.write

    def write(path, content):
        if ".tree-" in path.name:
            raise OSError("the folder is read-only")
        original(path, content)

    monkeypatch.setattr(private_files, "write", write)
    with pytest.raises(errors.LedgerUnavailable, match="what was reserved stays spent"):
        release(session, "k")
    assert session.ledger.find("k").state == "reserved"


def test_a_log_without_the_heads_of_its_tree_is_reported(in_file, tmp_path):
    session = in_file.granted(1.0)
    session.ledger.add_witness(f"log:{tmp_path}/log")
    (tmp_path / "log" / "trees").write_text("")
    assert list(session.ledger.check_witnesses().values()) == [
        "not reached: the heads of its tree are missing"
    ]


@pytest.mark.parametrize("digest", [9 * 10**18, "text", None, 0.5])
def test_what_the_owner_of_a_database_puts_into_it_is_no_head(in_file, tmp_path, digest):
    """A number in the place of a digest was read as so many bytes, and ended the process for want
    of memory.
    """
    session = in_file.granted(1.0)
    session.ledger.add_witness(f"sqlite:///{tmp_path}/witness")
    with contextlib.closing(sqlite3.connect(tmp_path / "witness")) as connection, connection:
        connection.execute("ALTER TABLE sottovoce_heads RENAME TO kept")
        connection.execute(
            "CREATE TABLE sottovoce_heads (place INTEGER PRIMARY KEY, ledger, number, digest, "
            "signature)"
        )
        values = (session.ledger.identity, 9, digest, bytes(64))
        connection.execute(
            "INSERT INTO sottovoce_heads (ledger, number, digest, signature) VALUES (?, ?, ?, ?)",
            values,
        )
    books = in_file.open()
    assert list(books.unreached.values()) == ["what it holds is damaged"]
    assert not books.sealed


@pytest.mark.parametrize("kind", ["file", "log"])
def test_a_witness_that_somebody_does_not_let_go_of_is_one_that_cannot_be_reached(
    in_file, tmp_path, monkeypatch, kind
):
    """Whoever can open the file can hold it: nobody waits for that for ever."""
    fcntl = pytest.importorskip("fcntl")
    session = in_file.granted(1.0)
    session.ledger.add_witness(f"{kind}:{tmp_path}/witness")
    monkeypatch.setattr("sottovoce.ledgers.witness.TIMEOUT", 0.05)
    with open(
        tmp_path / "witness" / "records" if kind == "log" else tmp_path / "witness", "rb"
    ) as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(errors.LedgerUnavailable, match="Too few witnesses"):
            release(session, "k")
        assert list(session.ledger.unreached.values()) == ["somebody else does not let go of it"]
    release(session, "k")


def test_a_tree_head_that_nobody_signed_is_found(tmp_path):
    signer = Signer(bytes(32))
    kept = []

    def seen(tree):
        kept.extend([] if tree is None else [tree])
        return kept[-1]

    log = LogWitness(tmp_path / "log", signer, seen)
    log.make()
    for number in range(3):
        log.store_head("0" * 32, Head(number, bytes(32), bytes(64)))
    assert [tree.size for tree in log.read_trees()] == [1, 2, 3]
    trees = tmp_path / "log" / "trees"
    trees.write_text(trees.read_text().replace("\n2 ", "\n1 "))
    with pytest.raises(Exception, match="not signed"):
        log.read_trees()
    assert kept[-1] == Tree(3, log.read("0" * 32, 0) and kept[-1].root)


# The tree of a log.


def plain_root(records: list[bytes]) -> bytes:
    """RFC 6962, section 2.1, letter by letter."""
    if not records:
        return hashlib.sha256(b"").digest()
    if len(records) == 1:
        return hashlib.sha256(b"\0" + records[0]).digest()
    k = 1
    while 2 * k < len(records):
        k *= 2
    return hashlib.sha256(b"\1" + plain_root(records[:k]) + plain_root(records[k:])).digest()


def test_proofs_of_a_log_hold_for_every_size_and_no_other():
    records = [bytes([number]) for number in range(34)]
    leaves = [hash_chain.hash_record(record) for record in records]
    roots = [plain_root(records[:size]) for size in range(35)]
    assert [hash_chain.compute_merkle_root(leaves[:size]) for size in range(35)] == roots
    for size in range(1, 35):
        for first in range(size + 1):
            proof = hash_chain.prove_consistency(leaves[:size], first)
            assert hash_chain.verify_consistency(roots[size], size, roots[first], first, proof)
            other = roots[first][:-1] + bytes([roots[first][-1] ^ 1])
            assert first == 0 or not hash_chain.verify_consistency(
                roots[size], size, other, first, proof
            )
            assert first == 0 or not hash_chain.verify_consistency(
                other, size, roots[first], first, proof
            )
            assert not hash_chain.verify_consistency(
                roots[size], size, roots[first], first, [*proof, roots[0]]
            )
            assert not proof or not hash_chain.verify_consistency(
                roots[size], size, roots[first], first, proof[:-1]
            )
        for place in range(size):
            proof = hash_chain.prove_inclusion(leaves[:size], place)
            assert hash_chain.verify_inclusion(roots[size], size, leaves[place], place, proof)
            assert (
                not hash_chain.verify_inclusion(roots[size], size, leaves[place - 1], place, proof)
                or size == 1
            )
            assert not hash_chain.verify_inclusion(
                roots[size], size, leaves[place], place + 1, proof
            )


def test_nobody_is_named_to_a_witness(in_file, tmp_path):
    session = in_file.granted(1.0)
    session.ledger.add_witness(f"file:{tmp_path}/witness")
    release(session, "the key of a release")
    content = (tmp_path / "witness").read_text()
    assert not any(name in content for name in [*PEOPLE, "the key"])
    assert (tmp_path / "witness").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    "address", ["", "file:", "log:", "sqlite:///", "http://x", "/a/path", "file:/no/such/folder/x"]
)
def test_an_address_that_is_no_witness_is_refused(in_file, address):
    books = in_file.open()
    with pytest.raises((errors.InvalidParameter, errors.LedgerUnavailable)):
        books.add_witness(address)
    assert books.witnesses == []
    assert not in_file.open().sealed
