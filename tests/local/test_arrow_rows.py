"""Arrow as input: what each column type takes, what it refuses, and what silently happens."""

import datetime as dt
import io
from decimal import Decimal

import pyarrow as pa
import pytest
from yt import yson

from tests.arrow_streams import stream_of
from tests.kinds import decimal, dict_of, listed, optional, struct
from yt_exactly_once.local.errors import YtError
from yt_exactly_once.local.formats import arrow_rows, arrow_sizes

MOMENT = dt.datetime(2024, 5, 6, 7, 8, 9, 123456, tzinfo=dt.UTC)
SECONDS = int(MOMENT.timestamp())
DAY = SECONDS // 86_400


def _column(array, type_v3, metadata=None):
    field = pa.field("c", array.type, metadata=metadata)
    table = pa.Table.from_arrays([array], schema=pa.schema([field]))
    rows = arrow_rows.loads(stream_of(table), [{"name": "c", "type_v3": type_v3}])
    return [row["c"] for row in rows]


@pytest.mark.parametrize(
    ("array", "type_v3", "expected"),
    [
        (pa.array([1, None], pa.int8()), "int64", [1, None]),
        (pa.array([1], pa.int64()), optional("int64"), [1]),
        (pa.array([MOMENT], pa.timestamp("ms")), "int64", [SECONDS * 1000 + 123]),
        (pa.array([DAY], pa.date32()), "int64", [DAY]),
        (pa.array([7], pa.uint8()), "uint64", [7]),
        (pa.array([1.5], pa.float16()), "double", [1.5]),
        (pa.array([True, None]), "bool", [True, None]),
        (pa.array(["ы"]), "utf8", ["ы".encode()]),
        (pa.array(["ы"], pa.large_string()), "string", ["ы".encode()]),
        (pa.array([b"ab"], pa.binary(2)), "string", [b"ab"]),
        (pa.array(["a", "b", "a"]).dictionary_encode(), "string", [b"a", b"b", b"a"]),
        (pa.array([b"0123456789abcdef"], pa.binary(16)), "uuid", [b"0123456789abcdef"]),
        (pa.array([DAY], pa.date32()), "date", [DAY]),
        (pa.array([MOMENT], pa.date64()), "datetime", [DAY * 86_400]),
        (pa.array([MOMENT], pa.timestamp("us")), "datetime", [SECONDS]),
        (pa.array([MOMENT], pa.timestamp("s")), "timestamp", [SECONDS * 1_000_000]),
        (pa.array([MOMENT], pa.timestamp("us")), "timestamp", [SECONDS * 1_000_000 + 123_456]),
        (pa.array([SECONDS * 10**9 + 123_456_789], pa.timestamp("ns")), "timestamp64",
         [SECONDS * 1_000_000 + 123_456]),
        (pa.array([-1], pa.date32()), "date32", [-1]),
        (pa.array([5], pa.int64()), "interval", [5]),
        (pa.array([None], pa.null()), "int64", [None]),
        (pa.array([1, None], pa.uint32()), "yson", [yson.YsonUint64(1), None]),
        (pa.array(["x"]), "yson", [b"x"]),
    ],
)  # fmt: skip
def test_value_is_converted_by_the_type_of_the_column(array, type_v3, expected):
    """The pairs that the real parser takes, with its results."""
    assert _column(array, type_v3) == expected


@pytest.mark.parametrize(
    ("array", "type_v3"),
    [
        (pa.array([1], pa.int64()), "int32"),
        (pa.array([1], pa.uint64()), "int64"),
        (pa.array([1], pa.int64()), "uint64"),
        (pa.array([1]), "double"),
        (pa.array(["x"]), "int64"),
        (pa.array([1]), "utf8"),
        (pa.array([1]), "bool"),
        (pa.array([MOMENT], pa.timestamp("us")), "date"),
        (pa.array([-1], pa.date32()), "date"),
        (pa.array([dt.datetime(1969, 1, 1)], pa.timestamp("us")), "timestamp"),  # noqa: DTZ001
        (pa.array([5]), "interval64"),
        (pa.array(["x"]), decimal(5, 2)),
        (pa.array([b"[]"]), listed("int64")),
        (pa.array([[1]]), "yson"),
        (pa.array([{"a": 1}]), listed("int64")),
        (pa.array([{"b": 1}]), struct(a="int64")),
        (pa.array([{"a": 1, "b": 2}]), struct(a="int64")),
    ],
)
def test_value_that_does_not_fit_is_refused(array, type_v3):
    """The error names the column and both types."""
    with pytest.raises(YtError, match='Failed to parse column "c"'):
        _column(array, type_v3)


def test_decimal_is_encoded_with_the_arrow_precision():
    """The scale is not compared: a mismatch is a silent power of ten, as in the real parser."""
    values = [Decimal("-1.25"), None]
    narrow = decimal(5, 4)
    assert _column(pa.array(values, pa.decimal128(5, 2)), narrow) == [b"\x7f\xff\xff\x83", None]
    (wide, _) = _column(pa.array(values, pa.decimal128(35, 2)), narrow)
    assert len(wide) == 16


def test_composites_become_what_is_stored():
    """Structs are matched by name, and have their members in the order of the column."""
    kind = struct(b="string", a=optional("int64"))
    array = pa.array([{"a": 1, "b": "x"}, None, {"a": None, "b": "y"}])
    found = _column(array, optional(kind))
    assert found == [{b"b": b"x", b"a": 1}, None, {b"b": b"y", b"a": None}]
    assert list(found[0]) == [b"b", b"a"]
    listing = listed(optional("utf8"))
    assert _column(pa.array([["x", None], []]), listing) == [[b"x", None], []]
    mapping = dict_of("string", "uint64")
    array = pa.array([[("k", 1)]], pa.map_(pa.string(), pa.uint64()))
    assert _column(array, mapping) == [[[b"k", 1]]]


def test_marked_binary_is_parsed_as_yson():
    """Field metadata says that a column holds YSON."""
    marked = {"YtType": "yson"}
    listing = listed("int64")
    assert _column(pa.array([b"[1;2]", None]), listing, marked) == [[1, 2], None]
    assert _column(pa.array([b"{a=1}"]), "yson", marked) == [{b"a": 1}]
    with pytest.raises(YtError):
        _column(pa.array([b"{a="]), "yson", marked)


def test_stream_must_be_complete():
    """A stream without its end marker was cut off."""
    whole = stream_of(pa.table({"a": [1]}))
    for data in (whole[:-8], whole[:40], b"garbage!"):
        with pytest.raises(YtError):
            arrow_rows.loads(data, None)
    assert list(arrow_rows.loads(b"", None)) == []


@pytest.mark.parametrize("compression", [None, "zstd", "lz4"])
def test_compressed_body_is_read(compression):
    """Whatever the client's library compresses with."""
    table = pa.table({"c": ["a" * 1000, None], "d": pa.array(["x", "y"]).dictionary_encode()})
    rows = arrow_rows.loads(stream_of(table, compression), None)
    assert list(rows) == [{"c": b"a" * 1000, "d": b"x"}, {"c": None, "d": b"y"}]


NOTHING = pa.Array.from_buffers(pa.null(), 2**31 - 1, [None])


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (pa.array([bytes(1 << 17)]), "bytes without compression"),
        (pa.array([bytes(1 << 17)]).dictionary_encode(), "bytes without compression"),
        (pa.DictionaryArray.from_arrays(pa.array([0] * 100, pa.int8()), pa.array(["x" * 1000])),
         "bytes without compression"),
        (NOTHING, "values cannot be in"),
        (pa.FixedSizeListArray.from_arrays(NOTHING, 2**31 - 1), "values cannot be in"),
        (pa.RunEndEncodedArray.from_arrays([1 << 30], ["a"]), "values cannot be in"),
        (pa.array(["a"], pa.string_view()), "Unexpected arrow type"),
        (pa.array([["a"]], pa.list_(pa.dictionary(pa.int8(), pa.string()))), "Unexpected arrow type"),
    ],
)  # fmt: skip
def test_few_bytes_that_stand_for_very_many_are_refused(array, message, monkeypatch):
    """Before there is room made for them; these would take up to gigabytes."""
    monkeypatch.setattr(arrow_sizes, "_MOST_BYTES", 1 << 16)
    with pytest.raises(YtError) as caught:
        arrow_rows.loads(stream_of(pa.table({"c": array}), "zstd"), None)
    assert message in str(caught.value.to_dict())


def test_damaged_stream_is_read_or_refused():
    """Wherever the damage is, in the layout or in the values."""
    table = pa.table({"c": ["a", None], "d": pa.array(["x", "y"]).dictionary_encode()})
    whole = stream_of(table, "zstd")
    refused = 0
    for place in range(len(whole)):
        for damage in (b"\xff" * 8, bytes(8), b"\x01"):
            try:
                list(arrow_rows.loads(whole[:place] + damage + whole[place + len(damage) :], None))
            except YtError:
                refused += 1
    assert refused > len(whole)


def test_several_batches_are_one_body():
    """Batches come in order."""
    sink = io.BytesIO()
    table = pa.table({"a": pa.array(range(10))})
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=3)
    rows = list(arrow_rows.loads(sink.getvalue(), [{"name": "a", "type": "int64"}]))
    assert [row["a"] for row in rows] == list(range(10))


def test_older_parsers_store_some_values_as_strings():
    """Whatever the metadata say; composite columns are right in every version."""
    digits = decimal(38, 2)
    short = decimal(35, 2)
    columns = [("any", "yson"), ("wide", digits), ("short", short),
               ("list", listed("int64"))]  # fmt: skip
    values = [Decimal("-1.50"), None]
    marked = {"YtType": "yson"}
    fields = [
        pa.field("any", pa.binary(), metadata=marked),
        pa.field("wide", pa.decimal128(38, 2)),
        pa.field("short", pa.decimal128(35, 2)),
        pa.field("list", pa.binary(), metadata=marked),
    ]
    arrays = [pa.array([b"[1]", None]), *(pa.array(values, one.type) for one in fields[1:3]),
              pa.array([b"[1]", None])]  # fmt: skip
    body = stream_of(pa.Table.from_arrays(arrays, schema=pa.schema(fields)))
    described = [{"name": name, "type_v3": kind} for name, kind in columns]
    features = {"arrow_any_as_string": True, "arrow_wide_decimal_as_text": True}
    old = arrow_rows.loads(body, described, features)
    new = arrow_rows.loads(body, described)
    assert [row["any"] for row in old] == [b"[1]", None]
    assert [row["any"] for row in new] == [[1], None]
    assert [row["wide"] for row in old] == [b"-1.50", None]
    assert [len(row["wide"] or b"") for row in new] == [16, 0]
    for name in ("short", "list"):
        assert [row[name] for row in old] == [row[name] for row in new]


def test_rows_are_read_as_arrow(raw, client, tmp):
    """With the types of the columns, and as a body that a table takes again."""
    schema = [
        {"name": "k", "type": "int64", "sort_order": "ascending"},
        *({"name": name, "type": name} for name in ("uint8", "string", "utf8", "any", "date")),
        {"name": "timestamp", "type": "timestamp", "required": True},
    ]
    rows = [
        {"k": 1, "uint8": 255, "string": "\u044b", "utf8": "\u044b", "any": {"a": [1]}, "date": 1},
        {"k": 2, "uint8": None, "string": None, "utf8": None, "any": None, "date": None},
    ]
    client.create("table", f"{tmp}/t", attributes={"schema": schema})
    client.write_table(f"{tmp}/t", [{**row, "timestamp": 5} for row in rows])
    marks = {"control_attributes": {"enable_row_index": True}}
    answer = _read_arrow(raw, f"{tmp}/t[#1:]", **marks)
    found = pa.ipc.open_stream(answer).read_all()
    kinds = ["int64", "uint8", "binary", "string", "binary", "date32[day]", "timestamp[us]"]
    assert list(map(str, found.schema.types)) == [*kinds, "int64"]
    assert found.schema.field("any").metadata == {b"YtType": b"yson"}
    assert [field.nullable for field in found.schema] == [*[True] * 6, False, True]
    assert found.column("$row_index").to_pylist() == [1]
    client.create("table", f"{tmp}/again", attributes={"schema": schema})
    again = {"path": f"{tmp}/again", "input_format": "arrow"}
    assert raw.command("PUT", "write_table", again, _read_arrow(raw, f"{tmp}/t")).status == 200
    assert list(client.read_table(f"{tmp}/again")) == list(client.read_table(f"{tmp}/t"))


def test_arrow_without_rows_is_the_end_of_astream_of(raw, client, tmp):
    """As the real writer has it: it learns the columns with the first rows."""
    client.create("table", f"{tmp}/t", attributes={"schema": [{"name": "v", "type": "int64"}]})
    assert _read_arrow(raw, f"{tmp}/t") == b"\0\0\0\0"


def _read_arrow(raw, path, **parameters):
    answer = raw.command(
        "GET", "read_table", {"path": path, "output_format": "arrow", **parameters}
    )
    assert answer.status == 200, answer.error
    return answer.body
