"""The gateway for checkpoints, with the client that is in Spark's own jars."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pyspark
import pytest

from yt_exactly_once.checkpoints import checkpoints
from yt_exactly_once.spark.java import require_java

_PROGRAM = Path(__file__).parent / "hadoop" / "Checkpoint.java"
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
