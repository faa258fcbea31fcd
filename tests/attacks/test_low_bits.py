"""What is published after continuous noise does not tell one table from another by its low bits.

The attack: the last coordinate of a posterior sample, an eigenvalue and every answer of one
coordinate are a known function of *one* random number, so given an answer and a table one can look
for the uniform numbers that could have given it. With one double of 52 bits, and answers as full
doubles, as noise was once drawn here, every answer is found under the true table and most are not
found under its neighbour: that tells everything, whatever ε is printed. The old sampler is kept
below as the planted bug. Now answers are rounded to a public grid after noise that is known far
better than the grid, and both tables can give every answer.

False alarms: an answer of the new sampler would be missed by the search if its noise lay beyond six
deviations, 2e-9 for each of about 600 searches. The old sampler would pass for safe if all of 25
answers, each found under the neighbour with a chance below one half, were found: 3e-8 a case, and
less where there are 200.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass, replace
from decimal import Decimal, localcontext
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.linalg import cholesky, solve_triangular
from scipy.special import ndtr, ndtri

import sottovoce as sv
from cases import FLOATING, TAKEN_AT_ITS_WORD, every_floating
from sottovoce.estimators import (
    curvature,
    logistic_mechanism,
    posterior_mechanism,
    ridge_objective,
    ridge_output,
    ridge_recipe,
)
from sottovoce.noise import continuous, source
from sottovoce.noise.source import AnswerGrid

SOURCES = Path(sv.__file__).parent
#: So many uniform numbers are tried on either side of the one that is looked for; fewer where each
#: takes a solver.
WINDOW = 40
SOLVED = 12
#: So many answers of the old sampler are tried, and fewer where each takes a solver.
MANY = 200
FEW = 25


# ---------------------------------------------------------------- every estimator that says
# "floating" is here


def test_every_file_that_says_floating_is_attacked():
    saying = {
        path
        for path in SOURCES.rglob("*.py")
        if '"floating"' in path.read_text() and "estimators" in path.parts
    }
    attacked = {Path(case.module.__file__) for case in FLOATING}
    assert saying == attacked | {Path(module.__file__) for module in TAKEN_AT_ITS_WORD}


@every_floating
def test_a_case_says_floating_and_one_coordinate_is_among_them(case):
    one, two = (case.prepared(table)[1] for table in case.tables())
    assert one.guarantee.arithmetic == "floating"
    assert one.digest == two.digest  # grid, noise and all: the plan does not know the values
    assert {c.module for c in FLOATING if c.name.endswith(", 1")} == {c.module for c in FLOATING}


# ---------------------------------------------------------------- the grid


@contextmanager
def watched(monkeypatch, nearest: Callable[[AnswerGrid, Any], Any] = AnswerGrid.nearest):
    """Collects (grid, rounded numbers) of everything that is rounded, by the given way of
    rounding.
    """
    seen: list[tuple[AnswerGrid, np.ndarray]] = []

    def spy(self, values):
        rounded = nearest(self, values)
        seen.append((self, rounded))
        return rounded

    with monkeypatch.context() as patch:
        patch.setattr(AnswerGrid, "nearest", spy)
        yield seen


@every_floating
def test_answers_are_whole_multiples_of_the_step_that_the_plan_shows(case, monkeypatch):
    estimator, plan, rows = case.prepared(case.tables()[0])
    step = plan.grid.to_dict()["answer_step"]
    assert math.frexp(step)[0] == 0.5  # a power of two
    assert estimator.release_under(plan, rows).grid == plan.grid.to_dict()
    releases = []
    for _ in range(20):
        with watched(monkeypatch) as seen:
            estimator.release_under(plan, rows)
        assert seen[-1][0].to_dict()["answer_step"] == step
        releases.append([theta for grid, theta in seen if grid.to_dict()["answer_step"] == step])
    checked = 0
    for rounded in zip(*releases, strict=True):  # the same stage of every release
        answers = np.array(rounded)
        assert np.array_equal(np.rint(answers / step) * step, answers)
        # What is sometimes shrunk to nothing follows from a fit that is checked itself.
        moved = np.std(answers, axis=0)[np.all(answers != 0, axis=0)]
        assert np.all(
            step < 2.0**-10 * moved[moved > 0]
        )  # fine against the noise: a mean of 20 is within a tenth or so
        checked += np.count_nonzero(moved)
    assert checked > 0


def constant(self: AnswerGrid, values: Any) -> np.ndarray:
    return np.arange(1.0, 1.0 + len(list(values)))


def no_grid(self: AnswerGrid, values: Any) -> np.ndarray:
    return np.array([float(value) for value in values])


def leave_out_choices(value: Any) -> Any:
    """Scales are chosen among a few public candidates, and differ by chance: they have no bits."""
    if isinstance(value, dict) and "stages" in value:
        return {**value, "stages": [stage.get("theta") for stage in value["stages"]]}
    return value


def answers_under(case, monkeypatch, nearest):
    with watched(monkeypatch, nearest):
        return [
            leave_out_choices(estimator.release_under(plan, rows).value)
            for estimator, plan, rows in map(case.prepared, case.tables())
        ]


@every_floating
def test_everything_that_is_published_follows_from_rounded_numbers(case, monkeypatch):
    """With rounded numbers held fixed, other values and fresh noise give the same release; without
    a grid, another.
    """
    first, second = answers_under(case, monkeypatch, constant)
    assert first == second
    first, second = answers_under(case, monkeypatch, no_grid)
    assert first != second


# ---------------------------------------------------------------- every answer is possible under
# both tables


def aimed_sample(theta):
    """gram.sample with the noise that gives θ: z = √γ(Lᵀθ − L⁻¹c)."""
    original = posterior_mechanism.draw_sample

    def sample(G, c, ridge, gamma):
        with localcontext(source.DECIMALS), pytest.MonkeyPatch.context() as patch:
            L = posterior_mechanism.factorise_decimals(
                source.to_decimals(G) + np.diag([Decimal(ridge)] * len(c))
            )
            whitened = L.T @ source.to_decimals(theta) - posterior_mechanism.solve_lower(
                L, source.to_decimals(c)
            )
            z = [int(x * Decimal(gamma).sqrt() * source.ONE) for x in whitened]
            assert all(abs(x) < 40 * source.ONE for x in z)
            patch.setattr(continuous, "draw_standard_normals", lambda size: z)
            return original(G, c, ridge, gamma)

    return sample


def aimed_eigenvalue(target):
    """gram.noisy_smallest with the noise that gives λ̃."""
    original = posterior_mechanism.add_eigenvalue_noise

    def noisy(G, spread):
        smallest = Fraction(float(np.linalg.eigvalsh(G.astype(float))[0]))
        z = int((Fraction(target) - smallest) / Fraction(spread) * source.ONE)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(continuous, "draw_standard_normals", lambda size: [z])
            return original(G, spread)

    return noisy


def aimed_cover(targets):
    """radial.cover with the output noise that gives θ; it need not be larger than that noise
    usually is.
    """
    original = continuous.add_output_noise
    left = list(targets)

    def cover(theta, rate, ridge):
        roots = np.array(
            [Fraction(source.sqrt(int(Fraction(x) * source.ONE)), source.ONE) for x in ridge]
        )
        noise = (
            np.array(source.to_fractions(left.pop(0))) - np.array(source.to_fractions(theta))
        ) * roots
        assert np.linalg.norm(noise.astype(float)) * rate < 40 + 4 * len(ridge)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(continuous, "draw_l2", lambda *_: noise)
            return original(theta, rate, ridge)

    return cover


def aimed_means(targets):
    """curvature.add_box_noise with the noise that gives the means that were released."""
    original = curvature.add_box_noise
    left = list(targets)

    def add(means, scale):
        noise = np.array(source.to_fractions(left.pop(0))) - np.array(means)
        assert np.max(np.abs(noise.astype(float))) < scale * (40 + 4 * len(noise))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(continuous, "draw_box", lambda *_: noise)
            return original(means, scale)

    return add


def tilt_at(problem, theta) -> np.ndarray:
    """The b under which θ is the minimiser."""
    exact = ridge_objective.newton.to_fractions
    pulls = problem.terms(exact(theta), True)[1]
    return (exact(pulls) - exact(problem.ridge) * (exact(theta) - exact(problem.centre))).astype(
        np.float64
    )


def aimed_minimiser(newton, targets):
    """newton.minimise with the b under which θ is the minimiser."""
    original = newton.minimise
    left = list(targets)

    def minimise(problem, tolerance, *start):
        return original(replace(problem, tilt=tilt_at(problem, left.pop(0))), tolerance, *start)

    return minimise


def aim(patch, case, estimator, plan, rows, value, seen):
    """Puts noise in place under which these rows give what was seen."""
    theta = seen[-1][1]
    if "posterior" in case.name:
        patch.setattr(posterior_mechanism, "draw_sample", aimed_sample(theta))
        if "noisy_eigenvalue" in value:
            patch.setattr(
                posterior_mechanism,
                "add_eigenvalue_noise",
                aimed_eigenvalue(value["noisy_eigenvalue"]),
            )
    elif case.module is ridge_output:
        solution: list[Any] = []
        with pytest.MonkeyPatch.context() as silent:
            silent.setattr(continuous, "draw_l2", lambda rate, d: np.zeros(d, dtype=object))
            silent.setattr(
                AnswerGrid,
                "nearest",
                lambda self, values: solution.extend(values) or no_grid(self, values),
            )
            estimator.release_under(plan, rows)
        noise = np.array(source.to_fractions(theta)) - np.array(solution)
        patch.setattr(continuous, "draw_l2", lambda rate, d: noise)
    else:
        # Of every fit, before it is rounded to the grid of the plan; means are released as drawn.
        targets = [rounded for grid, rounded in seen if grid != plan.grid]
        means = [stage["means"] for stage in value.get("stages", ()) if "means" in stage]
        if means:
            targets = [one for one in targets if one.tolist() not in means]
            patch.setattr(ridge_objective, "add_box_noise", aimed_means(means))
        for module in (ridge_objective, logistic_mechanism):
            patch.setattr(module.newton, "minimise", aimed_minimiser(module.newton, targets))
        patch.setattr(continuous, "add_output_noise", aimed_cover(targets))


@every_floating
def test_every_answer_is_possible_under_both_tables(case, monkeypatch):
    """By the whole way of a release, with noise that the sampler can draw (tests/noise: closer than
    2^-70).
    """
    one, two = (case.prepared(table) for table in case.tables())
    choose = ridge_objective.source.permute_and_flip
    for _ in range(5):
        chosen: list[int] = []
        with watched(monkeypatch) as seen, monkeypatch.context() as patch:
            patch.setattr(
                ridge_objective.source,
                "permute_and_flip",
                lambda *a, chosen=chosen: chosen.append(choose(*a)) or chosen[-1],
            )
            value = one[0].release_under(*one[1:]).value
        for estimator, plan, rows in (one, two):
            with pytest.MonkeyPatch.context() as patch:
                aim(patch, case, estimator, plan, rows, value, seen)
                # What a stage chooses has a chance under every table, exactly (noise/source.py).
                again = iter(chosen)
                patch.setattr(
                    ridge_objective.source,
                    "permute_and_flip",
                    lambda *_, again=again: next(again),
                )
                assert estimator.release_under(plan, rows).value == value


# ---------------------------------------------------------------- the search for the uniform number


@dataclass(frozen=True)
class Line:
    """One published number as a function of one normal, or of one signed exponential, variable."""

    of: Callable[[np.ndarray], np.ndarray]
    noise_in: Callable[[float], float]
    normal: bool = True
    window: int = WINDOW

    def drawn(self, u: np.ndarray, sign: float) -> np.ndarray:
        """The old sampler: by inversion of a double of 52 bits."""
        if self.normal:
            return ndtri(u)
        return sign * -np.log(u)

    def old_answers(self, size: int) -> np.ndarray:
        rng = np.random.default_rng()
        u = uniforms(rng.integers(2**52, size=size))
        return np.concatenate(
            [self.of(self.drawn(u[i : i + 1], rng.choice([-1.0, 1.0]))) for i in range(size)]
        )

    def can_be(self, answer: float, step: float | None) -> bool:
        """Whether some uniform number of 52 bits gives this answer, rounded to a step if there is
        one.
        """
        noise = self.noise_in(answer)
        if self.normal:
            u = ndtr(noise)
        else:
            u = math.exp(-abs(noise))
        cells = np.clip(
            np.floor(u * 2.0**52) + np.arange(-self.window, self.window + 1), 0, 2**52 - 1
        )
        nearest_first = cells[np.argsort(np.abs(cells - np.floor(u * 2.0**52)), kind="stable")]
        for near in nearest_first[:, None] if self.window == SOLVED else [nearest_first]:
            found = self.of(self.drawn(uniforms(near), math.copysign(1.0, noise)))
            if np.any((found if step is None else np.rint(found / step) * step) == answer):
                return True
        return False


def uniforms(cells: np.ndarray) -> np.ndarray:
    return (cells + 0.5) * 2.0**-52


def sample_line(G, c, ridge, gamma) -> Line:
    """The last coordinate of a posterior sample, in the double arithmetic of a triangular solve."""
    L = cholesky(G.astype(float) + ridge * np.eye(len(c)), lower=True)
    centre = solve_triangular(L, c.astype(float), lower=True)[-1]
    root = math.sqrt(gamma)
    return Line(
        lambda z: (centre + z / root) / L[-1, -1], lambda theta: (theta * L[-1, -1] - centre) * root
    )


def eigenvalue_line(G, spread) -> Line:
    smallest = np.linalg.eigvalsh(G.astype(float))[0]
    return Line(lambda z: smallest + spread * z, lambda noisy: (noisy - smallest) / spread)


def solution_line(solution: float, rate: float) -> Line:
    """A ridge solution of one coordinate."""
    return Line(
        lambda e: solution + e / rate, lambda theta: (theta - solution) * rate, normal=False
    )


def minimiser_line(problem, scale: float, minimise) -> Line:
    """The minimiser for a noise b of one coordinate, to all digits of a double, without the noise
    that covers them.
    """
    tolerance = 8 * problem.error

    def solved(b: np.ndarray) -> np.ndarray:
        return np.array(
            [float(minimise(replace(problem, tilt=np.array([x])), tolerance)[0]) for x in b * scale]
        )

    def noise_in(theta: float) -> float:
        return float(tilt_at(problem, np.array([theta]))[0]) / scale

    return Line(solved, noise_in, normal=False, window=SOLVED)


def lines(case, table) -> dict[str, Line]:
    """What an attacker knows of the way from noise to every published number, if the table is this
    one.
    """
    estimator, plan, rows = case.prepared(table)
    found: dict[str, Line] = {}
    minimise = ridge_objective.newton.minimise

    def at_problem(problem, tolerance, *start):
        totals = ridge_objective.BudgetTotals.of(plan.budgets.kinds)
        if case.classes:
            scale = 2 / plan.noise["rate"]
        else:
            scale = ridge_recipe.choose_small_budget_threshold(totals.total)
        found["theta"] = minimiser_line(problem, scale, minimise)
        return minimise(problem, tolerance, *start)

    def at_sum(self, values):
        if case.module is ridge_output and not found:
            found["theta"] = solution_line(float(values[0]), plan.noise["rate"])
        return no_grid(self, values)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(posterior_mechanism, "compute_missing_ridge", lambda *_: PUBLISHED_RIDGE)
        original = posterior_mechanism.draw_sample
        smallest = posterior_mechanism.add_eigenvalue_noise
        patch.setattr(
            posterior_mechanism,
            "draw_sample",
            lambda *a: found.update(theta=sample_line(*a)) or original(*a),
        )
        patch.setattr(
            posterior_mechanism,
            "add_eigenvalue_noise",
            lambda *a: found.update(noisy_eigenvalue=eigenvalue_line(*a)) or smallest(*a),
        )
        patch.setattr(ridge_objective.newton, "minimise", at_problem)
        patch.setattr(AnswerGrid, "nearest", at_sum)
        if case.module is ridge_output:
            patch.setattr(continuous, "draw_l2", lambda rate, d: np.zeros(d, dtype=object))
        estimator.release_under(plan, rows)
    return found


#: The λ of an adaptive sample follows from a published number; the search is for samples with this
#: one.
PUBLISHED_RIDGE = 120.0
#: Answers of which a number hangs on one random number: those of one coordinate, and samples of
#: any.
SEARCHED = [case for case in FLOATING if case.name.endswith(", 1") or "posterior" in case.name]
every_searched = pytest.mark.parametrize("case", SEARCHED, ids=repr)


def answers(case, monkeypatch, size):
    """Published numbers of real releases on the first table, by name: (numbers, step)."""
    estimator, plan, rows = case.prepared(case.tables()[0])
    steps = plan.grid.to_dict()
    seen = {}
    monkeypatch.setattr(posterior_mechanism, "compute_missing_ridge", lambda *_: PUBLISHED_RIDGE)
    for _ in range(size):
        with watched(monkeypatch) as rounded:
            value = estimator.release_under(plan, rows).value
        seen.setdefault("theta", []).append(rounded[-1][1][-1])
        if "noisy_eigenvalue" in value:
            seen.setdefault("noisy_eigenvalue", []).append(value["noisy_eigenvalue"])
    named = {"theta": "answer_step", "noisy_eigenvalue": "eigenvalue_step"}
    return {name: (numbers, steps[named[name]]) for name, numbers in seen.items()}


def found_under(numbers, line: Line, step: float | None) -> int:
    return sum(line.can_be(number, step) for number in numbers)


@every_searched
def test_the_old_sampler_is_caught(case):
    """All its answers are found under the true table, and not all under the neighbour: fewer than
    80 % of 200.
    """
    true, neighbour = (lines(case, table) for table in case.tables())
    assert set(true) == ({"theta", "noisy_eigenvalue"} if "adaptive" in case.name else {"theta"})
    for name, line in true.items():
        if line.window == SOLVED:
            size = FEW
        else:
            size = MANY
        numbers = line.old_answers(size)
        assert found_under(numbers, line, None) == size
        if size == FEW:
            assert not all(
                neighbour[name].can_be(number, None) for number in numbers
            )  # the first miss will do
        else:
            assert found_under(numbers, neighbour[name], None) < 0.8 * size


@every_searched
def test_the_search_finds_every_answer_under_both_tables_alike(case, monkeypatch):
    """As many under the neighbour as under the true table: all."""
    size = 25
    for name, (numbers, step) in answers(case, monkeypatch, size).items():
        for table in case.tables():
            assert found_under(numbers, lines(case, table)[name], step) == size
