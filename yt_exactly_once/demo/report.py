"""What the user sees: progress while the demo works, and the table at its end.

On a terminal it draws bars. Anywhere else it prints a line now and then. It decides neither what happens
nor whether the result is right.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from yt_exactly_once.operations.view import console

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import TaskID

    from yt_exactly_once.demo.verify import Outcome

_LINES_PER_TASK = 8


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


class Display:
    """Shows the progress of the demo; draws bars if the screen is a terminal."""

    def __init__(self, screen: Console | None = None) -> None:
        self.console = screen or console()
        self._bars = Progress(
            TextColumn("{task.description:<24}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=self.console,
            disable=not self.console.is_terminal,
        )
        self._tasks: dict[str, TaskID] = {}
        self._totals: dict[str, int] = {}
        self._shown: dict[str, int] = {}

    def __enter__(self) -> Self:
        self._bars.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bars.stop()

    def say(self, text: str) -> None:
        """Print a line above the bars."""
        self.console.print(text, soft_wrap=True)

    def begin(self, task: str, total: int) -> None:
        """Open a task that is done when it has come to the total."""
        self._tasks[task] = self._bars.add_task(task, total=total)
        self._totals[task] = total
        self._shown[task] = 0

    def expect(self, task: str, total: int) -> None:
        """Change what a task that has begun must come to."""
        self._bars.update(self._tasks[task], total=total)
        self._totals[task] = total

    def advance(self, task: str, done: int) -> None:
        """Show how far a task has come; without bars, at every eighth of it."""
        self._bars.update(self._tasks[task], completed=done)
        total = self._totals[task]
        reached = done * _LINES_PER_TASK // total
        if not self.console.is_terminal and reached > self._shown[task]:
            self._shown[task] = reached
            self.say(f"{task}: {done} of {total}")

    def running(self, proxies: list[str]) -> None:
        """Learn that the queries are about to run on a cluster with these proxies."""

    def noticed(self, event: dict[str, Any]) -> None:
        """Learn of an event of a query."""

    def killed(self, number: int, moment: str) -> None:
        """Tell of a kill: what moment it was to hit, and how far the queries were."""
        self.say(f"SIGKILL number {number}, {moment}")

    def summary(self, result: Result) -> None:
        """Print what went in, what came out, and the verdict."""
        table = Table(title="Every row against an independent computation")
        table.add_column("Result")
        for name in ("Rows in", "Rows out", "Lost", "Duplicated", "Wrong"):
            table.add_column(name, justify="right")
        for name, outcome in (
            ("Flights, enriched", result.flights),
            ("Delay statistics", result.statistics),
        ):
            table.add_row(name, *map(str, astuple(outcome)))
        self.console.print(table)
        self.say(
            f"Kills survived: {result.kills}. Replays of committed batches, found in the ledger "
            f"and skipped: {result.replays}."
        )
        self.say(f"The consumer is at row {result.consumed} of {result.flights.expected}.")
        verdict = "Exactly once" if result.exact else "NOT exact"
        self.say(f"{verdict}, in {result.seconds:.0f} s.")
