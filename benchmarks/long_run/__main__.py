"""Copy millions of rows with one query, and see after each million what has grown.

The rows go through a queue of four partitions and a query to an ordered table of four tablets, in batches
of 100 000. The driver is a process of its own. After each share of the way the program tells the speed, the
CPU seconds and the peak memory of every part, and the size on the disk. At the end it counts the rows. The
exit code is 1 when a row is missing or there twice, when memory grew, or when the last share was slower.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
import tempfile
import threading
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from yt.logger import LOGGER

from benchmarks.arguments import positive
from benchmarks.long_run.marks import Mark, Observer, faults, shares, table
from benchmarks.long_run.queue import QUEUE, SCHEMA, fill
from benchmarks.modes.machine import stamp
from benchmarks.processes import SparkProcesses
from yt_exactly_once.config import DeliveryMode
from yt_exactly_once.local import LocalCluster
from yt_exactly_once.testing.child import Child

TARGET = "//home/benchmark/target"
CONSUMER = "//home/benchmark/consumer"
PARTITIONS = 4
_PATIENCE_SECONDS = 120.0
"""How long no batch may be committed."""


def main(arguments: list[str] | None = None) -> int:
    """Run; return 1 when something grew or the rows are not all there once."""
    options = _parser().parse_args(arguments)
    LOGGER.setLevel(logging.ERROR)
    with tempfile.TemporaryDirectory(prefix="yt-long-run-") as work:
        folder = Path(work)
        data = options.data_dir or folder / "cluster"
        with LocalCluster(data) as cluster:
            _prepare(cluster.client())
            feeder = threading.Thread(
                target=fill, args=(cluster.client(), options.rows, PARTITIONS)
            )
            began = time.monotonic()
            feeder.start()
            if options.feed == "before":
                feeder.join()
                print(f"{options.rows:,} rows fed in {time.monotonic() - began:.0f} s", flush=True)
            marks = _follow(cluster, data, folder, options)
            feeder.join()
            infos = cluster.client().get_tablet_infos(TARGET, list(range(PARTITIONS)))["tablets"]
    written = sum(int(info["total_row_count"]) for info in infos)
    found = shares(marks)
    text = "\n".join(table(found))
    print(text)
    wrong = list(faults(found))
    if written != options.rows:
        wrong.append(f"the target has {written:,} rows, and the queue {options.rows:,}")
    for fault in wrong:
        print(f"FAULT: {fault}")
    if not wrong:
        print(f"All {written:,} rows are there once, and nothing has grown")
    if options.json is not None:
        report = {
            "run": stamp(),
            "feed": options.feed,
            "mode": options.mode,
            "written": written,
            "faults": wrong,
            "marks": [asdict(mark) for mark in marks],
        }
        options.json.write_text(json.dumps(report, indent=1) + "\n")
    return int(bool(wrong))


def _prepare(client: Any) -> None:
    """Create the queue, the target and the consumer."""
    for path in (QUEUE, TARGET):
        attributes = {"dynamic": True, "schema": SCHEMA, "tablet_count": PARTITIONS}
        if path == TARGET:
            # Spark cannot rule out nulls.
            attributes["schema"] = [
                {**column, "type_v3": {"type_name": "optional", "item": column["type_v3"]}}
                for column in SCHEMA
            ]
        client.create("table", path, recursive=True, attributes=attributes)
        client.mount_table(path, sync=True)
    client.create("queue_consumer", CONSUMER)
    client.mount_table(CONSUMER, sync=True)
    client.register_queue_consumer(QUEUE, CONSUMER, vital=True)


def _follow(
    cluster: LocalCluster, data: Path, folder: Path, options: argparse.Namespace
) -> list[Mark]:
    """Run the driver to its end; return what was seen.

    Raises:
        ChildFailedError: the driver failed, or commits nothing any more.
    """
    checkpoint = folder / "checkpoint"
    told = {
        "proxy": cluster.proxy_urls[0],
        "queue": QUEUE,
        "target": TARGET,
        "consumer": CONSUMER,
        "checkpoint": str(checkpoint),
        "mode": options.mode,
        "rows": options.rows,
        "batch": options.batch,
        "partitions": PARTITIONS,
    }
    marks: list[Mark] = []
    observer = None
    began = 0.0
    with Child(
        "benchmarks.long_run.driver",
        lambda report: json.dumps({**told, "report": report}),
        folder / "driver.log",
    ) as driver:
        while True:
            try:
                event = driver.next_event(_PATIENCE_SECONDS)
            except EOFError:
                driver.require_success()
                return marks
            if event is None:
                raise driver.failure(f"No batch was committed for {_PATIENCE_SECONDS:.0f} s")
            if "jvm" in event:
                processes = SparkProcesses(tuple(cluster.proxy_pids), driver.pid, event["jvm"])
                observer = Observer(processes, data, checkpoint)
                continue
            assert observer is not None
            if not marks:
                # The first batch starts Spark, so the way begins behind it.
                began = event["at"]
                marks.append(observer.mark(event["rows"], 0.0))
            elif event["rows"] - marks[-1].rows >= options.share or event["rows"] == options.rows:
                marks.append(observer.mark(event["rows"], event["at"] - began))
                share = shares(marks[-2:])[0]
                print(f"{event['rows']:>12,} rows: {share.rate:,.0f} rows/s", flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.long_run",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    modes = [mode.value for mode in DeliveryMode]
    parser.add_argument("--rows", type=positive, default=10_000_000, help="default: %(default)s")
    parser.add_argument(
        "--share",
        type=positive,
        default=1_000_000,
        help="rows between two looks, default: %(default)s",
    )
    parser.add_argument(
        "--batch", type=positive, default=100_000, help="rows of a batch, default: %(default)s"
    )
    parser.add_argument(
        "--mode",
        choices=modes,
        default=DeliveryMode.TRANSACTIONAL.value,
        help="default: %(default)s",
    )
    parser.add_argument(
        "--feed",
        choices=["before", "during"],
        default="before",
        help="whether the queue is fed before the query starts or while it runs, default: %(default)s",
    )
    parser.add_argument("--data-dir", type=Path, help="keep the cluster's data there")
    parser.add_argument("--json", type=Path, help="write the results there as well")
    return parser


if __name__ == "__main__":
    sys.exit(main())
