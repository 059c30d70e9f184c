"""What a request may be answered: the cluster, and the network between it and a driver.

Each answer comes with the world in which it was given. Faults cost one of the budget. A commit whose
answer is lost is put in flight: it may land before anything else happens, later, or never, so that
"applied", "late" and "lost" need no cases of their own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from tests.model.cluster import (
    CONFLICT,
    NO_FAILURE,
    OK,
    UNAVAILABLE,
    UNKNOWN,
    Begin,
    Commit,
    Lookup,
    Put,
    Snapshot,
    conflicts,
    consumer_value,
    offset_in,
    put,
)
from tests.model.invariants import (
    applied_by,
    blank_entries,
    check_applied,
    check_offsets,
    check_state,
    is_record_only,
)
from tests.model.programs import STATE_MISSING, TRIMMED, Advance, Evaluate, Stored
from tests.model.scenario import rows_of
from tests.model.world import InFlight

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.model.scenario import Scenario
    from tests.model.world import World


class Answer(NamedTuple):
    """One way in which a request may be answered.

    Attributes:
        label: for traces.
        value: what the program gets.
        world: after it.
    """

    label: str
    value: Any
    world: World


class Network:
    """Answers requests.

    Args:
        scenario: which world.
    """

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self._blank = blank_entries(scenario)

    def answers(self, world: World, request: Any, name: str) -> Iterator[Answer]:
        """Yield the ways in which a request may be answered, the one without a fault first.

        Args:
            world: in which it is asked.
            request: what is asked.
            name: of the transaction that a `Begin` begins.

        Raises:
            ViolationError: an answer would break an invariant.
        """
        match request:
            case Lookup(rows=rows):
                values = tuple(world.rows[row][1] for row in rows)
                yield Answer(f"looks up {_shown(values)}", values, world)
                yield from self._unanswered(world, "look-up")
            case Begin():
                yield Answer(f"begins {name}", Snapshot(name, world.rows, NO_FAILURE), world)
                yield from self._unanswered(world, "begin")
            case Commit():
                yield from self._commit(world, request)
            case Evaluate():
                yield self._evaluate(world, request)
            case Stored(rows=rows):
                stands = tuple(offset_in(world.rows, row) for row in rows)
                yield Answer(f"source reads the consumer at {stands}", stands, world)
                yield from self._unanswered(world, "reading the consumer")
            case Advance():
                yield from self._advance(world, request)
            case _:
                message = f"The model does not know {request}"
                raise AssertionError(message)

    def land(self, world: World, commit: InFlight) -> World:
        """Return the world in which a commit in flight has been applied."""
        left = tuple(other for other in world.in_flight if other is not commit)
        return self.apply(world._replace(in_flight=left), commit.writes).disturbed_by_older()

    def apply(self, world: World, writes: Any) -> World:
        """Return the world after a commit; whatever it makes impossible leaves the network.

        Raises:
            ViolationError: it breaks an invariant.
        """
        for new in applied_by(writes, self._blank):
            if is_record_only(world, new):
                continue
            check_applied(self.scenario, world, new)
            world = world._replace(applied=(*world.applied, new))
        rows = put(world.rows, writes)
        world = world._replace(
            rows=rows,
            trimmed=tuple(
                max(lower, offset_in(rows, consumer))
                for lower, consumer in zip(world.trimmed, self.scenario.consumers, strict=True)
            ),
            in_flight=tuple(
                commit for commit in world.in_flight if not conflicts(rows, commit.guards)
            ),
        )
        check_offsets(self.scenario, world)
        return world

    def _unanswered(self, world: World, what: str) -> Iterator[Answer]:
        if self.scenario.faults.requests and world.budget:
            yield Answer(f"{what} is not answered", UNAVAILABLE, world.disturbed(1))

    def _commit(self, world: World, request: Commit) -> Iterator[Answer]:
        what = f"commit of {request.transaction}"
        faults = self.scenario.faults
        if conflicts(world.rows, request.guards):
            yield Answer(f"{what} is refused, somebody was first", CONFLICT, world)
        else:
            yield Answer(what, OK, self.apply(world, request.writes))
            if faults.refusals and world.budget:
                yield Answer(f"{what} is refused", CONFLICT, world.disturbed(1))
        if faults.unknown and world.budget:
            after = self.launch(world, request).disturbed(1)
            yield Answer(f"{what} is not answered", UNKNOWN, after)

    @staticmethod
    def launch(world: World, request: Commit) -> World:
        """Return the world with a commit in flight; one that can never land is gone at once."""
        if conflicts(world.rows, request.guards):
            return world
        flying = InFlight(request.transaction, request.guards, request.writes)
        return world._replace(in_flight=tuple(sorted((*world.in_flight, flying))))

    def _evaluate(self, world: World, request: Evaluate) -> Answer:
        checkpoint = world.checkpoints[request.checkpoint]
        batch, ranges = request.batch, request.ranges
        if any(
            start != end and start < world.trimmed[place]
            for place, (start, end) in enumerate(ranges)
        ):
            return Answer("evaluates the frame, rows are trimmed", TRIMMED, world)
        folded: tuple[tuple[int, int], ...] = ()
        if self.scenario.stateful:
            before = checkpoint.states[batch - 1 : batch] if batch else ((),)
            if not before or before[0] is None:
                return Answer("evaluates the frame, state is missing", STATE_MISSING, world)
            folded = (*before[0], *rows_of(ranges))
            check_state(self.scenario, checkpoint, batch, folded)
            gap = (None,) * (batch - len(checkpoint.states))
            states = (*checkpoint.states[:batch], *gap, folded, *checkpoint.states[batch + 1 :])
            world = world.with_checkpoint(request.checkpoint, checkpoint._replace(states=states))
        return Answer("evaluates the frame", self.scenario.effects(batch, ranges, folded), world)

    def _advance(self, world: World, request: Advance) -> Iterator[Answer]:
        what = f"source moves the consumer from {request.old} to {request.new}"
        stands = offset_in(world.rows, request.row)
        writes = (Put(request.row, consumer_value(request.new)),)
        if stands == request.new:
            yield Answer(f"{what}, where it is", OK, world)
        elif stands != request.old:
            yield Answer(f"{what}, refused", CONFLICT, world)
        else:
            yield Answer(what, OK, self.apply(world, writes))
            if self.scenario.faults.requests and world.budget:
                after = self.launch(world, Commit("move", world.rows, writes)).disturbed(1)
                yield Answer(f"{what}, not answered", UNAVAILABLE, after)


def _shown(values: tuple[str, ...]) -> str:
    return "nothing" if not any(values) else "an entry"
