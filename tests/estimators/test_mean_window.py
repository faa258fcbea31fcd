"""Means in a bought window: nobody pays more than planned, whatever window is chosen; the answer
stays a mean; narrow columns gain and the plan says how much.

The choice is audited with its exact law, over every cell that the strictest and the loosest person
may move to: no chance is involved. Statistical tests state both of their error rates.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from scipy.stats import binom

import sottovoce as sv
from sottovoce import errors, units
from sottovoce.data.engine import open_engine
from sottovoce.estimators import mean, mean_window
from sottovoce.estimators.mean_window import ChosenWindow, WindowPurchase

N = 40
GRANTS = np.repeat([30.0, 45.0], N // 2)
PEOPLE = np.arange(N) // 2  # with two rows each
NARROW = 0.37 + 0.01 * np.sin(np.arange(N) * 1.7)
#: Somebody's rows lie in cells of the histogram; these are in every part of every core.
PLACES = np.linspace(0, 1, 129)


def bought(question, epsilon, groups=None) -> WindowPurchase:
    plan = question.plan_for(sv.Budgets.of(epsilon, groups, len(epsilon)))
    assert isinstance(plan.bought, WindowPurchase)
    return plan.bought


def compute_log_law(lines: np.ndarray, scale: float) -> np.ndarray:
    """Returns log P of every candidate by permute-and-flip, a line of scores at a time:
    P(r) = e_r·∫₀¹ Π_{s≠r} (1 − u·e_s) du, a polynomial.
    """
    gaps = (lines - lines.min(axis=1, keepdims=True)) / scale
    nodes, mass = np.polynomial.legendre.leggauss(lines.shape[1] // 2 + 1)
    total = np.zeros(gaps.shape)
    for u, weight in zip((nodes + 1) / 2, mass / 2, strict=True):
        factors = np.log1p(-u * np.exp(-gaps))
        total += weight * np.exp(factors.sum(axis=1, keepdims=True) - factors)
    return np.log(total) - gaps


def measure_choice(purchase: WindowPurchase, row: int, groups=None) -> tuple[float, float]:
    """Returns the largest log-ratio of any window when one person's rows move anywhere, and what
    they are charged for it.
    """
    budgets = sv.Budgets.of(GRANTS, groups, N)
    kinds = budgets.row_codes()
    weight = purchase.weights.row[kinds]
    cells = purchase.grid.integers(NARROW.copy()).astype(np.int64)
    mine = np.arange(N) == row if groups is None else groups == groups[row]
    rest = np.bincount(cells[~mine], weight[~mine], minlength=purchase.grid.cells + 1)
    lines = []
    for place in PLACES:
        own = int(purchase.grid.integers(np.array([place]))[0])
        histogram = rest.astype(np.int64)
        histogram[own] += int(weight[mine].sum())
        lines.append(purchase.score(histogram))
    lines = np.unique(np.array(lines), axis=0)
    logs = compute_log_law(lines, purchase.scale)
    loss = float((logs.max(axis=0) - logs.min(axis=0)).max())
    return loss, float(units.to_epsilon(purchase.charges)[kinds[row]])


@pytest.mark.parametrize("groups", [None, PEOPLE], ids=["rows", "people"])
@pytest.mark.parametrize("row", [0, N - 1], ids=["strictest", "loosest"])
def test_no_window_tells_more_than_was_charged_for_it(row, groups):
    purchase = bought(sv.Mean(bounds=(0, 1), scale="bought"), GRANTS, groups)
    loss, charge = measure_choice(purchase, row, groups)
    assert 0.5 * charge < loss <= charge * (1 + 1e-9)


def test_a_choice_at_half_the_scale_is_caught(monkeypatch):
    monkeypatch.setattr(WindowPurchase, "scale", property(lambda self: self.weights.loudest))
    purchase = bought(sv.Mean(bounds=(0, 1), scale="bought"), GRANTS)
    loss, charge = measure_choice(purchase, N - 1)
    assert loss > charge * 1.1


def test_weights_that_are_counted_twice_are_caught(monkeypatch):
    counted = WindowPurchase.score
    monkeypatch.setattr(
        WindowPurchase, "score", lambda self, histogram: counted(self, 2 * histogram)
    )
    purchase = bought(sv.Mean(bounds=(0, 1), scale="bought"), GRANTS)
    loss, charge = measure_choice(purchase, N - 1)
    assert loss > charge * 1.1


def find_overspent(question) -> list[int]:
    """Returns the windows in which somebody moves the sum, or the squares, by more than the noise
    was calibrated for.
    """
    plan = question.plan_for(sv.Budgets.of(GRANTS))
    found = []
    for which in range(len(plan.bought.level)):
        inside = mean.move_plan(plan, plan.bought.place(which))
        for own, of_bounds in (
            (inside.grid.values, plan.grid.values),
            (inside.bought.grid, plan.bought.moment.grid),
        ):
            reached = own.integers(np.array([-1e300, own.low, own.high, 1e300]))
            if reached.min() < 0 or reached.max() > min(own.cells, of_bounds.cells):
                found.append(which)
    return found


@pytest.mark.parametrize("bounds", [(0, 1), (-3, 7.1), (1e9, 1e9 + 0.3), (-1e-300, 1e-300)])
def test_in_every_window_people_move_the_sum_by_no_more_than_in_the_bounds(bounds):
    question = sv.Mean(bounds=bounds, scale="bought", interval_share=0.02)
    assert find_overspent(question) == []
    plan = question.plan_for(sv.Budgets.of(GRANTS))
    for which in range(len(plan.bought.level)):
        window = plan.bought.place(which)
        assert bounds[0] <= window.low < window.high <= bounds[1]


def test_a_window_on_the_grid_of_the_bounds_is_caught(monkeypatch):
    def forget_the_cells(self, grid):
        return replace(grid, low=self.low, high=self.high, exponent=grid.exponent - self.level - 1)

    monkeypatch.setattr(ChosenWindow, "shrink", forget_the_cells)
    assert find_overspent(sv.Mean(bounds=(0, 1), scale="bought", interval_share=0.02))


def test_charges_are_within_grants_and_do_not_depend_on_the_window():
    question = sv.Mean(bounds=(0, 1), scale="bought", interval_share=0.05)
    plan = question.plan(GRANTS)
    assert (plan.charges <= GRANTS).all()
    stages = (plan.bought.charges, plan.bought.moment.charges)
    assert all((one > 0).all() for one in stages)
    planned = {
        question.fit(values, epsilon=GRANTS).release_.certificate.plan_digest
        for values in (NARROW, np.linspace(0, 1, N))
    }
    assert planned == {plan.digest}
    assert float(question.guarantee_.epsilon.max()) == float(plan.charges.max())


@pytest.mark.parametrize(
    "draw",
    [
        lambda rng: rng.exponential(0.02, 300),
        lambda rng: np.minimum(0.01 * rng.pareto(1.5, 300), 1.0),
        lambda rng: (rng.random(300) < 0.02) * 1.0,
        lambda rng: 0.5 + 0.001 * rng.normal(size=300),
    ],
    ids=["exponential", "Pareto", "two far values", "narrow"],
)
def test_with_much_budget_it_is_the_mean(draw):
    """With c = 9e4 units one person outside a core is worth 300 units against at most 27 of reward:
    somebody is clipped with a chance below e^-130.
    """
    values = np.clip(draw(np.random.default_rng()), 0, 1)
    answer = sv.Mean(bounds=(0, 1), scale="bought").fit(values, epsilon=10_000.0)
    # Laplace noise of scale 3.5e-7 is beyond 1e-5 with a chance of e^-28.
    assert answer.value_ == pytest.approx(values.mean(), abs=1e-5)


def compute_law(purchase: WindowPurchase, cdf) -> np.ndarray:
    """Returns the chances of all windows by permute-and-flip, of a column with this law."""
    first, last = purchase.cores
    inside = cdf(last / purchase.grid.cells) - cdf(first / purchase.grid.cells)
    inside[-1] = 1.0
    scores = ((1 - inside) * purchase.units - mean_window.REWARD * purchase.level) * 2**20
    lines = np.rint(scores).astype(np.int64)
    chances = np.exp(compute_log_law(lines[None, :], 2.0 * 2**20))[0]
    assert sum(chances) == pytest.approx(1.0, abs=1e-6)
    return chances


@pytest.mark.parametrize(("people", "spread"), [(500, 0.01), (500, 0.03), (1500, 0.1)])
def test_the_planned_window_is_that_of_the_exact_law(people, spread):
    """The plan uses the law of the exponential mechanism for that of permute-and-flip."""
    from scipy.stats import norm

    purchase = bought(sv.Mean(bounds=(0, 1), scale="bought", spread=spread), np.ones(people))
    chances = compute_law(purchase, norm(0.5, spread).cdf)
    exact = math.sqrt(float(chances @ 0.25**purchase.level))
    planned, _ = purchase.predict(spread)
    assert exact == pytest.approx(planned, rel=0.15)


@pytest.mark.parametrize("place", [0.5, 0.37, 0.453, 0.2345, 0.81])
def test_the_error_of_a_narrow_column_is_what_was_asked_for(place):
    """By the exact law: 5.4e-4 of the range where the bounds would give 3.0e-3."""
    from scipy.stats import norm

    plan = sv.Mean(bounds=(0, 1), scale="bought").plan_for(sv.Budgets.of(np.ones(500)))
    chances = compute_law(plan.bought, norm(place, 0.01).cdf)
    noise = plan.noise["scale"] * 0.5**plan.bought.level
    assert math.sqrt(2 * float(chances @ noise**2)) < 5.4e-4


def draw_answers(question, make, epsilon, runs):
    """Returns answers and intervals about tables that are drawn anew."""
    budgets = sv.Budgets.of(epsilon)
    plan = question.plan_for(budgets)
    answers = []
    for _ in range(runs):
        values = make()
        rows = question.read_arrays(values, epsilon=budgets, groups=None)
        answers.append((values, question.release_under(plan, rows)))
    return plan, answers


RUNS = 150


def test_a_narrow_column_gains_as_planned_and_its_interval_covers():
    """n = 500, standard deviation 1 % of the range, everybody ε = 1.

    By the exact law an answer is off by more than 5e-4 with a chance of at most .25: 75 of 150 or
    more are with one below 1e-10. Without a window it is off by less with a chance of .22: 75 of
    150 or more are with one below 1e-14. An interval covers with a probability of at least .95:
    fewer than 122 of 150 do with one below 1e-8. A tenth of its reach covers less than half of the
    time, and 122 of 150 times with a chance below 1e-14.
    """
    rng = np.random.default_rng()
    question = sv.Mean(bounds=(0, 1), scale="bought")

    def make():
        return np.clip(0.37 + 0.01 * rng.normal(size=500), 0, 1)

    _, answers = draw_answers(question, make, np.ones(500), RUNS)
    errors_ = np.array([abs(release.value - values.mean()) for values, release in answers])
    assert (errors_ > 5e-4).sum() < RUNS // 2
    least = int(binom.ppf(1e-8, RUNS, 0.95))
    wide = narrow = 0
    for _, release in answers:
        low, high = sv.load(release).interval()
        wide += low <= 0.37 <= high
        narrow += abs(release.value - 0.37) <= (high - low) / 20
    assert wide >= least
    assert narrow < least


def test_the_release_says_the_window_and_its_error():
    question = sv.Mean(bounds=(0, 1), scale="bought")
    release = question.fit(np.full(1000, 0.7), epsilon=1.0).release_
    low, high = release.bought["window"]
    assert low <= 0.7 <= high
    width = 0.5 ** release.bought["level"]
    assert high - low == width
    on_bounds = question.plan(np.ones(1000)).noise["scale"]
    assert release.noise["scale"] == pytest.approx(on_bounds * width, rel=1e-9)
    assert "beyond the window" in release.intervals["of"]
    assert release.expected_error == pytest.approx(math.sqrt(2) * release.noise["scale"], rel=0.01)
    assert "beyond the window" in release.error_parts["assumed"]
    again = sv.load(sv.Release.from_json(release.to_json()))
    assert again.interval() == question.interval()
    assert again.scale == "bought"


def test_without_enough_budget_nothing_is_bought_and_the_plan_says_so():
    plan = sv.Mean(bounds=(0, 1), scale="bought").plan(np.ones(300))
    assert "No window is bought" in plan.describe()
    same = sv.Mean(bounds=(0, 1)).plan(np.ones(300))
    assert plan.noise == same.noise
    assert plan.charges.tolist() == same.charges.tolist()


def test_plans_without_a_window_are_as_they_were():
    assert (
        sv.Mean(bounds=(0, 1), scale="bounds").plan(np.ones(600)).digest
        == sv.Mean(bounds=(0, 1)).plan(np.ones(600)).digest
    )


@pytest.mark.parametrize("kind", ["arrow", "duckdb"])
def test_every_engine_counts_the_same_windows(kind, tmp_path):
    purchase = bought(sv.Mean(bounds=(0, 1), scale="bought"), GRANTS)
    question = sv.Mean(bounds=(0, 1), scale="bought")
    rows = question.read_arrays(NARROW, epsilon=GRANTS, groups=None)
    counted = purchase.count(rows, None)
    kinds = sv.Budgets.of(GRANTS).row_codes()
    table = pa.table({rows.value: NARROW[::-1], rows.owner.columns[0]: kinds[::-1]})
    if kind == "duckdb":
        import duckdb

        table = duckdb.connect().from_arrow(table)
    assert (purchase.count(replace(rows, engine=open_engine(table)), None) == counted).all()


@pytest.mark.parametrize(
    "arguments", [{"scale": "guessed"}, {"scale": 3}, {"scale": "bought", "by": {"g": ["a", "b"]}}]
)
def test_other_scales_and_groups_are_refused(arguments):
    with pytest.raises(errors.InvalidParameter) as refused:
        sv.Mean(bounds=(0, 1), **arguments).validate()
    assert refused.value.parameter == "scale"


@pytest.mark.parametrize(
    ("people", "options", "bought_by_plan"),
    [
        (500, {"spread": 0.01}, True),
        (500, {"spread": 0.01, "scale": "bounds"}, False),
        (500, {}, False),
        (500, {"spread": 0.1}, False),
        (100, {"spread": 0.01}, False),
        (10_000, {"spread": 0.01}, False),
        (10_000, {"spread": 0.003}, True),
    ],
)
def test_a_plan_buys_a_window_where_the_declared_spread_allows_it(people, options, bought_by_plan):
    plan = sv.Mean(bounds=(0, 1), **options).plan(np.ones(people))
    assert ("window" in plan.noise) is bought_by_plan
    assert ("declared spread" in plan.describe()) is bought_by_plan
    assert (plan.charges <= 1).all()


def test_a_release_of_a_window_that_the_plan_bought_is_read_back():
    values = 0.37 + 0.01 * np.sin(np.arange(600) * 1.7)
    mean = sv.Mean(bounds=(0, 1), spread=0.01).fit(values, epsilon=1.0)
    release = sv.Release.from_json(mean.release_.to_json())
    again = sv.load(release)
    assert again.value_ == mean.value_
    assert again.interval(0.9) == mean.interval(0.9)
    lost = sv.audit.per_instance(release, values, epsilon=1.0)
    assert (np.asarray(lost.epsilon) <= 1).all()


@pytest.mark.parametrize("seed", range(20))
def test_clipping_moves_no_mean_by_more_than_its_spread_allows(seed):
    """The lemma, for windows whose core holds the share 1 − q of values of any kind."""
    rng = np.random.default_rng(seed)
    n = 400
    values = np.clip(0.4 + rng.choice([0.002, 0.01, 0.05]) * rng.standard_t(2, n), 0, 1)
    values[: rng.integers(0, 40)] = rng.uniform()
    spread = float(values.std())
    purchase = bought(sv.Mean(bounds=(0, 1), scale="bought"), np.full(n, 10.0))
    first, last = purchase.cores
    cells = purchase.grid.integers(values.copy())
    for which in rng.choice(len(purchase.level), 60):
        inside = np.mean((cells >= first[which]) & (cells <= last[which]))
        window = purchase.place(int(which))
        moved = abs(float(np.mean(np.clip(values, window.low, window.high))) - values.mean())
        if inside > 0:
            width = window.high - window.low
            rounding = 2 / purchase.grid.cells
            assert moved <= spread**2 / (inside * (width - 4 * rounding)) + 1e-12


@pytest.mark.parametrize(("people", "spread"), [(500, 0.01), (2000, 0.01), (10_000, 0.003)])
@pytest.mark.parametrize("share", [0.1, 0.02, 0.005, 0.001])
def test_no_column_as_wide_as_declared_is_worse_off(people, spread, share):
    """Some of the values as far away as the spread allows: the exact law of the window, noise and
    clipping together, against the bounds.
    """
    away = spread / math.sqrt(share * (1 - share))
    purchase = bought(sv.Mean(bounds=(0, 1), spread=spread), np.ones(people))
    plain = sv.Mean(bounds=(0, 1), spread=spread, scale="bounds").plan(np.ones(people))
    chances = compute_law(
        purchase, lambda x: (x >= 0.37) * (1 - share) + (x >= 0.37 + away) * share
    )
    noise = sv.Mean(bounds=(0, 1), spread=spread).plan(np.ones(people)).noise["scale"]
    squares = []
    for which in range(len(chances)):
        window = purchase.place(which)
        ends = np.clip([0.37, 0.37 + away], window.low, window.high)
        moved = float(ends @ [1 - share, share]) - 0.37 - share * away
        squares.append(moved**2 + 2 * (noise * 0.5**window.level) ** 2)
    assert float(chances @ squares) < 2 * plain.noise["scale"] ** 2
