"""Fixtures of the embedded cluster: one server for the session, one path per test."""

import json
import time
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import pytest

from tests.cluster_fixtures import aborted, client, raw, sticky, tmp
from tests.rpc_client import RawRpc
from yt_exactly_once import cli
from yt_exactly_once.local import LocalCluster
from yt_exactly_once.spark.compat import java

__all__ = ["aborted", "client", "cluster", "raw", "sticky", "tmp"]


@pytest.fixture(scope="session")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(proxies=2) as running:
        yield running


@pytest.fixture(scope="session")
def breakable() -> Iterator[LocalCluster]:
    """A cluster of its own for tests that break it, as faults hold for all of its clients."""
    with LocalCluster(proxies=2) as running:
        yield running


@pytest.fixture
def faulty(breakable: LocalCluster) -> Iterator[LocalCluster]:
    """A cluster whose faults are gone after the test, and whose dead proxies are back."""
    yield breakable
    breakable.clear_faults()
    for index in range(len(breakable.proxy_urls)):
        if not breakable.is_alive(index):
            breakable.restart_proxy(index)


@pytest.fixture
def rpc(cluster: LocalCluster) -> Iterator[RawRpc]:
    with RawRpc(cluster.rpc_addresses[0]) as client:
        yield client


@pytest.fixture
def told(cluster: LocalCluster, capsys: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    """Run a command and return its exit code and what it printed, as JSON where it is."""

    def run(*arguments: str) -> tuple[int, Any]:
        code = cli.main([*arguments, "--proxy", cluster.proxy_urls[0]])
        output = capsys.readouterr()
        answered = "--json" in arguments and code in {0, 1}
        return code, json.loads(output.out) if answered else output.out + output.err

    return run


_release = cache(java._release)


@pytest.fixture(autouse=True)
def _quick_tools(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a second look after some time, and with a JVM that has told its version once."""
    monkeypatch.setattr("yt_exactly_once.operations.repair.sleep", lambda _seconds: None)
    monkeypatch.setattr("yt_exactly_once.operations.status._PAUSE_SECONDS", 0)
    monkeypatch.setattr(java, "_release", _release)


@pytest.fixture
def wait(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Let seconds pass on the clock of a cluster in this process."""
    passed = [0.0]
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + passed[0])

    def advance(seconds: float) -> None:
        passed[0] += seconds

    return advance
