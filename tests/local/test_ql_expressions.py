"""Expressions: constants, types, null, unsigned integers, wraparound, NaN and functions."""

import math
from collections.abc import Iterator
from typing import Any

import pytest
from yt.yson import YsonUint64

from tests.contract.tables import columns, key_columns
from tests.local.ql_tables import Tables, opened
from yt_exactly_once.local.ql.functions.general import fingerprint_of_value

U = YsonUint64
MIN, MAX, UMAX = -(2**63), 2**63 - 1, 2**64 - 1
ROW: dict[str, Any] = {
    "i": 7,
    "minus": -7,
    "low": MIN,
    "high": MAX,
    "u": 2**63 + 5,
    "top": UMAX,
    "d": 0.5,
    "nan": math.nan,
    "yes": True,
    "no": False,
    "s": b"ab\xff\x00c",
    "doc": {"x": 1},
}


@pytest.fixture(scope="module")
def tables() -> Iterator[Tables]:
    with opened() as found:
        names = {
            "int64": ("i", "minus", "low", "high", "n"),
            "uint64": ("u", "top", "un"),
            "double": ("d", "nan", "dn"),
            "boolean": ("yes", "no", "bn"),
            "string": ("s", "sn"),
            "any": ("doc",),
        }
        types = {name: kind for kind, some in names.items() for name in some}
        schema = [*key_columns(k="int64"), *columns(**types)]
        found.create("//one", schema, [{"k": 1, **ROW}])
        yield found


VALUES: dict[str, list[tuple[str, Any]]] = {
    "constants are what the server's lexer makes of them": [
        ("18446744073709551615u", U(2**64 - 1)),
        ("18446744073709551615", -1),
        ("9223372036854775807", 2**63 - 1),
        ("-9223372036854775808", -(2**63)),
        ("1.5", 1.5),
        ("2.", 2.0),
        (".5", 0.5),
        ("1e3", 1000.0),
        ("inf", float("inf")),
        ("-inf", float("-inf")),
        ("true", True),
        ("%false", False),
        ("null", None),
        ("#", None),
        ("'a\"b'", b'a"b'),
        (r'"\x41\n\"\\\101\u0416"', 'A\n"\\A\u0416'.encode()),
        ("'\u0416'", "\u0416".encode()),
    ],
    "integers wrap around, division goes towards zero, doubles are IEEE": [
        ("high + 1", MIN),
        ("low - 1", MAX),
        ("high * 2", -2),
        ("-low", MIN),
        ("0u - 1u", U(UMAX)),
        ("top + 1", U(0)),
        ("u - 2 * u", U(2**63 - 5)),
        ("-u", U(2**63 - 5)),
        ("minus / 2", -3),
        ("minus % 2", -1),
        ("i / -2", -3),
        ("i % -2", 1),
        ("low / 2", MIN // 2),
        ("u / 2", U((2**63 + 5) // 2)),
        ("u % 10", U((2**63 + 5) % 10)),
        ("top / u", U(1)),
        ("high / i * i + high % i", MAX),
        ("d + 1", 1.5),
        ("d / 0", math.inf),
        ("-d / 0", -math.inf),
        ("d * -2.5", -1.25),
        ("9223372036854775807 + 1", MIN),
        ("7 / 2.0", 3.5),
        ("if(yes, u, 0)", U(2**63 + 5)),
        ("1u", U(1)),
    ],
    "unsigned order is unsigned, a literal takes the type of its partner, tuples go item by item": [
        ("u > 5", True),
        ("u <= 9223372036854775813u", True),
        ("u = -9223372036854775803", True),
        ("top > -2", True),
        ("u between 6u and top", True),
        ("u in (9223372036854775813u, 1)", True),
        ("(i, u) > (7, 9223372036854775813u)", False),
        ("(i, d) = (7, 0.5)", True),
        ("(i, d) != (7, 0.25)", True),
        ("no < yes", True),
        ('s < "ac"', True),
        ('s > "ab"', True),
        ("d < 1", True),
        ("low < high", True),
        ("1 = 1.0", True),
        ("-1 < 1u", False),
    ],
    "null equals itself and is below everything": [
        ("n = null", True),
        ("n < i", True),
        ("n >= i", False),
        ("un < 0u", True),
        ("dn < -inf", True),
        ('sn < ""', True),
        ("bn < false", True),
        ("n != 1", True),
        ("null = null", True),
        ("(n, i) = (null, 7)", True),
        ("nan is null", False),
        ("nan != dn", True),
        ("is_nan(nan)", True),
        ("is_nan(dn)", False),
    ],
    "arithmetic with null is null, logic has three values, sets and branches do not": [
        ("n + 1", None),
        ("-n", None),
        ("n / 0", None),
        ("not bn", None),
        ("bn and no", False),
        ("bn and yes", None),
        ("bn or yes", True),
        ("bn or no", None),
        ("if(bn, 1, 2)", None),
        ("if(yes, n, 2)", None),
        ("is_null(n)", True),
        ("n is null", True),
        ("i is not null", True),
        ("if_null(n, 3)", 3),
        ("coalesce(n, null, i)", 7),
        ("n in (1, null)", True),
        ("n in (1, 2)", False),
        ("i in (1, null)", False),
        ("(n, i) in ((null, 7), (1, 1))", True),
        ("n between null and 5", True),
        ("n between (1 and 5, null and 0)", True),
    ],
    "sets, ranges and plain columns": [
        ("i in (1, 2, i)", True),
        ("i not in (1, 2)", True),
        ("i in ()", False),
        ("i between (1 and 3, 6 and 8)", True),
        ("(i, d) between ((1) and (7, 0.25), (7, 0.5) and (8))", True),
        ("(i, d) between ((1) and (7, 0.25), (7, 0.75) and (8))", False),
        ("(i, d) between (1, 2.0) and (7, 0.5)", True),
        ("i between 1 + 1 and i", True),
        ("concat(s, s)", ROW["s"] * 2),
        ("doc", {b"x": 1}),
        ("s", ROW["s"]),
    ],
    "functions": [
        ("int64(u)", -(2**63) + 5),
        ("uint64(minus)", U(2**64 - 7)),
        ("uint64(5 * d)", U(2)),
        ("double(minus)", -7.0),
        ("double(u)", float(2**63 + 5)),
        ("boolean(i)", True),
        ("string(s)", ROW["s"]),
        ("if(yes, i, 1)", 7),
        ("coalesce(null, i, 1)", 7),
        ("is_nan(d)", False),
        ("length(s)", 5),
        ("concat(s, 'x')", ROW["s"] + b"x"),
        ("lower('\u0416')", "\u0436".encode()),
        ("is_prefix('ab', s)", True),
        ("is_prefix('b', s)", False),
        ("is_substr('\\xff', s)", True),
        ("farm_hash('abc')", U(0x7B15151E28709746)),
        ("length(null)", None),
        ("int64(null + i)", None),
        ("concat(null, s)", None),
        ("double(null * d)", None),
    ],
}
"""Expressions on the only row of a table, by what they show, and their values."""


@pytest.mark.parametrize(
    ("expression", "value"), [case for group in VALUES.values() for case in group]
)
def test_expression_has_its_value(tables: Tables, expression: str, value: Any) -> None:
    """And its type: a uint64 comes back as the client's own class, so that it survives the format."""
    found = tables.value(expression)
    assert (found, kinds(found)) == (value, kinds(value))


def kinds(value: Any) -> list[bool]:
    return [isinstance(value, kind) for kind in (YsonUint64, float, bool)]


REFUSED = [
    ("i = 1u", "Type mismatch in expression"),
    ("i + u", "Type mismatch in expression"),
    ("i = 7.0", "Type mismatch in expression"),
    ("d + 9007199254740993", "Failed to cast 9007199254740993 to double"),
    ('i = "7"', "Type mismatch in expression"),
    ("not i", "Type mismatch in expression"),
    ("yes and i", "Type mismatch in expression"),
    ("-s", "Type mismatch in expression"),
    ("d % 2.0", "Type mismatch in expression"),
    ("yes + yes", "Type mismatch in expression"),
    ("if(i, 1, 2)", 'No matching function "if"'),
    ("if(yes, i, s)", 'No matching function "if"'),
    ('i in ("7")', "Types mismatch in tuple"),
    ("(i, u) in ((1, 2, 3))", "Arguments size mismatch in tuple"),
    ("(i, u) = (1, 2, 3)", "Tuples of same size are expected"),
    ("(i, u)", 'Aliased expression "i, u" must be scalar'),
    ("(i, u) + 1", "Expecting scalar expression"),
    ("doc in (1)", "Operations on values of type any are not supported"),
    ("doc = null", "Operations on values of type any are not supported"),
    ("doc + 1", "Operations on values of type any are not supported"),
    ("-doc", "Operations on values of type any are not supported"),
    ("missing", 'Undefined reference "missing"'),
    ("t.i", 'Undefined reference "t.i"'),
    ("missing(i)", 'Undefined function "missing"'),
    ("length(i)", 'No matching function "length"'),
    ("length()", 'No matching function "length"'),
    ("1 / 0", "Division by zero"),
    ("i between (1 and 3, 7 and 6)", "Lower bound is greater than upper"),
    ("(i, d) between ((1) and (7, 0.5), (7) and (9))", "Ranges are not disjoint"),
    ("i between (5 and 9, null and 5)", "Ranges are not disjoint"),
    ('s between ("b" and "c", "a" and "bb")', "Ranges are not disjoint"),
]


@pytest.mark.parametrize(("expression", "fragment"), REFUSED)
def test_expression_against_the_rules_is_refused(
    tables: Tables, expression: str, fragment: str
) -> None:
    """Before any row is read: types are strict, only literals convert, and no ranges are merged."""
    assert fragment in str(tables.refusal(f"({expression}) as x from [//one] where false"))


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("i / 0", "Division by zero"),
        ("i % (i - 7)", "Division by zero"),
        ("u / 0", "Division by zero"),
        ("low / -1", "Division of INT_MIN by -1"),
        ("low % (i - 8)", "Division of INT_MIN by -1"),
        *(
            (condition, "Comparison with NaN")
            for condition in ("nan > 0", "nan = nan", "d < nan", "nan + 1 > d", "-nan != d")
        ),
        ("nan between 0 and 1", "Comparison with NaN"),
        ("int64(d / 0)", "Floating point value out of integer range"),
        ("uint64(-d)", "Floating point value out of integer range"),
    ],
)
def test_value_that_is_impossible_is_an_error_of_execution(
    tables: Tables, expression: str, message: str
) -> None:
    """The error of a row is wrapped like the server's."""
    error = tables.refusal(f"({expression}) as x from [//one]")
    assert error.message == "Error while executing query"
    assert [message in inner.message for inner in error.inner] == [True]


def test_nan_is_carried(tables: Tables) -> None:
    """It is neither null nor lost on the way."""
    for expression in ("nan", "nan * 2", "(d - d) / (d - d)"):
        assert math.isnan(tables.value(expression))


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
