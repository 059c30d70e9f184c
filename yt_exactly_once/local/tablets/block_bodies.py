"""What a block of an ordered table consists of, and how it is opened; `blocks` knows which blocks there are.

A block is an Arrow record batch, compressed where that pays. Columns that the table got later are null in it.
Rows of one commit are packed before their place and their moment are known: `$timestamp` is not in a block,
and cumulative weights count from its begin. The blocks that were opened last stay in memory.
"""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Sequence
from functools import lru_cache
from sqlite3 import Connection
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from yt_exactly_once.local.tables import vectors
from yt_exactly_once.local.tables.compression import compress, decompress
from yt_exactly_once.local.tables.layout import TableLayout
from yt_exactly_once.local.tables.schema import CUMULATIVE_WEIGHT_COLUMN, TIMESTAMP_COLUMN, Column

_COMPRESSED_FROM = 1024
"""Bytes; smaller bodies are kept as they are."""

_CACHED_BYTES = 8 << 20


class Rows(NamedTuple):
    """Consecutive rows of a tablet.

    Attributes:
        timestamps: when each was written.
        arrays: stored values by the columns of the table.
    """

    first: int
    timestamps: Any
    arrays: list[Any]

    def between(self, first: int, past: int) -> Rows:
        """Return the rows of a range of indexes."""
        begin, end = max(first - self.first, 0), max(past - self.first, 0)
        return Rows(
            self.first + begin,
            self.timestamps[begin:end],
            [array[begin:end] for array in self.arrays],
        )


class Block(NamedTuple):
    """What is known of a block that is not opened.

    Attributes:
        first: index of its first row.
        past: index after its last one.
        weight: data weight of its rows.
        oldest: the first timestamp of a row; that of all of them if the body has none.
        newest: the last one.
        columns: what it consists of, see `Fields`.
        size: bytes of the body before it was compressed; 0 if it is not.
        passed: what is to be added to the cumulative weights in the body.
    """

    key: int
    first: int
    past: int
    weight: int
    oldest: int
    newest: int
    columns: str
    size: int
    passed: int


class Page(NamedTuple):
    """Rows of one commit for one tablet, packed before it: how many, and what `Block` says of them."""

    rows: int
    weight: int
    columns: str
    size: int
    body: Any


def joined(parts: Sequence[Rows]) -> Rows:
    """Return rows that follow each other as one."""
    if len(parts) == 1:
        return parts[0]
    return Rows(
        parts[0].first,
        pa.concat_arrays([part.timestamps for part in parts]),
        [pa.concat_arrays(pieces) for pieces in zip(*(part.arrays for part in parts), strict=True)],
    )


class Fields(NamedTuple):
    """What blocks consist of: as the store keeps it, as the schema of a record batch, and its names."""

    described: str
    schema: Any
    names: list[str]


def packed(fields: Fields, arrays: Sequence[Any], count: int, weight: int) -> Page:
    """Pack so many rows with a data weight; their columns are as the fields say."""
    batch = pa.RecordBatch.from_arrays(arrays, schema=fields.schema)
    body, size = batch.serialize(), 0
    if body.size >= _COMPRESSED_FROM:
        size = body.size
        body = compress(body)
    return Page(count, weight, fields.described, size, body)


@lru_cache(1000)
def fields_of(layout: TableLayout, *, stamped: bool = False) -> Fields:
    """Return the fields of a table as it is now: for rows of one commit, or for rows with timestamps."""
    pairs = [
        (column.name, str(vectors.arrow_type(column)))
        for column in layout.columns
        if column.name != TIMESTAMP_COLUMN
    ]
    return load_fields(json.dumps([(_STAMPS, "int64")] * stamped + pairs))


@lru_cache(1000)
def load_fields(described: str) -> Fields:
    """Return the fields that the store describes."""
    pairs = json.loads(described)
    schema = pa.schema([(name, _TYPES[kind]) for name, kind in pairs])
    return Fields(described, schema, [name for name, _ in pairs])


_STAMPS = ""
"""The column with timestamps; no column of a table has this name."""

_TYPES = {str(kind): kind for kind in vectors.ARROW_TYPES.values()}


def open_block(
    connection: Connection,
    layout: TableLayout,
    block: Block,
    first: int = 0,
    past: int | None = None,
) -> Rows:
    """Return rows of a block, in a range of indexes; columns that the table got later are null."""
    fields = load_fields(block.columns)
    batch = _cache.get(block.key)
    if batch is None:
        batch = _load(connection, block, fields.schema)
    first = max(first, block.first)
    count = max(0, (block.past if past is None else min(past, block.past)) - first)
    if count < batch.num_rows:
        batch = batch.slice(first - block.first, count)
    held = dict(zip(fields.names, batch.columns, strict=True))
    stamps = held[_STAMPS] if _STAMPS in held else pa.array(np.full(count, block.oldest))

    def column_of(column: Column) -> Any:
        if column.name == TIMESTAMP_COLUMN:
            return stamps.view(pa.uint64())
        if column.name not in held:
            return pa.nulls(count, vectors.arrow_type(column))
        if column.name == CUMULATIVE_WEIGHT_COLUMN and block.passed:
            return pc.add(held[column.name], block.passed)
        return held[column.name]

    return Rows(first, stamps, [column_of(column) for column in layout.columns])


def _load(connection: Connection, block: Block, schema: Any) -> Any:
    (body,) = connection.execute("SELECT body FROM blocks WHERE key = ?", (block.key,)).fetchone()
    if block.size:
        body = decompress(body, block.size)
    batch = pa.ipc.read_record_batch(pa.py_buffer(body), schema)
    _cache.put(block.key, batch, block.size or len(body))
    return batch


class _Cache:
    """The blocks that were read last: short reads often come from the same one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._opened: OrderedDict[int, tuple[Any, int]] = OrderedDict()
        self._size = 0

    def get(self, key: int) -> Any:
        with self._lock:
            if key not in self._opened:
                return None
            self._opened.move_to_end(key)
            return self._opened[key][0]

    def put(self, key: int, opened: Any, size: int) -> None:
        with self._lock:
            if key in self._opened:
                return
            self._opened[key] = opened, size
            self._size += size
            while self._size > _CACHED_BYTES:
                _, (_, dropped) = self._opened.popitem(last=False)
                self._size -= dropped


_cache = _Cache()
