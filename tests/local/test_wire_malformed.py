"""Bytes that are hardly HTTP: an envelope or a closed connection, and the next client is served."""

import json

import pytest

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
