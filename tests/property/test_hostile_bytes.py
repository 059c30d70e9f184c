"""Bytes of whoever may write to a queue or reach a proxy: typed errors, and memory in proportion."""

from __future__ import annotations

from collections import defaultdict

import pytest

from tests.property.hostile_bytes import COLUMNS, FLOOR, cost_of, payloads, rows_in_a_cell, string
from yt_exactly_once.codec.rows import decode
from yt_exactly_once.codec.schema import TableSchema, arrow_schema_of
from yt_exactly_once.errors import EncodingError
from yt_exactly_once.local.errors import YtError
from yt_exactly_once.local.formats import row_formats, structured


def optional(item):
    return {"type_name": "optional", "item": item}


V3_NAMES = {"boolean": "bool", "any": "yson"}
PLAIN = [
    {"name": name, "type": kind, "type_v3": optional(V3_NAMES.get(kind, kind))}
    for name, kind in COLUMNS.items()
]
LISTS = [
    {"name": name, "type_v3": optional({"type_name": "list", "item": optional("int64")})}
    for name in COLUMNS
]
STRINGS = [{"name": "c", "type": "string"}]
STRUCT = {
    "type_name": "struct",
    "members": [{"name": f"m{n}", "type": optional("int64")} for n in range(12)],
}
STRUCTS = [
    {"name": name, "type_v3": optional({"type_name": "list", "item": optional(STRUCT)})}
    for name in COLUMNS
]
ANY = [{"name": name, "type": "any", "type_v3": optional("yson")} for name in COLUMNS]
NUMBERS = [{"name": "c", "type_v3": LISTS[0]["type_v3"]}]


def decoded(rows, schema):
    return decode(rows, arrow_schema_of(TableSchema.from_yt(schema), binary_strings=True))


def loaded(rows, schema):
    return row_formats.loads(rows, structured.Format("yson", {}), schema)


@pytest.mark.parametrize(
    ("read", "schema", "marker"),
    [(decoded, STRINGS, b"\x01"), (decoded, NUMBERS, b"[\x01"), (loaded, STRINGS, b"\x01")],
)
def test_openings_of_rows_inside_a_string_are_not_copied(read, schema, marker):
    """Each claims all bytes behind it; together that is thousands of times what there is."""
    items = b";" + b"#;" * 8_000 + b"]"
    payload = rows_in_a_cell(string(b"c") + b"=", marker, items, size=60_000)
    cost = cost_of(lambda rows: read(rows, schema), payload)
    assert cost.peak <= FLOOR + 8 * len(payload)


PARSED = 45
"""Most bytes of an interpreter's objects over the bytes they are parsed from: empty lists, entities."""

READERS = {
    "source": (decoded, EncodingError, defaultdict(lambda: 8)),
    "cluster": (loaded, YtError, defaultdict(lambda: PARSED, rows_in_a_cell=8)),
}


@pytest.mark.parametrize(
    "count", [50, pytest.param(10_000, marks=[pytest.mark.nightly, pytest.mark.timeout(7_200)])]
)
@pytest.mark.parametrize("reader", READERS)
def test_bytes_are_read_or_refused_in_little_memory(reader, count):
    """Whatever they are: rows, rows inside of strings, deep and long values, damage, noise."""
    read, typed, most = READERS[reader]
    read(b"{\x01\x02i=#;};", PLAIN)
    for number, (family, payload) in enumerate(payloads(count, count, 1 << 21)):
        schema = (PLAIN, LISTS, STRUCTS, ANY)[number % 4]
        cost = cost_of(lambda rows, schema=schema: read(rows, schema), payload)
        shown = f"payload {number} of {count}: {family}, {len(payload)} bytes"
        assert cost.error is None or isinstance(cost.error, typed), f"{shown}: {cost.error!r}"
        assert cost.peak <= FLOOR + most[family] * len(payload), f"{shown}: {cost.peak} bytes"
