"""What is done to a job, and where: the attacks that fit the steps that it takes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from yt_exactly_once.testing.steps import BEFORE_CALL, ONE_TASK_LEFT, TASK_ENDS, Kind, Step


class At(StrEnum):
    """Where a job is attacked."""

    CALL = "call"
    """The driver is killed before the function is called, and after it has returned."""

    LINES = "lines"
    """The driver is killed before each line of the function, in its own file."""

    REQUESTS = "requests"
    """The driver is killed after each request over HTTP."""

    ANSWERS = "answers"
    """The answer to each request over HTTP is lost, and nothing is killed."""

    TASKS = "tasks"
    """The driver is killed when all tasks but one have handed on their rows. And each task that runs Python
    fails once, after its work is done, so Spark runs it again."""

    EVENTS = "events"
    """The driver is killed at each event of a sink of this package."""


EVERYWHERE = (At.CALL, At.LINES, At.REQUESTS, At.ANSWERS, At.TASKS)


class Manner(StrEnum):
    """How an attack is carried out."""

    KILL = "kill"
    KILL_LATER = "kill later"
    LOSE = "lose"
    FAIL_TASKS = "fail tasks"


@dataclass(frozen=True)
class Attack:
    """One attack. As text it says what is done.

    Attributes:
        step: at which it is done.
        occurrence: at which time that the batch takes the step, from 1.
        seconds: of `Manner.KILL_LATER`, after the call.
    """

    manner: Manner
    step: Step
    occurrence: int = 1
    seconds: float = 0.0

    def __str__(self) -> str:
        """Return what is done, in words."""
        again = f" (time {self.occurrence})" if self.occurrence > 1 else ""
        if self.manner is Manner.FAIL_TASKS:
            return "every task fails once, after its work is done"
        if self.manner is Manner.KILL_LATER:
            return f"killed {self.seconds:g} s after the call has begun"
        if self.manner is Manner.LOSE:
            return f"lost the answer to {self.step.text}{again}"
        when = {Kind.LINE: "before ", Kind.ANSWER: "after ", Kind.EVENT: "at "}
        return f"killed {when.get(self.step.kind, '')}{self.step.text}{again}"


_FITTING = {
    Kind.CALL: ((At.CALL, Manner.KILL),),
    Kind.LINE: ((At.LINES, Manner.KILL),),
    Kind.EVENT: ((At.EVENTS, Manner.KILL),),
    Kind.ANSWER: ((At.REQUESTS, Manner.KILL), (At.ANSWERS, Manner.LOSE)),
}


def attacks_of(steps: Mapping[Step, int], at: Iterable[At | float]) -> Iterator[Attack]:
    """Yield the attacks that fit the steps of an undisturbed batch.

    A step that is taken several times is attacked the first and the last time.

    Args:
        steps: how often each one was taken.
        at: where; a number is the seconds after which the driver is killed in the call.
    """
    chosen = list(at)
    for step, count in steps.items():
        for where, manner in _FITTING.get(step.kind, ()):
            if where in chosen:
                yield from (Attack(manner, step, time) for time in dict.fromkeys([1, count]))
    if At.TASKS in chosen:
        yield Attack(Manner.KILL, ONE_TASK_LEFT)
    if At.TASKS in chosen and TASK_ENDS in steps:
        yield Attack(Manner.FAIL_TASKS, TASK_ENDS)
    for seconds in chosen:
        if not isinstance(seconds, At):
            yield Attack(Manner.KILL_LATER, BEFORE_CALL, seconds=seconds)
