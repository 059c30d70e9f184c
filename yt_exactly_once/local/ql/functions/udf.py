"""Python functions inside SQLite: names, installation on demand, errors that keep their type.

A module that writes a call asks for its SQL name here. The name is remembered with its function and the types
of the arguments. SQLite reports which function a connection lacks, so nothing is remembered per connection.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from yt_exactly_once.local.errors import YtError
from yt_exactly_once.local.ql import arithmetic
from yt_exactly_once.local.ql.functions import aggregates
from yt_exactly_once.local.ql.functions.general import runtime_error
from yt_exactly_once.local.ql.text.lexer import OPERATORS
from yt_exactly_once.local.ql.value_types import Type
from yt_exactly_once.local.tables import values

if TYPE_CHECKING:
    from yt_exactly_once.local.ql.functions.signatures import Function

    Python = Callable[..., Any]

_NAMES = {symbol: name.lower() for name, symbol in OPERATORS.items()} | {"negate": "negate"}

_SIGN = 1 << 63
_LACKING = "no such function: "
_TOO_DEEP = "parser stack overflow"

_failure = threading.local()


def execute(
    connection: sqlite3.Connection, statement: str, parameters: Sequence[Any] = ()
) -> list[tuple[Any, ...]]:
    """Run a statement that may use the functions of this module.

    Args:
        statement: SQL, the names of functions from here.

    Raises:
        YtError: a function of the statement failed on a value, or SQLite's parser has no room for
            the statement.
    """
    while True:
        _failure.error = None
        try:
            return connection.execute(statement, parameters).fetchall()
        except sqlite3.OperationalError as error:
            if _failure.error is not None:
                raise _failure.error from None
            if str(error) == _TOO_DEEP:
                raise YtError(
                    "Expressions are nested too deeply for the embedded cluster; "
                    "nest fewer functions and arithmetic operators"
                ) from error
            name = str(error).removeprefix(_LACKING)
            if name not in _functions:
                raise
            arguments, make = _functions[name]
            connection.create_function(name, arguments, _recorded(make()), deterministic=True)


def call_name(function: Function, types: Sequence[Type]) -> str:
    """Return the SQL name of a scalar function for arguments of given types."""
    return _remember(f"call_{function.name}", types, partial(_scalar, function, types))


def operator_name(symbol: str, types: Sequence[Type]) -> str:
    """Return the SQL name of an operator on operands of given types."""
    return _remember(f"op_{_NAMES[symbol]}", types, partial(_operator, symbol, types))


def relation_name(symbol: str) -> str:
    """Return the SQL name of a relational operator on doubles, which may be NaN."""
    types = (Type.DOUBLE, Type.DOUBLE)
    return _remember(f"is_{_NAMES[symbol]}", types, partial(_relation, symbol, types))


def _remember(name: str, types: Sequence[Type], make: Callable[[], Python]) -> str:
    """Return the SQL name of a function for arguments of given types."""
    full = f"yt_{name}_{''.join(kind.code for kind in types)}"
    _functions.setdefault(full, (len(types), make))
    return full


def _recorded(python: Python) -> Python:
    """Keep the error of a function: SQLite would only report that there was one."""

    def call(*arguments: Any) -> Any:
        try:
            return python(*arguments)
        except YtError as error:
            _failure.error = error
            raise

    return call


def _scalar(function: Function, types: Sequence[Type]) -> Python:
    if function.python is None:
        raise LookupError(f"Function {function.name} has no implementation for {types}")
    result = function.result if isinstance(function.result, Type) else types[0]
    return _converting(function.python, types, result, null_if_any_null=not function.takes_null)


def _operator(symbol: str, types: Sequence[Type]) -> Python:
    kind = types[0]
    if symbol == "negate":
        return _converting(partial(arithmetic.negate, kind), types, kind, null_if_any_null=True)
    python = partial(_run, arithmetic.calculate, symbol, kind)
    return _converting(python, types, kind, null_if_any_null=True)


def _relation(symbol: str, types: Sequence[Type]) -> Python:
    python = partial(_run, arithmetic.relate, symbol)
    return _converting(python, types, Type.BOOLEAN, null_if_any_null=False)


def _run(operator: Python, *arguments: Any) -> Any:
    try:
        return operator(*arguments)
    except YtError as error:
        raise runtime_error(error.message) from error


def _order_double(stored: Any) -> Any:
    """Pass a double that can be ordered."""
    if stored == values.NAN:
        raise runtime_error("Comparison with NaN")
    return stored


def _flip(value: int | None) -> int | None:
    """Map stored unsigned integers to signed ones of the same order, and back."""
    return None if value is None else arithmetic.wrap(Type.INT64, value ^ _SIGN)


def _converting(
    python: Python, types: Sequence[Type], result: Type, *, null_if_any_null: bool
) -> Python:
    """Wrap a function on plain values into one on stored values."""
    decoders = [values.DECODERS.get(kind.title) for kind in types]
    encode = values.ENCODERS.get(result.title)

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


def _itself(python: Python) -> Python:
    return python


_functions: dict[str, tuple[int, Callable[[], Python]]] = {
    name: (arguments, partial(_itself, python))
    for name, arguments, python in (
        ("yt_flip", 1, _flip),
        ("yt_order_double", 1, _order_double),
        ("yt_sum_integer", 2, aggregates.sum_integer),
        ("yt_sum_double", 3, aggregates.sum_double),
        ("yt_average_integer", 4, aggregates.average_integer),
        ("yt_average_double", 3, aggregates.average_double),
    )
}
"""Number of arguments and maker of every function that a statement has been given a name of."""
