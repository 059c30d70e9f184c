"""Visits every state that a scenario can reach, breadth first, so that a violation has a shortest trace.

Equal states are visited once: what can happen next depends on the state alone. The number of different
executions, each a path from the first state to a last one, is counted over the graph of states;
`Explorer.walk` takes every path on its own, which shows that merging loses none.
"""

from __future__ import annotations

import time
from array import array
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise

from tests.model.cluster import conflicts
from tests.model.continuations import no_waiting
from tests.model.driver import Drivers, Step, restored
from tests.model.invariants import Kind, ViolationError
from tests.model.scenario import Scenario
from tests.model.world import Checkpoint, Driver, Status, World

_AT_REST = (Status.FINISHED, Status.STOPPED)


@dataclass
class Report:
    """What an exploration found.

    Attributes:
        executions: different paths from the first state to a last one.
        runs: how often the code under test was run.
        violation: the first one found, if any.
        trace: the steps to it, the fewest that lead to it.
        failures: how often a run ended with an error: name, and whether it was the only one running.
        last: the states in which nothing can happen any more.
    """

    scenario: str
    states: int = 0
    steps: int = 0
    executions: int = 0
    runs: int = 0
    seconds: float = 0.0
    violation: ViolationError | None = None
    trace: list[str] = field(default_factory=list)
    failures: dict[tuple[str, bool], int] = field(default_factory=dict)
    last: set[World] = field(default_factory=set)

    def __str__(self) -> str:
        verdict = "holds" if self.violation is None else str(self.violation)
        counts = (
            f"{self.states:>9,} states {self.steps:>10,} steps {self.executions:>22,} executions "
            f"{self.runs:>7,} runs of the code {self.seconds:>6.1f} s"
        )
        lines = [f"{self.scenario:<28} {counts}  {verdict}"]
        lines += [f"    {number:>2}. {label}" for number, label in enumerate(self.trace, 1)]
        return "\n".join(lines)


class Explorer:
    """Explores one scenario.

    Args:
        scenario: which.
    """

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.drivers = Drivers(scenario)

    def first(self) -> World:
        """Return the world before anything has happened."""
        scenario = self.scenario
        return World(
            rows=((0, ""),) * len(scenario.index),
            applied=(),
            trimmed=(0,) * len(scenario.places),
            checkpoints=(Checkpoint(),) * scenario.checkpoints,
            drivers=(Driver(),) * len(scenario.slots),
            in_flight=(),
            budget=scenario.budget,
            written=((),) * (1 if scenario.is_sorted else len(scenario.places)),
        )

    def steps(self, world: World) -> Iterator[Step]:
        """Yield everything that can happen in a world.

        Raises:
            ViolationError: a step breaks an invariant, or nothing can happen and work is left.
        """
        count = 0
        for slot in range(len(world.drivers)):
            for step in self.drivers.steps(world, slot):
                count += 1
                yield step
        for commit in world.in_flight:
            count += 1
            label = f"the commit of {commit.transaction} lands"
            yield Step(label, self.drivers.network.land(world, commit))
        for label, after in self.drivers.jobs.steps(world):
            count += 1
            yield Step(label, after)
        for number, request in enumerate(world.adrift):
            if request not in world.adrift[:number]:
                count += 1
                after = self.drivers.network.land_request(world, request)
                yield Step(f"{request} lands", after)
        for transaction, _ in world.inside if world.budget else ():
            count += 1
            yield Step(f"the lease of {transaction} ends", world.disturbed(1).ended(transaction))
        if world.budget:
            yield from self._expire(world)
            yield from self._restore(world)
            yield from self._put_back(world)
        if not count and any(driver.status not in _AT_REST for driver in world.drivers):
            raise ViolationError(
                Kind.DEADLOCK, str([str(driver.status) for driver in world.drivers])
            )

    def _expire(self, world: World) -> Iterator[Step]:
        if self.scenario.faults.expiry:
            for transaction in sorted({claim[0] for claim in world.claims} - world.young):
                label = f"the claims of {transaction} expire"
                yield Step(label, world.disturbed(1).expired(transaction))

    @no_waiting()
    def explore(self) -> Report:
        """Visit every state once, or until a violation is found."""
        began = time.monotonic()
        report = Report(self.scenario.name)
        first = self.first()
        numbers = {first: 0}
        parents = array("q", [-1])
        edges = array("q")
        ends = array("q", [])
        pending = deque([first])
        while pending and report.violation is None:
            world = pending.popleft()
            here = len(ends)
            try:
                for step in self.steps(world):
                    number = numbers.setdefault(step.world, len(numbers))
                    if number == len(parents):
                        parents.append(here)
                        pending.append(step.world)
                    edges.append(number)
            except ViolationError as violation:
                report.violation = violation
                report.trace = [*self._trace(numbers, parents, here), f"VIOLATION: {violation}"]
            if len(edges) == (ends[-1] if ends else 0):
                report.last.add(world)
            ends.append(len(edges))
        report.states, report.steps = len(numbers), len(edges)
        if report.violation is None:
            report.executions = _paths(edges, ends)
        report.runs = self.drivers.programs.executions
        report.failures = dict(self.drivers.failures)
        report.seconds = time.monotonic() - began
        return report

    @no_waiting()
    def walk(self) -> tuple[int, set[World]]:
        """Walk every execution on its own; return how many there are, and the states they end in."""
        count, last = 0, set()
        pending = [self.first()]
        while pending:
            world = pending.pop()
            after = [step.world for step in self.steps(world)]
            if not after:
                count += 1
                last.add(world)
            pending.extend(after)
        return count, last

    def _restore(self, world: World) -> Iterator[Step]:
        if not self.scenario.faults.restore:
            return
        for number, checkpoint in enumerate(world.checkpoints):
            for older in restored(checkpoint):
                label = f"the checkpoint is put back to {older.commits} batches"
                yield from _started_again(label, world, world.with_checkpoint(number, older))

    def _put_back(self, world: World) -> Iterator[Step]:
        # Without another batch nothing is called that could notice it.
        done = min(checkpoint.commits for checkpoint in world.checkpoints)
        if world.copy is None or done == len(self.scenario.plans):
            return
        values, applied = world.copy
        rows = list(world.rows)
        for row, value in zip(self.scenario.ledgers, values, strict=True):
            rows[row] = rows[row][0] + 1, value
        # Commits that are on their way have read other rows.
        left = tuple(one for one in world.in_flight if not conflicts(tuple(rows), one.guards))
        after = world._replace(rows=tuple(rows), applied=applied, in_flight=left)
        label = "the ledger and the targets are put back to the first batch"
        yield from _started_again(label, world, after)

    def _trace(self, numbers: dict[World, int], parents: array[int], end: int) -> list[str]:
        worlds = {number: world for world, number in numbers.items()}
        chain = [end]
        while parents[chain[-1]] >= 0:
            chain.append(parents[chain[-1]])
        chain.reverse()
        return [self._label(worlds[before], worlds[after]) for before, after in pairwise(chain)]

    def _label(self, before: World, after: World) -> str:
        for step in self.steps(before):
            if step.world == after:
                return step.label
        message = "A step that was taken is not found again"
        raise AssertionError(message)


def _started_again(label: str, world: World, after: World) -> Iterator[Step]:
    """Yield what a person does while no driver runs; all are started again."""
    if any(driver.status is Status.RUNNING for driver in world.drivers):
        return
    drivers = tuple(
        driver._replace(status=Status.DOWN) if driver.status is not Status.READY else driver
        for driver in world.drivers
    )
    yield Step(label, after._replace(drivers=drivers).disturbed(1))


def _paths(edges: array[int], ends: array[int]) -> int:
    """Count the paths from state 0 to the states without successors; the graph has no cycle."""
    starts = [0, *ends[:-1]]
    waiting = Counter(edges)
    counts = [0] * len(ends)
    counts[0] = 1
    ready, total, visited = [0], 0, 0
    while ready:
        state = ready.pop()
        visited += 1
        if starts[state] == ends[state]:
            total += counts[state]
        for position in range(starts[state], ends[state]):
            after = edges[position]
            counts[after] += counts[state]
            waiting[after] -= 1
            if not waiting[after]:
                ready.append(after)
        counts[state] = 0
    assert visited == len(ends), "The graph of states has a cycle"
    return total
