"""Timing a piece of work, repeated."""

from __future__ import annotations

import gc
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

BARE_LOOP = "bare loop that decodes"
SOURCE = "the source's reader"
"""The two ways to pull that are compared."""


@dataclass(frozen=True)
class Timing:
    """How long a piece of work takes.

    Attributes:
        part: which part of the package.
        work: what it did.
        seconds: of each repetition.
        cpu_seconds: processor time of this process in each repetition.
        rows: rows of one repetition; 0 where rows are not the measure.
        bytes: bytes of one repetition; 0 where bytes are not the measure.
        requests: round trips of one repetition.
    """

    part: str
    work: str
    seconds: tuple[float, ...]
    cpu_seconds: tuple[float, ...]
    rows: int = 0
    bytes: int = 0
    requests: int = 0

    @property
    def middle(self) -> float:
        """Median seconds."""
        return median(self.seconds)


@dataclass(frozen=True)
class Measured:
    """What the repetitions of a piece of work took.

    Attributes:
        seconds: of wall time.
        cpu_seconds: of this process's processor time.
    """

    seconds: tuple[float, ...]
    cpu_seconds: tuple[float, ...]


def in_turn(works: Sequence[Callable[[], object]], repetitions: int) -> list[Measured]:
    """Repeat several pieces of work, one of each at a time, so that drift hits all alike.

    Every round counts, so each must have been done before; the garbage collector is off.
    """
    taken: list[list[tuple[float, float]]] = [[] for _ in works]
    order = list(range(len(works)))
    chance = random.Random(0)
    gc.disable()
    try:
        for _ in range(repetitions):
            # The memory that a piece of work leaves behind makes the next one cheaper or dearer.
            chance.shuffle(order)
            for place in order:
                work, times = works[place], taken[place]
                began, busy = time.perf_counter(), time.process_time()
                work()
                times.append((time.perf_counter() - began, time.process_time() - busy))
    finally:
        gc.enable()
    return [
        Measured(tuple(wall for wall, _ in times), tuple(cpu for _, cpu in times))
        for times in taken
    ]
