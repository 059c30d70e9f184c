"""A program while it is deployed: what its function does in a batch, and what is known of it afterwards.

Where the rows come from and who calls the function is left to `in_memory` and `in_format`.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial
from itertools import chain, pairwise
from typing import Any

from tests.callers.frames import JobFailedError
from tests.callers.mishaps import TaskDiedError
from tests.callers.oracle import Execution, ViolationError, check
from tests.callers.program import Layout, OnError, Part, Program, Row, Run
from tests.callers.server import NO_SUCH_TABLET
from yt_exactly_once.codec.schema import SOURCE_COLUMNS, is_service_column
from yt_exactly_once.config import DeliveryMode, RetryPolicy
from yt_exactly_once.errors import ExactlyOnceError
from yt_exactly_once.spark.doors.transactional_sink import TransactionalSink
from yt_exactly_once.spark.sink.target import Target

CHUNK = 2
"""Rows per request."""

PARTS: dict[str, Any] = {"split_oversized": True, "rows_per_tablet_limit": 2}


class MetricsError(Exception):
    """The user's metrics hook is broken."""


class Deployment(ABC):
    """Everything that outlives a run of a program.

    Attributes:
        executions: of all batches, in order.
        errors: of all calls of all runs, as text.
        is_done: whether the newest run has come to the end of the source.
    """

    def __init__(self, program: Program) -> None:
        self.program = program
        self.executions: list[Execution] = []
        self.errors: list[str] = []
        self.started = 0
        self.is_done = False
        self._sinks: dict[str, TransactionalSink] = {}

    def deploy(self) -> None:
        """Run the program; unless it ends well, start the query once more, with nothing in the way.

        Raises:
            ViolationError: rows are lost, repeated or wrong without an error, or a batch is refused for
                ever without a reason.
        """
        last = self.program.runs[-1]
        calm = Run(last.mode, last.function, last.cores, last.wire, accepts=last.accepts)
        for run in (*self.program.runs, calm):
            if run is calm and self.is_done:
                return
            self.started += 1
            self._sinks.clear()
            self.run(run)

    @abstractmethod
    def run(self, run: Run) -> None:
        """Run the query until it ends, crashes or fails."""

    @abstractmethod
    def frame(self, run: Run, given: Any, layout: Layout, parts: Sequence[Part]) -> Any:
        """Return the DataFrame that the function passes.

        Args:
            parts: which rows are kept, one condition after the other.
        """

    @abstractmethod
    def connect(self, sink: TransactionalSink) -> None:
        """Let a sink find the cluster and the offset log."""

    @property
    @abstractmethod
    def paths(self) -> dict[str, Any]:
        """Options of the sink that name the cluster and tables other than the target."""

    @property
    @abstractmethod
    def target(self) -> str:
        """Path of the target."""

    @abstractmethod
    def written(self) -> list[dict[str, Any]]:
        """Return the rows of the target."""

    @abstractmethod
    def rejected(self) -> list[dict[str, Any]]:
        """Return the rows that were rejected, as their JSON describes them."""

    # What the function does

    def execute(self, run: Run, given: Any, batch: int) -> None:
        """Do what the user's function does in a batch, and then ask the oracle.

        Raises:
            ViolationError: see `deploy`.
        """
        execution = Execution.of(self.program, run, batch)
        self.executions.append(execution)
        jobs = [
            partial(self._call, run, given, execution, number)
            for number in range(len(self.program.calls(run, batch)))
        ]
        if run.function.threads and len(jobs) > 1:
            self.in_threads(jobs, run.function.threads)
        else:
            for job in jobs:
                job()
        check(self, execution)

    @abstractmethod
    def in_threads(self, jobs: Sequence[Callable[[], None]], period: int) -> None:
        """Run jobs in threads that take turns."""

    def _call(self, run: Run, given: Any, execution: Execution, number: int) -> None:
        """Make one call, and do about an error what the user does."""
        batch, call = execution.batch, self.program.calls(run, execution.batch)[number]
        sink = self._sink(run, call.sink, batch)
        try:
            sink(self.frame(run, given, call.layout_in(batch), [call.part]), batch)
        except Exception as error:
            self.require_typed(error)
            self.errors.append(told(error))
            if call.on_error is OnError.RAISE:
                raise
            if call.second_part is None:
                execution.swallowed += 1
                return
            sink(
                self.frame(run, given, call.layout_in(batch), [call.part, call.second_part]), batch
            )
            execution.returned(self.program, call, number, again=True)
            return
        execution.returned(self.program, call, number, again=False)

    def _sink(self, run: Run, name: str, batch: int) -> TransactionalSink:
        if name in self._sinks:
            return self._sinks[name]
        program = self.program

        def listener(event: str, _fields: dict[str, Any]) -> None:
            if event == run.listener:
                message = "The metrics hook is broken"
                raise MetricsError(message)

        target = Target(
            self.target,
            placement="partition" if program.is_sorted else program.placement,
            delete_marker="gone" if program.marker else None,
        )
        sink = TransactionalSink(
            target,
            mode=run.mode.value,
            dyn_batch_size=CHUNK,
            advance_consumer=name == self.program.calls(run, batch)[-1].sink,
            wire_format=run.wire,
            connections=2,
            retry=RetryPolicy(attempts=3, deadline=timedelta(days=1)),
            listener=listener if run.listener else None,
            accept_incomplete=run.accepts,
            **(PARTS if program.parts and run.mode is DeliveryMode.TRANSACTIONAL else {}),
            **self.paths,
        )
        self.connect(sink)
        if name != "new":
            self._sinks[name] = sink
        return sink

    def require_typed(self, error: Exception) -> None:
        """Check that an error is one that the package raises on purpose.

        Raises:
            ViolationError: it is not.
        """
        cause = error.__cause__ if isinstance(error, JobFailedError) else error
        if not isinstance(cause, ExactlyOnceError | TaskDiedError):
            message = f"AN ERROR WITHOUT A TYPE: {cause!r}"
            raise ViolationError(message) from error

    def require_reason(self, run: Run, error: Exception) -> None:
        """Check that a run had a reason to fail.

        Raises:
            ViolationError: nothing was wrong with the query.
        """
        if NO_SUCH_TABLET in str(error) and "has changed its columns or tablets" not in str(error):
            message = f"UNEXPLAINED: {told(error)}"
            raise ViolationError(message) from error
        if self.program.is_blameless and run.is_calm:
            message = f"REFUSED WITHOUT A REASON: {told(error)}"
            raise ViolationError(message) from error

    # Rows

    def columns(self) -> dict[str, str]:
        program = self.program
        columns = dict.fromkeys(program.names, "bigint")
        columns |= {"id": "bigint", "num": "bigint"}
        columns |= {"key": "double"} if program.is_sorted else {}
        columns |= {"doc": "string"} if program.has_any else {}
        columns |= {"gone": "boolean"} if program.marker else {}
        columns |= dict.fromkeys(SOURCE_COLUMNS, "bigint") if program.numbered else {}
        return columns

    def target_schema(self) -> list[dict[str, Any]]:
        kinds = {"bigint": "int64", "double": "double", "string": "any"}
        schema = [
            {"name": name, "type": kinds[kind], "required": name in {"num", "key"}}
            for name, kind in self.columns().items()
            if name != "gone" and not is_service_column(name)
        ]
        for place, column in enumerate(schema):
            if column["name"] == "key":
                schema.insert(0, {**schema.pop(place), "sort_order": "ascending"})
        return schema

    def values(self, row: Row) -> dict[str, Any]:
        """Return a row with the columns of all programs."""
        tablet, index = SOURCE_COLUMNS
        return {
            "id": row.id,
            "num": None if row.is_bad else row.id,
            "key": row.key,
            "doc": f"doc {row.id}" * (1 + row.id % 5),
            "gone": row.deletes,
            **{name: 7 * row.id + place for place, name in enumerate(self.program.names, 2)},
            tablet: row.place[0],
            index: row.place[1],
        }

    def as_written(self, row: Row) -> dict[str, Any]:
        """Return a row as it should be in the target."""
        values = self.values(row)
        return {column["name"]: values[column["name"]] for column in self.target_schema()}

    def as_rejected(self, row: Row) -> dict[str, Any]:
        """Return a row as it should be among the rejected rows."""
        values = self.values(row)
        return {name: values[name] for name in self.columns()}


def cut(items: Sequence[Any], count: int) -> list[list[Any]]:
    """Cut a list into so many pieces, as even as can be."""
    edges = [number * len(items) // count for number in range(count + 1)]
    return [list(items[start:end]) for start, end in pairwise(edges)]


def joined(pieces: Sequence[Sequence[Any]]) -> list[Any]:
    """Return the items of all pieces."""
    return list(chain(*pieces))


def told(error: BaseException) -> str:
    """Return an error as text; the task's own, if it failed a job."""
    cause = error.__cause__ if isinstance(error, JobFailedError) else error
    return f"{type(cause).__name__}: {cause}"
