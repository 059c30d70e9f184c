"""The bus of the RPC front: acknowledgements, handshakes, checksums, and peers that break the protocol."""

import asyncio
import secrets
import struct
from concurrent.futures import ThreadPoolExecutor
from itertools import chain

import pytest
from yt.common import YtError

from tests.rpc_client import KIND, RawRpc, RpcError, driver, message, request_parts
from yt_exactly_once.local import LocalCluster
from yt_exactly_once.local.rpc import message_types
from yt_exactly_once.local.rpc.bus import connection as connection_module
from yt_exactly_once.local.rpc.bus import envelopes, packets
from yt_exactly_once.local.rpc.bus.checksums import checksum_of

EXISTS = message("TReqExistsNode", path="//tmp")


def test_acknowledgements_come_in_the_order_of_the_packets(rpc):
    """The C++ client aborts on any other order; slow requests must not hold them up."""
    ids = [secrets.token_bytes(16) for _ in range(100)]
    parts = [request_parts("ExistsNode", EXISTS) for _ in ids]
    pieces = [
        b"".join(packets.message(packet_id, each, flags=packets.WANTS_ACK))
        for packet_id, each in zip(ids, parts, strict=True)
    ]
    rpc.socket.sendall(b"".join(pieces))
    acknowledged, answered = [], 0
    while len(acknowledged) < len(ids) or answered < len(ids):
        head, _ = rpc.receive()
        if head.kind == packets.ACK:
            acknowledged.append(head.id)
        else:
            answered += 1
    assert acknowledged == ids


def test_nothing_is_acknowledged_that_does_not_ask(rpc):
    """The first packet that comes back is the answer."""
    rpc.send(request_parts("ExistsNode", EXISTS))
    head, _ = rpc.receive()
    assert head.kind == packets.MESSAGE


def test_handshake_is_answered_without_encryption(rpc):
    """And a client may also do without."""
    greeting = message_types.new("THandshake")
    greeting.connection_id.first = greeting.connection_id.second = 7
    greeting.encryption_mode = 1
    head = KIND.pack(envelopes.HANDSHAKE) + message_types.dump(greeting)
    rpc.send([head], packet_id=packets.HANDSHAKE_ID)
    found, (answer,) = rpc.receive()
    assert found.id == packets.HANDSHAKE_ID
    assert message_types.parse("THandshake", answer[4:]).encryption_mode == 0
    assert rpc.call("ExistsNode", EXISTS).exists


def test_checksums_are_not_compared(rpc):
    """Clients send them, and zeros mean that there is none."""
    parts = request_parts("ExistsNode", EXISTS)
    whole = b"".join(packets.message(bytes(16), parts))
    places = range(28, 36), range(36 + 4 * len(parts), 36 + 12 * len(parts) + 8)
    for place in chain(*places):
        whole = whole[:place] + b"x" + whole[place + 1 :]
    rpc.socket.sendall(whole)
    rpc.answer()


def plain_checksum(data):
    """The definition, bit by bit."""
    checksum = 0
    for byte in data:
        checksum ^= byte << 56
        for _ in range(8):
            carry = checksum >> 63
            checksum = (checksum << 1) & (2**64 - 1)
            checksum ^= 0xE543279765927881 if carry else 0
    return checksum


@pytest.mark.parametrize("size", [0, 1, 63, 64, 65, 4099, (1 << 14) + 71])
def test_checksum_is_the_one_of_its_definition(size):
    data = secrets.token_bytes(size)
    assert checksum_of(data) == plain_checksum(data)


def test_everything_that_is_sent_has_checksums(rpc):
    """The Go client reads no packet without; zeros mean none to the others."""
    rpc.socket.sendall(
        b"".join(
            packets.message(bytes(16), request_parts("ExistsNode", EXISTS), flags=packets.WANTS_ACK)
        )
    )
    rpc.socket.settimeout(30)
    received = b""
    while received[4:6] != b"\1\0" or len(received) < 2 * packets.HEAD_BYTES:
        received += rpc.socket.recv(1 << 16)
    head, rest = received[: packets.HEAD_BYTES], received[packets.HEAD_BYTES :]
    for fixed_header in (head, rest[: packets.HEAD_BYTES]):
        assert fixed_header[28:] == struct.pack("<Q", checksum_of(fixed_header[:28]))
    parsed, rest = packets.parse_head(rest[: packets.HEAD_BYTES]), rest[packets.HEAD_BYTES :]
    variable, body = rest[: parsed.variable_bytes], rest[parsed.variable_bytes :]
    assert variable[-8:] == struct.pack("<Q", checksum_of(variable[:-8]))
    parts = packets.split(body, packets.parse_sizes(parsed, variable))
    sums = [checksum_of(part or b"") for part in parts]
    assert variable[4 * len(parts) : -8] == struct.pack(f"<{len(parts)}Q", *sums)


def fixed(signature=packets.SIGNATURE, kind=0, count=1):
    return struct.pack("<IhH16sIQ", signature, kind, 0, bytes(16), count, 0)


BROKEN = {
    "signature": fixed(signature=0x12345678),
    "type": fixed(kind=7),
    "negative type": fixed(kind=-1),
    "acknowledgement with parts": fixed(kind=1),
    "too many parts": fixed(count=2**32 - 1),
    "too long": fixed(count=2) + struct.pack("<2I3Q", 2**31, 2**31, 0, 0, 0),
    "no parts": fixed(count=0),
    "null header": fixed() + struct.pack("<I2Q", 2**32 - 1, 0, 0),
    "short header": fixed() + struct.pack("<I2Q", 2, 0, 0) + b"ab",
    "unknown kind": fixed() + struct.pack("<I2Q", 4, 0, 0) + b"abcd",
    "garbage header": fixed()
    + struct.pack("<I2Q", 8, 0, 0)
    + KIND.pack(envelopes.REQUEST)
    + b"\xff" * 4,
    "HTTP": b"GET /api/v4/list?path=/ HTTP/1.1\r\nHost: localhost\r\n\r\n",
}


@pytest.mark.parametrize("sent", BROKEN.values(), ids=BROKEN)
def test_broken_packet_ends_the_connection(rpc, cluster, sent):
    """There is nobody to answer, and nobody waits."""
    rpc.socket.sendall(sent)
    assert rpc.receive() is None
    with RawRpc(cluster.rpc_addresses[0]) as other:
        assert other.call("ExistsNode", EXISTS).exists


@pytest.mark.parametrize("cut", [1, 35, 36, 50, 100])
def test_packet_that_is_cut_off_leaves_nothing_behind(cluster, cut):
    """The client goes away in the middle of a header or a part."""
    whole = b"".join(packets.message(bytes(16), request_parts("ExistsNode", EXISTS)))
    with RawRpc(cluster.rpc_addresses[0]) as half:
        half.socket.sendall(whole[:cut])
    with RawRpc(cluster.rpc_addresses[0]) as other:
        assert other.call("ExistsNode", EXISTS).exists


def test_peer_that_stops_in_the_middle_of_a_packet_is_dropped(monkeypatch):
    """A half-open connection does not hold a task and its memory for ever."""
    monkeypatch.setattr(connection_module, "_STALL_SECONDS", 0.05)

    async def run():
        async def accept(reader, writer):
            await connection_module.Connection(None, reader, writer).run()

        server = await asyncio.start_server(accept, "127.0.0.1", 0)
        async with server:
            port = server.sockets[0].getsockname()[1]
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(fixed()[:20])
            with pytest.raises(ConnectionResetError):
                await reader.read(1)
            writer.close()

    asyncio.run(run())


BAD_REQUESTS = {
    "unknown method": (("StartOperation", b""), {}),
    "unknown service": (("ExistsNode", EXISTS), {"service": "QueryService"}),
    "no required field": (("ExistsNode", b""), {}),
    "garbage body": (("ExistsNode", b"\xff" * 20), {}),
    "compressed body": (("ExistsNode", EXISTS), {"request_codec": 3}),
    "unknown type": (("CreateNode", message("TReqCreateNode", path="//tmp/x", type=9999)), {}),
    "path that is no text": (("ExistsNode", message("TReqExistsNode", path=b"//\xff")), {}),
    "open attributes": (("ExistsNode", message("TReqExistsNode", path=b"<a=1")), {}),
    "tablet transaction that is not sticky": (
        ("StartTransaction", message("TReqStartTransaction", type=1)),
        {},
    ),
}


@pytest.mark.parametrize(("call", "fields"), BAD_REQUESTS.values(), ids=BAD_REQUESTS)
def test_bad_request_is_answered_and_the_connection_stays(rpc, call, fields):
    """With a code that does not make clients give the proxy up."""
    with pytest.raises(RpcError) as caught:
        rpc.call(*call, **fields)
    assert caught.value.codes == {1}
    assert rpc.call("ExistsNode", EXISTS).exists


def test_request_without_a_body_is_answered(rpc):
    """A part that is missing, null or shorter than it says."""
    for body in ([], [None], [b"abc"], [struct.pack("<II", 0, 100) + b"x"]):
        fresh = request_parts("ExistsNode", EXISTS)[0]
        rpc.send([fresh, *body])
        with pytest.raises(RpcError, match="Error deserializing"):
            rpc.answer()


def test_body_without_an_envelope_is_answered_with_a_codec(rpc):
    """What newer clients send, when their codec is none."""
    rpc.send(request_parts("ExistsNode", EXISTS, request_codec=0, response_codec=0))
    header, (body,) = rpc.answer()
    assert header.HasField("codec")
    assert message_types.parse("TRspExistsNode", body).exists


def test_token_is_asked_for_as_over_http():
    """Without it only the question whether the proxy is up is answered."""
    with LocalCluster(token="secret") as cluster, RawRpc(cluster.rpc_addresses[0]) as rpc:
        for token in (None, "wrong"):
            with pytest.raises(RpcError) as caught:
                rpc.call("ExistsNode", EXISTS, token=token)
            assert caught.value.codes == {109, 111}
        assert rpc.call("Discover", b"").up
        assert rpc.call("ExistsNode", EXISTS, token="secret").exists
        # The driver discovers proxies over HTTP.
        assert "sys" in driver(cluster).list("/")
        quiet = {"rules": [], "writers": {}}
        stranger = driver(cluster, token="wrong", driver_logging_config=quiet)
        with pytest.raises(YtError, match="Token is invalid"):
            stranger.list("/")


def test_two_hundred_clients_are_served_side_by_side(cluster):
    """Each has its connection open all the time."""
    addresses = cluster.rpc_addresses
    clients = [RawRpc(addresses[number % len(addresses)]) for number in range(200)]
    try:
        with ThreadPoolExecutor(50) as pool:
            for _ in range(3):
                answers = list(
                    pool.map(lambda each: each.call("ExistsNode", EXISTS).exists, clients)
                )
                assert answers == [True] * len(clients)
    finally:
        for client in clients:
            client.__exit__()


@pytest.mark.parametrize(
    ("query", "kind"), [("", "rpc"), ("?type=rpc", "rpc"), ("?type=http", "http"), ("?type=x", "")]
)
def test_proxies_of_a_type_are_discovered(cluster, raw, query, kind):
    """C++ clients ask without a type, Java clients with one."""
    http = [url.removeprefix("http://") for url in cluster.proxy_urls]
    expected = {"rpc": cluster.rpc_addresses, "http": http, "": []}[kind]
    found = raw("GET", f"/api/v4/discover_proxies{query}").json()["proxies"]
    assert sorted(found) == sorted(expected)
