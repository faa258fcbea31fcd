# SPDX-License-Identifier: Apache-2.0
"""`sottovoce serve`: the page for the curator and for each person, on this machine alone.

It prints a link that opens the page once; who has not seen it cannot come in. Books are opened and
never made by mistake, as by every other verb. When it ends, by Ctrl-C or by any signal that can be
caught, the tables that were opened in it are deleted; what a process that was killed has left is
swept when the next one begins.
"""

from __future__ import annotations

import os
import threading
import webbrowser
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sottovoce.cli import options
from sottovoce.cli.console import echo, exit_on_error
from sottovoce.cli.options import close_memory, refuse_open_password

if TYPE_CHECKING:
    from sottovoce.private_files import Scratch
    from sottovoce.session import Session
    from sottovoce.web.access_codes import SignInEvent

#: The name of the books in the environment.
LEDGER = "SOTTOVOCE_LEDGER"
#: What an exit code of a command that a signal has ended begins with.
KILLED = 128
#: Where the page is looked for first; 0 takes any port that is free.
PORT = 8765


@exit_on_error()
def serve(
    ledger: options.Ledger = None,
    keys: options.Keys = None,
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="The port; 0 takes any that is free.")
    ] = PORT,
    short: options.Short = "leave-out",
    in_browser: Annotated[
        bool,
        typer.Option(
            "--open/--no-open", help="Open the page in the browser, or only print its link."
        ),
    ] = True,
) -> None:
    """Open a page on this machine: for the curator, and with a code for each person.

    The link works once, and nobody else on the network can reach the page. Ctrl-C ends it.
    """
    from sottovoce.private_files import Scratch, sweep

    close_memory()
    refuse_open_password(ledger or "")
    server = _import_server()
    if not _may_exist(ledger):
        _open_session(ledger, keys, short)  # which says what is missing, before a link is printed
    os.environ.pop(LEDGER, None)  # it may hold a password, which the browser need not inherit
    sweep()
    with (
        server.open_socket(port) as here,
        server.EndingSignals() as ending,
        suppress(KeyboardInterrupt),
        ExitStack() as at_the_end,
    ):
        scratch = Scratch.made()
        at_the_end.callback(scratch.remove)
        entrance = Entrance(server, here.getsockname()[1], scratch.path / "open.html")
        token = entrance.print_link(server.new_secret())
        echo(
            f"This link opens the page once, on this machine, within {server.LIFE // 60} minutes. "
            "Ctrl-C ends the page and deletes the tables.",
            stderr=True,
        )
        if in_browser:
            entrance.open_browser(token)
        server.run_server(
            lambda: _load_apps(
                _open_session(ledger, keys, short), ledger, keys, scratch, at_the_end
            ),
            here,
            token,
            entrance.tell,
            ending,
        )
    with suppress(OSError):  # the terminal may be gone, and have sent the signal
        echo("The page is closed, and the tables that were brought to it are deleted.", stderr=True)
    if ending.participating is not None:
        raise typer.Exit(KILLED + ending.participating)


@dataclass
class Entrance:
    """The way to the page: the printed link, and a file that the browser is opened on.

    A command line can be read by everybody, that of the browser too. So the browser is given the
    name of a file, and the token stands in the file, which only its owner can read and which is
    gone once somebody came in.
    """

    server: Any
    port: int
    file: Path

    def print_link(self, token: str) -> str:
        """Prints the link to the page, at the terminal and nowhere else; returns its token."""
        echo(self.server.make_link(self.port, token), whole=True)
        return token

    def open_browser(self, token: str) -> None:
        """Opens the browser on a file that sends the token."""
        from sottovoce.private_files import write_new

        write_new(self.file, self.server.make_form(self.port, token).encode())
        late = threading.Timer(self.server.LIFE, self.forget)
        late.daemon = True
        late.start()
        threading.Thread(target=webbrowser.open, args=(self.file.as_uri(),), daemon=True).start()

    def forget(self) -> None:
        """Deletes the file."""
        self.file.unlink(missing_ok=True)

    def tell(self, news: SignInEvent) -> None:
        """Tells the curator who came in, or tried to; a new token is printed as a link."""
        self.forget()
        with suppress(OSError):  # nobody is at the terminal any more
            echo(news.words, stderr=True, style=None if news.token is None else "red")
            if news.token is not None:
                self.print_link(news.token)


def _load_apps(
    session: Session, ledger: str | None, keys: Path | None, scratch: Scratch, at_the_end: ExitStack
) -> Iterator[Any]:
    """Yields the pages, and then, because the JSON takes as long to load as all of them, both."""
    from sottovoce.web.app import make_pages_app
    from sottovoce.web.workspace import Workspace

    workspace = Workspace(ledger, keys, session, scratch)
    at_the_end.callback(workspace.clear)
    yield make_pages_app(workspace)

    from sottovoce.web.app import make_full_app

    yield make_full_app(workspace)


def _may_exist(ledger: str | None) -> bool:
    """Whether there may be books: a file that is not there is known without loading anything."""
    if ledger is None:
        path = ""
    else:
        path = ledger.removeprefix("sqlite:///")
    return "://" in path or Path(path).is_file()


def _open_session(ledger: str | None, keys: Path | None, short: str) -> Session:
    from sottovoce.cli.options import open_session

    return open_session(ledger, keys, short)


def _import_server() -> Any:
    """Returns the server of the page, or says how to install what it needs."""
    from sottovoce.errors import InvalidParameter

    try:
        from sottovoce.web import server

        return server
    except ModuleNotFoundError:
        pass  # raised below
    raise InvalidParameter(
        "The page needs packages that are not installed.", "", "Run `pip install 'sottovoce[web]'`."
    )
