"""Rows of YSON by vector: a scan finds what the parser finds, or leaves the rows to it."""

import pytest
from yt import yson
from yt.yson import YsonUint64

from tests.contract.tables import columns
from yt_exactly_once.local.errors import YtError
from yt_exactly_once.local.formats import row_formats, structured, yson_scan
from yt_exactly_once.local.tables.columnar import listed

KINDS = {"i": "int64", "u": "uint64", "d": "double", "b": "boolean", "é": "utf8", "a": "any"}
SCHEMA = columns(**KINDS)
BINARY = structured.Format("yson", {})


def dumped(rows):
    return yson.dumps(rows, yson_format="binary", yson_type="list_fragment")


def rows_of(count):
    return [
        {
            "i": None if n % 7 == 0 else (-n) ** 11 % 2**63,
            "u": None if n % 5 == 0 else YsonUint64(n**13 % 2**64),
            "d": None if n % 3 == 0 else n / 7,
            "b": None if n % 2 == 0 else n % 4 == 1,
            "é": None if n % 11 == 0 else "ж};{" * (n % 40),
        }
        for n in range(count)
    ]


def test_many_rows_are_scanned_into_columns():
    """Numbers of all lengths, strings that look like rows, and nulls."""
    rows = rows_of(500)
    found = yson_scan.scan(dumped(rows), SCHEMA)
    assert {name: listed(values) for name, values in found.columns.items()} == {
        name: [row[name].encode() if isinstance(row[name], str) else row[name] for row in rows]
        for name in rows[0]
    }


ITEM = b"\x01\x02i=\x02\x02;"
DAMAGED = [
    b"",
    b"{",
    b"{}",
    b"{};",
    b"{" + ITEM + b"}",
    b"{" + ITEM[:-1] + b"};",
    b" {" + ITEM + b"};",
    b"{" + ITEM + b"};;",
    b"{" + ITEM + b"};{" + ITEM + b"}",
    b"{" + ITEM + b"};{};",
    b"{" + ITEM + ITEM + b"};",
    b"{" + ITEM + b"};{" + ITEM + ITEM + b"};",
    b"{" + ITEM + b'};{"i"=5;};',
    b"{" + ITEM + b"};{\x01\x02i=\x02\x02};",
    b"{" + ITEM + b"};{\x01\x02j=\x02\x02;};",
    b"{" + ITEM + b"};{\x01\x02i=\x06\x02;};",
    b"{" + ITEM + b"};{\x01\x02i=\x02\x80\x00;};",
    b"{" + ITEM + b"};{\x01\x02i=\x02" + b"\xff" * 10 + b";};",
    b"{" + ITEM + b"};{\x01\x02i=[];};",
    b"{" + ITEM + b"};{\x01\x02i=<\x01\x02a=\x02\x02;>\x02\x02;};",
    b"{\x01\x02i=#;};<\x01\x02a=\x02\x02;>{" + ITEM + b"};",
    b"{\x01\x04\xc3\xa9=\x01\x01;};",
    b"{\x01\x04\xc3\xa9=\x01\x40x;};",
    b"{\x01\x04\xc3\xa9=\x01\x02x;};{\x01\x04\xc3\xa9=\x01" + b"\xff" * 9 + b"\x01x;};",
    b"{\x01\x02b=\x04;};{\x01\x02b=\x05;};{\x01\x02b=#;};{\x01\x02b=\x02\x02;};",
    b"{\x01\x02d=\x03\0\0;};",
    b"{\x01\x02\xff=\x02\x02;};",
    b"{\x01\x02x=\x02\x02;};",
    b"{\x01\x02a=\x02\x02;};",
    b"\x02\x02;",
]


@pytest.mark.parametrize("data", DAMAGED, ids=repr)
def test_other_rows_are_left_to_the_parser_or_read_as_by_it(data):
    """A key twice, attributes, other types, other spellings, and damage."""
    found = yson_scan.scan(data, SCHEMA)
    if found is not None:
        expected = row_formats.loads(data, BINARY, SCHEMA)
        assert [dict(row) for row in found] == [dict(row) for row in expected]


def test_errors_of_large_requests_are_those_of_small_ones():
    """What the scan does not take is refused in the words of the parser."""
    rows = rows_of(200)
    twice = dumped(rows) + b"{" + ITEM + ITEM + b"};"
    assert len(row_formats.loads(dumped(rows), BINARY, SCHEMA)) == len(rows)
    with pytest.raises(YtError, match='Duplicate column "i"'):
        list(row_formats.loads(twice, BINARY, SCHEMA))


def test_signed_and_unsigned_numbers_stay_apart_where_they_do_not_convert():
    """The parser tells them apart, and a column does not."""
    strict = structured.Format("yson", {"enable_integral_type_conversion": False})
    rows = row_formats.loads(dumped(rows_of(200)), strict, SCHEMA)
    assert isinstance(rows[1]["u"], YsonUint64)
