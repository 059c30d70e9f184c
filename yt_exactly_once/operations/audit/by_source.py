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


class _Marks:
    """The rows of one partition: which were seen, how often too often, and the sums of their hashes."""

    def __init__(self, start: int, end: int) -> None:
        self.start, self.end = start, end
        count = max(end - start, 0)
        self.seen = np.zeros(-(-count // 8), dtype=np.uint8)
        self.sums = np.zeros(-(-count // BUCKET), dtype=np.uint64)
        self.repeated = 0
        self.examples: list[int] = []

    def add(self, rows: Numbers, hashes: Hashes) -> None:
        """Mark rows, all of them in the range."""
        places = rows - self.start
        np.add.at(self.sums, places // BUCKET, hashes)
        unique, first = np.unique(places, return_index=True)
        again = np.ones(len(places), dtype=bool)
        again[first] = False
        bits = np.left_shift(1, unique % 8).astype(np.uint8)
        known = (self.seen[unique // 8] & bits) != 0
        again[first[known]] = True
        np.bitwise_or.at(self.seen, unique // 8, bits)
        self.repeated += int(again.sum())
        self.examples += rows[again][: _MOST_EXAMPLES - len(self.examples)].tolist()

    def lost(self) -> Numbers:
        """Return the rows that were not seen."""
        if not len(self.seen) or ((self.seen[:-1] == np.uint8(255)).all() and self._last_is_full()):
            return np.array([], dtype=np.int64)
        seen = np.unpackbits(self.seen, bitorder="little")[: self.end - self.start]
        return np.flatnonzero(seen == 0) + self.start

    def _last_is_full(self) -> bool:
        rest = (self.end - self.start) % 8
        return bool(self.seen[-1] == (255 if rest == 0 else (1 << rest) - 1))


class _QueueMarks:
    """The rows of the target that came from one queue.

    Args:
        ends: first row that need not be there, by partition.
        start: first row that must be there, of every partition.
    """

    def __init__(self, reader: RangeReader, path: str, ends: Mapping[int, int], start: int) -> None:
        self.path = path
        self.compared: list[ColumnSchema] = []
        self.rows = self.newer = self.unknown = 0
        self._reader = reader
        self._marks = {one: _Marks(start, end) for one, end in sorted(ends.items())}
        self._differing: dict[int, list[int]] = {}
        self._changed: dict[int, list[int]] = {}
        self._lower: dict[int, int] = {}

    def compare_columns(self, target: TableInfo, own: Columns) -> None:
        """Compare the columns that queue and target have with equal types, from now on."""
        self._info = describe_table(self._reader.connection, self.path)
        types = {
            column.name: column.type for column in TableSchema.from_yt(self._info.schema).columns
        }
        self.compared = [
            column
            for column in TableSchema.from_yt(target.schema).columns
            if column.name not in (own.partition, own.row, own.queue)
            and not column.name.startswith("$")
            and types.get(column.name) == column.type
        ]

    @property
    def expected(self) -> int:
        """About how many rows there are."""
        return sum(marks.end - marks.start for marks in self._marks.values())

    def add(self, batch: pa.RecordBatch, own: Columns) -> None:
        """Mark rows of the target."""
        partitions, rows = _integers(batch.column(own.partition)), _integers(batch.column(own.row))
        hashes = row_hashes(batch, self.compared)
        self.rows += len(rows)
        known = np.zeros(len(rows), dtype=bool)
        for one, marks in self._marks.items():
            here = partitions == one
            newer = here & (rows >= marks.end)
            inside = here & (rows >= marks.start) & (rows < marks.end)
            self.newer += int(newer.sum())
            known |= newer | inside
            marks.add(rows[inside], hashes[inside])
        self.unknown += int((~known).sum())

    def differs(self) -> bool:
        """Read the queue, and return whether any bucket of rows has other values than in the target."""
        bounds = RemoteQueue(self._reader.connection, self.path).state().partitions
        self._lower = {
            one: max(marks.start, bounds[one].lower if one < len(bounds) else marks.end)
            for one, marks in self._marks.items()
        }
        total = sum(max(m.end - self._lower[one], 0) for one, m in self._marks.items())
        done = 0
        for one, marks in self._marks.items():
            sums = np.zeros_like(marks.sums)
            # A bucket that was trimmed in part cannot be compared as a whole.
            first = -(-(self._lower[one] - marks.start) // BUCKET) * BUCKET + marks.start
            self._lower[one] = min(first, marks.end)
            if not self.compared:
                continue
            for rows, hashes in self._of_queue(one, first, marks.end):
                np.add.at(sums, (rows - marks.start) // BUCKET, hashes)
                done += len(rows)
                self._reader.progress(self.path, done, total)
            differ = np.flatnonzero(sums != marks.sums)
            found = differ[differ >= (first - marks.start) // BUCKET].tolist()
            if found:
                self._differing[one] = found
        return bool(self._differing)

    def _of_queue(self, partition: int, first: int, end: int) -> Iterator[tuple[Numbers, Hashes]]:
        schema = placed(fields_of(self._info, [column.name for column in self.compared]))
        for batch in self._reader.rows(self._info, schema, partition, first, end):
            yield _integers(batch.column("$row_index")), row_hashes(batch, self.compared)

    def look_into(self, batches: Iterator[pa.RecordBatch], own: Columns) -> None:
        """Find the rows of differing buckets that have other values.

        Args:
            batches: the rows of the target that came from this queue, again.
            own: columns of the target with the source.
        """
        wanted = {
            (one, bucket)
            for one, buckets in self._differing.items()
            for bucket in buckets[:_MOST_BUCKETS]
        }
        there: dict[tuple[int, int], int] = {}
        for one, bucket in sorted(wanted):
            marks = self._marks[one]
            first = marks.start + bucket * BUCKET
            for found in self._of_queue(one, first, min(first + BUCKET, marks.end)):
                there |= {(one, int(row)): int(value) for row, value in zip(*found, strict=True)}
        for batch in batches:
            partitions = _integers(batch.column(own.partition))
            rows, hashes = _integers(batch.column(own.row)), row_hashes(batch, self.compared)
            for one, marks in self._marks.items():
                inside = (partitions == one) & (rows >= marks.start) & (rows < marks.end)
                buckets = (rows[inside] - marks.start) // BUCKET
                for row, bucket, value in zip(rows[inside], buckets, hashes[inside], strict=True):
                    if (one, int(bucket)) in wanted and there.get((one, int(row))) != int(value):
                        self._changed.setdefault(one, []).append(int(row))

    def unproven(self, columns: Sequence[str]) -> Iterator[str]:
        """Say which values of these columns were not compared."""
        known = {column.name for column in self.compared}
        rest = [name for name in columns if name not in known]
        if rest:
            yield (
                f"the values of {', '.join(rest)}: {self.path} has no column of this name and type"
                if known or self._lower
                else f"the values of {', '.join(rest)}: they were not compared"
            )
        for one, lower in self._lower.items():
            first = self._marks[one].start
            if known and lower > first:
                yield (
                    f"the values of rows {first} to {lower - 1} of partition {one} of {self.path}: some of "
                    "them are trimmed"
                )

    def found(self) -> Iterator[PartitionAudit]:
        """Yield what was found in each partition."""
        for one, marks in self._marks.items():
            lost, different = marks.lost(), sorted(set(self._changed.get(one, ())))
            yield PartitionAudit(
                queue=self.path,
                partition=one,
                start=marks.start,
                end=marks.end,
                lost=len(lost),
                repeated=marks.repeated,
                changed=len(different),
                compared_from=self._lower.get(one, marks.end),
                unclear_ranges=max(len(self._differing.get(one, ())) - _MOST_BUCKETS, 0),
                examples={
                    "lost": tuple(lost[:_MOST_EXAMPLES].tolist()),
                    "repeated": tuple(marks.examples),
                    "changed": tuple(different[:_MOST_EXAMPLES]),
                },
            )


class Comparison:
    """One audit by source columns.

    Args:
        columns: of the target with the source of each row.
        start: first row of every partition that must be there.

    Raises:
        ConfigError: queries have read no queue, or several that the columns do not tell apart.
    """

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
        self._queues = {path: _QueueMarks(reader, path, ends[path], start) for path in sorted(ends)}
        self._rows = self._unknown = 0

    def run(self, *, compare: bool) -> Audit:
        """Read the target, then the queues, and look into what differs."""
        queues = self._queues.values()
        if compare:
            for queue in queues:
                queue.compare_columns(self._info, self._columns)
        for batch in self._target_rows():
            self._rows += batch.num_rows
            for queue, rows in self._by_queue(batch):
                queue.add(rows, self._columns)
        for queue in queues:
            if compare and queue.differs():
                again = (
                    rows
                    for batch in self._target_rows()
                    for one, rows in self._by_queue(batch)
                    if one is queue
                )
                queue.look_into(again, self._columns)
        own = {self._columns.partition, self._columns.row, self._columns.queue}
        columns = [
            column.name
            for column in TableSchema.from_yt(self._info.schema).writable_columns
            if column.name not in own
        ]
        return Audit(
            target=self._info.path,
            by=By.SOURCE,
            queries=tuple(row.entry.query_id for row in self._entries),
            modes=modes_of(self._entries),
            queues=tuple(self._queues),
            rows=self._rows,
            newer=sum(queue.newer for queue in queues),
            unknown=sum(queue.unknown for queue in queues)
            + self._rows
            - sum(queue.rows for queue in queues),
            compared=tuple({column.name: None for queue in queues for column in queue.compared}),
            partitions=tuple(part for queue in queues for part in queue.found()),
            unproven=tuple(text for queue in queues for text in queue.unproven(columns)),
        )

    def _by_queue(self, batch: pa.RecordBatch) -> Iterator[tuple[_QueueMarks, pa.RecordBatch]]:
        if self._columns.queue is None:
            (queue,) = self._queues.values()
            yield queue, batch
            return
        paths = batch.column(self._columns.queue).cast(pa.binary())
        for path, queue in self._queues.items():
            yield queue, batch.filter(pc.equal(paths, pa.scalar(path.encode(), pa.binary())))

    def _target_rows(self) -> Iterator[pa.RecordBatch]:
        """Yield source and compared columns of all rows of the target, range by range."""
        own = self._columns
        names = [own.partition, own.row, *([own.queue] if own.queue else [])]
        names += [column.name for queue in self._queues.values() for column in queue.compared]
        schema = fields_of(self._info, list(dict.fromkeys(names)))
        if self._info.is_sorted:
            expected = sum(queue.expected for queue in self._queues.values())
            return self._reader.keys(self._info, schema, expected)
        bounds = RemoteQueue(self._reader.connection, self._info.path).state().partitions
        return self._reader.tablets(self._info, schema, bounds)


def _integers(array: pa.Array) -> Numbers:
    """Return numbers; a row without one gets -1, which no queue has."""
    return np.asarray(array.fill_null(-1)).astype(np.int64)
