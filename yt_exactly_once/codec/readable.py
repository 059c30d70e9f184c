"""Values as JSON, for people to read and to correct, and back by the Arrow type of their column.

Binary values are base64, decimals, dates and instants texts, intervals counts of microseconds, and maps lists
of pairs. JSON lacks some values: bytes that are no UTF-8 are spelled as escapes, and years may have five
digits. These cannot be read. What is not corrected of a value is taken from the old one.
"""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa

from yt_exactly_once.codec.matches import is_binary, is_list, is_string

types = pa.types

Json = Any

_NOT_FINITE = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}
_SPELLED = re.compile(r"\\x[0-9a-f]{2}")
_BASE64 = re.compile(r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?")


def shown(one: pa.Array) -> Json:  # noqa: PLR0911 - a case per kind
    """Return the only value of an array as JSON has it; raise `TypeError` if no DataFrame has its type."""
    kind = one.type
    if one.null_count:
        return None
    if types.is_map(kind):
        return [[shown(child) for child in pair.flatten()] for pair in _items(one)]
    if is_list(kind):
        return [shown(item) for item in _items(one)]
    if types.is_struct(kind):
        return dict(zip(_fields(kind), map(shown, one.flatten()), strict=True))
    if is_string(kind):
        spelled: bytes = one.view(bare(kind))[0].as_py()
        return spelled.decode("utf-8", "backslashreplace")
    if _is_bytes(kind):
        return base64.b64encode(one[0].as_py()).decode()
    if types.is_duration(kind):
        return one[0].value
    if _is_text(kind):
        return one.cast(pa.string())[0].as_py()
    value = one[0].as_py()
    if not isinstance(value, bool | int | float):
        raise TypeError(f"DataFrames have no {kind}")
    # JSON has no numbers that are not finite.
    return value if not isinstance(value, float) or math.isfinite(value) else str(value)


def parsed(value: Json, kind: pa.DataType, old: pa.Array | None = None) -> pa.Array:
    """Return a value as an array; raise `ValueError` if it is not of the type.

    Args:
        old: what was shown and then corrected, if it is of the same type.
    """
    try:
        return pa.array([_plain(value, kind, old)], bare(kind)).view(kind)
    except (pa.ArrowException, ArithmeticError, TypeError, LookupError, ValueError) as error:
        raise ValueError(f"the value is no {kind}") from error


def may_be_bytes(value: Json) -> bool:
    """Check whether a value holds a text that may be the base64, or the spelling, of bytes."""
    if isinstance(value, str):
        return bool(_SPELLED.search(value) or (value and _BASE64.fullmatch(value)))
    children = (
        value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    )
    return any(map(may_be_bytes, children))


def bare(kind: pa.DataType) -> pa.DataType:  # noqa: PLR0911 - a case per kind
    """Return a type of the same layout that any bytes are valid in: for texts, decimals, dates and times."""
    if types.is_map(kind):
        children = kind.key_field, kind.item_field
        return pa.map_(*(child.with_type(bare(child.type)) for child in children))
    if is_list(kind):
        make = pa.large_list if types.is_large_list(kind) else pa.list_
        return make(kind.value_field.with_type(bare(kind.value_type)))
    if types.is_struct(kind):
        return pa.struct([child.with_type(bare(child.type)) for child in kind])
    if is_string(kind):
        return pa.large_binary() if types.is_large_string(kind) else pa.binary()
    if types.is_timestamp(kind) or types.is_duration(kind):
        return pa.int64()
    if types.is_decimal(kind):
        return pa.binary(kind.byte_width)
    return pa.int32() if types.is_date32(kind) else kind


def _plain(value: Json, kind: pa.DataType, old: pa.Array | None) -> Any:
    """Return a value as Python has it in the type `bare(kind)`."""
    if value is None:
        return None
    if old is not None and value == shown(old):
        return old.view(bare(kind))[0].as_py()
    if types.is_map(kind):
        return [
            tuple(map(_plain, _of(pair, list), (kind.key_type, kind.item_type), _children(was)))
            for pair, was in _with_old(value, old)
        ]
    if is_list(kind):
        return [_plain(item, kind.value_type, was) for item, was in _with_old(value, old)]
    if types.is_struct(kind):
        fields = _fields(kind)
        was = dict(zip(fields, _children(old, len(fields)), strict=True))
        return {name: _plain(child, fields[name], was[name]) for name, child in value.items()}
    return _leaf(value, kind)


def _leaf(value: Json, kind: pa.DataType) -> Any:  # noqa: PLR0911 - a case per kind
    if types.is_boolean(kind):
        return _of(value, bool)
    if types.is_integer(kind) or types.is_duration(kind):
        return _of(value, int)
    if types.is_floating(kind):
        return _NOT_FINITE[value] if isinstance(value, str) else float(_of(value, int, float))
    if types.is_decimal(kind):
        number = Decimal(str(_of(value, str, int, float)))
        return pa.array([number], kind).view(bare(kind))[0].as_py()
    text: str = _of(value, str)
    if is_string(kind):
        if _SPELLED.search(text):
            raise ValueError("it spells bytes")
        return text.encode()
    if _is_bytes(kind):
        return base64.b64decode(text, validate=True)
    return pa.scalar(text).cast(kind).value


def _of(value: Json, *classes: type) -> Any:
    # A truth value is a number to Python.
    if type(value) not in classes:
        raise TypeError(value)
    return value


def _with_old(value: Json, old: pa.Array | None) -> Iterator[tuple[Json, pa.Array | None]]:
    """Yield the items of a list, each with the old one at its position."""
    before = [] if old is None or old.null_count else _items(old)
    for position, item in enumerate(_of(value, list)):
        yield item, before[position] if position < len(before) else None


def _items(one: pa.Array) -> list[pa.Array]:
    """Return the items of the only list of an array, or the pairs of a map."""
    if types.is_map(one.type):
        one = one.view(pa.list_(pa.struct([one.type.key_field, one.type.item_field])))
    items = one.flatten()
    return [items.slice(position, 1) for position in range(len(items))]


def _children(one: pa.Array | None, count: int = 2) -> Sequence[pa.Array | None]:
    """Return the fields of the only struct of an array."""
    return [None] * count if one is None or one.null_count else one.flatten()


def _fields(kind: pa.DataType) -> dict[str, pa.DataType]:
    return {field.name: field.type for field in kind}


def _is_bytes(kind: pa.DataType) -> bool:
    return is_binary(kind) or bool(types.is_fixed_size_binary(kind))


def _is_text(kind: pa.DataType) -> bool:
    """Check for values that Python may lack, and that Arrow spells."""
    return bool(types.is_date(kind) or types.is_timestamp(kind) or types.is_decimal(kind))
