"""Programs that write with `format("yt")`, on the cluster in memory.

`InFormat` does Spark's part. One process plans a batch with a writer, tasks run, and another process commits
or aborts. Processes live on from run to run, and take turns. So each of them sees some batches of some runs,
as in a driver that runs several queries, or one query again and again.
"""

import json
import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from random import Random
from typing import Any
from unittest import mock

import pyarrow as pa
from pyspark import TaskContext

from tests.callers.deployment import CHUNK, told
from tests.callers.frames import TASK_ATTEMPTS, JobFailedError
from tests.callers.in_memory import InMemory
from tests.callers.mishaps import CrashedError, TaskDiedError
from tests.callers.oracle import Execution, ViolationError, check
from tests.callers.program import Program, Run
from tests.model.tasks import task_context
from yt_exactly_once.errors import ExactlyOnceError
from yt_exactly_once.spark.compat.running import (
    BATCH_ID_PROPERTY,
    QUERY_ID_PROPERTY,
    RUN_ID_PROPERTY,
)
from yt_exactly_once.spark.data_source import YtDataSource
from yt_exactly_once.spark.doors import stream_writer
from yt_exactly_once.spark.doors.writer_options import parse_writer_options
from yt_exactly_once.spark.engine import engine
from yt_exactly_once.spark.query.calls import Calls
from yt_exactly_once.ytsaurus import client

PROCESSES = 2
"""How many there are of each kind."""

_numbers = count()


class Process:
    """What one Python process of Spark remembers."""

    def __init__(self) -> None:
        self._doors: dict[Any, Any] = {}
        self._calls = Calls()

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Run code in this process."""

        def door_of(given: Any, output_mode: str) -> Any:
            if given not in self._doors:
                options = parse_writer_options(dict(given))
                self._doors[given] = stream_writer.StreamDoor(options, output_mode)
            return self._doors[given]

        with (
            mock.patch.object(engine, "PROCESS_CALLS", self._calls),
            mock.patch.object(stream_writer, "_door_of", door_of),
        ):
            yield


class InFormat(InMemory):
    """A program of one call in each batch, which Spark makes by the format."""

    def __init__(self, program: Program, turns: Random, folder: Path) -> None:
        super().__init__(program)
        # Hadoop takes the characters of a location as they are.
        self._turns, self._checkpoint = turns, folder / f"a%20b {self.query_id}"
        (self._checkpoint / "offsets").mkdir(parents=True)
        (self._checkpoint / "metadata").write_text(json.dumps({"id": self.query_id}))
        self._planning = [Process() for _ in range(PROCESSES)]
        self._ending = [Process() for _ in range(PROCESSES)]
        self._run_id = ""

    def run(self, run: Run) -> None:
        self._run_id = f"run-{next(_numbers)}"
        # What is sent to tasks finds the connections that this very process has.
        client._shared_connection.cache_clear()
        super().run(run)

    def execute(self, run: Run, given: Any, batch: int) -> None:
        for number in range(max(0, batch - 1), batch + 1):
            lines = ["v1", "{}", *self.offsets[number]]
            (self._checkpoint / "offsets" / str(number)).write_text("\n".join(lines))
        execution = Execution.of(self.program, run, batch)
        self.executions.append(execution)
        (call,) = run.function.calls
        frame = self.frame(run, given, call.layout_in(batch), [call.part])
        source = YtDataSource(self._options(run))
        with self._turn(self._planning):
            writer = pickle.dumps(source.streamWriter(frame.schema, overwrite=False))
        sent = pickle.dumps(source)
        try:
            messages = [
                self._run_task(writer, rows, place, batch)
                for place, rows in enumerate(frame.evaluate())
            ]
            with self._turn(self._ending):
                pickle.loads(sent).streamWriter(frame.schema, overwrite=False).commit(
                    messages, batch
                )
        except Exception as error:
            self._abort(sent, frame, batch, error)
            raise
        execution.returned(self.program, call, 0, again=False)
        check(self, execution)

    def _abort(self, sent: bytes, frame: Any, batch: int, reason: Exception) -> None:
        try:
            with self._turn(self._ending):
                pickle.loads(sent).streamWriter(frame.schema, overwrite=False).abort([], batch)
        except Exception as error:
            message = f"THE REASON IS LOST: {told(reason)}, behind {told(error)}"
            raise ViolationError(message) from error

    def _run_task(self, writer: bytes, rows: pa.RecordBatch, place: int, batch: int) -> Any:
        properties = {
            QUERY_ID_PROPERTY: self.query_id,
            RUN_ID_PROPERTY: self._run_id,
            BATCH_ID_PROPERTY: str(batch),
        }
        for number in range(TASK_ATTEMPTS):
            self.server.in_task = True
            try:
                with task_context(place, number):
                    TaskContext.get()._localProperties = properties
                    message = pickle.loads(writer).write(iter([rows]))
                return pickle.loads(pickle.dumps(message))
            except (TaskDiedError, ExactlyOnceError) as error:
                if number == TASK_ATTEMPTS - 1:
                    told_of = f"The task of partition {place} failed"
                    raise JobFailedError(told_of) from error
            finally:
                self.server.in_task = False
        raise AssertionError

    @contextmanager
    def _turn(self, processes: list[Process]) -> Iterator[None]:
        """Let one of the processes work; one that dies is replaced, and the others live on."""
        number = self._turns.randrange(PROCESSES)
        try:
            with processes[number].entered():
                yield
        except CrashedError:
            processes[number] = Process()
            raise

    def _options(self, run: Run) -> dict[str, str]:
        program = self.program
        return {
            "path": self.target,
            "checkpointLocation": f"file://{self._checkpoint}",
            "queryName": "as Spark adds it",
            "mode": run.mode.value,
            "placement": "partition" if program.is_sorted else program.placement,
            "wire_format": run.wire,
            "dyn_batch_size": str(CHUNK),
            "connections": "2",
            "retry_attempts": "3",
            **({} if run.accepts is None else {"accept_incomplete": str(run.accepts)}),
            **self.paths,
        }
