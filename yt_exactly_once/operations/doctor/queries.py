"""The queries that have written the targets: where they are, and whether everything is where they left it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from yt_exactly_once.config import DeliveryMode
from yt_exactly_once.errors import ExactlyOnceError
from yt_exactly_once.operations.doctor.subject import Finding, Subject, ok, problem, warning
from yt_exactly_once.operations.ledgers import Entries, LedgerRow, entries_of, overlaps_and_gaps
from yt_exactly_once.operations.query_status import QueryStatus
from yt_exactly_once.operations.status import statuses
from yt_exactly_once.ytsaurus.browsing import attributes_of
from yt_exactly_once.ytsaurus.client import Connection
from yt_exactly_once.ytsaurus.rows import session_prefix, sessions_of


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
    yield from _side_by_side(rows)
    own = {(queue.path, queue.consumer) for queue in subject.queues}
    for one in statuses(connection, rows):
        mine = [queue for queue in one.queues if not own or (queue.path, queue.consumer) in own]
        if one.entry.application:
            yield _job(one)
        if not mine:
            continue
        bad = [queue for queue in mine if queue.problem]
        for queue in bad:
            what, _, _ = queue.problem.removesuffix(queue.remedy).partition(" Run: ")
            yield problem(
                "query",
                f"{queue.path}: {what.rstrip('. ')}",
                f"Query {one.entry.query_id} cannot continue, or would not continue where it ended",
                queue.remedy or one.row.repair,
            )
        if not bad:
            lag = sum(queue.lag_rows for queue in mine)
            yield ok(
                "query",
                f"Query {one.entry.query_id} has committed batch {one.entry.batch_id}, and can "
                f"continue: {lag} rows to read",
            )


def _side_by_side(rows: Entries) -> Iterator[Finding]:
    """Warn of rows of a queue that several queries of a target have read, or that none has."""
    for target in sorted({row.entry.target for row in rows}):
        for what in overlaps_and_gaps([row for row in rows if row.entry.target == target]):
            yield warning(
                "query",
                f"{target}: {what}",
                "Each query is exact by itself, and knows nothing of the others",
                "Let one query write the rows of a queue into a target. Compare the table with the queue: "
                f"yt-exactly-once audit {target} --by source",
            )


def _job(one: QueryStatus) -> Finding:
    what = f"Application {one.entry.application} has written version {one.entry.batch_id}"
    if not one.problems:
        return ok("query", what)
    return problem(
        "query",
        f"{what} in part: {'; '.join(one.problems)}",
        "A later version is refused with FencedError",
        "Run the job of this version again",
    )


_SESSIONS = "producer sessions"


def examine_sessions(subject: Subject, connection: Connection, rows: Entries) -> Iterator[Finding]:
    """Compare the sessions of each query with its ledger entry, whatever mode was given."""
    path = subject.path_of("producer")
    if path is None:
        return
    for entry in (row.entry for row in rows):
        found = attributes_of(connection, entry.target, ["sorted"])
        if entry.mode != DeliveryMode.IDEMPOTENT or found is None or found["sorted"]:
            continue
        name = f"query {entry.query_id}"
        if attributes_of(connection, path, []) is None:
            yield problem(
                _SESSIONS,
                f"There is no producer table at {path}, through which {name} has pushed its rows",
                "A batch that was pushed in part would be pushed again from its first row",
                "Pass its path with --producer, or restore the table from its newest copy. If it is lost, "
                f"run: yt-exactly-once audit {entry.target} --by count. If that finds no row too many, start "
                "the query: the sink creates the table",
            )
            continue
        sessions = sessions_of(connection, path, session_prefix(entry.query_id, entry.target))
        ahead = [
            one.batch
            for one in sessions.values()
            if one.batch is not None and one.batch > entry.batch_id
        ]
        if ahead:
            yield warning(
                _SESSIONS,
                f"Tasks of {name} have pushed rows of batch {max(ahead)}, which the ledger lacks",
                "The same checkpoint finishes the batch and repeats no row. Another one would repeat them",
                "Start the query on the same checkpointLocation",
            )
        else:
            yield ok(
                _SESSIONS, f"The sessions of {name} agree with the ledger: batch {entry.batch_id}"
            )
