"""How the rows of a micro-batch leave Spark: the frame is evaluated here, exactly once per batch.

In transactional mode Spark hands the driver one result per partition; that is the only place where a
retried task, a re-run stage or a speculative copy is already sorted out. What is collected is Arrow: no
Python object per value on the driver. In the other modes the tasks write, and the driver learns how many
rows there were.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyspark.sql.functions as sf

from yt_exactly_once.codec.rejects import Rejects
from yt_exactly_once.codec.rows import WireFormat
from yt_exactly_once.codec.schema import SOURCE_COLUMNS
from yt_exactly_once.commit.cluster import Payload
from yt_exactly_once.commit.parts import TargetRows
from yt_exactly_once.config import WriteMode
from yt_exactly_once.errors import AmbiguousOrderError, ConfigError
from yt_exactly_once.spark.query.lineage import require_straight
from yt_exactly_once.spark.schema import named_column
from yt_exactly_once.spark.sink.encode import Kind, encode_frame, plain_columns
from yt_exactly_once.spark.sink.placement import TABLET_COLUMN
from yt_exactly_once.spark.sink.replay import REHEARSAL_SCHEMA, RehearsalTask, require_same_rows
from yt_exactly_once.spark.sink.row_digest import ROW_HASH_COLUMN, row_hash, seed_of
from yt_exactly_once.spark.sink.sessions import Numbering, is_numbered_by_source
from yt_exactly_once.spark.sink.tasks import (
    KEY_HASH_COLUMNS,
    REPORT_SCHEMA,
    InsertTask,
    PushTask,
    TaskSettings,
    require_unique,
    unpack_hashes,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pyspark.sql import DataFrame

    from yt_exactly_once.commit.batch import MicroBatch
    from yt_exactly_once.config import RetryPolicy
    from yt_exactly_once.spark.sink.options import SinkOptions, Target
    from yt_exactly_once.spark.sink.targets import PreparedTarget
    from yt_exactly_once.ytsaurus.client import Connection
    from yt_exactly_once.ytsaurus.rows import SessionState


def deliver(
    frame: DataFrame,
    batch: MicroBatch,
    target: PreparedTarget,
    options: SinkOptions,
    *,
    connection: Connection,
    begun: Mapping[str, SessionState],
) -> list[TargetRows]:
    """Evaluate the rows of one target, as the mode of the sink wants it.

    Args:
        frame: the batch.
        batch: who it is.
        target: where to.
        options: of the sink.
        connection: for the tasks.
        begun: see `push_from_tasks`.
    """
    size = options.request_size(frame)
    frame = target.transformed(frame)
    if options.mode is WriteMode.TRANSACTIONAL:
        return collect_rows(
            frame,
            target,
            dyn_batch_size=size,
            may_split=options.split_oversized,
            rejects=Rejects(options.reject_to, batch.query_id, batch.batch_id)
            if options.reject_to
            else None,
        )
    if options.mode is WriteMode.IDEMPOTENT and not target.is_sorted:
        pushed = push_from_tasks(
            frame,
            batch,
            target,
            connection=connection,
            dyn_batch_size=size,
            retry=options.retry,
            producer=options.producer_path,
            begun=begun,
        )
        return [pushed]
    inserted = insert_from_tasks(
        frame,
        target,
        connection=connection,
        dyn_batch_size=size,
        retry=options.retry,
        update=target.options.update_columns,
        unique_keys=options.mode is WriteMode.IDEMPOTENT,
    )
    return [inserted]


def collect_rows(
    frame: DataFrame,
    target: PreparedTarget,
    *,
    dyn_batch_size: int,
    may_split: bool,
    rejects: Rejects | None,
) -> list[TargetRows]:
    """Compute the batch and bring its payloads to the driver.

    Payloads for one tablet, or of one Spark partition where keys choose the tablet, share a lane and
    so keep their order.

    Args:
        frame: rows of the batch.
        target: where they will be written.
        dyn_batch_size: most rows in one payload.
        may_split: accept more rows than one transaction may write.
        rejects: where rows go that the target cannot take; without it they are an error.

    Returns:
        The rows of the target, and those of the reject table if there are any.

    Raises:
        BatchTooLargeError: more rows than one transaction may write; nothing was sent.
        AmbiguousOrderError: which of the rows of a key is the last one cannot be known.
    """
    lanes: dict[int, list[Payload]] = defaultdict(list)
    rows_by_tablet: dict[int | None, int] = defaultdict(int)
    keys: dict[int, list[pa.LargeBinaryArray]] = defaultdict(list)
    rejected: list[Payload] = []
    for piece in encode_frame(frame, target.encoder(rejects), dyn_batch_size=dyn_batch_size):
        if piece.keys is not None:
            keys[piece.partition].append(piece.keys)
            continue
        payload = Payload(piece.row_count, piece.data, deletes=piece.kind is Kind.DELETE)
        if piece.kind is Kind.REJECT:
            rejected.append(payload)
            continue
        lanes[piece.partition if piece.tablet is None else piece.tablet].append(payload)
        rows_by_tablet[piece.tablet] += piece.row_count
    if not may_split:
        target.require_room(rows_by_tablet)
    known = _distinct_keys(keys.values(), target.path)
    written = TargetRows(
        path=target.path,
        lanes=[lanes[lane] for lane in sorted(lanes)],
        wire=target.wire.value,
        row_count=sum(rows_by_tablet.values()),
        update=target.options.update_columns,
        aggregate=target.options.aggregate,
        lane_is_tablet=not target.is_sorted,
        complete=target.complete(known) if target.options.replaces else None,
    )
    if rejects is None or not rejected:
        return [written]
    return [written, _rejected_rows(rejects, rejected)]


def _rejected_rows(rejects: Rejects, payloads: list[Payload]) -> TargetRows:
    return TargetRows(
        path=rejects.path,
        lanes=[payloads],
        wire=WireFormat.YSON.value,
        row_count=sum(payload.row_count for payload in payloads),
        lane_is_tablet=True,
    )


def _distinct_keys(
    by_partition: Iterable[list[pa.LargeBinaryArray]], target: str
) -> pa.LargeBinaryArray:
    """Return every key once.

    Raises:
        AmbiguousOrderError: one is in several Spark partitions, which are sent side by side.
    """
    kept = [pc.unique(pa.concat_arrays(keys)) for keys in by_partition]
    together = pa.concat_arrays([pa.array([], pa.large_binary()), *kept])
    repeated = len(together) - len(pc.unique(together))
    if repeated:
        raise AmbiguousOrderError(
            f"The rows of {repeated} keys are spread over several Spark partitions, and which is the "
            "last one of a key is not known",
            remedy="Bring the rows of a key together and in order inside the foreachBatch function, for "
            "instance sink(frame.repartition(key).sortWithinPartitions(time), batch_id), or make the keys "
            "unique",
            target=target,
        )
    return together


def insert_from_tasks(
    frame: DataFrame,
    target: PreparedTarget,
    *,
    connection: Connection,
    dyn_batch_size: int,
    retry: RetryPolicy,
    update: bool,
    unique_keys: bool = False,
) -> TargetRows:
    """Let the tasks write straight into the table; a task that is repeated writes again.

    Args:
        frame: rows of the batch.
        target: where to write.
        connection: the cluster.
        dyn_batch_size: rows per request.
        retry: how often a request is repeated.
        update: keep the columns that the frame does not have.
        unique_keys: find two rows with one key.

    Raises:
        NotOneToOneError: two rows have one key.
    """
    keys = [named_column(name) for name in target.plan.key_names]
    if unique_keys:
        wide, narrow = KEY_HASH_COLUMNS
        # Spark skips nulls in a hash: without the flags (null, 1) and (1, null) would be one key.
        hashed = [*keys, *(key.isNull() for key in keys)]
        frame = frame.withColumns({wide: sf.xxhash64(*hashed), narrow: sf.hash(*hashed)})
    plain, names = _for_tasks(frame, target, KEY_HASH_COLUMNS if unique_keys else ())
    settings = TaskSettings(names, target, connection, dyn_batch_size, retry)
    reports = _reports(plain.mapInArrow(InsertTask(settings, update, unique_keys), REPORT_SCHEMA))
    if unique_keys:
        require_unique(unpack_hashes(row["key_hashes"] for row in reports), target.path)
    return _written(target, reports)


def push_from_tasks(
    frame: DataFrame,
    batch: MicroBatch,
    target: PreparedTarget,
    *,
    connection: Connection,
    dyn_batch_size: int,
    retry: RetryPolicy,
    producer: str,
    begun: Mapping[str, SessionState],
) -> TargetRows:
    """Let the tasks append through queue-producer sessions, which drop rows they have seen.

    Rows are numbered by their source when the DataFrame has the service columns and the query reads one
    queue, and by batch id and position otherwise.

    Args:
        frame: rows of the batch.
        batch: the micro-batch.
        target: where to write.
        connection: the cluster.
        dyn_batch_size: rows per request.
        retry: how often a request is repeated.
        producer: path of the producer table.
        begun: sessions that have rows of this batch already, by name.

    Raises:
        ConfigError: by position, and a repeated task may get its rows in another order.
        NotOneToOneError: rows of one source partition are in two Spark partitions, or out of order; or
            the rows are not those that were pushed before.
    """
    by_source = is_numbered_by_source(frame, batch)
    written = set(target.plan.names) & set(frame.columns)
    numbering = Numbering(batch, by_source, seed_of(written))
    frame = frame.withColumns({ROW_HASH_COLUMN: row_hash(frame.schema, written)})
    plain, names = _for_tasks(frame, target, (ROW_HASH_COLUMN,))
    settings = TaskSettings(names, target, connection, dyn_batch_size, retry)
    job = plain.mapInArrow(PushTask(settings, numbering, producer), REPORT_SCHEMA)
    if not by_source:
        require_straight(job, batch)
    if begun:
        last = {name: state.sequence_number for name, state in begun.items()}
        rehearsal = plain.mapInArrow(RehearsalTask(settings, numbering, last), REHEARSAL_SCHEMA)
        require_same_rows(_reports(rehearsal), begun, numbering, target.path)
    return _written(target, _reports(job))


def require_splitting(options: SinkOptions, batch: MicroBatch) -> None:
    """Check that the sink can go on with a batch of which some parts are written.

    Raises:
        ConfigError: it would write the batch from the start, or as a whole.
    """
    if options.mode is not WriteMode.TRANSACTIONAL or not options.split_oversized:
        raise ConfigError(
            "Some parts of this batch are written, and this sink would write them again",
            remedy="Finish the batch as it was begun, with mode='transactional' and "
            "split_oversized=True; change them afterwards",
            query=batch.query_id,
            batch=batch.batch_id,
        )


def require_stateless(batch: MicroBatch) -> None:
    """Check that a query may write in idempotent mode.

    Raises:
        ConfigError: it keeps state, so a replay may give other rows.
    """
    if batch.stateful:
        raise ConfigError(
            "Idempotent mode is for stateless one-to-one flows, and this query keeps state",
            remedy="Use mode='transactional'",
            query=batch.query_id,
        )


def require_output_mode(batch: MicroBatch, target: Target) -> None:
    """Check that the batches of the query are what the target takes them for.

    Raises:
        ConfigError: a result is replaced that is not complete, or added up although it is; or the
            output mode is not known, and it matters.
    """
    complete = batch.output_mode == "complete"
    if not batch.output_mode and (target.replaces or target.aggregate):
        option = "write='replace'" if target.replaces else "aggregate"
        raise ConfigError(
            f"{option} depends on the output mode of the query, which cannot be known in a session "
            "without a JVM (Spark Connect)",
            remedy=f"Run the query in a session with a JVM, or leave {option} out",
            query=batch.query_id,
            target=target.path,
        )
    if target.replaces and not complete:
        raise ConfigError(
            f"write='replace' is for output mode complete, and this query has {batch.output_mode}: "
            "rows of earlier batches would be deleted",
            remedy="Use outputMode('complete'), or leave write out",
            query=batch.query_id,
            target=target.path,
        )
    if target.aggregate and complete:
        raise ConfigError(
            "aggregate would add the whole result again with every batch of output mode complete",
            remedy="Leave aggregate out, and use write='replace'",
            query=batch.query_id,
            target=target.path,
        )


def _for_tasks(
    frame: DataFrame, target: PreparedTarget, extra: tuple[str, ...]
) -> tuple[DataFrame, tuple[str, ...]]:
    return plain_columns(frame, {*target.plan.names, *SOURCE_COLUMNS, TABLET_COLUMN, *extra})


def _reports(job: DataFrame) -> list[dict[str, Any]]:
    """Run the tasks."""
    reports: list[dict[str, Any]] = job.toArrow().to_pylist()
    return reports


def _written(target: PreparedTarget, reports: list[dict[str, Any]]) -> TargetRows:
    count = sum(int(row["row_count"]) for row in reports)
    return TargetRows(path=target.path, lanes=(), wire=target.wire.value, row_count=count)
