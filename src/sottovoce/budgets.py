# SPDX-License-Identifier: Apache-2.0
"""Who allows how much, and which rows are whose.

People who grant the same ε and own the same number of rows are of one **kind**: everything a plan
computes (weights, charges) is computed once a kind, so three tiers of fifty million people cost
three numbers. Budgets, row counts and who takes part are public (see docs/threat-model.md); nothing
here looks at a value.

    symbol   name
    ε_l      kinds.epsilon   whole units of a billionth, rounded down
    s_l      kinds.rows      rows of one person of the kind
             kinds.people    how many people are of the kind
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from sottovoce import units
from sottovoce.arrays import (
    Array,
    ColumnLike,
    TableLike,
    check_same_length,
    count_dimensions,
    factorise,
    number_distinct,
    refuse_nameless,
    to_column,
)
from sottovoce.errors import (
    DuplicatePeople,
    InconsistentBudget,
    InvalidBudget,
    InvalidParameter,
    TooFewRows,
    UnknownPeople,
)

Unit = Literal["row", "person"]
LEAVE_OUT = "leave out"
#: What sellers sell: a currency and a neighbour relation.
SOLD_PROMISE = ("pure epsilon", "replace")
#: Who grants less than this part of the mean ε is left out of a fit.
USABLE_SHARE = 1e-6
#: More rows than this nobody has, and counts of them stay whole numbers in doubles.
MAX_ROWS = 2**53


@dataclass(frozen=True, eq=False)
class BudgetGroups:
    """The distinct pairs (ε, rows) among the people, and how many people share each."""

    epsilon: units.Units
    rows: NDArray[np.int64]
    people: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.epsilon)


@dataclass(frozen=True, eq=False)
class Budgets:
    """Every person's ε, and the way from a row to its person.

    >>> budgets = Budgets.of({"ada": 1.0, "ben": 0.1}, groups=["ada", "ben", "ada"])
    >>> budgets.people.tolist(), budgets.epsilon.tolist(), budgets.n_rows
    (['ada', 'ben'], [1.0, 0.1], 3)
    """

    kinds: BudgetGroups
    unit: Unit
    codes: Array | None = (
        None  # person → kind; None where people are known by kind only (a streamed table)
    )
    owner: NDArray[np.int64] | None = None  # row → person; None where row i belongs to person i
    people: Array | None = None  # names in sorted order; None where rows are the people
    sold: tuple[str, str] | None = None  # currency and neighbours of a sale; None: not sold

    def __repr__(self) -> str:
        """How many there are and between which ε they grant; nobody is named."""
        granted = units.to_epsilon(self.kinds.epsilon)
        ends = dict.fromkeys(f"{amount:g}" for amount in (granted.min(), granted.max()))
        return (
            f"<Budgets of {units.format_count(self.n_people, self.unit)}: ε = {' to '.join(ends)}>"
        )

    @classmethod
    def of(
        cls,
        epsilon: BudgetLike,
        groups: ColumnLike | None = None,
        rows: int | None = None,
        zero: str = "refuse",
    ) -> Budgets:
        """Return budgets from a number, a column with one ε a row, or a mapping from person to ε.

        A pandas Series whose index names everybody in ``groups`` is a mapping from person; any
        other is a column.

        Parameters
        ----------
        epsilon : BudgetLike
            A number for all, an array by row, a mapping from person, Budgets, the name of a column,
            or another table, by person; a schema may name it.
        groups : ColumnLike, optional
            Whose each row is, or the name of that column; without it every row is somebody else's.
        rows : int, optional
            How many rows there are, where neither epsilon nor groups tells.
        zero : str
            Whether somebody who grants zero is refused ("refuse"), or counts for nothing and is not
            charged ("leave out").

        Returns
        -------
        Budgets
            The budgets.

        Raises
        ------
        InvalidBudget
            An amount is no ε.
        UnknownPeople
            Somebody has no budget.
        InvalidParameter
            Rows or zero cannot be used.
        """
        if not (isinstance(zero, str) and zero in ("refuse", LEAVE_OUT)):
            raise InvalidParameter(
                "zero is neither 'refuse' nor 'leave out'.",
                "",
                "Choose one of the two.",
                parameter="zero",
            )
        if rows is not None and not (isinstance(rows, int | np.integer) and 0 <= rows < MAX_ROWS):
            raise InvalidParameter(
                "rows is not a number of rows.",
                "It is a whole number.",
                "Pass how many there are.",
                parameter="rows",
            )
        if rows is not None:
            rows = int(rows)
        if isinstance(epsilon, SupportsSale):
            return _make_sold_budgets(epsilon, groups, rows)
        if groups is None:
            people, owner = (None, None)
        else:
            people, owner = factorise(groups)
        if people is not None and owner is not None:
            epsilon = _map_series_by_person(epsilon, groups, people, owner)
        granted = _round_grants(epsilon, people, owner, zero == LEAVE_OUT)
        if people is None or owner is None:
            return cls._from_rows(granted, rows)
        if rows is not None:
            check_same_length(rows, groups=owner)
        return cls._from_people(granted, people, owner)

    @classmethod
    def listed(cls, people: ColumnLike, epsilon: ColumnLike, groups: ColumnLike) -> Budgets:
        """Return budgets from a table of their own, one line a person.

        Parameters
        ----------
        people : ColumnLike
            A column of names.
        epsilon : ColumnLike
            A column of ε.
        groups : ColumnLike
            Whose each row of the data is.

        Returns
        -------
        Budgets
            The budgets.

        Raises
        ------
        DuplicatePeople
            Somebody is listed twice.

        Examples
        --------
        >>> Budgets.listed(
        ...     ["ben", "ada"], [0.1, 1.0], groups=["ada", "ben", "ada"]
        ... ).epsilon.tolist()
        [1.0, 0.1]
        """
        names, _ = factorise(people)
        amounts = to_column(epsilon, "epsilon")
        listed = to_column(people, "people").tolist()
        check_same_length(len(listed), epsilon=amounts)
        table = dict(zip(listed, amounts.tolist(), strict=True))
        if len(names) < len(listed):
            raise DuplicatePeople(
                "A person is listed twice.",
                "Everybody has one ε.",
                "Keep one line a person.",
                parameter="people",
            )
        return cls.of(table, groups=groups)

    @classmethod
    def tiers(
        cls, levels: Mapping[Any, float], tier: ColumnLike, groups: ColumnLike | None = None
    ) -> Budgets:
        """Return budgets from a public price list of tiers and the tier of every row.

        Parameters
        ----------
        levels : Mapping[Any, float]
            ε by tier.
        tier : ColumnLike
            The tier of each row.
        groups : ColumnLike, optional
            Whose each row is, or the name of that column; without it every row is somebody else's.

        Returns
        -------
        Budgets
            The budgets.

        Raises
        ------
        InvalidParameter
            The tiers are no price list.

        Examples
        --------
        >>> Budgets.tiers(
        ...     {"careful": 0.1, "open": 1.0}, ["open", "careful", "open"]
        ... ).epsilon.tolist()
        [1.0, 0.1, 1.0]
        """
        if not isinstance(levels, Mapping):
            raise InvalidParameter(
                "The tiers are no price list.",
                "",
                "Pass a mapping from tier to ε.",
                parameter="levels",
            )
        names, code = factorise(tier)
        return cls.of(units.to_epsilon(_look_up_grants(levels, names))[code], groups=groups)

    @classmethod
    def _from_rows(cls, granted: units.Units, rows: int | None) -> Budgets:
        if granted.ndim == 0:
            if rows is None:
                raise InvalidParameter(
                    "One ε for everybody, but the number of rows is not known.",
                    "A plan needs to know how many rows there are; that number is public.",
                    "Pass rows=, an array of ε by row, or groups=.",
                    parameter="rows",
                )
            granted = np.broadcast_to(granted, (rows,))
        elif rows is not None:
            check_same_length(rows, epsilon=granted)
        _refuse_few_rows(len(granted))
        kinds, codes = _group_budgets(granted, None)
        return cls(kinds, "row", codes)

    @classmethod
    def _from_people(cls, granted: units.Units, people: Array, owner: NDArray[np.int64]) -> Budgets:
        _refuse_few_rows(len(owner))
        kinds, codes = _group_budgets(
            np.broadcast_to(granted, people.shape), np.bincount(owner, minlength=len(people))
        )
        return cls(kinds, "person", codes, owner, people)

    @property
    def epsilon(self) -> NDArray[np.float64]:
        """What each granted: by row without groups, else by person in sorted order."""
        return np.asarray(units.to_epsilon(self.by_person(self.kinds.epsilon)), dtype=np.float64)

    @property
    def n_people(self) -> int:
        """How many people (rows, without groups) take part."""
        return int(self.kinds.people.sum())

    @property
    def n_rows(self) -> int:
        """How many rows there are in all."""
        return int((self.kinds.people * self.kinds.rows).sum())

    def by_person(self, values: Array) -> Array:
        """Spread one value a kind over the people.

        Parameters
        ----------
        values : Array
            One value a kind.

        Returns
        -------
        Array
            A value a person, or the kinds' where people are not listed.
        """
        if self.codes is None:
            return values
        return values[self.codes]

    def row_codes(self) -> Array:
        """Return the kind of every row's owner, row by row.

        Returns
        -------
        Array
            Numbers of kinds.

        Raises
        ------
        InvalidParameter
            People are known by kind only.
        """
        if self.codes is None:
            raise InvalidParameter(
                "These budgets do not say which row is whose.",
                "",
                "Build them with Budgets.of.",
                parameter="epsilon",
            )
        if self.owner is None:
            return self.codes
        return self.codes[self.owner]

    def names(self) -> list[Any]:
        """Return the people's names in sorted order.

        Returns
        -------
        list[Any]
            The names.

        Raises
        ------
        InvalidParameter
            Rows are the people, so they have none.
        """
        if self.people is None:
            raise InvalidParameter(
                "These budgets do not name people.",
                "An account belongs to a person.",
                "Build them with groups=.",
                parameter="groups",
            )
        return list(self.people.tolist())

    def with_grants(self, granted: units.Units) -> Budgets:
        """Return the budgets of the same people with other grants, one each.

        Parameters
        ----------
        granted : units.Units
            Whole units a person; zero leaves somebody out.

        Returns
        -------
        Budgets
            The budgets.

        Raises
        ------
        InvalidParameter
            The budgets do not name people.
        """
        if self.codes is None:
            raise InvalidParameter(
                "These budgets do not name people.",
                "",
                "Build them with groups=.",
                parameter="groups",
            )
        if np.array_equal(granted, self.by_person(self.kinds.epsilon)):
            return self
        kinds, codes = _group_budgets(granted, self.kinds.rows[self.codes])
        return Budgets(kinds, self.unit, codes, self.owner, self.people, self.sold)

    def split(self, parts: int) -> BudgetGroups:
        """Return the kinds with 1/parts of every budget, rounded down.

        Parameters
        ----------
        parts : int
            How many shares.

        Returns
        -------
        BudgetGroups
            The kinds; the shares never add up to more.
        """
        return BudgetGroups(self.kinds.epsilon // parts, self.kinds.rows, self.kinds.people)


class SupportsByPerson(Protocol):
    """What knows an amount for each person: Budgets, or a market's allocation."""

    @property
    def by_person(self) -> Callable[..., Any]:
        """Return amounts by person."""


@runtime_checkable
class SupportsSale(Protocol):
    """What people have sold: a market's allocation, in whole billionths of ε by seller. Or what
    some people grant, where the others are left out.
    """

    @property
    def sold(self) -> tuple[str, str] | None:
        """A currency and a neighbour relation; None where nothing was sold."""

    @property
    def units(self) -> Any:
        """What each has sold, in the order of sellers."""

    @property
    def by_person(self) -> Callable[..., Any]:
        """Return ε by seller."""


#: Who allows how much: ε for all, by row or by person, the name of a column, a table by person, or
#: what was sold.
BudgetLike = float | Mapping[Any, float] | TableLike | Budgets | SupportsSale


def _make_sold_budgets(sale: SupportsSale, groups: ColumnLike | None, rows: int | None) -> Budgets:
    """Returns the budgets of rows whose owners sell: row i is seller i's where nothing says whose.

    Who has sold nothing, and who is no seller, is left out.
    """
    if groups is None:
        by_row: Any = units.to_epsilon(np.asarray(sale.units))
        made = Budgets.of(by_row, rows=rows, zero=LEAVE_OUT)
    else:
        sold = sale.by_person()
        people, _ = factorise(groups)
        sold = {name: sold.get(name, 0.0) for name in people.tolist()}
        made = Budgets.of(sold, groups, rows, zero=LEAVE_OUT)
    if not made.kinds.epsilon.any():
        raise nobody_sells_error()
    return replace(made, sold=sale.sold)


def nobody_sells_error() -> UnknownPeople:
    """What is said where nobody's rows can be used."""
    return UnknownPeople(
        "Nobody whose rows are here has a budget above 0.",
        "Who has none, or sold nothing, is left out, and somebody must be left.",
        "Check that people are called the same in both tables.",
        parameter="epsilon",
    )


def _round_grants(
    epsilon: Any, people: Array | None, owner: NDArray[np.int64] | None, zero_allowed: bool
) -> units.Units:
    """One number, or one number a row (a person, with groups)."""
    if isinstance(epsilon, Mapping):
        if people is None:
            raise InvalidParameter(
                "Budgets are given by person, but the rows do not say whose they are.",
                "A mapping from person to ε needs groups=.",
                "Pass groups= with the owner of every row, or an array of ε by row.",
                parameter="groups",
            )
        return _look_up_grants(epsilon, people, zero_allowed)
    granted = units.round_down(
        epsilon if count_dimensions(epsilon) == 0 else to_column(epsilon, "epsilon"),
        zero_allowed=zero_allowed,
    )
    if granted.ndim and owner is not None and people is not None:
        check_same_length(len(owner), epsilon=granted)
        return _collect_one_each(granted, owner, len(people))
    return granted


def split_people_and_amounts(budgets: Any, people: ColumnLike | None) -> tuple[Sequence[Any], Any]:
    """Returns names and amounts, from whatever says who allows how much."""
    if people is not None:
        names = to_column(people, "people").tolist()
        amounts = to_column(budgets, "budgets")
        check_same_length(len(names), budgets=amounts)
        return names, amounts
    if isinstance(budgets, Budgets):
        return budgets.names(), units.to_epsilon(budgets.by_person(budgets.kinds.epsilon))
    if hasattr(budgets, "by_person"):  # a market's allocation
        budgets = budgets.by_person()
    listed = series_to_mapping(budgets)
    if listed is not None:
        budgets = listed
    if not isinstance(budgets, Mapping):
        raise InvalidParameter(
            "Grants name nobody.",
            "A grant is from a person.",
            "Pass a mapping from person to ε, Budgets, an allocation, or people= with the column "
            "of budgets.",
            parameter="budgets",
        )
    return list(budgets), list(budgets.values())


def read_amounts_by_person(
    amounts: Mapping[Any, Any], count: Callable[[list[Any]], units.Units]
) -> tuple[list[Any], units.Units]:
    """Returns the people of a mapping and their amounts in units; refuses names that are none, and
    several amounts.
    """
    names = list(amounts)
    refuse_nameless(names)
    counted = count(list(amounts.values()))
    if counted.shape != (len(names),) or not all(isinstance(name, Hashable) for name in names):
        raise InvalidBudget(
            "Somebody has no amount, or several.",
            "Everybody has one.",
            "Pass a number for each person.",
            parameter="budgets",
        )
    return names, counted


def series_to_mapping(values: Any) -> dict[Any, Any] | None:
    """Returns a pandas Series as a mapping from its index; None for anything else, and where an
    entry comes twice.
    """
    index = getattr(values, "index", None)
    if (
        index is None
        or callable(index)
        or not hasattr(values, "to_numpy")
        or count_dimensions(values) != 1
    ):
        return None
    if index.is_unique:
        return dict(zip(index.tolist(), values.tolist(), strict=True))
    return None


def _map_series_by_person(
    epsilon: Any, groups: ColumnLike | None, people: Array, owner: NDArray[np.int64]
) -> Any:
    """Returns a Series that is indexed by person as a mapping, and anything else as it is.

    A Series with the index of ``groups`` is a column of the same table. Where it could be read in
    both ways, and they differ, it is refused: one of them would give people what others granted.
    """
    table = series_to_mapping(epsilon)
    # An ε that is missing is refused in whichever way the Series is read, and cannot be compared
    # before.
    if table is None or _has_same_index(epsilon, groups) or epsilon.isna().any():
        return epsilon
    names = people.tolist()
    known = sum(name in table for name in names)
    if known < len(names):
        if known and all(
            isinstance(name, str) for name in table
        ):  # names, and not the numbers of rows
            raise _no_budget_error()
        return epsilon
    if len(epsilon) == len(owner) and [table[names[i]] for i in owner.tolist()] != epsilon.tolist():
        raise InvalidParameter(
            "It is not clear whether ε is given by row or by person.",
            "The Series has an entry for each row, and its index names everybody too.",
            "Pass epsilon.to_numpy() for ε by row, or epsilon.to_dict() for ε by person.",
            parameter="epsilon",
        )
    return table


def _has_same_index(epsilon: Any, groups: ColumnLike | None) -> bool:
    index = getattr(groups, "index", None)
    return index is not None and not callable(index) and bool(epsilon.index.equals(index))


def _collect_one_each(by_row: units.Units, owner: NDArray[np.int64], people: int) -> units.Units:
    granted = np.zeros(people, dtype=np.int64)
    granted[owner] = by_row
    if not np.array_equal(granted[owner], by_row):
        raise InconsistentBudget(
            "A person has two different ε in two of their rows.",
            "A budget belongs to a person, not to a row.",
            "Give all rows of a person the same ε, or pass a mapping from person to ε.",
            parameter="epsilon",
        )
    return granted


def _look_up_grants(
    epsilon: Mapping[Any, float], names: Array, zero_allowed: bool = False
) -> units.Units:
    people, granted = read_amounts_by_person(
        epsilon, lambda values: units.round_down(values, zero_allowed=zero_allowed)
    )
    table = dict(zip(people, granted.tolist(), strict=True))
    try:
        return np.array([table[name] for name in names.tolist()], dtype=np.int64)
    except (KeyError, TypeError):
        pass  # raised below, so that the name in the KeyError is not carried along
    raise _no_budget_error()


def _no_budget_error() -> UnknownPeople:
    return UnknownPeople(
        "A row belongs to somebody (or to a tier) without a budget.",
        "Everybody whose rows are used has set an ε.",
        "Add the missing budgets, or leave those rows out.",
        parameter="epsilon",
    )


def _group_budgets(
    granted: units.Units, rows: NDArray[np.int64] | None
) -> tuple[BudgetGroups, Array]:
    """Groups equal (ε, rows); rows=None means one row each."""
    if rows is None:
        epsilon, codes, people = number_distinct(granted)
        return BudgetGroups(
            epsilon, np.broadcast_to(np.int64(1), epsilon.shape), people
        ), _shrink_codes(codes, len(epsilon))
    epsilon, by_epsilon, _ = number_distinct(granted)
    counts, by_count, _ = number_distinct(rows)
    pairs, codes, people = number_distinct(by_epsilon * len(counts) + by_count)
    which_epsilon, which_count = np.divmod(pairs, len(counts))
    return BudgetGroups(epsilon[which_epsilon], counts[which_count], people), _shrink_codes(
        codes, len(pairs)
    )


def _shrink_codes(codes: Array, kinds: int) -> Array:
    return codes.astype(np.min_scalar_type(max(kinds - 1, 0)), copy=False)


def _refuse_few_rows(rows: int) -> None:
    if rows < 2:
        raise TooFewRows(
            "The table is empty or has one row.",
            "A release is about at least two rows: the answer about one row is that row.",
            "Collect more rows before asking.",
            parameter="table",
        )


def refuse_another_order(epsilon: Any, owners: Any, *tables: Any) -> None:
    """Refuses a Series of ε by row whose index says that it is in another order, or that it is by
    person.
    """
    given = series_to_mapping(epsilon)
    indices = [table.index for table in tables if hasattr(getattr(table, "index", None), "equals")]
    if given is None or not indices or any(epsilon.index.equals(index) for index in indices):
        return
    by_name = owners is None and all(isinstance(name, str) for name in given)
    if by_name or any(len(index) == len(given) and set(index) == set(given) for index in indices):
        raise InvalidParameter(
            "It is not clear which ε belongs to which row: the Series has another index than the "
            "table.",
            "Budgets by row are in the order of the rows; budgets by person need the owner of "
            "each row.",
            "Pass epsilon.to_numpy() if it is in the order of the rows, or groups= with the "
            "owners.",
            parameter="epsilon",
        )


def has_usable_budget(kinds: BudgetGroups) -> NDArray[np.bool_]:
    """Returns which kinds of people grant at least a millionth of the mean ε.

    Fewer than that could not take part, but what covers rounding (solver_error, ε_out) must be paid
    by everybody who takes part, so one person at 1e-9 would set the noise for all.
    """
    mean = float((kinds.epsilon * kinds.people).sum() / kinds.people.sum())
    return np.asarray(kinds.epsilon > USABLE_SHARE * mean, dtype=np.bool_)
