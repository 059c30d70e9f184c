"""Rows of one request: from row dicts to columns ready for the store, with the errors of both moments.

Owns which columns may be written, deleted by or looked up by, and the rules about whole rows. Errors
that the real proxy raises while parsing are raised; those it raises at commit travel in `EncodedRows`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
from yt import yson

from yt_exactly_once.local.errors import Code, YtError
from yt_exactly_once.local.tables import vectors
from yt_exactly_once.local.tables.columnar import ColumnarRows, any_has, listed, pieces_of
from yt_exactly_once.local.tables.composite_columns import StoredComposites
from yt_exactly_once.local.tables.encoding import (
    DEFAULT_CONVERSIONS,
    Conversions,
    Outcome,
    encode_column,
    heaviest_value,
)
from yt_exactly_once.local.tables.layout import TableLayout
from yt_exactly_once.local.tables.schema import Column
from yt_exactly_once.local.tables.values import NAN

TABLET_INDEX = "$tablet_index"
SEQUENCE_NUMBER = "$sequence_number"

MAX_VALUES_PER_ROW = 1024
MAX_ROW_WEIGHT = 128 << 20
MAX_ROWS_PER_ROWSET = 15 << 20

Row = dict[str, Any]


class _Missing:
    """Type of the mark for a column that a row does not mention."""


_MISSING = _Missing()
_ENTITY = yson.YsonEntity()


@dataclass
class EncodedRows:
    """Rows by columns.

    Attributes:
        columns: which columns were given or filled.
        data: stored values per column: lists for a sorted table, Arrow arrays for an ordered one.
        extras: service columns of the request, such as `$tablet_index`, as they came.
        error: what the commit will say about these rows.
        weights: data weight of every row of an ordered table.
    """

    columns: tuple[Column, ...]
    data: list[Any]
    count: int
    extras: dict[str, Any]
    error: YtError | None = None
    weights: Any = None


def writable_columns(layout: TableLayout) -> tuple[Column, ...]:
    """Return the columns a client may give in a write."""
    if layout.sorted:
        return tuple(column for column in layout.columns if column.expression is None)
    return tuple(
        column for column in layout.columns if not column.is_system and column.expression is None
    )


def input_schema(layout: TableLayout, *, keys_only: bool = False) -> list[dict[str, Any]]:
    """Return the columns that a request may carry, as `@schema` lists them."""
    columns = [column for column in writable_columns(layout) if column.is_key or not keys_only]
    listed = [
        {"name": column.name, "type": column.wire_type, "type_v3": column.type_v3}
        for column in columns
    ]
    if not layout.sorted:
        listed.append({"name": TABLET_INDEX, "type": "int64"})
        listed.append({"name": SEQUENCE_NUMBER, "type": "int64"})
    return listed


def encode_write(
    layout: TableLayout,
    rows: Sequence[Row],
    *,
    extras: tuple[str, ...] = (),
    conversions: Conversions = DEFAULT_CONVERSIONS,
) -> EncodedRows:
    """Encode rows that replace or append; an absent column is null."""
    return _joined(_encode_write(layout, piece, extras, conversions) for piece in pieces_of(rows))


def _encode_write(
    layout: TableLayout, rows: Sequence[Row], extras: tuple[str, ...], conversions: Conversions
) -> EncodedRows:
    extras = tuple(name for name in extras if any_has(rows, name))
    columns = writable_columns(layout)
    if conversions.null_to_entity:
        rows = _nulls_as_entities(rows, columns)
    given = _collect(rows, columns, extras)
    encode = _encode_list if layout.sorted else vectors.encode
    encoded = _encode(columns, given, len(rows), extras, conversions, encode)
    if encoded.error is None:
        encoded.error = _check_rows(layout, encoded)
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
    columns = writable_columns(layout)
    if conversions.null_to_entity:
        rows = _nulls_as_entities(rows, columns)
    keys = tuple(column for column in columns if column.is_key)
    groups: dict[tuple[Column, ...], list[Row]] = {}
    runs: list[tuple[tuple[Column, ...], list[Row]]] = []
    distinct = set()
    _collect(rows, columns, ())
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
        given = _collect(members, mentioned, ())
        encoded = _encode(mentioned, given, len(members), (), conversions, _encode_list)
        if encoded.error is None:
            encoded.error = _check_update(layout, mentioned) or _check_rows(layout, encoded)
        result.append(encoded)
    return result


def encode_keys(
    layout: TableLayout, rows: Sequence[Row], *, conversions: Conversions = DEFAULT_CONVERSIONS
) -> EncodedRows:
    """Encode keys of a delete, a lock or a lookup; an absent key column is null."""
    return _joined(_encode_keys(layout, piece, conversions) for piece in pieces_of(rows))


def _encode_keys(layout: TableLayout, rows: Sequence[Row], conversions: Conversions) -> EncodedRows:
    columns = tuple(column for column in layout.key_columns if column.expression is None)
    given = _collect(rows, columns, ())
    encoded = _encode(columns, given, len(rows), (), conversions, _encode_list)
    if encoded.error is None:
        encoded.error = _check_keys(encoded)
    return encoded


def _joined(parts: Iterator[EncodedRows]) -> EncodedRows:
    """Put the rows of all pieces together; those behind an error only have to be readable."""
    first = next(parts)
    held, count = [first], first.count
    for part in parts:
        count += part.count
        _check_count(count)
        first.error = first.error or part.error
        if first.error:
            held.clear()
        else:
            held.append(part)
    if len(held) <= 1:
        return replace(first, count=count)
    extras = {name for part in held for name in part.extras}
    return EncodedRows(
        first.columns,
        [_concatenated([part.data.pop(0) for part in held]) for _ in first.columns],
        count,
        {name: list(chain.from_iterable(_extra(part, name) for part in held)) for name in extras},
        None,
        None if first.weights is None else np.concatenate([part.weights for part in held]),
    )


def _extra(part: EncodedRows, name: str) -> list[Any]:
    return listed(part.extras[name]) if name in part.extras else [None] * part.count


def _concatenated(pieces: list[Any]) -> Any:
    if isinstance(pieces[0], list):
        return list(chain.from_iterable(pieces))
    return pa.concat_arrays(pieces)


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
    rows: Sequence[Row], columns: tuple[Column, ...], extras: tuple[str, ...]
) -> list[Any]:
    """Turn rows into columns and refuse columns that are not among them."""
    _check_count(len(rows))
    names = [column.name for column in columns] + list(extras)
    if isinstance(rows, ColumnarRows):
        return _collect_columns(rows, names)
    found = 0
    result = []
    for name in names:
        try:
            values = [row[name] for row in rows]
            found += len(values)
        except KeyError:
            marked = [row.get(name, _MISSING) for row in rows]
            values = [None if value is _MISSING else value for value in marked]
            found += len(marked) - marked.count(_MISSING)
        result.append(values)
    if found != sum(map(len, rows)):
        known = set(names)
        unknown = next(name for row in rows for name in row if name not in known)
        raise YtError(f'No column "{unknown}" in table schema', Code.SCHEMA_VIOLATION)
    return result


def _check_count(count: int) -> None:
    if count > MAX_ROWS_PER_ROWSET:
        raise YtError(
            f"Too many rows in rowset: actual {count}, limit {MAX_ROWS_PER_ROWSET}",
            Code.TOO_MANY_ROWS_IN_ROWSET,
        )


def _collect_columns(rows: ColumnarRows, names: list[str]) -> list[Any]:
    known = set(names)
    unknown = next((name for name in rows.columns if name not in known), None)
    if unknown is not None and rows:
        raise YtError(f'No column "{unknown}" in table schema', Code.SCHEMA_VIOLATION)
    return [rows.columns[name] if name in rows.columns else [None] * len(rows) for name in names]


def _encode(
    columns: tuple[Column, ...],
    given: list[Any],
    count: int,
    extras: tuple[str, ...],
    conversions: Conversions,
    encode: Callable[[Column, Any, Conversions], tuple[Any, YtError | None]],
) -> EncodedRows:
    data = []
    first_error: YtError | None = None
    for column, values in zip(columns, given, strict=False):
        stored, error = encode(column, values, conversions)
        data.append(stored)
        first_error = first_error or error
    return EncodedRows(
        columns, data, count, dict(zip(extras, given[len(columns) :], strict=True)), first_error
    )


def _encode_list(column: Column, values: Any, conversions: Conversions) -> Outcome:
    if isinstance(values, StoredComposites) and vectors.are_fine(column, values):
        return values.array.to_pylist(), None
    return encode_column(column, listed(values), conversions)


def _check_keys(encoded: EncodedRows) -> YtError | None:
    for column, stored in zip(encoded.columns, encoded.data, strict=True):
        if column.is_key and column.kind == "double" and NAN in stored:
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
    if layout.sorted:
        error = _check_keys(encoded)
        if error is not None:
            return error
        return _check_weight(encoded)
    encoded.weights = vectors.weigh(encoded.columns, encoded.data, encoded.count)
    return _too_heavy(int(encoded.weights.max(initial=0)))


def _check_weight(encoded: EncodedRows) -> YtError | None:
    bound = 1 + sum(map(heaviest_value, encoded.columns, encoded.data))
    if bound < MAX_ROW_WEIGHT:
        return None
    arrays = list(map(vectors.of_stored, encoded.columns, encoded.data))
    weights = vectors.weigh(encoded.columns, arrays, encoded.count)
    return _too_heavy(int(weights.max(initial=0)))


def _too_heavy(heaviest: int) -> YtError | None:
    if heaviest < MAX_ROW_WEIGHT:
        return None
    return YtError(
        f"Row is too large: data weight {heaviest}, limit {MAX_ROW_WEIGHT}",
        Code.ROW_WEIGHT_LIMIT_EXCEEDED,
    )
