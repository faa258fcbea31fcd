"""Numbers for people are rounded to their error, and never by more than a twentieth of it."""

from __future__ import annotations

import math

import numpy as np
import pytest

from sottovoce.units import format_number, format_percent, round_to_error


def test_no_number_is_moved_by_more_than_a_twentieth_of_its_error():
    rng = np.random.default_rng(3)
    for value, error in zip(rng.normal(0, 1e5, 2000), 10 ** rng.uniform(-8, 8, 2000), strict=True):
        shown = float(round_to_error(value, error).replace(",", ""))
        assert abs(shown - value) <= error / 20 * (1 + 1e-9)
        digits = round_to_error(error, error).replace(",", "").replace(".", "").strip("0")
        assert len(digits) <= 2, "an error is known to two digits at best"


@pytest.mark.parametrize(
    ("value", "error", "shown"),
    [
        (5584.0, 131.0, "5,580"),
        (-0.0001, 3.0, "0.0"),
        (-1234567.8, 0.5, "-1,234,567.80"),
        (0.0, 1e9, "0"),
        (1.5, 0.0, "1.5"),
        (1.5, math.nan, "1.5"),
        (1.5, math.inf, "1.5"),
        (1e300, 1e290, "1e+300"),
        (3e-20, 1e-21, "3e-20"),
    ],
)
def test_edges(value, error, shown):
    assert round_to_error(value, error) == shown


def test_bounds_and_shares():
    assert [format_number(v) for v in (0.0, 200_000.0, 1e6, -0.5, 123456.7)] == [
        "0",
        "200,000",
        "1,000,000",
        "-0.5",
        "123,457",
    ]
    assert [format_percent(s) for s in (0.00651, 0.0999, 0.5, 0.0)] == [
        "0.65 %",
        "10 %",
        "50 %",
        "0 %",
    ]
