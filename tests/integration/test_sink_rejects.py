"""Rows that the target cannot take: the batch fails, or they go to a table of their own with it."""

import json
import re
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from yt.wrapper import YsonFormat

from tests.flows import NUMBERED, columns, create_table, differences, passed_on, read_queue
from tests.integration.streams import QUICK, finish
from tests.tiers import first_of
from yt_exactly_once import Event, TransactionalSink, register_source
from yt_exactly_once.operations.ledgers import read_ledger

COMMIT = "commit_transaction"
PAGE = Path(__file__).parents[2] / "docs/how-to/run.md"


@pytest.fixture
def flow(stream):
    """One row in fifty has no value, which the target requires; the frame tells its source."""
    flow = stream(NUMBERED, rows=700, rows_per_partition=300)
    flow.change = lambda frame: frame.selectExpr(
        "* except (value)", "if(id % 50 = 7, null, value) as value"
    )
    flow.rejects = f"{flow.target}_rejects"
    return flow


def bad(row):
    return row[2] % 50 == 7


def rejected(flow):
    names = ("query_id", "batch_id", "target", "source_partition", "source_row", "column", "reason")
    rows = flow.client.select_rows(
        f"{', '.join(names)}, row from [{flow.rejects}] order by source_row, source_partition "
        "limit 10000"
    )
    return [(*(row[name] for name in names), json.loads(row["row"])) for row in rows]


def assert_rejected(flow):
    """Every bad row is told once, the rest is written."""
    rows = passed_on(flow.queue)
    good = sorted(row for row in rows if not bad(row))
    assert differences(flow.found(), good) == ""
    found = rejected(flow)
    wanted = sorted((row for row in rows if bad(row)), key=lambda row: (row[1], row[0]))
    assert [told[3:5] for told in found] == [row[:2] for row in wanted]
    assert {told[2] for told in found} == {flow.target}
    assert {told[5:7] for told in found} == {
        ("value", "value as int64: it is null, and null is not allowed here")
    }
    for told, row in zip(found, wanted, strict=True):
        assert told[1] == (row[1] // 300 if row[1] < 700 else 3)
        assert told[7]["id"] == row[2]
        assert told[7]["name"] == row[5]
        assert told[7]["value"] is None
    assert flow.queue.stored(flow.consumer) == flow.queue.ends()


@pytest.mark.parametrize("options", first_of([
    {}, {"sent_by": "tasks", "dyn_batch_size": 90},
    {"wire_format": "yson", "split_oversized": True, "rows_per_tablet_limit": 100},
]), ids=["one transaction", "tasks", "split"])  # fmt: skip
def test_bad_rows_go_to_the_reject_table_once(flow, faults, options):
    """With their batch: over lost answers, lost requests, and a replay."""
    faults.inject("lose_answer", COMMIT, after=1)
    faults.inject("lose_request", COMMIT, after=3)
    options = {"dead_letter_path": flow.rejects, "digest": True, **options}
    heard = flow.run(**options)
    assert_rejected(flow)
    told = [fields["rows"] for fields in heard.of(Event.ROWS_REJECTED)]
    assert sum(told) == len(rejected(flow)) == 42
    flow.forget_last_batch()
    flow.queue.append(200)
    flow.run(**options)
    assert_rejected(flow)
    # The ledger counts them apart, and its digest has the rows of the target alone.
    flow.assert_proven()
    (entry,) = read_ledger(flow.connection, flow.ledger)
    told = entry.to_json()
    assert (told["total_rejected_rows"], told["total_rows"]) == (
        len(rejected(flow)),
        len(flow.found()),
    )


POISON = b"\xff\xfe\0"
NAMES = [b"fine", POISON, None, "имя".encode()]


@pytest.fixture
def copy(spark, cluster, client, tmp, tmp_path):
    """Copy a queue with a row that is no text, by the function or by tasks in the middle."""
    register_source(spark)
    types = {"id": "int64", "name": "string?"}
    queue = create_table(client, f"{tmp}/queue", columns(types), tablet_count=1)
    client.insert_rows(queue, [{"id": n, "name": name} for n, name in enumerate(NAMES)])

    proxy = cluster.proxy_urls[0]

    def run(kind, change=lambda frame: frame, **options):
        target = create_table(client, f"{tmp}/target", columns(types | {"name": kind}))
        sink = TransactionalSink(target, proxy=proxy, retry=QUICK, **options)
        frame = change(read_queue(spark, proxy, queue, None))
        query = frame.writeStream.foreachBatch(sink).option("checkpointLocation", str(tmp_path))
        finish(query.trigger(availableNow=True).start())
        found = client.select_rows(f"id, name from [{target}]", format=YsonFormat(encoding=None))
        return {row[b"id"]: row[b"name"] for row in found}

    return run


def test_row_that_is_no_text_reaches_the_dead_letters(copy, client, tmp):
    """Where the target takes text alone; all other rows are written."""
    fine = {n: name for n, name in enumerate(NAMES) if name != POISON}
    assert copy("utf8?", dead_letter_path=f"{tmp}/letters") == fine
    (letter,) = client.select_rows(f"[column], reason, source_row from [{tmp}/letters]")
    assert (letter["column"], letter["source_row"]) == ("name", 1)
    assert letter["reason"].endswith("its bytes are not valid UTF-8")


def test_row_that_is_no_text_is_named_where_nothing_takes_it(copy):
    """The sink refuses it, by its column and its place in the queue."""
    with pytest.raises(StreamingQueryException, match="not valid UTF-8") as caught:
        copy("utf8?")
    assert "column=name" in str(caught.value)
    assert "source_partition=0, source_row=1" in str(caught.value)
    begins = re.findall("text begins with Spark's own words: `(.+?)`", PAGE.read_text())
    assert len(begins) == 1
    assert str(caught.value).startswith(begins[0])


@pytest.mark.parametrize("options", first_of([
    {"sent_by": "tasks"}, {"mode": "idempotent", "sent_by": "tasks"}, {"sent_by": "driver"},
]))  # fmt: skip
def test_row_that_is_no_text_comes_as_it_was(copy, options):
    """Into a target that takes bytes, also by way of Arrow functions and of Spark's own."""

    def change(frame):
        passed = frame.mapInArrow(lambda batches: batches, frame.schema)
        return passed.where("name is null or octet_length(name) > 0")

    assert copy("string?", change, **options) == dict(enumerate(NAMES))
