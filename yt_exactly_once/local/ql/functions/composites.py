"""Composite values inside SQLite: items of lists and members of structs, tuples and dicts.

Owns the evaluation; types were settled when the query was bound. A composite value is the blob of its
binary YSON, in the normal form of `tables.composites`: structs are maps.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

from yt_exactly_once.local.ql.functions.storage import encoder
from yt_exactly_once.local.ql.value_types import Type
from yt_exactly_once.local.tables.values import dump_yson, load_yson

# Every item of a list asks for the whole list again.
_load = lru_cache(maxsize=32)(load_yson)


def indexes(*blobs: bytes | None) -> str:
    """Return the indexes of the longest of several lists, as `json_each` takes them."""
    return json.dumps(list(range(max(len(_load(blob) or ()) if blob else 0 for blob in blobs))))


def item(kind: Type) -> Callable[..., Any]:
    """Return the function from a list and an index to a stored value of a type."""
    return partial(_item, _stored(kind))


def member(kind: Type) -> Callable[..., Any]:
    """Return the function from a value, a path as JSON and possibly a key to a stored value."""
    return partial(_member, _stored(kind))


def _item(store: Callable[[Any], Any], blob: bytes | None, index: int | None) -> Any:
    values = (blob and _load(blob)) or ()
    if index is None or not 0 <= index < len(values) or values[index] is None:
        return None
    return store(values[index])


def _member(store: Callable[[Any], Any], blob: bytes | None, path: bytes, *key: Any) -> Any:
    if blob is None:
        return None
    value = _load(blob)
    for step in json.loads(path):
        if value is None:
            return None
        value = value[step] if isinstance(step, int) else value.get(step.encode())
    if key and value is not None:
        value = _entry(value, key[0])
    return None if value is None else store(value)


def _entry(value: Any, key: Any) -> Any:
    """Return an item of a list by its index, or of a dict, a list of pairs, by its key."""
    if isinstance(key, int):
        return value[key] if 0 <= key < len(value) else None
    return next((found for name, found in value if name == key), None)


def _stored(kind: Type) -> Callable[[Any], Any]:
    return dump_yson if kind is Type.ANY else encoder(kind) or _plain


def _plain(value: Any) -> Any:
    return value
