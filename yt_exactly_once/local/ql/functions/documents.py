"""Functions on values of type `any`: access by path, conversion and printing.

A value of type `any` is the blob of its binary YSON, here and in the store.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from yt import yson
from yt.yson import YsonUint64

from yt_exactly_once.local.errors import YtError
from yt_exactly_once.local.ql.functions.general import scalar_in_any
from yt_exactly_once.local.ql.functions.signatures import declare, function
from yt_exactly_once.local.ql.value_types import SCALAR, Type
from yt_exactly_once.local.tables.values import dump_yson

_MISSING = object()
_INT64_END = 1 << 63
_ITEMS = SCALAR | {Type.ANY}


def load(blob: bytes) -> Any:
    """Parse a value of type `any`, strings as bytes."""
    return yson.loads(blob, encoding=None)


def _path_tokens(path: bytes) -> list[tuple[bool, bytes]]:
    """Split a YPath into (is attribute, name) steps."""
    if not path:
        return []
    if not path.startswith(b"/"):
        raise _bad_path(path)
    tokens = []
    for raw in path[1:].split(b"/"):
        is_attribute = raw.startswith(b"@")
        name = raw[1:] if is_attribute else raw
        if not name:
            raise _bad_path(path)
        tokens.append((is_attribute, name))
    return tokens


def _bad_path(path: bytes) -> YtError:
    return YtError(f'Unexpected YPath token while parsing "{path.decode(errors="replace")}"')


def _step(node: Any, name: bytes, *, is_attribute: bool) -> Any:
    if is_attribute:
        return (getattr(node, "attributes", None) or {}).get(name, _MISSING)
    if isinstance(node, dict):
        return node.get(name, _MISSING)
    if isinstance(node, list):
        try:
            index = int(name)
        except ValueError:
            return _MISSING
        return node[index] if 0 <= index < len(node) else _MISSING
    return _MISSING


def _find(blob: bytes, path: bytes) -> Any:
    node = load(blob)
    for is_attribute, name in _path_tokens(path):
        node = _step(node, name, is_attribute=is_attribute)
        if node is _MISSING:
            break
    return node


def _converted(node: Any, target: Type) -> Any:
    """Return a node as a value of the target type, or None when it is something else."""
    if node is _MISSING:
        return None
    if target is Type.ANY:
        return dump_yson(node)
    kind, value = scalar_in_any(dump_yson(node))
    match target, kind:
        case Type.INT64, Type.UINT64:
            return value if value < _INT64_END else None
        case Type.UINT64, Type.INT64:
            return value if value >= 0 else None
        case Type.DOUBLE, Type.INT64 | Type.UINT64:
            return float(value)
    return value if kind is target else None


def _getter(target: Type, *, strict: bool) -> Callable[..., Any]:
    def get(blob: bytes, path: bytes) -> Any:
        value = _converted(_find(blob, path), target)
        if value is None and strict:
            shown = path.decode(errors="replace")
            raise YtError(f'Value of type "{target.title}" is not found at YPath "{shown}"')
        return value

    return get


for _target in _ITEMS:
    for _prefix in ("", "try_"):
        declare(
            f"{_prefix}get_{_target.title}",
            (Type.ANY, Type.STRING),
            _target,
            python=_getter(_target, strict=not _prefix),
        )


@function("any_to_yson_string", (Type.ANY,), Type.STRING)
def _to_text(blob: bytes) -> bytes:
    text: bytes = yson.dumps(load(blob), yson_format="text")
    return text


@function("to_any", ("value",), Type.ANY, typed=True)
def _to_any(types: Sequence[Type], value: Any) -> bytes:
    if types[0] is Type.ANY:
        return bytes(value)
    return dump_yson(YsonUint64(value) if types[0] is Type.UINT64 else value)
