"""Producer sessions of idempotent mode: how rows are numbered in them, and which rows of a batch they have.

A session remembers the number of its last row, and drops rows up to it. Every push also leaves there the
run, the batch, the task, and a digest of all rows of the batch that the session has. With it a replay is
compared before a row is dropped.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow.compute as pc

from yt_exactly_once.codec.row_hash import numbered, row_hashes, seed_of
from yt_exactly_once.codec.rows import row_fragments
from yt_exactly_once.codec.schema import SOURCE_COLUMNS, SOURCE_ROW_COLUMN, SOURCE_TABLET_COLUMN
from yt_exactly_once.commit.entry import APPLICATION_PREFIX
from yt_exactly_once.errors import (
    AccessError,
    ConfigError,
    NotOneToOneError,
    TableError,
    require_known_format,
)
from yt_exactly_once.retrying import run_attempts
from yt_exactly_once.ytsaurus.queues import RemoteQueue
from yt_exactly_once.ytsaurus.rows import session_prefix, sessions_of

if TYPE_CHECKING:
    import pyarrow as pa

    from yt_exactly_once.codec.schema import WritePlan
    from yt_exactly_once.commit.batch import MicroBatch
    from yt_exactly_once.observability import Emitter
    from yt_exactly_once.spark.sink.options import SinkOptions
    from yt_exactly_once.ytsaurus.client import Connection
    from yt_exactly_once.ytsaurus.rows import SessionState

SESSION_VERSION = 1
"""Format of what a push leaves in its session. Raise it when an earlier version would misread it."""

_BY_SOURCE, _BY_POSITION = "source", "partition"

POSITION_BITS = 32
"""Rows of one batch and partition are numbered `batch_id << POSITION_BITS | position`."""

REPEAT = (
    "run once with mode='at-least-once' and trigger(availableNow=True), which repeats the rows that are "
    "there"
)
"""The way out that a query always has; it repeats rows."""

_REPEAT_JOB = "write the job as another application, which repeats the rows that are there"
"""The way out that a job has."""


def position_session(partition: int) -> str:
    """Return the name of the session for the rows of one Spark partition."""
    return f"{_BY_POSITION}-{partition}"


def source_session(batch: MicroBatch, partition: int) -> str:
    """Return the name of the session for the rows of one queue partition.

    A queue that was recreated counts its rows from 0 again, in sessions of its own.
    """
    return "-".join(filter(None, (_BY_SOURCE, batch.sources[0].queue_id, str(partition))))


def gone_sessions(
    connection: Connection, batch: MicroBatch, names: Collection[str]
) -> frozenset[str]:
    """Return those of some sessions whose rows the queue no longer has all.

    A source with fail_on_data_loss=false passes over them. So a replay cannot give all that was pushed
    before, and its rows cannot be compared. Their numbers still say which of them the session has.
    Nothing is known to be gone from a queue that this user may not read: its rows are compared.
    """
    (source,) = batch.sources
    queue = RemoteQueue(connection, source.queue)
    try:
        bounds = queue.state().partitions
        is_other = source.queue_id not in {"", queue.describe().id}
    except (AccessError, TableError):
        return frozenset()
    return frozenset(
        name
        for part in source.partitions
        if (name := source_session(batch, part.partition)) in names
        and (is_other or part.partition >= len(bounds) or bounds[part.partition].lower > part.start)
    )


@dataclass(frozen=True)
class NumberedRows:
    """Rows of one chunk that go through one session, in order; `home` is a tablet or a Spark partition."""

    session: str
    home: int
    rows: pa.RecordBatch
    numbers: np.ndarray[Any, Any]
    numbering: Numbering

    @cached_property
    def parts(self) -> np.ndarray[Any, Any]:
        """What each row adds to the digest; ask for it when it is certain that the rows can be written."""
        hashes = row_hashes(self.rows, self.numbering.plan.columns)
        return numbered(hashes, self.numbers, self.numbering.seed)

    def require_fit(self) -> None:
        """Check rows that are compared before they are encoded; raise `EncodingError` if one does not fit."""
        row_fragments(self.rows, self.numbering.plan)


@dataclass(frozen=True)
class Numbering:
    """How the rows of a batch are numbered: by their place in the queue, or by their position in a task.

    Attributes:
        gone: sessions with rows that a replay cannot give, see `gone_sessions`.
    """

    batch: MicroBatch
    by_source: bool
    plan: WritePlan
    gone: frozenset[str] = frozenset()

    @cached_property
    def seed(self) -> int:
        """Of the digest."""
        return seed_of(self.plan.names)

    def numbered(
        self, chunks: Iterable[pa.RecordBatch], partition: int
    ) -> Iterator[list[NumberedRows]]:
        """Yield, for each chunk of a task, its rows by session."""
        position = self.batch.batch_id << POSITION_BITS
        for chunk in chunks:
            if self.by_source:
                yield list(self._by_source(chunk))
                continue
            numbers = np.arange(position, position + chunk.num_rows, dtype=np.int64)
            position += chunk.num_rows
            yield [NumberedRows(position_session(partition), partition, chunk, numbers, self)]

    def _by_source(self, chunk: pa.RecordBatch) -> Iterator[NumberedRows]:
        tablets = chunk.column(SOURCE_TABLET_COLUMN)
        for tablet in pc.unique(tablets).to_pylist():
            rows = chunk.filter(pc.equal(tablets, tablet))
            numbers = rows.column(SOURCE_ROW_COLUMN).to_numpy()
            yield NumberedRows(source_session(self.batch, tablet), int(tablet), rows, numbers, self)


def is_numbered_by_source(columns: Iterable[str], batch: MicroBatch) -> bool:
    """Return whether idempotent mode numbers rows by their source; otherwise by their position."""
    has_numbers = set(SOURCE_COLUMNS) <= set(columns)
    return has_numbers and len(batch.sources) == 1 and not batch.others


def session_kind(columns: Iterable[str], batch: MicroBatch) -> str:
    """Return how the names of sessions begin through which idempotent mode pushes the rows of a batch."""
    return _BY_SOURCE if is_numbered_by_source(columns, batch) else _BY_POSITION


def sessions_of_query(
    connection: Connection, options: SinkOptions, query_id: str, emit: Emitter
) -> dict[str, SessionState]:
    """Return all producer sessions of a query, by their ids."""
    path, prefix = options.producer, f"{query_id}:"
    return run_attempts(lambda _: sessions_of(connection, path, prefix), options.retry, emit)


def sessions_with_rows(
    connection: Connection,
    options: SinkOptions,
    batch: MicroBatch,
    kinds: Mapping[str, str | None],
    emit: Emitter,
) -> dict[str, dict[str, SessionState]]:
    """Return the sessions with rows of a batch that is not in the ledger, by target and name.

    Args:
        kinds: how the sink numbers the rows of each ordered target, see `session_kind`; `None` if not at all.

    Raises:
        ConfigError: rows were pushed in idempotent mode, and this sink would write them again.
        NewerFormatError: a newer version of this package pushed rows.
    """
    if not kinds:
        return {}
    found = sessions_of_query(connection, options, batch.query_id, emit)
    with_rows: dict[str, dict[str, SessionState]] = {}
    for target, own_kind in kinds.items():
        prefix = session_prefix(batch.query_id, target)
        for session_id, state in found.items():
            if not session_id.startswith(prefix):
                continue
            require_known_format(
                state.format, SESSION_VERSION, "A producer session", session=session_id
            )
            if state.batch != batch.batch_id:
                continue
            name = session_id.removeprefix(prefix)
            kind = name.partition("-")[0]
            if kind != own_kind:
                raise ConfigError(
                    "Rows of this batch are in the target already, written in idempotent mode and numbered "
                    f"by {_NUMBERS[kind]}; this sink would write them again",
                    remedy="Finish the batch as it was begun (mode, and whether rows carry their source), "
                    f"and change the sink afterwards. If it cannot be finished, {_way_out(batch)}",
                    **batch.where,
                    target=target,
                    session=session_id,
                    run=state.run,
                )
            with_rows.setdefault(target, {})[name] = state
    return with_rows


def other_rows(why: str, numbering: Numbering, target: str, session: str) -> NotOneToOneError:
    """Return the error about a replay that differs."""
    layout = "" if numbering.by_source else ", in as many Spark partitions (cores, files)"
    return NotOneToOneError(
        f"Rows of this batch were pushed before, and {why}",
        remedy="Finish the batch with the code and the options it was begun with, on the same "
        f"DataFrame{layout}, and change them afterwards. If that is impossible, {_way_out(numbering.batch)}",
        **numbering.batch.where,
        target=target,
        session=session,
    )


def _way_out(batch: MicroBatch) -> str:
    return _REPEAT_JOB if batch.query_id.startswith(APPLICATION_PREFIX) else REPEAT


_NUMBERS = {_BY_SOURCE: "their place in the queue", _BY_POSITION: "their position in a task"}
