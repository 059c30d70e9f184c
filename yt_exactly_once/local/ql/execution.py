"""Execution of a query on a connection: from text to rows.

Owns the order of steps, the row limits and the decoding of results. It reads through the connection it is
given, a transaction snapshot or the newest state, and changes nothing.
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from typing import Any

from yt_exactly_once.local.errors import Code, YtError
from yt_exactly_once.local.ql.binding.query import BoundQuery, Resolve, bind_query
from yt_exactly_once.local.ql.coverage import Prepare, reading
from yt_exactly_once.local.ql.functions import udf
from yt_exactly_once.local.ql.ranges import KeyRanges
from yt_exactly_once.local.ql.statement import Statement
from yt_exactly_once.local.ql.text.parser import parse
from yt_exactly_once.local.ql.value_types import Type
from yt_exactly_once.local.tables import values
from yt_exactly_once.local.tables.schema import Column
from yt_exactly_once.local.tables.types import type_v3_from_v1

DEFAULT_ROW_LIMIT = 1_000_000

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
    connection: sqlite3.Connection,
    query: str,
    resolve: Resolve,
    *,
    prepare: Prepare | None = None,
    input_row_limit: int | None = None,
    output_row_limit: int | None = None,
    fail_on_incomplete_result: bool = True,
    allow_full_scan: bool = True,
    syntax_version: int = 1,
) -> Answer:
    """Run a query.

    Args:
        resolve: finds a table by the path in the query.
        prepare: gets what the query reads before it is read, and raises `YtError` when that cannot be
            read.
        input_row_limit: rows to read at most; a million by default.
        output_row_limit: rows to return at most; a million by default.
        fail_on_incomplete_result: whether a limit that was hit is an error; otherwise the answer is cut.
        allow_full_scan: whether a query may ignore the key of the table.
        syntax_version: from 2 on only backticks quote identifiers.

    Raises:
        YtError: the query is wrong, fails on a row, or hits a limit (codes 1709 and 1710).
    """
    limits = (_limit("input", input_row_limit), _limit("output", output_row_limit))
    bound = bind_query(parse(query, syntax_version), resolve)
    ranges = KeyRanges(bound.where, bound.main)
    if not allow_full_scan and ranges.is_full_scan:
        raise YtError(
            "Primary table key is not used in the where clause (full scan); "
            "the query is inefficient, consider rewriting it"
        )
    if prepare is not None:
        prepare(reading(bound, ranges))
    answer = _run(connection, bound, ranges, *limits)
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
    if answer.incomplete_input:
        raise YtError(
            "Query terminated prematurely due to excessive input; "
            "consider rewriting your query or changing input limit",
            Code.QUERY_INPUT_ROW_LIMIT_EXCEEDED,
            {"input_row_limit": input_limit},
        )
    if answer.incomplete_output:
        raise YtError(
            "Query terminated prematurely due to excessive output; "
            "consider rewriting your query or changing output limit",
            Code.QUERY_OUTPUT_ROW_LIMIT_EXCEEDED,
            {"output_row_limit": output_limit},
        )


def _run(
    connection: sqlite3.Connection,
    query: BoundQuery,
    ranges: KeyRanges,
    input_limit: int,
    output_limit: int,
) -> Answer:
    if query.limit == 0:
        return Answer([], False, False, _columns(query))
    statement = Statement(query, ranges, output_limit)
    is_cut = not query.reads_at_most(input_limit) and bool(
        udf.execute(connection, statement.probe(input_limit))
    )
    if is_cut:
        statement = Statement(query, ranges, output_limit, input_limit)
    found = udf.execute(connection, statement.rows())
    incomplete_output = len(found) > output_limit
    # A scan that has found all it was asked for does not read on.
    is_satisfied = query.limit == len(found) and query.group_keys is None and not query.order_by
    columns = _columns(query)
    decoded = values.decode_rows(columns, found[:output_limit])
    return Answer(decoded, is_cut and not is_satisfied, incomplete_output, columns)


def _columns(query: BoundQuery) -> tuple[Column, ...]:
    return tuple(
        Column(output.name, output.bound.type.title, _TYPES_V3[output.bound.type], required=False)
        for output in query.outputs
    )
