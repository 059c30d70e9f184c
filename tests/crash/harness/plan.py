"""What a child is told to do: small enough for one command line argument."""

import json
from dataclasses import asdict, dataclass, field
from typing import Any, Self


@dataclass(frozen=True, kw_only=True)
class QueryPlan:
    """One streaming query.

    Attributes:
        point: name of the crash point; empty to live.
        digest: whether the ledger keeps a digest of the rows.
        create: see `Target`; for a path with columns in braces.
        by_format: whether it writes with the format yt, which tells no events and so has no crash point.
    """

    kind: str
    queue: str
    consumer: str
    target: str
    checkpoint: str
    mode: str = "transactional"
    point: str = ""
    batch: int = -1
    options: dict[str, Any] = field(default_factory=dict)
    digest: bool = False
    by_format: bool = False
    create: dict[str, Any] | None = None


@dataclass(frozen=True, kw_only=True)
class Plan:
    """One life of a child.

    Attributes:
        queries: run side by side; the child dies when all of them are at their crash point.
        rows_per_partition: rows of a batch from each queue partition.
        scratch: folder for temporary files, which a killed JVM leaves behind.
        stop: be stopped instead of killed, to be woken later.
    """

    queries: tuple[QueryPlan, ...]
    proxy: str
    rows_per_partition: int
    scratch: str
    stop: bool = False
    backend: str = "http"
    report: int = -1

    def dump(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def load(cls, argument: str) -> Self:
        given = json.loads(argument)
        queries = tuple(QueryPlan(**query) for query in given.pop("queries"))
        return cls(queries=queries, **given)
