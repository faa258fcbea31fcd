"""Promises add up only where they may; releases say what must be said."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
from dp_accounting import dp_event
from dp_accounting.pld import PLDAccountant

import sottovoce as sv
from sottovoce import errors
from sottovoce.report.plan import draw_plan

VALUES = np.linspace(0, 10, 300)
EPSILON = np.repeat([0.1, 0.5, 1.0], 100)
MEAN = sv.Mean(bounds=(0, 10))


def test_losses_of_one_person_add_up_in_units():
    a = MEAN.plan(epsilon=EPSILON).guarantee
    b = sv.Quantile(bounds=(0, 10)).plan(epsilon=EPSILON[::-1]).guarantee
    assert np.array_equal((a + b).units, a.units + b.units)
    assert np.array_equal((a + a).units, 2 * a.units)
    assert (a + b).counts.sum() == 300


def test_zcdp_of_a_pure_promise_and_its_conversion_to_epsilon_delta():
    one = MEAN.plan(epsilon=0.3, rows=10).guarantee
    assert one.rho == pytest.approx(np.full(10, 0.045), rel=1e-6)
    assert np.all(one.rho >= one.epsilon**2 / 2)
    many = one.as_zcdp()
    for _ in range(63):
        many = many + one
    delta = 1e-6
    ours = many.approximate(delta)[0]
    exact = PLDAccountant().compose(dp_event.LaplaceDpEvent(1 / 0.3), 64).get_epsilon(delta)
    assert (
        exact <= ours <= 64 * 0.3
    )  # dp-accounting's exact composition never exceeds ours, and ours beats adding
    with pytest.raises(errors.IncompatibleGuarantees):
        _ = many.epsilon
    for bad in (0, 1, -1, np.nan):
        with pytest.raises(errors.InvalidParameter):
            many.approximate(bad)


def test_zcdp_of_huge_budgets_does_not_overflow():
    assert MEAN.plan(epsilon=1e6, rows=3).guarantee.rho == pytest.approx(np.full(3, 1e6), rel=1e-5)


def test_streamed_kinds_of_two_tables_do_not_add_up():
    """Rows with (0.1, 1.0) and rows with (1.0, 0.1) are two equal tables of kinds; nobody can say
    who is who.
    """
    from sottovoce.budgets import BudgetGroups

    kinds = [
        BudgetGroups(np.array([10**8, 10**9]), np.array([1, 1]), np.array([5, 5])) for _ in range(2)
    ]
    one, two = (MEAN.plan_for(sv.Budgets(k, "row")).guarantee for k in kinds)
    assert np.array_equal((one + one).units, 2 * one.units)
    with pytest.raises(errors.IncompatibleGuarantees):
        _ = one + two


def test_promises_of_different_kinds_do_not_add_up():
    by_row = MEAN.plan(epsilon=0.1, rows=4).guarantee
    others = [
        MEAN.plan(epsilon=0.1, groups=["a", "b", "c", "d"]).guarantee,
        MEAN.plan(epsilon=0.1, rows=5).guarantee,
    ]
    for other in others:
        with pytest.raises(errors.IncompatibleGuarantees):
            _ = by_row + other
    with pytest.raises(errors.IncompatibleGuarantees):
        _ = others[0] + MEAN.plan(epsilon=0.1, groups=["a", "b", "c", "e"]).guarantee


def test_a_release_says_value_promise_theorem_noise_grid_and_version():
    release = MEAN.fit(VALUES, epsilon=EPSILON).release_
    content = json.loads(release.to_json())
    assert content["format"] == "sottovoce.release/1"
    assert content["value"] == release.value
    promise = content["guarantee"]
    assert (promise["unit"], promise["neighbours"], promise["currency"]) == (
        "row",
        "replace",
        "pure epsilon",
    )
    assert sum(line["people"] for line in promise["epsilon"]["distribution"]) == 300
    assert content["certificate"]["page"] == "docs/theory/mean.md"
    assert content["certificate"]["library"]["sottovoce"] == sv.__version__
    assert content["noise"]["scale"] > 0
    assert release.value % content["grid"]["answer_step"] == 0
    assert sv.Release.from_json(release.to_json()) == release
    assert sv.Release.from_json(release.to_json()).to_json() == release.to_json()


def test_many_different_budgets_are_told_by_deciles():
    promise = MEAN.plan(epsilon=np.linspace(0.01, 1, 300)).promise
    assert len(promise["epsilon"]["distribution"]) == 10
    shares = [line["share_at_or_below"] for line in promise["epsilon"]["distribution"]]
    assert shares == pytest.approx(np.linspace(0.1, 1, 10))


@pytest.mark.parametrize(
    "text", ["", "{}", "[]", "null", '{"format": "other/1"}', '{"format": "sottovoce.release/1"}']
)
def test_what_is_no_release_is_refused(text, tmp_path):
    with pytest.raises(errors.InvalidRelease):
        sv.Release.from_json(text)
    (tmp_path / "r.json").write_text(text)
    with pytest.raises(errors.InvalidRelease):
        sv.Release.load(tmp_path / "r.json")
    with pytest.raises(errors.InvalidRelease):
        sv.Release.load(tmp_path / "absent.json")


@pytest.mark.parametrize("epsilon", [EPSILON, np.linspace(0.01, 1, 300), 0.5, 50.0])
def test_the_explanation_names_unit_neighbours_currency_and_factor(epsilon):
    text = MEAN.fit(VALUES, epsilon=epsilon).release_.explain()
    assert all(word in text for word in ("pure ε", "replace", "row", "odds", "docs/theory/mean.md"))
    quartiles = (
        sv.Quantile(q=[0.25, 0.75], bounds=(0, 10)).fit(VALUES, epsilon=epsilon).release_.explain()
    )
    assert "(the 0.25 quantile)" in quartiles
    assert "(the 0.75 quantile)" in quartiles


def test_plans_describe_tiers_and_deciles():
    tiers = MEAN.plan(epsilon=EPSILON)
    assert [line["people"] for line in tiers.who_pays()] == [100, 100, 100]
    assert [line["granted"] for line in tiers.who_pays()] == sorted(
        set(EPSILON.tolist())
    )  # as they were typed
    assert sum(line["voice"] for line in tiers.who_pays()) == pytest.approx(1)
    deciles = MEAN.plan(epsilon=np.linspace(0.01, 1, 300))
    assert [line["people"] for line in deciles.who_pays()] == [30] * 10
    assert sum(line["voice"] for line in deciles.who_pays()) == pytest.approx(1)
    assert "mean" in repr(deciles)


def test_a_release_tells_the_parts_of_its_error_and_their_unit():
    release = sv.Mean(bounds=(0, 10)).fit([5.0] * 100, epsilon=[0.1] * 50 + [1.0] * 50).release_
    again = sv.Release.from_json(release.to_json())
    assert again == release
    assert again.error_unit == "in units of the column"
    assert {"noise", "sampling", "shrinkage", "bias"} <= set(again.error_parts)
    parts = [again.error_parts[name] for name in ("noise", "sampling", "shrinkage")]
    assert again.expected_error == pytest.approx(np.linalg.norm(parts))
    several = sv.Quantile(q=[0.2, 0.5], bounds=(0, 10)).fit([5.0] * 100, epsilon=1.0).release_
    assert len(several.error_parts) == 2
    assert "share of the rows" in several.error_unit


def test_a_release_of_an_earlier_version_keeps_its_bytes():
    """It has neither parts nor a unit, and what is read and written again is the same text."""
    content = json.loads(sv.Mean(bounds=(0, 10)).fit([5.0] * 100, epsilon=1.0).release_.to_json())
    del content["error_unit"], content["error_parts"]
    content["error_is"] = "root mean square of sampling and noise, in units of the column"
    text = json.dumps(content, indent=2, ensure_ascii=False) + "\n"
    release = sv.Release.from_json(text)
    assert (release.error_unit, release.error_parts) == ("", None)
    assert release.to_json() == text


@pytest.mark.parametrize("high", [100, 137, 1_049, 205_300])
def test_no_part_of_an_expected_error_looks_larger_than_the_whole(high):
    """Where noise is all of it, both are the same number."""
    plan = sv.Mean(bounds=(0, high)).plan(epsilon=[1.0] * 300)
    whole = re.search(r"Expected error: (\S+) in", plan.describe()).group(1)
    assert f"Of it noise {whole}, unequal weights 0, " in plan.describe()
    page = draw_plan(plan)
    assert page.count(f"Expected error: {whole} in") == 1
    assert f"<dt>expected error</dt><dd>{whole} " in page


@pytest.mark.parametrize("q", [0.5, [0.1, 0.9]])
def test_the_parts_of_an_expected_error_are_told_in_words(q):
    plan = sv.Quantile(q=q, bounds=(0, 100)).plan(epsilon=[0.1] * 50 + [1.0] * 50)
    told = plan.describe()
    assert "difference from the classical answer on the same table, the plain quantile" in told
    for words in (
        "Of it noise",
        "unequal weights",
        "shrinkage 0",
        "of bias is possible",
        "in units of the column",
    ):
        assert words in told
    assert all(error.in_column == pytest.approx(100 * error.total) for error in plan.errors)
    assert np.atleast_1d(plan.expected_error) == pytest.approx(
        [error.total for error in plan.errors]
    )
