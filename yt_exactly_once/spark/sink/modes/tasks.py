"""What runs inside Spark tasks that insert, and what all modes whose tasks write have in common.

A task may be retried, re-run or duplicated by Spark. `InsertTask` accepts that its rows may then be
there twice (at-least-once), or relies on keys to overwrite them with themselves (idempotent).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.types import BinaryType, LongType, StructType

from yt_exactly_once.codec.reserved import RESERVED_PREFIX
from yt_exactly_once.codec.rows import encode
from yt_exactly_once.codec.schema import SOURCE_COLUMNS
from yt_exactly_once.commit.parts import TargetRows
from yt_exactly_once.errors import ConfigError, NotOneToOneError
from yt_exactly_once.observability import emitter
from yt_exactly_once.retrying import run_attempts
from yt_exactly_once.spark.sink.encode import chunks
from yt_exactly_once.spark.sink.modes.mode import Mode
from yt_exactly_once.spark.sink.placement import TABLET_COLUMN
from yt_exactly_once.spark.versions import arrow_batches
from yt_exactly_once.ytsaurus.rows import insert_payload

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pyspark.sql import DataFrame

    from yt_exactly_once.config import RetryPolicy
    from yt_exactly_once.spark.sink.targets import PreparedTarget
    from yt_exactly_once.ytsaurus.client import Connection

REPORT_SCHEMA = StructType().add("row_count", LongType()).add("key_hashes", BinaryType())
"""What a task reports to the driver, one row per chunk it wrote."""

KEY_HASH_COLUMNS = (f"{RESERVED_PREFIX}key_hash_64", f"{RESERVED_PREFIX}key_hash_32")
"""Two hashes of a row's key, 96 bits together, which the driver adds to the DataFrame."""

_REPORT = pa.schema([("row_count", pa.int64()), ("key_hashes", pa.binary())])


@dataclass(frozen=True)
class TaskSettings:
    """What every writing task needs.

    Attributes:
        names: columns of the batches the task gets, in order.
        target: where to write.
        connection: the cluster; opened in the worker.
        dyn_batch_size: rows per request.
        retry: how often a request is repeated.
    """

    names: tuple[str, ...]
    target: PreparedTarget
    connection: Connection
    dyn_batch_size: int
    retry: RetryPolicy

    def chunks(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Cut the rows of the task into chunks under their real names."""
        for chunk in chunks(batches, self.dyn_batch_size):
            yield chunk.rename_columns(list(self.names))


class TaskMode(Mode):
    """A mode whose tasks write: the driver learns how many rows there were."""

    def check(self) -> None:
        """See `Mode.check`: what needs a transaction over all rows is refused."""
        options, mode = self.options, f"mode '{self.options.mode}'"
        if options.dead_letter_path is not None:
            raise ConfigError(
                f"dead_letter_path is not possible in {mode}: a task that Spark repeats would reject its "
                "rows again",
                remedy="Use mode='transactional', or repair the rows in the query",
            )
        if options.split_oversized:
            raise ConfigError(
                f"split_oversized has no meaning in {mode}",
                remedy="Leave it out: only transactional mode puts a batch into one transaction",
            )
        for target in options.targets:
            for name in ("write='replace'", "delete_marker", "aggregate"):
                if target.changes[name]:
                    raise ConfigError(
                        f"{name} is not possible in {mode}: a task that Spark repeats would do it again",
                        remedy="Use mode='transactional'",
                        target=target.path,
                    )
        if len(options.targets) > 1:
            raise ConfigError(
                f"Several targets cannot be written in {mode}",
                remedy="Use mode='transactional', or one sink per target",
            )

    def for_tasks(
        self, frame: DataFrame, target: PreparedTarget, *more: str
    ) -> tuple[DataFrame, TaskSettings]:
        """Return the DataFrame whose tasks write, and what they need.

        Spark looks columns up by name and takes a dot for a path into a struct. So they travel under
        plain names, and tasks restore the real ones.

        Args:
            frame: rows of the target.
            target: where to write.
            more: columns that the tasks need beside those of the table.
        """
        wanted = {*target.plan.names, *SOURCE_COLUMNS, TABLET_COLUMN, *more}
        names = frame.columns
        plain = [f"c{place}" for place in range(len(names))]
        kept = [alias for alias, name in zip(plain, names, strict=True) if name in wanted]
        settings = TaskSettings(
            names=tuple(name for name in names if name in wanted),
            target=target,
            connection=self.connection,
            dyn_batch_size=self.options.request_size(frame),
            retry=self.options.retry,
        )
        renamed = frame.toDF(*plain)
        # Every step costs Spark an analysis of its own.
        return (renamed if len(kept) == len(plain) else renamed.select(*kept)), settings

    def reports(self, job: DataFrame) -> list[dict[str, Any]]:
        """Run the tasks, and return what they report."""
        return [row for batch in arrow_batches(job) for row in batch.to_pylist()]

    def written(
        self, target: PreparedTarget, reports: Sequence[dict[str, Any]]
    ) -> list[TargetRows]:
        """Return how many rows the tasks have written."""
        count = sum(int(report["row_count"]) for report in reports)
        wire = target.wire.value
        return [TargetRows(path=target.path, lanes=(), wire=wire, row_count=count)]


@dataclass(frozen=True)
class InsertTask:
    """Writes chunks, each in a transaction of its own that the proxy begins and commits.

    Attributes:
        settings: see there.
        update: keep the columns that the DataFrame does not have.
        unique_keys: refuse two rows with one key, as far as this task sees them, and report hashes.
    """

    settings: TaskSettings
    update: bool
    unique_keys: bool

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write all rows of the task; yield one report per chunk."""
        settings, target = self.settings, self.settings.target
        partition, emit = partition_id(), emitter(target=target.path)
        for chunk in settings.chunks(batches):
            hashes = key_hashes(chunk) if self.unique_keys else None
            if hashes is not None:
                require_unique(hashes, target.path)
            tablets = target.placement.tablets(chunk, partition)
            payload = encode(chunk, target.plan, target.wire, tablet_index=tablets)

            def insert(_: int, payload: bytes = payload) -> None:
                insert_payload(
                    settings.connection,
                    target.path,
                    payload,
                    target.wire.value,
                    update=self.update,
                )

            run_attempts(insert, settings.retry, emit)
            yield report(chunk.num_rows, hashes)


def key_hashes(chunk: pa.RecordBatch) -> np.ndarray[Any, Any]:
    """Return the keys' hashes, one 12-byte record per row."""
    wide, narrow = (chunk.column(name).to_numpy() for name in KEY_HASH_COLUMNS)
    packed = np.empty(chunk.num_rows, dtype=[("wide", "<i8"), ("narrow", "<i4")])
    packed["wide"], packed["narrow"] = wide, narrow
    return packed


def require_unique(hashes: np.ndarray[Any, Any], target: str) -> None:
    """Check that no key occurs twice.

    Raises:
        NotOneToOneError: one does.
    """
    repeated = len(hashes) - len(np.unique(hashes))
    if repeated:
        raise NotOneToOneError(
            f"{repeated} rows of the batch have the key of another row of it",
            remedy="Idempotent mode writes each key once per batch; make the keys unique, or use "
            "mode='transactional', where the last row of a key wins",
            target=target,
        )


def unpack_hashes(packed: Iterable[bytes]) -> np.ndarray[Any, Any]:
    """Return what tasks reported as one array."""
    return np.frombuffer(b"".join(packed), dtype=[("wide", "<i8"), ("narrow", "<i4")])


def partition_id() -> int:
    """Return the number of the Spark partition that this task computes."""
    context = TaskContext.get()
    assert context is not None, "runs inside a Spark task"
    return context.partitionId()


def report(row_count: int, hashes: np.ndarray[Any, Any] | None = None) -> pa.RecordBatch:
    """Return the report of a task about one chunk."""
    packed = None if hashes is None else hashes.tobytes()
    return pa.RecordBatch.from_arrays(
        [pa.array([row_count], pa.int64()), pa.array([packed], pa.binary())], schema=_REPORT
    )
