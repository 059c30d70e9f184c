"""Timing a piece of work, repeated."""

from __future__ import annotations

import gc
import time
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True)
class Timing:
    """How long a piece of work takes.

    Attributes:
        part: which part of the package.
        work: what it did.
        seconds: of each repetition.
        rows: rows of one repetition; 0 where rows are not the measure.
        bytes: bytes of one repetition; 0 where bytes are not the measure.
        requests: round trips of one repetition.
    """

    part: str
    work: str
    seconds: tuple[float, ...]
    rows: int = 0
    bytes: int = 0
    requests: int = 0

    @property
    def middle(self) -> float:
        """Median seconds."""
        return median(self.seconds)


def timed(work: Callable[[], object], repetitions: int) -> tuple[float, ...]:
    """Repeat the work, after one time that does not count, with the garbage collector off."""
    work()
    seconds = []
    gc.disable()
    try:
        for _ in range(repetitions):
            began = time.perf_counter()
            work()
            seconds.append(time.perf_counter() - began)
    finally:
        gc.enable()
    return tuple(seconds)
