"""Table schemas and rowset descriptors as messages."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from yt_exactly_once.local.rpc import message_types, options
from yt_exactly_once.local.rpc.rows.value_kinds import KINDS, LOGICAL, STRING
from yt_exactly_once.local.tables.schema import Column, TableSchema

_ORDERS = {"ascending": 0, "descending": 1}
_VERSIONED = 2


def of_table(schema: TableSchema) -> dict[str, Any]:
    """Return a schema, field by field."""
    columns = [_of_column(column) for column in schema.columns]
    return {"columns": columns, "strict": schema.strict, "unique_keys": schema.unique_keys}


def _of_column(column: Column) -> dict[str, Any]:
    return {
        "name": column.name,
        "type": KINDS[column.wire_type],
        # What has no simple type is `any` or `string`.
        "logical_type": LOGICAL.get(column.wire_type, STRING),
        "type_v3": column.type_v3,
        "required": column.required,
        "sort_order": _ORDERS.get(column.sort_order or ""),
        "lock": column.lock,
        "expression": column.expression,
        "aggregate": column.aggregate,
        "group": column.extra.get("group"),
    }


@lru_cache(maxsize=64)
def descriptor(columns: tuple[Column, ...], *, versioned: bool = False) -> Any:
    """Return what the rows of an answer are made of; a value's id is the position of its column."""
    listed = [_of_column(column) for column in columns]
    described = {
        "wire_format_version": 1,
        "rowset_kind": _VERSIONED if versioned else None,
        "name_table_entries": listed,
        "schema": {"columns": listed},
    }
    return options.fill(message_types.new("TRowsetDescriptor"), described)


def names(descriptor: Any) -> list[str]:
    """Return the names of the ids of a rowset; bytes that are no text stay visible."""
    return [entry.name.decode(errors="surrogateescape") for entry in descriptor.name_table_entries]
