"""Rows of static tables: checked against the schema, kept as chunks of binary YSON, read by range.

It knows chunks and schemas and nothing of requests. Sorted tables keep their order; a range may name
row indexes or keys.
"""

from __future__ import annotations

import bisect
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any

from yt import yson

from yt_exactly_once.local.cypress import chunks
from yt_exactly_once.local.cypress.view import Node, View
from yt_exactly_once.local.errors import Code, YtError
from yt_exactly_once.local.formats import row_formats, structured
from yt_exactly_once.local.tables import keys, values, written
from yt_exactly_once.local.tables.columnar import pieces_of
from yt_exactly_once.local.tables.encoding import DEFAULT_CONVERSIONS, Conversions, encode_column
from yt_exactly_once.local.tables.large_values import LargeValue
from yt_exactly_once.local.tables.schema import DESCENDING, TableSchema, parse_schema

Row = dict[str, Any]
Compute = Callable[[Sequence[Any], dict[str, list[Any]], int], dict[str, list[Any]]]

ROWS_PER_CHUNK = 50_000
MAX_COLUMNS = 32 * 1024 - 1
_OF_LIMITS = Conversions(integral_to_double=True)
_INDEXES = ("tablet_index", "chunk_index", "row_index")
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
    view: View,
    node_id: str,
    schema: TableSchema,
    rows: Sequence[Row],
    *,
    append: bool,
    compute: Compute,
    conversions: Conversions = DEFAULT_CONVERSIONS,
) -> None:
    """Replace or extend the rows of a table.

    Args:
        append: whether the old rows stay.
        compute: fills computed columns: from columns, stored values by name, and their count.

    Raises:
        YtError: 307 and kin when a row does not fit the schema, 301 when the order is broken, 306
            when a unique key comes twice.
    """
    last = _last_row(view, node_id) if schema.is_sorted and append else []

    def fitted() -> Iterator[list[Row]]:
        nonlocal last
        for piece in pieces_of(rows):
            checked = fit(schema, piece, compute, conversions)
            if schema.is_sorted:
                _check_pairs(schema, pairwise(encode_keys(schema, [*last, *checked])))
                last = checked[-1:] or last
            yield checked

    chunks.write(view, node_id, pack(fitted()), append=append)


def in_order(
    view: View,
    target: Node,
    schemas: Sequence[TableSchema],
    listed: Sequence[chunks.Chunk],
    *,
    append: bool,
) -> list[chunks.Chunk]:
    """Return chunks in the order that a sorted table needs.

    Args:
        target: the sorted table that the chunks are put into.
        schemas: of the tables that they come from.
        append: whether they come after the rows that the table has.

    Raises:
        YtError: 307 when a source is not sorted like the table, 301 when ranges of keys overlap, 306
            when a unique key comes twice.
    """
    schema = schema_of(target.attributes)
    names = [(column.name, column.sort_order) for column in schema.key_columns]
    for source in schemas:
        own = [(column.name, column.sort_order) for column in source.key_columns]
        if own[: len(names)] != names or (schema.unique_keys and not source.unique_keys):
            raise YtError(
                f'Cannot join a table with key columns {own} and "unique_keys" {source.unique_keys}'
                f" into one with {names} and {schema.unique_keys}",
                Code.SCHEMA_VIOLATION,
            )
    filled = [chunk for chunk in listed if chunk.row_count]
    bounds = {chunk.id: _bounds(view, schema, chunk) for chunk in filled}
    ordered = sorted(filled, key=lambda chunk: bounds[chunk.id])
    last = _last_row(view, target.id) if append else []
    starts, ends = ([bounds[chunk.id][end] for chunk in ordered] for end in (0, 1))
    before = encode_keys(schema, last) or starts[:0]
    pairs = list(zip([*before, *ends], starts if before else starts[1:], strict=False))
    _check_pairs(schema, pairs)
    return ordered


def _bounds(view: View, schema: TableSchema, chunk: chunks.Chunk) -> list[bytes]:
    """Return the first and the last key of a chunk."""
    rows = _rows_of(view.connection, chunk)
    return encode_keys(schema, [rows[0], rows[-1]])


def fit(
    schema: TableSchema,
    rows: Sequence[Row],
    compute: Compute,
    conversions: Conversions = DEFAULT_CONVERSIONS,
) -> list[Row]:
    """Check rows against a schema, bring values to the types of their columns, and fill computed ones."""
    if schema.strict:
        _check_unknown(schema, rows)
    if not schema.columns:
        if any(len(row) > MAX_COLUMNS for row in rows):
            raise YtError("Too many columns in row", limit=MAX_COLUMNS)
        return [_with_objects(row) for row in rows]
    ordered = stored(schema, rows, compute, conversions)
    fitted = values.decode_rows(schema.columns, list(zip(*ordered, strict=True)))
    if not schema.strict:
        known = {column.name for column in schema.columns}
        for row, given in zip(fitted, rows, strict=True):
            others = {name: value for name, value in given.items() if name not in known}
            row.update(_with_objects(others))
    return fitted


def _with_objects(row: Row) -> Row:
    return {
        name: value.loaded() if isinstance(value, LargeValue) else value
        for name, value in row.items()
    }


def stored(
    schema: TableSchema,
    rows: Sequence[Row],
    compute: Compute | None = None,
    conversions: Conversions = DEFAULT_CONVERSIONS,
) -> list[list[Any]]:
    """Return the stored values of rows by column; without `compute`, computed ones are in the rows."""
    encoded = {}
    for column in schema.columns:
        if column.expression is not None and compute is not None:
            continue
        found, error = encode_column(column, [row.get(column.name) for row in rows], conversions)
        if error is not None:
            raise error
        encoded[column.name] = written.whole(found)
    if compute is not None and len(encoded) < len(schema.columns):
        encoded = compute(schema.columns, encoded, len(rows))
    return [encoded[column.name] for column in schema.columns]


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
            yield list(_rows_of(connection, chunk)[start:end])
        passed += chunk.row_count


def row_count(view: View, node_id: str) -> int:
    """Return the number of rows."""
    return sum(chunk.row_count for chunk in chunks.chunks(view, node_id))


def find_ranges(
    selectors: Any,
    total: int,
    schema: TableSchema,
    all_keys: Callable[[], Sequence[bytes]],
    place: Callable[[dict[str, Any]], int],
) -> list[Range]:
    """Turn the `ranges` of a rich path into row indexes.

    Args:
        selectors: value of the attribute; `None` is the whole table.
        all_keys: returns the keys of all rows in order; called when the selectors name keys.
        place: returns the row that a limit by indexes names.

    Raises:
        YtError: a malformed selector, or keys on a table that is not sorted.
    """
    if selectors is None:
        return [Range(0, total)]
    if not isinstance(selectors, list):
        raise YtError('Error parsing path attribute "ranges": expected a list')
    limits = [_limits(selector) for selector in selectors]
    by_key = any(
        not limit.keys().isdisjoint(("key", "key_bound")) for pair in limits for limit in pair
    )
    encoded_keys = all_keys() if schema.is_sorted and by_key else ()
    found = []
    for selector, (lower, upper) in zip(selectors, limits, strict=True):
        exact = selector.get("exact") is not None
        index = partial(_index, schema, encoded_keys, place)
        start = max([0, *index(lower, after=False)])
        end = min([total, *index(upper, after=exact)])
        found.append(Range(start, max(end, start), by_key))
    return found


def _limits(selector: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the limits of a range; one that is missing has no conditions."""
    if not isinstance(selector, dict):
        raise YtError('Error parsing path attribute "ranges": expected a list of maps')
    exact = selector.get("exact")
    names = ("lower_limit", "upper_limit") if exact is None else ("exact", "exact")
    lower, upper = ({} if selector.get(name) is None else selector[name] for name in names)
    if not isinstance(lower, dict) or not isinstance(upper, dict):
        raise YtError("Error parsing a limit of a range: expected a map")
    return lower, upper


def encode_keys(schema: TableSchema, rows: Sequence[Row]) -> list[bytes]:
    """Return the keys of rows as blobs in the order of the table."""
    given = []
    for column in schema.key_columns:
        cells = [row.get(column.name) for row in rows]
        if column.kind == "any":
            cells = [None if cell is None else values.dump_yson(cell) for cell in cells]
        given.append(cells)
    return keys.key_encoder(schema.key_columns)(given)


def _index(
    schema: TableSchema,
    encoded_keys: Sequence[bytes],
    place: Callable[[dict[str, Any]], int],
    limit: dict[str, Any],
    *,
    after: bool,
) -> Iterator[int]:
    """Yield the row that each condition of a limit names; the stricter one counts."""
    unknown = limit.keys() - {"key", "key_bound", *_INDEXES}
    if unknown:
        raise YtError(
            f'Limits by "{min(unknown)}" are not supported by the embedded cluster; use "key",'
            ' "row_index", "chunk_index" or "tablet_index"'
        )
    indexes = {name: limit[name] for name in _INDEXES if limit.get(name) is not None}
    for name, index in indexes.items():
        if isinstance(index, bool) or not isinstance(index, int):
            raise YtError(f"Error parsing a limit of a range: {name} must be an integer")
    if "key" in limit:
        yield _key_index(limit["key"], schema, encoded_keys, after=after)
    if "key_bound" in limit:
        relation, prefix = _bound(limit["key_bound"])
        yield _key_index(prefix, schema, encoded_keys, after=relation in (">", "<="))
    if indexes:
        # What is exact ends before the next index.
        last = next(reversed(indexes))
        yield place({**indexes, last: indexes[last] + after})


def _bound(value: Any) -> tuple[str, Any]:
    """Take a bound apart: how a key compares with a prefix, and the prefix."""
    if not isinstance(value, list) or len(value) != 2 or value[0] not in (">", ">=", "<", "<="):  # noqa: PLR2004
        raise YtError('Error parsing a limit of a range: "key_bound" is no relation and prefix')
    return str(value[0]), value[1]


def _key_index(key: Any, schema: TableSchema, encoded_keys: Sequence[bytes], *, after: bool) -> int:
    if not schema.is_sorted:
        raise YtError("Cannot use key or key bound in read limit for an unsorted object")
    if not isinstance(key, list):
        raise YtError("Error parsing a limit of a range: key must be a list")
    prefix = b""
    is_mixed = any(column.sort_order == DESCENDING for column in schema.key_columns)
    if is_mixed and len(key) > len(schema.key_columns):
        raise YtError(
            "Read limit key cannot be longer than schema key prefix when at least one column has"
            " descending sort order"
        )
    # A key that is longer than those of the rows comes after every row that it begins with.
    beyond = after or len(key) > len(schema.key_columns)
    for column, value in zip(schema.key_columns, key, strict=False):
        kind = (getattr(value, "attributes", None) or {}).get("type")
        if kind in ("min", "max") and is_mixed:
            raise YtError(
                "Sentinel values are not allowed in read limit key when at least one column has"
                " descending sort order"
            )
        if kind == "max":
            beyond = True
            break
        if kind == "min":
            beyond = after
            break
        plain = None if isinstance(value, yson.YsonEntity) else value
        stored, error = encode_column(column, [plain], _OF_LIMITS)
        if error is not None:
            # Values of other types are before or after all of the column.
            untyped = replace(column, wire_type="any")
            prefix += keys.encode_prefix([untyped], [structured.dump_yson(plain)])
        else:
            prefix += keys.encode_prefix([column], stored)
    if beyond:
        # Every key with this prefix comes before the prefix followed by the highest byte.
        return bisect.bisect_left(encoded_keys, prefix + b"\xff")
    return bisect.bisect_left(encoded_keys, prefix)


def _check_pairs(schema: TableSchema, pairs: Iterable[tuple[bytes, bytes]]) -> None:
    for left, right in pairs:
        if left > right:
            raise YtError(
                "Sort order violation: rows must come in the order of the key columns",
                Code.SORT_ORDER_VIOLATION,
            )
        if left == right and schema.unique_keys:
            raise YtError("Duplicate key in a table with unique keys", Code.UNIQUE_KEY_VIOLATION)


def _last_row(view: View, node_id: str) -> list[Row]:
    """Return the last row, if there is one."""
    filled = [chunk for chunk in chunks.chunks(view, node_id) if chunk.row_count]
    return [_rows_of(view.connection, filled[-1])[-1]] if filled else []


def _rows_of(connection: sqlite3.Connection, chunk: chunks.Chunk) -> Sequence[Row]:
    return row_formats.load_stored(chunks.read(connection, chunk))


def pack(several: Iterable[Sequence[Row]]) -> Iterator[tuple[bytes, int]]:
    """Cut rows into chunks of limited length and size, since a chunk is what is read at a time."""
    pieces: list[bytes] = []
    count = 0
    for rows in several:
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
