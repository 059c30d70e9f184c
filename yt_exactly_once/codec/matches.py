"""Whether values of an Arrow type may be written into a column: exactly, widened, checked, or not at all.

A match compares types, never values. It allows nothing that would change a value. Each function here is
the rule for one family of column types; `scalars` says which types have which rule.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from enum import IntEnum

import pyarrow as pa

types = pa.types


class Fit(IntEnum):
    """How a column of a DataFrame fits a column of a table; a larger value asks for more care."""

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
    """The result for a pair of types.

    Attributes:
        remedy: what to do about a refusal, `{x}` standing for the column; empty otherwise.
        path: where inside the column the refusal is, such as `.tags[]`; empty for the whole.
    """

    fit: Fit
    remedy: str = ""
    path: str = ""


EXACT = TypeMatch(Fit.EXACT)
WIDENING = TypeMatch(Fit.WIDENING)
CHECKED = TypeMatch(Fit.CHECKED)

_UINT64_DIGITS = 20
_UUID_BYTES = 16
_EXACT_BITS = {32: 24, 64: 53}
"""Whole numbers of so many bits are exact in a floating-point number of 32 or 64 bits."""


def refused(remedy: str, path: str = "") -> TypeMatch:
    """Return a refusal."""
    return TypeMatch(Fit.REFUSED, remedy, path)


def worst(matches: Iterable[tuple[str, TypeMatch]]) -> TypeMatch:
    """Return the most demanding match, with the path to the part it is about."""
    found = EXACT
    for step, match in matches:
        if match.fit > found.fit:
            found = replace(match, path=step + match.path)
    return found


def is_binary(arrow: pa.DataType) -> bool:
    """Check for bytes."""
    return bool(types.is_binary(arrow) or types.is_large_binary(arrow))


def is_string(arrow: pa.DataType) -> bool:
    """Check for texts."""
    return bool(types.is_string(arrow) or types.is_large_string(arrow))


def is_list(arrow: pa.DataType) -> bool:
    """Check for lists, which maps are not."""
    return bool(types.is_list(arrow) or types.is_large_list(arrow))


def match_integer(arrow: pa.DataType, integer: pa.DataType) -> TypeMatch:
    """Match a column of integers of the size and sign of an Arrow type."""
    unsigned = types.is_unsigned_integer(integer)
    bits = int(integer.bit_width)
    narrowing = refused(
        f"values may not fit {integer}: cast to a narrower type, or widen the column"
    )
    if unsigned and types.is_decimal(arrow) and arrow.scale == 0:
        # Spark holds a uint64 as a decimal: it has no unsigned types.
        fits = arrow.precision <= _UINT64_DIGITS and types.is_uint64(integer)
        return CHECKED if fits else narrowing
    if not types.is_integer(arrow):
        return refused("cast it to a whole number in the query, or change the column's type")
    given = int(arrow.bit_width)
    if types.is_unsigned_integer(arrow) == unsigned:
        if given > bits:
            return narrowing
        return EXACT if given == bits else WIDENING
    if not unsigned:
        return WIDENING if given < bits else narrowing
    # A source reads an unsigned column into the next wider signed type, and what it read may be written.
    return CHECKED if given <= min(2 * bits, 64) else narrowing


def match_floating(arrow: pa.DataType, floating: pa.DataType) -> TypeMatch:
    """Match a column of floating-point numbers of the size of an Arrow type."""
    bits = int(floating.bit_width)
    if types.is_floating(arrow):
        if arrow.bit_width > bits:
            return refused("values may lose digits: cast it, CAST({x} AS FLOAT), or use double")
        return EXACT if arrow.bit_width == bits else WIDENING
    if types.is_integer(arrow) and arrow.bit_width <= _EXACT_BITS[bits]:
        return WIDENING
    return refused(f"cast it in the query: CAST({{x}} AS {str(floating).upper()})")


def only(
    fits: Callable[[pa.DataType], bool], match: TypeMatch, remedy: str
) -> Callable[[pa.DataType], TypeMatch]:
    """Return the rule of a type that takes columns of one Arrow type alone."""
    return lambda arrow: match if fits(arrow) else refused(remedy)


def match_bytes(arrow: pa.DataType, text: TypeMatch, binary: TypeMatch) -> TypeMatch:
    """Match a column of strings, given how texts and how bytes match it."""
    if is_string(arrow):
        return text
    return binary if is_binary(arrow) else refused("cast it in the query: CAST({x} AS STRING)")


def match_uuid(arrow: pa.DataType) -> TypeMatch:
    """Match a column of UUIDs."""
    if types.is_fixed_size_binary(arrow) and arrow.byte_width == _UUID_BYTES:
        return EXACT
    fits = is_binary(arrow) or is_string(arrow)
    return CHECKED if fits else refused("give the 16 bytes as binary, or the text of the uuid")


def match_instant(arrow: pa.DataType) -> TypeMatch:
    """Match a column of instants."""
    if not types.is_timestamp(arrow):
        return refused("cast it in the query: CAST({x} AS TIMESTAMP_LTZ), or timestamp_micros({x})")
    if arrow.tz is None:
        return refused("a local time names no instant: cast it, CAST({x} AS TIMESTAMP_LTZ)")
    return CHECKED


def match_decimal(arrow: pa.DataType, decimal: pa.DataType) -> TypeMatch:
    """Match a column of decimals of the precision and scale of an Arrow type."""
    if types.is_decimal(arrow) and arrow.scale == decimal.scale:
        if arrow.precision == decimal.precision:
            return EXACT
        if arrow.precision < decimal.precision:
            return WIDENING
    sql = f"DECIMAL({decimal.precision}, {decimal.scale})"
    return refused(f"cast it in the query: CAST({{x}} AS {sql})")


def match_any(arrow: pa.DataType) -> TypeMatch:
    """Match a `yson` column: bytes are YSON already, everything else becomes plain YSON."""
    return CHECKED if is_binary(arrow) else _match_plain(arrow)


def _match_plain(arrow: pa.DataType) -> TypeMatch:
    scalar = types.is_integer(arrow) or types.is_floating(arrow) or types.is_boolean(arrow)
    if scalar or is_string(arrow) or types.is_null(arrow):
        return EXACT
    if types.is_map(arrow):
        if not is_string(arrow.key_type):
            return refused("use string keys: a YSON map has no others", "[key]")
        return worst([("[value]", _match_plain(arrow.item_type))])
    if is_list(arrow):
        return worst([("[]", _match_plain(arrow.value_type))])
    if types.is_struct(arrow):
        members = {f".{field.name}": _match_plain(field.type) for field in arrow}
        is_clear = len(members) == arrow.num_fields
        return (
            worst(members.items()) if is_clear else refused("drop or rename the fields: duplicates")
        )
    return refused("YSON has no such type: cast it to a number or a string")
