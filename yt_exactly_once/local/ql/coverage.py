"""Which tablets a query reads: those that its key ranges meet, table by table.

Owns the way from ranges to tablets and the ranges of joined tables. Whether a tablet can be read is for
the caller to say; the keys of a join are looked up only when somebody asks for them.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from yt_exactly_once.local.ql.binding.array_joins import BoundArrayJoin
from yt_exactly_once.local.ql.binding.bound import Binary, sources_of
from yt_exactly_once.local.ql.binding.scope import POSITION_COLUMNS
from yt_exactly_once.local.ql.functions import udf
from yt_exactly_once.local.ql.ranges import KeyRange, KeyRanges
from yt_exactly_once.local.tables.keys import AFTER, encode_prefix

if TYPE_CHECKING:
    import sqlite3

    from yt_exactly_once.local.ql.binding.bound import Bound
    from yt_exactly_once.local.ql.binding.joins import BoundJoin
    from yt_exactly_once.local.ql.binding.query import BoundQuery
    from yt_exactly_once.local.ql.statement import Statement
    from yt_exactly_once.local.tables.layout import TableLayout, Tablet

Check = Callable[["TableLayout", Callable[[], Sequence[KeyRange]]], None]
"""Refuses a table if a tablet in some key ranges cannot be read; asks for the ranges if it needs them."""


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


def check_tables(
    connection: sqlite3.Connection, query: BoundQuery, statement: Statement, check: Check
) -> None:
    """Check every table of a query.

    Raises:
        YtError: the check does.
    """
    check(query.main.layout, statement.ranges.merged)
    for number, join in enumerate(query.joins):
        if isinstance(join, BoundArrayJoin):
            continue

        def ranges(number: int = number, join: BoundJoin = join) -> Sequence[KeyRange]:
            return _joined(connection, query, statement, number, join)

        check(join.source.layout, ranges)


def _joined(
    connection: sqlite3.Connection,
    query: BoundQuery,
    statement: Statement,
    number: int,
    join: BoundJoin,
) -> Sequence[KeyRange]:
    """Return the ranges of a joined table: where its conditions and the keys of the join meet."""
    # Rows without a partner are null, which a condition on the joined table may well want.
    where = None if join.is_left else query.where
    conditions = [part for part in (where, join.predicate) if part is not None]
    merged = [KeyRanges(condition, join.source).merged() for condition in conditions]
    if join.key_equations and join.source.layout.sorted:
        earlier = {0, *(other.source.index for other in query.joins[:number])}
        wanted = [part for part in _conjuncts(query.where) if sources_of(part) <= earlier]
        found = udf.execute(connection, statement.join_keys(number, join, wanted))
        merged.append([KeyRange(low, high, is_point=False) for low, high in found])
    if not merged:
        return KeyRanges(None, join.source).merged()
    common, *others = merged
    for other in others:
        common = [
            KeyRange(max(a.low, b.low), min(a.high, b.high), is_point=False)
            for a in common
            for b in other
            if max(a.low, b.low) < min(a.high, b.high)
        ]
    return common


def _conjuncts(condition: Bound | None) -> list[Bound]:
    if condition is None:
        return []
    if isinstance(condition, Binary) and condition.operator == "AND":
        return _conjuncts(condition.left) + _conjuncts(condition.right)
    return [condition]
