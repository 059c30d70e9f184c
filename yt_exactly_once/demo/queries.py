"""The child process: two ordinary streaming queries, from the queue to its end.

It is what a user of the package would write, plus two things. It sends every event of the sinks through a
pipe to the parent, which decides when to kill it. And Spark's Python processes are forked from one that has
imported what they need, see `nursery`. It never prepares for a kill.
"""

from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import functions as sf

from yt_exactly_once import TransactionalSink
from yt_exactly_once.demo import layout
from yt_exactly_once.demo.data import read_airlines
from yt_exactly_once.demo.layout import Work
from yt_exactly_once.demo.standby import begin

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from yt_exactly_once.observability import Listener

_SOURCE_PARTITION = "__spyt_streaming_src_tablet_index"
_SOURCE_ROW = "__spyt_streaming_src_row_index"

_LATE_MINUTES = 15
_VERY_LATE_MINUTES = 60


def main(arguments: list[str]) -> int:
    """Run both queries to the end of the queue; return the exit code."""
    options = json.loads(arguments[0])
    folder = Path(options["data_dir"])
    standby = begin("demo of yt-exactly-once", folder, options["report"])
    # As Arrow, the JVM has them. From a list, each batch would run a Python function to read them again.
    airlines = standby.spark.createDataFrame(read_airlines())
    work = Work(**json.loads(standby.lines.get()))
    # Each query talks to a proxy of its own; the two share one store.
    first, last = work.proxies[0], work.proxies[-1]
    flights = enrich(_read(standby.spark, layout.FLIGHTS, work, first), airlines)
    statistics = delays(_read(standby.spark, layout.STATISTICS, work, last))
    return standby.run(
        {
            layout.FLIGHTS.name: partial(
                _write, flights, "append", layout.FLIGHTS, work, folder, first
            ),
            layout.STATISTICS.name: partial(
                _write, statistics, "update", layout.STATISTICS, work, folder, last
            ),
        }
    )


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


def _write(
    frame: DataFrame,
    output_mode: str,
    query: layout.Query,
    work: Work,
    folder: Path,
    proxy: str,
    listener: Listener,
) -> DataStreamWriter:
    sink = TransactionalSink(
        query.target,
        mode=work.mode,
        proxy=proxy,
        client_config={"backend": work.backend},
        listener=listener,
    )
    return (
        frame.writeStream.foreachBatch(sink)
        .outputMode(output_mode)
        .option("checkpointLocation", str(folder / "checkpoints" / query.name))
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
