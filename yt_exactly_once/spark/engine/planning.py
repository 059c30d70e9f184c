"""How the rows of a batch are sent whose tasks run before its commit, and what is left when that fails.

Spark asks a writer for a plan, runs the tasks, and asks for the commit, all in processes that know nothing of
each other. If a job fails, its query ends. So who sends the rows is chosen by the plan, and the way that has
failed is kept for the next one, see `Tried`.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from yt_exactly_once.commit.claims import CLAIMS_ATTRIBUTES, CLAIMS_SCHEMA, Claims, Plan
from yt_exactly_once.commit.ledger import CommitLedger
from yt_exactly_once.commit.tally import SentBy
from yt_exactly_once.delivery.route import AUTO, LARGE, LookUp, Way, choose_route
from yt_exactly_once.delivery.tried import Tried
from yt_exactly_once.errors import ExactlyOnceError, TasksRefusedError
from yt_exactly_once.observability import Event
from yt_exactly_once.retrying import run_attempts
from yt_exactly_once.spark.engine import look_up
from yt_exactly_once.ytsaurus.tables import ensure_table

if TYPE_CHECKING:
    from yt_exactly_once.commit.cluster import OpenTransaction
    from yt_exactly_once.spark.engine.run import Delivery
    from yt_exactly_once.spark.modes.mode import Assignment, Mode


class Planned(NamedTuple):
    """What tasks do with rows that Spark computes before it asks for the commit.

    Attributes:
        is_replay: whether they leave out all rows, which are written.
    """

    assignment: Assignment
    is_replay: bool


class Known(NamedTuple):
    """What decides who sends the rows of a batch.

    Attributes:
        bytes_before: of the encoded rows of the batch before; 0 where it is not known.
        tried: `None` if there is nothing.
    """

    bytes_before: int = 0
    tried: Tried | None = None


Ask = Callable[[], Known]


def ask(mode: Mode, query_id: str) -> Ask:
    """Begin to ask what decides who sends the rows, where anything does; return what waits for the answer."""
    if not mode.one_transaction or mode.obstacle or mode.options.sent_by == SentBy.DRIVER:
        return Known
    with suppress(ExactlyOnceError):
        return mode.connection.submit(partial(_known, mode, query_id)).result
    return Known


def plan(delivery: Delivery, known: Ask, *, looks_up: bool) -> Planned:
    """Say what the tasks of a batch do: send its rows, or hand them to the commit. Nothing is written.

    Args:
        known: what `ask` has returned.
        looks_up: whether the ledger is asked in any case, which may then have the batch.
    """
    mode, (target,) = delivery.mode, delivery.targets
    if not mode.one_transaction or not _goes_by_tasks(delivery, known()):
        found = look_up.find(delivery, LookUp.FIRST if looks_up else LookUp.INSIDE)
        return Planned(mode.assign(delivery.of_target(target, found.sessions)), found.is_replay)
    found = look_up.find(delivery, LookUp.FIRST)
    given = delivery.of_target(target, found.sessions)
    if not found.is_replay:
        assignment = mode.assign(replace(given, plan=Plan.make()))
        assert assignment.claiming is not None, "the mode lets tasks join"
        try:
            task = assignment.claiming()
            return Planned(replace(assignment, task=task, claiming=None), is_replay=False)
        except TasksRefusedError as error:
            if mode.options.sent_by == SentBy.TASKS:
                raise
            delivery.emit(Event.RETRY_SCHEDULED, reason=type(error).__name__, error=str(error))
    return Planned(mode.assign(given), found.is_replay)


def _goes_by_tasks(delivery: Delivery, known: Known) -> bool:
    """Choose the route of a batch by the batch before, and by what was tried of this one."""
    if any(target.wanted is not None for target in delivery.targets):
        # The commit alters the table before the transaction of the batch begins.
        return False
    batch, tried = delivery.batch, known.tried
    facts = replace(delivery.facts, bytes_before=known.bytes_before)
    if tried is not None:
        facts = tried.add_to(facts, batch.batch_id)
    if choose_route(facts).way is Way.JOIN:
        return True
    if tried is not None and tried.batch == batch.batch_id and tried.by is SentBy.TASKS:
        _keep(delivery.mode, replace(tried, by=SentBy.DRIVER, has_failed=False))
    return False


def opened(delivery: Delivery) -> OpenTransaction | None:
    """Return the transaction into which the tasks of a batch have written; `None` if they have not."""
    made = delivery.rows.plan
    if made is None:
        return None
    options, connection = delivery.mode.options, delivery.mode.connection
    (target,) = options.targets
    claims = Claims(options.claims, made.id, target.path)
    return run_attempts(lambda _: claims.opened(connection), options.retry, delivery.emit)


def keep_failure(delivery: Delivery, error: Exception) -> None:
    """Keep that rows which tasks have sent could not be committed: the next run sends them by the driver."""
    if delivery.opened is not None and isinstance(error, ExactlyOnceError):
        _keep(delivery.mode, _of(delivery, SentBy.TASKS).failed(error))


def keep_refusal(delivery: Delivery, row_bytes: int) -> None:
    """Keep that a large batch, which the driver has sent, has more tasks than an ordered target has tablets.

    Tasks would learn that too late. The next batch probably has as many.
    """
    tasks, mode = delivery.rows.task_count, delivery.mode
    if not mode.one_transaction or row_bytes < LARGE or mode.options.sent_by != AUTO:
        return
    try:
        for target in delivery.targets:
            target.require_own_tablets(tasks)
    except TasksRefusedError as error:
        _keep(mode, replace(_of(delivery, SentBy.DRIVER).failed(error), has_failed=False))


def give_up(
    mode: Mode, query_id: str, number: int, plan: Plan | None, *, is_incomplete: bool
) -> None:
    """End what is open of a failed job, and keep that the driver could not send its rows.

    Args:
        plan: whose tasks have opened a transaction, as far as their messages say.
        is_incomplete: whether tasks of it have failed, or their results do not fit the driver.
    """
    options, connection = mode.options, mode.connection
    (target,) = options.targets
    if plan is not None:
        found = Claims(options.claims, plan.id, target.path).opened(connection)
        if found is not None:
            connection.joined(found.id, proxy=found.proxy).abort()
        return
    is_open = mode.one_transaction and mode.obstacle is None and options.sent_by == AUTO
    if not (is_open and is_incomplete):
        return
    known = _read(mode, query_id)
    if known is not None and (known.batch, known.by) == (number, SentBy.TASKS):
        # They know themselves why they have failed.
        return
    lasting = known.lasting if known else ""
    _keep(
        mode, Tried(query_id, target.path, number, SentBy.DRIVER, has_failed=True, lasting=lasting)
    )


def _of(delivery: Delivery, by: SentBy) -> Tried:
    batch, (target,) = delivery.batch, delivery.targets
    return Tried(batch.query_id, target.path, batch.batch_id, by)


def _keep(mode: Mode, tried: Tried) -> None:
    """Keep what was tried. If that fails, the next run tries the batch as if for the first time."""
    connection, path = mode.connection, mode.options.claims
    with suppress(ExactlyOnceError):
        ensure_table(connection, path, CLAIMS_SCHEMA, CLAIMS_ATTRIBUTES)
        tried.keep(connection, path)


def _read(mode: Mode, query_id: str) -> Tried | None:
    options, (target,) = mode.options, mode.options.targets
    with suppress(ExactlyOnceError):
        return Tried.read(mode.connection, options.claims, query_id, target.path)
    return None


def _known(mode: Mode, query_id: str) -> Known:
    ledger = CommitLedger(mode.options.ledger, query_id, [one.path for one in mode.options.targets])
    size = 0
    with suppress(ExactlyOnceError):
        entry = ledger.read(mode.connection)
        size = entry.batch_bytes if entry else 0
    return Known(size, _read(mode, query_id))
