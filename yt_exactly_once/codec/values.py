"""Values of types without parts, on whole arrays: from a DataFrame's arrays to plain ones, and back.

Plain arrays hold numbers and bytes as YTsaurus counts them: dates are days, instants seconds or
microseconds, all as integers. Every value is checked. One that does not fit is an `UnfitValueError`; it is
never rounded, cut or wrapped.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from yt_exactly_once.codec.buffers import scalar

IS_NULL = "it is null, and null is not allowed here"
NOT_UTF8 = "its bytes are not valid UTF-8"
UUID_BYTES = 16

_UNITS = ("s", "ms", "us", "ns")
_UNIT_NAMES = {"s": "second", "us": "microsecond"}
_MAY_BE_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")

Bounds = tuple[int, int]
"""The first and the last integer of a type."""

_WIDTHS = ((9, 4), (18, 8), (38, 16), (76, 32))
"""Bytes of a stored decimal by its most digits: a big-endian two's complement number with its sign bit
flipped, so that bytes sort as numbers do. Arrow keeps 16 or 32 little-endian bytes."""
_SIGN = np.uint8(0x80)

_PER_BYTE = 3
_FLOOR = 2 << 20
_NUMBER_BYTES = 8


class UnfitValueError(Exception):
    """A value that the column cannot take; caught and completed with names before it leaves the codec.

    Attributes:
        row: its position in the array that was passed.
        problem: what is wrong with it; never the value itself.
        path: where inside the column, such as `.tags[]`; empty for the whole value.
    """

    def __init__(self, row: int, problem: str, path: str = "") -> None:
        super().__init__(problem)
        self.row = row
        self.problem = problem
        self.path = path

    def within(self, row: int, step: str) -> UnfitValueError:
        """Return the same finding as seen from the value that contains this one."""
        return UnfitValueError(row, self.problem, step + self.path)


@contextmanager
def located(step: str = "", *, offsets: Any = None, rows: Any = None) -> Iterator[None]:
    """Turn a finding about parts of values into one about the values.

    Args:
        step: the way into the part.
        offsets: where each list begins, if the parts are what lists hold.
        rows: which value has which part, if some have none.
    """
    try:
        yield
    except UnfitValueError as error:
        row = error.row
        if offsets is not None:
            row = int(np.searchsorted(offsets, row, side="right")) - 1
        raise error.within(row if rows is None else int(rows[row]), step) from error


def first_true(mask: pa.Array) -> int | None:
    """Return the position of the first true in a mask, nulls counting as false."""
    positions = pc.indices_nonzero(mask)
    return int(positions[0].as_py()) if len(positions) else None


def check_nulls(array: pa.Array, *, nullable: bool) -> None:
    """Check that a column that must have values has them; raise `UnfitValueError` if one is null.

    Args:
        nullable: whether their type has null.
    """
    if nullable or array.null_count == 0:
        return
    row = first_true(array.is_null())
    if row is not None:
        raise UnfitValueError(row, IS_NULL)


def converted(
    values: Any, convert: Callable[[Any], pa.Array], problem: str, refusals: Any = pa.ArrowInvalid
) -> pa.Array:
    """Convert values; raise `UnfitValueError` with the first one that is refused."""
    try:
        return convert(values)
    except refusals:
        # Not chained: Arrow's messages quote the value.
        raise UnfitValueError(_first_refused(values, convert, refusals), problem) from None


def _first_refused(values: Any, convert: Callable[[Any], Any], refusals: Any) -> int:
    """Return the position of the first value that is refused, where all of them together are."""
    first, past = 0, len(values)
    while past - first > 1:
        half = (first + past) // 2
        try:
            convert(values[first:half])
        except refusals:
            past = half
        else:
            first = half
    try:
        convert(values[first:past])
    except refusals:
        return first
    raise AssertionError("each value is convertible, and together they are not")


# From a DataFrame.


def to_integers(
    array: pa.Array, target: pa.DataType, name: str, bounds: Bounds, unit: str = ""
) -> pa.Array:
    """Convert numbers and times to integers; raise `UnfitValueError` if one is out of bounds, or finer.

    Args:
        name: of the column's type, for messages.
        unit: what the column counts: `D` for days, `s`, `us`; empty for plain numbers.
    """
    kind = array.type
    if pa.types.is_date32(kind):
        array = array.cast(pa.int32())
    elif pa.types.is_timestamp(kind) or pa.types.is_duration(kind):
        counted = pa.duration(unit) if pa.types.is_duration(kind) else pa.timestamp(unit, kind.tz)
        problem = _out_of_range(name)
        if _UNITS.index(kind.unit) > _UNITS.index(unit):
            second = _UNIT_NAMES[unit]
            problem = (
                f"it is finer than one {second}; cut it in the query: date_trunc('{second}', ...)"
            )
        array = converted(array, lambda chunk: chunk.cast(counted), problem).cast(pa.int64())
    low, high = bounds
    ends = pc.min_max(array)
    for end in (ends["min"], ends["max"]):
        if end.is_valid and not low <= int(end.as_py()) <= high:
            raise UnfitValueError(int(pc.index(array, end).as_py()), _out_of_range(name))
    return array.cast(target)


def _out_of_range(name: str) -> str:
    return f"it is outside the range of {name}"


def to_decimals(array: pa.Array, target: pa.DataType) -> pa.Array:
    """Widen decimals; raise `UnfitValueError` if a value has more digits than its own type says."""
    return converted(
        validated(array), lambda chunk: chunk.cast(target), f"it does not fit {target}"
    )


def validated(decimals: pa.Array) -> pa.Array:
    """Return decimals; raise `UnfitValueError` if one has more digits than its type, as stored NaN has."""

    def convert(chunk: pa.Array) -> pa.Array:
        chunk.validate(full=True)
        return chunk

    return converted(
        decimals, convert, f"it is NaN, infinite, or has more digits than {decimals.type}"
    )


def to_text(array: pa.Array) -> pa.Array:
    """Return the bytes of texts; raise `UnfitValueError` if a value is not valid UTF-8."""
    return require_utf8(array).cast(pa.binary())


def require_utf8(array: pa.Array) -> pa.Array:
    """Return values as strings; raise `UnfitValueError` if one is not UTF-8, which Spark's need not be."""
    return converted(array, _as_text, NOT_UTF8)


def _as_text(array: pa.Array) -> pa.Array:
    if pa.types.is_string(array.type) or pa.types.is_large_string(array.type):
        # A cast does not check them: their type says that they are valid.
        array.validate(full=True)
    return array.cast(pa.string())


def to_uuids(array: pa.Array) -> pa.Array:
    """Return the bytes of UUIDs, given as such or as text; raise `UnfitValueError` if one is none."""
    if pa.types.is_string(array.type) or pa.types.is_large_string(array.type):
        return _uuids_of_text(array.cast(pa.binary()))
    length = pc.binary_length(array)
    short = first_true(pc.not_equal(length, scalar(UUID_BYTES, length.type)))
    if short is not None:
        raise UnfitValueError(short, f"a uuid has {UUID_BYTES} bytes")
    return array.cast(pa.binary())


_UUID_TEXT = 36
_DASHES = [8, 13, 18, 23]
_DIGITS = [at for at in range(_UUID_TEXT) if at not in _DASHES]
_UUID_ORDER = [3, 2, 1, 0, 5, 4, 7, 6, *range(8, 16)]
"""The first three numbers of a text lie with their last byte first, as YQL and SPYT show them
(`TextYqlUuidFromBytes` in `yt/yt/client/complex_types/uuid_text.cpp`)."""

_HEX = np.full(256, 255, np.uint8)
for _digits in (b"0123456789abcdef", b"0123456789ABCDEF"):
    _HEX[np.frombuffer(_digits, np.uint8)] = np.arange(16)
_HEX_DIGITS = np.frombuffer(b"0123456789abcdef", np.uint8)


def _uuids_of_text(texts: pa.Array) -> pa.Array:
    length = pc.binary_length(texts)
    wrong = np.asarray(pc.fill_null(pc.not_equal(length, scalar(_UUID_TEXT, length.type)), False))
    known = pc.if_else(pa.array(wrong), None, texts)
    spelled = pc.fill_null(known, b"00000000-0000-0000-0000-000000000000")
    letters = np.frombuffer(b"".join(spelled.to_pylist()), np.uint8).reshape(-1, _UUID_TEXT)
    digits = _HEX[letters[:, _DIGITS]]
    wrong |= (digits > 15).any(axis=1) | (letters[:, _DASHES] != ord("-")).any(axis=1)  # noqa: PLR2004 - a hex digit
    if wrong.any():
        problem = "it is no uuid, such as 01234567-89ab-cdef-0123-456789abcdef"
        raise UnfitValueError(int(np.argmax(wrong)), problem)
    packed = (digits[:, ::2] << 4 | digits[:, 1::2])[:, _UUID_ORDER]
    whole = pa.FixedSizeBinaryArray.from_buffers(
        pa.binary(UUID_BYTES), len(texts), [None, pa.py_buffer(packed.tobytes())]
    )
    return pc.if_else(texts.is_valid(), whole.cast(pa.binary()), None)


def as_uuids(plain: pa.Array, asked: pa.DataType) -> pa.Array:
    """Read UUIDs, as bytes or as text; raise `UnfitValueError` if a value has another length."""
    if not pa.types.is_string(asked):
        return as_asked(plain, asked)
    stored = pc.fill_null(to_uuids(plain), bytes(UUID_BYTES))
    packed = np.frombuffer(b"".join(stored.to_pylist()), np.uint8).reshape(-1, UUID_BYTES)
    packed = packed[:, _UUID_ORDER]
    letters = np.full((len(plain), _UUID_TEXT), ord("-"), np.uint8)
    letters[:, _DIGITS[::2]] = _HEX_DIGITS[packed >> 4]
    letters[:, _DIGITS[1::2]] = _HEX_DIGITS[packed & 15]
    offsets = pa.py_buffer(np.arange(len(plain) + 1, dtype=np.int32) * _UUID_TEXT)
    texts = pa.StringArray.from_buffers(len(plain), offsets, pa.py_buffer(letters.tobytes()))
    return pc.if_else(plain.is_valid(), texts, None)


def to_json(array: pa.Array) -> pa.Array:
    """Return the bytes of JSON; raise `UnfitValueError` where the cluster would not take the commit."""
    texts = to_text(array)
    # At the commit the cluster could not name the row.
    for row, text in enumerate(texts.to_pylist()):
        if text is not None:
            _check_json(row, text)
    return texts


def _check_json(row: int, text: bytes) -> None:
    try:
        parsed = json.loads(
            text.decode(), parse_float=_in_range, parse_int=_in_range, parse_constant=no_constant
        )
        if _MAY_BE_SURROGATE.search(text):
            json.dumps(parsed, ensure_ascii=False).encode()
    except OverflowError:
        raise UnfitValueError(row, "it has a number outside the range of double") from None
    except UnicodeEncodeError:
        raise UnfitValueError(row, "it has half of a surrogate pair") from None
    except (ValueError, RecursionError):
        # Not chained: the parser's error quotes the text.
        raise UnfitValueError(row, "it is not valid JSON") from None


def no_constant(name: str) -> None:
    """Refuse NaN and the infinities with `ValueError`."""
    raise ValueError(f"JSON has no {name}")


def _in_range(number: str) -> float:
    value = float(number)
    if math.isinf(value):
        raise OverflowError
    return value


def stored_width(precision: int) -> int:
    """Return how many bytes a decimal of that precision takes."""
    return next(width for most, width in _WIDTHS if precision <= most)


def to_stored(array: pa.Array) -> pa.Array:
    """Encode a decimal array as YTsaurus stores it; nulls become arbitrary bytes."""
    width = stored_width(array.type.precision)
    own = array.type.byte_width
    raw = np.frombuffer(array.buffers()[1], np.uint8, len(array) * own, array.offset * own)
    # Little-endian: the low bytes lead. The high ones that are cut only repeat the sign.
    stored = raw.reshape(-1, own)[:, width - 1 :: -1].copy()
    stored[:, 0] ^= _SIGN
    return pa.Array.from_buffers(pa.binary(width), len(array), [None, pa.py_buffer(stored)])


# To a DataFrame. Each takes a plain array and the Arrow type asked for.


def as_text(plain: pa.Array, asked: pa.DataType) -> pa.Array:
    """Read strings; asked for as text, they must be UTF-8."""
    return require_utf8(plain) if pa.types.is_string(asked) else as_asked(plain, asked)


def as_bytes(plain: pa.Array, asked: pa.DataType) -> pa.Array:
    """Read bytes; asked for as text, they pass unchecked, as they do through Spark's strings."""
    return plain.view(asked)


def as_asked(plain: pa.Array, asked: pa.DataType, unit: str = "") -> pa.Array:
    """Read anything else; what counts in a unit counts days or microseconds in Arrow."""

    def convert(chunk: pa.Array) -> pa.Array:
        if unit:
            chunk = chunk.cast(pa.int32() if unit == "D" else pa.int64())
        if unit == "s":
            chunk = chunk.cast(pa.timestamp("s", asked.tz))
        return chunk.cast(asked)

    return converted(plain, convert, f"it does not fit {asked}")


def from_stored(array: pa.Array, target: pa.DataType) -> pa.Array:
    """Decode stored bytes, nulls too; raise `UnfitValueError` for NaN, the infinities, another width."""
    width = stored_width(target.precision)
    problem = f"a {target} has {width} bytes"
    stored = converted(array, lambda chunk: chunk.cast(pa.binary(width)), problem)
    valid, data = stored.buffers()
    raw = np.frombuffer(data, np.uint8, len(array) * width)
    wide = pa.py_buffer(_widened(raw.reshape(-1, width), target))
    return validated(pa.Array.from_buffers(target, len(array), [valid, wide]))


def _widened(stored: npt.NDArray[np.uint8], target: pa.DataType) -> npt.NDArray[np.uint8]:
    """Flip the sign back, turn the bytes round and repeat the sign into the bytes above."""
    width = stored.shape[1]
    wide = np.empty((len(stored), target.byte_width), np.uint8)
    wide[:, :width] = stored[:, ::-1]
    wide[:, width - 1] ^= _SIGN
    wide[:, width:] = np.where(wide[:, width - 1 : width] & _SIGN, np.uint8(0xFF), np.uint8(0))
    return wide


class Room:
    """How much memory may be taken for nulls in rows of some bytes.

    Most bytes of YSON become fewer bytes of Arrow, or about three times as many: `[1;1;1]`. Only what is
    written briefly and takes the width of its type can become more: nulls of wide structs, and columns that
    rows lack.
    """

    def __init__(self, size: int) -> None:
        self._left = _FLOOR + _PER_BYTE * size

    def take(self, nulls: int, kind: pa.DataType) -> None:
        """Count nulls of a type; raise `UnfitValueError` if nothing is left for them."""
        self._left -= nulls * width(kind)
        if self._left < 0:
            raise UnfitValueError(
                0, "the rows lack columns, or parts of it are null, and take too much memory"
            )


def width(kind: pa.DataType) -> int:
    """Return how many bytes of Arrow a null may take."""
    if pa.types.is_struct(kind):
        return 1 + sum(width(field.type) for field in kind)
    return _NUMBER_BYTES + 1
