"""Clauses of a query: projections, groups, order, offset and limit, on both kinds of tables."""

import math
from collections.abc import Iterator
from typing import Any

import pytest
from yt.yson import YsonUint64 as U

from tests.contract.tables import columns, key_columns
from tests.local.ql_tables import Tables, opened

UNSIGNED = [2**63 + 1, 2**64 - 1, 3, None, 10, 2**63]
ITEMS = [
    {"k": k, "g": k % 2, "v": v, "u": u, "s": s}
    for k, (v, u, s) in enumerate(
        zip([5, None, 2, 8, 2, -1], UNSIGNED, [b"b", b"a", None, b"d", b"b", b"c"], strict=True)
    )
]


@pytest.fixture
def tables() -> Iterator[Tables]:
    with opened() as found:
        values = columns(g="int64", v="int64", u="uint64", s="string")
        found.create("//sorted", [*key_columns(k="int64"), *values], ITEMS)
        rows = [{"a": index, "$tablet_index": index % 2} for index in range(6)]
        found.create("//ordered", columns(a="int64"), rows)
        found.create("//empty", columns(a="int64"))
        items = {"name": "l", "type_v3": {"type_name": "list", "item": "int64"}}
        found.create("//typed", [*key_columns(k="int64"), items], [{"k": 1, "l": [1, 2]}])
        pairs = [{"a": a, "b": b} for a in range(2) for b in range(2)]
        found.create("//pairs", [*key_columns(a="int64", b="int64"), *columns(v="int64")], pairs)
        yield found


ORDERS = [
    ("v", [1, 5, 2, 4, 0, 3]),
    ("v desc", [3, 0, 2, 4, 5, 1]),
    ("v, k desc", [1, 5, 4, 2, 0, 3]),
    ("u", [3, 2, 4, 5, 0, 1]),
    ("u desc", [1, 0, 5, 4, 2, 3]),
    ("s, v desc", [2, 1, 0, 4, 5, 3]),
    ("g desc, k", [1, 3, 5, 0, 2, 4]),
    ("(g, k)", [0, 2, 4, 1, 3, 5]),
    ("-k", [5, 4, 3, 2, 1, 0]),
]
"""Null comes first, unsigned numbers are ordered as such, and ties stay in the order of the table."""

AGGREGATES = [
    ("sum(v)", [9, 7]),
    ("sum(u)", [U(14 + 2**63), U(2**63 - 1)]),
    ("min(v)", [2, -1]),
    ("max(v)", [5, 8]),
    ("min(u)", [U(3), U(2**63)]),
    ("max(u)", [U(2**63 + 1), U(2**64 - 1)]),
    ("avg(v)", [3.0, 3.5]),
    ("sum(v + k * 2)", [21, 23]),
    ("sum(if(is_null(v), 1, 0))", [0, 1]),
    ("max(double(k) / 2)", [2.0, 2.5]),
]
"""Nulls are passed over, sums wrap around, and the type of the argument stays."""

COLUMNS = [
    # By key in sorted tables, by tablet and row in ordered ones.
    ("k from [//sorted]", [0, 1, 2, 3, 4, 5]),
    ("a from [//ordered]", [0, 2, 4, 1, 3, 5]),
    # False and null both drop a row.
    ("k from [//sorted] where v > 2", [0, 3]),
    ("k from [//sorted] where v < 3", [1, 2, 4, 5]),
    *((f"k from [//sorted] order by {order} limit 10", found) for order, found in ORDERS),
    # Reading the table backwards would turn the ties around; by the whole key there are none.
    ("a * 2 + b from [//pairs] order by a desc limit 9", [2, 3, 0, 1]),
    ("a * 2 + b from [//pairs] order by a desc, b desc limit 9", [3, 2, 1, 0]),
    ("a * 2 + b from [//pairs] order by a, b limit 9", [0, 1, 2, 3]),
    # Both may miss the end.
    ("k from [//sorted] offset 2 limit 3", [2, 3, 4]),
    ("k from [//sorted] order by v offset 4 limit 10", [0, 3]),
    ("k from [//sorted] offset 9 limit 3", []),
    ("k from [//sorted] limit 0", []),
    ("g from [//sorted] group by g limit 1", [0]),
    # An empty table has no group at all.
    ("sum(1) from [//sorted] group by 1", [6]),
    ("sum(1) from [//empty] group by 1", []),
    ("sum(1) from [//sorted] where false group by 1", []),
    *((f"{one} from [//sorted] group by g", values) for one, values in AGGREGATES),
    # Nothing to summarize is null, not zero.
    *(
        (f"{one} from [//sorted] where v = null group by 1", [None])
        for one in ("sum(v)", "min(v)", "avg(v)")
    ),
]


@pytest.mark.parametrize(("query", "values"), COLUMNS)
def test_query_of_one_column_has_its_values(tables: Tables, query: str, values: list[Any]) -> None:
    """In their order, and of their type."""
    found = tables.column(query)
    assert found == values
    assert [isinstance(one, U) for one in found] == [isinstance(one, U) for one in values]


@pytest.mark.parametrize(
    ("query", "rows"),
    [
        # An ordered table shows where its rows are; system columns of the store stay hidden.
        ("* from [//sorted] where k = 3", [{"k": 3, "g": 1, "v": 8, "u": None, "s": b"d"}]),
        ("* from [//ordered] where a = 3", [{"$tablet_index": 1, "$row_index": 1, "a": 3}]),
        # A list is read as the document it is stored as.
        (
            "k, l, is_null(l) as n from [//typed] where l is not null",
            [{"k": 1, "l": [1, 2], "n": False}],
        ),
        # Groups come in the order of their first row; null is a key like any other.
        (
            "v, sum(1) as n from [//sorted] group by v",
            [{"v": v, "n": 2 if v == 2 else 1} for v in (5, None, 2, 8, -1)],
        ),
        # A key has its alias or its text as a name; `*` shows keys, then aggregates.
        (
            "half, max(v) from [//sorted] group by k / 2 as half limit 2",
            [{"half": 0, "max(v)": 5}, {"half": 1, "max(v)": 8}],
        ),
        (
            "* from [//sorted] group by g, k / 4 having sum(v) > 2",
            [{"g": 0, "(k)/(4)": 0, "sum(v)": 7}, {"g": 1, "(k)/(4)": 0, "sum(v)": 8}],
        ),
    ],
)
def test_query_has_its_rows(tables: Tables, query: str, rows: list[dict[str, Any]]) -> None:
    """With the names of their columns."""
    assert tables.select(query) == rows


def test_sum_with_nan_is_nan(tables: Tables) -> None:
    """A sum does not lose a NaN."""
    rows = [{"d": 1.0}, {"d": math.nan}, {}]
    tables.create("//doubles", columns(d="double"), rows)
    (row,) = tables.select("sum(d) as a, avg(d) as b from [//doubles] group by 1")
    assert math.isnan(row["a"])
    assert math.isnan(row["b"])
    query = "sum(d) as a, avg(d) as b from [//doubles] where not is_nan(d) group by 1"
    assert tables.select(query) == [{"a": 1.0, "b": 1.0}]


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("k from [//sorted] order by v", "ORDER BY used without LIMIT"),
        ("k from [//sorted] offset 1", "OFFSET used without LIMIT"),
        ("g from [//sorted] group by g having g = 1 limit 1", "HAVING with LIMIT is not allowed"),
        ("sum(v) from [//sorted]", 'Misuse of aggregate function "sum"'),
        ("k from [//sorted] where sum(v) > 1", 'Misuse of aggregate function "sum"'),
        ("sum(sum(v)) from [//sorted] group by g", 'Misuse of aggregate function "sum"'),
        ("g from [//sorted] group by sum(v)", 'Misuse of aggregate function "sum"'),
        ("k from [//sorted] group by g", 'Undefined reference "k"'),
        ("k from [//sorted] where v", "WHERE-clause is not a boolean expression"),
        ("g from [//sorted] group by g having g", "HAVING-clause is not a boolean expression"),
        ("k from [//sorted] where missing = 1", 'Undefined reference "missing"'),
        ("k from [//sorted] order by missing limit 1", 'Undefined reference "missing"'),
        ("[$row_index] from [//sorted]", 'Undefined reference "$row_index"'),
        ("k from [//nowhere]", "Error getting mount info for //nowhere"),
    ],
)
def test_query_against_the_rules_is_refused(tables: Tables, query: str, message: str) -> None:
    """The refusal is the server's, word for word."""
    assert tables.refusal(query).message.startswith(message)


@pytest.mark.parametrize("end", ["where 1 / (k - 2) > 0", "limit 1"])
def test_query_that_stops_early_leaves_nothing_open(tables: Tables, end: str) -> None:
    """A statement that is not read to its end would keep the connection at an old moment."""
    query = f"k from [//sorted] {end}"
    kept = tables.refusal(query) if "where" in end else tables.select(query)
    tables.insert("//sorted", {"k": 9})
    assert tables.column("max(k) from [//sorted] group by 1") == [9]
    assert kept
