"""Other columns for a dynamic table that is in use: it is unmounted, altered and mounted again.

The cluster alters no table that is mounted (`TTableNodeProxy::Alter` in
`yt/yt/server/master/table_server/table_node_proxy_detail.cpp`), and no transaction spans the three steps.
So a mark in the table names a master transaction that lives as long as the process which alters. Whoever
finds the mark of a transaction that is gone mounts the table again. A table without a mark was unmounted by
a person, and stays so.

Rows cannot get in between. A commit that began before the table was mounted again is refused, since it
names the mount of before.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from shlex import quote
from typing import TYPE_CHECKING, Any

from yt.common import YtError

from yt_exactly_once import errors
from yt_exactly_once.ytsaurus.browsing import attributes_of
from yt_exactly_once.ytsaurus.failures import TRANSPORT_ERRORS, translated
from yt_exactly_once.ytsaurus.tables import ALTERING, TableInfo, describe_table, set_attribute

if TYPE_CHECKING:
    from yt_exactly_once.ytsaurus.client import Connection

Columns = list[dict[str, Any]]
"""As in `@schema`."""

LEASE = timedelta(seconds=15)
"""How long a process that was killed keeps others from mounting the table again."""

_CHANGE = timedelta(minutes=5)
"""Longest wait for one step: an unmount flushes what the tablets have in memory."""

_REFUSED = timedelta(seconds=20)
"""Longest time in which a cluster refuses a step because of one that is not over yet."""

_PROXIES = timedelta(seconds=60)
"""Longest wait for a proxy to know the columns: it refreshes what it knows of a table every 30 s
(`TTableMountCacheConfig` in `yt/yt/client/tablet_client/config.cpp`)."""

_UNKNOWN = "No column "
"""How a proxy begins to say that a row has a column which the table lacks."""

_LOOK_EVERY = timedelta(milliseconds=100)


def alter_columns(
    connection: Connection,
    path: str,
    change: Callable[[Columns], Columns],
    *,
    dry_run: bool = False,
) -> tuple[Columns, Columns]:
    """Change the columns of a dynamic table; a mounted one is mounted again afterwards.

    Whatever fails, the table is mounted again. If the process is killed, `settle` does that.

    Args:
        change: returns the columns the table must have, given those that it has.
        dry_run: whether nothing is done.

    Returns:
        The columns before and after; the same ones if there was nothing to do.

    Raises:
        TableError: there is no such table, it is static, or neither mounted nor unmounted.
        RequestRefusedError: the cluster does not allow this change.
        TransientError: another process alters the table, or a step takes too long.
    """
    info = settled_table(connection, path)
    before = info.schema
    after = change(before)
    if dry_run or after == before:
        return before, after
    if info.tablet_state == "unmounted":
        # Another process may have unmounted it, and alter it too.
        _Alteration(connection, path).alter(before, after)
        return before, after
    info.require_mounted()
    with _marked(connection, path) as work:
        try:
            work.get("unmounted")
            # Another process may have been faster.
            before = describe_table(connection, path).schema
            after = change(before)
            if after != before:
                work.alter(before, after)
        finally:
            # Also if the lease has ended. If this fails too, the mark stays.
            _Alteration(connection, path).get("mounted")
            _unmark(connection, path, work.transaction)
    _await_proxy(connection, path, [one["name"] for one in after if one not in before])
    return before, after


def settled_table(
    connection: Connection, path: str, *, absent: str = "Check the path"
) -> TableInfo:
    """Describe a table that nobody is altering: wait for who is, and mount what a killed process left.

    Args:
        absent: see `describe_table`.

    Raises:
        TransientError: another process alters the table for too long.
        TableError: as `describe_table`.
    """
    info = describe_table(connection, path, absent=absent)
    until = time.monotonic() + LEASE.total_seconds()
    while info.altering:
        if not _is_alive(connection, path, info.altering):
            _finish(connection, path, info)
        elif time.monotonic() > until:
            raise _also_altered(path)
        else:
            time.sleep(_LOOK_EVERY.total_seconds())
        info = describe_table(connection, path, absent=absent)
    return info


def _finish(connection: Connection, path: str, info: TableInfo) -> None:
    """Mount a table whose alteration was broken off."""
    _Alteration(connection, path).get("mounted")
    _unmark(connection, path, info.altering)


@contextmanager
def _marked(connection: Connection, path: str) -> Iterator[_Alteration]:
    """Mark a table with a transaction that lives as long as this process works on it."""
    client = connection.reader
    with translated("begin to alter the table", path=path):
        title = {"title": f"yt_exactly_once alters {path}"}
        lease = int(LEASE.total_seconds() * 1000)
        transaction = str(client.start_transaction(timeout=lease, attributes=title))
    try:
        set_attribute(connection, path, ALTERING, transaction)
        if describe_table(connection, path).altering != transaction:
            raise _also_altered(path)
        yield _Alteration(connection, path, transaction)
    finally:
        with suppress(YtError, *TRANSPORT_ERRORS):
            client.abort_transaction(transaction)


@dataclass(frozen=True)
class _Alteration:
    """A table on its way through the steps, and the transaction that is kept alive, if there is one."""

    connection: Connection
    path: str
    transaction: str = ""

    def get(self, state: str) -> None:
        """Get the table into a state, and wait until it is; raise `TransientError` after a while.

        A process that takes this one for dead may mount the table. Then it is unmounted again.
        """
        client, path = self.connection.reader, self.path
        act = client.mount_table if state == "mounted" else client.unmount_table
        began, refusal = time.monotonic(), None
        while (found := self._state()) != state:
            seconds = time.monotonic() - began
            if seconds > (_CHANGE if refusal is None else _REFUSED).total_seconds():
                raise errors.ClusterUnavailableError(
                    f"The table is {found}, and was to be {state}, for {seconds:.0f} s",
                    remedy=f"Check the tablet cell bundle: yt get {quote(path)}/@tablet_cell_bundle",
                    path=path,
                ) from refusal
            if not found.endswith("ing"):
                try:
                    with translated(f"get the table {state}", path=path):
                        act(path)
                    refusal = None
                except (errors.TransientError, errors.RequestRefusedError) as error:
                    refusal = error
            time.sleep(_LOOK_EVERY.total_seconds())

    def alter(self, before: Columns, after: Columns) -> None:
        """Alter the table; raise `ConflictError` if another process has altered it since."""
        try:
            with translated("alter the table", path=self.path):
                self.connection.reader.alter_table(self.path, schema=after)
        except errors.RequestRefusedError as error:
            if describe_table(self.connection, self.path).schema == before:
                raise
            raise _also_altered(self.path) from error

    def _state(self) -> str:
        if self.transaction:
            with translated("renew the lease of an alteration", path=self.path):
                self.connection.reader.ping_transaction(self.transaction)
        found = attributes_of(self.connection, self.path, ["tablet_state"])
        return str((found or {}).get("tablet_state"))


def _also_altered(path: str) -> errors.ConflictError:
    return errors.ConflictError(
        "Another process is altering the table",
        remedy="Wait until it is done. If it hangs, stop it, and start the query again",
        path=path,
    )


def _is_alive(connection: Connection, path: str, transaction: str) -> bool:
    with translated("look at an alteration", path=path):
        return bool(connection.reader.exists(f"#{transaction}"))


def _unmark(connection: Connection, path: str, transaction: str) -> None:
    """Remove a mark, unless another process has replaced it."""
    found = attributes_of(connection, path, [ALTERING]) or {}
    if str(found.get(ALTERING)) == transaction:
        with translated("end an alteration", path=path):
            connection.reader.remove(f"{path}/@{ALTERING}", force=True)


def _await_proxy(connection: Connection, path: str, names: Sequence[str]) -> None:
    """Wait until the proxy that takes the rows knows the new columns; it would refuse rows that have them.

    A row is sent that has nothing else, and never committed. Another refusal, of a key that is missing, shows
    that the columns are known.
    """
    # Over RPC the client itself keeps what it knows of tables.
    connection.renew()
    row, until = dict.fromkeys(names), time.monotonic() + _PROXIES.total_seconds()
    while True:
        transaction = connection.begin(LEASE)
        try:
            transaction.insert(path, [row])
        except (errors.SchemaMismatchError, errors.RequestRefusedError) as error:
            if _UNKNOWN not in error.what:
                return
            if time.monotonic() > until:
                raise errors.ClusterUnavailableError(
                    f"The proxy does not know the columns {', '.join(names)} yet",
                    remedy="Start the query again: proxies learn of them within half a minute",
                    path=path,
                ) from error
        else:
            return
        finally:
            transaction.abort()
        time.sleep(_LOOK_EVERY.total_seconds())
