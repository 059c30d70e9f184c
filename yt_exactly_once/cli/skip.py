"""`skip`: move a consumer forward, so that a new checkpoint leaves rows out."""

from __future__ import annotations

from yt_exactly_once.cli.moving import moving

command = moving(
    "skip",
    """Move CONSUMER of QUEUE forward, so that a query with a new checkpoint never reads the rows between.

    Says first what this means for every query that uses the consumer. Refuses while one of them runs: it
    looks twice, and wants the last batch to be --quiet seconds old. A running query without new rows looks
    like a stopped one, so make sure.

    A checkpoint that exists does not follow the consumer. It stops with OffsetConflictError.
    """,
)
