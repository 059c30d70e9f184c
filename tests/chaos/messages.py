"""What the runner and its drivers say to each other: commands down, events up, JSON line by line.

It knows neither Spark nor the cluster, so that the runner can speak without loading them.
"""

import json
from dataclasses import asdict, dataclass, field
from typing import Any, Self

BATCH_COLUMN = "batch"
"""Every row of a target carries the batch that wrote it."""

EVENT = "event"
QUERY = "query"
ERROR = "error"

SESSION_READY = "session.ready"
QUERY_STARTED = "query.started"
QUERY_FAILED = "query.failed"
DRAINED = "drained"
NOT_DRAINED = "not.drained"

DO = "do"
START = "start"
RESTART = "restart"
DRAIN = "drain"

LEASE_SECONDS = 3.0
"""How long a tablet transaction of a driver may live: not as long as those of users."""


@dataclass(frozen=True, kw_only=True)
class QueryTask:
    """One streaming query.

    Attributes:
        by_source: keep the coordinates of the source in the frame, so that the sink may use them.
    """

    name: str
    kind: str
    queue: str
    consumer: str
    target: str
    checkpoint: str
    by_source: bool
    sink: dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class RoundTask:
    """What a driver does in one round.

    Attributes:
        rows_per_partition: rows of a batch from each queue partition.
        trouble: folder where tasks look for orders to fail.
    """

    mode: str
    proxy: str
    rows_per_partition: int
    trouble: str
    queries: tuple[QueryTask, ...]
    conf: dict[str, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, given: dict[str, Any]) -> Self:
        queries = tuple(QueryTask(**query) for query in given["queries"])
        return cls(**{**given, "queries": queries})


@dataclass(frozen=True, kw_only=True)
class DriverOptions:
    """What a driver is told when it starts.

    Attributes:
        scratch: folder for temporary files, which a killed JVM leaves behind.
        by_tasks: tasks send the rows of transactional mode wherever they may, also of small batches.
    """

    scratch: str
    report: int
    backend: str = "http"
    by_tasks: bool = False

    def dump(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def load(cls, argument: str) -> Self:
        return cls(**json.loads(argument))
