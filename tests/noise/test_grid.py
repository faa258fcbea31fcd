"""Grids: whole numbers, in range, whatever comes in; and sums that no order can change."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sottovoce.data.kernels import exact_dot
from sottovoce.errors import InvalidBounds
from sottovoce.noise.source import Grid, snap_to_grid

finite = st.floats(allow_nan=False, allow_infinity=False)
bounds = st.tuples(finite, finite).filter(
    lambda b: b[0] < b[1] and math.isfinite(b[1] - b[0]) and b[1] - b[0] > 1e-290
)


@settings(max_examples=300)
@given(bounds=bounds, bits=st.integers(1, 32), values=st.lists(finite, min_size=1, max_size=8))
def test_integers_are_whole_and_in_range_for_any_finite_value(bounds, bits, values):
    """ "Returns whole numbers in 0 … cells (as float64) for any finite values." """
    grid = Grid.cover(*bounds, bits)
    integers = grid.integers(np.array([*values, *bounds]))
    assert grid.cells <= 2**bits
    assert np.array_equal(integers, np.rint(integers))
    assert integers.min() >= 0
    assert integers.max() <= grid.cells
    assert (integers[-2], integers[-1]) == (0, grid.cells)


@given(bounds=bounds, bits=st.integers(1, 32), pair=st.tuples(finite, finite))
def test_integers_keep_the_order_of_values(bounds, bits, pair):
    one, two = Grid.cover(*bounds, bits).integers(np.array(sorted(pair)))
    assert one <= two


@pytest.mark.parametrize(
    ("low", "high", "bits", "cells"), [(0, 1, 10, 1024), (0, 100, 10, 800), (-1, 1, 3, 8)]
)
def test_the_step_is_a_power_of_two_and_the_finest_that_fits(low, high, bits, cells):
    grid = Grid.cover(low, high, bits)
    assert grid.cells == cells
    assert math.frexp(float(grid.step))[0] == 0.5
    assert Grid.cover(low, high, bits).to_dict()["step"] == float(grid.step)


def test_bounds_too_close_for_doubles_are_refused():
    with pytest.raises(InvalidBounds):
        Grid.cover(0.0, 1e-320, 20)


@given(value=st.fractions(-50, 50), exponent=st.integers(-12, 0))
def test_snapped_answers_are_multiples_of_the_step_inside_the_bounds(value, exponent):
    answer = snap_to_grid(value, -20.3, 17.9, exponent)
    assert -20.3 <= answer <= 17.9
    assert (Fraction(answer) / Fraction(2) ** exponent).denominator == 1


@settings(max_examples=200)
@given(
    weights=st.lists(st.integers(0, 2**42), min_size=1, max_size=50),
    integers=st.lists(st.integers(0, 2**32), min_size=50, max_size=50),
)
def test_dot_products_are_exact_up_to_the_limits(weights, integers):
    """ "Returns Σ weights·integers exactly, for at most 2^16 weights in [0, 2^42] and integers in
    [0, 2^32]."
    """
    some = integers[: len(weights)]
    exact = sum(w * z for w, z in zip(weights, some, strict=True))
    assert exact_dot(np.array(weights, dtype=np.int64), np.array(some, dtype=float)) == exact


@pytest.mark.parametrize(("weight", "integer"), [(2**42, 2**32), (2**42 - 1, 2**32 - 1)])
def test_the_largest_piece_is_exact(weight, integer):
    piece = exact_dot(np.full(2**16, weight, dtype=np.int64), np.full(2**16, float(integer)))
    assert piece == 2**16 * weight * integer
