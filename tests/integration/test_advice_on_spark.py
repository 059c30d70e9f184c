"""What Spark prints when a query stops is done as it is printed; every row is then in the target once.

The breaks are those of `tests.local.test_advice_of_errors`, and those of Spark's own processes and files.
"""

import os
import resource
import shutil
import signal
import sys
import time
from pathlib import Path

import pytest

import yt_exactly_once
from tests.breaks_page import require_line
from tests.integration import other_driver
from tests.integration.operated import OperatedOnSpark, StoppedError
from tests.local.test_advice import CHECKPOINTS
from tests.local.test_advice_of_errors import BREAKS
from yt_exactly_once import register_source
from yt_exactly_once.testing.child import kill_session
from yt_exactly_once.version import VERSION

_BECOME_WORKER = """
import runpy
del sys.argv[:2]
runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
"""
_BEFORE_READING = """
import os, resource
from yt_exactly_once.spark.source.range import RangeReader
def read(*_):
    pages = int(open("/proc/self/statm").read().split()[0])
    {}
RangeReader.read = read
"""
_KILLED = "os.kill(os.getpid(), 9)"
_LIMITED = (
    "resource.setrlimit(resource.RLIMIT_AS, [pages * os.sysconf('SC_PAGE_SIZE')] * 2); bytes(2**30)"
)


def _tasks_start(query, words, program):
    """Let tasks start another Python than the driver, and than the processes that plan batches.

    Args:
        query: which one.
        words: ask a person to put it right.
        program: what it does, before it becomes a worker of Spark.
    """
    context, script = query.spark.sparkContext, query.checkpoint.parent / "python-of-tasks"
    usual = context.pythonExec
    begin = query.checkpoint.parent / "begin.py"
    begin.write_text(f"import sys\n{program}\n{_BECOME_WORKER}")
    script.write_text(
        f'#!/bin/sh\ncase "$*" in *pyspark.worker*) exec {sys.executable} {begin} "$@";; esac\n'
        f'exec {usual} "$@"\n'
    )
    script.chmod(0o700)
    context.pythonExec = str(script)
    query.people[words] = query.undone = lambda: setattr(context, "pythonExec", usual)


def _package_absent(query):
    hidden = "sys.modules['yt_exactly_once'] = None"
    _tasks_start(query, "Install the package there", hidden)


def _package_of_another_version(query):
    packages = query.checkpoint.parent / "packages"
    shutil.copytree(Path(yt_exactly_once.__file__).parent, packages / "yt_exactly_once")
    (packages / "yt_exactly_once/version.py").write_text('VERSION = "0.0.9"')
    words = f"Install yt-exactly-once=={VERSION} on every executor"
    _tasks_start(query, words, f"sys.path.insert(0, {str(packages)!r})")


def _worker(does, words):
    """What the kernel does where no memory is left, or `spark.executor.pyspark.memory`."""
    return lambda query: _tasks_start(query, words, _BEFORE_READING.format(does))


def _disk_full(place):
    """The driver's files cannot grow, from a place in the first batch on."""

    def act(query):
        java = query.spark._jvm.java.lang.ProcessHandle.current().pid()

        def may_grow(size):
            resource.prlimit(java, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

        query.people["Free space"] = query.undone = lambda: may_grow(resource.RLIM_INFINITY)
        if place:
            setattr(query, place, lambda: may_grow(0))
        else:
            may_grow(0)

    return act


def _read_only(query):
    """Nobody but root may write there, who runs no drivers."""
    folders = [query.checkpoint, *filter(Path.is_dir, query.checkpoint.rglob("*"))]
    for folder in folders:
        folder.chmod(0o500)

    def writable():
        for folder in folders:
            folder.chmod(0o700)
        vars(query).pop("run", None)

    query.people["Make the checkpoint writable"] = query.undone = writable
    query.run = lambda: _run_elsewhere(query)


def _run_elsewhere(query):
    text = other_driver.start(query).communicate()[0]
    if text:
        raise StoppedError(text)


ON_SPARK = {
    "executors without the package": _package_absent,
    "executors with another version": _package_of_another_version,
    "Python worker killed for its memory": _worker(_KILLED, "spark.executor.memoryOverhead"),
    "Python worker out of memory": _worker(_LIMITED, "spark.executor.pyspark.memory"),
    "disk full": _disk_full(""),
    "disk full, a batch planned": _disk_full("meanwhile"),
    "disk full, a batch written": _disk_full("afterwards"),
    "checkpoint read-only": _read_only,
    **{f"checkpoint: {name}": act for name, act in CHECKPOINTS.items() if name != "all gone"},
}
"""What is broken besides, and how. Who has a disk again, or memory, starts the query again."""


@pytest.fixture
def query(spark, cluster, tmp, tmp_path):
    made = OperatedOnSpark(cluster, tmp, tmp_path / "checkpoint", spark=spark).create()
    made.feed(10)
    made.run(rows=6)
    made.feed(5)
    yield made
    getattr(made, "undone", lambda: None)()
    register_source(spark)
    cluster.clear_faults()


@pytest.mark.nightly
@pytest.mark.parametrize("broken", [*ON_SPARK, *(name for name in BREAKS if "woken" not in name)])
def test_remedies_are_followed_to_the_letter(query, broken):
    """Every row that the remedies do not give up is in the target, once."""
    (ON_SPARK | BREAKS)[broken](query)
    if broken in ON_SPARK:
        query.look()
    query.restart_with_advice()
    kept = [row for row in query.fed if row not in query.gone]
    query.assert_exact(kept)
    assert not query.people
    if broken in ON_SPARK:
        require_line("On Spark", broken, query, f"{len(kept)} rows, exact")


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("broken", "place", "says"),
    [
        ("second driver", "afterwards", "stop one of them"),
        ("old driver woken, with SIGCONT", "meanwhile", "Stop other runs"),
    ],
)
def test_driver_is_told_that_another_one_has_overtaken_it(query, broken, place, says):
    """It is stopped with SIGSTOP in the middle of a batch, and wakes after another one has continued."""
    while (told := _overtaken(query, place)).is_busy:
        query.feed(3)
    query.said.append(told.name)
    query.people[says] = lambda: None
    query.follow(told.remedy)
    query.feed(3)
    query.run()
    query.assert_exact()
    require_line("On Spark", broken, query, "all rows, exact")


def _overtaken(query, place):
    other = other_driver.start(query, place)
    query.undone = lambda: kill_session(other)
    query.run()
    query.feed(3)
    query.run()
    query.look()
    begun = time.monotonic()
    os.killpg(other.pid, signal.SIGCONT)
    told = StoppedError(other.communicate()[0])
    query.heard[told.tool] = str(told), time.monotonic() - begun
    return told
