"""`add-column`: further columns for a table in use, for whoever does it by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from yt_exactly_once.codec import spark_types, types
from yt_exactly_once.codec.arrow_types import logical_type_of
from yt_exactly_once.config import check_path
from yt_exactly_once.errors import ConfigError, SchemaMismatchError
from yt_exactly_once.ytsaurus.alteration import alter_columns

if TYPE_CHECKING:
    from yt_exactly_once.ytsaurus.client import Connection


@dataclass(frozen=True)
class Added:
    """What a table got, or would get.

    Attributes:
        added: types by the names of new columns.
        known: names of columns that it has already, with the same types.
    """

    added: Mapping[str, str]
    known: Sequence[str]


def add_columns(
    connection: Connection, path: str, wanted: Mapping[str, str], *, dry_run: bool = False
) -> Added:
    """Add optional columns to a dynamic table; one that is mounted is mounted again afterwards.

    Rows that are there have null in them. Queries that write to the table retry until it is mounted.
    Running this again finishes what was broken off.

    Args:
        wanted: types by names; a type of Spark, such as `bigint`, or one of YTsaurus, such as `uint64` or
            the JSON of a `type_v3`.
        dry_run: whether nothing is done.

    Raises:
        ConfigError: a type is not understood.
        SchemaMismatchError: there is such a column of another type, or of a name that Spark takes for it.
        TableError: see `alter_columns`.
    """
    check_path(path, "TABLE")
    logical = {name: types.OptionalType(parse_kind(name, kind)) for name, kind in wanted.items()}

    def change(columns: list[dict[str, Any]]) -> list[dict[str, Any]]:
        new = [
            {"name": name, "type_v3": types.render_type(kind)}
            for name, kind in logical.items()
            if not _has(columns, path, name, kind)
        ]
        return [*columns, *new]

    before, after = alter_columns(connection, path, change, dry_run=dry_run)
    added = {column["name"]: str(logical[column["name"]].item) for column in after[len(before) :]}
    return Added(added, [name for name in wanted if name not in added])


def parse_kind(name: str, kind: str) -> types.LogicalType:
    """Return the type of a column, as Spark or YTsaurus calls it; raise `ConfigError` if neither does."""
    try:
        (found,) = spark_types.parse_schema(f"c {kind} NOT NULL")
        return logical_type_of(found)
    except (ConfigError, SchemaMismatchError):
        pass
    try:
        return types.required(types.parse_spelled(kind))
    except ValueError as error:
        raise ConfigError(
            f"The type {kind} of {name} is not understood",
            remedy="Give a type of Spark (bigint, 'decimal(10,2)'), or of YTsaurus (uint64, utf8, any), or a "
            'type_v3 as JSON (\'{"type_name": "list", "item": "int64"}\')',
            column=name,
        ) from error


def _has(
    columns: Sequence[Mapping[str, Any]], path: str, name: str, kind: types.OptionalType
) -> bool:
    """Return whether a table has a column; refuse one that Spark could not tell from another one."""
    for column in columns:
        known = str(column["name"])
        if known == name and types.parse_column_type(column) in (kind, kind.item):
            return True
        if known.lower() == name.lower():
            raise SchemaMismatchError(
                f"The table has the column {known} of type {types.parse_column_type(column)}",
                remedy="Choose another name: Spark ignores the case of names, and a type is never replaced",
                path=path,
                column=name,
            )
    return False
