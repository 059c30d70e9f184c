"""A target of changes, and the batches of queries that write it, without Spark: only the engine."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Self

import pyarrow as pa
from pyspark.sql.types import LongType, StringType, StructField, StructType

from tests.fan_out import Given, connect, deliver
from yt_exactly_once import Changes, Target, create_table

FIELDS = StructType(
    [
        StructField("key", LongType(), nullable=False),
        StructField("name", StringType()),
        StructField("lsn", LongType()),
        StructField("op", StringType()),
    ]
)

Change = tuple[int, int | None, str, str | None]
"""A key, its sequence, what is done to it, and the value."""

FIRST: list[Change] = [(1, 10, "c", "Ann"), (2, 20, "d", None)]


class Changed(Given):
    """Changes of one Spark partition.

    Args:
        city: of all changes; `None` if the DataFrame has no such column.
    """

    def __init__(self, *changes: Change, city: str | None = None) -> None:
        keys, sequences, operations, names = zip(*changes, strict=True) if changes else [()] * 4
        arrays = [
            pa.array(keys, pa.int64()),
            pa.array(names, pa.string()),
            pa.array(sequences, pa.int64()),
            pa.array(operations, pa.string()),
        ]
        self.schema = FIELDS
        if city is not None:
            self.schema = StructType([*FIELDS, StructField("city", StringType())])
            arrays.append(pa.array([city] * len(changes), pa.string()))
        super().__init__(pa.record_batch(arrays, self.schema.names))


@dataclass
class ChangedTarget:
    """A target with the key `key`, ordered by `lsn`."""

    client: Any
    proxy: str
    path: str
    changes: Changes = field(default_factory=lambda: Changes(sequence="lsn", operation="op"))

    def __post_init__(self) -> None:
        self.beside = f"{self.path}_tombstones"
        self.ledger = f"{self.path}_ledger"
        self.connection = connect(self.proxy)

    def create(self) -> Self:
        schema = StructType([each for each in FIELDS if each.name != "op"])
        create_table(self.path, schema, key_columns=["key"], proxy=self.proxy)
        return self

    def filled(self) -> Self:
        """Create it with a row, and a tombstone of another one."""
        self.create().write(*FIRST)
        return self

    def target(self, **options: Any) -> Target:
        return Target(self.path, **{"changes": self.changes, **options})

    def write(self, *changes: Change, number: int = 0, **options: Any) -> None:
        """Write one batch, as the first one of a run."""
        given = options.pop("given", None) or self.target()
        rows = Changed(*changes, city=options.pop("city", None))
        deliver(given, rows, number, proxy=self.proxy, **options)

    @property
    def rows(self) -> dict[int, Any]:
        """The names by their keys."""
        return {row["key"]: row["name"] for row in self.client.select_rows(f"* from [{self.path}]")}

    @property
    def tombstones(self) -> dict[int, int]:
        """The sequences of deleted keys."""
        rows = self.client.select_rows(f"* from [{self.beside}]")
        return {row["key"]: row["lsn"] for row in rows}
