"""Idempotent mode: tasks write, and the cluster drops what it has seen.

Into an ordered table they push through queue-producer sessions, which know the numbers of their rows. Into a
sorted one they write by key, and a row that is written again replaces itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from yt_exactly_once.codec.key_hashes import KEY_HASHES
from yt_exactly_once.errors import ConfigError
from yt_exactly_once.spark.compat.jobs import refused
from yt_exactly_once.spark.modes import tasks
from yt_exactly_once.spark.modes.mode import Assignment, Columns, Mode, Sessions, TargetBatch
from yt_exactly_once.spark.modes.push import PushTask, RehearsalTask
from yt_exactly_once.spark.modes.sessions import (
    Numbering,
    gone_sessions,
    session_kind,
    sessions_with_rows,
    source_position,
)
from yt_exactly_once.spark.modes.tasks import require_unique
from yt_exactly_once.ytsaurus.tables import ensure_object

if TYPE_CHECKING:
    import pyarrow as pa

    from yt_exactly_once.commit.batch import MicroBatch
    from yt_exactly_once.commit.parts import TargetRows
    from yt_exactly_once.observability import Emitter
    from yt_exactly_once.spark.sink.options import SinkOptions
    from yt_exactly_once.spark.sink.targets import PreparedTarget
    from yt_exactly_once.ytsaurus.client import Connection
    from yt_exactly_once.ytsaurus.rows import ProducerSession


class Idempotent(Mode):
    """Exactly once for stateless one-to-one flows, without a transaction over all tasks."""

    one_transaction = False
    has_sessions = True

    def __init__(self, options: SinkOptions, connection: Connection) -> None:
        super().__init__(options, connection)
        self._owned: dict[str, ProducerSession] = {}

    def check(self) -> None:
        """Refuse what needs a transaction over all rows."""
        tasks.require_no_transaction(self.options)

    def require_query(
        self, batch: MicroBatch, columns: Columns | None = None, *, shuffles: bool = False
    ) -> None:
        """Refuse a query that keeps state, and a shuffle of rows that are numbered by their position.

        A replay may give other rows, or the same in another order.
        """
        if batch.stateful:
            raise ConfigError(
                "Idempotent mode is for stateless one-to-one flows, and this query keeps state",
                remedy="Use mode='transactional'",
                query=batch.query_id,
            )
        positions = (
            source_position(names, batch, self.options.source_position)
            for names in (columns or {}).values()
        )
        if shuffles and None in positions:
            raise refused("this query has a shuffle", batch)

    def prepare(self, batch: MicroBatch, targets: Sequence[PreparedTarget]) -> None:
        """Create the producer table; refuse a query that keeps state."""
        self.require_query(batch)
        if not all(target.is_sorted for target in targets):
            ensure_object(self.connection, "queue_producer", self.options.producer)

    def begun_sessions(
        self, batch: MicroBatch, columns: Columns, emit: Emitter, *, arrived: bool
    ) -> Sessions:
        """Return the sessions with rows; refuse rows that were pushed in another way."""
        if arrived:
            # Tasks have just pushed. Before, each found the sessions that the plan of the batch names.
            return {}
        given = self.options.source_position
        kinds = {
            path: session_kind(source_position(names, batch, given))
            for path, names in columns.items()
        }
        return sessions_with_rows(self.connection, self.options, batch, kinds, emit)

    def assign(self, given: TargetBatch) -> Assignment:
        """Let tasks push the rows, or insert them by key.

        Rows go into an ordered target through sessions. The source numbers them, if the option
        `source_position` says how, or if the DataFrame has the service columns and the query reads one
        queue. Otherwise batch id and position in a task do.
        """
        target, batch = given.target, given.batch
        if target.is_sorted:
            settings = self.settings(given, target)
            task = tasks.InsertTask(settings, unique_keys=True)
            return Assignment(given, settings.names, task, by_ends=given.by_ends)
        position = source_position(given.columns, batch, self.options.source_position)
        gone = frozenset[str]()
        if position and given.sessions:
            gone = gone_sessions(self.connection, batch, position, given.sessions)
        numbering = Numbering(batch, position, target.plan, gone)
        settings = self.settings(given, target if position else target.of_batch(batch))
        rehearsal = RehearsalTask(settings, numbering, given.sessions) if given.sessions else None
        owned = self._owned if given.by_driver else None
        push = PushTask(settings, numbering, self.options.producer, bool(given.sessions), owned)
        by_position = position is None
        return Assignment(
            given,
            settings.names,
            push,
            rehearsal=rehearsal,
            by_ends=given.by_ends and by_position,
            is_by_position=by_position,
        )

    def finish(self, assignment: Assignment, arrived: Iterable[pa.RecordBatch]) -> list[TargetRows]:
        """Return what the tasks have pushed; raise `DuplicateKeyError` if two rows have one key."""
        target, report = assignment.given.target, tasks.ChunkReport.of_all(arrived)
        if target.is_sorted:
            require_unique(np.frombuffer(report.key_hashes, KEY_HASHES), target.path)
        return [report.written(assignment.given)]
