"""Whether a batch is written already: by the ledger, the notes of the checkpoint, and producer sessions."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import islice

from yt_exactly_once import advice
from yt_exactly_once.commit.cluster import Ahead
from yt_exactly_once.commit.contents import Read
from yt_exactly_once.commit.entry import LEDGER_MARK, LedgerEntry
from yt_exactly_once.commit.history import (
    is_noted,
    lack_all_notes,
    note_ledger,
    require_ledger,
    require_same_cluster,
    require_same_ledger,
    require_whole,
)
from yt_exactly_once.commit.judgement import Verdict, judge, require_one_sink, shares
from yt_exactly_once.commit.ledger import CommitLedger
from yt_exactly_once.errors import ConfigError, ExactlyOnceError, OffsetConflictError
from yt_exactly_once.observability import Event
from yt_exactly_once.retrying import run_attempts
from yt_exactly_once.spark.query.notes import LedgerNotes
from yt_exactly_once.spark.query.offset_log import OffsetLog
from yt_exactly_once.spark.sink.modes.mode import Mode
from yt_exactly_once.spark.sink.modes.sessions import (
    is_numbered_by_source,
    session_kind,
    sessions_with_rows,
)
from yt_exactly_once.spark.sink.run import Delivery
from yt_exactly_once.spark.sink.targets import PreparedTarget
from yt_exactly_once.ytsaurus.browsing import cluster_of, marked
from yt_exactly_once.ytsaurus.client import Connection
from yt_exactly_once.ytsaurus.rows import SessionState, sessions_of
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


def find(
    delivery: Delivery, mode: Mode, offset_log: OffsetLog, begun: Ahead[Read] | None = None
) -> Found:
    """Look a batch up, unless the check inside the transaction is early enough.

    Spark replays only the first batch of a run. A later batch can be in the ledger for two reasons. Another
    run has got ahead: the check inside the transaction finds that. Or the sink is called again for the batch.

    Args:
        begun: the transaction of the batch, if it is opened ahead: what was read in it counts.
    """
    if delivery.run.continues_with(delivery.batch) and mode.traits.through_driver:
        delivery.run.agree(delivery.batch)
        return Found()
    return look_up(delivery, mode, offset_log, begun)


def name_other_query(
    delivery: Delivery, connection: Connection, error: OffsetConflictError
) -> None:
    """Add to an error the query that moves the same consumer, if the ledger or one near it knows one."""
    ledger, consumer = delivery.ledger, str(error.where.get("consumer"))
    # Naming it is a help. Whatever fails here must not hide the conflict.
    with suppress(Exception):
        mine = ledger.read(connection)
        near = marked(connection, (ledger.path, *ledger.targets, consumer), LEDGER_MARK)
        for path in islice(dict.fromkeys([ledger.path, *near]), _MOST_LEDGERS):
            for entry in _entries(connection, path):
                is_own = entry.query_id == ledger.query_id and entry.target in ledger.targets
                if is_own or all(key[2] != consumer for key in entry.offsets):
                    continue
                error.what += (
                    f". Query {entry.query_id} has moved it too: with batch {entry.batch_id}, which it wrote "
                    f"into {entry.target}"
                )
                error.where["other_query"] = entry.query_id
                if mine and shares(entry, mine, str(error.where.get("queue")), consumer):
                    error.remedy = advice.share_no_consumer(path, entry.query_id)
                return


def _entries(connection: Connection, ledger: str) -> list[LedgerEntry]:
    """Return the entries of a ledger; nothing of one that cannot be read."""
    with suppress(Exception):
        return [LedgerEntry.from_row(row) for row in rows_of(connection, ledger, _MOST_ENTRIES)]
    return []


def look_up(
    delivery: Delivery, mode: Mode, offset_log: OffsetLog, begun: Ahead[Read] | None = None
) -> Found:
    """Compare a batch with its ledger entry; before a run's first row the history of the query too.

    Raises:
        IncompleteBatchError: the target lacks rows of an earlier batch.
        LedgerError: the ledger and Spark's checkpoint contradict each other.
        FencedError: another run has committed a later batch.
        ConfigError: the batch was begun with options that this sink does not have.
    """
    batch, run, call, ledger = delivery.batch, delivery.run, delivery.call, delivery.ledger
    connection, retry = mode.connection, mode.options.retry
    entry = run_attempts(partial(_entry, ledger, connection, begun), retry, delivery.emit)
    if call.is_first:
        compare_history(delivery, entry, mode, offset_log)
    verdict = judge(
        entry,
        batch,
        ledger=ledger.path,
        running=run.agreed is not None,
        logged=partial(offset_log.ranges, batch),
        accepted=mode.options.accepted,
    )
    if entry is not None and not run.bytes:
        run.bytes = sum(tally.bytes for tally in entry.tallies.values())
    run.sessions = {}
    if (
        verdict is Verdict.NEW
        and not run.continues_with(batch)
        and _looks_for_pushes(delivery, mode)
    ):
        sessions = partial(_sessions, delivery, mode)
        with delivery.rows.described(batch, "compare the replay with pushed rows"):
            run.sessions = sessions_with_rows(
                batch, run.targets, sessions, partial(_kind, delivery, mode)
            )
    run.agree(batch)
    if entry is not None and verdict is not Verdict.NEW:
        require_one_sink(entry, batch, call.commits_sent, ledger=ledger.path)
    if verdict is Verdict.PARTIAL and not mode.options.split_oversized:
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


def _entry(
    ledger: CommitLedger, connection: Connection, begun: Ahead[Read] | None, number: int
) -> LedgerEntry | None:
    if begun is not None and number == 1:
        return begun.read()[0]
    return ledger.read(connection)


def require_cluster(delivery: Delivery, mode: Mode) -> None:
    """Check, once per run, that the cluster is that of the query, before anything is created there.

    Raises:
        ConfigError: it is another one.
    """
    run = delivery.run
    if not run.cluster_id:
        cluster_id = cluster_of(mode.connection).id
        if not mode.options.new_ledger:
            notes = delivery.call.place.notes.all()
            require_same_cluster(notes, delivery.batch, delivery.ledger, cluster_id)
        run.cluster_id = cluster_id


def compare_history(
    delivery: Delivery, entry: LedgerEntry | None, mode: Mode, offset_log: OffsetLog
) -> None:
    """Compare the notes in the checkpoint with the ledger, before this run's first row.

    Raises:
        IncompleteBatchError: the target lacks rows of an earlier batch.
        LedgerMissingError: the ledger may have had an entry of this batch.
    """
    batch, call, ledger, options = delivery.batch, delivery.call, delivery.ledger, mode.options
    spare = LedgerNotes(mode.connection, ledger.path, batch.query_id, options.retry, delivery.emit)
    ledger_id, refused = spare.look()
    notes = call.place.notes
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
    require_whole(known, entry, batch, ledger, options.accepted)
    if entry is None:
        require_ledger(
            known,
            batch,
            ledger,
            ledger_id,
            accepted=options.accepted,
            may_be_new=options.new_ledger,
            may_be_written=partial(offset_log.may_be_written, batch),
            has_rows=partial(_has_rows, delivery, mode),
        )
    elif not mode.traits.may_repeat and not options.new_ledger:
        # Idempotent mode finds rows that it pushed without the ledger, but not those of another mode.
        require_same_ledger(
            known,
            entry,
            batch,
            ledger,
            ledger_id,
            may_be_written=partial(offset_log.may_be_written, batch),
        )
    note_ledger(notes, known, batch, ledger, ledger_id, delivery.run.cluster_id)
    # An entry later proves that this batch is complete.
    call.records = entry is None or is_noted(known, ledger, batch.batch_id)
    call.compared()


def _has_rows(delivery: Delivery, mode: Mode, path: str) -> bool:
    """Return whether a target has, or an ordered one ever had, a row: an empty one has no row to repeat."""
    (target,) = (each for each in delivery.run.targets if each.path == path)
    tablets = 0 if target.is_sorted else target.tablet_count
    # What cannot be looked at is taken for written.
    with suppress(ExactlyOnceError):
        return had_rows(mode.connection, path, tablets)
    return True


def _sessions(delivery: Delivery, mode: Mode) -> Mapping[str, SessionState]:
    """Return all producer sessions of the query."""
    path, prefix = mode.options.producer, f"{delivery.batch.query_id}:"
    return run_attempts(
        lambda _: sessions_of(mode.connection, path, prefix), mode.options.retry, delivery.emit
    )


def _looks_for_pushes(delivery: Delivery, mode: Mode) -> bool:
    """Return whether rows in producer sessions can only be of an earlier run or call."""
    return not (mode.traits.may_repeat or (mode.traits.has_sessions and delivery.rows.are_computed))


def _kind(delivery: Delivery, mode: Mode, target: PreparedTarget) -> str:
    """Return how the sessions are named in which the sink identifies rows; empty where it uses none."""
    if not mode.traits.has_sessions:
        return ""
    columns = delivery.rows.written(target.options).names
    return session_kind(by_source=is_numbered_by_source(columns, delivery.batch))
