"""Random queries over random rows: the query language against a plain evaluator of the syntax tree."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st
from yt.yson import YsonUint64

from tests.local.ql_tables import Tables, columns, key_columns
from tests.property import select_model
from tests.property.select_model import Table, Value
from tests.property.select_queries import DATA, POSITION, SCHEMAS, queries
from yt_exactly_once.local.ql.parser import parse

if TYPE_CHECKING:
    from collections.abc import Sequence

TABLETS = 2
NAMES = {type(None): "null", bool: "boolean", int: "int64", float: "double", bytes: "string"}

Rows = list[dict[str, Any]]


def in_table_order(rows: Rows, keys: Sequence[str]) -> Rows:
    """Keep one row per key and sort, or append to the tablets of an ordered table."""
    if keys:
        unique = {tuple(row[name] for name in keys): row for row in rows}
        return sorted(unique.values(), key=lambda r: [(r[n] is not None, r[n]) for n in keys])
    tablets: list[Rows] = [[] for _ in range(TABLETS)]
    for number, row in enumerate(rows):
        index = number % TABLETS
        tablets[index].append(
            {**row, **dict(zip(POSITION, (index, len(tablets[index])), strict=True))}
        )
    return sum(tablets, [])


def contents_of(path: str) -> st.SearchStrategy[Rows]:
    kinds, keys = SCHEMAS[path]
    row = st.fixed_dictionaries(
        {
            name: st.sampled_from((None, *DATA[kind]))
            for name, kind in kinds.items()
            if name not in POSITION
        }
    )
    return st.lists(row, max_size=12).map(lambda rows: in_table_order(rows, keys))


def filled(contents: dict[str, Rows]) -> Tables:
    tables = Tables()
    for path, (kinds, keys) in SCHEMAS.items():
        types = {name: kind.title for name, kind in kinds.items() if name not in POSITION}
        key = key_columns(**{name: types.pop(name) for name in keys})
        tables.create(path, [*key, *columns(**types)], contents[path])
    return tables


def described(found: Any) -> tuple[str, Any]:
    """Name the type of a value, whichever side it is from."""
    if isinstance(found, Value):
        return ("null" if found.data is None else found.kind.title), found.data
    return ("uint64", int(found)) if type(found) is YsonUint64 else (NAMES[type(found)], found)


def comparable(rows: Sequence[dict[str, Any]]) -> list[dict[str, tuple[str, Any]]]:
    return [{name: described(value) for name, value in row.items()} for row in rows]


@settings(
    deadline=None,
    max_examples=400,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(
    st.fixed_dictionaries({path: contents_of(path) for path in SCHEMAS}), queries(), st.booleans()
)
def test_query_gives_what_a_plain_evaluation_gives(
    contents: dict[str, Rows], query: str, canonical: bool
) -> None:
    """Rows, their order, names, values and types are those of the plain evaluator."""
    note(query)
    tables = filled(contents)
    try:
        found = tables.select(query, use_canonical_null_relations=canonical)
    finally:
        tables.close()
    model = {path: Table(kinds, contents[path]) for path, (kinds, _) in SCHEMAS.items()}
    expected = select_model.run(parse(query), model, canonical_nulls=canonical)
    assert comparable(found) == comparable(expected)
