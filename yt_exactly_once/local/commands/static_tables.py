"""Commands on whole tables and files: read, write, concatenate and partition them.

Static tables are read and written here; dynamic ones can be read like static ones. Partitions are parts of
tables of about one weight, for readers that work side by side.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from sqlite3 import Connection
from typing import Any

from yt import yson

from yt_exactly_once.local import arguments, support
from yt_exactly_once.local.commands import whole_tables
from yt_exactly_once.local.commands.registry import Context, Item, Rows, Stream, command
from yt_exactly_once.local.commands.sessions import (
    conversions_of,
    note_access,
    once,
    path_of,
    view_of,
)
from yt_exactly_once.local.commands.whole_tables import Piece, Source, allowed
from yt_exactly_once.local.cypress import (
    chunks,
    clock,
    limits,
    locks,
    master_transactions,
    quotas,
    tree,
    ypath,
)
from yt_exactly_once.local.cypress.view import Node, View
from yt_exactly_once.local.cypress.ypath import YPath
from yt_exactly_once.local.errors import Code, YtError
from yt_exactly_once.local.ql import computed
from yt_exactly_once.local.static import rows as static_rows
from yt_exactly_once.local.static import uploads
from yt_exactly_once.local.static.rows import Range
from yt_exactly_once.local.tables.schema import Column

_MODES = ("ordered", "unordered")
_LIMITS = ("ranges", "lower_limit", "upper_limit", "exact")


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
    support.check_path(path.attributes)
    with context.proxy.store.read() as connection:
        view = view_of(context, connection)
        _, upload = _upload(view, path)
    columns = [column.to_yson() for column in upload.schema.columns]
    rows = _rows_to_write(context, columns)
    with context.proxy.store.write() as connection:
        master_transactions.expire(connection)
        view = view_of(context, connection)
        node, upload = _upload(view, path)
        locks.acquire(view, node.id, upload.lock_mode)
        quotas.check(view, node.id, "chunk_count", "disk_space", more=1)
        static_rows.write(
            view,
            node.id,
            upload.schema,
            rows,
            append=upload.append,
            compute=computed.fill,
            conversions=conversions_of(context),
        )
        schema = upload.schema.to_yson()
        view.put_attributes(node.id, {"schema": schema, "schema_mode": upload.schema_mode})
        clock.touch(view, node.id, "content")
    return {}


def _rows_to_write(context: Context, columns: list[Any]) -> Sequence[Any]:
    try:
        rows = context.read_rows(columns or None)
        # What is wrong in them is to be said here.
        return rows if len(rows) else []
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
    partial="answers in YSON, JSON and Arrow only;"
    " of a mounted dynamic table rows are read that a real one might not have flushed yet",
)
def read_table(context: Context) -> Any:
    """Read the rows of a table, or the ranges and columns that the path selects, as they are sent."""
    path = path_of(context)
    control = arguments.mapping(context.parameters.get("control_attributes") or {}, "control")
    columns = whole_tables.chosen(path)
    counts_trimmed = context.proxy.features[whole_tables.COUNTS_TRIMMED]
    known: list[Column] = []

    def read(connection: Connection) -> Iterator[Any]:
        view = view_of(context, connection)
        source = whole_tables.opened(view, path, counts_trimmed=counts_trimmed)
        note_access(context, tree.reach(view, path).id)
        known.extend(
            column for column in source.schema.columns if columns is None or column.name in columns
        )
        ranges = whole_tables.ranges(source, path)
        context.response_parameters["approximate_row_count"] = sum(
            _whole_pieces(source, wanted)
            if wanted.by_key and source.in_chunks
            else wanted.end - wanted.start
            for wanted in ranges
        )
        first = next((wanted.start for wanted in ranges if wanted.end > wanted.start), None)
        if first is not None:
            context.response_parameters["start_row_index"] = first
        return _answer(source, ranges, control, columns)

    rows = _streamed(context, read)
    return Rows(rows, tuple(known))


def _whole_pieces(source: Source, wanted: Range) -> int:
    """Return how many rows the chunks have that hold a range; what is known without keys."""
    return sum(
        piece.end - piece.start
        for piece in source.pieces()
        if max(wanted.start, piece.start) < min(wanted.end, piece.end)
    )


@command("concatenate", volatile=True)
@once
def concatenate(context: Context, connection: Connection) -> None:
    """Put the chunks of several files or tables into one."""
    sources = context.parameters.get("source_paths")
    if not isinstance(sources, list):
        raise YtError('Error parsing parameter "source_paths": expected a list')
    target = path_of(context, "destination_path")
    append = arguments.flag(dict(target.attributes), "append")
    parsed = [ypath.parse(source, "source_paths") for source in sources]
    view = view_of(context, connection)
    views = [
        view
        if path.attributes.get("transaction_id") is None
        else master_transactions.view_of(
            connection, path.attributes["transaction_id"], context.user
        )
        for path in parsed
    ]
    nodes = [
        *(allowed(*pair, "read", None) for pair in zip(views, parsed, strict=True)),
        allowed(view, target, "write", None),
    ]
    if len({node.type for node in nodes}) > 1 or nodes[0].type not in {"file", "table"}:
        raise YtError("Files can be joined with files only, and tables with tables")
    if any(node.attributes.get("dynamic") for node in nodes):
        raise YtError("Dynamic tables cannot be joined")
    *sources, result = nodes
    after = uploads.schema_after(result, sources, append) if result.type == "table" else None
    is_sorted = after is not None and after[0].is_sorted
    shared = append and not is_sorted
    locks.acquire(view, result.id, locks.SHARED if shared else locks.EXCLUSIVE)
    listed = [chunks.chunks(*pair) for pair in zip(views, [s.id for s in sources], strict=True)]
    joined = [chunk for each in listed for chunk in each]
    if is_sorted:
        schemas = [static_rows.schema_of(node.attributes) for node in sources]
        joined = static_rows.in_order(view, result, schemas, joined, append=append)
    if append:
        chunks.begin_append(view, result.id)
        chunks.add_refs(view, result.id, [chunk.id for chunk in joined])
    else:
        chunks.replace(view, result.id, joined)
    if after is not None:
        view.put_attributes(result.id, {"schema": after[0].to_yson(), "schema_mode": after[1]})
    clock.touch(view, result.id, "content")


@command("parse_ypath")
def parse_ypath(context: Context) -> Any:
    """Return a path with its rich parts as attributes."""
    return {"path": yson.to_yson_type(*ypath.split(context.parameters.get("path"), "path"))}


def _upload(view: View, path: YPath) -> tuple[Node, uploads.Upload]:
    """Return the static table that a path leads to, and what is written to it."""
    node = allowed(view, path, "write")
    if node.attributes.get("dynamic"):
        raise YtError(
            f"Cannot write to dynamic table {node.path} with write_table; use insert_rows"
        )
    upload = uploads.plan(path, node.attributes, static_rows.row_count(view, node.id))
    limits.check_order(view, upload.schema)
    computed.check(upload.schema, dynamic=False)
    return node, upload


def _answer(
    source: Source,
    ranges: Sequence[Range],
    control: Mapping[str, Any],
    columns: Sequence[str] | None,
) -> Iterator[Any]:
    for number, wanted in enumerate(ranges):
        if wanted.start == wanted.end:
            continue
        if control.get("enable_range_index"):
            yield yson.to_yson_type(None, {"range_index": number})
        if control.get("enable_row_index"):
            yield yson.to_yson_type(None, {"row_index": wanted.start})
        for rows in source.read(wanted):
            if columns is None:
                yield from rows
            else:
                yield from ({name: row[name] for name in columns if name in row} for row in rows)


@command("write_file", input_type="binary", volatile=True, heavy=True)
def write_file(context: Context) -> Any:
    """Replace the content of a file, or append to it with `<append=%true>`."""
    path = path_of(context)
    append = arguments.flag(dict(path.attributes), "append")
    pieces = list(context.read_bytes())
    with context.proxy.store.write() as connection:
        master_transactions.expire(connection)
        view = view_of(context, connection)
        node_id = allowed(view, path, "write", "file").id
        locks.acquire(view, node_id, locks.SHARED if append else locks.EXCLUSIVE)
        quotas.check(view, node_id, "chunk_count", "disk_space", more=1)
        chunks.write(view, node_id, [(piece, 0) for piece in pieces], append=append)
        clock.touch(view, node_id, "content")
    return {}


@command("read_file", output_type="binary", heavy=True)
def read_file(context: Context) -> Iterator[bytes]:
    """Read a file, or the part of it between `offset` and `offset + length`."""
    path = path_of(context)
    offset = arguments.integer(context.parameters, "offset", 0)
    length = arguments.integer(context.parameters, "length", None)
    if offset < 0 or (length is not None and length < 0):
        raise YtError('Parameters "offset" and "length" must not be negative')

    def read(connection: Connection) -> Iterator[bytes]:
        view = view_of(context, connection)
        node = allowed(view, path, "read", "file")
        context.etag = f"{node.id}:{node.attributes['revision']}"
        context.response_parameters["id"] = node.id
        note_access(context, node.id)
        return chunks.iterate(view, node.id, offset, length)

    return _streamed(context, read)


def _streamed(context: Context, read: Callable[[Connection], Iterator[Item]]) -> Stream[Item]:
    """Return a stream that reads one state of the store; what `read` checks at once fails it whole."""
    snapshot = context.proxy.store.snapshot()
    try:
        return Stream(read(snapshot.connection), snapshot.close)
    except BaseException:
        snapshot.close()
        raise


@command(
    "partition_tables",
    partial="weights of chosen columns are estimated; sorted dynamic tables are cut evenly",
)
def partition_tables(context: Context) -> dict[str, Any]:
    """Cut tables into partitions, chunk by chunk; a chunk that weighs too much is cut by rows."""
    parameters = context.parameters
    mode = str(parameters.get("partition_mode", "unordered"))
    if mode not in _MODES:
        raise YtError(f'Partition mode "{mode}" is not supported; use one of {_MODES}')
    if not isinstance(parameters.get("paths"), list):
        raise YtError('Error parsing parameter "paths": expected a list')
    weight = arguments.integer(parameters, "data_weight_per_partition")
    if weight < 1:
        raise YtError('"data_weight_per_partition" must be positive')
    most = arguments.integer(parameters, "max_partition_count", None)
    adjust = arguments.flag(parameters, "adjust_data_weight_per_partition", True)
    paths = [ypath.parse(path, "paths") for path in parameters["paths"]]
    with context.proxy.store.read() as connection:
        view = view_of(context, connection)
        counts_trimmed = context.proxy.features[whole_tables.COUNTS_TRIMMED]
        sources = [whole_tables.opened(view, path, counts_trimmed=counts_trimmed) for path in paths]
        slices = [
            (number, piece)
            for number, (path, source) in enumerate(zip(paths, sources, strict=True))
            for piece in _slices(source, path, weight)
        ]
        total = sum(piece.weight for _, piece in slices)
        count = -(-total // weight)
        if most is not None and adjust:
            count = min(count, most)
        parts = list(_parts(slices, total, count))
        if most is not None and len(parts) > most:
            raise YtError("Maximum partition count exceeded", limit=most)
        return {"partitions": [_shown(part, paths, sources) for part in parts]}


def _slices(source: Source, path: YPath, limit: int) -> Iterator[Piece]:
    """Yield the chosen rows, cut where chunks end and where they weigh more than the limit."""
    columns = whole_tables.chosen(path)
    all_columns = len(source.schema.columns)
    kept = all_columns if columns is None or not all_columns else min(len(columns), all_columns)
    pieces = source.pieces()
    for wanted in whole_tables.ranges(source, path):
        for piece in pieces:
            start, end = max(piece.start, wanted.start), min(piece.end, wanted.end)
            if start >= end:
                continue
            weight = piece.weight * (end - start) // (piece.end - piece.start)
            weight = max(weight * kept // max(all_columns, 1), 1) if all_columns else weight
            rows = end - start
            number = min(-(-weight // limit), rows)
            for index in range(number):
                first, past = (start + rows * at // number for at in (index, index + 1))
                yield Piece(first, past, weight * (past - first) // rows)


def _parts(
    slices: Sequence[tuple[int, Piece]], total: int, count: int
) -> Iterator[list[tuple[int, Piece]]]:
    """Deal slices out in order, so that every part gets its share of what is left."""
    part: list[tuple[int, Piece]] = []
    got = 0
    for item in slices:
        part.append(item)
        got += item[1].weight
        if count > 1 and got * count >= total:
            yield part
            part, total, count, got = [], total - got, count - 1, 0
    if part:
        yield part


def _shown(
    part: Sequence[tuple[int, Piece]], paths: Sequence[YPath], sources: Sequence[Source]
) -> dict[str, Any]:
    table_ranges = []
    for number, (path, source) in enumerate(zip(paths, sources, strict=True)):
        joined: list[dict[str, Any]] = []
        past = -1
        for piece in (piece for owner, piece in part if owner == number):
            limits = source.limits(piece.start, piece.end)
            lower, upper = limits["lower_limit"], limits["upper_limit"]
            follows = piece.start == past and lower.get("tablet_index") == (
                joined[-1]["upper_limit"].get("tablet_index")
            )
            if follows:
                joined[-1] = {**joined[-1], "upper_limit": upper}
            else:
                joined.append(limits)
            past = piece.end
        kept = {name: value for name, value in path.attributes.items() if name not in _LIMITS}
        table_ranges.append(yson.to_yson_type(path.text, {**kept, "ranges": joined}))
    return {
        "table_ranges": table_ranges,
        "aggregate_statistics": {
            "chunk_count": len(part),
            "data_weight": sum(piece.weight for _, piece in part),
            "row_count": sum(piece.end - piece.start for _, piece in part),
        },
    }
