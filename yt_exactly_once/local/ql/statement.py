"""A bound query as SQL statements.

It builds the statements: the table with its key ranges, and groups as a subquery. The last order is
always that of the table. `expression_sql` writes the expressions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from yt_exactly_once.local.ql.binding.bound import Constant
from yt_exactly_once.local.ql.binding.source import ROW_INDEX, SQL_ALIAS, TABLET_INDEX, Source
from yt_exactly_once.local.ql.expression_sql import ExpressionSql
from yt_exactly_once.local.ql.functions.aggregates import AGGREGATES
from yt_exactly_once.local.ql.key_sql import key_access

if TYPE_CHECKING:
    from yt_exactly_once.local.ql.binding.query import BoundQuery
    from yt_exactly_once.local.ql.ranges import KeyRanges

ROW_INDEX_BITS = 44
"""How many bits a row index gets when a position in an ordered table becomes one number."""


class Statement:
    """The SQL of one query.

    Args:
        ranges: what the condition says about the key of the table.
        output_rows: rows to return at most, beside what the query itself says.
        input_rows: rows of the table to read; None for all.
    """

    def __init__(
        self, query: BoundQuery, ranges: KeyRanges, output_rows: int, input_rows: int | None = None
    ) -> None:
        self._query = query
        self._output_rows = output_rows
        self._input_rows = input_rows
        self._rows = ExpressionSql(query.main)
        self._access = key_access(ranges, query.main)
        self._source = f"{self._access.driver}{query.main.layout.sql_source} AS {SQL_ALIAS}"

    def probe(self, count: int) -> str:
        """Return a statement that finds something if the key ranges hold a number of rows."""
        where = _where(self._access.conditions)
        return f"SELECT 1 FROM {self._source}{where} LIMIT 1 OFFSET {max(count - 1, 0)}"

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

    def _groups(self) -> str:
        keys = self._query.group_keys or ()
        columns = [f"{self._rows.write(key)} AS k{index}" for index, key in enumerate(keys)]
        for index, aggregate in enumerate(self._query.aggregates):
            (argument,) = aggregate.arguments
            sql = AGGREGATES[aggregate.function][1](self._rows.write(argument), argument.type)
            columns.append(f"{sql} AS a{index}")
        columns.append(f"min({_single_position(self._query.main)}) AS p")
        numbers = [
            str(index) for index, key in enumerate(keys, start=1) if not isinstance(key, Constant)
        ]
        # Without GROUP BY an empty table would make one group.
        grouping = f"GROUP BY {', '.join(numbers)}" if numbers else "HAVING count(*) > 0"
        return f"SELECT {', '.join(columns)} {self._from_where()} {grouping}"

    def _from_where(self) -> str:
        source, conditions = self._source, list(self._access.conditions)
        if self._input_rows is not None:
            order = ", ".join(_position(self._query.main))
            source = (
                f"(SELECT {SQL_ALIAS}.* FROM {source}{_where(conditions)} ORDER BY {order}"
                f" LIMIT {self._input_rows}) AS {SQL_ALIAS}"
            )
            conditions = []
        if self._query.where is not None:
            conditions.append(self._rows.write(self._query.where))
        return f"FROM {source}{_where(conditions)}"

    def _order(self, position: Sequence[str]) -> str:
        written = [
            f"{self._rows.order(item.bound)}{' DESC' if item.descending else ''}"
            for item in self._query.order_by
            if not isinstance(item.bound, Constant)
        ]
        return "ORDER BY " + ", ".join([*written, *position])

    def _tail(self) -> str:
        # One row more than allowed shows that the answer is incomplete.
        limit = self._output_rows + 1
        if self._query.limit is not None:
            limit = min(limit, self._query.limit)
        return f"LIMIT {limit} OFFSET {self._query.offset}"


def _where(conditions: Sequence[str]) -> str:
    return f" WHERE {' AND '.join(conditions)}" if conditions else ""


def _position(source: Source) -> list[str]:
    """Return the SQL columns that order the rows of a table."""
    if source.layout.sorted:
        return [f'{SQL_ALIAS}."$key"']
    return [source.sql_column(TABLET_INDEX), source.sql_column(ROW_INDEX)]


def _single_position(source: Source) -> str:
    parts = _position(source)
    return parts[0] if len(parts) == 1 else f"(({parts[0]} << {ROW_INDEX_BITS}) | {parts[1]})"
