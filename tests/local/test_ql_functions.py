"""Scalar functions: one line per promise, and the errors they raise."""

from collections.abc import Iterator
from typing import Any

import pytest
from yt.yson import YsonUint64

from tests.local.ql_tables import Tables, columns
from yt_exactly_once.local.ql.functions.farm_hash import fingerprint_of_value


@pytest.fixture(scope="module")
def tables() -> Iterator[Tables]:
    found = Tables()
    schema = columns(i="int64", u="uint64", d="double", b="boolean", s="string", n="any")
    row = {"i": -7, "u": 2**63 + 5, "d": 2.25, "b": True, "s": b"Ab\xffC"}
    found.create("//one", schema, [row])
    yield found
    found.close()


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("int64(u)", -(2**63) + 5),
        ("uint64(i)", 2**64 - 7),
        ("uint64(d)", 2),
        ("double(i)", -7.0),
        ("double(u)", float(2**63 + 5)),
        ("boolean(i)", True),
        ("string(s)", b"Ab\xffC"),
        ("if(b, i, 1)", -7),
        ("coalesce(null, i, 1)", -7),
        ("is_nan(d)", False),
        ("length(s)", 4),
        ("concat(s, 'x')", b"Ab\xffCx"),
        ("lower('\u0416')", "\u0436".encode()),
        ("is_prefix('Ab', s)", True),
        ("is_prefix('b', s)", False),
        ("is_substr('\\xff', s)", True),
        ("farm_hash('abc')", 0x7B15151E28709746),
    ],
)
def test_function_gives_its_result(tables: Tables, expression: str, value: Any) -> None:
    """Conversions, conditions, strings and hashes."""
    found = tables.value(expression)
    assert isinstance(found, type(value))
    assert found == (pytest.approx(value, nan_ok=True) if isinstance(value, float) else value)


@pytest.mark.parametrize(
    ("expression", "fragment"),
    [
        ("int64(d / 0)", "Floating point value out of integer range"),
        ("uint64(-d)", "Floating point value out of integer range"),
        ("int64(n)", "Operations on values of type any are not supported"),
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
    assert fingerprint_of_value(data) == fingerprint


def test_hash_tells_values_positions_and_signs_apart(tables: Tables) -> None:
    """A hash of several columns depends on their order; null hashes like zero."""
    one, other = tables.value("farm_hash(i, u)"), tables.value("farm_hash(u, i)")
    assert one != other
    assert isinstance(one, YsonUint64)
    assert tables.value("farm_hash(null)") == tables.value("farm_hash(0)")
    assert tables.value("farm_hash(1)") == tables.value("farm_hash(1u)")


def test_function_of_null_is_null(tables: Tables) -> None:
    """Most functions pass a null on."""
    for call in ("length(null)", "int64(null + i)", "concat(null, s)", "double(null * d)"):
        assert tables.value(call) is None
