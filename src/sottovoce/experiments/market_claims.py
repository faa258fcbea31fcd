# SPDX-License-Identifier: Apache-2.0
"""What *Striking a Balance* claims and does not keep: privacy, truth, its bound; and its example of two sellers.

Its market is run **as published, not private**, beside the certified one. Draws come from fixed seeds, except the noise
of our own releases. The studies themselves are in market.py.
"""

from __future__ import annotations

import math

import numpy as np

import sottovoce as sv
from sottovoce.experiments import market as studies
from sottovoce.experiments import market_as_published as paper
from sottovoce.experiments.outcome import Column, Figure, Outcome, Panel, Series, Table
from sottovoce.experiments.registry import Task

#: Draws of the audits, as published and certified; how much more than the budget a planted bug spends.
AUDITED, FITTED, LOUDER = (1_000_000, 200_000), (2000, 150), (8, 50)
#: Sellers who might lie, and trade-offs at which they are asked.
LIARS, LIED = (30, 8), (0.01, 0.1)
#: Numbers of sellers at which the limit of Theorem 3.4 is approached.
SELLERS = (100, 10_000, 1_000_000)
#: Noises b at which Appendix C's example is shown, and between which it is drawn.
NOISES, DRAWN = (-1.0, -0.3, -0.1, 0.1, 0.3, 1.0), np.linspace(-1.5, 1.5, 601)


def audit(task: Task) -> Outcome:
    """The privacy claim on Appendix C's example and a neighbour: refuted as published, not refuted for ours."""
    fits, louder = task.choose(*FITTED), task.choose(*LOUDER)
    found = [studies.audit_as_published(task.choose(*AUDITED))]
    for place, times in enumerate((1.0, float(louder))):
        task.progress((place + 1) / 3)
        found.append(studies.audit_certified(fits, times))
    bounds = tuple(one.loss if math.isfinite(one.loss) else None for one in found)
    columns = (
        Column("loss, at least", bounds),
        Column("promised", tuple(one.promised for one in found)),
        Column("refuted", tuple(float(one.is_refuted) for one in found)),
        Column("draws", tuple(float(one.draws) for one in found)),
        Column("in the event", tuple(float(one.hits) for one in found)),
        Column("in it on the neighbour", tuple(float(one.others) for one in found)),
    )
    lines = ("as published", "certified", f"certified, {louder}ε spent")
    told = (
        f"Of {found[0].draws:,} draws {found[0].hits:,} fall into a set that {found[0].others:,} draws on the "
        f"neighbour reach: a loss of at least {found[0].loss:.2f}, where at most {found[0].promised:.2f} was promised. "
        "Bounds fail with probability 2·10⁻⁸. The promise is proved for (a, η) that are chosen without data.",
        "The same audit does not refute the certified market with our logistic regression"
        + (f", and does refute it where {louder} times the budget is spent." if found[2].is_refuted else "; from so few "
           "draws it does not notice a planted bug either."),
    )  # fmt: skip
    return Outcome(task.name, task.size, (Table("An audit of both markets", "", lines, columns),), (), told)


def lies(task: Task) -> Outcome:
    """Who gains by reporting another cost: rows, noise and the others' reports stay as they are."""
    sellers = task.choose(*LIARS)
    theirs = [studies.liars_as_published(sellers, gamma) for gamma in LIED]
    ours = [studies.liars_certified(sellers, gamma) for gamma in LIED]
    words = {"gaining": "gain by a lie", "selling": "sell", "largest_gain": "largest gain"}
    columns = tuple(
        Column(f"{name}: {word}", tuple(float(getattr(one, what)) for one in found))
        for name, found in (("as published", theirs), ("certified", ours))
        for what, word in words.items()
    )
    table = Table(f"Of {sellers} sellers", "γ", tuple(f"{gamma:g}" for gamma in LIED), columns)
    told = (
        f"Sellers may report {', '.join(f'{times:g}' for times in studies.LIES)} times their cost. The paper pays Ψ·ε "
        f"and says that truth is best (Theorem 3.2): {theirs[0].gaining} of {sellers} gain by a lie at γ = "
        f"{LIED[0]:g}. In the certified market {ours[0].gaining} do.",
    )
    return Outcome(task.name, task.size, (table,), (), told)


def theorem_3_4(task: Task) -> Outcome:
    """Theorem 3.4: the limit for many sellers, its bound by (12) and by (29), and how slowly it is approached."""
    found = studies.theorem_3_4()
    values = {what: tuple(float(getattr(one, what)) for one in found) for what in ("least", "bound_12", "bound_29")}
    words = {"least": "least value", "bound_12": "(12)", "bound_29": "(29)"}
    columns = tuple(Column(words[what], numbers) for what, numbers in values.items())
    first = Table("The limit, d = ‖b‖ = 5, δ = ½", "p·γ", tuple(f"{one.floor:g}" for one in found), columns)
    counts = SELLERS[: task.choose(3, 2)]
    near = studies.many_sellers(counts)
    shares = (Column("exact optimum over 2√(σγp)", tuple(share for _, share in near)),)
    second = Table("Costs uniform in [1, 5]", "sellers", tuple(f"{m}" for m in counts), shares)
    last = found[-1]
    told = (
        f"(29), the last line of the proof, drops the 2 of (12). At pγ = {last.floor:g} it claims {last.bound_29:.3f}, "
        f"and nothing below {last.least:.3f} can be reached; (12) has {last.bound_12:.3f}. Where (29) lies above the "
        "least value, its β is a poor choice.",
    )
    return Outcome(task.name, task.size, (first, second), (), told)


def appendix_c(task: Task) -> Outcome:
    """Appendix C: two sellers, the exact joint minimum for every noise b, on the data and on a neighbour."""
    lines = {"the data": studies.two_sellers_as_published(studies.LABELS),
             "second label changed": studies.two_sellers_as_published(studies.NEIGHBOUR)}  # fmt: skip
    columns = [column for name, line in lines.items() for column in _solved(name, line)]
    table = Table("w, ε and payments by the noise", "b", tuple(f"{b:g}" for b in NOISES), tuple(columns))
    deal = sv.market.Market(
        studies.TWO_COSTS, cost_range=studies.RANGE, trade_off=studies.TRADE_OFF, mu=studies.MU, sigma=studies.SIGMA
    ).allocate()
    bought = (Column("ε", tuple(deal.epsilon.tolist())), Column("payment", tuple(np.asarray(deal.payments).tolist())))
    ours = Table("The certified market, whatever the data are", "seller", ("1", "2"), bought)
    b = tuple(DRAWN.tolist())
    released = {name: tuple(line.coefficient[line.choose_corners(DRAWN)].tolist()) for name, line in lines.items()}
    curves = tuple(Series(name, name, b, values) for name, values in released.items())
    panel = Panel("what is released, by the noise", "b", "w", curves, log_y=False)
    gap = max(float(np.abs(np.diff(line.coefficient)).max()) for line in lines.values())
    told = (
        f"The joint minimum jumps by up to {gap:.2f} in w as b passes a point, so a whole range of w is never released "
        "on one of two neighbours (market/audit). ε and payments depend on the label too.",
        "Appendix C names no λ, μ, σ or γ, and (34) has no λ: without it there is no minimum at all with probability "
        f"{unbounded(2 * studies.AVERAGES[-1]):.2f} at η = 1. Here λ = {studies.RIDGE:g}.",
    )
    return Outcome(task.name, task.size, (table, ours), (Figure("Appendix C", (panel,)),), told)


def _solved(name: str, line: paper.Line) -> list[Column]:
    at = line.choose_corners(np.array(NOISES))
    paid = paper.payments_as_printed(2 * studies.TWO_COSTS - studies.RANGE[0], line.epsilon[at])
    values = {
        "w": line.coefficient[at],
        "ε₁": line.epsilon[at, 0],
        "ε₂": line.epsilon[at, 1],
        "t₁": paid[:, 0],
        "t₂": paid[:, 1],
    }
    return [Column(f"{name}: {what}", tuple(column.tolist())) for what, column in values.items()]


def unbounded(eta: float) -> float:
    """Returns the probability that (34), which has no λ, falls without end at this η: b < 0, or 2b/η > 1.

    Both rows have y·x = 1, so the loss falls from slope −1 to 0 in w, and 2bw/η adds the slope 2b/η; |b| ~ Gamma(1).
    """
    return (1 + math.exp(-eta / 2)) / 2
