"""What the package reports: event names, one logger, one hook.

Events are named noun first, verb past tense; their fields are ids, counts, sizes and durations. A row
value, an argument dump or a token is never a field. One `batch.committed` or `batch.skipped` line per
batch is written at info, retries at warning, everything else at debug.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
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
    NOTE_FAILED = "note.failed"
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
    Event.SOURCE_ROWS_SKIPPED: "warning",
    Event.SOURCE_QUEUE_REPLACED: "warning",
    Event.NOTE_FAILED: "warning",
    Event.LISTENER_FAILED: "warning",
}


class Emitter(Protocol):
    """Takes one event with its fields."""

    def __call__(self, event: Event, /, **fields: Any) -> None:
        """Report one event."""


Listener = Callable[[str, dict[str, Any]], None]
"""A user's hook: gets the event name and its fields, on the driver, in order.

Its exceptions affect no batch. The first one is logged as `listener.failed`, later ones are not.
"""


class GuardedListener:
    """A listener whose first exception is logged. None of its exceptions leaves it.

    Args:
        listener: the user's hook.
    """

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self._has_failed = False

    def __call__(self, event: str, fields: dict[str, Any]) -> None:
        """Pass an event to the hook."""
        try:
            self._listener(event, fields)
        except Exception as error:  # noqa: BLE001 - a metrics hook must not stop a pipeline
            if not self._has_failed:
                self._has_failed = True
                _log(_logger(), Event.LISTENER_FAILED, of=event, error=repr(error))


def emitter(listener: Listener | None = None, **bound: Any) -> Emitter:
    """Return an emitter that logs through structlog and then calls the listener; it never raises.

    Args:
        listener: metrics hook of the user.
        **bound: fields added to every event.
    """
    logger = _logger().bind(**bound)
    guarded = listener
    if listener is not None and not isinstance(listener, GuardedListener):
        guarded = GuardedListener(listener)

    def emit(event: Event, /, **fields: Any) -> None:
        _log(logger, event, **fields)
        if guarded is not None:
            guarded(event.value, {**bound, **fields})

    return emit


def _log(logger: Any, event: Event, **fields: Any) -> None:
    # A processor of the application may raise, and logging must not stop a pipeline either.
    with suppress(Exception):
        getattr(logger, _LEVELS.get(event, "debug"))(event.value, **fields)


def _logger() -> Any:
    """Return the application's structlog logger, or one on the standard library's.

    Without a configuration structlog prints every event. A library must not decide that.
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
        """Store the time since the last lap under a name."""
        now = time.monotonic()
        self.laps[name] = round(now - self._last, 4)
        self._last = now


@contextmanager
def reported(emit: Emitter) -> Iterator[None]:
    """Emit an event when a batch starts, and when it fails."""
    try:
        emit(Event.BATCH_STARTED)
        yield
    except Exception as error:
        emit(Event.BATCH_FAILED, reason=type(error).__name__, error=str(error))
        raise
