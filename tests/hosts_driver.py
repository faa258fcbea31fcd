"""What runs on the first host: connect to the cluster, add up, and print one digest a turn.

    python hosts_driver.py spark spark://… FOLDER      (the secret is in the environment)
    python hosts_driver.py dask  tls://…   FOLDER      (certificates are in FOLDER/tls)

In the second turn the kernel waits where it meets one row, until somebody has killed its host.
"""

from __future__ import annotations

import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import engine_cases as cases
from sottovoce.data.census import take_census
from sottovoce.data.engine import get_engine

#: Set on the slow host.
SLOW = "SOTTOVOCE_SLOW_HOST"


@dataclass(frozen=True, eq=False)
class Slowed:
    """A kernel that takes its time on one of the hosts."""

    kernel: Any

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(self.kernel.columns)

    def zero(self) -> Any:
        return self.kernel.zero()

    def __call__(self, batch: Any) -> Any:
        if SLOW in os.environ:
            time.sleep(0.5)
        return self.kernel(batch)


def connect_spark(master: str, address: str) -> None:
    from pyspark.sql import SparkSession

    (
        SparkSession.builder.master(master)
        .config("spark.driver.host", address)
        .config("spark.driver.bindAddress", address)
        .config("spark.authenticate", "true")
        .config("spark.authenticate.secret", os.environ["SPARK_SECRET"])
        .config("spark.ui.enabled", "false")
        .config("spark.executor.memory", "512m")
        .config("spark.executor.cores", "1")
        .config("spark.network.timeout", "60s")
        .config("spark.network.timeoutInterval", "10s")
        .config("spark.executor.heartbeatInterval", "5s")
        .getOrCreate()
    )


def connect_dask(scheduler: str, folder: Path) -> Any:
    import distributed

    tls = folder / "tls"
    security = distributed.Security(
        tls_ca_file=str(tls / "cert.pem"),
        tls_client_cert=str(tls / "cert.pem"),
        tls_client_key=str(tls / "key.pem"),
        require_encryption=True,
    )
    client = distributed.Client(scheduler, security=security)
    client.wait_for_workers(3)
    return client


def main() -> None:
    name, master, where, address = sys.argv[1:]
    folder = Path(where)
    if name == "spark":
        connect_spark(master, address)
    else:
        client = connect_dask(master, folder)  # kept: the engine takes the client that is there
        assert client.status == "running"
    engine = get_engine(name).open_table(str(folder / "table"))
    budgets, owner = take_census(engine, budget="epsilon", person="name")
    kernel = Slowed(cases.statistics(owner, len(budgets.kinds.epsilon)))
    for turn in (kernel, cases.Struck(kernel, str(folder / "struck"))):
        print("digest", cases.digest(engine, turn), flush=True)


if __name__ == "__main__":
    main()
