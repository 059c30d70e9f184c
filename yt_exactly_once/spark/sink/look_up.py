"""Whether a batch is written already: by the ledger, the notes of the checkpoint, and producer sessions."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import islice

from yt_exactly_once import advice
from yt_exactly_once.commit.cluster import Ahead
from yt_exactly_once.commit.entry import APPLICATION_PREFIX, LEDGER_MARK, LedgerEntry
from yt_exactly_once.commit.judgement import Verdict, judge, require_one_sink, shares
from yt_exactly_once.commit.notes import BEGAN, History, Note, NoteKind, lack_all_notes
from yt_exactly_once.commit.transactional import Read
from yt_exactly_once.errors import (
    ConfigError,
    ExactlyOnceError,
    LedgerDivergedError,
    OffsetConflictError,
)
from yt_exactly_once.observability import Event
from yt_exactly_once.retrying import run_attempts
from yt_exactly_once.spark.query.notes import LedgerNotes
from yt_exactly_once.spark.sink.modes import sessions
from yt_exactly_once.spark.sink.run import Delivery
from yt_exactly_once.ytsaurus.browsing import attributes_of, cluster_of, marked
from yt_exactly_once.ytsaurus.client import Connection
from yt_exactly_once.ytsaurus.rows import ProducerSession, SessionState, session_prefix, sessions_of
from yt_exactly_once.ytsaurus.tables import had_rows, rows_of

_MOST_ENTRIES = 1_000
_MOST_LEDGERS = 30


@dataclass(frozen=True)
class Found:
    """What a look-up has found.

    Attributes:
        is_replay: whether an earlier run has committed the batch.
        rows: how many rows of a replay the ledger entry records.
        resumed: the ledger entry of a batch, if some of its parts are committed.
    """

    is_replay: bool = False
    rows: int = 0
    resumed: LedgerEntry | None = None


def find(delivery: Delivery, begun: Ahead[Read] | None = None) -> Found:
    """Look a batch up, unless the check inside the transaction is early enough.

    Spark replays only the first batch of a run. A later batch can be in the ledger for two reasons. Another
    run has got ahead: the check inside the transaction finds that. Or the sink is called again for the batch.

    Args:
        begun: the transaction of the batch, if it is opened ahead: what was read in it counts.
    """
    run, batch = delivery.run, delivery.batch
    if run.continues_with(batch) and delivery.mode.traits.through_driver:
        run.agreed = batch.batch_id
        return Found()
    return look_up(delivery, begun)


def require_new(delivery: Delivery, begun: Ahead[Read] | None = None) -> None:
    """Raise `LedgerDivergedError` for a batch that is written, and whatever else `find` raises."""
    if find(delivery, begun).is_replay:
        raise LedgerDivergedError(
            "Another run has written this batch meanwhile",
            remedy="Stop one of the two drivers that run on this checkpoint",
            **delivery.batch.where,
        )


def name_other_query(delivery: Delivery, error: OffsetConflictError) -> None:
    """Add to an error who moves the same consumer, if the ledger or one near it knows: a query, or a run."""
    ledger, connection = delivery.ledger, delivery.mode.connection
    consumer = str(error.where.get("consumer"))
    # Naming it is a help. Whatever fails here must not hide the conflict.
    with suppress(Exception):
        mine = ledger.read(connection)
        near = marked(connection, (ledger.path, *ledger.targets, consumer), LEDGER_MARK)
        for path in islice(dict.fromkeys([ledger.path, *near]), _MOST_LEDGERS):
            for entry in _entries(connection, path):
                if all(key[2] != consumer for key in entry.offsets):
                    continue
                wrote = f"with batch {entry.batch_id}, which it wrote into {entry.target}"
                if entry.query_id == ledger.query_id:
                    # Its own earlier batches have left the consumer where this one expects it.
                    if entry.batch_id < delivery.batch.batch_id:
                        continue
                    is_own = entry.run_id == delivery.batch.run_id
                    mover = "This run" if is_own else f"Run {entry.run_id} of this very query"
                    error.what += f". {mover} has moved it: {wrote}"
                    error.where["other_run"] = entry.run_id
                    error.remedy = advice.ONE_SINK_MOVES if is_own else advice.FORKED
                    return
                error.what += f". Query {entry.query_id} has moved it too: {wrote}"
                error.where["other_query"] = entry.query_id
                if mine and shares(entry, mine, str(error.where.get("queue")), consumer):
                    error.remedy = advice.share_no_consumer(path, entry.query_id)
                return


def _entries(connection: Connection, ledger: str) -> list[LedgerEntry]:
    """Return the entries of a ledger; nothing of one that cannot be read."""
    with suppress(Exception):
        return [LedgerEntry.from_row(row) for row in rows_of(connection, ledger, _MOST_ENTRIES)]
    return []


def look_up(delivery: Delivery, begun: Ahead[Read] | None = None) -> Found:
    """Compare a batch with its ledger entry; before a run's first row the history of the query too.

    Raises what `judge` and `compare_history` raise, and `ConfigError` if the batch was begun with options
    that this sink does not have.
    """
    batch, run, call, ledger = delivery.batch, delivery.run, delivery.call, delivery.ledger
    options, connection = delivery.mode.options, delivery.mode.connection

    def read(number: int) -> LedgerEntry | None:
        return begun.read()[0] if begun is not None and number == 1 else ledger.read(connection)

    entry = run_attempts(read, options.retry, delivery.emit)
    if call.is_first:
        compare_history(delivery, entry)
    verdict = judge(
        entry,
        batch,
        ledger=ledger.path,
        running=run.agreed is not None,
        logged=call.place.log.ranges,
        accepted=options.accepted,
    )
    if entry is not None and not run.bytes:
        run.bytes = sum(tally.bytes for tally in entry.tallies.values())
    run.sessions = {}
    is_new, traits = verdict is Verdict.NEW, delivery.mode.traits
    # Where tasks have just pushed, rows in sessions need not be of an earlier run or call.
    has_pushed = traits.has_sessions and delivery.rows.are_computed
    if is_new and not (run.continues_with(batch) or traits.may_repeat or has_pushed):
        with delivery.rows.described(batch, "compare the replay with pushed rows"):
            run.sessions = _pushed(delivery)
    run.agreed = batch.batch_id
    if entry is not None and verdict is not Verdict.NEW:
        require_one_sink(entry, batch, call.commits_sent, ledger=ledger.path)
    if verdict is Verdict.PARTIAL and not options.split_oversized:
        raise ConfigError(
            "Some parts of this batch are written, and this sink would write them again",
            remedy="Finish the batch as it was begun, with mode='transactional' and "
            "split_oversized=True; change them afterwards",
            **batch.where,
        )
    delivery.emit(Event.LEDGER_READ, verdict=verdict.value)
    return Found(
        is_replay=verdict is Verdict.REPLAY and not call.has_sent_commit(entry),
        rows=entry.batch_rows if entry else 0,
        resumed=entry if verdict is Verdict.PARTIAL else None,
    )


def _history(delivery: Delivery, notes: Collection[Note], ledger_id: str = "") -> History:
    batch, accepted = delivery.batch, delivery.mode.options.accepted
    may_be_written = partial(delivery.call.place.log.may_be_written, batch)
    return History(notes, batch, delivery.ledger, ledger_id, accepted, may_be_written)


def require_cluster(delivery: Delivery) -> None:
    """Raise `ConfigError`, once per run and before anything is created, if the cluster is another one."""
    run, mode = delivery.run, delivery.mode
    if not run.cluster_id:
        cluster_id = cluster_of(mode.connection).id
        if not mode.options.new_ledger:
            known = delivery.call.place.log.notes.all()
            _history(delivery, known).require_same_cluster(cluster_id)
        run.cluster_id = cluster_id


def compare_history(delivery: Delivery, entry: LedgerEntry | None) -> None:
    """Compare the notes in the checkpoint with the ledger, before this run's first row; see `History`."""
    call, mode, options = delivery.call, delivery.mode, delivery.mode.options
    path, query = delivery.ledger.path, delivery.batch.query_id
    spare = LedgerNotes(mode.connection, path, query, options.retry, delivery.emit)
    ledger_id, refused = spare.look()
    notes = call.place.log.notes
    known = notes.all()
    for note in refused:
        if note not in known:
            notes.add(note, "The checkpoint had refused this note, and the ledger kept it")
    known = [*known, *refused]
    if entry is not None and lack_all_notes(known, entry):
        delivery.emit(
            Event.NOTES_MISSING,
            unknown="whether an earlier call failed and its error was swallowed, and whether this is the "
            "ledger and the cluster of the query, or a copy",
        )
    history = _history(delivery, known, ledger_id)
    may_be_new = options.new_ledger or mode.traits.may_repeat
    if entry is not None:
        history.require_newest(entry, may_be_new=may_be_new)
    history.require_whole(entry)
    if entry is None:
        has_rows = partial(_has_rows, delivery)
        history.require_ledger(may_be_new=options.new_ledger, has_rows=has_rows)
    elif not may_be_new:
        # Idempotent mode finds rows that it pushed without the ledger, but not those of another mode.
        history.require_same_ledger(entry)
    _compare_sessions(delivery, history, entry, may_be_new=may_be_new)
    history.note_use(notes, delivery.run.cluster_id)
    # An entry later proves that this batch is complete.
    call.records |= entry is None or history.has_failed
    call.compared(known)


def _compare_sessions(
    delivery: Delivery, history: History, entry: LedgerEntry | None, *, may_be_new: bool
) -> None:
    """Compare the notes about producer sessions with those that are there, and make the first one.

    See `History.require_sessions`. A job keeps no notes.
    """
    batch, mode, connection = delivery.batch, delivery.mode, delivery.mode.connection
    paths = [target.path for target in delivery.run.targets if not target.is_sorted]
    noted = any(note.kind is NoteKind.PRODUCER for note in history.notes)
    if batch.query_id.startswith(APPLICATION_PREFIX) or not (
        paths and (mode.traits.has_sessions or noted)
    ):
        return
    producer, retry, emit = mode.options.producer, mode.options.retry, delivery.emit
    known = run_attempts(lambda _: attributes_of(connection, producer, ["id"]), retry, emit) or {}
    producer_id, found = str(known.get("id", "")), _sessions(delivery)
    sessions = {
        path: {
            name.removeprefix(prefix): state.batch
            for name, state in found.items()
            if name.startswith(prefix)
        }
        for path in paths
        if (prefix := session_prefix(batch.query_id, path))
    }
    if not may_be_new:
        history.require_sessions(entry, producer_id, sessions)
    if not mode.traits.has_sessions:
        return
    for path, names in sessions.items():
        note = Note.about(NoteKind.PRODUCER, path, producer, batch.batch_id, producer_id)
        if BEGAN not in names:
            # Before the note: where it is there, this session is.
            began = partial(ProducerSession.create, connection, producer, path)
            session_id = session_prefix(batch.query_id, path) + BEGAN
            run_attempts(lambda _: began(session_id), retry, emit)  # noqa: B023 - it is called here
        if not history.has_producer(path, producer_id, entry):
            text = f"Writes {path} through sessions of the producer {producer} from this batch on"
            delivery.call.place.log.notes.add(note, text)


def _has_rows(delivery: Delivery, path: str) -> bool:
    """Return whether a target has, or an ordered one ever had, a row: an empty one has no row to repeat."""
    (target,) = (each for each in delivery.run.targets if each.path == path)
    tablets = 0 if target.is_sorted else target.tablet_count
    # What cannot be looked at is taken for written.
    with suppress(ExactlyOnceError):
        return had_rows(delivery.mode.connection, path, tablets)
    return True


def _pushed(delivery: Delivery) -> dict[str, dict[str, SessionState]]:
    """Return the producer sessions with rows of the batch; see `sessions_with_rows`."""
    batch, mode, rows = delivery.batch, delivery.mode, delivery.rows
    kinds = {
        target.path: sessions.session_kind(rows.schema_for(target.options).names, batch)
        if mode.traits.has_sessions
        else ""
        for target in delivery.run.targets
        if not target.is_sorted
    }
    if not kinds:
        return {}
    return sessions.sessions_with_rows(batch, _sessions(delivery), kinds)


def _sessions(delivery: Delivery) -> dict[str, SessionState]:
    """Return all producer sessions of the query."""
    mode, prefix = delivery.mode, f"{delivery.batch.query_id}:"
    path = mode.options.producer
    return run_attempts(
        lambda _: sessions_of(mode.connection, path, prefix), mode.options.retry, delivery.emit
    )
