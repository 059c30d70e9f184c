"""The cluster of the contract: a real one at `YT_PROXY`, or the embedded one.

Tests here use what every YTsaurus offers and nothing else. Those that use a client run twice: over HTTP,
and over RPC, through YTsaurus's own C++ driver. Over RPC the first case of a test is for the further tests,
and its other cases are for the night. Where the embedded cluster shows a choice
of its own, the test is marked `embedded_only` with the reason; what only one front has is marked `only_over`.
"""

import os
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import pytest

from tests.cluster_fixtures import STRICT, RawHttp, client, raw, sticky, tmp
from yt_exactly_once.local import LocalCluster

__all__ = ["client", "cluster", "cluster_name", "raw", "sticky", "tmp"]


class RealCluster:
    """A cluster that is there already, with the part of `LocalCluster` that tests of the contract use."""

    def __init__(self, url: str, token: str | None) -> None:
        address = url if "://" in url else f"http://{url}"
        self.token = token
        hosts = RawHttp(address, token)("GET", "/hosts?role=data").json()
        self.proxy_urls = [f"http://{host}" for host in hosts] or [address]

    def client(self, proxy_index: int = 0, **config: Any) -> Any:
        from yt.wrapper import YtClient

        if proxy_index >= len(self.proxy_urls):
            pytest.skip(f"the cluster has {len(self.proxy_urls)} data proxies")
        return YtClient(proxy=self.proxy_urls[proxy_index], token=self.token, config=config)


class OverFront:
    """A cluster whose clients all use one front."""

    def __init__(self, cluster: Any, front: str) -> None:
        self.token = cluster.token
        self.proxy_urls = cluster.proxy_urls
        self._cluster = cluster
        # The driver for RPC takes numbers for request ids, and the client has four groups.
        rpc = {"backend": "rpc", "enable_passing_request_id_to_driver": False}
        self._defaults: dict[str, Any] = rpc if front == "rpc" else {}

    def client(self, proxy_index: int = 0, **config: Any) -> Any:
        return self._cluster.client(proxy_index, **{**self._defaults, **config})


@pytest.fixture(scope="session")
def running() -> Iterator[Any]:
    proxy = os.environ.get("YT_PROXY")
    if proxy:
        yield RealCluster(proxy, os.environ.get("YT_TOKEN"))
        return
    with LocalCluster(proxies=2, features=STRICT) as embedded:
        yield embedded


@pytest.fixture
def cluster(running: Any, front: str) -> OverFront:
    return OverFront(running, front)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "front" not in metafunc.fixturenames:
        return
    over_http_only = "raw" in metafunc.fixturenames or find_spec("yt_driver_rpc_bindings") is None
    # Both fronts have the same handlers, so one shows the promise.
    over_rpc = pytest.param("rpc", marks=pytest.mark.further)
    metafunc.parametrize("front", ["http"] if over_http_only else ["http", over_rpc])


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items[:] = [item for item in items if _is_for_its_front(item)]
    for item in items:
        if _is_another_case_over_rpc(item):
            item.add_marker(pytest.mark.nightly)


def _is_for_its_front(item: pytest.Item) -> bool:
    mark = item.get_closest_marker("only_over")
    return mark is None or item.callspec.params["front"] == mark.args[0]  # type: ignore[attr-defined]


def _is_another_case_over_rpc(item: pytest.Item) -> bool:
    """Tell whether a case differs from the first one over RPC in its values alone."""
    call = getattr(item, "callspec", None)
    if call is None or call.params.get("front") != "rpc":
        return False
    return any(number for name, number in call.indices.items() if name != "front")


@pytest.fixture
def cluster_name(client: Any) -> str:
    """The name that queues and consumers are registered under."""
    return str(client.get("//sys/@cluster_name"))


def pytest_runtest_setup(item: pytest.Item) -> None:
    mark = item.get_closest_marker("embedded_only")
    if mark is not None and os.environ.get("YT_PROXY"):
        pytest.skip(mark.args[0])
