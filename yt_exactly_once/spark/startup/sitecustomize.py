"""What the Python processes of Spark run first: they take PySpark from its folder instead of a zip file.

Spark puts `pyspark.zip` in front of the path. What Python imports from a zip file, every process compiles
again. That takes a second of processor time. The zip file was made from a folder, where Python keeps what it
has compiled.
"""

import os
import sys
from importlib import import_module
from importlib.machinery import PathFinder

_ZIP = os.path.join("python", "lib", "pyspark.zip")  # noqa: PTH118 - pathlib is slow to import


def _without_zip(path: list[str]) -> list[str]:
    """Return a path on which PySpark comes from a folder, if that is certainly the same PySpark."""
    for place, entry in enumerate(path):
        if not entry.endswith(os.sep + _ZIP):
            continue
        home = entry[: -len(_ZIP) - 1]
        before, after = path[:place], path[place + 1 :]
        beside = os.path.join(home, "python")  # noqa: PTH118
        # An installed PySpark has the zip file inside the package. In a distribution of Spark the package is
        # beside the zip file.
        for changed, package in (
            ([*before, *after], home),
            ([*before, beside, *after], os.path.join(beside, "pyspark")),  # noqa: PTH118
        ):
            found = PathFinder.find_spec("pyspark", changed)
            if found is not None and found.origin == os.path.join(package, "__init__.py"):  # noqa: PTH118
                return changed
    return path


def _run_the_next() -> None:
    """Run the module of this name that this one hides."""
    here = os.path.dirname(__file__)  # noqa: PTH120
    sys.path[:] = [entry for entry in sys.path if entry != here]
    this = sys.modules.pop(__name__)
    try:
        import_module(__name__)
    except ModuleNotFoundError as error:
        if error.name != __name__:
            raise
        sys.modules[__name__] = this


if __name__ == "sitecustomize":
    sys.path[:] = _without_zip(sys.path)
    _run_the_next()
