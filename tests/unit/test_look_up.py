"""The look-up of a batch in the ledger: what it concludes, and what it leaves for the modes."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
from pyspark.sql.types import StructType

from yt_exactly_once import RetryPolicy
from yt_exactly_once.commit.batch import MicroBatch, PartitionRange, SourceRange
from yt_exactly_once.commit.consumers import offsets_of
from yt_exactly_once.commit.entry import LedgerEntry
from yt_exactly_once.commit.judgement import nothing_logged
from yt_exactly_once.commit.tally import Tally
from yt_exactly_once.delivery.memory import Memory
from yt_exactly_once.delivery.route import LookUp
from yt_exactly_once.errors import (
    ClusterUnavailableError,
    ConfigError,
    FencedError,
    LedgerDivergedError,
)
from yt_exactly_once.spark.doors.arrived import TaskRows
from yt_exactly_once.spark.engine.look_up import find, look_up, once_more
from yt_exactly_once.spark.engine.run import Delivery

QUEUE = SourceRange("local", "//q", "//c", (PartitionRange(0, 10, 15),), "id")
BATCH = MicroBatch("query", 5, "run", (QUEUE,))


def entry_of(number):
    return LedgerEntry("query", "//t", number, "another run", "1-2", offsets_of(BATCH))


def delivery(entry, *, agreed=None):
    """Return a batch on its way, whose history needs no look any more."""
    call = SimpleNamespace(is_first=False, commits_sent={}, has_sent_commit=lambda _: False)
    ledger = SimpleNamespace(path="//ledger", read=lambda _: entry)
    options = SimpleNamespace(retry=RetryPolicy(), accepted=(), split_oversized=False)
    mode = SimpleNamespace(
        connection=None, options=options, begun_sessions=lambda *_, **__: {"//t": {}}
    )
    return Delivery(
        BATCH, TaskRows(StructType()), call, SimpleNamespace(ranges=nothing_logged), ledger, mode,
        lambda *_, **__: None, Memory("run", agreed=agreed),
    )  # fmt: skip


@pytest.mark.parametrize(("agreed", "error"), [(None, LedgerDivergedError), (4, FencedError)])
def test_later_batch_is_another_drivers_once_this_run_has_agreed_with_the_ledger(agreed, error):
    """Before, the checkpoint may be an older copy."""
    with pytest.raises(error):
        look_up(delivery(entry_of(7), agreed=agreed))


def test_batch_begun_in_parts_is_not_started_in_another_way():
    """In another mode its tasks would write the parts that are there again."""
    begun = replace(entry_of(5), part=1, part_count=2)
    with pytest.raises(ConfigError, match="split_oversized=True"):
        look_up(delivery(begun))
    in_parts = delivery(begun)
    in_parts.mode.options.split_oversized = True
    assert not look_up(in_parts).is_replay


def test_sessions_are_asked_for_a_new_batch_of_a_run_that_has_just_begun():
    """A replay has no rows to compare, and a batch that follows one of this run has no earlier run."""
    assert look_up(delivery(None)).sessions == {"//t": {}}
    assert look_up(delivery(None, agreed=4)).sessions == {}
    replayed = look_up(delivery(entry_of(5)))
    assert (replayed.is_replay, replayed.sessions) == (True, {})


def test_look_up_says_how_large_the_last_batch_was():
    """Who sends the rows of the next one depends on it."""
    entry = replace(entry_of(5), tallies={"//t": Tally(bytes=5), "//u": Tally(bytes=2)})
    assert look_up(delivery(entry)).bytes == 7


@pytest.mark.parametrize(("when", "asks"), [
    (LookUp.FIRST, True), (LookUp.BESIDE, False), (LookUp.INSIDE, False),
])  # fmt: skip
def test_ledger_is_asked_first_only_where_the_route_wants_it(when, asks):
    """And what was found then is enough for every other route."""
    found = find(delivery(entry_of(5)), when)
    assert found.is_replay is asks
    assert [found.covers(other) for other in LookUp] == [asks, True, True]


def test_failure_of_the_users_rows_is_not_lost_when_the_ledger_does_not_answer():
    """The ledger is asked once; the error of the user gets a note instead of five minutes of retries."""
    asked = []

    def read(_):
        asked.append(1)
        raise ClusterUnavailableError("away")

    lost = delivery(None)
    lost.ledger.read = read
    error = ValueError("of the user")
    assert not once_more(lost, error).is_replay
    assert len(asked) == 1
    assert "Whether the batch is written already is unknown: " in error.__notes__[0]
    assert once_more(delivery(entry_of(5)), error).is_replay
