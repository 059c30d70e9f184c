"""The lives of a driver, as under a supervisor with a warm standby.

After each kill a new child continues the work. It starts Spark while the child before it still runs, and
hears of its work after the kill. A child in which Spark gives up on a Python process, because the machine is
busy, is replaced. If a child ends in another way, the whole undertaking has failed.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

from yt_exactly_once.demo.schedule import Countdown, Moment
from yt_exactly_once.testing.child import BUSY, ERROR, EVENT, QUERY_FAILED, Child

SILENCE_SECONDS = 300.0
"""A child that tells nothing for so long is taken for stuck."""

_STARTS = 4
"""How often in a row a driver may end because its machine is too busy."""

Heard = Callable[[dict[str, Any]], None]
"""Takes an event of a child."""


class _BusyMachineError(Exception):
    """Spark gave up on a Python process that did not start in time."""


class Supervision:
    """The lives of the child, one after the other, and the spare one that waits for the next kill.

    Entering it starts the first child. Leaving it leaves no process behind.

    Args:
        module: of the driver; `standby.begin` is the first thing it calls.
        folder: for its files and its log.
        say: takes a line for the user.
    """

    def __init__(self, module: str, folder: Path, say: Callable[[str], None]) -> None:
        self._module = module
        self._folder = folder
        self._say = say
        self._standby: Child | None = None

    def __enter__(self) -> Self:
        self._standby = self._child()
        return self

    def __exit__(self, *_: object) -> None:
        if self._standby is not None:
            with self._standby:
                self._standby = None

    def live(self, work: str, moment: Moment | None, heard: Heard, *, is_last: bool) -> None:
        """Let a child do its work; let another one try if the machine was too busy for it.

        Args:
            work: a line for the child.
            moment: when it is killed; without one it must end by itself.
            heard: told of each event, after a kill at that event.
            is_last: no other life follows, so no spare child is started.

        Raises:
            ChildFailedError: it ended otherwise.
        """
        for start in range(1, _STARTS + 1):
            child = self._standby or self._child()
            self._standby = None
            with child:
                child.send(work)
                if not is_last:
                    self._standby = self._child()
                try:
                    self._follow(child, moment, heard)
                except _BusyMachineError as error:
                    if start == _STARTS:
                        raise child.failure("The queries failed", str(error)) from None
                    self._say(
                        "Spark gave up on a Python process after ten seconds: this machine is busy. "
                        "The driver starts again"
                    )
                else:
                    return

    def _child(self) -> Child:
        def argument(report: int) -> str:
            return json.dumps({"data_dir": str(self._folder), "report": report})

        return Child(self._module, argument, self._folder / "queries.log")

    def _follow(self, child: Child, moment: Moment | None, heard: Heard) -> None:
        """Kill a child at its moment, or wait for its end."""
        countdown = Countdown(moment)
        while not countdown.is_over(time.monotonic()):
            patience = SILENCE_SECONDS
            if countdown.due is not None:
                patience = countdown.due - time.monotonic()
            try:
                event = child.next_event(patience)
            except EOFError:
                child.require_success()
                if moment is None:
                    break
                raise child.failure(
                    "The queries finished before they could be killed as often as asked"
                ) from None
            if event is not None:
                now = time.monotonic()
                countdown.notice(event[EVENT], now)
                if countdown.is_over(now):
                    # Before anything is drawn: what it is to hit may take a millisecond.
                    child.kill()
                heard(event)
                _require_well(child, event)
            elif countdown.due is None:
                raise child.failure(
                    f"The queries have not told anything for {SILENCE_SECONDS:.0f} s"
                )
        if moment is not None:
            child.kill()


def _require_well(child: Child, event: dict[str, Any]) -> None:
    """Raise if an event reports a failure, and `_BusyMachineError` if a new start may repair it."""
    if event[EVENT] == QUERY_FAILED:
        if BUSY in event[ERROR]:
            raise _BusyMachineError(event[ERROR])
        raise child.failure("The queries failed", event[ERROR])
