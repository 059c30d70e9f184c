"""What a write to a static table means, or a join into one: the schema for its rows, and what it leaves.

A table whose schema was given keeps it (strong mode). A table that never got one takes its key columns
from the last write (weak mode).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from yt import yson

from yt_exactly_once.local import arguments
from yt_exactly_once.local.cypress import locks
from yt_exactly_once.local.cypress.view import Node
from yt_exactly_once.local.cypress.ypath import YPath
from yt_exactly_once.local.errors import Code, YtError
from yt_exactly_once.local.static import rows as static_rows
from yt_exactly_once.local.tables import schema_updates, types
from yt_exactly_once.local.tables.schema import (
    ASCENDING,
    DESCENDING,
    Column,
    TableSchema,
    parse_schema,
)

STRONG, WEAK = "strong", "weak"


@dataclass(frozen=True)
class Upload:
    """How rows get into a table.

    Attributes:
        schema: of the rows now, and of the table afterwards.
        schema_mode: of the table afterwards.
        append: whether the rows that are there stay.
        lock_mode: of the lock that the write needs.
    """

    schema: TableSchema
    schema_mode: str
    append: bool
    lock_mode: str


def plan(path: YPath, attributes: Mapping[str, Any], row_count: int) -> Upload:
    """Work out a write from the path that it goes to and the table that is there.

    Args:
        path: with its attributes `append`, `sorted_by` and `schema`.

    Raises:
        YtError: the attributes of the path do not fit each other or the table.
    """
    stored = static_rows.schema_of(attributes)
    mode = str(attributes.get("schema_mode", STRONG))
    append = arguments.flag(dict(path.attributes), "append")
    given = path.attributes.get("schema")
    names = _sorted_by(path)
    for other, is_given in (("append", append), ("sorted_by", bool(names))):
        if given is not None and is_given:
            raise YtError(f'YPath attributes "{other}" and "schema" are not compatible')
    if given is not None:
        return Upload(parse_schema(given), STRONG, append, locks.EXCLUSIVE)
    stored_names = [(column.name, column.sort_order) for column in stored.key_columns]
    if mode == STRONG:
        if names and names != stored_names:
            raise YtError(
                'YPath attribute "sorted_by" must be compatible with table schema for a "strong"'
                " schema mode",
                key_columns=[name for name, _ in names],
                table_schema=stored.to_yson(),
            )
        shared = append and not stored.is_sorted
        return Upload(stored, STRONG, append, locks.SHARED if shared else locks.EXCLUSIVE)
    if append and names and row_count and stored_names[: len(names)] != names:
        raise YtError(
            "Sort columns mismatch while trying to append sorted data into a non-empty table",
            append_key_columns=[name for name, _ in names],
            current_key_columns=[name for name, _ in stored_names],
        )
    shared = append and not names
    return Upload(_keyed(names), WEAK, append, locks.SHARED if shared else locks.EXCLUSIVE)


def _sorted_by(path: YPath) -> list[tuple[str, str]]:
    names = path.attributes.get("sorted_by", [])
    if not isinstance(names, list):
        raise YtError('Error parsing path attribute "sorted_by": expected a list')
    return [_sort_column(item) for item in names]


def _sort_column(item: Any) -> tuple[str, str]:
    """Return the name and the order of a column that rows are sorted by; the order may be missing."""
    if not isinstance(item, dict):
        return str(item), ASCENDING
    order = item.get("sort_order", ASCENDING)
    if order not in (ASCENDING, DESCENDING) or not isinstance(item.get("name"), str):
        raise YtError(
            'Error parsing path attribute "sorted_by": expected names or maps of "name" and'
            ' "sort_order"'
        )
    return str(item["name"]), order


def _keyed(sort_columns: list[tuple[str, str]]) -> TableSchema:
    """Return a schema that knows key columns and nothing else."""
    listing = yson.YsonList(
        [{"name": name, "type": "any", "sort_order": order} for name, order in sort_columns]
    )
    listing.attributes = {"strict": False, "unique_keys": False}
    return parse_schema(listing)


def schema_after(target: Node, sources: Sequence[Node], append: bool) -> tuple[TableSchema, str]:
    """Return the schema and the schema mode that a table gets which others are joined into.

    Rules: `yt/yt/ytlib/table_client/schema_inferer.cpp` and `check_schema_compatibility.cpp`.

    Raises:
        YtError: 316 when the target has a schema of its own that the rows of a source may not fit.
    """
    own = static_rows.schema_of(target.attributes)
    if target.attributes["schema_mode"] == STRONG:
        for source in sources:
            _check_join(source.path, static_rows.schema_of(source.attributes), target.path, own)
        return own, STRONG
    inputs = [*([target] if append else []), *sources]
    schemas = [_plain(static_rows.schema_of(node.attributes)) for node in inputs]
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


def _check_join(
    source_path: str, source: TableSchema, target_path: str, target: TableSchema
) -> None:
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
