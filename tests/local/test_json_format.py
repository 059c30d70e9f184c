"""JSON as input: what YTsaurus cannot hold is an error of the request, not another value or a crash."""

import math

import pytest
from yt import yson

from yt_exactly_once.local.errors import YtError
from yt_exactly_once.local.formats import json_format

AS_TEXT = {"encode_utf8": False}
HALF = r"\ud800"


@pytest.mark.parametrize(
    ("text", "attributes"),
    [
        ("1e999", {}),
        ("[-1e309]", {}),
        ("NaN", {}),
        ("[-Infinity]", {}),
        ('{"$value": "1e999", "$type": "double"}', {}),
        (f'"{HALF}"', {}),
        (f'"{HALF}"', AS_TEXT),
        (f'{{"{HALF}": 1}}', AS_TEXT),
        (rf'[["\udc00{HALF}"]]', AS_TEXT),
    ],
)
def test_value_that_cannot_be_held_is_refused(text, attributes):
    """In a value and in rows, in names too."""
    with pytest.raises(YtError, match="Error parsing the body"):
        json_format.loads(text.encode(), attributes, "the body")
    row = f'{{"c": {text}}}'.encode()
    with pytest.raises(YtError, match="Error parsing the body"):
        list(json_format.load_rows(row, attributes, "the body"))


def test_values_inside_of_rows_keep_their_attributes():
    """As they do in YSON."""
    row = b"""{"c": [{"$value": "x", "$attributes": {"a": 1}}, {"$value": {"k": 1}, "$attributes": {"b": 2}},
                     {"$value": [], "$attributes": {"c": "x"}}]}"""
    ((found, _),) = json_format.load_rows(row, {}, "rows")
    assert yson.dumps(found["c"]) == b'[<"a"=1;>"x";<"b"=2;>{"k"=1;};<"c"="x";>[];]'


def test_what_is_meant_to_be_infinite_and_whole_pairs_pass():
    """The double is spelt out, and the pair is one character."""
    spelt = b'{"$value": "inf", "$type": "double"}'
    assert json_format.loads(spelt, {}, "the body") == math.inf
    assert json_format.loads(rb'"\ud83d\ude00"', AS_TEXT, "the body") == "\U0001f600"
    assert json_format.loads(b"1.7e308", {}, "the body") == 1.7e308
