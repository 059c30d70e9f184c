"""Clauses of a query: projections, groups, order, offset and limit, on both kinds of tables."""

import math
from collections.abc import Iterator
from typing import Any

import pytest
from yt.yson import YsonUint64

from tests.local.ql_tables import Tables, columns, key_columns
from yt_exactly_once.local.tables.layout import quote

UNSIGNED = [2**63 + 1, 2**64 - 1, 3, None, 10, 2**63]
ITEMS = [
    {"k": k, "g": k % 2, "v": v, "u": u, "s": s}
    for k, (v, u, s) in enumerate(
        zip([5, None, 2, 8, 2, -1], UNSIGNED, [b"b", b"a", None, b"d", b"b", b"c"], strict=True)
    )
]


@pytest.fixture
def tables() -> Iterator[Tables]:
    found = Tables()
    values = columns(g="int64", v="int64", u="uint64", s="string")
    found.create("//sorted", [*key_columns(k="int64"), *values], ITEMS)
    rows = [{"a": index, "$tablet_index": index % 2} for index in range(6)]
    found.create("//ordered", columns(a="int64"), rows)
    found.create("//empty", columns(a="int64"))
    yield found
    found.close()


def test_star_gives_every_column_and_positions_first(tables: Tables) -> None:
    """An ordered table shows where its rows are; system columns of the store stay hidden."""
    assert tables.select("* from [//sorted] where k = 3") == [
        {"k": 3, "g": 1, "v": 8, "u": None, "s": b"d"}
    ]
    assert tables.select("* from [//ordered] where a = 3") == [
        {"$tablet_index": 1, "$row_index": 1, "a": 3}
    ]


def test_rows_come_in_table_order(tables: Tables) -> None:
    """By key in sorted tables, by tablet and row in ordered ones."""
    assert tables.column("k from [//sorted]") == [0, 1, 2, 3, 4, 5]
    assert tables.column("a from [//ordered]") == [0, 2, 4, 1, 3, 5]


def test_deleted_row_is_not_seen(tables: Tables) -> None:
    """A tombstone that the store keeps for conflicts is no row."""
    layout = tables.layouts["//sorted"]
    tables.connection.execute(
        f'UPDATE {quote(layout.sql_table)} SET "$deleted" = 1 WHERE {layout.sql_column("k")} < 4'
    )
    assert tables.column("k from [//sorted]") == [4, 5]
    assert tables.column("k from [//sorted] where k in (1, 5)") == [5]
    assert tables.column("sum(1) from [//sorted] group by 1") == [2]


def test_rows_after_the_read_timestamp_are_not_seen(tables: Tables) -> None:
    """A query inside a transaction reads the versions of its start."""
    layout = tables.layouts["//sorted"]
    table, history = quote(layout.sql_table), quote(layout.history_table)
    names = ", ".join(map(quote, layout.sql_names))
    tables.connection.execute(
        f'CREATE TABLE {history} ("$key", "$ts", "$deleted", "$until", {names})'
    )
    tables.connection.execute(
        f'INSERT INTO {history} SELECT "$key", "$ts", 0, 200, {names} FROM {table}'
    )
    tables.connection.execute(f'UPDATE {table} SET "$ts" = 200, {layout.sql_column("v")} = 77')
    tables.layouts["//sorted"] = layout.at(150)
    assert tables.column("v from [//sorted]") == [item["v"] for item in ITEMS]
    assert tables.column("v from [//sorted] where k = 3") == [8]
    tables.layouts["//sorted"] = layout.at(200)
    assert tables.column("v from [//sorted]") == [77] * 6


def test_where_keeps_rows_whose_condition_is_true(tables: Tables) -> None:
    """False and null both drop a row."""
    assert tables.column("k from [//sorted] where v > 2") == [0, 3]
    query = "k from [//sorted] where v < 3"
    assert tables.column(query) == [1, 2, 4, 5]


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        ("v", [1, 5, 2, 4, 0, 3]),
        ("v desc", [3, 0, 2, 4, 5, 1]),
        ("v, k desc", [1, 5, 4, 2, 0, 3]),
        ("u", [3, 2, 4, 5, 0, 1]),
        ("u desc", [1, 0, 5, 4, 2, 3]),
        ("s, v desc", [2, 1, 0, 4, 5, 3]),
        ("g desc, k", [1, 3, 5, 0, 2, 4]),
        ("(g, k)", [0, 2, 4, 1, 3, 5]),
        ("-k", [5, 4, 3, 2, 1, 0]),
    ],
)
def test_order_by_sorts_with_null_first_and_ties_in_table_order(
    tables: Tables, order: str, expected: list[int]
) -> None:
    """Unsigned numbers are ordered as such, and null is the lowest."""
    assert tables.column(f"k from [//sorted] order by {order} limit 10") == expected


def test_descending_order_by_a_key_prefix_keeps_ties_in_table_order(tables: Tables) -> None:
    """Reading the table backwards would turn the ties around; by the whole key there are none."""
    pairs = [{"a": a, "b": b} for a in range(2) for b in range(2)]
    tables.create("//pairs", [*key_columns(a="int64", b="int64"), *columns(v="int64")], pairs)
    query = "a * 2 + b from [//pairs] order by"
    assert tables.column(f"{query} a desc limit 9") == [2, 3, 0, 1]
    assert tables.column(f"{query} a desc, b desc limit 9") == [3, 2, 1, 0]
    assert tables.column(f"{query} a, b limit 9") == [0, 1, 2, 3]


def test_offset_and_limit_cut_the_answer(tables: Tables) -> None:
    """OFFSET passes rows over, LIMIT stops, both may miss the end."""
    assert tables.column("k from [//sorted] offset 2 limit 3") == [2, 3, 4]
    assert tables.column("k from [//sorted] order by v offset 4 limit 10") == [0, 3]
    assert tables.column("k from [//sorted] offset 9 limit 3") == []
    assert tables.column("k from [//sorted] limit 0") == []
    assert tables.column("g from [//sorted] group by g limit 1") == [0]


def test_groups_come_in_order_of_their_first_row(tables: Tables) -> None:
    """A group has one row; null is a key like any other."""
    query = "v, sum(1) as n from [//sorted] group by v"
    assert tables.select(query) == [
        {"v": 5, "n": 1},
        {"v": None, "n": 1},
        {"v": 2, "n": 2},
        {"v": 8, "n": 1},
        {"v": -1, "n": 1},
    ]


def test_group_by_constant_makes_one_group_unless_there_are_no_rows(tables: Tables) -> None:
    """An empty table has no group at all."""
    assert tables.select("sum(1) as n from [//sorted] group by 1") == [{"n": 6}]
    assert tables.select("sum(1) as n from [//empty] group by 1") == []
    assert tables.select("sum(1) as n from [//sorted] where false group by 1") == []


def test_group_key_is_known_by_its_name(tables: Tables) -> None:
    """A key has its alias or its text as a name; `*` shows keys, then aggregates."""
    query = "half, max(v) from [//sorted] group by k / 2 as half limit 2"
    assert tables.select(query) == [{"half": 0, "max(v)": 5}, {"half": 1, "max(v)": 8}]
    query = "* from [//sorted] group by g, k / 4 having sum(v) > 2"
    assert tables.select(query) == [
        {"g": 0, "(k)/(4)": 0, "sum(v)": 7},
        {"g": 1, "(k)/(4)": 0, "sum(v)": 8},
    ]


@pytest.mark.parametrize(
    ("aggregate", "values"),
    [
        ("sum(v)", [9, 7]),
        ("sum(u)", [14 + 2**63, 2**63 - 1]),
        ("min(v)", [2, -1]),
        ("max(v)", [5, 8]),
        ("min(u)", [3, 2**63]),
        ("max(u)", [2**63 + 1, 2**64 - 1]),
        ("avg(v)", [3.0, 3.5]),
        ("sum(v + k * 2)", [21, 23]),
        ("sum(if(is_null(v), 1, 0))", [0, 1]),
        ("max(double(k) / 2)", [2.0, 2.5]),
    ],
)
def test_aggregate_summarizes_its_group(tables: Tables, aggregate: str, values: list[Any]) -> None:
    """Nulls are passed over, sums wrap around, unsigned order is unsigned."""
    assert tables.column(f"{aggregate} from [//sorted] group by g") == values


def test_sum_of_unsigned_numbers_stays_unsigned(tables: Tables) -> None:
    """Aggregates keep the type of their argument."""
    for aggregate in ("sum(u)", "min(u)", "max(u)"):
        (found,) = tables.column(f"{aggregate} from [//sorted] group by 1")
        assert isinstance(found, YsonUint64)


@pytest.mark.parametrize("aggregate", ["sum(v)", "min(v)", "avg(v)"])
def test_aggregate_of_nulls_is_null(tables: Tables, aggregate: str) -> None:
    """Nothing to summarize is null, not zero."""
    assert tables.column(f"{aggregate} from [//sorted] where v = null group by 1") == [None]


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


def test_composite_columns_are_any(tables: Tables) -> None:
    """A list or a struct is read as the document it is stored as."""
    schema: list[dict[str, Any]] = [
        {"name": "k", "type_v3": "int64", "sort_order": "ascending"},
        {"name": "l", "type_v3": {"type_name": "list", "item": "int64"}},
    ]
    tables.create("//typed", schema, [{"k": 1, "l": [1, 2]}])
    query = "k, l, is_null(l) as n from [//typed] where l is not null"
    assert tables.select(query) == [{"k": 1, "l": [1, 2], "n": False}]


@pytest.mark.parametrize("end", ["where 1 / (k - 2) > 0", "limit 1"])
def test_query_that_stops_early_leaves_nothing_open(tables: Tables, end: str) -> None:
    """A statement that is not read to its end would keep the connection at an old moment."""
    query = f"k from [//sorted] {end}"
    kept = tables.refusal(query) if "where" in end else tables.select(query)
    tables.connection.execute(f"DROP TABLE {quote(tables.layouts['//sorted'].sql_table)}")
    assert kept
