"""The account of the crash tests: it sees a row too few, too many or too early, and nothing else."""

import pytest

from tests.crash.crash_points import CrashPoint, Visible
from tests.crash.harness.account import Account
from tests.crash.harness.lives import Cell, QueryPlan, Remains, Subject
from tests.flows import Entry, Queue, known_row
from yt_exactly_once.config import DeliveryMode

SIZE, BATCH = 6, 2
PATH = "//tmp/queue"


def account_of(mode="transactional", *, is_sorted=False):
    rows = [[known_row(2 * index + part) for index in range(5 * SIZE)] for part in range(2)]
    queue = Queue(None, PATH, "", rows)
    names = dict.fromkeys(("proxy", "queue", "consumer", "target", "checkpoint"), "")
    cell = Cell("stateless", is_sorted, mode)
    return Account(Subject(queue, QueryPlan(cell=cell, rows_per_partition=SIZE, **names), None))


def remains(rows, batch, *, part=1, part_count=1):
    end = (batch + 1) * SIZE
    ends = dict.fromkeys(range(2), end)
    starts = dict.fromkeys(range(2), end - SIZE)
    entry = Entry(batch, {PATH: starts}, {PATH: ends}, {PATH: ends}, "1-2-3-4", 1, part, part_count)
    return Remains(rows, entry, ends)


PASSED = [
    (point, mode) for point in CrashPoint for mode in DeliveryMode if point.value.aftermath(mode)
]


@pytest.mark.parametrize("is_sorted", [False, True])
@pytest.mark.parametrize(("point", "mode"), PASSED)
def test_what_the_table_says_is_right_and_one_row_less_is_not(point, mode, is_sorted):
    """At every point."""
    subject = account_of(mode, is_sorted=is_sorted).subject
    aftermath = point.value.aftermath(mode)
    before, after = subject.must_hold(BATCH - 1), subject.must_hold(BATCH)
    fresh = [row for row in after if row not in before]
    visible = {Visible.NOTHING: [], Visible.SOME: fresh[:3], Visible.ALL: fresh}[aftermath.visible]
    in_parts = point is CrashPoint.PART_COMMITTED
    last = BATCH if aftermath.committed or in_parts else BATCH - 1

    def wrong(rows):
        left = remains(rows, last, part_count=2 if in_parts else 1)
        return account_of(mode, is_sorted=is_sorted).wrong_after(point, BATCH, left)

    rows = sorted(before + visible)
    assert wrong(rows) == ""
    assert wrong(rows[1:]) != ""


@pytest.mark.parametrize("mode", list(DeliveryMode))
def test_rows_that_come_twice_are_wrong_but_where_they_may(mode):
    """At-least-once mode writes a batch again whose rows were there and whose entry was not."""
    account = account_of(mode)
    before, after = account.subject.must_hold(BATCH - 1), account.subject.must_hold(BATCH)
    fresh = [row for row in after if row not in before]
    if mode is not DeliveryMode.TRANSACTIONAL:
        left = remains(after, BATCH - 1)
        assert account.wrong_after(CrashPoint.LEDGER_RECORDED, BATCH, left) == ""
    twice = account.wrong_after(CrashPoint.BATCH_COMMITTED, BATCH, remains(after + fresh, BATCH))
    once = account.wrong_after(CrashPoint.BATCH_COMMITTED, BATCH, remains(after, BATCH))
    repeats = mode is DeliveryMode.AT_LEAST_ONCE
    assert (twice == "", once == "") == (repeats, not repeats)


def test_ledger_and_consumer_must_tell_the_same_story():
    """An entry of another batch, a consumer before or behind it, an entry in part."""
    account = account_of()
    rows = account.subject.must_hold(BATCH)
    right = remains(rows, BATCH)
    assert account.wrong_after(CrashPoint.SINK_RETURNED, BATCH, right) == ""
    wrong = [
        remains(rows, BATCH - 1),
        remains(rows, BATCH, part_count=2),
        Remains(rows, None, {}),
        Remains(rows, right.entry, {0: 0, 1: 0}),
        Remains(rows, right.entry, {0: 6 * SIZE, 1: 6 * SIZE}),
    ]
    for left in wrong:
        assert account.wrong_after(CrashPoint.SINK_RETURNED, BATCH, left) != ""


def test_the_end_is_the_whole_queue_once():
    """Neither a row less nor one more, and the consumer at the end."""
    account = account_of()
    rows = account.subject.must_hold(9)
    assert account.wrong_at_the_end(remains(rows, 4)) == ""
    assert account.wrong_at_the_end(remains(rows[1:], 4)) != ""
    assert account.wrong_at_the_end(remains(rows + rows[:1], 4)) != ""
    assert account.wrong_at_the_end(remains(rows, 3)) != ""
