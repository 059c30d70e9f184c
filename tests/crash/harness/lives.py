"""The parent's side: start a child, listen until it ends or stops, and look at what it left behind."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Self

from tests.crash.harness.plan import Plan, QueryPlan
from tests.flows import QUERIES, Entry, Queue, Rows, differences, ledger_entries
from yt_exactly_once.demo.process import Child

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path
    from types import TracebackType

    from yt.wrapper import YtClient

    from yt_exactly_once.commit.crash_points import CrashPoint
    from yt_exactly_once.local import LocalCluster

PATIENCE_SECONDS = 120.0
"""Longest silence of a child that is doing well."""

_MODULE = "tests.crash.harness.child"
_ENDINGS = frozenset({"finished", "failed"})


class Life:
    """One child, from its start to its end, with everything it told.

    Args:
        plan: what it does.
        log: file that takes its output.
    """

    def __init__(self, plan: Plan, log: Path) -> None:
        self.events: list[dict[str, Any]] = []
        self._child = Child(_MODULE, lambda report: replace(plan, report=report).dump(), log)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._child.__exit__(kind, error, trace)

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

    def wait_until_stopped(self) -> None:
        """Wait until the child has stopped itself."""
        _, status = os.waitpid(self._child.pid, os.WUNTRACED)
        if not os.WIFSTOPPED(status):
            raise self._child.failure("The child ended, and was to stop")

    def wake(self) -> None:
        """Let a stopped child go on."""
        os.killpg(self._child.pid, signal.SIGCONT)

    @property
    def error(self) -> str:
        """What it failed with; empty when it did not."""
        return next((event["error"] for event in self.events if event["event"] == "failed"), "")

    def told(self, event: str, target: str) -> list[dict[str, Any]]:
        """Return the fields of the events of one name of one query."""
        return [
            told["fields"]
            for told in self.events
            if told["event"] == event and told["query"] == target
        ]


@dataclass(frozen=True)
class Remains:
    """What a target and its ledger hold while no driver lives.

    Attributes:
        rows: of the target, sorted.
        entry: of the ledger.
        stored: where the consumer stands.
    """

    rows: Rows
    entry: Entry | None
    stored: dict[int, int]


@dataclass
class Subject:
    """One query under test: its kind, its tables, its checkpoint, and what must be in its target.

    Attributes:
        client: of the cluster.
        queue: what it reads, with rows that are known.
        plan: of its query, without a crash.
        is_sorted: kind of its target.
        rows_per_partition: rows of a batch from each queue partition.
    """

    client: YtClient
    queue: Queue
    plan: QueryPlan
    is_sorted: bool
    rows_per_partition: int
    ledger: str = field(default="")

    @classmethod
    def create(
        cls, queue: Queue, kind: str, checkpoints: Path, *, is_sorted: bool, rows_per_partition: int
    ) -> Self:
        """Create its consumer and its target."""
        name = f"{kind}_{'sorted' if is_sorted else 'ordered'}"
        target = f"{queue.path}_{name}"
        QUERIES[kind].create_target(
            queue.client, target, is_sorted=is_sorted, tablets=len(queue.rows)
        )
        plan = QueryPlan(
            kind=kind,
            queue=queue.path,
            consumer=queue.add_consumer(f"{target}_consumer"),
            target=target,
            checkpoint=str(checkpoints / name),
        )
        return cls(queue.client, queue, plan, is_sorted, rows_per_partition, f"{target}_ledger")

    def dying(self, point: CrashPoint, batch: int) -> QueryPlan:
        """Return the plan of a life that ends at that point."""
        return self.plan_with(point=point.name, batch=batch)

    def plan_with(self, **changes: Any) -> QueryPlan:
        """Return the plan with some values changed."""
        return replace(self.plan, **changes)

    def remains(self) -> Remains:
        """Look at the target, the ledger and the consumer."""
        entries = ledger_entries(self.client, self.ledger)
        return Remains(
            rows=QUERIES[self.plan.kind].found(self.client, self.plan.target),
            entry=entries[0] if entries else None,
            stored=self.queue.stored(self.plan.consumer),
        )

    def wrong(self, left: Remains) -> str:
        """Compare the target with the batches up to the ledger's entry; empty when it is right."""
        if left.entry is None:
            return differences(left.rows, [])
        query, path = QUERIES[self.plan.kind], self.queue.path
        told = left.entry.starts[path] if query.lagging else left.entry.ends[path]
        return self._differences(left.rows, self.queue.until(told))

    def incomplete(self, left: Remains) -> str:
        """Compare the target with the whole queue; empty when it is right."""
        return self._differences(left.rows, self.queue)

    def _differences(self, rows: Rows, queue: Queue) -> str:
        query = QUERIES[self.plan.kind]
        expected = query.must_hold(queue, self.rows_per_partition, is_sorted=self.is_sorted)
        return differences(rows, expected)


@dataclass
class Lineage:
    """Queries that share a process, and die together again and again on the same checkpoints.

    Attributes:
        cluster: where.
        subjects: the queries.
        folder: for logs and scratch files.
    """

    cluster: LocalCluster
    subjects: Sequence[Subject]
    folder: Path

    def plan(self, queries: Sequence[QueryPlan], **options: Any) -> Plan:
        """Return the plan of a life that runs these queries."""
        return Plan(
            queries=tuple(queries),
            proxy=self.cluster.proxy_urls[0],
            rows_per_partition=self.subjects[0].rows_per_partition,
            scratch=str(self.folder / "scratch"),
            **options,
        )

    def start(self, queries: Sequence[QueryPlan], **options: Any) -> Life:
        """Begin a life."""
        return Life(self.plan(queries, **options), self.folder / "child.log")

    def die(self, point: CrashPoint, batch: int) -> list[Remains]:
        """Live until every query is at that point of that batch; return what is left of each."""
        with self.start([subject.dying(point, batch) for subject in self.subjects]) as life:
            life.listen()
            arrived = {event["query"] for event in life.events if event["event"] == "arrived"}
            if arrived != {subject.plan.target for subject in self.subjects}:
                raise AssertionError(f"Only {sorted(arrived)} came to {point.name}: {life.error}")
        return [subject.remains() for subject in self.subjects]

    def finish(self) -> Life:
        """Live to the end of the queues."""
        with self.start([subject.plan for subject in self.subjects]) as life:
            if life.listen() != "finished":
                raise AssertionError(f"The last life failed: {life.error}")
        return life
