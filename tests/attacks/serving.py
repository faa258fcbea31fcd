"""`sottovoce serve` as a process of its own, for whoever wants to attack it from outside."""

from __future__ import annotations

import http.client
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import sottovoce as sv

COMMAND = "from sottovoce.cli.start import main; main()"
PATIENCE = 300.0
#: What a browser says of a form that is a file.
FILE = {
    "Origin": "null",
    "Sec-Fetch-Site": "cross-site",
    "Content-Type": "application/x-www-form-urlencoded",
}


@dataclass
class Running:
    """The process, and what it has said so far."""

    process: subprocess.Popen
    temporary: Path
    said: list[str]

    @property
    def port(self) -> int:
        return int(self.link.split(":")[2].split("/")[0])

    @property
    def link(self) -> str:
        return self.until("http://")

    def until(self, words: str, times: int = 1) -> str:
        """Waits until a line with these words was printed so often; returns it."""
        late = time.monotonic() + PATIENCE
        while time.monotonic() < late:
            found = [line for line in list(self.said) if words in line]
            if len(found) >= times:
                return found[times - 1]
            time.sleep(0.01)
        raise AssertionError(f"{words!r} was not said: {self.said}")

    def ask(self, path: str, method: str = "GET", body: bytes | str | None = None, **headers: str):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, body, named)
        answer = connection.getresponse()
        text = answer.read().decode()
        connection.close()
        return answer.status, answer.headers, text

    def show(self, token: str, agent: str = "Mosaic"):
        """Shows a token as the file does."""
        headers = {name.replace("-", "_"): value for name, value in FILE.items()}
        return self.ask("/open", "POST", f"token={token}", User_Agent=agent, **headers)

    def sign_in(self, agent: str = "Mosaic") -> dict[str, str]:
        """Uses the link, and returns the headers of somebody who is in."""
        status, headers, _ = self.show(self.link.partition("#")[2], agent)
        assert status == 200
        return {
            "Cookie": headers["set-cookie"].partition(";")[0],
            "Sec_Fetch_Site": "same-origin",
            "User_Agent": agent,
        }

    def bring(self, content: bytes, headers: dict[str, str]) -> None:
        """Uploads a table."""
        body = (
            b'--x\r\nContent-Disposition: form-data; name="table"; filename="t.csv"\r\n\r\n'
            + content
            + b"\r\n--x--\r\n"
        )
        status, _, text = self.ask(
            "/api/tables", "POST", body, Content_Type="multipart/form-data; boundary=x", **headers
        )
        assert status == 201, text


def _hear_signals() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)


@contextmanager
def serving(
    folder: Path, *options: str, environment: dict[str, str] | None = None
) -> Iterator[Running]:
    """Starts the page over new books, on any free port; whatever is left of it is killed at the
    end.
    """
    temporary = folder / "temporary"
    books = folder / "books.db"
    temporary.mkdir(exist_ok=True)
    if not books.exists():
        sv.Session(ledger=books).grant({"ada": 1.0})
    command = [
        sys.executable,
        "-c",
        COMMAND,
        "serve",
        "--ledger",
        str(books),
        "--port",
        "0",
        *options,
    ]
    own = {**os.environ, "TMPDIR": str(temporary), **(environment or {})}
    # Whoever runs these tests may ignore a signal, as nohup does, and what is ignored stays so.
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=own,
        preexec_fn=_hear_signals,
    )
    running = Running(process, temporary, [])

    def listen() -> None:
        for line in process.stdout:
            running.said.append(line.rstrip("\n"))

    listener = threading.Thread(target=listen, daemon=True)
    listener.start()
    try:
        yield running
    finally:
        process.kill()
        process.wait()
        listener.join()
        process.stdout.close()
