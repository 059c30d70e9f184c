"""Rows of ordered tables on disk: blocks of consecutive rows, kept by columns.

A commit appends one block per tablet, or several blocks if it is large: those were packed when the rows
came, so that the commit, which holds up other writers, only writes them down. Small blocks at the end of a
tablet are replaced by one. `block_bodies` knows the bytes of a block. Here is what reads need to know before
they open it. Which rows a client may see is not known here: trimmed rows stay in the first block until all of
it goes. Chunks that clients see are another thing, see `flushed`.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from sqlite3 import Connection
from typing import Any

import numpy as np
import pyarrow as pa

from yt_exactly_once.local.tables import vectors
from yt_exactly_once.local.tables.layout import TableLayout
from yt_exactly_once.local.tables.schema import CUMULATIVE_WEIGHT_COLUMN
from yt_exactly_once.local.tablets.block_bodies import (
    Block,
    Page,
    Rows,
    fields_of,
    joined,
    open_block,
    packed,
)

MAX_ROWS = 1 << 15
"""Rows of a block at most: so many are read to look at one of them."""

_MAX_VALUES = 1 << 18
"""Of a block: a null weighs nothing, but has a place."""

MAX_WEIGHT = 2 << 20
"""Data weight at which a block is full."""

_FAN_IN = 16
"""So many blocks of a size become one of the next size."""

_FAN_IN_BITS = 4
_NAMED = "key, first, past, weight, oldest, newest, columns, size, passed"


def pack(layout: TableLayout, given: Mapping[str, Any], weights: Any) -> list[Page]:
    """Pack rows of one commit for one tablet; columns that are not given are null."""
    fields = fields_of(layout)
    pages = []
    for start, end in pairwise([0, *_cuts(layout, weights)]):
        sums = np.cumsum(weights[start:end])
        given_here = {name: array[start:end] for name, array in given.items()}
        given_here[CUMULATIVE_WEIGHT_COLUMN] = pa.array(sums)
        columns = [
            given_here[field.name]
            if field.name in given_here
            else pa.nulls(end - start, field.type)
            for field in fields.schema
        ]
        pages.append(packed(fields, columns, end - start, int(sums[-1])))
    return pages


def are_worth_packing(weights: Any) -> bool:
    """Tell whether the rows of a request get blocks of their own; few share one with their neighbours."""
    return len(weights) * 2 >= MAX_ROWS or int(weights.sum()) * 2 >= MAX_WEIGHT


def append(
    connection: Connection,
    layout: TableLayout,
    tablet_id: str,
    pages: Sequence[Page],
    first: int,
    passed: int,
    timestamp: int,
) -> tuple[int, int]:
    """Write rows behind the `first` ones of a tablet, which weigh `passed`; return both as they are then."""
    past = first
    for page in pages:
        _insert(connection, tablet_id, page, past, timestamp, timestamp, passed)
        past += page.rows
        passed += page.weight
    # Rows that come one by one need not be looked after every time.
    if first // _FAN_IN != past // _FAN_IN:
        _merge(connection, layout, tablet_id)
    return past, passed


def read(
    connection: Connection, layout: TableLayout, tablet_id: str, first: int, past: int
) -> Iterator[Rows]:
    """Yield the rows of a range of indexes, a block at a time; gaps are passed over."""
    for block in _listed(connection, tablet_id, first, past):
        yield open_block(connection, layout, block, first, past)


def weight(
    connection: Connection, layout: TableLayout, tablet_id: str, first: int, past: int
) -> int:
    """Return the data weight of a range of rows."""
    total = 0
    for block in _listed(connection, tablet_id, first, past):
        if first <= block.first and block.past <= past:
            total += block.weight
        else:
            rows = open_block(connection, layout, block, first, past)
            total += int(vectors.weigh(layout.columns, rows.arrays, len(rows.timestamps)).sum())
    return total


def first_since(
    connection: Connection,
    layout: TableLayout,
    tablet_id: str,
    first: int,
    moment: int,
    otherwise: int,
) -> int:
    """Return the index of the first row, from one on, that was written after a moment."""
    found = connection.execute(
        f"SELECT {_NAMED} FROM blocks WHERE tablet_id = ? AND past > ? AND newest > ?"
        " ORDER BY first",
        (tablet_id, first, moment),
    )
    for block in map(Block._make, found.fetchall()):
        rows = open_block(connection, layout, block, first)
        later = np.flatnonzero(rows.timestamps.to_numpy() > moment)
        if len(later):
            return rows.first + int(later[0])
    return otherwise


def drop_before(connection: Connection, tablet_id: str, row_index: int) -> None:
    """Drop the blocks whose rows are all before an index."""
    connection.execute(
        "DELETE FROM blocks WHERE tablet_id = ? AND first < ? AND past <= ?",
        (tablet_id, row_index, row_index),
    )


def untrim(connection: Connection, tablet_id: str) -> None:
    """Show the trimmed rows again that are still stored."""
    connection.execute(
        "UPDATE tablets SET trimmed_rows = min(trimmed_rows, (SELECT coalesce(min(first), total_rows)"
        " FROM blocks WHERE blocks.tablet_id = tablets.tablet_id)) WHERE tablet_id = ?",
        (tablet_id,),
    )


def keep(
    connection: Connection, layout: TableLayout, tablet_id: str, first: int, past: int
) -> None:
    """Drop every row outside of a range of indexes."""
    drop_before(connection, tablet_id, first)
    connection.execute("DELETE FROM blocks WHERE tablet_id = ? AND first >= ?", (tablet_id, past))
    edges = (first, first + 1), (past - 1, past)
    for block in {block for edge in edges for block in _listed(connection, tablet_id, *edge)}:
        if block.first < first or block.past > past:
            rows = open_block(connection, layout, block, first, past)
            connection.execute("DELETE FROM blocks WHERE key = ?", (block.key,))
            weights = vectors.weigh(layout.columns, rows.arrays, len(rows.timestamps))
            _write(connection, layout, tablet_id, rows, int(weights.sum()))


def move(connection: Connection, source_id: str, target_id: str, shift: int = 0) -> None:
    """Give the rows of a tablet to another one, `shift` further on."""
    connection.execute(
        "UPDATE blocks SET tablet_id = ?, first = first + ?, past = past + ? WHERE tablet_id = ?",
        (target_id, shift, shift, source_id),
    )


def copy(connection: Connection, source_id: str, target_id: str) -> None:
    """Copy the rows of a tablet to a new one."""
    others = _NAMED.removeprefix("key, ")
    keys = connection.execute("SELECT key FROM blocks WHERE tablet_id = ?", (source_id,)).fetchall()
    connection.executemany(
        f"INSERT INTO blocks (key, tablet_id, {others}, body)"
        f" SELECT ?, ?, {others}, body FROM blocks WHERE key = ?",
        [(_new_key(), target_id, key) for (key,) in keys],
    )


def _listed(connection: Connection, tablet_id: str, first: int, past: int) -> list[Block]:
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
    connection: Connection, layout: TableLayout, tablet_id: str, rows: Rows, weight: int
) -> None:
    """Write rows of any commits as one block."""
    fields = fields_of(layout, stamped=True)
    names = ["", *(column.name for column in layout.columns)]
    given = dict(zip(names, [rows.timestamps, *rows.arrays], strict=True))
    arrays = [given[name] for name in fields.names]
    page = packed(fields, arrays, len(rows.timestamps), weight)
    stamps = rows.timestamps.to_numpy()
    _insert(connection, tablet_id, page, rows.first, int(stamps.min()), int(stamps.max()))


def _insert(
    connection: Connection,
    tablet_id: str,
    page: Page,
    first: int,
    oldest: int,
    newest: int,
    passed: int = 0,
) -> None:
    """Write one block."""
    past = first + page.rows
    described = first, past, page.weight, oldest, newest, page.columns, page.size, passed
    connection.execute(
        f"INSERT INTO blocks (tablet_id, {_NAMED}, body) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (tablet_id, _new_key(), *described, page.body),
    )


def _most_rows(layout: TableLayout) -> int:
    return max(1, min(MAX_ROWS, _MAX_VALUES // len(layout.columns)))


def _cuts(layout: TableLayout, weights: Any) -> list[int]:
    """Return where blocks end: at a number of rows or of values, or once they weigh enough."""
    count, most = len(weights), _most_rows(layout)
    if count <= most and int(weights.sum()) <= MAX_WEIGHT:
        return [count] if count else []
    if weights.strides == (0,):
        # One number for all rows: a million nulls are 200 bytes of a request.
        step = min(most, -(-MAX_WEIGHT // max(1, int(weights[0]))))
        return [*range(step, count, step), count]
    sums = np.cumsum(weights)
    ends, passed, start = [], 0, 0
    while start < count:
        full = int(np.searchsorted(sums, passed + MAX_WEIGHT)) + 1
        start = min(start + most, full, count)
        ends.append(start)
        passed = int(sums[start - 1])
    return ends


def _merge(connection: Connection, layout: TableLayout, tablet_id: str) -> None:
    """Replace a run of small blocks at the end by one of the next size, so that a row moves rarely."""
    while True:
        found = connection.execute(
            f"SELECT {_NAMED} FROM blocks WHERE tablet_id = ? ORDER BY first DESC LIMIT ?",
            (tablet_id, _FAN_IN),
        ).fetchall()
        blocks = list(map(Block._make, reversed(found)))
        if len(blocks) < _FAN_IN or not _are_worth_merging(blocks, _most_rows(layout)):
            return
        opened = [open_block(connection, layout, block) for block in blocks]
        keys = [(block.key,) for block in blocks]
        connection.executemany("DELETE FROM blocks WHERE key = ?", keys)
        _write(connection, layout, tablet_id, joined(opened), sum(block.weight for block in blocks))


def _are_worth_merging(blocks: Sequence[Block], most_rows: int) -> bool:
    level = _level(blocks[-1])
    return (
        all(_level(block) <= level for block in blocks)
        and sum(block.past - block.first for block in blocks) <= most_rows
        and sum(block.weight for block in blocks) <= MAX_WEIGHT
    )


def _level(block: Block) -> int:
    return (block.past - block.first).bit_length() // _FAN_IN_BITS


def _new_key() -> int:
    """Return a key never used before, not even by a commit that was rolled back: rows are cached by it."""
    return secrets.randbits(62)
