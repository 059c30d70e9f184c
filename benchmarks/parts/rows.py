"""Rows of every shape, as Spark makes them and as a cluster returns them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from yt_exactly_once.codec.rows import WireFormat, encode
from yt_exactly_once.codec.schema import TableSchema, WritePlan, arrow_schema_of, check_frame
from yt_exactly_once.spark.encode import merged
from yt_exactly_once.spark.schema import arrow_of_spark

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from benchmarks.modes.work import Shape

ROWS = 50_000
"""Rows of a piece of work: one insert request of the sink."""


@dataclass(frozen=True)
class Sample:
    """Rows of one shape.

    Attributes:
        shape: what they look like.
        batch: as a Spark task gets them.
        plan: how they become the table's.
        pulled: the Arrow fields that the source makes of them.
    """

    shape: Shape
    batch: pa.RecordBatch
    plan: WritePlan
    pulled: pa.Schema

    @classmethod
    def of(cls, shape: Shape, spark: SparkSession) -> Sample:
        """Make the rows."""
        frame = shape.of(spark.range(0, ROWS, 1, 1))
        table = TableSchema.from_yt(shape.columns())
        plan = check_frame(
            arrow_of_spark(frame.schema), table, target=f"//{shape.name}", sorted=False
        )
        batch = merged(frame.toArrow().to_batches())
        return cls(
            shape,
            batch,
            plan,
            arrow_schema_of(table, binary_strings=False, source_columns=True),
        )

    def payload(self, wire: WireFormat, tablet: int = 0) -> bytes:
        """Return the rows as the body of a request."""
        return encode(self.batch, self.plan, wire, tablet_index=tablet)
