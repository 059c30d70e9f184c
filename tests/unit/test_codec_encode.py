"""Batches as payloads, read back by the C++ parser and by Arrow."""

import datetime as dt
import importlib
import pickle
import sys
from decimal import Decimal
from uuid import UUID

import pyarrow as pa
import pytest
import yt.yson
from yt.yson.yson_types import YsonUint64

from tests.kinds import decimal, dict_of, listed, optional, struct, tuple_of, variant
from yt_exactly_once.codec import bindings, nested
from yt_exactly_once.codec.rows import WireFormat, encode, encode_empty, row_fragments
from yt_exactly_once.codec.schema import SOURCE_COLUMNS, TableSchema, check_frame
from yt_exactly_once.codec.types import parse_type
from yt_exactly_once.codec.yson_writer import Shape, stored
from yt_exactly_once.errors import ConfigError, EncodingError

UTC = pa.timestamp("us", "UTC")
LAST_DATE = 49_672


def planned(array, description):
    """Return a batch of one column `c`, and the plan to write it as that type."""
    table = TableSchema.from_yt([{"name": "c", "type_v3": description}])
    batch = pa.RecordBatch.from_pydict({"c": array})
    return batch, check_frame(batch.schema, table, target="//t", sorted=False)


def encoded(array, description, wire=WireFormat.YSON, **more):
    """Encode one column `c` of that type, beside the source columns."""
    table = TableSchema.from_yt([{"name": "c", "type_v3": description}])
    sources = {name: pa.array(range(70, 70 + len(array))) for name in SOURCE_COLUMNS}
    batch = pa.RecordBatch.from_pydict({"c": array, **sources})
    plan = check_frame(batch.schema, table, target="//t", sorted=False)
    return encode(batch, plan, wire, **more)


ANYS = listed(optional("yson"))


def rows(payload):
    return list(
        yt.yson.loads(
            payload, yson_type="list_fragment", encoding=None, always_create_attributes=False
        )
    )


def values(array, description):
    return [row[b"c"] for row in rows(encoded(array, description))]


def arrow_table(payload):
    with pa.ipc.open_stream(payload) as stream:
        return stream.read_all()


@pytest.mark.parametrize(
    ("array", "description", "expected"),
    [
        (pa.array([-(2**63), -1, 0, 63, 64, 2**63 - 1]), "int64", None),
        (pa.array([0, 127, 128, 2**63, 2**64 - 1], pa.uint64()), "uint64", None),
        (pa.array([Decimal(2**64 - 1), Decimal(0)], pa.decimal128(20, 0)), "uint64",
         [2**64 - 1, 0]),
        (pa.array([-128, 127], pa.int8()), "int64", None),
        (pa.array([0.0, -0.0, 1.5, float("inf"), -float("inf")]), "double", None),
        (pa.array([True, False]), "bool", None),
        (pa.array(["", "é", "x" * 70_000]), "utf8", [b"", "é".encode(), b"x" * 70_000]),
        (pa.array([b"\xff\x00", b""]), "string", None),
        (pa.array([b"text"]), "utf8", None),
        (pa.array([bytes(range(16))], pa.binary(16)), "uuid", [bytes(range(16))]),
        (pa.array([str(UUID(bytes_le=bytes(range(16)))), "F" * 8 + "-FFFF" * 3 + "-" + "F" * 12]), "uuid",
         [bytes(range(16)), b"\xff" * 16]),
        (pa.array([0, LAST_DATE], pa.int32()).view(pa.date32()), "date", [0, LAST_DATE]),
        (pa.array([dt.date(1960, 1, 1)]), "date32", [-3653]),
        (pa.array([0, 5_000_000], UTC), "datetime", [0, 5]),
        (pa.array([-5_000_000], UTC), "datetime64", [-5]),
        (pa.array([7_000], pa.timestamp("ns", "UTC")), "timestamp", [7]),
        (pa.array([7], pa.timestamp("ms", "Europe/Paris")), "timestamp", [7_000]),
        (pa.array([-1], UTC), "timestamp64", [-1]),
        (pa.array([-1], pa.duration("s")), "interval", [-1_000_000]),
        (pa.array([2**62], pa.duration("us")), "interval64", [2**62]),
        (pa.array([Decimal("1.25"), Decimal("-0.01")], pa.decimal128(9, 2)), decimal(9, 2),
         [b"\x80\x00\x00\x7d", b"\x7f\xff\xff\xff"]),
        (pa.array([Decimal("1.25")], pa.decimal128(9, 2)), decimal(10, 2),
         [b"\x80" + bytes(6) + b"\x7d"]),
        (pa.array([Decimal(-1)], pa.decimal128(38, 0)), decimal(76, 0),
         [b"\x7f" + b"\xff" * 31]),
        (pa.array([Decimal(10**38 - 1)], pa.decimal128(38, 0)), decimal(38, 0),
         [(10**38 - 1 + 2**127).to_bytes(16, "big")]),
        (pa.array([None, None], pa.null()), optional("int64"), [None, None]),
        (pa.array([None, '{"a": [1]}', "5"]), optional("json"), [None, b'{"a": [1]}', b"5"]),
    ],
)  # fmt: skip
def test_value_reaches_the_cluster_exactly(array, description, expected):
    """Every type at its ends, in the form the cluster keeps."""
    expected = array.to_pylist() if expected is None else expected
    assert list(map(repr, values(array, description))) == list(map(repr, expected))


def test_unsigned_columns_are_sent_unsigned_and_signed_ones_signed():
    """The cluster tells the two apart; dates and instants count as unsigned."""
    assert all(isinstance(v, YsonUint64) for v in values(pa.array([1, 2]), "uint64"))
    assert not any(isinstance(v, YsonUint64) for v in values(pa.array([1, 2]), "int64"))
    assert isinstance(values(pa.array([1], UTC), "timestamp")[0], YsonUint64)
    assert not isinstance(values(pa.array([1], UTC), "timestamp64")[0], YsonUint64)


@pytest.mark.parametrize("wire", list(WireFormat))
@pytest.mark.parametrize(
    ("array", "description", "problem"),
    [
        (pa.array([5, -1]), "uint64", "outside the range of uint64"),
        (pa.array([0, 256], pa.int16()), "uint8", "outside the range of uint8"),
        (pa.array([Decimal(0), Decimal(2**64)], pa.decimal128(20, 0)), "uint64", "outside"),
        (pa.array([dt.date(2000, 1, 1), dt.date(1969, 12, 31)]), "date", "outside"),
        (pa.array([0, LAST_DATE + 1], pa.int32()).view(pa.date32()), "date", "outside"),
        (pa.array([0, -1], UTC), "timestamp", "outside the range of timestamp"),
        (pa.array([0, 1_500_000], UTC), "datetime", "finer than one second"),
        (pa.array([0, 1], pa.timestamp("ns", "UTC")), "timestamp64", "finer than one microsecond"),
        (pa.array([0, 2**62], pa.timestamp("s", "UTC")), "timestamp64", "outside"),
        (pa.array([0, 2**62], pa.duration("us")), "interval", "outside the range of interval"),
        (pa.array([b"ok", b"\xff"]), "utf8", "not valid UTF-8"),
        (pa.array(["{}", "{"]), "json", "not valid JSON"),
        (pa.array([b"1", b"NaN"]), "json", "not valid JSON"),
        (pa.array(["[]", "[" * 100_000]), "json", "not valid JSON"),
        (pa.array([b"0123456789abcdef", b"short"]), "uuid", "16 bytes"),
        *((pa.array([str(UUID(int=0)), text]), "uuid", "no uuid, such as")
          for text in ("", "0" * 32, "0" * 36, f"{UUID(int=0)}0", str(UUID(int=0))[:-1] + "g",
                       str(UUID(int=0))[:-1] + "\u044b")),
        (pa.array([1, None]), "int64", "null"),
        (pa.array([[1], [2, None]]), listed("int64"), "null"),
        (pa.array(["[1e308]", '{"a": -1e309}']), "json", "number outside the range of double"),
        (pa.array(["1", "1" + "0" * 309]), "json", "number outside the range of double"),
        (pa.array([r'"\ud83d\ude00"', r'{"a": ["\ude00\ud83d"]}']), "json", "half of a surrogate"),
        (pa.array([r'"\\ud800"', r'{"\uD800": 1}']), "json", "half of a surrogate"),
    ],
)  # fmt: skip
def test_unfit_value_is_an_error_with_its_coordinates(array, description, problem, wire):
    """The column and the source row are named, the value is not; nothing is encoded."""
    with pytest.raises(EncodingError, match=problem) as caught:
        encoded(array, description, wire)
    assert caught.value.where == {
        "column": "c",
        "target": "//t",
        "source_partition": 71,
        "source_row": 71,
    }
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


@pytest.mark.parametrize(
    ("array", "problem"),
    [
        (pa.array([b"{a=1}", b"{a="]), "not one YSON value"),
        (pa.array([b"1", b"1;2"]), "not one YSON value"),
        (pa.array([b"1", b""]), "not one YSON value"),
        (pa.array([b"1", b"1\0"]), "not one YSON value"),
        (pa.array([b"1", b"\x02\x02\0[]"]), "not one YSON value"),
        (pa.array([b"1", b" <a=1>2"]), "attributes at its top"),
        (pa.array([b"%inf", b"[1e999]"]), "number outside the range of double"),
        (pa.array([b"{a={a=1};b={a=1}}", b"[{a=1;b=2;\x01\x02a=3}]"]), "a key twice"),
        (pa.array([b"1", b"[<a=1;a=1>2]"]), "a key twice"),
        (pa.array([b"1", b'{""=1;\x01\x80\x00=2}']), "a key twice"),
        (pa.array([[("k", 1), ("l", 2)], [("k", 1), ("l", 2), ("k", 3)]],
                  pa.map_(pa.string(), pa.int64())), "a key twice"),
    ],
)  # fmt: skip
def test_value_that_any_cannot_hold_is_an_error(array, problem):
    """Whatever a reader of the YSON could not see is never dropped without a word."""
    with pytest.raises(EncodingError, match=problem) as caught:
        encoded(array, optional("yson"))
    assert caught.value.where["source_row"] == 71
    with pytest.raises(EncodingError, match=problem):
        encoded(pa.ListArray.from_arrays(pa.array(range(len(array) + 1), pa.int32()), array), ANYS)


def test_entity_is_no_value_of_a_required_column():
    """The cluster takes it for null, and refuses the whole commit."""
    with pytest.raises(EncodingError, match="it is null") as caught:
        encoded(pa.array([b"1", b" # "]), "yson")
    assert caught.value.where["source_row"] == 71
    assert values(pa.array([b"[#]"]), "yson") == [[None]]


@pytest.mark.parametrize(
    ("given", "binary"),
    [
        (b" 1 ", b"\x02\x02"),
        (b"{ a = [ 1u ; %true ; # ] ; }", b"{\x01\x02a=[\x06\x01;\x05;#;];}"),
        (b'"a\\"b;\\x00"', b'\x01\x0aa"b;\0'),
        (b"[<b=x>{};-0.0]", b"[<\x01\x02b=\x01\x02x;>{};\x03" + bytes(7) + b"\x80;]"),
        (b"[\x01\x04a ;text;\x02\x03]", b"[\x01\x04a ;\x01\x08text;\x02\x03;]"),
        (b"[\x06\xff\x01;]", b"[\x06\xff\x01;]"),
        (b"%-inf", b"\x03" + bytes(6) + b"\xf0\xff"),
    ],
)
def test_text_yson_of_any_columns_becomes_binary(given, binary):
    """Some readers of the cluster take binary strings only; what a read returns stays as it is."""
    (fragment,) = row_fragments(*planned(pa.array([given]), optional("yson"))).to_pylist()
    assert fragment == b"{\x01\x02c=" + binary + b";};"


def test_unfit_value_without_source_columns_is_named_by_its_place():
    """Frames that come from elsewhere have at least a position."""
    table = TableSchema.from_yt([{"name": "c", "type_v3": "int64"}])
    batch = pa.RecordBatch.from_pydict({"c": pa.array([1, 2, None])})
    plan = check_frame(batch.schema, table, target="//t", sorted=False)
    with pytest.raises(EncodingError) as caught:
        encode(batch, plan, WireFormat.YSON)
    assert caught.value.where["row_of_chunk"] == 2


@pytest.mark.parametrize("wire", WireFormat)
def test_unfit_value_inside_composite_values_is_found(wire):
    """The error names the row and the way down, through lists, maps, structs and nulls."""
    description = optional(listed(dict_of("utf8", struct(n="uint8"))))
    kind = pa.list_(pa.map_(pa.string(), pa.struct([("n", pa.int16())])))
    array = pa.array(
        [None, [], [[("a", {"n": 1})], []], None, [[("b", {"n": 2})], [("c", {"n": -3})]]], kind
    )
    with pytest.raises(EncodingError) as caught:
        encoded(array, description, wire)
    assert "column c[][value].n, " in str(caught.value)
    assert caught.value.where["source_row"] == 74


VARIANT = variant(a="int8", b=optional("utf8"))
STRUCT = struct(x="int8", y=optional("utf8"))


@pytest.mark.parametrize(
    ("array", "description", "named", "positional"),
    [
        (pa.array([{"y": "é", "x": 1}, None], pa.struct([("y", pa.string()), ("x", pa.int8())])),
         optional(STRUCT),
         [{b"x": 1, b"y": "é".encode()}, None], [[1, "é".encode()], None]),
        (pa.array([{"x": 1}], pa.struct([("x", pa.int8())])), STRUCT,
         [{b"x": 1, b"y": None}], [[1, None]]),
        (pa.array([{"_va": 1, "_vb": None}, {"_va": None, "_vb": {"value": None}}],
                  pa.struct([("_va", pa.int8()), ("_vb", pa.struct([("value", pa.string())]))])),
         VARIANT, [[b"a", 1], [b"b", None]], [[0, 1], [1, None]]),
        (pa.array([{"_1": 1, "_2": "z"}], pa.struct([("_1", pa.int64()), ("_2", pa.string())])),
         tuple_of("int64", "utf8"), [[1, b"z"]], [[1, b"z"]]),
        (pa.array([[("a", 1), ("b", None)]], pa.map_(pa.string(), pa.int64())),
         dict_of("utf8", optional("int64")),
         [[[b"a", 1], [b"b", None]]], [[[b"a", 1], [b"b", None]]]),
        (pa.array([None, {"value": None}, {"value": 5}]), optional(optional("int64")),
         [None, [None], [5]], [None, [None], [5]]),
        (pa.array([[1, None], []]), listed(optional("int64")), [[1, None], []], [[1, None], []]),
        (pa.array([[None, None]], pa.list_(pa.null())),
         listed(optional(listed("int64"))),
         [[None, None]], [[None, None]]),
    ],
)  # fmt: skip
def test_composite_value_is_named_in_yson_and_positional_in_arrow(
    array, description, named, positional
):
    """Rows of YSON name members; Arrow requests carry values as the cluster keeps them."""
    assert values(array, description) == named
    table = arrow_table(encoded(array, description, WireFormat.ARROW))
    found = table.column("c").to_pylist()
    if pa.types.is_nested(table.schema.field("c").type):
        assert list(map(by_position, found)) == positional
        return
    assert table.schema.field("c").metadata == {b"YtType": b"yson"}
    parsed = [
        None if v is None else yt.yson.loads(v, encoding=None, always_create_attributes=False)
        for v in found
    ]
    assert parsed == positional


def by_position(value):
    """Return what the proxy makes of a nested value of Arrow."""
    if isinstance(value, dict):
        return [by_position(part) for part in value.values()]
    return [by_position(part) for part in value] if isinstance(value, list | tuple) else value


@pytest.mark.parametrize(
    ("description", "is_carried"),
    [
        (listed("utf8"), True),
        (optional(listed(optional(struct(a="int8", b=listed("bool"))))), True),
        (dict_of("string", listed("date")), True),
        (struct(a="float", b=dict_of("int64", "timestamp64")), True),
        ("int64", False),
        (struct(), False),
        (tuple_of("int64"), False),
        (listed(tuple_of("int64")), False),
        (variant(a="int8"), False),
        (listed("yson"), False),
        (listed(decimal(5, 2)), False),
        (listed("interval64"), False),
        (listed(optional(optional("int64"))), False),
        (dict_of("utf8", "null"), False),
    ],
)
def test_arrow_carries_what_every_proxy_makes_the_same_of(description, is_carried):
    """Lists, structs and maps of plain values; others are YSON, as some versions refuse or misread them."""
    assert (nested.carrier(parse_type(description)) is not None) == is_carried


@pytest.mark.parametrize(
    "array",
    [
        pa.array([[{"a": "x" * 70, "b": 1}]]),
        pa.array([[{"a": "x"}]]),
        pa.array([[{"a": "x", "b": None}]]),
        pa.array([[]], pa.list_(pa.struct([("a", pa.string()), ("b", pa.null())]))),
    ],
    ids=["long", "member absent", "only nulls", "no items"],
)
def test_value_whose_length_must_be_known_is_yson(array, monkeypatch):
    """Other values are shorter than the cluster's limit by far, whatever it makes of them."""
    monkeypatch.setattr(nested, "LONGEST_CARRIED", 1_000)
    description = listed(struct(a="utf8", b=optional("int64")))
    sent = arrow_table(encoded(array, description, WireFormat.ARROW))
    assert sent.schema.field("c").type == pa.binary()
    short = pa.array([[{"a": "x", "b": 1}]])
    sent = arrow_table(encoded(short, description, WireFormat.ARROW))
    assert sent.schema.field("c").type != pa.binary()


def test_variants_of_spark_are_not_nested_arrow():
    """Their text repeats the names of fields, which are there once."""
    array = pa.array([[{"value": b"", "metadata": b""}]])
    assert not nested.is_carried(array, parse_type(listed("json")))
    assert nested.is_carried(pa.array([["{}"]]), parse_type(listed("json")))


@pytest.mark.parametrize("count", [1, 3])
def test_bound_of_a_value_is_no_less_than_its_length(count):
    """Short values of the types that grow most."""
    arrays = [
        (struct(a=struct(b=struct(c="bool"))), [{"a": {"b": {"c": True}}}] * count),
        (listed("int8"), [[-128] * 50] * count),
        (dict_of("int8", "bool"), [[(n, True) for n in range(50)]] * count),
        (listed(listed("int8")), [[[], [], []]] * count),
    ]
    for description, rows_ in arrays:
        logical = parse_type(description)
        array = pa.array(rows_, nested.carrier(logical))
        bound = nested.longest(array, logical)
        assert bound >= max(len(v.as_py()) for v in stored(array, logical, Shape.POSITIONAL))


@pytest.mark.parametrize(
    "alternatives", [{"_va": None, "_vb": None}, {"_va": 1, "_vb": {"value": "x"}}]
)
def test_variant_without_exactly_one_alternative_is_refused(alternatives):
    """Neither none nor two can be written."""
    kind = pa.struct([("_va", pa.int8()), ("_vb", pa.struct([("value", pa.string())]))])
    with pytest.raises(EncodingError, match="exactly one alternative"):
        encoded(pa.array([alternatives], kind), VARIANT)


def test_variant_with_many_alternatives_is_numbered_rightly():
    """Indexes beyond one byte of a varint."""
    kind = variant(**{f"m{n}": "int8" for n in range(130)})
    array = pa.array([{"_vm129": 1}], pa.struct([("_vm129", pa.int8())]))
    payload = encoded(array, kind, WireFormat.ARROW)
    (value,) = arrow_table(payload).column("c").to_pylist()
    assert yt.yson.loads(value) == [129, 1]


@pytest.mark.parametrize(
    ("array", "expected"),
    [
        (pa.array([b"{a=[1;2u;%true;#]}", b"#", None]), [{b"a": [1, 2, True, None]}, None, None]),
        (pa.array([1, None]), [1, None]),
        (pa.array([2**64 - 1], pa.uint64()), [2**64 - 1]),
        (pa.array(["text", None]), [b"text", None]),
        (pa.array([1.5]), [1.5]),
        (pa.array([True]), [True]),
        (pa.array([[1, None], None, []]), [[1, None], None, []]),
        (pa.array([{"a": 1, "b": ["x"]}, None, {"a": None, "b": None}]),
         [{b"a": 1, b"b": [b"x"]}, None, {b"a": None, b"b": None}]),
        (pa.array([[("k", 1), ("l", None)], None, []], pa.map_(pa.string(), pa.int64())),
         [{b"k": 1, b"l": None}, None, {}]),
        (pa.array([None, None], pa.null()), [None, None]),
    ],
)  # fmt: skip
def test_any_column_takes_yson_bytes_and_plain_values(array, expected):
    """Bytes are YSON already; structs and maps become YSON maps; also inside what Arrow carries."""
    assert values(array, optional("yson")) == expected
    nested = pa.ListArray.from_arrays(pa.array(range(len(array) + 1), pa.int32()), array)
    table = arrow_table(encoded(nested, ANYS, WireFormat.ARROW))
    assert table.schema.field("c").metadata == {b"YtType": b"yson"}
    found = [
        yt.yson.loads(v, encoding=None, always_create_attributes=False)
        for v in table.column("c").to_pylist()
    ]
    assert found == [[one] for one in expected]


@pytest.mark.parametrize(
    ("array", "description", "sent"),
    [
        (pa.array([1, None], pa.int8()), optional("int64"), pa.int64()),
        (pa.array([1]), "uint64", pa.uint64()),
        (pa.array(["é"]), "utf8", pa.binary()),
        (pa.array(["é"], pa.large_string()), "string", pa.binary()),
        (pa.array([dt.date(2000, 1, 1)]), "date", pa.uint32()),
        (pa.array([0], UTC), "datetime", pa.uint32()),
        (pa.array([0], UTC), "timestamp", pa.uint64()),
        (pa.array([0], UTC), "timestamp64", pa.int64()),
        (pa.array([0], pa.duration("us")), "interval", pa.int64()),
        (pa.array([Decimal("1.5")], pa.decimal128(5, 1)), decimal(20, 1), pa.decimal128(20, 1)),
    ],
)
def test_arrow_request_has_the_types_the_cluster_counts_in(array, description, sent):
    """No unit, zone, precision or scale is left for the server to interpret."""
    table = arrow_table(encoded(array, description, WireFormat.ARROW))
    assert table.schema.field("c").type == sent
    assert table.schema.names == ["c"]
    empty = TableSchema.from_yt([{"name": "c", "type_v3": description}])
    plan = check_frame(pa.schema([("c", array.type)]), empty, target="//t", sorted=False)
    probe = arrow_table(encode_empty(plan, WireFormat.ARROW))
    assert (probe.num_rows, probe.schema.types) == (0, [sent])


@pytest.mark.parametrize("wire", list(WireFormat))
def test_tablet_and_sequence_numbers_are_added_to_every_row(wire):
    """They are what an ordered table and a producer need."""
    payload = encoded(
        pa.array([5, 6]), "int64", wire, tablet_index=3, sequence_numbers=pa.array([900, 901])
    )
    expected = [
        {"c": 5, "$tablet_index": 3, "$sequence_number": 900},
        {"c": 6, "$tablet_index": 3, "$sequence_number": 901},
    ]
    if wire is WireFormat.ARROW:
        assert arrow_table(payload).to_pylist() == expected
        assert arrow_table(payload).schema.field("$tablet_index").type == pa.int64()
    else:
        assert rows(payload) == [{k.encode(): v for k, v in row.items()} for row in expected]


@pytest.mark.parametrize("wire", list(WireFormat))
@pytest.mark.parametrize(
    ("kind", "description"),
    [
        (pa.int64(), "int64"),
        (pa.decimal128(5, 1), decimal(5, 1)),
        (pa.list_(pa.int64()), listed("int64")),
        (pa.map_(pa.string(), pa.int8()), dict_of("utf8", "int8")),
        (pa.struct([("_va", pa.int8())]), VARIANT),
        (pa.null(), optional(STRUCT)),
        (pa.list_(pa.binary()), listed(optional("yson"))),
    ],
)
def test_no_rows_are_a_payload_of_no_rows(kind, description, wire):
    """An empty batch is no special case for any type."""
    payload = encoded(pa.array([], kind), description, wire)
    if wire is WireFormat.ARROW:
        assert arrow_table(payload).num_rows == 0
    else:
        assert payload == b""


def test_sliced_batch_is_encoded_as_its_own_rows_only():
    """Arrow slices share buffers with the rows around them."""
    array = pa.array([[("a", [1])], None, [("b", [2, 3])], [("c", [])], [("d", [4])]],
                     pa.map_(pa.string(), pa.list_(pa.int64())))  # fmt: skip
    description = optional(dict_of("utf8", listed("int64")))
    everything = values(array, description)
    assert values(array[1:4], description) == everything[1:4]
    numbers = pa.array([Decimal(1), None, Decimal(-3)], pa.decimal128(5, 0))
    assert values(numbers[1:], optional(decimal(5, 0))) == [None, b"\x7f\xff\xff\xfd"]


@pytest.mark.parametrize(
    ("array", "description", "reason"),
    [
        (pa.array([1], pa.duration("us")), "interval64", "no proxy takes interval64"),
        (pa.array([b"1"]), "yson", "bytes of any values as strings"),
        (pa.array([Decimal(1)], pa.decimal128(36, 0)), decimal(36, 0), "more than 35 digits"),
    ],
)
def test_column_that_arrow_cannot_carry_is_a_configuration_error(array, description, reason):
    """The remedy is the other format; a probe says the same."""
    with pytest.raises(ConfigError, match=rf"column c cannot be sent as Arrow: .*{reason}"):
        encoded(array, description, WireFormat.ARROW)
    assert len(values(array, description)) == 1
    _, plan = planned(array, description)
    with pytest.raises(ConfigError, match=reason):
        encode_empty(plan, WireFormat.ARROW)
    assert encode_empty(plan, WireFormat.YSON) == b""


def test_missing_bindings_are_a_configuration_error(monkeypatch):
    """The error names the package to install."""
    monkeypatch.setitem(sys.modules, "yt_yson_bindings", None)
    monkeypatch.delitem(sys.modules, bindings.__name__)
    with pytest.raises(ConfigError, match="pip install ytsaurus-yson"):
        importlib.import_module(bindings.__name__)
