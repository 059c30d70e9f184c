"""Decimals as YTsaurus stores them, to and from Arrow, on whole arrays.

The stored form is a big-endian two's complement number of 4, 8, 16 or 32 bytes, chosen by
precision, with its sign bit flipped so that bytes sort as numbers do. Arrow keeps 16 or 32
little-endian bytes.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from yt_exactly_once.codec.buffers import scalar, to_numpy
from yt_exactly_once.codec.values import UnfitValueError, validated

_WIDTHS = ((9, 4), (18, 8), (38, 16), (76, 32))
_SIGN = np.uint8(0x80)


def stored_width(precision: int) -> int:
    """Return how many bytes a decimal of that precision takes."""
    return next(width for most, width in _WIDTHS if precision <= most)


def to_stored(array: pa.Array) -> pa.Array:
    """Encode a decimal array as fixed-size binary; nulls become arbitrary bytes."""
    width = stored_width(array.type.precision)
    own = array.type.byte_width
    raw = np.frombuffer(array.buffers()[1], np.uint8, len(array) * own, array.offset * own)
    # Little-endian: the low bytes lead. The high ones that are cut only repeat the sign.
    stored = raw.reshape(-1, own)[:, width - 1 :: -1].copy()
    stored[:, 0] ^= _SIGN
    return pa.Array.from_buffers(pa.binary(width), len(array), [None, pa.py_buffer(stored)])


def from_stored(array: pa.Array, target: pa.DataType) -> pa.Array:
    """Decode stored bytes, nulls too; raise `UnfitValueError` for NaN, the infinities, another width."""
    width = stored_width(target.precision)
    lengths = pc.fill_null(pc.binary_length(array), scalar(width, pa.int32()))
    odd = np.flatnonzero(to_numpy(lengths) != width)
    if len(odd):
        raise UnfitValueError(int(odd[0]), f"a {target} has {width} bytes")
    valid = array.is_valid() if array.null_count else None
    zero = scalar(bytes([_SIGN] + [0] * (width - 1)), pa.binary())
    filled = pc.fill_null(array, zero).cast(pa.binary(width))
    raw = np.frombuffer(filled.buffers()[1], np.uint8, len(array) * width, filled.offset * width)
    decoded = pa.Array.from_buffers(
        target, len(array), [None, pa.py_buffer(_widened(raw.reshape(-1, width), target))]
    )
    validated(decoded)
    return decoded if valid is None else pc.if_else(valid, decoded, scalar(None, target))


def _widened(stored: npt.NDArray[np.uint8], target: pa.DataType) -> npt.NDArray[np.uint8]:
    """Flip the sign back, turn the bytes round and repeat the sign into the bytes above."""
    width = stored.shape[1]
    wide = np.empty((len(stored), target.byte_width), np.uint8)
    wide[:, :width] = stored[:, ::-1]
    wide[:, width - 1] ^= _SIGN
    wide[:, width:] = np.where(wide[:, width - 1 : width] & _SIGN, np.uint8(0xFF), np.uint8(0))
    return wide
