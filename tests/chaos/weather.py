"""Weather: what befalls the requests of the drivers, as fault rules of the embedded cluster.

A weather lasts some seconds and is drawn at random from a menu; a drizzle of every kind of fault goes on
in all of them. Rules name commands and tables that only drivers use, so that neither the runner's own
requests nor its counts are touched.
"""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from tests.chaos.messages import LEASE_SECONDS
from yt_exactly_once.config import DeliveryMode

Rule = dict[str, Any]

SHORTEST_SECONDS, LONGEST_SECONDS = 6.0, 14.0
LONGEST_HOLD = 3.0
"""Seconds after which no request that was held back can land any more."""

COMMIT = "commit_transaction"
INSERT = "insert_rows"
PUSH = "push_queue_producer"
CREATE_SESSION = "create_queue_producer_session"
START = "start_transaction"
LOOKUP = "lookup_rows"
PULL = "pull_queue_consumer"
BOUNDS = "execute_batch"

READS = (LOOKUP, PULL, BOUNDS)
WRITES = (START, INSERT, COMMIT, CREATE_SESSION, PUSH)
LATE_ERROR = "late_error"

CONFLICT = 1700
NOT_MOUNTED = 1702
OVERLOAD = 904
UNAVAILABLE = 105
GONE = 11000
UNKNOWN = 98_765
"""A code that no table has."""


@dataclass(frozen=True)
class Weather:
    """What happens to requests for a while."""

    name: str
    seconds: float
    rules: tuple[Rule, ...]


@dataclass(frozen=True)
class Sky:
    """Draws weathers for one round."""

    chance: random.Random
    mode: DeliveryMode
    tables: tuple[str, ...]

    def draw(self) -> Weather:
        name, build = self.chance.choice(sorted(_MENU.items()))
        seconds = self.chance.uniform(SHORTEST_SECONDS, LONGEST_SECONDS)
        return Weather(name, seconds, (*build(self), *_drizzle(self)))

    @property
    def writes(self) -> tuple[str, ...]:
        """Commands that change something, but for inserts, in this mode."""
        sessions = (PUSH, CREATE_SESSION) if self.mode is DeliveryMode.IDEMPOTENT else ()
        return (START, COMMIT, *sessions)

    def rules(
        self, action: str, command: str, probability: float, **attributes: Any
    ) -> Iterator[Rule]:
        """Yield the rules that spoil a command with some probability."""
        for path in self.tables if command == INSERT else ("",):
            yield {
                "action": action,
                "command": command,
                "count": None,
                "probability": probability,
                "seed": self.chance.randrange(1 << 30),
                **({"match": {"path": path}} if path else {}),
                **attributes,
            }

    def several(
        self, action: str, commands: tuple[str, ...], probability: float, **attributes: Any
    ) -> Iterator[Rule]:
        """Yield the rules of several commands."""
        for command in commands:
            yield from self.rules(action, command, probability, **attributes)


def _drizzle(sky: Sky) -> Iterator[Rule]:
    commands = (INSERT, *sky.writes, *READS)
    for action in ("lose_answer", "lose_request", "unavailable"):
        yield from sky.several(action, tuple(sky.chance.sample(commands, 3)), 0.12)
    slow = sky.chance.choice(commands)
    yield from sky.rules("delay", slow, 0.2, seconds=round(sky.chance.uniform(0.02, 0.3), 3))
    # In every weather, so that each command meets it in a short round, too.
    yield from sky.rules(LATE_ERROR, COMMIT, 0.15, code=UNKNOWN)
    others = (name for name in sky.writes if name != COMMIT)
    yield from sky.several(LATE_ERROR, (INSERT, *others), 0.05, code=OVERLOAD)


def _lost_answers(sky: Sky) -> Iterator[Rule]:
    yield from sky.rules("lose_answer", COMMIT, 0.8)
    others = tuple(name for name in sky.writes if name != COMMIT)
    yield from sky.several("lose_answer", (INSERT, *others), 0.35)
    yield from sky.several("lose_answer", READS, 0.15)


def _lost_requests(sky: Sky) -> Iterator[Rule]:
    yield from sky.rules("lose_request", COMMIT, 0.8)
    yield from sky.several("lose_request", (INSERT, *READS), 0.2)


def _late_landings(sky: Sky) -> Iterator[Rule]:
    """Requests whose client has given up, and that are carried out all the same."""
    for command in sky.writes[1:]:
        seconds = sky.chance.uniform(0.05, 0.8 if command == COMMIT else LONGEST_HOLD)
        share = 0.7 if command == COMMIT else 0.3
        yield from sky.rules("hold", command, share, seconds=round(seconds, 3))
    yield from sky.rules("hold", INSERT, 0.15, seconds=round(sky.chance.uniform(0.05, 2), 3))


def _conflicts(sky: Sky) -> Iterator[Rule]:
    conflict = {"code": CONFLICT, "message": "Row lock conflict"}
    yield from sky.rules("error", COMMIT, 0.85, **conflict)
    if sky.mode is not DeliveryMode.TRANSACTIONAL:
        yield from sky.rules("error", INSERT, 0.4, **conflict)
    if sky.mode is DeliveryMode.IDEMPOTENT:
        yield from sky.rules("error", PUSH, 0.4, **conflict)


def _overload(sky: Sky) -> Iterator[Rule]:
    yield from sky.rules("unavailable", START, 0.4)
    yield from sky.several("unavailable", READS, 0.25)
    yield from sky.rules("error", INSERT, 0.25, code=OVERLOAD)
    yield from sky.rules("error", COMMIT, 0.5, code=UNAVAILABLE)
    yield from sky.rules("error", COMMIT, 0.4, code=NOT_MOUNTED)


def _late_errors(sky: Sky) -> Iterator[Rule]:
    """Requests that are carried out, and answered with an error that proves nothing."""
    expired = {"code": 1, "message": "Transaction could not be pinged within timeout"}
    yield from sky.rules(LATE_ERROR, COMMIT, 0.3, **expired)
    for code in (UNKNOWN, UNAVAILABLE, GONE):
        yield from sky.rules(LATE_ERROR, COMMIT, 0.2, code=code)
    others = tuple(name for name in sky.writes if name != COMMIT)
    for command in (INSERT, *others):
        code = sky.chance.choice((UNKNOWN, UNAVAILABLE, OVERLOAD))
        yield from sky.rules(LATE_ERROR, command, 0.2, code=code)


def _slowness(sky: Sky) -> Iterator[Rule]:
    for command in (INSERT, *sky.writes, *READS):
        seconds = round(sky.chance.uniform(0.02, 0.25), 3)
        yield from sky.rules("delay", command, 0.5, seconds=seconds)


def _expiring_leases(sky: Sky) -> Iterator[Rule]:
    late = round(LEASE_SECONDS * sky.chance.uniform(1.1, 1.5), 3)
    yield from sky.several("delay", (INSERT,), 0.03, seconds=late)
    yield from sky.several("expire_transaction", (COMMIT, INSERT), 0.4)


def _dying_proxies(sky: Sky) -> Iterator[Rule]:
    commands = sky.chance.sample((INSERT, *sky.writes), 2)
    for command, when in zip(commands, ("before", "after"), strict=True):
        (rule, *_) = sky.rules("kill_proxy", command, 0.2, when=when)
        yield {**rule, "count": 1}


_MENU: dict[str, Callable[[Sky], Iterator[Rule]]] = {
    "conflicts": _conflicts,
    "dying proxies": _dying_proxies,
    "expiring leases": _expiring_leases,
    "late errors": _late_errors,
    "late landings": _late_landings,
    "lost answers": _lost_answers,
    "lost requests": _lost_requests,
    "overload": _overload,
    "slowness": _slowness,
}
