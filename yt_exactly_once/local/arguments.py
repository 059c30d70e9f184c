"""Reading command parameters: each with its expected type, and an error that names the parameter.

As in the real driver, a number or a flag may arrive as a string, since query strings have no types.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from yt_exactly_once.local.errors import YtError

_MISSING: Any = object()
NULL_ID = "0-0-0-0"
_INT64 = range(-(2**63), 2**63)
_UINT64 = range(2**64)


def text(value: Any, name: str) -> str:
    """Return a string parameter."""
    return str(_typed(value, name, str, "string"))


def mapping(value: Any, name: str) -> dict[str, Any]:
    """Return a map parameter, its keys as strings."""
    return {str(key): item for key, item in _typed(value, name, dict, "map").items()}


def flag(parameters: Mapping[str, Any], name: str, default: bool = False) -> bool:
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


def flags(parameters: Mapping[str, Any], *names: str) -> dict[str, bool]:
    """Return boolean parameters, false by default."""
    return {name: flag(parameters, name) for name in names}


def integer(
    parameters: Mapping[str, Any], name: str, default: Any = _MISSING, *, unsigned: bool = False
) -> Any:
    """Return a parameter of type int64, or uint64, or the default when it is absent."""
    value = parameters.get(name)
    if value is None:
        if default is _MISSING:
            raise YtError(f'Missing required parameter "{name}"')
        return default
    return _number(value, name, _UINT64 if unsigned else _INT64)


def integers(value: Any, name: str) -> list[int]:
    """Return a parameter that is a list of integers."""
    return [_number(item, name, _INT64) for item in _typed(value, name, list, "list")]


def texts(value: Any, name: str) -> list[str]:
    """Return a parameter that is a list of strings."""
    return [text(item, name) for item in _typed(value, name, list, "list")]


def moment(parameters: dict[str, Any], name: str) -> datetime | None:
    """Return a time, given as ISO 8601 (UTC without a zone) or in unix milliseconds, or `None`."""
    value = parameters.get(name)
    if value is None:
        return None
    try:
        if isinstance(value, str):
            given = datetime.fromisoformat(str(value))
            return given if given.tzinfo else given.replace(tzinfo=UTC)
        return datetime.fromtimestamp(_number(value, name, _UINT64) / 1000, UTC)
    except (ValueError, OverflowError, OSError) as error:
        raise YtError(f'Error parsing parameter "{name}": expected a time') from error


def identifier(parameters: dict[str, Any], name: str) -> str | None:
    """Return an object id, or `None` for an absent or null one."""
    value = parameters.get(name)
    if value is None:
        return None
    given = text(value, name)
    return None if given in {NULL_ID, ""} else given


def _typed(value: Any, name: str, kind: type, title: str) -> Any:
    if value is None:
        raise YtError(f'Missing required parameter "{name}"')
    if not isinstance(value, kind):
        raise YtError(f'Error parsing parameter "{name}": expected a {title}')
    return value


def _number(value: Any, name: str, allowed: range) -> int:
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise YtError(f'Error parsing parameter "{name}": expected an integer')
    try:
        number = int(value)
    except ValueError as error:
        raise YtError(f'Error parsing parameter "{name}": expected an integer') from error
    if number not in allowed:
        raise YtError(
            f'Error parsing parameter "{name}": {number} is not between {allowed.start}'
            f" and {allowed.stop - 1}"
        )
    return number
