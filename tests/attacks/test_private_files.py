"""What somebody with an account on the machine sees of confidential files: nothing, at no moment,
and by no link.

A file that is restricted after it was written can be opened in between, and whoever has it open
keeps it. So the attacker here looks at the folder before and after every step that a program takes
with files, under a mask that takes no right away. On the code before, statement, audit, export and
both files of the market are seen with mode 0666.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from typer.testing import CliRunner

import sottovoce as sv
from sottovoce import errors, private_files
from sottovoce.cli.console import write_file
from sottovoce.cli.main import app
from sottovoce.ledgers import open_ledger
from sottovoce.web.access_codes import AccessCodes

pytestmark = pytest.mark.skipif(os.name != "posix", reason="modes are those of POSIX")

SCHEMA = """\
person = "id"
label = "cost"
[columns.age]
kind = "number"
low = 18
high = 90
[columns.cost]
kind = "number"
low = 0
high = 100
"""
STEPS = ("open", "link", "replace", "rename", "fsync", "chmod", "unlink", "close")


class Watcher:
    """Somebody who looks into a folder at every step, and writes down what others could read."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.before = set(folder.iterdir())
        self.seen: set[str] = set()
        self.looks = 0
        for step in STEPS:
            monkeypatch.setattr(os, step, self.around(getattr(os, step)))

    def around(self, step):
        def watched(*args, **options):
            self.look()
            try:
                return step(*args, **options)
            finally:
                self.look()

        return watched

    def look(self) -> None:
        self.looks += 1
        for name in os.listdir(self.folder):
            path = self.folder / name
            if path in self.before:
                continue
            try:
                mode = path.lstat().st_mode
            except FileNotFoundError:  # another thread was quicker
                continue
            if stat.S_ISREG(mode) and mode & 0o077:
                self.seen.add(f"{name} with {stat.S_IMODE(mode):o}")


@pytest.fixture
def no_mask():
    before = os.umask(0)
    yield
    os.umask(before)


def run(*words: object) -> str:
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert result.exit_code == 0, result.output
    return str(result.output)


def refused(*words: object) -> str:
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert result.exit_code == 2, result.output
    return str(result.output)


@pytest.fixture
def clinic(tmp_path, monkeypatch, no_mask) -> Path:
    """Books, a table, its posterior sample and reports of sellers, in the working folder."""
    folder = tmp_path / "clinic"
    folder.mkdir(mode=0o755)
    monkeypatch.chdir(folder)
    rows = [f"u{i},{18 + i % 70},{i * 7 % 100}" for i in range(60)]
    Path("visits.csv").write_text("\n".join(["id,age,cost", *rows, ""]))
    Path("clinic.toml").write_text(SCHEMA)
    Path("sellers.csv").write_text(
        "seller,cost\n" + "".join(f"s{i},{1 + i / 10}\n" for i in range(12))
    )
    sv.Session(ledger="books.db").grant({"ada": 1.0, "ben": 0.5})
    return folder


COMMANDS = {
    "statement": "ledger statement --person ada --ledger books.db --out {out}",
    "export": "ledger export --ledger books.db --out {out}",
    "market": "market sellers.csv --prior uniform:1:5 --budget 5 --out {out}",
    "market page": "market sellers.csv --prior uniform:1:5 --budget 5 --page {out}",
}


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize("force", [False, True])
def test_nobody_can_open_a_confidential_file_at_any_moment(clinic, monkeypatch, name, force):
    watcher = Watcher(clinic, monkeypatch)
    run(*COMMANDS[name].format(out="answer").split(), *["--force"] * force)
    monkeypatch.undo()
    assert watcher.seen == set()
    assert watcher.looks > 2
    assert stat.S_IMODE((clinic / "answer").stat().st_mode) == 0o600


def test_nobody_can_open_an_audit_at_any_moment(clinic, monkeypatch):
    sample = ("visits.csv", "--schema", "clinic.toml", "--epsilon", 1, "--alpha", 30)
    run("release", "posterior", *sample, "--out", "sample.json")
    assert stat.S_IMODE((clinic / "sample.json").stat().st_mode) == 0o666, "a release is public"
    watcher = Watcher(clinic, monkeypatch)
    run(
        "audit",
        "sample.json",
        "visits.csv",
        "--schema",
        "clinic.toml",
        "--epsilon",
        1,
        "--out",
        "answer",
    )
    monkeypatch.undo()
    assert watcher.seen == set()


def test_nobody_can_open_what_lies_beside_the_books_at_any_moment(tmp_path, monkeypatch, no_mask):
    watcher = Watcher(tmp_path, monkeypatch)
    books = open_ledger(tmp_path / "books.db")
    books.add_witness(f"file:{tmp_path / 'witness'}")
    sv.Session(ledger=books).grant({"ada": 1.0})
    codes = AccessCodes.for_ledger(books, f"sqlite:///{tmp_path / 'books.db'}", None)
    codes.issue("ada")
    monkeypatch.undo()
    assert watcher.seen == set()
    made = {path.name for path in tmp_path.iterdir()}
    assert {
        "books.db",
        "books.db.key",
        "books.db.heads",
        "books.db.witnesses",
        "books.db.codes",
    } <= made


def test_the_watcher_sees_a_file_that_is_restricted_afterwards(tmp_path, monkeypatch, no_mask):
    watcher = Watcher(tmp_path, monkeypatch)
    (tmp_path / "page").write_text("about ada")
    os.chmod(tmp_path / "page", 0o600)
    monkeypatch.undo()
    assert watcher.seen == {"page with 666"}


@pytest.mark.parametrize("name", ["statement", "market"])
def test_a_link_that_somebody_planted_is_not_followed(clinic, name):
    victim = clinic / "victim"
    victim.write_text("what stood there")
    (clinic / "answer").symlink_to(victim)
    run(*COMMANDS[name].format(out="answer").split(), "--force")
    assert victim.read_text() == "what stood there"
    assert not (clinic / "answer").is_symlink()


def test_heads_are_not_written_through_a_link(tmp_path):
    session = sv.Session(ledger=tmp_path / "books.db")
    heads = tmp_path / "books.db.heads"
    elsewhere = tmp_path / "elsewhere"
    heads.replace(elsewhere)
    heads.symlink_to(elsewhere)
    size = elsewhere.stat().st_size
    with pytest.raises(errors.LedgerUnavailable):
        session.grant({"ada": 1.0})
    assert elsewhere.stat().st_size == size


@pytest.mark.parametrize("name", ["statement", "market"])
def test_a_folder_that_everybody_can_write_to_is_refused_before_anything_is_made(clinic, name):
    public = clinic / "public"
    public.mkdir()
    public.chmod(0o777)
    told = refused(*COMMANDS[name].format(out="public/answer").split())
    assert told.startswith("UnsafeFolder: ")
    assert list(public.iterdir()) == []
    public.chmod(0o1777)
    run(*COMMANDS[name].format(out="public/answer").split())


def test_a_folder_below_one_that_everybody_can_write_to_is_refused(tmp_path):
    below = tmp_path / "public" / "mine"
    below.mkdir(parents=True)
    below.parent.chmod(0o777)
    with pytest.raises(errors.UnsafeFolder):
        write_file(below / "answer", "about ada")
    with pytest.raises(errors.UnsafeFolder):
        sv.Session(ledger=below / "books.db")
    assert list(below.iterdir()) == []
    assert write_file(below / "release.json", "public", public=True) == below / "release.json"


@pytest.mark.parametrize("open_to_others", [False, True])
def test_a_folder_of_somebody_else_is_refused(tmp_path, monkeypatch, open_to_others):
    """We are somebody else here: the folder belongs to whoever runs this, and not to root."""
    if tmp_path.stat().st_uid == 0:
        os.chown(tmp_path, 1, -1)
    monkeypatch.setattr(os, "geteuid", lambda: 424242)
    tmp_path.chmod(0o755 if open_to_others else 0o700)
    with pytest.raises(errors.UnsafeFolder):
        private_files.write(tmp_path / "answer", b"about ada")
    assert list(tmp_path.iterdir()) == []


def test_a_file_system_that_knows_no_modes_is_refused_before_the_first_byte(
    tmp_path, monkeypatch, no_mask
):
    """As that of a memory stick, where every file is everybody's."""
    open_file = os.open
    monkeypatch.setattr(os, "open", lambda path, flags, mode=0o777: open_file(path, flags, 0o777))
    with pytest.raises(errors.UnsafeFolder):
        private_files.write(tmp_path / "answer", b"about ada")
    assert list(tmp_path.iterdir()) == []


def test_what_fails_half_way_leaves_nothing(tmp_path, monkeypatch):
    private_files.write(tmp_path / "answer", b"the first")

    def full(handle):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    for attempt in (private_files.write, private_files.write_new):
        with pytest.raises(OSError, match="No space"):
            attempt(tmp_path / "answer", b"the second")
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"answer": b"the first"}
