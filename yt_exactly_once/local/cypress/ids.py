"""Object ids: four hexadecimal groups whose third carries the type of the object.

Clients look into ids, so the type numbers are those of `yt/yt/client/object_client/public.h`.
"""

from __future__ import annotations

import re
import secrets
import struct

_TYPES = """
    transaction=1 atomic_tablet_transaction=2 non_atomic_tablet_transaction=3 nested_transaction=4
    chunk=100 lock=200
    string_node=300 int64_node=301 double_node=302 map_node=303 list_node=304 boolean_node=305 uint64_node=306
    file=400 table=401 link=417 document=421
    account=500 user=501 group=502
    tablet_cell=700 tablet=702 tablet_cell_bundle=706
"""
TYPES = {name: int(number) for name, number in (pair.split("=") for pair in _TYPES.split())}
NULL = "0-0-0-0"
CELL_TAG = 1
CELL_ID = "1-1-102bc-1"
"""The tablet cell that every new cluster has and every mounted tablet is shown in."""

_ID = re.compile(r"[0-9a-f]{1,8}(-[0-9a-f]{1,8}){3}", re.IGNORECASE)


def make_id(object_type: str) -> str:
    """Make an id for a new object."""
    # One call of the kernel.
    high, low, last = struct.unpack("3I", secrets.token_bytes(12))
    return f"{high:x}-{low:x}-{CELL_TAG << 16 | TYPES[object_type]:x}-{last:x}"


def is_id(text: str) -> bool:
    """Tell whether a text has the form of an object id."""
    return _ID.fullmatch(text) is not None


def type_number(object_id: str) -> int:
    """Return the type that an id carries."""
    return int(object_id.split("-")[2], 16) & 0xFFFF


def cell_tag(object_id: str) -> int:
    """Return the tag of the master cell that an id carries."""
    return int(object_id.split("-")[2], 16) >> 16
