"""One driver: starts a query, says when its first batch is done, and waits to be killed.

It runs by its path, so that the package can come from another checkout. It is told what to do as JSON, and
says what happens as JSON lines on its output.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.types import LongType, StringType, StructField, StructType

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame

Spec = dict[str, Any]

ROWS = 500
"""Of each partition."""

PARTITIONS = 2

_SCHEMA = StructType(
    [StructField(name, LongType()) for name in ("id", "token", "at")]
    + [StructField("name", StringType())]
)


class PlainSource(DataSource):
    """The least that a data source in Python can be: the same rows in each batch, and no cluster."""

    @classmethod
    def name(cls) -> str:
        """Return the name for `format()`."""
        return "plain"

    def schema(self) -> StructType:
        """Return the columns of the queue."""
        return _SCHEMA

    def streamReader(self, schema: StructType) -> PlainReader:  # noqa: ARG002, N802 - Spark's
        """Return a reader."""
        return PlainReader()


class PlainReader(DataSourceStreamReader):
    """Reads batch after batch; a driver is killed after its first."""

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's name
        """Begin before the batch."""
        return {"batch": 0}

    def latestOffset(self, start: dict[str, int], limit: Any) -> dict[str, int]:  # noqa: ARG002, N802
        """End after the next batch."""
        return {"batch": start["batch"] + 1}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        """Return as many as the queue has."""
        return [] if start == end else [InputPartition(number) for number in range(PARTITIONS)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield made-up rows."""
        ids = pa.array(range(ROWS * partition.value, ROWS * (partition.value + 1)), pa.int64())
        columns = [ids, ids, ids, ids.cast(pa.string())]
        yield pa.RecordBatch.from_arrays(columns, names=_SCHEMA.names)

    def commit(self, end: dict[str, int]) -> None:
        """Do nothing."""


def main() -> None:
    """Run the query until this process is killed."""
    spec: Spec = json.loads(sys.argv[1])
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    builder = SparkSession.builder.appName("start")
    for name, value in spec["conf"].items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    say("session")
    frame, function = KINDS[spec["kind"]](spark, spec)
    say("loaded")
    query = (
        frame.writeStream.foreachBatch(function)
        .option("checkpointLocation", f"file://{spec['checkpoint']}")
        .start()
    )
    say("running")
    query.awaitTermination()


def queue_to_table(spark: SparkSession, spec: Spec) -> tuple[DataFrame, Any]:
    """Copy a queue to a table, exactly once."""
    from yt_exactly_once import TransactionalSink, register_source  # noqa: PLC0415 - as a user's program

    register_source(spark)
    frame = (
        spark.readStream.format("yt")
        .option("proxy", spec["proxy"])
        .option("consumer_path", spec["consumer"])
        .option("max_rows_per_partition", ROWS)
        .load(spec["queue"])
    )

    def listener(event: str, _fields: dict[str, Any]) -> None:
        if event in {"batch.started", "batch.computed", "batch.committed"}:
            say(event.removeprefix("batch."))

    return frame, TransactionalSink(spec["target"], proxy=spec["proxy"], listener=listener)


def plain_to_nothing(spark: SparkSession, _spec: Spec) -> tuple[DataFrame, Any]:
    """Read the least of data sources in Python, and drop the rows."""
    spark.dataSource.register(PlainSource)
    return spark.readStream.format("plain").load(), dropped


def rate_to_nothing(spark: SparkSession, _spec: Spec) -> tuple[DataFrame, Any]:
    """Read a source of Spark's own, and drop the rows."""
    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", ROWS * PARTITIONS)
    return source.option("numPartitions", PARTITIONS).load(), dropped


def dropped(frame: DataFrame, _batch: int) -> None:
    """Compute a batch and nothing else."""
    say("started")
    frame.write.format("noop").mode("overwrite").save()
    say("committed")


KINDS: dict[str, Callable[[SparkSession, Spec], tuple[DataFrame, Any]]] = {
    "queue": queue_to_table,
    "plain": plain_to_nothing,
    "rate": rate_to_nothing,
}

_saying = threading.Lock()


def say(event: str) -> None:
    """Tell the parent, once for each event: what comes later is no part of the start."""
    with _saying:
        print(json.dumps({"event": event, "at": time.time()}), flush=True)


if __name__ == "__main__":
    main()
