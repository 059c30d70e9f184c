"""What the failure of a job says: its text is all there is to go by."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from yt_exactly_once.config import RESULT_SIZE_CONF
from yt_exactly_once.errors import ConfigError
from yt_exactly_once.version import VERSION

_MISSING = re.compile(r"ModuleNotFoundError: No module named '(\w+)[\w.]*'")

_NEEDED = frozenset(
    {"numpy", "pandas", "pyarrow", "structlog", "tenacity", "yt", "yt_exactly_once"}
)
"""Packages that our tasks import, and that every environment of this package has."""


_NO_PYTHON = re.compile(r'Cannot run program "([^"]*python[^"]*)"')


def require_version(driver: str) -> None:
    """Check, in a task, that the executor has the driver's package; raise `ConfigError` if not."""
    if driver != VERSION:
        raise _version_differs(VERSION, driver)


def _version_differs(executors: str, driver: str) -> ConfigError:
    return ConfigError(
        f"Spark's executors have yt-exactly-once {executors}, and the driver has {driver}",
        remedy=f"Install yt-exactly-once=={driver} on every executor, or the other version on the "
        "driver. Or ship a packed environment with spark.archives",
    )


_OTHER_VERSION = re.compile(
    r"Spark's executors have yt-exactly-once (\S+), and the driver has (\S+)[.\n]"
)


def unfit_python(text: str) -> ConfigError | None:
    """Return what the failure of a task says of the Python of the executors, if that is to blame."""
    absent, missing = _NO_PYTHON.search(text), _MISSING.search(text)
    if absent is not None:
        return ConfigError(
            f"Spark's executors cannot start the Python {absent[1]!r}",
            remedy="Let PYSPARK_PYTHON name a Python that every executor has. With spark.archives it is "
            "a relative path, such as ./environment/bin/python",
        )
    if missing is not None and missing[1] in _NEEDED:
        return ConfigError(
            f"The Python of Spark's executors has no package {missing[1]!r}",
            remedy="Install the package there, and let PYSPARK_PYTHON name that Python. Or ship a packed "
            "environment with spark.archives",
        )
    other = _OTHER_VERSION.search(text)
    return None if other is None else _version_differs(other[1], other[2])


@contextmanager
def unfit_python_named() -> Iterator[None]:
    """Turn the failure of a task without a fitting Python into the `ConfigError` that says so."""
    try:
        yield
    except ImportError:
        # Of this process, and not of a task.
        raise
    except Exception as error:
        named = unfit_python(str(error))
        if named is None:
            raise
        raise named from error


def without_query(error: Exception) -> str:
    """Return what a query failed with, without Spark's description of the query below it."""
    return str(error).partition("\n=== Streaming Query ===")[0]


def does_not_fit_driver(error: Exception) -> bool:
    """Return whether a job has failed because its rows are too many for the driver (`TaskSetManager`)."""
    return RESULT_SIZE_CONF in str(error)


def is_cancelled(error: Exception) -> bool:
    """Return whether a job has ended because its query is stopped (`SparkCoreErrors`)."""
    return "SPARK_JOB_CANCELLED" in str(error)
