"""Queries whose checkpoints are on S3 and on HDFS."""

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cluster_fixtures import HazardousCluster
from tests.crash.harness.lives import Cell, Lineage, Subject
from tests.flows import Queue
from tests.maven import jars_of
from tests.stores.servers import Store, hdfs, s3
from yt_exactly_once.local import LocalCluster

_POM = Path(__file__).with_name("pom.xml")
_WHAT = "STORES"


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with HazardousCluster(proxies=2) as running:
        yield running


@pytest.fixture(scope="module")
def on_s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    server, client = (jars_of(_POM, profile, _WHAT) for profile in ("s3proxy", "s3a"))
    with s3(server, client, tmp_path_factory.mktemp("s3")) as store:
        yield store


@pytest.fixture(scope="module")
def on_hdfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    with hdfs(jars_of(_POM, "hdfs", _WHAT), tmp_path_factory.mktemp("hdfs")) as store:
        yield store


@pytest.fixture
def family(
    cluster: LocalCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Lineage]:
    """Make queries that live and die together, with checkpoints on a store."""

    def make(store: Store, *cells: Cell, batches: int) -> Lineage:
        monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", store.submit)
        name = uuid.uuid4().hex
        queue = Queue.filled(cluster.client(), f"//tmp/{name}", batches * ROWS, partitions=2)
        subjects = [
            Subject.create(
                cluster,
                queue,
                cell,
                tmp_path,
                rows_per_partition=ROWS,
                checkpoints=f"{store.root}/{name}",
            )
            for cell in cells
        ]
        return Lineage(subjects, tmp_path)

    return make


ROWS = 100
"""Of a batch from each queue partition."""
