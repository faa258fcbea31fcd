# SPDX-License-Identifier: Apache-2.0
"""How a release is booked under a key: what the key stands for, and who pays.

    request → fingerprint        the same key must always mean the same request
    plan → reserve → publish     what a ledger does for a release (estimator.Payer)

People who cannot afford a release are left out and it is planned again, until everybody who is left
can pay (or the release is refused, if the session was told so); their rows are not read. Who was
left out depends only on budgets and on earlier charges, which are public, so it tells nothing
(docs/theory/composition.md).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, is_dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from sottovoce import units
from sottovoce.arrays import Array, list_column_names, list_feature_names
from sottovoce.budgets import Budgets
from sottovoce.data.budget_table import LEAVE_OUT_WORD
from sottovoce.data.engine import Dataset
from sottovoce.data.source import DataSource, names_features
from sottovoce.errors import (
    BudgetExceeded,
    InvalidParameter,
    KeyReused,
    LedgerUnavailable,
    ReleaseFailed,
    UnknownPeople,
)
from sottovoce.estimator import (
    Estimator,
    Payment,
    get_budgets,
    make_release,
    name_class,
    plan_budgets,
    plan_dataset,
)
from sottovoce.guarantee import Guarantee
from sottovoce.ledger import (
    ACCOUNTS,
    AllBalances,
    Amounts,
    Ledger,
    Reservation,
    list_charges,
    to_amount,
)
from sottovoce.ledgers.keyfile import make_release_message
from sottovoce.plan import Plan, refuse_changed_plan
from sottovoce.release import Release
from sottovoce.schema import LATER_ENTRIES

if TYPE_CHECKING:
    from sottovoce.ledgers.sql_ledger import SqlLedger

#: An ε at which every question can be planned.
AMPLE_UNITS = 100 * units.UNITS_PER_EPSILON
#: Fields of a schema and of its columns that name things for people.
UNHASHED_FIELDS = ("name", "unit")
#: Begins the digest of a request that covers the names of columns; earlier versions wrote a digest
#: alone.
FINGERPRINT_PREFIX = "2:"
#: From what everybody may be charged, in units by person, to their budgets and rows.
ArrangeRows = Callable[[units.Units], Dataset]


@dataclass(frozen=True, eq=False)
class Request:
    """What a key stands for, for ever: a question, the columns it is about, of whom, and at which
    price.

    Values of the data are not in it: to look an answer up by private data would itself be an
    answer.
    """

    question: Estimator
    columns: list[Any]  # names of features and label, or how many there are where they have none
    people: Array
    facts: tuple[Array, ...]  # whole numbers by row or by person: whose each row is, and prices
    # what versions whose requests did not cover the names of columns put in place of these two
    earlier: Any = ""
    earlier_facts: tuple[Array, ...] = ()
    features: list[str] | None = (
        None  # what a release calls the features; None: nothing that could be compared
    )

    def fingerprint(self) -> str:
        """Returns a fingerprint of all of it: the same key must always mean the same request."""
        asked = encode_question(self.question, self.columns)
        digest = hashlib.sha256(
            json.dumps(asked, sort_keys=True, default=_encode_parameter).encode()
        )
        for part in (repr(self.people.tolist()).encode(), *map(_to_int64_bytes, self.facts)):
            digest.update(
                len(part).to_bytes(8, "big")
            )  # so that no two lists of parts run together
            digest.update(part)
        return digest.hexdigest()

    def earlier_fingerprint(self) -> str:
        """Returns the fingerprint that is in books of versions whose requests did not cover the
        names of columns.
        """
        return compute_earlier_fingerprint(
            encode_question(self.question, self.earlier), self.people, *self.earlier_facts
        )

    def contradicts(self, release: Release) -> bool:
        """Whether a stored release is about other features than the request."""
        told = release.parameters.get("features")
        if self.features is None or not isinstance(told, list):
            return False
        return [name if isinstance(name, str) else name["name"] for name in told] != self.features


def encode_question(question: Estimator, about: Any = "") -> list[Any]:
    """Returns a question as a request is remembered by, so that requests in older books keep their
    fingerprint.

    A default that changed is written as it used to be; a parameter that came later is left out
    unless it is given.
    """
    told: dict[str, Any] = getattr(question, "asked_parameters", question.get_params)()
    later = getattr(question, "later", ())
    given = {name: value for name, value in told.items() if name not in later or value is not None}
    return [name_class(question), given, about]


def compute_earlier_fingerprint(asked: list[Any], people: Array, *others: Array) -> str:
    """Returns a fingerprint as earlier versions made it; it recognises requests that are in books
    already.
    """
    digest = hashlib.sha256(json.dumps(asked, sort_keys=True, default=_encode_parameter).encode())
    digest.update(repr(people.tolist()).encode())
    for array in others:
        digest.update(_to_int64_bytes(array))
    return digest.hexdigest()


def name_columns(question: Estimator, source: DataSource) -> tuple[list[Any], list[str] | None]:
    """Returns the names of data in memory for a request, and the names of features as a release
    tells them.
    """
    data = [part for part in (source.table, source.labels) if part is not None]
    names = [list_column_names(part) for part in data]
    if source.column is not None:
        names[-1] = [source.column]
    if len(data) < 2:
        return names, None
    features = list_feature_names(data[0])
    if names_features(question, features):
        # The question names them by a parameter, whatever else the table holds, in any order.
        asked: Any = question
        return [getattr(asked.bounds, "names", None), *names[1:]], None
    if isinstance(names[0], int):
        count = names[0]
    else:
        count = len(names[0])
    return names, features or [f"x{j}" for j in range(count)]


def _to_int64_bytes(array: Array) -> bytes:
    return np.ascontiguousarray(array, dtype=np.int64).tobytes()


def _encode_parameter(parameter: Any) -> Any:
    # Arrays in full: NumPy's own repr leaves out the middle of long ones.
    if isinstance(parameter, np.ndarray | np.generic):
        return parameter.tolist()
    if hasattr(parameter, "to_numpy"):  # data frames, whose repr leaves it out too
        return [
            list(parameter.columns) if hasattr(parameter, "columns") else [],
            parameter.to_numpy().tolist(),
        ]
    if not is_dataclass(parameter):
        return repr(parameter)
    # What a table or a unit is called is told to people, and is no part of what is asked.
    # What later versions added to a schema is left out where nobody gives it.
    return {
        name: value
        for name, value in vars(parameter).items()
        if name not in UNHASHED_FIELDS
        and not (name in LATER_ENTRIES and value == LATER_ENTRIES[name])
    }


@dataclass(frozen=True, eq=False)
class LedgerPayer:
    """Pays for one release from the accounts of a ledger, under a key."""

    ledger: Ledger
    short: str  # what becomes of people short of budget: "leave out" or "refuse"
    key: str
    request: Request
    people: Sequence[Any]
    asked: units.Units
    arrange: ArrangeRows
    agreed: str | None = None
    on_commit: Callable[[], None] | None = None
    spends_left: bool = False  # asked is what each has left in pure ε, and nothing else may be paid
    on_grants: Callable[[units.Units], None] | None = None  # told what each grants in the end

    def plan(self, estimator: Estimator, dataset: Dataset) -> tuple[Plan, Dataset]:
        """Returns the plan for everybody who can pay, and the rows of these; refuses another plan
        than was agreed.
        """
        arranged = dataset
        planned = self.asked

        def make_plan(granted: units.Units) -> Plan:
            nonlocal arranged, planned
            planned = np.array(granted)
            if np.array_equal(granted, self.asked):
                arranged = dataset
            else:
                arranged = self.arrange(granted)
            return plan_dataset(estimator, arranged)

        plan = plan_affordable(
            self.ledger, self.short, self.people, self.asked, make_plan, self.spends_left
        )
        if self.agreed is not None:
            refuse_changed_plan(replace(plan, subject=arranged.subject), self.agreed)
        if self.on_grants is not None:
            self.on_grants(planned)
        return plan, arranged

    def reserve(self, plan: Plan) -> Payment | None:
        """Charges everybody, once; under a key that is in the books already, finds what is stored.

        None where another release was paid for since the balances were read.
        """
        request = hide_request(self.ledger, self.request)
        amounts = _list_amounts(plan, self.people)
        if self.on_commit is not None:
            self.on_commit()
        try:
            made = self.ledger.reserve(self.key, request, amounts)
        except BudgetExceeded:
            if self.short == "refuse":
                raise
            return None
        if made.fresh:
            return Payment(receipt=made)
        return Payment(stored=return_stored(self.ledger, made, self.request))

    def publish(self, release: Release, payment: Payment) -> Release:
        """Signs the release and stores it under the key."""
        signed = _sign(self.ledger, release, payment.receipt)
        try:
            self.ledger.publish(self.key, signed.to_json())
            return signed
        except LedgerUnavailable as error:
            found = error.found
        raise _unpublished_error(found)


def plan_affordable(
    ledger: Ledger,
    short: str,
    people: Sequence[Any],
    asked: units.Units,
    make_plan: Callable[[units.Units], Plan],
    spends_left: bool = False,
) -> Plan:
    """Plans, leaves out who cannot pay, and plans again until everybody can; who remains may
    have to pay more. Where ``spends_left``, what is asked was left in pure ε, and a plan that
    charges anything else is refused: which account a question charges may depend on who is left.
    """
    granted = np.array(asked)
    while True:
        plan = make_plan(granted)
        if spends_left:
            _refuse_other_currency(plan.guarantee)
        lacking = np.zeros(len(people), dtype=bool)
        most = []
        for amounts in _list_amounts(plan, people):
            # Whoever is asked for more than they have is left out, even if the plan takes less
            # of it.
            if amounts.account.startswith("pure"):
                wanted = np.maximum(amounts.units, granted)
            else:
                wanted = amounts.units
            left = _read_balances(ledger, people, wanted, amounts.account)
            lacking |= wanted > left
            most.append(f"{to_amount(amounts.account, int(left.max())):g} ({amounts.account})")
        if not lacking.any():
            return plan
        if short == "refuse":
            raise BudgetExceeded(
                "Somebody has not enough left for this.",
                "It was asked to refuse rather than to leave people out.",
                "Ask for less, or have people who are short left out. Nobody was charged.",
                parameter="epsilon",
            )
        granted[lacking] = 0
        if not granted.any():
            raise BudgetExceeded(
                "Nobody has as much left in the ledger as this release asks of them.",
                f"The most that anybody here has left: {', '.join(most)}.",
                "Ask for less, or for larger grants. Nobody was charged.",
                parameter="epsilon",
            )


def _read_balances(
    ledger: Ledger, people: Sequence[Any], wanted: units.Units, account: str
) -> units.Units:
    """Returns what each has left; who is asked for nothing needs no account, and has nothing."""
    try:
        return ledger.balances(people, account)
    except UnknownPeople as error:
        refused = error
    left = _look_up_balances(ledger, people, account)
    if np.any((left < 0) & (wanted > 0)):
        raise refused
    return np.maximum(left, 0)


def _list_amounts(plan: Plan, people: Sequence[Any]) -> list[Amounts]:
    if len(people):
        return list_charges(plan.guarantee, people)
    return []


def _sign(ledger: Ledger, release: Release, made: Reservation) -> Release:
    """Returns a release whose certificate names the entry that paid for it, signed by the
    ledger.
    """
    booked = {
        "id": ledger.identity,
        "entry": made.number,
        "head": made.head,
        "key": ledger.public_key,
    }
    unsigned = replace(release, certificate=replace(release.certificate, ledger=booked))
    signed = {**booked, "signature": ledger.sign(make_release_message(unsigned.to_json()))}
    return replace(release, certificate=replace(release.certificate, ledger=signed))


def hide_request(ledger: Ledger, request: Request) -> str:
    """Returns the fingerprint of a request as the ledger keeps it."""
    # Under the ledger's key, so that nobody who has the database alone can try names against
    # it.
    return FINGERPRINT_PREFIX + ledger.hidden(request.fingerprint())


def return_stored(ledger: Ledger, known: Reservation, request: Request) -> Release:
    """Returns what is stored under a key, if it was stored for this request."""
    if known.release is None:
        stored = None
    else:
        stored = Release.from_json(known.release)
    if known.request.startswith(FINGERPRINT_PREFIX):
        same = known.request == hide_request(ledger, request)
    # written by a version that did not look at the names of columns: what it has stored must
    # not disagree
    else:
        same = known.request == ledger.hidden(request.earlier_fingerprint())
        same = same and (stored is None or not request.contradicts(stored))
    if not same:
        raise key_reused_error(known.key)
    if stored is None:
        raise ReleaseFailed(
            "This key is reserved, and no release is stored under it.",
            "It is being made elsewhere just now, or was interrupted; what it costs stays spent.",
            "Ask again in a while; if it was interrupted, choose a new key.",
            parameter="key",
        )
    return stored


def key_reused_error(key: str) -> KeyReused:
    """What is said where a key is asked for another release than it stands for."""
    return KeyReused(
        f"The key {key!r} stands for another release already.",
        "One key, one release, for ever.",
        "Choose a new key. Nobody was charged.",
        parameter="key",
    )


def _unpublished_error(found: str) -> LedgerUnavailable:
    """What is said where books cannot be written once people were charged: the books themselves do
    not know that this attempt has charged them.
    """
    return LedgerUnavailable(
        found,
        "People were charged before rows were read, and what was charged stays spent.",
        "Mend that and ask again under the same key: it gives the release if that was stored, and "
        "nobody is charged again. If it is told that nothing is stored there, choose a new key.",
    )


def plan_rows(
    ledger: Ledger,
    short: str,
    question: Estimator,
    budgets: Budgets,
    spend_left: str | None = None,
    public: Dataset | None = None,
) -> Plan:
    """Returns the plan of a release from a ledger as it would be made now; no row is read.

    With ``spend_left`` everybody is asked for all that they have left: "leave-out" leaves people
    without an account out, "refuse" refuses them. ``public`` are features that the plan needs.
    """
    names = budgets.names()
    asked = budgets.by_person(budgets.kinds.epsilon)

    def make_plan(granted: units.Units) -> Plan:
        return plan_budgets(question, budgets.with_grants(granted), public)

    if spend_left is not None:
        asked = get_remaining(ledger, names, make_plan, spend_left == "leave-out")
    return plan_affordable(ledger, short, names, asked, make_plan, spend_left is not None)


def release_rows(
    ledger: Ledger,
    short: str,
    question: Estimator,
    dataset: Dataset,
    key: str,
    asked: units.Units | None,
    agreed: str | None = None,
    on_commit: Callable[[], None] | None = None,
    spend_left: str = "refuse",
    on_grants: Callable[[units.Units], None] | None = None,
) -> Release:
    """Returns the release of rows from a ledger, at these prices by person; None: at all that each
    has left.

    The others are those of ``Session.release_rows``; ``spend_left`` is that of ``plan_rows``.
    ``on_grants`` is told what each grants once all who cannot pay are left out.
    """
    budgets = get_budgets(dataset)
    kinds = budgets.kinds
    if budgets.people is None:
        people = np.empty(0)
    else:
        people = budgets.people
    reader = dataset.features
    about = [dataset.value, None if reader is None else reader.columns]
    recoding = getattr(reader, "recoding", None)  # which names the features of rows in memory, too
    if recoding is None:
        features = None
    else:
        features = [feature.name for feature in recoding.features]
    facts = (budgets.by_person(kinds.rows), kinds.people, *(() if asked is None else (asked,)))
    request = Request(question, [*about, features], people, facts, about, facts, features)
    known = ledger.find(key)
    if known is not None:  # looked up before balances are: what it cost then is not asked for again
        return return_stored(ledger, known, request)
    names = people.tolist()

    def arranged(granted: units.Units) -> Dataset:
        lowered = budgets.with_grants(granted)
        owner = replace(dataset.owner, codes=lowered.codes)
        return replace(dataset, owner=owner, budgets=lowered)

    spends_left = asked is None
    if asked is None:
        asked = get_remaining(
            ledger,
            names,
            lambda granted: plan_dataset(question, arranged(granted)),
            spend_left == "leave-out",
        )
    return reserve_and_release(
        ledger,
        short,
        question,
        key,
        request,
        names,
        asked,
        arranged,
        agreed,
        on_commit,
        spends_left,
        on_grants,
    )


def get_remaining(
    ledger: Ledger,
    people: Sequence[Any],
    make_plan: Callable[[units.Units], Plan],
    leave_out: bool = False,
) -> units.Units:
    """Returns what each has left in the account that the question charges, which a plan for
    anybody's ε tells; nothing, if ``leave_out``, for who has no such account.
    """
    guarantee = make_plan(np.full(len(people), AMPLE_UNITS)).guarantee
    _refuse_other_currency(guarantee)
    account = f"pure epsilon, {guarantee.neighbours}"
    if leave_out:
        left = np.maximum(_look_up_balances(ledger, people, account), 0)
    else:
        left = ledger.balances(people, account)
    if not left.any():
        raise BudgetExceeded(
            "Nobody has anything left in the ledger.",
            f"This release is charged to the account {account!r}.",
            "Ask for larger grants. Nobody was charged.",
            parameter="epsilon",
        )
    return left


def _refuse_other_currency(guarantee: Guarantee) -> None:
    """Refuses to spend what is left in pure ε on another promise."""
    if guarantee.currency != "pure epsilon":
        raise InvalidParameter(
            "What people have left is not in ε, or is an ε at δ.",
            "This question is not charged in pure ε.",
            "Say what the release may cost each, as an ε for everybody or for each person.",
            parameter="epsilon",
        )


def _look_up_balances(ledger: Ledger, people: Sequence[Any], account: str) -> units.Units:
    """Returns what each has left; -1 for who has no such account."""
    return _match_balances(ledger.everybody(account), ledger.digests(people), len(people))


def _match_balances(everybody: AllBalances, digests: bytes, people: int) -> units.Units:
    """Returns what each of so many people has left, by their digests; -1 for who has nothing."""
    there = _split_digests(everybody.people, len(everybody.left))
    left = dict(zip(there, everybody.left.tolist(), strict=True))
    asked = _split_digests(digests, people)
    return np.array([left.get(digest, -1) for digest in asked], dtype=np.int64)


def _split_digests(digests: bytes, people: int) -> list[bytes]:
    size = len(digests) // max(people, 1)
    return [digests[at : at + size] for at in range(0, len(digests), size or 1)]


def reserve_and_release(
    ledger: Ledger,
    short: str,
    question: Estimator,
    key: str,
    request: Request,
    people: Sequence[Any],
    asked: units.Units,
    arranged: ArrangeRows,
    agreed: str | None = None,
    on_commit: Callable[[], None] | None = None,
    spends_left: bool = False,
    on_grants: Callable[[units.Units], None] | None = None,
) -> Release:
    """Makes a release that these people pay for, in the order of steps that all follow."""
    payer = LedgerPayer(
        ledger,
        short,
        key,
        request,
        people,
        asked,
        arranged,
        agreed,
        on_commit,
        spends_left,
        on_grants,
    )
    return make_release(question, arranged(asked), payer=payer)[1]


def find_past_grants(
    books: SqlLedger, number: int, people: Sequence[Any], asked: units.Units | None
) -> units.Units:
    """Returns what each of these people granted in the plan of a release, from books that have been
    verified.

    Left out was whoever had less of pure ε left than was ``asked``, or was charged nothing in
    another account. Where something was written between reading balances and charging, the plan may
    have had other grants: whoever uses these compares the plan's digest.

    Parameters
    ----------
    number :
        of the entry by which the release was paid.
    asked :
        what was asked of each; None: all that each had left.
    """
    from sottovoce.ledgers import sql_reading

    charges = books.lines(number)
    if not len(charges) and asked is not None:
        return asked  # nobody was charged, so nobody was short
    digests = books.digests(people)
    code = int(charges["account"].min(initial=len(ACCOUNTS)))
    if asked is not None and not ACCOUNTS[code].startswith("pure"):
        paid = AllBalances(charges["person"].tobytes(), charges["amount"])
        return np.where(_match_balances(paid, digests, len(people)) > 0, asked, 0)
    before = [
        (entry.what, books.lines(entry.number))
        for entry in books.entries()
        if entry.number < number and entry.what in sql_reading.WITH_LINES
    ]
    everybody = sql_reading.replay_balances(before, code)
    left = np.maximum(_match_balances(everybody, digests, len(people)), 0)
    if asked is None:
        return left
    return np.where(asked > left, 0, asked)


def name_grants(said: DataSource, budgets: Budgets, granted: units.Units) -> DataSource:
    """Returns the same table with what each granted in the end, for an audit: who was left out, or
    what people had left, is not in the table.
    """
    by_person = dict(zip(budgets.names(), units.to_epsilon(granted).tolist(), strict=True))
    return replace(
        said,
        budget=None,
        epsilon=None,
        share=1.0,
        spend_left=None,
        budgets=by_person,
        unknown=LEAVE_OUT_WORD,
    )
