"""The comparison of a target with its queues, by the columns that say where each row came from.

Every row of the queues up to the last commit must be there exactly once. Columns that queue and target have
in common are compared too, as far as the queue still has the rows.

Memory is one bit per row, and eight bytes per `BUCKET` rows, whatever the rows hold.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from yt_exactly_once.codec.row_hash import row_hashes
from yt_exactly_once.codec.schema import ColumnSchema, TableSchema
from yt_exactly_once.errors import ConfigError
from yt_exactly_once.operations.audit.by_digest import modes_of
from yt_exactly_once.operations.audit.found import Audit, By, Columns, PartitionAudit
from yt_exactly_once.operations.audit.ranges import RangeReader, fields_of, placed
from yt_exactly_once.operations.ledgers import LedgerRow
from yt_exactly_once.ytsaurus.queues import RemoteQueue
from yt_exactly_once.ytsaurus.tables import TableInfo, describe_table

if TYPE_CHECKING:
    import numpy.typing as npt

    Numbers = npt.NDArray[np.int64]
    Hashes = npt.NDArray[np.uint64]

BUCKET = 1024
"""Rows of a partition whose hashes are added up."""

_MOST_EXAMPLES = 10
_MOST_BUCKETS = 100
"""How many differing buckets of a queue are looked into row by row."""


class _Partition:
    """The rows of one partition: which were seen, how often too often, and the sums of their hashes.

    Attributes:
        lower: first row whose value is compared.
        differing: buckets that have other values in the queue than in the target.
    """

    def __init__(self, start: int, end: int) -> None:
        self.start, self.end, self.lower = start, end, end
        self._size = max(end - start, 0)
        self._seen = np.zeros(-(-self._size // 8), dtype=np.uint8)
        self.sums = self.no_sums()
        self.repeated = 0
        self.examples: list[int] = []
        self.differing: list[int] = []
        self.changed: set[int] = set()

    def no_sums(self) -> Hashes:
        """Return the sum of each bucket without rows."""
        return np.zeros(-(-self._size // BUCKET), dtype=np.uint64)

    def add_up(self, sums: Hashes, rows: Numbers, hashes: Hashes) -> None:
        """Add the hashes of rows to the sums of their buckets."""
        np.add.at(sums, (rows - self.start) // BUCKET, hashes)

    def add(self, rows: Numbers, hashes: Hashes) -> None:
        """Mark rows, all of them in the range."""
        self.add_up(self.sums, rows, hashes)
        unique, first = np.unique(rows - self.start, return_index=True)
        again = np.ones(len(rows), dtype=bool)
        again[first] = False
        bits = np.left_shift(1, unique % 8).astype(np.uint8)
        again[first[(self._seen[unique // 8] & bits) != 0]] = True
        np.bitwise_or.at(self._seen, unique // 8, bits)
        self.repeated += int(again.sum())
        self.examples += rows[again][: _MOST_EXAMPLES - len(self.examples)].tolist()

    def lost(self) -> Numbers:
        """Return the rows that were not seen."""
        holes = np.flatnonzero(self._seen != np.uint8(255))
        bits = np.unpackbits(self._seen[holes, None], axis=1, bitorder="little")
        places: Numbers = (holes[:, None] * 8 + np.arange(8))[bits == 0]
        rows: Numbers = places[places < self._size] + self.start
        return rows

    def found(self, queue: str, number: int) -> PartitionAudit:
        """Return what was found."""
        lost, changed = self.lost(), sorted(self.changed)
        return PartitionAudit(
            queue=queue,
            partition=number,
            start=self.start,
            end=self.end,
            lost=len(lost),
            repeated=self.repeated,
            changed=len(changed),
            compared_from=self.lower,
            unclear_ranges=max(len(self.differing) - _MOST_BUCKETS, 0),
            examples={
                "lost": tuple(lost[:_MOST_EXAMPLES].tolist()),
                "repeated": tuple(self.examples),
                "changed": tuple(changed[:_MOST_EXAMPLES]),
            },
        )


class _Queue:
    """One queue, and the rows of the target that came from it.

    Args:
        ends: first row that need not be there, by partition.
        start: first row that must be there, of every partition.
        own: columns of the target with the source.
    """

    def __init__(
        self, reader: RangeReader, path: str, ends: Mapping[int, int], start: int, own: Columns
    ) -> None:
        self.path = path
        self.compared: list[ColumnSchema] = []
        self.parts = {one: _Partition(start, end) for one, end in sorted(ends.items())}
        self.rows = self.newer = self.unknown = 0
        self._reader, self._own = reader, own
        self._info: TableInfo | None = None

    def compare_columns(self, target: TableInfo) -> None:
        """Compare the columns that queue and target have with equal types, from now on."""
        self._info = describe_table(self._reader.connection, self.path)
        types = {one.name: one.type for one in TableSchema.from_yt(self._info.schema).columns}
        self.compared = [
            column
            for column in TableSchema.from_yt(target.schema).columns
            if column.name not in self._own.names
            and not column.name.startswith("$")
            and types.get(column.name) == column.type
        ]

    def add(self, batch: pa.RecordBatch) -> None:
        """Mark rows of the target."""
        known = 0
        for part, here, rows, hashes in self._by_partition(batch):
            newer = int((here & (rows >= part.end)).sum())
            inside = here & (rows >= part.start) & (rows < part.end)
            part.add(rows[inside], hashes[inside])
            self.newer += newer
            known += newer + int(inside.sum())
        self.rows += batch.num_rows
        self.unknown += batch.num_rows - known

    def _by_partition(
        self, batch: pa.RecordBatch
    ) -> Iterator[tuple[_Partition, npt.NDArray[np.bool_], Numbers, Hashes]]:
        """Yield each partition, which rows of the target are from there, and all rows with their hashes."""
        partitions = _integers(batch.column(self._own.partition))
        rows, hashes = _integers(batch.column(self._own.row)), row_hashes(batch, self.compared)
        for one, part in self.parts.items():
            yield part, partitions == one, rows, hashes

    def differs(self) -> bool:
        """Read the queue, and return whether any bucket of rows has other values than in the target."""
        bounds = RemoteQueue(self._reader.connection, self.path).state().partitions
        for one, part in self.parts.items():
            lower = max(part.start, bounds[one].lower if one < len(bounds) else part.end)
            # A bucket that was trimmed in part cannot be compared as a whole.
            first = -(-(lower - part.start) // BUCKET) * BUCKET + part.start
            part.lower = min(first, part.end)
        if not self.compared:
            return False
        total = sum(part.end - part.lower for part in self.parts.values())
        done = 0
        for one, part in self.parts.items():
            sums = part.no_sums()
            for rows, hashes in self._read(one, part.lower, part.end):
                part.add_up(sums, rows, hashes)
                done += len(rows)
                self._reader.progress(self.path, done, total)
            differ = np.flatnonzero(sums != part.sums)
            first = -(-(part.lower - part.start) // BUCKET)
            part.differing = differ[differ >= first].tolist()
        return any(part.differing for part in self.parts.values())

    def _read(self, partition: int, first: int, end: int) -> Iterator[tuple[Numbers, Hashes]]:
        assert self._info is not None
        schema = placed(fields_of(self._info, [column.name for column in self.compared]))
        for batch in self._reader.rows(self._info, schema, partition, first, end):
            yield _integers(batch.column("$row_index")), row_hashes(batch, self.compared)

    def look_into(self, batches: Iterator[pa.RecordBatch]) -> None:
        """Find the rows of differing buckets with other values, in all rows of the target from this queue."""
        there: dict[_Partition, dict[int, int]] = {}
        for one, part in self.parts.items():
            values = there.setdefault(part, {})
            for bucket in part.differing[:_MOST_BUCKETS]:
                first = part.start + bucket * BUCKET
                for rows, hashes in self._read(one, first, min(first + BUCKET, part.end)):
                    values |= dict(zip(rows.tolist(), hashes.tolist(), strict=True))
        for batch in batches:
            for part, here, rows, hashes in self._by_partition(batch):
                buckets = (rows - part.start) // BUCKET
                wanted = here & np.isin(buckets, part.differing[:_MOST_BUCKETS])
                values = there[part]
                for row, value in zip(rows[wanted].tolist(), hashes[wanted].tolist(), strict=True):
                    if row < part.end and values.get(row) != value:
                        part.changed.add(row)

    def unproven(self, columns: Sequence[str]) -> Iterator[str]:
        """Say which values of these columns were not compared."""
        known = {column.name for column in self.compared}
        rest = [name for name in columns if name not in known]
        if rest:
            yield (
                f"the values of {', '.join(rest)}: {self.path} has no column of this name and type"
                if self._info
                else f"the values of {', '.join(rest)}: they were not compared"
            )
        for one, part in self.parts.items():
            if known and part.lower > part.start:
                yield (
                    f"the values of rows {part.start} to {part.lower - 1} of partition {one} of {self.path}: "
                    "some of them are trimmed"
                )


class Comparison:
    """One audit by source columns; raise `ConfigError` if they do not tell queues apart, or none was read."""

    def __init__(
        self,
        reader: RangeReader,
        info: TableInfo,
        entries: Sequence[LedgerRow],
        columns: Columns,
        start: int,
    ) -> None:
        self._reader, self._info, self._columns, self._entries = reader, info, columns, entries
        ends: dict[str, dict[int, int]] = {}
        for row in entries:
            for (_, path, *_), parts in row.entry.offsets.items():
                known = ends.setdefault(path, {})
                for partition, part in parts.items():
                    known[partition] = max(known.get(partition, 0), part.end)
        if not ends or (len(ends) > 1 and columns.queue is None):
            raise ConfigError(
                f"The queries of this target read {len(ends)} queues, and the columns do not say from which "
                "one a row came"
                if ends
                else "The queries of this target read no queue",
                remedy="Name the column with the path of the queue (include_queue_path=true of the source "
                "gives it). Or audit by digest, if the target was written with digest=True",
                target=info.path,
            )
        self._queues = {
            path: _Queue(reader, path, ends[path], start, columns) for path in sorted(ends)
        }

    def run(self, *, compare: bool) -> Audit:
        """Read the target, then the queues, and look into what differs."""
        queues = self._queues.values()
        if compare:
            for queue in queues:
                queue.compare_columns(self._info)
        count = 0
        for batch in self._target_rows():
            count += batch.num_rows
            for queue, rows in self._by_queue(batch):
                queue.add(rows)
        for queue in queues:
            if compare and queue.differs():
                again = (
                    rows
                    for batch in self._target_rows()
                    for one, rows in self._by_queue(batch)
                    if one is queue
                )
                queue.look_into(again)
        columns = [
            column.name
            for column in TableSchema.from_yt(self._info.schema).writable_columns
            if column.name not in self._columns.names
        ]
        return Audit(
            target=self._info.path,
            by=By.SOURCE,
            queries=tuple(row.entry.query_id for row in self._entries),
            modes=modes_of(self._entries),
            queues=tuple(self._queues),
            rows=count,
            newer=sum(queue.newer for queue in queues),
            unknown=count - sum(queue.rows - queue.unknown for queue in queues),
            compared=tuple({column.name: None for queue in queues for column in queue.compared}),
            partitions=tuple(
                part.found(path, one)
                for path, queue in self._queues.items()
                for one, part in queue.parts.items()
            ),
            unproven=tuple(text for queue in queues for text in queue.unproven(columns)),
        )

    def _by_queue(self, batch: pa.RecordBatch) -> Iterator[tuple[_Queue, pa.RecordBatch]]:
        if self._columns.queue is None:
            (queue,) = self._queues.values()
            yield queue, batch
            return
        paths = batch.column(self._columns.queue).cast(pa.binary())
        for path, queue in self._queues.items():
            yield queue, batch.filter(pc.equal(paths, pa.scalar(path.encode(), pa.binary())))

    def _target_rows(self) -> Iterator[pa.RecordBatch]:
        """Yield source and compared columns of all rows of the target, range by range."""
        queues = self._queues.values()
        compared = [column.name for queue in queues for column in queue.compared]
        schema = fields_of(self._info, list(dict.fromkeys([*self._columns.names, *compared])))
        if self._info.is_sorted:
            parts = (part for queue in queues for part in queue.parts.values())
            expected = sum(part.end - part.start for part in parts)
            return self._reader.keys(self._info, schema, expected)
        bounds = RemoteQueue(self._reader.connection, self._info.path).state().partitions
        return self._reader.tablets(self._info, schema, bounds)


def _integers(array: pa.Array) -> Numbers:
    """Return numbers; a row without one gets -1, which no queue has."""
    return np.asarray(array.fill_null(-1)).astype(np.int64)
