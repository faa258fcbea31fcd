# SPDX-License-Identifier: Apache-2.0
"""`sottovoce predict`: a published model applied to new rows, in the label's own units.

It needs the release and nothing else, and costs nobody anything. Rows are read batch by batch and come
out in their order; the file is whole or not there. Cells that are copied and that a spreadsheet would
take for a formula get an apostrophe in front.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO

import typer

from sottovoce.cli import words
from sottovoce.cli.voice import console, plainly, say

if TYPE_CHECKING:
    from sottovoce.engine import Watch
    from sottovoce.estimators.ridge import Floats
    from sottovoce.recoding import Recoding

PREDICTION = "prediction"
#: What a spreadsheet may take for the beginning of a formula, and what is a plain number after all.
FORMULA, NUMBER = r"^[=+\-@\t\r]", r"^[+\-]?[0-9]+([.][0-9]+)?$"
#: Up to here predictions for standard output wait in memory until all are there; beyond, on disc.
IN_MEMORY = 2**24


@plainly()
def predict(
    model: Annotated[
        Path, typer.Argument(metavar="MODEL", help="A JSON file written by `sottovoce release ridge --out`.")
    ],
    table: words.Table,
    id_column: Annotated[
        str | None, typer.Option(help="A column to copy, so that predictions can be told apart.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="The CSV file to write; standard output if not given.")] = None,
) -> None:
    """Predict the label of new rows with a released model.

    Numbers beyond the model's bounds are clipped, and a level that it does not know counts as none of its levels.
    """
    from sottovoce.cli.files import load_release, refuse_unwritable, writing
    from sottovoce.cli.progress import RowsDone

    linear = Linear.of(load_release(model))
    refuse_unwritable(out, table, model)
    with RowsDone(console(stderr=True), ("Predicting",)) as watch:
        if out is not None:
            with writing(out) as file:
                rows = linear.write(table, id_column, file, watch)
        else:
            with tempfile.SpooledTemporaryFile(IN_MEMORY) as waiting:
                rows = linear.write(table, id_column, waiting, watch)  # type: ignore[arg-type]
                waiting.seek(0)
                for lines in iter(lambda: waiting.read(IN_MEMORY), b""):
                    typer.echo(lines, nl=False)
    say(f"{rows:,} rows predicted, from the published model alone: nobody is charged for it.", stderr=True)
    if out is not None:
        say(f"Written to {out}.", stderr=True)


@dataclass(frozen=True, eq=False)
class Linear:
    """A released linear model: declared features, intercept and coefficients in the user's units."""

    recoding: Recoding
    intercept: float
    coefficients: Floats

    @classmethod
    def of(cls, release: Any) -> Linear:
        """Reads the model from a release; refuses other releases, and one that does not fit itself."""
        import numpy as np

        from sottovoce.errors import InvalidRelease
        from sottovoce.estimators.ridge import Ridge
        from sottovoce.recoding import Recoding

        try:
            fitted, recoding = Ridge.from_release(release), Recoding.from_dict(release.parameters["features"])
            model = cls(recoding, float(fitted.intercept_), np.asarray(fitted.coef_, dtype=np.float64))
            finite = np.isfinite([model.intercept, *model.coefficients]).all()
            if finite and list(release.value["coefficients"]) == recoding.names:
                return model
        except InvalidRelease:
            raise
        except (KeyError, TypeError, ValueError):
            pass  # raised below: the reason would quote the file
        raise InvalidRelease(
            "The model in this release cannot be used.",
            "It must have one coefficient for each declared number and each level.",
            "Take the file as `sottovoce release ridge` wrote it.",
        )

    def write(self, table: str, id_column: str | None, file: BinaryIO, watch: Watch | None = None) -> int:
        """Writes predictions for every row of the table as CSV, and returns how many there are."""
        from sottovoce.engine import named, require_columns

        if id_column == PREDICTION:
            raise _same_name()
        numbers = tuple(f.name for f in self.recoding.features if not f.levels)
        engine = named("arrow").open_table(table, numbers, watch)
        require_columns(engine, *(f.name for f in self.recoding.features), id_column)
        file.write(_lines({**({} if id_column is None else {id_column: []}), PREDICTION: []}, header=True))
        written: _Written = engine.fold(_Predicted(self, id_column, file))
        return written.rows

    def predictions(self, batch: Any) -> Floats:
        """Returns a prediction for each row, as Ridge.predict would; refuses missing and infinite numbers."""
        import numpy as np

        from sottovoce.estimators.ridge import predicted
        from sottovoce.features import level_numbers
        from sottovoce.statistics import as_floats

        raw = np.empty((len(batch), len(self.recoding.features)))
        for j, feature in enumerate(self.recoding.features):
            column = batch.column(feature.name)
            raw[:, j] = level_numbers(column, feature.levels) if feature.levels else as_floats(column)
            if feature.missing is not None:
                raw[np.isnan(raw[:, j]), j] = feature.missing
        if not np.isfinite(raw).all():
            raise _not_numbers()
        return predicted(self.recoding, raw, self.intercept, self.coefficients)


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

    model: Linear
    id_column: str | None
    file: BinaryIO

    @property
    def columns(self) -> tuple[str, ...]:
        names = (feature.name for feature in self.model.recoding.features)
        return tuple(dict.fromkeys((*names, *(() if self.id_column is None else (self.id_column,)))))

    def zero(self) -> Any:
        return _Written(self.file)

    def __call__(self, batch: Any) -> Any:
        copied = {} if self.id_column is None else {self.id_column: harmless_cells(batch.column(self.id_column))}
        return len(batch), _lines({**copied, PREDICTION: self.model.predictions(batch)}, header=False)


def harmless_cells(column: Any) -> Any:
    """Returns a column to be copied, with an apostrophe before text that a spreadsheet would take for a formula."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    try:
        text = column.cast(pa.string())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise _not_copied() from None
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


def _same_name() -> Exception:
    from sottovoce.errors import InvalidParameter

    return InvalidParameter(
        f"The column to copy is called {PREDICTION!r}.", "So is the new column.", "Copy another column."
    )


def _not_copied() -> Exception:
    from sottovoce.errors import WrongType

    return WrongType("The column to copy is neither text nor numbers nor dates.", "", "Copy another column.")


def _not_numbers() -> Exception:
    from sottovoce.errors import MissingValues

    return MissingValues(
        "A feature has missing or infinite values.",
        "Every number that the model uses must be there.",
        "Fill them in, with the constant that the schema declared for missing values if it has one.",
    )
