"""The steps of a job, in every process of its driver: each asks the gate before it continues.

A step is a call of the user's function, a line of it, an answer to a request over HTTP, an event of a sink of
this package, or the end of a task. The parent has the gate: it counts steps, and may hold one for good.
The requests are those of Python: what a library in C or in the JVM sends is not seen.
"""

from __future__ import annotations

import functools
import http.client
import linecache
import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from multiprocessing.connection import Client
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

from yt_exactly_once import observability

if TYPE_CHECKING:
    from types import CodeType, FrameType

GATE_VARIABLE = "YT_EXACTLY_ONCE_GATE"
"""Environment variable of the driver's processes: address and key of the gate."""

PACKAGE = str(Path(observability.__file__).parents[1])

_ID = re.compile(r"[0-9a-fA-F]{8}[0-9a-fA-F-]*|\d{2,}")
"""What differs in a URL from run to run."""

_BY_THE_CLOCK = re.compile(r"ping|heartbeat")
"""Requests that come whenever their time has come: no steps of a batch."""


class Kind(StrEnum):
    """What a step is."""

    CALL = "call"
    LINE = "line"
    ANSWER = "answer"
    TASKS = "tasks"
    EVENT = "event"


class Step(NamedTuple):
    """One step; what has the same text is the same step, and may be taken several times."""

    kind: Kind
    text: str


class Reply(StrEnum):
    """What the gate says. To a step that it holds it says nothing."""

    PASS = "pass"  # noqa: S105 - no password
    LOSE = "lose"


BEFORE_CALL = Step(Kind.CALL, "before the call")
AFTER_CALL = Step(Kind.CALL, "after the call, before Spark logs the batch as done")
ONE_TASK_LEFT = Step(Kind.TASKS, "when all tasks but one have handed on their rows")
TASK_ENDS = Step(Kind.TASKS, "when a task has done its work")


def reach(step: Step, *more: int) -> Reply:
    """Ask the gate, and wait for its reply; it may never come.

    Args:
        more: the batch of an event, if it has one; id and number of the attempt of a task.
    """
    address, key = os.environ[GATE_VARIABLE].rsplit(" ", 1)
    with Client(address, authkey=bytes.fromhex(key)) as gate:
        gate.send((*step, *more))
        return Reply(gate.recv())


def watch_requests() -> None:
    """Make a step of every answer to a request over HTTP, in this process and in those forked from it."""
    connection: Any = http.client.HTTPConnection
    put, get = connection.putrequest, connection.getresponse

    @functools.wraps(put)
    def putrequest(self: Any, method: str, url: str, *args: Any, **options: Any) -> Any:
        self.watched_request = f"{method} {_ID.sub('*', urlsplit(url).path)}"
        return put(self, method, url, *args, **options)

    @functools.wraps(get)
    def getresponse(self: Any, *args: Any, **options: Any) -> Any:
        answer = get(self, *args, **options)
        request = self.watched_request
        if _BY_THE_CLOCK.search(request) or reach(Step(Kind.ANSWER, request)) is Reply.PASS:
            return answer
        self.close()
        raise ConnectionResetError(f"The test has lost the answer to {request}")

    connection.putrequest, connection.getresponse = putrequest, getresponse


def watch_events() -> None:
    """Make a step of every event of the sinks, of this process and of those forked from it."""

    def emitted(event: str, fields: dict[str, Any]) -> None:
        batch = fields.get("batch")
        reach(Step(Kind.EVENT, event), *([] if batch is None else [batch]))

    observability.listen(emitted)


@contextmanager
def watched_lines(function: Callable[..., Any]) -> Iterator[None]:
    """Make a step of every line that this thread is about to run in the file of a function.

    The code of this package has no such steps, nor has a function without Python code.
    """
    code = _code_of(function)
    if code is None or code.co_filename.startswith(PACKAGE):
        yield
        return

    def line(frame: FrameType, event: str, _: Any) -> Any:
        if event == "line":
            reach(Step(Kind.LINE, _shown(frame)))
        return line

    def call(frame: FrameType, _event: str, _: Any) -> Any:
        return line if frame.f_code.co_filename == code.co_filename else None

    before = sys.gettrace()
    sys.settrace(call)
    try:
        yield
    finally:
        sys.settrace(before)


def _shown(frame: FrameType) -> str:
    file, number = frame.f_code.co_filename, frame.f_lineno
    text = linecache.getline(file, number).strip()
    return f"line {number} of {Path(file).name}" + (f": {text}" if text else "")


def _code_of(function: Any) -> CodeType | None:
    while isinstance(function, functools.partial):
        function = function.func
    held = function if hasattr(function, "__code__") else type(function).__call__
    code: CodeType | None = getattr(held, "__code__", None)
    return code
