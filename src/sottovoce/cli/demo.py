# SPDX-License-Identifier: Apache-2.0
"""`sottovoce demo`: the whole way from a table with people and budgets to a published model and its predictions.

Twice: on 442 real patients, and on a simulated clinic of 20,000. It says which commands it stands for, and
compares what personal budgets give with the other ways there are.
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sottovoce.asked import Said
from sottovoce.cli.voice import console, plainly, say

if TYPE_CHECKING:
    from sottovoce.cli.contest import Contest
    from sottovoce.cli.study import Study
    from sottovoce.release import Release

#: The files of a study: table, schema, model.
FILES = {
    "patients": ("patients.csv", "schema.toml", "model.json"),
    "clinic": ("clinic.csv", "clinic.toml", "clinic.json"),
}
WRITTEN = {
    "patients.csv": "442 real patients, with id, tier, features and progression",
    "schema.toml": "what is public about them",
    "model.json": "the released model, fit to be published",
    "clinic.csv": "20,000 simulated patients, with id, tier, features and cost",
    "clinic.toml": "what is public about them",
    "clinic.json": "the released model, fit to be published",
    "new.csv": "300 new patients of the clinic, without their cost",
    "predictions.csv": "what the released model predicts for them",
    "report.html": "the comparison, with pictures; open it in a browser",
}


@plainly()
def demo(
    out: Annotated[
        Path,
        typer.Option(help="The folder to write to; made if need be. Files of an earlier run are replaced, no others."),
    ] = Path("demo"),
) -> None:
    """Show the main job on 442 real and 20,000 simulated patients: plan, release, predict, compare."""
    from sottovoce.cli.files import make_folder
    from sottovoce.cli.study import clinic, patients

    make_folder(out)
    studies = [patients(), clinic()]
    _refuse_others(out, studies[0])
    _show_tables(studies, out)
    _head("2. Plan: who pays what and what to expect, before a feature or label is read")
    for study in studies:
        _show_plan(study, out)
    _head("3. Release: two models, fit to be published")
    released = [_released(study, out) for study in studies]
    _show_model(studies[1], released[1])
    _show_predictions(out)
    contests = _show_contests(studies)
    _show_files(contests, out)


def _refuse_others(out: Path, first: Study) -> None:
    """Refuses a folder with files of these names, unless the table that a run writes first shows that one was here."""
    from sottovoce.errors import InvalidParameter

    table = out / FILES[first.key][0]
    ours = table.is_file() and table.read_bytes() == first.csv().encode()
    if not ours and any((out / name).exists() for name in WRITTEN):
        raise InvalidParameter(
            "The folder of --out has files that the demonstration would replace, and that are not its own.",
            f"It writes {', '.join(WRITTEN)}.",
            "Name another folder.",
        )


def _show_tables(studies: list[Study], out: Path) -> None:
    from sottovoce.cli.files import write_whole

    _head("1. Two tables, and what everybody allows")
    for study in studies:
        table, schema, _ = FILES[study.key]
        write_whole(out / table, study.csv(), force=True, public=True)
        write_whole(out / schema, study.toml(), force=True, public=True)
        say(f"  {study.describe()}.")
    say(
        "The patients come with scikit-learn and are public; the clinic is invented. Everybody is given an ε by a "
        "fixed rule from the row number: how much may be learnt about them in all."
    )


def _show_plan(study: Study, out: Path) -> None:
    from sottovoce.asked import planned, question
    from sottovoce.cli.pictures import show_plan

    said = _said(study, out)
    _show_command(_typed("plan", study, out))
    show_plan(planned(said, question("Ridge", said)))
    say("")


def _released(study: Study, out: Path) -> Release:
    from sottovoce.asked import answered, question
    from sottovoce.cli.files import write_whole

    said = _said(study, out)
    release = answered(said, question("Ridge", said))
    write_whole(out / FILES[study.key][2], release.to_json(), force=True, public=True)
    _show_command(_typed("release", study, out) + f" --out {_path(out, FILES[study.key][2])} --force")
    return release


def _show_model(study: Study, release: Release) -> None:
    from sottovoce.cli.contest import exact_coefficients
    from sottovoce.cli.pictures import table

    exact = exact_coefficients(study)
    lines = [[name, f"{value:.1f}", f"{exact[name]:.1f}"] for name, value in release.value["coefficients"].items()]  # type: ignore[call-overload, index]
    say(f"\nThe clinic's model, in {study.unit} for one unit more of a feature:")
    console().print(table(["", "released", "exact, not private"], lines, words=1))
    say("Exact numbers can be shown here only because these people are invented.", style="dim")


def _show_predictions(out: Path) -> None:
    import numpy as np
    from pyarrow import csv

    from sottovoce.cli.files import load_release, write_whole, writing
    from sottovoce.cli.model import PREDICTION, Model
    from sottovoce.cli.predict import write_predictions
    from sottovoce.cli.study import newcomers

    _head("4. Predict: new patients, from the published model alone")
    table, cost = newcomers()
    write_whole(out / "new.csv", table, force=True, public=True)
    with writing(out / "predictions.csv", force=True, public=True) as file:
        rows = write_predictions(Model.of(load_release(out / "clinic.json")), str(out / "new.csv"), "id", file.content)
    names = _path(out, "clinic.json"), _path(out, "new.csv"), _path(out, "predictions.csv")
    _show_command(f"sottovoce predict {names[0]} {names[1]} --id-column id --out {names[2]} --force")
    told = csv.read_csv(out / "predictions.csv")[PREDICTION].to_numpy()
    error = float(np.sqrt(np.mean((told - cost) ** 2)))
    say(
        f"{rows} predictions, typically wrong by {error:,.0f} euros where one guess for all would be wrong by "
        f"{float(np.std(cost)):,.0f}. Predicting costs nobody any ε."
    )


def _show_contests(studies: list[Study]) -> list[Contest]:
    from sottovoce.cli.contest import REPEATS, contest, number
    from sottovoce.cli.pictures import bars, table

    _head("5. What it is worth: errors on people that no model has seen")
    with console(stderr=True).status("Fitting 120 models; this may take half a minute."):
        contests = [contest(study) for study in studies]
    say(f"A third is held out; {REPEATS} fits each with fresh noise; the typical (root mean square) error, averaged.")
    for held in contests:
        say(f"\n{held.study.describe()}", style="bold")
        heads = ["way", "", f"error, {held.study.unit}"]
        console().print(table(heads, [[w.name, w.note, number(w.error)] for w in held.ways], words=2))
        say("\n" + bars({way.name: way.error for way in held.ways}))
        say("\n" + "\n".join(held.lessons()))
    say("\n" + CAUTION, style="dim")
    return contests


CAUTION = (
    "Errors hold noise, so they change from run to run, those of the 442 by several points. The clinic's ε were chosen "
    "small enough for the ways to differ: with the ε of the 442, from 0.1 to 2, its 20,000 people are so many that one "
    "ε for all is nearly as good (2,081 euros against 1,995, when this was written). "
    "A model in which some are heard louder stands for everybody only if budgets do not go along with values; "
    "here they cannot, being given out by row number."
)


def _show_files(contests: list[Contest], out: Path) -> None:
    from sottovoce.cli.files import write_whole
    from sottovoce.cli.report import report

    write_whole(out / "report.html", report(contests, CAUTION), force=True, public=True)
    _head("6. Written")
    for name, what in WRITTEN.items():
        say(f"  {out / name}: {what}", whole=True)
    say("Try next:")
    _show_command(f"sottovoce explain {_path(out, 'model.json')}")
    _show_command(_typed("plan", contests[0].study, out) + " --epsilon 0.1")
    _show_command(_typed("plan", contests[1].study, out) + " --method output --alpha 1")
    _show_command(f"sottovoce plan mean {_path(out, 'patients.csv')} --schema {_path(out, 'schema.toml')}")


def _said(study: Study, out: Path) -> Said:
    table, schema, _ = FILES[study.key]
    return Said(str(out / table), schema=out / schema, key=study.key).for_regression()


def _typed(verb: str, study: Study, out: Path) -> str:
    table, schema, _ = FILES[study.key]
    return f"sottovoce {verb} ridge {_path(out, table)} --schema {_path(out, schema)}"


def _path(out: Path, name: str) -> str:
    return shlex.quote(str(out / name))


def _head(title: str) -> None:
    say(f"\n{title}", style="bold")


def _show_command(command: str) -> None:
    say(f"$ {command}", style="cyan", whole=True)
