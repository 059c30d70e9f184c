"""Columns that grow: the schema of a table after it has taken what a DataFrame has and the table lacks.

A table only gains. A new column is optional and comes last. The type of a column is widened only as YTsaurus
allows (`CheckTypeCompatibility` in `yt/yt/client/complex_types/check_type_compatibility.cpp`), so every value
that is stored stays the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from yt_exactly_once.codec import types
from yt_exactly_once.codec.arrow_types import logical_type_of, match_types
from yt_exactly_once.codec.matches import Fit, is_list
from yt_exactly_once.codec.scalars import SCALARS, Scalar
from yt_exactly_once.codec.schema import is_of_cluster, is_service_column
from yt_exactly_once.errors import SchemaMismatchError

Columns = list[dict[str, Any]]
"""As in `@schema`."""

_WIDER = (
    ("int8", "int16", "int32", "int64"),
    ("uint8", "uint16", "uint32", "uint64"),
    ("float", "double"),
)


def unknown_columns(frame: pa.Schema, columns: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the columns of a DataFrame that a table lacks, whatever the case of its names."""
    known = {str(column["name"]).lower() for column in columns}
    return [
        name for name in frame.names if name.lower() not in known and not is_service_column(name)
    ]


def grown(frame: pa.Schema, columns: Sequence[Mapping[str, Any]]) -> Columns:
    """Return the columns of a table that takes every row of a DataFrame, if it can become such a table.

    What cannot grow stays as it is: keys, and types that are no wider ones. `check_frame` then refuses it.

    Raises:
        SchemaMismatchError: a new column has no counterpart.
    """
    fields = {field.name: field for field in frame}
    found = [_widened_column(column, fields.get(str(column["name"]))) for column in columns]
    added = [name for name in unknown_columns(frame, columns) if not is_of_cluster(name)]
    return [*found, *(described(fields[name]) for name in added)]


def described(field: pa.Field) -> dict[str, Any]:
    """Return the optional column that takes every value of a field."""
    if pa.types.is_null(field.type):
        raise SchemaMismatchError(
            "A column without a type cannot be added: all its values are null",
            remedy=f"Give it a type: CAST({field.name} AS STRING). Or drop it from the DataFrame",
            column=field.name,
        )
    logical = logical_type_of(field.with_nullable(True))
    return {"name": field.name, "type_v3": types.render_type(logical)}


def _widened_column(column: Mapping[str, Any], field: pa.Field | None) -> dict[str, Any]:
    if field is None or column.get("sort_order") or column.get("expression"):
        return dict(column)
    old = types.parse_column_type(column)
    new = _widened(old, field.type)
    if new is None or new == old:
        return dict(column)
    # The older spelling of a type may not contradict the newer one.
    kept = {name: each for name, each in column.items() if name not in {"type", "required"}}
    return {**kept, "type_v3": types.render_type(new)}


def _widened(old: types.LogicalType, arrow: pa.DataType) -> types.LogicalType | None:
    """Return the narrowest wider type that takes values of an Arrow type; `None` without one."""
    if match_types(arrow, old).fit is not Fit.REFUSED:
        return old
    new: types.LogicalType | None = None
    match old:
        case Scalar(name=name):
            chain = next((each for each in _WIDER if name in each), (name,))
            wider = (SCALARS[each] for each in chain[chain.index(name) + 1 :])
            new = next((one for one in wider if one.match(arrow).fit is not Fit.REFUSED), None)
        case types.OptionalType(item):
            inner = _widened(item, arrow)
            new = inner and types.OptionalType(inner)
        case types.ListType(item) if is_list(arrow):
            inner = _widened(item, arrow.value_type)
            new = inner and types.ListType(inner)
        case types.DictType(key, value) if pa.types.is_map(arrow):
            inner = _widened(value, arrow.item_type)
            new = inner and types.DictType(key, inner)
        case types.StructType(members, named=True) if pa.types.is_struct(arrow):
            new = _widened_struct(members, arrow)
    # Another part may not fit.
    return new if new is not None and match_types(arrow, new).fit is not Fit.REFUSED else None


def _widened_struct(
    members: Sequence[types.Member], arrow: pa.StructType
) -> types.StructType | None:
    fields = {field.name: field for field in arrow}
    kept = list[types.Member]()
    for member in members:
        field = fields.pop(member.name, None)
        kind = member.type if field is None else _widened(member.type, field.type)
        if kind is None:
            return None
        kept.append(types.Member(member.name, kind))
    known = {member.name.lower() for member in kept}
    if any(name.lower() in known for name in fields):
        # As for columns: Spark could not tell the two apart.
        return None
    added = (
        types.Member(field.name, logical_type_of(field.with_nullable(True)))
        for field in fields.values()
    )
    return types.StructType((*kept, *added))


def names_of(frame: pa.Schema, written: Sequence[str]) -> tuple[str, ...]:
    """Return the names of the columns that are written, and of all members of structs in them."""
    wanted = frozenset(written)
    fields = [field for field in frame if field.name in wanted]
    return tuple(sorted(name for field in fields for name in _paths(field.name, field.type)))


def _paths(path: str, arrow: pa.DataType) -> Iterator[str]:
    yield path
    if is_list(arrow):
        yield from _inside(_paths(f"{path}[]", arrow.value_type))
    elif pa.types.is_map(arrow):
        yield from _inside(_paths(f"{path}[value]", arrow.item_type))
    elif pa.types.is_struct(arrow):
        for field in arrow:
            yield from _paths(f"{path}.{field.name}", field.type)


def _inside(paths: Iterator[str]) -> Iterator[str]:
    """Yield the paths inside of an item: the item itself is nothing that can be missing."""
    next(paths)
    yield from paths
