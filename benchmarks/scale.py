"""`python -m benchmarks.scale`: batches of 1 to 8 tasks over connections that carry so many bytes per second.

A batch is a copy, or it is shuffled, of a query that keeps state, or for two targets.

The link is simulated: a relay between Spark and the embedded cluster, on this machine. It shows whether tasks
send side by side, and how much the driver carries. It does not show what a proxy or tablet nodes can take.
"""

from __future__ import annotations

import argparse
import itertools
import logging
import resource
import statistics
import tempfile
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from benchmarks.arguments import positive
from benchmarks.modes.session import session
from benchmarks.modes.work import NARROW, WIDE
from benchmarks.network.link import Conditions, Link
from benchmarks.page import put
from yt_exactly_once import Event, TransactionalSink
from yt_exactly_once.local import LocalCluster
from yt_exactly_once.observability import LOGGER_NAME

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame, SparkSession

_LIMIT = 4_000_000
_MEGABYTE = 1e6
_SHAPES = {shape.name: shape for shape in (NARROW, WIDE)}
_PLANS: dict[str, Callable[[DataFrame, int], DataFrame]] = {
    "copy": lambda frame, _: frame,
    "shuffled": lambda frame, tasks: frame.repartition(tasks),
    "stateful": lambda frame, _: frame.dropDuplicates(["id"]),
    "two targets": lambda frame, _: frame,
}
"""What a query does with its rows, in so many tasks."""


class Case(NamedTuple):
    """What is measured: what a query does with how many rows, who sends them, and in how many tasks."""

    plan: str
    rows: int
    sender: str
    tasks: int


class Batch(NamedTuple):
    """A batch that was written.

    Attributes:
        seconds: from the call of the sink to its return.
        bytes: of its encoded rows.
        sent: bytes that passed the link to the cluster.
        requests: that passed it.
    """

    seconds: float
    bytes: int
    sent: int
    requests: int


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale", description=__doc__)
    parser.add_argument("--tasks", type=positive, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--plans", nargs="+", choices=list(_PLANS), default=["copy"])
    parser.add_argument("--shape", choices=list(_SHAPES), default=WIDE.name)
    parser.add_argument("--rows", type=positive, nargs="+", default=[100_000], help="of a batch")
    parser.add_argument("--bandwidth", type=float, default=20, help="MB/s per connection; 0: any")
    parser.add_argument("--round-trip", type=float, default=0, help="ms")
    parser.add_argument("--turns", type=positive, default=3, help="measured batches of each")
    parser.add_argument("--senders", nargs="+", choices=["tasks", "driver"], default=["tasks"])
    parser.add_argument(
        "--result-size", default="64m", help="spark.driver.maxResultSize; the driver needs more"
    )
    parser.add_argument("--page", action="store_true", help="write the table of the documentation")
    options = parser.parse_args(arguments)
    logging.getLogger(LOGGER_NAME).setLevel(logging.WARNING)
    link_of = f"{options.bandwidth:g} MB/s per connection" if options.bandwidth else "no limit"
    lines = [
        f"{options.shape.capitalize()} rows, {link_of}, medians of {options.turns}:\n",
        "| batch | rows | sent by | tasks | s | MB/s | of it the driver, % | requests | driver's peak, MB |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    print(*lines, sep="\n")
    settings = {
        "spark.master": f"local[{max(options.tasks)}]",
        "spark.driver.maxResultSize": options.result_size,
    }
    with LocalCluster() as cluster, session(settings) as spark:
        upstream = cluster.proxy_urls[0].removeprefix("http://")
        limit = options.bandwidth * _MEGABYTE or None
        with Link(upstream, Conditions(options.round_trip / 1000, limit)) as link:
            cases = itertools.product(options.plans, options.rows, options.senders, options.tasks)
            for case in itertools.starmap(Case, cases):
                batches = measured(spark, cluster, link, case, options)
                lines.append(row_of(case, batches))
                print(lines[-1], flush=True)
    if options.page:
        put("scale", lines)
    return 0


def measured(
    spark: SparkSession, cluster: LocalCluster, link: Link, case: Case, options: argparse.Namespace
) -> list[Batch]:
    """Write batches of so many tasks; return all but the first one."""
    plan, count, sender, tasks = case
    shape = _SHAPES[options.shape]
    paths = [f"//{sender}-{tasks}-{number}" for number in range(1 + (plan == "two targets"))]
    spark.conf.set("spark.sql.shuffle.partitions", tasks)
    attributes: dict[str, Any] = {"dynamic": True, "schema": shape.columns()}
    attributes |= {"tablet_count": tasks, "mount_config": {"max_rows_per_transaction": _LIMIT}}
    client = cluster.client()
    for path in paths:
        client.create("table", path, attributes=attributes)
        client.mount_table(path, sync=True)
    sizes: list[int] = []
    senders: list[str] = []

    def listen(event: str, fields: dict[str, Any]) -> None:
        if event == Event.BATCH_COMMITTED:
            sizes.append(fields["bytes"])
            senders.append(fields["sent_by"])

    sink = TransactionalSink(
        paths, proxy=link.address, sent_by=sender, rows_per_tablet_limit=_LIMIT, listener=listen
    )
    found: list[Batch] = []
    write = timed(sink, link, sizes, found)
    rows = spark.readStream.format("rate-micro-batch")
    rows = rows.option("rowsPerBatch", count).option("numPartitions", tasks)
    frame = _PLANS[plan](shape.of(rows.load().selectExpr("value as id")), tasks)
    with tempfile.TemporaryDirectory() as checkpoint:
        stream = frame.writeStream.foreachBatch(write).option("checkpointLocation", checkpoint)
        query = stream.start()
        while len(found) <= options.turns:
            if not query.isActive:
                raise query.exception() or RuntimeError("The query has ended")
            time.sleep(0.05)
        query.stop()
    assert set(senders) == {sender}, senders
    for path in paths:
        client.remove(path)
    return found[1 : 1 + options.turns]


def timed(
    sink: TransactionalSink, link: Link, sizes: list[int], found: list[Batch]
) -> Callable[[DataFrame, int], None]:
    """Return a function for batches that measures each."""

    def write(frame: DataFrame, batch_id: int) -> None:
        link.requests()
        began = time.perf_counter()
        sink(frame, batch_id)
        seconds = time.perf_counter() - began
        requests = link.requests()
        found.append(Batch(seconds, sizes[-1], sum(one.sent for one in requests), len(requests)))

    return write


def row_of(case: Case, batches: Sequence[Batch]) -> str:
    """Return a row of the table: medians."""
    plan, count, sender, tasks = case
    seconds = statistics.median(batch.seconds for batch in batches)
    rate = statistics.median(batch.bytes / batch.seconds for batch in batches) / _MEGABYTE
    others = [batch.sent - batch.bytes * (sender == "tasks") for batch in batches]
    share = 100 * sum(others) / sum(batch.sent for batch in batches)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000
    requests = statistics.median(batch.requests for batch in batches)
    return (
        f"| {plan} | {count:,} | {sender} | {tasks} | {seconds:.2f} | {rate:.0f} | {share:.2f} "
        f"| {requests:.0f} | {peak:.0f} |"
    )


if __name__ == "__main__":
    raise SystemExit(main())
