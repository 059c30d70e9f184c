"""What a query reads: the tablets that its key ranges meet and the columns it names.

Owns the way from ranges to tablets. The caller checks whether a tablet can be read, and reads it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import TYPE_CHECKING, Any

from yt_exactly_once.local.ql.binding.bound import Column
from yt_exactly_once.local.ql.binding.source import POSITION_COLUMNS
from yt_exactly_once.local.ql.ranges import KeyRange, KeyRanges
from yt_exactly_once.local.tables.keys import AFTER, encode_prefix
from yt_exactly_once.local.tables.layout import TableLayout, Tablet

if TYPE_CHECKING:
    from yt_exactly_once.local.ql.binding.query import BoundQuery


@dataclass(frozen=True)
class Reading:
    """What a query reads of its table.

    Attributes:
        columns: names of the columns that the query mentions, those of its answer first.
        ranges: the key ranges, in order and without overlap.
    """

    layout: TableLayout
    columns: tuple[str, ...]
    ranges: Sequence[KeyRange]


Read = Callable[[Reading], Generator[tuple[Any, ...], None, None]]
"""Returns stored values in the order of the table; raises `YtError` if a tablet cannot be read."""


def tablets_in(layout: TableLayout, ranges: Iterable[KeyRange]) -> list[Tablet]:
    """Return the tablets that hold keys of some ranges, in order."""
    if layout.sorted:
        starts = [tablet.pivot_key for tablet in layout.tablets]
    else:
        first = POSITION_COLUMNS[:1]
        starts = [encode_prefix(first, (tablet.index,)) for tablet in layout.tablets]
    found: set[int] = set()
    for wanted in ranges:
        begin = bisect_right(starts, wanted.low) - 1
        end = bisect_left(starts, wanted.high)
        if not layout.sorted and begin >= 0 and wanted.low >= starts[begin] + AFTER:
            # Behind the last position of a tablet, which does not reach up to the next one.
            begin += 1
        found.update(range(max(begin, 0), end))
    return [layout.tablets[index] for index in sorted(found)]


def reading(query: BoundQuery, ranges: KeyRanges) -> Reading:
    """Return what a query reads."""
    parts = (query.outputs, query.where, query.group_keys, query.aggregates, query.order_by)
    named = dict.fromkeys(column.name for column in _columns_in(parts))
    return Reading(query.main.layout, tuple(named), ranges.merged())


def _columns_in(part: Any) -> Iterator[Column]:
    if isinstance(part, Column):
        yield part
    elif isinstance(part, tuple):
        for item in part:
            yield from _columns_in(item)
    elif is_dataclass(part):
        for each in fields(part):
            yield from _columns_in(getattr(part, each.name))
