"""Which tablet of an ordered target takes a row.

Decided by the Spark partition of the row alone, or by a column that Spark computes for it. Rows of one
Spark partition that go to one tablet keep their order there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyspark.sql.functions as sf

from yt_exactly_once.codec.schema import RESERVED_PREFIX, SOURCE_TABLET_COLUMN
from yt_exactly_once.errors import ConfigError, EncodingError
from yt_exactly_once.spark.sink.columns import sent
from yt_exactly_once.spark.sink.target import BY_PARTITION, PRESERVE

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

TABLET_COLUMN = f"{RESERVED_PREFIX}tablet"
"""DataFrame column with the tablet of a row, where its Spark partition does not decide."""

# `monotonically_increasing_id` puts the partition above 33 bits of the index of the row in it.
_INDEX_BITS = 33


@dataclass(frozen=True)
class Placement:
    """The rule for one target.

    Attributes:
        tablet_count: tablets of an ordered target; `None` for a sorted one, where keys decide.
        rule: a value of the option `placement`, or the columns whose hash decides.
        turn: tablet of Spark partition 0, modulo their number, where the Spark partition decides.
    """

    tablet_count: int | None
    rule: str | tuple[str, ...] = BY_PARTITION
    turn: int = 0

    @property
    def is_by_partition(self) -> bool:
        """Whether no column decides the tablet: the Spark partition does, or the key of a sorted target."""
        return self.rule == BY_PARTITION

    def require_columns(self, names: Sequence[str], target: str) -> None:
        """Raise `ConfigError` if the DataFrame lacks what the rule needs, or the target is sorted."""
        if self.is_by_partition:
            return
        if self.tablet_count is None:
            raise ConfigError(
                "placement needs an ordered target, this one is sorted: keys choose the tablets",
                remedy="Leave placement out",
                target=target,
            )
        needed: Sequence[str] = self.rule if isinstance(self.rule, tuple) else ()
        if self.rule == PRESERVE:
            needed = (SOURCE_TABLET_COLUMN,)
        missing = [name for name in needed if name not in names]
        if missing:
            raise ConfigError(
                f"placement needs the DataFrame's column {missing[0]}",
                remedy="Read with the option include_service_columns=true, and keep the column"
                if self.rule == PRESERVE
                else f"Choose from: {', '.join(names)}",
                target=target,
            )
        if several := [name for name in needed if names.count(name) > 1]:
            raise ConfigError(
                f"placement needs one column {several[0]}, and the DataFrame has it more than once",
                remedy="Rename or drop the others: a join of two queues has the service columns of both",
                target=target,
            )

    def placed(self, frame: DataFrame) -> DataFrame:
        """Return the DataFrame with the tablet of every row, unless its Spark partition decides."""
        if self.is_by_partition:
            return frame
        names = frame.columns
        plain = sent(frame, names, names)
        tablet = self._column(dict(zip(names, plain.columns, strict=True))).cast("bigint")
        placed = plain.withColumn(TABLET_COLUMN, tablet)
        return placed if plain.columns == names else placed.toDF(*names, TABLET_COLUMN)

    def split(
        self, rows: pa.RecordBatch, partition: int
    ) -> Iterator[tuple[int | None, pa.RecordBatch]]:
        """Yield the rows of every tablet; all of them, and `None`, where keys choose; see `tablets`."""
        tablets = self.tablets(rows, partition)
        if not isinstance(tablets, pa.Array):
            yield tablets, rows
            return
        found = sorted(pc.unique(tablets).to_pylist())
        if len(found) == 1:
            yield found[0], rows
            return
        for tablet in found:
            yield tablet, rows.filter(pc.equal(tablets, tablet))

    def tablets(
        self, rows: pa.RecordBatch, partition: int | pa.IntegerArray
    ) -> int | pa.IntegerArray | None:
        """Return the tablet of all rows or of each, the same for every attempt; `None` where keys choose.

        Args:
            rows: of the DataFrame that `placed` returned; `EncodingError` if there are not so many tablets.
            partition: the Spark partition of all rows or of each.
        """
        if self.tablet_count is None:
            return None
        if self.is_by_partition:
            if isinstance(partition, int):
                return (partition + self.turn) % self.tablet_count
            turned = (partition.to_numpy() + self.turn) % self.tablet_count
            return pa.array(turned, pa.int64())
        tablets = rows.column(TABLET_COLUMN)
        if rows.num_rows == 0:
            return tablets
        ends = pc.min_max(tablets).as_py()
        wrong = [end for end in ends.values() if not 0 <= (end or 0) < self.tablet_count]
        if tablets.null_count or wrong:
            found = "no queue partition" if tablets.null_count else f"queue partition {wrong[0]}"
            raise EncodingError(
                f"A row comes from {found}, and the target has {self.tablet_count} tablets",
                remedy="Give the target as many tablets as the queue has, or choose another placement",
            )
        return tablets

    def _column(self, plain: Mapping[str, str]) -> Column:
        """Return the tablet of a row.

        Args:
            plain: names by which Spark finds the columns, see `sent`.
        """
        count = sf.lit(self.tablet_count)
        match self.rule:
            case tuple(names):
                return sf.pmod(sf.xxhash64(*(sf.col(plain[name]) for name in names)), count)
            case "preserve":
                return sf.col(plain[SOURCE_TABLET_COLUMN])
            case _:
                identity = sf.monotonically_increasing_id()
                partition = sf.shiftright(identity, _INDEX_BITS)
                return sf.pmod(identity - sf.shiftleft(partition, _INDEX_BITS) + partition, count)
