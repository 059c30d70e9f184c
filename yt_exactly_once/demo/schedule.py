"""When to kill: a seeded list of moments, each certain to come while there is still work to do.

A moment is counted in the events of the child, not in seconds since its start. So on fast and slow
machines every life of the child makes progress, and every kill hits work in flight.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

from yt_exactly_once.errors import ConfigError
from yt_exactly_once.observability import Event

MOST_COMMITS = 2
"""Committed batches, of both queries together, that a life waits for before its moment."""

LAST_CALL = MOST_COMMITS + 2
"""Committed batches after which a life is ended at once, whatever its moment was."""

BATCHES_PER_KILL = 3
"""Batches of each query per kill. A life commits at most `LAST_CALL` and one more of each query that
nobody has heard of, so that work is left for every kill."""

FEWEST_BATCHES = 16

LAST_LIFE_ROWS = 8
"""How many times as many rows a batch of the last life has. Nobody is going to kill it."""


@dataclass(frozen=True)
class Kind:
    """A sort of moment.

    Attributes:
        trigger: the event that starts the countdown.
        longest: the longest countdown, in seconds.
    """

    what: str
    trigger: Event
    longest: float


KINDS = (
    Kind("soon after a batch began", Event.BATCH_STARTED, 0.15),
    Kind("while its rows were being written", Event.BATCH_COMPUTED, 0.1),
    Kind("between the commit and Spark's notice of it", Event.BATCH_COMMITTED, 0.0),
    Kind("at any time", Event.BATCH_STARTED, 0.6),
)
"""Every one of them occurs when there are at least as many kills."""


@dataclass(frozen=True)
class Moment:
    """When one life of the child ends.

    Attributes:
        kind: sort of moment.
        commits: batches that must be committed in this life before the trigger counts.
        delay: seconds between the trigger and the kill.
    """

    kind: Kind
    commits: int
    delay: float


def moments(kills: int, seed: int) -> Iterator[Moment]:
    """Yield the moments of that many kills; the same seed gives the same ones."""
    chance = random.Random(seed)  # noqa: S311 - not for secrets
    kinds: list[Kind] = []
    for _ in range(kills):
        if not kinds:
            kinds = chance.sample(KINDS, len(KINDS))
        kind = kinds.pop()
        yield Moment(kind, chance.randint(1, MOST_COMMITS), chance.uniform(0, kind.longest))


def rows_per_batch(partition_rows: int, kills: int) -> int:
    """Return rows of a partition per batch; raise `ConfigError` if they are too few for so many kills."""
    batches = max(FEWEST_BATCHES, BATCHES_PER_KILL * (kills + 1))
    if partition_rows < batches:
        raise ConfigError(
            f"{kills} kills need {batches} batches, and the longest queue partition has only "
            f"{partition_rows} rows",
            remedy="Load more rows, or ask for fewer kills",
        )
    return partition_rows // batches


class Countdown:
    """Watches the events of one life for its moment: `due`, by the clock of `notice`, or still open.

    Without a moment it never is.
    """

    def __init__(self, moment: Moment | None) -> None:
        self.due: float | None = None
        self._moment = moment
        self._commits = 0

    def is_over(self, now: float) -> bool:
        """Whether it is time to kill."""
        return self.due is not None and self.due <= now

    def notice(self, event: str, now: float) -> None:
        """Take the next event, heard now."""
        if self._moment is None:
            return
        enough = self._commits >= self._moment.commits
        if self.due is None and enough and event == self._moment.kind.trigger:
            self.due = now + self._moment.delay
        if event == Event.BATCH_COMMITTED:
            self._commits += 1
            if self._commits == LAST_CALL:
                self.due = now
