"""Spark's own interpreter, without a nursery: the processes that plan batches are forked from one."""

import os
import subprocess
import sys

import pytest

from tests.flows import Queue

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs abstract addresses")

_DRIVER = """
import sys
from pathlib import Path
from pyspark.sql import SparkSession
from yt_exactly_once import register_source
from yt_exactly_once.spark.tuning.warm_up import warm_up
from yt_exactly_once.testing.session import SHORT_LIVED

proxy, consumer, path, folder = sys.argv[1:]
builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
spark = builder.config("spark.driver.extraJavaOptions", SHORT_LIVED).getOrCreate()
warm_up(spark).join()
register_source(spark)
source = spark.readStream.format("yt").option("proxy", proxy).option("consumer_path", consumer)
frame = source.option("starting_offsets", "earliest").load(path)
query = frame.writeStream.format("memory").queryName("seen").option("checkpointLocation", folder).start()
query.processAllAvailable()

def planners():
    found = {}
    for child in spark._jvm.java.lang.ProcessHandle.current().children().toArray():
        if "source_runner" in child.info().commandLine().orElse(""):
            found[child.pid()] = "libarrow" in Path(f"/proc/{child.pid()}/maps").read_text()
    return found

print(spark.table("seen").count(), list(planners().values()))
query.stop()
print(list(planners()))
"""


@pytest.mark.further
def test_query_is_planned_by_a_process_that_was_forked(client, cluster, tmp, tmp_path):
    """The one that Spark starts for it imports nothing, and ends with the query."""
    queue = Queue.create(client, tmp, partitions=1)
    queue.append(3)
    arguments = [cluster.proxy_urls[0], queue.consumer, queue.path, str(tmp_path / "checkpoint")]
    told = subprocess.run(
        [sys.executable, "-c", _DRIVER, *arguments],
        env={
            **os.environ,
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_DRIVER_PYTHON": sys.executable,
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert told.stdout.splitlines()[-2:] == ["3 [False]", "[]"], told.stderr
