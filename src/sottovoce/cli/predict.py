# SPDX-License-Identifier: Apache-2.0
"""`sottovoce predict`: a published model applied to new rows, in the label's own units or classes.

It needs the release and nothing else, and costs nobody anything. Rows are read batch by batch and
come out in their order; the file is whole or not there. Cells that are copied and that a
spreadsheet would take for a formula get an apostrophe in front.

A released model as `predict` needs it: linear functions of declared features, and what is told from
them.

label       functions                              columns
a number    one, in the label's units              prediction
classes     log-odds of the second class, or of    prediction, and a probability for each class
            each of several

With a level there are two columns more for the number, or for each probability: the ends of its
interval, as ``interval(level, X)`` of the model in Python.
"""

from __future__ import annotations

import tempfile
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO

import typer

from sottovoce.cli import options
from sottovoce.cli.console import echo, exit_on_error, get_console

if TYPE_CHECKING:
    from sottovoce.arrays import Floats
    from sottovoce.data.encoding import Recoding, UnitBall
    from sottovoce.data.engine import TextFormat, Watch
    from sottovoce.release import Release

#: Up to here predictions for standard output wait in memory until all are there; beyond, on disc.
IN_MEMORY = 2**24


@exit_on_error()
@options.add_text_options
def predict(
    model: Annotated[
        Path,
        typer.Argument(
            metavar="MODEL",
            help="A JSON file of a regression or a classifier, written by `sottovoce release`.",
        ),
    ],
    table: options.Table,
    text: Any,
    id_column: Annotated[
        str | None, typer.Option(help="A column to copy, so that predictions can be told apart.")
    ] = None,
    level: Annotated[
        float | None,
        typer.Option(
            help="Also write columns `low` and `high`: between which the expected label lies (of a "
            "classifier the probability of each class), with this probability for each row, such "
            "as 0.95. A new label itself may lie far outside."
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="The CSV file to write; standard output if not given.")
    ] = None,
    force: options.Force = False,
) -> None:
    """Predict the label of new rows with a released model.

    Classes come with the probability of each. Numbers beyond the model's bounds are clipped, and
    a level that it does not know counts as none of its levels.
    """
    from sottovoce.cli.console import RowProgress, load_release, open_unfinished, refuse_unwritable
    from sottovoce.units import format_count

    released = ReleasedModel.of(load_release(model))
    if level is not None:
        released = released.with_intervals(level)
    refuse_unwritable(out, table, model, force=force)
    with RowProgress(get_console(stderr=True), ("Predicting",)) as watch:
        if out is not None:
            with open_unfinished(out, force=force) as file:
                rows = write_predictions(released, table, id_column, file.content, watch, text)
            out = file.path
        else:
            with tempfile.SpooledTemporaryFile(IN_MEMORY) as waiting:
                file_like: Any = waiting
                rows = write_predictions(released, table, id_column, file_like, watch, text)
                waiting.seek(0)
                for lines in iter(lambda: waiting.read(IN_MEMORY), b""):
                    typer.echo(lines, nl=False)
    echo(
        f"{format_count(rows, 'row')} predicted, from the published model alone: "
        "nobody is charged for it.",
        stderr=True,
    )
    if level is not None:
        echo(released.describe_intervals(), stderr=True)
    if out is not None:
        echo(f"Written to {out}.", stderr=True)


def write_predictions(
    model: ReleasedModel,
    table: str,
    id_column: str | None,
    file: BinaryIO,
    watch: Watch | None = None,
    text: TextFormat | None = None,
) -> int:
    """Writes predictions for every row of the table as CSV, and returns how many there are."""
    from sottovoce.data.engine import DEFAULT_TEXT_FORMAT, get_engine, require_columns

    if id_column in model.heads:
        raise _same_name_error(str(id_column))
    engine = get_engine("arrow").open_table(
        table, model.numbers, watch, text or DEFAULT_TEXT_FORMAT
    )
    require_columns(engine, *model.columns, id_column)
    if id_column is None:
        copied: tuple[str, ...] = ()
    else:
        copied = (id_column,)
    file.write(_format_csv({name: [] for name in (*copied, *model.heads)}, header=True))
    written: _WrittenRows = engine.fold(_PredictionKernel(model, id_column, file))
    return written.rows


@dataclass(eq=False)
class _WrittenRows:
    """Predictions that have gone to the file, in the order of rows."""

    file: BinaryIO
    rows: int = 0

    def __add__(self, part: tuple[int, bytes]) -> _WrittenRows:
        self.file.write(part[1])
        return _WrittenRows(self.file, self.rows + part[0])


@dataclass(frozen=True, eq=False)
class _PredictionKernel:
    """The kernel that makes lines of CSV from a batch; the engine adds them in the order of
    rows.
    """

    model: ReleasedModel
    id_column: str | None
    file: BinaryIO

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(
            dict.fromkeys(
                (*self.model.columns, *(() if self.id_column is None else (self.id_column,)))
            )
        )

    def zero(self) -> Any:
        return _WrittenRows(self.file)

    def __call__(self, batch: Any) -> Any:
        if self.id_column is None:
            copied = {}
        else:
            copied = {self.id_column: copy_as_text(batch.column(self.id_column))}
        return len(batch), _format_csv({**copied, **self._predict_cells(batch)}, header=False)

    def _predict_cells(self, batch: Any) -> dict[str, Any]:
        import pyarrow as pa

        told = self.model.predict_batch(batch)
        if self.model.classes:
            return {**told, PREDICTION: copy_as_text(pa.array(told[PREDICTION]))}
        return told


def copy_as_text(column: Any) -> Any:
    """Returns a column to be copied, its text with an apostrophe where a spreadsheet would take it
    for a formula.
    """
    import pyarrow as pa

    from sottovoce.arrays import guard_formulas

    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    text = None
    with suppress(
        pa.ArrowInvalid, pa.ArrowNotImplementedError
    ):  # raised below: the reason may quote a cell
        text = column.cast(pa.string())
    if text is None:
        raise _not_copied_error()
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        return guard_formulas(text)
    return text  # numbers and dates are what they are


def _format_csv(columns: dict[str, Any], *, header: bool) -> bytes:
    import pyarrow as pa
    from pyarrow import csv

    heads = copy_as_text(pa.array(list(columns), pa.string())).to_pylist()
    written = pa.BufferOutputStream()
    table = pa.table(list(columns.values()), names=heads)
    csv.write_csv(table, written, csv.WriteOptions(include_header=header))
    return bytes(written.getvalue().to_pybytes())


def _same_name_error(name: str) -> Exception:
    from sottovoce.errors import InvalidParameter

    return InvalidParameter(
        f"The column to copy is called {name!r}.",
        "So is a new column.",
        "Copy another column.",
        parameter="id_column",
    )


def _not_copied_error() -> Exception:
    from sottovoce.errors import WrongType

    return WrongType(
        "The column to copy is neither text nor numbers nor dates.",
        "",
        "Copy another column.",
        parameter="id_column",
    )


PREDICTION = "prediction"
PROBABILITY_PREFIX = "probability of "
#: The ends of an interval.
LIMITS = ("low", "high")


@dataclass(frozen=True, eq=False)
class LinearFunction:
    """A linear function of declared features, in the user's units."""

    recoding: Recoding
    intercept: float
    coefficients: Floats
    ball: UnitBall | None = None  # of version 0.1: rows that are longer than it are cut

    def __call__(self, raw: Floats) -> Floats:
        """Returns the function's value for each row, numbers clipped to their bounds."""
        from sottovoce.estimators.model_intervals import predict_linear

        if self.ball is None:
            return predict_linear(self.recoding, raw, self.intercept, self.coefficients)
        return self.ball.margins(
            self.recoding.encode(raw),
            *self.recoding.to_encoded_units(self.intercept, self.coefficients),
        )


@dataclass(frozen=True, eq=False)
class ReleasedModel:
    """What a release tells of new rows; without classes the label is a number."""

    recoding: Recoding
    functions: tuple[LinearFunction, ...]
    classes: tuple[Any, ...] = ()
    together: bool = False  # whether several classes come from one softmax objective
    release: Release | None = None
    model: Any = None  # the estimator
    level: float | None = None  # of intervals; None: none are told

    @classmethod
    def of(cls, release: Release) -> ReleasedModel:
        """Reads the model from a release; refuses other releases, and one that does not fit
        itself.
        """
        import numpy as np

        from sottovoce.data.encoding import UnitBall
        from sottovoce.errors import InvalidRelease
        from sottovoce.estimators import load

        model = load(release)
        classes = tuple(getattr(model, "classes_", ()))
        if not hasattr(model, "_recoding") or (classes and not hasattr(model, "predict_proba")):
            raise InvalidRelease(
                "This release is not a regression and not a classifier that knows probabilities.",
                "",
                "Take one of `sottovoce release`, of a model.",
                parameter="model",
            )
        ball = None
        if classes and "ball" in release.parameters:
            ball = UnitBall.from_dict(release.parameters["ball"])
        functions = tuple(
            LinearFunction(model._recoding, float(intercept), slopes, ball)
            for intercept, slopes in zip(
                np.ravel(model.intercept_), np.atleast_2d(model.coef_), strict=True
            )
        )
        together = release.parameters.get("objective") == "softmax"
        return cls(model._recoding, functions, classes, together, release, model)

    def with_intervals(self, level: float) -> ReleasedModel:
        """Returns the same with intervals at this level; refuses a model that has none."""
        import numpy as np

        from sottovoce.release import no_interval_error

        self.model.interval(level)  # which says why, where there is none
        told = replace(self, level=level)
        if told._compute_limits(np.zeros((1, len(self.columns)))) is None:
            raise no_interval_error()
        return told

    def describe_intervals(self) -> str:
        """Says what lies between the ends that are told."""
        from sottovoce.units import format_level

        intervals = self.model._find_intervals(self.level)
        if self.classes:
            what = "each probability"
        else:
            what = "the expected label; a new label itself may lie far outside"
        return (
            f"From low to high is the interval, with {format_level(intervals.level)} probability "
            f"for each row, of {what}. It follows from {intervals.of}."
        )

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that a table must have."""
        return tuple(feature.name for feature in self.recoding.features)

    @property
    def numbers(self) -> tuple[str, ...]:
        """Those of them that hold numbers."""
        return tuple(feature.name for feature in self.recoding.features if not feature.levels)

    @property
    def heads(self) -> tuple[str, ...]:
        """The columns that are told."""
        probabilities = tuple(f"{PROBABILITY_PREFIX}{name}" for name in self.classes)
        if self.level is None:
            limits: tuple[str, ...] = ()
        elif self.classes:
            limits = tuple(f"{end} {name}" for name in probabilities for end in LIMITS)
        else:
            limits = LIMITS
        return (PREDICTION, *probabilities, *limits)

    def predict_batch(self, batch: Any) -> dict[str, Any]:
        """Returns what is told of each row, as the estimator's predict, predict_proba and interval
        would.
        """
        from sottovoce.estimators.model_intervals import clip_to_label

        raw = self._read_features(batch)
        values = [function(raw) for function in self.functions]
        if self.classes:
            told = _predict_classes(values, self.classes, self.together)
        elif self.release is not None:
            told = [clip_to_label(value, self.release) for value in values]
        else:
            told = values
        if self.level is not None:
            told += self._list_limits(raw)
        return dict(zip(self.heads, told, strict=True))

    def _compute_limits(self, raw: Floats) -> Floats | None:
        limits: Floats | None = self.model._compute_row_intervals(self.release, self.level, raw)
        return limits

    def _list_limits(self, raw: Floats) -> list[Floats]:
        """The columns of ends: low and high, of each class in turn where there are classes."""
        import numpy as np

        limits: Any = self._compute_limits(raw)
        if self.classes and limits.ndim == 2:  # of the second of two classes
            limits = np.stack([1 - limits[:, ::-1], limits], axis=1)
        return list(limits.reshape(len(raw), len(self.heads) - 1 - len(self.classes)).T)

    def _read_features(self, batch: Any) -> Floats:
        import numpy as np

        from sottovoce.data.encoding import number_levels
        from sottovoce.data.engine import as_floats

        raw = np.empty((len(batch), len(self.recoding.features)))
        for j, feature in enumerate(self.recoding.features):
            column = batch.column(feature.name)
            if feature.levels:
                raw[:, j] = number_levels(column, feature.levels)
            else:
                raw[:, j] = as_floats(column)
            if feature.missing is not None:
                raw[np.isnan(raw[:, j]), j] = feature.missing
        if not np.isfinite(raw).all():
            raise _missing_numbers_error()
        return raw


def _predict_classes(values: list[Floats], classes: tuple[Any, ...], together: bool) -> list[Any]:
    """Returns the class with the highest odds, and a probability for each class, from log-odds."""
    import numpy as np
    from scipy.special import expit, log_expit, softmax

    if len(values) == 1:
        (odds,) = values
        return [np.array(classes)[(odds > 0).astype(np.int64)], expit(-odds), expit(odds)]
    several = np.column_stack(values)
    found = np.array(classes)[several.argmax(axis=1)]
    if not together:
        several = log_expit(several)
    return [found, *softmax(several, axis=1).T]


def _missing_numbers_error() -> Exception:
    from sottovoce.errors import MissingValues

    return MissingValues(
        "A feature has missing or infinite values.",
        "Every number that the model uses must be there.",
        "Fill them in, with the constant that the schema declared for missing values if it has "
        "one.",
        parameter="table",
    )
