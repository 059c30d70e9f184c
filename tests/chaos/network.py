"""The cluster under the weather: applies fault rules, counts their hits, and revives dead proxies."""

import contextlib
import json
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

from tests.chaos.weather import Weather
from yt_exactly_once.local import LocalCluster
from yt_exactly_once.local.cluster import LocalClusterError

_LOOK_SECONDS = 0.3
_TRIES = 40


class Network:
    """Applies weather to a cluster.

    Args:
        log: file that takes every weather with the hits of its rules, and every incident.
    """

    def __init__(self, cluster: LocalCluster, log: Path) -> None:
        self.faults: Counter[str] = Counter()
        self._cluster = cluster
        self._log = log.open("a")
        self._began = time.monotonic()
        self._weather: Weather | None = None
        # Proxies are replaced on one thread while others talk to them.
        self._lock = threading.RLock()
        self._closed = threading.Event()
        self._reviver = threading.Thread(target=self._revive, daemon=True)
        self._reviver.start()

    def change(self, weather: Weather | None) -> None:
        """Let another weather begin; `None` is a clear sky."""
        with self._lock:
            if self._weather is not None:
                hits: Counter[str] = Counter()
                for rule in self._admin(self._cluster.faults):
                    hits[f"{rule['action']} {rule['command']}"] += rule["hits"]
                hits = +hits
                self.faults.update(hits)
                self.note("weather", name=self._weather.name, hits=hits)
            self._admin(self._cluster.clear_faults)
            self._weather = weather
            if weather is not None:
                self._admin(lambda: self._cluster.inject_plan(weather.rules))

    def kill_proxy(self, choice: float) -> int:
        """Kill one proxy; it is revived soon. Return its number."""
        with self._lock:
            number = int(choice * len(self._cluster.proxy_urls))
            self._cluster.kill_proxy(number)
        return number

    def note(self, what: str, **fields: Any) -> None:
        """Write a line into the fault log."""
        moment = round(time.monotonic() - self._began, 3)
        self._log.write(json.dumps({"at": moment, "what": what, **fields}, default=str) + "\n")
        self._log.flush()

    def close(self) -> None:
        """Clear the sky and stop reviving."""
        self._closed.set()
        self._reviver.join()
        self._log.close()

    def _admin(self, call: Any) -> Any:
        """Talk to the cluster; a proxy that dies right now is no reason to give up."""
        for left in reversed(range(_TRIES)):
            with contextlib.suppress(*(() if not left else (OSError, LocalClusterError))):
                return call()
            self._revive_dead()
        return None

    def _revive(self) -> None:
        while not self._closed.wait(_LOOK_SECONDS):
            self._revive_dead()

    def _revive_dead(self) -> None:
        with self._lock:
            for number in range(len(self._cluster.proxy_urls)):
                if not self._cluster.is_alive(number):
                    self._cluster.restart_proxy(number)
