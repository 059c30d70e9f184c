"""The table of metrics: every name, unit and label that this package reports.

Names and units follow the semantic conventions of OpenTelemetry. The number of time series is bounded by the
number of queries, targets and queues of the process; no label holds a batch number, a partition or a text.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, StrEnum
from functools import partial

OF_SINK = ("yt.query", "yt.target", "yt.mode")
OF_SOURCE = ("yt.queue", "yt.consumer")
_LABELS_OF = {"source": OF_SOURCE, "query": ("yt.query", "yt.query.name"), "task": ("yt.target",)}
_OUTCOME, _STEP, _ERROR = "yt.outcome", "yt.step", "error.type"

LABELS = {
    "yt.query": "id of the query, as in the file `metadata` of its checkpoint",
    "yt.query.name": "name of the query, if it has one",
    "yt.target": "path of the first target",
    "yt.mode": "delivery mode",
    _OUTCOME: "`committed`, `replay` (skipped), `empty` (skipped) or `failed`",
    _STEP: "`look_up`, `compute` or `commit`",
    "yt.queue": "path of the queue",
    "yt.consumer": "path of the consumer",
    _ERROR: "class of the error",
}

FIELDS = {
    **{label: label.removeprefix("yt.") for label in LABELS},
    "yt.query.name": "name",
    _ERROR: "reason",
}
"""Which field of an event each label has."""


class Kind(StrEnum):
    """How values of a metric add up."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


_PROMETHEUS_UNITS = {"s": "_seconds", "By": "_bytes"}


@dataclass(frozen=True)
class _Metric:
    kind: Kind
    name: str
    unit: str
    meaning: str
    labels: tuple[str, ...]


def _metric(kind: Kind, short_name: str, unit: str, meaning: str, *more: str) -> _Metric:
    """Return a metric of what its name begins with: a source, a query or a task, and otherwise a sink."""
    labels = _LABELS_OF.get(short_name.partition(".")[0], OF_SINK)
    return _Metric(kind, f"yt_exactly_once.{short_name}", unit, meaning, (*labels, *more))


_counter, _gauge, _histogram = (partial(_metric, kind) for kind in Kind)


class Metric(Enum):
    """Every metric of the package."""

    BATCHES = _counter("batches", "{batch}", "Batches that ended", _OUTCOME)
    ROWS_WRITTEN = _counter(
        "rows.written", "{row}", "Rows of committed batches, rejected ones included"
    )
    ROWS_REJECTED = _counter(
        "rows.rejected", "{row}", "Rows that the target cannot take, before the commit"
    )
    ROWS_LEFT_OUT = _counter(
        "rows.left_out", "{row}", "Rows of the queues in batches that never came to the sink"
    )
    BYTES_WRITTEN = _counter(
        "io.written", "By", "Encoded rows of committed batches, without what was sent again"
    )
    ATTEMPTS = _counter("attempts", "{attempt}", "Transactions that began")
    RETRIES = _counter("retries", "{retry}", "Attempts that failed and are repeated", _ERROR)
    OUTCOMES_UNKNOWN = _counter("commits.unknown", "{commit}", "Commits whose answer was lost")
    OUTCOMES_RESOLVED = _counter(
        "commits.resolved", "{commit}", "Commits that the ledger shows as applied"
    )
    NOTES_FAILED = _counter(
        "notes.failed", "{note}", "Notes that could not be written to the checkpoint"
    )
    BATCH_DURATION = _histogram("batch.duration", "s", "Time in the sink", _OUTCOME)
    STEP_DURATION = _histogram(
        "batch.step.duration", "s", "Time in a step of a committed batch", _STEP
    )
    COMMITTED_TIME = _gauge(
        "batch.committed.time", "s", "When the last batch was committed, in seconds since 1970"
    )
    SOURCE_ROWS = _counter(
        "source.rows.read", "{row}", "Rows of the batches that the source has planned"
    )
    SOURCE_LAG = _gauge(
        "source.lag", "{row}", "Rows of the queue after the newest batch, in all partitions"
    )
    SOURCE_LAG_TIME = _gauge(
        "source.lag.time",
        "s",
        "Age of the first row after the newest batch, in the partition that is most behind",
    )
    SOURCE_TRIMMED = _counter(
        "source.rows.trimmed",
        "{row}",
        "Rows that were trimmed before they were read, and passed over",
    )
    SOURCE_REPLACED = _counter(
        "source.replacements",
        "{queue}",
        "Queues that were recreated and are read from their first row",
    )
    SOURCE_RETRIES = _counter(
        "source.retries", "{retry}", "Requests of the source that failed and are repeated", _ERROR
    )
    TASK_RETRIES = _counter(
        "task.retries", "{retry}", "Requests of writing tasks that failed and are repeated", _ERROR
    )
    QUERY_ACTIVE = _gauge("query.active", "{query}", "1 while the query runs")
    QUERY_FAILED = _gauge(
        "query.failed",
        "{query}",
        "1 after a run that ended with an error, until the next one begins",
    )
    QUERY_STOPS = _counter(
        "query.stops", "{run}", "Runs that ended; with an error they have its class", _ERROR
    )
    QUERY_PROGRESS_TIME = _gauge(
        "query.progress.time",
        "s",
        "When the query last ended a batch or had nothing to do, in seconds since 1970",
    )
    QUERY_LAG = _gauge(
        "query.lag", "{row}", "Offsets of its Kafka topics after the last batch, in all partitions"
    )

    @property
    def series(self) -> tuple[str, ...]:
        """Names of its time series in Prometheus."""
        unit = _PROMETHEUS_UNITS.get(self.value.unit, "")
        name = self.value.name.replace(".", "_") + unit
        suffixes = {
            Kind.COUNTER: ("_total",),
            Kind.GAUGE: ("",),
            Kind.HISTOGRAM: ("_bucket", "_count", "_sum"),
        }
        return tuple(name + suffix for suffix in suffixes[self.value.kind])
