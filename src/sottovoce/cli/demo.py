# SPDX-License-Identifier: Apache-2.0
"""`sottovoce demo`: the whole way from a table with people and budgets to published answers.

It says which commands it stands for, keeps one set of books over both questions, and compares what
personal budgets give with what one ε for everybody would.
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sottovoce.cli.voice import console, plainly, say
from sottovoce.cli.words import Said

if TYPE_CHECKING:
    from sottovoce.cli.study import Answer, Asked, Study
    from sottovoce.plan import Plan
    from sottovoce.session import Session

WRITTEN = {
    "patients.csv": "the table, with id, bmi, epsilon, epsilon_each",
    "schema.toml": "what is public about it",
    "mean.json": "a release, fit to be published",
    "quartiles.json": "a release, fit to be published",
    "report.html": "this comparison, with a picture; open it in a browser",
}


@plainly()
def demo(out: Annotated[Path, typer.Option(help="The folder to write to; made if need be.")] = Path("demo")) -> None:
    """Show the main job on 442 real patients: plan, release, compare, in a few seconds."""
    from sottovoce.cli.study import Study

    study = Study()
    _show_table(study, out)
    _head("2. Plan: who pays what, before the column is read")
    plans = [_show_plan(asked, out) for asked in study.questions]
    session = _opened(out)
    answers = _show_answers(study, out, session)
    _show_books(study, plans, session)
    _show_ways(study)
    _show_files(study, answers, out)


def _show_table(study: Study, out: Path) -> None:
    from sottovoce.cli.files import make_folder, write_whole
    from sottovoce.cli.study import SCHEMA, TIERS

    make_folder(out)
    write_whole(out / "patients.csv", study.csv())
    write_whole(out / "schema.toml", SCHEMA)
    _head("1. A table, and what everybody allows")
    say(
        f"{study.people} patients of a diabetes study that comes with scikit-learn; the data are public. Each is given "
        "an ε by a fixed rule from the row number: how much may be learnt about them in all."
    )
    for tier in TIERS:
        say(f"  {len(study.members(tier))} {tier.name:8} ε = {tier.epsilon:g}")
    say(
        "Two questions will be asked, and ε adds up: the column epsilon_each holds half of everybody's epsilon, "
        "and that is what a question may cost them."
    )


def _show_plan(asked: Asked, out: Path) -> Plan:
    from sottovoce.cli.answers import planned
    from sottovoce.cli.pictures import show_plan

    plan = planned(_said(asked, out), asked.question)
    _show_command(_typed("plan", asked, out))
    show_plan(plan)
    say("")
    return plan


def _opened(out: Path) -> Session:
    """Returns a session in which everybody granted what they allow in all."""
    from sottovoce.census import take_census
    from sottovoce.engine import named
    from sottovoce.session import Session

    table = named("arrow").open_table(str(out / "patients.csv"), ("epsilon",))
    budgets, _ = take_census(table, budget="epsilon", person="id")
    session = Session()
    session.grant(budgets)
    return session


def _show_answers(study: Study, out: Path, session: Session) -> list[Answer]:
    from sottovoce.cli.answers import answered
    from sottovoce.cli.files import write_whole
    from sottovoce.cli.pictures import table

    _head("3. Release")
    answers: list[Answer] = []
    for asked in study.questions:
        release = answered(_said(asked, out), asked.question, session=session)
        write_whole(out / f"{asked.key}.json", release.to_json())
        _show_command(_typed("release", asked, out) + f" --out {shlex.quote(str(out / asked.key))}.json")
        answers += study.answers(asked, release)
    heads = ["body-mass index", "released", "expected error", "exact, not private"]
    lines = [[a.name, f"{a.released:.2f}", a.error, f"{a.exact:.2f}"] for a in answers]
    console().print(table(heads, lines, words=1))
    say("The exact numbers can be shown here only because these data are public.", style="dim")
    return answers


def _show_books(study: Study, plans: list[Plan], session: Session) -> None:
    from sottovoce.cli.pictures import table
    from sottovoce.cli.study import TIERS

    session.verify()
    spent = [[line["spent"] for line in plan.who_pays()] for plan in plans]
    lines = [
        [
            tier.name,
            *(f"{round(amount, 6):g}" for amount in (tier.epsilon, *costs, session.balance(study.members(tier)[0]))),
        ]
        for tier, *costs in zip(TIERS, *spent, strict=True)
    ]
    _head("4. The books, in ε for each patient")
    console().print(table(["", "granted", "mean", "quartiles", "left"], lines, words=1))


def _show_ways(study: Study) -> None:
    from sottovoce.cli.pictures import bars, table

    _head("5. What personal budgets are worth: the error to expect, from public numbers alone")
    heads = ["way", "heard", "mean, points", "quartiles, people"]
    lines = [[w.name, f"{w.people}", f"{w.mean_error:.2f}", f"{w.quartile_error:.1%}"] for w in study.ways]
    console().print(table(heads, lines, words=1))
    say("\nError of the mean, in points (shorter is better)")
    say(bars({way.name: way.mean_error for way in study.ways}))
    say("\n" + "\n\n".join(study.lessons()))


def _show_files(study: Study, answers: list[Answer], out: Path) -> None:
    from sottovoce.cli.files import write_whole
    from sottovoce.cli.report import report

    write_whole(out / "report.html", report(study, answers))
    _head("6. Written")
    for name, what in WRITTEN.items():
        say(f"  {out / name}: {what}", whole=True)
    say("Try next:")
    _show_command(f"sottovoce explain {shlex.quote(str(out / 'mean.json'))}")
    _show_command(_typed("plan", study.mean, out) + " --epsilon 0.05")
    _show_command(f"sottovoce schema draft {shlex.quote(str(out / 'patients.csv'))}")


def _said(asked: Asked, out: Path) -> Said:
    return Said(str(out / "patients.csv"), schema=out / "schema.toml", key=asked.key).completed()


def _typed(verb: str, asked: Asked, out: Path) -> str:
    table, schema = (shlex.quote(str(out / name)) for name in ("patients.csv", "schema.toml"))
    return f"sottovoce {verb} {asked.words} {table} --schema {schema} {asked.options}"


def _head(title: str) -> None:
    say(f"\n{title}", style="bold")


def _show_command(command: str) -> None:
    say(f"$ {command}", style="cyan", whole=True)
