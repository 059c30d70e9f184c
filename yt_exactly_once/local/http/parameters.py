"""Parameters of a request: gathered from formats, query string, headers and body, later ones winning.

Owns merging and the choice of formats, never the meaning of a parameter. Order and defaults follow
`yt/yt/server/http_proxy/context.cpp`.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any
from urllib.parse import parse_qsl

from yt import yson

from yt_exactly_once.local.commands.registry import DataType
from yt_exactly_once.local.errors import YtError
from yt_exactly_once.local.formats import json_format, structured
from yt_exactly_once.local.formats.structured import Format
from yt_exactly_once.local.http.messages import Request

_DEFAULTS: dict[DataType, Format] = {
    "null": structured.YSON_BINARY,
    "structured": structured.JSON,
    "tabular": structured.YSON_TEXT,
    "binary": structured.YSON_BINARY,
}
_NESTED_KEY = re.compile(r"\[([^\]]*)\]")


def header_format(headers: Mapping[str, str]) -> Format:
    """Return the format of header values: JSON unless `X-YT-Header-Format` says otherwise."""
    value = headers.get("x-yt-header-format")
    return structured.JSON if value is None else _header_format(value)


@lru_cache(maxsize=256)
def _header_format(value: str) -> Format:
    try:
        chosen = structured.parse_format(structured.load_yson(value.encode("latin-1"), "header"))
    except YtError as error:
        raise YtError('Unable to parse "X-YT-Header-Format" header', inner=[error]) from error
    if chosen.name not in {"yson", "json"}:
        raise YtError(f'Header format "{chosen.name}" is not supported; use yson or json')
    if chosen.name == "yson":
        # Binary YSON cannot live in a header.
        return Format("yson", {**chosen.attributes, "format": "text"})
    return chosen


def gather_header(headers: Mapping[str, str], name: str) -> bytes | None:
    """Return a header that may be split into numbered base64 pieces."""
    whole = headers.get(name)
    if whole is not None:
        return whole.encode("latin-1")
    pieces: list[str] = []
    while True:
        number = len(pieces)
        piece = headers.get(f"{name}{number}", headers.get(f"{name}-{number}"))
        if piece is None:
            break
        pieces.append(piece)
    if not pieces:
        return None
    decoded = b""
    for number, piece in enumerate(pieces):
        try:
            decoded += base64.b64decode(piece, validate=True)
        except (binascii.Error, ValueError) as error:
            raise YtError(f'Unable to decode base64 in header "{name}-{number}"') from error
    return decoded


def choose_format(
    headers: Mapping[str, str], yt_header: str, mime: str | None, data_type: DataType
) -> Format:
    """Return the format that an `X-YT-...` header names, or a MIME type, or that data of the kind have."""
    value = gather_header(headers, yt_header)
    if value is not None:
        form = header_format(headers)
        try:
            return structured.parse_format(structured.loads(value, form, f"header {yt_header}"))
        except YtError as error:
            raise YtError(f'Unable to parse "{yt_header}" header', inner=[error]) from error
    return structured.from_mime(mime) or _DEFAULTS[data_type]


def gather(request: Request, input_format: Format, output_format: Format) -> dict[str, Any]:
    """Merge the parameters of a request; the body of a POST has some, and they may choose formats."""
    merged: dict[str, Any] = {
        "input_format": _format_value(input_format),
        "output_format": _format_value(output_format),
    }
    _patch(merged, _from_query(request.query))
    try:
        raw = gather_header(request.headers, "x-yt-parameters")
        if raw is not None:
            _patch(merged, _map(structured.loads(raw, header_format(request.headers), "header")))
    except YtError as error:
        raise YtError("Unable to parse parameters from headers", inner=[error]) from error
    if request.method == "POST" and request.body:
        try:
            _patch(
                merged, _map(structured.loads(bytes(request.body), input_format, "request body"))
            )
        except YtError as error:
            raise YtError("Unable to parse parameters from request body", inner=[error]) from error
    return merged


def _map(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise YtError("Parameters must be a map")
    return {str(key): item for key, item in value.items()}


def _patch(base: dict[str, Any], patch: Mapping[str, Any]) -> None:
    for key, value in patch.items():
        old = base.get(key)
        if isinstance(old, dict) and isinstance(value, dict):
            _patch(old, value)
        else:
            base[key] = value


def _format_value(chosen: Format) -> Any:
    if not chosen.attributes:
        return chosen.name
    value = yson.YsonUnicode(chosen.name)
    value.attributes = dict(chosen.attributes)
    return value


def _from_query(query: str) -> dict[str, Any]:
    result: dict[str, Any] = {}
    try:
        pairs = parse_qsl(query, keep_blank_values=True, errors="strict")
    except ValueError as error:
        raise YtError(f"Unable to parse parameters from query string: {error}") from error
    for key, value in pairs:
        # Behind the last bracket there is nothing to search for.
        name, *_ = key.partition("[")
        keys = [name, *_NESTED_KEY.findall(key[: key.rfind("]") + 1])]
        if len(keys) > json_format.MAX_DEPTH:
            raise YtError(
                f'Unable to parse parameters from query string: "{key[:100]}..." is nested deeper'
                f" than {json_format.MAX_DEPTH} levels"
            )
        level = result
        for step in keys[:-1]:
            level = level.setdefault(step, {})
            if not isinstance(level, dict):
                raise YtError(f'Unable to parse parameters from query string: "{key}" clashes')
        level[keys[-1]] = _scalar(value)
    return {key: _with_attributes(value) for key, value in result.items()}


def _scalar(value: str) -> Any:
    return int(value) if re.fullmatch(r"-?\d{1,18}", value) else value


def _with_attributes(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    fixed = {key: _with_attributes(item) for key, item in value.items()}
    if "$value" in fixed:
        typed = yson.to_yson_type(fixed["$value"])
        typed.attributes = fixed.get("$attributes", {})
        return typed
    return fixed
