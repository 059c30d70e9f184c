"""Kinds of values on the wire, and the numbers of column types."""

from __future__ import annotations

from yt_exactly_once.local.tables import types
from yt_exactly_once.local.tables.schema import Column

NULL, INT64, UINT64, DOUBLE, BOOLEAN = 2, 3, 4, 5, 6
STRING, ANY, COMPOSITE = 16, 17, 18
FIXED = frozenset((INT64, UINT64, DOUBLE, BOOLEAN))
STRING_LIKE = frozenset((STRING, ANY, COMPOSITE))
KNOWN = FIXED | STRING_LIKE | {NULL}

KINDS = {
    **dict.fromkeys(types.SIGNED, INT64),
    **dict.fromkeys(types.UNSIGNED, UINT64),
    **dict.fromkeys(types.FLOATING, DOUBLE),
    **dict.fromkeys(types.STRING_LIKE, STRING),
    "boolean": BOOLEAN,
    "any": ANY,
    "null": NULL,
    "void": NULL,
}
"""By the first version of a type, which knows no composites, as schemas do."""

# A number that no type has leaves a gap.
_SIMPLE = """
    int8 uint8 - int16 uint16 int32 uint32 utf8 date datetime timestamp interval void float json uuid
    date32 datetime64 timestamp64 interval64
"""
LOGICAL = {
    **{
        name: KINDS[name]
        for name in ("null", "int64", "uint64", "double", "boolean", "string", "any")
    },
    **{name: number for number, name in enumerate(_SIMPLE.split(), 0x1000)},
}


def of_column(column: Column) -> int:
    """Return the kind of the values of a column."""
    return COMPOSITE if types.is_composite(column.type_v3) else KINDS[column.wire_type]
