"""Rows as the tasks of a streaming writer hand them to Spark, and Spark to the commit of the batch.

Spark keeps one message per partition: that of the task attempt which counts.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import WriterCommitMessage

from yt_exactly_once.codec.schema import SOURCE_TABLET_COLUMN
from yt_exactly_once.commit.claims import Plan
from yt_exactly_once.errors import LedgerDivergedError, TransactionLostError
from yt_exactly_once.spark.engine import planning
from yt_exactly_once.spark.engine.run import Rows
from yt_exactly_once.spark.modes.mode import Assignment, Mode, RowTask
from yt_exactly_once.spark.sink.columns import PARTITION_COLUMN
from yt_exactly_once.spark.sink.placement import TABLET_COLUMN
from yt_exactly_once.spark.sink.target import PRESERVE, ROUND_ROBIN, Target
from yt_exactly_once.spark.tuning.acknowledge import Sent
from yt_exactly_once.ytsaurus.rows import SessionState

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


@dataclass
class TaskMessage(WriterCommitMessage):
    """What one task has done.

    Attributes:
        partition: number of its Spark partition.
        rows: its rows, where the commit is to write them.
        reports: what it has written, see `ChunkReport`.
        sessions: those that had rows of the batch before, where the commit is to push the rest.
        plan: by which it has written into a transaction that the commit ends; `None` if it has not.
        skipped: whether it left its rows out, since the batch was found in the ledger.
    """

    run_id: str
    partition: int
    rows: Sequence[pa.RecordBatch] = field(default=(), repr=False)
    reports: Sequence[pa.RecordBatch] = field(default=(), repr=False)
    sessions: dict[str, SessionState] = field(default_factory=dict)
    plan: Plan | None = None
    skipped: bool = False


@dataclass(frozen=True)
class WriterTask(Sent):
    """What each task of a streaming writer does: it writes no replay. It travels to the executors."""

    assignment: Assignment
    is_replay: bool = False

    def run(self, batches: Iterable[pa.RecordBatch], run_id: str, partition: int) -> TaskMessage:
        """Send or write all rows of the task; Spark's state needs every row to be computed."""
        if self.is_replay:
            deque(batches, maxlen=0)
            return TaskMessage(run_id, partition, skipped=True)
        assignment = self.assignment
        if assignment.task is None or assignment.rehearsal is not None:
            content = tuple(self._prepared(batches, partition, sends=True))
            return TaskMessage(run_id, partition, content, sessions=dict(assignment.given.sessions))
        rows = self._prepared(batches, partition, sends=False)
        # Nothing told the run to the process that planned.
        settings = replace(assignment.task.settings, run_id=run_id)
        of_run = replace(assignment.task, settings=settings)
        reports = tuple(of_run.reported(rows, partition))
        return TaskMessage(run_id, partition, reports=reports, plan=assignment.given.plan)

    def _prepared(
        self, batches: Iterable[pa.RecordBatch], partition: int, *, sends: bool
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows with what Spark computes for them where there is a DataFrame."""
        first, target, names = 0, self.assignment.given.target, [*self.assignment.names]
        wanted = [*names, PARTITION_COLUMN] if sends else names
        for given in batches:
            rows = given.rename_columns(list(self.assignment.given.columns))
            more: dict[str, Any] = {}
            count = rows.num_rows
            if target.placement.rule == ROUND_ROBIN:
                tablets = target.placement.tablet_count
                more[TABLET_COLUMN] = (np.arange(first, first + count) + partition) % tablets
            elif target.placement.rule == PRESERVE:
                more[TABLET_COLUMN] = rows.column(SOURCE_TABLET_COLUMN).cast(pa.int64())
            first += count
            if sends:
                more[PARTITION_COLUMN] = np.full(count, partition, np.int32)
            for name, values in more.items():
                rows = rows.append_column(name, pa.array(values))
            yield rows.select(wanted)


@dataclass(frozen=True)
class TaskRows(Rows):
    """The rows of a batch of a streaming writer: Spark computes them before it asks for the commit.

    It has one message per partition then; `None` while the batch is planned.
    """

    columns: StructType
    messages: Sequence[TaskMessage] | None = None

    @property
    def schema(self) -> StructType:
        """Columns that Spark gave to the writer."""
        return self.columns

    @property
    def are_computed(self) -> bool:
        """Whether the tasks have reported."""
        return self.messages is not None

    @property
    def task_count(self) -> int:
        """How many tasks have reported."""
        return len(self.messages or ())

    @property
    def plan(self) -> Plan | None:
        """By which they have written into a transaction."""
        return self.messages[0].plan if self.messages else None

    @property
    def sessions(self) -> Mapping[str, SessionState]:
        """The producer sessions that the plan had found, for all tasks."""
        return self.messages[0].sessions if self.messages else {}

    def schema_for(self, target: Target) -> StructType:
        """Return the same columns: a target of a writer transforms nothing."""
        assert target.transform is None, "the format has no such option"
        return self.schema

    def compute(self, assignment: Assignment) -> Iterator[pa.RecordBatch]:
        """Return what tasks have reported; raise `NotOneToOneError` if others were pushed before."""
        messages = sorted(self.messages or (), key=lambda message: message.partition)
        if any(message.skipped for message in messages):
            raise LedgerDivergedError(
                "The ledger had this batch when it was planned, and has it no more",
                remedy="Restore the ledger, and start the query or the job again",
                **assignment.given.batch.where,
            )
        if assignment.task is None:
            if any(message.reports for message in messages):
                raise TransactionLostError(
                    "Tasks have written rows into a transaction that nothing names: the table of claims has "
                    "lost it",
                    **assignment.given.batch.where,
                )
            return (rows for message in messages for rows in message.rows)
        if assignment.rehearsal is None:
            return (report for message in messages for report in message.reports)

        def run_here(task: RowTask) -> Iterator[pa.RecordBatch]:
            for message in messages:
                yield from task.reported(message.rows, message.partition)

        assignment.rehearsal.require_same_rows(run_here(assignment.rehearsal))
        return run_here(assignment.task)


def give_up(mode: Mode, query_id: str, number: int, messages: Sequence[TaskMessage | None]) -> None:
    """End what is open of a batch whose job or commit has failed; the next run plans the batch again.

    Args:
        messages: `None` of each task that has sent none.
    """
    plan = next((message.plan for message in messages if message and message.plan), None)
    planning.give_up(mode, query_id, number, plan, is_incomplete=None in messages)
