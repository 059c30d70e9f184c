"""Hashes of rows and their digests: equal for equal values, and for no others that a test can think of."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.kinds import decimal, listed, optional
from yt_exactly_once.codec.row_hash import (
    HASH_VERSION,
    added,
    combined,
    numbered,
    row_hashes,
    seed_of,
    spelled,
)
from yt_exactly_once.codec.schema import TableSchema, table_schema_for


def hashes(values, kind, logical=None):
    """Hash values as those of a column that a table created for them would have."""
    field = pa.field("a", kind)
    described = table_schema_for(pa.schema([field])) if logical is None else [logical]
    columns = TableSchema.from_yt(described).columns
    batch = pa.RecordBatch.from_arrays([pa.array(values, kind)], names=["a"])
    return row_hashes(batch, columns).tolist()


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.int64(), [0, 1, -1, None, 2**63 - 1]),
        (pa.uint64(), [0, 1, 2**64 - 1, None]),
        (pa.float64(), [0.0, 1.5, -1.5, None]),
        (pa.bool_(), [True, False, None]),
        (
            pa.string(),
            ["", "a", "b", "ab", None, "\0", "\0\0", "12345678", "123456789", "87654321"],
        ),
        (pa.string(), ["x" * length for length in (7, 8, 9, 511, 512, 513, 2000, 2001)]),
        (pa.string(), ["x" * 600 + end for end in "abc"]),
        (pa.binary(), [b"", b"\0", b"\xff", None]),
        (pa.date32(), [0, 1, None]),
        (pa.timestamp("us", tz="UTC"), [datetime(2020, 1, 1, tzinfo=UTC), None]),
        (pa.duration("us"), [timedelta(0), timedelta(seconds=1), None]),
        (pa.decimal128(9, 2), [Decimal("1.00"), Decimal("1.10"), Decimal("-1.00"), None]),
        (pa.decimal256(60, 0), [Decimal(10**50), Decimal(1), Decimal(-1), None]),
        (pa.list_(pa.int64()), [[], [1], [None], [1, 2], None]),
        (pa.struct([("x", pa.int64())]), [{"x": 1}, {"x": None}, None]),
    ],
    ids=str,
)
def test_different_values_have_different_hashes(kind, values):
    """Null, zero and nothing included; the same values have the same hashes again."""
    found = hashes(values, kind)
    assert len(set(found)) == len(values)
    assert hashes(list(reversed(values)), kind) == list(reversed(found))


@pytest.mark.parametrize(
    ("logical", "given", "read"),
    [
        ("string", pa.array(["é", None]), pa.array(["é".encode(), None])),
        ("utf8", pa.array(["é"], pa.large_string()), pa.array(["é"])),
        ("int64", pa.array([-5], pa.int8()), pa.array([-5])),
        ("uint64", pa.array([5], pa.int32()), pa.array([Decimal(5)], pa.decimal128(20, 0))),
        ("double", pa.array([-0.0, float("nan")], pa.float32()), pa.array([0.0, float("nan")])),
        (
            "datetime",
            pa.array([5], pa.timestamp("s", "UTC")),
            pa.array([5 * 10**6], pa.timestamp("us", "UTC")),
        ),
        (
            "uuid",
            pa.array(["01234567-89ab-cdef-0123-456789abcdef", None]),
            pa.array([bytes.fromhex("67452301ab89efcd0123456789abcdef"), None]),
        ),
        ("yson", pa.array(["a"]), pa.array([b"\x01\x02a"])),
        ("yson", pa.array([b" {a = 1} "]), pa.array([b"{\x01\x02a=\x02\x02;}"])),
        ("yson", pa.array([b"#", None]), pa.array([None, None], pa.binary())),
    ],
    ids=[
        *("text as bytes", "large text", "integers", "decimals", "floats", "instants"),
        *("uuid as text", "plain any", "textual any", "null any"),
    ],
)
def test_rows_have_the_same_hash_before_they_are_written_and_after_they_were_read(
    logical, given, read
):
    """The table decides what a value is, not the DataFrame."""
    columns = TableSchema.from_yt([{"name": "a", "type_v3": optional(logical)}]).columns
    written, found = (
        row_hashes(pa.RecordBatch.from_arrays([each], names=["a"]), columns).tolist()
        for each in (given, read)
    )
    assert written == found


INTEGERS = TableSchema.from_yt(
    [{"name": name, "type_v3": optional("int64")} for name in "ab"]
).columns


def test_values_do_not_move_between_columns_unnoticed():
    """The column of a value counts, the order of the columns does not, and a null is as no column."""
    batch = pa.RecordBatch.from_pydict({"a": [1, None, 2], "b": [None, 1, 2]})
    first, second, third = row_hashes(batch, INTEGERS)
    assert len({first, second, third}) == 3
    turned = batch.select(["b", "a"])
    assert row_hashes(turned, INTEGERS[::-1]).tolist() == [first, second, third]
    assert row_hashes(batch.select(["a"]), INTEGERS)[0] == first
    lists = TableSchema.from_yt(table_schema_for(pa.schema([("l", pa.list_(pa.int64()))]))).columns
    given = pa.RecordBatch.from_pydict({"l": pa.array([None, []], pa.list_(pa.int64()))})
    nothing = row_hashes(given.select([]), lists)
    assert [found == nothing[0] for found in row_hashes(given, lists)] == [True, False]


def test_nulls_and_entries_do_not_move_unnoticed_at_any_depth():
    """Neither between columns nor inside lists, structs and maps."""
    first = {"a": 1, "b": None, "l": [1], "s": {"x": 1, "y": None}, "m": [("k", [[(1, 1)]])]}
    changes = [
        {},
        {"a": None, "b": 1},
        *({"l": given} for given in ([1, None], [None, 1], None, [])),
        *({"s": given} for given in ({"x": None, "y": 1}, None, {"x": None, "y": None})),
        *({"m": [("k", given)]} for given in ([[(1, None)]], [None], [], None)),
        {"m": []},
        {"m": None},
    ]
    inner = pa.list_(pa.map_(pa.int32(), pa.int32()))
    pair = pa.struct([("x", pa.int32()), ("y", pa.int32())])
    schema = pa.schema(
        {
            "a": pa.int32(),
            "b": pa.int32(),
            "l": pa.list_(pa.int32()),
            "s": pair,
            "m": pa.map_(pa.string(), inner),
        }
    )
    batch = pa.RecordBatch.from_pylist([first | change for change in changes], schema=schema)
    columns = TableSchema.from_yt(table_schema_for(schema)).columns
    assert len(set(row_hashes(batch, columns).tolist())) == len(changes)


def test_values_do_not_move_between_rows_unnoticed():
    """Two rows that swap a value have another digest."""
    one = pa.RecordBatch.from_pydict({"a": [1, 2], "b": [3, 4]})
    other = pa.RecordBatch.from_pydict({"a": [1, 2], "b": [4, 3]})
    assert added(0, row_hashes(one, INTEGERS)) != added(0, row_hashes(other, INTEGERS))


@pytest.mark.parametrize("rows", [3, 40_000])
def test_digest_depends_on_nothing_but_the_rows(rows):
    """Neither on their order nor on how they are cut."""
    texts = [None if number % 7 == 0 else "é" * (number % 40) for number in range(rows)]
    columns = TableSchema.from_yt([INTEGER, TEXT, DECIMAL]).columns
    amounts = pa.array([Decimal(number) for number in range(rows)], pa.decimal128(9, 0))
    batch = pa.RecordBatch.from_pydict({"a": list(range(rows)), "s": texts, "d": amounts})
    whole = added(0, row_hashes(batch, columns))
    parts = [batch.slice(0, 1), batch.slice(1, 1), batch.slice(2)]
    assert combined(*(added(0, row_hashes(part, columns)) for part in parts)) == whole
    turned = batch.take(pa.array(range(rows - 1, -1, -1)))
    assert added(0, row_hashes(turned, columns)) == whole
    assert row_hashes(batch.slice(2), columns).tolist() == row_hashes(batch, columns)[2:].tolist()


def test_digests_are_sums_of_64_bits():
    """Whatever they are the sums of."""
    assert combined(2**64 - 1, 2**40, 2) == 2**40 + 1
    assert combined() == 0


INTEGER = {"name": "a", "type_v3": "int64"}
DECIMAL = {"name": "d", "type_v3": decimal(9, 0)}
TEXT = {"name": "s", "type_v3": optional("utf8")}


def test_member_that_a_struct_gets_later_changes_no_hash():
    """At any depth: the rows that are there have null in it."""
    old = pa.struct([("a", pa.int64()), ("b", pa.int64())])
    new = pa.struct([*old, ("c", pa.list_(pa.int64()))])
    values = [{"a": 1, "b": None}, {"a": None, "b": 1}, {"a": None, "b": None}, None]
    for before, after, rows in (
        (old, new, values),
        (pa.list_(old), pa.list_(new), [values[:2], values]),
    ):
        found = hashes(rows, before)
        assert found == hashes(rows, after)
        assert len(set(found)) == len(rows)
    assert hashes([{"a": 1, "c": []}], new) != hashes(values[:1], new)


def test_hashes_are_those_that_ledgers_keep():
    """Who changes them must change `HASH_VERSION`."""
    kinds = ["int64", "double", "bool", "string", listed("int8"), decimal(9, 2)]
    columns = TableSchema.from_yt(
        [{"name": f"c{place}", "type_v3": kind} for place, kind in enumerate(kinds)]
    ).columns
    arrays = [
        pa.array([-3]),
        pa.array([-0.0]),
        pa.array([True]),
        pa.array(["longer than one word" * 99]),
        pa.array([[1, 2]], pa.list_(pa.int8())),
        pa.array([Decimal("1.25")], pa.decimal128(9, 2)),
    ]
    batch = pa.RecordBatch.from_arrays(arrays, names=[column.name for column in columns])
    assert (HASH_VERSION, row_hashes(batch, columns).tolist()) == (2, [14496840375447655289])


NUMBERS = st.integers(-(2**63), 2**63 - 1)
HASHES = st.lists(NUMBERS, min_size=2, max_size=20)


# A row whose hash is the seed adds nothing under number 0; examples do not hit upon this one.
SEED = seed_of(["row"])


def digest(hashes, first=0, seed=SEED):
    numbers = np.arange(first, first + len(hashes), dtype=np.int64)
    return added(0, numbered(np.array(hashes, dtype=np.int64), numbers, seed))


@pytest.mark.parametrize("length", [0, 1, 7, 8, 9, 38, 600])
def test_strings_of_one_length_have_the_hashes_that_they_have_among_others(length):
    values = [bytes([place]) * length for place in range(1, 20)]
    mixed = [value for each in values for value in (each, each + b"more")]
    assert hashes(values, pa.binary()) == hashes(mixed, pa.binary())[::2]


@given(HASHES, st.data())
def test_cuts_make_no_difference(hashes, data):
    """A task continues what another one began, with other chunks."""
    cut = data.draw(st.integers(0, len(hashes)))
    numbers = np.arange(len(hashes), dtype=np.int64)
    parts = numbered(np.array(hashes, dtype=np.int64), numbers, SEED)
    assert added(added(0, parts[:cut]), parts[cut:]) == digest(hashes)


@given(HASHES, st.data())
def test_rows_that_change_places_are_told_apart(hashes, data):
    """The sum alone would not see it; each row is mixed with its number."""
    place = data.draw(st.integers(0, len(hashes) - 2))
    swapped = list(hashes)
    swapped[place : place + 2] = reversed(swapped[place : place + 2])
    assert (digest(swapped) == digest(hashes)) == (swapped == hashes)


@given(HASHES, NUMBERS)
def test_another_row_or_number_or_column_is_told_apart(hashes, other):
    """Each of them changes the digest."""
    assert (digest([other, *hashes[1:]]) == digest(hashes)) == (other == hashes[0])
    assert digest(hashes, first=1) != digest(hashes)
    assert digest(hashes, seed=SEED + 1) != digest(hashes)
    assert digest(hashes[1:], first=1) != digest(hashes)


def test_names_of_columns_count_and_their_order_does_not():
    """A column that was renamed holds other values, as far as the target is concerned."""
    assert seed_of(["a", "b"]) == seed_of(["b", "a"]) != seed_of(["a", "c"])


def test_digest_is_spelled_with_all_its_digits():
    """It is kept as text: YSON of clients differs in the sign of large numbers."""
    assert spelled(0) == "0" * 16
    assert spelled(2**64 - 1) == "f" * 16
