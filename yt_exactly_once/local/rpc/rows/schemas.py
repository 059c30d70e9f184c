"""Table schemas and rowset descriptors as messages."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from yt_exactly_once.local.formats.structured import dump_yson
from yt_exactly_once.local.rpc.rows import value_kinds
from yt_exactly_once.local.tables.schema import Column, TableSchema

_ORDERS = {"ascending": 0, "descending": 1}
_VERSIONED = 2


def fill_schema(message: Any, schema: TableSchema) -> None:
    """Write a schema."""
    fill_columns(message, schema.columns)
    message.strict = schema.strict
    message.unique_keys = schema.unique_keys


def fill_columns(message: Any, columns: Iterable[Column]) -> None:
    """Write columns into a schema message."""
    for column in columns:
        target = message.columns.add()
        target.name = column.name.encode()
        target.type = value_kinds.schema_kind(column)
        target.logical_type = value_kinds.logical_of(column)
        target.type_v3 = dump_yson(column.type_v3)
        target.required = column.required
        if column.sort_order is not None:
            target.sort_order = _ORDERS[column.sort_order]
        for name in ("lock", "expression", "aggregate"):
            value = getattr(column, name)
            if value is not None:
                setattr(target, name, value.encode())
        group = column.extra.get("group")
        if group is not None:
            target.group = str(group).encode()


def fill_descriptor(descriptor: Any, columns: Iterable[Column], *, versioned: bool = False) -> None:
    """Write what the rows of an answer are made of; a value's id is the position of its column."""
    listed = list(columns)
    descriptor.wire_format_version = 1
    if versioned:
        descriptor.rowset_kind = _VERSIONED
    for column in listed:
        descriptor.name_table_entries.add(
            name=column.name.encode(),
            type=value_kinds.schema_kind(column),
            logical_type=value_kinds.logical_of(column),
        )
    fill_columns(descriptor.schema, listed)


def names(descriptor: Any) -> list[str]:
    """Return the names of the ids of a rowset; bytes that are no text stay visible."""
    return [entry.name.decode(errors="surrogateescape") for entry in descriptor.name_table_entries]
