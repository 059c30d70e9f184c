"""The head of an answer leaves with what follows it, and never waits for what does not."""

import http.client

import pytest

from yt_exactly_once.local.server import JoiningTransport


class Wire:
    """A transport that keeps what is written."""

    def __init__(self):
        self.writes = []

    def write(self, data):
        self.writes.append(bytes(data))

    def close(self):
        self.writes.append("closed")


@pytest.mark.parametrize(
    ("steps", "writes"),
    [
        ([b"a", b"b"], [b"a", b"b"]),
        (["hold", b"head", b"body", b"more"], [b"headbody", b"more"]),
        (["hold", b"head", b""], [b"head"]),
        (["hold", b"head", "close"], [b"head", "closed"]),
        (["hold", "close"], ["closed"]),
        (["hold", b"head", b"body", "hold", b"head", b"body"], [b"headbody", b"headbody"]),
    ],
)
def test_one_write_is_held_until_the_next(steps, writes):
    """Or until the connection is closed."""
    wire = Wire()
    transport = JoiningTransport(wire)
    for step in steps:
        if isinstance(step, bytes):
            transport.write(step)
        else:
            getattr(transport, step)()
    assert wire.writes == writes


def test_answer_without_a_body_is_sent_too(raw):
    """On a connection that stays open."""
    connection = http.client.HTTPConnection(raw.host, timeout=30)
    for method in ("HEAD", "GET", "HEAD", "GET"):
        connection.request(method, "/api")
        answer = connection.getresponse()
        assert answer.status == 200
        assert bool(answer.read()) == (method == "GET")
    connection.close()
