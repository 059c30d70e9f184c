"""What the doctor examines: a cluster, and what is known of the query that will run or does not run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from yt_exactly_once import config

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class Queue:
    """A queue that the query reads, and its consumer; `None` reads without one."""

    path: str
    consumer: str | None = None


@dataclass(frozen=True, kw_only=True)
class Subject:
    """What is known of a query. Whatever is not known is not examined.

    Attributes:
        ledger: path of the ledger; by default that of a sink with these targets.
        producer: path of the producer table; by default as above.
        max_rows_per_partition: option of the source.
        rows_per_tablet: `rows_per_tablet_limit` of the sink.
        frame: columns that the sink writes, compared with those of each target; `None` if they are not known.
        conf: Spark's settings, as far as they are known.
        conf_origin: where the settings come from, for messages; empty if none are known.
        failures: why stages of the running driver failed.

    Raises:
        ConfigError: a path or a number is impossible.
    """

    cluster: config.ClusterConfig
    queues: tuple[Queue, ...] = ()
    targets: tuple[str, ...] = ()
    mode: config.DeliveryMode = config.DeliveryMode.TRANSACTIONAL
    ledger: str | None = None
    producer: str | None = None
    dead_letter: str | None = None
    checkpoint: str | None = None
    max_rows_per_partition: int | None = None
    rows_per_tablet: int = config.ROWS_PER_TABLET_LIMIT
    frame: pa.Schema | None = None
    conf: Mapping[str, str] = field(default_factory=dict)
    conf_origin: str = ""
    failures: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Check every value."""
        named = [("queue", queue.path) for queue in self.queues]
        named += [("target", target) for target in self.targets]
        given = [("consumer", queue.consumer) for queue in self.queues]
        given += [(name, getattr(self, name)) for name in ("ledger", "producer", "dead_letter")]
        named += [(name, path) for name, path in given if path is not None]
        for name, path in named:
            config.check_path(path, name)
        config.check_positive(self.rows_per_tablet, "rows_per_tablet")
        if self.max_rows_per_partition is not None:
            config.check_positive(self.max_rows_per_partition, "max_rows_per_partition")

    @property
    def ledger_path(self) -> str | None:
        """Where the ledger is or will be; `None` without targets."""
        return self.ledger or self._beside("ledger")

    @property
    def producer_path(self) -> str | None:
        """Where the producer table is or will be; `None` without targets."""
        return self.producer or self._beside("producer")

    @property
    def kept(self) -> dict[str, str]:
        """The paths of the tables that the sink keeps, by what they are."""
        producer = self.producer_path if self.mode.traits.has_sessions else None
        found = {
            "ledger": self.ledger_path,
            "producer table": producer,
            "dead-letter table": self.dead_letter,
        }
        return {name: path for name, path in found.items() if path is not None}

    def _beside(self, name: str) -> str | None:
        return f"{min(self.targets)}_{name}" if self.targets else None
