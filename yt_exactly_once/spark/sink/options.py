"""The options of a sink, checked when the sink is built: what is impossible never reaches a batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from yt_exactly_once.codec.rows import WireFormat
from yt_exactly_once.config import (
    DEFAULT_DYN_BATCH_SIZE,
    ROWS_PER_TABLET_LIMIT,
    ClusterConfig,
    RetryPolicy,
    WriteMode,
    check_transaction_timeout,
)
from yt_exactly_once.errors import ConfigError
from yt_exactly_once.spark.query.calls import LedgerRow
from yt_exactly_once.spark.sink.placement import BY_PARTITION, PLACEMENTS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from yt_exactly_once.observability import Listener

DYN_BATCH_SIZE_CONF = "spark.yt.write.dynBatchSize"
"""Spark conf that SPYT reads too; used when the argument is absent."""

AUTO_WIRE = "auto"
"""Arrow where the cluster takes it, YSON otherwise."""

ADD = "add"
REPLACE = "replace"
WRITES = (ADD, REPLACE)

_NOT_TOGETHER = (
    ("update_columns", "write='replace'", "a complete result has all columns"),
    ("write='replace'", "delete_marker", "what is not in the result is deleted already"),
    ("write='replace'", "aggregate", "a complete result adds nothing to what is there"),
    ("delete_marker", "aggregate", "of the rows of a key only the last one would count"),
)

Transform = Callable[["DataFrame"], "DataFrame"]


@dataclass(frozen=True, kw_only=True)
class Target:
    """One of the tables a sink writes to.

    Attributes:
        path: a mounted dynamic table, ordered or sorted.
        transform: what becomes of the batch's frame before it is written here; must not depend on
            anything but the frame, since it runs again on a replay.
        update_columns: keep the columns of an existing sorted row that the frame does not have.
        placement: which tablet of an ordered target takes a row, see `TransactionalSink`.
        write: `add` or `replace`, see `TransactionalSink`.
        delete_marker: a boolean column of the frame, true where the row's key is to be deleted.
        aggregate: combine aggregating columns with what is there.
    """

    path: str
    transform: Transform | None = None
    update_columns: bool = False
    placement: str | Sequence[str] = BY_PARTITION
    write: str = ADD
    delete_marker: str | None = None
    aggregate: bool = False

    def __post_init__(self) -> None:
        """Check every option.

        Raises:
            ConfigError: one is impossible.
        """
        check_path(self.path, "path")
        if isinstance(self.placement, str) and self.placement not in PLACEMENTS:
            raise ConfigError(
                f"Unknown placement {self.placement!r}",
                remedy=f"Use one of: {', '.join(PLACEMENTS)}, or a list of columns",
                target=self.path,
            )
        if not self.placement:
            raise ConfigError(
                "placement names no column", remedy="Name at least one", target=self.path
            )
        if self.write not in WRITES:
            raise ConfigError(
                f"Unknown write {self.write!r}",
                remedy=f"Use one of: {', '.join(WRITES)}",
                target=self.path,
            )
        self._check_pairs()

    def _check_pairs(self) -> None:
        given = [name for name, is_given in self.changes.items() if is_given]
        for one, other, reason in _NOT_TOGETHER:
            if one in given and other in given:
                raise ConfigError(
                    f"{one} and {other} exclude each other: {reason}",
                    remedy="Leave one of them out",
                    target=self.path,
                )

    @property
    def replaces(self) -> bool:
        """Whether rows that are not in the batch are deleted."""
        return self.write == REPLACE

    @property
    def changes(self) -> dict[str, bool]:
        """The options that change what a row does to its key, and whether they were given."""
        return {
            "update_columns": self.update_columns,
            "write='replace'": self.replaces,
            "delete_marker": self.delete_marker is not None,
            "aggregate": self.aggregate,
        }

    def transformed(self, frame: DataFrame) -> DataFrame:
        """Return the frame that is written here."""
        return frame if self.transform is None else self.transform(frame)

    @property
    def placement_rule(self) -> str | tuple[str, ...]:
        """The placement, by name or as columns."""
        return self.placement if isinstance(self.placement, str) else tuple(self.placement)


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
    reject_to: str | None = None
    show_values: bool = False
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    accept_incomplete: int | tuple[int, int] | None = None
    new_ledger: bool = False
    listener: Listener | None = None

    def __post_init__(self) -> None:
        """Check every option, and those that exclude each other.

        Raises:
            ConfigError: one is impossible.
        """
        check_path(self.ledger_path, "ledger_path")
        check_path(self.producer_path, "producer_path")
        self._check_reject_to()
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
        self._check_accepted()
        self._check_targets()

    @property
    def accepted(self) -> range:
        """Batches whose missing rows a person has settled."""
        given = self.accept_incomplete
        if given is None:
            return range(0)
        first, last = given if isinstance(given, tuple) else (given, given)
        return range(first, last + 1)

    @property
    def ledger_rows(self) -> list[LedgerRow]:
        """What the sink writes in the ledger, one for each target."""
        return [
            LedgerRow(self.cluster.proxy, self.ledger_path, target.path) for target in self.targets
        ]

    def request_size(self, frame: DataFrame) -> int:
        """Return how many rows a request carries at most.

        Raises:
            ConfigError: the Spark conf is no number of rows.
        """
        size = self.dyn_batch_size
        if size is None:
            configured = frame.sparkSession.conf.get(DYN_BATCH_SIZE_CONF, None)
            try:
                size = DEFAULT_DYN_BATCH_SIZE if configured is None else int(configured)
            except ValueError:
                raise ConfigError(
                    f"{DYN_BATCH_SIZE_CONF} is {configured!r}, not a number",
                    remedy="Set it to a positive number of rows",
                ) from None
            check_positive(size, DYN_BATCH_SIZE_CONF)
        # A request may not carry more rows than a transaction.
        return min(size, self.rows_per_tablet_limit)

    def _check_accepted(self) -> None:
        given: Any = self.accept_incomplete
        if given is None:
            return
        pair = given if isinstance(given, tuple) else (given, given)
        is_pair = len(pair) == 2 and all(type(number) is int for number in pair)  # noqa: PLR2004 - a pair
        if not is_pair or not 0 <= pair[0] <= pair[1]:
            raise ConfigError(
                f"accept_incomplete is {given!r}",
                remedy="Give the number of a batch, or a tuple of the first and the last one",
            )

    def _check_reject_to(self) -> None:
        if self.reject_to is None:
            return
        check_path(self.reject_to, "reject_to")
        if self.reject_to in {self.ledger_path, *(target.path for target in self.targets)}:
            raise ConfigError(
                f"reject_to is {self.reject_to}, which this sink uses already",
                remedy="Give it a path of its own",
            )

    def _check_targets(self) -> None:
        paths = [target.path for target in self.targets]
        if not paths:
            raise ConfigError("The sink has no target", remedy="Give at least one path or Target")
        repeated = sorted({path for path in paths if paths.count(path) > 1})
        if repeated:
            raise ConfigError(
                f"The sink has the target {repeated[0]} twice", remedy="Give each path once"
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


def as_targets(path: str | Sequence[Target], **options: Any) -> tuple[Target, ...]:
    """Return the targets that a path with the options of one target, or a list of them, stands for.

    Raises:
        ConfigError: options were given beside a list.
    """
    if isinstance(path, str):
        return (Target(path=path, **options),)
    usual = {option.name: option.default for option in fields(Target)}
    for name, given in options.items():
        if given != usual[name]:
            raise ConfigError(
                f"{name} was given beside a list of targets",
                remedy="Give it to the Target it is meant for",
            )
    return tuple(path)
