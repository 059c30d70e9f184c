"""One Spark session and one embedded cluster for all integration tests."""

import os
import subprocess
import sys
import uuid
from functools import partial

import pytest

from tests.cluster_fixtures import HazardousCluster

_NURSERY = """
import os, pathlib, signal, sys
from yt_exactly_once.testing.nursery import open_nursery
from yt_exactly_once.ytsaurus import queues
queues._PAUSE_SECONDS = 0.05
print(open_nursery(pathlib.Path(sys.argv[1]), os.open(os.devnull, os.O_RDONLY)), flush=True)
sys.stdin.read()
os.killpg(0, signal.SIGKILL)
"""
"""A nursery whose processes do not wait for long until a consumer counts as not registered."""


_OWN = "YT_EXACTLY_ONCE_OWN_SPARK"
"""Says that this process has no other tests than one that damages its Spark."""


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that damages its Spark in a process of its own."""
    if pyfuncitem.get_closest_marker("own_spark") is None or _OWN in os.environ:
        return None
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-m", "", pyfuncitem.nodeid]
    done = subprocess.run(
        command, cwd=pyfuncitem.config.rootpath, env={**os.environ, _OWN: "1"}, text=True,
        capture_output=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    return True


@pytest.fixture(scope="session")
def interpreter(tmp_path_factory):
    """The program that Spark starts for Python: without the imports, which every query would repeat."""
    folder = tmp_path_factory.mktemp("nursery")
    command = [sys.executable, "-c", _NURSERY, str(folder)]
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, stdin=pipe, stdout=pipe, text=True, start_new_session=True
    ) as nursery:
        yield nursery.stdout.readline().strip()
        nursery.stdin.close()


@pytest.fixture(scope="session")
def spark(interpreter, tmp_path_factory):
    """A small local session: UI off, clock on UTC, and a failed task gets a second try."""
    from pyspark.sql import SparkSession

    from yt_exactly_once.testing.session import SHORT_LIVED

    os.environ["PYSPARK_PYTHON"] = interpreter
    os.environ["PYSPARK_DRIVER_PYTHON"] = interpreter
    session = (
        SparkSession.builder.master("local[2, 4]")  # a task may fail three times
        .appName("yt-exactly-once-tests")
        .config("spark.ui.enabled", "false")
        .config("spark.local.dir", str(tmp_path_factory.mktemp("spark")))
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.extraJavaOptions", SHORT_LIVED)
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def cluster():
    """One embedded cluster of two proxies for all tests; each test keeps to a folder of its own."""
    # Registrations are known at once: every query would begin with a second of waiting.
    with HazardousCluster({"registration_lag_seconds": 0.0}, proxies=2) as running:
        yield running


@pytest.fixture(scope="session")
def client(cluster):
    """An ordinary client of the cluster's first proxy."""
    return cluster.client()


@pytest.fixture
def tmp(client):
    """A folder in Cypress that no other test uses."""
    path = f"//tmp/test-{uuid.uuid4()}"
    client.create("map_node", path, recursive=True)
    return path


@pytest.fixture
def stream(spark, cluster, client, tmp, tmp_path):
    """Make a query over a queue with known rows; see `tests.integration.streams`."""
    from tests.flows import STATELESS, Queue
    from tests.integration.streams import Stream
    from yt_exactly_once import register_source

    register_source(spark)

    def make(query=STATELESS, *, rows=2_000, partitions=3, tablets=None, is_sorted=False, **given):
        queue = given.pop("queue", None) or Queue.filled(client, tmp, rows, partitions=partitions)
        name = given.pop("name", "target")
        target = query.create_target(
            client, f"{tmp}/{name}", is_sorted=is_sorted, tablets=tablets or len(queue.rows)
        )
        given = {"consumer": queue.consumer, "checkpoint": tmp_path / name} | given
        return Stream(spark, cluster, queue, target, query=query, is_sorted=is_sorted, **given)

    return make


@pytest.fixture
def arrow_rows(spark):
    """Set how many rows Spark puts into an Arrow batch, for one test."""
    name = "spark.sql.execution.arrow.maxRecordsPerBatch"
    yield partial(spark.conf.set, name)
    spark.conf.unset(name)


@pytest.fixture
def faults(cluster):
    """Faults of the cluster, gone after the test."""
    cluster.clear_faults()
    yield cluster
    cluster.clear_faults()


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    """Let the driver, too, soon take a consumer for not registered."""
    from yt_exactly_once.ytsaurus import queues

    monkeypatch.setattr(queues, "_PAUSE_SECONDS", 0.05)
