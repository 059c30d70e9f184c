"""A query from a topic of Kafka into a table, as a job of `yt_exactly_once.testing`."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, Self

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from yt_exactly_once import RetryPolicy, TransactionalSink
from yt_exactly_once.testing.trial import Trial, pickled

COLUMNS = (
    "topic",
    "partition",
    "offset",
    "CAST(key AS STRING) AS key",
    "CAST(value AS STRING) AS value",
)
"""What the queries write of a row of Kafka."""


@dataclass(frozen=True, kw_only=True)
class Query:
    """One query.

    Attributes:
        read: options of the source.
        tasks: coalesce the rows to so many Spark partitions.
        die_at: name of the event at which the driver dies, in the second batch of its life; or none.
        attempts: of each step.
    """

    target: str
    mode: str
    trial: Trial
    proxy: str
    read: Mapping[str, str]
    options: Mapping[str, Any] = field(default_factory=dict)
    tasks: int | None = None
    die_at: str | None = None
    attempts: int = 60

    def dying(self, at: str) -> Self:
        return replace(self, die_at=str(at))

    def in_tasks(self, count: int) -> Self:
        return replace(self, tasks=count)

    @property
    def job(self) -> Path:
        self.trial.folder.mkdir(exist_ok=True)
        file = self.trial.folder / "job"
        file.write_bytes(pickled(self))
        return file

    @property
    def second_batch(self) -> int:
        """The number of the second batch of its next life."""
        commits = (Path(self.trial.checkpoint) / "commits").glob("[0-9]*")
        return max((int(one.name) for one in commits), default=-1) + 2

    def __call__(self, spark: SparkSession, trial: Trial) -> StreamingQuery:
        source = spark.readStream.format("kafka").options(startingOffsets="earliest", **self.read)
        rows = source.load().selectExpr(*COLUMNS)
        sink = TransactionalSink(
            self.target,
            mode=self.mode,
            proxy=self.proxy,
            retry=RetryPolicy(attempts=self.attempts, first_wait=timedelta(milliseconds=10)),
            **self.options,
        )
        writer = (rows if self.tasks is None else rows.coalesce(self.tasks)).writeStream
        return writer.foreachBatch(sink).option("checkpointLocation", trial.checkpoint).start()
