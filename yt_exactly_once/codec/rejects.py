"""Rows that their table cannot take: found one by one, and described for the table of rejected rows.

The search runs only when encoding a chunk has failed, so rows without a fault cost nothing.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from yt_exactly_once.codec import schema
from yt_exactly_once.codec.limits import TOO_HEAVY, heavy_rows
from yt_exactly_once.codec.rows import WireFormat, check_column, coordinates, encode, value_at
from yt_exactly_once.codec.values import UnfitValueError

REJECT_SCHEMA: list[dict[str, Any]] = [
    {"name": "query_id", "type": "string", "required": True},
    {"name": "batch_id", "type": "int64", "required": True},
    {"name": "target", "type": "string", "required": True},
    {"name": "source_queue", "type": "string"},
    {"name": "source_partition", "type": "int64"},
    {"name": "source_row", "type": "int64"},
    {"name": "column", "type": "string", "required": True},
    {"name": "reason", "type": "string", "required": True},
    {"name": "row", "type": "string"},
    *schema.SYSTEM_COLUMNS,
]
"""Columns of a table of rejected rows, which is a queue."""

MARKER_IS_NULL = "the delete marker is null"

LONGEST_ROW = 1 << 20
"""Most characters of a rejected row's JSON; a longer one is left out."""

_NO_NUMBERS = {"NaN": "nan", "Infinity": "inf", "-Infinity": "-inf"}
_TABLE = schema.TableSchema.from_yt(REJECT_SCHEMA)
REJECT_ARROW = schema.arrow_schema_of(schema.TableSchema(_TABLE.writable_columns))


class Fault(NamedTuple):
    """Why a row cannot be written."""

    row: int
    column: str
    reason: str


@dataclass(frozen=True)
class Rejects:
    """Where the rejected rows of a batch go, and what is stored with them."""

    path: str
    query_id: str
    batch_id: int

    def encode(self, batch: pa.RecordBatch, faults: list[Fault], target: str) -> bytes | memoryview:
        """Describe the rows with a fault, as the body of one request."""
        rows = batch.take(pa.array([fault.row for fault in faults]))
        described = [
            {
                "query_id": self.query_id,
                "batch_id": self.batch_id,
                "target": target,
                **coordinates(rows, place),
                "column": fault.column,
                "reason": fault.reason,
                "row": _json(rows, place),
            }
            for place, fault in enumerate(faults)
        ]
        plan = schema.check_frame(REJECT_ARROW, _TABLE, target=self.path, sorted=False)
        letters = pa.RecordBatch.from_pylist(described, REJECT_ARROW)
        return encode(letters, plan, WireFormat.YSON, tablet_index=0)


def find_faults(
    batch: pa.RecordBatch, plan: schema.WritePlan, wire: WireFormat, marker: str
) -> list[Fault]:
    """Find every row that cannot be written, and one reason for each.

    Args:
        marker: column that marks rows of which only the key counts; may be empty.
    """
    everything = np.arange(batch.num_rows)
    found: dict[int, Fault] = {}
    with_values = everything
    if marker:
        marked = batch.column(marker)
        for row in np.flatnonzero(np.asarray(marked.is_null())).tolist():
            found[row] = Fault(row, marker, MARKER_IS_NULL)
        with_values = np.flatnonzero(~np.asarray(marked.fill_null(True)))
    for column in plan.columns:
        rows = everything if column.is_key else with_values
        part = batch.take(pa.array(rows)) if len(rows) < batch.num_rows else batch
        for place, reason in _unfit(part, column, wire):
            row = int(rows[place])
            found.setdefault(row, Fault(row, column.name, reason))
    fitting = np.setdiff1d(with_values, np.fromiter(found, np.int64, len(found)))
    for place in heavy_rows(batch.take(pa.array(fitting)), plan):
        row = int(fitting[place])
        found[row] = Fault(row, plan.columns[0].name, TOO_HEAVY)
    return [found[row] for row in sorted(found)]


def without(batch: pa.RecordBatch, faults: list[Fault]) -> pa.RecordBatch:
    """Return the rows that have none of the faults, in their order."""
    kept = np.ones(batch.num_rows, bool)
    kept[[fault.row for fault in faults]] = False
    return batch.filter(pa.array(kept))


def _unfit(
    batch: pa.RecordBatch, column: schema.ColumnSchema, wire: WireFormat, start: int = 0
) -> Iterator[tuple[int, str]]:
    """Halve the rows until every one that does not fit is alone."""
    try:
        check_column(batch, column, wire)
    except UnfitValueError as error:
        if batch.num_rows == 1:
            yield start, f"{column.name}{error.place} as {column.type}: {error.problem}"
            return
        half = batch.num_rows // 2
        yield from _unfit(batch.slice(0, half), column, wire, start)
        yield from _unfit(batch.slice(half), column, wire, start + half)


def _json(rows: pa.RecordBatch, place: int) -> str | None:
    values = {
        field.name: value_at(rows.column(number), place)
        for number, field in enumerate(rows.schema)
        if not schema.is_reserved(field.name)
    }
    # JSON has no NaN and no infinities: Python writes them as bare words.
    plain = json.loads(json.dumps(values, default=_as_text), parse_constant=_NO_NUMBERS.get)
    text = json.dumps(plain, ensure_ascii=False)
    return text if len(text) <= LONGEST_ROW else None


def _as_text(value: Any) -> str:
    return base64.b64encode(value).decode() if isinstance(value, bytes) else str(value)
