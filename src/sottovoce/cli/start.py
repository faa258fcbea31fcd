# SPDX-License-Identifier: Apache-2.0
"""Where the command begins: from here on Ctrl-C ends it with one sentence and exit code 130,
whatever it is doing.

Loading libraries takes most of the time of a short command, and Ctrl-C then meets Python in places
that cannot raise anything, such as the callback by which an import gives its lock back. There
Python drops a KeyboardInterrupt and goes on. An interrupt that was dropped is sent once more, until
it takes part; and an error that a library made of one is taken for what it was.

Arrow is loaded without pandas, which takes longer than a plan does. When it first makes a value,
Arrow loads pandas if that is installed, to know a data frame when it sees one. At the terminal a
table is a file, and none is seen. Arrow asks once; where it is passed a data frame after all, as by
the engine of Dask, it asks again.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from contextlib import suppress

TYPE_CHECKING = False  # typing takes longer to load than all of this
if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import FrameType, ModuleType

UNEXPECTED = 1
INTERRUPTED_EXIT = 130
INTERRUPTED_SENTENCE = "Interrupted. No file was left unfinished."
UNFORESEEN = (
    "Something went wrong that sottovoce did not foresee. Please report the command that you "
    "gave, without the data."
)
#: Seconds before a dropped interrupt is sent again: enough to leave the place that cannot raise.
RESEND_DELAY = 0.01


class Interrupts:
    """What is known of Ctrl-C in this process."""

    came = False  # whether Ctrl-C was pressed
    told = False  # whether a sentence has said so


def main() -> None:
    """Runs the command that was typed."""
    signal.signal(signal.SIGINT, _interrupt)
    sys.unraisablehook = _unraisable
    # A traceback quotes what went wrong, and that may be data: nobody prints one, in no thread.
    sys.excepthook = _report_unforeseen
    threading.excepthook = _report_unforeseen
    code: str | int | None = INTERRUPTED_EXIT
    try:
        from sottovoce.cli.main import app

        app()
    except SystemExit as end:
        code = end.code
    except KeyboardInterrupt:
        pass  # told below
    except (
        Exception
    ):  # outside of every command; its traceback would be printed by typer's own hook
        if (
            not Interrupts.came
        ):  # Python makes another error of an interrupt that comes while a class is made
            _report_unforeseen()
            code = UNEXPECTED
    signal.signal(
        signal.SIGINT, signal.SIG_IGN
    )  # all is done, and Python may take a while to leave
    if code == INTERRUPTED_EXIT and not Interrupts.told:
        print(INTERRUPTED_SENTENCE, file=sys.stderr)
    if code == INTERRUPTED_EXIT:
        # An interrupt may leave a lock taken for which a reading thread waits for ever, and Python
        # waits for its threads.
        with suppress(OSError, ValueError):  # there may be nobody who reads
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


def _interrupt(number: int, frame: FrameType | None) -> None:
    Interrupts.came = True
    while frame is not None:
        if frame.f_code is _unraisable.__code__:  # where it would be dropped again
            return _send_later()
        frame = frame.f_back
    raise KeyboardInterrupt


def _unraisable(dropped: sys.UnraisableHookArgs) -> None:
    if issubclass(dropped.exc_type, KeyboardInterrupt):
        _send_later()
    else:
        _report_unforeseen()


def _report_unforeseen(*_: object) -> None:
    """Says that something went wrong, and not what."""
    with suppress(OSError, ValueError):  # there may be nobody to say it to
        print(UNFORESEEN, file=sys.stderr)


def _send_later() -> None:
    again = threading.Timer(RESEND_DELAY, _send)
    again.daemon = True
    again.start()


def _send() -> None:
    main_thread = threading.main_thread().ident
    if hasattr(signal, "pthread_kill") and main_thread is not None:
        signal.pthread_kill(main_thread, signal.SIGINT)  # also wakes it where it waits
    else:
        signal.raise_signal(signal.SIGINT)


class _NoPandas:
    """A place to look for modules in that says of pandas that there is none."""

    @staticmethod
    def find_spec(
        name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> None:
        if name == "pandas":
            raise ModuleNotFoundError(name=name)


def load_arrow() -> None:
    """Loads Arrow, and lets it ask for pandas while there seems to be none."""
    if "pandas" in sys.modules:
        return
    sys.meta_path.insert(0, _NoPandas)
    try:
        import pyarrow as pa

        pa.scalar(True)
    finally:
        sys.meta_path.remove(_NoPandas)
