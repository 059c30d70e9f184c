"""A driver that writes topics of Kafka into tables, and dies where it is told to.

`python -m tests.kafka.child PLAN` runs the queries of a `Plan` side by side and tells the parent how each
ended.
"""

import json
import os
import signal
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, Self

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from tests.chaos.session import open_session
from yt_exactly_once import RetryPolicy, TransactionalSink
from yt_exactly_once.testing.child import Report

FINISHED = "finished"

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
    checkpoint: str
    read: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    tasks: int | None = None
    die_at: str | None = None
    attempts: int = 60

    def dying(self, at: str) -> Self:
        return replace(self, die_at=str(at))

    def in_tasks(self, count: int) -> Self:
        return replace(self, tasks=count)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """One life of a driver.

    Attributes:
        submit: arguments of Spark's launcher, with the JARs of the connector.
    """

    queries: tuple[Query, ...]
    broker: str
    proxy: str
    submit: str
    scratch: str
    report: int = -1

    def dump(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def load(cls, argument: str) -> Self:
        given = json.loads(argument)
        queries = tuple(Query(**query) for query in given.pop("queries"))
        return cls(queries=queries, **given)


class Death:
    """A listener that ends the process at an event of the second batch that this life writes."""

    def __init__(self, at: str) -> None:
        self._at = at
        self._batches: set[int] = set()

    def __call__(self, event: str, fields: dict[str, Any]) -> None:
        self._batches.add(fields["batch"])
        if event == self._at and len(self._batches) > 1:
            os.killpg(0, signal.SIGKILL)


def main(argument: str) -> None:
    plan = Plan.load(argument)
    report = Report(plan.report)
    os.environ["PYSPARK_SUBMIT_ARGS"] = plan.submit
    spark = open_session(Path(plan.scratch), tasks=4)
    started = [_start(spark, plan, query) for query in plan.queries]
    for query, running in zip(plan.queries, started, strict=True):
        error = ""
        try:
            running.awaitTermination()
        except StreamingQueryException as raised:
            error = str(raised)
        report.send(FINISHED, target=query.target, error=error)
    spark.stop()


def _start(spark: SparkSession, plan: Plan, query: Query) -> Any:
    rows = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", plan.broker)
        .option("startingOffsets", "earliest")
        .options(**query.read)
        .load()
        .selectExpr(*COLUMNS)
    )
    rows = rows if query.tasks is None else rows.coalesce(query.tasks)
    sink = TransactionalSink(
        query.target,
        mode=query.mode,
        proxy=plan.proxy,
        retry=RetryPolicy(attempts=query.attempts, first_wait=timedelta(milliseconds=10)),
        listener=Death(query.die_at) if query.die_at else None,
        **query.options,
    )

    def write(frame: DataFrame, batch_id: int) -> None:
        sink(frame, batch_id)

    return (
        rows.writeStream.foreachBatch(write)
        .option("checkpointLocation", query.checkpoint)
        .trigger(availableNow=True)
        .start()
    )


if __name__ == "__main__":
    main(sys.argv[1])
