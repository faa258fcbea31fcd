# SPDX-License-Identifier: Apache-2.0
"""How the command line speaks: what is said where, and how an error ends.

Answers go to standard output and everything meant for a person to standard error, so that a release
can be piped. A refusal is three sentences in red and exit code 2; Ctrl-C is one sentence and 130;
anything unexpected is one sentence and 1, never a traceback, because a traceback would quote data.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any

import typer

from sottovoce.cli.start import INTERRUPTED, SENTENCE, UNEXPECTED, Interrupts

if TYPE_CHECKING:
    from rich.console import Console

    from sottovoce.errors import SottovoceError

REFUSED = 2
#: Columns of a table that goes to a file or a pipe, which have no width of their own.
FILE_WIDTH = 120


def console(*, stderr: bool = False) -> Console:
    """Returns the terminal as it is now; numbers and brackets in a text are left as they are."""
    from rich.console import Console

    out = Console(stderr=stderr, highlight=False, markup=False, emoji=False)
    if not out.is_terminal:
        out.width = FILE_WIDTH
    return out


def say(text: str, *, stderr: bool = False, style: str | None = None, whole: bool = False) -> None:
    """Prints a text for people, wrapped between words at a terminal; lines to be copied stay ``whole``."""
    out = console(stderr=stderr)
    out.print(harmless(text), style=style, soft_wrap=whole or not out.is_terminal)


def hand_over(text: str) -> None:
    """Writes a file's content to standard output, as the very bytes that the file would have."""
    typer.echo(text.encode(), nl=False)


def harmless(text: str) -> str:
    """Returns the text without control characters: a file from a stranger must not steer the terminal."""
    return "".join(c if c.isprintable() or c == "\n" else "�" for c in text)


def plainly() -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Ends a command, whatever happens in it, with a sentence and its exit code."""

    def around(command: Callable[..., None]) -> Callable[..., None]:
        @wraps(command)
        def told(*words: Any, **options: Any) -> None:
            try:
                return command(*words, **options)
            except (typer.Exit, BrokenPipeError):
                raise
            except KeyboardInterrupt:
                code = _interrupted()
            except Exception as error:
                # A library may have made another error of the interrupt.
                code = _interrupted() if Interrupts.came else _told(error)
            raise typer.Exit(code)  # here, where no other error hangs on it that could quote data

        return told

    return around


def _interrupted() -> int:
    say(SENTENCE, stderr=True, style="red")
    Interrupts.told = True
    return INTERRUPTED


def _told(error: Exception) -> int:
    from sottovoce.errors import SottovoceError

    if isinstance(error, SottovoceError):
        say(_sentences(error), stderr=True, style="red")
        return REFUSED
    # Not even the kind of error is named: after rows have been read it may depend on them.
    say(
        "Something went wrong that sottovoce did not foresee. No file was left unfinished. "
        "Please report the command that you gave, without the data.",
        stderr=True,
        style="red",
    )
    return UNEXPECTED


def _sentences(error: SottovoceError) -> str:
    beats = (f"{type(error).__name__}: {error.found}", error.required, error.remedy)
    return "\n".join(beat for beat in beats if beat)
