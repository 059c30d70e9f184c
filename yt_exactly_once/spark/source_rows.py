"""How the rows of a queue become Spark's: one format per query, shared by planning and tasks.

It joins the table's schema with the options that change how it is read. Values are the codec's business.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from yt_exactly_once.codec.rows import decode
from yt_exactly_once.codec.schema import (
    SOURCE_COLUMNS,
    SOURCE_ROW_COLUMN,
    TableSchema,
    arrow_schema_of,
)
from yt_exactly_once.errors import ConfigError
from yt_exactly_once.spark.schema import spark_schema_of
from yt_exactly_once.spark.source_limits import WEIGHT_COLUMN

if TYPE_CHECKING:
    from pyarrow import RecordBatch
    from pyspark.sql.types import StructType

    from yt_exactly_once.spark.source_options import SourceOptions


class RowFormat:
    """The columns a source yields, and how to get them out of a pull.

    Args:
        columns: the queue's `@schema`.
        options: of the source.

    Attributes:
        spark_schema: what Spark is told.

    Raises:
        SchemaMismatchError: a column's type cannot be read.
        ConfigError: an option needs a column that the queue does not have.
    """

    def __init__(self, columns: list[dict[str, Any]], options: SourceOptions) -> None:
        if options.max_bytes_per_partition is not None:
            _require_weight(columns, options)
        table = TableSchema.from_yt(columns if options.parsing_type_v3 else _older_types(columns))
        self._arrow_schema = arrow_schema_of(
            table, binary_strings=options.binary_strings, source_columns=True
        )
        self._include_service_columns = options.include_service_columns
        self.spark_schema: StructType = spark_schema_of(
            table,
            binary_strings=options.binary_strings,
            source_columns=options.include_service_columns,
        )

    def decode(self, payload: bytes) -> tuple[list[int], RecordBatch]:
        """Return the row indexes of a pull, and its rows as Spark expects them."""
        rows = decode(payload, self._arrow_schema)
        indexes: list[int] = rows.column(SOURCE_ROW_COLUMN).to_pylist()
        if not self._include_service_columns:
            rows = rows.drop_columns(list(SOURCE_COLUMNS))
        return indexes, rows

    def weight(self, payload: bytes) -> int | None:
        """Return the cumulative data weight in the first row of a pull; `None` without rows."""
        rows = decode(payload, self._arrow_schema)
        return int(rows.column(WEIGHT_COLUMN)[0].as_py()) if rows.num_rows else None


def _require_weight(columns: list[dict[str, Any]], options: SourceOptions) -> None:
    if not any(column["name"] == WEIGHT_COLUMN for column in columns):
        raise ConfigError(
            f"max_bytes_per_partition needs the column {WEIGHT_COLUMN} of the queue, and there is none",
            remedy="Use max_rows_per_partition, or create the queue with this int64 column, which "
            "the cluster fills",
            option="max_bytes_per_partition",
            queue=options.queue,
        )


def _older_types(columns: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Leave `type_v3` out, so that `type` and `required` decide."""
    return [{key: column[key] for key in column if key != "type_v3"} for column in columns]
