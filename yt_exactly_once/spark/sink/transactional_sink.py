"""`TransactionalSink`: the object a query hands its micro-batches to.

Its `__call__` is the whole story of a batch. The sink travels by pickle as configuration; connections,
prepared targets and the ledger are made again in the process that uses it.
"""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from yt_exactly_once.commit.ledger import CommitLedger
from yt_exactly_once.commit.parts import split, whole
from yt_exactly_once.commit.transactional import BatchCommit
from yt_exactly_once.config import (
    ROWS_PER_TABLET_LIMIT,
    ClusterConfig,
    RetryPolicy,
    WriteMode,
)
from yt_exactly_once.errors import ConfigError, TransientError
from yt_exactly_once.observability import Clock, Event, GuardedListener, emitter, reported
from yt_exactly_once.retrying import run_attempts
from yt_exactly_once.spark.query.calls import PROCESS_CALLS
from yt_exactly_once.spark.query.checkpoint import CheckpointFiles
from yt_exactly_once.spark.query.running import RunningQuery
from yt_exactly_once.spark.sink.look_up import find, look_up
from yt_exactly_once.spark.sink.modes import MODES
from yt_exactly_once.spark.sink.options import (
    ADD,
    AUTO_WIRE,
    SinkOptions,
    as_targets,
)
from yt_exactly_once.spark.sink.placement import BY_PARTITION
from yt_exactly_once.spark.sink.preparation import prepare
from yt_exactly_once.spark.sink.run import Delivery, QueryRun
from yt_exactly_once.spark.sink.targets import are_the_same
from yt_exactly_once.ytsaurus.client import Connection

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import DataFrame

    from yt_exactly_once.commit.batch import MicroBatch
    from yt_exactly_once.commit.parts import TargetRows
    from yt_exactly_once.observability import Emitter, Listener
    from yt_exactly_once.spark.query.calls import Call, Place
    from yt_exactly_once.spark.query.offset_log import OffsetLog
    from yt_exactly_once.spark.sink.options import Target
    from yt_exactly_once.spark.sink.targets import PreparedTarget


class TransactionalSink:
    """Writes the micro-batches of a query into a dynamic table, exactly once.

    Use it as `frame.writeStream.foreachBatch(TransactionalSink("//home/app/result"))`. In the default
    mode each batch is one short tablet transaction that writes the rows, moves the queue consumers and
    records the batch in a ledger, all or nothing; a batch that Spark replays is found in the ledger and
    skipped. The promise holds over any crash of driver, tasks, proxies and network. What breaks it:
    writing to the ledger by hand, and deleting the checkpoint, which nobody can notice: the query is a
    new one then, begins where its consumer stands, and has lost its state. A consumer that was moved by
    hand and a checkpoint that was restored from a copy are refused with an error. Call the sink once for
    every batch, empty ones too, and before anything else reads the frame: a replay may find its rows
    trimmed, which the sink skips and another reader does not. Call it on the thread of the function, or on
    a `pyspark.InheritableThread` that the function waits for. Let its errors out of the function: after a
    swallowed one, and after a second call for a batch, every later batch is refused.

    Args:
        path: the target, a mounted dynamic table, ordered or sorted; or several `Target`s that are
            written together, all or nothing.
        mode: `transactional` (default), `at-least-once` or `idempotent`. In idempotent mode a batch that was
            begun on an ordered target must be finished with the same rows. Where rows are numbered by their
            position in a task, that takes the same code and as many cores; where they carry their source,
            the code alone counts. A replay that differs stops with `NotOneToOneError`, and nothing is lost.
        proxy: `host:port` or URL of a proxy; default: `YT_PROXY`.
        token: OAuth token; default: `YT_TOKEN`.
        dyn_batch_size: rows per insert request; default: the Spark conf
            `spark.yt.write.dynBatchSize`, else 50 000.
        ledger_path: the ledger table, created and mounted on first use; default: `<path>_ledger`, of
            several targets that of the first path in alphabetical order.
        producer_path: the queue-producer table of idempotent mode on ordered targets, created and
            mounted on first use; default: `<path>_producer`, chosen likewise.
        ledger_attributes: further attributes for a ledger that is created, such as
            `tablet_cell_bundle` or `primary_medium`.
        advance_consumer: move the consumers of the query's queues. Of several sinks called from one
            foreachBatch function all but the last must have `False`.
        update_columns: keep the columns of an existing sorted row that the frame does not have.
        placement: which tablet of an ordered target takes a row. `partition` (default): Spark
            partition i goes to tablet i modulo the number of tablets, so all of it to one tablet. In
            the next batch the rows of a queue partition may be in another Spark partition, and so go
            to another tablet: the order of a queue partition holds within a batch only.
            `preserve`: a row goes to the tablet it had in the queue, which needs the source's service
            columns in the frame and as many tablets; the order of a queue partition holds over all
            batches. `round_robin`: the rows of a Spark partition go to one tablet after the other.
            A list of columns: rows with the same values there go to the same tablet. Whatever is
            chosen, rows of one Spark partition that go to one tablet keep their order there.
        write: `add` (default) appends to an ordered target and writes by key into a sorted one.
            `replace` is for output mode `complete` and sorted targets: rows that are not in the result
            any more are deleted in the same transaction. What is there is read in it, at its start, so
            the table must belong to this query alone: rows of others are deleted too. Rows of the result
            and deleted ones together must fit one transaction.
        delete_marker: a boolean column of the frame, true where the row's key is to be deleted from a
            sorted target; the column itself is not written. Of several rows with one key the last one
            counts, in the order of the Spark partition. Rows of a key in several Spark partitions have
            no order and are refused.
        aggregate: combine aggregating columns of a sorted target (`sum`, `max`, ...) with what is there,
            instead of replacing it. Each row counts once, whatever fails; but a query that gives a key
            again with a new total, as aggregations in output mode `update` do, adds that total.
        reject_to: a table for rows that the target cannot take (a number out of range, a null in a
            required column, bytes that are no text, ...), created and mounted on first use. They are
            written there in the same transaction, each with its query, batch, source coordinates,
            column, reason, and the row as JSON; the rest of the batch is written. Without it such a row
            fails the batch, and nothing is written. For transactional mode.
        show_values: quote the value in the error about a row that the target cannot take.
        split_oversized: write a batch that one transaction cannot carry in several. The batch is then
            visible part by part, and the query must give the same rows in the same order whenever it
            is replayed; a replay that differs is refused.
        transaction_timeout: lease of the transaction; tablet nodes allow 60 s.
        connections: requests sent side by side within one transaction.
        rows_per_tablet_limit: the cluster's `max_rows_per_transaction`; bigger batches are refused.
        wire_format: `auto`, `arrow` or `yson`. `auto` uses Arrow where the cluster takes it and the columns
            are safe in it, else YSON. `arrow` refuses columns that some proxies would store wrongly: `any`,
            `interval64`, and decimals of more than 35 digits.
        retry: how often and how long an attempt is repeated.
        accept_incomplete: number of a batch, or numbers of the first and the last of several, whose missing
            rows you have written yourself or give up. It has no effect on any other batch.
        new_ledger: begin, on a checkpoint with earlier batches, with a `ledger_path` or a target that the
            query has not used. It has no effect on a ledger that the query has used.
        checkpoint_location: the query's checkpoint; used only where the session has no JVM.
        client_config: laid over the configuration of `ytsaurus-client`; `{"backend": "rpc"}` uses RPC
            proxies where the package `ytsaurus-rpc-driver` is installed.
        listener: called with the name and the fields of every event, for metrics. What it raises is logged
            once and disturbs no batch.

    Raises:
        ConfigError: an option is missing, unknown or impossible.
    """

    def __init__(
        self,
        path: str | Sequence[Target],
        *,
        mode: str = WriteMode.TRANSACTIONAL,
        proxy: str | None = None,
        token: str | None = None,
        dyn_batch_size: int | None = None,
        ledger_path: str | None = None,
        producer_path: str | None = None,
        ledger_attributes: Mapping[str, Any] | None = None,
        advance_consumer: bool = True,
        update_columns: bool = False,
        placement: str | Sequence[str] = BY_PARTITION,
        write: str = ADD,
        delete_marker: str | None = None,
        aggregate: bool = False,
        reject_to: str | None = None,
        show_values: bool = False,
        split_oversized: bool = False,
        transaction_timeout: timedelta = timedelta(seconds=60),
        connections: int = 4,
        rows_per_tablet_limit: int = ROWS_PER_TABLET_LIMIT,
        wire_format: str = AUTO_WIRE,
        retry: RetryPolicy | None = None,
        accept_incomplete: int | tuple[int, int] | None = None,
        new_ledger: bool = False,
        checkpoint_location: str | None = None,
        client_config: Mapping[str, Any] | None = None,
        listener: Listener | None = None,
    ) -> None:
        targets = as_targets(
            path,
            update_columns=update_columns,
            placement=placement,
            write=write,
            delete_marker=delete_marker,
            aggregate=aggregate,
        )
        # Whatever the order they are given in, the ledger of the same targets is the same.
        first = min((target.path for target in targets), default="//")
        self.options = SinkOptions(
            targets=targets,
            mode=WriteMode.parse(mode),
            cluster=ClusterConfig.resolve(proxy, token, client_config=dict(client_config or {})),
            ledger_path=ledger_path or f"{first}_ledger",
            producer_path=producer_path or f"{first}_producer",
            dyn_batch_size=dyn_batch_size,
            ledger_attributes=dict(ledger_attributes or {}),
            advance_consumer=advance_consumer,
            split_oversized=split_oversized,
            transaction_timeout=transaction_timeout,
            connections=connections,
            rows_per_tablet_limit=rows_per_tablet_limit,
            wire_format=wire_format,
            reject_to=reject_to,
            show_values=show_values,
            retry=retry or RetryPolicy(),
            accept_incomplete=accept_incomplete,
            new_ledger=new_ledger,
            listener=listener,
        )
        self._offset_log: OffsetLog = RunningQuery(
            CheckpointFiles(checkpoint_location) if checkpoint_location else None
        )
        self._open()
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
        place = self._offset_log.locate(frame, batch_id)
        emit = self._emitter(place)
        with reported(emit), self._calls.begun(place, self.options.ledger_rows, emit) as call:
            self._deliver(call, frame, emit)

    def _deliver(self, call: Call, frame: DataFrame, emit: Emitter) -> None:
        if call.place.problem is not None:
            raise call.place.problem
        batch = self._offset_log.identify(frame, call.place)  # 1
        delivery = Delivery(batch, frame, call, self._run(batch), self._ledger(batch), emit)
        clock = Clock()
        self._prepare(delivery)
        found = find(delivery, self._mode, self._offset_log)  # 2
        if found.is_replay:
            self._skip(delivery)
            return
        clock.lap("look_up")
        try:
            rows = self._compute(delivery)  # 3
        except Exception:
            # A commit of an earlier run that landed late may have let the queue trim these rows.
            if look_up(delivery, self._mode, self._offset_log).is_replay:
                self._skip(delivery)
                return
            raise
        clock.lap("compute")
        has_rows = any(target.row_count or target.complete for target in rows)
        if not (batch.moves or has_rows or call.is_repeated or call.records):
            emit(Event.BATCH_SKIPPED, reason="empty")
            return
        limit = self.options.rows_per_tablet_limit
        parts = split(rows, limit) if self.options.split_oversized else whole(rows)
        committed = self._committer(delivery).commit(batch, parts, found.resumed)  # 4 to 9
        clock.lap("commit")
        emit(
            Event.BATCH_COMMITTED,
            rows=committed.row_count,
            attempts=committed.attempts,
            transaction=committed.transaction_id,
            seconds=clock.laps,
        )
        self._require_waiting(delivery)

    def __getstate__(self) -> dict[str, Any]:
        """Leave behind what belongs to this process."""
        return {name: value for name, value in vars(self).items() if name not in _PROCESS_STATE}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Begin afresh in another process."""
        vars(self).update(state)
        self._open()

    def __repr__(self) -> str:
        paths = ", ".join(target.path for target in self.options.targets)
        return f"TransactionalSink({paths!r}, mode={self.options.mode.value!r})"

    def _open(self) -> None:
        self._connection = Connection(self.options.cluster)
        self._mode = MODES[self.options.mode](self.options, self._connection)
        self._runs: dict[str, QueryRun] = {}
        self._calls = PROCESS_CALLS
        listener = self.options.listener
        self._listener = None if listener is None else GuardedListener(listener)

    def _run(self, batch: MicroBatch) -> QueryRun:
        run = self._runs.get(batch.query_id)
        if run is None or run.id != batch.run_id:
            run = self._runs[batch.query_id] = QueryRun(batch.run_id)
        return run

    def _emitter(self, batch: MicroBatch | Place) -> Emitter:
        return emitter(
            self._listener,
            query=batch.query_id,
            batch=batch.batch_id,
            target=self.options.targets[0].path,
            mode=self.options.mode.value,
        )

    def _ledger(self, batch: MicroBatch) -> CommitLedger:
        paths = sorted(target.path for target in self.options.targets)
        return CommitLedger(self.options.ledger_path, batch.query_id, paths)

    def _prepare(self, delivery: Delivery) -> None:
        """Check, once per run, everything that can be wrong before its first row.

        The targets are looked at again now and then: one that was replaced by another table since would
        take rows that were encoded for the old one, and might take them wrongly.
        """
        run, schema, emit = delivery.run, delivery.frame.schema, delivery.emit
        is_known = run.schema == schema
        if is_known and not run.must_look():
            return

        def attempt(_number: int) -> tuple[PreparedTarget, ...]:
            try:
                if is_known and are_the_same(self._connection, run.targets):
                    return run.targets
                return prepare(self._mode, delivery.frame, delivery.batch, emit)
            except TransientError:
                self._connection.unpin()
                raise

        run.prepared(schema, run_attempts(attempt, self.options.retry, emit))

    def _skip(self, delivery: Delivery) -> None:
        """Let a replay pass without writing.

        The DataFrame of a stateful query is evaluated all the same: Spark must build its state again, and
        refuses to continue when a batch leaves none behind.
        """
        if delivery.batch.stateful:
            delivery.frame.write.format("noop").mode("overwrite").save()
        delivery.emit(Event.BATCH_SKIPPED, reason="replay")

    def _compute(self, delivery: Delivery) -> list[TargetRows]:
        """Evaluate the DataFrame, once; in modes whose tasks write its rows are in the table then."""
        frame, run = delivery.frame, delivery.run
        if len(run.targets) > 1:
            # Several DataFrames are made of it, and each evaluation of a stateful one would commit state.
            frame = frame.localCheckpoint(eager=True)
        rows = [
            part
            for target in run.targets
            for part in self._mode.write(
                target.transformed(frame), delivery.batch, target, run.begun.get(target.path, {})
            )
        ]
        delivery.emit(Event.BATCH_COMPUTED, rows=sum(target.row_count for target in rows))
        rejected = sum(part.row_count for part in rows if part.path == self.options.reject_to)
        if rejected:
            delivery.emit(Event.ROWS_REJECTED, path=self.options.reject_to, rows=rejected)
        return rows

    def _committer(self, delivery: Delivery) -> BatchCommit:
        return BatchCommit(
            self._connection,
            delivery.ledger,
            policy=self.options.retry,
            emit=delivery.emit,
            transaction_timeout=self.options.transaction_timeout,
            lanes=self.options.connections,
            advance_consumer=self.options.advance_consumer,
            sent=delivery.call.sent,
            logged=partial(self._offset_log.ranges, delivery.batch),
            accepted=self.options.accepted,
        )

    def _require_waiting(self, delivery: Delivery) -> None:
        """Check that the function waits for its sink.

        Raises:
            ConfigError: Spark has logged the batch as done before the sink has returned.
        """
        if self._offset_log.has_ended(delivery.call.place):
            raise ConfigError(
                "Spark had logged the batch as done before the sink had written it",
                remedy="The function returned before its sink did: wait in the function for every sink "
                "that it calls, and let errors through. This batch is written",
                query=delivery.batch.query_id,
                batch=delivery.batch.batch_id,
            )


_PROCESS_STATE = frozenset({"_connection", "_mode", "_runs", "_calls", "_listener"})
