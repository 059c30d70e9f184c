"""Composite values as the wire has them: fields of structs and tags of variants by position, not by name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from yt_exactly_once.local.tables import types
from yt_exactly_once.local.tables.types import text

if TYPE_CHECKING:
    from collections.abc import Callable

    Convert = Callable[[Any], Any]


def converter(logical: types.LogicalType) -> Convert | None:
    """Return what turns a value in its normal form into the positional one; `None` changes nothing."""
    logical = types.untagged(logical)
    if isinstance(logical, str) or logical["type_name"] == "decimal":
        return None
    return _CONVERTERS[logical["type_name"]](logical)


def _optional(logical: dict[str, Any]) -> Convert | None:
    item = converter(logical["item"])
    if item is None:
        return None
    inner = types.untagged(logical["item"])
    nested = isinstance(inner, dict) and inner["type_name"] == "optional"

    def convert(value: Any) -> Any:
        if value is None:
            return None
        return [item(value[0])] if nested else item(value)

    return convert


def _list(logical: dict[str, Any]) -> Convert | None:
    item = converter(logical["item"])
    return None if item is None else lambda value: [item(each) for each in value]


def _dict(logical: dict[str, Any]) -> Convert | None:
    key, value = converter(logical["key"]), converter(logical["value"])
    if key is None and value is None:
        return None
    return lambda pairs: [[_apply(key, pair[0]), _apply(value, pair[1])] for pair in pairs]


def _tuple(logical: dict[str, Any]) -> Convert | None:
    items = [converter(element["type"]) for element in logical["elements"]]
    if not any(items):
        return None
    return lambda values: [_apply(item, each) for item, each in zip(items, values, strict=True)]


def _struct(logical: dict[str, Any]) -> Convert:
    members = [(member["name"], converter(member["type"])) for member in logical["members"]]

    def convert(value: Any) -> Any:
        given = {text(key): item for key, item in value.items()}
        return [_apply(item, given.get(name)) for name, item in members]

    return convert


def _variant(logical: dict[str, Any]) -> Convert | None:
    named = "members" in logical
    alternatives = logical["members"] if named else logical["elements"]
    items = [converter(alternative["type"]) for alternative in alternatives]
    if not named and not any(items):
        return None
    names = [alternative["name"] for alternative in alternatives] if named else []

    def convert(value: Any) -> Any:
        tag, item = value
        index = names.index(text(tag)) if named else int(tag)
        return [index, _apply(items[index], item)]

    return convert


def _apply(convert: Convert | None, value: Any) -> Any:
    return value if convert is None or value is None else convert(value)


_CONVERTERS: dict[str, Callable[[dict[str, Any]], Convert | None]] = {
    "optional": _optional,
    "list": _list,
    "dict": _dict,
    "tuple": _tuple,
    "struct": _struct,
    "variant": _variant,
}
