"""Queries with state whose tasks send the rows, killed at each of the nine steps of a batch, by both doors.

The format tells no events, so the moments are chosen at the cluster: it holds back a request of each query,
and the driver is killed when all of them wait there.
"""

import random
import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.crash.harness.lives import Cell, Lineage, Subject
from tests.crash.test_format_kills import Rule, feed, kill
from yt_exactly_once.commit.tally import SentBy

CELLS = {
    "foreachBatch": [
        Cell("aggregation", is_sorted=True, by_tasks=True),
        Cell("dedup", is_sorted=False, by_tasks=True),
    ],
    "format": [
        Cell("dedup", is_sorted=False, by_format=True, by_tasks=True),
        Cell("windowed", is_sorted=True, by_format=True, by_tasks=True),
    ],
}

ROWS_PER_PARTITION = 50
BATCHES_OF_A_LIFE = 30
ROWS_PER_REQUEST = 5
_HOLD_SECONDS = 15.0
"""Below the time after which a request is given up."""

_LATE_SECONDS = 1.0
SEED = 49


def held(command: str, path: str, **more: Any) -> Rule:
    """Return a rule that holds requests about a table back."""
    always = {"count": None, "seconds": _HOLD_SECONDS}
    return {"action": "delay", "command": command, "match": {"path": path}, **always, **more}


def pulled(subject: Subject) -> Rule:
    """Return a rule that holds the reads of the queue back."""
    return held("pull_queue_consumer", "", match={"consumer_path": subject.plan.consumer})


def ledger(subject: Subject) -> str:
    return f"{subject.plan.target}_ledger"


def claims(subject: Subject) -> str:
    return f"{ledger(subject)}_claims"


def commit(subject: Subject, action: str, **more: Any) -> Rule:
    """Return a rule for commits of batches: those of claims write no ledger entry."""
    at = {"command": "commit_transaction", "writes_to": ledger(subject), "count": None}
    return {"action": action, **at, **more}


def with_rows(subject: Subject) -> dict[str, Any]:
    """Return what tells the transaction of a batch once tasks have sent rows into it."""
    return {"writes_to": subject.plan.target}


def looked_up(subject: Subject) -> Rule:
    """Return a rule that holds look-ups outside of transactions back."""
    return held("lookup_rows", "", match={"path": ledger(subject), "transaction_id": None})


APPLIED = "9 commit applied"

Moments = dict[str, Callable[[Subject], Rule]]

_LAST: Moments = {
    "6 sending": lambda one: held("insert_rows", one.plan.target, after=2),
    # Where the consumer is moved too, that is sent beside it.
    "7 advancing, 8 recording": lambda one: held("insert_rows", ledger(one), **with_rows(one)),
    "9 commit lost": lambda one: commit(one, "lose_request"),
    "9 commit late": lambda one: commit(one, "hold", seconds=_LATE_SECONDS),
    APPLIED: lambda one: commit(one, "lose_answer"),
}

MOMENTS: dict[str, Moments] = {
    # The transaction is open before the rows are computed, and the look-up is in it.
    "foreachBatch": {
        "4 opened, 2 looking up": lambda one: held("lookup_rows", ledger(one)),
        "5 checking": lambda one: held("lookup_rows", one.plan.consumer),
        "3 computing": pulled,
        "6 before the first row": lambda one: held("insert_rows", one.plan.target),
        **_LAST,
    },
    # The first task opens it.
    "format": {
        "1 identified, 2 looking up": lambda one: held("lookup_rows", ledger(one)),
        "2 looked up": lambda one: held("insert_rows", claims(one)),
        "3 computing": pulled,
        "4 opened": lambda one: held("insert_rows", claims(one), after=1),
        "6 before the first row": lambda one: held("insert_rows", claims(one), after=2),
        "5 checking": lambda one: held("lookup_rows", one.plan.consumer, **with_rows(one)),
        **_LAST,
    },
}
"""In the order of a batch."""


@pytest.mark.nightly
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("door", CELLS)
def test_state_and_rows_agree_wherever_the_driver_dies_while_tasks_send(
    lineage, cluster, record_property, door
):
    """After each death the targets are exact, and in the end too. Each life had a batch by tasks before."""
    chance = random.Random(SEED)
    # Tasks send rows in order, so each of them needs a tablet.
    family: Lineage = lineage(
        *CELLS[door], rows=ROWS_PER_PARTITION, rows_per_partition=ROWS_PER_PARTITION, tablets=3
    )
    for subject in family.subjects:
        options = {**subject.plan.options, "dyn_batch_size": ROWS_PER_REQUEST}
        subject.plan = subject.plan_with(options=options)
    unlogged = 0
    for moment, rule_of in MOMENTS[door].items():
        feed(family, BATCHES_OF_A_LIFE)
        rules = [rule_of(subject) for subject in family.subjects]
        if moment == APPLIED:
            # So no driver learns of its commit.
            rules += [looked_up(subject) for subject in family.subjects]
        kill(family, cluster, rules, chance, lambda: set(senders(family)) == {SentBy.TASKS})
        # What was held back, or is late, has arrived.
        time.sleep(2 * _LATE_SECONDS)
        for subject in family.subjects:
            left = subject.remains()
            assert left.entry is not None
            assert subject.wrong(left) == "", (subject.cell, moment)
            unlogged += not subject.has_logged(left.entry.batch_id)
    assert unlogged
    family.finish()
    for subject in family.subjects:
        left = subject.remains()
        assert left.entry is not None
        assert left.entry.ends[subject.queue.path] == subject.queue.ends()
        assert subject.incomplete(left) == "", subject.cell
    record_property("kills", len(MOMENTS[door]))
    record_property("batches that were committed and not logged", unlogged)


def senders(family: Lineage) -> list[str]:
    """Return who has sent the newest batch of each query, by its ledger."""
    return [
        row["sent_by"]
        for subject in family.subjects
        for row in subject.client.select_rows(f"sent_by from [{ledger(subject)}]")
    ]
