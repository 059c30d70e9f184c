"""Failures of tasks that lack a Python or a package."""

import pickle
from types import SimpleNamespace

import pytest

from yt_exactly_once.errors import ConfigError
from yt_exactly_once.spark import executors
from yt_exactly_once.spark.executors import unfit_python_named
from yt_exactly_once.spark.sink.modes.mode import RowTask
from yt_exactly_once.spark.source.packed import PackedQueue

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
        unfit_python_named(),
    ):
        raise failure
    assert raised.value.__cause__ is failure


def test_python_that_executors_lack_is_named():
    """As Java says it, in the message of a task that failed."""
    failure = RuntimeError(
        'java.io.IOException: Cannot run program "./environment/bin/python": error=2, No such file'
    )
    with (
        pytest.raises(ConfigError, match=r"'\./environment/bin/python'.*PYSPARK_PYTHON"),
        unfit_python_named(),
    ):
        raise failure


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError(FAILED_TASK.format("users_own")),
        RuntimeError("Job aborted"),
        RuntimeError('Cannot run program "chmod"'),
        ModuleNotFoundError("ModuleNotFoundError: No module named 'yt'"),
    ],
)
def test_other_failures_pass_unchanged(error):
    """A package of the user's, another failure, and an import of the driver."""
    with pytest.raises(type(error)) as raised, unfit_python_named():
        raise error
    assert raised.value is error


def _sends(sent):
    task = SimpleNamespace(settings=pickle.loads(sent), run=lambda *_: [])
    return list(RowTask.reported(task, [], 0))


def _reads(sent):
    return pickle.loads(sent).opened


@pytest.mark.parametrize("does", [_reads, _sends])
def test_executor_with_another_version_of_the_package_does_nothing(monkeypatch, does):
    """The driver's version travels with what a task does."""
    opened = SimpleNamespace(spark_schema=None, is_queue=True)
    made = PackedQueue(opened) if does is _reads else SimpleNamespace(version=executors.VERSION)
    sent = pickle.dumps(made)
    does(sent)
    monkeypatch.setattr(executors, "VERSION", "0.0.9")
    with pytest.raises(
        ConfigError, match=r"executors have yt-exactly-once 0\.0\.9, and the driver"
    ):
        does(sent)
