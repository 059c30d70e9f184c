"""Small requests leave in one write, with the bytes that they would have had in two."""

import pytest
from yt.packages.requests import Session

from yt_exactly_once.ytsaurus.joined_requests import join_requests

URL = "http://proxy.example:80/api"


class Wire:
    """A socket that keeps what is written."""

    def __init__(self, broken=False):
        self.writes = []
        self.broken = broken

    def settimeout(self, _seconds):
        pass

    def sendall(self, data):
        if self.broken:
            raise BrokenPipeError
        self.writes.append(bytes(data))


@pytest.fixture
def connection():
    session = Session()
    join_requests(session, URL)
    found = session.get_adapter(URL).poolmanager.connection_from_url(URL)._get_conn()
    found.sock = Wire()
    return found


@pytest.mark.parametrize("kind", [bytes, memoryview])
@pytest.mark.parametrize(("size", "count"), [(0, 1), (10, 1), (1 << 16, 1), (1 << 17, 2)])
def test_small_request_is_one_write(connection, size, count, kind):
    """A long body follows its head, because joining would copy it."""
    body = kind(b"x" * size)
    for _ in range(2):
        connection.sock.writes.clear()
        connection.request("PUT", "/api/v4/insert_rows", body or None, {"User-Agent": "u"})
        head, _, sent = b"".join(connection.sock.writes).partition(b"\r\n\r\n")
        assert len(connection.sock.writes) == count
        assert head.startswith(b"PUT /api/v4/insert_rows HTTP/1.1\r\n")
        assert sent == body
        # As after an answer.
        connection._HTTPConnection__state = "Idle"


def test_broken_connection_keeps_nothing(connection):
    """The next request begins with its own head."""
    connection.sock.broken = True
    with pytest.raises(BrokenPipeError):
        connection.request("POST", "/first", b"body")
    connection.sock = Wire()
    connection._HTTPConnection__state = "Idle"
    connection.request("POST", "/second", None)
    assert connection.sock.writes[0].startswith(b"POST /second ")
