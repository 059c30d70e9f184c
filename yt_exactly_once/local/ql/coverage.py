"""What a query reads: the tablets and key ranges that its condition implies, and the columns it names.

The ranges may be wider than the condition, never narrower: the condition itself is still checked on every
row. A range is a pair of blobs in the key encoding of sorted tables. It begins at the first blob and ends
before the second. Positions in ordered tables are encoded in the same way. The caller checks whether a tablet
can be read, and reads it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from yt_exactly_once.local.ql.binding.binder import POSITION_COLUMNS
from yt_exactly_once.local.ql.binding.bound import Apply, Bound, Column, Constant, InSet
from yt_exactly_once.local.ql.computed import infer
from yt_exactly_once.local.ql.value_types import Type
from yt_exactly_once.local.tables.keys import AFTER, encode_prefix
from yt_exactly_once.local.tables.layout import TableLayout, Tablet

if TYPE_CHECKING:
    from yt_exactly_once.local.ql.binding.binder import Source
    from yt_exactly_once.local.ql.binding.query import BoundQuery


class _Interval(NamedTuple):
    """Encoded values of a key column, and the value that the first one encodes, if any does."""

    low: bytes
    high: bytes
    first: tuple[Any, ...] = ()

    @property
    def is_point(self) -> bool:
        """Whether there is only one value."""
        return bool(self.first) and self.high == self.low + AFTER


Box = dict[int, _Interval]
"""Intervals of key columns by their number; a missing column is free."""

_EVERYTHING = _Interval(b"", AFTER)
_MAX_BOXES = 10_000
_REVERSED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "="}


class KeyRange(NamedTuple):
    """A range of keys: the first encoded one, and the first one after it."""

    low: bytes
    high: bytes


@dataclass(frozen=True)
class Reading:
    """What a query reads of its table.

    Attributes:
        columns: names of the columns that the query mentions, those of its answer first.
        ranges: the key ranges, in order and without overlap.
        is_full_scan: whether some row could qualify whatever its key is.
    """

    layout: TableLayout
    columns: tuple[str, ...]
    ranges: Sequence[KeyRange]
    is_full_scan: bool


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


def reading(query: BoundQuery) -> Reading:
    """Return what a query reads."""
    ranges = _KeyRanges(query.where, query.main)
    parts = (query.outputs, query.where, query.group, query.order_by)
    named = dict.fromkeys(column.name for column in _columns_in(parts))
    return Reading(query.main.layout, tuple(named), ranges.merged(), ranges.is_full_scan)


def _columns_in(part: Any) -> Iterator[Column]:
    if isinstance(part, Column):
        yield part
    elif isinstance(part, tuple | list):
        for item in part:
            yield from _columns_in(item)
    elif is_dataclass(part):
        for each in fields(part):
            yield from _columns_in(getattr(part, each.name))


class _KeyRanges:
    """What a condition says about the key of a table.

    Args:
        condition: bound condition; None for none.
    """

    def __init__(self, condition: Bound | None, source: Source) -> None:
        self._source = source
        self._numbers = {column.name: i for i, column in enumerate(source.key_columns)}
        self._boxes: list[Box] = [{}] if condition is None else self._constrain(condition)
        if any(column.expression is not None for column in source.key_columns):
            self._boxes = self._with_computed()

    @property
    def is_full_scan(self) -> bool:
        """Whether some row could qualify whatever its key is.

        Leading computed columns do not count: their values follow from the columns after them.
        """
        keys = self._source.key_columns
        first = next((i for i, column in enumerate(keys) if column.expression is None), 0)
        return any(first not in box and 0 not in box for box in self._boxes)

    def _with_computed(self) -> list[Box]:
        points = [
            {number: found.first[0] for number, found in box.items() if found.is_point}
            for box in self._boxes
        ]
        inferred = [
            {number: self._point(number, value) for number, value in found.items()}
            for found in infer(self._source.key_columns, points)
        ]
        narrowed = map(_narrowed, self._boxes, inferred)
        return [box for box in narrowed if box is not None]

    def merged(self) -> list[KeyRange]:
        """Return the ranges in order, overlapping ones joined."""
        merged: list[KeyRange] = []
        for found in sorted(map(self._range, self._boxes)):
            if merged and found.low <= merged[-1].high:
                last = merged.pop()
                merged.append(KeyRange(last.low, max(last.high, found.high)))
            else:
                merged.append(found)
        return merged

    def _range(self, box: Box) -> KeyRange:
        prefix = b""
        for number in range(len(self._numbers)):
            found = box.get(number, _EVERYTHING)
            if not found.is_point:
                return KeyRange(prefix + found.low, prefix + found.high)
            prefix += found.low
        return KeyRange(prefix, prefix + AFTER)

    def _constrain(self, condition: Bound) -> list[Box]:
        match condition:
            case InSet(operands=operands, values=rows):
                return self._set(operands, rows)
            case Apply(function=function, arguments=arguments):
                return self._applied(function.name, arguments)
            case Constant(value=value) if not value:
                return []
        return [{}]

    def _applied(self, name: str, arguments: Sequence[Bound]) -> list[Box]:  # noqa: PLR0911
        match name, arguments:
            case "AND", (left, right):
                return _intersection(self._constrain(left), self._constrain(right))
            case "OR", (left, right):
                union = self._constrain(left) + self._constrain(right)
                return union if len(union) <= _MAX_BOXES and {} not in union else [{}]
            case "is_null", (Column() as column,):
                return self._relation("=", column, Constant(Type.NULL, None))
            case "is_prefix", (Constant(value=prefix), Column() as column):
                return self._prefix(column, prefix)
            case _, (Column() as column, Constant() as constant):
                return self._relation(name, column, constant)
            case _, (Constant() as constant, Column() as column):
                return self._relation(_REVERSED.get(name, ""), column, constant)
        return [{}]

    def _number(self, column: Bound) -> int | None:
        return self._numbers.get(column.name) if isinstance(column, Column) else None

    def _point(self, number: int, value: Any) -> _Interval:
        encoded = encode_prefix((self._source.key_columns[number],), (value,))
        return _Interval(encoded, encoded + AFTER, (value,))

    def _relation(self, operator: str, column: Column, constant: Constant) -> list[Box]:
        number = self._number(column)
        # NaN has no place in the order; comparing with it is an error that the scan will raise.
        if number is None or constant.value != constant.value:
            return [{}]
        point = self._point(number, constant.value)
        interval = {
            "=": point,
            "<": _Interval(b"", point.low),
            "<=": _Interval(b"", point.high),
            ">": _Interval(point.high, AFTER),
            ">=": point._replace(high=AFTER),
        }.get(operator)
        return [{}] if interval is None else [{number: interval}]

    def _set(self, operands: Sequence[Bound], rows: Sequence[Sequence[Any]]) -> list[Box]:
        numbers = [self._number(operand) for operand in operands]
        if all(number is None for number in numbers) or len(rows) > _MAX_BOXES:
            return [{}]
        boxes: list[Box] = []
        for row in rows:
            box: Box = {}
            for number, value in zip(numbers, row, strict=True):
                if number is not None:
                    box[number] = self._point(number, value)
            boxes.append(box)
        return boxes

    def _prefix(self, column: Column, prefix: bytes | None) -> list[Box]:
        number = self._number(column)
        if number is None:
            return [{}]
        if prefix is None:
            return []
        # Without the terminator the encoding of a string is a prefix of its continuations.
        low = self._point(number, prefix).low[:-1]
        return [{number: _Interval(low, _successor(low))}]


def _intersection(left: list[Box], right: list[Box]) -> list[Box]:
    if len(left) * len(right) > _MAX_BOXES:
        return min(left, right, key=len)
    found = (_narrowed(a, b) for a in left for b in right)
    return [box for box in found if box is not None]


def _narrowed(left: Box, right: Box) -> Box | None:
    box = dict(left)
    for number, found in right.items():
        known = box.get(number, _EVERYTHING)
        both = max(found, known)._replace(high=min(found.high, known.high))
        if both.low >= both.high:
            return None
        box[number] = both
    return box


def _successor(prefix: bytes) -> bytes:
    """Return the first blob above everything that starts with a prefix."""
    stripped = prefix.rstrip(AFTER)
    return stripped[:-1] + bytes((stripped[-1] + 1,))
