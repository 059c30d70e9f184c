"""What must hold: in every state, at every step, and when a query has come to its end.

A violation is an error with a kind, so that a test can say which one it expects. The checks look at the
targets, the consumers, the ledger and the checkpoints, never into the code under test.
"""

import json
from collections.abc import Iterable
from enum import StrEnum
from functools import cache
from typing import Any

from tests.model.cluster import Append, Put, consumer_key, ledger_key, offset_in
from tests.model.scenario import Ranges, Scenario, SourceRow, query_id, rows_of
from tests.model.world import Applied, Checkpoint, World
from yt_exactly_once.config import DeliveryMode


class Kind(StrEnum):
    """What was violated."""

    TWICE = "a row has its effect twice"
    BOTH_COMMITTED = "two attempts of a batch committed"
    PARTIAL = "a part of a batch is visible"
    WRONG = "a batch has other effects than its rows"
    ORDER = "a batch is visible before an earlier one"
    UNCOUNTED = "a batch has other rows than its ledger entry counts"
    LOST = "a batch is done for Spark and not in the target"
    OFFSETS = "the consumer is not where the ledger says"
    STATE = "the state is not the fold of all rows"
    STUCK = "an undisturbed run fails"
    SURVIVOR = "the newest run fails because of an older one"
    SELF_FENCED = "a run is fenced by its own commit"
    DEADLOCK = "nothing can happen and the query is not at its end"


class ViolationError(Exception):
    """An invariant does not hold."""

    def __init__(self, kind: Kind, detail: str) -> None:
        super().__init__(f"{kind.value}: {detail}")
        self.kind = kind


def applied_by(writes: Iterable[Put | Append], row_of_ledger: dict[int, Applied]) -> list[Applied]:
    """Return what a transaction makes of its targets; a batch without effects shows in the ledger."""
    found: dict[tuple[str, str, int], Applied] = {}
    for write in writes:
        if isinstance(write, Append):
            for payload in write.payloads:
                query, batch, *effects = json.loads(payload)
                key = (write.path, query, batch)
                before = found.get(key, Applied(*key, 1, ()))
                found[key] = before._replace(effects=(*before.effects, *effects))
        elif write.row in row_of_ledger:
            blank, row = row_of_ledger[write.row], _ledger_row(write.value)
            blank = blank._replace(batch=int(row["batch_id"]))
            before = found.get(blank[:3], blank)
            found[blank[:3]] = before._replace(part=int(row["part"]))
    return list(found.values())


def is_record_only(world: World, new: Applied) -> bool:
    """Tell whether a transaction does no more than record a batch whose effects are there already."""
    return not new.effects and any(old[:4] == new[:4] and old.effects for old in world.applied)


def check_applied(scenario: Scenario, world: World, new: Applied) -> None:
    """Check a batch, or a part of one, against everything that is in the targets before it."""
    for old in world.applied:
        if old[:4] == new[:4]:
            raise ViolationError(Kind.BOTH_COMMITTED, str(new))
        if old.path == new.path and set(old.effects) & set(new.effects):
            raise ViolationError(Kind.TWICE, f"{old}, then {new}")
        if old[:2] == new[:2] and (old.batch, old.part) > (new.batch, new.part):
            raise ViolationError(Kind.ORDER, f"{old}, then {new}")
    if len(set(new.effects)) != len(new.effects):
        raise ViolationError(Kind.TWICE, str(new))
    if not (scenario.split or scenario.by_tasks or scenario.into_one) and _is_partial(new.effects):
        raise ViolationError(Kind.PARTIAL, str(new))
    if _one_history(scenario) and Kind.WRONG not in scenario.unchecked:
        wanted = expected(scenario, world.checkpoints[_number(new.query)], new.batch)
        # Tasks arrive in any order.
        same = sorted(new.effects) == sorted(wanted) if scenario.into_one else new.effects == wanted
        if not same and not (scenario.split and set(new.effects) < set(wanted)):
            raise ViolationError(Kind.WRONG, str(new))


def check_counted(writes: Iterable[Put | Append]) -> None:
    """Check that a transaction has as many rows as the ledger entry in it counts."""
    counted = sum(write.counted for write in writes if isinstance(write, Put))
    sent = sum(len(write.payloads) for write in writes if isinstance(write, Append))
    if counted != sent:
        raise ViolationError(Kind.UNCOUNTED, f"{sent} rows, and the ledger counts {counted}")


def recorded(scenario: Scenario, new: Applied, writes: Iterable[Put | Append]) -> Applied:
    """Return a ledger entry of a batch that tasks wrote, with the rows that it accounts for."""
    for write in writes:
        if isinstance(write, Put) and '"batch_id"' in write.value:
            row = _ledger_row(write.value)
            starts = {
                (source["queue"], int(partition)): (start, end)
                for source in row["offsets"]
                for partition, (start, end, *_) in source["partitions"].items()
            }
            ranges = tuple(starts[place] for place in scenario.places)
            return new._replace(effects=scenario.effects(new.batch, ranges, ()))
    return new


def check_recorded(scenario: Scenario, world: World, new: Applied) -> None:
    """Check that the rows which a ledger entry accounts for are in the target."""
    rows = {tuple(map(int, effect.split(":"))) for effect in new.effects}
    _require_written(scenario, world, _number(new.query), rows)


def check_written(scenario: Scenario, world: World, query: int, place: int, row: int) -> None:
    """Check a row that a task is about to write.

    In at-least-once mode it may be there already once something has gone wrong. In idempotent mode an
    ordered target has the rows of a place in their order, each once, so that there is never a gap, and
    in a sorted one no row comes over a newer one.
    """
    if scenario.is_sorted:
        newer = [old for _, old in world.written[0] if scenario.one_key and old[2] > row]
        if newer and Kind.WRONG not in scenario.unchecked:
            raise ViolationError(Kind.WRONG, f"row {row} comes over {newer[0]}")
        return
    there = [number for writer, number in world.written[place] if writer == query]
    calm = world.budget == scenario.budget and len(scenario.slots) == 1
    if row in there and (scenario.mode is DeliveryMode.IDEMPOTENT or calm):
        raise ViolationError(Kind.TWICE, f"row {row} of place {place}, after {there}")
    if scenario.mode is DeliveryMode.IDEMPOTENT and Kind.ORDER not in scenario.unchecked:
        first = (scenario.begins or (0,) * len(scenario.places))[place]
        if row != first + len(there):
            raise ViolationError(Kind.ORDER, f"row {row} of place {place}, after {there}")


def _require_written(
    scenario: Scenario, world: World, query: int, rows: set[tuple[int, ...]]
) -> None:
    """Check that rows are in the target; where keys repeat, the newest one of each."""
    if scenario.is_sorted:
        there = {row[1:] for _, row in world.written[0] if row[0] == query}
        if scenario.one_key and there and rows and max(there) > max(rows):
            return
    else:
        there = {
            (place, row)
            for place, written in enumerate(world.written)
            for writer, row in written
            if writer == query
        }
    if rows - there:
        raise ViolationError(Kind.LOST, f"rows {sorted(rows - there)} of query {query}")


def check_offsets(scenario: Scenario, world: World) -> None:
    """Check that the consumers stand where the ledger says, or where the source may move them."""
    if scenario.checkpoints > 1 or Kind.OFFSETS in scenario.unchecked:
        return
    for sink in scenario.sinks:
        value = world.rows[scenario.index[ledger_key(query_id(0), sink.paths[0])]][1]
        if not sink.advances or not value:
            continue
        row = _ledger_row(value)
        for source in row["offsets"]:
            for partition, (start, end, left, *_) in source["partitions"].items():
                key = consumer_key(source["queue"], int(partition))
                stands = offset_in(world.rows, scenario.index[key])
                high = end if row["part"] == row["part_count"] else start
                if not left <= stands <= high:
                    place = f"partition {partition} of {source['queue']}"
                    detail = f"at {stands} in {place}, the ledger says {left} to {high}"
                    raise ViolationError(Kind.OFFSETS, detail)


def check_state(
    scenario: Scenario, checkpoint: Checkpoint, batch: int, folded: tuple[SourceRow, ...]
) -> None:
    """Check a state that Spark is about to keep."""
    if _one_history(scenario) and folded != fold(checkpoint.offsets[: batch + 1]):
        raise ViolationError(Kind.STATE, f"after batch {batch}: {folded}")


def check_delivered(scenario: Scenario, world: World, number: int, batch: int) -> None:
    """Check that a batch that all sinks returned from is in all targets."""
    checkpoint = world.checkpoints[number]
    moves = any(start != end for start, end in checkpoint.offsets[batch])
    if Kind.LOST in scenario.unchecked:
        return
    if not moves and not expected(scenario, checkpoint, batch):
        return
    for path in scenario.paths:
        place = (path, query_id(number), batch)
        there = [applied for applied in world.applied if applied[:3] == place]
        effects = {effect for applied in there for effect in applied.effects}
        if not there or (
            _one_history(scenario) and effects != set(expected(scenario, checkpoint, batch))
        ):
            raise ViolationError(Kind.LOST, f"batch {batch} of {path}, there is {there}")
    if scenario.by_tasks and _one_history(scenario):
        _require_written(scenario, world, number, set(rows_of(checkpoint.offsets[batch])))


def check_finished(scenario: Scenario, world: World, number: int) -> None:
    """Check everything when a query has read all there is."""
    checkpoint = world.checkpoints[number]
    if not scenario.exclusive_logs:
        return
    for batch in range(len(checkpoint.offsets)):
        check_delivered(scenario, world, number, batch)
        if not _one_history(scenario):
            continue
        state = checkpoint.states[batch] if batch < len(checkpoint.states) else None
        if scenario.stateful and state != fold(checkpoint.offsets[: batch + 1]):
            raise ViolationError(Kind.STATE, f"at the end, after batch {batch}: {state}")
    seen = [
        effect.split(" ", 1)[1]
        for applied in world.applied
        if applied.path == scenario.paths[0] and applied.query == query_id(number)
        for effect in applied.effects
        if effect.startswith("first ") and ":" in effect
    ]
    if scenario.by_tasks or scenario.into_one:
        return
    silent = [checkpoint.offsets[batch] for batch in scenario.silent]
    wanted = {f"{place}:{row}" for ranges in checkpoint.offsets for place, row in rows_of(ranges)}
    wanted -= {f"{place}:{row}" for ranges in silent for place, row in rows_of(ranges)}
    if not scenario.stateful and not scenario.speaking and wanted - set(seen):
        raise ViolationError(Kind.LOST, f"rows {sorted(wanted - set(seen))}")


def expected(scenario: Scenario, checkpoint: Checkpoint, batch: int) -> tuple[str, ...]:
    """Return what a batch must have written, by Spark's offset log."""
    ranges = checkpoint.offsets[: batch + 1]
    return scenario.effects(batch, ranges[batch], fold(ranges))


def fold(ranges: tuple[Ranges, ...]) -> tuple[SourceRow, ...]:
    """Return the state that batches with these ranges lead to."""
    return tuple(row for each in ranges for row in rows_of(each))


def blank_entries(scenario: Scenario) -> dict[int, Applied]:
    """Return, for every ledger row, the target and the query it stands for."""
    return {
        scenario.index[ledger_key(query_id(number), path)]: Applied(
            path, query_id(number), -1, 1, ()
        )
        for number in range(scenario.checkpoints)
        for path in scenario.paths
    }


def _is_partial(effects: tuple[str, ...]) -> bool:
    """Tell whether effects of one kind are there and not those of the other."""
    words = [effect.split()[0] for effect in effects]
    return bool(words) and len(words) != 2 * words.count(words[0])


def _one_history(scenario: Scenario) -> bool:
    """Tell whether Spark's offset log says the same for ever, so that it can be compared with."""
    return scenario.exclusive_logs and not scenario.faults.restore


def _number(query: str) -> int:
    return int(query.removeprefix(query_id(0)[:-1]))


@cache
def _ledger_row(value: str) -> dict[str, Any]:
    return dict(json.loads(value))
