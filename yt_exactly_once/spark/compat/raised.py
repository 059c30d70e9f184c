"""Errors on their way out of the package: what Spark prints of them, and the way back from Spark's own.

Spark passes an error on as text: the chain of its causes, then the frames, then the message. Here the message
comes first, and the error itself is kept for those who want to branch on it.
"""

from __future__ import annotations

import re
from threading import Lock
from traceback import format_exception
from typing import Any

from yt_exactly_once import errors
from yt_exactly_once.errors import ExactlyOnceError, visible, without_secrets

_KEPT = 100
"""Errors of so many runs are kept; a process rarely has more queries."""

_lock = Lock()

_RUN = re.compile(r"runId = ([0-9a-f-]{36})")
_NAMED = re.compile(r"\b(?:yt_exactly_once\.errors\.)?(\w+Error): ")
_ENDS = re.compile(
    r"\n\n(?:The above exception|During handling)|\n\s*at |\n\s*JVM stacktrace|\n=== |\nTraceback |\n  File "
    r"|\n? SQLSTATE: "
)
_MESSAGE = re.compile(r"(?P<what>.*) \[(?P<where>\w+=.*)\]\.(?: (?P<remedy>.*)\.)?", re.DOTALL)
_OWN = {"what", "remedy", "details"}
_BETWEEN = re.compile(r", (?=\w+=)")


_last: dict[str, ExactlyOnceError] = {}
"""The last error of each run of a query in this process, the newest at the end."""


def keep_error(run_id: str, error: ExactlyOnceError) -> None:
    """Keep an error of a run that is about to leave the package."""
    with _lock:
        _last.pop(run_id, None)
        _last[run_id] = error
        while len(_last) > _KEPT:
            del _last[next(iter(_last))]


def raised_to_spark(error: ExactlyOnceError) -> ExactlyOnceError:
    """Return the error to raise to Spark in the place of another one.

    It has no frames inside the package, and its cause is the same error without any frames. So whatever
    prints the chain begins with the message. Where the other one was raised, and from what, is kept as text:
    frames would keep the rows of the batch.
    """
    shown, first = error.extended(), error.extended()
    shown.remote = first.remote = _remote(error)
    shown.trace = without_secrets("".join(format_exception(error)))
    shown.__cause__ = first
    return shown


def exactly_once_error(exception: BaseException) -> ExactlyOnceError | None:
    """Return the error of this package that an exception carries, to branch on its class and its ids.

    For the `StreamingQueryException` of `awaitTermination` or `query.exception()`, and for any that was
    raised from one of this package's. In the process of the driver it is the same object. An error of the
    source, or of another process, is read from the text. Its class and message are then right, and the values
    of `where` are strings.

    Args:
        exception: any exception.

    Returns:
        `None` if it carries none.
    """
    seen: set[int] = set()
    current: BaseException | None = exception
    while current is not None and id(current) not in seen:
        if isinstance(current, ExactlyOnceError):
            return current
        seen.add(id(current))
        current = current.__cause__ or current.__context__
    text = str(exception)
    run = _RUN.search(text)
    kept = _last.get(run[1]) if run else None
    if kept is not None and visible(kept.what) in text:
        return kept
    return _read(text)


def _remote(error: ExactlyOnceError) -> BaseException | None:
    if error.remote is not None:
        return error.remote
    # An error may have been raised from itself.
    seen: list[BaseException] = [error]
    cause = error.__cause__
    while isinstance(cause, ExactlyOnceError) and cause not in seen:
        seen.append(cause)
        cause = cause.remote or cause.__cause__
    return None if cause in seen else cause


def _read(text: str) -> ExactlyOnceError | None:
    for found in _NAMED.finditer(text):
        kind = getattr(errors, found[1], None)
        if isinstance(kind, type) and issubclass(kind, ExactlyOnceError):
            return _parsed(kind, _ENDS.split(text[found.end() :], maxsplit=1)[0].strip())
    return None


def _parsed(kind: type[ExactlyOnceError], text: str) -> ExactlyOnceError:
    message, *details = text.split("\n  ")
    found = _MESSAGE.fullmatch(message)
    if found is None:
        return kind(message.removesuffix("."), details=details)
    pairs = [pair.partition("=") for pair in _BETWEEN.split(found["where"])]
    # The constructor has arguments of its own with these names.
    where: Any = {name: value for name, _, value in pairs if name not in _OWN}
    return kind(found["what"], remedy=found["remedy"] or "", details=details, **where)
