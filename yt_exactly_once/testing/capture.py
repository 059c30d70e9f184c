"""The driver's side of a rehearsal: the sinks of a batch compute their rows, compare them, and write none."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from yt_exactly_once.codec.rejects import find_faults, without
from yt_exactly_once.codec.rows import WireFormat
from yt_exactly_once.errors import ExactlyOnceError
from yt_exactly_once.spark.compat.checkpoint import CheckpointFiles
from yt_exactly_once.spark.doors.frame_rows import collected, written
from yt_exactly_once.spark.doors.transactional_sink import TransactionalSink
from yt_exactly_once.spark.schema import arrow_of_spark
from yt_exactly_once.spark.sink.encode import merged
from yt_exactly_once.spark.sink.targets import prepare_table
from yt_exactly_once.testing.comparison import PastBatch, compared, counted, find_entry
from yt_exactly_once.testing.rehearsal import Judgement, Rehearsed
from yt_exactly_once.testing.trial import Trial
from yt_exactly_once.ytsaurus.client import Connection
from yt_exactly_once.ytsaurus.tables import describe_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from yt_exactly_once.spark.sink.options import SinkOptions
    from yt_exactly_once.spark.sink.target import Target

FOUND = "rehearsed"
"""File in the folder of a trial, with what its sinks have found."""


class BatchRehearsedError(Exception):
    """The batch has been rehearsed. Spark must not log it as done, so the query ends with this."""


@dataclass
class _Stage:
    """One batch, and what its sinks have found. One batch is rehearsed at a time."""

    trial: Trial
    found: list[Rehearsed] = field(default_factory=list)
    mode: str = ""

    def rehearse(self, options: SinkOptions, frame: DataFrame, batch_id: int) -> None:
        """Compute the rows of a sink, and compare them."""
        connection = Connection(options.cluster)
        query = str(json.loads((Path(self.trial.checkpoint) / "metadata").read_text())["id"])
        ranges = CheckpointFiles(self.trial.checkpoint).ranges(batch_id)
        self.mode = str(options.mode)
        if len(options.targets) > 1:
            # A stateful DataFrame may be computed once.
            frame = frame.localCheckpoint(eager=True)
        for target in options.targets:
            entry, is_newest = find_entry(connection, options, target.path, query, batch_id)
            past = PastBatch(batch_id, ranges, entry, is_newest)
            try:
                found = _rehearsed(
                    connection, options, target, past, written(target.transformed(frame))
                )
            except ExactlyOnceError as error:
                found = Rehearsed(batch_id, target.path, Judgement.REFUSED, reason=str(error))
            self.found.append(found)


_stages: list[_Stage] = []


def rehearsing(function: Callable[[DataFrame, int], Any], trial: Trial) -> Callable[..., None]:
    """Return a function that calls another one, whose sinks write nothing, and then ends the query."""

    def call(frame: DataFrame, batch_id: int) -> None:
        stage = _Stage(trial)
        _stages[:] = [stage]
        function(frame, batch_id)
        (trial.folder / FOUND).write_bytes(pickle.dumps((stage.found, stage.mode)))
        raise BatchRehearsedError(f"Batch {batch_id} was rehearsed")

    return call


def replace_sinks() -> None:
    """Let every sink of this process rehearse instead of write."""

    def rehearse(self: TransactionalSink, frame: DataFrame, batch_id: int) -> None:
        _stages[0].rehearse(self.options, frame, batch_id)

    TransactionalSink.__call__ = rehearse  # type: ignore[method-assign]


def _rehearsed(
    connection: Connection, options: SinkOptions, target: Target, past: PastBatch, frame: DataFrame
) -> Rehearsed:
    given = {
        "columns in braces": target.pattern is not None,
        "delete_marker": target.delete_marker is not None,
        "changes": target.changes is not None,
    }
    if named := [name for name, is_given in given.items() if is_given]:
        why = f"Rows of a target with {named[0]} are not compared, only counted"
        return counted(past, target.path, frame.count(), why)
    info = describe_table(connection, target.path)
    # YSON takes every row that a table takes. Only a sink asks the cluster for more.
    wire = WireFormat.YSON
    schema = arrow_of_spark(frame.schema)
    prepared = prepare_table(connection, info, target, schema, options, wire=wire)
    rows = merged(list(collected(frame, needs_partitions=False)), schema)
    if options.dead_letter_path is not None:
        rows = without(rows, find_faults(rows, prepared.plan, wire, ""))
    return compared(connection, past, prepared, rows)
