"""The contract of a write mode: how the rows of a batch get from Spark into a target."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark.sql import DataFrame

    from yt_exactly_once.commit.batch import MicroBatch
    from yt_exactly_once.commit.parts import SendAhead, TargetRows
    from yt_exactly_once.spark.sink.options import SinkOptions
    from yt_exactly_once.spark.sink.targets import PreparedTarget
    from yt_exactly_once.ytsaurus.client import Connection
    from yt_exactly_once.ytsaurus.rows import SessionState

    Sessions = Mapping[str, SessionState]


class Mode(ABC):
    """One way of writing. A sink has one object of it per process.

    The sink does everything else: it looks the batch up before `write`, and commits what `write` returns
    together with the consumers and the ledger.

    Args:
        options: of the sink.
        connection: to its cluster.
    """

    looks_up_each_batch: ClassVar[bool] = True
    """Whether every batch is looked up in the ledger before `write`, and not only the first of a run.

    Rows that `write` makes visible need it: the check inside the transaction comes too late for them.
    """

    def __init__(self, options: SinkOptions, connection: Connection) -> None:
        self.options = options
        self.connection = connection

    @abstractmethod
    def check(self) -> None:
        """Refuse options that this mode cannot honour.

        Raises:
            ConfigError: there is one.
        """

    def prepare(self, batch: MicroBatch, targets: Sequence[PreparedTarget]) -> None:  # noqa: B027 - most modes need nothing
        """Check the query and create what the mode needs; once per run, before the first row.

        Raises:
            ConfigError: the query cannot be written in this mode.
        """

    def begun(
        self,
        frame: DataFrame,  # noqa: ARG002 - for modes that look
        batch: MicroBatch,  # noqa: ARG002
        targets: Sequence[PreparedTarget],  # noqa: ARG002
        sessions: Callable[[], Sessions],  # noqa: ARG002
    ) -> dict[str, dict[str, SessionState]]:
        """Return the producer sessions that have rows of a batch which is not in the ledger.

        A mode that may repeat rows does not look.

        Args:
            frame: rows of the batch.
            batch: the first one that this run writes.
            targets: of the sink.
            sessions: asks the cluster for all sessions of the query.

        Returns:
            For each target, the sessions by name.

        Raises:
            ConfigError: this mode would write those rows again.
        """
        return {}

    @abstractmethod
    def write(
        self,
        frame: DataFrame,
        batch: MicroBatch,
        target: PreparedTarget,
        begun: Sessions,
        send: SendAhead | None = None,
    ) -> list[TargetRows]:
        """Evaluate the rows of one target, exactly once.

        Args:
            frame: its rows, as the target transforms them.
            batch: the micro-batch.
            target: where to write.
            begun: what `begun` has found for this target.
            send: takes payloads of the target that will not change, while others are computed. Whatever it
                got is in the result as well.

        Returns:
            What the transaction is to write; without payloads where the tasks have written.
        """
