"""What is checked and made once per run, before a sink writes its first row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from yt_exactly_once import config
from yt_exactly_once.codec.rejects import REJECT_SCHEMA
from yt_exactly_once.commit import ledger as ledger_table
from yt_exactly_once.commit.batch import MicroBatch, SourceRange
from yt_exactly_once.commit.entry import LEDGER_VERSION
from yt_exactly_once.delivery.memory import Prepared
from yt_exactly_once.errors import AccessError, ConfigError, LedgerError, TransientError
from yt_exactly_once.observability import Event
from yt_exactly_once.retrying import run_attempts
from yt_exactly_once.spark.engine.look_up import require_cluster
from yt_exactly_once.spark.engine.run import Delivery, Rows
from yt_exactly_once.spark.modes.mode import Columns, Mode
from yt_exactly_once.spark.query.offset_log import read_twice
from yt_exactly_once.spark.sink.fan_out import FanOut
from yt_exactly_once.spark.sink.options import SinkOptions
from yt_exactly_once.spark.sink.target import Target
from yt_exactly_once.spark.sink.targets import (
    PreparedTarget,
    are_the_same,
    prepare_target,
    require_no_local_times,
)
from yt_exactly_once.ytsaurus import tables
from yt_exactly_once.ytsaurus.browsing import attributes_of
from yt_exactly_once.ytsaurus.queues import require_registration
from yt_exactly_once.ytsaurus.tombstones import check_tombstones, ensure_tombstones

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from yt_exactly_once.spark.compat.plan import PlannedQuery
    from yt_exactly_once.ytsaurus.client import Connection

_OTHER_LEDGER = (
    "Give a query with a new checkpoint another ledger_path. For one that has a checkpoint restore the "
    "ledger: an empty one has no entry of a batch that Spark replays"
)
_OTHER_DEAD_LETTER_PATH = "Name another path in dead_letter_path: the sink creates the table there"

_LEDGER = "a ledger", LedgerError, _OTHER_LEDGER
_DEAD_LETTERS = REJECT_SCHEMA, "a dead-letter table", ConfigError, _OTHER_DEAD_LETTER_PATH
"""What the sink's own tables must have, what they are for, and the error and the remedy otherwise."""


def prepare_again(delivery: Delivery) -> Prepared:
    """Return the targets of a batch, prepared for its rows: as the run knows them, while that is enough.

    What can be wrong before the first row of a run is checked once. The targets are checked again now and
    then. A table that replaced one since would store rows that were encoded for the old one, perhaps wrongly.
    """
    options, connection = delivery.mode.options, delivery.mode.connection
    schema, before = delivery.rows.schema, delivery.memory.prepared
    known = before and before.with_answer()
    if known and known.fits(schema):
        return known

    def attempt(number: int) -> Prepared:
        try:
            if known is None and number == 1:
                # Later attempts leave the client its patience.
                connection.require_proxy()
            cluster_id = known.cluster_id if known else require_cluster(delivery)
            if known and known.schema == schema and are_the_same(connection, known.targets):
                return Prepared(schema, known.targets, cluster_id)
            return Prepared(schema, prepare(delivery), cluster_id)
        except TransientError as error:
            connection.unpin()
            raise error.extended(proxy=options.cluster.proxy) from error

    return run_attempts(attempt, options.retry, delivery.emit)


def prepare(delivery: Delivery) -> tuple[PreparedTarget, ...]:
    """Check all that can be wrong before the first row; create a sink's own tables, and return its targets.

    Nothing is written into a target, and all of it may be done again. What does not go together is a
    `ConfigError` or a `SchemaMismatchError`; after a `TransientError` nothing is decided.
    """
    batch, rows, mode = delivery.batch, delivery.rows, delivery.mode
    options, connection = mode.options, mode.connection
    for target in options.targets:
        require_output_mode(batch, target)
    dyn_batch_size = options.effective_dyn_batch_size(rows.conf(config.DYN_BATCH_SIZE_CONF))
    targets = tuple(
        _prepared(connection, target, rows.schema_for(target), options, dyn_batch_size)
        for target in options.targets
    )
    for target, prepared in zip(options.targets, targets, strict=True):
        require_no_local_times(prepared, rows.local_times(target))
        # One that grows is prepared again, and may get the sequence then.
        if target.changes is not None and prepared.wanted is None:
            ensure_tombstones(connection, target.path, target.changes)
    mode.prepare(batch, targets)
    for prepared in targets:
        if prepared.ignored:
            delivery.emit(Event.COLUMNS_IGNORED, path=prepared.path, columns=prepared.ignored)
    if options.advance_consumer:
        for source in batch.sources:
            if source.consumer is not None:
                require_registration(connection, source.consumer, source.queue)
    _prepare_ledger(delivery)
    if options.dead_letter_path is not None:
        tables.ensure_table(connection, options.dead_letter_path, REJECT_SCHEMA, {})
        rejected = tables.describe_table(connection, options.dead_letter_path)
        tables.require_columns(rejected, *_DEAD_LETTERS)
        tables.mark_letters(connection, options.dead_letter_path)
    return targets


def _prepared(
    connection: Connection,
    target: Target,
    written: StructType,
    options: SinkOptions,
    dyn_batch_size: int = config.DEFAULT_DYN_BATCH_SIZE,
) -> PreparedTarget:
    """Return a target that fits the DataFrame; of a pattern that it may, since its rows name the tables."""
    if target.pattern is not None:
        return FanOut.prepare(target, written, options, dyn_batch_size)
    return prepare_target(connection, target, written, options, dyn_batch_size)


def _ledger_columns(options: SinkOptions) -> Sequence[Mapping[str, Any]]:
    """Return the columns that a ledger must have: an earlier version created some without that of tables."""
    has_patterns = any(target.pattern for target in options.targets)
    return ledger_table.LEDGER_SCHEMA if has_patterns else ledger_table.EARLIER_LEDGER_SCHEMA


def _prepare_ledger(delivery: Delivery) -> None:
    options, connection = delivery.mode.options, delivery.mode.connection
    ledger, mark = options.ledger, {ledger_table.LEDGER_MARK: LEDGER_VERSION}
    found = attributes_of(connection, ledger, [*mark])
    ledger_table.require_known_ledger(found or {}, ledger)
    attributes = {**(options.ledger_attributes or {}), **mark}
    if tables.ensure_table(connection, ledger, ledger_table.LEDGER_SCHEMA, attributes):
        delivery.emit(Event.LEDGER_CREATED, path=ledger)
    info = tables.describe_table(connection, ledger)
    info.require_mounted()
    tables.require_columns(info, _ledger_columns(options), *_LEDGER)
    if found is not None and ledger_table.LEDGER_MARK not in found:
        # By which tools find the table; who may not set it goes without.
        with suppress(AccessError):
            tables.set_attribute(connection, ledger, ledger_table.LEDGER_MARK, LEDGER_VERSION)


def check_before_start(mode: Mode, rows: Rows, output_mode: str | None) -> None:
    """Check what `prepare` checks, and raise what it raises, without a running query. Create nothing."""
    options, connection = mode.options, mode.connection
    ordered = {}
    for target in options.targets:
        if output_mode is not None:
            require_output_mode(MicroBatch("", 0, "", output_mode=output_mode.lower()), target)
        columns = rows.schema_for(target)
        prepared = _prepared(connection, target, columns, options)
        require_no_local_times(prepared, rows.local_times(target))
        if not prepared.is_sorted:
            ordered[target.path] = columns.names
        if target.changes is not None and prepared.wanted is None:
            check_tombstones(connection, target.path, target.changes)
    kept = (
        (options.ledger, (_ledger_columns(options), *_LEDGER)),
        (options.dead_letter_path, _DEAD_LETTERS),
    )
    for path, needs in kept:
        found = attributes_of(connection, path, [ledger_table.LEDGER_MARK]) if path else None
        if path and found is not None:
            ledger_table.require_known_ledger(found, path)
            info = tables.describe_table(connection, path)
            tables.require_columns(info, *needs)
            if info.tablet_state == "frozen":
                info.require_mounted()
    planned = rows.planned()
    if planned is not None:
        _check_query(mode, planned, ordered)


def _check_query(mode: Mode, planned: PlannedQuery, ordered: Columns) -> None:
    """Check what is known of the query: its queues, their consumers, and whether it fits the mode."""
    queues = [(one.queue, one.consumer) for one in planned.sources if one.queue]
    for queue, consumer in queues:
        if queues.count((queue, consumer)) > 1:
            raise read_twice(queue, consumer)
    batch = MicroBatch(
        "",
        0,
        "",
        sources=tuple(SourceRange("", queue, consumer or None, ()) for queue, consumer in queues),
        stateful=planned.stateful,
        others="others" if len(queues) < len(planned.sources) else "",
    )
    mode.require_query(batch, ordered, shuffles=planned.shuffles)
    if mode.options.advance_consumer:
        for one in planned.sources:
            if one.consumer and one.proxy in {"", mode.options.cluster.proxy}:
                require_registration(mode.connection, one.consumer, one.queue)


def require_output_mode(batch: MicroBatch, target: Target) -> None:
    """Raise `ConfigError` if a result is replaced that is not complete, or added up although it is.

    Or if the output mode is not known, and it matters.
    """
    complete = batch.output_mode == "complete"
    where = {"query": batch.query_id, "target": target.path}
    if batch.output_mode is None and (target.replaces or target.aggregate):
        option = "write='replace'" if target.replaces else "aggregate"
        raise ConfigError(
            f"{option} depends on the output mode of the query, and a session without a JVM (Spark Connect) "
            "does not show it",
            remedy=f"Run the query in a session with a JVM, or leave {option} out",
            **where,
        )
    if target.replaces and not complete:
        raise ConfigError(
            f"write='replace' is for output mode complete, and this query has {batch.output_mode}: "
            "rows of earlier batches would be deleted",
            remedy="Use outputMode('complete'), or leave write out",
            **where,
        )
    if target.aggregate and complete:
        raise ConfigError(
            "aggregate would add the whole result again with every batch of output mode complete",
            remedy="Leave aggregate out, and use write='replace'",
            **where,
        )
