"""What a write to a static table means: the schema that its rows must fit, and the one it leaves behind.

A table whose schema was given keeps it (strong mode). A table that never got one takes its key columns
from the last write (weak mode).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from yt import yson

from yt_exactly_once.local import arguments
from yt_exactly_once.local.cypress import locks
from yt_exactly_once.local.cypress.ypath import YPath
from yt_exactly_once.local.errors import YtError
from yt_exactly_once.local.static import rows as static_rows
from yt_exactly_once.local.tables.schema import ASCENDING, DESCENDING, TableSchema, parse_schema

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
