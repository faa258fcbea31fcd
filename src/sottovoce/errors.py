# SPDX-License-Identifier: Apache-2.0
"""Every error of the library, in one tree.

An error is a sentence in three beats, *what was found*, *what is required*, *what to do*, and keeps
each beat as a field. No value of the data, no person's name and no count of either ever appears in
one: an error message is an output, and outputs are paid for.

A sentence does not say where the mistake was typed, because the library does not know. It says
which ``parameter`` is wrong, by the name of the argument in Python ("epsilon", "bounds") or of an
entry of the schema ("schema.label"); the command line makes an option of it, the page a field.

    SottovoceError
    ├── InvalidInput               refused before anything is read or charged (also a ValueError)
    │   ├── InvalidBudget          an ε that is negative, zero, not finite or too large
    │   │   └── InconsistentBudget one person with two different ε
    │   ├── UnknownPeople          a row whose owner has no budget
    │   ├── DuplicatePeople        a person listed twice in a table of budgets
    │   ├── InvalidBounds          limits that are missing, reversed, equal or not finite
    │   ├── InvalidSchema          a description of a table that cannot be used
    │   ├── InvalidParameter       an option outside its range
    │   │   ├── WeakRegularisation budgets that nobody can keep at this λ; says which λ would do
    │   │   └── UnsafeFolder       a folder in which nothing can be kept from others
    │   └── InvalidData            a table that is not what was declared
    │       ├── MissingColumn      a column that the table does not have
    │       ├── WrongType          a column of another kind than declared
    │       ├── MissingValues      NaN, null or infinite values where none are declared
    │       ├── TooFewRows         an empty table, or one row
    │       └── UnequalLengths     columns of different length
    ├── BudgetExceeded             somebody would spend more than they granted
    ├── KeyReused                  the same key for another question
    ├── PlanChanged                the plan is not the one that was agreed to
    ├── LedgerBroken               the books do not add up
    ├── LedgerSealed               the books are older than something that was released from them
    ├── LedgerUnsigned             books of an earlier version, which must be upgraded before
                                   anything is written
    ├── LedgerUnavailable          the books cannot be reached or written now
    ├── WrongLedgerKey             the key that hides who is who is missing, or that of other books
    ├── UnsupportedLedger          a kind of ledger that this installation does not have
    ├── IncompatibleGuarantees     promises of different kinds cannot be added
    ├── InvalidRelease             a file that is not a release
    ├── Confidential               an exact loss, which is for the curator alone, was about to be
                                   written down
    └── ReleaseFailed              after the data was touched: says nothing about why

One warning is no error, because what it tells of has happened:

    OverdrawnWarning               what was spent outside is more than somebody allowed
"""

from __future__ import annotations

from typing import Any


class SottovoceError(Exception):
    """Say what was found, what is required and what to do, and which parameter is wrong.

    Parameters
    ----------
    found, required, remedy
        The three beats of the sentence.
    parameter
        The argument, or entry of the schema, that is wrong; None where it is not one of them.
    question
        In a report, the name of the question that it is about; None elsewhere.
    """

    def __init__(
        self,
        found: str,
        required: str = "",
        remedy: str = "",
        *,
        parameter: str | None = None,
        question: str | None = None,
    ) -> None:
        self.found = found
        self.required = required
        self.remedy = remedy
        self.parameter = parameter
        self.question = question
        super().__init__(" ".join(beat for beat in (found, required, remedy) if beat))

    def __reduce__(self) -> Any:
        # Worker processes send errors home by pickle; the default would keep only the sentence.
        kept = {"parameter": self.parameter, "question": self.question}
        return type(self), (self.found, self.required, self.remedy), kept


class InvalidInput(SottovoceError, ValueError):
    """Refused before anything is read or charged."""


class InvalidBudget(InvalidInput):
    """An ε that is negative, zero, not finite or too large."""


class InconsistentBudget(InvalidBudget):
    """One person with two different ε."""


class UnknownPeople(InvalidInput):
    """A row whose owner has no budget."""


class DuplicatePeople(InvalidInput):
    """A person listed twice in a table of budgets."""


class InvalidBounds(InvalidInput):
    """Limits that are missing, reversed, equal or not finite."""


class InvalidSchema(InvalidInput):
    """A description of a table that cannot be used."""


class InvalidParameter(InvalidInput):
    """An option outside its range."""


class WeakRegularisation(InvalidParameter):
    """Budgets that nobody can keep at this λ; ``smallest`` is one at which they can be kept."""

    def __init__(
        self,
        found: str,
        required: str = "",
        remedy: str = "",
        smallest: float = 0.0,
        *,
        parameter: str | None = None,
        question: str | None = None,
    ) -> None:
        super().__init__(found, required, remedy, parameter=parameter, question=question)
        self.smallest = smallest

    def __reduce__(self) -> Any:
        beats = (self.found, self.required, self.remedy)
        kept = {"parameter": self.parameter, "question": self.question}
        return type(self), (*beats, self.smallest), kept


class UnsafeFolder(InvalidParameter):
    """A folder in which others could exchange or read a confidential file; nothing was written."""


class InvalidData(InvalidInput):
    """A table that is not what was declared."""


class MissingColumn(InvalidData):
    """A column that the table does not have."""


class WrongType(InvalidData, TypeError):
    """A column of another kind than declared."""


class MissingValues(InvalidData):
    """NaN, null or infinite values where none are declared."""


class TooFewRows(InvalidData):
    """An empty table, or one row."""


class UnequalLengths(InvalidData):
    """Columns of different length."""


class BudgetExceeded(SottovoceError):
    """Somebody would spend more than they granted."""


class KeyReused(SottovoceError):
    """The same key for another question."""


class PlanChanged(SottovoceError):
    """The plan of a release is not the one that was agreed to; nobody was charged."""


class LedgerBroken(SottovoceError):
    """The books do not add up."""


class LedgerSealed(SottovoceError):
    """The books are older than something that was released from them, or not the same."""


class LedgerUnsigned(SottovoceError):
    """Books of an earlier version, which did not sign: they can be read, and must be upgraded to be
    written.
    """


class LedgerUnavailable(SottovoceError):
    """The books cannot be reached or written now; asking again under the same key charges nobody
    twice.
    """


class WrongLedgerKey(SottovoceError):
    """The key that hides who is who is missing, or belongs to other books."""


class UnsupportedLedger(SottovoceError):
    """A kind of ledger that this installation does not have."""


class IncompatibleGuarantees(SottovoceError):
    """Promises of different kinds cannot be added."""


class InvalidRelease(SottovoceError, ValueError):
    """A file that is not a release."""


class Confidential(SottovoceError, TypeError):
    """An exact loss depends on everybody's data, is for the curator alone, and is not written down
    or sent on.
    """


class OverdrawnWarning(UserWarning):
    """What was spent outside is more than somebody allowed: it is written down, and they have
    nothing left.
    """


class ReleaseFailed(SottovoceError):
    """After the data was touched every failure looks the same, because why it failed may depend on
    the data.
    """

    def __init__(
        self,
        found: str = "",
        required: str = "",
        remedy: str = "",
        *,
        parameter: str | None = None,
    ) -> None:
        super().__init__(
            found or "The release failed after private rows had been read.",
            required
            or "What it was going to cost stays spent, because the failure itself may tell "
            "something.",
            remedy or "Check the table against its schema, then ask again under a new key.",
            parameter=parameter,
        )
