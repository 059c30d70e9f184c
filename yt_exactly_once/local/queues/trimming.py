"""Trims of queues: on command, and by the queue agent behind the slowest vital consumer."""

from __future__ import annotations

import logging
import sqlite3
import threading
import time
from collections.abc import Callable
from typing import Any

from yt_exactly_once.local.errors import YtError
from yt_exactly_once.local.queues import consumers
from yt_exactly_once.local.store import TIMESTAMP_COUNTER_BITS, Store
from yt_exactly_once.local.tables.layout import TableLayout
from yt_exactly_once.local.tablets import blocks, modifications, reads, retention
from yt_exactly_once.local.tablets.access import check_readable, not_mounted, open_node, tablet_at
from yt_exactly_once.local.tablets.appends import apply_due

_LOGGER = logging.getLogger(__name__)


def trim(
    connection: sqlite3.Connection, layout: TableLayout, index: int, trimmed_row_count: int
) -> None:
    """Drop the rows of a mounted tablet before an index; a smaller index than before changes nothing."""
    tablet = tablet_at(layout, index)
    if tablet.state != "mounted":
        raise not_mounted(
            tablet, f'Cannot trim tablet {tablet.tablet_id} while it is in "{tablet.state}" state'
        )
    _, total = reads.bounds(connection, layout, index)
    if trimmed_row_count > total:
        raise YtError(
            f"Cannot trim tablet {tablet.tablet_id} at row {trimmed_row_count} "
            f"since it only has {total} row(s)"
        )
    retention.trim(connection, layout, tablet, trimmed_row_count)


def trim_consumed(store: Store, queue_path: str) -> dict[str, int]:
    """Do what the queue agent does now and then: drop what every vital consumer has read.

    Acts on `auto_trim_config` of the queue: nothing unless `enable`; `retained_rows` and
    `retained_lifetime_duration` keep rows that would go otherwise. A vital consumer that cannot be read
    stops the trimming of the whole queue. As on a real cluster, a vital consumer counts for every
    partition, whichever ones it is registered for.

    Returns:
        The trimmed row count that was asked for, per partition that has something to trim.
    """
    apply_due(store)
    done: dict[str, int] = {}
    with store.write() as connection:
        node, queue = open_node(connection, queue_path)
        config = node.attributes.get("auto_trim_config") or {}
        if not config.get("enable"):
            return done
        vital = [
            found
            for found in consumers.registrations(connection)
            if found.vital and found.queue.path == node.path
        ]
        try:
            offsets = [_offsets(connection, found, queue) for found in vital]
        except YtError as error:
            _LOGGER.warning("Queue %s is not trimmed: %s", queue_path, error)
            return done
        for tablet, read in zip(queue.tablets, zip(*offsets, strict=True), strict=False):
            target = _keep_retained(connection, queue, tablet.index, min(read), config)
            if target > 0 and tablet.state == "mounted":
                trim(connection, queue, tablet.index, target)
                done[str(tablet.index)] = target
    return done


def trim_all(store: Store) -> list[dict[str, Any]]:
    """Trim every queue that has registrations; returns what was done per queue."""
    with store.read() as connection:
        paths = sorted({found.queue.path for found in consumers.registrations(connection)})
    result = []
    for path in paths:
        try:
            trimmed = trim_consumed(store, path)
        except YtError as error:
            # A registration may outlive its queue; the others are still to be trimmed.
            result.append({"queue": path, "error": error.to_dict()})
            continue
        result.append({"queue": path, "trimmed": trimmed})
    return result


def start_agent(store: Store, period: float) -> Callable[[], None]:
    """Trim every queue each so many seconds, in a thread; return what ends it after a step."""
    done = threading.Event()

    def work() -> None:
        while not done.wait(period):
            try:
                trim_all(store)
            except sqlite3.OperationalError:
                # The store was busy for very long; the next step does what this one did not.
                _LOGGER.warning("Queues were not trimmed", exc_info=True)

    def stop() -> None:
        done.set()
        thread.join()

    thread = threading.Thread(target=work, name="queue agent", daemon=True)
    thread.start()
    return stop


def _offsets(
    connection: sqlite3.Connection, found: consumers.Registration, queue: TableLayout
) -> list[int]:
    """Return the offset of a consumer in each partition of a queue; `YtError` where it cannot be read."""
    _, consumer = open_node(connection, found.consumer.path)
    offsets = []
    for tablet in queue.tablets:
        partition = consumers.Partition(consumer, found.queue, tablet.index)
        keys = modifications.keys_of(consumer, [partition.key()])
        check_readable(consumer, consumer.tablets_of(keys))
        offsets.append(consumers.read_offset(connection, partition)[0])
    return offsets


def _keep_retained(
    connection: sqlite3.Connection,
    queue: TableLayout,
    index: int,
    target: int,
    config: dict[str, Any],
) -> int:
    trimmed, total = reads.bounds(connection, queue, index)
    target = min(target, total)
    if config.get("retained_rows") is not None:
        target = min(target, max(total - int(config["retained_rows"]), 0))
    lifetime = config.get("retained_lifetime_duration")
    if lifetime is not None:
        horizon = int(time.time() - int(lifetime) / 1000) << TIMESTAMP_COUNTER_BITS
        tablet_id = queue.tablets[index].tablet_id
        oldest = blocks.first_since(connection, queue, tablet_id, trimmed, horizon, total)
        target = min(target, oldest)
    return target
