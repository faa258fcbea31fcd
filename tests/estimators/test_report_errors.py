"""A report of twelve questions on one budget: errors are what its plan expects, and the charge is
the budget, to the last unit.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

FILE = Path(__file__).resolve().parents[2] / "benchmarks" / "report.py"
spec = importlib.util.spec_from_file_location("report_benchmark", FILE)
benchmark = importlib.util.module_from_spec(spec)
spec.loader.exec_module(benchmark)


def test_errors_are_about_those_that_are_expected():
    """Within a factor of three: the mean of 60 squared Laplace numbers is that far from what it
    should be with probability below 1e-9 on either side.
    """
    found, charge = benchmark.compare(60, rows=3000)
    assert charge == 10**9
    assert len(found) == 12
    for name, (expected, measured, _) in found.items():
        assert 1 / 3 < measured / expected < 3, name


@pytest.mark.long
def test_errors_are_those_that_are_expected():
    """Within a tenth, and six standard errors of the measurement."""
    found, charge = benchmark.compare(2000)
    assert charge == 10**9
    for name, (expected, measured, error) in found.items():
        assert abs(measured / expected - 1) < 0.1 + 6 * error, name
