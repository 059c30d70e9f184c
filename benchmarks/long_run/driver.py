"""The driver of the long run: a query in a process of its own, which says every committed batch."""

from __future__ import annotations

import json
import sys
import time
from multiprocessing.connection import Connection
from typing import Any

from benchmarks.modes.session import session
from yt_exactly_once import TransactionalSink, register_source
from yt_exactly_once.observability import Event

_LOOK_SECONDS = 0.1


def main() -> None:
    """Copy until all rows are committed."""
    spec: dict[str, Any] = json.loads(sys.argv[1])
    copied = 0
    with Connection(spec["report"], readable=False) as report, session() as spark:
        gateway: Any = spark.sparkContext._gateway  # noqa: SLF001 - there is no other way to the JVM
        report.send({"jvm": gateway.proc.pid})
        register_source(spark)

        def listen(event: str, fields: dict[str, Any]) -> None:
            nonlocal copied
            if event == Event.BATCH_COMMITTED:
                copied += fields["rows"]
                report.send({"at": time.monotonic(), "rows": copied})

        sink = TransactionalSink(
            spec["target"], mode=spec["mode"], proxy=spec["proxy"], listener=listen
        )
        query = (
            spark.readStream.format("yt")
            .option("proxy", spec["proxy"])
            .option("consumer_path", spec["consumer"])
            .option("max_rows_per_partition", spec["batch"] // spec["partitions"])
            .load(spec["queue"])
            .selectExpr("id", "key", "amount * 2 as amount", "text")
            .writeStream.option("checkpointLocation", spec["checkpoint"])
            .foreachBatch(sink)
            .start()
        )
        while copied < spec["rows"] and query.isActive:
            time.sleep(_LOOK_SECONDS)
        query.processAllAvailable()
        query.stop()


if __name__ == "__main__":
    main()
