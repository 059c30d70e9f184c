"""One query from a queue into a target, run again and again on one checkpoint."""

import os
import signal
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyarrow import RecordBatch
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from yt.wrapper import YtClient

from tests.flows import (
    STATELESS,
    Entry,
    Query,
    Queue,
    Rows,
    differences,
    ledger_entries,
    read_queue,
)
from yt_exactly_once import ClusterConfig, RetryPolicy, Target, TransactionalSink
from yt_exactly_once.local import LocalCluster
from yt_exactly_once.operations.audit.found import By
from yt_exactly_once.operations.audit.run import audit
from yt_exactly_once.spark.compat.versions import HAS_ADMISSION_CONTROL
from yt_exactly_once.ytsaurus.client import Connection

QUICK = RetryPolicy(first_wait=timedelta(milliseconds=20), max_wait=timedelta(milliseconds=200))
"""Retries whose waits do not slow the tests down."""

TARGET_OPTIONS = {option.name for option in fields(Target)}

PATIENCE_SECONDS = 280

TO_THE_END: dict[str, Any] = (
    {"availableNow": True} if HAS_ADMISSION_CONTROL else {"processingTime": "0 seconds"}
)
"""Trigger of a run to the end of the queue; older versions of Spark end after the first batch."""


@dataclass
class Heard:
    """A listener that keeps every event, and may act on some.

    Attributes:
        events: name and fields, in order.
        act: called with each event after it was kept.
    """

    events: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    act: Callable[[str, dict[str, Any]], None] | None = None

    def __call__(self, event: str, fields: dict[str, Any]) -> None:
        self.events.append((event, fields))
        if self.act is not None:
            self.act(event, fields)

    def of(self, event: str) -> list[dict[str, Any]]:
        """Return the fields of every event of that name."""
        return [fields for name, fields in self.events if name == event]

    def count(self, event: str) -> int:
        return Counter(name for name, _ in self.events)[event]


@dataclass
class Stream:
    """A query of a known kind between a queue and a target.

    Attributes:
        rows_per_partition: rows of a batch from each queue partition.
        shared_task_rows: see `SourceOptions`.
        consumer: moved by the query; empty to read without one.
        options: of the sink, in every run.
        change: done to the source's frame before the query's own work.
    """

    spark: SparkSession
    cluster: LocalCluster
    queue: Queue
    target: str
    checkpoint: Path
    query: Query = STATELESS
    is_sorted: bool = False
    rows_per_partition: int = 1_000
    shared_task_rows: int = 1
    consumer: str = ""
    options: dict[str, Any] = field(default_factory=dict)
    change: Callable[[DataFrame], DataFrame] = lambda frame: frame
    backend: str = "http"
    form: str = "yt"
    token: str = ""
    name: str = field(default_factory=lambda: f"a query like those in production {uuid.uuid4()}")

    @property
    def client(self) -> YtClient:
        return self.queue.client

    @property
    def connection(self) -> Connection:
        """What operations need."""
        return Connection(ClusterConfig(proxy=self.cluster.proxy_urls[0]))

    @property
    def ledger(self) -> str:
        return f"{self.target}_ledger"

    def frame(self) -> DataFrame:
        rows = read_queue(
            self.spark,
            self.cluster.proxy_urls[0],
            self.queue.path,
            self.consumer or None,
            form=self.form,
            max_rows_per_partition=self.rows_per_partition,
            shared_task_rows=self.shared_task_rows,
            backend=self.backend,
            **({"token": self.token} if self.token else {}),
        )
        return self.query.build(self.change(rows))

    def sink(self, heard: Heard | None = None, **options: Any) -> TransactionalSink:
        """Return a sink for the target; options may be of either."""
        given: dict[str, Any] = {
            "proxy": self.cluster.proxy_urls[0],
            "retry": QUICK,
            "client_config": {"backend": self.backend},
            "token": self.token or None,
        }
        given |= self.options | options
        own = {name: given.pop(name) for name in TARGET_OPTIONS & given.keys()}
        return TransactionalSink(Target(self.target, **own), listener=heard, **given)

    def start(self, write: Callable[[DataFrame, int], None]) -> StreamingQuery:
        """Start the query with any function for its batches."""
        return (
            self.frame()
            .writeStream.queryName(self.name)
            .foreachBatch(write)
            .outputMode(self.query.output_mode)
            .option("checkpointLocation", str(self.checkpoint))
            .trigger(**TO_THE_END)
            .start()
        )

    def start_writer(self, **options: Any) -> StreamingQuery:
        """Start the query with the format yt in the place of a sink."""
        given = {
            "proxy": self.cluster.proxy_urls[0],
            "backend": self.backend,
            "retry_first_wait": "20ms",
            "retry_max_wait": "200ms",
            "checkpointLocation": str(self.checkpoint),
        }
        return (
            self.frame()
            .writeStream.format(self.form)
            .queryName(self.name)
            .outputMode(self.query.output_mode)
            .options(**given | self.options | options)
            .trigger(**TO_THE_END)
            .start(self.target)
        )

    def write(self, **options: Any) -> None:
        """Run the query to the end of the queue with the format yt."""
        finish(self.start_writer(**options))

    def run(
        self, act: Callable[[str, dict[str, Any]], None] | None = None, **options: Any
    ) -> Heard:
        """Run the query to the end of the queue; return what its sink told."""
        heard = Heard(act=act)
        finish(self.start(self.sink(heard, **options)))
        return heard

    def break_off(self, sink: TransactionalSink, batch: int) -> None:
        """Run until the cluster has a batch, and Spark's commit log has not."""

        def write(frame: DataFrame, number: int) -> None:
            sink(frame, number)
            assert number < batch, "broken off"

        with pytest.raises(StreamingQueryException, match="broken off"):
            finish(self.start(write))

    def fail(self, error: str, *, by_format: bool = False, **options: Any) -> str:
        """Run the query, which must end with an error of that class; return its text."""
        with pytest.raises(StreamingQueryException) as caught:
            (self.write if by_format else self.run)(**options)
        text = str(caught.value)
        assert f"yt_exactly_once.errors.{error}: " in text
        return text

    def forget_last_batch(self) -> int:
        """Delete Spark's note of the last batch, so that it is replayed; return its number."""
        return forget_last_batch(self.checkpoint)

    def found(self) -> Rows:
        return self.query.found(self.client, self.target)

    def wrong(self) -> str:
        """Compare the target with the whole queue; empty when it is exactly right."""
        expected = self.query.must_hold(
            self.queue, self.rows_per_partition, is_sorted=self.is_sorted
        )
        return differences(self.found(), expected)

    def entry(self) -> Entry:
        """Return the only ledger entry."""
        (entry,) = ledger_entries(self.client, self.ledger)
        return entry

    def assert_exact(self) -> None:
        """Target, ledger and consumer all stand at the end of the queue."""
        assert self.wrong() == ""
        assert self.entry().ends[self.queue.path] == self.queue.ends()
        if self.consumer:
            assert self.queue.stored(self.consumer) == self.queue.ends()
        if "digest" in self.options:
            self.assert_proven()

    def assert_proven(self) -> None:
        """The target has the rows of the digest that the ledger keeps."""
        found = audit(self.target, by=By.DIGEST, connection=self.connection)
        assert found.rows
        assert (found.rows, found.digest) == (found.expected_rows, found.expected_digest)

    def assert_untouched(self) -> None:
        """Nothing was written, recorded or moved."""
        assert self.found() == []
        assert ledger_entries(self.client, self.ledger) == []
        assert self.queue.stored(self.consumer) == {}


def finish(query: StreamingQuery) -> None:
    """Wait for the end of a query, and stop it whatever happens."""
    try:
        if HAS_ADMISSION_CONTROL:
            assert query.awaitTermination(PATIENCE_SECONDS)
        else:
            query.processAllAvailable()
    finally:
        query.stop()


def forget_last_batch(checkpoint: Path) -> int:
    """Delete the newest file of a checkpoint's commit log; return the number of its batch."""
    commits = checkpoint / "commits"
    last = max(int(file.name) for file in commits.iterdir() if file.name.isdigit())
    for name in (str(last), f".{last}.crc"):
        (commits / name).unlink(missing_ok=True)
    return last


def failing_once(
    flag: str, how: str = "task fails", **options: Any
) -> Callable[[DataFrame], DataFrame]:
    """Return a change of a frame whose first task breaks down once, after a part of its rows."""

    def rows(batches: Iterator[RecordBatch]) -> Iterator[RecordBatch]:
        for batch in batches:
            half = batch.num_rows // 2
            yield batch.slice(0, half)
            if not Path(flag).exists():
                Path(flag).touch()
                if how == "worker is killed":
                    os.kill(os.getpid(), signal.SIGKILL)
                raise ZeroDivisionError
            yield batch.slice(half)

    return lambda frame: frame.mapInArrow(rows, frame.schema, **options)
