"""The plan of a round: everything that is left to chance, drawn from its seed before it begins.

A round is one queue, a few queries over it, and some minutes of faults. The same seed, mode and number
give the same plan, whatever the machine; what the plan meets depends on how fast things happen.
"""

import random
from dataclasses import dataclass
from enum import StrEnum
from typing import Self

from tests.chaos.weather import Sky, Weather
from yt_exactly_once.config import DeliveryMode
from yt_exactly_once.observability import Event

HORIZON_SECONDS = 1800.0
"""A plan is drawn this far; a round that is shorter uses its beginning."""

_STATEFUL = (
    ("aggregation", True),
    ("aggregation", False),
    ("dedup", True),
    ("dedup", False),
    ("windowed", True),
    ("windowed", False),
)

_STATE_STORES = (
    "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider",
    "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
)

_TRIGGERS = (
    "",
    Event.BATCH_STARTED,
    Event.BATCH_COMPUTED,
    Event.TRANSACTION_STARTED,
    Event.ROWS_WRITTEN,
    Event.LEDGER_RECORDED,
    Event.COMMIT_OUTCOME_UNKNOWN,
    Event.TRANSACTION_COMMITTED,
    Event.BATCH_COMMITTED,
    Event.BATCH_SKIPPED,
)
"""What a driver must tell before it is struck; the empty one is any moment."""


class Kind(StrEnum):
    """Incidents, which befall processes and tables."""

    DRIVER_KILL = "driver killed"
    DRIVER_STOP = "driver stopped for a while"
    TAKEOVER = "driver stopped, replaced, woken"
    RIVAL = "second driver on the same checkpoints"
    COPY = "second driver on a copy of the checkpoints"
    WORKER_KILL = "Python process of Spark killed"
    TASK_FAILURE = "task failed in user code"
    TASK_KILL = "worker killed in the middle of a task"
    PROXY_KILL = "proxy killed"
    UNMOUNT = "table unmounted"
    TRIM = "queue trimmed"


DRIVER_KINDS = frozenset({Kind.DRIVER_KILL, Kind.DRIVER_STOP, Kind.TAKEOVER, Kind.RIVAL, Kind.COPY})


@dataclass(frozen=True)
class Rates:
    """Incidents per minute.

    Attributes:
        kills: of drivers, in whatever way; each costs the boot of another one.
        stops: of drivers, for a while.
    """

    kills: float = 1.0
    stops: float = 8.0

    def of(self, kind: Kind) -> float:
        return {
            Kind.DRIVER_KILL: self.kills * 0.55,
            Kind.TAKEOVER: self.kills * 0.15,
            Kind.RIVAL: self.kills * 0.15,
            Kind.COPY: self.kills * 0.15,
            Kind.DRIVER_STOP: self.stops,
            Kind.WORKER_KILL: 2.0,
            Kind.TASK_FAILURE: 3.0,
            Kind.TASK_KILL: 2.0,
            Kind.PROXY_KILL: 1.5,
            Kind.UNMOUNT: 2.0,
            Kind.TRIM: 6.0,
        }[kind]


@dataclass(frozen=True)
class Incident:
    """Something that befalls a process or a table.

    Attributes:
        at: seconds since the round began.
        seconds: how long it lasts, where it lasts.
        choice: number between 0 and 1 that picks the victim among the candidates.
        trigger: event of a driver to wait for; empty for none.
        early: do not wait until the driver has committed something.
    """

    at: float
    kind: Kind
    seconds: float
    choice: float
    trigger: str
    early: bool


@dataclass(frozen=True)
class QueryPlan:
    """One query of a round.

    Attributes:
        by_source: leave the coordinates of the source in the frame.
        dyn_batch_size: rows per request.
    """

    kind: str
    is_sorted: bool
    by_source: bool
    dyn_batch_size: int
    wire_format: str

    @property
    def name(self) -> str:
        """Name within the round."""
        source = "_by_source" if self.by_source else ""
        return f"{self.kind}{source}_{'sorted' if self.is_sorted else 'ordered'}"


@dataclass(frozen=True, kw_only=True)
class RoundPlan:
    """Everything that is left to chance in a round.

    Attributes:
        seed: text that all choices come from.
        rows_per_partition: rows of a batch from each queue partition, at most.
        even: whether every partition is fed alike; event times then never run apart.
        weathers: one after the other.
    """

    mode: DeliveryMode
    number: int
    seed: str
    partitions: int
    tablets: int
    rows_per_partition: int
    even: bool
    state_store: str
    queries: tuple[QueryPlan, ...]
    weathers: tuple[Weather, ...]
    incidents: tuple[Incident, ...]

    @classmethod
    def draw(cls, seed: int, mode: DeliveryMode, number: int, rates: Rates) -> Self:
        name = f"{seed}/{mode.value}/{number}"
        # Two drivers with checkpoints of their own cut batches unlike; only a transaction sorts that out.
        kinds = [
            kind for kind in Kind if mode is DeliveryMode.TRANSACTIONAL or kind is not Kind.COPY
        ]
        chance = random.Random(f"{name}/set-up")
        queries = tuple(_queries(chance, mode))
        windowed = any(query.kind == "windowed" for query in queries)
        tables = tuple(
            path
            for query in queries
            for path in (target_path(mode, number, query.name),)
            for path in (path, f"{path}_ledger", f"{path}_consumer")
        )
        return cls(
            mode=mode,
            number=number,
            seed=name,
            partitions=chance.randint(1, 4),
            tablets=chance.randint(1, 4),
            rows_per_partition=chance.choice((60, 120, 250, 500)),
            even=windowed or chance.random() < 0.5,
            state_store=chance.choice(_STATE_STORES),
            queries=queries,
            weathers=tuple(_weathers(name, mode, tables)),
            incidents=tuple(
                sorted(
                    (item for kind in kinds for item in _incidents(name, kind, rates.of(kind))),
                    key=lambda incident: incident.at,
                )
            ),
        )

    @property
    def folder(self) -> str:
        """Where its tables are."""
        return folder_path(self.mode, self.number)


def folder_path(mode: DeliveryMode, number: int) -> str:
    return f"//chaos/{mode.value}-{number}"


def target_path(mode: DeliveryMode, number: int, query: str) -> str:
    return f"{folder_path(mode, number)}/{query}"


def _queries(chance: random.Random, mode: DeliveryMode) -> list[QueryPlan]:
    if mode is DeliveryMode.IDEMPOTENT:
        kinds = [("stateless", False), ("stateless", False), ("stateless", True)]
    else:
        kinds = [("stateless", chance.random() < 0.5), *chance.sample(_STATEFUL, 2)]
    idempotent = mode is DeliveryMode.IDEMPOTENT
    return [
        QueryPlan(
            kind=kind,
            is_sorted=is_sorted,
            by_source=idempotent and place == 1,
            dyn_batch_size=chance.choice((50, 200, 1000)),
            wire_format=chance.choice(("auto", "yson")),
        )
        for place, (kind, is_sorted) in enumerate(kinds)
    ]


def _weathers(name: str, mode: DeliveryMode, tables: tuple[str, ...]) -> list[Weather]:
    sky = Sky(random.Random(f"{name}/weather"), mode, tables)
    weathers: list[Weather] = []
    while sum(weather.seconds for weather in weathers) < HORIZON_SECONDS:
        weathers.append(sky.draw())
    return weathers


def _incidents(name: str, kind: Kind, rate: float) -> list[Incident]:
    chance = random.Random(f"{name}/{kind.value}")
    incidents: list[Incident] = []
    moment = 0.0
    while rate and moment < HORIZON_SECONDS:
        moment += chance.expovariate(rate / 60)
        incidents.append(
            Incident(
                at=moment,
                kind=kind,
                seconds=chance.uniform(0.2, 3.0),
                choice=chance.random(),
                trigger=str(chance.choice(_TRIGGERS)),
                early=chance.random() < 0.2,
            )
        )
    return incidents
