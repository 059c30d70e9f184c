"""Types of the query language: the wire types of columns and what a literal may become.

It has type sets and their names. Inference works on type sets: the set of an expression has every type that
is still possible. If nothing outside decides, the smallest type wins.
"""

from __future__ import annotations

from enum import IntEnum

from yt_exactly_once.local.errors import YtError
from yt_exactly_once.local.tables.types import KINDS


class Type(IntEnum):
    """A value type; the order is the order in which inference prefers types."""

    NULL = 2
    INT64 = 3
    UINT64 = 4
    DOUBLE = 5
    BOOLEAN = 6
    STRING = 16
    ANY = 17

    @property
    def title(self) -> str:
        """Name as the server spells it in messages."""
        return self.name.lower()


TypeSet = frozenset[Type]

ALL_TYPES: TypeSet = frozenset(Type)
NUMERIC: TypeSet = frozenset((Type.INT64, Type.UINT64, Type.DOUBLE))
INTEGRAL: TypeSet = frozenset((Type.INT64, Type.UINT64))
SCALAR: TypeSet = NUMERIC | {Type.BOOLEAN, Type.STRING}

LITERAL_TYPES: dict[Type, TypeSet] = {
    Type.NULL: ALL_TYPES,
    Type.INT64: NUMERIC,
    Type.UINT64: frozenset((Type.UINT64, Type.DOUBLE)),
}
"""Types a literal can be converted to; the others stay what they are."""


def only(kind: Type) -> TypeSet:
    """Return the set with one type."""
    return frozenset((kind,))


def of_literal(kind: Type) -> TypeSet:
    """Return the types a literal of a type can take."""
    return LITERAL_TYPES.get(kind) or only(kind)


def describe(types: TypeSet) -> str:
    """Spell a type set the way error messages of the server do.

    Raises:
        YtError: the type is `any`, which queries of a server compare and convert, and those here do not.
    """
    if types == only(Type.ANY):
        raise YtError(
            "Operations on values of type any are not supported by the embedded cluster; select them,"
            " or test them with is_null"
        )
    if len(types) == 1:
        return min(types).title
    return f"one of {{{', '.join(kind.title for kind in sorted(types))}}}"


def of_column(wire_type: str) -> Type:
    """Return the type of a column: its wire type, whatever the logical one is."""
    return Type[KINDS[wire_type].upper()]
