"""Kinds of values on the wire, and the numbers of column types."""

from __future__ import annotations

from yt_exactly_once.local.tables import types
from yt_exactly_once.local.tables.schema import Column

NULL, INT64, UINT64, DOUBLE, BOOLEAN = 2, 3, 4, 5, 6
STRING, ANY, COMPOSITE = 16, 17, 18
FIXED = frozenset((INT64, UINT64, DOUBLE, BOOLEAN))
STRING_LIKE = frozenset((STRING, ANY, COMPOSITE))
KNOWN = FIXED | STRING_LIKE | {NULL}

_KINDS = {
    **dict.fromkeys(types.SIGNED, INT64),
    **dict.fromkeys(types.UNSIGNED, UINT64),
    **dict.fromkeys(types.FLOATING, DOUBLE),
    **dict.fromkeys(types.STRING_LIKE, STRING),
    "boolean": BOOLEAN,
    "any": ANY,
    "null": NULL,
    "void": NULL,
}
_LOGICAL = {
    "null": NULL,
    "int64": INT64,
    "uint64": UINT64,
    "double": DOUBLE,
    "boolean": BOOLEAN,
    "string": STRING,
    "any": ANY,
    "int8": 0x1000,
    "uint8": 0x1001,
    "int16": 0x1003,
    "uint16": 0x1004,
    "int32": 0x1005,
    "uint32": 0x1006,
    "utf8": 0x1007,
    "date": 0x1008,
    "datetime": 0x1009,
    "timestamp": 0x100A,
    "interval": 0x100B,
    "void": 0x100C,
    "float": 0x100D,
    "json": 0x100E,
    "uuid": 0x100F,
    "date32": 0x1010,
    "datetime64": 0x1011,
    "timestamp64": 0x1012,
    "interval64": 0x1013,
}


def of_column(column: Column) -> int:
    """Return the kind of the values of a column."""
    if types.is_composite(column.type_v3):
        return COMPOSITE
    return _KINDS[column.wire_type]


def schema_kind(column: Column) -> int:
    """Return the kind that a schema gives a column; it knows no composites."""
    return _KINDS[column.wire_type]


def logical_of(column: Column) -> int:
    """Return the number of a column's simple type; what has none is `any` or `string`."""
    return _LOGICAL.get(column.wire_type, STRING)
