"""What the package tells about itself: event names, one logger, one hook.

Events are named noun first, verb past tense; their fields are ids, counts, sizes and durations. A row
value, an argument dump or a token is never a field. One `batch.committed` or `batch.skipped` line per
batch is written at info, retries at warning, everything else at debug.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import Any, Protocol

import structlog

LOGGER_NAME = "yt_exactly_once"
"""Name of the logger, for structlog and for the standard library."""


class Event(StrEnum):
    """Every event of the package."""

    BATCH_STARTED = "batch.started"
    LEDGER_READ = "ledger.read"
    BATCH_COMPUTED = "batch.computed"
    BATCH_SKIPPED = "batch.skipped"
    BATCH_COMMITTED = "batch.committed"
    BATCH_FAILED = "batch.failed"
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
    SOURCE_ROWS_SKIPPED = "source.rows_skipped"
    SOURCE_QUEUE_REPLACED = "source.queue_replaced"


_LEVELS = {
    Event.BATCH_COMMITTED: "info",
    Event.BATCH_SKIPPED: "info",
    Event.LEDGER_CREATED: "info",
    Event.BATCH_FAILED: "error",
    Event.RETRY_SCHEDULED: "warning",
    Event.COMMIT_OUTCOME_UNKNOWN: "warning",
    Event.COMMIT_OUTCOME_RESOLVED: "warning",
    Event.ROWS_REJECTED: "warning",
    Event.SOURCE_ROWS_SKIPPED: "warning",
    Event.SOURCE_QUEUE_REPLACED: "warning",
}


class Emitter(Protocol):
    """Takes one event with its fields."""

    def __call__(self, event: Event, /, **fields: Any) -> None:
        """Tell that something has happened."""


Listener = Callable[[str, dict[str, Any]], None]
"""A user's hook: gets the event name and its fields, on the driver, in order.

An exception it raises fails the batch; Spark then replays it.
"""


def emitter(listener: Listener | None = None, **bound: Any) -> Emitter:
    """Return an emitter that logs through structlog and then calls the listener.

    Args:
        listener: metrics hook of the user.
        **bound: fields added to every event.
    """
    logger = _logger().bind(**bound)

    def emit(event: Event, /, **fields: Any) -> None:
        getattr(logger, _LEVELS.get(event, "debug"))(event.value, **fields)
        if listener is not None:
            listener(event.value, {**bound, **fields})

    return emit


def _logger() -> Any:
    """Return the application's structlog logger, or one on the standard library's.

    structlog prints every event unless it is configured, which is not for a library to decide.
    """
    if structlog.is_configured():
        return structlog.get_logger(LOGGER_NAME)
    return structlog.wrap_logger(
        logging.getLogger(LOGGER_NAME),
        processors=[
            structlog.stdlib.filter_by_level,
            structlog.processors.KeyValueRenderer(key_order=["event"]),
        ],
        wrapper_class=structlog.stdlib.BoundLogger,
    )


class Clock:
    """Wall time between laps, in seconds."""

    def __init__(self) -> None:
        self.laps: dict[str, float] = {}
        self._last = time.monotonic()

    def lap(self, name: str) -> None:
        """Give the time since the last lap a name."""
        now = time.monotonic()
        self.laps[name] = round(now - self._last, 4)
        self._last = now


@contextmanager
def reported(emit: Emitter) -> Iterator[None]:
    """Tell of a batch that starts, and of one that fails."""
    emit(Event.BATCH_STARTED)
    try:
        yield
    except Exception as error:
        emit(Event.BATCH_FAILED, reason=type(error).__name__, error=str(error))
        raise
