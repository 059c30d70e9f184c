"""What runs inside Spark tasks that insert, and what a mode refuses whose tasks make rows visible.

A task may be retried, re-run or duplicated by Spark. `InsertTask` accepts that its rows may then be
there twice (at-least-once), or relies on keys to overwrite them with themselves (idempotent).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Self

import pyarrow as pa

from yt_exactly_once import advice
from yt_exactly_once.codec.key_hashes import Hashes, distinct, key_hashes
from yt_exactly_once.codec.row_hash import added, combined, row_hashes
from yt_exactly_once.codec.rows import encode
from yt_exactly_once.commit.parts import TargetRows
from yt_exactly_once.commit.tally import SentBy
from yt_exactly_once.errors import ConfigError, DuplicateKeyError
from yt_exactly_once.observability import emitter
from yt_exactly_once.retrying import run_attempts
from yt_exactly_once.spark.modes.mode import RowTask, TargetBatch, TaskSettings
from yt_exactly_once.spark.schema import spark_schema_of
from yt_exactly_once.spark.sink.options import SinkOptions
from yt_exactly_once.spark.sink.target import ADD
from yt_exactly_once.ytsaurus.rows import insert_payload

_REPORT = pa.schema(
    {
        "row_count": pa.int64(),
        "byte_count": pa.int64(),
        "digest": pa.binary(),
        "key_hashes": pa.binary(),
        "rejected_count": pa.int64(),
    }
)
REPORT_SCHEMA = spark_schema_of(_REPORT)
"""What a task reports to the driver, one row per chunk it wrote: see `ChunkReport`."""


@dataclass(frozen=True)
class ChunkReport:
    """What a task tells of a chunk, or of several.

    Attributes:
        row_count: rows that are written.
        byte_count: bytes that were sent for them.
        digest: of the rows; 0 unless the target keeps digests.
        key_hashes: of the keys; empty unless the driver must compare them.
        rejected_count: rows that went to the dead-letter table instead.
    """

    row_count: int = 0
    byte_count: int = 0
    digest: int = 0
    key_hashes: bytes = field(default=b"", repr=False)
    rejected_count: int = 0

    @classmethod
    def of_chunk(
        cls,
        settings: TaskSettings,
        rows: pa.RecordBatch,
        byte_count: int,
        hashes: Hashes | None = None,
    ) -> Self:
        """Report a chunk that is written."""
        target = settings.target
        digest = added(0, row_hashes(rows, target.plan.columns)) if target.options.digest else 0
        return cls(rows.num_rows, byte_count, digest, b"" if hashes is None else hashes.tobytes())

    @classmethod
    def of_all(cls, reports: Iterable[pa.RecordBatch]) -> Self:
        """Add up what tasks have reported."""
        reported = [row for batch in reports for row in batch.to_pylist()]
        rows, sent, rejected = (
            sum(row[name] for row in reported)
            for name in ("row_count", "byte_count", "rejected_count")
        )
        digest = combined(*(int.from_bytes(row["digest"], "little") for row in reported))
        hashes = b"".join(row["key_hashes"] for row in reported)
        return cls(rows, sent, digest, hashes, rejected)

    def written(self, given: TargetBatch) -> TargetRows:
        """Return for the commit what tasks, or the driver in their place, have written into a target."""
        target, transaction = given.target, given.transaction
        return TargetRows(
            path=target.path,
            groups=(),
            wire=target.wire.value,
            row_count=self.row_count,
            digest=self.digest if target.options.digest else None,
            sent_bytes=self.byte_count,
            sent_by=SentBy.DRIVER if given.by_driver else SentBy.TASKS,
            inside=None if transaction is None else transaction.id,
        )

    def to_arrow(self) -> pa.RecordBatch:
        """Return it as tasks hand it to Spark."""
        row = {**vars(self), "digest": self.digest.to_bytes(8, "little")}
        return pa.RecordBatch.from_pylist([row], schema=_REPORT)


@dataclass(frozen=True)
class InsertTask(RowTask):
    """Writes chunks, each in a transaction of its own that the proxy begins and commits.

    With `unique_keys` it refuses two rows with one key, as far as it sees them, and reports hashes.
    """

    unique_keys: bool

    reports = REPORT_SCHEMA

    def run(self, batches: Iterable[pa.RecordBatch], partition: int) -> Iterator[pa.RecordBatch]:
        """Write all rows of the task; yield one report per chunk."""
        settings, target = self.settings, self.settings.target
        emit = emitter(target=target.path)
        for chunk in settings.chunks(batches):
            tablets = target.placement.tablets(chunk, partition)
            payload = encode(chunk, target.plan, target.wire, tablet_index=tablets)
            hashes = key_hashes(chunk, target.plan.keys) if self.unique_keys else None
            if hashes is not None:
                require_unique(hashes, target.path)

            def insert(_: int, payload: bytes | memoryview = payload) -> None:
                insert_payload(
                    settings.connection,
                    target.path,
                    payload,
                    target.wire.value,
                    target.options.write_options,
                )

            run_attempts(insert, settings.retry, emit)
            yield ChunkReport.of_chunk(settings, chunk, len(payload), hashes).to_arrow()


def require_unique(hashes: Hashes, target: str) -> None:
    """Check that no key occurs twice; raise `DuplicateKeyError` if one does."""
    repeated = len(hashes) - len(distinct(hashes))
    if repeated:
        raise DuplicateKeyError(
            f"{repeated} rows of the batch have the key of another row of it",
            remedy="Idempotent mode writes each key once per batch; make the keys unique, or use "
            "mode='transactional', where the last row of a key wins",
            target=target,
        )


def require_no_transaction(options: SinkOptions) -> None:
    """Raise `ConfigError` for options that need one transaction over all rows of a batch."""
    mode = f"mode '{options.mode}'"
    if options.dead_letter_path is not None:
        raise ConfigError(
            f"dead_letter_path is not possible in {mode}: a task that Spark repeats would reject its rows "
            "again",
            remedy="Use mode='transactional', or repair the rows in the query",
        )
    if options.split_oversized:
        raise ConfigError(
            f"split_oversized has no meaning in {mode}",
            remedy="Leave split_oversized out: only transactional mode puts a batch into one transaction",
        )
    for target in options.targets:
        for name in ("write='replace'", "delete_marker", "aggregate", "changes"):
            if target.effects[name]:
                raise ConfigError(
                    f"{name} is not possible in {mode}: a task that Spark repeats would do it again",
                    remedy="Use mode='transactional'",
                    target=target.path,
                )
        if target.on_new_columns == ADD:
            raise ConfigError(
                f"on_new_columns='add' is not possible in {mode}: tasks of an older program may still write",
                remedy="Use mode='transactional', or add the columns yourself before the query starts: "
                f"{advice.add_columns(target.path, {'NAME': 'TYPE'})}",
                target=target.path,
            )
    if len(options.targets) > 1:
        raise ConfigError(
            f"Several targets cannot be written in {mode}",
            remedy="Use mode='transactional', or one sink per target",
        )
