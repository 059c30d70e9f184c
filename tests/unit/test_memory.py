"""What a sink remembers of a run: when it looks at its targets again, and what a batch leaves."""

from concurrent.futures import Future
from dataclasses import replace

import pytest

from yt_exactly_once.commit.batch import MicroBatch
from yt_exactly_once.commit.tally import Tally
from yt_exactly_once.delivery import memory
from yt_exactly_once.delivery.memory import LOOK_INTERVAL, Memories, Memory, Prepared


@pytest.fixture
def clock(monkeypatch):
    """A clock that a test moves."""
    now = [100.0]
    monkeypatch.setattr(memory.time, "monotonic", lambda: now[0])

    def wait(seconds):
        now[0] += seconds
        return now[0]

    return wait


def test_check_between_two_batches_spares_the_next_one_its_own(clock):
    """As long as it is young enough itself."""
    known = Prepared("schema", (), "id")
    assert not known.wants_check  # too early
    began = clock(LOOK_INTERVAL * 0.6)
    assert known.wants_check
    check = Future()
    known = replace(known, check=(began, check))
    check.set_result(True)
    clock(LOOK_INTERVAL * 0.6)
    known = known.with_answer()
    assert known.fits("schema")
    assert not known.fits("another schema")
    clock(LOOK_INTERVAL * 0.6)
    assert not known.fits("schema")


@pytest.mark.parametrize("found", [False, OSError("no answer")])
def test_check_that_finds_another_table_or_fails_is_repeated_at_once(clock, found):
    """Before the next row is encoded, however young the last good look is."""
    known, check = Prepared("schema", (), "id"), Future()
    known = replace(known, check=(clock(LOOK_INTERVAL * 0.6), check))
    check.set_exception(found) if found else check.set_result(found)
    assert not known.with_answer().fits("schema")


def test_check_without_an_answer_is_not_waited_for(clock):
    """Nor is another one begun beside it. The next batch looks itself when that is due."""
    known = Prepared("schema", (), "id")
    known = replace(known, check=(clock(LOOK_INTERVAL * 0.6), Future()))
    assert not known.wants_check
    assert known.with_answer().fits("schema")
    clock(LOOK_INTERVAL * 0.6)
    assert not known.with_answer().fits("schema")


def test_each_batch_leaves_another_memory():
    """Nothing that was handed out changes; a new run of the query knows nothing."""
    memories, batch = Memories(), MicroBatch("query", 5, "run")
    before = memories.of(batch)
    assert (before, before.is_followed_by(batch)) == (Memory("run"), False)
    after = before.after_look_up(batch, 7).after_rows((), 0.5)
    memories.keep(batch, after)
    assert (before.agreed, after.agreed, after.bytes, after.seconds) == (None, 5, 7, 0.5)
    assert after.after_look_up(batch, 9).bytes == 7, "what this run has written counts more"
    known = after.after_look_up(batch, 9, {"//t": Tally(3)})
    assert known.after_look_up(batch, 9).tallies == {"//t": Tally(3)}, "the ledger was not asked"
    later = MicroBatch("query", 6, "run")
    assert memories.of(later).is_followed_by(later)
    assert not memories.of(later).is_followed_by(batch), "it is called again"
    assert memories.of(MicroBatch("query", 6, "another run")) == Memory("another run")
    assert (
        after.after_commit(None, row_bytes=3, uneven=True)
        .after_commit(None, row_bytes=3, uneven=False)
        .uneven
    )
