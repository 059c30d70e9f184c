"""How Spark's Python processes acknowledge a task.

Spark sends a worker its task and the input of the task one after the other, over TCP with Nagle's algorithm.
So the input waits until the worker has acknowledged the task, and Linux delays that by 40 ms.
"""

from __future__ import annotations

import os
import socket
import stat
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from yt_exactly_once.spark.tuning import Where, tuning

_OPEN_FILES = Path("/proc/self/fd")


class Sent:
    """What a worker gets as a part of its task. To unpickle it acknowledges the task."""

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        """Arrive, before Spark sends the input."""
        vars(self).update(state)
        acknowledge()


@tuning(
    what="sets `TCP_QUICKACK` on the connection to Spark: TCP connections from this machine to itself",
    where=Where.WORKER,
    why="Spark sends the input of a task when the task is acknowledged, and Linux delays that",
    gain="40 ms for each task",
    off="`spark.python.unix.domain.socket.enabled=true` takes its place",
)
def acknowledge() -> None:
    """Acknowledge what Spark has sent, and what it sends until this process answers, as it is read.

    Nobody tells which connection is the one to Spark. Spark runs on the same machine, so connections to
    other machines are none.
    """
    if sys.platform != "linux" or not _OPEN_FILES.is_dir():
        return
    for entry in _OPEN_FILES.iterdir():
        # Another thread may have closed it, and a socket that listens has no other end.
        with suppress(OSError):
            number = int(entry.name)
            if stat.S_ISSOCK(os.fstat(number).st_mode):
                with socket.socket(fileno=os.dup(number)) as connection:
                    if _is_local(connection):
                        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)


def _is_local(connection: socket.socket) -> bool:
    """Return whether this is TCP from this machine to itself; `OSError` without another end."""
    if connection.family not in {socket.AF_INET, socket.AF_INET6}:
        return False
    address: str = connection.getpeername()[0]
    is_local = address == "::1" or address.removeprefix("::ffff:").startswith("127.")
    return connection.type is socket.SOCK_STREAM and is_local
