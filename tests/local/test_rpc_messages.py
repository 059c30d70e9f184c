"""Messages of the RPC protocol: our table against the descriptors inside the C++ driver."""

import importlib.util
import mmap
from pathlib import Path

import pytest
from google.protobuf import descriptor_pb2

from yt_exactly_once.local.errors import YtError
from yt_exactly_once.local.rpc import message_types

pytest.importorskip("yt_driver_rpc_bindings")

Field = descriptor_pb2.FieldDescriptorProto
FILES = (
    "yt_proto/yt/client/api/rpc_proxy/proto/api_service.proto",
    "yt_proto/yt/client/chaos_client/proto/replication_card.proto",
    "yt_proto/yt/client/chunk_client/proto/data_statistics.proto",
    "yt_proto/yt/client/hive/proto/timestamp_map.proto",
    "yt_proto/yt/client/table_client/proto/versioned_io_options.proto",
    "yt_proto/yt/client/tablet_client/proto/lock_mask.proto",
    "yt_proto/yt/core/bus/proto/bus.proto",
    "yt_proto/yt/core/misc/proto/error.proto",
    "yt_proto/yt/core/misc/proto/guid.proto",
    "yt_proto/yt/core/misc/proto/protobuf_helpers.proto",
    "yt_proto/yt/core/rpc/proto/rpc.proto",
    "yt_proto/yt/core/ytree/proto/attributes.proto",
    "yt_proto/yt/core/ytree/proto/request_complexity_limits.proto",
)
LENGTH_DELIMITED = 2


def varint(data, position):
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value, position


def embedded(data, name):
    """Return a serialized file: from its name on, as long as fields of such a message follow."""
    start = data.find(b"\n" + bytes([len(name)]) + name.encode())
    assert start >= 0, name
    _, position = varint(data, start + 2)
    end = position = start + 2 + len(name)
    while True:
        key, position = varint(data, position)
        number, kind = key >> 3, key & 7
        if kind != LENGTH_DELIMITED or number not in range(2, 15):
            return bytes(data[start:end])
        size, position = varint(data, position)
        position += size
        end = position


@pytest.fixture(scope="module")
def real():
    """Messages of the driver by their full names."""
    spec = importlib.util.find_spec("yt_driver_rpc_bindings")
    (library,) = Path(spec.origin).parent.glob("driver_rpc_lib*.so")
    found = {}

    def collect(prefix, messages):
        for message in messages:
            found[f"{prefix}.{message.name}"] = message
            collect(f"{prefix}.{message.name}", message.nested_type)

    with library.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        for name in FILES:
            parsed = descriptor_pb2.FileDescriptorProto.FromString(embedded(data, name))
            collect(parsed.package, parsed.message_type)
    return found


def described(field):
    kind = Field.Type.Name(field.type).removeprefix("TYPE_").lower()
    if field.type == Field.TYPE_MESSAGE:
        kind = field.type_name.rpartition(".")[2]
    label = {Field.LABEL_OPTIONAL: "", Field.LABEL_REQUIRED: "!", Field.LABEL_REPEATED: "*"}
    # Defaults of enumerations are names there and numbers in the table.
    default = "" if kind == "enum" else field.default_value
    return field.number, kind, label[field.label], default


@pytest.mark.parametrize("entry", message_types.entries(), ids=lambda entry: entry.name)
def test_table_agrees_with_the_driver(entry, real):
    """Names, numbers, types, labels and defaults, field by field."""
    message = real[f"{entry.package}.{entry.name}"]
    fields = {field.name: described(field) for field in message.field}
    if entry.name == "TRequestHeader":
        (extension,) = real["NYT.NRpc.NProto.TCredentialsExt"].extension
        fields[extension.name] = described(extension)
    for field in entry.fields:
        kind = field.kind.rpartition(".")[2]
        default = "" if kind == "enum" else field.default
        assert (field.number, kind, field.label, default) == fields[field.name], field.name
    if entry.package.endswith("NRpcProxy.NProto") and entry.name.startswith("TReq"):
        known = {field.number for field in entry.fields} | entry.inert
        assert {number for number, *_ in fields.values()} <= known, "a field is refused as newer"


@pytest.mark.parametrize(
    ("data", "refused"), [(b"\xa0\x06\x01", True), (b"\xa0\x06\x00", False), (b"\x20\x01", False)]
)
def test_field_of_a_newer_client_is_refused_when_it_asks_for_something(data, refused):
    """A number that no list has; neither zero nor a field without effect stands in the way."""
    request = message_types.new("TReqCreateObject")
    request.type = 1
    encoded = message_types.dump(request) + data
    if not refused:
        assert message_types.parse_request("TReqCreateObject", encoded) is not None
        return
    with pytest.raises(YtError, match="Field 100 of TReqCreateObject is not supported"):
        message_types.parse_request("TReqCreateObject", encoded)
