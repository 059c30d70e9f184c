"""The rows of a frame as payloads, encoded on the driver and in the order of the rows.

Rows are cut into chunks of at most `dyn_batch_size`, small Arrow batches of Spark merged on the
way. No task sends anything anywhere: which attempt of it counts is Spark's to decide.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
import pyspark.sql.functions as sf

from yt_exactly_once.codec.changes import changes
from yt_exactly_once.codec.rejects import Rejects, find_faults, without
from yt_exactly_once.codec.reserved import RESERVED_PREFIX
from yt_exactly_once.codec.rows import WireFormat, encode, joined, row_fragments
from yt_exactly_once.errors import EncodingError
from yt_exactly_once.spark.schema import with_nullable_members

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator

    from pyspark.sql import DataFrame

    from yt_exactly_once.codec.schema import WritePlan
    from yt_exactly_once.spark.sink.placement import Placement

    Part = tuple[int | pa.IntegerArray | None, pa.RecordBatch]

PARTITION_COLUMN = f"{RESERVED_PREFIX}partition"
"""Frame column with the Spark partition of a row."""

SMALL_BATCH = 10_000
"""A batch of no more rows is sent as one request, whatever its partitions."""


class Kind(IntEnum):
    """What a payload is for."""

    WRITE = 0
    """Rows to write."""
    DELETE = 1
    """Keys to delete, as YSON."""
    KEYS = 2
    """Every key that the rows have."""
    REJECT = 3
    """Rows of the table of rejected rows, as YSON."""


class Piece(NamedTuple):
    """A payload, and what it is for.

    Attributes:
        kind: what for.
        partition: Spark partition of the rows; the first one where there are several.
        tablet: of all the rows; `None` where keys decide, or the rows themselves tell.
        row_count: rows or keys in it.
        data: the bytes; none for keys that the driver is told.
        keys: those keys.
    """

    kind: Kind
    partition: int
    tablet: int | None
    row_count: int
    data: bytes = b""
    keys: pa.LargeBinaryArray | None = None


@dataclass(frozen=True)
class RowEncoder:
    """Turns rows into payloads.

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
    def order_matters(self) -> bool:
        """Whether rows of several Spark partitions must be told apart."""
        return bool(self.delete_marker) or self.tells_keys

    def pieces(self, rows: pa.RecordBatch, partition: int) -> Iterator[Piece]:
        """Yield the payloads of some rows of one Spark partition, in the order to send them in.

        Args:
            rows: of the frame that the plan was made for, placed by the placement.
            partition: the Spark partition they are in.

        Raises:
            EncodingError: a value that its column cannot take, and nowhere to reject its row to.
        """
        return self._fitting(rows, partition, lambda fit: self.placement.split(fit, partition))

    def together(self, rows: pa.RecordBatch) -> Iterator[Piece]:
        """Yield rows of several Spark partitions as one payload; each row tells its tablet.

        Args:
            rows: with `PARTITION_COLUMN`.

        Raises:
            EncodingError: as `pieces`.
        """
        partition = rows.column(PARTITION_COLUMN)[0].as_py()
        return self._fitting(rows, partition, lambda fit: [(self._tablets(fit), fit)])

    def _tablets(self, rows: pa.RecordBatch) -> pa.IntegerArray | None:
        count = self.placement.tablet_count
        if count is None:
            return None
        tablets = self.placement.tablets(rows)
        if tablets is not None:
            return tablets
        partitions = rows.column(PARTITION_COLUMN).to_numpy()
        return pa.array(partitions % count, pa.int64())

    def _fitting(
        self,
        rows: pa.RecordBatch,
        partition: int,
        split: Callable[[pa.RecordBatch], Iterable[Part]],
    ) -> Iterator[Piece]:
        """Yield payloads, those of rejected rows first."""
        if self.rejects is None:
            yield from self._encoded(rows, partition, split)
            return
        try:
            yield from list(self._encoded(rows, partition, split))
        except EncodingError:
            faults = find_faults(rows, self.plan, self.wire, self.delete_marker)
            if not faults:
                raise
            told = self.rejects.encode(rows, faults, self.plan.target)
            yield Piece(Kind.REJECT, partition, None, len(faults), told)
            yield from self._encoded(without(rows, faults), partition, split)

    def _encoded(
        self,
        rows: pa.RecordBatch,
        partition: int,
        split: Callable[[pa.RecordBatch], Iterable[Part]],
    ) -> Iterator[Piece]:
        if self.delete_marker:
            keys, deleted, rows = changes(rows, self.plan.keys, self.delete_marker)
            yield Piece(Kind.KEYS, partition, None, len(keys), keys=keys)
            if len(deleted):
                yield Piece(Kind.DELETE, partition, None, len(deleted), joined(deleted))
        elif self.tells_keys:
            keys = row_fragments(rows, self.plan.keys)
            yield Piece(Kind.KEYS, partition, None, len(keys), keys=keys)
        for tablet, part in split(rows):
            if part.num_rows:
                data = encode(part, self.plan, self.wire, tablet_index=tablet)
                alone = tablet if isinstance(tablet, int) else None
                yield Piece(Kind.WRITE, partition, alone, part.num_rows, data)


def encode_frame(frame: DataFrame, encoder: RowEncoder, *, dyn_batch_size: int) -> Iterator[Piece]:
    """Evaluate a frame, once, and yield its rows as the payloads of whole requests.

    Spark hands them over as Arrow, one result per partition, and they are encoded here: that takes
    milliseconds, and the way into a Python task and back takes longer. Pieces come in the order of the
    Spark partitions, and of the rows within each; an empty partition yields nothing. Rows are let go
    as they are encoded.

    Args:
        frame: the frame that the encoder was made for, placed by its placement.
        encoder: makes the payloads.
        dyn_batch_size: most rows in one payload.

    Raises:
        EncodingError: a value that its column cannot take.
    """
    numbered = frame.withColumn(PARTITION_COLUMN, sf.spark_partition_id())
    arrived = _with_nullable_members(numbered).toArrow()
    batches = [batch for batch in arrived.to_batches() if batch.num_rows]
    del arrived
    small = sum(batch.num_rows for batch in batches) <= min(SMALL_BATCH, dyn_batch_size)
    if small and len(batches) > 1 and not encoder.order_matters:
        yield from encoder.together(merged(batches))
        return
    # A batch of Arrow is a part of one partition.
    for partition, rows in groupby(_drained(batches), _partition):
        for chunk in chunks(rows, dyn_batch_size):
            yield from encoder.pieces(chunk, partition)


def _with_nullable_members(frame: DataFrame) -> DataFrame:
    """Let members of structs be null, in the columns where that makes a difference."""
    kinds = [with_nullable_members(field.dataType) for field in frame.schema]
    if all(kind == field.dataType for kind, field in zip(kinds, frame.schema, strict=True)):
        # Most frames are like that, and every step costs Spark an analysis of its own.
        return frame
    # By place: names of columns may differ in case alone, which Spark takes for the same.
    plain = [f"c{place}" for place in range(len(kinds))]
    loose = [
        (sf.col(alias) if kind == field.dataType else sf.col(alias).cast(kind)).alias(field.name)
        for alias, kind, field in zip(plain, kinds, frame.schema, strict=True)
    ]
    return frame.toDF(*plain).select(*loose)


def _partition(batch: pa.RecordBatch) -> int:
    partition: int = batch.column(PARTITION_COLUMN)[0].as_py()
    return partition


def _drained(batches: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the batches and forget each of them."""
    batches.reverse()
    while batches:
        yield batches.pop()


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
