"""Failures of tasks that lack a package."""

import pytest

from yt_exactly_once.errors import ConfigError
from yt_exactly_once.spark.executors import missing_packages_named

FAILED_TASK = """org.apache.spark.SparkException: Job aborted due to stage failure
  File "/opt/spark/python/pyspark/worker.py", line 12, in read_command
ModuleNotFoundError: No module named '{}'"""


@pytest.mark.parametrize(
    ("module", "package"),
    [("yt", "yt"), ("yt.wrapper", "yt"), ("yt_exactly_once.codec", "yt_exactly_once")],
)
def test_package_that_executors_lack_is_named(module, package):
    """The error says which Python lacks it, and keeps the failure of the task."""
    failure = RuntimeError(FAILED_TASK.format(module))
    with (
        pytest.raises(ConfigError, match=f"no package '{package}'.*PYSPARK_PYTHON") as raised,
        missing_packages_named(),
    ):
        raise failure
    assert raised.value.__cause__ is failure


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError(FAILED_TASK.format("users_own")),
        RuntimeError("Job aborted"),
        ModuleNotFoundError("ModuleNotFoundError: No module named 'yt'"),
    ],
)
def test_other_failures_pass_unchanged(error):
    """A package of the user's, another failure, and an import of the driver."""
    with pytest.raises(type(error)) as raised, missing_packages_named():
        raise error
    assert raised.value is error
