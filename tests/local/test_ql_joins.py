"""Joins: equal tuples, rows without a partner, and the rules for their keys."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.local.ql_tables import Tables, columns, key_columns


@pytest.fixture
def tables() -> Iterator[Tables]:
    found = Tables()
    orders: list[dict[str, Any]] = [
        {"id": 1, "who": 10, "part": 1, "u": 7},
        {"id": 2, "who": 30, "part": 0, "u": 2**63},
        {"id": 3, "who": None, "part": 0},
        {"id": 4, "who": 10, "part": 2, "u": 7},
    ]
    people: list[dict[str, Any]] = [
        {"who": None, "part": 0, "name": b"nobody"},
        {"who": 10, "part": 1, "name": b"ann"},
        {"who": 10, "part": 2, "name": b"bob"},
        {"who": 20, "part": 0, "name": b"eve"},
    ]
    found.create(
        "//orders",
        [*key_columns(id="int64"), *columns(who="int64", part="int64", u="uint64", x="any")],
        orders,
    )
    found.create(
        "//people", [*key_columns(who="int64", part="int64"), *columns(name="string")], people
    )
    found.create("//log", columns(a="int64"), [{"a": 5}, {"a": 6}])
    yield found
    found.close()


def test_join_using_pairs_rows_by_common_columns(tables: Tables) -> None:
    """Pairs come in the order of the first table, then of the joined one; null equals null."""
    query = "id, who, name from [//orders] join [//people] using who where id < 3"
    assert tables.select(query) == [
        {"id": 1, "who": 10, "name": b"ann"},
        {"id": 1, "who": 10, "name": b"bob"},
    ]
    query = "id, name from [//orders] join [//people] using who, part"
    assert tables.select(query) == [
        {"id": 1, "name": b"ann"},
        {"id": 3, "name": b"nobody"},
        {"id": 4, "name": b"bob"},
    ]


def test_join_on_a_key_prefix_repeats_rows(tables: Tables) -> None:
    """Every row with the leading key column is a partner."""
    query = "o.id, p.name from [//orders] as o join [//people] as p on o.who = p.who where o.id < 4"
    assert tables.select(query) == [
        {"o.id": 1, "p.name": b"ann"},
        {"o.id": 1, "p.name": b"bob"},
        {"o.id": 3, "p.name": b"nobody"},
    ]


def test_left_join_keeps_rows_without_partner(tables: Tables) -> None:
    """The columns of the missing side are null."""
    query = (
        "o.id as id, p.name as name from [//orders] as o "
        "left join [//people] as p on (o.who, o.part) = (p.who, p.part)"
    )
    assert tables.select(query) == [
        {"id": 1, "name": b"ann"},
        {"id": 2, "name": None},
        {"id": 3, "name": b"nobody"},
        {"id": 4, "name": b"bob"},
    ]


def test_join_predicate_filters_partners_before_the_join(tables: Tables) -> None:
    """A condition behind AND limits the joined table, so a left join keeps the row."""
    query = (
        "o.id as id, p.name as name from [//orders] as o left join [//people] as p "
        'on (o.who, o.part) = (p.who, p.part) and p.name != "bob" where o.id in (1, 4)'
    )
    assert tables.select(query) == [{"id": 1, "name": b"ann"}, {"id": 4, "name": None}]


def test_joins_chain_and_mix_with_groups(tables: Tables) -> None:
    """A joined table is a source like the first one."""
    query = (
        "p.name as name, sum(q.part) as n from [//orders] as o "
        "join [//people] as p on (o.who, o.part) = (p.who, p.part) "
        "join [//people] as q on p.who = q.who group by p.name as name"
    )
    assert tables.refusal(query).message == 'Alias "name" has been already used'
    query = query.replace("p.name as name, ", "name, ")
    assert tables.select(query) == [
        {"name": b"ann", "n": 3},
        {"name": b"nobody", "n": 0},
        {"name": b"bob", "n": 3},
    ]


def test_join_on_expression_computes_the_key(tables: Tables) -> None:
    """The own side of an equation may be any expression."""
    query = "o.id, p.name from [//orders] as o join [//people] as p on (o.who - 10, 0) = (p.who, p.part)"
    assert tables.select(query) == [{"o.id": 2, "p.name": b"eve"}, {"o.id": 3, "p.name": b"nobody"}]


def test_ordered_table_joins_by_position(tables: Tables) -> None:
    """Tablet and row index are the key of an ordered table."""
    query = (
        "o.id as id, l.a as a from [//orders] as o "
        "join [//log] as l on (0, o.part) = (l.[$tablet_index], l.[$row_index])"
    )
    assert tables.select(query) == [{"id": 1, "a": 6}, {"id": 2, "a": 5}, {"id": 3, "a": 5}]


@pytest.mark.parametrize(
    ("query", "message"),
    [
        (
            "o.id from [//orders] as o join [//people] as p on o.part = p.part",
            "Foreign table key is not used in the join clause",
        ),
        (
            "o.id from [//orders] as o join [//people] as p on o.u = p.who",
            "Types mismatch in join equation",
        ),
        ("id from [//orders] join [//people] using who, id", 'Column "id" not found'),
        (
            "o.id from [//orders] as o join [//people] as p on (o.who, o.part) = (p.who)",
            "Tuples of same size are expected",
        ),
        (
            "o.id from [//orders] as o join [//people] as p on (o.who, o.part) = (p.who, p.who)",
            'Foreign key column "who" occurs more than once in a join clause',
        ),
        (
            "o.id from [//orders] as o join [//people] as p on o.who = p.missing",
            'Undefined reference "p.missing"',
        ),
        (
            "id from [//orders] as o join [//people] as p on o.who = p.who",
            'Undefined reference "id"',
        ),
        (
            "id from [//orders] join [//orders] using id where who = 1",
            'Ambiguous resolution for column "who"',
        ),
    ],
)
def test_join_against_the_rules_is_refused(tables: Tables, query: str, message: str) -> None:
    """Sides must match in type and number, and the key of the joined table must be used."""
    assert tables.refusal(query).message.startswith(message)


def test_join_without_key_needs_permission(tables: Tables) -> None:
    """The scan of the joined table is only made when it is asked for."""
    query = "o.id from [//orders] as o join [//people] as p on o.part = p.part where o.id = 4"
    assert tables.column(query, allow_join_without_index=True) == [4]


@pytest.mark.parametrize(
    "kind",
    [{"type_name": "decimal", "precision": 5, "scale": 2}, {"type_name": "list", "item": "int64"}],
)
def test_using_a_column_of_nonsimple_type_is_refused(tables: Tables, kind: object) -> None:
    """USING compares simple types only."""
    schema: list[dict[str, Any]] = [
        {"name": "k", "type_v3": "int64", "sort_order": "ascending"},
        {"name": "v", "type_v3": {"type_name": "optional", "item": kind}},
    ]
    tables.create("//typed", schema)
    error = tables.refusal("k from [//typed] join [//typed] using v")
    assert error.message == 'Cannot join column "v" of nonsimple type'


def test_keyed_join_seeks_instead_of_scanning(tables: Tables) -> None:
    """Each row of the first table enters the joined one through its key."""
    query = "o.id from [//orders] as o join [//people] as p on (o.who, o.part) = (p.who, p.part)"
    *_, plan = tables.plans(lambda: tables.select(query))
    assert "SEARCH s_people USING PRIMARY KEY ($key=?)" in plan
