"""Rows as a stream of Arrow."""

from __future__ import annotations

import io

import pyarrow as pa


def stream_of(rows: pa.Table | pa.RecordBatch, compression: str | None = None) -> bytes:
    """Return rows as a client sends them."""
    sink = io.BytesIO()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_stream(sink, rows.schema, options=options) as writer:
        writer.write(rows)
    return sink.getvalue()
