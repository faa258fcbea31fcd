# SPDX-License-Identifier: Apache-2.0
"""How several questions share everybody's ε (docs/theory/reports.md).

symbol    name
g_l       what person l grants, whole units
α_j       the share of question j, whole millionths; Σα_j ≤ 1
e_j(α)    expected error of question j if everybody gives it the share α of what they grant
s_j       what the error is measured by: how far what is asked about is taken to spread

Shares are chosen from public numbers: budgets, bounds, and the errors that plans expect. By default
the largest e_j(α_j)/s_j is made as small as it can be, which makes all of them equal. A question
with a wanted error gets the smallest share at which its plan expects no more; the others share what
is left. Whoever wants more than the budgets allow is told how much that would cost.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from numbers import Real
from typing import Any

import numpy as np

from sottovoce.arrays import Floats
from sottovoce.budgets import BudgetGroups, Budgets
from sottovoce.errors import BudgetExceeded, InvalidParameter, SottovoceError
from sottovoce.plan import Plan, format_error
from sottovoce.units import format_percent

#: Shares are whole numbers of a millionth.
WHOLE = 10**6
#: No share is smaller, so that nobody's rounds to nothing where the whole does not.
SMALLEST = 100
#: At how many shares, evenly apart on a logarithmic scale, each expected error is computed.
NODES = 9
#: How often a bound on the largest error is halved, and shares are corrected by what plans say.
HALVINGS = 60
CORRECTIONS = 3
#: The standard deviation of a number anywhere between 0 and 1, and what is taken as that of a
#: label, as a share of its range.
UNIFORM_DEVIATION = 1 / math.sqrt(12)
SPREAD = 1 / 10
#: A wanted error is met where the plan's is not above it by more than this.
MET = 1 + 1e-9

#: From a share in millionths to the expected error of a question, over what it is measured by.
ErrorCurve = Callable[[int], float]


def divide_budgets(budgets: Budgets, shares: Sequence[int]) -> list[Budgets]:
    """Returns the same people with a share each of what everybody grants, in whole units.

    Everybody's parts add up to their whole budget where the shares add up to a million, and to no
    more than that part of it, rounded down, where they add up to less.
    """
    usable = all(isinstance(share, int) and share >= 0 for share in shares)
    if not usable or sum(shares) > WHOLE:
        raise BudgetExceeded(
            "Shares of a budget add up to more than all of it, or are not whole millionths.",
            "Nobody is ever charged more than they granted.",
            "Nothing was read and nobody was charged; please report it with the questions.",
            parameter="shares",
        )
    # ⌊g·C/10⁶⌋ for the running totals C of the shares, in parts that int64 holds: differences of
    # these are whole numbers, and add up to the last one.
    whole, rest = np.divmod(budgets.kinds.epsilon, WHOLE)
    reached = [whole * total + rest * total // WHOLE for total in accumulate(shares)]
    amounts = np.diff(np.array([np.zeros_like(whole), *reached]), axis=0)
    return [
        replace(budgets, kinds=BudgetGroups(part, budgets.kinds.rows, budgets.kinds.people))
        for part in amounts
    ]


def find_worst_error(plan: Plan) -> float:
    """Returns the largest of the errors that a plan expects, in its own unit."""
    return float(max(error.total for error in plan.errors))


def measure_by_spread(plan: Plan) -> float:
    """Returns what an error is measured by where the estimator does not say: how far what is asked
    about spreads from row to row, in the unit of the error.

    That is the spread that was guessed of a column, a tenth of the declared range of a label, and
    of a rank, which lies anywhere between 0 and 1, the deviation of a uniform number.
    """
    if plan.error_unit.startswith("as a share"):
        return UNIFORM_DEVIATION
    if "features" not in plan.parameters and "spread" in plan.parameters:
        return float(plan.parameters["spread"])
    limits = plan.parameters.get("label", plan.parameters.get("bounds"))
    if limits is None or not plan.error_unit.startswith("in units of"):
        return 1.0
    low, high = limits
    return (float(high) - float(low)) * SPREAD


def normalise_shares(given: Mapping[str, float]) -> dict[str, int]:
    """Returns shares that were given as positive numbers in millionths that add up to a million."""
    names = list(given)
    numbers = np.array([given[name] for name in names], dtype=np.float64)
    return dict(zip(names, _round_shares(numbers / numbers.sum(), WHOLE), strict=True))


def choose_shares(curves: Mapping[str, ErrorCurve], whole: int = WHOLE) -> dict[str, int]:
    """Returns shares that add up to ``whole`` millionths and make the largest of the errors as
    small as it can be.

    Errors are computed at a few shares, and between them taken as straight lines between
    logarithms; then the shares are corrected by the errors that plans expect at them.
    """
    names = list(curves)
    if len(names) == 1:
        return {names[0]: whole}
    smallest = min(SMALLEST, whole // len(names))
    grid = np.unique(np.geomspace(smallest, whole, NODES).astype(np.int64))
    logarithms = np.log(grid)
    errors = np.array([[_log_error(curves[name], int(node)) for node in grid] for name in names])
    # What a plan expects falls with the share but for small steps of its grids.
    falling = np.minimum.accumulate(errors, axis=1)

    def find_shares(bound: float) -> Floats:
        """The smallest shares at which no error is above the bound, as parts of the whole."""
        found = np.array([np.interp(-bound, -line, logarithms) for line in falling])
        shares: Floats = np.exp(found) / whole
        return shares

    low = float(falling.min())
    high = float(falling[:, 0].max())
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        if find_shares(middle).sum() > 1:
            low = middle
        else:
            high = middle
    shares = _correct_shares(curves, find_shares(high), whole)
    return dict(zip(names, _round_shares(shares, whole), strict=True))


def _correct_shares(curves: Mapping[str, ErrorCurve], shares: Floats, whole: int) -> Floats:
    """Returns shares corrected by the errors that plans expect at them; the best are kept.

    Noise falls as one over the share: shares that are multiplied by their errors, and divided by
    what they then add up to, have equal errors.
    """
    best: Floats = shares / shares.sum()
    least = math.inf
    current = best
    for _ in range(CORRECTIONS):
        counted = _round_shares(current, whole)
        errors = np.array(
            [
                _log_error(curve, share)
                for curve, share in zip(curves.values(), counted, strict=True)
            ]
        )
        if errors.max() < least:
            least = float(errors.max())
            best = current
        moved = current * np.exp(errors - errors.max())
        current = moved / moved.sum()
    return best


def _log_error(curve: ErrorCurve, share: int) -> float:
    """Returns the logarithm of an error; what cannot be planned at a share is as wrong as can be.

    A budget may be too small to be split so far.
    """
    try:
        return math.log(max(curve(share), 1e-300))
    except SottovoceError:
        return math.log(1e300)


def _round_shares(shares: Floats, whole: int) -> list[int]:
    """Returns parts of one as whole numbers that add up to ``whole``: rounded down, and what is
    left to those that lost most.
    """
    exact = np.asarray(shares, dtype=np.float64) / np.sum(shares) * whole
    rounded = np.floor(exact).astype(np.int64)
    left = whole - int(rounded.sum())
    most = np.argsort(-(exact - rounded), kind="stable")
    rounded[most[:left]] += 1
    return [int(share) for share in rounded]


def price_errors(
    curves: Mapping[str, ErrorCurve], wanted: Mapping[str, float], sources: Mapping[str, str]
) -> dict[str, int]:
    """Returns the smallest shares at which every wanted error is expected, by what answers the
    questions; refuses what cannot be had.

    Curves are in the units of the questions, and ``sources`` says by what each is answered: those
    without a wanted error need something too.
    """
    for name, most in wanted.items():
        best = curves[name](WHOLE)
        if best > most * MET:
            raise InvalidParameter(
                f"What is wanted of {name!r} cannot be had: with all that everybody grants, and "
                f"nothing else asked, its expected error is {format_error(best)}.",
                f"An error of {format_error(most)} is wanted.",
                "Want less, ask for larger budgets, or ask about fewer cells.",
                parameter="wanted",
                question=name,
            )
    shares: dict[str, int] = {}
    for name, most in wanted.items():
        share = _find_smallest_share(curves[name], most)
        shares[sources[name]] = max(share, shares.get(sources[name], 0))
    needed = sum(shares.values())
    left = len(set(sources.values()) - set(shares))
    allowed = WHOLE - left * SMALLEST
    if needed > allowed:
        told = ", ".join(
            f"{name!r} {format_percent(share / WHOLE)}" for name, share in shares.items()
        )
        raise InvalidParameter(
            "What is wanted cannot be had together: it would cost everybody "
            f"{needed / WHOLE:.3g} times what they grant ({told}).",
            "All questions together cost nobody more than they grant.",
            "Want less of some of them, ask fewer, or ask for larger budgets.",
            parameter="wanted",
        )
    return shares


def _find_smallest_share(curve: ErrorCurve, most: float) -> int:
    """Returns the smallest share, in millionths, at which the error is not above ``most``."""
    low = 0
    high = WHOLE
    while high - low > 1:
        middle = (low + high) // 2
        if _log_error(curve, middle) <= math.log(most * MET):
            high = middle
        else:
            low = middle
    return high


def check_numbers(
    given: Any, names: Sequence[str], parameter: str, what: str, note: str = ""
) -> dict[str, float]:
    """Returns positive numbers by the names of questions; refuses others."""
    if given is None:
        return {}
    if not isinstance(given, Mapping) or not set(given) <= set(names):
        raise InvalidParameter(
            f"{parameter} names something else than questions that have {what}.",
            f"These are: {', '.join(map(repr, names))}.{note}",
            "Use their names.",
            parameter=parameter,
        )
    for number in given.values():
        usable = isinstance(number, Real) and not isinstance(number, bool)
        if not usable or not 0 < number < 1e300:
            raise InvalidParameter(
                f"An entry of {parameter} is not a finite number above 0.",
                f"It is {what}.",
                "Pass positive numbers.",
                parameter=parameter,
            )
    return {name: float(given[name]) for name in names if name in given}
