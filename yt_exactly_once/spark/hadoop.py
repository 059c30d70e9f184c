"""The settings of Hadoop in a session that runs.

Spark hands its own settings to the JVM as words of a command line, and shows them in its UI and in the event
log. What is set here afterwards reaches the executors with Spark's jobs, and nobody else.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from yt_exactly_once.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def set_hadoop(spark: SparkSession, settings: Mapping[str, str], scheme: str) -> None:
    """Set Hadoop settings for all jobs that start from now on.

    Args:
        spark: a session with a JVM in this process.
        settings: names without `spark.hadoop.`.
        scheme: of the file system that they are about.

    Raises:
        ConfigError: there is no JVM, as in Spark Connect, or this is no session.
    """
    context: Any = getattr(spark, "_jsc", None)
    if context is None:
        raise ConfigError(
            f"The settings of Hadoop cannot be set through {type(spark).__name__}",
            remedy="Pass the session that getOrCreate() returned, in the process of the driver. With Spark "
            "Connect, do so in the server",
        )
    jvm: Any = spark._jvm  # noqa: SLF001 - no other way
    hadoop = context.hadoopConfiguration()
    is_known = hadoop.get(f"fs.{scheme}.impl") is not None
    is_other = any(hadoop.get(name) != value for name, value in settings.items())
    for name, value in settings.items():
        hadoop.set(name, value)
    if is_known and is_other:
        # Hadoop keeps a file system with the settings that it was made with.
        jvm.org.apache.hadoop.fs.FileSystem.get(jvm.java.net.URI(f"{scheme}:///"), hadoop).close()
