# SPDX-License-Identifier: Apache-2.0
"""`sottovoce predict`: a published model applied to new rows, in the label's own units or classes.

It needs the release and nothing else, and costs nobody anything. Rows are read batch by batch and come
out in their order; the file is whole or not there. Cells that are copied and that a spreadsheet would
take for a formula get an apostrophe in front.
"""

from __future__ import annotations

import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO

import typer

from sottovoce.cli import words
from sottovoce.cli.model import PREDICTION, Model
from sottovoce.cli.voice import console, plainly, say

if TYPE_CHECKING:
    from sottovoce.engine import TextFormat, Watch

#: What a spreadsheet may take for the beginning of a formula.
FORMULA = r"^[=+\-@\t\r]"
#: Up to here predictions for standard output wait in memory until all are there; beyond, on disc.
IN_MEMORY = 2**24


@plainly()
@words.reads_text
def predict(
    model: Annotated[
        Path, typer.Argument(metavar="MODEL", help="A JSON file written by `sottovoce release`, of ridge or logistic.")
    ],
    table: words.Table,
    text: Any,
    id_column: Annotated[
        str | None, typer.Option(help="A column to copy, so that predictions can be told apart.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="The CSV file to write; standard output if not given.")] = None,
    force: words.Force = False,
) -> None:
    """Predict the label of new rows with a released model; for classes, with the probability of each.

    Numbers beyond the model's bounds are clipped, and a level that it does not know counts as none of its levels.
    """
    from sottovoce.cli.files import load_release, refuse_unwritable, writing
    from sottovoce.cli.progress import RowsDone

    released = Model.of(load_release(model))
    refuse_unwritable(out, table, model, force=force)
    with RowsDone(console(stderr=True), ("Predicting",)) as watch:
        if out is not None:
            with writing(out, force=force) as file:
                rows = write_predictions(released, table, id_column, file.content, watch, text)
            out = file.path
        else:
            with tempfile.SpooledTemporaryFile(IN_MEMORY) as waiting:
                rows = write_predictions(released, table, id_column, waiting, watch, text)  # type: ignore[arg-type]
                waiting.seek(0)
                for lines in iter(lambda: waiting.read(IN_MEMORY), b""):
                    typer.echo(lines, nl=False)
    say(f"{rows:,} rows predicted, from the published model alone: nobody is charged for it.", stderr=True)
    if out is not None:
        say(f"Written to {out}.", stderr=True)


def write_predictions(
    model: Model,
    table: str,
    id_column: str | None,
    file: BinaryIO,
    watch: Watch | None = None,
    text: TextFormat | None = None,
) -> int:
    """Writes predictions for every row of the table as CSV, and returns how many there are."""
    from sottovoce.engine import USUAL_TEXT, named, require_columns

    if id_column in model.heads:
        raise _same_name(str(id_column))
    engine = named("arrow").open_table(table, model.numbers, watch, text or USUAL_TEXT)
    require_columns(engine, *model.columns, id_column)
    copied = () if id_column is None else (id_column,)
    file.write(_lines({name: [] for name in (*copied, *model.heads)}, header=True))
    written: _Written = engine.fold(_Predicted(model, id_column, file))
    return written.rows


@dataclass(eq=False)
class _Written:
    """Predictions that have gone to the file, in the order of rows."""

    file: BinaryIO
    rows: int = 0

    def __add__(self, part: tuple[int, bytes]) -> _Written:
        self.file.write(part[1])
        return _Written(self.file, self.rows + part[0])


@dataclass(frozen=True, eq=False)
class _Predicted:
    """The kernel that makes lines of CSV from a batch; the engine adds them in the order of rows."""

    model: Model
    id_column: str | None
    file: BinaryIO

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*self.model.columns, *(() if self.id_column is None else (self.id_column,)))))

    def zero(self) -> Any:
        return _Written(self.file)

    def __call__(self, batch: Any) -> Any:
        copied = {} if self.id_column is None else {self.id_column: harmless_cells(batch.column(self.id_column))}
        return len(batch), _lines({**copied, **self._predict_cells(batch)}, header=False)

    def _predict_cells(self, batch: Any) -> dict[str, Any]:
        import pyarrow as pa

        told = self.model.predict_batch(batch)
        return {**told, PREDICTION: harmless_cells(pa.array(told[PREDICTION]))} if self.model.classes else told


def harmless_cells(column: Any) -> Any:
    """Returns a column to be copied, with an apostrophe before text that a spreadsheet would take for a formula."""
    import pyarrow as pa
    import pyarrow.compute as pc

    from sottovoce.pages.market_told import NUMBER

    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    text = None
    with suppress(pa.ArrowInvalid, pa.ArrowNotImplementedError):  # raised below: the reason may quote a cell
        text = column.cast(pa.string())
    if text is None:
        raise _not_copied()
    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        return text  # numbers and dates are what they are
    risky = pc.and_(pc.match_substring_regex(text, FORMULA), pc.invert(pc.match_substring_regex(text, NUMBER)))
    return pc.if_else(risky, pc.binary_join_element_wise("'", text, ""), text)


def _lines(columns: dict[str, Any], *, header: bool) -> bytes:
    import pyarrow as pa
    from pyarrow import csv

    heads = harmless_cells(pa.array(list(columns), pa.string())).to_pylist()
    written = pa.BufferOutputStream()
    table = pa.table(list(columns.values()), names=heads)
    csv.write_csv(table, written, csv.WriteOptions(include_header=header))
    return bytes(written.getvalue().to_pybytes())


def _same_name(name: str) -> Exception:
    from sottovoce.errors import InvalidParameter

    return InvalidParameter(f"The column to copy is called {name!r}.", "So is a new column.", "Copy another column.")


def _not_copied() -> Exception:
    from sottovoce.errors import WrongType

    return WrongType("The column to copy is neither text nor numbers nor dates.", "", "Copy another column.")
