"""What was meant, and whether the target has it: the one question of all these tests.

Whenever a function has returned, everything that was meant for its batch and for those before must be in the
target: each row once, as it was passed. So rows that are missing, after an error that was raised or
swallowed, must keep every later batch from succeeding.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any

from yt_exactly_once.config import DeliveryMode

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.callers.deployment import Deployment
    from tests.callers.program import Call, Program, Row, Run

Values = dict[str, Any]
"""A row, as it is written."""


class ViolationError(AssertionError):
    """The promise is broken; the text says how."""


@dataclass
class Execution:
    """One time that Spark has handed a batch to the function.

    Attributes:
        batch: which one.
        run: in which run.
        meant: ids of the rows that each call was to write.
        possible: ids of the rows that any call may have written.
        swallowed: how many errors nothing followed from.
        delivered: whether a sink has returned from a call with rows.
    """

    batch: int
    run: Run
    meant: list[set[int]] = field(default_factory=list)
    possible: set[int] = field(default_factory=set)
    swallowed: int = 0
    delivered: bool = False

    @classmethod
    def of(cls, program: Program, run: Run, batch: int) -> Execution:
        """Begin an execution; until a call returns, it counts with what it would write in the end."""
        execution = cls(batch, run)
        rows = list(chain(*program.batch(batch)))
        for call in program.calls(run, batch):
            first = program.passed(call.part, rows)
            last = program.passed(call.second_part, first) if call.second_part else first
            execution.possible |= _ids(first)
            execution.meant.append(_ids(last))
        return execution

    @property
    def sure(self) -> set[int]:
        """Ids of the rows that the function meant."""
        return set().union(*self.meant)

    def returned(self, program: Program, call: Call, number: int, *, again: bool) -> None:
        """Take note that a sink has returned from a call, or from the one after an error."""
        if not again:
            rows = chain(*program.batch(self.batch))
            self.meant[number] = _ids(program.passed(call.part, rows))
        self.delivered = self.delivered or bool(self.meant[number])


def check(deployment: Deployment, execution: Execution) -> None:
    """Check the target when a function has returned, and a sink had rows to write.

    Raises:
        ViolationError: rows are lost, repeated or changed, and nothing has stopped the query.
    """
    if not execution.delivered:
        return
    last = execution.batch - bool(execution.swallowed)
    for batch in range(last + 1):
        _check_batch(deployment, batch)
    if deployment.program.marker and not execution.swallowed:
        _check_shared_key(deployment, last)


def _check_batch(deployment: Deployment, batch: int) -> None:
    program = deployment.program
    target, rejected = _by_id(deployment.written()), _by_id(deployment.rejected())
    seen = [each for each in deployment.executions if each.batch == batch]
    sure = set.intersection(*(each.sure for each in seen))
    possible = set().union(*(each.possible for each in seen))
    given_up = {each.run.accepts for each in deployment.executions}
    may_repeat = any(each.run.mode is DeliveryMode.AT_LEAST_ONCE for each in seen)
    for row in chain(*program.batch(batch)):
        if program.marker and row.shares_its_key:
            continue
        is_reject = program.rejects and row.is_bad
        found = (rejected if is_reject else target).get(row.id, [])
        wanted = deployment.as_rejected(row) if is_reject else deployment.as_written(row)
        told = f"{row} of batch {batch}: {found}"
        if row.id in sure and not found and batch not in given_up:
            raise ViolationError(f"LOST: {told}")
        if found and row.id not in possible:
            raise ViolationError(f"NOT MEANT: {told}")
        if len(found) > 1 and not may_repeat:
            raise ViolationError(f"REPEATED: {told}")
        if any(each != wanted for each in found):
            raise ViolationError(f"CHANGED: {told} instead of {wanted}")
    ids = _ids(chain(*program.batch(batch)))
    there = {number for number in (*target, *rejected) if number in ids}
    one_call = all(len(each.meant) == 1 for each in seen)
    is_exact = one_call and not (may_repeat or program.is_sorted or batch in given_up)
    if is_exact and there not in [each.sure for each in seen]:
        raise ViolationError(f"MIXED: {there} of batch {batch}, as no run of the function meant it")


def _check_shared_key(deployment: Deployment, last: int) -> None:
    """Check the row with the key 0.0, which many rows write and delete: the last one counts.

    Where the code has passed all rows in the order of the source; else nobody knows which is the last one.
    """
    program, survivor = deployment.program, None
    for each in deployment.executions:
        calls = program.calls(each.run, each.batch)
        in_order = all(call.layout_in(each.batch).keeps_places for call in calls)
        rows = _ids(chain(*program.batch(each.batch)))
        is_sure = len(calls) == 1 and in_order and each.sure == rows and each.run.accepts is None
        if each.batch <= last and not is_sure:
            return
    for batch in range(last + 1):
        for row in chain(*program.batch(batch)):
            if row.shares_its_key:
                survivor = None if row.deletes else row
    wanted = None if survivor is None else deployment.as_written(survivor)
    found = next((row for row in deployment.written() if row["key"] == 0), None)
    if found != wanted:
        raise ViolationError(f"WRONG: the key 0.0 has {found} instead of {wanted}")


def _ids(rows: Iterable[Row]) -> set[int]:
    return {row.id for row in rows}


def _by_id(rows: Iterable[Values]) -> dict[int, list[Values]]:
    found: dict[int, list[Values]] = defaultdict(list)
    for row in rows:
        found[row["id"]].append(row)
    return found
