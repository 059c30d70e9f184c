"""Turns: contenders do one micro-batch at a time, and only one of them does.

Every contender's query runs for the whole point and waits in its foreachBatch function until it is
given a turn. A turn lasts from there until the query waits again: it holds the writing, and all that
Spark does around a batch (commit log, planning, offset log), and nothing of anybody else.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

_LOOK_SECONDS = 0.5


@dataclass(frozen=True)
class Turn:
    """What a contender did with one micro-batch.

    Attributes:
        seconds: from the begin of the batch to the begin of the next one.
        write_seconds: in the writer itself, which evaluates the frame.
        steps: seconds by step, where the writer tells of them.
    """

    seconds: float
    write_seconds: float
    steps: dict[str, float] = field(default_factory=dict)


class Contender(Protocol):
    """Somebody who writes micro-batches."""

    name: str

    def prepare(self) -> None:
        """Make what the next turn needs and what does not count."""

    def turn(self) -> Turn:
        """Write one micro-batch."""

    def rows_written(self) -> int | None:
        """Count the rows in the target; `None` where there is none to count."""

    def close(self) -> None:
        """End."""


@dataclass(frozen=True)
class Writer:
    """A function for foreachBatch.

    Attributes:
        write: takes a frame and the number of its batch.
        steps: returns what the last batch spent on which step, in seconds.
        count: counts the rows in the target.
        close: ends what it has opened.
    """

    write: Callable[[DataFrame, int], None]
    steps: Callable[[], dict[str, float]] = dict
    count: Callable[[], int | None] = lambda: None
    close: Callable[[], None] = lambda: None


class Gate:
    """The function a query calls for each micro-batch: it waits for a turn, then writes."""

    def __init__(self, write: Callable[[DataFrame, int], None]) -> None:
        self._write = write
        self._changed = threading.Condition()
        self._waiting = self._released = self._closed = False
        self.write_seconds = 0.0

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        """Wait, then write one batch; Spark calls this."""
        with self._changed:
            self._waiting = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._released or self._closed)
            self._waiting = self._released = False
            if self._closed:
                return
        began = time.perf_counter()
        self._write(frame, batch_id)
        self.write_seconds = time.perf_counter() - began

    def release(self) -> None:
        """Let the waiting query write its batch."""
        with self._changed:
            self._released, self._waiting = True, False
            self._changed.notify_all()

    def close(self) -> None:
        """Let the query go through without writing, so that it can be stopped."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def wait_for(self, query: StreamingQuery) -> None:
        """Wait until the query waits; raise what ended it, if it ended."""
        with self._changed:
            while not self._changed.wait_for(lambda: self._waiting, _LOOK_SECONDS):
                if not query.isActive:
                    raise query.exception() or RuntimeError(f"The query {query.name} has ended")


class QueryContender:
    """A streaming query that writes when it is given a turn.

    Args:
        name: of the contender.
        writer: takes the batches.
        start: starts the query with a function for its batches.
    """

    def __init__(
        self,
        name: str,
        writer: Writer,
        start: Callable[[Callable[[DataFrame, int], None]], StreamingQuery],
    ) -> None:
        self.name = name
        self._writer = writer
        self._gate = Gate(writer.write)
        self._query = start(self._gate)
        self._gate.wait_for(self._query)

    def prepare(self) -> None:
        """Do nothing: Spark computes within the turn."""

    def turn(self) -> Turn:
        """Write one micro-batch and wait for the next one to begin."""
        began = time.perf_counter()
        self._gate.release()
        self._gate.wait_for(self._query)
        seconds = time.perf_counter() - began
        return Turn(seconds, self._gate.write_seconds, self._writer.steps())

    def rows_written(self) -> int | None:
        """Count the rows in the target."""
        return self._writer.count()

    def close(self) -> None:
        """Stop the query."""
        self._gate.close()
        self._query.stop()


class DirectContender:
    """A function that writes one batch, without a query around it.

    Args:
        name: of the contender.
        prepare: makes what is written in a turn, given the number of the turn; does not count.
        write: writes that.
        count: counts the rows in the target.
    """

    def __init__(
        self,
        name: str,
        prepare: Callable[[int], list[bytes]],
        write: Callable[[list[bytes]], None],
        count: Callable[[], int | None],
    ) -> None:
        self.name = name
        self.rows_written = count
        self._make = prepare
        self._write = write
        self._turns = 0
        self._prepared: list[bytes] = []

    def prepare(self) -> None:
        """Make the rows of the next batch."""
        self._prepared = self._make(self._turns)
        self._turns += 1

    def turn(self) -> Turn:
        """Write one batch."""
        prepared, self._prepared = self._prepared, []
        began = time.perf_counter()
        self._write(prepared)
        seconds = time.perf_counter() - began
        return Turn(seconds, seconds)

    def close(self) -> None:
        """Do nothing."""
