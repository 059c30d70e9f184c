"""Rows of one request: from row dicts to columns ready for the store, with the errors of both moments.

Owns which columns may be written, deleted by or looked up by, and the rules about whole rows. Errors
that the real proxy raises while parsing are raised; those it raises at commit travel in `EncodedRows`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from typing import Any

import pyarrow as pa
from yt import yson

from yt_exactly_once.local.errors import Code, YtError
from yt_exactly_once.local.tables import vectors
from yt_exactly_once.local.tables.columnar import ColumnarRows, PiecewiseRows, listed, pieces_of
from yt_exactly_once.local.tables.composite_columns import StoredComposites
from yt_exactly_once.local.tables.encoding import DEFAULT_CONVERSIONS, Conversions
from yt_exactly_once.local.tables.layout import TableLayout
from yt_exactly_once.local.tables.schema import Column

TABLET_INDEX = "$tablet_index"
SEQUENCE_NUMBER = "$sequence_number"

MAX_VALUES_PER_ROW = 1024
MAX_ROW_WEIGHT = 128 << 20
MAX_ROWS_PER_ROWSET = 15 << 20

GROUP_BYTES = 1 << 19
"""Columns of so many bytes are made at a time, where rows come in pieces."""

_MANY_VALUES = 1 << 16
"""So many become columns at a time, where rows mention different ones."""

Row = dict[str, Any]

_ENTITY = yson.YsonEntity()


@dataclass
class EncodedRows:
    """Rows by columns.

    Attributes:
        columns: which columns were given or filled.
        data: stored values per column as `vectors.encode` returns them, or `packed`; nothing if there is
            an error.
        tablets: `$tablet_index` of the request as it came; None where no row has it.
        error: what the commit will say about these rows.
        weights: data weight of every row of an ordered table, system columns included.
        size: bytes that the data take, where rows come in pieces.
    """

    columns: tuple[Column, ...]
    data: list[Any]
    count: int
    tablets: Any = None
    error: YtError | None = None
    weights: Any = None
    size: int = 0


@lru_cache(maxsize=1000)
def input_schema(layout: TableLayout, *, keys_only: bool = False) -> Sequence[dict[str, Any]]:
    """Return the columns that a request may carry, as `@schema` lists them."""
    columns = [column for column in layout.writable_columns if column.is_key or not keys_only]
    listed = [
        {"name": column.name, "type": column.wire_type, "type_v3": column.type_v3}
        for column in columns
    ]
    if not layout.sorted:
        listed.append({"name": TABLET_INDEX, "type": "int64"})
        listed.append({"name": SEQUENCE_NUMBER, "type": "int64"})
    return listed


def encode_write(
    layout: TableLayout, rows: Sequence[Row], *, conversions: Conversions = DEFAULT_CONVERSIONS
) -> Iterator[EncodedRows]:
    """Encode rows that replace or append; an absent column is null.

    Yields:
        All rows, or a group of `GROUP_BYTES` after the other where they come in pieces.
    """
    held: list[EncodedRows] = []
    size = 0
    pieces = _narrow(rows, layout)
    for part in _until_error(_encode_write(layout, piece, conversions) for piece in pieces):
        held.append(part)
        if isinstance(rows, PiecewiseRows) or part.count < len(rows):
            part.size = _size(part)
            size += part.size
        if size > GROUP_BYTES:
            yield _joined(held)
            held, size = [], 0
    if held:
        yield _joined(held)


def _narrow(rows: Sequence[Row], layout: TableLayout) -> Iterator[Sequence[Row]]:
    """Yield rows in pieces that are small although a null takes the width of its column."""
    most = max(1, _MANY_VALUES // len(layout.columns))
    for piece in pieces_of(rows):
        if isinstance(piece, ColumnarRows) or len(piece) <= most:
            yield piece
        else:
            yield from (piece[start : start + most] for start in range(0, len(piece), most))


def _until_error(parts: Iterator[EncodedRows]) -> Iterator[EncodedRows]:
    """Yield rows up to those with an error; rows behind it only have to be readable."""
    failed: EncodedRows | None = None
    count = 0
    for part in parts:
        count += part.count
        _check_count(count)
        if failed is None and part.error is None:
            yield part
        elif failed is None:
            failed = part
    if failed is not None:
        yield failed


def _size(part: EncodedRows) -> int:
    """Return the bytes of columns."""
    return sum(
        sum(len(value) for value in stored if value is not None)
        if isinstance(stored, list)
        else stored.nbytes
        for stored in part.data
    )


def _encode_write(
    layout: TableLayout, rows: Sequence[Row], conversions: Conversions
) -> EncodedRows:
    extras = [] if layout.sorted else [TABLET_INDEX]
    columns = layout.writable_columns
    if conversions.null_to_entity:
        rows = _nulls_as_entities(rows, columns)
    given = _collect(rows, columns, extras)
    encoded = _encode(columns, given, len(rows), conversions)
    encoded.tablets = given[-1] if extras else None
    if encoded.error is None:
        encoded.error = _check_rows(layout, encoded)
    if encoded.error is not None:
        return EncodedRows(columns, [], len(rows), error=encoded.error)
    return encoded


def encode_update(
    layout: TableLayout, rows: Sequence[Row], *, conversions: Conversions = DEFAULT_CONVERSIONS
) -> list[EncodedRows]:
    """Encode rows that change only what they mention; one group per set of mentioned columns."""
    return [
        group for piece in pieces_of(rows) for group in _encode_update(layout, piece, conversions)
    ]


def _encode_update(
    layout: TableLayout, rows: Sequence[Row], conversions: Conversions
) -> list[EncodedRows]:
    columns = layout.writable_columns
    if conversions.null_to_entity:
        rows = _nulls_as_entities(rows, columns)
    keys = tuple(column for column in columns if column.is_key)
    groups: dict[tuple[Column, ...], list[Row]] = {}
    runs: list[tuple[tuple[Column, ...], list[Row]]] = []
    distinct = set()
    _collect(rows, columns)
    for row in rows:
        mentioned = tuple(column for column in columns if column.is_key or column.name in row)
        groups.setdefault(mentioned, []).append(row)
        if not runs or runs[-1][0] != mentioned:
            runs.append((mentioned, []))
        runs[-1][1].append(row)
        distinct.add(tuple(_hashable(row.get(column.name)) for column in keys))
    # Order matters only between writes of one key.
    chosen = list(groups.items()) if len(distinct) == len(rows) else runs
    result = []
    for mentioned, members in chosen:
        given = _collect(members, mentioned)
        encoded = _encode(mentioned, given, len(members), conversions)
        if encoded.error is None:
            encoded.error = _check_update(layout, mentioned) or _check_rows(layout, encoded)
        result.append(encoded)
    return result


def encode_keys(
    layout: TableLayout, rows: Sequence[Row], *, conversions: Conversions = DEFAULT_CONVERSIONS
) -> EncodedRows:
    """Encode keys of a delete, a lock or a lookup; an absent key column is null."""
    parts = (_encode_keys(layout, piece, conversions) for piece in pieces_of(rows))
    return _joined(list(_until_error(parts)))


def _encode_keys(layout: TableLayout, rows: Sequence[Row], conversions: Conversions) -> EncodedRows:
    columns = tuple(column for column in layout.key_columns if column.expression is None)
    given = _collect(rows, columns)
    encoded = _encode(columns, given, len(rows), conversions)
    if encoded.error is None:
        encoded.error = _check_keys(encoded)
    return encoded


def _joined(parts: list[EncodedRows]) -> EncodedRows:
    """Put rows behind each other; the last ones may have an error, which is then all that is left."""
    first, count = parts[0], sum(part.count for part in parts)
    if parts[-1].error is not None:
        return EncodedRows(first.columns, [], count, error=parts[-1].error)
    if len(parts) == 1:
        return first
    tablets = None
    if any(part.tablets is not None for part in parts):
        tablets = list(chain.from_iterable(map(_named_tablets, parts)))
    return EncodedRows(
        first.columns,
        [vectors.concatenated([part.data.pop(0) for part in parts]) for _ in first.columns],
        count,
        tablets,
        None,
        None if first.weights is None else vectors.joined_weights([p.weights for p in parts]),
        sum(part.size for part in parts),
    )


def _named_tablets(part: EncodedRows) -> list[Any]:
    return [None] * part.count if part.tablets is None else listed(part.tablets)


def _nulls_as_entities(rows: Sequence[Row], columns: tuple[Column, ...]) -> Sequence[Row]:
    """Tell nulls of `any` columns that were given from those of columns that a row does not mention."""
    names = [column.name for column in columns if column.wire_type == "any"]
    if not names:
        return rows
    if isinstance(rows, ColumnarRows):
        given = rows.columns
        entities = {
            name: [_ENTITY if value is None else value for value in listed(given[name])]
            for name in names
            # A composite null is the same whether it was given or not.
            if name in given and not isinstance(given[name], StoredComposites)
        }
        return ColumnarRows({**given, **entities}, len(rows))
    return [
        {**row, **{name: _ENTITY for name in names if name in row and row[name] is None}}
        for row in rows
    ]


def _hashable(value: Any) -> Any:
    return value if value is None or isinstance(value, int | float | bytes | str) else repr(value)


def _collect(
    rows: Sequence[Row], columns: tuple[Column, ...], extras: Sequence[str] = ()
) -> list[Any]:
    """Turn rows into columns, None for one that no row mentions, and refuse columns that are not known."""
    _check_count(len(rows))
    names = [column.name for column in columns] + [*extras]
    if isinstance(rows, ColumnarRows):
        _refuse_unknown(names, rows.columns if rows else ())
        return [rows.columns.get(name) for name in names]
    found = 0
    result: list[Any] = []
    for name in names:
        try:
            result.append([row[name] for row in rows])
            found += len(rows)
        except KeyError:
            mentioned = sum(name in row for row in rows)
            result.append([row.get(name) for row in rows] if mentioned else None)
            found += mentioned
    if found != sum(map(len, rows)):
        _refuse_unknown(names, chain.from_iterable(rows))
    return result


def _refuse_unknown(names: list[str], mentioned: Iterable[str]) -> None:
    known = set(names)
    for name in mentioned:
        if name not in known:
            raise YtError(f'No column "{name}" in table schema', Code.SCHEMA_VIOLATION)


def _check_count(count: int) -> None:
    if count > MAX_ROWS_PER_ROWSET:
        raise YtError(
            f"Too many rows in rowset: actual {count}, limit {MAX_ROWS_PER_ROWSET}",
            Code.TOO_MANY_ROWS_IN_ROWSET,
        )


def _encode(
    columns: tuple[Column, ...], given: list[Any], count: int, conversions: Conversions
) -> EncodedRows:
    encoded = EncodedRows(columns, [], count)
    for column, values in zip(columns, given, strict=False):
        if values is None or isinstance(values, pa.NullArray):
            # One null is judged like many.
            stored, error = vectors.encode(column, [None][:count], conversions)
            stored = stored if error else vectors.nulls(stored.type, count)
        else:
            stored, error = vectors.encode(column, values, conversions)
        encoded.data.append(stored)
        encoded.error = encoded.error or error
    return encoded


def _check_keys(encoded: EncodedRows) -> YtError | None:
    for column, stored in zip(encoded.columns, encoded.data, strict=True):
        if column.is_key and vectors.has_nan(stored):
            return YtError('Key of type "double" cannot be NaN', Code.KEY_CANNOT_BE_NAN)
    return None


def _check_update(layout: TableLayout, mentioned: tuple[Column, ...]) -> YtError | None:
    if all(column.is_key for column in mentioned):
        return YtError("At least one non-key column must be specified")
    names = {column.name for column in mentioned}
    for column in layout.value_columns:
        if column.required and column.name not in names:
            return YtError(
                f'Missing required column "{column.name}" in table schema',
                Code.MISSING_REQUIRED_COLUMN,
            )
    return None


def _check_rows(layout: TableLayout, encoded: EncodedRows) -> YtError | None:
    if len(encoded.columns) > MAX_VALUES_PER_ROW:
        return YtError(
            f"Too many values in row: actual {len(encoded.columns)}, limit {MAX_VALUES_PER_ROW}",
            Code.TOO_MANY_VALUES_IN_ROW,
        )
    error = _check_keys(encoded) if layout.sorted else None
    if error is not None:
        return error
    added = layout.system_weight
    weights = vectors.weigh(encoded.columns, encoded.data, encoded.count, added)
    encoded.weights = None if layout.sorted else weights
    heaviest = int(weights.max(initial=0)) - added
    if heaviest < MAX_ROW_WEIGHT:
        return None
    return YtError(
        f"Row is too large: data weight {heaviest}, limit {MAX_ROW_WEIGHT}",
        Code.ROW_WEIGHT_LIMIT_EXCEEDED,
    )
