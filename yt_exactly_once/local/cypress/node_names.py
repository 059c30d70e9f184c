"""Names of nodes: any bytes, kept as text.

A byte that is not part of UTF-8 becomes one character from the end of Unicode's last private plane. A name
that really has such a character is taken for bytes.
"""

from __future__ import annotations

import re
from typing import Any

from yt import yson

_RAW = 0x10FF00
_LOST = re.compile("[\udc80-\udcff]")
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f]")
_KEPT = re.compile("[\U0010ff80-\U0010ffff]")


def of(given: Any) -> str:
    """Return the text for a name that came as a key of a value, or as bytes."""
    if isinstance(given, str):
        return str(given)
    decoded = bytes(yson.get_bytes(given)).decode(errors="surrogateescape")
    return _LOST.sub(lambda found: chr(_RAW + ord(found.group()) - 0xDC00), decoded)


def to_wire(name: str) -> str | bytes:
    """Return a name as it is sent: text where it can be."""
    return encode(name) if _KEPT.search(name) else name


def encode(name: str) -> bytes:
    """Return the bytes of a name."""
    lost = _KEPT.sub(lambda found: chr(0xDC00 + ord(found.group()) - _RAW), name)
    return lost.encode(errors="surrogateescape")


def escape_bytes(name: str) -> str:
    r"""Return a name with its raw and unprintable bytes as paths spell them, such as `\xee`."""
    plain = _UNPRINTABLE.sub(lambda found: f"\\x{ord(found.group()):02x}", name)
    return _KEPT.sub(lambda found: f"\\x{ord(found.group()) - _RAW:02x}", plain)
