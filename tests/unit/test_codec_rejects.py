"""Rows that a table cannot take: every one is found, with its reason, and told without losing the rest."""

import json
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pyarrow as pa
import pytest
import yt.yson

from tests.kinds import decimal, listed, optional, struct
from yt_exactly_once.codec import limits, rejects
from yt_exactly_once.codec.rejects import Fault, Rejects, find_faults, without
from yt_exactly_once.codec.rows import WireFormat, encode
from yt_exactly_once.codec.schema import SOURCE_COLUMNS, TableSchema, check_frame
from yt_exactly_once.errors import EncodingError

BOTH = pytest.mark.parametrize("wire", list(WireFormat))


def planned(kind, arrow, *, key=False):
    columns = [
        {"name": "x", "type_v3": kind, **({"sort_order": "ascending"} if key else {})},
        {"name": "id", "type_v3": "int64"},
    ]
    frame = pa.schema([("x", arrow), ("id", pa.int64())])
    return check_frame(frame, TableSchema.from_yt(columns), target="//t", sorted=key)


def batch(values, arrow):
    return pa.record_batch({"x": pa.array(values, arrow), "id": range(len(values))})


def moment(*when):
    return datetime(*when, tzinfo=UTC)


WIDE = pa.array([10**5 - 1, 10**6], pa.int64()).cast(pa.decimal128(19, 0))
BAD_DECIMALS = pa.Array.from_buffers(
    pa.decimal128(5, 2), 2, [None, WIDE.cast(pa.decimal128(38, 0)).buffers()[1]]
)

CASES = {
    "unsigned": ("uint8", pa.int16(), [0, -1, 255, 256], [1, 3], "outside the range of uint8"),
    "uint64": (
        "uint64", pa.decimal128(20, 0), [Decimal(2**64 - 1), Decimal(2**64), Decimal(-1)], [1, 2],
        "outside the range of uint64",
    ),
    "null": ("int64", pa.int64(), [1, None, None], [1, 2], "it is null"),
    "utf8": (optional("utf8"), pa.binary(), [b"ok", b"\xff", None, b"\xc3\xa9"], [1], "UTF-8"),
    "date": (
        "date", pa.date32(), [moment(1969, 12, 31), moment(1970, 1, 1), moment(2200, 1, 1)], [0, 2],
        "outside the range of date",
    ),
    "timestamp": (
        "timestamp", pa.timestamp("us", "UTC"), [moment(1969, 1, 1), moment(2020, 1, 1)], [0],
        "outside the range of timestamp",
    ),
    "datetime": (
        "datetime", pa.timestamp("us", "UTC"), [moment(2020, 1, 1, 1, 1, 1, 5)], [0], "finer than",
    ),
    "uuid": ("uuid", pa.binary(), [b"x" * 16, b"y"], [1], "16 bytes"),
    "list": (
        listed("uint8"), pa.list_(pa.int16()), [[1], [1, -1], [], [300]], [1, 3], "x[] as list<uint8>",
    ),
}  # fmt: skip


@BOTH
@pytest.mark.parametrize("name", CASES)
def test_every_row_with_a_fault_is_found(name, wire):
    """And the others can be written."""
    kind, arrow, values, bad, reason = CASES[name]
    plan, given = planned(kind, arrow), batch(values, arrow)
    with pytest.raises(EncodingError):
        encode(given, plan, wire)
    faults = find_faults(given, plan, wire, "")
    assert [fault.row for fault in faults] == bad
    assert all(fault.column == "x" and reason in fault.reason for fault in faults)
    rest = without(given, faults)
    assert rest.column("id").to_pylist() == [n for n in range(len(values)) if n not in bad]
    encode(rest, plan, wire)


@BOTH
def test_decimal_with_too_many_digits_is_found(wire):
    """Arrow lets them pass; cutting the high bytes would change the value."""
    given = pa.record_batch({"x": BAD_DECIMALS, "id": [0, 1]})
    plan = planned(decimal(5, 2), pa.decimal128(5, 2))
    with pytest.raises(EncodingError, match="more digits"):
        encode(given, plan, wire)
    assert [fault.row for fault in find_faults(given, plan, wire, "")] == [1]


@BOTH
def test_text_of_spark_that_is_no_text_is_found(wire):
    """Its strings may hold any bytes: CAST(binary AS STRING) does not look."""
    dirty = pa.StringArray.from_buffers(2, pa.py_buffer(b"\0\0\0\0\2\0\0\0\3\0\0\0"),
                                        pa.py_buffer(b"ok\xff"))  # fmt: skip
    given = pa.record_batch({"x": dirty, "id": [0, 1]})
    (fault,) = find_faults(given, planned("utf8", pa.string()), wire, "")
    assert fault == Fault(1, "x", "x as utf8: its bytes are not valid UTF-8")
    (told,) = described(given, [fault])
    assert json.loads(told["row"]) == {"x": "\\xff", "id": 1}
    encode(given, planned("string", pa.string()), wire)


@BOTH
def test_key_that_is_no_number_is_found(wire):
    """NaN is fine elsewhere; the cluster could not sort it."""
    given = batch([1.0, float("nan")], pa.float64())
    plan = planned("double", pa.float64(), key=True)
    with pytest.raises(EncodingError, match="NaN cannot be part of a key"):
        encode(given, plan, wire)
    (fault,) = find_faults(given, plan, wire, "")
    assert fault.row == 1
    assert json.loads(described(given, [fault])[0]["row"]) == {"x": "nan", "id": 1}
    encode(given, planned("double", pa.float64()), wire)


@BOTH
def test_string_that_is_too_long_is_found(wire):
    """The cluster would refuse the commit."""
    plan = planned("string", pa.binary())
    given = batch([b"x" * limits.LONGEST_VALUE, b"x" * (limits.LONGEST_VALUE + 1)], pa.binary())
    (fault,) = find_faults(given, plan, wire, "")
    assert (fault.row, fault.reason) == (1, "x as string: it is longer than 16 MiB")
    assert described(given, [fault])[0]["row"] is None


@BOTH
@pytest.mark.parametrize(
    ("kind", "arrow", "value"),
    [
        (listed("string"), pa.list_(pa.binary()), [b"x" * limits.LONGEST_VALUE]),
        (optional("yson"), pa.string(), "x" * (limits.LONGEST_VALUE - 4)),
        (optional("yson"), pa.binary(), b'"' + b"x" * (limits.LONGEST_VALUE - 4) + b'"'),
    ],
)  # fmt: skip
def test_composite_value_that_is_too_long_is_found(kind, arrow, value, wire):
    """Its length is that of its YSON, with all that is around the strings."""
    plan = planned(kind, arrow)
    if plan.arrow_obstacles:
        wire = WireFormat.YSON
    (fault,) = find_faults(batch([value], arrow), plan, wire, "")
    assert (fault.row, fault.reason) == (
        0,
        f"x as {plan.columns[0].type}: it is longer than 16 MiB",
    )


@BOTH
def test_value_that_is_long_by_the_names_of_its_members_passes(wire):
    """The cluster does not store them."""
    name, count = "n" * 100, 1 << 18
    plan = planned(listed(struct(**{name: "int8"})), pa.list_(pa.struct([(name, pa.int8())])))
    structs = pa.StructArray.from_arrays([pa.array([1] * count, pa.int8())], [name])
    lists = pa.ListArray.from_arrays(pa.array([0, count], pa.int32()), structs)
    given = pa.record_batch({"x": lists, "id": [1]})
    payload = encode(given, plan, wire)
    assert (len(payload) > limits.LONGEST_VALUE) == (wire is WireFormat.YSON)


@BOTH
@pytest.mark.parametrize(
    ("kind", "arrow", "value"),
    [
        ("string", pa.binary(), lambda size: b"x" * size),
        # An opening and a closing bracket, a separator, a marker and two bytes of a length.
        (listed("string"), pa.list_(pa.binary()), lambda size: [b"x" * (size - 6)]),
    ],
)  # fmt: skip
def test_row_that_is_too_heavy_is_found(kind, arrow, value, wire, monkeypatch):
    """Though each of its values may pass: a row weighs 1, its number 8, and the other value its bytes."""
    monkeypatch.setattr(limits, "HEAVIEST_ROW", 1_000)
    plan, given = planned(kind, arrow), batch([value(990), value(991)], arrow)
    with pytest.raises(EncodingError, match="heavier than"):
        encode(given, plan, wire)
    assert [fault.row for fault in find_faults(given, plan, wire, "")] == [1]
    encode(given.slice(0, 1), plan, wire)


def test_values_of_a_marked_row_do_not_matter():
    """Only its key does, and that the marker says something."""
    given = pa.record_batch(
        {
            "x": pa.array([1, -1, 2, -2, 3], pa.int16()),
            "id": [1, None, None, 1, 1],
            "gone": [False, True, True, False, None],
        }
    )
    plan = planned("uint8", pa.int16(), key=True)
    faults = find_faults(given, plan, WireFormat.ARROW, "gone")
    assert [(fault.row, fault.column) for fault in faults] == [(1, "x"), (3, "x"), (4, "gone")]


def test_many_faults_are_found_in_reasonable_work(monkeypatch):
    """By halving: not one pass over all rows per fault."""
    values = [-1 if number % 2 else 1 for number in range(1_024)]
    calls = []
    check = rejects.check_column

    def counted(part, column, wire):
        calls.append(part.num_rows)
        return check(part, column, wire)

    monkeypatch.setattr(rejects, "check_column", counted)
    given = batch(values, pa.int16())
    assert len(find_faults(given, planned("uint8", pa.int16()), WireFormat.ARROW, "")) == 512
    assert sum(calls) <= 12 * 1_024


def described(given, faults):
    body = Rejects("//rejects", "q", 7).encode(given, faults, "//t", "")
    return list(yt.yson.loads(body, yson_type="list_fragment", always_create_attributes=False))


def test_rejected_row_is_told_with_where_it_came_from():
    """In the columns of the table of rejected rows; the row itself as JSON."""
    given = pa.record_batch(
        {
            "x": pa.array([5, -1], pa.int16()),
            "raw": [b"\xff", b"\xfe"],
            "at": [moment(2020, 1, 1), moment(1800, 1, 1)],
            "span": [timedelta(1), timedelta(2)],
            "price": [Decimal("1.5"), Decimal("-2.5")],
            "deep": [{"a": [1.5, None]}, {"a": [float("inf")]}],
            **dict(zip(SOURCE_COLUMNS, ([0, 3], [10, 11]), strict=True)),
        }
    )
    (told,) = described(given, [Fault(1, "x", "because")])
    row = json.loads(told.pop("row"))
    kept = rejects.unpacked(yt.yson.get_bytes(told.pop("row_arrow"))).row
    assert kept.equals(given.slice(1))
    assert told == {
        "query_id": "q",
        "batch_id": 7,
        "target": "//t",
        "source_queue": None,
        "source_partition": 3,
        "source_row": 11,
        "column": "x",
        "reason": "because",
        "$tablet_index": 0,
    }
    assert row.pop("at").startswith("1800-01-01 00:00:00")
    assert row.pop("span")
    assert row == {
        "x": -1,
        "raw": "/g==",
        "price": "-2.5",
        "deep": {"a": ["inf"]},
        SOURCE_COLUMNS[0]: 3,
        SOURCE_COLUMNS[1]: 11,
    }


def test_moment_that_python_has_not_is_told_as_text():
    """The year 20 982 fits Spark and Arrow."""
    far = pa.array([6 * 10**17], pa.int64()).cast(pa.timestamp("us", "UTC"))
    nested = pa.StructArray.from_arrays([far], names=["at"])
    given = pa.record_batch({"x": far, "deep": nested})
    row = json.loads(described(given, [Fault(0, "x", "far")])[0]["row"])
    assert row["x"].startswith("20983-")
    assert row["deep"]["at"].startswith("20983-03-30")


def test_value_is_shown_on_request_only():
    """It may be private; its column, its type in the frame and its place are always told."""
    from dataclasses import replace

    plan, given = planned("uint8", pa.int16()), batch([1, 4711], pa.int16())
    with pytest.raises(EncodingError) as caught:
        encode(given, plan, WireFormat.ARROW)
    text = str(caught.value)
    assert "A value of column x, int16 in the DataFrame, cannot be written as uint8" in text
    assert "row_of_chunk=1" in text
    assert "4711" not in text
    with pytest.raises(EncodingError, match="value=4711"):
        encode(given, replace(plan, shows_values=True), WireFormat.ARROW)
