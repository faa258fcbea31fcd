# SPDX-License-Identifier: Apache-2.0
"""Columns as tables of counts and filters read them: levels as their numbers, dates as days.

Both are exact and depend on one entry at a time, so that a row has the same cell in every engine.

**Levels** are compared as text, sign by sign. A level that is a whole number is also found where a
file has it as 1.0, and true or false, however the levels spell them, in a column of truths. Null,
NaN and empty text are missing.

**Days** are counted from 1970-01-01. A date is year, month and day; text is read in that order
alone (2024-01-31, 2024/01/31, 20240131), with or without a time after it, because the others are
ambiguous. A time with an offset or a zone is converted to UTC, and the day is that of UTC; a time
without one is taken as it is written. What cannot be read is missing.
"""

from __future__ import annotations

from datetime import date
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from sottovoce.arrays import Integers, spell_truths
from sottovoce.data.engine import as_array
from sottovoce.errors import WrongType

#: Days are counted from here.
EPOCH = date(1970, 1, 1)
#: What stands for a day that is missing.
NO_DAY = np.iinfo(np.int64).min
#: Stands for entries that cannot be written as text; no level is called so.
UNWRITABLE = "\x00"
#: Numbers beyond this are no levels: not every whole number beyond it is a double.
MOST_WHOLE = 2.0**53
#: Units of time in a day.
UNITS_PER_DAY = {"s": 86_400, "ms": 86_400 * 10**3, "us": 86_400 * 10**6, "ns": 86_400 * 10**9}
MINUTES_PER_DAY = 24 * 60
#: A date, and perhaps a time and an offset. Both separators of a date must be the same.
DATE_PATTERN = (
    r"^[ ]*(?P<year>[0-9]{4})(?P<first>[-/.]?)(?P<month>[0-9]{2})(?P<second>[-/.]?)"
    r"(?P<day>[0-9]{2})"
    r"(?:[T ](?P<hour>[0-9]{2}):?(?P<minute>[0-9]{2})(?::?(?P<seconds>[0-9]{2})(?:[.,][0-9]+)?)?"
    r"[ ]?(?P<offset>Z|z|UTC|(?:[+-][0-9]{2}(?::?[0-9]{2})?))?)?[ ]*$"
)


def find_levels(column: Any, levels: tuple[str, ...], other: int, missing: int) -> Integers:
    """Returns the number of each entry's level, ``other`` for unknown levels, ``missing`` for no
    value.
    """
    if pa.types.is_dictionary(column.type):
        return _spread(column, _number_text(column.dictionary, levels, other, missing), missing)
    if is_text(column.type):
        return _number_text(column, levels, other, missing)
    if pa.types.is_boolean(column.type):
        column = pc.if_else(column, *spell_truths(levels))
    encoded = column.dictionary_encode()
    text = _write_numbers(encoded.dictionary)
    return _spread(encoded, _number_text(text, levels, other, missing), missing)


def is_text(kind: Any) -> bool:
    """Whether an Arrow type is text."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _spread(encoded: Any, codes: Integers, missing: int) -> Integers:
    """Returns the code of each entry from the codes of the different ones."""
    table = np.append(codes, missing)
    indices = encoded.indices
    if indices.null_count:
        indices = indices.fill_null(len(codes))
    return table.take(as_array(indices))


def _number_text(column: Any, levels: tuple[str, ...], other: int, missing: int) -> Integers:
    known = pa.array([*levels, "", None], column.type)
    found = pc.index_in(column, value_set=known)
    codes = np.array([*range(len(levels)), missing, missing, other], dtype=np.int64)
    if found.null_count and any(level.lstrip("-").isdigit() for level in levels):
        # A level written as 1 is often written as 1.0, where a column has gaps.
        whole = pc.replace_substring_regex(column, r"^(-?[0-9]+)\.0+$", r"\1")
        found = pc.coalesce(found, pc.index_in(whole, value_set=known))
    if found.null_count:
        found = found.fill_null(len(codes) - 1)
    return codes.take(as_array(found))


def _write_numbers(column: Any) -> Any:
    """Returns numbers, dates and the like as text; a number without a fraction is written without
    one, and NaN is missing. What cannot be written as text is a level that nobody declares.
    """
    if not pa.types.is_floating(column.type):
        try:
            return column.cast(pa.string())
        except pa.ArrowException:
            return pa.array([UNWRITABLE] * len(column), pa.string())
    numbers = column.cast(pa.float64())
    small = pc.less(pc.abs(numbers), MOST_WHOLE)
    whole = pc.fill_null(pc.and_(small, pc.equal(numbers, pc.floor(numbers))), False)
    integers = pc.if_else(whole, numbers, 0.0).cast(pa.int64())
    text = pc.if_else(whole, integers.cast(pa.string()), column.cast(pa.string()))
    return pc.if_else(pc.fill_null(pc.is_nan(numbers), True), pa.scalar(None, pa.string()), text)


def read_days(column: Any) -> Integers:
    """Returns the day of each entry, in UTC, counted from 1970-01-01; NO_DAY where there is none.

    Raises
    ------
    WrongType
        if the column holds neither dates nor text.
    """
    kind = column.type
    if pa.types.is_dictionary(kind):
        days = np.append(read_days(column.dictionary), NO_DAY)
        return days.take(as_array(column.indices.fill_null(len(days) - 1)))
    if is_text(kind):
        encoded = column.dictionary_encode()
        days = np.append(_parse_days(encoded.dictionary), NO_DAY)
        return days.take(as_array(encoded.indices.fill_null(len(days) - 1)))
    if pa.types.is_date32(kind):
        days = as_array(column.cast(pa.int32()).fill_null(0)).astype(np.int64)
    elif pa.types.is_date64(kind):
        days = as_array(column.cast(pa.int64()).fill_null(0)) // UNITS_PER_DAY["ms"]
    elif pa.types.is_timestamp(kind):  # one with a zone is kept in UTC
        days = as_array(column.cast(pa.int64()).fill_null(0)) // UNITS_PER_DAY[kind.unit]
    elif pa.types.is_null(kind) or not column.null_count < len(column):
        return np.full(len(column), NO_DAY)
    else:
        raise WrongType(
            "A column by period holds no dates.",
            "Dates are of a type of dates or times, or text such as 2024-01-31.",
            "Convert the column, or name another.",
            parameter="by",
        )
    if column.null_count:
        days = np.where(as_array(column.is_null()), NO_DAY, days)
    return np.asarray(days, dtype=np.int64)


def _parse_days(text: Any) -> Integers:
    """Returns the day that each text names."""
    parts = pc.extract_regex(text, DATE_PATTERN)
    fields = dict(zip(parts.type.names, parts.flatten(), strict=True))
    found = as_array(parts.is_valid())
    same = as_array(pc.fill_null(pc.equal(fields["first"], fields["second"]), False))
    year, month, day, hour, minute, seconds = (
        _to_integers(fields[name]) for name in ("year", "month", "day", "hour", "minute", "seconds")
    )
    valid = found & same & (year > 0) & (month > 0) & (month < 13) & (day > 0)
    valid &= (hour < 24) & (minute < 60) & (seconds < 61)
    month = np.where(valid, month, 1)
    months = (year - 1970) * 12 + (month - 1)
    first = _first_days(months)
    valid &= day <= _first_days(months + 1) - first
    offset, known = _read_offsets(fields["offset"])
    minutes = hour * 60 + minute - offset
    days = first + (day - 1) + np.floor_divide(minutes, MINUTES_PER_DAY)
    return np.where(valid & known, days, NO_DAY)


def _first_days(months: Integers) -> Integers:
    """Returns the first day of each month, both counted from January 1970."""
    first = months.astype("datetime64[M]").astype("datetime64[D]")
    return np.asarray(first.astype(np.int64))


def _to_integers(column: Any) -> Integers:
    """Returns digits as numbers, 0 where there are none."""
    digits = pc.if_else(pc.equal(pc.binary_length(column), 0), "0", column)
    numbers = digits.fill_null("0").cast(pa.int64())
    return np.asarray(as_array(numbers), dtype=np.int64)


def _read_offsets(column: Any) -> tuple[Integers, NDArray[np.bool_]]:
    """Returns how many minutes a time is ahead of UTC, and whether that can be."""
    text = column.fill_null("")
    digits = pc.replace_substring_regex(text, r"[^0-9]", "")
    hours = _to_integers(pc.utf8_slice_codeunits(digits, 0, 2))
    minutes = _to_integers(pc.utf8_slice_codeunits(digits, 2, 4))
    behind = as_array(pc.starts_with(text, "-"))
    total = hours * 60 + minutes
    return np.where(behind, -total, total), (hours < 24) & (minutes < 60)


def count_days(day: str | None) -> int:
    """Returns the number of a day that is written as 2024-01-31."""
    return (date.fromisoformat(str(day)) - EPOCH).days


def number_periods(period: str | None, days: Integers) -> Integers:
    """Returns the number of the period that each day is in, counted from 1970."""
    if period == "day":
        return days
    if period == "week":
        return (days + 3) // 7  # 1970-01-01 was a Thursday
    dates = days.astype("datetime64[D]")
    if period == "year":
        return dates.astype("datetime64[Y]").astype(np.int64)
    months = dates.astype("datetime64[M]").astype(np.int64)
    if period == "quarter":
        return months // 3
    return months


def write_period(period: str | None, day: date) -> str:
    """Returns the name of the period that a day is in."""
    if period == "day":
        return day.isoformat()
    if period == "week":
        year, week, _ = day.isocalendar()
        return f"{year:04d}-W{week:02d}"
    if period == "month":
        return f"{day.year:04d}-{day.month:02d}"
    if period == "quarter":
        return f"{day.year:04d}-Q{(day.month + 2) // 3}"
    return f"{day.year:04d}"
