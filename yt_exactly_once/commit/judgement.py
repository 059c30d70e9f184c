"""What a ledger entry says about a batch: new, half committed, a replay, or a contradiction."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from enum import StrEnum

from yt_exactly_once import advice
from yt_exactly_once.commit.batch import MicroBatch, SourceRange, TargetColumns
from yt_exactly_once.commit.entry import LedgerEntry, Offsets, PartitionOffset, SourceKey
from yt_exactly_once.commit.other_sources import is_same
from yt_exactly_once.errors import (
    FencedError,
    LedgerDivergedError,
    RepeatedCallError,
    SchemaMismatchError,
)

_RESTORE = "Another checkpoint has written the ledger: restore that one"


class Verdict(StrEnum):
    """What a ledger entry says about a batch."""

    NEW = "new"
    PARTIAL = "partial"
    REPLAY = "replay"


def nothing_logged(_batch_id: int) -> tuple[SourceRange, ...]:
    """Return no ranges: the offset log is unavailable."""
    return ()


def judge(
    entry: LedgerEntry | None,
    batch: MicroBatch,
    *,
    ledger: str,
    running: bool = False,
    logged: Callable[[int], tuple[SourceRange, ...]] = nothing_logged,
    accepted: Collection[int] = (),
) -> Verdict:
    """Decide whether a batch was committed before.

    Args:
        ledger: path of the ledger, for messages.
        running: whether this run has agreed with the ledger before; then a later batch is of another
            run.
        logged: returns the ranges of an earlier batch from Spark's log, nothing when they are unknown;
            called only when batch numbers have a gap.
        accepted: batches that the user has settled.

    Raises:
        FencedError: another run committed a later batch.
        LedgerDivergedError: the entry contradicts the batch: a later batch was committed, the same
            one with other offsets, or the offsets do not continue where the entry ends and Spark's
            log does not say that this is the same checkpoint.
    """
    if entry is None:
        return Verdict.NEW
    where = {**batch.where, "target": entry.target, "ledger": ledger}
    afresh = f"Or, if that is lost, {advice.begin_after(ledger, entry.query_id)}"
    if entry.batch_id > batch.batch_id and running:
        raise FencedError(
            f"Another run of this query has already committed batch {entry.batch_id}",
            remedy="Two drivers share one checkpoint: stop one of them. The other run has written this "
            "batch; this run has not",
            run=entry.run_id,
            **where,
        )
    if entry.batch_id > batch.batch_id:
        raise LedgerDivergedError(
            f"The ledger already holds batch {entry.batch_id}, but Spark runs batch {batch.batch_id}",
            remedy="The checkpoint is older than the ledger: it was restored, or a second run of the query "
            f"is active. Stop other runs, and restore the newest checkpoint. {afresh}",
            **where,
        )
    now = _ranges_of(batch.sources)
    then = _ranges(entry.offsets)
    if entry.batch_id == batch.batch_id:
        if now == then and is_same(entry.other_sources, batch.others):
            return Verdict.REPLAY if entry.is_complete else Verdict.PARTIAL
        raise LedgerDivergedError(
            f"The ledger holds this batch with other offsets: {_render(then)}, now {_render(now)}"
            + ("" if now != then else ", and other offsets of sources that are no queues"),
            remedy=f"{_RESTORE}. {afresh}",
            **where,
        )
    if not entry.is_complete:
        raise LedgerDivergedError(
            f"Only {entry.part} of {entry.part_count} parts of batch {entry.batch_id} were written",
            remedy=_RESTORE,
            **where,
        )
    # Versions of a batch job may be millions apart.
    between = range(entry.batch_id + 1, batch.batch_id)
    # Then the sink was not called for the batches in between.
    is_gap_known = bool(between) and (
        all(number in accepted for number in between) or then == _ranges_of(logged(entry.batch_id))
    )
    for key, (start, _) in now.items():
        end = then[key][1] if key in then else start
        # Rows that are written may come again, too: Spark may abandon a batch, and read on before it.
        if start < end or (start > end and not is_gap_known):
            raise LedgerDivergedError(
                f"Partition {key[-1]} of {key[1]} starts at {start}, but the ledger ends at "
                f"{then[key][1]}",
                remedy=f"{_RESTORE}. If the sink was not called for some batches, call it for every batch, "
                f"empty ones too. {afresh}",
                **where,
            )
    return Verdict.NEW


def require_one_sink(
    entry: LedgerEntry, batch: MicroBatch, commits_sent: Collection[str], *, ledger: str
) -> None:
    """Check that an entry of this very run and batch was written by a call that is known to have been sent.

    The sink finds a second call before it gets here. This check is for a second call that looks like
    another one's, such as a sink with another name of the same ledger. Taken for a replay, its rows would be
    lost, so it is a `RepeatedCallError`.

    Args:
        commits_sent: transactions that this run has tried to commit for this batch.
    """
    of_this_run = entry.run_id == batch.run_id and entry.batch_id == batch.batch_id
    if of_this_run and entry.transaction_id not in commits_sent:
        raise RepeatedCallError(
            "Another sink of this query has written this batch into the same target, but the ledger "
            "holds one entry per query and target",
            remedy="Give one sink several Targets. Or give each sink a target of its own, and set "
            "advance_consumer=False for all sinks of the function except the last",
            **batch.where,
            target=entry.target,
            ledger=ledger,
        )


def require_columns(
    entry: LedgerEntry | None,
    batch: MicroBatch,
    columns: Mapping[str, TargetColumns],
    *,
    ledger: str,
    running: bool = False,
) -> None:
    """Check that a batch has every column that another run has written: without one it would write nulls.

    While one program replaces another, both may run on one checkpoint, and only the newer one knows a new
    column.

    Args:
        columns: of the batch, by target.
        ledger: see `judge`.
        running: see `judge`.

    Raises:
        FencedError: this run has written before, so another one runs beside it.
        SchemaMismatchError: this is an older program, or one that gives a column up.
    """
    if entry is None or entry.run_id == batch.run_id:
        return
    for target, written in entry.columns.items():
        if target not in columns or not (lost := set(written) - set(columns[target].names)):
            continue
        names, where = ", ".join(sorted(lost)), {"target": target, "ledger": ledger, **batch.where}
        if running:
            raise FencedError(
                f"Another run of this query writes columns that this one does not have: {names}",
                remedy="Two drivers share one checkpoint: stop the one with the older program",
                run=entry.run_id,
                **where,
            )
        raise SchemaMismatchError(
            f"The DataFrame lacks columns that this query has written: {names}",
            remedy="Start the newer program. To give a column up, write nulls on purpose: "
            "df.withColumn('NAME', lit(None).cast('TYPE'))",
            run=entry.run_id,
            **where,
        )


def supersedes(later: LedgerEntry, entry: LedgerEntry) -> bool:
    """Return whether another query reads on where this one ended, on behalf of its consumers.

    With the same consumers, or with others that began at the very rows where this query ended.
    """
    if later.query_id == entry.query_id or later.target != entry.target:
        return False
    continued = {key: _continued_by(later, key, entry.offsets[key]) for key in entry.offsets}
    if not continued or not all(key[2] for key in continued):
        return False
    ends = [
        (one.end, read[number].end if number in read else 0)
        for key, read in continued.items()
        for number, one in entry.offsets[key].items()
    ]
    return all(end <= then for end, then in ends) and any(end < then for end, then in ends)


def _continued_by(
    later: LedgerEntry, key: SourceKey, partitions: Mapping[int, PartitionOffset]
) -> Mapping[int, PartitionOffset]:
    """Return how far a query is with a consumer, or with another one of the queue that began at the ends."""
    if key in later.offsets:
        return later.offsets[key]
    others = [
        read for other, read in later.offsets.items() if key[3] and other[2] and other[3] == key[3]
    ]
    ends = {number: one.end for number, one in partitions.items()}
    begins = [
        {number: one.first for number, one in read.items() if number in ends} for read in others
    ]
    return next((read for read, rows in zip(others, begins, strict=True) if rows == ends), {})


def outdates(later: LedgerEntry, entry: LedgerEntry) -> bool:
    """Return whether a later entry of the same query counts in place of one.

    In another ledger the other one is a copy, or was left there. With another target the query has moved on
    to that, or the function had no rows for this one. A sink that moves no consumer may be a batch ahead of
    the last one of its function: it outdates nothing.
    """
    if later.query_id != entry.query_id:
        return False
    if later.target == entry.target:
        return _progress(later) > _progress(entry)
    if not {key[:3] for key in later.offsets} & {key[:3] for key in entry.offsets}:
        return False
    if any(key[2] for key in later.offsets):
        return later.moves_consumer and later.batch_id > entry.batch_id
    # Any sink of the function may be a batch ahead where nothing tells which one is the last.
    return later.batch_id > entry.batch_id + 1


def rows_to_come(last: LedgerEntry, entry: LedgerEntry) -> int:
    """Return how many rows of a batch another sink of its function may still have had to write.

    A function may call the sink that moves the consumer before others. Then a driver that dies between two
    calls leaves their entries a batch behind, as if the function had had no rows for them.

    Args:
        last: of the sink that moves the consumer.
        entry: the newest of the other sink.
    """
    if entry.moves_consumer or entry.target == last.target or entry.batch_id != last.batch_id - 1:
        return 0
    then = {key[:3]: partitions for key, partitions in entry.offsets.items()}
    return sum(
        max(one.end - (then[key[:3]][number].end if number in then[key[:3]] else one.start), 0)
        for key, partitions in last.offsets.items()
        if key[:3] in then
        for number, one in partitions.items()
    )


def _progress(entry: LedgerEntry) -> tuple[int, int, str]:
    return entry.batch_id, entry.part, entry.committed_at


def shares(other: LedgerEntry, entry: LedgerEntry, queue: str, consumer: str) -> bool:
    """Return whether another query moves a consumer of this one too, and neither continues the other."""
    uses = any(key[1:3] == (queue, consumer) for key in other.offsets)
    continues = supersedes(other, entry) or supersedes(entry, other)
    return uses and other.query_id != entry.query_id and not continues


_Partition = tuple[str, str, str, str, int]


def _ranges(offsets: Offsets) -> dict[_Partition, tuple[int, int]]:
    return {
        (*source, number): (one.start, one.end)
        for source, partitions in offsets.items()
        for number, one in partitions.items()
    }


def _ranges_of(sources: Sequence[SourceRange]) -> dict[_Partition, tuple[int, int]]:
    return {
        (*source.key, one.partition): (one.start, one.end)
        for source in sources
        for one in source.partitions
    }


def _render(ranges: dict[_Partition, tuple[int, int]]) -> str:
    return json.dumps({f"{key[1]}[{key[-1]}]": list(value) for key, value in ranges.items()})


def columns_after(
    entry: LedgerEntry | None, columns: Mapping[str, TargetColumns]
) -> dict[str, tuple[str, ...]]:
    """Return what each target has got: a function may have left a column out for one batch."""
    known = entry.columns if entry is not None else {}
    return {
        path: tuple(sorted({*one.names, *known.get(path, ())}))
        for path, one in columns.items()
        if one.is_recorded
    }


def require_same_parts(
    entry: LedgerEntry, batch: MicroBatch, digests: Sequence[str], part_count: int
) -> None:
    """Raise `LedgerDivergedError` if committed parts are not those into which the batch is cut now."""
    both = min(len(digests), len(entry.part_digests))
    if entry.part_count != part_count or tuple(digests[:both]) != entry.part_digests[:both]:
        raise LedgerDivergedError(
            f"The batch differs from the {entry.part} of its {entry.part_count} parts that are written",
            remedy="With split_oversized every run must produce the same rows in the same order, with "
            "the same dyn_batch_size, wire_format, rows_per_tablet_limit, placement and tablets. Restore "
            "these. Or remove the rows of this batch from the target, and start a new checkpoint",
            **batch.where,
            target=entry.target,
        )


def rows_left_out(entry: LedgerEntry, batch: MicroBatch) -> int:
    """Return how many rows lie between a committed batch and this one, in partitions that both know."""
    return sum(
        max(0, one.start - known.end)
        for source in batch.sources
        for one in source.partitions
        if (known := entry.offset(source.key, one.partition)) is not None
    )
