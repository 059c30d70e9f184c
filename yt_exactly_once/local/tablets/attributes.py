"""What a dynamic table shows about itself: computed attributes of its node.

Every attribute is computed when it is asked for, from the store alone. It never changes anything.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from copy import deepcopy
from functools import partial
from sqlite3 import Connection
from typing import Any

from yt.yson import YsonUint64

from yt_exactly_once.local.cypress import clock
from yt_exactly_once.local.cypress.ids import CELL_ID
from yt_exactly_once.local.cypress.view import Node
from yt_exactly_once.local.store import TIMESTAMP_COUNTER_BITS, last_timestamp, scalar
from yt_exactly_once.local.tables.layout import TableLayout, quote
from yt_exactly_once.local.tablets import counters, flushed, retention
from yt_exactly_once.local.tablets.catalog import load_layout

_STATES = ("mounted", "unmounted", "frozen", "mounting", "unmounting", "freezing", "unfreezing")

_STATES_OF_ALL = ("tablet_state", "actual_tablet_state", "expected_tablet_state")
_COUNTS_BY_STATE = ("tablet_count_by_state", "tablet_count_by_expected_state")
_ROW_COUNTS = ("row_count", "chunk_row_count")
_SIZES = ("data_weight", "uncompressed_data_size", "compressed_data_size")

Attributes = dict[str, "Callable[[], Any]"]

_DEFAULTS: dict[str, Any] = {
    "atomicity": "full",
    "in_memory_mode": "none",
    "enable_detailed_profiling": False,
    "enable_dynamic_store_read": False,
    "mount_config": {},
    "optimize_for": "lookup",
    "tablet_balancer_config": {"enable_auto_reshard": True, "enable_auto_tablet_move": True},
    "tablet_cell_bundle": "default",
}


def table_attributes(connection: Connection, node: Node, layout: TableLayout) -> Attributes:
    """Return the computed attributes of a dynamic table by name."""
    schema = layout.schema
    attributes: Attributes = {
        "dynamic": lambda: True,
        "schema": schema.to_yson,
        "schema_mode": lambda: "strong",
        "sorted": lambda: layout.sorted,
        "key_columns": lambda: [column.name for column in layout.key_columns],
        "unique_keys": lambda: schema.unique_keys,
        "tablet_count": lambda: layout.tablet_count,
        "tablets": lambda: tablets(connection, layout),
        "chunk_count": lambda: len(_chunk_ids(connection, layout)),
        "chunk_ids": lambda: _chunk_ids(connection, layout),
        "tablet_statistics": lambda: _statistics(
            connection, layout, str(node.attributes.get("in_memory_mode", "none"))
        ),
        "tablet_error_count": lambda: 0,
        "preload_state": lambda: "complete",
        "upstream_replica_id": lambda: "0-0-0-0",
        "modification_time": lambda: _modified(connection, node, layout),
    }
    for names, compute in (
        (_STATES_OF_ALL, lambda: layout.state),
        (
            _COUNTS_BY_STATE,
            lambda: dict.fromkeys(_STATES, 0) | Counter(t.state for t in layout.tablets),
        ),
        (_ROW_COUNTS, lambda: row_count(connection, layout)),
        (_SIZES, lambda: data_weight(connection, layout)),
    ):
        attributes |= dict.fromkeys(names, compute)
    for name, default in _DEFAULTS.items():
        # A copy, since a part of it may be set in place.
        attributes[name] = partial(deepcopy, node.attributes.get(name, default))
    if layout.sorted:
        attributes["sorted_by"] = attributes["key_columns"]
        attributes |= {
            "unmerged_row_count": lambda: row_count(connection, layout),
            "last_commit_timestamp": lambda: YsonUint64(
                max(counters.of_all(connection, layout, "last_write_ts"))[0]
            ),
        }
        for name, moment in moments(connection, layout).items():
            attributes[name] = partial(node.attributes.get, name, moment)
        attributes["pivot_keys"] = lambda: [list(pivot) for pivot in layout.pivot_keys]
    else:
        attributes["commit_ordering"] = lambda: node.attributes.get("commit_ordering", "weak")
    return attributes


def moments(connection: Connection, layout: TableLayout) -> dict[str, Any]:
    """Return between which timestamps all versions of rows can be read; a snapshot lock keeps both."""
    if not layout.sorted:
        return {}
    unflushed = max(last_timestamp(connection) - 1, int(time.time()) << TIMESTAMP_COUNTER_BITS)
    return {
        "retained_timestamp": YsonUint64(
            max(1, retention.retained_from(connection, layout.node_id))
        ),
        "unflushed_timestamp": YsonUint64(unflushed),
    }


def row_count(connection: Connection, layout: TableLayout) -> int:
    """Count the rows that a reader sees."""
    if not layout.sorted:
        return _left(connection, layout, "rows")
    return int(scalar(connection, f"SELECT count(*) FROM {layout.sql_source}"))


def data_weight(connection: Connection, layout: TableLayout) -> int:
    """Return the data weight of the rows that a reader sees."""
    if not layout.sorted:
        return _left(connection, layout, "weight")
    names = map(quote, layout.sql_names)
    terms = [
        f"sum(length({name}))" if column.weight is None else f"count({name}) * {column.weight}"
        for column, name in zip(layout.columns, names, strict=True)
    ]
    # Columns add up here: SQLite limits the depth of an expression.
    query = f"SELECT {', '.join(['count(*)', *terms])} FROM {layout.sql_source}"
    return sum(each or 0 for each in connection.execute(query).fetchone())


def _left(connection: Connection, layout: TableLayout, what: str) -> int:
    """Return what tablets got and have not trimmed."""
    found = counters.of_all(connection, layout, f"total_{what} - trimmed_{what}")
    return sum(each for (each,) in found)


def tablets(connection: Connection, layout: TableLayout) -> list[dict[str, Any]]:
    """Return `@tablets`."""
    names = ("trimmed_rows", "total_weight", "trimmed_weight")
    rows = counters.of_all(connection, layout, *names)
    result = []
    for tablet, (trimmed, weight, trimmed_weight) in zip(layout.tablets, rows, strict=True):
        item: dict[str, Any] = {
            "index": tablet.index,
            "tablet_id": tablet.tablet_id,
            "state": tablet.state,
            "error_count": 0,
            "replication_error_count": 0,
            "statistics": {
                "uncompressed_data_size": weight - trimmed_weight,
                "compressed_data_size": weight - trimmed_weight,
                "tablet_count": 1,
                "chunk_count": len(flushed.chunks(connection, tablet.tablet_id)),
            },
        }
        if tablet.state != "unmounted":
            item["cell_id"] = CELL_ID
            item["mount_revision"] = YsonUint64(tablet.mount_revision)
            item["mount_time"] = clock.spell_unix(tablet.mount_revision >> TIMESTAMP_COUNTER_BITS)
        if layout.sorted:
            item["pivot_key"] = list(tablet.pivot_values)
        else:
            item["trimmed_row_count"] = trimmed
            item["flushed_row_count"] = flushed.until(connection, tablet.tablet_id)
        result.append(item)
    return result


def _statistics(connection: Connection, layout: TableLayout, in_memory_mode: str) -> dict[str, Any]:
    weight = data_weight(connection, layout)
    chunks = len(_chunk_ids(connection, layout))
    in_memory = in_memory_mode != "none" and layout.state != "unmounted"
    return {
        "memory_size": weight if in_memory and chunks else 0,
        "tablet_count": layout.tablet_count,
        "tablet_count_per_memory_mode": {
            mode: layout.tablet_count if mode == in_memory_mode else 0
            for mode in ("none", "compressed", "uncompressed")
        },
        "disk_space": weight,
        "disk_space_per_medium": {"default": weight},
        "store_count": chunks,
        "overlapping_store_count": chunks,
        "uncompressed_data_size": weight,
        "compressed_data_size": weight,
        "chunk_count": chunks,
    }


def describe_tablet(connection: Connection, tablet_id: str) -> dict[str, Any] | None:
    """Return the attributes of a tablet by its id; None when there is none."""
    found = connection.execute(
        "SELECT node_id, tablet_index FROM tablets WHERE tablet_id = ?", (tablet_id,)
    ).fetchone()
    if found is None:
        return None
    node_id, index = found
    shown = tablets(connection, load_layout(connection, node_id, node_id))[index]
    del shown["tablet_id"]
    return {"id": tablet_id, "type": "tablet", "table_id": node_id, "owner_id": node_id, **shown}


def _modified(connection: Connection, node: Node, layout: TableLayout) -> str:
    """Return when the node or a row of its table was changed last."""
    (written,) = max(counters.of_all(connection, layout, "written_at"))
    return max(str(node.attributes["modification_time"]), clock.spell_unix(written))


def _chunk_ids(connection: Connection, layout: TableLayout) -> list[str]:
    held = (flushed.chunks(connection, tablet.tablet_id) for tablet in layout.tablets)
    return list(dict.fromkeys(chunk.chunk_id for each in held for chunk in each))
