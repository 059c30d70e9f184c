"""Fixtures of the embedded cluster: one server for the session, one path per test."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.cluster_fixtures import aborted, client, raw, sticky, tmp
from yt_exactly_once.local import LocalCluster

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["aborted", "client", "cluster", "raw", "sticky", "tmp"]


@pytest.fixture(scope="session")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(proxies=2) as running:
        yield running
