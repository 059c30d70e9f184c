"""Requests as parameters of commands, and what commands return as responses, field by field.

The table of messages says what a field is: bytes are YSON, a text whose name ends in `path` is a path, which
may have attributes in YSON before it, and an id is two fixed numbers on the wire and text for commands. Only
what commands call otherwise is named here, or by the method.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from yt import yson

from yt_exactly_once.local.cypress import ypath
from yt_exactly_once.local.cypress.permissions import PERMISSIONS
from yt_exactly_once.local.errors import YtError
from yt_exactly_once.local.formats.structured import Format, dump_yson, loads
from yt_exactly_once.local.rpc import message_types
from yt_exactly_once.local.rpc.message_types import FieldEntry, text

_LOW = (1 << 32) - 1

_GROUP_NAMES = """
    TMutatingOptions TPrerequisiteOptions TRowBatchReadOptions TSuppressableAccessTrackingOptions
    TTabletRangeOptions TTransactionalOptions
"""
_GROUPS = frozenset(_GROUP_NAMES.split())
"""Messages whose fields are parameters of their own."""

_APART = frozenset(
    ("TLockMask", "TReadRequestComplexityLimits", "TReplicationProgress", "TRowsetDescriptor")
)
"""Messages of which the methods take what they need; others are maps for commands."""

_RENAMED = {
    "legacy_attributes": "attributes",
    "ping_ancestors": "ping_ancestor_transactions",
    "revisions": "prerequisite_revisions",
    "transactions": "prerequisite_transaction_ids",
}
_MICROSECONDS = frozenset(("deadline", "max_data_ttl", "min_data_ttl", "timeout"))
_NAMES: dict[str, dict[int, str]] = {
    "atomicity": {0: "full", 1: "none"},
    "durability": {0: "sync", 1: "async"},
    "mode": {0: "none", 1: "snapshot", 2: "shared", 3: "exclusive"},
    "permission": {number: name for name, number in PERMISSIONS.items()},
    "read_mode": {0: "default", 1: "latest_timestamp"},
}
"""Numbers that commands know by name, by field."""


def parameters(message: Any, **renamed: str) -> dict[str, Any]:
    """Return the fields of a request that are set or have a default, as commands call them."""
    found: dict[str, Any] = {}
    for field in message_types.fields(message):
        name = renamed.get(field.name) or _RENAMED.get(field.name, field.name)
        value = getattr(message, field.name)
        if field.kind in _APART:
            continue
        if field.label == "*":
            loaded = (_load(field, name, each) for each in value)
            found[name] = [item for item in loaded if item is not None]
        elif field.kind in _GROUPS:
            found |= parameters(value) if message.HasField(field.name) else {}
        elif field.default or message.HasField(field.name):
            # The null id is none.
            if field.kind != "TGuid" or _id_of(value):
                found[name] = _load(field, name, value)
            elif field.label == "!":
                raise YtError(f'Missing required field "{field.name}"')
    return found


def _id_of(guid: Any) -> str | None:
    """Return the text of an id, or `None` for the null one."""
    if not guid.first and not guid.second:
        return None
    groups = (guid.second >> 32, guid.second & _LOW, guid.first >> 32, guid.first & _LOW)
    return "-".join(f"{group:x}" for group in groups)


def transaction_of(message: Any) -> str:
    """Return the id of a transaction, which must not be null."""
    found = _id_of(message.transaction_id)
    if found is None:
        raise YtError('Missing required field "transaction_id"')
    return found


def _load_text(value: bytes, name: str) -> Any:
    return load_path(value, name) if name.endswith(("path", "paths")) else text(value, name)


def load_path(raw: bytes, what: str = "path") -> Any:
    """Return a path as a parameter of a command."""
    if not raw.lstrip().startswith(b"<"):
        return text(raw, what)
    plain, attributes = ypath.parse_rich(raw.lstrip(), what)
    return yson.to_yson_type(plain, attributes)


_YSON = Format("yson")


def _load_attributes(value: Any, name: str) -> dict[str, Any]:
    return {text(item.key, name): loads(item.value, _YSON, name) for item in value.attributes}


_LOADERS: dict[str, Callable[[Any, str], Any]] = {
    "TAttributeDictionary": _load_attributes,
    "TGuid": lambda value, _: _id_of(value),
    "TReqRegisterQueueConsumer.TRegistrationPartitions": lambda value, _: list(value.items),
    "TPrerequisiteOptions.TTransactionPrerequisite": lambda value, _: transaction_of(value),
    "bytes": lambda value, name: loads(value, _YSON, name),
    "string": _load_text,
}


def _load(field: FieldEntry, name: str, value: Any) -> Any:
    if field.kind in _LOADERS:
        return _LOADERS[field.kind](value, name)
    if field.is_message:
        return parameters(value)
    if field.name in _MICROSECONDS:
        # Less than a millisecond is one, since zero means something else.
        return max(value // 1000, 1) if value else 0
    if field.name in _NAMES:
        if value not in _NAMES[field.name]:
            raise YtError(f"Unknown {field.name} {value}")
        return _NAMES[field.name][value]
    return value


def fill(message: Any, answer: Any) -> Any:
    """Write what a command has returned into the fields of the same names; return the message."""
    for field in message_types.fields(message):
        value = answer.get(field.name)
        if value is None:
            continue
        target = getattr(message, field.name)
        if field.label == "*":
            for each in value:
                if field.is_message:
                    fill(target.add(), each)
                else:
                    target.append(_dump(field, each))
        elif field.kind == "TGuid":
            groups = [int(group, 16) for group in value.split("-")]
            target.second = groups[0] << 32 | groups[1]
            target.first = groups[2] << 32 | groups[3]
        elif field.is_message:
            # Some lists are messages of their own.
            fill(target, {"items": value} if isinstance(value, list) else value)
            target.SetInParent()
        else:
            setattr(message, field.name, _dump(field, value))
    return message


def _dump(field: FieldEntry, value: Any) -> Any:
    if field.kind == "string":
        return _dump_text(value)
    return dump_yson(value) if field.kind == "bytes" else int(value)


def _dump_text(value: Any) -> bytes:
    """Return a text, or a path with its attributes; what came as bytes that are no text goes so."""
    attributes = getattr(value, "attributes", None)
    plain = str(value).encode(errors="surrogateescape")
    if not attributes:
        return plain
    holder = yson.to_yson_type(None, dict(attributes))
    encoded: bytes = yson.dumps(holder, yson_format="text")
    return encoded.removesuffix(b"#").rstrip() + plain
