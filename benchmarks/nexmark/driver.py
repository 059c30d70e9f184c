"""The driver that is killed: it runs one query in several modes, each to a table of its own.

Its parent tells it the query, the modes and the run, as one line of JSON.
"""

from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.nexmark.queries import BY_NAME, Query
from benchmarks.nexmark.stage import Run, frame_of, sink_of
from yt_exactly_once.demo.standby import begin

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from yt_exactly_once.observability import Listener


def main(arguments: list[str]) -> int:
    """Run the query to the end of the queues; return the exit code."""
    options = json.loads(arguments[0])
    standby = begin("nexmark", Path(options["data_dir"]), options["report"])
    work = json.loads(standby.lines.get())
    query, run = BY_NAME[work["query"]], Run(**work["run"])
    return standby.run(
        {mode: partial(_write, standby.spark, query, run, mode) for mode in work["modes"]}
    )


def _write(
    spark: SparkSession, query: Query, run: Run, mode: str, listener: Listener
) -> DataStreamWriter:
    frame = frame_of(spark, query, run, mode)
    return (
        frame.writeStream.foreachBatch(sink_of(query, run, mode, frame, listener))
        .outputMode(query.output_mode)
        .option("checkpointLocation", run.checkpoint(query, mode))
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
