"""The running query in the JVM: which batch Spark is running, its offsets, and the plan of the query."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

from yt_exactly_once.commit.batch import MicroBatch
from yt_exactly_once.errors import ConfigError, ExactlyOnceError
from yt_exactly_once.spark.compat.checkpoint import CheckpointFiles
from yt_exactly_once.spark.compat.jvm import jvm_of, pins_threads, queries_in, session_in
from yt_exactly_once.spark.compat.spark_log import LoggedOffsets, read_offsets
from yt_exactly_once.spark.compat.versions import STATE_STORE_WRITER
from yt_exactly_once.spark.query.notes import HadoopNotes
from yt_exactly_once.spark.query.offset_log import OffsetLog, RunningBatch, identified
from yt_exactly_once.spark.storage import shown, split_location

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


QUERY_ID_PROPERTY = "sql.streaming.queryId"
"""Local property Spark sets on the thread that runs a micro-batch (`StreamExecution.scala`)."""

RUN_ID_PROPERTY = "spark.jobGroup.id"
"""Local property Spark sets to the id of the run (`StreamExecution.scala`)."""

BATCH_ID_PROPERTY = "streaming.sql.batchId"
"""Local property Spark sets to the number of the batch (`MicroBatchExecution.scala`)."""

_SPARK_THREAD = re.compile(r"\[id = ([0-9a-f-]{36}), runId = ([0-9a-f-]{36})\]$")
"""End of the name of the thread that runs a query's batches (`StreamExecution.scala`)."""

_MADE_BY_SPARK = re.compile(
    r"(?P<above>.*)/(?P<temporary>temporary-)?[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"
)
"""Checkpoints of queries that name none (`ResolveWriteToStream.scala`): each start makes another one."""

_CHECKPOINTS = "spark.sql.streaming.checkpointLocation"

_ADAPTIVE = "AdaptiveSparkPlanExec"

_KAFKA = "org.apache.spark.sql.kafka010.KafkaMicroBatchStream"
"""Knows the ends of its topics without a request, once it has planned a batch."""


class RunningQuery:
    """Finds the running query in the JVM; `files` are for a session without one."""

    def __init__(self, files: CheckpointFiles | None = None) -> None:
        self._files = files
        self._runs: dict[str, _Run] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        """Travel without the objects of this process's JVM."""
        return RunningQuery, (self._files,)

    def locate(self, frame: DataFrame, batch_id: int) -> RunningBatch:
        """Return the batch that Spark is running, and its run; raise `ConfigError` outside `foreachBatch`."""
        session = frame.sparkSession
        jvm = jvm_of(session)
        if jvm is None and self._files is not None:
            return self._files.locate(frame, batch_id)
        if jvm is None:
            raise ConfigError(
                "This session has no JVM to ask for the query's offsets (Spark Connect)",
                remedy="Pass checkpoint_location= with the query's checkpoint",
            )
        # Every Python thread has a JVM thread of its own; the function runs on that of the query.
        named = _SPARK_THREAD.search(str(_current_thread_of(jvm)().getName()))
        property_of = session.sparkContext.getLocalProperty
        query_id = named[1] if named else property_of(QUERY_ID_PROPERTY)
        if query_id is None:
            return self._locate_by_session(frame, batch_id)
        run = self._run_of(query_id, frame, run_id=named[2] if named else None)
        number = property_of(BATCH_ID_PROPERTY)
        running = batch_id if number is None else int(number)
        problem = run.foreign(frame) or run.forgotten
        if batch_id != running:
            problem = ConfigError(
                f"The sink was called for batch {batch_id}, and Spark is running batch {running}",
                remedy="Pass the batch id that the foreachBatch function received",
                batch=running,
            )
        return RunningBatch(run.query_id, run.id, running, run, named is None, problem)

    def _run_of(self, query_id: str, frame: DataFrame, *, run_id: str | None) -> _Run:
        """Return the active run of a query; raise `ConfigError` if the caller's has ended."""
        run = self._runs.get(query_id)
        # Spark has one run of a query at a time: as long as this one is active, there is no other.
        if run is None or (run.id != run_id if run_id else not run.execution.isActive()):
            jvm: Any = jvm_of(frame.sparkSession)
            active = queries_in(frame).get(jvm.java.util.UUID.fromString(query_id))
            if active is None or (run_id and str(active.runId().toString()) != run_id):
                raise ConfigError(
                    "A run of the query that has ended called the sink",
                    remedy="Wait in the function for every sink that it calls; Spark repeats the batch in "
                    "the next run",
                    query=query_id,
                )
            run = self._runs[query_id] = _Run(frame, active)
        return run

    def _locate_by_session(self, frame: DataFrame, batch_id: int) -> RunningBatch:
        """Find the query of the DataFrame, where no thread names it; raise `ConfigError` if it is of none."""
        execution = _execution_in(session_in(frame), frame)
        if execution is None:
            raise ConfigError(
                "The sink was called outside a streaming query",
                remedy="Use it as writeStream.foreachBatch(sink), or call it from a foreachBatch "
                "function on the same thread",
                batch=batch_id,
            )
        run = _Run(frame, execution)
        if pins_threads(frame.sparkSession):
            what = "The sink was called on a thread that Spark does not know"
            remedy = (
                "Call it on the thread of the function, or on a pyspark.InheritableThread that the function "
                "waits for"
            )
        else:
            what = "PySpark does not say which batch calls the sink: PYSPARK_PIN_THREAD is false"
            remedy = "Remove this variable where the driver starts, and start the query again"
        problem = ConfigError(what, remedy=remedy, query=run.query_id)
        running = int(execution.lastExecution().currentBatchId())
        return RunningBatch(run.query_id, run.id, running, run, in_background=True, problem=problem)


class _Run(OffsetLog):
    """One run of a query. What does not change is asked once, since each call to the JVM costs time."""

    def __init__(self, frame: DataFrame, execution: Any) -> None:
        self.query_id = str(execution.id().toString())
        self.id = str(execution.runId().toString())
        self.query_name = str(execution.name() or "")
        jvm: Any = jvm_of(frame.sparkSession)
        self._jvm = jvm
        self._context = frame.sparkSession.sparkContext
        self._session = execution.sparkSessionForStream()
        self.execution = execution
        self._log = execution.offsetLog()
        root = self._root = str(execution.resolvedCheckpointRoot())
        self.notes = HadoopNotes(self._jvm, self._session, root)
        self.location = shown(root)
        self._buffer = jvm.java.io.ByteArrayOutputStream()
        self._known: dict[int, LoggedOffsets] = {}

    @cached_property
    def stateful(self) -> bool:
        """Whether the query keeps state."""
        writer = self._jvm.java.lang.Class.forName(STATE_STORE_WRITER)
        plan = self.execution.lastExecution().executedPlan()
        return any(writer.isInstance(operator) for operator in _operators(plan))

    @cached_property
    def output_mode(self) -> str:
        """Of the query."""
        return str(self.execution.outputMode()).lower()

    @cached_property
    def forgotten(self) -> ExactlyOnceError | None:
        """An error if no later run finds the checkpoint, since nothing names it."""
        found = _MADE_BY_SPARK.fullmatch(self._root)
        if found is None or not (found["temporary"] or self._is_unnamed(found["above"])):
            return None
        return ConfigError(
            "The query has no checkpointLocation. Each start would make another checkpoint, and begin "
            "without state, or write rows again",
            remedy="Add .option('checkpointLocation', '/data/checkpoints/NAME') to the query: a folder of "
            "its own, on a disk or in a store that outlives the driver",
            query=self.query_id,
        )

    def _is_unnamed(self, above: str) -> bool:
        """Return whether a checkpoint in a folder is one that Spark makes for a query without a name."""
        conf = self._session.conf()
        given = "" if self.query_name else str(conf.get(_CHECKPOINTS, ""))
        return bool(given) and split_location(above)[2] == split_location(given)[2].rstrip("/")

    def identify(self, running: RunningBatch) -> MicroBatch:
        now, before = self.texts(running.batch_id)
        names = sorted(self._read(running.batch_id).names)
        gone = [name for name in names if not self.execution.sourceIdMap().contains(name)]
        if gone:
            raise ConfigError(
                f"Spark has planned this batch with the source {gone[0]}, which the query does not read any "
                "more: its rows of this batch would never come",
                remedy="Read this source until the batch is written. Then stop the query, and remove it",
                query=running.query_id,
                batch=running.batch_id,
            )
        stateful, output_mode = self.stateful, self.output_mode
        return identified(
            running, now, before, self._latest, stateful=stateful, output_mode=output_mode
        )

    def _latest(self) -> list[str]:
        """Return where the topics of Kafka ended when Spark planned the batch; nothing in a replay."""
        try:
            found = [one.reportLatestOffset() for one in self._topics]
            return [str(one.json()) for one in found if one is not None]
        except Exception:  # noqa: BLE001 - the source raises until it has planned a batch; only a lag is lost
            return []

    @cached_property
    def _topics(self) -> list[Any]:
        """The sources that are Kafka's."""
        sources = self.execution.sources()
        each = (sources.apply(number) for number in range(sources.size()))
        return [one for one in each if one.getClass().getName() == _KAFKA]

    def foreign(self, frame: DataFrame) -> ExactlyOnceError | None:
        """Return an error when a DataFrame is one of another query."""
        session = session_in(frame)
        other = None if self._session.equals(session) else _execution_in(session, frame)
        if other is None:
            return None
        return ConfigError(
            "The sink was called with a DataFrame of another query",
            remedy="Pass the DataFrame of the function's own batch, or one derived from it",
            query=self.query_id,
            other_query=str(other.id().toString()),
        )

    def has_ended(self, running: RunningBatch) -> bool:
        """Return whether the batch is logged as done; the thread of the query logs it after the call."""
        if not running.in_background:
            return False
        return bool(self.execution.commitLog().get(running.batch_id).isDefined())

    def is_new(self, number: int, is_unused: bool) -> bool:
        """Return whether the batch is new; Spark repeats only the first batch of a run."""
        progress = self.execution.recentProgress()
        if len(progress) > 0 and int(progress[0].batchId()) < number:
            return True
        return is_unused and self._read(number).logged_at >= int(self._context.startTime)

    def texts(self, number: int) -> tuple[list[str], list[str]]:
        """Return the logged offsets of a batch, and of the one before."""
        before, now = self._read(number - 1), self._read(number)
        self._known = {number - 1: before, number: now}
        return now.texts, before.texts

    def _read(self, number: int) -> LoggedOffsets:
        known = self._known.get(number)
        if known is not None:
            return known
        logged = self._log.get(number)
        try:
            offsets = logged.get()
        except Exception:
            # A call less for the batch that runs, whose offsets are there.
            if logged.isDefined():
                raise
            return LoggedOffsets([], 0)
        # As Spark writes it, so that its files have one reader.
        self._buffer.reset()
        self._log.serialize(offsets, self._buffer)
        return read_offsets(number, str(self._buffer.toString("UTF-8")))


@lru_cache(maxsize=1)
def _current_thread_of(jvm: Any) -> Any:
    """Return `Thread.currentThread` of a JVM. To find a method takes four calls, and to call it takes one."""
    return jvm.java.lang.Thread.currentThread


def _execution_in(session: Any, frame: DataFrame) -> Any:
    """Return the running query that a session is made for; `None` if it is made for none."""
    queries = queries_in(frame).values()
    return next((one for one in queries if one.sparkSessionForStream().equals(session)), None)


def _operators(plan: Any) -> Iterator[Any]:
    pending = [plan]
    while pending:
        node = pending.pop()
        yield node
        if node.getClass().getSimpleName() == _ADAPTIVE:
            # It hides its children, as they may change.
            pending.append(node.initialPlan())
        children = node.children()
        pending.extend(children.apply(index) for index in range(children.size()))
