# SPDX-License-Identifier: Apache-2.0
"""Ledger, the contract: grant, sell, reserve, publish, balance, verify.

A charge is written before a private value is read and never taken back: whether a release failed
may depend on the data. One key stands for one release for ever; asked again, it returns the same
bytes.

A person has an account for each kind of promise, and each has a cap of its own: what is promised
about labels says nothing about rows, and a ρ is no ε. Amounts are whole: billionths of ε or of ρ,
and for δ units of 10⁻¹⁵. A release in ε at δ is charged to two accounts, one for each sum. What all
accounts mean together is one ε at one δ (`total`), for a person to read; no account is charged by
it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike

from sottovoce.accounting.renyi import LossSums, TotalLoss
from sottovoce.errors import InvalidBudget, InvalidParameter
from sottovoce.guarantee import Guarantee
from sottovoce.units import (
    UNITS_PER_DELTA,
    UNITS_PER_EPSILON,
    Units,
    round_down,
    round_down_delta,
    round_up_decimal,
    round_up_delta,
)

State = Literal["reserved", "published"]

#: What can be counted, under each neighbour relation. The place in ACCOUNTS is written into books:
#: only ever append.
RESOURCES = ("pure epsilon", "zCDP rho", "epsilon at delta", "delta")
RELATIONS = ("replace", "replace labels", "zero out")
ACCOUNTS = tuple(f"{resource}, {relation}" for relation in RELATIONS for resource in RESOURCES)
#: The account that is meant where none is named.
DEFAULT_ACCOUNT = ACCOUNTS[0]
#: A line of a sale that says what was paid, in whole coins. It stands where other lines have their
#: account, and is none: nothing is granted or charged by it. It is written into books.
PAYMENT_CODE = 99
#: The largest amount: an ε of a million, or a δ of one.
MAX_UNITS = 10**15
#: The longest key of a release: an index of PostgreSQL holds 2,704 bytes.
MAX_KEY_CHARACTERS = 1_000
MAX_KEY_BYTES = 2_600


@dataclass(frozen=True, eq=False)
class Amounts:
    """So much for each of these people, in one account."""

    people: Sequence[Any]
    units: Units
    account: str = DEFAULT_ACCOUNT

    def __post_init__(self) -> None:
        get_account_code(self.account)
        if len(self.units) and not 0 <= self.units.min() <= self.units.max() <= MAX_UNITS:
            raise InvalidBudget(
                "An amount is negative or too large.",
                f"Amounts are from 0 to {MAX_UNITS} units.",
                "Correct it.",
                parameter="amounts",
            )


@dataclass(frozen=True, eq=False)
class Sale:
    """What people have sold and were paid for it: additions to one account, and whole coins."""

    amounts: Amounts
    coins: Units  # by person, in the order of the amounts
    coin: Fraction  # so much money is one coin
    money: str = ""  # what the money is called

    def __post_init__(self) -> None:
        refuse_unwritable(self.money)
        coins = np.asarray(self.coins)
        if len(coins) != len(self.amounts.units) or self.coin <= 0:
            raise InvalidParameter(
                "Somebody who sells has no payment, or several.",
                "Everybody who sells is paid a whole number of coins.",
                "Pass one payment for each.",
                parameter="payments",
            )
        if len(coins) and not 0 <= coins.min() <= coins.max() <= MAX_UNITS:
            raise InvalidParameter(
                "A payment is negative or too large.",
                f"Payments are from 0 to {MAX_UNITS} coins.",
                "Correct it, or count in larger coins.",
                parameter="payments",
            )
        if np.any((self.amounts.units == 0) & (coins > 0)):
            raise InvalidParameter(
                "Somebody who sells nothing is paid.",
                "A payment is for ε that was bought.",
                "Correct the payment, or the amount.",
                parameter="payments",
            )

    @property
    def terms(self) -> str:
        """What an entry says about the money, as text."""
        return json.dumps({"coin": str(self.coin), "money": self.money}, ensure_ascii=False)


def read_sale_terms(text: str) -> tuple[Fraction, str]:
    """Returns the coin of a sale and what its money is called; raises ValueError where text is
    none.
    """
    try:
        told = json.loads(text)
        return Fraction(told["coin"]), str(told["money"])
    except (TypeError, KeyError, ZeroDivisionError):
        pass  # raised below: what is wrong would quote the books
    raise ValueError("these are no terms of a sale")


@dataclass(frozen=True)
class Entry:
    """One line of the books: a grant, a sale, a reservation, a publication, or a charge from
    outside.
    """

    number: int
    what: str
    key: str
    request: str  # a fingerprint of what was asked
    at: str
    lines: int  # how many amounts belong to it
    root: bytes  # of the tree over these amounts, or the digest of the published bytes
    digest: bytes


@dataclass(frozen=True)
class Reservation:
    """What the books know about a key."""

    key: str
    request: str
    state: State
    number: int
    head: str  # the digest of the reserving entry, as it is printed in the release's certificate
    release: str | None = None
    fresh: bool = False  # written by this very call
    overdrawn: int = 0  # accounts of which more is spent than granted, after a charge from outside


@dataclass(frozen=True)
class Line:
    """What one entry did to one person."""

    number: int
    at: str
    what: str
    key: str
    account: str
    amount: float
    state: str
    paid: Fraction | None = None  # of a sale: in money
    money: str = ""  # what it is called


class AllBalances(NamedTuple):
    """Digests of people in their order, one after the other, and what each has left."""

    people: bytes
    left: Units


class Ledger(Protocol):
    """Books in which nobody can be overcharged."""

    @property
    def identity(self) -> str:
        """A number that no other ledger has."""

    def hidden(self, text: str) -> str:
        """Returns a digest of this text that only the holder of the ledger's key can compute."""

    def grant(self, amounts: Sequence[Amounts]) -> None:
        """Sets what each person allows in all; below what is spent it freezes them."""

    def sell(self, sale: Sale, key: str | None = None) -> Reservation:
        """Adds what people have sold to what they allow, and writes down what they were paid.

        The same key again changes nothing; without a key, the same sale again.
        """

    def balances(self, people: Sequence[Any], account: str = DEFAULT_ACCOUNT) -> Units:
        """Returns what each has left; raises if somebody has no such account."""

    def digests(self, people: Sequence[Any]) -> bytes:
        """Returns under which digests people stand in the books, one after the other."""

    def everybody(self, account: str = DEFAULT_ACCOUNT) -> AllBalances:
        """Returns what everybody in the books has left of this account."""

    def fewer_than(self, accounts: int) -> bool:
        """Returns whether the books have fewer accounts than this, without counting on."""

    def find(self, key: str) -> Reservation | None:
        """Returns what is known about this key."""

    def reserve(
        self, key: str, request: str, amounts: Sequence[Amounts], *, outside: bool = False
    ) -> Reservation:
        """Charges everybody at once, or nobody: raises if one has not enough left. A known key is
        returned as it is.

        What was spent outside (``outside``) has no release to wait for, and is written down whoever
        is short.
        """

    def publish(self, key: str, release: str) -> None:
        """Keeps the bytes of a release under its reserved key."""

    def history(self, person: Any) -> list[Line]:
        """Returns everything that was ever written about a person."""

    def entries(self) -> Iterator[Entry]:
        """Returns all entries in order."""

    @property
    def signed_from(self) -> int | None:
        """The number of the first entry that is signed; None if none is."""

    @property
    def public_key(self) -> str:
        """The key with which anybody can check what the ledger has signed (Ed25519, in hexadecimal
        digits).
        """

    def sign(self, message: bytes) -> str:
        """Returns the signature of a message, in hexadecimal digits."""

    def confirm(self, number: int, head: str) -> bool:
        """Whether an entry with this digest is in the books."""

    def seal(self, number: int, head: str) -> None:
        """Refuses every write from now on: this head was signed by the ledger, and is not in the
        books.
        """

    def verify(self) -> None:
        """Replays all entries; raises if they, their signatures, accounts or releases do not
        agree.
        """


def list_charges(guarantee: Guarantee, people: Sequence[Any]) -> list[Amounts]:
    """Returns what a promise takes from which accounts of these people, who come in the guarantee's
    order.
    """
    if guarantee.currency != "epsilon, delta":
        return [Amounts(people, guarantee.units, f"{guarantee.currency}, {guarantee.neighbours}")]
    paid = guarantee.units
    delta = (paid > 0) * round_up_delta(guarantee.delta or 0.0)
    return [
        Amounts(people, paid, f"epsilon at delta, {guarantee.neighbours}"),
        Amounts(people, delta, f"delta, {guarantee.neighbours}"),
    ]


def get_account_code(account: str) -> int:
    """Returns the number of an account in the books; refuses what is none."""
    if not isinstance(account, str) or account not in ACCOUNTS:
        raise InvalidParameter(
            "There is no such account.",
            f"Accounts: {'; '.join(ACCOUNTS)}.",
            "Name one of these.",
            parameter="account",
        )
    return ACCOUNTS.index(account)


def get_units_per_one(account: str) -> int:
    """Returns how many units of this account are one."""
    if account.startswith("delta, "):
        return UNITS_PER_DELTA
    return UNITS_PER_EPSILON


def round_down_amounts(account: str, amounts: ArrayLike) -> Units:
    """Returns amounts in whole units of their account, rounded down; 0 stands, what would become 0
    is refused.
    """
    get_account_code(account)
    granted = check_one_each(
        round_down_delta(amounts)
        if get_units_per_one(account) == UNITS_PER_DELTA
        else round_down(amounts, zero_allowed=True)
    )
    if np.any((granted == 0) & (np.asarray(amounts, dtype=np.float64) > 0)):
        raise InvalidBudget(
            "A grant is smaller than the smallest amount that an account can hold.",
            f"Grants are rounded down to a multiple of {1 / get_units_per_one(account):g}.",
            "Grant at least that much, or 0 for nothing.",
            parameter="amount",
        )
    return granted


def round_up_amounts(account: str, amounts: ArrayLike) -> Units:
    """Returns amounts in whole units of their account, rounded up."""
    get_account_code(account)
    return check_one_each(
        round_up_delta(amounts)
        if get_units_per_one(account) == UNITS_PER_DELTA
        else round_up_decimal(amounts)
    )


def check_one_each(amounts: Units) -> Units:
    """Returns amounts in units if there is one for each person; refuses several."""
    if amounts.ndim != 1:
        raise InvalidBudget(
            "Somebody has several amounts.",
            "An amount is one number.",
            "Pass one for each person.",
            parameter="amount",
        )
    return amounts


def compose_accounts(amounts: Mapping[str, int], read_at: float) -> TotalLoss:
    """Returns the ε and the δ, under replacement, of what is in a person's accounts, all of them
    together.

    ρ is read at δ = ``read_at``, which is part of the δ that is returned.
    """
    zero_out, *others = (
        LossSums(*(amounts.get(f"{resource}, {relation}", 0) for resource in RESOURCES))
        for relation in ("zero out", "replace", "replace labels")
    )
    # A promise about rows covers labels too, so about labels both kinds count.
    return sum(others, zero_out.to_replace()).compose(read_at)


def refuse_unwritable(text: Any) -> None:
    """Raises unless this is text that every database gives back as it was."""
    if not isinstance(text, str) or any(
        sign == "\0" or "\ud800" <= sign <= "\udfff" for sign in text
    ):
        raise InvalidParameter(
            "A key or a reason is not text, or holds signs that a database cannot keep.",
            "It is written into the ledger and must be found again.",
            "Pass a string of letters, digits and signs.",
            parameter="key",
        )


def refuse_long_key(key: str) -> None:
    """Raises if a new key is longer than every database can find again."""
    if len(key) > MAX_KEY_CHARACTERS or len(key.encode()) > MAX_KEY_BYTES:
        raise InvalidParameter(
            "This key is too long.",
            f"A new key has at most {MAX_KEY_CHARACTERS:,} signs, and {MAX_KEY_BYTES:,} bytes in "
            "UTF-8.",
            "Choose a shorter one; nothing was charged.",
            parameter="key",
        )


def to_amount(account: str, units: int) -> float:
    """Returns an amount as ε, ρ or δ."""
    return float(units / get_units_per_one(account))


#: Called with the name of each step of a reservation and of a publication. A seam: tests put a
#: fault in its place.
fault_point: Callable[[str], None] = lambda step: None  # noqa: E731
