"""What the queue agent of a real cluster would publish: the attributes `queue_*` of every role.

It is worked out from the newest state of queues, consumers and registrations. Numbers that need a history
of measurements (rates) are zero here.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from yt_exactly_once.local.cypress import clock, tree, ypath
from yt_exactly_once.local.cypress.view import Node, View
from yt_exactly_once.local.errors import Code, YtError
from yt_exactly_once.local.queues import consumers
from yt_exactly_once.local.queues.places import Place
from yt_exactly_once.local.store import TIMESTAMP_COUNTER_BITS
from yt_exactly_once.local.tables.layout import TableLayout, Tablet
from yt_exactly_once.local.tables.schema import CUMULATIVE_WEIGHT_COLUMN, TIMESTAMP_COLUMN
from yt_exactly_once.local.tablets import counters, reads
from yt_exactly_once.local.tablets.access import check_readable
from yt_exactly_once.local.tablets.catalog import find_layout

_BANNED = "queue_agent_banned"
_STAGE, _DEFAULT_STAGE = "queue_agent_stage", "production"


class _Position(NamedTuple):
    """A row of a consumer: the offset, when it was written, and what was known of the rows before it."""

    offset: int = 0
    consumed_at: int = 0
    weight: int | None = None


class _Partition(NamedTuple):
    """A partition of a queue, with the counters of its tablet by their names."""

    tablet: Tablet
    trimmed_rows: int
    total_rows: int
    trimmed_weight: int
    total_weight: int
    last_write_ts: int

    @classmethod
    def all(cls, connection: sqlite3.Connection, layout: TableLayout) -> list[_Partition]:
        """Return the partitions of a queue."""
        found = counters.of_all(connection, layout, *cls._fields[1:])
        return [cls(tablet, *each) for tablet, each in zip(layout.tablets, found, strict=True)]


def queue_attributes(
    connection: sqlite3.Connection, node: Node, layout: TableLayout
) -> dict[str, Callable[[], Any]]:
    """Return the attributes that fit the role of a table."""
    stage = str(node.attributes.get(_STAGE, _DEFAULT_STAGE))
    shown = _by_role(connection, node, layout)
    if shown and stage != _DEFAULT_STAGE:
        shown = dict.fromkeys(shown, partial(_unknown_stage, stage))
    elif node.attributes.get(_BANNED) and "queue_producer_status" not in shown:
        shown = _banned(shown)
    return {**shown, _STAGE: lambda: stage} if shown else shown


def _unknown_stage(stage: str) -> Any:
    raise YtError(f'Queue agent stage "{stage}" is not found', Code.RESOLVE)


def _banned(shown: dict[str, Callable[[], Any]]) -> dict[str, Callable[[], Any]]:
    """Return what is shown of a queue or a consumer that the agent leaves alone."""
    role = "Consumer" if "queue_consumer_status" in shown else "Queue"
    error = {"error": YtError(f"{role} is banned").to_dict()}
    nothing = dict if role == "Consumer" else list
    return {name: nothing if name.endswith("partitions") else lambda: error for name in shown}


def _by_role(
    connection: sqlite3.Connection, node: Node, layout: TableLayout
) -> dict[str, Callable[[], Any]]:
    if not layout.sorted:
        return {
            "queue_status": lambda: _queue_status(connection, node, layout),
            "queue_partitions": lambda: _queue_partitions(connection, layout),
        }
    if node.attributes.get("treat_as_queue_consumer"):
        return {
            "queue_consumer_status": lambda: _consumer_status(connection, node, layout),
            "queue_consumer_partitions": lambda: _consumer_partitions(connection, node, layout),
        }
    if node.attributes.get("treat_as_queue_producer"):
        return dict.fromkeys(("queue_producer_status", "queue_producer_partitions"), _no_producers)
    return {}


def _no_producers() -> Any:
    """Fail as the queue agent does, which knows no producers (`TQueueAgent` in `queue_agent.cpp`)."""
    raise YtError('Node /queue_agent has no child with key "producers"', Code.RESOLVE)


def _queue_status(
    connection: sqlite3.Connection, node: Node, layout: TableLayout
) -> dict[str, Any]:
    found = [item for item in consumers.registrations(connection) if item.queue.path == node.path]
    return {
        "family": "ordered_dynamic_table",
        "partition_count": layout.tablet_count,
        "has_timestamp_column": TIMESTAMP_COLUMN in layout.places,
        "has_cumulative_data_weight_column": CUMULATIVE_WEIGHT_COLUMN in layout.places,
        "registrations": [item.describe() for item in found],
        "alerts": {},
        **_no_rates("write"),
    }


def _queue_partitions(connection: sqlite3.Connection, layout: TableLayout) -> list[dict[str, Any]]:
    partitions: list[dict[str, Any]] = []
    for partition in _Partition.all(connection, layout):
        tablet, trimmed, total, trimmed_weight, weight, last_write = partition
        if not tablet.is_readable:
            partitions.append({"error": _not_mounted(tablet).to_dict()})
            continue
        idle = time.time() - (last_write >> TIMESTAMP_COUNTER_BITS)
        # The queue agent knows weights from the last row alone.
        known = reads.cell(connection, layout, tablet.index, total - 1, CUMULATIVE_WEIGHT_COLUMN)
        partitions.append(
            {
                "lower_row_index": trimmed,
                "upper_row_index": total,
                "available_row_count": total - trimmed,
                "cumulative_data_weight": None if known is None else weight,
                "trimmed_data_weight": None if known is None else trimmed_weight,
                "available_data_weight": None if known is None else weight - trimmed_weight,
                "last_row_commit_time": _spelled(last_write),
                "commit_idle_time": max(int(idle * 1000), 0),
                **_no_rates("write"),
                "meta": {},
            }
        )
    return partitions


def _consumer_status(
    connection: sqlite3.Connection, node: Node, layout: TableLayout
) -> dict[str, Any]:
    """Return the registrations of a consumer, and for every queue its size or why it has none."""
    try:
        consumers.check_consumer(layout)
    except YtError as error:
        return {"error": error.to_dict()}
    found = _registered(connection, node)
    unread = next((_not_mounted(each) for each in layout.tablets if not each.is_readable), None)
    queues: dict[str, Any] = {}
    for item in found:
        try:
            count = _open(connection, item.queue).tablet_count
            if unread is not None:
                raise unread
        except YtError as error:
            queues[str(item.queue)] = {"error": error.to_dict()}
            continue
        known = {"queue": str(item.queue), "vital": item.vital, "partition_count": count}
        queues[str(item.queue)] = {**known, **_no_rates("read")}
    return {"registrations": [item.describe() for item in found], "queues": queues}


def _consumer_partitions(
    connection: sqlite3.Connection, node: Node, layout: TableLayout
) -> dict[str, list[dict[str, Any]]]:
    """Return the position of a consumer in each partition of each of its queues."""
    # The status tells why.
    try:
        consumers.check_consumer(layout)
        check_readable(layout, layout.tablets)
    except YtError:
        return {}
    positions = _positions(connection, layout)
    result: dict[str, list[dict[str, Any]]] = {}
    for item in _registered(connection, node):
        try:
            queue = _open(connection, item.queue)
        except YtError:
            result[str(item.queue)] = []
            continue
        found = result[str(item.queue)] = []
        for partition in _Partition.all(connection, queue):
            place = item.queue.cluster, item.queue.path, partition.tablet.index
            position = positions.get(place, _Position())
            found.append(
                _describe(connection, queue, partition, position)
                if partition.tablet.is_readable
                else {"error": _not_mounted(partition.tablet).to_dict()}
            )
    return result


def _not_mounted(tablet: Tablet) -> YtError:
    """Return what is said of a partition that cannot be read."""
    return YtError(f"Tablet {tablet.tablet_id} is not mounted", state=tablet.state)


def _no_rates(action: str) -> dict[str, dict[str, float]]:
    """Return rates of nothing, over every period that the queue agent publishes."""
    rate = dict.fromkeys(("current", "1m_raw", "1m", "1h", "1d"), 0.0)
    return {f"{action}_{what}_rate": rate for what in ("row_count", "data_weight")}


def _spelled(timestamp: int) -> str:
    """Return the time of a timestamp as attributes spell it."""
    return clock.spell_unix(timestamp >> TIMESTAMP_COUNTER_BITS)


def _registered(connection: sqlite3.Connection, node: Node) -> list[consumers.Registration]:
    return [item for item in consumers.registrations(connection) if item.consumer.path == node.path]


def _open(connection: sqlite3.Connection, place: Place) -> TableLayout:
    position = tree.reach(View(connection), ypath.parse(place.path))
    queue = find_layout(connection, position.id, position.path)
    if queue is None or queue.sorted:
        raise YtError("Only ordered dynamic tables are supported as queues")
    return queue


def _positions(
    connection: sqlite3.Connection, layout: TableLayout
) -> dict[tuple[str, str, int], _Position]:
    """Return the rows of a consumer by cluster, path and partition."""
    found = {}
    for moment, row in consumers.stamped_rows(connection, layout, {}):
        place = row["queue_cluster"].decode(), row["queue_path"].decode()
        meta = row.get("meta")
        weight = meta.get(b"cumulative_data_weight") if isinstance(meta, dict) else None
        weight = int(weight) if isinstance(weight, int) else None
        found[*place, int(row["partition_index"])] = _Position(int(row["offset"]), moment, weight)
    return found


def _describe(
    connection: sqlite3.Connection, queue: TableLayout, partition: _Partition, position: _Position
) -> dict[str, Any]:
    unread_weight = _unread_weight(connection, queue, partition, position)
    next_time = reads.cell(
        connection, queue, partition.tablet.index, position.offset, TIMESTAMP_COLUMN
    )
    lag = 0
    if position.offset < partition.total_rows and next_time is not None:
        lag = max(int((time.time() - (next_time >> TIMESTAMP_COUNTER_BITS)) * 1000), 1)
    return {
        "partition_index": partition.tablet.index,
        "next_row_index": position.offset,
        "unread_row_count": partition.total_rows - position.offset,
        "unread_data_weight": unread_weight,
        "next_row_commit_time": None if next_time is None else _spelled(next_time),
        "processing_lag": lag,
        "last_consume_time": _spelled(position.consumed_at),
        "disposition": _disposition(partition, position.offset),
        **_no_rates("read"),
    }


def _disposition(partition: _Partition, offset: int) -> str:
    if offset < partition.trimmed_rows:
        return "expired"
    if offset > partition.total_rows:
        return "ahead"
    return "up_to_date" if offset == partition.total_rows else "pending_consumption"


def _unread_weight(
    connection: sqlite3.Connection, queue: TableLayout, partition: _Partition, position: _Position
) -> int | None:
    """Return the weight of the rows from the offset on; None where nothing tells it."""
    if position.offset >= partition.total_rows:
        return 0
    weight = position.weight
    if weight is None and position.offset > 0:
        weight = reads.cell(
            connection, queue, partition.tablet.index, position.offset - 1, CUMULATIVE_WEIGHT_COLUMN
        )
    if weight is None and 0 < position.offset == partition.trimmed_rows:
        weight = partition.trimmed_weight
    return None if weight is None else partition.total_weight - int(weight)
