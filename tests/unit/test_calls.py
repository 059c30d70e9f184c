"""Calls of sinks within a run: one for each batch and target, whatever the objects and threads."""

import threading
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace

import pytest

from tests.notes import MemoryNotes, Told
from yt_exactly_once import errors
from yt_exactly_once.commit.notes import NOTES_VERSION, Note, NoteKind, missing_batches
from yt_exactly_once.observability import Event
from yt_exactly_once.spark.query.calls import Call, Calls, LedgerKey
from yt_exactly_once.spark.query.offset_log import RunningBatch

ONE, OTHER = (LedgerKey("proxy", "//ledger", target) for target in ("//one", "//other"))


class Run:
    """A run of a query whose function calls sinks."""

    def __init__(self, calls=None, notes=None, run="run", query="query"):
        self.calls, self.notes, self.run = calls or Calls(), notes or MemoryNotes(), run
        self.spare = MemoryNotes()
        self.query = query
        self.told = Told()

    def __call__(self, number, *keys, body=None):
        running = RunningBatch(self.query, self.run, number, SimpleNamespace(notes=self.notes))
        with self.calls.call(running, keys or (ONE,), self.told, self.spare) as call:
            if body is not None:
                body(call)

    def fails(self, number, *keys):
        def body(_call):
            raise errors.ConflictError("no")

        with pytest.raises(errors.ConflictError):
            self(number, *keys, body=body)

    def missing(self, number, committed, key=ONE):
        """Return what a later run finds missing."""
        return list(missing_batches(self.notes.all(), key.target, key.ledger, committed, number))


@pytest.fixture
def run():
    return Run()


def test_batches_follow_each_other(run):
    """And some may be left out."""
    for number in (0, 1, 4):
        run(number)
    assert run.notes.all() == ()


def test_second_call_of_a_batch_is_refused_and_noted(run):
    """Whoever makes it: what counts is the target."""
    run(3)
    with pytest.raises(errors.RepeatedCallError, match="was made in this run"):
        run(3)
    assert run.missing(3, 3) == run.missing(4, 3) == [3]
    assert run.missing(7, 3) == [3, 4, 5, 6]
    assert run.missing(5, 4) == []


@pytest.mark.parametrize("refused", [3, 4])
def test_refused_call_does_not_open_the_way_for_another_one(run, refused):
    """The batch is written, or it is not; a third call changes nothing about that."""
    run(4)
    for number in (refused, 4):
        with pytest.raises(errors.RepeatedCallError):
            run(number)


def test_batches_after_a_refused_call_are_refused(run):
    """A function that swallows the error must not lose the rows."""
    run(3)
    with pytest.raises(errors.RepeatedCallError):
        run(3)
    with pytest.raises(errors.IncompleteBatchError, match="accept_incomplete=3"):
        run(4)
    with pytest.raises(errors.IncompleteBatchError, match=r"accept_incomplete=\(3, 5\)"):
        run(6)


def test_sink_of_several_targets_meets_a_sink_of_one(run):
    """It writes none of them then, so the other one lacks the batch."""
    run(0, ONE)
    with pytest.raises(errors.RepeatedCallError):
        run(0, ONE, OTHER)
    assert run.missing(1, 0) == [0]
    assert run.missing(1, None, OTHER) == [0]
    with pytest.raises(errors.IncompleteBatchError):
        run(1, OTHER)


def test_other_targets_ledgers_and_clusters_are_other_matters(run):
    """One sink per target is the usual way to write a batch into two tables, in any order."""
    keys = [ONE, OTHER, ONE._replace(ledger="//ledger2"), ONE._replace(cluster="proxy2")]
    for number, ordered in enumerate((keys, keys[::-1])):
        for key in ordered:
            run(number, key)


def test_batch_whose_call_failed_may_be_called_again(run):
    """Catch the error, clean the DataFrame, call again."""
    run.fails(2)
    calls = []
    run(2, body=calls.append)
    assert calls[0].is_repeated
    run(3)


def test_batch_after_a_failed_one_is_refused(run):
    """The function has swallowed the error."""
    run(1)
    run.fails(2)
    for number in (3, 4):
        with pytest.raises(errors.IncompleteBatchError, match="Batch 2 was not written"):
            run(number)
    assert run.missing(2, 1) == []
    assert run.missing(3, 1) == [2]
    assert run.missing(5, 1) == [2, 3, 4]
    assert run.missing(5, 4) == []


@contextmanager
def under_way(run, number):
    """Let another thread be in the middle of a call."""
    inside, leave = threading.Event(), threading.Event()

    def wait(_call):
        inside.set()
        assert leave.wait(30)

    thread = threading.Thread(target=run, args=(number,), kwargs={"body": wait})
    thread.start()
    assert inside.wait(30)
    try:
        yield
    finally:
        leave.set()
        thread.join()


def test_calls_at_the_same_time_are_refused(run):
    """The second one at once, while the first one is under way."""
    with under_way(run, 0), pytest.raises(errors.RepeatedCallError, match="is under way"):
        run(0)
    assert run.missing(1, 0) == [0]


def test_batch_that_begins_while_another_is_written_is_refused(run):
    """The function did not wait for its sink; both batches are written once it does."""
    with under_way(run, 0), pytest.raises(errors.IncompleteBatchError, match="by another thread"):
        run(1)
    run(1)
    run(2)
    assert run.missing(2, 0) == [1]
    assert run.missing(3, 2) == []


def test_late_call_for_an_older_batch_is_refused(run):
    """Its rows are missing, and the ledger is past them."""
    run(4)
    with pytest.raises(errors.RepeatedCallError, match="batch 3 after batch 4"):
        run(3)
    assert run.missing(5, 4) == [4]


def test_runs_of_other_queries_are_other_matters(run):
    """One that begins does not forget the calls of another one."""
    run(3)
    other = Run(run.calls, query="other")
    other(3)
    for each in (run, other):
        with pytest.raises(errors.RepeatedCallError):
            each(3)


def test_run_that_is_over_is_forgotten_when_the_next_one_begins(run):
    """A driver may restart its query for years; runs of other queries stay."""
    run(0)
    Run(run.calls, run.notes, query="other")(0)
    Run(run.calls, run.notes, run="later")(0)
    assert set(run.calls._runs) == {("query", "later"), ("other", "run")}


def test_call_under_way_is_remembered_when_the_next_run_begins(run):
    """A driver may start the query again while a thread of the old run still writes."""
    with under_way(run, 3):
        Run(run.calls, run.notes, "later")(3)
        with pytest.raises(errors.RepeatedCallError, match="is under way"):
            run(3)


def test_call_that_turns_out_to_be_a_second_one_is_refused_for_good(run):
    """The ledger shows it only later; the batch after it must not hide it."""

    def refuse(_call):
        raise errors.RepeatedCallError("no")

    with pytest.raises(errors.RepeatedCallError):
        run(3, body=refuse)
    with pytest.raises(errors.IncompleteBatchError, match="Batch 3 was not written"):
        run(4)
    assert run.missing(4, 3) == [3]


def test_failed_batch_cannot_be_called_again_after_a_later_one(run):
    """Its rows would arrive behind those of the later one."""
    run.fails(2)
    with pytest.raises(errors.IncompleteBatchError):
        run(3)
    with pytest.raises(errors.RepeatedCallError, match="batch 2 after batch 3"):
        run(2)


def test_notes_are_to_be_compared_until_a_call_has_done_it(run):
    """For every target of the sink, and in every run."""
    first = []

    def compare(call):
        first.append(call.is_first)
        call.compared(())

    run(0, body=compare)
    run(1, body=compare)
    run(2, ONE, OTHER, body=compare)
    Run(run.calls, run.notes, "later")(2, body=compare)
    assert first == [True, False, True, True]


def test_committed_batch_is_noted_in_place_of_the_one_before(run):
    """For every target; a run begins with what it finds."""

    def commit(call):
        call.compared(call.running.log.notes.all())
        call.note_committed()
        call.note_committed()

    def found():
        return {(note.kind, note.batch, note.target) for note in run.notes.all()}

    targets = [Note.about(NoteKind.COMMITTED, key.target, "", 0).target for key in (ONE, OTHER)]
    for number, runs in ((0, run), (2, run), (3, Run(run.calls, run.notes, "later"))):
        runs(number, ONE, OTHER, body=commit)
        assert found() == {(NoteKind.COMMITTED, number, target) for target in targets}


def test_call_knows_which_entry_its_run_has_written():
    """The entry of an earlier call is no replay."""
    running = RunningBatch("query", "run", 3, SimpleNamespace(notes=MemoryNotes()))
    call = Call(running, (), ())
    assert call.running == running
    call.commits_sent["1-2"] = "digest"
    assert call.has_sent_commit(SimpleNamespace(transaction_id="1-2"))
    assert not call.has_sent_commit(SimpleNamespace(transaction_id="3-4"))
    assert not call.has_sent_commit(None)


def test_interrupted_call_counts_as_failed(run):
    """Whatever ends it."""

    def interrupt(_call):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(0, body=interrupt)
    with pytest.raises(errors.IncompleteBatchError):
        run(1)
    assert run.missing(1, None) == [0]


@pytest.mark.parametrize(
    ("refusals", "kept"), [("f", "ledger"), ("fs", "checkpoint"), ("fsf", "memory")]
)
def test_note_is_kept_where_it_can_be_and_hides_no_error(run, refusals, kept):
    """In the ledger, or in a checkpoint that is well again. The run refuses later batches all the same."""
    left, held = list(refusals), {"f": run.notes.add, "s": run.spare.add}

    def add_to(running):
        def add(note, text):
            if left[:1] == [running]:
                raise OSError("full" if left.pop(0) == "f" else "away")
            held[running](note, text)

        return add

    run.notes.add, run.spare.add = add_to("f"), add_to("s")
    run.fails(0)
    ((event, fields),) = run.told
    assert (event, fields["kept"]) == (Event.NOTE_FAILED, kept)
    assert fields["error"] == "; ".join({"f": "full", "s": "away"}[each] for each in refusals)
    assert (bool(run.notes.all()), bool(run.spare.all())) == (
        kept == "checkpoint",
        kept == "ledger",
    )
    with pytest.raises(errors.IncompleteBatchError):
        run(1)


def test_transactions_sent_by_a_failed_call_are_handed_to_the_next(run):
    """Only to one of the same batch."""

    def send(call):
        call.commits_sent["1-2"] = "digest"
        raise errors.ConflictError("no")

    with pytest.raises(errors.ConflictError):
        run(0, body=send)
    calls = []
    run(0, body=calls.append)
    run(1, body=calls.append)
    assert [call.commits_sent for call in calls] == [{"1-2": "digest"}, {}]


def test_name_of_a_note_is_its_format():
    """Later versions find the notes of earlier ones by it. Another spelling is another `NOTES_VERSION`."""
    note = Note.about(NoteKind.LEDGER, "//target", "//ledger", 12, "1-2-3-4")
    assert note.name == "v1-ledger-ddcf316bdf1cf2be-20b5a26a6d705560-12-1-2-3-4"


@pytest.mark.parametrize("kind", list(NoteKind))
def test_name_of_a_note_tells_all(kind):
    """A file is there or not; it is never half written."""
    note = Note.about(kind, "//target", "//ledger", 12)
    if kind is NoteKind.LEDGER:
        note = replace(note, object_id="1-2-3-4")
    assert Note.from_name(note.name) == note
    # Checkpoints have such names.
    assert note.name.startswith(f"v1-{kind}-")


@pytest.mark.parametrize(
    "name",
    ["", "x", "v1", "v1-failed-a-b", "v1-failed-a-b-c", ".v1-failed-a-b-1.crc", "failed-a-b-1"],
)
def test_other_names_are_no_notes(name):
    """The folder may hold what a file system leaves there."""
    assert Note.from_name(name) is None


def test_note_of_a_newer_version_is_refused_and_one_of_an_older_version_is_read():
    """Passed over, it could hide that a batch is incomplete."""
    name = Note.about(NoteKind.FAILED, "//target", "//ledger", 12).name
    assert name.startswith(f"v{NOTES_VERSION}-")
    rest = name.partition("-")[2]
    assert Note.from_name(f"v{NOTES_VERSION - 1}-{rest}") == Note.from_name(name)
    with pytest.raises(errors.NewerFormatError, match=f"note=v{NOTES_VERSION + 1}-unknown"):
        Note.from_name(f"v{NOTES_VERSION + 1}-unknown")


def test_new_ledger_hides_no_gap(run):
    """Without an entry the notes about every ledger of the target count."""
    run.fails(2)
    notes = run.notes.all()
    assert list(missing_batches(notes, "//one", "//new", None, 3)) == [2]
    assert list(missing_batches(notes, "//one", "//new", 1, 3)) == []
