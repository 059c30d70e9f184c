"""Arrow types and logical types, in both directions, and which may be written as which.

Reading picks the narrowest Arrow type that holds every value and that Spark has, with the field names that
SPYT uses. Creating a table picks the logical type that takes every value of the Arrow type. Types only: no
value passes through here.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from yt_exactly_once.codec import types
from yt_exactly_once.codec.matches import EXACT, TypeMatch, is_list, refused, worst
from yt_exactly_once.codec.scalars import SCALARS, Scalar

NESTED_VALUE = "value"
"""The field of the one-field struct that represents an optional inside an optional."""


def arrow_type_of(logical: types.LogicalType, *, binary_strings: bool = False) -> pa.DataType:
    """Return the Arrow type that values of the logical type are read into."""

    def read_as(scalar: Scalar) -> pa.DataType:
        return pa.binary() if binary_strings and scalar.read_as_bytes else scalar.read_as

    return _shaped(logical, read_as)


def parsed_type_of(logical: types.LogicalType) -> pa.DataType:
    """Return the Arrow type that values of the logical type are parsed into from YSON."""
    return _shaped(logical, lambda scalar: scalar.parsed)


def _shaped(logical: types.LogicalType, leaf: Callable[[Scalar], pa.DataType]) -> pa.DataType:
    """Return the Arrow type of the shape of a logical type."""

    def field(name: str, part: types.LogicalType, *, nullable: bool | None = None) -> pa.Field:
        found = types.is_nullable(part) if nullable is None else nullable
        return pa.field(name, _shaped(part, leaf), nullable=found)

    match types.untagged(logical):
        case types.SimpleType() | types.DecimalType() as bare:
            return leaf(bare.scalar)
        case types.OptionalType(item) as optional if types.is_nested_optional(optional):
            return pa.struct([field(NESTED_VALUE, item)])
        case types.OptionalType(item):
            return _shaped(item, leaf)
        case types.ListType(item):
            return pa.list_(field("element", item))
        case types.DictType(key, value):
            return pa.map_(field("key", key, nullable=False), field("value", value))
        case bare:
            return pa.struct([field(name, part) for name, part in struct_fields(bare).items()])


def struct_fields(logical: types.LogicalType) -> dict[str, types.LogicalType]:
    """Return the fields of the Arrow struct that represents a struct, a tuple or a variant."""
    match logical:
        case types.StructType(members):
            return {member.name: member.type for member in members}
        case types.TupleType(elements):
            return {f"_{place}": element for place, element in enumerate(elements, 1)}
        case types.VariantType(alternatives):
            # Optional, so that "not chosen" and "chosen, and null" differ.
            return {variant_field(one): types.OptionalType(one.type) for one in alternatives}
        case other:
            raise AssertionError(f"{other} has no fields")


def variant_field(alternative: types.Member) -> str:
    """Return the name of the struct field that holds this alternative of a variant, as SPYT's."""
    return f"_v{alternative.name}"


def logical_type_of(arrow: pa.DataType, *, nullable: bool = True) -> types.LogicalType | None:
    """Return the logical type that takes every value of the Arrow type, or None without one."""
    bare = _bare_logical_type_of(arrow)
    if bare is None or not nullable:
        return bare
    return types.OptionalType(bare)


def _bare_logical_type_of(arrow: pa.DataType) -> types.LogicalType | None:
    for scalar in SCALARS.values():
        if scalar.created_for(arrow):
            return types.SimpleType(scalar.name)
    if pa.types.is_decimal(arrow) and arrow.scale >= 0:
        return types.DecimalType(arrow.precision, arrow.scale)
    return _composite_logical_type_of(arrow)


def _composite_logical_type_of(arrow: pa.DataType) -> types.LogicalType | None:
    if pa.types.is_map(arrow):
        key = logical_type_of(arrow.key_type, nullable=False)
        value = logical_type_of(arrow.item_type, nullable=arrow.item_field.nullable)
        return None if key is None or value is None else types.DictType(key, value)
    if is_list(arrow):
        item = logical_type_of(arrow.value_type, nullable=arrow.value_field.nullable)
        return None if item is None else types.ListType(item)
    if pa.types.is_struct(arrow):
        members = []
        for field in arrow:
            part = logical_type_of(field.type, nullable=field.nullable)
            if part is None:
                return None
            members.append(types.Member(field.name, part))
        return types.StructType(tuple(members))
    return None


def match_types(  # noqa: PLR0911 - a case per kind
    arrow: pa.DataType, logical: types.LogicalType
) -> TypeMatch:
    """Check whether values of the Arrow type may be written as the logical type."""
    bare = types.untagged(logical)
    if pa.types.is_null(arrow):
        return EXACT if types.is_nullable(bare) else refused("give the column values of its type")
    match bare:
        case types.SimpleType() | types.DecimalType():
            return bare.scalar.match(arrow)
        case types.OptionalType(item) as optional if types.is_nested_optional(optional):
            return _match_nested_optional(arrow, item)
        case types.OptionalType(item):
            return match_types(arrow, item)
        case types.ListType(item):
            return _match_list(arrow, item)
        case types.DictType(key, value):
            return _match_dict(arrow, key, value)
        case _:
            return _match_by_field(arrow, bare)


def _match_list(arrow: pa.DataType, item: types.LogicalType) -> TypeMatch:
    if not is_list(arrow):
        return refused("give an array")
    return worst([("[]", match_types(arrow.value_type, item))])


def _match_dict(arrow: pa.DataType, key: types.LogicalType, value: types.LogicalType) -> TypeMatch:
    if not pa.types.is_map(arrow):
        return refused("give a map")
    keys, values = match_types(arrow.key_type, key), match_types(arrow.item_type, value)
    return worst([("[key]", keys), ("[value]", values)])


def _match_nested_optional(arrow: pa.DataType, item: types.LogicalType) -> TypeMatch:
    if not pa.types.is_struct(arrow) or [field.name for field in arrow] != [NESTED_VALUE]:
        return refused(f"give a struct with the one field `{NESTED_VALUE}`")
    return worst([(f".{NESTED_VALUE}", match_types(arrow.field(0).type, item))])


def _match_by_field(arrow: pa.DataType, logical: types.LogicalType) -> TypeMatch:
    wanted = struct_fields(logical)
    if not pa.types.is_struct(arrow):
        return refused(f"give a struct with the fields {', '.join(wanted)}")
    found = {field.name: field.type for field in arrow}
    extra = [name for name in found if name not in wanted]
    if extra or len(found) != arrow.num_fields:
        return refused(f"drop or rename the fields: {', '.join(extra) or 'duplicates'}")
    for name, part in wanted.items():
        # An absent alternative is never chosen; an absent member must be able to be null.
        spare = isinstance(logical, types.VariantType) or (
            isinstance(logical, types.StructType) and types.is_nullable(part)
        )
        if name not in found and not spare:
            return refused(f"add the field {name}")
    return worst((f".{name}", match_types(found[name], wanted[name])) for name in found)
