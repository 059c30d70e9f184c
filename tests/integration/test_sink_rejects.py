"""Rows that the target cannot take: the batch fails, or they go to a table of their own with it."""

import json

import pytest

from tests.flows import NUMBERED, differences, passed_on
from tests.tiers import first_of
from yt_exactly_once import Event
from yt_exactly_once.operations.ledgers import read_ledger

COMMIT = "commit_transaction"


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
    {}, {"wire_format": "yson", "split_oversized": True, "rows_per_tablet_limit": 100},
]), ids=["one transaction", "split"])  # fmt: skip
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
