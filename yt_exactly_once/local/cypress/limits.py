"""Which values nodes and their attributes take: limits of masters, and how data is stored.

`//sys/@config` may change the limits. Codecs, media, accounts, bundles and their kin are attributes of any
node: tables and files begin with those of the folders above them. Most of them change nothing here, but a
name that no cluster knows is refused as masters refuse it.
"""

from __future__ import annotations

from itertools import islice
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
_LEVELS = {"brotli": range(1, 12), "zlib": range(1, 10), "zstd": range(1, 22)}
_LEVELS |= {"lzma": range(10), "bzip2": range(1, 10)}
COMPRESSION_CODECS = (
    "none",
    "snappy",
    "lz4",
    "lz4_high_compression",
    *(f"{name}_{level}" for name, levels in _LEVELS.items() for level in levels),
)
_PARITIES = ("reed_solomon_6_3", "reed_solomon_3_3", "lrc_12_2_2")
_ERASURE_CODECS = ("none", *_PARITIES, *(f"isa_{name}" for name in _PARITIES))
CHOICES: dict[str, tuple[str, tuple[str, ...]]] = {
    "atomicity": ("EAtomicity", ("full", "none")),
    "commit_ordering": ("ECommitOrdering", ("weak", "strong")),
    "compression_codec": ("ECodec", COMPRESSION_CODECS),
    "erasure_codec": ("ECodec", _ERASURE_CODECS),
    "hunk_erasure_codec": ("ECodec", _ERASURE_CODECS),
    "in_memory_mode": ("EInMemoryMode", ("none", "compressed", "uncompressed")),
    "optimize_for": ("EOptimizeFor", ("lookup", "scan")),
}
_MEDIUM = "default"
_MAX_REPLICATION_FACTOR = 20

_OF_FILES = "compression_codec erasure_codec media primary_medium replication_factor vital"
_OF_TABLES = """
    atomicity commit_ordering hunk_erasure_codec in_memory_mode optimize_for profiling_mode profiling_tag
    tablet_cell_bundle
"""
INHERITABLE = {"file": _OF_FILES.split(), "table": [*_OF_FILES.split(), *_OF_TABLES.split()]}
"""What a new node takes from the folders above it, by its type; to remove it there twice is fine."""


def check_string(view: View, value: Any) -> None:
    """Refuse a string that no string node holds."""
    length, limit = len(yson.get_bytes(value)), _limit(view, "max_string_node_length")
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
        text = value.encode() if isinstance(value, str) else b"\xff"
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


def _limit(view: View, name: str) -> int:
    return int(_config(view).get("cypress_manager", {}).get(name, _DEFAULTS[name]))


def _config(view: View) -> dict[str, Any]:
    system = view.child(ROOT_ID, "sys")
    config = None if system is None else view.attribute(system, "config")
    return config if isinstance(config, dict) else {}


def check(view: View, name: str, value: Any) -> None:
    """Refuse a value that a setting cannot have; other attributes have any."""
    if name in CHOICES:
        enum, choices = CHOICES[name]
        if value not in choices:
            raise YtError(f'Error parsing {enum} value "{value}"; expected one of {choices}')
    elif name in {"account", "tablet_cell_bundle"}:
        if not isinstance(value, str) or view.find(f"{name}s", value) is None:
            raise YtError(f'No such {name.replace("_", " ")} "{value}"', Code.RESOLVE)
    elif name == "primary_medium":
        _check_medium(value)
    elif name == "media":
        if not isinstance(value, dict):
            raise YtError('Error parsing attribute "media": expected a map')
        for medium in value:
            _check_medium(medium)
    elif name == "replication_factor" and not (
        type(value) is int and 1 <= value <= _MAX_REPLICATION_FACTOR
    ):
        raise YtError(
            f"Replication factor must be in range [1,{_MAX_REPLICATION_FACTOR}], got {value}"
        )


def inherited(view: View, node_id: str, node_type: str) -> dict[str, Any]:
    """Return what a new node takes from the folders above it, the nearest first."""
    wanted = INHERITABLE.get(node_type, ())
    found: dict[str, Any] = {}
    for parent_id in islice(view.above(node_id), 1, None) if wanted else ():
        above = view.attributes(parent_id)
        found = {**{name: above[name] for name in wanted if name in above}, **found}
    return found


def _check_medium(name: Any) -> None:
    if name != _MEDIUM:
        raise YtError(f'No such medium "{name}"; the embedded cluster has "{_MEDIUM}"')
