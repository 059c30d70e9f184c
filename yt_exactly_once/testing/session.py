"""Spark sessions of drivers that do not live long: small, quick to come up, on this machine alone."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SHORT_LIVED = (
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC "
    "-XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
)
"""A JVM that is killed within a minute has no use for its slower compiler, nor for the verification of
Spark's own classes."""


def open_session(
    scratch: Path, *, name: str, master: str = "local[2]", conf: Mapping[str, str] | None = None
) -> SparkSession:
    """Open a session.

    Args:
        scratch: for temporary files of Spark, which a killed process leaves behind.
        name: of the application.
        conf: of Spark, over what is set here.
    """
    from pyspark.sql import SparkSession  # noqa: PLC0415 - a parent process needs none

    settings = {
        "spark.driver.memory": "1g",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": f'"-Djava.io.tmpdir={scratch}" {SHORT_LIVED}',
        "spark.local.dir": str(scratch),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        # A driver that is killed while it writes its very first offset leaves a file in the checkpoint.
        "spark.sql.streaming.verifyCheckpointDirectoryEmptyOnStart": "false",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        **(conf or {}),
    }
    builder = SparkSession.builder.appName(name).master(master)
    for option, value in settings.items():
        builder = builder.config(option, value)
    return builder.getOrCreate()
