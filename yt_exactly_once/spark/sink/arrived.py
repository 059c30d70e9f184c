"""Rows as the tasks of a streaming writer hand them to Spark, and Spark to the commit of the batch.

Spark keeps one message per partition: that of the task attempt which counts.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage

from yt_exactly_once.errors import ConfigError
from yt_exactly_once.spark.query.running import BATCH_ID_PROPERTY, QUERY_ID_PROPERTY

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pyspark.sql.types import StructType

    from yt_exactly_once.ytsaurus.rows import SessionState

RUN_ID_PROPERTY = "spark.jobGroup.id"
"""Local property Spark sets to the id of the run (`StreamExecution.scala`)."""


@dataclass(frozen=True)
class TaskIdentity:
    """What a task knows of itself.

    Attributes:
        query_id: id of the query.
        run_id: id of the run.
        batch_id: number of the batch.
        partition: number of the Spark partition.
    """

    query_id: str
    run_id: str
    batch_id: int
    partition: int

    @classmethod
    def of_this_task(cls) -> TaskIdentity:
        """Return the identity of the running task.

        Raises:
            ConfigError: it is not a task of a streaming query.
        """
        context = TaskContext.get()
        assert context is not None, "runs inside a Spark task"
        query, run, batch = (
            context.getLocalProperty(name)
            for name in (QUERY_ID_PROPERTY, RUN_ID_PROPERTY, BATCH_ID_PROPERTY)
        )
        if query is None or run is None or batch is None:
            raise ConfigError(
                "Spark does not tell a task its query, run and batch",
                remedy="Use writeStream with a micro-batch trigger, or foreachBatch",
            )
        return cls(query, run, int(batch), context.partitionId())


@dataclass
class TaskMessage(WriterCommitMessage):
    """What one task has done.

    Attributes:
        task: which one.
        row_count: rows that it got.
        rows: its rows as an Arrow stream, where the commit is to write them.
        reports: what it has written, see `ChunkReport`.
        begun: sessions that had rows of the batch before, where the commit is to push the rest.
        skipped: whether it left its rows out, since the batch was found in the ledger.
    """

    task: TaskIdentity
    row_count: int
    rows: bytes = field(default=b"", repr=False)
    reports: Sequence[pa.RecordBatch] = field(default=(), repr=False)
    begun: dict[str, SessionState] = field(default_factory=dict)
    skipped: bool = False

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows."""
        if self.rows:
            yield from pa.ipc.open_stream(self.rows)


def packed(batches: Iterable[pa.RecordBatch]) -> tuple[bytes, int]:
    """Return rows as an Arrow stream, and how many there are."""
    count, sink, writer = 0, pa.BufferOutputStream(), None
    for batch in batches:
        if not batch.num_rows:
            continue
        if writer is None:
            writer = pa.ipc.new_stream(sink, batch.schema)
        writer.write_batch(batch)
        count += batch.num_rows
    if writer is None:
        return b"", 0
    writer.close()
    return sink.getvalue().to_pybytes(), count


@dataclass(frozen=True)
class ArrivedRows:
    """The rows of a batch, in the place of the DataFrame that `foreachBatch` gets.

    Attributes:
        schema: of the DataFrame.
        output_mode: of the query.
        run_id: id of the run.
        query_id: id of the query; empty before the first task has named it.
        messages: in the order of the partitions; empty while the batch is planned.
    """

    schema: StructType
    output_mode: str
    run_id: str
    query_id: str = ""
    messages: Sequence[TaskMessage] = ()

    @property
    def columns(self) -> list[str]:
        """Names of the columns."""
        return list(self.schema.names)
