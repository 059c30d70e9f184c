"""How much memory rows that are read may take.

Most bytes of YSON become fewer bytes of Arrow, or about three times as many: `[1;1;1]`. Only what is written
briefly and takes the width of its type can become more: nulls of wide structs, and columns that rows lack.
"""

from __future__ import annotations

import pyarrow as pa

from yt_exactly_once.codec.values import UnfitValueError

_PER_BYTE = 3
_FLOOR = 2 << 20
_NUMBER = 8


class Room:
    """What may be taken for nulls in rows of some bytes; other values take little more than their bytes."""

    def __init__(self, size: int) -> None:
        self._left = _FLOOR + _PER_BYTE * size

    def take(self, nulls: int, kind: pa.DataType) -> None:
        """Count nulls of a type; raise `UnfitValueError` if nothing is left for them."""
        self._left -= nulls * width(kind)
        if self._left < 0:
            raise UnfitValueError(
                0, "the rows lack columns, or parts of it are null, and take too much memory"
            )


def width(kind: pa.DataType) -> int:
    """Return how many bytes of Arrow a null may take."""
    if pa.types.is_struct(kind):
        return 1 + sum(width(field.type) for field in kind)
    return _NUMBER + 1
