"""Locks that a client takes with its modifications, in the three forms that clients send."""

from __future__ import annotations

from typing import Any

from yt_exactly_once.local.errors import YtError
from yt_exactly_once.local.tables.layout import TableLayout

_TYPES = ("none", "shared_weak", "shared_strong", "exclusive", "shared_write")
_MASK_BITS, _LEGACY_BITS = 4, 2
_WORD_BITS = 64


def of_request(request: Any, layout: TableLayout, count: int) -> list[dict[str, str]]:
    """Return the locks of each row by name of lock group; nothing when no row takes any."""
    if request.row_locks:
        given = [_of_mask(mask, layout) for mask in request.row_locks]
    elif any(request.row_legacy_locks):
        given = [_unpacked(bits, _LEGACY_BITS, 32, layout) for bits in request.row_legacy_locks]
    elif any(request.row_legacy_read_locks):
        given = [_unpacked(bits, 1, 32, layout) for bits in request.row_legacy_read_locks]
    else:
        return []
    if len(given) != count:
        raise YtError(f"There are {len(given)} lock masks for {count} rows")
    return given if any(given) else []


def _of_mask(mask: Any, layout: TableLayout) -> dict[str, str]:
    per_word = _WORD_BITS // _MASK_BITS
    found: dict[str, str] = {}
    for number, word in enumerate(mask.bitmap):
        found |= _unpacked(word, _MASK_BITS, per_word, layout, number * per_word)
    return found


def _unpacked(
    bits: int, width: int, count: int, layout: TableLayout, first: int = 0
) -> dict[str, str]:
    found = {}
    for index in range(count):
        kind = bits >> index * width & (1 << width) - 1
        if not kind:
            continue
        if kind >= len(_TYPES) or first + index >= len(layout.locks):
            raise YtError(f"A lock mask names lock {first + index} of type {kind}")
        found[layout.locks[first + index]] = _TYPES[kind]
    return found
