"""Queue producers: sessions, epochs and sequence numbers.

A producer is a sorted table with one row per session. A push appends to the queue and moves the session in
one transaction. So a repeated push is skipped, and an older epoch is fenced at the commit.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import lt
from typing import Any

import pyarrow as pa

from yt_exactly_once.local.errors import Code, YtError
from yt_exactly_once.local.queues.places import Place
from yt_exactly_once.local.tables.columnar import (
    ColumnarRows,
    PiecewiseRows,
    pieces_of,
    values_of,
    without,
)
from yt_exactly_once.local.tables.encoding import Conversions
from yt_exactly_once.local.tables.layout import TableLayout
from yt_exactly_once.local.tables.schema import PRODUCER_SCHEMA
from yt_exactly_once.local.tablets import modifications, reads
from yt_exactly_once.local.tablets.catalog import find_layout
from yt_exactly_once.local.tablets.transactions import TabletTransaction
from yt_exactly_once.local.tablets.validation import SEQUENCE_NUMBER

Row = dict[str, Any]

_NO_SEQUENCE_NUMBER = -1
_MUTATION_ID = b"mutation_id"
_SHAPE = {(column.name, column.wire_type) for column in PRODUCER_SCHEMA.columns}


@dataclass(frozen=True)
class Session:
    """One session of a producer for one queue; `YtError` for a table that is no producer."""

    producer: TableLayout
    queue: Place
    session_id: str

    def __post_init__(self) -> None:
        """Refuse a table that does not have the columns of a producer."""
        where = self.producer.path
        if not self.producer.sorted:
            raise YtError(f"Table {where} is not sorted")
        if not {(column.name, column.wire_type) for column in self.producer.columns} >= _SHAPE:
            raise YtError(f"Table {where} does not have the schema of a queue producer")

    def key(self) -> Row:
        """Return the key of the session's row."""
        return {**self.queue.key(), "session_id": self.session_id.encode()}

    @property
    def identity(self) -> tuple[str, str, str]:
        """What tells sessions apart inside one transaction."""
        return self.producer.node_id, self.queue.path, self.session_id


def create_session(
    transaction: TabletTransaction, session: Session, *, user_meta: Any, mutation_id: str | None
) -> Row:
    """Start a session or fence its earlier users by a higher epoch.

    Args:
        user_meta: replaces the stored one, unless it is None.
        mutation_id: a repeat of the same one gets the same epoch; None switches that off.

    Returns:
        `epoch`, `sequence_number` and `user_meta` of the session.
    """
    known = _read(transaction, session)
    row: Row = {"epoch": 0, "sequence_number": _NO_SEQUENCE_NUMBER, "user_meta": None}
    system_meta: dict[bytes, Any] = {}
    if known is not None:
        row = {name: known[name] for name in row}
        system_meta = dict(known["system_meta"] or {})
        known_id = system_meta.get(_MUTATION_ID)
        if mutation_id is not None and known_id == mutation_id.encode():
            return row
        row["epoch"] += 1
    if user_meta is not None:
        row["user_meta"] = user_meta
    if mutation_id is not None:
        system_meta[_MUTATION_ID] = mutation_id.encode()
    stored = {**session.key(), **row, "system_meta": system_meta or None}
    transaction.buffer(modifications.write_batches(session.producer, [stored]))
    return row


def remove_session(transaction: TabletTransaction, session: Session) -> None:
    """Forget a session with its history."""
    transaction.buffer([modifications.delete_batch(session.producer, [session.key()])])


def push(
    transaction: TabletTransaction,
    session: Session,
    queue: TableLayout,
    rows: Sequence[Row],
    *,
    epoch: int,
    sequence_number: int | None,
    user_meta: Any,
    conversions: Conversions,
    regress: bool,
) -> Row:
    """Append the rows that are newer than the session and move it.

    Args:
        queue: the ordered table.
        epoch: what the client believes to be the current one.
        sequence_number: number of the first row; None when every row has its own.
        user_meta: replaces the stored one, unless it is None.
        regress: whether a push without new rows still stores its last number, as servers of 2024 do.

    Returns:
        `last_sequence_number` and `skipped_row_count`.

    Raises:
        YtError: unknown session, 3101, 3102 or 3103.
    """
    known = _read(transaction, session)
    if known is None:
        raise YtError(
            "Unknown queue producer session",
            producer=session.producer.path,
            queue=session.queue.path,
            session_id=session.session_id,
        )
    _check_epoch(session, epoch, known["epoch"])
    numbers = _sequence_numbers(rows, sequence_number)
    pushed = transaction.progress.get(session.identity)
    stored: int = known["sequence_number"] if pushed is None else pushed
    skipped = bisect_right(numbers, stored)
    last = int(numbers[-1]) if len(numbers) else _NO_SEQUENCE_NUMBER
    batches = []
    if skipped < len(numbers):
        fresh = without(rows[skipped:], SEQUENCE_NUMBER)
        batches.append(modifications.append_batch(queue, fresh, conversions=conversions))
    else:
        # Rows that are left out must be readable too.
        sum(1 for _ in pieces_of(rows))
    moves = skipped < len(numbers) or regress
    if moves:
        row = {
            **session.key(),
            "epoch": known["epoch"],
            "sequence_number": last,
            "user_meta": known["user_meta"] if user_meta is None else user_meta,
            "system_meta": known["system_meta"],
        }
        batches += modifications.write_batches(session.producer, [row])
    transaction.buffer(batches)
    if moves:
        transaction.progress[session.identity] = last
    return {"last_sequence_number": last if moves else stored, "skipped_row_count": skipped}


def _check_epoch(session: Session, given: int, current: int) -> None:
    if given == current:
        return
    code = Code.ZOMBIE_EPOCH if given < current else Code.INVALID_EPOCH
    comparison = "less" if given < current else "greater"
    raise YtError(
        f"Received epoch {given} is {comparison} than the actual epoch {current} of session "
        f'"{session.session_id}"',
        code,
        {"session_id": session.session_id, "epoch": given, "current_epoch": current},
    )


def _sequence_numbers(rows: Sequence[Row], first: int | None) -> Sequence[int]:
    """Return one number per row, from the first one on or as the rows have them.

    Raises:
        YtError: 3103 unless every row has exactly one, not negative and increasing.
    """
    if first is None and isinstance(rows, ColumnarRows | PiecewiseRows):
        numbers = _column_of_numbers(rows.column(SEQUENCE_NUMBER))
        if numbers is not None:
            return numbers
    given = values_of(rows, SEQUENCE_NUMBER)
    if first is not None:
        if any(number is not None for number in given):
            raise _bad_numbers("given both for the request and in rows")
        return range(first, first + len(given))
    if not set(map(type, given)) <= {int}:
        given = [_sequence_number(index, number) for index, number in enumerate(given)]
    if min(given, default=0) < 0:
        index, number = next(place for place in enumerate(given) if place[1] < 0)
        raise _bad_numbers(f"row {index} has the negative sequence number {number}")
    if not all(map(lt, given, given[1:])):
        pairs = enumerate(pairwise(given), start=1)
        index, (before, number) = next(place for place in pairs if place[1][0] >= place[1][1])
        raise _bad_numbers(f"must be strictly increasing: row {index} has {number} after {before}")
    return given


def _column_of_numbers(column: Any) -> Sequence[int] | None:
    """Return the numbers of an Arrow column if all are as they must be; otherwise a row is to be named."""
    if not isinstance(column, pa.Int64Array) or column.null_count:
        return None
    numbers: Any = column.to_numpy()
    is_right = len(numbers) == 0 or (numbers[0] >= 0 and (numbers[1:] > numbers[:-1]).all())
    return numbers if is_right else None


def _sequence_number(index: int, number: Any) -> int:
    if number is None:
        raise _bad_numbers(f"row {index} has no sequence number, and the request has none")
    if isinstance(number, bool) or not isinstance(number, int):
        raise YtError(
            "Error parsing sequence number from row",
            inner=[YtError(f'Invalid type: expected "int64", row {index}')],
        )
    return int(number)


def _bad_numbers(problem: str) -> YtError:
    return YtError(f"Invalid row sequence numbers: {problem}", Code.INVALID_ROW_SEQUENCE_NUMBERS)


def _read(transaction: TabletTransaction, session: Session) -> Row | None:
    producer = session.producer
    with transaction.read() as connection:
        layout = find_layout(connection, producer.node_id, producer.path)
        if layout is None:
            return None
        keys = modifications.keys_of(layout, [session.key()])
        (row,) = reads.lookup(connection, layout, keys, layout.columns)
        return row
