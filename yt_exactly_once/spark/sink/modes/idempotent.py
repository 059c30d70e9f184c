"""Idempotent mode: tasks write, and the cluster drops what it has seen.

Into an ordered table they push through queue-producer sessions, which know the numbers of their rows. Into a
sorted one they write by key, and a row that is written again replaces itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyspark.sql.functions as sf

from yt_exactly_once.errors import ConfigError
from yt_exactly_once.spark.query.lineage import require_straight
from yt_exactly_once.spark.schema import named_column
from yt_exactly_once.spark.sink.modes.push import (
    REHEARSAL_SCHEMA,
    PushTask,
    RehearsalTask,
    require_same_rows,
)
from yt_exactly_once.spark.sink.modes.row_digest import seed_of
from yt_exactly_once.spark.sink.modes.sessions import (
    Numbering,
    begun_sessions,
    is_numbered_by_source,
    session_kind,
)
from yt_exactly_once.spark.sink.modes.tasks import (
    KEY_HASH_COLUMNS,
    REPORT_SCHEMA,
    ChunkReport,
    InsertTask,
    TaskMode,
    require_unique,
    unpack_hashes,
)
from yt_exactly_once.ytsaurus.tables import ensure_producer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import DataFrame

    from yt_exactly_once.commit.batch import MicroBatch
    from yt_exactly_once.commit.parts import SendAhead, TargetRows
    from yt_exactly_once.spark.sink.modes.mode import Sessions
    from yt_exactly_once.spark.sink.targets import PreparedTarget
    from yt_exactly_once.ytsaurus.rows import SessionState


class Idempotent(TaskMode):
    """Exactly once for stateless one-to-one flows, without a transaction over all tasks."""

    def prepare(self, batch: MicroBatch, targets: Sequence[PreparedTarget]) -> None:
        """See `Mode.prepare`.

        Raises:
            ConfigError: the query keeps state, so a replay may give other rows.
        """
        if batch.stateful:
            raise ConfigError(
                "Idempotent mode is for stateless one-to-one flows, and this query keeps state",
                remedy="Use mode='transactional'",
                query=batch.query_id,
            )
        if not all(target.is_sorted for target in targets):
            ensure_producer(self.connection, self.options.producer)

    def begun(
        self,
        frame: DataFrame,
        batch: MicroBatch,
        targets: Sequence[PreparedTarget],
        sessions: Callable[[], Sessions],
    ) -> dict[str, dict[str, SessionState]]:
        """See `Mode.begun`: these rows are pushed again, and dropped."""

        def kind(target: PreparedTarget) -> str:
            transformed = target.options.transformed(frame)
            return session_kind(by_source=is_numbered_by_source(transformed.columns, batch))

        return begun_sessions(batch, targets, sessions, kind)

    def write(
        self,
        frame: DataFrame,
        batch: MicroBatch,
        target: PreparedTarget,
        begun: Sessions,
        send: SendAhead | None = None,  # noqa: ARG002 - the contract
    ) -> list[TargetRows]:
        """See `Mode.write`.

        Raises:
            ConfigError: a repeated task may get its rows in another order.
            NotOneToOneError: two rows have one key or number; or the rows are not those that were pushed
                before.
        """
        if target.is_sorted:
            return self._upsert(frame, target)
        return self._push(frame, batch, target, begun)

    def _upsert(self, frame: DataFrame, target: PreparedTarget) -> list[TargetRows]:
        """Write by key, and find two rows of the batch with one key."""
        keys = [named_column(name) for name in target.plan.key_names]
        wide, narrow = KEY_HASH_COLUMNS
        # Spark skips nulls in a hash: without the flags (null, 1) and (1, null) would be one key.
        hashed = [*keys, *(key.isNull() for key in keys)]
        frame = frame.withColumns({wide: sf.xxhash64(*hashed), narrow: sf.hash(*hashed)})
        plain, settings = self.for_tasks(frame, target, *KEY_HASH_COLUMNS)
        task = InsertTask(settings, update=target.options.update_columns, unique_keys=True)
        report = ChunkReport.of_all(self.reports(plain.mapInArrow(task, REPORT_SCHEMA)))
        require_unique(unpack_hashes(report.key_hashes), target.path)
        return self.written(target, report)

    def _push(
        self, frame: DataFrame, batch: MicroBatch, target: PreparedTarget, begun: Sessions
    ) -> list[TargetRows]:
        """Append through sessions.

        If the DataFrame has the service columns and the query reads one queue, the source numbers the rows.
        Otherwise batch id and position do.
        """
        by_source = is_numbered_by_source(frame.columns, batch)
        numbering = Numbering(batch, by_source, target.plan, seed_of(target.plan.names))
        placed = target if by_source else target.of_batch(batch)
        plain, settings = self.for_tasks(frame, placed)
        task = PushTask(settings, numbering, self.options.producer)
        job = plain.mapInArrow(task, REPORT_SCHEMA)
        if not by_source:
            require_straight(job, batch)
        if begun:
            last = {name: state.sequence_number for name, state in begun.items()}
            rehearsal = plain.mapInArrow(RehearsalTask(settings, numbering, last), REHEARSAL_SCHEMA)
            found = [row for batch in self.reports(rehearsal) for row in batch.to_pylist()]
            require_same_rows(found, begun, numbering, target.path)
        return self.written(target, ChunkReport.of_all(self.reports(job)))
