"""`TransactionalSink`: the object a query hands its micro-batches to.

Its `__call__` is the whole story of a batch. The sink travels by pickle as configuration; connections
and prepared targets are created in the process that uses it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from yt_exactly_once import config, errors
from yt_exactly_once.commit.batch import MicroBatch
from yt_exactly_once.commit.cluster import OpenTransaction
from yt_exactly_once.commit.entry import TASKS, CommitLedger, LedgerEntry
from yt_exactly_once.commit.parts import TargetRows, split, whole
from yt_exactly_once.commit.transactional import SHARE_AHEAD
from yt_exactly_once.observability import Emitter, Event, GuardedListener, emitter, reported
from yt_exactly_once.retrying import run_attempts
from yt_exactly_once.spark.executors import unfit_python_named
from yt_exactly_once.spark.java import require_startable
from yt_exactly_once.spark.query.calls import PROCESS_CALLS, LedgerKey
from yt_exactly_once.spark.query.checkpoint import CheckpointFiles
from yt_exactly_once.spark.query.notes import LedgerNotes
from yt_exactly_once.spark.query.offset_log import Place
from yt_exactly_once.spark.query.raised import keep_error, surfaced
from yt_exactly_once.spark.query.running import RunningQuery
from yt_exactly_once.spark.sink import look_up, sender
from yt_exactly_once.spark.sink.encode import SMALL_BATCH, PartitionsUnknownError
from yt_exactly_once.spark.sink.frame_rows import FrameRows
from yt_exactly_once.spark.sink.modes import MODES
from yt_exactly_once.spark.sink.modes.mode import Plan, TargetBatch, at_once
from yt_exactly_once.spark.sink.options import SinkOptions, require_options, takes
from yt_exactly_once.spark.sink.past_batches import PastBatches
from yt_exactly_once.spark.sink.preparation import check_before_start, prepare
from yt_exactly_once.spark.sink.run import Delivery, QueryRun, Rows
from yt_exactly_once.spark.sink.targets import PreparedTarget, are_the_same, name_change
from yt_exactly_once.ytsaurus.client import Connection

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from yt_exactly_once.spark.sink.arrived import TaskMessage


_CANCELLED = "SPARK_JOB_CANCELLED"
"""How Spark names the error of a job that ends because its query is stopped."""


class TransactionalSink:
    """Writes the micro-batches of a query into dynamic tables, exactly once.

    Use it as `df.writeStream.foreachBatch(TransactionalSink("//home/app/result"))`. Options of a table are
    given to its `Target`: `TransactionalSink(Target("//home/app/totals", write="replace"))`.

    In the default mode each batch is one short tablet transaction. It writes the rows, moves the queue
    consumers and records the batch in a ledger, all or nothing. A batch that Spark replays is found in the
    ledger and skipped. The promise holds over any crash of driver, tasks, proxies and network.

    Two things break it: writing to the ledger by hand, and deleting the checkpoint. The sink cannot notice a
    deleted checkpoint. The query is then a new one: it starts at its consumer's offset, without its state.
    The sink refuses a consumer that was moved by hand and a checkpoint that was restored from a copy.

    - Call the sink once for every batch, empty ones too, and before anything else reads the DataFrame. A
      replay may find its rows trimmed, which the sink skips and another reader does not.
    - Call it on the thread of the function, or on a `pyspark.InheritableThread` that the function waits for.
    - Let its errors out of the function. After a swallowed one, and after a second call for a batch, every
      later batch is refused.

    Attributes:
        options: of the sink.
        last_error: the last error that a call in this process has raised; `None` before the first.

    Args:
        target: the table or tables to write.
        **options: see `SinkOptions`.

    Raises:
        ConfigError: an option is missing, unknown or impossible.
        JavaNotFoundError: no session runs in this process, and there is no Java to start one with.
    """

    last_error: errors.ExactlyOnceError | None

    @takes(SinkOptions)
    def __init__(self, *target: Any, **options: Any) -> None:
        require_options(list(options))
        require_startable()
        self.options = SinkOptions(*target, **options)
        self._open()
        location = self.options.checkpoint_location
        files = CheckpointFiles(location, self._connection) if location else None
        self._offset_log = RunningQuery(files)
        self._mode.check()

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        """Write one micro-batch; Spark calls this.

        1. Identify the query, the batch, and its range of every queue.
        2. Look the batch up in the ledger: one that is there is a replay, and skipped. In transactional
           mode only the first batch of a run is looked up here; step 5 covers the rest.
        3. Compute its rows, once, as encoded payloads.
        Then, as one attempt that is repeated while that can help:
        4. open a transaction, 5. check ledger and consumers in it, 6. write the rows,
        7. advance the consumers, 8. record the batch in the ledger, 9. commit.

        Raises:
            ExactlyOnceError: the batch was not written, or the replay will resolve its outcome.
        """
        place = None
        try:
            place = self._offset_log.locate(frame, batch_id)
            with self._delivery(place, FrameRows(frame), self._run) as delivery:
                self._deliver(delivery)
        except errors.ExactlyOnceError as error:
            self.last_error = error
            if place is not None:
                keep_error(place.run_id, error)
            raise surfaced(error)  # noqa: B904 - its cause is what is to be printed first

    def check(self, frame: DataFrame, *, output_mode: str | None = None) -> None:
        """Check before `start()` everything that can be known then. It writes nothing and creates nothing.

        That is the address, the token, every target with its columns, types and options, and the ledger and
        the dead-letter table if they are there. What depends on the running query is checked in its first
        batch: its consumers, the mode of an ordered target in idempotent mode, and permissions. The command
        `doctor` looks at those too.

        Args:
            frame: the DataFrame that the sink will get; the streaming one is fine.
            output_mode: of the query, if `write="replace"` or `aggregate` is used.

        Raises:
            ExactlyOnceError: as the first batch would.
        """
        self._connection.require_proxy()
        check_before_start(self._mode, FrameRows(frame), output_mode)

    @contextmanager
    def _delivery(
        self, place: Place, rows: Rows, run_of: Callable[[MicroBatch], QueryRun]
    ) -> Iterator[Delivery]:
        """Let one call for a batch through, with prepared targets, or refuse it; see `Calls.call`."""
        options, emit = self.options, self._emitter(place)
        keys = [LedgerKey(options.cluster.proxy, options.ledger, path) for path in self._paths]
        spare = LedgerNotes(self._connection, options.ledger, place.query_id, options.retry, emit)
        with reported(emit), self._calls.call(place, keys, emit, spare) as call:
            if place.problem is not None:
                raise place.problem
            batch = place.log.identify(place)  # 1
            ledger = CommitLedger(options.ledger, batch.query_id, sorted(self._paths))
            delivery = Delivery(batch, rows, call, run_of(batch), ledger, self._mode, emit)
            self._prepare(delivery)
            yield delivery

    def _deliver(self, delivery: Delivery) -> None:
        """Steps 2 to 9. Where tasks cannot send the rows, the driver does, and the other way round."""
        through_driver = self._mode.traits.through_driver
        with ExitStack() as ended:
            begun = None if through_driver else ended.enter_context(self._ahead(delivery))
            ready, found = at_once, look_up.Found()
            if sender.driver_stands_in(delivery) and delivery.run.continues_with(delivery.batch):
                # Nothing is written before all rows are here, and meanwhile the answer comes.
                ready = partial(look_up.require_new, delivery, begun)
            else:
                found = look_up.find(delivery, begun)  # 2
            if found.is_replay:
                self._skip(delivery, found)
                return
            delivery.clock.lap("look_up")
            by_tasks = sender.tasks_join(delivery)
            if by_tasks and self._deliver_by_tasks(delivery):
                return
            try:
                self._deliver_by_driver(delivery, found, ready)
            except Exception as error:
                may_send = sender.tasks_may_send(delivery)
                if by_tasks or sender.TOO_LARGE not in str(error) or not may_send:
                    raise
                delivery.tell_again(error)
                delivery.run.too_large = True
                if not through_driver:
                    self._deliver_by_driver(delivery, found)
                elif not self._deliver_by_tasks(delivery):
                    raise

    def _deliver_by_driver(
        self, delivery: Delivery, found: look_up.Found, ready: Callable[[], None] = at_once
    ) -> None:
        """Steps 3 to 9, with rows that come to the driver; or none where tasks write each by itself."""
        through_driver = self._mode.traits.through_driver
        with self._ahead(delivery) if through_driver else nullcontext():
            try:
                written = self._compute(delivery, ready=ready)  # 3
            except Exception:
                # A commit of an earlier run that landed late may have let the queue trim these rows.
                found = look_up.look_up(delivery)
                if found.is_replay:
                    self._skip(delivery, found)
                    return
                raise
            delivery.run.computing = delivery.clock.lap("compute")
            self._write(delivery, written, found.resumed)

    def _deliver_by_tasks(self, delivery: Delivery) -> bool:
        """Steps 3 to 9, with tasks that send the rows into the open transaction.

        Returns:
            Whether the batch is done. Otherwise its transaction has ended or will end by itself, and the
            rows go through the driver, in another one.
        """
        run, forced = delivery.run, self.options.sent_by == TASKS
        with delivery.committer.ahead() as opened:
            try:
                if opened is None:
                    return False
                transaction = opened.transaction()
                opened.read()
                inside = OpenTransaction(transaction.id, transaction.proxy)
                with transaction.kept_alive(config.LEASE.total_seconds() / SHARE_AHEAD):
                    written = self._compute(delivery, inside)  # 3
            except Exception as error:
                if isinstance(error, errors.ConfigError):
                    run.refusal = str(error)
                if (forced and run.refusal) or _CANCELLED in str(error):
                    raise
                delivery.tell_again(error)
                return False
            run.computing = delivery.clock.lap("compute")
            try:
                self._write(delivery, written)
            except (errors.TransientError, errors.RequestRefusedError) as error:
                delivery.tell_again(error)
                return False
        return True

    def _ahead(self, delivery: Delivery) -> AbstractContextManager[Any]:
        """Open the transaction while the rows are computed, if that is known to leave enough of its lease."""
        computing, lease = delivery.run.computing, config.LEASE.total_seconds()
        is_short = computing is not None and computing * SHARE_AHEAD <= lease
        return delivery.committer.ahead() if is_short else nullcontext()

    def _deliver_arrived(self, delivery: Delivery, messages: Sequence[TaskMessage]) -> None:
        """Steps 2 to 9 for rows that Spark has computed before it asks for the commit."""
        found = look_up.find(delivery)  # 2
        if found.is_replay:
            self._skip(delivery, found)
            return
        if any(message.skipped for message in messages):
            raise errors.LedgerDivergedError(
                "The ledger had this batch when it was planned, and has it no more",
                remedy="Restore the ledger, and start the query or the job again",
                **delivery.batch.where,
            )
        # What was there before the tasks wrote; one plan told all of them.
        sessions = messages[0].sessions if messages else {}
        delivery.run.sessions = {target.path: sessions for target in delivery.run.targets}
        delivery.clock.lap("look_up")
        written = self._compute(delivery)  # 3
        delivery.clock.lap("compute")
        self._write(delivery, written, found.resumed)

    def _write(
        self, delivery: Delivery, rows: list[TargetRows], resumed: LedgerEntry | None = None
    ) -> None:
        """Steps 4 to 9."""
        call, emit, run = delivery.call, delivery.emit, delivery.run
        has_rows = any(target.row_count or target.complete for target in rows)
        if not (delivery.batch.moves or has_rows or call.is_repeated or call.records):
            emit(Event.BATCH_SKIPPED, reason="empty")
            return
        limit = self.options.rows_per_tablet_limit
        parts = split(rows, limit) if self.options.split_oversized else whole(rows)
        try:
            committed = delivery.committer.commit(parts, resumed)  # 4 to 9
        except errors.OffsetConflictError as error:
            look_up.name_other_query(delivery, error)
            raise
        except errors.RequestRefusedError as error:
            name_change(self._connection, run.targets, error)
            raise
        call.note_committed()
        delivery.clock.lap("commit")
        run.entry = committed.entry
        run.bytes = sum(target.byte_count for target in rows)
        emit(
            Event.BATCH_COMMITTED,
            rows=sum(target.row_count for target in rows),
            bytes=run.bytes,
            sent_by=rows[0].sent_by,
            attempts=committed.attempts,
            transaction=committed.transaction_id,
            seconds=delivery.clock.laps,
        )
        if self._past is not None and committed.entry is not None:
            self._past.add(committed.entry, delivery.ledger.targets, emit)
        if call.place.log.has_ended(call.place):
            raise errors.ConfigError(
                "Spark logged the batch as done before the sink had written it",
                remedy="The function returned before its sink did. Wait in the function for every sink that "
                "it calls, and let errors through. This batch is written",
                **delivery.batch.where,
            )
        self._look_between(run)

    def __getstate__(self) -> dict[str, Any]:
        """Leave behind what belongs to this process."""
        return {name: value for name, value in vars(self).items() if name not in _PROCESS_STATE}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Begin afresh in another process."""
        vars(self).update(state)
        self._open()

    def __repr__(self) -> str:
        return f"TransactionalSink({', '.join(self._paths)!r}, mode='{self.options.mode}')"

    @property
    def _paths(self) -> list[str]:
        return [target.path for target in self.options.targets]

    def _open(self) -> None:
        self._connection = Connection(self.options.cluster)
        self._mode = MODES[self.options.mode](self.options, self._connection)
        self._runs: dict[str, QueryRun] = {}
        self._calls = PROCESS_CALLS
        past = self.options.history_path
        self._past = None if past is None else PastBatches(self._connection, past)
        listener = self.options.listener
        self._listener = None if listener is None else GuardedListener(listener)
        self.last_error = None

    def _run(self, batch: MicroBatch) -> QueryRun:
        run = self._runs.get(batch.query_id)
        if run is None or run.id != batch.run_id:
            run = self._runs[batch.query_id] = QueryRun(batch.run_id)
        return run

    def _emitter(self, place: Place) -> Emitter:
        return emitter(
            self._listener,
            query=place.query_id,
            batch=place.batch_id,
            target=self.options.targets[0].path,
            mode=str(self.options.mode),
        )

    def _prepare(self, delivery: Delivery) -> None:
        """Check, once per run, everything that can be wrong before its first row.

        The targets are checked again now and then. A table that replaced one since would store rows that
        were encoded for the old one, perhaps wrongly.
        """
        run, schema = delivery.run, delivery.rows.schema
        is_known = run.schema == schema
        if is_known and not run.must_look():
            return

        def attempt(number: int) -> tuple[PreparedTarget, ...]:
            try:
                if run.schema is None and number == 1:
                    # Later attempts leave the client its patience.
                    self._connection.require_proxy()
                look_up.require_cluster(delivery)
                if is_known and are_the_same(self._connection, run.targets):
                    return run.targets
                return prepare(delivery)
            except errors.TransientError as error:
                error.where.setdefault("proxy", self.options.cluster.proxy)
                self._connection.unpin()
                raise

        run.prepared(schema, run_attempts(attempt, self.options.retry, delivery.emit))

    def _look_between(self, run: QueryRun) -> None:
        """Check the targets again, if that is due soon, while Spark plans the next batch."""
        look = partial(are_the_same, self._connection, run.targets)
        with suppress(errors.TransientError):
            run.look_between(partial(self._connection.meanwhile, look))

    def _skip(self, delivery: Delivery, found: look_up.Found) -> None:
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
        self,
        delivery: Delivery,
        transaction: OpenTransaction | None = None,
        ready: Callable[[], None] = at_once,
    ) -> list[TargetRows]:
        """Evaluate the DataFrame, once. Where tasks write, they have written its rows then."""
        rows, targets, written = delivery.rows, delivery.run.targets, list[TargetRows]()
        by_driver, ends_tell = sender.driver_stands_in(delivery), sender.ends_tell(delivery)
        what = f"compute {', '.join(self._paths)}"
        with unfit_python_named(), rows.described(delivery.batch, what):
            rows = rows.kept() if len(targets) > 1 else rows
            for target in targets:
                plan = self._plan(delivery, target, transaction, by_driver=by_driver)
                plan = replace(plan, ready=ready, ends_tell=plan.ends_tell and ends_tell)
                written += self._finish(delivery, rows, plan)
        delivery.emit(Event.BATCH_COMPUTED, rows=sum(each.row_count for each in written))
        rejected = sum(each.row_count for each in written if each.rejected_by)
        if rejected:
            delivery.emit(Event.ROWS_REJECTED, path=self.options.dead_letter_path, rows=rejected)
        return written

    def _finish(self, delivery: Delivery, rows: Rows, plan: Plan) -> list[TargetRows]:
        """Compute the rows of a target, and return what the transaction is to write."""
        target = plan.given.target
        try:
            written = self._mode.finish(plan, rows.compute(plan))
        except PartitionsUnknownError:
            delivery.run.is_uneven = True
        except errors.BatchTooLargeError as error:
            if not (plan.ends_tell and target.spreads_partitions):
                raise
            delivery.tell_again(error)
            delivery.run.is_uneven = True
        else:
            if target.spreads_partitions and written[0].row_count > SMALL_BATCH:
                delivery.run.is_uneven |= 0 < written[0].tablets < target.tablet_count
            return written
        # Only here, behind the error, the rows of the first time are gone.
        return self._finish(delivery, rows, replace(plan, ends_tell=False))

    def _plan(
        self,
        delivery: Delivery,
        target: PreparedTarget,
        transaction: OpenTransaction | None = None,
        *,
        by_driver: bool = False,
    ) -> Plan:
        """Return what the tasks do with the rows of a target."""
        columns = tuple(delivery.rows.schema_for(target.options).names)
        sessions = delivery.run.sessions.get(target.path, {})
        given = TargetBatch(delivery.batch, target, columns, sessions, transaction, by_driver)
        return self._mode.plan(given)


_PROCESS_STATE = frozenset(
    {"_connection", "_mode", "_runs", "_calls", "_past", "_listener", "last_error"}
)
