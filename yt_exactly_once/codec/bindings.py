"""The C bindings for YSON, the only place that imports them.

They parse pulled rows and check YSON given in DataFrames. Writing does not need them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from yt_exactly_once.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

try:
    import yt_yson_bindings as _bindings
except ImportError as error:
    raise ConfigError(
        f"The YSON bindings cannot be loaded ({error})",
        remedy="Install them with: pip install ytsaurus-yson",
    ) from error


def parse_rows(rows: bytes) -> list[Any]:
    """Parse a list fragment; strings are bytes, unsigned numbers are of a subclass of int.

    Raises:
        ValueError: this is not YSON.
    """
    parsed: list[Any] = _parsed(lambda: list(_loads(rows, "list_fragment")))
    return parsed


def parse_value(value: bytes) -> Any:
    """Parse one value, attributes kept.

    Raises:
        ValueError: this is not exactly one YSON value.
    """
    return _parsed(lambda: _loads(value, "node"))


def write_value(value: Any) -> bytes:
    """Write one parsed value as binary YSON, attributes and unsignedness kept."""
    return bytes(_bindings.dumps(value, yson_format="binary", encoding=None))


def _loads(source: bytes, kind: str) -> Any:
    return _bindings.loads(source, yson_type=kind, encoding=None, always_create_attributes=False)


def _parsed(parse: Callable[[], Any]) -> Any:
    try:
        return parse()
    except Exception:  # noqa: BLE001 - its class lives in a package that only others may import
        # Not chained: the parser's error quotes the bytes around the place, which are row values.
        raise ValueError("this is not valid YSON") from None
