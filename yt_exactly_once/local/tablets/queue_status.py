"""What the queue agent of a real cluster would publish: the attributes `queue_*` of every role.

Owns the status of queues; that of consumers is worked out beside it. Numbers that need a history of
measurements (rates) are zero here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from yt_exactly_once.local.tablets import consumer_status, queue_rates, registrations
from yt_exactly_once.local.tablets.schema import CUMULATIVE_WEIGHT_COLUMN, TIMESTAMP_COLUMN

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable

    from yt_exactly_once.local.cypress.tree import Node
    from yt_exactly_once.local.tablets.layout import TableLayout


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
            "queue_consumer_status": lambda: consumer_status.status(connection, node),
            "queue_consumer_partitions": lambda: consumer_status.partitions(
                connection, node, layout
            ),
        }
    if node.attributes.get("treat_as_queue_producer"):
        return {"queue_producer_status": dict, "queue_producer_partitions": list}
    return {}


def _queue_status(
    connection: sqlite3.Connection, node: Node, layout: TableLayout
) -> dict[str, Any]:
    found = [item for item in registrations.listing(connection) if item.queue.path == node.path]
    return {
        "family": "ordered_dynamic_table",
        "partition_count": layout.tablet_count,
        "has_timestamp_column": layout.column(TIMESTAMP_COLUMN) is not None,
        "has_cumulative_data_weight_column": layout.column(CUMULATIVE_WEIGHT_COLUMN) is not None,
        "registrations": registrations.describe(found),
        "alerts": {},
        "write_row_count_rate": queue_rates.none(),
        "write_data_weight_rate": queue_rates.none(),
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
            "last_row_commit_time": queue_rates.iso(last_write),
            "commit_idle_time": 0,
            "write_row_count_rate": queue_rates.none(),
            "write_data_weight_rate": queue_rates.none(),
            "meta": {},
        }
        for total, trimmed, weight, trimmed_weight, last_write in rows
    ]
