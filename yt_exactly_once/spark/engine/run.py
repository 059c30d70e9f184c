"""The rows of a batch as a door has them, and one batch on its way."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from yt_exactly_once.commit.transactional import BatchCommit
from yt_exactly_once.delivery.route import Facts, Way
from yt_exactly_once.observability import Clock
from yt_exactly_once.spark.modes.mode import TargetBatch

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    import pyarrow as pa
    from pyspark.sql.types import StructType

    from yt_exactly_once.commit.batch import MicroBatch
    from yt_exactly_once.commit.claims import Plan
    from yt_exactly_once.commit.cluster import OpenTransaction
    from yt_exactly_once.commit.ledger import CommitLedger
    from yt_exactly_once.commit.tally import Tally
    from yt_exactly_once.delivery.memory import Memory
    from yt_exactly_once.observability import Emitter
    from yt_exactly_once.spark.compat.plan import PlannedQuery
    from yt_exactly_once.spark.modes.mode import Assignment, Mode
    from yt_exactly_once.spark.query.calls import Call
    from yt_exactly_once.spark.query.offset_log import OffsetLog
    from yt_exactly_once.spark.sink.target import Target
    from yt_exactly_once.spark.sink.targets import PreparedTarget
    from yt_exactly_once.ytsaurus.rows import SessionState


class Rows(ABC):
    """The rows of a batch: a DataFrame, or what the tasks of a writer have sent."""

    @property
    @abstractmethod
    def schema(self) -> StructType:
        """Columns of the DataFrame."""

    @property
    def are_computed(self) -> bool:
        """Whether tasks have computed them, and have written what they write."""
        return False

    @property
    def task_count(self) -> int:
        """How many tasks have computed them; 0 before."""
        return 0

    @property
    def plan(self) -> Plan | None:
        """The plan by which tasks have written them into a transaction; `None` if they have not."""
        return None

    @property
    def sessions(self) -> Mapping[str, SessionState]:
        """The producer sessions that had rows of the batch before its tasks wrote."""
        return {}

    @abstractmethod
    def schema_for(self, target: Target) -> StructType:
        """Return the columns of the DataFrame as a target transforms it."""

    def local_times(self, target: Target) -> Sequence[str]:  # noqa: ARG002 - a writer is refused them
        """Return the columns of a target that become instants, of which some have another order."""
        return ()

    def planned(self) -> PlannedQuery | None:
        """Return what Spark shows of the query before it starts; `None` if it shows nothing."""
        return None

    def conf(self, name: str) -> str | None:  # noqa: ARG002 - a writer sees none
        """Return a setting of the Spark session."""
        return None

    def described(self, batch: MicroBatch, step: str) -> AbstractContextManager[None]:  # noqa: ARG002 - a writer starts no jobs
        """Say in Spark's UI what the jobs of a block do."""
        return nullcontext()

    def kept(self) -> Rows:
        """Return the rows such that they are computed once, however often they are asked for."""
        return self

    @abstractmethod
    def compute(self, assignment: Assignment) -> Iterable[pa.RecordBatch]:
        """Compute the rows, once, let tasks do what is assigned, and return what they report.

        Or return all rows, where they come to the driver.
        """

    def pass_over(self) -> None:  # noqa: B027 - a writer gets them computed
        """Let Spark have computed the rows, for its state, and write none."""


@dataclass(frozen=True)
class Delivery:
    """One micro-batch on its way into its targets.

    Attributes:
        call: the call of the sink that delivers it.
        log: Spark's log of its query.
        ledger: its query's ledger entries.
        mode: of the sink, with its options and its connection.
        memory: of its run, as the batch began.
        opened: the transaction into which tasks have written its rows; `None` if they have not.
        clock: tells how long each step took.
    """

    batch: MicroBatch
    rows: Rows
    call: Call
    log: OffsetLog
    ledger: CommitLedger
    mode: Mode
    emit: Emitter
    memory: Memory
    opened: OpenTransaction | None = None
    clock: Clock = field(default_factory=Clock)

    @property
    def targets(self) -> tuple[PreparedTarget, ...]:
        """As they were prepared; none before."""
        return self.memory.prepared.targets if self.memory.prepared else ()

    @property
    def cluster_id(self) -> str:
        """Of the cluster for which the targets were prepared."""
        return self.memory.prepared.cluster_id if self.memory.prepared else ""

    @property
    def facts(self) -> Facts:
        """What the route of the batch is chosen by, before the ledger is asked."""
        mode, memory, batch = self.mode, self.memory, self.batch
        return Facts(
            one_transaction=mode.one_transaction,
            sent_by=mode.options.sent_by,
            keeps_state=batch.stateful,
            follows=memory.is_followed_by(batch),
            arrived=self._arrived,
            bytes_before=memory.bytes,
            seconds_before=memory.seconds,
            several_targets=len(self.targets) > 1,
            is_sorted=any(target.is_sorted for target in self.targets),
            obstacle=mode.obstacle,
            refusal=memory.refusal,
            too_large=memory.too_large,
            uneven=memory.uneven,
            outlived=memory.outlived,
        )

    @property
    def _arrived(self) -> Way | None:
        if not self.rows.are_computed:
            return None
        if not self.mode.one_transaction:
            return Way.TASKS
        return Way.JOIN if self.opened else Way.COLLECT

    def of_target(
        self, target: PreparedTarget, sessions: Mapping[str, Mapping[str, SessionState]]
    ) -> TargetBatch:
        """Return the batch and one of its targets.

        Args:
            sessions: that have rows of it, by target.
        """
        columns = tuple(self.rows.schema_for(target.options).names)
        known = self.rows.sessions if self.rows.are_computed else sessions.get(target.path, {})
        return TargetBatch(self.batch, target, columns, known)

    def knowing(self, tallies: Mapping[str, Tally]) -> Delivery:
        """Return the same with what the ledger says of the rows before."""
        return replace(self, memory=replace(self.memory, tallies=tallies))

    def commit(self) -> BatchCommit:
        """Return what makes the batch visible."""
        options = self.mode.options
        return BatchCommit(
            self.ledger,
            self.batch,
            self.mode.connection,
            policy=options.retry,
            emit=self.emit,
            connections=options.connections,
            advance_consumer=options.advance_consumer,
            commits_sent=self.call.commits_sent,
            logged=self.log.ranges,
            accepted=options.accepted,
            mode=str(options.mode),
            columns={target.path: target.columns for target in self.targets},
            before=self.memory.entry,
            began=self.clock.began,
        )
