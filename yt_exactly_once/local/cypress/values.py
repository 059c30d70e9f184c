"""Paths inside values: how `get`, `set`, `list` and `remove` reach into documents and attributes.

Values are plain Python here; a change is made in place and the caller stores the whole value again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from yt_exactly_once.local.cypress.ypath import Mark, Step
from yt_exactly_once.local.errors import Code, YtError

MAX_DEPTH = 200
"""Levels of maps and lists; YSON parsers stop at 256."""

_BEGIN, _END, _BEFORE, _AFTER = "begin", "end", "before:", "after:"


def get(value: Any, steps: Sequence[Step], where: str) -> Any:
    """Return what a path inside a value leads to; raise 500, with the path of the value, for nothing."""
    is_name = False
    for step in steps:
        if is_name and step not in value:
            raise YtError(f'Attribute "{step}" is not found at {where}', Code.RESOLVE)
        if step is Mark.ATTRIBUTE:
            value = dict(getattr(value, "attributes", None) or {})
        else:
            value = value[step if is_name else _place(value, step, where)]
        is_name = step is Mark.ATTRIBUTE
        where = _below(where, step)
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
    return _with(value, steps, new, where, recursive=recursive)


def _with(value: Any, steps: Sequence[Step], new: Any, where: str, *, recursive: bool) -> Any:
    if not steps:
        return new
    step, *rest = steps
    if step is Mark.ATTRIBUTE:
        raise _attributes_stay(where)
    if isinstance(step, str):
        is_place = step in {_BEGIN, _END} or step.startswith((_BEFORE, _AFTER))
        if isinstance(value, list) and not rest and is_place:
            value.insert(insertion_index(value, step, where), new)
            return value
        if isinstance(value, dict) and step not in value and (recursive or not rest):
            value[step] = {}
    place = _place(value, step, where)
    value[place] = _with(value[place], rest, new, _below(where, step), recursive=recursive)
    return value


def _attributes_stay(where: str) -> YtError:
    return YtError(
        f"Changing attributes inside of a value is not supported by the embedded cluster; set {where}"
        " with the attributes that it should have"
    )


def check_depth(value: Any, above: int, where: str) -> None:
    """Refuse a value that would be too deep to be read back, with the path of the whole."""
    if above > MAX_DEPTH:
        raise YtError(f"Depth limit of {MAX_DEPTH} exceeded at {where}")
    if isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            check_depth(item, above + 1, where)


def remove(value: Any, steps: Sequence[Step], where: str, *, force: bool = False) -> Any:
    """Remove what a path inside a value leads to; return the whole."""
    step, *rest = steps
    if step is Mark.ATTRIBUTE:
        raise _attributes_stay(where)
    if step is Mark.ASTERISK and isinstance(value, dict | list):
        value.clear()
        return value
    if force and not exists(value, [step]):
        return value
    place = _place(value, step, where)
    if rest:
        value[place] = remove(value[place], rest, _below(where, step), force=force)
    else:
        del value[place]
    return value


def keys(value: Any, where: str) -> list[Any]:
    """Return what `list` shows of a value."""
    if isinstance(value, dict | list):
        return list(value)
    raise YtError(f'"List" method is not supported by {where}')


def _below(where: str, step: Step) -> str:
    return f"{where}/{step.value if isinstance(step, Mark) else step}".replace("/@/", "/@")


def _place(value: Any, step: Step, where: str) -> Any:
    """Return the key or the index of the child that a step leads to; raise 500 for none."""
    if isinstance(value, dict) and isinstance(step, str):
        if step in value:
            return step
        raise YtError(f'Node {where} has no child with key "{step}"', Code.RESOLVE)
    if isinstance(value, list) and isinstance(step, str):
        return item_index(value, step, where)
    raise YtError(f"{where} cannot have children", Code.RESOLVE)


def item_index(items: Sequence[Any], step: str, where: str) -> int:
    """Return the index of the item that a step names, from the end if negative; raise 500 for none."""
    try:
        index = int(step)
    except ValueError as error:
        raise YtError(f'"{step}" is not a valid list index in {where}', Code.RESOLVE) from error
    found = index + len(items) if index < 0 else index
    if not 0 <= found < len(items):
        raise YtError(
            f"Node {where} has no child with index {index}: it has {len(items)} items", Code.RESOLVE
        )
    return found


def insertion_index(items: Sequence[Any], step: str, where: str) -> int:
    """Return the index that an item put at such a place gets; raise 500 without its neighbour."""
    if step == _BEGIN:
        return 0
    if step == _END:
        return len(items)
    if step.startswith(_BEFORE):
        return item_index(items, step.removeprefix(_BEFORE), where)
    return item_index(items, step.removeprefix(_AFTER), where) + 1
