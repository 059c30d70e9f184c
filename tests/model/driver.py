"""Spark's loop around the code under test, one step at a time, for every driver.

A step ends where something shared is touched: a log of the checkpoint, or a request of the code under
test. What Spark does in which order was read in its `MicroBatchExecution`: the offsets of a batch are
logged, then the sources are told of the batch before, then the sinks run, then the commit is logged; a
batch that is in the offset log and not in the commit log is run again at the start, without telling
the sources.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

from tests.model.cluster import LOCAL_FAILURES, Begin, Commit, Evaluated, Snapshot, offset_in
from tests.model.continuations import Asking, Continuations, Raised, Returned
from tests.model.invariants import Kind, ViolationError, check_delivered, check_finished
from tests.model.jobs import Jobs
from tests.model.network import Network
from tests.model.programs import (
    STATE_MISSING,
    TRIMMED,
    Evaluate,
    JobFailedError,
    Programs,
    SinkCall,
    SourceCommit,
    StateMissingError,
    describe_error,
)
from tests.model.scenario import Scenario
from tests.model.tasks import RunJob
from tests.model.world import Calm, Checkpoint, Driver, Phase, Status, World
from yt_exactly_once.errors import ExactlyOnceError

NAMES = "ABC"
"""Drivers, by slot."""

CONCURRENT = "ConcurrentLogUpdate"
"""What Spark raises when another run has written its log."""

STATE_NOT_COMMITTED = "StateStoreCommitValidationFailed"
"""What Spark raises when a batch of a stateful query ends without having committed its state."""


class Step(NamedTuple):
    """One thing that can happen.

    Attributes:
        world: after it.
    """

    label: str
    world: World


class Drivers:
    """Everything that drivers can do.

    Args:
        scenario: which world.
    """

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.network = Network(scenario)
        self.programs = Continuations(Programs(scenario).run)
        self.jobs = Jobs(scenario, self.network, self.programs, self._answered)
        self.failures: dict[tuple[str, bool], int] = {}

    def steps(self, world: World, slot: int) -> Iterator[Step]:
        """Yield what a driver can do, or what can be done to it.

        Raises:
            ViolationError: a step breaks an invariant.
        """
        driver = world.drivers[slot]
        match driver.status:
            case Status.READY | Status.DOWN:
                yield self._start(world, slot)
            case Status.FAILED:
                if not world.others_run(slot):
                    yield self._start(world, slot)
            case Status.RUNNING:
                yield from self._run(world, slot)
                if self.scenario.faults.crash and world.budget:
                    yield from self._crash(world, slot)

    def _start(self, world: World, slot: int) -> Step:
        """Start a run; it reads the logs."""
        alone = not world.others_run(slot)
        world = world.disturbed()
        checkpoint = world.checkpoints[self.scenario.slots[slot]]
        driver = Driver(
            status=Status.RUNNING,
            runs=world.drivers[slot].runs + 1,
            calm=Calm.UNDISTURBED if alone else Calm.BY_OLDER,
            batch=checkpoint.commits,
            ranges=checkpoint.offsets[-1] if checkpoint.offsets else (),
        )
        if checkpoint.commits < len(checkpoint.offsets):
            again = driver._replace(batch=len(checkpoint.offsets) - 1)
            driver = self._call_sink(world, slot, again, 0)
        started = f"{NAMES[slot]} starts its run {driver.runs}"
        return Step(started, world.with_driver(slot, driver))

    def _run(self, world: World, slot: int) -> Iterator[Step]:
        driver = world.drivers[slot]
        match driver.phase:
            case Phase.PLAN:
                yield from self._plan(world, slot)
            case Phase.LOG_OFFSETS:
                yield self._log_offsets(world, slot, driver)
            case Phase.LOG_COMMIT:
                yield self._log_commit(world, slot)
            case _:
                yield from self._program(world, slot)

    def _plan(self, world: World, slot: int) -> Iterator[Step]:
        driver = world.drivers[slot]
        scenario = self.scenario
        if driver.batch >= len(scenario.plans):
            yield self._end(world, slot)
            return
        if driver.batch:
            starts = [end for _, end in driver.ranges]
        elif scenario.begins is None:
            starts = [offset_in(world.rows, row) for row in scenario.consumers]
        else:
            starts = list(scenario.begins)
        for plan in scenario.plans[driver.batch]:
            ranges = tuple(
                (start, min(start + rows, total))
                for start, rows, total in zip(starts, plan, scenario.totals, strict=True)
            )
            if any(plan) and all(start == end for start, end in ranges):
                yield self._end(world, slot)
                continue
            planned = driver._replace(ranges=ranges, phase=Phase.LOG_OFFSETS)
            if driver.batch:
                yield self._log_offsets(world, slot, planned)
            else:
                label = f"{NAMES[slot]} plans batch 0: {ranges}"
                yield Step(label, world.with_driver(slot, planned))

    def _log_offsets(self, world: World, slot: int, driver: Driver) -> Step:
        number = self.scenario.slots[slot]
        checkpoint = world.checkpoints[number]
        batch = driver.batch
        if len(checkpoint.offsets) != batch and (
            self.scenario.exclusive_logs or len(checkpoint.offsets) < batch
        ):
            return self._fail(world, slot, CONCURRENT)
        # Spark keeps the newest entries of this log in memory.
        before = world.drivers[slot].ranges if batch else None
        offsets = (*checkpoint.offsets[:batch], driver.ranges, *checkpoint.offsets[batch + 1 :])
        world = world.with_checkpoint(number, checkpoint._replace(offsets=offsets))
        if before is None or not self.scenario.places:
            driver = self._call_sink(world, slot, driver, 0)
        else:
            continuation = self.programs.start(SourceCommit(before))
            driver = driver._replace(phase=Phase.COMMIT_SOURCE, continuation=continuation)
        label = f"{NAMES[slot]} logs the offsets of batch {batch}: {driver.ranges}"
        return Step(label, world.with_driver(slot, driver))

    def _log_commit(self, world: World, slot: int) -> Step:
        driver = world.drivers[slot]
        number = self.scenario.slots[slot]
        check_delivered(self.scenario, world, number, driver.batch)
        if self.scenario.stateful and not driver.evaluated:
            return self._fail(world, slot, STATE_NOT_COMMITTED)
        checkpoint = world.checkpoints[number]
        if checkpoint.commits != driver.batch and self.scenario.exclusive_logs:
            return self._fail(world, slot, CONCURRENT)
        commits = max(checkpoint.commits, driver.batch + 1)
        world = world.with_checkpoint(number, checkpoint._replace(commits=commits))
        if self.scenario.faults.put_back and world.copy is None:
            values = tuple(world.rows[row][1] for row in self.scenario.ledgers)
            world = world._replace(copy=(values, world.applied))
        label = f"{NAMES[slot]} logs the commit of batch {driver.batch}"
        driver = driver._replace(
            phase=Phase.PLAN, batch=driver.batch + 1, evaluated=False, agreed=True
        )
        return Step(label, world.with_driver(slot, driver))

    def _end(self, world: World, slot: int) -> Step:
        """End a run that has nothing left to read."""
        driver = world.drivers[slot]
        if self.scenario.catches_up and driver.ranges and driver.phase is Phase.PLAN:
            continuation = self.programs.start(SourceCommit(driver.ranges))
            driver = driver._replace(phase=Phase.CATCH_UP, continuation=continuation)
            return Step(f"{NAMES[slot]} has nothing to plan", world.with_driver(slot, driver))
        check_finished(self.scenario, world, self.scenario.slots[slot])
        done = Driver(status=Status.FINISHED, runs=driver.runs)
        return Step(f"{NAMES[slot]} is done", world.with_driver(slot, done))

    def _program(self, world: World, slot: int) -> Iterator[Step]:
        """Answer what the code under test has asked."""
        driver = world.drivers[slot]
        asking = self.programs.outcome(driver.continuation)
        assert isinstance(asking, Asking)
        name = f"{self._run_name(slot, driver)}.{driver.batch}.{driver.sink}"
        if isinstance(asking.request, Begin):
            name = f"{name}.{asking.request.number}"
        if isinstance(asking.request, RunJob):
            if driver.job is None:
                yield self._start_job(world, slot, asking.request)
            return
        if isinstance(asking.request, Evaluate):
            world = self._evaluated(world, slot)
        for label, value, after in self.network.answers(world, asking.request, name):
            continuation = self.programs.resume(driver.continuation, value)
            yield self._resumed(after, slot, continuation, f"{NAMES[slot]} {label}")
            if (
                isinstance(value, Snapshot | Evaluated)
                and self.scenario.faults.requests
                and world.budget
            ):
                inside = self.programs.outcome(continuation).local_calls
                for failing in range(inside * len(LOCAL_FAILURES)):
                    lost = self.programs.resume(
                        driver.continuation, value._replace(failing=failing)
                    )
                    text = f"{NAMES[slot]} {label}, a call inside fails ({failing})"
                    yield self._resumed(after.disturbed(1), slot, lost, text)

    def _start_job(self, world: World, slot: int, job: RunJob) -> Step:
        if job.kept:
            label = f"{NAMES[slot]} has rows that are kept, sent by tasks"
            return Step(label, self.jobs.start(world, slot, job))
        world = self._evaluated(world, slot)
        evaluation = Evaluate(job.checkpoint, job.batch, job.ranges)
        label, answer, world = self.network.evaluate(world, evaluation)
        label = f"{NAMES[slot]} {label}"
        if answer in {TRIMMED, STATE_MISSING}:
            return self._answered(world, slot, answer, label)
        return Step(f"{label}, by tasks", self.jobs.start(world, slot, job))

    def _evaluated(self, world: World, slot: int) -> World:
        """Return the world in which a driver evaluates the frame; a run folds no state twice."""
        driver = world.drivers[slot]
        if self.scenario.into_one and self.scenario.stateful and driver.evaluated:
            raise ViolationError(Kind.STATE, f"batch {driver.batch} is evaluated twice in one run")
        return world.with_driver(slot, driver._replace(evaluated=True))

    def _answered(self, world: World, slot: int, answer: Any, label: str) -> Step:
        continuation = self.programs.resume(world.drivers[slot].continuation, answer)
        return self._resumed(world, slot, continuation, label)

    def _resumed(self, world: World, slot: int, continuation: int, label: str) -> Step:
        driver = world.drivers[slot]
        outcome = self.programs.outcome(continuation)
        if isinstance(outcome, Raised):
            known = (ExactlyOnceError, StateMissingError, JobFailedError)
            if not isinstance(outcome.error, known):
                raise outcome.error
            return self._fail(world, slot, *describe_error(outcome.error), label=label)
        if isinstance(outcome, Returned):
            if driver.phase is Phase.SINK:
                row, noted = outcome.value
                left = {**dict(driver.left), driver.sink: row}
                driver = driver._replace(left=tuple(sorted(left.items())))
                world = self._noted(world, slot, driver.sink, noted)
            driver = driver._replace(continuation=-1)
            if driver.phase is Phase.CATCH_UP:
                return self._end(world.with_driver(slot, driver), slot)
            if driver.phase is Phase.COMMIT_SOURCE:
                driver = self._call_sink(world, slot, driver, 0)
            elif driver.sink + 1 < len(self.scenario.sinks):
                driver = self._call_sink(world, slot, driver, driver.sink + 1)
            else:
                driver = driver._replace(phase=Phase.LOG_COMMIT, sink=0)
                label += "; the sink returns"
        else:
            driver = driver._replace(continuation=continuation)
        return Step(label, world.with_driver(slot, driver))

    def _noted(self, world: World, slot: int, sink: int, newest: int) -> World:
        """Return the world in which a sink has noted the newest batch that is committed."""
        number = self.scenario.slots[slot]
        checkpoint = world.checkpoints[number]
        noted = tuple(sorted({**dict(checkpoint.noted), sink: newest}.items()))
        return world.with_checkpoint(number, checkpoint._replace(noted=noted))

    def _call_sink(self, world: World, slot: int, driver: Driver, sink: int) -> Driver:
        checkpoint = world.checkpoints[self.scenario.slots[slot]]
        call = SinkCall(
            self._run_name(slot, driver),
            self.scenario.slots[slot],
            sink,
            driver.batch,
            driver.ranges,
            driver.agreed,
            dict(driver.left).get(sink, ""),
            dict(checkpoint.noted).get(sink, -1),
        )
        return driver._replace(phase=Phase.SINK, sink=sink, continuation=self.programs.start(call))

    def _run_name(self, slot: int, driver: Driver) -> str:
        return f"{NAMES[slot]}{driver.runs}"

    def _fail(self, world: World, slot: int, error: str, run: str = "", *, label: str = "") -> Step:
        """End a run with an error, which nobody but a violation of calm can blame it for."""
        driver = world.drivers[slot]
        alone = not world.others_run(slot)
        self.failures[error, alone] = self.failures.get((error, alone), 0) + 1
        text = f"{label}; {NAMES[slot]} fails: {error}".lstrip("; ")
        # A flow that is not one-to-one stays so; starting it again and again proves nothing.
        status = Status.STOPPED if error in self.scenario.misuse else Status.FAILED
        if error == "FencedError" and run == self._run_name(slot, driver):
            raise ViolationError(Kind.SELF_FENCED, text)
        if driver.calm is Calm.UNDISTURBED:
            if error not in self.scenario.tolerated | self.scenario.misuse:
                raise ViolationError(Kind.STUCK, text)
            status = Status.STOPPED
        ours = error not in (CONCURRENT, *self.scenario.tolerated)
        if self.scenario.survivors and driver.calm is Calm.BY_OLDER and ours:
            raise ViolationError(Kind.SURVIVOR, text)
        return Step(text, world.with_driver(slot, Driver(status=status, runs=driver.runs)))

    def _crash(self, world: World, slot: int) -> Iterator[Step]:
        driver = world.drivers[slot]
        dead = Driver(status=Status.DOWN, runs=driver.runs)
        alone = world.orphaned(slot) if self.scenario.faults.orphans else world.with_tasks(())
        down = alone.with_driver(slot, dead).disturbed(1)
        yield Step(f"{NAMES[slot]} crashes", down)
        if driver.continuation >= 0:
            asking = self.programs.outcome(driver.continuation)
            assert isinstance(asking, Asking)
            if isinstance(asking.request, Commit):
                label = (
                    f"{NAMES[slot]} sends the commit of {asking.request.transaction}, and crashes"
                )
                yield Step(label, self.network.launch(down, asking.request))
        number = self.scenario.slots[slot]
        checkpoint = world.checkpoints[number]
        if (
            self.scenario.faults.commit_log
            and driver.phase in (Phase.PLAN, Phase.CATCH_UP)
            and 0 < checkpoint.commits == len(checkpoint.offsets)
            and not world.others_run(slot)
        ):
            forgotten = checkpoint._replace(commits=checkpoint.commits - 1)
            label = f"{NAMES[slot]} crashes, and the newest entry of the commit log is lost"
            yield Step(label, down.with_checkpoint(number, forgotten))


def restored(checkpoint: Checkpoint) -> Iterator[Checkpoint]:
    """Yield the older copies of a checkpoint, each as it was right after a batch."""
    for length in range(checkpoint.commits):
        noted = tuple((sink, min(newest, length - 1)) for sink, newest in checkpoint.noted)
        yield Checkpoint(checkpoint.offsets[:length], length, checkpoint.states[:length], noted)
