"""The gateway for checkpoints, with the client that is in Spark's own jars."""

import subprocess
from pathlib import Path

import pyspark
import pytest

from tests.local.relay import SWITCH, relay
from yt_exactly_once.checkpoints import checkpoints
from yt_exactly_once.checkpoints.store import HADOOP_SETTINGS
from yt_exactly_once.spark.compat.java import require_java

_PROGRAM = Path(__file__).parent / "hadoop" / "Checkpoint.java"
_BROKEN_OFF = _PROGRAM.with_name("BrokenOff.java")
_JARS = Path(pyspark.__file__).parent / "jars" / "*"


@pytest.mark.further
def test_client_of_spark_writes_replaces_lists_and_reads(cluster, tmp):
    """It makes the calls that Spark makes for its logs and state stores."""
    require_java()
    with checkpoints(proxy=cluster.proxy_urls[0]) as store:
        done = subprocess.run(
            ["java", "-cp", str(_JARS), str(_PROGRAM), store.url(f"{tmp}/a/q")],
            capture_output=True,
            text=True,
            timeout=200,
            check=False,
        )
    assert done.stdout.splitlines() == [
        "exists 100",
        "replaced 3000000",
        "listed 0 3000000",
        "read 3000000",
        "seek 10",
        "refused true",
        "deleted true false",
        "exists false",
        "java.io.FileNotFoundException",
        "org.apache.hadoop.security.AccessControlException",
        "deleted true",
    ], done.stderr


@pytest.mark.nightly
def test_client_of_spark_repeats_every_call_but_the_data_of_a_file(cluster, tmp):
    """A gateway that dies before a call, before its answer or within it: the page says what fails then."""
    require_java()
    settings = [f"{name}={value}" for name, value in HADOOP_SETTINGS.items()]
    with checkpoints(proxy=cluster.proxy_urls[0]) as store, relay(store.address) as address:
        location = store.url(f"{tmp}/q").replace(store.address, address)
        done = subprocess.run(
            [
                *("java", "-cp", str(_JARS), str(_BROKEN_OFF)),
                *(location, f"http://{address}{SWITCH}", *settings),
            ],
            capture_output=True,
            text=True,
            timeout=250,
            check=False,
        )
    lines = done.stdout.splitlines()
    assert len(lines) == 24, done.stderr
    # The answer that sends the client on has no body, and is a part of writing the data.
    assert [line for line in lines if not line.endswith(" done")] == [
        "before DATA java.net.SocketException",
        "after DATA java.net.SocketException",
        "within CREATE java.net.SocketException",
    ]
