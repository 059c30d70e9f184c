"""Table schemas, their Arrow schemas, and whether a DataFrame fits a table.

A DataFrame is compared with its table once, before the first row, and every difference is told at
once: the cluster itself would drop unknown columns and cut values without a word.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import pyarrow as pa

from yt_exactly_once import advice
from yt_exactly_once.codec import types
from yt_exactly_once.codec.arrow_types import arrow_type_of, is_json, logical_type_of, match_field
from yt_exactly_once.codec.matches import Fit, is_binary, is_string
from yt_exactly_once.codec.yson_text import yson_of_json
from yt_exactly_once.errors import ConfigError, SchemaMismatchError

SOURCE_TABLET_COLUMN = "__spyt_streaming_src_tablet_index"
"""DataFrame column with the queue partition a row was read from, named as SPYT names it."""

SOURCE_ROW_COLUMN = "__spyt_streaming_src_row_index"
"""DataFrame column with the row index a row had in its queue partition."""

SOURCE_COLUMNS = (SOURCE_TABLET_COLUMN, SOURCE_ROW_COLUMN)
"""They identify a row within its queue."""

SOURCE_QUEUE_COLUMN = "__spyt_streaming_src_queue_path"
"""DataFrame column with the path of the queue a row was read from; SPYT has none like it."""

SOURCE_TIMESTAMP_COLUMN = "__spyt_streaming_src_timestamp"
"""DataFrame column with the moment a row was committed to its queue; SPYT has none like it."""

SERVICE_COLUMNS = (*SOURCE_COLUMNS, SOURCE_QUEUE_COLUMN, SOURCE_TIMESTAMP_COLUMN)
"""Every DataFrame column that the source can add to those of the queue."""

TIMESTAMP_COLUMN = "$timestamp"

WEIGHT_COLUMN = "$cumulative_data_weight"

SYSTEM_COLUMNS: tuple[dict[str, Any], ...] = (
    {"name": TIMESTAMP_COLUMN, "type": "uint64"},
    {"name": WEIGHT_COLUMN, "type": "int64"},
)
"""Columns of a queue that the cluster fills: the time of each row, and the weight of all rows up to it."""

_FILLED_BY_CLUSTER = (TIMESTAMP_COLUMN, WEIGHT_COLUMN)

_POSITIONS = ("$tablet_index", "$row_index")
"""Columns that a pulled row has, and a copy of a queue as a static table."""

_SYSTEM_PREFIX = "$"

RESERVED_PREFIX = "__yt_exactly_once_"
"""How the names of all columns begin, in whatever case, that the package adds to DataFrames and never writes.

A DataFrame that already has one is refused, since Spark would replace the user's column without a word.
"""

# Field metadata by which `decode` finds its way from a row of YSON to an Arrow field.
_TYPE_KEY = b"yt_exactly_once.type_v3"
_COLUMN_KEY = b"yt_exactly_once.column"


SOURCE_FIELDS = tuple(
    pa.field(name, pa.int64(), metadata={_COLUMN_KEY: column})
    for name, column in zip(SOURCE_COLUMNS, _POSITIONS, strict=True)
)
"""Fields that `decode` fills with where a pulled row came from."""


@dataclass(frozen=True, slots=True)
class ColumnSchema:
    """One column of a table.

    Attributes:
        name: as in the table.
        type: its logical type, `optional` included.
        sort_order: `ascending` or `descending` for a key column, else None.
        expression: how the cluster computes the column; such a column is never written.
        aggregate: how values that are written combine with the one that is there, if they do.
        parses_json: whether it is given JSON, and holds YSON.
    """

    name: str
    type: types.LogicalType
    sort_order: str | None = None
    expression: str | None = None
    aggregate: str | None = None
    parses_json: bool = False

    @property
    def nullable(self) -> bool:
        """Whether the column takes null."""
        return types.is_nullable(self.type)

    @property
    def is_key(self) -> bool:
        """Whether the column is part of the key."""
        return self.sort_order is not None

    @property
    def writable(self) -> bool:
        """Whether a client may give the column a value."""
        return self.expression is None and self.name not in _FILLED_BY_CLUSTER

    def values_in(self, batch: pa.RecordBatch) -> pa.Array:
        """Return what a batch has for the column; raise `UnfitValueError` for JSON that YSON would change.

        Rows that were read have YSON there, and are compared with those that are written.
        """
        array = batch.column(self.name)
        return yson_of_json(array) if self.parses_json and not is_binary(array.type) else array


@dataclass(frozen=True, slots=True)
class TableSchema:
    """The columns of a table, in its order."""

    columns: tuple[ColumnSchema, ...]

    @classmethod
    def from_yt(
        cls, columns: Sequence[Mapping[str, Any]], *, by_type_v3: bool = True
    ) -> TableSchema:
        """Build from the value of `@schema`; raise `SchemaMismatchError` for a type that is not known.

        Args:
            by_type_v3: otherwise the older `type` and `required` decide.
        """
        return cls(
            tuple(
                ColumnSchema(
                    name=str(column["name"]),
                    type=types.parse_column_type(column, by_type_v3=by_type_v3),
                    sort_order=_text(column.get("sort_order")),
                    expression=_text(column.get("expression")),
                    aggregate=_text(column.get("aggregate")),
                )
                for column in columns
            )
        )

    @property
    def key_columns(self) -> tuple[ColumnSchema, ...]:
        """The columns of the key, empty for an ordered table."""
        return tuple(column for column in self.columns if column.is_key)

    @property
    def writable_columns(self) -> tuple[ColumnSchema, ...]:
        """The columns a client may write."""
        return tuple(column for column in self.columns if column.writable)


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


def is_service_column(name: str) -> bool:
    """Check whether a DataFrame column describes where a row came from, instead of being one of its values.

    Such a column is written only where the table has a column of that name that clients may write.
    """
    return name in (*SERVICE_COLUMNS, *_FILLED_BY_CLUSTER, *_POSITIONS)


def is_of_cluster(name: str) -> bool:
    """Check whether the cluster decides which tables may have a column of that name, such as `$ttl`."""
    return name.startswith(_SYSTEM_PREFIX)


def is_reserved(name: str) -> bool:
    """Check whether a column of that name belongs to the package; Spark does not distinguish case."""
    return name.lower().startswith(RESERVED_PREFIX)


def require_no_reserved(names: Iterable[str], target: str) -> None:
    """Check that a DataFrame has no reserved column; raise `SchemaMismatchError` if it has one.

    Args:
        target: the table it is written to, for the message.
    """
    taken = [name for name in names if is_reserved(name)]
    if taken:
        raise SchemaMismatchError(
            f"The DataFrame has columns with reserved names: {', '.join(taken)}",
            remedy=f"Rename or drop them: names that begin with {RESERVED_PREFIX} belong to the sink",
            target=target,
        )


BOOLEAN = "boolean column", pa.types.is_boolean
TEXT = "text column", is_string
ANY_KIND = "column", lambda _: True
"""What a column must be that an option names, as people call it."""


def require_column(
    frame: pa.Schema,
    option: str,
    name: str,
    target: str,
    kind: tuple[str, Callable[[pa.DataType], bool]] = ANY_KIND,
) -> None:
    """Check that a DataFrame has the column that an option names, of its kind; raise `ConfigError` if not."""
    called, fits = kind
    found = [field.type for field in frame if field.name == name]
    if [fits(each) for each in found] != [True]:
        has = f"a column of type {found[0]}" if found else "no such column"
        raise ConfigError(
            f"{option} names {name}, and the DataFrame has {has}",
            remedy=f"Name a {called} of the DataFrame",
            target=target,
        )


def without(frame: pa.Schema, *names: str | None) -> pa.Schema:
    """Return the columns of a DataFrame that have none of these names."""
    return pa.schema([field for field in frame if field.name not in names])


def arrow_schema_of(
    table: TableSchema,
    *,
    binary_strings: bool | Collection[str] = False,
    uuid_text: bool = False,
    any_json: bool = False,
) -> pa.Schema:
    """Return what a source yields for the table, ready for `decode`.

    Args:
        binary_strings: read `string` columns as bytes, not as text, so that any bytes pass; or which ones.
        uuid_text: read `uuid` columns as text, not as their 16 bytes.
        any_json: read `any` columns as JSON, not as their YSON.
    """

    def is_binary(name: str) -> bool:
        return binary_strings if isinstance(binary_strings, bool) else name in binary_strings

    return pa.schema(
        pa.field(
            column.name,
            arrow_type_of(
                column.type,
                binary_strings=is_binary(column.name),
                uuid_text=uuid_text,
                any_json=any_json,
            ),
            nullable=column.nullable,
            metadata={_TYPE_KEY: json.dumps(types.render_type(column.type))},
        )
        for column in table.columns
    )


def row_column(field: pa.Field) -> str:
    """Return the name the field's values have in a pulled row."""
    found = (field.metadata or {}).get(_COLUMN_KEY)
    return str(field.name) if found is None else str(found.decode())


def field_type(field: pa.Field) -> types.LogicalType:
    """Return the logical type the field's values have in a pulled row.

    Without a note of `arrow_schema_of` it is the type a table created from the field would have.

    Raises:
        SchemaMismatchError: the Arrow type has no counterpart.
    """
    noted = (field.metadata or {}).get(_TYPE_KEY)
    if noted is not None:
        return types.parse_type(json.loads(noted), column=field.name)
    return logical_type_of(field)


def table_schema_for(frame: pa.Schema, key_columns: Collection[str] = ()) -> list[dict[str, Any]]:
    """Describe a table that takes every row of the DataFrame; service columns are left out.

    Args:
        key_columns: names of the key, in its order; empty for an ordered table.

    Raises:
        SchemaMismatchError: a key column is missing, nothing is left besides the key, or a column has no
            counterpart.
    """
    columns = [
        {"name": field.name, "type_v3": types.render_type(logical_type_of(field))}
        for field in frame
        if not (is_service_column(field.name) or is_of_cluster(field.name))
    ]
    return keyed(columns, key_columns)


def keyed(
    columns: Sequence[Mapping[str, Any]], key_columns: Collection[str]
) -> list[dict[str, Any]]:
    """Describe a table with another key; raise `SchemaMismatchError` if that is missing, or all there is.

    Args:
        columns: as in `@schema`.
        key_columns: names of the key, in its order; empty for an ordered table.
    """
    bare = {
        str(column["name"]): {name: value for name, value in column.items() if name != "sort_order"}
        for column in columns
        if not (key_columns and column["name"] in _FILLED_BY_CLUSTER)
    }
    missing = [name for name in key_columns if name not in bare]
    if missing:
        raise SchemaMismatchError(
            f"The DataFrame has no column {', '.join(missing)} to use as a key",
            remedy=f"Choose from: {', '.join(bare)}",
        )
    if len(bare) == len(key_columns):
        raise SchemaMismatchError(
            "No column is left besides the key",
            remedy="Name a column that is no key: a table needs one",
        )
    keys = [{**bare.pop(name), "sort_order": "ascending"} for name in key_columns]
    return [*keys, *bare.values()]


@dataclass(frozen=True, slots=True)
class WritePlan:
    """The result of `check_frame`: the columns that are written, in the table's order.

    Attributes:
        target: the table, for messages.
        columns: what is written.
        shows_values: whether an error may quote the value it is about.
    """

    target: str
    columns: tuple[ColumnSchema, ...]
    shows_values: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns that are written."""
        return tuple(column.name for column in self.columns)

    @property
    def parsed(self) -> tuple[str, ...]:
        """The names of columns that are given JSON, and hold YSON."""
        return tuple(column.name for column in self.columns if column.parses_json)

    @property
    def keys(self) -> WritePlan:
        """The same for the key columns alone."""
        return replace(self, columns=tuple(column for column in self.columns if column.is_key))

    @property
    def arrow_obstacles(self) -> dict[str, str]:
        """The columns that an Arrow request cannot carry safely, and why; with any, rows go as YSON."""
        known = ((column.name, types.scalar_of(column.type)) for column in self.columns)
        return {name: one.arrow_obstacle for name, one in known if one and one.arrow_obstacle}


class Difference(NamedTuple):
    """Where a DataFrame does not fit a table: types, or `ABSENT`, and what to do."""

    column: str
    frame: str
    table: str
    remedy: str


ABSENT = "-"
_DROP_OR_ADD = "drop it from the DataFrame, or add it to the table"
_OF_CLUSTER = (
    "rename or drop it, or create the table with it: names that begin with $ are the cluster's"
)
_FEW = 3
"""So many columns of a table are named as what another one may be called now."""


def check_frame(
    frame: pa.Schema,
    table: TableSchema,
    *,
    target: str,
    sorted: bool,  # noqa: A002 - the word the table's own attribute uses
) -> WritePlan:
    """Compare a DataFrame with the table it is written to.

    A column of the table that takes null may be missing from the DataFrame; nulls are then written.
    A DataFrame column that may hold nulls fits a required one: each value is checked when encoded.
    Service columns of the DataFrame are not written unless the table has them, for clients to write.

    Args:
        target: the table's path, for messages.
        sorted: whether the table has keys.

    Raises:
        SchemaMismatchError: every difference at once, each with its remedy.
    """
    if found := differences(frame, table, sorted=sorted):
        count, added = len(found), _added_by(frame, found)
        raise SchemaMismatchError(
            f"The DataFrame does not fit the table in {'one place' if count == 1 else f'{count} places'}",
            remedy=f"Run: {advice.add_columns(target, added)}. {advice.OR_ADD}"
            if added
            else "Change the query or the table, column by column",
            details=_side_by_side(found),
            target=target,
        )
    return WritePlan(target, tuple(_written(frame, table)))


def _written(frame: pa.Schema, table: TableSchema) -> list[ColumnSchema]:
    variants = {field.name: is_json(field) for field in frame}
    return [
        replace(column, parses_json=_holds_yson(column) and variants[column.name])
        for column in table.writable_columns
        if column.name in variants
    ]


def _holds_yson(column: ColumnSchema) -> bool:
    scalar = types.scalar_of(column.type)
    return scalar is not None and scalar.holds_yson


def differences(
    frame: pa.Schema,
    table: TableSchema,
    *,
    sorted: bool,  # noqa: A002 - as in `check_frame`
) -> list[Difference]:
    """Return everything that `check_frame` refuses."""
    columns = _written(frame, table)
    found = [
        *_unknown_columns(frame, table),
        *_missing_columns(frozenset(frame.names), table),
        *(each for column in columns for each in _wrong_type(frame, column)),
    ]
    if not found and all(column.is_key for column in columns):
        missing = "a column besides the key" if sorted else "a column of the table"
        found.append(Difference(ABSENT, ABSENT, missing, "add one to the DataFrame"))
    return found


def _unknown_columns(frame: pa.Schema, table: TableSchema) -> list[Difference]:
    found, seen = [], set()
    columns = {column.name: column for column in table.columns}
    for field in frame:
        column = columns.get(field.name)
        if is_service_column(field.name) and not (column and column.writable):
            continue
        if field.name in seen:
            found.append(Difference(field.name, str(field.type), ABSENT, "drop the duplicate"))
        elif column is not None and not column.writable:
            remedy = "the cluster fills it: drop it from the DataFrame"
            found.append(Difference(field.name, str(field.type), str(column.type), remedy))
        elif column is None:
            remedy = _remedy_for_unknown(field.name, table, frame.names)
            found.append(Difference(field.name, str(field.type), ABSENT, remedy))
        seen.add(field.name)
    return found


def _added_by(frame: pa.Schema, found: Sequence[Difference]) -> dict[str, str]:
    """Return the columns with their types, if all that a table needs is to get some; else nothing."""
    if any(one.remedy != _DROP_OR_ADD for one in found):
        return {}
    fields = [frame.field(one.column).with_nullable(False) for one in found]
    try:
        return {field.name: types.spelled(logical_type_of(field)) for field in fields}
    except SchemaMismatchError:
        return {}


def _remedy_for_unknown(name: str, table: TableSchema, given: Collection[str]) -> str:
    if is_of_cluster(name):
        return _OF_CLUSTER
    lacking = [column.name for column in table.writable_columns if column.name not in given]
    for other in lacking:
        if other.lower() == name.lower():
            return f"rename it to {other}: the table's names distinguish case"
    # One of them may have had this name before.
    renamed = (
        f"rename it if it is {' or '.join(lacking)}; else " if 0 < len(lacking) <= _FEW else ""
    )
    return f"{renamed}{_DROP_OR_ADD}"


def _missing_columns(names: Collection[str], table: TableSchema) -> list[Difference]:
    return [
        Difference(column.name, ABSENT, _described(column), "add it to the DataFrame")
        for column in table.writable_columns
        if column.name not in names and (column.is_key or not column.nullable)
    ]


def _wrong_type(frame: pa.Schema, column: ColumnSchema) -> list[Difference]:
    positions = frame.get_all_field_indices(column.name)
    field = frame.field(positions[0])
    match = match_field(field, column.type)
    if match.fit is not Fit.REFUSED:
        return []
    remedy = match.remedy.replace("{x}", column.name)
    if match.path:
        remedy = f"at {column.name}{match.path}: {remedy}"
    given = "variant" if is_json(field) else str(field.type)
    return [Difference(column.name, given, _described(column), remedy)]


def _described(column: ColumnSchema) -> str:
    return f"{column.type}{' key' if column.is_key else ''}"


def _side_by_side(found: Sequence[Difference]) -> list[str]:
    lines = [("column", "DataFrame", "table", "remedy"), *found]
    widths = [max(len(line[position]) for line in lines) for position in range(3)]
    return [" | ".join((*map(str.ljust, line, widths), line[3])) for line in lines]
