"""The schema of a table that others are joined into: checked against theirs, or taken from them.

Rules: `yt/yt/ytlib/table_client/schema_inferer.cpp` and `check_schema_compatibility.cpp`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from yt_exactly_once.local.cypress.view import Node
from yt_exactly_once.local.errors import Code, YtError
from yt_exactly_once.local.static.rows import schema_of
from yt_exactly_once.local.static.uploads import STRONG, WEAK
from yt_exactly_once.local.tables import schema_updates, types
from yt_exactly_once.local.tables.schema import Column, TableSchema

if TYPE_CHECKING:
    from collections.abc import Sequence


def schema_after(target: Node, sources: Sequence[Node], append: bool) -> tuple[TableSchema, str]:
    """Return the schema and the schema mode that the target gets.

    Raises:
        YtError: 316 when the target has a schema of its own that the rows of a source may not fit.
    """
    own = schema_of(target.attributes)
    if target.attributes["schema_mode"] == STRONG:
        for source in sources:
            _check(source.path, schema_of(source.attributes), target.path, own)
        return own, STRONG
    inputs = [*([target] if append else []), *sources]
    schemas = [_plain(schema_of(node.attributes)) for node in inputs]
    modes = {node.attributes["schema_mode"] for node in inputs}
    if modes == {STRONG} and all(schema == schemas[0] for schema in schemas):
        return schemas[0], STRONG
    return TableSchema((), strict=False), WEAK


def _plain(schema: TableSchema) -> TableSchema:
    """Return names and types alone, in the order of names."""
    columns = (
        Column(each.name, each.wire_type, each.type_v3, required=each.required)
        for each in schema.columns
    )
    ordered = tuple(sorted(columns, key=lambda column: column.name))
    return replace(schema, columns=ordered, unique_keys=False)


def _check(source_path: str, source: TableSchema, target_path: str, target: TableSchema) -> None:
    try:
        _check_columns(source, target)
    except YtError as error:
        raise YtError(
            f"Schema of output table {target_path} is not compatible with schema of input table"
            f" {source_path}",
            inner=[
                YtError("Table schemas are incompatible", Code.INCOMPATIBLE_SCHEMAS, inner=[error])
            ],
        ) from error


def _check_columns(source: TableSchema, target: TableSchema) -> None:
    if target.strict and not source.strict:
        raise YtError("Incompatible strictness: input schema is not strict while output schema is")
    wanted = {column.name: column for column in target.columns}
    for column in source.columns:
        if column.name in wanted:
            schema_updates.check_column(column, wanted.pop(column.name))
        elif target.strict:
            raise YtError(
                f'Column "{column.name}" is found in input schema but is missing in output schema'
            )
        elif types.is_composite(column.type_v3):
            raise YtError(
                f'Column "{column.name}" of input schema with complex type'
                f' "{types.describe(column.type_v3)}" is missing in strict part of output schema'
            )
    for name, column in wanted.items():
        if column.expression is not None:
            raise YtError(f'Unexpected computed column "{name}" in output schema')
        if not source.strict:
            raise YtError(
                f'Column "{name}" is present in output schema and is missing in non-strict input schema'
            )
        if column.required:
            raise YtError(
                f'Required column "{name}" is present in output schema and is missing in input schema'
            )
