"""The Java runtime Spark starts with: found and old enough, or a clear error before Spark's own.

It looks where Spark's launcher looks, in the same order, and never starts a JVM that runs on.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from yt_exactly_once.errors import JavaNotFoundError

OLDEST_JAVA = 17
"""Spark 4 runs on this release of Java or a newer one."""

_VERSION = re.compile(r'version "(?:1\.)?(\d+)')
_PATIENCE_SECONDS = 60
_STARTED = ("SPARK_REMOTE", "SPARK_CONNECT_MODE_ENABLED", "PYSPARK_GATEWAY_PORT")
"""Set where the session is one of Spark Connect, or where spark-submit has started this process."""

_REMEDY = (
    f"Install Java {OLDEST_JAVA} or newer, for instance the package openjdk-17-jre-headless, and set "
    "JAVA_HOME to it or put its java on PATH"
)


def require_java() -> None:
    """Return when Spark will find a Java runtime that can start it; raise `JavaNotFoundError` if not."""
    java = _find()
    release = _release(java)
    if release < OLDEST_JAVA:
        raise JavaNotFoundError(
            f"Java {release} is too old for Spark, which needs {OLDEST_JAVA} or newer",
            remedy=_REMEDY,
            path=java,
        )


def require_startable() -> None:
    """Return when this process has a JVM, can start one, or needs none (Spark Connect).

    Otherwise raise `JavaNotFoundError`. Unlike `require_java` it starts nothing: it knows no release.
    """
    # Not imported: in a process without PySpark no JVM runs, and tools without Spark use this module.
    context = getattr(sys.modules.get("pyspark"), "SparkContext", None)
    has_jvm = getattr(context, "_gateway", None) is not None
    if not (has_jvm or any(os.environ.get(variable) for variable in _STARTED)):
        try:
            _find()
        except JavaNotFoundError as error:
            error.remedy += ". With Spark Connect, create the session before the sink"
            raise


def _find() -> str:
    home = os.environ.get("JAVA_HOME")
    if home:
        # Spark's launcher does not look any further once JAVA_HOME is set.
        java = Path(home) / "bin" / "java"
        if not os.access(java, os.X_OK):
            raise JavaNotFoundError(
                "JAVA_HOME is set, and there is no Java runtime in it", remedy=_REMEDY, path=java
            )
        return str(java)
    found = shutil.which("java")
    if found is None:
        raise JavaNotFoundError("No Java runtime was found", remedy=_REMEDY)
    return found


def _release(java: str) -> int:
    try:
        answer = subprocess.run(
            [java, "-version"],
            capture_output=True,
            text=True,
            timeout=_PATIENCE_SECONDS,
            check=True,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise JavaNotFoundError(
            "The Java runtime does not start", remedy=_REMEDY, path=java
        ) from error
    found = _VERSION.search(answer.stderr + answer.stdout)
    if found is None:
        raise JavaNotFoundError(
            "The Java runtime does not print its version", remedy=_REMEDY, path=java
        )
    return int(found[1])
