"""Composite values as the nested Arrow arrays of a request, of which the proxy makes the YSON itself.

`TArrayCompositeVisitor` in the server's `arrow_parser.cpp` writes lists, structs and maps by position, as
the cluster stores them, and a null as an entity. Newer versions compare the types, and find members by name;
older ones take them in their order. So structs have all members, in the order of the type. Tuples, variants,
decimals, YSON and an optional inside an optional are no such arrays in some version.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import pyarrow as pa

from yt_exactly_once.codec import types, weights, yson_fragments
from yt_exactly_once.codec.buffers import list_array, struct_array, to_numpy
from yt_exactly_once.codec.matches import is_list
from yt_exactly_once.codec.scalars import Scalar
from yt_exactly_once.codec.values import check_nulls, located

LONGEST_CARRIED = 1 << 20
"""Bytes of YSON; longer values are encoded here, as their length must be known exactly."""

_OF_A_LEAF, _OF_A_NODE = 4, 3
"""Most bytes of YSON for a byte of Arrow: a number of one byte, and brackets and separators around it."""


@lru_cache(maxsize=1024)
def carrier(logical: types.LogicalType) -> pa.DataType | None:
    """Return the Arrow type of a column of composite values in a request; `None` if it must be YSON."""
    return None if types.scalar_of(logical) else _carrier(logical)


def _carrier(logical: types.LogicalType) -> pa.DataType | None:
    match types.required(logical):
        case Scalar() as scalar:
            return scalar.plain if _is_carried(scalar) else None
        case types.ListType(item):
            kind = _carrier(item)
            return kind and pa.list_(kind)
        case types.DictType(key, value):
            kinds = _carrier(key), _carrier(value)
            return pa.map_(*kinds) if all(kinds) else None
        case types.StructType(members, named=True):
            fields = [(member.name, _carrier(member.type)) for member in members]
            return pa.struct(fields) if fields and all(kind for _, kind in fields) else None
        case _:
            return None


def _is_carried(scalar: Scalar) -> bool:
    kind = scalar.plain
    is_plain = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)
    is_known = is_plain or pa.types.is_binary(kind)
    return bool(is_known and not scalar.holds_yson and scalar.arrow_obstacle is None)


def is_carried(array: pa.Array, logical: types.LogicalType) -> bool:
    """Return whether values of a column are sent as `carrier` says: all are short, and have all members."""
    kind = carrier(logical)
    return (
        kind is not None
        and _has_all(array.type, kind)
        and longest(array, logical) <= LONGEST_CARRIED
    )


def longest(array: pa.Array, logical: types.LogicalType) -> int:
    """Return a bound for the bytes of YSON that a value takes."""
    rows = pa.RecordBatch.from_arrays([array], names=[""])
    most = int(np.diff(weights.weights(rows), prepend=0).max(initial=0))
    return most * (_OF_A_LEAF + _OF_A_NODE * _nodes(_carrier(logical)))


def _nodes(kind: pa.DataType) -> int:
    return 1 + sum(_nodes(kind.field(position).type) for position in range(kind.num_fields))


def _has_all(given: pa.DataType, kind: pa.DataType) -> bool:
    """Return whether Arrow tells how long values are: no member is absent, or null, or a variant of Spark."""
    if pa.types.is_struct(kind):
        positions = (
            [given.get_field_index(field.name) for field in kind]
            if pa.types.is_struct(given)
            else [-1]
        )
        return min(positions) >= 0 and all(
            _has_all(given.field(position).type, field.type)
            for position, field in zip(positions, kind, strict=True)
        )
    if pa.types.is_map(kind):
        return bool(
            pa.types.is_map(given)
            and _has_all(given.key_type, kind.key_type)
            and _has_all(given.item_type, kind.item_type)
        )
    if pa.types.is_list(kind):
        return is_list(given) and _has_all(given.value_type, kind.value_type)
    return not (pa.types.is_null(given) or pa.types.is_nested(given))


def carried(array: pa.Array, logical: types.LogicalType) -> pa.Array:
    """Return values as `carrier` says; raise `UnfitValueError` for one that its type has not."""
    check_nulls(array, nullable=types.is_nullable(logical))
    bare = types.required(logical)
    if isinstance(bare, Scalar):
        return bare.to_plain(array)
    if array.null_count == 0:
        return _carried(array, bare, np.zeros(len(array), bool))
    valid = array.is_valid()
    null = to_numpy(valid.cast(pa.uint8())) == 0
    with located(rows=np.flatnonzero(~null)):
        return _carried(array.filter(valid), bare, null)


def _carried(
    present: pa.Array, bare: types.LogicalType, null: np.ndarray[tuple[int], np.dtype[np.bool_]]
) -> pa.Array:
    """Return the present values of an array, and its nulls."""
    kind = _carrier(bare)
    assert kind is not None
    match bare:
        case types.ListType(item):
            offsets, held = yson_fragments.held(present)
            with located("[]", offsets=offsets):
                items = carried(present.values[held], item)
            return list_array(kind, null, np.diff(offsets), items)
        case types.DictType(key, value):
            offsets, held = yson_fragments.held(present)
            with located("[key]", offsets=offsets):
                keys = carried(present.keys[held], key)
            with located("[value]", offsets=offsets):
                values = carried(present.items[held], value)
            pairs = pa.struct([kind.key_field, kind.item_field])
            items = pa.Array.from_buffers(pairs, len(keys), [None], children=[keys, values])
            return list_array(kind, null, np.diff(offsets), items)
        case types.StructType(members):
            children = []
            for member in members:
                with located(f".{member.name}"):
                    position = present.type.get_field_index(member.name)
                    children.append(carried(present.field(position), member.type))
            return struct_array(kind, null, children)
        case other:
            raise AssertionError(f"{other} is no nested array")
