"""What a request may be answered: the cluster, and the network between it and a driver.

Each answer comes with the world in which it was given. Faults cost one of the budget. A commit whose
answer is lost is put in flight: it may land before anything else happens, later, or never, so that
"applied", "late" and "lost" need no cases of their own.
"""

import json
from collections.abc import Callable, Iterator
from functools import cache, lru_cache
from typing import Any, NamedTuple, cast

from tests.model.cluster import (
    CONFLICT,
    LOST,
    MISTOLD,
    OK,
    UNAVAILABLE,
    UNKNOWN,
    Abort,
    Append,
    Begin,
    Commit,
    Evaluated,
    FindOwner,
    Join,
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
    check_counted,
    check_offsets,
    check_recorded,
    check_state,
    check_written,
    is_record_only,
    recorded,
)
from tests.model.programs import STATE_MISSING, TRIMMED, Advance, Aged, AskWay, Evaluate, Stored
from tests.model.scenario import Scenario, query_id, rows_of
from tests.model.tasks import (
    REFUSED,
    BeginClaim,
    BeginShared,
    CreateSession,
    Insert,
    InsertInside,
    Push,
    TakeClaim,
    is_plan,
)
from tests.model.world import InFlight, World

Request = Insert | InsertInside | TakeClaim | CreateSession | Push | Abort
"""What a task asks for."""


class Answer(NamedTuple):
    """One way in which a request may be answered.

    Attributes:
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
                after = world.opened(name) if self.scenario.into_one else world
                yield Answer(f"begins {name}", Snapshot(name, world.rows), after)
                yield from self._unanswered(world, "begin")
            case Commit():
                yield from self._commit(world, request)
            case Abort(transaction=transaction):
                yield Answer(f"aborts {transaction}", OK, world.ended(transaction))
                yield from self._unanswered(world, "abort")
            case Evaluate():
                yield self.evaluate(world, request)
            case Stored() | Advance():
                yield from self._of_source(world, request)
            case BeginClaim() | FindOwner() | Aged():
                yield from self._of_claims(world, request)
            case BeginShared() | Join() | AskWay():
                yield from self._of_plans(world, request)
            case Insert() | InsertInside() | TakeClaim() | CreateSession() | Push():
                yield from self._request(world, request)
            case _:
                message = f"The model does not know {request}"
                raise AssertionError(message)

    def land(self, world: World, commit: InFlight) -> World:
        """Return the world in which a commit in flight has been applied."""
        left = tuple(other for other in world.in_flight if other is not commit)
        writes = (*commit.writes, *inside(world, commit.transaction))
        world = world.ended(commit.transaction)._replace(in_flight=left)
        return self.apply(world, writes).disturbed_by_older()

    def apply(self, world: World, writes: Any) -> World:
        """Return the world after a commit; whatever it makes impossible leaves the network.

        Raises:
            ViolationError: it breaks an invariant.
        """
        for applied in applied_by(writes, self._blank):
            new = applied
            if self.scenario.by_tasks:
                new = recorded(self.scenario, applied, writes)
                check_recorded(self.scenario, world, new)
            if is_record_only(world, new):
                continue
            check_applied(self.scenario, world, new)
            if self.scenario.into_one:
                check_counted(writes)
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

    def land_request(self, world: World, request: Any) -> World:
        """Return the world in which a request of a task has arrived late."""
        left = list(world.adrift)
        left.remove(request)
        return self.perform(world._replace(adrift=tuple(left)), request)[1].disturbed_by_older()

    def launch_request(self, world: World, request: Any) -> World:
        """Return the world in which a request may arrive at any time; one without effect is gone."""
        if isinstance(request, InsertInside) and request.transaction not in dict(world.inside):
            return world
        if isinstance(request, BeginClaim | BeginShared | FindOwner):
            return world
        if isinstance(request, Abort) and request.transaction not in dict(world.inside):
            return world
        if isinstance(request, TakeClaim) and _take(world, request)[1] == world:
            return world
        if isinstance(request, Push) and request.epoch < _session(world, request.session)[0]:
            return world
        return world._replace(adrift=tuple(sorted((*world.adrift, request), key=_described)))

    def perform(self, world: World, request: Request) -> tuple[Any, World]:
        """Do what a task asks for; return the answer and the world.

        Raises:
            ViolationError: it breaks an invariant.
        """
        if type(request) in _IN_TRANSACTIONS:
            return _IN_TRANSACTIONS[type(request)](world, cast("Any", request))
        if isinstance(request, Insert):
            return OK, self._written(world, request.rows)
        epoch, number, meta = _session(world, request.session)
        if isinstance(request, CreateSession):
            fresh = (epoch + 1, number, meta)
            return fresh, self._with_session(world, request.session, fresh)
        if not admits(request.epoch, epoch):
            return REFUSED, world
        skipped = sum(each <= number for each in request.numbers)
        last = request.numbers[-1] if request.numbers else _NO_NUMBER
        rows = request.rows[skipped:]
        if not rows and not self.scenario.regress:
            return (number, skipped), world
        after = (epoch, last, request.user_meta)
        return (last, skipped), self._with_session(
            self._written(world, rows), request.session, after
        )

    def _of_claims(self, world: World, request: BeginClaim | FindOwner | Aged) -> Iterator[Answer]:
        if isinstance(request, Aged):
            age = float("inf") if request.transaction in world.aged else 0.0
            # Claims are kept for long after the driver has seen that they are young.
            is_young = {request.transaction} & dict(world.inside).keys() - world.aged
            young = world._replace(young=world.young | is_young)
            yield Answer(f"is {age} s after the begin", age, young)
            return
        owner = world.owner(request.transaction, request.partition)
        yield Answer(f"sees {owner or 'no owner'}", owner, world)
        yield from self._unanswered(world, "the look at a claim")

    def _of_source(self, world: World, request: Stored | Advance) -> Iterator[Answer]:
        if isinstance(request, Advance):
            yield from self._advance(world, request)
            return
        stands = tuple(offset_in(world.rows, row) for row in request.rows)
        yield Answer(f"source reads the consumer at {stands}", stands, world)
        yield from self._unanswered(world, "reading the consumer")

    def _of_plans(self, world: World, request: BeginShared | Join | AskWay) -> Iterator[Answer]:
        match request:
            case BeginShared(name=shared):
                yield Answer(f"begins {shared}", shared, world.begun_by_task(shared))
                yield from self._unanswered(world, "the begin for all tasks")
            case Join(transaction=transaction):
                rows = dict(world.begun).get(transaction)
                joined = LOST if rows is None else Snapshot(transaction, rows)
                yield Answer(f"takes {transaction} over", joined, world)
            case AskWay():
                for way in ("tasks", "driver"):
                    yield Answer(f"sends by {way}", way, world)

    def _request(self, world: World, request: Request) -> Iterator[Answer]:
        what = _described(request)
        answer, after = self.perform(world, request)
        yield Answer(f"{what}: {answer}", answer, after)
        faults = self.scenario.faults
        if faults.requests and world.budget:
            after = self.launch_request(world, request).disturbed(1)
            yield Answer(f"{what}, not answered", UNAVAILABLE, after)
        yield from self._mistold(self.perform(world, request)[1], what)
        if faults.empty and world.budget and isinstance(request, Push):
            answer, after = self.perform(world, request._replace(numbers=(), rows=()))
            yield Answer(f"{what}, the body arrives empty", answer, after.disturbed(1))

    def _written(self, world: World, rows: Any) -> World:
        written = world.written
        for key, query, place, row in rows:
            check_written(self.scenario, world._replace(written=written), query, place, row)
            if self.scenario.is_sorted:
                table = {**dict(written[0]), key: (query, place, row)}
                written = (tuple(sorted(table.items())),)
            else:
                here = (*written[place], (query, row))
                written = (*written[:place], here, *written[place + 1 :])
        return world._replace(written=written)

    @staticmethod
    def _with_session(world: World, row: int, session: Any) -> World:
        rows = put(world.rows, [Put(row, json.dumps(session))])
        adrift = tuple(
            request
            for request in world.adrift
            if not (isinstance(request, Push) and request.session == row)
            or admits(request.epoch, session[0])
            or request.epoch > session[0]
        )
        return world._replace(rows=rows, adrift=adrift)

    def _mistold(self, after: World, what: str) -> Iterator[Answer]:
        """Yield the answer to a request that was carried out, which says that it was not."""
        if self.scenario.faults.errors and after.budget:
            yield Answer(f"{what}, {MISTOLD}", MISTOLD, after.disturbed(1))

    def _unanswered(self, world: World, what: str) -> Iterator[Answer]:
        if self.scenario.faults.requests and world.budget:
            yield Answer(f"{what} is not answered", UNAVAILABLE, world.disturbed(1))

    def _commit(self, world: World, request: Commit) -> Iterator[Answer]:
        what = f"commit of {request.transaction}"
        faults = self.scenario.faults
        writes = (*request.writes, *inside(world, request.transaction))
        ended = world.ended(request.transaction)
        if self.scenario.into_one and ended == world:
            yield Answer(f"{what}, which is gone", LOST, world)
            return
        if conflicts(world.rows, request.guards):
            yield Answer(f"{what} is refused, somebody was first", CONFLICT, ended)
        else:
            yield Answer(what, OK, self.apply(ended, writes))
            yield from self._mistold(self.apply(ended, writes), what)
            if faults.refusals and world.budget:
                yield Answer(f"{what} is refused", CONFLICT, ended.disturbed(1))
        if faults.unknown and world.budget:
            after = self.launch(world, request).disturbed(1)
            yield Answer(f"{what} is not answered", UNKNOWN, after)

    def launch(self, world: World, request: Commit) -> World:
        """Return the world with a commit in flight; one that can never land is gone at once."""
        is_ours = request.transaction != _MOVE
        if self.scenario.into_one and is_ours and request.transaction not in dict(world.inside):
            return world
        if conflicts(world.rows, request.guards):
            return world
        flying = InFlight(request.transaction, request.guards, request.writes)
        return world._replace(in_flight=tuple(sorted((*world.in_flight, flying))))

    def evaluate(self, world: World, request: Evaluate) -> Answer:
        """Evaluate the frame of a batch: its rows must be there, and its state."""
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
        effects = Evaluated(self.scenario.effects(batch, ranges, folded))
        return Answer("evaluates the frame", effects, world)

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
            yield from self._mistold(self.apply(world, writes), what)
            if self.scenario.faults.requests and world.budget:
                after = self.launch(world, Commit(_MOVE, world.rows, writes)).disturbed(1)
                yield Answer(f"{what}, not answered", UNAVAILABLE, after)


def inside(world: World, transaction: str) -> tuple[Append, ...]:
    """Return what tasks have written into a transaction."""
    return dict(world.inside).get(transaction, ())


def _write_inside(world: World, request: InsertInside) -> tuple[Any, World]:
    """Let a task write into a transaction, if it is still open."""
    if request.transaction not in dict(world.inside):
        return LOST, world
    _, batch, *_ = request.transaction.split(".")
    payloads = tuple(
        json.dumps([query_id(query), int(batch), f"{place}:{row}"]).encode()
        for _, query, place, row in request.rows
    )
    here = (*inside(world, request.transaction), Append("//out", payloads))
    kept = dict(world.inside) | {request.transaction: here}
    return OK, world._replace(inside=tuple(sorted(kept.items())))


def _take(world: World, request: TakeClaim) -> tuple[Any, World]:
    """Let an attempt become the owner of a partition, unless another one was first."""
    if first_wins(world, request):
        return CONFLICT, world
    if not is_plan(request.transaction) and request.transaction not in dict(world.inside):
        # It may own what nobody can write into.
        return OK, world
    return OK, world._replace(claims=tuple(sorted((*world.claims, tuple(request)))))


def first_wins(world: World, request: TakeClaim) -> bool:
    """Tell whether the commit of a claim is refused, since another one was first."""
    return bool(world.owner(request.transaction, request.partition))


def _abort(world: World, request: Abort) -> tuple[Any, World]:
    return OK, world.ended(request.transaction)


_IN_TRANSACTIONS: dict[type, Callable[[World, Any], tuple[Any, World]]] = {
    InsertInside: _write_inside, TakeClaim: _take, Abort: _abort,
}  # fmt: skip
_MOVE = "move"
_NO_NUMBER = -1
_described = lru_cache(maxsize=None)(repr)


def admits(given: int, current: int) -> bool:
    """Tell whether a session takes a push with that epoch."""
    return given == current


def _session(world: World, row: int) -> tuple[int, int, Any]:
    """Return epoch, number and metadata of a session."""
    return _session_in(world.rows[row][1])


@cache
def _session_in(value: str) -> tuple[int, int, Any]:
    if not value:
        return -1, _NO_NUMBER, ()
    epoch, number, meta = json.loads(value)
    return epoch, number, tuple(tuple(item) for item in meta)


def _shown(values: tuple[str, ...]) -> str:
    return "nothing" if not any(values) else "an entry"
