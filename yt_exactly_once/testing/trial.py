"""A trial: one run of the job with a name, a folder and a checkpoint of its own. And a job made of a sink."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from yt_exactly_once.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

BATCHES = [
    [{"id": 10 * batch + row, "text": f"row {row}"} for row in range(10)] for batch in range(4)
]
"""Rows of the batches that a sink gets, unless others are given."""


@dataclass(frozen=True)
class Trial:
    """Where one run of a job keeps its things. No two trials share any.

    Attributes:
        name: to name tables and the query with: letters, digits and underscores.
        folder: an empty folder.
    """

    name: str
    folder: Path

    @property
    def checkpoint(self) -> str:
        """The `checkpointLocation` of the query."""
        return str(self.folder / "checkpoint")

    def runs(self, batch: int) -> bool:
        """Return whether Spark has begun a batch and not logged it as done."""
        logs = Path(self.checkpoint)
        return (logs / "offsets" / str(batch)).exists() and not self.has_logged(batch)

    def has_logged(self, batch: int) -> bool:
        """Return whether Spark has logged a batch as done."""
        return (Path(self.checkpoint) / "commits" / str(batch)).exists()


Job = Callable[["SparkSession", Trial], "StreamingQuery | None"]
"""Starts a query and returns it, or waits until it has ended."""

Sink = Callable[["DataFrame", int], Any]
"""What `foreachBatch` takes."""


def sink_job(
    sink: Callable[[Trial], Sink], *, batches: Sequence[Sequence[Mapping[str, Any]]] = BATCHES
) -> Job:
    """Return a job that hands known rows to a sink, batch by batch.

    Each batch is two Parquet files, and so two tasks.

    Args:
        sink: makes the sink of a trial, which must write where no other trial does.
        batches: rows of each batch; the second one is attacked, unless `survives` is told otherwise.
    """

    def job(spark: SparkSession, trial: Trial) -> StreamingQuery:
        folder = trial.folder / "source"
        if not folder.exists():
            _write(batches, folder)
        # Spark takes files by their age: the names in the order of the batches have one each.
        rows = (
            spark.readStream.schema(spark.read.parquet(str(folder)).schema)
            .option("maxFilesPerTrigger", 2)
            .parquet(str(folder))
        )
        return (
            rows.writeStream.foreachBatch(sink(trial))
            .option("checkpointLocation", trial.checkpoint)
            .start()
        )

    return job


def _write(batches: Sequence[Sequence[Mapping[str, Any]]], folder: Path) -> None:
    import pyarrow as pa  # noqa: PLC0415 - in the driver only
    from pyarrow import parquet  # noqa: PLC0415

    fresh = folder.with_name("fresh")
    fresh.mkdir(exist_ok=True)
    schema = pa.Table.from_pylist([dict(row) for rows in batches for row in rows]).schema
    for number, rows in enumerate(batches):
        for half in range(2):
            path = fresh / f"{number:06}-{half}.parquet"
            table = pa.Table.from_pylist([dict(row) for row in rows[half::2]], schema)
            parquet.write_table(table, path)
            os.utime(path, (number * 2 + half, number * 2 + half))
    fresh.rename(folder)


def pickled(job: Job) -> bytes:
    """Return a job for another process, which need not be able to import the module that has it.

    Raises:
        ConfigError: it holds what cannot be sent to another process.
    """
    # Spark's own, without types; slow to import.
    cloudpickle: Any = import_module("pyspark.cloudpickle")

    modules = {module.__name__: module for module in _modules_of(job)}
    for module in modules.values():
        cloudpickle.register_pickle_by_value(module)
    try:
        return bytes(cloudpickle.dumps(job))
    except Exception as error:
        raise ConfigError(
            f"The job cannot be sent to the process that is killed: {error}",
            remedy="Make what it needs in the function, such as clients. Keep open files, sessions of Spark "
            "and clusters out of it",
        ) from error
    finally:
        for module in modules.values():
            cloudpickle.unregister_pickle_by_value(module)


def _modules_of(function: Any) -> Iterator[ModuleType]:
    """Yield the modules of a function, and of the functions that it holds, if they are of the user."""
    module = inspect.getmodule(getattr(function, "func", function))
    if module is not None and _is_of_the_user(module):
        yield module
    held = [getattr(function, "func", None), *getattr(function, "args", ())]
    for one in [
        *held,
        *(cell.cell_contents for cell in getattr(function, "__closure__", None) or ()),
    ]:
        if callable(one):
            yield from _modules_of(one)


def _is_of_the_user(module: ModuleType) -> bool:
    room = module.__name__.partition(".")[0]
    is_installed = "site-packages" in (getattr(module, "__file__", None) or "")
    return not is_installed and room not in {*sys.stdlib_module_names, __name__.partition(".")[0]}
