"""Random tables and rows: what is encoded is what independent readers of YSON and Arrow find."""

import json
import math
import re
from dataclasses import replace
from unittest.mock import patch

import pyarrow as pa
import pytest
import yt.yson
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from yt.yson.yson_types import YsonUint64

from tests.kinds import dict_of, listed, struct
from tests.property.random_tables import as_numbers, batch_of, reinterpreted, tables, types
from yt_exactly_once.codec import bindings
from yt_exactly_once.codec.arrow_types import arrow_type_of
from yt_exactly_once.codec.readable import shown
from yt_exactly_once.codec.rejects import packed
from yt_exactly_once.codec.rows import WireFormat, decode, encode
from yt_exactly_once.codec.schema import TableSchema, arrow_schema_of, check_frame
from yt_exactly_once.codec.yson_reader import parse_rows
from yt_exactly_once.codec.yson_scan import scan_rows
from yt_exactly_once.errors import EncodingError
from yt_exactly_once.operations.dead_letters import kept_row
from yt_exactly_once.operations.letter_rows import Letter, Spelling, Target
from yt_exactly_once.ytsaurus.tables import TableInfo

MAX_DIGITS = 76

thorough = settings(
    deadline=None,
    max_examples=150,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def alike(found, expected):
    """Compare parsed YSON with what it should be: signedness counts, NaN equals NaN."""
    if expected is None:
        return found is None
    if isinstance(expected, list):
        return (
            isinstance(found, list)
            and len(found) == len(expected)
            and all(map(alike, found, expected))
        )
    if isinstance(expected, dict):
        return found.keys() == expected.keys() and all(
            alike(found[key], value) for key, value in expected.items()
        )
    if isinstance(expected, float):
        return math.isnan(found) if math.isnan(expected) else repr(found) == repr(expected)
    signed_alike = isinstance(found, YsonUint64) == isinstance(expected, YsonUint64)
    return signed_alike and type(found) in (type(expected), bool, int) and found == expected


def parsed(payload, kind="list_fragment"):
    return yt.yson.loads(payload, yson_type=kind, encoding=None, always_create_attributes=False)


def by_position(found, kind):
    """Return a value of an Arrow array as the cluster stores it."""
    if found is None:
        return None
    if pa.types.is_map(kind):
        return [
            [by_position(key, kind.key_type), by_position(item, kind.item_type)]
            for key, item in found
        ]
    if pa.types.is_list(kind):
        return [by_position(item, kind.value_type) for item in found]
    if pa.types.is_struct(kind):
        return [by_position(found[field.name], field.type) for field in kind]
    return YsonUint64(found) if pa.types.is_unsigned_integer(kind) else found


def planned(table):
    """Return the schema of a drawn table, its rows as a batch, and the plan to write them."""
    columns, types_drawn, rows = table
    schema = TableSchema.from_yt(columns)
    frame = arrow_schema_of(schema, binary_strings=True)
    plan = check_frame(frame, schema, target="//t", sorted=False)
    return schema, batch_of(frame, types_drawn, rows), plan


@thorough
@given(tables(types(MAX_DIGITS)), st.booleans(), st.data())
def test_yson_payload_holds_exactly_the_rows(table, numbered, data):
    """The C++ parser finds the same values, and our own decoder gives the frame back."""
    rows = table[2]
    _, batch, plan = planned(table)
    numbers = pa.array(range(len(rows)), pa.int64()) if numbered else None
    payload = encode(batch, plan, WireFormat.YSON, tablet_index=3, sequence_numbers=numbers)

    found = list(parsed(payload))
    assert len(found) == len(rows)
    for number, (got, row) in enumerate(zip(found, rows, strict=True)):
        expected = {b"$tablet_index": 3}
        if numbered:
            expected[b"$sequence_number"] = number
        expected |= {f"column{n}".encode(): value[1] for n, value in enumerate(row)}
        assert alike(got, expected)

    # Compared as bytes: to Arrow, NaN differs from NaN.
    again = decode(payload, batch.schema)
    again.validate(full=True)
    assert encode(again, plan, WireFormat.YSON) == encode(batch, plan, WireFormat.YSON)

    start = data.draw(st.integers(0, len(rows)))
    tail = batch.take(pa.array(range(start, len(rows)), pa.int64()))
    assert encode(batch[start:], plan, WireFormat.YSON) == encode(tail, plan, WireFormat.YSON)


@thorough
@given(tables(types(MAX_DIGITS)), st.booleans(), st.data())
def test_letter_comes_back_as_the_row(table, as_text, data):
    """Whole, and with one field corrected, which must be what JSON can hold; all others are as they were."""
    columns, _, rows = table
    _, batch, plan = planned(table)
    if as_text:
        fields = arrow_schema_of(TableSchema.from_yt(columns))
        views = [array.view(kind) for array, kind in zip(batch.columns, fields.types, strict=True)]
        batch = pa.RecordBatch.from_arrays(views, schema=fields)
    if not rows:
        return
    places = st.integers(0, len(rows) - 1)
    row, other = (batch.slice(data.draw(places), 1) for _ in range(2))
    into = Target(TableInfo("//t", "1-2", False, 1, "mounted", columns, "full"), Spelling())
    kept = kept_row(*packed(row, ""))
    whole = Letter("t", 0, 0, "q", 0, "//t", "c", "r", **kept)
    (group,), unfit = into.grouped([whole])
    assert unfit == {}
    (payload,) = group.payloads(1)
    assert payload.data == encode(row, plan, WireFormat.YSON, tablet_index=0)

    name = data.draw(st.sampled_from(row.schema.names))
    place = row.schema.get_field_index(name)
    file = json.loads(json.dumps({**kept["row"], name: shown(other.column(name))}))
    groups, unfit = into.grouped([replace(whole, row=file)])
    if unfit:
        assert unfit[0, 0].startswith(f"{name}: the value is no ")
        text = json.dumps(file[name])
        assert "\\\\x" in text or re.search(r'"(-|\d{5}-)', text), text
        return
    (payload,) = groups[0].payloads(1)
    corrected = row.set_column(place, row.schema.field(place), other.column(name))
    assert payload.data == encode(corrected, plan, WireFormat.YSON, tablet_index=0)


@thorough
@given(tables(types(MAX_DIGITS)))
def test_arrow_payload_holds_exactly_the_rows(table):
    """Plain and nested columns hold what the cluster counts in, others YSON by position."""
    columns, _, rows = table
    _, batch, plan = planned(table)
    if plan.arrow_obstacles:
        return
    payload = encode(batch, plan, WireFormat.ARROW, tablet_index=3)
    with pa.ipc.open_stream(payload) as stream:
        found = stream.read_all()
    assert found.column("$tablet_index").to_pylist() == [3] * len(rows)
    for place, column in enumerate(columns):
        field = found.schema.field(column["name"])
        holds_yson = (field.metadata or {}).get(b"YtType") == b"yson"
        for got, row in zip(found.column(column["name"]).to_pylist(), rows, strict=True):
            expected = row[place][2]
            if expected is None:
                assert got is None
            elif holds_yson:
                assert alike(parsed(got, "node"), expected)
            elif pa.types.is_decimal(field.type):
                assert got == row[place][0]
            else:
                assert alike(by_position(got, field.type), expected)


@thorough
@given(tables(types(MAX_DIGITS)), st.data())
def test_scan_and_parser_find_the_same_columns(table, data):
    """The fast reader agrees with the parser on every column subset, however rows are closed."""
    columns, _, rows = table
    schema, batch, plan = planned(table)
    payload = encode(batch, plan, WireFormat.YSON)
    if data.draw(st.booleans()):
        payload = payload.removesuffix(b";")
    wanted = wanted_of(c for c in schema.columns if data.draw(st.booleans()))
    scanned, parser = scan_rows(payload, wanted), parse_rows(payload, wanted)
    if scanned is None:
        # A string may look like rows. Few long values, variants and `yson` are left to the parser.
        looks_alike = any(b"{" in value for row in rows for value in strings(row))
        unknown = any(kind in str(column) for column in columns for kind in ("variant", "yson"))
        assert not rows or looks_alike or unknown or len(payload) > 64 * len(rows)
        return
    for name in wanted:
        fast, slow = scanned[name], parser[name]
        assert fast.type == slow.type
        # Equality of Arrow arrays holds no NaN equal to itself; their text does.
        assert repr(listed_of(fast)) == repr(listed_of(slow))


@thorough
@given(tables(types(MAX_DIGITS)), st.data())
def test_long_rows_are_read_as_short_ones(table, data):
    """Of what is long, no object is made for each part; the columns are the same, or the finding is."""
    schema, batch, plan = planned(table)
    payload = bytearray(encode(batch, plan, WireFormat.YSON))
    damaged = bool(payload) and data.draw(st.sampled_from([False, False, True]))
    if damaged:
        payload[data.draw(st.integers(0, len(payload) - 1))] = data.draw(st.integers(0, 255))
    wanted = wanted_of(c for c in schema.columns if data.draw(st.booleans()))
    limits = {"LONG": data.draw(st.integers(1, 60)), "_CHUNK_BYTES": 20, "_BLOCK": 2}
    short = read(payload, wanted)
    with patch.multiple(bindings, **limits):
        long = read(payload, wanted)
    # Damage may look like text, such as a space between tokens: then what is long is refused.
    assert repr(long) == repr(short) or (damaged and long is ValueError)


def wanted_of(columns):
    return {c.name: (c.type, arrow_type_of(c.type, binary_strings=True)) for c in columns}


def listed_of(array):
    """Return the values, dates and instants as the numbers they are: Python's end earlier."""
    return reinterpreted(array, as_numbers(array.type)).to_pylist()


def read(payload, wanted):
    try:
        found = parse_rows(bytes(payload), wanted)
    except (ValueError, EncodingError) as error:
        return type(error)
    return [(listed_of(one), one.type) for one in found.values()]


def strings(row):
    return [found for value in row for found in _strings(value[1])]


def _strings(value):
    if isinstance(value, dict):
        return [found for one in value.values() for found in _strings(one)]
    if isinstance(value, list):
        return [found for one in value for found in _strings(one)]
    return [value] if isinstance(value, bytes) else []


SIMPLE_COLUMNS = [{"name": "a", "type_v3": "string"}, {"name": "b", "type_v3": "int64"}]
COMPOSITE_COLUMNS = [
    {"name": "a", "type_v3": listed("string")},
    {"name": "b", "type_v3": dict_of("string", "int64")},
    {"name": "c", "type_v3": struct(x="int64", y="string")},
]


@pytest.mark.parametrize(
    "columns", [SIMPLE_COLUMNS, COMPOSITE_COLUMNS], ids=["simple", "composite"]
)
@thorough
@given(st.binary(max_size=60), st.data())
def test_damaged_payload_never_scans_to_other_values(columns, noise, data):
    """Bytes that were changed are either parsed alike by both readers, or not scanned."""
    schema = TableSchema.from_yt(columns)
    frame = arrow_schema_of(schema, binary_strings=True)
    plan = check_frame(frame, schema, target="//t", sorted=False)
    values = {"a": [b"x", noise, b""], "b": [1, -2, 300]}
    if columns is COMPOSITE_COLUMNS:
        values = {
            "a": [[b"x", noise], [], [b""]],
            "b": [[(b"k", 1)], [(noise, -2), (b"", 300)], []],
            "c": [{"x": 1, "y": noise}, {"x": -2, "y": b""}, {"x": 300, "y": b"x"}],
        }
    batch = pa.RecordBatch.from_pydict(values, schema=frame)
    payload = bytearray(encode(batch, plan, WireFormat.YSON))
    for _ in range(data.draw(st.integers(1, 3))):
        payload[data.draw(st.integers(0, len(payload) - 1))] = data.draw(st.integers(0, 255))
    wanted = wanted_of(schema.columns)
    scanned = scan_rows(bytes(payload), wanted)
    if scanned is None:
        return
    try:
        parser = parse_rows(bytes(payload), wanted)
    except ValueError:
        pytest.fail("scanned what no parser takes")
    for name in wanted:
        assert scanned[name].equals(parser[name])
