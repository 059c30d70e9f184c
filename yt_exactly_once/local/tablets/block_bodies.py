"""What a block of an ordered table consists of, and how it is opened; `blocks` knows which blocks there are.

A block is an Arrow record batch, compressed where that pays. Columns that the table got later are null in it.
The blocks that were opened last stay in memory.
"""

from __future__ import annotations

import json
import sqlite3
import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import pyarrow as pa

from yt_exactly_once.local.tables import vectors
from yt_exactly_once.local.tables.layout import TableLayout

_COMPRESSED_FROM = 1024
"""Bytes; smaller bodies are kept as they are."""

_CODEC = "lz4_raw"
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

    @property
    def past(self) -> int:
        """Index after the last row."""
        return self.first + len(self.timestamps)

    def between(self, first: int, past: int) -> Rows:
        """Return the rows of a range of indexes."""
        begin, end = max(first - self.first, 0), max(past - self.first, 0)
        return Rows(
            self.first + begin,
            self.timestamps[begin:end],
            [array[begin:end] for array in self.arrays],
        )


class Block(NamedTuple):
    """What is known of a block that is not opened: row indexes, data weight, range of timestamps."""

    key: int
    first: int
    past: int
    weight: int
    oldest: int
    newest: int
    columns: int
    size: int


def joined(parts: Sequence[Rows]) -> Rows:
    """Return rows that follow each other as one."""
    return Rows(
        parts[0].first,
        pa.concat_arrays([part.timestamps for part in parts]),
        [pa.concat_arrays(pieces) for pieces in zip(*(part.arrays for part in parts), strict=True)],
    )


def packed(rows: Rows, fields: Fields) -> tuple[Any, int]:
    """Return rows as bytes, and how many these are unpacked if they are compressed."""
    batch = pa.RecordBatch.from_arrays([rows.timestamps, *rows.arrays], schema=fields.schema)
    body = batch.serialize()
    if body.size < _COMPRESSED_FROM:
        return body, 0
    return pa.compress(body, codec=_CODEC), body.size


@dataclass(frozen=True)
class Fields:
    """What the blocks of a table consist of.

    Attributes:
        number: stands for it in the store; the same columns of any table have the same one.
        described: names and types.
        schema: of a record batch.
        positions: of the columns in a record batch by name.
    """

    number: int
    described: str
    schema: Any
    positions: dict[str, int]

    @classmethod
    def of(cls, layout: TableLayout) -> Fields:
        """Return the fields of a table as it is now."""
        known = _known_layouts.get(layout)
        if known is None:
            pairs = [(column.name, str(vectors.arrow_type(column))) for column in layout.columns]
            described = json.dumps(pairs)
            number = int.from_bytes(blake2b(described.encode(), digest_size=7).digest(), "big")
            known = _known_layouts[layout] = cls.load(number, described)
        return known

    @classmethod
    def load(cls, number: int, described: str) -> Fields:
        """Return the fields that the store describes."""
        pairs = json.loads(described)
        schema = pa.schema([("", pa.int64()), *((name, _TYPES[kind]) for name, kind in pairs)])
        positions = {name: position for position, (name, _) in enumerate(pairs, 1)}
        return cls(number, described, schema, positions)


_TYPES = {str(kind): kind for kind in vectors.ARROW_TYPES.values()}
_known_layouts: WeakKeyDictionary[TableLayout, Fields] = WeakKeyDictionary()
_known_fields: dict[int, Fields] = {}


def _fields_of(connection: sqlite3.Connection, number: int) -> Fields:
    """Return the fields with a number, which never changes its meaning."""
    known = _known_fields.get(number)
    if known is None:
        (described,) = connection.execute(
            "SELECT described FROM block_columns WHERE id = ?", (number,)
        ).fetchone()
        known = _known_fields[number] = Fields.load(number, described)
    return known


def open_block(connection: sqlite3.Connection, layout: TableLayout, block: Block) -> Rows:
    """Return the rows of a block; columns that the table got later are null."""
    fields = _fields_of(connection, block.columns)
    batch = _cache.get(block.key)
    if batch is None:
        batch = _load(connection, block, fields.schema)
    places = fields.positions
    arrays = [
        batch.column(places[column.name])
        if column.name in places
        else pa.nulls(batch.num_rows, vectors.arrow_type(column))
        for column in layout.columns
    ]
    return Rows(block.first, batch.column(0), arrays)


def _load(connection: sqlite3.Connection, block: Block, schema: Any) -> Any:
    (body,) = connection.execute("SELECT body FROM blocks WHERE key = ?", (block.key,)).fetchone()
    if block.size:
        body = pa.decompress(body, decompressed_size=block.size, codec=_CODEC)
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
            found = self._opened.get(key)
            if found is None:
                return None
            self._opened.move_to_end(key)
            return found[0]

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
