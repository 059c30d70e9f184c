"""Names that the package keeps for columns of its own, which it adds to DataFrames and never writes.

Every such column begins with `RESERVED_PREFIX`. A DataFrame that already has one is refused, since Spark
would replace the user's column without a word.
"""

from __future__ import annotations

from collections.abc import Iterable

from yt_exactly_once.errors import SchemaMismatchError

RESERVED_PREFIX = "__yt_exactly_once_"
"""How the names of all internal columns begin, in whatever case."""


def is_reserved(name: str) -> bool:
    """Check whether a column of that name belongs to the package; Spark does not distinguish case."""
    return name.lower().startswith(RESERVED_PREFIX)


def require_no_reserved(names: Iterable[str], target: str) -> None:
    """Check that a DataFrame has no reserved column; raise `SchemaMismatchError` if it has one.

    Args:
        target: the table it is written to, for the message.
    """
    taken = [name for name in names if is_reserved(name)]
    if taken:
        raise SchemaMismatchError(
            f"The DataFrame has columns with reserved names: {', '.join(taken)}",
            remedy=f"Rename or drop them: names that begin with {RESERVED_PREFIX} belong to the sink",
            target=target,
        )
