"""What a failed command answers: the error of whatever was raised, whichever front it came through."""

from __future__ import annotations

import logging
import sqlite3

from yt.yson.yson_types import NotUnicodeError

from yt_exactly_once.local.commands.registry import Context
from yt_exactly_once.local.errors import Code, YtError

_LOGGER = logging.getLogger(__name__)


def as_error(raised: Exception, context: Context | None = None) -> YtError:
    """Turn anything that a handler raised into an error of the wire."""
    if isinstance(raised, YtError):
        error = raised
    elif isinstance(raised, sqlite3.OperationalError) and "locked" in str(raised):
        error = YtError("The store is busy; try again later", Code.UNAVAILABLE)
    elif isinstance(raised, NotUnicodeError):
        error = YtError(
            "A parameter or the name of an attribute is not UTF-8; the embedded cluster takes other"
            " bytes in values only"
        )
    else:
        name = context.command if context else "request"
        _LOGGER.error("Internal error in %s", name, exc_info=raised)
        error = YtError("Internal error", exception=f"{type(raised).__name__}: {raised}")
    path = context.parameters.get("path") if context else None
    if isinstance(path, str):
        error.attributes.setdefault("path", str(path))
    return error
