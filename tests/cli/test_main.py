"""The verbs and the version."""

from __future__ import annotations

from importlib.metadata import version

from typer.main import get_command

from sottovoce.cli.main import COMMANDS, app


def test_the_version_is_that_of_the_package(run):
    assert run("--version").stdout == f"sottovoce {version('sottovoce')}\n"


def test_help_lists_every_verb_in_the_order_of_use(run):
    assert set(COMMANDS) == set(get_command(app).commands)
    told = run("--help").stdout
    assert sorted(COMMANDS, key=lambda verb: told.index(f" {verb} ")) == list(COMMANDS)


def test_plan_and_release_take_the_same_words():
    verbs = get_command(app).commands
    assert (
        set(verbs["plan"].commands)
        == set(verbs["release"].commands)
        == {"mean", "quantile", "ridge", "logistic", "posterior"}
    )
    for question in ("mean", "quantile", "ridge", "logistic"):
        plan, release = (
            [p.opts for p in verbs[v].commands[question].params] for v in ("plan", "release")
        )
        assert plan == release
