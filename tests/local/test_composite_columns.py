"""Composite columns by vector: what is stored at once is what a parser and the checks would store."""

from struct import pack

import pyarrow as pa
import pytest
from yt import yson

from tests.kinds import RAW_VALUES, decimal, dict_of, listed, optional, struct, tuple_of
from tests.property.random_tables import SIMPLE
from yt_exactly_once.local.errors import YtError
from yt_exactly_once.local.tables import composite_columns, yson_tokens
from yt_exactly_once.local.tables.encoding import encode_column
from yt_exactly_once.local.tables.schema import parse_schema

DECIMAL = decimal(5, 2)
STRUCT = struct(é="int64", b=optional("string"))
LEAVES = [*SIMPLE, "null", "yson", "tz_date", optional("int64"), DECIMAL]
SHAPES = [
    listed("int64"),
    listed(STRUCT),
    listed(listed(optional("int64"))),
    tuple_of("int64", optional("string")),
    dict_of("int64", optional("string")),
    struct(s=optional(STRUCT)),
    struct(),
    {"type_name": "variant", "members": STRUCT["members"]},
    {"type_name": "tagged", "tag": "t", "item": STRUCT},
    optional(optional("int64")),
    optional(optional(STRUCT)),
]
SCALARS = [
    *(yson.dumps(value, yson_format="binary") for value in (
        0, 1, -1, 127, 128, 255, 256, 65_536, -(2**31), 2**31, 2**40, -(2**63), 2**63 - 1,
        yson.YsonUint64(0), yson.YsonUint64(255), yson.YsonUint64(2**32), yson.YsonUint64(2**64 - 1),
        0.0, 1.5, -3.5e38, 3.5e38, float("inf"), True, False, None, b"", b"x" * 200, b"\xff",
        "é".encode(), b"{}", b"0123456789abcdef", b"\x80\x01\x86\xa0", b"\x7f\xff\xff\xff",
    )),
    b"\x03" + pack("<d", float("nan")),
    # Varints that are longer than they need be, and longer than they may be.
    b"\x02\x80\x00", b"\x06\x81\x80\x00", b"\x02" + b"\xff" * 9 + b"\x02", b"\x02" + b"\xff" * 10,
    # Lengths: negative ones, and those that reach over the end.
    b"\x01\x01", b"\x01\x04x", b"\x01" + b"\xff" * 9 + b"\x01",
    # Text, attributes and spaces are YSON too.
    b"1", b"1u", b"1.5", b"%true", b'"x"', b"x", b"<a=1>1", b" \x02\x02", b"{}", b"[]", b"", b"?",
]  # fmt: skip


def column_of(logical):
    return parse_schema([{"name": "c", "type_v3": logical}]).columns[0]


def one_by_one(column, blob):
    """Return what is stored of a value that is parsed and checked, None if it is refused."""
    try:
        parsed = yson.loads(blob, encoding=None, always_create_attributes=False)
        (found,), error = encode_column(column, [parsed])
    except (yson.YsonError, YtError, ValueError, TypeError):
        return None
    return None if error else found


def assert_same(logical, blobs):
    """Compare single values, and count those that a vector has taken."""
    column = column_of(logical)
    taken = 0
    for blob in blobs:
        found = composite_columns.stored(pa.array([blob], pa.binary()), column.type_v3)
        if found is not None:
            assert found.array.to_pylist() == [one_by_one(column, blob)], blob
            taken += 1
    return taken


@pytest.mark.parametrize("leaf", LEAVES, ids=str)
def test_scalar_inside_is_stored_as_the_checks_store_it(leaf):
    """Whatever a client sends for an item: a value of another type, out of range, or no value at all."""
    taken = assert_same(listed(leaf), [b"[" + s + b";]" for s in SCALARS])
    assert (taken > 0) == (leaf != "yson")


@pytest.mark.parametrize("logical", SHAPES, ids=str)
def test_list_of_another_shape_is_stored_as_the_checks_store_it(logical):
    """Items too many or too few, nulls, and separators that are missing."""
    taken = assert_same(logical, RAW_VALUES)
    assert (taken > 0) == ("variant" not in str(logical))


def test_values_of_many_lengths_keep_their_order_and_their_nulls():
    """More values than are read side by side, from an array that begins and ends somewhere else."""
    column = column_of(optional(listed(STRUCT)))
    count = 9_000
    given = [
        None if n % 7 == 0 else [[m, None if m % 3 else b"x" * (m * n % 300)] for m in range(n % 5)]
        for n in range(count)
    ]
    blobs = [None if v is None else yson.dumps(v, yson_format="binary") for v in given]
    array = pa.array([b"[", *blobs, b"]"], pa.binary())[1:-1]
    found = composite_columns.stored(array, column.type_v3)
    expected, _ = encode_column(column, given)
    assert found.array.to_pylist() == expected
    assert found[5:9].to_pylist() == [
        None if blob is None else yson.loads(blob, encoding=None) for blob in expected[5:9]
    ]


def test_few_very_long_values_are_left_to_the_parser():
    """A step costs the same for one value as for a thousand."""
    column = column_of(listed("int64"))
    lengths = {yson_tokens.LONG - 3: True, 10 * yson_tokens.LONG: False}
    for length, is_taken in lengths.items():
        array = pa.array([yson.dumps(list(range(length)), yson_format="binary")], pa.binary())
        assert (composite_columns.stored(array, column.type_v3) is not None) == is_taken
