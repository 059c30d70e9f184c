"""Producer sessions of idempotent mode: how rows are numbered in them, and what they tell of a batch.

The session of a name remembers the number of its last row, and drops rows up to it. Every push also
leaves the batch it belongs to: that is how rows of an unfinished batch are found by a sink that would
not drop them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from yt_exactly_once.codec.schema import SOURCE_COLUMNS
from yt_exactly_once.config import WriteMode
from yt_exactly_once.errors import ConfigError
from yt_exactly_once.spark.offset_log import moves_rows
from yt_exactly_once.ytsaurus.rows import sessions_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import DataFrame

    from yt_exactly_once.commit.batch import MicroBatch
    from yt_exactly_once.spark.sink_options import SinkOptions
    from yt_exactly_once.spark.targets import PreparedTarget
    from yt_exactly_once.ytsaurus.client import Connection

_BY_SOURCE, _BY_POSITION = "source", "partition"


def session_prefix(query_id: str, target: str) -> str:
    """Return how the names of a query's sessions for a target begin."""
    return f"{query_id}:{target}:"


def source_session(queue_id: str, tablet: int) -> str:
    """Return the name of the session for the rows of one tablet of a queue.

    A queue that was created anew counts its rows from 0 again, in a session of its own.
    """
    return "-".join(filter(None, (_BY_SOURCE, queue_id, str(tablet))))


def position_session(partition: int) -> str:
    """Return the name of the session for the rows of one Spark partition."""
    return f"{_BY_POSITION}-{partition}"


def is_numbered_by_source(frame: DataFrame, batch: MicroBatch) -> bool:
    """Tell whether idempotent mode numbers rows by where they come from; by their position otherwise."""
    has_numbers = set(SOURCE_COLUMNS) <= set(frame.columns)
    return has_numbers and len(batch.sources) == 1 and not batch.others


def require_numbers(frame: DataFrame, batch: MicroBatch) -> None:
    """Check that idempotent mode can tell the rows of an ordered target apart.

    Raises:
        ConfigError: by position, and a shuffle may give a repeated task the rows in another order.
    """
    if is_numbered_by_source(frame, batch):
        return
    shuffles = batch.shuffles or moves_rows(frame)
    if shuffles is not False:
        has = "has a shuffle" if shuffles else "may have a shuffle (without a JVM it is not known)"
        raise ConfigError(
            "Idempotent mode would number the rows by their position in a task, and this query "
            f"{has}: a repeated task may get them in another order, and rows would be lost and repeated",
            remedy="Use mode='transactional'; or leave the shuffle out (repartition, join, distinct, "
            "order by); or, with one queue, let rows carry their source: include_service_columns=true",
            query=batch.query_id,
        )


def require_no_pushes(
    connection: Connection,
    options: SinkOptions,
    targets: Iterable[PreparedTarget],
    frame: DataFrame,
    batch: MicroBatch,
) -> None:
    """Check that no rows of a batch that is not in the ledger were pushed in another way than now.

    At-least-once mode may repeat rows, and takes them as they are.

    Raises:
        ConfigError: rows were pushed in idempotent mode, and this sink would write them again.
    """
    ordered = [target for target in targets if not target.is_sorted]
    if options.mode is WriteMode.AT_LEAST_ONCE or not ordered:
        return
    sessions = sessions_of(connection, options.producer_path, f"{batch.query_id}:")
    for target in ordered:
        known = ""
        if options.mode is WriteMode.IDEMPOTENT:
            by_source = is_numbered_by_source(target.transformed(frame), batch)
            known = _BY_SOURCE if by_source else _BY_POSITION
        prefix = session_prefix(batch.query_id, target.options.path)
        for session_id, user_meta in sessions.items():
            kind = session_id.removeprefix(prefix).partition("-")[0]
            if not session_id.startswith(prefix) or kind == known:
                continue
            if user_meta is not None and user_meta["batch"] == batch.batch_id:
                raise ConfigError(
                    "Rows of this batch are in the target already, written in idempotent mode and "
                    f"numbered by {_NUMBERS[kind]}; this sink would write them again",
                    remedy="Finish the batch as it was begun (mode, and whether rows carry their "
                    "source), and change the sink afterwards. If it cannot be finished, run once with "
                    "mode='at-least-once' and trigger(availableNow=True), which repeats those rows",
                    query=batch.query_id,
                    batch=batch.batch_id,
                    target=target.options.path,
                    session=session_id,
                )


_NUMBERS = {_BY_SOURCE: "their place in the queue", _BY_POSITION: "their position in a task"}
