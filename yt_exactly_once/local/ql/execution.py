"""Execution of a query: from text to rows.

Owns the order of steps, the row limits and the decoding of results. It asks its caller for stored rows, one
by one, and for none that it does not need.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any

from yt_exactly_once.local.errors import Code, YtError
from yt_exactly_once.local.ql.binding.binder import Group
from yt_exactly_once.local.ql.binding.bound import (
    Bound,
    Compute,
    compiled,
    failing_on_a_row,
    stored,
)
from yt_exactly_once.local.ql.binding.bound import Column as BoundColumn
from yt_exactly_once.local.ql.binding.query import BoundQuery, Resolve, bind_query
from yt_exactly_once.local.ql.coverage import Read, reading
from yt_exactly_once.local.ql.text.parser import parse
from yt_exactly_once.local.ql.value_types import Type
from yt_exactly_once.local.tables import values
from yt_exactly_once.local.tables.schema import Column
from yt_exactly_once.local.tables.types import type_v3_from_v1

DEFAULT_ROW_LIMIT = 1_000_000

StoredRow = tuple[Any, ...]

_TYPES_V3 = {kind: type_v3_from_v1(kind.title, required=False) for kind in Type}


@dataclass(frozen=True)
class Answer:
    """What a query gives.

    Attributes:
        rows: complete: nothing is read later.
        incomplete_input: whether the input limit cut them.
        incomplete_output: whether the output limit cut them.
        columns: names and types of what was selected.
    """

    rows: list[dict[str, Any]]
    incomplete_input: bool
    incomplete_output: bool
    columns: tuple[Column, ...] = ()


def execute(
    query: str,
    resolve: Resolve,
    read: Read,
    *,
    input_row_limit: int | None = None,
    output_row_limit: int | None = None,
    fail_on_incomplete_result: bool = True,
    allow_full_scan: bool = True,
    syntax_version: int = 1,
) -> Answer:
    """Run a query.

    Args:
        resolve: finds a table by the path in the query.
        read: returns what the query reads.
        input_row_limit: rows to read at most; a million by default.
        output_row_limit: rows to return at most; a million by default.
        fail_on_incomplete_result: whether a limit that was hit is an error; otherwise the answer is cut.
        allow_full_scan: whether a query may ignore the key of the table.
        syntax_version: from 2 on only backticks quote identifiers.

    Raises:
        YtError: the query is wrong, fails on a row, or hits a limit (codes 1709 and 1710).
    """
    limits = (_limit("input", input_row_limit), _limit("output", output_row_limit))
    try:
        bound = bind_query(parse(query, syntax_version), resolve)
        wanted = reading(bound)
        if not allow_full_scan and wanted.is_full_scan:
            raise YtError(
                "Primary table key is not used in the where clause (full scan); "
                "the query is inefficient, consider rewriting it"
            )
        places = {name: place for place, name in enumerate(wanted.columns)}
        # A statement that is not read to its end would keep the connection at an old moment.
        with closing(read(wanted)) as rows, failing_on_a_row():
            answer = _run(bound, _Limited(rows, limits[0]), places, limits[1])
    except RecursionError as error:
        raise YtError(
            "Expressions are nested too deeply for the embedded cluster; compare shorter tuples"
        ) from error
    if fail_on_incomplete_result:
        _check_complete(answer, *limits)
    return answer


def _limit(name: str, value: int | None) -> int:
    if value is None:
        return DEFAULT_ROW_LIMIT
    if value < 0:
        raise YtError(f"Negative {name} row limit is forbidden")
    return value


def _check_complete(answer: Answer, input_limit: int, output_limit: int) -> None:
    for what, is_cut, code, limit in (
        ("input", answer.incomplete_input, Code.QUERY_INPUT_ROW_LIMIT_EXCEEDED, input_limit),
        ("output", answer.incomplete_output, Code.QUERY_OUTPUT_ROW_LIMIT_EXCEEDED, output_limit),
    ):
        if is_cut:
            raise YtError(
                f"Query terminated prematurely due to excessive {what}; "
                f"consider rewriting your query or changing {what} limit",
                code,
                {f"{what}_row_limit": limit},
            )


@dataclass
class _Limited:
    """The first rows of a table.

    Attributes:
        is_cut: whether the limit has stopped the reading; who does not need a further row never knows.
    """

    rows: Iterable[StoredRow]
    most: int
    is_cut: bool = False

    def __iter__(self) -> Iterator[StoredRow]:
        for number, row in enumerate(self.rows, 1):
            if self.most:
                yield row
            if number >= self.most:
                self.is_cut = True
                return


def _run(query: BoundQuery, read: _Limited, places: dict[str, int], output_limit: int) -> Answer:
    columns = _columns(query)
    if query.limit == 0:
        return Answer([], False, False, columns)
    rows = _kept(read, query.where, places)
    if query.group is not None:
        rows = _kept(_grouped(rows, query.group, places), query.having, {})
    if query.group is not None or not query.is_in_table_order:
        rows = _ordered(rows, query.order_by, places)
    # One row more than allowed shows that the answer is incomplete.
    most = output_limit + 1 if query.limit is None else min(query.limit, output_limit + 1)
    start = max(query.offset, 0)
    chosen = islice(rows, start, min(start + most, sys.maxsize))
    read_as = [bound.name for _, bound in query.outputs if isinstance(bound, BoundColumn)]
    if read_as == list(places) and len(read_as) == len(query.outputs):
        found = list(chosen)
    else:
        outputs = [stored(bound, places) for _, bound in query.outputs]
        found = [tuple([output(row) for output in outputs]) for row in chosen]
    decoded = values.decode_rows(columns, found[:output_limit])
    return Answer(decoded, read.is_cut, len(found) > output_limit, columns)


def _kept(
    rows: Iterable[StoredRow], condition: Bound | None, places: dict[str, int]
) -> Iterable[StoredRow]:
    """Return the rows for which a condition is true."""
    return rows if condition is None else filter(compiled(condition, places), rows)


def _grouped(
    rows: Iterable[StoredRow], group: Group, places: dict[str, int]
) -> Iterator[StoredRow]:
    """Yield the values of each group, keys first, in the order of their first rows."""
    keys = [compiled(key, places) for _, key in group.keys]
    arguments = [compiled(aggregate.argument, places) for aggregate in group.aggregates]
    groups: dict[StoredRow, list[list[Any]]] = {}
    for row in rows:
        key = tuple([compute(row) for compute in keys])
        held = groups.get(key)
        if held is None:
            held = groups[key] = [[] for _ in arguments]
        for given, argument in zip(held, arguments, strict=True):
            value = argument(row)
            if value is not None:
                given.append(value)
    for key, held in groups.items():
        yield (
            *key,
            *(
                aggregate.function.python(aggregate.argument.type, given) if given else None
                for aggregate, given in zip(group.aggregates, held, strict=True)
            ),
        )


def _ordered(
    rows: Iterable[StoredRow], order: Sequence[tuple[Bound, bool]], places: dict[str, int]
) -> Iterable[StoredRow]:
    """Return rows in an order, ties as they come."""
    if not order:
        return rows
    found = list(rows)
    for bound, descending in reversed(order):
        found.sort(key=partial(_rank, compiled(bound, places)), reverse=descending)
    return found


def _rank(compute: Compute, row: StoredRow) -> tuple[bool, Any]:
    """Return by what a value sorts, null first."""
    value = compute(row)
    if value != value:  # noqa: PLR0124 - NaN is the value that differs from itself
        raise YtError("Comparison with NaN")
    return value is not None, value


def _columns(query: BoundQuery) -> tuple[Column, ...]:
    return tuple(
        Column(name, bound.type.title, _TYPES_V3[bound.type], required=False)
        for name, bound in query.outputs
    )
