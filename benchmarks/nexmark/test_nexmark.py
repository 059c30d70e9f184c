"""Nexmark: events are the same each time, wrong tables are found out, and kills cost nothing."""

from __future__ import annotations

import pyarrow as pa
import pytest

from benchmarks.nexmark.events import EPOCH, generate
from benchmarks.nexmark.queries import BY_NAME, LEFT_OUT, QUERIES
from yt_exactly_once.demo.verify import Outcome

pytest.importorskip("duckdb")

from benchmarks.nexmark.__main__ import run
from benchmarks.nexmark.oracle import Oracle


@pytest.fixture(scope="module")
def events():
    return generate(200 * EPOCH, seed=1)


def test_a_seed_makes_the_same_events(events):
    assert generate(200 * EPOCH, seed=1) == events
    assert generate(200 * EPOCH, seed=2) != events
    counts = [table.num_rows for table in events.by_name().values()]
    assert counts == [200, 600, 9_200]
    assert events.auction["id"].to_pylist() == list(range(1_000, 1_600))


def test_every_query_of_nexmark_is_here_or_left_out_for_a_reason():
    assert {*BY_NAME, *LEFT_OUT} == {f"q{number}" for number in range(24)}
    assert not BY_NAME.keys() & LEFT_OUT.keys()


@pytest.mark.parametrize("query", QUERIES, ids=lambda query: query.name)
def test_right_table_is_exact(events, query):
    """Given what DuckDB has computed."""
    right = Oracle(events)
    assert right.judge(query, right.expected(query)).exact


@pytest.mark.parametrize(
    ("spoil", "found"),
    [
        (lambda rows: rows[1:], Outcome(10, 9, lost=1, duplicated=0, wrong=0)),
        (lambda rows: [*rows, rows[0]], Outcome(10, 11, lost=0, duplicated=1, wrong=0)),
        (
            lambda rows: [{**rows[0], "price": 0}, *rows[1:]],
            Outcome(10, 10, lost=1, duplicated=0, wrong=1),
        ),
        (lambda _rows: [], Outcome(10, 0, lost=10, duplicated=0, wrong=0)),
    ],
)
def test_wrong_table_is_found_out(spoil, found):
    """A changed row is lost, and another one is wrong."""
    few = Oracle(generate(14, seed=1))
    query = BY_NAME["q0"]
    rows = few.expected(query)
    spoiled = pa.Table.from_pylist(spoil(rows.to_pylist()), schema=rows.schema)
    assert few.judge(query, spoiled) == found


@pytest.mark.spark
@pytest.mark.crash
@pytest.mark.further
@pytest.mark.timeout(600)
def test_killed_queries_are_exact():
    """One of two streams of windows, of which one is read twice, and one that keeps the newest by key."""
    queries = [BY_NAME["q5"], BY_NAME["q18"]]
    survivals, times = run(queries, 20_000, kills=1, rounds=0, seed=1)
    assert times == []
    assert all(one.kept for one in survivals), survivals
    # A mode that has committed its last row before the kill counts none.
    assert any(one.kills for one in survivals), survivals
    assert [(one.query, one.mode, one.outcome.expected > 0) for one in survivals] == [
        (name, mode, True) for name in ("q5", "q18") for mode in ("transactional", "at-least-once")
    ]
