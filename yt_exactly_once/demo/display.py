"""What the user sees: progress while the demo works, the queries live, and the table and the page at its end.

On a terminal it draws bars. Anywhere else it prints a line now and then. It looks at the cluster from
outside, as `yt-exactly-once status` does; the queries are not asked. It decides neither what happens nor
whether the result is right.
"""

from __future__ import annotations

import threading
import time
from contextlib import AbstractContextManager
from dataclasses import astuple
from typing import TYPE_CHECKING, Any, Self

from rich.console import Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from yt_exactly_once.config import ClusterConfig
from yt_exactly_once.demo.layout import QUERIES
from yt_exactly_once.errors import ExactlyOnceError
from yt_exactly_once.observability import Event
from yt_exactly_once.operations.report import Happening, History, Mark, page
from yt_exactly_once.operations.status import status
from yt_exactly_once.operations.view import console, rendered
from yt_exactly_once.testing.child import EVENT, QUERY, SESSION_READY
from yt_exactly_once.ytsaurus.client import Connection

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.progress import TaskID

    from yt_exactly_once.demo.verify import Result

_LINES_PER_TASK = 8
_EVERY_SECONDS = 1.0
_LINES = 8


class Display(AbstractContextManager["Display"]):
    """Shows the progress of the demo, and keeps the history of its queries.

    Args:
        is_live: draw the queries too, if the screen is a terminal.
    """

    def __init__(self, screen: Console | None = None, *, is_live: bool = False) -> None:
        self.console = screen or console()
        self.history = History()
        self._tasks: dict[str, TaskID] = {}
        self._lines: list[str] = []
        self._bars = Progress(
            TextColumn("{task.description:<24}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=self.console,
            disable=not self.console.is_terminal,
        )
        self._live = Live(
            console=self.console, get_renderable=self._drawn, refresh_per_second=4, transient=True
        )
        self._view = self._live if is_live and self.console.is_terminal else self._bars
        self._ended = threading.Event()
        self._watcher: threading.Thread | None = None

    def __enter__(self) -> Self:
        self._view.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.ended()
        self._view.stop()

    def say(self, text: str) -> None:
        """Print a line above the bars; a live view shows the last lines."""
        if self._live.is_started:
            self._lines = [*self._lines, text][-_LINES:]
        else:
            self.console.print(text, soft_wrap=True)

    def begin(self, task: str, total: int) -> None:
        """Open a task that is done when it has come to the total."""
        self._tasks[task] = self._bars.add_task(task, total=total)

    def advance(self, task: str, done: int) -> None:
        """Show how far a task has come; without bars, at every eighth of it."""
        known = self._bars.tasks[self._tasks[task]]
        total, before = int(known.total or 1), int(known.completed)
        self._bars.update(self._tasks[task], completed=done)
        is_further = done * _LINES_PER_TASK // total > before * _LINES_PER_TASK // total
        if is_further and not self.console.is_terminal:
            self.say(f"{task}: {done} of {total}")

    def running(self, proxy: str, rows: int) -> None:
        """Follow the queries, which are about to run on a cluster, over so many rows each."""
        for query in QUERIES:
            self.begin(f"rows of {query.name}", rows)
        self._watcher = threading.Thread(target=self._watch, args=(proxy, rows), daemon=True)
        self._watcher.start()

    def ended(self) -> None:
        """Follow the queries no longer, after a last look."""
        self._ended.set()
        if self._watcher is not None:
            self._watcher.join()

    def noticed(self, event: dict[str, Any]) -> None:
        """Keep an event of a query if it belongs on the time line."""
        at, name = time.time(), event[EVENT]
        if name == SESSION_READY:
            self.history.marks.append(Mark(at, Happening.STARTED))
        elif name == Event.BATCH_COMMITTED:
            mark = Mark(at, Happening.COMMITTED, event[QUERY], event["batch"], event["rows"])
            self.history.marks.append(mark)
        elif name == Event.BATCH_SKIPPED and event.get("reason") == "replay":
            self.history.marks.append(Mark(at, Happening.REPLAYED, event[QUERY], event["batch"]))

    def killed(self, number: int, moment: str) -> None:
        """Tell of a kill: what moment it was to hit, and how far the queries were."""
        self.history.marks.append(Mark(time.time(), Happening.KILLED, note=moment))
        self.say(f"SIGKILL number {number}, {moment}")

    def summary(self, result: Result) -> None:
        """Print what went in, what came out, and the verdict."""
        table = Table(title="Every row against an independent computation")
        table.add_column("Result")
        for name in ("Rows in", "Rows out", "Lost", "Duplicated", "Wrong"):
            table.add_column(name, justify="right")
        table.add_row("Flights, enriched", *map(str, astuple(result.flights)))
        table.add_row("Delay statistics", *map(str, astuple(result.statistics)))
        self.console.print(table)
        self.say(
            f"Kills survived: {result.kills}. Replays of committed batches, found in the ledger "
            f"and skipped: {result.replays}."
        )
        self.say(f"The consumer is at row {result.consumed} of {result.flights.expected}.")
        verdict = "Exactly once" if result.exact else "NOT exact"
        self.say(f"{verdict}, in {result.seconds:.0f} s.")

    def page(self, result: Result, settings: str) -> str:
        """Return the HTML page about a demo that has ended, with its settings for the reader."""
        numbers = result.to_json()
        names = ("rows_in", "rows_out", "lost", "duplicated", "wrong", "kills")
        facts = [(name.replace("_", " "), f"{numbers[name]:,}") for name in names]
        facts += [("replays skipped", str(result.replays)), ("seconds", f"{result.seconds:.0f}")]
        text = "Exactly once: every row is right" if result.exact else "NOT exact"
        title = f"The demo of yt-exactly-once, {settings}"
        return page(title, self.history, facts=facts, verdict=text, is_good=result.exact)

    def _watch(self, proxy: str, rows: int) -> None:
        connection, is_last = Connection(ClusterConfig(proxy=proxy)), False
        while not is_last:
            is_last = self._ended.wait(_EVERY_SECONDS)
            try:
                found = status(*(query.target for query in QUERIES), connection=connection)
            except ExactlyOnceError:
                # The sinks have not created their ledgers yet.
                continue
            self.history.follow(found, time.time())
            for one in found:
                self.advance(f"rows of {one.name}", rows - one.lag_rows)

    def _drawn(self) -> RenderableType:
        lines = [Text(line) for line in self._lines]
        found = self.history.queries
        tables = [rendered(found, partitions=True)] if found else []
        return Group(*tables, self._bars, *lines)
