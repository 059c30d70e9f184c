"""What runs inside Spark tasks that write into one transaction, which the driver commits.

A task cannot take back what it has sent. So only one attempt of it may write, and every other one refuses
before its first request.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import uuid4

import pyarrow as pa
from pyspark import TaskContext

from yt_exactly_once import config
from yt_exactly_once.codec.key_hashes import distinct, fragment_hashes
from yt_exactly_once.codec.rejects import Rejects
from yt_exactly_once.codec.rows import WireFormat
from yt_exactly_once.commit.claims import Claims
from yt_exactly_once.commit.cluster import OpenTransaction
from yt_exactly_once.commit.parts import digest_of_rows
from yt_exactly_once.commit.transactional import SHARE_AHEAD
from yt_exactly_once.delivery.tried import Tried
from yt_exactly_once.errors import EncodingError, ExactlyOnceError, RepeatedTaskError
from yt_exactly_once.observability import emitter
from yt_exactly_once.spark.modes.mode import RowTask
from yt_exactly_once.spark.modes.tasks import REPORT_SCHEMA, ChunkReport
from yt_exactly_once.spark.sink.encode import RowEncoder
from yt_exactly_once.spark.worker import repeated

if TYPE_CHECKING:
    from yt_exactly_once.ytsaurus.transaction import TabletTransaction


@dataclass(frozen=True)
class JoinedInsertTask(RowTask):
    """Writes chunks into an open transaction, each row at most once.

    One attempt of a task may write: the first one, or the one that claims the partition. A request without an
    answer may have arrived, and is never sent again. Either way the job fails, and the transaction is not
    committed. The batch is written in another one.

    Attributes:
        transaction: that the driver has open; `None` where the first attempt that has rows opens one for all.
        claims: of its attempts; `None` where Spark starts attempt 0 once.
        rejects: see `RowEncoder`.
        tried: kept if the task fails where no driver hears why; `None` where one does.
    """

    transaction: OpenTransaction | None
    claims: Claims | None = None
    rejects: Rejects | None = None
    tried: Tried | None = None

    reports = REPORT_SCHEMA

    def run(self, batches: Iterable[pa.RecordBatch], partition: int) -> Iterator[pa.RecordBatch]:
        """Write all rows of the task; yield one report per chunk."""
        if self.transaction is not None:
            yield from self._written(batches, partition)
            return
        with repeated(config.LEASE.total_seconds() / SHARE_AHEAD, self._renew):
            try:
                yield from self._written(batches, partition)
            except EncodingError:
                # Whoever sends it: the row is wrong.
                raise
            except ExactlyOnceError as error:
                self._keep(error)
                raise

    def _written(
        self, batches: Iterable[pa.RecordBatch], partition: int
    ) -> Iterator[pa.RecordBatch]:
        settings, target = self.settings, self.settings.target
        inside: TabletTransaction | None = None
        keys = list[pa.LargeBinaryArray]()
        if self.claims is None:
            assert self.transaction is not None, "claims say which transaction it is"
            require_first_attempt(partition, self.transaction.id)
        else:
            target.require_own_tablets(partition + 1)
        for chunk in settings.chunks(batches):
            encoder = RowEncoder(target, self.rejects)
            encoder.add(chunk, partition, is_mixed=True)
            if inside is None:
                # As late as can be: of two copies of a task the faster one writes.
                inside = self._enter(partition)
            payloads = [payload for group in encoder.groups.values() for payload in group]
            wire, how = target.wire.value, target.options.write_options
            inside.write(target.path, payloads, wire, how)
            if self.rejects is not None:
                inside.write(self.rejects.path, encoder.rejected, WireFormat.YSON.value)
            yield ChunkReport(
                sum(payload.row_count for payload in payloads),
                sum(len(payload.data) for payload in payloads),
                digest_of_rows([payloads]),
                rejected_count=sum(payload.row_count for payload in encoder.rejected),
            ).to_arrow()
            keys += encoder.keys[partition] if encoder.keys else []
        if inside is None:
            # A copy of it may have rows, if the function gives others each time. Nobody would count them.
            self._claim(partition)
        if keys:
            hashes = fragment_hashes(pa.concat_arrays(keys))
            # Each key counts once where its last row is the one that is written.
            known = hashes if target.options.unique_keys else distinct(hashes)
            yield ChunkReport(key_hashes=known.tobytes()).to_arrow()

    def _enter(self, partition: int) -> TabletTransaction:
        """Return the transaction, once this attempt may write into it."""
        settings, opened = self.settings, self.transaction
        if opened is None:
            assert self.claims is not None, "they say which transaction it is"
            emit = emitter(target=settings.target.path)
            opened = self.claims.open(settings.connection, settings.retry, emit)
        self._claim(partition)
        return settings.connection.joined(opened.id, proxy=opened.proxy)

    def _claim(self, partition: int) -> None:
        """Become the owner of the partition, if there may be another one; see `Claims.take`."""
        if self.claims is not None:
            settings = self.settings
            emit = emitter(target=settings.target.path)
            self.claims.take(settings.connection, partition, attempt_name(), settings.retry, emit)

    def _renew(self) -> None:
        """Renew the lease of the transaction, if somebody has opened it: nobody else does."""
        connection, claims = self.settings.connection, self.claims
        opened = claims.opened(connection) if claims else None
        if opened is not None:
            connection.joined(opened.id, proxy=opened.proxy).ping()

    def _keep(self, error: ExactlyOnceError) -> None:
        """Keep that tasks have failed, for the next plan of the batch; if that fails, it is tried again."""
        if self.tried is not None and self.claims is not None:
            with suppress(ExactlyOnceError):
                self.tried.failed(error).keep(self.settings.connection, self.claims.table)


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
