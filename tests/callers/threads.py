"""Threads that take turns: one runs at a time, so that an example goes the same way every time."""

import threading
from collections.abc import Callable, Sequence

from tests.callers.mishaps import CrashedError

_STUCK_SECONDS = 0.5
"""After this time somebody takes the turn who should not have to: its owner waits for a lock of the sink."""


class Turns:
    """Runs jobs in threads, and lets another one run after so many requests.

    Args:
        jobs: what the threads do.
    """

    def __init__(self, jobs: Sequence[Callable[[], None]], period: int) -> None:
        self._jobs = jobs
        self._period = period
        self._alive = set(range(len(jobs)))
        self._turn = self._requests = 0
        self._changed = threading.Condition()
        self._mine = threading.local()
        self._raised: dict[int, BaseException] = {}

    def run(self) -> None:
        """Run all jobs to their ends.

        Raises:
            BaseException: the first error in the order of the jobs; a crash before all others.
        """
        threads = [
            threading.Thread(target=self._work, args=(number,)) for number in range(len(self._jobs))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        errors = [self._raised[number] for number in sorted(self._raised)]
        for error in sorted(errors, key=lambda error: not isinstance(error, CrashedError)):
            raise error

    def between(self) -> None:
        """Stand in front of a request: it may be the turn of another thread."""
        if not hasattr(self._mine, "number"):
            return
        with self._changed:
            self._requests += 1
            if self._requests % self._period == 0:
                self._pass_on()
            self._wait()

    def _work(self, number: int) -> None:
        self._mine.number = number
        with self._changed:
            self._wait()
        try:
            self._jobs[number]()
        except BaseException as error:  # noqa: BLE001 - raised by `run`
            self._raised[number] = error
        with self._changed:
            self._alive.discard(number)
            self._pass_on()

    def _wait(self) -> None:
        if not self._changed.wait_for(lambda: self._turn == self._mine.number, _STUCK_SECONDS):
            self._turn = self._mine.number

    def _pass_on(self) -> None:
        others = sorted(self._alive, key=lambda number: (number <= self._mine.number, number))
        self._turn = others[0] if others else -1
        self._changed.notify_all()
