"""The logical types of YTsaurus as a tree, parsed from column descriptions and rendered back.

It owns nesting and nullability. A leaf is its record in `scalars`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from yt_exactly_once.codec.scalars import Scalar, decimal, scalar_named
from yt_exactly_once.errors import SchemaMismatchError

# The older column key `type` spells two names differently from `type_v3`.
_V1_NAMES = {"boolean": "bool", "any": "yson"}

_DECIMAL = re.compile(r"decimal\((\d+),\s*(\d+)\)")


@dataclass(frozen=True, slots=True)
class OptionalType:
    """A value or null."""

    item: LogicalType

    def __str__(self) -> str:
        return f"optional<{self.item}>"


@dataclass(frozen=True, slots=True)
class ListType:
    """Any number of items of one type."""

    item: LogicalType

    def __str__(self) -> str:
        return f"list<{self.item}>"


@dataclass(frozen=True, slots=True)
class Member:
    """A named part of a struct or of a variant."""

    name: str
    type: LogicalType

    def __str__(self) -> str:
        return f"{self.name}: {self.type}"


@dataclass(frozen=True, slots=True)
class StructType:
    """Members, all present, by name or by position; the latter is a tuple."""

    members: tuple[Member, ...]
    named: bool = True

    def __str__(self) -> str:
        return f"{'struct' if self.named else 'tuple'}<{_shown(self)}>"


@dataclass(frozen=True, slots=True)
class VariantType:
    """Exactly one of several alternatives, chosen by name or by position."""

    members: tuple[Member, ...]
    named: bool

    def __str__(self) -> str:
        return f"variant<{_shown(self)}>"


def _shown(whole: StructType | VariantType) -> str:
    return ", ".join(str(one if whole.named else one.type) for one in whole.members)


def numbered(members: Iterable[LogicalType]) -> tuple[Member, ...]:
    """Return members without names; these names are for Arrow."""
    return tuple(Member(f"_{position}", member) for position, member in enumerate(members, 1))


@dataclass(frozen=True, slots=True)
class DictType:
    """Pairs of a key and a value."""

    key: LogicalType
    value: LogicalType

    def __str__(self) -> str:
        return f"dict<{self.key}, {self.value}>"


LogicalType: TypeAlias = Scalar | OptionalType | ListType | StructType | VariantType | DictType
"""A type with a label (`tagged`) is the type inside: values look exactly alike."""


def is_nullable(logical: LogicalType) -> bool:
    """Check whether null is a value of the type."""
    return isinstance(logical, OptionalType) or (isinstance(logical, Scalar) and logical.is_nothing)


def required(logical: LogicalType) -> LogicalType:
    """Return the type of a present value: one optional peeled off.

    An optional stays if a present value must be distinguished from a null inside it.
    """
    if isinstance(logical, OptionalType) and not is_nullable(logical.item):
        return logical.item
    return logical


def scalar_of(logical: LogicalType) -> Scalar | None:
    """Return what a present value of a column is, if it has no parts."""
    bare = required(logical)
    return bare if isinstance(bare, Scalar) else None


def plain_scalar_of(logical: LogicalType) -> Scalar | None:
    """Return the same for a column that is sent as plain values: neither composite nor `yson`."""
    scalar = scalar_of(logical)
    return None if scalar is None or scalar.holds_yson else scalar


def parse_type(description: Any, *, column: str | None = None) -> LogicalType:
    """Build the tree from a `type_v3` description; raise `SchemaMismatchError` if that is not understood."""
    try:
        return _parse(description)
    except (KeyError, TypeError, ValueError) as error:
        raise SchemaMismatchError(
            f"Column type {description!r} is not understood ({error})",
            remedy="Leave the column out, or use a release that knows the type",
            column=column,
        ) from error


def parse_column_type(column: Mapping[str, Any], *, by_type_v3: bool = True) -> LogicalType:
    """Build the tree from one column of `@schema`, whichever of the two spellings it uses."""
    name = column.get("name")
    if by_type_v3 and "type_v3" in column:
        return parse_type(column["type_v3"], column=name)
    old = column.get("type")
    logical = parse_type(_V1_NAMES.get(old, old) if isinstance(old, str) else old, column=name)
    if column.get("required", False) or is_nullable(logical):
        return logical
    return OptionalType(logical)


def render_type(logical: LogicalType) -> Any:
    """Describe the tree as `type_v3`."""
    match logical:
        case Scalar():
            return logical.described
        case OptionalType(item):
            return {"type_name": "optional", "item": render_type(item)}
        case ListType(item):
            return {"type_name": "list", "item": render_type(item)}
        case StructType():
            return {"type_name": "struct" if logical.named else "tuple", **_rendered(logical)}
        case VariantType():
            return {"type_name": "variant", **_rendered(logical)}
        case DictType(key, value):
            return {"type_name": "dict", "key": render_type(key), "value": render_type(value)}


def spelled(logical: LogicalType) -> str:
    """Return a type as a word of a command line: its name, or its `type_v3` as JSON."""
    if isinstance(logical, Scalar):
        return logical.name.replace(" ", "")
    return json.dumps(render_type(logical))


def parse_spelled(text: str) -> LogicalType:
    """Return the type that `spelled` has made a word of; raise `ValueError` if the text is none."""
    digits = _DECIMAL.fullmatch(text)
    if digits is not None:
        return decimal(int(digits[1]), int(digits[2]))
    try:
        described = json.loads(text) if text.startswith("{") else _V1_NAMES.get(text, text)
        return _parse(described)
    except (KeyError, TypeError) as error:
        raise ValueError(f"{text} is no type_v3") from error


def _rendered(whole: StructType | VariantType) -> dict[str, Any]:
    if whole.named:
        named = [{"name": one.name, "type": render_type(one.type)} for one in whole.members]
        return {"members": named}
    return {"elements": [{"type": render_type(one.type)} for one in whole.members]}


def _parse(description: Any) -> LogicalType:  # noqa: PLR0911 - a case per kind
    if isinstance(description, str):
        return scalar_named(description)
    kind = description["type_name"]
    match kind:
        case "optional":
            return OptionalType(_parse(description["item"]))
        case "list":
            return ListType(_parse(description["item"]))
        case "struct" | "tuple":
            return StructType(*_members(description))
        case "variant":
            return VariantType(*_members(description))
        case "dict":
            return DictType(_parse(description["key"]), _parse(description["value"]))
        case "tagged":
            return _parse(description["item"])
        case "decimal":
            return decimal(int(description["precision"]), int(description["scale"]))
        case _:
            return scalar_named(kind)


def _members(description: Mapping[str, Any]) -> tuple[tuple[Member, ...], bool]:
    """Return the members, and whether they have names."""
    named = description.get("members")
    if named is not None:
        return tuple(Member(str(one["name"]), _parse(one["type"])) for one in named), True
    return numbered(_parse(one["type"]) for one in description["elements"]), False
