"""How Python processes start that Spark starts for the format `yt` and for tasks of the sink.

Spark puts its archive `pyspark.zip` before everything else. The archive has no bytecode, so each process
compiles 250 modules, which takes longer than the rest of its start. The installed package that contains the
archive has the same modules, with bytecode. So they are imported from there.

A process is told by its variables, which Spark takes with each function: see `started_sooner`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from threading import Lock
from typing import Any
from weakref import WeakSet

from yt_exactly_once.spark.tuning import Where, planners, tuning
from yt_exactly_once.spark.tuning.collector import freeze_modules, uncollected

INTERPRETER = str(Path(__file__).with_name("interpreter"))
"""The folder with the `sitecustomize` of those processes."""

READ = ("yt_exactly_once.spark.source.opening", "yt_exactly_once.spark.source.reader")
"""What a worker imports that reads a queue. By name, as these modules are above this room."""

OPEN = ("yt_exactly_once.spark.source.opening", "yt_exactly_once.spark.source.packed")
PASS_ON = ("yt_exactly_once.spark.source.reader",)

_PATH = "PYTHONPATH"
_LIBRARY = os.sep + str(Path("pyspark", "python", "lib"))
_OPENS = "pyspark.sql.worker.create_data_source"
_BEFORE_FORK = {
    "pyspark.worker": READ,
    "pyspark.sql.worker.plan_data_source_read": PASS_ON,
    _OPENS: (*OPEN, *READ, _OPENS, planners.PLANNER),
}
"""What is imported by the processes from which Spark forks others, by the module that those run."""

_tuned: WeakSet[Any] = WeakSet()
"""Spark contexts whose processes for this package start sooner."""

_lock = Lock()


@tuning(
    what="starts Spark's Python processes for the format `yt` and for tasks of the sink with a "
    "`sitecustomize`, which runs the one that it hides. Those of other functions start without it",
    where=Where.SESSION,
    why="`leave_archives_out` and `import_before_fork` act while a process starts",
    gain="nothing by itself",
    off="`register_source(spark, warm_up=False)`",
)
def start_sooner(context: Any) -> bool:
    """Let `started_sooner` act in this Spark context; return whether it did not before."""
    with _lock:
        is_new = context not in _tuned
        _tuned.add(context)
    return is_new


@contextmanager
def started_sooner(spark: Any) -> Iterator[None]:
    """Let the functions that Spark is given meanwhile run in processes that start sooner.

    Spark copies the variables of its context with each function. What another thread gives it at the same
    time may have them too, and works as well. Spark Connect has no context.
    """
    context = getattr(spark, "sparkContext", None)
    if context is None or context not in _tuned:
        yield
        return
    environment: dict[str, str] = context.environment
    with _lock:
        before = environment.get(_PATH)
        environment[_PATH] = os.pathsep.join(filter(None, [INTERPRETER, before]))
        try:
            yield
        finally:
            del environment[_PATH]
            if before is not None:
                environment[_PATH] = before


@tuning(
    what="imports PySpark as it is installed, not from Spark's archive",
    where=Where.WORKER,
    why="the archive has no bytecode, so each process compiles 250 modules",
    gain="450 ms of processor time for each process that Spark starts",
    off="`register_source(spark, warm_up=False)`",
)
def leave_archives_out() -> None:
    """Leave the archives of PySpark and Py4J out of the path that belong to packages on the same path."""
    kept = []
    for entry in sys.path:
        folder, archive = os.path.split(entry)
        site = folder.removesuffix(_LIBRARY)
        package = archive.partition("-")[0].removesuffix(".zip")
        is_installed = Path(site, package, "__init__.py").is_file()
        if site == folder or site not in sys.path or not is_installed:
            kept.append(entry)
    sys.path[:] = kept


@tuning(
    what="imports what opens and reads a queue before Spark forks its workers",
    where=Where.WORKER,
    why="each worker would import it by itself",
    gain="400 ms of processor time for each worker",
    off="`register_source(spark, warm_up=False)`",
)
def import_before_fork() -> None:
    """Import what the workers need, if this is a process that they are forked from."""
    if sys.orig_argv[-2:-1] == ["pyspark.daemon"]:
        import_all(_BEFORE_FORK.get(sys.orig_argv[-1], ()))


@tuning(
    what="forks the processes that plan batches from one that has imported everything. Those that Spark "
    "starts to plan wait for them, and end with them",
    where=Where.WORKER,
    why="Spark starts one for each query, and each would import by itself",
    gain="550 ms of processor time for each query that reads a queue",
    off="`register_source(spark, warm_up=False)`",
)
def fork_planners() -> None:
    """Fork processes that plan, if this is the one to fork from; wait for such a one, if this is to plan."""
    if sys.orig_argv[-2:] == ["pyspark.daemon", _OPENS]:
        # It runs as the main module of each.
        sys.modules.pop(planners.PLANNER, None)
        planners.open_server()
    elif sys.orig_argv[-2:] == ["-m", planners.PLANNER]:
        planners.hand_over()


def import_all(modules: Iterable[str]) -> None:
    """Import modules, and take them out of the garbage collector's sight."""
    with uncollected():
        for module in modules:
            import_module(module)
    freeze_modules()
