"""Arrow types and logical types, in both directions, and which may be written as which.

Reading picks the narrowest Arrow type that holds every value and that Spark has, with the field names that
SPYT uses. Creating a table picks the logical type that takes every value of the Arrow type. Types only: no
value passes through here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

import pyarrow as pa

from yt_exactly_once.codec import types
from yt_exactly_once.codec.matches import CHECKED, EXACT, Fit, TypeMatch, is_list, refused, worst
from yt_exactly_once.codec.scalars import SCALARS, Scalar, decimal
from yt_exactly_once.errors import SchemaMismatchError

NESTED_VALUE = "value"
"""The field of the one-field struct that represents an optional inside an optional."""

IS_JSON = "yt_exactly_once.json"
"""Metadata of a field whose texts are JSON, since it is a variant in the DataFrame."""

_HOLD_JSON = ("json", "utf8", "string", "yson")

Wanted: TypeAlias = Mapping[str, tuple[types.LogicalType, pa.DataType]]
"""Columns of rows that are read, each with its type and the Arrow type asked for."""


def arrow_type_of(
    logical: types.LogicalType,
    *,
    binary_strings: bool = False,
    uuid_text: bool = False,
    any_json: bool = False,
) -> pa.DataType:
    """Return the Arrow type that values of the logical type are read into; see `arrow_schema_of`."""

    def field(name: str, member: types.LogicalType, *, nullable: bool | None = None) -> pa.Field:
        found = types.is_nullable(member) if nullable is None else nullable
        inner = arrow_type_of(
            member, binary_strings=binary_strings, uuid_text=uuid_text, any_json=any_json
        )
        return pa.field(name, inner, nullable=found)

    match types.required(logical):
        case Scalar(name="uuid") if uuid_text:
            return pa.string()
        case Scalar(holds_yson=True) if any_json:
            return pa.string()
        case Scalar() as scalar:
            is_bytes = binary_strings and scalar.name == "string"
            return pa.binary() if is_bytes else scalar.read_as
        case types.ListType(item):
            return pa.list_(field("element", item))
        case types.DictType(key, value):
            return pa.map_(field("key", key, nullable=False), field("value", value))
        case bare:
            return pa.struct([field(name, member) for name, member in struct_fields(bare).items()])


def struct_fields(bare: types.LogicalType) -> dict[str, types.LogicalType]:
    """Return the fields of the Arrow struct that represents any other type, see `types.required`."""
    match bare:
        case types.StructType(members):
            return {member.name: member.type for member in members}
        case types.VariantType(members):
            # Optional, so that "not chosen" and "chosen, and null" differ.
            return {variant_field(one): types.OptionalType(one.type) for one in members}
        case types.OptionalType(item):
            return {NESTED_VALUE: item}
        case other:
            raise AssertionError(f"{other} has no fields")


def variant_field(alternative: types.Member) -> str:
    """Return the name of the struct field that holds this alternative of a variant, as SPYT's."""
    return f"_v{alternative.name}"


def logical_type_of(field: pa.Field, column: str = "") -> types.LogicalType:
    """Return the logical type that takes every value of a field; raise `SchemaMismatchError` without one.

    Args:
        column: that the field is a part of, for the message.
    """
    bare = (
        SCALARS["json"]
        if is_json(field)
        else _bare_logical_type_of(field.type, column or field.name)
    )
    return types.OptionalType(bare) if field.nullable else bare


def _bare_logical_type_of(arrow: pa.DataType, column: str) -> types.LogicalType:
    for name in (str(arrow), "string", "date32", "timestamp64", "interval"):
        scalar = SCALARS.get(name)
        if scalar is not None and scalar.match(arrow).fit is not Fit.REFUSED:
            return scalar
    if pa.types.is_decimal(arrow) and arrow.scale >= 0:
        return decimal(arrow.precision, arrow.scale)
    if pa.types.is_map(arrow):
        key = logical_type_of(arrow.key_field, column)
        return types.DictType(key, logical_type_of(arrow.item_field, column))
    if is_list(arrow):
        return types.ListType(logical_type_of(arrow.value_field, column))
    if pa.types.is_struct(arrow):
        members = (types.Member(field.name, logical_type_of(field, column)) for field in arrow)
        return types.StructType(tuple(members))
    raise SchemaMismatchError(
        f"No column type of YTsaurus holds {arrow}",
        remedy="Cast the column in the query, for instance to a timestamp, number or string",
        column=column,
    )


def as_json(field: pa.Field) -> pa.Field:
    """Return a field whose texts are JSON."""
    return field.with_metadata({IS_JSON: "true"})


def is_json(field: pa.Field) -> bool:
    """Return whether the texts of a field are JSON."""
    return IS_JSON.encode() in (field.metadata or {})


def match_field(field: pa.Field, logical: types.LogicalType) -> TypeMatch:
    """Check whether values of a column of a DataFrame may be written as the logical type."""
    if not is_json(field):
        return match_types(field.type, logical)
    bare = types.required(logical)
    if not (isinstance(bare, Scalar) and bare.name in _HOLD_JSON):
        return refused(
            "a variant fits json, any, utf8 or string: CAST({x} AS ...) gives it another type"
        )
    return CHECKED if bare.holds_yson else bare.match(field.type)


def match_types(  # noqa: PLR0911 - a case per kind
    arrow: pa.DataType, logical: types.LogicalType
) -> TypeMatch:
    """Check whether values of the Arrow type may be written as the logical type."""
    if pa.types.is_null(arrow):
        fits = types.is_nullable(logical)
        return EXACT if fits else refused("give the column values of its type")
    match types.required(logical):
        case Scalar() as scalar:
            return scalar.match(arrow)
        case types.ListType(item):
            if not is_list(arrow):
                return refused("give an array")
            return worst([("[]", match_types(arrow.value_type, item))])
        case types.DictType(key, value):
            if not pa.types.is_map(arrow):
                return refused("give a map")
            keys, values = match_types(arrow.key_type, key), match_types(arrow.item_type, value)
            return worst([("[key]", keys), ("[value]", values)])
        case bare:
            return _match_by_field(arrow, bare)


def _match_by_field(arrow: pa.DataType, bare: types.LogicalType) -> TypeMatch:
    wanted = struct_fields(bare)
    if not pa.types.is_struct(arrow):
        return refused(f"give a struct with the fields {', '.join(wanted)}")
    found = {field.name: field.type for field in arrow}
    extra = [name for name in found if name not in wanted]
    if extra or len(found) != arrow.num_fields:
        return refused(f"drop or rename the fields: {', '.join(extra) or 'duplicates'}")
    for name, member in wanted.items():
        # An absent alternative is never chosen; an absent member must be able to be null.
        may_lack = isinstance(bare, types.VariantType) or (
            isinstance(bare, types.StructType) and bare.named and types.is_nullable(member)
        )
        if name not in found and not may_lack:
            return refused(f"add the field {name}")
    return worst((f".{name}", match_types(found[name], wanted[name])) for name in found)
