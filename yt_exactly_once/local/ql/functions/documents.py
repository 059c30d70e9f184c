"""Functions on values of type `any`: access by path, search in lists, building and printing YSON.

A value of type `any` is the blob of its binary YSON, here and in the store.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from yt import yson
from yt.yson import YsonUint64

from yt_exactly_once.local.errors import YtError, text_of
from yt_exactly_once.local.ql.functions.general import scalar_in_any
from yt_exactly_once.local.ql.functions.signatures import declare, function
from yt_exactly_once.local.ql.value_types import SCALAR, Type

_MISSING = object()
_INT64_END = 1 << 63
_ITEMS = SCALAR | {Type.ANY}


def load(blob: bytes) -> Any:
    """Parse a value of type `any`, strings as bytes."""
    return yson.loads(blob, encoding=None)


def dump(value: Any) -> bytes:
    """Print a value as binary YSON."""
    dumped: bytes = yson.dumps(value, yson_format="binary")
    return dumped


def to_document(kind: Type, value: Any) -> Any:
    """Return a value of the query language as a Python object that YSON prints with its type."""
    if value is None or kind is Type.NULL:
        return None
    match kind:
        case Type.ANY:
            return load(value)
        case Type.UINT64:
            return YsonUint64(value)
    return value


def dump_value(kind: Type, value: Any) -> bytes:
    """Print a value of the query language as binary YSON."""
    return bytes(value) if kind is Type.ANY else dump(to_document(kind, value))


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
        return dump(node)
    kind, value = scalar_in_any(dump(node))
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


def _typed(node: Any) -> tuple[Type | None, Any]:
    return scalar_in_any(dump(node))


def _list(blob: bytes) -> Any:
    node = load(blob)
    if not isinstance(node, list):
        raise YtError(f"YSON List expected, but got {type(node).__name__.removeprefix('Yson')}")
    return node


@function(
    "list_contains", (Type.ANY, SCALAR | {Type.NULL}), Type.BOOLEAN, typed=True, nulls="taken"
)
def _contains(types: Sequence[Type], blob: bytes | None, value: Any) -> bool | None:
    if blob is None or scalar_in_any(blob)[0] is Type.NULL:
        return None
    wanted = (Type.NULL if value is None else types[1], value)
    return any(_typed(node) == wanted for node in _list(blob))


@function("list_has_intersection", (Type.ANY, Type.ANY), Type.BOOLEAN)
def _intersects(left: bytes, right: bytes) -> bool:
    wanted = [_typed(node) for node in _list(right)]
    kinds = {kind for kind, _ in wanted if kind is not Type.NULL}
    if len(kinds) > 1:
        message = "ListHasIntersection args list must contain only elements of the same type"
        raise YtError("Error while executing UDF", inner=[YtError(message)])
    return any(_typed(node) in wanted for node in _list(left) if _typed(node)[0] in kinds)


@function("yson_length", (Type.ANY,), Type.INT64)
def _length(blob: bytes) -> int:
    node = load(blob)
    if not isinstance(node, list | dict):
        kind, _ = scalar_in_any(blob)
        name = "Entity" if kind in (None, Type.NULL) else kind.name.capitalize()
        raise YtError(f"YSON List or Map expected, but got {name}")
    return len(node)


@function("make_list", (), Type.ANY, repeated=_ITEMS, typed=True, nulls="never")
def _make_list(types: Sequence[Type], *values: Any) -> bytes:
    return dump([to_document(kind, value) for kind, value in zip(types, values, strict=True)])


@function("make_map", (), Type.ANY, repeated=_ITEMS, typed=True, nulls="never")
def _make_map(types: Sequence[Type], *values: Any) -> bytes:
    if len(values) % 2:
        raise YtError('"make_map" takes a even number of arguments')
    result = {}
    for index in range(0, len(values), 2):
        kind = Type.NULL if values[index] is None else types[index]
        if kind is not Type.STRING:
            raise YtError(
                f"Invalid type of key in key-value pair #{index // 2}: "
                f'expected "string", got "{kind.title}"'
            )
        result[values[index]] = to_document(types[index + 1], values[index + 1])
    return dump(result)


@function("any_to_yson_string", (Type.ANY,), Type.STRING)
def _to_text(blob: bytes) -> bytes:
    text: bytes = yson.dumps(load(blob), yson_format="text")
    return text


@function("yson_string_to_any", (Type.STRING,), Type.ANY)
def _from_text(text: bytes) -> bytes:
    try:
        return dump(load(text))
    except yson.YsonError as error:
        raise YtError("Error parsing YSON string", inner=[YtError(text_of(error))]) from error


@function("to_any", ("value",), Type.ANY, typed=True)
def _to_any(types: Sequence[Type], value: Any) -> bytes:
    return dump_value(types[0], value)


declare("make_entity", (), Type.ANY, sql="NULL")
