"""Scalar functions: one line per promise, and the errors they raise."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pytest
from yt.yson import YsonUint64

from tests.local.ql_tables import Tables, columns
from yt_exactly_once.local.ql.functions.farm_hash import fingerprint_of_value
from yt_exactly_once.local.ql.value_types import Type

DOCUMENT = {
    "i": -5,
    "u": YsonUint64(2**63),
    "d": 1.5,
    "b": True,
    "s": "text",
    "l": [1, YsonUint64(2), "x", None],
    "m": {"deep": {"er": 7}},
}


@pytest.fixture(scope="module")
def tables() -> Iterator[Tables]:
    found = Tables()
    schema = columns(
        i="int64", u="uint64", d="double", b="boolean", s="string", doc="any", list="any", n="any"
    )
    row = {
        "i": -7,
        "u": 2**63 + 5,
        "d": 2.25,
        "b": True,
        "s": b"Ab\xffC",
        "doc": DOCUMENT,
        "list": [1, "a"],
    }
    found.create("//one", schema, [row])
    yield found
    found.close()


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("int64(u)", -(2**63) + 5),
        ("int64(d)", 2),
        ("int64(try_get_any(doc, '/d'))", 1),
        ("uint64(i)", 2**64 - 7),
        ("uint64(d)", 2),
        ("double(i)", -7.0),
        ("double(u)", float(2**63 + 5)),
        ("boolean(i)", True),
        ("boolean(0)", False),
        ("string(s)", b"Ab\xffC"),
        ("string(try_get_any(doc, '/s'))", b"text"),
        ("if(b, i, 1)", -7),
        ("if_null(null, i)", -7),
        ("coalesce(null, i, 1)", -7),
        ("greatest(1, i, 3)", 3),
        ("greatest(u, 1u)", 2**63 + 5),
        ("abs(i)", 7),
        ("abs(u)", 2**63 + 5),
        ("abs(-d)", 2.25),
        ("floor(d)", 2),
        ("ceil(d)", 3),
        ("round(d * 2)", 5),
        ("round(-d * 2)", -5),
        ("trunc(-d)", -2),
        ("sign(-d)", -1),
        ("sqrt(d)", 1.5),
        ("sqrt(-d)", math.nan),
        ("ln(1)", 0.0),
        ("log2(8)", 3.0),
        ("log(1000)", 3.0),
        ("pow(d, 2)", 5.0625),
        ("exp(0)", 1.0),
        ("is_inf(d / 0)", True),
        ("is_finite(d)", True),
        ("is_nan(d)", False),
        ("gcd(12, 18)", 6),
        ("lcm(4, 6)", 12),
        ("xor(u, u)", 0),
        ("bit_count(u)", 3),
        ("factorial(20)", math.factorial(20)),
        ("length(s)", 4),
        ("concat(s, 'x')", b"Ab\xffCx"),
        ("lower(s)", b"ab\xffc"),
        ("lower('\u0416')", "\u0436".encode()),
        ("is_prefix('Ab', s)", True),
        ("is_prefix('b', s)", False),
        ("is_substr('\\xff', s)", True),
        ("is_valid_utf8(s)", False),
        ("to_valid_utf8(s)", "Ab\ufffdC".encode()),
        ("regex_full_match('A.*', s)", False),
        ("regex_full_match('A.*', 'Ab')", True),
        ("regex_full_match('b', s)", False),
        (f"regex_partial_match('(x+x+)+y', '{'x' * 5_000}')", False),
        (f"'{'x' * 5_000}' like '{'%x' * 40}%y'", False),
        ("s like 'A_%C'", True),
        ("regex_partial_match('b', s)", True),
        ("regex_replace_first('[a-z]', 'abc', '_')", b"_bc"),
        ("regex_replace_all('([a-z])', 'abc', '\\\\1\\\\1')", b"aabbcc"),
        ("regex_extract('(b)(c)', 'abcd', '\\\\2\\\\1')", b"cb"),
        ("regex_replace_all('x*', 'a\u0416xb', '-')", "-a-\u0416-b-".encode()),
        ("regex_replace_first('b', 'abb', '\\\\1')", b"abb"),
        ("regex_extract('x', 'abcd', '\\\\0')", b"abcd"),
        ("regex_extract('a', 'abcd', '\\\\1')", b"abcd"),
        ("regex_escape('a.b')", b"a\\.b"),
        ("numeric_to_string(i)", b"-7"),
        ("numeric_to_string(u)", b"9223372036854775813u"),
        ("numeric_to_string(d)", b"2.25"),
        ("parse_int64('-12')", -12),
        ("parse_uint64('12u')", 12),
        ("parse_double('1.5')", 1.5),
        ("farm_hash('abc')", 0x7B15151E28709746),
        ("farm_hash('key')", 0x407E25082FDEDF2C),
        # 1700000000 is Tuesday 2023-11-14 22:13:20 UTC.
        ("timestamp_floor_hour(1700000000)", 1_699_999_200),
        ("timestamp_floor_day(1700000000)", 1_699_920_000),
        ("timestamp_floor_week(1700000000)", 1_699_833_600),
        ("timestamp_floor_month(1700000000)", 1_698_796_800),
        ("timestamp_floor_quarter(1700000000)", 1_696_118_400),
        ("timestamp_floor_year(1700000000)", 1_672_531_200),
        ("timestamp_floor_day_tz(1700000000, 'Europe/Moscow')", 1_699_995_600),
        ("format_timestamp(1700000000, '%Y-%m-%d %H:%M:%S')", b"2023-11-14 22:13:20"),
        ("format_timestamp_tz(1700000000, 'Europe/Moscow', '%H')", b"01"),
    ],
)
def test_function_gives_its_result(tables: Tables, expression: str, value: Any) -> None:
    """The functions of numbers, strings and times."""
    found = tables.value(expression)
    assert type(found) in (type(value), YsonUint64)
    assert found == (pytest.approx(value, nan_ok=True) if isinstance(value, float) else value)


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("try_get_int64(doc, '/i')", -5),
        ("try_get_int64(doc, '/u')", None),
        ("try_get_uint64(doc, '/u')", 2**63),
        ("try_get_uint64(doc, '/i')", None),
        ("try_get_double(doc, '/d')", 1.5),
        ("try_get_double(doc, '/i')", -5.0),
        ("try_get_boolean(doc, '/b')", True),
        ("try_get_string(doc, '/s')", b"text"),
        ("try_get_string(doc, '/i')", None),
        ("try_get_string(doc, '/missing')", None),
        ("try_get_any(doc, '/m/deep')", {b"er": 7}),
        ("get_int64(doc, '/m/deep/er')", 7),
        ("get_int64(doc, '/l/0')", 1),
        ("try_get_int64(doc, '/l/9')", None),
        ("try_get_int64(n, '/x')", None),
        ("list_contains(list, 1)", True),
        ("list_contains(list, 'a')", True),
        ("list_contains(list, 2)", False),
        ("list_contains(list, 1u)", False),
        ("list_contains(get_any(doc, '/l'), null)", True),
        ("list_has_intersection(list, make_list(5, 1))", True),
        ("list_has_intersection(list, make_list(5))", False),
        ("yson_length(doc)", len(DOCUMENT)),
        ("yson_length(list)", 2),
        ("make_list(i, 'x', null)", [-7, b"x", None]),
        ("make_map('a', i, 'b', s)", {b"a": -7, b"b": b"Ab\xffC"}),
        ("make_entity()", None),
        ("to_any(i)", -7),
        ("any_to_yson_string(list)", b'[1;"a";]'),
        ("yson_string_to_any('{a=1u}')", {b"a": 1}),
    ],
)
def test_document_function_gives_its_result(tables: Tables, expression: str, value: Any) -> None:
    """Access by path is typed: a value of another type is not there."""
    assert tables.value(expression) == value


@pytest.mark.parametrize(
    ("expression", "fragment"),
    [
        ("int64(d / 0)", "Floating point value out of integer range"),
        ("uint64(-d)", "Floating point value out of integer range"),
        ("int64(sqrt(-d))", "NaN is not convertible to integer"),
        ("int64(try_get_any(doc, '/s'))", 'Cannot convert value ""text"" of type "any" to "int64"'),
        ("floor(d / 0)", "Floating point value out of integer range"),
        ("greatest(i, null)", "Found null argument"),
        ("factorial(21)", "Factorial argument is too big"),
        ("parse_int64('x')", "Cannot convert value"),
        ("regex_full_match('(', s)", "Error parsing regular expression"),
        ("regex_full_match('(a)\\\\1', s)", "Error parsing regular expression"),
        ("regex_full_match('.{999}.{999}', s)", "up to 10000"),
        ("s like 'a\\\\'", "Incomplete escape sequence at the end of LIKE pattern"),
        ("s like 'a' escape '!!'", "Escape string must be empty or one character"),
        ("get_int64(doc, '/s')", "is not found at YPath"),
        ("get_int64(doc, 's')", "Unexpected YPath token"),
        ("yson_length(try_get_any(doc, '/i'))", "YSON List or Map expected"),
        ("list_contains(doc, 1)", "YSON List expected"),
        ("make_map('a')", "takes a even number of arguments"),
        ("make_map(1, 2)", "Invalid type of key in key-value pair #0"),
        ("yson_string_to_any('{')", "Error parsing YSON string"),
        ("try_get_any(doc, '/s') > 1", 'Cannot compare values of types "string" and "int64"'),
        ("timestamp_floor_day_tz(0, 'Mars/Base')", 'Unknown time zone "Mars/Base"'),
        ("timestamp_floor_day(999999999999)", "Timestamp is greater than maximal value"),
        ("format_timestamp(0, '0123456789012345678901234567890')", "Format string is too long"),
    ],
)
def test_function_refuses_what_it_cannot_take(
    tables: Tables, expression: str, fragment: str
) -> None:
    """An error of a function reaches the client with its own text."""
    error = tables.refusal(f"({expression}) as x from [//one]")
    assert any(fragment in text for text in (error.message, *(e.message for e in error.inner)))


@pytest.mark.parametrize(
    ("size", "fingerprint"),
    [
        (0, 11160318154034397263),
        (3, 13640551807397381187),
        (7, 8373401690845283097),
        (16, 2312119002495358724),
        (20, 8536336844176918277),
        (33, 9346028576833008189),
        (64, 4094293376080376188),
        (65, 7960194451803025662),
        (200, 3609241559801594420),
    ],
)
def test_fingerprint_is_that_of_the_original_library(size: int, fingerprint: int) -> None:
    """Every length class of the hash gives the value that Google's code gives."""
    data = bytes((i * 37 + size * 11 + (i * i) % 251) & 255 for i in range(size))
    assert fingerprint_of_value(Type.STRING, data) == fingerprint


def test_hash_tells_values_positions_and_signs_apart(tables: Tables) -> None:
    """A hash of several columns depends on their order; null hashes like zero."""
    one, other = tables.value("farm_hash(i, u)"), tables.value("farm_hash(u, i)")
    assert one != other
    assert type(one) is YsonUint64
    assert tables.value("farm_hash(null)") == tables.value("farm_hash(0)")
    assert tables.value("farm_hash(1)") == tables.value("farm_hash(1u)")


def test_function_of_null_is_null(tables: Tables) -> None:
    """Most functions pass a null on."""
    for call in ("length(null)", "abs(null + i)", "lower(null || s)", "floor(null * d)"):
        assert tables.value(call) is None
