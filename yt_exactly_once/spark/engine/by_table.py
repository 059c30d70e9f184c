"""The rows of a target, encoded: where it is a pattern, each table gets its own as if it were a target."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from yt_exactly_once.commit.tally import Tally
from yt_exactly_once.config import replayed_beside
from yt_exactly_once.errors import BatchTooLargeError
from yt_exactly_once.observability import Event
from yt_exactly_once.retrying import run_attempts
from yt_exactly_once.spark.sink.encode import PartitionsUnknownError
from yt_exactly_once.spark.sink.fan_out import FanOut
from yt_exactly_once.spark.sink.letters import letters_of, rejects_of
from yt_exactly_once.spark.sink.targets import require_no_local_times
from yt_exactly_once.ytsaurus.tombstones import tombstones_of

if TYPE_CHECKING:
    import pyarrow as pa

    from yt_exactly_once.commit.parts import TargetRows
    from yt_exactly_once.spark.engine.run import Delivery, Rows
    from yt_exactly_once.spark.modes.mode import Assignment, TargetBatch
    from yt_exactly_once.spark.sink.options import SinkOptions
    from yt_exactly_once.spark.sink.targets import PreparedTarget


def of_target(
    delivery: Delivery, rows: Rows, given: TargetBatch, before: Sequence[TargetRows]
) -> tuple[PreparedTarget, list[TargetRows]]:
    """Compute the rows of a target, and return it, if it is a pattern with the tables that they name.

    Args:
        before: rows of other targets of the batch.
    """
    target, assignment = given.target, delivery.mode.assign(given)
    arrived = rows.compute(assignment)
    if isinstance(target, FanOut):
        taken, local = {one.path for one in before}, rows.local_times(target.options)
        return _by_table(delivery, assignment, target, arrived, taken, local)
    return target, _finished(delivery, assignment, arrived)


def _by_table(
    delivery: Delivery,
    assignment: Assignment,
    target: FanOut,
    arrived: Iterable[pa.RecordBatch],
    taken: Collection[str],
    local: Collection[str],
) -> tuple[FanOut, list[TargetRows]]:
    """Return the rows of each table. The tables are there before the transaction that writes to them."""
    mode, batch = delivery.mode, delivery.batch
    options, rejects = mode.options, rejects_of(mode.options.dead_letter_path, batch)
    queues = (path for source in batch.sources for path in (source.queue, source.consumer))
    targets = (one.path for one in options.targets)
    used = {*taken, *targets, *_tables_of(options), *filter(None, queues)}
    found, letters = target.deal(arrived, used, rejects)
    known = delivery.memory.tallies.get(target.path, Tally()).tables
    target, made = run_attempts(
        lambda _: target.with_tables(mode.connection, [*found], known), options.retry, delivery.emit
    )
    for table in target.tables.values():
        require_no_local_times(table, local)
    if made:
        delivery.emit(Event.TABLES_CREATED, path=target.path, tables=len(made))
    written = []
    for path in [*found]:
        given = replace(assignment.given, target=target.tables[path])
        # The rows of a table are forgotten when they are encoded.
        own = map(target.without_names(path), found.pop(path))
        for one in _finished(delivery, replace(assignment, given=given), own):
            if one.rejected_by:
                letters += [payload for group in one.groups for payload in group]
            else:
                written.append(replace(one, pattern=target.path, is_new=path in made))
    if rejects is not None and letters:
        written.append(letters_of(rejects, letters, target.path))
    return target, written


def _tables_of(options: SinkOptions) -> Iterator[str]:
    """Yield the paths of all tables that a sink, or a tool for it, creates beside its targets."""
    yield from (options.ledger, options.claims, options.producer)
    if options.dead_letter_path is not None:
        yield from (options.dead_letter_path, replayed_beside(options.dead_letter_path))
    if options.history_path is not None:
        yield options.history_path
    yield from (tombstones_of(one.path) for one in options.targets if one.changes is not None)


def _finished(
    delivery: Delivery, assignment: Assignment, arrived: Iterable[pa.RecordBatch]
) -> list[TargetRows]:
    try:
        return delivery.mode.finish(assignment, arrived)
    except BatchTooLargeError as error:
        if assignment.by_ends and assignment.given.target.spreads_partitions:
            raise PartitionsUnknownError from error
        raise
