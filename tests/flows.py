"""Queues whose rows are known, the queries run over them, and what must come out.

Every expectation is computed here in plain Python from the rows put into the queue; it shares nothing
with the package. Used by the tests in one Spark session and by those that kill drivers.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from yt.wrapper import YtClient

Row = dict[str, Any]
Rows = list[tuple[Any, ...]]

PARTITION_COLUMN = "__spyt_streaming_src_tablet_index"
ROW_COLUMN = "__spyt_streaming_src_row_index"

KEYS = 61
"""Distinct values of `key`."""

REPEATS = 3
REPEAT_DISTANCE = 2_500
"""Each `token` comes up to three times, this many rows apart, and so in different batches."""

FIRST_MOMENT = 1_700_000_000_000_000
WINDOW_SECONDS = 60
LATENESS_SECONDS = 30
_MICROSECONDS = 1_000_000
_ROWS_PER_REQUEST = 20_000

QUEUE_TYPES = {
    "id": "int64",
    "key": "int64",
    "token": "int64",
    "value": "int64",
    "name": "utf8",
    "at": "timestamp",
}


def columns(types: dict[str, str], keys: Sequence[str] = ()) -> list[Row]:
    """Return a table schema; `?` after a type makes the column nullable."""
    described = []
    for name, given in types.items():
        item = given.removesuffix("?")
        logical = {"type_name": "optional", "item": item} if item != given else item
        order = {"sort_order": "ascending"} if name in keys else {}
        described.append({"name": name, "type_v3": logical, **order})
    return described


def create_table(client: YtClient, path: str, schema: list[Row], **attributes: Any) -> str:
    """Create and mount a dynamic table."""
    client.create(
        "table", path, recursive=True, attributes={"dynamic": True, "schema": schema, **attributes}
    )
    client.mount_table(path, sync=True)
    return path


@dataclass
class Queue:
    """A queue with a registered consumer.

    Attributes:
        rows: what was put in, per partition.
    """

    client: YtClient
    path: str
    consumer: str
    rows: list[list[Row]]

    @classmethod
    def create(
        cls, client: YtClient, folder: str, name: str = "queue", *, partitions: int = 3
    ) -> Queue:
        path = create_table(
            client, f"{folder}/{name}", columns(QUEUE_TYPES), tablet_count=partitions
        )
        queue = cls(client, path, "", [[] for _ in range(partitions)])
        queue.consumer = queue.add_consumer(f"{path}_consumer")
        return queue

    @classmethod
    def filled(
        cls, client: YtClient, folder: str, rows: int, name: str = "queue", *, partitions: int = 3
    ) -> Queue:
        """Create one with so many rows in every partition."""
        queue = cls.create(client, folder, name, partitions=partitions)
        for partition in range(partitions):
            queue.append(rows, partition)
        return queue

    @classmethod
    def found(cls, client: YtClient, folder: str, name: str = "queue") -> Queue:
        """Return one that `create` has made before, with the rows that were put in."""
        path = f"{folder}/{name}"
        width = int(client.get(f"{path}/@tablet_count"))
        infos = client.get_tablet_infos(path, list(range(width)))["tablets"]
        queue = cls(client, path, f"{path}_consumer", [[] for _ in range(width)])
        queue.rows = [
            queue.next_rows(int(info["total_row_count"]), part) for part, info in enumerate(infos)
        ]
        return queue

    def add_consumer(self, path: str) -> str:
        """Create one more consumer and register it."""
        self.client.create("queue_consumer", path)
        self.client.mount_table(path, sync=True)
        self.client.register_queue_consumer(self.path, path, vital=True)
        return path

    def append(self, count: int, partition: int = 0) -> None:
        """Add rows."""
        fresh = self.next_rows(count, partition)
        for start in range(0, count, _ROWS_PER_REQUEST):
            self.client.insert_rows(
                self.path,
                [
                    {**row, "$tablet_index": partition}
                    for row in fresh[start : start + _ROWS_PER_REQUEST]
                ],
            )
        self.rows[partition].extend(fresh)

    def next_rows(self, count: int, partition: int) -> list[Row]:
        """Return what comes next in a partition; row i of partition p has the id i * partitions + p."""
        width, kept = len(self.rows), len(self.rows[partition])
        return [known_row(index * width + partition) for index in range(kept, kept + count)]

    def all_rows(self) -> list[Row]:
        return [row for rows in self.rows for row in rows]

    def until(self, ends: dict[int, int]) -> Queue:
        """Return this queue as if nothing had been written from these rows on."""
        rows = [kept[: ends.get(partition, 0)] for partition, kept in enumerate(self.rows)]
        return Queue(self.client, self.path, self.consumer, rows)

    def batches(self, size: int) -> Iterator[list[Row]]:
        """Split as the source does that takes `size` rows of every partition per batch."""
        for start in range(0, max(map(len, self.rows)), size):
            yield [row for rows in self.rows for row in rows[start : start + size]]

    def stored(self, consumer: str | None = None) -> dict[int, int]:
        """Return where the consumer stands, per partition it was moved in."""
        found = self.client.select_rows(
            f"partition_index, [offset] from [{consumer or self.consumer}]"
        )
        return {int(row["partition_index"]): int(row["offset"]) for row in found}

    def ends(self) -> dict[int, int]:
        return {partition: len(rows) for partition, rows in enumerate(self.rows)}


def known_row(number: int) -> Row:
    """Return the row with that id; its moment grows with the id, so that no row is ever late."""
    return {
        "id": number,
        "key": number * 7919 % KEYS,
        "token": number - number % REPEATS * REPEAT_DISTANCE,
        "value": number * 31 % 1000 - 300,
        "name": f"имя {number}",
        "at": FIRST_MOMENT + number * _MICROSECONDS,
    }


def read_queue(
    spark: SparkSession,
    proxy: str,
    queue: str,
    consumer: str | None,
    *,
    form: str = "yt",
    name: str = "",
    **options: Any,
) -> DataFrame:
    """Open a queue as a stream with its service columns; perhaps as a source with a name."""
    reader = (
        spark.readStream.format(form)
        .option("proxy", proxy)
        .option("include_service_columns", "true")
    )
    if consumer:
        reader = reader.option("consumer_path", consumer)
    if name:
        reader = reader.name(name)
    # Most tests have few rows, and want a Spark task for each queue partition nevertheless.
    for option, value in {"shared_task_rows": 1, **options}.items():
        reader = reader.option(option, value)
    return reader.load(queue)


@dataclass(frozen=True)
class Query:
    """A kind of query: what it computes, in Spark and in plain Python.

    Attributes:
        build: makes the frame.
        expected: rows it has produced once it has read a queue in batches of so many rows, in no order.
        growing: whether a sorted target keeps the last row per key of `expected`.
        lagging: whether a batch gives out what the batches before it completed.
    """

    name: str
    types: dict[str, str]
    keys: tuple[str, ...]
    output_mode: str
    build: Callable[[DataFrame], DataFrame]
    expected: Callable[[Queue, int], Rows]
    growing: bool = False
    lagging: bool = False

    def create_target(
        self, client: YtClient, path: str, *, is_sorted: bool, tablets: int = 3
    ) -> str:
        """Create a target, ordered or sorted."""
        keys = self.keys if is_sorted else ()
        attributes = {} if is_sorted else {"tablet_count": tablets}
        return create_table(client, path, columns(self.types, keys), **attributes)

    def found(self, client: YtClient, path: str) -> Rows:
        """Return the rows of the target, sorted."""
        names = list(self.types)
        listed = ", ".join(f"[{name}]" for name in names)
        rows = client.select_rows(f"{listed} from [{path}]")
        return sorted(tuple(row[name] for name in names) for row in rows)

    def must_hold(self, queue: Queue, batch_size: int, *, is_sorted: bool) -> Rows:
        """Return the rows that the target must hold, sorted."""
        rows = self.expected(queue, batch_size)
        if is_sorted and self.growing:
            # Later batches come later, and replace.
            rows = list({row[: len(self.keys)]: row for row in rows}.values())
        return sorted(rows)


def _pass_on(frame: DataFrame) -> DataFrame:
    return frame.selectExpr(
        f"{PARTITION_COLUMN} as part", f"{ROW_COLUMN} as row", "id", "key", "value", "name"
    )


def numbered(frame: DataFrame) -> DataFrame:
    """Give the rows the columns that tell where they come from."""
    return frame.selectExpr("*", f"part as {PARTITION_COLUMN}", f"row as {ROW_COLUMN}")


def passed_on(queue: Queue, _batch_size: int = 0) -> Rows:
    """Return what the stateless query makes of a queue."""
    return [
        (partition, index, row["id"], row["key"], row["value"], row["name"])
        for partition, rows in enumerate(queue.rows)
        for index, row in enumerate(rows)
    ]


def _total(frame: DataFrame) -> DataFrame:
    return (
        frame.groupBy("key")
        .agg({"id": "count", "value": "sum", "at": "max"})
        .selectExpr(
            "key", "`count(id)` as n", "`sum(value)` as total", "unix_micros(`max(at)`) as latest"
        )
    )


def _totals(queue: Queue, batch_size: int) -> Rows:
    """Every batch tells the new total of each key it touched."""
    count: Counter[int] = Counter()
    total: Counter[int] = Counter()
    latest: dict[int, int] = {}
    told: Rows = []
    for batch in queue.batches(batch_size):
        for row in batch:
            count[row["key"]] += 1
            total[row["key"]] += row["value"]
            latest[row["key"]] = max(row["at"], latest.get(row["key"], 0))
        told += [
            (key, count[key], total[key], latest[key]) for key in {row["key"] for row in batch}
        ]
    return told


def _first_of_each(frame: DataFrame) -> DataFrame:
    return frame.selectExpr("token", "token * 2 as mark").dropDuplicates(["token", "mark"])


def _firsts(queue: Queue, _batch_size: int) -> Rows:
    return [(token, token * 2) for token in {row["token"] for row in queue.all_rows()}]


def _count_by_window(frame: DataFrame) -> DataFrame:
    from pyspark.sql import functions as sf

    return (
        frame.withWatermark("at", f"{LATENESS_SECONDS} seconds")
        .groupBy(sf.window("at", f"{WINDOW_SECONDS} seconds"))
        .agg(sf.count("id").alias("n"), sf.sum("value").alias("total"))
        .selectExpr("unix_micros(window.start) as start", "n", "total")
    )


def _windows(queue: Queue, _batch_size: int) -> Rows:
    """Windows are told once the last row is so much later than their end."""
    width = WINDOW_SECONDS * _MICROSECONDS
    count: Counter[int] = Counter()
    total: dict[int, int] = defaultdict(int)
    for row in queue.all_rows():
        start = row["at"] // width * width
        count[start] += 1
        total[start] += row["value"]
    last = max((row["at"] for row in queue.all_rows()), default=0)
    # Spark counts a watermark in milliseconds.
    watermark = last // 1000 * 1000 - LATENESS_SECONDS * _MICROSECONDS
    return [(start, count[start], total[start]) for start in count if start + width <= watermark]


STATELESS = Query(
    "stateless",
    {
        "part": "int64",
        "row": "int64",
        "id": "int64",
        "key": "int64",
        "value": "int64",
        "name": "utf8",
    },
    ("part", "row"),
    "append",
    _pass_on,
    passed_on,
)
NUMBERED = replace(STATELESS, build=lambda frame: numbered(_pass_on(frame)))
"""Rows carry their source, so that idempotent mode can number them by it."""
AGGREGATION = Query(
    "aggregation",
    {"key": "int64?", "n": "int64", "total": "int64?", "latest": "int64?"},
    ("key",),
    "update",
    _total,
    _totals,
    growing=True,
)
DEDUP = Query(
    "dedup", {"token": "int64?", "mark": "int64?"}, ("token",), "append", _first_of_each, _firsts
)
WINDOWED = Query(
    "windowed",
    {"start": "int64?", "n": "int64", "total": "int64?"},
    ("start",),
    "append",
    _count_by_window,
    _windows,
    lagging=True,
)
QUERIES = {query.name: query for query in (STATELESS, AGGREGATION, DEDUP, WINDOWED)}


@dataclass(frozen=True)
class Entry:
    """A ledger entry, read without the package's help.

    Attributes:
        starts: its first row of every partition, per queue.
        ends: first row after it of every partition, per queue.
        left: where it left the consumer, per queue.
        part: the last committed part of the batch.
        part_count: how many it has.
    """

    batch_id: int
    starts: dict[str, dict[int, int]]
    ends: dict[str, dict[int, int]]
    left: dict[str, dict[int, int]]
    transaction_id: str
    row_count: int
    part: int
    part_count: int


def ledger_entries(client: YtClient, ledger: str) -> list[Entry]:
    """Return all entries of a ledger; none when it is not there yet."""
    if not client.exists(ledger):
        return []
    return [
        Entry(
            batch_id=row["batch_id"],
            starts=_by_queue(row["offsets"], 0),
            ends=_by_queue(row["offsets"], 1),
            left=_by_queue(row["offsets"], 2),
            transaction_id=row["transaction_id"],
            row_count=row["rows"],
            part=row["part"],
            part_count=row["part_count"],
        )
        for row in client.select_rows(f"* from [{ledger}]")
    ]


def _by_queue(offsets: Iterable[Row], place: int) -> dict[str, dict[int, int]]:
    return {
        source["queue"]: {
            int(part): numbers[place] for part, numbers in source["partitions"].items()
        }
        for source in offsets
    }


def differences(found: Rows, expected: Rows, shown: int = 5) -> str:
    """Say what is lost and what is too much; empty when both are the same."""
    have, want = Counter(found), Counter(expected)
    lost, extra = list((want - have).elements()), list((have - want).elements())
    if not lost and not extra:
        return ""
    return f"{len(lost)} lost, e.g. {lost[:shown]}; {len(extra)} too many, e.g. {extra[:shown]}"
