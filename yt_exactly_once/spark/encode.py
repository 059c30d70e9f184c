"""The frame of a batch as a frame of payloads, encoded in the tasks and in the order of the rows.

Rows are cut into chunks of at most `dyn_batch_size`, small Arrow batches of Spark merged on the
way. A task sends nothing anywhere: which attempt of it counts is Spark's to decide.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.types import BinaryType, IntegerType, StructType

from yt_exactly_once.codec.buffers import single
from yt_exactly_once.codec.changes import changes
from yt_exactly_once.codec.rejects import Rejects, find_faults, without
from yt_exactly_once.codec.rows import WireFormat, encode, joined, row_fragments
from yt_exactly_once.codec.schema import SOURCE_COLUMNS, SOURCE_QUEUE_COLUMN, WritePlan
from yt_exactly_once.errors import EncodingError
from yt_exactly_once.spark.placement import TABLET_COLUMN

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from pyspark.sql import DataFrame

    from yt_exactly_once.spark.placement import Placement

PAYLOAD_SCHEMA = (
    StructType()
    .add("partition", IntegerType())
    .add("position", IntegerType())
    .add("tablet", IntegerType())
    .add("kind", IntegerType())
    .add("row_count", IntegerType())
    .add("payload", BinaryType())
)
"""Columns of the frame of payloads."""

_ARROW_SCHEMA = pa.schema(
    [
        ("partition", pa.int32()),
        ("position", pa.int32()),
        ("tablet", pa.int32()),
        ("kind", pa.int32()),
        ("row_count", pa.int32()),
        ("payload", pa.binary()),
    ]
)


class Kind(IntEnum):
    """What a payload is for."""

    WRITE = 0
    """Rows to write."""
    DELETE = 1
    """Keys to delete, as YSON."""
    KEYS = 2
    """Every key that the rows have, as one Arrow column; see `unpack_keys`."""
    REJECT = 3
    """Rows of the table of rejected rows, as YSON."""


class Piece(NamedTuple):
    """A payload, and what it is for."""

    kind: Kind
    tablet: int | None
    row_count: int
    data: bytes


@dataclass(frozen=True)
class RowEncoder:
    """Turns rows into payloads; pickled into the tasks.

    Attributes:
        plan: from `check_frame`.
        wire: format of rows to write.
        placement: the tablet of each row.
        delete_marker: a column that is true where the row's key is to be deleted; may be empty.
        tells_keys: whether the driver must know the keys.
        rejects: where rows go that cannot be written; without it they are an error.
    """

    plan: WritePlan
    wire: WireFormat
    placement: Placement
    delete_marker: str = ""
    tells_keys: bool = False
    rejects: Rejects | None = None

    @property
    def names(self) -> set[str]:
        """Columns of the frame that are needed."""
        source = (*SOURCE_COLUMNS, SOURCE_QUEUE_COLUMN)
        return {*self.plan.names, *source, TABLET_COLUMN, self.delete_marker}

    def pieces(self, rows: pa.RecordBatch, partition: int) -> Iterator[Piece]:
        """Yield the payloads of some rows, in the order in which they must be sent.

        Args:
            rows: of the frame that the plan was made for, placed by the placement.
            partition: the Spark partition they are in.

        Raises:
            EncodingError: a value that its column cannot take, and nowhere to reject its row to.
        """
        if self.rejects is None:
            yield from self._fitting(rows, partition)
            return
        try:
            yield from list(self._fitting(rows, partition))
        except EncodingError:
            faults = find_faults(rows, self.plan, self.wire, self.delete_marker)
            if not faults:
                raise
            told = self.rejects.encode(rows, faults, self.plan.target)
            yield Piece(Kind.REJECT, None, len(faults), told)
            yield from self._fitting(without(rows, faults), partition)

    def _fitting(self, rows: pa.RecordBatch, partition: int) -> Iterator[Piece]:
        if self.delete_marker:
            keys, deleted, rows = changes(rows, self.plan.keys, self.delete_marker)
            yield Piece(Kind.KEYS, None, len(keys), _pack_keys(keys))
            if len(deleted):
                yield Piece(Kind.DELETE, None, len(deleted), joined(deleted))
        elif self.tells_keys:
            keys = row_fragments(rows, self.plan.keys)
            yield Piece(Kind.KEYS, None, len(keys), _pack_keys(keys))
        for tablet, part in self.placement.split(rows, partition):
            if part.num_rows:
                data = encode(part, self.plan, self.wire, tablet_index=tablet)
                yield Piece(Kind.WRITE, tablet, part.num_rows, data)


def _pack_keys(keys: pa.LargeBinaryArray) -> bytes:
    batch = pa.RecordBatch.from_arrays([keys], names=["key"])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
    return bytes(sink.getvalue())


def unpack_keys(packed: bytes) -> pa.LargeBinaryArray:
    """Return the keys of one payload."""
    with pa.ipc.open_stream(packed) as stream:
        return stream.read_next_batch().column(0)


def encode_frame(frame: DataFrame, encoder: RowEncoder, *, dyn_batch_size: int) -> DataFrame:
    """Turn rows into payloads of whole requests.

    The result has one row per payload: `partition` (Spark's), `position` (of the payload in its
    partition, from 0), `tablet` (null where the key decides), `kind`, `row_count` and `payload`. Rows of
    a partition that go to one tablet keep their order; an empty partition yields nothing.

    Args:
        frame: the frame that the encoder was made for, placed by its placement.
        encoder: makes the payloads, in the tasks.
        dyn_batch_size: most rows in one payload.

    A value that its column cannot take is an `EncodingError` inside the task.
    """
    plain, names = plain_columns(frame, encoder.names)
    return plain.mapInArrow(_EncodingTask(names, encoder, dyn_batch_size), PAYLOAD_SCHEMA)


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
    encoder: RowEncoder
    dyn_batch_size: int

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None, "runs inside a Spark task"
        partition, position = context.partitionId(), 0
        for chunk in chunks(batches, self.dyn_batch_size):
            rows = chunk.rename_columns(list(self.names))
            for piece in self.encoder.pieces(rows, partition):
                values = (
                    partition,
                    position,
                    piece.tablet,
                    int(piece.kind),
                    piece.row_count,
                    piece.data,
                )
                arrays = [
                    single(value, field.type)
                    for value, field in zip(values, _ARROW_SCHEMA, strict=True)
                ]
                yield pa.RecordBatch.from_arrays(arrays, schema=_ARROW_SCHEMA)
                position += 1


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
