"""From events to lineage: one OpenLineage run per batch, with what it has read and written.

Spark's own integration sees neither side of a batch in `foreachBatch`.
"""

from __future__ import annotations

import queue
import threading
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from uuid import NAMESPACE_URL, UUID, uuid4, uuid5

import attr
from openlineage.client.event_v2 import InputDataset, Job, OutputDataset, Run, RunEvent, RunState
from openlineage.client.facet_v2 import (
    InputDatasetFacet,
    error_message_run,
    job_type_job,
    output_statistics_output_dataset,
    parent_run,
)

from yt_exactly_once.errors import without_secrets
from yt_exactly_once.observability import Event, emitter
from yt_exactly_once.version import VERSION

if TYPE_CHECKING:
    from openlineage.client import OpenLineageClient

PRODUCER = f"https://pypi.org/project/yt-exactly-once/{VERSION}"

MOST_WAITING = 1_000
"""Events that wait for the client; more are dropped, for a batch never waits for lineage."""

_CLOSE_SECONDS = 10.0

_ENDED = {
    Event.BATCH_COMMITTED: RunState.COMPLETE,
    Event.BATCH_SKIPPED: RunState.COMPLETE,
    Event.BATCH_FAILED: RunState.FAIL,
}


@attr.define
class OffsetRangesFacet(InputDatasetFacet):
    """Which offsets of an input a batch has read.

    Attributes:
        consumer: path of the consumer; empty without one.
        partitions: each with its number, and the first and the last offset, exclusive.
    """

    consumer: str = attr.field(default="")
    partitions: list[dict[str, int | None]] = attr.field(factory=list)


@dataclass
class _Batch:
    run: str
    inputs: list[dict[str, Any]] = field(default_factory=list)
    outputs: dict[str, int] = field(default_factory=dict)


class Lineage:
    """A listener that turns batches into OpenLineage's run events.

    Events go through a thread of its own, so that no batch waits for the client.

    Args:
        client: sends the events.
        namespace: of the jobs.
        cluster: name of the targets' cluster, for the namespace of their datasets.
        kafka: `host:port` of the broker, for the namespace of topics.
    """

    def __init__(self, client: OpenLineageClient, namespace: str, cluster: str, kafka: str) -> None:
        self._client = client
        self._namespace = namespace
        self._cluster = f"ytsaurus://{cluster}"
        self._kafka = f"kafka://{kafka}"
        self._batches: dict[tuple[Any, ...], _Batch] = {}
        self._names: dict[str, str] = {}
        self._waiting: queue.Queue[RunEvent | None] = queue.Queue(MOST_WAITING)
        self._has_failed = False
        self._thread = threading.Thread(target=self._send_all, name="lineage", daemon=True)
        self._thread.start()

    def __call__(self, event: str, fields: dict[str, Any]) -> None:
        """Record one event; see `Listener`."""
        if event == Event.QUERY_STARTED and fields.get("name"):
            self._names[fields["query"]] = fields["name"]
        call = tuple(fields.get(name) for name in ("query", "target", "batch"))
        if None in call:
            return
        if event == Event.BATCH_STARTED:
            batch = self._batches[call] = _Batch(str(uuid4()))
            self._put(RunState.START, batch, fields)
        elif event == Event.LEDGER_RECORDED and call in self._batches:
            self._batches[call].inputs = fields["inputs"]
            self._batches[call].outputs = fields["outputs"]
        elif event in _ENDED and call in self._batches:
            batch = self._batches.pop(call)
            if event != Event.BATCH_COMMITTED:
                batch.outputs = {}
            self._put(_ENDED[Event(event)], batch, fields)

    def close(self) -> None:
        """Send what waits, for a few seconds at most."""
        try:
            self._waiting.put(None, timeout=_CLOSE_SECONDS)
            self._thread.join(_CLOSE_SECONDS)
        except queue.Full:
            self._report("the client is too slow")

    def _put(self, state: RunState, batch: _Batch, fields: dict[str, Any]) -> None:
        query = fields["query"]
        name = self._names.get(query, fields["target"])
        facets: dict[str, Any] = {
            "parent": parent_run.ParentRunFacet(
                parent_run.Run(_run_id(query)), parent_run.Job(self._namespace, name)
            )
        }
        if state is RunState.FAIL:
            text = without_secrets(f"{fields['reason']}: {fields['error']}")
            facets["errorMessage"] = error_message_run.ErrorMessageRunFacet(text, "python")
        kind = job_type_job.JobTypeJobFacet("STREAMING", "SPARK", "MICRO_BATCH")
        made = RunEvent(
            eventType=state,
            eventTime=datetime.now(UTC).isoformat(),
            run=Run(batch.run, facets),
            job=Job(self._namespace, f"{name}.batch", {"jobType": kind}),
            inputs=[self._input(one) for one in batch.inputs],
            outputs=[self._output(path, rows) for path, rows in batch.outputs.items()],
            producer=PRODUCER,
        )
        try:
            self._waiting.put_nowait(made)
        except queue.Full:
            self._report("the client is too slow")

    def _input(self, one: dict[str, Any]) -> InputDataset:
        partitions = [
            {"partition": int(number), "start": start, "end": end}
            for number, (start, end) in one["ranges"].items()
        ]
        ranges = OffsetRangesFacet(one.get("consumer", ""), partitions, producer=PRODUCER)
        facets: dict[str, Any] = {"ytExactlyOnce_offsetRanges": ranges}
        if "topic" in one:
            return InputDataset(self._kafka, one["topic"], inputFacets=facets)
        return InputDataset(f"ytsaurus://{one['cluster']}", one["queue"], inputFacets=facets)

    def _output(self, path: str, rows: int) -> OutputDataset:
        statistics = output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(
            rowCount=rows, producer=PRODUCER
        )
        return OutputDataset(self._cluster, path, outputFacets={"outputStatistics": statistics})

    def _send_all(self) -> None:
        while (made := self._waiting.get()) is not None:
            try:
                self._client.emit(made)
            except Exception as error:  # noqa: BLE001 - lineage must not stop a pipeline
                self._report(without_secrets(str(error)))

    def _report(self, why: str) -> None:
        """Emit the first failure."""
        if not self._has_failed:
            self._has_failed = True
            emitter()(Event.LINEAGE_FAILED, error=why)


def _run_id(query: str) -> str:
    """Return the id of a query, which is a UUID; of a batch job one that is made of its name."""
    try:
        return str(UUID(query))
    except ValueError:
        return str(uuid5(NAMESPACE_URL, query))
