"""Lookups of every version of a row that is kept, as `VersionedRowMerger` puts them together."""

from __future__ import annotations

from sqlite3 import Connection
from typing import TYPE_CHECKING, Any

from yt import yson
from yt.yson import YsonUint64

from yt_exactly_once.local import arguments
from yt_exactly_once.local.cypress.mount_options import ACTING
from yt_exactly_once.local.store import TIMESTAMP_COUNTER_BITS, last_timestamp
from yt_exactly_once.local.tables import stamps, values
from yt_exactly_once.local.tables.layout import VERSION_COLUMNS, TableLayout, quote
from yt_exactly_once.local.tables.schema import Column
from yt_exactly_once.local.tablets.reads import LATEST_TIMESTAMPS_FROM

if TYPE_CHECKING:
    from collections.abc import Sequence


_OPTIONS = ("min_data_ttl", "max_data_ttl", "min_data_versions", "max_data_versions")


class Retention:
    """Which versions of a value a reader wants; `None` as the configuration is all of them.

    Args:
        given: the parameter `retention_config`; durations are in milliseconds.
    """

    def __init__(self, given: Any) -> None:
        self._limits: list[int] | None = None
        if given is not None:
            config = arguments.mapping(given, "retention_config")
            self._limits = [arguments.integer(config, name, ACTING[name]) for name in _OPTIONS]

    def first(self, moments: Sequence[int], now: int) -> int:
        """Return the oldest moment that is kept; `moments` are of writes and deletes, the oldest first."""
        if self._limits is None:
            return 0
        min_ttl, max_ttl, min_versions, max_versions = self._limits
        ages = [(now - moment >> TIMESTAMP_COUNTER_BITS) * 1000 for moment in moments]
        begin = len(moments)
        while begin and ages[begin - 1] < min_ttl:
            begin -= 1
        begin = max(begin - min_versions, 0)
        while begin and len(moments) - begin < max_versions and ages[begin - 1] <= max_ttl:
            begin -= 1
        return moments[begin] if begin < len(moments) else now + 1


def lookup(
    connection: Connection,
    layout: TableLayout,
    keys: Sequence[bytes],
    columns: Sequence[Column],
    retention: Retention,
) -> list[Any]:
    """Return one row per key in the order of the keys, None where there is none.

    A value column holds a list of values, the newest first, each with the attributes `timestamp` and
    `aggregate`; the row has the attributes `write_timestamps` and `delete_timestamps`.
    """
    names = [*map(quote, VERSION_COLUMNS[1:]), *map(quote, layout.sql_names)]
    until = LATEST_TIMESTAMPS_FROM if layout.read_timestamp is None else layout.read_timestamp
    query = " UNION ALL ".join(
        f'SELECT {", ".join(names)} FROM {table} WHERE "$key" = ?1 AND "$ts" BETWEEN ?2 AND ?3'
        for table in (layout.sql_table, layout.history_table)
    )
    now = min(until, last_timestamp(connection))
    found = []
    for key in keys:
        bounds = (key, layout.retention_timestamp, until)
        versions = connection.execute(f"{query} ORDER BY 1 DESC", bounds).fetchall()
        found.append(_row(layout, columns, versions, retention, now) if versions else None)
    return found


def _row(
    layout: TableLayout,
    columns: Sequence[Column],
    versions: Sequence[tuple[Any, ...]],
    retention: Retention,
    now: int,
) -> Any:
    deleted = [version[0] for version in versions if version[1]]
    written = [
        (stamps.every(each, timestamp, len(layout.value_columns)), row[len(layout.key_columns) :])
        for timestamp, is_deleted, each, *row in versions
        if not is_deleted
    ]
    shown: dict[str, Any] = {
        column.name: values.decode_value(column, versions[0][len(VERSION_COLUMNS) - 1 + place])
        for place, column in enumerate(layout.key_columns)
        if column in columns
    }
    moments: set[int] = set()
    for place, column in enumerate(layout.value_columns):
        # The oldest version may hold a value of one that is no longer kept.
        cells = {stamped[place]: row[place] for stamped, row in written if stamped[place]}
        first = retention.first(sorted({*cells, *deleted}), now)
        kept = {moment: cell for moment, cell in cells.items() if moment >= first}
        moments |= kept.keys()
        if kept and column in columns:
            shown[column.name] = [
                yson.to_yson_type(
                    values.decode_value(column, cell),
                    {"timestamp": YsonUint64(moment), "aggregate": False},
                )
                for moment, cell in kept.items()
            ]
    return yson.to_yson_type(
        shown,
        {
            "write_timestamps": [YsonUint64(each) for each in sorted(moments, reverse=True)],
            "delete_timestamps": [YsonUint64(each) for each in deleted],
        },
    )
