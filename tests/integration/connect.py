"""A client of Spark Connect: runs the queries that it is asked for.

`python -m tests.integration.connect sc://HOST:PORT` reads one line of JSON per query, and answers with the
text of the error that ended it, and with its class in this package; both empty when it went to the end of its
queue.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

from tests.flows import PARTITION_COLUMN, QUERIES, ROW_COLUMN, read_queue
from yt_exactly_once import Target, TransactionalSink, exactly_once_error, register_source

PATIENCE_SECONDS = 280

_NO_WORKER = "Python worker failed to connect back"
"""What Spark says on a machine that is too busy to start a process."""


def main(address: str) -> None:
    """Run queries until standard input ends."""
    spark = SparkSession.builder.remote(address).getOrCreate()
    assert not hasattr(spark, "_jvm")
    register_source(spark)
    for line in sys.stdin:
        error, kind = _NO_WORKER, ""
        while _NO_WORKER in error:
            try:
                run(spark, **json.loads(line))
                error = ""
            except PySparkException as raised:
                error, ours = str(raised), exactly_once_error(raised)
                kind = type(ours).__name__ if ours else ""
        sys.stdout.write(json.dumps([error, kind]) + "\n")
        sys.stdout.flush()


def run(
    spark: SparkSession,
    *,
    way: str,
    kind: str,
    queue: str,
    consumer: str,
    target: str,
    proxy: str,
    checkpoint: str,
    rows_per_partition: int,
    output_mode: str,
    numbered: bool,
    options: dict[str, Any],
) -> None:
    """Run a query to the end of its queue, with the format or with the sink; see `tests.flows.Query`."""
    rows = read_queue(spark, proxy, queue, consumer, max_rows_per_partition=rows_per_partition)
    frame = QUERIES[kind].build(rows)
    if numbered:
        frame = frame.withColumns({PARTITION_COLUMN: sf.col("part"), ROW_COLUMN: sf.col("row")})
    writer = (
        frame.writeStream.outputMode(output_mode)
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
    )
    if way == "format":
        query = writer.format("yt").options(proxy=proxy, **options).start(target)
    else:
        write = {name: options.pop(name) for name in ("write",) if name in options}
        sink = TransactionalSink(Target(target, **write), proxy=proxy, **options)
        query = writer.foreachBatch(sink).start()
    try:
        assert query.awaitTermination(PATIENCE_SECONDS), "The query does not end"
    finally:
        query.stop()


if __name__ == "__main__":
    main(sys.argv[1])
