"""The scenarios that are explored, and the two bounds: one for every run, and a deeper one.

`YT_EXACTLY_ONCE_MODEL=deep` selects the deeper one, which takes minutes; `python -m tests.model [deep]`
prints what was explored.
"""

from __future__ import annotations

import os
from dataclasses import replace

from tests.model.invariants import Kind
from tests.model.scenario import Faults, Scenario, SinkSpec

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

TWO_SINKS = (SinkSpec(("//first",), advances=False), SinkSpec(("//last",)))
TWO_TARGETS = (SinkSpec(("//first", "//second")),)

SCENARIOS = (
    # One driver that crashes, and the network.
    Scenario(name="stateless", plans=(ROW,) * 3),
    Scenario(name="stateful", plans=(ROW,) * 3, stateful=True),
    Scenario(name="no queue", plans=(NO_QUEUE,) * 3),
    Scenario(name="no queue, stateful", plans=(NO_QUEUE,) * 3, stateful=True),
    Scenario(name="one attempt", plans=(ROW,) * 2, budget=3, attempts=1),
    Scenario(name="one attempt, stateful", plans=(ROW,) * 2, budget=3, attempts=1, stateful=True),
    Scenario(name="filtered batch", plans=(ROW,) * 3, silent=frozenset({1})),
    Scenario(name="empty batch", plans=(ROW, NO_ROW, ROW), stateful=True),
    Scenario(name="two queues", plans=(FIRST, SECOND, FIRST)),
    # A queue does not move in a batch, and its consumer is not yet where the batch begins.
    Scenario(name="two queues, stateful", plans=(FIRST, SECOND, FIRST), stateful=True),
    Scenario(name="two queues, explicit start", plans=(FIRST, SECOND, FIRST), begins=(5, 5)),
    Scenario(
        name="timeout batch", plans=(ROW, NO_ROW, ROW), stateful=True, speaking=frozenset({1})
    ),
    Scenario(
        name="timeout batch first",
        plans=(NO_ROW, ROW, ROW),
        stateful=True,
        speaking=frozenset({0}),
        begins=(5,),
    ),
    Scenario(name="two partitions", plans=(FIRST, SECOND, FIRST), partitioned=True, begins=(5, 5)),
    Scenario(
        name="two partitions, stateful",
        plans=(FIRST, SECOND, FIRST),
        partitioned=True,
        begins=(5, 5),
        stateful=True,
    ),
    Scenario(name="two sinks", plans=(ROW,) * 2, sinks=TWO_SINKS),
    Scenario(name="two targets", plans=(ROW,) * 2, sinks=TWO_TARGETS),
    Scenario(name="split", plans=(ROW,) * 2, split=True, attempts=2),
    Scenario(name="split, stateful", plans=(ROW,) * 2, split=True, attempts=2, stateful=True),
    Scenario(name="split, no queue", plans=(NO_QUEUE,) * 2, split=True, attempts=2),
    Scenario(name="AvailableNow", plans=(ROW,) * 2, catches_up=True),
    Scenario(name="AvailableNow, stateful", plans=(ROW,) * 2, catches_up=True, stateful=True),
    # A driver dies with a commit in flight, which lands while the next run works on the same batch.
    Scenario(name="survivor, stateful", plans=(ROW,) * 2, survivors=True, stateful=True),
    Scenario(name="survivor, no queue", plans=(NO_QUEUE,) * 2, survivors=True),
    # Spark forgets.
    Scenario(name="commit log lost", plans=(ROW,) * 3, faults=Faults(commit_log=True)),
    Scenario(
        name="commit log lost, stateful",
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
        plans=(ONE_OR_TWO, ROW),
        faults=Faults(restore=True),
        tolerated=PERSON,
        stateful=True,
    ),
    # Two drivers, each the zombie of the other.
    Scenario(name="two drivers", plans=(ROW,) * 2, slots=(0, 0), budget=1),
    Scenario(name="two drivers, stateful", plans=(ROW,) * 2, slots=(0, 0), budget=1, stateful=True),
    Scenario(name="two drivers, no queue", plans=(NO_QUEUE,) * 2, slots=(0, 0), budget=1),
    Scenario(name="two drivers, split", plans=(ROW,), slots=(0, 0), budget=1, split=True),
    Scenario(
        name="two drivers, shared logs",
        plans=(ROW, ONE_OR_TWO),
        slots=(0, 0),
        budget=1,
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

ALL = (*SCENARIOS, TRIMMED_UNDER_A_REPLAY, SHARED_CONSUMER)


def is_deep() -> bool:
    """Tell whether the deeper bound was asked for."""
    return os.environ.get(DEEP_VARIABLE) == "deep"


def bounded(scenario: Scenario, *, deep: bool) -> Scenario:
    """Return a scenario with one more fault when the deeper bound was asked for."""
    return replace(scenario, budget=scenario.budget + 1) if deep else scenario


def named(name: str) -> Scenario:
    """Return the scenario of that name."""
    return next(scenario for scenario in ALL if scenario.name == name)
