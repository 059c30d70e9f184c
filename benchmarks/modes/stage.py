"""The stage of one point: its tables, its queue, and its contenders, each with a target of its own."""

from __future__ import annotations

import shutil
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from io import BytesIO
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa
from yt.wrapper.format import ArrowFormat

from benchmarks.clients import UNCOMPRESSED
from benchmarks.modes import peers
from benchmarks.modes.points import (
    COLLECT,
    DELTA,
    FLOOR,
    IDEMPOTENT,
    LIMIT,
    POSTGRES,
    SNIPPET,
    STEPS,
    TASKS,
    Point,
)
from benchmarks.modes.turns import DirectContender, QueryContender, Writer
from benchmarks.modes.work import TOTALS_TYPES, totals
from yt_exactly_once import Target, TransactionalSink
from yt_exactly_once.codec.rows import WireFormat
from yt_exactly_once.codec.schema import TableSchema, check_frame
from yt_exactly_once.observability import Event
from yt_exactly_once.spark.doors.frame_rows import collected
from yt_exactly_once.spark.schema import arrow_of_spark
from yt_exactly_once.spark.sink.encode import RowEncoder, encode_batches
from yt_exactly_once.spark.sink.placement import Placement
from yt_exactly_once.spark.sink.targets import PreparedTarget

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from yt.wrapper import YtClient

    from benchmarks.modes.turns import Contender
    from yt_exactly_once.local import LocalCluster

ROWS_PER_TABLET = 2_000_000
"""The cap of a real cluster; the default of 100 000 would refuse the largest batches."""

_ROWS_PER_REQUEST = 50_000
_MOST_ROWS = 100_000_000
"""That a query over a target may read."""


@dataclass
class Stage:
    """Everything that the contenders of one point share.

    Attributes:
        point: what is measured.
        spark: session.
        cluster: where.
        folder: for checkpoints and for the peers.
        turns: how many batches the queue must hold for every contender.
    """

    point: Point
    spark: SparkSession
    cluster: LocalCluster
    folder: Path
    turns: int
    _stack: ExitStack = field(default_factory=ExitStack)

    def __enter__(self) -> Self:
        self.home = f"//home/benchmark/{self.point.name}"
        self.client: YtClient = self.cluster.client()
        self.client.create("map_node", self.home, recursive=True)
        self._stack.callback(shutil.rmtree, self.folder, ignore_errors=True)
        self._stack.callback(self.client.remove, self.home, recursive=True)
        if self.point.source == "queue":
            self._fill_queue()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def contender(self, name: str) -> Contender:
        """Bring a contender on stage.

        Raises:
            peers.AbsentError: what it needs is not installed.
        """
        if name == LIMIT:
            return self._bare_client(name)
        writer = self._writer(name)
        self._stack.callback(writer.close)
        contender = QueryContender(name, writer, self._starter(name))
        self._stack.callback(contender.close)
        return contender

    def _writer(self, name: str) -> Writer:
        place = self.folder / _plain(name)
        if name in _NOWHERE:
            return Writer(_NOWHERE[name])
        if name == SNIPPET:
            target = self._create_target(name)
            return Writer(self._snippet(target), count=partial(self._count, target))
        if name == DELTA:
            # Other points have a new key in every row.
            return peers.delta(place, self._keys if self.point.query == "stateful" else ())
        if name == POSTGRES:
            return peers.postgres(place, self.point.shape)
        return self._sink(name)

    def _sink(self, mode: str) -> Writer:
        steps = Steps()
        path = self._create_target(mode)
        sink = TransactionalSink(
            path,
            mode=mode,
            proxy=self.cluster.proxy_urls[0],
            rows_per_tablet_limit=ROWS_PER_TABLET,
            listener=steps,
        )
        return Writer(sink, steps.last, partial(self._count, path))

    def _snippet(self, target: str) -> Callable[[DataFrame, int], None]:
        def write(frame: DataFrame, _batch_id: int) -> None:
            rows = [row.asDict(recursive=True) for row in frame.collect()]
            for start in range(0, len(rows), _ROWS_PER_REQUEST):
                self.client.insert_rows(target, rows[start : start + _ROWS_PER_REQUEST])

        return write

    def _bare_client(self, name: str) -> DirectContender:
        """Insert over one connection to a proxy that is known, uncompressed: as fast as it goes."""
        target = self._create_target(name)
        client = self.cluster.client(proxy={**UNCOMPRESSED, "enable_proxy_discovery": False})

        def write(payloads: list[bytes]) -> None:
            for payload in payloads:
                client.insert_rows(target, BytesIO(payload), format=ArrowFormat(), raw=True)

        return DirectContender(
            name,
            lambda turn: list(self._payloads(self._keys, turn)),
            write,
            partial(self._count, target),
        )

    def _payloads(self, keys: tuple[str, ...] = (), turn: int = 0) -> Iterator[bytes]:
        """Encode the rows of one batch as the sink does."""
        point = self.point
        first = turn * point.rows
        frame = point.shape.of(self.spark.range(first, first + point.rows, 1, point.partitions))
        table = TableSchema.from_yt(point.shape.columns(keys))
        plan = check_frame(
            arrow_of_spark(frame.schema), table, target=point.name, sorted=bool(keys)
        )
        placed = PreparedTarget(
            options=Target("//target"),
            is_sorted=bool(keys),
            tablet_count=point.partitions,
            plan=plan,
            wire=WireFormat.ARROW,
            placement=Placement(None if keys else point.partitions),
            rows_per_tablet_limit=ROWS_PER_TABLET,
            table_id="",
        )
        arrived = collected(frame, needs_partitions=True)
        encoder = encode_batches(arrived, RowEncoder(placed))
        for group in encoder.groups.values():
            for payload in group:
                yield payload.data

    def _starter(self, name: str) -> Callable[[Callable[[DataFrame, int], None]], StreamingQuery]:
        def start(write: Callable[[DataFrame, int], None]) -> StreamingQuery:
            return (
                self._query(self._source(name))
                .writeStream.queryName(f"{self.point.name} {name}")
                .outputMode("update" if self.point.query == "stateful" else "append")
                .option("checkpointLocation", str(self.folder / f"{_plain(name)}-checkpoint"))
                .foreachBatch(write)
                .start()
            )

        return start

    def _source(self, name: str) -> DataFrame:
        point = self.point
        if point.source == "queue":
            reader = (
                self.spark.readStream.format("yt")
                .option("proxy", self.cluster.proxy_urls[0])
                .option("starting_offsets", "earliest")
                .option("max_rows_per_partition", point.rows // point.partitions)
            )
            if name not in (*_NOWHERE, DELTA):
                # Who writes nowhere, or elsewhere, has nobody to tell how far it has come.
                reader = reader.option("consumer_path", self._create_consumer(name))
            # Idempotent mode numbers rows by where they come from, if it is told.
            reader = reader.option("include_service_columns", name == IDEMPOTENT)
            return reader.load(f"{self.home}/queue")
        numbers = (
            self.spark.readStream.format("rate-micro-batch")
            .option("rowsPerBatch", point.rows)
            .option("numPartitions", point.partitions)
            .load()
        )
        return point.shape.of(numbers.selectExpr("value as id"))

    def _query(self, rows: DataFrame) -> DataFrame:
        if self.point.query == "shuffle":
            return rows.repartition(self.point.partitions, "key")
        return totals(rows) if self.point.query == "stateful" else rows

    @property
    def _keys(self) -> tuple[str, ...]:
        if self.point.target == "ordered":
            return ()
        return ("key",) if self.point.query == "stateful" else ("id",)

    def _create_target(self, name: str) -> str:
        point, keys = self.point, self._keys
        attributes: dict[str, Any] = {} if keys else {"tablet_count": self.point.partitions}
        schema = point.shape.columns(keys)
        if point.query == "stateful":
            schema = _totals_schema(keys)
        return self._create_table(name, schema, **attributes)

    def _create_table(self, name: str, schema: list[dict[str, Any]], **attributes: Any) -> str:
        path = f"{self.home}/{_plain(name)}"
        attributes |= {
            "dynamic": True,
            "schema": schema,
            "mount_config": {"max_rows_per_transaction": ROWS_PER_TABLET},
        }
        self.client.create("table", path, attributes=attributes)
        self.client.mount_table(path, sync=True)
        return path

    def _create_consumer(self, name: str) -> str:
        path = f"{self.home}/{_plain(name)}-consumer"
        self.client.create("queue_consumer", path)
        self.client.mount_table(path, sync=True)
        self.client.register_queue_consumer(f"{self.home}/queue", path, vital=False)
        return path

    def _fill_queue(self) -> None:
        """Write the rows of all turns, and of one more batch, which lets the last turn end."""
        point = self.point
        queue = self._create_table("queue", point.shape.columns(), tablet_count=point.partitions)
        payloads = list(self._payloads())
        for _ in range(self.turns + 1):
            for payload in payloads:
                self.client.insert_rows(queue, BytesIO(payload), format=ArrowFormat(), raw=True)

    def _count(self, target: str) -> int:
        if not self._keys:
            tablets = list(range(self.point.partitions))
            infos = self.client.get_tablet_infos(target, tablets)["tablets"]
            return sum(int(info["total_row_count"]) for info in infos)
        counted = f"sum(1) as n from [{target}] group by 1"
        (row,) = self.client.select_rows(counted, input_row_limit=_MOST_ROWS)
        return int(row["n"])


def _count_in_tasks(frame: DataFrame, _batch_id: int) -> None:
    # A local function travels to the tasks as it is: they do not import this module.
    def counted(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        count = sum(batch.num_rows for batch in batches)
        yield pa.RecordBatch.from_pydict({"n": pa.array([count], pa.int64())})

    frame.mapInArrow(counted, "n long").collect()


_NOWHERE: dict[str, Callable[[DataFrame, int], Any]] = {
    FLOOR: lambda frame, _: frame.write.format("noop").mode("overwrite").save(),
    COLLECT: lambda frame, _: frame.toArrow(),
    TASKS: _count_in_tasks,
}
"""What computes the rows of a batch, and writes them nowhere."""


class Steps:
    """A listener that learns how long each step of the last batch took.

    The time between two events belongs to the later one. Steps 5 to 8 are partly done side by side, and
    told of together when they are done.
    """

    def __init__(self) -> None:
        self._began = 0.0
        self._steps: dict[str, float] = {}

    def __call__(self, event: str, _fields: dict[str, Any]) -> None:
        """Take one event."""
        now = time.perf_counter()
        if event == Event.BATCH_STARTED:
            self._steps, self._began = {}, now
        elif event in STEPS:
            step = STEPS[event]
            self._steps[step] = self._steps.get(step, 0.0) + now - self._began
            self._began = now

    def last(self) -> dict[str, float]:
        """Return seconds by step."""
        return dict(self._steps)


def _plain(name: str) -> str:
    """Return a contender's name as part of a path."""
    return name.replace(" ", "-")


def _totals_schema(keys: tuple[str, ...]) -> list[dict[str, Any]]:
    return [
        {"name": name, "type": kind, **({"sort_order": "ascending"} if name in keys else {})}
        for name, kind in TOTALS_TYPES.items()
    ]
