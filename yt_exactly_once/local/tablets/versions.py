"""Lookups of every version of a row that is kept, as `VersionedRowMerger` puts them together."""

from __future__ import annotations

from collections.abc import Sequence
from sqlite3 import Connection
from typing import Any

from yt import yson
from yt.yson import YsonUint64

from yt_exactly_once.local.tables import stamps, values
from yt_exactly_once.local.tables.layout import VERSION_COLUMNS, TableLayout, quote
from yt_exactly_once.local.tables.schema import Column
from yt_exactly_once.local.tablets.reads import LATEST_TIMESTAMPS_FROM


def lookup(
    connection: Connection, layout: TableLayout, keys: Sequence[bytes], columns: Sequence[Column]
) -> list[Any]:
    """Return one row per key in the order of the keys, None where there is none.

    A value column holds a list of values, the newest first, each with the attributes `timestamp` and
    `aggregate`; the row has the attributes `write_timestamps` and `delete_timestamps`.
    """
    names = [*map(quote, VERSION_COLUMNS[1:]), *map(quote, layout.sql_names)]
    until = LATEST_TIMESTAMPS_FROM if layout.read_timestamp is None else layout.read_timestamp
    query = " UNION ALL ".join(
        f'SELECT {", ".join(names)} FROM {quote(table)} WHERE "$key" = ?1 AND "$ts" BETWEEN ?2 AND ?3'
        for table in (layout.sql_table, layout.history_table)
    )
    found = []
    for key in keys:
        bounds = (key, layout.retention_timestamp, until)
        versions = connection.execute(f"{query} ORDER BY 1 DESC", bounds).fetchall()
        found.append(_row(layout, columns, versions) if versions else None)
    return found


def _row(
    layout: TableLayout, columns: Sequence[Column], versions: Sequence[tuple[Any, ...]]
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
        moments |= cells.keys()
        if cells and column in columns:
            shown[column.name] = [
                yson.to_yson_type(
                    values.decode_value(column, cell),
                    {"timestamp": YsonUint64(moment), "aggregate": False},
                )
                for moment, cell in cells.items()
            ]
    return yson.to_yson_type(
        shown,
        {
            "write_timestamps": [YsonUint64(each) for each in sorted(moments, reverse=True)],
            "delete_timestamps": [YsonUint64(each) for each in deleted],
        },
    )
