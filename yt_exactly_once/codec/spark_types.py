"""Types of Spark and of Arrow, by Spark's JSON of a schema: the one table of their pairs.

The JSON is what `StructType.jsonValue()` returns, so nothing here needs Spark. A flat list of columns such as
`id bigint NOT NULL, name string` leads to the same JSON.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from yt_exactly_once.errors import ConfigError, SchemaMismatchError

Document = dict[str, Any]

_TYPES: dict[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "byte": pa.int8(),
    "short": pa.int16(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "interval day to second": pa.duration("us"),
    "void": pa.null(),
}
"""By the names of Spark's JSON; each pair holds in both directions."""

_NAMES = {arrow: name for name, arrow in _TYPES.items()}

_ALSO = (
    (re.compile(r"(char|varchar)\(\d+\)|string collate \S+"), pa.string()),
    (re.compile(r"interval (day|hour|minute|second)( to \w+)?"), pa.duration("us")),
)
"""Further types of Spark, from Spark to Arrow alone."""

_DECIMAL = re.compile(r"decimal\((\d+),\s*(-?\d+)\)")

_SYNONYMS = {
    "tinyint": "byte",
    "smallint": "short",
    "int": "integer",
    "bigint": "long",
    "real": "float",
    "timestamp_ltz": "timestamp",
    "dec": "decimal",
    "numeric": "decimal",
    "character": "char",
}
"""Names of SQL that the JSON does not have."""

_IN_COLUMNS = {*_TYPES, "decimal", "char", "varchar", "timestamp_ntz", "variant"}
"""Types that a list of columns may have; some have no counterpart in YTsaurus."""

_INNER = frozenset({"type", "fields", "elementType", "keyType", "valueType"})
"""Keys of Spark's JSON that hold types."""

_MOST_DIGITS = 38

_COLUMN = re.compile(
    r"""\s* (?P<name>`(?:[^`]|``)+`|\w+) \s*:?\s* (?<=[\s:`])(?P<kind>[a-z]\w*)
    \s* (?:\(\s*(?P<numbers>\d+(?:\s*,\s*\d+)?)\s*\))? (?P<required>\s+not\s+null)? \s*(?:,|$)""",
    re.VERBOSE | re.IGNORECASE,
)

_REMEDIES = {
    "timestamp_ntz": "Cast it: CAST({x} AS TIMESTAMP_LTZ), which takes it for a time in the "
    "time zone of the Spark session, as TransactionalSink does; a local time alone names no instant. Inside "
    "an array, a map or a struct cast the whole column to its type with TIMESTAMP_LTZ in it",
    "variant": "Write its JSON, into a column json, utf8 or string: to_json({x}). A query reads it back with "
    "parse_json({x})",
}
_REMEDY = "Cast it in the query to a number, a string or a timestamp, or drop it"


def arrow_schema_from(document: Mapping[str, Any]) -> pa.Schema:
    """Return the Arrow schema in which Spark passes a DataFrame with this schema to Python.

    Args:
        document: as `StructType.jsonValue()` returns it.

    Raises:
        SchemaMismatchError: a column's type has no counterpart in YTsaurus.
        KeyError, TypeError: the document is no schema.
    """
    return pa.schema([_arrow_field(field, field["name"]) for field in document["fields"]])


def with_instants(kind: Any) -> Any:
    """Return a type or a schema, as Spark's JSON has it, with instants in place of local times."""
    if isinstance(kind, Mapping):
        return {
            name: with_instants(inner) if name in _INNER else inner for name, inner in kind.items()
        }
    if isinstance(kind, list):
        return [with_instants(field) for field in kind]
    return "timestamp" if kind == "timestamp_ntz" else kind


def document_from(arrow: pa.Schema) -> Document:
    """Return a DataFrame's schema for such batches; raise `SchemaMismatchError` if a decimal is too wide."""
    return {"type": "struct", "fields": [_spark_field(field, field.name) for field in arrow]}


def parse_schema(text: str) -> pa.Schema:
    """Return the Arrow schema of a DataFrame, given as JSON or as a flat list of columns.

    Raises:
        ConfigError: the text is neither of them.
        SchemaMismatchError: a column's type has no counterpart in YTsaurus.
    """
    is_json = text.lstrip().startswith("{")
    try:
        document = json.loads(text) if is_json else parse_columns(text)
        return arrow_schema_from(with_instants(document))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        detail = f": {error}" if not is_json else ""
        raise ConfigError(
            f"This is not the schema of a DataFrame{detail}",
            remedy="Pass the output of df.schema.json(), which has columns of every type. Or list columns of "
            "simple types: 'id bigint NOT NULL, name string'",
        ) from error


def parse_columns(text: str) -> Document:
    """Return the schema that a flat list of columns describes: names, simple types and NOT NULL.

    Raises:
        ValueError: the text is no such list; the message says where.
    """
    fields: list[Document] = []
    position = 0
    while position < len(text) or not fields:
        found = _COLUMN.match(text, position)
        if found is None or (found.end() == len(text) and found[0].endswith(",")):
            raise ValueError(
                f"column {len(fields) + 1} is not understood: {text[position:][:40]!r}"
            )
        position = found.end()
        kind = _SYNONYMS.get(found["kind"].lower(), found["kind"].lower())
        if kind not in _IN_COLUMNS:
            raise ValueError(f"unknown type {kind}")
        numbers = found["numbers"]
        if kind == "decimal":
            numbers = numbers or "10"
            precision, _, scale = numbers.replace(" ", "").partition(",")
            if not int(scale or 0) <= int(precision) <= _MOST_DIGITS:
                raise ValueError(f"decimal({numbers}) is out of range")
            numbers = f"{precision},{scale or 0}"
        name = found["name"]
        fields.append(
            {
                "name": name[1:-1].replace("``", "`") if name.startswith("`") else name,
                "type": f"{kind}({numbers})" if numbers else kind,
                "nullable": found["required"] is None,
            }
        )
    return {"type": "struct", "fields": fields}


def _arrow_field(field: Mapping[str, Any], column: str) -> pa.Field:
    kind = _arrow_type(field["type"], column)
    return _field(field["name"], kind, bool(field["nullable"]), column)


def _field(name: str, kind: pa.DataType, nullable: bool, column: str) -> pa.Field:
    if pa.types.is_null(kind) and not nullable:
        raise SchemaMismatchError(
            "An array or a map that is always empty has no type: Spark gives array() and map() none",
            remedy=f"Give it one: CAST({column} AS ARRAY<STRING>), or CAST({column} AS MAP<STRING, BIGINT>), "
            "with the types of the column in the table",
            column=column,
        )
    return pa.field(name, kind, nullable=nullable)


def _arrow_type(kind: Any, column: str) -> pa.DataType:
    if isinstance(kind, str):
        return _simple(kind, column)
    match kind["type"]:
        case "array":
            element = _arrow_type(kind["elementType"], column)
            return pa.list_(_field("element", element, bool(kind["containsNull"]), column))
        case "map":
            key = _field("key", _arrow_type(kind["keyType"], column), nullable=False, column=column)
            value = _arrow_type(kind["valueType"], column)
            return pa.map_(key, _field("value", value, bool(kind["valueContainsNull"]), column))
        case "struct":
            return pa.struct([_arrow_field(field, column) for field in kind["fields"]])
        case "udt":
            return _arrow_type(kind["sqlType"], column)
        case _:
            return _simple(str(kind["type"]), column)


def _simple(kind: str, column: str) -> pa.DataType:
    if kind in _TYPES:
        return _TYPES[kind]
    if digits := _DECIMAL.fullmatch(kind):
        return pa.decimal128(int(digits[1]), int(digits[2]))
    for pattern, arrow in _ALSO:
        if pattern.fullmatch(kind):
            return arrow
    raise SchemaMismatchError(
        f"No column type of YTsaurus holds {kind}",
        remedy=_REMEDIES.get(kind, _REMEDY).replace("{x}", column),
        column=column,
    )


def _spark_field(field: pa.Field, column: str) -> Document:
    kind = _spark_type(field.type, column)
    return {"name": field.name, "type": kind, "nullable": field.nullable, "metadata": {}}


def _spark_type(arrow: pa.DataType, column: str) -> Any:
    if arrow in _NAMES:
        return _NAMES[arrow]
    if pa.types.is_decimal128(arrow):
        return f"decimal({arrow.precision},{arrow.scale})"
    if pa.types.is_map(arrow):
        return {
            "type": "map",
            "keyType": _spark_type(arrow.key_type, column),
            "valueType": _spark_type(arrow.item_type, column),
            "valueContainsNull": arrow.item_field.nullable,
        }
    if pa.types.is_list(arrow):
        element = _spark_type(arrow.value_type, column)
        return {"type": "array", "elementType": element, "containsNull": arrow.value_field.nullable}
    if pa.types.is_struct(arrow):
        return {"type": "struct", "fields": [_spark_field(field, column) for field in arrow]}
    raise SchemaMismatchError(
        f"Spark has no type that holds {arrow}",
        remedy="Read a copy of the table with a narrower column",
        column=column,
    )
