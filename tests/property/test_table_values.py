"""Keys and values of dynamic tables: the order of blobs, and the way through SQLite and back."""

import math
import sqlite3

from hypothesis import given
from hypothesis import strategies as st

from yt_exactly_once.local.tables import keys, values
from yt_exactly_once.local.tables.encoding import encode_column
from yt_exactly_once.local.tables.schema import parse_schema

INT64 = st.integers(min_value=-(2**63), max_value=2**63 - 1)
UINT64 = st.integers(min_value=0, max_value=2**64 - 1)
ANY_DOUBLES = st.floats().map(lambda number: number + 0.0)
DOUBLES = ANY_DOUBLES.filter(lambda number: not math.isnan(number))
KINDS = {
    "int64": INT64,
    "uint64": UINT64,
    "double": DOUBLES,
    "boolean": st.booleans(),
    "string": st.binary(max_size=4),
}


def columns_of(kinds, *, sort_order="ascending"):
    listed = [
        {"name": f"c{index}", "type": kind, **({"sort_order": sort_order} if sort_order else {})}
        for index, kind in enumerate(kinds)
    ]
    return parse_schema(listed).columns


def encode(columns, rows):
    stored = []
    for column, given_values in zip(columns, zip(*rows, strict=True), strict=True):
        encoded, error = encode_column(column, list(given_values))
        assert error is None
        stored.append(encoded)
    return stored


def rank(value):
    return (0, 0) if value is None else (1, value)


@st.composite
def keyed_rows(draw):
    kinds = draw(st.lists(st.sampled_from(sorted(KINDS)), min_size=1, max_size=3))
    row = st.tuples(*(st.none() | KINDS[kind] for kind in kinds))
    return kinds, draw(st.lists(row, min_size=2, max_size=20))


@given(keyed_rows())
def test_order_of_blobs_is_the_order_of_keys(drawn):
    """Sorting by the encoded key is sorting by the key, null first, column after column."""
    kinds, rows = drawn
    columns = columns_of(kinds)
    blobs = keys.key_encoder(columns)(encode(columns, rows))
    by_blob = [row for _, row in sorted(zip(blobs, rows, strict=True), key=lambda pair: pair[0])]
    assert by_blob == sorted(rows, key=lambda row: [rank(value) for value in row])


@given(keyed_rows())
def test_prefix_of_a_key_is_a_prefix_of_its_blob(drawn):
    """So ranges over leading columns are ranges over blobs."""
    kinds, rows = drawn
    columns = columns_of(kinds)
    stored = encode(columns, rows)
    blobs = keys.key_encoder(columns)(stored)
    for index, blob in enumerate(blobs):
        for length in range(len(columns) + 1):
            leading = [column[index] for column in stored[:length]]
            assert blob.startswith(keys.encode_prefix(columns, leading))


@given(
    st.lists(
        st.tuples(
            *(st.none() | kind for kind in (KINDS | {"double": ANY_DOUBLES}).values()),
            st.none() | st.recursive(INT64, lambda item: st.lists(item, max_size=3)),
        ),
        min_size=1,
        max_size=10,
    )
)
def test_values_come_back_from_the_store(rows):
    """What SQLite keeps decodes to what was encoded, unsigned and composite values and NaN included."""
    columns = columns_of([*KINDS, "any"], sort_order=None)
    connection = sqlite3.connect(":memory:")
    names = ", ".join(column.name for column in columns)
    connection.execute(f"CREATE TABLE t ({names})")
    marks = ", ".join("?" * len(columns))
    stored = encode(columns, rows)
    connection.executemany(f"INSERT INTO t VALUES ({marks})", zip(*stored, strict=True))
    found = connection.execute("SELECT * FROM t ORDER BY rowid").fetchall()
    connection.close()
    decoded = values.decode_rows(columns, found)
    # NaN equals nothing; its text does.
    assert repr([tuple(row.values()) for row in decoded]) == repr(rows)
