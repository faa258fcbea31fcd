"""No output is impossible under a neighbour.

Ours: every answer is a multiple of the public step, and both neighbours can give every one of them.
The same test flags NumPy's Laplace noise on doubles (Mironov 2012), so it can fail.
"""

from __future__ import annotations

import numpy as np
import pytest

from cases import CASES, PEOPLE, captured, worst_pairs
from sottovoce.noise import source

MEAN = CASES[0]


def off_grid(answers: np.ndarray, plan) -> int:
    """Counts answers that are not a multiple of the public step, or not between the bounds."""
    step = plan.grid.to_dict()["answer_step"]
    low, high = plan.parameters["bounds"]
    return int(
        np.sum((np.rint(answers / step) * step != answers) | (answers < low) | (answers > high))
    )


def impossible_under(answers: np.ndarray, centre: float, scale: float) -> int:
    """Counts doubles that centre + numpy's Laplace(scale) cannot be, whatever 53-bit uniform it
    draws.
    """
    impossible = 0
    for answer in answers:
        z = answer - centre
        # numpy: z = scale·log(2u) for u < ½, −scale·log(2 − 2u) above, with u a multiple of 2^-53.
        if z < 0:
            u = np.exp(z / scale) / 2
        else:
            u = 1 - np.exp(-z / scale) / 2
        near = (np.rint(u * 2**53) + np.arange(-40, 41)) * 2.0**-53
        near = near[(near > 0) & (near < 1)]
        with np.errstate(divide="ignore", invalid="ignore"):
            reached = np.where(
                near >= 0.5,
                centre - scale * np.log(2 - near - near),
                centre + scale * np.log(near + near),
            )
        impossible += not np.any(reached == answer)
    return impossible


def neighbours(count: int):
    people = PEOPLE[0]
    pairs = [pair for owner in people.owners for pair in worst_pairs(people, owner)]
    return people, pairs[:: max(len(pairs) // count, 1)][:count]


def count_off_grid(draws: int, pairs: int) -> int:
    people, chosen = neighbours(pairs)
    wrong = 0
    for first, second in chosen:
        one = captured(MEAN, first, people.epsilon)
        two = captured(MEAN, second, people.epsilon)
        assert (
            one.plan.digest == two.plan.digest
        )  # the same grid, the same noise: the support cannot differ
        answers = np.array(MEAN.module.draw_noisy_values(one.plan, one.statistic, draws))
        wrong += off_grid(answers, two.plan)
    return wrong


def test_no_answer_is_off_the_grid():
    assert count_off_grid(draws=2_000, pairs=20) == 0


@pytest.mark.long
def test_no_answer_in_two_million_is_off_the_grid():
    assert count_off_grid(draws=100_000, pairs=20) == 0


def test_the_same_test_flags_laplace_noise_on_doubles():
    rng = np.random.default_rng(0)
    plan = captured(MEAN, *neighbours(1)[1][0][:1], PEOPLE[0].epsilon).plan
    answers = np.clip(5.0 + rng.laplace(0, 0.7, 2_000), *plan.parameters["bounds"])
    assert off_grid(answers, plan) > 1_900


def test_doubles_really_give_the_neighbour_away():
    rng = np.random.default_rng(0)
    mine = 0.3
    theirs = 0.7
    scale = 1.1
    answers = mine + rng.laplace(0, scale, 500)
    assert impossible_under(answers, mine, scale) == 0
    assert impossible_under(answers, theirs, scale) > 50


def test_every_integer_near_the_centre_is_reached_by_both_neighbours():
    draws = np.array(source.draw_laplace(2.0, 20_000))
    assert set(range(-8, 9)) <= set(draws.tolist())
