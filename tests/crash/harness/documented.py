"""The process that dies: a job as the documentation of SPYT shows it, with another session.

`python -m tests.crash.harness.documented PLAN` copies strings and their lengths from a queue to a table until
it is killed. From `readStream` on it makes the calls of the Python example in YTsaurus's page "Structured
Streaming", with its options and its paths. Only what stands in the place of `spyt.spark_session` is of this
package.
"""

from __future__ import annotations

import json
import os
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession
from pyspark.sql.functions import length

from tests.class_archive import SHORT_LIVED
from tests.crash.harness.child import die_with_the_parent
from yt_exactly_once import register_source
from yt_exactly_once.checkpoints import checkpoints
from yt_exactly_once.nursery import open_nursery

if TYPE_CHECKING:
    from collections.abc import Iterator

FOLDER = "tmp/spark-streaming/sample02"
"""Of everything, without the beginning that differs between Cypress and a location."""


@contextmanager
def spark_session(scratch: Path) -> Iterator[SparkSession]:
    """Open a session whose checkpoints are in Cypress; `YT_PROXY` says where."""
    with checkpoints() as store:
        spark = (
            SparkSession.builder.master("local[2]")
            .config("spark.driver.host", "127.0.0.1")
            .config("spark.driver.bindAddress", "127.0.0.1")
            .config("spark.driver.extraJavaOptions", f'"-Djava.io.tmpdir={scratch}" {SHORT_LIVED}')
            .config("spark.local.dir", str(scratch))
            # It dies while it writes its very first offset, too.
            .config("spark.sql.streaming.verifyCheckpointDirectoryEmptyOnStart", "false")
            .config("spark.ui.enabled", "false")
            .config("spark.ui.showConsoleProgress", "false")
            .config("spark.log.level", "ERROR")
            .getOrCreate()
        )
        store.configure(spark, f"//{FOLDER}")
        register_source(spark)
        yield spark


def main() -> None:
    """Run the job until the process is killed."""
    plan = json.loads(sys.argv[1])
    scratch = Path(plan["scratch"])
    # Before the first thread, as it forks.
    interpreter = str(open_nursery(scratch, plan["report"]))
    os.environ |= {"PYSPARK_PYTHON": interpreter, "PYSPARK_DRIVER_PYTHON": interpreter}
    die_with_the_parent()
    with spark_session(scratch) as spark:
        numbers = (
            spark.readStream.format("yt")
            .option("consumer_path", f"//{FOLDER}/consumer")
            .load(f"//{FOLDER}/queue")
        )
        query = (
            numbers.select("data")
            .withColumn("data_length", length("data"))
            .writeStream.format("yt")
            .option("checkpointLocation", f"yt:///{FOLDER}/checkpoints")
            .option("path", f"//{FOLDER}/result")
            .start()
        )
        query.awaitTermination()


if __name__ == "__main__":
    main()
