"""`python -m benchmarks.modes.changes`: the same changes into YTsaurus and into Delta Lake, in turns.

Rows are inserts, updates and deletes of some keys, out of order within a batch. Every contender is a
streaming query, and has one batch in each round:

- `noop` computes the rows and writes nothing;
- `changes` is `TransactionalSink(Target(..., changes=Changes(sequence="lsn", operation="op")))`;
- `merge` is what Delta Lake's documentation recommends: the newest change of each key by an aggregation, and
  a MERGE that compares the sequence. It keeps nothing of deleted keys: a change that comes in a later batch
  than the delete of its key would bring the key back. Here none does, and both tables must be equal at
  the end.
"""

from __future__ import annotations

import argparse
import logging
import random
import statistics
import sys
import tempfile
from collections import defaultdict
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark.sql.functions as sf
from yt.logger import LOGGER

from benchmarks.arguments import positive
from benchmarks.modes.peers import merged
from benchmarks.modes.points import FLOOR
from benchmarks.modes.session import session
from benchmarks.modes.turns import QueryContender, Writer
from benchmarks.page import put, rig
from yt_exactly_once import Changes, Target, TransactionalSink, create_table
from yt_exactly_once.local import LocalCluster
from yt_exactly_once.observability import LOGGER_NAME

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

OURS, DELTA = "changes", "merge"
CONTENDERS = (FLOOR, OURS, DELTA)
TARGET = "//home/benchmark/customers"
_CHANGES = Changes(sequence="lsn", operation="op")
_SEED = 20_261_129
_WARM = 3
_STRIDE = 7_919
"""How far apart in a batch two changes with neighbouring sequences are."""

_DELETES = 10
"""One change in so many deletes."""


def changes_of(numbers: DataFrame, rows: int, keys: int) -> DataFrame:
    """Return the changes with some numbers, `id`, of which each batch has `rows`."""
    ordered = numbers.selectExpr(f"(id div {rows}) * {rows} + pmod(id * {_STRIDE}, {rows}) as lsn")
    return ordered.selectExpr(
        f"pmod(xxhash64(lsn), {keys}) as key",
        "lsn",
        f"if(pmod(xxhash64(lsn, 1), {_DELETES}) = 0, 'd', 'u') as op",
        "lsn * 0.25D as amount",
        "lpad(string(lsn), 38, 'name-') as name",
    )


def expected(changes: DataFrame) -> tuple[int, int]:
    """Return how many rows there are after all changes, and the sum of their sequences."""
    newest = changes.groupBy("key").agg(sf.max(sf.struct("lsn", "op")).alias("newest"))
    live = newest.where("newest.op = 'u'").agg(sf.count("*"), sf.sum("newest.lsn"))
    count, total = live.head() or (0, 0)
    return int(count), int(total)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.modes.changes", description=__doc__)
    parser.add_argument("--batches", type=positive, default=15, help="measured, of each")
    parser.add_argument("--rows", type=positive, default=20_000, help="of a batch")
    parser.add_argument("--keys", type=positive, default=50_000)
    parser.add_argument("--page", action="store_true", help="write the table of the documentation")
    options = parser.parse_args(arguments)
    LOGGER.setLevel(logging.ERROR)
    logging.getLogger(LOGGER_NAME).setLevel(logging.ERROR)
    with LocalCluster() as cluster, session() as spark, tempfile.TemporaryDirectory() as folder:
        seconds = measure(spark, cluster, Path(folder), options)
    lines = ["| writer | batch, ms | quartiles | times noop |", "|---|---:|---:|---:|"]
    for name, taken in seconds.items():
        low, middle, high = (1000 * each for each in statistics.quantiles(taken, n=4))
        # Of the same round: a busy machine is as busy for all.
        pairs = zip(taken, seconds[FLOOR], strict=True)
        ratio = statistics.median(one / other for one, other in pairs)
        lines.append(f"| {name} | {middle:.0f} | {low:.0f} to {high:.0f} | {ratio:.2f} |")
    pairs = zip(seconds[OURS], seconds[DELTA], strict=True)
    ratio = statistics.median(one / other for one, other in pairs)
    text = (
        f"{OURS} / {DELTA}, of one round each: {ratio:.2f}. Medians of {options.batches} batches of "
        f"{options.rows} changes of {options.keys} keys. {rig()}."
    )
    print("\n".join([*lines, text]))
    if options.page:
        put("changes", [*lines, "", text])
    return 0


def measure(
    spark: SparkSession, cluster: LocalCluster, folder: Path, options: argparse.Namespace
) -> dict[str, list[float]]:
    """Return the seconds of each measured batch, by contender.

    Raises:
        RuntimeError: a table is not what the changes leave.
    """
    rows, keys, turns = options.rows, options.keys, _WARM + options.batches
    writers = {
        FLOOR: Writer(lambda frame, _: frame.write.format("noop").mode("overwrite").save()),
        OURS: _sink(spark, cluster),
        DELTA: merged(folder / "delta", "key", "lsn", ("amount", "name")),
    }
    seconds: dict[str, list[float]] = defaultdict(list)
    chance = random.Random(_SEED)
    with ExitStack() as stack:
        queries = {
            name: QueryContender(name, writer, partial(_start, spark, name, folder, rows, keys))
            for name, writer in writers.items()
        }
        for query in queries.values():
            stack.callback(query.close)
        for turn in range(turns):
            for name in chance.sample(CONTENDERS, len(CONTENDERS)):
                taken = queries[name].turn().seconds
                if turn >= _WARM:
                    seconds[name].append(taken)
        wanted = expected(changes_of(spark.range(turns * rows), rows, keys))
        found = {name: _left(cluster, folder, name) for name in (OURS, DELTA)}
        if set(found.values()) != {wanted}:
            message = f"The changes leave {wanted}, and the tables have {found}"
            raise RuntimeError(message)
    return {name: seconds[name] for name in CONTENDERS}


def _sink(spark: SparkSession, cluster: LocalCluster) -> Writer:
    proxy = cluster.proxy_urls[0]
    schema = changes_of(spark.range(0), 1, 1).schema
    create_table(TARGET, schema, key_columns=["key"], changes=_CHANGES, proxy=proxy)
    return Writer(TransactionalSink(Target(TARGET, changes=_CHANGES), proxy=proxy))


def _start(
    spark: SparkSession,
    name: str,
    folder: Path,
    rows: int,
    keys: int,
    write: Callable[[DataFrame, int], None],
) -> StreamingQuery:
    numbers = (
        spark.readStream.format("rate-micro-batch")
        .option("rowsPerBatch", rows)
        .option("numPartitions", 4)
        .load()
        .selectExpr("value as id")
    )
    return (
        changes_of(numbers, rows, keys)
        .writeStream.queryName(name)
        .option("checkpointLocation", str(folder / f"{name}-checkpoint"))
        .foreachBatch(write)
        .start()
    )


def _left(cluster: LocalCluster, folder: Path, name: str) -> tuple[int, int]:
    """Return how many rows a table has, and the sum of their sequences."""
    if name == OURS:
        client = cluster.client()
        (row,) = client.select_rows(f"sum(1) as n, sum(lsn) as total from [{TARGET}] group by 1")
        return int(row["n"]), int(row["total"])
    from deltalake import DeltaTable  # noqa: PLC0415 - optional

    lsn = DeltaTable(str(folder / "delta")).to_pyarrow_table(columns=["lsn"]).column("lsn")
    return len(lsn), sum(lsn.to_pylist())


if __name__ == "__main__":
    sys.exit(main())
