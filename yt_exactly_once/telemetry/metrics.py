"""The table of metrics: every name, unit and label that this package reports.

Names and units follow the semantic conventions of OpenTelemetry. The number of time series is bounded by the
number of queries, targets and queues of the process; no label holds a batch number, a partition or a text.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, StrEnum

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
    name: str
    kind: Kind
    unit: str
    meaning: str
    labels: tuple[str, ...]


class Metric(Enum):
    """Every metric of the package."""

    BATCHES = _Metric(
        "yt_exactly_once.batches", Kind.COUNTER, "{batch}", "Batches that ended", (*_SINK, OUTCOME)
    )
    ROWS_WRITTEN = _Metric(
        "yt_exactly_once.rows.written",
        Kind.COUNTER,
        "{row}",
        "Rows of committed batches, rejected ones included",
        _SINK,
    )
    ROWS_REJECTED = _Metric(
        "yt_exactly_once.rows.rejected",
        Kind.COUNTER,
        "{row}",
        "Rows that the target cannot take, before the commit",
        _SINK,
    )
    ROWS_LEFT_OUT = _Metric(
        "yt_exactly_once.rows.left_out",
        Kind.COUNTER,
        "{row}",
        "Rows of the queues in batches that never came to the sink",
        _SINK,
    )
    BYTES_WRITTEN = _Metric(
        "yt_exactly_once.io.written",
        Kind.COUNTER,
        "By",
        "Encoded rows of committed batches, without what was sent again",
        _SINK,
    )
    ATTEMPTS = _Metric(
        "yt_exactly_once.attempts", Kind.COUNTER, "{attempt}", "Transactions that began", _SINK
    )
    RETRIES = _Metric(
        "yt_exactly_once.retries",
        Kind.COUNTER,
        "{retry}",
        "Attempts that failed and are repeated",
        (*_SINK, ERROR),
    )
    OUTCOMES_UNKNOWN = _Metric(
        "yt_exactly_once.commits.unknown",
        Kind.COUNTER,
        "{commit}",
        "Commits whose answer was lost",
        _SINK,
    )
    OUTCOMES_RESOLVED = _Metric(
        "yt_exactly_once.commits.resolved",
        Kind.COUNTER,
        "{commit}",
        "Commits that the ledger shows as applied",
        _SINK,
    )
    NOTES_FAILED = _Metric(
        "yt_exactly_once.notes.failed",
        Kind.COUNTER,
        "{note}",
        "Notes that could not be written to the checkpoint",
        _SINK,
    )
    BATCH_DURATION = _Metric(
        "yt_exactly_once.batch.duration",
        Kind.HISTOGRAM,
        "s",
        "Time in the sink",
        (*_SINK, OUTCOME),
    )
    STEP_DURATION = _Metric(
        "yt_exactly_once.batch.step.duration",
        Kind.HISTOGRAM,
        "s",
        "Time in a step of a committed batch",
        (*_SINK, STEP),
    )
    COMMITTED_TIME = _Metric(
        "yt_exactly_once.batch.committed.time",
        Kind.GAUGE,
        "s",
        "When the last batch was committed, in seconds since 1970",
        _SINK,
    )
    SOURCE_ROWS = _Metric(
        "yt_exactly_once.source.rows.read",
        Kind.COUNTER,
        "{row}",
        "Rows of the batches that the source has planned",
        _SOURCE,
    )
    SOURCE_LAG = _Metric(
        "yt_exactly_once.source.lag",
        Kind.GAUGE,
        "{row}",
        "Rows of the queue after the newest batch, in all partitions",
        _SOURCE,
    )
    SOURCE_LAG_TIME = _Metric(
        "yt_exactly_once.source.lag.time",
        Kind.GAUGE,
        "s",
        "Age of the first row after the newest batch, in the partition that is most behind",
        _SOURCE,
    )
    SOURCE_TRIMMED = _Metric(
        "yt_exactly_once.source.rows.trimmed",
        Kind.COUNTER,
        "{row}",
        "Rows that were trimmed before they were read, and passed over",
        _SOURCE,
    )
    SOURCE_REPLACED = _Metric(
        "yt_exactly_once.source.replacements",
        Kind.COUNTER,
        "{queue}",
        "Queues that were recreated and are read from their first row",
        _SOURCE,
    )
    SOURCE_RETRIES = _Metric(
        "yt_exactly_once.source.retries",
        Kind.COUNTER,
        "{retry}",
        "Requests of the source that failed and are repeated",
        (*_SOURCE, ERROR),
    )
    TASK_RETRIES = _Metric(
        "yt_exactly_once.task.retries",
        Kind.COUNTER,
        "{retry}",
        "Requests of writing tasks that failed and are repeated",
        (TARGET, ERROR),
    )
    QUERY_ACTIVE = _Metric(
        "yt_exactly_once.query.active",
        Kind.GAUGE,
        "{query}",
        "1 while the query runs",
        (QUERY, NAME),
    )
    QUERY_FAILED = _Metric(
        "yt_exactly_once.query.failed",
        Kind.GAUGE,
        "{query}",
        "1 after a run that ended with an error, until the next one begins",
        (QUERY, NAME),
    )
    QUERY_STOPS = _Metric(
        "yt_exactly_once.query.stops",
        Kind.COUNTER,
        "{run}",
        "Runs that ended; with an error they have its class",
        (QUERY, NAME, ERROR),
    )
    QUERY_PROGRESS_TIME = _Metric(
        "yt_exactly_once.query.progress.time",
        Kind.GAUGE,
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
