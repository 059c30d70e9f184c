"""Types of Spark and of Arrow, by Spark's JSON of a schema: the one table of their pairs.

The JSON is what `StructType.jsonValue()` returns, so nothing here needs Spark. A list of columns in Spark's
DDL, such as `id bigint NOT NULL, tags array<string>`, leads to the same JSON.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa

from yt_exactly_once.codec.arrow_types import IS_JSON, as_json, is_json
from yt_exactly_once.errors import ConfigError, SchemaMismatchError

VARIANT = "variant"
"""Spark's name for values of any shape."""

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

_IN_COLUMNS = {*_TYPES, "decimal", "char", "varchar", "timestamp_ntz", VARIANT}
"""Types that a list of columns may have; some have no counterpart in YTsaurus."""

_INNER = frozenset({"type", "fields", "elementType", "keyType", "valueType"})
"""Keys of Spark's JSON that hold types."""

_MOST_DIGITS = 38

_NAME = re.compile(r"`((?:[^`]|``)+)`|(\w+)")
_WORD = re.compile(r"([a-zA-Z]\w*)")
_NUMBERS = re.compile(r"\(\s*(\d+(?:\s*,\s*\d+)?)\s*\)")
_REQUIRED = re.compile(r"not\s+null\b", re.IGNORECASE)
_COMMENT = re.compile(
    r"""comment\s*(?:'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*")""", re.IGNORECASE | re.DOTALL
)
_SPACE = re.compile(r"\s*")

_REMEDIES = {
    "timestamp_ntz": "Cast it: CAST({x} AS TIMESTAMP_LTZ), which takes it for a time in the "
    "time zone of the Spark session, as TransactionalSink does; a local time alone names no instant. Inside "
    "an array, a map or a struct cast the whole column to its type with TIMESTAMP_LTZ in it",
    VARIANT: "Write its JSON, as TransactionalSink does with a whole column: to_json({x}). Inside an array "
    "that is transform({x}, v -> to_json(v)), inside a struct named_struct with to_json of its member",
    "geometry": "Write its bytes: st_asbinary({x})",
    "geography": "Write its bytes: st_asbinary({x})",
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


def as_written(document: Mapping[str, Any]) -> Document:
    """Return a schema, as Spark's JSON has it, with what `TransactionalSink` writes in place of some types.

    That is instants for local times, at any depth, and JSON for columns that are variants.
    """
    found = _with_instants(document)
    for field in found["fields"]:
        if field["type"] == VARIANT:
            marked = {**field.get("metadata", {}), IS_JSON: True}
            field.update(type="string", metadata=marked)
    return {**found}


def _with_instants(kind: Any) -> Any:
    if isinstance(kind, Mapping):
        return {
            name: _with_instants(inner) if name in _INNER else inner for name, inner in kind.items()
        }
    if isinstance(kind, list):
        return [_with_instants(field) for field in kind]
    return "timestamp" if kind == "timestamp_ntz" else kind


def document_from(arrow: pa.Schema) -> Document:
    """Return a DataFrame's schema for such batches; raise `SchemaMismatchError` if a decimal is too wide."""
    return {"type": "struct", "fields": [_spark_field(field, field.name) for field in arrow]}


def parse_schema(text: str) -> pa.Schema:
    """Return the Arrow schema of a DataFrame, given as JSON or as a list of columns in Spark's DDL.

    Raises:
        ConfigError: the text is neither of them.
        SchemaMismatchError: a column's type has no counterpart in YTsaurus.
    """
    is_json = text.lstrip().startswith("{")
    try:
        document = json.loads(text) if is_json else parse_columns(text)
        return arrow_schema_from(as_written(document))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        detail = f": {error}" if not is_json else ""
        raise ConfigError(
            f"This is not the schema of a DataFrame{detail}",
            remedy="Pass the output of df.schema.json(). Or list the columns as Spark's DDL does: "
            "'id bigint NOT NULL, tags array<string>, place struct<x: int, y: int>'",
        ) from error


def parse_columns(text: str) -> Document:
    """Return the schema that a list of columns in Spark's DDL describes; comments are left out.

    Raises:
        ValueError: the text is no such list; the message says where.
    """
    return {"type": "struct", "fields": _Columns(text).all()}


class _Columns:
    """Reads columns from left to right, as Spark does (`colTypeList` in `SqlBaseParser.g4`)."""

    def __init__(self, text: str) -> None:
        self._text, self._position, self._number = text.strip(), 0, 0

    def all(self) -> list[Document]:
        """Return all columns of the text."""
        fields = []
        while True:
            self._number += 1
            fields.append(self._field())
            if self._position == len(self._text):
                return fields
            self._expect(",")

    def _field(self) -> Document:
        quoted, plain = self._take(_NAME)
        self._skip(":")
        kind = self._type()
        is_required = self._skip(_REQUIRED)
        self._skip(_COMMENT)
        name = quoted.replace("``", "`") if quoted else plain
        return {"name": name, "type": kind, "nullable": not is_required}

    def _type(self) -> Any:
        name = self._take(_WORD)[0].lower()
        if name == "array":
            (element,) = self._inner(self._type)
            return {"type": "array", "elementType": element, "containsNull": True}
        if name == "map":
            key, value = self._inner(self._type, self._type)
            kinds = {"keyType": key, "valueType": value}
            return {"type": "map", **kinds, "valueContainsNull": True}
        if name == "struct":
            return {"type": "struct", "fields": self._members()}
        return self._simple(name)

    def _inner(self, *readers: Callable[[], Any]) -> list[Any]:
        """Return what is in angle brackets."""
        found: list[Any] = []
        for reader in readers:
            self._expect("," if found else "<")
            found.append(reader())
        self._expect(">")
        return found

    def _members(self) -> list[Document]:
        self._expect("<")
        fields: list[Document] = []
        while not self._skip(">"):
            if fields:
                self._expect(",")
            fields.append(self._field())
        return fields

    def _simple(self, name: str) -> str:
        kind = _SYNONYMS.get(name, name)
        if kind not in _IN_COLUMNS:
            raise ValueError(f"column {self._number} has the unknown type {name}")
        given = self._match(_NUMBERS)
        numbers = given[1] if given else "10" if kind == "decimal" else ""
        if kind == "decimal":
            precision, _, scale = numbers.replace(" ", "").partition(",")
            if not int(scale or 0) <= int(precision) <= _MOST_DIGITS:
                raise ValueError(f"decimal({numbers}) is out of range")
            numbers = f"{precision},{scale or 0}"
        return f"{kind}({numbers})" if numbers else kind

    def _match(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        """Go past a pattern, if it is next."""
        found = pattern.match(self._text, self._position)
        if found is not None:
            spaces = _SPACE.match(self._text, found.end())
            self._position = spaces.end() if spaces else found.end()
        return found

    def _skip(self, what: str | re.Pattern[str]) -> bool:
        pattern = re.compile(re.escape(what)) if isinstance(what, str) else what
        return self._match(pattern) is not None

    def _take(self, pattern: re.Pattern[str]) -> tuple[str, ...]:
        found = self._match(pattern)
        if found is None:
            raise self._unexpected()
        return found.groups("")

    def _expect(self, sign: str) -> None:
        if not self._skip(sign):
            raise self._unexpected()

    def _unexpected(self) -> ValueError:
        rest = self._text[self._position :][:40]
        where = f"is not understood from {rest!r} on" if rest else "ends too soon"
        return ValueError(f"column {self._number} {where}")


def _arrow_field(field: Mapping[str, Any], column: str) -> pa.Field:
    kind = _arrow_type(field["type"], column)
    found = _field(field["name"], kind, bool(field["nullable"]), column)
    return as_json(found) if (field.get("metadata") or {}).get(IS_JSON) else found


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
        remedy=_REMEDIES.get(kind.partition("(")[0], _REMEDY).replace("{x}", column),
        column=column,
    )


def _spark_field(field: pa.Field, column: str) -> Document:
    kind = VARIANT if is_json(field) else _spark_type(field.type, column)
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
