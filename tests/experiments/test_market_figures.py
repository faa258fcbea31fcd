"""Paper M: every outcome is whole and explained; audits, lies, limits and the jump say what the
studies found.

Draws are seeded, except the noise of our own releases; what is said of those has a stated margin.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

from sottovoce.papers import market_claims as claims
from sottovoce.papers import market_claims as studies
from sottovoce.papers import market_figures as figures
from sottovoce.papers import market_published as paper
from sottovoce.papers.market_published import TRADE_OFFS, MarketWorth
from sottovoce.papers.plots import Outcome
from sottovoce.papers.report import Task

#: What error, payment and standard error would be, by mechanism and trade-off: a stand-in for
#: minutes of work.
STAND_IN = {figures.CERTIFIED: 0.1, figures.PUBLISHED: 0.3, figures.NAIVE: 0.4, figures.PLAIN: 0.02}


def stood_in(names, trade_offs):
    return tuple(
        MarketWorth(name, gamma, STAND_IN[name], 0.05 / gamma, STAND_IN[name] + 0.05, 0.01)
        for name in names
        for gamma in trade_offs
    )


def small(function, name):
    return function(Task(f"market/{name}", "small"))


def whole(outcome):
    assert outcome.find_unexplained() == []
    assert Outcome.from_json(outcome.to_json()) == outcome
    assert outcome.tables
    assert outcome.sentences
    return outcome


def column(outcome, name, table=0):
    return next(column.ours for column in outcome.tables[table].columns if column.name == name)


@pytest.mark.long
def test_the_audit_refutes_the_published_market_and_not_ours():
    """Ours is refuted falsely with probability 2·10⁻⁸."""
    outcome = whole(small(claims.audit, "audit"))
    refuted = column(outcome, "refuted")
    assert refuted[:2] == (1.0, 0.0)
    assert column(outcome, "loss, at least")[0] > 3 * column(outcome, "promised")[0]
    assert column(outcome, "in it on the neighbour")[0] == 0
    noticed = "does refute it" in outcome.sentences[1]
    assert noticed == bool(refuted[2])


def test_everybody_gains_by_a_lie_as_published_and_nobody_does_with_us():
    outcome = whole(small(claims.lies, "lies"))
    assert column(outcome, "as published: gain by a lie") == (8.0, 8.0)
    assert column(outcome, "certified: gain by a lie") == (0.0, 0.0)
    assert max(column(outcome, "certified: sell")) == 8


def test_what_29_claims_cannot_be_reached():
    outcome = whole(small(claims.theorem_3_4, "theorem-3.4"))
    least, proof, statement = (
        column(outcome, name)[-1] for name in ("least value", "(29)", "(12)")
    )
    assert proof < least < statement
    shares = column(outcome, outcome.tables[1].columns[0].name, 1)
    assert shares[0] > shares[1] > 1


def test_appendix_c_jumps():
    outcome = whole(small(claims.appendix_c, "appendix-c"))
    curves = [np.array(series.y) for series in outcome.figures[0].panels[0].series]
    assert all(np.abs(np.diff(curve)).max() > 0.5 for curve in curves)
    assert all(np.all(np.diff(curve) <= 0) for curve in curves)  # w falls with b
    # The first seller, whose label is the same, is bought from differently: ε depends on another's
    # data.
    assert column(outcome, "the data: ε₁") != column(outcome, "second label changed: ε₁")


def test_34_falls_without_end_just_when_it_is_said_to():
    """The printed objective at w = ±10⁶ for many b; the share of b that lead below any bound,
    weighted by their law.
    """
    eta = 0.7
    share = 0.0
    b = np.linspace(-20, 20, 400_001)
    far = np.array([-1e6, 1e6])
    values = np.logaddexp(0, -far)[None, :] + 2 * b[:, None] * far / eta
    share = float(np.sum((values.min(axis=1) < -1) * np.exp(-np.abs(b)) / 2) * (b[1] - b[0]))
    assert share == pytest.approx(claims.compute_unbounded_probability(eta), abs=1e-3)
    assert claims.compute_unbounded_probability(0.0) == 1.0


@pytest.mark.parametrize("name", ["figure_3", "figure_4", "figure_5"])
def test_figures_3_to_5_are_whole(name):
    outcome = whole(small(getattr(figures, name), name.replace("_", "-")))
    assert all(
        math.isfinite(y) for f in outcome.figures for p in f.panels for s in p.series for y in s.y
    )


def test_figure_5_falls_and_figure_4_rises():
    errors = column(small(figures.figure_5, "figure-5"), "test error")
    assert errors[-1] < errors[0] - 0.2
    variances = column(small(figures.figure_4, "figure-4"), "variance of m·a")
    assert list(variances) == sorted(variances)


def test_figure_3_says_what_it_shows():
    outcome = small(figures.figure_3, "figure-3")
    errors = column(outcome, "test error")
    least = figures.MUS[int(np.argmin(errors))]
    assert f"least at μ = {least:g}," in outcome.sentences[0]
    assert ("does not rise again" in outcome.sentences[0]) == (errors[-1] < min(errors[:-1]))


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(
        figures, "_measure_worths", lambda full, correlated: stood_in(figures.SHOWN, TRADE_OFFS)
    )


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(
    ("name", "compute"),
    [
        ("figure-2a", figures.figure_2a),
        ("figure-2b", figures.figure_2b),
        ("certified", figures.compare_certified),
    ],
    ids=["figure_2a", "figure_2b", "certified"],
)
def test_figure_2_is_whole(name, compute):
    outcome = whole(compute(Task(f"market/{name}", "full")))
    assert outcome.tables[0].lines == ("0.1", "1", "10")


@pytest.mark.usefixtures("quick")
def test_certified_stands_beside_what_was_measured_before():
    outcome = figures.compare_certified(Task("market/certified"))
    told = {column.name: column.published for column in outcome.tables[0].columns}
    assert told[figures.PUBLISHED] == (0.160, 0.316, 0.443)
    assert column(outcome, "certified over published") == pytest.approx((0.15 / 0.35,) * 3)
    assert "at least 14.1 standard errors" in outcome.sentences[1]  # .2/(.01·√2)
    assert "at least 1.0 of its own" in outcome.sentences[1]  # (.160 − .15)/.01


@pytest.mark.usefixtures("quick")
def test_correlation_is_told_as_a_share():
    outcome = figures.figure_2b(Task("market/figure-2b"))
    assert "at most 0 %" in outcome.sentences[1]


def test_one_small_run_of_figure_2_is_real():
    """Error and payment of every mechanism at γ = 1, and the naive one with correlated costs."""
    outcome = whole(small(figures.figure_2a, "figure-2a"))
    assert column(outcome, f"{figures.PLAIN}: payment") == (0.0,)
    assert 0 < column(outcome, f"{figures.NAIVE}: payment", 1)[0] < 0.1
    assert (
        0.01 < column(outcome, f"{figures.CERTIFIED}: payment")[0] < 0.1
    )  # reports and seeds alone decide payments
    overall = whole(small(figures.figure_2b, "figure-2b"))
    parts = [column(outcome, f"{figures.PUBLISHED}: {what}")[0] for what in ("error", "payment")]
    assert column(overall, f"{figures.PUBLISHED}: overall")[0] == pytest.approx(sum(parts))


def test_certified_payments_follow_from_the_choice_of_sigma_alone():
    """σ is chosen by a noisy rehearsal among three, so the payment is one of three numbers per
    draw.
    """
    from sottovoce.papers import market_published as worth

    split = worth.DataSplit.of(worth.FIRST)
    seeds = range(100 * worth.FIRST, 100 * worth.FIRST + figures.DRAWS[1])
    totals = [
        np.mean(
            [worth.buy_privacy(split.draw_costs(seed, False), 1.0, sigma).total for seed in seeds]
        )
        for sigma in worth.SIGMAS
    ]
    found = column(small(figures.figure_2a, "figure-2a"), f"{figures.CERTIFIED}: payment")[0]
    assert min(abs(found - total) for total in totals) < 1e-9


def test_payments_of_appendix_c_are_the_printed_ones():
    outcome = small(claims.appendix_c, "appendix-c")
    epsilon = np.array(column(outcome, "the data: ε₂"))
    assert column(outcome, "the data: t₂") == pytest.approx(1.2 * epsilon)  # Ψ₂ = 1.2 in the paper
    line = studies.two_sellers_as_published(studies.LABELS)
    assert isinstance(line, paper.JointMinimum)
    assert (
        column(outcome, "the data: w")[0]
        == line.coefficient[line.choose_corners(np.array([-1.0]))[0]]
    )
