"""Pulled rows as Arrow batches."""

import datetime as dt
from decimal import Decimal
from uuid import UUID

import numpy as np
import pyarrow as pa
import pytest
import yt.yson
from yt.yson.yson_types import YsonUint64

from tests.kinds import RAW_VALUES, decimal, dict_of, listed, optional, struct, tuple_of, variant
from yt_exactly_once.codec import yson_scan
from yt_exactly_once.codec.arrow_types import arrow_type_of
from yt_exactly_once.codec.row_hash import row_hashes
from yt_exactly_once.codec.rows import WireFormat, decode, encode
from yt_exactly_once.codec.schema import SOURCE_FIELDS, TableSchema, arrow_schema_of, check_frame
from yt_exactly_once.codec.types import parse_type
from yt_exactly_once.codec.yson_reader import parse_rows
from yt_exactly_once.codec.yson_scan import scan_rows
from yt_exactly_once.errors import EncodingError


def pulled(values, name="c"):
    """Write rows as the cluster does: service columns first, binary YSON."""
    rows = [{"$tablet_index": 4, "$row_index": 90 + n, name: v} for n, v in enumerate(values)]
    return yt.yson.dumps(rows, yson_type="list_fragment", yson_format="binary")


def read(values, description, **more):
    table = TableSchema.from_yt([{"name": "c", "type_v3": description}])
    return decode(pulled(values), arrow_schema_of(table, **more))


U = YsonUint64
POISON = b"\xff\xfe\0"


@pytest.mark.parametrize(
    ("values", "description", "kind", "expected"),
    [
        ([-(2**63), 2**63 - 1], "int64", pa.int64(), None),
        ([-128, 127], "int8", pa.int8(), None),
        ([U(255)], "uint8", pa.int16(), [255]),
        ([U(2**32 - 1)], "uint32", pa.int64(), [2**32 - 1]),
        ([U(0), U(2**64 - 1)], "uint64", pa.decimal128(20, 0), [Decimal(0), Decimal(2**64 - 1)]),
        ([1.5, float("inf")], "double", pa.float64(), None),
        ([0.1], "float", pa.float32(), [pytest.approx(0.1)]),
        ([True, False], "bool", pa.bool_(), None),
        ([b"", "é".encode(), b"x" * 5000], "string", pa.string(), ["", "é", "x" * 5000]),
        (["é"], "utf8", pa.string(), None),
        ([b"0123456789abcdef"], "uuid", pa.binary(), None),
        ([b"\xff\x00"], "tz_date", pa.binary(), None),
        ([U(0)], "date", pa.date32(), [dt.date(1970, 1, 1)]),
        ([-3653], "date32", pa.date32(), [dt.date(1960, 1, 1)]),
        ([U(1)], "datetime", pa.timestamp("us", "UTC"),
         [dt.datetime(1970, 1, 1, 0, 0, 1, tzinfo=dt.UTC)]),
        ([-1], "timestamp64", pa.timestamp("us", "UTC"),
         [dt.datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=dt.UTC)]),
        ([-1], "interval64", pa.duration("us"), [dt.timedelta(microseconds=-1)]),
        ([b"\x80\x00\x00\x7d", b"\x7f\xff\xff\xff"], decimal(9, 2), pa.decimal128(9, 2),
         [Decimal("1.25"), Decimal("-0.01")]),
        ([(5 + 2**255).to_bytes(32, "big")], decimal(76, 0), pa.decimal256(76, 0), [Decimal(5)]),
        ([None, 5], optional("int64"), pa.int64(), None),
        ([None, b"a"], optional("string"), pa.string(), [None, "a"]),
        ([None, U(7)], optional("uint64"), pa.decimal128(20, 0), [None, Decimal(7)]),
        ([None, b"\x80\x00\x00\x01"], optional(decimal(1, 0)), pa.decimal128(1, 0),
         [None, Decimal(1)]),
        ([None, None], "void", pa.null(), None),
    ],
)  # fmt: skip
def test_simple_column_is_read_exactly(values, description, kind, expected):
    """Each type in the Arrow type Spark has for it."""
    batch = read(values, description)
    assert batch.schema.field("c").type == kind
    batch.validate(full=True)
    assert batch.column("c").to_pylist() == (values if expected is None else expected)


VARIANT = variant(a="int8", b=optional("utf8"))


@pytest.mark.parametrize(
    ("values", "description", "expected"),
    [
        ([[1, 2], []], listed("int64"), [[1, 2], []]),
        ([[["k", U(1)]]], dict_of("utf8", "uint8"), [[("k", 1)]]),
        ([{"a": 1, "b": None}, {"a": 2}, None],
         optional(struct(a="int8", b=optional("date32"))),
         [{"a": 1, "b": None}, {"a": 2, "b": None}, None]),
        ([[1, "x"]], tuple_of("int8", "utf8"), [{"_1": 1, "_2": "x"}]),
        ([["a", 1], ["b", None], ["b", "x"]], VARIANT,
         [{"_va": 1, "_vb": None}, {"_va": None, "_vb": {"value": None}},
          {"_va": None, "_vb": {"value": "x"}}]),
        ([[0, 1]], variant("int8"), [{"_v_1": 1}]),
        ([None, [None], [5]], optional(optional("int64")), [None, {"value": None}, {"value": 5}]),
        ([None, [U(86400)]], optional(listed("datetime")),
         [None, [dt.datetime(1970, 1, 2, tzinfo=dt.UTC)]]),
    ],
)  # fmt: skip
def test_composite_column_is_read_exactly(values, description, expected):
    """Members by name, variants as a struct with one field set, as SPYT has them."""
    batch = read(values, description)
    batch.validate(full=True)
    assert batch.column("c").to_pylist() == expected


def test_any_column_is_read_as_yson():
    """The bytes parse to the very value, unsignedness and attributes inside included."""
    value = {"a": [1, U(2), None, 1.5, True, "é"]}
    batch = read([value, None, 5], optional("yson"))
    first, second, third = batch.column("c").to_pylist()
    again = yt.yson.loads(first, always_create_attributes=False)
    assert again == value
    assert isinstance(again["a"][1], U)
    assert second is None
    assert yt.yson.loads(third) == 5


def test_any_column_of_strings_alone_is_read_as_yson():
    """Rows that are laid out alike are read by vector: the bytes are YSON there, too, and not the string."""
    plain = read(["a", ""], optional("yson")).column("c").to_pylist()
    inside = read([["a"], [""]], listed(optional("yson"))).column("c").to_pylist()
    for told in (plain, [one for (one,) in inside]):
        assert [yt.yson.loads(one) for one in told] == ["a", ""]


def test_source_columns_come_under_the_names_asked_for():
    """The service columns of a pull tell partition and row."""
    table = TableSchema.from_yt([{"name": "c", "type_v3": "int64"}])
    batch = decode(pulled([7, 8]), pa.schema([*SOURCE_FIELDS, *arrow_schema_of(table)]))
    assert batch.to_pylist() == [
        {"c": 7, "__spyt_streaming_src_tablet_index": 4, "__spyt_streaming_src_row_index": 90},
        {"c": 8, "__spyt_streaming_src_tablet_index": 4, "__spyt_streaming_src_row_index": 91},
    ]


@pytest.mark.parametrize("kind", ["utf8", optional("utf8"), listed("utf8")])
def test_bytes_that_are_no_text_are_an_error_with_coordinates(kind):
    """They are never replaced; the row is named, the bytes are not."""
    values = [b"fine", b"\xff\xfe"]
    with pytest.raises(EncodingError, match="not valid UTF-8") as caught:
        read([[v] for v in values] if kind == listed("utf8") else values, kind)
    assert caught.value.where == {"column": "c", "source_partition": 4, "source_row": 91}
    assert "xff" not in str(caught.value)


@pytest.mark.parametrize("wire", list(WireFormat))
@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("string", POISON),
        (optional("string"), POISON),
        (listed("string"), [POISON, b"fine"]),
        (dict_of("string", "string"), [[POISON, POISON]]),
        (struct(a=optional("string"), b="int8"), {"a": POISON, "b": 1}),
    ],
)
def test_bytes_that_are_no_text_pass_through_a_string_column(kind, value, wire):
    """As text they are the same bytes as with the option, and are written and hashed as those are."""
    table = TableSchema.from_yt([{"name": "c", "type_v3": kind}])
    as_text, as_bytes = (read([value] * 3, kind, binary_strings=one) for one in (False, True))
    assert as_text.schema == arrow_schema_of(table)
    assert as_text.column("c").view(as_bytes.schema.field("c").type).equals(as_bytes.column("c"))
    plan = check_frame(as_text.schema, table, target="//t", sorted=False)
    assert bytes(encode(as_text, plan, wire)) == bytes(encode(as_bytes, plan, wire))
    assert row_hashes(as_text, plan.columns).tolist() == row_hashes(as_bytes, plan.columns).tolist()


@pytest.mark.parametrize("kind", ["uuid", optional("uuid"), listed(optional("uuid"))])
def test_uuid_is_read_as_the_text_that_is_written(kind):
    """As YQL shows it: the first three numbers with their last byte first."""
    stored = [bytes(range(16)), b"\xff" * 16]
    texts = [str(UUID(bytes_le=value)) for value in stored]
    values, expected = ([stored, []], [texts, []]) if "list" in str(kind) else (stored, texts)
    if kind == optional("uuid"):
        values, expected = [*values, None], [*expected, None]
    as_text, as_bytes = (read(values, kind, uuid_text=one) for one in (True, False))
    assert as_text.column("c").to_pylist() == expected
    plan = check_frame(
        as_text.schema,
        TableSchema.from_yt([{"name": "c", "type_v3": kind}]),
        target="//t",
        sorted=False,
    )
    assert bytes(encode(as_text, plan, WireFormat.YSON)) == bytes(
        encode(as_bytes, plan, WireFormat.YSON)
    )


@pytest.mark.parametrize(
    ("values", "description", "problem"),
    [
        ([1, b"text"], "int64", "another type"),
        ([b"text", 1], "string", "another type"),
        ([1, 300], "int8", "it does not fit int8"),
        ([1, None], "int64", "null is not allowed"),
        ([[1], [None]], listed("int64"), "null is not allowed"),
        ([{"a": 1}, {}], struct(a="int8"), "null is not allowed"),
        ([[1], 5], listed("int64"), "another type"),
        ([[1], "text"], listed("int64"), "another type"),
        ([["a", 1], ["z", 1]], VARIANT, "another type"),
        ([b"\x80\x00\x00\x01", b"\x80"], decimal(9, 0), "has 4 bytes"),
        ([b"\x80\x00\x00\x01", b"\xff\xff\xff\xff"], decimal(9, 0), "NaN, infinite"),
        ([0, 2**61], "datetime64", "it does not fit timestamp"),
    ],
)  # fmt: skip
def test_row_that_is_not_what_the_schema_says_is_an_error(values, description, problem):
    """A queue whose schema changed is told by column and row."""
    with pytest.raises(EncodingError, match=problem) as caught:
        read(values, description)
    assert caught.value.where == {"column": "c", "source_partition": 4, "source_row": 91}


def test_missing_column_is_null_where_null_is_allowed():
    """And an error where it is not."""
    table = TableSchema.from_yt([{"name": "d", "type_v3": optional("int64")}])
    assert decode(pulled([1, 2]), arrow_schema_of(table)).column("d").to_pylist() == [None, None]
    table = TableSchema.from_yt([{"name": "d", "type_v3": "int64"}])
    with pytest.raises(EncodingError, match="null is not allowed"):
        decode(pulled([1, 2]), arrow_schema_of(table))


@pytest.mark.parametrize("rows", [b"{", b"[1;2]", b"5;"])
def test_bytes_that_are_no_rows_are_an_error(rows):
    """Half an answer is not taken for a whole one."""
    table = TableSchema.from_yt([{"name": "c", "type_v3": "int64"}])
    with pytest.raises(EncodingError, match="not a list of rows"):
        decode(rows, arrow_schema_of(table))


def test_no_rows_are_an_empty_batch():
    """With all its columns."""
    batch = read([], listed("int64"))
    assert (batch.num_rows, batch.schema.names) == (0, ["c"])


def test_text_yson_is_read_like_binary():
    """Rows may come from a proxy that was asked for text."""
    table = TableSchema.from_yt(
        [{"name": "a", "type_v3": "uint64"}, {"name": "b", "type_v3": optional("bool")}]
    )
    rows = b"{a=5u; b=%true};\n{b=#; a=6u};\n"
    assert decode(rows, arrow_schema_of(table)).to_pylist() == [
        {"a": Decimal(5), "b": True},
        {"a": Decimal(6), "b": None},
    ]


def asked(description):
    """Return a type, and what the source yields for it."""
    logical = parse_type(description)
    return logical, arrow_type_of(logical, binary_strings=True)


INT, STRING = asked("int64"), asked("string")
KEY = b"{\x01\x02a=\x02"


@pytest.mark.parametrize(
    "rows",
    [
        KEY + b"\x02};" + KEY + b"\x04};",
        KEY + b"\x02};" + KEY + b"\x04}",
        KEY + b"\x02;};" + KEY + b"\x04;};",
    ],
)
def test_rows_are_scanned_however_they_are_closed(rows):
    """The last separators are optional in YSON."""
    assert scan_rows(rows, {"a": INT})["a"].to_pylist() == [1, 2]


@pytest.mark.parametrize(
    "rows",
    [
        KEY + b"\x02};" + KEY + b"\x04;};",
        KEY + b"\x02};{};",
        KEY + b"\x02};{\x01\x02b=\x02\x04};",
        KEY + b"\x02};" + KEY + b"\x04};#;",
        KEY + b"\x02};\n" + KEY + b"\x04};",
        KEY + b"\x02};" + KEY + b"\x04;\x01\x02b=#};",
        KEY + b"\x02};{\x01\x02a=\x06\x04};",
        KEY + b"\x02};{\x01\x02a=<\x01\x02x=#>\x02\x04};",
        KEY + b"\x02;\x01\x02a=\x02\x02};",
        b"{a=1};",
        b"[];",
        b"{};{};",
        KEY + b"\x02};" + KEY + b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01};",
        KEY + b"\x02};" + KEY + b"\x04",
        KEY + b"\x02};" + KEY + b"\x84",
    ],
)
def test_rows_of_another_layout_are_not_scanned(rows):
    """Uneven, damaged or unusual rows are left to the parser."""
    assert scan_rows(rows, {"a": INT}) is None


def test_mistake_of_the_scan_is_no_reason_to_parse(monkeypatch):
    """It would make every read slow, and nobody would notice."""
    monkeypatch.setattr(yson_scan._Scan, "columns", lambda _scan: np.zeros(2) + np.zeros(3))
    with pytest.raises(ValueError, match="broadcast"):
        scan_rows(KEY + b"\x02};" + KEY + b"\x04};", {"a": INT})


def test_string_that_looks_like_rows_is_not_taken_for_rows():
    """Bytes inside a value never become rows of their own, whichever way they are read."""
    first = yt.yson.dumps([{"a": 1}], yson_type="list_fragment", yson_format="binary")
    disguised = b"x};" + first
    rows = [{"a": disguised}, {"a": b"y"}]
    payload = yt.yson.dumps(rows, yson_type="list_fragment", yson_format="binary")
    table = TableSchema.from_yt([{"name": "a", "type_v3": "string"}])
    schema = arrow_schema_of(table, binary_strings=True)
    assert decode(payload, schema).column("a").to_pylist() == [disguised, b"y"]


def test_string_longer_than_the_rows_is_not_scanned():
    """A length that reaches beyond the end is damage."""
    rows = b"{\x01\x02a=\x01\x02x};{\x01\x02a=\x01\x7ex};"
    assert scan_rows(rows, {"a": STRING}) is None
    with pytest.raises(ValueError, match="not valid YSON"):
        parse_rows(rows, {"a": STRING})


MEMBERS = {"é": "int64", "b": optional("string")}
STRUCT = struct(**MEMBERS)


@pytest.mark.parametrize("kind", ["int64", listed("int64"), STRUCT], ids=str)
def test_null_beside_a_long_text_is_null(kind):
    """The columns of such a row are parsed one by one; one that is required has none."""
    rows = [{"a": "x" * (1 << 17), "c": None}]
    row = yt.yson.dumps(rows, yson_type="list_fragment", yson_format="binary")
    assert parse_rows(row, {"c": asked(optional(kind))})["c"].to_pylist() == [None]
    with pytest.raises(EncodingError, match="null"):
        parse_rows(row, {"c": asked(kind)})


@pytest.mark.parametrize(
    "values",
    [
        [1, U(2), 1.5, "text", None, True, False, "x" * 300, -(2**63)],
        [[1, [b"];", {"a": 1.5}]], {}, [], None, 5, {"k": [{}]}],
    ],
    ids=["simple", "composite"],
)
def test_columns_that_nobody_asked_for_are_stepped_over(values):
    """Whatever value they hold, and different ones in different rows."""
    rows = [{"skipped": v, "kept": n, "last": v} for n, v in enumerate(values)]
    payload = yt.yson.dumps(rows, yson_type="list_fragment", yson_format="binary")
    scanned = scan_rows(payload, {"kept": INT})
    assert scanned["kept"].to_pylist() == list(range(len(values)))


@pytest.mark.parametrize(
    "description",
    [
        listed("int64"),
        listed(listed(optional("int64"))),
        listed(optional(STRUCT)),
        tuple_of(*MEMBERS.values()),
        dict_of("string", optional("int64")),
        struct(),
        variant(**MEMBERS),
        STRUCT,
        optional(optional("int64")),
        optional(optional(STRUCT)),
    ],
    ids=str,
)
def test_composite_values_are_scanned_as_they_are_parsed(description):
    """Whatever their bytes are: a scan finds the same, or leaves them to the parser."""
    is_optional = description["type_name"] == "optional"
    wanted = {"c": asked(description if is_optional else optional(description))}
    scans = 0
    for raw in RAW_VALUES:
        payload = b"{\x01\x02c=" + raw + b";};{\x01\x02c=#;};"
        scanned = scan_rows(payload, wanted)
        if scanned is not None:
            fast, slow = scanned["c"], parse_rows(payload, wanted)["c"]
            assert fast.equals(slow), raw
            fast.validate(full=True)
            scans += 1
    # Null alone, or something more.
    assert scans > 1 or description["type_name"] == "variant"


def test_few_long_lists_are_left_to_the_parser():
    """A round costs the same for one value as for a thousand."""
    for length, is_scanned in ((50, True), (1_000, False)):
        rows = [{"c": list(range(length))}, {"c": []}]
        payload = yt.yson.dumps(rows, yson_type="list_fragment", yson_format="binary")
        scanned = scan_rows(payload, {"c": asked(listed("int64"))})
        assert (scanned is not None) == is_scanned
