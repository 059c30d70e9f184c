"""Python functions inside SQLite: names, installation on demand, errors that keep their type.

Owns the bridge. The name of an SQL function tells what it is and the types of its arguments as one letter
each: `yt_call_<function>_<codes>` is a scalar function, `yt_op_<operator>_<code>` an operator,
`yt_is_<relation>_<codes>` a comparison (`yt_was_` where null gives null), `yt_key_<codes>` an encoded key
(`yt_after_` its end), `yt_item_<type>_<codes>` or `yt_member_…` a part of a composite value; a few helpers
have fixed names. SQLite itself says which function a statement lacks, so nothing has to be remembered per
connection.
"""

from __future__ import annotations

import re
import sqlite3
import threading
from functools import partial
from typing import TYPE_CHECKING, Any

from yt_exactly_once.local.errors import YtError
from yt_exactly_once.local.ql import arithmetic
from yt_exactly_once.local.ql.functions import aggregates, comparison, composites, storage, strings
from yt_exactly_once.local.ql.functions.general import runtime_error
from yt_exactly_once.local.ql.functions.table import SCALARS
from yt_exactly_once.local.ql.ranges import AFTER
from yt_exactly_once.local.ql.value_types import BY_CODE, Type
from yt_exactly_once.local.tables.keys import key_encoder

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from yt_exactly_once.local.ql.functions.signatures import Function

OPERATOR_NAMES = {
    "+": "add",
    "-": "subtract",
    "*": "multiply",
    "/": "divide",
    "%": "modulo",
    "<<": "shl",
    ">>": "shr",
    "|": "bitor",
    "&": "bitand",
    "~": "invert",
    "negate": "negate",
}
RELATION_NAMES = {"=": "eq", "!=": "ne", "<": "lt", "<=": "le", ">": "gt", ">=": "ge"}

_OPERATORS = {name: symbol for symbol, name in OPERATOR_NAMES.items()}
_RELATIONS = {name: symbol for symbol, name in RELATION_NAMES.items()}
_LACKING = re.compile(r"no such function: (yt_\w+)")
_TOO_DEEP = "parser stack overflow"
_SHAPE = re.compile(r"yt_(call|op|is|was|key|after|array_agg|item|member)(?:_(\w+))?_([a-z]*)\Z")

_failure = threading.local()


def execute(connection: sqlite3.Connection, statement: str) -> list[tuple[Any, ...]]:
    """Run a statement that may use the functions of this module.

    Raises:
        YtError: a function of the statement failed on a value, or SQLite's parser has no room for
            the statement.
    """
    while True:
        _failure.error = None
        try:
            return connection.execute(statement).fetchall()
        except sqlite3.OperationalError as error:
            if _failure.error is not None:
                raise _failure.error from None
            if str(error) == _TOO_DEEP:
                raise YtError(
                    "Expressions are nested too deeply for the embedded cluster; "
                    "nest fewer functions and arithmetic operators"
                ) from error
            lacking = _LACKING.match(str(error))
            if lacking is None:
                raise
            install(connection, lacking[1])


def install(connection: sqlite3.Connection, name: str) -> None:
    """Define one function or aggregate on a connection."""
    if name in _AGGREGATE_CLASSES:
        arguments, kind = _AGGREGATE_CLASSES[name]
        connection.create_aggregate(name, arguments, kind)
    elif name in _HELPERS:
        arguments, helper = _HELPERS[name]
        connection.create_function(name, arguments, _recorded(helper), deterministic=True)
    else:
        shape = _SHAPE.match(name)
        if shape is None:
            raise LookupError(f"There is no SQL function {name}")
        family, base, codes = shape.groups()
        types = tuple(BY_CODE[code] for code in codes)
        if family == "array_agg":
            kind = partial(aggregates.ArrayAgg, types[0])
            connection.create_aggregate(name, 3, kind)  # type: ignore[arg-type]
            return
        python = _FAMILIES[family](base, types)
        connection.create_function(name, len(types), _recorded(python), deterministic=True)


def call_name(function: Function, types: Sequence[Type]) -> str:
    """Return the SQL name of a scalar function for arguments of given types."""
    return f"yt_call_{function.name}_{_codes(types)}"


def operator_name(symbol: str, types: Sequence[Type]) -> str:
    """Return the SQL name of an operator on operands of given types."""
    return f"yt_op_{OPERATOR_NAMES[symbol]}_{_codes(types)}"


def relation_name(symbol: str, types: Sequence[Type], *, null_safe: bool) -> str:
    """Return the SQL name of a relational operator."""
    return f"yt_{'is' if null_safe else 'was'}_{RELATION_NAMES[symbol]}_{_codes(types)}"


def key_name(types: Sequence[Type], *, after: bool = False) -> str:
    """Return the SQL name of the encoder of a key prefix, or of what comes after all such keys."""
    return f"yt_{'after' if after else 'key'}_{_codes(types)}"


def part_name(family: str, result: Type, types: Sequence[Type]) -> str:
    """Return the SQL name of the access to a part of a composite value."""
    return f"yt_{family}_{result.title}_{_codes(types)}"


def _codes(types: Sequence[Type]) -> str:
    return "".join(kind.code for kind in types)


def _recorded(python: Callable[..., Any]) -> Callable[..., Any]:
    """Keep the error of a function: SQLite would only report that there was one."""

    def call(*arguments: Any) -> Any:
        try:
            return python(*arguments)
        except YtError as error:
            _failure.error = error
            raise

    return call


def _scalar(base: str, types: Sequence[Type]) -> Callable[..., Any]:
    function = SCALARS[base]
    if function.python is None:
        raise LookupError(f"Function {base} has no implementation for {_codes(types)}")
    python = partial(function.python, types)
    return _converting(
        python, types, _result_type(function, types), null_if_any_null=function.null_if_any_null
    )


def _result_type(function: Function, types: Sequence[Type]) -> Type:
    if isinstance(function.result, Type):
        return function.result
    parameters = [*function.parameters, function.repeated]
    return types[parameters.index(function.result)]


def _operator(base: str, types: Sequence[Type]) -> Callable[..., Any]:
    symbol, kind = _OPERATORS[base], types[0]
    if base == "negate":
        python: Callable[..., Any] = partial(arithmetic.negate, kind)
    elif base == "invert":
        python = partial(arithmetic.invert, kind)
    else:
        python = partial(_calculate, symbol, kind)
    return _converting(python, types, kind, null_if_any_null=True)


def _calculate(symbol: str, kind: Type, left: Any, right: Any) -> Any:
    try:
        return arithmetic.calculate(symbol, kind, left, right)
    except YtError as error:
        raise runtime_error(error.message) from error


def _null_safe_relation(base: str, types: Sequence[Type]) -> Callable[..., Any]:
    return comparison.relation(_RELATIONS[base], types, null_safe=True)


def _nulling_relation(base: str, types: Sequence[Type]) -> Callable[..., Any]:
    return comparison.relation(_RELATIONS[base], types, null_safe=False)


def _key(_base: None, types: Sequence[Type]) -> Callable[..., Any]:
    encode = key_encoder([comparison.COLUMNS[kind] for kind in types])
    return lambda *values: encode([[value] for value in values])[0]


def _after(_base: None, types: Sequence[Type]) -> Callable[..., Any]:
    encode = _key(None, types)
    return lambda *values: encode(*values) + AFTER


_FAMILIES: dict[str, Callable[[Any, Sequence[Type]], Callable[..., Any]]] = {
    "call": _scalar,
    "op": _operator,
    "is": _null_safe_relation,
    "was": _nulling_relation,
    "key": _key,
    "after": _after,
    "item": composites.item,
    "member": composites.member,
}


def _converting(
    python: Callable[..., Any],
    types: Sequence[Type],
    result: Type,
    *,
    null_if_any_null: bool,
) -> Callable[..., Any]:
    """Wrap a function on plain values into one on stored values."""
    decoders = [storage.decoder(kind) for kind in types]
    encode = storage.encoder(result)

    def call(*stored: Any) -> Any:
        if null_if_any_null and None in stored:
            return None
        plain = [
            value if decode is None or value is None else decode(value)
            for decode, value in zip(decoders, stored, strict=True)
        ]
        value = python(*plain)
        return value if encode is None or value is None else encode(value)

    return call


def _like(operator: str, text: Any, pattern: Any, *escape: Any) -> int | None:
    if None in (text, pattern, *escape):
        return None
    return int(strings.like(operator, text, pattern, *(escape or (None,))))


_HELPERS: dict[str, tuple[int, Callable[..., Any]]] = {
    "yt_flip": (1, storage.flip),
    "yt_indexes": (-1, composites.indexes),
    "yt_like": (-1, _like),
    "yt_order_double": (1, comparison.order_double),
    "yt_order_document": (1, comparison.order_document),
    "yt_sum_integer": (2, aggregates.sum_integer),
    "yt_sum_double": (3, aggregates.sum_double),
    "yt_average_integer": (4, aggregates.average_integer),
    "yt_average_double": (3, aggregates.average_double),
}
_AGGREGATE_CLASSES: dict[str, tuple[int, Any]] = {
    "yt_first": (2, aggregates.First),
    "yt_argmin": (3, aggregates.ArgMin),
    "yt_argmax": (3, aggregates.ArgMax),
}
