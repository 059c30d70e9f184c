"""Where events are logged: through the application's logging, or as plain lines where it has none.

The application decides, whenever it wants: with structlog, with the standard library, or not at all. This
module configures neither. It writes to stderr itself only as long as nobody else would.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TextIO

from yt_exactly_once.errors import visible
from yt_exactly_once.observability.events import level_of

if TYPE_CHECKING:
    from yt_exactly_once.observability.events import Event

LOGGER_NAME = "yt_exactly_once"
"""Name of the logger, for structlog and for the standard library."""

_FIRST = ("batch", "rows", "seconds", "attempt", "attempts", "wait", "proxy", "target")
_LAST = ("query", "mode", "transaction")
"""What a reader looks for comes first in a line, and long ids come last."""


class _Stderr(logging.StreamHandler[TextIO]):
    """Writes to what is stderr at that moment: notebooks and tests replace it."""

    def __init__(self) -> None:
        logging.Handler.__init__(self)
        self.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))

    @property
    def stream(self) -> TextIO:  # type: ignore[override]
        return sys.stderr


_FALLBACK = _Stderr()


def write(event: Event, fields: Mapping[str, Any]) -> None:
    """Log one event; it never raises."""
    # A processor or handler of the application may raise, and logging must not stop a pipeline.
    with suppress(Exception):
        level = level_of(event, fields)
        # Whoever configures structlog imports it. A Python worker of Spark does without, and starts sooner.
        structlog = sys.modules.get("structlog")
        if structlog is not None and structlog.is_configured():
            getattr(structlog.get_logger(LOGGER_NAME), level)(event.value, **fields)
            return
        logger, number = (
            logging.getLogger(LOGGER_NAME),
            logging.getLevelNamesMapping()[level.upper()],
        )
        if logger.hasHandlers():
            if logger.isEnabledFor(number):
                extra = {"event": event.value, "fields": dict(fields)}
                logger.log(number, "%s", line(event, fields), extra=extra)
        elif number >= (logger.level or logging.INFO) and logger.manager.disable < number:
            _FALLBACK.handle(
                logger.makeRecord(LOGGER_NAME, number, "", 0, line(event, fields), (), None)
            )


def line(event: Event, fields: Mapping[str, Any]) -> str:
    """Return an event as one line that people read: its name, its fields, and the error at the end."""
    names = [name for name in _FIRST if name in fields]
    names += [name for name in fields if name not in {*_FIRST, *_LAST, "error"}]
    names += [name for name in _LAST if name in fields]
    words = [event.value, *(f"{name}={_shown(fields[name])}" for name in names)]
    error = " ".join(str(fields["error"]).split()) if "error" in fields else ""
    return visible(" ".join(words) + (f": {error}" if error else ""))


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return ",".join(f"{name}:{_shown(inner)}" for name, inner in value.items())
    if isinstance(value, float):
        return f"{value:.3f}"
    text = str(value)
    return repr(text) if " " in text else text
