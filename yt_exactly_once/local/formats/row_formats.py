"""Rows on the wire: the tabular bodies of requests and answers.

Rows going in have `str` keys and `bytes` strings, whatever the format; the loops over rows are in C
wherever the format allows it. Which columns and types are fine is not decided here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from yt import yson

from yt_exactly_once.local.arguments import flag
from yt_exactly_once.local.errors import Code, YtError, text_of
from yt_exactly_once.local.formats import (
    arrow_rows,
    json_format,
    row_checks,
    row_pieces,
    yson_lines,
    yson_scan,
)
from yt_exactly_once.local.formats.row_checks import column_name
from yt_exactly_once.local.tables.columnar import ColumnarRows

if TYPE_CHECKING:
    from yt_exactly_once.local.formats.structured import Format
    from yt_exactly_once.local.tables.vectors import StoredRows


_MANY_ROWS = 32
"""From so many on vectors are faster than loops."""

_MANY_BYTES = 2048
"""Of rows, which are about as many then."""


def loads(
    data: bytes,
    source: Format,
    schema: Sequence[Mapping[str, Any]] | None = None,
    features: Mapping[str, Any] | None = None,
) -> Sequence[dict[str, Any]]:
    """Parse rows.

    Args:
        schema: see `registry.RowReader`.
        features: of the cluster, see `arrow_rows.loads`.

    Raises:
        YtError: the body is malformed or the format cannot carry rows.
    """
    if source.name == "yson":
        return _scanned(data, source, schema) or row_pieces.of_yson(data, _loads_yson)
    if source.name == "json":
        parse = partial(json_format.load_rows, data, source.attributes, "rows")
        return row_pieces.of_rows(len(data), parse)
    if source.name == "arrow":
        return arrow_rows.loads(data, schema, features or {})
    raise YtError(
        f'Unsupported input format "{source.name}"; use yson, json or arrow', Code.INVALID_FORMAT
    )


def dumps(rows: Iterable[dict[str, Any] | None], target: Format) -> bytes:
    """Encode rows; raise `YtError` if the format cannot carry rows, or cannot express a value."""
    if target.name == "yson":
        variant = str(target.attributes.get("format", "binary"))
        encoded: bytes = yson.dumps(
            rows if isinstance(rows, list) else list(rows),
            yson_format=variant,
            yson_type="list_fragment",
        )
        return encoded
    if target.name == "json":
        return b"".join(json_format.dump_rows(rows, target.attributes))
    raise YtError(
        f'Unsupported output format "{target.name}"; use yson, json or arrow', Code.INVALID_FORMAT
    )


def dump_stored(rows: StoredRows, target: Format, count: int) -> Iterator[bytes]:
    """Encode stored rows piece by piece, by vector where the format allows it.

    Args:
        count: rows of a piece that is encoded row by row.

    Raises:
        YtError: as `dumps`.
    """
    is_binary = target.name == "yson" and target.attributes.get("format", "binary") == "binary"
    if is_binary and len(rows) >= _MANY_ROWS:
        yield from yson_lines.dump_rows(rows)
        return
    for start in range(0, len(rows), count):
        yield dumps(list(rows[start : start + count]), target)


def with_indexes(items: Iterable[Any]) -> Iterator[dict[str, Any]]:
    """Turn the marks between rows into columns of the rows, as RPC and Arrow have them."""
    indexes: dict[str, int] = {}
    for item in items:
        if isinstance(item, yson.YsonEntity):
            indexes |= {f"${name}": int(value) for name, value in item.attributes.items()}
            continue
        yield {**item, **indexes} if indexes else item
        if "$row_index" in indexes:
            indexes["$row_index"] += 1


def load_stored(data: bytes) -> Sequence[dict[str, Any]]:
    """Parse rows of binary YSON that this cluster has written itself."""
    return _by_columns(_parse_yson(data))


def _scanned(
    data: bytes, source: Format, schema: Sequence[Mapping[str, Any]] | None
) -> Sequence[dict[str, Any]] | None:
    """Read rows by vector, if there are many and all are plain."""
    if schema is None or len(data) < _MANY_BYTES:
        return None
    if not flag(source.attributes, "enable_integral_type_conversion", True):
        # A column does not tell a signed number from an unsigned one.
        return None
    return yson_scan.scan(data, schema)


def _loads_yson(data: bytes, passed: int = 0) -> Sequence[dict[str, Any]]:
    """Parse rows that come after others."""
    parsed = _parse_yson(data)
    for index, row in enumerate(parsed, passed):
        if type(row) is not dict:
            raise row_checks.no_row(row, index)
    row_checks.check_yson(data, parsed)
    rows = _by_columns(parsed)
    row_checks.check_values(rows)
    return rows


def _parse_yson(data: bytes) -> list[Any]:
    try:
        return list(
            yson.loads(
                data, yson_type="list_fragment", encoding=None, always_create_attributes=False
            )
        )
    except (yson.YsonError, ValueError, TypeError, RecursionError) as error:
        raise YtError(f"Error parsing rows as YSON: {text_of(error)}", Code.YSON_PARSE) from error


def _by_columns(parsed: list[Any]) -> Sequence[dict[str, Any]]:
    if set(map(type, parsed)) == {dict} and len(set(map(tuple, parsed))) == 1:
        columns = {column_name(name): [row[name] for row in parsed] for name in parsed[0]}
        return ColumnarRows(columns, len(parsed))
    return [{column_name(name): value for name, value in row.items()} for row in parsed]
