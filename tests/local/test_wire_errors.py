"""What a bad request gets: an envelope that says what is wrong, never silence and never a crash."""

import http.client
import json
import subprocess
import sys
import zlib

import pytest

from tests.cluster_fixtures import RawHttp
from yt_exactly_once.local import LocalCluster
from yt_exactly_once.local.commands.registry import REGISTRY
from yt_exactly_once.local.errors import YtError
from yt_exactly_once.local.http import encodings
from yt_exactly_once.local.http.block_codecs import CODECS


def test_error_is_in_headers_and_body(raw):
    """A client may look at either; both carry the whole tree."""
    answer = raw.command("GET", "get", {"path": "//nowhere/x"})
    assert answer.status == 400
    assert answer.headers["x-yt-response-code"] == "500"
    assert answer.headers["x-yt-response-message"] == "Error resolving path //nowhere/x"
    assert answer.json() == answer.error
    assert answer.error["attributes"]["path"] == "//nowhere/x"
    (inner,) = answer.error["inner_errors"]
    assert (inner["code"], inner["message"]) == (500, 'Node / has no child with key "nowhere"')


def test_error_format_is_chosen_by_the_client(raw):
    """The body of an error follows `X-YT-Error-Format`, the header stays JSON."""
    answer = raw.command(
        "GET", "get", {"path": "//nowhere"}, headers={"X-YT-Error-Format": '"yson"'}
    )
    assert answer.yson()["code"] == 500
    assert answer.error["code"] == 500
    assert answer.headers["x-yt-error-content-type"].startswith("application/x-yt-yson")


def test_text_of_an_error_survives_headers(raw):
    """Names outside ASCII and line breaks cannot break a header."""
    as_bytes = "//имя\nx".encode().decode("latin-1")
    answer = raw.command("GET", "get", {"path": as_bytes})
    assert answer.error["message"] == "Error resolving path //имя\nx"


def test_error_too_long_for_a_header_is_whole_in_the_body(raw):
    """Clients refuse header lines over 64 KiB, so the header keeps the outline."""
    path = "//" + "\x01" * 12_000
    answer = raw.command("GET", "get", {"path": path})
    assert len(answer.headers["x-yt-error"]) < 65_536
    assert answer.error["code"] == 500
    assert answer.json()["message"] == f"Error resolving path {path}"


UNREADABLE = "Unable to parse parameters from headers"
GET = "/api/v4/get"


@pytest.mark.parametrize(
    ("method", "path", "headers", "status", "message"),
    [
        # A misspelt command is told apart from one that the cluster lacks, and from what failed.
        ("GET", "/api/v4/get2", {}, 404, "Malformed command name"),
        ("GET", "/api/v4/no_such", {}, 404, 'Command "no_such" is not registered'),
        ("GET", "/nonsense", {}, 404, 'Path "/nonsense" does not exist'),
        ("POST", "/api/v4/start_operation", {}, 400, "is not supported by the embedded cluster: "),
        ("POST", "/api/v4/read_journal", {}, 400, "is not supported by the embedded cluster: "),
        ("GET", "/api/v7/get", {}, 400, "Unsupported API version"),
        # The error says which header cannot be read.
        ("GET", GET, {"X-YT-Parameters": "{"}, 400, UNREADABLE),
        ("GET", GET, {"X-YT-Parameters": "[1]"}, 400, UNREADABLE),
        ("GET", GET, {"X-YT-Parameters": "{", "X-YT-Header-Format": "yson"}, 400, UNREADABLE),
        ("GET", GET, {"X-YT-Parameters0": "!!"}, 400, UNREADABLE),
        ("GET", GET, {"X-YT-Header-Format": "<"}, 400, 'Unable to parse "X-YT-Header-Format" header'),
        ("GET", GET, {"X-YT-Header-Format": "arrow"}, 400, "Header format"),
        ("GET", GET, {"X-YT-Output-Format": '"none"'}, 400, 'Unable to parse "x-yt-output-format" header'),
        ("GET", GET, {"X-YT-Error-Format": "]"}, 400, 'Unable to parse "x-yt-error-format" header'),
        ("GET", GET, {"Content-Encoding": "rot13"}, 415, "Unsupported Content-Encoding"),
        ("GET", GET, {"Accept-Encoding": "identity;q=0"}, 415, "Could not determine feasible"),
        # The real proxy does not decode the body of a POST.
        ("POST", "/api/v4/create", {"Content-Encoding": "gzip"}, 400, "not supported in POST"),
        # A body that is not what its label says.
        ("PUT", "/api/v4/set?path=//tmp/x", {"Content-Encoding": "gzip"}, 400, "Error decompressing"),
        ("PUT", "/api/v4/set?path=//tmp/x", {"Content-Encoding": "deflate"}, 400, "Error decompressing"),
        ("GET", f"{GET}?path=/&a{'[x]' * 200}=1", {}, 400, "nested deeper than 200 levels"),
    ],
)  # fmt: skip
def test_what_is_not_there_or_cannot_be_read_is_named(raw, method, path, headers, status, message):
    """Command, page, version, header, encoding or key."""
    answer = raw(method, path, headers, b"x\x9c\x03")
    assert (answer.status, message in answer.error["message"]) == (status, True), answer.error


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
def test_small_body_that_would_become_very_large_is_refused(encoding, monkeypatch):
    """It is not decoded beyond the limit."""
    monkeypatch.setattr(encodings, "MOST_BYTES", 1 << 16)
    assert encodings.decode(zlib.compress(bytes(1 << 16)), encoding) == bytes(1 << 16)
    with pytest.raises(YtError, match="more than 65536 bytes"):
        encodings.decode(zlib.compress(bytes(1 << 20)), encoding)


def test_blocks_that_would_become_very_large_are_refused(monkeypatch):
    """By the length that they say they have, and all together."""
    monkeypatch.setattr(encodings, "MOST_BYTES", 1 << 16)
    fits, too_many = [bytes(1 << 15)] * 2, [bytes(1 << 15)] * 3
    for name, codec in CODECS.items():
        assert encodings.decode(b"".join(codec.encode(fits)), name) == bytes(1 << 16)
        with pytest.raises(YtError, match="too long"):
            encodings.decode(b"".join(codec.encode(too_many)), name)


def test_body_that_is_too_long_is_not_kept(tmp_path):
    """Sent whole or in chunks; the connection takes the next request."""
    limited = (
        "from yt_exactly_once.local.http import encodings; encodings.MOST_BYTES = 1 << 16; "
        "from yt_exactly_once.local import server; server.main()"
    )
    command = [sys.executable, "-c", limited, "--data-dir", str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        connection = http.client.HTTPConnection(
            "127.0.0.1", json.loads(process.stdout.readline())["port"], timeout=60
        )
        for body, status in (
            (bytes(1 << 16), 400),
            (bytes(1 << 20), 413),
            (iter([bytes(1 << 17)]), 413),
        ):
            connection.request("PUT", "/api/v4/write_file?path=//tmp/none", body)
            answer = connection.getresponse()
            assert answer.status == status
            assert ("has more than 65536 bytes" in json.loads(answer.read())["message"]) == (
                status == 413
            )
        process.kill()


def test_brackets_that_nothing_closes_are_no_search_without_end(raw):
    """In a key of the query string."""
    assert b"Internal error" not in raw("GET", f"/api/v4/get?path=/&a{'[' * 50_000}=1").body


@pytest.mark.parametrize(
    ("form", "body"),
    [
        ("yson", b"{a=1"),
        ("yson", b""),
        ("yson", b"\xff"),
        ("yson", b"1 2"),
        ("yson", b"%na\xff"),
        ("json", b"{"),
        ("json", b'"\\u4444"'),
        ("json", b'{"$value": 1, "$type": "uint64x"}'),
        ("arrow", b"x"),
        ("nonsense", b"1"),
    ],
)
def test_malformed_value_is_an_error(raw, tmp, form, body):
    """Whatever is wrong with a value, nothing is written."""
    answer = raw.command("PUT", "set", {"path": f"{tmp}/x", "input_format": form}, body)
    assert answer.status == 400
    assert answer.error["message"] not in {"", "Internal error"}
    assert not raw.command("GET", "exists", {"path": f"{tmp}/x"}).json()["value"]


@pytest.mark.parametrize(
    ("form", "body"),
    [
        ("yson", b"{a=1}; 5"),
        ("yson", b"{a=%na\xff};"),
        ("yson", b"{a=1"),
        ("json", b'{"a": 1}\n7\n'),
        ("dsv", b"no-equals-sign\n"),
        ("schemaful_dsv", b"1\n"),
        ("arrow", b"\xff\xff\xff\xff"),
        ("skiff", b""),
    ],
)
def test_malformed_rows_are_an_error(raw, client, tmp, form, body):
    """Whatever is wrong with rows, nothing is written."""
    client.create("table", f"{tmp}/t")
    answer = raw.command("PUT", "write_table", {"path": f"{tmp}/t", "input_format": form}, body)
    assert answer.status == 400
    assert client.get(f"{tmp}/t/@row_count") == 0


def test_truncated_request_changes_nothing(raw, client, tmp):
    """A client that dies in the middle of its body leaves no trace."""
    parameters = json.dumps({"path": f"{tmp}/x", "input_format": "json"})
    head = _put(b"Content-Length: 100\r\nX-YT-Parameters: %s\r\n" % parameters.encode(), b'"cut')
    assert raw.exchange(head, finish=True) == b""
    assert not client.exists(f"{tmp}/x")


@pytest.mark.parametrize(
    ("method", "path", "headers"),
    [
        ("POST", "/local/faults", {"Origin": "https://example.com", "Content-Type": "text/plain"}),
        ("POST", "/api/v4/remove?path=//tmp", {"Origin": "null"}),
        ("PUT", "/api/v3/set?path=//tmp/@x", {"Origin": "http://127.0.0.1.example.com"}),
        ("GET", "/api/v4/get?path=//tmp", {"Host": "rebound.example.com:80"}),
        ("GET", "/hosts", {"Host": "[::1"}),
    ],
)
def test_pages_of_other_sites_are_refused(raw, client, method, path, headers):
    """A browser sends their orders to a cluster without a token, which it takes for one of this machine."""
    answer = raw(method, path, headers, b"1")
    assert answer.status == 403
    assert "127.0.0.1" in answer.json()["message"]
    assert client.exists("//tmp")


@pytest.mark.parametrize(
    "headers",
    [{"Host": "localhost:1"}, {"Host": "[::1]:1", "Origin": "http://localhost:3000"}],
    ids=["by another name", "page of this machine"],
)
def test_pages_and_clients_of_this_machine_are_served(raw, headers):
    """Tunnels and user interfaces name it differently."""
    assert raw("GET", "/api/v4/exists?path=//tmp", headers).status == 200


@pytest.mark.parametrize("version", ["v3", "v4"])
def test_no_command_changes_anything_by_get(raw, version):
    """A page makes a browser send GET without any trace of its origin."""
    listed = raw("GET", f"/api/{version}").json()
    # Others are listed so that clients send them, and hear that they are not there.
    changing = [one["name"] for one in listed if one["is_volatile"] and one["name"] in REGISTRY]
    assert "remove" in changing
    for name in changing:
        for method in ("GET", "DELETE"):
            answer = raw(method, f"/api/{version}/{name}?path=//tmp")
            assert (answer.status, answer.headers["allow"]) == (405, "POST, PUT"), name


@pytest.fixture(scope="module")
def guarded():
    with LocalCluster(token="secret-token") as running:
        yield running


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/api/v4/get?path=//tmp", 401),
        ("DELETE", "/local/faults", 401),
        ("POST", "/local/trim", 401),
        ("GET", "/api/v4", 200),
        ("GET", "/hosts", 200),
        ("GET", "/api/v4/discover_proxies?type=http", 200),
    ],
)
def test_token_is_demanded_when_set(guarded, method, path, status):
    """Except for what is found before a token is known; clients do not retry a 401."""
    for headers in ({}, {"Authorization": "OAuth wrong"}):
        answer = RawHttp(guarded.proxy_urls[0])(method, path, headers)
        assert answer.status == status
        assert status == 200 or answer.error["code"] == 111
    assert (guarded.faults(), guarded.trim_queues()) == ([], {})
    assert guarded.client().get_user_name() == "root"


MEGABYTE = 1 << 20
END = b"Host: localhost\r\nConnection: close\r\n"


def _get(headers, path=b"/api/v4/get"):
    return b"GET %s HTTP/1.1\r\n%s%s\r\n" % (path, END, headers)


def _put(headers, body=b""):
    return b"PUT /api/v4/set HTTP/1.1\r\n%s%s\r\n%s" % (END, headers, body)


@pytest.mark.parametrize(
    "data",
    [
        _get(b"X-A: " + b"a" * MEGABYTE + b"\r\n"),
        _get(b"X-YT-Parameters: " + b"[" * MEGABYTE + b"\r\n"),
        _get(b"".join(b"X-%d: a\r\n" % number for number in range(10_000))),
        _get(b"", b"/api/v4/get?path=" + b"a" * MEGABYTE),
        _get(b"", b"/api/v4/%zz"),
        _get(b"", b"/api/v4/\xff"),
        _get(b"", b"*"),
        _put(b"Transfer-Encoding: chunked\r\n", b"zz\r\n"),
        _put(b"Content-Length: -5\r\n"),
        _put(b"Content-Length: 5\r\nContent-Length: 6\r\n", b"abcdef"),
        _put(b"Expect: 100-continue\r\nContent-Length: 1\r\n", b"1"),
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"EHLO example.com\r\n\r\n",
        b"\x00\x01\x02 nonsense\r\n\r\n",
    ],
    ids=lambda data: repr(data[:12]) + str(len(data)),
)
def test_malformed_request_gets_an_envelope(raw, data):
    """Whatever it is, the answer says that it is wrong in the way of every other error."""
    answer = raw.exchange(data).removeprefix(b"HTTP/1.1 100 Continue\r\n\r\n")
    head, _, body = answer.partition(b"\r\n\r\n")
    status = head.split(b" ")[1]
    assert status in {b"400", b"404"}
    headers = dict(line.lower().split(": ", 1) for line in head.decode().split("\r\n")[1:])
    assert json.loads(body)["code"] == int(headers["x-yt-response-code"]) != 0
    assert "x-yt-error" in headers
    assert raw("GET", "/ping").status == 200


@pytest.mark.parametrize(
    "data", [_put(b"Content-Length: 50\r\n", b"abc"), b"PUT /api/v4/set HT", b"", b"\r\n\r\n"]
)
def test_request_that_ends_too_early_is_dropped(raw, data):
    """There is nobody to answer any more."""
    assert raw.exchange(data, finish=True) == b""
    assert raw("GET", "/ping").status == 200
