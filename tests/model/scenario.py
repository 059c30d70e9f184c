"""What is explored: the batches of a query, who runs it, which faults may strike and how many.

A scenario also knows the expected: which effects the rows of a batch have on a target.
"""

from dataclasses import KW_ONLY, dataclass, field
from enum import StrEnum
from functools import cached_property

from tests.model.cluster import Key, consumer_key, ledger_key, session_key
from yt_exactly_once.config import DeliveryMode

Ranges = tuple[tuple[int, int], ...]
"""First row and end of a batch, per place."""

SourceRow = tuple[int, int]
"""Place and index of a row."""


class Spread(StrEnum):
    """How the rows of a batch reach the tasks."""

    AS_READ = "a task per place, in order"
    SHUFFLED = "over two tasks by turns"
    REVERSED = "a task per place, the last row first"
    TOGETHER = "one task for all places, in order"


@dataclass(frozen=True)
class SinkSpec:
    """One sink of the foreachBatch function.

    Attributes:
        paths: its targets; each has a ledger row.
        advances: whether it moves the consumers.
    """

    paths: tuple[str, ...] = ("//out",)
    advances: bool = True


@dataclass(frozen=True)
class Faults:
    """Which faults may strike; each costs one of the scenario's budget.

    Attributes:
        crash: a driver dies, at any point, also right after it sent a commit.
        requests: a read or a begin is not answered, a call in a transaction fails.
        refusals: a commit is refused for no reason of ours.
        unknown: a commit is sent and not answered, applied or not or later.
        errors: a request that writes is carried out, and answered with an error.
        commit_log: together with a crash, the newest entry of Spark's commit log is lost.
        restore: the checkpoint is put back to an older copy while no driver runs.
        put_back: the ledger and the targets are put back to an older copy while no driver runs.
        tasks: a task dies, also right after it sent a request, or is started once more while it runs.
        empty: a proxy sees an empty body instead of the rows of a push.
        orphans: tasks outlive their driver.
        expiry: claims are gone while their transaction is open.
    """

    crash: bool = True
    requests: bool = True
    refusals: bool = True
    unknown: bool = True
    errors: bool = False
    commit_log: bool = False
    restore: bool = False
    put_back: bool = False
    tasks: bool = True
    empty: bool = False
    orphans: bool = True
    expiry: bool = False


@dataclass(frozen=True)
class Scenario:
    """One bounded world.

    Attributes:
        name: for reports.
        plans: for each batch, the alternatives that Spark may plan: rows per place, which is a queue or,
            when `partitioned`, a partition of the one queue. No place at all is a source that is no queue.
        stateful: whether the query folds all rows into a state.
        slots: one per driver; its checkpoint, which is also its query. Every driver may be stopped
            anywhere for any time, so that each is the zombie of the others.
        budget: how many faults strike at most.
        brief: how many strike at most in every run of the tests; the budget unless given.
        faults: of which kinds.
        attempts: of the retry policy.
        sinks: called one after another in each batch.
        split: whether every effect is a part of its own, in a transaction of its own.
        begins: where an explicit starting offset begins to read, per place; `None` is the consumer.
        silent: batches whose rows have no effect on the target, such as filtered ones.
        speaking: batches without rows that have one all the same, such as timeouts.
        catches_up: the source moves the consumer at the end of a run, as with AvailableNow.
        exclusive_logs: whether Spark's logs refuse a second writer, as on HDFS.
        tolerated: errors after which a person decides, so that a query need not come to its end.
        misuse: errors that tell of a flow that the mode is not for; the query ends with them.
        survivors: whether the newest run of a query must not fail because of what older runs do.
        unchecked: invariants that are left out, to see what comes of breaking them.
        mode: in which the sink writes.
        is_sorted: whether the target is sorted; matters to tasks only.
        chunk: rows per request of a task.
        task_attempts: how often a task may fail before its job does.
        by_source: whether the frame tells where its rows came from.
        spread: how the rows of a batch are spread over tasks and in which order.
        then: the spread in every run after the first: other code or cores.
        one_key: whether all rows have the same key.
        regress: whether a push without new rows moves the session back, as servers of 2024 do.
        into_one: whether tasks write into the transaction of the driver, in transactional mode.
        reruns: whether the stage of a job may run again, so that tasks claim their partitions.
        by_format: whether Spark plans the batch, runs its tasks and commits it, as for the format yt.
        fickle: whether only the first attempt of a task has rows, since a function gives others each time.
    """

    name: str
    plans: tuple[tuple[tuple[int, ...], ...], ...]
    _: KW_ONLY
    stateful: bool = False
    slots: tuple[int, ...] = (0,)
    budget: int = 2
    brief: int | None = None
    faults: Faults = field(default_factory=Faults)
    attempts: int = 3
    sinks: tuple[SinkSpec, ...] = (SinkSpec(),)
    partitioned: bool = False
    split: bool = False
    begins: tuple[int, ...] | None = None
    silent: frozenset[int] = frozenset()
    speaking: frozenset[int] = frozenset()
    catches_up: bool = False
    exclusive_logs: bool = True
    tolerated: frozenset[str] = frozenset()
    misuse: frozenset[str] = frozenset()
    survivors: bool = False
    unchecked: frozenset[str] = frozenset()
    mode: DeliveryMode = DeliveryMode.TRANSACTIONAL
    is_sorted: bool = False
    chunk: int = 1
    task_attempts: int = 2
    by_source: bool = True
    spread: Spread = Spread.AS_READ
    then: Spread | None = None
    one_key: bool = False
    regress: bool = False
    into_one: bool = False
    reruns: bool = False
    by_format: bool = False
    fickle: bool = False

    @property
    def by_tasks(self) -> bool:
        """Whether tasks write the rows."""
        return self.mode is not DeliveryMode.TRANSACTIONAL

    @cached_property
    def places(self) -> tuple[tuple[str, int], ...]:
        """Path of the queue and number of the partition of everything that is read."""
        count = len(self.plans[0][0])
        if self.partitioned:
            return tuple(("//queue", partition) for partition in range(count))
        return tuple((f"//queue{queue}", 0) for queue in range(count))

    @cached_property
    def paths(self) -> tuple[str, ...]:
        """All targets."""
        return tuple(path for sink in self.sinks for path in sink.paths)

    @cached_property
    def totals(self) -> tuple[int, ...]:
        """Rows in every place."""
        first = self.begins or (0,) * len(self.places)
        return tuple(
            first[place] + sum(max(plan[place] for plan in plans) for plans in self.plans)
            for place in range(len(self.places))
        )

    @cached_property
    def consumers(self) -> tuple[int, ...]:
        """The row of the consumer for every place."""
        return tuple(self.index[consumer_key(*place)] for place in self.places)

    @cached_property
    def ledgers(self) -> tuple[int, ...]:
        """The rows of the ledger."""
        queries = range(self.checkpoints)
        return tuple(
            self.index[ledger_key(query_id(query), path)]
            for query in queries
            for path in self.paths
        )

    @cached_property
    def checkpoints(self) -> int:
        """Number of queries."""
        return max(self.slots) + 1

    @cached_property
    def index(self) -> dict[Key, int]:
        """Number of every sorted row there can be: consumers, then ledgers."""
        keys = [consumer_key(*place) for place in self.places]
        keys += [
            ledger_key(query_id(checkpoint), path)
            for checkpoint in range(self.checkpoints)
            for path in self.paths
        ]
        keys += [
            session_key(f"{query_id(checkpoint)}:{path}:{kind}-{number}")
            for checkpoint in range(self.checkpoints if self.by_tasks else 0)
            for path in self.paths
            for kind in ("source", "partition")
            for number in range(max(2, len(self.places)))
        ]
        return {key: number for number, key in enumerate(keys)}

    def spread_in(self, run: int) -> Spread:
        """Return how rows are spread in a run of the query, counted from 1."""
        return self.spread if run == 1 or self.then is None else self.then

    def partitions(self, run: int) -> int:
        fixed = {Spread.SHUFFLED: 2, Spread.TOGETHER: 1}
        return fixed.get(self.spread_in(run), len(self.places))

    def rows_of_task(self, ranges: Ranges, partition: int, run: int) -> list[SourceRow]:
        """Return the rows that a task gets, in order."""
        rows, spread = rows_of(ranges), self.spread_in(run)
        if spread is Spread.TOGETHER:
            return list(rows)
        if spread is Spread.SHUFFLED:
            return [row for row in rows if row[1] % 2 == partition]
        own = [row for row in rows if row[0] == partition]
        return own[::-1] if spread is Spread.REVERSED else own

    def effects(self, batch: int, ranges: Ranges, folded: tuple[SourceRow, ...]) -> tuple[str, ...]:
        """Return what a batch writes: at least two effects, so that a part of them can be told.

        Args:
            batch: its number.
            ranges: its rows.
            folded: the state after it, of a stateful query.
        """
        if self.by_tasks or self.into_one:
            return tuple(f"{place}:{row}" for place, row in rows_of(ranges))
        quiet = not any(start != end for start, end in ranges) and batch not in self.speaking
        if batch in self.silent or (self.places and quiet):
            return ()
        if self.stateful:
            state = ",".join(f"{place}:{row}" for place, row in folded)
            return (f"count {batch} {len(folded)}", f"state {batch} {state}")
        if quiet:
            return (f"first {batch}", f"second {batch}")
        return tuple(
            f"{word} {place}:{row}"
            for word in ("first", "second")
            for place, row in rows_of(ranges)
        )


def rows_of(ranges: Ranges) -> tuple[SourceRow, ...]:
    return tuple(
        (place, row) for place, (start, end) in enumerate(ranges) for row in range(start, end)
    )


def query_id(checkpoint: int) -> str:
    return f"query{checkpoint}"
