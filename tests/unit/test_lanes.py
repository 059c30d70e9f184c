"""The commands of a transaction: on the wire, and as errors, they are those of the official client."""

import json
import logging
from io import BytesIO

import pytest
from yt import yson
from yt.logger import LOGGER
from yt.packages.requests import ConnectionError as NoConnectionError
from yt.packages.requests import Response
from yt.packages.requests.adapters import HTTPAdapter
from yt.wrapper import YsonFormat, YtClient
from yt.wrapper.format import ArrowFormat

from yt_exactly_once.config import ClusterConfig
from yt_exactly_once.ytsaurus.client import Connection, PinnedProxy
from yt_exactly_once.ytsaurus.lanes import Lane, Unread, lane_of
from yt_exactly_once.ytsaurus.transaction import input_format

PROXY = "http://proxy.example:80"
COMMANDS = {
    "start_transaction": ("null", "structured", True, False),
    "commit_transaction": ("null", "structured", True, False),
    "abort_transaction": ("null", "structured", True, False),
    "lookup_rows": ("tabular", "tabular", False, True),
    "select_rows": ("null", "tabular", False, True),
    "insert_rows": ("tabular", "null", True, True),
    "delete_rows": ("tabular", "null", True, True),
    "create_queue_producer_session": ("null", "structured", True, False),
    "push_queue_producer": ("tabular", "structured", True, False),
}
DESCRIBED = json.dumps(
    [
        dict(
            zip(
                ("name", "input_type", "output_type", "is_volatile", "is_heavy"),
                (name, *told),
                strict=True,
            )
        )
        for name, told in COMMANDS.items()
    ]
)
ERROR = {"code": 1700, "message": "lost", "attributes": {}, "inner_errors": []}


class Proxy:
    """What a proxy was asked, and what it answers."""

    def __init__(self):
        self.requests = []
        self.answer = {}
        self.raised = None

    def send(self, request, **settings):
        """Take the place of the network."""
        if request.url.endswith("/api/v4"):
            return answered(content=DESCRIBED.encode())
        self.requests.append((request, settings))
        if self.raised is not None:
            raise self.raised
        return answered(**self.answer)


def answered(status=200, content=b"", headers=(), trailers=()):
    """Return an answer; trailers are there when its body is read."""
    found = Response()
    found.status_code, found._content, found.raw = status, content, BytesIO()
    found._content_consumed = True
    found.headers.update(headers)
    arriving = [None, *trailers]
    found.trailers = lambda: arriving.pop(0) if arriving else None
    return found


@pytest.fixture
def proxy(monkeypatch):
    found = Proxy()
    monkeypatch.setattr(HTTPAdapter, "send", found.send)
    monkeypatch.setenv("HTTP_PROXY", "http://between.example:3128")
    return found


def clients(**more):
    """Return the official client and a lane, each of its own, for one transaction."""
    config = Connection(ClusterConfig(proxy=PROXY, **more))._pinned_config(PROXY)
    official, below = YtClient(config=config), YtClient(config=config)
    lane = lane_of(below)
    for client in (official, below):
        client.Transaction(transaction_id="1-2-3-4", ping=False, acquire=False).__enter__()
    return official, lane


def told(proxy):
    """Return the last request, without what is random, and its parameters parsed."""
    request, settings = proxy.requests.pop()
    headers = dict(request.headers)
    del headers["X-YT-Correlation-Id"]
    body = request.body or b""
    assert int(headers.pop("Content-Length", 0)) == len(body)
    if "X-YT-Parameters" in headers:
        headers["X-YT-Parameters"] = yson.loads(headers["X-YT-Parameters"])
    else:
        body = yson.loads(body)
    params = headers.get("X-YT-Parameters", body)
    assert params.pop("mutation_id", None) or "retry" not in params
    timeout = settings.pop("timeout")
    return request.method, request.url, headers, body, dict(settings), timeout


CALLS = {
    "start": lambda client: client.start_transaction(type="tablet", sticky=True, timeout=30_000),
    "commit": lambda client: client.commit_transaction("5-6-7-8") or None,
    "abort": lambda client: client.abort_transaction("5-6-7-8") or None,
    "look up": lambda client: list(
        client.lookup_rows("//l", [{"k": 1}], keep_missing_rows=True, format=YsonFormat())
    ),
    "select": lambda client: client.select_rows(
        "* from [//l]", input_row_limit=7, format=YsonFormat(), raw=True
    ).read(),
    "insert": lambda client: client.insert_rows("//l", [{"k": 1, "v": None}], format=YsonFormat()),
    "insert encoded": lambda client: client.insert_rows(
        "<a=7>//dir/a b", BytesIO(b"rows"), format=input_format("arrow"), raw=True, update=True
    ),
    "aggregate": lambda client: client.insert_rows(
        "//l", BytesIO(b"rows"), format=ArrowFormat(), raw=True, update=None, aggregate=True
    ),
    "delete": lambda client: client.delete_rows("//l", [{"k": 1}], format=YsonFormat()),
    "delete encoded": lambda client: client.delete_rows(
        "//l", BytesIO(b"{k=1};"), format=YsonFormat(), raw=True
    ),
    "create session": lambda client: client.create_queue_producer_session("//p", "//q", "s'"),
    "push": lambda client: client.push_queue_producer(
        "//p",
        "<a=7>//dir/q",
        "session",
        3,
        BytesIO(b"rows"),
        user_meta={"batch": 7, "digest": "0f"},
        input_format=input_format("arrow"),
        raw=True,
    ),
}
ANSWERS = {
    "start": {"content": yson.dumps({"transaction_id": "5-6-7-8"}, yson_format="binary")},
    "look up": {"content": b"{k=1;v=x};#;"},
    "select": {"content": b"{k=1;v=x};"},
    "create session": {"content": b'{epoch=4;sequence_number=-1;user_meta={digest="0f"}}'},
    "push": {"content": b"{last_sequence_number=9;skipped_row_count=0}"},
}


@pytest.mark.parametrize("call", CALLS)
def test_request_is_that_of_the_official_client(proxy, call):
    """With its headers, limits and proxies; and the answer is read as there."""
    proxy.answer = ANSWERS.get(call, {})
    official, lane = clients(client_config={"token": "secret", "enable_token": True})
    assert isinstance(lane, Lane)
    expected = CALLS[call](official), told(proxy)
    assert (CALLS[call](lane), told(proxy)) == expected


REFUSAL = {"headers": {"X-YT-Error": json.dumps(ERROR), "X-YT-Response-Code": "1700"}}
FAILURES = {
    "refused": {"status": 400, "content": json.dumps(ERROR).encode(), **REFUSAL},
    "refused without headers": {"status": 400, "content": json.dumps(ERROR).encode()},
    "refused while answering": {
        "trailers": [{"x-yt-response-code": "1700", "x-yt-error": json.dumps(ERROR)}]
    },
    "busy": {"status": 503, "content": json.dumps(ERROR).encode(), **REFUSAL},
    "token refused": {"status": 401, "content": json.dumps(ERROR).encode(), **REFUSAL},
    "garbage": {"status": 400, "content": b"<html>"},
}


@pytest.mark.parametrize(
    "call", ["commit", "look up", "select", "insert", "create session", "push"]
)
@pytest.mark.parametrize("failure", [*FAILURES, "no connection", "closed with an answer"])
def test_error_is_that_of_the_official_client(proxy, call, failure):
    """The outcome of a commit and what may be retried are decided by it."""
    proxy.answer = FAILURES.get(failure, {})
    if failure == "no connection":
        proxy.raised = NoConnectionError("reset")
    elif failure == "closed with an answer":
        proxy.raised = NoConnectionError("reset", response=answered(**FAILURES["refused"]))
    errors = []
    for client in clients():
        with pytest.raises(Exception) as raised:  # noqa: PT011 - both are compared
            CALLS[call](client)
        errors.append(raised.value)
    official, own = errors
    assert type(own) is type(official)
    assert getattr(own, "error", None) == getattr(official, "error", None)
    assert getattr(own, "message", str(own)) == getattr(official, "message", str(official))


@pytest.mark.parametrize(
    "unusual",
    [
        {"impersonation_user": "other"},
        {"proxy": {"content_encoding": "gzip"}},
        {"proxy": {"header_format": "json"}},
        {"api_version": "v3"},
        {"auth_class": {"module_name": "m", "class_name": "c"}},
    ],
)
def test_unusual_configuration_is_left_to_the_client(unusual):
    """It knows what that asks for."""
    official, lane = clients(client_config=unusual)
    assert type(lane) is type(official)


def test_debug_log_is_that_of_the_client(monkeypatch):
    """Whoever turns it on looks for every request there; afterwards lanes send again."""
    pinned = PinnedProxy(PROXY, Connection(ClusterConfig(proxy=PROXY))._pinned_config(PROXY))
    with monkeypatch.context() as watched:
        watched.setattr(LOGGER, "level", logging.DEBUG)
        LOGGER.manager._clear_cache()
        assert pinned.lane(1) is pinned.client(1)
    LOGGER.manager._clear_cache()
    assert isinstance(pinned.lane(1), Lane)


def test_cookies_of_a_balancer_are_sent_back(proxy):
    """One in front of the proxies may recognise by them where the transaction lives."""
    official, lane = clients()
    for client in (official, lane._client):
        CALLS["commit"](client)
        proxy.requests.clear()
        client._requests_session.cookies.set("proxy", "7", domain="proxy.example")
    CALLS["commit"](official)
    expected = told(proxy)
    CALLS["commit"](lane)
    assert told(proxy) == expected
    assert expected[2]["Cookie"] == "proxy=7"


def test_rows_are_read_in_pieces_or_whole():
    """The client reads a file to its end; a lane takes the data as it is."""
    data = memoryview(b"abcdefg")
    rows = Unread(data)
    assert (rows.read(3), rows.read(), rows.read()) == (b"abc", b"defg", b"")
    assert rows.data is data
