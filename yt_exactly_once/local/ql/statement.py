"""A bound query as SQL statements.

It builds the statements: sources with their key ranges, joins, and groups as a subquery. The last order is
always that of the table. `expression_sql` writes the expressions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from yt_exactly_once.local.ql.binding.bound import Constant
from yt_exactly_once.local.ql.binding.operators import relation
from yt_exactly_once.local.ql.binding.scope import ROW_INDEX, TABLET_INDEX, Source
from yt_exactly_once.local.ql.expression_sql import ExpressionSql
from yt_exactly_once.local.ql.functions import udf
from yt_exactly_once.local.ql.functions.aggregates import AGGREGATES
from yt_exactly_once.local.ql.key_sql import key_access
from yt_exactly_once.local.ql.text.syntax import Totals

if TYPE_CHECKING:
    from yt_exactly_once.local.ql.binding.joins import BoundJoin, Equation
    from yt_exactly_once.local.ql.binding.query import BoundQuery
    from yt_exactly_once.local.ql.ranges import KeyRanges

ROW_INDEX_BITS = 44
"""How many bits a row index gets when a position in an ordered table becomes one number."""


@dataclass(frozen=True)
class Limits:
    """How much a query may read and return.

    Attributes:
        input_rows: rows of the main table to read; None for all.
        output_rows: rows to return at most, beside what the query itself says.
    """

    input_rows: int | None
    output_rows: int


class Statement:
    """The SQL of one query.

    Args:
        ranges: what the condition says about the key of the main table.
        limits: see `Limits`.
    """

    def __init__(self, query: BoundQuery, ranges: KeyRanges, limits: Limits) -> None:
        self._query = query
        self._limits = limits
        sources = (query.main, *(join.source for join in query.joins))
        self._rows = ExpressionSql(sources)
        self._access = key_access(ranges, query.main)

    def probe(self, count: int) -> str:
        """Return a statement that finds something if the key ranges hold a number of rows."""
        return f"SELECT 1 FROM {self._selected()} LIMIT 1 OFFSET {max(count - 1, 0)}"

    def rows(self) -> str:
        """Return the statement for the rows of the answer."""
        query = self._query
        outputs = ", ".join(self._rows.write(output.bound) for output in query.outputs)
        tail = self._tail()
        if query.group_keys is None:
            order = self._order(_position(query.main))
            return f"SELECT {outputs} {self._from_where()} {order} {tail}"
        having = "" if query.having is None else f" WHERE {self._rows.write(query.having)}"
        return (
            f"SELECT {outputs} FROM ({self._groups()}) AS g{having} {self._order(['g.p'])} {tail}"
        )

    def totals(self) -> str:
        """Return the statement for the row of totals; it yields nothing when there are no groups."""
        query = self._query
        keys = query.group_keys or ()
        empty = [f"NULL AS k{index}" for index in range(len(keys))]
        surviving = self._surviving_groups()
        condition = ""
        if surviving is not None:
            same = " AND ".join(
                f"g.k{index} IS {self._rows.write(key)}" for index, key in enumerate(keys)
            )
            condition = f" AND EXISTS (SELECT 1 FROM ({surviving}) AS g WHERE {same})"
        columns = ", ".join([*empty, *self._aggregates()])
        inner = f"SELECT {columns} {self._from_where(condition)} HAVING count(*) > 0"
        outputs = ", ".join(self._rows.write(output.bound) for output in query.outputs)
        return f"SELECT {outputs} FROM ({inner}) AS g"

    def _surviving_groups(self) -> str | None:
        """Return the groups that count for the totals; None when all do."""
        query = self._query
        has_filter = query.totals is Totals.AFTER_HAVING and query.having is not None
        has_limit = query.limit is not None and not query.order_by
        if not has_filter and not has_limit:
            return None
        where = ""
        if query.having is not None and has_filter:
            where = f" WHERE {self._rows.write(query.having)}"
        limit = f" ORDER BY g.p LIMIT {query.offset + (query.limit or 0)}" if has_limit else ""
        return f"SELECT * FROM ({self._groups()}) AS g{where}{limit}"

    def _groups(self) -> str:
        keys = self._query.group_keys or ()
        columns = [f"{self._rows.write(key)} AS k{index}" for index, key in enumerate(keys)]
        columns += self._aggregates()
        columns.append(f"min({_single_position(self._query.main)}) AS p")
        numbers = [
            str(index) for index, key in enumerate(keys, start=1) if not isinstance(key, Constant)
        ]
        # Without GROUP BY an empty table would make one group.
        grouping = f"GROUP BY {', '.join(numbers)}" if numbers else "HAVING count(*) > 0"
        return f"SELECT {', '.join(columns)} {self._from_where()} {grouping}"

    def _aggregates(self) -> list[str]:
        position = _single_position(self._query.main)
        found = []
        for index, aggregate in enumerate(self._query.aggregates):
            arguments = [self._rows.write(argument) for argument in aggregate.arguments]
            types = [argument.type for argument in aggregate.arguments]
            sql = AGGREGATES[aggregate.function][1](arguments, types, position)
            found.append(f"{sql} AS a{index}")
        return found

    def _from_where(self, more: str = "") -> str:
        query = self._query
        joins = "".join(self._join(join) for join in query.joins)
        is_cut = self._limits.input_rows is not None
        conditions = [] if is_cut else list(self._access.conditions)
        if query.where is not None:
            conditions.append(self._rows.write(query.where))
        where = _where(conditions)
        if more:
            where = where + more if where else f" WHERE 1{more}"
        return f"FROM {self._main_source()}{joins}{where}"

    def _main_source(self) -> str:
        main = self._query.main
        if self._limits.input_rows is None:
            return f"{self._access.driver}{main.layout.sql_source} AS {main.sql_alias}"
        order = ", ".join(_position(main))
        inner = f"SELECT {main.sql_alias}.* FROM {self._selected()}"
        return f"({inner} ORDER BY {order} LIMIT {self._limits.input_rows}) AS {main.sql_alias}"

    def _selected(self) -> str:
        """Return the rows of the main table in the key ranges, as what follows FROM."""
        main = self._query.main
        source = f"{self._access.driver}{main.layout.sql_source} AS {main.sql_alias}"
        return f"{source}{_where(self._access.conditions)}"

    def _join(self, join: BoundJoin) -> str:
        source = join.source
        conditions = _key_conditions(join, self._rows)
        keyed = join.key_equations if source.layout.sorted else ()
        for equation in join.equations:
            if equation not in keyed:
                conditions.append(self._rows.write(relation("=", *equation)))
        if join.predicate is not None:
            conditions.append(self._rows.write(join.predicate))
        # CROSS keeps SQLite from reading the joined table first, which would change the order.
        kind = "LEFT JOIN" if join.is_left else "CROSS JOIN"
        table = f"{source.layout.sql_source} AS {source.sql_alias}"
        return f" {kind} {table} ON {' AND '.join(conditions) or '1'}"

    def _order(self, position: Sequence[str]) -> str:
        written = [
            f"{self._rows.order(item.bound)}{' DESC' if item.descending else ''}"
            for item in self._query.order_by
            if not isinstance(item.bound, Constant)
        ]
        return "ORDER BY " + ", ".join([*written, *position])

    def _tail(self) -> str:
        # One row more than allowed shows that the answer is incomplete.
        limit = self._limits.output_rows + 1
        if self._query.limit is not None:
            limit = min(limit, self._query.limit)
        return f"LIMIT {limit} OFFSET {self._query.offset}"


def _where(conditions: Sequence[str]) -> str:
    return f" WHERE {' AND '.join(conditions)}" if conditions else ""


def _position(source: Source) -> list[str]:
    """Return the SQL columns that order the rows of a table."""
    if source.layout.sorted:
        return [f'{source.sql_alias}."$key"']
    return [source.sql_column(TABLET_INDEX), source.sql_column(ROW_INDEX)]


def _single_position(source: Source) -> str:
    parts = _position(source)
    return parts[0] if len(parts) == 1 else f"(({parts[0]} << {ROW_INDEX_BITS}) | {parts[1]})"


def _key_conditions(join: BoundJoin, writer: ExpressionSql) -> list[str]:
    """Return the conditions by which a sorted table is entered through its key."""
    layout = join.source.layout
    equations: tuple[Equation, ...] = join.key_equations
    if not layout.sorted or not equations:
        return []
    own = [equation[0] for equation in equations]
    types = [bound.type for bound in own]
    arguments = ", ".join(writer.write(bound) for bound in own)
    key = f'{join.source.sql_alias}."$key"'
    first = f"{udf.key_name(types)}({arguments})"
    if len(equations) == len(layout.key_columns):
        return [f"{key} = {first}"]
    return [f"{key} >= {first}", f"{key} < {udf.key_name(types, after=True)}({arguments})"]
