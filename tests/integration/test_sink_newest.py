"""Changes with a sequence: the newest of each key counts, whatever the order of rows and batches."""

import pytest

from tests.flows import Query, differences
from yt_exactly_once import Changes, Event

pytestmark = pytest.mark.further

COMMIT = "commit_transaction"
TYPES = {"key": "int64?", "id": "int64?", "name": "utf8?", "lsn": "int64"}
CHANGES = Changes(sequence="lsn", operation="op")
OPTIONS = {"changes_sequence": "lsn", "changes_operation": "op"}
"""The same for the format."""

_KEYS = 40


def _lsn(number):
    """Return a sequence that has nothing to do with the order of the rows, once for each."""
    return number * 7_919 % 100_003


def _shuffled(frame):
    return frame.selectExpr(
        f"key % {_KEYS} as key",
        "id",
        "name",
        "id * 7919 % 100003 as lsn",
        "if(id * 7919 % 100003 % 4 = 0, 'd', 'u') as op",
    )


def applied(rows):
    """Apply the changes one after the other, in the order of their sequence."""
    table = {}
    for lsn, row in sorted((_lsn(row["id"]), row) for row in rows if row["key"] is not None):
        key = row["key"] % _KEYS
        if lsn % 4:
            table[key] = (key, row["id"], row["name"], lsn)
        else:
            table.pop(key, None)
    return sorted(table.values())


@pytest.fixture
def shuffled(stream):
    """Make a query over three partitions whose changes come in batches, all out of order."""

    def make(**options):
        query = Query("changes", TYPES, ("key",), "append", _shuffled, lambda *_: [])
        flow = stream(query, rows=600, rows_per_partition=150, is_sorted=True)
        flow.change = lambda frame: frame.where("key is not null")
        flow.options = options
        return flow

    return make


@pytest.mark.parametrize("wire", ["arrow", "yson"])
def test_late_and_repeated_changes_leave_what_their_order_says(shuffled, faults, wire):
    """Over lost answers and requests, replays, and a second query that brings everything again."""
    flow = shuffled(changes=CHANGES, wire_format=wire, dyn_batch_size=16)
    faults.inject("lose_answer", COMMIT, after=2)
    faults.inject("lose_request", COMMIT, after=5)
    heard = flow.run()
    rows = flow.queue.all_rows()
    assert differences(flow.found(), applied(rows)) == ""
    assert {key for key, *_ in applied(rows)} < {row["key"] % _KEYS for row in rows if row["key"]}
    written = [fields for fields in heard.of(Event.ROWS_WRITTEN) if fields["path"] == flow.target]
    assert sum(fields["outdated"] for fields in written) > 0
    flow.forget_last_batch()
    assert flow.run().of(Event.BATCH_SKIPPED)[0]["reason"] == "replay"
    flow.queue.append(200)
    flow.run()
    assert differences(flow.found(), applied(flow.queue.all_rows())) == ""
    flow.checkpoint, flow.consumer = flow.checkpoint.with_name("again"), ""
    flow.run(ledger_path=f"{flow.target}_ledger_again")
    assert differences(flow.found(), applied(flow.queue.all_rows())) == ""


def test_format_takes_changes_as_texts(shuffled):
    flow = shuffled(**OPTIONS)
    flow.write()
    assert differences(flow.found(), applied(flow.queue.all_rows())) == ""


@pytest.mark.parametrize("is_deleted", [False, True])
def test_newer_change_of_another_writer_is_not_overwritten(shuffled, client, is_deleted):
    """It commits between the look-up of a batch and its commit: the next attempt compares again."""
    flow = shuffled(changes=CHANGES)
    rows = flow.queue.all_rows()
    key = applied(rows)[0][0]
    done = []

    def act(event, fields):
        if event == Event.ROWS_WRITTEN and not done and fields["path"] == flow.target:
            done.append(event)
            if is_deleted:
                client.insert_rows(f"{flow.target}_tombstones", [{"key": key, "lsn": 10**9}])
                client.delete_rows(flow.target, [{"key": key}])
            else:
                row = {"key": key, "id": -1, "name": "newer", "lsn": 10**9}
                client.insert_rows(flow.target, [row])

    flow.run(act)
    expected = [row for row in applied(rows) if row[0] != key]
    if not is_deleted:
        expected.append((key, -1, "newer", 10**9))
    assert differences(flow.found(), sorted(expected)) == ""


def test_tombstones_are_kept_beside_the_target_and_end(shuffled, client):
    """They have the keys of the target and a time to live; without them a late change brings its key back."""
    flow = shuffled(changes=CHANGES)
    flow.run()
    beside = f"{flow.target}_tombstones"
    settings = client.get(f"{beside}/@", attributes=["max_data_ttl", "min_data_versions"])
    assert settings == {"max_data_ttl": 30 * 86_400_000, "min_data_versions": 0}
    kept = {row["key"]: row["lsn"] for row in client.select_rows(f"* from [{beside}]")}
    live = {key for key, *_ in flow.found()}
    gone = kept.keys() - live
    assert gone
    client.delete_rows(beside, [{"key": key} for key in gone])
    flow.checkpoint, flow.consumer = flow.checkpoint.with_name("again"), ""
    flow.run(ledger_path=f"{flow.target}_ledger_again", transform=lambda df: df.where("op = 'u'"))
    assert {key for key, *_ in flow.found()} > live
