"""Single protections of the real code, each with a way to take it away, and what must come of it.

Left out are those that another protection covers wherever the model can look.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tests.model import network
from tests.model.cluster import LEDGER, ModelTransaction, conflicts
from tests.model.invariants import Kind
from tests.protections import switch_off
from yt_exactly_once.commit import contents
from yt_exactly_once.commit.judgement import Verdict, judge
from yt_exactly_once.commit.ledger import CommitLedger
from yt_exactly_once.commit.parts import Part
from yt_exactly_once.commit.transactional import BatchCommit
from yt_exactly_once.config import LEASE
from yt_exactly_once.errors import CommitOutcomeUnknownError, FencedError
from yt_exactly_once.spark.sink import look_up

if TYPE_CHECKING:
    from collections.abc import Sequence

    from yt_exactly_once.commit.cluster import Row

Put = Callable[[Any, str, Any], None]
"""`setattr`, or a monkeypatch that undoes it."""


@dataclass(frozen=True)
class Removal:
    """A protection taken away.

    Attributes:
        what: the protection.
        apply: takes it away.
        found: in which scenarios a violation must be found, and of which kind.
    """

    what: str
    apply: Callable[[Put], None]
    found: dict[str, frozenset[Kind]]


def _early_look_up(put: Put) -> None:
    switch_off("early_look_up", put)


def _check_inside(put: Put) -> None:
    read = CommitLedger.read

    def outside_only(self: CommitLedger, reader: Any) -> Any:
        return None if isinstance(reader, ModelTransaction) else read(self, reader)

    put(CommitLedger, "read", outside_only)


def _done(put: Put) -> None:
    """Write a batch that another attempt has committed already."""
    put(BatchCommit, "_is_done", lambda *_: False)


def _not_done(put: Put, by: Callable[[str, str], bool]) -> None:
    """Refuse a batch that is there instead of counting it as done, depending on who wrote it."""
    is_done = BatchCommit._is_done

    def suspicious(self: BatchCommit, entry: Any, batch: Any, part: Any) -> bool:
        done = is_done(self, entry, batch, part)
        if done and by(entry.run_id, batch.run_id):
            raise FencedError("Taken for a stranger's", run=entry.run_id)
        return done

    put(BatchCommit, "_is_done", suspicious)


def _own_attempt(put: Put) -> None:
    _not_done(put, operator.eq)


def _dead_run(put: Put) -> None:
    _not_done(put, operator.ne)


def _compare_and_set(put: Put) -> None:
    def blindly(source: Any, _current: Any, _before: Any, batch: Any, _ledger: str) -> Any:
        return {
            part.partition: part.start if batch.stateful else part.end for part in source.partitions
        }

    put(contents, "plan_moves", blindly)


def _ledger_row(put: Put) -> None:
    switch_off("ledger_row", put)


def _common_row(put: Put) -> None:
    def never_on_the_ledger(rows: Any, guards: Any) -> bool:
        consumers = [guard for guard in guards if not rows[guard[0]][1].count("batch_id")]
        return conflicts(rows, tuple(consumers))

    put(network, "conflicts", never_on_the_ledger)


def _one_transaction(put: Put) -> None:
    """Record the batch in a transaction of its own, after its rows were committed."""
    commit = BatchCommit._commit

    def record_later(self: BatchCommit, transaction: Any, *rest: Any) -> None:
        writes = transaction._writes
        ledger = [write for write in writes if "batch_id" in getattr(write, "value", "")]
        transaction._writes = [write for write in writes if write not in ledger]
        commit(self, transaction, *rest)
        second = self._cluster.begin(LEASE)
        second._writes = ledger  # type: ignore[attr-defined]
        second.commit()

    put(BatchCommit, "_commit", record_later)


def _believed(put: Put) -> None:
    """Take a commit without an answer for a success."""

    def believing(self: BatchCommit, transaction: Any, *_: Any) -> None:  # noqa: ARG001 - a method
        try:
            transaction.commit()
        except CommitOutcomeUnknownError:
            return

    put(BatchCommit, "_commit", believing)


class _Elsewhere:
    """A transaction whose reads come from somewhere else."""

    def __init__(self, transaction: Any, lookup: Any) -> None:
        self.lookup = lookup
        self._transaction = transaction

    def side_by_side(self, calls: Sequence[Callable[[Any], Any]]) -> list[Any]:
        return [call(self) for call in calls]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transaction, name)


def _late_open(put: Put) -> None:
    """Read ledger and consumers first, and open the transaction then."""
    attempt = BatchCommit._attempt

    def early(self: Any, batch: Any, *rest: Any) -> Any:
        cluster = self._cluster
        rows = {row: cluster.lookup(*key) for row, key in _read_by(cluster, self._ledger, batch)}

        def lookup(path: str, keys: Sequence[Row]) -> Any:
            return rows[cluster.numbers(path, keys)]

        self._cluster = _Opening(cluster, lookup)
        try:
            return attempt(self, batch, *rest)
        finally:
            self._cluster = cluster

    put(BatchCommit, "_attempt", early)


class _Opening:
    """A cluster whose transactions read from somewhere else."""

    def __init__(self, cluster: Any, lookup: Any) -> None:
        self._cluster = cluster
        self._lookup = lookup

    def begin(self, *arguments: Any) -> Any:
        return _Elsewhere(self._cluster.begin(*arguments), self._lookup)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cluster, name)


def _read_by(cluster: Any, ledger: CommitLedger, batch: Any) -> list[tuple[Any, Any]]:
    """Return what step 5 reads, as arguments of a look-up, with their row numbers."""
    keys = [
        (LEDGER, [{"query_id": ledger.query_id, "target": target} for target in ledger.targets])
    ]
    keys += [
        (
            source.consumer,
            [
                {
                    "queue_cluster": source.cluster,
                    "queue_path": source.queue,
                    "partition_index": part.partition,
                }
                for part in source.partitions
            ],
        )
        for source in batch.sources
    ]
    return [(cluster.numbers(*key), key) for key in keys]


def _trim_guard(put: Put) -> None:
    """Move the consumer of a stateful query to the end of the batch at once."""
    commit = BatchCommit.commit

    def as_if_stateless(self: BatchCommit, batch: Any, *rest: Any) -> Any:
        return commit(self, replace(batch, stateful=False), *rest)

    put(BatchCommit, "commit", as_if_stateless)


def _state_evaluation(put: Put) -> None:
    switch_off("state_evaluation", put)


def _same_offsets(put: Put) -> None:
    def by_number(entry: Any, batch: Any, **options: Any) -> Verdict:
        if entry is not None and entry.batch_id == batch.batch_id:
            return Verdict.REPLAY
        return judge(entry, batch, **options)

    put(look_up, "judge", by_number)


def _never_skip_silently(put: Put) -> None:
    def skip_older(entry: Any, batch: Any, **options: Any) -> Verdict:
        if entry is not None and entry.batch_id > batch.batch_id:
            return Verdict.REPLAY
        return judge(entry, batch, **options)

    put(look_up, "judge", skip_older)


def _part_number(put: Put) -> None:
    """Take a batch of which a part is there for complete."""
    is_done = BatchCommit._is_done

    def hasty(self: BatchCommit, entry: Any, batch: Any, part: Any) -> bool:
        if entry.batch_id == batch.batch_id:
            entry = replace(entry, part=max(entry.part, part.number))
        return is_done(self, entry, batch, part)

    put(BatchCommit, "_is_done", hasty)


def _last_part(put: Put) -> None:
    """Move the consumers with the first part."""
    put(Part, "is_last", property(lambda part: part.number == 1))


_STUCK, _BOTH = frozenset({Kind.STUCK}), frozenset({Kind.BOTH_COMMITTED})
_SELF, _TWICE = frozenset({Kind.SELF_FENCED}), frozenset({Kind.TWICE})

REMOVALS = (
    Removal(
        "the look-up before the batch is computed",
        _early_look_up,
        {"at-least-once": _STUCK, "idempotent": _STUCK, "stateless": _STUCK},
    ),
    Removal(
        "the ledger check inside the transaction",
        _check_inside,
        {
            "at-least-once, stateful": _BOTH,
            "stateful": _BOTH,
            "no queue": _BOTH,
            "two drivers, stateful": _BOTH,
        },
    ),
    Removal(
        "the check for a batch that is there, inside the transaction",
        _done,
        {"stateful": _BOTH, "no queue": _BOTH, "two drivers, no queue": _BOTH},
    ),
    Removal(
        "compare and set of the consumer",
        _compare_and_set,
        {
            "at-least-once, two checkpoints, one consumer": frozenset({Kind.TWICE}),
            "two checkpoints, one consumer": frozenset({Kind.TWICE}),
        },
    ),
    Removal(
        "the ledger row",
        _ledger_row,
        {
            "at-least-once": frozenset({Kind.STUCK, Kind.LOST}),
            "idempotent": frozenset({Kind.STUCK, Kind.LOST}),
            "stateless": _STUCK,
            "stateful": _BOTH,
            "no queue": _BOTH,
        },
    ),
    Removal(
        "the conflict on the ledger row",
        _common_row,
        {
            "at-least-once, stateful": _BOTH,
            "stateful": _BOTH,
            "no queue": _BOTH,
            "two drivers, stateful": _BOTH,
        },
    ),
    Removal(
        "one transaction for rows and ledger",
        _one_transaction,
        {"stateful": _BOTH, "no queue": _BOTH, "stateless": _STUCK},
    ),
    Removal(
        "what an earlier attempt of this run committed counts as done",
        _own_attempt,
        {"stateless": _SELF, "stateful": _SELF, "no queue": _SELF},
    ),
    Removal(
        "what an earlier run committed counts as done",
        _dead_run,
        {
            "survivor, stateful": frozenset({Kind.SURVIVOR}),
            "survivor, no queue": frozenset({Kind.SURVIVOR}),
        },
    ),
    Removal(
        "an unknown outcome is not believed",
        _believed,
        {
            "at-least-once": frozenset({Kind.LOST}),
            "idempotent": frozenset({Kind.LOST}),
            "stateless": frozenset({Kind.LOST}),
            "stateful": frozenset({Kind.LOST}),
        },
    ),
    Removal(
        "the transaction opened before its checks",
        _late_open,
        {
            "stateless": _BOTH,
            "stateful": _BOTH,
            "no queue": _BOTH,
            "two drivers": _BOTH,
            "two drivers, stateful": _BOTH,
        },
    ),
    Removal(
        "the consumer of a stateful query stays at the start",
        _trim_guard,
        {"at-least-once, stateful": _STUCK, "stateful": _STUCK, "two partitions, stateful": _STUCK},
    ),
    Removal(
        "the evaluation of a skipped stateful batch",
        _state_evaluation,
        {"at-least-once, stateful": _STUCK, "stateful": _STUCK, "no queue, stateful": _STUCK},
    ),
    Removal(
        "the number of the part",
        _part_number,
        {"split": frozenset({Kind.LOST}), "two drivers, split": frozenset({Kind.LOST})},
    ),
    Removal(
        "the consumer moves with the last part",
        _last_part,
        {"split": frozenset({Kind.OFFSETS, Kind.STUCK})},
    ),
    Removal(
        "the comparison of a replay's offsets",
        _same_offsets,
        {
            "checkpoint restored": frozenset({Kind.LOST}),
            "checkpoint restored, stateful": frozenset({Kind.LOST, Kind.OFFSETS}),
        },
    ),
    Removal(
        "the refusal of a batch older than the ledger",
        _never_skip_silently,
        {"checkpoint restored": frozenset({Kind.LOST})},
    ),
)
