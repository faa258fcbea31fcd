"""One mistake, four doors: Python names the parameter, the command line the option, the page the
field, and JSON the field of the request. Nothing guesses that from the words of a message.
"""

from __future__ import annotations

import ast
import pickle
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

import sottovoce as sv
from sottovoce.cli import console
from sottovoce.cli.main import app as command_line
from sottovoce.web import question_form
from sottovoce.web.question_form import Fields

SOURCE = Path(sv.__file__).parent
SALARY = (0, 200_000)
BOUNDS = sv.Bounds(features=(18, 90), label=SALARY)


def plan_model(estimator):
    return estimator.plan(epsilon=1.0, rows=600, n_features=1)


#: What is asked, with the mistake: by its name, the call in Python, and what the page is sent; then
#: the parameter, the option and both fields that must be named.
MISTAKES = {
    "a spread beyond the bounds": (
        lambda: sv.Mean(bounds=SALARY, spread=1e9).plan(epsilon=1.0, rows=600),
        ("mean", {"spread": 1e9}),
        ("spread", "--spread", "spread", "parameters.spread"),
    ),
    "a grid that is too fine": (
        lambda: sv.Quantile(q=0.5, bounds=SALARY, cells=10**9).plan(epsilon=1.0, rows=600),
        ("quantile", {"cells": 10**9}),
        ("cells", "--cells", "cells", "parameters.cells"),
    ),
    "a label scale beyond the label": (
        lambda: plan_model(sv.Ridge(bounds=BOUNDS, label_scale=1e9)),
        ("ridge", {"label_scale": 1e9}),
        ("label_scale", "--label-scale", "label_scale", "parameters.label_scale"),
    ),
    "no regularisation to speak of": (
        lambda: plan_model(sv.Ridge(bounds=BOUNDS, alpha=1e-300)),
        ("ridge", {"alpha": 1e-300}),
        ("alpha", "--alpha", "alpha", "parameters.alpha"),
    ),
    "a concentration beyond numbers": (
        lambda: plan_model(sv.PosteriorSample(bounds=BOUNDS, gamma=1e300)),
        ("posterior", {"gamma": 1e300}),
        ("gamma", "--gamma", "gamma", "parameters.gamma"),
    ),
    "a prior beyond numbers": (
        lambda: plan_model(sv.PosteriorSample(bounds=BOUNDS, alpha=1e300)),
        ("posterior", {"alpha": 1e300}),
        ("alpha", "--alpha", "alpha", "parameters.alpha"),
    ),
    "a δ below all units": (
        lambda: plan_model(sv.PosteriorSample(bounds=BOUNDS, delta=1e-300)),
        ("posterior", {"delta": 1e-300}),
        ("delta", "--delta", "delta", "parameters.delta"),
    ),
}


@pytest.fixture
def files(tmp_path, workspace, table, rows):
    """The table and its schema, as the page has them, in files."""
    (tmp_path / "salaries.csv").write_bytes(rows)
    (tmp_path / "schema.toml").write_text(question_form.write_toml(workspace.schemas[table]))
    return tmp_path


def find_wrong_fields(answer):
    return set(re.findall(r'<p class="wrongly" id="([\w-]+)-wrong">', answer.text))


@pytest.mark.parametrize("mistake", MISTAKES)
def test_every_door_names_the_mistake_in_its_own_words(mistake, client, table, files):
    call, (question, given), (parameter, option, field, json_field) = MISTAKES[mistake]

    with pytest.raises(sv.errors.InvalidInput) as refused:
        call()
    assert refused.value.parameter == parameter

    words = [f"--{name.replace('_', '-')}={value}" for name, value in given.items()]
    told = CliRunner().invoke(
        command_line,
        [
            *("plan", question, str(files / "salaries.csv")),
            *("--schema", str(files / "schema.toml")),
            *words,
        ],
    )
    assert told.exit_code == 2
    assert told.stderr.endswith(f" See {option}.\nNobody was charged.\n")

    asked = {"question": question, "column": "salary", "share": "100"}
    page = client.get(f"/question/{table}", params={**asked, **given})
    assert page.status_code == 422
    assert find_wrong_fields(page) == {field}

    answer = client.post(
        "/api/plan",
        json={"table": table, "question": question, "column": "salary", "parameters": given},
    )
    assert answer.status_code == 422
    assert [one["field"] for one in answer.json()["fields"]] == [json_field]
    assert answer.json()["fields"][0]["message"] == answer.json()["error"]
    for text in (str(refused.value), visible(page), answer.text):
        assert not re.search(r"--[a-z]", text)


def visible(page):
    return re.sub(r"<[^>]*>", " ", re.sub(r"<(script|style).*?</\1>", " ", page.text, flags=re.S))


def test_a_budget_is_named_by_the_option_that_set_it(files):
    """The library says epsilon; which option that was, only the command line knows."""
    (files / "zero.csv").write_text("id,epsilon,salary\na,0,1\nb,0,2\n")
    ask = ["plan", "mean", str(files / "zero.csv"), "--column", "salary", "--bounds", "0", "1"]
    options = {
        "--epsilon": ["--epsilon", "0"],
        "--budget-column": ["--budget-column", "epsilon"],
        "--budget-column, --budgets, --epsilon": [],
    }
    for named, words in options.items():
        told = CliRunner().invoke(command_line, [*ask, *words])
        assert told.exit_code == 2
        assert told.stderr.endswith(f" See {named}.\nNobody was charged.\n")


def test_a_file_that_is_missing_is_named_as_the_help_calls_it(files):
    ask = ["plan", "mean", str(files / "no.csv"), "--column", "a", "--bounds", "0", "1"]
    told = CliRunner().invoke(command_line, [*ask, "--epsilon", "1"])
    assert told.stderr.endswith(" See TABLE.\nNobody was charged.\n")


def test_every_option_of_the_table_is_one_of_some_command():
    """A name in the tables that no command has would never be printed."""
    there = {parameter.name for command in walk_commands() for parameter in command.params}
    named = {name for names in console.OPTIONS_OF_PARAMETERS.values() for name in names}
    assert named <= there
    assert set(console.ARGUMENTS) <= there
    for command in walk_commands():
        for parameter in command.params:
            is_argument = parameter.param_type_name == "argument"
            assert is_argument == (parameter.name in console.ARGUMENTS)


def walk_commands():
    import typer

    waiting = [typer.main.get_command(command_line)]
    while waiting:
        command = waiting.pop()
        if not hasattr(command, "list_commands"):
            yield command
            continue
        waiting += [command.get_command(None, name) for name in command.list_commands(None)]


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({}, "budget"),
        ({"trade_off": 1.0, "reserve": 2.0}, "reserve"),
        ({"trade_off": 1.0, "rule": "scaling"}, "rule"),
        ({"budget": 1.0, "coin": 1e-30}, "coin"),
        ({"budget": 1.0, "prior": {"law": "uniform", "numbers": [1, 2, 3]}}, "prior"),
        ({"budget": 1.0, "prior": {"law": "uniform", "numbers": [5, 1]}}, "prior.numbers"),
        ({"budget": 1.0, "prior": {"law": "normal", "numbers": [1, 0, 1, 5]}}, "prior.numbers"),
    ],
)
def test_a_market_names_the_field_of_its_terms(client, wrong, field):
    offered = {"costs": {"a": 1.0, "b": 2.0}, "prior": {"law": "uniform", "numbers": [1, 5]}}
    answer = client.post("/api/market", json={**offered, **wrong})
    assert answer.status_code == 422
    assert [one["field"] for one in answer.json()["fields"]] == [field]


def test_an_error_about_no_field_is_about_the_whole_form():
    fields = Fields({})
    known = {"alpha": "alpha"}
    fields.complain_about(sv.errors.InvalidParameter("This.", parameter="alpha"), known)
    fields.complain_about(sv.errors.InvalidParameter("That.", parameter="engine"), known)
    fields.complain_about(sv.errors.InvalidParameter("alpha is in the words alone."), known)
    assert fields.complaints == {"alpha": "This.", "": "That."}


@pytest.mark.parametrize(
    "error",
    [
        sv.errors.InvalidBounds("Found.", "Required.", "Remedy.", parameter="bounds"),
        sv.errors.WeakRegularisation("Found.", smallest=0.5, parameter="alpha"),
        sv.errors.ReleaseFailed(parameter="key"),
        sv.errors.BudgetExceeded("Found."),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_worker_sends_the_parameter_home(error):
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert vars(again) == vars(error)
    assert str(again) == str(error)


#: Strings outside cli/ that hold an option all the same: commands that are printed to be typed
#: (the last on a statement, whose bytes are its proof), the word with which the command line asks a
#: report for names, and variables of style sheets.
ALLOWED = re.compile(
    r"sottovoce [^`\n]*--[a-z]+|in the same way with --key:|^--reveal$"
    r"|var\(--[\w-]+|--[\w-]+:[^;}<]*[;}]"
)


def list_strings(path):
    """The strings of a module that are not docstrings, with their line."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, documented) and node.body and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        said = isinstance(node, ast.Constant) and isinstance(node.value, str)
        if said and id(node) not in docstrings:
            yield node.lineno, node.value


def find_options_in(paths):
    return [
        f"{path.name}:{line}"
        for path in paths
        for line, text in list_strings(path)
        if re.search(r"(?<![-\w])--[a-z]", ALLOWED.sub("", text))
    ]


def test_no_word_of_the_command_line_is_said_outside_it(tmp_path):
    others = [path for path in SOURCE.rglob("*.py") if path.parent.name != "cli"]
    assert len(others) > 100
    assert find_options_in(others) == []
    planted = tmp_path / "planted.py"
    planted.write_text('raise ValueError("Pass --bounds LOW HIGH.")\n')
    assert find_options_in([planted]) == ["planted.py:1"]


#: A pattern or a replacement that is put to the words of an error.
ON_MESSAGES = re.compile(
    r"re\.\w+\([^\n]*(str\((error|refused|found|exc)\)|\.(found|required|remedy)\b)"
    r"|\.(found|required|remedy)\.(replace|startswith|endswith|partition|split)\("
    r"|\bin (str\((error|refused)\)|f?\"?\{?(error|refused)\.(found|required|remedy))"
    r"|str\((error|refused)\)\.\w+\("
)


def test_nothing_is_read_out_of_a_message():
    for path in SOURCE.rglob("*.py"):
        assert not ON_MESSAGES.search(path.read_text(encoding="utf-8")), path
    for planted in (
        're.sub(r"--", "", str(error))',
        'refused.found.replace("--out", "--page")',
        'name in f"{error.found} {error.required}"',
        "if name in error.found:",
    ):
        assert ON_MESSAGES.search(planted), planted
