"""Spark's scheduler: the tasks of a job, those that are started again, and those that outlive it.

Every task attempt may be stopped anywhere for any time. One that its driver has given up, or whose
driver is dead, goes on all the same: nothing stops a process that nobody can reach.
"""

from collections.abc import Callable, Iterator
from typing import Any

from tests.model.continuations import Asking, Continuations, Raised
from tests.model.network import Network
from tests.model.scenario import Scenario
from tests.model.tasks import JobFailed, RunJob, RunTask
from tests.model.world import ORPHAN, Job, Task, World
from yt_exactly_once.errors import ExactlyOnceError

Happens = tuple[str, "World"]
"""Label and the world after it."""


class Jobs:
    """Everything that can happen to the tasks of all drivers.

    Args:
        scenario: which world.
        resume: gives a driver the outcome of its job.
    """

    def __init__(
        self,
        scenario: Scenario,
        network: Network,
        programs: Continuations,
        resume: Callable[[World, int, Any, str], Happens],
    ) -> None:
        self._scenario = scenario
        self._network = network
        self._programs = programs
        self._resume = resume

    def start(self, world: World, slot: int, request: RunJob) -> World:
        """Return the world in which the tasks of a job run."""
        count = self._scenario.partitions(request.number)
        driver = world.drivers[slot]._replace(job=Job((None,) * count, (0,) * count, (0,) * count))
        world = world.with_driver(slot, driver)
        for partition in range(count):
            world = self._begin(
                world, slot, partition, self._programs.start(RunTask(request, partition))
            )
        return world

    def steps(self, world: World) -> Iterator[Happens]:
        """Yield what can happen to tasks.

        Raises:
            ViolationError: a step breaks an invariant.
        """
        for number, task in enumerate(world.tasks):
            if task in world.tasks[:number]:
                continue
            asking = self._programs.outcome(task.continuation)
            assert isinstance(asking, Asking)
            others = world.with_tasks((*world.tasks[:number], *world.tasks[number + 1 :]))
            if task.slot == ORPHAN:
                others = others.disturbed_by_older()
            for label, answer, after in self._network.answers(others, asking.request, ""):
                yield self._resumed(
                    after, task, self._programs.resume(task.continuation, answer), label
                )
            if self._scenario.faults.tasks and world.budget and task.slot != ORPHAN:
                yield from self._faults(others.disturbed(1), task, asking.request)

    def _faults(self, others: World, task: Task, request: Any) -> Iterator[Happens]:
        name = _name(task)
        yield self._failed(others, task, "WorkerDied", f"{name} dies")
        launched = self._network.launch_request(others, request)
        if launched != others:
            yield self._failed(launched, task, "WorkerDied", f"{name} sends {request}, and dies")
        both = others.with_tasks((*others.tasks, task))
        yield f"{name} is started once more", self._again(both, task, attempt=1)
        if self._scenario.reruns:
            # Attempts begin at 0 again; what the first run of the stage has sent is not taken back.
            alone = others.with_tasks((*others.tasks, task._replace(slot=ORPHAN)))
            yield f"the stage of {name} runs again", self._again(alone, task, attempt=0)
        lost = others.with_tasks((*others.tasks, task._replace(slot=ORPHAN)))
        yield self._failed(lost, task, "ExecutorLost", f"{name} is taken for dead")

    def _resumed(self, world: World, task: Task, continuation: int, label: str) -> Happens:
        outcome = self._programs.outcome(continuation)
        label = f"{_name(task)} {label}"
        if isinstance(outcome, Asking):
            return label, world.with_tasks((*world.tasks, task._replace(continuation=continuation)))
        if isinstance(outcome, Raised):
            if not isinstance(outcome.error, ExactlyOnceError):
                raise outcome.error
            return self._failed(world, task, type(outcome.error).__name__, label)
        return self._finished(world, task, outcome.value, f"{label}; it ends")  # type: ignore[attr-defined]

    def _finished(self, world: World, task: Task, value: Any, label: str) -> Happens:
        if task.slot == ORPHAN:
            return label, world
        driver = world.drivers[task.slot]
        assert driver.job is not None
        reports = _put(driver.job.reports, task.partition, value)
        world = self._given_up(world, task)
        if None in reports:
            job = driver.job._replace(reports=reports)
            return label, world.with_driver(task.slot, driver._replace(job=job))
        world = world.with_driver(task.slot, driver._replace(job=None))
        together = tuple(report for each in reports for report in each)
        return self._resume(world, task.slot, together, label)

    def _failed(self, world: World, task: Task, error: str, label: str) -> Happens:
        label = f"{label}; {_name(task)} fails: {error}"
        if task.slot == ORPHAN or any(task[:2] == other[:2] for other in world.tasks):
            return label, world
        driver = world.drivers[task.slot]
        assert driver.job is not None
        count = driver.job.failures[task.partition] + 1
        if count == self._scenario.task_attempts:
            world = world.with_driver(task.slot, driver._replace(job=None)).orphaned(task.slot)
            return self._resume(world, task.slot, JobFailed(error), label)
        job = driver.job._replace(failures=_put(driver.job.failures, task.partition, count))
        world = world.with_driver(task.slot, driver._replace(job=job))
        return label, self._again(world, task, attempt=1)

    def _again(self, world: World, task: Task, *, attempt: int) -> World:
        """Start a further attempt of a task; its number and its name matter in one transaction only."""
        key: RunTask = self._programs.key(task.continuation)
        if self._scenario.reruns:
            driver = world.drivers[task.slot]
            assert driver.job is not None
            count = driver.job.launched[task.partition] + 1
            job = driver.job._replace(launched=_put(driver.job.launched, task.partition, count))
            world = world.with_driver(task.slot, driver._replace(job=job))
            key = key._replace(copy=count)
        if self._scenario.into_one:
            key = key._replace(attempt=attempt)
        return self._begin(world, task.slot, task.partition, self._programs.start(key))

    def _begin(self, world: World, slot: int, partition: int, continuation: int) -> World:
        """Start a task; one may end, or fail, without asking for anything."""
        return self._resumed(world, Task(slot, partition, continuation), continuation, "starts")[1]

    @staticmethod
    def _given_up(world: World, done: Task) -> World:
        """Let the other attempts of a task go on unheard."""
        return world.with_tasks(
            other._replace(slot=ORPHAN) if other[:2] == done[:2] else other for other in world.tasks
        )


def _put(values: tuple[Any, ...], place: int, value: Any) -> tuple[Any, ...]:
    return (*values[:place], value, *values[place + 1 :])


def _name(task: Task) -> str:
    return f"a task of partition {task.partition}" + (" (orphan)" if task.slot == ORPHAN else "")
