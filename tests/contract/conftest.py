"""The cluster of the contract: a real one at `YT_PROXY`, or the embedded one.

Tests here use what every YTsaurus offers and nothing else. Where the embedded cluster shows a choice of
its own, the test is marked `embedded_only` with the reason.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest

from tests.cluster_fixtures import STRICT, RawHttp, client, raw, sticky, tmp
from yt_exactly_once.local import LocalCluster

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["client", "cluster", "cluster_name", "raw", "sticky", "tmp"]


class RealCluster:
    """A cluster that is there already, with the part of `LocalCluster` that tests of the contract use."""

    def __init__(self, url: str, token: str | None) -> None:
        address = url if "://" in url else f"http://{url}"
        self.token = token
        hosts = RawHttp(address, token)("GET", "/hosts?role=data").json()
        self.proxy_urls = [f"http://{host}" for host in hosts] or [address]

    def client(self, proxy_index: int = 0, **config: Any) -> Any:
        """Return a client of one proxy."""
        from yt.wrapper import YtClient

        if proxy_index >= len(self.proxy_urls):
            pytest.skip(f"the cluster has {len(self.proxy_urls)} data proxies")
        return YtClient(proxy=self.proxy_urls[proxy_index], token=self.token, config=config)


@pytest.fixture(scope="session")
def cluster() -> Iterator[Any]:
    proxy = os.environ.get("YT_PROXY")
    if proxy:
        yield RealCluster(proxy, os.environ.get("YT_TOKEN"))
        return
    with LocalCluster(proxies=2, features=STRICT) as running:
        yield running


@pytest.fixture
def cluster_name(client: Any) -> str:
    """The name that queues and consumers are registered under."""
    return str(client.get("//sys/@cluster_name"))


def pytest_runtest_setup(item: pytest.Item) -> None:
    mark = item.get_closest_marker("embedded_only")
    if mark is not None and os.environ.get("YT_PROXY"):
        pytest.skip(mark.args[0])
