"""The demo from end to end: cluster, data, the child and its deaths, the check.

It is the parent process. After each kill a new child continues the work, as under a supervisor with a warm
standby. It starts Spark while the child before it still runs, and is told of its work after the kill. It also
replaces a child in which Spark gives up on a Python process, because the machine is busy. If a child ends in
another way, the demo has failed.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from yt_exactly_once.demo import data, layout, verify
from yt_exactly_once.demo.display import Display
from yt_exactly_once.demo.schedule import LAST_LIFE_ROWS, Countdown, Moment, moments, rows_per_batch
from yt_exactly_once.errors import ConfigError
from yt_exactly_once.local import LocalCluster
from yt_exactly_once.observability import Event
from yt_exactly_once.operations.report import Happening, History
from yt_exactly_once.spark.compat.java import require_java
from yt_exactly_once.testing.child import (
    BUSY,
    ERROR,
    EVENT,
    QUERY,
    QUERY_FAILED,
    SESSION_READY,
    Child,
)
from yt_exactly_once.ytsaurus.backends import check_backend

if TYPE_CHECKING:
    from yt.wrapper import YtClient

PROXIES = 2
SILENCE_SECONDS = 300.0
"""A child that tells nothing for so long is taken for stuck."""

_STARTS = 4
"""How often in a row a driver may end because its machine is too busy."""

_CHILD = "yt_exactly_once.demo.queries"
_LOADING = "flights into the queue"


def run_demo(
    display: Display,
    *,
    rows: int | None,
    kills: int,
    seed: int,
    mode: str,
    backend: str,
    data_dir: Path | None,
) -> verify.Result:
    """Run the demo, return what the check found; raise `ExactlyOnceError` if it could not be carried out.

    Args:
        rows: flights to load; `None` loads all.
        seed: of the moments to kill at.
        data_dir: directory to keep; `None` takes a temporary one.
    """
    began = time.monotonic()
    check_backend({"backend": backend})
    require_java()
    flights = data.read_flights(rows)
    work = layout.Work(
        mode, backend, rows_per_batch(-(-flights.num_rows // layout.PARTITIONS), kills)
    )
    with (
        _data_dir(data_dir) as folder,
        Supervision(folder, work, display) as supervision,
        LocalCluster(folder, proxies=PROXIES) as cluster,
        display,
    ):
        display.say(f"Embedded cluster: {', '.join(cluster.proxy_urls)}; seed {seed}")
        # A tablet transaction lives in one proxy: this client must not look for others.
        # Compressing the flights takes longer than storing them.
        client = cluster.client(
            proxy={"enable_proxy_discovery": False, "content_encoding": "identity"}
        )
        data.create_tables(cluster.proxy_urls[0])
        display.begin(_LOADING, flights.num_rows)
        data.load(client, flights, lambda done: display.advance(_LOADING, done))
        display.running(cluster.proxy_urls[0], flights.num_rows)
        supervision.run(cluster.proxy_urls, moments(kills, seed))
        display.ended()
        display.say("Comparing every row with the data set ...")
        return _check(client, rows, display.history, began)


class _BusyMachineError(Exception):
    """Spark gave up on a Python process that did not start in time."""


class Supervision:
    """The lives of the child, one after the other, and the spare one that waits for the next kill.

    Entering it starts the first child. Leaving it leaves no process behind.
    """

    def __init__(self, folder: Path, work: layout.Work, display: Display) -> None:
        self._folder = folder
        self._work = work
        self._standby: Child | None = None
        self._display = display
        self._done = {query.name: 0 for query in layout.QUERIES}

    def __enter__(self) -> Self:
        self._standby = self._child()
        return self

    def __exit__(self, *_: object) -> None:
        if self._standby is not None:
            with self._standby:
                self._standby = None

    def run(self, proxies: list[str], deaths: Iterator[Moment]) -> None:
        """Let a child work, kill it at every moment, let the next one continue, and the last one finish.

        Raises:
            ChildFailedError: a life ended otherwise.
        """
        self._work.proxies = proxies
        for number, moment in enumerate(deaths, 1):
            self._live(moment)
            done = ", ".join(f"{name} {count}" for name, count in self._done.items())
            self._display.killed(number, f"{moment.kind.what} (batches done: {done})")
        self._work.rows_per_partition *= LAST_LIFE_ROWS
        self._live(None)

    def _live(self, moment: Moment | None) -> None:
        """Let a child do its work; let another one try if the machine was too busy for it."""
        for start in range(1, _STARTS + 1):
            child = self._standby or self._child()
            self._standby = None
            with child:
                child.send(json.dumps(asdict(self._work)))
                if moment is not None:
                    self._standby = self._child()
                try:
                    self._follow(child, moment)
                except _BusyMachineError as error:
                    if start == _STARTS:
                        raise child.failure("The queries failed", str(error)) from None
                    self._display.say(
                        "Spark gave up on a Python process after ten seconds: this machine is busy. "
                        "The driver starts again"
                    )
                else:
                    return

    def _child(self) -> Child:
        def argument(report: int) -> str:
            return json.dumps({"data_dir": str(self._folder), "report": report})

        return Child(_CHILD, argument, self._folder / "queries.log")

    def _follow(self, child: Child, moment: Moment | None) -> None:
        """Kill a child at its moment, or wait for its end."""
        countdown = Countdown(moment)
        while not countdown.is_over(time.monotonic()):
            patience = SILENCE_SECONDS
            if countdown.due is not None:
                patience = countdown.due - time.monotonic()
            try:
                event = child.next_event(patience)
            except EOFError:
                child.require_success()
                if moment is None:
                    break
                raise child.failure(
                    "The queries finished before they could be killed as often as asked"
                ) from None
            if event is not None:
                now = time.monotonic()
                countdown.notice(event[EVENT], now)
                if countdown.is_over(now):
                    # Before anything is drawn: what it is to hit may take a millisecond.
                    child.kill()
                self._note(child, event)
            elif countdown.due is None:
                raise child.failure(
                    f"The queries have not told anything for {SILENCE_SECONDS:.0f} s"
                )
        if moment is not None:
            child.kill()

    def _note(self, child: Child, event: dict[str, Any]) -> None:
        """Show the progress in an event.

        Raises:
            ChildFailedError: it reports a failure.
            _BusyMachineError: of a kind that a new start may repair.
        """
        self._display.noticed(event)
        if event[EVENT] == QUERY_FAILED:
            if BUSY in event[ERROR]:
                raise _BusyMachineError(event[ERROR])
            raise child.failure("The queries failed", event[ERROR])
        if event[EVENT] == SESSION_READY:
            self._display.say("Spark is up, the queries run")
        elif event[EVENT] in {Event.BATCH_COMMITTED, Event.BATCH_SKIPPED}:
            name = event[QUERY]
            self._done[name] = max(self._done[name], event["batch"] + 1)


def _check(client: YtClient, rows: int | None, history: History, began: float) -> verify.Result:
    seen = Counter(mark.what for mark in history.marks)
    source = verify.read_source(rows)
    flights = verify.compare(
        verify.read_ordered(client, layout.FLIGHTS.target, layout.ENRICHED_TYPES),
        verify.expected_flights(source),
        layout.IDENTITY,
    )
    statistics = verify.compare(
        verify.read_sorted(client, layout.STATISTICS.target, layout.DELAYS_TYPES),
        verify.expected_delays(source),
        layout.DELAYS_KEY,
    )
    return verify.Result(
        flights=flights,
        statistics=statistics,
        consumed=verify.consumed_rows(client, layout.FLIGHTS.consumer, layout.QUEUE),
        kills=seen[Happening.KILLED],
        replays=seen[Happening.REPLAYED],
        seconds=time.monotonic() - began,
    )


@contextmanager
def _data_dir(given: Path | None) -> Iterator[Path]:
    if given is None:
        with tempfile.TemporaryDirectory(
            prefix="yt-exactly-once-", ignore_cleanup_errors=True
        ) as path:
            yield Path(path)
        return
    try:
        given.mkdir(mode=0o700, parents=True, exist_ok=True)
        taken = next(given.iterdir(), None)
    except OSError as error:
        raise ConfigError(
            f"The data directory cannot be used: {error.strerror}",
            remedy="Pass a directory that you may write",
            path=given,
        ) from error
    if taken is not None:
        raise ConfigError(
            "The data directory is not empty",
            remedy="Pass a new directory. To serve the data of a finished demo, run "
            f"`yt-exactly-once local --data-dir {given}`",
            path=given,
        )
    yield given.resolve()
