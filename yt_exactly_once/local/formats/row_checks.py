"""What no row of a request may have: a column twice, attributes, or attributes of a value.

Parsers keep the last of two equal keys, so those of YSON are looked for in the bytes, which are known
to be well-formed. Maps inside of values may repeat keys, as they may on a server.
Rules: `yt/yt/client/table_client/table_consumer.cpp` and `unversioned_row.cpp`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from yt import yson

from yt_exactly_once.local.errors import Code, YtError
from yt_exactly_once.local.tables.columnar import ColumnarRows

_BINARY_STRING = b"\x01"
_STRING = rb'"(?:[^"\\]|\\.)*"|[A-Za-z_][\w.\-]*'
_SCALAR = rb"[\x02\x06][\x80-\xff]*[\x00-\x7f]|\x03.{8}|[\x04\x05#]|%[a-z+\-]+|[0-9+\-][\w.+\-]*"
_TOKEN = re.compile(
    rb"\s*(?:"
    rb"(?P<length>\x01[\x80-\xff]*[\x00-\x7f])"
    rb"|(?P<string>" + _STRING + rb")"
    rb"|(?P<open>[{\[<])|(?P<close>[}\]>])|(?P<equals>=)"
    rb"|;|" + _SCALAR + rb")",
    re.DOTALL,
)
_ITEM = re.compile(
    rb"\s*(?P<key>" + _STRING + rb")\s*=\s*(?:" + _STRING + rb"|" + _SCALAR + rb")\s*;?", re.DOTALL
)
"""A whole item of a map, where both its parts are text: most of what people write."""
_ROW = [b"{"]
_PLAIN = frozenset((int, float, bool, bytes, str, list, dict, type(None)))
_CONTROL_ATTRIBUTES = frozenset(
    ("table_index", "key_switch", "range_index", "row_index", "tablet_index", "end_of_stream")
)


def duplicate_column(name: str) -> YtError:
    """Return the error of a row that names a column twice."""
    return YtError(
        f'Duplicate column "{name}" in table schema', Code.DUPLICATE_COLUMN, {"column_name": name}
    )


def check_yson(data: bytes, rows: list[Any]) -> None:
    """Refuse rows that name a column twice.

    Args:
        data: a list fragment of any YSON variant.
        rows: what it was parsed to, each key once.

    Raises:
        YtError: 322 with the name of the column.
    """
    # What a library writes is what it would write again, unless something was lost.
    variant = "binary" if data[1:2] == _BINARY_STRING else "text"
    if data != yson.dumps(rows, yson_format=variant, yson_type="list_fragment"):
        _scan(data)


def check_names(names: Iterable[str]) -> None:
    """Refuse two columns with the same name.

    Raises:
        YtError: 322 with the name of the column.
    """
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise duplicate_column(name)
        seen.add(name)


def no_row(found: Any, index: int) -> YtError:
    """Return the error of something that is no map, or that has attributes: control ones, then."""
    where = {"row_index": index}
    names = getattr(found, "attributes", None)
    if not names:
        return YtError("Invalid row format, map expected", attributes=where)
    name = next(iter(names))
    text = name.decode("utf-8", "replace") if isinstance(name, bytes) else str(name)
    if text in _CONTROL_ATTRIBUTES:
        return YtError("Control attributes are not supported", attributes=where)
    return YtError(f'Failed to parse control attribute name "{text}"', attributes=where)


def check_values(rows: Sequence[Mapping[str, Any]]) -> None:
    """Refuse values with attributes, which have no place in a table."""
    if isinstance(rows, ColumnarRows):
        groups: Iterable[Iterable[Any]] = rows.columns.values()
    else:
        groups = (row.values() for row in rows)
    for values in groups:
        # Plain types have no attributes, and most columns hold nothing else.
        if not _PLAIN.issuperset(map(type, values)):
            for value in values:
                check_value(value)


def check_value(value: Any) -> None:
    """Refuse a value with attributes."""
    if getattr(value, "attributes", None):
        raise YtError("Table values cannot have top-level attributes")


def _scan(data: bytes) -> None:
    """Walk over the tokens and look at the keys right inside of every row."""
    opened: list[bytes] = []
    seen: set[bytes] = set()
    last = b""
    position = 0
    while True:
        found = _ITEM.match(data, position) if opened == _ROW else None
        found = found or _TOKEN.match(data, position)
        if found is None:
            return
        position = found.end()
        kind = found.lastgroup
        if kind == "length":
            start, position = position, position + _length(found["length"][1:])
            last = data[start:position]
        elif kind in {"key", "string"}:
            last = _plain(found[kind])
        elif kind == "open":
            if not opened:
                seen = set()
            opened.append(found["open"])
        elif kind == "close":
            opened.pop()
        if kind == "key" or (kind == "equals" and opened == _ROW):
            if last in seen:
                raise duplicate_column(last.decode("utf-8", "replace"))
            seen.add(last)


def _plain(text: bytes) -> bytes:
    """Return the value of a string of text YSON."""
    if text[:1] != b'"':
        return text
    return bytes(yson.loads(text, encoding=None)) if b"\\" in text else text[1:-1]


def _length(varint: bytes) -> int:
    """Read the zigzag varint before a binary string."""
    number = 0
    for shift, byte in enumerate(varint):
        number |= (byte & 0x7F) << (7 * shift)
    return number >> 1
