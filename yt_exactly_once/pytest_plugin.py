"""Fixtures for users who test their pipelines: an embedded cluster, or the real one when there is one.

Loaded by pytest through the entry point of the package. Nothing is started before a test asks for it,
and nothing heavy is imported either.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from yt_exactly_once.local import LocalCluster


@pytest.fixture(scope="session")
def yt_local_cluster() -> Iterator[LocalCluster]:
    """An embedded cluster with two proxies, shared by the session; use a path of your own in it."""
    from yt_exactly_once.local import LocalCluster  # noqa: PLC0415 - only when asked for

    with LocalCluster(proxies=2) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def yt_client(request: pytest.FixtureRequest) -> Any:
    """A `yt.wrapper.YtClient` for the cluster at `YT_PROXY`, or for the embedded one."""
    proxy = os.environ.get("YT_PROXY")
    if not proxy:
        return request.getfixturevalue("yt_local_cluster").client()
    from yt.wrapper import YtClient  # noqa: PLC0415 - only when asked for

    return YtClient(proxy=proxy, token=os.environ.get("YT_TOKEN"))
