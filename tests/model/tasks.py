"""What tasks ask of the cluster, and the real tasks as programs that can be stopped at every request.

The tasks are the ones that the real sink hands to Spark (`spark.modes`); only the client below
`ytsaurus.rows` is the model's. Rows are encoded and decoded for real.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import cache, cached_property
from string import ascii_letters
from typing import Any, NamedTuple, cast
from unittest import mock

import pyarrow as pa
from pyspark import TaskContext
from yt import yson
from yt.common import YtError

from tests.model.cluster import (
    CONFLICT,
    LOST,
    MISTOLD,
    UNAVAILABLE,
    Abort,
    ModelCluster,
    session_key,
)
from tests.model.continuations import Script, always
from tests.model.scenario import Ranges, Scenario
from yt_exactly_once.codec.rejects import Rejects
from yt_exactly_once.codec.rows import SEQUENCE_NUMBER, WireFormat
from yt_exactly_once.codec.schema import SOURCE_COLUMNS, TableSchema, WritePlan, check_frame
from yt_exactly_once.config import DEFAULT_DYN_BATCH_SIZE, ROWS_PER_TABLET_LIMIT, ClusterConfig
from yt_exactly_once.errors import (
    ClusterUnavailableError,
    CommitOutcomeUnknownError,
    ConflictError,
    RequestRefusedError,
    TransactionLostError,
)
from yt_exactly_once.observability import Emitter, Event
from yt_exactly_once.spark.modes import joined, push, tasks
from yt_exactly_once.spark.modes.mode import RowTask
from yt_exactly_once.spark.sink.encode import RowEncoder
from yt_exactly_once.spark.sink.placement import Placement
from yt_exactly_once.spark.sink.target import Target
from yt_exactly_once.spark.sink.targets import PreparedTarget
from yt_exactly_once.ytsaurus.client import Connection

COLUMNS = ("key", "query", "place", "row")
"""Of the target; the first one is the key of a sorted target."""

REFUSED = "refused"
"""Answer to a push with an epoch that is not the session's."""

_ZOMBIE_EPOCH = 3102

TargetRow = tuple[int, int, int, int]
"""Values of `COLUMNS`."""


class RunJob(NamedTuple):
    """The driver runs the Spark job of a batch.

    Attributes:
        run: name of the run of the query.
        rehearsed: sessions and their last numbers, where tasks only compare their rows with those that
            were pushed.
        transaction: into which tasks write, or by whose plan they open one; empty where each request is one.
        kept: whether its rows are there, and are not computed.
    """

    run: str
    checkpoint: int
    batch: int
    ranges: Ranges
    rehearsed: tuple[tuple[str, int], ...] = ()
    transaction: str = ""
    kept: bool = False

    @property
    def number(self) -> int:
        """Number of the run, from 1."""
        return int(self.run.lstrip(ascii_letters))


class RunTask(NamedTuple):
    """An executor runs a task of a job.

    Attributes:
        attempt: its number; 0 where it makes no difference to the program.
        copy: by which its name differs from those of other attempts; 0 as above.
    """

    job: RunJob
    partition: int
    attempt: int = 0
    copy: int = 0


class Insert(NamedTuple):
    """Writes rows in a transaction of their own."""

    rows: tuple[TargetRow, ...]


class InsertInside(NamedTuple):
    """Writes rows into a transaction of the driver."""

    transaction: str
    rows: tuple[TargetRow, ...]


class BeginShared(NamedTuple):
    """Begins a transaction for all tasks."""

    name: str


class BeginClaim(NamedTuple):
    """Begins the transaction of a claim, which sees who the owner is."""

    transaction: str
    partition: int


class TakeClaim(NamedTuple):
    """Commits the claim of an attempt, who has seen no owner."""

    transaction: str
    partition: int
    owner: str


def plan_of(run: str, batch: int) -> str:
    """Return the id of the plan of a batch."""
    return f"{run}.{batch}.plan"


def is_plan(name: str) -> bool:
    """Tell whether a name is that of a plan; it is that of a transaction otherwise."""
    return name.endswith(".plan")


class CreateSession(NamedTuple):
    """Creates a session of a producer, or takes it over."""

    session: int


class Push(NamedTuple):
    """Appends rows through a session.

    Attributes:
        numbers: one per row; none when the proxy sees an empty body.
        user_meta: left in the session, as sorted items.
    """

    session: int
    epoch: int
    numbers: tuple[int, ...]
    rows: tuple[TargetRow, ...]
    user_meta: tuple[tuple[str, Any], ...]


class JobFailed(NamedTuple):
    """Spark gave a job up.

    Attributes:
        error: name of the error of the task that failed last.
    """

    error: str


def run_task(
    scenario: Scenario, task: RowTask, call: RunTask, script: Script
) -> tuple[tuple[tuple[str, Any], ...], ...]:
    """Run a real task; return its reports, each as the items of a row."""
    connection = cast("Any", _Connection(script, scenario, call))
    task = replace(task, settings=replace(task.settings, connection=connection))
    names = task.settings.names
    has_rows = not (scenario.fickle and call.copy)
    rows = (
        scenario.rows_of_task(call.job.ranges, call.partition, call.job.number) if has_rows else ()
    )
    batch = _frame(names, tuple(_values(scenario, call.job, *row) for row in rows))
    with (
        task_context(call.partition, call.attempt, call.copy),
        mock.patch.object(joined, "uuid4", always("")),
        mock.patch.object(joined, "emitter", _silence),
        # A lease ends whenever the explorer chooses.
        mock.patch.object(joined, "repeated", always(nullcontext())),
        mock.patch.object(tasks, "emitter", _silence),
        mock.patch.object(push, "emitter", _silence),
        mock.patch.object(push, "side_by_side", _one_by_one),
    ):
        reports = [report for written in task(batch) for report in written.to_pylist()]
    return tuple(tuple(report.items()) for report in reports)


def _one_by_one(calls: Iterable[Callable[[], Any]], _most: int) -> list[Any]:
    """Let a program ask one thing at a time; like threads, later calls do not stop when one fails."""
    failed: list[Exception] = []
    returned = []
    for call in calls:
        try:
            returned.append(call())
        except Exception as error:  # noqa: BLE001 - the first one is raised
            failed.append(error)
    if failed:
        raise failed[0]
    return returned


def _silence(**_bound: Any) -> Emitter:
    return silent


def silent(event: Event, /, **fields: Any) -> None:
    """Take an event and tell nobody."""


def frame_columns(scenario: Scenario) -> list[str]:
    return [*COLUMNS, *(SOURCE_COLUMNS if scenario.by_source else ())]


@cache
def prepared_target(
    path: str, *, is_sorted: bool, dyn_batch_size: int = DEFAULT_DYN_BATCH_SIZE, tablets: int = 1
) -> PreparedTarget:
    """Return a target, checked as the sink does."""
    order = {"sort_order": "ascending"}
    schema = [
        {"name": name, "type": "int64", **(order if is_sorted and name == "key" else {})}
        for name in COLUMNS
    ]
    plan = check_frame(
        pa.schema([(name, pa.int64()) for name in COLUMNS]),
        TableSchema.from_yt(schema),
        target=path,
        sorted=is_sorted,
    )
    return PreparedTarget(
        options=Target(path),
        is_sorted=is_sorted,
        tablet_count=tablets,
        plan=plan,
        wire=WireFormat.YSON,
        placement=Placement(None if is_sorted else tablets),
        rows_per_tablet_limit=ROWS_PER_TABLET_LIMIT,
        table_id="",
        dyn_batch_size=dyn_batch_size,
    )


def encoder_of(
    plan: WritePlan,
    wire: WireFormat,
    placement: Placement,
    rejects: Rejects | None = None,
    *,
    dyn_batch_size: int = DEFAULT_DYN_BATCH_SIZE,
    **options: Any,
) -> RowEncoder:
    """Return what encodes rows for such a target."""
    target = prepared_target("//t", is_sorted=placement.tablet_count is None)
    return RowEncoder(
        replace(
            target,
            options=Target("//t", **options),
            plan=plan,
            wire=wire,
            placement=placement,
            dyn_batch_size=dyn_batch_size,
        ),
        rejects,
    )


def _values(scenario: Scenario, job: RunJob, place: int, row: int) -> dict[str, int]:
    tablet, index = SOURCE_COLUMNS
    key = 0 if scenario.one_key else place * 1_000 + row
    return {
        "key": key,
        "query": job.checkpoint,
        "place": place,
        "row": row,
        tablet: scenario.places[place][1],
        index: row,
    }


def _frame(names: tuple[str, ...], rows: tuple[dict[str, int], ...]) -> list[pa.RecordBatch]:
    arrays = [pa.array([row[name] for row in rows], pa.int64()) for name in names]
    plain = [f"c{place}" for place in range(len(names))]
    return [pa.RecordBatch.from_arrays(arrays, names=plain)]


@contextmanager
def task_context(partition: int, attempt: int = 0, copy: int = 0) -> Iterator[None]:
    """Let a task find out its partition and its attempt, as a Python worker does."""
    context = TaskContext()
    context._taskAttemptId = copy
    context._partitionId = partition
    context._attemptNumber = attempt
    try:
        yield
    finally:
        TaskContext._taskContext = None


@cache
def rows_in(payload: bytes) -> tuple[dict[str, int], ...]:
    return tuple(yson.loads(payload, yson_type="list_fragment"))


def _target_rows(payload: bytes) -> tuple[TargetRow, ...]:
    return tuple(
        cast("TargetRow", tuple(int(row[name]) for name in COLUMNS)) for row in rows_in(payload)
    )


@dataclass(frozen=True)
class _Connection:
    """What `ytsaurus.rows` and `commit.claims` ask of a connection."""

    script: Script
    scenario: Scenario
    call: RunTask

    @contextmanager
    def sending(self) -> Iterator[Client]:
        yield Client(self.script, self.scenario)

    def joined(self, transaction_id: str, *, proxy: str) -> Joined:
        assert proxy == "model"
        return Joined(self.script, transaction_id)

    def lookup(self, path: str, keys: Any) -> list[dict[str, str] | None]:
        return ModelCluster(self.script, {}).lookup(path, keys)

    def begin(self, _timeout: timedelta) -> Claiming:
        return Claiming(self.script, self.call)

    def unpin(self) -> None:
        """See `Cluster.unpin`."""


@dataclass
class Claiming:
    """A transaction that a task begins: of a claim, or for the rows of all tasks.

    That of a claim reads as of its start, and its commit is refused if it was not first. Begin and read are
    one step, and its begin is asked for when the task shows what the transaction is for.
    """

    script: Script
    call: RunTask
    claimed: TakeClaim | None = None

    proxy = "model"

    @cached_property
    def id(self) -> str:
        """Begin it for the rows of all tasks."""
        call, job = self.call, self.call.job
        name = f"{job.run}.{job.batch}.by-{call.partition}.{call.copy}"
        answer: str = self.script.ask(BeginShared(name))
        if answer == UNAVAILABLE:
            raise ClusterUnavailableError("The model lost a request")
        return answer

    def lookup(self, _path: str, keys: Any) -> list[dict[str, str] | None]:
        (key,) = keys
        owner = self.script.ask(BeginClaim(key["transaction_id"], key["partition"]))
        if owner == UNAVAILABLE:
            raise ClusterUnavailableError("The model lost a request")
        return [{"owner": owner} if owner else None]

    def insert(self, _path: str, rows: Iterable[Any]) -> None:
        (row,) = rows
        self.claimed = TakeClaim(row["transaction_id"], row["partition"], row["owner"])

    def abort(self) -> None:
        """End it; that of a claim leaves no trace."""
        if "id" in vars(self):
            self.script.ask(Abort(self.id))

    def commit(self, _written: Any) -> None:
        answer = self.script.ask(self.claimed)
        if answer == CONFLICT:
            raise ConflictError("The model refused the commit")
        if answer in {UNAVAILABLE, MISTOLD}:
            raise CommitOutcomeUnknownError("The model lost the answer")


@dataclass(frozen=True)
class Joined:
    """What tasks ask of a transaction of the driver: one request each, and its answer."""

    script: Script
    transaction: str

    def write(self, _path: str, payloads: Iterable[Any], _wire: str, _options: Any = None) -> None:
        for payload in payloads:
            answer = self.script.ask(InsertInside(self.transaction, _target_rows(payload.data)))
            if answer == UNAVAILABLE:
                raise ClusterUnavailableError("The model lost a request")
            if answer == LOST:
                raise TransactionLostError("The model ended the transaction")
            if answer == MISTOLD:
                raise RequestRefusedError("The model mistold the outcome")


@dataclass(frozen=True)
class Client:
    """What `ytsaurus.rows` asks of a sender: one request each, and its answer."""

    script: Script
    scenario: Scenario

    def send(self, command: str, parameters: dict[str, Any], body: Any = None) -> bytes:
        payload = None if body is None else bytes(body)
        return bytes(yson.dumps(getattr(self, command)(parameters, payload)))

    def insert_rows(self, _parameters: dict[str, Any], body: bytes) -> None:
        self._ask(Insert(_target_rows(body)))

    def create_queue_producer_session(
        self, parameters: dict[str, Any], _body: None
    ) -> dict[str, Any]:
        epoch, number, meta = self._ask(CreateSession(self._session(parameters["session_id"])))
        return {"epoch": epoch, "sequence_number": number, "user_meta": dict(meta)}

    def push_queue_producer(self, parameters: dict[str, Any], body: bytes) -> dict[str, Any]:
        request = Push(
            self._session(parameters["session_id"]),
            parameters["epoch"],
            tuple(int(row[SEQUENCE_NUMBER]) for row in rows_in(body)),
            _target_rows(body),
            tuple(sorted(parameters["user_meta"].items())),
        )
        answer = self.script.ask(request)
        if answer == UNAVAILABLE and repeats_bodies():
            # The body was a stream; the client reads it again, from its end.
            answer = self.script.ask(request._replace(numbers=(), rows=()))
        self._require_answer(answer)
        if answer == REFUSED:
            raise YtError("The model's session has another epoch", code=_ZOMBIE_EPOCH)
        last, skipped = answer
        return {"last_sequence_number": last, "skipped_row_count": skipped}

    def _ask(self, request: Any) -> Any:
        answer = self.script.ask(request)
        self._require_answer(answer)
        return answer

    @staticmethod
    def _require_answer(answer: Any) -> None:
        if answer == UNAVAILABLE:
            raise ConnectionResetError
        if answer == MISTOLD:
            raise YtError("The model mistold the outcome")

    def _session(self, session_id: str) -> int:
        return self.scenario.index[session_key(session_id)]


def repeats_bodies() -> bool:
    """Tell whether the client, configured as it is, repeats a push by itself."""
    config = ClusterConfig(proxy="model", request_timeout=timedelta(seconds=1))
    proxy = Connection(config)._pinned_config("model")["proxy"]
    return bool(proxy["retries"]["enable"]) and proxy["content_encoding"] != "identity"
