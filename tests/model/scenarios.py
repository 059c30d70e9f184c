"""The scenarios that are explored, and the two bounds: one for every run, and a deeper one.

`YT_EXACTLY_ONCE_MODEL=deep` selects the deeper one, which takes minutes; `python -m tests.model [deep]`
prints what was explored.
"""

import os
from dataclasses import replace
from functools import partial
from typing import Any

from tests.model.invariants import Kind
from tests.model.scenario import Faults, Scenario, SinkSpec, Spread
from yt_exactly_once.config import DeliveryMode

DEEP_VARIABLE = "YT_EXACTLY_ONCE_MODEL"

ROW = ((1,),)
"""A batch of one row of the only queue."""

NO_ROW = ((0,),)
ONE_OR_TWO = ((1,), (2,))
FIRST, SECOND = ((1, 0),), ((0, 1),)
"""A batch with a row of one of two queues, or of two partitions, the other one idle."""

NO_QUEUE = ((),)
"""A batch of a source that is no queue."""

PERSON = frozenset({"OffsetConflictError", "LedgerDivergedError", "DataLossError"})
"""Errors after which a person must decide, where a scenario gives reason to."""

ONE_TO_ONE = frozenset({"NotOneToOneError"})
"""What a flow that idempotent mode is not for must lead to."""

ONE_KEY = frozenset({"DuplicateKeyError"})
"""The same, where two rows of a batch have one key."""

FENCING = ONE_TO_ONE | {"ProducerFencedError", "ProducerDivergedError"}
"""As well, where tasks that run side by side may fence each other before they find out why."""

AT_LEAST_ONCE, IDEMPOTENT = DeliveryMode.AT_LEAST_ONCE, DeliveryMode.IDEMPOTENT
TWO_ROWS = (((2,),),)
"""One batch, which a task writes in two requests."""

MISTOLD = Faults(requests=False, refusals=False, unknown=False, errors=True)
"""Requests are carried out, and answered with an error."""

BOTH = (((1, 1),),)
"""One batch with a row from each of two partitions."""

_put_back = partial(
    Scenario,
    faults=Faults(requests=False, refusals=False, unknown=False, tasks=False, put_back=True),
    tolerated=PERSON | {"LedgerMissingError"},
    unchecked=frozenset({Kind.OFFSETS}),
)
_into_one = partial(Scenario, into_one=True)
_by_format = partial(_into_one, attempts=2, budget=1, reruns=True, by_format=True, catches_up=True)
_at_least_once = partial(Scenario, mode=AT_LEAST_ONCE)
_idempotent = partial(Scenario, mode=IDEMPOTENT)
_two_tasks = partial(_idempotent, plans=BOTH, attempts=2, budget=1, partitioned=True, regress=True)
_misused = partial(
    _idempotent, plans=TWO_ROWS, attempts=1, budget=1, unchecked=frozenset({Kind.ORDER})
)
_one_key = partial(
    _misused, is_sorted=True, one_key=True, misuse=ONE_KEY, unchecked=frozenset({Kind.WRONG})
)

TWO_SINKS = (SinkSpec(("//first",), advances=False), SinkSpec(("//last",)))
TWO_TARGETS = (SinkSpec(("//first", "//second")),)


def _both(name: str, plans: Any, **options: Any) -> tuple[Scenario, Scenario]:
    """Return a scenario, and the same one with a query that keeps state."""
    stateful = Scenario(f"{name}, stateful", plans, stateful=True, **options)
    return Scenario(name, plans, **options), stateful


SCENARIOS = (
    # One driver that crashes, and the network.
    Scenario("stateless", (ROW,) * 3),
    Scenario("stateful", (ROW,) * 3, stateful=True),
    Scenario("no queue", (NO_QUEUE,) * 3),
    Scenario("no queue, stateful", (NO_QUEUE,) * 3, brief=1, stateful=True),
    Scenario("one attempt", (ROW,) * 2, brief=2, budget=3, attempts=1),
    Scenario("one attempt, stateful", (ROW,) * 2, brief=1, budget=3, attempts=1, stateful=True),
    Scenario("filtered batch", (ROW,) * 3, brief=1, silent=frozenset({1})),
    Scenario("empty batch", (ROW, NO_ROW, ROW), brief=1, stateful=True),
    # A queue does not move in a batch, and its consumer is not yet where the batch begins.
    *_both("two queues", (FIRST, SECOND, FIRST), brief=1),
    Scenario("two queues, explicit start", (FIRST, SECOND, FIRST), brief=1, begins=(5, 5)),
    Scenario("timeout batch", (ROW, NO_ROW, ROW), brief=1, stateful=True, speaking=frozenset({1})),
    Scenario(
        "timeout batch first",
        (NO_ROW, ROW, ROW),
        brief=1,
        stateful=True,
        speaking=frozenset({0}),
        begins=(5,),
    ),
    *_both("two partitions", (FIRST, SECOND, FIRST), brief=1, partitioned=True, begins=(5, 5)),
    Scenario("two sinks", (ROW,) * 2, brief=1, sinks=TWO_SINKS),
    Scenario("two targets", (ROW,) * 2, brief=1, sinks=TWO_TARGETS),
    *_both("split", (ROW,) * 2, brief=1, split=True, attempts=2),
    Scenario("split, no queue", (NO_QUEUE,) * 2, brief=1, split=True, attempts=2),
    *_both("AvailableNow", (ROW,) * 2, brief=1, catches_up=True),
    *_both("mistold", (ROW,) * 2, attempts=2, catches_up=True, faults=MISTOLD),
    # A driver dies with a commit in flight, which lands while the next run works on the same batch.
    Scenario("survivor, stateful", (ROW,) * 2, survivors=True, stateful=True),
    Scenario("survivor, no queue", (NO_QUEUE,) * 2, brief=1, survivors=True),
    # Spark forgets.
    *_both("commit log lost", (ROW,) * 3, brief=1, faults=Faults(commit_log=True)),
    Scenario(
        "checkpoint restored", (ONE_OR_TWO, ROW), faults=Faults(restore=True), tolerated=PERSON
    ),
    _put_back("put back", (ROW, ROW, ONE_OR_TWO)),
    _put_back("put back, stateful", (ROW, ROW, ONE_OR_TWO), stateful=True),
    _put_back("put back, no queue", (NO_QUEUE,) * 3),
    _put_back("put back, at-least-once", (ROW, ROW, ONE_OR_TWO), mode=AT_LEAST_ONCE),
    Scenario(
        "checkpoint restored, stateful",
        (ONE_OR_TWO, ROW),
        brief=1,
        faults=Faults(restore=True),
        tolerated=PERSON,
        stateful=True,
    ),
    # Two drivers, each the zombie of the other.
    Scenario("two drivers", (ROW,) * 2, slots=(0, 0), budget=1),
    Scenario("two drivers, stateful", (ROW,) * 2, brief=0, slots=(0, 0), budget=1, stateful=True),
    Scenario("two drivers, no queue", (NO_QUEUE,) * 2, brief=0, slots=(0, 0), budget=1),
    Scenario("two drivers, split", (ROW,), brief=0, slots=(0, 0), budget=1, split=True),
    Scenario(
        "two drivers, shared logs",
        (ROW, ONE_OR_TWO),
        slots=(0, 0),
        budget=1,
        brief=0,
        exclusive_logs=False,
        tolerated=PERSON,
        unchecked=frozenset({Kind.OFFSETS}),
    ),
    Scenario("two checkpoints, one consumer", (ROW,) * 2, slots=(0, 1), budget=1, tolerated=PERSON),
)
"""What must hold today."""


INTO_ONE = (
    # Tasks write into the transaction of the driver: repeated, copied, outliving it, and their job failing.
    _into_one("one transaction", (ROW,) * 2, attempts=2, brief=1),
    _into_one("one transaction, chunks", TWO_ROWS, attempts=2),
    _into_one("one transaction, two tasks", BOTH, attempts=1, budget=2, brief=1, partitioned=True),
    _into_one("one transaction, two drivers", (ROW,), attempts=1, budget=1, brief=0, slots=(0, 0)),
    _into_one(
        "one transaction, shuffled",
        TWO_ROWS,
        attempts=2,
        spread=Spread.SHUFFLED,
        reruns=True,
        brief=1,
    ),
    _into_one("one transaction, stateful", (ROW,) * 2, attempts=2, brief=1, stateful=True),
    _into_one("one transaction, claims", TWO_ROWS, attempts=2, reruns=True),
    _into_one("one transaction, claims, two batches", (ROW,) * 2, attempts=2, brief=1, reruns=True),
    _into_one(
        "one transaction, claims, two drivers",
        (ROW,),
        attempts=1,
        budget=1,
        brief=0,
        slots=(0, 0),
        reruns=True,
    ),
    _into_one(
        "one transaction, claims expire",
        TWO_ROWS,
        attempts=1,
        faults=Faults(requests=False, refusals=False, unknown=False, crash=False, expiry=True),
        reruns=True,
    ),
    # Spark plans the batch, runs its tasks and commits it; the first task with rows opens the transaction.
    _by_format("by format", (ROW,) * 2),
    _by_format("by format, chunks", TWO_ROWS),
    _by_format("by format, two tasks", BOTH, attempts=1, brief=0, partitioned=True),
    _by_format("by format, two drivers", (ROW,), attempts=1, brief=0, slots=(0, 0)),
    _by_format("by format, stateful", (ROW,) * 2, stateful=True),
    _by_format("by format, mistold", TWO_ROWS, faults=MISTOLD),
    _into_one(
        "one transaction, claims, fickle",
        TWO_ROWS,
        attempts=1,
        reruns=True,
        fickle=True,
        unchecked=frozenset({Kind.WRONG, Kind.LOST}),
    ),
    _into_one(
        "one transaction, claims, mistold",
        TWO_ROWS,
        brief=1,
        attempts=2,
        faults=MISTOLD,
        reruns=True,
    ),
    _into_one("one transaction, mistold", TWO_ROWS, brief=1, attempts=2, faults=MISTOLD),
)
"""What must hold where tasks write into one transaction."""


BY_TASKS = (
    # The rows of a batch are written by tasks, which are repeated, started twice, and outlive drivers.
    _at_least_once("at-least-once", (ROW,) * 2, attempts=2),
    _at_least_once("at-least-once, chunks", TWO_ROWS, attempts=1),
    _at_least_once("at-least-once, two tasks", BOTH, attempts=2, budget=1, partitioned=True),
    _at_least_once(
        "at-least-once, stateful", (ROW,) * 2, budget=2, brief=1, attempts=2, stateful=True
    ),
    _at_least_once("at-least-once, two drivers", (ROW,), attempts=1, budget=1, slots=(0, 0)),
    _at_least_once(
        "at-least-once, two checkpoints, one consumer",
        (ROW,),
        attempts=1,
        budget=0,
        slots=(0, 1),
        tolerated=PERSON,
    ),
    _idempotent("idempotent", (ROW,) * 2, attempts=1, regress=True),
    _idempotent("idempotent, chunks", TWO_ROWS, attempts=2, regress=True),
    _idempotent("idempotent, newer servers", TWO_ROWS, budget=2, brief=1, attempts=2),
    _idempotent(
        "idempotent, by batch",
        TWO_ROWS,
        budget=2,
        brief=1,
        attempts=2,
        by_source=False,
        regress=True,
    ),
    _two_tasks("idempotent, two tasks"),
    _idempotent(
        "idempotent, two drivers", (ROW,), attempts=1, budget=1, brief=0, slots=(0, 0), regress=True
    ),
    _idempotent(
        "idempotent, commit log lost",
        (ROW,) * 2,
        attempts=1,
        faults=Faults(commit_log=True, tasks=False),
        regress=True,
    ),
    _idempotent(
        "idempotent, empty bodies", TWO_ROWS, attempts=1, budget=1, faults=Faults(empty=True)
    ),
    _at_least_once("at-least-once, mistold", TWO_ROWS, brief=1, attempts=1, faults=MISTOLD),
    _idempotent("idempotent, mistold", TWO_ROWS, brief=1, attempts=1, faults=MISTOLD, regress=True),
    # Flows that are not one-to-one: found out, not written wrongly in silence.
    _misused("idempotent, shuffled", spread=Spread.SHUFFLED, misuse=FENCING),
    _misused("idempotent, reversed", spread=Spread.REVERSED, misuse=ONE_TO_ONE),
    _misused(
        "idempotent, by batch, then other code",
        by_source=False,
        then=Spread.REVERSED,
        misuse=ONE_TO_ONE,
    ),
    _misused(
        "idempotent, by batch, then fewer tasks",
        faults=Faults(requests=False, tasks=False, orphans=False),
        by_source=False,
        spread=Spread.SHUFFLED,
        then=Spread.AS_READ,
        misuse=ONE_TO_ONE,
    ),
    # Rows that carry their source may be in any task of the next run.
    _two_tasks("idempotent, then fewer tasks", then=Spread.TOGETHER),
    _two_tasks("idempotent, then more tasks", spread=Spread.TOGETHER, then=Spread.AS_READ),
    _idempotent("idempotent, sorted", (ROW,) * 2, attempts=1, is_sorted=True),
    _one_key("idempotent, one key in a chunk", chunk=2),
    _one_key("idempotent, one key in a batch"),
)
"""What must hold today in the modes that write from tasks."""


TRIMMED_UNDER_A_REPLAY = Scenario("survivor", (ROW,) * 2, survivors=True)
"""A commit of a dead run lands, and its rows are trimmed, while the next run reads them again."""

SHARED_CONSUMER = Scenario(
    "two checkpoints, one consumer, stateful",
    (ROW,) * 2,
    slots=(0, 1),
    budget=0,
    stateful=True,
    tolerated=PERSON,
)

LATE_UPSERT = _idempotent(
    "idempotent, one key in two batches", (ROW,) * 2, attempts=1, is_sorted=True, one_key=True
)
"""A row that an earlier batch wrote arrives late, over the newer row of the same key."""

ALL = (*SCENARIOS, *INTO_ONE, *BY_TASKS, TRIMMED_UNDER_A_REPLAY, SHARED_CONSUMER, LATE_UPSERT)


LONG_TO_FIND = ("no queue", "survivor, stateful", "idempotent", "idempotent, two tasks")
"""Scenarios that wait for the further tests, also where a violation is to be found."""

LONG = (
    *LONG_TO_FIND,
    "stateful",
    "two drivers",
    "one transaction, chunks",
    "one transaction, claims",
    "one transaction, claims, fickle",
    "by format, stateful",
)
"""Scenarios that take long to explore as a whole. Shorter ones show the same in part."""

LONGEST = (
    "checkpoint restored",
    "two checkpoints, one consumer",
    "idempotent, by batch",
    "idempotent, chunks",
    "idempotent, commit log lost",
    "idempotent, newer servers",
    "idempotent, shuffled",
    "idempotent, then fewer tasks",
    "idempotent, then more tasks",
)
"""Scenarios that take longer still, or differ little from others, and wait for the night."""


def is_deep() -> bool:
    """Tell whether the deeper bound was asked for."""
    return os.environ.get(DEEP_VARIABLE) == "deep"


def bounded(scenario: Scenario, *, deep: bool) -> Scenario:
    """Return a scenario with one more fault, or else in brief: two batches where all are alike."""
    if deep:
        return replace(scenario, budget=scenario.budget + 1)
    is_alike = len(set(scenario.plans)) == 1 and not scenario.faults.put_back
    plans = scenario.plans[:2] if is_alike else scenario.plans
    budget = scenario.budget if scenario.brief is None else scenario.brief
    return replace(scenario, plans=plans, budget=budget)


def named(name: str) -> Scenario:
    return next(scenario for scenario in ALL if scenario.name == name)
