"""Which query, which batch, which rows: what Spark knows of the micro-batch a sink is called with.

Read from Spark's own offset log, since a sink must agree with what a replay will read, and the plan of
the running query. Two ways behind one function: the running query in the JVM, or, where there is no JVM
(Spark Connect), the files of an explicit checkpoint location.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import urlparse
from urllib.request import url2pathname

from yt_exactly_once.commit.batch import MicroBatch, PartitionRange, SourceRange
from yt_exactly_once.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pyspark.sql import DataFrame

QUERY_ID_PROPERTY = "sql.streaming.queryId"
"""Local property Spark sets on the thread that runs a micro-batch (`StreamExecution.scala`)."""

_STATE_STORE_WRITER = "org.apache.spark.sql.execution.streaming.operators.stateful.StateStoreWriter"
"""Trait of every physical operator that writes state."""

_ADAPTIVE = "AdaptiveSparkPlanExec"

_NO_OFFSET = "-"
"""How Spark's offset log spells a source that has no offset yet (`OffsetSeqLog.scala`)."""


class OffsetLog(Protocol):
    """Tells what a micro-batch is."""

    def identify(self, frame: DataFrame, batch_id: int) -> MicroBatch:
        """Return the micro-batch that Spark is running."""

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

    def identify(self, frame: DataFrame, batch_id: int) -> MicroBatch:
        """See `OffsetLog.identify`.

        Raises:
            ConfigError: called outside `foreachBatch`, or without a JVM and without a checkpoint.
        """
        session = frame.sparkSession
        jvm = getattr(session, "_jvm", None)
        if jvm is None and self._files is not None:
            return self._files.identify(frame, batch_id)
        if jvm is None:
            raise ConfigError(
                "This session has no JVM to ask for the query's offsets (Spark Connect)",
                remedy="Pass checkpoint_location= with the query's checkpoint",
            )
        query_id = session.sparkContext.getLocalProperty(QUERY_ID_PROPERTY)
        if query_id is None:
            raise ConfigError(
                "The sink was called outside a streaming query",
                remedy="Use it as writeStream.foreachBatch(sink), or call it from a foreachBatch "
                "function on the same thread",
            )
        run = self._runs.get(query_id)
        # Spark has one run of a query at a time: as long as this one goes on, there is no other.
        if run is None or not run.goes_on():
            active = frame._jdf.sparkSession().sharedState().activeStreamingQueries()  # noqa: SLF001
            run = _Run(jvm, active.get(jvm.java.util.UUID.fromString(query_id)))
            self._runs[query_id] = run
        now, before = run.texts(batch_id)
        return MicroBatch(
            query_id=query_id,
            batch_id=batch_id,
            run_id=run.id,
            sources=source_ranges(now, before),
            stateful=run.stateful,
            output_mode=run.output_mode,
            others=digest_of_others(now, before),
        )


class _Run:
    """One run of a query; what stays the same while it goes on is asked once, since each call costs.

    Args:
        jvm: of the session.
        execution: the query's `StreamExecution`.
    """

    def __init__(self, jvm: Any, execution: Any) -> None:
        self.id = str(execution.runId().toString())
        plan = execution.lastExecution().executedPlan()
        self.stateful = _is_stateful(jvm, _operators(plan))
        self.output_mode = str(execution.outputMode()).lower()
        self._execution = execution
        self._log = execution.offsetLog()
        self._known: tuple[int, list[str]] = -1, []

    def goes_on(self) -> bool:
        """Tell whether the run has not ended."""
        return bool(self._execution.isActive())

    def texts(self, batch_id: int) -> tuple[list[str], list[str]]:
        """Return the logged offsets of a batch, and of the one before."""
        number, before = self._known
        if number != batch_id - 1:
            before = _offsets(self._log.get(batch_id - 1))
        now = _offsets(self._log.get(batch_id))
        self._known = batch_id, now
        return now, before


class CheckpointFiles:
    """Reads the same from a checkpoint folder.

    Args:
        location: the `checkpointLocation` of the query: a path or a `file:` URL.

    Raises:
        ConfigError: the location is on a file system this process cannot read directly.
    """

    def __init__(self, location: str) -> None:
        parts = urlparse(location)
        if parts.scheme not in ("", "file"):
            raise ConfigError(
                f"checkpoint_location on {parts.scheme} cannot be read without a JVM",
                remedy="Leave checkpoint_location out where the session has a JVM, or use a path",
            )
        self._location = location
        self._root = Path(url2pathname(parts.path) if parts.scheme else location)
        self._run_id = str(uuid.uuid4())

    def __reduce__(self) -> tuple[Any, ...]:
        """Travel without the id: every start of the query unpickles the sink, and is another run."""
        return CheckpointFiles, (self._location,)

    def identify(self, frame: DataFrame, batch_id: int) -> MicroBatch:  # noqa: ARG002 - one interface
        """See `OffsetLog.identify`.

        Raises:
            ConfigError: there is no checkpoint with this batch at the location.
        """
        try:
            metadata = json.loads((self._root / "metadata").read_text())
            now = self._read(batch_id)
        except FileNotFoundError as error:
            raise ConfigError(
                f"checkpoint_location has no batch {batch_id}",
                remedy="Pass the checkpointLocation of this very query",
                path=str(self._root),
            ) from error
        before = self._read(batch_id - 1) if batch_id > 0 else []
        return MicroBatch(
            query_id=metadata["id"],
            batch_id=batch_id,
            run_id=self._run_id,
            sources=source_ranges(now, before),
            stateful=(self._root / "state").exists(),
            others=digest_of_others(now, before),
        )

    def ranges(self, batch: MicroBatch, number: int) -> tuple[SourceRange, ...]:  # noqa: ARG002 - one interface
        """See `OffsetLog.ranges`."""
        try:
            before = self._read(number - 1) if number > 0 else []
            return source_ranges(self._read(number), before)
        except FileNotFoundError:
            return ()

    def _read(self, batch_id: int) -> list[str]:
        lines = (self._root / "offsets" / str(batch_id)).read_text().splitlines()
        # First the version, then the metadata, then one line per source.
        return [line for line in lines[2:] if line != _NO_OFFSET]


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
