# SPDX-License-Identifier: Apache-2.0
"""Rows that need no protection, read from a table of their own into memory.

They are looked at before the private table is opened, and refused in the same words as that one would be,
with a word in front that says which of the two tables is meant.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sottovoce.asked import Said


def public_rows(said: Said) -> tuple[Any, list[str]]:
    """Returns the features of the public table, as an Arrow table, and the class of each row."""
    from sottovoce.columns import kept
    from sottovoce.engine import USUAL_TEXT, named
    from sottovoce.errors import TooFewRows

    _refuse_the_private_table(said)
    with _about_public_rows():
        engine = named("arrow").open_table(str(said.public), said.private_numbers, text=said.text or USUAL_TEXT)
        table = kept(engine, said.private_columns)
        if len(table) < 2:
            raise TooFewRows("The table is empty or has one row.", "", "Name a larger one, or leave --public out.")
        features = table.drop_columns([str(said.column)])
        _refuse_gaps(said, features)
        return features, _classes(said, table)


def _refuse_the_private_table(said: Said) -> None:
    from sottovoce.errors import InvalidParameter

    public, private = Path(str(said.public)), Path(said.table)
    if public.exists() and private.exists() and public.samefile(private):
        raise InvalidParameter(
            "The public rows are the private table itself.",
            "Public rows are of other people, and need no protection: nothing is promised about them.",
            "Name another table, or leave --public out.",
        )


def _refuse_gaps(said: Said, features: Any) -> None:
    import numpy as np

    from sottovoce.recoding import Recoding
    from sottovoce.statistics import unfit
    from sottovoce.table import matrix

    recoding = Recoding.of_schema(said.features)  # type: ignore[arg-type]
    if not np.isfinite(matrix(features, recoding)).all():
        raise unfit()


def _classes(said: Said, table: Any) -> list[str]:
    import numpy as np

    from sottovoce.classes import Classes, undeclared
    from sottovoce.features import level_numbers

    classes: Classes = said.classes  # type: ignore[assignment]
    codes = level_numbers(table.column(str(said.column)).combine_chunks(), classes.levels)
    if (codes < 0).any():
        raise undeclared(classes)
    return list(np.array(classes.levels)[codes.astype(np.int64)].tolist())


@contextmanager
def _about_public_rows() -> Iterator[None]:
    from sottovoce.errors import InvalidData

    try:
        yield
    except InvalidData as error:
        found = f"In the public rows: {error.found[0].lower()}{error.found[1:]}"
        raise type(error)(found, error.required, error.remedy) from None
