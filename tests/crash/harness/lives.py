"""The parent's side: start a child, listen until it ends or stops, and look at what it left behind."""

import os
import signal
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, Self

from yt.wrapper import YtClient

from tests.crash.crash_points import CrashPoint
from tests.crash.harness.plan import Plan, QueryPlan
from tests.flows import QUERIES, Entry, Query, Queue, Rows, differences, ledger_entries
from yt_exactly_once.local import LocalCluster
from yt_exactly_once.testing.child import Child

PATIENCE_SECONDS = 120.0
"""Longest silence of a child that is doing well."""

_A_MOMENT = 0.01

_MODULE = "tests.crash.harness.child"
_ENDINGS = frozenset({"finished", "failed"})


class Life(AbstractContextManager["Life"]):
    """One child, from its start to its end, with everything it told."""

    def __init__(self, plan: Plan, log: Path) -> None:
        self.events: list[dict[str, Any]] = []
        self._child = Child(_MODULE, lambda report: replace(plan, report=report).dump(), log)

    def __exit__(self, *_: object) -> None:
        self._child.close()

    def listen(self, until: str = "", count: int = 1) -> str:
        """Take events until one of that name came so often, or the child ends; return the last one's name."""
        left = count
        while True:
            try:
                event = self._child.next_event(PATIENCE_SECONDS)
            except EOFError:
                return self.events[-1]["event"] if self.events else ""
            if event is None:
                raise self._child.failure(f"Nothing heard for {PATIENCE_SECONDS:g} s")
            self.events.append(event)
            left -= event["event"] == until
            if event["event"] in _ENDINGS or left == 0:
                return str(event["event"])

    def has_ended(self) -> bool:
        """Take what it has told until now; return whether its queries have ended."""
        try:
            while (event := self._child.next_event(_A_MOMENT)) is not None:
                self.events.append(event)
        except EOFError:
            return True
        return any(event["event"] in _ENDINGS for event in self.events)

    def failure(self, what: str) -> AssertionError:
        """Return an error that shows what its queries failed with, or the end of its log."""
        return AssertionError(f"{what}: {self.error}" if self.error else self._child.failure(what))

    def wait_until_stopped(self) -> None:
        _, status = os.waitpid(self._child.pid, os.WUNTRACED)
        if not os.WIFSTOPPED(status):
            raise self._child.failure("The child ended, and was to stop")

    def kill(self) -> None:
        os.killpg(self._child.pid, signal.SIGKILL)

    def wake(self) -> None:
        os.killpg(self._child.pid, signal.SIGCONT)

    @property
    def error(self) -> str:
        """What it failed with; empty when it did not."""
        return next((event["error"] for event in self.events if event["event"] == "failed"), "")

    def error_of(self, target: str) -> str:
        """Return what a query failed with; empty when it did not."""
        failed = [event for event in self.events if event["event"] == "query.failed"]
        return next((event["error"] for event in failed if event["query"] == target), "")

    def told(self, event: str, target: str) -> list[dict[str, Any]]:
        """Return the fields of the events of one name of one query."""
        return [
            told["fields"]
            for told in self.events
            if told["event"] == event and told["query"] == target
        ]


class Cell(NamedTuple):
    """A kind of query, of target, and of writing."""

    kind: str
    is_sorted: bool
    mode: str = "transactional"

    def __str__(self) -> str:
        return f"{self.mode}-{self.kind}-{'sorted' if self.is_sorted else 'ordered'}"


@dataclass(frozen=True)
class Remains:
    """What a target and its ledger hold while no driver lives.

    Attributes:
        rows: of the target, sorted.
    """

    rows: Rows
    entry: Entry | None
    stored: dict[int, int]


@dataclass
class Subject:
    """One query under test: its tables, its checkpoint, and what must be in its target.

    Attributes:
        queue: what it reads, with rows that are known.
        plan: of its query, without a crash.
        rows_per_partition: rows of a batch from each queue partition.
    """

    client: YtClient
    queue: Queue
    cell: Cell
    plan: QueryPlan
    rows_per_partition: int

    @classmethod
    def create(
        cls,
        queue: Queue,
        cell: Cell,
        checkpoints: Path | str,
        *,
        rows_per_partition: int,
        tablets: int | None = None,
    ) -> Self:
        """Create its consumer and its target."""
        target = f"{queue.path}_{cell}"
        QUERIES[cell.kind].create_target(
            queue.client, target, is_sorted=cell.is_sorted, tablets=tablets or len(queue.rows)
        )
        plan = QueryPlan(
            kind=cell.kind,
            queue=queue.path,
            consumer=queue.add_consumer(f"{target}_consumer"),
            target=target,
            checkpoint=f"{checkpoints}/{cell}",
            mode=cell.mode,
            digest=not cell.is_sorted,
        )
        return cls(queue.client, queue, cell, plan, rows_per_partition)

    @property
    def query(self) -> Query:
        """What it computes."""
        return QUERIES[self.cell.kind]

    def dying(self, point: CrashPoint, batch: int) -> QueryPlan:
        return self.plan_with(point=point.name, batch=batch)

    def plan_with(self, **changes: Any) -> QueryPlan:
        return replace(self.plan, **changes)

    def remains(self) -> Remains:
        """Look at the target, the ledger and the consumer."""
        entries = ledger_entries(self.client, f"{self.plan.target}_ledger")
        return Remains(
            rows=self.query.found(self.client, self.plan.target),
            entry=entries[0] if entries else None,
            stored=self.queue.stored(self.plan.consumer),
        )

    def has_logged(self, batch: int) -> bool:
        """Tell whether Spark has noted a batch as done."""
        return (Path(self.plan.checkpoint) / "commits" / str(batch)).exists()

    def told(self, last: int) -> Rows:
        """Return the rows that its batches gave out up to one, that one included."""
        return self.query.expected(self._read(last), self.rows_per_partition)

    def must_hold(self, last: int) -> Rows:
        """Return the rows that the target must hold after a batch."""
        return self._must_hold(self._read(last))

    def wrong(self, left: Remains) -> str:
        """Compare the target with the batches up to the ledger's entry; empty when it is right."""
        return differences(left.rows, self.must_hold(left.entry.batch_id if left.entry else -1))

    def incomplete(self, left: Remains) -> str:
        """Compare the target with the whole queue; empty when it is right."""
        return differences(left.rows, self._must_hold(self.queue))

    def _must_hold(self, queue: Queue) -> Rows:
        return self.query.must_hold(queue, self.rows_per_partition, is_sorted=self.cell.is_sorted)

    def _read(self, last: int) -> Queue:
        """Return what its batches have made known up to one: a lagging query keeps the last back."""
        count = last if self.query.lagging else last + 1
        end = max(0, count) * self.rows_per_partition
        return self.queue.until(dict.fromkeys(self.queue.ends(), end))


@dataclass
class Lineage:
    """Queries that share a process, and die together again and again on the same checkpoints."""

    cluster: LocalCluster
    subjects: Sequence[Subject]
    folder: Path
    backend: str = "http"

    def plan(self, queries: Sequence[QueryPlan], **options: Any) -> Plan:
        return Plan(
            queries=tuple(queries),
            proxy=self.cluster.proxy_urls[0],
            rows_per_partition=self.subjects[0].rows_per_partition,
            scratch=str(self.folder / "scratch"),
            backend=self.backend,
            **options,
        )

    def start(self, queries: Sequence[QueryPlan], **options: Any) -> Life:
        return Life(self.plan(queries, **options), self.folder / "child.log")

    def die(self, point: CrashPoint, batch: int) -> list[Remains]:
        """Live until every query is at that point of that batch; return what is left of each."""
        self.end([subject.dying(point, batch) for subject in self.subjects])
        return [subject.remains() for subject in self.subjects]

    def end(self, dying: Sequence[QueryPlan], **options: Any) -> Life:
        """Live until every query is at its crash point."""
        with self.start(dying, **options) as life:
            life.listen()
            arrived = {event["query"] for event in life.events if event["event"] == "arrived"}
            if missing := {plan.target for plan in dying} - arrived:
                raise AssertionError(f"{missing} never came to {dying[0].point}: {life.error}")
        return life

    def finish(self) -> Life:
        """Live to the end of the queues."""
        with self.start([subject.plan for subject in self.subjects]) as life:
            if life.listen() != "finished":
                raise AssertionError(f"The last life failed: {life.error}")
        return life
