"""The child process: two ordinary streaming queries, from the queue to its end.

It is what a user of the package would write, plus two things. It sends every event of the sinks through a
pipe to the parent, which decides when to kill it. And Spark's Python processes are forked from one that has
imported what they need, see `nursery`. It never prepares for a kill.

It starts Spark and waits for its work. Until then it asks nothing of the cluster and opens no checkpoint. So
it can start while the child before it still runs.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as sf

from yt_exactly_once import TransactionalSink, register_source
from yt_exactly_once.demo import layout
from yt_exactly_once.demo.data import read_airlines
from yt_exactly_once.demo.layout import Work
from yt_exactly_once.observability import LOGGER_NAME
from yt_exactly_once.testing.child import QUERY, QUERY_FAILED, SESSION_READY, Report, orders
from yt_exactly_once.testing.nursery import open_nursery
from yt_exactly_once.testing.session import open_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_SOURCE_PARTITION = "__spyt_streaming_src_tablet_index"
_SOURCE_ROW = "__spyt_streaming_src_row_index"
_SPARK_DETAILS = "\n=== Streaming Query ==="
_LOOK_SECONDS = 0.1
_SENT_FIELDS = {"batch", "rows", "reason"}

_LATE_MINUTES = 15
_VERY_LATE_MINUTES = 60


def main(arguments: list[str]) -> int:
    """Run both queries to the end of the queue; return the exit code."""
    options = json.loads(arguments[0])
    folder = Path(options["data_dir"])
    # For temporary files of Spark, which a killed process leaves behind.
    scratch = folder / "scratch"
    scratch.mkdir(parents=True, exist_ok=True)
    if sys.platform == "linux":
        # Before the first thread, as it forks. Elsewhere Spark's Python processes import what they need.
        interpreter = str(open_nursery(scratch, options["report"]))
        os.environ |= {"PYSPARK_PYTHON": interpreter, "PYSPARK_DRIVER_PYTHON": interpreter}
    lines = orders()
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s %(message)s")
    logging.getLogger(LOGGER_NAME).setLevel("INFO")
    report = Report(options["report"])
    warn = {"spark.log.level": "WARN"}
    spark = open_session(scratch, name="demo of yt-exactly-once", conf=warn)
    register_source(spark)
    # As Arrow, the JVM has them. From a list, each batch would run a Python function to read them again.
    airlines = spark.createDataFrame(read_airlines())
    work = Work(**json.loads(lines.get()))
    report.send(SESSION_READY)
    try:
        _run_to_the_end(spark, airlines, folder, work, report)
    except StreamingQueryException as error:
        report.send(QUERY_FAILED, error=str(error).partition(_SPARK_DETAILS)[0])
        return 1
    finally:
        for query in spark.streams.active:
            query.stop()
        spark.stop()
    return 0


def _run_to_the_end(
    spark: SparkSession, airlines: DataFrame, folder: Path, work: Work, report: Report
) -> None:
    # Each query talks to a proxy of its own; the two share one store.
    first, last = work.proxies[0], work.proxies[-1]
    flights = enrich(_read(spark, layout.FLIGHTS, work, first), airlines)
    statistics = delays(_read(spark, layout.STATISTICS, work, last))
    # One after the other: Spark does not bear two queries of one Python source that start at once.
    running = [
        _start(flights, layout.FLIGHTS, folder, work, report, proxy=first, output_mode="append"),
        _start(
            statistics, layout.STATISTICS, folder, work, report, proxy=last, output_mode="update"
        ),
    ]
    while any(query.isActive for query in running):
        spark.streams.awaitAnyTermination()
        spark.streams.resetTerminated()
    for query in running:
        # Raises the failure of a query that ended unseen between the two calls above.
        query.awaitTermination()


def enrich(flights: DataFrame, airlines: DataFrame) -> DataFrame:
    """Return every flight with its identity, its airline's name, a delay class and its speed."""
    delay = sf.col("dep_delay")
    delay_class = (
        sf.when(delay.isNull(), "cancelled")
        .when(delay <= 0, "on time")
        .when(delay < _LATE_MINUTES, "a little late")
        .when(delay < _VERY_LATE_MINUTES, "late")
        .otherwise("very late")
    )
    return (
        flights.join(sf.broadcast(airlines), "carrier", "left")
        .withColumn("queue_partition", sf.col(_SOURCE_PARTITION))
        .withColumn("queue_row", sf.col(_SOURCE_ROW))
        .withColumn("delay_class", delay_class)
        .withColumn("speed_mph", sf.col("distance") * sf.lit(60.0) / sf.col("air_time"))
    )


def delays(flights: DataFrame) -> DataFrame:
    """Return the delays of every carrier and of every route, as whole numbers."""
    about = sf.explode(
        sf.array(
            sf.struct(sf.lit("carrier").alias("kind"), sf.col("carrier").alias("key")),
            sf.struct(
                sf.lit("route").alias("kind"),
                sf.concat_ws("-", sf.col("origin"), sf.col("dest")).alias("key"),
            ),
        )
    ).alias("about")
    dep_delay = sf.col("dep_delay").cast("bigint")
    arr_delay = sf.col("arr_delay").cast("bigint")
    return (
        flights.select(about, dep_delay.alias("dep_delay"), arr_delay.alias("arr_delay"))
        .groupBy(sf.col("about.kind").alias("kind"), sf.col("about.key").alias("key"))
        .agg(
            sf.count(sf.lit(1)).alias("flights"),
            sf.count("dep_delay").alias("departed"),
            sf.sum("dep_delay").alias("dep_delay_sum"),
            sf.min("dep_delay").alias("dep_delay_min"),
            sf.max("dep_delay").alias("dep_delay_max"),
            sf.count("arr_delay").alias("arrived"),
            sf.sum("arr_delay").alias("arr_delay_sum"),
            sf.min("arr_delay").alias("arr_delay_min"),
            sf.max("arr_delay").alias("arr_delay_max"),
        )
    )


def _read(spark: SparkSession, query: layout.Query, work: Work, proxy: str) -> DataFrame:
    return (
        spark.readStream.format("yt")
        .option("proxy", proxy)
        .option("backend", work.backend)
        .option("consumer_path", query.consumer)
        .option("max_rows_per_partition", work.rows_per_partition)
        .option("include_service_columns", "true")
        .load(layout.QUEUE)
        .drop("$timestamp", "$cumulative_data_weight")
    )


def _start(
    frame: DataFrame,
    query: layout.Query,
    folder: Path,
    work: Work,
    report: Report,
    *,
    proxy: str,
    output_mode: str,
) -> StreamingQuery:
    """Start a query, and return when its first batch has begun or it has nothing to do."""
    begun = threading.Event()

    def listen(event: str, fields: dict[str, Any]) -> None:
        begun.set()
        sent = {name: fields[name] for name in _SENT_FIELDS & fields.keys()}
        report.send(event, **sent, **{QUERY: query.name})

    sink = TransactionalSink(
        query.target,
        mode=work.mode,
        proxy=proxy,
        client_config={"backend": work.backend},
        listener=listen,
    )
    running = (
        frame.writeStream.foreachBatch(sink)
        .queryName(query.name)
        .outputMode(output_mode)
        .option("checkpointLocation", str(folder / "checkpoints" / query.name))
        .trigger(availableNow=True)
        .start()
    )
    while running.isActive and not begun.wait(_LOOK_SECONDS):
        pass
    return running


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
