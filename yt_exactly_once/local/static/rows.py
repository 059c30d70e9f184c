"""Rows of static tables: checked against the schema, kept as chunks of binary YSON, read by range.

It knows chunks and schemas and nothing of requests. Sorted tables keep their order; a range may name
row indexes or keys.
"""

from __future__ import annotations

import bisect
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from yt import yson

from yt_exactly_once.local.cypress import chunks
from yt_exactly_once.local.errors import Code, YtError
from yt_exactly_once.local.formats import row_formats, structured
from yt_exactly_once.local.tables import keys, values
from yt_exactly_once.local.tables.encoding import encode_column
from yt_exactly_once.local.tables.schema import TableSchema, parse_schema

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from yt_exactly_once.local.cypress.view import View

Row = dict[str, Any]

ROWS_PER_CHUNK = 50_000
_BYTES_PER_CHUNK = 4 << 20
_ROWS_PER_PIECE = 1000


@dataclass(frozen=True)
class Range:
    """A half-open range of row indexes.

    Attributes:
        start: first row.
        end: row after the last one.
        by_key: whether keys, and not indexes, said where it is.
    """

    start: int
    end: int
    by_key: bool = False


def write(
    view: View, node_id: str, schema: TableSchema, rows: Sequence[Row], *, append: bool
) -> None:
    """Replace or extend the rows of a table.

    Raises:
        YtError: 307 and kin when a row does not fit the schema, 301 when the order is broken, 306
            when a unique key comes twice.
    """
    checked = fit(schema, rows)
    if schema.is_sorted:
        last = list(_tail(view, node_id)) if append else []
        _check_order(schema, [*last, *checked])
    chunks.write(view, node_id, _pack(checked), append=append)


def fit(schema: TableSchema, rows: Sequence[Row]) -> list[Row]:
    """Check rows against a schema and bring values to the types of their columns."""
    if not schema.columns:
        if schema.strict:
            _check_unknown(schema, rows)
        return list(rows)
    if schema.strict:
        _check_unknown(schema, rows)
    encoded = []
    for column in schema.columns:
        stored, error = encode_column(column, [row.get(column.name) for row in rows])
        if error is not None:
            raise error
        encoded.append(stored)
    fitted = values.decode_rows(schema.columns, list(zip(*encoded, strict=True)))
    if not schema.strict:
        known = {column.name for column in schema.columns}
        for row, given in zip(fitted, rows, strict=True):
            row.update((name, value) for name, value in given.items() if name not in known)
    return fitted


def _check_unknown(schema: TableSchema, rows: Iterable[Row]) -> None:
    known = {column.name for column in schema.columns}
    for row in rows:
        if not row.keys() <= known:
            name = min(row.keys() - known)
            raise YtError(f'No column "{name}" in table schema', Code.SCHEMA_VIOLATION)


def read(
    connection: sqlite3.Connection, listed: Iterable[chunks.Chunk], wanted: Range
) -> Iterator[list[Row]]:
    """Yield the rows of a range, chunk by chunk."""
    passed = 0
    for chunk in listed:
        start, end = max(wanted.start - passed, 0), wanted.end - passed
        if start < chunk.row_count and end > 0:
            rows = row_formats.load_stored(chunks.read(connection, chunk))
            yield list(rows[start:end])
        passed += chunk.row_count


def row_count(view: View, node_id: str) -> int:
    """Return the number of rows."""
    return sum(chunk.row_count for chunk in chunks.chunks(view, node_id))


def find_ranges(
    selectors: Any, total: int, schema: TableSchema, all_keys: Callable[[], Sequence[bytes]]
) -> list[Range]:
    """Turn the `ranges` of a rich path into row indexes.

    Args:
        selectors: value of the attribute; `None` is the whole table.
        total: number of rows.
        schema: of the table.
        all_keys: returns the keys of all rows in order; called when the selectors name keys.

    Raises:
        YtError: a malformed selector, or keys on a table that is not sorted.
    """
    if selectors is None:
        return [Range(0, total)]
    if not isinstance(selectors, list):
        raise YtError('Error parsing path attribute "ranges": expected a list')
    by_key = _has_key_limits(selectors)
    encoded_keys = all_keys() if schema.is_sorted and by_key else ()
    found = []
    for selector in selectors:
        if not isinstance(selector, dict):
            raise YtError('Error parsing path attribute "ranges": expected a list of maps')
        exact = selector.get("exact")
        lower = exact if exact is not None else selector.get("lower_limit")
        upper = exact if exact is not None else selector.get("upper_limit")
        start = _index(lower, 0, schema, encoded_keys, after=False)
        end = _index(upper, total, schema, encoded_keys, after=exact is not None)
        start = max(start, 0)
        found.append(Range(start, max(min(end, total), start), by_key))
    return found


def _has_key_limits(selectors: list[Any]) -> bool:
    """Tell whether any selector names a key."""
    return any(
        isinstance(limit, dict) and "key" in limit
        for selector in selectors
        if isinstance(selector, dict)
        for limit in selector.values()
    )


def encode_keys(schema: TableSchema, rows: Sequence[Row]) -> list[bytes]:
    """Return the keys of rows as blobs in the order of the table."""
    columns = schema.key_columns
    stored = [
        [values.encode_value(column, row.get(column.name)) for row in rows] for column in columns
    ]
    return keys.key_encoder(columns)(stored)


def _index(
    limit: Any,
    default: int,
    schema: TableSchema,
    encoded_keys: Sequence[bytes],
    *,
    after: bool,
) -> int:
    if limit is None:
        return default
    if not isinstance(limit, dict):
        raise YtError("Error parsing a limit of a range: expected a map")
    if "key" in limit:
        return _key_index(limit["key"], schema, encoded_keys, after=after)
    index = limit.get("row_index")
    if index is None:
        return default
    if isinstance(index, bool) or not isinstance(index, int):
        raise YtError("Error parsing a limit of a range: row_index must be an integer")
    return int(index) + (1 if after else 0)


def _key_index(key: Any, schema: TableSchema, encoded_keys: Sequence[bytes], *, after: bool) -> int:
    if not schema.is_sorted:
        raise YtError("Cannot use key selectors: the table is not sorted")
    if not isinstance(key, list):
        raise YtError("Error parsing a limit of a range: key must be a list")
    prefix = b""
    # A key that is longer than those of the rows comes after every row that it begins with.
    beyond = after or len(key) > len(schema.key_columns)
    for column, value in zip(schema.key_columns, key, strict=False):
        kind = (getattr(value, "attributes", None) or {}).get("type")
        if kind == "max":
            beyond = True
            break
        if kind == "min":
            beyond = after
            break
        plain = None if isinstance(value, yson.YsonEntity) else value
        stored, error = encode_column(column, [plain])
        if error is not None:
            raise error
        prefix += keys.encode_prefix([column], stored)
    if beyond:
        # Every key with this prefix comes before the prefix followed by the highest byte.
        return bisect.bisect_left(encoded_keys, prefix + b"\xff")
    return bisect.bisect_left(encoded_keys, prefix)


def _check_order(schema: TableSchema, rows: Sequence[Row]) -> None:
    encoded = encode_keys(schema, rows)
    for left, right in pairwise(encoded):
        if left > right:
            raise YtError(
                "Sort order violation: rows must come in the order of the key columns",
                Code.SORT_ORDER_VIOLATION,
            )
        if left == right and schema.unique_keys:
            raise YtError("Duplicate key in a table with unique keys", Code.UNIQUE_KEY_VIOLATION)


def _tail(view: View, node_id: str) -> Iterator[Row]:
    """Yield the last row."""
    listed = chunks.chunks(view, node_id)
    total = sum(chunk.row_count for chunk in listed)
    for rows in read(view.connection, listed, Range(max(total - 1, 0), total)):
        yield from rows


def _pack(rows: Sequence[Row]) -> Iterator[tuple[bytes, int]]:
    """Cut rows into chunks of limited length and size, since a chunk is what is read at a time."""
    pieces: list[bytes] = []
    count = 0
    for start in range(0, len(rows), _ROWS_PER_PIECE):
        part = list(rows[start : start + _ROWS_PER_PIECE])
        pieces.append(row_formats.dumps(part, structured.YSON_BINARY))
        count += len(part)
        if count >= ROWS_PER_CHUNK or sum(map(len, pieces)) >= _BYTES_PER_CHUNK:
            yield b"".join(pieces), count
            pieces, count = [], 0
    if pieces:
        yield b"".join(pieces), count


def schema_of(attributes: Mapping[str, Any]) -> TableSchema:
    """Return the schema of a static table."""
    return parse_schema(attributes["schema"])
