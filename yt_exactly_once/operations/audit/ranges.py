"""Reading a table range by range, so that memory does not grow with the table."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from yt_exactly_once.codec.rows import decode
from yt_exactly_once.codec.schema import TableSchema, arrow_schema_of, pulled_field
from yt_exactly_once.errors import UnprovableError
from yt_exactly_once.ytsaurus.browsing import selected
from yt_exactly_once.ytsaurus.reading import listed, literal

if TYPE_CHECKING:
    from yt_exactly_once.ytsaurus.client import Connection
    from yt_exactly_once.ytsaurus.queues import PartitionBounds
    from yt_exactly_once.ytsaurus.tables import TableInfo

ROWS_PER_READ = 100_000
"""Default size of a range that is read with one request."""

Progress = Callable[[str, int, int], None]
"""Called with what is read, and how many of how many rows are done."""


class RangeReader:
    """Reads tables of one cluster in ranges; tells the progress after each range of a whole table."""

    def __init__(
        self, connection: Connection, rows_per_read: int, progress: Progress = lambda *_: None
    ) -> None:
        self.connection = connection
        self.size = rows_per_read
        self.progress = progress

    def range(
        self, info: TableInfo, schema: pa.Schema, tablet: int, first: int, last: int
    ) -> pa.RecordBatch:
        """Return rows of a tablet of an ordered table."""
        query = (
            f"{listed(schema.names)} from [{info.path}] where [$tablet_index] = {tablet} "
            f"and [$row_index] >= {first} and [$row_index] < {last}"
        )
        return decode(selected(self.connection, query), schema)

    def tablets(
        self, info: TableInfo, schema: pa.Schema, bounds: Sequence[PartitionBounds]
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of an ordered table within the bounds of its tablets."""
        total, done = sum(bound.upper - bound.lower for bound in bounds), 0
        for tablet, bound in enumerate(bounds):
            for first in range(bound.lower, bound.upper, self.size):
                last = min(first + self.size, bound.upper)
                yield self.range(info, schema, tablet, first, last)
                done += last - first
                self.progress(info.path, done, total)

    def keys(self, info: TableInfo, schema: pa.Schema, expected: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a sorted table, with its keys; raise `UnprovableError` if no query can have one.

        Args:
            expected: about how many rows there are.
        """
        keys = [column["name"] for column in info.schema if column.get("sort_order")]
        with_keys = fields_of(info, list(dict.fromkeys([*keys, *schema.names])))
        names = listed(keys)
        after, done = "", 0
        while True:
            query = f"{listed(with_keys.names)} from [{info.path}]{after} order by {names} limit {self.size}"
            batch = decode(selected(self.connection, query), with_keys)
            if batch.num_rows:
                yield batch
            done += batch.num_rows
            self.progress(info.path, done, max(done, expected))
            if batch.num_rows < self.size:
                return
            last = [_literal(batch.column(name)[-1].as_py(), info.path) for name in keys]
            after = f" where ({names}) > ({', '.join(last)})"


def fields_of(info: TableInfo, names: Sequence[str]) -> pa.Schema:
    """Return how columns of a table are read, in this order."""
    by_name = {column["name"]: column for column in info.schema}
    table = TableSchema.from_yt([{**by_name[name]} for name in names])
    return arrow_schema_of(table, binary_strings=True)


def placed(schema: pa.Schema) -> pa.Schema:
    """Return the fields with the index of the row in front."""
    return schema.insert(0, pulled_field("$row_index", pa.int64(), "$row_index"))


def _literal(value: Any, path: str) -> str:
    if isinstance(value, bool | int | float | bytes | str):
        return literal(value)
    raise UnprovableError(
        "The table has keys that cannot be read in ranges: nulls, or values that are neither numbers nor "
        "strings",
        remedy="Audit a target with other keys, or an ordered one",
        path=path,
    )
