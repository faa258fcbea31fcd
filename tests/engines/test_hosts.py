"""Spark and Dask over four hosts: one digest, with a slow host, and with one lost in the middle.

The hosts are network namespaces: a standalone Spark master and three workers, a Dask scheduler and
three workers that speak TLS alone. `make test-long` runs them where root may make namespaces.
"""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import engine_cases as cases
import hosts
import hosts_driver
from sottovoce.data.census import take_census
from sottovoce.data.engine import open_engine

TESTS = Path(__file__).resolve().parents[1]
WORKERS = 3
PIECES = 12
PORT = 7077
#: How long a cluster may take before a test gives up on it.
PATIENCE = 300

pytestmark = [
    pytest.mark.long,
    pytest.mark.cluster,
    pytest.mark.skipif(not hosts.can_make_hosts(), reason="only root can make hosts"),
]


def write_table(folder: Path) -> str:
    """Writes the table in pieces, and returns the digest of the whole of it on this machine."""
    table = cases.rows()
    folder.mkdir()
    step = -(-len(table) // PIECES)
    for place in range(PIECES):
        pq.write_table(table.slice(place * step, step), folder / f"{place}.parquet")
    whole = open_engine(table)
    budgets, owner = take_census(whole, budget="epsilon", person="name")
    return cases.digest(whole, cases.statistics(owner, len(budgets.kinds.epsilon)))


def wait_for(path: Path, driver: subprocess.Popen[Any], told: Path) -> None:
    until = time.monotonic() + PATIENCE
    while not path.exists():
        assert driver.poll() is None, told.read_text()
        assert time.monotonic() < until, told.read_text()
        time.sleep(0.05)


def find_host(there: list[hosts.Host], pid: int) -> hosts.Host:
    name = hosts.run("ip", "netns", "identify", str(pid)).strip()
    return next(host for host in there if host.name == name)


def check_digests(name: str, master: str, there: list[hosts.Host], folder: Path, more) -> None:
    """Runs the driver on the first host, and takes away the host that is being waited for."""
    digest = write_table(folder / "table")
    (folder / "struck").mkdir()
    driver = there[0].start(
        [sys.executable, TESTS / "hosts_driver.py", name, master, folder, there[0].address],
        {"PYTHONPATH": f"{TESTS}{os.pathsep}{os.environ.get('PYTHONPATH', '')}", **more},
    )
    wait_for(folder / "struck" / "pid", driver, there[0].log)
    lost = find_host(there, int((folder / "struck" / "pid").read_text()))
    assert lost is not there[0]
    lost.lose()
    assert driver.wait(PATIENCE) == 0, there[0].log.read_text()
    told = [line.split()[1] for line in there[0].log.read_text().splitlines() if "digest" in line]
    assert told == [digest, digest]


def environment(place: int, more: dict[str, str]) -> dict[str, str]:
    """What a worker is started with; the last one is slow."""
    own = {"PYTHONPATH": f"{TESTS}{os.pathsep}{os.environ.get('PYTHONPATH', '')}", **more}
    if place == WORKERS:
        own[hosts_driver.SLOW] = "1"
    return own


@pytest.mark.xdist_group("hosts")
def test_spark_has_one_digest_over_four_hosts(tmp_path):
    if shutil.which("java") is None:
        pytest.skip("Spark needs Java, and this machine has none.")
    import pyspark

    launch = Path(pyspark.__file__).parent / "bin" / "spark-class"
    secret = secrets.token_hex(16)
    options = f"-Dspark.authenticate=true -Dspark.authenticate.secret={secret}"
    with hosts.make_hosts(1 + WORKERS, tmp_path) as there:
        address = there[0].address
        shared = {
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_DAEMON_JAVA_OPTS": options,
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_SECRET": secret,
            "JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        }
        there[0].start(
            [
                *(launch, "org.apache.spark.deploy.master.Master", "--host", address),
                *("--port", PORT, "--webui-port", 0),
            ],
            shared,
        )
        for place, host in enumerate(there[1:], start=1):
            host.start(
                [
                    *(launch, "org.apache.spark.deploy.worker.Worker", "--host", host.address),
                    *("--cores", 1, "--memory", "1g", "--webui-port", 0),
                    *("--work-dir", tmp_path / f"work-{place}", f"spark://{address}:{PORT}"),
                ],
                environment(place, shared),
            )
        check_digests("spark", f"spark://{address}:{PORT}", there, tmp_path, shared)


@pytest.mark.xdist_group("hosts")
def test_dask_has_one_digest_over_four_hosts_that_speak_tls(tmp_path):
    tls = tmp_path / "tls"
    tls.mkdir()
    hosts.run(
        *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1"),
        *("-subj", "/CN=hosts", "-keyout", str(tls / "key.pem"), "-out", str(tls / "cert.pem")),
    )
    words = ["--tls-ca-file", tls / "cert.pem", "--tls-cert", tls / "cert.pem"]
    words += ["--tls-key", tls / "key.pem", "--no-dashboard"]
    with hosts.make_hosts(1 + WORKERS, tmp_path) as there:
        scheduler = f"tls://{there[0].address}:{PORT}"
        there[0].start(
            [
                *(sys.executable, "-m", "distributed.cli.dask_scheduler", *words),
                *("--host", there[0].address, "--port", PORT, "--protocol", "tls"),
            ],
            environment(0, {}),
        )
        for place, host in enumerate(there[1:], start=1):
            host.start(
                [
                    *(sys.executable, "-m", "distributed.cli.dask_worker", *words),
                    *("--host", host.address, "--nworkers", 1, "--nthreads", 1),
                    *("--local-directory", tmp_path / f"work-{place}", scheduler),
                ],
                environment(place, {}),
            )
        check_digests("dask", scheduler, there, tmp_path, {})
