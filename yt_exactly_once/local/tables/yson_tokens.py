"""Tokens of many binary YSON values at once, without a Python object per token.

Only what the cluster itself would write is known here: binary scalars, a separator after every item. Other
spellings of YSON are left to the parser of the client library.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from yt_exactly_once.local.tables import types

STRING, INT64, DOUBLE, FALSE, TRUE, UINT64 = range(1, 7)
ENTITY, OPEN, CLOSE, SEPARATOR = b"#[];"
MARKS = {
    **dict.fromkeys(types.SIGNED, INT64),
    **dict.fromkeys(types.UNSIGNED, UINT64),
    **dict.fromkeys(types.FLOATING, DOUBLE),
    **dict.fromkeys(types.STRING_LIKE, STRING),
}
"""By type, the first byte of a value that is not null."""

PADDING = bytes(16)
"""What bytes that are read by vector are followed by."""

_BITS = 7
_MORE = 0x80
_LAST_SHIFT = 63


class UnknownSpellingError(Exception):
    """The bytes are not the YSON that this module knows."""


def require(condition: Any) -> None:
    """Raise `UnknownSpellingError` if something does not hold."""
    if not condition:
        raise UnknownSpellingError


def varints(data: Any, places: Any) -> tuple[Any, Any]:
    """Return the numbers that begin at places, and how many bytes each takes."""
    found = data[places]
    numbers = (found & np.uint8(_MORE - 1)).astype(np.uint64)
    sizes = np.ones(len(places), np.int32)
    longer = np.flatnonzero(found >= _MORE)
    shift = 0
    while len(longer):
        shift += _BITS
        require(shift <= _LAST_SHIFT)
        found = data[places[longer] + sizes[longer]]
        sizes[longer] += 1
        # A last byte of zero is one too many, and the tenth byte has one bit.
        require(found.all() and (shift < _LAST_SHIFT or (found == 1).all()))
        numbers[longer] |= (found & np.uint8(_MORE - 1)).astype(np.uint64) << np.uint64(shift)
        longer = longer[found >= _MORE]
    return numbers, sizes


def unzigzag(numbers: Any) -> Any:
    """Return the signed numbers that unsigned ones stand for."""
    one = np.uint64(1)
    return ((numbers >> one) ^ (~(numbers & one) + one)).view(np.int64)


def between(data: Any, begins: Any, ends: Any, null: Any = None, ranks: Any = None) -> Any:
    """Return the bytes between places, which follow each other in the data; null where a mask says so.

    With ranks they come in another order.
    """
    # One array of what is asked for and of what lies between, in turn; then the former alone.
    edges = np.empty(2 * len(begins) + 1, np.int64)
    edges[0:-1:2], edges[1::2], edges[-1] = begins, ends, len(data)
    buffers = [None, pa.py_buffer(edges), pa.py_buffer(data)]
    turns = pa.Array.from_buffers(pa.large_binary(), 2 * len(begins), buffers)
    wanted = np.arange(len(begins)) if ranks is None else ranks
    return turns.take(pa.array(2 * wanted, mask=null))
