"""A driver killed with SIGKILL at every crash point, in every mode, on one checkpoint after the other.

The lives of a lineage share their checkpoints: each is killed at the next point in a later batch, so that
what one crash damaged would be seen after all the following ones too. All queries run in one process and
die together, each at its crash point. Who dies where is in `tests.crash.deaths`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

import pytest

from tests.crash.crash_points import CrashPoint
from tests.crash.deaths import BATCHES, FATES, PASSED, Death, family_of
from tests.crash.harness.account import Account
from tests.crash.harness.lives import Cell, Fate, Lineage
from tests.tiers import NIGHTLY
from yt_exactly_once import TransactionalSink
from yt_exactly_once.config import ClusterConfig, DeliveryMode
from yt_exactly_once.errors import ConfigError
from yt_exactly_once.local import LocalCluster
from yt_exactly_once.operations.audit.found import Audit, By
from yt_exactly_once.operations.audit.run import audit
from yt_exactly_once.ytsaurus.client import Connection

ROWS_PER_PARTITION = 400

PIECES = {"stateless": 100, "aggregation": 10, "dedup": 50, "windowed": 4}
"""Rows of a request where a batch must need several."""


NEVER_PASSED = [
    pytest.param(cell, point, id=f"{point.name.lower()}-{cell}")
    for cell in FATES
    for point in CrashPoint
    if point.value.aftermath(DeliveryMode(cell.mode)) is None
]


def fate_of(cell: Cell, death: Death | None) -> Fate | None:
    """Return how a query ends in a life; `None` if it sits it out."""
    point = death and death.point(cell)
    if death is None or point is None:
        return None
    piece = PIECES[cell.kind]
    options: dict[str, Any] = {}
    if point is CrashPoint.TASKS_WRITING:
        options = {"dyn_batch_size": piece}
    elif death.in_parts:
        options = {
            "dyn_batch_size": piece,
            "rows_per_tablet_limit": 2 * piece,
            "split_oversized": True,
        }
    return Fate(point, death.batch, options)


@dataclass
class History:
    """A lineage that has run.

    Attributes:
        wrong: what was wrong after each death, per query and point; empty texts where nothing was.
        wrong_at_the_end: what was wrong after the life that ran to the end, per query.
        repeated: how many rows at-least-once mode has written twice, per query.
        audits: of the ordered targets, by the digests of their ledgers, at the end.
        told: the events of all its lives, per query.
    """

    wrong: dict[tuple[Cell, CrashPoint], str]
    wrong_at_the_end: dict[Cell, str]
    repeated: dict[Cell, int]
    audits: dict[Cell, Audit]
    told: dict[Cell, set[str]]


@pytest.fixture(scope="module")
def history_of(lineage, cluster) -> Callable[[Cell], History]:
    """Let queries live and die when the first of their family is asked for; once, even if that fails."""
    lived: dict[str, History | Exception] = {}

    def lookup(cell: Cell) -> History:
        name = family_of(cell)
        if name not in lived:
            fates = {one: deaths for one, deaths in FATES.items() if family_of(one) == name}
            family = lineage(
                *fates, rows=BATCHES * ROWS_PER_PARTITION, rows_per_partition=ROWS_PER_PARTITION
            )
            try:
                lived[name] = live_and_die(family, cluster, fates)
            except Exception as error:  # noqa: BLE001 - raised for every cell, below
                lived[name] = error
        found = lived[name]
        if isinstance(found, Exception):
            raise found
        return found

    return lookup


def live_and_die(family: Lineage, cluster: LocalCluster, fates: dict[Cell, list[Death]]) -> History:
    """Kill queries at every crash point, and let them live to the end then."""
    accounts = [Account(subject) for subject in family.subjects]
    wrong: dict[tuple[Cell, CrashPoint], str] = {}
    for deaths in zip_longest(*fates.values()):
        named = [
            (one, fate_of(one.subject.cell, death))
            for one, death in zip(accounts, deaths, strict=True)
        ]
        dying = [(one, fate) for one, fate in named if fate]
        with family.held((one.subject, fate) for one, fate in dying):
            pass
        cluster.clear_faults()
        for account, (point, batch, _) in dying:
            left = account.subject.remains()
            wrong[account.subject.cell, point] = account.wrong_after(point, batch, left)
    family.finish()
    connection = Connection(ClusterConfig(proxy=cluster.proxy_urls[0]))
    return History(
        wrong,
        {one.subject.cell: one.wrong_at_the_end(one.subject.remains()) for one in accounts},
        {one.subject.cell: len(one.repeated) for one in accounts},
        {
            one.cell: audit(one.plan.target, by=By.DIGEST, connection=connection)
            for one in family.subjects
            if one.plan.digest
        },
        {one.cell: {told["event"] for told in one.events} for one in family.subjects},
    )


@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("cell", "point"), PASSED.values(), ids=PASSED)
def test_driver_killed_at_crash_point(history_of, cell, point):
    """The cluster holds what the table of crash points says, and nothing else."""
    assert history_of(cell).wrong[cell, point] == ""


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("cell", FATES, ids=str)
def test_query_killed_at_every_crash_point_ends_exactly_right(history_of, cell):
    """After all those deaths on one checkpoint; only at-least-once mode may have rows twice."""
    history = history_of(cell)
    assert history.wrong_at_the_end[cell] == ""
    may_repeat = cell.mode == DeliveryMode.AT_LEAST_ONCE and not cell.is_sorted
    assert bool(history.repeated[cell]) == may_repeat


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("cell", [cell for cell in FATES if not cell.is_sorted], ids=str)
def test_digest_covers_every_row_once_after_all_deaths(history_of, cell):
    """What at-least-once mode has written twice is the only difference."""
    history = history_of(cell)
    found = history.audits[cell]
    assert found.rows - found.expected_rows == history.repeated[cell]
    assert found.exact == (cell.mode != DeliveryMode.AT_LEAST_ONCE)


@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("cell", "point"), NEVER_PASSED)
def test_mode_never_passes_crash_point(history_of, cell, point):
    """What the table of crash points leaves out for a mode cannot happen in it."""
    if point is CrashPoint.PART_COMMITTED:
        with pytest.raises(ConfigError, match="split_oversized"):
            TransactionalSink("//out", proxy="nowhere", mode=cell.mode, split_oversized=True)
        return
    if point is CrashPoint.TASKS_WRITING:
        # What tasks had written would be there before the first transaction.
        early = {CrashPoint.BATCH_COMPUTED, CrashPoint.TRANSACTION_STARTED}
        wrong = history_of(cell).wrong
        seen = [text for (one, at), text in wrong.items() if one == cell and at in early]
        assert set(seen) == {""}
        return
    assert point.value.event not in history_of(cell).told[cell]


def test_every_mode_dies_at_every_crash_point_that_it_passes():
    """A new crash point needs a batch to die in, here."""
    modes = set(DeliveryMode) if NIGHTLY else {DeliveryMode.TRANSACTIONAL}
    tried = {(cell.mode, point) for cell, point in PASSED.values() if cell.mode in modes}
    assert tried == {
        (mode, point) for mode in modes for point in CrashPoint if point.value.aftermath(mode)
    }


def test_idempotent_mode_dies_with_everything_that_a_death_may_leave():
    """Points that leave the same behind are for the night."""
    mode = DeliveryMode.IDEMPOTENT
    tried = {point.value.aftermath(mode) for cell, point in PASSED.values() if cell.mode == mode}
    assert tried | {None} == {point.value.aftermath(mode) for point in CrashPoint}
