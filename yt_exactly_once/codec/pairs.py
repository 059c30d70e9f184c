"""The one table of type pairs: may a column of this Arrow type be written into that logical type.

Every pair is exact, widening, checked value by value, or refused with a remedy. Nothing is ever
allowed here that would change a value on its way; how values travel is decided elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import IntEnum
from typing import TYPE_CHECKING

import pyarrow as pa

from yt_exactly_once.codec.arrow_types import NESTED_VALUE, variant_field
from yt_exactly_once.codec.types import (
    FLOATING,
    NOTHING,
    SIGNED,
    TEXT,
    UNSIGNED,
    ZONED,
    DecimalType,
    DictType,
    ListType,
    LogicalType,
    OptionalType,
    SimpleType,
    StructType,
    TupleType,
    VariantType,
    is_nested_optional,
    is_nullable,
    untagged,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

types = pa.types


class Fit(IntEnum):
    """How a frame type relates to a table type; a larger one asks for more care."""

    EXACT = 0
    """The same values."""
    WIDENING = 1
    """Every value fits, in a wider type."""
    CHECKED = 2
    """Each value is checked when it is encoded; one that does not fit is an `EncodingError`."""
    REFUSED = 3
    """A `SchemaMismatchError` before the first row."""


@dataclass(frozen=True, slots=True)
class TypeMatch:
    """What became of a pair.

    Attributes:
        fit: how the types relate.
        remedy: what to do about a refusal, `{x}` standing for the column; empty otherwise.
        place: where inside the column the refusal is, such as `.tags[]`; empty for the whole.
    """

    fit: Fit
    remedy: str = ""
    place: str = ""


EXACT = TypeMatch(Fit.EXACT)
WIDENING = TypeMatch(Fit.WIDENING)
CHECKED = TypeMatch(Fit.CHECKED)

_UINT64_DIGITS = 20
_UUID_BYTES = 16


def match_types(arrow: pa.DataType, logical: LogicalType) -> TypeMatch:  # noqa: PLR0911 - a case per kind
    """Say whether values of the Arrow type may be written as the logical type."""
    bare = untagged(logical)
    if types.is_null(arrow):
        return EXACT if is_nullable(bare) else _refused("give the column values of its type")
    match bare:
        case OptionalType(item) as optional if is_nested_optional(optional):
            return _nested_optional(arrow, item)
        case OptionalType(item):
            return match_types(arrow, item)
        case SimpleType(name):
            return _simple(arrow, name)
        case DecimalType():
            return _decimal(arrow, bare)
        case ListType(item):
            return _list(arrow, item)
        case DictType(key, value):
            return _dict(arrow, key, value)
        case _:
            return _by_field(arrow, bare)


def _refused(remedy: str, place: str = "") -> TypeMatch:
    return TypeMatch(Fit.REFUSED, remedy, place)


def _worst(matches: Iterable[tuple[str, TypeMatch]]) -> TypeMatch:
    """Return the most demanding match, with the way down to where it was given."""
    worst = EXACT
    for step, match in matches:
        if match.fit > worst.fit:
            worst = replace(match, place=step + match.place)
    return worst


def _simple(arrow: pa.DataType, name: str) -> TypeMatch:  # noqa: PLR0911 - a line per family
    if name in SIGNED or name in UNSIGNED:
        return _integer(arrow, name)
    if name in FLOATING:
        return _floating(arrow, name)
    if name == "bool":
        return EXACT if types.is_boolean(arrow) else _refused("cast it: CAST({x} AS BOOLEAN)")
    if name in TEXT or name in ("string", "uuid"):
        return _bytes(arrow, name)
    if name.startswith("date") and "time" not in name:
        return CHECKED if types.is_date32(arrow) else _refused("cast it: CAST({x} AS DATE)")
    if name.startswith(("datetime", "timestamp")):
        return _instant(arrow)
    if name.startswith("interval"):
        return _span(arrow)
    if name == "yson":
        return _free(arrow)
    if name in ZONED:
        return _refused("types with a time zone cannot be written; use a timestamp column")
    assert name in NOTHING, name
    return _refused("only nulls fit: leave the column out")


def _bits(arrow: pa.DataType) -> int:
    return int(arrow.bit_width)


def _integer(arrow: pa.DataType, name: str) -> TypeMatch:
    bits = int(name.removeprefix("u").removeprefix("int"))
    unsigned = name in UNSIGNED
    if unsigned and types.is_decimal(arrow) and arrow.scale == 0:
        # The way Spark holds a uint64, having no unsigned types.
        return CHECKED if arrow.precision <= _UINT64_DIGITS and bits == 64 else _narrowing(name)  # noqa: PLR2004
    if not types.is_integer(arrow):
        return _refused("cast it to a whole number in the query, or change the column's type")
    if types.is_unsigned_integer(arrow) == unsigned:
        if _bits(arrow) > bits:
            return _narrowing(name)
        return EXACT if _bits(arrow) == bits else WIDENING
    if not unsigned:
        return WIDENING if _bits(arrow) < bits else _narrowing(name)
    # A source yields an unsigned column in the next wider signed type; the way back is open.
    return CHECKED if _bits(arrow) <= min(2 * bits, 64) else _narrowing(name)


def _narrowing(name: str) -> TypeMatch:
    return _refused(f"values may not fit {name}: cast to a narrower type, or widen the column")


def _floating(arrow: pa.DataType, name: str) -> TypeMatch:
    exact_bits = {"float": 24, "double": 53}[name]
    if types.is_floating(arrow):
        own = {"float": 32, "double": 64}[name]
        if _bits(arrow) > own:
            return _refused("values may lose digits: cast it, CAST({x} AS FLOAT), or use double")
        return EXACT if _bits(arrow) == own else WIDENING
    if types.is_integer(arrow) and _bits(arrow) <= exact_bits:
        return WIDENING
    return _refused(f"cast it in the query: CAST({{x}} AS {name.upper()})")


def _is_binary(arrow: pa.DataType) -> bool:
    return bool(types.is_binary(arrow) or types.is_large_binary(arrow))


def _is_string(arrow: pa.DataType) -> bool:
    return bool(types.is_string(arrow) or types.is_large_string(arrow))


def _bytes(arrow: pa.DataType, name: str) -> TypeMatch:
    if name == "uuid":
        if types.is_fixed_size_binary(arrow) and arrow.byte_width == _UUID_BYTES:
            return EXACT
        return CHECKED if _is_binary(arrow) else _refused("give the 16 bytes as a binary column")
    if _is_string(arrow):
        return CHECKED if name == "json" else EXACT
    if _is_binary(arrow):
        return EXACT if name == "string" else CHECKED
    return _refused("cast it in the query: CAST({x} AS STRING)")


def _instant(arrow: pa.DataType) -> TypeMatch:
    if not types.is_timestamp(arrow):
        return _refused("cast it in the query: CAST({x} AS TIMESTAMP), or timestamp_micros({x})")
    if arrow.tz is None:
        return _refused("a local time names no instant: cast it, CAST({x} AS TIMESTAMP)")
    return CHECKED


def _span(arrow: pa.DataType) -> TypeMatch:
    if types.is_duration(arrow):
        return CHECKED
    return _refused("give a day-time interval, for instance make_dt_interval(0, 0, 0, seconds)")


def _decimal(arrow: pa.DataType, logical: DecimalType) -> TypeMatch:
    if types.is_decimal(arrow) and arrow.scale == logical.scale:
        if arrow.precision == logical.precision:
            return EXACT
        if arrow.precision < logical.precision:
            return WIDENING
    sql = str(logical).upper()
    return _refused(f"cast it in the query: CAST({{x}} AS {sql})")


def _list(arrow: pa.DataType, item: LogicalType) -> TypeMatch:
    if types.is_map(arrow) or not (types.is_list(arrow) or types.is_large_list(arrow)):
        return _refused("give an array")
    return _worst([("[]", match_types(arrow.value_type, item))])


def _dict(arrow: pa.DataType, key: LogicalType, value: LogicalType) -> TypeMatch:
    if not types.is_map(arrow):
        return _refused("give a map")
    keys, values = match_types(arrow.key_type, key), match_types(arrow.item_type, value)
    return _worst([("[key]", keys), ("[value]", values)])


def _nested_optional(arrow: pa.DataType, item: LogicalType) -> TypeMatch:
    if not types.is_struct(arrow) or [field.name for field in arrow] != [NESTED_VALUE]:
        return _refused(f"give a struct with the one field `{NESTED_VALUE}`")
    return _worst([(f".{NESTED_VALUE}", match_types(arrow.field(0).type, item))])


def _by_field(arrow: pa.DataType, logical: LogicalType) -> TypeMatch:
    wanted = struct_fields(logical)
    if not types.is_struct(arrow):
        return _refused(f"give a struct with the fields {', '.join(wanted)}")
    found = {field.name: field.type for field in arrow}
    extra = [name for name in found if name not in wanted]
    if extra or len(found) != arrow.num_fields:
        return _refused(f"drop or rename the fields: {', '.join(extra) or 'duplicates'}")
    for name, part in wanted.items():
        # An absent alternative is never chosen; an absent member must be able to be null.
        spare = isinstance(logical, VariantType) or (
            isinstance(logical, StructType) and is_nullable(part)
        )
        if name not in found and not spare:
            return _refused(f"add the field {name}")
    return _worst((f".{name}", match_types(found[name], wanted[name])) for name in found)


def struct_fields(logical: LogicalType) -> dict[str, LogicalType]:
    """Return the fields of the struct that stands for a struct, a tuple or a variant."""
    match logical:
        case StructType(members):
            return {member.name: member.type for member in members}
        case TupleType(elements):
            return {f"_{place}": element for place, element in enumerate(elements, 1)}
        case VariantType(alternatives):
            return {variant_field(one): OptionalType(one.type) for one in alternatives}
        case other:
            raise AssertionError(f"{other} has no fields")


def _free(arrow: pa.DataType) -> TypeMatch:
    """Judge what is written into `yson`: bytes are YSON already, the rest becomes plain YSON."""
    return CHECKED if _is_binary(arrow) else _plain(arrow)


def _plain(arrow: pa.DataType) -> TypeMatch:
    scalar = types.is_integer(arrow) or types.is_floating(arrow) or types.is_boolean(arrow)
    if scalar or _is_string(arrow) or types.is_null(arrow):
        return EXACT
    if types.is_map(arrow):
        if not _is_string(arrow.key_type):
            return _refused("use string keys: a YSON map has no others", "[key]")
        return _worst([("[value]", _plain(arrow.item_type))])
    if types.is_list(arrow) or types.is_large_list(arrow):
        return _worst([("[]", _plain(arrow.value_type))])
    if types.is_struct(arrow):
        return _worst((f".{field.name}", _plain(field.type)) for field in arrow)
    return _refused("YSON has no such type: cast it to a number or a string")
