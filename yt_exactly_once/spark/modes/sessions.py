"""Producer sessions of idempotent mode: how rows are numbered in them, and which rows of a batch they have.

A session remembers the number of its last row, and drops rows up to it. Every push also leaves there the
run, the batch, the task, and a digest of all rows of the batch that the session has. With it a replay is
compared before a row is dropped.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any
from zlib import crc32

import numpy as np
import pyarrow as pa

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


@dataclass(frozen=True)
class SourcePosition:
    """Columns that say where in its source a row is.

    Attributes:
        within: what the position counts in, such as a topic and its partition: a session each.
        position: an integer that grows there from row to row, and from batch to batch. It may leave gaps.
        queue_id: of the queue that the source reads; `None` where it is no queue.
    """

    within: tuple[str, ...]
    position: str
    queue_id: str | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        """All of them."""
        return *self.within, self.position

    def session(self, *values: int | str) -> str:
        """Return the name of the session for the rows that have these values in `within`.

        A queue that was recreated counts its rows from 0 again, in sessions of its own.
        """
        if self.queue_id is None:
            return f"{_BY_SOURCE}-{json.dumps(values, separators=(',', ':'))}"
        return "-".join(filter(None, (_BY_SOURCE, self.queue_id, str(*values))))

    def grouped(
        self, rows: pa.RecordBatch
    ) -> Iterator[tuple[tuple[Any, ...], pa.RecordBatch, np.ndarray[Any, Any]]]:
        """Yield the rows of each source partition in their order: its values, the rows, their positions."""
        codes = np.zeros(rows.num_rows, dtype=np.int64)
        for name in self.columns:
            if rows.column(name).null_count:
                raise NotOneToOneError(
                    f"A row has null in {name}, which says where in its source it is",
                    remedy="Leave such rows out, or number them in the query; or use mode='transactional'",
                )
        for name in self.within:
            column = rows.column(name).dictionary_encode()
            codes = codes * len(column.dictionary) + column.indices.to_numpy()
        firsts = np.sort(np.unique(codes, return_index=True)[1]).tolist()
        for first in firsts:
            own = rows.filter(pa.array(codes == codes[first])) if len(firsts) > 1 else rows
            numbers = own.column(self.position).cast(pa.int64()).to_numpy()
            yield tuple(rows.column(name)[first].as_py() for name in self.within), own, numbers


def gone_sessions(
    connection: Connection, batch: MicroBatch, position: SourcePosition, names: Collection[str]
) -> frozenset[str]:
    """Return those of some sessions whose rows the queue no longer has all.

    A source with fail_on_data_loss=false passes over them. So a replay cannot give all that was pushed
    before, and its rows cannot be compared. Their numbers still say which of them the session has.
    Nothing is known to be gone from a queue that this user may not read, or from another source: the rows
    are compared.
    """
    if position.queue_id is None:
        return frozenset()
    (source,) = batch.sources
    queue = RemoteQueue(connection, source.queue)
    try:
        bounds = queue.state().partitions
        is_other = source.queue_id not in {"", queue.describe().id}
    except (AccessError, TableError):
        return frozenset()
    return frozenset(
        name
        for one in source.partitions
        if (name := position.session(one.partition)) in names
        and (is_other or one.partition >= len(bounds) or bounds[one.partition].lower > one.start)
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
    def row_digests(self) -> np.ndarray[Any, Any]:
        """What each row adds to the digest; ask for it when it is certain that the rows can be written."""
        hashes = row_hashes(self.rows, self.numbering.plan.columns)
        return numbered(hashes, self.numbers, self.numbering.seed)

    def require_fit(self) -> None:
        """Check rows that are compared before they are encoded; raise `EncodingError` if one does not fit."""
        row_fragments(self.rows, self.numbering.plan)


@dataclass(frozen=True)
class Numbering:
    """How the rows of a batch are numbered: by their position in the source, or in a task.

    Attributes:
        source: which columns have the position in the source; `None` where that in a task counts.
        gone: sessions with rows that a replay cannot give, see `gone_sessions`.
    """

    batch: MicroBatch
    source: SourcePosition | None
    plan: WritePlan
    gone: frozenset[str] = frozenset()

    @property
    def other_numbers(self) -> str:
        """What to do about rows with numbers that earlier batches had already."""
        if self.source is None or self.source.queue_id is None:
            return (
                "If the source began to count anew (a topic that was recreated), give the query a new "
                "checkpoint. Otherwise let source_position name the columns of the source itself, all that "
                "its positions count in; or use mode='transactional'"
            )
        return (
            f"Rename {SOURCE_TABLET_COLUMN} and {SOURCE_ROW_COLUMN} in the DataFrame, unless they come from "
            "include_service_columns=true of this query's own source; or use mode='transactional'"
        )

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
            if self.source is not None:
                yield list(self._by_source(self.source, chunk))
                continue
            numbers = np.arange(position, position + chunk.num_rows, dtype=np.int64)
            position += chunk.num_rows
            yield [NumberedRows(position_session(partition), partition, chunk, numbers, self)]

    def _by_source(self, source: SourcePosition, chunk: pa.RecordBatch) -> Iterator[NumberedRows]:
        for values, rows, numbers in source.grouped(chunk):
            name, last = source.session(*values), values[-1]
            # Partitions of a source keep to their tablets; a name has a tablet by chance.
            home = last if isinstance(last, int) else crc32(name.encode())
            yield NumberedRows(name, home, rows, numbers, self)


def source_position(
    columns: Iterable[str], batch: MicroBatch, given: Sequence[str] | None
) -> SourcePosition | None:
    """Return by which columns idempotent mode numbers rows; `None` where it goes by their place in a task.

    Args:
        columns: of the DataFrame.
        given: the option `source_position`.
    """
    if given:
        return SourcePosition(tuple(given[:-1]), given[-1])
    if set(SOURCE_COLUMNS) <= set(columns) and len(batch.sources) == 1 and not batch.others:
        queue_id = batch.sources[0].queue_id
        return SourcePosition((SOURCE_TABLET_COLUMN,), SOURCE_ROW_COLUMN, queue_id)
    return None


def session_kind(position: SourcePosition | None) -> str:
    """Return how the names of sessions begin through which idempotent mode pushes the rows of a batch."""
    return _BY_POSITION if position is None else _BY_SOURCE


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
    layout = "" if numbering.source else ", in as many Spark partitions (cores, files)"
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


_NUMBERS = {_BY_SOURCE: "their position in the source", _BY_POSITION: "their position in a task"}
