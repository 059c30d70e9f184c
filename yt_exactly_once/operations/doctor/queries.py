"""The queries that have written the targets, and their checkpoint: where they are, and whether all agrees."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from shlex import quote
from typing import TYPE_CHECKING

from yt_exactly_once import advice
from yt_exactly_once.commit.notes import (
    FOLDER,
    Note,
    NoteKind,
    digest_of_path,
    lack_notes,
    newest_committed,
)
from yt_exactly_once.config import DeliveryMode
from yt_exactly_once.errors import CheckpointError, ConfigError, ExactlyOnceError, NewerFormatError
from yt_exactly_once.operations.doctor.subject import (
    Finding,
    Level,
    Subject,
    note,
    ok,
    problem,
    refused,
    unknown,
    warning,
)
from yt_exactly_once.operations.ledgers import (
    Entries,
    LedgerRow,
    entries_of,
    overlaps_and_gaps,
    with_near,
)
from yt_exactly_once.operations.query_status import RESTORE_TARGET, QueryStatus, QueueStatus
from yt_exactly_once.operations.status import statuses
from yt_exactly_once.spark.compat.next_batch import NextBatch, batches_in, next_batch
from yt_exactly_once.spark.compat.spark_log import COMMITS, OFFSETS, read_offsets, require_commit
from yt_exactly_once.spark.query.offset_log import QueueOffset
from yt_exactly_once.spark.storage import open_storage, shown
from yt_exactly_once.ytsaurus.browsing import attributes_of, cluster_of
from yt_exactly_once.ytsaurus.client import Connection
from yt_exactly_once.ytsaurus.rows import session_prefix, sessions_of

if TYPE_CHECKING:
    from yt_exactly_once.spark.storage import Storage

_RESTORE = "Restore the whole checkpoint from its newest copy"


def rows_of_targets(subject: Subject, connection: Connection) -> list[LedgerRow]:
    """Return the entries of all targets, as far as they can be read."""
    found: dict[tuple[str, str, str], LedgerRow] = {}
    for target in subject.targets:
        # A target without an entry has had no batch; an unreadable ledger is reported by its own check.
        with suppress(ExactlyOnceError):
            for row in entries_of(connection, target, subject.ledger):
                found[row.ledger, row.entry.query_id, row.entry.target] = row
    return list(found.values())


def examine(subject: Subject, connection: Connection, rows: Entries) -> Iterator[Finding]:
    """Compare the ledger of each query with its queues and consumers."""
    yield from _side_by_side(subject, rows)
    own = {(queue.path, queue.consumer) for queue in subject.queues}
    spark = _next_batch(subject, connection)
    for one in statuses(connection, rows, with_near(connection, rows), spark):
        if one.newest is not None:
            yield note(f"{one.row.ledger} has an old entry: {one.newest.named}")
        for copy in one.copies:
            yield note(f"{copy.ledger} has an old entry: {one.row.named}")
        for target in one.targets:
            # Whether a target is there and mounted has a check of its own.
            if target.missing and not (one.newest or one.successor):
                yield problem(
                    f"{target.path}: {target.lacks}",
                    "Rows that the query has committed are gone, and it does not write them again",
                    RESTORE_TARGET,
                )
        mine = [queue for queue in one.queues if not own or (queue.path, queue.consumer) in own]
        if one.entry.application:
            yield _job(one)
        if one.others:
            yield _other_sources(one, spark)
        if mine:
            yield from _queues(one, mine)


def _next_batch(subject: Subject, connection: Connection) -> NextBatch | None:
    """Return where the query of the checkpoint continues; what is wrong with it is another finding."""
    if subject.checkpoint is not None:
        with suppress(ExactlyOnceError):
            return next_batch(subject.checkpoint, connection)
    return None


def _side_by_side(subject: Subject, rows: Entries) -> Iterator[Finding]:
    """Warn of rows of a queue that several queries of a target have read, or that none has."""
    for target in sorted({row.entry.target for row in rows}):
        own = [row for row in rows if row.entry.target == target]
        for what in overlaps_and_gaps(own, tolerates_repeats=target in subject.changed):
            yield warning(
                f"{target}: {what}",
                "Each query is exact by itself, and knows nothing of the others",
                "Let one query write the rows of a queue into a target. Compare the table: "
                f"{advice.audit(target)}",
            )


def _queues(one: QueryStatus, mine: Sequence[QueueStatus]) -> Iterator[Finding]:
    bad = [queue for queue in mine if queue.problem]
    for queue in bad:
        what, _, _ = queue.problem.removesuffix(queue.remedy).partition(" Run: ")
        yield problem(
            f"{queue.path}: {what.rstrip('. ')}",
            f"Query {one.entry.label} cannot continue, or would not continue where it ended",
            queue.remedy or one.row.repair,
        )
    if not bad:
        lag = sum(queue.lag_rows for queue in mine)
        yield ok(
            f"Query {one.entry.label} has committed batch {one.entry.batch_id}, and can "
            f"continue: {lag} rows to read"
        )


def _other_sources(one: QueryStatus, spark: NextBatch | None) -> Finding:
    """Say where a query is in sources that are no queues: by its ledger, and by Spark's log."""
    found = [f"Query {one.entry.label} has committed batch {one.entry.batch_id} of other sources"]
    if one.topic_lag is not None:
        found.append(f"{one.topic_lag} offsets of its topics came after it when Spark planned it")
    is_own = spark is not None and spark.query_id == one.entry.query_id
    if one.others and spark and is_own and spark.planned > one.entry.batch_id:
        rows = one.others.rows_until(spark.others)
        size = "" if rows is None else f", {rows} offsets more"
        found.append(f"Spark has planned batch {spark.planned}{size}")
    return ok("; ".join(found), details=tuple(_positions(one)))


def _positions(one: QueryStatus) -> Iterator[str]:
    for topic in one.topics:
        end = "" if topic.latest is None else f" of {topic.latest}"
        yield f"{topic.topic} partition {topic.partition}: at offset {topic.end}{end}"
    if one.others and not one.topics:
        yield from map(json.dumps, one.others.end)


def _job(one: QueryStatus) -> Finding:
    what = f"Application {one.entry.application} has written version {one.entry.batch_id}"
    if not one.problems:
        return ok(what)
    return problem(
        f"{what} in part: {'; '.join(one.problems)}",
        "A later version is refused with FencedError",
        "Run the job of this version again",
    )


def examine_sessions(subject: Subject, connection: Connection, rows: Entries) -> Iterator[Finding]:
    """Compare the sessions of each query with its ledger entry, whatever mode was given."""
    path = subject.path_of("producer")
    if path is None:
        return
    # Rows of a pattern are never pushed.
    for entry in (row.entry for row in rows if not row.entry.pattern):
        found = attributes_of(connection, entry.target, ["sorted"])
        if entry.mode != DeliveryMode.IDEMPOTENT or found is None or found["sorted"]:
            continue
        name = f"query {entry.label}"
        target = quote(entry.target)
        if attributes_of(connection, path, []) is None:
            yield problem(
                f"There is no producer table at {path}, through which {name} has pushed its rows",
                "A batch that was pushed in part would be pushed again from its first row",
                "Pass its path with --producer, or restore the table from its newest copy. If it is lost, "
                f"run: yt-exactly-once audit {target} --by count. If that finds no row too many, start "
                "the query once with new_ledger=True: the sink creates the table",
            )
            continue
        sessions = sessions_of(connection, path, session_prefix(entry.query_id, entry.target))
        newest = max((one.batch for one in sessions.values() if one.batch is not None), default=-1)
        if newest > entry.batch_id:
            yield warning(
                f"Tasks of {name} have pushed rows of batch {newest}, which the ledger lacks",
                "The same checkpoint finishes the batch and repeats no row. Another one would repeat them",
                "Start the query on the same checkpointLocation",
            )
        elif newest < entry.batch_id and entry.tally.rows:
            yield problem(
                f"The sessions of {name} lack batch {entry.batch_id}, which the ledger has",
                "A batch that was pushed in part would be pushed again: LedgerMissingError",
                f"Restore {path} from its newest copy. What else can be done is in how-to/recover.md, "
                "section 'A producer is missing'",
            )
        else:
            yield ok(f"The sessions of {name} agree with the ledger: batch {entry.batch_id}")


def examine_checkpoint(
    subject: Subject, connection: Connection, rows: Entries
) -> Iterator[Finding]:
    """Compare the files of a checkpoint with each other and with the ledger."""
    if subject.checkpoint is None:
        return
    files, where = open_storage(subject.checkpoint, connection), shown(subject.checkpoint)
    offsets, commits = batches_in(files, OFFSETS), batches_in(files, COMMITS)
    # A batch job, such as the backfill in front of a stream, has no checkpoint.
    rows = [row for row in rows if not row.entry.application]
    try:
        query = str(json.loads(files.read("metadata"))["id"])
    except (FileNotFoundError, NotADirectoryError):
        yield _without_metadata(where, rows, is_used=bool(offsets or commits))
        return
    entry = next((row for row in rows if row.entry.query_id == query), None)
    bad = list(_unusable(files, where, offsets, commits, entry))
    yield from bad
    if not any(finding.level is Level.PROBLEM for finding in bad):
        notes = _notes(files)
        old = list(_put_back(where, notes, entry))
        yield from old or _compared(where, query, offsets, commits, rows)
        own = [row.entry for row in rows if row.entry.query_id == query]
        for target in [entry.target for entry in own if lack_notes(notes, entry)]:
            yield warning(
                f"{where}/{FOLDER} lacks notes about batches that were written to {target}",
                "The sink does not know any more of calls that failed, and takes a copy for the ledger",
                "Restore the folder from its newest copy while the query is stopped. Without one, compare "
                f"the table: {advice.audit(target)}",
            )
        ledger = subject.path_of("ledger")
        if entry is not None and entry.ledger != ledger:
            yield warning(
                f"The ledger of {where} is {entry.ledger}, not {ledger}",
                "Without ledger_path the sink stops with LedgerMissingError",
                f"Use ledger_path='{entry.ledger}' in the sink, and --ledger {entry.ledger} here",
            )
        if not rows and ledger is not None:
            last = commits[-1] if commits else -1
            yield from _without_entry(connection, ledger, where, notes, last)


def examine_source(subject: Subject, connection: Connection) -> Iterator[Finding]:
    """Compare cluster, queues and consumers with those of the notes and offsets in the checkpoint."""
    if subject.checkpoint is None:
        return
    files, where = open_storage(subject.checkpoint, connection), shown(subject.checkpoint)
    cluster = cluster_of(connection)
    targets = {digest_of_path(target) for target in subject.targets}
    notes = [note for note in _notes(files) if note.kind is NoteKind.CLUSTER]
    written = {note.object_id for note in notes if note.target in targets}
    why = "The query stops with ConfigError, and what is found below is not about it"
    if written and cluster.id not in written:
        other = f"The proxy belongs to another cluster than {where}, whatever its name"
        yield problem(other, why, advice.OTHER_CLUSTER, check="cluster")
        return
    texts = []
    for number in batches_in(files, OFFSETS)[-1:]:
        # A file that cannot be read is what `examine_checkpoint` yields.
        with suppress(CheckpointError, NewerFormatError):
            texts = read_offsets(number, files.read(f"{OFFSETS}/{number}")).texts
    logged = [found for text in texts if (found := QueueOffset.from_text(text)) is not None]
    paths = {
        queue: {queue.path, (attributes_of(connection, queue.path, ["path"]) or {}).get("path")}
        for queue in subject.queues
    }
    named = [queue for queue in paths if paths[queue] & {each.queue for each in logged}]
    for queue in named or subject.queues[:1]:
        for offset in [each for each in logged if each.queue in paths[queue]] or logged[:1]:
            path = offset.queue if offset.queue in paths[queue] else queue.path
            try:
                offset.require_same_source(cluster, path, queue.consumer)
            except ConfigError as error:
                yield problem(f"{where}: {error.what}", why, error.remedy)


def _notes(files: Storage) -> list[Note]:
    return [note for name in files.names(FOLDER) if (note := Note.from_name(name)) is not None]


def _put_back(where: str, notes: list[Note], row: LedgerRow | None) -> Iterator[Finding]:
    """Yield that the ledger lacks a batch that was committed: the function has not left it out."""
    newest = newest_committed(notes, row.entry.target) if row else None
    if row is not None and newest is not None and newest.batch > row.entry.batch_id:
        yield problem(
            f"{where} has a note that batch {newest.batch} was committed, and the ledger ends at batch "
            f"{row.entry.batch_id}",
            "Somebody put an older copy of the ledger back, or older rows: LedgerMissingError",
            "Restore the ledger from its newest copy. What else can be done is in how-to/recover.md, section "
            "'An older copy was put back'",
        )


def _without_entry(
    connection: Connection, path: str, where: str, notes: list[Note], last: int
) -> Iterator[Finding]:
    """Say why a ledger has no entry of a query that has noted its use, unless it cannot be read.

    Args:
        last: batch that Spark has logged as done; -1 without any.
    """
    used = [note for note in notes if note.kind is NoteKind.LEDGER]
    known = attributes_of(connection, path, ["id", "tablet_state", "atomicity"]) or {}
    is_readable = (known.get("tablet_state", "mounted"), known.get("atomicity", "full"))
    if not used or is_readable != ("mounted", "full"):
        return
    # The sink notes a ledger before its first commit there, which may fail. Spark then has the batch to do.
    own = digest_of_path(path)
    first = [one.batch for one in used if (one.ledger, one.object_id) == (own, known.get("id"))]
    if first and min(first) > last:
        yield note(
            f"Batch {min(first)} is the first one of the query in {path}, and is not committed yet. Start "
            "the query: Spark replays the batch, and the error says what keeps it from the cluster"
        )
        return
    yield problem(
        f"{where} has a note of a ledger, and {path} has no entry of the query",
        "The query stops with LedgerMissingError",
        "Pass the path of the ledger with --ledger, or restore it. What else can be done is in "
        "how-to/recover.md, section 'A ledger is missing'",
    )


def _way(row: LedgerRow | None) -> str:
    if row is None:
        return _RESTORE
    return f"{_RESTORE}. Or {advice.begin_after(row.ledger, row.entry.query_id)}"


def _without_metadata(where: str, rows: list[LedgerRow], *, is_used: bool) -> Finding:
    if is_used:
        return problem(
            f"{where} has offsets or commits, and no file metadata",
            "Spark gives the query another id, so the ledger does not know it: rows would be repeated",
            _way(rows[0] if rows else None),
        )
    if not rows:
        return note(f"There is no checkpoint at {where}: the query begins")
    return problem(
        f"There is no checkpoint at {where}, and {rows[0].entry.label} has written the target",
        "A new query begins where the consumer is, without the state of the old one",
        "Check the path. If the checkpoint is lost, "
        f"{advice.begin_after(rows[0].ledger, rows[0].entry.query_id)}",
    )


def _unusable(
    files: Storage, where: str, offsets: list[int], commits: list[int], row: LedgerRow | None
) -> Iterator[Finding]:
    """Yield what keeps Spark from starting."""
    if commits and (not offsets or commits[-1] > offsets[-1]):
        newest = offsets[-1] if offsets else "nothing"
        yield problem(
            f"{where}/offsets ends at {newest}, and {where}/commits at {commits[-1]}",
            "Spark stops with an AssertionError, or reads rows again",
            _way(row),
        )
    # Spark needs the batch before the newest one, too.
    first = min(offsets[0], max(offsets[-1] - 1, 0)) if offsets else 0
    holes = sorted(set(range(first, offsets[-1] + 1)) - set(offsets)) if offsets else []
    if holes:
        yield problem(
            f"{where}/offsets lacks batch {holes[0]}", "Spark refuses to start", _way(row)
        )
    for folder, numbers in ((OFFSETS, offsets[-2:]), (COMMITS, commits[-1:])):
        for number in numbers:
            yield from _unread(files, where, folder, number, row)


def _unread(
    files: Storage, where: str, folder: str, number: int, row: LedgerRow | None
) -> Iterator[Finding]:
    """Yield why a file of Spark's log cannot be read."""
    read = read_offsets if folder == OFFSETS else require_commit
    try:
        read(number, files.read(f"{folder}/{number}"), path=where)
    except CheckpointError as error:
        yield problem(error.placed, "Spark cannot read it, and stops", _way(row))
    except NewerFormatError as error:
        if folder == OFFSETS:
            yield refused(error, "The query stops with NewerFormatError")
        else:
            yield unknown(error.placed, "The sink does not read this file", error.remedy)


def _compared(
    where: str, query: str, offsets: list[int], commits: list[int], rows: list[LedgerRow]
) -> Iterator[Finding]:
    row = next((row for row in rows if row.entry.query_id == query), None)
    if row is None:
        if commits and rows:
            yield problem(
                f"{where} is the checkpoint of query {query}, and the ledger knows {rows[0].entry.label}",
                "The query stops with LedgerMissingError, or it is the checkpoint of another query",
                "Check the path. If the ledger was lost, restore it",
            )
        return
    batch = row.entry.batch_id
    if not offsets or batch > offsets[-1]:
        yield problem(
            f"{where} ends at batch {offsets[-1] if offsets else 'none'}, and the ledger at {batch}",
            "The checkpoint is an old copy, or another one writes the ledger: LedgerDivergedError",
            _way(row),
        )
    else:
        yield ok(f"{where} agrees with the ledger: batch {batch}")
