"""Reading command parameters: each with its expected type, and an error that names the parameter.

As in the real driver, a number or a flag may arrive as a string, since query strings have no types.
"""

from __future__ import annotations

from typing import Any

from yt_exactly_once.local.errors import YtError

_MISSING: Any = object()
NULL_ID = "0-0-0-0"


def text(value: Any, name: str) -> str:
    """Return a string parameter."""
    if value is None:
        raise YtError(f'Missing required parameter "{name}"')
    if not isinstance(value, str):
        raise YtError(f'Error parsing parameter "{name}": expected a string')
    return str(value)


def mapping(value: Any, name: str) -> dict[str, Any]:
    """Return a map parameter, its keys as strings."""
    if value is None:
        raise YtError(f'Missing required parameter "{name}"')
    if not isinstance(value, dict):
        raise YtError(f'Error parsing parameter "{name}": expected a map')
    return {str(key): item for key, item in value.items()}


def flag(parameters: dict[str, Any], name: str, default: bool = False) -> bool:
    """Return a boolean parameter."""
    value = parameters.get(name)
    if value is None:
        return default
    if isinstance(value, str):
        if value in {"true", "false"}:
            return value == "true"
    elif isinstance(value, int) and value in {0, 1}:
        return bool(value)
    raise YtError(f'Error parsing parameter "{name}": expected a boolean')


def integer(parameters: dict[str, Any], name: str, default: Any = _MISSING) -> Any:
    """Return an integer parameter, or the default when it is absent."""
    value = parameters.get(name)
    if value is None:
        if default is _MISSING:
            raise YtError(f'Missing required parameter "{name}"')
        return default
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise YtError(f'Error parsing parameter "{name}": expected an integer')
    try:
        return int(value)
    except ValueError as error:
        raise YtError(f'Error parsing parameter "{name}": expected an integer') from error


def identifier(parameters: dict[str, Any], name: str) -> str | None:
    """Return an object id, or `None` for an absent or null one."""
    value = parameters.get(name)
    if value is None:
        return None
    given = text(value, name)
    return None if given in {NULL_ID, ""} else given
