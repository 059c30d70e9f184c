"""Batches of a query whose rows name their tables, without Spark: the engine, and rows that are given.

Also in a process of its own, which kills itself at a moment of a batch.
"""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Sequence
from multiprocessing import get_context
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql.types import LongType, StringType, StructField, StructType
from yt.wrapper import YsonFormat

from yt_exactly_once import SinkOptions
from yt_exactly_once.config import ClusterConfig
from yt_exactly_once.spark.doors.batch_writer import NothingLogged
from yt_exactly_once.spark.engine.engine import Engine
from yt_exactly_once.spark.engine.run import Rows
from yt_exactly_once.spark.modes import mode_of
from yt_exactly_once.spark.query.offset_log import RunningBatch
from yt_exactly_once.spark.sink.columns import PARTITION_COLUMN
from yt_exactly_once.ytsaurus import tables
from yt_exactly_once.ytsaurus.browsing import answers, request
from yt_exactly_once.ytsaurus.client import Connection
from yt_exactly_once.ytsaurus.transaction import TabletTransaction

SCHEMA = StructType([StructField("shop", StringType()), StructField("id", LongType())])

AMID_ROWS, BEFORE_MOUNT = "amid rows", "before the mount"
"""Moments that no event tells."""


class Given(Rows):
    """Rows of some Spark partitions, each a batch of Arrow."""

    schema = SCHEMA

    def __init__(self, *partitions: pa.RecordBatch) -> None:
        self._partitions = partitions

    def schema_for(self, target: Any) -> StructType:  # noqa: ARG002 - the interface
        return self.schema

    def compute(self, assignment: Any) -> list[pa.RecordBatch]:  # noqa: ARG002 - the interface
        return [
            rows.append_column(PARTITION_COLUMN, pa.array(np.full(rows.num_rows, number, np.int32)))
            for number, rows in enumerate(self._partitions)
        ]


def rows_of(shops: Sequence[Any], first: int = 0) -> pa.RecordBatch:
    """Return a row of each shop, numbered."""
    ids = np.arange(first, first + len(shops))
    return pa.record_batch({"shop": pa.array(shops, pa.string()), "id": ids})


def spread(tables_count: int, rows: int, batch: int) -> Given:
    """Return the rows of a batch, in two partitions, of so many shops in turns."""
    first = batch * rows
    names = [f"s{number % tables_count}" for number in range(first, first + rows)]
    half = rows // 2
    return Given(rows_of(names[:half], first), rows_of(names[half:], first + half))


def deliver(
    target: Any, rows: Rows, number: int, *, query: str = "query", run: str = "run", **options: Any
) -> None:
    """Write one batch with a new engine, as the first one of a run."""
    given = SinkOptions(target, **options)
    Engine(mode_of(given, Connection(given.cluster))).deliver(running(number, query, run), rows)


def running(number: int, query: str = "query", run: str = "run") -> RunningBatch:
    return RunningBatch(query, run, number, NothingLogged("append"))


def connect(proxy: str) -> Connection:
    return Connection(ClusterConfig(proxy=proxy))


def counts(connection: Connection, paths: Sequence[str]) -> Counter[int]:
    """Return how many of some ordered tables with a tablet each have how many rows; -1 is no table."""
    asked = {path: request("get_tablet_infos", path=path, tablet_indexes=[0]) for path in paths}
    found = answers(connection, asked).values()
    return Counter(
        -1 if isinstance(one, Exception) else int(one["tablets"][0]["total_row_count"])
        for one in found
    )


def ids_of(client: Any, path: str) -> list[int]:
    """Return the ids in a table, in their order."""
    return [row["id"] for row in client.select_rows(f"id from [{path}]", format=YsonFormat())]


def die(moment: str, target: Any, shape: tuple[int, int, int], proxy: str) -> int:
    """Let a process write a batch of `spread`, and kill itself at a moment; return its exit code."""
    process = _CONTEXT.Process(target=_live, args=(moment, target, shape, proxy))
    process.start()
    process.join(60)
    return process.exitcode or 0


def _live(moment: str, target: Any, shape: tuple[int, int, int], proxy: str) -> None:
    def kill() -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    sent, write_rows, ask = [0], TabletTransaction.write, tables.answers

    def write_or_die(self: Any, *given: Any) -> None:
        sent[0] += 1
        if moment == AMID_ROWS and sent[0] > shape[0] // 2:
            kill()
        write_rows(self, *given)

    def ask_or_die(connection: Any, requests: Any) -> Any:
        if moment == BEFORE_MOUNT and "mount_table" in {
            one["command"] for one in requests.values()
        }:
            kill()
        return ask(connection, requests)

    def listen(event: str, _: Any) -> None:
        if event == moment:
            kill()

    TabletTransaction.write = write_or_die  # type: ignore[method-assign]
    tables.answers = ask_or_die
    deliver(target, spread(*shape), shape[2], run=moment, proxy=proxy, listener=listen)


_CONTEXT = get_context("forkserver")
_CONTEXT.set_forkserver_preload([__name__])
