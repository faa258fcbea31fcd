"""The verbs and the version."""

from __future__ import annotations

from importlib.metadata import version

from typer.main import get_command

from sottovoce.cli.main import COMMANDS, app
from sottovoce.estimators import list_questions


def test_the_version_is_that_of_the_package(run):
    assert run("--version").stdout == f"sottovoce {version('sottovoce')}\n"


def test_help_lists_every_verb_in_the_order_of_use(run):
    assert set(COMMANDS) == set(get_command(app).commands)
    told = run("--help").stdout
    assert sorted(COMMANDS, key=lambda verb: told.index(f" {verb} ")) == list(COMMANDS)


def test_plan_and_release_take_the_same_words():
    verbs = [get_command(app).commands[verb] for verb in ("plan", "release")]
    questions = {name for name, one in list_questions().items() if one.offered}
    questions |= {"report", "sql"}
    for verb in verbs:
        assert set(verb.list_commands(None)) == questions
    for question in questions:
        plan, release = (
            [p.opts for p in verb.get_command(None, question).params] for verb in verbs
        )
        assert plan == release
