"""One ε at one δ for all that was spent on a person: never below what mechanisms of every kind lose
together.

The losses are computed by dp-accounting and by exact sums over all paths, neither of which knows
our formula.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from dp_accounting.pld import common
from dp_accounting.pld import privacy_loss_distribution as pld
from hypothesis import given
from hypothesis import strategies as st

from sottovoce import units
from sottovoce.accounting.renyi import LossSums, TotalLoss, zcdp_epsilon
from sottovoce.ledger import ACCOUNTS, RESOURCES, compose_accounts
from sottovoce.units import UNITS_PER_DELTA, UNITS_PER_EPSILON

READ_AT = 1e-6
#: What is spent in accounts, and the sizes of mechanisms that really lose it: (ε, δ) at worst, and
#: Gaussian noise (ρ).
SPENT = {
    "rows and labels": {"pure epsilon, replace": 1.0, "pure epsilon, replace labels": 0.88},
    "pure, and ε at δ": {
        "pure epsilon, replace": 0.5,
        "epsilon at delta, replace": 0.75,
        "delta, replace": 1e-4,
    },
    "pure and ρ": {"pure epsilon, replace": 0.3, "zCDP rho, replace": 0.05},
    "ρ of rows and of labels": {"zCDP rho, replace": 0.02, "zCDP rho, replace labels": 0.03},
    "zeroing out": {"epsilon at delta, zero out": 0.5, "delta, zero out": 1e-3},
    "pure zeroing out": {"pure epsilon, zero out": 0.4},
    "ρ of zeroing out": {"zCDP rho, zero out": 0.02},
    "everything": {
        "pure epsilon, replace": 0.2,
        "zCDP rho, replace": 0.01,
        "epsilon at delta, replace labels": 0.1,
        "delta, replace labels": 1e-5,
        "epsilon at delta, zero out": 0.3,
        "delta, zero out": 1e-5,
        "zCDP rho, zero out": 0.005,
    },
}


def in_units(spent):
    return {
        name: round(amount * (UNITS_PER_DELTA if name.startswith("delta") else UNITS_PER_EPSILON))
        for name, amount in spent.items()
    }


def worst(spent):
    """Mechanisms that lose what is spent: under zeroing out the pair is two steps apart, as
    replacement makes it.
    """
    parts = []
    for relation in ("replace", "replace labels", "zero out"):
        pure, rho, epsilon, delta = (
            spent.get(f"{resource}, {relation}", 0.0) for resource in RESOURCES
        )
        if relation == "zero out":
            steps = 2
        else:
            steps = 1
        if pure:
            parts.append(
                pld.from_privacy_parameters(common.DifferentialPrivacyParameters(steps * pure, 0.0))
            )
        if rho:
            parts.append(pld.from_gaussian_mechanism(1 / math.sqrt(2 * rho), sensitivity=steps))
        if epsilon:
            if steps == 2:
                lost = two_steps(epsilon, delta)
            else:
                lost = (epsilon, delta)
            parts.append(pld.from_privacy_parameters(common.DifferentialPrivacyParameters(*lost)))
    whole = parts[0]
    for part in parts[1:]:
        whole = whole.compose(part)
    return whole


def two_steps(epsilon, delta):
    """The worst ε and δ of a pair of laws with one between them that is (ε, δ)-close to both: see
    the chain below.
    """
    return 2 * epsilon, delta + math.exp(epsilon) * delta


def lost(spent, found):
    """δ that is really lost at the ε of a total, as dp-accounting has it."""
    # A double below the boundary would count a loss of exactly ε; the grid of losses has steps of
    # 1e-4.
    return worst(spent).get_delta_for_epsilon(found.epsilon / UNITS_PER_EPSILON + 1e-9)


@pytest.mark.parametrize("case", SPENT)
def test_a_total_is_never_below_what_mechanisms_lose_together(case):
    found = compose_accounts(in_units(SPENT[case]), READ_AT)
    assert lost(SPENT[case], found) <= found.delta / UNITS_PER_DELTA + 1e-12


#: Ways to add up that are wrong, and a case that shows it.
BUGS = {
    "one account of several": (
        "rows and labels",
        lambda s: compose_accounts({ACCOUNTS[0]: s[ACCOUNTS[0]]}, READ_AT),
    ),
    "the largest account": ("rows and labels", lambda s: TotalLoss(max(s.values()), 0)),
    "zeroing out counted once": (
        "zeroing out",
        lambda s: LossSums(*_of(s, "zero out")).compose(READ_AT),
    ),
    "δ of zeroing out counted twice": (
        "zeroing out",
        lambda s: TotalLoss(2 * _of(s, "zero out")[2], 2 * s["delta, zero out"]),
    ),
    "pure zeroing out counted once": (
        "pure zeroing out",
        lambda s: TotalLoss(s["pure epsilon, zero out"], 0),
    ),
    "ρ of zeroing out counted twice": (
        "ρ of zeroing out",
        lambda s: TotalLoss(
            round(_tight(2 * s["zCDP rho, zero out"] / UNITS_PER_EPSILON) * UNITS_PER_EPSILON),
            round(READ_AT * UNITS_PER_DELTA),
        ),
    ),
    "ρ read as ε": (
        "pure and ρ",
        lambda s: TotalLoss(s["pure epsilon, replace"] + s["zCDP rho, replace"], 0),
    ),
    "δ forgotten": (
        "pure, and ε at δ",
        lambda s: compose_accounts({**s, "delta, replace": 0}, READ_AT),
    ),
}


def _of(spent, relation):
    return [spent.get(f"{resource}, {relation}", 0) for resource in RESOURCES]


def _tight(rho):
    from dp_accounting import gaussian_mechanism

    return gaussian_mechanism.get_epsilon_gaussian(1 / math.sqrt(2 * rho), READ_AT)


@pytest.mark.parametrize("bug", BUGS)
def test_wrong_ways_to_add_up_are_caught(bug):
    case, wrong = BUGS[bug]
    found = wrong(in_units(SPENT[case]))
    assert lost(SPENT[case], found) > 1.2 * found.delta / UNITS_PER_DELTA + 1e-12


@pytest.mark.parametrize("epsilon", [0.01, 0.5, 2.0])
@pytest.mark.parametrize("delta", [1e-9, 1e-3])
def test_out_and_in_again_is_no_more_than_it_must_be(epsilon, delta):
    """Two laws and one between them, each (ε, δ)-close to it, that reach (2ε, (1 + e^ε)·δ)."""
    grow = lambda share: math.exp(epsilon) * share + delta  # noqa: E731
    few = 1e-6
    law = {"with": few, "out": grow(few), "instead": grow(grow(few))}
    for one, other in (("with", "out"), ("out", "instead")):
        for p, q in ((law[one], law[other]), (law[other], law[one])):
            assert p <= grow(q) * (1 + 1e-12)
            assert 1 - p <= grow(1 - q) * (1 + 1e-12)
    found = LossSums(
        epsilon=round(epsilon * UNITS_PER_EPSILON), delta=round(delta * UNITS_PER_DELTA)
    ).to_replace()
    needed = law["instead"] - math.exp(found.epsilon / UNITS_PER_EPSILON) * law["with"]
    assert needed <= found.delta / UNITS_PER_DELTA <= needed * (1 + 1e-6) + 1 / UNITS_PER_DELTA


#: Caps of the four sums, and what a release of each kind costs.
CAPS = LossSums(pure=600_000_000, rho=60_000_000, epsilon=500_000_000, delta=2 * 10**13)


def release(kind, price):
    """Charges, and the probabilities of answers under two neighbours."""
    p = 1 / (1 + math.exp(-price))
    response = [(p, 1 - p), (1 - p, p)]
    if kind == "pure":
        return LossSums(pure=round(price * UNITS_PER_EPSILON)), response
    if kind == "rho":  # randomised response of ε is ε²/2-zCDP
        return LossSums(rho=math.ceil(price**2 / 2 * UNITS_PER_EPSILON)), response
    leak = 0.008
    answers = [(leak, 0.0), *((a * (1 - leak), b * (1 - leak)) for a, b in response), (0.0, leak)]
    return LossSums(
        epsilon=round(price * UNITS_PER_EPSILON), delta=round(leak * UNITS_PER_DELTA)
    ), answers


def within(spent, caps):
    return all(
        getattr(spent, name) <= getattr(caps, name) for name in ("pure", "rho", "epsilon", "delta")
    )


def paths(caps, releases=7):
    """Probabilities of all answers to an adaptive sequence: which kind comes next, and at which
    price, is a function of the answers so far, and what would exceed a cap is not asked of this
    person.
    """
    waiting = [((), LossSums(), 1.0, 1.0)]
    found = []
    while waiting:
        past, spent, one, other = waiting.pop()
        if len(past) == releases:
            found.append((one, other))
            continue
        kind = ("pure", "rho", "at delta")[(len(past) + sum(past)) % 3]
        cost, answers = release(kind, (0.2, 0.25, 0.15)[sum(past[-2:]) % 3])
        if not within(spent + cost, caps):
            cost = LossSums()
            answers = [(1.0, 1.0)]
        waiting += [
            ((*past, a), spent + cost, one * p, other * q) for a, (p, q) in enumerate(answers)
        ]
    return np.array(found).T


def excess(answers, found):
    """By how much the worst event exceeds e^ε times its probability under the neighbour, both
    ways.
    """
    one, other = answers
    ratio = math.exp(found.epsilon / UNITS_PER_EPSILON)
    return max(np.maximum(p - ratio * q, 0).sum() for p, q in ((one, other), (other, one)))


def test_interleaved_adaptive_releases_of_every_kind_lose_no_more_than_the_total_of_their_caps():
    answers = paths(CAPS)
    found = CAPS.compose(READ_AT)
    assert answers.sum(axis=1) == pytest.approx([1, 1])
    assert READ_AT < excess(answers, found) <= found.delta / UNITS_PER_DELTA


def test_people_who_stay_beyond_their_caps_are_caught():
    everything = LossSums(*[10**15] * 4)
    found = CAPS.compose(READ_AT)
    assert excess(paths(everything), found) > 1.2 * found.delta / UNITS_PER_DELTA


@given(
    *[st.integers(0, 10**k) for k in (12, 12, 12, 15)],
    st.sampled_from(["replace", "replace labels", "zero out"]),
)
def test_more_spent_is_never_less_in_all(pure, rho, epsilon, delta, relation):
    amounts = dict(
        zip(
            (f"{resource}, {relation}" for resource in RESOURCES),
            (pure, rho, epsilon, delta),
            strict=True,
        )
    )
    found = compose_accounts(amounts, READ_AT)
    assert found.epsilon >= pure + epsilon + rho
    assert min(delta, UNITS_PER_DELTA) <= found.delta <= UNITS_PER_DELTA
    for name in amounts:
        assert compose_accounts({**amounts, name: amounts[name] + 1}, READ_AT) >= found


def test_one_account_alone_is_what_it_was():
    assert compose_accounts({ACCOUNTS[0]: 105_000_000}, READ_AT) == (105_000_000, 0)
    assert compose_accounts({}, READ_AT) == (0, 0)
    rho = compose_accounts({"zCDP rho, replace": 10**7}, READ_AT)
    assert rho == (math.ceil(float(zcdp_epsilon(0.01, READ_AT)) * UNITS_PER_EPSILON), 10**9)
    assert float(zcdp_epsilon(0.01, READ_AT)) <= 0.01 + 2 * math.sqrt(0.01 * math.log(1 / READ_AT))
    assert (
        compose_accounts(
            {"epsilon at delta, zero out": 40 * UNITS_PER_EPSILON, "delta, zero out": 1}, READ_AT
        ).delta
        == UNITS_PER_DELTA
    )
    assert (
        compose_accounts({"epsilon at delta, zero out": 900_000 * UNITS_PER_EPSILON}, READ_AT).delta
        == 0
    )
    assert (
        units.to_epsilon(
            compose_accounts(
                {
                    "pure epsilon, replace": UNITS_PER_EPSILON,
                    "pure epsilon, replace labels": 880_000_000,
                },
                0.1,
            )[0]
        )
        == 1.88
    )
