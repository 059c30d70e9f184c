"""Methods whose rows or bytes travel as a stream: whole tables and files.

A stream consists of blocks. Blocks of rows are packed: a count, and each part with its length; the names of
columns come with the first block that uses them.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from contextlib import closing
from itertools import islice
from typing import Any

from yt_exactly_once.local.commands import whole_tables
from yt_exactly_once.local.commands.registry import REGISTRY, Context
from yt_exactly_once.local.commands.sessions import path_of
from yt_exactly_once.local.errors import YtError
from yt_exactly_once.local.formats.row_formats import with_indexes
from yt_exactly_once.local.rpc import message_types, options
from yt_exactly_once.local.rpc.calls import Call, method
from yt_exactly_once.local.rpc.rows import rowset_writer, rowsets, schemas
from yt_exactly_once.local.tables.schema import TableSchema, parse_schema

_ROWS_PER_BLOCK = 5000
_WIRE_FORMAT = 0
_ONLY_WIRE = "Rows of tables go in the wire format only in the embedded cluster"
_INDEXES = ("range_index", "row_index")


def _table_read(request: Any) -> dict[str, Any]:
    if request.desired_rowset_format != _WIRE_FORMAT or request.HasField("format"):
        raise YtError(_ONLY_WIRE)
    control = {f"enable_{name}": True for name in _INDEXES if getattr(request, f"enable_{name}")}
    return options.parameters(request, config="table_reader") | {"control_attributes": control}


@method("ReadTable", "read_table", _table_read, direction="read", partial="in the wire format only")
def read_table(call: Call) -> Iterator[bytes]:
    """Read a table, or the part that the path selects."""
    schema = _schema(call)
    return _table_blocks(call, schema, call.execute().rows)


def _table_blocks(call: Call, schema: TableSchema, found: Any) -> Iterator[bytes]:
    said = call.context.response_parameters
    total = said["approximate_row_count"]
    yield _dumped(
        "TRspReadTableMeta",
        start_row_index=said.get("start_row_index", 0),
        schema=schemas.of_table(schema),
        statistics=_statistics(total),
    )
    writer = rowset_writer.LooseWriter(schema.columns)
    with closing(found):
        rows = with_indexes(found)
        while batch := list(islice(rows, _ROWS_PER_BLOCK)):
            yield _block(writer, batch, total)
        yield _block(writer, [], total)


def _block(writer: rowset_writer.LooseWriter, rows: Sequence[dict[str, Any]], total: int) -> bytes:
    encoded, names = writer.encode(rows)
    entries = [{"name": name} for name in names]
    descriptor = _dumped("TRowsetDescriptor", wire_format_version=1, name_table_entries=entries)
    body = _pack([descriptor, encoded])
    return _pack([body, _dumped("TRowsetStatistics", **_statistics(total))])


def _statistics(total: int) -> dict[str, Any]:
    return {"total_row_count": total, "data_statistics": {"row_count": total}}


def _dumped(message: str, **values: Any) -> bytes:
    return message_types.dump(options.fill(message_types.new(message), values))


def _pack(parts: Sequence[bytes]) -> bytes:
    pieces = [struct.pack("<i", len(parts))]
    for part in parts:
        pieces += [struct.pack("<q", len(part)), part]
    return b"".join(pieces)


def _unpack(block: bytes) -> list[bytes]:
    try:
        (count,) = struct.unpack_from("<i", block)
        position, parts = 4, []
        for _ in range(count):
            (length,) = struct.unpack_from("<q", block, position)
            position += 8
            if not 0 <= length <= len(block) - position:
                raise YtError("A block of rows ends in the middle of a part")
            parts.append(block[position : position + length])
            position += length
    except struct.error as error:
        raise YtError("A block of rows ends in the middle of a part") from error
    return parts


def _write_opening(call: Call) -> list[bytes]:
    """Return what a writer must know before it sends rows."""
    return [_dumped("TWriteTableMeta", schema=schemas.of_table(_schema(call)))]


def _table_written(request: Any) -> dict[str, Any]:
    if request.HasField("format"):
        raise YtError(_ONLY_WIRE)
    return options.parameters(request)


@method("WriteTable", "write_table", _table_written, direction="write", opening=_write_opening)
def write_table(call: Call) -> None:
    """Write the rows that have come as a stream."""
    names: list[str] = []
    rows: list[dict[str, Any]] = []
    for block in filter(None, call.attachments):
        parts = _unpack(block)
        if len(parts) != 2:  # noqa: PLR2004 - a descriptor and rows
            raise YtError("A block of rows must have two parts")
        descriptor = message_types.parse("TRowsetDescriptor", parts[0])
        names += schemas.names(descriptor)
        rows += rowsets.decode(parts[1], names).rows
    call.context.read_rows = lambda _schema=None: rows
    call.execute()


def _schema(call: Call) -> TableSchema:
    """Return the schema of the table, with the columns that the path chooses."""
    path = path_of(call.context)
    schema = parse_schema(_got(call, "schema"))
    chosen = whole_tables.chosen(path)
    if chosen is None:
        return schema
    columns = tuple(column for column in schema.columns if column.name in chosen)
    return TableSchema(columns, strict=schema.strict)


def _got(call: Call, attribute: str) -> Any:
    """Return an attribute of what the path leads to; refuse a path that leads nowhere."""
    given = call.context
    parameters = {**given.parameters, "path": f"{path_of(given).text}/@{attribute}"}
    context = Context(given.proxy, "get", parameters, given.user)
    return REGISTRY["get"].handler(context)["value"]


@method("ReadFile", "read_file", direction="read")
def read_file(call: Call) -> Iterator[bytes]:
    """Read a file, or a part of it."""
    return _file_blocks(call, call.execute())


def _file_blocks(call: Call, pieces: Any) -> Iterator[bytes]:
    node_id, _, revision = str(call.context.etag).partition(":")
    yield _dumped("TReadFileMeta", id=node_id, revision=revision)
    with closing(pieces):
        yield from filter(None, pieces)


def _check_file(call: Call) -> list[bytes]:
    """Refuse a path that leads nowhere before the client sends its bytes."""
    _got(call, "id")
    return []


@method("WriteFile", "write_file", direction="write", opening=_check_file)
def write_file(call: Call) -> None:
    """Write the bytes that have come as a stream."""
    pieces = [block for block in call.attachments if block]
    call.context.read_bytes = lambda: iter(pieces)
    call.execute()
