"""The producer sessions of idempotent mode: whether they are there, and agree with the ledger."""

from __future__ import annotations

from typing import TYPE_CHECKING

from yt_exactly_once.config import DeliveryMode
from yt_exactly_once.operations.doctor.finding import Finding, Level, ok, problem
from yt_exactly_once.operations.doctor.queries import rows_of_targets
from yt_exactly_once.ytsaurus.browsing import attributes_of
from yt_exactly_once.ytsaurus.rows import session_prefix, sessions_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from yt_exactly_once.operations.doctor.subject import Subject
    from yt_exactly_once.ytsaurus.client import Connection

_CHECK = "producer sessions"


def examine(subject: Subject, connection: Connection) -> Iterator[Finding]:
    """Compare the sessions of each query with its ledger entry, whatever mode was given."""
    path = subject.producer_path
    if path is None:
        return
    for row in rows_of_targets(subject, connection):
        entry = row.entry
        found = attributes_of(connection, entry.target, ["sorted"])
        if entry.mode != DeliveryMode.IDEMPOTENT or found is None or found["sorted"]:
            continue
        name = f"query {entry.query_id}"
        if attributes_of(connection, path, []) is None:
            yield problem(
                _CHECK,
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
            yield Finding(
                _CHECK,
                Level.WARNING,
                f"Tasks of {name} have pushed rows of batch {max(ahead)}, which the ledger lacks",
                "The same checkpoint finishes the batch and repeats no row. Another one would repeat them",
                "Start the query on the same checkpointLocation",
            )
        else:
            yield ok(
                _CHECK, f"The sessions of {name} agree with the ledger: batch {entry.batch_id}"
            )
