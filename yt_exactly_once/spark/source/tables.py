"""Batch reads: `spark.read.format("yt")` of static tables, sorted dynamic tables, and ranges of queues.

Everything is decided when Spark plans the read: the ranges of a queue, the timestamp of a dynamic table, the
content of a static one. So tasks that run later, or twice, read the same rows.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from yt_exactly_once.codec.rows import decode
from yt_exactly_once.codec.schema import TableSchema, arrow_schema_of
from yt_exactly_once.commit.batch import PartitionRange
from yt_exactly_once.errors import ConfigError, RequestRefusedError, SchemaMismatchError
from yt_exactly_once.observability import Emitter, emitter
from yt_exactly_once.retrying import run_attempts
from yt_exactly_once.spark.schema import arrow_of_spark
from yt_exactly_once.spark.source.offsets import ENDING_OPTION, chosen_rows, recreated
from yt_exactly_once.spark.source.opening import OpenedQueue, OpenedTable
from yt_exactly_once.spark.source.options import StartingPoint, rows_by_partition
from yt_exactly_once.spark.source.range import PATIENCE, RangeReader
from yt_exactly_once.spark.tuning.collector import freeze_modules
from yt_exactly_once.ytsaurus.browsing import attributes_of
from yt_exactly_once.ytsaurus.queues import PartitionBounds
from yt_exactly_once.ytsaurus.reading import Key, WholeTable
from yt_exactly_once.ytsaurus.tables import unsigned

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from yt_exactly_once.spark.source.packed import PackedQueue

T = TypeVar("T")

_OF_STREAMS = ("max_rows_per_partition", "max_bytes_per_partition", "shared_task_rows")

ROWS_PER_TASK = 1_000_000
BYTES_PER_TASK = 128 * 2**20
BYTES_PER_PAGE = 16 * 2**20
ROWS_PER_PAGE = 100_000

_SAME_IN_ARROW = {
    "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "boolean",
    "float", "double", "string", "utf8", "date",
}  # fmt: skip
"""Older types of columns whose values are as Arrow what they are for Spark."""

REPORTS_MAY_LAG = (0.1, 0.2, 0.4, 0.8, 1.6)
"""Seconds to wait for rows that the options name, before they count as missing."""


def batch_reader(
    packed: PackedQueue, options: Mapping[str, str], schema: StructType
) -> DataSourceReader:
    """Return what reads a table, or a part of a queue, once: all columns, or those that the query has named.

    Raise `ConfigError` for an option of streams, and `SchemaMismatchError` for a column that is not there.
    """
    for name in options:
        if name.lower() in _OF_STREAMS:
            raise ConfigError(
                f"{name} limits a batch of a stream, and this read has no batches",
                remedy=f"Remove it; starting_offsets and {ENDING_OPTION} choose a part of a queue",
                option=name.lower(),
            )
    opened = packed.opened
    asked = _chosen(packed, schema)
    if isinstance(opened, OpenedQueue):
        given = {name.lower(): value for name, value in options.items()}
        return QueueReader(opened, asked, _ends(given.get(ENDING_OPTION)))
    if not opened.table.is_dynamic:
        return StaticReader(opened, asked)
    return SortedReader(opened, asked)


def _chosen(packed: PackedQueue, schema: StructType) -> pa.Schema:
    """Return the columns that a query has named; raise `SchemaMismatchError` if one is not there.

    Nulls may be allowed where there are none: DDL has no words for an array without nulls.
    """
    known = {field.simpleString() for field in packed.spark_schema}
    missing = [field for field in schema if field.simpleString() not in known]
    if not missing:
        asked, there = arrow_of_spark(schema), arrow_of_spark(packed.spark_schema)
        missing = [schema[one.name] for one in asked if not _takes(one, there.field(one.name))]
        if not missing:
            return asked
    raise SchemaMismatchError(
        f"The query reads {missing[0].simpleString()}, and the columns of the table are "
        f"{packed.spark_schema.simpleString()}",
        remedy="Name columns of the table with their types, without NOT NULL where they may be null. Or "
        "leave .schema(...) out",
        path=packed.opened.options.path,
    )


def _takes(asked: pa.Field, there: pa.Field) -> bool:
    """Return whether a field may be null, and what is inside, wherever another one of its type may be."""
    pairs = ((asked.type.field(n), there.type.field(n)) for n in range(there.type.num_fields))
    return (asked.nullable or not there.nullable) and all(_takes(*pair) for pair in pairs)


def _ends(text: str | None) -> dict[int, int] | None:
    """Return the first row of each queue partition that is not read; `None` for all rows there are."""
    if text is None or text.strip().lower() == "latest":
        return None
    remedy = "Use latest, or the first row of every partition that is not read, as JSON: "
    return rows_by_partition(ENDING_OPTION, text, remedy + '{"0": 120, "1": 80}')


def _patiently(call: Callable[[], T], emit: Emitter) -> T:
    return run_attempts(lambda _number: call(), PATIENCE, emit)


class QueueReader(DataSourceReader):
    """Reads ranges of a queue, up to the `_ends`."""

    def __init__(self, opened: OpenedQueue, asked: pa.Schema, ends: dict[int, int] | None) -> None:
        self._opened, self._asked, self._ends = opened, asked, ends

    def partitions(self) -> Sequence[InputPartition]:
        """Return one range of rows for each task; a queue partition with many rows has several."""
        queue, bounds = self._opened.queue, self._bounds()
        stored = queue.stored_offsets(self._opened.cluster.name, range(len(bounds)))
        starts = chosen_rows(
            self._opened.options.starting_offsets, bounds, stored, queue=queue.path
        )
        ending = self._ends or StartingPoint.LATEST
        ends = chosen_rows(ending, bounds, {}, queue=queue.path, option=ENDING_OPTION)
        return [
            InputPartition((PartitionRange(partition, start, min(start + ROWS_PER_TASK, end)),))
            for partition, end in ends.items()
            for start in range(starts[partition], end, ROWS_PER_TASK)
        ] or [InputPartition(())]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a task; raise `DataLossError` if another queue is there now."""
        opened = self._opened
        reader = RangeReader.in_task(opened.queue, opened.rows, opened.options)
        for rows in reader.read(partition.value):
            # After the rows, and before Spark has them.
            self._require_same()
            yield rows.select(self._asked.names).cast(self._asked)

    def _require_same(self) -> None:
        queue, emit = self._opened.queue, emitter(queue=self._opened.queue.path)
        found = _patiently(partial(attributes_of, queue.connection, queue.path, ["id"]), emit)
        if (found or {}).get("id") != self._opened.info.id:
            raise recreated(queue.path, queue.consumer, "Load it again, with spark.read")

    def _bounds(self) -> list[PartitionBounds]:
        """Return the bounds of the partitions; tablets report their last rows with a delay."""
        starts = self._opened.options.starting_offsets
        wanted = {**(starts if isinstance(starts, dict) else {}), **(self._ends or {})}
        pauses = list(REPORTS_MAY_LAG)
        while True:
            bounds = self._opened.queue.state(self._opened.info.tablet_count).partitions
            late = any(row > bounds[at].upper for at, row in wanted.items() if at < len(bounds))
            if not (late and pauses):
                return bounds
            time.sleep(pauses.pop(0))


class _TableReader(DataSourceReader):
    """Reads columns of a table."""

    def __init__(self, opened: OpenedTable, asked: pa.Schema) -> None:
        self._table = opened.table
        self._arrow = pa.schema([opened.arrow.field(name) for name in asked.names])
        # With nulls that the table does not have, if the query allows them.
        self._asked = asked


class StaticReader(_TableReader):
    """Reads a static table by the numbers of its rows; see `_TableReader`."""

    def partitions(self) -> Sequence[InputPartition]:
        """Return ranges of about 128 MiB: the first row of each, and the one after its last."""
        self._table.require_same()
        count = self._table.row_count
        step = _fitting(self._table, BYTES_PER_TASK, ROWS_PER_TASK)
        starts = range(0, count, step) or (0,)
        return [InputPartition((start, min(start + step, count))) for start in starts]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a range; raise `ConflictError` if the table was written meanwhile."""
        first, last = partition.value
        freeze_modules()
        table, emit = self._table, emitter(path=self._table.path)
        step = _fitting(table, BYTES_PER_PAGE, ROWS_PER_PAGE)
        for start in range(first, last, step):
            end = min(start + step, last)
            rows = _patiently(partial(self._read, start, end), emit)
            # After the rows, and before Spark has them.
            table.require_same()
            yield from (one.cast(self._asked) for one in rows)

    def _read(self, start: int, end: int) -> Sequence[pa.RecordBatch]:
        kinds = {column["name"]: column["type"] for column in self._table.schema}
        names = self._arrow.names
        # The older type of a decimal is string: its bytes would be read as text.
        has_decimals = any(pa.types.is_decimal(field.type) for field in self._arrow)
        if names and not has_decimals and {kinds[name] for name in names} <= _SAME_IN_ARROW:
            # Where Arrow does not fit, YSON does, or names what is wrong.
            with suppress(pa.ArrowInvalid, RequestRefusedError):
                stream = pa.ipc.open_stream(self._table.rows(start, end, names, arrow=True))
                rows: pa.Table = stream.read_all().select(names).cast(self._arrow)
                return list(rows.to_batches())
        return [decode(self._table.rows(start, end, names), self._arrow)]


class SortedReader(_TableReader):
    """Reads a sorted dynamic table as it is when Spark plans the read; see `_TableReader`.

    It takes no filters: Spark would use a read that is planned with those of one query for all of a `load`.
    """

    def partitions(self) -> Sequence[InputPartition]:
        """Return the tablets: the index of each, and the timestamp of the read."""
        table = self._table.now()
        return [InputPartition((index, table.timestamp)) for index in range(len(table.pivots))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a tablet, in the order of their keys."""
        index, timestamp = partition.value
        freeze_modules()
        table = replace(self._table, timestamp=timestamp)
        keys = table.key_columns
        plain_keys = arrow_schema_of(TableSchema.from_yt(keys), binary_strings=True)
        names = list(dict.fromkeys([*plain_keys.names, *self._arrow.names]))
        emit = emitter(path=table.path)
        step = _fitting(table, BYTES_PER_PAGE, ROWS_PER_PAGE)
        after: Key | None = None
        while True:
            payload = _patiently(partial(table.page, after, index, step, names), emit)
            # After the rows, and before Spark has them.
            table.require_same()
            rows = decode(payload, plain_keys)
            if rows.num_rows:
                own = self._asked
                yield decode(payload, self._arrow).cast(own) if own.names else rows.select([])
            if rows.num_rows < step:
                return
            last = [rows.column(number)[-1].as_py() for number in range(len(keys))]
            after = tuple(
                unsigned(value) if key["type"] == "uint64" and value is not None else value
                for value, key in zip(last, keys, strict=True)
            )


def _fitting(table: WholeTable, size: int, most: int) -> int:
    """Return how many rows have about so many bytes."""
    row = max(1, table.data_weight // max(1, table.row_count))
    return max(1, min(most, size // row))
