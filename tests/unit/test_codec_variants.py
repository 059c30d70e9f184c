"""Variants of Spark, which arrive as JSON, in the columns of a table."""

import json

import pyarrow as pa
import pytest
import yt.yson

from tests.kinds import listed, optional
from yt_exactly_once.codec.growth import grown
from yt_exactly_once.codec.rejects import Fault, Rejects
from yt_exactly_once.codec.row_hash import row_hashes
from yt_exactly_once.codec.rows import WireFormat, decode, encode, row_fragments
from yt_exactly_once.codec.schema import TableSchema, arrow_schema_of, check_frame
from yt_exactly_once.codec.spark_types import parse_schema
from yt_exactly_once.errors import EncodingError, SchemaMismatchError
from yt_exactly_once.operations.letter_rows import Letter, Spelling, Target
from yt_exactly_once.ytsaurus.tables import TableInfo

FRAME = parse_schema("c variant")


def plan_for(kind, frame=FRAME):
    table = TableSchema.from_yt([{"name": "c", "type_v3": kind}])
    return check_frame(frame, table, target="//t", sorted=False)


def stored(*texts, kind=None, wire=WireFormat.YSON):
    """Return what a column any, or another one, has after rows with this JSON."""
    kind = kind or optional("yson")
    payload = encode(pa.record_batch({"c": pa.array(texts, pa.string())}), plan_for(kind), wire)
    rows = yt.yson.loads(bytes(payload), yson_type="list_fragment", encoding=None)
    return [row.get(b"c") for row in rows]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a":[1,-2.5,"\u00e9",true,null,{}],"\u00e9":""}',
         {b"a": [1, -2.5, "é".encode(), True, None, {}], "é".encode(): b""}),
        ("7", 7),
        (str(-(2**63)), -(2**63)),
        (str(2**64 - 1), 2**64 - 1),
        ("1.0E23", 1e23),
        ("2.0E-3", 0.002),
        ("0.30000000000000004", 0.1 + 0.2),
        ('"text"', b"text"),
        ("null", None),
        (None, None),
    ],
)  # fmt: skip
def test_json_of_a_variant_is_a_value_in_any(text, value):
    """And no string: other clients read its members."""
    assert stored(text) == [value]


def read(value, kind=None):
    """Return what the source reads of a column any with the option any_json."""
    table = TableSchema.from_yt([{"name": "c", "type_v3": kind or optional("yson")}])
    rows = yt.yson.dumps([{"c": value}], yson_type="list_fragment", yson_format="binary")
    (found,) = decode(rows, arrow_schema_of(table, any_json=True)).column("c").to_pylist()
    return found


@pytest.mark.parametrize("text", [
    '{"a":[1,-2.5,"é",true,false,null,{}],"é":""}', "7", str(2**64 - 1), "1e+23", "1.0", '"text"', "[]",
])  # fmt: skip
def test_any_is_read_as_json(text):
    """The one that was written: texts, and unsigned and other numbers, at any depth."""
    (value,) = stored(text)
    assert read(value).replace(", ", ",").replace(": ", ":") == text
    assert read([value], listed("yson")) == [read(value)]
    assert read(None) is None


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (b"\xff", "no text"),
        ({b"\xff": 1}, "no text"),
        ([float("nan")], "JSON has no NaN"),
        ([yt.yson.to_yson_type(1, attributes={"a": 1})], "JSON has no"),
    ],
)
def test_value_that_json_has_not_is_no_json(value, problem):
    """Nothing is left out, and no byte is replaced."""
    with pytest.raises(EncodingError, match=problem):
        read(value)


@pytest.mark.parametrize("kind", ["json", "utf8", "string"])
def test_json_of_a_variant_is_its_text_elsewhere(kind):
    assert stored('{"a":1}', kind=kind) == [b'{"a":1}']


def test_plain_text_in_any_stays_a_string():
    """Only variants are parsed."""
    frame = pa.schema([("c", pa.string())])
    payload = encode(
        pa.record_batch({"c": ["[1]"]}), plan_for(optional("yson"), frame), WireFormat.YSON
    )
    assert yt.yson.loads(bytes(payload), yson_type="list_fragment").__next__() == {"c": "[1]"}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (str(2**64), "neither int64 nor uint64"),
        (str(-(2**63) - 1), "neither int64 nor uint64"),
        ("0.1234567890123456789", "more digits"),
        ("12345678901234567890.5", "more digits"),
        ("1e999", "outside the range"),
        ('{"a":1,"a":2}', "a key twice"),
        ('"\\ud800"', "not valid"),
        ("NaN", "not valid"),
        ("[1", "not valid"),
        ("[" * 5_000 + "]" * 5_000, "not valid"),
    ],
)
def test_value_that_yson_would_change_is_refused(text, problem):
    """Named by its row. Nothing is rounded."""
    with pytest.raises(EncodingError, match=problem) as caught:
        stored("1", text)
    assert caught.value.where["row_of_chunk"] == 1


def test_null_of_a_variant_is_none_of_a_required_column():
    with pytest.raises(EncodingError, match="null"):
        stored("null", kind="yson")


def rows_of(payload):
    return list(yt.yson.loads(bytes(payload), yson_type="list_fragment", encoding=None))


def letter_of(body, corrected):
    """Return the only letter in a request, with its value corrected if that is given."""
    (told,) = yt.yson.loads(bytes(body), yson_type="list_fragment", always_create_attributes=False)
    row = {**json.loads(told["row"]), "n": 1}
    if corrected is not None:
        row["c"] = corrected
    kept = yt.yson.get_bytes(told["row_arrow"])
    return Letter("t", 0, 0, "q", 7, "//t", "n", "", row, kept)


def test_variant_has_the_hash_of_what_is_read():
    """So an audit by digest finds the rows that were written."""
    plan, table = plan_for(optional("yson")), [{"name": "c", "type_v3": optional("yson")}]
    rows = pa.record_batch({"c": pa.array(['{"a":[1,"x"]}', None, "2.5"], pa.string())})
    payload = encode(rows, plan, WireFormat.YSON)
    columns = TableSchema.from_yt(table)
    there = decode(bytes(payload), arrow_schema_of(columns))
    assert row_hashes(rows, plan.columns).tolist() == row_hashes(there, columns.columns).tolist()


@pytest.mark.parametrize("corrected", [None, '{"a": 2}'])
@pytest.mark.parametrize("is_variant", [True, False])
def test_letter_of_a_variant_is_replayed_as_one(is_variant, corrected):
    """Also beside a letter of a query that writes texts."""
    kinds = {"c": optional("yson"), "n": "uint8"}
    given = [{"name": name, "type_v3": kind} for name, kind in kinds.items()]
    rows = pa.record_batch({"c": ['{"a":1}'], "n": pa.array([-1], pa.int16())})
    variants = ["c"] if is_variant else []
    letters = [
        letter_of(
            Rejects("//letters", "q", 7).encode(rows, [Fault(0, "n", "")], "//t", "", names),
            corrected,
        )
        for names in (variants, [])
    ]
    groups, unfit = Target(
        TableInfo("//t", "1-2", False, 1, "mounted", given, "full"), Spelling()
    ).grouped(letters)
    assert (unfit, len(groups)) == ({}, 1 + is_variant)
    written = [
        row for group in groups for payload in group.payloads(None) for row in rows_of(payload.data)
    ]
    text = corrected or '{"a":1}'
    parsed = {b"a": 2 if corrected else 1}
    assert [row[b"c"] for row in written] == [
        parsed if is_variant else text.encode(),
        text.encode(),
    ]


@pytest.mark.parametrize("kind", ["int64", "uuid", listed("json")])
def test_variant_is_cast_for_other_columns(kind):
    with pytest.raises(SchemaMismatchError) as caught:
        plan_for(kind)
    (line,) = [one for one in caught.value.details if one.startswith("c ")]
    assert "| variant " in line
    assert "CAST(c AS ...)" in line


def test_column_for_variants_is_added_once():
    added = grown(FRAME, [{"name": "k", "type": "int64"}])
    assert added[-1] == {"name": "c", "type_v3": optional("json")}
    assert grown(FRAME, added) == added


def test_rows_that_were_read_are_compared_with_variants_as_they_are():
    """They have YSON where new rows have JSON: keys of a table, and rows that old code has written."""
    key = {"name": "c", "type_v3": "yson", "sort_order": "ascending"}
    table = TableSchema.from_yt([key, {"name": "v", "type_v3": optional("yson")}])
    plan = check_frame(parse_schema("c variant, v variant"), table, target="//t", sorted=True)
    new = pa.record_batch({"c": ["[1]", '"x"'], "v": ['{"a":2}', None]})
    there = decode(bytes(encode(new, plan, WireFormat.YSON)), arrow_schema_of(table))
    assert row_fragments(there, plan.keys).equals(row_fragments(new, plan.keys))
    assert list(row_hashes(there, plan.columns)) == list(row_hashes(new, plan.columns))
