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
from yt_exactly_once.local.ql.text.parser import parse

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
    return [row for tablet in tablets for row in tablet]


def contents_of(path: str) -> st.SearchStrategy[Rows]:
    kinds, keys = SCHEMAS[path]
    row = st.fixed_dictionaries(
        {
            name: st.sampled_from((*DATA[kind], None))
            for name, kind in kinds.items()
            if name not in POSITION
        }
    )
    rows = st.lists(row, min_size=5, max_size=12)
    return rows.map(lambda found: in_table_order(found, keys))


CONTENTS = {path: contents_of(path) for path in SCHEMAS}


@st.composite
def scenarios(draw: st.DrawFn) -> tuple[str, dict[str, Rows]]:
    """Draw a query, and rows for the tables it reads."""
    query = draw(queries())
    return query, {path: draw(CONTENTS[path]) for path in SCHEMAS if f"[{path}]" in query}


def filled(contents: dict[str, Rows]) -> Tables:
    tables = Tables()
    for path, rows in contents.items():
        kinds, keys = SCHEMAS[path]
        types = {name: kind.title for name, kind in kinds.items() if name not in POSITION}
        key = key_columns(**{name: types.pop(name) for name in keys})
        tables.create(path, [*key, *columns(**types)], rows)
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
    max_examples=300,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(scenarios(), st.booleans())
def test_query_gives_what_a_plain_evaluation_gives(
    scenario: tuple[str, dict[str, Rows]], canonical: bool
) -> None:
    """Rows, their order, names, values and types are those of the plain evaluator."""
    query, contents = scenario
    note(query)
    tables = filled(contents)
    try:
        found = tables.select(query, use_canonical_null_relations=canonical)
    finally:
        tables.close()
    model = {path: Table(SCHEMAS[path][0], rows) for path, rows in contents.items()}
    expected = select_model.run(parse(query), model, canonical_nulls=canonical)
    assert comparable(found) == comparable(expected)
