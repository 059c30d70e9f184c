"""From events to metrics: one listener that records every event of the process."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from yt_exactly_once.observability import Event
from yt_exactly_once.telemetry import metrics
from yt_exactly_once.telemetry.metrics import Metric

if TYPE_CHECKING:
    from opentelemetry.metrics import Meter

_BOUNDARIES = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
"""Seconds. Those of OpenTelemetry are made for milliseconds."""

_OF_SINK = {"query": metrics.QUERY, "target": metrics.TARGET, "mode": metrics.MODE}
_OF_SOURCE = {"queue": metrics.QUEUE, "consumer": metrics.CONSUMER}
_OF_TASK = {"target": metrics.TARGET}
_OF_QUERY = {"query": metrics.QUERY, "name": metrics.NAME}

_COUNTERS_FROM_ZERO = (
    Metric.ROWS_WRITTEN,
    Metric.ROWS_REJECTED,
    Metric.ROWS_LEFT_OUT,
    Metric.BYTES_WRITTEN,
    Metric.ATTEMPTS,
    Metric.OUTCOMES_UNKNOWN,
    Metric.OUTCOMES_RESOLVED,
    Metric.NOTES_FAILED,
)
_OUTCOMES = ("committed", "replay", "empty", "failed")

Fields = dict[str, Any]


class Recorder:
    """A listener that records metrics; the wall clock counts seconds since 1970."""

    def __init__(self, meter: Meter, wall_clock: Callable[[], float] = time.time) -> None:
        self._instruments = {metric: _instrument(meter, metric) for metric in Metric}
        self._wall_clock = wall_clock
        self._seen: set[tuple[Any, ...]] = set()
        self._began: dict[tuple[Any, ...], float] = {}
        self._handlers: dict[str, Callable[[Fields], None]] = {
            Event.BATCH_STARTED: self._batch_started,
            Event.BATCH_COMMITTED: self._batch_committed,
            Event.BATCH_SKIPPED: lambda told: self._batch_ended(told, told["reason"]),
            Event.BATCH_FAILED: lambda told: self._batch_ended(told, "failed"),
            Event.ROWS_REJECTED: self._counting(Metric.ROWS_REJECTED, _OF_SINK, "rows"),
            Event.BATCHES_LEFT_OUT: self._counting(Metric.ROWS_LEFT_OUT, _OF_SINK, "rows"),
            Event.TRANSACTION_STARTED: self._counting(Metric.ATTEMPTS, _OF_SINK),
            Event.COMMIT_OUTCOME_UNKNOWN: self._counting(Metric.OUTCOMES_UNKNOWN, _OF_SINK),
            Event.COMMIT_OUTCOME_RESOLVED: self._counting(Metric.OUTCOMES_RESOLVED, _OF_SINK),
            Event.NOTE_FAILED: self._counting(Metric.NOTES_FAILED, _OF_SINK),
            Event.RETRY_SCHEDULED: self._retry_scheduled,
            Event.SOURCE_LOOKED: self._source_looked,
            Event.SOURCE_ROWS_SKIPPED: self._counting(Metric.SOURCE_TRIMMED, _OF_SOURCE, "rows"),
            Event.SOURCE_QUEUE_REPLACED: self._counting(Metric.SOURCE_REPLACED, _OF_SOURCE),
            Event.QUERY_STARTED: self._query_started,
            Event.QUERY_PROGRESSED: self._query_progressed,
            Event.QUERY_STOPPED: self._query_stopped,
        }

    def __call__(self, event: str, fields: Fields) -> None:
        """Record one event; see `Listener`."""
        handler = self._handlers.get(event)
        if handler is not None:
            handler(fields)

    def _put(self, metric: Metric, value: float, labels: Fields) -> None:
        self._instruments[metric](value, labels)

    def _counting(
        self, metric: Metric, names: dict[str, str], field: str | None = None
    ) -> Callable[[Fields], None]:
        def count(told: Fields) -> None:
            self._put(metric, 1 if field is None else told[field], _labels(told, names))

        return count

    def _batch_started(self, told: Fields) -> None:
        labels = _labels(told, _OF_SINK)
        self._began[_call(told)] = time.monotonic()
        key = tuple(labels.values())
        if key not in self._seen:
            # An increase from nothing to one is none for Prometheus, so the series begin at zero.
            self._seen.add(key)
            for metric in _COUNTERS_FROM_ZERO:
                self._put(metric, 0, labels)
            for outcome in _OUTCOMES:
                self._put(Metric.BATCHES, 0, {**labels, metrics.OUTCOME: outcome})

    def _batch_committed(self, told: Fields) -> None:
        labels = _labels(told, _OF_SINK)
        self._put(Metric.ROWS_WRITTEN, told["rows"], labels)
        self._put(Metric.BYTES_WRITTEN, told["bytes"], labels)
        self._put(Metric.COMMITTED_TIME, self._wall_clock(), labels)
        for step, seconds in told["seconds"].items():
            self._put(Metric.STEP_DURATION, seconds, {**labels, metrics.STEP: step})
        self._batch_ended(told, "committed")

    def _batch_ended(self, told: Fields, outcome: str) -> None:
        labels = {**_labels(told, _OF_SINK), metrics.OUTCOME: outcome}
        self._put(Metric.BATCHES, 1, labels)
        began = self._began.pop(_call(told), None)
        # A batch that is committed may still fail: its function did not wait for the sink.
        if began is not None:
            self._put(Metric.BATCH_DURATION, time.monotonic() - began, labels)

    def _retry_scheduled(self, told: Fields) -> None:
        error = {metrics.ERROR: told["reason"]}
        if "queue" in told:
            self._put(Metric.SOURCE_RETRIES, 1, _labels(told, _OF_SOURCE) | error)
        elif "batch" in told:
            self._put(Metric.RETRIES, 1, _labels(told, _OF_SINK) | error)
        else:
            self._put(Metric.TASK_RETRIES, 1, _labels(told, _OF_TASK) | error)

    def _source_looked(self, told: Fields) -> None:
        labels = _labels(told, _OF_SOURCE)
        key = tuple(labels.values())
        if key not in self._seen:
            self._seen.add(key)
            for metric in (Metric.SOURCE_TRIMMED, Metric.SOURCE_REPLACED):
                self._put(metric, 0, labels)
        self._put(Metric.SOURCE_ROWS, told["rows"], labels)
        self._put(Metric.SOURCE_LAG, told["rows_behind"], labels)
        if told["seconds_behind"] is not None:
            self._put(Metric.SOURCE_LAG_TIME, told["seconds_behind"], labels)

    def _query_started(self, told: Fields) -> None:
        labels = _labels(told, _OF_QUERY)
        self._put(Metric.QUERY_ACTIVE, 1, labels)
        self._put(Metric.QUERY_FAILED, 0, labels)
        self._query_progressed(told)

    def _query_progressed(self, told: Fields) -> None:
        self._put(Metric.QUERY_PROGRESS_TIME, self._wall_clock(), _labels(told, _OF_QUERY))

    def _query_stopped(self, told: Fields) -> None:
        labels = _labels(told, _OF_QUERY)
        error = {metrics.ERROR: told["reason"]} if "reason" in told else {}
        self._put(Metric.QUERY_ACTIVE, 0, labels)
        self._put(Metric.QUERY_FAILED, int(bool(error)), labels)
        self._put(Metric.QUERY_STOPS, 1, labels | error)


def _labels(told: Fields, names: dict[str, str]) -> Fields:
    return {label: str(told[name]) for name, label in names.items() if told.get(name) is not None}


def _call(told: Fields) -> tuple[Any, ...]:
    return told.get("query"), told.get("target"), told.get("batch")


def _instrument(meter: Meter, metric: Metric) -> Callable[[float, Fields], None]:
    known = metric.value
    match known.kind:
        case metrics.Kind.COUNTER:
            return meter.create_counter(known.name, known.unit, known.meaning).add
        case metrics.Kind.GAUGE:
            return meter.create_gauge(known.name, known.unit, known.meaning).set
        case metrics.Kind.HISTOGRAM:
            return meter.create_histogram(
                known.name,
                known.unit,
                known.meaning,
                explicit_bucket_boundaries_advisory=_BOUNDARIES,
            ).record
