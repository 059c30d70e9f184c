"""The names of the events, and how important each one is."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Self


class Event(StrEnum):
    """Every event of the package, and the level at which it is logged where that is not debug."""

    level: str

    def __new__(cls, name: str, level: str = "debug") -> Self:
        """Return a member whose value is its name."""
        member = str.__new__(cls, name)
        member._value_, member.level = name, level
        return member

    BATCH_STARTED = "batch.started"
    LEDGER_READ = "ledger.read"
    BATCH_COMPUTED = "batch.computed"
    BATCH_SKIPPED = "batch.skipped", "info"
    BATCH_COMMITTED = "batch.committed", "info"
    BATCH_FAILED = "batch.failed", "error"
    BATCHES_LEFT_OUT = "batches.left_out", "warning"
    LEDGER_CREATED = "ledger.created", "info"
    TABLES_CREATED = "tables.created", "info"
    COLUMNS_ADDED = "columns.added", "warning"
    COLUMNS_IGNORED = "columns.ignored", "warning"
    TRANSACTION_STARTED = "transaction.started"
    ROWS_REJECTED = "rows.rejected", "warning"
    ROWS_WRITTEN = "rows.written"
    OFFSETS_ADVANCED = "offsets.advanced"
    LEDGER_RECORDED = "ledger.recorded"
    LINEAGE_FAILED = "lineage.failed", "warning"
    TRANSACTION_COMMITTED = "transaction.committed"
    TRANSACTION_ABORTED = "transaction.aborted"
    COMMIT_OUTCOME_UNKNOWN = "commit.outcome_unknown", "warning"
    COMMIT_OUTCOME_RESOLVED = "commit.outcome_resolved", "warning"
    RETRY_SCHEDULED = "retry.scheduled", "warning"
    SOURCE_LOOKED = "source.looked"
    SOURCE_ROWS_SKIPPED = "source.rows_skipped", "warning"
    SOURCE_QUEUE_REPLACED = "source.queue_replaced", "warning"
    SOURCE_COLUMNS_LEFT_OUT = "source.columns_left_out", "warning"
    HISTORY_FAILED = "history.failed", "warning"
    SOURCE_RUN_LIMITED = "source.run_limited", "warning"
    NOTE_FAILED = "note.failed", "warning"
    NOTES_MISSING = "notes.missing", "warning"
    WARM_UP_FAILED = "warm_up.failed"
    QUERY_STARTED = "query.started", "info"
    QUERY_PROGRESSED = "query.progressed"
    QUERY_STOPPED = "query.stopped", "info"
    LISTENER_FAILED = "listener.failed", "warning"


def level_of(event: Event, fields: Mapping[str, Any]) -> str:
    """Return the level at which an event is logged: debug, info, warning or error."""
    if event is Event.BATCH_SKIPPED and fields.get("rows"):
        # It is right after a crash. But whoever looks for missing rows must find it.
        return "warning"
    if event is Event.QUERY_STOPPED and fields.get("reason"):
        return "error"
    return event.level
