"""How one column's values lie in SQLite, and how they come back.

It encodes valid values, column by column; `encoding` checks them. Signed integers stay integers, unsigned
integers are in two's complement, and booleans are 0 and 1. NaN is the text `nan`, because SQLite would make
it NULL. Strings are blobs, and composites are blobs of binary YSON.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from yt import yson
from yt.yson import YsonUint64

if TYPE_CHECKING:
    from yt_exactly_once.local.tables.schema import Column
    from yt_exactly_once.local.tables.types import Kind

NAN = "nan"
"""What a NaN looks like in a column of doubles."""

_TWO_63 = 1 << 63
_TWO_64 = 1 << 64


class PlainUint64(YsonUint64):  # type: ignore[misc]
    """An unsigned integer that never has attributes; asking every single one takes as long as writing it."""

    attributes = None
    has_attributes = bool  # called without arguments, it answers False


KINDS: dict[type, Kind] = {
    int: "int64",
    yson.YsonInt64: "int64",
    YsonUint64: "uint64",
    PlainUint64: "uint64",
    float: "double",
    yson.YsonDouble: "double",
    bool: "boolean",
    yson.YsonBoolean: "boolean",
    bytes: "string",
    yson.YsonString: "string",
    str: "string",
    yson.YsonUnicode: "string",
    type(None): "null",
    yson.YsonEntity: "null",
}
"""By Python type, what values of requests are; lists, maps and what else there may be are `any`."""


def dump_yson(value: Any) -> bytes:
    """Return a value as binary YSON."""
    dumped: bytes = yson.dumps(value, yson_format="binary")
    return dumped


def load_yson(blob: bytes) -> Any:
    """Parse binary YSON into plain Python where there are no attributes, strings as `bytes`."""
    return yson.loads(blob, encoding=None, always_create_attributes=False)


def encode_uint64(value: int) -> int:
    """Map an unsigned integer to the signed one with the same bits."""
    return int(value) if value < _TWO_63 else int(value) - _TWO_64


def decode_uint64(stored: int) -> Any:
    """Map the stored signed integer back to an unsigned one."""
    return YsonUint64(stored if stored >= 0 else stored + _TWO_64)


def encode_double(value: float) -> float | str:
    """Keep NaN distinguishable from null; `float` brings it back."""
    value = float(value)
    return NAN if math.isnan(value) else value


def decode_value(column: Column, stored: Any) -> Any:
    """Decode one stored value, null included."""
    decode = DECODERS.get(column.kind)
    return stored if stored is None or decode is None else decode(stored)


def decode_rows(columns: Sequence[Column], rows: list[tuple[Any, ...]]) -> list[dict[str, Any]]:
    """Turn stored tuples, one item per column, into rows."""
    return _row_maker(tuple((column.name, column.kind) for column in columns))(rows)


@lru_cache(maxsize=256)
def _row_maker(
    columns: tuple[tuple[str, str], ...],
) -> Callable[[list[tuple[Any, ...]]], list[dict[str, Any]]]:
    """Build a function for one set of columns: a loop without a call per cell is twice as fast."""
    cells = ", ".join(
        f"{name!r}: {_CELLS.get(kind, '{0}').format(f'v{index}')}"
        for index, (name, kind) in enumerate(columns)
    )
    arguments = "".join(f"v{index}, " for index in range(len(columns)))
    source = f"lambda rows: [{{{cells}}} for ({arguments}) in rows]" if columns else "lambda _: []"
    # The source holds positions and quoted names, nothing that a client could have written.
    maker: Callable[[list[tuple[Any, ...]]], list[dict[str, Any]]] = eval(  # noqa: S307
        source, {"uint": PlainUint64, "load": load_yson, "nan": math.nan}
    )
    return maker


_UINT_CELL = f"None if {{0}} is None else uint({{0}} if {{0}} >= 0 else {{0}} + {_TWO_64})"
_CELLS = {
    "uint64": _UINT_CELL,
    "double": "nan if {0} == 'nan' else {0}",
    "boolean": "None if {0} is None else {0} == 1",
    "any": "None if {0} is None else load({0})",
}
DECODERS: dict[str, Callable[[Any], Any]] = {
    "uint64": decode_uint64,
    "double": float,
    "boolean": bool,
    "any": load_yson,
}
"""By `Column.kind`; what is not decoded is stored as it is."""
