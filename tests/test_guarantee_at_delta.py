"""Promises of an ε at a δ: read, added and told as such, and never mixed up with others."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import sottovoce as sv
from sottovoce import errors
from sottovoce.accounting import renyi

MEAN = sv.Mean(bounds=(0, 10)).plan(epsilon=[0.1, 0.5, 1.0]).guarantee
ZCDP = MEAN.as_zcdp()
AT_DELTA = replace(MEAN, currency="epsilon, delta", delta=1e-6)


def test_rho_is_read_at_its_delta_by_the_tight_conversion():
    read = replace(ZCDP, delta=1e-6)
    assert read.reported_currency == "epsilon"
    assert np.array_equal(read.epsilon, renyi.zcdp_epsilon(ZCDP.rho, 1e-6))
    assert np.array_equal(read.epsilon, ZCDP.approximate(1e-6))
    assert np.array_equal(read.rho, ZCDP.rho)
    old = ZCDP.rho + 2 * np.sqrt(ZCDP.rho * np.log(1e6))
    assert np.all(read.epsilon < old)
    gaussian = replace(read, gaussian=True)
    assert np.all(gaussian.epsilon < read.epsilon)


def test_without_a_delta_rho_has_no_epsilon():
    assert ZCDP.reported_currency == "rho"
    with pytest.raises(errors.IncompatibleGuarantees):
        _ = ZCDP.epsilon


def test_an_epsilon_at_one_delta_says_nothing_about_rho_nor_about_smaller_deltas():
    assert np.array_equal(AT_DELTA.epsilon, MEAN.epsilon)
    assert np.array_equal(AT_DELTA.approximate(1e-3), MEAN.epsilon)
    for ask in (lambda: AT_DELTA.rho, AT_DELTA.as_zcdp, lambda: AT_DELTA.approximate(1e-9)):
        with pytest.raises(errors.IncompatibleGuarantees) as caught:
            ask()
        assert caught.value.remedy


def test_promises_of_one_kind_add_up_and_others_do_not():
    both = AT_DELTA + replace(AT_DELTA, delta=1e-7)
    assert both.delta == pytest.approx(1.1e-6)
    assert np.array_equal(both.units, 2 * AT_DELTA.units)
    for other in (MEAN, ZCDP, replace(ZCDP, delta=1e-6)):
        for left, right in ((AT_DELTA, other), (other, AT_DELTA)):
            with pytest.raises(errors.IncompatibleGuarantees):
                _ = left + right


def test_rho_adds_up_and_is_read_at_the_common_delta():
    one = replace(ZCDP, delta=1e-6, gaussian=True)
    two = replace(ZCDP, delta=1e-6)
    both = one + two
    assert np.array_equal(both.units, 2 * ZCDP.units)
    assert both.delta == 1e-6
    assert not both.gaussian  # the exact curve is that of one release
    assert np.all(both.epsilon >= one.epsilon)
    assert (one + MEAN).delta == 1e-6
    assert (MEAN + one).delta == 1e-6
    assert (one + replace(two, delta=1e-5)).delta is None


@pytest.mark.parametrize(
    "promise", [replace(ZCDP, delta=1e-6), replace(ZCDP, delta=1e-6, gaussian=True), AT_DELTA]
)
def test_a_summary_tells_delta_wherever_it_tells_epsilon(promise):
    told = promise.summary()
    assert told["delta"] == 1e-6
    assert (told["unit"], told["neighbours"]) == ("row", "replace")
    assert ("rho" in told) == (told["currency"] == "zCDP rho")
    assert told["epsilon"]["most"] == pytest.approx(promise.epsilon.max(), rel=1e-8)
    assert told["epsilon"]["most"] >= promise.epsilon.max() * (1 - 1e-15)
    assert sum(line["people"] for line in told["epsilon"]["distribution"]) == 3
    assert "epsilon" not in ZCDP.summary()
