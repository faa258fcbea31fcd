# SPDX-License-Identifier: Apache-2.0
"""`sottovoce serve`: the page for the curator and for each person, on this machine alone.

It prints a link that opens the page once; who has not seen it cannot come in. Books are opened and never made by
mistake, as by every other verb. When it ends, the tables that were brought to it are deleted.
"""

from __future__ import annotations

import threading
import webbrowser
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sottovoce.cli import words
from sottovoce.cli.voice import plainly, say

if TYPE_CHECKING:
    from sottovoce.session import Session

#: Where the page is looked for first; 0 takes any port that is free.
PORT = 8765


@plainly()
def serve(
    ledger: words.Ledger = None,
    keys: words.Keys = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port; 0 takes any that is free.")] = PORT,
    short: words.Short = "leave-out",
    in_browser: Annotated[
        bool, typer.Option("--open/--no-open", help="Open the page in the browser, or only print its link.")
    ] = True,
) -> None:
    """Open a page on this machine: for the curator, and with a code for each person.

    The link works once, and nobody else on the network can reach the page. Ctrl-C ends it.
    """
    opening = _installed()
    if not _there(ledger):
        _opened(ledger, keys, short)  # which says what is missing, before a link is printed
    with opening.listening(port) as here:
        token = opening.new_secret()
        link = f"http://127.0.0.1:{here.getsockname()[1]}/open?token={token}"
        say(link, whole=True)
        say("This link opens the page once, on this machine. Ctrl-C ends it and deletes the tables.", stderr=True)
        if in_browser:
            threading.Thread(target=webbrowser.open, args=(link,), daemon=True).start()
        with suppress(KeyboardInterrupt), ExitStack() as at_the_end:
            opening.run(lambda: _rooms(_opened(ledger, keys, short), ledger, keys, at_the_end), here, token)
    say("The page is closed, and the tables that were brought to it are deleted.", stderr=True)


def _rooms(session: Session, ledger: str | None, keys: Path | None, at_the_end: ExitStack) -> Iterator[Any]:
    """Yields the pages, and then, because the JSON takes as long to load as all of them, both."""
    from sottovoce.web.desk import Desk
    from sottovoce.web.rooms import pages

    desk = Desk(ledger, keys, session)
    at_the_end.callback(desk.clear)
    yield pages(desk)

    from sottovoce.web.app import everything

    yield everything(desk)


def _there(ledger: str | None) -> bool:
    """Whether there may be books: a file that is not there is known without loading anything."""
    path = "" if ledger is None else ledger.removeprefix("sqlite:///")
    return "://" in path or Path(path).is_file()


def _opened(ledger: str | None, keys: Path | None, short: str) -> Session:
    from sottovoce.cli.books import opened

    return opened(ledger, keys, short)


def _installed() -> Any:
    """Returns the server of the page, or says how to install what it needs."""
    from sottovoce.errors import InvalidParameter

    try:
        from sottovoce.web import opening

        return opening
    except ModuleNotFoundError:
        pass  # raised below
    raise InvalidParameter("The page needs packages that are not installed.", "", "Run `pip install 'sottovoce[web]'`.")
