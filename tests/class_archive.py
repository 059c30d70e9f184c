"""Options of short-lived JVMs, and a class-data archive: Spark comes up faster where tests start and kill it.

Loading and verifying Spark's classes costs a fresh JVM more processor time than a small query does. A JVM
can leave what it has loaded in an archive, and later ones map it. One that does not fit them (another
JDK, other jars) they pass over. Without an archive the tests are slower and otherwise the same.
`python -m tests.class_archive PATH` runs every kind of query once, and makes the archive.
"""

import contextlib
import fcntl
import os
import subprocess
import sys
import tempfile
from hashlib import sha256
from pathlib import Path

from yt_exactly_once.testing.session import SHORT_LIVED

_OPTIONS = "SPARK_SUBMIT_OPTS"
"""Environment variable with options for the JVM that Spark's launcher starts."""

_ROWS = 40
_PATIENCE_SECONDS = 1_800
"""A minute is enough on an idle machine; a busy one is no reason to give up."""


def use_archive(folder: Path, *, make: bool) -> None:
    """Let every Spark that is started from now on, in this process or below it, be short-lived.

    It maps the archive if there is one. So does the Spark of the demo and of the pages' code.

    Args:
        folder: where archives are kept; processes share it.
        make: make the archive when it is not there, which takes most of a minute.
    """
    archive = folder / f"{_fingerprint()}.jsa"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if make and not archive.exists():
            _make(archive)
    options = [os.environ.get(_OPTIONS, ""), SHORT_LIVED]
    if archive.exists():
        options.append(f"-XX:SharedArchiveFile={archive}")
    os.environ[_OPTIONS] = " ".join(options).strip()


def _fingerprint() -> str:
    """Return a name that changes with the JDK and with Spark."""
    import pyspark

    home = os.environ.get("JAVA_HOME")
    java = Path(home) / "bin" / "java" if home else "java"
    told = subprocess.run([java, "-version"], capture_output=True, check=True).stderr
    return sha256(told + f"{pyspark.__version__} {pyspark.__file__}".encode()).hexdigest()[:16]


def _make(archive: Path) -> None:
    fresh = archive.with_suffix(".fresh")
    fresh.unlink(missing_ok=True)
    with (
        archive.with_suffix(".log").open("w") as log,
        contextlib.suppress(subprocess.TimeoutExpired),
    ):
        subprocess.run(
            [sys.executable, "-m", "tests.class_archive", str(fresh)],
            cwd=Path(__file__).parents[1],
            stdout=log,
            stderr=log,
            timeout=_PATIENCE_SECONDS,
            check=False,
        )
    if fresh.exists():
        fresh.rename(archive)


def missing_archive(folder: Path) -> str:
    """Return where the log of an archive is that could not be made; empty if nothing is amiss."""
    logs = [log for log in folder.glob("*.log") if not log.with_suffix(".jsa").exists()]
    return str(logs[0]) if logs else ""


def _train(archive: str) -> None:
    os.environ[_OPTIONS] = f"-XX:ArchiveClassesAtExit={archive}"
    # Otherwise Spark takes the first python3 of the path, which may not have this environment's packages.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    from tests.flows import QUERIES, Queue, read_queue
    from yt_exactly_once import TransactionalSink, register_source
    from yt_exactly_once.local import LocalCluster
    from yt_exactly_once.testing.session import open_session

    with tempfile.TemporaryDirectory() as scratch, LocalCluster() as cluster:
        client, proxy = cluster.client(), cluster.proxy_urls[0]
        queue = Queue.filled(client, "//tmp", _ROWS)
        spark = open_session(Path(scratch), name="archive")
        register_source(spark)
        for name, query in QUERIES.items():
            target = query.create_target(client, f"//tmp/{name}", is_sorted=False)
            rows = read_queue(spark, proxy, queue.path, None, max_rows_per_partition=_ROWS // 2)
            running = (
                query.build(rows)
                .writeStream.foreachBatch(TransactionalSink(target, proxy=proxy))
                .outputMode(query.output_mode)
                .option("checkpointLocation", f"{scratch}/{name}")
                .trigger(availableNow=True)
                .start()
            )
            running.awaitTermination()
        gateway = spark.sparkContext._gateway
        spark.stop()
        # The JVM ends with its standard input, and leaves the archive then.
        gateway.proc.stdin.close()
        gateway.proc.wait()


if __name__ == "__main__":
    _train(sys.argv[1])
