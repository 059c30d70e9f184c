"""The schema of a DataFrame as text, read without Spark: its JSON, and its DDL.

The DDL is Spark's language for column lists: `id bigint NOT NULL, tags array<string>`. Both forms lead to
one document, the one that `StructType.jsonValue()` returns, and from there to Arrow.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, NoReturn

import pyarrow as pa

from yt_exactly_once.errors import ConfigError, SchemaMismatchError

if TYPE_CHECKING:
    from collections.abc import Mapping

Document = dict[str, Any]

_TO_ARROW: dict[str, pa.DataType] = {
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
    "void": pa.null(),
}
"""By the names of Spark's JSON."""

_SYNONYMS = {
    "tinyint": "byte",
    "smallint": "short",
    "int": "integer",
    "bigint": "long",
    "real": "float",
    "timestamp_ltz": "timestamp",
}
"""Names of the DDL that the JSON does not have."""

_DECIMALS = ("decimal", "dec", "numeric")
_DEFAULT_DECIMAL = (10, 0)
_MOST_DIGITS = 38
_TIME_FIELDS = ("day", "hour", "minute", "second")
_OTHERS = ("timestamp_ntz", "variant")
"""Simple types of Spark that YTsaurus has no counterpart of."""

_NTZ_REMEDY = "Cast it: CAST({x} AS TIMESTAMP); a local time alone names no instant"
_REMEDY = "Cast it in the query to a number, a string or a timestamp, or drop it"

_TOKEN = re.compile(
    r"""\s*(?:(?P<quoted>`(?:[^`]|``)*`) | (?P<text>'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*")
    | (?P<word>\w+) | (?P<mark>[<>(),:]))""",
    re.VERBOSE,
)


def arrow_schema_from(document: Mapping[str, Any]) -> pa.Schema:
    """Return the Arrow schema in which Spark passes a DataFrame with this schema to Python.

    Args:
        document: as `StructType.jsonValue()` returns it.

    Raises:
        SchemaMismatchError: a column's type has no counterpart in YTsaurus.
        KeyError, TypeError, ValueError: the document is no schema.
    """
    if document["type"] != "struct":
        raise ValueError("not a struct")
    return pa.schema([_field(field, field["name"]) for field in document["fields"]])


def parse_schema(text: str) -> pa.Schema:
    """Return the Arrow schema of a DataFrame, given as JSON or as DDL.

    Raises:
        ConfigError: the text is neither of them.
        SchemaMismatchError: a column's type has no counterpart in YTsaurus.
    """
    try:
        is_json = text.lstrip().startswith("{")
        return arrow_schema_from(json.loads(text) if is_json else parse_ddl(text))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        detail = f": {error}" if isinstance(error, _DdlError) else ""
        raise ConfigError(
            f"This is not the schema of a DataFrame{detail}",
            remedy="Pass the output of df.schema.json(), or DDL such as 'id bigint, name string'",
        ) from error


def _field(field: Mapping[str, Any], column: str) -> pa.Field:
    return pa.field(field["name"], _arrow(field["type"], column), nullable=bool(field["nullable"]))


def _arrow(kind: Any, column: str) -> pa.DataType:
    if isinstance(kind, str):
        return _simple(kind, column)
    match kind["type"]:
        case "array":
            element = _arrow(kind["elementType"], column)
            return pa.list_(pa.field("element", element, nullable=bool(kind["containsNull"])))
        case "map":
            key = pa.field("key", _arrow(kind["keyType"], column), nullable=False)
            value = _arrow(kind["valueType"], column)
            has_null = bool(kind["valueContainsNull"])
            return pa.map_(key, pa.field("value", value, nullable=has_null))
        case "struct":
            return pa.struct([_field(field, column) for field in kind["fields"]])
        case "udt":
            return _arrow(kind["sqlType"], column)
        case _:
            raise ValueError(f"unknown type {kind['type']}")


def _simple(kind: str, column: str) -> pa.DataType:
    if kind in _TO_ARROW:
        return _TO_ARROW[kind]
    digits = re.fullmatch(r"decimal\((\d+),\s*(-?\d+)\)", kind)
    if digits:
        return pa.decimal128(int(digits[1]), int(digits[2]))
    if re.fullmatch(r"(char|varchar)\(\d+\)|string collate \S+", kind):
        return pa.string()
    if kind.startswith("interval ") and kind.split()[1] in _TIME_FIELDS:
        return pa.duration("us")
    if kind not in _OTHERS and not kind.startswith(("interval", "time(", "geo")):
        raise ValueError(f"unknown type {kind}")
    raise SchemaMismatchError(
        f"No column type of YTsaurus holds {kind}",
        remedy=(_NTZ_REMEDY if kind == "timestamp_ntz" else _REMEDY).replace("{x}", column),
        column=column,
    )


class _DdlError(ValueError):
    """The text is no DDL; the message says where."""


def parse_ddl(text: str) -> Document:
    """Return the schema that a list of columns in Spark's DDL describes.

    It is the document that `StructType.fromDDL(text).jsonValue()` returns, without the comments.

    Raises:
        ValueError: the text is no list of columns; the message says where.
    """
    parser = _Ddl(text)
    fields = parser.fields(end="")
    return {"type": "struct", "fields": fields}


class _Ddl:
    """A recursive descent over the tokens of the text."""

    def __init__(self, text: str) -> None:
        self._tokens: list[tuple[str, str]] = []
        place = 0
        while text[place:].strip():
            found = _TOKEN.match(text, place)
            if found is None:
                raise _DdlError(f"unexpected {text[place:].strip()[:20]!r}")
            assert found.lastgroup is not None
            self._tokens.append((found.lastgroup, found[found.lastgroup]))
            place = found.end()
        self._place = 0

    def fields(self, end: str) -> list[Document]:
        """Read members up to a closing mark, or to the end of the text."""
        found = []
        while True:
            name = self._name()
            self._accept(":")
            kind, nullable = self._type(), True
            while not self._is(end, ","):
                if self._accept("not"):
                    self._expect("null")
                    nullable = False
                elif self._accept("comment"):
                    self._text()
                else:
                    self._fail("',', NOT NULL or COMMENT")
            found.append({"name": name, "type": kind, "nullable": nullable, "metadata": {}})
            if self._accept(","):
                continue
            return found

    def _type(self) -> Any:
        name = self._word().lower()
        match name:
            case "array":
                self._expect("<")
                element = self._type()
                self._expect(">")
                return {"type": "array", "elementType": element, "containsNull": True}
            case "map":
                self._expect("<")
                key = self._type()
                self._expect(",")
                value = self._type()
                self._expect(">")
                return {
                    "type": "map",
                    "keyType": key,
                    "valueType": value,
                    "valueContainsNull": True,
                }
            case "struct":
                self._expect("<")
                fields = [] if self._is(">") else self.fields(end=">")
                self._expect(">")
                return {"type": "struct", "fields": fields}
            case "interval":
                return self._interval()
            case _:
                return self._plain(name)

    def _plain(self, name: str) -> str:
        if name in _DECIMALS:
            precision, scale = self._digits()
            if not 0 <= scale <= precision <= _MOST_DIGITS:
                raise _DdlError(f"decimal({precision},{scale}) is out of range")
            return f"decimal({precision},{scale})"
        if name in {"char", "character", "varchar"}:
            (length, *_) = self._numbers() or [0]
            return f"{'varchar' if name == 'varchar' else 'char'}({length})"
        known = _SYNONYMS.get(name, name)
        if known == "string" and self._accept("collate"):
            collation = self._word()
            return "string" if collation.upper() == "UTF8_BINARY" else f"string collate {collation}"
        if known not in _TO_ARROW and known not in _OTHERS:
            raise _DdlError(f"unknown type {name}")
        return known

    def _digits(self) -> tuple[int, int]:
        given = self._numbers() if self._is("(") else list(_DEFAULT_DECIMAL)
        if len(given) > len(_DEFAULT_DECIMAL):
            raise _DdlError(f"a decimal has no {len(given)} numbers")
        return given[0], given[1] if len(given) > 1 else 0

    def _interval(self) -> str:
        first = self._word().lower()
        last = self._word().lower() if self._accept("to") else first
        return f"interval {first}" if first == last else f"interval {first} to {last}"

    def _numbers(self) -> list[int]:
        self._expect("(")
        found = [self._number()]
        while self._accept(","):
            found.append(self._number())
        self._expect(")")
        return found

    def _number(self) -> int:
        word = self._word()
        if not word.isdecimal():
            raise _DdlError(f"{word!r} is no number")
        return int(word)

    def _name(self) -> str:
        kind, token = self._peek()
        if kind not in {"word", "quoted"}:
            self._fail("a name")
        self._place += 1
        return token[1:-1].replace("``", "`") if kind == "quoted" else token

    def _word(self) -> str:
        kind, token = self._peek()
        if kind != "word":
            self._fail("a type")
        self._place += 1
        return token

    def _text(self) -> None:
        if self._peek()[0] != "text":
            self._fail("a text in quotes")
        self._place += 1

    def _peek(self) -> tuple[str, str]:
        return self._tokens[self._place] if self._place < len(self._tokens) else ("", "")

    def _is(self, *tokens: str) -> bool:
        kind, token = self._peek()
        return kind in {"", "mark", "word"} and token.lower() in tokens

    def _accept(self, token: str) -> bool:
        if not self._is(token):
            return False
        self._place += 1
        return True

    def _expect(self, token: str) -> None:
        if not self._accept(token):
            self._fail(repr(token))

    def _fail(self, wanted: str) -> NoReturn:
        found = self._peek()[1]
        raise _DdlError(
            f"expected {wanted}, found {found!r}" if found else f"expected {wanted} at the end"
        )
