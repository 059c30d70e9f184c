"""Key ranges as SQL that makes SQLite seek.

Owns the spelling for both kinds of tables: blobs against `"$key"`, or numbers against tablet and row
index. Several ranges become a table of bounds that drives the read: alternatives joined by OR would be
tried on every row once there are many.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from yt_exactly_once.local.ql.binding.source import ROW_INDEX, SQL_ALIAS, TABLET_INDEX
from yt_exactly_once.local.ql.ranges import EVERYTHING
from yt_exactly_once.local.tables.keys import AFTER

if TYPE_CHECKING:
    from yt_exactly_once.local.ql.binding.source import Source
    from yt_exactly_once.local.ql.ranges import KeyRange, KeyRanges

_BIAS = 1 << 63
_ENCODED_INT64 = 9
_ROW_LIMITS = (0, _BIAS - 1)


@dataclass(frozen=True)
class KeyAccess:
    """How the key ranges of a condition enter a statement.

    Attributes:
        driver: what precedes the table in FROM, possibly nothing.
        conditions: what is added to WHERE.
    """

    driver: str = ""
    conditions: tuple[str, ...] = ()


def key_access(ranges: KeyRanges, source: Source) -> KeyAccess:
    """Return the way into a table; an empty one when every row may qualify."""
    if not ranges.boxes:
        return KeyAccess(conditions=("0",))
    merged = ranges.merged()
    if source.layout.sorted:
        return _through_key(merged, f'{SQL_ALIAS}."$key"')
    return _through_position(merged, source)


def _through_key(ranges: Sequence[KeyRange], key: str) -> KeyAccess:
    if len(ranges) == 1:
        bounds = ((">=", ranges[0].low, EVERYTHING[0]), ("<", ranges[0].high, EVERYTHING[1]))
        return KeyAccess(
            conditions=tuple(
                f"{key} {operator} {_blob(bound)}"
                for operator, bound, free in bounds
                if bound != free
            )
        )
    rows = [(_blob(found.low), _blob(found.high)) for found in ranges]
    return KeyAccess(_bounds(rows), (f"{key} >= r.column1", f"{key} < r.column2"))


def _through_position(ranges: Sequence[KeyRange], source: Source) -> KeyAccess:
    positions = [position_range(found) for found in ranges]
    known = [position for position in positions if position is not None]
    # Comparisons of positions are plain SQL and need no help where the tablet is not fixed.
    if len(known) < len(positions):
        return KeyAccess()
    tablet, row = (source.sql_column(name) for name in (TABLET_INDEX, ROW_INDEX))
    if len(known) == 1:
        index, first, last = known[0]
        bounds = (f"{row} >= {first}", f"{row} <= {last}")
        return KeyAccess(conditions=(f"{tablet} = {index}", *bounds))
    rows = [tuple(map(str, position)) for position in known]
    conditions = (f"{tablet} = r.column1", f"{row} >= r.column2", f"{row} <= r.column3")
    return KeyAccess(_bounds(rows), conditions)


def _bounds(rows: Sequence[tuple[str, ...]]) -> str:
    listed = ", ".join(f"({', '.join(row)})" for row in rows)
    return f"(VALUES {listed}) AS r CROSS JOIN "


def _blob(data: bytes) -> str:
    return f"X'{data.hex()}'"


def position_range(found: KeyRange) -> tuple[int, int, int] | None:
    """Return tablet, first row and last row of a range; None when the tablet is not fixed."""
    tablet = found.low[:_ENCODED_INT64]
    if len(tablet) < _ENCODED_INT64 or found.high[:_ENCODED_INT64] != tablet:
        return None
    first, last = _ROW_LIMITS
    low, high = found.low[_ENCODED_INT64:], found.high[_ENCODED_INT64:]
    if len(low) >= _ENCODED_INT64:
        first = _number(low) + low.endswith(AFTER, _ENCODED_INT64)
    if high != AFTER:
        # A bound shorter than a number is null, and a position is never null.
        last = -1 if len(high) < _ENCODED_INT64 else _number(high) - 1
        last += high.endswith(AFTER, _ENCODED_INT64)
    return _number(tablet), max(first, 0), last


def _number(encoded: bytes) -> int:
    return int.from_bytes(encoded[1:_ENCODED_INT64], "big") - _BIAS
