"""The chaos runner's judges: what is planted in the tables, its reader and its oracle must find."""

import json
from collections import Counter
from dataclasses import replace

import pytest

from tests.chaos.oracle import Oracle
from tests.chaos.plan import Rates, RoundPlan, folder_path
from tests.chaos.stage import Stage
from tests.chaos.watcher import Watcher
from tests.flows import create_table, passed_on
from yt_exactly_once.commit.entry import LedgerEntry, PartitionOffset
from yt_exactly_once.commit.ledger import LEDGER_SCHEMA
from yt_exactly_once.commit.tally import Tally
from yt_exactly_once.config import DeliveryMode
from yt_exactly_once.local import LocalCluster

pytestmark = pytest.mark.nightly  # so is the chaos runner

BATCHES = 3
ROWS = 4
"""Rows of a batch from each queue partition."""


class Hand:
    """The tables of a round, and one query of it, which is written by hand as a good driver would."""

    def __init__(self, client, folder, *, is_sorted):
        plans = (
            RoundPlan.draw(7, DeliveryMode.IDEMPOTENT, number, Rates()) for number in range(99)
        )
        plan = next(
            plan for plan in plans if not client.exists(folder_path(plan.mode, plan.number))
        )
        self.stage = Stage.build(client, plan, folder)
        self.queue = self.stage.queue
        for subject in self.stage.subjects:
            create_table(client, subject.ledger, LEDGER_SCHEMA)
        self.client = client
        self.subject = next(one for one in self.stage.subjects if one.plan.is_sorted is is_sorted)
        self.watcher = Watcher(self.stage, client)

    def fill(self):
        """Fill the queue, Spark's log, the ledger and the consumer; return the rows of the target."""
        parts = range(len(self.queue.rows))
        for part in parts:
            self.queue.append(BATCHES * ROWS, part)
            self.move(part, 0, BATCHES * ROWS)
        log = self.subject.checkpoint / "offsets"
        log.mkdir(parents=True)
        for batch in range(BATCHES):
            offset = {"partitions": {str(part): (batch + 1) * ROWS for part in parts}}
            (log / str(batch)).write_text(f"v1\n{{}}\n{json.dumps(offset)}")
        self.record(BATCHES - 1, ROWS * len(parts))
        names = list(self.subject.query.types)
        rows = [dict(zip(names, row, strict=True)) for row in passed_on(self.queue)]
        return [row | {"batch": row["row"] // ROWS} for row in rows]

    def move(self, part, old, new):
        """Move the consumer."""
        self.client.advance_consumer(
            self.subject.consumer,
            self.queue.path,
            partition_index=part,
            old_offset=old,
            new_offset=new,
        )

    def write(self, rows):
        """Write rows into the target; rows of one queue partition go to one tablet."""
        tablets = {} if self.subject.plan.is_sorted else {"$tablet_index": 0}
        self.client.insert_rows(self.subject.target, [row | tablets for row in rows])

    def record(self, batch, row_count):
        """Write the ledger entry of a batch as the package writes it."""
        start, end = batch * ROWS, (batch + 1) * ROWS
        left = dict.fromkeys(range(len(self.queue.rows)), PartitionOffset(start, end, end))
        target = self.subject.target
        entry = LedgerEntry(
            query_id="q",
            target=target,
            batch_id=batch,
            run_id="r",
            transaction_id="t",
            offsets={("local", self.queue.path, "", ""): left},
            tallies={target: Tally(rows=row_count)},
        )
        self.client.insert_rows(self.subject.ledger, [entry.to_row()])

    def put(self, batch, count=ROWS):
        """Write rows of a batch, whatever they are."""
        numbers = range(batch * ROWS, batch * ROWS + count)
        alike = dict.fromkeys(("part", "id", "key", "value"), 0)
        self.write([alike | {"row": row, "name": "x", "batch": batch} for row in numbers])

    def judged(self, mode):
        """Return what the oracle finds if the round is one of that mode."""
        stage = replace(self.stage, plan=replace(self.stage.plan, mode=mode))
        return Oracle(stage, self.subject, self.client).judge()

    def look(self):
        self.watcher._look(self.subject)
        assert self.watcher.failed_looks == 0

    def partial(self, final):
        """Stop looking; return the batches that were seen in part."""
        self.watcher.start()
        self.watcher.finish({self.subject.name: Counter(final)})
        return set(self.watcher.partial[self.subject.name])


@pytest.fixture(scope="module")
def client():
    with LocalCluster() as cluster:
        yield cluster.client()


@pytest.fixture(params=[True, False], ids=["sorted", "ordered"])
def hand(client, tmp_path, request):
    """A query of one kind of target."""
    return Hand(client, tmp_path, is_sorted=request.param)


@pytest.mark.parametrize(
    ("damage", "found"),
    [
        (list, {}),
        (lambda rows: rows[1:], {"lost": 1}),
        (
            lambda rows: [rows[0] | {"value": rows[0]["value"] + 1}, *rows[1:]],
            {"lost": 1, "wrong": 1},
        ),
        (lambda rows: [rows[0] | {"batch": 1}, *rows[1:]], {"wrong": 1}),
        (lambda rows: [*rows, rows[0]], {"duplicated": 1, "misordered": 1}),
        (lambda rows: [rows[1], rows[0], *rows[2:]], {"misordered": 1}),
    ],
    ids=["nothing", "dropped", "changed", "of another batch", "doubled", "out of order"],
)
def test_oracle_finds_what_was_done_to_rows(hand, damage, found):
    """And nothing else; at-least-once mode alone allows rows that are repeated, or out of order."""
    repeats = found.keys() & {"duplicated", "misordered"}
    if repeats and hand.subject.plan.is_sorted:
        pytest.skip("a sorted table has each row once, and in its own order")
    rows = damage(hand.fill())
    hand.write(rows)
    judged = {mode: hand.judged(mode) for mode in DeliveryMode}
    for findings in judged.values():
        assert findings.rows == len(rows)
        names = ("lost", "duplicated", "stale", "wrong", "misordered")
        assert {name: n for name in names if (n := getattr(findings, name))} == found
    allowed = {DeliveryMode.AT_LEAST_ONCE} if repeats else set() if found else set(DeliveryMode)
    assert {mode for mode in DeliveryMode if not judged[mode].violates(mode)} == allowed


@pytest.mark.parametrize("late", ["ledger", "consumer"])
def test_oracle_notices_a_ledger_or_a_consumer_that_is_behind(hand, late):
    """Rows would be written again, or the queue never be trimmed."""
    hand.write(hand.fill())
    if late == "ledger":
        hand.record(BATCHES - 2, ROWS * len(hand.queue.rows))
    else:
        hand.move(0, BATCHES * ROWS, ROWS)
    assert all(hand.judged(mode).violates(mode) for mode in DeliveryMode)


def test_reader_finds_nothing_wrong_with_whole_batches(hand):
    """It must not cry wolf."""
    hand.look()
    for batch in range(BATCHES):
        hand.put(batch)
        hand.record(batch, ROWS)
        hand.look()
    assert hand.partial(dict.fromkeys(range(BATCHES), ROWS)) == set()


def test_reader_notices_a_recorded_batch_that_is_not_whole(hand):
    """The ledger tells how many rows there must be."""
    hand.put(0, ROWS - 1)
    hand.record(0, ROWS)
    hand.look()
    assert hand.partial({0: ROWS - 1}) == {0}


def test_reader_notices_rows_that_the_ledger_does_not_know(hand):
    """They were visible before their batch was committed."""
    hand.put(0)
    hand.record(0, ROWS)
    hand.put(1, ROWS // 2)
    hand.look()
    hand.look()
    assert hand.partial({0: ROWS, 1: ROWS // 2}) == {1}


def test_reader_notices_a_batch_that_grew(hand):
    """Rows of a batch that comes later must all come at once."""
    hand.put(0, ROWS // 2)
    hand.look()
    hand.put(0, ROWS)
    hand.record(0, ROWS)
    final = ROWS if hand.subject.plan.is_sorted else ROWS + ROWS // 2
    assert hand.partial({0: final}) == {0}
