"""The C bindings for YSON, the only place that imports them.

They parse pulled rows and check YSON given in DataFrames. Writing does not need them.
"""

from __future__ import annotations

from collections.abc import Iterator
from io import BytesIO
from typing import Any

from yt_exactly_once.errors import ConfigError

try:
    import yt_yson_bindings as _bindings
except ImportError as error:
    raise ConfigError(
        f"The YSON bindings cannot be loaded ({error})",
        remedy="Install them with: pip install ytsaurus-yson",
    ) from error


_PART_BYTES = 1 << 16
"""Rows of so many bytes are parsed at a time, or one longer row."""
_AS_IS = {"encoding": None, "always_create_attributes": False}
_INVALID = "this is not valid YSON"
"""Without the parser's error, which quotes the bytes around the place: they are row values."""


def parse_rows(rows: bytes) -> Iterator[list[Any]]:
    """Parse a list fragment, some rows at a time; strings are bytes, unsigned numbers a subclass of int.

    Parsed rows take many times their bytes, and are parsed faster while they fit into a processor's caches.

    Raises:
        ValueError: this is not YSON.
    """
    source = BytesIO(rows)
    part: list[Any] = []
    start = 0
    try:
        for row in _bindings.load(source, yson_type="list_fragment", **_AS_IS):
            part.append(row)
            if source.tell() - start >= _PART_BYTES:
                yield part
                part, start = [], source.tell()
    except Exception:  # noqa: BLE001 - its class lives in a package that only others may import
        raise ValueError(_INVALID) from None
    yield part


def parse_value(value: bytes) -> Any:
    """Parse one value, attributes kept; raise `ValueError` if this is not exactly one YSON value."""
    try:
        return _bindings.loads(value, yson_type="node", **_AS_IS)
    except Exception:  # noqa: BLE001 - as above
        raise ValueError(_INVALID) from None


def write_value(value: Any) -> bytes:
    """Write one parsed value as binary YSON, attributes and unsignedness kept."""
    return bytes(_bindings.dumps(value, yson_format="binary", encoding=None))
