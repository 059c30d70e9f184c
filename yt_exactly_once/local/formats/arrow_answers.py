"""Arrow as an output format: rows become one IPC stream, with the types that the real writer chooses.

Composite values are binary YSON and say so in the metadata of their field. Rules:
`yt/yt/library/formats/arrow_writer.cpp`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from io import BytesIO
from itertools import islice
from typing import Any

import pyarrow as pa

from yt_exactly_once.local.errors import YtError
from yt_exactly_once.local.formats.row_formats import with_indexes
from yt_exactly_once.local.tables import values
from yt_exactly_once.local.tables.schema import Column

_ROWS_PER_BATCH = 10_000
_END = b"\0\0\0\0"
_YSON = {"YtType": "yson"}
_PLAIN = (f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))
_TYPES = {
    **{name: pa.type_for_alias(name) for name in _PLAIN},
    "interval": pa.int64(),
    "date": pa.date32(),
    "datetime": pa.timestamp("s"),
    "timestamp": pa.timestamp("us"),
    "float": pa.float32(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "string": pa.binary(),
    "any": pa.binary(),
    "utf8": pa.string(),
    "json": pa.string(),
    "null": pa.null(),
    "void": pa.null(),
}
_INDEXES = [
    Column(name, "int64", "int64", required=False) for name in ("$range_index", "$row_index")
]


def dump(rows: Iterable[dict[str, Any] | None], columns: Sequence[Column]) -> Iterator[bytes]:
    """Yield rows as a stream, batch by batch; without rows it has only its end.

    Args:
        rows: marks between them become columns; rows that were not found are left out.
        columns: what the stream has, in order.

    Raises:
        YtError: the writer has no Arrow type for a column.
    """
    found = with_indexes(row for row in rows if row is not None)
    batch = list(islice(found, _ROWS_PER_BATCH))
    given = [column for column in _INDEXES if batch and column.name in batch[0]]
    columns = [*columns, *given]
    schema = pa.schema([_field(column) for column in columns])
    sink = BytesIO()
    writer = pa.ipc.new_stream(sink, schema)
    while batch:
        arrays = [_array(column, [row.get(column.name) for row in batch]) for column in columns]
        writer.write_batch(pa.record_batch(arrays, schema=schema))
        yield sink.getvalue()
        sink.seek(0)
        sink.truncate()
        batch = list(islice(found, _ROWS_PER_BATCH))
    yield _END


def _field(column: Column) -> Any:
    if column.wire_type not in _TYPES:
        raise YtError(f'Type "{column.wire_type}" is not currently supported by Arrow encoder')
    metadata = _YSON if column.wire_type == "any" else None
    kind = _TYPES[column.wire_type]
    return pa.field(column.name, kind, nullable=not column.required, metadata=metadata)


def _array(column: Column, given: list[Any]) -> Any:
    if column.wire_type == "any":
        given = [None if value is None else values.dump_yson(value) for value in given]
    return pa.array(given, _TYPES[column.wire_type])
