"""Spark sessions of drivers that are killed soon, tried by failing tasks."""

from pathlib import Path

from pyspark.sql import SparkSession

from yt_exactly_once.testing import session

# The comparison at the end needs the offsets of every batch.
_CONF = {"spark.sql.streaming.minBatchesToRetain": "1000000"}


def open_session(scratch: Path, *, tasks: int = 2) -> SparkSession:
    """Open a session in which so many tasks may run at once, and are tried again when made to fail."""
    return session.open_session(scratch, name="chaos", master=f"local[{tasks}, 8]", conf=_CONF)
