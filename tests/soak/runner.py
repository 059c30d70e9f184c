"""The soak itself: a cluster, processes full of clients, faults, and the reading at the end."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.soak import stage, weather
from tests.soak.client import SoakClient
from tests.soak.oracle import judge
from tests.soak.records import ClientReport
from yt_exactly_once.local import LocalCluster

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_GRACE_SECONDS = 120.0
"""How long a client may take to finish its last piece of work; longer is a deadlock."""

_SETTLE_SECONDS = 3.0
"""Held requests land after their client has gone; nothing is read before they have."""

_FEATURES = {"producer_regress_on_skipped": False}
"""Clients repeat pushes under the epoch they have. Where a push without new rows sets its session back, one
that was held does so when it lands, and rows that are repeated after it would be there twice."""

_WATCH_SECONDS = 0.2
_TRIM_SECONDS = 0.5


@dataclass(frozen=True)
class SoakOptions:
    """What a soak is.

    Attributes:
        clients: how many there are.
        seconds: how long they work.
        seed: of their work and of the faults.
        processes: how many processes they live in.
        proxies: of the cluster.
        kill_probability: chance that a commit or a push kills its proxy.
    """

    clients: int = 200
    seconds: float = 60.0
    seed: int = 1
    processes: int = 2
    proxies: int = 2
    kill_probability: float = 0.001


@dataclass
class Verdict:
    """What came out.

    Attributes:
        violations: broken promises; empty is what is wanted.
        numbers: what was done, for the report.
    """

    violations: list[str]
    numbers: dict[str, Any]


def run(options: SoakOptions) -> Verdict:
    """Run a soak and judge it."""
    with LocalCluster(
        proxies=options.proxies, features=_FEATURES, trim_every=_TRIM_SECONDS
    ) as cluster:
        stage.build(cluster.client())
        for rule in weather.rules(options.seed, options.kill_probability):
            cluster.inject(**rule)
        with _watched(cluster) as restarts:
            reports = _work(options, cluster.proxy_urls)
        faults = Counter[str]()
        for rule in cluster.faults():
            faults[rule["action"]] += rule["hits"]
        cluster.clear_faults()
        threading.Event().wait(_SETTLE_SECONDS)
        state = stage.read(cluster.client())
    violations = judge(reports, state)
    if len(reports) < options.clients:
        violations.append(f"{options.clients - len(reports)} clients never came back")
    return Verdict(violations, _numbers(reports, state, faults, len(restarts), options))


def run_clients(
    url_count: int, urls: Sequence[str], numbers: range, seed: int, until: float
) -> list[ClientReport]:
    """Run clients as threads of this process; those that hang are left out."""
    reports: list[ClientReport] = []

    def work(number: int) -> None:
        reports.append(SoakClient(urls[number % url_count], number, seed).run(until))

    threads = [threading.Thread(target=work, args=(number,), daemon=True) for number in numbers]
    for thread in threads:
        thread.start()
    end = until + _GRACE_SECONDS
    for thread in threads:
        thread.join(max(end - time.monotonic(), 0))
    return list(reports)


def _work(options: SoakOptions, urls: Sequence[str]) -> list[ClientReport]:
    """Run the clients in processes of their own."""
    with tempfile.TemporaryDirectory(prefix="soak-") as folder:
        processes = []
        for index in range(options.processes):
            report = Path(folder) / f"{index}.json"
            order = {
                "urls": list(urls),
                "numbers": [index, options.clients, options.processes],
                "seed": options.seed,
                "seconds": options.seconds,
                "report": str(report),
            }
            command = [sys.executable, "-m", "tests.soak.runner", json.dumps(order)]
            processes.append((subprocess.Popen(command), report))
        found: list[ClientReport] = []
        for process, report in processes:
            process.wait(options.seconds + 2 * _GRACE_SECONDS)
            if report.exists():
                found += map(ClientReport.from_json, json.loads(report.read_text()))
    return found


@contextmanager
def _watched(cluster: LocalCluster) -> Iterator[list[int]]:
    """Restart proxies that die, as whoever runs a cluster would."""
    done = threading.Event()
    restarts: list[int] = []

    def watch() -> None:
        while not done.wait(_WATCH_SECONDS):
            for index in range(len(cluster.proxy_urls)):
                if not cluster.is_alive(index):
                    cluster.restart_proxy(index)
                    restarts.append(index)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield restarts
    finally:
        done.set()
        thread.join()
        for index in range(len(cluster.proxy_urls)):
            if not cluster.is_alive(index):
                cluster.restart_proxy(index)


def _numbers(
    reports: Sequence[ClientReport],
    state: stage.State,
    faults: Counter[str],
    restarts: int,
    options: SoakOptions,
) -> dict[str, Any]:
    outcomes: dict[str, Counter[str]] = {}
    failures: Counter[str] = Counter()
    requests: Counter[str] = Counter()
    for report in reports:
        failures.update(report.failures)
        requests.update(report.requests)
        for write in report.writes:
            outcomes.setdefault(write.kind, Counter())[write.outcome] += 1
    return {
        "clients": len(reports),
        "seconds": options.seconds,
        "seed": options.seed,
        "work": dict(requests),
        "work_per_second": round(requests.total() / options.seconds, 1),
        "outcomes": {kind: dict(counts) for kind, counts in outcomes.items()},
        "pushed_rows": sum(len(report.pushed) for report in reports),
        "failures": dict(failures),
        "faults": dict(faults),
        "proxies_restarted": restarts,
        "slowest_seconds": round(max((r.slowest for r in reports), default=0.0), 2),
        "rows": {
            "journal": sum(map(len, state.journal)),
            "rows": len(state.rows),
            "transfers": len(state.transfers),
            "events_left": len(state.events),
            "consumed": len(state.consumed),
        },
    }


def _main() -> None:
    """Be one process of clients."""
    from yt.logger import LOGGER

    # What the client warns of is meant.
    LOGGER.setLevel(logging.CRITICAL)
    order = json.loads(sys.argv[1])
    until = time.monotonic() + order["seconds"]
    urls = order["urls"]
    reports = run_clients(len(urls), urls, range(*order["numbers"]), order["seed"], until)
    Path(order["report"]).write_text(json.dumps([report.to_json() for report in reports]))


if __name__ == "__main__":
    _main()
