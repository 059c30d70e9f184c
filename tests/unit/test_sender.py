"""The commands of a transaction: on the wire, and as errors, they are those of the official client."""

import json
import logging
from contextlib import nullcontext
from datetime import timedelta
from io import BytesIO
from types import SimpleNamespace

import pytest
from yt import yson
from yt.logger import LOGGER
from yt.packages.requests import ConnectionError as NoConnectionError
from yt.packages.requests import Response
from yt.packages.requests.adapters import HTTPAdapter
from yt.wrapper import YsonFormat, YtClient
from yt.wrapper.format import ArrowFormat

from yt_exactly_once.commit.cluster import Payload
from yt_exactly_once.config import ClusterConfig, WriteOptions
from yt_exactly_once.errors import ExactlyOnceError
from yt_exactly_once.ytsaurus.browsing import all_rows
from yt_exactly_once.ytsaurus.client import Connection
from yt_exactly_once.ytsaurus.queues import RemoteQueue
from yt_exactly_once.ytsaurus.rows import ProducerSession, SessionState
from yt_exactly_once.ytsaurus.sender import Sender
from yt_exactly_once.ytsaurus.transaction import TabletTransaction

PROXY = "http://proxy.example:80"
COMMANDS = {
    "start_transaction": ("null", "structured", True, False),
    "ping_transaction": ("null", "structured", True, False),
    "commit_transaction": ("null", "structured", True, False),
    "abort_transaction": ("null", "structured", True, False),
    "lookup_rows": ("tabular", "tabular", False, True),
    "select_rows": ("null", "tabular", False, True),
    "insert_rows": ("tabular", "null", True, True),
    "delete_rows": ("tabular", "null", True, True),
    "create_queue_producer_session": ("null", "structured", True, False),
    "push_queue_producer": ("tabular", "structured", True, False),
    "pull_queue": ("null", "tabular", False, True),
    "pull_queue_consumer": ("null", "tabular", False, True),
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
NULLS = {"enable_null_to_yson_entity_conversion": False}
YSON, BINARY, ARROW = YsonFormat(), YsonFormat(format="binary"), ArrowFormat(attributes=NULLS)
LIMITS = {"input_row_limit": 1_000_000, "output_row_limit": 1_000_000}
META = {"batch": 7, "digest": "0f"}
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


def clients(*, by_client=False, **more):
    """Return the official client, joined to a transaction, and a sender of its own."""
    config = Connection(ClusterConfig(proxy=PROXY, **more))._pinned_config(PROXY)
    official, sender = YtClient(config=config), Sender(YtClient(config=config))
    official.Transaction(transaction_id="1-2-3-4", ping=False, acquire=False).__enter__()
    sender._is_direct &= not by_client
    return official, sender


CHANGE_NOTHING = {
    "ping_ancestor_transactions": False,
    "suppress_transaction_coordinator_sync": False,
    "transaction_id": "0-0-0-0",
    "enable_statistics": False,
}
"""Parameters that only the official client sends: defaults of the cluster."""


def told(proxy):
    """Return the last request, without what is random or changes nothing, and its parameters parsed."""
    request, settings = proxy.requests.pop()
    headers = dict(request.headers)
    del headers["X-YT-Correlation-Id"]
    body = request.body or b""
    assert int(headers.pop("Content-Length", 0)) == len(body)
    params = yson.loads(headers.pop("X-YT-Parameters", None) or body)
    assert params.pop("mutation_id", None) or "retry" not in params
    if params.get("type") == "tablet":
        # The cluster stores them of master transactions only.
        params.pop("attributes", None)
    params = {
        name: value
        for name, value in params.items()
        if name not in CHANGE_NOTHING or value != CHANGE_NOTHING[name]
    }
    body = b"" if request.method == "POST" else body
    timeout = settings.pop("timeout")
    return request.method, request.url, headers, params, body, dict(settings), timeout


def within(sender):
    return TabletTransaction("1-2-3-4", [sender], None, proxy=PROXY)


CALLS = {
    "commit": (lambda client: client.commit_transaction("1-2-3-4"), lambda began: began.commit()),
    "abort": (lambda client: client.abort_transaction("1-2-3-4"), lambda began: began.abort()),
    "ping": (
        lambda client: client.ping_transaction("1-2-3-4"),
        lambda began: began._send("ping_transaction"),
    ),
    "look up": (
        lambda client: list(
            client.lookup_rows("//l", [{"k": 1}], keep_missing_rows=True, format=YSON)
        ),
        lambda began: began.lookup("//l", [{"k": 1}]),
    ),
    "select": (
        lambda client: client.select_rows(
            "[k] from [//l] limit 7", **LIMITS, format=YSON, raw=True
        ).read(),
        lambda began: began.select("//l", ["k"], limit=7),
    ),
    "insert": (
        lambda client: client.insert_rows("//l", [{"k": 1, "v": None}], format=YSON),
        lambda began: began.insert("//l", [{"k": 1, "v": None}]),
    ),
    "insert encoded": (
        lambda client: client.insert_rows(
            "//dir/a b", BytesIO(b"rows"), format=ARROW, raw=True, update=True, aggregate=True
        ),
        lambda began: began.write(
            "//dir/a b", [Payload(1, b"rows")], "arrow", WriteOptions(update=True, aggregate=True)
        ),
    ),
    "insert nothing else": (
        lambda client: client.insert_rows(
            "//l", BytesIO(b"{k=1};"), format=YsonFormat(attributes=NULLS), raw=True
        ),
        lambda began: began.write("//l", [Payload(1, memoryview(b"{k=1};"))], "yson"),
    ),
    "delete": (
        lambda client: client.delete_rows("//l", [{"k": 1}], format=YSON),
        lambda began: began.delete("//l", [{"k": 1}]),
    ),
}
OUTSIDE = {
    "start": (
        lambda client: client.start_transaction(type="tablet", sticky=True, timeout=30_000),
        lambda sender: (
            TabletTransaction.start([sender], None, timedelta(seconds=30), proxy=PROXY).id
        ),
    ),
    "select all": (
        lambda client: list(
            client.select_rows(
                "* from [//l]", **LIMITS, fail_on_incomplete_result=True, format=BINARY
            )
        ),
        lambda sender: all_rows(over(sender), "//l"),
    ),
    "pull": (
        lambda client: client.pull_queue("//q", 5, 1, 7, format=BINARY, raw=True).read(),
        lambda sender: RemoteQueue(over(sender), "//q").pull(1, 5, 7),
    ),
    "pull as a consumer": (
        lambda client: client.pull_queue_consumer(
            "//c", "//q", 5, 1, 7, 9, format=BINARY, raw=True
        ).read(),
        lambda sender: RemoteQueue(over(sender), "//q", "//c").pull(1, 5, 7, 9),
    ),
    "create session": (
        lambda client: client.create_queue_producer_session("//p", "//q", "s'"),
        lambda sender: ProducerSession.create(over(sender), "//p", "//q", "s'"),
    ),
    "push": (
        lambda client: client.push_queue_producer(
            "//p", "//dir/q", "s", 3, BytesIO(b"rows"), user_meta=META, input_format=ARROW, raw=True
        ),
        lambda sender: ProducerSession("//p", "//dir/q", "s", 3, SessionState(8)).push(
            over(sender), b"rows", "arrow", 9, META
        ),
    ),
}
ANSWERS = {
    "look up": {"content": b"{k=1;v=x};#;"},
    "select": {"content": b"{k=1;v=x};"},
    "select all": {"content": b"{k=1;v=x};"},
    "pull": {"content": b"{k=1;v=x};"},
    "pull as a consumer": {"content": b"{k=1;v=x};"},
    "start": {"content": yson.dumps({"transaction_id": "5-6-7-8"}, yson_format="binary")},
    "create session": {"content": b'{epoch=4;sequence_number=-1;user_meta={digest="0f"}}'},
    "push": {"content": b"{last_sequence_number=9;skipped_row_count=0}"},
}
OF_ITS_OWN = {"create session", "push"}
"""What is made of these answers is not what the client makes of them."""


def over(sender):
    return SimpleNamespace(sending=lambda: nullcontext(sender), reader=None)


def asked(call, official, sender):
    """Return what a call does, with the official client and over a sender."""
    if call in CALLS:
        (by_client, by_sender), within_it = CALLS[call], within(sender)
    else:
        (by_client, by_sender), within_it = OUTSIDE[call], sender
        official.COMMAND_PARAMS["transaction_id"] = "0-0-0-0"
    return lambda: by_client(official) or None, lambda: by_sender(within_it) or None


@pytest.mark.parametrize("by_client", [False, True])
@pytest.mark.parametrize("call", [*CALLS, *OUTSIDE])
def test_request_is_that_of_the_official_client(proxy, call, by_client):
    """With its headers, limits and proxies; and the answer is read as there."""
    proxy.answer = ANSWERS.get(call, {})
    token = {"token": "secret", "enable_token": True}
    both = clients(by_client=by_client, client_config=token)
    assert both[1]._is_direct != by_client
    (answer, expected), (own, sent) = [(ask(), told(proxy)) for ask in asked(call, *both)]
    assert sent == expected
    assert own == answer or call in OF_ITS_OWN


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
    "call", ["commit", "look up", "select", "insert", "create session", "push", "pull"]
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
    for ask in asked(call, *clients()):
        with pytest.raises(Exception) as raised:  # noqa: PT011 - both are compared
            ask()
        errors.append(raised.value)
    official, own = errors
    while isinstance(own, ExactlyOnceError):
        own = own.__cause__
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
    _, sender = clients(client_config=unusual)
    assert not sender._is_direct


def test_debug_log_is_that_of_the_client(proxy, monkeypatch, caplog):
    """Whoever turns it on looks for every request there; afterwards senders send again."""
    _, sender = clients()
    monkeypatch.setattr(LOGGER, "propagate", True)
    with caplog.at_level(logging.DEBUG, LOGGER.name):
        within(sender)._send("ping_transaction")
        assert "Perform HTTP" in caplog.text
    caplog.clear()
    within(sender)._send("ping_transaction")
    assert (caplog.text, len(proxy.requests)) == ("", 2)


def test_cookies_of_a_balancer_are_sent_back(proxy):
    """One in front of the proxies may recognise by them where the transaction lives."""
    official, sender = clients()
    by_official, by_sender = asked("commit", official, sender)
    for ask, client in ((by_official, official), (by_sender, sender.client)):
        ask()
        proxy.requests.clear()
        client._requests_session.cookies.set("proxy", "7", domain="proxy.example")
    by_official()
    expected = told(proxy)
    by_sender()
    assert told(proxy) == expected
    assert expected[2]["Cookie"] == "proxy=7"
