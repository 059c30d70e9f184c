"""`python -m benchmarks.source`: how much memory a worker needs to read one range, by the range's size.

A queue of one partition is read to its end as one batch, by a fresh driver per size. The rows are counted
and their order is checked by Spark itself, so the only Python worker is the one that reads. What it needed
at its peak is what the kernel says (`VmHWM`).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from yt.wrapper.format import ArrowFormat

from benchmarks.arguments import positive
from benchmarks.processes import PeakMemory, descendants
from yt_exactly_once.local import LocalCluster

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame
    from yt.wrapper import YtClient

QUEUE = "//home/benchmark/queue"
SIZES = (50_000, 500_000, 5_000_000)
SCHEMA = [
    {"name": "id", "type_v3": "int64"},
    {"name": "key", "type_v3": "int64"},
    {"name": "amount", "type_v3": "double"},
    {"name": "text", "type_v3": "utf8"},
]
ROW_INDEX = "__spyt_streaming_src_row_index"
ROWS_PER_REQUEST = 100_000
"""What one transaction may write into one tablet."""

ALLOWED_GROWTH = 1.25
"""Between the smallest and the largest range; the allocator is not perfectly even."""

WORKER = "pyspark.daemon pyspark.worker"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure; return 1 when memory grew with the range or a row came out of order."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.source", description=__doc__)
    parser.add_argument(
        "--rows", type=positive, nargs="+", default=SIZES, help="sizes of the range"
    )
    parser.add_argument("--data-dir", type=Path, help="keep the queue there for the next run")
    parser.add_argument("--json", type=Path, help="write the results here as well")
    parser.add_argument("--read", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.read:
        print(json.dumps(read(**json.loads(options.read))))
        return 0
    sizes = sorted(options.rows)
    with LocalCluster(data_dir=options.data_dir) as cluster:
        rows = rows_in_queue(cluster.client(), sizes[-1])
        results = [in_a_fresh_driver(cluster.proxy_urls[0], rows, size) for size in sizes]
    grown = results[-1]["worker_mib"] / results[0]["worker_mib"]
    if options.json is not None:
        options.json.write_text(json.dumps(results, indent=2) + "\n")
    print(f"from {sizes[0]:,} to {sizes[-1]:,} rows the peak grew by a factor of {grown:.2f}")
    return int(grown > ALLOWED_GROWTH or not all(one["in_order"] for one in results))


def rows_in_queue(client: YtClient, least: int) -> int:
    """Fill the queue up to so many rows at least; return how many it has."""
    began = time.perf_counter()
    if not client.exists(QUEUE):
        attributes = {"dynamic": True, "schema": SCHEMA}
        client.create("table", QUEUE, recursive=True, attributes=attributes)
        client.mount_table(QUEUE, sync=True)
    there = int(client.get_tablet_infos(QUEUE, [0])["tablets"][0]["total_row_count"])
    if there < least:
        fill(client, there, least)
        print(f"{least - there:,} rows loaded in {time.perf_counter() - began:.0f} s", flush=True)
    return max(there, least)


def fill(client: YtClient, first: int, rows: int, partitions: int = 1) -> None:
    """Write rows; row i has the id i, and goes to the partitions by turns."""
    for start in range(first, rows, ROWS_PER_REQUEST):
        ids = np.arange(start, min(start + ROWS_PER_REQUEST, rows))
        chunk = pa.table(
            {
                "$tablet_index": ids % partitions,
                "id": ids,
                "key": ids % 1000,
                "amount": ids / 4,
                "text": pa.array(ids * 10**12).cast(pa.string()),
            }
        )
        sink = BytesIO()
        with pa.ipc.new_stream(sink, chunk.schema) as writer:
            writer.write_table(chunk)
        with client.Transaction(type="tablet"):
            client.insert_rows(QUEUE, BytesIO(sink.getvalue()), format=ArrowFormat(), raw=True)


def in_a_fresh_driver(proxy: str, rows: int, size: int) -> dict[str, Any]:
    """Read the last `size` rows in a process of its own."""
    asked = json.dumps({"proxy": proxy, "start": rows - size, "size": size})
    told = subprocess.run(
        [sys.executable, "-m", "benchmarks.source", "--read", asked],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    result: dict[str, Any] = json.loads(told.stdout.splitlines()[-1])
    print(
        f"{size:>10,} rows: {result['seconds']:6.1f} s, {size / result['seconds']:>9,.0f} rows/s, "
        f"peak of the reading worker {result['worker_mib']:6.1f} MiB, "
        f"{'in order' if result['in_order'] else 'OUT OF ORDER'}",
        flush=True,
    )
    return result


def read(proxy: str, start: int, size: int) -> dict[str, Any]:
    """Read a range as one batch; return what it took."""
    # Only here: the parent needs no Spark.
    from pyspark.sql import SparkSession  # noqa: PLC0415
    from pyspark.sql import functions as sf  # noqa: PLC0415

    from yt_exactly_once import register_source  # noqa: PLC0415

    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = (
        SparkSession.builder.master("local[1]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    register_source(spark)
    found: dict[str, Any] = {}

    def check(frame: DataFrame, _batch_id: int) -> None:
        # Numbered as they come: of one partition, from 0 on.
        came = sf.monotonically_increasing_id() + start
        order = (sf.col("id") == came) & (sf.col("id") == sf.col(ROW_INDEX))
        began = time.perf_counter()
        told = frame.select(order.alias("order")).agg(
            sf.count("*").alias("rows"), sf.bool_and("order").alias("order")
        )
        (row,) = told.collect()
        found["seconds"] = time.perf_counter() - began
        found["in_order"] = bool(row.order) and row.rows == size
        peaks = [PeakMemory(pid).peak() or 0 for pid in descendants(os.getpid()) if is_worker(pid)]
        found["worker_mib"] = max(peaks) / (1 << 20)

    with tempfile.TemporaryDirectory() as checkpoint:
        query = (
            spark.readStream.format("yt")
            .option("proxy", proxy)
            .option("include_service_columns", True)
            .option("starting_offsets", json.dumps({"0": start}))
            .load(QUEUE)
            .writeStream.foreachBatch(check)
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
    spark.stop()
    return {"rows": size, **found}


def is_worker(pid: int) -> bool:
    """Tell whether a process is a Python worker of Spark."""
    try:
        return WORKER in Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    except OSError:
        # It has ended in between.
        return False


if __name__ == "__main__":
    sys.exit(main())
