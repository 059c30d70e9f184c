"""The look-up of a batch in the ledger: what it concludes, and what it leaves for the modes."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
from pyspark.sql.types import StructType

from tests.notes import MemoryNotes
from yt_exactly_once import Event, RetryPolicy
from yt_exactly_once.commit.batch import MicroBatch, PartitionRange, SourceRange
from yt_exactly_once.commit.consumers import offsets_of
from yt_exactly_once.commit.entry import APPLICATION_PREFIX, LedgerEntry
from yt_exactly_once.commit.judgement import nothing_logged
from yt_exactly_once.commit.ledger import CommitLedger
from yt_exactly_once.commit.notes import Note, NoteKind
from yt_exactly_once.commit.tally import Tally
from yt_exactly_once.delivery.memory import Memory, Prepared
from yt_exactly_once.delivery.route import LookUp, Way
from yt_exactly_once.errors import (
    ClusterUnavailableError,
    ConfigError,
    FencedError,
    LedgerDivergedError,
)
from yt_exactly_once.spark.doors.arrived import TaskRows
from yt_exactly_once.spark.engine import look_up as look_up_module
from yt_exactly_once.spark.engine.look_up import compare_history, find, look_up, once_more
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
    found = look_up(in_parts)
    assert (found.is_replay, found.resumed) == (False, begun)
    assert look_up(delivery(entry_of(5))).resumed is None


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


def test_run_that_misses_the_notes_of_its_query_says_so_once(monkeypatch):
    """It notes the ledger again. A call that has compared them is told what there is."""
    emitted, compared, notes = [], [], MemoryNotes()
    there = SimpleNamespace(look=lambda: ("id", ()))
    monkeypatch.setattr(look_up_module, "LedgerNotes", lambda *_: there)
    monkeypatch.setattr(look_up_module, "_compare_sessions", lambda *_, **__: None)
    entry = replace(entry_of(4), tallies={"//t": Tally(total_batches=5)})
    one = replace(
        delivery(entry),
        ledger=CommitLedger("//ledger", "query", ["//t"]),
        log=SimpleNamespace(notes=notes, may_be_written=lambda *_: True),
        emit=lambda event, **_: emitted.append(event),
    )
    one.call.compared = lambda known: compared.append(len(known))
    one.mode.options.new_ledger = one.mode.tolerates_repeats = False
    for _ in range(2):
        assert not compare_history(one, entry)
    assert (emitted, compared) == ([Event.NOTES_MISSING], [0, 1])


@pytest.mark.parametrize(("one", "opened", "way"), [
    (False, None, Way.TASKS), (True, "1-2", Way.JOIN), (True, None, Way.COLLECT),
])  # fmt: skip
def test_rows_of_a_writer_have_come_the_way_that_its_plan_said(one, opened, way):
    arrived = replace(delivery(None), rows=TaskRows(StructType(), ()), opened=opened)
    arrived.mode.one_transaction = one
    assert arrived.rows.are_computed
    assert arrived._arrived is way


@pytest.mark.parametrize(("query_id", "is_sorted", "has_sessions", "noted", "does"), [
    ("query", False, True, False, ["ask", "create", "note"]),
    ("query", False, False, True, ["ask"]),
    ("query", False, False, False, []),
    ("query", True, True, True, []),
    (f"{APPLICATION_PREFIX}job", False, True, True, []),
])  # fmt: skip
def test_sessions_are_compared_with_notes_where_either_of_them_is_there(
    monkeypatch, query_id, is_sorted, has_sessions, noted, does
):
    """And a session is begun, and noted, only in a mode that writes through sessions."""
    done = []
    monkeypatch.setattr(look_up_module, "attributes_of", lambda *_: {"id": "1-2-3-4"})
    monkeypatch.setattr(look_up_module, "sessions_of_query", lambda *_: done.append("ask") or {})
    monkeypatch.setattr(look_up_module.ProducerSession, "create", lambda *_: done.append("create"))
    note = Note.about(NoteKind.PRODUCER, "//t", "//producer", 1, "1-2-3-4")
    history = SimpleNamespace(
        notes=[note] * noted, require_sessions=lambda *_: None, has_producer=lambda *_: False
    )
    notes = SimpleNamespace(add=lambda *_: done.append("note"))
    target = SimpleNamespace(path="//t", is_sorted=is_sorted)
    one = replace(
        delivery(None),
        batch=replace(BATCH, query_id=query_id),
        memory=Memory("run", Prepared(StructType(), (target,), "id", 0.0)),
        log=SimpleNamespace(notes=notes),
    )
    one.mode.has_sessions, one.mode.options.producer = has_sessions, "//producer"
    look_up_module._compare_sessions(one, history, None, may_be_new=False)
    assert done == does


@pytest.mark.parametrize(
    ("pattern", "is_sorted", "answer", "has"),
    [
        (None, False, 3, True),
        (None, False, 0, False),
        (None, True, 0, False),
        (None, False, ClusterUnavailableError("away"), True),
        ("//{a}", False, 0, True),
    ],
)
def test_target_that_cannot_be_seen_to_be_empty_is_taken_for_written(
    monkeypatch, pattern, is_sorted, answer, has
):
    """An ordered one is asked for the rows that it ever had."""

    def had_rows(_connection, path, tablets):
        assert (path, tablets) == ("//t", 0 if is_sorted else 2)
        if isinstance(answer, Exception):
            raise answer
        return bool(answer)

    monkeypatch.setattr(look_up_module, "had_rows", had_rows)
    options = SimpleNamespace(pattern=pattern)
    target = SimpleNamespace(path="//t", options=options, is_sorted=is_sorted, tablet_count=2)
    prepared = Prepared(StructType(), (target,), "id")
    one = replace(delivery(None), memory=Memory("run", prepared))
    assert look_up_module._has_rows(one, "//t") is has


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
