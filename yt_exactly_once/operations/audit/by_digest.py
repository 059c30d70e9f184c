"""The comparison of a target with what the ledger keeps of its rows: their number, and their digest.

It needs no column that says where a row came from, and no queue. What it finds it cannot place: a digest says
that rows differ, not which.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from yt_exactly_once.codec.row_hash import added, combined, row_hashes
from yt_exactly_once.codec.schema import ColumnSchema, TableSchema
from yt_exactly_once.commit.entry import LETTERS_PREFIX, LedgerEntry
from yt_exactly_once.commit.tally import RowDigest
from yt_exactly_once.errors import UnprovableError
from yt_exactly_once.operations.audit.found import Audit, By
from yt_exactly_once.operations.audit.ranges import RangeReader, fields_of
from yt_exactly_once.operations.ledgers import Entries, overlaps_and_gaps
from yt_exactly_once.ytsaurus.queues import PartitionBounds, RemoteQueue
from yt_exactly_once.ytsaurus.tables import TableInfo

if TYPE_CHECKING:
    import pyarrow as pa


LOOKS = 10
"""How often the ledger and the target are looked at together, until they agree."""

PAUSE_SECONDS = 0.5
"""Between two looks."""

_STOP = "Stop the query, or audit while it has nothing to do"


@dataclass
class Totals:
    """One audit by digest or by count; `look` reads the entries of the target again."""

    reader: RangeReader
    info: TableInfo
    entries: Entries
    look: Callable[[], Entries]
    backfill: bool = False

    def by_digest(self) -> Audit:
        """Compare the target with the digests of its ledger; or raise `UnprovableError`."""
        digests = self._digests()
        if any(digest.replaces for digest in digests):
            return self._replaced()
        if not all(digest.from_start for digest in digests):
            raise self._unprovable(
                "The digest does not cover the first rows of this target: it was switched on later, or off "
                "for some batches",
                remedy="Count the rows: --by count. To compare values, write a new target with digest=True "
                "from its first batch, or keep the source of each row in it (include_service_columns=true)",
            )
        if self.info.is_sorted:
            return self._upserted()
        bounds = self._settled()
        trimmed = sum(bound.lower for bound in bounds)
        if trimmed:
            raise self._unprovable(
                f"{trimmed} rows of the target were trimmed, and the digest covers them too",
                remedy="Audit before rows are trimmed, or compare only the number of rows: --by count",
            )
        return self._of_all(*self._read(self.reader.tablets(self.info, self._schema, bounds)))

    def by_count(self) -> Audit:
        """Compare the number of rows with that of the ledger; raise `UnprovableError` if it is sorted."""
        if self.info.is_sorted:
            raise self._unprovable(
                "The number of rows proves nothing: the target is sorted, and later rows replace earlier "
                "ones",
                remedy="Name the columns with the partition and the index of the row in the queue "
                "(include_service_columns=true of the source gives them), or write with digest=True",
            )
        return self._of_all(sum(bound.upper for bound in self._settled()), None)

    def _upserted(self) -> Audit:
        """Compare a sorted target; it proves something only if no row has replaced another."""
        audit = self._of_all(*self._read_sorted())
        if audit.rows < self._total:
            raise self._unprovable(
                f"The target has {audit.rows} rows, and {self._total} were written: later rows have replaced "
                "earlier ones, or rows are lost. A digest of all written rows cannot tell which",
                remedy="Keep the source of each row in the target (include_service_columns=true). Only a "
                "sorted target where every key is written once, or one with write='replace', can be audited "
                "by digest",
            )
        return audit

    def _replaced(self) -> Audit:
        """Compare a target that holds the rows of the last batch and no others."""
        if len(self.entries) > 1:
            entries = self.entries
            raise self._unprovable(
                f"{len(entries)} queries have written this target, and one replaces all of its rows",
                remedy="Remove the entries of queries that are gone: yt-exactly-once ledger prune "
                f"{entries[0].ledger} --query ID --yes",
            )
        rows, digest = self._read_sorted()
        ((row,), (kept,)) = self.entries, self._digests()
        return self._found(rows, row.entry.tally.rows, digest, kept.batch)

    def _read_sorted(self) -> tuple[int, int]:
        found = self._read(self.reader.keys(self.info, self._schema, self._total))
        before, self.entries = self._version, self.look()
        if self._version != before:
            what = "The query has written while the sorted target was read"
            raise self._unprovable(what, remedy=_STOP)
        return found

    def _settled(self) -> list[PartitionBounds]:
        """Return the bounds of the tablets that hold the rows of the entries and no others.

        The ledger and the target are read one after the other, and a query may commit in between. Where both
        stay as they are and still do not agree, they are returned so: rows are lost, repeated or of others.

        Raises:
            UnprovableError: the query writes at every look.
        """
        queue, before = RemoteQueue(self.reader.connection, self.info.path), None
        for count in range(LOOKS):
            self.entries, bounds = self.look(), queue.state().partitions
            rows = [bound.upper for bound in bounds]
            now = self._version, rows
            if self._total == sum(rows) or now == before:
                return bounds
            before = now
            if count + 1 < LOOKS:
                time.sleep(PAUSE_SECONDS)
        what = f"The query has written between {LOOKS} looks at the ledger and the target"
        raise self._unprovable(what, remedy=_STOP)

    def _read(self, batches: Iterable[pa.RecordBatch]) -> tuple[int, int]:
        """Return how many rows there are, and their digest."""
        rows = digest = 0
        for batch in batches:
            rows += batch.num_rows
            digest = added(digest, row_hashes(batch, self._columns))
        return rows, digest

    @property
    def _columns(self) -> Sequence[ColumnSchema]:
        return TableSchema.from_yt(self.info.schema).writable_columns

    @property
    def _schema(self) -> pa.Schema:
        return fields_of(self.info, [column.name for column in self._columns])

    @property
    def _total(self) -> int:
        return sum(row.entry.tally.total_rows for row in self.entries)

    @property
    def _version(self) -> set[tuple[str, str]]:
        return {(row.entry.query_id, row.entry.transaction_id) for row in self.entries}

    def _digests(self) -> list[RowDigest]:
        found = [row.entry.tally.digest for row in self.entries]
        known = [digest for digest in found if digest is not None]
        if len(known) < len(found):
            raise self._unprovable(
                "The ledger has no digest of the rows of this target",
                remedy="Give the sink Target(..., digest=True) from the first batch on",
            )
        return known

    def _unprovable(self, what: str, *, remedy: str) -> UnprovableError:
        return UnprovableError(what, remedy=remedy, target=self.info.path)

    def _of_all(self, rows: int, digest: int | None) -> Audit:
        """Judge a target that holds all rows of its queries; without a digest, by their number."""
        kept = None if digest is None else combined(*(one.total for one in self._digests()))
        audit = self._found(rows, self._total, digest, kept)
        late = tuple(_before_the_ledger(self.entries)) if rows > self._total else ()
        return replace(audit, unproven=(*late, *audit.unproven), is_late=bool(late))

    def _found(self, rows: int, expected: int, digest: int | None, kept: int | None) -> Audit:
        unproven = [
            *overlaps_and_gaps(self.entries),
            *_outside_totals(self.entries, backfill=self.backfill),
        ]
        if digest is None:
            unproven.append(
                "which rows these are, and their values: counts agree too if one row is lost and another one "
                "is there twice"
            )
        texts = ["" if one is None else f"{one:016x}" for one in (digest, kept)]
        return Audit(
            target=self.info.path,
            by=By.COUNT if digest is None else By.DIGEST,
            queries=tuple(row.entry.query_id for row in self.entries),
            modes=modes_of(self.entries),
            rows=rows,
            compared=() if digest is None else tuple(self._schema.names),
            expected_rows=expected,
            digest=texts[0],
            expected_digest=texts[1],
            unproven=tuple(unproven),
            is_of_pattern=any(row.pattern for row in self.entries),
        )


def _before_the_ledger(entries: Entries) -> Iterator[str]:
    """Say which queries may have written rows before the ledger that counts them had begun."""
    for entry in (row.entry for row in entries if not row.entry.application):
        number, counted = entry.batch_id + 1, entry.tally.total_batches
        firsts = [one.first for offsets in entry.offsets.values() for one in offsets.values()]
        if counted < number and (any(firsts) or not firsts):
            yield (
                f"where the other rows are from: the ledger has counted {counted} of {number} batches of "
                f"{entry.label}. If it was begun in the middle, with new_ledger=True, they are of earlier "
                "batches. If the other batches were empty, rows are there twice, or of unknown origin"
            )


def _outside_totals(entries: Entries, *, backfill: bool) -> Iterator[str]:
    """Say what the totals of the ledger do not cover."""
    others = [row.entry for row in entries if not _is_replay(row.entry)]
    blind = [one for one in others if not (one.offsets or (backfill and one.application))]
    if blind and len(others) > 1:
        named = ", ".join(entry.label for entry in blind)
        way = "" if backfill else ". If its rows are in no queue, say so: --backfill"
        yield (
            f"that {named} has not written again what others have: the ledger does not have which rows it "
            f"has read{way}"
        )
    yield from letters(waiting_letters(entries))
    # Of a pattern, letters that named no table count there.
    if (more := -_not_replayed(entries)) > 0 and not any(row.pattern for row in entries):
        yield (
            f"that {more} dead letters were not replayed twice: more were replayed than rows rejected. A "
            "copy of a dead-letter table may have been replayed too"
        )
    yield from half_written(entries)


def half_written(entries: Entries) -> Iterator[str]:
    """Say which batches are half written."""
    for entry in (row.entry for row in entries if not row.entry.is_complete):
        yield (
            f"the rest of batch {entry.batch_id} of {entry.label}: {entry.part} of "
            f"{entry.part_count} parts are written"
        )


def _is_replay(entry: LedgerEntry) -> bool:
    return entry.query_id.startswith(LETTERS_PREFIX)


def waiting_letters(entries: Entries) -> int:
    """Return how many rows the target could not take, and that were not replayed."""
    return max(_not_replayed(entries), 0)


def _not_replayed(entries: Entries) -> int:
    tallies = [(row.entry.tally, _is_replay(row.entry)) for row in entries]
    return sum(
        -tally.total_rows if is_replay else tally.total_rejected_rows
        for tally, is_replay in tallies
    )


def letters(waiting: int) -> Iterator[str]:
    """Say that letters wait, if there are any."""
    if waiting:
        yield (
            f"{waiting} rows that the target cannot take: they must be among the dead letters, which this "
            "prints: yt-exactly-once dead-letters list PATH"
        )


def modes_of(entries: Entries) -> tuple[str, ...]:
    """Return the delivery modes of entries."""
    return tuple(sorted({row.entry.mode for row in entries}))
