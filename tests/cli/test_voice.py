"""How commands end: interrupted, surprised, or facing a hostile file."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

from sottovoce.data import source
from sottovoce.release import Release

COMMAND = [sys.executable, "-c", "from sottovoce.cli.start import main; main()"]


#: Begins the command, and is interrupted when it first asks for a module.
WHILE_LOADING = """
import signal, sys, weakref
pressed = []

class Lock:
    pass

class Field:
    def __set_name__(self, owner, name):
        signal.raise_signal(signal.SIGINT)

def press(event, arguments):
    if event == "import" and arguments[0] == {module!r} and not pressed:
        pressed.append(True)
        lock = Lock()
        pressed.append(weakref.ref(lock, lambda _: signal.raise_signal(signal.SIGINT)))
        if {how!r} == "dropped by Python":
            del lock  # in whose callback Python drops what is raised
        elif {how!r} == "made another error":
            type("Made", (), dict(field=Field()))
        else:
            signal.raise_signal(signal.SIGINT)

sys.addaudithook(press)
from sottovoce.cli.start import main
main()
"""
#: Says when rows are being read.
READING = """
from sottovoce.cli.console import RowProgress
called = RowProgress.__call__

def tell(self, done):
    print("reading", flush=True)
    called(self, done)

RowProgress.__call__ = tell
from sottovoce.cli.start import main
main()
"""
#: Has a thread that never ends, as one that waits for a lock which an interrupt left taken.
STUCK = """
import signal, threading
threading.Thread(target=threading.Event().wait).start()
from sottovoce.cli import main as commands
commands.app = lambda: signal.raise_signal(signal.SIGINT)
from sottovoce.cli.start import main
main()
"""
INTERRUPTED = "Interrupted. No file was left unfinished.\n"


@pytest.fixture
def long_release(tmp_path) -> list[str]:
    """The words of a release that would take hours."""
    rows = tmp_path / "rows.csv"
    rows.write_text("id,v,epsilon\n" + "a,1,0.5\nb,2,0.5\n" * 50_000)
    (tmp_path / "many").mkdir()
    for part in range(2000):  # two hundred million rows that take no room
        (tmp_path / "many" / f"{part}.csv").symlink_to(rows)
    return [
        "release",
        "mean",
        "many",
        *shlex.split("--column v --bounds 0 10 --budget-column epsilon --out out.json"),
    ]


@contextmanager
def begun(code: str, words: list[str], folder: Path):
    """The command in a process of its own, which is ended and reaped whatever happens."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", code, *words], cwd=folder, **pipes) as running:
        try:
            yield running
        finally:
            running.kill()  # does nothing to one that has ended


def test_ctrl_c_ends_a_long_release_with_a_sentence_and_leaves_nothing_behind(
    tmp_path, long_release
):
    before = sorted(tmp_path.rglob("*"))
    with begun(READING, long_release, tmp_path) as running:
        assert running.stdout.readline() == "reading\n"
        running.send_signal(signal.SIGINT)
        stdout, stderr = running.communicate()
    assert set(stdout.splitlines()) <= {"reading"}
    assert (running.returncode, stderr) == (130, INTERRUPTED)
    assert sorted(tmp_path.rglob("*")) == before


def test_ctrl_c_leaves_although_a_thread_never_ends(tmp_path):
    with begun(STUCK, [], tmp_path) as running:
        stdout, stderr = running.communicate(timeout=300)
    assert (running.returncode, stdout, stderr) == (130, "", INTERRUPTED)


@pytest.mark.parametrize("how", ["raised", "dropped by Python", "made another error"])
@pytest.mark.parametrize("module", ["typer", "rich.console", "numpy", "pyarrow"])
def test_ctrl_c_while_libraries_load_is_heard(tmp_path, long_release, module, how):
    before = sorted(tmp_path.rglob("*"))
    with begun(WHILE_LOADING.format(module=module, how=how), long_release, tmp_path) as running:
        stdout, stderr = running.communicate()
    assert (running.returncode, stdout, stderr) == (130, "", INTERRUPTED)
    assert sorted(tmp_path.rglob("*")) == before


def test_ctrl_c_while_writing_leaves_the_old_file(run, folder, words, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    out = folder / "release.json"
    out.write_text("old")
    before = sorted(folder.rglob("*"))
    monkeypatch.setattr(Path, "replace", interrupted)
    result = run("release", "mean", folder / "salaries.csv", *words, "--out", out, "--force")
    assert result.exit_code == 130
    assert out.read_text() == "old"
    assert sorted(folder.rglob("*")) == before


def test_a_disc_that_refuses_is_a_sentence(run, folder, words, monkeypatch):
    def refuse(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "link", refuse)
    before = sorted(folder.rglob("*"))
    result = run(
        "release", "mean", folder / "salaries.csv", *words, "--out", folder / "release.json"
    )
    assert result.exit_code == 2
    assert "No space left on device" in result.stderr
    assert "is on standard output" in result.stderr
    assert Release.from_json(result.stdout).question == "mean"
    assert sorted(folder.rglob("*")) == before


def test_a_surprise_is_one_sentence_that_tells_nothing(run, folder, words, monkeypatch):
    def surprise(*_, **__):
        raise RuntimeError("secret 731")

    monkeypatch.setattr(source, "take_census", surprise)
    result = run("release", "mean", folder / "salaries.csv", *words)
    assert (result.exit_code, result.stdout) == (1, "")
    assert "did not foresee" in result.stderr
    assert "secret" not in result.output
    assert "RuntimeError" not in result.output


def test_a_failure_after_reading_looks_like_any_other(run, folder, words, monkeypatch):
    def surprise(*_, **__):
        raise ZeroDivisionError("secret 731")

    monkeypatch.setattr("sottovoce.estimators.mean.draw_noisy_values", surprise)
    result = run(
        "release", "mean", folder / "salaries.csv", *words, "--out", folder / "release.json"
    )
    assert result.exit_code == 2
    assert result.stderr.startswith(
        "ReleaseFailed: The release failed after private rows had been read."
    )
    assert "secret" not in result.output
    assert not (folder / "release.json").exists()


def test_a_file_from_a_stranger_does_not_steer_the_terminal(run, folder, words):
    header = folder / "header.csv"
    header.write_text('id,"\x1b]0;owned\x07",[bold]x[/bold]\na,1,2\nb,2,3\n')
    refused = run("plan", "mean", header, *words)
    assert "\x1b" not in refused.output
    assert "[bold]x[/bold]" in refused.stderr
    made = json.loads(run("release", "mean", folder / "salaries.csv", *words).stdout)
    made["certificate"]["theorem"] = "\x1b[2Jtrust me"
    (folder / "r.json").write_text(json.dumps(made))
    told = run("explain", folder / "r.json")
    assert "trust me" in told.stdout
    assert "\x1b" not in told.stdout


def test_a_terminal_without_greek_still_hears(folder, words):
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    line = [*COMMAND, "release", "mean", "salaries.csv", *map(str, words)]
    result = subprocess.run(line, cwd=folder, env=environment, capture_output=True, check=True)
    assert b"each with an ? of their own" in result.stderr
    assert Release.from_json(result.stdout.decode()).certificate.theorem.endswith(
        "(pure ε, replace)"
    )


@pytest.mark.parametrize(
    "words", [["--help"], ["--version"], ["release", "ridge", "--help"], ["predict", "--help"]]
)
def test_help_comes_at_once(words):
    code = """
import atexit, sys
from sottovoce.cli.main import app
heavy = {"numpy", "pyarrow", "sklearn", "opendp", "scipy"}
atexit.register(lambda: print(heavy & set(sys.modules)))
app()
"""
    result = subprocess.run(
        [sys.executable, "-c", code, *words], capture_output=True, text=True, check=True
    )
    assert result.stdout.endswith("set()\n")


@pytest.mark.parametrize(
    ("question", "unused"),
    [
        ("mean", {"scipy.special"}),
        ("count", {"scipy.special"}),
        ("quantile", {"scipy.optimize"}),
        ("ridge", {"scipy.special", "sottovoce.estimators.ridge_adassp"}),
        ("logistic", {"scipy.optimize"}),
    ],
)
def test_a_plan_loads_no_package_that_it_does_not_use(tmp_path, question, unused):
    """They take longer to load than the plan takes to make; nothing is timed here."""
    lines = [f"p{i},{i % 7},{('no', 'yes')[i % 2]},{(0.1, 1, 3)[i % 3]}" for i in range(200)]
    (tmp_path / "table.csv").write_text("\n".join(["id,cost,smoker,epsilon", *lines]))
    label = "smoker" if question == "logistic" else "cost"
    (tmp_path / "schema.toml").write_text(
        f'label = "{label}"\nperson = "id"\nbudget = "epsilon"\n'
        "[columns.cost]\nlow = 0\nhigh = 10\n"
        '[columns.smoker]\nlevels = ["no", "yes"]\n'
    )
    code = """
import atexit, sys
from sottovoce.cli.main import app
atexit.register(lambda: print("\\nloaded:", *sorted(sys.modules)))
app()
"""
    words = ["plan", question, "table.csv", "--schema", "schema.toml"]
    if question in ("mean", "quantile"):
        words += ["--column", "cost"]
    told = subprocess.run(
        [sys.executable, "-c", code, *words],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    loaded = set(told.stdout.split("loaded:")[1].split())
    never = {
        "opendp",
        "duckdb",
        "sqlite3",
        "fastapi",
        "pandas",
        "sklearn",
        "joblib",
        "scipy.linalg",
    }
    assert not loaded & (never | unused)
    assert "sottovoce.plan" in loaded


def test_arrow_that_was_loaded_without_pandas_still_knows_a_data_frame():
    code = """
import sys
from sottovoce.cli.start import load_arrow
load_arrow()
import pyarrow as pa
assert pa.array([1]).to_numpy().tolist() == [1] and "pandas" not in sys.modules
import pandas as pd
frame = pd.DataFrame({"a": [1.0, None], "b": pd.Categorical(["x", "y"])})
table = pa.Table.from_pandas(frame)
assert table["a"].null_count == 1 and pa.types.is_dictionary(table["b"].type)
assert table.to_pandas().equals(frame)
"""
    subprocess.run([sys.executable, "-c", code], check=True)
