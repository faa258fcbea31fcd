"""Where data could stand besides answers: tracebacks, logs, command lines, environments of
children, core files.

On the code before: a feature that is no number was quoted by `mine`, an error of a command carried
the error with data behind it, threads and hooks printed tracebacks, passwords were accepted in a
command line and handed on to every child, and `serve` and `ledger` left their memory to core files.
"""

from __future__ import annotations

import ast
import io
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import typer
from typer.testing import CliRunner

import sottovoce as sv
from sottovoce import errors
from sottovoce.audit.inputs import make_row, split_record
from sottovoce.cli import options as options_module
from sottovoce.cli.console import exit_on_error
from sottovoce.cli.main import app
from sottovoce.cli.predict import copy_as_text
from sottovoce.ledgers import keyfile
from sottovoce.web import uploads
from sottovoce.web.workspace import Workspace

SECRET = "salary-of-ada-41234"
ADDRESS = f"postgresql://curator:{SECRET}@127.0.0.1:9/books"
SOURCES = sorted(Path(sv.__file__).parent.rglob("*.py"))
#: What may be caught where another error is raised: these never hold data, but paths and sentences
#: of ours.
WITHOUT_DATA = {
    "OSError",
    "ImportError",
    "FileExistsError",
    "InvalidData",
    "InvalidParameter",
    "WitnessUnreachable",
}


def chain(error: BaseException | None) -> list[BaseException]:
    """An error and all that hang on it, as a traceback, a log or an error reporter would find
    them.
    """
    found: list[BaseException] = []
    waiting = [error]
    while waiting:
        each = waiting.pop()
        if each is not None and each not in found:
            found.append(each)
            waiting += [each.__cause__, each.__context__]
    return found


def leaks(error: BaseException) -> list[str]:
    return [type(each).__name__ for each in chain(error) if SECRET in f"{each} {each!r}"]


def raised_while_another_is_handled(source: str) -> list[int]:
    """Lines that raise a new error inside a handler, which then hangs on it, whatever `from None`
    hides.
    """
    found = []
    for handler in (
        node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ExceptHandler)
    ):
        if isinstance(handler.type, ast.Tuple):
            kinds = handler.type.elts
        else:
            kinds = [handler.type]
        if all(kind is not None and ast.unparse(kind) in WITHOUT_DATA for kind in kinds):
            continue
        found += [
            node.lineno
            for node in ast.walk(handler)
            if isinstance(node, ast.Raise) and node.exc is not None
        ]
    return found


def test_no_error_hangs_on_one_that_may_quote_data():
    assert len(SOURCES) > 100
    found = {
        path.name: raised_while_another_is_handled(path.read_text(encoding="utf-8"))
        for path in SOURCES
    }
    assert {name: lines for name, lines in found.items() if lines} == {}


def test_one_that_does_is_found():
    planted = "try:\n    f()\nexcept ValueError:\n    raise OurError from None\n"
    assert raised_while_another_is_handled(planted) == [4]


def not_a_number() -> list[object]:
    return [[SECRET], np.array([SECRET]), [1.0, SECRET], {"x": {SECRET: object()}}]


ATTEMPTS = [
    *(lambda x=x: make_row(x) for x in not_a_number()[:3]),
    lambda: make_row({"x": type(SECRET, (), {})()}),
    lambda: split_record(SECRET),
    lambda: copy_as_text(pa.array([SECRET.encode() + b"\xff"])),
    lambda: copy_as_text(pa.array([[SECRET]])),
    lambda: keyfile.check_release(SECRET),
    lambda: keyfile.check_release(json.dumps({"certificate": {"ledger": {"key": SECRET}}})),
    *(lambda x=x: sv.Mean(bounds=(0, 1)).fit(x, epsilon=1.0) for x in not_a_number()),
    *(lambda x=x: sv.Session().grant({"ada": x}) for x in (SECRET, [SECRET])),
]


@pytest.mark.parametrize("attempt", ATTEMPTS)
def test_what_is_wrong_is_not_quoted_by_an_error_or_behind_it(attempt):
    with pytest.raises(errors.SottovoceError) as caught:
        attempt()
    assert leaks(caught.value) == []
    assert chain(caught.value) == [caught.value]


@pytest.mark.parametrize("kind", [ValueError, KeyboardInterrupt, errors.InvalidData])
def test_the_end_of_a_command_carries_no_other_error(kind, capsys):
    @exit_on_error()
    def command() -> None:
        raise (
            kind(SECRET) if kind is not errors.InvalidData else errors.InvalidData("Found.")
        ) from ValueError(SECRET)

    with pytest.raises(typer.Exit) as caught:
        command()
    assert chain(caught.value) == [caught.value]
    assert SECRET not in "".join(capsys.readouterr())


def run(code: str, **options) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, **options
    )


def test_no_traceback_is_printed_by_hooks_or_threads():
    told = run(f"""
import sys, threading
import sottovoce.cli.main, sottovoce.cli.start

class Dropped:
    def __del__(self):
        raise ValueError({SECRET!r})

def fail():
    raise ValueError({SECRET!r})

def app():
    thread = threading.Thread(target=fail)
    thread.start()
    thread.join()
    Dropped()
    try:
        fail()
    except ValueError as error:
        raise RuntimeError from error

sottovoce.cli.main.app = app
sottovoce.cli.start.main()
""")
    assert told.returncode == 1
    assert SECRET not in told.stderr
    assert "Traceback" not in told.stderr
    assert told.stderr.count("did not foresee") == 3


def test_pretty_tracebacks_which_print_local_variables_are_off():
    assert app.pretty_exceptions_enable is False
    assert app.pretty_exceptions_show_locals is False


def test_what_libraries_log_beside_the_page_is_not_printed():
    told = run(f"""
import logging
from sottovoce.web import server

def load():
    raise OSError
    yield

with server.open_socket(0) as here:
    try:
        server.run_server(load, here, "token")
    except OSError:
        pass
logging.getLogger("asyncio").error({SECRET!r}, exc_info=ValueError({SECRET!r}))
""")
    assert (told.returncode, told.stderr) == (0, "")


@pytest.mark.parametrize(
    "words",
    [
        ("serve", "--no-open", "--ledger"),
        ("ledger", "balance", "--person", "ada", "--ledger"),
        ("ledger", "init"),
        ("ledger", "witness", "add"),
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("address", [ADDRESS, f"postgresql://127.0.0.1:9/books?password={SECRET}"])
def test_a_password_in_the_command_line_is_refused(monkeypatch, words, address):
    monkeypatch.setattr(sys, "argv", ["sottovoce", *words, address])
    result = CliRunner().invoke(app, [*words, address])
    assert result.exit_code == 2
    assert "holds a password" in result.output
    assert SECRET not in result.output


def test_a_password_from_the_environment_is_not(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["sottovoce", "ledger", "verify"])
    result = CliRunner().invoke(app, ["ledger", "verify"], env={"SOTTOVOCE_LEDGER": ADDRESS})
    assert "LedgerUnavailable" in result.output
    assert SECRET not in result.output
    for harmless in (
        "books.db",
        "postgresql://curator@127.0.0.1/books",
        "sqlite:///books.db",
        "postgresql://[x",
    ):
        monkeypatch.setattr(sys, "argv", ["sottovoce", harmless])
        options_module.refuse_open_password(harmless)


def test_the_process_that_tries_a_table_is_not_told_where_the_books_are(monkeypatch):
    seen = []
    ran = subprocess.run

    def watched(command, **options):
        seen.append((command, options["env"]))
        return ran(command, **options)

    monkeypatch.setenv("SOTTOVOCE_LEDGER", ADDRESS)
    monkeypatch.setenv("PGPASSWORD", SECRET)
    monkeypatch.setattr(subprocess, "run", watched)
    content = io.BytesIO()
    workspace = Workspace.for_ledger(None)
    pq.write_table(pa.table({"id": [SECRET], "v": [1.0]}), content)
    uploads.save_table(workspace, f"{SECRET}.parquet", content)
    workspace.clear()
    assert len(seen) == 1
    assert SECRET not in f"{seen[0]}"


@pytest.mark.skipif(sys.platform != "linux", reason="as Linux tells it")
@pytest.mark.parametrize("words", [["ledger", "key"], ["serve", "--no-open"]], ids=" ".join)
def test_memory_goes_to_no_core_file_and_to_no_other_process(tmp_path, words):
    """Asked at the end of the command in the process itself: what it was set to stays set."""
    books = tmp_path / "books.db"
    told = run(f"""
import ctypes, resource, sys
from sottovoce.cli.start import main
resource.setrlimit(resource.RLIMIT_CORE, (resource.getrlimit(resource.RLIMIT_CORE)[1],) * 2)
sys.argv = ["sottovoce", *{words!r}, "--ledger", {str(books)!r}]
try:
    main()
except SystemExit as end:
    assert end.code == 2, "there are no books"
print(resource.getrlimit(resource.RLIMIT_CORE), ctypes.CDLL(None).prctl(3, 0, 0, 0, 0))
""")
    assert told.stdout == "(0, 0) 0\n", told.stderr


def test_where_memory_cannot_be_closed_commands_go_on(monkeypatch):
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setitem(sys.modules, "resource", None)
    options_module.close_memory()
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setitem(sys.modules, "ctypes", None)
    options_module.close_memory()


GROUPS = {"group": ["a", "b"]}
TRUTHS = {
    "sum": lambda table: sv.Sum(bounds=(0, 1), by=GROUPS).fit(table, epsilon=1.0, column="value"),
    "mean": lambda table: sv.Mean(bounds=(0, 1), by=GROUPS).fit(table, epsilon=1.0, column="value"),
    "count": lambda table: sv.Count(by={"value": [0, 0.5, 1]}).fit(table, epsilon=1.0),
    "covariance": lambda table: sv.Covariance(bounds={"value": (0, 1), "other": (0, 1)}).fit(
        table, epsilon=1.0
    ),
    "report": lambda table: sv.Report({"sum": (sv.Sum(bounds=(0, 1), by=GROUPS), "value")}).fit(
        table, epsilon=1.0
    ),
}


def make_table(value):
    rows = len(value)
    return pa.table(
        {
            "value": value,
            "group": ["a", "b"] * (rows // 2),
            "other": np.linspace(0, 1, rows),
        }
    )


@pytest.mark.parametrize("encoded", [False, True], ids=["plain", "dictionary"])
@pytest.mark.parametrize("question", TRUTHS)
def test_whether_a_table_is_answered_does_not_tell_that_a_truth_is_missing(question, encoded):
    """A column of truths with a gap was one of objects for NumPy: the release failed, where without
    the gap it did not.
    """
    for truths in ([True, False] * 30, [True, None] + [True, False] * 29):
        value = pa.array(truths)
        if encoded:
            value = value.dictionary_encode()
        assert TRUTHS[question](make_table(value)).release_ is not None


@pytest.mark.parametrize("question", TRUTHS)
def test_a_table_of_what_are_no_numbers_is_refused_before_anybody_is_charged(question):
    with pytest.raises(errors.WrongType):
        TRUTHS[question](make_table(pa.array(["1", "2"] * 30)))
