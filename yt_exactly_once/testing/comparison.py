"""Rows that new code makes of a batch, and those that the old code wrote: by digest, by row, by number.

The digest that the ledger keeps of a batch is the proof. Rows of the target are examples, and a proof where
they say which batch they are of.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from yt_exactly_once.codec.row_hash import added, row_hashes
from yt_exactly_once.codec.rows import decode, row_fragments
from yt_exactly_once.codec.schema import (
    SOURCE_QUEUE_COLUMN,
    SOURCE_ROW_COLUMN,
    SOURCE_TABLET_COLUMN,
    TableSchema,
    arrow_schema_of,
)
from yt_exactly_once.errors import LedgerError, RequestRefusedError, TableError
from yt_exactly_once.operations.ledgers import entries_of, read_history, read_ledger
from yt_exactly_once.spark.sink.encode import merged
from yt_exactly_once.testing.rehearsal import SHOWN, Judgement, Rehearsed, Row
from yt_exactly_once.ytsaurus.browsing import selected
from yt_exactly_once.ytsaurus.reading import listed, literal

if TYPE_CHECKING:
    from yt_exactly_once.codec.schema import ColumnSchema, WritePlan
    from yt_exactly_once.commit.batch import SourceRange
    from yt_exactly_once.commit.entry import LedgerEntry
    from yt_exactly_once.commit.tally import RowDigest
    from yt_exactly_once.spark.sink.options import SinkOptions
    from yt_exactly_once.spark.sink.targets import PreparedTarget
    from yt_exactly_once.ytsaurus.client import Connection

_KEYS_PER_QUERY = 500

BY_DIGEST = "the digest in the ledger"
BY_ROWS = "the rows of the target"
BY_NUMBER = "their number in the ledger"


@dataclass(frozen=True)
class PastBatch:
    """A batch as the old code wrote it.

    Attributes:
        ranges: what it read of queues.
        entry: of the ledger or of the history; `None` if neither has one any more.
        is_newest: whether no later batch has written.
    """

    number: int
    ranges: Sequence[SourceRange]
    entry: LedgerEntry | None = None
    is_newest: bool = False


def find_entry(
    connection: Connection, options: SinkOptions, target: str, query: str, batch: int
) -> tuple[LedgerEntry | None, bool]:
    """Return the entry of a batch, and whether it is the newest one of its query."""
    with suppress(LedgerError, TableError):
        for row in entries_of(connection, target, options.ledger):
            if (row.entry.query_id, row.entry.batch_id) == (query, batch) and row.entry.is_complete:
                return row.entry, True
    if options.history_path is not None:
        with suppress(TableError):
            for row in read_history(connection, options.history_path):
                key = row.entry.query_id, row.entry.target, row.entry.batch_id
                if key == (query, target, batch) and row.entry.is_complete:
                    return row.entry, False
    return None, False


def left_out(
    connection: Connection, options: SinkOptions, query: str, batch: int, written: Collection[str]
) -> list[Rehearsed]:
    """Judge the targets into which the old code wrote a batch, or later ones, and the new code does not."""
    known: dict[str, LedgerEntry] = {}
    with suppress(LedgerError, TableError):
        rows = read_ledger(connection, options.ledger)
        known |= {
            row.entry.target: row.entry
            for row in rows
            if row.entry.query_id == query and row.entry.batch_id >= batch
        }
    if options.history_path is not None:
        with suppress(TableError):
            past = read_history(connection, options.history_path)
            of_batch = [row.entry for row in past if row.entry.batch_id == batch]
            known |= {one.target: one for one in of_batch if one.query_id == query}
    found = []
    for target, entry in sorted(known.items()):
        is_known = entry.batch_id == batch
        if target in written or (is_known and not _rows_of(entry)):
            continue
        old = _rows_of(entry) if is_known else None
        judgement, by = (Judgement.OTHER, BY_NUMBER) if is_known else (Judgement.UNPROVEN, "")
        why = "The old code has written this target, and the new code gives no sink rows for it"
        found.append(Rehearsed(batch, target, judgement, by, old, 0, reason=why))
    return found


def _rows_of(entry: LedgerEntry) -> int:
    return entry.tally.rows + entry.tally.rejected_rows


def with_letters(found: Rehearsed, past: PastBatch, rejected: int) -> Rehearsed:
    """Return what was found, with what the dead letters of the batch say: they are only counted."""
    before = None if past.entry is None else past.entry.tally.rejected_rows
    if not (before or rejected) or found.judgement is Judgement.OTHER:
        return found
    if before is not None and before != rejected:
        why = f"{before} rows were dead letters before, and {rejected} are now"
        return replace(found, judgement=Judgement.OTHER, by=BY_NUMBER, reason=why)
    why = f"{rejected} rows are dead letters, which are only counted"
    return replace(found, judgement=Judgement.UNPROVEN, reason=why)


def compared(
    connection: Connection, past: PastBatch, target: PreparedTarget, new: pa.RecordBatch
) -> Rehearsed:
    """Judge the rows that new code has for a target."""
    tally = None if past.entry is None else past.entry.tally
    found = _Comparison(connection, past, target, new, None if tally is None else tally.rows)
    if tally is not None and tally.digest is not None:
        digest = added(0, row_hashes(new, target.plan.columns))
        if (digest, new.num_rows) == (tally.digest.batch, tally.rows):
            effect = found.effect_of_the_same(tally.digest)
            judgement = Judgement.UNPROVEN if effect else Judgement.SAME
            return found.judged(judgement, BY_DIGEST, reason=effect)
        return found.with_examples(Judgement.OTHER, BY_DIGEST)
    return found.by_rows()


def counted(past: PastBatch, target: str, old: int | None, rows: int, why: str) -> Rehearsed:
    """Judge rows by their number alone.

    Args:
        old: of the old code; `None` if the ledger does not have it.
        why: nothing else was compared.
    """
    differs = old is not None and old != rows
    judgement = Judgement.OTHER if differs else Judgement.UNPROVEN
    by = "" if old is None else BY_NUMBER
    return Rehearsed(past.number, target, judgement, by, old, rows, reason=why)


@dataclass(frozen=True)
class _Comparison:
    """The rows of one batch and target; `old_rows` is their number by the ledger, if it is known."""

    connection: Connection
    past: PastBatch
    target: PreparedTarget
    new: pa.RecordBatch
    old_rows: int | None

    def judged(self, judgement: Judgement, by: str, **more: Any) -> Rehearsed:
        known = {"old_rows": self.old_rows, "new_rows": self.new.num_rows, **more}
        return Rehearsed(self.past.number, self.target.path, judgement, by, **known)

    def effect_of_the_same(self, digest: RowDigest) -> str:
        """Say why the same rows may leave other ones in the table; nothing if they cannot.

        Rows with a digest have replaced whole rows of a sorted target.
        """
        options, keys = self.target.options, self._plan.keys
        if not self.target.is_sorted:
            return ""
        if options.replaces != digest.replaces:
            does = "deletes" if options.replaces else "does not delete"
            return f"Unlike the old code, the new one {does} rows that the result lacks (write='replace')"
        for option in ("aggregate", "update_columns"):
            if options.effects[option]:
                return f"The old code has replaced whole rows, and the new code has {option}=True"
        if len(pc.unique(row_fragments(self.new, keys))) < self.new.num_rows:
            return "Rows have the same key. The last one counts, and the digest does not know their order"
        return ""

    def with_examples(self, judgement: Judgement, by: str) -> Rehearsed:
        old = self._old()
        if isinstance(old, str):
            return self.judged(judgement, by, reason=f"No examples: {old}")
        return self.judged(judgement, by, **self._difference(old))

    def by_rows(self) -> Rehearsed:
        """Judge by the rows of the target, if they say which batch they are of; else by their number."""
        old = self._old()
        if isinstance(old, str):
            why = f"The ledger has no digest of the batch, and {old}"
            return counted(self.past, self.target.path, self.old_rows, self.new.num_rows, why)
        more = self._difference(old)
        is_same = not more["only_old"] and not more["only_new"]
        of_target = {**more, "old_rows": old.num_rows}
        if not self.target.is_sorted and not is_same:
            return self.judged(Judgement.OTHER, BY_ROWS, **of_target)
        if self.old_rows is not None and self.old_rows != self.new.num_rows:
            # Rows without a source, or key, of the new code are not among those of the target.
            return self.judged(Judgement.OTHER, BY_NUMBER, **more)
        if not self.target.is_sorted:
            return self.judged(Judgement.SAME, BY_ROWS, **of_target)
        if self.past.is_newest and not is_same:
            return self.judged(Judgement.OTHER, BY_ROWS, **more)
        reason = (
            "Rows with the same keys are the same. Nothing tells whether this batch or an earlier one wrote "
            "them: Target(..., digest=True) does"
            if is_same
            else "Later batches may have replaced the rows that differ"
        )
        return self.judged(Judgement.UNPROVEN, BY_ROWS, reason=reason, **more)

    @property
    def _plan(self) -> WritePlan:
        return self.target.plan

    @property
    def _columns(self) -> tuple[ColumnSchema, ...]:
        """What a row leaves in the table: a column that the new code does not write is null there."""
        if self.target.options.update_columns:
            return self._plan.columns
        written = {column.name: column for column in self._plan.columns}
        there = {column.name: column for column in self._stored.columns}
        return tuple({**there, **written}.values())

    @property
    def _stored(self) -> TableSchema:
        """The columns of the rows that are compared, as the table has them."""
        table = TableSchema.from_yt(self.target.schema)
        wanted = self._plan.names if self.target.options.update_columns else None
        return TableSchema(
            tuple(one for one in table.writable_columns if wanted is None or one.name in wanted)
        )

    @property
    def _identity(self) -> tuple[str, ...]:
        """The columns by which rows of the old and of the new code are put side by side."""
        service = (SOURCE_QUEUE_COLUMN, SOURCE_TABLET_COLUMN, SOURCE_ROW_COLUMN)
        if self.target.is_sorted:
            return self._plan.keys.names
        return tuple(name for name in service if name in self._plan.names)

    def _old(self) -> pa.RecordBatch | str:
        """Return the rows of the batch in the target, of a sorted one those with the new keys; or why not."""
        conditions = self._by_keys() if self.target.is_sorted else self._by_source()
        if isinstance(conditions, str):
            return conditions
        schema = arrow_schema_of(self._stored)
        names, path = listed(schema.names), self.target.path
        try:
            found = [
                decode(selected(self.connection, f"{names} from [{path}] where {one}"), schema)
                for one in conditions
            ]
        except RequestRefusedError as error:
            return f"the target cannot be read so: {error.what}"
        return merged(found, schema)

    def _by_keys(self) -> Iterator[str] | str:
        options, keys = self.target.options, self._plan.keys.names
        if options.aggregate:
            return "the target adds up what is written"
        rows = self.new.select(keys).to_pylist()
        if not all(
            isinstance(value, bool | int | str | bytes) for row in rows for value in row.values()
        ):
            return "its keys are neither numbers nor strings"
        return _one_of(keys, rows)

    def _by_source(self) -> list[str] | str:
        tablet, row = SOURCE_TABLET_COLUMN, SOURCE_ROW_COLUMN
        if not {tablet, row} <= {*self._plan.names}:
            return "the target does not have the source of its rows (include_service_columns=true)"
        has_queue = SOURCE_QUEUE_COLUMN in self._plan.names
        if len(self.past.ranges) != 1 and not has_queue:
            return "the query reads several queues (include_queue_path=true)"
        return [
            f"[{tablet}] = {one.partition} and [{row}] >= {one.start} and [{row}] < {one.end}"
            + (f" and [{SOURCE_QUEUE_COLUMN}] = {literal(source.queue)}" if has_queue else "")
            for source in self.past.ranges
            for one in source.partitions
        ]

    def _difference(self, old: pa.RecordBatch) -> dict[str, Any]:
        columns = self._columns
        hashes = [row_hashes(rows, columns).tolist() for rows in (old, self.new)]
        only_old = _left(hashes[0], hashes[1], old)
        only_new = _left(hashes[1], hashes[0], self.new.select(self._plan.names))
        pairs = list(_paired(only_old, only_new, self._identity))
        return {
            "only_old": len(only_old),
            "only_new": len(only_new),
            "examples": tuple(pairs[:SHOWN]),
        }


def _one_of(keys: Sequence[str], rows: Sequence[Row]) -> Iterator[str]:
    for start in range(0, len(rows), _KEYS_PER_QUERY):
        some = rows[start : start + _KEYS_PER_QUERY]
        values = ", ".join(f"({', '.join(literal(row[key]) for key in keys)})" for row in some)
        yield f"({listed(keys)}) in ({values})"


def _left(hashes: Sequence[int], others: Sequence[int], rows: pa.RecordBatch) -> list[Row]:
    """Return the rows that the others do not have, or not so often."""
    surplus = Counter(hashes) - Counter(others)
    found = []
    for number, one in enumerate(hashes):
        if surplus[one]:
            surplus[one] -= 1
            found.append(number)
    chosen: list[Row] = rows.take(pa.array(found, pa.int64())).to_pylist()
    return chosen


def _paired(
    old: Sequence[Row], new: Sequence[Row], identity: Sequence[str]
) -> Iterator[tuple[Row | None, Row | None]]:
    """Yield rows side by side that are of the same source or key, and then those that are alone."""
    key: Callable[[Row], Any] = lambda row: tuple(row[name] for name in identity)  # noqa: E731
    waiting = {key(row): row for row in old} if identity else {}
    alone = []
    for row in new:
        before = waiting.pop(key(row), None) if identity else None
        if before is None:
            alone.append(row)
        else:
            yield before, row
    yield from ((row, None) for row in (waiting.values() if identity else old))
    yield from ((None, row) for row in alone)
