"""The code under test, ready to be run against a script: the real sink and the real source.

`ModelSink` is `TransactionalSink` with another cluster, without preparation, and with a frame that
evaluates in the model; look-up, verdict, skipping, attempts and everything below are the real ones. So is
the way in which the source moves a consumer.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from types import SimpleNamespace
from typing import Any, NamedTuple, cast
from unittest import mock

import pyarrow as pa
from pyspark.sql.types import LongType, StructField, StructType
from structlog.testing import capture_logs

from tests.model.cluster import (
    CLUSTER,
    CONFLICT,
    CONSUMER,
    LEDGER,
    MISTOLD,
    PRODUCER,
    UNAVAILABLE,
    ModelCluster,
    consumer_key,
    ledger_value,
)
from tests.model.continuations import Script, always
from tests.model.scenario import Ranges, Scenario, query_id
from tests.model.tasks import (
    JobFailed,
    RunJob,
    RunTask,
    frame_columns,
    plan_of,
    prepared_target,
    run_task,
    silent,
)
from yt_exactly_once.commit import claims
from yt_exactly_once.commit.batch import MicroBatch, PartitionRange, SourceRange
from yt_exactly_once.commit.claims import Plan
from yt_exactly_once.commit.cluster import Payload
from yt_exactly_once.commit.entry import LedgerEntry
from yt_exactly_once.commit.notes import BEGAN, Note, NoteKind
from yt_exactly_once.commit.parts import TargetRows
from yt_exactly_once.commit.tally import SentBy
from yt_exactly_once.config import ROWS_PER_TABLET_LIMIT, RetryPolicy
from yt_exactly_once.delivery.memory import Memory, Prepared
from yt_exactly_once.delivery.route import LARGE, Route, Way
from yt_exactly_once.delivery.tried import Tried
from yt_exactly_once.errors import (
    ClusterUnavailableError,
    DataLossError,
    ExactlyOnceError,
    OffsetConflictError,
    RequestRefusedError,
)
from yt_exactly_once.observability import Emitter
from yt_exactly_once.spark.doors import frame_rows
from yt_exactly_once.spark.doors.arrived import TaskMessage, TaskRows
from yt_exactly_once.spark.doors.transactional_sink import TransactionalSink
from yt_exactly_once.spark.engine import look_up, planning
from yt_exactly_once.spark.engine.engine import Engine
from yt_exactly_once.spark.engine.planning import Planned
from yt_exactly_once.spark.engine.run import Delivery
from yt_exactly_once.spark.modes import idempotent, mode_of, sessions, transactional
from yt_exactly_once.spark.modes.joined import JoinedInsertTask
from yt_exactly_once.spark.modes.mode import Mode, TargetBatch
from yt_exactly_once.spark.modes.push import RehearsalTask
from yt_exactly_once.spark.modes.tasks import _REPORT
from yt_exactly_once.spark.query.calls import Calls
from yt_exactly_once.spark.query.offset_log import OffsetLog, QueueOffset, RunningBatch
from yt_exactly_once.spark.sink.target import Target
from yt_exactly_once.spark.source.opening import OpenedQueue
from yt_exactly_once.spark.source.packed import PackedQueue
from yt_exactly_once.spark.source.reader import QueueStreamReader
from yt_exactly_once.ytsaurus.browsing import Cluster
from yt_exactly_once.ytsaurus.rows import SessionState

TRIMMED = "trimmed"
STATE_MISSING = "state missing"

_FOREVER = timedelta(days=1)
_QUEUE_ID = "1-2-3-4"


class SinkCall(NamedTuple):
    """Spark calls a sink.

    Attributes:
        run: name of the run of the query.
        agreed: whether the sink, which lives as long as the run, was called before.
        left: the ledger row that its call before this one has committed; empty for none.
        noted: the newest batch that the sink has noted as committed; -1 for none.
    """

    run: str
    checkpoint: int
    sink: int
    batch: int
    ranges: Ranges
    agreed: bool
    left: str = ""
    noted: int = -1


class SourceCommit(NamedTuple):
    """Spark tells the sources that it is done with a batch."""

    ranges: Ranges


@dataclass(frozen=True)
class Evaluate:
    """Runs the Spark job of the batch: reads its rows, and folds them into the state."""

    checkpoint: int
    batch: int
    ranges: Ranges


@dataclass(frozen=True)
class Stored:
    """Reads where a consumer stands in all partitions of a queue."""

    rows: tuple[int, ...]


@dataclass(frozen=True)
class Advance:
    """Moves a consumer in one partition, in a transaction of its own."""

    row: int
    old: int
    new: int


@dataclass(frozen=True)
class AskWay:
    """Asks who sends the rows of a batch: what was kept of earlier tries may say anything."""


@dataclass(frozen=True)
class Aged:
    """Reads the clock: how long ago a transaction was begun."""

    transaction: str


class StateMissingError(Exception):
    """Spark found no state of the batch before, as a skipped evaluation leaves it."""


class JobFailedError(Exception):
    """Spark gave a job up; the text is the name of the error of the task that failed last."""


class Programs:
    """The code under test of a scenario, by what calls it.

    Args:
        scenario: which world.
    """

    def __init__(self, scenario: Scenario) -> None:
        self._scenario = scenario
        self._tasks: dict[RunJob, Any] = {}

    def run(self, call: Any, script: Script) -> Any:
        """Run the program of a call; return what a task reports, or what a sink has committed and noted."""
        if isinstance(call, RunTask):
            return run_task(self._scenario, self._tasks[call.job], call, script)
        if isinstance(call, SourceCommit):
            _commit_source(self._scenario, call, script)
            return None
        assert isinstance(call, SinkCall)
        if self._scenario.by_format:
            return self._write_by_format(call, script)
        job = RunJob(call.run, call.checkpoint, call.batch, call.ranges)
        columns = frame_columns(self._scenario)
        frame = ModelFrame(script, job, columns, self._tasks)

        def age(_began: Any) -> float:
            return sink.age()

        with (
            _no_tables(),
            mock.patch.object(frame_rows, "require_straight", always(None)),
            mock.patch.object(frame_rows, "tasks_of_one_stage", partial(stages, self._scenario)),
            mock.patch.object(claims, "seconds_since", age),
        ):
            sink = ModelSink(self._scenario, call, script)
            sink(cast("Any", frame), call.batch)
        return sink.left, sink.noted

    def _write_by_format(self, call: SinkCall, script: Script) -> Any:
        """Plan a batch, run its job and commit it, as Spark does for a writer, in two processes."""
        plan = Plan(plan_of(call.run, call.batch), 0.0)
        job = RunJob(call.run, call.checkpoint, call.batch, call.ranges)
        rows = ModelRows(cast("Any", SimpleNamespace(names=frame_columns(self._scenario))))
        with (
            _no_tables(),
            mock.patch.object(planning, "ask", partial(_ask_way, script, call)),
            mock.patch.object(planning, "_read", always(None)),
            mock.patch.object(planning, "_keep", always(None)),
            mock.patch.object(Plan, "make", always(plan)),
            mock.patch.object(Plan, "age", 0.0),
            mock.patch.object(claims, "seconds_since", always(0.0)),
        ):
            planner = ModelSink(self._scenario, call, script)
            assignment, is_replay = planner.plan(rows, call.batch)
            if is_replay or assignment.task is None:
                evaluated = _evaluated(script, job)
                message = TaskMessage(call.run, 0, skipped=is_replay)
            else:
                job = job._replace(transaction=plan.id)
                self._tasks[job] = assignment.task
                evaluated, reports = (), _run_job(script, job)
                if isinstance(reports, JobFailed):
                    mode = planner.mode
                    query = query_id(call.checkpoint)
                    with suppress(ExactlyOnceError):
                        planning.give_up(mode, query, call.batch, plan, is_incomplete=True)
                    raise JobFailedError(reports.error)
                message = TaskMessage(call.run, 0, reports=reports, plan=plan)
            sink = ModelSink(self._scenario, call, script)
            sink.finish(replace(rows, messages=(message,), effects=evaluated), call.batch)
        return sink.left, sink.noted


@contextmanager
def _no_tables() -> Iterator[None]:
    """Leave out what is asked of tables that the model does not have."""
    with (
        mock.patch.object(transactional, "prepare_claims", _prepared_claims),
        mock.patch.object(sessions, "sessions_of", _sessions_of),
        mock.patch.object(look_up, "attributes_of", always({"id": _QUEUE_ID})),
        # No queue of the model loses rows.
        mock.patch.object(idempotent, "gone_sessions", always(frozenset())),
        mock.patch.object(look_up.LedgerNotes, "look", always((_QUEUE_ID, ()))),
        mock.patch.object(look_up.LedgerNotes, "add", _refuse),
    ):
        yield


def _prepared_claims(
    _connection: Any, table: str, task: JoinedInsertTask, given: TargetBatch, *, is_tried: bool
) -> JoinedInsertTask:
    del is_tried  # nothing can be missing here
    batch = given.plan or given.transaction
    assert batch is not None
    return replace(task, claims=claims.Claims(table, batch.id, given.target.path))


def _ask_way(script: Script, call: SinkCall, _mode: Any, query: str) -> planning.Ask:
    """Return what lets the batch go by tasks, or by the driver."""
    by_driver = script.ask(AskWay()) == "driver"
    tried = Tried(query, "//out", call.batch, SentBy.TASKS, has_failed=by_driver)
    return partial(planning.Known, tried=tried)


def _evaluated(script: Script, job: RunJob) -> tuple[str, ...]:
    """Run the job of a batch whose rows come to the commit."""
    answer = script.ask(Evaluate(job.checkpoint, job.batch, job.ranges))
    ModelFrame.require_rows(answer)
    return cast("tuple[str, ...]", answer.effects)


def _run_job(script: Script, job: RunJob) -> Any:
    """Run the job of a batch whose tasks send its rows; return their reports."""
    answer = script.ask(job)
    if isinstance(answer, JobFailed):
        return answer
    ModelFrame.require_rows(answer)
    rows = [dict(report) for report in answer]
    return (pa.RecordBatch.from_pylist(rows, schema=_REPORT),) if rows else ()


def micro_batch(scenario: Scenario, call: SinkCall) -> MicroBatch:
    """Return the batch as Spark's offset log tells it."""
    return MicroBatch(
        query_id=query_id(call.checkpoint),
        batch_id=call.batch,
        run_id=call.run,
        sources=tuple(
            SourceRange(
                CLUSTER,
                queue,
                CONSUMER,
                tuple(PartitionRange(partition, start, end) for partition, start, end in parts),
            )
            for queue, parts in by_queue(scenario, call.ranges).items()
        ),
        stateful=scenario.stateful,
        reads_again=scenario.by_format,
    )


def by_queue(scenario: Scenario, ranges: Ranges) -> dict[str, list[tuple[int, int, int]]]:
    """Return partition, first row and end of everything in a batch, per queue."""
    found: dict[str, list[tuple[int, int, int]]] = {}
    for (queue, partition), (start, end) in zip(scenario.places, ranges, strict=True):
        found.setdefault(queue, []).append((partition, start, end))
    return found


class ModelFrame:
    """What the sink knows of a frame: evaluating it, for its rows, into nothing, or by tasks.

    Args:
        job: what an evaluation by tasks asks for.
        tasks: takes the tasks that the sink gives to Spark.
    """

    def __init__(
        self, script: Script, job: RunJob, columns: list[str], tasks: dict[RunJob, Any]
    ) -> None:
        self._script = script
        self._job = job
        self._tasks = tasks
        self._effects: tuple[str, ...] | None = None
        self.schema = StructType([StructField(name, LongType()) for name in columns])
        self.sparkSession = SimpleNamespace(conf={})

    def toDF(self, *_names: str) -> ModelFrame:  # noqa: N802 - Spark's name
        """See `DataFrame.toDF`; a task gets its columns by the names it was given."""
        return self

    def select(self, *_names: str) -> ModelFrame:
        return self

    def mapInArrow(self, task: Any, _schema: str) -> ModelFrame:  # noqa: N802 - Spark's name
        begun = task.sessions if isinstance(task, RehearsalTask) else {}
        last = sorted((name, state.sequence_number) for name, state in begun.items())
        inside = task.transaction.id if isinstance(task, JoinedInsertTask) else ""
        job = self._job._replace(rehearsed=tuple(last), transaction=inside)
        self._tasks[job] = task
        return ModelFrame(self._script, job, self.schema.names, self._tasks)

    def toArrow(self) -> ModelFrame:  # noqa: N802 - Spark's name
        return self

    def to_batches(self) -> list[ModelFrame]:
        return [self]

    def to_pylist(self) -> list[dict[str, Any]]:
        """Run the tasks and return their reports."""
        answer = self._script.ask(self._job)
        if isinstance(answer, JobFailed):
            raise JobFailedError(answer.error)
        self.require_rows(answer)
        return [dict(report) for report in answer]

    @property
    def write(self) -> ModelFrame:
        return self

    def format(self, name: str) -> ModelFrame:
        assert name == "noop"
        return self

    def mode(self, name: str) -> ModelFrame:
        assert name == "overwrite"
        return self

    def save(self) -> None:
        self.evaluate()

    def localCheckpoint(self, *, eager: bool) -> ModelFrame:  # noqa: N802 - Spark's name
        """Run the job, and return a frame that has its rows."""
        assert eager
        kept = ModelFrame(
            self._script, self._job._replace(kept=True), self.schema.names, self._tasks
        )
        kept._effects = self.evaluate()
        return kept

    def evaluate(self) -> tuple[str, ...]:
        """Run the job and return the effects it is to have on the target."""
        job = self._job
        if self._effects is not None:
            return self._effects
        answer = self._script.ask(Evaluate(job.checkpoint, job.batch, job.ranges))
        self.require_rows(answer)
        return cast("tuple[str, ...]", answer.effects)

    @staticmethod
    def require_rows(answer: Any) -> None:
        if answer == TRIMMED:
            raise DataLossError("The model trimmed rows of this batch")
        if answer == STATE_MISSING:
            raise StateMissingError


@dataclass(frozen=True)
class ModelRows(TaskRows):
    """What the tasks of a writer have done.

    Attributes:
        effects: of the rows that they have handed to the commit.
    """

    effects: tuple[str, ...] = ()

    @property
    def _frame(self) -> ModelRows:
        return self

    def evaluate(self) -> tuple[str, ...]:
        """Return what the rows are to do to the target."""
        assert self.messages, "Spark has run the tasks"
        assert not self.messages[0].skipped, "The ledger has lost a batch"
        return self.effects


class ModelSink(TransactionalSink):
    """The real sink in the model.

    Args:
        scenario: which world.
        call: which batch.
    """

    def __init__(self, scenario: Scenario, call: SinkCall, script: Script) -> None:
        spec = scenario.sinks[call.sink]
        super().__init__(
            [Target(path) for path in spec.paths],
            mode=scenario.mode.value,
            proxy="model",
            dyn_batch_size=scenario.chunk,
            ledger_path=LEDGER,
            producer_path=PRODUCER,
            advance_consumer=spec.advances,
            split_oversized=scenario.split,
            rows_per_tablet_limit=1 if scenario.split else ROWS_PER_TABLET_LIMIT,
            retry=RetryPolicy(attempts=scenario.attempts, deadline=_FOREVER),
        )
        batch = micro_batch(scenario, call)
        cluster = cast("Any", ModelCluster(script, scenario.index, into_one=scenario.into_one))
        prepared = tuple(
            prepared_target(
                path,
                is_sorted=scenario.is_sorted,
                dyn_batch_size=scenario.chunk,
                tablets=1 + scenario.reruns,
            )
            for path in spec.paths
        )
        self._log = _Identified(batch, spec.paths, call.noted)
        self._query = cast("Any", self._log)
        memory = Memory(
            batch.run_id,
            Prepared((), prepared, "1-2-3-5"),
            agreed=call.batch - 1 if call.agreed else None,
            entry=LedgerEntry.from_row(json.loads(call.left)) if call.left else None,
            seconds=0.0 if call.agreed or scenario.into_one else None,
            # In the place of the tasks the driver would send the same requests, and takes a session over once
            # for several batches; `tests/unit/test_push.py` goes through what that changes.
            bytes=LARGE if scenario.by_tasks or scenario.into_one else 0,
        )
        self._scenario, self._cluster = scenario, cluster
        self._engine = ModelEngine(mode_of(self.options, cluster), batch, memory)

    @property
    def mode(self) -> Mode:
        """The mode, with the cluster of the model."""
        return self._engine.mode

    def plan(self, rows: TaskRows, number: int) -> Planned:
        """Plan a batch, in a process that knows no run."""
        running = replace(self._log.locate(None, number), run_id="plan")
        return self._engine.plan(running, rows, looks_up=False)

    def finish(self, rows: TaskRows, number: int) -> None:
        """Commit what tasks have done."""
        self._engine.deliver(self._log.locate(None, number), rows)

    def age(self) -> float:
        """Return the age of the newest transaction, where it can matter."""
        if not self._scenario.faults.expiry:
            return 0.0
        return cast("float", self._cluster.script.ask(Aged(self._cluster.newest)))

    @property
    def left(self) -> str:
        """The ledger row that the call has committed."""
        assert isinstance(self._engine, ModelEngine)
        return self._engine.left

    @property
    def noted(self) -> int:
        """The newest batch that is noted as committed."""
        return self._log.noted


class ModelEngine(Engine):
    """The real engine, whose targets are prepared, and whose rows a model evaluates.

    Args:
        memory: of the run of the batch.
    """

    def __init__(self, mode: Any, batch: MicroBatch, memory: Memory) -> None:
        super().__init__(mode)
        # A program is run again and again, each time as if for the first time.
        self._calls = Calls()
        self._batch = batch
        self._memories.keep(batch, memory)
        self._planned[batch.query_id, batch.stateful] = memory

    @property
    def left(self) -> str:
        """The ledger row that the call has committed."""
        entry = self._memories.of(self._batch).entry
        return "" if entry is None else ledger_value(entry.to_row())

    def _prepared(self, delivery: Delivery) -> Delivery:
        """Leave out what is checked once per run."""
        return delivery

    def _check_between(self, batch: MicroBatch, memory: Memory) -> None:
        """Leave out what is checked now and then."""

    def _emitter(self, running: RunningBatch) -> Emitter:  # noqa: ARG002 - overrides
        return silent

    def _compute(
        self, delivery: Delivery, route: Route, found: Any, begun: Any
    ) -> list[TargetRows]:
        if not self.mode.one_transaction or route.way is Way.JOIN:
            return super()._compute(delivery, route, found, begun)
        rows = cast("Any", delivery.rows)
        batch, frame = delivery.batch, (rows.kept() if route.keeps_rows else rows)._frame
        payloads = [
            Payload(1, json.dumps([batch.query_id, batch.batch_id, effect]).encode())
            for effect in frame.evaluate()
        ]
        groups = [[payload] for payload in payloads]
        return [
            TargetRows(target.path, groups, "yson", len(payloads))
            for target in self.options.targets
        ]


def stages(scenario: Scenario, _job: Any, _batch: MicroBatch) -> int | None:
    """Return the number of tasks that matters here, unless their stage may run again."""
    return None if scenario.reruns else 1


def _refuse(*_: Any) -> None:
    raise AssertionError("The checkpoint of the model takes every note")


def _sessions_of(connection: ModelCluster, producer: str, prefix: str) -> dict[str, SessionState]:
    """Read the rows of the producer table; its client has a query for them."""
    keys = [values for path, values in connection.index if path == producer]
    names = [name for (name,) in keys if name.startswith(prefix)]
    rows = connection.lookup(producer, [{"session_id": name} for name in names])
    # Nobody loses sessions here: `tests/callers` and `tests/local/test_restores.py` do.
    began = {f"{name.rpartition(':')[0]}:{BEGAN}": SessionState(-1) for name in names}
    return began | {
        name: SessionState.of(row[1], dict(row[2]))
        for name, row in zip(names, rows, strict=True)
        if row is not None
    }


class _Identified(OffsetLog):
    """An offset log that knows one batch, and the notes of the newest committed one."""

    def __init__(self, batch: MicroBatch, paths: Sequence[str], noted: int) -> None:
        self.batch = batch
        self.paths, self.noted = paths, noted
        self.notes = self

    def all(self) -> Sequence[Note]:
        """See `Notes.all`: no others are kept, so every batch looks as if it was the first call."""
        known = self.paths if self.noted >= 0 else ()
        return [Note.about(NoteKind.COMMITTED, path, LEDGER, self.noted) for path in known]

    def add(self, note: Note, *_: Any) -> None:
        """See `Notes.add`."""
        if note.kind is NoteKind.COMMITTED:
            self.noted = note.batch

    def locate(self, frame: Any, batch_id: int) -> RunningBatch:  # noqa: ARG002 - the interface
        assert batch_id == self.batch.batch_id
        return RunningBatch(self.batch.query_id, self.batch.run_id, batch_id, self)

    def identify(self, running: RunningBatch) -> MicroBatch:  # noqa: ARG002
        return self.batch

    def texts(self, number: int) -> tuple[Sequence[str], Sequence[str]]:  # noqa: ARG002
        return (), ()

    def has_ended(self, running: RunningBatch) -> bool:  # noqa: ARG002
        return False

    def is_new(self, number: int, is_unused: bool) -> bool:  # noqa: ARG002
        return True


@dataclass(frozen=True)
class _ModelQueue:
    """What the source's reader asks of a queue when it moves the consumer."""

    script: Script
    rows: dict[int, int]
    path: str
    consumer: str = CONSUMER

    def stored_offsets(self, _cluster: str, _partitions: Collection[int]) -> dict[int, int]:
        answer = self.script.ask(Stored(tuple(self.rows.values())))
        if answer == UNAVAILABLE:
            raise ClusterUnavailableError("The model lost a request")
        return dict(zip(self.rows, answer, strict=True))

    def advance(self, partition: int, old: int, new: int) -> None:
        answer = self.script.ask(Advance(self.rows[partition], old, new))
        if answer == CONFLICT:
            raise OffsetConflictError("The model's consumer stands elsewhere")
        if answer == UNAVAILABLE:
            raise ClusterUnavailableError("The model lost a request")
        if answer == MISTOLD:
            raise RequestRefusedError("The model mistold the outcome")


def _commit_source(scenario: Scenario, call: SourceCommit, script: Script) -> None:
    for path, parts in by_queue(scenario, call.ranges).items():
        rows = {part: scenario.index[consumer_key(path, part)] for part, _, _ in parts}
        opened = OpenedQueue(
            options=cast("Any", None),
            queue=cast("Any", _ModelQueue(script, rows, path)),
            cluster=Cluster(CLUSTER, ""),
            info=cast("Any", SimpleNamespace(id=_QUEUE_ID)),
            rows=cast("Any", SimpleNamespace(spark_schema=None)),
        )
        reader = QueueStreamReader(PackedQueue(opened), sleep=lambda _seconds: None)
        with capture_logs():
            reader.commit(
                QueueOffset(
                    CLUSTER,
                    path,
                    CONSUMER,
                    partitions={part: end for part, _, end in parts},
                    start={part: start for part, start, _ in parts},
                    queue_id=_QUEUE_ID,
                    cluster_id="",
                ).to_json()
            )


def describe_error(error: Exception) -> tuple[str, str]:
    """Return the name of an error, and the run it blames, if any."""
    run = str(error.where.get("run", "")) if isinstance(error, ExactlyOnceError) else ""
    return str(error) if isinstance(error, JobFailedError) else type(error).__name__, run
