"""Bytes of whoever may write to a queue or reach a proxy cost memory in proportion to their number."""

from __future__ import annotations

import pytest

from tests.property.hostile_bytes import cost_of, rows_in_a_cell, string
from yt_exactly_once.codec.rows import decode
from yt_exactly_once.codec.schema import TableSchema, arrow_schema_of
from yt_exactly_once.local.formats import row_formats, structured

STRINGS = [{"name": "c", "type": "string"}]
LISTS = [
    {
        "name": "c",
        "type_v3": {
            "type_name": "optional",
            "item": {"type_name": "list", "item": {"type_name": "optional", "item": "int64"}},
        },
    }
]
MOST = 32
"""Most memory that reading takes, over the bytes read."""


def decoded(rows, schema):
    return decode(rows, arrow_schema_of(TableSchema.from_yt(schema), binary_strings=True))


def loaded(rows, schema):
    return row_formats.loads(rows, structured.Format("yson", {}), schema)


@pytest.mark.parametrize(
    ("read", "schema", "marker"),
    [(decoded, STRINGS, b"\x01"), (decoded, LISTS, b"[\x01"), (loaded, STRINGS, b"\x01")],
)
def test_openings_of_rows_inside_a_string_are_not_copied(read, schema, marker):
    """Each claims all bytes behind it; together that is hundreds of times what there is."""
    payload = rows_in_a_cell(string(b"c") + b"=", marker, b";" + b"#;" * 8_000 + b"]", size=60_000)
    small = b"{" + string(b"c") + b"=#;};"
    read(small, schema)
    assert cost_of(lambda rows: read(rows, schema), payload).peak <= MOST * len(payload)
