"""Rows kept by columns must look like a list of maps to whoever reads them."""

import pytest
from yt import yson

from yt_exactly_once.local.formats import json_format, row_formats
from yt_exactly_once.local.formats.structured import Format
from yt_exactly_once.local.tables.columnar import ColumnarRows

YSON = Format("yson", {"format": "binary"})


def _rows():
    return ColumnarRows({"a": [1, 2, 3], "b": [b"x", None, b"z"]}, 3)


def test_rows_are_a_sequence_of_maps():
    """Length, index, slice and iteration agree."""
    expected = [{"a": 1, "b": b"x"}, {"a": 2, "b": None}, {"a": 3, "b": b"z"}]
    rows = _rows()
    assert list(rows) == expected
    assert [rows[index] for index in range(len(rows))] == expected
    assert list(rows[1:]) == expected[1:]
    assert len(rows[1:]) == 2
    assert list(ColumnarRows({}, 2)) == [{}, {}]
    assert len(ColumnarRows({}, 5)[1:3]) == 2


@pytest.mark.parametrize(
    "rows",
    [
        [],
        [{}],
        [{"a": 1, "b": 2}, {"a": 3, "b": 4}],
        [{"a": 1, "b": 2}, {"b": 4, "a": 3}],
        [{"a": 1}, {"a": 1, "b": 2}],
        [{"a": {"b": [1]}}, {"a": None}],
    ],
)
def test_rows_of_any_shape_are_parsed_alike(rows):
    """Equal columns or not, the reader gets the same maps."""
    body = yson.dumps(rows, yson_type="list_fragment", yson_format="binary")
    parsed = row_formats.loads(body, YSON)
    names = [{name: value for name, value in row.items() if name != "a"} for row in parsed]
    assert [set(row) for row in parsed] == [set(row) for row in rows]
    assert names == [{name: value for name, value in row.items() if name != "a"} for row in rows]


@pytest.mark.parametrize("attributes", [{}, {"stringify": True}, {"attributes_mode": "always"}])
def test_json_rows_are_written_as_single_values_are(attributes):
    """The short way for rows gives what the long way gives."""
    row = {"a": 1, "$b": b"\xff\x00x", "c": None, "d": 1.5, "e": [b"y", {"f": True}], "g": "ж"}
    row["h"] = yson.YsonUint64(7)
    expected = json_format.dumps(row, attributes) + b"\n"
    assert row_formats.dumps([row], Format("json", attributes)) == expected


@pytest.mark.parametrize(
    ("text", "row"),
    [
        ('{"a": "x", "b": 1.5, "c": null, "d": true}', {"a": b"x", "b": 1.5, "c": None, "d": True}),
        ('{"$$a": 1}', {"$a": 1}),
        ('{"a": "\\u00d0\\u00b6"}', {"a": "ж".encode()}),
        ('{"\\u00d0\\u00b6": "\\u00ff"}', {"ж": b"\xff"}),
        ('{"a": {"$type": "uint64", "$value": 5}}', {"a": 5}),
        ('{"a": {"b": ["c"]}}', {"a": {b"b": [b"c"]}}),
    ],
)
def test_json_rows_have_bytes_for_strings(text, row):
    """Names are text, everything inside is bytes."""
    assert list(row_formats.loads(text.encode(), Format("json"))) == [row]
