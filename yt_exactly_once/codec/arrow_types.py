"""Which Arrow type stands for which logical type, in both directions.

Reading picks the narrowest type that holds every value and that Spark has, under the names SPYT
gives them; creating a table picks the logical type that takes every value of the Arrow type.
It holds types only: no value passes through here.
"""

from __future__ import annotations

import pyarrow as pa

from yt_exactly_once.codec.types import (
    DecimalType,
    DictType,
    ListType,
    LogicalType,
    Member,
    OptionalType,
    SimpleType,
    StructType,
    TupleType,
    VariantType,
    is_nested_optional,
    is_nullable,
    untagged,
)

NESTED_VALUE = "value"
"""The field of the one-field struct that stands for an optional inside an optional."""

_INSTANT = pa.timestamp("us", tz="UTC")
_SPAN = pa.duration("us")

# Spark has no unsigned integers: each is read into the next wider signed type.
_READ_AS = {
    "int8": pa.int8(),
    "int16": pa.int16(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "uint8": pa.int16(),
    "uint16": pa.int32(),
    "uint32": pa.int64(),
    "uint64": pa.decimal128(20, 0),
    "float": pa.float32(),
    "double": pa.float64(),
    "bool": pa.bool_(),
    "utf8": pa.string(),
    "json": pa.string(),
    "uuid": pa.binary(),
    "yson": pa.binary(),
    "date": pa.date32(),
    "date32": pa.date32(),
    "datetime": _INSTANT,
    "datetime64": _INSTANT,
    "timestamp": _INSTANT,
    "timestamp64": _INSTANT,
    "interval": _SPAN,
    "interval64": _SPAN,
    "null": pa.null(),
    "void": pa.null(),
}

_WIDEST_DECIMAL128 = 38


def arrow_type_of(  # noqa: C901, PLR0911 - a case per kind
    logical: LogicalType, *, binary_strings: bool = False
) -> pa.DataType:
    """Return the Arrow type that values of the logical type are read into."""

    def field(name: str, part: LogicalType, *, nullable: bool | None = None) -> pa.Field:
        inner = arrow_type_of(part, binary_strings=binary_strings)
        return pa.field(name, inner, nullable=is_nullable(part) if nullable is None else nullable)

    match untagged(logical):
        case SimpleType("string"):
            return pa.binary() if binary_strings else pa.string()
        case SimpleType(name):
            # A type with a time zone keeps the bytes the cluster gives: Spark has none like it.
            return _READ_AS.get(name, pa.binary())
        case DecimalType(precision, scale) if precision <= _WIDEST_DECIMAL128:
            return pa.decimal128(precision, scale)
        case DecimalType(precision, scale):
            return pa.decimal256(precision, scale)
        case OptionalType(item) as optional if is_nested_optional(optional):
            return pa.struct([field(NESTED_VALUE, item)])
        case OptionalType(item):
            return arrow_type_of(item, binary_strings=binary_strings)
        case ListType(item):
            return pa.list_(field("element", item))
        case DictType(key, value):
            return pa.map_(field("key", key, nullable=False), field("value", value))
        case StructType(members):
            return pa.struct([field(member.name, member.type) for member in members])
        case TupleType(elements):
            return pa.struct([field(f"_{n}", one) for n, one in enumerate(elements, 1)])
        case VariantType(alternatives):
            # Optional, so that "not chosen" and "chosen, and null" differ.
            return pa.struct(
                [field(variant_field(one), OptionalType(one.type)) for one in alternatives]
            )
        case other:
            raise AssertionError(f"{other} is not a logical type")


def variant_field(alternative: Member) -> str:
    """Return the name of the struct field that holds this alternative of a variant, as SPYT's."""
    return f"_v{alternative.name}"


_CREATED_AS = {
    pa.int8(): "int8",
    pa.int16(): "int16",
    pa.int32(): "int32",
    pa.int64(): "int64",
    pa.uint8(): "uint8",
    pa.uint16(): "uint16",
    pa.uint32(): "uint32",
    pa.uint64(): "uint64",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.bool_(): "bool",
    pa.string(): "string",
    pa.large_string(): "string",
    pa.binary(): "string",
    pa.large_binary(): "string",
    pa.date32(): "date32",
}


def logical_type_of(arrow: pa.DataType, *, nullable: bool = True) -> LogicalType | None:
    """Return the logical type that takes every value of the Arrow type, or None without one."""
    bare = _bare_logical_type_of(arrow)
    if bare is None or not nullable:
        return bare
    return OptionalType(bare)


def _bare_logical_type_of(arrow: pa.DataType) -> LogicalType | None:
    if arrow in _CREATED_AS:
        return SimpleType(_CREATED_AS[arrow])
    if pa.types.is_timestamp(arrow) and arrow.tz is not None:
        return SimpleType("timestamp64")
    if pa.types.is_duration(arrow):
        return SimpleType("interval")
    if pa.types.is_decimal(arrow) and arrow.scale >= 0:
        return DecimalType(arrow.precision, arrow.scale)
    return _composite_logical_type_of(arrow)


def _composite_logical_type_of(arrow: pa.DataType) -> LogicalType | None:
    if pa.types.is_map(arrow):
        key = logical_type_of(arrow.key_type, nullable=False)
        value = logical_type_of(arrow.item_type, nullable=arrow.item_field.nullable)
        return None if key is None or value is None else DictType(key, value)
    if pa.types.is_list(arrow) or pa.types.is_large_list(arrow):
        item = logical_type_of(arrow.value_type, nullable=arrow.value_field.nullable)
        return None if item is None else ListType(item)
    if pa.types.is_struct(arrow):
        members = []
        for field in arrow:
            part = logical_type_of(field.type, nullable=field.nullable)
            if part is None:
                return None
            members.append(Member(field.name, part))
        return StructType(tuple(members))
    return None
