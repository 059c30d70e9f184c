"""A relay in front of an HTTP server that breaks one call off, as a server does that dies."""

import http.client
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

SWITCH = "/break-off"
"""`?when=before|after|within|never&op=OPERATION`: what the next such call meets."""


class _Handler(BaseHTTPRequestHandler):
    """Each request is a connection of its own.

    Attributes:
        target: where the calls go; set by whoever makes a subclass.
    """

    target: str
    armed: tuple[str, str] = ("never", "")

    def _relay(self) -> None:
        query = parse_qs(urlsplit(self.path).query)
        operation = query.get("op", [""])[0]
        if self.path.startswith(SWITCH):
            type(self).armed = query["when"][0], operation
            self._answer(200, [], b"")
            return
        body = self._body()
        if "data" in query:
            operation = "DATA"
        when = "never"
        if operation == self.armed[1]:
            when, type(self).armed = self.armed[0], ("never", "")
        if when == "before":
            return
        connection = http.client.HTTPConnection(self.target, timeout=60)
        # The server sends clients on to the address by which it was called: ours.
        connection.request(self.command, self.path, body, {"Host": self.headers["Host"]})
        answer = connection.getresponse()
        content = answer.read()
        connection.close()
        if when != "after":
            self._answer(answer.status, answer.getheaders(), content, part=when == "within")

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        body = b""
        while size := int(self.rfile.readline(), 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return body

    def _answer(
        self, status: int, headers: list[tuple[str, str]], content: bytes, *, part: bool = False
    ) -> None:
        lines = [f"HTTP/1.1 {status} Relayed", *(f"{name}: {value}" for name, value in headers)]
        head = "\r\n".join([*lines, "Connection: close", "", ""]).encode()
        if part:
            # An answer without a body ends in its head.
            head, content = (
                (head if content else head[: len(head) // 2]),
                content[: len(content) // 2],
            )
        self.wfile.write(head + content)

    do_GET = do_PUT = do_DELETE = _relay  # noqa: N815 - names of the standard library

    def log_message(self, *_arguments: object) -> None:
        """Say nothing."""


@contextmanager
def relay(target: str) -> Iterator[str]:
    """Relay to a server at `host:port`; return the address of the relay."""
    handler = type("Handler", (_Handler,), {"target": target})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()
