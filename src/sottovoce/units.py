# SPDX-License-Identifier: Apache-2.0
"""Privacy as whole numbers: one unit is a billionth of ε (or of ρ); for δ it is 10⁻¹⁵.

Grants round down and charges round up, so whatever happens in between, nobody spends more than they
gave. A float stands for the decimal it prints: ``0.3`` is 300,000,000 units although the nearest
double is a little less.

And numbers for people: rounded to their error, with commas between thousands. Files keep every
digit.

round_to_error(51243.7, 312.4)    51,240    two digits of the error, and as far of the number
format_percent(0.00651)           0.65 %
"""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, Context, Decimal
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sottovoce.errors import BudgetExceeded, InvalidBudget

UNITS_PER_EPSILON = 10**9
#: δ is counted in units of 10⁻¹⁵: a thousandth of the smallest that makes sense for the largest
#: populations.
UNITS_PER_DELTA = 10**15
#: An ε above this is no protection at all; up to here units stay below 2^53, where doubles count
#: them exactly.
MAX_EPSILON = 1e6
#: Units by which a charge may exceed its grant for no other reason than roundings upwards.
ROUNDING_SLACK = 2

#: Digits of an error that are shown; digits of a number whose error is not known.
ERROR_DIGITS = 2
DIGITS = 6
#: How a bound is rounded.
UPWARD = Context(prec=3, rounding=ROUND_CEILING)
#: Beyond these a number is written with a power of ten.
SMALLEST_PLACE = -12
LARGEST = 1e15

Units = NDArray[np.int64]


def round_down(epsilon: ArrayLike, *, zero_allowed: bool = False) -> Units:
    """Returns the largest whole number of units u with u/10⁹ ≤ ε, entry by entry; refuses what is
    no budget.
    """
    if epsilon is None:
        raise InvalidBudget(
            "No budget is given.",
            "Everybody needs an ε above 0: one number for all, or one for each row or person.",
            "Give ε, or a schema or a column that holds everybody's own.",
            parameter="epsilon",
        )
    values = _to_floats(epsilon)
    if not np.all(np.isfinite(values)):
        raise InvalidBudget(
            "A budget is missing or not finite.",
            "Every ε must be a number: an infinite budget is no promise.",
            "Give each person a finite ε, or leave their rows out.",
            parameter="epsilon",
        )
    if values.size and (values.min() < 0 or values.max() > MAX_EPSILON):
        raise InvalidBudget(
            "A budget is negative or too large.",
            f"Every ε must be > 0 and ≤ {MAX_EPSILON:,.0f}.",
            "Give each person an ε in that range.",
            parameter="epsilon",
        )
    units = _floor_to_units(values, UNITS_PER_EPSILON)
    if not zero_allowed and values.size and units.min() < 1:
        raise InvalidBudget(
            "A budget is zero, or smaller than a billionth.",
            "Every ε must be at least 1e-9.",
            "Leave the rows of people who grant nothing out.",
            parameter="epsilon",
        )
    return units


def round_down_delta(delta: ArrayLike) -> Units:
    """Returns the largest whole number of units u with u/10¹⁵ ≤ δ, entry by entry; refuses what is
    no δ.
    """
    return _floor_to_units(_check_deltas(delta), UNITS_PER_DELTA)


def round_up_delta(delta: ArrayLike) -> Units:
    """Returns the smallest whole number of units u with u/10¹⁵ ≥ δ, entry by entry; refuses what is
    no δ.
    """
    return _ceil_to_units(_check_deltas(delta), UNITS_PER_DELTA)


def round_up(loss: NDArray[np.float64]) -> Units:
    """Returns, entry by entry, a whole number of units that is at least ``loss``, given to 48 bits,
    times 10⁹.
    """
    # The factor covers the few roundings by which a loss computed in doubles may lie below the true
    # one.
    counted = np.asarray(loss * (UNITS_PER_EPSILON * (1 + 2.0**-48)))
    return np.asarray(np.ceil(counted, out=counted).astype(np.int64))


def check_within_grant(charges: NDArray[Any], grants: NDArray[Any]) -> Units:
    """Returns charges cut to what was granted, and raises if that takes off more than roundings."""
    if np.any(charges > grants + ROUNDING_SLACK + grants * 2.0**-40):
        raise BudgetExceeded(
            "This would cost somebody more than they granted.",
            "Nobody is ever charged more than that.",
            "Nothing was read and nobody was charged; please report it with the plan's parameters.",
            parameter="epsilon",
        )
    return np.asarray(np.minimum(charges, grants), dtype=np.int64)


def round_up_decimal(loss: ArrayLike) -> Units:
    """Returns the smallest whole number of units u with u/10⁹ ≥ loss, entry by entry, for losses
    stated as decimals.
    """
    values = _to_floats(loss)
    round_down(values, zero_allowed=True)  # refuses what is not a budget
    return _ceil_to_units(values, UNITS_PER_EPSILON)


def to_epsilon(units: Any) -> Any:
    """Returns units as ε (or ρ): the double nearest to units/10⁹."""
    return units / UNITS_PER_EPSILON


def _floor_to_units(values: NDArray[np.float64], whole: int) -> Units:
    units = np.rint(values * whole)
    units -= units / whole > values  # the one rounding that would grant more than was given
    return units.astype(np.int64)


def _ceil_to_units(values: NDArray[np.float64], whole: int) -> Units:
    units = np.rint(values * whole)
    units += units / whole < values  # the one rounding that would charge less than was lost
    return units.astype(np.int64)


def _check_deltas(delta: ArrayLike) -> NDArray[np.float64]:
    values = _to_floats(delta)
    if not np.all((values >= 0) & (values <= 1)):  # which is false for NaN too
        raise InvalidBudget(
            "A δ is not between 0 and 1.",
            "It is a probability.",
            "Pass a small δ, such as 1e-6.",
            parameter="delta",
        )
    return values


def _to_floats(values: ArrayLike) -> NDArray[np.float64]:
    try:
        if isinstance(values, np.ma.MaskedArray):  # what is masked is missing
            return np.asarray(np.ma.filled(values.astype(np.float64), np.nan))
        return np.asarray(values, dtype=np.float64)
    except Exception:
        # raised below, outside the handler, so that the value in NumPy's message is not carried
        # along
        pass
    raise InvalidBudget(
        "A budget is not a number.",
        "Every ε must be a number above 0.",
        "Convert the budgets to numbers, with one ε for each row or person.",
        parameter="epsilon",
    )


def round_to_error(value: float, error: float, digits: int = ERROR_DIGITS) -> str:
    """Returns the number rounded to this many digits of its error; without a usable error, to six
    of its own.

    >>> round_to_error(51243.7, 312.4), round_to_error(0.51834, 0.0123)
    ('51,240', '0.518')
    >>> round_to_error(312.4, 312.4), round_to_error(3.2, 5000)
    ('310', '0')
    """
    usable = math.isfinite(error) and error > 0 and math.isfinite(value)
    if usable:
        place = math.floor(math.log10(error)) - digits + 1
    else:
        place = 0
    if not usable or place < SMALLEST_PLACE or abs(value) >= LARGEST:
        return format_number(value)
    kept = round(value, -place) + 0.0  # adding zero makes −0 a 0
    return f"{kept:,.{max(-place, 0)}f}"


def format_three_digits(number: float) -> str:
    """Returns an expected error, or a part of one.

    >>> format_three_digits(104.7), format_three_digits(1.2), format_three_digits(51243.7)
    ('105', '1.2', '51,200')
    """
    short = f"{number:.3g}"
    if 1000 <= number < 1e9:
        return f"{float(short):,.0f}"
    return short


def format_number(value: float) -> str:
    """Returns a number whose error is not known, such as a bound.

    >>> format_number(200000.0), format_number(0.25), format_number(1e-9), format_number(2e300)
    ('200,000', '0.25', '1e-09', '2e+300')
    """
    if 1e-4 <= abs(value) < 10**DIGITS:
        return f"{value:,.{DIGITS}g}"
    return _format_extreme(value)


def _format_extreme(value: float) -> str:
    if float(value).is_integer() and abs(value) < LARGEST:
        return f"{value:,.0f}"
    return f"{value:.{DIGITS}g}"


def format_count(number: int, noun: str) -> str:
    """Returns a number with what it counts.

    >>> format_count(1, "person"), format_count(1200, "person"), format_count(0, "row")
    ('1 person', '1,200 people', '0 rows')
    >>> format_count(2, "entry")
    '2 entries'
    """
    if number == 1:
        return f"1 {noun}"
    return f"{number:,} {pluralise(noun)}"


def pluralise(noun: str) -> str:
    """Returns several of what a noun names."""
    if noun == "person":
        return "people"
    if noun.endswith("y"):
        return f"{noun.removesuffix('y')}ies"
    return f"{noun}s"


def name_one_unit(unit: str) -> str:
    """Return a unit as one of it is called, where that can be told from its spelling.

    >>> [name_one_unit(unit) for unit in ("years", "countries", "kg", "ms", "celsius", "EUR")]
    ['year', 'country', 'kg', 'ms', 'celsius', 'EUR']
    """
    if not (unit.isalpha() and unit.islower() and len(unit) > 3):
        return unit
    if unit.endswith("ies"):
        return f"{unit.removesuffix('ies')}y"
    if unit.endswith(("ss", "us", "is", "siemens")):
        return unit
    return unit.removesuffix("s")


def format_percent(share: float) -> str:
    """Returns a share as a percentage with two digits.

    >>> format_percent(0.00651), format_percent(0.1234), format_percent(1.0)
    ('0.65 %', '12 %', '100 %')
    """
    shown = 100 * share
    if shown >= 10:
        return f"{shown:.0f} %"
    return f"{shown:.{ERROR_DIGITS}g} %"


def format_level(level: float) -> str:
    """Returns the level of an interval as a percentage, with all its digits.

    >>> format_level(0.95), format_level(0.999), format_level(0.57)
    ('95 %', '99.9 %', '57 %')
    """
    return f"{100 * level:.10g} %"


def format_odds(epsilon: float) -> str:
    """Returns e^ε, by which the odds of a guess can change at most, rounded up.

    >>> format_odds(0.1), format_odds(0.0001), format_odds(0.0)
    ('1.106', '1.001', '1.000')
    """
    return f"{math.ceil(math.exp(epsilon) * 1000) / 1000:,.3f}"


def round_upward(value: float) -> str:
    """Returns a number that is a bound, rounded up to three digits.

    >>> round_upward(0.12341), round_upward(1.0), round_upward(0.0)
    ('0.124', '1', '0')
    """
    return f"{Decimal(repr(float(value))).normalize(UPWARD):g}"
