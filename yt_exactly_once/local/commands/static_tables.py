"""Commands that read and write whole tables: read_table, write_table, concatenate.

Static tables are read and written here; dynamic ones can be read like static ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from yt import yson

from yt_exactly_once.local import arguments
from yt_exactly_once.local.commands import streams
from yt_exactly_once.local.commands.cypress import path_of, view_of
from yt_exactly_once.local.commands.mutations import run_once
from yt_exactly_once.local.commands.registry import Context, Rows, command
from yt_exactly_once.local.commands.sessions import check_moments
from yt_exactly_once.local.cypress import (
    chunks,
    clock,
    locks,
    master_transactions,
    rich_path,
    tree,
    ypath,
)
from yt_exactly_once.local.errors import Code, YtError
from yt_exactly_once.local.ql import computed
from yt_exactly_once.local.static import rows as static_rows
from yt_exactly_once.local.static import uploads
from yt_exactly_once.local.tables import values
from yt_exactly_once.local.tables.vectors import StoredRows
from yt_exactly_once.local.tablets import flushed, reads
from yt_exactly_once.local.tablets.catalog import load_layout

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator, Mapping, Sequence

    from yt_exactly_once.local.cypress.view import Node, View
    from yt_exactly_once.local.cypress.ypath import YPath
    from yt_exactly_once.local.static.rows import Range, Row
    from yt_exactly_once.local.tables.layout import TableLayout
    from yt_exactly_once.local.tables.schema import Column, TableSchema

_ROWS_PER_FETCH = 1000


@command(
    "write_table",
    input_type="tabular",
    volatile=True,
    heavy=True,
    partial="static tables only; codecs and writer options are ignored; column names are UTF-8",
)
def write_table(context: Context) -> Any:
    """Replace the rows of a static table, or append to it with `<append=%true>`."""
    path = path_of(context)
    with context.proxy.store.read() as connection:
        view = view_of(context, connection)
        upload = _upload(view, _static(view, path), path)
    columns = [column.to_yson() for column in upload.schema.columns]
    rows = _rows_to_write(context, columns)
    with context.proxy.store.write() as connection:
        master_transactions.expire(connection)
        view = view_of(context, connection)
        node = _static(view, path)
        upload = _upload(view, node, path)
        locks.acquire(view, node.id, upload.lock_mode)
        static_rows.write(
            view, node.id, upload.schema, rows, append=upload.append, compute=computed.fill
        )
        if upload.schema != static_rows.schema_of(node.attributes):
            view.put_attribute(node.id, "schema", upload.schema.to_yson())
        if upload.schema_mode != node.attributes["schema_mode"]:
            view.put_attribute(node.id, "schema_mode", upload.schema_mode)
        clock.touch(view, node.id, "content")
    return {}


def _rows_to_write(context: Context, columns: list[Any]) -> list[Any]:
    try:
        return list(context.read_rows(columns or None))
    except YtError as error:
        if error.code != Code.DUPLICATE_COLUMN:
            raise
        # Chunk writers find it, and say it in their own way.
        name = error.attributes["column_name"]
        raise YtError(f'Duplicate "{name}" column in unversioned row') from error


@command(
    "read_table",
    output_type="tabular",
    heavy=True,
    partial="answers in YSON, JSON, DSV only;"
    " of a mounted dynamic table rows are read that a real one might not have flushed yet",
)
def read_table(context: Context) -> Any:
    """Read the rows of a table, or the ranges and columns that the path selects, as they are sent."""
    path = path_of(context)
    control = arguments.mapping(context.parameters.get("control_attributes") or {}, "control")
    columns = _chosen(path)
    known: list[Column] = []

    def read(connection: sqlite3.Connection) -> Iterator[Any]:
        view = view_of(context, connection)
        node = _table(view, path)
        if node.attributes.get("dynamic"):
            layout = _layout(connection, node, path)
            kind = _SortedRows if layout.sorted else _OrderedRows
            source: _Source = kind(connection, layout)
        else:
            source = _StaticRows(view, node)
        known.extend(source.schema.columns)
        selectors = _selectors(path)
        ranges = static_rows.find_ranges(
            selectors, source.row_count, source.schema, source.keys, source.place
        )
        context.response_parameters["approximate_row_count"] = sum(
            source.rounded(wanted) if wanted.by_key else wanted.end - wanted.start
            for wanted in ranges
        )
        first = next((wanted.start for wanted in ranges if wanted.end > wanted.start), None)
        if first is not None:
            context.response_parameters["start_row_index"] = first
        return _answer(source, ranges, control, columns)

    rows = streams.from_snapshot(context.proxy.store, read)
    return Rows(rows, tuple(known))


@command("concatenate", volatile=True, partial="schemas are neither merged nor inferred")
def concatenate(context: Context) -> Any:
    """Put the chunks of several files or tables into one."""
    sources = context.parameters.get("source_paths")
    if not isinstance(sources, list):
        raise YtError('Error parsing parameter "source_paths": expected a list')
    target = path_of(context, "destination_path")
    append = arguments.flag(dict(target.attributes), "append")
    parsed = [ypath.parse(source, "source_paths") for source in sources]

    def change(connection: sqlite3.Connection) -> dict[str, Any]:
        view = view_of(context, connection)
        views = [_source_view(context, connection, path) or view for path in parsed]
        nodes = [_existing(*pair) for pair in [*zip(views, parsed, strict=True), (view, target)]]
        if len({node.type for node in nodes}) > 1 or nodes[0].type not in {"file", "table"}:
            raise YtError("Files can be joined with files only, and tables with tables")
        if any(node.attributes.get("dynamic") for node in nodes):
            raise YtError("Dynamic tables cannot be joined")
        *sources, result = nodes
        is_sorted = result.type == "table" and static_rows.schema_of(result.attributes).is_sorted
        shared = append and not is_sorted
        locks.acquire(view, result.id, locks.SHARED if shared else locks.EXCLUSIVE)
        listed = [chunks.chunks(*pair) for pair in zip(views, _ids(sources), strict=True)]
        joined = [chunk for each in listed for chunk in each]
        if is_sorted:
            schemas = [static_rows.schema_of(node.attributes) for node in sources]
            joined = static_rows.in_order(view, result, schemas, joined, append=append)
        if append:
            chunks.begin_append(view, result.id)
            chunks.add_refs(view, result.id, joined)
        else:
            chunks.replace(view, result.id, joined)
        clock.touch(view, result.id, "content")
        return {}

    return run_once(context, change)


def _ids(nodes: Sequence[Node]) -> list[str]:
    return [node.id for node in nodes]


def _source_view(context: Context, connection: sqlite3.Connection, path: YPath) -> View | None:
    """Return the tree as the transaction of a source sees it, if the path names one."""
    transaction_id = path.attributes.get("transaction_id")
    return (
        None if transaction_id is None else context.proxy.cypress.view(connection, transaction_id)
    )


@command("parse_ypath")
def parse_ypath(context: Context) -> Any:
    """Return a path with its rich parts as attributes."""
    text, attributes = rich_path.split(context.parameters.get("path"), "path")
    parsed = yson.YsonUnicode(text)
    parsed.attributes = attributes
    return {"path": parsed}


def _existing(view: View, path: YPath) -> Node:
    position = tree.walk(view, path)
    if position.rest:
        raise position.missing()
    return tree.load(view, position)


def _table(view: View, path: YPath) -> Node:
    node = _existing(view, path)
    if node.type != "table":
        raise YtError(f'Invalid type of {node.path}: expected "table", actual "{node.type}"')
    return node


def _static(view: View, path: YPath) -> Node:
    node = _table(view, path)
    if node.attributes.get("dynamic"):
        raise YtError(
            f"Cannot write to dynamic table {node.path} with write_table; use insert_rows"
        )
    return node


def _upload(view: View, node: Node, path: YPath) -> uploads.Upload:
    return uploads.plan(path, node.attributes, static_rows.row_count(view, node.id))


def _layout(connection: sqlite3.Connection, node: Node, path: YPath) -> TableLayout:
    """Return a dynamic table as it is, or as it was at the timestamps that the path names."""
    layout = load_layout(connection, node.id, node.path)
    timestamp, since = (
        arguments.integer(dict(path.attributes), name, None, unsigned=True)
        for name in ("timestamp", "retention_timestamp")
    )
    check_moments(timestamp, since)
    if timestamp is None and since is None:
        return layout
    if not layout.sorted:
        raise YtError(f"Cannot read ordered table {node.path} at a timestamp")
    return reads.layout_at(connection, layout, timestamp, since) or layout


class _Source(Protocol):
    """The rows of a table, of any kind, in batches."""

    schema: TableSchema
    row_count: int

    def place(self, indexes: dict[str, int]) -> int:
        """Return the row that indexes of tablets, chunks or rows name.

        Raises:
            YtError: rows of such a table are not found by these indexes.
        """

    def keys(self) -> Sequence[bytes]:
        """Return the encoded keys of all rows, in order; of sorted tables only."""

    def read(self, wanted: Range) -> Iterator[list[Row]]:
        """Yield the rows of a range."""

    def rounded(self, wanted: Range) -> int:
        """Return how many rows the pieces have that hold a range; what is known without keys."""


class _StaticRows:
    def __init__(self, view: View, node: Node) -> None:
        self.schema = static_rows.schema_of(node.attributes)
        self._connection = view.connection
        self._chunks = chunks.chunks(view, node.id)
        self.row_count = sum(chunk.row_count for chunk in self._chunks)

    def place(self, indexes: dict[str, int]) -> int:
        _check_indexes(indexes, {"chunk_index", "row_index"}, "static")
        before = self._chunks[: max(indexes.get("chunk_index", 0), 0)]
        return (
            sum(chunk.row_count for chunk in before)
            if "chunk_index" in indexes
            else indexes["row_index"]
        )

    def keys(self) -> Sequence[bytes]:
        everything = self.read(static_rows.Range(0, self.row_count))
        return [key for rows in everything for key in static_rows.encode_keys(self.schema, rows)]

    def read(self, wanted: Range) -> Iterator[list[Row]]:
        return static_rows.read(self._connection, self._chunks, wanted)

    def rounded(self, wanted: Range) -> int:
        found = passed = 0
        for chunk in self._chunks:
            if max(wanted.start, passed) < min(wanted.end, passed + chunk.row_count):
                found += chunk.row_count
            passed += chunk.row_count
        return found


class _SortedRows:
    def __init__(self, connection: sqlite3.Connection, layout: TableLayout) -> None:
        self.schema = layout.schema
        self._connection = connection
        self._layout = layout
        (self.row_count,) = connection.execute(
            f"SELECT count(*) FROM {layout.sql_source}"
        ).fetchone()

    def place(self, indexes: dict[str, int]) -> int:
        _check_indexes(indexes, set(), "sorted dynamic")
        return 0

    def keys(self) -> Sequence[bytes]:
        found = self._connection.execute(
            f'SELECT "$key" FROM {self._layout.sql_source} ORDER BY "$key"'
        )
        return [key for (key,) in found]

    def read(self, wanted: Range) -> Iterator[list[Row]]:
        layout = self._layout
        listed = ", ".join(layout.sql_column(column.name) for column in layout.columns)
        cursor = self._connection.execute(
            f'SELECT {listed} FROM {layout.sql_source} ORDER BY "$key" LIMIT ? OFFSET ?',
            (wanted.end - wanted.start, wanted.start),
        )
        while stored := cursor.fetchmany(_ROWS_PER_FETCH):
            yield values.decode_rows(layout.columns, stored)

    def rounded(self, wanted: Range) -> int:
        return wanted.end - wanted.start


class _OrderedRows:
    """The rows of all tablets, one tablet after the other."""

    def _first_of_chunk(self, number: int) -> int:
        passed = 0
        for tablet, (first, past) in zip(self._layout.tablets, self._bounds, strict=True):
            listed = flushed.all_chunks(self._connection, tablet.tablet_id)
            if number < len(listed):
                return passed + min(max(listed[max(number, 0)].first, first), past) - first
            number -= len(listed)
            passed += past - first
        return passed

    def __init__(self, connection: sqlite3.Connection, layout: TableLayout) -> None:
        self.schema = layout.schema
        self._connection = connection
        self._layout = layout
        self._bounds = [reads.bounds(connection, layout, tablet.index) for tablet in layout.tablets]
        self.row_count = sum(past - first for first, past in self._bounds)

    def place(self, indexes: dict[str, int]) -> int:
        _check_indexes(indexes, {"chunk_index", "tablet_index", "row_index"}, "ordered dynamic")
        if "chunk_index" in indexes:
            return self._first_of_chunk(indexes["chunk_index"])
        number = indexes.get("tablet_index")
        if number is None:
            return indexes["row_index"]
        passed = sum(past - first for first, past in self._bounds[: max(number, 0)])
        if "row_index" not in indexes or not 0 <= number < len(self._bounds):
            return passed
        # Inside a tablet rows keep their indexes when the ones before are trimmed.
        first, past = self._bounds[number]
        return passed + min(max(indexes["row_index"], first), past) - first

    def keys(self) -> Sequence[bytes]:
        return ()

    def read(self, wanted: Range) -> Iterator[list[Row]]:
        layout, passed = self._layout, 0
        for index, (first, past) in enumerate(self._bounds):
            start = max(first + wanted.start - passed, first)
            end = min(first + wanted.end - passed, past)
            for rows in reads.ordered_rows(self._connection, layout, index, start, end):
                found = StoredRows(layout.columns, rows.arrays, rows.past - rows.first)
                for begin in range(0, len(found), _ROWS_PER_FETCH):
                    yield list(found[begin : begin + _ROWS_PER_FETCH])
            passed += past - first

    def rounded(self, wanted: Range) -> int:
        return wanted.end - wanted.start


def _check_indexes(indexes: dict[str, int], taken: set[str], kind: str) -> None:
    refused = indexes.keys() - taken
    if refused:
        raise YtError(f'Cannot use "{min(refused)}" limits for a {kind} table; use "key"')
    if "chunk_index" in indexes and "row_index" in indexes:
        raise YtError('Cannot use "chunk_index" and "row_index" in one limit')


def _answer(
    source: _Source,
    ranges: Sequence[Range],
    control: Mapping[str, Any],
    columns: Sequence[str] | None,
) -> Iterator[Any]:
    for number, wanted in enumerate(ranges):
        if wanted.start == wanted.end:
            continue
        if control.get("enable_range_index"):
            yield _control("range_index", number)
        if control.get("enable_row_index"):
            yield _control("row_index", wanted.start)
        for rows in source.read(wanted):
            if columns is None:
                yield from rows
            else:
                for row in rows:
                    yield {name: row[name] for name in columns if name in row}


def _selectors(path: YPath) -> Any:
    """Return the ranges of a path; older clients give one range as limits of the path itself."""
    if "ranges" in path.attributes:
        return path.attributes["ranges"]
    limits = {
        name: path.attributes[name]
        for name in ("lower_limit", "upper_limit", "exact")
        if name in path.attributes
    }
    return [limits] if limits else None


def _chosen(path: YPath) -> list[str] | None:
    columns = path.attributes.get("columns")
    if columns is None:
        return None
    if not isinstance(columns, list):
        raise YtError('Error parsing path attribute "columns": expected a list')
    return [str(name) for name in columns]


def _control(name: str, value: int) -> Any:
    entity = yson.YsonEntity()
    entity.attributes = {name: value}
    return entity
