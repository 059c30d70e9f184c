"""What a failed task says about the Python of the executors."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from yt_exactly_once.errors import ConfigError
from yt_exactly_once.version import VERSION

_MISSING = re.compile(r"ModuleNotFoundError: No module named '(\w+)[\w.]*'")

_NEEDED = frozenset(
    {"numpy", "pandas", "pyarrow", "structlog", "tenacity", "yt", "yt_exactly_once"}
)
"""Packages that our tasks import, and that every environment of this package has."""


_NO_PYTHON = re.compile(r'Cannot run program "([^"]*python[^"]*)"')


def require_version(driver: str) -> None:
    """Check, in a task, that the executor has the package of the driver.

    Raises:
        ConfigError: it has another version.
    """
    if driver != VERSION:
        raise ConfigError(
            f"Spark's executors have yt-exactly-once {VERSION}, and the driver has {driver}",
            remedy=f"Install yt-exactly-once=={driver} on every executor, or the other version on the "
            "driver. Or ship a packed environment with spark.archives",
        )


@contextmanager
def unfit_python_named() -> Iterator[None]:
    """Turn the failure of a task without a Python, or without a package, into an error that says so.

    Raises:
        ConfigError: an executor cannot start its Python, or that has no package that a task needs.
    """
    try:
        yield
    except ImportError:
        # Of this process, and not of a task.
        raise
    except Exception as error:
        text = str(error)
        absent = _NO_PYTHON.search(text)
        if absent is not None:
            raise ConfigError(
                f"Spark's executors cannot start the Python {absent[1]!r}",
                remedy="Let PYSPARK_PYTHON name a Python that every executor has. With spark.archives it is "
                "a relative path, such as ./environment/bin/python",
            ) from error
        found = _MISSING.search(text)
        if found is None or found[1] not in _NEEDED:
            raise
        raise ConfigError(
            f"The Python of Spark's executors has no package {found[1]!r}",
            remedy="Install the package there, and let PYSPARK_PYTHON name that Python. Or ship a packed "
            "environment with spark.archives",
        ) from error
