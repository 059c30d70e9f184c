"""What notes and ledger say about earlier batches."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from tests.notes import MemoryNotes
from yt_exactly_once.commit.batch import MicroBatch, PartitionRange, SourceRange
from yt_exactly_once.commit.entry import LedgerEntry
from yt_exactly_once.commit.ledger import CommitLedger
from yt_exactly_once.commit.notes import (
    BEGAN,
    History,
    Note,
    NoteKind,
    lack_all_notes,
    lack_notes,
    settle,
)
from yt_exactly_once.commit.tally import Tally
from yt_exactly_once.errors import ConfigError, IncompleteBatchError, LedgerMissingError
from yt_exactly_once.spark.query.notes import FolderNotes
from yt_exactly_once.spark.query.offset_log import OffsetLog
from yt_exactly_once.spark.storage import open_storage

LEDGER = CommitLedger("//ledger", "query", ["//t"])


def batch(number, *, run="run", sources=()):
    return MicroBatch("query", number, run, sources)


def entry(number):
    return LedgerEntry("query", "//t", number, "before", "1-2", {})


def note(kind, number, ledger_id="", ledger="//ledger"):
    return Note.about(kind, "//t", ledger, number, ledger_id)


def history(notes, number, ledger_id="new", *, accepted=(), written=True):
    return History(notes, batch(number), LEDGER, ledger_id, accepted, lambda _: written)


@pytest.mark.parametrize("accepted", [(), (2,), (3,), (2, 4)])
def test_batch_after_a_failed_one_needs_all_missing_ones_accepted(accepted):
    """The option has no effect on any other batch."""
    notes = [note(NoteKind.FAILED, 2)]
    with pytest.raises(IncompleteBatchError, match=r"accept_incomplete=\(2, 4\)"):
        history(notes, 5, accepted=accepted).require_whole(entry(1))
    history(notes, 5, accepted=(2, 3, 4)).require_whole(entry(1))


@pytest.mark.parametrize(
    ("missing", "told", "value"),
    [(range(2, 3), "settle batch 2:", "=2."), (range(2, 5), "settle batches 2 to 4:", "=(2, 4).")],
)
def test_remedy_names_the_batches_and_the_option_that_accepts_them(missing, told, value):
    """One number, or the first and the last."""
    remedy = settle(missing)
    assert told in remedy
    assert f"accept_incomplete{value}" in remedy


@pytest.mark.parametrize(
    ("kind", "committed", "told"),
    [
        (NoteKind.FAILED, None, "has continued after it"),
        (NoteKind.FAILED, 1, "has continued after it"),
        (NoteKind.REFUSED, 2, "a second call for it was refused"),
    ],
)
def test_error_tells_a_batch_that_failed_from_a_call_that_was_refused(kind, committed, told):
    """In a refused call's batch the first call's rows are there."""
    known = None if committed is None else entry(committed)
    with pytest.raises(IncompleteBatchError, match=f"lacks rows of batch 2.*{told}") as caught:
        history([note(kind, 2)], 3).require_whole(known)
    assert caught.value.where["target"] == "//t"


def test_only_a_failed_call_for_this_batch_and_target_counts_as_one():
    """The next call then records the batch even without rows."""
    notes = [note(NoteKind.FAILED, 2), note(NoteKind.REFUSED, 3)]
    others = [Note.about(NoteKind.FAILED, "//other", "//ledger", 4)]
    found = [number for number in range(6) if history([*notes, *others], number).has_failed]
    assert found == [2]


def test_failed_batch_itself_may_be_repeated():
    """That is what a restart does."""
    history([note(NoteKind.FAILED, 2)], 2).require_whole(entry(1))


def test_later_entry_settles_every_note():
    """The transaction that wrote it is the proof."""
    notes = [note(NoteKind.FAILED, 2), note(NoteKind.REFUSED, 2)]
    history(notes, 4).require_whole(entry(3))


def ledger_of(notes, number, ledger_id="new", *, accepted=(), new=False, written=True, rows=True):
    known = history(notes, number, ledger_id, accepted=accepted, written=written)
    known.require_ledger(may_be_new=new, has_rows=lambda _: rows)


def test_target_without_a_row_needs_no_entry():
    """The driver was killed before the first call of any sink. A ledger in use is missed all the same."""
    ledger_of([], 4, rows=False)
    other = Note.about(NoteKind.LEDGER, "//other", "//ledger", 0, "old")
    with pytest.raises(LedgerMissingError, match="Spark's log has earlier batches"):
        ledger_of([other], 4, rows=False)
    with pytest.raises(LedgerMissingError, match="Spark's log has earlier batches"):
        ledger_of([], 4)
    with pytest.raises(LedgerMissingError, match="has used it since batch 0"):
        ledger_of([note(NoteKind.LEDGER, 0, "old")], 4, rows=False)


def test_ledger_made_again_is_not_the_one_that_was_used():
    """Even for batch 0, and whatever was asked for."""
    used = [note(NoteKind.LEDGER, 0, "old")]
    for number in (0, 1):
        with pytest.raises(LedgerMissingError, match="has used it since batch 0"):
            ledger_of(used, number, new=True)


def test_ledger_whose_entry_was_removed_is_missing():
    """The table is the same, and a batch was committed with it."""
    used = [note(NoteKind.LEDGER, 3, "old")]
    with pytest.raises(LedgerMissingError):
        ledger_of(used, 4, "old")
    ledger_of(used, 4, "old", accepted=(3,))


def test_run_that_ended_before_its_first_commit_continues():
    """It had noted the ledger and left no entry."""
    ledger_of([note(NoteKind.LEDGER, 3, "old")], 3, "old")


def test_another_ledger_needs_to_be_asked_for():
    """It would not know the batch that Spark replays."""
    used = [note(NoteKind.LEDGER, 0, "old", ledger="//other")]
    with pytest.raises(LedgerMissingError, match="another ledger"):
        ledger_of(used, 0)
    ledger_of(used, 0, new=True)


def test_old_checkpoint_without_notes_needs_to_be_asked_for():
    """Unless nothing was read before."""
    with pytest.raises(LedgerMissingError, match="Spark's log has earlier batches"):
        ledger_of([], 4)
    ledger_of([], 4, new=True)
    ledger_of([], 4, written=False)


def test_ledger_of_another_target_and_a_failed_call_are_no_ledgers_that_were_used():
    """They say nothing about this target's ledger."""
    other = Note.about(NoteKind.LEDGER, "//other", "//ledger", 0, "old")
    notes = MemoryNotes()
    for one in (other, note(NoteKind.FAILED, 0, "new")):
        notes.add(one, "")
        ledger_of([one], 0, written=False)
    history(notes.all(), 3).note_use(notes, "")
    assert note(NoteKind.LEDGER, 3, "new") in notes.all()


@pytest.mark.parametrize(
    ("used", "committed", "is_refused"),
    [
        ([(0, "new")], 3, False),
        ([(0, "old")], 3, True),
        ([(0, "old")], 4, False),
        ([(0, "old"), (2, "new")], 3, False),
        ([(0, "new"), (3, "old")], 3, False),
        ([(0, "new"), (4, "old")], 3, True),
        ([], 3, False),
    ],
)
def test_copy_of_a_ledger_needs_to_be_asked_for(used, committed, is_refused):
    """It may lack the batch that Spark replays; one that has the batch is good enough."""
    notes = [note(NoteKind.LEDGER, number, name) for number, name in used]

    def require(*, written):
        history(notes, 4, written=written).require_same_ledger(entry(committed))

    require(written=False)
    if not is_refused:
        require(written=True)
        return
    with pytest.raises(LedgerMissingError, match="This one ends at batch 3"):
        require(written=True)


@pytest.mark.parametrize(
    ("committed", "number", "accepted", "told"),
    [
        (None, 4, (), ""),
        (1, 4, (), ""),
        (1, 1, (), ""),
        (0, 0, (), ""),
        (None, 1, (), ""),
        (2, 3, (), "accept_incomplete=2."),
        (2, 5, (2,), ""),
        (3, 4, (), "accept_incomplete=(2, 3)."),
        (3, 4, (2,), "accept_incomplete=(2, 3)."),
        (3, 4, (2, 3), ""),
        (2, 2, (), "rows of batch 2. If they are not there, start with new_ledger=True"),
        (3, 1, (), "rows of batches 2 to 3. If they are not there, start with new_ledger=True"),
        (5, 3, (), "accept_incomplete=2."),
        (5, 3, (2,), "rows of batches 3 to 5. If they are not there, start with new_ledger=True"),
    ],
)
def test_ledger_must_have_the_newest_committed_batch(committed, number, accepted, told):
    """Whatever ledger it was committed with; this one ends at batch 1."""
    noted = [] if committed is None else [note(NoteKind.COMMITTED, committed, ledger="//other")]
    known = history(noted, number, accepted=accepted)
    if not told:
        known.require_newest(entry(1), may_be_new=False)
        return
    with pytest.raises(LedgerMissingError, match="ends at batch 1") as caught:
        known.require_newest(entry(1), may_be_new=False)
    assert told in str(caught.value)
    if "new_ledger" in told:
        known.require_newest(entry(1), may_be_new=True)


PRODUCER = NoteKind.PRODUCER


@pytest.mark.parametrize(
    ("used", "sessions", "number", "mode", "told"),
    [
        ([], {}, 4, "idempotent", ""),
        ([(0, "new")], {BEGAN: None, "s": 3}, 4, "idempotent", ""),
        ([(0, "new")], {BEGAN: None, "s": 4}, 4, "idempotent", ""),
        ([(0, "old")], {BEGAN: None, "s": 3}, 4, "idempotent", "Another table"),
        ([(0, "new"), (4, "old")], {BEGAN: None, "s": 3}, 4, "idempotent", "Another table"),
        ([(0, "old"), (4, "new")], {BEGAN: None}, 4, "idempotent", ""),
        ([(0, "new")], {}, 4, "idempotent", "has lost the sessions"),
        ([(0, "new")], {BEGAN: None, "s": 2}, 4, "idempotent", "end before batch 3"),
        ([(0, "new")], {}, 3, "idempotent", ""),
        ([(0, "old")], {}, 4, "transactional", ""),
        ([(4, "new")], {}, 4, "transactional", "has lost the sessions"),
        ([(4, "new")], {BEGAN: None, "s": 2}, 4, "transactional", ""),
    ],
)
def test_sessions_that_may_have_rows_of_the_batch_must_be_there(used, sessions, number, mode, told):
    """The ledger ends at batch 3, which had rows, and which the mode has written."""
    notes = [note(PRODUCER, first, name, ledger="//producer") for first, name in used]
    known = replace(entry(3), mode=mode, tallies={"//t": Tally(rows=1)})

    def require():
        history(notes, number).require_sessions(known, "new", {"//t": sessions})

    if not told:
        require()
        return
    with pytest.raises(LedgerMissingError, match=told):
        require()


@pytest.mark.parametrize("sessions", [{}, {BEGAN: None}])
def test_sessions_of_a_query_without_an_entry_are_missed_too(sessions):
    """Its first batch may be pushed in part."""
    known = history([note(PRODUCER, 0, "new", ledger="//producer")], 0)
    if sessions:
        known.require_sessions(None, "new", {"//t": sessions})
        return
    with pytest.raises(LedgerMissingError, match="has lost the sessions"):
        known.require_sessions(None, "new", {"//t": sessions})


@pytest.mark.parametrize(
    ("used", "mode", "has"),
    [
        ([], "idempotent", False),
        ([(0, "old")], "idempotent", False),
        ([(0, "new")], "idempotent", True),
        ([(0, "new")], "transactional", False),
        ([(0, "new"), (4, "new")], "transactional", True),
    ],
)
def test_producer_is_noted_again_when_the_query_returns_to_it(used, mode, has):
    """Otherwise nobody could tell whether the batch was pushed."""
    notes = [note(PRODUCER, first, name, ledger="//producer") for first, name in used]
    known = replace(entry(3), mode=mode)
    assert history(notes, 4).has_producer("//t", "new", known) is has
    assert history(notes, 4).has_producer("//t", "new", None) is ((0, "new") in used)


@pytest.mark.parametrize(
    ("query", "firsts", "batches", "lacks"),
    [
        ("query", [0], 4, False),
        ("query", [0, 3], 4, False),
        ("query", [2], 1, False),
        ("query", [2], 3, True),
        ("query", [], 1, True),
        ("query", [], 0, False),
        ("application:job", [], 4, False),
    ],
)
def test_notes_are_gone_if_the_ledger_counts_batches_from_before_them(
    query, firsts, batches, lacks
):
    """A later first note alone proves nothing: the function may have left batches out."""
    notes = [note(NoteKind.LEDGER, first) for first in firsts]
    known = replace(entry(3), query_id=query, tallies={"//t": Tally(total_batches=batches)})
    assert lack_notes(notes, known) is lacks
    assert lack_all_notes(notes, known) is (lacks and not notes)


def test_ledger_is_noted_once():
    """With the batch it was first used for."""
    notes = MemoryNotes()
    for number in (3, 4):
        history(notes.all(), number, "1-2-3-4").note_use(notes, "5-6-7-8")
    kept = note(NoteKind.LEDGER, 3, "1-2-3-4"), note(NoteKind.CLUSTER, 3, "5-6-7-8")
    assert notes.all() == kept


def test_another_cluster_is_refused():
    """Where the query has noted one for this target."""
    history([note(NoteKind.LEDGER, 0, "old")], 4).require_same_cluster("new")
    other = Note.about(NoteKind.CLUSTER, "//other", "//ledger", 0, "old")
    history([other, note(NoteKind.CLUSTER, 2, "new")], 4).require_same_cluster("new")
    with pytest.raises(ConfigError, match="since batch 2"):
        history([note(NoteKind.CLUSTER, 2, "old")], 4).require_same_cluster("new")
    history([note(NoteKind.CLUSTER, 2, "old")], 4).require_whole(None)


def test_notes_in_a_folder_are_found_again(tmp_path):
    """And what else is there is not one."""
    notes = FolderNotes(open_storage(str(tmp_path)))
    assert notes.all() == ()
    notes.add(note(NoteKind.FAILED, 3), "why")
    notes.add(note(NoteKind.LEDGER, 0, "1-2-3-4"), "why")
    (tmp_path / "yt_exactly_once" / "failed").touch()
    again = FolderNotes(open_storage(str(tmp_path))).all()
    assert set(again) == {note(NoteKind.FAILED, 3), note(NoteKind.LEDGER, 0, "1-2-3-4")}


def test_note_of_a_committed_batch_takes_the_place_of_the_one_before(tmp_path):
    """One file, however many batches there are; one that somebody has removed is written again."""
    notes, folder = FolderNotes(open_storage(str(tmp_path))), tmp_path / "yt_exactly_once"
    first, second, third = (note(NoteKind.COMMITTED, number) for number in range(3))
    notes.add(first, "why")
    notes.add(second, "why", first)
    assert notes.all() == (second,)
    (folder / second.name).unlink()
    notes.add(third, "why", second)
    assert notes.all() == (third,)


def source(start, end):
    return (SourceRange("local", "//q", None, (PartitionRange(0, start, end),)),)


@pytest.mark.parametrize(
    ("number", "before", "may"),
    [(0, source(0, 5), False), (2, source(0, 0), False), (2, source(0, 5), True), (2, (), True)],
)
def test_batches_that_read_nothing_have_written_nothing(number, before, may):
    """As far as Spark's log goes back; what it does not have may have read something."""

    def may_be_written(now, read=before):
        log = SimpleNamespace(is_new=lambda *_: False, ranges=lambda _: read)
        return OffsetLog.may_be_written(log, now, False)

    now = batch(number, sources=source(0, 5))
    assert may_be_written(now) is may
    assert may_be_written(replace(now, batch_id=1_000))
    assert may_be_written(replace(now, batch_id=1, others="digest"), source(0, 0))
