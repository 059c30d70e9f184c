"""Failures of tasks that lack a Python or a package."""

import pickle
from types import SimpleNamespace

import pytest

from yt_exactly_once.errors import ConfigError
from yt_exactly_once.spark.compat import failures
from yt_exactly_once.spark.compat.failures import unfit_python_named
from yt_exactly_once.spark.modes.mode import RowTask
from yt_exactly_once.spark.source.packed import PackedQueue

FAILED_TASK = """org.apache.spark.SparkException: Job aborted due to stage failure
  File "/opt/spark/python/pyspark/worker.py", line 12, in read_command
ModuleNotFoundError: No module named '{}'"""


LACKED = [
    *(
        (FAILED_TASK.format(module), f"no package '{module.partition('.')[0]}'")
        for module in ("yt", "yt.wrapper", "yt_exactly_once.codec")
    ),
    # As Java says it, in the message of a task that failed.
    (
        'java.io.IOException: Cannot run program "./environment/bin/python": error=2, No such file',
        r"'\./environment/bin/python'",
    ),
]


@pytest.mark.parametrize(("said", "named"), LACKED)
def test_what_executors_lack_is_named(said, named):
    """The package, with the Python that lacks it, or that one itself; the failure of the task is kept."""
    failure = RuntimeError(said)
    with (
        pytest.raises(ConfigError, match=f"{named}.*PYSPARK_PYTHON") as raised,
        unfit_python_named(),
    ):
        raise failure
    assert raised.value.__cause__ is failure


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
    made = PackedQueue(opened) if does is _reads else SimpleNamespace(version=failures.VERSION)
    sent = pickle.dumps(made)
    does(sent)
    monkeypatch.setattr(failures, "VERSION", "0.0.9")
    with pytest.raises(
        ConfigError, match=r"executors have yt-exactly-once 0\.0\.9, and the driver"
    ):
        does(sent)
