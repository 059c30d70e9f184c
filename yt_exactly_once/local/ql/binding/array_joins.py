"""ARRAY JOIN: lists of a row become rows, several lists side by side.

Owns the binding of the clause. SQLite unrolls the lists through `json_each` over their indexes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from yt_exactly_once.local.errors import YtError
from yt_exactly_once.local.ql.binding.scope import ArraySource, logical_type
from yt_exactly_once.local.tables import types
from yt_exactly_once.local.tables.schema import Column as SchemaColumn

if TYPE_CHECKING:
    from yt_exactly_once.local.ql.binding.binder import Binder
    from yt_exactly_once.local.ql.binding.bound import Bound
    from yt_exactly_once.local.ql.binding.scope import AnySource, Scope
    from yt_exactly_once.local.ql.text import syntax


@dataclass(frozen=True)
class BoundArrayJoin:
    """An ARRAY JOIN that is ready to be compiled.

    Attributes:
        is_left: whether rows without items are kept.
        predicate: condition on the items.
    """

    source: ArraySource
    is_left: bool
    predicate: Bound | None


def bind_array_join(
    join: syntax.ArrayJoin, index: int, own: Binder, foreign: Binder, own_scope: Scope, inner: Scope
) -> BoundArrayJoin:
    """Bind one ARRAY JOIN; raise `YtError` if an expression is no list."""
    arrays: dict[str, Bound] = {}
    columns = []
    for alias in join.arrays:
        bound = own.bind(alias.expression)
        item = _item_type(bound, own_scope.sources)
        v1, required = types.to_v1(item)
        arrays[alias.name] = bound
        columns.append(SchemaColumn(alias.name, v1, item, required))
    source = ArraySource(index, arrays, tuple(columns))
    inner.add(source)
    predicate = None
    if join.predicate is not None:
        predicate = foreign.predicate(join.predicate, "JOIN-PREDICATE-clause")
    return BoundArrayJoin(source, join.is_left, predicate)


def _item_type(bound: Bound, sources: Sequence[AnySource]) -> Any:
    logical = logical_type(bound, sources)
    inner = types.value_type(logical)
    if not isinstance(inner, dict) or inner["type_name"] != "list":
        raise YtError(
            "Expected a list-like type expression in the ARRAY JOIN operator, "
            f"got {types.describe(logical)}"
        )
    return inner["item"]
