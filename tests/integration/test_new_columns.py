"""Columns that a DataFrame gets, on Spark: by the sink and by the format, in one run and from run to run."""

import pytest

from tests.flows import Query
from yt_exactly_once import Event

TYPES = {"id": "int64?", "key": "int64?"}


@pytest.fixture
def growing(stream):
    """A query with more columns each time: the list of them, and the query."""
    more = []
    query = Query(
        "growing", TYPES, (), "append", lambda frame: frame.selectExpr(*TYPES, *more), lambda *_: []
    )
    return more, stream(query, rows=300, rows_per_partition=100)


def rows(flow):
    return {row["id"]: row for row in flow.client.select_rows(f"* from [{flow.target}]")}


@pytest.mark.parametrize("by_format", [False, True], ids=["foreachBatch", "format"])
def test_each_program_adds_its_columns_before_its_first_row(growing, by_format):
    """Also a struct that gets a member, and a number that gets wider. Rows of before have null there."""
    more, flow = growing
    run = flow.write if by_format else flow.run
    run()
    programs = [
        ["int(id) as n", "named_struct('a', id) as s"],
        ["bigint(id) as n", "named_struct('a', id, 'b', key) as s", "array(name) as names"],
    ]
    expected = {row["id"]: (None, None, None) for row in flow.queue.all_rows()}
    for columns in programs:
        more[:] = columns
        known = len(expected)
        for partition in range(3):
            flow.queue.append(50, partition)
        run(on_new_columns="add")
        has_names = len(columns) > 2
        for row in flow.queue.all_rows():
            struct = {"a": row["id"], "b": row["key"] if has_names else None}
            names = [row["name"]] if has_names else None
            expected.setdefault(row["id"], (row["id"], struct, names))
        assert len(expected) == known + 150
    found = rows(flow)
    for row in found.values():
        # A member that is missing in a stored value is null.
        row["s"] = row["s"] and {"b": None, **row["s"]}
    assert {k: (v["n"], v["s"], v["names"]) for k, v in found.items()} == expected
    assert sum(1 for _ in flow.client.select_rows(f"id from [{flow.target}]")) == len(expected)


def test_function_adds_a_column_between_two_batches_of_a_run(growing):
    """Only the rows of later batches have it, and the event comes once."""
    _, flow = growing
    heard = []

    def listen(event, fields):
        if event == Event.COLUMNS_ADDED:
            heard.append((fields["batch"], fields["columns"]))

    sink = flow.sink(listen, on_new_columns="add")
    query = flow.start(
        lambda frame, number: sink(
            frame.selectExpr("*", "id * 2 as twice") if number else frame, number
        )
    )
    assert query.awaitTermination(120)
    assert heard == [(1, ["twice"])]
    found = rows(flow)
    assert len(found) == 900
    assert sum(row["twice"] is None for row in found.values()) == 300
    assert all(row["twice"] in {None, row["id"] * 2} for row in found.values())
