"""The state of the model: what the cluster, the checkpoints and the network hold, and the drivers.

Values only, immutable and hashable, so that equal states are found to be equal. A driver inside the code
under test is its continuation.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum, StrEnum
from typing import Any, NamedTuple

from tests.model.cluster import Append, Put, Rows
from tests.model.scenario import Ranges, SourceRow

ORPHAN = -1
"""Slot of a task that no driver waits for."""


class Status(StrEnum):
    """What a driver process is."""

    READY = "ready"
    RUNNING = "running"
    DOWN = "down"
    FAILED = "failed"
    STOPPED = "stopped"
    FINISHED = "finished"


class Phase(StrEnum):
    """Where a running driver is in Spark's loop."""

    PLAN = "plan"
    LOG_OFFSETS = "log offsets"
    COMMIT_SOURCE = "commit source"
    SINK = "sink"
    LOG_COMMIT = "log commit"
    CATCH_UP = "catch up"


class Calm(IntEnum):
    """What has disturbed a run, and so whether it must succeed all the same."""

    DISTURBED = 0
    BY_OLDER = 1
    UNDISTURBED = 2


class Job(NamedTuple):
    """A Spark job, as its driver knows it.

    Attributes:
        reports: what the task of each partition has reported; nothing before its end.
        failures: how often the task of each partition has failed.
        launched: how many more attempts of each were started, where they have names of their own.
    """

    reports: tuple[tuple[Any, ...] | None, ...]
    failures: tuple[int, ...]
    launched: tuple[int, ...]


class Task(NamedTuple):
    """An attempt of a task.

    Attributes:
        slot: of the driver that waits for it; -1 when none does any more, which stops no task.
    """

    slot: int
    partition: int
    continuation: int


class Driver(NamedTuple):
    """One driver.

    Attributes:
        runs: how often it was started.
        calm: what has disturbed this run: a fault or a newer run; only older runs; nothing.
        ranges: its rows; before the first batch, nothing.
        evaluated: whether this run has evaluated the frame of the batch.
        agreed: whether this run has called the sinks for a batch before this one.
        left: ledger rows that this run has committed last, by sink.
        sink: which sink is being called.
        continuation: of the code under test; -1 outside it.
    """

    status: Status = Status.READY
    runs: int = 0
    calm: Calm = Calm.DISTURBED
    phase: Phase = Phase.PLAN
    batch: int = 0
    ranges: Ranges = ()
    evaluated: bool = False
    agreed: bool = False
    left: tuple[tuple[int, str], ...] = ()
    sink: int = 0
    continuation: int = -1
    job: Job | None = None


class Checkpoint(NamedTuple):
    """What Spark keeps of a query.

    Attributes:
        offsets: the offset log: the ranges of every batch.
        commits: how many batches the commit log holds.
        states: the state after every batch; `None` where a batch left none.
        noted: the newest batch that each sink has noted as committed.
    """

    offsets: tuple[Ranges, ...] = ()
    commits: int = 0
    states: tuple[tuple[SourceRow, ...] | None, ...] = ()
    noted: tuple[tuple[int, int], ...] = ()


class InFlight(NamedTuple):
    """A commit that was sent, not answered, and may land at any time.

    Attributes:
        guards: rows that must have these versions then.
    """

    transaction: str
    guards: tuple[tuple[int, int], ...]
    writes: tuple[Put | Append, ...]


class Applied(NamedTuple):
    """One batch in one target, or a part of it when the batch was split.

    Attributes:
        part: number of the part, from 1.
        effects: what can be seen of it.
    """

    path: str
    query: str
    batch: int
    part: int
    effects: tuple[str, ...]


class World(NamedTuple):
    """Everything.

    Attributes:
        applied: the targets, in the order of the commits.
        trimmed: first row left, per queue.
        checkpoints: per query.
        drivers: per slot.
        written: what tasks have written, per place, in the order of its arrival.
        copy: of the ledger's rows and the targets, once the first batch is logged, where it may be put back.
        inside: open transactions into which tasks may write, each with what they have written.
        claims: transaction or plan, partition and owner.
        begun: transactions that tasks have begun, each with the rows that it sees.
        aged: open transactions whose claims have expired.
        young: open transactions whose claims do not expire before their commit any more.
    """

    rows: Rows
    applied: tuple[Applied, ...]
    trimmed: tuple[int, ...]
    checkpoints: tuple[Checkpoint, ...]
    drivers: tuple[Driver, ...]
    in_flight: tuple[InFlight, ...]
    budget: int
    tasks: tuple[Task, ...] = ()
    adrift: tuple[Any, ...] = ()
    written: tuple[tuple[Any, ...], ...] = ()
    inside: tuple[tuple[str, tuple[Any, ...]], ...] = ()
    copy: tuple[tuple[str, ...], tuple[Applied, ...]] | None = None
    claims: tuple[tuple[str, int, str], ...] = ()
    begun: tuple[tuple[str, Rows], ...] = ()
    aged: frozenset[str] = frozenset()
    young: frozenset[str] = frozenset()

    def owner(self, transaction: str, partition: int) -> str:
        """Return who has claimed a partition; nobody if it is free."""
        return next(
            (claim[2] for claim in self.claims if claim[:2] == (transaction, partition)), ""
        )

    def expired(self, transaction: str) -> World:
        """Return the world in which the claims of a transaction are gone."""
        return self._replace(
            claims=tuple(claim for claim in self.claims if claim[0] != transaction),
            aged=self.aged | {transaction},
        )

    def opened(self, transaction: str) -> World:
        """Return the world in which a transaction is open."""
        return self._replace(inside=tuple(sorted((*self.inside, (transaction, ())))))

    def begun_by_task(self, transaction: str) -> World:
        """Return the world in which a task has begun a transaction."""
        begun = tuple(sorted((*self.begun, (transaction, self.rows))))
        return self.opened(transaction)._replace(begun=begun)

    def ended(self, transaction: str) -> World:
        """Return the world without a transaction; requests that are on their way to it do nothing."""
        return self._replace(
            claims=tuple(claim for claim in self.claims if claim[0] != transaction),
            aged=self.aged - {transaction},
            young=self.young - {transaction},
            inside=tuple(each for each in self.inside if each[0] != transaction),
            begun=tuple(each for each in self.begun if each[0] != transaction),
            in_flight=tuple(each for each in self.in_flight if each.transaction != transaction),
            adrift=tuple(
                request
                for request in self.adrift
                if getattr(request, "transaction", "") != transaction
            ),
        )

    def with_driver(self, slot: int, driver: Driver) -> World:
        return self._replace(drivers=(*self.drivers[:slot], driver, *self.drivers[slot + 1 :]))

    def with_checkpoint(self, number: int, checkpoint: Checkpoint) -> World:
        before, after = self.checkpoints[:number], self.checkpoints[number + 1 :]
        return self._replace(checkpoints=(*before, checkpoint, *after))

    def disturbed(self, cost: int = 0) -> World:
        """Return the world in which no running driver can be held to succeed any more."""
        drivers = tuple(
            driver._replace(calm=Calm.DISTURBED) if driver.calm else driver
            for driver in self.drivers
        )
        return self._replace(drivers=drivers, budget=self.budget - cost)

    def disturbed_by_older(self) -> World:
        """Return the world in which something that an older run sent has arrived."""
        drivers = tuple(
            driver._replace(calm=Calm.BY_OLDER) if driver.calm is Calm.UNDISTURBED else driver
            for driver in self.drivers
        )
        return self._replace(drivers=drivers)

    def with_tasks(self, tasks: Iterable[Task]) -> World:
        return self._replace(tasks=tuple(sorted(tasks)))

    def orphaned(self, slot: int) -> World:
        """Return the world in which the tasks of a driver run on without it."""
        return self.with_tasks(
            task._replace(slot=ORPHAN) if task.slot == slot else task for task in self.tasks
        )

    def others_run(self, slot: int) -> bool:
        """Tell whether a driver other than the one in the slot runs."""
        return any(
            driver.status is Status.RUNNING
            for number, driver in enumerate(self.drivers)
            if number != slot
        )
