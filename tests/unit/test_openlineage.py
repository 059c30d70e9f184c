"""Lineage: what OpenLineage is told of a batch, in its own words, and that no batch waits for it."""

import json
import threading
from uuid import UUID

import pytest

from yt_exactly_once import enable_lineage
from yt_exactly_once.observability import Event, emitter, listen

openlineage = pytest.importorskip("openlineage.client")

from openlineage.client.serde import Serde  # noqa: E402
from openlineage.client.transport.transport import Transport  # noqa: E402

QUERY = "8a0f54d9-5ec8-4a4c-9f3e-1f8f3d0f7d5b"
SINK = {"query": QUERY, "target": "//home/shop/orders", "mode": "transactional", "batch": 7}
INPUTS = [
    {"cluster": "hahn", "queue": "//home/q", "consumer": "//home/c", "ranges": {"0": [4, 9]}},
    {"topic": "orders", "ranges": {"0": [None, 3], "1": [2, 5]}},
]


class Kept(Transport):
    """Keeps what a client would send."""

    kind = "kept"

    def __init__(self, act=lambda: None):
        self.events, self._act = [], act

    def emit(self, event):
        self._act()
        self.events.append(json.loads(Serde.to_json(event)))


def told(*steps, transport=None):
    """Return what is sent for the events of a batch."""
    kept = transport or Kept()
    client = openlineage.OpenLineageClient(transport=kept)
    with enable_lineage(namespace="shop", cluster="hahn", kafka="broker:9092", client=client):
        emit = emitter(**SINK)
        emitter(query=QUERY, run="r")(Event.QUERY_STARTED, name="copy")
        emit(Event.BATCH_STARTED)
        for event, fields in steps:
            emit(event, **fields)
    return kept.events


RECORDED = (
    Event.LEDGER_RECORDED,
    {"transaction": "t", "inputs": INPUTS, "outputs": {"//home/shop/orders": 8}},
)
FAILED = (Event.BATCH_FAILED, {"reason": "FencedError", "error": "another driver"})


def test_committed_batch_is_a_run_with_ranges_and_rows():
    start, end = told(RECORDED, (Event.BATCH_COMMITTED, {"rows": 8}))
    assert (start["eventType"], end["eventType"]) == ("START", "COMPLETE")
    assert start["run"]["runId"] == end["run"]["runId"]
    assert UUID(end["run"]["runId"])
    parent = end["run"]["facets"]["parent"]
    assert parent["run"]["runId"] == QUERY
    assert (parent["job"]["namespace"], parent["job"]["name"]) == ("shop", "copy")
    assert (end["job"]["namespace"], end["job"]["name"]) == ("shop", "copy.batch")
    queue, topic = end["inputs"]
    assert (queue["namespace"], queue["name"]) == ("ytsaurus://hahn", "//home/q")
    assert (topic["namespace"], topic["name"]) == ("kafka://broker:9092", "orders")
    ranges = queue["inputFacets"]["ytExactlyOnce_offsetRanges"]
    assert ranges["partitions"] == [{"partition": 0, "start": 4, "end": 9}]
    assert ranges["consumer"] == "//home/c"
    (output,) = end["outputs"]
    assert (output["namespace"], output["name"]) == ("ytsaurus://hahn", "//home/shop/orders")
    assert output["outputFacets"]["outputStatistics"]["rowCount"] == 8


def test_batch_that_fails_or_is_skipped_has_written_nothing():
    _, end = told(RECORDED, FAILED)
    assert (end["eventType"], end.get("outputs")) == ("FAIL", [])
    assert end["run"]["facets"]["errorMessage"]["message"] == "FencedError: another driver"
    _, end = told((Event.BATCH_SKIPPED, {"reason": "replay", "rows": 8}))
    assert (end["eventType"], end.get("outputs")) == ("COMPLETE", [])


def test_client_that_fails_or_hangs_stops_no_batch():
    """The first failure is an event; what follows is sent all the same."""
    heard, released = [], threading.Event()
    end = listen(lambda event, fields: heard.append((event, fields)))

    def fail():
        released.wait(10)
        raise ConnectionError("no backend")

    emit = emitter(**SINK)
    client = openlineage.OpenLineageClient(transport=Kept(fail))
    with enable_lineage(namespace="shop", cluster="hahn", client=client):
        for _ in range(20):
            emit(Event.BATCH_STARTED)
            emit(*FAILED[:1], **FAILED[1])
        released.set()
    end()
    failures = [fields for event, fields in heard if event == Event.LINEAGE_FAILED]
    assert failures == [{"error": "no backend"}]


def test_batch_job_has_a_run_id_of_its_name(monkeypatch):
    """OpenLineage asks for UUIDs."""
    monkeypatch.setitem(SINK, "query", "application:nightly")
    start, end = told((Event.BATCH_COMMITTED, {"rows": 8}))
    ids = {event["run"]["facets"]["parent"]["run"]["runId"] for event in (start, end)}
    assert len(ids) == 1
    assert UUID(*ids)
