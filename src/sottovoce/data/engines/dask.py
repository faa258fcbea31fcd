# SPDX-License-Identifier: Apache-2.0
"""Dask: data frames whose partitions live on workers, and files that workers open by themselves.

Each worker folds its share of the rows where they are and sends home the sum, or a sentence why it
refused; sums of several shares are added on the workers before they travel. The kernel is sent
once. A worker that dies is replaced by Dask and its share is folded again: shares are pure, so
nothing else changes. The current client is used if there is one, else a cluster of processes on
this machine that ends with ours.

Whatever listens on loopback is open to every user of the machine, and a scheduler runs what it is
sent. So our own cluster speaks TLS with credentials made for it and kept in memory, its web servers
answer nothing, and workers spill into a folder that nobody else can read.
"""

from __future__ import annotations

import atexit
import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import dask
import dask.dataframe as dd
import distributed
import pandas as pd
import pyarrow as pa
from dask.delayed import delayed
from distributed.comm.core import CommClosedError
from distributed.scheduler import NoValidWorkerError, NoWorkerError

from sottovoce.data import engine
from sottovoce.data.engine import (
    DEFAULT_TEXT_FORMAT,
    Engine,
    Kernel,
    Part,
    PartialResult,
    TextFormat,
    Watch,
)
from sottovoce.data.engines import arrow
from sottovoce.errors import WrongType
from sottovoce.private_files import Scratch

#: So many shares are added on a worker before their sum is sent home.
BRANCH = 16
#: Folding begins again so many times if what the workers held is lost with them.
RETRIES = 2
#: Dask warns of arguments larger than this; a kernel knows every person, and there may be many.
ARGUMENT_WARNING_SIZE = "4GB"
#: A cluster of our own has so many workers at least: what one of them holds must survive it.
MIN_WORKERS = 2
#: A cluster of our own that has been without any worker for so long is told that they are lost.
NO_WORKER_TIMEOUT = "30s"
#: Pages about tasks and machines, which anybody on the machine could ask for.
NO_WORKER_PAGES: dict[str, Any] = {"distributed": {"worker": {"http": {"routes": []}}}}
NO_HTTP_ROUTES: dict[str, Any] = {
    "distributed.scheduler.http.routes": [],
    "distributed.worker.http.routes": [],
}
#: What Dask raises when it gives up on workers, rather than on what they compute.
LOST_WORKER_ERRORS = (
    distributed.CancelledError,
    distributed.client.FutureCancelledError,
    CommClosedError,
    NoValidWorkerError,
    NoWorkerError,
    TimeoutError,
)

#: From a client, the kernel there and the columns it names, to futures of shares.
SubmitPartitions = Callable[[Any, Any, tuple[str, ...]], list[Any]]


@dataclass(frozen=True, eq=False)
class DaskEngine:
    """Rows on the workers of a cluster."""

    kinds: Mapping[str, str]
    shares: SubmitPartitions
    watch: Watch | None = None

    def columns(self) -> Mapping[str, str]:
        """Names of the columns and their kinds: number, text, date, nested or other."""
        return self.kinds

    def fold(self, kernel: Kernel[Part]) -> Part:
        """Returns the sum of kernel(batch) over batches that together hold every row exactly
        once.
        """
        for _ in range(1 + RETRIES):
            folded = self._fold_once(kernel)
            if folded is not None:
                return folded.whole()
        raise engine.workers_lost_error()

    def _fold_once(self, kernel: Kernel[Part]) -> PartialResult[Part] | None:
        """Returns the sum of all shares, or None where the workers were lost with what they
        held.
        """
        client = _get_client()
        sums: list[Any] = []
        try:
            there = _send_kernel(client, kernel)
            sums = _add_groups(client, there, self.shares(client, there, kernel.columns))
            return self._gather_results(client, kernel, sums)
        except distributed.KilledWorker:
            pass  # as many workers died of one share as Dask allows: more would follow
        except LOST_WORKER_ERRORS:
            return None
        except Exception:
            return PartialResult(
                0, None, engine.unreadable_error()
            )  # from the user's own graph; its text may quote rows
        finally:
            for future in sums:
                future.cancel()
        return PartialResult(0, None, engine.workers_lost_error())

    def _gather_results(
        self, client: Any, kernel: Kernel[Part], sums: list[Any]
    ) -> PartialResult[Part]:
        total: PartialResult[Part] = PartialResult(0, kernel.zero())
        ready: Any = distributed.as_completed
        for _, part in ready(sums, loop=client.loop, with_results=True):
            total = total + part
            if total.refusal is not None:
                break
            if self.watch is not None:
                self.watch(total.rows)
        return total


def of_table(table: Any, watch: Watch | None = None) -> Engine:
    """An engine over a Dask data frame; each partition is folded by the worker that computes it."""
    if not isinstance(table, dd.DataFrame):
        raise WrongType(
            "This is an object of Dask's, but not a table.",
            "",
            "Pass a Dask data frame.",
            parameter="table",
        )

    def shares(client: Any, kernel: Any, columns: tuple[str, ...]) -> list[Any]:
        wanted = list(
            columns or table.columns[:1]
        )  # a frame without columns would forget how many rows it has
        fold = delayed(_fold_frame, pure=False)
        return list(client.compute([fold(kernel, part) for part in table[wanted].to_delayed()]))

    return DaskEngine(_infer_frame_kinds(table), shares, watch)


def open_table(
    path: str,
    numbers: tuple[str, ...] = (),
    watch: Watch | None = None,
    text: TextFormat = DEFAULT_TEXT_FORMAT,
) -> Engine:
    """An engine over CSV or Parquet files that every worker can open; a worker reads some row
    groups at a time.
    """
    rows = arrow.open_dataset(path, numbers, text)
    pieces = arrow.split_dataset(rows)

    def shares(client: Any, kernel: Any, columns: tuple[str, ...]) -> list[Any]:
        return [client.submit(_fold_piece, kernel, piece, columns, pure=False) for piece in pieces]

    return DaskEngine(arrow.list_kinds(rows.schema), shares, watch)


def _infer_frame_kinds(table: Any) -> dict[str, str]:
    empty = pd.DataFrame({name: pd.Series(dtype=dtype) for name, dtype in table.dtypes.items()})
    schema = pa.Schema.from_pandas(empty, preserve_index=False)
    # Objects, and categories that are not known yet, are text until a worker sees them.
    unknown = {
        field.name
        for field in schema
        if pa.types.is_null(getattr(field.type, "value_type", field.type))
    }
    return {
        name: "text" if name in unknown else kind for name, kind in arrow.list_kinds(schema).items()
    }


def _fold_frame(kernel: Kernel[Part], frame: Any) -> PartialResult[Part]:
    return engine.fold_partition(kernel, _split_frame(frame))


def _split_frame(frame: Any) -> Iterator[Any]:
    size = engine.choose_batch_rows(tuple(frame.columns))
    for start in range(0, len(frame), size):
        yield pa.RecordBatch.from_pandas(frame.iloc[start : start + size], preserve_index=False)


def _fold_piece(
    kernel: Kernel[Part], piece: arrow.Piece, columns: tuple[str, ...]
) -> PartialResult[Part]:
    return engine.fold_partition(kernel, piece.batches(columns))


def _send_kernel(client: Any, kernel: Any) -> Any:
    """Sends the kernel once; workers pass it on to each other.

    As a task's result and not as scattered data, which would be lost for good with the workers that
    hold it.
    """
    with dask.config.set(
        {"distributed.admin.large-graph-warning-threshold": ARGUMENT_WARNING_SIZE}
    ):
        return client.submit(_return_kernel, kernel, pure=False)


def _return_kernel(kernel: Any) -> Any:
    return kernel


def _add_groups(client: Any, kernel: Any, shares: list[Any]) -> list[Any]:
    groups = [shares[start : start + BRANCH] for start in range(0, len(shares), BRANCH)]
    return [
        client.submit(_add_partial_results, kernel, group, pure=False)
        if len(group) > 1
        else group[0]
        for group in groups
    ]


def _add_partial_results(
    kernel: Kernel[Part], shares: list[PartialResult[Part]]
) -> PartialResult[Part]:
    # Begins with a zero of its own: some parts add in place, and shares may be asked for again.
    total: PartialResult[Part] = PartialResult(0, kernel.zero())
    for share in shares:
        total = total + share
    return total


def _get_client() -> Any:
    try:
        return distributed.get_client()
    except ValueError:
        pass  # nobody has connected to a cluster
    if _start_cluster.cache_info().currsize and _start_cluster().status != "running":
        _start_cluster.cache_clear()
    client = _start_cluster()
    client.cluster.scale(
        _count_workers()
    )  # Dask gives up a worker that was killed twice within seconds
    return client


def _count_workers() -> int:
    return max(engine.count_threads(), MIN_WORKERS)


@cache
def _start_cluster() -> Any:
    scratch = Scratch.made()  # Dask's usual folder is one for all users
    with dask.config.set(
        NO_HTTP_ROUTES | {"distributed.scheduler.no-workers-timeout": NO_WORKER_TIMEOUT}
    ):
        cluster = distributed.LocalCluster(  # type: ignore[no-untyped-call]
            n_workers=_count_workers(),
            threads_per_worker=1,
            processes=True,
            protocol="tls://",
            security=distributed.Security.temporary(),  # type: ignore[no-untyped-call]
            host="127.0.0.1",
            # a port is opened even without a dashboard: any free one
            dashboard_address="127.0.0.1:0",
            scheduler_kwargs={"dashboard": False},
            local_directory=str(scratch.path),
            # Told to each worker, because some come later, in the place of those that died.
            config=dask.config.merge(dask.config.config, NO_WORKER_PAGES),
            silence_logs=logging.CRITICAL,  # a log would quote what went wrong
        )
    client = distributed.Client(cluster, set_as_default=False)  # type: ignore[no-untyped-call]
    atexit.register(_close_cluster, client, cluster, scratch)
    return client


def _close_cluster(client: Any, cluster: Any, scratch: Scratch) -> None:
    client.close()
    cluster.close()
    scratch.remove()
