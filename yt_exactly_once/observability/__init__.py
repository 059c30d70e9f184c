"""What the package reports: event names, one logger, hooks.

Events are named noun first, verb past tense; their fields are ids, counts, sizes and durations. A row
value, an argument dump or a token is never a field. One `batch.committed` or `batch.skipped` line per
batch is written at info, retries and skipped rows at warning, everything else at debug.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from yt_exactly_once.errors import without_secrets
from yt_exactly_once.observability import channel
from yt_exactly_once.observability.events import Event
from yt_exactly_once.observability.logs import LOGGER_NAME, write

__all__ = [
    "LOGGER_NAME",
    "Clock",
    "Emitter",
    "Event",
    "GuardedListener",
    "Listener",
    "emitter",
    "listen",
    "publish",
    "reported",
]


_RAISED = re.compile(r"^(?:\w+\.)*(\w+(?:Error|Exception))(?:: (.*))?$", re.MULTILINE)
"""What the last line of a Python traceback looks like."""


class Emitter(Protocol):
    """Takes one event with its fields."""

    def __call__(self, event: Event, /, **fields: Any) -> None:
        """Report one event."""


Listener = Callable[[str, dict[str, Any]], None]
"""A user's hook: gets the event name and its fields, on the driver, in order.

Its exceptions affect no batch. The first one is logged as `listener.failed`, later ones are not.
"""


class GuardedListener:
    """A listener whose first exception is logged. None of its exceptions leaves it."""

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
                write(Event.LISTENER_FAILED, {"of": event, "error": repr(error)})


_listeners: dict[GuardedListener, None] = {}
"""What listens to every event of this process, whichever sink it is of."""


def listen(listener: Listener) -> Callable[[], None]:
    """Call a listener with every event of this process, from now on.

    Returns:
        Ends it.
    """
    guarded = GuardedListener(listener)
    _listeners[guarded] = None
    return lambda: _listeners.pop(guarded, None)


def publish(event: str, fields: dict[str, Any]) -> None:
    """Call the listeners of this process with an event; it never raises."""
    for each in tuple(_listeners):
        each(event, fields)


def emitter(listener: Listener | None = None, **bound: Any) -> Emitter:
    """Return an emitter that logs an event and then calls the listeners; it never raises.

    In a worker of Spark it sends the event to the driver too, if telemetry is enabled there.

    Args:
        **bound: fields added to every event.
    """
    guarded = listener
    if listener is not None and not isinstance(listener, GuardedListener):
        guarded = GuardedListener(listener)

    def emit(event: Event, /, **fields: Any) -> None:
        given = {**bound, **fields}
        write(event, given)
        if guarded is not None:
            guarded(event.value, given)
        publish(event.value, given)
        channel.send(event, given)

    return emit


class Clock:
    """Wall time between laps, in seconds.

    Attributes:
        began: on the monotonic clock.
    """

    def __init__(self) -> None:
        self.laps: dict[str, float] = {}
        self.began = self._last = time.monotonic()

    def lap(self, name: str) -> float:
        """Store the time since the last lap under a name, and return it."""
        now = time.monotonic()
        self.laps[name] = round(now - self._last, 4)
        self._last = now
        return self.laps[name]


@contextmanager
def reported(emit: Emitter) -> Iterator[None]:
    """Emit an event when a batch starts, and when it fails."""
    try:
        emit(Event.BATCH_STARTED)
        yield
    except Exception as error:
        reason, text = _cause(error)
        emit(Event.BATCH_FAILED, reason=reason, error=without_secrets(text))
        raise


def _cause(error: Exception) -> tuple[str, str]:
    """Return the class and the text of an error, or of the one in a task that Spark brings."""
    text, kind = str(error), type(error).__name__
    of_task = text.partition("\n\nJVM stacktrace")[0] if kind == "PythonException" else ""
    raised = _RAISED.findall(of_task)
    return raised[-1] if raised else (kind, text)
