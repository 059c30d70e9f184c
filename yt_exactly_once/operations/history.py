"""What was seen of queries over a while: the batches they committed, replayed and died in, and their lag."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from yt_exactly_once.operations.query_status import QueryStatus


class Happening(StrEnum):
    """What can happen on a time line."""

    COMMITTED = "committed"
    REPLAYED = "replayed and skipped"
    STARTED = "started"
    KILLED = "killed"


@dataclass(frozen=True)
class Mark:
    """Something that happened.

    Attributes:
        at: when, in seconds since 1970.
        query: to which query; empty for all.
        rows: rows of the batch, if they are known.
        note: more, for people.
    """

    at: float
    what: Happening
    query: str = ""
    batch: int | None = None
    rows: int | None = None
    note: str = ""


@dataclass(frozen=True)
class Lag:
    """How far a query was behind at one moment.

    Attributes:
        at: when, in seconds since 1970.
        rows: rows that were not committed.
    """

    at: float
    query: str
    rows: int


@dataclass
class History:
    """Everything that was seen, in order.

    Attributes:
        lags: how far queries were behind.
        queries: their last status.
        names: of queries, by target; a query without one goes by its id.
    """

    marks: list[Mark] = field(default_factory=list)
    lags: list[Lag] = field(default_factory=list)
    queries: Sequence[QueryStatus] = ()
    names: dict[str, str] = field(default_factory=dict)

    def name(self, query: QueryStatus) -> str:
        """Return what a query is called here."""
        return self.names.get(query.targets[0].path, query.name)

    def look(self, queries: Sequence[QueryStatus], *, at: float | None = None) -> None:
        """Add one look at the status of queries, and the batches that were committed since the last one."""
        moment = time.time() if at is None else at
        before = {(one.row.ledger, one.entry.query_id): one.entry.batch_id for one in self.queries}
        for one in queries:
            batch = one.entry.batch_id
            if batch > before.get((one.row.ledger, one.entry.query_id), batch):
                rows = sum(target.rows for target in one.targets)
                self.marks.append(Mark(moment, Happening.COMMITTED, self.name(one), batch, rows))
        self.follow(queries, at=moment)

    def follow(self, queries: Sequence[QueryStatus], *, at: float | None = None) -> None:
        """Add the lag of queries alone, where their batches are known from elsewhere."""
        moment = time.time() if at is None else at
        for one in queries:
            if one.queues:
                self.lags.append(Lag(moment, self.name(one), one.lag_rows))
        self.queries = queries
