"""Drivers killed while their queries write with the format yt.

Its writer has no listener, so the moments are chosen at the cluster: the requests of a step are lost, before
or after they are executed, and the driver is killed when the first one was. In between it is killed at
random.
"""

import random
import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.crash.harness.lives import Cell, Lineage
from yt_exactly_once.local import LocalCluster

Rule = dict[str, Any]

_ALWAYS: Rule = {"count": None}
_LATE_SECONDS = 1.0

MOMENTS: dict[str, list[Rule]] = {
    # The next attempt begins late, so the driver cannot learn of the commit.
    "commit applied": [
        {"action": "delay", "command": "start_transaction", "seconds": _LATE_SECONDS, **_ALWAYS},
        {"action": "lose_answer", "command": "commit_transaction", **_ALWAYS},
    ],
    "commit lost": [{"action": "lose_request", "command": "commit_transaction", **_ALWAYS}],
    "commit late": [
        {"action": "hold", "command": "commit_transaction", "seconds": _LATE_SECONDS, **_ALWAYS}
    ],
    "rows lost": [{"action": "lose_request", "command": "insert_rows", **_ALWAYS}],
    "at random": [],
}
COUNTED = 20
"""Deaths of the driver."""

CELLS = [
    Cell("stateless", is_sorted=False, by_format=True),
    Cell("dedup", is_sorted=False, by_format=True),
    Cell("windowed", is_sorted=True, by_format=True),
    Cell("stateless", is_sorted=True, mode="idempotent", by_format=True),
    Cell("stateless", is_sorted=False, mode="at-least-once", by_format=True),
]

ROWS_PER_PARTITION = 50
BATCHES_OF_A_LIFE = 40
"""More than a life lasts."""

LONGEST_DELAY_SECONDS = 1.0
SEED = 22


@pytest.mark.nightly
@pytest.mark.timeout(3600)
def test_driver_killed_while_it_writes_with_the_format(lineage, cluster, record_property):
    """After each death transactional targets are exact, and in the end all of them."""
    chance = random.Random(SEED)
    family: Lineage = lineage(
        *CELLS, rows=ROWS_PER_PARTITION, rows_per_partition=ROWS_PER_PARTITION
    )
    replayed = 0
    for number in range(COUNTED):
        feed(family, BATCHES_OF_A_LIFE)
        moment = list(MOMENTS)[number % len(MOMENTS)]
        kill(family, cluster, MOMENTS[moment], chance)
        if moment == "commit late":
            time.sleep(2 * _LATE_SECONDS)
        unlogged = 0
        for subject in family.subjects:
            left = subject.remains()
            unlogged += bool(left.entry) and not subject.has_logged(left.entry.batch_id)
            if subject.cell.mode == "transactional":
                assert subject.wrong(left) == "", (subject.cell, moment, number)
        assert unlogged or moment != "commit applied"
        replayed += unlogged
    family.finish()
    for subject in family.subjects:
        left = subject.remains()
        assert left.entry.ends[subject.queue.path] == subject.queue.ends()
        if subject.cell.mode == "at-least-once":
            assert set(subject.must_hold(left.entry.batch_id)) <= set(left.rows), subject.cell
        else:
            assert subject.incomplete(left) == "", subject.cell
    record_property("kills", COUNTED)
    record_property("batches that were committed and not logged", replayed)


def feed(family: Lineage, batches: int) -> None:
    """Append what is missing to so many batches after those that are written."""
    queue, until = family.subjects[0].queue, max(_batches(family)) + 1 + batches
    for partition, rows in enumerate(queue.rows):
        queue.append(max(0, until * ROWS_PER_PARTITION - len(rows)), partition)


def kill(
    family: Lineage,
    cluster: LocalCluster,
    rules: list[Rule],
    chance: random.Random,
    begun: Callable[[], bool] = lambda: True,
) -> None:
    """Live until every query has written a batch, and then until the moment; kill the driver there.

    Args:
        rules: faults that must all have hit; without any the moment is random.
        begun: whether the life may end.
    """
    before = _batches(family)

    def have_written() -> bool:
        batches = zip(_batches(family), before, strict=True)
        return all(new > old for new, old in batches) and begun()

    with family.living() as life:
        life.wait(have_written)
        if rules:
            cluster.inject_plan(rules)
            life.wait(lambda: all(rule["hits"] for rule in cluster.faults()))
        else:
            time.sleep(chance.uniform(0.0, LONGEST_DELAY_SECONDS))
        assert not life.errors
    cluster.clear_faults()


def _batches(family: Lineage) -> list[int]:
    """Return the last batch of each query, by its ledger."""
    entries = [subject.remains().entry for subject in family.subjects]
    return [-1 if entry is None else entry.batch_id for entry in entries]
