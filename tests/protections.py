"""Protections of the package, each with a way to switch it off.

A test that passes with its protection switched off proves nothing. The switches replace functions of the
package inside the process that calls them, and are used by tests that expect to see the damage.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from yt_exactly_once import observability
from yt_exactly_once.commit import contents, transactional
from yt_exactly_once.commit.judgement import Verdict
from yt_exactly_once.commit.ledger import CommitLedger
from yt_exactly_once.spark.query import calls
from yt_exactly_once.spark.sink import look_up
from yt_exactly_once.spark.sink import transactional_sink as sink
from yt_exactly_once.spark.sink.modes.at_least_once import AtLeastOnce
from yt_exactly_once.spark.sink.modes.idempotent import Idempotent

if TYPE_CHECKING:
    from collections.abc import Callable

Patch = tuple[Any, str, Any]
"""Object, name of its attribute, and what to put there."""


def _ledger_look_up() -> list[Patch]:
    """A replay is not recognised, neither at first nor inside the transaction."""
    return [
        (look_up, "judge", lambda *_, **__: Verdict.NEW),
        (transactional.BatchCommit, "_is_done", lambda *_: False),
        (contents, "plan_moves", lambda *_: {}),
    ]


def _early_look_up() -> list[Patch]:
    """A replay is recognised only inside the transaction."""
    return [(look_up, "judge", lambda *_, **__: Verdict.NEW)]


def _state_evaluation() -> list[Patch]:
    """A skipped batch of a stateful query is not evaluated."""
    from dataclasses import replace

    skip = sink.TransactionalSink._skip

    def without(self: Any, delivery: Any, found: Any) -> None:
        skip(self, replace(delivery, batch=replace(delivery.batch, stateful=False)), found)

    return [(sink.TransactionalSink, "_skip", without)]


def _ledger_row() -> list[Patch]:
    """Commits leave no common row that they could conflict on, and nobody misses its entries."""
    return [(CommitLedger, "record", lambda *_, **__: None), *_history()]


def _producer_sessions() -> list[Patch]:
    """Tasks of idempotent mode append their rows without a session that would know them."""

    def plainly(self: Any, given: Any) -> Any:
        return AtLeastOnce(self.options, self.connection).plan(given)

    return [(Idempotent, "plan", plainly)]


def _push_look_up() -> list[Patch]:
    """Rows of an unfinished batch that idempotent mode has pushed are not looked for."""
    return [(look_up, "sessions_with_rows", lambda *_: {})]


def _one_call() -> list[Patch]:
    """Sinks may be called as often as the function likes, and after a call that failed."""
    return [(calls, "_refusal", lambda *_: (None, []))]


def _history() -> list[Patch]:
    """A run knows nothing of calls that failed or were refused before, nor of ledgers that were used."""
    return [(look_up, "compare_history", lambda *_: None)]


def _same_rows() -> list[Patch]:
    """The commit of a call that failed counts for the next one, whatever its rows."""
    return [(transactional.BatchCommit, "_require_same_rows", lambda *_: None)]


def _listener_guard() -> list[Patch]:
    """What a listener raises ends the batch."""

    def call(self: Any, event: str, fields: dict[str, Any]) -> None:
        self._listener(event, fields)

    return [(observability.GuardedListener, "__call__", call)]


PROTECTIONS: dict[str, Callable[[], list[Patch]]] = {
    "ledger_look_up": _ledger_look_up,
    "early_look_up": _early_look_up,
    "state_evaluation": _state_evaluation,
    "ledger_row": _ledger_row,
    "producer_sessions": _producer_sessions,
    "push_look_up": _push_look_up,
    "one_call": _one_call,
    "history": _history,
    "same_rows": _same_rows,
    "listener_guard": _listener_guard,
}


def switch_off(name: str, put: Callable[[Any, str, Any], None] = setattr) -> None:
    """Switch a protection off, for the rest of this process or as long as `put` says."""
    for owner, attribute, replacement in PROTECTIONS[name]():
        put(owner, attribute, replacement)
