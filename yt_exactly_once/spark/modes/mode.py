"""The contract of a delivery mode: how the rows of a batch get from Spark into a target.

`assign` says on the driver what tasks do with their rows. A `RowTask` does it: one object, that runs inside
`mapInArrow` and inside the `write` of the format alike. `finish` says what came of it for the commit.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from pyspark import TaskContext

from yt_exactly_once.codec.schema import SOURCE_COLUMNS, SOURCE_QUEUE_COLUMN
from yt_exactly_once.commit.claims import Plan
from yt_exactly_once.commit.cluster import OpenTransaction
from yt_exactly_once.commit.parts import TargetRows
from yt_exactly_once.config import RetryPolicy
from yt_exactly_once.errors import RequestRefusedError
from yt_exactly_once.spark.compat.failures import require_version
from yt_exactly_once.spark.sink.columns import restored
from yt_exactly_once.spark.sink.encode import chunks
from yt_exactly_once.spark.sink.options import SinkOptions
from yt_exactly_once.spark.sink.placement import TABLET_COLUMN
from yt_exactly_once.spark.sink.targets import PreparedTarget, with_change
from yt_exactly_once.spark.tuning.acknowledge import Sent
from yt_exactly_once.spark.tuning.collector import freeze_modules
from yt_exactly_once.version import VERSION
from yt_exactly_once.ytsaurus.rows import SessionState

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from yt_exactly_once.commit.batch import MicroBatch
    from yt_exactly_once.observability import Emitter
    from yt_exactly_once.ytsaurus.client import Connection


Sessions = Mapping[str, Mapping[str, SessionState]]
"""Producer sessions with rows of a batch, by target and name."""

Columns = Mapping[str, Sequence[str]]
"""Names of columns, by target."""


@dataclass(frozen=True)
class TaskSettings:
    """What every writing task needs.

    Attributes:
        names: real names of the columns that the task gets, in order; see `sent` and `restored`.
        connection: the cluster; opened in the worker.
        connections: how many sessions are opened and pushed to at a time.
        version: of the package that the driver has.
    """

    names: tuple[str, ...]
    target: PreparedTarget
    connection: Connection
    retry: RetryPolicy
    connections: int
    run_id: str = ""
    version: str = VERSION

    def chunks(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Cut the rows of the task into chunks under their real names."""
        rows = (restored(batch, self.names) for batch in batches)
        return chunks(rows, self.target.dyn_batch_size)


@dataclass(frozen=True)
class RowTask(Sent, ABC):
    """What each task of a batch does with its rows. It travels to the executors."""

    settings: TaskSettings

    reports: ClassVar[StructType]
    """Columns of what it reports to the driver."""

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Run inside `mapInArrow`."""
        freeze_modules()
        context = TaskContext.get()
        assert context is not None, "runs inside a Spark task"
        yield from self.reported(batches, context.partitionId())

    def reported(
        self, batches: Iterable[pa.RecordBatch], partition: int
    ) -> Iterator[pa.RecordBatch]:
        """Do the same as `run`; where the cluster refuses rows, name a change of the target."""
        require_version(self.settings.version)
        try:
            yield from self.run(batches, partition)
        except RequestRefusedError as error:
            explained = with_change(self.settings.connection, [self.settings.target], error)
            if explained is error:
                raise
            raise explained from error

    @abstractmethod
    def run(self, batches: Iterable[pa.RecordBatch], partition: int) -> Iterator[pa.RecordBatch]:
        """Take all rows of one Spark partition, in the columns `Assignment.names`; yield reports."""


class Rehearsal(RowTask):
    """Computes all rows, and writes none; its reports show what a replay would write."""

    @abstractmethod
    def require_same_rows(self, reports: Iterable[pa.RecordBatch]) -> None:
        """Compare the rows with those that were written before; raise `NotOneToOneError` if they differ."""


def nothing_first() -> None:
    """Do nothing."""


@dataclass(frozen=True)
class TargetBatch:
    """A batch and one of its targets, before the rows are computed.

    Attributes:
        columns: of the DataFrame, as the target transforms it.
        sessions: producer sessions that have rows of the batch, although it is not in the ledger.
        transaction: open, so that tasks may write into it; `None` where there is none.
        by_driver: whether the driver does what tasks would do, with all rows.
        by_ends: see `Route`.
        first: what the driver does when it has all rows, before it does with them what tasks would do.
        plan: whose tasks open a transaction themselves, and write into it; `None` where they do not.
    """

    batch: MicroBatch
    target: PreparedTarget
    columns: tuple[str, ...]
    sessions: Mapping[str, SessionState]
    transaction: OpenTransaction | None = None
    by_driver: bool = False
    by_ends: bool = False
    first: Callable[[], None] = nothing_first
    plan: Plan | None = None

    @property
    def placed_columns(self) -> tuple[str, ...]:
        """The columns, and the tablet of each row where its Spark partition does not decide."""
        is_by_partition = self.target.placement.is_by_partition
        return self.columns if is_by_partition else (*self.columns, TABLET_COLUMN)


@dataclass(frozen=True)
class Assignment:
    """What the tasks of a batch do with the rows of one target.

    Attributes:
        names: columns of the rows, in order; those that the DataFrame lacks are computed for them.
        task: what the tasks do; `None` where the rows come to the driver.
        claiming: returns what they do instead where Spark may run one of them more than once. It raises
            `TasksRefusedError` if they cannot do that.
        rehearsal: what they do before, once over all rows, without writing; `None` for nothing.
        by_ends: whether the driver need not know more of Spark partitions than where one ends.
        is_by_position: whether a repeated task must get the same rows in the same order.
    """

    given: TargetBatch
    names: tuple[str, ...]
    task: RowTask | None = None
    claiming: Callable[[], RowTask] | None = None
    rehearsal: Rehearsal | None = None
    by_ends: bool = False
    is_by_position: bool = False


class Mode(ABC):
    """One way of writing. A sink has one object of it per process.

    The sink does everything else: it looks the batch up before the rows are computed, and commits what
    `finish` returns together with the consumers and the ledger.

    Attributes:
        one_transaction: whether all rows of a batch are in the transaction of its ledger entry. Otherwise
            tasks make rows visible before, and the check inside that transaction comes too late for them.
        tolerates_repeats: whether rows of a batch may be written again, by a replay or a copy of a task.
        has_sessions: whether tasks keep producer sessions, in a table of the sink.
    """

    one_transaction: ClassVar[bool]
    tolerates_repeats: ClassVar[bool] = False
    has_sessions: ClassVar[bool] = False

    def __init__(self, options: SinkOptions, connection: Connection) -> None:
        self.options = options
        self.connection = connection

    @property
    def obstacle(self) -> str | None:
        """The option that brings all rows to the driver; `None` where there is none."""
        return None

    @abstractmethod
    def check(self) -> None:
        """Refuse options that this mode cannot honour, with `ConfigError`."""

    def require_query(  # noqa: B027 - most modes take any
        self, batch: MicroBatch, columns: Columns | None = None, *, shuffles: bool = False
    ) -> None:
        """Refuse a query that this mode cannot write, with `ConfigError`.

        Args:
            columns: of the DataFrame, for each ordered target; `None` before they are known.
            shuffles: whether it is sure that the query shuffles its rows.
        """

    def prepare(self, batch: MicroBatch, targets: Sequence[PreparedTarget]) -> None:  # noqa: B027 - most modes need nothing
        """Check a run's query, or raise `ConfigError`; create what the mode needs before the first row."""

    def settings(self, given: TargetBatch, target: PreparedTarget) -> TaskSettings:
        """Return what the tasks need; `target` is as the rows of the batch are placed in it."""
        service = {*SOURCE_COLUMNS, SOURCE_QUEUE_COLUMN, TABLET_COLUMN}
        wanted = {*target.plan.names, *service, *(self.options.source_position or ())}
        columns = tuple(name for name in given.placed_columns if name in wanted)
        retry, connections = self.options.retry, self.options.connections
        run_id = given.batch.run_id
        return TaskSettings(columns, target, self.connection, retry, connections, run_id)

    @abstractmethod
    def begun_sessions(
        self, batch: MicroBatch, columns: Columns, emit: Emitter, *, arrived: bool
    ) -> Sessions:
        """Return the producer sessions that have rows of a batch which is not in the ledger.

        Raise `ConfigError` if this mode would write these rows again.

        Args:
            columns: of the DataFrame, for each ordered target.
            arrived: whether tasks have computed the rows, and have written what they write.
        """

    @abstractmethod
    def assign(self, given: TargetBatch) -> Assignment:
        """Say what tasks do with the rows of a target; raise `ConfigError` if this mode cannot write them."""

    @abstractmethod
    def finish(self, assignment: Assignment, arrived: Iterable[pa.RecordBatch]) -> list[TargetRows]:
        """Return what the transaction is to write; without payloads where the tasks have written.

        Args:
            arrived: all that tasks have reported, or all rows where they come to the driver.
        """
