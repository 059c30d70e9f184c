"""Rows that a target could not take: what they are, and their way into the target once they are repaired.

A letter is a row of a dead-letter table, named by its tablet and its index there. A replay writes letters and
notes them in the ledger of their target, in one transaction. So a letter gets in once, however often and by
however many people it is replayed. A letter that does not fit stays where it is.
"""

from __future__ import annotations

import base64
import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from yt_exactly_once.codec import schema as schemas
from yt_exactly_once.codec.rejects import REJECT_ARROW, REJECT_SCHEMA, find_faults
from yt_exactly_once.codec.row_hash import added, row_hashes
from yt_exactly_once.codec.rows import WireFormat, encode, row_fragments
from yt_exactly_once.commit.cluster import Payload
from yt_exactly_once.commit.entry import LETTERS_PREFIX, LedgerEntry, RowDigest, Tally
from yt_exactly_once.config import DeliveryMode
from yt_exactly_once.errors import ConfigError, LedgerError, TableError
from yt_exactly_once.operations.audit.ranges import RangeReader, placed
from yt_exactly_once.operations.ledgers import LedgerRow, entries_of
from yt_exactly_once.ytsaurus.queues import RemoteQueue
from yt_exactly_once.ytsaurus.tables import describe_table, require_columns

if TYPE_CHECKING:
    from yt_exactly_once.ytsaurus.client import Connection
    from yt_exactly_once.ytsaurus.transaction import TabletTransaction

ROWS_PER_COMMIT = 10_000
"""Letters that one transaction replays."""

_SOURCE = {
    schemas.SOURCE_QUEUE_COLUMN: "source_queue",
    schemas.SOURCE_TABLET_COLUMN: "source_partition",
    schemas.SOURCE_ROW_COLUMN: "source_row",
}
_ABOUT = ("query_id", "batch_id", "target", "column", "reason")


class _UnfitError(Exception):
    """Raised for a letter that cannot be made a row of the target; the text says why."""


@dataclass(frozen=True)
class Letter:
    """A row that its target could not take.

    Attributes:
        table: object id of the dead-letter table.
        row: the row by columns; binary values are base64. `None` if it was too long to be kept.
        source: path, partition and index of the row in the queue, as far as they are known, by the service
            columns of the source.
    """

    table: str
    tablet: int
    index: int
    query_id: str
    batch_id: int
    target: str
    column: str
    reason: str
    row: Mapping[str, Any] | None
    source: Mapping[str, Any]

    @property
    def place(self) -> tuple[int, int]:
        """Tablet and index."""
        return self.tablet, self.index


class Done:
    """Which letters of a table are in a target: the text that the ledger keeps in `other_sources`."""

    def __init__(self, text: str = "{}") -> None:
        self._ranges = {int(tablet): ranges for tablet, ranges in json.loads(text).items()}

    def __contains__(self, letter: Letter) -> bool:
        ranges = self._ranges.get(letter.tablet, ())
        return any(first <= letter.index < end for first, end in ranges)

    def after(self, letters: Collection[Letter]) -> str:
        """Return the text with more letters."""
        known = [(tablet, *one) for tablet, some in self._ranges.items() for one in some]
        ranges: dict[int, list[list[int]]] = {}
        for tablet, first, end in sorted(
            [*known, *((*one.place, one.index + 1) for one in letters)]
        ):
            joined = ranges.setdefault(tablet, [])
            if joined and first <= joined[-1][1]:
                joined[-1][1] = max(joined[-1][1], end)
            else:
                joined.append([first, end])
        return json.dumps(ranges, separators=(",", ":"))


class Target:
    """A target, and how letters become rows of it; the values of `binary` columns are base64."""

    def __init__(self, connection: Connection, path: str, binary: Collection[str] = ()) -> None:
        self.info = describe_table(connection, path)
        self.info.require_mounted()
        table = schemas.TableSchema.from_yt(self.info.schema)
        columns = [column for column in table.writable_columns if not column.name.startswith("$")]
        self._frame = pa.schema(
            pa.field(field.name, pa.binary() if field.name in binary else field.type)
            for field in schemas.arrow_schema_of(schemas.TableSchema(tuple(columns)))
        )
        self.plan = schemas.check_frame(self._frame, table, target=path, sorted=self.info.is_sorted)

    def rows(self, letters: Sequence[Letter]) -> pa.RecordBatch:
        """Return the rows of letters as they are written; raise `_UnfitError` if one cannot be."""
        rows = [_with_source(letter) for letter in letters]
        foreign = {name for row in rows for name in row} - {*self._frame.names, *_SOURCE}
        if foreign:
            raise _UnfitError(f"the target has no column {', '.join(sorted(foreign))}")
        arrays = []
        for field in self._frame:
            try:
                arrays.append(_array([row.get(field.name) for row in rows], field.type))
            except (pa.ArrowException, TypeError, ValueError) as error:
                raise _UnfitError(f"{field.name}: the value is no {field.type}") from error
        return pa.RecordBatch.from_arrays(arrays, schema=self._frame)

    def unfit(self, letters: Sequence[Letter]) -> dict[tuple[int, int], str]:
        """Return the places of letters that cannot be written, and why not."""
        found, fit = {}, []
        for letter in letters:
            try:
                self.rows([letter])
                fit.append(letter)
            except _UnfitError as error:
                found[letter.place] = str(error)
        for start in range(0, len(fit), ROWS_PER_COMMIT):
            part = fit[start : start + ROWS_PER_COMMIT]
            for fault in find_faults(self.rows(part), self.plan, WireFormat.YSON, ""):
                found[part[fault.row].place] = fault.reason
        return found

    def require_free(
        self, transaction: TabletTransaction, rows: pa.RecordBatch, *, overwrite: bool
    ) -> None:
        """Check that no row of a sorted target would be replaced; raise `ConfigError` if one would."""
        keys = [column["name"] for column in self.info.schema if column.get("sort_order")]
        again = Counter(row_fragments(rows, self.plan.keys).to_pylist()).most_common(1)[0][1]
        if again > 1:
            raise ConfigError(
                f"{again} letters have one key, and only one of them would stay",
                remedy="Choose one with --letters FILE",
                target=self.info.path,
            )
        known = [column for column in self.plan.columns if column.name in keys]
        if overwrite or len(known) < len(keys):
            # A key that the cluster computes cannot be looked up by the others.
            return
        there = transaction.lookup(self.info.path, rows.select(self.plan.keys.names).to_pylist())
        if taken := sum(one is not None for one in there):
            raise ConfigError(
                f"{taken} letters have keys that the target has now, perhaps with newer values",
                remedy="Choose the others with --letters FILE, or replace these rows with --overwrite",
                target=self.info.path,
            )


@dataclass(frozen=True)
class Replay:
    """What a replay does with the letters of one target.

    Attributes:
        done: how many were replayed before.
    """

    into: Target
    ledger: str
    fitting: tuple[Letter, ...]
    unfit: tuple[tuple[Letter, str], ...]
    done: int


def read_letters(connection: Connection, path: str) -> list[Letter]:
    """Return all letters of a table, in their order; raise `TableError` if it is none, or not mounted."""
    info = describe_table(connection, path)
    remedy = "Pass the path that the sink has as dead_letter_path"
    require_columns(info, REJECT_SCHEMA, "a dead-letter table", TableError, remedy)
    info.require_mounted()
    schema, reader = placed(REJECT_ARROW), RangeReader(connection)
    found = []
    for tablet, bound in enumerate(RemoteQueue(connection, path).state().partitions):
        for rows in reader.rows(info, schema, tablet, bound.lower, bound.upper):
            for row in rows.to_pylist():
                kept = None if row["row"] is None else json.loads(row["row"])
                known = {name: row[name] for name in _ABOUT}
                known["source"] = {column: row[name] for column, name in _SOURCE.items()}
                found.append(Letter(info.id, tablet, row["$row_index"], **known, row=kept))
    return sorted(found, key=lambda one: one.place)


def repaired(letters: Sequence[Letter], document: Any) -> list[Letter]:
    """Return letters with the rows of what `show --json` printed; raise `ConfigError` if it names others."""
    known = {(one.table, *one.place): one for one in letters}
    try:
        return [
            replace(known[one["table"], one["tablet"], one["index"]], row=dict(one["row"]))
            for one in document
        ]
    except (KeyError, TypeError, ValueError) as error:
        raise ConfigError(
            "The file does not hold letters of this table",
            remedy="Save what the command show prints with --json, and change only the values in row",
        ) from error


def done_letters(connection: Connection, letters: Sequence[Letter]) -> set[tuple[int, int]]:
    """Return the places of the letters that are in their target; without its ledger, they wait."""
    found = set()
    for target in sorted({one.target for one in letters}):
        try:
            rows = entries_of(connection, target)
        except (LedgerError, TableError):
            continue
        done = _done(rows, letters[0].table)
        found |= {one.place for one in letters if one.target == target and one in done}
    return found


def _done(rows: Sequence[LedgerRow], table: str) -> Done:
    texts = [
        row.entry.other_sources for row in rows if row.entry.query_id == LETTERS_PREFIX + table
    ]
    return Done(*texts)


def plan_replays(
    connection: Connection,
    letters: Sequence[Letter],
    *,
    ledger: str | None = None,
    binary: Collection[str] = (),
) -> list[Replay]:
    """Say which letters would get into their targets, by their ledgers, see `entries_of`.

    Raises:
        LedgerError: a target has no ledger.
        TableError: a target is gone or not mounted.
    """
    found = []
    for target in sorted({one.target for one in letters}):
        rows = entries_of(connection, target, ledger)
        into = Target(connection, target, binary)
        mine = [one for one in letters if one.target == target]
        done = _done(rows, mine[0].table)
        waiting = [one for one in mine if one not in done]
        unfit = into.unfit(waiting)
        found.append(
            Replay(
                into=into,
                ledger=rows[0].ledger,
                fitting=tuple(one for one in waiting if one.place not in unfit),
                unfit=tuple((one, unfit[one.place]) for one in waiting if one.place in unfit),
                done=len(mine) - len(waiting),
            )
        )
    return found


def _with_source(letter: Letter) -> dict[str, Any]:
    if letter.row is None:
        raise _UnfitError("the row was longer than what a letter keeps")
    return {**letter.source, **letter.row}


def _array(values: list[Any], kind: pa.DataType) -> pa.Array:
    if pa.types.is_binary(kind):
        values = [None if one is None else base64.b64decode(one, validate=True) for one in values]
    elif any(isinstance(one, str) for one in values) and not pa.types.is_nested(kind):
        # Dates, decimals and numbers that are not finite are texts in a letter.
        kept = (
            values
            if pa.types.is_string(kind)
            else [None if one is None else str(one) for one in values]
        )
        return pa.array(kept).cast(kind)
    return pa.array(values, kind)


def replay(connection: Connection, plan: Replay, *, overwrite: bool = False) -> int:
    """Write the fitting letters of a plan, and note them in the ledger; return how many were written.

    Letters that somebody else has replayed since the plan are left out. A call that fails may be repeated.

    Args:
        overwrite: whether a letter may replace a row of a sorted target that has its key.

    Raises:
        ConfigError: a sorted target has rows with keys of these letters, or two letters have one key.
        ConflictError: another replay, or the query, has written the same rows. Nothing of the last
            transaction was written.
        CommitOutcomeUnknownError: no answer to the commit. A repeated call finds out.
    """
    written = 0
    for start in range(0, len(plan.fitting), ROWS_PER_COMMIT):
        part = plan.fitting[start : start + ROWS_PER_COMMIT]
        written += _commit(connection, plan, part, overwrite=overwrite)
    return written


def _commit(
    connection: Connection, plan: Replay, letters: Sequence[Letter], *, overwrite: bool
) -> int:
    info, columns = plan.into.info, plan.into.plan
    query_id = LETTERS_PREFIX + letters[0].table
    began = datetime.now(UTC)
    # The digests that the queries of this target keep must cover these rows too.
    digests = any(row.entry.tally.digest for row in entries_of(connection, info.path, plan.ledger))
    with connection.transaction() as transaction:
        found = transaction.lookup(plan.ledger, [{"query_id": query_id, "target": info.path}])[0]
        before = LedgerEntry.from_row(found) if found else None
        done = Done(before.other_sources if before else "{}")
        letters = [one for one in letters if one not in done]
        if not letters:
            return 0
        rows, tablets = plan.into.rows(letters), None
        if info.is_sorted:
            plan.into.require_free(transaction, rows, overwrite=overwrite)
        else:
            tablets = pa.array([one.index % info.tablet_count for one in letters], pa.int64())
        body = encode(rows, columns, WireFormat.YSON, tablet_index=tablets)
        transaction.write(info.path, [Payload(len(letters), body)], WireFormat.YSON)
        digest = RowDigest(added(0, row_hashes(rows, columns.columns))) if digests else None
        entry = LedgerEntry(
            query_id=query_id,
            target=info.path,
            batch_id=before.batch_id + 1 if before else 0,
            run_id="",
            transaction_id=transaction.id,
            offsets={},
            other_sources=done.after(letters),
            mode=DeliveryMode.TRANSACTIONAL,
            started_at=began.isoformat(timespec="milliseconds"),
            committed_at=datetime.now(UTC).isoformat(timespec="milliseconds"),
            tallies={
                info.path: (before.tally if before else Tally()).after(
                    Tally(rows=len(letters), bytes=len(body), digest=digest), is_same=False
                )
            },
        )
        transaction.insert(plan.ledger, [entry.to_row()])
    return len(letters)


def grouped(letters: Sequence[Letter], done: Collection[tuple[int, int]]) -> list[dict[str, Any]]:
    """Return the letters by query, target, column and reason, with how many wait."""
    groups: dict[tuple[str, ...], list[Letter]] = {}
    for one in letters:
        groups.setdefault((one.query_id, one.target, one.column, one.reason), []).append(one)
    return [
        {
            **dict(zip(("query", "target", "column", "reason"), names, strict=True)),
            "letters": len(some),
            "waiting": sum(one.place not in done for one in some),
            "batches": [min(one.batch_id for one in some), max(one.batch_id for one in some)],
        }
        for names, some in groups.items()
    ]
