"""The chaos runner's judges: what is planted in the tables, its reader and its oracle must find."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.chaos.oracle import Oracle
from tests.chaos.watcher import Watcher
from tests.crash.harness.chaos import ROWS, Hand, build_stage
from yt_exactly_once.config import WriteMode

pytestmark = pytest.mark.nightly  # so is the chaos runner

BATCHES = 3
EXACTLY_ONCE = (WriteMode.TRANSACTIONAL, WriteMode.IDEMPOTENT)


@pytest.fixture
def stage(client, tmp_path):
    """The tables of a round."""
    return build_stage(client, tmp_path / "round")


@pytest.fixture(params=[True, False], ids=["sorted", "ordered"])
def hand(stage, client, request):
    """A query of one kind of target."""
    return Hand(stage, client, is_sorted=request.param)


@pytest.fixture
def ordered(stage, client):
    """A query with an ordered target."""
    return Hand(stage, client, is_sorted=False)


def judge(hand):
    """Return what the oracle finds."""
    return Oracle(hand.stage, hand.subject, hand.client).judge()


def test_oracle_finds_nothing_wrong_with_a_good_round(hand):
    """It must not cry wolf."""
    rows = hand.fill(BATCHES)
    hand.write(rows)
    findings = judge(hand)
    assert findings.rows == len(rows)
    assert not any(findings.violates(mode) for mode in WriteMode), findings


def test_oracle_notices_a_row_that_was_dropped(hand):
    """Lost, in every mode."""
    hand.write(hand.fill(BATCHES)[1:])
    findings = judge(hand)
    assert findings.lost == 1
    assert all(findings.violates(mode) for mode in WriteMode)


def test_oracle_notices_a_row_that_was_doubled(ordered):
    """Duplicated, which only at-least-once allows."""
    rows = ordered.fill(BATCHES)
    ordered.write([*rows, rows[0]])
    findings = judge(ordered)
    assert (findings.lost, findings.duplicated) == (0, 1)
    assert all(findings.violates(mode) for mode in EXACTLY_ONCE)


def test_oracle_notices_rows_out_of_order(ordered):
    """Two rows of one source partition have changed places, and nothing else is wrong."""
    first, second, *rest = ordered.fill(BATCHES)
    ordered.write([second, first, *rest])
    findings = judge(ordered)
    assert (findings.lost, findings.duplicated, findings.misordered) == (0, 0, 1)
    assert all(findings.violates(mode) for mode in EXACTLY_ONCE)


def test_oracle_notices_a_row_with_another_value(hand):
    """Wrong, and the right one is lost."""
    first, *rest = hand.fill(BATCHES)
    hand.write([first | {"value": first["value"] + 1}, *rest])
    findings = judge(hand)
    assert (findings.lost, findings.wrong) == (1, 1)
    assert all(findings.violates(mode) for mode in WriteMode)


def test_oracle_notices_a_row_written_by_another_batch(hand):
    """The batches of the target are those of Spark's own log."""
    first, *rest = hand.fill(BATCHES)
    hand.write([first | {"batch": 1}, *rest])
    findings = judge(hand)
    assert findings.wrong == 1
    assert all(findings.violates(mode) for mode in WriteMode)


def test_oracle_notices_a_ledger_that_is_behind(hand):
    """Rows without their ledger entry would be written again."""
    hand.write(hand.fill(BATCHES))
    hand.record(BATCHES - 2, ROWS * len(hand.stage.queue.rows))
    assert all(judge(hand).violates(mode) for mode in WriteMode)


def test_oracle_notices_a_consumer_that_is_behind(hand):
    """The queue could never be trimmed."""
    hand.write(hand.fill(BATCHES))
    hand.client.advance_consumer(
        hand.subject.consumer,
        hand.stage.queue.path,
        partition_index=0,
        old_offset=BATCHES * ROWS,
        new_offset=ROWS,
    )
    assert all(judge(hand).violates(mode) for mode in WriteMode)


class Looker(Hand):
    """A query whose target is looked at step by step."""

    def __init__(self, stage, client, *, is_sorted):
        super().__init__(stage, client, is_sorted=is_sorted)
        self.watcher = Watcher(stage, client)

    def put(self, batch, count=ROWS):
        """Write rows of a batch."""
        numbers = range(batch * ROWS, batch * ROWS + count)
        alike = dict.fromkeys(("part", "id", "key", "value"), 0)
        self.write([alike | {"row": row, "name": "x", "batch": batch} for row in numbers])

    def look(self):
        """Look at the target once."""
        self.watcher._look(self.subject)
        assert self.watcher.failed_looks == 0

    def partial(self, final):
        """Stop looking; return the batches that were seen in part."""
        self.watcher.start()
        self.watcher.finish({self.subject.name: Counter(final)})
        return set(self.watcher.partial[self.subject.name])


@pytest.fixture(params=[True, False], ids=["sorted", "ordered"])
def looker(stage, client, request):
    """A watcher of one kind of target."""
    return Looker(stage, client, is_sorted=request.param)


def test_reader_finds_nothing_wrong_with_whole_batches(looker):
    """It must not cry wolf."""
    looker.look()
    for batch in range(3):
        looker.put(batch)
        looker.record(batch, ROWS)
        looker.look()
    assert looker.partial({0: ROWS, 1: ROWS, 2: ROWS}) == set()


def test_reader_notices_a_recorded_batch_that_is_not_whole(looker):
    """The ledger tells how many rows there must be."""
    looker.put(0, ROWS - 1)
    looker.record(0, ROWS)
    looker.look()
    assert looker.partial({0: ROWS - 1}) == {0}


def test_reader_notices_rows_that_the_ledger_does_not_know(looker):
    """They were visible before their batch was committed."""
    looker.put(0)
    looker.record(0, ROWS)
    looker.put(1, ROWS // 2)
    looker.look()
    looker.look()
    assert looker.partial({0: ROWS, 1: ROWS // 2}) == {1}


def test_reader_notices_a_batch_that_grew(looker):
    """Rows of a batch that comes later must all come at once."""
    looker.put(0, ROWS // 2)
    looker.look()
    looker.put(0, ROWS)
    looker.record(0, ROWS)
    final = ROWS if looker.subject.plan.is_sorted else ROWS + ROWS // 2
    assert looker.partial({0: final}) == {0}
