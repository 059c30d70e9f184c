"""The comparison of a target with what the ledger keeps of its rows: their number, and their digest.

It needs no column that says where a row came from, and no queue. What it finds it cannot place: a digest says
that rows differ, not which.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from yt_exactly_once.codec.row_hash import added, combined, row_hashes
from yt_exactly_once.codec.schema import TableSchema
from yt_exactly_once.commit.entry import LETTERS_PREFIX, RowDigest
from yt_exactly_once.errors import UnprovableError
from yt_exactly_once.operations.audit.found import Audit, By
from yt_exactly_once.operations.audit.ranges import RangeReader, fields_of
from yt_exactly_once.operations.ledgers import LedgerRow, overlaps_and_gaps
from yt_exactly_once.ytsaurus.queues import PartitionBounds, RemoteQueue
from yt_exactly_once.ytsaurus.tables import TableInfo

if TYPE_CHECKING:
    import pyarrow as pa

    Entries = Sequence[LedgerRow]

LOOKS = 10
"""How often the ledger and the target are looked at together, until they agree."""

PAUSE_SECONDS = 0.5
"""Between two looks."""

_STOP = "Stop the query, or audit while it has nothing to do"


def keeps_digests(entries: Entries) -> bool:
    """Return whether every query keeps a digest of the rows that it writes."""
    return all(row.entry.tally.digest is not None for row in entries)


def compared_by_digest(
    reader: RangeReader, info: TableInfo, entries: Entries, look: Callable[[], Entries]
) -> Audit:
    """Compare a target with the digests of its ledger; raise `UnprovableError` if they prove nothing."""
    digests = _digests(info, entries)
    if any(digest.replaces for digest in digests):
        return _replaced(reader, info, entries, look)
    if not all(digest.from_start for digest in digests):
        raise UnprovableError(
            "The digest does not cover the first rows of this target: it was switched on later, or off for "
            "some batches",
            remedy="Count the rows: --by count. To compare values, write a new target with digest=True from "
            "its first batch, or keep the source of each row in it (include_service_columns=true)",
            target=info.path,
        )
    if info.is_sorted:
        return _upserted(reader, info, entries, look)
    entries, bounds = _settled(reader, info, look)
    _require_all(info, bounds)
    schema = _schema(info)
    found = _digest(info, reader.tablets(info, schema, bounds))
    return _audit(info, entries, *found, By.DIGEST)


def compared_by_count(
    reader: RangeReader, info: TableInfo, entries: Entries, look: Callable[[], Entries]
) -> Audit:
    """Compare the number of rows with that of the ledger; raise `UnprovableError` if the target is sorted."""
    if info.is_sorted:
        raise UnprovableError(
            "The number of rows proves nothing: the target is sorted, and later rows replace earlier ones",
            remedy="Name the columns with the partition and the index of the row in the queue "
            "(include_service_columns=true of the source gives them), or write with digest=True",
            target=info.path,
        )
    entries, bounds = _settled(reader, info, look)
    return _audit(info, entries, sum(bound.upper for bound in bounds), 0, By.COUNT)


def _upserted(
    reader: RangeReader, info: TableInfo, entries: Entries, look: Callable[[], Entries]
) -> Audit:
    """Compare a sorted target; it proves something only if no row has replaced another."""
    found = _read_sorted(reader, info, entries, look)
    audit = _audit(info, entries, *found, By.DIGEST)
    assert audit.expected_rows is not None
    if audit.rows < audit.expected_rows:
        raise UnprovableError(
            f"The target has {audit.rows} rows, and {audit.expected_rows} were written: later rows have "
            "replaced earlier ones, or rows are lost. A digest of all written rows cannot tell which",
            remedy="Keep the source of each row in the target (include_service_columns=true). Only a sorted "
            "target where every key is written once, or one with write='replace', can be audited by digest",
            target=info.path,
        )
    return audit


def _replaced(
    reader: RangeReader, info: TableInfo, entries: Entries, look: Callable[[], Entries]
) -> Audit:
    """Compare a target that holds the rows of the last batch and no others."""
    if len(entries) > 1:
        raise UnprovableError(
            f"{len(entries)} queries have written this target, and one replaces all of its rows",
            remedy="Remove the entries of queries that are gone: yt-exactly-once ledger prune "
            f"{entries[0].ledger} --query ID --yes",
            target=info.path,
        )
    rows, digest = _read_sorted(reader, info, entries, look)
    ((row,), (kept,)) = entries, _digests(info, entries)
    return _result(info, entries, By.DIGEST, (rows, digest), (row.entry.tally.rows, kept.batch))


def _read_sorted(
    reader: RangeReader, info: TableInfo, entries: Entries, look: Callable[[], Entries]
) -> tuple[int, int]:
    found = _digest(info, reader.keys(info, _schema(info), _total(entries)))
    if _version(look()) != _version(entries):
        raise UnprovableError(
            "The query has written while the sorted target was read", remedy=_STOP, target=info.path
        )
    return found


def _settled(
    reader: RangeReader, info: TableInfo, look: Callable[[], Entries]
) -> tuple[Entries, list[PartitionBounds]]:
    """Return entries, and the bounds of the tablets that hold their rows and no others.

    The ledger and the target are read one after the other, and a query may commit in between. Where both
    stay as they are and still do not agree, they are returned so: rows are lost, repeated or of others.

    Raises:
        UnprovableError: the query writes at every look.
    """
    queue, before = RemoteQueue(reader.connection, info.path), None
    for count in range(LOOKS):
        entries, bounds = look(), queue.state().partitions
        now = _version(entries), tuple(bound.upper for bound in bounds)
        if _total(entries) == sum(bound.upper for bound in bounds) or now == before:
            return entries, bounds
        before = now
        if count + 1 < LOOKS:
            time.sleep(PAUSE_SECONDS)
    raise UnprovableError(
        f"The query has written between {LOOKS} looks at the ledger and the target",
        remedy=_STOP,
        target=info.path,
    )


def _require_all(info: TableInfo, bounds: Sequence[PartitionBounds]) -> None:
    trimmed = sum(bound.lower for bound in bounds)
    if trimmed:
        raise UnprovableError(
            f"{trimmed} rows of the target were trimmed, and the digest covers them too",
            remedy="Audit before rows are trimmed, or compare only the number of rows: --by count",
            target=info.path,
        )


def _digest(info: TableInfo, batches: Iterable[pa.RecordBatch]) -> tuple[int, int]:
    columns = TableSchema.from_yt(info.schema).writable_columns
    rows = digest = 0
    for batch in batches:
        rows += batch.num_rows
        digest = added(digest, row_hashes(batch, columns))
    return rows, digest


def _schema(info: TableInfo) -> pa.Schema:
    columns = TableSchema.from_yt(info.schema).writable_columns
    return fields_of(info, [column.name for column in columns])


def _digests(info: TableInfo, entries: Entries) -> list[RowDigest]:
    found = [row.entry.tally.digest for row in entries]
    known = [digest for digest in found if digest is not None]
    if len(known) < len(found):
        raise UnprovableError(
            "The ledger has no digest of the rows of this target",
            remedy="Give the sink Target(..., digest=True) from the first batch on",
            target=info.path,
        )
    return known


def _total(entries: Entries) -> int:
    return sum(row.entry.tally.total_rows for row in entries)


def _version(entries: Entries) -> set[tuple[str, str]]:
    return {(row.entry.query_id, row.entry.transaction_id) for row in entries}


def _audit(info: TableInfo, entries: Entries, rows: int, digest: int, by: By) -> Audit:
    expected = 0
    if by is By.DIGEST:
        expected = combined(*(kept.total for kept in _digests(info, entries)))
    audit = _result(info, entries, by, (rows, digest), (_total(entries), expected))
    late = tuple(_before_the_ledger(entries)) if rows > _total(entries) else ()
    return replace(audit, unproven=(*late, *audit.unproven), is_late=bool(late))


def _result(
    info: TableInfo, entries: Entries, by: By, found: tuple[int, int], expected: tuple[int, int]
) -> Audit:
    unproven = [*overlaps_and_gaps(entries), *_outside_totals(entries)]
    if by is By.COUNT:
        unproven.append(
            "which rows these are, and their values: counts agree too if one row is lost and another one is "
            "there twice"
        )
    texts = [f"{digest:016x}" if by is By.DIGEST else "" for _, digest in (found, expected)]
    return Audit(
        target=info.path,
        by=by,
        queries=tuple(row.entry.query_id for row in entries),
        modes=modes_of(entries),
        rows=found[0],
        compared=tuple(_schema(info).names) if by is By.DIGEST else (),
        expected_rows=expected[0],
        digest=texts[0],
        expected_digest=texts[1],
        unproven=tuple(unproven),
    )


def _before_the_ledger(entries: Entries) -> Iterator[str]:
    """Say which queries may have written rows before the ledger that counts them had begun."""
    for entry in (row.entry for row in entries if not row.entry.application):
        number, counted = entry.batch_id + 1, entry.tally.total_batches
        firsts = [part.first for parts in entry.offsets.values() for part in parts.values()]
        if counted < number and (any(firsts) or not firsts):
            yield (
                f"where the other rows are from: the ledger has counted {counted} of {number} batches of "
                f"{entry.query_id}. If it was begun in the middle, with new_ledger=True, they are of earlier "
                "batches. If the other batches were empty, rows are there twice, or of unknown origin"
            )


def _outside_totals(entries: Entries) -> Iterator[str]:
    """Say what the totals of the ledger do not cover."""
    replayed = [row.entry for row in entries if row.entry.query_id.startswith(LETTERS_PREFIX)]
    others = [row.entry for row in entries if row.entry not in replayed]
    blind = [entry.query_id for entry in others if not entry.offsets]
    if blind and len(others) > 1:
        yield (
            f"that {', '.join(blind)} has not written again what others have: the ledger does not have which "
            "rows it has read"
        )
    waiting = sum(entry.tally.total_rejected_rows for entry in others)
    waiting -= sum(entry.tally.total_rows for entry in replayed)
    if waiting > 0:
        yield (
            f"{waiting} rows that the target cannot take: they must be among the dead letters, which this "
            "prints: yt-exactly-once dead-letters list PATH"
        )
    for entry in others:
        if entry.part < entry.part_count:
            yield (
                f"the rest of batch {entry.batch_id} of {entry.query_id}: {entry.part} of "
                f"{entry.part_count} parts are written"
            )


def modes_of(entries: Entries) -> tuple[str, ...]:
    """Return the delivery modes of entries."""
    return tuple(sorted({row.entry.mode for row in entries}))
