"""The pipeline while it runs: a live view in the terminal, and the history for the page at the end.

It looks at the cluster from outside, as `yt-exactly-once status` does; the queries are not asked.
"""

from __future__ import annotations

import threading
import time
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from rich.console import Group
from rich.live import Live
from rich.text import Text

from yt_exactly_once.config import ClusterConfig
from yt_exactly_once.demo.layout import QUERIES
from yt_exactly_once.demo.messages import EVENT, QUERY, SESSION_READY
from yt_exactly_once.demo.report import Display, Result
from yt_exactly_once.errors import ExactlyOnceError
from yt_exactly_once.observability import Event
from yt_exactly_once.operations.report import Happening, History, Mark, Page, Verdict
from yt_exactly_once.operations.status import status
from yt_exactly_once.operations.view import rendered
from yt_exactly_once.ytsaurus.client import Connection

if TYPE_CHECKING:
    from rich.console import Console, RenderableType


_EVERY_SECONDS = 1.0
_LINES = 8


class WatchingDisplay(Display):
    """A display that follows the queries, draws them if it is live, and keeps their history."""

    def __init__(self, screen: Console | None = None, *, is_live: bool) -> None:
        super().__init__(screen)
        self.history = History(names={query.target: query.name for query in QUERIES})
        self._is_live = is_live and self.console.is_terminal
        self._lines: list[str] = []
        self._ended = threading.Event()
        self._watcher: threading.Thread | None = None
        self._live = Live(
            console=self.console, get_renderable=self._drawn, refresh_per_second=4, transient=True
        )

    def __enter__(self) -> Self:
        if self._is_live:
            self._live.start()
            return self
        return super().__enter__()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ended.set()
        if self._watcher is not None:
            self._watcher.join()
        if self._is_live:
            self._live.stop()
        else:
            super().__exit__(kind, error, trace)

    def say(self, text: str) -> None:
        """See `Display.say`; a live view shows the last lines."""
        if self._is_live and self._live.is_started:
            self._lines = [*self._lines, text][-_LINES:]
        else:
            super().say(text)

    def running(self, proxies: list[str]) -> None:
        """See `Display.running`: begin to follow the queries."""
        self._watcher = threading.Thread(target=self._watch, args=(proxies[0],), daemon=True)
        self._watcher.start()

    def noticed(self, event: dict[str, Any]) -> None:
        """See `Display.noticed`: keep what belongs on the time line."""
        at, name = time.time(), event[EVENT]
        if name == SESSION_READY:
            self.history.marks.append(Mark(at, Happening.STARTED))
        elif name == Event.BATCH_COMMITTED:
            mark = Mark(at, Happening.COMMITTED, event[QUERY], event["batch"], event["rows"])
            self.history.marks.append(mark)
        elif name == Event.BATCH_SKIPPED and event.get("reason") == "replay":
            self.history.marks.append(Mark(at, Happening.REPLAYED, event[QUERY], event["batch"]))

    def killed(self, number: int, moment: str) -> None:
        """See `Display.killed`."""
        self.history.marks.append(Mark(time.time(), Happening.KILLED, note=moment))
        super().killed(number, moment)

    def page(self, result: Result, settings: str) -> str:
        """Return the HTML page about a demo that has ended, with its settings for the reader."""
        numbers = result.to_json()
        names = ("rows_in", "rows_out", "lost", "duplicated", "wrong", "kills")
        facts = [(name.replace("_", " "), f"{numbers[name]:,}") for name in names]
        facts += [("replays skipped", str(result.replays)), ("seconds", f"{result.seconds:.0f}")]
        text = "Exactly once: every row is right" if result.exact else "NOT exact"
        return Page(
            f"The demo of yt-exactly-once, {settings}",
            self.history,
            time.time(),
            Verdict(text, good=result.exact),
            facts,
        ).render()

    def _watch(self, proxy: str) -> None:
        connection = Connection(ClusterConfig(proxy=proxy))
        while not self._ended.wait(_EVERY_SECONDS):
            try:
                found = status(connection, [query.target for query in QUERIES])
            except ExactlyOnceError:
                # The sinks have not created their ledgers yet.
                continue
            self.history.follow(found)

    def _drawn(self) -> RenderableType:
        lines = [Text(line) for line in self._lines]
        found = self.history.queries
        tables = [rendered(found, partitions=True)] if found else []
        return Group(*tables, self._bars, *lines)
