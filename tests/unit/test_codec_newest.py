"""The newest change of each key: whatever the order of rows and batches, the same remains."""

import datetime as dt
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.flows import columns
from yt_exactly_once.codec.newest import ChangeRule, LatestChanges, is_ordered
from yt_exactly_once.codec.rows import WireFormat, encode
from yt_exactly_once.codec.schema import TableSchema, arrow_schema_of, check_frame
from yt_exactly_once.errors import AmbiguousOrderError, EncodingError

TYPES = {"k": "int64", "s": "utf8", "lsn": "int64", "pos": "int32?", "v": "utf8"}


def ruled(sequence=("lsn",), types=TYPES, operation="op", **more):
    """Return the rule of changes to a table with the key k, s."""
    table = TableSchema.from_yt(columns(types, ["k", "s"]))
    frame = arrow_schema_of(table)
    plan = check_frame(frame, table, target="//t", sorted=True)
    return ChangeRule(plan, sequence, operation, ("d",), ("c", "u"), **more)


def batch(*changes):
    """Return changes, each of a key, a sequence, an operation and a value."""
    rows = [
        {"k": k, "s": "x", "lsn": lsn, "pos": None, "v": None if op == "d" else v, "op": op}
        for k, lsn, op, v in changes
    ]
    schema = arrow_schema_of(TableSchema.from_yt(columns(TYPES, []))).append(
        pa.field("op", pa.string())
    )
    return pa.RecordBatch.from_pylist(rows, schema)


class Table:
    """A table and its tombstones, written in batches."""

    def __init__(self, rule):
        self.rule, self.rows, self.tombstones = rule, {}, {}

    def write(self, *changes):
        latest = LatestChanges.of([batch(*changes)], self.rule)
        stored = [
            self.read({key: row["lsn"] for key, row in self.rows.items()}, latest),
            self.read(self.tombstones, latest),
        ]
        winners = latest.newer(stored)
        for row, deletes, wins in zip(
            latest.rows.to_pylist(), latest.deletes.to_pylist(), winners.to_pylist(), strict=True
        ):
            if not wins:
                continue
            self.rows.pop(row["k"], None)
            self.tombstones.pop(row["k"], None)
            if deletes:
                self.tombstones[row["k"]] = row["lsn"]
            else:
                self.rows[row["k"]] = row

    def read(self, sequences, latest):
        """Return stored rows as they are read, through YSON."""
        wanted = {row["k"] for row in latest.rows.to_pylist()} & sequences.keys()
        rows = [(key, sequences[key], "u", "") for key in wanted]
        return latest.rule.decoded(
            bytes(encode(batch(*rows), self.rule.tombstone, WireFormat.YSON))
        )

    @property
    def values(self):
        return {key: row["v"] for key, row in self.rows.items()}


CHANGES = st.lists(
    st.tuples(st.integers(0, 3), st.sampled_from("cud"), st.sampled_from(["a", "b"])), max_size=12
)


@given(data=st.data(), changes=CHANGES)
def test_any_order_leaves_what_the_right_one_does(data, changes):
    """Late and repeated changes, in any batches."""
    numbered = [(key, lsn, op, value) for lsn, (key, op, value) in enumerate(changes)]
    expected = {}
    for key, _, op, value in numbered:
        expected.pop(key, None)
        if op != "d":
            expected[key] = value
    again = data.draw(st.lists(st.sampled_from(numbered))) if numbered else []
    rest, table = data.draw(st.permutations([*numbered, *again])), Table(ruled())
    while rest:
        count = data.draw(st.integers(1, len(rest)))
        table.write(*rest[:count])
        rest = rest[count:]
    assert table.values == expected


def test_no_changes_leave_nothing():
    assert LatestChanges.of([batch()], ruled()).newer([]).to_pylist() == []


def test_changes_with_one_sequence_are_refused_unless_they_do_the_same():
    """Only where it matters: an older pair is no question."""
    table = Table(ruled())
    table.write((1, 5, "u", "a"), (1, 5, "c", "a"), (2, 5, "d", "x"), (2, 5, "d", "y"))
    assert table.values == {1: "a"}
    table.write((1, 6, "u", "a"), (1, 6, "u", "b"), (1, 7, "u", "c"))
    assert table.values == {1: "c"}
    for other in [(3, 1, "u", "b"), (3, 1, "d", "")]:
        with pytest.raises(AmbiguousOrderError, match=r"^1 changes have the key and the sequence"):
            table.write((3, 1, "u", "a"), other, (4, 1, "u", "a"))


@pytest.mark.parametrize(
    ("kind", "older", "newer"),
    [
        ("int64", -(2**63), 2**63 - 1),
        ("uint64", Decimal(2**63), Decimal(2**64 - 1)),
        ("utf8", "a", "é"),
        ("string", "B", "a"),
        ("date", dt.date(2020, 1, 31), dt.date(2020, 2, 1)),
        ("timestamp", dt.datetime(2020, 1, 1, tzinfo=dt.UTC), dt.datetime(2020, 1, 1, 1, tzinfo=dt.UTC)),
        ("int64?", None, -1),
    ],
)  # fmt: skip
def test_every_type_with_an_order_is_compared_as_the_cluster_would(kind, older, newer):
    """What is read of the table has other Arrow types than what Spark gives."""
    rule = ruled(("seq",), {"k": "int64", "s": "utf8", "seq": kind}, operation=None)
    assert is_ordered(rule.plan, "seq")
    schema = arrow_schema_of(TableSchema(rule.plan.columns))

    def rows(value):
        return pa.RecordBatch.from_pylist([{"k": 1, "s": "", "seq": value}], schema)

    def stored(value):
        data = bytes(encode(rows(value), rule.tombstone, WireFormat.YSON))
        return rule.decoded(data)

    latest = LatestChanges.of([rows(newer)], rule)
    assert latest.newer([stored(older)]).to_pylist() == [True]
    assert latest.newer([stored(newer)]).to_pylist() == [False]
    if older is not None:
        assert LatestChanges.of([rows(newer), rows(older)], rule).rows.column(
            "seq"
        ).to_pylist() == [newer]
        assert LatestChanges.of([rows(older)], rule).newer([stored(newer)]).to_pylist() == [False]


@pytest.mark.parametrize("kind", ["double", "bool", "json", "uuid", "yson"])
def test_types_without_an_order_are_known(kind):
    table = TableSchema.from_yt(columns({"k": "int64", "seq": f"{kind}?"}, ["k"]))
    plan = check_frame(arrow_schema_of(table), table, target="//t", sorted=True)
    assert not is_ordered(plan, "seq")


def test_sequence_of_several_columns_is_compared_one_after_the_other():
    rule = ruled(("lsn", "pos"), TYPES | {"pos": "int32"})
    schema = arrow_schema_of(TableSchema(rule.plan.columns)).append(pa.field("op", pa.string()))

    def rows(*sequences):
        given = [
            {"k": 1, "s": "", "lsn": lsn, "pos": pos, "v": f"{lsn}.{pos}", "op": "u"}
            for lsn, pos in sequences
        ]
        return pa.RecordBatch.from_pylist(given, schema)

    latest = LatestChanges.of([rows((1, 9), (2, 1), (2, 0))], rule)
    assert latest.rows.column("v").to_pylist() == ["2.1"]
    for (lsn, pos), expected in {(2, 0): True, (1, 9): True, (2, 1): False, (3, 0): False}.items():
        data = bytes(encode(rows((lsn, pos)), rule.tombstone, WireFormat.YSON))
        assert latest.newer([latest.rule.decoded(data)]).to_pylist() == [expected]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ((1, None, "u", "a"), "The sequence lsn of a change is null"),
        ((1, 1, "t", "a"), "The operation op of a change is none of: c, u, d"),
        ((1, 1, None, "a"), "The operation op of a change is none of: c, u, d"),
        ((None, 1, "u", "a"), "column k"),
    ],
)
def test_change_that_says_too_little_is_refused(change, message):
    """With where it came from; a later change of its key makes no difference."""
    with pytest.raises(EncodingError, match=message) as caught:
        LatestChanges.of([batch((1, 0, "u", "a"), change, (1, 9, "u", "a"))], ruled())
    assert caught.value.where["row_of_chunk"] == 1
    assert caught.value.remedy


@pytest.mark.parametrize("operation", ["u", "d"])
def test_change_without_a_key_is_refused_where_columns_of_the_key_take_null(operation):
    """It names no row: the query has not found the key, and the change of some row would be lost."""
    rule = ruled(types={**TYPES, "k": "int64?", "s": "utf8?"})
    rows = batch((None, 1, operation, "a"), (2, 1, "u", "a"))
    LatestChanges.of([rows], rule)
    nameless = rows.set_column(1, "s", pa.array([None, "x"]))
    with pytest.raises(EncodingError, match="The key of a change is null: k, s") as caught:
        LatestChanges.of([nameless], rule)
    assert caught.value.where["row_of_chunk"] == 0
