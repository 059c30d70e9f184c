"""Limits of masters on what nodes hold; `//sys/@config` may change them."""

from __future__ import annotations

from typing import Any

from yt import yson

from yt_exactly_once.local.cypress.layout import ROOT_ID
from yt_exactly_once.local.cypress.view import View
from yt_exactly_once.local.errors import Code, YtError
from yt_exactly_once.local.formats.structured import dump_yson
from yt_exactly_once.local.tables.schema import TableSchema, check_ascending

_DEFAULTS = {
    "max_string_node_length": 65_536,
    "max_attribute_size": 16 << 20,
    "max_map_node_key_length": 4_096,
}
_MAX_ANNOTATION = 1_024


def check_string(view: View, value: Any) -> None:
    """Refuse a string that no string node holds."""
    length, limit = len(_bytes(value)), _limit(view, "max_string_node_length")
    if length > limit:
        raise YtError(f"String node length limit exceeded: {length} > {limit}", limit=limit)


def check_key(view: View, key: bytes) -> None:
    """Refuse a key that no map node has."""
    limit = _limit(view, "max_map_node_key_length")
    if len(key) > limit:
        raise YtError(f"Map node key is longer than {limit} bytes", Code.MAX_KEY_LENGTH)


def check_attribute(view: View, name: str, value: Any) -> None:
    """Refuse a value that is too large for an attribute of users, or no annotation."""
    if name == "annotation" and value is not None:
        text = _bytes(value) if isinstance(value, str) else b"\xff"
        if len(text) > _MAX_ANNOTATION or not text.isascii():
            raise YtError(
                f"An annotation is a string of up to {_MAX_ANNOTATION} characters in ASCII"
            )
    if name == "config":
        return
    limit = _limit(view, "max_attribute_size")
    if isinstance(value, str | bytes | list | dict) and len(dump_yson(value)) > limit:
        raise YtError(
            f'Attribute "{name}" cannot be set: it takes more than {limit} bytes', limit=limit
        )


def check_order(view: View, schema: TableSchema) -> None:
    """Refuse descending order in a static table, unless the configuration of masters has it."""
    if not _config(view).get("enable_descending_sort_order"):
        check_ascending(schema)


def _bytes(value: Any) -> bytes:
    return value.encode() if isinstance(value, str) else bytes(yson.get_bytes(value))


def _limit(view: View, name: str) -> int:
    return int(_config(view).get("cypress_manager", {}).get(name, _DEFAULTS[name]))


def _config(view: View) -> dict[str, Any]:
    system = view.child(ROOT_ID, "sys")
    config = None if system is None else view.attribute(system, "config")
    return config if isinstance(config, dict) else {}
