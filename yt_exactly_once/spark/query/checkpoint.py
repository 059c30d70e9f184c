"""The offset log as files of a checkpoint, for a session that has no JVM to ask (Spark Connect).

A start of a query unpickles its sinks in a process of its own, so the sinks of one process that read one
checkpoint belong to one run.
"""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlparse
from urllib.request import url2pathname

from yt_exactly_once.commit.batch import MicroBatch
from yt_exactly_once.errors import ConfigError
from yt_exactly_once.spark.query.calls import Place
from yt_exactly_once.spark.query.notes import FolderNotes
from yt_exactly_once.spark.query.offset_log import digest_of_others, may_have_read, source_ranges

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from yt_exactly_once.commit.batch import SourceRange

_NO_OFFSET = "-"
"""How Spark's offset log spells a source that has no offset yet (`OffsetSeqLog.scala`)."""

_connect_runs: dict[str, tuple[str, bool]] = {}
"""Without a JVM: id of the run of each checkpoint, and whether a batch has used it."""


class CheckpointFiles:
    """Reads the offset log in a checkpoint folder.

    Args:
        location: the `checkpointLocation` of the query: a path or a `file:` URL.

    Raises:
        ConfigError: the location is on a file system this process cannot read directly.
    """

    def __init__(self, location: str) -> None:
        parts = urlparse(location)
        if parts.scheme not in ("", "file"):
            raise ConfigError(
                f"checkpoint_location on {parts.scheme} cannot be read without a JVM",
                remedy="Leave checkpoint_location out where the session has a JVM, or use a path",
            )
        self._location = location
        self._root = Path(url2pathname(parts.path) if parts.scheme else location)
        self._run_id = _connect_runs.setdefault(location, (str(uuid.uuid4()), False))[0]

    def __reduce__(self) -> tuple[Any, ...]:
        """Travel without the id: every start of the query unpickles its sinks, and is another run."""
        return _checkpoint_files_of_a_run, (self._location,)

    def locate(self, frame: DataFrame, batch_id: int) -> Place:  # noqa: ARG002 - one interface
        """See `OffsetLog.locate`.

        Raises:
            ConfigError: there is no checkpoint with this batch at the location.
        """
        try:
            metadata = json.loads((self._root / "metadata").read_text())
            self._read(batch_id)
        except FileNotFoundError as error:
            raise ConfigError(
                f"checkpoint_location has no batch {batch_id}",
                remedy="Pass the checkpointLocation of this very query",
                path=str(self._root),
            ) from error
        _connect_runs[self._location] = self._run_id, True
        return Place(metadata["id"], self._run_id, batch_id, FolderNotes(self._root))

    def identify(self, frame: DataFrame, place: Place) -> MicroBatch:  # noqa: ARG002 - one interface
        """See `OffsetLog.identify`."""
        batch_id = place.batch_id
        now = self._read(batch_id)
        before = self._read(batch_id - 1) if batch_id > 0 else []
        return MicroBatch(
            query_id=place.query_id,
            batch_id=batch_id,
            run_id=place.run_id,
            sources=source_ranges(now, before),
            stateful=(self._root / "state").exists(),
            others=digest_of_others(now, before),
        )

    def ranges(self, batch: MicroBatch, number: int) -> tuple[SourceRange, ...]:  # noqa: ARG002 - one interface
        """See `OffsetLog.ranges`."""
        try:
            before = self._read(number - 1) if number > 0 else []
            return source_ranges(self._read(number), before)
        except FileNotFoundError:
            return ()

    def has_ended(self, place: Place) -> bool:
        """See `OffsetLog.has_ended`."""
        return (self._root / "commits" / str(place.batch_id)).exists()

    def may_be_written(self, batch: MicroBatch) -> bool:
        """See `OffsetLog.may_be_written`."""
        return may_have_read(batch, self.ranges)

    def _read(self, batch_id: int) -> list[str]:
        lines = (self._root / "offsets" / str(batch_id)).read_text().splitlines()
        # First the version, then the metadata, then one line per source.
        return [line for line in lines[2:] if line != _NO_OFFSET]


def _checkpoint_files_of_a_run(location: str) -> CheckpointFiles:
    """Return the files for a run that begins; all sinks that are unpickled for it share its id."""
    if _connect_runs.get(location, ("", False))[1]:
        del _connect_runs[location]
    return CheckpointFiles(location)
