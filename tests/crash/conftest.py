"""A cluster for the crash tests, and folders in it."""

import uuid
from collections.abc import Callable, Iterator

import pytest
from yt.wrapper import YtClient

from tests.cluster_fixtures import HazardousCluster
from tests.crash.harness.lives import Cell, Lineage, Subject
from tests.flows import Queue
from tests.tiers import NIGHTLY
from yt_exactly_once.local import LocalCluster


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    """Two proxies on one store, for one module: its faults hold for every client."""
    with HazardousCluster(proxies=2) as running:
        yield running


@pytest.fixture(scope="module")
def client(cluster: LocalCluster) -> YtClient:
    """A client of the package's users, with nothing of the package in it."""
    return cluster.client()


@pytest.fixture(scope="module")
def lineage(
    cluster: LocalCluster, client: YtClient, tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., Lineage]:
    """Make queries over one new queue that live and die together."""

    def make(
        *cells: Cell,
        rows: int,
        rows_per_partition: int,
        partitions: int = 3 if NIGHTLY else 2,
        tablets: int | None = None,
    ) -> Lineage:
        queue = Queue.filled(client, f"//tmp/{uuid.uuid4().hex}", rows, partitions=partitions)
        folder = tmp_path_factory.mktemp("lives")
        sizes = {"rows_per_partition": rows_per_partition, "tablets": tablets}
        subjects = [Subject.create(cluster, queue, cell, folder, **sizes) for cell in cells]
        return Lineage(subjects, folder)

    return make
