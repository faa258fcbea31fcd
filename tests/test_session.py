"""The one door: the order of the steps, keys, balances, and who is left out."""

from __future__ import annotations

import threading

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.linear_model import LinearRegression

import sottovoce as sv
from seams import silent
from sottovoce import errors
from sottovoce.ledger import Amounts
from sottovoce.ledgers import open_ledger
from sottovoce.schema import Column

VALUES = [1.0, 2.0, 3.0, 4.0, 5.0]
OWNERS = ["a", "a", "b", "c", "c"]
MEAN = sv.Mean(bounds=(0, 10))


def session(**options) -> sv.Session:
    opened = sv.Session(**options)
    opened.grant({"a": 1.0, "b": 0.3, "c": 0.5})
    return opened


def test_a_release_charges_what_its_plan_said():
    s = session()
    release = s.release(MEAN, VALUES, groups=OWNERS, epsilon=0.2, key="one")
    charges = MEAN.plan(epsilon=0.2, groups=OWNERS).charges
    for person, granted, charge in zip("abc", (1.0, 0.3, 0.5), charges, strict=True):
        assert s.balance(person) == pytest.approx(granted - charge, abs=1e-12)
    assert release.guarantee["unit"] == "person"
    s.verify()


def test_the_same_key_returns_the_same_bytes_and_costs_nothing():
    s = session()
    first = s.release(MEAN, VALUES, groups=OWNERS, epsilon=0.2, key="one")
    left = [s.balance(p) for p in "abc"]
    again = s.release(MEAN, VALUES, groups=OWNERS, epsilon=0.2, key="one")
    changed_data = s.release(MEAN, [9.0] * 5, groups=OWNERS, epsilon=0.2, key="one")
    assert first.to_json() == again.to_json() == changed_data.to_json()
    assert left == [s.balance(p) for p in "abc"]


@pytest.mark.parametrize(
    "other",
    [
        {"question": sv.Mean(bounds=(0, 11))},
        {"question": sv.Quantile(bounds=(0, 10))},
        {"epsilon": 0.1},
        {"epsilon": {"a": 0.2, "b": 0.2, "c": 0.1}},
        {"groups": ["a", "a", "b", "b", "c"]},
    ],
)
def test_the_same_key_for_another_request_is_an_error(other):
    s = session()
    s.release(MEAN, VALUES, groups=OWNERS, epsilon=0.2, key="one")
    left = [s.balance(p) for p in "abc"]
    asked = {"question": MEAN, "groups": OWNERS, "epsilon": 0.2, **other}
    with pytest.raises(errors.KeyReused):
        s.release(
            asked["question"], VALUES, groups=asked["groups"], epsilon=asked["epsilon"], key="one"
        )
    assert left == [s.balance(p) for p in "abc"]


def test_people_who_cannot_afford_a_release_are_left_out_and_not_read():
    s = session()
    values = [1.0, 2.0, np.nan, 4.0, 5.0]  # b cannot pay 0.4, so b's missing value is never met
    with silent():
        s.release(MEAN, values, groups=OWNERS, epsilon=0.4, key="one")
    assert s.balance("b") == 0.3
    assert s.balance("a") < 1.0


def test_or_the_release_is_refused_if_the_session_was_told_so():
    s = session(short="refuse")
    with pytest.raises(errors.BudgetExceeded):
        s.release(MEAN, VALUES, groups=OWNERS, epsilon=0.4, key="one")
    assert [s.balance(p) for p in "abc"] == [1.0, 0.3, 0.5]


def test_without_epsilon_everybody_gives_all_they_have_left():
    s = session()
    s.release(MEAN, VALUES, groups=OWNERS, key="all")
    assert all(s.balance(p) <= left for p, left in zip("abc", (1.0, 0.3, 0.5), strict=True))
    assert min(s.balance(p) for p in "abc") == pytest.approx(0, abs=1e-6)
    s.verify()


def test_what_is_left_in_pure_epsilon_pays_for_no_other_promise(tmp_path):
    """Of an ε at δ the plan chooses the method, and with it what is charged: it may be pure where
    everybody has much, and not for what they have.
    """
    n = 1000
    ridge = sv.Ridge(bounds=sv.Bounds(features=(-1, 1), label=(-1, 1)), delta=1e-6)
    by_epsilon = [ridge.plan(epsilon=e, rows=n, n_features=10).guarantee for e in (100.0, 10.0)]
    assert [found.currency for found in by_epsilon] == ["pure epsilon", "zCDP rho"]
    people = [f"p{i}" for i in range(n)]
    s = sv.Session()
    s.grant(dict.fromkeys(people, 10.0))
    s.grant(dict.fromkeys(people, 50.0), currency="zCDP rho")
    rows = np.random.default_rng(0).uniform(-1, 1, (n, 10))
    with pytest.raises(errors.InvalidParameter, match="not charged in pure ε"):
        s.release(ridge, rows, rows[:, 0], groups=people, key="all")
    table = pa.table({"who": people, "y": rows[:, 0], **{f"x{j}": rows[:, j] for j in range(10)}})
    pq.write_table(table, tmp_path / "t.parquet")
    described = {f"x{j}": Column("number", -1, 1) for j in range(10)}
    described["y"] = Column("number", -1, 1)
    schema = sv.Schema(described, label="y", person="who")
    named = sv.Ridge(bounds=schema, delta=1e-6)
    with pytest.raises(errors.InvalidParameter, match="not charged in pure ε"):
        s.release(named, tmp_path / "t.parquet", key="all")
    budgets = sv.Budgets.of(dict.fromkeys(people, 1.0), groups=people)
    with pytest.raises(errors.InvalidParameter, match="not charged in pure ε"):
        s.plan_rows(named, budgets, spend_left="refuse")
    assert s.ledger.find("all") is None
    assert (s.balance("p0"), s.balance("p0", "zCDP rho, replace")) == (10.0, 50.0)


def test_nobody_left_to_pay_is_an_error_and_charges_nobody():
    s = sv.Session()
    s.grant({"a": 0.0, "b": 0.0})
    with pytest.raises(errors.BudgetExceeded, match="Nobody has anything left in the ledger"):
        s.release(MEAN, [1.0, 2.0], groups=["a", "b"], key="none")
    assert s.ledger.find("none") is None
    s.verify()


BALL = sv.Bounds(norm=1.0, label=(0, 10))
#: Questions of every currency and relation, what they are granted in, and the amount that is left
#: of it.
TOO_MUCH = {
    "mean": (MEAN, None, {}, "0.3 .pure epsilon, replace."),
    "quantile": (
        sv.Quantile(bounds=(0, 10), q=[0.1, 0.5, 0.9]),
        None,
        {},
        "0.3 .pure epsilon, replace.",
    ),
    "ridge": (sv.Ridge(bounds=sv.Bounds(features=(0, 1), label=(0, 10))), VALUES, {}, "0.3"),
    "logistic": (
        sv.LogisticRegression(bounds=sv.Bounds(features=(0, 1))),
        [0, 1, 0, 1, 1],
        {},
        "0.3",
    ),
    "labels": (
        sv.LogisticRegression(bounds=sv.Bounds(features=(0, 1)), neighbours="labels"),
        [0, 1, 0, 1, 1],
        {"neighbours": "replace labels"},
        "0.3 .pure epsilon, replace labels.",
    ),
    "posterior": (
        sv.PosteriorSample(gamma=1.0, alpha=5.0, bounds=BALL),
        VALUES,
        {"currency": "epsilon, delta", "neighbours": "zero out", "delta": 1e-5},
        "0.3 .epsilon at delta, zero out., 1e-05 .delta, zero out.",
    ),
}


@pytest.mark.parametrize("name", TOO_MUCH)
def test_asking_more_than_anybody_has_left_says_so_and_charges_nobody(name):
    """It was said that nobody grants anything, which is another thing."""
    question, y, kind, most = TOO_MUCH[name]
    s = sv.Session()
    s.grant({"a": 0.3, "b": 0.3, "c": 0.2}, **kind)
    if y is None:
        data = (VALUES,)
    else:
        data = ([[0.1], [0.2], [0.3], [0.4], [0.5]], y)
    with pytest.raises(
        errors.BudgetExceeded, match=f"Nobody has as much left.*The most .* has left: {most}"
    ):
        s.release(question, *data, groups=OWNERS, epsilon=0.7, key="one")
    assert s.ledger.find("one") is None
    assert {line.what for line in s.history("a")} == {"grant"}


def test_bad_data_is_refused_before_anything_is_charged():
    s = session()
    with pytest.raises(errors.MissingValues):
        s.release(MEAN, [1.0, np.nan, 3.0, 4.0, 5.0], groups=OWNERS, epsilon=0.1, key="one")
    with pytest.raises(errors.UnequalLengths):
        s.release(MEAN, VALUES[:4], groups=OWNERS, epsilon=0.1, key="one")
    assert [s.balance(p) for p in "abc"] == [1.0, 0.3, 0.5]
    s.release(MEAN, VALUES, groups=OWNERS, epsilon=0.1, key="one")  # the key is still free


def test_a_failure_after_reserve_is_never_refunded(monkeypatch):
    from sottovoce.data import kernels

    s = session()
    monkeypatch.setattr(kernels.WeightedSum, "__call__", lambda self, batch: 1 / 0)
    with pytest.raises(errors.ReleaseFailed):
        s.release(MEAN, VALUES, groups=OWNERS, epsilon=0.2, key="one")
    monkeypatch.undo()
    assert s.balance("a") < 1.0
    with pytest.raises(errors.ReleaseFailed):  # the key is spent too: it never drew, and never will
        s.release(MEAN, VALUES, groups=OWNERS, epsilon=0.2, key="one")
    s.verify()


def test_the_charge_is_written_before_a_value_is_read_for_the_answer(monkeypatch):
    from sottovoce.data import kernels

    s = session()
    seen = []
    original = kernels.WeightedSum.__call__

    def looking(self, batch):
        seen.append(s.balance("a"))
        return original(self, batch)

    monkeypatch.setattr(kernels.WeightedSum, "__call__", looking)
    s.release(MEAN, VALUES, groups=OWNERS, epsilon=0.2, key="one")
    assert seen
    assert all(balance < 1.0 for balance in seen)


def test_charges_from_outside():
    s = session()
    s.charge({"a": 0.25, "b": 1e-10}, key="survey")
    s.charge({"a": 0.25, "b": 1e-10}, key="survey")
    assert s.balance("a") == 0.75
    assert s.balance("b") == pytest.approx(0.3 - 1e-9, abs=1e-15)
    with pytest.raises(errors.KeyReused):
        s.charge({"a": 0.2}, key="survey")
    with pytest.warns(errors.OverdrawnWarning, match="Of 2 accounts more is spent"):
        s.charge({"a": 0.25, "b": 5.0, "nobody": 0.1}, key="too much")
    assert [s.balance(name) for name in ("a", "b", "nobody")] == [0.5, 0.0, 0.0]
    s.verify()
    with pytest.raises(errors.InvalidBudget):
        s.charge({"a": -0.1}, key="negative")


def test_grants_from_budgets_and_lowered_grants():
    s = sv.Session()
    s.grant(sv.Budgets.of({"a": 0.4, "b": 0.2}, groups=["a", "b", "b"]))
    assert (s.balance("a"), s.balance("b")) == (0.4, 0.2)
    s.charge({"a": 0.3}, key="one")
    s.grant({"a": 0.1})  # below what is spent: frozen, not negative
    assert s.balance("a") == 0.0
    with pytest.raises(errors.InvalidBudget):
        s.grant({"a": np.nan})
    with pytest.raises(errors.InvalidParameter):
        s.grant(sv.Budgets.of(0.1, rows=3))
    with pytest.raises(errors.UnknownPeople):
        s.balance("stranger")


def test_threads_cannot_overspend_together():
    ledger = open_ledger(None)
    ledger.grant([Amounts(["a"], np.array([100]))])
    refusals = []

    def spend(name):
        for i in range(50):
            try:
                ledger.reserve(f"{name}-{i}", "", [Amounts(["a"], np.array([1]))])
            except errors.BudgetExceeded:
                refusals.append(1)

    threads = [threading.Thread(target=spend, args=(t,)) for t in range(8)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert ledger.balances(["a"]) == [0]
    assert len(refusals) == 300
    ledger.verify()


def test_a_session_is_told_prices_by_person():
    with pytest.raises(errors.InvalidParameter):
        session().release(MEAN, VALUES, groups=OWNERS, epsilon=[0.1] * 5, key="one")


@pytest.mark.parametrize("options", [{"engine": "abacus"}, {"short": "perhaps"}])
def test_unknown_options(options):
    with pytest.raises(errors.InvalidParameter):
        sv.Session(**options)


@pytest.mark.parametrize("currency", [None, 3, "coffee", np.array([1, 2]), ["pure epsilon"]])
def test_a_currency_that_there_is_not(currency):
    with pytest.raises(errors.InvalidParameter, match="no such account"):
        sv.Session().grant({"a": 1.0}, currency=currency)


def test_prices_are_one_for_each_and_only_releases_are_verified():
    s = session()
    with pytest.raises(errors.InvalidBudget):
        s.release(MEAN, VALUES, groups=OWNERS, epsilon={"a": [0.1, 0.2]}, key="one")
    for other in (None, "release.json", {"certificate": 1}):
        with pytest.raises(errors.InvalidParameter):
            s.verify(other)


def test_a_kind_of_ledger_that_there_is_not():
    with pytest.raises(errors.UnsupportedLedger):
        sv.Session(ledger="oracle://books")


def test_grants_from_a_column_and_from_a_market():
    s = sv.Session()
    s.grant([0.4, 0.2], people=["a", "b"])
    assert (s.balance("a"), s.balance("b")) == (0.4, 0.2)
    deal = sv.market.Market(
        {"x": 1.0, "y": 2.0}, cost_range=(1, 3), trade_off=0.01, mu=1.0, sigma=1.0
    ).allocate()
    s.grant(deal)
    assert s.balance("x") == pytest.approx(deal.epsilon[0], abs=1e-9)
    for grants in ([0.1, 0.2], 0.3, None):
        with pytest.raises(errors.InvalidParameter):
            s.grant(grants)
    with pytest.raises(errors.UnequalLengths):
        s.grant([0.1], people=["a", "b"])
    s.verify()


@pytest.mark.parametrize("delta", [None, 0.0, 1.0, float("nan"), "x", "1e-6", [1e-6], 1e-6j, True])
def test_an_account_of_epsilon_at_delta_needs_a_delta(delta):
    with pytest.raises(errors.InvalidParameter):
        sv.Session().grant({"a": 1.0}, currency="epsilon, delta", delta=delta)


def test_another_account_has_no_delta():
    with pytest.raises(errors.InvalidParameter):
        sv.Session().grant({"a": 1.0}, delta=1e-6)


DELTA = "delta, replace"


def test_a_delta_is_booked_in_its_own_unit():
    """A charge of 1e-6 takes 1e-6, and not the 1e-12 that a billionth of ε would make of it."""
    s = sv.Session()
    s.grant({"a": 1.0, "b": 1.0}, currency="epsilon, delta", delta=1e-5)
    s.charge({"a": 1e-6}, key="elsewhere", account=DELTA)
    assert (s.balance("a", DELTA), s.balance("b", DELTA)) == (9e-6, 1e-5)
    assert [line.amount for line in s.history("a") if line.account == DELTA] == [1e-5, 1e-6]
    s.grant({"a": 2e-6}, currency="delta")
    assert s.balance("a", DELTA) == 1e-6
    s.charge({"a": 1e-16}, key="less than a unit", account=DELTA)
    assert s.balance("a", DELTA) == 1e-6 - 1e-15
    with pytest.warns(errors.OverdrawnWarning):
        s.charge({"a": 1e-6}, key="too much", account=DELTA)
    with pytest.raises(errors.InvalidBudget):
        s.charge({"a": 1.5}, key="no probability", account=DELTA)
    s.verify()


@pytest.mark.parametrize(
    ("amount", "options"),
    [
        (1.0, {"currency": "epsilon, delta", "delta": 1e-16}),
        (9e-16, {"currency": "delta"}),
        (1e-10, {}),
        (1e-10, {"currency": "zCDP rho"}),
    ],
)
def test_a_grant_below_the_smallest_unit_is_refused_and_not_rounded(amount, options):
    """1e-16 was granted as 1e-15 once: more than was given."""
    s = sv.Session()
    with pytest.raises(errors.InvalidBudget):
        s.grant({"a": amount}, **options)
    with pytest.raises(errors.UnknownPeople):
        s.history("a")


def test_a_grant_of_delta_is_rounded_down():
    s = sv.Session()
    s.grant({"a": 1.0}, currency="epsilon, delta", delta=2.9e-15)
    assert s.balance("a", DELTA) == 2e-15
    with pytest.warns(errors.OverdrawnWarning):
        s.charge({"a": 2.9e-15}, key="three units", account=DELTA)


def test_the_same_amounts_in_another_order_are_the_same_charge():
    s = session()
    s.charge({"a": 0.25, "b": 0.125}, key="survey")
    s.charge({"b": 0.125, "a": 0.25}, key="survey")
    assert (s.balance("a"), s.balance("b")) == (0.75, 0.175)
    for other in ({"a": 0.125, "b": 0.25}, {"a": 0.25}, {"a": 0.25, "c": 0.125}):
        with pytest.raises(errors.KeyReused):
            s.charge(other, key="survey")
    with pytest.raises(errors.KeyReused):
        s.charge({"a": 0.25, "b": 0.125}, key="survey", account="zCDP rho, replace")
    s.verify()


@pytest.mark.parametrize(
    "account", ["", "pure epsilon", "coffee, replace", None, 3, ["pure epsilon, replace"]]
)
def test_an_account_that_there_is_not_is_named_as_such(account):
    s = session()
    for asked in (
        lambda: s.balance("a", account),
        lambda: s.charge({"a": 0.1}, key="one", account=account),
        lambda: s.ledger.everybody(account),
    ):
        with pytest.raises(errors.InvalidParameter, match="no such account"):
            asked()


@pytest.mark.parametrize("key", [None, 3, b"one", "a\0b", "\ud800", ["one"]])
def test_a_key_is_text(key):
    s = session()
    for asked in (
        lambda: s.charge({"a": 0.1}, key=key),
        lambda: s.release(MEAN, VALUES, groups=OWNERS, epsilon=0.1, key=key),
    ):
        with pytest.raises(errors.InvalidParameter):
            asked()
    assert s.balance("a") == 1.0


@pytest.mark.parametrize(
    "amounts", [None, [0.1], 0.1, "a", {"a": [0.1, 0.2]}, {"a": None}, {"a": "x"}, {"a": 10**400}]
)
def test_amounts_that_are_none_are_refused(amounts):
    s = session()
    for asked in (lambda: s.charge(amounts, key="one"), lambda: s.grant(amounts)):
        with pytest.raises(errors.InvalidInput):
            asked()
    assert s.balance("a") == 1.0


def test_accounts_are_kept_apart_and_there_are_no_others():
    s = session()
    s.grant({"a": 0.25}, currency="zCDP rho", neighbours="zero out")
    s.charge({"a": 0.125}, key="elsewhere", account="zCDP rho, zero out")
    assert (s.balance("a"), s.balance("a", "zCDP rho, zero out")) == (1.0, 0.125)
    with pytest.raises(errors.InvalidParameter):
        s.grant({"a": 1.0}, currency="coffee")
    assert [line.account for line in s.history("a")] == ["pure epsilon, replace"] + 2 * [
        "zCDP rho, zero out"
    ]


def test_a_release_is_told_where_it_was_booked_and_found_there():
    s = session()
    other = session()
    release = s.release(MEAN, VALUES, groups=OWNERS, epsilon=0.1, key="one")
    booked = release.certificate.ledger
    assert list(s.ledger.entries())[booked["entry"]].digest.hex() == booked["head"]
    assert sv.Release.from_json(release.to_json()) == release
    s.verify(release)
    with pytest.raises(errors.InvalidParameter):
        other.verify(release)


def test_somebody_else_who_pays_meanwhile_is_noticed(monkeypatch):
    """Between reading balances and reserving, another release takes b's last ε: b is left out,
    nobody overspends.
    """
    s = session()
    reserve = s.ledger.reserve
    late = []

    def crossed(key, request, amounts, **options):
        if not late:
            late.append(reserve("meanwhile", "", [Amounts(["b"], np.array([250_000_000]))]))
        return reserve(key, request, amounts, **options)

    monkeypatch.setattr(s.ledger, "reserve", crossed)
    s.release(MEAN, VALUES, groups=OWNERS, epsilon=0.1, key="one")
    assert (s.balance("a"), s.balance("b")) == (pytest.approx(0.9), 0.05)
    s.verify()


@pytest.mark.parametrize(
    "question", [5, None, "mean", sv.Mean, sv.Sampled(sv.Mean(bounds=(0, 1))), LinearRegression()]
)
def test_what_is_no_question_is_refused_by_an_error_of_ours(question):
    session = sv.Session()
    session.grant({"ada": 1.0, "ben": 1.0})
    for data in (([0.2, 0.9],), ([[0.2], [0.9]], [0.2, 0.9])):
        with pytest.raises(errors.InvalidParameter, match="no question"):
            session.release(question, *data, groups=["ada", "ben"], epsilon=0.5, key="k")
    assert session.balance("ada") == 1.0


@pytest.mark.parametrize("method", ["objective", "statistics", "output", "output-tight"])
def test_a_price_of_nothing_from_everybody_is_refused_by_every_method(method):
    """Two methods ended in an error of NumPy."""
    session = sv.Session()
    session.grant({"ada": 1.0, "ben": 1.0})
    ridge = sv.Ridge(bounds=sv.Bounds(features=(0, 1), label=(0, 1)), method=method)
    with pytest.raises(sv.errors.InvalidBudget):
        session.release(
            ridge,
            [[0.5]] * 4,
            [0.5] * 4,
            groups=["ada", "ben"] * 2,
            key="k",
            epsilon={"ada": 0, "ben": 0},
        )
    assert session.balance("ada") == 1.0
