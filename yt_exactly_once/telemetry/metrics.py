"""The table of metrics: every name, unit and label that this package reports.

Names and units follow the semantic conventions of OpenTelemetry. The number of time series is bounded by the
number of queries, targets and queues of the process; no label holds a batch number, a partition or a text.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, StrEnum
from functools import partial

QUERY = "yt.query"
NAME = "yt.query.name"
TARGET = "yt.target"
MODE = "yt.mode"
OUTCOME = "yt.outcome"
STEP = "yt.step"
QUEUE = "yt.queue"
CONSUMER = "yt.consumer"
ERROR = "error.type"

_SINK = (QUERY, TARGET, MODE)
_SOURCE = (QUEUE, CONSUMER)

LABELS = {
    QUERY: "id of the query, as in the file `metadata` of its checkpoint",
    NAME: "name of the query, if it has one",
    TARGET: "path of the first target",
    MODE: "delivery mode",
    OUTCOME: "`committed`, `replay` (skipped), `empty` (skipped) or `failed`",
    STEP: "`look_up`, `compute` or `commit`",
    QUEUE: "path of the queue",
    CONSUMER: "path of the consumer",
    ERROR: "class of the error",
}


class Kind(StrEnum):
    """How values of a metric add up."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


_PROMETHEUS_UNITS = {"s": "_seconds", "By": "_bytes"}


@dataclass(frozen=True)
class _Metric:
    kind: Kind
    short_name: str
    unit: str
    meaning: str
    labels: tuple[str, ...]

    @property
    def name(self) -> str:
        """Name for OpenTelemetry."""
        return f"yt_exactly_once.{self.short_name}"


_counter, _gauge, _histogram = (partial(_Metric, kind) for kind in Kind)


class Metric(Enum):
    """Every metric of the package."""

    BATCHES = _counter("batches", "{batch}", "Batches that ended", (*_SINK, OUTCOME))
    ROWS_WRITTEN = _counter(
        "rows.written", "{row}", "Rows of committed batches, rejected ones included", _SINK
    )
    ROWS_REJECTED = _counter(
        "rows.rejected", "{row}", "Rows that the target cannot take, before the commit", _SINK
    )
    ROWS_LEFT_OUT = _counter(
        "rows.left_out", "{row}", "Rows of the queues in batches that never came to the sink", _SINK
    )
    BYTES_WRITTEN = _counter(
        "io.written", "By", "Encoded rows of committed batches, without what was sent again", _SINK
    )
    ATTEMPTS = _counter("attempts", "{attempt}", "Transactions that began", _SINK)
    RETRIES = _counter(
        "retries", "{retry}", "Attempts that failed and are repeated", (*_SINK, ERROR)
    )
    OUTCOMES_UNKNOWN = _counter(
        "commits.unknown", "{commit}", "Commits whose answer was lost", _SINK
    )
    OUTCOMES_RESOLVED = _counter(
        "commits.resolved", "{commit}", "Commits that the ledger shows as applied", _SINK
    )
    NOTES_FAILED = _counter(
        "notes.failed", "{note}", "Notes that could not be written to the checkpoint", _SINK
    )
    BATCH_DURATION = _histogram("batch.duration", "s", "Time in the sink", (*_SINK, OUTCOME))
    STEP_DURATION = _histogram(
        "batch.step.duration", "s", "Time in a step of a committed batch", (*_SINK, STEP)
    )
    COMMITTED_TIME = _gauge(
        "batch.committed.time",
        "s",
        "When the last batch was committed, in seconds since 1970",
        _SINK,
    )
    SOURCE_ROWS = _counter(
        "source.rows.read", "{row}", "Rows of the batches that the source has planned", _SOURCE
    )
    SOURCE_LAG = _gauge(
        "source.lag",
        "{row}",
        "Rows of the queue after the newest batch, in all partitions",
        _SOURCE,
    )
    SOURCE_LAG_TIME = _gauge(
        "source.lag.time",
        "s",
        "Age of the first row after the newest batch, in the partition that is most behind",
        _SOURCE,
    )
    SOURCE_TRIMMED = _counter(
        "source.rows.trimmed",
        "{row}",
        "Rows that were trimmed before they were read, and passed over",
        _SOURCE,
    )
    SOURCE_REPLACED = _counter(
        "source.replacements",
        "{queue}",
        "Queues that were recreated and are read from their first row",
        _SOURCE,
    )
    SOURCE_RETRIES = _counter(
        "source.retries",
        "{retry}",
        "Requests of the source that failed and are repeated",
        (*_SOURCE, ERROR),
    )
    TASK_RETRIES = _counter(
        "task.retries",
        "{retry}",
        "Requests of writing tasks that failed and are repeated",
        (TARGET, ERROR),
    )
    QUERY_ACTIVE = _gauge("query.active", "{query}", "1 while the query runs", (QUERY, NAME))
    QUERY_FAILED = _gauge(
        "query.failed",
        "{query}",
        "1 after a run that ended with an error, until the next one begins",
        (QUERY, NAME),
    )
    QUERY_STOPS = _counter(
        "query.stops",
        "{run}",
        "Runs that ended; with an error they have its class",
        (QUERY, NAME, ERROR),
    )
    QUERY_PROGRESS_TIME = _gauge(
        "query.progress.time",
        "s",
        "When the query last ended a batch or had nothing to do, in seconds since 1970",
        (QUERY, NAME),
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


def label_of(attribute: str) -> str:
    """Return the label of an attribute in Prometheus."""
    return attribute.replace(".", "_")
