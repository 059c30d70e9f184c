"""Table schemas: parsing, the rules of dynamic tables, and the `@schema` form.

Owns what a schema is and whether it is allowed, never how rows are stored. Texts and rules follow
`yt/yt/client/table_client/schema.cpp` and `schema_serialization_helpers.cpp`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from yt.yson import YsonBoolean, YsonList

from yt_exactly_once.local.errors import Code, YtError
from yt_exactly_once.local.tables import types
from yt_exactly_once.local.tables.types import text

TIMESTAMP_COLUMN = "$timestamp"
CUMULATIVE_WEIGHT_COLUMN = "$cumulative_data_weight"

MAX_COLUMN_NAME_LENGTH = 256
ASCENDING, DESCENDING = "ascending", "descending"
MAX_KEY_COLUMNS = 128
MAX_LOCK_GROUPS = 32
_MAX_COMPLEXITY = 32 * 1024
"""Simple types that a schema is made of, one for a plain column, must be fewer."""

_NUMERIC = ("int64", "uint64", "double")
_PHYSICAL = (*_NUMERIC, "boolean", "string", "any")
_AGGREGATES = {
    "sum": _NUMERIC,
    **dict.fromkeys(("min", "max"), (*_NUMERIC, "boolean", "string")),
    "first": _PHYSICAL,
}
"""Types that each aggregate function takes."""

_TEXTS = ("sort_order", "expression", "aggregate", "lock")
"""What a column may have besides, each a text."""

_UNSUPPORTED_AGGREGATES = frozenset(("dict_sum", "xdelta"))
_SYSTEM_COLUMNS = {
    True: {"$empty": "int64", "$ttl": "uint64"},
    False: {TIMESTAMP_COLUMN: "uint64", CUMULATIVE_WEIGHT_COLUMN: "int64"},
}


@dataclass(frozen=True)
class Column:
    """One column of a schema.

    Attributes:
        wire_type: v1 name of the type; `any` for every composite, `string` for decimals.
        type_v3: logical type in normal form, see `types`.
        required: whether null is refused.
        sort_order: `ascending`, `descending` or None for a value column.
        expression: text of a computed column.
        aggregate: name of the aggregate function.
        extra: other keys that are stored and shown but change nothing here.
    """

    name: str
    wire_type: str
    type_v3: types.LogicalType = field(hash=False)
    required: bool
    sort_order: str | None = None
    expression: str | None = None
    aggregate: str | None = None
    lock: str | None = None
    extra: dict[str, Any] = field(default_factory=dict, hash=False)

    @property
    def kind(self) -> types.Kind:
        """What its values are, see `types.KINDS`."""
        return types.KINDS[self.wire_type]

    @property
    def weight(self) -> int | None:
        """Data weight of a value that is not null; None where that is its length."""
        return {"boolean": 1, "string": None, "any": None}.get(self.kind, 8)

    @property
    def is_key(self) -> bool:
        """Whether the column belongs to the key of a sorted table."""
        return self.sort_order is not None

    @property
    def is_system(self) -> bool:
        """Whether the cluster fills the column in ordered tables."""
        return self.name in (TIMESTAMP_COLUMN, CUMULATIVE_WEIGHT_COLUMN)

    def to_yson(self) -> dict[str, Any]:
        """Return the entry of `@schema`."""
        entry: dict[str, Any] = {
            "name": self.name,
            "required": self.required,
            "type": self.wire_type,
            "type_v3": self.type_v3,
        }
        for key in _TEXTS:
            value = getattr(self, key)
            if value is not None:
                entry[key] = value
        return entry | self.extra


@dataclass(frozen=True)
class TableSchema:
    """A whole schema.

    Attributes:
        columns: columns in order, keys first.
        strict: whether unknown columns are refused.
        unique_keys: whether a key occurs once.
    """

    columns: tuple[Column, ...]
    strict: bool = True
    unique_keys: bool = False

    @cached_property
    def key_columns(self) -> tuple[Column, ...]:
        """Key columns in order."""
        return tuple(column for column in self.columns if column.is_key)

    @property
    def is_sorted(self) -> bool:
        """Whether the schema has a key."""
        return bool(self.key_columns)

    def to_yson(self) -> Any:
        """Return the value of `@schema`: a list with attributes."""
        listing = YsonList([column.to_yson() for column in self.columns])
        listing.attributes = {
            "strict": YsonBoolean(self.strict),
            "unique_keys": YsonBoolean(self.unique_keys),
        }
        return listing


def parse_schema(raw: Any) -> TableSchema:
    """Parse a schema given by a client or stored by `to_yson`.

    Raises:
        YtError: the schema is malformed; rules of dynamic tables are `validate_dynamic`.
    """
    if isinstance(raw, str | bytes | dict) or not hasattr(raw, "__iter__"):
        raise YtError("Table schema must be a list of columns")
    attributes = {text(k): v for k, v in (getattr(raw, "attributes", None) or {}).items()}
    schema = TableSchema(
        tuple(_parse_column(column) for column in raw),
        strict=bool(attributes.get("strict", True)),
        unique_keys=bool(attributes.get("unique_keys", False)),
    )
    _validate(schema)
    return schema


def check_ascending(schema: TableSchema) -> None:
    """Refuse a key column in descending order."""
    for column in schema.key_columns:
        if column.sort_order == DESCENDING:
            raise YtError(
                "Descending sort order is not available in this context yet",
                Code.INVALID_SCHEMA_VALUE,
                {"column_name": column.name},
            )


def validate_dynamic(schema: TableSchema) -> TableSchema:
    """Check the rules of dynamic tables and return the schema as the cluster would keep it."""
    if not schema.strict:
        raise YtError('"strict" cannot be "false" for a dynamic table')
    if schema.is_sorted and not schema.unique_keys:
        schema = replace(schema, unique_keys=True)
    if len(schema.key_columns) == len(schema.columns):
        raise YtError("There must be at least one non-key column")
    if len(schema.key_columns) > MAX_KEY_COLUMNS:
        raise YtError(
            f"Too many key columns: expected <= {MAX_KEY_COLUMNS}, got {len(schema.key_columns)}"
        )
    check_ascending(schema)
    for column in schema.columns:
        if column.is_key and (column.wire_type == "any" or types.is_composite(column.type_v3)):
            raise YtError(
                f'Error validating column "{column.name}" in dynamic table schema',
                inner=[
                    YtError(
                        "Dynamic table cannot have key column of type "
                        f'"{types.describe(column.type_v3)}"'
                    )
                ],
            )
    return schema


def _parse_column(raw: Any) -> Column:
    if not isinstance(raw, dict):
        raise YtError("Column schema must be a map")
    fields = {text(key): value for key, value in raw.items()}
    name = text(fields.get("name", ""))
    if fields.get("deleted"):
        raise YtError("Deleted columns are not supported by the embedded cluster")
    if not name:
        raise YtError("Column name cannot be empty")
    try:
        return _build_column(name, fields)
    except YtError as error:
        raise YtError(f'Error validating column "{name}" in table schema', inner=[error]) from error


def _build_column(name: str, fields: dict[str, Any]) -> Column:
    required = fields.get("required")
    v1 = fields.get("type")
    if fields.get("type_v3") is not None:
        logical = types.parse_type_v3(fields["type_v3"])
        wire_type, actual_required = types.to_v1(logical)
        if v1 is not None and types.v1_name(text(v1)) != wire_type:
            raise YtError(
                '"type_v3" does not match "type"',
                type_v3=types.describe(logical),
                type=text(v1),
                expected_type=wire_type,
            )
        if required is not None and bool(required) != actual_required:
            raise YtError(
                '"type_v3" does not match "required"',
                type_v3=types.describe(logical),
                required=bool(required),
            )
    elif v1 is not None:
        logical = types.type_v3_from_v1(types.v1_name(text(v1)), required=bool(required or False))
        wire_type, actual_required = types.to_v1(logical)
    else:
        raise YtError("Column type is not specified")
    if types.untagged(logical) == "yson":
        raise YtError('Column of type "any" cannot be "required"')
    return Column(
        name=name,
        wire_type=wire_type,
        type_v3=logical,
        required=actual_required,
        **{key: _optional_text(fields, key) for key in _TEXTS},
        extra={
            key: fields[key]
            for key in ("group", "materialized", "max_inline_hunk_size", "stable_name")
            if fields.get(key) is not None and not (key == "stable_name" and fields[key] == name)
        },
    )


def _optional_text(fields: dict[str, Any], key: str) -> str | None:
    value = fields.get(key)
    if value is None:
        return None
    value = text(value)
    if not value and key == "lock":
        raise YtError("Lock name cannot be empty")
    return value


def _validate(schema: TableSchema) -> None:
    seen: set[str] = set()
    complexity = 0
    for column in schema.columns:
        if column.name in seen:
            raise YtError(f'Duplicate column name "{column.name}" in table schema')
        seen.add(column.name)
        try:
            _validate_name(column, is_sorted=schema.is_sorted)
            _validate_roles(column)
            complexity += types.check_depth(column.type_v3)
        except YtError as error:
            raise YtError(
                f'Error validating schema of column "{column.name}"', inner=[error]
            ) from error
    if complexity >= _MAX_COMPLEXITY:
        raise YtError(
            f"Table schema is too complex: {complexity} simple types, the limit is {_MAX_COMPLEXITY}"
        )
    locks = {column.lock for column in schema.columns if column.lock}
    if len(locks) >= MAX_LOCK_GROUPS:
        raise YtError(
            f"Too many column locks in table schema: actual {len(locks)}, "
            f"limit {MAX_LOCK_GROUPS - 1}"
        )
    if any(column.is_key for column in schema.columns[len(schema.key_columns) :]):
        raise YtError("Key columns must form a prefix of schema", Code.INVALID_SCHEMA_VALUE)
    if schema.unique_keys and not schema.is_sorted:
        raise YtError('"unique_keys" can only be true if key columns are present')


def _validate_name(column: Column, *, is_sorted: bool) -> None:
    name = column.name
    if len(name.encode()) > MAX_COLUMN_NAME_LENGTH:
        raise YtError(
            f'Column name "{name}" is longer than maximum allowed: '
            f"{len(name.encode())} > {MAX_COLUMN_NAME_LENGTH}"
        )
    if name.startswith("$"):
        expected = _SYSTEM_COLUMNS[is_sorted].get(name)
        if expected is None:
            raise YtError(f'System column name "{name}" is not allowed here')
        if column.wire_type != expected:
            raise YtError(
                f'Invalid type of column "{name}": expected "{expected}", '
                f'got "{types.describe(column.type_v3)}"'
            )


def _validate_roles(column: Column) -> None:
    if column.sort_order not in (None, ASCENDING, DESCENDING):
        raise YtError(f'Invalid sort order "{column.sort_order}"')
    is_any = types.value_type(column.type_v3) == "yson"
    if column.is_key and not is_any and not types.is_comparable(column.type_v3):
        raise YtError(f'Key column cannot be of "{types.describe(column.type_v3)}" type')
    if column.extra.get("stable_name") == "":
        raise YtError("Stable name of a column cannot be empty")
    if column.lock and column.is_key:
        raise YtError("Column lock cannot be set on a key column")
    if column.expression and column.required:
        raise YtError("Computed column cannot be required")
    if column.aggregate:
        _validate_aggregate(column, column.aggregate)


def _validate_aggregate(column: Column, function: str) -> None:
    if column.is_key:
        raise YtError(f'Key column "{column.name}" cannot be aggregated')
    if column.wire_type not in _PHYSICAL or types.is_composite(column.type_v3):
        raise YtError(
            f'Aggregated column "{column.name}" is forbidden to have logical type '
            f'"{types.describe(column.type_v3)}"'
        )
    if function in _UNSUPPORTED_AGGREGATES:
        raise YtError(f'Aggregate function "{function}" is not supported by the embedded cluster')
    expected = _AGGREGATES.get(function)
    if expected is None:
        raise YtError(f'Unknown aggregate function "{function}" at column "{column.name}"')
    if column.wire_type not in expected:
        raise YtError(
            f'Argument type mismatch in aggregate function "{function}" from column '
            f'"{column.name}": expected one of "{", ".join(expected)}", got "{column.wire_type}"'
        )


def _service_schema(keys: str, values: str) -> TableSchema:
    """Build the schema of a consumer or a producer from `name:type`, with `!` where null is refused."""
    parts = [(each, ASCENDING) for each in keys.split()] + [(each, None) for each in values.split()]
    columns = []
    for part, sort_order in parts:
        name, kind = part.rstrip("!").split(":")
        required = part.endswith("!")
        logical = types.type_v3_from_v1(kind, required=required)
        columns.append(Column(name, kind, logical, required, sort_order))
    return TableSchema(tuple(columns), unique_keys=True)


CONSUMER_SCHEMA = _service_schema(
    "queue_cluster:string! queue_path:string! partition_index:uint64!", "offset:uint64! meta:any"
)
REGISTRATIONS_SCHEMA = _service_schema(
    "queue_cluster:string queue_path:string consumer_cluster:string consumer_path:string",
    "vital:boolean partitions:any",
)
PRODUCER_SCHEMA = _service_schema(
    "queue_cluster:string! queue_path:string! session_id:string!",
    "sequence_number:int64! epoch:int64! user_meta:any system_meta:any",
)
