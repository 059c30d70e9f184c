"""The rows of a micro-batch as `foreachBatch` hands them over: a DataFrame that is computed once."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager
from functools import cached_property, partial
from itertools import chain, groupby
from typing import TYPE_CHECKING

import pyspark.sql.functions as sf
from pyspark.sql.types import StructField

from yt_exactly_once import config
from yt_exactly_once.commit.batch import MicroBatch
from yt_exactly_once.spark.compat.jobs import described, require_straight, tasks_of_one_stage
from yt_exactly_once.spark.compat.plan import PlannedQuery, planned_query
from yt_exactly_once.spark.compat.versions import arrow_batches, ended_batches, has_batch_ends
from yt_exactly_once.spark.engine.run import Rows
from yt_exactly_once.spark.modes.mode import Assignment, RowTask
from yt_exactly_once.spark.schema import (
    as_written,
    is_variant,
    local_times_of,
    with_nullable_members,
)
from yt_exactly_once.spark.sink.columns import PARTITION_COLUMN, sent
from yt_exactly_once.spark.sink.encode import (
    PartitionsUnknownError,
    drained,
    ended_partitions,
    numbered_by_ends,
    partition_of,
)
from yt_exactly_once.spark.sink.target import Target
from yt_exactly_once.spark.tuning.start import started_sooner
from yt_exactly_once.spark.worker import side_by_side

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

_TIME_ZONE = "spark.sql.session.timeZone"
_NEVER_CHANGES = re.compile(r"(?:Etc/\S+|UTC|GMT|UT|Z)?(?:[+-]\d[\d:]*)?")


class FrameRows(Rows):
    """The rows of a DataFrame."""

    def __init__(self, frame: DataFrame) -> None:
        self._frame = frame
        self._transformed: dict[str, DataFrame] = {}
        self._local: dict[str, list[str]] = {}
        self._kept: Future[FrameRows] | None = None

    @cached_property
    def schema(self) -> StructType:
        """Columns of the DataFrame."""
        return self._frame.schema

    def schema_for(self, target: Target) -> StructType:
        """Return its columns as a target transforms it."""
        return self.frame_for(target).schema

    def local_times(self, target: Target) -> Sequence[str]:
        """Return the columns of a target that are local times, if the clocks of the session change."""
        self.frame_for(target)
        local = self._local[target.path]
        if not local:
            return ()
        # Without a default of ours: Spark's is the zone of its process.
        zone = self._frame.sparkSession.conf.get(_TIME_ZONE)
        return () if zone and _NEVER_CHANGES.fullmatch(zone) else local

    def planned(self) -> PlannedQuery | None:
        """Return what Spark shows of its query; `None` unless it is streaming."""
        return planned_query(self._frame)

    def conf(self, name: str) -> str | None:
        """Return a setting of its session."""
        return self._frame.sparkSession.conf.get(name, None)

    def described(self, batch: MicroBatch, step: str) -> AbstractContextManager[None]:
        """Say in Spark's UI what the jobs of a block do."""
        return described(self._frame, batch, step)

    def kept(self) -> FrameRows:
        """Return the rows kept: each evaluation of a stateful DataFrame would commit state.

        They are computed once. If that has failed, it fails again, without being tried.
        """
        if self._kept is None:
            self._kept = Future()
            try:
                self._kept.set_result(FrameRows(self._frame.localCheckpoint(eager=True)))
            except BaseException as error:
                self._kept.set_exception(error)
                raise
        return self._kept.result()

    def compute(self, assignment: Assignment) -> Iterable[pa.RecordBatch]:
        """Let tasks do what is assigned, and return what they report, or all rows.

        Raise `ConfigError` if a repeated task may get its rows in another order, or tasks may run twice, and
        `NotOneToOneError` if rows of the batch were pushed before, and these are others. Before anything is
        written, `PartitionsUnknownError` if the ends of Arrow batches do not tell each Spark partition.
        """
        given, task, rehearsal = assignment.given, assignment.task, assignment.rehearsal
        target = given.target
        placed = target.placement.placed(self.frame_for(target.options))
        if task is None:
            return collected(
                placed, needs_partitions=target.needs_partitions, by_ends=assignment.by_ends
            )
        plain = sent(placed, given.placed_columns, assignment.names)
        by_driver = given.by_driver
        if by_driver:
            by_ends = assignment.by_ends and has_batch_ends(plain)
            job = _with_nullable_members(plain) if by_ends else _numbered(plain)
        else:
            job, by_ends = _run_by(plain, task), False
        count = require_straight(job, given.batch) if assignment.is_by_position else None
        if given.transaction is not None:
            once = tasks_of_one_stage(job, given.batch)
            target.require_own_tablets(once or 0)
            if once is None or config.is_on(self.conf(config.SPECULATION_CONF)):
                assert assignment.claiming is not None
                job = _run_by(plain, assignment.claiming())
        if rehearsal is not None:
            rehearsal.require_same_rows(arrow_batches(_run_by(plain, rehearsal)))
        arrived = _arrived(job, by_ends=by_ends, count=count)
        if not by_driver:
            return arrived
        given.first()
        return _run_here(arrived, task)

    def pass_over(self) -> None:
        """Let Spark compute the rows, and write none."""
        self._frame.write.format("noop").mode("overwrite").save()

    def frame_for(self, target: Target) -> DataFrame:
        """Return what a target transforms it into, with the types that are written."""
        if target.path not in self._transformed:
            frame = target.transformed(self._frame)
            self._local[target.path] = local_times_of(frame.schema)
            self._transformed[target.path] = written(frame)
        return self._transformed[target.path]


def _run_by(frame: DataFrame, task: RowTask) -> DataFrame:
    with started_sooner(frame.sparkSession):
        return frame.mapInArrow(task, task.reports)


def _run_here(arrived: Iterable[pa.RecordBatch], task: RowTask) -> Iterable[pa.RecordBatch]:
    """Do with rows that carry their Spark partitions what tasks would do, for each of them on a thread."""

    def run(partition: int, rows: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
        return list(task.reported(rows, partition))

    by_task = groupby((batch for batch in arrived if batch.num_rows), partition_of)
    calls = [partial(run, partition, list(rows)) for partition, rows in by_task]
    return chain.from_iterable(side_by_side(calls, task.settings.connections))


def written(frame: DataFrame) -> DataFrame:
    """Return a DataFrame with the types that are written: see `as_written`."""
    return _given_as(frame, as_written(frame.schema).fields)


def collected(
    frame: DataFrame, *, needs_partitions: bool, by_ends: bool = False
) -> Iterable[pa.RecordBatch]:
    """Return the rows as Arrow, one result per partition, perhaps with their Spark partition.

    The driver encodes them: that takes milliseconds, less than the way into a Python task and back. For
    `by_ends` see `Assignment`.
    """
    by_ends = by_ends and needs_partitions and has_batch_ends(frame)
    is_numbered = needs_partitions and not by_ends
    job = _numbered(frame) if is_numbered else _with_nullable_members(frame)
    return drained(_arrived(job, by_ends=by_ends))


def _arrived(job: DataFrame, *, by_ends: bool, count: int | None = None) -> list[pa.RecordBatch]:
    """Compute a job, and number its rows by the ends of their Spark partitions if nothing else does.

    Args:
        count: how many partitions must have an end of their own, if that matters.
    """
    if not by_ends:
        return arrow_batches(job)
    arrived, full = ended_batches(job)
    if full is None or (count is not None and ended_partitions(arrived, full) != count):
        raise PartitionsUnknownError
    return list(numbered_by_ends(arrived, full))


def _numbered(frame: DataFrame) -> DataFrame:
    """Return the rows with the Spark partition of each."""
    # The schema of `frame` is known. That of any other DataFrame is two calls to the JVM.
    loose = _with_nullable_members(frame)
    # Another column has Spark plan the batch once more, which takes about 10 ms.
    return loose.withColumn(PARTITION_COLUMN, sf.spark_partition_id())


def _with_nullable_members(frame: DataFrame) -> DataFrame:
    """Let members of structs be null, in the columns where that makes a difference."""
    loose = (StructField(each.name, with_nullable_members(each.dataType)) for each in frame.schema)
    return _given_as(frame, [*loose])


def _given_as(frame: DataFrame, wanted: Sequence[StructField]) -> DataFrame:
    """Give columns other types, where there are any, and the metadata that go with these."""
    pairs = [*zip(frame.schema, wanted, strict=True)]
    if all(given.dataType == field.dataType for given, field in pairs):
        # Most DataFrames are like that, and every step costs Spark an analysis of its own.
        return frame
    # By position: names of columns may differ in case alone, which Spark takes for the same.
    plain = [f"c{index}" for index in range(len(pairs))]
    columns = [_converted(sf.col(name), *pair) for name, pair in zip(plain, pairs, strict=True)]
    return frame.toDF(*plain).select(*columns)


def _converted(column: Column, given: StructField, wanted: StructField) -> Column:
    if given.dataType == wanted.dataType:
        return column.alias(given.name)
    is_json = is_variant(given.dataType)
    other = sf.to_json(column) if is_json else column.cast(wanted.dataType)
    return other.alias(given.name, **({"metadata": wanted.metadata} if wanted.metadata else {}))
