# SPDX-License-Identifier: Apache-2.0
"""What is confidential stays here: objects that do not let themselves be written down or sent on.

A loss depends on everybody's data, also when it is shown to its owner alone. So it is neither
pickled nor copied nor made JSON, by accident or inside something else; whoever wants numbers takes
them out by hand, knowing what they do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from sottovoce.arrays import Floats
from sottovoce.errors import Confidential
from sottovoce.svg import draw_histogram

if TYPE_CHECKING:
    from sottovoce.audit.instance_losses import Summary

STAMP = "CONFIDENTIAL, for the curator alone"
#: What of NumPy writes arrays to files, or as text.
WRITERS = (np.save, np.savez, np.savez_compressed, np.savetxt, np.array2string, np.array_str)


def confidential_error() -> Confidential:
    """Why exact losses are not written down."""
    return Confidential(
        "An exact per-instance loss depends on everybody's data, also when it is shown to its "
        "owner alone.",
        "It is for the curator, and is not put into files, messages or other objects.",
        "Publish what sv.audit.mine gives, which follows from public numbers, or "
        "sv.audit.histogram of it.",
    )


class ConfidentialObject(dict[str, bool]):
    """An object that refuses to be pickled, copied or made JSON.

    It is a dictionary so that json, which writes dictionaries by their items, comes to ``items``
    and is refused with the reason; the one entry that it has says what it is.
    """

    def __init__(self) -> None:
        super().__init__(confidential=True)

    def items(self) -> NoReturn:
        """Refuse: what asks for all there is would write it down.

        Raises
        ------
        Confidential
            Always.
        """
        raise confidential_error()

    def to_json(self) -> NoReturn:
        """Refuse to write confidential numbers down.

        Raises
        ------
        Confidential
            Always.
        """
        raise confidential_error()

    def copy(self) -> NoReturn:
        """Refuse to copy confidential numbers.

        Raises
        ------
        Confidential
            Always.
        """
        raise confidential_error()

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise confidential_error()

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {STAMP}>"

    __str__ = __repr__

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:  # type: ignore[override]
        return id(self)


class ConfidentialArray(np.ndarray[Any, np.dtype[np.float64]]):
    """An array of confidential numbers, and whatever is computed from it entry by entry.

    It is neither pickled, nor saved, nor shown as text.
    """

    @classmethod
    def of(cls, values: NDArray[np.float64]) -> ConfidentialArray:
        """Marks an array as confidential, and read-only."""
        marked = np.array(values, dtype=np.float64).view(cls)
        marked.setflags(write=False)
        return marked

    def __array_wrap__(self, array: Any, context: Any = None, return_scalar: bool = False) -> Any:
        if return_scalar:
            return array[()]
        return super().__array_wrap__(array, context, False)

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if func in WRITERS:
            raise confidential_error()
        return super().__array_function__(func, types, args, kwargs)

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise confidential_error()

    def tofile(self, *given: Any, **options: Any) -> NoReturn:
        """Refuse to write confidential numbers down.

        Parameters
        ----------
        given, options :
            What NumPy's method takes.

        Raises
        ------
        Confidential
            Always.
        """
        raise confidential_error()

    def __repr__(self) -> str:
        return f"<Losses of {self.size}: {STAMP}>"

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        return repr(self)


def find_median(losses: Floats) -> float:
    """Return the median, one of the losses themselves."""
    return float(np.quantile(losses, 0.5, method="inverted_cdf"))


def draw_losses(
    losses: Any, summary: Summary, *, unit: str = "rows", standalone: bool = False
) -> str:
    """Return losses as a histogram on a logarithmic axis, with marks for the median, the worst
    record and the promise, stamped as confidential.
    """
    losses = np.asarray(losses)
    marks = {"median": find_median(losses), "any record": summary.for_all}
    if summary.promised is not None:
        marks["promised"] = summary.promised[1]
    return draw_histogram(
        losses,
        {f"{name}: ε = {mark:.3g}": mark for name, mark in marks.items() if mark is not None},
        f"How many {unit} lost how much, as ε on a logarithmic axis ({STAMP})",
        unit=unit,
        across="ε, each step is ten times more",
        standalone=standalone,
    )
