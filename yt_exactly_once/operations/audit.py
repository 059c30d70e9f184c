"""The proof that a target has every row of a queue once, with its values.

It takes two columns of the target that say where a row came from: its partition and its index in the queue.
Then every row up to the last commit must be there exactly once. Columns that queue and target have in common
are compared too, as far as the queue still has the rows. A target without such columns can only be counted.

Memory is one bit per row, and eight bytes per `BUCKET` rows, whatever the rows hold.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from yt_exactly_once.codec.row_hash import row_hashes
from yt_exactly_once.codec.rows import decode
from yt_exactly_once.codec.schema import (
    SOURCE_ROW_COLUMN,
    SOURCE_TABLET_COLUMN,
    TableSchema,
    arrow_schema_of,
    pulled_field,
)
from yt_exactly_once.config import check_path, check_positive
from yt_exactly_once.errors import ConfigError, LedgerError
from yt_exactly_once.operations.ledgers import find_ledgers, read_ledger
from yt_exactly_once.ytsaurus.browsing import selected
from yt_exactly_once.ytsaurus.queues import RemoteQueue
from yt_exactly_once.ytsaurus.tables import describe_table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import numpy.typing as npt

    from yt_exactly_once.codec.schema import ColumnSchema
    from yt_exactly_once.operations.ledgers import LedgerRow
    from yt_exactly_once.ytsaurus.client import Connection
    from yt_exactly_once.ytsaurus.tables import TableInfo

    Numbers = npt.NDArray[np.int64]
    Hashes = npt.NDArray[np.uint64]

BUCKET = 1024
"""Rows of a partition whose hashes are added up."""

ROWS_PER_READ = 100_000
"""Default size of a range that is read with one request."""

_MOST_EXAMPLES = 10
_MOST_BUCKETS = 100
"""How many differing buckets are looked into row by row."""


@dataclass(frozen=True)
class Columns:
    """Where a target keeps the source of its rows.

    Attributes:
        partition: column with the partition of the queue.
        row: column with the index of the row in that partition.
    """

    partition: str = SOURCE_TABLET_COLUMN
    row: str = SOURCE_ROW_COLUMN


@dataclass(frozen=True)
class PartitionAudit:
    """What was found in one partition of the queue.

    Attributes:
        partition: index of the partition.
        start: first row that must be there.
        end: first row that need not be there.
        lost: rows that are not there.
        repeated: copies of rows beyond the first.
        changed: rows with another value than in the queue.
        compared_from: from which row on values were compared; the queue has trimmed earlier ones.
        unclear_ranges: ranges of `BUCKET` rows that differ, beyond those that were looked into row by row.
        examples: some of the lost, repeated and changed rows.
    """

    partition: int
    start: int
    end: int
    lost: int
    repeated: int
    changed: int
    compared_from: int
    unclear_ranges: int
    examples: Mapping[str, tuple[int, ...]]


@dataclass(frozen=True)
class Audit:
    """What an audit found.

    Attributes:
        target: path of the target.
        queue: path of the queue; empty if rows were only counted.
        queries: queries that have written, as ledger entries say.
        rows: rows of the target that were looked at.
        newer: rows beyond the last commit that was known at the start; a query was running.
        unknown: rows whose source is not in the queue, or before the start.
        compared: columns whose values were compared.
        partitions: by partition of the queue; empty if rows were only counted.
        expected_rows: rows that the ledger accounts for, if rows were only counted.
    """

    target: str
    queue: str
    queries: tuple[str, ...]
    rows: int
    newer: int = 0
    unknown: int = 0
    compared: tuple[str, ...] = ()
    partitions: tuple[PartitionAudit, ...] = field(default=())
    expected_rows: int | None = None

    @property
    def exact(self) -> bool:
        """Whether nothing is lost, repeated, changed or unknown."""
        if self.expected_rows is not None:
            return self.rows == self.expected_rows
        return not self.unknown and not any(
            part.lost or part.repeated or part.changed or part.unclear_ranges
            for part in self.partitions
        )

    def to_json(self) -> dict[str, Any]:
        """Return everything, for programs."""
        return {**asdict(self), "exact": self.exact}


def audit(
    connection: Connection,
    target: str,
    *,
    columns: Columns | None = None,
    ledger: str | None = None,
    start: int = 0,
    compare: bool = True,
    rows_per_read: int = ROWS_PER_READ,
    progress: Callable[[str, int, int], None] = lambda _what, _done, _total: None,
) -> Audit:
    """Prove that a target has every committed row of its queue exactly once.

    The query may run meanwhile: what it commits after the start of the audit is not judged.

    Args:
        connection: the cluster.
        target: path of the target, which one-to-one queries with one queue have written.
        columns: where the target has the source of its rows; default: the service columns of the source, if
            the target has them. Without such columns rows are only counted.
        ledger: path of the ledger; default: the one beside the target.
        start: first row of every partition that the queries have read.
        compare: whether values are compared too; it reads the queue.
        rows_per_read: size of a range that is read with one request.
        progress: called with what is read, and how many of how many rows are done.

    Raises:
        ConfigError: an argument is impossible, or queries have read several queues.
        LedgerError: there is no ledger, or no entry of the target.
    """
    check_path(target, "target")
    check_positive(rows_per_read, "rows_per_read")
    info = describe_table(connection, target)
    info.require_mounted()
    (path,) = find_ledgers(connection, [ledger or target])
    entries = [row for row in read_ledger(connection, path) if row.entry.target == target]
    if not entries:
        raise LedgerError(
            "The ledger has no entry of this target",
            remedy="Check the paths",
            path=path,
            target=target,
        )
    names = {column["name"] for column in info.schema}
    if columns is None and not {SOURCE_TABLET_COLUMN, SOURCE_ROW_COLUMN} <= names:
        return _counted(connection, info, entries)
    chosen = columns or Columns()
    missing = [name for name in (chosen.partition, chosen.row) if name not in names]
    if missing:
        raise ConfigError(
            f"The target has no column {', '.join(missing)}",
            remedy="Name the columns with the partition and the index of the row in the queue",
            target=target,
        )
    return _Comparison(connection, info, entries, chosen, start, rows_per_read, progress).run(
        compare=compare
    )


def _counted(connection: Connection, info: TableInfo, entries: Sequence[LedgerRow]) -> Audit:
    """Compare the number of rows with what the ledger accounts for."""
    tallies = [row.entry.tallies.get(info.path) for row in entries]
    if info.is_sorted or not all(tally is not None and tally.from_start for tally in tallies):
        reason = (
            "the target is sorted, and later rows replace earlier ones"
            if info.is_sorted
            else "the ledger was begun by an older version, which did not count"
        )
        raise ConfigError(
            f"Nothing can be proven without the source of each row: {reason}",
            remedy="Name the columns with the partition and the index of the row in the queue "
            "(include_service_columns=true of the source gives them)",
            target=info.path,
        )
    bounds = RemoteQueue(connection, info.path).state().partitions
    return Audit(
        target=info.path,
        queue="",
        queries=tuple(row.entry.query_id for row in entries),
        rows=sum(bound.upper for bound in bounds),
        expected_rows=sum(tally.total_rows for tally in tallies if tally is not None),
    )


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


class _Comparison:
    """One audit by source columns."""

    def __init__(
        self,
        connection: Connection,
        info: TableInfo,
        entries: Sequence[LedgerRow],
        columns: Columns,
        start: int,
        rows_per_read: int,
        progress: Callable[[str, int, int], None],
    ) -> None:
        self._connection, self._info, self._columns = connection, info, columns
        self._size, self._progress = rows_per_read, progress
        self._queries = tuple(row.entry.query_id for row in entries)
        queues = {key[1] for row in entries for key in row.entry.offsets}
        if len(queues) != 1:
            raise ConfigError(
                f"The queries of this target read {len(queues)} queues",
                remedy="An audit by source columns is for targets that are written from one queue",
                target=info.path,
            )
        (self._queue,) = queues
        ends: dict[int, int] = {}
        for row in entries:
            for parts in row.entry.offsets.values():
                for partition, part in parts.items():
                    ends[partition] = max(ends.get(partition, 0), part.end)
        self._marks = {one: _Marks(start, end) for one, end in sorted(ends.items())}
        self._rows = self._newer = self._unknown = 0

    def run(self, *, compare: bool) -> Audit:
        """Read the target, then the queue, and look into what differs."""
        queue = describe_table(self._connection, self._queue)
        compared = self._common(queue) if compare else []
        for partitions, rows, hashes in self._target_rows(compared):
            self._mark(partitions, rows, hashes)
        found, lower = self._differing(queue, compared) if compare else ({}, {})
        changed = self._changed(queue, compared, found) if found else {}
        parts = tuple(
            self._partition(one, marks, found.get(one, []), changed.get(one), lower.get(one))
            for one, marks in self._marks.items()
        )
        return Audit(
            target=self._info.path,
            queue=self._queue,
            queries=self._queries,
            rows=self._rows,
            newer=self._newer,
            unknown=self._unknown,
            compared=tuple(compared),
            partitions=parts,
        )

    def _common(self, queue: TableInfo) -> list[str]:
        """Return the columns of values that both tables have, with equal types."""
        own = {self._columns.partition, self._columns.row}
        types = [
            {column.name: column.type for column in TableSchema.from_yt(info.schema).columns}
            for info in (queue, self._info)
        ]
        return [
            name
            for name, kind in types[0].items()
            if name not in own and not name.startswith("$") and types[1].get(name) == kind
        ]

    def _hashed(self, names: Sequence[str]) -> list[ColumnSchema]:
        columns = TableSchema.from_yt(self._info.schema).columns
        return [column for column in columns if column.name in names]

    def _mark(self, partitions: Numbers, rows: Numbers, hashes: Hashes) -> None:
        self._rows += len(rows)
        known = np.zeros(len(rows), dtype=bool)
        for one, marks in self._marks.items():
            here = partitions == one
            newer = here & (rows >= marks.end)
            inside = here & (rows >= marks.start) & (rows < marks.end)
            self._newer += int(newer.sum())
            known |= newer | inside
            marks.add(rows[inside], hashes[inside])
        self._unknown += int((~known).sum())

    def _target_rows(self, compared: Sequence[str]) -> Iterator[tuple[Numbers, Numbers, Hashes]]:
        """Yield source and hash of all rows of the target, range by range."""
        own = [self._columns.partition, self._columns.row]
        schema = _fields(self._info, [*own, *compared])
        for batch in self._ranges(self._info, schema):
            partitions, rows = (_integers(batch.column(name)) for name in own)
            yield partitions, rows, row_hashes(batch, self._hashed(compared))

    def _ranges(self, info: TableInfo, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        if info.is_sorted:
            yield from self._by_key(info, schema)
            return
        bounds = RemoteQueue(self._connection, info.path).state().partitions
        total = sum(bound.upper - bound.lower for bound in bounds)
        done = 0
        for tablet, bound in enumerate(bounds):
            for first in range(bound.lower, bound.upper, self._size):
                last = min(first + self._size, bound.upper)
                yield self._read(info, schema, tablet, first, last)
                done += last - first
                self._progress(info.path, done, total)

    def _read(
        self, info: TableInfo, schema: pa.Schema, tablet: int, first: int, last: int
    ) -> pa.RecordBatch:
        query = (
            f"{_listed(schema)} from [{info.path}] where [$tablet_index] = {tablet} "
            f"and [$row_index] >= {first} and [$row_index] < {last}"
        )
        return decode(selected(self._connection, query, limit=last - first), schema)

    def _by_key(self, info: TableInfo, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        keys = [column["name"] for column in info.schema if column.get("sort_order")]
        with_keys = _fields(info, list(dict.fromkeys([*keys, *schema.names])))
        names = ", ".join(f"[{name}]" for name in keys)
        after, done = "", 0
        while True:
            query = f"{_listed(with_keys)} from [{info.path}]{after} order by {names}"
            batch = decode(selected(self._connection, query, limit=self._size), with_keys)
            if batch.num_rows:
                yield batch
            done += batch.num_rows
            self._progress(
                info.path, done, max(done, sum(m.end - m.start for m in self._marks.values()))
            )
            if batch.num_rows < self._size:
                return
            last = [_literal(batch.column(name)[-1].as_py(), info.path) for name in keys]
            after = f" where ({names}) > ({', '.join(last)})"

    def _differing(
        self, queue: TableInfo, compared: Sequence[str]
    ) -> tuple[dict[int, list[int]], dict[int, int]]:
        """Return the buckets whose sums differ from those of the queue, and where comparing begins."""
        schema = _fields(queue, compared) if compared else None
        bounds = RemoteQueue(self._connection, self._queue).state().partitions
        lower = {
            one: max(marks.start, bounds[one].lower if one < len(bounds) else marks.end)
            for one, marks in self._marks.items()
        }
        total, done = sum(max(m.end - lower[one], 0) for one, m in self._marks.items()), 0
        found: dict[int, list[int]] = {}
        for one, marks in self._marks.items():
            sums = np.zeros_like(marks.sums)
            # A bucket that was trimmed in part cannot be compared as a whole.
            first = -(-(lower[one] - marks.start) // BUCKET) * BUCKET + marks.start
            lower[one] = min(first, marks.end)
            for begin in range(first, marks.end, self._size):
                last = min(begin + self._size, marks.end)
                if schema is not None:
                    batch = self._read(queue, _placed(schema), one, begin, last)
                    rows = _integers(batch.column("$row_index")) - marks.start
                    np.add.at(sums, rows // BUCKET, row_hashes(batch, self._hashed(compared)))
                done += last - begin
                self._progress(self._queue, done, total)
            differ = np.flatnonzero(sums != marks.sums)
            found[one] = differ[differ >= (first - marks.start) // BUCKET].tolist()
        return {one: buckets for one, buckets in found.items() if buckets}, lower

    def _changed(
        self, queue: TableInfo, compared: Sequence[str], found: Mapping[int, Sequence[int]]
    ) -> dict[int, list[int]]:
        """Return the rows of differing buckets that have other values, by partition."""
        wanted = {
            (one, bucket) for one, buckets in found.items() for bucket in buckets[:_MOST_BUCKETS]
        }
        there: dict[tuple[int, int], int] = {}
        for one, bucket in sorted(wanted):
            marks = self._marks[one]
            first = marks.start + bucket * BUCKET
            last = min(first + BUCKET, marks.end)
            batch = self._read(queue, _placed(_fields(queue, compared)), one, first, last)
            rows, hashes = (
                _integers(batch.column("$row_index")),
                row_hashes(batch, self._hashed(compared)),
            )
            there |= {(one, int(row)): int(value) for row, value in zip(rows, hashes, strict=True)}
        changed: dict[int, list[int]] = {}
        for partitions, rows, hashes in self._target_rows(compared):
            for one, marks in self._marks.items():
                inside = (partitions == one) & (rows >= marks.start) & (rows < marks.end)
                buckets = (rows[inside] - marks.start) // BUCKET
                for row, bucket, value in zip(rows[inside], buckets, hashes[inside], strict=True):
                    if (one, int(bucket)) in wanted and there.get((one, int(row))) != int(value):
                        changed.setdefault(one, []).append(int(row))
        return changed

    def _partition(
        self,
        one: int,
        marks: _Marks,
        buckets: Sequence[int],
        changed: Sequence[int] | None,
        lower: int | None,
    ) -> PartitionAudit:
        lost, different = marks.lost(), sorted(set(changed or ()))
        return PartitionAudit(
            partition=one,
            start=marks.start,
            end=marks.end,
            lost=len(lost),
            repeated=marks.repeated,
            changed=len(different),
            compared_from=marks.end if lower is None else lower,
            unclear_ranges=max(len(buckets) - _MOST_BUCKETS, 0),
            examples={
                "lost": tuple(lost[:_MOST_EXAMPLES].tolist()),
                "repeated": tuple(marks.examples),
                "changed": tuple(different[:_MOST_EXAMPLES]),
            },
        )


def _fields(info: TableInfo, names: Sequence[str]) -> pa.Schema:
    by_name = {column["name"]: column for column in info.schema}
    table = TableSchema.from_yt([{**by_name[name]} for name in names])
    return arrow_schema_of(table, binary_strings=True)


def _placed(schema: pa.Schema) -> pa.Schema:
    return schema.insert(0, pulled_field("$row_index", pa.int64(), "$row_index"))


def _listed(schema: pa.Schema) -> str:
    return ", ".join(f"[{name}]" for name in schema.names)


def _integers(array: pa.Array) -> Numbers:
    """Return numbers; a row without one gets -1, which no queue has."""
    return np.asarray(array.fill_null(-1)).astype(np.int64)


def _literal(value: Any, path: str) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, bytes | str):
        text = value if isinstance(value, bytes) else value.encode()
        return '"' + "".join(f"\\x{byte:02x}" for byte in text) + '"'
    raise ConfigError(
        "The table has keys that cannot be read in ranges: nulls, or values that are neither numbers nor "
        "strings",
        remedy="Audit a target with other keys, or an ordered one",
        path=path,
    )
