"""The offset log as files of a checkpoint, for a session that has no JVM to ask (Spark Connect)."""

from __future__ import annotations

import json
import time
import uuid
from dataclasses import replace
from typing import Any

from yt_exactly_once.commit.batch import MicroBatch
from yt_exactly_once.errors import ConfigError
from yt_exactly_once.spark.compat.spark_log import COMMITS, OFFSETS, LoggedOffsets, read_offsets
from yt_exactly_once.spark.query.notes import FolderNotes
from yt_exactly_once.spark.query.offset_log import OffsetLog, RunningBatch, identified
from yt_exactly_once.spark.storage import open_storage, shown
from yt_exactly_once.ytsaurus.client import Connection

_ITS_OWN = "Pass the checkpointLocation of this very query"


class CheckpointFiles(OffsetLog):
    """Reads the offset log in a checkpoint folder.

    Args:
        location: the `checkpointLocation` of the query; see `open_storage`.
        connection: of the cluster of the query's targets, where a location `yt:///…` is.

    Raises:
        ConfigError: the location is on a file system that this process cannot read.
    """

    def __init__(self, location: str, connection: Connection | None = None) -> None:
        self._location = location
        self.location = shown(location)
        self._connection = connection
        self._files = open_storage(location, connection)
        self.notes = FolderNotes(self._files)
        self._since = time.time() * 1_000
        self._session: Any = None
        self._run: tuple[str, str] | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        """Travel as the path."""
        return files_of_a_run, (self._location, self._connection)

    def locate(self, frame: object, batch_id: int) -> RunningBatch:  # noqa: ARG002 - one interface
        """Return the batch that runs; raise `ConfigError` if the checkpoint is not the one of the batch."""
        try:
            metadata = json.loads(self._files.read("metadata"))
            self._read(batch_id)
        except FileNotFoundError as error:
            raise ConfigError(
                f"checkpoint_location has no batch {batch_id}", remedy=_ITS_OWN, path=self.location
            ) from error
        query_id = str(metadata["id"])
        if self._run is None or self._run[0] != query_id:
            self._run = query_id, self._run_of(query_id)
        running = RunningBatch(query_id, self._run[1], batch_id, self)
        if not self.has_ended(running):
            return running
        problem = ConfigError(
            f"Spark has logged batch {batch_id} as done in checkpoint_location, before the sink was called: "
            "it is of another query, or another run has written the batch, or the function did not wait",
            remedy=f"{_ITS_OWN}. Stop other runs of it. Wait in the "
            "function for every sink that it calls",
            path=self.location,
        )
        return replace(running, problem=problem)

    def _run_of(self, query_id: str) -> str:
        """Return the id of the run of a query; raise `ConfigError` if the session runs other queries only.

        Keep its name, if the session tells it.
        """
        if self._session is None:
            return str(uuid.uuid4())
        runs = {str(query.id): query for query in self._session.streams.active}
        if query_id in runs:
            self.query_name = runs[query_id].name or ""
            return str(runs[query_id].runId)
        raise ConfigError(
            "checkpoint_location is the checkpoint of another query, which this session does not run",
            remedy=_ITS_OWN,
            query=", ".join(runs),
            other_query=query_id,
            path=self.location,
        )

    def identify(self, running: RunningBatch) -> MicroBatch:
        """Return the batch by its logged offsets, and whether the query keeps state."""
        stateful = "state" in self._files.names("")
        return identified(running, *self.texts(running.batch_id), stateful=stateful)

    def texts(self, number: int) -> tuple[list[str], list[str]]:
        """Return the logged offsets of a batch, and of the one before."""
        return self._read(number).texts, self._read(number - 1).texts if number > 0 else []

    def has_ended(self, running: RunningBatch) -> bool:
        """Return whether the log of commits has the batch."""
        return str(running.batch_id) in self._files.names(COMMITS)

    def is_new(self, number: int, is_unused: bool) -> bool:
        """Return whether the batch was logged since this object is here."""
        if not is_unused:
            return False
        return self._read(number).logged_at >= self._since

    def _read(self, number: int) -> LoggedOffsets:
        content = self._files.read(f"{OFFSETS}/{number}")
        return read_offsets(number, content, path=self.location)


class WriterFiles(CheckpointFiles):
    """The offset log for a streaming writer, which has the checkpoint's path and no JVM."""

    def __init__(
        self,
        location: str,
        connection: Connection | None = None,
        output_mode: str | None = None,
        query_name: str = "",
    ) -> None:
        super().__init__(location, connection)
        self._output_mode, self.query_name = output_mode, query_name

    def newest(self) -> int:
        """Return the number of the batch that Spark runs; raise `ConfigError` if it has logged none."""
        numbers = [int(name) for name in self._files.names(OFFSETS) if name.isdecimal()]
        if not numbers:
            raise ConfigError(
                "checkpointLocation has no batch",
                remedy="Give the full URL of the checkpoint, as this process sees it: "
                "file:///..., hdfs://..., s3a://...",
                path=self.location,
            )
        return max(numbers)

    def identify(self, running: RunningBatch) -> MicroBatch:
        """Return the batch: Spark computes every replay before it asks a writer."""
        return replace(super().identify(running), output_mode=self._output_mode, reads_again=True)

    def has_ended(self, running: RunningBatch) -> bool:  # noqa: ARG002 - one interface
        """Return that it has not: Spark waits for a writer."""
        return False


def files_of_a_run(location: str, connection: Connection | None) -> CheckpointFiles:
    """Return the files in the process that Spark starts for a run.

    Only while it unpickles the function, the session that has started the query is the active one. Batches
    come in a session of their own, which has no queries.
    """
    from pyspark.sql import SparkSession  # noqa: PLC0415 - writers start sooner

    files = CheckpointFiles(location, connection)
    files._session = SparkSession.getActiveSession()  # noqa: SLF001
    return files
