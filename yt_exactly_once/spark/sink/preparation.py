"""What is checked and made once per run, before a sink writes its first row."""

from __future__ import annotations

from typing import TYPE_CHECKING

from yt_exactly_once.codec.rejects import REJECT_SCHEMA
from yt_exactly_once.commit.ledger import LEDGER_SCHEMA
from yt_exactly_once.config import WriteMode
from yt_exactly_once.errors import ConfigError, LedgerError
from yt_exactly_once.observability import Event
from yt_exactly_once.spark.sink.delivery import require_output_mode, require_stateless
from yt_exactly_once.spark.sink.targets import prepare_target
from yt_exactly_once.ytsaurus.queues import require_registration
from yt_exactly_once.ytsaurus.tables import (
    describe_table,
    ensure_producer,
    ensure_table,
    require_columns,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from yt_exactly_once.commit.batch import MicroBatch
    from yt_exactly_once.observability import Emitter
    from yt_exactly_once.spark.sink.options import SinkOptions
    from yt_exactly_once.spark.sink.targets import PreparedTarget
    from yt_exactly_once.ytsaurus.client import Connection


def prepare(
    connection: Connection,
    options: SinkOptions,
    frame: DataFrame,
    batch: MicroBatch,
    emit: Emitter,
) -> tuple[PreparedTarget, ...]:
    """Check everything that can be wrong before the first row; create the tables that a sink keeps.

    Nothing is written into a target, and all of it may be done again.

    Returns:
        The targets, in the order of the options.

    Raises:
        ConfigError: options, query and tables do not go together.
        SchemaMismatchError: the frame does not fit a target.
        TransientError: the cluster could not be asked; nothing is decided.
    """
    for wanted in options.targets:
        require_output_mode(batch, wanted)
    targets = tuple(
        prepare_target(
            connection,
            target,
            frame,
            wire=options.wire_format,
            rows_per_tablet=options.rows_per_tablet_limit,
            show_values=options.show_values,
        )
        for target in options.targets
    )
    if options.mode is WriteMode.IDEMPOTENT:
        require_stateless(batch)
        if not all(target.is_sorted for target in targets):
            ensure_producer(connection, options.producer_path)
    if options.advance_consumer:
        for source in batch.sources:
            if source.consumer is not None:
                require_registration(connection, source.consumer, source.queue)
    ledger = options.ledger_path
    if ensure_table(connection, ledger, LEDGER_SCHEMA, options.ledger_attributes):
        emit(Event.LEDGER_CREATED, path=ledger)
    require_columns(
        describe_table(connection, ledger),
        LEDGER_SCHEMA,
        "a ledger",
        LedgerError,
        "Give a query with a new checkpoint another ledger_path. For one that has a checkpoint bring "
        "the ledger back (or yt alter-table it): an empty one knows no batch that Spark replays",
    )
    if options.reject_to is not None:
        ensure_table(connection, options.reject_to, REJECT_SCHEMA, {})
        rejected = describe_table(connection, options.reject_to)
        require_columns(
            rejected,
            REJECT_SCHEMA,
            "a table of rejected rows",
            ConfigError,
            "Name another path in reject_to, where the table is created",
        )
    return targets
