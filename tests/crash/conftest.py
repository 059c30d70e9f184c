"""A cluster for the crash tests, and folders in it."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import pytest

from tests.crash.harness.lives import Lineage, Subject
from tests.flows import Queue
from yt_exactly_once.local import LocalCluster

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from yt.wrapper import YtClient


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    """Two proxies on one store, for one module: its faults hold for every client."""
    with LocalCluster(proxies=2) as running:
        yield running


@pytest.fixture(scope="module")
def client(cluster: LocalCluster) -> YtClient:
    """A client of the package's users, with nothing of the package in it."""
    return cluster.client()


@pytest.fixture(scope="module")
def subjects(
    client: YtClient, tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., list[Subject]]:
    """Make queries over one new queue."""

    def make(
        *kinds: tuple[str, bool], rows: int, rows_per_partition: int, partitions: int = 3
    ) -> list[Subject]:
        queue = Queue.filled(client, f"//tmp/{uuid.uuid4().hex}", rows, partitions=partitions)
        checkpoints = tmp_path_factory.mktemp("checkpoints")
        return [
            Subject.create(
                queue, kind, checkpoints, is_sorted=is_sorted, rows_per_partition=rows_per_partition
            )
            for kind, is_sorted in kinds
        ]

    return make


@pytest.fixture(scope="module")
def lineage(
    cluster: LocalCluster,
    subjects: Callable[..., list[Subject]],
    tmp_path_factory: pytest.TempPathFactory,
) -> Callable[..., Lineage]:
    """Make queries that live and die together."""

    def make(*kinds: tuple[str, bool], **sizes: int) -> Lineage:
        return Lineage(cluster, subjects(*kinds, **sizes), tmp_path_factory.mktemp("lives"))

    return make
