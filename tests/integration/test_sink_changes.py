"""What rows do to a sorted table besides being written: delete, add up, replace everything."""

from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame

from tests.flows import columns, create_table, differences, ledger_entries
from tests.integration.streams import Heard, Stream, finish
from tests.tiers import first_of
from yt_exactly_once import Event

COMMIT = "commit_transaction"


@dataclass
class Case:
    """A query into a sorted table of its own.

    Attributes:
        flow: where the rows come from.
        build: makes the frame.
    """

    flow: Stream
    path: str
    names: tuple[str, ...]
    build: Callable[[DataFrame], DataFrame]
    mode: str = "append"
    options: dict[str, Any] = field(default_factory=dict)

    def run(self, act=None, **options):
        """Run to the end of the queue."""
        heard = Heard(act=act)
        self.flow.target = self.path
        finish(
            self.build(self.flow.frame())
            .writeStream.foreachBatch(self.flow.sink(heard, **self.options | options))
            .outputMode(self.mode)
            .option("checkpointLocation", str(self.flow.checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        return heard

    def fail(self, **options):
        """Run, which must fail, and write nothing; return the text."""
        with pytest.raises(StreamingQueryException) as caught:
            self.run(**options)
        assert self.found() == []
        assert ledger_entries(self.flow.client, f"{self.path}_ledger") == []
        return str(caught.value)

    def replay(self):
        """Run once more with the last batch forgotten."""
        self.flow.forget_last_batch()
        told = self.run()
        assert [fields["reason"] for fields in told.of(Event.BATCH_SKIPPED)][:1] == ["replay"]

    def found(self):
        listed = ", ".join(f"[{name}]" for name in self.names)
        rows = self.flow.client.select_rows(f"{listed} from [{self.path}]")
        return sorted(tuple(row[name] for name in self.names) for row in rows)


@pytest.fixture
def rows_by_key(stream, client):
    """Rows of one queue partition, which come again and again with the same keys."""

    def make(build, mode="append", *, partitions=1, **options):
        flow = stream(rows=1_200, rows_per_partition=400, partitions=partitions)
        path = f"{flow.target}_by_key"
        schema = columns(
            {"key": "int64?", "id": "int64?", "name": "utf8?", "note": "utf8?"}, ["key"]
        )
        create_table(client, path, schema)
        return Case(flow, path, ("key", "id", "name", "note"), build, mode, options)

    return make


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
    {"dyn_batch_size": 90, "wire_format": "yson", "update_columns": True},
    {"dyn_batch_size": 40, "split_oversized": True, "rows_per_tablet_limit": 100},
]), ids=["plain", "update columns", "split"])  # fmt: skip
def test_marked_rows_delete_their_keys(rows_by_key, faults, options):
    """In the order of the rows, over chunks and batches, in one transaction or several."""
    case = rows_by_key(marked, delete_marker="gone", **options)
    keys = range(200)
    case.flow.client.insert_rows(case.path, [{"key": key, "note": "old"} for key in keys])
    faults.inject("lose_answer", COMMIT, after=2)
    case.run()
    expected = survivors(case.flow.queue.rows[0])
    untouched = [(key, None, None, "old") for key in keys if key >= 61]
    if options.get("update_columns"):
        deleted = {row["key"] for row in case.flow.queue.rows[0] if row["value"] % 3 == 0}
        expected = [(key, *rest[:2], None if key in deleted else "old") for key, *rest in expected]
    assert differences(case.found(), sorted([*expected, *untouched])) == ""
    case.replay()
    case.flow.queue.append(500)
    case.run()
    if not options.get("update_columns"):
        expected = survivors(case.flow.queue.rows[0])
        assert differences(case.found(), sorted([*expected, *untouched])) == ""


@pytest.mark.further
def test_key_in_two_spark_partitions_is_refused(rows_by_key):
    """They have no order, so it cannot be known whether the row is there in the end."""
    case = rows_by_key(marked, delete_marker="gone", partitions=2)
    text = case.fail()
    assert (
        "AmbiguousOrderError: The rows of 61 keys are spread over several Spark partitions" in text
    )
    assert "sortWithinPartitions" in text


@pytest.fixture
def totals(stream, client):
    """A table that adds up what is written."""
    flow = stream(rows=900, rows_per_partition=300)
    path = f"{flow.target}_totals"
    schema = columns({"key": "int64", "n": "int64?", "best": "int64?", "kept": "utf8?"}, ["key"])
    schema[1]["aggregate"], schema[2]["aggregate"] = "sum", "max"
    create_table(client, path, schema)
    build = lambda frame: frame.selectExpr("key", "1L as n", "value as best")  # noqa: E731
    return Case(flow, path, ("key", "n", "best"), build, options={"aggregate": True})


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
    assert differences(totals.found(), added_up(totals.flow.queue)) == ""
    totals.replay()
    totals.flow.queue.append(500)
    totals.run(wire_format=wire)
    assert differences(totals.found(), added_up(totals.flow.queue)) == ""


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
    case = rows_by_key(shrinking, "complete", write="replace", wire_format=wire)
    case.flow.client.insert_rows(case.path, [{"key": None, "id": 1}, {"key": 10**6, "name": "x"}])
    faults.inject("lose_answer", COMMIT, after=1)
    faults.inject("lose_request", COMMIT, after=3)
    gone = []

    def compare(event, fields):
        if event == Event.BATCH_COMMITTED:
            rows = case.flow.queue.rows[0][: 400 * (fields["batch"] + 1)]
            assert differences(case.found(), complete_result(rows)) == ""
        if event == Event.ROWS_WRITTEN:
            gone.append(fields["replaced"])

    case.run(compare)
    assert gone[0] == 2
    assert len([count for count in gone[1:] if count]) >= 2
    assert differences(case.found(), complete_result(case.flow.queue.rows[0])) == ""
    case.replay()
    case.flow.queue.append(400)
    case.run(compare)
    assert differences(case.found(), complete_result(case.flow.queue.rows[0])) == ""
