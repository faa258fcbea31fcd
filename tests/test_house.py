"""What the house promises to whoever reads it, counted; and that each count sees a violation.

A failure names the places. The limits are for the whole tree; lines over 100 characters are ruff's.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import sottovoce

#: The source is parsed once, by one worker.
pytestmark = pytest.mark.xdist_group("house")
ROOT = Path(sottovoce.__file__).parent
#: Files may be added for a new capability; this is raised with it, and never for a split.
MOST_FILES = 213
MOST_LINES = 650
MOST_PARTICIPLES = 10
MOST_PACKED = 0.02
MOST_CONDITIONAL = 7 / 1000
#: Longer files that are one idea each, with the idea.
LONG_FILES = {
    "audit/instance_losses.py": "one audit: what each row, person and group lost",
    "audit/inputs.py": "what an audit reads: a release, its estimator, rows and budgets",
    "audit/model_replays.py": "one replay: the stages of every model with noise in its objective",
    "budgets.py": "who allows how much, in every form in which it can be said",
    "data/cells.py": "one description: what the cells of a table are, and which a row falls into",
    "data/engine.py": "one contract: engines, batches, and what a question reads of them",
    "data/encoding.py": "features and label as numbers: declared, recoded and read",
    "data/loss_kernels.py": "the terms of every loss, as exact sums over rows",
    "data/source.py": "one class: a table and what its columns are for",
    "estimator.py": "one contract: the steps of an estimator and of every release",
    "estimators/__init__.py": "the registry: every question and what can be set",
    "estimators/baselines.py": "four ways around an estimator that share one request",
    "estimators/erm.py": "one question: what is asked, planned and promised",
    "estimators/label_private.py": "one question: what is asked, planned and promised",
    "estimators/logistic_mechanism.py": "one proof: noise, weights, charges and purchases",
    "estimators/mean.py": "one question: its plan, its answer, and what its interval buys",
    "estimators/posterior.py": "one question twice: both kinds of posterior sample",
    "estimators/posterior_mechanism.py": "one proof: both accountants of one sampler",
    "estimators/ridge_objective.py": "one method: its stages, its plan and its answer",
    "estimators/ridge_recipe.py": "one choice: stages, shares and constants, from public numbers",
    "ledgers/sql_ledger.py": "one ledger on two databases",
    "ledgers/witness.py": "the four kinds of witness, and asking all of them",
    "papers/ridge_tables.py": "the tables of one paper",
    "plan.py": "what an answer will cost whom, and its error by cause and by cell",
    "release.py": "the public answer: value, intervals, promise, certificate",
    "schema.py": "the public description of a table",
    "session.py": "one class, each public method of which is a page of the reference",
    "solvers/interior_point.py": "one solver",
    "wording.py": "what plans and releases say to people, and nothing else",
    "web/api.py": "one interface: its bodies, its answers and its paths",
}
#: Words of the field that end like a participle.
FIELD = {"cached", "clipped", "fitted", "signed", "weighted"}
#: Nouns and verbs that only look like one.
NOT_PARTICIPLES = ("need", "speed", "feed", "seed", "exceed", "embed", "proceed")


def read_sources(root: Path) -> dict[str, str]:
    return {
        path.relative_to(root).as_posix(): path.read_text(encoding="utf-8")
        for path in sorted(root.rglob("*.py"))
    }


@cache
def list_nodes(text: str) -> list[ast.AST]:
    return list(ast.walk(ast.parse(text)))


def walk(sources: dict[str, str]) -> Iterator[tuple[str, ast.AST]]:
    for path, text in sources.items():
        for node in list_nodes(text):
            yield path, node


def list_too_many_files(sources: dict[str, str]) -> list[str]:
    return sorted(sources)[MOST_FILES:]


def list_long_files(sources: dict[str, str]) -> list[str]:
    return [
        f"{path}: {text.count(chr(10))} lines"
        for path, text in sources.items()
        if text.count("\n") > MOST_LINES and path not in LONG_FILES
    ]


def list_repeated_classes(sources: dict[str, str]) -> list[str]:
    places = defaultdict(list)
    for path, node in walk(sources):
        if isinstance(node, ast.ClassDef):
            places[node.name].append(path)
    return [f"{name}: {', '.join(paths)}" for name, paths in places.items() if len(paths) > 1]


def is_participle(name: str) -> bool:
    bare = name.strip("_")
    return (
        "_" not in bare
        and bare.endswith("ed")
        and len(bare) > 4
        and bare not in FIELD
        and not bare.endswith(NOT_PARTICIPLES)
    )


def list_participles(sources: dict[str, str]) -> list[str]:
    """Returns the names, if there are more than a few."""
    names = {
        node.name
        for _, node in walk(sources)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and is_participle(node.name)
    }
    return sorted(names) if len(names) > MOST_PARTICIPLES else []


def list_packed_assignments(sources: dict[str, str]) -> list[str]:
    """Returns where several values are assigned on a line, if that is usual."""
    count = 0
    packed = []
    for path, node in walk(sources):
        if isinstance(node, ast.Assign):
            count += 1
            if isinstance(node.targets[0], ast.Tuple) and isinstance(node.value, ast.Tuple):
                packed.append(f"{path}:{node.lineno}")
    return packed if len(packed) > MOST_PACKED * count else []


def list_conditional_expressions(sources: dict[str, str]) -> list[str]:
    """Returns where they are, if they are usual."""
    lines = sum(text.count("\n") for text in sources.values())
    found = [f"{path}:{node.lineno}" for path, node in walk(sources) if isinstance(node, ast.IfExp)]
    return found if len(found) > MOST_CONDITIONAL * lines else []


#: Each check, and sources that it must not accept.
CHECKS = {
    list_too_many_files: {f"m{number}.py": "" for number in range(MOST_FILES + 1)},
    list_long_files: {"long.py": "x = 1\n" * (MOST_LINES + 1)},
    list_repeated_classes: {"a.py": "class Same: ...\n", "b.py": "class Same: ...\n"},
    list_participles: {"a.py": "".join(f"def _{x * 3}ed(): ...\n" for x in "abcdefghijk")},
    list_packed_assignments: {"a.py": "x = 1\n" * 48 + "x, y = 1, 2\n"},
    list_conditional_expressions: {"a.py": "x = 1 if y else 2\n" + "x = 1\n" * 140},
}
#: The same, one less.
ACCEPTED = {
    list_too_many_files: {f"m{number}.py": "" for number in range(MOST_FILES)},
    list_long_files: {"long.py": "x = 1\n" * MOST_LINES},
    list_repeated_classes: {"a.py": "class Same: ...\n", "b.py": "class Other: ...\n"},
    list_participles: {"a.py": "".join(f"def _{x * 3}ed(): ...\n" for x in "abcdefghij")},
    list_packed_assignments: {"a.py": "x = 1\n" * 49 + "x, y = 1, 2\n"},
    list_conditional_expressions: {"a.py": "x = 1 if y else 2\n" + "x = 1\n" * 143},
}


@pytest.fixture(scope="module")
def sources() -> dict[str, str]:
    return read_sources(ROOT)


@pytest.mark.parametrize("check", CHECKS)
def test_the_house_is_as_promised(check, sources):
    assert check(sources) == []


@pytest.mark.parametrize("check", CHECKS)
def test_a_violation_is_seen(check):
    assert check(CHECKS[check])
    assert check(ACCEPTED[check]) == []


def test_files_that_may_be_long_are_there(sources):
    assert set(LONG_FILES) <= set(sources)


def find_long_lines(*words: object, text: str | None = None) -> subprocess.CompletedProcess[str]:
    """Asks ruff, which knows how wide a letter is."""
    command = [sys.executable, "-m", "ruff", "check", "--no-cache", "--select", "E501"]
    return subprocess.run(
        [*command, *map(str, words)], input=text, capture_output=True, text=True, check=False
    )


def test_no_line_is_wider_than_a_hundred_letters():
    found = find_long_lines(ROOT)
    assert found.returncode == 0, found.stdout
    for width, code in ((100, 0), (101, 1)):
        line = f"# {'x x' * 33}"
        text = line[:width].ljust(width, "x") + "\n"
        assert find_long_lines("--stdin-filename", ROOT / "a.py", "-", text=text).returncode == code
