"""Rows of every shape, as a Spark task or the driver gets them, made without Spark."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.modes.work import Shape
from yt_exactly_once.codec.row_hash import added, row_hashes
from yt_exactly_once.codec.rows import WireFormat, encode
from yt_exactly_once.codec.schema import (
    SOURCE_FIELDS,
    TableSchema,
    WritePlan,
    arrow_schema_of,
    check_frame,
)

ROWS = 50_000
"""Rows of a piece of work: one insert request of the sink."""

_ITEMS = 3


@dataclass(frozen=True)
class Sample:
    """Rows of one shape.

    Attributes:
        shape: what they look like.
        batch: as Spark hands them over.
        plan: how they become the table's.
        pulled: the Arrow fields that the source makes of them.
    """

    shape: Shape
    batch: pa.RecordBatch
    plan: WritePlan
    pulled: pa.Schema

    @classmethod
    def of(cls, shape: Shape) -> Sample:
        """Make the rows."""
        numbers = np.arange(ROWS)
        texts = sum(kind == "utf8" for kind in shape.types.values())
        fixed = 8 * (len(shape.types) - texts)
        width = (shape.row_bytes - fixed) // texts if texts else 8
        batch = pa.RecordBatch.from_arrays(
            [_column(kind, numbers, width) for kind in shape.types.values()],
            names=list(shape.types),
        )
        table = TableSchema.from_yt(shape.columns())
        plan = check_frame(batch.schema, table, target=f"//{shape.name}", sorted=False)
        pulled = pa.schema([*SOURCE_FIELDS, *arrow_schema_of(table)])
        return cls(shape, batch, plan, pulled)

    def payload(self, wire: WireFormat, tablet: int | None = 0) -> bytes:
        """Return the rows as the body of a request; a sorted table takes no tablet."""
        return encode(self.batch, self.plan, wire, tablet_index=tablet)

    def digest(self) -> int:
        """Return the digest of the rows, as the ledger keeps it on request."""
        return added(0, row_hashes(self.batch, self.plan.columns))


def _column(kind: Any, numbers: np.ndarray[Any, Any], width: int) -> pa.Array:
    """Return a column of a YTsaurus type with a value of its own in every row."""
    match kind:
        case "int64":
            return pa.array(numbers)
        case "double":
            return pa.array(numbers * 0.5)
        case "utf8":
            return pc.utf8_lpad(pa.array(numbers).cast(pa.string()), width, "x")
        case {"type_name": "list", "item": item}:
            offsets = pa.array(np.arange(len(numbers) + 1) * _ITEMS, pa.int32())
            return pa.ListArray.from_arrays(
                offsets, _column(item, np.repeat(numbers, _ITEMS), width)
            )
        case {"type_name": "struct", "members": members}:
            return pa.StructArray.from_arrays(
                [_column(member["type"], numbers, width) for member in members],
                names=[member["name"] for member in members],
            )
        case {"type_name": "dict", "key": key, "value": value}:
            offsets = pa.array(np.arange(len(numbers) + 1) * _ITEMS, pa.int32())
            entries = np.arange(len(numbers) * _ITEMS)
            return pa.MapArray.from_arrays(
                offsets, _column(key, entries, width), _column(value, entries, width)
            )
        case _:
            message = f"No rows of type {kind}"
            raise TypeError(message)
