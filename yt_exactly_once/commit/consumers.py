"""Where the consumers of a batch are and where they are moved to; the one place that decides it."""

from __future__ import annotations

from yt_exactly_once import advice
from yt_exactly_once.commit.batch import MicroBatch, PartitionRange, SourceRange
from yt_exactly_once.commit.cluster import Row, Transaction
from yt_exactly_once.commit.entry import LedgerEntry, Offsets, PartitionOffset
from yt_exactly_once.errors import OffsetConflictError

Moves = dict[int, int]
"""Where a consumer is moved to, per partition that moves."""


def offsets_of(
    batch: MicroBatch, entry: LedgerEntry | None = None, *, moved: bool = True
) -> Offsets:
    """Return the offsets a ledger entry for this batch carries.

    Args:
        moved: whether the transaction of the entry moves the consumers. Even then the consumer of a
            queue without new rows stays where it is.
    """

    def offset(source: SourceRange, offset_range: PartitionRange) -> PartitionOffset:
        known = entry.offset(source.key, offset_range.partition) if entry else None
        rest, first = (known.left, known.first) if known else (0, offset_range.start)
        left = aim(batch, offset_range) if moved and source.moves else rest
        return PartitionOffset(offset_range.start, offset_range.end, left, first)

    return {
        source.key: {one.partition: offset(source, one) for one in source.partitions}
        for source in batch.sources
    }


def aim(batch: MicroBatch, offset_range: PartitionRange) -> int:
    """Return where a batch moves a consumer: to its end, or to its start if a replay needs its rows.

    A replay rebuilds the state of a query from them, so the queue must not be allowed to trim them yet.
    """
    return offset_range.start if batch.needs_its_rows else offset_range.end


def consumer_offsets(transaction: Transaction, source: SourceRange) -> dict[int, int]:
    """Return the consumer's offsets as of the transaction's start; 0 without a row."""
    assert source.consumer is not None
    keys = [_consumer_key(source, one.partition) for one in source.partitions]
    rows = transaction.lookup(source.consumer, keys)
    return {
        one.partition: 0 if row is None else int(row["offset"])
        for one, row in zip(source.partitions, rows, strict=True)
    }


def advance(transaction: Transaction, source: SourceRange, moves: Moves) -> None:
    """Write the consumer's rows after the move: one request, where `advance_queue_consumer` needs many.

    `plan_moves` compares the offsets, on rows read in the same transaction. The commit fails when another
    transaction has written those rows since.
    """
    assert source.consumer is not None
    rows = [{**_consumer_key(source, number), "offset": offset} for number, offset in moves.items()]
    transaction.insert(source.consumer, rows)


def _consumer_key(source: SourceRange, partition: int) -> Row:
    return {
        "queue_cluster": source.cluster,
        "queue_path": source.queue,
        "partition_index": partition,
    }


def plan_moves(
    source: SourceRange,
    current: dict[int, int],
    entry: LedgerEntry | None,
    batch: MicroBatch,
    ledger: str,
) -> Moves:
    """Decide how the consumer moves; raise `OffsetConflictError` if a partition is at another offset.

    Each partition must be at or after the offset that this query's last commit left, and at or before the
    start of the batch. The source itself moves a stateful query's consumer within that range, once Spark has
    logged the batch. Before the first commit any offset up to the start of the batch is fine.
    """
    moves: Moves = {}
    for offset_range in source.partitions:
        at = current[offset_range.partition]
        last = entry.offset(source.key, offset_range.partition) if entry else None
        low, high = (last.left if last else 0), offset_range.start
        if not low <= at <= high:
            expected = str(low) if low == high else f"{low} to {high}"
            raise OffsetConflictError(
                f"The consumer is at row {at} of partition {offset_range.partition}, expected {expected}",
                remedy=_moved_remedy(source, current, entry, batch, ledger, offset_range),
                **batch.where,
                consumer=source.consumer,
                queue=source.queue,
                partition=offset_range.partition,
            )
        if (new := aim(batch, offset_range)) > at:
            moves[offset_range.partition] = new
    return moves


def _moved_remedy(
    source: SourceRange,
    current: dict[int, int],
    entry: LedgerEntry | None,
    batch: MicroBatch,
    ledger: str,
    offset_range: PartitionRange,
) -> str:
    others = (
        "If two queries use this consumer, give each its own. If two sinks of the function move it, set "
        "advance_consumer=False for all but the last"
    )
    if entry is None:
        return (
            "The query has committed nothing yet: starting_offsets begins before its consumer, or another "
            f"client moved it. To see what it repeats to take it back, run: yt-exactly-once rewind "
            f"{source.consumer} {source.queue} --to {offset_range.start} "
            f"--partition {offset_range.partition} --dry-run. {others}"
        )
    # By the ledger alone nobody sees whether a consumer that is ahead was moved, or the ledger is older.
    is_ahead = any(current[each.partition] > each.start for each in source.partitions)
    way = (
        advice.move_back(ledger, entry.query_id, batch.checkpoint)
        if is_ahead
        else advice.repair(ledger, entry.query_id)
    )
    return (
        "It was removed, or another client moved it. To take it back to where the query left it, run: "
        f"{way}. Then start the query on the "
        f"same checkpoint: a new one would begin where the consumer is. {others}"
    )
