"""--out: no file is written over unless that is asked for, and what was paid for is not lost."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from sottovoce.cli.console import write_file
from sottovoce.release import Release

REFUSED = "InvalidParameter: The file of --{} exists already.\nWhat stands in it would be lost.\n"
#: Every command that writes a file, as a function of the folder of the fixtures; {out} is what it
#: writes to.
BOOKS = ("--ledger", "books.db")
COMMANDS = {
    "release": "release mean salaries.csv --schema schema.toml --out {out}",
    "plan": "plan mean salaries.csv --schema schema.toml --out {out}",
    "schema draft": "schema draft salaries.csv --out {out}",
    "predict": "predict model.json visits.csv --out {out}",
    "audit": "audit sample.json visits.csv --schema clinic.toml --out {out}",
    "market": "market sellers.csv --prior uniform:1:5 --budget 20 --out {out}",
    "market page": "market sellers.csv --prior uniform:1:5 --budget 20 --page {out}",
    "market publish": "market sellers.csv --prior uniform:1:5 --budget 20 --publish {out}",
    "ledger export": "ledger export --ledger books.db --out {out}",
    "ledger statement": "ledger statement --person u1 --ledger books.db --out {out}",
}


@pytest.fixture
def workspace(run, folder: Path, clinic: Path, model: Path, monkeypatch) -> Path:
    """Everything that the commands read, in the working folder."""
    monkeypatch.chdir(folder)
    (folder / "sellers.csv").write_text(
        "seller,cost\n" + "".join(f"s{i},{1 + i / 10}\n" for i in range(30))
    )
    (folder / "grants.csv").write_text("person,epsilon\nu1,1\nu2,1\n")
    assert run("ledger", "init", "books.db").exit_code == 0
    assert run("ledger", "grant", "grants.csv", *BOOKS).exit_code == 0
    made = run(
        "release",
        "posterior",
        "visits.csv",
        "--schema",
        "clinic.toml",
        "--alpha",
        30,
        "--out",
        "sample.json",
    )
    assert made.exit_code == 0
    return folder


@pytest.mark.parametrize("name", COMMANDS)
def test_a_file_that_is_there_is_replaced_only_by_force(run, workspace, name):
    words = COMMANDS[name].format(out="answer").split()
    (workspace / "answer").write_text("the first answer")
    refused = run(*words)
    option = words[words.index("answer") - 1].removeprefix("--")
    assert (refused.exit_code, refused.stdout) == (2, "")
    asks = words[0] in ("plan", "release", "report", "sql")
    assert refused.stderr == (
        REFUSED.format(option)
        + "Name another file, or add --force to replace it.\n"
        + ("Nobody was charged.\n" if asks else "")
    )
    assert (workspace / "answer").read_text() == "the first answer"
    assert run(*words, "--force").exit_code == 0
    assert "the first answer" not in (workspace / "answer").read_text()


def test_nobody_is_charged_when_the_file_is_there(run, folder, words, monkeypatch):
    monkeypatch.chdir(folder)
    (folder / "grants.csv").write_text(
        "person,epsilon\n" + "".join(f"u{i},1\n" for i in range(600))
    )
    assert run("ledger", "init", "books.db").exit_code == 0
    assert run("ledger", "grant", "grants.csv", *BOOKS).exit_code == 0
    line = (
        "release",
        "mean",
        "salaries.csv",
        *words[:-4],
        "--person-column",
        "id",
        "--epsilon",
        0.5,
        *BOOKS,
    )
    (folder / "may.json").write_text("the first answer")
    assert run(*line, "--key", "may", "--out", "may.json").exit_code == 2
    shown = run("ledger", "history", "--person", "u1", *BOOKS)
    assert shown.exit_code == 0
    assert "may" not in shown.output
    assert run(*line, "--key", "may", "--out", "june.json").exit_code == 0


def test_a_dangling_link_is_a_file_that_is_there(run, folder, words):
    (folder / "out.json").symlink_to(folder / "nowhere.json")
    assert (
        run(
            "release", "mean", folder / "salaries.csv", *words, "--out", folder / "out.json"
        ).exit_code
        == 2
    )
    assert not (folder / "nowhere.json").exists()


def test_a_file_that_appears_meanwhile_is_left_and_the_answer_goes_beside_it(
    run, folder, words, monkeypatch
):
    out = folder / "may.json"
    link = os.link

    def somebody_is_faster(source, name):
        out.write_text("somebody else's")
        link(source, name)

    monkeypatch.setattr(os, "link", somebody_is_faster)
    result = run("release", "mean", folder / "salaries.csv", *words, "--out", out)
    assert result.exit_code == 0
    assert out.read_text() == "somebody else's"
    assert Release.load(folder / "may-2.json").question == "mean"
    assert (
        f"Written to {folder / 'may-2.json'}. The file that was to be written appeared meanwhile"
        in result.stderr
    )
    assert not list(folder.glob(".*unfinished"))


def test_names_are_taken_in_one_step_where_there_are_no_links(tmp_path, monkeypatch):
    def no_links(*_):
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", no_links)
    assert write_file(tmp_path / "a.json", "one") == tmp_path / "a.json"
    assert write_file(tmp_path / "a.json", "two") == tmp_path / "a-2.json"
    assert write_file(tmp_path / "a.json", "three") == tmp_path / "a-3.json"
    assert write_file(tmp_path / "a.json", "four", force=True) == tmp_path / "a.json"
    told = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert told == {"a.json": "four", "a-2.json": "two", "a-3.json": "three"}
