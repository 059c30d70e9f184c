"""Events as metrics and traces, without Spark and without a cluster."""

import os
import subprocess
import sys
import time
import urllib.request

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client.parser import text_string_to_metric_families

from yt_exactly_once import enable_telemetry, serve_metrics
from yt_exactly_once.errors import ConfigError
from yt_exactly_once.observability import Event, channel, emitter, publish, reported
from yt_exactly_once.telemetry.metrics import LABELS, Metric

SINK = {"query": "q-1", "batch": 7, "target": "//home/app/result", "mode": "transactional"}
SOURCE = {"queue": "//home/app/queue", "consumer": "//home/app/consumer"}
QUERY = {"query": "q-1", "name": "orders", "run": "r-1"}
COMMITTED = {
    "rows": 10,
    "bytes": 700,
    "attempts": 2,
    "transaction": "b",
    "seconds": {"look_up": 0.01, "compute": 0.2, "commit": 0.1},
}


def scraped(telemetry):
    """Every sample by its name: labels and value."""
    with urllib.request.urlopen(f"http://localhost:{telemetry.port}/metrics") as answer:
        text = answer.read().decode()
    found = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = {key: one for key, one in sample.labels.items() if not key.startswith("otel_")}
            found.setdefault(sample.name, []).append((labels, sample.value))
    return found


def value(found, name, **labels):
    """The sum of the samples with these labels."""
    return sum(
        number
        for given, number in found[f"yt_exactly_once_{name}"]
        if labels.items() <= given.items()
    )


def everything():
    """Emit every event that any metric comes from."""
    emit, source = emitter(**SINK), emitter(**SOURCE)
    emitter(**QUERY)(Event.QUERY_STARTED)
    with reported(emit):
        emit(Event.ROWS_REJECTED, path="//home/app/bad", rows=3)
        emit(Event.BATCHES_LEFT_OUT, first=4, last=5, rows=40)
        emit(Event.TRANSACTION_STARTED, attempt=1, transaction="a")
        emit(Event.TRANSACTION_ABORTED, attempt=1, transaction="a")
        emit(Event.RETRY_SCHEDULED, attempt=1, wait=0.1, reason="ConflictError", error="lost")
        emit(Event.TRANSACTION_STARTED, attempt=2, transaction="b")
        emit(Event.COMMIT_OUTCOME_UNKNOWN, attempt=2, transaction="b", error="no answer")
        emit(Event.COMMIT_OUTCOME_RESOLVED, transaction="b", own=True)
        emit(Event.TRANSACTION_COMMITTED, attempt=2, transaction="b")
        emit(Event.NOTE_FAILED, note="n", kept="ledger", error="no disk")
        emit(Event.BATCH_COMMITTED, **COMMITTED)
    source(Event.SOURCE_LOOKED, rows=10, rows_behind=25, seconds_behind=61.0, partitions=2)
    source(Event.SOURCE_ROWS_SKIPPED, partition=1, start=0, end=5, rows=5)
    source(Event.SOURCE_QUEUE_REPLACED)
    source(Event.RETRY_SCHEDULED, attempt=1, wait=0.1, reason="ClusterUnavailableError", error="")
    task = emitter(target="//home/app/result")
    task(Event.RETRY_SCHEDULED, attempt=1, wait=0.1, reason="ClusterUnavailableError", error="")
    emitter(**QUERY)(Event.QUERY_PROGRESSED, rows_behind=40, idle=False)
    emitter(**QUERY)(Event.QUERY_PROGRESSED, idle=True)
    emitter(**QUERY)(Event.QUERY_STOPPED, reason="FencedError", error="another driver")


@pytest.fixture(scope="module")
def found():
    """What the end point serves after every event."""
    with serve_metrics(port=0) as telemetry:
        everything()
        return scraped(telemetry)


def test_end_point_serves_every_metric_of_the_table_under_its_name_with_its_labels(found):
    """Rules and boards are written against the table."""
    ours = {name for name in found if name.startswith("yt_exactly_once_")}
    known = {name for metric in Metric for name in metric.series}
    assert {name for name in ours if not name.endswith("_created")} == known
    for metric in Metric:
        wanted = {label.replace(".", "_") for label in metric.value.labels}
        labels = {label for name in metric.series for given, _ in found[name] for label in given}
        assert labels - {"le"} == wanted, metric
        assert set(metric.value.labels) <= LABELS.keys()


def test_values_are_those_of_the_events(found):
    assert value(found, "batches_total", yt_outcome="committed") == 1
    assert value(found, "batches_total", yt_outcome="failed") == 0
    assert value(found, "rows_written_total") == 10
    assert value(found, "rows_rejected_total") == 3
    assert value(found, "rows_left_out_total") == 40
    assert value(found, "io_written_bytes_total") == 700
    assert value(found, "attempts_total") == 2
    assert value(found, "retries_total", error_type="ConflictError") == 1
    assert value(found, "source_retries_total", yt_queue="//home/app/queue") == 1
    assert value(found, "task_retries_total") == 1
    assert value(found, "batch_step_duration_seconds_sum", yt_step="compute") == 0.2
    assert value(found, "source_lag") == 25
    assert value(found, "source_lag_time_seconds") == 61
    assert value(found, "source_rows_trimmed_total") == 5
    assert value(found, "query_failed", yt_query_name="orders") == 1
    assert value(found, "query_active") == 0
    assert value(found, "query_lag") == 40
    assert value(found, "query_stops_total", error_type="FencedError") == 1


def test_failure_of_a_batch_is_counted_and_counters_begin_at_zero():
    """Prometheus sees an increase only from a number that it has seen."""
    with serve_metrics(port=0) as telemetry:
        emit = emitter(**SINK)
        emit(Event.BATCH_STARTED)
        before = scraped(telemetry)
        with pytest.raises(ValueError, match="on purpose"), reported(emit):
            raise ValueError("on purpose")
        after = scraped(telemetry)
    for name in ("rows_rejected_total", "commits_unknown_total", "rows_written_total"):
        assert value(before, name) == 0
    assert value(before, "batches_total", yt_outcome="failed") == 0
    assert value(after, "batches_total", yt_outcome="failed") == 1


def test_nothing_is_recorded_after_the_end():
    with serve_metrics(port=0) as telemetry:
        everything()
        port = telemetry.port
    everything()
    with serve_metrics(port=port) as telemetry:
        assert not [name for name in scraped(telemetry) if name.startswith("yt_exactly_once")]
    telemetry.close()


def test_taken_port_is_an_error_with_its_address():
    with (
        serve_metrics(port=0) as telemetry,
        pytest.raises(ConfigError, match=f"localhost:{telemetry.port}"),
    ):
        serve_metrics(port=telemetry.port)


@pytest.fixture
def spans():
    """The spans that were finished so far."""
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    with enable_telemetry(tracer_provider=provider):
        yield exporter.get_finished_spans


def test_batch_is_a_span_with_its_attempts_and_steps(spans):
    """Steps follow each other up to the end of the batch."""
    everything()
    named = {}
    for span in spans():
        named.setdefault(span.name.removeprefix("yt_exactly_once."), []).append(span)
    assert {name: len(found) for name, found in named.items()} == {
        "attempt": 2,
        "look_up": 1,
        "compute": 1,
        "commit": 1,
        "batch": 1,
    }
    (batch,), (compute,), (commit,) = named["batch"], named["compute"], named["commit"]
    assert (batch.attributes["yt.batch"], batch.attributes["yt.outcome"]) == (7, "committed")
    assert [event.name for event in batch.events] == ["retry.scheduled", "commit.outcome_unknown"]
    assert {span.parent.span_id for span in (compute, commit)} == {batch.context.span_id}
    assert compute.end_time == commit.start_time
    assert commit.end_time == batch.end_time
    assert [span.status.is_ok for span in named["attempt"]] == [False, True]


def test_failed_batch_is_a_span_with_its_error(spans):
    with pytest.raises(ValueError, match="on purpose"), reported(emitter(**SINK)):
        raise ValueError("on purpose")
    (span,) = spans()
    assert (span.attributes["error.type"], span.status.description) == ("ValueError", "on purpose")


WITHOUT = """
import sys
sys.modules["opentelemetry"] = None
from yt_exactly_once import TransactionalSink, enable_telemetry, serve_metrics
from yt_exactly_once.errors import ConfigError
from yt_exactly_once.observability import Event, emitter
emitter(batch=1)(Event.BATCH_STARTED)
for switch_on in (enable_telemetry, serve_metrics):
    try:
        switch_on()
    except ConfigError as error:
        print(error.remedy)
"""


def test_without_the_extra_nothing_changes_and_the_error_says_what_to_install():
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT], capture_output=True, text=True, check=True
    )
    remedy = "Install the package with its extra 'telemetry' on the driver"
    assert done.stdout.splitlines() == [remedy] * 2


@pytest.fixture
def receiver(monkeypatch):
    """A receiver whose address this process knows, as a worker does; and what it delivered."""
    heard = []
    made = channel.Receiver("127.0.0.1", "127.0.0.1", lambda *told: heard.append(told))
    monkeypatch.setenv(channel.ADDRESS_VARIABLE, made.address)
    yield made, heard
    made.close()


def wait_for(heard, count):
    """Wait for the other thread."""
    for _ in range(1_000):
        if len(heard) >= count:
            return
        time.sleep(0.005)


def test_event_of_a_worker_reaches_the_driver(receiver):
    """With its fields; a long text is cut, and what is too long altogether is left out."""
    _, heard = receiver
    emit = emitter(queue="//q")
    emit(Event.SOURCE_ROWS_SKIPPED, rows=5, error="x" * 10_000, left={0: 1})
    emit(Event.SOURCE_LOOKED, **{f"field_{n}": "x" * 500 for n in range(20)})
    emit(Event.SOURCE_LOOKED, rows=1, seconds_behind=None)
    wait_for(heard, 2)
    assert heard == [
        ("source.rows_skipped", {"queue": "//q", "rows": 5, "error": "x" * 500, "left": {"0": 1}}),
        ("source.looked", {"queue": "//q", "rows": 1, "seconds_behind": None}),
    ]


def test_datagrams_of_strangers_are_ignored(receiver, monkeypatch):
    """None ends the thread: without the key a datagram is not even parsed."""
    made, heard = receiver
    host, port, key = made.address.split(" ")
    monkeypatch.setenv(channel.ADDRESS_VARIABLE, f"{host} {port} {'0' * len(key)}")
    emitter()(Event.SOURCE_LOOKED, rows=1)
    strange = channel._socket(os.getpid(), False)
    ours = key.encode() + b" "
    noise = (b"", b"\xff", b"[1, 2]", b"[" * 8_000, b"\xff " + b"[" * 7_000)
    for datagram in (*noise, ours, ours + b"\xff", ours + b"[1, 2, 3]", ours + b'["no.event", {}]'):
        strange.sendto(datagram, (host, int(port)))
    monkeypatch.setenv(channel.ADDRESS_VARIABLE, made.address)
    emitter()(Event.SOURCE_LOOKED, rows=2)
    wait_for(heard, 1)
    assert heard == [("source.looked", {"rows": 2})]


@pytest.mark.parametrize("address", ["", "nowhere.invalid 1 key", "127.0.0.1 x key", "::1 9 key"])
def test_worker_that_cannot_send_continues(address, monkeypatch):
    monkeypatch.setenv(channel.ADDRESS_VARIABLE, address)
    emitter()(Event.SOURCE_LOOKED, rows=1)


def test_closed_receiver_is_gone():
    made = channel.Receiver("127.0.0.1", "127.0.0.1", publish)
    made.close()
    assert not made._thread.is_alive()


def test_address_of_another_machine_is_refused():
    with pytest.raises(OSError, match="assign"):
        channel.Receiver("192.0.2.1", "192.0.2.1", publish)
