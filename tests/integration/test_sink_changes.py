"""What rows do to a sorted table besides being written: delete, add up, replace everything."""

from collections import Counter, defaultdict

import pytest

from tests.flows import Query, columns, create_table, differences
from tests.tiers import first_of
from yt_exactly_once import Event

COMMIT = "commit_transaction"


TYPES = {"key": "int64?", "id": "int64?", "name": "utf8?", "note": "utf8?"}


@pytest.fixture
def rows_by_key(stream):
    """Make a query over one queue partition, whose rows come again and again with the same keys."""

    def make(build, mode="append", **options):
        query = Query("by key", TYPES, ("key",), mode, build, lambda *_: [])
        flow = stream(query, rows=1_200, rows_per_partition=400, partitions=1, is_sorted=True)
        flow.options = options
        return flow

    return make


def replay(flow):
    """Run once more with the last batch forgotten."""
    flow.forget_last_batch()
    told = flow.run()
    assert [fields["reason"] for fields in told.of(Event.BATCH_SKIPPED)][:1] == ["replay"]


def marked(frame):
    """Every third value deletes its key."""
    return frame.selectExpr("key", "id", "name", "value % 3 = 0 as gone")


def survivors(rows, note=None):
    """What the last row of each key leaves."""
    kept = {}
    for row in rows:
        kept.pop(row["key"], None)
        if row["value"] % 3:
            kept[row["key"]] = (row["key"], row["id"], row["name"], note)
    return sorted(kept.values())


@pytest.mark.further
@pytest.mark.parametrize("options", first_of([
    {"dyn_batch_size": 90},
    {"dyn_batch_size": 90, "sent_by": "tasks"},
    {"dyn_batch_size": 90, "wire_format": "yson", "update_columns": True},
    {"dyn_batch_size": 40, "split_oversized": True, "rows_per_tablet_limit": 100},
]), ids=["plain", "tasks", "update columns", "split"])  # fmt: skip
def test_marked_rows_delete_their_keys(rows_by_key, faults, options):
    """In the order of the rows, over chunks and batches, in one transaction or several."""
    flow = rows_by_key(marked, delete_marker="gone", **options)
    keys = range(200)
    flow.client.insert_rows(flow.target, [{"key": key, "note": "old"} for key in keys])
    faults.inject("lose_answer", COMMIT, after=2)
    flow.run()
    expected = survivors(flow.queue.rows[0])
    untouched = [(key, None, None, "old") for key in keys if key >= 61]
    if options.get("update_columns"):
        deleted = {row["key"] for row in flow.queue.rows[0] if row["value"] % 3 == 0}
        expected = [(key, *rest[:2], None if key in deleted else "old") for key, *rest in expected]
    assert differences(flow.found(), sorted([*expected, *untouched])) == ""
    replay(flow)
    flow.queue.append(500)
    flow.run()
    if not options.get("update_columns"):
        expected = survivors(flow.queue.rows[0])
        assert differences(flow.found(), sorted([*expected, *untouched])) == ""


@pytest.fixture
def totals(stream, client):
    """A query into a table that adds up what is written."""
    query = Query(
        "totals", {"key": "int64", "n": "int64?", "best": "int64?"}, ("key",), "append",
        lambda frame: frame.selectExpr("key", "1L as n", "value as best"), lambda *_: [],
    )  # fmt: skip
    flow = stream(query, rows=900, rows_per_partition=300, is_sorted=True)
    schema = columns(query.types | {"kept": "utf8?"}, ["key"])
    schema[1]["aggregate"], schema[2]["aggregate"] = "sum", "max"
    client.remove(flow.target)
    create_table(client, flow.target, schema)
    flow.options = {"aggregate": True}
    return flow


def added_up(queue, start=0):
    """What the table must hold."""
    counts, best = Counter(), defaultdict(lambda: -(10**9))
    for row in queue.all_rows():
        counts[row["key"]] += 1
        best[row["key"]] = max(best[row["key"]], row["value"])
    return sorted((key, count + start, best[key]) for key, count in counts.items())


@pytest.mark.nightly
@pytest.mark.parametrize("wire", first_of(["arrow", "yson"]))
def test_aggregating_columns_add_up_each_row_once(totals, faults, wire):
    """Over lost answers, lost requests, conflicts and replays."""
    faults.inject("lose_answer", COMMIT, after=1)
    faults.inject("lose_request", COMMIT, after=3)
    totals.run(wire_format=wire, update_columns=True)
    assert differences(totals.found(), added_up(totals.queue)) == ""
    replay(totals)
    totals.queue.append(500)
    totals.run(wire_format=wire)
    assert differences(totals.found(), added_up(totals.queue)) == ""


def shrinking(frame):
    """A result whose keys come and go."""
    totals = frame.groupBy("key").agg({"value": "sum", "id": "count"})
    return totals.selectExpr("key", "`count(id)` as id", "string(`sum(value)`) as name").where(
        "name % 3 != 0"
    )


def complete_result(rows):
    """The same in Python."""
    total, count = Counter(), Counter()
    for row in rows:
        total[row["key"]] += row["value"]
        count[row["key"]] += 1
    return sorted((key, count[key], str(total[key]), None) for key in total if total[key] % 3)


@pytest.mark.parametrize("wire", first_of(["arrow", "yson"]))
def test_complete_result_replaces_what_was_there(rows_by_key, faults, wire):
    """After every batch the table holds the result and nothing else, whatever happens to commits."""
    flow = rows_by_key(shrinking, "complete", write="replace", wire_format=wire)
    flow.client.insert_rows(flow.target, [{"key": None, "id": 1}, {"key": 10**6, "name": "x"}])
    faults.inject("lose_answer", COMMIT, after=1)
    faults.inject("lose_request", COMMIT, after=3)
    gone = []

    def compare(event, fields):
        if event == Event.BATCH_COMMITTED:
            rows = flow.queue.rows[0][: 400 * (fields["batch"] + 1)]
            assert differences(flow.found(), complete_result(rows)) == ""
        if event == Event.ROWS_WRITTEN:
            gone.append(fields["replaced"])

    flow.run(compare)
    assert gone[0] == 2
    assert len([count for count in gone[1:] if count]) >= 2
    assert differences(flow.found(), complete_result(flow.queue.rows[0])) == ""
    replay(flow)
    flow.queue.append(400)
    flow.run(compare)
    assert differences(flow.found(), complete_result(flow.queue.rows[0])) == ""
