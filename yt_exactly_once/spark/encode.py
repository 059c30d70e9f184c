"""The frame of a batch as a frame of payloads, encoded in the tasks and in the order of the rows.

Rows are cut into chunks of at most `dyn_batch_size`, small Arrow batches of Spark merged on the
way. A task sends nothing anywhere: which attempt of it counts is Spark's to decide.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.types import BinaryType, IntegerType, StructType

from yt_exactly_once.codec.buffers import single
from yt_exactly_once.codec.rows import WireFormat, encode
from yt_exactly_once.codec.schema import SOURCE_COLUMNS, WritePlan
from yt_exactly_once.errors import EncodingError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from pyspark.sql import DataFrame

PAYLOAD_SCHEMA = (
    StructType()
    .add("partition", IntegerType())
    .add("position", IntegerType())
    .add("tablet", IntegerType())
    .add("row_count", IntegerType())
    .add("payload", BinaryType())
)
"""Columns of the frame of payloads."""

_ARROW_SCHEMA = pa.schema(
    [
        ("partition", pa.int32()),
        ("position", pa.int32()),
        ("tablet", pa.int32()),
        ("row_count", pa.int32()),
        ("payload", pa.binary()),
    ]
)


class Placement(Protocol):
    """Which tablet the rows of a Spark partition go to; pickled into the tasks."""

    def tablet(self, partition_id: int) -> int | None:
        """Return the tablet of an ordered table, or None where the key decides."""


def encode_frame(
    frame: DataFrame,
    plan: WritePlan,
    *,
    wire: WireFormat,
    dyn_batch_size: int,
    placement: Placement,
) -> DataFrame:
    """Turn rows into payloads of whole insert requests.

    The result has one row per payload: `partition` (Spark's), `position` (of the chunk in its
    partition, from 0), `tablet` (null where the key decides), `row_count` and `payload`. Within a
    partition rows keep their order; an empty partition yields nothing.

    Args:
        frame: the frame that `plan` was made for.
        plan: from `check_frame`.
        wire: format of the payloads.
        dyn_batch_size: most rows in one payload.
        placement: the tablet of each Spark partition.

    A value that its column cannot take is an `EncodingError` inside the task.
    """
    plain, names = plain_columns(frame, {*plan.names, *SOURCE_COLUMNS})
    task = _EncodingTask(
        names=names, plan=plan, wire=wire, dyn_batch_size=dyn_batch_size, placement=placement
    )
    return plain.mapInArrow(task, PAYLOAD_SCHEMA)


def plain_columns(frame: DataFrame, wanted: Collection[str]) -> tuple[DataFrame, tuple[str, ...]]:
    """Keep the wanted columns under names that Spark does not take for paths.

    Spark looks columns up by name and takes a dot for a path into a struct; tasks get the real names
    back.

    Returns:
        The frame for the tasks, and the real names of its columns, in order.
    """
    names = frame.columns
    plain = [f"c{place}" for place in range(len(names))]
    kept = [alias for alias, name in zip(plain, names, strict=True) if name in wanted]
    real = tuple(name for name in names if name in wanted)
    renamed = frame.toDF(*plain)
    # Every step costs Spark an analysis of its own.
    return (renamed if len(kept) == len(plain) else renamed.select(*kept)), real


@dataclass(frozen=True)
class _EncodingTask:
    names: tuple[str, ...]
    plan: WritePlan
    wire: WireFormat
    dyn_batch_size: int
    placement: Placement

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None, "runs inside a Spark task"
        partition = context.partitionId()
        tablet = self.placement.tablet(partition)
        for position, chunk in enumerate(chunks(batches, self.dyn_batch_size)):
            rows = chunk.rename_columns(list(self.names))
            payload = encode(rows, self.plan, self.wire, tablet_index=tablet)
            values = (partition, position, tablet, rows.num_rows, payload)
            arrays = [
                single(value, field.type)
                for value, field in zip(values, _ARROW_SCHEMA, strict=True)
            ]
            yield pa.RecordBatch.from_arrays(arrays, schema=_ARROW_SCHEMA)


def chunks(batches: Iterable[pa.RecordBatch], size: int) -> Iterator[pa.RecordBatch]:
    """Cut a stream of batches into full chunks of `size` rows, and one last shorter one."""
    waiting: list[pa.RecordBatch] = []
    room = size
    for batch in batches:
        rest = batch
        while rest.num_rows >= room:
            yield merged([*waiting, rest.slice(0, room)])
            rest, waiting, room = rest.slice(room), [], size
        if rest.num_rows:
            waiting.append(rest)
            room -= rest.num_rows
    if waiting:
        yield merged(waiting)


def merged(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    """Return the rows of all batches as one.

    Raises:
        EncodingError: together they are too large for one Arrow array.
    """
    if len(batches) == 1:
        return batches[0]
    together = pa.Table.from_batches(batches).combine_chunks().to_batches()
    if len(together) != 1:
        raise EncodingError(
            f"A chunk of {sum(batch.num_rows for batch in batches)} rows is larger than 2 GiB",
            remedy="Lower dyn_batch_size",
        )
    return together[0]
