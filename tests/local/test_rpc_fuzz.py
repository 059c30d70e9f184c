"""Random input for the RPC front: it answers, or closes the connection, and serves on."""

import contextlib
import os
import random
import socket
import struct
from typing import Any

import pytest

from tests.contract.tables import VALUE, create
from tests.rpc_client import KIND, RawRpc, RpcError, message, request_parts
from yt_exactly_once.local import LocalCluster
from yt_exactly_once.local.rpc import message_types
from yt_exactly_once.local.rpc.bus import envelopes, packets
from yt_exactly_once.local.rpc.methods import METHODS

ROUNDS = int(os.environ.get("YT_EXACTLY_ONCE_FUZZ_ROUNDS", "150"))
EXISTS = message("TReqExistsNode", path="/")
TEXTS = [
    b"//tmp", b"//tmp/fuzz/table", b"//tmp/fuzz/queue", b"//tmp/fuzz/consumer",
    b"//tmp/fuzz/producer", b"//tmp/fuzz/file", b"//tmp/fuzz/static",
    b"<append=%true>//tmp/fuzz/static", b"<\x01\x0aappend=\x05>//tmp/fuzz/static",
    b"* from [//tmp/fuzz/table]", b"//tmp/fuzz/table/@schema", b"", b"\xff\xfe", b"<", b"{a=1}",
    b"k", b"v", b"id",
]  # fmt: skip
NUMBERS = [0, 1, 2, 3, 5, 16, 100, 255, 400, 401, 2**31 - 1, -1, -(2**31)]


@pytest.fixture(scope="module")
def cluster():
    with LocalCluster() as running:
        client = running.client()
        client.create("map_node", "//tmp/fuzz")
        create(client, "//tmp/fuzz/table")
        create(client, "//tmp/fuzz/queue", [VALUE])
        client.create("table", "//tmp/fuzz/static")
        client.create("file", "//tmp/fuzz/file")
        for kind in ("consumer", "producer"):
            client.create(f"queue_{kind}", f"//tmp/fuzz/{kind}")
        yield running


@pytest.fixture
def alive(cluster):
    """After the test the proxy serves, and its log has no failure that nobody foresaw."""
    yield cluster.rpc_addresses[0]
    with RawRpc(cluster.rpc_addresses[0]) as rpc:
        assert rpc.call("ExistsNode", EXISTS).exists
    log = (cluster.data_dir / "proxy-0.log").read_text(errors="replace")
    assert "Internal error" not in log
    assert "Traceback" not in log


def filled(chance: random.Random, name: str, depth: int = 0) -> Any:
    """Return a message with random fields, most of them plausible."""
    made = message_types.new(name)
    for field in made.DESCRIPTOR.fields:
        if not field.is_required and chance.random() < 0.5:
            continue
        for _ in range(chance.randint(1, 3) if field.is_repeated else 1):
            if field.message_type is not None:
                inner = filled(chance, field.message_type.name.replace("_", "."), depth + 1)
                target = getattr(made, field.name)
                (target.add() if field.is_repeated else target).CopyFrom(inner)
                continue
            value = scalar(chance, field)
            if field.is_repeated:
                getattr(made, field.name).append(value)
            else:
                setattr(made, field.name, value)
    return made


def scalar(chance: random.Random, field: Any) -> Any:
    kinds = type(field)
    if field.type == kinds.TYPE_BYTES:
        return chance.choice(TEXTS)
    if field.type == kinds.TYPE_BOOL:
        return chance.random() < 0.5
    number = chance.choice(NUMBERS)
    if field.type in {kinds.TYPE_UINT32, kinds.TYPE_UINT64, kinds.TYPE_FIXED64}:
        return abs(number)
    return number


def attachments(chance: random.Random) -> list[bytes | None]:
    """Return a rowset that is right, damaged, or nothing like one."""
    cells = (
        struct.pack("<HBBIq", 0, 3, 0, 0, 1) + struct.pack("<HBBI", 1, 16, 0, 2) + b"ab" + bytes(6)
    )
    rowset = bytearray(struct.pack("<2Q", 1, 2) + cells)
    if chance.random() < 0.4:
        rowset[chance.randrange(len(rowset))] = chance.randrange(256)
    return chance.choice([[], [None], [b"x"], [bytes(rowset)], [bytes(rowset)] * 2])


def outcome(rpc: RawRpc) -> str:
    """Return how a request ends; a hang is an error of the socket."""
    received = rpc.receive()
    while received is not None:
        head, parts = received
        kind = parts[0][:4] if head.kind == packets.MESSAGE and parts[0] else b""
        if kind == KIND.pack(envelopes.RESPONSE):
            return "answered"
        received = rpc.receive()
    return "closed"


@pytest.mark.parametrize("name", sorted(METHODS))
def test_random_request_is_answered(alive, name):
    """Whatever the fields say, the answer is a response or an error, on the same connection."""
    chance = random.Random(name)
    method = METHODS[name]
    with RawRpc(alive) as rpc:
        for _ in range(max(ROUNDS // 10, 10)):
            parts = request_parts(name, filled(chance, method.message("TReq")), attachments(chance))
            rpc.send(parts)
            if method.direction != "none":
                rpc.send(stream_end(parts))
            assert outcome(rpc) == "answered"


def stream_end(parts: packets.Parts) -> packets.Parts:
    request = message_types.parse("TRequestHeader", parts[0][4:])
    header = message_types.new("TStreamingPayloadHeader")
    header.request_id.CopyFrom(request.request_id)
    header.service, header.method, header.sequence_number = request.service, request.method, 0
    return [KIND.pack(envelopes.PAYLOAD) + message_types.dump(header), None]


@pytest.mark.parametrize("seed", range(3))
def test_damaged_bytes_are_answered_or_end_the_connection(alive, seed):
    """Valid packets with bytes changed, removed or added, and the rest cut off."""
    chance = random.Random(seed)
    names = sorted(METHODS)
    ends = {"answered": 0, "closed": 0}
    for _ in range(ROUNDS):
        name = chance.choice(names)
        parts = request_parts(
            name, filled(chance, METHODS[name].message("TReq")), attachments(chance)
        )
        flags = chance.choice([0, packets.WANTS_ACK])
        raw = bytearray(b"".join(packets.message(bytes(16), parts, flags=flags)))
        # Half of the packets keep their frame, so that what is in it is read.
        headers = packets.HEAD_BYTES + 12 * len(parts) + 8
        first, actions = (headers, 1) if chance.random() < 0.5 else (0, 3)
        for _ in range(chance.randint(1, 4)):
            position = chance.randrange(first, len(raw))
            action = chance.randrange(actions)
            if action == 0:
                raw[position] = chance.randrange(256)
            elif action == 1:
                del raw[position : position + chance.randint(1, 8)]
            else:
                raw[position:position] = chance.randbytes(chance.randint(1, 8))
        with RawRpc(alive) as rpc:
            with contextlib.suppress(OSError):
                # The proxy may have closed the connection already.
                rpc.socket.sendall(raw)
                rpc.socket.shutdown(socket.SHUT_WR)
            ends[outcome(rpc)] += 1
    assert ends["closed"] > 0 < ends["answered"]


def test_stream_that_breaks_its_rules_is_refused(alive, cluster):
    """Wrong numbers, codecs, blocks that are no blocks, and a client that stops listening."""
    # Random requests may have removed everything else.
    path = "//home/streams/static"
    cluster.client().create("table", path, recursive=True, ignore_existing=True)
    request = message("TReqWriteTable", path=path)
    for number, codec, block, text in (
        (5, 0, b"", "came instead of 0"),
        (0, 3, b"", "codec 3"),
        (0, 0, b"abc", "ends in the middle"),
        (0, 0, struct.pack("<iq", 1, 100), "ends in the middle"),
        (0, 0, struct.pack("<i", 0), "two parts"),
    ):
        with RawRpc(alive) as rpc:
            parts = request_parts("WriteTable", request)
            rpc.send(parts)
            end = stream_end(parts)
            header = message_types.parse("TStreamingPayloadHeader", end[0][4:])
            header.sequence_number, header.codec = number, codec
            rpc.send([KIND.pack(envelopes.PAYLOAD) + message_types.dump(header), block, None])
            with pytest.raises(RpcError, match=text):
                rpc.answer()
    with RawRpc(alive) as rpc:
        rpc.send(request_parts("WriteTable", request))
    with RawRpc(alive) as rpc:
        parts = request_parts("ReadTable", message("TReqReadTable", path=path))
        cancel = message_types.new("TRequestCancelationHeader")
        cancel.request_id.CopyFrom(message_types.parse("TRequestHeader", parts[0][4:]).request_id)
        cancel.service = cancel.method = b"x"
        rpc.send(parts)
        rpc.send([KIND.pack(envelopes.CANCEL) + message_types.dump(cancel)])
        assert rpc.call("ExistsNode", EXISTS).exists
