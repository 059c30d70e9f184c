"""What no row of a request may have: a column twice, attributes, or attributes of a value.

Parsers keep the last of two equal keys, so those of YSON are looked for in the bytes, which are known
to be well-formed. Maps inside of values may repeat keys, as they may on a server.
Rules: `yt/yt/client/table_client/table_consumer.cpp` and `unversioned_row.cpp`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from yt import yson

from yt_exactly_once.local.errors import Code, YtError
from yt_exactly_once.local.tables import yson_cells
from yt_exactly_once.local.tables.columnar import ColumnarRows

_BINARY_STRING = b"\x01"
_PLAIN = frozenset((int, float, bool, bytes, str, list, dict, type(None)))
_CONTROL_ATTRIBUTES = frozenset(
    ("table_index", "key_switch", "range_index", "row_index", "tablet_index", "end_of_stream")
)


@lru_cache(maxsize=4096)
def column_name(raw: bytes) -> str:
    """Return the name of a column; raise `YtError` if it is no text."""
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise YtError("Column names must be UTF-8") from error


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
    """Look at the keys of every row in the bytes."""
    row = -1
    seen: set[bytes] = set()
    for number, key, _, _ in yson_cells.cells(data):
        if number != row:
            row, seen = number, set()
        if key in seen:
            raise duplicate_column(key.decode("utf-8", "replace"))
        seen.add(key)
