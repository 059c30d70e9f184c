"""Modes of the YSON format: how complex values, decimals, times and UUIDs are spelled in a request.

`<complex_type_mode=positional>yson` and its kin change what a row looks like on the wire, never what is
stored. Rules follow `yt/yt/client/complex_types/yson_format_conversion.cpp`.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal, InvalidOperation
from functools import partial
from typing import Any

from yt import yson

from yt_exactly_once.local.errors import Code, YtError
from yt_exactly_once.local.tables import simple_values, types
from yt_exactly_once.local.tables.large_values import LargeValue
from yt_exactly_once.local.tables.schema import Column

Convert = Callable[[Any], Any]
Inner = Sequence[Convert | None]
Row = dict[str, Any]

_CHOICES = {
    "complex_type_mode": ("named", "positional"),
    "string_keyed_dict_mode": ("positional", "named"),
    "decimal_mode": ("binary", "text"),
    "time_mode": ("binary", "text"),
    "uuid_mode": ("binary", "text_yql", "text_yt"),
}
"""What each mode may be; the first is the default."""

_PLAIN = {name: choices[0] for name, choices in _CHOICES.items()}

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TIMES = {
    "date": (timedelta(days=1), "%Y-%m-%d"),
    "datetime": (timedelta(seconds=1), "%Y-%m-%dT%H:%M:%SZ"),
    "timestamp": (timedelta(microseconds=1), "%Y-%m-%dT%H:%M:%S.%fZ"),
}
"""Unit and spelling of the types of times."""

_UUIDS = {
    "text_yql": re.compile("[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"),
    "text_yt": re.compile("[0-9a-fA-F]{1,8}(-[0-9a-fA-F]{1,8}){3}"),
}
_PAIR = 2


class Modes:
    """The modes of one format.

    Args:
        attributes: of the format; others than modes are passed over.

    Raises:
        YtError: a mode has a value that it cannot have.
    """

    def __init__(self, attributes: Mapping[str, Any]) -> None:
        self._chosen = dict(_PLAIN)
        for name in _CHOICES.keys() & attributes.keys():
            chosen = types.text(attributes[name])
            if chosen not in _CHOICES[name]:
                raise YtError(
                    f'Format attribute "{name}" must be one of {_CHOICES[name]}, not "{chosen}"',
                    Code.INVALID_FORMAT,
                )
            self._chosen[name] = chosen
        self._skips_nulls = bool(attributes.get("skip_null_values", False))

    @property
    def change_nothing(self) -> bool:
        """Whether rows are on the wire as they are stored."""
        return self._chosen == _PLAIN and not self._skips_nulls

    def take(self, rows: Iterable[Row], schema: Iterable[Mapping[str, Any]]) -> list[Row]:
        """Return rows of a request as they are stored.

        Raises:
            YtError: 307 when a value is not spelled as the modes say.
        """
        converts = {
            types.text(column["name"]): _build(column["type_v3"], self._chosen, _TAKE)
            for column in schema
        }
        return list(_apply(rows, converts, skips_nulls=False))

    def give(self, rows: Iterable[Row | None], columns: Sequence[Column]) -> Iterator[Any]:
        """Yield stored rows as the answer spells them."""
        converts = {column.name: _build(column.type_v3, self._chosen, _GIVE) for column in columns}
        return _apply(rows, converts, skips_nulls=self._skips_nulls)


def to_positional(logical: types.LogicalType) -> Convert | None:
    """Return what gives fields of structs and tags of variants by position; `None` changes nothing."""
    return _build(logical, {**_PLAIN, "complex_type_mode": "positional"}, _GIVE)


def _apply(
    rows: Iterable[Any], converts: Mapping[str, Convert | None], *, skips_nulls: bool
) -> Iterator[Any]:
    known = {name: convert for name, convert in converts.items() if convert is not None}
    for row in rows:
        if not isinstance(row, dict):
            yield row
            continue
        changed = {
            name: known[name](_loaded(value)) if name in known and value is not None else value
            for name, value in row.items()
        }
        if skips_nulls:
            changed = {name: value for name, value in changed.items() if value is not None}
        yield changed


def _loaded(value: Any) -> Any:
    return value.loaded() if isinstance(value, LargeValue) else value


_TAKE, _GIVE = 0, 1


def _build(logical: types.LogicalType, modes: Mapping[str, str], way: int) -> Convert | None:
    """Return what changes a value of a type, or `None` where nothing changes."""
    logical = types.untagged(logical)
    if isinstance(logical, str):
        return _simple(logical, modes, way)
    name = logical["type_name"]
    if name == "decimal":
        convert = (_decimal_bytes, _decimal_text)[way]
        return partial(convert, logical) if modes["decimal_mode"] == "text" else None
    inner = [_build(part, modes, way) for part in types.parts(logical)]
    if name == "dict":
        has_names = types.untagged(logical["key"]) in ("string", "utf8")
        respelled = has_names and modes["string_keyed_dict_mode"] == "named"
    else:
        respelled = "members" in logical and modes["complex_type_mode"] == "positional"
    if not respelled and not any(inner):
        return None
    return partial(_CONVERTERS[name], logical, inner, way if respelled else None)


def _simple(name: str, modes: Mapping[str, str], way: int) -> Convert | None:
    if name in _TIMES and modes["time_mode"] == "text":
        return partial((_time_number, _time_text)[way], name)
    if name == "uuid" and modes["uuid_mode"] != "binary":
        return partial((_uuid_bytes, _uuid_text)[way], modes["uuid_mode"])
    return None


# Of each kind of types: from the type, what changes its parts, and the way if the value is spelled otherwise.


def _optional(logical: Any, inner: Sequence[Any], _way: int | None, value: Any) -> Any:
    (convert,) = inner
    item = types.untagged(logical["item"])
    if value is not None and isinstance(item, dict) and item["type_name"] == "optional":
        return [convert(part) for part in _items(value)]
    return None if value is None or isinstance(value, yson.YsonEntity) else convert(value)


def _list(_logical: Any, inner: Sequence[Any], _way: int | None, value: Any) -> list[Any]:
    return [inner[0](part) for part in _items(value)]


def _tuple(_logical: Any, inner: Inner, _way: int | None, value: Any) -> list[Any]:
    return _each(inner, _items(value))


def _each(inner: Inner, parts: Sequence[Any]) -> list[Any]:
    if len(parts) != len(inner):
        raise _refused(f"expected {len(inner)} items, got {len(parts)}")
    return [
        part if convert is None or part is None else convert(part)
        for convert, part in zip(inner, parts, strict=True)
    ]


def _struct(logical: Any, inner: Inner, way: int | None, value: Any) -> Any:
    names = [member["name"] for member in logical["members"]]
    if way == _TAKE:
        # Fields at the end may be left out.
        parts = _items(value)
        missing = [None] * (len(names) - len(parts))
        return dict(zip(names, _each(inner, [*parts, *missing]), strict=True))
    if not isinstance(value, dict):
        raise _refused("a struct must be a map")
    given = {types.text(name): part for name, part in value.items()}
    if not given.keys() <= set(names):
        raise _refused(f'unknown field "{min(given.keys() - set(names))}"')
    parts = _each(inner, [given.get(name) for name in names])
    return dict(zip(names, parts, strict=True)) if way is None else parts


def _variant(logical: Any, inner: Inner, way: int | None, value: Any) -> list[Any]:
    parts = _items(value)
    if len(parts) != _PAIR:
        raise _refused(f"a variant has 2 items, got {len(parts)}")
    members = logical.get("members") or logical["elements"]
    names = [member.get("name", index) for index, member in enumerate(members)]
    known = list(range(len(names))) if way == _TAKE else names
    tag = parts[0] if isinstance(parts[0], int) else types.text(parts[0])
    if tag not in known:
        raise _refused(f'no alternative "{tag}"')
    index = known.index(tag)
    convert = inner[index]
    shown = index if way == _GIVE else names[index]
    return [shown, parts[1] if convert is None else convert(parts[1])]


def _dict(_logical: Any, inner: Inner, way: int | None, value: Any) -> Any:
    if way == _TAKE:
        if not isinstance(value, dict):
            raise _refused("a dict with keys that are strings must be a map")
        return [_each(inner, pair) for pair in value.items()]
    pairs = [_each(inner, _items(pair)) for pair in _items(value)]
    return pairs if way is None else dict(pairs)


_CONVERTERS = {
    "optional": _optional,
    "list": _list,
    "tuple": _tuple,
    "struct": _struct,
    "variant": _variant,
    "dict": _dict,
}


def _items(value: Any) -> Sequence[Any]:
    if not isinstance(value, list):
        raise _refused("expected a list")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str | bytes):
        raise _refused("expected a string")
    try:
        return types.text(value)
    except UnicodeDecodeError as error:
        raise _refused("the text is no UTF-8") from error


def _refused(why: str) -> YtError:
    return YtError(
        f"Error converting a value by the modes of the format: {why}", Code.SCHEMA_VIOLATION
    )


def _decimal_bytes(logical: Any, value: Any) -> bytes:
    text = _text(value)
    try:
        number = Decimal(text)
    except InvalidOperation as error:
        raise _refused(f'"{text}" is no decimal') from error
    return simple_values.pack_decimal(logical, number)


def _decimal_text(logical: Any, value: bytes) -> bytes:
    return simple_values.show_decimal(logical, value).encode()


def _time_number(name: str, value: Any) -> Any:
    text = _text(value)
    unit, spelling = _TIMES[name]
    try:
        moment = datetime.strptime(text, spelling).replace(tzinfo=UTC)
    except ValueError as error:
        raise _refused(f'"{text}" is no {name}') from error
    if moment.strftime(spelling) != text:
        raise _refused(f'"{text}" is not spelled as a {name}')
    return yson.YsonUint64((moment - _EPOCH) // unit)


def _time_text(name: str, value: Any) -> bytes:
    unit, spelling = _TIMES[name]
    return (_EPOCH + int(value) * unit).strftime(spelling).encode()


def _uuid_bytes(mode: str, value: Any) -> bytes:
    text = _text(value)
    if _UUIDS[mode].fullmatch(text) is None:
        raise _refused(f'"{text}" is no UUID of the mode {mode}')
    if mode == "text_yt":
        return b"".join(int(part, 16).to_bytes(4, "big") for part in text.split("-"))
    return uuid.UUID(text).bytes_le


def _uuid_text(mode: str, value: bytes) -> bytes:
    if mode == "text_yt":
        groups = (int.from_bytes(value[start : start + 4], "big") for start in range(0, 16, 4))
        return "-".join(f"{group:x}" for group in groups).encode()
    return str(uuid.UUID(bytes_le=value)).encode()
