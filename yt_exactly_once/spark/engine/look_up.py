"""Whether a batch is written already: by the ledger, the notes of the checkpoint, and producer sessions."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice

from yt_exactly_once import advice
from yt_exactly_once.commit.cluster import Ahead
from yt_exactly_once.commit.entry import APPLICATION_PREFIX, LedgerEntry
from yt_exactly_once.commit.judgement import (
    Verdict,
    judge,
    require_columns,
    require_one_sink,
    shares,
)
from yt_exactly_once.commit.ledger import LEDGER_MARK
from yt_exactly_once.commit.notes import BEGAN, History, Note, NoteKind, lack_all_notes
from yt_exactly_once.commit.tally import Tally
from yt_exactly_once.commit.transactional import Read
from yt_exactly_once.delivery.route import LookUp
from yt_exactly_once.errors import (
    ConfigError,
    ExactlyOnceError,
    LedgerDivergedError,
    OffsetConflictError,
    RetriesExhaustedError,
    TransientError,
)
from yt_exactly_once.observability import Event
from yt_exactly_once.retrying import run_attempts
from yt_exactly_once.spark.engine.run import Delivery
from yt_exactly_once.spark.modes.sessions import sessions_of_query
from yt_exactly_once.spark.query.notes import LedgerNotes
from yt_exactly_once.ytsaurus.browsing import attributes_of, cluster_of, marked
from yt_exactly_once.ytsaurus.client import Connection
from yt_exactly_once.ytsaurus.rows import ProducerSession, SessionState, session_prefix
from yt_exactly_once.ytsaurus.tables import had_rows, rows_of

_MOST_ENTRIES = 1_000
_MOST_LEDGERS = 30


@dataclass(frozen=True)
class Found:
    """What a look-up has found.

    Attributes:
        when: the ledger was asked.
        is_replay: whether an earlier run has committed the batch.
        rows: how many rows of a replay the ledger entry records.
        bytes: of the encoded rows of the last batch there; 0 where it is not known.
        resumed: the ledger entry of a batch, if some of its parts are committed.
        sessions: producer sessions with rows of the batch although it is new, by target and name.
        must_record: whether the batch is recorded even if it is empty.
        tallies: of the ledger entry, by target; empty without one, and where it was not asked.
    """

    when: LookUp = LookUp.FIRST
    is_replay: bool = False
    rows: int = 0
    bytes: int = 0
    resumed: LedgerEntry | None = None
    sessions: Mapping[str, Mapping[str, SessionState]] = field(default_factory=dict)
    must_record: bool = False
    tallies: Mapping[str, Tally] = field(default_factory=dict)

    def covers(self, when: LookUp) -> bool:
        """Return whether a route that asks then need not ask any more."""
        return self.when is LookUp.FIRST or when is not LookUp.FIRST


def find(delivery: Delivery, when: LookUp, ahead: Ahead[Read] | None = None) -> Found:
    """Look a batch up, unless the route asks later.

    Spark replays only the first batch of a run. A later batch can be in the ledger for two reasons. Another
    run has got ahead: the check inside the transaction finds that. Or the sink is called again for the batch.

    Args:
        ahead: the transaction of the batch, if it was opened ahead: what was read in it counts.
    """
    return look_up(delivery, ahead) if when is LookUp.FIRST else Found(when)


def once_more(delivery: Delivery, error: Exception) -> Found:
    """Look a batch up whose rows could not be computed: an earlier run may have written it since.

    The ledger is asked once. Where it does not answer, the error gets a note that says so.
    """
    try:
        return look_up(delivery, attempts=1)
    except (TransientError, RetriesExhaustedError) as unknown:
        error.add_note(f"Whether the batch is written already is unknown: {unknown}")
        return Found()


def require_new(delivery: Delivery, ahead: Ahead[Read] | None = None) -> None:
    """Raise `LedgerDivergedError` for a batch that is written, and whatever else `look_up` raises."""
    if look_up(delivery, ahead).is_replay:
        raise LedgerDivergedError(
            "Another run has written this batch meanwhile",
            remedy="Stop one of the two drivers that run on this checkpoint",
            **delivery.batch.where,
        )


def with_other_query(delivery: Delivery, error: OffsetConflictError) -> OffsetConflictError:
    """Return an error with the query or the run that moves the same consumer, if a ledger near it knows."""
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
                    return error.extended(
                        f". {mover} has moved it: {wrote}",
                        remedy=advice.ONE_SINK_MOVES if is_own else advice.FORKED,
                        other_run=entry.run_id,
                    )
                is_shared = mine and shares(entry, mine, str(error.where.get("queue")), consumer)
                return error.extended(
                    f". Query {entry.query_id} has moved it too: {wrote}",
                    remedy=advice.share_no_consumer(path, entry.query_id) if is_shared else "",
                    other_query=entry.query_id,
                )
    return error


def _entries(connection: Connection, ledger: str) -> list[LedgerEntry]:
    """Return the entries of a ledger; nothing of one that cannot be read."""
    with suppress(Exception):
        return [LedgerEntry.from_row(row) for row in rows_of(connection, ledger, _MOST_ENTRIES)]
    return []


def look_up(
    delivery: Delivery, ahead: Ahead[Read] | None = None, *, attempts: int | None = None
) -> Found:
    """Compare a batch with its ledger entry; before a run's first row the history of the query too.

    Raises what `judge` and `compare_history` raise, and `ConfigError` if the batch was begun with options
    that this sink does not have.

    Args:
        attempts: how often the ledger is asked at most, if not as often as `retry` says.
    """
    batch, memory, call, ledger = delivery.batch, delivery.memory, delivery.call, delivery.ledger
    options, connection = delivery.mode.options, delivery.mode.connection
    retry = replace(options.retry, attempts=attempts or options.retry.attempts)

    def read(number: int) -> LedgerEntry | None:
        return ahead.read().entry if ahead is not None and number == 1 else ledger.read(connection)

    entry = run_attempts(read, retry, delivery.emit)
    must_record = call.is_first and compare_history(delivery, entry)
    verdict = judge(
        entry,
        batch,
        ledger=ledger.path,
        running=memory.agreed is not None,
        logged=delivery.log.ranges,
        accepted=options.accepted,
    )
    columns = {target.path: target.columns for target in delivery.targets}
    running = memory.agreed is not None
    require_columns(entry, batch, columns, ledger=ledger.path, running=running)
    sessions: Mapping[str, Mapping[str, SessionState]] = {}
    if verdict is Verdict.NEW and not memory.is_followed_by(batch):
        with delivery.rows.described(batch, "compare the replay with pushed rows"):
            sessions = delivery.mode.begun_sessions(
                batch, _columns(delivery), delivery.emit, arrived=delivery.rows.are_computed
            )
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
        bytes=entry.batch_bytes if entry else 0,
        resumed=entry if verdict is Verdict.PARTIAL else None,
        sessions=sessions,
        must_record=must_record,
        tallies=entry.tallies if entry else {},
    )


def _history(delivery: Delivery, notes: Collection[Note], ledger_id: str = "") -> History:
    batch, accepted = delivery.batch, delivery.mode.options.accepted
    may_be_written = partial(delivery.log.may_be_written, batch)
    return History(notes, batch, delivery.ledger, ledger_id, accepted, may_be_written)


def require_cluster(delivery: Delivery) -> str:
    """Return the id of the cluster; raise `ConfigError` if query or consumers belong to another one."""
    options, cluster_id = delivery.mode.options, cluster_of(delivery.mode.connection).id
    if not options.new_ledger:
        _history(delivery, delivery.log.notes.all()).require_same_cluster(cluster_id)
    for source in delivery.batch.sources if options.advance_consumer else ():
        # One of the same path there is of another queue, which could then trim rows that nobody has read.
        if source.consumer and source.cluster_id not in {"", cluster_id}:
            raise ConfigError(
                "The queue is on another cluster than the target, and so is its consumer",
                remedy="Give the source and the sink the same proxy: one query reads and writes one cluster",
                **delivery.batch.where,
                queue=source.queue,
                consumer=source.consumer,
            )
    return cluster_id


def compare_history(delivery: Delivery, entry: LedgerEntry | None) -> bool:
    """Compare the notes in the checkpoint with the ledger, before this run's first row; see `History`.

    Returns:
        Whether the batch is recorded even if it is empty: a later entry proves that it is complete.
    """
    call, mode, options = delivery.call, delivery.mode, delivery.mode.options
    path, query = delivery.ledger.path, delivery.batch.query_id
    ledger_notes = LedgerNotes(mode.connection, path, query, options.retry, delivery.emit)
    ledger_id, refused = ledger_notes.look()
    notes = delivery.log.notes
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
    may_be_new = options.new_ledger or mode.tolerates_repeats
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
    history.note_use(notes, delivery.cluster_id)
    call.compared(known)
    return entry is None or history.has_failed


def _compare_sessions(
    delivery: Delivery, history: History, entry: LedgerEntry | None, *, may_be_new: bool
) -> None:
    """Compare the notes about producer sessions with those that are there, and make the first one.

    See `History.require_sessions`. A job keeps no notes.
    """
    batch, mode, connection = delivery.batch, delivery.mode, delivery.mode.connection
    paths = [target.path for target in delivery.targets if not target.is_sorted]
    noted = any(note.kind is NoteKind.PRODUCER for note in history.notes)
    if batch.query_id.startswith(APPLICATION_PREFIX) or not (
        paths and (mode.has_sessions or noted)
    ):
        return
    producer, retry, emit = mode.options.producer, mode.options.retry, delivery.emit
    known = run_attempts(lambda _: attributes_of(connection, producer, ["id"]), retry, emit) or {}
    producer_id = str(known.get("id", ""))
    found = sessions_of_query(connection, mode.options, batch.query_id, emit)
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
    if not mode.has_sessions:
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
            delivery.log.notes.add(note, text)


def _has_rows(delivery: Delivery, path: str) -> bool:
    """Return whether a target has, or an ordered one ever had, a row: an empty one has no row to repeat."""
    (target,) = (each for each in delivery.targets if each.path == path)
    if target.options.pattern is not None:
        return True
    tablets = 0 if target.is_sorted else target.tablet_count
    # What cannot be looked at is taken for written.
    with suppress(ExactlyOnceError):
        return had_rows(delivery.mode.connection, path, tablets)
    return True


def _columns(delivery: Delivery) -> Mapping[str, Sequence[str]]:
    ordered = [target for target in delivery.targets if not target.is_sorted]
    return {one.path: delivery.rows.schema_for(one.options).names for one in ordered}
