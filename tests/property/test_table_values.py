"""Keys of dynamic tables: the order of blobs is theirs."""

from hypothesis import given
from hypothesis import strategies as st

from tests.contract.tables import key_columns
from yt_exactly_once.local.tables import keys
from yt_exactly_once.local.tables.encoding import encode_column
from yt_exactly_once.local.tables.schema import parse_schema

INT64 = st.integers(min_value=-(2**63), max_value=2**63 - 1)
UINT64 = st.integers(min_value=0, max_value=2**64 - 1)
KINDS = {
    "int64": INT64,
    "uint64": UINT64,
    "double": st.floats(allow_nan=False).map(lambda number: number + 0.0),
    "boolean": st.booleans(),
    "string": st.binary(max_size=4),
}


def columns_of(kinds):
    given = {f"c{index}": kind for index, kind in enumerate(kinds)}
    return parse_schema(key_columns(**given)).columns


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
