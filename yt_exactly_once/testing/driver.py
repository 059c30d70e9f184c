"""The process that is killed: a Spark driver that runs the jobs it is ordered to, each on a thread.

`python -m yt_exactly_once.testing.driver SETUP` takes orders on its standard input. What the package changes
in a process, to see the steps of a job, it changes here and nowhere else.
"""

from __future__ import annotations

import json
import os
import re
import sys
import threading
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from pyspark import cloudpickle
from pyspark.sql.streaming.readwriter import DataStreamWriter

from yt_exactly_once.errors import ConfigError
from yt_exactly_once.spark.compat.failures import without_query
from yt_exactly_once.spark.compat.jvm import copy_folder
from yt_exactly_once.testing import steps, tasks
from yt_exactly_once.testing.child import BUSY, ERROR, SESSION_READY, Report, orders
from yt_exactly_once.testing.nursery import open_nursery
from yt_exactly_once.testing.session import open_session
from yt_exactly_once.testing.trial import Trial

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ENDED = "ended"
TRIAL = "trial"

_MASTER = "local[32, 8]"
"""Room for tasks that are held; a task that fails is tried again."""

_STARTS = 5
"""How often a query is started when the machine is too busy for a Python process of Spark."""

_CHECKPOINT = "checkpointlocation"


@dataclass(frozen=True)
class Setup:
    """How the driver is set up; its argument.

    Attributes:
        conf: of Spark.
        path: of modules.
        copies: a checkpoint and the folder that gets its copy, if jobs are rehearsed and not attacked.
    """

    scratch: str
    gate: str
    report: int
    conf: dict[str, str]
    path: list[str]
    copies: tuple[str, str] | None = None


@dataclass(frozen=True)
class Order:
    """One job to run; a line of the standard input.

    Attributes:
        trial: name and folder.
        job: file with the pickled function.
        batch: the one that is attacked; -1 for none.
        keeps_a_task: whether the first task of that batch waits for ever.
    """

    trial: tuple[str, str]
    job: str
    batch: int = -1
    keeps_a_task: bool = False

    @property
    def where(self) -> Trial:
        """The trial."""
        name, folder = self.trial
        return Trial(name, Path(folder))

    def dump(self) -> str:
        """Return the line."""
        return json.dumps(asdict(self))

    @classmethod
    def load(cls, line: str) -> Self:
        """Read the line."""
        return cls(**json.loads(line))


_thread = threading.local()
"""Has the order that a thread carries out."""


def main(arguments: list[str]) -> None:
    """Carry out orders until the parent goes away."""
    setup = Setup(**json.loads(arguments[0]))
    scratch = Path(setup.scratch)
    scratch.mkdir(parents=True, exist_ok=True)
    # Spark's processes import what the tests import.
    sys.path += [each for each in setup.path if each not in sys.path]
    os.environ |= {
        steps.GATE_VARIABLE: setup.gate,
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
    }
    steps.watch_requests()
    steps.watch_events()
    tasks.watch_ends()
    if sys.platform == "linux":
        # Before the first thread, as it forks. Elsewhere only the driver itself is watched.
        interpreter = str(open_nursery(scratch, setup.report))
        os.environ |= {"PYSPARK_PYTHON": interpreter, "PYSPARK_DRIVER_PYTHON": interpreter}
    lines = orders()
    report = Report(setup.report)
    spark = open_session(scratch, name="test", master=_MASTER, conf=setup.conf)
    if setup.copies is None:
        _watch_calls(_attacked)
    else:
        _rehearse_all(spark, *setup.copies)
    report.send(SESSION_READY)
    for line in iter(lines.get, None):
        threading.Thread(target=_run, args=(spark, Order.load(line), report), daemon=True).start()


def _rehearse_all(spark: SparkSession, checkpoint: str, copy: str) -> None:
    """Copy a checkpoint; let no query write anything from now on."""
    from yt_exactly_once.testing.capture import rehearsing, replace_sinks  # noqa: PLC0415 - imports the sinks

    replace_sinks()
    copy_folder(spark, checkpoint, copy)
    _watch_calls(lambda function, order: rehearsing(function, order.where), rehearses=True)


def _run(spark: SparkSession, order: Order, report: Report) -> None:
    _thread.order = order
    error = ""
    for _ in range(_STARTS):
        error = _error_of(lambda: _finish(spark, order))
        if BUSY not in error:
            break
    report.send(ENDED, **{TRIAL: order.trial[0], ERROR: error})


def _finish(spark: SparkSession, order: Order) -> None:
    job = cloudpickle.loads(Path(order.job).read_bytes())
    query = job(spark, order.where)
    if query is not None:
        query.awaitTermination()


def _error_of(call: Callable[[], None]) -> str:
    try:
        call()
    except Exception as error:  # noqa: BLE001 - whatever a user's code raises
        return f"{type(error).__name__}: {without_query(error)}"
    return ""


def _watch_calls(wrapped: Callable[..., Any], *, rehearses: bool = False) -> None:
    """Wrap the functions that jobs give to `foreachBatch`, and let their queries end with their sources.

    Args:
        wrapped: gets the function and the order.
        rehearses: whether a query is refused that has no function, or another checkpoint than its trial:
            Spark would log a batch in that of the real query.
    """
    writer: Any = DataStreamWriter
    foreach_batch, option, start = writer.foreachBatch, writer.option, writer.start

    def watched(self: Any, function: Callable[[DataFrame, int], Any]) -> Any:
        self.has_function = True
        return foreach_batch(self, wrapped(function, _thread.order))

    def noted(self: Any, key: str, value: Any) -> Any:
        if key.lower() == _CHECKPOINT:
            self.checkpoint = str(value)
        return option(self, key, value)

    def all_noted(self: Any, **options: Any) -> Any:
        for key, value in options.items():
            noted(self, key, value)
        return self

    def ending(self: Any, *args: Any, **options: Any) -> Any:
        if rehearses:
            given = {key.lower(): value for key, value in options.items()}
            location = given.get(_CHECKPOINT, getattr(self, "checkpoint", None))
            _require_rehearsable(self, location, _thread.order.where)
        return start(self.trigger(availableNow=True), *args, **options)

    writer.foreachBatch, writer.start = watched, ending
    writer.option, writer.options = noted, all_noted


def _require_rehearsable(writer: Any, location: Any, trial: Trial) -> None:
    if not hasattr(writer, "has_function"):
        raise ConfigError(
            "Only queries with a foreachBatch function can be rehearsed",
            remedy="Give the DataFrame to a TransactionalSink with the options of the format",
        )
    given = re.sub("^file:/+", "/", str(location or ""))
    if not given or Path(given).resolve() != Path(trial.checkpoint).resolve():
        raise ConfigError(
            "The query would log the batch in another checkpoint than that of the trial",
            remedy="Use .option('checkpointLocation', trial.checkpoint)",
            path=given or None,
        )


def _attacked(
    function: Callable[[DataFrame, int], Any], order: Order
) -> Callable[[DataFrame, int], None]:
    def call(frame: DataFrame, batch_id: int) -> None:
        if batch_id != order.batch:
            function(frame, batch_id)
            return
        steps.reach(steps.BEFORE_CALL)
        given = tasks.one_left(frame) if order.keeps_a_task else nullcontext(frame)
        with given as rows, steps.watched_lines(function):
            function(rows, batch_id)
        steps.reach(steps.AFTER_CALL)

    return call


if __name__ == "__main__":
    main(sys.argv[1:])
