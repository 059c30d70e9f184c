"""The comparison of a target with its queues, by the columns that say where each row came from.

Every row of the queues up to the last commit must be there exactly once. Columns that queue and target have
in common are compared too, as far as the queue still has the rows.

Memory is one bit per row, and eight bytes per `BUCKET` rows, whatever the rows hold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from yt_exactly_once.codec.row_hash import added, combined, numbered, row_hashes
from yt_exactly_once.codec.schema import ColumnSchema, TableSchema
from yt_exactly_once.config import DeliveryMode
from yt_exactly_once.errors import ConfigError, ExactlyOnceError
from yt_exactly_once.operations.audit.by_digest import (
    half_written,
    letters,
    modes_of,
    waiting_letters,
)
from yt_exactly_once.operations.audit.found import Audit, By, PartitionAudit, SourceColumns
from yt_exactly_once.operations.audit.ranges import RangeReader, fields_of, placed
from yt_exactly_once.operations.ledgers import Entries, queue_paths
from yt_exactly_once.ytsaurus.browsing import attributes_of
from yt_exactly_once.ytsaurus.queues import RemoteQueue
from yt_exactly_once.ytsaurus.tables import TableInfo, describe_table

if TYPE_CHECKING:
    import numpy.typing as npt

    Numbers = npt.NDArray[np.int64]
    Hashes = npt.NDArray[np.uint64]

BUCKET = 1024
"""Rows of a partition whose hashes are added up."""

_MOST_EXAMPLES = 10
_MOST_LINKS = 100
_MOST_BUCKETS = 100
"""How many differing buckets of a queue are looked into row by row."""


class _Partition:
    """The rows of one partition: which were seen, how often too often, and the sums of their hashes.

    Attributes:
        start: first row that must be there.
        end: first row that need not be there.
        lower: first row whose value is compared.
        differing: buckets that have other values in the queue than in the target.
    """

    def __init__(self, number: int, start: int, end: int) -> None:
        self.number, self.start, self.end, self.lower = number, start, end, end
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

    def found(self, queue: str) -> PartitionAudit:
        """Return what was found."""
        holes = np.flatnonzero(self._seen != np.uint8(255))
        bits = np.unpackbits(self._seen[holes, None], axis=1, bitorder="little")
        unseen: Numbers = (holes[:, None] * 8 + np.arange(8))[bits == 0]
        lost, changed = unseen[unseen < self._size] + self.start, sorted(self.changed)
        return PartitionAudit(
            queue=queue,
            partition=self.number,
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


class Comparison:
    """One audit by source columns; `look` reads the entries of the target again.

    Raise `ConfigError` if the columns do not tell queues apart, or no queue was read.
    """

    def __init__(
        self,
        reader: RangeReader,
        info: TableInfo,
        entries: Entries,
        columns: SourceColumns,
        start: int,
        *,
        look: Callable[[], Entries],
        backfill: bool = False,
    ) -> None:
        self._look = look
        self._reader, self._info, self._own, self._entries = reader, info, columns, entries
        self._jobs = [row.entry for row in entries if row.entry.application and backfill]
        ends: dict[str, dict[int, int]] = {}
        firsts: dict[tuple[str, int], int] = {}
        paths = queue_paths(entries)
        self._names: dict[str, set[bytes]] = {}
        self._ids = {which: path for which, path in paths.items() if which != path}
        self._looked_up: set[bytes] = set()
        for row in entries:
            for (_, name, _, queue_id), offsets in row.entry.offsets.items():
                path = paths[queue_id or name]
                self._names.setdefault(path, set()).add(name.encode())
                known = ends.setdefault(path, {})
                for partition, offset in offsets.items():
                    end = offset.end if row.entry.is_complete else offset.start
                    known[partition] = max(known.get(partition, 0), end)
                    key = path, partition
                    firsts[key] = min(firsts.get(key, offset.first), offset.first)
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
        self._audited = {
            path: [
                # Rows before those that the queries have read are the jobs'.
                _Partition(one, max(start, firsts[path, one] if self._jobs else 0), end)
                for one, end in sorted(ends[path].items())
            ]
            for path in sorted(ends)
        }
        self._infos: dict[str, TableInfo] = {}
        self._compared: dict[str, list[ColumnSchema]] = {path: [] for path in self._audited}

    def run(self, *, compare: bool) -> Audit:
        """Read the target, then the queues, and look into what differs."""
        if compare:
            self._choose_columns()
        count = newer = known = of_jobs = digest = 0
        for batch in self._target_rows():
            count += batch.num_rows
            if self._jobs:
                rest = batch.filter(pc.is_null(batch.column(self._own.partition)))
                of_jobs += rest.num_rows
                if self._job_digest is not None:
                    digest = added(digest, row_hashes(rest, self._writable))
            for audited, rows, hashes in self._by_partition(batch):
                inside = (rows >= audited.start) & (rows < audited.end)
                audited.add(rows[inside], hashes[inside])
                later = int((rows >= audited.end).sum())
                newer += later
                known += later + int(inside.sum())
        for path in self._infos:
            self._read_queue(path)
        if newer and self._nobody_writes():
            known, newer = known - newer, 0
        kept = self._job_digest
        digests = ("", "") if kept is None else (f"{digest:016x}", f"{kept:016x}")
        audits = [(path, audited) for path, some in self._audited.items() for audited in some]
        if any(audited.differing for _, audited in audits):
            self._look_into(audits)
        return Audit(
            target=self._info.path,
            by=By.SOURCE,
            queries=tuple(row.entry.query_id for row in self._entries),
            modes=modes_of(self._entries),
            queues=tuple(self._audited),
            rows=count,
            newer=newer,
            unknown=count - known - of_jobs,
            job_rows=of_jobs,
            expected_job_rows=sum(job.tally.total_rows for job in self._jobs),
            digest=digests[0],
            expected_digest=digests[1],
            waiting=waiting_letters(self._entries),
            compared=tuple(self._compared_names()),
            partitions=tuple(audited.found(path) for path, audited in audits),
            unproven=tuple(self._unproven()),
        )

    def _nobody_writes(self) -> bool:
        """Whether no batch was committed since the start, and no row can be there before its batch is."""
        before, now = (
            {(row.ledger, row.entry.transaction_id) for row in rows}
            for rows in (self._entries, self._look())
        )
        return before == now and all(
            row.entry.mode == DeliveryMode.TRANSACTIONAL and row.entry.is_complete
            for row in self._entries
        )

    @property
    def _writable(self) -> Sequence[ColumnSchema]:
        return TableSchema.from_yt(self._info.schema).writable_columns

    @cached_property
    def _job_digest(self) -> int | None:
        """The digest of all rows of jobs; `None` without one."""
        kept = [job.tally.digest for job in self._jobs]
        known = [one.total for one in kept if one and one.from_start and not one.replaces]
        return combined(*known) if known and len(known) == len(kept) else None

    def _choose_columns(self) -> None:
        """Compare the columns that target and queues have with equal types."""
        for path in self._audited:
            info = self._infos[path] = describe_table(self._reader.connection, path)
            types = {one.name: one.type for one in TableSchema.from_yt(info.schema).columns}
            self._compared[path] = [
                column
                for column in TableSchema.from_yt(self._info.schema).columns
                if column.name not in self._own.names
                and not column.name.startswith("$")
                and types.get(column.name) == column.type
            ]

    def _compared_names(self) -> list[str]:
        return list(dict.fromkeys(one.name for some in self._compared.values() for one in some))

    def _target_rows(self) -> Iterator[pa.RecordBatch]:
        """Yield source and compared columns of all rows of the target, range by range."""
        more = [] if self._job_digest is None else [column.name for column in self._writable]
        names = dict.fromkeys([*self._own.names, *self._compared_names(), *more])
        schema = fields_of(self._info, list(names))
        if self._info.is_sorted:
            expected = sum(one.end - one.start for some in self._audited.values() for one in some)
            return self._reader.keys(self._info, schema, expected)
        bounds = RemoteQueue(self._reader.connection, self._info.path).state().partitions
        return self._reader.tablets(self._info, schema, bounds)

    def _by_partition(self, batch: pa.RecordBatch) -> Iterator[tuple[_Partition, Numbers, Hashes]]:
        """Yield the rows of the target that are from each partition, with their hashes."""
        if self._own.queue is not None:
            self._look_up_links(pc.unique(batch.column(self._own.queue).cast(pa.binary())))
        for path, audits in self._audited.items():
            here = batch
            if self._own.queue is not None:
                paths = batch.column(self._own.queue).cast(pa.binary())
                names = pa.array(sorted(self._names[path]), pa.binary())
                here = batch.filter(pc.is_in(paths, names))
            partitions = _integers(here.column(self._own.partition))
            rows = _integers(here.column(self._own.row))
            hashes = _hashes(here, rows, self._compared[path])
            for audited in audits:
                mine = partitions == audited.number
                yield audited, rows[mine], hashes[mine]

    def _look_up_links(self, found: pa.Array) -> None:
        """Take links to queues for their names: rows have the path that the source was given."""
        known = self._looked_up.union(*self._names.values(), [None])
        for name in [one for one in found.to_pylist() if one not in known]:
            if len(self._looked_up) == _MOST_LINKS:
                return
            self._looked_up.add(name)
            # Whatever else is in the column is no queue.
            with suppress(ExactlyOnceError):
                there = attributes_of(
                    self._reader.connection, name.decode("utf-8", "replace"), ["id"]
                )
                if there and (path := self._ids.get(str(there["id"]))) is not None:
                    self._names[path].add(name)

    def _read_queue(self, path: str) -> None:
        """Read a queue, and note the buckets of rows that have other values than in the target."""
        bounds = RemoteQueue(self._reader.connection, path).state().partitions
        audits = self._audited[path]
        for audited in audits:
            is_there = audited.number < len(bounds)
            lower = max(audited.start, bounds[audited.number].lower if is_there else audited.end)
            # A bucket that was trimmed in part cannot be compared as a whole.
            first = -(-(lower - audited.start) // BUCKET) * BUCKET + audited.start
            audited.lower = min(first, audited.end)
        if not self._compared[path]:
            return
        total, done = sum(audited.end - audited.lower for audited in audits), 0
        for audited in audits:
            sums = audited.no_sums()
            for rows, hashes in self._read(path, audited.number, audited.lower, audited.end):
                audited.add_up(sums, rows, hashes)
                done += len(rows)
                self._reader.progress(path, done, total)
            differ = np.flatnonzero(sums != audited.sums)
            first = -(-(audited.lower - audited.start) // BUCKET)
            audited.differing = differ[differ >= first].tolist()

    def _read(
        self, path: str, partition: int, first: int, end: int
    ) -> Iterator[tuple[Numbers, Hashes]]:
        info, columns = self._infos[path], self._compared[path]
        schema = placed(fields_of(info, [column.name for column in columns]))
        for batch in self._reader.rows(info, schema, partition, first, end):
            rows = _integers(batch.column("$row_index"))
            yield rows, _hashes(batch, rows, columns)

    def _look_into(self, audits: Sequence[tuple[str, _Partition]]) -> None:
        """Read the target again, and find the rows of differing buckets with other values."""
        there: dict[_Partition, dict[int, int]] = {}
        for path, audited in audits:
            values = there.setdefault(audited, {})
            for bucket in audited.differing[:_MOST_BUCKETS]:
                first = audited.start + bucket * BUCKET
                end = min(first + BUCKET, audited.end)
                for rows, hashes in self._read(path, audited.number, first, end):
                    values |= dict(zip(rows.tolist(), hashes.tolist(), strict=True))
        for batch in self._target_rows():
            for audited, rows, hashes in self._by_partition(batch):
                buckets = (rows - audited.start) // BUCKET
                wanted = np.isin(buckets, audited.differing[:_MOST_BUCKETS])
                values = there[audited]
                for row, value in zip(rows[wanted].tolist(), hashes[wanted].tolist(), strict=True):
                    if row < audited.end and values.get(row) != value:
                        audited.changed.add(row)

    def _unproven(self) -> Iterator[str]:
        """Say which values were not compared."""
        yield from letters(waiting_letters(self._entries))
        yield from half_written(self._entries)
        if self._jobs and self._job_digest is None:
            yield "the values of the rows of jobs: the ledger has no digest of them"
        columns = self._writable
        for path, audits in self._audited.items():
            known = {column.name for column in self._compared[path]}
            rest = [one.name for one in columns if one.name not in known.union(self._own.names)]
            if rest:
                yield (
                    f"the values of {', '.join(rest)}: {path} has no column of this name and type"
                    if self._infos
                    else f"the values of {', '.join(rest)}: they were not compared"
                )
            for audited in audits:
                if known and audited.lower > audited.start:
                    yield (
                        f"the values of rows {audited.start} to {audited.lower - 1} of partition "
                        f"{audited.number} of {path}: some of them are trimmed"
                    )


def _hashes(batch: pa.RecordBatch, rows: Numbers, columns: Sequence[ColumnSchema]) -> Hashes:
    """Return hashes of rows with their numbers: a sum must change where rows have the values of others."""
    return numbered(row_hashes(batch, columns), rows, 0)


def _integers(array: pa.Array) -> Numbers:
    """Return numbers; a row without one gets -1, which no queue has."""
    return np.asarray(array.fill_null(-1)).astype(np.int64)
