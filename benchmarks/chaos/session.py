"""Spark sessions that are up soon: settings of a short life, and an archive of loaded classes.

Most of the time a JVM takes to start goes into loading and checking thousands of classes. A run of some
length lets one JVM write them down first (`python -m benchmarks.chaos.session ARCHIVE`), which halves the
start of all others.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from pyspark.sql import SparkSession

_SHORT_LIVED = (
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC "
    "-XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote "
    "-Xlog:disable -Xlog:all=error:stderr"
)
_SECONDS = 300.0


def write_archive(archive: Path) -> None:
    """Let one JVM run a streaming query and write down the classes it has loaded."""
    subprocess.run(
        [sys.executable, "-m", __name__, str(archive)],
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        timeout=_SECONDS,
    )


def open_session(scratch: Path, classes: str, tasks: int = 2) -> SparkSession:
    """Open a session.

    Args:
        scratch: folder for temporary files.
        classes: options of the JVM about its archive, may be empty.
        tasks: how many tasks may run at once.
    """
    options = f'"-Djava.io.tmpdir={scratch}" {_SHORT_LIVED} {classes}'
    return (
        SparkSession.builder.appName("chaos")
        # Tasks that are made to fail are tried again.
        .master(f"local[{tasks}, 8]")
        .config("spark.driver.memory", "1g")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.extraJavaOptions", options)
        .config("spark.local.dir", str(scratch))
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
        # The comparison at the end needs the offsets of every batch.
        .config("spark.sql.streaming.minBatchesToRetain", "1000000")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "ERROR")
        .getOrCreate()
    )


def use_archive(archive: str) -> str:
    """Return the options of a JVM that reads an archive; none without one."""
    return f'"-XX:SharedArchiveFile={archive}" -Xshare:auto' if archive else ""


def main(archive: str) -> None:
    """Load classes and write them down."""
    with tempfile.TemporaryDirectory() as folder:
        spark = open_session(Path(folder), f'"-XX:ArchiveClassesAtExit={archive}"')
        rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load()
        running = (
            rows.mapInArrow(lambda batches: batches, rows.schema)
            .groupBy("value")
            .count()
            .writeStream.outputMode("update")
            .option("checkpointLocation", f"{folder}/checkpoint")
            .foreachBatch(lambda frame, _: frame.toArrow())
            .trigger(once=True)
            .start()
        )
        running.awaitTermination()
        spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])
