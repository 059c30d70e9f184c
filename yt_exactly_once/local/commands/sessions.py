"""What commands share: changes that come once, the tree and its tables, transactions, moments of reading."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from sqlite3 import Connection
from typing import Any

from yt_exactly_once.local import arguments
from yt_exactly_once.local.commands.registry import Context
from yt_exactly_once.local.cypress import expiry, master_transactions, permissions, ypath
from yt_exactly_once.local.cypress.view import View
from yt_exactly_once.local.errors import YtError
from yt_exactly_once.local.formats.structured import dump_yson, load_yson, parse_format
from yt_exactly_once.local.store import scalar
from yt_exactly_once.local.tables.encoding import Conversions
from yt_exactly_once.local.tables.layout import TableLayout
from yt_exactly_once.local.tablets import flushed
from yt_exactly_once.local.tablets.access import open_table
from yt_exactly_once.local.tablets.transactions import TabletTransaction

KEEP_SECONDS = 300.0
"""How long an answer is kept, as the masters' response keeper does by default."""
_KEPT = "SELECT answer FROM mutations WHERE id = ? AND created > ?"

_MIN_TIMESTAMP = 1
_MAX_TIMESTAMP = 0x3FFFFFFFFFFFFF00
_LATEST = (0x3FFFFFFFFFFFFF01, 0x3FFFFFFFFFFFFF04)
"""Names of the newest moment: synchronously or asynchronously committed."""


def once(change: Callable[[Context, Connection], Any]) -> Callable[[Context], Any]:
    """Make a handler that applies a change in one write, unless its mutation id has an answer already.

    Its answer must be a map, or nothing, which is an empty one. A known id that comes without `retry` is
    refused. A change that fails keeps no answer: its repetition is tried again. Only commands that the
    masters execute keep answers, as in YTsaurus: there a repeated commit of rows is a second commit.
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
            flushed.flush_due(connection)
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
def settled(context: Context) -> Iterator[Connection]:
    """Give the state to read, without what has ended because its time is up, and note the access."""
    with context.proxy.store.read() as connection:
        changes = (
            master_transactions.overdue(connection)
            or expiry.is_used(connection)
            or flushed.is_due(connection)
        )
    if changes:
        with context.proxy.store.write() as connection:
            master_transactions.expire(connection)
            expiry.expire(connection)
            flushed.flush_due(connection)
            _renew(context, connection)
    with context.proxy.store.read() as connection:
        yield connection


def _renew(context: Context, connection: Connection) -> None:
    if not arguments.flag(context.parameters, "suppress_expiration_timeout_renewal"):
        expiry.touch(View(connection), context.parameters.get("path"))


def view_of(context: Context, connection: Connection) -> View:
    """Return the tree as the request's transaction sees it, if its prerequisites hold."""
    master_transactions.check_prerequisites(connection, context.parameters)
    transaction_id = arguments.identifier(context.parameters, "transaction_id")
    is_quiet = arguments.flag(context.parameters, "suppress_modification_tracking")
    return master_transactions.view_of(connection, transaction_id, context.user, is_quiet=is_quiet)


def path_of(context: Context, name: str = "path") -> ypath.YPath:
    """Return a path parameter."""
    return ypath.parse(context.parameters.get(name), name)


def table_of(
    context: Context, parameter: str = "path", permission: str | None = None
) -> TableLayout:
    """Return the dynamic table that a parameter names, as it is now; see `opened`."""
    with context.proxy.store.read() as connection:
        return opened(context, connection, parameter, permission)


def opened(
    context: Context, connection: Connection, parameter: str = "path", permission: str | None = None
) -> TableLayout:
    """Return the dynamic table that a parameter names; refuse a user without the permission, if any."""
    layout = open_table(connection, context.parameters.get(parameter), parameter)
    if permission is not None:
        view = View(connection, user=context.user)
        permissions.require(view, layout.node_id, permission, by_proxy=True)
    return layout


def note_access(context: Context, node_id: str) -> None:
    """Count that somebody reads a node."""
    reader = arguments.mapping(context.parameters.get("table_reader") or {}, "table_reader")
    for options in (context.parameters, reader):
        if arguments.flag(options, "suppress_access_tracking"):
            return
    context.proxy.accesses.record(node_id)


@contextmanager
def transaction_of(context: Context) -> Iterator[TabletTransaction]:
    """Give the transaction that a command names, or one of its own that commits with it."""
    pool = context.proxy.transactions
    transaction_id = arguments.identifier(context.parameters, "transaction_id")
    if transaction_id is None:
        with pool.own(atomicity_of(context), context.user) as transaction:
            yield transaction
    else:
        yield pool.get(transaction_id.lower())


def atomicity_of(context: Context) -> str:
    """Return the atomicity that a command asks for, for the tablet transaction that it starts."""
    atomicity = str(context.parameters.get("atomicity") or "full")
    if atomicity not in ("full", "none"):
        raise YtError(f'Error parsing parameter "atomicity": "{atomicity}" is not full or none')
    durability = str(context.parameters.get("durability") or "sync")
    if durability not in ("sync", "async"):
        raise YtError(f'Error parsing parameter "durability": "{durability}" is not sync or async')
    if durability != "sync" and atomicity == "full":
        raise YtError('Durability must be "sync" for tablet transactions with "full" atomicity')
    return atomicity


@contextmanager
def reading(context: Context) -> Iterator[Connection]:
    """Give the state that a command reads: the start of its transaction, or the newest."""
    transaction_id = arguments.identifier(context.parameters, "transaction_id")
    if transaction_id is not None:
        transaction = context.proxy.transactions.get(transaction_id.lower())
        if transaction.atomicity == "full":
            with transaction.read() as connection:
                yield connection
            return
    with context.proxy.store.read() as connection:
        yield connection


def read_moments(context: Context) -> tuple[int | None, int | None]:
    """Return the moments to read at and since when rows must have been written.

    A transaction reads at its start, whatever is asked.
    """
    at: int | None = None
    if arguments.identifier(context.parameters, "transaction_id") is None:
        at = arguments.integer(context.parameters, "timestamp", None, unsigned=True)
    if at is not None and not _MIN_TIMESTAMP <= at <= _MAX_TIMESTAMP and at not in _LATEST:
        raise YtError(f"Invalid read timestamp {at:x}")
    # Zero is no moment.
    since = arguments.integer(context.parameters, "retention_timestamp", 0, unsigned=True) or None
    check_moments(at, since)
    return at, since


def check_moments(at: int | None, since: int | None) -> None:
    """Refuse a retention timestamp that is after the moment to read at."""
    if at is not None and since is not None and since > at:
        raise YtError(
            "Retention timestamp cannot be greater than read timestamp",
            timestamp=at,
            retention_timestamp=since,
        )


def refuse_timestamps(parameters: dict[str, Any]) -> None:
    """Refuse `versioned_read_options` that ask for a timestamp beside every value."""
    options = arguments.mapping(
        parameters.get("versioned_read_options") or {}, "versioned_read_options"
    )
    mode = str(options.get("read_mode") or "default")
    if mode not in {"default", "latest_timestamp"}:
        raise YtError(f'Error parsing "read_mode": "{mode}" is not default or latest_timestamp')
    if mode == "latest_timestamp":
        raise YtError(
            "Timestamps beside values are not supported by the embedded cluster; look the rows up"
            " with versioned=True, where every value has its own"
        )


def conversions_of(context: Context, *, null_to_entity: bool = False) -> Conversions:
    """Return the conversion switches of the input format; one has a default of the command."""
    given = context.parameters.get("input_format")
    attributes = {} if given is None else parse_format(given).attributes
    return Conversions.of_format(
        {"enable_null_to_yson_entity_conversion": null_to_entity, **attributes}
    )
