"""Transactional mode: the driver collects the rows, and one transaction writes them with the ledger.

Spark hands the driver one result per partition. That is the only place where a retried task, a re-run stage
or a speculative copy is already sorted out. The result is Arrow: no Python object per value on the driver.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from yt_exactly_once import advice
from yt_exactly_once.codec.key_hashes import KEY_HASHES, as_arrow, distinct
from yt_exactly_once.codec.rejects import Rejects
from yt_exactly_once.commit.claims import CLAIMS_ATTRIBUTES, CLAIMS_SCHEMA, KEPT, Claims
from yt_exactly_once.commit.parts import TargetRows, digest_of_rows
from yt_exactly_once.commit.tally import SentBy
from yt_exactly_once.delivery.tried import Tried
from yt_exactly_once.errors import (
    AmbiguousOrderError,
    ConfigError,
    DuplicateKeyError,
    RequestRefusedError,
    SchemaMismatchError,
    TableError,
    TasksRefusedError,
)
from yt_exactly_once.observability import emitter
from yt_exactly_once.retrying import run_attempts
from yt_exactly_once.spark.modes.joined import JoinedInsertTask
from yt_exactly_once.spark.modes.mode import Assignment, Columns, Mode, Sessions, TargetBatch
from yt_exactly_once.spark.modes.sessions import sessions_with_rows
from yt_exactly_once.spark.modes.tasks import ChunkReport
from yt_exactly_once.spark.sink.encode import RowEncoder, encode_batches
from yt_exactly_once.spark.sink.letters import letters_of, rejects_of
from yt_exactly_once.spark.sink.newest import changed_rows
from yt_exactly_once.ytsaurus import tables

if TYPE_CHECKING:
    from yt_exactly_once.commit.batch import MicroBatch
    from yt_exactly_once.observability import Emitter
    from yt_exactly_once.spark.sink.options import SinkOptions
    from yt_exactly_once.ytsaurus.client import Connection


class Transactional(Mode):
    """Exactly once for any query; a batch becomes visible all at once."""

    one_transaction = True

    def __init__(self, options: SinkOptions, connection: Connection) -> None:
        super().__init__(options, connection)
        self._claimable_in: str | None = None

    @property
    def obstacle(self) -> str | None:
        """The option that needs all rows of the batch at one place, or several transactions."""
        options = self.options
        needs = {
            "split_oversized": options.split_oversized,
            "a path with columns in braces": any(target.pattern for target in options.targets),
            "the backend rpc": not self.connection.shares_transactions,
        }
        needs["changes"] = any(target.changes is not None for target in options.targets)
        return next((name for name, is_given in needs.items() if is_given), None)

    def check(self) -> None:
        """Refuse options that exclude each other."""
        if self.options.sent_by == SentBy.TASKS and self.obstacle:
            raise ConfigError(
                f"sent_by='tasks' and {self.obstacle} exclude each other: all rows must come to the driver",
                remedy="Use sent_by='auto'",
            )
        for target in self.options.targets:
            if target.replaces and self.options.split_oversized:
                raise ConfigError(
                    "write='replace' and split_oversized exclude each other: a result is replaced at "
                    "once",
                    remedy="Give the target more tablets instead",
                    target=target.path,
                )
            if target.changes is not None:
                self._check_changes(target.path)

    def _check_changes(self, target: str) -> None:
        options = self.options
        if options.split_oversized:
            raise ConfigError(
                "changes and split_oversized exclude each other: of the changes of a key in a batch only one "
                "is written",
                remedy="Give the target more tablets instead, or lower max_rows_per_partition",
                target=target,
            )
        if options.dead_letter_path is not None:
            raise ConfigError(
                "changes and dead_letter_path exclude each other: if a change is set aside, an older one of "
                "its key would count",
                remedy="Leave dead_letter_path out: a bad change stops the query. Repair it in the query",
                target=target,
            )

    def begun_sessions(
        self,
        batch: MicroBatch,
        columns: Columns,
        emit: Emitter,
        *,
        arrived: bool,  # noqa: ARG002 - the interface
    ) -> Sessions:
        """Refuse rows that idempotent mode has pushed."""
        kinds = dict.fromkeys(columns)
        return sessions_with_rows(self.connection, self.options, batch, kinds, emit)

    def assign(self, given: TargetBatch) -> Assignment:
        """Let tasks write into an open transaction. Otherwise rows come to the driver."""
        target = given.target
        if given.transaction is not None or given.plan is not None:
            settings = self.settings(given, target.of_batch(given.batch))
            rejects = rejects_of(self.options.dead_letter_path, given.batch)
            task = JoinedInsertTask(settings, given.transaction, rejects=rejects)
            claiming = partial(self._claiming, task, given)
            return Assignment(given, settings.names, task, claiming=claiming)
        # A replay must cut the same parts, and need not know how the rows were numbered.
        by_ends = given.by_ends and not (target.orders_keys or self.options.split_oversized)
        return Assignment(given, given.placed_columns, by_ends=by_ends)

    def _claiming(self, task: JoinedInsertTask, given: TargetBatch) -> JoinedInsertTask:
        """Return a task that claims its partition, once it is known that this user can claim one."""
        path, run = self.options.claims, given.batch.run_id
        try:
            claiming = prepare_claims(
                self.connection, path, task, given, is_tried=self._claimable_in == run
            )
        except (ConfigError, SchemaMismatchError, TableError, RequestRefusedError) as error:
            raise TasksRefusedError(
                f"Tasks cannot claim their partitions: {error.what}",
                remedy=f"{error.remedy}. Until then the driver sends such batches".removeprefix(
                    ". "
                ),
                **{"path": path, **error.where},
            ) from error
        self._claimable_in = run
        return claiming

    def finish(self, assignment: Assignment, arrived: Iterable[pa.RecordBatch]) -> list[TargetRows]:
        """Return the rows of the target, and rejected ones if there are any.

        Payloads for one tablet, or of one Spark partition where keys choose the tablet, are a group and
        so keep their order. More rows than one transaction may write are a `BatchTooLargeError`.
        """
        given = assignment.given
        options, batch, target = self.options, given.batch, given.target
        if target.rule is not None:
            return [changed_rows(self.connection, target, arrived)]
        rejects = rejects_of(options.dead_letter_path, batch)
        if given.transaction is not None:
            return _sent_by_tasks(ChunkReport.of_all(arrived), given, rejects)
        encoder = RowEncoder(target.of_batch(batch), rejects)
        encoded = encode_batches(arrived, encoder, is_placed=target.needs_partitions)
        if not options.split_oversized:
            target.require_room(encoded.rows_by_tablet)
        unique = target.options.unique_keys
        keys = _distinct_keys(encoded.keys.values(), target.path, unique=unique)
        groups = [encoded.groups[group] for group in sorted(encoded.groups)]
        rows = TargetRows(
            path=target.path,
            groups=groups,
            wire=target.wire.value,
            row_count=sum(encoded.rows_by_tablet.values()),
            options=target.options.write_options,
            group_is_tablet=not target.is_sorted,
            tablets=0 if target.is_sorted else len(encoded.rows_by_tablet),
            complete=target.complete(keys),
            digest=digest_of_rows(groups) if target.options.digest else None,
        )
        if rejects is None or not encoded.rejected:
            return [rows]
        return [rows, letters_of(rejects, encoded.rejected, target.path)]


def _sent_by_tasks(
    report: ChunkReport, given: TargetBatch, rejects: Rejects | None
) -> list[TargetRows]:
    """Return what tasks have written into the open transaction."""
    target, hashes = given.target, np.frombuffer(report.key_hashes, KEY_HASHES)
    repeated = len(hashes) - len(distinct(hashes))
    _require_distinct(repeated, len(hashes), target.path, unique=target.options.unique_keys)
    rows = replace(report.written(given), complete=target.complete(as_arrow(hashes)))
    if rejects is None or not report.rejected_count:
        return [rows]
    rejected = replace(
        letters_of(rejects, (), rows.path),
        row_count=report.rejected_count,
        sent_by=rows.sent_by,
        inside=rows.inside,
    )
    return [rows, rejected]


def prepare_claims(
    connection: Connection,
    table: str,
    task: JoinedInsertTask,
    given: TargetBatch,
    *,
    is_tried: bool,
) -> JoinedInsertTask:
    """Create the table of claims, if need be, and write to it, as tasks will; return a task that claims.

    Args:
        is_tried: whether that has succeeded in this run. Then only how long claims are kept is asked.
    """
    if not is_tried:
        tables.ensure_table(connection, table, CLAIMS_SCHEMA, CLAIMS_ATTRIBUTES)
    seconds = tables.expiring(connection, table)
    if seconds is not None and seconds < KEPT.total_seconds():
        raise TableError(
            f"The cluster removes claims after {seconds:g} s (max_data_ttl), and rows would come twice",
            remedy=f"Run: {advice.keep_longer(table, KEPT)}",
            path=table,
        )
    batch, target, retry = given.batch, given.target.path, task.settings.retry
    emit = emitter(target=target)
    if given.plan is None:
        assert given.transaction is not None, "either of them"
        claims = Claims(table, given.transaction.id, target)
        if not is_tried:
            claims.try_out(connection, retry, emit)
        return replace(task, claims=claims)
    tried = Tried(batch.query_id, target, batch.batch_id, SentBy.TASKS)
    run_attempts(lambda _: tried.keep(connection, table), retry, emit)
    return replace(task, claims=Claims(table, given.plan.id, target), tried=tried)


def _distinct_keys(
    by_partition: Iterable[list[pa.LargeBinaryArray]], target: str, *, unique: bool
) -> pa.LargeBinaryArray:
    """Return every key once, or raise an error.

    That is `DuplicateKeyError` if a key is there twice and must be unique, and `AmbiguousOrderError` if it is
    in several Spark partitions, where its last row is not known.
    """
    arrays = [pa.array([], pa.large_binary())]
    for keys in by_partition:
        arrays += keys if unique else [pc.unique(pa.concat_arrays(keys))]
    together = pa.concat_arrays(arrays)
    repeated = len(together) - len(pc.unique(together))
    _require_distinct(repeated, len(together), target, unique=unique)
    return together


def _require_distinct(repeated: int, count: int, target: str, *, unique: bool) -> None:
    """Raise an error if keys are there more than once that must not be: see `_distinct_keys`."""
    if repeated and unique:
        raise DuplicateKeyError(
            f"{repeated} of {count} rows have the key of another row of the batch",
            remedy="Make the keys unique in the query, or leave unique_keys out to let the last row of a key "
            "count",
            target=target,
        )
    if repeated:
        raise AmbiguousOrderError(
            f"The rows of {repeated} keys are spread over several Spark partitions, and which is the "
            "last one of a key is not known",
            remedy="Make the keys unique. Or bring the rows of a key together and in order inside the "
            "foreachBatch function: sink(df.repartition(key).sortWithinPartitions(time), batch_id)",
            target=target,
        )
