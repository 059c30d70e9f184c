"""Queries that live and die together, as jobs of `yt_exactly_once.testing`, and what is left of them."""

import json
import os
import signal
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple, Self

import requests
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from yt.wrapper import YtClient

from tests.crash.crash_points import CrashPoint
from tests.flows import QUERIES, Entry, Query, Queue, Rows, differences, ledger_entries, read_queue
from yt_exactly_once import Event, Target, TransactionalSink, register_source
from yt_exactly_once.local import LocalCluster
from yt_exactly_once.testing.attacks import Attack, Manner
from yt_exactly_once.testing.life import Life
from yt_exactly_once.testing.steps import AFTER_CALL, Kind, Step
from yt_exactly_once.testing.trial import Trial, pickled

Told = dict[str, Any]
"""Name and fields of an event."""


class Cell(NamedTuple):
    """A kind of query, of target, and of writing.

    Attributes:
        by_format: whether it writes with the format yt, which tells no events.
        by_tasks: whether its tasks send the rows of every batch.
    """

    kind: str
    is_sorted: bool
    mode: str = "transactional"
    by_format: bool = False
    by_tasks: bool = False

    def __str__(self) -> str:
        order = "sorted" if self.is_sorted else "ordered"
        how = "-format" * self.by_format + "-tasks" * self.by_tasks
        return f"{self.mode}-{self.kind}-{order}{how}"


@dataclass(frozen=True, kw_only=True)
class QueryPlan:
    """A query as a user writes it; a job.

    Attributes:
        create: see `Target`; for a path with columns in braces.
        options: of the sink.
        unanswered: the batch whose first commit is applied, and gets no answer; -1 for none.
    """

    cell: Cell
    proxy: str
    queue: str
    consumer: str
    target: str
    checkpoint: str
    rows_per_partition: int
    digest: bool = False
    create: dict[str, Any] | None = None
    options: dict[str, Any] = field(default_factory=dict)
    backend: str = "http"
    unanswered: int = -1

    def __call__(self, spark: SparkSession, trial: Trial) -> None:
        register_source(spark)
        kind, limit = QUERIES[self.cell.kind], self.rows_per_partition
        given = {"max_rows_per_partition": limit, "backend": self.backend}
        rows = read_queue(spark, self.proxy, self.queue, self.consumer, **given)
        writer = kind.build(rows).writeStream.outputMode(kind.output_mode)
        writer = writer.option("checkpointLocation", self.checkpoint)
        if self.cell.by_format:
            where = {"path": self.target, "proxy": self.proxy, "backend": self.backend}
            given = {"mode": self.cell.mode, **where, **self.options}
            running = writer.format("yt").options(**given).start()
        else:
            sink = TransactionalSink(
                Target(self.target, digest=self.digest, create=self.create),
                mode=self.cell.mode,
                proxy=self.proxy,
                client_config={"backend": self.backend},
                listener=lambda event, fields: self._note(trial, {"event": event, **fields}),
                **self.options,
            )
            running = writer.foreachBatch(sink).start()
        try:
            running.awaitTermination()
        except StreamingQueryException as error:
            # Some reasons stand in the trace of the JVM alone.
            raise RuntimeError(str(error._stackTrace).replace("===", "")) from None

    def _note(self, trial: Trial, told: Told) -> None:
        with events_of(trial).open("a") as file:
            file.write(json.dumps(told, default=str) + "\n")
        if (told["event"], told.get("batch")) == (Event.TRANSACTION_STARTED, self.unanswered):
            match = {"transaction_id": told["transaction"]}
            rule = {"command": "commit_transaction", "action": "lose_answer", "match": match}
            requests.post(f"{self.proxy}/local/faults", json=[rule], timeout=10).raise_for_status()


def events_of(trial: Trial) -> Path:
    """Return the file with what the sink of a trial has told."""
    return trial.folder / "events"


class Fate(NamedTuple):
    """Where a query dies, and with which options of its sink."""

    point: CrashPoint
    batch: int
    options: dict[str, Any] = {}  # noqa: RUF012 - nobody changes it


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
        plan: of its query, which lives.
        trial: where its job and what it tells are kept.
    """

    queue: Queue
    plan: QueryPlan
    trial: Trial

    @classmethod
    def create(
        cls,
        cluster: LocalCluster,
        queue: Queue,
        cell: Cell,
        folder: Path,
        *,
        rows_per_partition: int,
        checkpoints: str = "",
        tablets: int | None = None,
    ) -> Self:
        """Create its consumer and its target.

        Args:
            folder: for what it tells.
            checkpoints: location of the folder with its checkpoint; default: the same.
        """
        target = f"{queue.path}_{cell}"
        QUERIES[cell.kind].create_target(
            queue.client, target, is_sorted=cell.is_sorted, tablets=tablets or len(queue.rows)
        )
        trial = Trial(str(cell), folder / str(cell))
        trial.folder.mkdir()
        plan = QueryPlan(
            cell=cell,
            proxy=cluster.proxy_urls[0],
            queue=queue.path,
            consumer=queue.add_consumer(f"{target}_consumer"),
            target=target,
            checkpoint=f"{checkpoints}/{cell}" if checkpoints else trial.checkpoint,
            rows_per_partition=rows_per_partition,
            digest=not cell.is_sorted,
            options={"sent_by": "tasks"} if cell.by_tasks else {},
        )
        return cls(queue, plan, trial)

    @property
    def cell(self) -> Cell:
        return self.plan.cell

    @property
    def client(self) -> YtClient:
        return self.queue.client

    @property
    def query(self) -> Query:
        """What it computes."""
        return QUERIES[self.cell.kind]

    def plan_with(self, **changes: Any) -> QueryPlan:
        return replace(self.plan, **changes)

    def job(self, **changes: Any) -> Path:
        """Write its job, with changes of its plan."""
        file = self.trial.folder / "job"
        file.write_bytes(pickled(self.plan_with(**changes)))
        return file

    def attack(self, point: CrashPoint) -> Attack:
        if point is CrashPoint.TASKS_WRITING:
            pushes = self.cell.mode == "idempotent" and not self.cell.is_sorted
            command = "push_queue_producer" if pushes else "insert_rows"
            return Attack(Manner.KILL, Step(Kind.ANSWER, f"PUT /api/v4/{command}"), 2)
        event = point.value.event
        return Attack(Manner.KILL, Step(Kind.EVENT, event) if event else AFTER_CALL)

    def has_logged(self, batch: int) -> bool:
        """Tell whether Spark has noted a batch as done."""
        return self.trial.has_logged(batch)

    @property
    def events(self) -> list[Told]:
        """What its sink has told in all its lives."""
        file = events_of(self.trial)
        return [json.loads(line) for line in file.open()] if file.exists() else []

    def remains(self) -> Remains:
        """Look at the target, the ledger and the consumer."""
        entries = ledger_entries(self.client, f"{self.plan.target}_ledger")
        return Remains(
            rows=self.query.found(self.client, self.plan.target),
            entry=entries[0] if entries else None,
            stored=self.queue.stored(self.plan.consumer),
        )

    def given_out(self, last: int) -> Rows:
        """Return the rows that its batches gave out up to one, that one included."""
        return self.query.expected(self._read(last), self.plan.rows_per_partition)

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
        size = self.plan.rows_per_partition
        return self.query.must_hold(queue, size, is_sorted=self.cell.is_sorted)

    def _read(self, last: int) -> Queue:
        """Return what its batches have made known up to one: a lagging query keeps the last back."""
        count = last if self.query.lagging else last + 1
        end = max(0, count) * self.plan.rows_per_partition
        return self.queue.until(dict.fromkeys(self.queue.ends(), end))


@dataclass
class Lineage:
    """Queries that share a process, and die together again and again on the same checkpoints."""

    subjects: Sequence[Subject]
    folder: Path

    @contextmanager
    def held(self, fates: Iterable[tuple[Subject, Fate]]) -> Iterator[Life]:
        """Yield a driver whose queries are held, each at its crash point; it is killed at the end."""
        with Life(self.folder, {}) as life:
            for subject, (point, batch, more) in fates:
                unanswered = batch if point is CrashPoint.COMMIT_OUTCOME_UNKNOWN else -1
                options = {**subject.plan.options, **more}
                job = subject.job(unanswered=unanswered, options=options)
                attack = subject.attack(point)
                arrived = life.run(subject.trial, job, batch=batch, attack=attack)
                assert arrived, f"{subject.cell} never came to {point}: {life.errors}"
            yield life

    def die(self, point: CrashPoint, batch: int) -> list[Remains]:
        """Live until every query is at that point of that batch; return what is left of each."""
        with self.held((subject, Fate(point, batch)) for subject in self.subjects):
            pass
        return [subject.remains() for subject in self.subjects]

    @contextmanager
    def living(self) -> Iterator[Life]:
        """Yield a driver whose queries run to the end of their queues; it is killed at the end."""
        with Life(self.folder, {}) as life:
            for subject in self.subjects:
                _begin(life, subject)
            yield life

    def finish(self) -> list[list[Told]]:
        """Live to the end of the queues; return what each query told on its way."""
        before = [len(subject.events) for subject in self.subjects]
        with self.living() as life:
            life.wait(lambda: not life.running)
        assert not any(life.errors.values()), life.errors
        return [one.events[count:] for one, count in zip(self.subjects, before, strict=True)]


def _begin(life: Life, subject: Subject) -> None:
    """Start a query, and return when it writes: Spark does not bear two that start at once."""
    commits = Path(subject.trial.checkpoint) / "commits"

    def written() -> tuple[int, int]:
        return len(subject.events), len(list(commits.glob("[0-9]*")))

    before = written()
    life.start(subject.trial, subject.job())
    life.wait(lambda: written() != before or subject.trial.name not in life.running)


def stop(life: Life) -> None:
    """Stop a driver and its JVM."""
    os.killpg(life.pid, signal.SIGSTOP)


def wake(life: Life) -> None:
    """Let a driver that was stopped go on, and what is held in it; return when its queries have ended."""
    life.gate.release()
    os.killpg(life.pid, signal.SIGCONT)
    life.wait(lambda: not life.running)
