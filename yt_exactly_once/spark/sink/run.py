"""One run of one query as a sink remembers it, and one batch of it on its way."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from yt_exactly_once.commit.transactional import BatchCommit
from yt_exactly_once.observability import Clock, Event

if TYPE_CHECKING:
    from concurrent.futures import Future
    from contextlib import AbstractContextManager

    import pyarrow as pa
    from pyspark.sql.types import StructType

    from yt_exactly_once.commit.batch import MicroBatch
    from yt_exactly_once.commit.entry import CommitLedger, LedgerEntry
    from yt_exactly_once.observability import Emitter
    from yt_exactly_once.spark.query.calls import Call
    from yt_exactly_once.spark.sink.modes.mode import Mode, Plan
    from yt_exactly_once.spark.sink.options import Target
    from yt_exactly_once.spark.sink.targets import PreparedTarget
    from yt_exactly_once.ytsaurus.rows import SessionState

LOOK_INTERVAL = 10.0
"""Seconds after which a target is checked again: another table may have replaced it."""


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

    @abstractmethod
    def schema_for(self, target: Target) -> StructType:
        """Return the columns of the DataFrame as a target transforms it."""

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
    def compute(self, plan: Plan) -> Iterable[pa.RecordBatch]:
        """Compute the rows, once, let tasks do what is planned, and return what they report.

        Or return all rows, where they come to the driver.
        """

    def pass_over(self) -> None:  # noqa: B027 - a writer gets them computed
        """Let Spark have computed the rows, for its state, and write none."""


@dataclass
class QueryRun:
    """One run of one query; a sink may serve several queries at a time.

    Attributes:
        targets: as they were prepared; empty before.
        schema: of the DataFrame they were prepared for.
        looked_at: when the targets were last checked.
        cluster_id: see `Cluster`; empty before the targets are prepared.
        look: a check that was begun between two batches, and when.
        entry: the ledger entry that this run has committed last; `None` before the first.
        agreed: the newest batch about which sink and ledger agree; `None` before the first.
        computing: seconds that computing the newest batch took; `None` before the first.
        bytes: of the encoded rows of the newest batch, before the first one that of the run before.
        too_large: whether the rows of a batch did not fit the driver.
        is_uneven: whether a batch had rows for fewer tablets than could have shared them, or had empty Spark
            partitions where each must be known.
        refusal: why tasks were refused its rows, for good; empty where they were not.
        sessions: by target, the producer sessions that had rows of the newest batch before it was computed.
    """

    id: str
    targets: tuple[PreparedTarget, ...] = ()
    schema: StructType | None = None
    looked_at: float = 0.0
    cluster_id: str = ""
    look: tuple[float, Future[bool]] | None = None
    entry: LedgerEntry | None = None
    agreed: int | None = None
    computing: float | None = None
    bytes: int = 0
    too_large: bool = False
    is_uneven: bool = False
    refusal: str = ""
    sessions: dict[str, dict[str, SessionState]] = field(default_factory=dict)

    def continues_with(self, batch: MicroBatch) -> bool:
        """Return whether a batch follows the ones that sink and ledger agree about."""
        return self.agreed is not None and self.agreed < batch.batch_id

    def prepared(self, schema: StructType, targets: tuple[PreparedTarget, ...]) -> None:
        """Keep targets that are prepared for DataFrames of a schema."""
        self.schema, self.targets, self.looked_at = schema, targets, time.monotonic()

    def look_between(self, begin: Callable[[], Future[bool]]) -> None:
        """Begin a check of the targets that the next batch need not wait for, if one is due soon."""
        now = time.monotonic()
        if self.look is None and now - self.looked_at > LOOK_INTERVAL / 2:
            self.look = now, begin()

    def must_look(self) -> bool:
        """Return whether the targets must be looked at before the next row is encoded."""
        if self.look is not None and self.look[1].done():
            (began, look), self.look = self.look, None
            is_same = look.exception() is None and look.result()
            self.looked_at = began if is_same else 0.0
        return time.monotonic() - self.looked_at > LOOK_INTERVAL


@dataclass(frozen=True)
class Delivery:
    """One micro-batch on its way into its targets: what every step needs.

    Attributes:
        call: the call of the sink that delivers it.
        ledger: its query's ledger entries.
        mode: of the sink, with its options and its connection.
        clock: tells how long each step took.
    """

    batch: MicroBatch
    rows: Rows
    call: Call
    run: QueryRun
    ledger: CommitLedger
    mode: Mode
    emit: Emitter
    clock: Clock = field(default_factory=Clock)

    @cached_property
    def committer(self) -> BatchCommit:
        """What makes the batch visible."""
        options = self.mode.options
        return BatchCommit(
            self.ledger,
            self.batch,
            self.mode.connection,
            policy=options.retry,
            emit=self.emit,
            lanes=options.connections,
            advance_consumer=options.advance_consumer,
            commits_sent=self.call.commits_sent,
            logged=self.call.place.log.ranges,
            accepted=options.accepted,
            mode=str(options.mode),
            before=self.run.entry,
            began=self.clock.began,
        )

    def tell_again(self, error: Exception) -> None:
        """Emit that the rows are computed again, because of an error."""
        self.emit(Event.RETRY_SCHEDULED, reason=type(error).__name__, error=str(error))
