# SPDX-License-Identifier: Apache-2.0
"""Session, the one door: holds the engine and the ledger, and keeps the order of the steps.

    plan → is the table fit to be read? → reserve → run → publish

People who cannot afford a release are left out and it is planned again, until everybody who is left
can pay (or the release is refused, if the session was told so); their rows are not read. Who was
left out depends only on budgets and on earlier charges, which are public, so it tells nothing
(docs/theory/composition.md).
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from os import PathLike
from typing import Any

import numpy as np

from sottovoce import units
from sottovoce.arrays import Array, ColumnLike, TableLike, count_dimensions, factorise
from sottovoce.budgets import (
    LEAVE_OUT,
    BudgetLike,
    Budgets,
    SupportsByPerson,
    read_amounts_by_person,
    series_to_mapping,
    split_people_and_amounts,
)
from sottovoce.data.engine import ENGINE_NAMES, Dataset
from sottovoce.data.source import Values, find_schema, is_read_by_names
from sottovoce.errors import (
    BudgetExceeded,
    InvalidParameter,
    InvalidRelease,
    KeyReused,
    OverdrawnWarning,
    ReleaseFailed,
)
from sottovoce.estimator import (
    Estimator,
    Request,
    compute_earlier_fingerprint,
    name_columns,
    read_source,
    read_values,
    refuse_invalid_rows,
    run_release,
)
from sottovoce.guarantee import Currency, Neighbours
from sottovoce.ledger import (
    DEFAULT_ACCOUNT,
    Amounts,
    Ledger,
    Line,
    Reservation,
    list_charges,
    round_down_amounts,
    round_up_amounts,
    to_amount,
)
from sottovoce.ledgers.addresses import open_ledger
from sottovoce.ledgers.keyfile import check_release, make_release_message, unsigned_release_error
from sottovoce.plan import Plan, refuse_changed_plan
from sottovoce.release import Release
from sottovoce.schema import set_table_name

#: An ε at which every question can be planned.
AMPLE_UNITS = 100 * units.UNITS_PER_EPSILON
#: What a question can do.
STEPS = ("get_params", "gather", "rows_of", "plan_for", "answer")
#: From what everybody may be charged, in units by person, to budgets and rows.
ArrangeRows = Callable[[units.Units], tuple[Budgets, Any]]
#: Begins the digest of a request that covers the names of columns; earlier versions wrote a digest
#: alone.
FINGERPRINT_PREFIX = "2:"


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
        if engine not in (None, *ENGINE_NAMES) or short not in (LEAVE_OUT, "refuse"):
            raise InvalidParameter(
                "The session does not know this engine, or this way to treat people short of "
                "budget.",
                f"Engines: {', '.join(ENGINE_NAMES)}; short is 'leave out' or 'refuse'.",
                "Choose among these.",
            )
        self.engine = engine
        self.short = short
        self.ledger: Ledger = open_ledger(ledger, keys)

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
            raise _key_reused_error(key)

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
            What this release may cost each, as a number or by person; all that each has left if not
            given.
        name : str, optional
            What the table is called in the release.

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
        _refuse_no_question(question)
        prices = series_to_mapping(epsilon)
        if prices is not None:
            epsilon = prices
        if is_read_by_names(find_schema(question), X, y, epsilon, groups):
            return self._release_by_names(question, X, y, groups, key, epsilon, name)
        given = Values.of(question, X, y, AMPLE_UNITS, groups)
        if given.groups is None:
            raise _nobody()
        groups = given.groups
        people, owner = factorise(groups)
        names = people.tolist()
        if epsilon is None:
            asked = None
        else:
            asked = _round_prices(epsilon, names)
        columns, features = name_columns(question, given)
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
            return self._return_stored(known, request)

        def arranged(granted: units.Units) -> tuple[Budgets, Dataset]:
            wanted = dict(zip(people.tolist(), units.to_epsilon(granted).tolist(), strict=True))
            budgets, rows = read_values(
                question, given, Budgets.of(wanted, groups, zero=LEAVE_OUT), None
            )
            return budgets, replace(rows, subject=set_table_name(rows.subject, name))

        if asked is None:
            asked = self._get_remaining(question, names, arranged)
        return self._reserve_and_release(question, key, request, names, asked, arranged)

    def release_rows(
        self,
        question: Estimator,
        budgets: Budgets,
        rows: Dataset,
        key: str,
        agreed: str | None = None,
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
        return self._release_table(
            question, budgets, rows, key, budgets.by_person(budgets.kinds.epsilon), agreed
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
    ) -> Release:
        """Answers a question about a table by the names of its columns."""
        by_person = epsilon is None or isinstance(epsilon, Mapping)
        if by_person:
            granted = units.to_epsilon(AMPLE_UNITS)
        else:
            granted = epsilon
        budgets, rows = read_source(
            question, table, y, epsilon=granted, groups=groups, engine=self.engine
        )
        if budgets.people is None:
            raise _nobody()
        rows = replace(rows, subject=set_table_name(rows.subject, name))
        if not by_person:
            return self.release_rows(question, budgets, rows, key)
        if epsilon is None:
            asked = None
        else:
            asked = _round_prices(epsilon, budgets.names())
        return self._release_table(question, budgets, rows, key, asked)

    def _release_table(
        self,
        question: Estimator,
        budgets: Budgets,
        rows: Dataset,
        key: str,
        asked: units.Units | None,
        agreed: str | None = None,
    ) -> Release:
        """Answers at these prices by person; None: at all that each has left."""
        kinds = budgets.kinds
        if budgets.people is None:
            people = np.empty(0)
        else:
            people = budgets.people
        about = [rows.value, None if rows.features is None else rows.features.columns]
        recoding = getattr(
            rows.features, "recoding", None
        )  # which names the features of rows in memory, too
        if recoding is None:
            features = None
        else:
            features = [feature.name for feature in recoding.features]
        facts = (budgets.by_person(kinds.rows), kinds.people, *(() if asked is None else (asked,)))
        request = Request(question, [*about, features], people, facts, about, facts, features)
        known = self.ledger.find(key)
        if (
            known is not None
        ):  # looked up before balances are: what it cost then is not asked for again
            return self._return_stored(known, request)
        names = people.tolist()

        def arranged(granted: units.Units) -> tuple[Budgets, Dataset]:
            lowered = budgets.with_grants(granted)
            return lowered, replace(rows, owner=replace(rows.owner, codes=lowered.codes))

        if asked is None:
            asked = self._get_remaining(question, names, arranged)
        return self._reserve_and_release(question, key, request, names, asked, arranged, agreed)

    def plan_rows(self, question: Estimator, budgets: Budgets) -> Plan:
        """Return the plan of such a release as it would be made now; no row is read.

        Parameters
        ----------
        question : Estimator
            An estimator.
        budgets : Budgets
            Who allows how much for this release.

        Returns
        -------
        Plan
            The plan; nobody is charged.

        Raises
        ------
        BudgetExceeded
            Nobody can afford it.
        """
        asked = budgets.by_person(budgets.kinds.epsilon)
        return self._plan_affordable(
            question, budgets.names(), asked, lambda granted: (budgets.with_grants(granted), None)
        )[0]

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
                "A release was not booked in this ledger.", "", "Pass releases made from it."
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
                "The books hold the bytes that were published.",
                "Ask again under its key for these.",
            )

    def _get_remaining(
        self, question: Estimator, people: Sequence[Any], arranged: ArrangeRows
    ) -> units.Units:
        """What each has left in the account that the question charges, which a plan for anybody's ε
        tells.
        """
        guarantee = question.plan_for(*arranged(np.full(len(people), AMPLE_UNITS))).guarantee
        if guarantee.currency != "pure epsilon":
            raise InvalidParameter(
                "What people have left is not in ε, or is an ε at δ.",
                "This question is not charged in pure ε.",
                "Say what the release may cost each, as an ε for everybody or for each person.",
            )
        left = self.ledger.balances(people, f"pure epsilon, {guarantee.neighbours}")
        if not left.any():
            raise BudgetExceeded(
                "Nobody has anything left in the books.",
                "This release is charged to the account "
                f"{f'pure epsilon, {guarantee.neighbours}'!r}.",
                "Ask for larger grants. Nobody was charged.",
            )
        return left

    def _reserve_and_release(
        self,
        question: Estimator,
        key: str,
        request: Request,
        people: Sequence[Any],
        asked: units.Units,
        arranged: ArrangeRows,
        agreed: str | None = None,
    ) -> Release:
        made = None
        hidden = self._hide_request(request)
        while made is None:
            plan, rows = self._plan_affordable(question, people, asked, arranged)
            if agreed is not None:
                refuse_changed_plan(replace(plan, subject=rows.subject), agreed)
            refuse_invalid_rows(question, plan, rows)
            try:
                made = self.ledger.reserve(key, hidden, _list_amounts(plan, people))
            except (
                BudgetExceeded
            ):  # another release was paid for since the balances were read: look again
                if self.short == "refuse":
                    raise
        if not made.fresh:
            return self._return_stored(made, request)
        release = run_release(question, plan, rows)
        release = self._sign(release, made)
        self.ledger.publish(key, release.to_json())
        return release

    def _sign(self, release: Release, made: Reservation) -> Release:
        """Returns a release whose certificate names the entry that paid for it, signed by the
        ledger.
        """
        booked = {
            "id": self.ledger.identity,
            "entry": made.number,
            "head": made.head,
            "key": self.ledger.public_key,
        }
        unsigned = replace(release, certificate=replace(release.certificate, ledger=booked))
        signed = {**booked, "signature": self.ledger.sign(make_release_message(unsigned.to_json()))}
        return replace(release, certificate=replace(release.certificate, ledger=signed))

    def _plan_affordable(
        self, question: Estimator, people: Sequence[Any], asked: units.Units, arranged: ArrangeRows
    ) -> tuple[Plan, Any]:
        """Plans, leaves out who cannot pay, and plans again until everybody can; who remains may
        have to pay more.
        """
        granted = np.array(asked)
        while True:
            budgets, rows = arranged(granted)
            plan = question.plan_for(budgets, rows)
            short = np.zeros(len(people), dtype=bool)
            most = []
            for amounts in _list_amounts(plan, people):
                # Whoever is asked for more than they have is left out, even if the plan takes less
                # of it.
                if amounts.account.startswith("pure"):
                    wanted = np.maximum(amounts.units, granted)
                else:
                    wanted = amounts.units
                left = self.ledger.balances(people, amounts.account)
                short |= wanted > left
                most.append(f"{to_amount(amounts.account, int(left.max())):g} ({amounts.account})")
            if not short.any():
                return plan, rows
            if self.short == "refuse":
                raise BudgetExceeded(
                    "Somebody has not enough left for this.",
                    "It was asked to refuse rather than to leave people out.",
                    "Ask for less, or have people who are short left out.",
                )
            granted[short] = 0
            if not granted.any():
                raise BudgetExceeded(
                    "Nobody has as much left in the books as this release asks of them.",
                    f"The most that anybody here has left: {', '.join(most)}.",
                    "Ask for less, or for larger grants. Nobody was charged.",
                )

    def _hide_request(self, request: Request) -> str:
        # Under the ledger's key, so that nobody who has the database alone can try names against
        # it.
        return FINGERPRINT_PREFIX + self.ledger.hidden(request.fingerprint())

    def _return_stored(self, known: Reservation, request: Request) -> Release:
        """Returns what is stored under a key, if it was stored for this request."""
        if known.release is None:
            stored = None
        else:
            stored = Release.from_json(known.release)
        if known.request.startswith(FINGERPRINT_PREFIX):
            same = known.request == self._hide_request(request)
        # written by a version that did not look at the names of columns: what it has stored must
        # not disagree
        else:
            same = known.request == self.ledger.hidden(request.earlier_fingerprint())
            same = same and (stored is None or not request.contradicts(stored))
        if not same:
            raise _key_reused_error(known.key)
        if stored is None:
            raise ReleaseFailed(
                "This key is reserved, and no release is stored under it.",
                "It is being made elsewhere just now, or was interrupted; what it costs stays "
                "spent.",
                "Ask again in a while; if it was interrupted, choose a new key.",
            )
        return stored


def _list_amounts(plan: Plan, people: Sequence[Any]) -> list[Amounts]:
    if len(people):
        return list_charges(plan.guarantee, people)
    return []


def _refuse_unsold(budgets: Any, currency: Any, neighbours: Any) -> None:
    """Refuses a market's allocation in another account than that of what sellers have sold."""
    sold = getattr(budgets, "sold", None)
    if isinstance(sold, tuple) and sold != (currency, neighbours):
        raise InvalidParameter(
            "What a market has bought is granted in another account.",
            f"Sellers have sold {' by '.join(sold)} of all their rows, and nothing else.",
            "Grant it without currency and neighbours, or agree anew with the sellers and grant "
            "what they then allow.",
        )


def _refuse_stray_delta(delta: Any) -> None:
    if delta is not None:
        raise InvalidParameter(
            "Only an account of ε at δ has a δ.",
            "In any other account it would count for nothing.",
            "Name the currency of ε at δ, or give no δ.",
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
        )
    return np.full(len(people), int(units.round_down(epsilon)))


def _refuse_no_question(question: Any) -> None:
    if isinstance(question, type) or not all(
        callable(getattr(question, step, None)) for step in STEPS
    ):
        raise InvalidParameter(
            "This is no question that a session can ask.",
            "It plans from budgets and answers once it is paid for; baselines and other "
            "estimators do not.",
            "Pass one of sottovoce's own estimators, such as sv.Mean(bounds=(0, 1)).",
        )


def _nobody() -> InvalidParameter:
    return InvalidParameter(
        "Rows do not say whose they are.",
        "Accounts belong to people.",
        "Pass groups= with the owner of each row, or a schema that names the column of people.",
    )


def _key_reused_error(key: str) -> KeyReused:
    return KeyReused(
        f"The key {key!r} stands for another release already.",
        "One key, one release, for ever.",
        "Choose a new key.",
    )
