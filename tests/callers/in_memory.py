"""Programs on a cluster in memory, without Spark: thousands of them in minutes.

`InMemory` does Spark's part: it logs offsets, calls the function, logs commits, and starts the query again.
The sink, its tasks, its client and the transactions are the real ones.
"""

from __future__ import annotations

import copy
import json
import logging
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future
from contextlib import ExitStack, contextmanager
from itertools import count
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pyarrow as pa

from tests.callers.client import Client
from tests.callers.deployment import Deployment, cut, joined
from tests.callers.frames import ROWS_OF_BATCH, Conf, Frame, Functions, Partitions
from tests.callers.mishaps import CrashedError
from tests.callers.oracle import ViolationError
from tests.callers.program import Layout, Part, Program, Row, Run, Source
from tests.callers.server import CONSUMER_SCHEMA, Server, Table
from tests.callers.threads import Turns
from tests.model.continuations import no_waiting
from tests.notes import MemoryNotes
from yt_exactly_once.commit.batch import MicroBatch
from yt_exactly_once.commit.notes import Note
from yt_exactly_once.delivery import memory as memory_module
from yt_exactly_once.delivery.memory import LOOK_INTERVAL
from yt_exactly_once.errors import CheckpointError
from yt_exactly_once.spark.doors.transactional_sink import TransactionalSink
from yt_exactly_once.spark.query.offset_log import (
    FORMAT,
    OFFSET_VERSION,
    OffsetLog,
    QueueOffset,
    RunningBatch,
    identified,
)
from yt_exactly_once.spark.sink import encode
from yt_exactly_once.ytsaurus import client as client_module
from yt_exactly_once.ytsaurus.transaction import TabletTransaction

_numbers = count()
"""For ids that no other deployment of this process has: the registry of calls is the process's."""

TARGET, REJECTED, LEDGER = "//target", "//rejected", "//ledger"
PRODUCER, CONSUMER, QUEUE = "//producer", "//consumer", "//queue"

REQUEST_BYTES = 80
"""A request has one or two rows, by their own weights."""

_ARROW = {
    "bigint": pa.int64(),
    "double": pa.float64(),
    "string": pa.string(),
    "boolean": pa.bool_(),
}


def deploy(program: Program) -> InMemory:
    deployment = InMemory(program)
    with deployment.patches():
        deployment.deploy()
    return deployment


class InMemory(Deployment):
    """A program on a cluster in memory."""

    def __init__(self, program: Program) -> None:
        super().__init__(program)
        self.server = Server(old=program.old_proxy)
        self.offsets: list[list[str]] = []
        self.commits = 0
        self.query_id = f"query-{next(_numbers)}"
        self.notes = Notes(self.server)
        self._log = Log(self)
        self._copies: list[dict[str, Table]] = []
        self._misreads = -1
        self._conf = Conf()
        self._retyped: set[int] | None = None
        tablets = 1 if program.is_sorted else program.tablets
        self.server.create("table", TARGET, self.target_schema(), tablets)
        self.server.create("queue_consumer", CONSUMER, CONSUMER_SCHEMA)

    # Spark's part

    def run(self, run: Run) -> None:
        self.server.start_process(run.death)
        self.notes.read_only = run.read_only
        memory_module.LOOK_INTERVAL = -1.0 if run.looks or run.retyped else LOOK_INTERVAL
        self._log = Log(self)
        self.is_done = False
        self._conf = Conf({ROWS_OF_BATCH: str(run.arrow_rows)})
        self._disturb(run)
        end, first = len(self.program.rows), self.commits
        if run.batches is not None:
            end = min(end, first + run.batches)
        try:
            while self.commits < end:
                batch = self.commits
                if batch == first + 1:
                    self._change_target(run)
                if len(self.offsets) == batch:
                    self.offsets.append(self._logged(batch))
                self.execute(run, self._laid_out(run, batch), batch)
                self._check_refused()
                if run.unlogged == batch:
                    return
                self.commits += 1
                self._copies[batch:] = [copy.deepcopy(self.server.tables)]
            self.is_done = self.commits == len(self.program.rows)
        except ViolationError:
            raise
        except CrashedError:
            return
        except Exception as error:  # noqa: BLE001 - whatever the function raises ends the query
            self.require_typed(error)
            self.require_reason(run, error)

    def _disturb(self, run: Run) -> None:
        """Do what somebody does between two runs."""
        if run.ledger_removed:
            self.server.tables.pop(LEDGER, None)
        if run.ledger_restored and self._copies and LEDGER in self._copies[-1]:
            self.server.restore(LEDGER, self._copies[-1][LEDGER])
        if run.sessions_lost and PRODUCER in self.server.tables:
            self.server.tables[PRODUCER].rows.clear()
        if run.put_back is not None and run.put_back < len(self._copies):
            for path in {LEDGER, TARGET} & set(self._copies[run.put_back]):
                self.server.put_back(path, self._copies[run.put_back][path])
        self._misreads = self._renew(run.newer)

    def _renew(self, kind: str) -> int:
        """Let a newer version of the package have written something; return the last batch that reads it."""
        match kind:
            case "entry" if LEDGER in self.server.tables:
                rows = self.server.tables[LEDGER].all_rows()
                for row in rows:
                    row["format_version"] += 1
                return sys.maxsize if rows else -1
            case "offset" if self.offsets and self.program.source is not Source.FILES:
                self.offsets[-1] = [
                    json.dumps(json.loads(text) | {FORMAT: OFFSET_VERSION + 1})
                    for text in self.offsets[-1]
                ]
                return len(self.offsets)
        return -1

    def _check_refused(self) -> None:
        """Check that no sink has returned that should have refused its rows."""
        newest = self.executions[-1]
        if newest.batch <= self._misreads and newest.delivered:
            message = "MISREAD: a newer version of the package has written it"
            raise ViolationError(message)
        if self._retyped is not None:
            late = {row["id"] for row in self.written()} - self._retyped
            if late:
                message = f"MISTYPED: {late}, in a column that has another type"
                raise ViolationError(message)

    def _change_target(self, run: Run) -> None:
        target = self.server.tables[TARGET]
        if run.tablets is not None and not target.keys:
            target.tablet_count = run.tablets
        if run.retyped and self._retyped is None:
            self._retyped = {row["id"] for row in target.all_rows()}
            target.schema = [
                {**column, "type": "interval"} if column["name"] == "num" else column
                for column in target.schema
            ]

    def _logged(self, batch: int) -> list[str]:
        """Return what Spark logs of the offsets of a batch."""
        program = self.program
        if program.source is Source.FILES:
            return [json.dumps({"logOffset": batch})]
        consumer = CONSUMER if program.source is Source.CONSUMER else None
        ends, starts = (dict(enumerate(program.ends(number))) for number in (batch, batch - 1))
        offset = QueueOffset("model", QUEUE, consumer, ends, starts, "queue-1", "model")
        return [json.dumps(offset.to_json())]

    def _laid_out(self, run: Run, batch: int) -> list[list[Row]]:
        """Return the rows of a batch in the partitions in which the source reads them."""
        rows = self.program.batch(batch)
        return cut(joined(rows), run.cores) if self.program.source is Source.FILES else rows

    def frame(self, run: Run, given: Any, layout: Layout, parts: Sequence[Part]) -> Any:
        rows: list[list[Row]] = given
        for part in parts:
            rows = [self.program.passed(part, partition) for partition in rows]
        schema = pa.schema([(name, _ARROW[kind]) for name, kind in self.columns().items()])
        evaluations = [self.started]

        def evaluate() -> Partitions:
            placed = rows
            match layout:
                case Layout.COALESCED:
                    placed = [joined(some) for some in cut(rows, run.cores) if some]
                case Layout.LOCAL:
                    placed = cut(joined(rows), run.cores)
                case Layout.UNION:
                    placed = [
                        self.program.passed(part, each)
                        for part in (Part.EVEN, Part.ODD)
                        for each in rows
                    ]
                case Layout.SHUFFLED:
                    evaluations[0] += 1
                    placed = _shuffled(rows, run.cores, evaluations[0])
                case Layout.PERSISTED:
                    placed = _shuffled(rows, run.cores, self.started)
            return [
                pa.RecordBatch.from_pylist([self.values(row) for row in each], schema=schema)
                for each in placed or [[]]
            ]

        session = SimpleNamespace(conf=self._conf, _jvm=None)
        disorders = layout is Layout.SHUFFLED
        folds = layout is Layout.LOCAL
        return Frame(self.server, schema, evaluate, session, disorders=disorders, folds=folds)

    def in_threads(self, jobs: Sequence[Callable[[], None]], period: int) -> None:
        turns = Turns(jobs, period)
        with mock.patch.object(self.server, "between", turns.between):
            turns.run()

    # The cluster

    @property
    def paths(self) -> dict[str, Any]:
        rejects = {"dead_letter_path": REJECTED} if self.program.rejects else {}
        tables = {"ledger_path": LEDGER, "producer_path": PRODUCER}
        return {"proxy": "model", **tables, **rejects}

    @property
    def target(self) -> str:
        return TARGET

    def connect(self, sink: TransactionalSink) -> None:
        sink._query = self._log

    def written(self) -> list[dict[str, Any]]:
        return self.server.tables[TARGET].all_rows()

    def rejected(self) -> list[dict[str, Any]]:
        table = self.server.tables.get(REJECTED)
        return [json.loads(row["row"]) for row in table.all_rows()] if table else []

    @contextmanager
    def patches(self) -> Iterator[None]:
        """Put the cluster and the frames in place of the client and of Spark."""
        fakes: list[tuple[Any, str, Any]] = [
            (client_module, "YtClient", lambda config: Client(self.server)),  # noqa: ARG005
            (client_module, "Sender", lambda client: client),
            (client_module, "HeavyProxyProvider", _Provider),
            (client_module, "require_proxy", lambda _: None),
            (TabletTransaction, "side_by_side", _last_first),
            (client_module, "ThreadPoolExecutor", _AtOnce),
            (logging.getLogger("yt_exactly_once"), "disabled", True),
            (memory_module, "LOOK_INTERVAL", LOOK_INTERVAL),
            (encode, "REQUEST_BYTES", REQUEST_BYTES),
        ]
        fakes += [
            (module, name, fake)
            for running, module in list(sys.modules.items())
            if running.startswith("yt_exactly_once.spark.")
            for name, fake in (("sf", Functions), ("require_straight", _no_plans))
            if hasattr(module, name)
        ]
        with ExitStack() as stack:
            for running, name, fake in fakes:
                stack.enter_context(mock.patch.object(running, name, fake))
            stack.enter_context(no_waiting())
            yield


def _no_plans(_job: Any, _batch: MicroBatch) -> int:
    """See nothing, and no number of tasks: every shuffle is hidden, and its effects must be noticed."""
    return -1


class _Provider:
    """Chooses among the proxies, if there is only one."""

    def __init__(self, _client: Client) -> None:
        self.state = SimpleNamespace(banned_proxies={})

    def __call__(self) -> str:
        return "model"


class Notes(MemoryNotes):
    """The notes in the checkpoint; a dead process writes none.

    Attributes:
        read_only: whether the checkpoint refuses them.
    """

    def __init__(self, server: Server) -> None:
        super().__init__()
        self._server = server
        self.read_only = False

    def add(self, note: Note, text: str, instead_of: Note | None = None) -> None:
        self._server.require_alive()
        if self.read_only:
            message = "Read-only file system"
            raise CheckpointError(message)
        super().add(note, text, instead_of)


class Log(OffsetLog):
    """Spark's offset log, for the sinks of one run.

    Args:
        deployment: what is run.
    """

    def __init__(self, deployment: InMemory) -> None:
        self._deployment = deployment
        self.notes = deployment.notes
        self._run_id = f"run-{next(_numbers)}"
        self._first, self._logged = deployment.commits, len(deployment.offsets)

    def locate(self, frame: Any, batch_id: int) -> RunningBatch:  # noqa: ARG002 - the interface
        """See `RunningQuery.locate`."""
        return RunningBatch(self._deployment.query_id, self._run_id, batch_id, self)

    def identify(self, running: RunningBatch) -> MicroBatch:
        """See `OffsetLog.identify`."""
        return identified(running, *self.texts(running.batch_id), output_mode="append")

    def texts(self, number: int) -> tuple[list[str], list[str]]:
        """See `OffsetLog.texts`."""
        offsets = self._deployment.offsets
        now, before = (
            offsets[one] if 0 <= one < len(offsets) else [] for one in (number, number - 1)
        )
        return now, before

    def has_ended(self, running: RunningBatch) -> bool:  # noqa: ARG002 - the interface
        """See `OffsetLog.has_ended`: Spark waits for every thread here."""
        return False

    def is_new(self, number: int, is_unused: bool) -> bool:
        """See `OffsetLog.is_new`: each run is an application of its own."""
        return self._first < number or (is_unused and self._logged <= number)


class _AtOnce(Executor):
    """Makes a call when it is submitted: two threads would send their requests in any order."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def submit(self, call: Callable[..., Any], /, *given: Any, **named: Any) -> Future[Any]:
        done: Future[Any] = Future()
        try:
            done.set_result(call(*given, **named))
        except BaseException as error:  # noqa: BLE001 - raised where the result is asked for
            done.set_exception(error)
        return done


def _last_first(self: Any, calls: Sequence[Callable[[Any], Any]]) -> list[Any]:
    """Make the calls of a transaction that do not depend on each other in the order least expected."""
    made = [call(self) for call in reversed(calls)]
    return made[::-1]


def _shuffled(rows: list[list[Row]], count: int, seed: int) -> list[list[Row]]:
    """Deal rows to partitions in an order that depends on a seed."""
    everything = sorted(joined(rows), key=lambda row: (row.id * (seed * 7 + 3) % 11, row.id))
    return [everything[running::count] for running in range(count)]
