"""What both fronts do to sockets."""

from __future__ import annotations

import contextlib
import socket
import struct
from typing import Any


def reset(transport: Any) -> None:
    """Close a connection so that the client sees a reset, not an end."""
    if transport is None:
        return
    connection = transport.get_extra_info("socket")
    with contextlib.suppress(OSError, AttributeError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    transport.abort()
