"""How the demo ended, in numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from yt_exactly_once.demo.verify import Outcome


@dataclass(frozen=True, kw_only=True)
class Result:
    """How the demo ended.

    Attributes:
        flights: the enriched table against what it must be.
        statistics: the statistics against what they must be.
        consumed: rows the first query's consumer has passed.
        replays: committed batches that Spark replayed and the sink found in the ledger.
    """

    flights: Outcome
    statistics: Outcome
    consumed: int
    kills: int
    replays: int
    seconds: float

    @property
    def exact(self) -> bool:
        """Whether every row of both tables and the consumer's offset are right."""
        return (
            self.flights.exact and self.statistics.exact and self.consumed == self.flights.expected
        )

    def to_json(self) -> dict[str, int | float | bool]:
        """Return the numbers, those of the two tables together where there are two."""
        both = (self.flights, self.statistics)
        return {
            "rows_in": self.flights.expected,
            "rows_out": self.flights.found,
            "lost": sum(outcome.lost for outcome in both),
            "duplicated": sum(outcome.duplicated for outcome in both),
            "wrong": sum(outcome.wrong for outcome in both),
            "kills": self.kills,
            "seconds": round(self.seconds, 1),
            "exact": self.exact,
        }
