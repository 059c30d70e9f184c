"""Single protections of the modes that write from tasks, each with a way to take it away."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

from yt.common import update

from tests.model import network, programs
from tests.model.invariants import Kind
from tests.model.programs import JobFailedError
from tests.model.removals import Put, removal
from tests.model.tasks import Claiming, Client, Joined, rows_in
from yt_exactly_once.commit import claims
from yt_exactly_once.commit.claims import Claims
from yt_exactly_once.commit.cluster import OpenTransaction
from yt_exactly_once.commit.parts import Part, TargetRows, whole
from yt_exactly_once.commit.transactional import BatchCommit
from yt_exactly_once.delivery.route import Way
from yt_exactly_once.errors import ClusterUnavailableError, TransientError
from yt_exactly_once.spark.engine.engine import Engine
from yt_exactly_once.spark.modes import idempotent, joined, push, tasks
from yt_exactly_once.spark.modes.push import RehearsalTask
from yt_exactly_once.ytsaurus.client import Connection
from yt_exactly_once.ytsaurus.rows import ProducerSession


@removal("the epoch of a session", ({Kind.ORDER, Kind.TWICE}, "idempotent, chunks"))
def _epoch(put: Put) -> None:
    """Let a session take what an older attempt of a task sends."""
    put(network, "admits", lambda given, current: given <= current)


@removal("rows that the session has are not pushed again", ({Kind.STUCK, Kind.TWICE}, "idempotent"))
def _drop_what_is_there(put: Put) -> None:
    """Push every row, also those that the session has."""
    create = ProducerSession.create

    def as_if_empty(*arguments: Any) -> Any:
        session = create(*arguments)
        return replace(session, state=session.state._replace(sequence_number=-1))

    put(ProducerSession, "create", staticmethod(as_if_empty))


@removal(
    "the comparison of a push's answer with what was expected",
    ({Kind.LOST, Kind.ORDER}, "idempotent, empty bodies"),
)
def _comparison(put: Put) -> None:
    """Believe every answer to a push that is not an error."""
    send = Client.push_queue_producer

    def as_expected(self: Any, parameters: dict[str, Any], body: bytes) -> dict[str, Any]:
        numbers = [row["$sequence_number"] for row in rows_in(body)]
        send(self, parameters, body)
        return {"last_sequence_number": numbers[-1], "skipped_row_count": 0}

    put(Client, "push_queue_producer", as_expected)


@removal("every push is sent once", ({Kind.ORDER, Kind.STUCK, Kind.TWICE}, "idempotent, chunks"))
def _single_sending(put: Put) -> None:
    """Let the client repeat requests by itself, with bodies that it can read only once."""
    configured = Connection._pinned_config

    def repeating(self: Connection, url: str) -> dict[str, Any]:
        changed = {"proxy": {"retries": {"enable": True}, "content_encoding": "gzip"}}
        return dict(update(configured(self, url), changed))

    put(Connection, "_pinned_config", repeating)


@removal("the digest in a task", ({Kind.LOST, Kind.TWICE}, "idempotent, by batch, then other code"))
def _digest_in_a_task(put: Put) -> None:
    """Drop the rows up to the session's number, whatever they are."""
    put(push._NumberedSession, "_require_same_rows", lambda *_: None)


@removal("the rehearsal of a replay", ({Kind.TWICE}, "idempotent, by batch, then fewer tasks"))
def _rehearsal(put: Put) -> None:
    put(RehearsalTask, "require_same_rows", lambda *_: None)


@removal("digests", ({Kind.LOST, Kind.TWICE}, "idempotent, by batch, then other code"))
def _digests(put: Put) -> None:
    _digest_in_a_task(put)
    _rehearsal(put)


def _sole_writer(put: Put) -> None:
    put(push._NumberedSession, "_require_sole_writer", lambda *_: None)


def _source_order(put: Put) -> None:
    pushed = push._NumberedSession.push

    def forgetful(self: Any, *arguments: Any) -> int:
        self._last_seen = -1
        return pushed(self, *arguments)

    put(push._NumberedSession, "push", forgetful)


@removal("one task per source partition, and digests", ({Kind.LOST}, "idempotent, shuffled"))
def _sole_writer_and_digests(put: Put) -> None:
    _sole_writer(put)
    _digests(put)


@removal("rows in the order of their source, and digests", ({Kind.LOST}, "idempotent, reversed"))
def _source_order_and_digests(put: Put) -> None:
    _source_order(put)
    _digests(put)


@removal("the check of keys in a batch", ({Kind.LOST}, "idempotent, one key in a batch"))
def _unique_in_a_batch(put: Put) -> None:
    put(idempotent, "require_unique", lambda *_: None)


@removal("a request without an answer is repeated", ({Kind.LOST}, "at-least-once", "idempotent"))
def _unanswered_request(put: Put) -> None:
    """Take a request without an answer for a success."""

    def once(attempt: Callable[[int], Any], *_: Any) -> None:
        try:
            attempt(1)
        except TransientError:
            return

    put(tasks, "run_attempts", once)
    put(push, "run_attempts", once)


@removal(
    "rows first, then the consumer and the ledger", ({Kind.LOST}, "at-least-once", "idempotent")
)
def _rows_first(put: Put) -> None:
    """Record the batch and move the consumer before the tasks have written."""
    compute = Engine._compute

    def too_early(self: Engine, delivery: Any, *given: Any) -> Any:
        delivery.commit().commit(whole([]))
        return compute(self, delivery, *given)

    put(Engine, "_compute", too_early)


@removal(
    "only the first attempt of a task writes into the transaction",
    ({Kind.TWICE}, "one transaction", "one transaction, chunks"),
)
def _first_attempt(put: Put) -> None:
    """Let every attempt of a task write into the transaction."""
    put(joined, "require_first_attempt", lambda *_: None)


@removal(
    "tasks whose stage may run again claim their partitions",
    ({Kind.TWICE}, "one transaction, shuffled", "one transaction, claims"),
)
def _one_stage(put: Put) -> None:
    """Let tasks write without a claim whose stage may run again."""
    put(programs, "stages", lambda *_: 1)


@removal(
    "who finds another's claim does not write",
    ({Kind.TWICE}, "one transaction, shuffled", "one transaction, claims", "by format, chunks"),
)
def _owner(put: Put) -> None:
    """Let every attempt write, whoever the owner is."""
    put(Claims, "take", lambda self, *given: self._owner(*given[:3]))


@removal("all tasks of a plan write into one transaction", ({Kind.WRONG}, "by format, two tasks"))
def _one_for_all(put: Put) -> None:
    """Let each task write into a transaction of its own; the commit knows that of the first one."""
    shared = Claims.open

    def own(self: Any, cluster: Any, policy: Any, emit: Any) -> Any:
        mine = cluster.begin(None)
        opened = OpenTransaction(mine.id, mine.proxy)
        shared(self, cluster, policy, emit)
        return opened

    put(Claims, "open", own)


@removal(
    "of two transactions that tasks open the first one counts",
    ({Kind.WRONG}, "by format, two tasks"),
)
def _first_opened(put: Put) -> None:
    """Let every task that opens a transaction go on with its own, also if another one was first."""
    owner = Claims._owner

    def mine(self: Any, cluster: Any, partition: int, name: str) -> str:
        found = owner(self, cluster, partition, name)
        return name if partition == claims._OF_ALL else found

    put(Claims, "_owner", mine)


@removal("each plan has an id of its own", ({Kind.STUCK, Kind.TWICE}, "by format"))
def _own_plan(put: Put) -> None:
    """Let a replay have the plan of the run before."""
    put(programs, "plan_of", lambda _run, batch: f"{batch}.{batch}.plan")


@removal("an attempt claims before its first request", ({Kind.TWICE}, "one transaction, claims"))
def _claim_first(put: Put) -> None:
    """Claim with the second request, or not at all."""
    take = Claims.take
    claimed: list[Any] = []

    def late(self: Any, *given: Any) -> None:
        claimed[:] = [(self, given)]

    def write(self: Any, *arguments: Any) -> None:
        written(self, *arguments)
        while claimed:
            claim, given = claimed.pop()
            take(claim, *given)

    written = Joined.write
    put(Claims, "take", late)
    put(Joined, "write", write)


@removal(
    "an attempt without rows claims too", ({Kind.UNCOUNTED}, "one transaction, claims, fickle")
)
def _empty_claim(put: Put) -> None:
    """Let an attempt without rows end without a claim."""
    run = joined.JoinedInsertTask.run

    def careless(self: Any, batches: Any, partition: int) -> Any:
        rows = list(batches)
        if any(batch.num_rows for batch in rows):
            yield from run(self, rows, partition)

    put(joined.JoinedInsertTask, "run", careless)


@removal(
    "of two claims the cluster refuses the later one",
    ({Kind.TWICE}, "one transaction, claims", "one transaction, shuffled"),
)
def _first_claim(put: Put) -> None:
    """Let a claim replace one that was committed since it was begun."""
    put(network, "first_wins", lambda *_: False)


@removal(
    "a claim without an answer is no claim",
    ({Kind.TWICE}, "one transaction, claims", "one transaction, shuffled"),
)
def _unanswered_claim(put: Put) -> None:
    """Take a claim whose outcome is unknown, or that was refused, for a success."""
    commit = Claiming.commit

    def whatever(self: Any, written: Any) -> None:
        with suppress(TransientError):
            commit(self, written)

    put(Claiming, "commit", whatever)


@removal("no two attempts have one name", ({Kind.TWICE}, "one transaction, claims"))
def _names(put: Put) -> None:
    """Name all attempts alike."""
    put(joined, "attempt_name", lambda: "task")


@removal(
    "a transaction is not committed once its claims may be gone",
    ({Kind.TWICE}, "one transaction, claims expire"),
)
def _hold(put: Put) -> None:
    """Commit at any age."""
    put(BatchCommit, "_require_claims", lambda *_: None)


@removal(
    "rows of a state are kept before tasks send them", ({Kind.STATE}, "one transaction, stateful")
)
def _kept(put: Put) -> None:
    """Let tasks send the rows as they compute them, and the driver compute them again."""
    put(programs.frame_rows.FrameRows, "kept", lambda self: self)


@removal("a request without an answer fails its attempt", ({Kind.TWICE}, "one transaction"))
def _sent_once(put: Put) -> None:
    """Send a request again that had no answer."""
    write = Joined.write

    def again(self: Any, *arguments: Any, **options: Any) -> None:
        try:
            write(self, *arguments, **options)
        except ClusterUnavailableError:
            write(self, *arguments, **options)

    put(Joined, "write", again)


@removal(
    "the transaction of a failed job is not committed",
    ({Kind.WRONG}, "one transaction, chunks", "one transaction, two tasks"),
)
def _failed_job(put: Put) -> None:
    """Commit what the tasks of a failed job have written, as if it were all."""
    compute = Engine._compute

    def whatever(self: Any, delivery: Any, route: Any, found: Any, begun: Any) -> Any:
        try:
            return compute(self, delivery, route, found, begun)
        except JobFailedError:
            if route.way is not Way.JOIN:
                raise
            return [TargetRows("//out", (), "yson", 1, inside=begun.transaction().id)]

    put(Engine, "_compute", whatever)


@removal("rows that tasks have written have one attempt", ({Kind.WRONG}, "one transaction"))
def _own_transaction(put: Put) -> None:
    """Repeat an attempt in another transaction, where the rows of the tasks are not."""
    put(Part, "inside", "")
