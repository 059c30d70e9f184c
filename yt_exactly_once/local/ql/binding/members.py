"""Access to the members of composite columns: `t.struct.field`, `t.tuple.0`, `t.list[1]`, `t.dict["key"]`.

Owns the way from a path and a logical type to the type of the member.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from yt_exactly_once.local.errors import YtError
from yt_exactly_once.local.ql.binding.bound import Bound, Member
from yt_exactly_once.local.ql.text.naming import expression_text
from yt_exactly_once.local.ql.value_types import Type, of_logical
from yt_exactly_once.local.tables import types

if TYPE_CHECKING:
    from yt_exactly_once.local.ql.binding.operators import Untyped
    from yt_exactly_once.local.ql.text import syntax


def bind_member(
    reference: syntax.Reference,
    base: Bound,
    logical: Any,
    bind: Callable[[syntax.Expression], Untyped],
) -> Bound:
    """Return a part of a column; raise `YtError` if the type has no such member."""
    source = {"source": expression_text(reference)}
    current = types.untagged(logical)
    for step in reference.path:
        current = types.untagged(_member(current, step, source))
    key = None
    if reference.item is not None:
        current, key = _item(current, reference.item, bind, source)
    return Member(
        of_logical(current), nullable=True, base=base, path=reference.path, key=key, logical=current
    )


def _member(logical: Any, step: str | int, source: dict[str, Any]) -> Any:
    """Return the type of a field of a struct or an element of a tuple; optional ones have none."""
    kind = logical["type_name"] if isinstance(logical, dict) else logical
    if kind == "struct" and isinstance(step, str):
        for member in logical["members"]:
            if member["name"] == step:
                return member["type"]
    if kind == "tuple" and isinstance(step, int) and step < len(logical["elements"]):
        return logical["elements"][step]["type"]
    raise YtError(f'Member "{step}" is not found', attributes=source)


def _item(
    logical: Any,
    item: syntax.Expressions,
    bind: Callable[[syntax.Expression], Untyped],
    source: dict[str, Any],
) -> tuple[Any, Bound]:
    if len(item) != 1:
        raise YtError(
            "Expression inside of the list or dict item accessor should be scalar",
            attributes=source,
        )
    kind = logical["type_name"] if isinstance(logical, dict) else logical
    if kind == "list":
        result, expected = logical["item"], Type.INT64
    elif kind == "dict":
        key_type = of_logical(logical["key"])
        if key_type is not Type.STRING:
            raise YtError(
                f'Expected string key type, but got "{key_type.title}"', attributes=source
            )
        result, expected = logical["value"], Type.STRING
    else:
        raise YtError("Incorrect nested item accessor", attributes=source)
    untyped = bind(item[0])
    if expected not in untyped.types:
        raise YtError("Incorrect type inside of the list or dict item accessor", attributes=source)
    return result, untyped.generate(expected)
