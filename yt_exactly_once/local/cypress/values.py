"""Paths inside values: how `get`, `set`, `list` and `remove` reach into documents and attributes.

Values are plain Python here; a change is made in place and the caller stores the whole value again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from yt_exactly_once.local.cypress.ypath import Mark
from yt_exactly_once.local.errors import Code, YtError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from yt_exactly_once.local.cypress.ypath import Step

MAX_DEPTH = 200
"""Levels of maps and lists; YSON parsers stop at 256."""

_BEGIN, _END, _BEFORE, _AFTER = "begin", "end", "before:", "after:"


def get(value: Any, steps: Sequence[Step], where: str) -> Any:
    """Return what a path inside a value leads to.

    Args:
        value: the whole value.
        steps: the path inside it.
        where: path of the whole value, for errors.

    Raises:
        YtError: with code 500 when there is nothing.
    """
    for step in steps:
        value = _child(value, step, where)
        where = f"{where}/{step}"
    return value


def exists(value: Any, steps: Sequence[Step]) -> bool:
    """Tell whether a path inside a value leads to something."""
    try:
        get(value, steps, "")
    except YtError:
        return False
    return True


def set_(
    value: Any, steps: Sequence[Step], new: Any, where: str, *, recursive: bool = False
) -> Any:
    """Put a value at a path inside a value; return the whole."""
    if not steps:
        return new
    check_depth(new, len(steps), where)
    holder = value
    for step in steps[:-1]:
        if recursive and isinstance(holder, dict) and isinstance(step, str) and step not in holder:
            holder[step] = {}
        holder = _child(holder, step, where)
        where = f"{where}/{step}"
    last = steps[-1]
    if isinstance(holder, dict) and isinstance(last, str):
        holder[last] = new
    elif isinstance(holder, list) and isinstance(last, str):
        if is_insertion(last):
            holder.insert(insertion_index(holder, last, where), new)
        else:
            holder[item_index(holder, last, where)] = new
    else:
        raise _no_children(where)
    return value


def check_depth(value: Any, above: int, where: str) -> None:
    """Refuse a value that would be too deep to be read back.

    Args:
        value: the new value.
        above: levels that are above it.
        where: path of the whole, for the error.
    """
    if above > MAX_DEPTH:
        raise YtError(f"Depth limit of {MAX_DEPTH} exceeded at {where}")
    if isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            check_depth(item, above + 1, where)


def remove(value: Any, steps: Sequence[Step], where: str, *, force: bool = False) -> Any:
    """Remove what a path inside a value leads to; return the whole."""
    *inner, last = steps
    holder = get(value, inner, where)
    if last is Mark.ASTERISK and isinstance(holder, dict | list):
        holder.clear()
        return value
    if force and not exists(holder, [last]):
        return value
    _child(holder, last, where)
    if isinstance(holder, dict):
        del holder[last]
    else:
        del holder[item_index(holder, str(last), where)]
    return value


def keys(value: Any, where: str) -> list[Any]:
    """Return what `list` shows of a value."""
    if isinstance(value, dict):
        return list(value)
    if isinstance(value, list):
        return list(value)
    raise YtError(f'"List" method is not supported by {where}')


def _child(value: Any, step: Step, where: str) -> Any:
    if isinstance(value, dict) and isinstance(step, str):
        if step in value:
            return value[step]
        raise YtError(f'Node {where} has no child with key "{step}"', Code.RESOLVE)
    if isinstance(value, list) and isinstance(step, str):
        return value[item_index(value, step, where)]
    raise _no_children(where)


def _no_children(where: str) -> YtError:
    return YtError(f"{where} cannot have children", Code.RESOLVE)


def item_index(items: Sequence[Any], step: str, where: str) -> int:
    """Return the index of the item that a step names; negative ones count from the end.

    Raises:
        YtError: with code 500 when there is no such item.
    """
    index = parse_index(step, where)
    found = index + len(items) if index < 0 else index
    if not 0 <= found < len(items):
        raise YtError(
            f"Node {where} has no child with index {index}: it has {len(items)} items",
            Code.RESOLVE,
        )
    return found


def parse_index(step: str, where: str) -> int:
    """Read a list index.

    Raises:
        YtError: with code 500 when it is none.
    """
    try:
        return int(step)
    except ValueError as error:
        raise YtError(f'"{step}" is not a valid list index in {where}', Code.RESOLVE) from error


def is_insertion(step: str) -> bool:
    """Tell whether a step names a place between the items of a list."""
    return step in {_BEGIN, _END} or step.startswith((_BEFORE, _AFTER))


def insertion_index(items: Sequence[Any], step: str, where: str) -> int:
    """Return the index that an item put at such a place gets.

    Raises:
        YtError: with code 500 when the item beside it is not there.
    """
    if step == _BEGIN:
        return 0
    if step == _END:
        return len(items)
    if step.startswith(_BEFORE):
        return item_index(items, step.removeprefix(_BEFORE), where)
    return item_index(items, step.removeprefix(_AFTER), where) + 1
