"""Rows that their table cannot take: found one by one, and described for the table of rejected rows.

The search runs only when encoding a chunk has failed, so rows without a fault cost nothing.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from yt_exactly_once.codec import schema
from yt_exactly_once.codec.arrow_types import as_json
from yt_exactly_once.codec.limits import TOO_HEAVY, heavy_rows
from yt_exactly_once.codec.readable import Json, bare, shown
from yt_exactly_once.codec.rows import WireFormat, check_column, coordinates, encode
from yt_exactly_once.codec.values import UnfitValueError
from yt_exactly_once.config import PLAIN_WRITE, WriteOptions

ROW_ARROW = "row_arrow"
"""Column with the row as the DataFrame had it, an Arrow IPC stream; the column `row` is its JSON to read."""

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
    {"name": ROW_ARROW, "type": "string"},
    *schema.SYSTEM_COLUMNS,
]
"""Columns of a table of rejected rows, which is a queue."""

EARLIER_SCHEMA = [column for column in REJECT_SCHEMA if column["name"] != ROW_ARROW]
"""The columns that tables of an earlier version have."""

MARKER_IS_NULL = "the delete marker is null"

LONGEST_ROW = 1 << 20
"""Most bytes of a rejected row, and most characters of its JSON; a longer one is left out."""

_MARKER, _WRITE = b"delete_marker", b"write"
_TABLE = schema.TableSchema.from_yt(REJECT_SCHEMA)
REJECT_ARROW = schema.arrow_schema_of(
    schema.TableSchema(_TABLE.writable_columns), binary_strings=True
)


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

    def encode(
        self,
        batch: pa.RecordBatch,
        faults: list[Fault],
        target: str,
        marker: str,
        variants: Collection[str] = (),
        write: WriteOptions = PLAIN_WRITE,
    ) -> bytes | memoryview:
        """Describe the rows with a fault, as the body of one request.

        Args:
            marker: see `find_faults`.
            variants: columns that are JSON of variants.
            write: how the rows would have been written.
        """
        described = []
        fields = [as_json(field) if field.name in variants else field for field in batch.schema]
        batch = pa.RecordBatch.from_arrays(batch.columns, schema=pa.schema(fields))
        for fault in faults:
            kept, text = packed(batch.slice(fault.row, 1), marker, write)
            described.append(
                {
                    "query_id": self.query_id,
                    "batch_id": self.batch_id,
                    "target": target,
                    **coordinates(batch, fault.row),
                    "column": fault.column,
                    "reason": fault.reason,
                    "row": text,
                    ROW_ARROW: kept,
                }
            )
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
        chosen = batch.take(pa.array(rows)) if len(rows) < batch.num_rows else batch
        for position, reason in _unfit(chosen, column, wire):
            row = int(rows[position])
            found.setdefault(row, Fault(row, column.name, reason))
    fitting = np.setdiff1d(with_values, np.fromiter(found, np.int64, len(found)))
    for position in heavy_rows(batch.take(pa.array(fitting)), plan):
        row = int(fitting[position])
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
            yield start, f"{column.name}{error.path} as {column.type}: {error.problem}"
            return
        half = batch.num_rows // 2
        yield from _unfit(batch.slice(0, half), column, wire, start)
        yield from _unfit(batch.slice(half), column, wire, start + half)


def readable(row: pa.RecordBatch) -> dict[str, Json]:
    """Return the only row of a batch by columns, as JSON has it."""
    return dict(zip(row.schema.names, map(shown, row.columns), strict=True))


class Unpacked(NamedTuple):
    """What a letter keeps.

    Attributes:
        marker: the delete marker among its columns, or nothing.
        write: how it would have been written; an earlier version did not say.
    """

    row: pa.RecordBatch
    marker: str
    write: WriteOptions


def packed(
    row: pa.RecordBatch, marker: str, write: WriteOptions = PLAIN_WRITE
) -> tuple[bytes | None, str | None]:
    """Return the only row of a batch, and its JSON, as a letter keeps them; each nothing if it is too long.

    Args:
        marker: see `find_faults`.
        write: see `Unpacked`.
    """
    # By position: service columns may be there twice.
    own = [n for n, name in enumerate(row.schema.names) if not schema.is_reserved(name)]
    row = row.select(own).replace_schema_metadata(
        {_MARKER: marker, _WRITE: json.dumps(write.parameters)}
    )
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, row.schema) as stream:
        stream.write_batch(row)
    kept = sink.getvalue().to_pybytes()
    if len(kept) > LONGEST_ROW:
        return None, None
    text = json.dumps(readable(row), ensure_ascii=False)
    return kept, text if len(text) <= LONGEST_ROW else None


def unpacked(kept: bytes) -> Unpacked:
    """Return the row of a letter, and how it is written, or raise `ValueError`."""
    try:
        row = pa.ipc.open_stream(kept).read_next_batch()
        # What is no text, or has too many digits, may be why it is a letter.
        for column in row.columns:
            column.view(bare(column.type)).validate(full=True)
        metadata = row.schema.metadata or {}
        marker = metadata[_MARKER].decode()
        write = WriteOptions(**json.loads(metadata.get(_WRITE, b"{}")))
    except (
        pa.ArrowException, OSError, StopIteration, LookupError, TypeError, ValueError,
    ) as error:  # fmt: skip
        raise ValueError("it is no row in Arrow") from error
    if row.num_rows != 1 or (marker and marker not in row.schema.names):
        raise ValueError("it is not one row")
    return Unpacked(row, marker, write)
