"""From events to metrics: one listener that records every event of the process."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from yt_exactly_once.observability import Event
from yt_exactly_once.telemetry.metrics import FIELDS, OF_SINK, OF_SOURCE, Kind, Metric

if TYPE_CHECKING:
    from opentelemetry.metrics import Meter

_BOUNDARIES = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
"""Seconds. Those of OpenTelemetry are made for milliseconds."""

_OUTCOMES = {Event.BATCH_COMMITTED: "committed", Event.BATCH_FAILED: "failed"}
"""A batch that is skipped has its reason instead."""
_SKIPS = ("replay", "empty")
_ENDED: dict[Metric, int | str] = {Metric.BATCHES: 1, Metric.BATCH_DURATION: "lasted"}
_TAKEN: Mapping[str, Mapping[Metric, int | str]] = {
    Event.BATCH_COMMITTED: {
        Metric.ROWS_WRITTEN: "rows",
        Metric.BYTES_WRITTEN: "bytes",
        Metric.COMMITTED_TIME: "now",
        **_ENDED,
    },
    Event.BATCH_SKIPPED: _ENDED,
    Event.BATCH_FAILED: _ENDED,
    Event.ROWS_REJECTED: {Metric.ROWS_REJECTED: "rows"},
    Event.BATCHES_LEFT_OUT: {Metric.ROWS_LEFT_OUT: "rows"},
    Event.TRANSACTION_STARTED: {Metric.ATTEMPTS: 1},
    Event.COMMIT_OUTCOME_UNKNOWN: {Metric.OUTCOMES_UNKNOWN: 1},
    Event.COMMIT_OUTCOME_RESOLVED: {Metric.OUTCOMES_RESOLVED: 1},
    Event.NOTE_FAILED: {Metric.NOTES_FAILED: 1},
    Event.SOURCE_LOOKED: {
        Metric.SOURCE_ROWS: "rows",
        Metric.SOURCE_LAG: "rows_behind",
        Metric.SOURCE_LAG_TIME: "seconds_behind",
    },
    Event.SOURCE_ROWS_SKIPPED: {Metric.SOURCE_TRIMMED: "rows"},
    Event.SOURCE_QUEUE_REPLACED: {Metric.SOURCE_REPLACED: 1},
    Event.QUERY_STARTED: {
        Metric.QUERY_ACTIVE: 1,
        Metric.QUERY_FAILED: 0,
        Metric.QUERY_PROGRESS_TIME: "now",
    },
    Event.QUERY_PROGRESSED: {Metric.QUERY_PROGRESS_TIME: "now", Metric.QUERY_LAG: "rows_behind"},
    Event.QUERY_STOPPED: {
        Metric.QUERY_ACTIVE: 0,
        Metric.QUERY_FAILED: "has_failed",
        Metric.QUERY_STOPS: 1,
    },
}
"""What each metric gets from an event: a number, or a field, of the event or made here."""

Fields = Mapping[str, Any]


class Recorder:
    """A listener that records metrics."""

    def __init__(self, meter: Meter) -> None:
        self._instruments = {metric: _instrument(meter, metric) for metric in Metric}
        self._seen: set[tuple[Any, ...]] = set()
        self._began: dict[tuple[Any, ...], float] = {}

    def __call__(self, event: str, fields: dict[str, Any]) -> None:
        """Record one event; see `Listener`."""
        known = {
            "rows_behind": None,
            **fields,
            "now": time.time(),
            "has_failed": int("reason" in fields),
        }
        call = tuple(fields.get(name) for name in ("query", "target", "batch"))
        if event == Event.BATCH_STARTED:
            self._began[call] = time.monotonic()
            self._begin_at_zero(OF_SINK, known)
        elif event == Event.SOURCE_LOOKED:
            self._begin_at_zero(OF_SOURCE, known)
        elif event in {*_OUTCOMES, Event.BATCH_SKIPPED}:
            known["outcome"] = _OUTCOMES.get(Event(event)) or fields["reason"]
            # A batch that is committed may still fail: its function did not wait for the sink.
            began = self._began.pop(call, None)
            known["lasted"] = None if began is None else time.monotonic() - began
        taken = {_retried(fields): 1} if event == Event.RETRY_SCHEDULED else _TAKEN.get(event, {})
        for metric, value in taken.items():
            self._put(metric, known[value] if isinstance(value, str) else value, known)
        if event == Event.BATCH_COMMITTED:
            for step, seconds in fields["seconds"].items():
                self._put(Metric.STEP_DURATION, seconds, {**known, "step": step})

    def _begin_at_zero(self, labels: tuple[str, ...], known: Fields) -> None:
        """Show what has not happened: an increase from nothing to one is none for Prometheus."""
        key = tuple(known.get(FIELDS[label]) for label in labels)
        if key in self._seen:
            return
        self._seen.add(key)
        for metric in Metric:
            if metric.value.kind is Kind.COUNTER and metric.value.labels == labels:
                self._put(metric, 0, known)
        if labels == OF_SINK:
            for outcome in (*_OUTCOMES.values(), *_SKIPS):
                self._put(Metric.BATCHES, 0, {**known, "outcome": outcome})

    def _put(self, metric: Metric, value: float | None, known: Fields) -> None:
        if value is not None:
            given = {label: known.get(FIELDS[label]) for label in metric.value.labels}
            labels = {label: str(one) for label, one in given.items() if one is not None}
            self._instruments[metric](value, labels)


def _retried(known: Fields) -> Metric:
    if "queue" in known:
        return Metric.SOURCE_RETRIES
    return Metric.RETRIES if "batch" in known else Metric.TASK_RETRIES


def _instrument(meter: Meter, metric: Metric) -> Callable[[float, dict[str, str]], None]:
    known = metric.value
    described = (known.name, known.unit, known.meaning)
    match known.kind:
        case Kind.COUNTER:
            return meter.create_counter(*described).add
        case Kind.GAUGE:
            return meter.create_gauge(*described).set
        case Kind.HISTOGRAM:
            return meter.create_histogram(
                *described, explicit_bucket_boundaries_advisory=_BOUNDARIES
            ).record
