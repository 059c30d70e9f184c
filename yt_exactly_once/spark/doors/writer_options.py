"""The options of `writeStream.format("yt")`: those of a sink, of its target and of its retries, as texts."""

from __future__ import annotations

from collections.abc import Mapping

from yt_exactly_once.commit.tally import SentBy
from yt_exactly_once.config import DEFAULT_DYN_BATCH_SIZE, Changes, DeliveryMode, RetryPolicy
from yt_exactly_once.errors import ConfigError
from yt_exactly_once.options import options_of, read_texts, require_known
from yt_exactly_once.spark.sink.options import SinkOptions
from yt_exactly_once.spark.sink.target import Target

CHECKPOINT_OPTION = "checkpointlocation"
"""How Spark spells its option for a data source."""

RETRY_PREFIX = "retry_"
"""How the names begin of options that are those of a `RetryPolicy`."""

CHANGES_PREFIX = "changes_"
"""The same of `Changes`."""

_OF_SPYT = ("write_type_v3",)
"""Taken and without effect: the schema of the target decides."""

QUERY_NAME = "queryname"
"""What Spark itself adds beside `path`: `queryName(...)` is an option to it (`DataStreamWriter.scala`)."""

WRITER_OPTION_NAMES = (
    *options_of(Target),
    CHECKPOINT_OPTION,
    *options_of(SinkOptions),
    *(RETRY_PREFIX + name for name in options_of(RetryPolicy)),
    *(CHANGES_PREFIX + name for name in options_of(Changes)),
    *_OF_SPYT,
    QUERY_NAME,
)
"""Every option of the writer, with those that a text cannot give."""


def parse_writer_options(options: Mapping[str, str]) -> SinkOptions:
    """Read the options as Spark hands them over; raise `ConfigError` if they are impossible."""
    given = {name.lower(): value.strip() for name, value in options.items()}
    require_known(given, WRITER_OPTION_NAMES, "The format yt")
    if not given.get("path"):
        raise ConfigError(
            "The path of the target is missing",
            remedy="Give it: start('//home/app/result')",
            option="path",
        )
    checkpoint = given.get(CHECKPOINT_OPTION)
    if not checkpoint:
        raise ConfigError(
            "The writer has no option checkpointLocation, and does not see Spark's conf",
            remedy="Give it to the query itself: .option('checkpointLocation', '...')",
            option="checkpointLocation",
        )
    sink = {"dyn_batch_size": DEFAULT_DYN_BATCH_SIZE, **read_texts(SinkOptions, given)}
    retry = RetryPolicy(**read_texts(RetryPolicy, given, RETRY_PREFIX))
    target = Target(**read_texts(Target, given), changes=_changes(given))
    parsed = SinkOptions(target, **sink, retry=retry, checkpoint_location=checkpoint)
    if parsed.sent_by == SentBy.DRIVER and parsed.mode != DeliveryMode.TRANSACTIONAL:
        raise ConfigError(
            f"sent_by='driver' is not possible in mode '{parsed.mode}' with this format: its tasks send the "
            "rows",
            remedy="Leave sent_by out, or use foreachBatch",
            option="sent_by",
        )
    return parsed


def _changes(given: Mapping[str, str]) -> Changes | None:
    found = read_texts(Changes, given, CHANGES_PREFIX)
    if found and "sequence" not in found:
        raise ConfigError(
            "Options of changes need a sequence",
            remedy=f"Give {CHANGES_PREFIX}sequence, the column that orders the changes of a key",
            option=f"{CHANGES_PREFIX}sequence",
        )
    return Changes(**found) if found else None
