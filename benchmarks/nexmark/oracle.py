"""What a table must have, as DuckDB computes it from the events, and what it has.

It reads the tables with a plain client and uses nothing of the package under test.
"""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from typing import Any

import duckdb
import pyarrow as pa
from yt.wrapper import YsonFormat, YtClient

from benchmarks.nexmark.events import Events
from benchmarks.nexmark.queries import LATENESS_SECONDS, SIDE_ROWS, STREAMS, Query
from yt_exactly_once.demo.verify import Outcome

_MOST_ROWS = 100_000_000

_COMPARED = """
    SELECT coalesce(sum(e.n), 0), coalesce(sum(f.n), 0),
        coalesce(sum(greatest(e.n - coalesce(f.n, 0), 0)), 0),
        coalesce(sum(greatest(f.n - e.n, 0)), 0),
        coalesce(sum(f.n) FILTER (WHERE e.n IS NULL), 0)
    FROM (SELECT *, count(*) AS n FROM expected GROUP BY ALL) e
    FULL JOIN (SELECT *, count(*) AS n FROM ({compared}) GROUP BY ALL) f ON {same}"""


class Oracle:
    """Knows the right answers.

    Args:
        events: that all queries read.
    """

    def __init__(self, events: Events) -> None:
        self._database = duckdb.connect()
        for name, rows in events.by_name().items():
            self._database.register(name, without_zones(rows))
        self._database.sql(
            f"CREATE TABLE side_input AS SELECT i AS key, CAST(i AS VARCHAR) AS value "
            f"FROM range({SIDE_ROWS}) AS numbers(i)"
        )

    def expected(self, query: Query) -> pa.Table:
        """Return what is compared: all rows of the table, or of what the query makes of it."""
        self._database.sql(f"CREATE OR REPLACE TABLE expected AS {self._text(query)}")
        return self._database.sql("FROM expected").to_arrow_table()

    def judge(self, query: Query, found: pa.Table) -> Outcome:
        """Compare whole rows, however often each comes. A changed row is lost, and another one wrong."""
        names = self.expected(query).schema.names
        self._database.register("found", found)
        same = " AND ".join(f'e."{name}" IS NOT DISTINCT FROM f."{name}"' for name in names)
        text = _COMPARED.format(compared=query.compared, same=same)
        (row,) = self._database.sql(text).fetchall()
        return Outcome(*map(int, row))

    def _text(self, query: Query) -> str:
        last = " UNION ALL ".join(
            f"SELECT max(dateTime) AS moment FROM {STREAMS[view]}" for view in query.views
        )
        ((moment,),) = self._database.sql(f"SELECT min(moment) FROM ({last})").fetchall()
        return query.for_duckdb(f"(TIMESTAMP '{moment}' - INTERVAL {LATENESS_SECONDS} SECONDS)")


def read(client: YtClient, paths: Iterable[str], schema: pa.Schema) -> pa.Table:
    """Return the rows of tables together.

    Args:
        schema: columns that are asked for; a table may have more.
    """
    listed = ", ".join(f"[{name}]" for name in schema.names)
    binary = YsonFormat(encoding=None)
    rows: list[dict[bytes, Any]] = []
    for path in paths:
        limits = {"input_row_limit": _MOST_ROWS, "output_row_limit": _MOST_ROWS}
        rows += client.select_rows(f"{listed} from [{path}]", format=binary, **limits)
    columns = [
        pa.array(
            [_value(row[field.name.encode()], field.type) for row in rows],
            _without_zone(field.type),
        )
        for field in schema
    ]
    return pa.table(columns, schema.names)


def _value(value: Any, kind: pa.DataType) -> Any:
    """Return a value of YSON as Arrow takes it: a decimal is a big-endian number with its sign flipped."""
    if value is None or not pa.types.is_decimal(kind):
        return value
    number = int.from_bytes(value, "big") - (1 << (8 * len(value) - 1))
    return Decimal(number).scaleb(-kind.scale)


def without_zones(rows: pa.Table) -> pa.Table:
    """Return rows whose times have no zone, as DuckDB then takes them as they are."""
    columns = [rows[field.name].cast(_without_zone(field.type)) for field in rows.schema]
    return pa.table(columns, rows.schema.names)


def _without_zone(kind: pa.DataType) -> pa.DataType:
    return pa.timestamp("us") if pa.types.is_timestamp(kind) else kind
