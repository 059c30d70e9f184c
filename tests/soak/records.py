"""What a client remembers of its work, so that the oracle can judge it afterwards.

Plain data that travels between processes as JSON. Nothing here talks to the cluster.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

ACKED = "acked"
"""The cluster said that it happened: it must have happened, once."""

FAILED = "failed"
"""The cluster said that it did not happen: it must not have."""

UNKNOWN = "unknown"
"""No answer came: it happened once or not at all."""


@dataclass
class Write:
    """One attempt to write a group of rows, all or none.

    Attributes:
        kind: `append` (journal and rows in one transaction), `single` (journal, no transaction),
            `transfer` (between accounts), `consume` (output rows and an offset).
        name: unique; the names of its rows derive from it.
        outcome: one of the three above.
        rows: number of rows in the journal.
        detail: what else the oracle must know, by kind.
    """

    kind: str
    name: str
    outcome: str = UNKNOWN
    rows: int = 0
    detail: dict[str, Any] = field(default_factory=dict)


@dataclass
class ClientReport:
    """All that one client did and saw.

    Attributes:
        writes: attempts, in order.
        pushed: names of rows that a producer session acknowledged, in order.
        pending: names of the last rows pushed without an answer.
        seen: event rows that a reader saw: partition, row index, name.
        broken: reads that were not atomic, and requests that were never answered.
        requests: how many requests it made, by kind of work.
        failures: how many ended without success, by error.
        slowest: longest time of one piece of work in seconds.
    """

    writes: list[Write] = field(default_factory=list)
    pushed: list[str] = field(default_factory=list)
    pending: list[str] = field(default_factory=list)
    seen: list[tuple[int, int, str]] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    requests: dict[str, int] = field(default_factory=dict)
    failures: dict[str, int] = field(default_factory=dict)
    slowest: float = 0.0

    def to_json(self) -> dict[str, Any]:
        """Return a value for `json.dumps`."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> ClientReport:
        """Read what `to_json` made."""
        writes = [Write(**write) for write in value["writes"]]
        seen = [(part, index, name) for part, index, name in value["seen"]]
        return cls(**{**value, "writes": writes, "seen": seen})
