"""Spark sessions of drivers that are killed soon: small, quick to come up, and tried by failing tasks."""

from pathlib import Path

from pyspark.sql import SparkSession

from tests.class_archive import SHORT_LIVED


def open_session(scratch: Path, *, tasks: int = 2) -> SparkSession:
    """Open a session.

    Args:
        tasks: how many tasks may run at once.
    """
    return (
        SparkSession.builder.appName("chaos")
        # Tasks that are made to fail are tried again.
        .master(f"local[{tasks}, 8]")
        .config("spark.driver.memory", "1g")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.extraJavaOptions", f'"-Djava.io.tmpdir={scratch}" {SHORT_LIVED}')
        .config("spark.local.dir", str(scratch))
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
        # Drivers die while they write their very first offset, too.
        .config("spark.sql.streaming.verifyCheckpointDirectoryEmptyOnStart", "false")
        # The comparison at the end needs the offsets of every batch.
        .config("spark.sql.streaming.minBatchesToRetain", "1000000")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "ERROR")
        .getOrCreate()
    )
