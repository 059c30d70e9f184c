"""Reading a table range by range: memory grows neither with the table nor with the size of its rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from yt_exactly_once.codec.rows import decode
from yt_exactly_once.codec.schema import TableSchema, arrow_schema_of
from yt_exactly_once.errors import UnprovableError
from yt_exactly_once.ytsaurus.browsing import selected
from yt_exactly_once.ytsaurus.reading import listed, literal

if TYPE_CHECKING:
    from yt_exactly_once.ytsaurus.client import Connection
    from yt_exactly_once.ytsaurus.queues import PartitionBounds
    from yt_exactly_once.ytsaurus.tables import TableInfo

ROWS_PER_READ, BYTES_PER_READ = 100_000, 16 * 2**20
"""At most so many rows are read with one request, and about so many bytes."""

_FIRST_ROWS, _GROWTH = 100, 10
"""Rows of the first range of a table, and how many times larger the next range may be."""

Progress = Callable[[str, int, int], None]
"""Called with what is read, and how many of how many rows are done."""


class RangeReader:
    """Reads tables in ranges; tells the progress after each range of a whole table.

    The bytes of a range decide how many rows the next one has.
    """

    def __init__(self, connection: Connection, progress: Progress = lambda *_: None) -> None:
        self.connection = connection
        self.progress = progress
        self._sizes: dict[str, int] = {}

    def rows(
        self, info: TableInfo, schema: pa.Schema, tablet: int, first: int, end: int
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a tablet of an ordered table, from one index to the one before `end`."""
        while first < end:
            last = min(first + self._size(info), end)
            query = (
                f"{listed(schema.names)} from [{info.path}] where [$tablet_index] = {tablet} "
                f"and [$row_index] >= {first} and [$row_index] < {last}"
            )
            yield self._read(info, query, schema)
            first = last

    def _size(self, info: TableInfo) -> int:
        return self._sizes.get(info.path, min(_FIRST_ROWS, ROWS_PER_READ))

    def _read(self, info: TableInfo, query: str, schema: pa.Schema) -> pa.RecordBatch:
        batch = decode(selected(self.connection, query), schema)
        if batch.num_rows:
            fitting = BYTES_PER_READ * batch.num_rows // max(batch.nbytes, 1)
            most = min(self._size(info) * _GROWTH, ROWS_PER_READ)
            self._sizes[info.path] = max(1, min(fitting, most))
        return batch

    def tablets(
        self, info: TableInfo, schema: pa.Schema, bounds: Sequence[PartitionBounds]
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of an ordered table within the bounds of its tablets."""
        total, done = sum(bound.upper - bound.lower for bound in bounds), 0
        for tablet, bound in enumerate(bounds):
            for batch in self.rows(info, schema, tablet, bound.lower, bound.upper):
                yield batch
                done += batch.num_rows
                self.progress(info.path, done, total)

    def keys(self, info: TableInfo, schema: pa.Schema, expected: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a sorted table, with its keys, or raise `UnprovableError` if no query has one."""
        keys = [column["name"] for column in info.schema if column.get("sort_order")]
        with_keys = fields_of(info, list(dict.fromkeys([*keys, *schema.names])))
        names = listed(keys)
        after, done = "", 0
        while True:
            size = self._size(info)
            query = (
                f"{listed(with_keys.names)} from [{info.path}]{after} order by {names} limit {size}"
            )
            batch = self._read(info, query, with_keys)
            if batch.num_rows:
                yield batch
            done += batch.num_rows
            self.progress(info.path, done, max(done, expected))
            if batch.num_rows < size:
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
    return schema.insert(0, pa.field("$row_index", pa.int64()))


def _literal(value: Any, path: str) -> str:
    if isinstance(value, bool | int | float | bytes | str):
        return literal(value)
    raise UnprovableError(
        "The table has keys that cannot be read in ranges: nulls, or values that are neither numbers nor "
        "strings",
        remedy="Audit a target with other keys, or an ordered one",
        path=path,
    )
