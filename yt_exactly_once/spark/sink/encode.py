"""The rows of a DataFrame as payloads, encoded on the driver and in the order of the rows.

Rows are cut into chunks of at most `dyn_batch_size`; small Arrow batches of Spark are merged first. No task
sends anything anywhere: which attempt of it counts is Spark's to decide.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from yt_exactly_once.codec.changes import changes
from yt_exactly_once.codec.rejects import Rejects, find_faults, without
from yt_exactly_once.codec.row_hash import added, row_hashes
from yt_exactly_once.codec.rows import encode, row_fragments
from yt_exactly_once.codec.weights import weight, weights
from yt_exactly_once.codec.yson_fragments import joined
from yt_exactly_once.commit.cluster import Payload
from yt_exactly_once.errors import EncodingError
from yt_exactly_once.spark.sink.columns import PARTITION_COLUMN

if TYPE_CHECKING:
    from yt_exactly_once.spark.sink.placement import Placement
    from yt_exactly_once.spark.sink.targets import PreparedTarget

SMALL_BATCH = 10_000
"""A batch of no more rows is sent as one request, whatever its partitions.

In a larger one, tablets with few rows share requests of up to so many rows. Otherwise every tablet would
cost a request, or every pair of a tablet and a Spark partition.
"""

REQUEST_BYTES = 16 << 20
"""A request is full with so many bytes of rows, however few they are; it has at least one row."""


@dataclass
class RowEncoder:
    """Collects the rows of one batch and target as payloads.

    Payloads for one tablet are a group, and so do those of one Spark partition where keys choose the
    tablets. Payloads of a group keep their order. A group of one payload may be for several of either.

    Attributes:
        target: as the rows of the batch are placed in it.
        rejects: where rows go that cannot be written; without it they are an error.
        groups: payloads that write or delete, by tablet or Spark partition; by the lowest of several.
        rows_by_tablet: how many rows are in them; of `None`, those whose keys choose the tablet.
        keys: the keys of all rows, by Spark partition, where the driver must know them.
        rejected: payloads for the dead-letter table.
    """

    target: PreparedTarget
    rejects: Rejects | None = None
    groups: dict[int, list[Payload]] = field(default_factory=lambda: defaultdict(list))
    rows_by_tablet: dict[int | None, int] = field(default_factory=lambda: defaultdict(int))
    keys: dict[int, list[pa.LargeBinaryArray]] = field(default_factory=lambda: defaultdict(list))
    rejected: list[Payload] = field(default_factory=list)

    def add(self, rows: pa.RecordBatch, partition: int, *, is_mixed: bool = False) -> None:
        """Encode one chunk; reject what cannot be written of it, or raise `EncodingError`.

        Args:
            rows: placed by the placement.
            is_mixed: whether they may be for several tablets, or be in several partitions, as
                `PARTITION_COLUMN` says if it is there. Then the chunk becomes one payload, and each row
                carries its tablet.
        """
        try:
            self._encode(rows, partition, is_mixed=is_mixed)
        except EncodingError:
            if self.rejects is None:
                raise
            target, marker = self.target, self.target.options.delete_marker or ""
            faults = find_faults(rows, target.plan, target.wire, marker)
            if not faults:
                raise
            how = target.plan.parsed, target.options.write_options
            described = self.rejects.encode(rows, faults, target.path, marker, *how)
            self._encode(without(rows, faults), partition, is_mixed=is_mixed)
            self.rejected.append(Payload(len(faults), described))

    def _encode(self, rows: pa.RecordBatch, partition: int, *, is_mixed: bool) -> None:
        """Keep all payloads of a chunk, or none."""
        keys = deleted = None
        target, options = self.target, self.target.options
        if options.delete_marker:
            keys, deleted, rows = changes(rows, target.plan.keys, options.delete_marker)
        elif options.collects_keys:
            keys = row_fragments(rows, target.plan.keys)
        placed: Iterable[tuple[Any, pa.RecordBatch]] = target.placement.split(rows, partition)
        if is_mixed:
            has_partitions = rows.schema.names[-1] == PARTITION_COLUMN
            origin = rows.column(PARTITION_COLUMN) if has_partitions else partition
            placed = [(target.placement.tablets(rows, origin), rows)]
        payloads = [
            (tablet, self._payload(piece, tablet)) for tablet, piece in placed if piece.num_rows
        ]
        if keys is not None:
            self.keys[partition].append(keys)
        if deleted is not None and len(deleted):
            deletion = Payload(len(deleted), joined(deleted), deletes=True)
            payloads.insert(0, (None, deletion))
        for tablet, payload in payloads:
            self._keep(partition, tablet, payload)

    def _payload(self, rows: pa.RecordBatch, tablet: Any) -> Payload:
        plan = self.target.plan
        data = encode(rows, plan, self.target.wire, tablet_index=tablet)
        if not self.target.options.digest:
            return Payload(rows.num_rows, data)
        return Payload(rows.num_rows, data, digest=added(0, row_hashes(rows, plan.columns)))

    def _keep(self, partition: int, tablet: Any, payload: Payload) -> None:
        if isinstance(tablet, pa.Array):
            counted = pc.value_counts(tablet).to_pylist()
            counts = {each["values"]: each["counts"] for each in counted}
            group = min(counts)
        else:
            counts = {tablet: payload.row_count}
            group = partition if tablet is None else tablet
        self.groups[group].append(payload)
        for each, count in counts.items():
            self.rows_by_tablet[each] += count


def encode_batches(
    arrived: Iterable[pa.RecordBatch], encoder: RowEncoder, *, is_placed: bool = True
) -> RowEncoder:
    """Encode all rows, forget them, and return the encoder, which has their payloads.

    Args:
        arrived: the rows, in the order of their Spark partitions.
        is_placed: whether each row carries its partition, in `PARTITION_COLUMN`.
    """
    target, dyn_batch_size = encoder.target, encoder.target.dyn_batch_size
    if not is_placed:
        for chunk in chunks(arrived, dyn_batch_size):
            encoder.add(chunk, 0)
        return encoder
    batches = [batch for batch in arrived if batch.num_rows]
    small = (
        sum(batch.num_rows for batch in batches) <= min(SMALL_BATCH, dyn_batch_size)
        and sum(map(weight, batches)) <= REQUEST_BYTES
    )
    if target.orders_keys:
        # Rows of several partitions must be distinguished; a batch of Arrow is a part of one.
        for partition, held in groupby(drained(batches), partition_of):
            for chunk in chunks(held, dyn_batch_size):
                encoder.add(chunk, partition)
    elif small and batches:
        rows, is_of_one = merged(batches), partition_of(batches[0]) == partition_of(batches[-1])
        is_mixed = not (is_of_one and target.placement.is_by_partition)
        encoder.add(rows, partition_of(rows), is_mixed=is_mixed)
    else:
        for rows, partition, is_mixed in _gathered(
            drained(batches), target.placement, dyn_batch_size
        ):
            encoder.add(rows, partition, is_mixed=is_mixed)
    return encoder


def _gathered(
    batches: Iterable[pa.RecordBatch], placement: Placement, dyn_batch_size: int
) -> Iterator[tuple[pa.RecordBatch, int, bool]]:
    """Yield chunks of rows, each with a Spark partition of it and whether it is mixed.

    The rows of a tablet come in order, and so do those of a Spark partition where keys choose the tablets.
    Either has chunks of its own, unless it has few rows: then it shares one with its neighbours.

    Args:
        batches: in the order of their partitions.
        dyn_batch_size: most rows in a chunk.
    """
    met = set[int]()
    waiting: dict[int, _Held] = defaultdict(_Held)
    for batch in batches:
        for tablet, piece in placement.split(batch, partition_of(batch)):
            group = partition_of(batch) if tablet is None else tablet
            held = waiting[group]
            held.add(piece)
            if held.fit(dyn_batch_size):
                continue
            *full, rest = chunks(held.batches, dyn_batch_size)
            waiting[group] = _Held([rest], rest.num_rows, weight(rest))
            for chunk in full:
                met.add(group)
                yield chunk, partition_of(chunk), False
    shared = _Held()
    for group in sorted(waiting):
        # What follows a chunk must be in its group.
        held = waiting.pop(group)
        rows = merged(held.batches)
        if group in met:
            yield rows, partition_of(rows), False
            continue
        if shared.batches and not shared.fit(min(SMALL_BATCH, dyn_batch_size), held):
            yield shared.joined()
            shared = _Held()
        shared.add(rows)
    if shared.batches:
        yield shared.joined()


@dataclass
class _Held:
    """Rows that wait until a request is full, each batch of one group; how many, and of what size."""

    batches: list[pa.RecordBatch] = field(default_factory=list)
    rows: int = 0
    bytes: int = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Add rows."""
        self.batches.append(batch)
        self.rows += batch.num_rows
        self.bytes += weight(batch)

    def fit(self, rows: int, more: _Held | None = None) -> bool:
        """Tell whether a request of so many rows has room for these, and for more."""
        added_rows, added_bytes = (more.rows, more.bytes) if more else (0, 0)
        return self.rows + added_rows <= rows and self.bytes + added_bytes <= REQUEST_BYTES

    def joined(self) -> tuple[pa.RecordBatch, int, bool]:
        """Return all rows as one chunk, mixed if they are of several groups."""
        rows = merged(self.batches)
        return rows, partition_of(rows), len(self.batches) > 1


def partition_of(batch: pa.RecordBatch) -> int:
    """Return the Spark partition of rows that are all of one."""
    partition: int = batch.column(PARTITION_COLUMN)[0].as_py()
    return partition


class PartitionsUnknownError(Exception):
    """A Spark partition is empty or ends with a full batch, where each must be known; or any may be so."""


def ended_partitions(batches: Iterable[pa.RecordBatch], full: int) -> int:
    """Return how many Spark partitions end with a batch of fewer than `full` rows, as almost all do.

    If these are all that there are, `numbered_by_ends` gives each its own number.
    """
    return sum(0 < batch.num_rows < full for batch in batches)


def numbered_by_ends(batches: Iterable[pa.RecordBatch], full: int) -> Iterator[pa.RecordBatch]:
    """Number rows by their Spark partitions, which a batch of fewer than `full` rows ends.

    Partitions without rows have no number. One whose last batch is full passes for the begin of the next one:
    the rows of both then share a tablet, in order.
    """
    partition = 0
    for batch in batches:
        numbers = pa.repeat(pa.scalar(partition, pa.int32()), batch.num_rows)
        yield batch.append_column(PARTITION_COLUMN, numbers)
        partition += 0 < batch.num_rows < full


def drained(batches: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the batches and forget each of them."""
    batches.reverse()
    while batches:
        yield batches.pop()


def chunks(batches: Iterable[pa.RecordBatch], dyn_batch_size: int) -> Iterator[pa.RecordBatch]:
    """Cut a stream of batches into full chunks, and one last shorter one.

    A chunk is full with `dyn_batch_size` rows, or where the next row does not fit into `REQUEST_BYTES`. Rows
    are cut at the same positions whatever batches they come in: a replay may get other ones.
    """
    waiting: list[pa.RecordBatch] = []
    rows_left, bytes_left = dyn_batch_size, REQUEST_BYTES
    for batch in batches:
        rest = batch
        while rest.num_rows:
            taken, taken_bytes = _fitting(rest, rows_left, bytes_left, least=0 if waiting else 1)
            if taken:
                piece, rest = rest.slice(0, taken), rest.slice(taken)
                # Arrow sends bits of the rows beside a slice along with it.
                waiting.append(piece if taken == batch.num_rows else pa.concat_batches([piece]))
            rows_left, bytes_left = rows_left - taken, bytes_left - taken_bytes
            if rest.num_rows or not rows_left:
                yield merged(waiting)
                waiting, rows_left, bytes_left = [], dyn_batch_size, REQUEST_BYTES
    if waiting:
        yield merged(waiting)


def _fitting(
    rows: pa.RecordBatch, rows_left: int, bytes_left: int, *, least: int
) -> tuple[int, int]:
    """Return how many first rows fit into so many rows and bytes, but at least so many; and their bytes."""
    first = rows.slice(0, rows_left)
    total = weight(first)
    if total <= bytes_left:
        return first.num_rows, total
    ends = weights(first)
    count = max(least, int(np.searchsorted(ends, bytes_left, side="right")))
    return count, int(ends[count - 1]) if count else 0


def merged(batches: list[pa.RecordBatch], schema: pa.Schema | None = None) -> pa.RecordBatch:
    """Return the rows of all batches as one; raise `EncodingError` if one Arrow array cannot hold them.

    Args:
        schema: of the rows, for where there may be no batch.
    """
    if len(batches) == 1:
        return batches[0]
    table = pa.Table.from_batches(batches, schema)
    if not table.num_rows:
        return pa.RecordBatch.from_pylist([], table.schema)
    together = table.combine_chunks().to_batches()
    if len(together) != 1:
        raise EncodingError(
            f"A chunk of {sum(batch.num_rows for batch in batches)} rows is larger than 2 GiB",
            remedy="Lower dyn_batch_size",
        )
    return together[0]
