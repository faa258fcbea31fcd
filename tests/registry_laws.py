"""Laws and audits in terms of the registry: whatever is listed there is held to them.

What an estimator is given follows from what it reads: a column of numbers, a label and features, or
classes and features. What tests/cases.py knows about single estimators is asked besides.
"""

from __future__ import annotations

import math
import pickle
import struct
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

import sottovoce as sv
from measurement import lower_bound_on_loss
from sottovoce.budgets import Budgets
from sottovoce.estimators import _BUILT_IN, Question
from sottovoce.schema import Column

#: All but regressions on public features, whose plans need the features, and reports, whose plans
#: need the questions; their laws and audits are in tests/estimators: test_labels.py, test_report.py
#: and test_report_audits.py.
#: Means by group are asked with the class of the mean, and are a question of their own here.
GROUPED = replace(
    next(one for one in _BUILT_IN if one.name == "mean"), name="mean by group", reads="table"
)


def has_laws(question: Any) -> bool:
    """Whether it can be planned without features."""
    takes = set(question.load_class()().get_params())
    return bool({"bounds", "by"} & takes) and "label_bounds" not in takes


QUESTIONS = [
    *(one for one in _BUILT_IN if has_laws(one)),
    GROUPED,
]
LOW = 0.0
HIGH = 10.30001
#: A value that is in the data and nowhere else.
SECRET = 7.12345678912
NUMBERS = {
    "u": Column("number", 0.0, 1.0),
    "v": Column("number", 0.0, 1.0),
}
BOUNDS: dict[str, Any] = {
    "column": (LOW, HIGH),
    "regression": sv.Schema({**NUMBERS, "y": Column("number", LOW, HIGH)}, label="y"),
    "classes": sv.Schema({**NUMBERS, "y": Column("factor", levels=("no", "yes"))}, label="y"),
}
BOUNDS["table"] = sv.Schema(
    {
        "u": Column("number", 0.0, 1.0),
        "y": Column("number", LOW, HIGH),
        "g": Column("factor", levels=("few", "many")),
    },
    label="y",
)
#: What questions about tables are asked besides.
ASKED = {"count": {"by": "g"}, "mean by group": {"by": "g"}, "covariance": {"columns": ["u", "y"]}}
#: Budgets of the people, one row each; the first is the strictest and the last the loosest.
GRANTS = np.array([0.1] * 8 + [0.5] * 8 + [2.0] * 8)
STRICTEST = 0
LOOSEST = len(GRANTS) - 1
#: As if nobody needed protection.
UNLIMITED = 1e6
DRAWS = 4000


def make(question: Question) -> Any:
    """Returns the estimator with the parameters that doors pass where nothing is given."""
    kind = question.load_class()
    given = question.complete_parameters(ASKED.get(question.name, {}))
    if "bounds" in kind().get_params():
        return kind(**given, bounds=BOUNDS[question.reads])
    return kind(**given, schema=BOUNDS[question.reads])


def make_data(question: Question, rows: int, person: int = -1, high: bool = True) -> tuple:
    """Returns data of so many rows, in which one person has the highest or the lowest values."""
    place = np.linspace(0.0, 1.0, rows)
    place[person] = float(high)
    if question.reads == "column":
        values = LOW + (HIGH - LOW) * place
        values[rows // 2] = SECRET
        return (values,)
    if question.reads == "table":
        y = LOW + (HIGH - LOW) * place
        y[rows // 2] = SECRET
        group = np.where(place > 0.5, "many", "few")
        return (pa.table({"u": place, "y": y, "g": group}),)
    features = {"u": place, "v": np.cos(9 * place) ** 2}
    if question.reads == "classes":
        # No line between them separates the classes: without noise there is one best function.
        crossed = place + 0.5 * np.sin(37 * np.arange(rows)) > 0.5
        crossed[person] = high
        y: Any = np.where(crossed, "yes", "no")
    else:
        y = LOW + (HIGH - LOW) * place
        y[rows // 2] = SECRET
    return pa.table(features), y


def fit(question: Question, epsilon: Any, rows: int) -> Any:
    return make(question).fit(*make_data(question, rows), epsilon=epsilon)


def read_number(release: Any) -> float:
    """Returns one number of a release: the first value, or a model's prediction at a corner."""
    value = release.value
    if not isinstance(value, dict):
        return float(np.ravel(value)[0])
    if "by" in release.parameters:
        return float(value["noisy"][1])  # a number that every person's row moves
    if "models" in value:
        value = next(iter(value["models"].values()))
    return float(value["intercept"] + sum(value["coefficients"].values()))


def read_table_numbers(release: Any) -> list[float]:
    """Returns the answers of a table, −1 where there are too few rows to say; of a matrix, its
    entries.
    """
    first = next(iter(release.value.values()))
    if isinstance(first, dict):
        return [number for line in first.values() for number in line.values()]
    return [-1.0 if number is None else number for number in first]


def check_that_the_plan_is_what_is_charged(question: Question) -> None:
    plan = make(question).plan(epsilon=GRANTS)
    fitted = fit(question, GRANTS, len(GRANTS))
    assert np.array_equal(plan.guarantee.units, fitted.guarantee_.units)
    assert plan.digest == fitted.release_.certificate.plan_digest


def check_that_charges_are_within_grants(question: Question) -> None:
    for grants in (GRANTS, np.geomspace(1e-4, 5, 17), np.full(5, 0.7)):
        plan = make(question).plan(epsilon=grants)
        budgets = Budgets.of(grants)
        assert plan.guarantee.units.dtype == np.int64
        assert np.all(plan.guarantee.units <= budgets.by_person(budgets.kinds.epsilon))


def check_that_the_strictest_gets_their_own(question: Question) -> None:
    charges = make(question).plan(epsilon=GRANTS).charges
    assert 0 < charges[0] <= GRANTS.min() < GRANTS.mean()
    assert charges[0] == charges.min()


def check_that_equal_budgets_make_one_charge(question: Question) -> None:
    plan = make(question).plan(epsilon=0.7, rows=30)
    assert len(np.unique(plan.guarantee.units)) == 1


def check_that_raising_one_budget_harms_nobody(question: Question) -> None:
    for who in (0, len(GRANTS) // 2, len(GRANTS) - 1):
        raised = GRANTS.copy()
        raised[who] *= 3
        before = make(question).plan(epsilon=GRANTS)
        after = make(question).plan(epsilon=raised)
        assert np.all(after.charges <= raised)
        assert _weigh(after, who) >= _weigh(before, who) * (1 - 1e-9)


def check_that_association_lowers_no_guarantee(question: Question) -> None:
    """Who is allowed for by weights that are more equal is charged no more than without it.

    Weights are whole numbers, so that a charge may be up to a ten-thousandth above.
    """
    if "association" not in make(question).get_params():
        return
    for grants in (GRANTS, np.repeat([0.1, 0.5, 1.0], [680, 860, 460])):
        before = make(question).set_params(association=0).plan(epsilon=grants)
        for association in (0.02, 0.2, 1.0):
            after = make(question).set_params(association=association).plan(epsilon=grants)
            assert np.all(after.charges <= grants)
            assert np.all(after.charges <= before.charges * (1 + 1e-4))


def check_that_doubling_budgets_raises_no_planned_error(question: Question) -> None:
    """With the bias that is possible: weights that are more equal trade noise for less of it.

    What a plan expects of a quantile is right to a thousandth. Models buy more things with more
    budget, and what they expect is an average over tables; their errors are measured in
    tests/laws/test_consistency.py.
    """
    if question.reads not in ("column", "table"):
        return
    for grants in (GRANTS, np.repeat([0.01, 0.2, 1.0], [1020, 1290, 690])):
        before = math.inf
        for factor in 2.0 ** np.arange(-2, 7):
            errors = make(question).plan(epsilon=grants * factor).errors
            after = max(math.hypot(error.total, error.bias) for error in errors)
            assert after <= before * (1 + 1e-3)
            before = after


def _weigh(plan: Any, who: int) -> float:
    return float(plan.budgets.by_person(plan.weights.person)[who] / plan.weights.total)


def check_that_noise_vanishes_without_need(question: Question) -> None:
    """Answers agree where nobody needs protection: they are the estimate without noise.

    Noise that parameters set, and budgets do not, stays (a posterior sample of a given
    concentration).
    """
    rows = 400
    needed = make(question).plan(epsilon=0.1, rows=rows)
    free = make(question).plan(epsilon=UNLIMITED, rows=rows)
    if needed.noise == free.noise:
        return
    unit = 1.0 if question.reads == "classes" else HIGH - LOW
    answers = [read_number(fit(question, UNLIMITED, rows).release_) for _ in range(12)]
    # The noisiest, a sample of a posterior, varies by a third of this: 1e-15 that twelve do more.
    assert np.std(answers) <= unit / 50
    # At this budget no answer lies at an end of its range, where many would be alike: the likeliest
    # number has a chance of .04, so that six agree with one below 1e-8.
    noisy = [read_number(fit(question, 0.1, rows).release_) for _ in range(6)]
    assert np.ptp(noisy) > 0


def check_that_nothing_without_noise_is_kept(question: Question) -> None:
    """Whatever a fitted estimator holds follows from its release, and its plan, alone."""
    fitted = fit(question, GRANTS, len(GRANTS))
    again = sv.load(sv.Release.from_json(fitted.release_.to_json()))
    given = set(fitted.get_params(deep=False))
    learnt = set(vars(fitted)) - given - {"guarantee_", "feature_names_in_"}
    assert learnt <= set(vars(again))
    for name in learnt - {"release_", "_recoding"}:
        own, read = getattr(fitted, name), getattr(again, name)
        # NaN where there are too few rows to say; words, as of classes, cannot be NaN
        numbers = np.asarray(own).dtype.kind == "f"
        assert np.array_equal(own, read, equal_nan=numbers), name
    stored = pickle.dumps(fitted)
    assert struct.pack(">d", SECRET) not in stored
    assert struct.pack("<d", SECRET) not in stored
    assert str(SECRET) not in repr(fitted) + fitted.release_.to_json()


LAWS = [
    check_that_the_plan_is_what_is_charged,
    check_that_charges_are_within_grants,
    check_that_the_strictest_gets_their_own,
    check_that_equal_budgets_make_one_charge,
    check_that_raising_one_budget_harms_nobody,
    check_that_association_lowers_no_guarantee,
    check_that_doubling_budgets_raises_no_planned_error,
    check_that_noise_vanishes_without_need,
    check_that_nothing_without_noise_is_kept,
]


def measure_loss(question: Question, person: int, draws: int = DRAWS) -> tuple[float, float]:
    """Returns a lower bound on what one person loses, and what they are charged.

    The bound is right except with probability 4e-8 (two directions of 2e-8). Answers come from the
    real mechanism, on two tables that differ in this person's row.
    """
    estimator = make(question)
    answers = []
    for high in (True, False):
        data = make_data(question, len(GRANTS), person, high)
        rows = estimator.read_arrays(*data, epsilon=GRANTS, groups=None)
        plan = estimator.plan_for(rows.budgets, rows)
        numbers = [read_number(estimator.release_under(plan, rows)) for _ in range(draws)]
        answers.append(np.array(numbers))
    one, two = answers
    charge = float(plan.charges[person])
    return max(lower_bound_on_loss(one, two), lower_bound_on_loss(two, one)), charge


def audit(
    question: Question, draws: int = DRAWS, people: tuple[int, ...] = (STRICTEST, LOOSEST)
) -> None:
    """Refuses a question whose strictest or loosest person loses more than they are charged."""
    for person in people:
        loss, charge = measure_loss(question, person, draws)
        assert loss <= charge
