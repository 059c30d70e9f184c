"""CAST: which function converts a type to another one.

Owns the table of casts (`TUserCastCodegen` in `builtin_function_profiler.cpp`). The server has CAST only
in its second expression builder; here it is always there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from yt_exactly_once.local.errors import YtError
from yt_exactly_once.local.ql.functions.table import SCALARS
from yt_exactly_once.local.ql.text.naming import expression_text
from yt_exactly_once.local.ql.value_types import Type

if TYPE_CHECKING:
    from yt_exactly_once.local.ql.functions.signatures import Function
    from yt_exactly_once.local.ql.text.syntax import Expression

_TARGETS = {
    "int64": Type.INT64,
    "uint64": Type.UINT64,
    "double": Type.DOUBLE,
    "boolean": Type.BOOLEAN,
    "string": Type.STRING,
    "utf8": Type.STRING,
    "any": Type.ANY,
    "yson": Type.ANY,
}
_NUMBERS = (Type.INT64, Type.UINT64, Type.DOUBLE)
_INTEGERS = (Type.INT64, Type.UINT64)
_FUNCTIONS: dict[tuple[Type, Type], str] = {
    **{(source, Type.ANY): "to_any" for source in Type},
    **{(source, target): target.title for source in _NUMBERS for target in _NUMBERS},
    **{(source, Type.BOOLEAN): "boolean" for source in _INTEGERS},
    **{(Type.BOOLEAN, target): target.title for target in _INTEGERS},
    **{(Type.STRING, target): f"parse_{target.title}" for target in _NUMBERS},
    **{(source, Type.STRING): "numeric_to_string" for source in (*_NUMBERS, Type.NULL)},
    **{
        (source, target): target.title
        for source in (Type.NULL, Type.ANY)
        for target in (*_NUMBERS, Type.BOOLEAN)
    },
    (Type.ANY, Type.STRING): "string",
}


def cast_function(source: Type, target: Expression) -> Function | None:
    """Return the function that casts, or None when there is nothing to do.

    Args:
        target: the name of the wanted type as the parser puts it, a constant string.

    Raises:
        YtError: no such type, or no such cast.
    """
    name = expression_text(target).strip('"').lower()
    wanted = _TARGETS.get(name)
    if wanted is None:
        raise YtError(f'Unknown type "{name}" in CAST', known=sorted(_TARGETS))
    if source is wanted:
        return None
    function_name = _FUNCTIONS.get((source, wanted))
    if function_name is None:
        raise YtError(f"Cast from {source.title} to {wanted.title} is not supported at the moment")
    return SCALARS[function_name]
