"""Expressions: types, null, unsigned integers, wraparound and NaN."""

import math
from collections.abc import Iterator
from typing import Any

import pytest
from yt.yson import YsonUint64

from tests.local.ql_tables import Tables, columns, key_columns

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
    "text": "\u0416\u0437%_".encode(),
    "doc": {"x": 1},
}


@pytest.fixture(scope="module")
def tables() -> Iterator[Tables]:
    found = Tables()
    schema = columns(
        i="int64",
        minus="int64",
        low="int64",
        high="int64",
        u="uint64",
        top="uint64",
        d="double",
        nan="double",
        yes="boolean",
        no="boolean",
        s="string",
        text="string",
        doc="any",
        n="int64",
        un="uint64",
        dn="double",
        bn="boolean",
        sn="string",
    )
    found.create("//one", [*key_columns(k="int64"), *schema], [{"k": 1, **ROW}])
    yield found
    found.close()


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("high + 1", MIN),
        ("low - 1", MAX),
        ("high * 2", -2),
        ("-low", MIN),
        ("0u - 1u", UMAX),
        ("top + 1", 0),
        ("u - 2 * u", 2**63 - 5),
        ("-u", 2**63 - 5),
        ("minus / 2", -3),
        ("minus % 2", -1),
        ("i / -2", -3),
        ("i % -2", 1),
        ("low / 2", MIN // 2),
        ("u / 2", (2**63 + 5) // 2),
        ("u % 10", (2**63 + 5) % 10),
        ("top / u", 1),
        ("high / i * i + high % i", MAX),
        ("d + 1", 1.5),
        ("d / 0", math.inf),
        ("-d / 0", -math.inf),
        ("d * -2.5", -1.25),
        ("9223372036854775807 + 1", MIN),
        ("7 / 2.0", 3.5),
    ],
)
def test_arithmetic_is_that_of_64_bit_machines(
    tables: Tables, expression: str, value: float
) -> None:
    """Integers wrap around, division goes towards zero, doubles are IEEE."""
    found = tables.value(expression)
    assert found == value
    assert isinstance(found, float) is isinstance(value, float)


@pytest.mark.parametrize("expression", ["u", "u + 1", "if(yes, u, 0)", "1u", "top / 2"])
def test_unsigned_result_keeps_its_type(tables: Tables, expression: str) -> None:
    """A uint64 comes back as the client's own class, so its type survives the format."""
    assert isinstance(tables.value(expression), YsonUint64)


@pytest.mark.parametrize(
    ("condition", "holds"),
    [
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
)
def test_comparison_follows_the_types(tables: Tables, condition: str, holds: bool) -> None:
    """Unsigned order is unsigned, a literal takes the type of its partner, tuples go item by item."""
    assert tables.value(condition) is holds


@pytest.mark.parametrize(
    ("expression", "value"),
    [
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
    ],
)
def test_null_is_the_lowest_value_by_default(tables: Tables, expression: str, value: bool) -> None:
    """Comparisons know null: it equals itself and is below everything."""
    assert tables.value(expression) is value


@pytest.mark.parametrize(
    ("expression", "value"),
    [
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
)
def test_null_spreads_where_the_server_lets_it(
    tables: Tables, expression: str, value: object
) -> None:
    """Arithmetic gives null, logic has three values, sets and branches do not."""
    assert tables.value(expression) == value


@pytest.mark.parametrize(
    "condition",
    ["nan > 0", "nan = nan", "d < nan", "nan + 1 > d", "nan between 0 and 1", "-nan != d"],
)
def test_comparison_with_nan_is_an_error(tables: Tables, condition: str) -> None:
    """NaN has no order, and the server does not invent one."""
    error = tables.refusal(f"k from [//one] where {condition}")
    assert error.message == "Error while executing query"
    assert [inner.message for inner in error.inner] == ["Comparison with NaN"]


@pytest.mark.parametrize(
    ("ranges", "message"),
    [
        ("i between (1 and 3, 7 and 6)", "Lower bound is greater than upper"),
        ("(i, d) between ((1) and (7, 0.5), (7) and (9))", "Ranges are not disjoint"),
        ("i between (5 and 9, null and 5)", "Ranges are not disjoint"),
        ('s between ("b" and "c", "a" and "bb")', "Ranges are not disjoint"),
    ],
)
def test_list_of_ranges_that_are_empty_or_meet_is_refused(
    tables: Tables, ranges: str, message: str
) -> None:
    """The server merges no ranges. One range may be empty, and then has no rows."""
    assert tables.refusal(f"k from [//one] where {ranges}").message == message
    assert tables.value("(i, d) between (1, 2.0) and (1, 1.0)") is False


def test_nan_is_carried_and_found(tables: Tables) -> None:
    """NaN is neither null nor lost on the way."""
    assert math.isnan(tables.value("nan"))
    assert math.isnan(tables.value("nan * 2"))
    assert math.isnan(tables.value("(d - d) / (d - d)"))
    assert tables.value("is_nan(nan)") is True
    assert tables.value("is_nan(dn)") is False
    assert tables.value("nan is null") is False
    assert tables.value("nan != dn") is True


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("i / 0", "Division by zero"),
        ("i % (i - 7)", "Division by zero"),
        ("u / 0", "Division by zero"),
        ("low / -1", "Division of INT_MIN by -1"),
        ("low % (i - 8)", "Division of INT_MIN by -1"),
    ],
)
def test_impossible_division_is_an_error_of_execution(
    tables: Tables, expression: str, message: str
) -> None:
    """The error of a row is wrapped like the server's."""
    error = tables.refusal(f"{expression} as x from [//one]")
    assert error.message == "Error while executing query"
    assert [inner.message for inner in error.inner] == [message]


def test_impossible_division_of_constants_is_an_error_at_once(tables: Tables) -> None:
    """Constants are folded before any row is read."""
    assert tables.refusal("1 / 0 as x from [//one] where false").message == "Division by zero"


@pytest.mark.parametrize(
    ("expression", "fragment"),
    [
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
    ],
)
def test_expression_of_wrong_types_is_refused(
    tables: Tables, expression: str, fragment: str
) -> None:
    """Types are strict: only literals convert, and only without loss."""
    assert fragment in str(tables.refusal(f"({expression}) as x from [//one] where false"))


@pytest.mark.parametrize(
    ("expression", "value"),
    [
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
)
def test_expression_has_its_value(tables: Tables, expression: str, value: Any) -> None:
    """Sets, ranges and plain columns give what is written."""
    assert tables.value(expression) == value
