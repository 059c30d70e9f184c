"""`df.write.format("yt")`: a batch job whose rows are written once per application and version.

The job is a batch of the protocol: the application is its query, the version its number. So the ledger says
whether a repeated job is written, wholly or in parts. There is no checkpoint, and so nothing else knows it.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter

from yt_exactly_once.commit.batch import MicroBatch
from yt_exactly_once.commit.entry import APPLICATION_PREFIX
from yt_exactly_once.commit.notes import Note
from yt_exactly_once.errors import ConfigError, FencedError
from yt_exactly_once.retrying import run_attempts
from yt_exactly_once.spark.doors.arrived import TaskMessage, TaskRows, WriterTask, give_up
from yt_exactly_once.spark.doors.writer_options import CHECKPOINT_OPTION, parse_writer_options
from yt_exactly_once.spark.engine.engine import Engine
from yt_exactly_once.spark.engine.run import Delivery
from yt_exactly_once.spark.modes import mode_of
from yt_exactly_once.spark.modes.sessions import POSITION_BITS
from yt_exactly_once.spark.query.offset_log import OffsetLog, RunningBatch, identified
from yt_exactly_once.spark.tuning.collector import freeze_modules
from yt_exactly_once.ytsaurus.client import Connection
from yt_exactly_once.ytsaurus.rows import session_prefix, sessions_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType


APPLICATION, VERSION = "application", "version"

_LARGEST = 2**62
_VERSION_BITS = 63 - POSITION_BITS


@dataclass(frozen=True)
class Job:
    """What a batch job is told.

    Attributes:
        version: which of its runs may write; a higher one is a later job.
        options: of the sink, as texts.
        overwrites: whether its rows replace those of the target.
    """

    application: str
    version: int
    options: tuple[tuple[str, str], ...] = field(repr=False)
    overwrites: bool

    @classmethod
    def parse(cls, given: Mapping[str, str], *, overwrites: bool) -> Job:
        """Read the options of a job; raise `ConfigError` if one is missing, malformed or of a stream."""
        options = {name.lower(): value for name, value in given.items()}
        if CHECKPOINT_OPTION in options:
            raise ConfigError(
                "A batch write has no checkpoint",
                remedy="Remove checkpointLocation; application and version say which job this is",
                option="checkpointLocation",
            )
        application, version = (options.pop(name, "").strip() for name in (APPLICATION, VERSION))
        if not application or not version:
            raise ConfigError(
                f"The batch write has no {VERSION if application else APPLICATION}, so a repeated job "
                "could not be recognised",
                remedy="Add .option('application', 'backfill-orders').option('version', 20261122): the "
                "job is written once per application and version",
                option=VERSION if application else APPLICATION,
            )
        if not (version.isascii() and version.isdigit() and int(version) <= _LARGEST):
            raise ConfigError(
                f"version={version!r} is not a whole number from 0 to {_LARGEST}",
                remedy="Use a number that grows with each job, such as the date: 20261122",
                option=VERSION,
            )
        if options.get("mode", "").strip().lower() == "at-least-once":
            raise ConfigError(
                "mode='at-least-once' is for streams: a repeated job would write its rows again",
                remedy="Remove the option mode",
                option="mode",
            )
        if overwrites:
            options.setdefault("write", "replace")
        return cls(application, int(version), tuple(sorted(options.items())), overwrites)

    @property
    def query_id(self) -> str:
        """The application as the ledger has it."""
        return APPLICATION_PREFIX + self.application


class NothingLogged(OffsetLog):
    """The offset log and the notes of a job, which has no checkpoint: a repeated job asks the ledger."""

    def __init__(self, output_mode: str) -> None:
        self.notes = self
        self._output_mode = output_mode

    def identify(self, running: RunningBatch) -> MicroBatch:
        """Return the batch, which reads no queue."""
        return identified(running, (), (), output_mode=self._output_mode, reads_again=True)

    def texts(self, number: int) -> tuple[Sequence[str], Sequence[str]]:  # noqa: ARG002 - one interface
        """Return nothing: a job logs no offsets."""
        return (), ()

    def has_ended(self, running: RunningBatch) -> bool:  # noqa: ARG002 - one interface
        """Return that it has not: Spark waits for a writer."""
        return False

    def is_new(self, number: int, is_unused: bool) -> bool:  # noqa: ARG002 - one interface
        """Return that it is: only the ledger can know."""
        return True

    def all(self) -> Sequence[Note]:
        """Return none."""
        return ()

    def add(self, note: Note, text: str, instead_of: Note | None = None) -> None:
        """Keep none."""


class JobDoor:
    """Brings the engine the rows of one batch job."""

    def __init__(self, job: Job) -> None:
        self._job = job
        options = parse_writer_options({**dict(job.options), CHECKPOINT_OPTION: "none"})
        self._engine = Engine(mode_of(options, Connection(options.cluster)), records_empty=True)

    def plan(self, schema: StructType) -> WriterTask:
        """Take steps 1 and 2, and return what the tasks do; nothing is written if this raises."""
        running = self._running(f"plan-{uuid.uuid4()}")
        assignment, is_replay = self._engine.plan(
            running, TaskRows(schema), looks_up=True, require=self._require_next
        )
        if assignment.is_by_position and self._job.version >> _VERSION_BITS:
            raise ConfigError(
                f"version={self._job.version} is too large for mode='idempotent' and an ordered table: "
                "it is a part of the numbers of the rows",
                remedy=f"Use a number below {1 << _VERSION_BITS}, such as the date: 20261122",
                option=VERSION,
            )
        # The only task that pushes compares the rows itself, before it sends any.
        return WriterTask(replace(assignment, rehearsal=None), is_replay=is_replay)

    def finish(self, schema: StructType, messages: Sequence[TaskMessage]) -> None:
        """Take steps 1 to 9, when Spark knows which task of each partition counts.

        If this raises, the job was not written, or a repetition will resolve its outcome.
        """
        running = self._running(f"job-{uuid.uuid4()}")
        self._engine.deliver(running, TaskRows(schema, messages), self._require_next)

    def give_up(self, messages: Sequence[TaskMessage | None]) -> None:
        """End what is open of a job that has failed; a repetition plans it again."""
        give_up(self._engine.mode, self._job.query_id, self._job.version, messages)

    def _running(self, run_id: str) -> RunningBatch:
        log = NothingLogged("complete" if self._job.overwrites else "append")
        return RunningBatch(self._job.query_id, run_id, self._job.version, log)

    def _require_next(self, delivery: Delivery) -> None:
        """Raise `FencedError` if a later version is written, or another one is unfinished."""
        job, ledger, connection = self._job, delivery.ledger, delivery.mode.connection
        options, emit = delivery.mode.options, delivery.emit
        retry, producer = options.retry, options.producer
        (target,) = ledger.targets
        where = {APPLICATION: job.application, "target": target, "ledger": ledger.path}
        prefix = session_prefix(job.query_id, target)
        entry = run_attempts(lambda _: ledger.read(connection), retry, emit)
        sessions = run_attempts(lambda _: sessions_of(connection, producer, prefix), retry, emit)
        versions = (state.batch for state in sessions.values() if state.batch is not None)
        begun, written = max(versions, default=-1), -1 if entry is None else entry.batch_id
        if begun > written and begun != job.version:
            raise FencedError(
                f"Rows of version {begun} are in the target, and it is not complete",
                remedy=f"Run the job of version {begun} again first: it writes the other rows",
                **where,
            )
        if entry is not None and entry.batch_id > job.version:
            raise FencedError(
                f"Version {entry.batch_id} of the application is written, and this job has version "
                f"{job.version}. The ledger keeps the last version only, so it may be written too",
                remedy="If it is not, run it with a higher version than the one that is written, or as "
                "another application",
                **where,
            )
        if entry is not None and entry.batch_id < job.version and not entry.is_complete:
            raise FencedError(
                f"Only {entry.part} of {entry.part_count} parts of version {entry.batch_id} are written",
                remedy=f"Run the job of version {entry.batch_id} again first: it writes the other parts",
                **where,
            )


class JobWriter(DataSourceArrowWriter):
    """Writes one job. Spark pickles it for the tasks and for the commit."""

    def __init__(self, job: Job, schema: StructType, task: WriterTask) -> None:
        self._job, self._schema, self._task = job, schema, task

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskMessage:
        """Send the rows of a task, none of a written job; raise `ExactlyOnceError` if one does not fit."""
        freeze_modules()
        context = TaskContext.get()
        assert context is not None, "runs inside a Spark task"
        assignment = self._task.assignment
        run_id, partition = assignment.given.batch.run_id, context.partitionId()
        if self._task.is_replay:
            return TaskMessage(run_id, partition, skipped=True)
        if assignment.is_by_position and partition:
            raise ConfigError(
                "mode='idempotent' writes a job into an ordered table from one task, which can compare all "
                "its rows with those of an earlier run. This DataFrame has several Spark partitions",
                remedy="Write df.coalesce(1): it begins with the rows of the first partition, which may be "
                "in the target already",
                target=assignment.given.target.path,
            )
        return self._task.run(iterator, run_id, partition)

    def commit(self, messages: Sequence[Any]) -> None:
        """Make the job visible exactly once; see `JobDoor.finish`."""
        JobDoor(self._job).finish(self._schema, messages)

    def abort(self, messages: Sequence[Any]) -> None:
        """Leave a failed job to its repetition, which finds what its tasks have written.

        This raises nothing: it would hide why the job has failed.
        """
        with suppress(Exception):
            JobDoor(self._job).give_up(messages)


def job_writer(options: Mapping[str, str], schema: StructType, *, overwrites: bool) -> JobWriter:
    """Plan a batch job, and return what writes it; nothing is written if this raises."""
    job = Job.parse(options, overwrites=overwrites)
    return JobWriter(job, schema, JobDoor(job).plan(schema))
