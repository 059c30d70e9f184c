"""What a sink checks about the past of its query, once per run, and about the caller, once per batch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from yt_exactly_once.commit.history import (
    is_noted,
    note_ledger,
    require_ledger,
    require_whole,
)
from yt_exactly_once.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

    from yt_exactly_once.commit.batch import MicroBatch
    from yt_exactly_once.commit.ledger import CommitLedger, LedgerEntry
    from yt_exactly_once.spark.query.calls import Call, Place
    from yt_exactly_once.spark.query.offset_log import OffsetLog
    from yt_exactly_once.spark.sink.options import SinkOptions


def compare_history(
    options: SinkOptions,
    call: Call,
    entry: LedgerEntry | None,
    batch: MicroBatch,
    ledger: CommitLedger,
    ledger_id: str,
    may_be_written: Callable[[], bool],
) -> None:
    """Compare the notes in the checkpoint with the ledger, before this run's first row.

    Args:
        options: of the sink.
        call: the call under way.
        entry: what the ledger holds.
        batch: the batch.
        ledger: the ledger.
        ledger_id: object id of its table.
        may_be_written: tells, by Spark's log, whether rows may have been written before this run.

    Raises:
        IncompleteBatchError: the target lacks rows of an earlier batch.
        LedgerMissingError: the ledger may have had an entry.
    """
    notes = call.place.notes
    known = notes.all()
    require_whole(known, entry, batch, ledger, options.accepted)
    if entry is None:
        require_ledger(
            known,
            batch,
            ledger,
            ledger_id,
            accepted=options.accepted,
            may_be_new=options.new_ledger,
            may_be_written=may_be_written,
        )
    note_ledger(notes, known, batch, ledger, ledger_id)
    # An entry is what tells later that this batch is whole.
    call.records = entry is None or is_noted(known, ledger, batch.batch_id)
    call.compared()


def require_waiting(offset_log: OffsetLog, batch: MicroBatch, place: Place) -> None:
    """Check that the function waits for its sink.

    Raises:
        ConfigError: Spark has logged the batch as done before the sink has returned.
    """
    if offset_log.has_ended(place):
        raise ConfigError(
            "Spark had logged the batch as done before the sink had written it",
            remedy="The function returned before its sink did: wait in the function for every sink "
            "that it calls, and let errors through. This batch is written",
            query=batch.query_id,
            batch=batch.batch_id,
        )
