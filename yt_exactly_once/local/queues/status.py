"""What the queue agent of a real cluster would publish: the attributes `queue_*` of every role.

Owns the status of queues; that of consumers is worked out beside it. Numbers that need a history of
measurements (rates) are zero here.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from yt_exactly_once.local.cypress.view import Node
from yt_exactly_once.local.errors import Code, YtError
from yt_exactly_once.local.queues import consumer_status, registrations
from yt_exactly_once.local.store import TIMESTAMP_COUNTER_BITS
from yt_exactly_once.local.tables.layout import TableLayout
from yt_exactly_once.local.tables.schema import CUMULATIVE_WEIGHT_COLUMN, TIMESTAMP_COLUMN
from yt_exactly_once.local.tablets import counters, reads

_BANNED = "queue_agent_banned"
_STAGE, _DEFAULT_STAGE = "queue_agent_stage", "production"


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
            "queue_consumer_status": lambda: consumer_status.status(connection, node, layout),
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
        "registrations": [item.describe() for item in found],
        "alerts": {},
        **consumer_status.no_rates("write"),
    }


def _queue_partitions(connection: sqlite3.Connection, layout: TableLayout) -> list[dict[str, Any]]:
    names = ("total_rows", "trimmed_rows", "total_weight", "trimmed_weight", "last_write_ts")
    rows = counters.of_all(connection, layout, *names)
    partitions: list[dict[str, Any]] = []
    for tablet, (total, trimmed, *weights, last_write) in zip(layout.tablets, rows, strict=True):
        if not tablet.is_readable:
            partitions.append({"error": consumer_status.not_mounted(tablet).to_dict()})
            continue
        idle = time.time() - (last_write >> TIMESTAMP_COUNTER_BITS)
        partitions.append(
            {
                "lower_row_index": trimmed,
                "upper_row_index": total,
                "available_row_count": total - trimmed,
                **_weights(connection, layout, tablet.index, total, weights),
                "last_row_commit_time": consumer_status.spelled(last_write),
                "commit_idle_time": max(int(idle * 1000), 0),
                **consumer_status.no_rates("write"),
                "meta": {},
            }
        )
    return partitions


def _weights(
    connection: sqlite3.Connection, layout: TableLayout, index: int, total: int, weights: list[int]
) -> dict[str, int | None]:
    """Return weights if the last row has one; the queue agent has no other source."""
    known = reads.cell(connection, layout, index, total - 1, CUMULATIVE_WEIGHT_COLUMN)
    weight, trimmed = weights if known is not None else (None, None)
    return {
        "cumulative_data_weight": weight,
        "available_data_weight": None if weight is None or trimmed is None else weight - trimmed,
        "trimmed_data_weight": trimmed,
    }
