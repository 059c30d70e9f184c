"""The names of the events, and how important each one is."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any


class Event(StrEnum):
    """Every event of the package."""

    BATCH_STARTED = "batch.started"
    LEDGER_READ = "ledger.read"
    BATCH_COMPUTED = "batch.computed"
    BATCH_SKIPPED = "batch.skipped"
    BATCH_COMMITTED = "batch.committed"
    BATCH_FAILED = "batch.failed"
    BATCHES_LEFT_OUT = "batches.left_out"
    LEDGER_CREATED = "ledger.created"
    TRANSACTION_STARTED = "transaction.started"
    ROWS_REJECTED = "rows.rejected"
    ROWS_WRITTEN = "rows.written"
    OFFSETS_ADVANCED = "offsets.advanced"
    LEDGER_RECORDED = "ledger.recorded"
    TRANSACTION_COMMITTED = "transaction.committed"
    TRANSACTION_ABORTED = "transaction.aborted"
    COMMIT_OUTCOME_UNKNOWN = "commit.outcome_unknown"
    COMMIT_OUTCOME_RESOLVED = "commit.outcome_resolved"
    RETRY_SCHEDULED = "retry.scheduled"
    SOURCE_LOOKED = "source.looked"
    SOURCE_ROWS_SKIPPED = "source.rows_skipped"
    SOURCE_QUEUE_REPLACED = "source.queue_replaced"
    HISTORY_FAILED = "history.failed"
    SOURCE_RUN_LIMITED = "source.run_limited"
    NOTE_FAILED = "note.failed"
    NOTES_MISSING = "notes.missing"
    WARM_UP_FAILED = "warm_up.failed"
    QUERY_STARTED = "query.started"
    QUERY_PROGRESSED = "query.progressed"
    QUERY_STOPPED = "query.stopped"
    LISTENER_FAILED = "listener.failed"


_LEVELS = {
    Event.BATCH_COMMITTED: "info",
    Event.BATCH_SKIPPED: "info",
    Event.LEDGER_CREATED: "info",
    Event.BATCH_FAILED: "error",
    Event.RETRY_SCHEDULED: "warning",
    Event.COMMIT_OUTCOME_UNKNOWN: "warning",
    Event.COMMIT_OUTCOME_RESOLVED: "warning",
    Event.ROWS_REJECTED: "warning",
    Event.BATCHES_LEFT_OUT: "warning",
    Event.SOURCE_ROWS_SKIPPED: "warning",
    Event.SOURCE_QUEUE_REPLACED: "warning",
    Event.HISTORY_FAILED: "warning",
    Event.SOURCE_RUN_LIMITED: "warning",
    Event.NOTE_FAILED: "warning",
    Event.NOTES_MISSING: "warning",
    Event.QUERY_STARTED: "info",
    Event.QUERY_STOPPED: "info",
    Event.LISTENER_FAILED: "warning",
}


def level_of(event: Event, fields: Mapping[str, Any]) -> str:
    """Return the level at which an event is logged: debug, info, warning or error."""
    if event is Event.BATCH_SKIPPED and fields.get("rows"):
        # It is right after a crash. But whoever looks for missing rows must find it.
        return "warning"
    if event is Event.QUERY_STOPPED and fields.get("reason"):
        return "error"
    return _LEVELS.get(event, "debug")
