"""The options of a sink, checked when the sink is built: what is impossible never reaches a batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from yt_exactly_once.codec.rows import WireFormat
from yt_exactly_once.config import (
    ROWS_PER_TABLET_LIMIT,
    ClusterConfig,
    RetryPolicy,
    WriteMode,
    check_transaction_timeout,
)
from yt_exactly_once.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from yt_exactly_once.observability import Listener

AUTO_WIRE = "auto"
"""Arrow where the cluster takes it, YSON otherwise."""

Transform = Callable[["DataFrame"], "DataFrame"]


@dataclass(frozen=True, kw_only=True)
class Target:
    """One of the tables a sink writes to.

    Attributes:
        path: a mounted dynamic table, ordered or sorted.
        transform: what becomes of the batch's frame before it is written here; must not depend on
            anything but the frame, since it runs again on a replay.
        update_columns: keep the columns of an existing sorted row that the frame does not have.
    """

    path: str
    transform: Transform | None = None
    update_columns: bool = False

    def __post_init__(self) -> None:
        """Check the path."""
        check_path(self.path, "path")


@dataclass(frozen=True, kw_only=True)
class SinkOptions:
    """Everything a sink was told; see `TransactionalSink` for the meaning of each option."""

    targets: tuple[Target, ...]
    mode: WriteMode
    cluster: ClusterConfig
    ledger_path: str
    producer_path: str
    dyn_batch_size: int | None = None
    ledger_attributes: Mapping[str, Any] = field(default_factory=dict)
    advance_consumer: bool = True
    split_oversized: bool = False
    transaction_timeout: timedelta = timedelta(seconds=60)
    connections: int = 4
    rows_per_tablet_limit: int = ROWS_PER_TABLET_LIMIT
    wire_format: str = AUTO_WIRE
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    listener: Listener | None = None

    def __post_init__(self) -> None:
        """Check every option, and those that exclude each other.

        Raises:
            ConfigError: one is impossible.
        """
        check_path(self.ledger_path, "ledger_path")
        check_path(self.producer_path, "producer_path")
        check_transaction_timeout(self.transaction_timeout)
        for name in ("connections", "rows_per_tablet_limit"):
            check_positive(getattr(self, name), name)
        if self.dyn_batch_size is not None:
            check_positive(self.dyn_batch_size, "dyn_batch_size")
        wires = (AUTO_WIRE, WireFormat.ARROW.value, WireFormat.YSON.value)
        if self.wire_format not in wires:
            raise ConfigError(
                f"Unknown wire_format {self.wire_format!r}",
                remedy=f"Use one of: {', '.join(wires)}",
            )
        self._check_targets()

    def _check_targets(self) -> None:
        paths = [target.path for target in self.targets]
        if not paths:
            raise ConfigError("The sink has no target", remedy="Give at least one path or Target")
        repeated = sorted({path for path in paths if paths.count(path) > 1})
        if repeated:
            raise ConfigError(
                f"The sink has the target {repeated[0]} twice", remedy="Give each path once"
            )
        if self.split_oversized and self.mode is not WriteMode.TRANSACTIONAL:
            raise ConfigError(
                f"split_oversized has no meaning in mode {self.mode.value!r}",
                remedy="Leave it out: only transactional mode puts a batch into one transaction",
            )
        if len(paths) > 1 and self.mode is not WriteMode.TRANSACTIONAL:
            raise ConfigError(
                f"Several targets cannot be written in mode {self.mode.value!r}",
                remedy="Use mode='transactional', or one sink per target",
            )


def check_path(path: str, option: str) -> None:
    """Check that an option is an absolute Cypress path.

    Raises:
        ConfigError: it is not.
    """
    if not path.startswith("//") or path.endswith("/"):
        raise ConfigError(
            f"{option} is {path!r}, not a Cypress path",
            remedy="Give an absolute path such as //home/app/result",
        )


def check_positive(number: int, option: str) -> int:
    """Return a number of at least 1.

    Raises:
        ConfigError: it is smaller.
    """
    if number < 1:
        raise ConfigError(f"{option} is {number}", remedy="Give a whole number of at least 1")
    return number
