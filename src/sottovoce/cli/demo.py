# SPDX-License-Identifier: Apache-2.0
"""`sottovoce demo`: the whole way from a table with people and budgets to a published model and its
predictions.

Twice: on 442 real patients, and on a simulated clinic of 20,000. It says which commands it stands
for, and compares what personal budgets give with the other ways there are.
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sottovoce.cli.console import echo, exit_on_error, get_console

if TYPE_CHECKING:
    from sottovoce.cli.demo_comparison import Comparison, DemoDataset
    from sottovoce.data.source import DataSource
    from sottovoce.release import Release

#: The files of a study: table, schema, model.
DATASET_FILES = {
    "patients": ("patients.csv", "schema.toml", "model.json"),
    "clinic": ("clinic.csv", "clinic.toml", "clinic.json"),
}
FILE_DESCRIPTIONS = {
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


@exit_on_error()
def demo(
    out: Annotated[
        Path,
        typer.Option(
            help="The folder to write to; made if need be. Files of an earlier run are replaced, "
            "no others."
        ),
    ] = Path("demo"),
) -> None:
    """Show the main job on patients, real and simulated: plan, release, predict, compare."""
    from sottovoce.cli.console import make_folder
    from sottovoce.cli.demo_comparison import load_patients, simulate_clinic

    make_folder(out)
    studies = [load_patients(), simulate_clinic()]
    _refuse_others(out, studies[0])
    _show_tables(studies, out)
    _show_heading("2. Plan: who pays what and what to expect, before a feature or label is read")
    for study in studies:
        _show_plan(study, out)
    _show_heading("3. Release: two models, fit to be published")
    released = [_release_model(study, out) for study in studies]
    _show_model(studies[1], released[1])
    _show_predictions(out)
    contests = _show_comparisons(studies)
    _show_files(contests, out)


def _refuse_others(out: Path, first: DemoDataset) -> None:
    """Refuses a folder with files of these names, unless the table that a run writes first shows
    that one was here.
    """
    from sottovoce.errors import InvalidParameter

    table = out / DATASET_FILES[first.key][0]
    ours = table.is_file() and table.read_bytes() == first.csv().encode()
    if not ours and any((out / name).exists() for name in FILE_DESCRIPTIONS):
        raise InvalidParameter(
            "The folder of --out has files that the demonstration would replace, and that are "
            "not its own.",
            f"It writes {', '.join(FILE_DESCRIPTIONS)}.",
            "Name another folder.",
        )


def _show_tables(studies: list[DemoDataset], out: Path) -> None:
    from sottovoce.cli.console import write_file

    _show_heading("1. Two tables, and what everybody allows")
    for study in studies:
        table, schema, _ = DATASET_FILES[study.key]
        write_file(out / table, study.csv(), force=True, public=True)
        write_file(out / schema, study.toml(), force=True, public=True)
        echo(f"  {study.describe()}.")
    echo(
        "The patients come with scikit-learn and are public; the clinic is invented. Everybody is "
        "given an ε by a fixed rule from the row number: how much may be learnt about them in all."
    )


def _show_plan(study: DemoDataset, out: Path) -> None:
    from sottovoce.cli.console import show_plan
    from sottovoce.estimator import make_estimator
    from sottovoce.estimators.ridge import Ridge
    from sottovoce.session import plan_from_table

    said = _find_source(study, out)
    _show_command(_format_command("plan", study, out))
    show_plan(plan_from_table(said, make_estimator(Ridge, said)))
    echo("")


def _release_model(study: DemoDataset, out: Path) -> Release:
    from sottovoce.cli.console import write_file
    from sottovoce.estimator import make_estimator, release_unbooked
    from sottovoce.estimators.ridge import Ridge

    said = _find_source(study, out)
    release = release_unbooked(said, make_estimator(Ridge, said))
    write_file(out / DATASET_FILES[study.key][2], release.to_json(), force=True, public=True)
    _show_command(
        _format_command("release", study, out)
        + f" --out {_quote_path(out, DATASET_FILES[study.key][2])} --force"
    )
    return release


def _show_model(study: DemoDataset, release: Release) -> None:
    from sottovoce.cli.console import make_table
    from sottovoce.cli.demo_comparison import compute_exact_coefficients

    exact = compute_exact_coefficients(study)
    coefficients = release.value["coefficients"]  # type: ignore[call-overload, index]
    lines = [[name, f"{value:.1f}", f"{exact[name]:.1f}"] for name, value in coefficients.items()]
    echo(f"\nThe clinic's model, in {study.unit} for one unit more of a feature:")
    get_console().print(make_table(["", "released", "exact, not private"], lines, words=1))
    echo("Exact numbers can be shown here only because these people are invented.", style="dim")


def _show_predictions(out: Path) -> None:
    import numpy as np
    from pyarrow import csv

    from sottovoce.cli.console import load_release, open_unfinished, write_file
    from sottovoce.cli.demo_comparison import simulate_newcomers
    from sottovoce.cli.predict import PREDICTION, ReleasedModel, write_predictions

    _show_heading("4. Predict: new patients, from the published model alone")
    table, cost = simulate_newcomers()
    write_file(out / "new.csv", table, force=True, public=True)
    with open_unfinished(out / "predictions.csv", force=True, public=True) as file:
        rows = write_predictions(
            ReleasedModel.of(load_release(out / "clinic.json")),
            str(out / "new.csv"),
            "id",
            file.content,
        )
    names = (
        _quote_path(out, "clinic.json"),
        _quote_path(out, "new.csv"),
        _quote_path(out, "predictions.csv"),
    )
    _show_command(
        f"sottovoce predict {names[0]} {names[1]} --id-column id --out {names[2]} --force"
    )
    told = csv.read_csv(out / "predictions.csv")[PREDICTION].to_numpy()
    error = float(np.sqrt(np.mean((told - cost) ** 2)))
    echo(
        f"{rows} predictions, typically wrong by {error:,.0f} euros where one guess for all would "
        f"be wrong by {float(np.std(cost)):,.0f}. Predicting costs nobody any ε."
    )


def _show_comparisons(studies: list[DemoDataset]) -> list[Comparison]:
    from sottovoce.cli.console import format_bars, make_table
    from sottovoce.cli.demo_comparison import REPEATS, compare_methods, format_error

    _show_heading("5. What it is worth: errors on people that no model has seen")
    with get_console(stderr=True).status("Fitting 120 models; this may take half a minute."):
        contests = [compare_methods(study) for study in studies]
    echo(
        f"A third is held out; {REPEATS} fits each with fresh noise; the typical (root mean "
        "square) error, averaged."
    )
    for held in contests:
        echo(f"\n{held.study.describe()}", style="bold")
        heads = ["way", "", f"error, {held.study.unit}"]
        get_console().print(
            make_table(heads, [[w.name, w.note, format_error(w.error)] for w in held.ways], words=2)
        )
        echo("\n" + format_bars({way.name: way.error for way in held.ways}))
        echo("\n" + "\n".join(held.lessons()))
    echo("\n" + CAUTION, style="dim")
    return contests


CAUTION = (
    "Errors hold noise, so they change from run to run, those of the 442 by several points. The "
    "clinic's ε were chosen small enough for the ways to differ: with the ε of the 442, from 0.1 "
    "to 2, its 20,000 people are so many that one ε for all is nearly as good (2,081 euros against "
    "1,995, when this was written). A model in which some have more weight stands for everybody "
    "only if budgets do not go along with values; here they cannot, being given out by row number."
)


def _show_files(contests: list[Comparison], out: Path) -> None:
    from sottovoce.cli.console import write_file
    from sottovoce.cli.demo_comparison import make_report

    write_file(out / "report.html", make_report(contests, CAUTION), force=True, public=True)
    _show_heading("6. Written")
    for name, what in FILE_DESCRIPTIONS.items():
        echo(f"  {out / name}: {what}", whole=True)
    echo("Try next:")
    _show_command(f"sottovoce explain {_quote_path(out, 'model.json')}")
    _show_command(_format_command("plan", contests[0].study, out) + " --epsilon 0.1")
    _show_command(_format_command("plan", contests[1].study, out) + " --method output --alpha 1")
    _show_command(
        f"sottovoce plan mean {_quote_path(out, 'patients.csv')} --schema "
        f"{_quote_path(out, 'schema.toml')}"
    )


def _find_source(study: DemoDataset, out: Path) -> DataSource:
    from sottovoce.data.source import DataSource

    table, schema, _ = DATASET_FILES[study.key]
    return DataSource(str(out / table), schema=out / schema).for_regression()


def _format_command(verb: str, study: DemoDataset, out: Path) -> str:
    table, schema, _ = DATASET_FILES[study.key]
    return f"sottovoce {verb} ridge {_quote_path(out, table)} --schema {_quote_path(out, schema)}"


def _quote_path(out: Path, name: str) -> str:
    return shlex.quote(str(out / name))


def _show_heading(title: str) -> None:
    echo(f"\n{title}", style="bold")


def _show_command(command: str) -> None:
    echo(f"$ {command}", style="cyan", whole=True)
