# SPDX-License-Identifier: Apache-2.0
"""Plans of tables cell by cell: a public guess of how rows spread, and the error that each cell is
then expected to have (docs/guide/counts-and-tables.md).

A guess is for the expected errors alone. Weights, noise and charges do not depend on it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from sottovoce.arrays import Floats
from sottovoce.data.cells import Axis, Cells
from sottovoce.errors import InvalidParameter
from sottovoce.plan import CellError, ExpectedError
from sottovoce.schema import is_between

#: Errors of so many cells are listed, the largest ones.
MOST_LISTED = 1000
#: Shares may add up to a little more than one.
ROUNDING = 1e-6


def resolve_shares(given: Any, cells: Cells) -> Floats | None:
    """Returns the share of the rows that is expected in each cell; None where nobody guesses.

    A guess is a mapping from label to share, for one column; from column to such a mapping, for
    several, which are taken as independent; an earlier table of the same cells, or its release;
    text such as "north=0.3" or "region:north=0.3"; or a number for each cell. What is left of one
    is spread evenly over the declared labels without a guess, or else over the other cells.
    """
    if given is None:
        return None
    earlier = getattr(given, "release", given)
    if hasattr(earlier, "parameters") and hasattr(earlier, "value"):
        return _read_release(earlier, cells)
    if isinstance(given, str):
        given = [given]
    if isinstance(given, Sequence) and given and all(isinstance(one, str) for one in given):
        given = _read_texts(given, cells)
    if isinstance(given, Mapping):
        shares = _spread_over_axes(given, cells)
    else:
        shares = _check_shares(given)
    if shares.shape != (cells.size,):
        raise _shares_error(f"The table has {cells.size:,} cells, and there are other shares.")
    return shares


def refuse_shares(given: Any) -> None:
    """Refuses a guess of shares where there are no groups."""
    if given is not None:
        raise _shares_error("Shares are guessed, and there are no groups that could have them.")


def _shares_error(found: str) -> InvalidParameter:
    return InvalidParameter(
        found,
        "Shares are numbers from 0 to 1 that add up to 1 at most, by label of a column, or by "
        "column and label.",
        'Pass such as {"north": 0.6, "south": 0.4}, an earlier table of the same cells, or nothing '
        "for equal shares.",
        parameter="shares",
    )


def _check_shares(given: Any) -> Floats:
    known = isinstance(given, Sequence | np.ndarray) and all(
        is_between(one, -ROUNDING, 1 + ROUNDING) for one in given
    )
    if not known or sum(given) > 1 + ROUNDING:
        raise _shares_error("A share is no number from 0 to 1, or shares add up to more than 1.")
    return np.maximum(np.array(given, dtype=np.float64), 0.0)


def _read_release(release: Any, cells: Cells) -> Floats:
    value = release.value
    if not isinstance(value, Mapping) or "count" not in value:
        raise _shares_error("The earlier release has no counts by cell.")
    if Cells.from_dict(release.parameters["by"]).to_dict() != cells.to_dict():
        raise _shares_error("The earlier table has other cells.")
    counts = np.asarray(value["count"], dtype=np.float64)
    return np.asarray(counts / max(float(counts.sum()), 1e-300))


def _read_texts(texts: Sequence[str], cells: Cells) -> Mapping[str, Any]:
    columns = [axis.column for axis in cells.axes]
    found: dict[str, dict[str, float]] = {}
    for text in texts:
        name, _, number = (part.strip() for part in text.rpartition("="))
        column, colon, label = name.partition(":")
        if not colon or column not in columns:
            column, label = columns[0] if len(columns) == 1 else "", name
        try:
            share = float(number)
        except ValueError:
            share = math.nan
        found.setdefault(column, {})[label] = share
    return found


def _spread_over_axes(given: Mapping[Any, Any], cells: Cells) -> Floats:
    columns = [axis.column for axis in cells.axes]
    if len(columns) == 1 and not any(isinstance(one, Mapping) for one in given.values()):
        given = {columns[0]: given}
    if any(name not in columns or not isinstance(one, Mapping) for name, one in given.items()):
        raise _shares_error(f"Shares are of other columns than {', '.join(columns) or 'none'}.")
    whole = np.ones(1)
    for axis in cells.axes:
        whole = np.multiply.outer(whole, _spread_over_labels(given.get(axis.column, {}), axis))
    shares = whole.ravel()
    if cells.where is not None:
        return np.append(shares / 2, 0.5)
    return np.asarray(shares)


def _spread_over_labels(given: Mapping[Any, Any], axis: Axis) -> Floats:
    named = {str(label): share for label, share in given.items()}
    if any(label not in axis.labels for label in named):
        raise _shares_error(f"A label of {axis.column!r} is not one of its cells.")
    known = _check_shares(list(named.values()))
    shares = np.zeros(axis.size)
    for label, share in zip(named, known, strict=True):
        shares[axis.labels.index(label)] = share
    free = [place for place, label in enumerate(axis.values) if label not in named]
    others = [place for place, label in enumerate(axis.labels) if label not in named]
    left = max(1 - float(known.sum()), 0.0)
    if left > ROUNDING and (free or others):
        places = free or others
        shares[places] = left / len(places)
    return shares


def expect_by_cell(
    error: ExpectedError,
    cells: Cells,
    shares: Floats | None,
    rows: int,
    measure: Callable[[Floats], tuple[Floats, Floats]],
    too_few_below: float | None = None,
) -> ExpectedError:
    """Returns the expected error of a table with what each cell is expected to have, where shares
    are guessed: ``measure`` returns noise and sampling by share.

    The error of the whole is then the root mean square over the cells that will say something.
    """
    error = replace(error, too_few_below=too_few_below)
    if shares is None:
        return error
    noise, sampling = measure(np.maximum(shares, 1e-12))
    total = np.hypot(noise, sampling)
    few = np.zeros(len(shares), dtype=np.bool_)
    if too_few_below is not None:
        few = rows * shares < too_few_below
    told = ~few & (shares > 0)
    if told.any():
        error = replace(
            error,
            noise=float(np.sqrt(np.mean(noise[told] ** 2))),
            sampling=float(np.sqrt(np.mean(sampling[told] ** 2))),
        )
    listed = np.sort(np.argsort(-shares, kind="stable")[:MOST_LISTED])
    lines = tuple(
        CellError(
            ", ".join(map(str, cells.labels(int(cell)))),
            float(rows * shares[cell]),
            None if few[cell] else float(total[cell]),
        )
        for cell in listed
    )
    return replace(error, cells=lines)


def tell_shares(shares: Floats | None) -> dict[str, Any]:
    """Returns the guess as a public parameter of a plan; nothing where nobody guesses."""
    if shares is None:
        return {}
    return {"shares": shares.tolist()}


def describe_shares(shares: Floats | None, otherwise: str) -> str:
    """Returns what is assumed about how rows spread, in words."""
    if shares is None:
        return otherwise
    return "rows spread over the cells as guessed"


def describe_few(few: float | None, usual: float, shares: Floats | None) -> str:
    """Returns which groups will be too few to say, in words."""
    if few is None:
        return ""
    told = f" Groups of fewer than about {math.ceil(few):,} rows are too few to say"
    if few > usual and shares is None:
        told += "; with equal shares, that is all of them"
    return f"{told}."


def clip_noise(noise: Any, room: Floats) -> Floats:
    """Returns the root mean square of Laplace noise of this deviation on numbers that are not made
    negative, with so much room below them: with b the scale, b²·(1 + P(2, room/b)), P the
    regularised incomplete gamma function.
    """
    from scipy.special import gammainc

    scale = np.maximum(np.asarray(noise) / math.sqrt(2), 1e-300)
    return np.asarray(scale * np.sqrt(1 + gammainc(2, room / scale)))
