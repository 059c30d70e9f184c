"""Single protections of the real code, each with a way to take it away, and what must come of it.

Left out are those that another protection covers wherever the model can look.
"""

import json
import operator
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

from tests.model import network
from tests.model.cluster import UNAVAILABLE, Lookup, ModelCluster, ModelTransaction, conflicts
from tests.model.invariants import Kind
from yt_exactly_once.commit import consumers
from yt_exactly_once.commit.judgement import Verdict, judge
from yt_exactly_once.commit.ledger import CommitLedger
from yt_exactly_once.commit.notes import History
from yt_exactly_once.commit.parts import Part
from yt_exactly_once.commit.transactional import BatchCommit
from yt_exactly_once.config import LEASE
from yt_exactly_once.errors import ClusterUnavailableError, CommitOutcomeUnknownError, FencedError
from yt_exactly_once.spark.engine import look_up
from yt_exactly_once.spark.engine.engine import Engine

Put = Callable[[Any, str, Any], None]
"""`setattr`, or a monkeypatch that undoes it."""


class Removal(NamedTuple):
    """A protection taken away.

    Attributes:
        found: in which scenarios a violation must be found, and of which kinds.
    """

    what: str
    apply: Callable[[Put], None]
    found: list[tuple[str, set[Kind]]]


REMOVALS: list[Removal] = []


def removal(what: str, *found: Any) -> Callable[[Callable[[Put], None]], Callable[[Put], None]]:
    """Register a function as a removal; `found` are tuples of the kinds and the scenarios."""

    def register(apply: Callable[[Put], None]) -> Callable[[Put], None]:
        listed = [(scenario, kinds) for kinds, *scenarios in found for scenario in scenarios]
        REMOVALS.append(Removal(what, apply, listed))
        return apply

    return register


@removal(
    "the look-up before the batch is computed",
    ({Kind.STUCK}, "at-least-once", "idempotent", "stateless"),
)
def _early_look_up(put: Put) -> None:
    put(look_up, "judge", lambda *_, **__: Verdict.NEW)


@removal(
    "the ledger check inside the transaction",
    (
        {Kind.BOTH_COMMITTED},
        "at-least-once, stateful",
        "stateful",
        "no queue",
        "two drivers, stateful",
    ),
)
def _check_inside(put: Put) -> None:
    read = CommitLedger.read

    def outside_only(self: CommitLedger, reader: Any) -> Any:
        return None if isinstance(reader, ModelTransaction) else read(self, reader)

    put(CommitLedger, "read", outside_only)


@removal(
    "the check for a batch that is there, inside the transaction",
    ({Kind.BOTH_COMMITTED}, "stateful", "no queue", "two drivers, no queue"),
)
def _done(put: Put) -> None:
    """Write a batch that another attempt has committed already."""
    put(BatchCommit, "_is_done", lambda *_: False)


def _not_done(put: Put, by: Callable[[str, str], bool]) -> None:
    """Refuse a batch that is there instead of counting it as done, depending on who wrote it."""
    is_done = BatchCommit._is_done

    def suspicious(self: BatchCommit, entry: Any, part: Any) -> bool:
        done = is_done(self, entry, part)
        if done and by(entry.run_id, self.batch.run_id):
            raise FencedError("Taken for a stranger's", run=entry.run_id)
        return done

    put(BatchCommit, "_is_done", suspicious)


@removal(
    "what an earlier attempt of this run committed counts as done",
    ({Kind.SELF_FENCED}, "stateless", "stateful", "no queue"),
)
def _own_attempt(put: Put) -> None:
    _not_done(put, operator.eq)


@removal(
    "what an earlier run committed counts as done",
    ({Kind.SURVIVOR}, "survivor, stateful", "survivor, no queue"),
)
def _dead_run(put: Put) -> None:
    _not_done(put, operator.ne)


@removal(
    "compare and set of the consumer",
    ({Kind.TWICE}, "at-least-once, two checkpoints, one consumer", "two checkpoints, one consumer"),
)
def _compare_and_set(put: Put) -> None:
    def blindly(source: Any, _current: Any, _before: Any, batch: Any, _ledger: str) -> Any:
        return {
            part.partition: part.start if batch.stateful else part.end for part in source.partitions
        }

    put(consumers, "plan_moves", blindly)


@removal(
    "the ledger row",
    ({Kind.LOST, Kind.STUCK}, "at-least-once", "idempotent"),
    ({Kind.STUCK}, "stateless"),
    ({Kind.BOTH_COMMITTED}, "stateful", "no queue"),
)
def _ledger_row(put: Put) -> None:
    put(CommitLedger, "record", lambda *_, **__: None)
    put(look_up, "compare_history", lambda *_: None)


@removal(
    "the conflict on the ledger row",
    (
        {Kind.BOTH_COMMITTED},
        "at-least-once, stateful",
        "stateful",
        "no queue",
        "two drivers, stateful",
    ),
)
def _common_row(put: Put) -> None:
    def never_on_the_ledger(rows: Any, guards: Any) -> bool:
        consumers = [guard for guard in guards if not rows[guard[0]][1].count("batch_id")]
        return conflicts(rows, tuple(consumers))

    put(network, "conflicts", never_on_the_ledger)


@removal(
    "one transaction for rows and ledger",
    ({Kind.BOTH_COMMITTED}, "stateful", "no queue"),
    ({Kind.STUCK}, "stateless"),
)
def _one_transaction(put: Put) -> None:
    """Record the batch in a transaction of its own, after its rows were committed."""
    commit = BatchCommit._commit

    def record_later(self: BatchCommit, transaction: Any, *rest: Any) -> None:
        writes = transaction._writes
        ledger = [write for write in writes if "batch_id" in getattr(write, "value", "")]
        transaction._writes = [write for write in writes if write not in ledger]
        commit(self, transaction, *rest)
        second = self.cluster.begin(LEASE)
        second._writes = ledger  # type: ignore[attr-defined]
        second.commit()

    put(BatchCommit, "_commit", record_later)


@removal(
    "an unknown outcome is not believed",
    ({Kind.LOST}, "at-least-once", "idempotent", "stateless", "stateful"),
)
def _believed(put: Put) -> None:
    """Take a commit without an answer for a success."""

    def believing(self: BatchCommit, transaction: Any, *_: Any) -> None:  # noqa: ARG001 - a method
        try:
            transaction.commit()
        except CommitOutcomeUnknownError:
            return

    put(BatchCommit, "_commit", believing)


@removal(
    "the transaction opened before its checks",
    (
        {Kind.BOTH_COMMITTED},
        "stateless",
        "stateful",
        "no queue",
        "two drivers",
        "two drivers, stateful",
    ),
)
def _late_open(put: Put) -> None:
    """Read ledger and consumers first, and open the transaction then."""
    begin = ModelCluster.begin

    def late(self: ModelCluster, *rest: Any) -> ModelTransaction:
        seen = self.script.ask(Lookup(tuple(self.index.values())))
        if seen == UNAVAILABLE:
            raise ClusterUnavailableError("The model lost a request")
        transaction = begin(self, *rest)

        def lookup(path: str, keys: Any) -> list[Any]:
            values = [seen[row] for row in self.numbers(path, keys)]
            return [json.loads(value) if value else None for value in values]

        transaction.lookup = lookup  # type: ignore[method-assign]
        return transaction

    put(ModelCluster, "begin", late)


@removal(
    "the consumer of a stateful query stays at the start",
    ({Kind.STUCK}, "at-least-once, stateful", "stateful", "two partitions, stateful"),
)
def _trim_guard(put: Put) -> None:
    """Move the consumer of a stateful query to the end of the batch at once."""
    commit = BatchCommit.commit

    def as_if_stateless(self: BatchCommit, *rest: Any) -> Any:
        self.batch = replace(self.batch, stateful=False)
        return commit(self, *rest)

    put(BatchCommit, "commit", as_if_stateless)


@removal(
    "the evaluation of a skipped stateful batch",
    ({Kind.STUCK}, "at-least-once, stateful", "stateful", "no queue, stateful"),
)
def _state_evaluation(put: Put) -> None:
    skip = Engine._skip

    def without(self: Any, delivery: Any, found: Any) -> None:
        skip(self, replace(delivery, batch=replace(delivery.batch, stateful=False)), found)

    put(Engine, "_skip", without)


@removal(
    "the comparison of a replay's offsets",
    ({Kind.LOST}, "checkpoint restored"),
    ({Kind.LOST, Kind.OFFSETS}, "checkpoint restored, stateful"),
)
def _same_offsets(put: Put) -> None:
    def by_number(entry: Any, batch: Any, **options: Any) -> Verdict:
        if entry is not None and entry.batch_id == batch.batch_id:
            return Verdict.REPLAY
        return judge(entry, batch, **options)

    put(look_up, "judge", by_number)


@removal("the refusal of a batch older than the ledger", ({Kind.LOST}, "checkpoint restored"))
def _never_skip_silently(put: Put) -> None:
    def skip_older(entry: Any, batch: Any, **options: Any) -> Verdict:
        if entry is not None and entry.batch_id > batch.batch_id:
            return Verdict.REPLAY
        return judge(entry, batch, **options)

    put(look_up, "judge", skip_older)


@removal(
    "the note of the newest committed batch",
    (
        # With a queue the offsets tell too, in transactional mode.
        {Kind.LOST},
        "put back, no queue",
        "put back, at-least-once",
        "put back, stateful",
    ),
)
def _newest(put: Put) -> None:
    put(History, "require_newest", lambda *_, **__: None)


@removal("the number of the part", ({Kind.LOST}, "split", "two drivers, split"))
def _part_number(put: Put) -> None:
    """Take a batch of which a part is there for complete."""
    is_done = BatchCommit._is_done

    def hasty(self: BatchCommit, entry: Any, part: Any) -> bool:
        if entry.batch_id == self.batch.batch_id:
            entry = replace(entry, part=max(entry.part, part.number))
        return is_done(self, entry, part)

    put(BatchCommit, "_is_done", hasty)


@removal("the consumer moves with the last part", ({Kind.OFFSETS, Kind.STUCK}, "split"))
def _last_part(put: Put) -> None:
    """Move the consumers with the first part."""
    put(Part, "is_last", property(lambda part: part.number == 1))
