"""What rows do to a sorted table besides being written: delete, add up, replace everything."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import StreamingQueryException

from tests.flows import AGGREGATION, columns, create_table, differences, ledger_entries
from tests.integration.streams import Heard, finish
from tests.tiers import first_of
from yt_exactly_once import Event

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame

    from tests.integration.streams import Stream

COMMIT = "commit_transaction"


@dataclass
class Case:
    """A query into a sorted table of its own.

    Attributes:
        flow: where the rows come from.
        path: the table.
        names: columns that are compared.
        build: makes the frame.
        mode: output mode.
        options: of the sink.
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
        """Return the rows of the table."""
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


@pytest.mark.nightly
def test_deletes_alone_need_no_values(rows_by_key):
    """Only the key of a marked row is looked at, and a batch may have nothing else."""
    case = rows_by_key(
        lambda frame: frame.selectExpr("key", "cast(null as long) as id", "true as gone"),
        delete_marker="gone",
    )
    case.flow.client.insert_rows(case.path, [{"key": key, "id": 1} for key in (5, 1_000)])
    told = case.run()
    assert case.found() == [(1_000, 1, None, None)]
    assert all(fields["rows"] == 61 for fields in told.of(Event.BATCH_COMMITTED))


@pytest.mark.further
def test_key_in_two_spark_partitions_is_refused(rows_by_key):
    """They have no order, so it cannot be known whether the row is there in the end."""
    case = rows_by_key(marked, delete_marker="gone", partitions=2)
    text = case.fail()
    assert (
        "AmbiguousOrderError: The rows of 61 keys are spread over several Spark partitions" in text
    )
    assert "sortWithinPartitions" in text


@pytest.mark.nightly
def test_rows_are_brought_together_and_in_order_in_the_function(rows_by_key):
    """As the refusal says; on the streaming frame itself Spark allows no sort."""
    case = rows_by_key(marked, delete_marker="gone", partitions=2)
    flow = case.flow
    flow.target = case.path
    sink = flow.sink(delete_marker="gone")

    def write(frame, batch_id):
        sink(frame.repartition("key").sortWithinPartitions("id"), batch_id)

    finish(
        case.build(flow.frame())
        .writeStream.foreachBatch(write)
        .option("checkpointLocation", str(flow.checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    rows = sorted((row for rows in flow.queue.rows for row in rows), key=itemgetter("id"))
    assert differences(case.found(), survivors(rows)) == ""


@pytest.mark.nightly
@pytest.mark.parametrize(("expression", "message"), first_of([
    ("if(id = 70, null, false) as gone", "The delete marker gone is null"),
    ("1 as gone", "the DataFrame has a column of type int32"),
    ("true as other", "the DataFrame has no such column"),
]))  # fmt: skip
def test_marker_that_says_nothing_is_refused(rows_by_key, expression, message):
    """By its type before the first row, by its value before anything is sent."""
    case = rows_by_key(
        lambda frame: frame.selectExpr("key", "id", "name", expression), delete_marker="gone"
    )
    assert message in case.fail()


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


@pytest.mark.nightly
def test_aggregating_columns_are_replaced_unless_asked(totals):
    """As the cluster does it."""
    totals.options = {}
    totals.run()
    assert {n for _, n, _ in totals.found()} == {1}


@pytest.mark.nightly
def test_aggregate_without_aggregating_columns_is_refused(rows_by_key):
    """It would replace, and look as if it added up."""
    case = rows_by_key(lambda frame: frame.selectExpr("key", "id", "name"), aggregate=True)
    assert "needs a target with aggregating columns" in case.fail()


@pytest.mark.nightly
def test_aggregate_in_complete_mode_is_refused(totals):
    """Every batch would add the whole result again."""
    totals.build = lambda frame: (
        frame.groupBy("key").count().selectExpr("key", "count as n", "count as best")
    )
    totals.mode = "complete"
    assert "output mode complete" in totals.fail()


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


@pytest.mark.nightly
def test_empty_result_leaves_an_empty_table(rows_by_key):
    """There are no rows to write, and still something to do."""
    case = rows_by_key(lambda frame: shrinking(frame).where("key < 0"), "complete", write="replace")
    case.flow.client.insert_rows(case.path, [{"key": 7, "id": 1}])
    case.run()
    assert case.found() == []


@pytest.mark.nightly
def test_table_with_more_rows_than_can_be_replaced_is_refused(rows_by_key):
    """Nothing is deleted then."""
    case = rows_by_key(shrinking, "complete", write="replace", rows_per_tablet_limit=100)
    case.flow.client.insert_rows(case.path, [{"key": 1_000 + key} for key in range(70)])
    with pytest.raises(StreamingQueryException, match="replaces at least"):
        case.run()
    assert len(case.found()) == 70


@pytest.mark.nightly
@pytest.mark.parametrize("mode", first_of(["append", "update"]))
def test_replace_in_another_output_mode_is_refused(rows_by_key, mode):
    """A batch is not the whole result there, and what it lacks would be lost."""
    build = shrinking if mode == "update" else lambda frame: frame.selectExpr("key", "id", "name")
    case = rows_by_key(build, mode, write="replace")
    assert f"this query has {mode}" in case.fail()


@pytest.mark.nightly
@pytest.mark.parametrize(
    "options",
    first_of([{"aggregate": True}, {"delete_marker": "key"}]),
    ids=["aggregate", "delete_marker"],
)
def test_ordered_target_is_refused(stream, options):
    """It has no keys."""
    flow = stream(rows=10)
    assert "needs a sorted target" in flow.fail("ConfigError", **options)
    flow.assert_untouched()


@pytest.mark.nightly
def test_complete_result_in_an_ordered_target_is_refused(stream):
    """What was appended cannot be taken back."""
    flow = stream(AGGREGATION, rows=10)
    flow.query = replace(AGGREGATION, output_mode="complete")
    assert "needs a sorted target" in flow.fail("ConfigError", write="replace")
    flow.assert_untouched()
