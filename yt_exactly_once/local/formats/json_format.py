"""The JSON of YTsaurus: attributes, types and bytes expressed in plain JSON.

A value with attributes becomes `{"$value": ..., "$attributes": ...}`. A key that starts with a dollar gets a
second dollar. With `encode_utf8`, the default, every character is one byte. Spellings:
`yt/yt/core/json/config.h`.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import count
from typing import Any

from yt import yson

from yt_exactly_once.local import arguments
from yt_exactly_once.local.arguments import flag
from yt_exactly_once.local.errors import Code, YtError
from yt_exactly_once.local.formats import row_checks
from yt_exactly_once.local.tables import large_values
from yt_exactly_once.local.tables.large_values import LARGE, check_weight
from yt_exactly_once.local.tables.simple_values import finite, no_constant

_INT64_MIN = -(2**63)
_INT64_MAX = 2**63 - 1
MAX_DEPTH = 200
"""YSON parsers stop at 256 levels; what cannot be read back must not be written."""
_UINT64_MAX = 2**64 - 1
_QUOTED = r'"(?:[^"\\]++|\\.)*+"?+'
_INSIDE = re.compile(rf'(?:[^"{{}}\[\]]++|{_QUOTED}|\[\]|\{{\}})*+', re.DOTALL)
"""What opens and closes nothing."""
_FLAT = re.compile(rf'\{{(?:[^"{{}}\[\]]++|{_QUOTED})*+\}}', re.DOTALL)
"""A row without lists and maps in it; rows of which many are empty would look at all the others each."""
_NO_SPACE = re.compile(r"\S")
_AS_THEY_ARE = frozenset((int, bool, type(None)))
"""Types whose values are the same in JSON."""
_PROBLEMS = {
    True: "a character stands for one byte and must be at most U+00FF; set encode_utf8=false to send text"
    " as it is",
    False: "half of a surrogate pair in a string",
}
"""What makes a string none, with `encode_utf8` and without."""
_ALWAYS_PLAIN = frozenset((float, bool, type(None)))
_SPECIAL_KEYS = frozenset(("$value", "$attributes", "$type", "$incomplete"))


def loads(data: bytes, attributes: Mapping[str, Any], what: str) -> Any:
    """Parse one JSON value.

    Raises:
        YtError: malformed JSON, or a number or string that YTsaurus cannot hold.
    """
    check_weight(data, what)
    try:
        parsed = json.loads(data, parse_float=finite, parse_constant=no_constant)
    except (ValueError, RecursionError) as error:
        raise YtError(f"Error parsing {what} as JSON: {error}") from error
    return _Decoder(attributes, what).decode(parsed)


def load_rows(data: bytes, attributes: Mapping[str, Any], what: str) -> Iterator[tuple[Any, int]]:
    """Yield the rows of a sequence, which may have white space between them or nothing, and their lengths.

    Names of columns are `str`, and every other string inside a row is `bytes`.

    Raises:
        YtError: as `loads`; 322 when a row names a column twice; a row is no map, or it has attributes, or a
            value of a column has some.
    """
    decoder = _Decoder(attributes, what, as_bytes=True)
    parser = json.JSONDecoder(
        object_pairs_hook=_map_of, parse_float=finite, parse_constant=no_constant
    )
    try:
        text = data.decode()
        start = _skip_space(text, 0)
        for number in count():
            if start == len(text):
                return
            if len(text) > LARGE:
                _check_row(text, start, what)
            value, position = parser.raw_decode(text, start)
            row = decoder.decode_row(value)
            if not isinstance(row, dict) or getattr(row, "attributes", None):
                raise row_checks.no_row(row, number)
            if position - start > LARGE:
                # Objects may take many times as much while they are checked.
                del value
                for name, item in row.items():
                    row[name] = large_values.compact(item)
            yield row, position - start
            start = _skip_space(text, position)
    except (ValueError, RecursionError) as error:
        raise YtError(f"Error parsing {what} as JSON: {error}") from error


def dumps(value: Any, attributes: Mapping[str, Any]) -> bytes:
    """Encode one value; raise `YtError` if the value has no JSON form under these attributes."""
    return _writer(attributes).encode(_Encoder(attributes).encode(value)).encode()


def dump_rows(rows: Iterable[Any], attributes: Mapping[str, Any]) -> Iterator[bytes]:
    """Encode rows, each on a line of its own.

    Raises:
        YtError: as `dumps`.
    """
    encoder = _Encoder(attributes)
    write = _writer(attributes).encode
    for row in rows:
        yield write(encoder.encode_row(row)).encode() + b"\n"


def _check_row(text: str, start: int, what: str) -> None:
    """Refuse a row that would take far more memory than its bytes; parsers of the servers do so too."""
    flat = _FLAT.match(text, start)
    end = flat.end() if flat else _end_of_value(text, start)
    if end - start > LARGE:
        check_weight(text[start:end], what)


def _end_of_value(text: str, position: int) -> int:
    """Return where a value ends, if it is well-formed."""
    depth = 0
    while True:
        position = _INSIDE.match(text, position).end()  # type: ignore[union-attr]
        bracket = text[position : position + 1]
        if not bracket:
            return position
        position += 1
        depth += 1 if bracket in "[{" else -1
        if depth <= 0:
            return position


class _RepeatedMap(dict[str, Any]):
    """A map that named a key twice."""

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        self.names = [name for name, _ in pairs]


def _map_of(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    return made if len(made) == len(pairs) else _RepeatedMap(pairs)


def _writer(attributes: Mapping[str, Any]) -> json.JSONEncoder:
    is_pretty = str(attributes.get("format", "text")) == "pretty"
    return json.JSONEncoder(
        separators=(",", ": " if is_pretty else ":"),
        indent=4 if is_pretty else None,
        ensure_ascii=False,
        allow_nan=flag(attributes, "support_infinity"),
    )


def _skip_space(text: str, position: int) -> int:
    found = _NO_SPACE.search(text, position)
    return found.start() if found else len(text)


class _Decoder:
    """From what a parser returns to values.

    Args:
        as_bytes: whether strings become `bytes`.
    """

    def __init__(self, attributes: Mapping[str, Any], what: str, *, as_bytes: bool = False) -> None:
        self._as_bytes = as_bytes
        self._encode_utf8 = flag(attributes, "encode_utf8", True)
        self._plain = flag(attributes, "plain")
        self._what = what

    def decode(self, value: Any, depth: int = 0) -> Any:
        if depth > MAX_DEPTH:
            raise YtError(f"Error parsing {self._what}: depth limit of {MAX_DEPTH} exceeded")
        if isinstance(value, str):
            return self._string(value)
        if isinstance(value, bool | float) or value is None:
            return value
        if isinstance(value, int):
            return self._integer(value)
        if isinstance(value, list):
            # In its place, so that there are no two trees.
            for place, item in enumerate(value):
                value[place] = self.decode(item, depth + 1)
            return value
        if not self._plain and "$value" in value and value.keys() <= _SPECIAL_KEYS:
            return self._wrapped(value, depth + 1)
        return {self._key(key): self.decode(item, depth + 1) for key, item in value.items()}

    def decode_row(self, value: Any) -> Any:
        """Return a row, with less work for its plain values."""
        if isinstance(value, _RepeatedMap):
            row_checks.check_names(map(self._name, value.names))
        if not isinstance(value, dict) or (not self._plain and "$value" in value):
            decoded = self.decode(value)
            if not isinstance(decoded, dict) or getattr(decoded, "attributes", None):
                return decoded
            for item in decoded.values():
                row_checks.check_value(item)
            return {name.decode(): item for name, item in decoded.items()}
        is_plain = all(name.isascii() and name[:1] != "$" for name in value)
        row = value if is_plain else {}
        for name, item in value.items():
            kind = type(item)
            if kind is str and item.isascii():
                shown = item.encode()
            elif kind in _ALWAYS_PLAIN:
                shown = item
            else:
                shown = self.decode(item, 1)
                row_checks.check_value(shown)
            row[name if is_plain else self._name(name)] = shown
        return row

    def _wrapped(self, value: dict[str, Any], depth: int) -> Any:
        inner = value["$value"]
        typed_already = "$type" in value
        decoded = self._typed(inner, value["$type"]) if typed_already else self.decode(inner, depth)
        if "$attributes" not in value:
            return decoded
        attributes = self.decode(value["$attributes"], depth)
        if not isinstance(attributes, dict):
            raise YtError(f'Error parsing {self._what}: "$attributes" must be a map')
        typed = yson.to_yson_type(decoded)
        typed.attributes = attributes
        return typed

    def _typed(self, value: Any, name: Any) -> Any:
        try:
            if name == "uint64":
                return yson.YsonUint64(int(value))
            if name == "int64":
                return self._integer(int(value))
            if name == "double":
                return finite(value) if isinstance(value, str) else float(value)
            if name == "boolean":
                return value if isinstance(value, bool) else {"true": True, "false": False}[value]
        except (ValueError, TypeError, KeyError) as error:
            raise YtError(f'Error parsing {self._what}: bad value of "$type" {name}') from error
        if name == "string" and isinstance(value, str):
            return self._string(value)
        raise YtError(f'Error parsing {self._what}: unexpected "$type" {name}')

    def _integer(self, value: int) -> Any:
        if _INT64_MIN <= value <= _INT64_MAX:
            return value
        if value <= _UINT64_MAX and value > 0:
            return yson.YsonUint64(value)
        raise YtError(f"Error parsing {self._what}: integer is out of range")

    def _string(self, value: str) -> Any:
        if value.isascii() and not self._as_bytes:
            return value
        try:
            raw = value.encode("latin-1" if self._encode_utf8 else "utf-8")
        except UnicodeEncodeError as error:
            raise YtError(f"Error parsing {self._what}: {_PROBLEMS[self._encode_utf8]}") from error
        if self._as_bytes:
            return raw
        try:
            return raw.decode()
        except UnicodeDecodeError:
            return yson.make_byte_key(raw)

    def _name(self, key: str) -> str:
        """Return the name of a column."""
        name: str = self._key(key).decode()
        return name

    def _key(self, key: str) -> Any:
        return self._string(key[1:] if key.startswith("$$") and not self._plain else key)


class _Encoder:
    def __init__(self, attributes: Mapping[str, Any]) -> None:
        self._encode_utf8 = flag(attributes, "encode_utf8", True)
        self._plain = flag(attributes, "plain")
        self._stringify = flag(attributes, "stringify")
        self._annotate = flag(attributes, "annotate_with_types")
        self._attributes_mode = str(attributes.get("attributes_mode", "on_demand"))
        self._support_infinity = flag(attributes, "support_infinity")
        self._quote_infinity = flag(attributes, "stringify_nan_and_infinity")
        limit = arguments.integer(attributes, "string_length_limit", None)
        self._limit = None if self._attributes_mode == "never" else limit
        # Scalars without attributes are then what they look like.
        self._direct = not (
            self._stringify
            or self._annotate
            or self._limit is not None
            or self._attributes_mode == "always"
        )
        self._keys: dict[str, str] = {}

    def encode_row(self, row: Any) -> Any:
        """Return the JSON of a row, as `encode` does, with less work for its plain values."""
        if type(row) is not dict or not self._direct:
            return self.encode(row)
        shown = {}
        for name, value in row.items():
            key = self._keys.get(name)
            if key is None:
                key = self._keys[name] = self._key(name)
            kind = type(value)
            if kind is bytes and self._encode_utf8:
                shown[key] = value.decode("latin-1")
            elif kind in _AS_THEY_ARE:
                shown[key] = value
            else:
                shown[key] = self.encode(value)
        return shown

    def encode(self, value: Any) -> Any:
        attributes = getattr(value, "attributes", None)
        shown: dict[str, Any] = {}
        if self._limit is not None and isinstance(value, str | bytes | yson.YsonStringProxy):
            raw = yson.get_bytes(value)
            if len(raw) > self._limit:
                value, shown["$incomplete"] = raw[: self._limit], True
        body, name = self._body(value)
        if name and self._annotate:
            shown["$type"] = name
        if self._attributes_mode == "always" or (attributes and self._attributes_mode != "never"):
            shown["$attributes"] = {
                self._key(key): self.encode(item) for key, item in (attributes or {}).items()
            }
        return {**shown, "$value": body} if shown else body

    def _body(self, value: Any) -> tuple[Any, str]:
        """Return the JSON of a value without attributes, and its type where it has a name."""
        if value is None or isinstance(value, yson.YsonEntity):
            return None, ""
        if isinstance(value, dict):
            return {self._key(key): self.encode(item) for key, item in value.items()}, ""
        if isinstance(value, list | tuple):
            return [self.encode(item) for item in value], ""
        return self._scalar(value)

    def _scalar(self, value: Any) -> tuple[Any, str]:
        if isinstance(value, bool | yson.YsonBoolean):
            truth = bool(value)
            return (str(truth).lower() if self._stringify else truth), "boolean"
        if isinstance(value, int):
            number = int(value)
            unsigned = isinstance(value, yson.YsonUint64) or number > _INT64_MAX
            return (str(number) if self._stringify else number), "uint64" if unsigned else "int64"
        if isinstance(value, float):
            return self._double(float(value)), "double"
        return self._string(value), "string"

    def _double(self, value: float) -> Any:
        if self._stringify:
            return repr(value)
        if not math.isfinite(value) and self._quote_infinity:
            return str(value)
        if not math.isfinite(value) and not self._support_infinity:
            raise YtError(
                "JSON cannot hold NaN and infinity; use stringify or support_infinity", Code.GENERIC
            )
        return value

    def _string(self, value: Any) -> str:
        is_text = isinstance(value, str)
        if is_text and (value.isascii() or not self._encode_utf8):
            return str(value)
        raw: bytes = value.encode("utf-8", "surrogateescape") if is_text else yson.get_bytes(value)
        try:
            return raw.decode("latin-1" if self._encode_utf8 else "utf-8")
        except UnicodeDecodeError as error:
            raise YtError(
                "A string that is not UTF-8 cannot be written as JSON with encode_utf8=false"
            ) from error

    def _key(self, key: Any) -> str:
        text = self._string(key)
        return "$" + text if text.startswith("$") and not self._plain else text
