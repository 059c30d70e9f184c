"""The nine steps of a batch, the same behind every door.

A door finds out which batch Spark runs, and hands over its rows. The engine does the rest. It lives in one
process, and holds what belongs there: connections, the mode, and what is remembered of each run.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from yt_exactly_once import config, errors
from yt_exactly_once.commit.cluster import Ahead, OpenTransaction
from yt_exactly_once.commit.ledger import CommitLedger
from yt_exactly_once.commit.parts import Part, TargetRows, split, whole
from yt_exactly_once.commit.tally import SentBy
from yt_exactly_once.commit.transactional import SHARE_AHEAD, BatchCommit, Committed, Read
from yt_exactly_once.delivery.memory import Memories, Memory
from yt_exactly_once.delivery.route import Failure, LookUp, Route, Way, choose_route
from yt_exactly_once.observability import Emitter, Event, GuardedListener, emitter, reported
from yt_exactly_once.retrying import run_attempts
from yt_exactly_once.spark.compat.failures import (
    does_not_fit_driver,
    is_cancelled,
    unfit_python_named,
)
from yt_exactly_once.spark.compat.raised import exactly_once_error
from yt_exactly_once.spark.engine import look_up, planning
from yt_exactly_once.spark.engine.by_table import of_target
from yt_exactly_once.spark.engine.look_up import Found
from yt_exactly_once.spark.engine.past_batches import PastBatches
from yt_exactly_once.spark.engine.planning import Planned
from yt_exactly_once.spark.engine.preparation import check_before_start, prepare_again
from yt_exactly_once.spark.engine.run import Delivery, Rows
from yt_exactly_once.spark.modes.mode import Mode, nothing_first
from yt_exactly_once.spark.query.calls import PROCESS_CALLS, Call, LedgerKey
from yt_exactly_once.spark.query.notes import LedgerNotes
from yt_exactly_once.spark.sink.encode import SMALL_BATCH, PartitionsUnknownError
from yt_exactly_once.spark.sink.targets import PreparedTarget, are_the_same, grow, with_change

if TYPE_CHECKING:
    from yt_exactly_once.commit.batch import MicroBatch
    from yt_exactly_once.spark.query.offset_log import RunningBatch

Requirement = Callable[[Delivery], None]
"""What a door requires of a batch whose targets are prepared; it raises what is not met."""


def nothing_more(_delivery: Delivery) -> None:
    """Require nothing."""


class Engine:
    """Delivers the batches of queries.

    Args:
        mode: with the options and the connection of the sink.
        records_empty: whether a batch is recorded that has no rows and moves no consumer.

    Raises:
        ConfigError: the mode cannot honour an option.
    """

    def __init__(self, mode: Mode, *, records_empty: bool = False) -> None:
        mode.check()
        self.mode, self.options, self.connection = mode, mode.options, mode.connection
        self._records_empty = records_empty
        self._calls = PROCESS_CALLS
        self._memories = Memories()
        self._planned: dict[tuple[str, bool], Memory] = {}
        past, listener = self.options.history_path, self.options.listener
        self._past = None if past is None else PastBatches(self.connection, past)
        self._listener = None if listener is None else GuardedListener(listener)

    def deliver(
        self, running: RunningBatch, rows: Rows, require: Requirement = nothing_more
    ) -> None:
        """Write one micro-batch, exactly once.

        1. Identify the batch, and its range of every queue.
        2. Look it up in the ledger: one that is there is a replay, and skipped. In transactional mode only
           the first batch of a run is looked up here; step 5 covers the rest.
        3. Compute its rows, once, as encoded payloads, or let the tasks send them.
        Then, as one attempt that is repeated while that can help:
        4. open a transaction, 5. check ledger and consumers in it, 6. write the rows,
        7. advance the consumers, 8. record the batch in the ledger, 9. commit.

        If a route fails before anything of the batch is visible, the batch takes the one that is left.

        Args:
            require: what the door requires before step 2.

        Raises:
            ExactlyOnceError: the batch was not written, or the replay will resolve its outcome.
        """
        with self._admitted(running) as (call, emit):
            batch = running.log.identify(running)  # 1
            memory = self._memories.of(batch)
            delivery = self._prepared(self._delivery(running, batch, rows, call, emit, memory))
            require(delivery)
            delivery, found = self._grown(delivery)
            delivery = replace(delivery, opened=planning.opened(delivery))
            facts = delivery.facts
            route = choose_route(facts)
            with delivery.commit() as commit:
                ahead = _begun(commit, delivery, route) if found is None else None
                found = found or look_up.find(delivery, route.look_up, ahead)  # 2
                memory = delivery.memory.after_look_up(batch, found.bytes, found.tallies)
                self._memories.keep(batch, memory)
                delivery = delivery.knowing(memory.tallies)
                delivery.clock.lap("look_up")
                if found.is_replay:
                    self._skip(delivery, found)
                    return
                facts = facts.after_look_up(memory.bytes, has_sessions=bool(found.sessions))
                while True:
                    # What the ledger said, or how another route failed, may lead to another one.
                    route, computed = choose_route(facts), None
                    ahead = _begun(commit, delivery, route)
                    try:
                        computed = self._compute(delivery, route, found, ahead)  # 3
                        if self._is_empty(delivery, computed, found):
                            emit(Event.BATCH_SKIPPED, reason="empty")
                            return
                        committed = commit.commit(self._parts(computed), found.resumed)  # 4 to 9
                    except Exception as error:  # noqa: BLE001 - `_settle` raises it if nothing helps
                        is_computed = computed is not None
                        commit.leave_ahead()
                        failure = _failure(error, is_computed=is_computed)
                        left = facts.after(route, failure, str(error))
                        if left is None:
                            planning.keep_failure(delivery, error)
                            self._settle(delivery, error, is_computed=is_computed)
                            return
                        emit(Event.RETRY_SCHEDULED, reason=type(error).__name__, error=str(error))
                        facts = left
                        self._memories.keep(batch, self._memories.of(batch).after_failure(left))
                    else:
                        self._committed(running, delivery, computed, committed)
                        return

    def plan(
        self,
        running: RunningBatch,
        rows: Rows,
        *,
        looks_up: bool,
        require: Requirement = nothing_more,
    ) -> Planned:
        """Take steps 1 and 2 of a batch whose tasks run before its `deliver`; nothing is written.

        Nothing tells the process that plans a batch its run, so it remembers no run.

        Args:
            looks_up: whether the ledger is asked, which may then have the batch.
        """
        with self._admitted(running) as (call, emit):
            known = planning.ask(self.mode, running.query_id)
            batch = running.log.identify(running)  # 1
            kind = batch.query_id, batch.stateful
            memory = self._planned.get(kind, Memory(batch.run_id))
            delivery = self._prepared(self._delivery(running, batch, rows, call, emit, memory))
            self._planned[kind] = delivery.memory
            require(delivery)
            return planning.plan(delivery, known, looks_up=looks_up)  # 2

    def check(self, rows: Rows, output_mode: str | None) -> None:
        """Check before a query starts everything that can be known then; see `TransactionalSink.check`."""
        self.connection.require_proxy()
        check_before_start(self.mode, rows, output_mode)

    @contextmanager
    def _admitted(self, running: RunningBatch) -> Iterator[tuple[Call, Emitter]]:
        """Let one call for a batch through, or refuse it; see `Calls.call`."""
        options, emit = self.options, self._emitter(running)
        paths = [target.path for target in options.targets]
        keys = [LedgerKey(options.cluster.proxy, options.ledger, path) for path in paths]
        ledger_notes = LedgerNotes(
            self.connection, options.ledger, running.query_id, options.retry, emit
        )
        with reported(emit), self._calls.call(running, keys, emit, ledger_notes) as call:
            if running.problem is not None:
                raise running.problem
            yield call, emit

    def _emitter(self, running: RunningBatch) -> Emitter:
        name = running.log.query_name
        return emitter(
            self._listener,
            query=running.query_id,
            **({"name": name} if name else {}),
            batch=running.batch_id,
            target=self.options.targets[0].path,
            mode=str(self.options.mode),
        )

    def _delivery(
        self,
        running: RunningBatch,
        batch: MicroBatch,
        rows: Rows,
        call: Call,
        emit: Emitter,
        memory: Memory,
    ) -> Delivery:
        paths = sorted(target.path for target in self.options.targets)
        ledger = CommitLedger(self.options.ledger, batch.query_id, paths)
        return Delivery(batch, rows, call, running.log, ledger, self.mode, emit, memory)

    def _prepared(self, delivery: Delivery) -> Delivery:
        """Return a batch with targets that are prepared for its rows."""
        return replace(delivery, memory=replace(delivery.memory, prepared=prepare_again(delivery)))

    def _grown(self, delivery: Delivery) -> tuple[Delivery, Found | None]:
        """Give the targets the columns that they lack, and prepare them again.

        Only for a batch that the ledger lacks: neither a replay nor a driver that is fenced alters a table.
        Before the transaction of the batch begins, which must not see the table unmounted.

        Returns:
            The delivery, and what the look-up has found, if there was one.
        """
        growing = [target for target in delivery.targets if target.wanted is not None]
        if not growing:
            return delivery, None
        found = look_up.find(delivery, LookUp.FIRST)
        if found.is_replay:
            return delivery, found
        for target in growing:
            names = self._grow(target, delivery.emit)
            if names:
                # Otherwise another driver was faster.
                delivery.emit(Event.COLUMNS_ADDED, path=target.path, columns=names)
        memory = replace(delivery.memory, prepared=None)
        return self._prepared(replace(delivery, memory=memory)), found

    def _grow(self, target: PreparedTarget, emit: Emitter) -> list[str]:
        return run_attempts(lambda _: grow(self.connection, target), self.options.retry, emit)

    def _skip(self, delivery: Delivery, found: Found) -> None:
        """Let a replay pass without writing.

        The DataFrame of a stateful query is still evaluated. Spark must rebuild its state, and refuses to
        continue when a batch leaves no state.
        """
        if delivery.batch.stateful:
            with delivery.rows.described(delivery.batch, "rebuild the state of a replay"):
                delivery.rows.pass_over()
        delivery.call.note_committed()
        delivery.emit(Event.BATCH_SKIPPED, reason="replay", rows=found.rows)

    def _compute(
        self, delivery: Delivery, route: Route, found: Found, ahead: Ahead[Read] | None
    ) -> list[TargetRows]:
        """Evaluate the DataFrame, once, in the way of the route. Rows that tasks send are sent then.

        The ledger is asked here if the route before did not ask it: before the rows, or beside them.
        """
        rows, targets, computed = delivery.rows, [*delivery.targets], list[TargetRows]()
        inside, first = None, nothing_first
        kept_alive: AbstractContextManager[None] = nullcontext()
        if route.way is Way.JOIN:
            if ahead is None:
                raise errors.TransactionLostError("No transaction could be opened for the tasks")
            transaction = ahead.transaction()
            # No task begins in a transaction whose own reads have failed.
            ahead.read()
            inside = OpenTransaction(transaction.id, transaction.proxy)
            kept_alive = transaction.kept_alive(config.LEASE.total_seconds() / SHARE_AHEAD)
        if route.look_up is LookUp.BESIDE:
            first = partial(look_up.require_new, delivery, ahead)
        elif not found.covers(route.look_up):
            look_up.require_new(delivery, ahead)
        what, batch = f"compute {', '.join(target.path for target in targets)}", delivery.batch
        with unfit_python_named(), kept_alive, rows.described(batch, what):
            rows = rows.kept() if route.keeps_rows else rows
            for number, target in enumerate(targets):
                given = replace(
                    delivery.of_target(target, found.sessions),
                    transaction=inside,
                    by_driver=route.way is Way.FOR_TASKS,
                    first=first,
                    by_ends=route.by_ends,
                )
                targets[number], found_rows = of_target(delivery, rows, given, computed)
                computed += found_rows
        seconds = delivery.clock.lap("compute")
        self._memories.keep(batch, self._memories.of(batch).after_rows(tuple(targets), seconds))
        delivery.emit(Event.BATCH_COMPUTED, rows=sum(each.row_count for each in computed))
        rejected = sum(each.row_count for each in computed if each.rejected_by)
        if rejected:
            delivery.emit(Event.ROWS_REJECTED, path=self.options.dead_letter_path, rows=rejected)
        return computed

    def _settle(self, delivery: Delivery, error: Exception, *, is_computed: bool) -> None:
        """Skip a batch that an earlier run has written; otherwise raise the error, with what is known of it.

        A commit of an earlier run that landed late may have let the queue trim rows that could not be
        computed.
        """
        found = Found() if is_computed else look_up.once_more(delivery, error)
        if found.is_replay:
            self._skip(delivery, found)
            return
        explained = self._explained(delivery, error)
        if explained is error:
            raise error
        raise explained from error

    def _explained(self, delivery: Delivery, error: Exception) -> Exception:
        if isinstance(error, errors.OffsetConflictError):
            return look_up.with_other_query(delivery, error)
        if isinstance(error, errors.RequestRefusedError):
            prepared = self._memories.of(delivery.batch).prepared
            return with_change(self.connection, prepared.targets if prepared else (), error)
        if delivery.batch.stateful and does_not_fit_driver(error):
            obstacle = self.mode.obstacle
            return errors.BatchTooLargeError(
                "The rows of the batch do not fit the driver, and its state lets them be computed once",
                remedy="Start the query again with sent_by='tasks'. Spark replays the batch"
                if obstacle is None
                else f"Start the query again with a larger {config.RESULT_SIZE_CONF}, and as much memory of "
                f"the driver: with {obstacle} all rows must come to it. Spark replays the batch",
                **delivery.batch.where,
            )
        return error

    def _is_empty(self, delivery: Delivery, computed: list[TargetRows], found: Found) -> bool:
        """Return whether there is nothing to write, move or record."""
        has_rows = any(target.row_count or target.complete for target in computed)
        records = self._records_empty or found.must_record or delivery.call.is_repeated
        return not (delivery.batch.moves or has_rows or records)

    def _parts(self, computed: list[TargetRows]) -> list[Part]:
        options = self.options
        return (
            split(computed, options.rows_per_tablet_limit)
            if options.split_oversized
            else whole(computed)
        )

    def _committed(
        self,
        running: RunningBatch,
        delivery: Delivery,
        computed: list[TargetRows],
        committed: Committed,
    ) -> None:
        """Tell and remember that a batch is committed."""
        batch, clock = delivery.batch, delivery.clock
        delivery.call.note_committed()
        clock.lap("commit")
        row_bytes = sum(target.byte_count for target in computed)
        memory = self._memories.of(batch).after_commit(
            committed.entry, row_bytes=row_bytes, uneven=_is_uneven(delivery, computed)
        )
        self._memories.keep(batch, memory)
        delivery.emit(
            Event.BATCH_COMMITTED,
            rows=sum(target.row_count for target in computed),
            bytes=row_bytes,
            sent_by=computed[0].sent_by.value if computed else SentBy.DRIVER.value,
            attempts=committed.attempts,
            transaction=committed.transaction_id,
            seconds=clock.laps,
        )
        if self._past is not None and committed.entry is not None:
            self._past.add(committed.entry, delivery.ledger.targets, delivery.emit)
        if running.log.has_ended(running):
            raise errors.ConfigError(
                "Spark logged the batch as done before the sink had written it",
                remedy="The function returned before its sink did. Wait in the function for every sink that "
                "it calls, and let errors through. This batch is written",
                **batch.where,
            )
        if delivery.rows.are_computed and delivery.opened is None:
            planning.keep_refusal(delivery, row_bytes)
        self._check_between(batch, memory)

    def _check_between(self, batch: MicroBatch, memory: Memory) -> None:
        """Check the targets again, if that is due soon, while Spark plans the next batch."""
        prepared = memory.prepared
        if prepared is None or not prepared.wants_check:
            return
        with suppress(errors.TransientError):
            answer = self.connection.submit(
                partial(are_the_same, self.connection, prepared.targets)
            )
            checked = replace(prepared, check=(time.monotonic(), answer))
            self._memories.keep(batch, replace(memory, prepared=checked))


def _begun(commit: BatchCommit, delivery: Delivery, route: Route) -> Ahead[Read] | None:
    """Return a transaction that is begun ahead, if the route has one: perhaps that of the tasks."""
    if not route.opens_ahead:
        return None
    made = delivery.rows.plan
    return commit.begin_ahead(delivery.opened, made.age if made else 0.0)


def _failure(error: Exception, *, is_computed: bool) -> Failure | None:
    """Return what an error means for the route of its batch; `None` if the batch cannot take another one."""
    match error:
        case PartitionsUnknownError():
            return Failure.PARTITIONS_UNKNOWN
        case errors.TransactionTooOldError():
            return Failure.TOO_OLD
        case errors.TransientError() | errors.RequestRefusedError():
            return Failure.FAILED
    if isinstance(exactly_once_error(error), errors.TasksRefusedError):
        # Perhaps by a task, which has seen what the plan does not show.
        return Failure.REFUSED
    # The driver has seen a row that is wrong, or what tasks say of it.
    if is_computed or is_cancelled(error) or isinstance(error, errors.EncodingError):
        return None
    return Failure.TOO_LARGE if does_not_fit_driver(error) else Failure.FAILED


def _is_uneven(delivery: Delivery, computed: list[TargetRows]) -> bool:
    """Return whether rows went to fewer tablets than could have shared them."""
    tablets = {
        target.path: target.tablet_count for target in delivery.targets if target.spreads_partitions
    }
    return any(
        rows.row_count > SMALL_BATCH and 0 < rows.tablets < tablets.get(rows.path, 0)
        for rows in computed
    )
