"""FarmHash fingerprints, bit for bit as computed columns of sorted tables use them.

Owns the hash alone: the "na" variant of Google's FarmHash for byte strings, its integer fingerprint,
and the way a fingerprint of several values is combined.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from yt_exactly_once.local.ql.value_types import Type

if TYPE_CHECKING:
    from collections.abc import Sequence

_MASK = 0xFFFF_FFFF_FFFF_FFFF
_K0 = 0xC3A5C85C97CB3127
_K1 = 0xB492B66FBE98F273
_K2 = 0x9AE16A3B2F90404F
_MULTIPLIER = 0x9DDFEA08EB382D69
_SEED = 0xDEADC0DE

_BLOCK = 64
_SHORT, _MEDIUM = 16, 32

_pack_double = struct.Struct("<d").pack


def fingerprint_of_values(types: Sequence[Type], values: Sequence[Any]) -> int:
    """Combine the fingerprints of values, as the function `farm_hash` does."""
    result = _SEED
    for kind, value in zip(types, values, strict=True):
        result = _combine(result, fingerprint_of_value(kind, value))
    return result ^ len(values)


def fingerprint_of_value(kind: Type, value: Any) -> int:
    """Return the fingerprint of one value; null hashes like zero."""
    if value is None:
        return fingerprint_of_integer(0)
    if kind is Type.STRING:
        return fingerprint_of_bytes(value)
    if kind is Type.DOUBLE:
        return fingerprint_of_integer(int.from_bytes(_pack_double(value), "little"))
    return fingerprint_of_integer(int(value) & _MASK)


def fingerprint_of_integer(value: int) -> int:
    """Return the fingerprint of 64 bits."""
    mixed = value * _MULTIPLIER & _MASK
    mixed = (mixed ^ mixed >> 44) * _MULTIPLIER & _MASK
    return (mixed ^ mixed >> 41) * _MULTIPLIER & _MASK


def fingerprint_of_bytes(data: bytes) -> int:
    """Return the fingerprint of a byte string."""
    length = len(data)
    if length <= _SHORT:
        return _hash_short(data)
    if length <= _MEDIUM:
        return _hash_medium(data)
    if length <= _BLOCK:
        return _hash_block(data)
    return _hash_long(data)


def _combine(first: int, second: int) -> int:
    low = (first ^ second) * _MULTIPLIER & _MASK
    low ^= low >> 47
    high = (second ^ low) * _MULTIPLIER & _MASK
    high = (high ^ high >> 44) * _MULTIPLIER & _MASK
    return (high ^ high >> 41) * _MULTIPLIER & _MASK


def _word(data: bytes, offset: int, size: int = 8) -> int:
    return int.from_bytes(data[offset : offset + size], "little")


def _rotate(value: int, shift: int) -> int:
    value &= _MASK
    return (value >> shift | value << 64 - shift) & _MASK


def _shift_mix(value: int) -> int:
    value &= _MASK
    return value ^ value >> 47


def _mix(first: int, second: int, multiplier: int) -> int:
    low = _shift_mix((first ^ second & _MASK) * multiplier)
    high = _shift_mix((second & _MASK ^ low) * multiplier)
    return high * multiplier & _MASK


def _hash_short(data: bytes) -> int:
    length = len(data)
    multiplier = _K2 + length * 2
    if length >= 8:  # noqa: PLR2004 - a whole word fits
        first = _word(data, 0) + _K2
        second = _word(data, length - 8)
        left = _rotate(second, 37) * multiplier + first
        right = (_rotate(first, 25) + second) * multiplier
        return _mix(left & _MASK, right, multiplier)
    if length >= 4:  # noqa: PLR2004 - half a word fits
        left = length + (_word(data, 0, 4) << 3)
        return _mix(left, _word(data, length - 4, 4), multiplier)
    if length:
        low = data[0] + (data[length >> 1] << 8)
        high = length + (data[-1] << 2)
        return _shift_mix(low * _K2 & _MASK ^ high * _K0 & _MASK) * _K2 & _MASK
    return _K2


def _hash_medium(data: bytes) -> int:
    length = len(data)
    multiplier = _K2 + length * 2
    first = _word(data, 0) * _K1
    second = _word(data, 8)
    third = _word(data, length - 8) * multiplier
    fourth = _word(data, length - 16) * _K2
    left = _rotate(first + second, 43) + _rotate(third, 30) + fourth
    right = first + _rotate(second + _K2, 18) + third
    return _mix(left & _MASK, right, multiplier)


def _hash_block(data: bytes) -> int:
    length = len(data)
    multiplier = _K2 + length * 2
    first = _word(data, 0) * _K2
    second = _word(data, 8)
    third = _word(data, length - 8) * multiplier
    fourth = _word(data, length - 16) * _K2
    left = _rotate(first + second, 43) + _rotate(third, 30) + fourth
    right = _mix(left & _MASK, first + _rotate(second + _K2, 18) + third, multiplier)
    fifth = _word(data, 16) * multiplier
    sixth = _word(data, 24)
    seventh = (left + _word(data, length - 32)) * multiplier
    eighth = (right + _word(data, length - 24)) * multiplier
    low = _rotate(fifth + sixth, 43) + _rotate(seventh, 30) + eighth
    high = fifth + _rotate(sixth + first, 18) + seventh
    return _mix(low & _MASK, high, multiplier)


def _weak_pair(data: bytes, offset: int, first: int, second: int) -> tuple[int, int]:
    first += _word(data, offset)
    second = _rotate(second + first + _word(data, offset + 24), 21)
    start = first
    first += _word(data, offset + 8) + _word(data, offset + 16)
    second += _rotate(first, 44)
    return (first + _word(data, offset + 24)) & _MASK, (second + start) & _MASK


class _LongState:
    """The 56 bytes of state that are carried over the blocks of a long string."""

    def __init__(self, data: bytes) -> None:
        seed = 81
        self.x = seed * _K2 + _word(data, 0)
        self.y = seed * _K1 + 113
        self.z = _shift_mix(self.y * _K2 + 113) * _K2
        self.v = (0, 0)
        self.w = (0, 0)

    def absorb(self, data: bytes, offset: int, multiplier: int, weights: tuple[int, int]) -> None:
        """Mix in one block."""
        (v0, v1), (w0, w1) = self.v, self.w
        weight_w, weight_v = weights
        x = _rotate(self.x + self.y + v0 + _word(data, offset + 8), 37) * multiplier
        y = _rotate(self.y + v1 + _word(data, offset + 48), 42) * multiplier
        x = (x ^ w1 * weight_w & _MASK) & _MASK
        y += v0 * weight_v + _word(data, offset + 40)
        z = _rotate(self.z + w0, 33) * multiplier
        self.v = _weak_pair(data, offset, v1 * multiplier, x + w0)
        self.w = _weak_pair(data, offset + 32, z + w1, y + _word(data, offset + 16))
        self.x, self.y, self.z = z & _MASK, y & _MASK, x


def _hash_long(data: bytes) -> int:
    state = _LongState(data)
    for offset in range(0, (len(data) - 1) // _BLOCK * _BLOCK, _BLOCK):
        state.absorb(data, offset, _K1, (1, 1))
    multiplier = _K1 + ((state.z & 0xFF) << 1)
    w0 = state.w[0] + (len(data) - 1 & _BLOCK - 1)
    v0 = state.v[0] + w0
    state.w = (w0 + v0, state.w[1])
    state.v = (v0, state.v[1])
    state.absorb(data, len(data) - _BLOCK, multiplier, (9, 9))
    (v0, v1), (w0, w1) = state.v, state.w
    left = _mix(v0, w0, multiplier) + _shift_mix(state.y) * _K0 + state.z
    return _mix(left & _MASK, _mix(v1, w1, multiplier) + state.x, multiplier)
