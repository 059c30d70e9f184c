"""Keeps the client's own log lines about our requests out of the application's stderr.

The client logs three warnings for each failed request, and our event says the same in one. So what it logs
while this package calls it goes to the logger `yt_exactly_once.client`, at debug. Calls that the application
makes with a client of its own log as ever. So does everything if `YT_LOG_LEVEL` is set.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from yt import logger_config
from yt.logger import LOGGER as CLIENT

from yt_exactly_once.errors import visible
from yt_exactly_once.observability import LOGGER_NAME

_ours: ContextVar[bool] = ContextVar("_ours", default=False)
_kept = logging.getLogger(f"{LOGGER_NAME}.client")


@contextmanager
def held_back() -> Iterator[None]:
    """Hold the client's log lines back, in this thread."""
    token = _ours.set(True)
    try:
        yield
    finally:
        _ours.reset(token)


class _HoldBack(logging.Filter):
    """Redirects records of our own calls."""

    def filter(self, record: logging.LogRecord) -> bool:
        if not _ours.get() or logger_config.LOG_LEVEL:
            return True
        if _kept.isEnabledFor(logging.DEBUG):
            _kept.debug("%s", visible(record.getMessage()))
        return False


CLIENT.addFilter(_HoldBack("held back by yt_exactly_once"))
