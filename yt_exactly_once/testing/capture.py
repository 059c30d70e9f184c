"""The driver's side of a rehearsal: the sinks of a batch compute their rows, compare them, and write none."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrameWriter

from yt_exactly_once.codec.rejects import find_faults, without
from yt_exactly_once.codec.rows import WireFormat
from yt_exactly_once.config import DeliveryMode
from yt_exactly_once.errors import ConfigError, EncodingError, ExactlyOnceError, RepeatedCallError
from yt_exactly_once.spark.compat.checkpoint import CheckpointFiles
from yt_exactly_once.spark.data_source import FORMAT_NAME, SECOND_NAME
from yt_exactly_once.spark.doors.frame_rows import FrameRows, collected
from yt_exactly_once.spark.doors.transactional_sink import TransactionalSink
from yt_exactly_once.spark.schema import arrow_of_spark
from yt_exactly_once.spark.sink.encode import merged
from yt_exactly_once.spark.sink.targets import prepare_table
from yt_exactly_once.testing.comparison import (
    PastBatch,
    compared,
    counted,
    find_entry,
    left_out,
    with_letters,
)
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
    """One batch, and what its sinks have found. One batch is rehearsed at a time.

    Attributes:
        sinks: options of those that were called, by the proxy and the ledger.
    """

    trial: Trial
    found: list[Rehearsed] = field(default_factory=list)
    mode: str = ""
    split_oversized: bool = False
    sinks: dict[tuple[str, str], SinkOptions] = field(default_factory=dict)
    _called: set[tuple[str, str, str]] = field(default_factory=set)

    @property
    def query(self) -> str:
        """The id of the query."""
        return str(json.loads((Path(self.trial.checkpoint) / "metadata").read_text())["id"])

    def rehearse(self, sink: TransactionalSink, frame: DataFrame, batch_id: int) -> None:
        """Compute the rows of a sink, and compare them; say of each target what the sink would refuse."""
        options = sink.options
        connection = Connection(options.cluster)
        ranges = CheckpointFiles(self.trial.checkpoint).ranges(batch_id)
        if self.mode in {"", DeliveryMode.TRANSACTIONAL}:
            self.mode = str(options.mode)
        self.split_oversized |= options.split_oversized
        known = options.cluster.proxy, options.ledger
        self.sinks[known] = options
        refusal = _refusal(sink, frame, batch_id)
        rows = FrameRows(frame)
        if len(options.targets) > 1 and not refusal:
            # A stateful DataFrame may be computed once.
            rows = rows.kept()
        for target in options.targets:
            path = target.path
            entry, is_newest = find_entry(connection, options, path, self.query, batch_id)
            past = PastBatch(batch_id, ranges, entry, is_newest)
            try:
                if refusal:
                    raise refusal
                self._require_first((*known, path))
                found = rehearsed(connection, options, target, past, rows)
            except ExactlyOnceError as error:
                found = Rehearsed(batch_id, path, Judgement.REFUSED, reason=str(error))
            self.found.append(found)

    def end(self, batch_id: int) -> None:
        """Add the targets that the old code has written, and no sink of the new code."""
        written = [one.target for one in self.found]
        for options in self.sinks.values():
            connection = Connection(options.cluster)
            self.found += left_out(connection, options, self.query, batch_id, written)

    def _require_first(self, call: tuple[str, str, str]) -> None:
        """Raise `RepeatedCallError` for a second call for the batch and a target, as a sink does."""
        if call in self._called:
            raise RepeatedCallError(
                "The function calls a sink for this target twice: a sink refuses the second call for a batch",
                remedy="Give one sink several Targets, or each sink a target of its own",
                target=call[-1],
            )
        self._called.add(call)


_stages: list[_Stage] = []


def rehearsing(function: Callable[[DataFrame, int], Any], trial: Trial) -> Callable[..., None]:
    """Return a function that calls another one, whose sinks write nothing, and then ends the query."""

    def call(frame: DataFrame, batch_id: int) -> None:
        stage = _Stage(trial)
        _stages[:] = [stage]
        function(frame, batch_id)
        stage.end(batch_id)
        (trial.folder / FOUND).write_bytes(
            pickle.dumps((stage.found, stage.mode, stage.split_oversized))
        )
        raise BatchRehearsedError(f"Batch {batch_id} was rehearsed")

    return call


def replace_sinks() -> None:
    """Let every sink of this process rehearse instead of write, and refuse writers of the format."""

    def rehearse(self: TransactionalSink, frame: DataFrame, batch_id: int) -> None:
        _stages[0].rehearse(self, frame, batch_id)

    choose = DataFrameWriter.format

    def chosen(self: DataFrameWriter, source: str) -> DataFrameWriter:
        if source in (FORMAT_NAME, SECOND_NAME):
            raise ConfigError(
                f"The function writes with format('{source}'), and a rehearsal writes nothing",
                remedy="Give the DataFrame to a TransactionalSink with the options of the format",
            )
        return choose(self, source)

    TransactionalSink.__call__ = rehearse  # type: ignore[method-assign]
    DataFrameWriter.format = chosen  # type: ignore[method-assign]


def _refusal(sink: TransactionalSink, frame: DataFrame, batch_id: int) -> ExactlyOnceError | None:
    """Return what a sink would refuse before the rows are computed: options, a query, or targets."""
    # What the sink does itself, without a part that writes.
    query, mode = sink._query, sink._engine.mode  # noqa: SLF001
    try:
        running = query.locate(frame, batch_id)
        if running.problem is not None:
            return running.problem
        batch = running.log.identify(running)
        mode.require_query(batch)
        sink.check(frame, output_mode=batch.output_mode)
    except ExactlyOnceError as error:
        return error
    return None


def rehearsed(
    connection: Connection, options: SinkOptions, target: Target, past: PastBatch, given: FrameRows
) -> Rehearsed:
    """Judge the rows of a target; raise what the sink would raise before it writes them."""
    frame = given.frame_for(target)
    for option in ("delete_marker", "changes"):
        if target.effects[option]:
            why = f"Rows of a target with {option} are not compared: the ledger counts what they do to keys"
            return counted(past, target.path, None, frame.count(), why)
    if target.pattern is not None:
        tally = None if past.entry is None else past.entry.tally
        # Of the new ones nobody knows which name no table.
        old = None if tally is None else tally.rows + tally.rejected_rows
        why = "Rows of a target with columns in braces are not compared, only counted"
        return counted(past, target.path, old, frame.count(), why)
    info = describe_table(connection, target.path)
    # YSON takes every row that a table takes. Only a sink asks the cluster for more.
    wire = WireFormat.YSON
    schema = arrow_of_spark(frame.schema)
    prepared = prepare_table(connection, info, target, schema, options, wire=wire)
    rows = merged(list(collected(frame, needs_partitions=False)), schema)
    faults = find_faults(rows, prepared.plan, wire, "")
    if faults and options.dead_letter_path is None:
        raise EncodingError(
            f"{len(faults)} rows do not fit the target. The first one: {faults[0].reason}",
            remedy="Repair them in the query, or give the sink a dead_letter_path",
            target=target.path,
            column=faults[0].column,
        )
    found = compared(connection, past, prepared, without(rows, faults))
    return with_letters(found, past, len(faults))
