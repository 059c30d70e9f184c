"""Formats: their names and attributes, and how one structured value is read and written.

It chooses YSON or JSON for values; `row_formats` does so for rows. Strings of a structured value are `str`,
or `YsonStringProxy` if the bytes are not UTF-8. Numbers, lists and maps are plain Python unless they have
attributes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from yt import yson

from yt_exactly_once.local import support
from yt_exactly_once.local.errors import Code, YtError, text_of
from yt_exactly_once.local.formats import json_format
from yt_exactly_once.local.tables.large_values import check_weight

_NAMES = "null yson json dsv yamr yamred_dsv schemaful_dsv protobuf web_json skiff arrow yaml"
NAMES = frozenset(_NAMES.split())


@dataclass(frozen=True)
class Format:
    """A format name with its attributes, as in `<format=binary>yson`."""

    name: str
    attributes: Mapping[str, Any] = field(default_factory=dict)


YSON_TEXT = Format("yson", {"format": "text"})
YSON_BINARY = Format("yson", {"format": "binary"})
JSON = Format("json")

_MIME = {
    "application/json": JSON,
    "application/x-yt-yson-binary": YSON_BINARY,
    "application/x-yt-yson-text": YSON_TEXT,
    "application/x-yt-yson-pretty": Format("yson", {"format": "pretty"}),
    **{
        f"application/x-yamr-{kind}": Format("yamr")
        for kind in ("delimited", "lenval", "subkey-delimited", "subkey-lenval")
    },
    **dict.fromkeys(("text/tab-separated-values", "text/x-tskv"), Format("dsv")),
    "text/csv": Format("schemaful_dsv"),
}


def parse_format(value: Any) -> Format:
    """Read a format parameter: a string, possibly with attributes.

    Raises:
        YtError: the value is no string, or no format has that name.
    """
    if not isinstance(value, str):
        raise YtError("Format must be a string, possibly with attributes", Code.INVALID_FORMAT)
    name = str(value)
    if name not in NAMES:
        raise YtError(f'Invalid format name "{name}"', Code.INVALID_FORMAT)
    attributes = dict(getattr(value, "attributes", None) or {})
    support.check_format(name, attributes)
    return Format(name, attributes)


def from_mime(mime: str | None) -> Format | None:
    """Return the format that a `Content-Type` or `Accept` header asks for, if any."""
    if mime is None:
        return None
    for choice in mime.split(","):
        known = _MIME.get(choice.split(";")[0].strip().lower())
        if known is not None:
            return known
    return None


def to_mime(output: Format) -> str:
    """Return the `Content-Type` of a format."""
    if output.name == "yson":
        variant = output.attributes.get("format", "binary")
        return f"application/x-yt-yson-{variant}"
    if output.name == "arrow":
        return "application/vnd.apache.arrow.stream"
    for mime, known in _MIME.items():
        if known.name == output.name:
            return mime
    return "application/octet-stream"


def loads(data: bytes, source: Format, what: str) -> Any:
    """Parse one structured value.

    Args:
        what: where it comes from, for the error text.

    Raises:
        YtError: the data is malformed or the format is not structured.
    """
    if source.name == "json":
        return json_format.loads(data, source.attributes, what)
    if source.name != "yson":
        raise YtError(
            f'Format "{source.name}" cannot hold the structured value of {what}; use yson or json',
            Code.INVALID_FORMAT,
        )
    check_weight(data, what)
    return load_yson(data, what)


def load_yson(data: bytes, what: str) -> Any:
    """Parse one YSON value of any variant, of whatever size: one that the store has."""
    if not data.strip():
        raise YtError(f"Error parsing {what}: value expected, found end of stream", Code.YSON_PARSE)
    try:
        return yson.loads(data, always_create_attributes=False)
    except (yson.YsonError, ValueError, TypeError, RecursionError) as error:
        raise YtError(f"Error parsing {what} as YSON: {text_of(error)}", Code.YSON_PARSE) from error


def dump_yson(value: Any, variant: str = "binary") -> bytes:
    """Encode one value as YSON."""
    encoded: bytes = yson.dumps(value, yson_format=variant)
    return encoded


def dumps(value: Any, target: Format) -> bytes:
    """Encode one structured value.

    Raises:
        YtError: the format is not structured or cannot express the value.
    """
    if target.name == "json":
        return json_format.dumps(value, target.attributes)
    if target.name != "yson":
        raise YtError(
            f'Unsupported output format "{target.name}" for a structured value; use yson or json',
            Code.INVALID_FORMAT,
        )
    variant = target.attributes.get("format", "binary")
    if variant not in {"binary", "text", "pretty"}:
        raise YtError(f'Invalid YSON variant "{variant}"', Code.INVALID_FORMAT)
    return dump_yson(value, str(variant))
