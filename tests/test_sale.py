"""What a market has bought is recorded, spent and told in Python."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sottovoce as sv
from sottovoce.errors import InvalidInput, InvalidParameter, KeyReused, UnknownPeople
from sottovoce.ledger import DEFAULT_ACCOUNT, Amounts, Sale
from sottovoce.ledgers import sql_reading
from sottovoce.ledgers.statement import Statement, sum_accounts
from sottovoce.report.ledger import compute_balances, explain_sales

COSTS = {"ada": 1.2, "ben": 2.1, "cleo": 9.0, "dora": 3.0}
OWNERS = ["ada", "ben", "cleo", "dora", "eve", "ada"] * 20
VALUES = np.linspace(0, 1, len(OWNERS))


@pytest.fixture
def deal():
    market = sv.market.Market(
        COSTS, cost_range=(1, 5), trade_off=0.05, mu=1.0, sigma=2.0, coin=0.01
    )
    return market.allocate()


def test_a_fit_takes_an_allocation_and_leaves_others_out(deal):
    fitted = sv.Mean(bounds=(0, 1)).fit(VALUES, epsilon=deal, groups=OWNERS)
    spent = dict(zip(["ada", "ben", "cleo", "dora", "eve"], fitted.guarantee_.epsilon, strict=True))
    assert spent["cleo"] == spent["eve"] == 0
    assert all(spent[name] <= bought for name, bought in deal.by_person().items())
    plan = sv.Mean(bounds=(0, 1)).plan(epsilon=deal, groups=OWNERS)
    assert np.array_equal(plan.guarantee.epsilon, fitted.guarantee_.epsilon)


def test_without_owners_row_i_is_seller_i(deal):
    fitted = sv.Mean(bounds=(0, 1)).fit([0.1, 0.5, 0.9, 0.4], epsilon=deal)
    assert np.all(fitted.guarantee_.epsilon <= deal.epsilon)
    with pytest.raises(InvalidInput):
        sv.Mean(bounds=(0, 1)).fit([0.1, 0.5, 0.9], epsilon=deal)


def test_what_was_sold_is_spent_on_no_other_promise(deal):
    X = np.column_stack([VALUES, VALUES])
    y = (VALUES > 0.5).astype(int)
    for model in (
        sv.ERM("logistic", bounds=sv.Bounds(features=(0, 1)), delta=1e-6),
        sv.LogisticRegression(bounds=sv.Bounds(features=(0, 1)), neighbours="labels"),
    ):
        with pytest.raises(InvalidParameter, match="Sellers have sold pure epsilon by replace"):
            model.fit(X, y, epsilon=deal, groups=OWNERS)


def test_nobody_who_sells_is_in_the_table(deal):
    with pytest.raises(UnknownPeople, match="Nobody whose rows are here"):
        sv.Mean(bounds=(0, 1)).fit(VALUES, epsilon=deal, groups=["nobody"] * len(VALUES))


def test_a_session_records_spends_and_tells_a_sale(deal):
    session = sv.Session()
    made = session.record_sale(deal, key="May", money="EUR")
    assert made.fresh
    assert not session.record_sale(deal, key="May", money="EUR").fresh
    with pytest.raises(KeyReused):
        session.record_sale(deal, key="May", money="USD")
    asked = {"groups": OWNERS, "epsilon": deal, "key": "mean of May"}
    release = session.release(sv.Mean(bounds=(0, 1)), VALUES, **asked)
    assert session.release(sv.Mean(bounds=(0, 1)), VALUES, **asked) == release
    session.verify(release)
    told = " ".join(explain_sales(session.history("ada")))
    assert f"for {deal.payments[0]:g} EUR." in told
    assert "“mean of May”" in told
    session.record_sale(deal, key="June", money="EUR")
    left = {"groups": OWNERS, "key": "all that is left", "unknown": "leave out"}
    session.release(sv.Mean(bounds=(0, 1)), VALUES, **left)
    assert session.balance("ada") == 0
    statement = Statement.of(session.ledger, "ada")
    assert Statement.from_json(statement.to_json()).lines() == session.history("ada")
    session.verify()


def test_a_table_by_names_takes_an_allocation(deal, tmp_path):
    path = tmp_path / "rows.csv"
    rows = zip(OWNERS, VALUES.tolist(), strict=True)
    path.write_text("who,value\n" + "".join(f"{who},{value}\n" for who, value in rows))
    fitted = sv.Mean(bounds=(0, 1)).fit(str(path), epsilon=deal, groups="who", column="value")
    assert np.all(fitted.guarantee_.epsilon[[2, 4]] == 0)
    session = sv.Session()
    session.record_sale(deal)
    asked = {"groups": "who", "epsilon": deal, "key": "k"}
    session.release(sv.Mean(bounds=(0, 1)), str(path), "value", **asked)
    assert session.balance("ada") == 0


def test_a_sale_without_payments_is_refused():
    market = sv.market.Market(COSTS, cost_range=(1, 5), trade_off=0.05, mu=1.0, sigma=2.0)
    with pytest.raises(InvalidParameter, match="Payments were not computed"):
        sv.Session().record_sale(market.allocate(pay=False))
    with pytest.raises(InvalidParameter, match="no sale"):
        sv.Session().record_sale({"ada": 1.0})


def make_sale(sold, paid) -> Sale:
    return Sale(Amounts(["ada"], np.array(sold), DEFAULT_ACCOUNT), np.array(paid), Fraction(1))


def test_a_sale_of_nothing_and_a_payment_for_nothing_are_refused():
    session = sv.Session()
    for sold, paid, found in (([0], [0], "Nobody sells"), ([0], [1], "sells nothing is paid")):
        with pytest.raises(InvalidParameter, match=found):
            session.record_sale(make_sale(sold, paid))
    assert len(list(session.ledger.entries())) == 1


def test_sales_beyond_all_meaning_are_refused_and_change_nothing():
    session = sv.Session()
    session.grant({"ada": 1e6})
    with pytest.raises(InvalidInput, match="too large"):
        session.record_sale(make_sale([1], [1]))
    assert session.balance("ada") == 1e6
    session.verify()


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["grant", "sell", "release"]),
        st.sampled_from(["ada", "ben"]),
        st.integers(1, 5),
    ),
    max_size=8,
)


@settings(max_examples=25, deadline=None)
@given(STEPS)
def test_books_of_grants_and_sales_in_any_order_add_up(steps):
    """Against a model of three lines: a grant sets, a sale adds, a charge takes."""
    session = sv.Session()
    allowed: dict[str, int] = {}
    spent: dict[str, int] = {}
    for number, (what, person, amount) in enumerate(steps):
        if what == "grant":
            session.grant({person: amount})
            allowed[person] = amount
        elif what == "sell":
            units = np.array([amount * 10**9])
            sale = Sale(Amounts([person], units, DEFAULT_ACCOUNT), np.array([3]), Fraction(1, 7))
            session.record_sale(sale, key=str(number))
            allowed[person] = allowed.get(person, 0) + amount
        elif allowed.get(person, 0) - spent.get(person, 0) >= amount:
            session.ledger.reserve(
                str(number), "", [Amounts([person], np.array([amount * 10**9]), DEFAULT_ACCOUNT)]
            )
            spent[person] = spent.get(person, 0) + amount
    session.verify()
    for person, granted in allowed.items():
        left = max(granted - spent.get(person, 0), 0)
        assert session.balance(person) == left
        (account,) = sum_accounts(session.history(person))
        assert (account.granted, account.spent) == (granted * 10**9, spent.get(person, 0) * 10**9)
    tiers = compute_balances(session.ledger).get(DEFAULT_ACCOUNT, ())
    assert sum(int(tier.granted.sum()) for tier in tiers) == sum(allowed.values()) * 10**9


def test_a_ledger_in_which_a_second_sale_replaces_the_first_is_caught(deal, monkeypatch):
    """The planted mistake: a sale as a total, which is what a grant is."""
    wrong = sql_reading.SELL_SQL.replace("accounts.granted + excluded.granted", "excluded.granted")
    assert wrong != sql_reading.SELL_SQL
    monkeypatch.setattr(sql_reading, "SELL_SQL", wrong)
    session = sv.Session()
    session.record_sale(deal, key="May")
    session.verify()
    session.record_sale(deal, key="June")
    with pytest.raises(sv.errors.LedgerBroken):
        session.verify()
