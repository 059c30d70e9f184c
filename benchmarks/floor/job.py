"""A driver whose query gives one row per batch to Spark's noop sink; it prints what its batches took."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time

from pyspark.sql import SparkSession

from benchmarks.processes import SparkProcesses, java_of

_WARM = 60


def main() -> None:
    """Run batches under the settings of the first argument; the second says how many count."""
    settings: dict[str, str] = json.loads(sys.argv[1])
    count = int(sys.argv[2])
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.driver.host", "127.0.0.1")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    processes = SparkProcesses((), os.getpid(), java_of(os.getpid()))
    begins: list[float] = []
    spent: list[float] = []

    def write(frame, _batch_id):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
        frame.write.format("noop").mode("overwrite").save()
        begins.append(time.perf_counter())
        if len(begins) in {_WARM, _WARM + count}:
            spent.append(processes.cpu()["jvm"])

    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()
    with tempfile.TemporaryDirectory() as checkpoint:
        query = rows.writeStream.foreachBatch(write).option("checkpointLocation", checkpoint)
        running = query.start()
        while len(begins) < _WARM + count:
            if not running.isActive:
                raise running.exception() or RuntimeError("The query has ended")
            time.sleep(0.05)
        running.stop()
    taken = [
        after - before for before, after in zip(begins[_WARM - 1 :], begins[_WARM:], strict=False)
    ]
    print(json.dumps({"seconds": taken[:count], "cpu": (spent[1] - spent[0]) / count}))


if __name__ == "__main__":
    main()
