"""Several hosts on one machine: network namespaces with addresses of their own behind one switch.

Only root can make them, so tests that need them are skipped elsewhere. What runs on a host is a
process of its namespace; losing a host means killing all of them at once.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

#: Addresses that no route of this machine leads to: they exist inside the namespaces alone.
NETWORK = "10.231.77"
SWITCH = "sottovoce-switch"


def run(*words: str) -> str:
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout


def can_make_hosts() -> bool:
    """Whether this process may make network namespaces."""
    if shutil.which("ip") is None or os.geteuid() != 0:
        return False
    tried = subprocess.run(["ip", "netns", "add", SWITCH], capture_output=True, check=False)
    if tried.returncode == 0:
        run("ip", "netns", "del", SWITCH)
    return tried.returncode == 0


@dataclass
class Host:
    """A namespace with one address, and the processes that were started in it."""

    name: str
    address: str
    log: Path
    running: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def start(self, command: Sequence[Any], environment: Mapping[str, str]) -> subprocess.Popen:
        with self.log.open("ab") as log:
            process = subprocess.Popen(
                ["ip", "netns", "exec", self.name, *map(str, command)],
                env={**os.environ, **environment},
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        self.running.append(process)
        return process

    def lose(self) -> None:
        """Kills whatever runs there, as when the power goes."""
        for pid in run("ip", "netns", "pids", self.name).split():
            with suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
        for process in self.running:
            process.wait()


@contextmanager
def make_hosts(count: int, folder: Path) -> Iterator[list[Host]]:
    """Yields hosts that reach each other and nothing else."""
    hosts = [
        Host(f"sottovoce-{place}", f"{NETWORK}.{10 + place}", folder / f"host-{place}.log")
        for place in range(count)
    ]
    made = []
    try:
        run("ip", "netns", "add", SWITCH)
        made.append(SWITCH)
        run("ip", "-n", SWITCH, "link", "add", "bridge", "type", "bridge")
        run("ip", "-n", SWITCH, "link", "set", "bridge", "up")
        for place, host in enumerate(hosts):
            run("ip", "netns", "add", host.name)
            made.append(host.name)
            _connect(host, f"port{place}")
        yield hosts
    finally:
        for host in hosts:
            if host.name in made:
                host.lose()
        for name in made:
            run("ip", "netns", "del", name)


def _connect(host: Host, port: str) -> None:
    run(
        *("ip", "-n", SWITCH, "link", "add", port, "type", "veth"),
        *("peer", "name", "eth0", "netns", host.name),
    )
    run("ip", "-n", SWITCH, "link", "set", port, "master", "bridge")
    run("ip", "-n", SWITCH, "link", "set", port, "up")
    run("ip", "-n", host.name, "address", "add", f"{host.address}/24", "dev", "eth0")
    run("ip", "-n", host.name, "link", "set", "eth0", "up")
    run("ip", "-n", host.name, "link", "set", "lo", "up")
