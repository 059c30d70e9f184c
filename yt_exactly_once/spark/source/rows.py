"""How the rows of a queue become Spark's: one format per query, shared by planning and tasks.

It joins the table's schema with the options that change how it is read. Values are the codec's business.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from yt_exactly_once.codec import schema as schemas
from yt_exactly_once.codec.buffers import to_numpy
from yt_exactly_once.codec.rows import decode
from yt_exactly_once.errors import ConfigError
from yt_exactly_once.spark.schema import spark_schema_of
from yt_exactly_once.ytsaurus.browsing import COUNTER_BITS, row_time

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from yt_exactly_once.spark.source.options import SourceOptions

Indexes: TypeAlias = npt.NDArray[np.int64]

_SERVICE_TYPES = {
    schemas.SOURCE_TABLET_COLUMN: pa.int64(),
    schemas.SOURCE_ROW_COLUMN: pa.int64(),
    schemas.SOURCE_QUEUE_COLUMN: pa.string(),
    schemas.SOURCE_TIMESTAMP_COLUMN: pa.timestamp("us", tz="UTC"),
}


class RowFormat:
    """The columns a source yields, and how to get them out of a pull.

    Args:
        columns: the queue's `@schema`.

    Attributes:
        spark_schema: the schema that Spark gets.

    Raises:
        SchemaMismatchError: a column's type cannot be read.
        ConfigError: an option needs a column that the queue does not have, or adds one that it has.
    """

    def __init__(self, columns: list[dict[str, Any]], options: SourceOptions) -> None:
        if options.max_bytes_per_partition is not None:
            _require_column(
                columns, "max_bytes_per_partition", schemas.WEIGHT_COLUMN, "int64", options
            )
        if options.include_timestamp:
            _require_column(
                columns, "include_timestamp", schemas.TIMESTAMP_COLUMN, "uint64", options
            )
        table = schemas.TableSchema.from_yt(columns, by_type_v3=options.parsing_type_v3)
        own = arrow_schema_for(table, options)
        self._queue = options.path
        self._service = _service_columns(own.names, options)
        # Found by position from here on: a queue may itself hold columns of these names.
        self._pulled = pa.schema([*schemas.SOURCE_FIELDS, *own])
        self._own = slice(len(schemas.SOURCE_FIELDS), len(self._pulled))
        self._given = pa.schema(
            [*(pa.field(name, _SERVICE_TYPES[name]) for name in self._service), *own]
        )
        self.spark_schema: StructType = spark_schema_of(self._given)

    def decode(self, *payloads: bytes) -> tuple[Indexes, Indexes, pa.RecordBatch]:
        """Return the partitions and indexes of the rows of pulls, and the rows as Spark expects them.

        Short pulls are decoded together: each time costs about a millisecond, however few rows there are.
        """
        rows = decode(_joined(payloads), self._pulled)
        partitions, indexes = (
            to_numpy(rows.column(schemas.SOURCE_COLUMNS.index(name)))
            for name in (schemas.SOURCE_TABLET_COLUMN, schemas.SOURCE_ROW_COLUMN)
        )
        service = [self._service_column(name, rows) for name in self._service]
        columns = [*service, *rows.columns[self._own]]
        return partitions, indexes, pa.RecordBatch.from_arrays(columns, schema=self._given)

    def weight(self, payload: bytes) -> int | None:
        """Return the cumulative data weight in the first row of a pull; `None` without rows."""
        rows = decode(payload, self._pulled)
        if not rows.num_rows:
            return None
        weight = rows.column(schemas.WEIGHT_COLUMN)[0].as_py()
        if weight is None:
            raise ConfigError(
                f"Rows that are older than the column {schemas.WEIGHT_COLUMN} of the queue have no weight",
                remedy="Use max_rows_per_partition until these rows are read",
                option="max_bytes_per_partition",
            )
        return int(weight)

    @property
    def has_timestamps(self) -> bool:
        """Whether the queue keeps when a row was committed."""
        return schemas.TIMESTAMP_COLUMN in self._pulled.names[self._own]

    def committed_at(self, payload: bytes) -> float | None:
        """Return when the first row of a pull was committed, in seconds since 1970; `None` if unknown."""
        rows = decode(payload, self._pulled)
        stamp = self._stamps(rows)[0].as_py() if rows.num_rows else None
        return None if stamp is None else row_time(int(stamp))

    def _stamps(self, rows: pa.RecordBatch) -> pa.Array:
        own = self._pulled.names[self._own]
        return rows.column(self._own.start + own.index(schemas.TIMESTAMP_COLUMN))

    def _service_column(self, name: str, rows: pa.RecordBatch) -> pa.Array:
        if name == schemas.SOURCE_QUEUE_COLUMN:
            return pa.repeat(self._queue, rows.num_rows)
        if name == schemas.SOURCE_TIMESTAMP_COLUMN:
            # To the second.
            stamps = self._stamps(rows).cast(pa.uint64())
            seconds = pc.shift_right(stamps, pa.scalar(COUNTER_BITS, pa.uint64())).cast(pa.int64())
            return seconds.cast(pa.timestamp("s", tz="UTC")).cast(_SERVICE_TYPES[name])
        return rows.column(schemas.SOURCE_COLUMNS.index(name))


def arrow_schema_for(table: schemas.TableSchema, options: SourceOptions) -> pa.Schema:
    """Return how the columns of a table are read; raise `ConfigError` if an option names another one."""
    chosen, known = options.binary_strings, [column.name for column in table.columns]
    for name in () if isinstance(chosen, bool) else chosen:
        if name not in known:
            raise ConfigError(
                f"binary_strings names {name}, and the table has no such column",
                remedy=f"Choose from: {', '.join(known)}. Or use true or false",
                option="binary_strings",
                path=options.path,
            )
    return schemas.arrow_schema_of(
        table, binary_strings=chosen, uuid_text=options.uuid_text, any_json=options.any_json
    )


def _joined(payloads: tuple[bytes, ...]) -> bytes:
    """Return fragments of YSON as one: a semicolon must be between two rows, and may be after the last."""
    if len(payloads) == 1:
        return payloads[0]
    return b"".join(
        payload if payload.endswith(b";") else payload + b";" for payload in payloads if payload
    )


def _service_columns(own: list[str], options: SourceOptions) -> list[str]:
    """Return which columns the options add in front of the queue's own."""
    chosen: dict[str, list[str]] = {
        "include_service_columns": list(schemas.SOURCE_COLUMNS) * options.include_service_columns,
        "include_queue_path": [schemas.SOURCE_QUEUE_COLUMN] * options.include_queue_path,
        "include_timestamp": [schemas.SOURCE_TIMESTAMP_COLUMN] * options.include_timestamp,
    }
    for option, names in chosen.items():
        for name in names:
            if name in own:
                raise ConfigError(
                    f"{option} adds the column {name}, and the queue has one of that name",
                    remedy="Leave the option out; what wrote this queue has kept where its rows "
                    "came from",
                    option=option,
                    queue=options.path,
                )
    return [name for names in chosen.values() for name in names]


def _require_column(
    columns: list[dict[str, Any]], option: str, name: str, kind: str, options: SourceOptions
) -> None:
    if not any(column["name"] == name for column in columns):
        raise ConfigError(
            f"{option} needs the column {name} of the queue, and there is none",
            remedy=f"Leave {option} out, or create the queue with this {kind} column, which the "
            "cluster fills",
            option=option,
            queue=options.path,
        )
