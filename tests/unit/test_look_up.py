"""The look-up of a batch in the ledger: what it concludes, and what it leaves for the modes."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from yt_exactly_once import RetryPolicy
from yt_exactly_once.commit.batch import MicroBatch, PartitionRange, SourceRange
from yt_exactly_once.commit.consumers import offsets_of
from yt_exactly_once.commit.entry import LedgerEntry, Tally
from yt_exactly_once.commit.judgement import nothing_logged
from yt_exactly_once.config import DeliveryMode
from yt_exactly_once.errors import ConfigError, FencedError, LedgerDivergedError
from yt_exactly_once.spark.sink.look_up import look_up

QUEUE = SourceRange("local", "//q", "//c", (PartitionRange(0, 10, 15),), "id")
BATCH = MicroBatch("query", 5, "run", (QUEUE,))


def entry_of(number):
    return LedgerEntry("query", "//t", number, "another run", "1-2", offsets_of(BATCH))


def delivery(entry, *, agreed=None):
    """Return a batch on its way, whose history needs no look any more."""
    run = SimpleNamespace(
        agreed=agreed, sessions={"//t": "of an earlier batch"}, targets=(), bytes=0,
        continues_with=lambda _: False,
    )  # fmt: skip
    place = SimpleNamespace(log=SimpleNamespace(ranges=nothing_logged))
    call = SimpleNamespace(
        is_first=False, commits_sent={}, has_sent_commit=lambda _: False, place=place
    )
    ledger = SimpleNamespace(path="//ledger", read=lambda _: entry)
    options = SimpleNamespace(retry=RetryPolicy(), accepted=(), split_oversized=False)
    return SimpleNamespace(
        batch=BATCH, run=run, call=call, ledger=ledger, emit=lambda *_, **__: None,
        mode=SimpleNamespace(connection=None, options=options, traits=DeliveryMode.TRANSACTIONAL),
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


def test_replay_forgets_what_was_pushed_of_an_earlier_batch():
    """Nothing of this batch is compared with it."""
    replayed = delivery(entry_of(5))
    assert look_up(replayed).is_replay
    assert replayed.run.sessions == {}


def test_first_look_up_of_a_run_remembers_how_large_the_last_batch_was():
    """Who sends the rows of the next one depends on it."""
    entry = replace(entry_of(5), tallies={"//t": Tally(bytes=5), "//u": Tally(bytes=2)})
    looking = delivery(entry)
    look_up(looking)
    assert looking.run.bytes == 7
