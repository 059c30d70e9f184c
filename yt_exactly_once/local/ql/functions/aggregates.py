"""Aggregate functions: signatures, and the SQL that computes them.

One entry per aggregate. Sums are split into halves of 32 bits, so SQLite's own `sum` cannot overflow.
Aggregates that depend on the order of rows get the position of each row, because SQLite does not promise an
order inside a group.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from yt_exactly_once.local.ql.functions import storage
from yt_exactly_once.local.ql.functions.documents import dump, to_document
from yt_exactly_once.local.ql.value_types import NUMERIC, SCALAR, Type, TypeSet

if TYPE_CHECKING:
    from yt_exactly_once.local.ql.functions.signatures import Parameter

AggregateSql = Callable[[Sequence[str], Sequence[Type], str], str]


@dataclass(frozen=True)
class AggregateFunction:
    """An aggregate.

    Attributes:
        name: lower-case name.
        parameters: what the arguments must be.
        result: type of the result, or the type variable it equals.
        sql: builds SQL from the arguments, their types and the position of the row.
        variables: constraints of the type variables.
        never_null: whether the result is never null.
        repeated: always None; aggregates have a fixed number of arguments.
    """

    name: str
    parameters: tuple[Parameter, ...]
    result: Parameter
    sql: AggregateSql
    variables: Mapping[str, TypeSet] = field(default_factory=dict, hash=False)
    never_null: bool = False
    repeated: None = None


def _halves(argument: str) -> str:
    return f"sum({argument} >> 32), sum({argument} & 4294967295)"


def _double_parts(argument: str) -> str:
    return f"sum({argument}), count({argument}), sum(typeof({argument}) = 'text')"


def _sum(arguments: Sequence[str], types: Sequence[Type], _position: str) -> str:
    if types[0] is Type.DOUBLE:
        return f"yt_sum_double({_double_parts(arguments[0])})"
    return f"yt_sum_integer({_halves(arguments[0])})"


def _avg(arguments: Sequence[str], types: Sequence[Type], _position: str) -> str:
    (argument,) = arguments
    if types[0] is Type.DOUBLE:
        return f"yt_average_double({_double_parts(argument)})"
    unsigned = int(types[0] is Type.UINT64)
    return f"yt_average_integer({_halves(argument)}, count({argument}), {unsigned})"


def _extreme(name: str) -> AggregateSql:
    def build(arguments: Sequence[str], types: Sequence[Type], _position: str) -> str:
        (argument,) = arguments
        if types[0] is Type.UINT64:
            return f"yt_flip({name}(yt_flip({argument})))"
        return f"{name}({argument})"

    return build


def _first(arguments: Sequence[str], _types: Sequence[Type], position: str) -> str:
    return f"yt_first({position}, {arguments[0]})"


def _arg_extreme(name: str) -> AggregateSql:
    def build(arguments: Sequence[str], types: Sequence[Type], position: str) -> str:
        value, by = arguments
        if types[1] is Type.UINT64:
            by = f"yt_flip({by})"
        return f"yt_{name}({position}, {value}, {by})"

    return build


def _cardinality(arguments: Sequence[str], types: Sequence[Type], _position: str) -> str:
    (argument,) = arguments
    # The server hashes null like zero, so null counts as a value.
    if types[0] is Type.STRING:
        return f"(count(DISTINCT {argument}) + max({argument} IS NULL))"
    return f"count(DISTINCT ifnull({argument}, 0))"


def _array_agg(arguments: Sequence[str], types: Sequence[Type], position: str) -> str:
    value, ignore_nulls = arguments
    return f"yt_array_agg_{types[0].code}({position}, {value}, {ignore_nulls})"


_COMPARABLE = {"by": SCALAR}

AGGREGATES: dict[str, AggregateFunction] = {
    function.name: function
    for function in (
        AggregateFunction("sum", ("value",), "value", _sum, {"value": NUMERIC}),
        AggregateFunction("avg", ("value",), Type.DOUBLE, _avg, {"value": NUMERIC}),
        AggregateFunction("min", ("by",), "by", _extreme("min"), _COMPARABLE),
        AggregateFunction("max", ("by",), "by", _extreme("max"), _COMPARABLE),
        AggregateFunction("first", ("value",), "value", _first, {"value": SCALAR | {Type.ANY}}),
        AggregateFunction("argmin", ("value", "by"), "value", _arg_extreme("argmin"), _COMPARABLE),
        AggregateFunction("argmax", ("value", "by"), "value", _arg_extreme("argmax"), _COMPARABLE),
        *(
            AggregateFunction(name, (SCALAR,), Type.UINT64, _cardinality, never_null=True)
            for name in ("cardinality", *(f"hll_{precision}" for precision in range(7, 15)))
        ),
        AggregateFunction(
            "array_agg", (SCALAR | {Type.ANY}, Type.BOOLEAN), Type.ANY, _array_agg, never_null=True
        ),
    )
}


def sum_integer(high: int | None, low: int | None) -> int | None:
    """Put the halves of a sum together, modulo 2**64, in the form of the store."""
    if high is None or low is None:
        return None
    return storage.to_signed((high << 32) + low)


def average_integer(high: int | None, low: int | None, count: int, unsigned: int) -> float | None:
    """Divide the sum of integers by their number."""
    total = sum_integer(high, low)
    if total is None:
        return None
    return float(storage.to_unsigned(total) if unsigned else total) / count


def sum_double(total: float | None, count: int, nan_count: int | None) -> float | str | None:
    """Correct SQLite's sum of doubles, which takes NaN for zero or null."""
    if not count:
        return None
    return storage.NAN if nan_count or total is None else float(total)


def average_double(total: float | None, count: int, nan_count: int | None) -> float | str | None:
    """Divide the sum of doubles by their number."""
    corrected = sum_double(total, count, nan_count)
    return corrected if corrected is None else storage.encode_double(float(corrected) / count)


class First:
    """The first value that is not null."""

    def __init__(self) -> None:
        self._best: tuple[Any, Any] | None = None

    def step(self, position: Any, value: Any) -> None:
        """Take a row."""
        if value is not None and (self._best is None or position < self._best[0]):
            self._best = (position, value)

    def finalize(self) -> Any:
        """Return the value."""
        return None if self._best is None else self._best[1]


class ArgMin:
    """The value of the row where another expression is smallest; the first such row."""

    def __init__(self) -> None:
        self._best: tuple[Any, Any, Any] | None = None

    def better(self, left: Any, right: Any) -> bool:
        """Tell whether one key beats another."""
        return bool(left < right)

    def step(self, position: Any, value: Any, by: Any) -> None:
        """Take a row; a null on either side is passed over."""
        if value is None or by is None:
            return
        by = math.nan if by == storage.NAN else by
        if self._best is not None:
            best_by, best_position, _ = self._best
            if not self.better(by, best_by) and (by != best_by or position >= best_position):
                return
        self._best = (by, position, value)

    def finalize(self) -> Any:
        """Return the value."""
        return None if self._best is None else self._best[2]


class ArgMax(ArgMin):
    """The value of the row where another expression is largest; the first such row."""

    def better(self, left: Any, right: Any) -> bool:
        """Tell whether one key beats another."""
        return bool(left > right)


class ArrayAgg:
    """All values as a YSON list, in the order of rows."""

    def __init__(self, kind: Type) -> None:
        self._decode = storage.decoder(kind)
        self._kind = kind
        self._items: list[tuple[Any, int, Any]] = []

    def step(self, position: Any, value: Any, ignore_nulls: Any) -> None:
        """Take a row."""
        if value is not None or not ignore_nulls:
            self._items.append((position, len(self._items), value))

    def finalize(self) -> bytes:
        """Return the list."""
        values = [item[2] for item in sorted(self._items, key=lambda item: item[:2])]
        return dump([to_document(self._kind, self._plain(value)) for value in values])

    def _plain(self, value: Any) -> Any:
        return value if value is None or self._decode is None else self._decode(value)
