"""Requests of any shape: the embedded cluster answers every one, and what it holds stays whole."""

import asyncio
import gzip
import json
import os
import string
from unittest import mock

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from yt import yson

from tests.arrow_streams import stream_of
from tests.in_process import Commands
from yt_exactly_once.local.commands.registry import REGISTRY
from yt_exactly_once.local.http.wire import Application

EXAMPLES = int(os.environ.get("FUZZ_EXAMPLES", "150"))
ANSWER_SECONDS = 60

KEY = {"name": "k", "type": "int64", "sort_order": "ascending"}
VALUE = {"name": "v", "type": "string"}
SENTINEL = "//home/sentinel"
ROWS = [{"k": number, "v": b"row %d" % number} for number in range(5)]


class Cluster(Commands):
    """One proxy in this process, spoken to through its ASGI application."""

    def __init__(self, folder):
        super().__init__(folder)
        self.application = Application(self.proxy)
        self.loop = asyncio.new_event_loop()

    def send(self, method, path, headers, body, query=b""):
        """Return status, headers and body of an answer."""
        return self.loop.run_until_complete(
            asyncio.wait_for(self._send(method, path, headers, body, query), ANSWER_SECONDS)
        )

    async def _send(self, method, path, headers, body, query):
        parts = [{"type": "http.request", "more_body": False}]
        sent = []

        async def receive():
            return parts.pop() if parts else {"type": "http.disconnect"}

        async def send(message):
            sent.append(message)

        # Answers may be held until their body, end in trailers, and close the connection.
        transport = mock.Mock(is_closing=lambda: False)
        listed = [(name.lower().encode("latin-1"), value) for name, value in headers.items()]
        scope = {
            "type": "http",
            "method": method,
            "path": path,
            "query_string": query,
            "headers": listed,
            "yt.transport": transport,
            "yt.body": [body],
        }
        await self.application(scope, receive, send)
        start, *rest = sent
        found = {k.decode("latin-1").lower(): v.decode("latin-1") for k, v in start["headers"]}
        return start["status"], found, b"".join(piece.get("body", b"") for piece in rest)

    def close(self):
        super().close()
        self.loop.close()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    running = Cluster(tmp_path_factory.mktemp("fuzz"))
    running.table(SENTINEL, [KEY, VALUE])
    running("insert_rows", ROWS, path=SENTINEL)
    yield running
    running.close()


def _stage(cluster):
    """Make what a request may hit, as far as earlier requests have removed it."""
    cluster("create", type="map_node", path="//tmp", ignore_existing=True)
    for name, schema in (("sorted", [KEY, VALUE]), ("queue", [VALUE])):
        if not cluster("exists", path=f"//tmp/{name}")["value"]:
            cluster.table(f"//tmp/{name}", schema)
    for kind in ("queue_consumer", "queue_producer", "file", "map_node"):
        cluster("create", type=kind, path=f"//tmp/{kind}", ignore_existing=True)


def _check_whole(cluster):
    assert cluster("lookup_rows", [{"k": row["k"]} for row in ROWS], path=SENTINEL) == ROWS
    with cluster.proxy.store.read() as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


_PATHS = st.sampled_from(
    [
        "//tmp/sorted", "//tmp/queue", "//tmp/queue_consumer", "//tmp/queue_producer", "//tmp/file",
        "//tmp/map_node", "//tmp/none", "//tmp/map_node/@", "//tmp/sorted/@schema", "//tmp/queue&",
        "//tmp/sorted[#1:#3]", "//tmp/sorted{k}", "//tmp/*", "//tmp/a/b/c", "#0-0-0-0", "//", "/",
        "//sys", "//tmp/\\x", "//tmp/sorted[(1):", "<append=%true>//tmp/file", "//tmp/@a/b",
    ]
)  # fmt: skip
_FORMATS = st.sampled_from(
    ["yson", "json", "arrow", "dsv", "schemaful_dsv", "skiff", "protobuf", "null", "web_json", "?"]
)


def _with_attributes(value, attributes):
    typed = yson.to_yson_type(value)
    typed.attributes = attributes
    return typed


_SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.integers(0, 2**64 - 1).map(yson.YsonUint64),
    st.floats(),
    st.binary(max_size=12),
    st.text(max_size=12),
    _PATHS,
    _FORMATS,
    st.sampled_from(
        [
            "0-0-0-0", "1-2-10001-3", "1-2-10002-3", "tablet", "master", "full", "none", "exclusive",
            "* from [//tmp/sorted]", "sum(k) from [//tmp/sorted] group by 1", "k from", "ascending",
            "int64", "any", "table", "queue_consumer", "2020-01-01T00:00:00Z",
        ]
    ),
)  # fmt: skip
_NAMES = st.sampled_from(
    [
        "path", "type", "attributes", "recursive", "force", "transaction_id", "input_format",
        "output_format", "mode", "child_key", "source_path", "destination_path", "source_paths",
        "target_path", "link_path", "timeout", "mutation_id", "retry", "requests", "query",
        "queue_path", "consumer_path", "producer_path", "partition_index", "offset", "epoch",
        "max_row_count", "max_data_weight", "old_offset", "new_offset", "vital", "partitions",
        "session_id", "sequence_number", "tablet_index", "trimmed_row_count", "tablet_indexes",
        "tablet_count", "pivot_keys", "schema", "dynamic", "update", "aggregate", "locks", "lock_type",
        "column_names", "length", "timestamp", "retention_timestamp", "versioned", "client_side",
        "control_attributes", "user", "permission", "prerequisite_transaction_ids", "atomicity",
        "placeholder_values", "input_row_limit", "first_tablet_index", "last_tablet_index",
        "keep_missing_rows", "transaction_id_override", "start_timestamp_override", "read_from",
        "ping_ancestor_transactions", "return_only_value", "subrequests", "user_meta", "optimize_for",
    ]
)  # fmt: skip
_VALUES = st.recursive(
    _SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.one_of(_NAMES, st.text(max_size=5)), inner, max_size=3),
        st.builds(
            _with_attributes,
            st.one_of(st.text(max_size=8), _FORMATS, _PATHS, st.integers(0, 9)),
            st.dictionaries(st.sampled_from(["format", "columns", "a", "cluster"]), inner),
        ),
    ),
    max_leaves=6,
)
_PARAMETERS = st.dictionaries(_NAMES, st.one_of(_PATHS, _SCALARS, _VALUES), max_size=6)
_ROWS = st.lists(
    st.dictionaries(
        st.sampled_from(["k", "v", "$tablet_index", "$sequence_number", "x", "offset"]), _VALUES
    ),
    max_size=3,
)


_BODIES = st.one_of(
    st.just(b""),
    st.binary(max_size=64),
    st.text(alphabet='{}[]<>;=#%"x1.u\\', max_size=24).map(str.encode),
    _ROWS.map(lambda rows: yson.dumps(rows, yson_type="list_fragment", yson_format="binary")),
    _VALUES.map(lambda value: yson.dumps(value, yson_format="text")),
    st.just(stream_of(pa.table({"k": [1, 2], "v": ["a", None]}))),
    st.just(b'{"k": 1, "v": "x"}\n{"k": 2}'),
    st.just(b"{" * 5000),
    st.just(b"k=1\tv=a\n"),
)


@st.composite
def _spoiled(draw, bodies):
    """Cut a body, or change a byte of it."""
    body = draw(bodies)
    if not body or draw(st.booleans()):
        return body
    at = draw(st.integers(0, len(body) - 1))
    if draw(st.booleans()):
        return body[:at]
    return body[:at] + bytes([draw(st.integers(0, 255))]) + body[at + 1 :]


_HEADER_TEXT = st.one_of(
    st.sampled_from(
        [
            "json", '"json"', "<format=text>yson", "<format=binary>yson", "yson", "<a=1", "", "{",
            "application/json", "application/x-yt-yson-binary", "gzip", "br", "identity;q=0", "*;q=0",
            "z-lz4", "deflate", "text/csv", "Arrow", '{"$value":"yson","$attributes":{}}',
        ]
    ),
    st.text(alphabet=string.printable.replace("\n", "").replace("\r", ""), max_size=20),
).map(str.encode)  # fmt: skip
_HEADERS = st.dictionaries(
    st.sampled_from(
        [
            "X-YT-Header-Format", "X-YT-Input-Format", "X-YT-Output-Format", "X-YT-Error-Format",
            "Accept", "Content-Type", "Accept-Encoding", "Content-Encoding", "X-YT-Parameters0",
            "If-None-Match", "Authorization", "X-YT-User-Name", "X-YT-Omit-Trailers",
        ]
    ),
    _HEADER_TEXT,
    max_size=3,
)  # fmt: skip


@st.composite
def _requests(draw):
    """A request that is right in some parts and wrong in others."""
    headers = {"X-YT-Header-Format": b"<format=text>yson", "X-YT-Input-Format": b"yson"}
    parameters = yson.dumps(draw(_PARAMETERS), yson_format="text")
    headers["X-YT-Parameters"] = draw(_spoiled(st.just(parameters)))
    if draw(st.integers(0, 2)) == 0:
        headers |= draw(_HEADERS)
    body = draw(_spoiled(_BODIES))
    if draw(st.integers(0, 9)) == 0:
        headers["Content-Encoding"] = b"gzip"
        body = draw(_spoiled(st.just(gzip.compress(body))))
    name = draw(st.sampled_from(sorted(REGISTRY)))
    path = f"/api/v4/{name}"
    if draw(st.integers(0, 19)) == 0:
        path = "/" + draw(st.text(max_size=20))
    method = draw(st.sampled_from(["PUT", "PUT", "PUT", "POST", "GET", "DELETE", "?"]))
    query = draw(st.sampled_from([b"", b"", b"path=//tmp", b"a[b]=1&a=2", b"%ff=%00&[", b"a[=1"]))
    return method, path, headers, body, query


@settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(batch=st.lists(_requests(), min_size=1, max_size=4))
def test_every_request_gets_an_answer_and_harms_nothing(cluster, batch):
    """Success or an error envelope: no traceback, no 500, no hang, no damage."""
    _stage(cluster)
    for method, path, headers, body, query in batch:
        status, answered, content = cluster.send(method, path, headers, body, query)
        # A user who is not there is refused; nobody else is.
        refused = {403} if "X-YT-User-Name" in headers else set()
        assert status in {200, 304, 400, 401, 404, 405, 415} | refused, content
        assert b"Internal error" not in content
        if status >= 400:
            error = json.loads(answered["x-yt-error"])
            assert {"code", "message", "attributes", "inner_errors"} <= error.keys()
            assert error["code"] == int(answered["x-yt-response-code"]) != 0
    _check_whole(cluster)
