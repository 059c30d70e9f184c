"""Rows as bytes: the payload of one insert request, and pulled rows as an Arrow batch.

Payloads are complete: one Arrow IPC stream, or one binary YSON list fragment. Values are exact or
there is an `EncodingError` that names the column and where the row came from, never the value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from yt_exactly_once.codec import limits, nested, yson_fragments
from yt_exactly_once.codec.buffers import scalar
from yt_exactly_once.codec.matches import is_string
from yt_exactly_once.codec.schema import (
    SOURCE_QUEUE_COLUMN,
    SOURCE_ROW_COLUMN,
    SOURCE_TABLET_COLUMN,
    ColumnSchema,
    WritePlan,
    field_type,
    row_column,
)
from yt_exactly_once.codec.types import plain_scalar_of, scalar_of
from yt_exactly_once.codec.values import IS_NULL, UnfitValueError, check_nulls, first_true
from yt_exactly_once.codec.yson_reader import parse_rows
from yt_exactly_once.codec.yson_scan import scan_rows
from yt_exactly_once.codec.yson_writer import Shape, fragments, stored
from yt_exactly_once.errors import ConfigError, EncodingError

Fragments: TypeAlias = pa.LargeBinaryArray
"""Rows or keys as binary YSON, one fragment each."""

_Positions: TypeAlias = Mapping[str, int | pa.IntegerArray | None]
"""Columns with the position of each row, by name; one number for all rows, or none at all."""

TABLET_INDEX = "$tablet_index"
SEQUENCE_NUMBER = "$sequence_number"

# How an Arrow request says that a binary column holds YSON.
_HOLDS_YSON = {b"YtType": b"yson"}

_LONGEST_SHOWN = 200


# What an error and a rejected row say about a row's source: the column, and the kind it must have.
_COORDINATES: dict[str, tuple[str, Callable[[pa.DataType], bool]]] = {
    SOURCE_QUEUE_COLUMN: ("source_queue", is_string),
    SOURCE_TABLET_COLUMN: ("source_partition", pa.types.is_integer),
    SOURCE_ROW_COLUMN: ("source_row", pa.types.is_integer),
}


class WireFormat(StrEnum):
    """In which format rows are sent."""

    ARROW = "arrow"
    YSON = "yson"


def encode(
    batch: pa.RecordBatch,
    plan: WritePlan,
    wire: WireFormat,
    *,
    tablet_index: int | pa.IntegerArray | None = None,
    sequence_numbers: pa.Int64Array | None = None,
) -> bytes | memoryview:
    """Encode all rows of a batch, in order, as the body of one request.

    Args:
        batch: rows of the DataFrame that was checked; other columns than the plan's are left out.
        plan: from `check_frame`.
        tablet_index: tablet of an ordered table that all the rows go to, or one per row.
        sequence_numbers: one number per row, for a queue producer.

    Raises:
        EncodingError: a value that its column cannot take.
        ConfigError: the format cannot carry one of the columns.
    """
    positions = {TABLET_INDEX: tablet_index, SEQUENCE_NUMBER: sequence_numbers}
    if wire is WireFormat.ARROW:
        payload: bytes | memoryview = _as_arrow(batch, plan, positions)
    else:
        payload = yson_fragments.joined(_as_yson(batch, plan, positions))
    if limits.may_be_heavy(payload, plan) and (heavy := limits.heavy_rows(batch, plan)):
        raise EncodingError(
            f"A row cannot be written: {limits.TOO_HEAVY}",
            remedy="Shorten its strings in the query, filter it out, or give the sink a dead_letter_path",
            target=plan.target,
            **coordinates(batch, heavy[0]),
        )
    return payload


def row_fragments(batch: pa.RecordBatch, plan: WritePlan) -> Fragments:
    """Encode every row on its own, as a fragment of YSON.

    Keys have equal bytes where the cluster takes them for one key (`CompareDoubleValues`: 0.0 is -0.0).

    Raises:
        EncodingError: a value that its column cannot take.
    """
    return _as_yson(batch, plan, {}, key_shape=Shape.KEY)


def encode_empty(plan: WritePlan, wire: WireFormat) -> bytes | memoryview:
    """Encode no rows, to ask what the cluster takes; raise `ConfigError` if the format lacks a type."""
    if wire is WireFormat.YSON:
        return b""
    _require_arrow(plan)
    fields = [_arrow_field(column, _arrow_type(column)) for column in plan.columns]
    return _stream(fields, [pa.nulls(0, field.type) for field in fields])


def _as_arrow(batch: pa.RecordBatch, plan: WritePlan, positions: _Positions) -> memoryview:
    _require_arrow(plan)
    arrays = [_converted(batch, plan, column, WireFormat.ARROW) for column in plan.columns]
    fields = [
        _arrow_field(column, array.type) for column, array in zip(plan.columns, arrays, strict=True)
    ]
    for name, numbers in positions.items():
        if numbers is not None:
            fields.append(pa.field(name, pa.int64()))
            if isinstance(numbers, int):
                arrays.append(pa.repeat(scalar(numbers, pa.int64()), batch.num_rows))
            else:
                arrays.append(numbers.cast(pa.int64()))
    return _stream(fields, arrays)


def _require_arrow(plan: WritePlan) -> None:
    for name, reason in plan.arrow_obstacles.items():
        raise ConfigError(
            f"The column {name} cannot be sent as Arrow: {reason}",
            remedy="Use wire_format='auto', which writes such a table as YSON, or 'yson'",
            target=plan.target,
        )


def _arrow_field(column: ColumnSchema, kind: pa.DataType) -> pa.Field:
    is_plain = plain_scalar_of(column.type) is not None or pa.types.is_nested(kind)
    return pa.field(column.name, kind, metadata=None if is_plain else _HOLDS_YSON)


def _arrow_type(column: ColumnSchema) -> pa.DataType:
    """Return the Arrow type of most requests; composite values may be YSON where others are not."""
    scalar = plain_scalar_of(column.type)
    return scalar.plain if scalar else nested.carrier(column.type) or pa.binary()


def _stream(fields: list[pa.Field], arrays: list[pa.Array]) -> memoryview:
    schema = pa.schema(fields)
    rows = pa.RecordBatch.from_arrays(arrays, schema=schema)
    # Fresh memory costs more than copying: take it once, and not in steps while the stream grows. glibc keeps
    # what was freed for the next batch, see `spark.tuning.memory`; Arrow's own pools may not.
    counter = pa.MockOutputStream()
    _write_stream(rows, counter)
    memory = pa.allocate_buffer(counter.size(), memory_pool=pa.system_memory_pool())
    _write_stream(rows, pa.FixedSizeBufferWriter(memory))
    return memoryview(memory).cast("B")


def _write_stream(rows: pa.RecordBatch, sink: pa.NativeFile) -> None:
    with pa.ipc.new_stream(sink, rows.schema) as stream:
        stream.write_batch(rows)


def _as_yson(
    batch: pa.RecordBatch, plan: WritePlan, positions: _Positions, *, key_shape: Shape = Shape.NAMED
) -> Fragments:
    pieces: yson_fragments.Pieces = [b"{"]
    for name, numbers in positions.items():
        if isinstance(numbers, int):
            pieces.append(_key(name) + yson_fragments.integer_literal(numbers) + b";")
        elif numbers is not None:
            pieces += [_key(name), *yson_fragments.integers(numbers), b";"]
    for column in plan.columns:
        shape = key_shape if column.is_key else Shape.NAMED
        values = _converted(batch, plan, column, WireFormat.YSON, shape)
        pieces += [_key(column.name), yson_fragments.Picked(values), b";"]
    return yson_fragments.join([*pieces, b"};"], batch.num_rows)


def _key(name: str) -> bytes:
    return yson_fragments.string_literal(name.encode()) + b"="


def _short(encoded: pa.Array, column: ColumnSchema) -> pa.Array:
    """Return encoded values as an array that the proxy knows: it knows none with larger offsets."""
    try:
        return encoded.cast(pa.binary())
    except pa.ArrowInvalid:
        raise EncodingError(
            "The values of one column of a chunk are larger than 2 GiB",
            remedy="Lower dyn_batch_size",
            column=column.name,
        ) from None


def check_column(
    batch: pa.RecordBatch, column: ColumnSchema, wire: WireFormat, shape: Shape = Shape.NAMED
) -> pa.Array:
    """Convert one column; raise `UnfitValueError` if one of its values cannot be written."""
    array = column.values_in(batch)
    if column.is_key:
        _check_key(array, column)
    plain = plain_scalar_of(column.type)
    if plain is not None:
        limits.check_given(array)
        if wire is WireFormat.YSON:
            return fragments(array, column.type, shape)
        check_nulls(array, nullable=column.nullable)
        is_null = pa.types.is_null(array.type)
        return pa.nulls(len(array), plain.plain) if is_null else plain.to_plain(array)
    if wire is WireFormat.ARROW and nested.is_carried(array, column.type):
        return nested.carried(array, column.type)
    if wire is WireFormat.YSON:
        encoded = fragments(array, column.type, shape)
        null = pc.equal(encoded, scalar(b"#", encoded.type))
    else:
        encoded = _short(stored(array, column.type, Shape.POSITIONAL), column)
        null = encoded.is_null()
    limits.check_encoded(encoded, array, column)
    # Bytes may be the YSON of null.
    if not column.nullable and (row := first_true(null)) is not None:
        raise UnfitValueError(row, IS_NULL)
    return encoded


def _converted(
    batch: pa.RecordBatch,
    plan: WritePlan,
    column: ColumnSchema,
    wire: WireFormat,
    shape: Shape = Shape.NAMED,
) -> pa.Array:
    """Convert one column; the error names the row of an unfit value and where it came from."""
    try:
        return check_column(batch, column, wire, shape)
    except UnfitValueError as error:
        array = batch.column(column.name)
        shown = None
        if plan.shows_values:
            shown = repr(value_at(array, error.row))[:_LONGEST_SHOWN]
        raise EncodingError(
            f"A value of column {column.name}{error.path}, {array.type} in the DataFrame, cannot be "
            f"written as {column.type}: {error.problem}",
            remedy="Correct the value in the query, filter out its row, or give the sink a dead_letter_path",
            column=column.name,
            target=plan.target,
            value=shown,
            **coordinates(batch, error.row),
        ) from error


def _check_key(array: pa.Array, column: ColumnSchema) -> None:
    key = scalar_of(column.type)
    if key is not None and key.is_floating:
        position = first_true(pc.is_nan(array.cast(pa.float64())))
        if position is not None:
            raise UnfitValueError(position, "NaN cannot be part of a key")


def coordinates(batch: pa.RecordBatch, row: int) -> dict[str, Any]:
    """Name a row by its queue partition and row index there, or by its position in the chunk.

    Columns of these names are ignored when they have another type or appear twice.
    """
    found = {}
    for name, (key, fits) in _COORDINATES.items():
        position = batch.schema.get_field_index(name)
        if position >= 0 and fits(batch.schema.field(position).type):
            found[key] = value_at(batch.column(position), row)
    if {"source_partition", "source_row"} <= found.keys():
        return found
    return {"row_of_chunk": row}


def value_at(array: pa.Array, row: int) -> Any:
    """Return a value for people to read: as Python has it, or as text where Python has no such value."""
    one, kind = array.slice(row, 1), array.type
    if is_string(kind):
        found = one.cast(pa.large_binary())[0].as_py()
        # Strings of Spark need not be text.
        return None if found is None else found.decode("utf-8", "backslashreplace")
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        return one.cast(pa.string())[0].as_py()
    try:
        return one[0].as_py()
    except (OverflowError, ValueError):
        # An instant outside Python's range, or bytes that are no text, inside a composite value.
        return str(one)


def decode(rows: bytes, schema: pa.Schema) -> pa.RecordBatch:
    """Decode pulled rows into the fields asked for, as `arrow_schema_of` describes them.

    Args:
        rows: a list fragment of maps, in YSON.
        schema: the fields, each of another column; columns that it does not name are left out, and a row
            without one of its columns has null there. A `string` asked for as text may hold any bytes, as
            Spark's strings may.

    Raises:
        EncodingError: the rows are not what the schema promises.
    """
    wanted = {row_column(field): (field_type(field), field.type) for field in schema}
    assert len(wanted) == len(schema)
    try:
        found = scan_rows(rows, wanted)
        if found is None:
            found = parse_rows(rows, wanted)
    except ValueError as error:
        raise EncodingError(
            "The pulled data is not a list of rows in YSON", remedy="Read the range again"
        ) from error
    return pa.RecordBatch.from_arrays([found[name] for name in wanted], schema=schema)
