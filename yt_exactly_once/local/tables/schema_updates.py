"""Changes of a schema that rows survive: columns, types, strictness.

Rules: `yt/yt/library/heavy_schema_validation` and `yt/yt/client/complex_types/check_type_compatibility.cpp`.
"""

from __future__ import annotations

from yt_exactly_once.local.errors import Code, YtError
from yt_exactly_once.local.tables import types
from yt_exactly_once.local.tables.schema import Column, TableSchema
from yt_exactly_once.local.tables.types import LogicalType

_WIDENINGS = (
    ("int8", "int16", "int32", "int64"),
    ("uint8", "uint16", "uint32", "uint64"),
    ("float", "double"),
    ("utf8", "string"),
)
_TO_YSON = frozenset((*(name for chain in _WIDENINGS for name in chain), "bool", "null", "void"))
_TO_YSON |= {"date", "datetime", "timestamp", "interval"}


def check(old: TableSchema, new: TableSchema, *, dynamic: bool) -> None:
    """Refuse a schema that the rows of a table would not fit.

    Raises:
        YtError: 316 with the reason inside.
    """
    try:
        _check(old, new, dynamic=dynamic)
    except YtError as error:
        raise YtError(
            "Table schemas are incompatible",
            Code.INCOMPATIBLE_SCHEMAS,
            {"old_schema": old.to_yson(), "new_schema": new.to_yson()},
            inner=[error],
        ) from error


def _check(old: TableSchema, new: TableSchema, *, dynamic: bool) -> None:
    if dynamic and old.is_sorted != new.is_sorted:
        raise YtError("Cannot change dynamic table type from sorted to ordered or vice versa")
    if new.is_sorted and not old.is_sorted:
        raise YtError("Cannot change schema from unsorted to sorted")
    for name in ("strict", "unique_keys"):
        if getattr(new, name) and not getattr(old, name):
            raise YtError(f'Changing "{name}" from "false" to "true" is not allowed')
    if old.strict and not new.strict:
        if old.columns != new.columns:
            raise YtError(
                'Changing columns is not allowed while changing "strict" from "true" to "false"'
            )
        return
    _check_columns(old, new)
    _check_keys(old, new, dynamic=dynamic)


def _check_columns(old: TableSchema, new: TableSchema) -> None:
    for column in new.columns:
        _check_new(old, column)
    by_name = {column.name: column for column in new.columns}
    for column in old.columns:
        if column.name in by_name:
            _check_column(column, by_name[column.name])
        elif old.strict:
            raise YtError(f'Cannot remove column "{column.name}" from a strict schema')


def _check_new(old: TableSchema, column: Column) -> None:
    if any(column.name == known.name for known in old.columns):
        return
    if column.extra.get("stable_name", column.name) != column.name:
        raise YtError(
            f'Column "{column.name}" cannot get another name: this change is not supported by the'
            " embedded cluster; add a column and copy the values"
        )
    if not old.strict:
        raise YtError(f'Cannot insert a new column "{column.name}" into non-strict schema')
    if column.required:
        raise YtError(f'Cannot insert a new required column "{column.name}" into a non-empty table')
    if column.expression is not None:
        raise YtError(f'New computed column "{column.name}"')


def _check_keys(old: TableSchema, new: TableSchema, *, dynamic: bool) -> None:
    kept = 0
    for place, column in enumerate(old.key_columns):
        if any(each.name == column.name for each in new.key_columns):
            kept = place + 1
            if [each.name for each in new.key_columns[:kept]] != [
                each.name for each in old.key_columns[:kept]
            ]:
                raise YtError("Key columns cannot be renamed or reordered, new ones come last")
    if kept < len(old.key_columns) and (new.unique_keys or dynamic):
        raise YtError("Table cannot have unique keys since some of its key columns were removed")


def _check_column(old: Column, new: Column) -> None:
    if new.sort_order is not None:
        _check_same("Sort order", old.name, old.sort_order, new.sort_order)
    check_column(old, new)


def check_column(old: Column, new: Column) -> None:
    """Refuse a column that does not take every value of another one, whatever the order of rows.

    Raises:
        YtError: says why.
    """
    _check_same("Expression", old.name, old.expression, new.expression)
    if new.required and not old.required:
        raise YtError(
            f'Optional column "{old.name}" cannot be changed to required', Code.INCOMPATIBLE_SCHEMAS
        )
    if old.aggregate is not None:
        _check_same("Aggregate mode", old.name, old.aggregate, new.aggregate)
    if not _takes(old.type_v3, new.type_v3):
        raise YtError(
            f'Type mismatch for column "{old.name}": cannot change '
            f'"{types.describe(old.type_v3)}" to "{types.describe(new.type_v3)}"',
            Code.INCOMPATIBLE_SCHEMAS,
        )


def _check_same(what: str, column: str, old: str | None, new: str | None) -> None:
    if old != new:
        shown = ['"<null>"' if value is None else f'"{value}"' for value in (old, new)]
        raise YtError(f'{what} mismatch for column "{column}": old {shown[0]}, new {shown[1]}')


def _takes(old: LogicalType, new: LogicalType) -> bool:
    """Tell whether every value of the old type is one of the new type."""
    (old, before), (new, after) = _unwrapped(old), _unwrapped(new)
    if before != after and (before, after) != (0, 1):
        return False
    if isinstance(old, str) or isinstance(new, str):
        widened = any(old in chain and new in chain[chain.index(old) :] for chain in _WIDENINGS)
        return widened or old == new or (new == "yson" and isinstance(old, str) and old in _TO_YSON)
    if old["type_name"] != new["type_name"]:
        return False
    if old["type_name"] == "decimal":
        return bool(old == new)
    parts = [part for part in ("item", "key", "value") if part in old]
    if parts:
        return all(_takes(old[part], new[part]) for part in parts)
    return _takes_members(old, new)


def _takes_members(old: LogicalType, new: LogicalType) -> bool:
    named = "members" in old
    if named != ("members" in new):
        return False
    listed = "members" if named else "elements"
    added = new[listed][len(old[listed]) :]
    if old["type_name"] == "tuple" and added:
        return False
    if old["type_name"] == "struct" and not all(_unwrapped(each["type"])[1] for each in added):
        return False
    return len(old[listed]) <= len(new[listed]) and all(
        left.get("name") == right.get("name") and _takes(left["type"], right["type"])
        for left, right in zip(old[listed], new[listed], strict=False)
    )


def _unwrapped(logical: LogicalType) -> tuple[LogicalType, int]:
    """Return a type without tags and `optional`, and how often it was optional."""
    depth = 0
    logical = types.untagged(logical)
    while isinstance(logical, dict) and logical["type_name"] == "optional":
        depth += 1
        logical = types.untagged(logical["item"])
    return logical, depth
