"""The logical types of YTsaurus as a tree, parsed from column descriptions and rendered back.

It owns nesting and nullability. What the package knows of a leaf is its record in `scalars`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from yt_exactly_once.codec.scalars import MAX_DECIMAL_PRECISION, SCALARS, Scalar, decimal
from yt_exactly_once.errors import SchemaMismatchError

# The older column key `type` spells two names differently from `type_v3`.
_V1_NAMES = {"boolean": "bool", "any": "yson"}


@dataclass(frozen=True, slots=True)
class SimpleType:
    """A type without parameters, under its `type_v3` name."""

    name: str

    @property
    def scalar(self) -> Scalar:
        """What the package knows of the type."""
        return SCALARS[self.name]

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class DecimalType:
    """A decimal number of fixed precision and scale."""

    precision: int
    scale: int

    @property
    def scalar(self) -> Scalar:
        """What the package knows of the type."""
        return decimal(self.precision, self.scale)

    def __str__(self) -> str:
        return f"decimal({self.precision}, {self.scale})"


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
    """Named members, all present."""

    members: tuple[Member, ...]

    def __str__(self) -> str:
        return f"struct<{', '.join(map(str, self.members))}>"


@dataclass(frozen=True, slots=True)
class TupleType:
    """Members by position, all present."""

    elements: tuple[LogicalType, ...]

    def __str__(self) -> str:
        return f"tuple<{', '.join(map(str, self.elements))}>"


@dataclass(frozen=True, slots=True)
class VariantType:
    """Exactly one of several alternatives, chosen by name or by position."""

    alternatives: tuple[Member, ...]
    named: bool

    def __str__(self) -> str:
        shown = self.alternatives if self.named else [one.type for one in self.alternatives]
        return f"variant<{', '.join(map(str, shown))}>"


@dataclass(frozen=True, slots=True)
class DictType:
    """Pairs of a key and a value."""

    key: LogicalType
    value: LogicalType

    def __str__(self) -> str:
        return f"dict<{self.key}, {self.value}>"


@dataclass(frozen=True, slots=True)
class TaggedType:
    """Another type with a label; values look exactly as those of the other type."""

    tag: str
    item: LogicalType

    def __str__(self) -> str:
        return f"tagged<{self.tag!r}, {self.item}>"


LogicalType: TypeAlias = (
    SimpleType
    | DecimalType
    | OptionalType
    | ListType
    | StructType
    | TupleType
    | VariantType
    | DictType
    | TaggedType
)


def untagged(logical: LogicalType) -> LogicalType:
    """Peel the labels off: they never show in a value."""
    while isinstance(logical, TaggedType):
        logical = logical.item
    return logical


def is_nullable(logical: LogicalType) -> bool:
    """Check whether null is a value of the type."""
    bare = untagged(logical)
    return isinstance(bare, OptionalType) or (
        isinstance(bare, SimpleType) and bare.scalar.is_nothing
    )


def is_nested_optional(optional: OptionalType) -> bool:
    """Check whether a present value must be distinguished from a null inside it."""
    return is_nullable(optional.item)


def required(logical: LogicalType) -> LogicalType:
    """Return the type of a present value: one optional and every label around it peeled off."""
    bare = untagged(logical)
    if isinstance(bare, OptionalType) and not is_nested_optional(bare):
        return untagged(bare.item)
    return bare


def scalar_of(logical: LogicalType) -> Scalar | None:
    """Return what a present value of a column is, if it has no parts."""
    bare = required(logical)
    return bare.scalar if isinstance(bare, SimpleType | DecimalType) else None


def plain_scalar_of(logical: LogicalType) -> Scalar | None:
    """Return the same for a column that is sent as plain values: neither composite nor `yson`."""
    scalar = scalar_of(logical)
    return None if scalar is None or scalar.holds_yson else scalar


def arrow_obstacle(logical: LogicalType) -> str | None:
    """Return why values of a column should not be sent as Arrow, see `Scalar`; None without a reason."""
    scalar = scalar_of(logical)
    return None if scalar is None else scalar.arrow_obstacle


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


def render_type(logical: LogicalType) -> Any:  # noqa: C901, PLR0911 - a case per kind
    """Describe the tree as `type_v3`."""
    match logical:
        case SimpleType(name):
            return name
        case DecimalType(precision, scale):
            return {"type_name": "decimal", "precision": precision, "scale": scale}
        case OptionalType(item):
            return {"type_name": "optional", "item": render_type(item)}
        case ListType(item):
            return {"type_name": "list", "item": render_type(item)}
        case StructType(members):
            return {"type_name": "struct", "members": _render_members(members)}
        case TupleType(elements):
            return {
                "type_name": "tuple",
                "elements": [{"type": render_type(element)} for element in elements],
            }
        case VariantType(alternatives, named=True):
            return {"type_name": "variant", "members": _render_members(alternatives)}
        case VariantType(alternatives):
            unnamed = [{"type": render_type(one.type)} for one in alternatives]
            return {"type_name": "variant", "elements": unnamed}
        case DictType(key, value):
            return {"type_name": "dict", "key": render_type(key), "value": render_type(value)}
        case TaggedType(tag, item):
            return {"type_name": "tagged", "tag": tag, "item": render_type(item)}


def _render_members(members: Sequence[Member]) -> list[dict[str, Any]]:
    return [{"name": member.name, "type": render_type(member.type)} for member in members]


def _parse(description: Any) -> LogicalType:  # noqa: PLR0911 - a case per kind
    if isinstance(description, str):
        return _simple(description)
    kind = description["type_name"]
    match kind:
        case "optional":
            return OptionalType(_parse(description["item"]))
        case "list":
            return ListType(_parse(description["item"]))
        case "struct":
            return StructType(_parse_members(description["members"]))
        case "tuple":
            return TupleType(_parse_elements(description["elements"]))
        case "variant":
            return _variant(description)
        case "dict":
            return DictType(_parse(description["key"]), _parse(description["value"]))
        case "tagged":
            return TaggedType(str(description["tag"]), _parse(description["item"]))
        case "decimal":
            return _decimal(int(description["precision"]), int(description["scale"]))
        case _:
            return _simple(kind)


def _simple(name: str) -> SimpleType:
    if name not in SCALARS:
        raise ValueError(f"unknown type name {name!r}")
    return SimpleType(name)


def _decimal(precision: int, scale: int) -> DecimalType:
    if not (0 < precision <= MAX_DECIMAL_PRECISION and 0 <= scale <= precision):
        raise ValueError(f"impossible decimal({precision}, {scale})")
    return DecimalType(precision, scale)


def _variant(description: Mapping[str, Any]) -> VariantType:
    if description.get("members") is not None:
        return VariantType(_parse_members(description["members"]), named=True)
    elements = _parse_elements(description["elements"])
    members = tuple(Member(f"_{place}", element) for place, element in enumerate(elements, 1))
    return VariantType(members, named=False)


def _parse_members(members: Sequence[Mapping[str, Any]]) -> tuple[Member, ...]:
    return tuple(Member(str(member["name"]), _parse(member["type"])) for member in members)


def _parse_elements(elements: Sequence[Mapping[str, Any]]) -> tuple[LogicalType, ...]:
    return tuple(_parse(element["type"]) for element in elements)
