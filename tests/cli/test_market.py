"""`sottovoce market`: its files are the library's allocation to the coin, and it says only what is
so.
"""

from __future__ import annotations

import csv
import io
import json
import re
import shlex
import stat
import time
from decimal import Decimal
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
import typer
from rich.console import Console
from typer.testing import CliRunner

import sottovoce as sv
from sottovoce.arrays import guard_formula
from sottovoce.cli import console
from sottovoce.cli import market as module
from sottovoce.market import Allocation
from sottovoce.report.market import NOT_PROTECTED, MarketOutcome

SELLERS = 60
#: From 0.7 to 5.3 in an order that has nothing to do with names: four below the range 1 to 5 and
#: four above it.
COSTS = [round(0.7 + 4.6 * (37 * i % SELLERS) / (SELLERS - 1), 4) for i in range(SELLERS)]
NAMES = [f"s{i:02d}" for i in range(SELLERS)]
LAW = ("--prior", "uniform:1:5")
WORDS = (*LAW, "--budget", 20)

alone = typer.Typer(pretty_exceptions_enable=False)
alone.command()(module.market)


@pytest.fixture
def market():
    """Gives the command in this process; whatever it does, it never ends in a traceback."""

    def command(*words: object):
        result = CliRunner().invoke(alone, [str(word) for word in words])
        assert result.exception is None or isinstance(result.exception, SystemExit)
        assert "Traceback" not in result.output
        return result

    return command


@pytest.fixture
def sellers(tmp_path: Path) -> Path:
    return written(tmp_path / "sellers.csv", ["seller", "cost"], zip(NAMES, COSTS, strict=True))


def written(path: Path, heads, rows) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([heads, *rows])
    return path


def read(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(path.read_text(encoding="utf-8"))))


def own(prior=None, trade_off=0.1 / 20, cap=1.0, features=10, **more) -> sv.market.Market:
    """The same market by the library."""
    law = prior or sv.market.prior.uniform(1, 5)
    costs = dict(zip(NAMES, COSTS, strict=True))
    return sv.market.Market(
        costs, prior=law, trade_off=trade_off, dimension=features + 1, cap=cap, **more
    )


def assert_same(path: Path, deal: Allocation) -> None:
    lines = read(path)
    assert [line[next(iter(line))] for line in lines] == NAMES
    assert [round(Decimal(line["epsilon"]) * 10**9) for line in lines] == deal.units.tolist()
    assert [Decimal(line["payment"]) for line in lines] == [
        Decimal(int(c)) * deal.coin.numerator / deal.coin.denominator for c in deal.coins
    ]


def listed(told: str) -> list[str]:
    """The lines of the table by price that is shown at the terminal."""
    return re.findall(
        r"^(?:up to|above|together).*", told.split("\nε bought from each")[0], re.MULTILINE
    )


def one_line(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.parametrize("rule", ["ceiling", "scaling"])
def test_the_file_is_the_librarys_allocation_and_totals_add_up_to_the_coin(
    market, sellers, tmp_path, rule
):
    out = tmp_path / "allocation.csv"
    result = market(sellers, *WORDS, "--rule", rule, "--coin", 0.01, "--out", out)
    assert result.exit_code == 0, result.output
    deal = own(coin=0.01).within(20, rule)
    assert_same(out, deal)
    paid = sum(Decimal(line["payment"]) for line in read(out))
    assert 0 < paid <= 20
    assert f"for {paid.normalize():f}\n" in result.stdout
    assert f"kept by the rule {rule}: {(20 - paid).normalize():f} is left unspent" in result.stdout
    *bands, together = [line.split()[-4:] for line in listed(result.stdout)]
    for column in (0, 1, 3):  # people and coins add up; ε is rounded for people
        assert sum(Decimal(band[column]) for band in bands) == Decimal(together[column])
    rounding = Decimal("5e-6") * (len(bands) + 1)
    assert abs(sum(Decimal(band[2]) for band in bands) - Decimal(together[2])) <= rounding
    assert Decimal(together[-1]) == paid
    assert together[0] == str(SELLERS)


def test_amounts_are_rounded_for_people_and_files_hold_every_coin(market, sellers, tmp_path):
    out = tmp_path / "allocation.csv"
    result = market(sellers, *WORDS, "--out", out)
    assert result.exit_code == 0, result.output
    paid = sum(Decimal(line["payment"]) for line in read(out))
    sold = sum(Decimal(line["epsilon"]) for line in read(out))
    together = listed(result.stdout)[-1].split()
    for shown, exact in ((together[-1], paid), (together[-2], sold)):
        assert len(Decimal(shown).as_tuple().digits) <= 6
        assert abs(Decimal(shown) - exact) <= exact * Decimal("1e-5")
    assert f"for {together[-1]}\n" in result.stdout
    assert f"ε = {together[-2]} in all" in result.stdout


def test_the_command_of_the_guide_works_as_it_is(market, tmp_path):
    costs = np.linspace(1e-4, 5e-4, 455)
    table = written(
        tmp_path / "sellers.csv",
        ["seller", "cost"],
        ((f"seller-{i}", c) for i, c in enumerate(costs)),
    )
    words = (
        "--prior",
        "uniform:0.0001:0.0005",
        "--budget",
        0.1,
        "--cap",
        1,
        "--out",
        tmp_path / "allocation.csv",
    )
    assert market(table, *words).exit_code == 0
    lines = read(tmp_path / "allocation.csv")
    paid, sold = (
        np.array([float(line[name]) for line in lines]) for name in ("payment", "epsilon")
    )
    assert (paid >= costs * sold).all()
    assert (np.diff(sold) <= 0).all()
    assert 0 < sold.max() <= 1
    assert 0.085 < paid.sum() <= 0.1  # nine tenths of the budget, as the guide says


def test_a_trade_off_is_what_is_asked_or_a_tenth_over_the_budget(market, sellers, tmp_path):
    out = tmp_path / "a.csv"
    assert (
        market(
            sellers, *LAW, "--trade-off", 0.3, "--features", 2, "--norm", 2, "--out", out
        ).exit_code
        == 0
    )
    assert_same(out, own(trade_off=0.3, features=2, norm=2.0).allocate())
    assert market(sellers, *WORDS, "--out", out, "--force").exit_code == 0
    assert_same(out, own(trade_off=0.005).within(20))
    assert (
        market(
            sellers, *WORDS, "--trade-off", 2, "--reserve", 3.5, "--out", out, "--force"
        ).exit_code
        == 0
    )
    assert_same(out, own(trade_off=2).within(20, reserve=3.5))


@pytest.mark.parametrize(
    ("words", "law"),
    [
        ("uniform:0.5:5", sv.market.prior.uniform(0.5, 5)),
        ("normal:2:1:1:5", sv.market.prior.normal(2, 1, 1, 5)),
        ("exponential:1.5:1:5", sv.market.prior.exponential(1.5, 1, 5)),
        ("lognormal:2:0.5:1:5", sv.market.prior.lognormal(2, 0.5, 1, 5)),
        ("empirical:past.csv", sv.market.prior.empirical([1.0, 1.5, 1.5, 2.0, 4.0, 4.5])),
    ],
)
def test_every_law_can_be_named(market, sellers, tmp_path, monkeypatch, words, law):
    monkeypatch.chdir(tmp_path)
    written(
        tmp_path / "past.csv", ["year", "cost"], [(2024, c) for c in (2.0, 1.5, 4.5, 1.0, 1.5, 4.0)]
    )
    assert market(sellers, "--prior", words, "--budget", 20, "--out", "a.csv").exit_code == 0
    assert_same(tmp_path / "a.csv", own(prior=law).within(20))


def test_caps_of_sellers_hold_and_the_buyers_cap_too(market, tmp_path):
    caps = [(0.1, 0.5, 3.0)[i % 3] for i in range(SELLERS)]
    table = written(
        tmp_path / "s.csv", ["id", "asks", "most"], zip(NAMES, COSTS, caps, strict=True)
    )
    named = ("--seller-column", "id", "--cost-column", "asks", "--cap-column", "most")
    words = (*LAW, "--trade-off", 1e-3, "--cap", 2, "--out", tmp_path / "a.csv")
    assert market(table, *words, *named).exit_code == 0
    assert_same(tmp_path / "a.csv", own(trade_off=1e-3, cap=np.minimum(caps, 2)).allocate())
    lines = read(tmp_path / "a.csv")
    assert list(lines[0]) == ["id", "epsilon", "payment", "cap"]
    assert [float(line["cap"]) for line in lines] == [min(cap, 2) for cap in caps]
    assert all(float(line["epsilon"]) <= float(line["cap"]) for line in lines)
    # A column called cap counts without being named: limits that somebody set must not be
    # overlooked.
    usual = written(
        tmp_path / "u.csv", ["seller", "cost", "cap"], zip(NAMES, COSTS, caps, strict=True)
    )
    assert market(usual, *words, "--force").exit_code == 0
    assert_same(tmp_path / "a.csv", own(trade_off=1e-3, cap=np.minimum(caps, 2)).allocate())


def test_what_was_bought_feeds_an_estimator_a_session_and_a_release(market, run, sellers, tmp_path):
    assert market(sellers, *LAW, "--trade-off", 0.1, "--out", tmp_path / "a.csv").exit_code == 0
    grants = {line["seller"]: float(line["epsilon"]) for line in read(tmp_path / "a.csv")}
    sold = [name for name in NAMES if grants[name] > 0]
    assert 2 <= len(sold) < SELLERS
    values = np.linspace(0, 1, SELLERS)
    fitted = sv.Mean(bounds=(0, 1)).fit(
        values, epsilon=sv.Budgets.of(grants, NAMES, zero="leave out")
    )
    assert np.all(fitted.guarantee_.epsilon <= np.array(list(grants.values())) + 1e-12)
    session = sv.Session()
    session.grant(grants)
    assert [session.balance(name) for name in NAMES] == list(grants.values())
    joined = [
        (name, value, grants[name])
        for name, value in zip(NAMES, values, strict=True)
        if grants[name] > 0
    ]
    table = written(tmp_path / "rows.csv", ["id", "v", "epsilon"], joined)
    words = (
        "--column",
        "v",
        "--bounds",
        0,
        1,
        "--budget-column",
        "epsilon",
        "--person-column",
        "id",
    )
    assert run("release", "mean", table, *words, "--out", tmp_path / "r.json").exit_code == 0


STRANGE = [
    "=1+1",
    "'=1+1",
    "''@x",
    "-12",
    "'-12",
    "+3.5",
    "-x",
    "@a",
    "\tb",
    'q"uo,te',
    "ε",
    "'plain",
    "two\nlines",
]


def test_names_that_look_like_formulas_are_guarded_and_can_be_had_back(market, tmp_path):
    table = written(tmp_path / "s.csv", ["seller", "cost"], [(name, 1.5) for name in STRANGE])
    result = market(table, *WORDS, "--out", tmp_path / "a.csv", "--json")
    assert result.exit_code == 0, result.output
    assert [line["seller"] for line in json.loads(result.stdout)["allocation"]] == STRANGE
    names = [line["seller"] for line in read(tmp_path / "a.csv")]
    assert len(set(names)) == len(names)
    assert [name for name in names if name[0] in "=+-@\t\r"] == [
        "-12",
        "+3.5",
    ]  # numbers are what they are
    assert [
        re.sub(r"^'(?='*[=+\-@\t\r])", "", name) for name in names
    ] == STRANGE  # the line of the guide
    assert guard_formula("=1") != guard_formula("'=1")


def test_everything_is_told_as_json_too(market, sellers, tmp_path):
    result = market(sellers, *WORDS, "--json", "--out", tmp_path / "a.csv")
    told = json.loads(result.stdout)
    lines = read(tmp_path / "a.csv")
    deal = own().within(20)
    assert told["format"] == "sottovoce.market/1"
    for entry, line in zip(told["allocation"], lines, strict=True):
        assert (entry["seller"], entry["epsilon"], entry["payment"]) == (
            line["seller"],
            float(line["epsilon"]),
            float(line["payment"]),
        )
    assert (
        sum(entry["above_all_prices"] for entry in told["allocation"])
        == told["above_all_prices"]
        == 4
    )
    assert (told["total_paid"], told["unspent"]) == (deal.total, deal.unspent)
    assert told["expected_error"] == deal.expected_error


def test_who_sells_nothing_is_counted_and_told(market, sellers):
    told = market(sellers, *LAW, "--trade-off", 1).stdout
    deal = own(trade_off=1).allocate()
    idle = int(((deal.units == 0) & ~deal.refused).sum())
    assert idle > 0
    assert (
        "Reports above all prices: 4. Nothing is bought from them, and they should be told so."
        in told
    )
    assert f"sell nothing all the same: {idle}." in told
    assert "Reports below the range of the prior: 4." in told
    assert one_line(NOT_PROTECTED) in one_line(told)


def test_a_budget_that_buys_nothing_says_so(market, sellers, tmp_path):
    result = market(
        sellers,
        *LAW,
        "--budget",
        0.5,
        "--coin",
        0.01,
        "--out",
        tmp_path / "a.csv",
        "--page",
        tmp_path / "p.html",
        "--publish",
        tmp_path / "p.json",
    )
    assert result.exit_code == 0, result.output
    assert "Nothing is bought: a larger budget" in result.stdout
    assert {line["payment"] for line in read(tmp_path / "a.csv")} == {"0"}
    assert json.loads((tmp_path / "p.json").read_text())["expected_error"] is None


@pytest.mark.parametrize("costs", [[2.0], [2.0] * 9])
def test_one_seller_and_equal_costs_are_markets_too(market, tmp_path, costs):
    table = written(
        tmp_path / "s.csv", ["seller", "cost"], [(f"s{i}", c) for i, c in enumerate(costs)]
    )
    result = market(
        table, *WORDS, "--out", tmp_path / "a.csv", "--page", tmp_path / "p.html", "--explain", "s0"
    )
    assert result.exit_code == 0, result.output
    assert len({(line["epsilon"], line["payment"]) for line in read(tmp_path / "a.csv")}) == 1
    assert float(read(tmp_path / "a.csv")[0]["epsilon"]) > 0


def lines_of(told: str) -> list[list[float]]:
    """Report, ε, paid, cost and what is left, of the truth and of each lie that was tried."""
    names = ("the truth", "a higher one", "a lower one")
    found = [line for line in told.splitlines() if line.startswith(names)]
    return [[float(number) for number in line.split()[-5:]] for line in found]


@pytest.mark.parametrize("rule", ["ceiling", "scaling"])
def test_an_explanation_tries_lies_out_and_none_pays(market, sellers, rule):
    costs = dict(zip(NAMES, COSTS, strict=True))
    for seller in (NAMES[0], NAMES[17], max(costs, key=costs.get), min(costs, key=costs.get)):
        told = market(
            sellers, *WORDS, "--trade-off", 0.05, "--rule", rule, "--explain", seller
        ).stdout
        truth, *lies = lines_of(told)
        assert truth[0] == pytest.approx(costs[seller], rel=1e-5)
        assert lies
        for report, sold, paid, _, left in lies:
            lied = sv.market.Market(
                costs | {seller: report},
                prior=sv.market.prior.uniform(1, 5),
                trade_off=0.05,
                dimension=11,
            ).within(20, rule)
            place = NAMES.index(seller)
            assert (sold, paid) == pytest.approx(
                (lied.epsilon[place], lied.payments[place]), rel=1e-5
            )
            assert left <= truth[-1] + 1e-8
        verdicts = re.findall(r"^Reporting ([\d.]+) would have left them (.*)\.$", told, re.M)
        assert [float(report) for report, _ in verdicts] == [lie[0] for lie in lies]
        assert all(
            verdict == "as much as the truth" or verdict.endswith(" less")
            for _, verdict in verdicts
        )


def test_an_explanation_would_say_if_a_lie_paid(market, sellers, monkeypatch):
    """Where everybody is paid what they ask, the lie that asks for more gains, and the explanation
    says so.
    """
    asked = property(
        lambda deal: deal.epsilon * np.minimum(deal.prices.values[np.minimum(deal.step, 127)], 9)
    )
    monkeypatch.setattr(Allocation, "payments", asked)
    cheap = NAMES[int(np.argmin(COSTS))]
    assert " more.\n" in market(sellers, *WORDS, "--explain", cheap).stdout


def test_an_explanation_goes_to_people_when_programs_read_json(market, tmp_path):
    table = written(tmp_path / "s.csv", ["seller", "cost"], [("a\x1b[31m", 1.5), ("b", 2)])
    result = market(table, *WORDS, "--explain", "a\x1b[31m", "--json")
    assert json.loads(result.stdout)["sellers"] == 2
    assert "Tried out, if 1.5 is what it costs them" in result.stderr
    assert "\x1b[31m" not in result.stderr


def test_what_is_published_names_nobody_and_repeats_no_report(market, sellers, tmp_path):
    path = tmp_path / "public.json"
    assert market(sellers, *WORDS, "--publish", path).exit_code == 0
    text = path.read_text(encoding="utf-8")
    told = json.loads(text)
    deal = own().within(20)
    assert not any(name in text for name in NAMES)
    assert not any(
        re.search(rf"(?<![\d.]){re.escape(f'{cost:g}')}(?![\d.])", text)
        for cost in COSTS
        if round(cost, 1) != cost
    )
    assert not any(
        f"{amount:.6g}" in text
        for amount in {*deal.payments.tolist(), *deal.epsilon.tolist()} - {0.0}
    )
    assert "not protected by differential privacy" in told["caution"]
    bands = told["epsilon_bands"]
    assert sum(band["sellers"] for band in bands) == told["bought_from"] == (deal.units > 0).sum()
    for band in bands:
        assert (
            band["sellers"]
            == ((deal.epsilon > band["above"]) & (deal.epsilon <= band["up_to"])).sum()
        )
    # Who reported what does not matter to it.
    written(sellers, ["seller", "cost"], zip(NAMES, COSTS[::-1], strict=True))
    assert market(sellers, *WORDS, "--publish", path, "--force").exit_code == 0
    assert path.read_text(encoding="utf-8") == text


class Page(HTMLParser):
    """The words of a page; refuses tags that are not closed in order, and anything that would be
    loaded.
    """

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open = []
        self.words = []
        self.feed(text)
        assert self.open == []
        self.text = one_line(" ".join(self.words))

    def handle_data(self, data):
        self.words.append(data)

    def handle_starttag(self, tag, attrs):
        assert tag != "script"
        assert not {"src", "href", "srcset", "action"} & {name for name, _ in attrs}
        self.open += [] if tag in ("meta", "br") else [tag]

    def handle_startendtag(self, tag, attrs):
        pass

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_the_page_is_whole_stamped_and_shows_everybody(market, sellers, tmp_path):
    path = tmp_path / "p.html"
    out = tmp_path / "a.csv"
    result = market(sellers, *LAW, "--trade-off", 0.1, "--page", path, "--out", out)
    assert result.exit_code == 0, result.output
    content = path.read_text(encoding="utf-8")
    deal = own(trade_off=0.1).allocate()
    page = Page(content)
    assert "FOR THE BUYER ALONE" in page.text
    assert "prefers-color-scheme: dark" in content
    assert "@media print" in content
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)|@import|url\(", content)
    assert [stat.S_IMODE(file.stat().st_mode) for file in (path, out)] == [0o600, 0o600]
    assert len(listed(result.stdout)) == 10
    assert all(one_line(line) in page.text for line in listed(result.stdout))
    who, frontier = (
        ElementTree.fromstring(svg) for svg in re.findall(r"<svg.*?</svg>", content, re.DOTALL)
    )
    shapes = {
        kind: list(who.iter(f"{{http://www.w3.org/2000/svg}}{kind}"))
        for kind in ("rect", "circle", "text")
    }
    heights = {
        kind: sum(float(r.get("height")) for r in shapes["rect"] if r.get("class") == kind)
        for kind in ("own", "other")
    }
    tallest = int(shapes["text"][0].text)
    bought = int((deal.units > 0).sum())
    # Heights are written to a tenth of a unit of the picture, in which the tallest bar has 120.
    assert heights["own"] / 120 * tallest == pytest.approx(bought, abs=0.2)
    assert heights["other"] / 120 * tallest == pytest.approx(SELLERS - bought, abs=0.2)
    # The dearest ε and payment are drawn at the top of their panels: 208 and 382 units down.
    dots = [float(dot.get("cy")) for dot in shapes["circle"] if dot.get("class") == "own"]
    assert {208.0, 382.0} <= set(dots)
    assert len(list(frontier.iter("{http://www.w3.org/2000/svg}circle"))) > 3


GOOD = "seller,cost\na,1\nb,2\nc,3\n"
#: What is wrong, the table, the words, the error, and a part of what it says.
REFUSED = {
    "no prior": (GOOD, ("--budget", 1), "InvalidParameter", "No prior is given"),
    "neither money nor its worth": (
        GOOD,
        LAW,
        "InvalidParameter",
        "Pass one of them, or both. See --budget.",
    ),
    "money that is worth nothing": (
        GOOD,
        (*LAW, "--trade-off", 0),
        "InvalidParameter",
        "worth; at 0, everything would be bought. See --trade-off.",
    ),
    "a trade-off that is no number": (
        GOOD,
        (*LAW, "--trade-off", "nan"),
        "InvalidParameter",
        "--trade-off",
    ),
    "no money": (
        GOOD,
        (*LAW, "--budget", 0),
        "InvalidParameter",
        "privacy is not given away. See --budget.",
    ),
    "debts": (GOOD, (*LAW, "--budget", -1), "InvalidParameter", "--budget"),
    "endless money": (GOOD, (*LAW, "--budget", "inf"), "InvalidParameter", "--budget"),
    "a rule without a budget": (
        GOOD,
        (*LAW, "--trade-off", 1, "--rule", "ceiling"),
        "InvalidParameter",
        "--rule",
    ),
    "an unknown rule": (
        GOOD,
        (*LAW, "--budget", 1, "--rule", "best"),
        "InvalidParameter",
        "not known",
    ),
    "a reserve of nothing": (
        GOOD,
        (*LAW, "--budget", 1, "--reserve", 0),
        "InvalidParameter",
        "--reserve",
    ),
    "a cap of nothing": (GOOD, (*LAW, "--budget", 1, "--cap", 0), "InvalidParameter", "--cap"),
    "a cap beyond protection": (
        GOOD,
        (*LAW, "--budget", 1, "--cap", 1000),
        "InvalidParameter",
        "cap",
    ),
    "no features": (GOOD, (*LAW, "--budget", 1, "--features", 0), "InvalidParameter", "--features"),
    "no norm": (GOOD, (*LAW, "--budget", 1, "--norm", -2), "InvalidParameter", "--norm"),
    "no coin": (GOOD, (*LAW, "--budget", 1, "--coin", 0), "InvalidParameter", "--coin"),
    "a coin too fine": (
        GOOD,
        (*LAW, "--budget", 1, "--coin", "1e-300"),
        "InvalidParameter",
        "too fine",
    ),
    "an unknown law": (
        GOOD,
        ("--prior", "beta:1:5", "--budget", 1),
        "InvalidParameter",
        "uniform:low:high, normal:",
    ),
    "a law without numbers": (
        GOOD,
        ("--prior", "uniform", "--budget", 1),
        "InvalidParameter",
        "The prior is not",
    ),
    "a law with words": (
        GOOD,
        ("--prior", "uniform:x731:5", "--budget", 1),
        "InvalidParameter",
        "The prior",
    ),
    "a law with too many numbers": (
        GOOD,
        ("--prior", "uniform:1:2:3", "--budget", 1),
        "InvalidParameter",
        "The prior",
    ),
    "a law reversed": (
        GOOD,
        ("--prior", "uniform:5:1", "--budget", 1),
        "InvalidBounds",
        "range of the prior",
    ),
    "a law without end": (
        GOOD,
        ("--prior", "uniform:1:inf", "--budget", 1),
        "InvalidBounds",
        "range of the prior",
    ),
    "a law without spread": (
        GOOD,
        ("--prior", "normal:2:0:1:5", "--budget", 1),
        "InvalidParameter",
        "deviation",
    ),
    "a law from nowhere": (
        GOOD,
        ("--prior", "empirical:", "--budget", 1),
        "InvalidParameter",
        "The prior",
    ),
    "a law from no file": (
        GOOD,
        ("--prior", "empirical:no.csv", "--budget", 1),
        "InvalidData",
        "costs seen before",
    ),
    "a loss from no file": (
        GOOD,
        ("--prior", "uniform:1:5", "--budget", 1, "--loss", "table:no.csv"),
        "InvalidData",
        "--loss",
    ),
    "a loss from words": (
        GOOD,
        ("--prior", "uniform:1:5", "--budget", 1, "--loss", "table:past.csv"),
        "MissingColumn",
        "--loss",
    ),
    "a law from the reports": (
        GOOD,
        ("--prior", "empirical:t.csv", "--budget", 1),
        "InvalidParameter",
        "reports that",
    ),
    "a law from equal costs": (
        GOOD,
        ("--prior", "empirical:same.csv", "--budget", 1),
        "InvalidBounds",
        "the same",
    ),
    "a law from gaps": (
        GOOD,
        ("--prior", "empirical:gaps.csv", "--budget", 1),
        "MissingValues",
        "seen before",
    ),
    "a law from words": (
        GOOD,
        ("--prior", "empirical:words.csv", "--budget", 1),
        "WrongType",
        "seen before: a cost",
    ),
    "nobody of that name": (
        GOOD,
        (*LAW, "--budget", 1, "--explain", "x731"),
        "UnknownPeople",
        "not in the table",
    ),
    "a column that is not there": (
        GOOD,
        (*LAW, "--budget", 1, "--cap-column", "most"),
        "MissingColumn",
        "'most'",
    ),
    "a name that is taken": (
        GOOD,
        (*LAW, "--budget", 1, "--seller-column", "cap"),
        "InvalidParameter",
        "a new column",
    ),
    "one column twice": (
        GOOD,
        (*LAW, "--budget", 1, "--seller-column", "cost"),
        "InvalidParameter",
        "two purposes",
    ),
    "no file": (None, (*LAW, "--budget", 1), "InvalidData", "no table"),
    "an empty file": ("", (*LAW, "--budget", 1), "InvalidData", "no header"),
    "no sellers": ("seller,cost\n", (*LAW, "--budget", 1), "TooFewRows", "no sellers"),
    "no column of sellers": (
        "name,cost\na,1\n",
        (*LAW, "--budget", 1),
        "MissingColumn",
        "'seller'",
    ),
    "no column of costs": ("seller,price\na,1\n", (*LAW, "--budget", 1), "MissingColumn", "'cost'"),
    "a negative cost": (
        GOOD.replace("2", "-731"),
        (*LAW, "--budget", 1),
        "InvalidParameter",
        "negative",
    ),
    "NaN": (GOOD.replace("2", "nan"), (*LAW, "--budget", 1), "MissingValues", "not finite"),
    "no report": (GOOD.replace("2", ""), (*LAW, "--budget", 1), "MissingValues", "missing"),
    "an endless cost": (
        GOOD.replace("2", "inf"),
        (*LAW, "--budget", 1),
        "MissingValues",
        "not finite",
    ),
    "a cost in words": (
        GOOD.replace("2", "€731"),
        (*LAW, "--budget", 1),
        "WrongType",
        "not a number",
    ),
    "a cell too many": (GOOD + "d,1,x731\n", (*LAW, "--budget", 1), "WrongType", "not a number"),
    "a seller twice": (GOOD + "a,731\n", (*LAW, "--budget", 1), "DuplicatePeople", "listed twice"),
    "a seller without a name": (
        GOOD + ",731\n",
        (*LAW, "--budget", 1),
        "UnknownPeople",
        "no seller",
    ),
    "a negative cap": (
        "seller,cost,cap\na,1,-731\n",
        (*LAW, "--budget", 1),
        "InvalidBudget",
        "cap",
    ),
    "a missing cap": (
        "seller,cost,cap\na,1,1\nb,2,\n",
        (*LAW, "--budget", 1),
        "InvalidBudget",
        "cap",
    ),
    "all caps zero": (
        "seller,cost,cap\na,1,0\nb,2,0\n",
        (*LAW, "--budget", 1),
        "InvalidParameter",
        "cap is zero",
    ),
    "reports beyond the law": (
        "seller,cost\na,731\nb,9\n",
        (*LAW, "--budget", 1),
        "InvalidParameter",
        "same money",
    ),
    "a reserve below all": (
        GOOD,
        (*LAW, "--budget", 1, "--reserve", 0.5),
        "InvalidParameter",
        "Every report lies",
    ),
    "a place that is read": (
        GOOD,
        (*LAW, "--budget", 1, "--page", "t.csv"),
        "InvalidParameter",
        "--page is a file",
    ),
    "a place that is the law": (
        GOOD,
        ("--prior", "empirical:past.csv", "--budget", 1, "--publish", "past.csv"),
        "InvalidParameter",
        "--publish is a file that",
    ),
    "a place nowhere": (
        GOOD,
        (*LAW, "--budget", 1, "--publish", "no/p.json"),
        "InvalidParameter",
        "--publish",
    ),
    "one place twice": (
        GOOD,
        (*LAW, "--budget", 1, "--page", "out.csv"),
        "InvalidParameter",
        "two purposes",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_bad_input_is_a_named_sentence_and_leaves_nothing_behind(
    market, tmp_path, monkeypatch, name
):
    content, words, error, told = REFUSED[name]
    monkeypatch.chdir(tmp_path)
    for file, costs in {
        "same": "2\n2\n",
        "gaps": "2\n\nnan\n",
        "words": "2\nx731\n",
        "past": "1\n5\n",
    }.items():
        (tmp_path / f"{file}.csv").write_text(f"cost\n{costs}")
    if content is not None:
        (tmp_path / "t.csv").write_text(content, encoding="utf-8")
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    refused = market("t.csv", "--out", "out.csv", *words)
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert refused.stderr.startswith(f"{error}: ")
    assert told in one_line(refused.stderr)
    assert 2 <= len(refused.stderr.strip().splitlines()) <= 3
    assert "731" not in refused.stderr
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_the_law_is_refused_before_reports_are_looked_for(market):
    assert market("nowhere.csv", "--prior", "uniform:5:1", "--budget", 1).stderr.startswith(
        "InvalidBounds"
    )


@pytest.mark.parametrize("when", ["allocating", "writing"])
def test_who_interrupts_finds_the_old_files(market, sellers, tmp_path, monkeypatch, when):
    def interrupted(*_):
        raise KeyboardInterrupt

    out = tmp_path / "a.csv"
    out.write_text("old")
    before = sorted(tmp_path.iterdir())
    monkeypatch.setattr(
        *((sv.market.Market, "within") if when == "allocating" else (Path, "replace")), interrupted
    )
    assert market(sellers, *WORDS, "--out", out, "--force").exit_code == 130
    assert out.read_text() == "old"
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize(
    ("patience", "terminal", "shown"), [(0.0, True, True), (60.0, True, False), (0.0, False, False)]
)
def test_what_takes_long_is_said_at_a_terminal(monkeypatch, patience, terminal, shown):
    screen = io.StringIO()
    monkeypatch.setattr(console, "PROGRESS_DELAY", patience)
    monkeypatch.setattr(
        module,
        "get_console",
        lambda **_: Console(file=screen, force_terminal=terminal, force_interactive=terminal),
    )
    with module.status_after_delay("Looking"):
        end = time.monotonic() + (120 if shown else 0.05)
        while "Looking" not in screen.getvalue() and time.monotonic() < end:
            time.sleep(0.01)
    assert ("Looking" in screen.getvalue()) == shown


def test_many_sellers_are_few_dots():
    from sottovoce.market.terms import MarketTerms, Sellers
    from sottovoce.report.market import draw_market

    costs = np.random.default_rng(0).uniform(1, 5, 100_000)
    terms = MarketTerms(sv.market.prior.uniform(1, 5), trade_off=1e-4)
    many = Sellers(tuple(map(str, range(100_000))), costs)
    assert len(draw_market(MarketOutcome(terms, many, terms.allocate(many)))) < 200_000


def test_the_commands_of_the_guide_run_in_their_order(market, tmp_path, monkeypatch):
    guide = (Path(__file__).parents[2] / "docs" / "guide" / "market.md").read_text(encoding="utf-8")
    section = re.search(
        r"^## At the terminal\n(.*?)(?=^## )", guide, re.MULTILINE | re.DOTALL
    ).group(1)
    commands = re.findall(r"^(?:\$ )?sottovoce market (.*)$", section, re.MULTILINE)
    assert len(commands) >= 3
    monkeypatch.chdir(tmp_path)
    costs = np.linspace(1e-4, 5.1e-4, 40)
    written(
        tmp_path / "sellers.csv",
        ["seller", "cost"],
        ((f"seller-{i}", c) for i, c in enumerate(costs)),
    )
    for command in commands:
        result = market(*shlex.split(command))
        assert result.exit_code == 0, (command, result.output)
    for option in re.findall(r"^\| `(--[\w-]+)", section, re.MULTILINE):
        assert option in market("--help").stdout
