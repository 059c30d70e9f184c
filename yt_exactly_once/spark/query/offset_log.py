"""Which query, which batch, which rows: what Spark knows of the micro-batch a sink is called with.

Read from Spark's own offset log, since a sink must agree with what a replay will read, and the plan of
the running query. Two ways behind one function: the running query in the JVM, or, where there is no JVM
(Spark Connect), the files of an explicit checkpoint location.
"""

from __future__ import annotations

import hashlib
import json
import re
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

from yt_exactly_once.commit.batch import MicroBatch, PartitionRange, SourceRange
from yt_exactly_once.errors import ConfigError
from yt_exactly_once.spark.query.calls import Place
from yt_exactly_once.spark.query.checkpoint_notes import HadoopNotes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from pyspark.sql import DataFrame

    from yt_exactly_once.commit.notes import Notes
    from yt_exactly_once.errors import ExactlyOnceError
    from yt_exactly_once.spark.query.checkpoint_files import CheckpointFiles

QUERY_ID_PROPERTY = "sql.streaming.queryId"
"""Local property Spark sets on the thread that runs a micro-batch (`StreamExecution.scala`)."""

BATCH_ID_PROPERTY = "streaming.sql.batchId"
"""Local property Spark sets to the number of the batch (`MicroBatchExecution.scala`)."""

_SPARK_THREAD = re.compile(r"\[id = ([0-9a-f-]{36}), runId = ([0-9a-f-]{36})\]$")
"""End of the name of the thread that runs a query's batches (`StreamExecution.scala`)."""

_STATE_STORE_WRITER = "org.apache.spark.sql.execution.streaming.operators.stateful.StateStoreWriter"
"""Trait of every physical operator that writes state."""

_ADAPTIVE = "AdaptiveSparkPlanExec"

_LOGGED_BATCHES = 100
"""How many batches Spark keeps in its logs (`spark.sql.streaming.minBatchesToRetain`)."""


class OffsetLog(Protocol):
    """Tells what a micro-batch is."""

    def locate(self, frame: DataFrame, batch_id: int) -> Place:
        """Return which batch of which run Spark is running.

        Args:
            frame: given to the sink.
            batch_id: given to the sink.
        """

    def identify(self, frame: DataFrame, place: Place) -> MicroBatch:
        """Return the micro-batch of a place, with the rows it covers."""

    def has_ended(self, place: Place) -> bool:
        """Tell whether Spark has logged a batch as done although a call for it has not returned."""

    def may_be_written(self, batch: MicroBatch) -> bool:
        """Tell whether rows of this query may have been written before this run."""

    def ranges(self, batch: MicroBatch, number: int) -> tuple[SourceRange, ...]:
        """Return what another batch of the same query has read; nothing when it is not known."""


class RunningQuery:
    """Reads the offset log and the plan of the running query through the JVM.

    Args:
        files: the query's checkpoint, for a session without a JVM.
    """

    def __init__(self, files: CheckpointFiles | None = None) -> None:
        self._files = files
        self._runs: dict[str, _Run] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        """Travel without the objects of this process's JVM."""
        return RunningQuery, (self._files,)

    def ranges(self, batch: MicroBatch, number: int) -> tuple[SourceRange, ...]:
        """See `OffsetLog.ranges`."""
        run = self._runs.get(batch.query_id)
        if run is not None:
            return source_ranges(*run.texts(number))
        return self._files.ranges(batch, number) if self._files else ()

    def locate(self, frame: DataFrame, batch_id: int) -> Place:
        """See `OffsetLog.locate`.

        Raises:
            ConfigError: called outside `foreachBatch`, or without a JVM and without a checkpoint.
        """
        session = frame.sparkSession
        jvm = getattr(session, "_jvm", None)
        if jvm is None and self._files is not None:
            return self._files.locate(frame, batch_id)
        if jvm is None:
            raise ConfigError(
                "This session has no JVM to ask for the query's offsets (Spark Connect)",
                remedy="Pass checkpoint_location= with the query's checkpoint",
            )
        # Every Python thread has a JVM thread of its own; the function runs on that of the query.
        named = _SPARK_THREAD.search(str(jvm.java.lang.Thread.currentThread().getName()))
        property_of = session.sparkContext.getLocalProperty
        query_id = named[1] if named else property_of(QUERY_ID_PROPERTY)
        if query_id is None:
            return self._locate_by_session(frame, batch_id)
        run = self._run_of(query_id, frame, run_id=named[2] if named else None)
        number = property_of(BATCH_ID_PROPERTY)
        running = batch_id if number is None else int(number)
        problem = _wrong_batch(batch_id, running) or run.foreign(frame)
        return run.place(running, problem, in_background=named is None)

    def _run_of(self, query_id: str, frame: DataFrame, *, run_id: str | None) -> _Run:
        """Return the active run of a query.

        Raises:
            ConfigError: the caller belongs to a run that has ended.
        """
        run = self._runs.get(query_id)
        # Spark has one run of a query at a time: as long as this one is active, there is no other.
        if run is None or (run.id != run_id if run_id else not run.is_active()):
            jvm: Any = frame.sparkSession._jvm  # noqa: SLF001
            active = _active(frame).get(jvm.java.util.UUID.fromString(query_id))
            if active is None or (run_id and str(active.runId().toString()) != run_id):
                raise ConfigError(
                    "The sink was called by a run of the query that has ended",
                    remedy="Wait in the function for every sink that it calls; Spark repeats the batch in "
                    "the next run",
                    query=query_id,
                )
            run = self._runs[query_id] = _Run(frame, active)
        return run

    def _locate_by_session(self, frame: DataFrame, batch_id: int) -> Place:
        """Find the query whose DataFrame it is, where the thread does not say.

        Raises:
            ConfigError: it is of no query.
        """
        wanted = frame._jdf.sparkSession()  # noqa: SLF001
        for execution in _active(frame).values():
            if execution.sparkSessionForStream().equals(wanted):
                run = _Run(frame, execution)
                problem = ConfigError(
                    "The sink was called on a thread that Spark knows nothing of",
                    remedy="Call it on the thread of the function, or on a pyspark.InheritableThread that "
                    "the function waits for",
                    query=run.query_id,
                )
                running = int(execution.lastExecution().currentBatchId())
                return run.place(running, problem, in_background=True)
        raise ConfigError(
            "The sink was called outside a streaming query",
            remedy="Use it as writeStream.foreachBatch(sink), or call it from a foreachBatch "
            "function on the same thread",
            batch=batch_id,
        )

    def identify(self, frame: DataFrame, place: Place) -> MicroBatch:
        """See `OffsetLog.identify`."""
        run = self._runs.get(place.query_id)
        if run is None:
            assert self._files is not None, "locate has found one or the other"
            return self._files.identify(frame, place)
        now, before = run.texts(place.batch_id)
        return MicroBatch(
            query_id=place.query_id,
            batch_id=place.batch_id,
            run_id=run.id,
            sources=source_ranges(now, before),
            stateful=run.stateful,
            output_mode=run.output_mode,
            others=digest_of_others(now, before),
        )

    def has_ended(self, place: Place) -> bool:
        """See `OffsetLog.has_ended`."""
        run = self._runs.get(place.query_id)
        if run is None:
            return self._files is not None and self._files.has_ended(place)
        return place.in_background and run.has_logged(place.batch_id)

    def may_be_written(self, batch: MicroBatch) -> bool:
        """See `OffsetLog.may_be_written`."""
        run = self._runs.get(batch.query_id)
        began_it = run is not None and run.began_the_query()
        return not began_it and may_have_read(batch, self.ranges)


class _Run:
    """One run of a query; what stays the same in it is asked once, since each call costs.

    Args:
        frame: of the query.
        execution: the query's `StreamExecution`.
    """

    def __init__(self, frame: DataFrame, execution: Any) -> None:
        self.query_id = str(execution.id().toString())
        self.id = str(execution.runId().toString())
        self._jvm = frame.sparkSession._jvm  # noqa: SLF001
        self._session = execution.sparkSessionForStream()
        self._execution = execution
        self._log = execution.offsetLog()
        self._known: tuple[int, list[str]] = -1, []

    @cached_property
    def notes(self) -> Notes:
        """The notes in the query's checkpoint."""
        root = str(self._execution.resolvedCheckpointRoot())
        return HadoopNotes(self._jvm, self._session, root)

    @cached_property
    def stateful(self) -> bool:
        """Whether the query keeps state."""
        plan = self._execution.lastExecution().executedPlan()
        return _is_stateful(self._jvm, _operators(plan))

    @cached_property
    def output_mode(self) -> str:
        """Of the query."""
        return str(self._execution.outputMode()).lower()

    def place(
        self, running: int, problem: ExactlyOnceError | None, *, in_background: bool
    ) -> Place:
        """Return the place of a call."""
        return Place(self.query_id, self.id, running, self.notes, in_background, problem)

    def is_active(self) -> bool:
        """Tell whether the run has not ended."""
        return bool(self._execution.isActive())

    def foreign(self, frame: DataFrame) -> ExactlyOnceError | None:
        """Return an error when a DataFrame is one of another query."""
        session = frame._jdf.sparkSession()  # noqa: SLF001
        if self._session.equals(session):
            return None
        for execution in _active(frame).values():
            if execution.sparkSessionForStream().equals(session):
                return ConfigError(
                    "The sink was called with a DataFrame of another query",
                    remedy="Give it the DataFrame of the function's own batch, or one made from it",
                    query=self.query_id,
                    other_query=str(execution.id().toString()),
                )
        return None

    def has_logged(self, batch_id: int) -> bool:
        """Tell whether Spark has logged a batch as done."""
        return bool(self._execution.commitLog().get(batch_id).isDefined())

    def began_the_query(self) -> bool:
        """Tell whether this run ran batch 0, as far as Spark remembers."""
        progress = self._execution.recentProgress()
        return len(progress) > 0 and int(progress[0].batchId()) == 0

    def texts(self, batch_id: int) -> tuple[list[str], list[str]]:
        """Return the logged offsets of a batch, and of the one before."""
        number, before = self._known
        if number != batch_id - 1:
            before = _offsets(self._log.get(batch_id - 1))
        now = _offsets(self._log.get(batch_id))
        self._known = batch_id, now
        return now, before


def _active(frame: DataFrame) -> Any:
    """Return the active queries of all sessions, by id."""
    return frame._jdf.sparkSession().sharedState().activeStreamingQueries()  # noqa: SLF001


def _wrong_batch(given: int, running: int) -> ExactlyOnceError | None:
    if given == running:
        return None
    return ConfigError(
        f"The sink was called for batch {given}, and Spark is running batch {running}",
        remedy="Hand on the number that the foreachBatch function was given",
        batch=running,
    )


def may_have_read(
    batch: MicroBatch, ranges: Callable[[MicroBatch, int], tuple[SourceRange, ...]]
) -> bool:
    """Tell whether batches before this one may have had rows, by Spark's log.

    Args:
        batch: the batch.
        ranges: see `OffsetLog.ranges`.
    """
    if batch.batch_id == 0:
        return False
    if batch.others or not batch.sources or batch.batch_id > _LOGGED_BATCHES:
        return True
    before = [ranges(batch, number) for number in range(batch.batch_id)]
    return any(not read or any(source.moves for source in read) for read in before)


def source_ranges(now: Sequence[str], before: Sequence[str]) -> tuple[SourceRange, ...]:
    """Pair the end offsets of a batch with its starts, for the sources that are YTsaurus queues.

    Args:
        now: offsets of the batch, one JSON text per source.
        before: offsets of the batch before; empty for the first batch.

    Raises:
        ConfigError: one queue is there twice with the same consumer.
    """
    starts = {_identity(offset): offset for offset in _queue_offsets(before)}
    ends = _queue_offsets(now)
    if len({_identity(end) for end in ends}) < len(ends):
        raise ConfigError(
            "The query reads one queue twice with the same consumer",
            remedy="Load the queue once for each use, each time with a consumer of its own",
        )
    ranges = []
    for end in ends:
        start = starts.get(_identity(end))
        # Spark logs no offset before the first one of a queue; ours carries where its batch began.
        first = end["start"] if start is None else start["partitions"]
        ranges.append(
            SourceRange(
                cluster=end["cluster"],
                queue=end["queue"],
                consumer=end.get("consumer"),
                partitions=tuple(
                    PartitionRange(int(index), int(first.get(index, 0)), int(offset))
                    for index, offset in sorted(
                        end["partitions"].items(), key=lambda item: int(item[0])
                    )
                ),
                queue_id=end.get("queue_id", ""),
            )
        )
    return tuple(ranges)


def digest_of_others(now: Sequence[str], before: Sequence[str]) -> str:
    """Return a digest of where a batch begins and ends in the sources that are no queues.

    Args:
        now: offsets of the batch, one text per source.
        before: offsets of the batch before.
    """
    others = [
        sorted(_canonical(text) for text in texts if _queue_offset(text) is None)
        for texts in (before, now)
    ]
    if not any(others):
        return ""
    return hashlib.sha256(json.dumps(others).encode()).hexdigest()


def _canonical(text: str) -> str:
    try:
        return json.dumps(json.loads(text), sort_keys=True)
    except json.JSONDecodeError:
        return text


def _identity(offset: dict[str, Any]) -> tuple[Any, ...]:
    return offset["cluster"], offset["queue"], offset.get("consumer"), offset.get("queue_id", "")


def _queue_offsets(texts: Sequence[str]) -> list[dict[str, Any]]:
    """Return the offsets that our source wrote; any other source has no consumer to move."""
    return [offset for text in texts if (offset := _queue_offset(text)) is not None]


def _queue_offset(text: str) -> dict[str, Any] | None:
    try:
        offset = json.loads(text)
    except json.JSONDecodeError:
        return None
    ours = isinstance(offset, dict) and {"cluster", "queue", "partitions"} <= offset.keys()
    return offset if ours else None


def _offsets(logged: Any) -> list[str]:
    """Return the JSON texts in an `Option[OffsetSeqBase]` of the JVM."""
    if not logged.isDefined():
        return []
    sequence = logged.get()
    if sequence.getClass().getSimpleName() == "OffsetMap":
        offsets = sequence.offsetsMap().values().toSeq()
    else:
        offsets = sequence.offsets()
    options = [offsets.apply(index) for index in range(offsets.size())]
    return [str(option.get().json()) for option in options if option.isDefined()]


def _is_stateful(jvm: Any, operators: Iterable[Any]) -> bool:
    """Tell whether any operator writes state."""
    return _has(jvm, operators, _STATE_STORE_WRITER)


def _has(jvm: Any, operators: Iterable[Any], kind: str) -> bool:
    """Tell whether any operator is of a class."""
    wanted = jvm.java.lang.Class.forName(kind)
    return any(wanted.isInstance(operator) for operator in operators)


def _operators(plan: Any) -> Iterator[Any]:
    """Yield every operator of a physical plan."""
    pending = [plan]
    while pending:
        node = pending.pop()
        yield node
        if node.getClass().getSimpleName() == _ADAPTIVE:
            # It hides its children, as they may change.
            pending.append(node.initialPlan())
        children = node.children()
        pending.extend(children.apply(index) for index in range(children.size()))
