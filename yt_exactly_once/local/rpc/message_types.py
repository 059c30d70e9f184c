"""Classes for the messages of `message_table`, built when this module is imported.

Strings are fields of bytes here: clients put binary YSON into paths, and what is no UTF-8 must reach the
code that can answer it. `text` decodes where text is expected.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError
from google.protobuf.unknown_fields import UnknownFieldSet

from yt_exactly_once.local.errors import YtError
from yt_exactly_once.local.rpc.message_table import GROUPS, MESSAGES

_Field = descriptor_pb2.FieldDescriptorProto
_PACKAGE = "yt_exactly_once.rpc"
_FIELD = re.compile(r"(\w+)=(\d+) ([\w.]+)([!*]?)(?:=(\w+))?")
_GROUP = re.compile(r"\+(\w+)")
_LABELS = {"": _Field.LABEL_OPTIONAL, "!": _Field.LABEL_REQUIRED, "*": _Field.LABEL_REPEATED}
_TYPES = {
    "int32": _Field.TYPE_INT32,
    "int64": _Field.TYPE_INT64,
    "uint32": _Field.TYPE_UINT32,
    "uint64": _Field.TYPE_UINT64,
    "fixed64": _Field.TYPE_FIXED64,
    "bool": _Field.TYPE_BOOL,
    "bytes": _Field.TYPE_BYTES,
    "string": _Field.TYPE_BYTES,
    # Numbers that have no name yet must not vanish.
    "enum": _Field.TYPE_INT32,
}


@dataclass(frozen=True)
class FieldEntry:
    """One field of the table: `kind` is a type of protobuf, `enum`, or the name of a message."""

    name: str
    number: int
    kind: str
    label: str
    default: str

    @property
    def is_message(self) -> bool:
        """Whether its values are messages."""
        return self.kind not in _TYPES


@dataclass(frozen=True)
class MessageEntry:
    """One message of the table.

    Attributes:
        name: with the names of the messages around it in front.
        inert: numbers of further fields, which change nothing.
    """

    package: str
    name: str
    fields: tuple[FieldEntry, ...]
    inert: frozenset[int]


@cache
def entries() -> list[MessageEntry]:
    """Return the table, parsed."""
    found: list[MessageEntry] = []
    package = ""
    for line in filter(None, MESSAGES.splitlines()):
        if line.startswith("["):
            package = line.strip("[]")
            continue
        names, _, short = line.partition(":")
        short, _, inert = short.partition(";")
        listed = _GROUP.sub(lambda found: GROUPS[found[1]], short)
        fields = tuple(
            FieldEntry(field, int(number), kind, label, default or "")
            for field, number, kind, label, default in _FIELD.findall(listed)
        )
        numbers = frozenset(map(int, inert.split()))
        found += [MessageEntry(package, name, fields, numbers) for name in names.split()]
    return found


def _build() -> dict[str, type[Any]]:
    file = descriptor_pb2.FileDescriptorProto(name="rpc.proto", package=_PACKAGE, syntax="proto2")
    for entry in entries():
        message = file.message_type.add(name=_flat(entry.name))
        for item in entry.fields:
            field = message.field.add(name=item.name, number=item.number, label=_LABELS[item.label])
            field.type = _TYPES.get(item.kind, _Field.TYPE_MESSAGE)
            if item.is_message:
                field.type_name = f".{_PACKAGE}.{_flat(item.kind)}"
            if item.default:
                field.default_value = item.default
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    found = {
        entry.name: pool.FindMessageTypeByName(f"{_PACKAGE}.{_flat(entry.name)}")
        for entry in entries()
    }
    return {name: message_factory.GetMessageClass(each) for name, each in found.items()}


def _flat(name: str) -> str:
    return name.replace(".", "_")


_CLASSES = _build()
_INERT = {entry.name: entry.inert for entry in entries()}
_FIELDS = {_CLASSES[entry.name].DESCRIPTOR.full_name: entry.fields for entry in entries()}


def new(name: str, **values: Any) -> Any:
    """Return a message with these fields."""
    return _CLASSES[name](**values)


def fields(message: Any) -> tuple[FieldEntry, ...]:
    """Return what the table says of the fields of a message."""
    return _FIELDS[message.DESCRIPTOR.full_name]


def parse(name: str, data: bytes) -> Any:
    """Parse a message; raise `YtError` if the bytes are not a message, or a required field is missing."""
    try:
        message = _CLASSES[name].FromString(data)
    except DecodeError as error:
        raise YtError(f"Error deserializing a message of type {name}: {error}") from error
    if not message.IsInitialized():
        missing = ", ".join(message.FindInitializationErrors())
        raise YtError(f"Error deserializing a message of type {name}: {missing} is missing")
    return message


def parse_request(name: str, data: bytes) -> Any:
    """Parse a request; refuse, by its number, a field of newer clients that asks for something."""
    message = parse(name, data)
    for field in UnknownFieldSet(message):
        if field.data and field.field_number not in _INERT[name]:
            raise YtError(
                f"Field {field.field_number} of {name} is not supported by the embedded cluster:"
                " it is newer; leave the option out"
            )
    return message


def dump(message: Any) -> bytes:
    """Serialize a message."""
    encoded: bytes = message.SerializeToString()
    return encoded


def text(value: bytes, what: str) -> str:
    """Return a field of text; raise `YtError` if it is no UTF-8."""
    try:
        return value.decode()
    except UnicodeDecodeError as error:
        raise YtError(f"Error parsing {what}: it is not UTF-8") from error
