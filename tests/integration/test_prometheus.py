"""A real Prometheus scrapes a running pipeline: every series is there, and every alert fires on its cause.

The rules are those of the docs. Only their waits are cut short, since a test cannot wait for minutes;
`tests/unit/test_monitoring.py` tests these.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import time
import urllib.parse
import urllib.request
from pathlib import Path

import pytest

from tests.integration.streams import Heard, finish
from yt_exactly_once import Event, register_source, serve_metrics
from yt_exactly_once.observability import emitter
from yt_exactly_once.telemetry.metrics import Metric

pytestmark = pytest.mark.further

RULES = Path(__file__).parents[2] / "docs/monitoring/prometheus-rules.yml"
PATIENCE_SECONDS = 30


class Prometheus:
    """A Prometheus that scrapes one driver five times a second."""

    def __init__(self, folder: Path, target: int) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        rules = re.sub(r"for: \w+", "for: 0s", RULES.read_text(encoding="utf-8"))
        rules = re.sub(r"(progress_time_seconds) > 600", r"\1 > 1", rules)
        (folder / "rules.yml").write_text(rules, encoding="utf-8")
        config = {
            "global": {"scrape_interval": "200ms", "evaluation_interval": "200ms"},
            "rule_files": [str(folder / "rules.yml")],
            "scrape_configs": [
                {
                    "job_name": "yt_exactly_once",
                    "static_configs": [{"targets": [f"127.0.0.1:{target}"]}],
                }
            ],
        }
        (folder / "prometheus.yml").write_text(json.dumps(config), encoding="utf-8")
        self._command = [
            "prometheus",
            f"--config.file={folder}/prometheus.yml",
            f"--storage.tsdb.path={folder}/data",
            f"--web.listen-address=127.0.0.1:{self.port}",
            "--log.level=error",
        ]

    def __enter__(self):
        self._process = subprocess.Popen(self._command)
        return self

    def __exit__(self, *_):
        self._process.kill()
        self._process.wait()

    def ask(self, path, **parameters):
        url = f"http://127.0.0.1:{self.port}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        with urllib.request.urlopen(url) as answer:
            return json.load(answer)["data"]

    def query(self, expression):
        return [
            (sample["metric"], float(sample["value"][1]))
            for sample in self.ask("query", query=expression)["result"]
        ]

    def wait_for(self, expression):
        """Wait until an expression has a result."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < deadline:
            try:
                found = self.query(expression)
            except OSError:
                found = []  # it is starting
            if found:
                return found
            time.sleep(0.1)
        every = self.query('{__name__=~"yt_exactly_once_.*|ALERTS"}')
        raise AssertionError(f"no result of {expression} among {every}")


@pytest.fixture
def telemetry(spark):
    """The end point, for queries that are defined from now on."""
    with serve_metrics(spark, port=0, host="127.0.0.1") as telemetry:
        yield telemetry


@pytest.fixture
def prometheus(tmp_path, telemetry):
    if shutil.which("prometheus") is None:
        assert not os.environ.get("REQUIRE_PROMETHEUS"), "prometheus is not installed"
        pytest.skip("prometheus is not installed")
    folder = tmp_path / "prometheus"
    folder.mkdir()
    with Prometheus(folder, telemetry.port) as running:
        running.wait_for("up == 1")
        yield running


def firing(alert):
    return f'ALERTS{{alertname="{alert}",alertstate="firing"}}'


@pytest.fixture
def flow(stream, spark, telemetry):  # noqa: ARG001 - it comes before the source is registered
    """One row in fifty has no value, which the target requires."""
    flow = stream(rows=700, rows_per_partition=150)
    register_source(spark)  # again: the address of the end point is new
    flow.change = lambda frame: frame.selectExpr(
        "* except (value)", "if(id % 50 = 7, null, value) as value"
    )
    flow.options = {"dead_letter_path": f"{flow.target}_rejects"}
    return flow


@pytest.mark.nightly  # each alert is tried without a pipeline every time
def test_every_series_is_scraped_and_every_alert_fires_on_its_cause(flow, prometheus, telemetry):
    seen = []

    def pause_until_scraped(event, _fields):
        if event == Event.BATCH_COMPUTED and not seen:
            seen.extend(prometheus.wait_for("yt_exactly_once_rows_rejected_total == 0"))

    told = flow.run(act=pause_until_scraped)
    rows = f'{{yt_queue="{flow.queue.path}"}}'
    # The source runs in another process: its events came over the network.
    read = len(flow.queue.all_rows())
    prometheus.wait_for(f"yt_exactly_once_source_rows_read_total{rows} == {read}")
    prometheus.wait_for(f"yt_exactly_once_source_lag{rows} == 0")
    written = sum(fields["rows"] for fields in told.of(Event.BATCH_COMMITTED))
    prometheus.wait_for(
        f'yt_exactly_once_rows_written_total{{yt_target="{flow.target}"}} == {written}'
    )
    prometheus.wait_for(firing("YtRowsRejected"))

    flow.forget_last_batch()
    flow.run()
    prometheus.wait_for(firing("YtReplaySkipped"))

    flow.queue.append(100)
    flow.fail("EncodingError", dead_letter_path=None)
    ((labels, _),) = prometheus.wait_for(firing("YtQueryFailed"))
    ((stopped, _),) = prometheus.query(
        f'yt_exactly_once_query_stops_total{{yt_query="{labels["yt_query"]}",error_type!=""}}'
    )
    assert stopped["error_type"] == "EncodingError"
    prometheus.wait_for(firing("YtBatchFailed"))

    bring_about_the_others(prometheus)
    telemetry.close()
    prometheus.wait_for(firing("YtDriverDown"))
    fired = prometheus.query(
        'count by (alertname) (last_over_time(ALERTS{alertstate="firing"}[1h]))'
    )
    alerts = set(re.findall(r"- alert: (\w+)", RULES.read_text(encoding="utf-8")))
    assert {labels["alertname"] for labels, _ in fired} == alerts
    names = set(prometheus.ask("label/__name__/values"))
    assert {name for metric in Metric for name in metric.series} - names == set()


def bring_about_the_others(prometheus):
    """Emit what a source, a sink or Spark emits when it happens; twice, since a rate needs two values."""
    source = emitter(queue="//q", consumer="//c")
    sink = emitter(query="q", batch=1, target="//t", mode="transactional")
    task = emitter(target="//t")
    error = {"attempt": 1, "wait": 0.1, "reason": "ClusterUnavailableError", "error": ""}
    emitter(query="stuck", name="stuck", run="r")(Event.QUERY_STARTED)
    sink(Event.BATCH_STARTED)
    for each in (source, sink, task):
        each(Event.RETRY_SCHEDULED, **error)
    source(Event.SOURCE_LOOKED, rows=1, rows_behind=10, seconds_behind=1.0, partitions=1)
    prometheus.wait_for('yt_exactly_once_task_retries_total{yt_target="//t"} == 1')
    prometheus.wait_for('yt_exactly_once_source_rows_trimmed_total{yt_queue="//q"} == 0')
    source(Event.SOURCE_LOOKED, rows=1, rows_behind=900, seconds_behind=3_600.0, partitions=1)
    source(Event.SOURCE_ROWS_SKIPPED, partition=0, start=0, end=5, rows=5)
    source(Event.SOURCE_QUEUE_REPLACED)
    sink(Event.NOTE_FAILED, note="n", error="no disk")
    sink(Event.BATCHES_LEFT_OUT, first=3, last=4, rows=20)
    for attempt in range(100):
        sink(Event.RETRY_SCHEDULED, **error)
        sink(Event.COMMIT_OUTCOME_UNKNOWN, attempt=attempt, transaction="t", error="")
    for alert in (
        "YtQueryStuck",
        "YtSourceFarBehind",
        "YtSourceLagGrows",
        "YtRowsTrimmed",
        "YtQueueReplaced",
        "YtRowsLeftOut",
        "YtManyRetries",
        "YtCommitOutcomesUnknown",
        "YtNoteFailed",
    ):
        prometheus.wait_for(firing(alert))


def test_spark_shows_the_step_of_a_job_and_how_far_the_source_is_behind(stream, spark):
    """In the description of its jobs, and in the progress of the query."""
    flow = stream(rows=400, rows_per_partition=100, partitions=1)
    query = flow.start(flow.sink(Heard()))
    finish(query)
    jobs = spark.sparkContext._jsc.sc().statusStore().jobsList(None)
    described = [
        job.description().get()
        for job in (jobs.apply(index) for index in range(jobs.size()))
        if job.description().isDefined() and flow.target in job.description().get()
    ]
    assert len(described) == 4
    assert all(
        f"id = {query.id}" in text and text.endswith(f"yt_exactly_once: compute {flow.target}")
        for text in described
    )
    behind = [
        json.loads(source["latestOffset"])["behind"]["rows"]
        if isinstance(source["latestOffset"], str)
        else source["latestOffset"]["behind"]["rows"]
        for progress in query.recentProgress
        for source in progress["sources"]
    ]
    assert behind[:4] == [300, 200, 100, 0]
