# SPDX-License-Identifier: Apache-2.0
"""What picking rows adds to the expected error of the estimator inside a baseline
(docs/theory/baselines.md).

The error is against the classical answer on the whole table. Rows that are not picked are missing
in the answer, or null records stand in their place and pull it towards themselves. How far only the
table knows, so a plan takes what is typical: the values' mean lies .4 of half the range away from
the null record, and they spread by a tenth of the range.

symbol                  name
p_l                     how likely person l is kept
h = Σ p_i/n             Picked.participating, the share of the rows that takes part, on average
Σ s_l²p_l(1−p_l)/n²     Picked.by_chance
Σ (p_i/n − h/n)²        Picked.uneven
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sottovoce.budgets import Budgets
from sottovoce.data.cells import Cells
from sottovoce.estimators.table_steps import count_expected
from sottovoce.noise import source
from sottovoce.plan import ExpectedError

#: Distance of the null record from the values' mean, and their spread, in half ranges; ½ for a
#: probability.
AWAY = 0.4
SPREAD = 0.2
PROBABLE = 0.5
#: Tables whose answers grow with the rows.
TOTALS = ("count", "sum")
#: Ranks that a null record in the middle of the bounds may have, if the mean is as far from the
#: middle.
RANKS = (0.5 - AWAY / 2, 0.5 + AWAY / 2)


@dataclass(frozen=True)
class PickedRowsError:
    """Which share of the rows takes part, and how much that varies."""

    participating: float
    by_chance: float
    uneven: float
    dropped: float = 0.0  # the share of the rows whose owners' budgets keep them out

    @classmethod
    def of_sampling(cls, budgets: Budgets, threshold: int) -> PickedRowsError:
        """People kept by coins at this threshold, null records in the place of the others."""
        kinds = budgets.kinds
        n = budgets.n_rows
        chance = source.compute_inclusion_probability(kinds.epsilon, threshold)
        rows = kinds.rows * kinds.people
        participating = float(rows @ chance) / n
        by_chance = float((kinds.people * (kinds.rows / n) ** 2) @ (chance * (1 - chance)))
        return cls(participating, by_chance, float(rows @ ((chance - participating) / n) ** 2))

    @classmethod
    def of_limit(cls, rows: int, kept: int) -> PickedRowsError:
        """So many rows kept of all; nothing stands for the others."""
        return cls(1.0, 0.0, 1 / kept - 1 / rows)

    @classmethod
    def of_threshold(cls, rows: int, kept: int) -> PickedRowsError:
        """So many rows kept of all, by the budgets of their owners; nothing stands for the
        others.
        """
        return replace(cls.of_limit(rows, kept), dropped=1 - kept / rows)


def expect_picked_error(
    error: ExpectedError | tuple[ExpectedError, ...],
    picked: PickedRowsError,
    parameters: Mapping[str, Any],
) -> ExpectedError | tuple[ExpectedError, ...]:
    """Returns the expected error of the estimator inside with what the picking adds to it."""
    if isinstance(error, ExpectedError):
        return _one(error, picked, parameters, 0)
    return tuple(_one(part, picked, parameters, place) for place, part in enumerate(error))


def restate_error(release: Any, picked: PickedRowsError) -> Any:
    """Returns a release of the estimator inside with the same added to its expected error."""
    parts = release.error_parts
    if not parts:
        return release
    several = isinstance(parts, Sequence)
    inside = tuple(
        ExpectedError("", release.error_unit, **{k: v for k, v in part.items() if k != "cells"})
        for part in (parts if several else [parts])
    )
    told: Any = expect_picked_error(
        inside if several else inside[0], picked, describe_question(release)
    )
    if several:
        return replace(
            release, expected_error=[e.total for e in told], error_parts=[e.to_dict() for e in told]
        )
    return replace(release, expected_error=told.total, error_parts=told.to_dict())


def describe_question(told: Any) -> dict[str, Any]:
    """Returns the parameters of a plan or release; of a table, with its question and its rows."""
    if "slots" not in told.noise:
        return dict(told.parameters)
    return {**told.parameters, "question": told.question, "rows": told.noise["rows"]}


def scale_error(error: ExpectedError, question: str, factor: float) -> ExpectedError:
    """Returns the error of a table about some rows as one about all: totals are scaled."""
    few = error.too_few_below
    if few is not None:
        error = replace(error, too_few_below=factor * few)
    cells = tuple(replace(cell, rows=factor * cell.rows) for cell in error.cells)
    if question not in TOTALS:
        return replace(error, cells=cells)
    return replace(
        error,
        noise=factor * error.noise,
        sampling=factor * error.sampling,
        bias=factor * error.bias,
        cells=tuple(replace(cell, error=factor * (cell.error or 0.0)) for cell in cells),
    )


def scale_release_error(release: Any, factor: float) -> Any:
    """Returns a release of a table with the same done to its expected error."""
    parts = {k: v for k, v in release.error_parts.items() if k != "cells"}
    inside = ExpectedError("", release.error_unit, **parts)
    told = scale_error(inside, release.question, factor)
    return replace(release, expected_error=told.total, error_parts=told.to_dict())


def _find_table_spread(parameters: Mapping[str, Any]) -> float:
    """Returns by how much an answer of a table varies for each unit of √Σ(c − 1/n)², in a cell of
    an equal share.
    """
    even = 1 / count_expected(Cells.from_dict(parameters["by"]))
    rows = parameters["rows"]
    if parameters["question"] == "count":
        return float(rows * math.sqrt(even * (1 - even)))
    spread = parameters["spread"]
    if parameters["question"] == "sum":
        middle = sum(parameters["bounds"]) / 2
        belongs = math.sqrt(even * (1 - even)) * abs(middle)
        return float(rows * math.hypot(belongs, math.sqrt(even) * spread))
    if parameters["question"] == "variance":
        return float(math.sqrt(2 / even) * spread**2)
    return float(spread / math.sqrt(even))


def _one(
    error: ExpectedError, picked: PickedRowsError, parameters: Mapping[str, Any], place: int
) -> ExpectedError:
    lost = 1 - picked.participating
    varies = picked.by_chance + picked.uneven
    if lost <= 0 and varies <= 0:
        return error
    dropped = 0.0
    if picked.dropped > 0 and parameters.get("association") is not None:
        dropped = 2 * picked.dropped * float(np.atleast_1d(parameters["association"])[place])
        if parameters.get("question") in TOTALS:
            dropped *= parameters["rows"]
    if "question" in parameters and lost <= 0:
        spread = _find_table_spread(parameters)
        away = 0.0
        moved = 0.0
    elif error.unit.startswith("as a share"):
        q = parameters["q"][place]
        moved = _shift_rank(q, picked.participating)
        spread = math.sqrt(q * (1 - q))
        away = 0.0
    else:
        scale = _scale(error.unit, parameters)
        if parameters.get("question") in TOTALS:
            scale *= parameters["rows"]
        spread = SPREAD * scale * math.sqrt(_freedom(parameters))
        away = AWAY * scale
        moved = lost * math.hypot(away, SPREAD * scale if "features" in parameters else 0.0)
    told = replace(
        error,
        sampling=math.hypot(
            error.sampling, spread * math.sqrt(varies), away * math.sqrt(picked.by_chance)
        ),
        shrinkage=math.hypot(error.shrinkage, moved),
        bias=error.bias + dropped,
        assumed=f"{error.assumed} {_describe(lost)}".strip(),
    )
    if picked.dropped > 0 and error.representative is not None:
        told = replace(told, representative=1 - picked.dropped)
    if error.in_column is not None and error.total > 0:
        told = replace(told, in_column=error.in_column * told.total / error.total)
    return told


def _describe(lost: float) -> str:
    if lost <= 0:
        return "Rows that are left out are taken as resembling those that are kept."
    return (
        f"Null records stand for {lost:.0%} of the rows, and are taken as lying 0.4 of half the "
        "range from the mean."
    )


def _scale(unit: str, parameters: Mapping[str, Any]) -> float:
    """Half the range of what the error is measured in."""
    if unit.startswith("as a probability"):
        return PROBABLE / AWAY
    limits = parameters.get("label" if "features" in parameters else "bounds")
    if limits is None:
        return 1.0
    return float(limits[1] - limits[0]) / 2


def _freedom(parameters: Mapping[str, Any]) -> int:
    """How many numbers are estimated."""
    features = parameters.get("features", ())
    return 1 + sum(
        max(len(f.get("levels", ())) - 1, 1) if isinstance(f, Mapping) else 1 for f in features
    )


def _shift_rank(q: float, participating: float) -> float:
    """How far in rank null records move a quantile: values fill the bounds evenly, nulls have one
    rank r among them.

    h·t + (1 − h)·[t ≥ r] = q for the rank t of the answer, or t = r where the sum jumps over q.
    """
    ranks = [min(max(r, (q - 1 + participating) / participating), q / participating) for r in RANKS]
    return math.sqrt(float(np.mean([(t - q) ** 2 for t in ranks])))
