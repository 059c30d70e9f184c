"""A bound query: tables, conditions, groups, order and output columns, all typed.

Owns the order in which clauses are bound and the rules between clauses, with the server's texts
(`yt/yt/library/query/base/query_preparer.cpp`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from yt_exactly_once.local.errors import YtError
from yt_exactly_once.local.ql.binding.binder import Binder, Group, Source
from yt_exactly_once.local.ql.binding.bound import Bound, Column, GroupValue
from yt_exactly_once.local.ql.text import syntax
from yt_exactly_once.local.ql.text.naming import column_name, reference_name
from yt_exactly_once.local.ql.text.syntax import Reference
from yt_exactly_once.local.ql.value_types import SCALAR
from yt_exactly_once.local.tables.layout import TableLayout

Resolve = Callable[[str], TableLayout]
"""Finds a table by its path; raises `YtError` when it cannot be read."""

MAX_LIMIT = (1 << 63) - 3


@dataclass(frozen=True)
class BoundQuery:
    """A query that is ready to be compiled.

    Attributes:
        main: the table after FROM.
        order_by: what the answer is ordered by, and whether it descends; empty for the order of the table.
        outputs: columns of the answer, by name.
        limit: rows to return at most; None for all.
    """

    main: Source
    where: Bound | None
    group: Group | None
    having: Bound | None
    order_by: tuple[tuple[Bound, bool], ...]
    outputs: tuple[tuple[str, Bound], ...]
    offset: int
    limit: int | None

    @property
    def is_in_table_order(self) -> bool:
        """Whether the order is the one of the table, so that nothing has to be sorted."""
        keys = [column.name for column in self.main.key_columns]
        names = [
            bound.name
            for bound, descending in self.order_by
            if isinstance(bound, Column | GroupValue) and not descending
        ]
        return len(names) == len(self.order_by) and names == keys[: len(names)]


def bind_query(query: syntax.Query, resolve: Resolve) -> BoundQuery:
    """Bind a parsed query.

    Raises:
        YtError: the query does not fit the tables or breaks a rule between clauses.
    """
    main = Source(resolve(query.path), query.alias)
    binder = Binder(main, query.aliases)
    where = None if query.where is None else binder.predicate(query.where, "WHERE-clause")
    group, having = _bind_group(query.group_by, binder)
    order_by = tuple(
        (binder.bind(expression, SCALAR), descending)
        for expressions, descending in query.order_by
        for expression in expressions
    )
    outputs = _bind_outputs(query.select, binder, main, group)
    offset = query.offset or 0
    bound = BoundQuery(main, where, group, having, order_by, outputs, offset, query.limit)
    _check_clauses(query, bound)
    return bound


def _bind_group(clause: syntax.GroupBy | None, binder: Binder) -> tuple[Group | None, Bound | None]:
    if clause is None:
        return None, None
    keys = [
        (column_name(expression), binder.bind(expression, SCALAR)) for expression in clause.keys
    ]
    group = Group(keys)
    binder.group(group)
    if clause.having is None:
        return group, None
    return group, binder.predicate(clause.having, "HAVING-clause")


def _bind_outputs(
    select: syntax.Expressions | None, binder: Binder, main: Source, group: Group | None
) -> tuple[tuple[str, Bound], ...]:
    if select is not None:
        return tuple((column_name(expression), binder.bind(expression)) for expression in select)
    if group is None:
        return tuple(
            (reference_name(column.name, main.alias), bound)
            for column in main.columns
            if (bound := main.resolve(Reference(column.name, main.alias))) is not None
        )
    return tuple((value.name, value) for value in group.values)


def _check_clauses(query: syntax.Query, bound: BoundQuery) -> None:
    if query.limit is not None:
        if query.limit > MAX_LIMIT:
            raise YtError("Maximum LIMIT exceeded", limit=query.limit, max_limit=MAX_LIMIT)
        if bound.having is not None and bound.is_in_table_order:
            raise YtError("HAVING with LIMIT is not allowed")
    elif query.order_by:
        raise YtError("ORDER BY used without LIMIT")
    elif query.offset is not None:
        raise YtError("OFFSET used without LIMIT")
