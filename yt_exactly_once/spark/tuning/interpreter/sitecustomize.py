"""Run by Python as it starts, in the Python processes that Spark starts for this package: see `tuning.start`.

No module of the package imports this one: its folder is on the path of those processes. Python runs one
`sitecustomize`. Another one, which this one hides, is run before anything else.
"""

import os
import sys
from importlib.machinery import PathFinder
from importlib.util import module_from_spec

_HERE = os.path.dirname(__file__)  # noqa: PTH120 - pathlib is not needed here


def _run_hidden() -> None:
    spec = PathFinder.find_spec(__name__, [entry for entry in sys.path if entry != _HERE])
    if spec is not None and spec.loader is not None:
        spec.loader.exec_module(module_from_spec(spec))


_run_hidden()

from yt_exactly_once.spark.tuning.start import fork_planners, import_before_fork, leave_archives_out  # noqa: E402

leave_archives_out()
import_before_fork()
fork_planners()
