"""`rewind`: move a consumer back, so that a new checkpoint reads rows again."""

from __future__ import annotations

from yt_exactly_once.cli.moving import moving

command = moving(
    "rewind",
    """Move CONSUMER of QUEUE back, so that a query with a new checkpoint reads rows again.

    Says first what this means for every query that uses the consumer. Refuses while one of them runs: it
    looks twice, and wants the last batch to be --quiet seconds old. A running query without new rows looks
    like a stopped one, so make sure.

    A checkpoint that exists does not follow the consumer. It stops with OffsetConflictError.
    """,
)
