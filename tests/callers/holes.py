"""The holes that callers fell into, each as the smallest program that shows it.

They are the first examples of the property test, and tests of their own, so that a hole that opens again is
called by its name.
"""

from tests.callers.mishaps import Death, How, Request
from tests.callers.program import Call, Function, Layout, OnError, Part, Program, Run, Source
from yt_exactly_once.config import DeliveryMode

AT_LEAST_ONCE, IDEMPOTENT = DeliveryMode.AT_LEAST_ONCE, DeliveryMode.IDEMPOTENT

HALVES = (Call(Part.EVEN), Call(Part.ODD))
TWO_SINKS = (Call(Part.EVEN, sink="a"), Call(Part.ODD, sink="b"))
ONE_BATCH = (("....", "...."),)
SHUFFLED = Function((Call(layout=Layout.SHUFFLED),))
COALESCED = Function((Call(layout=Layout.COALESCED),))


PUSHED_ONCE = Death(Request.PUSH, 1, How.CRASH_BEFORE)
PUSHED_TWICE = Death(Request.PUSH, 2, How.CRASH_BEFORE)
PUSHED_THREE_TIMES = Death(Request.PUSH, 3, How.CRASH_BEFORE)
TASK_DIES = Death(Request.PUSH, 0, How.TASK_DIES_AFTER)
_SWALLOWED_UNNOTED = Run(
    function=Function((Call(on_error=OnError.SWALLOW),)),
    death=Death(Request.COMMIT, 0, How.REFUSED),
    batches=1,
    read_only=True,
)

HOLES = {
    "1: one sink called twice with different rows": Program((Run(function=Function(HALVES)),)),
    "1: one sink called twice, at-least-once": Program((Run(AT_LEAST_ONCE, Function(HALVES)),)),
    "1: one sink called twice, idempotent": Program(
        (Run(IDEMPOTENT, Function(HALVES)),), is_sorted=True
    ),
    "1: one sink called from two threads": Program((Run(function=Function(HALVES, threads=1)),)),
    "2: two sinks on one target, and a restart": Program((Run(function=Function(TWO_SINKS)),)),
    "2: two sinks on one target, idempotent": Program(
        (Run(IDEMPOTENT, Function(TWO_SINKS)),), is_sorted=True
    ),
    "3: files read with 3 cores instead of 2": Program(
        (Run(IDEMPOTENT, death=PUSHED_THREE_TIMES), Run(IDEMPOTENT, cores=3)), source=Source.FILES
    ),
    "3: coalesce(cores) with other cores": Program(
        (Run(IDEMPOTENT, COALESCED, 1, death=PUSHED_THREE_TIMES), Run(IDEMPOTENT, COALESCED, 2))
    ),
    "3: a filter deployed in between": Program(
        (Run(IDEMPOTENT, death=PUSHED_ONCE), Run(IDEMPOTENT, Function((Call(Part.EVEN),))))
    ),
    "3: catch, clean, call again": Program(
        (Run(IDEMPOTENT, Function((Call(on_error=OnError.GOOD_ODD),))),), rows=(("..x.", "."),)
    ),
    "4: a shuffle that the plan hides": Program((Run(IDEMPOTENT, SHUFFLED, death=TASK_DIES),)),
    "4: a shuffle that is persisted": Program(
        (
            Run(IDEMPOTENT, Function((Call(layout=Layout.PERSISTED),)), death=PUSHED_TWICE),
            Run(IDEMPOTENT, Function((Call(layout=Layout.PERSISTED),))),
        )
    ),
    "5: every row of a chunk is rejected": Program(
        (Run(),), rows=(("x", ""),), rejects=True, placement="round_robin"
    ),
    "6: by source, other cores after a task died": Program(
        (Run(IDEMPOTENT, COALESCED, 1, death=PUSHED_THREE_TIMES), Run(IDEMPOTENT, COALESCED, 2)),
        rows=ONE_BATCH,
        numbered=True,
    ),
    "7: an error is swallowed": Program(
        (Run(function=Function((Call(on_error=OnError.SWALLOW),))),), rows=((".x",), ("..",))
    ),
    "7: an error is swallowed, its note refused, and the driver gone": Program(
        (Run(batches=1), _SWALLOWED_UNNOTED, Run()), rows=((".",),) * 3
    ),
    "7: the same in the first batch": Program((_SWALLOWED_UNNOTED, Run()), rows=((".",),) * 2),
    "8: a listener that raises": Program((Run(listener="transaction.started"),)),
    "9: a column of type any on an older proxy": Program((Run(),), has_any=True, old_proxy=True),
    "10: -0.0 deletes 0.0": Program((Run(),), rows=(("0d",), ("..",)), is_sorted=True, marker=True),
    "10: 0.0 and -0.0 in two partitions": Program(
        (Run(),), rows=(("0", "-"),), is_sorted=True, marker=True
    ),
    "11: the ledger is removed": Program(
        (Run(unlogged=1), Run(ledger_removed=True)), source=Source.QUEUE
    ),
    "11: a copy of the ledger is restored": Program(
        (Run(unlogged=1), Run(ledger_restored=True)), source=Source.QUEUE
    ),
    "11: a copy of the ledger is restored, files": Program(
        (Run(unlogged=1), Run(ledger_restored=True)), source=Source.FILES
    ),
    "11: older rows are put back into ledger and target": Program(
        (Run(batches=2), Run(put_back=0)), rows=((".",),) * 3
    ),
    "11: the same without a consumer, and the batch before was left out": Program(
        (Run(batches=3), Run(put_back=0)), rows=((".",), ("",), (".",), (".",)), source=Source.QUEUE
    ),
    "11: the producer is emptied under a batch that was pushed": Program(
        (
            Run(IDEMPOTENT, death=Death(Request.COMMIT, 0, How.CRASH_BEFORE)),
            Run(IDEMPOTENT, sessions_lost=True),
        ),
        source=Source.QUEUE,
    ),
    "11: the same, and the mode is changed": Program(
        (
            Run(IDEMPOTENT, death=Death(Request.COMMIT, 1, How.CRASH_BEFORE)),
            Run(sessions_lost=True),
        ),
        rows=((".",),) * 3,
        source=Source.QUEUE,
    ),
    "12: a column with an internal name": Program((Run(),), names=("__yt_exactly_once_partition",)),
    "12: the tablet column": Program(
        (Run(),), names=("__yt_exactly_once_tablet",), placement="round_robin"
    ),
    "12: a hash column": Program((Run(IDEMPOTENT),), names=("__key_hash_64",), is_sorted=True),
    "12: an internal name among rejected rows": Program(
        (Run(),), rows=((".x", "."),), rejects=True
    ),
    "13: a queue with its system columns, passed on whole": Program(
        (Run(IDEMPOTENT),), numbered=True, names=("$timestamp",)
    ),
    "13: columns named as others travel to tasks": Program(
        (Run(AT_LEAST_ONCE),), names=("c1", "c0", "$timestamp")
    ),
    "14: a replay of parts comes in other batches of Arrow": Program(
        (Run(death=Death(Request.COMMIT, 1, How.CRASH_BEFORE)), Run(arrow_rows=1)),
        rows=((".....", "....."),),
        has_any=True,
        parts=True,
    ),
}
"""By number in the list of holes."""


_ONE_BATCH, _TWO_BATCHES = Run(batches=1), (("..",), ("..",))

HOLES_OF_THE_FORMAT = {
    "a mode that returns writes what the other has pushed": Program(
        (
            _ONE_BATCH,
            Run(DeliveryMode.IDEMPOTENT, death=Death(Request.COMMIT, 0, How.REFUSED)),
            Run(),
        ),
        _TWO_BATCHES,
        numbered=True,
    ),
    "a copy of the ledger is restored before a replay": Program(
        (Run(unlogged=1), Run(ledger_restored=True)), _TWO_BATCHES, numbered=True
    ),
    "a copy of the ledger is restored before a replay in another mode": Program(
        (Run(unlogged=1), Run(DeliveryMode.IDEMPOTENT, ledger_restored=True)),
        _TWO_BATCHES,
        numbered=True,
    ),
    "a replay that was planned and not looked up when it is committed": Program(
        (_ONE_BATCH, Run(unlogged=1), Run()), _TWO_BATCHES, numbered=True
    ),
}
"""Rows repeated, a reason hidden by the abort, and a refusal without a reason."""
