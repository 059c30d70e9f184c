"""Run by Python as it starts, in the Python processes that Spark starts for a session with the format.

Spark puts its archive `pyspark.zip` before everything else. The archive has no bytecode, so each process
compiles 250 modules, which takes longer than the rest of its start. The installed package that contains the
archive has the same modules, with bytecode. So they are imported from there.

No module of the package imports this one: `register_source` puts its folder on the path of those processes.
Python runs one `sitecustomize`. Another one, which this one hides, is run after it.
"""

import os
import sys
from importlib.machinery import PathFinder
from importlib.util import module_from_spec

_HERE = os.path.dirname(__file__)  # noqa: PTH120 - pathlib takes a part of what is saved here
_LIBRARY = os.sep + os.path.join("pyspark", "python", "lib")  # noqa: PTH118
_WORKERS = ["pyspark.daemon", "pyspark.worker"]
"""How Spark starts the process from which it forks the workers of tasks."""


def _without_archives(path: list[str]) -> list[str]:
    """Leave out the archives of PySpark and Py4J that belong to packages on the same path."""
    kept = []
    for entry in path:
        folder, archive = os.path.split(entry)
        site = folder.removesuffix(_LIBRARY)
        package = archive.partition("-")[0].removesuffix(".zip")
        is_installed = os.path.isfile(os.path.join(site, package, "__init__.py"))  # noqa: PTH113, PTH118
        if site == folder or site not in path or not is_installed:
            kept.append(entry)
    return kept


def _run_hidden() -> None:
    spec = PathFinder.find_spec(__name__, [entry for entry in sys.path if entry != _HERE])
    if spec is not None and spec.loader is not None:
        spec.loader.exec_module(module_from_spec(spec))


sys.path[:] = _without_archives(sys.path)
_run_hidden()
if sys.orig_argv[-2:] == _WORKERS:
    # Before the fork, so all workers have them at once.
    from yt_exactly_once.spark.warm_up import import_what_reads

    import_what_reads()
