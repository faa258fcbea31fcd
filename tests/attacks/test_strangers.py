"""What another user of the machine can do to the engines: connect to what listens, read what is
spilled, plant a view.

A stranger has the machine's loopback and its file system, and none of the curator's secrets. Each
attack begins with a control: against a cluster as Dask starts it by default, or a connection as
DuckDB opens it, it succeeds.
"""

from __future__ import annotations

import asyncio
import http.client
import os
import stat
from pathlib import Path
from typing import Any

import distributed
import duckdb
import pytest
from distributed.comm import connect
from distributed.security import Security

from sottovoce import errors
from sottovoce.data.engine import get_engine

pytestmark = [pytest.mark.cluster, pytest.mark.filterwarnings("ignore::ResourceWarning")]
#: How long an answer that will come may take on a busy machine, in seconds.
PATIENCE = 300
dask_group = pytest.mark.xdist_group("dask")
spark_group = pytest.mark.xdist_group("spark")


def reaches_scheduler(address: str, security: Security | None = None, patience: float = 10) -> bool:
    """Whether somebody without the cluster's own credentials gets the scheduler to answer."""

    async def ask() -> Any:
        if security is None:
            arguments = {}
        else:
            arguments = security.get_connection_args("client")
        comm = await connect(address, timeout=patience / 2, **arguments)
        try:
            await comm.write({"op": "identity", "reply": True})
            return await asyncio.wait_for(comm.read(), patience)
        finally:
            comm.abort()

    try:
        return "workers" in asyncio.run(ask())
    except (OSError, TypeError, ValueError, RuntimeError, TimeoutError):
        return False


def answers_http(port: int, path: str) -> bool:
    """Whether a page can be read."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("GET", path)
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def listening(pids: set[int]) -> set[int]:
    """The TCP ports that these processes listen on, as the kernel tells everybody."""
    inodes = set()
    for pid in pids:
        for link in Path(f"/proc/{pid}/fd").glob("*"):
            try:
                target = os.readlink(link)
            except OSError:
                continue
            if target.startswith("socket:["):
                inodes.add(target[8:-1])
    ports = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(table).read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and fields[9] in inodes:
                ports.add(int(fields[1].rpartition(":")[2], 16))
    return ports


def own_dask() -> Any:
    """The cluster that the engine starts, after it has folded something."""
    from sottovoce.data.engines import dask

    return dask._start_cluster()


@dask_group
def test_a_stranger_reaches_a_cluster_as_dask_starts_it():
    with distributed.LocalCluster(
        n_workers=0, processes=False, protocol="tcp://", dashboard_address=None
    ) as cluster:
        assert reaches_scheduler(cluster.scheduler_address, patience=PATIENCE)


@dask_group
def test_a_stranger_does_not_reach_our_cluster():
    cluster = own_dask().cluster
    address = cluster.scheduler_address
    assert address.startswith("tls://127.0.0.1:")
    # With the credentials the very same question is answered.
    assert reaches_scheduler(address, cluster.security, PATIENCE)
    assert not reaches_scheduler(address.replace("tls://", "tcp://"))
    assert not reaches_scheduler(address, Security.temporary())  # of somebody else's making
    workers = [worker["nanny"] for worker in own_dask().scheduler_info()["workers"].values()]
    workers += list(own_dask().scheduler_info()["workers"])
    assert workers
    for worker in workers:
        assert worker.startswith("tls://127.0.0.1:")
        assert not reaches_scheduler(worker.replace("tls://", "tcp://"))
        assert not reaches_scheduler(worker, Security.temporary())


@dask_group
@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="ports are looked up in /proc")
def test_no_page_of_the_cluster_tells_anything():
    own_dask().submit(int).result()
    scheduler = own_dask().cluster.scheduler
    own = {scheduler.http_server.port, int(scheduler.address.rpartition(":")[2])}
    assert own <= listening({os.getpid()})  # where other servers of the tests may listen too
    ports = own | listening(set(own_dask().run(os.getpid).values()))
    assert len(ports) > 2
    pages = (
        "/",
        "/status",
        "/info/main/workers.html",
        "/json/identity.json",
        "/health",
        "/metrics",
        "/sysmon",
    )
    for port in ports:
        assert not any(answers_http(port, page) for page in pages), port


@dask_group
def test_workers_spill_where_nobody_else_can_read():
    folders = own_dask().run(lambda dask_worker: dask_worker.local_directory)
    for folder in folders.values():
        ours = next(
            parent for parent in Path(folder).parents if parent.name.startswith("sottovoce-")
        )
        assert stat.S_IMODE(ours.stat().st_mode) == 0o700


@spark_group
@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="ports are looked up in /proc")
def test_our_spark_asks_for_a_secret_and_spills_in_private():
    from sottovoce.data.engines import spark

    session = spark._get_session()
    settings = dict(session.sparkContext.getConf().getAll())
    for wanted in (
        "spark.authenticate",
        "spark.network.crypto.enabled",
        "spark.io.encryption.enabled",
    ):
        assert settings[wanted] == "true"
    assert stat.S_IMODE(Path(settings["spark.local.dir"]).stat().st_mode) == 0o700
    java = session.sparkContext._gateway.proc.pid
    assert (
        "secret" not in Path(f"/proc/{java}/cmdline").read_text()
    )  # Spark draws one itself and tells nobody
    ports = listening({java})
    assert ports
    assert not any(answers_http(port, "/") for port in ports)


@pytest.fixture
def planted(tmp_path):
    """A database that somebody else made: its table is a view on another file."""
    secret = tmp_path / "secret.csv"
    secret.write_text("value\n1\n2\n")
    database = tmp_path / "hospital.duckdb"
    with duckdb.connect(str(database)) as connection:
        connection.execute("CREATE TABLE honest AS SELECT 1 AS value")
        connection.execute(f"CREATE VIEW claims AS FROM read_csv('{secret}')")
    return database


def count(table: str) -> int:
    engine = get_engine("duckdb").open_table(table)
    return len(engine.columns())


def test_a_view_in_a_database_opens_no_other_file(planted):
    with duckdb.connect(
        str(planted), read_only=True
    ) as connection:  # the control: by default it does
        assert connection.sql("FROM claims").fetchall() == [(1,), (2,)]
    assert count(f"{planted}#honest") == 1
    with pytest.raises(errors.InvalidData):
        count(f"{planted}#claims")


def test_our_connection_loads_no_extension_and_keeps_its_settings(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("value\n1\n2\n")
    relation = get_engine("duckdb").open_table(str(path), ("value",)).relation  # type: ignore[attr-defined]
    settings = (
        "autoinstall_known_extensions autoload_known_extensions allow_community_extensions "
        "enable_external_access"
    )
    asked = ", ".join(f"current_setting('{name}')" for name in settings.split())
    assert relation.limit(1).aggregate(asked).fetchall() == [(False,) * 4]
