"""Rowsets: what is written is read again, by numpy or row by row, and garbage is refused."""

import math
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from yt.yson import YsonUint64

from yt_exactly_once.local.errors import YtError
from yt_exactly_once.local.rpc.rows import rowset_writer, rowsets
from yt_exactly_once.local.tables.schema import Column
from yt_exactly_once.local.tables.types import type_v3_from_v1

STRUCT = {"type_name": "struct", "members": [{"name": "a", "type": "int64"}]}
VALUES = {
    "int64": st.integers(-(2**63), 2**63 - 1),
    "uint64": st.integers(0, 2**64 - 1).map(YsonUint64),
    "double": st.floats(allow_nan=False),
    "boolean": st.booleans(),
    "string": st.binary(max_size=20),
    "any": st.recursive(
        st.integers(-9, 9) | st.binary(max_size=3), lambda inner: st.lists(inner, max_size=2)
    ),
}


def column(name, kind):
    return Column(name, kind, type_v3_from_v1(kind, required=False), required=False)


@st.composite
def tables(draw):
    kinds = draw(st.lists(st.sampled_from(sorted(VALUES)), min_size=1, max_size=4))
    columns = [column(f"c{number}", kind) for number, kind in enumerate(kinds)]
    optional = draw(st.lists(st.booleans(), min_size=len(kinds), max_size=len(kinds)))
    cells = {
        each.name: VALUES[kind] | st.none() if nullable else VALUES[kind]
        for each, kind, nullable in zip(columns, kinds, optional, strict=True)
    }
    base = draw(st.lists(st.fixed_dictionaries(cells), min_size=1, max_size=6))
    return columns, base * draw(st.sampled_from([1, 40]))


@given(tables())
@settings(max_examples=150)
def test_rows_come_back_as_they_went(table):
    """Many rows are taken apart by columns, few of them one by one."""
    columns, rows = table
    data = rowset_writer.encode(rows, columns)
    assert len(data) % 8 == 0
    found = rowsets.decode(data, [each.name for each in columns]).rows
    assert list(found) == rows
    for name, value in found[0].items():
        assert isinstance(value, type(rows[0][name])) or value is None


def test_text_that_looks_like_a_row_is_text():
    """Rows are found by how they begin, and a value may contain just that."""
    row = {"s": struct.pack("<2Q", 2, 0x10_0000) + bytes(8), "n": 5}
    columns = [column("s", "string"), column("n", "int64")]
    data = rowset_writer.encode([row] * 100, columns)
    assert list(rowsets.decode(data, ["s", "n"]).rows) == [row] * 100


@pytest.mark.parametrize("count", [3, 300])
def test_rows_of_different_columns_come_back_as_they_went(count):
    """A column that a row does not mention is not one that is null."""
    rows = [{"a": number} if number % 2 else {"b": b"x", "a": None} for number in range(count)]
    writer = rowset_writer.LooseWriter([column("a", "int64"), column("b", "string")])
    data, names = writer.encode(rows)
    assert list(rowsets.decode(data, names).rows) == rows


def test_missing_rows_are_written_as_such():
    """A look-up answers for every key."""
    rows = [None, {"a": 1}, None, {"a": None}]
    words = struct.unpack("<7Q", rowset_writer.encode(rows, [column("a", "int64")])[:56])
    missing = 2**64 - 1
    assert words[:3] == (4, missing, 1)
    assert words[5:] == (missing, 1)


def test_special_numbers_keep_their_bits():
    """The ends of the ranges and what is no number."""
    columns = [column("d", "double"), column("u", "uint64")]
    rows = [{"d": math.inf, "u": 2**64 - 1}, {"d": math.nan, "u": 0}] * 40
    first, second, *_ = rowsets.decode(rowset_writer.encode(rows, columns), ["d", "u"]).rows
    assert first == rows[0]
    assert math.isnan(second["d"])


def test_structs_go_by_position():
    """Names of fields are for formats; the wire has lists."""
    composite = Column("c", "any", STRUCT, required=True)
    data = rowset_writer.encode([{"c": {b"a": 5}}], [composite])
    assert list(rowsets.decode(data, ["c"]).rows) == [{"c": [5]}]


def test_aggregate_flag_is_seen():
    """One value of the request is enough."""
    value = struct.pack("<HBBIq", 0, 3, 1, 0, 5)
    for count in (1, 100):
        data = struct.pack("<Q", count) + (struct.pack("<Q", 1) + value) * count
        assert rowsets.decode(data, ["a"]).aggregated


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"abc",
        struct.pack("<Q", 1),
        struct.pack("<Q", 2**63),
        struct.pack("<2Q", 1, 2**64 - 1),
        struct.pack("<2Q", 1, 5),
        struct.pack("<2QHBBI", 1, 1, 7, 3, 0, 0) + bytes(8),
        struct.pack("<2QHBBI", 1, 1, 0, 99, 0, 0) + bytes(8),
        struct.pack("<2QHBBI", 1, 1, 0, 16, 0, 2**32 - 1),
        struct.pack("<2QHBBI", 1, 1, 0, 17, 0, 1) + b"{" + bytes(7),
        struct.pack("<2QHBBI", 1, 1, 0, 2, 0, 0) + bytes(8),
        # So many that numpy reads them: the last one has no value, or one that is too long.
        struct.pack("<Q", 40) + struct.pack("<QHBBI", 1, 0, 2, 0, 0) * 39 + struct.pack("<Q", 1),
        struct.pack("<Q", 40)
        + struct.pack("<QHBBI", 1, 0, 2, 0, 0) * 39
        + struct.pack("<QHBBI", 1, 0, 16, 0, 9)
        + bytes(8),
    ],
)
def test_what_is_no_rowset_is_refused(data):
    """With an error that can be answered."""
    with pytest.raises(YtError):
        rowsets.decode(data, ["a", "b"])


@given(
    tables(),
    st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), min_size=1, max_size=4),
)
@settings(max_examples=300)
def test_damaged_rowset_is_read_or_refused(table, changes):
    """Nothing else: no other exception, no row that is not there."""
    columns, rows = table
    damaged = bytearray(rowset_writer.encode(rows, columns))
    for position, byte in changes:
        damaged[position % len(damaged)] = byte
    try:
        found = list(rowsets.decode(bytes(damaged), [each.name for each in columns]).rows)
    except YtError:
        return
    assert len(found) == struct.unpack_from("<Q", damaged)[0]


def test_values_of_keys_are_known_by_their_places():
    """The Go client gives all of them the id 0."""
    value = struct.Struct("<HBBIq")
    first = value.pack(0, 0x03, 0, 0, 7) + value.pack(0, 0x03, 0, 0, 8)
    rows = struct.pack("<QQQ", 3, 0, 1) + first[:16] + struct.pack("<Q", 2) + first
    assert rowsets.keys(rows) == [[], [7], [7, 8]]
