"""Rows of ordered tables on disk: blocks of consecutive rows, kept by columns.

A commit appends one block per tablet, or several blocks if it is large. Small blocks at the end of a tablet
are replaced by one. A block is an Arrow record batch, compressed where that pays, beside what reads need to
know without opening it. Which rows a client may see is not known here: trimmed rows stay in the first block
until the whole block goes. Chunks that clients see are another thing, see `flushed`.
"""

from __future__ import annotations

import json
import secrets
import threading
from collections import OrderedDict
from dataclasses import dataclass
from hashlib import blake2b
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import pyarrow as pa

from yt_exactly_once.local.tables import vectors

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator, Sequence

    from yt_exactly_once.local.tables.layout import TableLayout

_TABLES = (
    """
    CREATE TABLE IF NOT EXISTS blocks (
        key INTEGER PRIMARY KEY, tablet_id TEXT NOT NULL, first INTEGER NOT NULL,
        past INTEGER NOT NULL, weight INTEGER NOT NULL, oldest INTEGER NOT NULL,
        newest INTEGER NOT NULL, columns INTEGER NOT NULL, size INTEGER NOT NULL, body BLOB NOT NULL
    )
    """,
    "CREATE UNIQUE INDEX IF NOT EXISTS blocks_by_row ON blocks (tablet_id, first)",
    "CREATE TABLE IF NOT EXISTS block_columns (id INTEGER PRIMARY KEY, described TEXT NOT NULL)",
)

MAX_ROWS = 1 << 15
"""Rows of a block at most: so many are read to look at one of them."""

MAX_WEIGHT = 2 << 20
"""Data weight at which a block is full."""

_FAN_IN = 16
"""So many blocks of a size become one of the next size."""

_FAN_IN_BITS = 4
_COMPRESSED_FROM = 1024
"""Bytes; smaller bodies are kept as they are."""

_CODEC = "lz4_raw"
_CACHED_BYTES = 8 << 20
_NAMED = "key, first, past, weight, oldest, newest, columns, size"


class Rows(NamedTuple):
    """Consecutive rows of a tablet.

    Attributes:
        first: index of the first one.
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


def initialize(connection: sqlite3.Connection) -> None:
    """Create the tables; needs a connection of `Store.write`."""
    for statement in _TABLES:
        connection.execute(statement)


def remember_columns(connection: sqlite3.Connection, layout: TableLayout) -> None:
    """Note what blocks of a table consist of from now on; a new schema needs it before rows come."""
    fields = _Fields.of(layout)
    connection.execute(
        "INSERT OR IGNORE INTO block_columns VALUES (?, ?)", (fields.number, fields.described)
    )


def append(
    connection: sqlite3.Connection, layout: TableLayout, tablet_id: str, rows: Rows, weights: Any
) -> None:
    """Write rows behind the last one of a tablet.

    Args:
        connection: from `Store.write`.
        layout: the table.
        tablet_id: of the tablet.
        rows: what to write, one or more.
        weights: data weight of each row.
    """
    _write(connection, layout, tablet_id, rows, weights)
    # Rows that come one by one need not be looked after every time.
    if rows.first // _FAN_IN != rows.past // _FAN_IN:
        _merge(connection, layout, tablet_id)


def read(
    connection: sqlite3.Connection, layout: TableLayout, tablet_id: str, first: int, past: int
) -> Iterator[Rows]:
    """Yield the rows of a range of indexes, a block at a time; gaps are passed over."""
    for block in _listed(connection, tablet_id, first, past):
        yield _open(connection, layout, block).between(first, past)


def weight(
    connection: sqlite3.Connection, layout: TableLayout, tablet_id: str, first: int, past: int
) -> int:
    """Return the data weight of a range of rows."""
    total = 0
    for block in _listed(connection, tablet_id, first, past):
        if first <= block.first and block.past <= past:
            total += block.weight
        else:
            rows = _open(connection, layout, block).between(first, past)
            total += int(vectors.weigh(layout.columns, rows.arrays, len(rows.timestamps)).sum())
    return total


def first_since(
    connection: sqlite3.Connection, layout: TableLayout, tablet_id: str, first: int, moment: int
) -> int | None:
    """Return the index of the first row, from one on, that was written after a moment."""
    found = connection.execute(
        f"SELECT {_NAMED} FROM blocks WHERE tablet_id = ? AND past > ? AND newest > ?"
        " ORDER BY first",
        (tablet_id, first, moment),
    )
    for block in map(Block._make, found.fetchall()):
        rows = _open(connection, layout, block).between(first, block.past)
        later = np.flatnonzero(rows.timestamps.to_numpy() > moment)
        if len(later):
            return rows.first + int(later[0])
    return None


def past_until(
    connection: sqlite3.Connection, layout: TableLayout, tablet_id: str, moment: int
) -> int:
    """Return the index after the last row that was written until a moment; 0 when there is none."""
    found = connection.execute(
        f"SELECT {_NAMED} FROM blocks WHERE tablet_id = ? AND oldest <= ?"
        " ORDER BY first DESC LIMIT 1",
        (tablet_id, moment),
    ).fetchone()
    if found is None:
        return 0
    rows = _open(connection, layout, Block(*found))
    return rows.first + int(np.flatnonzero(rows.timestamps.to_numpy() <= moment)[-1]) + 1


def drop_before(connection: sqlite3.Connection, tablet_id: str, row_index: int) -> None:
    """Drop the blocks whose rows are all before an index."""
    connection.execute(
        "DELETE FROM blocks WHERE tablet_id = ? AND first < ? AND past <= ?",
        (tablet_id, row_index, row_index),
    )


def cut_before(
    connection: sqlite3.Connection, layout: TableLayout, tablet_id: str, row_index: int
) -> None:
    """Drop every row before an index."""
    drop_before(connection, tablet_id, row_index)
    for block in _listed(connection, tablet_id, row_index, row_index + 1):
        _replace(connection, layout, tablet_id, block, (row_index, block.past))


def cut_from(
    connection: sqlite3.Connection, layout: TableLayout, tablet_id: str, row_index: int
) -> None:
    """Drop every row from an index on."""
    connection.execute(
        "DELETE FROM blocks WHERE tablet_id = ? AND first >= ?", (tablet_id, row_index)
    )
    for block in _listed(connection, tablet_id, row_index, row_index + 1):
        _replace(connection, layout, tablet_id, block, (block.first, row_index))


def move(connection: sqlite3.Connection, source_id: str, target_id: str, shift: int = 0) -> None:
    """Give the rows of a tablet to another one, `shift` further on."""
    connection.execute(
        "UPDATE blocks SET tablet_id = ?, first = first + ?, past = past + ? WHERE tablet_id = ?",
        (target_id, shift, shift, source_id),
    )


def copy(connection: sqlite3.Connection, source_id: str, target_id: str) -> None:
    """Copy the rows of a tablet to a new one."""
    others = _NAMED.removeprefix("key, ")
    keys = connection.execute("SELECT key FROM blocks WHERE tablet_id = ?", (source_id,)).fetchall()
    connection.executemany(
        f"INSERT INTO blocks (key, tablet_id, {others}, body)"
        f" SELECT ?, ?, {others}, body FROM blocks WHERE key = ?",
        [(_new_key(), target_id, key) for (key,) in keys],
    )


def forget(connection: sqlite3.Connection, tablet_ids: Sequence[str]) -> None:
    """Remove all rows of tablets."""
    connection.executemany(
        "DELETE FROM blocks WHERE tablet_id = ?", [(each,) for each in tablet_ids]
    )


def _listed(connection: sqlite3.Connection, tablet_id: str, first: int, past: int) -> list[Block]:
    """Return the blocks that hold rows of a range, in order."""
    if first >= past:
        return []
    found = connection.execute(
        f"SELECT {_NAMED} FROM blocks WHERE tablet_id = ?1 AND first < ?3 AND past > ?2"
        " AND first >= coalesce((SELECT max(first) FROM blocks WHERE tablet_id = ?1 AND first <= ?2),"
        " ?2) ORDER BY first",
        (tablet_id, first, past),
    )
    return list(map(Block._make, found.fetchall()))


def _write(
    connection: sqlite3.Connection, layout: TableLayout, tablet_id: str, rows: Rows, weights: Any
) -> None:
    """Write rows as blocks of limited length and weight."""
    fields = _Fields.of(layout)
    for start, end in pairwise([0, *_cuts(weights)]):
        part = rows.between(rows.first + start, rows.first + end)
        _insert(connection, tablet_id, part, int(weights[start:end].sum()), fields)


def _insert(
    connection: sqlite3.Connection, tablet_id: str, rows: Rows, weight: int, fields: _Fields
) -> None:
    """Write one block."""
    batch = pa.RecordBatch.from_arrays([rows.timestamps, *rows.arrays], schema=fields.schema)
    body, size = batch.serialize(), 0
    if body.size >= _COMPRESSED_FROM:
        body, size = pa.compress(body, codec=_CODEC), body.size
    stamps = rows.timestamps.to_numpy()
    moments = int(stamps.min()), int(stamps.max())
    connection.execute(
        "INSERT INTO blocks VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (_new_key(), tablet_id, rows.first, rows.past, weight, *moments, fields.number, size, body),
    )


def _cuts(weights: Any) -> list[int]:
    """Return where blocks end: at a number of rows, or once they weigh enough."""
    count = len(weights)
    if count <= MAX_ROWS and int(weights.sum()) <= MAX_WEIGHT:
        return [count] if count else []
    sums = np.cumsum(weights)
    ends, passed, start = [], 0, 0
    while start < count:
        full = int(np.searchsorted(sums, passed + MAX_WEIGHT)) + 1
        start = min(start + MAX_ROWS, full, count)
        ends.append(start)
        passed = int(sums[start - 1])
    return ends


def _merge(connection: sqlite3.Connection, layout: TableLayout, tablet_id: str) -> None:
    """Replace a run of small blocks at the end by one of the next size, so that a row moves rarely."""
    while True:
        found = connection.execute(
            f"SELECT {_NAMED} FROM blocks WHERE tablet_id = ? ORDER BY first DESC LIMIT ?",
            (tablet_id, _FAN_IN),
        ).fetchall()
        blocks = list(map(Block._make, reversed(found)))
        if len(blocks) < _FAN_IN or not _are_worth_merging(blocks):
            return
        opened = [_open(connection, layout, block) for block in blocks]
        cut_from(connection, layout, tablet_id, blocks[0].first)
        weight = sum(block.weight for block in blocks)
        _insert(connection, tablet_id, _joined(opened), weight, _Fields.of(layout))


def _are_worth_merging(blocks: Sequence[Block]) -> bool:
    level = _level(blocks[-1])
    return (
        all(_level(block) <= level for block in blocks)
        and sum(block.past - block.first for block in blocks) <= MAX_ROWS
        and sum(block.weight for block in blocks) <= MAX_WEIGHT
    )


def _level(block: Block) -> int:
    return (block.past - block.first).bit_length() // _FAN_IN_BITS


def _joined(parts: Sequence[Rows]) -> Rows:
    return Rows(
        parts[0].first,
        pa.concat_arrays([part.timestamps for part in parts]),
        [pa.concat_arrays(pieces) for pieces in zip(*(part.arrays for part in parts), strict=True)],
    )


def _replace(
    connection: sqlite3.Connection,
    layout: TableLayout,
    tablet_id: str,
    block: Block,
    kept: tuple[int, int],
) -> None:
    """Keep some rows of a block."""
    rows = _open(connection, layout, block).between(*kept)
    connection.execute("DELETE FROM blocks WHERE key = ?", (block.key,))
    weights = vectors.weigh(layout.columns, rows.arrays, len(rows.timestamps))
    _write(connection, layout, tablet_id, rows, weights)


def _new_key() -> int:
    """Return a key never used before, not even by a commit that was rolled back: rows are cached by it."""
    return secrets.randbits(62)


@dataclass(frozen=True)
class _Fields:
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
    def of(cls, layout: TableLayout) -> _Fields:
        """Return the fields of a table as it is now."""
        known = _known_layouts.get(layout)
        if known is None:
            pairs = [(column.name, str(vectors.arrow_type(column))) for column in layout.columns]
            described = json.dumps(pairs)
            number = int.from_bytes(blake2b(described.encode(), digest_size=7).digest(), "big")
            known = _known_layouts[layout] = cls.load(number, described)
        return known

    @classmethod
    def load(cls, number: int, described: str) -> _Fields:
        """Return the fields that the store describes."""
        pairs = json.loads(described)
        schema = pa.schema([("", pa.int64()), *((name, _TYPES[kind]) for name, kind in pairs)])
        positions = {name: position for position, (name, _) in enumerate(pairs, 1)}
        return cls(number, described, schema, positions)


_TYPES = {
    str(kind): kind
    for kind in (pa.int64(), pa.uint64(), pa.float64(), pa.bool_(), pa.binary(), pa.null())
}
_known_layouts: WeakKeyDictionary[TableLayout, _Fields] = WeakKeyDictionary()
_known_fields: dict[int, _Fields] = {}


def _fields_of(connection: sqlite3.Connection, number: int) -> _Fields:
    """Return the fields with a number, which never changes its meaning."""
    known = _known_fields.get(number)
    if known is None:
        (described,) = connection.execute(
            "SELECT described FROM block_columns WHERE id = ?", (number,)
        ).fetchone()
        known = _known_fields[number] = _Fields.load(number, described)
    return known


def _open(connection: sqlite3.Connection, layout: TableLayout, block: Block) -> Rows:
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
