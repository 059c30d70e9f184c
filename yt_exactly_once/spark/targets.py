"""A target made ready for a run: described, checked against the frame, and its wire format chosen.

Done once per run and frame schema, before the first row, so that every mistake that can be known early
is known before anything is written. Nothing in here is repeated per batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from yt_exactly_once.codec.rows import WireFormat, encode_empty
from yt_exactly_once.codec.schema import TableSchema, check_frame
from yt_exactly_once.errors import (
    BatchTooLargeError,
    ConfigError,
    RequestRefusedError,
    SchemaMismatchError,
)
from yt_exactly_once.spark.schema import arrow_of_spark
from yt_exactly_once.ytsaurus.tables import describe_table

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame

    from yt_exactly_once.codec.schema import WritePlan
    from yt_exactly_once.spark.sink_options import Target, Transform
    from yt_exactly_once.ytsaurus.client import Connection

_PROBE_TIMEOUT = timedelta(seconds=10)


@dataclass(frozen=True)
class Placement:
    """Which tablet takes the rows of a Spark partition.

    Attributes:
        tablet_count: tablets of an ordered target; `None` for a sorted one, where keys decide.
    """

    tablet_count: int | None

    def tablet(self, partition: int) -> int | None:
        """Return the tablet for a Spark partition, the same one for every attempt."""
        return None if self.tablet_count is None else partition % self.tablet_count


@dataclass(frozen=True)
class PreparedTarget:
    """A table that fits the frame.

    Attributes:
        path: the table.
        transform: what becomes of the batch's frame first.
        update_columns: keep the columns that the frame does not have.
        is_sorted: sorted or ordered.
        tablet_count: number of its tablets.
        plan: how the frame's columns become the table's.
        wire: wire format of payloads.
        placement: tablets of ordered targets.
        rows_per_tablet: most rows one transaction may write into one tablet.
    """

    path: str
    transform: Transform | None
    update_columns: bool
    is_sorted: bool
    tablet_count: int
    plan: WritePlan
    wire: WireFormat
    placement: Placement
    rows_per_tablet: int

    def transformed(self, frame: DataFrame) -> DataFrame:
        """Return the frame that is written here."""
        return frame if self.transform is None else self.transform(frame)

    def require_room(self, rows_by_tablet: Mapping[int | None, int]) -> None:
        """Refuse a batch that one transaction cannot carry, before anything is sent.

        Raises:
            BatchTooLargeError: too many rows for a tablet, or for all tablets of a sorted target.
        """
        for tablet, rows in rows_by_tablet.items():
            tablets = self.tablet_count if tablet is None else 1
            if rows > self.rows_per_tablet * tablets:
                raise BatchTooLargeError(
                    f"The batch has {rows} rows for "
                    + (f"{tablets} tablets" if tablet is None else f"tablet {tablet}")
                    + f", and one transaction takes {self.rows_per_tablet} rows per tablet",
                    remedy="Lower max_rows_per_partition of the source, or give the target more "
                    "tablets (yt reshard-table)",
                    target=self.path,
                )


def prepare_target(
    connection: Connection,
    target: Target,
    frame: DataFrame,
    *,
    wire: str,
    rows_per_tablet: int,
) -> PreparedTarget:
    """Describe the table, compare it with the frame, and choose the wire format.

    Raises:
        TableError: there is no such table, it is static, or it is not mounted.
        SchemaMismatchError: the frame does not fit.
        ConfigError: an option contradicts the table, or the cluster does not take Arrow as asked.
    """
    info = describe_table(connection, target.path)
    info.require_mounted()
    if target.update_columns and not info.is_sorted:
        raise ConfigError(
            "update_columns needs a sorted target, this one is ordered",
            remedy="Leave update_columns out",
            target=target.path,
        )
    schema = (frame if target.transform is None else target.transform(frame)).schema
    plan = check_frame(
        arrow_of_spark(schema),
        TableSchema.from_yt(info.schema),
        target=target.path,
        sorted=info.is_sorted,
    )
    return PreparedTarget(
        path=target.path,
        transform=target.transform,
        update_columns=target.update_columns,
        is_sorted=info.is_sorted,
        tablet_count=info.tablet_count,
        plan=plan,
        wire=_choose_wire(connection, target.path, plan, wire),
        placement=Placement(None if info.is_sorted else info.tablet_count),
        rows_per_tablet=rows_per_tablet,
    )


def _choose_wire(connection: Connection, path: str, plan: WritePlan, wire: str) -> WireFormat:
    if wire == WireFormat.YSON or plan.arrow_obstacles:
        return WireFormat.YSON
    transaction = connection.begin(_PROBE_TIMEOUT)
    try:
        transaction.write(path, [[encode_empty(plan, WireFormat.ARROW)]], WireFormat.ARROW)
    except (RequestRefusedError, SchemaMismatchError) as error:
        if wire == WireFormat.ARROW:
            raise ConfigError(
                "The cluster does not take these rows as Arrow",
                remedy="Use wire_format='auto' or 'yson'",
                target=path,
            ) from error
        return WireFormat.YSON
    finally:
        transaction.abort()
    return WireFormat.ARROW
