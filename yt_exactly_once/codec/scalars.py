"""From the Arrow arrays of a frame to the plain arrays YTsaurus counts in, every value checked.

Each logical type without parts has one plain Arrow type: dates are days, instants microseconds or
seconds, all as integers. The work is done on whole arrays; a value that does not fit is never
rounded, cut or wrapped, it is an `UnfitValueError`.
"""

from __future__ import annotations

import json
import math
import re
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from yt_exactly_once.codec.buffers import scalar
from yt_exactly_once.codec.types import (
    INTEGER_RANGES,
    TEXT,
    DecimalType,
    LogicalType,
    SimpleType,
    is_nullable,
)

if TYPE_CHECKING:
    from collections.abc import Callable

_PLAIN = {
    **{
        f"{sign}int{bits}": getattr(pa, f"{sign}int{bits}")()
        for sign in ("", "u")
        for bits in (8, 16, 32, 64)
    },
    "float": pa.float32(),
    "double": pa.float64(),
    "bool": pa.bool_(),
    "date": pa.uint32(),
    "datetime": pa.uint32(),
    "timestamp": pa.uint64(),
    "interval": pa.int64(),
    "date32": pa.int32(),
    "datetime64": pa.int64(),
    "timestamp64": pa.int64(),
    "interval64": pa.int64(),
    "null": pa.null(),
    "void": pa.null(),
}

IS_NULL = "it is null, and null is not allowed here"
NOT_UTF8 = "its bytes are not valid UTF-8"
TICKS_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
SECONDS = ("datetime", "datetime64")
UUID_BYTES = 16
_WIDEST_DECIMAL128 = 38
_MAY_BE_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


class UnfitValueError(Exception):
    """A value that the column cannot take; caught and completed with names before it leaves.

    Attributes:
        row: its position in the array that was handed over.
        problem: what is wrong with it; never the value itself.
        place: where inside the column, such as `.tags[]`; empty for the whole value.
    """

    def __init__(self, row: int, problem: str, place: str = "") -> None:
        super().__init__(problem)
        self.row = row
        self.problem = problem
        self.place = place

    def within(self, row: int, step: str) -> UnfitValueError:
        """Return the same finding as seen from the value that holds this one."""
        return UnfitValueError(row, self.problem, step + self.place)


def plain_type(logical: SimpleType | DecimalType) -> pa.DataType:
    """Return the Arrow type in which values of the logical type travel."""
    if isinstance(logical, DecimalType):
        make = pa.decimal128 if logical.precision <= _WIDEST_DECIMAL128 else pa.decimal256
        return make(logical.precision, logical.scale)
    return _PLAIN.get(logical.name, pa.binary())


def to_plain(array: pa.Array, logical: SimpleType | DecimalType) -> pa.Array:
    """Turn a frame's array into the plain array of the logical type; nulls stay null.

    Raises:
        UnfitValueError: a value has no equal in the logical type.
    """
    target = plain_type(logical)
    if pa.types.is_null(array.type):
        return pa.nulls(len(array), target)
    if isinstance(logical, DecimalType):
        return _decimals(array, target)
    name = logical.name
    if name in INTEGER_RANGES:
        return _integers(_ticks(array, name), name, target)
    if name in TEXT:
        texts = _text(array)
        if name == "json":
            _require_json(texts)
        return texts
    if name == "uuid":
        return _uuids(array)
    return array.cast(target)


def first_true(mask: pa.Array) -> int | None:
    """Return the position of the first true in a mask, nulls counting as false."""
    places = pc.indices_nonzero(mask)
    return int(places[0].as_py()) if len(places) else None


def check_nulls(array: pa.Array, logical: LogicalType, whole: pa.Array | None = None) -> None:
    """Check that a column that must have values has them.

    Args:
        array: the values.
        logical: their type.
        whole: the composite values they are parts of; a part may lack where the whole does.

    Raises:
        UnfitValueError: a null where the logical type has none.
    """
    if array.null_count == 0 or is_nullable(logical):
        return
    missing = array.is_null()
    row = first_true(missing if whole is None else pc.and_(missing, whole.is_valid()))
    if row is not None:
        raise UnfitValueError(row, IS_NULL)


def converted(array: pa.Array, convert: Callable[[pa.Array], pa.Array], problem: str) -> pa.Array:
    """Convert an array; where Arrow refuses, find the first value it refuses.

    Raises:
        UnfitValueError: the conversion fails for some value.
    """
    try:
        return convert(array)
    except pa.ArrowInvalid:
        # Not chained: Arrow's messages quote the value.
        raise UnfitValueError(_first_refused(array, convert), problem) from None


def _first_refused(array: pa.Array, convert: Callable[[pa.Array], pa.Array]) -> int:
    for row in range(len(array)):
        try:
            convert(array.slice(row, 1))
        except pa.ArrowInvalid:
            return row
    raise AssertionError("each value is convertible, and together they are not")


def _ticks(array: pa.Array, name: str) -> pa.Array:
    """Count dates, instants and spans in the unit of the logical type."""
    kind = array.type
    if pa.types.is_date32(kind):
        return array.cast(pa.int32())
    if not (pa.types.is_timestamp(kind) or pa.types.is_duration(kind)):
        return array
    have = TICKS_PER_SECOND[kind.unit]
    want = TICKS_PER_SECOND["s" if name in SECONDS else "us"]
    ticks = array.cast(pa.int64())
    if have == want:
        return ticks
    if have > want:
        return _coarser(ticks, have // want, name)
    factor = want // have
    _check_range(ticks, name, factor)
    return pc.multiply(ticks, scalar(factor, pa.int64()))


def _coarser(ticks: pa.Array, divisor: int, name: str) -> pa.Array:
    step = scalar(divisor, pa.int64())
    whole = pc.divide(ticks, step)
    cut = first_true(pc.not_equal(pc.multiply(whole, step), ticks))
    if cut is not None:
        unit = "second" if name in SECONDS else "microsecond"
        raise UnfitValueError(
            cut, f"it is finer than one {unit}; cut it in the query: date_trunc('{unit}', ...)"
        )
    return whole


def _integers(array: pa.Array, name: str, target: pa.DataType) -> pa.Array:
    _check_range(array, name)
    return array.cast(target)


def _check_range(array: pa.Array, name: str, factor: int = 1) -> None:
    """Check integers, and whole decimals, that count `factor` units each."""
    low, high = INTEGER_RANGES[name]
    ends = pc.min_max(array)
    for end in (ends["min"], ends["max"]):
        if end.is_valid and not low <= int(end.as_py()) * factor <= high:
            row = int(pc.index(array, end).as_py())
            raise UnfitValueError(row, f"it is outside the range of {name}")


def _decimals(array: pa.Array, target: pa.DataType) -> pa.Array:
    return converted(validated(array), lambda part: part.cast(target), f"it does not fit {target}")


def validated(decimals: pa.Array) -> pa.Array:
    """Return decimals that have no more digits than their type says.

    Raises:
        UnfitValueError: a value has more; YTsaurus means NaN and the infinities by the largest.
    """

    def convert(part: pa.Array) -> pa.Array:
        part.validate(full=True)
        return part

    return converted(
        decimals, convert, f"it is NaN, infinite, or has more digits than {decimals.type}"
    )


def _text(array: pa.Array) -> pa.Array:
    require_utf8(array)
    return array.cast(pa.binary())


def _require_json(texts: pa.Array) -> None:
    """Check as the cluster will when it commits; by then it could no longer say which row it was."""
    for row, text in enumerate(texts.to_pylist()):
        if text is None:
            continue
        try:
            parsed = json.loads(
                text.decode(),
                parse_float=_in_range,
                parse_int=_in_range,
                parse_constant=_no_constant,
            )
        except OverflowError:
            raise UnfitValueError(row, "it has a number outside the range of double") from None
        except (ValueError, RecursionError):
            # Not chained: the parser's error quotes the text.
            raise UnfitValueError(row, "it is not valid JSON") from None
        if _MAY_BE_SURROGATE.search(text) and not _is_text(parsed):
            raise UnfitValueError(row, "it has half of a surrogate pair")


def _no_constant(name: str) -> None:
    raise ValueError(f"JSON has no {name}")


def _in_range(number: str) -> float:
    value = float(number)
    if math.isinf(value):
        raise OverflowError
    return value


def _is_text(parsed: Any) -> bool:
    try:
        json.dumps(parsed, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True


def require_utf8(array: pa.Array) -> pa.Array:
    """Return values as strings.

    Raises:
        UnfitValueError: a value is not valid UTF-8, as Spark's strings need not be either.
    """
    return converted(array, _as_text, NOT_UTF8)


def _as_text(array: pa.Array) -> pa.Array:
    if pa.types.is_string(array.type) or pa.types.is_large_string(array.type):
        # A cast takes them for what they say they are.
        array.validate(full=True)
    return array.cast(pa.string())


def _uuids(array: pa.Array) -> pa.Array:
    length = pc.binary_length(array)
    short = first_true(pc.not_equal(length, scalar(UUID_BYTES, length.type)))
    if short is not None:
        raise UnfitValueError(short, f"a uuid has {UUID_BYTES} bytes")
    return array.cast(pa.binary())
