"""What the queue agent of a real cluster would publish: status of queues, consumers and producers.

Owns the attributes `queue_*`; numbers that need a history of measurements (rates) are zero here.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from yt_exactly_once.local.store import TIMESTAMP_COUNTER_BITS
from yt_exactly_once.local.tablets import registrations, values
from yt_exactly_once.local.tablets.schema import CUMULATIVE_WEIGHT_COLUMN, TIMESTAMP_COLUMN

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable

    from yt_exactly_once.local.cypress.tree import Node
    from yt_exactly_once.local.tablets.layout import TableLayout

_RATES = {"current": 0.0, "1m_raw": 0.0, "1m": 0.0, "1h": 0.0, "1d": 0.0}


def queue_attributes(
    connection: sqlite3.Connection, node: Node, layout: TableLayout
) -> dict[str, Callable[[], Any]]:
    """Return the attributes that fit the role of a table."""
    if not layout.sorted:
        return {
            "queue_status": lambda: _queue_status(connection, node, layout),
            "queue_partitions": lambda: _queue_partitions(connection, layout),
        }
    if node.attributes.get("treat_as_queue_consumer"):
        return {
            "queue_consumer_status": lambda: _consumer_status(connection, node),
            "queue_consumer_partitions": lambda: _consumer_partitions(connection, layout),
        }
    if node.attributes.get("treat_as_queue_producer"):
        return {"queue_producer_status": dict, "queue_producer_partitions": list}
    return {}


def _registered(found: list[registrations.Registration]) -> list[dict[str, Any]]:
    return [
        {"queue": str(item.queue), "consumer": str(item.consumer), "vital": item.vital}
        for item in found
    ]


def _queue_status(
    connection: sqlite3.Connection, node: Node, layout: TableLayout
) -> dict[str, Any]:
    found = [item for item in registrations.listing(connection) if item.queue.path == node.path]
    return {
        "family": "ordered_dynamic_table",
        "partition_count": layout.tablet_count,
        "has_timestamp_column": layout.column(TIMESTAMP_COLUMN) is not None,
        "has_cumulative_data_weight_column": layout.column(CUMULATIVE_WEIGHT_COLUMN) is not None,
        "registrations": _registered(found),
        "alerts": {},
        "write_row_count_rate": dict(_RATES),
        "write_data_weight_rate": dict(_RATES),
    }


def _queue_partitions(connection: sqlite3.Connection, layout: TableLayout) -> list[dict[str, Any]]:
    rows = connection.execute(
        "SELECT total_rows, trimmed_rows, total_weight, trimmed_weight, last_write_ts FROM tablets"
        " WHERE node_id = ? ORDER BY tablet_index",
        (layout.node_id,),
    )
    return [
        {
            "lower_row_index": trimmed,
            "upper_row_index": total,
            "available_row_count": total - trimmed,
            "cumulative_data_weight": weight,
            "available_data_weight": weight - trimmed_weight,
            "trimmed_data_weight": trimmed_weight,
            "last_row_commit_time": _iso(last_write),
            "commit_idle_time": 0,
            "write_row_count_rate": dict(_RATES),
            "write_data_weight_rate": dict(_RATES),
            "meta": {},
        }
        for total, trimmed, weight, trimmed_weight, last_write in rows
    ]


def _consumer_status(connection: sqlite3.Connection, node: Node) -> dict[str, Any]:
    found = [item for item in registrations.listing(connection) if item.consumer.path == node.path]
    return {"registrations": _registered(found), "queues": {str(item.queue): {} for item in found}}


def _consumer_partitions(connection: sqlite3.Connection, layout: TableLayout) -> dict[str, Any]:
    names = ("queue_cluster", "queue_path", "partition_index", "offset")
    columns = ", ".join(map(layout.sql_column, names))
    result: dict[str, Any] = {}
    for cluster, path, index, offset in connection.execute(
        f'SELECT {columns} FROM {layout.sql_source} ORDER BY "$key"'
    ):
        queue = f"{cluster.decode()}:{path.decode()}"
        result.setdefault(queue, []).append(
            {
                "partition_index": int(values.decode_uint64(index)),
                "next_row_index": int(values.decode_uint64(offset)),
            }
        )
    return result


def _iso(timestamp: int) -> str:
    seconds = timestamp >> TIMESTAMP_COUNTER_BITS
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
