"""What runs inside Spark tasks that insert, and what all modes whose tasks write have in common.

A task may be retried, re-run or duplicated by Spark. `InsertTask` accepts that its rows may then be
there twice (at-least-once), or relies on keys to overwrite them with themselves (idempotent).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.types import BinaryType, LongType, StructType

from yt_exactly_once.codec.reserved import RESERVED_PREFIX
from yt_exactly_once.codec.row_hash import added, joined, row_hashes
from yt_exactly_once.codec.rows import encode
from yt_exactly_once.codec.schema import SOURCE_COLUMNS, SOURCE_QUEUE_COLUMN
from yt_exactly_once.commit.parts import TargetRows
from yt_exactly_once.errors import ConfigError, NotOneToOneError
from yt_exactly_once.observability import emitter
from yt_exactly_once.retrying import run_attempts
from yt_exactly_once.spark.sink.encode import chunks
from yt_exactly_once.spark.sink.modes.mode import Mode
from yt_exactly_once.spark.sink.placement import TABLET_COLUMN
from yt_exactly_once.spark.versions import arrow_batches
from yt_exactly_once.spark.worker import spare_modules
from yt_exactly_once.ytsaurus.rows import insert_payload

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pyspark.sql import DataFrame

    from yt_exactly_once.config import RetryPolicy
    from yt_exactly_once.spark.sink.targets import PreparedTarget
    from yt_exactly_once.ytsaurus.client import Connection

REPORT_SCHEMA = (
    StructType()
    .add("row_count", LongType())
    .add("byte_count", LongType())
    .add("digest", BinaryType())
    .add("key_hashes", BinaryType())
)
"""What a task reports to the driver, one row per chunk it wrote: see `ChunkReport`."""

KEY_HASH_COLUMNS = (f"{RESERVED_PREFIX}key_hash_64", f"{RESERVED_PREFIX}key_hash_32")
"""Two hashes of a row's key, 96 bits together, which the driver adds to the DataFrame."""

_REPORT = pa.schema(
    [
        ("row_count", pa.int64()),
        ("byte_count", pa.int64()),
        ("digest", pa.binary()),
        ("key_hashes", pa.binary()),
    ]
)
_DIGEST_BYTES = 8


@dataclass(frozen=True)
class ChunkReport:
    """What a task tells of a chunk, or of several.

    Attributes:
        row_count: rows that are written.
        byte_count: bytes that were sent for them.
        digest: of the rows; 0 unless the target keeps digests.
        key_hashes: of the keys; empty unless keys must be unique.
    """

    row_count: int = 0
    byte_count: int = 0
    digest: int = 0
    key_hashes: bytes = field(default=b"", repr=False)

    @classmethod
    def of_chunk(
        cls,
        settings: TaskSettings,
        rows: pa.RecordBatch,
        byte_count: int,
        hashes: np.ndarray[Any, Any] | None = None,
    ) -> Self:
        """Report a chunk that is written."""
        target = settings.target
        digest = added(0, row_hashes(rows, target.plan.columns)) if target.options.digest else 0
        return cls(rows.num_rows, byte_count, digest, b"" if hashes is None else hashes.tobytes())

    @classmethod
    def of_all(cls, reports: Iterable[pa.RecordBatch]) -> Self:
        """Add up what tasks have reported."""
        told = [row for batch in reports for row in batch.to_pylist()]
        return cls(
            sum(row["row_count"] for row in told),
            sum(row["byte_count"] for row in told),
            joined(*(int.from_bytes(row["digest"], "little") for row in told)),
            b"".join(row["key_hashes"] for row in told),
        )

    def to_arrow(self) -> pa.RecordBatch:
        """Return it as tasks hand it to Spark."""
        row = {
            "row_count": self.row_count,
            "byte_count": self.byte_count,
            "digest": self.digest.to_bytes(_DIGEST_BYTES, "little"),
            "key_hashes": self.key_hashes,
        }
        return pa.RecordBatch.from_pylist([row], schema=_REPORT)


@dataclass(frozen=True)
class TaskSettings:
    """What every writing task needs.

    Attributes:
        names: columns of the batches the task gets, in order.
        target: where to write.
        connection: the cluster; opened in the worker.
        dyn_batch_size: rows per request.
        retry: how often a request is repeated.
        connections: how many sessions are opened and pushed to at a time.
    """

    names: tuple[str, ...]
    target: PreparedTarget
    connection: Connection
    dyn_batch_size: int
    retry: RetryPolicy
    connections: int

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

        Spark looks columns up by name, takes a dot for a path into a struct, and ignores case. So where that
        matters they travel under plain names, and tasks restore the real ones.

        Args:
            frame: rows of the target.
            target: where to write.
            more: columns that the tasks need beside those of the table.
        """
        wanted = {
            *target.plan.names,
            *SOURCE_COLUMNS,
            SOURCE_QUEUE_COLUMN,
            TABLET_COLUMN,
            *more,
        }
        names = frame.columns
        # Every step costs Spark an analysis of its own.
        plain, renamed = names, frame
        if not _are_plain(names):
            plain = [f"c{place}" for place in range(len(names))]
            renamed = frame.toDF(*plain)
        kept = [alias for alias, name in zip(plain, names, strict=True) if name in wanted]
        settings = TaskSettings(
            names=tuple(name for name in names if name in wanted),
            target=target,
            connection=self.connection,
            dyn_batch_size=target.request_size,
            retry=self.options.retry,
            connections=self.options.connections,
        )
        return (renamed if len(kept) == len(plain) else renamed.select(*kept)), settings

    def reports(self, job: DataFrame) -> list[pa.RecordBatch]:
        """Run the tasks, and return what they report."""
        return list(arrow_batches(job))

    def written(self, target: PreparedTarget, report: ChunkReport) -> list[TargetRows]:
        """Return what the tasks have written."""
        rows = TargetRows(
            path=target.path,
            lanes=(),
            wire=target.wire.value,
            row_count=report.row_count,
            digest=report.digest if target.options.digest else None,
            sent_bytes=report.byte_count,
        )
        return [rows]


def _are_plain(names: Sequence[str]) -> bool:
    """Return whether Spark finds each of the columns by its name."""
    words = all(name.isascii() and name.isidentifier() for name in names)
    return words and len({name.lower() for name in names}) == len(names)


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
        spare_modules()
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
            yield ChunkReport.of_chunk(settings, chunk, len(payload), hashes).to_arrow()


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


def unpack_hashes(packed: bytes) -> np.ndarray[Any, Any]:
    """Return what tasks reported as an array."""
    return np.frombuffer(packed, dtype=[("wide", "<i8"), ("narrow", "<i4")])


def partition_id() -> int:
    """Return the number of the Spark partition that this task computes."""
    context = TaskContext.get()
    assert context is not None, "runs inside a Spark task"
    return context.partitionId()
