# SPDX-License-Identifier: Apache-2.0
"""Session: an engine and a ledger, and what is granted, charged and released with them.

The order of steps of a release is that of estimator.make_release; how a ledger pays for it is in
booking.py. plan_from_table and release_from_table plan and release from a source of data, with a
session or without: for the command line and the page.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from os import PathLike
from typing import Any, Protocol, runtime_checkable

import numpy as np

from sottovoce import booking, units
from sottovoce.arrays import Array, ColumnLike, TableLike, count_dimensions, factorise
from sottovoce.booking import (
    AMPLE_UNITS,
    FINGERPRINT_PREFIX,
    Request,
    compute_earlier_fingerprint,
    get_remaining,
    key_reused_error,
    name_columns,
    plan_rows,
    release_rows,
    return_stored,
)
from sottovoce.budgets import (
    LEAVE_OUT,
    BudgetLike,
    Budgets,
    SupportsByPerson,
    SupportsSale,
    nobody_sells_error,
    read_amounts_by_person,
    series_to_mapping,
    split_people_and_amounts,
)
from sottovoce.data.engine import ENGINE_NAMES, Dataset, Watch
from sottovoce.data.source import DataSource, find_schema, is_read_by_names
from sottovoce.errors import (
    InvalidParameter,
    InvalidRelease,
    OverdrawnWarning,
)
from sottovoce.estimator import (
    Estimator,
    get_budgets,
    plan_budgets,
    plan_dataset,
    read_public,
    read_source,
    release_unbooked,
)
from sottovoce.guarantee import Currency, Neighbours
from sottovoce.ledger import (
    DEFAULT_ACCOUNT,
    Amounts,
    Ledger,
    Line,
    Reservation,
    Sale,
    round_down_amounts,
    round_up_amounts,
    to_amount,
)
from sottovoce.ledgers import open_ledger
from sottovoce.ledgers.keyfile import check_release, unsigned_release_error
from sottovoce.plan import Plan
from sottovoce.release import Release
from sottovoce.schema import set_table_name


@runtime_checkable
class SupportsToSale(Protocol):
    """What can be recorded as a sale: the allocation of a market."""

    def to_sale(self) -> Sale:
        """Return what each has sold, for how many coins."""


#: What a question can do.
STEPS = ("get_params", "validate", "read_arrays", "read_table", "plan_for", "release_under")


class Session:
    """Grants, charges and releases against one set of books.

    >>> import sottovoce as sv
    >>> session = sv.Session()
    >>> session.grant({"ada": 1.0, "ben": 0.2})
    >>> mean = sv.Mean(bounds=(0, 1))
    >>> asked = {"groups": ["ada", "ben"], "epsilon": 0.2, "key": "first"}
    >>> release = session.release(mean, [0.2, 0.9], **asked)
    >>> session.balance("ben")
    0.0
    >>> session.release(mean, [0.2, 0.9], **asked) == release
    True
    """

    def __init__(
        self,
        ledger: str | Ledger | None = None,
        engine: str | None = None,
        short: str = LEAVE_OUT,
        keys: str | PathLike[str] | None = None,
    ) -> None:
        """``ledger``: "sqlite:///books.db", "postgresql://…", or None for books that end with the
        process.

        ``engine``: what opens tables that are given as paths: "arrow", "duckdb", "spark" or "dask";
        None: what suits.

        ``keys``: the folder of the key and the heads of books in PostgreSQL; those in a file have
        theirs beside them.
        """
        if engine not in (None, *ENGINE_NAMES):
            raise InvalidParameter(
                "The session does not know this engine.",
                f"Engines: {', '.join(ENGINE_NAMES)}.",
                "Choose among these.",
                parameter="engine",
            )
        if short not in (LEAVE_OUT, "refuse"):
            raise InvalidParameter(
                "The session does not know this way to treat people short of budget.",
                "short is 'leave out' or 'refuse'.",
                "Choose among these.",
                parameter="short",
            )
        self.engine = engine
        self.short = short
        self.ledger: Ledger = open_ledger(ledger, keys)

    def __repr__(self) -> str:
        """What happens to people who are short of budget; no address, which may hold a password."""
        return f"<Session short={self.short!r}>"

    def grant(
        self,
        budgets: Mapping[Any, Any] | SupportsByPerson | ColumnLike,
        people: ColumnLike | None = None,
        *,
        currency: Currency = "pure epsilon",
        neighbours: Neighbours = "replace",
        delta: float | None = None,
    ) -> None:
        """Set what each person allows in all in one account.

        It is the total of the account of this currency and this neighbour relation, over all
        releases that are charged to it, and not an addition. Accounts of other kinds have totals of
        their own: whoever grants in two of them allows both. Amounts are rounded down to whole
        units: billionths, and 10⁻¹⁵ for δ. What a market has bought is granted as it was sold
        alone.

        Parameters
        ----------
        budgets :
            A mapping from person to ε (or ρ, by currency), Budgets, a market's allocation, or a
            column with people beside it.
        people :
            The column of names, where budgets is one of amounts.
        currency : Currency
            What amounts count: "pure epsilon", "zCDP rho" or "epsilon, delta".
        neighbours : Neighbours
            The neighbour relation of the account.
        delta : float, optional
            For "epsilon, delta": the δ that each allows in all.

        Raises
        ------
        InvalidInput
            An amount or a name cannot be used.
        LedgerUnavailable
            The books cannot be written.
        """
        _refuse_unsold(budgets, currency, neighbours)
        names, amounts = split_people_and_amounts(budgets, people)
        if not isinstance(currency, str) or currency != "epsilon, delta":
            _refuse_stray_delta(delta)
            account = f"{currency}, {neighbours}"
            self.ledger.grant([Amounts(names, round_down_amounts(account, amounts), account)])
            return
        both = (
            (f"epsilon at delta, {neighbours}", amounts),
            (f"delta, {neighbours}", _spread_delta(delta, names)),
        )
        self.ledger.grant(
            [
                Amounts(names, round_down_amounts(account, granted), account)
                for account, granted in both
            ]
        )

    def record_sale(
        self, sale: SupportsToSale | Sale, *, key: str | None = None, money: str = ""
    ) -> Reservation:
        """Add what people have sold to what they allow, and write down what they were paid.

        Unlike a grant it is an addition, in the account of what was sold: a second sale adds to the
        first. A key stands for one sale for ever, so that the same sale is never added twice.

        Parameters
        ----------
        sale :
            A market's allocation, with its payments, or a Sale.
        key : str, optional
            What the sale is called in statements; if not given, a name that follows from it.
        money : str
            What the money is called, such as EUR.

        Returns
        -------
        Reservation
            The entry; ``fresh`` is False where the sale was in the books already.

        Raises
        ------
        InvalidInput
            An amount, a payment or a name cannot be used.
        KeyReused
            Another sale is in the books under the key.
        """
        if not isinstance(sale, Sale):
            if not isinstance(sale, SupportsToSale):
                raise InvalidParameter(
                    "This is no sale.",
                    "A sale says what each has sold, and what they were paid.",
                    "Pass the allocation of a market, with payments.",
                    parameter="sale",
                )
            sale = sale.to_sale()
        if money:
            sale = replace(sale, money=money)
        return self.ledger.sell(sale, key)

    def charge(
        self, amounts: Mapping[Any, float], key: str, account: str = DEFAULT_ACCOUNT
    ) -> None:
        """Write down what something outside this library cost; the same key again changes nothing.

        It has happened, so it is never refused because somebody is short: they have nothing left
        then, and a warning (``OverdrawnWarning``) says of how many accounts more is spent than
        allowed. Somebody without an account gets one, in which nothing is granted.

        Parameters
        ----------
        amounts : Mapping[Any, float]
            ε, ρ or δ by person, whichever the account counts; rounded up.
        key : str
            What the charge is remembered by.
        account : str
            The currency and the neighbour relation that are counted.

        Raises
        ------
        InvalidInput
            An amount or a name cannot be used.
        KeyReused
            Something else was charged under the key.
        """
        listed = series_to_mapping(amounts)
        if listed is None:
            named = amounts
        else:
            named = listed
        if not isinstance(named, Mapping):
            raise InvalidParameter(
                "Charges name nobody.",
                "A charge is to a person.",
                "Pass a mapping from person to what it cost.",
                parameter="amounts",
            )
        names, cost = read_amounts_by_person(
            named, lambda values: round_up_amounts(account, values)
        )
        digests = self.ledger.digests(names).hex()
        size = len(digests) // max(len(names), 1)
        whose = [digests[start : start + size] for start in range(0, len(digests), size or 1)]
        booked = sorted(zip(whose, cost.tolist(), strict=True))  # whatever order they are named in
        request = FINGERPRINT_PREFIX + self.ledger.hidden(json.dumps(["outside", account, booked]))
        made = self.ledger.reserve(key, request, [Amounts(names, cost, account)], outside=True)
        if made.overdrawn:
            warnings.warn(
                f"Of {made.overdrawn:,} accounts more is spent now than was allowed: nothing is "
                "left of them.",
                OverdrawnWarning,
                stacklevel=2,
            )
        if made.request == request:
            return
        spelt = np.array(list(map(str, names)), dtype=object)
        if made.request != self.ledger.hidden(
            compute_earlier_fingerprint(["outside", account, cost.tolist()], spelt)
        ):
            raise key_reused_error(key)

    def balance(self, person: Any, account: str = DEFAULT_ACCOUNT) -> float:
        """Return what a person has left.

        Parameters
        ----------
        person :
            A name.
        account : str
            The currency and the neighbour relation that are counted.

        Returns
        -------
        float
            ε, or ρ, or δ, by the account.

        Raises
        ------
        UnknownPeople
            The person has no account.
        """
        return to_amount(account, int(self.ledger.balances([person], account)[0]))

    def history(self, person: Any) -> list[Line]:
        """Return everything that was ever written about a person.

        Parameters
        ----------
        person :
            A name.

        Returns
        -------
        list[Line]
            Grants, charges, and what became of them.

        Raises
        ------
        UnknownPeople
            The person has no account.
        """
        return self.ledger.history(person)

    def release(
        self,
        question: Estimator,
        X: TableLike,
        y: ColumnLike | None = None,
        *,
        groups: ColumnLike | None = None,
        key: str,
        epsilon: BudgetLike | None = None,
        name: str | None = None,
        unknown: str = "refuse",
    ) -> Release:
        """Answer a question about a table, and charge its people.

        Parameters
        ----------
        question : Estimator
            An estimator.
        X :
            One column or the features, in memory, or a table that this session's engine opens, of
            which y, groups and epsilon then name columns.
        y :
            Labels, or the name of their column; a schema may name it.
        groups :
            Whose each row is; may be left out where a schema names people.
        key : str
            What the release is remembered by: the same key returns the same bytes.
        epsilon :
            What this release may cost each, as a number, by person, or as the allocation of a
            market; all that each has left if not given.
        name : str, optional
            What the table is called in the release.
        unknown : str
            Where all that each has left is spent: whether people without an account are refused
            ("refuse") or left out ("leave out").

        Returns
        -------
        Release
            What was published, signed by the ledger.

        Raises
        ------
        InvalidInput
            Something cannot be used; nobody is charged.
        BudgetExceeded
            Nobody, or somebody if so chosen, can afford it.
        KeyReused
            Something else was asked under the key.
        ReleaseFailed
            Reading the rows failed; what was charged stays charged.
        """
        question = _to_question(question)
        _refuse_unknown_word(unknown)
        prices = series_to_mapping(epsilon)
        sold = None
        if isinstance(epsilon, SupportsSale):
            sold = epsilon.sold
            epsilon = _list_sold(epsilon)
        elif prices is not None:
            epsilon = prices
        if is_read_by_names(find_schema(question), X, y, epsilon, groups):
            return self._release_by_names(question, X, y, groups, key, epsilon, name, sold, unknown)
        source = DataSource.of_columns(question, X, y, AMPLE_UNITS, groups)
        if source.owners is None:
            raise _nobody()
        groups = source.owners
        people, owner = factorise(groups)
        names = people.tolist()
        if epsilon is None:
            asked = None
        else:
            asked = _round_prices(epsilon, names)
        columns, features = name_columns(question, source)
        if isinstance(epsilon, Mapping):
            price: list[str] | str = sorted(map(repr, epsilon.items()))
        else:
            price = repr(epsilon)
        if asked is None:
            facts: tuple[Array, ...] = (owner,)
        else:
            facts = (owner, asked)
        request = Request(question, columns, people, facts, price, (owner,), features)
        known = self.ledger.find(key)
        if (
            known is not None
        ):  # looked up before balances are: what it cost then is not asked for again
            return return_stored(self.ledger, known, request)

        def arranged(granted: units.Units) -> Dataset:
            wanted = dict(zip(people.tolist(), units.to_epsilon(granted).tolist(), strict=True))
            budgets = Budgets.of(wanted, groups, zero=LEAVE_OUT)
            budgets = replace(budgets, sold=sold)
            dataset = read_source(question, replace(source, epsilon=budgets, owners=None))
            return replace(dataset, subject=set_table_name(dataset.subject, name))

        spends_left = asked is None
        if asked is None:
            asked = get_remaining(
                self.ledger,
                names,
                lambda granted: plan_dataset(question, arranged(granted)),
                unknown == LEAVE_OUT,
            )
        return booking.reserve_and_release(
            self.ledger,
            self.short,
            question,
            key,
            request,
            names,
            asked,
            arranged,
            None,
            None,
            spends_left,
        )

    def release_rows(
        self,
        question: Estimator,
        budgets: Budgets,
        rows: Dataset,
        key: str,
        agreed: str | None = None,
        on_commit: Callable[[], None] | None = None,
        spend_left: str | None = None,
    ) -> Release:
        """Answer a question about rows wherever they live.

        People with names need a grant first. People without names have no account: they are
        protected by the budgets of the table alone.

        Parameters
        ----------
        question : Estimator
            An estimator.
        budgets : Budgets
            Who allows how much for this release.
        rows : Dataset
            What is read.
        key : str
            What the release is remembered by: the same key returns the same bytes.
        agreed : str, optional
            The digest of a plan: nobody is charged for another.
        on_commit : Callable, optional
            Is called right before people are charged; if it raises, nobody is.
        spend_left : str, optional
            Whether all that each has left may be spent, instead of the budgets: "leave-out" (of the
            release, who has no account) or "refuse" (it, if somebody has none).

        Returns
        -------
        Release
            What was published, signed by the ledger.

        Raises
        ------
        BudgetExceeded
            Nobody can afford it.
        KeyReused
            Something else was asked under the key.
        PlanChanged
            The plan is not the one that was agreed to.
        """
        dataset = replace(rows, budgets=budgets)
        asked = None
        if spend_left is None:
            asked = budgets.by_person(budgets.kinds.epsilon)
        return release_rows(
            self.ledger,
            self.short,
            question,
            dataset,
            key,
            asked,
            agreed,
            on_commit,
            spend_left or "refuse",
        )

    def _release_by_names(
        self,
        question: Estimator,
        table: Any,
        y: Any,
        groups: Any,
        key: str,
        epsilon: Any,
        name: str | None,
        sold: tuple[str, str] | None = None,
        unknown: str = "refuse",
    ) -> Release:
        """Answers a question about a table by the names of its columns."""
        by_person = epsilon is None or isinstance(epsilon, Mapping)
        if by_person:
            granted = units.to_epsilon(AMPLE_UNITS)
        else:
            granted = epsilon
        source = DataSource.of_table(question, table, y, granted, groups, self.engine)
        dataset = read_source(question, source)
        budgets = get_budgets(dataset)
        if budgets.people is None:
            raise _nobody()
        dataset = replace(
            dataset,
            subject=set_table_name(dataset.subject, name),
            budgets=replace(budgets, sold=sold),
        )
        if not by_person:
            return self.release_rows(question, budgets, dataset, key)
        if epsilon is None:
            asked = None
        else:
            asked = _round_prices(epsilon, budgets.names())
        left = "leave-out" if unknown == LEAVE_OUT else "refuse"
        return release_rows(self.ledger, self.short, question, dataset, key, asked, spend_left=left)

    def plan_rows(
        self,
        question: Estimator,
        budgets: Budgets,
        spend_left: str | None = None,
        public: Dataset | None = None,
    ) -> Plan:
        """Return the plan of such a release as it would be made now; no row is read.

        Parameters
        ----------
        question : Estimator
            An estimator.
        budgets : Budgets
            Who allows how much for this release.
        spend_left : str, optional
            As in ``release_rows``.
        public : Dataset, optional
            Public features, where the question's plan needs them.

        Returns
        -------
        Plan
            The plan; nobody is charged.

        Raises
        ------
        BudgetExceeded
            Nobody can afford it.
        """
        return plan_rows(self.ledger, self.short, question, budgets, spend_left, public)

    def verify(self, *releases: Release) -> None:
        """Check that the books add up, and that releases are in them.

        Parameters
        ----------
        *releases : Release
            Releases of these books.

        Raises
        ------
        LedgerBroken
            The books do not add up.
        InvalidRelease
            A release is not what was published.
        InvalidParameter
            A release was not booked here.
        """
        for release in releases:
            self._confirm(release)
        self.ledger.verify()

    def _confirm(self, release: Release) -> None:
        """Looks for a release in the books; they are sealed if it is not there and they have signed
        it.

        A certificate that they have not signed proves nothing, and must not stop anybody.
        """
        booked = None
        if isinstance(release, Release):
            booked = release.certificate.ledger
        if booked is None or booked["id"] != self.ledger.identity:
            raise InvalidParameter(
                "A release was not booked in this ledger.",
                "",
                "Pass releases made from it.",
                parameter="releases",
            )
        there = self.ledger.confirm(booked["entry"], booked["head"])
        if "signature" in booked:
            check_release(release.to_json(), self.ledger.public_key)
            if not there:
                self.ledger.seal(booked["entry"], booked["head"])
            return
        signed_from = self.ledger.signed_from
        if not there or (signed_from is not None and int(booked["entry"]) >= signed_from):
            raise unsigned_release_error()
        self._refuse_changed(release, int(booked["entry"]))

    def _refuse_changed(self, release: Release, number: int) -> None:
        """Refuses a release without a signature that is not the one in the books: anybody can copy
        a certificate.
        """
        (key,) = [entry.key for entry in self.ledger.entries() if entry.number == number]
        known = self.ledger.find(key)
        if known is None or known.release is None or Release.from_json(known.release) != release:
            raise InvalidRelease(
                "A release is not what was published under its entry: it was changed.",
                "The ledger holds the bytes that were published.",
                "Ask again under its key for these.",
                parameter="releases",
            )


def plan_from_table(
    source: DataSource,
    estimator: Estimator,
    watch: Watch | None = None,
    session: Session | None = None,
) -> Plan:
    """Return the plan of a release from a table, from the columns of people and budgets alone.

    With a ``session`` it is the plan of a release as it would be made now, from what people have
    left; ``watch`` is told how many rows were read.
    """
    public = read_public(estimator, source)
    if public is None:
        budgets, _ = source.read_budgets(watch)
    else:
        budgets = get_budgets(public)
    if session is None:
        plan = plan_budgets(estimator, budgets, public)
    else:
        plan = session.plan_rows(estimator, budgets, source.spend_left, public)
    return replace(plan, subject=source.subject)


def release_from_table(
    source: DataSource,
    estimator: Estimator,
    watch: Watch | None = None,
    session: Session | None = None,
    *,
    key: str = "",
    agreed: str | None = None,
    on_commit: Callable[[], None] | None = None,
) -> Release:
    """Return the release from a table, paid for by the accounts of a session, or by nobody.

    Without a ``session`` everybody grants what the table says, and no ledger remembers it. The
    others are those of ``Session.release_rows``; ``watch`` is told how many rows were read.
    """
    if session is None:
        return release_unbooked(source, estimator, watch)
    dataset = read_source(estimator, source, watch)
    return session.release_rows(
        estimator, get_budgets(dataset), dataset, key, agreed, on_commit, source.spend_left
    )


def _refuse_unsold(budgets: Any, currency: Any, neighbours: Any) -> None:
    """Refuses a market's allocation in another account than that of what sellers have sold."""
    sold = getattr(budgets, "sold", None)
    if isinstance(sold, tuple) and sold != (currency, neighbours):
        raise InvalidParameter(
            "What a market has bought is granted in another account.",
            f"Sellers have sold {' by '.join(sold)} of all their rows, and nothing else.",
            "Grant it without currency and neighbours, or agree anew with the sellers and grant "
            "what they then allow.",
            parameter="currency",
        )


def _refuse_stray_delta(delta: Any) -> None:
    if delta is not None:
        raise InvalidParameter(
            "Only an account of ε at δ has a δ.",
            "In any other account it would count for nothing.",
            "Name the currency of ε at δ, or give no δ.",
            parameter="delta",
        )


def _spread_delta(delta: Any, people: Sequence[Any]) -> Array:
    if (
        isinstance(delta, bool)
        or not isinstance(delta, float | int | np.number)
        or not 0 < delta < 1
    ):
        raise InvalidParameter(
            "An account of ε at δ needs a δ.",
            "δ is a number between 0 and 1.",
            "Give one, such as 1e-6.",
            parameter="delta",
        )
    return np.full(len(people), float(delta))


def _round_prices(epsilon: Any, people: Sequence[Any]) -> units.Units:
    """What a release may cost each; somebody who is not named in a mapping is left out."""
    if isinstance(epsilon, Mapping):
        names, granted = read_amounts_by_person(
            epsilon, lambda values: units.round_down(values, zero_allowed=True)
        )
        named = dict(zip(names, granted.tolist(), strict=True))
        return np.array([named.get(person, 0) for person in people], dtype=np.int64)
    if count_dimensions(epsilon):
        raise InvalidParameter(
            "A session is told by person what a release may cost, not by row.",
            "",
            "Pass one ε for everybody, or a mapping from person to ε.",
            parameter="epsilon",
        )
    return np.full(len(people), int(units.round_down(epsilon)))


def _list_sold(sale: SupportsSale) -> dict[Any, float]:
    """Returns ε by seller; refuses a sale of nothing."""
    sold: dict[Any, float] = sale.by_person()
    if not any(sold.values()):
        raise nobody_sells_error()
    return sold


def _to_question(question: Any) -> Estimator:
    """Returns a question, or a baseline around one in the steps of a question; refuses others."""
    if hasattr(question, "to_question") and not isinstance(question, type):
        question = question.to_question()
    _refuse_no_question(question)
    asked: Estimator = question
    return asked


def _refuse_no_question(question: Any) -> None:
    if isinstance(question, type) or not all(
        callable(getattr(question, step, None)) for step in STEPS
    ):
        raise InvalidParameter(
            "This is no question that a session can ask.",
            "It plans from budgets and answers once it is paid for; baselines that pick rows, and "
            "other estimators, do not.",
            "Pass one of sottovoce's own estimators, such as sv.Mean(bounds=(0, 1)).",
            parameter="question",
        )


def _refuse_unknown_word(unknown: Any) -> None:
    if not (isinstance(unknown, str) and unknown in ("refuse", LEAVE_OUT)):
        raise InvalidParameter(
            "unknown is neither 'refuse' nor 'leave out'.",
            "",
            "Choose one of the two.",
            parameter="unknown",
        )


def _nobody() -> InvalidParameter:
    return InvalidParameter(
        "Rows do not say whose they are.",
        "Accounts belong to people.",
        "Pass groups= with the owner of each row, or a schema that names the column of people.",
        parameter="groups",
    )
