"""What runs inside Spark tasks that insert, and what a mode refuses whose tasks make rows visible.

A task may be retried, re-run or duplicated by Spark. `InsertTask` accepts that its rows may then be
there twice (at-least-once), or relies on keys to overwrite them with themselves (idempotent).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Self
from uuid import uuid4

import numpy as np
import pyarrow as pa
from pyspark import TaskContext

from yt_exactly_once import advice
from yt_exactly_once.codec.key_hashes import fragment_hashes, key_hashes
from yt_exactly_once.codec.rejects import Rejects
from yt_exactly_once.codec.row_hash import added, combined, row_hashes
from yt_exactly_once.codec.rows import WireFormat, encode
from yt_exactly_once.commit.claims import Claim
from yt_exactly_once.commit.cluster import OpenTransaction
from yt_exactly_once.commit.parts import TargetRows, digest_of_rows
from yt_exactly_once.commit.tally import SentBy
from yt_exactly_once.errors import ConfigError, DuplicateKeyError, RepeatedTaskError
from yt_exactly_once.observability import emitter
from yt_exactly_once.retrying import run_attempts
from yt_exactly_once.spark.modes.mode import RowTask, TargetBatch, TaskSettings
from yt_exactly_once.spark.schema import spark_schema_of
from yt_exactly_once.spark.sink.encode import RowEncoder
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
        hashes: np.ndarray[Any, Any] | None = None,
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


@dataclass(frozen=True)
class JoinedInsertTask(RowTask):
    """Writes chunks into the transaction that the driver has open, each row at most once.

    A task cannot take back what it has sent. So only one attempt of it may write: the first one, or the one
    that claims the partition. Every other one refuses before its first request. A request without an answer
    may have arrived, and is never sent again. Either way the job fails, the driver ends the transaction, and
    writes the batch in another one.

    Attributes:
        claims: table in which attempts claim the partition; `None` where Spark starts attempt 0 once.
        rejects: see `RowEncoder`.
    """

    transaction: OpenTransaction
    claims: str | None = None
    rejects: Rejects | None = None

    reports = REPORT_SCHEMA

    def run(self, batches: Iterable[pa.RecordBatch], partition: int) -> Iterator[pa.RecordBatch]:
        """Write all rows of the task; yield one report per chunk."""
        settings, target, opened = self.settings, self.settings.target, self.transaction
        keys = list[pa.LargeBinaryArray]()
        # One attempt may write without a claim.
        is_owner = self.claims is None
        if is_owner:
            require_first_attempt(partition, opened.id)
        else:
            target.require_own_tablets(partition + 1)
        transaction = settings.connection.joined(opened.id, proxy=opened.proxy)
        for chunk in settings.chunks(batches):
            encoder = RowEncoder(target, self.rejects)
            encoder.add(chunk, partition, is_mixed=True)
            if not is_owner:
                # As late as can be: of two copies of a task the faster one writes.
                self._claim(partition)
                is_owner = True
            payloads = [payload for group in encoder.groups.values() for payload in group]
            wire, how = target.wire.value, target.options.write_options
            transaction.write(target.path, payloads, wire, how)
            if self.rejects is not None:
                transaction.write(self.rejects.path, encoder.rejected, WireFormat.YSON.value)
            yield ChunkReport(
                sum(payload.row_count for payload in payloads),
                sum(len(payload.data) for payload in payloads),
                digest_of_rows([payloads]),
                rejected_count=sum(payload.row_count for payload in encoder.rejected),
            ).to_arrow()
            keys += encoder.keys[partition] if encoder.keys else []
        if not is_owner:
            # A copy of it may have rows, if the function gives others each time. Nobody would count them.
            self._claim(partition)
        if keys:
            hashes = fragment_hashes(pa.concat_arrays(keys))
            # Each key counts once where its last row is the one that is written.
            known = hashes if target.options.unique_keys else np.unique(hashes)
            yield ChunkReport(key_hashes=known.tobytes()).to_arrow()

    def _claim(self, partition: int) -> None:
        """Become the owner of the partition; raise what `Claim.take` raises."""
        settings, path = self.settings, self.settings.target.path
        assert self.claims is not None, "claims where attempt 0 may start twice"
        claim = Claim(self.transaction.id, path, partition, attempt_name())
        claim.take(settings.connection, self.claims, settings.retry, emitter(target=path))


def attempt_name() -> str:
    """Return a name that no other attempt of a task has, with Spark's number of this one for people."""
    context = TaskContext.get()
    assert context is not None, "runs inside a Spark task"
    return f"task attempt {context.taskAttemptId()} ({uuid4()})"


def require_first_attempt(partition: int, transaction: str) -> None:
    """Raise `RepeatedTaskError` for a retry or a speculative copy: another attempt may have written.

    Spark starts number 0 once in each run of a stage. The driver has checked that the stage runs once.
    """
    context = TaskContext.get()
    assert context is not None, "runs inside a Spark task"
    if context.attemptNumber():
        raise RepeatedTaskError(
            f"Attempt {context.attemptNumber()} of the task of Spark partition {partition} may not write: an "
            "earlier one may have written rows into the same transaction",
            remedy="Nothing is to be done: the sink writes the batch through the driver. If tasks fail "
            "often, or with speculation, use sent_by='driver'",
            transaction=transaction,
        )


def require_unique(hashes: np.ndarray[Any, Any], target: str) -> None:
    """Check that no key occurs twice; raise `DuplicateKeyError` if one does."""
    repeated = len(hashes) - len(np.unique(hashes))
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
