"""Composite columns by vector: the bytes and the errors are those of the values one by one."""

import sys
from struct import pack

import pyarrow as pa
import pytest
import yt.yson
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.arrow_streams import stream_of
from tests.kinds import RAW_VALUES, decimal, dict_of, listed, optional, struct, tuple_of
from tests.property.random_tables import ANY, SIMPLE, types, values
from yt_exactly_once.codec.arrow_types import arrow_type_of
from yt_exactly_once.codec.types import VariantType, render_type, scalar_of
from yt_exactly_once.local.errors import YtError
from yt_exactly_once.local.formats import arrow_composites, arrow_rows
from yt_exactly_once.local.tables import composite_columns, vectors
from yt_exactly_once.local.tables.columnar import PiecewiseRows
from yt_exactly_once.local.tables.encoding import encode_column
from yt_exactly_once.local.tables.schema import parse_schema

DECIMAL = decimal(5, 2)
STRUCT = struct(é="int64", b=optional("string"))
LEAVES = [*SIMPLE, "null", "yson", optional("int64"), DECIMAL]
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
    *(yt.yson.dumps(value, yson_format="binary") for value in (
        0, 1, -1, 127, 128, 255, 256, 65_536, -(2**31), 2**31, 2**40, -(2**63), 2**63 - 1,
        *map(yt.yson.YsonUint64, (0, 255, 2**32, 2**64 - 1)),
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
COMPOSITES = types(76).filter(lambda logical: scalar_of(logical) is None)


def column_of(type_v3):
    return parse_schema([{"name": "c", "type_v3": type_v3}]).columns[0]


def one_by_one(column, blobs):
    """Return stored values as they are made without vectors; None if one is refused."""
    try:
        parsed = [
            None if b is None else yt.yson.loads(b, encoding=None, always_create_attributes=False)
            for b in blobs
        ]
        found, error = encode_column(column, parsed)
    except (yt.yson.YsonError, YtError, ValueError, TypeError):
        return None
    return None if error else found


def parts_of(logical):
    """Yield a type and all types inside."""
    yield logical
    for name in getattr(logical, "__dataclass_fields__", ()):
        part = getattr(logical, name)
        for one in part if isinstance(part, tuple) else (part,):
            if hasattr(one, "__dataclass_fields__"):
                yield from parts_of(getattr(one, "type", one))


@st.composite
def columns(draw):
    logical = draw(COMPOSITES)
    drawn = draw(st.lists(values(logical), min_size=1, max_size=6))
    blobs = [None if v is None else yt.yson.dumps(v, yson_format="binary") for _, _, v in drawn]
    return logical, drawn, blobs


@given(columns())
def test_valid_column_is_stored_as_its_values_are_one_by_one(table):
    """All types but `yson` and variants have a vector, and nulls stay where they are."""
    logical, _, blobs = table
    column = column_of(render_type(logical))
    found = composite_columns.stored(pa.array(blobs, pa.binary()), column.type_v3)
    if found is None:
        parts = list(parts_of(logical))
        assert ANY.item in parts or any(isinstance(part, VariantType) for part in parts)
        return
    assert found.array.to_pylist() == one_by_one(column, blobs)
    given_again, error = encode_column(column, found.to_pylist())
    assert (given_again, error) == (found.array.to_pylist(), None)


def loaded(column, stream, most, monkeypatch):
    """Return what a request becomes if so many values and more are taken by vector."""
    monkeypatch.setattr(arrow_rows, "_MANY_VALUES", most)
    if most:
        monkeypatch.setattr(arrow_composites, "stored", lambda *_: None)
    described = {"name": "c", "type": column.wire_type, "type_v3": column.type_v3}
    found = []
    try:
        rows = arrow_rows.loads(stream, [described])
        for piece in rows.pieces() if isinstance(rows, PiecewiseRows) else [rows]:
            stored, error = vectors.encode(column, piece.columns["c"])
            if error:
                return str(error.to_dict())
            found += stored.to_pylist()
    except YtError as error:
        return str(error.to_dict())
    return found


@given(columns())
def test_arrow_lists_structs_and_maps_are_stored_as_their_values_are_one_by_one(table):
    """With the same error where one is refused: Arrow has no variants, and few of the cluster's types."""
    logical, drawn, _ = table
    kind = arrow_type_of(logical, binary_strings=True)
    try:
        array = pa.array([v for v, _, _ in drawn], kind)
    except (pa.ArrowException, OverflowError, TypeError, ValueError):
        assume(False)
    stream = stream_of(pa.table({"c": array}, pa.schema([("c", kind)])))
    column = column_of(render_type(logical))
    with pytest.MonkeyPatch.context() as patch:
        by_vector = loaded(column, stream, 0, patch)
        assert by_vector == loaded(column, stream, sys.maxsize, patch)


def assert_same(logical, blobs):
    """Compare single values, and count those that a vector has taken."""
    column = column_of(logical)
    taken = 0
    for blob in blobs:
        found = composite_columns.stored(pa.array([blob], pa.binary()), column.type_v3)
        if found is not None:
            assert found.array.to_pylist() == one_by_one(column, [blob]), blob
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
    blobs = [None if v is None else yt.yson.dumps(v, yson_format="binary") for v in given]
    array = pa.array([b"[", *blobs, b"]"], pa.binary())[1:-1]
    found = composite_columns.stored(array, column.type_v3)
    expected, _ = encode_column(column, given)
    assert found.array.to_pylist() == expected
    assert found[5:9].to_pylist() == [
        None if blob is None else yt.yson.loads(blob, encoding=None) for blob in expected[5:9]
    ]


def test_few_very_long_values_are_left_to_the_parser():
    """A step costs the same for one value as for a thousand."""
    column = column_of(listed("int64"))
    lengths = {composite_columns.LONG - 3: True, 10 * composite_columns.LONG: False}
    for length, is_taken in lengths.items():
        array = pa.array([yt.yson.dumps(list(range(length)), yson_format="binary")], pa.binary())
        assert (composite_columns.stored(array, column.type_v3) is not None) == is_taken
