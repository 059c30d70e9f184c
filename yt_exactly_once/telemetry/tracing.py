"""From events to traces: one span per batch, and inside it one per step and per attempt."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from opentelemetry.trace import StatusCode, set_span_in_context

from yt_exactly_once.observability import Event
from yt_exactly_once.telemetry.metrics import FIELDS, OF_SINK

if TYPE_CHECKING:
    from opentelemetry.trace import Span, Tracer

_ATTRIBUTES = {FIELDS[label]: label for label in (*OF_SINK, "error.type")} | {
    name: f"yt.{name}"
    for name in ("batch", "rows", "bytes", "attempts", "attempt", "transaction", "wait")
}
_NANOSECONDS = 1_000_000_000


@dataclass
class _Batch:
    """A batch on its way, and the open spans of its transactions, by id."""

    span: Span
    attempts: dict[str, Span] = field(default_factory=dict)


class Tracing:
    """A listener that records traces; `now` counts nanoseconds since 1970."""

    def __init__(self, tracer: Tracer, now: Callable[[], int] = time.time_ns) -> None:
        self._tracer = tracer
        self._now = now
        self._batches: dict[tuple[Any, ...], _Batch] = {}

    def __call__(self, event: str, fields: dict[str, Any]) -> None:
        """Record one event; see `Listener`."""
        if "batch" not in fields or "target" not in fields:
            return
        call = fields.get("query"), fields["target"], fields["batch"]
        if event == Event.BATCH_STARTED:
            span = self._tracer.start_span(
                "yt_exactly_once.batch", attributes=_attributes(fields), start_time=self._now()
            )
            self._batches[call] = _Batch(span)
            return
        batch = self._batches.get(call)
        if batch is None:
            return
        if event in {Event.BATCH_COMMITTED, Event.BATCH_SKIPPED, Event.BATCH_FAILED}:
            del self._batches[call]
            self._end(batch, event, fields)
        elif event == Event.TRANSACTION_STARTED:
            batch.attempts[fields["transaction"]] = self._child(
                batch, "yt_exactly_once.attempt", self._now(), fields
            )
        elif event in {Event.TRANSACTION_COMMITTED, Event.TRANSACTION_ABORTED}:
            attempt = batch.attempts.pop(fields["transaction"], None)
            if attempt is not None:
                if event == Event.TRANSACTION_ABORTED:
                    attempt.set_status(StatusCode.ERROR)
                attempt.end(self._now())
        elif event in {Event.RETRY_SCHEDULED, Event.COMMIT_OUTCOME_UNKNOWN}:
            batch.span.add_event(event, _attributes(fields), self._now())

    def _end(self, batch: _Batch, event: str, fields: dict[str, Any]) -> None:
        end = self._now()
        for attempt in batch.attempts.values():
            attempt.end(end)
        if event == Event.BATCH_COMMITTED:
            self._steps(batch, fields["seconds"], end)
        batch.span.set_attributes(_attributes(fields))
        outcome = {Event.BATCH_COMMITTED: "committed", Event.BATCH_FAILED: "failed"}
        batch.span.set_attribute("yt.outcome", outcome.get(Event(event), fields.get("reason", "")))
        if event == Event.BATCH_FAILED:
            batch.span.set_status(StatusCode.ERROR, fields["error"])
        batch.span.end(end)

    def _steps(self, batch: _Batch, seconds: dict[str, float], end: int) -> None:
        """Record the steps, which followed each other up to the end of the batch."""
        for step, lasted in reversed(seconds.items()):
            start = end - int(lasted * _NANOSECONDS)
            self._child(batch, f"yt_exactly_once.{step}", start, {}).end(end)
            end = start

    def _child(self, batch: _Batch, name: str, start: int, fields: dict[str, Any]) -> Span:
        return self._tracer.start_span(
            name,
            context=set_span_in_context(batch.span),
            attributes=_attributes(fields),
            start_time=start,
        )


def _attributes(fields: dict[str, Any]) -> dict[str, Any]:
    return {label: fields[name] for name, label in _ATTRIBUTES.items() if name in fields}
