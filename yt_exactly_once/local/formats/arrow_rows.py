"""Arrow as an input format: one complete IPC stream becomes rows, by the rules of the column types.

The real proxy is lenient here, and so is this module. It drops unknown columns, cuts nanoseconds, does not
compare the scale of decimals, and ignores time zones. Rules: `yt/yt/library/formats/arrow_parser.cpp`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import lib
from pyarrow import types as pt
from yt import yson

from yt_exactly_once.local.errors import YtError, text_of
from yt_exactly_once.local.formats import arrow_composites, arrow_sizes, row_checks
from yt_exactly_once.local.tables import composite_columns
from yt_exactly_once.local.tables.columnar import ColumnarRows, PiecewiseRows, listed
from yt_exactly_once.local.tables.large_values import LARGE, PARSE_ERRORS, checked
from yt_exactly_once.local.tables.simple_values import RANGES, decimal_length
from yt_exactly_once.local.tables.types import STRING_LIKE, type_v3_from_v1, value_type

_END_OF_STREAM = (b"\xff\xff\xff\xff\x00\x00\x00\x00", b"\x00\x00\x00\x00")
"""The second one is older, and is what YTsaurus itself writes."""

_TYPE_KEY = b"YtType"
_YSON = b"yson"
_TICKS = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
"""Per second."""

_WIDEST_NATIVE_DECIMAL = 35
_WIDE_TYPES = (
    (pt.is_signed_integer, pa.int64()),
    (pt.is_unsigned_integer, pa.uint64()),
    (pt.is_floating, pa.float64()),
)

_OBJECTS = 1 << 13
"""So many values may be Python objects together, of at most `LARGE` bytes."""

_COMPOSITES = 1 << 19
"""Bytes of composite values that are tried as a whole, or half of a large stream."""

_MOST_SHARED = 4
"""So many times as large whole columns may become once values of a dictionary have bytes of their own."""

_MANY_VALUES = 16
"""From so many on vectors are faster than loops."""

Values = Any
"""Of a column: a list, composites that are valid, or an array of numbers, booleans, bytes or nulls.

Numbers have 64 bits there."""

Fits = Callable[[Any], bool]


_BINARY = {lib.Type_STRING, lib.Type_LARGE_STRING, lib.Type_BINARY, lib.Type_LARGE_BINARY}
"""Types of strings; to look a number up costs less than to ask for one after the other."""

_SHARED = frozenset(
    (
        lib.Type_RUN_END_ENCODED,
        lib.Type_LIST_VIEW,
        lib.Type_LARGE_LIST_VIEW,
        lib.Type_STRING_VIEW,
        lib.Type_BINARY_VIEW,
    )
)
"""Types of values that share bytes, which the real parser does not know: few bytes make many values."""


def _one_of(*kinds: Fits) -> Fits:
    return lambda arrow: any(is_kind(arrow) for is_kind in kinds)


_is_int64 = _one_of(pt.is_signed_integer, pt.is_date, pt.is_time, pt.is_timestamp)
_is_scalar = _one_of(pt.is_integer, pt.is_floating, pt.is_boolean, pt.is_temporal)

NEWEST: Mapping[str, Any] = {}
"""Features of a cluster that behaves as the newest ones."""


def loads(
    data: bytes, schema: Sequence[Mapping[str, Any]] | None, features: Mapping[str, Any] = NEWEST
) -> ColumnarRows | PiecewiseRows:
    """Parse one IPC stream.

    Args:
        schema: columns of the table; without it every value is taken as it is.
        features: of the cluster, as versions of `arrow_parser.cpp` differ in two.

    Raises:
        YtError: no complete stream, or a column whose Arrow type does not fit the column.
    """
    table = _read(data)
    known: Mapping[str, Mapping[str, Any]] = {}
    if schema is not None:
        known = {str(column["name"]): column for column in schema}
        table = table.select([at for at, name in enumerate(table.schema.names) if name in known])
    row_checks.check_names(table.schema.names)
    columns = [
        _Described(field, None if schema is None else known[field.name]) for field in table.schema
    ]
    convert = partial(_rows, columns=columns, features=features)
    logicals = [column.logical for column in columns if not pt.is_null(column.field.type)]
    objects = logicals.count("yson")
    is_plain = not objects and not any(isinstance(logical, dict) for logical in logicals)
    shares = any(column.field.type.id == lib.Type_DICTIONARY for column in columns)
    if table.num_rows <= 1 or (is_plain and not shares):
        # Nothing takes more bytes than the vectors of the stream do already.
        return convert(table)
    size = max(1, table.nbytes + sum(map(_shared_bytes, table.columns)))
    # Halves of a stream take about as much memory as it has bytes.
    piece = LARGE if objects else max(size // 2, _COMPOSITES)
    most = table.num_rows * piece // size
    most = max(1, min(most, _OBJECTS // objects) if objects else most)
    if table.num_rows <= most or (is_plain and size <= max(1, _MOST_SHARED * table.nbytes)):
        with suppress(_ManyObjectsError):
            return convert(table)

    def pieces(part: Any, step: int) -> Iterator[ColumnarRows]:
        for start in range(0, part.num_rows, step):
            some = part.slice(start, step)
            try:
                rows = convert(some)
            except _ManyObjectsError:
                yield from pieces(some, max(1, step // 4))
            else:
                yield rows

    def column(name: str) -> Any:
        at = table.schema.get_field_index(name)
        if at < 0:
            return None
        return _rows(table.select([at]), columns[at : at + 1], features).columns[name]

    return PiecewiseRows(lambda: pieces(table, most), column)


def _shared_bytes(column: Any) -> int:
    """Return how many bytes the strings of a dictionary take once each value has its own."""
    arrow = column.type
    if not pt.is_dictionary(arrow) or arrow.value_type.id not in _BINARY:
        return 0
    size = sum(
        pc.sum(pc.binary_length(chunk.dictionary).take(chunk.indices)).as_py() or 0
        for chunk in column.chunks
    )
    arrow_sizes.require_room(size)
    return size


class _ManyObjectsError(Exception):
    """So many bytes of composite values may not be objects together, which take far more once checked."""


class _Described:
    """A column of a stream, and what the table says of it, if anything."""

    def __init__(self, field: Any, described: Mapping[str, Any] | None) -> None:
        self.field = field
        self.described = described
        self.logical = _logical(described)


def _rows(table: Any, columns: Sequence[_Described], features: Mapping[str, Any]) -> ColumnarRows:
    converted: dict[str, Values] = {}
    for each, column in zip(columns, table.columns, strict=True):
        name = each.field.name
        try:
            converted[name] = _convert(each, column, features)
        except YtError as error:
            raise YtError(f'Failed to parse column "{name}"', inner=[error]) from error
        except (pa.ArrowException, ValueError, OverflowError) as error:
            raise YtError(f'Failed to parse column "{name}": {error}') from error
    return ColumnarRows(converted, table.num_rows)


def _read(data: bytes | memoryview) -> Any:
    if data in (b"", *_END_OF_STREAM):
        return pa.table({})
    try:
        if not _is_complete(data):
            raise YtError("Unexpected end of stream")
        with pa.ipc.open_stream(pa.BufferReader(data)) as reader:
            _refuse_shared(reader.schema)
            table = reader.read_all()
        table.validate(full=True)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise YtError(f"Arrow error: {error}") from error
    return table


def _refuse_shared(fields: Any, shared: frozenset[int] = _SHARED) -> None:
    """Refuse fields of such types; inside of others a dictionary shares bytes too."""
    for field in fields:
        arrow = field.type
        if arrow.id in shared:
            raise YtError(f'Unexpected arrow type "{arrow}" of "{field.name}"')
        parts = [arrow.field(place) for place in range(arrow.num_fields)]
        if pt.is_dictionary(arrow):
            parts = [pa.field("dictionary", arrow.value_type)]
        if parts:
            _refuse_shared(parts, _SHARED | {lib.Type_DICTIONARY})


def _is_complete(data: bytes | memoryview) -> bool:
    """Tell whether the end marker follows the last message; the reader itself does not insist.

    Raises:
        YtError: a message announces more than there is memory for.
    """
    source = pa.BufferReader(data)
    end = 0
    messages = pa.ipc.MessageReader.open_stream(source)
    while True:
        try:
            arrow_sizes.check(messages.read_next_message())
        except StopIteration:
            break
        end = source.tell()
    return bytes(data[end:]).startswith(_END_OF_STREAM)


def _convert(each: _Described, column: Any, features: Mapping[str, Any]) -> Values:
    field, described, logical = each.field, each.described, each.logical
    chunks = column.chunks
    if len(chunks) == 1:
        array = chunks[0]
    else:
        array = pa.concat_arrays(chunks) if chunks else pa.array([], field.type)
    if pt.is_dictionary(array.type):
        array = array.dictionary_decode()
    holds_yson = (field.metadata or {}).get(_TYPE_KEY) == _YSON
    is_any = holds_yson and not features.get("arrow_any_as_string")
    if described is None:
        return _parsed(array) if is_any else _any(array)
    if isinstance(logical, str):
        return _simple(logical, array, holds_yson=is_any)
    if logical["type_name"] == "decimal":
        _expect(array, "decimal", pt.is_decimal)
        is_wide = array.type.precision > _WIDEST_NATIVE_DECIMAL
        as_text = is_wide and features.get("arrow_wide_decimal_as_text")
        return _texts(array) if as_text else _decimals(array)
    if array.type.id in _BINARY:
        if not holds_yson:
            raise YtError(
                f'Unexpected arrow type "{array.type}" for YT metatype "{logical["type_name"]}":'
                " the field lacks the metadata that marks it as YSON"
            )
        return _stored(array, described) or _parsed_composites(array)
    if array.null_count == len(array):
        return pa.nulls(len(array))
    return _nested(array, described)


def _nested(array: Any, described: Mapping[str, Any]) -> Values:
    """Take lists, structs and maps of Arrow; those that are not all valid become YSON that is looked at."""
    stored = arrow_composites.stored(described["type_v3"], array, _leaf)
    if stored is not None:
        return stored
    found = arrow_composites.written(described["type_v3"], array, _leaf)
    return _stored(found, described) or _parsed_composites(found)


def _stored(array: Any, described: Mapping[str, Any]) -> Values:
    """Take many composite values at once, if all are valid."""
    if len(array) < _MANY_VALUES:
        return None
    return composite_columns.stored(_bytes(array), described["type_v3"])


def _parsed_composites(array: Any) -> Values:
    if len(array) > 1 and array.nbytes > 2 * LARGE:
        raise _ManyObjectsError
    return _parsed(array)


def _logical(described: Mapping[str, Any] | None) -> Any:
    """Return the logical type of a column without its outermost optional."""
    if described is None:
        return "yson"
    named = str(described.get("type"))
    return value_type(described.get("type_v3") or type_v3_from_v1(named, required=True))


def _simple(logical: str, array: Any, *, holds_yson: bool) -> Values:
    if pt.is_null(array.type):
        return array
    if logical == "yson":
        return _parsed(array) if holds_yson else _any(array)
    if logical in STRING_LIKE:
        return _strings(array, logical)
    if logical not in _CONVERTERS:
        raise _unexpected(array, logical)
    convert, fits = _CONVERTERS[logical]
    return convert(array, logical, fits)


def _is_number(is_signed: Fits, width: int) -> Fits:
    return lambda arrow: is_signed(arrow) and arrow.bit_width <= width


def _raw(array: Any) -> Any:
    """Return a temporal array as the integers that it stores."""
    if pt.is_temporal(array.type):
        return array.view(pa.int32() if array.type.bit_width == 32 else pa.int64())  # noqa: PLR2004
    return array


def _strings(array: Any, logical: str) -> Values:
    if logical == "string" and pt.is_decimal(array.type):
        return _decimals(array)
    takes_fixed = logical in ("string", "uuid")
    is_fixed = pt.is_fixed_size_binary
    _expect(array, logical, lambda t: t.id in _BINARY or (takes_fixed and is_fixed(t)))
    return _bytes(array)


def _dates(array: Any, logical: str, is_plain: Fits) -> Values:
    _expect(array, logical, lambda t: is_plain(t) or pt.is_date32(t))
    return _in_range(_raw(array), logical)


def _moments(array: Any, logical: str, is_plain: Fits) -> Values:
    """Take seconds or microseconds; of dates with milliseconds only the seconds."""
    arrow, is_seconds = array.type, logical.startswith("datetime")
    if not pt.is_timestamp(arrow) and not (is_seconds and pt.is_date64(arrow)):
        _expect(array, logical, lambda t: is_plain(t) and (not is_seconds or t.bit_width >= 32))  # noqa: PLR2004
        return _widened(array)
    given = _TICKS["ms" if pt.is_date64(arrow) else arrow.unit]
    wanted = _TICKS["s" if is_seconds else "us"]
    raw = _raw(array)
    if given >= wanted:
        return _in_range(pc.divide(raw, given // wanted), logical)
    return _in_range(pc.multiply_checked(raw, wanted // given), logical)


def _in_range(array: Any, logical: str) -> Values:
    """Refuse what the type cannot hold; the parser lets the first value after the range pass."""
    values = _widened(array)
    low, high = RANGES[logical]
    found = pc.min_max(values).as_py()
    if found["min"] is not None and not low <= found["min"] <= found["max"] <= high + 1:
        outside = next(v for v in listed(values) if v is not None and not low <= v <= high + 1)
        raise YtError(
            f"Arrow value {outside} is incompatible with the YT {logical} type, value should be in"
            f" range [{low}, {high + 1}]"
        )
    return values


def _decimals(array: Any) -> Values:
    """Encode as YT does: big-endian, sign bit flipped, width by the Arrow precision."""
    size = decimal_length(array.type.precision)
    width = array.type.bit_width // 8
    start, size_given = array.offset, (array.offset + len(array)) * width
    little = np.frombuffer(array.buffers()[1], np.uint8, size_given).reshape(-1, width)
    big = little[start:, ::-1]
    # A value that fits into fewer bytes has its sign in all others.
    big = np.ascontiguousarray(big[:, max(0, width - size) :])
    if size > width:
        sign = np.where(big[:, :1] >= 0x80, 0xFF, 0).astype(np.uint8)  # noqa: PLR2004
        big = np.concatenate([np.repeat(sign, size - width, axis=1), big], axis=1)
    big[:, 0] ^= 0x80
    edges = np.arange(0, (len(array) + 1) * size, size, dtype=np.int32)
    buffers = [None, pa.py_buffer(edges), pa.py_buffer(big)]
    values = pa.Array.from_buffers(pa.binary(), len(array), buffers)
    return pc.if_else(array.is_valid(), values, None) if array.null_count else values


def _texts(array: Any) -> Values:
    return [None if value is None else format(value, "f").encode() for value in array.to_pylist()]


def _any(array: Any) -> Values:
    """Take scalars as they are."""
    arrow = array.type
    if pt.is_null(arrow):
        return array
    if pt.is_unsigned_integer(arrow):
        return [None if v is None else yson.YsonUint64(v) for v in array.to_pylist()]
    if arrow.id in _BINARY or pt.is_fixed_size_binary(arrow):
        return listed(_bytes(array))
    if pt.is_decimal(arrow):
        return _decimals(array)
    _expect(array, "any", _is_scalar)
    return listed(_raw(array))


def _parsed(array: Any) -> Values:
    """Parse binary values as YSON."""
    _expect(array, "any", lambda arrow: arrow.id in _BINARY)
    try:
        return [None if raw is None else checked(raw) for raw in listed(_bytes(array))]
    except PARSE_ERRORS as error:
        raise YtError(f"A value marked as YSON is not: {text_of(error)}") from error


def _leaf(logical: Any, array: Any) -> Values:
    described = {"name": "", "type": "any", "type_v3": logical}
    field = pa.field("", array.type)
    return _convert(_Described(field, described), pa.chunked_array([array]), NEWEST)


def _bytes(array: Any) -> Values:
    if array.type.id == lib.Type_STRING:
        # A cast takes five times as long.
        return array.view(pa.binary())
    return array if pt.is_binary(array.type) else array.cast(pa.binary())


def _widened(array: Any) -> Values:
    """Widen the values of a column to the numbers that a table stores."""
    for is_narrow, wide in _WIDE_TYPES:
        if is_narrow(array.type):
            return array if array.type == wide else array.cast(wide)
    return array


def _checked(array: Any, logical: str, fits: Fits) -> Values:
    _expect(array, logical, fits)
    return _widened(_raw(array))


def _expect(array: Any, logical: str, fits: Fits) -> None:
    if not fits(array.type):
        raise _unexpected(array, logical)


def _unexpected(array: Any, logical: str) -> YtError:
    return YtError(f'Unexpected arrow type "{array.type}" for YT metatype "{logical}"')


_CONVERTERS: dict[str, tuple[Callable[[Any, str, Fits], Values], Fits]] = {
    **{f"int{n}": (_checked, _is_number(pt.is_signed_integer, n)) for n in (8, 16, 32)},
    "int64": (_checked, _is_int64),
    **{f"uint{n}": (_checked, _is_number(pt.is_unsigned_integer, n)) for n in (8, 16, 32, 64)},
    "float": (_checked, pt.is_floating),
    "double": (_checked, pt.is_floating),
    "bool": (_checked, pt.is_boolean),
    "date": (_dates, pt.is_uint32),
    "date32": (_dates, pt.is_int32),
    "datetime": (_moments, pt.is_unsigned_integer),
    "datetime64": (_moments, pt.is_signed_integer),
    "timestamp": (_moments, pt.is_uint64),
    "timestamp64": (_moments, pt.is_signed_integer),
    "interval": (_checked, pt.is_integer),
}
