"""Fixtures of the embedded cluster: one server for the session, one path per test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster_fixtures import aborted, client, raw, sticky, tmp
from yt_exactly_once.local import LocalCluster

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
