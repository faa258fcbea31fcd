"""What type checkers tell a user: nothing about right uses, and every mistake at its line.

Both run on the same two scripts: right.py and wrong.py.
"""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from importlib.resources import files
from pathlib import Path

import pytest

import sottovoce as sv
from sottovoce import audit

HERE = Path(__file__).parent
SCRIPTS = [HERE / "right.py", HERE / "wrong.py"]
SOURCE = Path(sv.__file__).parent.parent


def run(*words: object, **settings: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", *map(str, words)],
        capture_output=True,
        text=True,
        env={**os.environ, **settings},
        check=False,
    )
    assert done.returncode in (0, 1), done.stdout + done.stderr  # 1: mistakes were found
    return done.stdout


def check_by_mypy(folder: Path) -> list[tuple[str, int]]:
    """Returns where mypy sees errors, as a user who has no settings beyond strictness."""
    settings = folder / "mypy.ini"
    settings.write_text("[mypy]\nstrict = True\n", encoding="utf-8")
    told = run(
        "mypy",
        "--config-file",
        settings,
        "--cache-dir",
        folder / "cache",
        "--follow-imports=silent",
        *SCRIPTS,
        MYPYPATH=str(SOURCE),
    )
    found = re.findall(r"^(.*):(\d+): error: ", told, re.MULTILINE)
    return [(Path(path).name, int(line)) for path, line in found]


def check_by_pyright(folder: Path) -> list[tuple[str, int]]:
    """Returns where Pyright sees errors."""
    settings = {
        "include": list(map(str, SCRIPTS)),
        "extraPaths": [str(SOURCE)],
        "typeCheckingMode": "standard",
    }
    (folder / "pyrightconfig.json").write_text(json.dumps(settings), encoding="utf-8")
    told = run("basedpyright", "--project", folder, "--pythonpath", sys.executable, "--outputjson")
    return [
        (Path(found["file"]).name, found["range"]["start"]["line"] + 1)
        for found in json.loads(told)["generalDiagnostics"]
        if found["severity"] == "error"
    ]


@pytest.mark.parametrize("check", [check_by_mypy, check_by_pyright])
def test_right_uses_are_accepted_and_each_mistake_is_an_error(check, tmp_path):
    lines = SCRIPTS[1].read_text(encoding="utf-8").splitlines()
    marked = {
        (SCRIPTS[1].name, number)
        for number, line in enumerate(lines, 1)
        if line.endswith("  # error")
    }
    assert len(marked) > 25
    assert set(check(tmp_path)) == marked


def imported_for_type_checkers(module) -> set[str]:
    """Returns the names that a module imports if TYPE_CHECKING, as what they are called there."""
    tree = ast.parse(Path(module.__file__).read_text(encoding="utf-8"))
    (block,) = [
        node
        for node in tree.body
        if isinstance(node, ast.If)
        and isinstance(node.test, ast.Name)
        and node.test.id == "TYPE_CHECKING"
    ]
    imports = [node for node in block.body if isinstance(node, ast.ImportFrom)]
    names = {name.asname or name.name for node in imports for name in node.names}
    return {name for name in names if not name.startswith("_")}


@pytest.mark.parametrize("module", [sv, audit])
def test_type_checkers_know_every_public_name_and_no_other(module):
    assert imported_for_type_checkers(module) == set(module.__all__) - {"__version__"}


def test_the_package_says_that_it_has_types():
    assert files("sottovoce").joinpath("py.typed").is_file()
