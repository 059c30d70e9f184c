"""The scenarios that are explored, and the two bounds: one for every run, and a deeper one.

`YT_EXACTLY_ONCE_MODEL=deep` selects the deeper one, which takes minutes; `python -m tests.model [deep]`
prints what was explored.
"""

from __future__ import annotations

import os
from dataclasses import replace

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

BOTH = (((1, 1),),)
"""One batch with a row from each of two partitions."""

TWO_SINKS = (SinkSpec(("//first",), advances=False), SinkSpec(("//last",)))
TWO_TARGETS = (SinkSpec(("//first", "//second")),)

SCENARIOS = (
    # One driver that crashes, and the network.
    Scenario(name="stateless", plans=(ROW,) * 3),
    Scenario(name="stateful", plans=(ROW,) * 3, stateful=True),
    Scenario(name="no queue", plans=(NO_QUEUE,) * 3),
    Scenario(name="no queue, stateful", brief=1, plans=(NO_QUEUE,) * 3, stateful=True),
    Scenario(name="one attempt", brief=2, plans=(ROW,) * 2, budget=3, attempts=1),
    Scenario(
        name="one attempt, stateful", brief=1, plans=(ROW,) * 2, budget=3, attempts=1, stateful=True
    ),
    Scenario(name="filtered batch", brief=1, plans=(ROW,) * 3, silent=frozenset({1})),
    Scenario(name="empty batch", brief=1, plans=(ROW, NO_ROW, ROW), stateful=True),
    Scenario(name="two queues", brief=1, plans=(FIRST, SECOND, FIRST)),
    # A queue does not move in a batch, and its consumer is not yet where the batch begins.
    Scenario(name="two queues, stateful", brief=1, plans=(FIRST, SECOND, FIRST), stateful=True),
    Scenario(
        name="two queues, explicit start", brief=1, plans=(FIRST, SECOND, FIRST), begins=(5, 5)
    ),
    Scenario(
        name="timeout batch",
        brief=1,
        plans=(ROW, NO_ROW, ROW),
        stateful=True,
        speaking=frozenset({1}),
    ),
    Scenario(
        name="timeout batch first",
        brief=1,
        plans=(NO_ROW, ROW, ROW),
        stateful=True,
        speaking=frozenset({0}),
        begins=(5,),
    ),
    Scenario(
        name="two partitions",
        brief=1,
        plans=(FIRST, SECOND, FIRST),
        partitioned=True,
        begins=(5, 5),
    ),
    Scenario(
        name="two partitions, stateful",
        brief=1,
        plans=(FIRST, SECOND, FIRST),
        partitioned=True,
        begins=(5, 5),
        stateful=True,
    ),
    Scenario(name="two sinks", brief=1, plans=(ROW,) * 2, sinks=TWO_SINKS),
    Scenario(name="two targets", brief=1, plans=(ROW,) * 2, sinks=TWO_TARGETS),
    Scenario(name="split", brief=1, plans=(ROW,) * 2, split=True, attempts=2),
    Scenario(
        name="split, stateful", brief=1, plans=(ROW,) * 2, split=True, attempts=2, stateful=True
    ),
    Scenario(name="split, no queue", brief=1, plans=(NO_QUEUE,) * 2, split=True, attempts=2),
    Scenario(name="AvailableNow", brief=1, plans=(ROW,) * 2, catches_up=True),
    Scenario(
        name="AvailableNow, stateful", brief=1, plans=(ROW,) * 2, catches_up=True, stateful=True
    ),
    # A driver dies with a commit in flight, which lands while the next run works on the same batch.
    Scenario(name="survivor, stateful", plans=(ROW,) * 2, survivors=True, stateful=True),
    Scenario(name="survivor, no queue", brief=1, plans=(NO_QUEUE,) * 2, survivors=True),
    # Spark forgets.
    Scenario(name="commit log lost", brief=1, plans=(ROW,) * 3, faults=Faults(commit_log=True)),
    Scenario(
        name="commit log lost, stateful",
        brief=1,
        plans=(ROW,) * 3,
        faults=Faults(commit_log=True),
        stateful=True,
    ),
    Scenario(
        name="checkpoint restored",
        plans=(ONE_OR_TWO, ROW),
        faults=Faults(restore=True),
        tolerated=PERSON,
    ),
    Scenario(
        name="checkpoint restored, stateful",
        brief=1,
        plans=(ONE_OR_TWO, ROW),
        faults=Faults(restore=True),
        tolerated=PERSON,
        stateful=True,
    ),
    # Two drivers, each the zombie of the other.
    Scenario(name="two drivers", plans=(ROW,) * 2, slots=(0, 0), budget=1),
    Scenario(
        name="two drivers, stateful",
        brief=0,
        plans=(ROW,) * 2,
        slots=(0, 0),
        budget=1,
        stateful=True,
    ),
    Scenario(name="two drivers, no queue", brief=0, plans=(NO_QUEUE,) * 2, slots=(0, 0), budget=1),
    Scenario(name="two drivers, split", brief=0, plans=(ROW,), slots=(0, 0), budget=1, split=True),
    Scenario(
        name="two drivers, shared logs",
        plans=(ROW, ONE_OR_TWO),
        slots=(0, 0),
        budget=1,
        brief=0,
        exclusive_logs=False,
        tolerated=PERSON,
        unchecked=frozenset({Kind.OFFSETS}),
    ),
    Scenario(
        name="two checkpoints, one consumer",
        plans=(ROW,) * 2,
        slots=(0, 1),
        budget=1,
        tolerated=PERSON,
    ),
)
"""What must hold today."""


INTO_ONE = (
    # Tasks write into the transaction of the driver: repeated, copied, outliving it, and their job failing.
    Scenario(name="one transaction", plans=(ROW,) * 2, into_one=True, attempts=2, brief=1),
    Scenario(name="one transaction, chunks", plans=TWO_ROWS, into_one=True, attempts=2),
    Scenario(
        name="one transaction, two tasks",
        plans=BOTH,
        into_one=True,
        attempts=1,
        budget=2,
        brief=1,
        partitioned=True,
    ),
    Scenario(
        name="one transaction, two drivers",
        plans=(ROW,),
        into_one=True,
        attempts=1,
        budget=1,
        brief=0,
        slots=(0, 0),
    ),
    Scenario(
        name="one transaction, shuffled",
        plans=TWO_ROWS,
        into_one=True,
        attempts=2,
        spread=Spread.SHUFFLED,
    ),
)
"""What must hold where tasks write into one transaction."""


BY_TASKS = (
    # The rows of a batch are written by tasks, which are repeated, started twice, and outlive drivers.
    Scenario(name="at-least-once", plans=(ROW,) * 2, mode=AT_LEAST_ONCE, attempts=2),
    Scenario(name="at-least-once, chunks", plans=TWO_ROWS, mode=AT_LEAST_ONCE, attempts=1),
    Scenario(
        name="at-least-once, two tasks",
        plans=BOTH,
        mode=AT_LEAST_ONCE,
        attempts=2,
        budget=1,
        partitioned=True,
    ),
    Scenario(
        name="at-least-once, stateful",
        plans=(ROW,) * 2,
        mode=AT_LEAST_ONCE,
        budget=2,
        brief=1,
        attempts=2,
        stateful=True,
    ),
    Scenario(
        name="at-least-once, two drivers",
        plans=(ROW,),
        mode=AT_LEAST_ONCE,
        attempts=1,
        budget=1,
        slots=(0, 0),
    ),
    Scenario(
        name="at-least-once, two checkpoints, one consumer",
        plans=(ROW,),
        mode=AT_LEAST_ONCE,
        attempts=1,
        budget=0,
        slots=(0, 1),
        tolerated=PERSON,
    ),
    Scenario(name="idempotent", plans=(ROW,) * 2, mode=IDEMPOTENT, attempts=1, regress=True),
    Scenario(name="idempotent, chunks", plans=TWO_ROWS, mode=IDEMPOTENT, attempts=2, regress=True),
    Scenario(
        name="idempotent, newer servers",
        plans=TWO_ROWS,
        mode=IDEMPOTENT,
        budget=2,
        brief=1,
        attempts=2,
    ),
    Scenario(
        name="idempotent, by batch",
        plans=TWO_ROWS,
        mode=IDEMPOTENT,
        budget=2,
        brief=1,
        attempts=2,
        by_source=False,
        regress=True,
    ),
    Scenario(
        name="idempotent, two tasks",
        plans=BOTH,
        mode=IDEMPOTENT,
        attempts=2,
        budget=1,
        partitioned=True,
        regress=True,
    ),
    Scenario(
        name="idempotent, two drivers",
        plans=(ROW,),
        mode=IDEMPOTENT,
        attempts=1,
        budget=1,
        brief=0,
        slots=(0, 0),
        regress=True,
    ),
    Scenario(
        name="idempotent, commit log lost",
        plans=(ROW,) * 2,
        mode=IDEMPOTENT,
        attempts=1,
        faults=Faults(commit_log=True, tasks=False),
        regress=True,
    ),
    Scenario(
        name="idempotent, empty bodies",
        plans=TWO_ROWS,
        mode=IDEMPOTENT,
        attempts=1,
        budget=1,
        faults=Faults(empty=True),
    ),
    # Flows that are not one-to-one: found out, not written wrongly in silence.
    Scenario(
        name="idempotent, shuffled",
        plans=TWO_ROWS,
        mode=IDEMPOTENT,
        attempts=1,
        budget=1,
        spread=Spread.SHUFFLED,
        misuse=FENCING,
        unchecked=frozenset({Kind.ORDER}),
    ),
    Scenario(
        name="idempotent, reversed",
        plans=TWO_ROWS,
        mode=IDEMPOTENT,
        attempts=1,
        budget=1,
        spread=Spread.REVERSED,
        misuse=ONE_TO_ONE,
        unchecked=frozenset({Kind.ORDER}),
    ),
    Scenario(
        name="idempotent, by batch, then other code",
        plans=TWO_ROWS,
        mode=IDEMPOTENT,
        attempts=1,
        budget=1,
        by_source=False,
        then=Spread.REVERSED,
        misuse=ONE_TO_ONE,
        unchecked=frozenset({Kind.ORDER}),
    ),
    Scenario(
        name="idempotent, by batch, then fewer tasks",
        plans=TWO_ROWS,
        mode=IDEMPOTENT,
        attempts=1,
        budget=1,
        faults=Faults(requests=False, tasks=False, orphans=False),
        by_source=False,
        spread=Spread.SHUFFLED,
        then=Spread.AS_READ,
        misuse=ONE_TO_ONE,
        unchecked=frozenset({Kind.ORDER}),
    ),
    # Rows that carry their source may be in any task of the next run.
    Scenario(
        name="idempotent, then fewer tasks",
        plans=BOTH,
        mode=IDEMPOTENT,
        attempts=2,
        budget=1,
        partitioned=True,
        then=Spread.TOGETHER,
        regress=True,
    ),
    Scenario(
        name="idempotent, then more tasks",
        plans=BOTH,
        mode=IDEMPOTENT,
        attempts=2,
        budget=1,
        partitioned=True,
        spread=Spread.TOGETHER,
        then=Spread.AS_READ,
        regress=True,
    ),
    Scenario(
        name="idempotent, sorted",
        plans=(ROW,) * 2,
        mode=IDEMPOTENT,
        attempts=1,
        is_sorted=True,
    ),
    Scenario(
        name="idempotent, one key in a chunk",
        plans=TWO_ROWS,
        mode=IDEMPOTENT,
        attempts=1,
        budget=1,
        is_sorted=True,
        chunk=2,
        one_key=True,
        misuse=ONE_KEY,
        unchecked=frozenset({Kind.WRONG}),
    ),
    Scenario(
        name="idempotent, one key in a batch",
        plans=TWO_ROWS,
        mode=IDEMPOTENT,
        attempts=1,
        budget=1,
        is_sorted=True,
        one_key=True,
        misuse=ONE_KEY,
        unchecked=frozenset({Kind.WRONG}),
    ),
)
"""What must hold today in the modes that write from tasks."""


TRIMMED_UNDER_A_REPLAY = Scenario(name="survivor", plans=(ROW,) * 2, survivors=True)
"""A commit of a dead run lands, and its rows are trimmed, while the next run reads them again."""

SHARED_CONSUMER = Scenario(
    name="two checkpoints, one consumer, stateful",
    plans=(ROW,) * 2,
    slots=(0, 1),
    budget=0,
    stateful=True,
    tolerated=PERSON,
)

LATE_UPSERT = Scenario(
    name="idempotent, one key in two batches",
    plans=(ROW,) * 2,
    mode=IDEMPOTENT,
    attempts=1,
    is_sorted=True,
    one_key=True,
)
"""A row that an earlier batch wrote arrives late, over the newer row of the same key."""

ALL = (*SCENARIOS, *INTO_ONE, *BY_TASKS, TRIMMED_UNDER_A_REPLAY, SHARED_CONSUMER, LATE_UPSERT)


LONG = ("no queue", "survivor, stateful", "idempotent", "idempotent, two tasks")
"""Scenarios that take long, and wait for the further tests."""

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
    plans = scenario.plans[:2] if len(set(scenario.plans)) == 1 else scenario.plans
    budget = scenario.budget if scenario.brief is None else scenario.brief
    return replace(scenario, plans=plans, budget=budget)


def named(name: str) -> Scenario:
    """Return the scenario of that name."""
    return next(scenario for scenario in ALL if scenario.name == name)
