"""What is to be done when: a list of calls with their moments, carried out on the caller's thread."""

from __future__ import annotations

import heapq
import itertools
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class Agenda:
    """Calls to come, by time since its making."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._calls: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()

    @property
    def now(self) -> float:
        """Seconds since the beginning."""
        return time.monotonic() - self._began

    def at(self, moment: float, call: Callable[[], None]) -> None:
        """Note a call for a moment."""
        heapq.heappush(self._calls, (moment, next(self._order), call))

    def after(self, seconds: float, call: Callable[[], None]) -> None:
        """Note a call for some time from now."""
        self.at(self.now + seconds, call)

    def run_due(self) -> None:
        """Carry out everything whose moment has come."""
        while self._calls and self._calls[0][0] <= self.now:
            heapq.heappop(self._calls)[2]()

    def seconds_left(self, longest: float) -> float:
        """Return how long nothing is due, at most so many seconds."""
        if not self._calls:
            return longest
        return min(longest, max(0.0, self._calls[0][0] - self.now))

    def clear(self) -> None:
        """Forget all calls."""
        self._calls.clear()
