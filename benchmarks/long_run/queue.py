"""The queue that is copied, and the rows in it."""

from __future__ import annotations

from io import BytesIO
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from yt.wrapper.format import ArrowFormat

if TYPE_CHECKING:
    from yt.wrapper import YtClient

QUEUE = "//home/benchmark/queue"
SCHEMA = [
    {"name": "id", "type_v3": "int64"},
    {"name": "key", "type_v3": "int64"},
    {"name": "amount", "type_v3": "double"},
    {"name": "text", "type_v3": "utf8"},
]
_ROWS_PER_REQUEST = 100_000
"""What one transaction may write into one tablet."""


def fill(client: YtClient, rows: int, partitions: int) -> None:
    """Write rows; row i has the id i, and goes to the partitions by turns."""
    for start in range(0, rows, _ROWS_PER_REQUEST):
        ids = np.arange(start, min(start + _ROWS_PER_REQUEST, rows))
        chunk = pa.table(
            {
                "$tablet_index": ids % partitions,
                "id": ids,
                "key": ids % 1000,
                "amount": ids / 4,
                "text": pa.array(ids * 10**12).cast(pa.string()),
            }
        )
        sink = BytesIO()
        with pa.ipc.new_stream(sink, chunk.schema) as writer:
            writer.write_table(chunk)
        with client.Transaction(type="tablet"):
            client.insert_rows(QUEUE, BytesIO(sink.getvalue()), format=ArrowFormat(), raw=True)
