"""The demo from end to end: cluster, data, the child and its deaths, the check. It is the parent process."""

from __future__ import annotations

import json
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from yt_exactly_once.demo import data, layout, verify
from yt_exactly_once.demo.display import Display
from yt_exactly_once.demo.schedule import LAST_LIFE_ROWS, Moment, moments, rows_per_batch
from yt_exactly_once.demo.supervision import Supervision
from yt_exactly_once.errors import ConfigError
from yt_exactly_once.local import LocalCluster
from yt_exactly_once.observability import Event
from yt_exactly_once.operations.report import Happening, History
from yt_exactly_once.spark.compat.java import require_java
from yt_exactly_once.testing.child import EVENT, QUERY, SESSION_READY
from yt_exactly_once.ytsaurus.backends import check_backend

if TYPE_CHECKING:
    from yt.wrapper import YtClient

PROXIES = 2
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
        Supervision(_CHILD, folder, display.say) as supervision,
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
        work.proxies = cluster.proxy_urls
        run_lives(supervision, work, moments(kills, seed), display)
        display.ended()
        display.say("Comparing every row with the data set ...")
        return _check(client, rows, display.history, began)


def run_lives(
    supervision: Supervision, work: layout.Work, deaths: Iterator[Moment], display: Display
) -> None:
    """Let a child work, kill it at every moment, let the next one continue, and the last one finish.

    Raises:
        ChildFailedError: a life ended otherwise.
    """
    done = {query.name: 0 for query in layout.QUERIES}

    def heard(event: dict[str, Any]) -> None:
        display.noticed(event)
        if event[EVENT] == SESSION_READY:
            display.say("Spark is up, the queries run")
        elif event[EVENT] in {Event.BATCH_COMMITTED, Event.BATCH_SKIPPED}:
            done[event[QUERY]] = max(done[event[QUERY]], event["batch"] + 1)

    for number, moment in enumerate(deaths, 1):
        supervision.live(json.dumps(asdict(work)), moment, heard, is_last=False)
        shown = ", ".join(f"{name} {count}" for name, count in done.items())
        display.killed(number, f"{moment.kind.what} (batches done: {shown})")
    work.rows_per_partition *= LAST_LIFE_ROWS
    supervision.live(json.dumps(asdict(work)), None, heard, is_last=True)


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
