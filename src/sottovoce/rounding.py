# SPDX-License-Identifier: Apache-2.0
"""Numbers for people: rounded to their error, with commas between thousands. Files keep every
digit.

rounded(51243.7, 312.4)    51,240    two digits of the error, and as far of the number
percent(0.00651)           0.65 %
"""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, Context, Decimal

#: Digits of an error that are shown; digits of a number whose error is not known.
ERROR_DIGITS = 2
DIGITS = 6
#: How a bound is rounded.
UPWARD = Context(prec=3, rounding=ROUND_CEILING)
#: Beyond these a number is written with a power of ten.
SMALLEST_PLACE = -12
LARGEST = 1e15


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


def format_percent(share: float) -> str:
    """Returns a share as a percentage with two digits.

    >>> format_percent(0.00651), format_percent(0.1234), format_percent(1.0)
    ('0.65 %', '12 %', '100 %')
    """
    shown = 100 * share
    if shown >= 10:
        return f"{shown:.0f} %"
    return f"{shown:.{ERROR_DIGITS}g} %"


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
