"""The commit of a tablet transaction: checks, conflicts, row indexes and the writes themselves.

Everything happens inside one `Store.write`, so a commit is all or nothing and commits are ordered.
First committer wins: a key that was written after the transaction started refuses the commit. Errors
are nested as the real client library nests them, so that code that searches the tree finds them.
"""

from __future__ import annotations

import math
import random
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from sqlite3 import Connection

from yt_exactly_once.local.cypress import master_transactions, permissions, quotas
from yt_exactly_once.local.cypress.view import View
from yt_exactly_once.local.errors import Code, YtError
from yt_exactly_once.local.store import TIMESTAMP_COUNTER_BITS, next_timestamp
from yt_exactly_once.local.tables.layout import TableLayout, Tablet
from yt_exactly_once.local.tablets import appends, counters, flushed, retention, sorted_writes
from yt_exactly_once.local.tablets.access import not_mounted
from yt_exactly_once.local.tablets.catalog import find_layout
from yt_exactly_once.local.tablets.modifications import Batch, Part

INVALID_MOUNT_REVISION = 1704
INVALID_ATOMICITY = 11008


@dataclass(frozen=True)
class Manner:
    """How a cluster commits.

    Attributes:
        chooser: picks tablets for rows that name none.
        visibility_delay: seconds until appended rows appear.
        max_duration: age in seconds at which a transaction can no longer write to sorted tables.
    """

    chooser: random.Random = field(default_factory=random.Random)
    visibility_delay: float = 0.0
    max_duration: float = math.inf


@dataclass(eq=False)
class Terms:
    """Who commits, and how: a transaction, or what stands for one.

    Attributes:
        id: of the transaction.
        atomicity: `full`, or `none` for a transaction without conflicts.
        start_timestamp: the moment the transaction has read at; None when it has not read anything,
            so that nothing can have changed under it.
        started: unix time at which the transaction started; the last commit before that, which
            `start_timestamp` is, may be much older.
        manner: how the cluster commits.
        prerequisites: master transactions that must be alive.
        user: who must be allowed to write each table.
    """

    id: str
    atomicity: str = "full"
    start_timestamp: int | None = None
    started: float = field(default_factory=time.time)
    manner: Manner = field(default_factory=Manner)
    prerequisites: tuple[str, ...] = ()
    user: str = permissions.ROOT


@dataclass
class _Target:
    """A table with everything that one commit does to it."""

    layout: TableLayout
    batches: list[Batch] = field(default_factory=list)
    parts: dict[int, list[Part]] = field(default_factory=lambda: defaultdict(list))
    """The rows of an ordered table by tablet."""


def apply(connection: Connection, batches: Sequence[Batch], terms: Terms) -> int:
    """Commit batches in order and return the commit timestamp.

    Args:
        connection: from `Store.write`; an exception must roll it back.
        batches: what the transaction has buffered.

    Raises:
        YtError: nothing was committed.
    """
    targets = _prepare(connection, batches)
    for target in targets:
        node_id = target.layout.node_id
        view = View(connection, user=terms.user)
        permissions.require(view, node_id, "write", by_proxy=True)
        quotas.check_rows(view, target.layout.options)
        try:
            _choose_tablets(target, terms)
        except YtError as error:
            where = target.layout.path
            raise YtError(f"Error submitting rows for table {where}", inner=[error]) from error
    for target in targets:
        _check_limits(target)
    timestamp = next_timestamp(connection)
    start = terms.start_timestamp
    if start is None or terms.atomicity == "none":
        start = timestamp
    for target in targets:
        if target.layout.sorted:
            write = partial(_write_sorted, connection, target, terms, start, timestamp)
        else:
            write = partial(_append, connection, target, timestamp, terms.manner.visibility_delay)
        _send(connection, target, terms, write)
        if target.layout.sorted or not target.layout.options["min_data_versions"]:
            retention.prune(connection, target.layout, timestamp)
    return timestamp


def _prepare(connection: Connection, batches: Sequence[Batch]) -> list[_Target]:
    targets: dict[str, _Target] = {}
    for batch in batches:
        path, node_id = batch.layout.path, batch.layout.node_id
        error = batch.rows.error
        layout = find_layout(connection, node_id, path)
        if layout is None:
            error = YtError(f"Table {path} no longer exists", Code.RESOLVE)
        if error is not None or layout is None:
            raise YtError(f"Error preparing rows for table {path}", inner=[error] if error else [])
        target = targets.setdefault(node_id, _Target(layout))
        target.batches.append(batch)
    return list(targets.values())


def _choose_tablets(target: _Target, terms: Terms) -> None:
    layout = target.layout
    expected = layout.options["atomicity"].decode()
    if expected != terms.atomicity:
        raise YtError(
            f'Transaction atomicity mismatch: expected "{expected}", actual "{terms.atomicity}"',
            INVALID_ATOMICITY,
        )
    mounted = [tablet.index for tablet in layout.tablets if tablet.state == "mounted"]
    if not mounted:
        raise YtError(
            f"Table {layout.path} has no mounted tablets",
            Code.TABLET_NOT_MOUNTED,
            {"tablet_id": layout.tablets[0].tablet_id},
        )
    for batch in target.batches:
        if layout.sorted:
            for tablet in layout.tablets_of(batch.keys):
                _check_mounted(layout, tablet)
        else:
            _choose(target, batch, terms.manner.chooser.choice(mounted))


def _choose(target: _Target, batch: Batch, fallback: int) -> None:
    """Bring rows to the tablets that they name, those that name none to one of the others."""
    layout = target.layout
    for part in chain.from_iterable(part.placed(fallback) for part in batch.parts):
        index = part.tablet
        if index is None or not 0 <= index < layout.tablet_count:
            raise YtError(
                f"Invalid tablet index: actual {index}, "
                f"expected in range [0, {layout.tablet_count - 1}]"
            )
        _check_mounted(layout, layout.tablets[index])
        target.parts[index].append(part)


def _check_mounted(layout: TableLayout, tablet: Tablet) -> None:
    if tablet.state != "mounted":
        raise not_mounted(
            tablet, f'Tablet {tablet.tablet_id} of table {layout.path} is in "{tablet.state}" state'
        )


def _check_limits(target: _Target) -> None:
    layout = target.layout
    limit = int(layout.options["max_rows_per_transaction"])
    if sum(batch.rows.count for batch in target.batches) <= limit:
        return
    affected: Counter[int] = Counter()
    if layout.sorted:
        distinct = {key for batch in target.batches for key in batch.keys}
        affected.update(layout.tablet_of(key).index for key in distinct)
    else:
        for index, parts in target.parts.items():
            affected[index] = sum(part.rows for part in parts)
    if max(affected.values()) > limit:
        raise YtError(
            "Transaction affects too many rows in tablet",
            Code.TOO_MANY_ROWS_IN_TRANSACTION,
            {"limit": limit},
        )


def _send(connection: Connection, target: _Target, terms: Terms, write: Callable[[], None]) -> None:
    """Run what the tablets themselves do, and wrap what they refuse."""
    try:
        master_transactions.check_alive(connection, terms.prerequisites)
        for batch in target.batches:
            _check_revision(target.layout, batch)
        write()
    except YtError as error:
        sent = YtError(
            "Error sending transaction rows",
            table_id=target.layout.node_id,
            tablet_id=error.attributes.get("tablet_id"),
            batch_index=0,
            inner=[error],
        )
        raise YtError("Failed to commit tablet sessions", inner=[sent]) from error


def _check_revision(layout: TableLayout, batch: Batch) -> None:
    """Refuse rows that were meant for an earlier mount of a tablet."""
    if batch.layout.tablets == layout.tablets:
        return
    current = {tablet.tablet_id: tablet for tablet in layout.tablets}
    for tablet in batch.layout.tablets:
        if tablet.state != "mounted":
            continue
        if tablet.tablet_id not in current:
            raise YtError(
                f"Tablet {tablet.tablet_id} is not known",
                Code.NO_SUCH_TABLET,
                {"tablet_id": tablet.tablet_id},
            )
        revision = current[tablet.tablet_id].mount_revision
        if revision != tablet.mount_revision:
            raise YtError(
                f"Invalid mount revision of tablet {tablet.tablet_id}: "
                f"expected {revision:x}, received {tablet.mount_revision:x}",
                INVALID_MOUNT_REVISION,
                {"tablet_id": tablet.tablet_id},
            )


def _append(connection: Connection, target: _Target, timestamp: int, delay: float) -> None:
    flushed.flush_table(connection, target.layout)
    limit = target.layout.options.get("max_ordered_tablet_data_weight")
    if limit is not None:
        _check_not_full(connection, target, limit)
    for index, parts in target.parts.items():
        pages = appends.pack(target.layout, parts)
        appends.append(connection, target.layout, index, pages, timestamp, delay)


def _check_not_full(connection: Connection, target: _Target, limit: int) -> None:
    layout = target.layout
    full = connection.execute(
        "SELECT tablet_index, total_weight - trimmed_weight AS weight FROM tablets"
        " WHERE node_id = ? AND weight >= ?",
        (layout.node_id, limit),
    )
    for index, weight in full:
        if index in target.parts:
            tablet_id = layout.tablets[index].tablet_id
            raise YtError(
                f"Size of tablet {tablet_id} exceeds the limit, all writes disabled",
                Code.REQUEST_THROTTLED,
                {"tablet_id": tablet_id, "data_weight": weight, "data_weight_limit": limit},
            )


def _write_sorted(
    connection: Connection, target: _Target, terms: Terms, start: int, timestamp: int
) -> None:
    writer = sorted_writes.SortedWriter(connection, target.layout, start, timestamp, terms.id)
    layout = target.layout
    keys = [key for batch in target.batches for key in batch.keys]
    tablets = layout.tablets_of(keys)
    age = time.time() - terms.started if terms.atomicity == "full" else 0
    began = max(start, (int(terms.started) << TIMESTAMP_COUNTER_BITS) - 1)
    retention.check_start(
        connection, layout, tablets, began, too_old=age > terms.manner.max_duration
    )
    writer.write(target.batches)
    now = time.time()
    written = {"last_write_ts": timestamp, "written_at": now}
    for tablet in tablets:
        soon = flushed.due(layout, tablet, now)
        counters.put(connection, layout, tablet.index, **written, **soon)
