"""What a request may look like: URLs, parameters, formats, content codings, and mutation ids.

A repeated request of a master command gets the kept answer and changes nothing.
"""

import base64
import gzip
import http.client
import json
import struct
import uuid
import zlib

import pytest
from yt import yson

from yt_exactly_once.local.http.block_codecs import CODECS


def test_versions_and_descriptors_are_listed(raw):
    """A client finds the API version and the facts it derives verbs and retries from."""
    assert raw("GET", "/api").json() == ["v3", "v4"]
    commands = {entry["name"]: entry for entry in raw("GET", "/api/v4").json()}
    assert commands["get"] == {
        "name": "get",
        "input_type": "null",
        "output_type": "structured",
        "is_volatile": False,
        "is_heavy": False,
    }
    assert commands["insert_rows"]["is_heavy"]
    assert commands["insert_rows"]["input_type"] == "tabular"
    assert not commands["push_queue_producer"]["is_heavy"]
    assert commands["get_tablet_infos"]["is_volatile"]
    assert commands["trim_rows"]["is_heavy"]
    assert commands["execute_batch"]["input_type"] == "null"


def test_hosts_lists_every_live_proxy(raw, cluster):
    """Heavy requests are spread over what `/hosts` names."""
    expected = sorted(url.removeprefix("http://") for url in cluster.proxy_urls)
    assert sorted(raw("GET", "/hosts?address_type=http&role=data").json()) == expected
    text = raw("GET", "/hosts", {"Accept": "text/plain"}).body.decode()
    assert sorted(text.split()) == expected
    for accept in ("application/json, text/plain, */*", "text/plain;q=0.9", "*/*"):
        assert sorted(raw("GET", "/hosts", {"Accept": accept}).json()) == expected


@pytest.mark.parametrize("page", ["/ping", "/version", "/service", "/cluster_connection", "/auth"])
def test_service_pages_answer(raw, page):
    """Every page that clients poke exists."""
    assert raw("GET", page).status == 200


def test_every_answer_names_proxy_and_request(raw):
    """Support starts from these two headers."""
    answer = raw.command("GET", "get", {"path": "//tmp/@type"})
    assert answer.headers["x-yt-proxy"] == raw.host
    assert answer.headers["x-yt-request-id"]
    assert answer.headers["cache-control"] == "no-store"


@pytest.mark.parametrize(
    ("headers", "parameters", "body"),
    [
        ({}, {}, b'{"value":"map_node"}'),
        ({"Accept": "application/x-yt-yson-text"}, {}, b'{"value"="map_node";}'),
        (
            {"Accept": "application/x-yt-yson-text"},
            {"output_format": "json"},
            b'{"value":"map_node"}',
        ),
    ],
    ids=["neither", "header", "header and parameter"],
)
def test_format_is_that_of_the_parameter_or_of_the_header(raw, headers, parameters, body):
    """A parameter wins over a MIME type; without either structured data is JSON."""
    answer = raw.command("GET", "get", {"path": "//tmp/@type", **parameters}, headers=headers)
    assert answer.body.replace(b" ", b"").strip() == body
    assert (answer.headers["content-type"] == "application/json") == (b":" in body)


def test_parameters_come_from_the_query_string(raw):
    """Curl users put parameters into the URL."""
    answer = raw("GET", "/api/v4/list?path=/&return_only_value=true&max_size=1")
    assert answer.json() == {"$value": ["home"], "$attributes": {"incomplete": True}}


def test_nested_query_keys_become_maps(raw):
    """Brackets in a query key open a map, `$value` and `$attributes` a value with attributes."""
    answer = raw(
        "GET",
        "/api/v4/get?path=//tmp/@type&output_format[$value]=yson"
        "&output_format[$attributes][format]=text",
    )
    assert answer.body == b'{"value"="map_node";}'


def test_header_beats_query_and_body_beats_header(raw, tmp):
    """Later sources win: query, header, body."""
    answer = raw.command(
        "GET", "get", {"path": "//home/@type"}, headers={"Accept": "application/json"}
    )
    assert answer.status == 200
    answer = raw(
        "GET",
        "/api/v4/get?path=//missing",
        {"X-YT-Parameters": json.dumps({"path": "//home/@key"})},
    )
    assert answer.json() == {"value": "home"}
    answer = raw(
        "POST",
        "/api/v4/create?path=//missing/a",
        {
            "X-YT-Parameters": json.dumps({"path": "//missing/b", "type": "map_node"}),
            "Content-Type": "application/json",
        },
        json.dumps({"path": f"{tmp}/made"}),
    )
    assert "node_id" in answer.json()


@pytest.mark.parametrize("spelling", ["X-YT-Parameters{}", "X-YT-Parameters-{}"])
def test_parameters_split_over_headers_are_joined(raw, tmp, spelling):
    """Long parameters come as numbered base64 pieces."""
    whole = yson.dumps({"path": f"{tmp}/@key", "return_only_value": True}, yson_format="text")
    half = len(whole) // 2
    pieces = [whole[:half], whole[half:]]
    headers = {spelling.format(n): base64.b64encode(p).decode() for n, p in enumerate(pieces)}
    answer = raw("GET", "/api/v4/get", {"X-YT-Header-Format": "<format=text>yson", **headers})
    assert answer.json() == tmp.rpartition("/")[2]


def test_huge_parameters_are_taken(raw, tmp):
    """A header of a megabyte is no problem."""
    keys = [f"attribute-{number:05}" for number in range(40_000)]
    answer = raw.command("GET", "get", {"path": f"{tmp}/@type", "attributes": keys})
    assert answer.json() == {"value": "map_node"}


def _set(raw, path, body, headers):
    return raw(
        "PUT",
        "/api/v4/set",
        {"X-YT-Parameters": json.dumps({"path": path, "input_format": "json"}), **headers},
        body,
    )


@pytest.mark.parametrize(
    ("label", "encode"),
    [
        ("gzip", zlib.compress),
        ("gzip", gzip.compress),
        ("deflate", zlib.compress),
        ("identity", bytes),
    ],
    ids=["zlib-as-gzip", "gzip", "zlib", "plain"],
)
def test_compressed_bodies_are_detected(raw, client, tmp, label, encode):
    """The Python client labels zlib as gzip; both wrappings are understood under both names."""
    assert _set(raw, f"{tmp}/x", encode(b'"v"'), {"Content-Encoding": label}).status == 200
    assert client.get(f"{tmp}/x") == "v"


@pytest.mark.parametrize("coding", CODECS)
def test_block_codecs_are_taken_and_given(raw, client, tmp, coding):
    """The Go client sends every body in one of them, in several blocks, and takes no answer in another."""
    codec, pieces = CODECS[coding], [b"text " * 50_000, b"end"]
    path = {"X-YT-Parameters": json.dumps({"path": f"{tmp}/file"})}
    client.create("file", f"{tmp}/file")
    empty = raw("GET", "/api/v4/read_file", {**path, "Accept-Encoding": f"{coding}, gzip"})
    assert (empty.headers["content-encoding"], codec.decode(empty.body, 0)) == (coding, b"")
    sent = b"".join(codec.encode(pieces))
    headers = {**path, "Content-Encoding": coding}
    assert raw("PUT", "/api/v4/write_file", headers, sent).status == 200
    given = raw("GET", "/api/v4/read_file", {**path, "Accept-Encoding": coding})
    assert codec.decode(given.body, 1 << 20) == b"".join(pieces)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda sent: sent[:-1],
        lambda sent: sent[:-30],
        lambda sent: sent[:12],
        lambda sent: b"\0\0" + sent[2:],
        lambda sent: sent[:20] + bytes(10) + sent[30:],
        lambda _: struct.pack("<HQ", CODECS["z-zstd_3"].id, 4) + b"abcd",
    ],
    ids=["no end", "no last block", "cut", "codec", "damaged", "short"],
)
def test_broken_blocks_are_refused(raw, tmp, spoil):
    sent = b"".join(CODECS["z-zstd_3"].encode([b'"value of some length"']))
    answer = _set(raw, f"{tmp}/x", spoil(sent), {"Content-Encoding": "z-zstd_3"})
    assert answer.status == 400
    assert "Error decompressing request body" in answer.error["message"]


def test_chunked_body_is_read_whole(raw, client, tmp):
    """Bodies come in pieces of any size."""
    answer = raw(
        "PUT",
        "/api/v4/set",
        {
            "X-YT-Parameters": json.dumps({"path": f"{tmp}/x", "input_format": "json"}),
            "Transfer-Encoding": "chunked",
        },
        iter([b'"a', b"b", b'c"']),
        chunked=True,
    )
    assert answer.status == 200
    assert client.get(f"{tmp}/x") == "abc"


def test_long_bodies_follow_each_other_on_a_connection(raw, client, tmp):
    """However they are cut into pieces, and with short ones between them."""
    client.create("file", f"{tmp}/x")
    connection = http.client.HTTPConnection(raw.host, timeout=30)
    for number, sizes in enumerate(
        ([3 << 20], [10], [100_000] * 7, [(1 << 20) + 7], [1 << 19], [])
    ):
        pieces = [bytes([65 + number]) * size for size in sizes]
        headers = {
            **raw.always,
            "X-YT-Parameters": json.dumps({"path": f"{tmp}/x"}),
            "Content-Length": str(sum(sizes)),
        }
        connection.request("PUT", "/api/v4/write_file", iter(pieces), headers)
        answer = connection.getresponse()
        assert (answer.status, answer.read()) == (200, b"{}")
        assert client.read_file(f"{tmp}/x").read() == b"".join(pieces)
    connection.close()


def test_long_body_that_breaks_off_is_no_request(raw, client, tmp):
    client.create("file", f"{tmp}/x")
    client.write_file(f"{tmp}/x", b"before")
    listed = {**raw.always, "X-YT-Parameters": json.dumps({"path": f"{tmp}/x"})}
    lines = "".join(f"{name}: {value}\r\n" for name, value in listed.items())
    head = f"PUT /api/v4/write_file HTTP/1.1\r\nHost: x\r\nContent-Length: {3 << 20}\r\n{lines}\r\n"
    assert raw.exchange(head.encode() + b"a" * (2 << 20), finish=True) == b""
    assert client.read_file(f"{tmp}/x").read() == b"before"


@pytest.mark.parametrize("accepted", ["gzip, identity", "gzip;q=0.5, *;q=0.1", "gzip"])
def test_answer_comes_as_it_is_where_that_is_accepted(raw, accepted):
    """The client names gzip with every request."""
    answer = raw.command(
        "GET", "get", {"path": "//tmp/@type"}, headers={"Accept-Encoding": accepted}
    )
    assert answer.headers["content-encoding"] == "identity"
    assert answer.json() == {"value": "map_node"}


def test_json_text_is_bytes_unless_told_otherwise(raw, client, tmp):
    """With encode_utf8 a JSON character is a byte; without it, text is text."""
    client.set(f"{tmp}/x", "ы")
    answer = raw.command("GET", "get", {"path": f"{tmp}/x", "return_only_value": True})
    assert answer.json() == "ы".encode().decode("latin-1")
    form = {"$value": "json", "$attributes": {"encode_utf8": False}}
    answer = raw.command(
        "GET", "get", {"path": f"{tmp}/x", "return_only_value": True, "output_format": form}
    )
    assert answer.json() == "ы"


def test_json_values_with_types_and_attributes(raw, client, tmp):
    """`$value`, `$type` and `$attributes` say what plain JSON cannot."""
    body = json.dumps(
        {"$value": {"n": {"$value": "7", "$type": "uint64"}}, "$attributes": {"mark": 1}}
    )
    assert _set(raw, f"{tmp}/x", body, {}).status == 200
    assert isinstance(client.get(f"{tmp}/x/n"), yson.YsonUint64)
    assert client.get(f"{tmp}/x/@mark") == 1


def test_old_command_names_work_in_version_3(raw, tmp):
    """Version 3 answers without the wrapping of version 4."""
    answer = raw("GET", f"/api/v3/get?path={tmp}/@type")
    assert answer.json() == "map_node"
    answer = raw("POST", "/api/v3/start_tx", {}, b"{}")
    transaction_id = answer.json()
    assert raw("POST", f"/api/v3/ping_tx?transaction_id={transaction_id}").status == 200
    assert raw("POST", f"/api/v3/commit_tx?transaction_id={transaction_id}").body == b""
    answer = raw("GET", "/api/v3/parse_ypath?path=//tmp/t[%231]")
    assert answer.json()["$value"] == "//tmp/t"


def _guid():
    return "-".join(uuid.uuid4().hex[i : i + 8] for i in (0, 8, 16, 24))


@pytest.mark.parametrize("proxy", [0, 1])
def test_repeat_marked_as_retry_gets_the_first_answer(raw, tmp, cluster, proxy):
    """A lost answer to `create` does not turn into "already exists", on whichever proxy."""
    parameters = {"path": f"{tmp}/a", "type": "map_node", "mutation_id": _guid(), "retry": False}
    first = raw.command("POST", "create", parameters).json()
    again = type(raw)(cluster.proxy_urls[proxy])
    assert again.command("POST", "create", {**parameters, "retry": True}).json() == first


def test_unmarked_duplicate_is_refused(raw, tmp):
    """An id used twice without `retry` is a mistake of the client."""
    parameters = {"path": f"{tmp}/a", "type": "map_node", "mutation_id": _guid()}
    assert raw.command("POST", "create", parameters).status == 200
    answer = raw.command("POST", "create", parameters)
    assert answer.error["message"] == 'Duplicate request is not marked as "retry"'


def test_retry_of_an_unknown_mutation_is_executed(raw, client, tmp):
    """The first attempt may never have arrived."""
    parameters = {"path": f"{tmp}/a", "type": "map_node", "mutation_id": _guid(), "retry": True}
    assert raw.command("POST", "create", parameters).status == 200
    assert client.exists(f"{tmp}/a")


def test_failed_mutation_is_tried_again(raw, client, tmp):
    """Only what changed something is remembered."""
    parameters = {"path": f"{tmp}/a/b", "type": "map_node", "mutation_id": _guid()}
    assert raw.command("POST", "create", parameters).status == 400
    client.create("map_node", f"{tmp}/a")
    assert raw.command("POST", "create", {**parameters, "retry": True}).status == 200


@pytest.mark.parametrize("command", ["commit_transaction", "abort_transaction"])
def test_repeated_end_of_a_master_transaction_is_answered(raw, client, command):
    """A lost answer to a master commit is harmless, unlike that of a tablet commit."""
    parameters = {"transaction_id": client.start_transaction(), "mutation_id": _guid()}
    first = raw.command("POST", command, parameters)
    again = raw.command("POST", command, {**parameters, "retry": True})
    assert (again.status, again.body) == (200, first.body)


def test_repeated_tablet_commit_finds_no_transaction(raw, client):
    """Tablet commands keep no answers: the second commit is an error, as on a real cluster."""
    transaction_id = client.start_transaction(type="tablet")
    parameters = {"transaction_id": transaction_id, "mutation_id": _guid()}
    assert raw.command("POST", "commit_transaction", parameters).status == 200
    again = raw.command("POST", "commit_transaction", {**parameters, "retry": True})
    assert again.error["code"] == 11000
