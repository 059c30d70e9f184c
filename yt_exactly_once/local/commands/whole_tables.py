"""Tables of any kind as rows with indexes from 0 on: what reads and partitions of whole tables share."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate
from sqlite3 import Connection
from typing import Any, NamedTuple

from yt_exactly_once.local import arguments
from yt_exactly_once.local.commands.sessions import check_moments
from yt_exactly_once.local.cypress import chunks, permissions, tree
from yt_exactly_once.local.cypress.view import Node, View
from yt_exactly_once.local.cypress.ypath import YPath
from yt_exactly_once.local.errors import YtError
from yt_exactly_once.local.static import rows as static_rows
from yt_exactly_once.local.static.rows import Range, Row
from yt_exactly_once.local.store import scalar, scalars
from yt_exactly_once.local.tables import values
from yt_exactly_once.local.tables.layout import TableLayout
from yt_exactly_once.local.tables.vectors import StoredRows
from yt_exactly_once.local.tablets import attributes, flushed, reads
from yt_exactly_once.local.tablets.catalog import load_layout

_ROWS_PER_FETCH = 1000
COUNTS_TRIMMED = "chunk_index_counts_trimmed"


class Piece(NamedTuple):
    """Rows that lie together: the first, the one after the last, and the weight of all."""

    start: int
    end: int
    weight: int


def allowed(view: View, path: YPath, permission: str, kind: str | None = "table") -> Node:
    """Return the node that a path leads to, if it is of a kind and its user has a permission on it."""
    node = tree.node_at(view, path)
    if kind not in {None, node.type}:
        raise YtError(f'Invalid type of {node.path}: expected "{kind}", actual "{node.type}"')
    permissions.require(view, node.id, permission, rows=True)
    return node


def opened(view: View, path: YPath, *, counts_trimmed: bool) -> Source:
    """Return the rows of a table, as they are or as they were at the timestamp of the path.

    Args:
        counts_trimmed: see the feature `chunk_index_counts_trimmed`.
    """
    node = allowed(view, path, "read")
    if not node.attributes.get("dynamic"):
        return _StaticRows(view, node)
    layout = load_layout(view.connection, node.id, node.path)
    timestamp, since = (
        arguments.integer(dict(path.attributes), name, None, unsigned=True)
        for name in ("timestamp", "retention_timestamp")
    )
    check_moments(timestamp, since)
    if layout.sorted:
        seen = reads.layout_at(view.connection, layout, timestamp, since)
        return _SortedRows(view.connection, seen or layout)
    if timestamp is not None or since is not None:
        raise YtError(f"Cannot read ordered table {node.path} at a timestamp")
    return _OrderedRows(view.connection, layout, counts_trimmed=counts_trimmed)


def ranges(source: Source, path: YPath) -> list[Range]:
    """Return the ranges of rows that a path selects; older clients give one, as limits of the path itself."""
    old = {
        name: path.attributes[name]
        for name in ("lower_limit", "upper_limit", "exact")
        if name in path.attributes
    }
    selectors = path.attributes.get("ranges", [old] if old else None)
    return static_rows.find_ranges(
        selectors, source.row_count, source.schema, source.keys, source.place
    )


def chosen(path: YPath) -> list[str] | None:
    """Return the names of the columns that a path selects, if it selects any."""
    columns = path.attributes.get("columns")
    if columns is None:
        return None
    if not isinstance(columns, list):
        raise YtError('Error parsing path attribute "columns": expected a list')
    return [str(name) for name in columns]


class _StaticRows:
    in_chunks = True

    def __init__(self, view: View, node: Node) -> None:
        self.schema = static_rows.schema_of(node.attributes)
        self._connection = view.connection
        self._chunks = chunks.chunks(view, node.id)
        self.row_count = sum(chunk.row_count for chunk in self._chunks)

    def place(self, indexes: dict[str, int]) -> int:
        _check_indexes(indexes, {"chunk_index", "row_index"}, "static")
        if "chunk_index" not in indexes:
            return indexes["row_index"]
        return sum(chunk.row_count for chunk in self._chunks[: max(indexes["chunk_index"], 0)])

    def keys(self) -> Sequence[bytes]:
        everything = self.read(static_rows.Range(0, self.row_count))
        return [key for rows in everything for key in static_rows.encode_keys(self.schema, rows)]

    def read(self, wanted: Range) -> Iterator[list[Row]]:
        return static_rows.read(self._connection, self._chunks, wanted)

    def pieces(self) -> list[Piece]:
        ends = accumulate(chunk.row_count for chunk in self._chunks)
        pairs = zip(self._chunks, ends, strict=True)
        return [Piece(end - chunk.row_count, end, chunk.size) for chunk, end in pairs]

    def limits(self, start: int, end: int) -> dict[str, Any]:
        return {"lower_limit": {"row_index": start}, "upper_limit": {"row_index": end}}


class _SortedRows:
    in_chunks = False

    def __init__(self, connection: Connection, layout: TableLayout) -> None:
        self.schema = layout.schema
        self._connection = connection
        self._layout = layout
        self.row_count = int(scalar(connection, f"SELECT count(*) FROM {layout.sql_source}"))

    def place(self, indexes: dict[str, int]) -> int:
        _check_indexes(indexes, set(), "sorted dynamic")
        return 0

    def keys(self) -> Sequence[bytes]:
        query = f'SELECT "$key" FROM {self._layout.sql_source} ORDER BY "$key"'
        return scalars(self._connection, query)

    def read(self, wanted: Range) -> Iterator[list[Row]]:
        layout = self._layout
        listed = ", ".join(layout.sql_column(column.name) for column in layout.columns)
        cursor = self._connection.execute(
            f'SELECT {listed} FROM {layout.sql_source} ORDER BY "$key" LIMIT ? OFFSET ?',
            (wanted.end - wanted.start, wanted.start),
        )
        while stored := cursor.fetchmany(_ROWS_PER_FETCH):
            yield values.decode_rows(layout.columns, stored)

    def pieces(self) -> list[Piece]:
        weight = attributes.data_weight(self._connection, self._layout)
        return [Piece(0, self.row_count, weight)] if self.row_count else []

    def limits(self, start: int, end: int) -> dict[str, Any]:
        edges = (static_rows.Range(at, at + 1) for at in (start, end - 1))
        first, last = (next(self.read(edge))[0] for edge in edges)
        names = [column.name for column in self.schema.key_columns]
        return {
            limit: {"key_bound": [relation, [row[name] for name in names]]}
            for limit, relation, row in (("lower_limit", ">=", first), ("upper_limit", "<=", last))
        }


class _OrderedRows:
    """The rows of all tablets, one tablet after the other.

    Of each tablet are known the first row, the one after the last, and what makes an index in the tablet one
    in the table.
    """

    in_chunks = True

    def __init__(
        self, connection: Connection, layout: TableLayout, *, counts_trimmed: bool
    ) -> None:
        self.schema = layout.schema
        self._connection = connection
        self._layout = layout
        self._counts_trimmed = counts_trimmed
        self._bounds: list[tuple[int, int, int]] = []
        self.row_count = 0
        for tablet in layout.tablets:
            first, past = reads.bounds(connection, layout, tablet.index)
            self._bounds.append((first, past, self.row_count - first))
            self.row_count += past - first

    def place(self, indexes: dict[str, int]) -> int:
        _check_indexes(indexes, {"chunk_index", "tablet_index", "row_index"}, "ordered dynamic")
        if "chunk_index" in indexes:
            return self._first_of_chunk(indexes["chunk_index"])
        number = indexes.get("tablet_index")
        if number is None:
            return indexes["row_index"]
        if not 0 <= number < len(self._bounds):
            return 0 if number < 0 else self.row_count
        # Inside a tablet rows keep their indexes when the ones before are trimmed.
        first, past, shift = self._bounds[number]
        return min(max(indexes.get("row_index", first), first), past) + shift

    def _first_of_chunk(self, number: int) -> int:
        for tablet, (first, past, shift) in zip(self._layout.tablets, self._bounds, strict=True):
            listed = flushed.chunks(
                self._connection, tablet.tablet_id, trimmed=self._counts_trimmed
            )
            if number < len(listed):
                return min(max(listed[max(number, 0)].first, first), past) + shift
            number -= len(listed)
        return self.row_count

    def keys(self) -> Sequence[bytes]:
        return ()

    def read(self, wanted: Range) -> Iterator[list[Row]]:
        layout = self._layout
        for index, (first, past, shift) in enumerate(self._bounds):
            start, end = max(wanted.start - shift, first), min(wanted.end - shift, past)
            for rows in reads.ordered_rows(self._connection, layout, index, start, end):
                found = StoredRows(layout.columns, rows.arrays, len(rows.timestamps))
                for begin in range(0, len(found), _ROWS_PER_FETCH):
                    yield list(found[begin : begin + _ROWS_PER_FETCH])

    def pieces(self) -> list[Piece]:
        found = []
        states = attributes.tablets(self._connection, self._layout)
        known = zip(self._layout.tablets, states, self._bounds, strict=True)
        for tablet, state, (first, past, shift) in known:
            listed = flushed.chunks(self._connection, tablet.tablet_id)
            ends = [chunk.past for chunk in listed if chunk.past > first]
            weight = state["statistics"]["uncompressed_data_size"]
            begin = first
            for end in [*ends, past]:
                share = weight * (end - begin) // max(past - first, 1)
                if end > begin:
                    found.append(Piece(begin + shift, end + shift, share))
                begin = end
        return found

    def limits(self, start: int, end: int) -> dict[str, Any]:
        ends = [past + shift for _, past, shift in self._bounds]
        index = bisect_right(ends, start)
        shift = self._bounds[index][2]
        return {
            limit: {"tablet_index": index, "row_index": row - shift}
            for limit, row in (("lower_limit", start), ("upper_limit", end))
        }


Source = _StaticRows | _SortedRows | _OrderedRows
"""The rows of a table, of any kind.

`place` finds the row that indexes of tablets, chunks or rows name, `keys` are encoded and in order, `pieces`
are chunks, and `limits` spells a range inside of a piece as paths do. `in_chunks`: readers learn of bounds.
"""


def _check_indexes(indexes: dict[str, int], taken: set[str], kind: str) -> None:
    refused = indexes.keys() - taken
    if refused:
        raise YtError(f'Cannot use "{min(refused)}" limits for a {kind} table; use "key"')
    if "chunk_index" in indexes and "row_index" in indexes:
        raise YtError('Cannot use "chunk_index" and "row_index" in one limit')
