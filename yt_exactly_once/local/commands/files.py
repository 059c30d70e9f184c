"""Commands of files: write_file and read_file."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from typing import Any

from yt_exactly_once.local import arguments
from yt_exactly_once.local.commands import streams
from yt_exactly_once.local.commands.cypress import path_of, view_of
from yt_exactly_once.local.commands.registry import Context, command
from yt_exactly_once.local.commands.sessions import note_access
from yt_exactly_once.local.commands.whole_tables import allowed
from yt_exactly_once.local.cypress import chunks, clock, locks, master_transactions, quotas
from yt_exactly_once.local.errors import YtError


@command("write_file", input_type="binary", volatile=True, heavy=True)
def write_file(context: Context) -> Any:
    """Replace the content of a file, or append to it with `<append=%true>`."""
    path = path_of(context)
    append = arguments.flag(dict(path.attributes), "append")
    pieces = list(context.read_bytes())
    with context.proxy.store.write() as connection:
        master_transactions.expire(connection)
        view = view_of(context, connection)
        node_id = allowed(view, path, "write", "file").id
        locks.acquire(view, node_id, locks.SHARED if append else locks.EXCLUSIVE)
        quotas.check(view, node_id, "chunk_count", "disk_space", more=1)
        chunks.write(view, node_id, [(piece, 0) for piece in pieces], append=append)
        clock.touch(view, node_id, "content")
    return {}


@command("read_file", output_type="binary", heavy=True)
def read_file(context: Context) -> Iterator[bytes]:
    """Read a file, or the part of it between `offset` and `offset + length`."""
    path = path_of(context)
    offset = arguments.integer(context.parameters, "offset", 0)
    length = arguments.integer(context.parameters, "length", None)
    if offset < 0 or (length is not None and length < 0):
        raise YtError('Parameters "offset" and "length" must not be negative')

    def read(connection: sqlite3.Connection) -> Iterator[bytes]:
        view = view_of(context, connection)
        node = allowed(view, path, "read", "file")
        context.etag = f"{node.id}:{node.attributes['revision']}"
        context.response_parameters["id"] = node.id
        note_access(context, node.id)
        return chunks.iterate(view, node.id, offset, length)

    return streams.from_snapshot(context.proxy.store, read)
