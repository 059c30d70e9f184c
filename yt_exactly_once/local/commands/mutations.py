"""Mutation ids: the answer to a change is kept for a while, so that its repetition changes nothing.

Only commands that the masters execute keep answers. Tablet commands do not, as in YTsaurus: there a
repeated commit is a second commit.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

from yt_exactly_once.local import arguments
from yt_exactly_once.local.commands.registry import Context
from yt_exactly_once.local.cypress import expiry, master_transactions
from yt_exactly_once.local.cypress.view import View
from yt_exactly_once.local.errors import YtError
from yt_exactly_once.local.formats.structured import dump_yson, load_yson
from yt_exactly_once.local.store import scalar

KEEP_SECONDS = 300.0
"""How long an answer is kept, as the masters' response keeper does by default."""
_KEPT = "SELECT answer FROM mutations WHERE id = ? AND created > ?"


def once(change: Callable[[Context, sqlite3.Connection], Any]) -> Callable[[Context], Any]:
    """Make a handler that applies a change in one write, unless its mutation id has an answer already.

    Its answer must be a map, or nothing, which is an empty one. A known id that comes without `retry` is
    refused. A change that fails keeps no answer: its repetition is tried again.
    """

    @wraps(change)
    def handler(context: Context) -> Any:
        mutation_id = arguments.identifier(context.parameters, "mutation_id")
        is_retry = arguments.flag(context.parameters, "retry")
        with context.proxy.store.write() as connection:
            kept = scalar(connection, _KEPT, mutation_id, time.time() - KEEP_SECONDS)
            if kept is not None:
                if is_retry:
                    return load_yson(kept, "kept answer")
                raise YtError('Duplicate request is not marked as "retry"', mutation_id=mutation_id)
            master_transactions.expire(connection)
            expiry.expire(connection)
            answer = change(context, connection) or {}
            if expiry.is_used(connection):
                _renew(context, connection)
            if mutation_id is not None:
                now = time.time()
                connection.execute(
                    "DELETE FROM mutations WHERE created <= ?", (now - KEEP_SECONDS,)
                )
                kept = mutation_id, now, dump_yson(answer)
                connection.execute("INSERT OR REPLACE INTO mutations VALUES (?, ?, ?)", kept)
        return answer

    return handler


@contextmanager
def settled(context: Context) -> Iterator[sqlite3.Connection]:
    """Give the state to read, without what has ended because its time is up, and note the access."""
    with context.proxy.store.read() as connection:
        changes = master_transactions.overdue(connection) or expiry.is_used(connection)
    if changes:
        with context.proxy.store.write() as connection:
            master_transactions.expire(connection)
            expiry.expire(connection)
            _renew(context, connection)
    with context.proxy.store.read() as connection:
        yield connection


def _renew(context: Context, connection: sqlite3.Connection) -> None:
    if not arguments.flag(context.parameters, "suppress_expiration_timeout_renewal"):
        expiry.touch(View(connection), context.parameters.get("path"))
